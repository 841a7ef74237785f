/* The clock and the emulated network of a fit, and what is said about them in the end: see fit_impl.h. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "actors/fit_engine.h"
#include "actors/fit_impl.h"
#include "base/dir.h"
#include "base/file.h"
#include "comm/edge.h"
#include "comm/encode.h"
#include "graph/site.h"
#include "report/timeline.h"

enum {
    SPANS = 100000 /* of each node, for the timeline */
};

static const exo_actor_spec *
nodes_of(const exo_graph_spec *graph)
{
    return &graph->actors[0];
}

exo_time
exo_fit_step_cost(const exo_graph_spec *graph)
{
    for (size_t i = 0; graph && i < nodes_of(graph)->num_compute; i++)
        if (strcmp(nodes_of(graph)->compute[i].phase, "step") == 0)
            return nodes_of(graph)->compute[i].cost;
    return -1;
}

exo_time
exo_fit_now(const struct run *run)
{
    return run->sim ? exo_sim_now(run->sim) : run->before.now + exo_now(run->clock) - run->started;
}

exo_time
exo_fit_wall(const struct run *run)
{
    return run->before.wall + exo_now(run->clock) - run->started;
}

void
exo_fit_expect_nodes(struct run *run)
{
    if (run->sim)
        exo_sim_expect(run->sim, run->fit.num_nodes);
}

void
exo_fit_expect_no_more(struct run *run)
{
    if (run->sim)
        exo_sim_expect_no_more(run->sim);
}

/* Where the run's clock began, on the clock that it is read from. */
static exo_time
origin_of(const struct run *run)
{
    return run->sim ? 0 : run->started - run->before.now;
}

exo_status
exo_fit_open_network(struct run *run, exo_err *err)
{
    const exo_graph_spec *graph = run->graph;
    exo_status st = EXO_OK;
    if (graph && graph->virtual_clock && run->far)
        return exo_fail(err, EXO_UNSUPPORTED, "the virtual clock is for nodes in one process: without workers");
    if (graph && graph->virtual_clock)
        st = exo_sim_new(&run->sim, 0, err);
    if (run->sim)
        exo_sim_restore(run->sim, run->before.now);
    if (st == EXO_OK && graph && graph->emulated)
        st = exo_graph_links(graph, &run->links, err);
    if (st == EXO_OK && run->links && !run->far)
        st = exo_fit_restore_links(run, err);
    run->started = exo_now(run->clock);
    if (st != EXO_OK || run->far)
        return st;
    run->paces = exo_calloc(run->fit.num_nodes, sizeof *run->paces);
    if (!run->paces)
        return exo_fail(err, EXO_NOMEM, "no memory for %u nodes", run->fit.num_nodes);
    for (uint32_t r = 0; st == EXO_OK && r < run->fit.num_nodes; r++) {
        double speed = graph ? graph->hosts[nodes_of(graph)->hosts[r]].speed : 1;
        st = exo_pace_init(&run->paces[r], run->sim, origin_of(run), speed, err);
        run->paces[r].track.limit = run->sim ? SPANS : 0;
        if (st == EXO_OK)
            exo_fit_restore_pace(run, r);
    }
    return st;
}

exo_status
exo_fit_choose_engine(const struct run *run, const exo_engine_class **out, exo_err *err)
{
    const exo_graph_spec *graph = run->graph;
    exo_codec *codec = NULL;
    exo_status st =
        graph && graph->num_edges ? exo_comm_codec_new(&codec, exo_fit_edge_codec(&graph->edges[0]), err) : EXO_OK;
    const exo_fit_engine_use use = {.far = run->far != NULL,
                                    .emulated = graph && (graph->emulated || graph->virtual_clock),
                                    .coded = codec != NULL};
    exo_codec_free(&codec);
    if (st == EXO_OK)
        st = exo_fit_find_engine(out, run->opts->engine, !run->opts->any_bits, err);
    return st == EXO_OK ? exo_fit_check_engine(*out, &use, err) : st;
}

exo_status
exo_fit_open_edge(struct run *run, exo_err *err)
{
    static _Atomic unsigned opened; /* tells the engines of this process apart */
    const exo_graph_spec *graph = run->graph;
    const exo_engine_class *engine = NULL;
    exo_status st = exo_fit_choose_engine(run, &engine, err);
    if (st != EXO_OK)
        return st;
    if (exo_fit_is_foreign(engine)) {
        char name[64];
        snprintf(name, sizeof name, "%ld-%u", (long)getpid(), opened++);
        return exo_fit_open_engine(&run->comm, engine, name, run->fit.num_nodes, run->clock, err);
    }
    if (!graph || graph->num_edges == 0)
        return exo_comm_local(&run->comm, run->fit.num_nodes, run->clock, err);
    const exo_edge_spec *edge = &graph->edges[0];
    const exo_comm_edge on = {.name = edge->carries,
                              .links = run->links,
                              .hosts = nodes_of(graph)->hosts,
                              .sim = run->sim,
                              .origin = origin_of(run),
                              .codec = exo_fit_edge_codec(edge)};
    return exo_comm_local_on(&run->comm, run->fit.num_nodes, run->sim ? exo_sim_clock(run->sim) : run->clock, &on, err);
}

/* What a strategy does itself, as SPARTA's selection, stands at its edge too, for plans: it is none that a collective could have. */
const char *
exo_fit_edge_codec(const exo_edge_spec *edge)
{
    exo_codec *codec = NULL;
    size_t size = 0;
    bool own = exo_codec_parse(&codec, edge->codec_text, NULL) != EXO_OK || !exo_codec_is_stateless(codec) ||
               !exo_codec_size(codec, 1, &size);
    exo_codec_free(&codec);
    return own ? NULL : edge->codec_text;
}

/* --- Changes ------------------------------------------------------------------------------------------------------------------ */

static exo_status
change_here(struct run *run, const exo_graph_spec *next, exo_err *err)
{
    exo_status st = run->links ? exo_graph_change_links(run->links, next, err) : EXO_OK;
    if (st == EXO_OK && next->num_edges > 0)
        st = exo_comm_recode(run->comm, exo_fit_edge_codec(&next->edges[0]), err);
    return st;
}

/* Nodes elsewhere do the same each for itself. */
static exo_status
change_there(struct run *run, const char *text, exo_err *err)
{
    Exo__Train__NodeChange m = EXO__TRAIN__NODE_CHANGE__INIT;
    m.graph = exo_args_text(text);
    exo_status st = exo_fit_ask_all(run, "change", &m.base, err);
    exo_status all = exo_fit_await_all(run, st == EXO_OK ? err : NULL);
    exo_fit_drop_futures(run);
    return st == EXO_OK ? all : st;
}

void
exo_fit_look_for_change(struct run *run)
{
    const exo_graph_spec *next = NULL;
    const char *text = NULL;
    if (!run->live || !run->graph)
        return;
    while (run->live->next(run->live->context, run->step, run->graph, &next, &text)) {
        exo_err err = {0};
        exo_status st = run->far ? change_there(run, text, &err) : change_here(run, next, &err);
        if (st == EXO_OK)
            run->graph = next;
        run->live->changed(run->live->context, run->step, (exo_time)exo_fit_elapsed(run), st, err.text);
    }
}

/* --- The report --------------------------------------------------------------------------------------------------------------- */

const char *
exo_fit_edge_name(const struct run *run)
{
    return run->graph && run->graph->num_edges ? run->graph->edges[0].name : "node>node";
}

static const char *
host_name(const struct run *run, uint32_t rank, char out[EXO_NODE_NAME])
{
    if (run->graph)
        return run->graph->hosts[nodes_of(run->graph)->hosts[rank]].spec.name;
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
    for (uint32_t r = 0; st == EXO_OK && r < run->fit.num_nodes; r++) {
        snprintf(actor, sizeof actor, "node_%u", r);
        st = exo_ledger_add(&ledger, exo_fit_edge_name(run), actor, host_name(run, r, host), &run->traffic[r], err);
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

static void
add_link(exo_link_stats *sum, const exo_link_stats *more)
{
    sum->messages += more->messages;
    sum->bytes += more->bytes;
    sum->busy += more->busy;
}

bool
exo_fit_link_stats(const struct run *run, uint32_t rank, exo_link_stats *up, exo_link_stats *down)
{
    *up = *down = (exo_link_stats){0};
    if (!run->links)
        return false;
    exo_links_host_stats(run->links, nodes_of(run->graph)->hosts[rank], up, down);
    add_link(up, &run->before.up[rank]);
    add_link(down, &run->before.down[rank]);
    return true;
}

static json_t *
host_json(const struct run *run, uint32_t rank)
{
    char name[EXO_NODE_NAME], host[EXO_NODE_NAME];
    exo_time times[3] = {0};
    const exo_track *track = &run->paces[rank].track;
    exo_link_stats up, down;
    json_t *phases = json_object();
    for (size_t i = 0; i < track->num_totals; i++) {
        times[track->totals[i].kind] += track->totals[i].time;
        json_object_set_new(phases, track->totals[i].name, seconds(track->totals[i].time));
    }
    exo_fit_link_stats(run, rank, &up, &down);
    exo_time all = exo_fit_now(run);
    snprintf(name, sizeof name, "node_%u", rank);
    return json_pack("{s:s, s:s, s:f, s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:o}", "host", host_name(run, rank, host),
                     "actor", name, "utilization", all > 0 ? (double)times[EXO_SPAN_COMPUTE] / (double)all : 0.0,
                     "compute_s", seconds(times[EXO_SPAN_COMPUTE]), "send_blocked_s",
                     seconds(times[EXO_SPAN_SEND_BLOCKED]), "recv_blocked_s", seconds(times[EXO_SPAN_RECV_BLOCKED]),
                     "up_bytes", (json_int_t)up.bytes, "down_bytes", (json_int_t)down.bytes, "up_busy_s",
                     seconds(up.busy), "down_busy_s", seconds(down.busy), "phases", phases);
}

static exo_status
write_report(const struct run *run, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH + 32];
    json_t *hosts = json_array();
    for (uint32_t r = 0; r < run->fit.num_nodes; r++)
        json_array_append_new(hosts, host_json(run, r));
    json_t *all = json_pack("{s:s, s:o, s:o, s:o}", "clock", run->sim ? "virtual" : "real", "time_s",
                            seconds(exo_fit_now(run)), "train_s", seconds(run->trained), "hosts", hosts);
    char *text = all ? json_dumps(all, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(all);
    snprintf(path, sizeof path, "%s/network.json", run->folder);
    exo_status st = text ? exo_file_write_atomic(path, text, strlen(text), err)
                         : exo_fail(err, EXO_NOMEM, "no memory for the report of the network");
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    release(text);
    return st;
}

static exo_status
write_timeline(const struct run *run, exo_err *err)
{
    char path[EXO_CHECKPOINT_PATH + 32];
    uint32_t count = run->fit.num_nodes;
    exo_timeline_track *tracks = exo_calloc(count, sizeof *tracks);
    char(*names)[EXO_NODE_NAME] = exo_calloc(count, sizeof *names);
    exo_status st = tracks && names ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for the timeline");
    for (uint32_t r = 0; st == EXO_OK && r < count; r++) {
        snprintf(names[r], sizeof names[r], "node_%u", r);
        tracks[r] =
            (exo_timeline_track){.host = host_name(run, r, names[r]), .actor = names[r], .track = &run->paces[r].track};
    }
    snprintf(path, sizeof path, "%s/timeline.json", run->folder);
    if (st == EXO_OK)
        st = exo_timeline_write(path, tracks, count, err);
    exo_free(tracks);
    exo_free(names);
    return st;
}

/* Of a part that ran in this process, before it went on in workers: it says nothing of the whole. */
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
    result->is_virtual = run->sim != NULL;
    if (run->folder[0] && run->far)
        remove_reports(run);
    if (st == EXO_OK && run->folder[0] && run->graph && (run->sim || run->links) && !run->far)
        st = write_report(run, err);
    if (st == EXO_OK && run->folder[0] && run->sim)
        st = write_timeline(run, err);
    return st;
}

void
exo_fit_close_network(struct run *run)
{
    for (uint32_t r = 0; run->paces && r < run->fit.num_nodes; r++)
        exo_pace_release(&run->paces[r]);
    exo_free(run->paces);
    exo_links_free(&run->links);
    exo_sim_free(&run->sim);
}
