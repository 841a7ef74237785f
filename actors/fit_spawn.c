/* Makes the nodes of a fit: see fit_impl.h. Every node is started with a document (fit.h). For
 * nodes on workers the document also describes the record that they share. For nodes in this
 * process the record itself is made here, before the nodes. */
#include "actors/fit_members.h"

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "actors/autocast.h"
#include "actors/fit_check.h"
#include "actors/fit_links.h"
#include "base/grow_text.h"
#include "base/plugin_build.h"
#include "report/json_text.h"

#define RUN_HERE "here" /* name of the only run of its runtime */
/* the least time for making all nodes: a worker may take as long for one */
#define MAKING (60 * EXO_SECOND)

/* Whether the nodes will write checkpoints. Those at a stop come on top. */
static bool
writes_there(const struct run *run)
{
    return run->folder[0] && (run->opts->checkpoint_interval > 0 || run->opts->final_checkpoint);
}

/* Adds the description of the record that nodes on workers share to `numbers` (fit.h). */
static exo_status
describe_shared(const struct run *run, exo_time elapsed, json_t *numbers, exo_err *err)
{
    const exo_fit *fit = run->fit;
    json_t *plugins = json_array(), *builds = json_array();
    char *graph = NULL,
         *links = fit->figures ? exo_fit_links_text(fit->figures, fit->num_nodes, NULL) : NULL;
    bool evaluates = fit->val_count > 0, resumes = fit->resume_from[0];
    exo_status st = fit->graph ? exo_graph_expand(fit->graph, &graph, err) : EXO_OK;
    if (st == EXO_OK && fit->figures && !links)
        st = exo_fail(err, EXO_NOMEM, "no memory to describe a node");
    for (size_t i = 0; i < run->far->num_plugins; i++) {
        char build[EXO_BUILD];
        exo_plugin_build(run->far->plugins[i], build);
        json_array_append_new(plugins, json_string(run->far->plugins[i]));
        json_array_append_new(builds, json_string(build));
    }
    json_t *more = json_pack(
        "{s:i, s:o, s:o, s:I, s:I, s:I, s:b, s:s, s:s, s:I, s:b, s:I, s:I, s:s*, s:s, s:b, s:s*, "
        "s:I, "
        "s:s*, s:b, s:b, s:b, s:s*}",
        "nodes", (int)fit->num_nodes, "plugins", plugins, "plugin_builds", builds, "max_steps",
        (json_int_t)fit->max_steps, "batch_size", (json_int_t)fit->batch_size, "minibatch_size",
        (json_int_t)fit->minibatch_size, "shuffle", (int)fit->shuffle, "autocast",
        exo_fit_autocast_name(fit->autocast), "device", fit->device, "seed", (json_int_t)fit->seed,
        "validate", (int)evaluates, "val_size", (json_int_t)(evaluates ? run->opts->val_size : 0),
        "timeout_ms", (json_int_t)(fit->timeout / EXO_MS), "engine", run->opts->engine,
        "collectives", exo_way_name(fit->way), "any_bits", (int)fit->any_bits, "resume_from",
        resumes ? fit->resume_from : NULL, "elapsed_ns", (json_int_t)elapsed, "graph", graph,
        "elastic", (int)fit->elastic, "verify", (int)fit->verify, "measure_links",
        (int)(fit->measures && !fit->figures), "links", links);
    if (more && fit->tensor > 1)
        json_object_set_new(more, "tensor", json_integer((json_int_t)fit->tensor));
    if (more && fit->context > 1)
        json_object_set_new(more, "context", json_integer((json_int_t)fit->context));
    if (more && fit->engine_suspends)
        json_object_set_new(more, "engine_suspends", json_true());
    if (more && fit->sequence)
        json_object_set_new(more, "sequence", json_true());
    if (more && fit->stages > 1)
        json_object_set_new(more, "pipeline", json_integer((json_int_t)fit->stages));
    if (more && st == EXO_OK)
        st = exo_fit_describe_host(fit, &run->digests, writes_there(run) ? run->folder : NULL, more,
                                   err);
    if (st == EXO_OK && (!more || json_object_update(numbers, more) != 0))
        st = exo_fail(err, EXO_NOMEM, "no memory to describe a node");
    json_decref(more);
    exo_free(graph);
    exo_free(links);
    return st;
}

exo_status
exo_fit_describe_node(const struct run *run, uint32_t rank, exo_time elapsed, exo_payload *out,
                      exo_err *err)
{
    const exo_fit_far *far = run->far;
    exo_text document = {0};
    json_t *numbers = json_pack("{s:s, s:i}", "run", far ? far->run : RUN_HERE, "rank", (int)rank);
    exo_status st = numbers ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory to describe a node");
    uint64_t position = exo_fit_first_position(run, rank);
    if (st == EXO_OK && position != UINT64_MAX)
        json_object_set_new(numbers, "position", json_integer((json_int_t)position));
    if (st == EXO_OK && far)
        st = describe_shared(run, elapsed, numbers, err);
    char *text = st == EXO_OK ? exo_json_dump(numbers, JSON_COMPACT) : NULL;
    json_decref(numbers);
    exo_text_add(&document, "{\"strategy\": %s, ", run->strategy_text);
    if (far)
        exo_text_add(&document, "\"model\": %s, \"data\": %s, ", far->model, far->data);
    if (text)
        exo_text_add(&document, "%s", text + 1);
    if (st == EXO_OK && (!text || document.failed))
        st = exo_fail(err, EXO_NOMEM, "no memory to describe a node");
    exo_free(text);
    Exo__Train__NodeStart m = EXO__TRAIN__NODE_START__INIT;
    m.document = document.data;
    if (st == EXO_OK)
        st = exo_protocol_pack(out, &m.base, err);
    exo_free(document.data);
    return st;
}

/* Makes the shared parts of nodes in this process: communicators, the runtime and the record. */
static exo_status
open_here(struct run *run, exo_err *err)
{
    const exo_runtime_opts opts = {.clock = run->clock};
    exo_status st = exo_fit_open_comms(run, err);
    if (st == EXO_OK)
        st = exo_runtime_open(&run->cast.runtime, &opts, err);
    return st == EXO_OK ? exo_fit_put(run->fit, run->cast.runtime, RUN_HERE, err) : st;
}

static void
node_name(const void *context, uint32_t rank, char out[EXO_CAST_NAME])
{
    (void)context;
    snprintf(out, EXO_CAST_NAME, "node_%u", rank);
}

exo_status
exo_fit_open_cast(struct run *run, exo_err *err)
{
    const exo_fit_far *far = run->far;
    run->cast = (exo_cast){.count = run->fit->num_nodes,
                           .joined = far != NULL,
                           .space = far ? far->run : NULL,
                           .name = node_name,
                           .explain = far ? far->explain : NULL,
                           .explain_context = far ? far->context : NULL,
                           .stop = run->opts->stop};
    return exo_cast_open(&run->cast, err);
}

void
exo_fit_note_unbegun(const struct run *run)
{
    if (run->live && run->live->unbegun)
        *run->live->unbegun = true;
}

static exo_status
fail_unbegun(const struct run *run, uint32_t made, exo_err *err)
{
    exo_fit_note_unbegun(run);
    return exo_fail(err, EXO_CANCELLED,
                    "stopped before the first step: %u of its %u nodes were made", made,
                    run->fit->num_nodes);
}

exo_status
exo_fit_make_nodes(struct run *run, exo_err *err)
{
    exo_status st = exo_fit_choose_engine(run, err);
    if (st == EXO_OK && run->far)
        st = exo_fit_digest_data(run->fit, &run->digests, err);
    if (st == EXO_OK && run->far && writes_there(run))
        st = exo_fit_mark_folder(run->folder, run->lock, run->far->run, err);
    if (run->far)
        run->cast.runtime = run->far->runtime;
    else if (st == EXO_OK)
        st = open_here(run, err);
    const exo_time limit = run->fit->timeout > MAKING ? run->fit->timeout : MAKING,
                   deadline = exo_deadline(run->clock, limit);
    for (uint32_t r = 0; st == EXO_OK && r < run->fit->num_nodes; r++) {
        exo_err reason = {0};
        exo_spawn_opts opts = {.resources = run->opts->resources,
                               .num_resources = run->opts->num_resources};
        st = exo_fit_describe_node(run, r, run->before.now, &opts.args, err);
        if (st == EXO_OK)
            st = exo_cast_spawn(&run->cast, r, "train_node", &opts, deadline, &reason);
        if (st == EXO_TIMEOUT && exo_now(run->clock) >= deadline)
            exo_fail(err, st, "node_%u of %u was not made within %lld s of the run's start: %s", r,
                     run->fit->num_nodes, (long long)(limit / EXO_SECOND), reason.text);
        else if (st == EXO_CANCELLED)
            st = fail_unbegun(run, r, err);
        else if (reason.code != EXO_OK)
            exo_fail(err, st, "%s", reason.text);
    }
    return st;
}
