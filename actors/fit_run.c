/* One fit from beginning to end. fit_impl.h lists the files that implement its parts. */
#include "actors/fit_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "actors/fit_elastic.h"
#include "actors/fit_failures.h"
#include "actors/fit_opts.h"

#define DEFAULT_TIMEOUT (600 * EXO_SECOND)

/* --- The result ------------------------------------------------------------------------------- */

static exo_status
save_model(const struct run *run, exo_params *params, const char *sha256, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH + 32];
    snprintf(path, sizeof path, "%s/model.safetensors", run->folder);
    return exo_checkpoint_save_model(run->fit->model, params, run->strategy_name, sha256, path,
                                     err);
}

/* Takes one unit of the average from the first node, or the buffers. */
static exo_status
take_part(struct run *run, uint32_t part, float *to, size_t count, exo_err *err)
{
    Exo__Train__Result m = EXO__TRAIN__RESULT__INIT;
    const void *reply = NULL;
    const uint32_t first = exo_fit_member_at(run, 0);
    m.part = part;
    exo_status st = run->together ? exo_fit_have_all(run, "result", &m.base, err)
                                  : exo_fit_ask(run, first, "result", &m.base, err);
    st = exo_fit_await_all(run, st, err);
    if (st == EXO_OK && count > 0)
        st = exo_fit_raw_reply(run, first, count * sizeof *to, &reply, err);
    if (st == EXO_OK && count > 0)
        memcpy(to, reply, count * sizeof *to);
    exo_cast_drop(&run->cast);
    return st;
}

static exo_status
take_average(struct run *run, exo_params *params, char sha256[65], exo_err *err)
{
    exo_status st = exo_fit_have_all(run, "average", NULL, err);
    uint32_t units = (uint32_t)exo_params_num_units(params);
    for (uint32_t u = 0; st == EXO_OK && u < units; u++) {
        const exo_array unit = exo_unit_values(params, u);
        st = take_part(run, u, unit.data, unit.count, err);
    }
    if (st == EXO_OK)
        st =
            take_part(run, units, exo_params_buffers(params), exo_params_buffer_numel(params), err);
    return st == EXO_OK ? exo_params_sha256(params, sha256, err) : st;
}

static exo_status
make_result(struct run *run, exo_fit_result *result, exo_err *err)
{
    exo_params *params = NULL;
    exo_status st = EXO_OK, lost;
    bool rehearses = run->fit->rehearses; /* there is no average */
    if (!rehearses)
        st = exo_model_copy(run->fit->model, &params, err);
    do
        lost = st =
            st == EXO_OK && !rehearses ? take_average(run, params, result->sha256, err) : st;
    while (lost == EXO_PEER_LOST && (st = exo_fit_recover(run, lost, err)) == EXO_OK);
    if (st == EXO_OK && run->opts->save_dir)
        st = save_model(run, params, result->sha256, err);
    if (st == EXO_OK && run->metrics)
        st = exo_metrics_flush(run->metrics, err);
    if (st != EXO_OK) {
        exo_params_free(&params);
        return st;
    }
    double samples = (double)exo_fit_samples(run) - (double)run->steps_before *
                                                        (double)run->fit->batch_size *
                                                        exo_fit_copies(run->fit);
    result->params = params;
    result->steps = run->step;
    result->local_loss = run->eval.local_loss;
    result->global_loss = run->eval.global_loss;
    result->local_accuracy = run->eval.local_accuracy;
    result->global_accuracy = run->eval.global_accuracy;
    result->seconds = (double)exo_fit_elapsed(run) * 1e-9;
    result->train_seconds = (double)run->trained * 1e-9;
    result->samples_per_second = run->trained > 0 ? samples / result->train_seconds : 0;
    result->bytes_sent = run->bytes_sent;
    result->goodput = exo_fit_goodput(run);
    return EXO_OK;
}

/* --- From beginning to end -------------------------------------------------------------------- */

static void
release_run(struct run *run)
{
    exo_metrics_close(&run->metrics);
    if (run->lock >= 0)
        close(run->lock);
    exo_fit_close_meters(run);
    exo_fit_drop(&run->fit);
    exo_cast_close(&run->cast);
    exo_free(run->watch);
    exo_fit_release_figures(run);
    exo_free(run->traffic);
    exo_config_free(&run->whole);
    exo_free(run->options_text);
    exo_free(run->strategy_text);
    exo_free(run->settings);
    exo_free(run);
}

/* Ends a run that has done its last step. If no checkpoints were requested, those in the folder are
 * from an earlier stop. They are removed last, when the run has nothing left to resume. */
static exo_status
finish_run(struct run *run, const exo_fit_result *result, const exo_meters *meters, exo_err *err)
{
    exo_status st = EXO_OK;
    if (run->live && run->live->finished)
        st = run->live->finished(run->live->context, result, meters, err);
    if (st == EXO_OK && run->opts->save_dir && !run->opts->final_checkpoint &&
        run->opts->checkpoint_interval == 0)
        st = exo_checkpoint_remove_all(run->folder, err);
    return st;
}

/* Stops the nodes, finishes a successful run, and frees everything. If nodes do not stop, the
 * memory is leaked rather than freed while they use it. */
static exo_status
close_run(struct run *run, exo_status ended, exo_fit_result *result, exo_err *err)
{
    exo_err close_err = {0};
    /* While the seats are there, which know each node's samples. */
    const exo_meters *meters = ended == EXO_OK ? exo_fit_meters(run) : NULL;
    exo_fit_failures_close(run);
    exo_fit_elastic_close(run);
    exo_status closed = exo_cast_end(&run->cast, EXO_FIT_CLOSE_GRACE, &close_err);
    bool made = ended == EXO_OK;
    if (made && closed != EXO_OK)
        ended = exo_fail(err, closed, "%s", close_err.text);
    else if (made)
        ended = finish_run(run, result, meters, err);
    if (made && ended != EXO_OK)
        exo_params_free(&result->params);
    if (closed == EXO_OK)
        release_run(run);
    return ended;
}

/* What exo_fit_rehearse is given, and exo_fit_run is not. */
struct rehearsal {
    exo_time step_cost;
};

static exo_status
new_run(struct run **out, exo_model *model, const exo_fit_opts *opts,
        const struct rehearsal *rehearsal, exo_err *err)
{
    struct run *run = exo_calloc(1, sizeof *run);
    exo_fit *fit = NULL;
    exo_status st = run ? exo_fit_new(&fit, opts->num_nodes, err)
                        : exo_fail(err, EXO_NOMEM, "no memory for a run");
    if (st != EXO_OK) {
        exo_free(run);
        return st;
    }
    fit->model = exo_model_hold(model);
    fit->batch_size = opts->batch_size;
    fit->shuffle = opts->shuffle;
    fit->autocast = opts->autocast;
    fit->elastic = opts->elastic.min_nodes > 0;
    fit->verify = opts->elastic.verify;
    fit->rehearses = fit->train_tapes.rehearses = rehearsal != NULL;
    fit->step_cost = rehearsal ? rehearsal->step_cost : -1;
    snprintf(fit->device, sizeof fit->device, "%s", opts->device ? opts->device : "cpu");
    fit->seed = opts->seed;
    fit->timeout = opts->timeout ? opts->timeout : DEFAULT_TIMEOUT;
    *run = (struct run){
        .fit = fit, .opts = opts, .clock = exo_clock_real(), .lock = -1, .train_loss = NAN};
    *out = run;
    return EXO_OK;
}

/* rehearsal: NULL for a run that trains. */
static exo_status
run_fit(exo_model *model, exo_dataset *train, exo_dataset *val, const char *strategy,
        exo_config *options, const exo_fit_opts *opts, const exo_fit_far *far,
        const exo_graph_spec *graph, const exo_fit_live *live, const struct rehearsal *rehearsal,
        exo_fit_result *result, exo_err *err)
{
    exo_err unused = {0};
    struct run *run = NULL;
    if (!err)
        err = &unused; /* the text of an error is passed on to other nodes */
    exo_status st = exo_fit_opts_check(opts, err);
    if (st == EXO_OK)
        st = new_run(&run, model, opts, rehearsal, err);
    if (st != EXO_OK)
        return st;
    run->strategy_name = strategy;
    run->fit->graph = graph;
    run->far = far;
    run->live = live;
    run->started = exo_now(run->clock);
    run->fit->sequence = opts->sequence;
    run->fit->context = opts->context_parallel;
    st = exo_fit_make_parts(run->fit, opts->tensor, opts->pipeline, err);
    if (st == EXO_OK)
        st = exo_fit_prepare(run, train, val, options, err);
    run->started = exo_now(run->clock);
    if (st == EXO_OK)
        st = exo_fit_train(run, err);
    if (st == EXO_OK && run->stopped)
        st = exo_fit_report_network(run, result, err);
    if (st == EXO_OK && run->stopped)
        st = exo_fail(err, EXO_CANCELLED, "stopped after step %" PRIu64 " of %" PRIu64 "%s%s",
                      run->step, run->fit->max_steps, run->folder[0] ? "; a checkpoint is in " : "",
                      run->folder);
    else if (st == EXO_OK)
        st = make_result(run, result, err);
    if (st == EXO_OK)
        st = exo_fit_report_network(run, result, err);
    return close_run(run, st, result, err);
}

exo_status
exo_fit_run(exo_model *model, exo_dataset *train, exo_dataset *val, const char *strategy,
            exo_config *options, const exo_fit_opts *opts, const exo_fit_far *far,
            const exo_graph_spec *graph, const exo_fit_live *live, exo_fit_result *result,
            exo_err *err)
{
    return run_fit(model, train, val, strategy, options, opts, far, graph, live, NULL, result, err);
}

exo_status
exo_fit_rehearse(exo_model *model, exo_dataset *train, const char *strategy, exo_config *options,
                 const exo_fit_opts *opts, const exo_graph_spec *graph, exo_time step_cost,
                 exo_fit_result *result, exo_err *err)
{
    const struct rehearsal rehearsal = {.step_cost = step_cost};
    exo_fit_opts bare = *opts;
    bare.val_size = EXO_VAL_NONE;
    bare.checkpoint_interval = bare.correlation_interval = 0;
    bare.save_dir = NULL;
    bare.device = "cpu"; /* it computes nothing */
    bare.resume = false;
    bare.progress = NULL;
    bare.elastic = (exo_elastic){0};
    bare.failures = (exo_failures){0};
    *result = (exo_fit_result){0};
    if (!graph || !graph->virtual_clock)
        return exo_fail(err, EXO_INVAL, "a rehearsal needs a graph on the virtual clock");
    return run_fit(model, train, NULL, strategy, options, &bare, NULL, graph, NULL, &rehearsal,
                   result, err);
}
