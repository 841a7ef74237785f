/* The passes of a stage of a model: see replica.h. In a step each stage computes forward of a few
 * minibatches, then one forward and one backward in turn, then the last backwards (1F1B; Narayanan et
 * al., 2021, arXiv:2104.04473). With P stages and M minibatches a stage has at most P passes at once,
 * and waits for (P - 1) / (M + P - 1) of the step.
 *
 * Numbers move between two neighbours by exo_broadcast in one direction, and by exo_swap where one has
 * a result and the other a gradient, so each blocks until the other is there and they never wait for
 * each other in a circle. A stage sends its neighbour samples x tokens x width numbers for each
 * minibatch and direction.
 *
 * A strategy that keeps units opens those of the stage before the passes of a step, which use them in
 * turn with those of other minibatches, and closes each one after its gradients or the last pass.
 *
 * Owner: the replica's. Read next: exogym/parallel.h. */
#include "actors/replica.h"

#include <exogym/memory.h>
#include <exogym/parallel.h>

/* A minibatch from its forward to its backward. */
struct slot {
    exo_tape *tape;
    float *input; /* (numel) from the stage before; its gradient after backward */
    exo_stage_pass pass;
};

struct exo_pipeline {
    uint32_t stage, stages;
    struct slot *slots; /* (num_slots) that of minibatch m is m % num_slots */
    size_t num_slots;
    size_t numel;   /* room of `between` and of the slots' inputs */
    float *between; /* (numel) the stage's result, and its gradient from the stage after */
    exo_array
        wire; /* (numel) where a device's engine moves numbers; no elements: in the host's memory */
    exo_grad_ready ready;
    size_t tied_first, tied_count; /* of the flat parameters: an embedding that is the head, too */
    bool tied_waits;               /* its gradient is to be announced */
    size_t forwards, backwards;    /* of this step */
};

/* A step of a stage. */
struct step {
    exo_replica *r;
    exo_pipeline *p;
    const exo_batch *batch;
    size_t minibatches;
    size_t numel; /* of a minibatch between two stages */
    double *loss;
};

exo_status
exo_pipeline_new(exo_pipeline **out, const exo_replica *r, exo_err *err)
{
    const exo_fit *fit = r->fit;
    const size_t minibatches = fit->batch_size / fit->minibatch_size;
    exo_pipeline *p = exo_calloc(1, sizeof *p);
    if (!p)
        return exo_fail(err, EXO_NOMEM, "no memory for a stage");
    p->stage = exo_fit_place_of(fit, r->rank).stage;
    p->stages = fit->stages;
    p->num_slots = p->stages - p->stage;
    if (p->num_slots > minibatches)
        p->num_slots = minibatches;
    if (!exo_stage_tied(r->model, &p->tied_first, &p->tied_count))
        p->tied_count = 0;
    p->slots = exo_calloc(p->num_slots, sizeof *p->slots);
    exo_status st = p->slots ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a stage");
    for (size_t i = 0; st == EXO_OK && i < p->num_slots; i++)
        st = fit->rehearses ? exo_tape_new_rehearsal(&p->slots[i].tape, err)
                            : exo_tape_new_on(&p->slots[i].tape, r->device, err);
    *out = p;
    if (st != EXO_OK)
        exo_pipeline_free(out);
    return st;
}

void
exo_pipeline_free(exo_pipeline **pipeline)
{
    exo_pipeline *p = *pipeline;
    *pipeline = NULL;
    if (!p)
        return;
    for (size_t i = 0; p->slots && i < p->num_slots; i++) {
        exo_tape_free(&p->slots[i].tape);
        exo_free(p->slots[i].input);
    }
    exo_free(p->slots);
    exo_free(p->between);
    exo_array_release(&p->wire);
    exo_free(p);
}

static exo_status
grow(float **numbers, size_t numel, exo_err *err)
{
    exo_free(*numbers);
    *numbers = exo_alloc_aligned(numel * sizeof **numbers);
    return *numbers ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for %zu activations", numel);
}

/* Makes room for minibatches of `numel` numbers between stages. */
static exo_status
make_room(exo_pipeline *p, exo_device *device, size_t numel, exo_err *err)
{
    exo_status st = EXO_OK;
    if (numel <= p->numel)
        return EXO_OK;
    p->numel = 0;
    exo_array_release(&p->wire);
    if (!exo_device_is_host(device))
        st = exo_array_init(&p->wire, device, EXO_F32, numel, err);
    if (st == EXO_OK)
        st = grow(&p->between, numel, err);
    for (size_t i = 0; st == EXO_OK && p->stage > 0 && i < p->num_slots; i++)
        st = grow(&p->slots[i].input, numel, err);
    if (st == EXO_OK)
        p->numel = numel;
    return st;
}

/* --- Between neighbours ----------------------------------------------------------------------- */

enum {
    EARLIER, /* of two neighbours, by their rank in a group of both */
    LATER
};

/* Numbers as the array that an engine moves; own: with their values. */
static exo_array
begin_move(const exo_pipeline *p, float *numbers, size_t numel, bool own)
{
    if (p->wire.count == 0)
        return exo_host_array(EXO_F32, numbers, numel);
    const exo_array array = exo_array_part(p->wire, 0, numel);
    if (own)
        exo_array_send(array, numbers);
    return array;
}

/* Takes over what has come. */
static exo_status
end_move(const exo_pipeline *p, exo_array array, float *numbers, exo_err *err)
{
    return p->wire.count ? exo_array_read(array, numbers, err) : EXO_OK;
}

/* Moves `numel` numbers from one of two neighbours to the other. */
static exo_status
move(const exo_pipeline *p, exo_group *pair, float *numbers, size_t numel, uint32_t from,
     exo_err *err)
{
    const bool own = exo_group_rank(pair) == from;
    const exo_array array = begin_move(p, numbers, numel, own);
    exo_status st = exo_broadcast(pair, array, from, err);
    return st == EXO_OK && !own ? end_move(p, array, numbers, err) : st;
}

/* Gives the other neighbour `numbers`, which are then what it gives. */
static exo_status
swap(const exo_pipeline *p, exo_group *pair, float *numbers, size_t numel, exo_err *err)
{
    const exo_array array = begin_move(p, numbers, numel, true);
    exo_status st = exo_swap(pair, array, !exo_group_rank(pair), err);
    return st == EXO_OK ? end_move(p, array, numbers, err) : st;
}

/* --- The passes of a step --------------------------------------------------------------------- */

static struct slot *
slot_of(const struct step *s, size_t minibatch)
{
    return &s->p->slots[minibatch % s->p->num_slots];
}

/* Forward is a third of a minibatch's declared cost. */
static void
pay(const struct step *s)
{
    const double thirds = (double)s->p->forwards + 2 * (double)s->p->backwards;
    exo_pace_reach(s->r->pace, thirds / (3 * (double)s->minibatches));
}

/* exo_grad_ready. The gradient of a tied embedding is final after the sum of two stages' gradients. */
static exo_status
gradient_ready(void *context, size_t first, size_t count, exo_err *err)
{
    exo_replica *r = context;
    exo_pipeline *p = r->pipeline;
    if (p->tied_count == 0 || first != p->tied_first)
        return exo_replica_gradient_ready(r, first, count, err);
    p->tied_waits = true;
    return EXO_OK;
}

/* Leaves the result in `between`. */
static exo_status
forward(struct step *s, size_t minibatch, exo_err *err)
{
    exo_replica *r = s->r;
    const size_t size = r->fit->minibatch_size;
    struct slot *slot = slot_of(s, minibatch);
    const exo_batch rows = exo_replica_rows(s->batch, minibatch * size, size);
    const bool tells = minibatch + 1 == s->minibatches && exo_replica_announces(r);
    const exo_pass pass = {.train = true,
                           .grad = true,
                           .autocast = r->fit->autocast,
                           .seed = r->fit->seed,
                           .node = r->rank / exo_fit_sharing(r->fit),
                           .step = r->node.step * s->minibatches + minibatch,
                           .ready = tells ? &s->p->ready : NULL};
    exo_tape_set_group(slot->tape, r->tensor[0]);
    exo_tape_set_context_group(slot->tape, r->context[0]);
    exo_tape_begin(slot->tape, r->params, &pass);
    if (!exo_stage_forward(r->model, slot->tape, &rows, slot->input, &slot->pass))
        return exo_tape_error(slot->tape, err);
    if (r->after[0]) {
        exo_tensor_read(slot->pass.output, s->p->between);
    } else if (!r->fit->rehearses) { /* the results of a rehearsal are meaningless */
        *s->loss += (double)exo_tensor_item(slot->pass.output);
        exo_pass_figures_add(&r->meters.figures, slot->tape);
    }
    s->p->forwards++;
    pay(s);
    return exo_tape_error(slot->tape, err);
}

/* Takes the gradient of the result from `between`, and leaves that of the input in the slot. */
static exo_status
backward(struct step *s, size_t minibatch, exo_err *err)
{
    struct slot *slot = slot_of(s, minibatch);
    exo_status st = exo_stage_backward(slot->tape, &slot->pass, 1.0f / (float)s->minibatches,
                                       s->r->after[0] ? s->p->between : NULL, err);
    if (st == EXO_OK && slot->pass.input)
        exo_tensor_grad(slot->pass.input, slot->input);
    s->p->backwards++;
    if (st == EXO_OK)
        pay(s);
    return st;
}

static exo_status
take_input(struct step *s, size_t minibatch, exo_err *err)
{
    return s->r->before[0]
               ? move(s->p, s->r->before[0], slot_of(s, minibatch)->input, s->numel, EARLIER, err)
               : EXO_OK;
}

static exo_status
give_gradient(struct step *s, size_t minibatch, exo_err *err)
{
    return s->r->before[0]
               ? move(s->p, s->r->before[0], slot_of(s, minibatch)->input, s->numel, LATER, err)
               : EXO_OK;
}

/* Forward of minibatches 0 to `count` - 1: the stages after this one get work. */
static exo_status
fill(struct step *s, size_t count, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t m = 0; st == EXO_OK && m < count; m++) {
        st = take_input(s, m, err);
        if (st == EXO_OK)
            st = forward(s, m, err);
        if (st == EXO_OK)
            st = move(s->p, s->r->after[0], s->p->between, s->numel, EARLIER, err);
    }
    return st;
}

/* Forward of minibatch m + ahead and backward of m, for all m that have such a forward. A stage has as
 * many slots as passes at once, so the input of a forward comes to where the gradient was. */
static exo_status
alternate(struct step *s, size_t ahead, exo_err *err)
{
    const size_t rounds = s->minibatches - ahead;
    exo_status st = rounds > 0 ? take_input(s, ahead, err) : EXO_OK;
    for (size_t m = 0; st == EXO_OK && m < rounds; m++) {
        st = forward(s, ahead + m, err);
        if (st == EXO_OK && s->r->after[0])
            st = swap(s->p, s->r->after[0], s->p->between, s->numel, err);
        if (st == EXO_OK)
            st = backward(s, m, err);
        if (st == EXO_OK && m + 1 == rounds)
            st = give_gradient(s, m, err);
        else if (st == EXO_OK && s->r->before[0])
            st = swap(s->p, s->r->before[0], slot_of(s, m)->input, s->numel, err);
    }
    return st;
}

/* Backward of the last `count` minibatches. */
static exo_status
drain(struct step *s, size_t count, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t m = s->minibatches - count; st == EXO_OK && m < s->minibatches; m++) {
        st = move(s->p, s->r->after[0], s->p->between, s->numel, LATER, err);
        if (st == EXO_OK)
            st = backward(s, m, err);
        if (st == EXO_OK)
            st = give_gradient(s, m, err);
    }
    return st;
}

/* The gradients of a range that is within one unit. */
static exo_status
grads_of(exo_replica *r, size_t first, size_t count, exo_array *out, exo_err *err)
{
    exo_array grads;
    size_t unit = 0;
    while (first - r->node.units[unit].first >= r->node.units[unit].count)
        unit++;
    exo_status st = exo_unit_open_grads(r->params, unit, &grads, err);
    if (st == EXO_OK)
        *out = exo_array_part(grads, first - r->node.units[unit].first, count);
    return st;
}

/* Adds the two gradients of an embedding that the first and the last stage have. */
static exo_status
sum_tied(exo_replica *r, exo_err *err)
{
    exo_pipeline *p = r->pipeline;
    exo_array grads;
    if (p->tied_count == 0)
        return EXO_OK;
    exo_status st = grads_of(r, p->tied_first, p->tied_count, &grads, err);
    if (st == EXO_OK)
        st = exo_all_reduce(r->ends[0], grads, EXO_SUM, err);
    return st == EXO_OK && p->tied_waits
               ? exo_replica_gradient_ready(r, p->tied_first, p->tied_count, err)
               : st;
}

static exo_status
run_passes(exo_replica *r, const exo_batch *batch, double *loss, exo_err *err)
{
    exo_pipeline *p = r->pipeline;
    const exo_batch one = exo_replica_rows(batch, 0, r->fit->minibatch_size);
    struct step s = {.r = r,
                     .p = p,
                     .batch = batch,
                     .minibatches = r->fit->batch_size / r->fit->minibatch_size,
                     .numel = exo_stage_numel(r->model, &one),
                     .loss = loss};
    size_t ahead = p->stages - 1 - p->stage;
    ahead = ahead < s.minibatches ? ahead : s.minibatches;
    p->forwards = p->backwards = 0;
    p->tied_waits = false;
    p->ready = (exo_grad_ready){.tell = gradient_ready, .context = r};
    exo_status st = make_room(p, r->device, s.numel, err);
    if (st == EXO_OK)
        st = fill(&s, ahead, err);
    if (st == EXO_OK)
        st = alternate(&s, ahead, err);
    if (st == EXO_OK)
        st = drain(&s, ahead, err);
    return st == EXO_OK ? sum_tied(r, err) : st;
}

exo_status
exo_replica_pipeline(exo_replica *r, const exo_batch *batch, double *loss, exo_err *err)
{
    const size_t units = r->by_units ? r->node.num_units : 0;
    exo_status st = EXO_OK;
    for (size_t u = 0; st == EXO_OK && u < units; u++)
        st = exo_strategy_before_use(r->strategy, &r->node, u, r->node.group, err);
    if (st == EXO_OK)
        st = run_passes(r, batch, loss, err);
    for (size_t u = 0; st == EXO_OK && u < units; u++)
        st = exo_strategy_after_use(r->strategy, &r->node, u, r->node.group, err);
    return st;
}

/* --- An evaluation ---------------------------------------------------------------------------- */

exo_status
exo_replica_pipeline_look(exo_replica *r, exo_tape *tape, const exo_batch *batch, exo_tensor **out,
                          exo_err *err)
{
    exo_pipeline *p = r->pipeline;
    exo_stage_pass pass;
    const size_t numel = exo_stage_numel(r->model, batch);
    *out = NULL;
    exo_status st = make_room(p, r->device, numel, err);
    if (st == EXO_OK && r->before[1])
        st = move(p, r->before[1], p->slots[0].input, numel, EARLIER, err);
    if (st == EXO_OK && !exo_stage_forward(r->model, tape, batch, p->slots[0].input, &pass))
        st = exo_tape_error(tape, err);
    if (st == EXO_OK && r->after[1]) {
        exo_tensor_read(pass.output, p->between);
        st = move(p, r->after[1], p->between, numel, EARLIER, err);
    } else if (st == EXO_OK) {
        *out = pass.output;
    }
    return st;
}
