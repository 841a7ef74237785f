/* Each allocation of a run fails in turn: the run ends soon, with OK or NOMEM, and nothing leaks.
 * Which allocation is the n-th depends on the threads, so only many runs of this test fail each
 * one.
 *
 * Each test owns its graph. Read next: runtime/base/memory_fault.h, runtime/graph/run.h. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <exogym/exogym.h>

#include "actors/fit_run.h"
#include "base/memory_fault.h"
#include "comm/edge.h"
#include "graph/run.h"
#include "report/ledger.h"
#include "report/timeline.h"
#include "support/points.h"
#include "support/stream.h"
#include "support/temp.h"

/* Sanitizers are slow, so they fail each third allocation, with a varying first one. */
#if defined __SANITIZE_ADDRESS__
enum {
    STRIDE = 3
};
#else
enum {
    STRIDE = 1
};
#endif

/* Calls `act` with each allocation failed in turn, until `act` makes fewer allocations. A run that
 * waits until a deadline, of a minute, ends with TIMEOUT. */
static void
fail_each(exo_status (*act)(void *context, exo_err *err), void *context)
{
    for (uint64_t n = 1 + (uint64_t)getpid() % STRIDE;; n += STRIDE) {
        exo_err err = {0};
        uint64_t before = exo_memory_allocations();
        exo_memory_fail_at(n);
        exo_status st = act(context, &err);
        exo_memory_fail_at(0);
        cr_assert(st == EXO_OK || st == EXO_NOMEM, "allocation %u: %s: %s", (unsigned)n,
                  exo_status_text(st), err.text);
        if (exo_memory_allocations() - before < n) {
            cr_assert_eq(st, EXO_OK, "%s", err.text);
            return;
        }
    }
}

/* --- Graphs ----------------------------------------------------------------------------------- */

static char timeline[128];

static exo_status
run_graph(void *context, exo_err *err)
{
    exo_graph_result result = {0};
    const exo_graph_run_opts opts = {.space = "poor", .timeline = timeline};
    exo_status st = exo_graph_run(context, &opts, &result, err);
    exo_graph_result_release(&result);
    return st;
}

static void
fail_each_run(exo_graph_spec *spec)
{
    char folder[64];
    temp_folder(folder, sizeof folder);
    snprintf(timeline, sizeof timeline, "%s/timeline.json", folder);
    fail_each(run_graph, spec);
    temp_remove(folder);
    exo_graph_spec_free(&spec);
}

static void
fail_graph(const char *clock)
{
    exo_graph_spec *spec = stream_graph(
        "exogym: 1\n"
        "name: poor\n"
        "clock: %s\n"
        "actors:\n"
        "  source: {class: stream_source, count: 2, config: {items: 6, size: 100}}\n"
        "  sink: {class: stream_sink, count: 2, config: {rounds: 2}}\n"
        "edges:\n"
        "  - {from: source, to: sink, carries: items, route: round_robin, buffer: {capacity: 2}, "
        "codec: [int8, zstd], deadline: 60 s}\n"
        "  - {from: sink, to: sink, carries: sums, codec: bf16, deadline: 60 s}\n"
        "links: {default: {bandwidth: 1 Gbit/s, latency: 100 us}}\n",
        clock);
    fail_each_run(spec);
}

Test(graph_memory, a_run_on_the_real_clock_ends, .timeout = 280)
{
    fail_graph("real");
}

Test(graph_memory, a_run_on_the_virtual_clock_ends, .timeout = 280)
{
    fail_graph("virtual");
}

Test(graph_memory, collectives_beside_the_computation_end, .timeout = 280)
{
    static const char *const clocks[] = {"real", "virtual"};
    for (int c = 0; c < 2; c++) {
        exo_graph_spec *spec = stream_graph(
            "exogym: 1\n"
            "name: poor\n"
            "clock: %s\n"
            "actors:\n"
            "  worker: {class: stand_in, count: 3, config: {steps: 3, layers: 4, forward: 1 ms, "
            "backward: 2 ms}}\n"
            "edges:\n"
            "  - {from: worker, to: worker, carries: gradients, codec: int8, deadline: 60 s}\n"
            "links: {default: {bandwidth: 10 Gbit/s, latency: 100 us}}\n",
            clocks[c]);
        fail_each_run(spec);
    }
}

/* --- A fit on the virtual clock --------------------------------------------------------------- */

struct fit {
    exo_model *model;
    exo_dataset *train, *val;
    exo_config_doc *doc;
    exo_fit_opts opts;
    exo_graph_spec *graph;
};

static exo_status
run_fit(void *context, exo_err *err)
{
    struct fit *f = context;
    exo_fit_result result = {0};
    exo_status st = exo_fit_run(f->model, f->train, f->val, "ddp", exo_config_root(f->doc),
                                &f->opts, NULL, f->graph, NULL, &result, err);
    exo_params_free(&result.params);
    return st;
}

Test(graph_memory, a_fit_on_the_virtual_clock_ends, .timeout = 280)
{
    static uint32_t placed[2] = {0, 1};
    exo_emulated_host hosts[2];
    exo_compute_spec step = {.phase = "step", .cost = EXO_MS};
    exo_actor_spec actor = {
        .name = "node", .count = 2, .hosts = placed, .compute = &step, .num_compute = 1};
    exo_edge_spec edge = {.name = "node>node:gradients",
                          .carries = "gradients",
                          .route = EXO_ROUTE_ALL_REDUCE,
                          .codec_text = "raw",
                          .link = -1};
    exo_named_link link = {
        .name = "default",
        .is_default = true,
        .from = -1,
        .to = -1,
        .spec = {.bandwidth = 1e9, .latency = EXO_MS, .transport = EXO_LINK_IDEAL}};
    for (int h = 0; h < 2; h++)
        hosts[h] = (exo_emulated_host){.spec = {.name = h ? "b" : "a", .up = 1e9, .down = 1e9},
                                       .speed = 1};
    exo_graph_spec graph = {.source = "test",
                            .name = "poor",
                            .virtual_clock = true,
                            .actors = &actor,
                            .num_actors = 1,
                            .edges = &edge,
                            .num_edges = 1,
                            .hosts = hosts,
                            .num_hosts = 2,
                            .links = &link,
                            .num_links = 1,
                            .emulated = true};
    struct fit f = {.model = points_mlp(),
                    .train = points_new(40, 1, SIZE_MAX),
                    .val = points_new(16, 2, SIZE_MAX),
                    .opts = exo_fit_opts_init(),
                    .graph = &graph};
    f.opts.num_nodes = 2;
    f.opts.batch_size = 2;
    f.opts.max_steps = 2;
    f.opts.save_dir = NULL;
    f.opts.timeout = 60 * EXO_SECOND;
    cr_assert_eq(exo_config_parse(&f.doc, "options", "{}", NULL), EXO_OK);
    fail_each(run_fit, &f);
    exo_config_free(&f.doc);
    exo_dataset_drop(&f.train);
    exo_dataset_drop(&f.val);
    exo_model_drop(&f.model);
}

/* --- Parts of runs ---------------------------------------------------------------------------- */

static exo_status
make_comm(void *context, exo_err *err)
{
    exo_links *links = NULL;
    exo_comm *comm = NULL;
    exo_group *groups[3] = {0}, *some = NULL;
    const uint32_t alone = 1;
    float number = 1;
    static const uint32_t hosts[3] = {0, 1, 2};
    const exo_host_spec specs[3] = {{.name = "a", .up = 1e9, .down = 1e9},
                                    {.name = "b", .up = 1e9, .down = 1e9},
                                    {.name = "c", .up = 1e9, .down = 1e9}};
    const exo_link_spec link = {.bandwidth = 1e9, .latency = EXO_MS, .transport = EXO_LINK_IDEAL};
    (void)context;
    exo_status st = exo_links_new(&links, specs, 3, &link, 1, err);
    const exo_comm_edge edge = {.name = "e", .links = links, .hosts = hosts, .codec = "int8"};
    if (st == EXO_OK)
        st = exo_comm_local_on(&comm, 3, exo_clock_real(), &edge, err);
    for (uint32_t r = 0; st == EXO_OK && r < 3; r++)
        st = exo_group_open(&groups[r], comm, r, "m", err);
    if (st == EXO_OK)
        st = exo_group_among(&some, groups[1], &alone, 1, err);
    if (st == EXO_OK)
        st = exo_all_reduce(some, exo_host_array(EXO_F32, &number, 1), EXO_MEAN, err);
    exo_group_close(&some);
    for (uint32_t r = 0; r < 3; r++)
        exo_group_close(&groups[r]);
    exo_comm_drop(&comm);
    exo_links_free(&links);
    return st;
}

static exo_status
call_alone(void *context, exo_err *err)
{
    exo_comm *comm = NULL;
    exo_group *group = NULL;
    float data[100] = {1};
    const exo_comm_edge edge = {.name = "e", .codec = "int8"};
    (void)context;
    exo_status st = exo_comm_local_on(&comm, 1, exo_clock_real(), &edge, err);
    if (st == EXO_OK)
        st = exo_group_open(&group, comm, 0, "m", err);
    if (st == EXO_OK)
        st = exo_all_reduce(group, exo_host_array(EXO_F32, data, 100), EXO_SUM, err);
    exo_group_close(&group);
    exo_comm_drop(&comm);
    return st;
}

Test(graph_memory, communicators_on_edges)
{
    fail_each(make_comm, NULL);
    fail_each(call_alone, NULL);
}

static exo_status
fill_ledger(void *context, exo_err *err)
{
    exo_ledger ledger = {0};
    exo_status st = EXO_OK;
    char actor[16];
    for (int i = 0; st == EXO_OK && i < 40; i++) {
        const exo_traffic traffic = {.messages = 1};
        snprintf(actor, sizeof actor, "actor_%d", i);
        st = exo_ledger_add(&ledger, "edge", actor, "host", &traffic, err);
    }
    if (st == EXO_OK) {
        cr_expect_eq(exo_ledger_sum(&ledger, NULL).messages, 40);
        st = exo_ledger_write(&ledger, context, err);
    }
    exo_ledger_release(&ledger);
    return st;
}

static exo_status
write_timeline(void *context, exo_err *err)
{
    exo_track track = {.limit = 1000};
    for (int i = 0; i < 200; i++)
        exo_track_add(&track, i % 2 ? "a" : "b", EXO_SPAN_COMPUTE, i * 10, i * 10 + 5);
    cr_expect_eq(track.length + track.lost, 200);
    cr_expect_eq(track.totals[0].time + track.totals[1].time, 1000);
    const exo_timeline_track tracks[] = {{.host = "h", .actor = "a", .track = &track}};
    exo_status st = exo_timeline_write(context, tracks, 1, err);
    exo_track_release(&track);
    return st;
}

Test(graph_memory, ledgers_and_timelines)
{
    char path[] = "/tmp/exogym-poor-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
    fail_each(fill_ledger, path);
    fail_each(write_timeline, path);
    unlink(path);
}
