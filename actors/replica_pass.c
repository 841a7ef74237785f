/* Passes of a replica through its model: a training step, and an evaluation. See replica.h. */
#include "actors/replica.h"

#include <math.h>
#include <string.h>

#include <exogym/parallel.h>

#include "base/parallel.h"

enum {
    MOST_UNREAD = 64 /* passes whose losses stay on the device */
};

/* --- A step ----------------------------------------------------------------------------------- */

/* exo_unit_hooks: a step begins to use a unit, and stops using it. */
static exo_status
before_use(void *context, size_t unit, exo_err *err)
{
    exo_replica *r = context;
    return exo_strategy_before_use(r->strategy, &r->node, unit, r->node.group, err);
}

static exo_status
after_use(void *context, size_t unit, exo_err *err)
{
    exo_replica *r = context;
    exo_replica_leave_unit(r, unit);
    return exo_strategy_after_use(r->strategy, &r->node, unit, r->node.group, err);
}

static exo_status
loss_of(const exo_replica *r, exo_tape *tape, const exo_batch *batch, exo_tensor **out,
        exo_err *err)
{
    *out = exo_model_loss(r->model, tape, batch);
    exo_status st = *out ? EXO_OK : exo_tape_error(tape, err);
    return *out || st != EXO_OK ? st
                                : exo_fail(err, EXO_FAILED, "the model gave no loss and no reason");
}

/* Whether a pass tells which units it has left: for strategies, and for parts of models, whose messages
 * leave between units, after the declared cost of those before. */
static bool
follows_units(const exo_replica *r)
{
    return exo_strategy_awaits_units(r->strategy) || (r->sharing[0] && r->step_cost >= 0);
}

/* Runs one forward and backward pass, which adds to the gradients, or takes the inner step. Keeps
 * its loss. */
static exo_status
run_minibatch(exo_replica *r, exo_tape *tape, const exo_batch *batch, size_t minibatch,
              exo_err *err)
{
    size_t minibatches = r->fit->batch_size / r->fit->minibatch_size;
    const exo_grad_sink sink = r->within ? exo_node_inner_sink(&r->node) : (exo_grad_sink){0};
    const exo_grad_ready ready = {.tell = exo_replica_gradient_ready, .context = r};
    const exo_unit_hooks units = {.before = before_use, .after = after_use, .context = r};
    bool tells = minibatch + 1 == minibatches && exo_replica_announces(r);
    const exo_pass pass = {
        .train = true,
        .grad = true,
        .autocast = r->fit->autocast,
        .seed = r->fit->seed,
        .node = r->rank / exo_fit_sharing(r->fit),
        .step = r->node.step * minibatches + minibatch,
        .sink = r->within ? &sink : NULL,
        .ready = tells ? &ready : NULL,
        .units = follows_units(r) ? &units : NULL,
    };
    exo_tape_set_group(tape, r->tensor[0]);
    exo_tape_set_context_group(tape, r->context[0]);
    exo_tape_begin(tape, r->params, &pass);
    exo_tensor *out = NULL;
    r->progress = (exo_replica_progress){.minibatch = minibatch};
    exo_status st = loss_of(r, tape, batch, &out, err);
    if (st != EXO_OK)
        return st;
    r->progress = (exo_replica_progress){.minibatch = minibatch, .backward = true};
    if (r->fit->rehearses) /* the results of a rehearsal are meaningless */
        exo_pass_values_skip(&r->passes);
    else
        st = exo_pass_values_keep(&r->passes, tape, out, err);
    if (st == EXO_OK)
        st = exo_tape_backward(tape, out, 1.0f / (float)minibatches, err);
    return st == EXO_OK && !r->fit->rehearses ? exo_pass_values_store(&r->passes, err) : st;
}

/* Takes a tape on the replica's device: on the CPU one of the run's pool, else the replica's own. The
 * passes of stages differ, so that a stage has its own, too. */
static exo_status
take_tape(const exo_replica *r, exo_tape_pool *pool, exo_tape **own, exo_tape **out, exo_err *err)
{
    if (exo_device_is_host(r->device) && !r->pipeline)
        return exo_tape_pool_take(pool, out, err);
    exo_status st = *own ? EXO_OK : exo_tape_new_on(own, r->device, err);
    *out = *own;
    return st;
}

static void
give_tape(const exo_replica *r, exo_tape_pool *pool, exo_tape **tape)
{
    if (exo_device_is_host(r->device) && !r->pipeline)
        exo_tape_pool_give(pool, tape);
}

static size_t
minibatches_of(const exo_replica *r)
{
    return r->fit->batch_size / r->fit->minibatch_size;
}

/* Reads the losses of the passes of `steps` steps; each is the mean over its minibatches. Sets the
 * gauges of the model's figures to those of the last step. */
static exo_status
read_losses(exo_replica *r, size_t steps, float *losses, exo_err *err)
{
    const size_t minibatches = minibatches_of(r);
    exo_status st = exo_pass_values_read(&r->passes, err);
    for (size_t s = 0; st == EXO_OK && s < steps; s++) {
        const exo_pass_record *pass = r->passes.each + s * minibatches;
        double sum = 0;
        for (size_t m = 0; m < minibatches; m++) {
            sum += pass[m].each[0].mean;
            for (size_t i = 1; s + 1 == steps && i < pass[m].num; i++)
                exo_pass_figures_count(&r->meters.figures, pass[m].each[i].metric,
                                       pass[m].each[i].mean, pass[m].each[i].count);
        }
        losses[s] = (float)(sum / (double)minibatches);
    }
    exo_pass_figures_set(&r->meters.figures, r->meters.model);
    r->passes.num = 0;
    return st;
}

/* Whether the losses of a step may be read after later steps: on a device that computes by itself,
 * if nobody asks for them between the passes and the exchange. A measured time of a step is that of
 * its work on the virtual clock. */
static bool
runs_ahead(const exo_replica *r)
{
    return !exo_device_is_host(r->device) && !r->pipeline && !exo_replica_is_elastic(r) &&
           !r->fit->sim && !r->fit->outages;
}

/* Makes room for the passes of a step, and of later ones if these may come before a read. */
static exo_status
make_room(exo_replica *r, exo_err *err)
{
    const size_t each = minibatches_of(r);
    const size_t steps = runs_ahead(r) && each < MOST_UNREAD ? MOST_UNREAD / each : 1;
    return r->passes.room > 0 ? EXO_OK
                              : exo_pass_values_init(&r->passes, r->device, steps * each, err);
}

/* Computes the gradients of the step's batch, the mean over its minibatches; or takes the inner
 * step, if that happens within backward. */
static exo_status
compute_gradients(exo_replica *r, const exo_batch *batch, exo_err *err)
{
    exo_tape *tape = NULL;
    exo_status st = take_tape(r, &r->fit->train_tapes, &r->train_tape, &tape, err);
    if (st != EXO_OK)
        return st;
    const size_t minibatches = minibatches_of(r), before = r->passes.num;
    st = make_room(r, err);
    if (!r->within)
        exo_params_zero_grads(r->params);
    for (size_t m = 0; st == EXO_OK && m < minibatches; m++) {
        exo_batch rows =
            exo_replica_rows(batch, m * r->fit->minibatch_size, r->fit->minibatch_size);
        st = run_minibatch(r, tape, &rows, m, err);
    }
    give_tape(r, &r->fit->train_tapes, &tape);
    if (st == EXO_OK && !runs_ahead(r))
        return read_losses(r, 1, &r->member.loss, err);
    if (st != EXO_OK)
        r->passes.num = before; /* those of a step that is not taken */
    return st;
}

/* The same for a stage. */
static exo_status
compute_stage(exo_replica *r, const exo_batch *batch, exo_err *err)
{
    const size_t minibatches = r->fit->batch_size / r->fit->minibatch_size;
    double sum = 0;
    r->progress = (exo_replica_progress){.minibatch = minibatches - 1, .backward = true};
    exo_params_zero_grads(r->params);
    exo_status st = exo_replica_pipeline(r, batch, &sum, err);
    exo_pass_figures_set(&r->meters.figures, r->meters.model);
    r->member.loss = exo_fit_has_loss(r->fit, r->rank) ? (float)(sum / (double)minibatches) : NAN;
    return st;
}

static exo_status
next_batch(exo_replica *r, const exo_batch **batch, exo_err *err)
{
    exo_compute_pause();
    exo_status st = exo_loader_next(r->loader, r->fit->timeout, batch, err);
    exo_compute_resume();
    return st;
}

/* The last exchange before steps without one: others have the engine's memory meanwhile. All nodes come
 * here in the same steps. */
static exo_status
rest(exo_replica *r, exo_err *err)
{
    const uint64_t step = r->node.step;
    const bool rests = r->fit->engine_suspends && step + 1 < r->node.max_steps &&
                       exo_strategy_meets(r->strategy, step) &&
                       !exo_strategy_meets(r->strategy, step + 1);
    const exo_status st = rests ? exo_group_suspend(r->node.group, err) : EXO_OK;
    /* the step is done: the next exchange will miss the lost node */
    return st == EXO_PEER_LOST && exo_replica_is_elastic(r) ? EXO_OK : st;
}

/* Takes the step whose batch this is; NULL: its gradients are there. A device may put its work off up to
 * the end, which belongs to the update. */
static exo_status
take_step(exo_replica *r, const exo_batch *batch, exo_err *err)
{
    bool declared = r->step_cost >= 0; /* it covers all computation of a step */
    exo_status st = EXO_OK;
    exo_pace_phase(r->pace, "step", r->step_cost);
    exo_replica_rehearse(r, true);
    exo_device_section_begin(r->device);
    if (batch)
        st = (r->pipeline ? compute_stage : compute_gradients)(r, batch, err);
    exo_pace_phase(r->pace, "update", declared ? 0 : -1);
    if (st == EXO_OK)
        st = exo_replica_exchange(r, err);
    if (st == EXO_OK && r->node.part && exo_strategy_is_by_parts(r->strategy) &&
        exo_strategy_meets(r->strategy, r->node.step))
        st = exo_replica_agree(r, err);
    if (st == EXO_OK)
        st = rest(r, err);
    const exo_status ended = exo_device_section_end(r->device, st == EXO_OK ? err : NULL);
    exo_replica_rehearse(r, false);
    exo_pace_phase(r->pace, NULL, -1);
    return st == EXO_OK ? ended : st;
}

exo_status
exo_replica_step_ahead(exo_replica *r, exo_err *err)
{
    const exo_batch *batch = NULL;
    const size_t before = r->passes.num;
    exo_status st = r->member.again ? EXO_OK : next_batch(r, &batch, err);
    if (st == EXO_OK)
        st = take_step(r, batch, err);
    if (st != EXO_OK) {
        r->passes.num = before;
        return st;
    }
    r->node.step++;
    r->unread++;
    return EXO_OK;
}

bool
exo_replica_must_read(const exo_replica *r)
{
    return r->unread > 0 && (!runs_ahead(r) || r->passes.room - r->passes.num < minibatches_of(r));
}

exo_status
exo_replica_losses(exo_replica *r, float *losses, exo_err *err)
{
    const size_t steps = r->unread;
    exo_status st = EXO_OK;
    r->unread = 0;
    if (steps > 0 && runs_ahead(r))
        st = read_losses(r, steps, losses, err);
    else if (steps > 0)
        losses[0] = r->member.loss;
    return st == EXO_OK && steps > 0 ? exo_strategy_read_norm(r->strategy, &r->node, err) : st;
}

exo_status
exo_replica_step(exo_replica *r, float *loss, exo_err *err)
{
    exo_status st = exo_replica_step_ahead(r, err);
    return st == EXO_OK ? exo_replica_losses(r, loss, err) : st;
}

/* --- An evaluation ---------------------------------------------------------------------------- */

/* Sums over the batches of an evaluation, and the counts over which they are means. */
struct eval_sums {
    double loss, hits;
    size_t weighed, judged;
    exo_pass_figures figures;
};

/* exo_unit_hooks for an evaluation of the replica's own parameters. Its traffic does not count as
 * the strategy's. */
static exo_status
before_look(void *context, size_t unit, exo_err *err)
{
    exo_replica *r = context;
    return exo_strategy_before_use(r->strategy, &r->node, unit, exo_replica_side(r), err);
}

static exo_status
after_look(void *context, size_t unit, exo_err *err)
{
    exo_replica *r = context;
    return exo_strategy_after_use(r->strategy, &r->node, unit, exo_replica_side(r), err);
}

static const exo_unit_hooks *
evaluation_hooks(exo_replica *r, bool average, exo_unit_hooks *hooks)
{
    if (average)
        return exo_replica_average_hooks(r, hooks);
    *hooks = (exo_unit_hooks){.before = before_look, .after = after_look, .context = r};
    return exo_strategy_awaits_units(r->strategy) ? hooks : NULL;
}

/* Adds the figures of one batch. A figure is weighted by the count over which it is a mean: the
 * samples of the batch, unless the model reports another count. */
static exo_status
evaluate_batch(exo_replica *r, exo_tape *tape, bool average, struct eval_sums *sums, exo_err *err)
{
    size_t weight = r->eval_batch.size;
    exo_unit_hooks hooks;
    const exo_pass pass = {.autocast = r->fit->autocast,
                           .seed = r->fit->seed,
                           .node = r->rank,
                           .units = evaluation_hooks(r, average, &hooks)};
    exo_tape_set_group(tape, r->tensor[1]);
    exo_tape_set_context_group(tape, r->context[1]);
    exo_tape_begin(tape, average ? r->average : r->params, &pass);
    exo_tensor *out = NULL;
    exo_status st = r->pipeline ? exo_replica_pipeline_look(r, tape, &r->eval_batch, &out, err)
                                : loss_of(r, tape, &r->eval_batch, &out, err);
    if (st != EXO_OK)
        return st;
    if (!out) /* a stage without the loss */
        return exo_tape_leave_units(tape, err);
    for (size_t i = 0; i < exo_tape_num_metrics(tape); i++) {
        double mean = 0;
        size_t count = 0;
        const char *name = exo_tape_metric_at(tape, i, &mean, &count)->name;
        if (strcmp(name, "loss") == 0) {
            weight = count;
        } else if (strcmp(name, "accuracy") == 0) {
            sums->hits += mean * (double)count;
            sums->judged += count;
        }
    }
    exo_pass_figures_add(&sums->figures, tape);
    if (weight > 0) /* the loss of an empty set is undefined */
        sums->loss += (double)exo_tensor_item(out) * (double)weight;
    sums->weighed += weight;
    st = exo_tape_error(tape, err);
    return st == EXO_OK ? exo_tape_leave_units(tape, err) : st;
}

exo_status
exo_replica_evaluate(exo_replica *r, bool average, exo_replica_figures *out, exo_meters *reported,
                     exo_err *err)
{
    const exo_fit *fit = r->fit;
    size_t batch = fit->minibatch_size < fit->val_count ? fit->minibatch_size : fit->val_count;
    exo_tape *tape = NULL;
    struct eval_sums sums = {0};

    exo_status st =
        r->eval_batch.data[0] ? EXO_OK : exo_batch_init(&r->eval_batch, fit->val, batch, err);
    if (st == EXO_OK)
        st = take_tape(r, &r->fit->eval_tapes, &r->eval_tape, &tape, err);
    const exo_sample_key key = {.seed = fit->seed};
    for (size_t first = 0; st == EXO_OK && first < fit->val_count; first += batch) {
        size_t count = fit->val_count - first < batch ? fit->val_count - first : batch;
        st = exo_batch_read(&r->eval_batch, fit->val, fit->val_order + first, count, &key, err);
        if (st == EXO_OK)
            st = evaluate_batch(r, tape, average, &sums, err);
    }
    give_tape(r, &r->fit->eval_tapes, &tape);
    exo_pass_figures_set(&sums.figures, reported);
    out->loss = sums.weighed                        ? sums.loss / (double)sums.weighed
                : exo_fit_has_loss(r->fit, r->rank) ? 0.0
                                                    : (double)NAN;
    out->accuracy = sums.judged ? sums.hits / (double)sums.judged : (double)NAN;
    return st;
}
