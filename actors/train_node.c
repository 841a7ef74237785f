/* TrainNode: see train_node.h. Everything in struct train_node belongs to the node's compute lane. */
#include "actors/train_node.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>
#include <exogym/state.h>

#include "actor/hooks.h"
#include "actor/local_args.h"
#include "actors/fit_opts.h"
#include "actors/node_host.h"
#include "actors/node_look.h"
#include "base/parallel.h"
#include "base/traffic.h"
#include "comm/edge.h"

struct train_node {
    exo_fit *fit;
    exo_node_host *host; /* NULL: what follows and the fit are the trainer's; else they are its */
    exo_comm *comm, *side;
    exo_strategy *strategy; /* the trainer's */
    exo_params *params;
    exo_params *average; /* made when first asked for */
    exo_group *group, *side_group;
    exo_dataset *data; /* held */
    exo_loader *loader;
    exo_batch eval_batch;
    exo_node node;
    exo_pace *pace, own_pace; /* how its time passes */
    exo_time step_cost;
    size_t ready;          /* elements whose gradients this step's backward has yielded */
    uint64_t bytes_before; /* sent before the checkpoint that this run went on from */
    bool begun;            /* set up, or tried to be                                */
    bool averaged;         /* `average` holds the mean of all copies                */
    bool within;           /* the inner step is taken within backward               */
    bool warned;           /* of a loss that is not finite                          */
};

/* A node that cannot go on says so to the others, who would wait for it in vain. PEER_LOST came from them. */
static exo_status
give_up(struct train_node *n, exo_status st, const exo_err *err)
{
    if (st != EXO_OK && st != EXO_PEER_LOST && n->fit) {
        exo_comm_fail(n->comm, n->node.rank, err ? err->text : exo_status_text(st));
        exo_comm_fail(n->side, n->node.rank, err ? err->text : exo_status_text(st));
    }
    return st;
}

/* A method of a node that is set up. The caller may be any process of the cluster: a call that is refused changes nothing, and ends no
 * collective. */
static exo_status
check_call(const struct train_node *n, const char *method, exo_err *err)
{
    if (!n->loader)
        return exo_fail(err, EXO_INVAL, "%s: node_%u is not set up", method, n->node.rank);
    return EXO_OK;
}

static void
train_node_stop(void *self)
{
    struct train_node *n = self;
    exo_loader_close(&n->loader);
    exo_batch_release(&n->eval_batch);
    exo_dataset_drop(&n->data);
    exo_optim_free(&n->node.optim);
    exo_group_close(&n->group);
    exo_group_close(&n->side_group);
    exo_params_free(&n->average);
    exo_params_free(&n->params);
    exo_pace_release(&n->own_pace);
    exo_node_host_close(&n->host);
}

static exo_status
open_place(struct train_node *n, exo_err *err)
{
    exo_fit *fit = n->fit;
    char name[32];
    snprintf(name, sizeof name, "node_%u", n->node.rank);
    exo_status st = exo_group_open(&n->group, n->comm, n->node.rank, name, err);
    if (st == EXO_OK)
        st = exo_group_open(&n->side_group, n->side, n->node.rank, name, err);
    if (st != EXO_OK)
        return st;
    exo_group_set_timeout(n->group, fit->timeout);
    exo_group_set_timeout(n->side_group, fit->timeout);
    return EXO_OK;
}

static exo_status
take_place(struct train_node *n, const exo_node_spec *spec, exo_err *err)
{
    exo_fit *fit = spec->fit;
    n->fit = fit;
    n->comm = spec->comm;
    n->side = spec->side;
    n->strategy = spec->strategy;
    n->data = exo_dataset_hold(spec->train);
    n->node.rank = spec->rank;
    n->step_cost = spec->step_cost;
    n->pace = spec->pace ? spec->pace : &n->own_pace;
    n->within = exo_fit_steps_within(n->strategy, fit->num_nodes, fit->batch_size, fit->minibatch_size);

    exo_status st = spec->pace ? EXO_OK : exo_pace_init(&n->own_pace, NULL, 0, spec->speed, err);
    if (st == EXO_OK)
        st = open_place(n, err);
    if (st == EXO_OK && n->within)
        st = exo_model_values(fit->model, fit->seed, &n->params, err);
    else if (st == EXO_OK)
        st = exo_model_params(fit->model, fit->seed, &n->params, err);
    if (st != EXO_OK) {
        give_up(n, st, err);
        train_node_stop(n); /* a node whose start failed is never stopped */
        return st;
    }
    size_t numel = exo_params_numel(n->params);
    size_t statistics = exo_params_buffer_numel(n->params) - exo_params_frozen_numel(n->params);
    n->node = (exo_node){
        .rank = spec->rank,
        .num_nodes = fit->num_nodes,
        .max_steps = fit->max_steps,
        .seed = fit->seed,
        .numel = numel,
        .params = exo_host_array(EXO_F32, exo_params_values(n->params), numel),
        .grads = exo_host_array(EXO_F32, exo_params_grads(n->params), n->within ? 0 : numel),
        .buffers = exo_host_array(EXO_F32, exo_params_buffers(n->params), statistics),
        .buffer_numel = statistics,
        .model = n->params,
        .infos = exo_params_info(n->params, 0),
        .num_infos = exo_params_count(n->params),
        .group = n->group,
    };
    return EXO_OK;
}

static exo_status
train_node_start(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    const exo_node_spec *spec = exo_local_args_get(args, sizeof *spec);
    (void)call;
    return spec ? take_place(self, spec, err)
                : exo_fail(err, EXO_INVAL, "start: a node of this process is started with its place");
}

static exo_status
far_node_start(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    struct train_node *n = self;
    exo_node_spec spec;
    ProtobufCMessage *message = NULL;
    exo_status st = exo_args_decode(&exo_train_node_protocol.start, args, &message, err);
    if (st == EXO_OK)
        st = exo_node_host_open(&n->host, call, ((const Exo__Train__NodeStart *)message)->document, &spec, err);
    exo_args_free(&message);
    return st == EXO_OK ? take_place(n, &spec, err) : st;
}

/* --- setup ------------------------------------------------------------------------------------------------------- */

/* Everything of this node that outlives a restart. The data's position and every random stream follow from the step. */
static void
list_state(struct train_node *n, exo_state *state, uint64_t *elapsed, uint64_t *bytes)
{
    exo_state_prefix(state, "model");
    for (size_t i = 0; i < exo_params_count(n->params); i++) {
        const exo_param_info *info = exo_params_info(n->params, i);
        exo_state_add_shaped(state, info->name, EXO_F32, exo_params_at(n->params, i), info->num_dims, info->dims);
    }
    exo_state_prefix(state, NULL);
    exo_strategy_state(n->strategy, &n->node, state);
    exo_state_prefix(state, "run");
    exo_state_add_u64(state, "step", &n->node.step);
    exo_state_add_u64(state, "elapsed_ns", elapsed);
    exo_state_add_u64(state, "bytes_sent", bytes);
    exo_state_prefix(state, NULL);
}

static exo_status
load_checkpoint(struct train_node *n, uint64_t *elapsed, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH];
    exo_status st = exo_checkpoint_node_path(path, n->fit->resume_from, n->node.rank, err);
    if (st != EXO_OK)
        return st;
    exo_state *state = NULL;
    st = exo_state_new(&state, err);
    if (st == EXO_OK) {
        list_state(n, state, elapsed, &n->bytes_before);
        st = exo_state_load(state, path, err);
    }
    exo_state_free(&state);
    return st;
}

/* Statistics and what is frozen. */
static exo_array
all_buffers(exo_params *params)
{
    return exo_host_array(EXO_F32, exo_params_buffers(params), exo_params_buffer_numel(params));
}

static exo_status
agree_on_parameters(struct train_node *n, exo_err *err)
{
    exo_status st = exo_broadcast(n->side_group, n->node.params, 0, err);
    return st == EXO_OK ? exo_broadcast(n->side_group, all_buffers(n->params), 0, err) : st;
}

static exo_status
open_loader(struct train_node *n, exo_err *err)
{
    const exo_fit *fit = n->fit;
    const exo_loader_opts opts = {
        .num_nodes = fit->shared_data ? fit->num_nodes : 1,
        .rank = fit->shared_data ? n->node.rank : 0,
        .shuffle = fit->shuffle,
        /* Nodes with data of their own see it in orders of their own. */
        .seed = fit->shared_data ? fit->seed : fit->seed + n->node.rank,
        .batch_size = fit->batch_size,
        .first = n->node.step,
    };
    return exo_loader_open(&n->loader, n->data, &opts, err);
}

static exo_status
setup(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)args;
    struct train_node *n = self;
    Exo__Train__NodeReady ready = EXO__TRAIN__NODE_READY__INIT;
    if (n->begun)
        return exo_fail(err, EXO_INVAL, "setup: node_%u is set up, or could not be", n->node.rank);
    n->begun = true;

    exo_status st = n->host ? exo_node_host_meet(n->host, err) : EXO_OK;
    if (st == EXO_OK)
        st = agree_on_parameters(n, err);
    if (st == EXO_OK)
        st = exo_strategy_start(n->strategy, &n->node, err);
    if (st == EXO_OK && n->fit->resume_from)
        st = load_checkpoint(n, &ready.elapsed, err);
    if (st == EXO_OK)
        st = open_loader(n, err);
    if (st == EXO_OK) {
        ready.step = n->node.step;
        ready.bytes_sent = n->bytes_before;
        ready.epoch_batches = exo_loader_epoch_batches(n->loader);
        st = exo_protocol_pack(reply, &ready.base, err);
    }
    return give_up(n, st, err);
}

/* --- train --------------------------------------------------------------------------------------------------------- */

/* Rows [first, first + size) of a batch, not copied. */
static exo_batch
batch_rows(const exo_batch *batch, size_t first, size_t size)
{
    exo_batch rows = *batch;
    rows.size = size;
    for (size_t i = 0; i < batch->num_fields; i++) {
        size_t bytes = exo_dtype_size(batch->fields[i].dtype);
        for (size_t d = 0; d < batch->fields[i].num_dims; d++)
            bytes *= batch->fields[i].dims[d];
        rows.data[i] = (char *)batch->data[i] + first * bytes;
    }
    return rows;
}

/* How a step's declared cost is spread: each minibatch costs the same, forward is a third of it, and backward goes on with the elements
 * whose gradients it has yielded. */
static double
part_done(const struct train_node *n)
{
    double minibatches = (double)(n->fit->batch_size / n->fit->minibatch_size);
    double backward = (double)n->ready / (double)n->node.numel;
    return (minibatches - 1 + (1 + 2 * backward) / 3) / minibatches;
}

/* exo_grad_ready: backward of the last minibatch has these gradients. */
static exo_status
gradient_ready(void *context, size_t first, size_t count, exo_err *err)
{
    struct train_node *n = context;
    n->ready += count;
    exo_pace_reach(n->pace, part_done(n));
    return exo_strategy_gradient_ready(n->strategy, &n->node, first, count, err);
}

/* One forward and backward pass; adds to the gradients, or takes the inner step, and adds to the loss. */
static exo_status
run_minibatch(struct train_node *n, exo_tape *tape, const exo_batch *batch, size_t minibatch, double *loss,
              exo_err *err)
{
    size_t minibatches = n->fit->batch_size / n->fit->minibatch_size;
    const exo_grad_sink sink = n->within ? exo_node_inner_sink(&n->node) : (exo_grad_sink){0};
    const exo_grad_ready ready = {.tell = gradient_ready, .context = n};
    bool tells = !n->within && minibatch + 1 == minibatches && exo_strategy_awaits_gradients(n->strategy);
    const exo_pass pass = {
        .train = true,
        .grad = true,
        .autocast = n->fit->autocast,
        .seed = n->fit->seed,
        .node = n->node.rank,
        .step = n->node.step * minibatches + minibatch,
        .sink = n->within ? &sink : NULL,
        .ready = tells ? &ready : NULL,
    };
    exo_tape_begin(tape, n->params, &pass);
    exo_tensor *out = exo_model_loss(n->fit->model, tape, batch);
    if (!out) {
        exo_status st = exo_tape_error(tape, err);
        return st != EXO_OK ? st : exo_fail(err, EXO_FAILED, "the model gave no loss and no reason");
    }
    *loss += (double)exo_tensor_item(out);
    return exo_tape_backward(tape, out, 1.0f / (float)minibatches, err);
}

/* The gradients of this step's batch: the mean over its minibatches. Or, where it is taken within backward, the inner step. */
static exo_status
compute_gradients(struct train_node *n, const exo_batch *batch, float *loss, exo_err *err)
{
    exo_tape *tape = NULL;
    exo_status st = exo_tape_pool_take(&n->fit->train_tapes, &tape, err);
    if (st != EXO_OK)
        return st;
    size_t minibatches = n->fit->batch_size / n->fit->minibatch_size;
    double sum = 0;
    n->ready = 0;
    if (!n->within)
        exo_params_zero_grads(n->params);
    for (size_t m = 0; st == EXO_OK && m < minibatches; m++) {
        exo_batch rows = batch_rows(batch, m * n->fit->minibatch_size, n->fit->minibatch_size);
        st = run_minibatch(n, tape, &rows, m, &sum, err);
    }
    exo_tape_pool_give(&n->fit->train_tapes, &tape);
    *loss = (float)(sum / (double)minibatches);
    return st;
}

static exo_status
next_batch(struct train_node *n, const exo_batch **batch, exo_err *err)
{
    exo_compute_pause();
    exo_status st = exo_loader_next(n->loader, n->fit->timeout, batch, err);
    exo_compute_resume();
    return st;
}

static exo_status
one_step(struct train_node *n, float *loss, float *lr, exo_err *err)
{
    const exo_batch *batch = NULL;
    bool declared = n->step_cost >= 0; /* of all that is computed in a step */
    exo_status st = next_batch(n, &batch, err);
    exo_pace_phase(n->pace, "step", n->step_cost);
    if (st == EXO_OK)
        st = compute_gradients(n, batch, loss, err);
    exo_pace_phase(n->pace, "update", declared ? 0 : -1);
    if (st == EXO_OK)
        st = exo_strategy_step(n->strategy, &n->node, err);
    exo_pace_phase(n->pace, NULL, -1);
    if (st != EXO_OK)
        return st;
    *lr = n->node.lr;
    n->node.step++;
    if (!isfinite(*loss) && !n->warned) {
        n->warned = true;
        EXO_LOG(WARN, TRAIN, "node=%u step=%llu loss=%g the loss is not finite; a lower learning rate may help",
                n->node.rank, (unsigned long long)n->node.step, (double)*loss);
    }
    return EXO_OK;
}

/* What `steps` steps came to. */
static exo_status
pack_trained(const struct train_node *n, float *loss, float *lr, size_t steps, exo_payload *reply, exo_err *err)
{
    const exo_comm_stats stats = exo_group_stats(n->group);
    const exo_traffic traffic = exo_group_traffic(n->group);
    uint64_t columns[EXO_TRAFFIC_COLUMNS];
    for (size_t i = 0; i < EXO_TRAFFIC_COLUMNS; i++)
        columns[i] = exo_traffic_get(&traffic, i);
    Exo__Train__Trained out = EXO__TRAIN__TRAINED__INIT;
    out.bytes_sent = n->bytes_before + stats.bytes_sent;
    out.waited = stats.waited;
    out.traffic = columns;
    out.n_traffic = EXO_TRAFFIC_COLUMNS;
    out.loss = loss;
    out.lr = lr;
    out.n_loss = out.n_lr = steps;
    return exo_protocol_pack(reply, &out.base, err);
}

static exo_status
train(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    struct train_node *n = self;
    uint64_t until = ((const Exo__Train__Train *)args)->until;
    exo_status st = check_call(n, "train", err);
    if (st != EXO_OK)
        return st;
    if (until > n->fit->max_steps)
        return exo_fail(err, EXO_INVAL, "train: until: step %llu is beyond the last one, %llu",
                        (unsigned long long)until, (unsigned long long)n->fit->max_steps);
    uint64_t count = until > n->node.step ? until - n->node.step : 0, done = 0;

    /* Losses, then learning rates, as the reply has them. */
    float *records = count <= PTRDIFF_MAX / (2 * sizeof *records) ? exo_calloc(2 * count + 1, sizeof *records) : NULL;
    if (!records)
        return give_up(
            n, exo_fail(err, EXO_NOMEM, "no memory for the records of %llu steps", (unsigned long long)count), err);
    exo_pace_enter(n->pace);
    exo_compute_enter();
    for (; st == EXO_OK && done < count; done += st == EXO_OK) {
        if (exo_call_cancelled(call))
            st = exo_fail(err, EXO_CANCELLED, "node_%u was told to stop", n->node.rank);
        else
            st = one_step(n, records + done, records + count + done, err);
    }
    exo_compute_leave();
    give_up(n, st, err); /* before the baton goes to those who wait for it, and time to their deadline */
    exo_pace_leave(n->pace);
    if (st == EXO_OK)
        st = give_up(n, pack_trained(n, records, records + count, done, reply, err), err);
    exo_free(records);
    return st;
}

/* --- average, evaluate, correlate ------------------------------------------------------------------------------------ */

static exo_status
need_average(struct train_node *n, exo_err *err)
{
    return n->average ? EXO_OK : exo_model_copy(n->fit->model, &n->average, err);
}

static exo_array
average_values(const struct train_node *n)
{
    return exo_host_array(EXO_F32, exo_params_values(n->average), n->node.numel);
}

/* Parameters and statistics alike: the average of models whose batch-norm statistics differ has the average statistics. What is frozen is
 * equal on all nodes, and its average may be so but for rounding. */
static exo_status
average_copies(struct train_node *n, exo_err *err)
{
    exo_status st = need_average(n, err);
    if (st != EXO_OK)
        return st;
    const exo_array values = average_values(n), buffers = all_buffers(n->average);
    exo_compute_enter();
    exo_vec_copy(values, n->node.params);
    exo_vec_copy(buffers, all_buffers(n->params));
    st = exo_all_reduce(n->side_group, values, EXO_MEAN, err);
    if (st == EXO_OK)
        st = exo_all_reduce(n->side_group, exo_array_part(buffers, 0, n->node.buffer_numel), EXO_MEAN, err);
    exo_comm_warm(n->comm, n->node.rank, n->node.numel);
    exo_compute_leave();
    return st;
}

static exo_status
average(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)args;
    (void)reply;
    struct train_node *n = self;
    exo_status st = check_call(n, "average", err);
    if (st != EXO_OK)
        return st;
    st = average_copies(n, err);
    n->averaged = n->averaged || st == EXO_OK;
    return give_up(n, st, err);
}

static exo_status
result(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)args;
    struct train_node *n = self;
    size_t numel = n->node.numel, buffers = exo_params_buffer_numel(n->params);
    exo_status st = check_call(n, "result", err);
    if (st == EXO_OK && !n->averaged)
        st = exo_fail(err, EXO_INVAL, "result: node_%u has no average yet", n->node.rank);
    if (st != EXO_OK)
        return st;
    float *copy = exo_calloc(numel + buffers, sizeof *copy);
    if (!copy)
        return exo_fail(err, EXO_NOMEM, "no memory for the averaged model");
    memcpy(copy, exo_params_values(n->average), numel * sizeof *copy);
    if (buffers)
        memcpy(copy + numel, exo_params_buffers(n->average), buffers * sizeof *copy);
    *reply = (exo_payload){.data = copy, .size = (numel + buffers) * sizeof *copy, .release = exo_free};
    return EXO_OK;
}

/* Sums over the batches of an evaluation, and over how much each of them is. */
struct eval_sums {
    double loss, hits;
    size_t weighed, judged;
};

/* Adds one batch's figures, weighted by what they are means of: its samples, unless the model says another count. */
static exo_status
evaluate_batch(struct train_node *n, exo_tape *tape, exo_params *params, struct eval_sums *sums, exo_err *err)
{
    size_t weight = n->eval_batch.size;
    const exo_pass pass = {.autocast = n->fit->autocast, .seed = n->fit->seed, .node = n->node.rank};
    exo_tape_begin(tape, params, &pass);
    exo_tensor *out = exo_model_loss(n->fit->model, tape, &n->eval_batch);
    if (!out) {
        exo_status st = exo_tape_error(tape, err);
        return st != EXO_OK ? st : exo_fail(err, EXO_FAILED, "the model gave no loss and no reason");
    }
    for (size_t i = 0; i < exo_tape_num_metrics(tape); i++) {
        double mean = 0;
        size_t count = 0;
        const char *name = exo_tape_metric_at(tape, i, &mean, &count);
        if (strcmp(name, "loss") == 0) {
            weight = count;
        } else if (strcmp(name, "accuracy") == 0) {
            sums->hits += mean * (double)count;
            sums->judged += count;
        }
    }
    if (weight > 0) /* a loss over nothing is no figure */
        sums->loss += (double)exo_tensor_item(out) * (double)weight;
    sums->weighed += weight;
    return EXO_OK;
}

/* Loss and accuracy over the run's evaluation samples: the same ones every time, in eval mode. */
static exo_status
evaluate_params(struct train_node *n, exo_params *params, Exo__Train__Figures *out, exo_err *err)
{
    const exo_fit *fit = n->fit;
    size_t batch = fit->minibatch_size < fit->val_count ? fit->minibatch_size : fit->val_count;
    exo_tape *tape = NULL;
    struct eval_sums sums = {0};

    exo_status st = n->eval_batch.data[0] ? EXO_OK : exo_batch_init(&n->eval_batch, fit->val, batch, err);
    if (st == EXO_OK)
        st = exo_tape_pool_take(&n->fit->eval_tapes, &tape, err);
    const exo_sample_key key = {.seed = fit->seed};
    for (size_t first = 0; st == EXO_OK && first < fit->val_count; first += batch) {
        size_t count = fit->val_count - first < batch ? fit->val_count - first : batch;
        st = exo_batch_read(&n->eval_batch, fit->val, fit->val_order + first, count, &key, err);
        if (st == EXO_OK)
            st = evaluate_batch(n, tape, params, &sums, err);
    }
    exo_tape_pool_give(&n->fit->eval_tapes, &tape);
    out->loss = sums.weighed ? sums.loss / (double)sums.weighed : 0.0;
    out->accuracy = sums.judged ? sums.hits / (double)sums.judged : (double)NAN;
    return st;
}

static exo_status
evaluate(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    struct train_node *n = self;
    bool of_average = ((const Exo__Train__Evaluate *)args)->copy == EXO__TRAIN__COPY__AVERAGE;
    Exo__Train__Figures out = EXO__TRAIN__FIGURES__INIT;
    exo_status st = check_call(n, "evaluate", err);
    if (st != EXO_OK)
        return st;
    if (n->fit->val_count == 0)
        return exo_fail(err, EXO_INVAL, "evaluate: the run has no data for it");
    if (of_average && !n->averaged)
        return exo_fail(err, EXO_INVAL, "evaluate: copy: node_%u has no average yet", n->node.rank);
    exo_compute_enter();
    st = evaluate_params(n, of_average ? n->average : n->params, &out, err);
    exo_compute_leave();
    if (st == EXO_OK)
        st = exo_protocol_pack(reply, &out.base, err);
    return give_up(n, st, err);
}

/* Mean over node pairs of Pearson's correlation of the flat parameters. With z_i the centred parameters of node i scaled to
 * length 1, r_ij = z_i . z_j, and the sum over all pairs follows from the length of the sum: |sum z|^2 = N + 2 sum r_ij. */
static exo_status
correlate_copies(struct train_node *n, double *out, exo_err *err)
{
    exo_status st = need_average(n, err);
    if (st != EXO_OK)
        return st;
    const exo_array x = n->node.params, z = average_values(n);
    double sum = 0, squares = 0, length = 0;
    st = exo_vec_sum(x, &sum, err);
    double mean = x.count ? sum / (double)x.count : 0;
    if (st == EXO_OK)
        st = exo_vec_sum_squares(x, mean, &squares, err);
    if (st == EXO_OK) {
        exo_vec_standardize(z, x, mean, squares > 0 ? 1.0 / sqrt(squares) : 0);
        st = exo_all_reduce(n->side_group, z, EXO_SUM, err);
    }
    if (st == EXO_OK)
        st = exo_vec_sum_squares(z, 0, &length, err);
    if (st != EXO_OK)
        return st;
    double nodes = (double)n->node.num_nodes;
    *out = nodes > 1 ? (length - nodes) / (nodes * (nodes - 1)) : 1.0;
    return EXO_OK;
}

static exo_status
correlate(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)args;
    struct train_node *n = self;
    Exo__Train__Correlation out = EXO__TRAIN__CORRELATION__INIT;
    exo_status st = check_call(n, "correlate", err);
    if (st != EXO_OK)
        return st;
    n->averaged = false; /* what it held is overwritten */
    st = correlate_copies(n, &out.mean, err);
    if (st == EXO_OK)
        st = exo_protocol_pack(reply, &out.base, err);
    return give_up(n, st, err);
}

/* --- save ------------------------------------------------------------------------------------------------------------ */

static exo_status
save(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    struct train_node *n = self;
    const Exo__Train__Save *to = args;
    Exo__Train__Saved out = EXO__TRAIN__SAVED__INIT;
    char sha256[65] = "";
    char folder[EXO_CHECKPOINT_PATH], path[EXO_CHECKPOINT_PATH];
    exo_state *state = NULL;
    exo_status st = check_call(n, "save", err);
    if (st == EXO_OK &&
        (to->folder.len == 0 || to->folder.len >= sizeof folder || memchr(to->folder.data, 0, to->folder.len)))
        st = exo_fail(err, EXO_INVAL, "save: folder: it is no path");
    if (st != EXO_OK)
        return st;
    memcpy(folder, to->folder.data, to->folder.len);
    folder[to->folder.len] = '\0';
    uint64_t elapsed = to->elapsed;
    uint64_t bytes = n->bytes_before + exo_group_stats(n->group).bytes_sent;

    st = exo_checkpoint_node_path(path, folder, n->node.rank, err);
    if (st == EXO_OK)
        st = exo_state_new(&state, err);
    if (st == EXO_OK) {
        list_state(n, state, &elapsed, &bytes);
        st = exo_state_save_hashed(state, path, sha256, err);
    }
    exo_state_free(&state);
    out.sha256 = sha256;
    if (st == EXO_OK)
        st = exo_protocol_pack(reply, &out.base, err);
    /* The trainer decides what a checkpoint that cannot be written means: the node itself is well. */
    return st;
}

/* --- mail ------------------------------------------------------------------------------------------------------------ */

static exo_status
change(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)reply;
    return exo_node_host_change(((struct train_node *)self)->host, ((const Exo__Train__NodeChange *)args)->graph, err);
}

static exo_status
deliver(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    struct train_node *n = self;
    exo_payload payload;
    (void)args;
    (void)reply;
    exo_call_take_args(call, &payload);
    exo_status st = exo_node_host_deliver(n->host, &payload, exo_call_node(call), err);
    exo_payload_release(&payload);
    return st == EXO_OK ? st : exo_fail_in(err, st, "deliver");
}

static exo_status
waits(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    const struct train_node *n = self;
    const Exo__Train__NodeAsk *ask = args;
    exo_node_look look;
    (void)call;
    if (ask->to >= n->fit->num_nodes)
        return exo_fail(err, EXO_INVAL, "waits: to: %u is no node of the run", ask->to);
    exo_status st = exo_node_look_at(&look, n->comm, n->side, n->node.rank, n->fit->num_nodes,
                                     &(exo_node_ask){.of = ask->comm, .to = ask->to}, err);
    return st == EXO_OK ? exo_node_look_pack(reply, &look, err) : st;
}

static exo_status
abandon(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    struct train_node *n = self;
    const Exo__Train__NodeAbandon *m = args;
    (void)call;
    (void)reply;
    if (m->rank >= n->fit->num_nodes)
        return exo_fail(err, EXO_INVAL, "abandon: rank: %u is no node of the run", m->rank);
    exo_comm_fail(n->comm, m->rank, m->cause);
    exo_comm_fail(n->side, m->rank, m->cause);
    return EXO_OK;
}

static const exo_field_rule cause_rules[] = {{.field = "cause", .most = EXO_ERR_TEXT}};

/* The last ones are those of nodes elsewhere. */
static const exo_args served[] = {
    {.method = "setup", .serve = setup},
    {.method = "train", .fields = &exo__train__train__descriptor, .serve = train},
    {.method = "average", .serve = average},
    {.method = "result", .serve = result},
    {.method = "evaluate", .fields = &exo__train__evaluate__descriptor, .serve = evaluate},
    {.method = "correlate", .serve = correlate},
    {.method = "save", .fields = &exo__train__save__descriptor, .serve = save},
    {.method = "change", .fields = &exo__train__node_change__descriptor, .serve = change},
    {.method = "deliver", .raw = true, .serve = deliver},
    {.method = "abandon",
     .fields = &exo__train__node_abandon__descriptor,
     .rules = cause_rules,
     .num_rules = 1,
     .serve = abandon},
    {.method = "waits", .fields = &exo__train__node_ask__descriptor, .serve = waits},
};

const exo_protocol exo_train_node_protocol = {
    .name = "train_node",
    .start = {.method = "start", .fields = &exo__train__node_start__descriptor},
    .methods = served,
    .num_methods = sizeof served / sizeof *served,
};

static exo_status
serve(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    return exo_protocol_serve(&exo_train_node_protocol, call, self, args, reply, err);
}

static const exo_lane_class lanes[] = {{.name = "compute", .blocking = true}, {.name = "mail", .capacity = 65536}};

/* As in `served`. */
static const exo_method methods[] = {
    {.name = "setup", .run = serve},
    {.name = "train", .run = serve},
    {.name = "average", .run = serve},
    {.name = "result", .run = serve},
    {.name = "evaluate", .run = serve},
    {.name = "correlate", .run = serve},
    {.name = "save", .run = serve},
    {.name = "change", .run = serve},
    {.name = "deliver", .lane = 1, .run = serve},
    {.name = "abandon", .lane = 1, .run = serve},
    {.name = "waits", .lane = 1, .run = serve},
};
_Static_assert(sizeof methods / sizeof *methods == sizeof served / sizeof *served, "each takes what its line says");

enum {
    FAR_METHODS = sizeof methods / sizeof methods[0],
    METHODS = FAR_METHODS - 4
};

const exo_actor_class exo_train_node_class = {
    .name = "train_node",
    .state_size = sizeof(struct train_node),
    .start = train_node_start,
    .stop = train_node_stop,
    .lanes = lanes,
    .num_lanes = 1,
    .methods = methods,
    .num_methods = METHODS,
};

const exo_actor_class exo_far_node_class = {
    .name = "train_node",
    .state_size = sizeof(struct train_node),
    .start = far_node_start,
    .stop = train_node_stop,
    .lanes = lanes,
    .num_lanes = 2,
    .methods = methods,
    .num_methods = FAR_METHODS,
};
