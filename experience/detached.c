/* Makers and trainers from C: see exogym/experience.h. It writes a graph and runs it.
 *
 * Owner: the caller, one thread at a time. Read next: given.h. */
#include <string.h>

#include <exogym/experience.h>
#include <exogym/memory.h>

#include "base/config_edit.h"
#include "base/grow_text.h"
#include "experience/given.h"
#include "graph/run.h"

/* The classes of trainers. */
enum trainer_kind {
    PPO,
    SFT,
    REWARD,
    DPO
};
static const char *const trainer_classes[] = {
    [PPO] = "ppo_trainer",
    [SFT] = "sft_trainer",
    [REWARD] = "reward_trainer",
    [DPO] = "dpo_trainer",
};

/* The makers, or the trainers. */
struct group {
    char *name, *model, *critic, *reward, *targets, *data, *options;
    enum trainer_kind kind; /* of trainers */
    uint32_t count;         /* 0: there are none */
    exo_given given;
    uint64_t number;                  /* of `given`; 0: it is not listed */
    bool gives_reward, gives_initial; /* models that `given` has */
    bool starts_at_once;
    uint64_t batch, buffer_limit;
    /* of the working loop, and of fit */
    uint64_t epochs, steps, updates, update_steps;
};

struct exo_detached {
    uint64_t seed;
    bool virtual_clock, ran;
    char *network, *folder;
    struct group makers, trainers;
    exo_graph_result result;
};

/* --- Life ------------------------------------------------------------------------------------- */

/* Copies a text, unless it is NULL. */
static exo_status
copy(char **out, const char *text, exo_err *err)
{
    size_t size = text ? strlen(text) + 1 : 0;
    if (!text)
        return EXO_OK;
    *out = exo_calloc(size, 1);
    if (!*out)
        return exo_fail(err, EXO_NOMEM, "no memory for a text");
    memcpy(*out, text, size);
    return EXO_OK;
}

exo_status
exo_detached_new(exo_detached **out, const exo_detached_opts *opts, exo_err *err)
{
    exo_detached *d = exo_calloc(1, sizeof *d);
    *out = NULL;
    if (!d)
        return exo_fail(err, EXO_NOMEM, "no memory for a run");
    d->seed = opts->seed;
    d->virtual_clock = opts->virtual_clock;
    exo_status st = copy(&d->network, opts->network, err);
    if (st == EXO_OK)
        st = copy(&d->folder, opts->folder, err);
    if (st == EXO_OK)
        *out = d;
    else
        exo_detached_free(&d);
    return st;
}

static void
group_release(struct group *g)
{
    exo_given_withdraw(g->number);
    exo_free(g->name);
    exo_free(g->model);
    exo_free(g->critic);
    exo_free(g->reward);
    exo_free(g->targets);
    exo_free(g->data);
    exo_free(g->options);
    *g = (struct group){0};
}

void
exo_detached_free(exo_detached **run)
{
    exo_detached *d = *run;
    *run = NULL;
    if (!d)
        return;
    exo_graph_result_release(&d->result);
    group_release(&d->makers);
    group_release(&d->trainers);
    exo_free(d->network);
    exo_free(d->folder);
    exo_free(d);
}

/* --- Actors ----------------------------------------------------------------------------------- */

static exo_status
check_not_begun(const exo_detached *d, exo_err *err)
{
    return d->ran ? exo_fail(err, EXO_EXISTS, "the run has begun already: make another one")
                  : EXO_OK;
}

/* After an error the group is as before. */
static exo_status
begin_group(const exo_detached *d, struct group *g, const char *name, uint32_t count,
            const char *what, exo_err *err)
{
    const struct group *other = g == &d->makers ? &d->trainers : &d->makers;
    if (g->count > 0)
        return exo_fail(err, EXO_EXISTS, "the run has %s already: '%s'", what, g->name);
    if (count == 0 || !name || !exo_config_is_label(name))
        return exo_fail(err, EXO_INVAL, "%s need a count of at least 1, and a name: %s", what,
                        EXO_LABEL_RULE);
    if (other->count > 0 && strcmp(other->name, name) == 0)
        return exo_fail(err, EXO_INVAL, "makers and trainers have the same name, '%s'", name);
    exo_status st = check_not_begun(d, err);
    if (st == EXO_OK)
        st = copy(&g->name, name, err);
    if (st == EXO_OK)
        st = exo_given_add(&g->given, &g->number, err);
    g->count = count;
    g->epochs = 1;
    g->update_steps = 1;
    if (st != EXO_OK)
        group_release(g);
    return st;
}

/* Calls a function for models, to see which ones it gives. *critic: it gives one. */
static exo_status
look_for_models(struct group *g, bool *critic, exo_err *err)
{
    exo_experience_models models = {0};
    exo_status st = g->given.model(g->given.context, &models, err);
    *critic = models.critic != NULL;
    g->gives_reward = models.reward_model != NULL;
    g->gives_initial = models.initial_model != NULL;
    exo_experience_models_drop(&models);
    return st;
}

/* Copies the texts of makers' options. */
static exo_status
copy_maker(struct group *g, const exo_maker_opts *opts, exo_err *err)
{
    exo_status st = copy(&g->model, opts->model, err);
    if (st == EXO_OK)
        st = copy(&g->reward, opts->reward, err);
    if (st == EXO_OK)
        st = copy(&g->targets, opts->trainers, err);
    return st == EXO_OK ? copy(&g->options, opts->options, err) : st;
}

exo_status
exo_detached_makers(exo_detached *d, const char *name, uint32_t count, const exo_maker_opts *opts,
                    exo_err *err)
{
    struct group *g = &d->makers;
    if (!opts->model && !opts->model_fn)
        return exo_fail(err, EXO_INVAL, "makers need a model or a model_fn");
    if (!opts->reward && !opts->reward_fn && opts->model)
        return exo_fail(err, EXO_INVAL, "makers need a reward, a reward_fn or a reward model");
    bool critic = false;
    exo_status st = begin_group(d, g, name, count, "makers", err);
    if (st != EXO_OK)
        return st;
    g->given.model = opts->model_fn;
    g->given.reward = opts->reward_fn;
    g->given.callbacks = opts->callbacks;
    g->given.context = opts->context;
    g->starts_at_once = opts->starts_at_once;
    st = copy_maker(g, opts, err);
    if (st == EXO_OK && !opts->model)
        st = look_for_models(g, &critic, err);
    if (st == EXO_OK && !opts->reward && !opts->reward_fn && !g->gives_reward)
        st = exo_fail(err, EXO_INVAL,
                      "makers need a reward, a reward_fn, or a reward model of model_fn");
    if (st != EXO_OK)
        group_release(g);
    return st;
}

static exo_status
describe_critic(struct group *g, exo_err *err)
{
    exo_text text = {0};
    exo_text_add(&text, "{given: %llu, role: critic}", (unsigned long long)g->number);
    g->critic = text.data;
    return text.failed ? exo_fail(err, EXO_NOMEM, "no memory for a text") : EXO_OK;
}

exo_status
exo_detached_trainers(exo_detached *d, const char *name, uint32_t count,
                      const exo_ppo_trainer_opts *opts, exo_err *err)
{
    struct group *g = &d->trainers;
    bool critic = false;
    if (!opts->model && !opts->model_fn)
        return exo_fail(err, EXO_INVAL, "trainers need a model or a model_fn");
    exo_status st = begin_group(d, g, name, count, "trainers", err);
    if (st != EXO_OK)
        return st;
    g->given.model = opts->model_fn;
    g->given.callbacks = opts->callbacks;
    g->given.context = opts->context;
    g->batch = opts->train_batch_size ? opts->train_batch_size : 8;
    g->buffer_limit = opts->buffer_limit;
    st = copy(&g->model, opts->model, err);
    if (st == EXO_OK)
        st = copy(&g->critic, opts->critic, err);
    if (st == EXO_OK)
        st = copy(&g->targets, opts->makers, err);
    if (st == EXO_OK && !opts->model)
        st = look_for_models(g, &critic, err);
    if (st == EXO_OK && critic)
        st = describe_critic(g, err);
    if (st == EXO_OK)
        st = copy(&g->options, opts->options, err);
    if (st != EXO_OK)
        group_release(g);
    return st;
}

/* --- Trainers of texts ------------------------------------------------------------------------ */

static exo_status
check_text_opts(enum trainer_kind kind, const exo_text_trainer_opts *opts, exo_err *err)
{
    if (!opts->model && !opts->model_fn)
        return exo_fail(err, EXO_INVAL, "trainers need a model or a model_fn");
    if (opts->data && opts->text_fn)
        return exo_fail(err, EXO_INVAL, "trainers need either data or a text_fn, not both");
    if (kind == SFT && !opts->data && !opts->text_fn)
        return exo_fail(err, EXO_INVAL,
                        "trainers of fine-tuning need data, such as {path: answers.jsonl}, or a "
                        "text_fn");
    return EXO_OK;
}

static exo_status
add_text_trainers(exo_detached *d, enum trainer_kind kind, const char *name, uint32_t count,
                  const exo_text_trainer_opts *opts, exo_err *err)
{
    struct group *g = &d->trainers;
    exo_status st = check_text_opts(kind, opts, err);
    if (st == EXO_OK)
        st = begin_group(d, g, name, count, "trainers", err);
    if (st != EXO_OK)
        return st;
    g->kind = kind;
    g->given.model = opts->model_fn;
    g->given.text = opts->text_fn;
    g->given.callbacks = opts->callbacks;
    g->given.context = opts->context;
    g->batch = opts->train_batch_size ? opts->train_batch_size : 16;
    g->update_steps = 50;
    st = copy(&g->model, opts->model, err);
    if (st == EXO_OK)
        st = copy(&g->data, opts->data, err);
    if (st == EXO_OK)
        st = copy(&g->options, opts->options, err);
    if (st != EXO_OK)
        group_release(g);
    return st;
}

exo_status
exo_detached_sft_trainers(exo_detached *d, const char *name, uint32_t count,
                          const exo_text_trainer_opts *opts, exo_err *err)
{
    return add_text_trainers(d, SFT, name, count, opts, err);
}

exo_status
exo_detached_reward_trainers(exo_detached *d, const char *name, uint32_t count,
                             const exo_text_trainer_opts *opts, exo_err *err)
{
    return add_text_trainers(d, REWARD, name, count, opts, err);
}

exo_status
exo_detached_dpo_trainers(exo_detached *d, const char *name, uint32_t count,
                          const exo_text_trainer_opts *opts, exo_err *err)
{
    return add_text_trainers(d, DPO, name, count, opts, err);
}

/* --- What they do ----------------------------------------------------------------------------- */

static exo_status
check_name(const exo_detached *d, const struct group *g, const char *name, const char *what,
           exo_err *err)
{
    if (!name || g->count == 0 || strcmp(g->name, name) != 0)
        return exo_fail(err, EXO_NOT_FOUND, "the run has no %s of the name '%s'", what,
                        name ? name : "");
    return check_not_begun(d, err);
}

exo_status
exo_detached_workingloop(exo_detached *d, const char *name, exo_dataloader_fn dataloader,
                         void *context, uint64_t num_epochs, uint64_t num_steps, exo_err *err)
{
    struct group *g = &d->makers;
    exo_status st = check_name(d, g, name, "makers", err);
    if (st != EXO_OK)
        return st;
    if (num_epochs == 0 && num_steps == 0)
        return exo_fail(err, EXO_INVAL, "workingloop needs epochs or steps");
    g->given.dataloader = dataloader;
    g->given.dataloader_context = context;
    g->epochs = num_epochs;
    g->steps = num_steps;
    return EXO_OK;
}

/* The steps, evaluations and epochs of trainers of texts. */
static exo_status
fit_texts(struct group *g, uint64_t total_steps, uint64_t update_steps, uint64_t train_epochs,
          exo_err *err)
{
    if (total_steps == 0 && train_epochs == 0)
        return exo_fail(err, EXO_INVAL, "fit needs total_steps or train_epochs");
    g->steps = total_steps;
    g->update_steps = update_steps;
    g->epochs = train_epochs;
    return EXO_OK;
}

exo_status
exo_detached_fit(exo_detached *d, const char *name, uint64_t total_steps, uint64_t update_steps,
                 uint64_t train_epochs, exo_err *err)
{
    struct group *g = &d->trainers;
    exo_status st = check_name(d, g, name, "trainers", err);
    if (st != EXO_OK)
        return st;
    if (g->kind != PPO)
        return fit_texts(g, total_steps, update_steps, train_epochs, err);
    if (update_steps == 0 || total_steps % update_steps != 0 || total_steps == 0)
        return exo_fail(err, EXO_INVAL,
                        "fit: total_steps %llu must be a multiple of update_steps %llu, both at "
                        "least 1",
                        (unsigned long long)total_steps, (unsigned long long)update_steps);
    if (train_epochs == 0)
        return exo_fail(err, EXO_INVAL, "fit: train_epochs must be at least 1");
    g->updates = total_steps / update_steps;
    g->update_steps = update_steps;
    g->epochs = train_epochs;
    return EXO_OK;
}

/* --- The graph -------------------------------------------------------------------------------- */

static void
write_model(exo_text *out, const struct group *g)
{
    if (g->model)
        exo_text_add(out, "model: %s", g->model);
    else
        exo_text_add(out, "model: {given: %llu, role: %s}", (unsigned long long)g->number,
                     g->kind == REWARD ? "reward" : "actor");
}

/* What makers may do before version 0 comes: the draws of the first update. */
static void
write_start(exo_text *out, const struct group *t)
{
    exo_text_add(out, ", start: {draws: %llu, trainers: %u}",
                 (unsigned long long)(t->batch * t->update_steps * t->count), t->count);
}

static void
write_makers(exo_text *out, const struct group *g, const struct group *trainers)
{
    unsigned long long number = g->number;
    exo_text_add(out, "  %s: {class: experience_maker, count: %u, config: {given: %llu, ", g->name,
                 g->count, number);
    write_model(out, g);
    if (g->reward)
        exo_text_add(out, ", reward: %s", g->reward);
    else if (!g->given.reward)
        exo_text_add(out, ", reward: {name: model, given: %llu, role: reward}", number);
    else
        exo_text_add(out, ", reward: {name: function, given: %llu}", number);
    if (g->given.dataloader)
        exo_text_add(out, ", prompts: {given: %llu, shuffle: false}", number);
    if (g->steps > 0)
        exo_text_add(out, ", steps: %llu", (unsigned long long)g->steps);
    else
        exo_text_add(out, ", epochs: %llu", (unsigned long long)g->epochs);
    if (g->starts_at_once)
        write_start(out, trainers);
    exo_text_add(out, "%s%s}}\n", g->options ? ", " : "", g->options ? g->options : "");
}

static void
write_trainers(exo_text *out, const struct group *g, const struct group *makers)
{
    const struct group *initial = g->gives_initial ? g : makers;
    exo_text_add(out, "  %s: {class: ppo_trainer, count: %u, config: {given: %llu, ", g->name,
                 g->count, (unsigned long long)g->number);
    write_model(out, g);
    if (g->critic)
        exo_text_add(out, ", critic: %s", g->critic);
    if (initial->gives_initial)
        exo_text_add(out, ", initial: {given: %llu, role: initial}",
                     (unsigned long long)initial->number);
    exo_text_add(out, ", batch: %llu, updates: %llu, update_steps: %llu, epochs: %llu%s%s}}\n",
                 (unsigned long long)g->batch, (unsigned long long)g->updates,
                 (unsigned long long)g->update_steps, (unsigned long long)g->epochs,
                 g->options ? ", " : "", g->options ? g->options : "");
}

static void
write_text_trainers(exo_text *out, const struct group *g)
{
    unsigned long long number = g->number;
    exo_text_add(out, "  %s: {class: %s, count: %u, config: {given: %llu, ", g->name,
                 trainer_classes[g->kind], g->count, number);
    write_model(out, g);
    if (g->data)
        exo_text_add(out, ", data: %s", g->data);
    else if (g->given.text)
        exo_text_add(out, ", data: {given: %llu}", number);
    if (g->steps > 0)
        exo_text_add(out, ", steps: %llu", (unsigned long long)g->steps);
    else
        exo_text_add(out, ", epochs: %llu", (unsigned long long)g->epochs);
    exo_text_add(out, ", batch: %llu, val_interval: %llu%s%s}}\n", (unsigned long long)g->batch,
                 (unsigned long long)g->update_steps, g->options ? ", " : "",
                 g->options ? g->options : "");
}

/* Writes the route from a group to another: the lists that were given for it, or the rule. */
static void
write_route(exo_text *out, const struct group *from, const char *rule)
{
    if (from->targets)
        exo_text_add(out, "route: listed, targets: %s", from->targets);
    else
        exo_text_add(out, "route: %s", rule);
}

static void
write_text_edges(exo_text *out, const struct group *m, const struct group *t)
{
    if (m->count > 0 || t->count > 1)
        exo_text_add(out, "edges:\n");
    if (m->count > 0)
        exo_text_add(out, "  - {from: %s, to: %s, carries: experience, route: modulo}\n", m->name,
                     t->name);
    if (t->count > 1)
        exo_text_add(out, "  - {from: %s, to: %s, carries: gradients, route: all_reduce}\n",
                     t->name, t->name);
}

static void
write_edges(exo_text *out, const struct group *m, const struct group *t)
{
    exo_text_add(out, "edges:\n");
    if (t->buffer_limit > 0) {
        exo_text_add(out,
                     "  - {from: %s, to: replay_buffer, carries: experience}\n"
                     "  - {from: replay_buffer, to: %s, carries: experience}\n",
                     m->name, t->name);
    } else {
        exo_text_add(out, "  - {from: %s, to: %s, carries: experience, ", m->name, t->name);
        write_route(out, m, "modulo");
        exo_text_add(out, "}\n");
    }
    exo_text_add(out, "  - {from: %s, to: %s, carries: parameters, buffer: {on_full: latest}, ",
                 t->name, m->name);
    write_route(out, t, "modulo, idle_senders: true");
    exo_text_add(out, "}\n");
    for (int i = 0; t->count > 1 && i < 2; i++)
        exo_text_add(out, "  - {from: %s, to: %s, carries: %s, route: all_reduce}\n", t->name,
                     t->name, i ? "parameters" : "gradients");
}

/* Whether the groups make a run. */
static exo_status
check_groups(const struct group *m, const struct group *t, exo_err *err)
{
    bool has_texts = t->data || t->given.text;
    if (t->count == 0 || (t->kind == PPO && m->count == 0))
        return exo_fail(err, EXO_INVAL, "a run needs makers and trainers");
    if (t->kind == PPO)
        return EXO_OK;
    if (has_texts && m->count > 0)
        return exo_fail(err, EXO_INVAL,
                        "%s: trainers that have data or a text_fn have no makers: leave one out",
                        t->name);
    if (!has_texts && m->count == 0)
        return exo_fail(err, EXO_INVAL,
                        "%s has no comparisons: give it data or a text_fn, or add makers", t->name);
    if (m->count > 0 && (m->targets || m->starts_at_once || t->count > 1))
        return exo_fail(err, EXO_INVAL,
                        "%s: makers send all items to one trainer, whose weights they do not get: "
                        "leave `trainers` and starts_at_once out, and let the count be 1",
                        t->name);
    return EXO_OK;
}

exo_status
exo_detached_text(const exo_detached *d, char **out, exo_err *err)
{
    const struct group *m = &d->makers, *t = &d->trainers;
    exo_text text = {0};
    *out = NULL;
    exo_status st = check_groups(m, t, err);
    if (st != EXO_OK)
        return st;
    exo_text_add(&text, "exogym: 1\nname: detached\nseed: %llu\nclock: %s\n%s%sactors:\n",
                 (unsigned long long)d->seed, d->virtual_clock ? "virtual" : "real",
                 d->network ? d->network : "", d->network ? "\n" : "");
    if (m->count > 0)
        write_makers(&text, m, t);
    if (t->buffer_limit > 0)
        exo_text_add(&text,
                     "  replay_buffer: {class: replay_buffer, config: {batch: %llu, capacity: "
                     "%llu}}\n",
                     (unsigned long long)t->batch, (unsigned long long)t->buffer_limit);
    if (t->kind == PPO) {
        write_trainers(&text, t, m);
        write_edges(&text, m, t);
    } else {
        write_text_trainers(&text, t);
        write_text_edges(&text, m, t);
    }
    *out = text.data;
    return text.failed ? exo_fail(err, EXO_NOMEM, "no memory for a graph") : EXO_OK;
}

/* --- Targets ---------------------------------------------------------------------------------- */

/* Checks lists of targets that were given, beyond the rule of edges (edges.c). */
static exo_status
check_targets(const exo_detached *d, exo_err *err)
{
    return d->trainers.kind == PPO && d->makers.targets && d->trainers.buffer_limit > 0
               ? exo_fail(err, EXO_INVAL,
                          "makers cannot have lists of trainers with a replay buffer, which sends "
                          "item i to trainer i mod %u",
                          d->trainers.count)
               : EXO_OK;
}

/* --- A run ------------------------------------------------------------------------------------ */

exo_status
exo_detached_wait(exo_detached *d, exo_err *err)
{
    char *text = NULL;
    exo_graph_spec *spec = NULL;
    exo_status st = check_not_begun(d, err);
    if (st != EXO_OK)
        return st;
    st = exo_detached_text(d, &text, err);
    if (st == EXO_OK)
        st = exo_graph_parse(&spec, "detached", text,
                             &(exo_graph_opts){.name = "detached", .literal = true}, err);
    if (st == EXO_OK)
        st = check_targets(d, err);
    d->ran = st == EXO_OK;
    if (st == EXO_OK)
        st = exo_graph_run(spec, &(exo_graph_run_opts){.space = "detached", .folder = d->folder},
                           &d->result, err);
    exo_graph_spec_free(&spec);
    exo_free(text);
    return st;
}

exo_status
exo_detached_figure(const exo_detached *d, const char *actor, const char *meter, double *out,
                    exo_err *err)
{
    exo_text path = {0};
    exo_meter_sample sample;
    exo_text_add(&path, "%s.%s", actor, meter);
    bool found =
        path.data && d->result.meters && exo_meters_get(d->result.meters, path.data, &sample);
    if (found)
        *out = sample.meter_class->kind == EXO_COUNTER ? (double)sample.count : sample.value;
    else
        exo_fail(err, EXO_NOT_FOUND, "%s has no meter '%s'", actor, meter);
    exo_free(path.data);
    return found ? EXO_OK : EXO_NOT_FOUND;
}
