/* The emulated network of a fit, its communicators, and the reports about them: see fit_impl.h. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "actors/fit_engine.h"
#include "actors/fit_impl.h"
#include "base/dir.h"
#include "base/file.h"
#include "comm/encode.h"
#include "report/json_text.h"
#include "report/timeline.h"

enum {
    SPANS = 100000 /* most spans of a node in the timeline */
};

static exo_status
open_paces(struct run *run, exo_err *err)
{
    exo_fit *fit = run->fit;
    exo_status st = EXO_OK;
    fit->paces = exo_calloc(fit->num_nodes, sizeof *fit->paces);
    if (!fit->paces)
        return exo_fail(err, EXO_NOMEM, "no memory for %u nodes", fit->num_nodes);
    for (uint32_t r = 0; st == EXO_OK && r < fit->num_nodes; r++) {
        st =
            exo_pace_init(&fit->paces[r], fit->sim, fit->origin, exo_fit_speed(fit->graph, r), err);
        fit->paces[r].track.limit = fit->sim ? SPANS : 0;
        if (st == EXO_OK)
            exo_fit_restore_pace(run, r);
    }
    return st;
}

exo_status
exo_fit_open_network(struct run *run, exo_err *err)
{
    exo_fit *fit = run->fit;
    const exo_graph_spec *graph = fit->graph;
    exo_status st = EXO_OK;
    if (graph && graph->num_edges > 1)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "the strategy '%s' sends over %zu edges, and the nodes of a job have one: "
                        "run the graph that 'exogym graph expand' makes from the job",
                        run->strategy_name, graph->num_edges);
    if (graph && graph->virtual_clock && run->far)
        return exo_fail(
            err, EXO_UNSUPPORTED,
            "the virtual clock is for nodes in one process: run the job without workers");
    if (graph && graph->virtual_clock)
        st = exo_sim_new(&fit->sim, 0, err);
    if (fit->sim) {
        exo_sim_restore(fit->sim, run->before.now);
        exo_sim_hold(fit->sim, true);
    }
    if (st == EXO_OK && graph && graph->emulated)
        st = exo_graph_links(graph, &fit->links, err);
    if (st == EXO_OK && fit->links && !run->far)
        st = exo_fit_restore_links(run, err);
    run->started = exo_now(run->clock);
    fit->origin = fit->sim ? 0 : run->started - run->before.now;
    return st == EXO_OK && !run->far ? open_paces(run, err) : st;
}

/* Whether the nodes' arrays are on one GPU, and the engine `gpu` can do what the run needs. */
static bool
is_for_gpu(const struct run *run, const exo_comm_engine_use *use)
{
    return !use->far && !use->emulated && !use->coded && !run->apart &&
           run->opts->elastic.min_nodes == 0 && run->opts->failures.mean_time_between == 0 &&
           run->fit->way == EXO_WAY_DIRECT && run->fit->num_nodes <= EXO_COMM_GPU_MOST &&
           run->opts->device && exo_device_is_one_gpu(run->opts->device);
}

exo_status
exo_fit_choose_engine(struct run *run, exo_err *err)
{
    exo_fit *fit = run->fit;
    const exo_graph_spec *graph = fit->graph;
    exo_codec *codec = NULL;
    exo_status st = exo_comm_codec_new(&codec, exo_fit_edge_codec(graph), err);
    const exo_comm_engine_use use = {.far = run->far != NULL,
                                     .emulated = graph && (graph->emulated || graph->virtual_clock),
                                     .coded = codec != NULL};
    exo_codec_free(&codec);
    if (st == EXO_OK)
        st = exo_comm_find_engine(&fit->engine, run->opts->engine, !run->opts->any_bits, err);
    if (st == EXO_OK)
        st = exo_fit_check_suspends(fit->engine, run->opts, err);
    fit->any_bits = run->opts->any_bits;
    fit->engine_suspends = run->opts->engine_suspends;
    if (st == EXO_OK)
        st = exo_fit_find_way(&fit->way, run->opts->collectives, fit->engine, !fit->any_bits, err);
    if (st == EXO_OK && !fit->engine && is_for_gpu(run, &use))
        st = exo_comm_find_engine(&fit->engine, "gpu", true, err);
    if (st == EXO_OK)
        st = exo_fit_choose_links(run, err);
    return st == EXO_OK ? exo_comm_check_engine(fit->engine, &use, err) : st;
}

static exo_status
open_strategys(struct run *run, exo_err *err)
{
    static _Atomic unsigned opened; /* distinguishes the engines of this process */
    exo_fit *fit = run->fit;
    exo_comm_edge edge;
    const exo_clock *clock = fit->sim ? exo_sim_clock(fit->sim) : run->clock;
    if (exo_comm_is_foreign(fit->engine)) {
        char name[64];
        snprintf(name, sizeof name, "%ld-%u", (long)getpid(), opened++);
        return exo_fit_open_engine(&fit->comm, fit->engine, name, fit->num_nodes, run->clock, err);
    }
    return exo_fit_comm_edge(fit, &edge)
               ? exo_comm_local_on(&fit->comm, fit->num_nodes, clock, &edge, err)
               : exo_comm_local(&fit->comm, fit->num_nodes, run->clock, err);
}

exo_status
exo_fit_open_comms(struct run *run, exo_err *err)
{
    exo_status st = open_strategys(run, err);
    if (st == EXO_OK && run->fit->rehearses)
        exo_comm_rehearse(run->fit->comm);
    return st == EXO_OK ? exo_comm_local(&run->fit->side, run->fit->num_nodes, run->clock, err)
                        : st;
}

/* --- The report ------------------------------------------------------------------------------- */

const char *
exo_fit_edge_name(const struct run *run)
{
    const exo_edge_spec *edge = exo_fit_edge(run->fit->graph);
    return edge ? edge->name : "node>node";
}

static const char *
host_name(const struct run *run, uint32_t rank, char out[EXO_NODE_NAME])
{
    if (run->fit->graph)
        return run->fit->graph->hosts[exo_fit_host(run->fit->graph, rank)].spec.name;
    snprintf(out, EXO_NODE_NAME, "node_%u", rank);
    return out;
}

static exo_status
write_ledger(const struct run *run, exo_fit_result *result, exo_err *err)
{
    exo_ledger ledger = {0};
    char path[EXO_CHECKPOINT_PATH + 32], actor[EXO_NODE_NAME], host[EXO_NODE_NAME];
    exo_status st = EXO_OK;
    result->traffic = (exo_traffic){0};
    for (uint32_t r = 0; st == EXO_OK && r < run->fit->num_nodes; r++) {
        snprintf(actor, sizeof actor, "node_%u", r);
        st = exo_ledger_add(&ledger, exo_fit_edge_name(run), actor, host_name(run, r, host),
                            &run->traffic[r], err);
        exo_traffic_add(&result->traffic, &run->traffic[r]);
    }
    snprintf(path, sizeof path, "%s/ledger.csv", run->folder);
    if (st == EXO_OK && run->folder[0])
        st = exo_ledger_write(&ledger, path, err);
    exo_ledger_release(&ledger);
    return st;
}

static json_t *
seconds(exo_time time)
{
    return json_real((double)time * 1e-9);
}

static json_t *
host_json(const struct run *run, uint32_t rank)
{
    char name[EXO_NODE_NAME], host[EXO_NODE_NAME];
    exo_time times[3] = {0};
    const exo_track *track = &run->fit->paces[rank].track;
    exo_link_stats up, down;
    json_t *phases = json_object();
    for (size_t i = 0; i < track->num_totals; i++) {
        times[track->totals[i].kind] += track->totals[i].time;
        json_object_set_new(phases, track->totals[i].name, seconds(track->totals[i].time));
    }
    exo_fit_link_stats(run, rank, &up, &down);
    exo_time all = exo_fit_now(run);
    snprintf(name, sizeof name, "node_%u", rank);
    return json_pack("{s:s, s:s, s:f, s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:o}", "host",
                     host_name(run, rank, host), "actor", name, "utilization",
                     all > 0 ? (double)times[EXO_SPAN_COMPUTE] / (double)all : 0.0, "compute_s",
                     seconds(times[EXO_SPAN_COMPUTE]), "send_blocked_s",
                     seconds(times[EXO_SPAN_SEND_BLOCKED]), "recv_blocked_s",
                     seconds(times[EXO_SPAN_RECV_BLOCKED]), "up_bytes", (json_int_t)up.bytes,
                     "down_bytes", (json_int_t)down.bytes, "up_busy_s", seconds(up.busy),
                     "down_busy_s", seconds(down.busy), "phases", phases);
}

static exo_status
write_report(const struct run *run, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH + 32];
    json_t *hosts = json_array();
    for (uint32_t r = 0; r < run->fit->num_nodes; r++)
        json_array_append_new(hosts, host_json(run, r));
    json_t *all =
        json_pack("{s:s, s:o, s:o, s:o}", "clock", run->fit->sim ? "virtual" : "real", "time_s",
                  seconds(exo_fit_now(run)), "train_s", seconds(run->trained), "hosts", hosts);
    char *text = exo_json_dump(all, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(all);
    snprintf(path, sizeof path, "%s/network.json", run->folder);
    exo_status st = text ? exo_file_write_atomic(path, text, strlen(text), err)
                         : exo_fail(err, EXO_NOMEM, "no memory for the report of the network");
    exo_free(text);
    return st;
}

static exo_status
write_timeline(const struct run *run, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH + 32];
    uint32_t count = run->fit->num_nodes;
    exo_timeline_track *tracks = exo_calloc(count, sizeof *tracks);
    char(*names)[EXO_NODE_NAME] = exo_calloc(count, sizeof *names);
    exo_status st =
        tracks && names ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for the timeline");
    for (uint32_t r = 0; st == EXO_OK && r < count; r++) {
        snprintf(names[r], sizeof names[r], "node_%u", r);
        tracks[r] = (exo_timeline_track){.host = host_name(run, r, names[r]),
                                         .actor = names[r],
                                         .track = &run->fit->paces[r].track};
    }
    snprintf(path, sizeof path, "%s/timeline.json", run->folder);
    if (st == EXO_OK)
        st = exo_timeline_write(path, tracks, count, err);
    exo_free(tracks);
    exo_free(names);
    return st;
}

/* Removes the reports of an earlier part that ran in this process, now that the run continues on
 * workers: they do not cover the whole run. */
static void
remove_reports(const struct run *run)
{
    static const char *const names[] = {"network.json", "timeline.json"};
    char path[EXO_CHECKPOINT_PATH + 32];
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", run->folder, names[i]);
        exo_dir_unlink(path);
    }
}

exo_status
exo_fit_report_network(struct run *run, exo_fit_result *result, exo_err *err)
{
    exo_status st = write_ledger(run, result, err);
    result->wall_seconds = (double)exo_fit_wall(run) * 1e-9;
    result->is_virtual = run->fit->sim != NULL;
    if (run->folder[0] && run->far)
        remove_reports(run);
    if (st == EXO_OK && run->folder[0] && run->fit->graph && (run->fit->sim || run->fit->links) &&
        !run->far)
        st = write_report(run, err);
    if (st == EXO_OK && run->folder[0] && run->fit->sim)
        st = write_timeline(run, err);
    return st;
}
