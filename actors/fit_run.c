/* One fit: makes the nodes, tells them what to do from event to event, and gathers what they give.
 *
 * Everything in struct run belongs to the caller's thread. The nodes run free between two events (evaluation, correlation,
 * checkpoint, the end, or about SEGMENT of time, so that a stop is heeded soon); at an event all of them are idle.
 */
#include "fit_run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "checkpoint.h"
#include "file.h"
#include "fit_opts.h"
#include "metrics.h"
#include "train_node.h"

#define SEGMENT         (200 * EXO_MS)
#define DEFAULT_TIMEOUT (600 * EXO_SECOND)
#define CLOSE_GRACE     (30 * EXO_SECOND)

enum {
    NODE_NAME = 32
};

struct run {
    exo_fit fit;
    const exo_fit_opts *opts;
    const exo_fit_far *far; /* NULL: the nodes are in this process */
    const char *strategy_name;
    const exo_clock *clock;

    exo_runtime *runtime;
    exo_comm *comm, *side;   /* of nodes in this process */
    exo_node_spec *specs;    /* (num_nodes) */
    exo_ref *nodes;          /* (num_nodes) */
    exo_future **futures;    /* (num_nodes) of the request in progress */
    exo_future **pending;    /* (num_nodes) scratch of await_all       */
    uint32_t *pending_ranks; /* (num_nodes) likewise                   */
    exo_strategy **strategy; /* (num_nodes) */
    exo_dataset **train;     /* (num_nodes) held                       */
    uint32_t *val_order;

    char folder[EXO_CHECKPOINT_PATH]; /* "" without files */
    int lock;                         /* descriptor, or -1 */
    char checkpoint[EXO_CHECKPOINT_PATH];
    exo_metrics *metrics;
    char *options_text;
    char *settings;

    uint64_t step;
    exo_time started;        /* of this process's part, on the clock             */
    exo_time trained;        /* ns in steps, this process's part                 */
    uint64_t elapsed_before; /* ns of the parts before a resume                  */
    uint64_t steps_before;
    uint64_t bytes_sent;
    float train_loss, lr;
    double rate;        /* samples/s of the last segments, smoothed         */
    exo_time step_time; /* of the last segment, for the length of the next  */
    bool evaluated;     /* at `step`: eval holds the figures                */
    exo_progress eval;
    bool stopped;
};

/* --- Requests to the nodes ------------------------------------------------------------------------------------------ */

/* Ends the collectives that wait for node `rank`. */
static void
fail_collectives(struct run *run, uint32_t rank, const char *cause)
{
    if (!run->far) {
        exo_comm_fail(run->comm, rank, cause);
        exo_comm_fail(run->side, rank, cause);
        return;
    }
    char text[sizeof rank + EXO_ERR_TEXT];
    memcpy(text, &rank, sizeof rank);
    int length = snprintf(text + sizeof rank, EXO_ERR_TEXT, "%s", cause);
    for (uint32_t r = 0; r < run->fit.num_nodes; r++) {
        exo_payload payload = {0};
        if (run->nodes[r].id && exo_payload_copy(&payload, text, sizeof rank + (size_t)length) == EXO_OK)
            exo_send(run->runtime, run->nodes[r], "abandon", payload, INT64_MAX, NULL);
    }
}

/* An error of one node; of one that was lost with its worker, also why, as far as that can be learnt. */
static exo_status
blame(const struct run *run, uint32_t rank, exo_status st, const char *reason, exo_err *err)
{
    char why[EXO_ERR_TEXT] = "", name[NODE_NAME];
    snprintf(name, sizeof name, "node_%u", rank);
    if (err && st == EXO_PEER_LOST && run->far && run->far->explain)
        run->far->explain(run->far->context, run->far->run, name, why, sizeof why);
    return exo_fail(err, st, "%s: %s", name, why[0] ? why : reason[0] ? reason : exo_status_text(st));
}

/* How much an error says of what went wrong: least, if it is what a node heard of another. */
static int
weight(const struct run *run, uint32_t rank, exo_status st)
{
    char cause[EXO_ERR_TEXT];
    if (st == EXO_OK)
        return 0;
    if (st != EXO_PEER_LOST)
        return 3;
    return exo_cause(run->runtime, run->nodes[rank], cause, sizeof cause) == EXO_OK ? 2 : 1;
}

/* Sends a request to one node; its future goes to futures[rank]. */
static exo_status
ask(struct run *run, uint32_t rank, const char *method, const void *args, size_t size, exo_err *err)
{
    exo_payload payload = {0};
    exo_status st = size ? exo_payload_copy(&payload, args, size) : EXO_OK;
    if (st != EXO_OK)
        return exo_fail(err, st, "no memory to call node_%u", rank);
    exo_err reason = {0};
    st = exo_call(run->runtime, run->nodes[rank], method, payload, INT64_MAX, &run->futures[rank], &reason);
    return st == EXO_OK ? st : blame(run, rank, st, reason.text, err);
}

static exo_status
ask_all(struct run *run, const char *method, const void *args, size_t size, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t r = 0; st == EXO_OK && r < run->fit.num_nodes; r++)
        st = ask(run, r, method, args, size, err);
    if (st != EXO_OK) /* those that were asked wait for one that was not */
        fail_collectives(run, 0, err->text);
    return st;
}

static void
drop_futures(struct run *run)
{
    for (uint32_t r = 0; r < run->fit.num_nodes; r++)
        exo_future_drop(&run->futures[r]);
}

/* Waits for every request in progress. The first error that is a node's own, or its death, rather than what it heard of another,
 * is the run's; the other nodes are told at once, so that nobody waits for the dead. */
static exo_status
await_all(struct run *run, exo_err *err)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < run->fit.num_nodes; r++) {
        if (!run->futures[r])
            continue;
        run->pending[count] = run->futures[r];
        run->pending_ranks[count++] = r;
    }
    exo_status root = EXO_OK;
    exo_err root_err = {0};
    uint32_t root_rank = 0;
    int heaviest = 0;
    while (count > 0) {
        size_t at = 0;
        exo_err node_err = {0};
        exo_time deadline = exo_deadline(run->clock, run->fit.timeout + CLOSE_GRACE);
        exo_status st = exo_wait_any(run->pending, count, deadline, &at, &node_err);
        if (st != EXO_OK) {
            fail_collectives(run, run->pending_ranks[0], "it does not answer");
            return exo_fail(err, st, "node_%u has not answered for %" PRId64 " s", run->pending_ranks[0],
                            (run->fit.timeout + CLOSE_GRACE) / EXO_SECOND);
        }
        st = exo_wait(run->pending[at], INT64_MAX, NULL, &node_err);
        uint32_t rank = run->pending_ranks[at];
        run->pending[at] = run->pending[count - 1];
        run->pending_ranks[at] = run->pending_ranks[count - 1];
        count--;
        if (st == EXO_OK)
            continue;
        if (weight(run, rank, st) > heaviest) {
            heaviest = weight(run, rank, st);
            root = st;
            root_err = node_err;
            root_rank = rank;
        }
        fail_collectives(run, rank, node_err.text);
    }
    return root == EXO_OK ? EXO_OK : blame(run, root_rank, root, root_err.text, err);
}

/* A node's reply to the request in progress; NULL if there is none. */
static const void *
reply_of(struct run *run, uint32_t rank)
{
    const exo_payload *reply = NULL;
    exo_status st = exo_wait(run->futures[rank], INT64_MAX, &reply, NULL);
    return st == EXO_OK && reply ? reply->data : NULL;
}

/* --- Preparation ---------------------------------------------------------------------------------------------------------- */

static exo_status
allocate(struct run *run, exo_err *err)
{
    uint32_t n = run->fit.num_nodes;
    run->specs = exo_calloc(n, sizeof *run->specs);
    run->nodes = exo_calloc(n, sizeof *run->nodes);
    run->futures = exo_calloc(n, sizeof *run->futures);
    run->pending = exo_calloc(n, sizeof *run->pending);
    run->pending_ranks = exo_calloc(n, sizeof *run->pending_ranks);
    run->strategy = exo_calloc(n, sizeof *run->strategy);
    run->train = exo_calloc(n, sizeof *run->train);
    if (!run->specs || !run->nodes || !run->futures || !run->pending || !run->pending_ranks || !run->strategy ||
        !run->train)
        return exo_fail(err, EXO_NOMEM, "no memory for %u nodes", n);
    return EXO_OK;
}

/* A strategy's state is one node's, and a config belongs to one thread: all are made here, before there are nodes. */
static exo_status
make_strategies(struct run *run, exo_config *options, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t r = 0; st == EXO_OK && r < run->fit.num_nodes; r++)
        st = exo_strategy_new(&run->strategy[r], run->strategy_name, options, err);
    if (st == EXO_OK && options)
        st = exo_config_text(options, &run->options_text, err);
    else if (st == EXO_OK && !(run->options_text = exo_strdup("{}")))
        st = exo_fail(err, EXO_NOMEM, "no memory for the options");
    return st;
}

static exo_status
make_data(struct run *run, exo_dataset *train, exo_dataset *val, exo_err *err)
{
    const exo_dataset_factory *factory = &run->opts->factory;
    exo_status st = EXO_OK;
    run->fit.shared_data = !factory->make;
    for (uint32_t r = 0; st == EXO_OK && r < run->fit.num_nodes; r++) {
        if (factory->make) {
            st = factory->make(factory->context, r, run->fit.num_nodes, true, &run->train[r], err);
            if (st != EXO_OK)
                exo_fail_in(err, st, "the data of node_%u", r);
        } else if (train) {
            run->train[r] = exo_dataset_hold(train);
        } else {
            st = exo_fail(err, EXO_INVAL, "the trainer has no training data and the fit brings no factory");
        }
        if (st == EXO_OK && !run->train[r])
            st = exo_fail(err, EXO_INVAL, "the factory gave no data set to node_%u", r);
    }
    if (st == EXO_OK && factory->make) {
        st = factory->make(factory->context, 0, run->fit.num_nodes, false, &run->fit.val, err);
        if (st != EXO_OK)
            exo_fail_in(err, st, "the validation data");
    } else if (st == EXO_OK && val) {
        run->fit.val = exo_dataset_hold(val);
    }
    return st;
}

/* How many steps there are: num_epochs over the smallest share. And is there a batch for everyone? */
static exo_status
plan_steps(struct run *run, exo_err *err)
{
    const exo_fit *fit = &run->fit;
    uint64_t epoch = UINT64_MAX;
    for (uint32_t r = 0; r < fit->num_nodes; r++) {
        size_t length = exo_dataset_length(run->train[r]);
        size_t share = fit->shared_data ? length / fit->num_nodes : length;
        if (share < fit->batch_size)
            return exo_fail(err, EXO_INVAL,
                            "batch_size %zu is greater than the data: node_%u gets %zu of %zu samples an epoch",
                            fit->batch_size, r, share, length);
        uint64_t batches = share / fit->batch_size;
        epoch = batches < epoch ? batches : epoch;
    }
    run->fit.max_steps = run->opts->max_steps ? run->opts->max_steps : run->opts->num_epochs * epoch;
    return EXO_OK;
}

/* The samples of every evaluation: the first val_size of a seeded order. */
static exo_status
plan_evaluation(struct run *run, exo_err *err)
{
    size_t length = run->fit.val ? exo_dataset_length(run->fit.val) : 0;
    if (length > UINT32_MAX)
        return exo_fail(err, EXO_UNSUPPORTED, "a validation set of %zu samples is too large", length);
    if (length == 0)
        return EXO_OK;
    run->val_order = exo_calloc(length, sizeof *run->val_order);
    if (!run->val_order)
        return exo_fail(err, EXO_NOMEM, "no memory for the order of %zu samples", length);
    exo_rng rng;
    exo_rng_init(&rng, run->opts->seed, EXO_RNG_EVAL, 0, 0);
    exo_rng_permutation(&rng, run->val_order, (uint32_t)length);
    run->fit.val_order = run->val_order;
    run->fit.val_count = run->opts->val_size && run->opts->val_size < length ? run->opts->val_size : length;
    return EXO_OK;
}

static exo_status
plan_minibatch(struct run *run, exo_err *err)
{
    size_t wanted = run->opts->minibatch_size;
    run->fit.minibatch_size = wanted ? wanted : run->fit.batch_size;
    if (wanted != EXO_MINIBATCH_AUTO)
        return EXO_OK;
    unsigned threads = exo_num_threads();
    unsigned copies = run->fit.num_nodes < threads ? run->fit.num_nodes : threads;
    return exo_fit_auto_minibatch(run->fit.model, run->train[0], run->fit.batch_size, run->fit.autocast, copies,
                                  &run->fit.minibatch_size, err);
}

static exo_status
write_text(const struct run *run, const char *name, const char *text, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", run->folder, name);
    return exo_file_write_atomic(path, text, strlen(text), err);
}

/* One run a folder: a second one would mix its lines with the first one's. */
static exo_status
lock_folder(struct run *run, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH + 32];
    snprintf(path, sizeof path, "%s/.lock", run->folder);
    run->lock = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    if (run->lock < 0)
        return exo_fail(err, EXO_IO, "%s: %s", path, strerror(errno));
    if (flock(run->lock, LOCK_EX | LOCK_NB) != 0)
        return exo_fail(err, EXO_EXISTS, "%s: another run writes into this folder: wait for it or give another name",
                        run->folder);
    return EXO_OK;
}

static exo_status
prepare_start(struct run *run, exo_err *err)
{
    char kept[EXO_CHECKPOINT_PATH];
    exo_status st = exo_checkpoint_put_aside(run->folder, kept, err);
    if (st == EXO_OK && kept[0])
        EXO_LOG(WARN, TRAIN, "kept=%s checkpoints of an earlier run that did not finish were put aside", kept);
    return st;
}

static exo_status
prepare_resume(struct run *run, exo_err *err)
{
    bool found = false;
    exo_status st = exo_checkpoint_newest(run->folder, run->checkpoint, &found, err);
    if (st != EXO_OK)
        return st;
    if (!found) {
        EXO_LOG(WARN, TRAIN, "folder=%s there is no checkpoint to resume from: starting from step 0", run->folder);
        return EXO_OK;
    }
    st = exo_checkpoint_check(run->checkpoint, run->settings, err);
    if (st == EXO_OK)
        run->fit.resume_from = run->checkpoint;
    if (st == EXO_OK && run->far) { /* nodes elsewhere have other current folders */
        char absolute[EXO_CHECKPOINT_PATH];
        if (realpath(run->checkpoint, absolute))
            memcpy(run->checkpoint, absolute, sizeof absolute);
    }
    return st;
}

static exo_status
prepare_folder(struct run *run, exo_err *err)
{
    const exo_fit_opts *opts = run->opts;
    char *config = NULL;
    if (!opts->save_dir)
        return EXO_OK;
    int length = snprintf(run->folder, sizeof run->folder, "%s/%s", opts->save_dir,
                          opts->run_name ? opts->run_name : run->strategy_name);
    if (length < 0 || (size_t)length >= sizeof run->folder - 256)
        return exo_fail(err, EXO_INVAL, "save_dir and run name are too long together");

    exo_status st = exo_folder_make(run->folder, err);
    if (st == EXO_OK)
        st = lock_folder(run, err);
    if (st == EXO_OK)
        st = exo_fit_settings_json(opts, run->strategy_name, run->options_text, run->fit.model, run->fit.minibatch_size,
                                   &run->settings, err);
    if (st == EXO_OK)
        st = opts->resume ? prepare_resume(run, err) : prepare_start(run, err);
    if (st == EXO_OK && !opts->config_json)
        st = exo_fit_config_json(opts, run->strategy_name, run->options_text, run->fit.model, run->fit.max_steps,
                                 run->fit.minibatch_size, &config, err);
    if (st == EXO_OK)
        st = write_text(run, "config.json", opts->config_json ? opts->config_json : config, err);
    exo_free(config);
    return st;
}

/* The text that a node elsewhere is started with (node_host.h). */
static exo_status
describe_node(const struct run *run, uint32_t rank, exo_payload *out, exo_err *err)
{
    const exo_fit *fit = &run->fit;
    const exo_fit_far *far = run->far;
    json_t *plugins = json_array();
    for (size_t i = 0; i < far->num_plugins; i++)
        json_array_append_new(plugins, json_string(far->plugins[i]));
    json_t *numbers =
        json_pack("{s:s, s:i, s:i, s:o, s:I, s:I, s:I, s:b, s:b, s:I, s:I, s:I}", "run", far->run, "rank", (int)rank,
                  "nodes", (int)fit->num_nodes, "plugins", plugins, "max_steps", (json_int_t)fit->max_steps,
                  "batch_size", (json_int_t)fit->batch_size, "minibatch_size", (json_int_t)fit->minibatch_size,
                  "shuffle", (int)fit->shuffle, "autocast", (int)fit->autocast, "seed", (json_int_t)fit->seed,
                  "val_size", (json_int_t)run->opts->val_size, "timeout_ms", (json_int_t)(fit->timeout / EXO_MS));
    if (numbers && fit->resume_from)
        json_object_set_new(numbers, "resume_from", json_string(fit->resume_from));
    char *text = numbers ? json_dumps(numbers, JSON_COMPACT) : NULL;
    json_decref(numbers);
    size_t size = text ? strlen(text) + strlen(far->model) + strlen(far->data) + strlen(far->strategy) + 64 : 0;
    char *whole = text ? exo_calloc(size, 1) : NULL;
    if (whole) /* the options as they were written: a number loses no digit on its way */
        size = (size_t)snprintf(whole, size, "{\"model\": %s, \"data\": %s, \"strategy\": %s, %s", far->model,
                                far->data, far->strategy, text + 1);
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    release(text);
    if (!whole)
        return exo_fail(err, EXO_NOMEM, "no memory to describe a node");
    *out = (exo_payload){.data = whole, .size = size + 1, .release = exo_free};
    return EXO_OK;
}

static exo_status
make_far_nodes(struct run *run, exo_err *err)
{
    exo_status st = EXO_OK;
    run->runtime = run->far->runtime;
    for (uint32_t r = 0; st == EXO_OK && r < run->fit.num_nodes; r++) {
        char name[NODE_NAME];
        snprintf(name, sizeof name, "node_%u", r);
        /* Nobody else has the name: if it exists, the head was lost before it could say that it made it. */
        exo_spawn_opts opts = {
            .name = name, .namespace_name = run->far->run, .get_if_exists = true, .placement = EXO_PLACE_SPREAD};
        st = describe_node(run, r, &opts.args, err);
        if (st == EXO_OK)
            st = exo_spawn_class(run->runtime, "train_node", &opts, exo_deadline(run->clock, run->fit.timeout),
                                 &run->nodes[r], err);
    }
    return st;
}

static exo_status
make_nodes(struct run *run, exo_err *err)
{
    exo_fit *fit = &run->fit;
    if (run->far)
        return make_far_nodes(run, err);
    exo_status st = exo_comm_local(&run->comm, fit->num_nodes, run->clock, err);
    if (st == EXO_OK)
        st = exo_comm_local(&run->side, fit->num_nodes, run->clock, err);
    const exo_runtime_opts runtime_opts = {.clock = run->clock};
    if (st == EXO_OK)
        st = exo_runtime_open(&run->runtime, &runtime_opts, err);
    for (uint32_t r = 0; st == EXO_OK && r < fit->num_nodes; r++) {
        char name[32];
        snprintf(name, sizeof name, "node_%u", r);
        run->specs[r] = (exo_node_spec){.fit = fit,
                                        .rank = r,
                                        .train = run->train[r],
                                        .strategy = run->strategy[r],
                                        .comm = run->comm,
                                        .side = run->side};
        const exo_spawn_opts opts = {.name = name, .args = exo_payload_borrow(&run->specs[r], sizeof run->specs[r])};
        st = exo_spawn(run->runtime, &exo_train_node_class, &opts, &run->nodes[r], err);
    }
    return st;
}

/* Of what all nodes sent together, one node's part, rounded. */
static uint64_t
mean_bytes(const struct run *run, uint64_t all)
{
    return (all + run->fit.num_nodes / 2) / run->fit.num_nodes;
}

static exo_status
set_up_nodes(struct run *run, exo_err *err)
{
    exo_status st = ask_all(run, "setup", NULL, 0, err);
    exo_status all = await_all(run, st == EXO_OK ? err : NULL);
    if (st == EXO_OK)
        st = all;
    if (st == EXO_OK) {
        const exo_node_ready *first = reply_of(run, 0);
        run->step = first->step;
        run->steps_before = first->step;
        run->elapsed_before = first->elapsed;
        uint64_t bytes = 0;
        for (uint32_t r = 0; st == EXO_OK && r < run->fit.num_nodes; r++) {
            const exo_node_ready *ready = reply_of(run, r);
            bytes += ready->bytes_sent;
            if (ready->step != first->step)
                st = exo_fail(err, EXO_INVAL, "%s: node_0 is at step %" PRIu64 ", node_%u at step %" PRIu64,
                              run->checkpoint, first->step, r, ready->step);
        }
        run->bytes_sent = mean_bytes(run, bytes);
    }
    drop_futures(run);
    if (st == EXO_OK && run->step > run->fit.max_steps)
        st = exo_fail(err, EXO_INVAL, "%s: is at step %" PRIu64 ", beyond max_steps %" PRIu64, run->checkpoint,
                      run->step, run->fit.max_steps);
    return st;
}

/* --- Events --------------------------------------------------------------------------------------------------------------- */

/* Training time so far, over all parts of a resumed run, in ns. */
static uint64_t
elapsed(const struct run *run)
{
    return run->elapsed_before + (uint64_t)(exo_now(run->clock) - run->started);
}

static void
report(struct run *run, bool evaluated)
{
    if (!run->opts->progress)
        return;
    exo_progress p = run->eval;
    uint64_t left = run->fit.max_steps - run->step;
    double per_step = (double)run->fit.batch_size * run->fit.num_nodes;
    p.step = run->step;
    p.max_steps = run->fit.max_steps;
    p.train_loss = run->train_loss;
    p.lr = run->lr;
    p.samples_per_second = run->rate;
    p.elapsed = (double)elapsed(run) * 1e-9;
    p.eta = run->rate > 0 ? (double)left * per_step / run->rate : (double)NAN;
    p.bytes_sent = run->bytes_sent;
    p.evaluated = evaluated;
    run->opts->progress(run->opts->context, &p);
}

static exo_status
ask_average(struct run *run, exo_err *err)
{
    exo_status st = ask_all(run, "average", NULL, 0, err);
    exo_status all = await_all(run, st == EXO_OK ? err : NULL);
    drop_futures(run);
    return st == EXO_OK ? all : st;
}

/* Local: node 0's copy; global: the average, on node 1 at the same time where there is one. */
static exo_status
evaluate(struct run *run, exo_err *err)
{
    const bool own = false, of_average = true;
    uint32_t other = run->fit.num_nodes > 1 ? 1 : 0;
    run->evaluated = true;
    run->eval.local_loss = run->eval.global_loss = (double)NAN;
    run->eval.local_accuracy = run->eval.global_accuracy = (double)NAN;
    if (run->fit.val_count == 0)
        return EXO_OK;

    exo_status st = other ? ask_average(run, err) : EXO_OK;
    if (st == EXO_OK)
        st = ask(run, 0, "evaluate", &own, sizeof own, err);
    if (st == EXO_OK && other)
        st = ask(run, other, "evaluate", &of_average, sizeof of_average, err);
    exo_status all = await_all(run, st == EXO_OK ? err : NULL);
    if (st == EXO_OK)
        st = all;
    if (st == EXO_OK) {
        const exo_eval_reply *local = reply_of(run, 0);
        const exo_eval_reply *global = reply_of(run, other);
        run->eval.local_loss = local->loss;
        run->eval.local_accuracy = local->accuracy;
        run->eval.global_loss = global->loss;
        run->eval.global_accuracy = global->accuracy;
    }
    drop_futures(run);
    if (st != EXO_OK || !run->metrics)
        return st;
    const exo_eval_row row = {
        .step = run->step,
        .seconds = (double)elapsed(run) * 1e-9,
        .bytes_sent = run->bytes_sent,
        .local_loss = run->eval.local_loss,
        .global_loss = run->eval.global_loss,
        .local_accuracy = run->eval.local_accuracy,
        .global_accuracy = run->eval.global_accuracy,
    };
    return exo_metrics_validation(run->metrics, &row, err);
}

static exo_status
correlate(struct run *run, exo_err *err)
{
    exo_status st = ask_all(run, "correlate", NULL, 0, err);
    exo_status all = await_all(run, st == EXO_OK ? err : NULL);
    if (st == EXO_OK)
        st = all;
    if (st == EXO_OK && run->metrics)
        st = exo_metrics_correlation(run->metrics, run->step, *(const double *)reply_of(run, 0), err);
    drop_futures(run);
    return st;
}

static exo_status
checkpoint(struct run *run, exo_err *err)
{
    char folder[EXO_CHECKPOINT_PATH];
    exo_status st = run->metrics ? exo_metrics_flush(run->metrics, err) : EXO_OK;
    if (st == EXO_OK)
        st = exo_checkpoint_begin(run->folder, run->step, folder, err);
    if (st != EXO_OK)
        return st;
    exo_save_args args = {.elapsed = elapsed(run)};
    /* Nodes elsewhere have other current folders. */
    if (run->far && !realpath(folder, args.folder))
        st = exo_fail(err, EXO_IO, "%s: %s", folder, strerror(errno));
    else if (!run->far)
        memcpy(args.folder, folder, sizeof args.folder);
    if (st == EXO_OK)
        st = ask_all(run, "save", &args, sizeof args, err);
    exo_status all = await_all(run, st == EXO_OK ? err : NULL);
    drop_futures(run);
    if (st == EXO_OK)
        st = all;
    if (st == EXO_OK)
        st = exo_checkpoint_commit(run->folder, run->step, run->settings, err);
    if (st != EXO_OK)
        exo_checkpoint_abort(run->folder, run->step);
    return st;
}

static bool
is_due(uint64_t step, uint64_t interval)
{
    return interval != 0 && step % interval == 0;
}

static exo_status
run_events(struct run *run, exo_err *err)
{
    const exo_fit_opts *opts = run->opts;
    bool last = run->step == run->fit.max_steps;
    exo_status st = EXO_OK;
    if (is_due(run->step, opts->val_interval) || last) {
        st = evaluate(run, err);
        if (st == EXO_OK)
            report(run, run->fit.val_count > 0);
    }
    if (st == EXO_OK && is_due(run->step, opts->correlation_interval))
        st = correlate(run, err);
    if (st == EXO_OK && opts->stop && *opts->stop && !last)
        run->stopped = true;
    bool due = run->step > 0 && is_due(run->step, opts->checkpoint_interval);
    if (st == EXO_OK && opts->save_dir && (due || run->stopped))
        st = checkpoint(run, err);
    return st;
}

/* --- Training ------------------------------------------------------------------------------------------------------------- */

static uint64_t
next_due(uint64_t step, uint64_t interval, uint64_t limit)
{
    if (interval == 0)
        return limit;
    uint64_t next = step - step % interval + interval;
    return next < limit ? next : limit;
}

/* Where the next segment ends: at the next event, or after about SEGMENT. */
static uint64_t
segment_end(const struct run *run)
{
    const exo_fit_opts *opts = run->opts;
    uint64_t end = run->fit.max_steps;
    end = next_due(run->step, opts->val_interval, end);
    end = next_due(run->step, opts->correlation_interval, end);
    end = next_due(run->step, opts->checkpoint_interval, end);
    uint64_t steps = run->step_time > 0 ? (uint64_t)(SEGMENT / run->step_time) : 1;
    steps = steps < 1 ? 1 : steps > 10000 ? 10000 : steps;
    return end - run->step > steps ? run->step + steps : end;
}

static exo_status
record_segment(struct run *run, exo_time took, exo_err *err)
{
    const exo_train_reply *first = reply_of(run, 0);
    uint64_t per_step = (uint64_t)run->fit.batch_size * run->fit.num_nodes;
    uint64_t bytes = 0;
    for (uint32_t r = 0; r < run->fit.num_nodes; r++)
        bytes += ((const exo_train_reply *)reply_of(run, r))->bytes_sent;
    run->bytes_sent = mean_bytes(run, bytes);

    exo_status st = EXO_OK;
    for (size_t i = 0; i < first->num_steps && st == EXO_OK; i++) {
        run->step++;
        run->train_loss = first->steps[i].loss;
        run->lr = first->steps[i].lr;
        if (run->metrics)
            st = exo_metrics_train(run->metrics, run->step, run->step * per_step, (double)run->train_loss,
                                   (double)run->lr, err);
    }
    run->trained += took;
    run->step_time = first->num_steps ? took / (exo_time)first->num_steps : 0;
    double rate = took > 0 ? (double)(first->num_steps * per_step) / ((double)took * 1e-9) : 0;
    run->rate = run->rate > 0 ? 0.8 * run->rate + 0.2 * rate : rate;
    run->evaluated = false;
    return st;
}

static exo_status
train_segment(struct run *run, exo_err *err)
{
    uint64_t end = segment_end(run);
    exo_time before = exo_now(run->clock);
    exo_status st = ask_all(run, "train", &end, sizeof end, err);
    exo_status all = await_all(run, st == EXO_OK ? err : NULL);
    if (st == EXO_OK)
        st = all;
    if (st == EXO_OK)
        st = record_segment(run, exo_now(run->clock) - before, err);
    drop_futures(run);
    if (st == EXO_OK)
        report(run, false);
    return st;
}

static exo_status
train_to_the_end(struct run *run, exo_err *err)
{
    exo_status st = EXO_OK;
    report(run, false);
    if (run->step == 0)
        st = run_events(run, err);
    while (st == EXO_OK && !run->stopped && run->step < run->fit.max_steps) {
        st = train_segment(run, err);
        if (st == EXO_OK)
            st = run_events(run, err);
    }
    if (st == EXO_OK && !run->stopped && !run->evaluated)
        st = evaluate(run, err); /* resumed at the end: there was no step to evaluate after */
    return st;
}

/* --- The result ------------------------------------------------------------------------------------------------------------- */

static exo_status
save_model(const struct run *run, exo_params *params, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH + 32];
    snprintf(path, sizeof path, "%s/model.safetensors", run->folder);
    exo_state *state = NULL;
    exo_status st = exo_state_new(&state, err);
    if (st != EXO_OK)
        return st;
    for (size_t i = 0; i < exo_params_count(params); i++) {
        const exo_param_info *info = exo_params_info(params, i);
        float *values = info->is_buffer ? exo_params_buffers(params) : exo_params_values(params);
        exo_state_add_shaped(state, info->name, EXO_F32, values + info->offset, info->num_dims, info->dims);
    }
    exo_state_metadata(state, "model", exo_model_name(run->fit.model));
    exo_state_metadata(state, "strategy", run->strategy_name);
    st = exo_state_save(state, path, err);
    exo_state_free(&state);
    return st;
}

static exo_status
take_average(struct run *run, exo_params *params, char sha256[65], exo_err *err)
{
    exo_status st = ask_average(run, err);
    if (st == EXO_OK)
        st = ask(run, 0, "result", NULL, 0, err);
    exo_status all = await_all(run, st == EXO_OK ? err : NULL);
    if (st == EXO_OK)
        st = all;
    if (st == EXO_OK) {
        const float *numbers = reply_of(run, 0);
        size_t numel = exo_params_numel(params), buffers = exo_params_buffer_numel(params);
        memcpy(exo_params_values(params), numbers, numel * sizeof *numbers);
        if (buffers)
            memcpy(exo_params_buffers(params), numbers + numel, buffers * sizeof *numbers);
        exo_sha256(numbers, (numel + buffers) * sizeof *numbers, sha256);
    }
    drop_futures(run);
    return st;
}

static exo_status
make_result(struct run *run, exo_fit_result *result, exo_err *err)
{
    exo_params *params = NULL;
    exo_status st = exo_model_params(run->fit.model, run->fit.seed, &params, err);
    if (st == EXO_OK)
        st = take_average(run, params, result->sha256, err);
    if (st == EXO_OK && run->opts->save_dir)
        st = save_model(run, params, err);
    if (st == EXO_OK && run->metrics)
        st = exo_metrics_flush(run->metrics, err);
    if (st != EXO_OK) {
        exo_params_free(&params);
        return st;
    }
    double samples = (double)(run->step - run->steps_before) * (double)run->fit.batch_size * run->fit.num_nodes;
    result->params = params;
    result->steps = run->step;
    result->local_loss = run->eval.local_loss;
    result->global_loss = run->eval.global_loss;
    result->local_accuracy = run->eval.local_accuracy;
    result->global_accuracy = run->eval.global_accuracy;
    result->seconds = (double)elapsed(run) * 1e-9;
    result->train_seconds = (double)run->trained * 1e-9;
    result->samples_per_second = run->trained > 0 ? samples / result->train_seconds : 0;
    result->bytes_sent = run->bytes_sent;
    return EXO_OK;
}

/* --- From beginning to end ----------------------------------------------------------------------------------------------- */

static void
release_run(struct run *run)
{
    exo_metrics_close(&run->metrics);
    if (run->lock >= 0)
        close(run->lock);
    for (uint32_t r = 0; run->strategy && r < run->fit.num_nodes; r++)
        exo_strategy_free(&run->strategy[r]);
    for (uint32_t r = 0; run->train && r < run->fit.num_nodes; r++)
        exo_dataset_drop(&run->train[r]);
    exo_dataset_drop(&run->fit.val);
    exo_comm_drop(&run->comm);
    exo_comm_drop(&run->side);
    exo_tape_pool_release(&run->fit.train_tapes);
    exo_tape_pool_release(&run->fit.eval_tapes);
    exo_model_drop(&run->fit.model);
    exo_free(run->specs);
    exo_free(run->nodes);
    exo_free(run->futures);
    exo_free(run->pending);
    exo_free(run->pending_ranks);
    exo_free(run->strategy);
    exo_free(run->train);
    exo_free(run->val_order);
    exo_free(run->options_text);
    exo_free(run->settings);
    exo_free(run);
}

/* Stops the nodes and frees everything. Nodes that do not stop keep what they use: it is leaked, not pulled away. */
static exo_status
close_run(struct run *run, exo_err *err)
{
    if (run->far) {
        drop_futures(run);
        for (uint32_t r = 0; run->nodes && r < run->fit.num_nodes; r++)
            if (run->nodes[r].id)
                exo_stop(run->runtime, run->nodes[r], false, NULL);
    } else if (run->runtime) {
        drop_futures(run);
        exo_status st = exo_runtime_close(&run->runtime, exo_deadline(run->clock, CLOSE_GRACE), err);
        if (st != EXO_OK)
            return st;
    }
    release_run(run);
    return EXO_OK;
}

static exo_status
prepare(struct run *run, exo_dataset *train, exo_dataset *val, exo_config *options, exo_err *err)
{
    exo_status st = allocate(run, err);
    if (st == EXO_OK)
        st = make_strategies(run, options, err);
    if (st == EXO_OK)
        st = make_data(run, train, val, err);
    if (st == EXO_OK)
        st = plan_steps(run, err);
    if (st == EXO_OK)
        st = plan_evaluation(run, err);
    if (st == EXO_OK)
        st = plan_minibatch(run, err);
    if (st == EXO_OK)
        st = prepare_folder(run, err);
    if (st == EXO_OK)
        st = make_nodes(run, err);
    if (st == EXO_OK)
        st = set_up_nodes(run, err);
    if (st == EXO_OK && run->folder[0])
        st = exo_metrics_open(&run->metrics, run->folder, run->fit.resume_from != NULL, run->step, err);
    return st;
}

exo_status
exo_fit_run(exo_model *model, exo_dataset *train, exo_dataset *val, const char *strategy, exo_config *options,
            const exo_fit_opts *opts, const exo_fit_far *far, exo_fit_result *result, exo_err *err)
{
    exo_err unused = {0};
    if (!err)
        err = &unused; /* reasons are passed on between nodes */
    exo_status st = exo_fit_opts_check(opts, err);
    if (st != EXO_OK)
        return st;
    struct run *run = exo_calloc(1, sizeof *run);
    if (!run)
        return exo_fail(err, EXO_NOMEM, "no memory for a run");
    *run = (struct run){
        .fit = {.model = exo_model_hold(model),
                .batch_size = opts->batch_size,
                .shuffle = opts->shuffle,
                .autocast = opts->autocast,
                .seed = opts->seed,
                .num_nodes = opts->num_nodes,
                .timeout = opts->timeout ? opts->timeout : DEFAULT_TIMEOUT},
        .opts = opts,
        .far = far,
        .strategy_name = strategy,
        .clock = exo_clock_real(),
        .lock = -1,
    };
    st = prepare(run, train, val, options, err);
    run->started = exo_now(run->clock);
    if (st == EXO_OK)
        st = train_to_the_end(run, err);
    if (st == EXO_OK && run->stopped)
        st = exo_fail(err, EXO_CANCELLED, "stopped after step %" PRIu64 " of %" PRIu64 "%s%s", run->step,
                      run->fit.max_steps, run->folder[0] ? "; a checkpoint is in " : "", run->folder);
    else if (st == EXO_OK)
        st = make_result(run, result, err);

    exo_err close_err = {0};
    exo_status closed = close_run(run, &close_err);
    if (closed != EXO_OK && st == EXO_OK) {
        exo_params_free(&result->params);
        st = exo_fail(err, closed, "%s", close_err.text);
    }
    return st;
}
