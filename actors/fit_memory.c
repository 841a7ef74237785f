/* The memory plan of a training job: see fit_memory.h. Read next: fit_memory_nodes.c. */
#include "actors/fit_memory.h"

#include <stdio.h>
#include <unistd.h>

#include <exogym/memory.h>
#include <exogym/parallel.h>

#include "actors/fit_memory_nodes.h"
#include "actors/fit_opts.h"
#include "base/parallel.h"

enum {
    READ_AHEAD = 3,  /* batches that a loader holds, including the one in use */
    EVALUATIONS = 2, /* evaluations at once: of node 0 and of the average */
    RUN = 10 << 20,  /* fixed needs of a run: lanes, files, the allocator's arenas */
    ALONE = 8 << 20, /* instead of RUN, of a node in a worker */
    LANE = 96 << 10  /* needs of a node's actor: stacks and queues */
};

uint64_t
exo_fit_memory_now(void)
{
    unsigned long long all = 0, pages = 0, shared = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file && fscanf(file, "%llu %llu %llu", &all, &pages, &shared) != 3)
        pages = 0;
    if (file)
        fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* The way in which the strategy's nodes take a step. */
struct how {
    bool within; /* within backward */
    /* The nodes hold less than the whole model, and wait for each other within passes. */
    bool by_units;
    bool together;       /* all nodes are within passes at once */
    size_t passes;       /* that a stage has at once; 0: the model has no stages */
    uint32_t open_units; /* of a copy by units; 0: all */
    uint64_t step_bytes; /* of a node by units, in the optimizer's step (exo_strategy_step_bytes) */
};

static exo_status
plan_step(const exo_fit_nodes *nodes, size_t minibatch_size, struct how *how, exo_err *err)
{
    const exo_fit_opts *opts = nodes->opts;
    exo_strategy *strategy = NULL;
    exo_status st = exo_strategy_new(&strategy, nodes->strategy, nodes->options, err);
    if (st == EXO_OK) {
        how->within = how->passes == 0 && exo_fit_steps_within(strategy, opts->num_nodes,
                                                               opts->batch_size, minibatch_size);
        how->by_units = exo_strategy_keeps_units(strategy);
        how->step_bytes = exo_strategy_step_bytes(strategy, nodes->model);
        how->together = how->together || how->by_units;
        /* The minibatches of a stage use all units in turn. */
        how->open_units = how->passes > 0 ? 0 : exo_strategy_open_units(strategy);
    }
    exo_strategy_free(&strategy);
    return st;
}

static void
take_nothing(void *context, size_t first, size_t count, const float *grad)
{
    (void)context;
    (void)first;
    (void)count;
    (void)grad;
}

static uint64_t
batch_bytes(const exo_dataset *data, size_t size)
{
    exo_field fields[EXO_MAX_FIELDS];
    size_t count = exo_dataset_fields(data, fields), bytes = 0;
    for (size_t i = 0; i < count; i++) {
        size_t sample = exo_dtype_size(fields[i].dtype);
        for (size_t d = 0; d < fields[i].num_dims; d++)
            sample *= fields[i].dims[d];
        bytes += sample * size;
    }
    return bytes;
}

static exo_status
plan_minibatch(exo_model *model, exo_dataset *train, const exo_fit_opts *opts, size_t *size,
               exo_err *err)
{
    unsigned threads = exo_num_threads(),
             copies = opts->num_nodes < threads ? opts->num_nodes : threads;
    if (opts->tensor > 1 || opts->pipeline > 1 || opts->context_parallel > 1)
        copies = opts->num_nodes; /* they wait for each other within passes */
    *size = opts->minibatch_size ? opts->minibatch_size : opts->batch_size;
    if (opts->minibatch_size != EXO_MINIBATCH_AUTO)
        return EXO_OK;
    return exo_fit_auto_minibatch(model, train, opts->batch_size, opts->autocast, copies, size,
                                  err);
}

static exo_status
plan_passes(exo_model *model, exo_dataset *train, exo_dataset *val, const exo_fit_opts *opts,
            const struct how *how, exo_fit_memory *m, exo_err *err)
{
    const exo_grad_sink sink = {.take = take_nothing};
    exo_pass_memory memory;
    unsigned threads = exo_num_threads(), nodes = opts->num_nodes;
    size_t val_length = val && opts->val_size != EXO_VAL_NONE ? exo_dataset_length(val) : 0;
    size_t val_count = opts->val_size && opts->val_size < val_length ? opts->val_size : val_length;
    m->passes = nodes < threads || how->together ? nodes : threads;
    exo_pass pass = {.train = true,
                     .grad = true,
                     .autocast = opts->autocast,
                     .sink = how->within ? &sink : NULL};
    exo_status st = exo_model_pass_memory(model, &pass, train, m->minibatch_size, &memory, err);
    if (st != EXO_OK)
        return st;
    m->activations = (memory.tape + memory.plans) * m->passes * (how->passes ? how->passes : 1);
    m->padding = memory.padding * (how->passes ? how->passes : 1);
    m->evaluations = m->passes < EVALUATIONS || how->together ? m->passes : EVALUATIONS;
    size_t size = m->minibatch_size < val_count ? m->minibatch_size : val_count;
    if (size > 0) {
        pass = (exo_pass){.autocast = opts->autocast};
        st = exo_model_pass_memory(model, &pass, val, size, &memory, err);
        uint64_t rest = 0;
        m->padding += memory.padding;
        /* A last batch of less than half the size does not use the buffers of the others. */
        if (st == EXO_OK && val_count % size > 0 && 2 * (val_count % size) < size) {
            exo_pass_memory last;
            st = exo_model_pass_memory(model, &pass, val, val_count % size, &last, err);
            rest = last.tape + last.plans;
            m->padding += last.padding;
        }
        m->evaluation =
            st == EXO_OK
                ? (memory.tape + memory.plans + rest + batch_bytes(val, size)) * m->evaluations
                : 0;
    }
    /* Batches that the loaders read ahead, and orders of samples: that of a node's share, and that
     * of all samples, from which the share is drawn. */
    size_t length = exo_dataset_length(train);
    bool tables = opts->shuffle && length <= EXO_SAMPLER_TABLE;
    /* Nodes with data of their own draw from that only. */
    size_t drawn = opts->factory.make ? length / nodes : length;
    m->batches = nodes * READ_AHEAD * batch_bytes(train, opts->batch_size) +
                 (tables ? nodes * sizeof(uint32_t) * (drawn + length / nodes) : 0) +
                 val_count * sizeof(size_t);
    return st;
}

static uint64_t
largest_unit(const exo_model *model)
{
    uint64_t largest = 0;
    for (size_t u = 0; u < exo_model_num_units(model); u++)
        if (exo_model_units(model)[u].count > largest)
            largest = exo_model_units(model)[u].count;
    return largest * sizeof(float);
}

/* What a node takes to send the average away, a unit at a time: the unit's copy, the message, and the message
 * of the unit before, which the receiver still has. */
static uint64_t
reply_bytes(const exo_model *model)
{
    uint64_t most = 0, before = 0;
    for (size_t u = 0; u < exo_model_num_units(model); u++) {
        const uint64_t unit = exo_model_units(model)[u].count;
        most = before + 2 * unit > most ? before + 2 * unit : most;
        before = unit;
    }
    return most * sizeof(float);
}

/* Of a copy by units: a step has as many units open as the strategy says, and the gradients of two
 * units, or of all if it has several minibatches. When the average is made or read, these are closed;
 * one unit of the node's and one of the average are open, and each node has its shard of the average.
 * The units that a node keeps belong to the strategy. */
static void
plan_units(const exo_model *model, const exo_fit_opts *opts, const struct how *how,
           exo_fit_memory *m)
{
    const uint64_t nodes = opts->num_nodes, largest = largest_unit(model);
    uint64_t values = exo_model_numel(model) * sizeof(float);
    uint64_t statistics = exo_aligned_size(exo_model_buffer_numel(model) * sizeof(float));
    uint64_t two = 2 * largest < values ? 2 * largest : values, open = how->open_units * largest;
    open = how->open_units == 0 || open > values ? values : open;
    uint64_t grads = m->minibatch_size == opts->batch_size ? two : values, closed = open + grads;
    /* Of what a step has closed the allocator keeps about this, because units have different sizes: the other
     * threads do not get it. */
    uint64_t kept = closed < 5 * largest / 2 ? closed : 5 * largest / 2;
    /* Of what a pass leaves, the allocator gives the optimizer's step about as much as the open values:
     * arrays of other sizes, and of other threads, stay apart. */
    m->optimizer += how->step_bytes > open ? nodes * (how->step_bytes - open) : 0;
    m->parameters = nodes * (open + statistics);
    m->gradients = nodes * grads;
    m->average = values + nodes * statistics;
    m->result = values + statistics + (largest > statistics ? largest : statistics);
    m->closed = nodes * closed;
    m->open = nodes * (kept > 2 * largest ? kept : 2 * largest);
    m->reply = reply_bytes(model);
}

/* The arrays of the model, for all nodes in this process. A flat copy has room for all values. */
static void
plan_numbers(const exo_model *model, const exo_fit_opts *opts, const struct how *how,
             exo_fit_memory *m)
{
    const uint64_t nodes = opts->num_nodes, largest = largest_unit(model);
    uint64_t values = exo_aligned_size(exo_model_numel(model) * sizeof(float));
    uint64_t statistics = exo_aligned_size(exo_model_buffer_numel(model) * sizeof(float));
    m->parameters = nodes * (values + statistics);
    m->gradients = how->within ? 0 : nodes * values;
    m->average = nodes * (values + statistics);
    m->result = values + statistics + (largest > statistics ? largest : statistics);
    m->reply = reply_bytes(model);
}

/* Plans the numbers and the passes of nodes that have one model each. out->minibatch_size is planned;
 * again: out->optimizer is, too; `passes` is that of struct how. */
static exo_status
plan_copies(const exo_fit_nodes *nodes, exo_dataset *train, exo_dataset *val, bool again,
            size_t passes, exo_fit_memory *out, exo_err *err)
{
    const exo_fit_opts *opts = nodes->opts;
    struct how how = {.together = out->nodes > opts->num_nodes, .passes = passes};
    exo_status st = plan_step(nodes, out->minibatch_size, &how, err);
    if (again)
        how.step_bytes = 0; /* out->optimizer has them */
    if (st == EXO_OK && !again)
        st = exo_fit_memory_nodes(nodes, how.by_units, &out->optimizer, &out->alone, err);
    if (st == EXO_OK)
        st = plan_passes(nodes->model, train, val, opts, &how, out, err);
    if (st == EXO_OK)
        (how.by_units ? plan_units : plan_numbers)(nodes->model, opts, &how, out);
    return st;
}

/* UNSUPPORTED: the strategy does not train parts of models. */
static exo_status
check_strategy(const char *name, exo_config *options, const exo_fit_opts *opts, exo_err *err)
{
    exo_strategy *strategy = NULL;
    exo_status st = exo_strategy_new(&strategy, name, options, err);
    if (st == EXO_OK)
        st = exo_fit_check_parts(strategy, NULL, opts, err);
    exo_strategy_free(&strategy);
    return st;
}

/* The nodes that have the parts and the tokens of a stage, or of a copy. */
static uint32_t
parts_of(const exo_fit_opts *opts)
{
    return (opts->tensor > 1 ? opts->tensor : 1) *
           (opts->context_parallel > 1 ? opts->context_parallel : 1);
}

/* The result of nodes that share copies is whole, and its units are gathered one at a time. The first node
 * sends them away; the other nodes have one whole unit. A unit that is whole with one stage is a message,
 * too, for which units that only a step has open leave room. */
static void
plan_gather(const exo_model *whole, const exo_fit_opts *opts, bool first, exo_fit_memory *out)
{
    const uint64_t largest = largest_unit(whole),
                   message = opts->pipeline > 1 && out->closed == 0 ? largest : 0;
    out->result = exo_model_numel(whole) * sizeof(float) + 2 * opts->num_nodes * largest;
    out->reply = (first ? reply_bytes(whole) : largest) + message;
}

/* Nodes make an average before a step, and keep the memory of its copies. */
static bool
averages_before_steps(const exo_fit_opts *opts, const exo_dataset *val)
{
    const bool validates = val && opts->val_size != EXO_VAL_NONE && exo_dataset_length(val) > 0;
    return (opts->val_interval > 0 && validates) || opts->correlation_interval > 0;
}

/* What is in memory at once, of units that a step has open, the average, and the result with the units that
 * are open for it. */
static uint64_t
most_at_once(uint64_t closed, uint64_t average, uint64_t end, bool before)
{
    const uint64_t step = closed + (before ? average : 0);
    return step > average + end ? step : average + end;
}

/* The average and the result take the memory of units that a step has closed. */
static void
reuse_closed(bool before, exo_fit_memory *m)
{
    const uint64_t most =
        most_at_once(m->closed, m->average, m->open + m->result, before) - m->closed;
    m->average = m->average < most ? m->average : most;
    m->result = most - m->average;
}

/* Nodes with parts: the nodes with the first part, which is the largest, times the number of parts. */
static exo_status
plan_tensor(exo_model *whole, exo_model *part, exo_dataset *train, exo_dataset *val,
            const char *strategy, exo_config *options, const exo_fit_opts *opts, bool again,
            exo_fit_memory *out, exo_err *err)
{
    exo_fit_opts same = *opts; /* the nodes with the same part */
    const uint32_t parts = parts_of(opts);
    same.num_nodes = opts->num_nodes / parts;
    const exo_fit_nodes nodes = {.model = part,
                                 .whole = opts->tensor > 1 ? whole : NULL,
                                 .strategy = strategy,
                                 .options = options,
                                 .opts = &same};
    exo_status st = check_strategy(strategy, options, opts, err);
    out->optimizer /= parts;
    if (st == EXO_OK)
        st = plan_copies(&nodes, train, val, again, 0, out, err);
    if (st != EXO_OK)
        return st;
    uint64_t *const each[] = {&out->parameters,  &out->gradients,  &out->optimizer,
                              &out->average,     &out->closed,     &out->open,
                              &out->activations, &out->evaluation, &out->batches};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        *each[i] *= parts;
    out->passes *= parts;
    out->evaluations *= parts;
    plan_gather(whole, opts, true, out);
    return EXO_OK;
}

/* What one of `nodes` equal nodes takes in a worker of its own, beyond the process. */
static uint64_t
of_node(const exo_fit_memory *m, uint32_t nodes, bool before)
{
    const uint64_t shared = m->parameters + m->gradients + m->optimizer + m->batches - m->closed;
    const uint64_t open = m->open / nodes, end = open > m->reply ? open : m->reply;
    return shared / nodes + m->alone +
           most_at_once(m->closed / nodes, m->average / nodes, end, before) +
           m->activations / m->passes + m->evaluation / m->evaluations - m->padding;
}

/* Adds what the nodes of one stage take: those with its first part, times the number of its parts.
 * optimizer: known, for each parameter of a stage's nodes with one part; below 0: not. */
static exo_status
plan_stage(exo_model *whole, uint32_t index, exo_dataset *train, exo_dataset *val,
           const char *strategy, exo_config *options, const exo_fit_opts *opts, double optimizer,
           exo_fit_memory *out, exo_err *err)
{
    exo_model *stage = NULL;
    exo_batch batch = {0};
    const uint32_t stages = opts->pipeline, parts = parts_of(opts);
    const exo_share share = exo_fit_opts_share(opts, index);
    exo_fit_memory m = {.nodes = opts->num_nodes,
                        .minibatch_size = out->minibatch_size,
                        .alone = optimizer >= 0 ? out->alone : 0};
    exo_fit_opts same = *opts; /* the nodes with the same stage */
    same.num_nodes = opts->num_nodes / stages / parts;
    size_t minibatches = opts->batch_size / out->minibatch_size, passes = stages - index;
    passes = passes < minibatches ? passes : minibatches;
    exo_status st = exo_model_share(&stage, whole, &share, err);
    const exo_fit_nodes nodes = {
        .model = stage, .whole = whole, .strategy = strategy, .options = options, .opts = &same};
    if (st == EXO_OK && optimizer >= 0)
        m.optimizer = (uint64_t)(optimizer * (double)exo_model_numel(stage));
    if (st == EXO_OK)
        st = plan_copies(&nodes, train, val, optimizer >= 0, passes, &m, err);
    if (st == EXO_OK)
        st = exo_batch_init(&batch, train, 1, err);
    if (st == EXO_OK) {
        /* What comes from the stage before for each pass, and what goes to the stage after. */
        const size_t inputs = index > 0 ? passes : 0;
        batch.size = out->minibatch_size;
        m.activations +=
            (inputs + 1) * exo_stage_numel(stage, &batch) * sizeof(float) * same.num_nodes;
        plan_gather(whole, opts, index == 0, &m);
        const uint64_t node = of_node(&m, same.num_nodes, averages_before_steps(opts, val));
        out->node = node > out->node ? node : out->node;
        out->alone = m.alone > out->alone ? m.alone : out->alone;
        out->parameters += parts * m.parameters;
        out->gradients += parts * m.gradients;
        out->optimizer += parts * m.optimizer;
        out->average += parts * m.average;
        out->closed += parts * m.closed;
        out->open += parts * m.open;
        out->activations += parts * m.activations;
        out->evaluation += parts * m.evaluation;
        out->evaluations += parts * m.evaluations;
        out->batches += parts * m.batches;
        out->passes += parts * m.passes * (unsigned)passes;
    }
    exo_batch_release(&batch);
    exo_model_drop(&stage);
    return st;
}

/* What a known optimizer of all nodes takes for each parameter of a stage's nodes with one part: it grows
 * linearly with the parameters. */
static exo_status
spread_optimizer(exo_model *whole, const exo_fit_opts *opts, uint64_t optimizer, double *each,
                 exo_err *err)
{
    size_t numel = 0;
    exo_status st = EXO_OK;
    for (uint32_t s = 0; st == EXO_OK && s < opts->pipeline; s++) {
        exo_model *stage = NULL;
        const exo_share share = exo_fit_opts_share(opts, s);
        st = exo_model_share(&stage, whole, &share, err);
        numel += st == EXO_OK ? exo_model_numel(stage) : 0;
        exo_model_drop(&stage);
    }
    *each = (double)optimizer / parts_of(opts) / (double)(numel > 0 ? numel : 1);
    return st;
}

/* Nodes with stages: the sum over the stages. */
static exo_status
plan_pipeline(exo_model *whole, exo_dataset *train, exo_dataset *val, const char *strategy,
              exo_config *options, const exo_fit_opts *opts, bool again, exo_fit_memory *out,
              exo_err *err)
{
    double optimizer = -1;
    exo_status st = check_strategy(strategy, options, opts, err);
    if (st == EXO_OK && again)
        st = spread_optimizer(whole, opts, out->optimizer, &optimizer, err);
    out->optimizer = 0;
    for (uint32_t s = 0; st == EXO_OK && s < opts->pipeline; s++)
        st = plan_stage(whole, s, train, val, strategy, options, opts, optimizer, out, err);
    plan_gather(whole, opts, true, out);
    return st;
}

/* again: out->optimizer is known. */
static exo_status
plan(exo_model *model, exo_dataset *train, exo_dataset *val, const char *strategy,
     exo_config *options, const exo_fit_opts *opts, uint64_t now, bool again, exo_fit_memory *out,
     exo_err *err)
{
    exo_model *part = NULL;
    const exo_fit_nodes nodes = {
        .model = model, .strategy = strategy, .options = options, .opts = opts};
    *out = (exo_fit_memory){.nodes = opts->num_nodes,
                            .optimizer = again ? out->optimizer : 0,
                            .alone = again ? out->alone : 0};
    exo_status st = exo_fit_opts_check(opts, err);
    const exo_share share = exo_fit_opts_share(opts, 0);
    if (st == EXO_OK && parts_of(opts) > 1 && opts->pipeline <= 1)
        st = exo_model_share(&part, model, &share, err);
    if (st == EXO_OK)
        st = plan_minibatch(part ? part : model, train, opts, &out->minibatch_size, err);
    if (st == EXO_OK && part)
        st = plan_tensor(model, part, train, val, strategy, options, opts, again, out, err);
    else if (st == EXO_OK && opts->pipeline > 1)
        st = plan_pipeline(model, train, val, strategy, options, opts, again, out, err);
    else if (st == EXO_OK)
        st = plan_copies(&nodes, train, val, again, 0, out, err);
    exo_model_drop(&part);
    if (st != EXO_OK)
        return st;
    const bool before = averages_before_steps(opts, val);
    if (out->node == 0)
        out->node = of_node(out, out->nodes, before);
    reuse_closed(before, out);
    out->process =
        now + RUN + opts->num_nodes * (uint64_t)LANE + exo_num_threads() * exo_parallel_scratch();
    out->peak = out->process + out->parameters + out->gradients + out->optimizer + out->average +
                out->activations + out->evaluation + out->batches + out->result;
    return EXO_OK;
}

exo_status
exo_fit_memory_plan(exo_model *model, exo_dataset *train, exo_dataset *val, const char *strategy,
                    exo_config *options, const exo_fit_opts *opts, uint64_t now,
                    exo_fit_memory *out, exo_err *err)
{
    return plan(model, train, val, strategy, options, opts, now, false, out, err);
}

exo_status
exo_fit_memory_replan(exo_model *model, exo_dataset *train, exo_dataset *val, const char *strategy,
                      exo_config *options, const exo_fit_opts *opts, uint64_t now,
                      exo_fit_memory *out, exo_err *err)
{
    return plan(model, train, val, strategy, options, opts, now, true, out, err);
}

uint64_t
exo_fit_memory_of_node(const exo_fit_memory *m)
{
    return m->process - (m->nodes - 1) * (uint64_t)LANE - RUN + ALONE + m->node;
}
