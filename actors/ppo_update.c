/* Updates of a policy by PPO: see ppo_update.h. */
#include "actors/ppo_update.h"

#include <math.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/optim.h>

/* Places in the sums, after the gradient. */
enum {
    LOSS,
    SAMPLES,
    MORE_SUMS
};

struct exo_ppo_update {
    exo_ppo_update_opts opts;
    exo_policy policy;
    size_t numel; /* of the policy */
    exo_optim *optim;
    uint64_t order_seed;
    uint64_t done; /* complete updates */
    /* The current update: */
    exo_ppo_samples samples;
    size_t capacity;  /* of the arrays of samples, and of `order` */
    uint32_t *order;  /* (samples) order of the current epoch */
    uint64_t next;    /* next minibatch, counted through the epochs */
    double loss, all; /* sums over the applied minibatches: loss, samples */
    float *sums;      /* (numel + MORE_SUMS) */
};

exo_status
exo_ppo_update_new(exo_ppo_update **out, const exo_ppo_update_opts *opts,
                   const exo_policy_shape *shape, uint64_t seed, uint64_t order_seed, exo_err *err)
{
    exo_ppo_update *u = exo_calloc(1, sizeof *u);
    if (!u)
        return exo_fail(err, EXO_NOMEM, "no memory for a policy");
    u->numel = exo_policy_numel(shape);
    float *values = exo_calloc(u->numel, sizeof *values);
    u->policy = exo_policy_view(shape, values);
    u->sums = exo_calloc(u->numel + MORE_SUMS, sizeof *u->sums);
    exo_optim_spec spec = exo_optim_spec_init(EXO_ADAM);
    spec.eps = 1e-5; /* CleanRL's */
    exo_status st = values && u->sums
                        ? exo_optim_new(&u->optim, &spec, exo_device_cpu(), u->numel, err)
                        : exo_fail(err, EXO_NOMEM, "no memory for a policy");
    if (st != EXO_OK) {
        exo_ppo_update_free(&u);
        return st;
    }
    u->opts = *opts;
    u->order_seed = order_seed;
    exo_policy_init(&u->policy, seed);
    *out = u;
    return EXO_OK;
}

static void
free_samples(exo_ppo_update *u)
{
    exo_free(u->samples.observations);
    exo_free(u->samples.choices);
    exo_free(u->samples.boxes);
    exo_free(u->samples.log_probs);
    exo_free(u->samples.values);
    exo_free(u->samples.advantages);
    exo_free(u->samples.targets);
    exo_free(u->order);
    u->samples = (exo_ppo_samples){0};
    u->order = NULL;
    u->capacity = 0;
}

void
exo_ppo_update_free(exo_ppo_update **update)
{
    if (!*update)
        return;
    free_samples(*update);
    exo_optim_free(&(*update)->optim);
    exo_free((*update)->policy.values);
    exo_free((*update)->sums);
    exo_free(*update);
    *update = NULL;
}

static exo_status
make_room(exo_ppo_update *u, size_t count, exo_err *err)
{
    const exo_policy_shape *shape = &u->policy.shape;
    exo_ppo_samples *s = &u->samples;
    if (count <= u->capacity)
        return EXO_OK;
    free_samples(u);
    s->observation = shape->observation;
    s->box = shape->box ? shape->outputs : 0;
    s->observations = exo_calloc(count, s->observation * sizeof(float));
    if (shape->box)
        s->boxes = exo_calloc(count, s->box * sizeof(float));
    else
        s->choices = exo_calloc(count, sizeof *s->choices);
    s->log_probs = exo_calloc(count, sizeof(float));
    s->values = exo_calloc(count, sizeof(float));
    s->advantages = exo_calloc(count, sizeof(float));
    s->targets = exo_calloc(count, sizeof(float));
    u->order = exo_calloc(count, sizeof *u->order);
    if (!s->observations || !(shape->box ? (void *)s->boxes : (void *)s->choices) ||
        !s->log_probs || !s->values || !s->advantages || !s->targets || !u->order) {
        free_samples(u);
        return exo_fail(err, EXO_NOMEM, "no memory for %zu samples", count);
    }
    u->capacity = count;
    return EXO_OK;
}

static void
add_samples(exo_ppo_update *u, const exo_rollout *r)
{
    exo_ppo_samples *s = &u->samples;
    size_t first = s->count, count = r->steps * r->environments;
    memcpy(s->observations + first * s->observation, r->observations,
           count * s->observation * sizeof(float));
    if (s->boxes)
        memcpy(s->boxes + first * s->box, r->boxes, count * s->box * sizeof(float));
    else
        memcpy(s->choices + first, r->choices, count * sizeof *s->choices);
    memcpy(s->log_probs + first, r->log_probs, count * sizeof(float));
    memcpy(s->values + first, r->values, count * sizeof(float));
    exo_gae(r, u->opts.gamma, u->opts.lambda, s->advantages + first);
    exo_vec_add(exo_host_array(EXO_F32, s->targets + first, count),
                exo_host_array(EXO_F32, s->advantages + first, count),
                exo_host_array(EXO_F32, s->values + first, count));
    s->count += count;
}

exo_status
exo_ppo_update_begin(exo_ppo_update *u, const exo_rollout *rollouts, size_t count, exo_err *err)
{
    size_t samples = 0;
    for (size_t i = 0; i < count; i++)
        samples += rollouts[i].steps * rollouts[i].environments;
    exo_status st = make_room(u, samples, err);
    if (st != EXO_OK)
        return st;
    u->samples.count = 0;
    for (size_t i = 0; i < count; i++)
        add_samples(u, &rollouts[i]);
    u->next = 0;
    u->loss = u->all = 0;
    return EXO_OK;
}

uint64_t
exo_ppo_update_steps(const exo_ppo_update *u)
{
    return u->opts.epochs * u->opts.minibatches;
}

/* A place after the gradient in the sums. */
static float *
sum_of(const exo_ppo_update *u, size_t which)
{
    return u->sums + u->numel + which;
}

/* The part of the updates that is left, from 1 to 0. */
static double
left(const exo_ppo_update *u)
{
    double part = 1 - (double)u->done / (double)u->opts.updates;
    return part > 0 ? part : 0;
}

void
exo_ppo_update_gradient(exo_ppo_update *u)
{
    uint64_t epoch = u->next / u->opts.minibatches, part = u->next % u->opts.minibatches;
    u->next++;
    if (part == 0) {
        exo_rng rng;
        exo_rng_init(&rng, u->order_seed, EXO_RNG_SHUFFLE, 0, u->done * u->opts.epochs + epoch);
        exo_rng_permutation(&rng, u->order, (uint32_t)u->samples.count);
    }
    size_t first = u->samples.count * part / u->opts.minibatches;
    size_t end = u->samples.count * (part + 1) / u->opts.minibatches;
    const exo_policy gradient = exo_policy_view(&u->policy.shape, u->sums);
    exo_ppo_opts loss = u->opts.loss;
    loss.entropy = u->opts.last_entropy + (loss.entropy - u->opts.last_entropy) * left(u);
    for (uint64_t i = 0; i < u->opts.repeat; i++) {
        memset(u->sums, 0, (u->numel + MORE_SUMS) * sizeof *u->sums);
        *sum_of(u, LOSS) = (float)exo_ppo_gradient(&u->policy, &u->samples, u->order + first,
                                                   end - first, &loss, &gradient);
    }
    *sum_of(u, SAMPLES) = (float)(end - first);
}

float *
exo_ppo_update_sums(exo_ppo_update *u)
{
    return u->sums;
}

size_t
exo_ppo_update_num_sums(const exo_ppo_update *u)
{
    return u->numel + MORE_SUMS;
}

exo_status
exo_ppo_update_apply(exo_ppo_update *u, exo_err *err)
{
    const exo_array policy = exo_host_array(EXO_F32, u->policy.values, u->numel);
    const exo_array gradient = exo_host_array(EXO_F32, u->sums, u->numel);
    float norm = 0, samples = *sum_of(u, SAMPLES);
    if (samples < 1)
        return EXO_OK;
    exo_vec_divide(gradient, samples);
    exo_status st = exo_clip_grad_norm(
        gradient, u->opts.max_norm > 0 ? (float)u->opts.max_norm : INFINITY, &norm, err);
    if (st != EXO_OK)
        return st;
    if (!isfinite(*sum_of(u, LOSS)) || !isfinite(norm))
        return exo_fail(err, EXO_FAILED,
                        "the loss of update %llu is not finite: are rewards too large?",
                        (unsigned long long)u->done + 1);
    exo_optim_step(u->optim, policy, gradient, (float)(u->opts.lr * left(u)));
    u->loss += (double)*sum_of(u, LOSS);
    u->all += (double)samples;
    return EXO_OK;
}

void
exo_ppo_update_end(exo_ppo_update *u)
{
    u->done++;
}

const exo_policy *
exo_ppo_update_policy(const exo_ppo_update *u)
{
    return &u->policy;
}

uint64_t
exo_ppo_update_count(const exo_ppo_update *u)
{
    return u->done;
}

double
exo_ppo_update_loss(const exo_ppo_update *u)
{
    return u->all > 0 ? u->loss / u->all : 0;
}
