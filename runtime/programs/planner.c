/* Makes plans: see planner.h. A plan reads the job once, with the job's own strategy, and then gives
 * the job one run for each composition. Read next: exo_job_plan_make, at the end. */
#include "programs/planner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/memory.h>
#include <exogym/parallel.h>

#include "actors/fit.h"
#include "actors/fit_memory.h"
#include "actors/fit_opts.h"
#include "actors/fit_run.h"
#include "base/figures.h"
#include "programs/job.h"

enum {
    MINIBATCHES = 4, /* of a step of a pipeline, for each stage, at least */
    PRODUCTS = 24,   /* most ways of sharing a copy in several ways, beside `sequence` */
    MEASURED = 3,    /* steps of one node whose mean is the cost of a step */
    /* A rehearsal's first steps do not count: in them fsdp learns the order of the units, and
     * connections start slowly. */
    FIRST = 2,
    LATER = 5
};

/* A plan under way. */
struct planner {
    exo_job_plan *plan;
    const exo_job_plan_opts *opts;
    exo_job job;
    exo_config_doc *model_config; /* of the other model */
    exo_model *models[2];         /* by exo_composition.checkpoint; NULL: the scope has none */
    exo_parallelism *forms;       /* of the scope; owned */
    uint64_t now;                 /* resident memory of this process before */
};

/* --- The job ---------------------------------------------------------------------------------- */

/* Finds the strategy's name in the document; the job has one strategy, and it averages gradients. */
static exo_status
check_strategy(exo_config *root, const exo_job_plan_opts *opts, exo_err *err)
{
    exo_config *compare = exo_config_get(root, "compare");
    exo_config *strategy = exo_config_get(root, "strategy");
    const char *name = exo_config_scalar(
        exo_config_is_map(strategy) ? exo_config_get(strategy, "name") : strategy);
    if (compare)
        return exo_config_fail(
            compare, err,
            "%s: takes one strategy, and 'compare' has several: in a job without "
            "'compare', name ddp or fsdp under 'strategy'",
            opts->subject);
    if (name && strcmp(name, "ddp") != 0 && strcmp(name, "fsdp") != 0)
        return exo_config_fail(strategy, err,
                               "%s: compares compositions of ddp and fsdp, and '%.60s' trains in "
                               "another way",
                               opts->subject, name);
    return EXO_OK;
}

/* Replaces what a plan decides itself. Groups of another size than the job's are compared, so that a
 * size that does not divide the nodes is no error, unless groups are apart. */
static exo_status
edit_job(exo_config *root, const exo_job_plan_opts *opts, exo_err *err)
{
    exo_config_maker m = {.status = EXO_OK, .err = err};
    exo_config *strategy = exo_config_get(root, "strategy");
    if (exo_config_is_map(strategy) && !exo_config_has(strategy, "across"))
        exo_config_remove(strategy, "group_size");
    exo_config_remove(root, "parallel"); /* the plan's own question */
    exo_config_remove(root, "seeds");
    exo_config_remove(root, "clock");
    exo_make_text(&m, root, "clock", "virtual");
    if (opts->nodes > 0) {
        exo_config_remove(root, "nodes");
        exo_make_number(&m, root, "nodes", opts->nodes);
    }
    return m.status;
}

static exo_status
open_job(struct planner *p, exo_config_doc **doc, exo_err *err)
{
    exo_job_plan *plan = p->plan;
    exo_config *root = exo_config_root(*doc);
    const exo_job_opts bare = {.name = "plan"}; /* a job from a pipe has no name */
    exo_status st = EXO_OK;
    if (exo_config_is_map(root)) {
        plan->job_parallel = exo_config_has(root, "parallel");
        st = exo_job_take_wrapping(*doc, err);
        if (st == EXO_OK)
            st = check_strategy(root, p->opts, err);
        if (st == EXO_OK)
            st = edit_job(root, p->opts, err);
    }
    plan->model_is_name = !exo_config_is_map(exo_config_get(root, "model"));
    if (st == EXO_OK)
        st = exo_job_from(&p->job, doc, &bare, err);
    if (st != EXO_OK)
        return st;
    const exo_fit_opts *o = &p->job.opts;
    plan->nodes = o->num_nodes;
    plan->batch_size = o->batch_size;
    plan->job_minibatch = o->minibatch_size == EXO_MINIBATCH_AUTO ? 0 : o->minibatch_size;
    plan->linked = p->job.runs[0].graph->emulated;
    plan->numel = exo_model_numel(p->job.model);
    plan->model = exo_strdup(p->job.model_name);
    return plan->model ? EXO_OK : exo_fail(err, EXO_NOMEM, "out of memory");
}

/* Makes the job's model with the other value of `checkpoint`. */
static exo_status
make_other_model(struct planner *p, bool checkpoint, exo_err *err)
{
    exo_status st = exo_config_parse(&p->model_config, "model", "{}", err);
    exo_config *root = st == EXO_OK ? exo_config_root(p->model_config) : NULL;
    if (st == EXO_OK)
        st = exo_config_graft(root, "model", p->job.model_config, err);
    exo_config *model = root ? exo_config_get(root, "model") : NULL;
    exo_config_remove(model, "checkpoint");
    exo_config_get(model, "name"); /* known, and no option */
    if (st == EXO_OK)
        st = exo_config_graft_text(model, "checkpoint", checkpoint ? "true" : "false", err);
    return st == EXO_OK ? exo_model_new_named(&p->models[checkpoint], p->job.model_name, model, err)
                        : st;
}

/* The job's options for a composition, without the size of minibatches. The nodes that share a copy
 * compute together what they would compute alone: the batch of each. */
static exo_fit_opts
options_of(const struct planner *p, const exo_parallelism *c)
{
    exo_fit_opts opts = p->job.opts;
    opts.pipeline = c->stages;
    opts.tensor = c->tensor;
    opts.sequence = c->sequence;
    opts.context_parallel = c->context;
    opts.batch_size *= exo_parallelism_sharing(c);
    return opts;
}

/* Whether the job's model and sequences can be shared like this. */
static bool
admits(const struct planner *p, const exo_parallelism *c)
{
    exo_model *part = NULL;
    const exo_fit_opts opts = options_of(p, c);
    const exo_share share = exo_fit_opts_share(&opts, 0);
    exo_status st = exo_fit_check_sequences(&opts, p->job.train, NULL);
    if (st == EXO_OK)
        st = exo_model_share(&part, p->job.model, &share, NULL);
    exo_model_drop(&part);
    return st == EXO_OK;
}

/* Adds a form, if the job admits it. */
static exo_status
add_form(struct planner *p, exo_parallelism_scope *scope, const exo_parallelism *form, exo_err *err)
{
    if (!admits(p, form))
        return EXO_OK;
    exo_parallelism *forms = exo_realloc(p->forms, scope->num_forms + 1, sizeof *forms);
    if (!forms)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    forms[scope->num_forms++] = *form;
    scope->forms = p->forms = forms;
    return EXO_OK;
}

/* Adds the forms of these counts; parts of layers with and without `sequence`. */
static exo_status
add_counts(struct planner *p, exo_parallelism_scope *scope, const exo_parallelism *counts,
           size_t *products, exo_err *err)
{
    exo_parallelism form = *counts;
    const size_t before = scope->num_forms;
    const bool product = exo_parallelism_is_product(counts);
    if (product && *products == PRODUCTS)
        return EXO_OK;
    exo_status st = add_form(p, scope, &form, err);
    form.sequence = true;
    if (st == EXO_OK && form.tensor > 1)
        st = add_form(p, scope, &form, err);
    *products += product && scope->num_forms > before;
    return st;
}

/* Lists the ways in which nodes can share a copy, those of the fewest nodes first. */
static exo_status
make_forms(struct planner *p, exo_parallelism_scope *scope, exo_err *err)
{
    exo_status st = EXO_OK;
    size_t products = 0;
    for (uint32_t size = 2; size <= scope->nodes; size++)
        for (uint32_t tensor = 1; scope->nodes % size == 0 && tensor <= size; tensor++)
            for (uint32_t stages = 1; size % tensor == 0 && stages <= size / tensor; stages++) {
                const exo_parallelism counts = {
                    .stages = stages, .tensor = tensor, .context = size / tensor / stages};
                if (st == EXO_OK && exo_parallelism_sharing(&counts) == size)
                    st = add_counts(p, scope, &counts, &products, err);
            }
    return st;
}

static exo_status
make_models(struct planner *p, exo_parallelism_scope *scope, exo_err *err)
{
    const exo_decoder_spec *spec = exo_decoder_spec_of(p->job.model);
    exo_status st = spec ? make_forms(p, scope, err) : EXO_OK;
    if (st != EXO_OK)
        return st;
    scope->checkpoints = spec != NULL;
    scope->checkpoint = p->plan->job_checkpoint = spec && spec->checkpoint;
    p->models[scope->checkpoint] = exo_model_hold(p->job.model);
    return spec ? make_other_model(p, !scope->checkpoint, err) : EXO_OK;
}

/* --- Compositions ----------------------------------------------------------------------------- */

/* Counts a composition that is impossible, and keeps the first one's reason. */
static void
refuse(exo_job_plan *plan, exo_job_plan_entry *e, const exo_err *reason)
{
    exo_config_free(&e->options);
    if (plan->num_refused++ == 0)
        snprintf(plan->refusal, sizeof plan->refusal, "%s", reason->text);
}

/* Whether the strategy takes the composition with the job's model and nodes. */
static exo_status
check_entry(const struct planner *p, exo_job_plan_entry *e, exo_err *err)
{
    exo_strategy *strategy = NULL;
    exo_config *options = exo_config_root(e->options);
    const char *name = NULL;
    exo_status st = exo_config_string(options, "name", NULL, &name, err);
    if (st == EXO_OK)
        st = exo_strategy_new(&strategy, name, options, err);
    if (st == EXO_OK)
        st = exo_strategy_check(strategy, p->plan->nodes / exo_parallelism_sharing(&e->composition),
                                err);
    if (st == EXO_OK)
        st = exo_strategy_check_model(strategy, p->job.model, err);
    if (st == EXO_OK && exo_parallelism_sharing(&e->composition) > 1) {
        const exo_fit_opts opts = options_of(p, &e->composition);
        st = exo_fit_check_parts(strategy, p->job.runs[0].graph, &opts, err);
    }
    exo_strategy_free(&strategy);
    return st;
}

static exo_status
list_entries(struct planner *p, const exo_parallelism_scope *scope, exo_err *err)
{
    exo_job_plan *plan = p->plan;
    exo_parallelism *all = NULL;
    size_t count = 0;
    exo_status st = exo_parallelisms(scope, &all, &count, err);
    if (st == EXO_OK && !(plan->entries = exo_calloc(count, sizeof *plan->entries)))
        st = exo_fail(err, EXO_NOMEM, "out of memory");
    for (size_t i = 0; st == EXO_OK && i < count; i++) {
        exo_err refusal = {0};
        exo_job_plan_entry *e = &plan->entries[plan->count];
        *e = (exo_job_plan_entry){.composition = all[i]};
        st = exo_parallelism_options(&all[i], p->job.runs[0].options, &e->options, err);
        if (st != EXO_OK)
            break;
        if (check_entry(p, e, &refusal) == EXO_OK)
            plan->count++;
        else
            refuse(plan, e, &refusal);
    }
    exo_free(all);
    return st;
}

/* --- Memory ----------------------------------------------------------------------------------- */

/* Plans the memory of a composition with the largest minibatches that fit, or else with the smallest.
 * `optimizer` is of an earlier composition with the same strategy and options, or 0. */
static exo_status
plan_memory(const struct planner *p, exo_job_plan_entry *e, uint64_t *optimizer, exo_err *err)
{
    const exo_job *job = &p->job;
    const bool stages = e->composition.stages > 1;
    const uint32_t sharing = exo_parallelism_sharing(&e->composition);
    exo_fit_opts opts = options_of(p, &e->composition);
    exo_fit_memory m = {.optimizer = *optimizer};
    size_t most = p->plan->job_minibatch ? p->plan->job_minibatch : job->opts.batch_size;
    bool known = *optimizer > 0;
    most *= sharing / e->composition.stages; /* of which each node computes a part */
    if (stages) {                            /* enough minibatches keep them busy */
        const size_t cut = opts.batch_size / (MINIBATCHES * e->composition.stages);
        most = cut == 0 ? 1 : cut < most ? cut : most;
    }
    for (size_t size = most; size > 0 && !e->fits; size--) {
        if (opts.batch_size % size != 0)
            continue;
        opts.minibatch_size = size;
        exo_status st = (known ? exo_fit_memory_replan : exo_fit_memory_plan)(
            p->models[e->composition.checkpoint], job->train, job->val,
            exo_parallelism_strategy(&e->composition), exo_config_root(e->options), &opts, p->now,
            &m, err);
        if (st != EXO_OK)
            return st;
        known = true;
        *optimizer = m.optimizer;
        e->minibatch_size = size;
        e->memory = exo_fit_memory_of_node(&m);
        e->fits = p->opts->memory == 0 || e->memory <= p->opts->memory;
    }
    return EXO_OK;
}

/* Whether both have the same state of strategy and optimizer. Prefetched units belong to the step. */
static bool
is_alike(const exo_parallelism *a, const exo_parallelism *b)
{
    return a->sharding == b->sharding && a->group_size == b->group_size && a->stages == b->stages &&
           a->tensor == b->tensor && a->context == b->context &&
           (a->sharding || a->overlap == b->overlap);
}

/* Whether c is a product, or shards of copies that nodes share, with checkpoint, and fits without: recomputing
 * blocks only takes time then. Those without checkpoint come first. Other compositions are few, and all of
 * them are planned. */
static bool
is_needless(const exo_job_plan *plan, size_t count, const exo_parallelism *c)
{
    const bool many =
        exo_parallelism_is_product(c) || (c->sharding && exo_parallelism_sharing(c) > 1);
    for (size_t i = 0; c->checkpoint && many && i < count; i++) {
        const exo_parallelism *k = &plan->entries[i].composition;
        if (plan->entries[i].fits && !k->checkpoint && k->stages == c->stages &&
            k->tensor == c->tensor && k->context == c->context && k->sequence == c->sequence &&
            k->sharding == c->sharding && k->group_size == c->group_size &&
            k->overlap == c->overlap)
            return true;
    }
    return false;
}

/* Some strategies find out at their start that they do not go with the optimizer. */
static exo_status
plan_memories(struct planner *p, exo_err *err)
{
    exo_job_plan *plan = p->plan;
    exo_status st = EXO_OK;
    size_t all = plan->count, kept = 0;
    uint64_t *optimizers = exo_calloc(all + 1, sizeof *optimizers);
    if (!optimizers)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    for (size_t i = 0; i < all; i++) {
        exo_err refusal = {0};
        exo_job_plan_entry e = plan->entries[i];
        if (is_needless(plan, kept, &e.composition)) {
            exo_config_free(&e.options);
            continue;
        }
        optimizers[kept] = 0;
        for (size_t k = 0; k < kept && optimizers[kept] == 0; k++)
            if (is_alike(&plan->entries[k].composition, &e.composition))
                optimizers[kept] = optimizers[k];
        exo_status planned =
            st == EXO_OK ? plan_memory(p, &e, &optimizers[kept], &refusal) : EXO_OK;
        if (planned == EXO_INVAL || planned == EXO_UNSUPPORTED) {
            refuse(plan, &e, &refusal);
            continue;
        }
        if (planned != EXO_OK)
            st = exo_fail(err, planned, "%s", refusal.text);
        plan->num_fitting += e.fits;
        plan->entries[kept++] = e;
    }
    plan->count = kept;
    exo_free(optimizers);
    return st == EXO_OK && kept == 0
               ? exo_fail(err, EXO_INVAL, "%s: %s", p->opts->subject, plan->refusal)
               : st;
}

/* --- Times ------------------------------------------------------------------------------------ */

/* Takes a few steps of one node. */
static exo_status
measure(struct planner *p, exo_time *cost, exo_err *err)
{
    exo_fit_result result = {0};
    const exo_parallelism alone = {.group_size = 1, .stages = 1, .tensor = 1, .context = 1};
    exo_config_doc *doc = NULL;
    exo_fit_opts opts = exo_fit_opts_init();
    opts.max_steps = MEASURED;
    opts.batch_size = p->job.opts.batch_size;
    opts.minibatch_size = p->job.opts.minibatch_size;
    opts.shuffle = p->job.opts.shuffle;
    opts.autocast = p->job.opts.autocast;
    opts.seed = p->job.opts.seed;
    opts.val_size = EXO_VAL_NONE;
    opts.save_dir = NULL;
    exo_status st = exo_parallelism_options(&alone, p->job.runs[0].options, &doc, err);
    if (st == EXO_OK)
        st = exo_fit_run(p->job.model, p->job.train, NULL, "ddp", exo_config_root(doc), &opts, NULL,
                         NULL, NULL, &result, err);
    exo_params_free(&result.params);
    exo_config_free(&doc);
    *cost = (exo_time)(result.train_seconds / MEASURED * 1e9);
    return st == EXO_OK
               ? EXO_OK
               : exo_fail_in(err, st, "%s: to measure a step of one node", p->opts->subject);
}

static exo_status
find_cost(struct planner *p, exo_err *err)
{
    exo_job_plan *plan = p->plan;
    plan->step_cost = exo_fit_step_cost(p->job.runs[0].graph);
    plan->cost = EXO_JOB_PLAN_DECLARED;
    if (p->opts->step_time >= 0) {
        plan->step_cost = p->opts->step_time;
        plan->cost = EXO_JOB_PLAN_GIVEN;
    }
    if (plan->step_cost >= 0)
        return EXO_OK;
    plan->cost = EXO_JOB_PLAN_MEASURED;
    return measure(p, &plan->step_cost, err);
}

/* The cost of a step of a composition. Forward is a third of a step, and a checkpoint repeats it. */
static exo_time
cost_of(const exo_job_plan *plan, const exo_parallelism *c)
{
    double factor = c->checkpoint == plan->job_checkpoint ? 1 : c->checkpoint ? 4.0 / 3 : 3.0 / 4;
    return (exo_time)llrint((double)plan->step_cost * factor);
}

static exo_status
rehearse(struct planner *p, const exo_job_run *run, exo_job_plan_entry *e, exo_err *err)
{
    exo_fit_result first, later;
    exo_fit_opts opts = options_of(p, &e->composition);
    exo_model *model = p->models[e->composition.checkpoint];
    const exo_time cost = cost_of(p->plan, &e->composition);
    opts.minibatch_size = e->minibatch_size;
    opts.max_steps = FIRST;
    exo_status st = exo_fit_rehearse(model, p->job.train, run->strategy, run->options, &opts,
                                     run->graph, cost, &first, err);
    opts.max_steps = LATER;
    if (st == EXO_OK)
        st = exo_fit_rehearse(model, p->job.train, run->strategy, run->options, &opts, run->graph,
                              cost, &later, err);
    if (st != EXO_OK)
        return exo_fail_in(err, st, "%s: a rehearsal", p->opts->subject);
    e->seconds = (later.train_seconds - first.train_seconds) / (LATER - FIRST);
    e->traffic = (later.bytes_sent - first.bytes_sent) / (LATER - FIRST);
    return EXO_OK;
}

/* Gives the job a run for each composition, with its graph. */
static exo_status
replace_runs(struct planner *p, exo_err *err)
{
    exo_job *job = &p->job;
    exo_job_run *runs = exo_calloc(p->plan->count, sizeof *runs);
    if (!runs)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    for (size_t i = 0; i < p->plan->count; i++) {
        const exo_job_plan_entry *e = &p->plan->entries[i];
        const char *name = exo_parallelism_strategy(&e->composition);
        runs[i] = (exo_job_run){.group = name,
                                .label = name,
                                .strategy = name,
                                .seed = job->opts.seed,
                                .options = exo_config_root(e->options)};
    }
    for (size_t i = 0; i < job->num_runs; i++) {
        exo_graph_spec_free(&job->runs[i].graph);
        exo_free(job->runs[i].own_label);
    }
    exo_free(job->runs);
    job->runs = runs;
    job->num_runs = p->plan->count;
    return exo_job_make_graphs(job, err);
}

static exo_status
plan_times(struct planner *p, exo_err *err)
{
    exo_job_plan *plan = p->plan;
    exo_status st = plan->num_fitting > 0 ? find_cost(p, err) : EXO_OK;
    if (st == EXO_OK && plan->num_fitting > 0)
        st = replace_runs(p, err);
    for (size_t i = 0; st == EXO_OK && i < plan->count; i++)
        if (plan->entries[i].fits)
            st = rehearse(p, &p->job.runs[i], &plan->entries[i], err);
    return st;
}

/* --- The plan --------------------------------------------------------------------------------- */

/* Those that fit first; then by time, to the microsecond, and by memory. */
static int
compare(const void *left, const void *right)
{
    const exo_job_plan_entry *a = left, *b = right;
    long long ta = llround(a->seconds * 1e6), tb = llround(b->seconds * 1e6);
    if (a->fits != b->fits)
        return a->fits ? -1 : 1;
    if (a->fits && ta != tb)
        return ta < tb ? -1 : 1;
    return a->memory < b->memory ? -1 : a->memory > b->memory;
}

static uint32_t
group_apart(exo_config *options)
{
    const char *size = exo_config_has(options, "across")
                           ? exo_config_scalar(exo_config_get(options, "group_size"))
                           : NULL;
    return size ? (uint32_t)strtoul(size, NULL, 10) : 0;
}

exo_status
exo_job_plan_make(exo_job_plan *plan, exo_config_doc **doc, const exo_job_plan_opts *opts,
                  exo_err *err)
{
    struct planner p = {.plan = plan, .opts = opts};
    exo_parallelism_scope scope = {0};
    *plan = (exo_job_plan){.memory_limit = opts->memory, .step_cost = -1};
    exo_status st = open_job(&p, doc, err);
    if (st == EXO_OK && strcmp(p.job.opts.device, "cpu") != 0 &&
        (opts->memory == 0 || opts->step_time < 0))
        st = exo_fail(err, EXO_UNSUPPORTED,
                      "%s: it measures the CPU's steps and memory: for device: %s say what a node "
                      "has, and the time of a step (%s)",
                      opts->subject, p.job.opts.device,
                      strcmp(opts->subject, "plan") == 0 ? "--memory SIZE --step-time TIME"
                                                         : "auto: {memory: SIZE, step_time: TIME}");
    if (st == EXO_OK) {
        p.now = exo_fit_memory_now();
        scope.nodes = plan->nodes;
        scope.apart = group_apart(p.job.runs[0].options);
        scope.shards = p.job.opts.elastic.min_nodes == 0; /* elastic nodes have whole copies */
        st = make_models(&p, &scope, err);
    }
    if (st == EXO_OK)
        st = list_entries(&p, &scope, err);
    if (st == EXO_OK)
        st = plan_memories(&p, err);
    if (st == EXO_OK)
        st = plan_times(&p, err);
    if (st == EXO_OK)
        qsort(plan->entries, plan->count, sizeof *plan->entries, compare);
    exo_job_release(&p.job);
    exo_model_drop(&p.models[0]);
    exo_model_drop(&p.models[1]);
    exo_config_free(&p.model_config);
    exo_free(p.forms);
    exo_config_free(doc);
    return st;
}

void
exo_job_plan_release(exo_job_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++)
        exo_config_free(&plan->entries[i].options);
    exo_free(plan->entries);
    exo_free(plan->model);
    *plan = (exo_job_plan){0};
}

/* The assignment of how nodes share a copy. The caller frees it. NULL: NOMEM. */
static char *
parallel_text(const exo_parallelism *c, exo_err *err)
{
    const struct {
        const char *key;
        uint32_t count;
    } each[] = {{"tensor", c->tensor}, {"pipeline", c->stages}, {"context", c->context}};
    const char *before = "parallel={";
    exo_text text = {0};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        if (each[i].count <= 1)
            continue;
        exo_text_add(&text, "%s%s: %u", before, each[i].key, each[i].count);
        before = ", ";
    }
    exo_text_add(&text, c->sequence ? ", sequence: true}" : "}");
    if (!text.failed)
        return text.data;
    exo_fail(err, EXO_NOMEM, "out of memory");
    exo_free(text.data);
    return NULL;
}

exo_status
exo_job_plan_assignments(const exo_job_plan *plan, const exo_job_plan_entry *entry,
                         char *sets[EXO_JOB_PLAN_SETS], size_t *count, exo_err *err)
{
    char *text = NULL;
    const exo_parallelism *c = &entry->composition;
    const uint32_t sharing = exo_parallelism_sharing(c);
    const char *checkpoint = c->checkpoint ? "true" : "false";
    *count = 0;
    exo_status st = exo_config_text(exo_config_root(entry->options), &text, err);
    if (st == EXO_OK)
        sets[(*count)++] = exo_text_make(err, "strategy=%s", text);
    if (st == EXO_OK && sharing > 1) {
        sets[(*count)++] = exo_text_make(err, "train.batch_size=%zu", plan->batch_size * sharing);
        sets[(*count)++] = parallel_text(c, err);
    }
    if (st == EXO_OK && (entry->minibatch_size != plan->job_minibatch || sharing > 1))
        sets[(*count)++] = exo_text_make(err, "train.minibatch_size=%zu", entry->minibatch_size);
    if (st == EXO_OK && c->checkpoint != plan->job_checkpoint)
        sets[(*count)++] =
            plan->model_is_name
                ? exo_text_make(err, "model={name: %s, checkpoint: %s}", plan->model, checkpoint)
                : exo_text_make(err, "model.checkpoint=%s", checkpoint);
    if (st == EXO_OK && plan->job_parallel && sharing == 1)
        sets[(*count)++] = exo_text_make(err, "parallel={}");
    exo_free(text);
    bool complete = st == EXO_OK;
    for (size_t i = 0; i < *count; i++)
        complete = complete && sets[i];
    for (; !complete && *count > 0; --*count)
        exo_free(sets[*count - 1]);
    return complete ? EXO_OK : st == EXO_OK ? EXO_NOMEM : st;
}

exo_status
exo_job_plan_fail_none(const exo_job_plan *plan, const char *subject, exo_err *err)
{
    char limit[EXO_UNIT_TEXT], least[EXO_FIGURE], text[EXO_PARALLELISM_TEXT];
    const exo_job_plan_entry *e = &plan->entries[0];
    return exo_fail(err, EXO_FAILED,
                    "%s: no composition of %u node%s fits in %s; the smallest is %s with "
                    "minibatches of %zu, and takes %s a node",
                    subject, plan->nodes, plan->nodes == 1 ? "" : "s",
                    exo_unit_bytes((double)plan->memory_limit, limit),
                    exo_parallelism_text(&e->composition, text), e->minibatch_size,
                    exo_text_bytes((double)e->memory, least));
}

const char *
exo_job_plan_seconds(double seconds, char out[EXO_UNIT_TEXT])
{
    snprintf(out, EXO_UNIT_TEXT, seconds < 1 ? "%.3g ms" : "%.4g s",
             seconds < 1 ? seconds * 1e3 : seconds);
    return out;
}
