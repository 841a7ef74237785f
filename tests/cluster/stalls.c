/* Stalls of graphs on workers: random graphs run on two workers, later on three, then on four. The
 * run names a planted cycle of waits exactly, and reports no stall of a sound graph, even a slow
 * one.
 *
 * EXO_CHAOS_ROUNDS: number of graphs of each kind (10). EXO_CHAOS_SEED: seed of the first graph;
 * the others follow. The main thread owns all state. Read next: tests/support/planted.h;
 * tests/plugins/script.c, the class of the actors. */
#include <stdio.h>
#include <string.h>

#include "graph/run.h"
#include "support/check.h"
#include "support/planted.h"
#include "support/processes.h"

#include "../plugins/script.c"

static processes all;
static exo_runtime *runtime;
static exo_cluster *cluster;
static planted_graph p;

struct seen {
    exo_stall_wait ring[2 * PLANTED_ACTORS];
    size_t length;
    int stalls;
};

static void
on_stall(void *context, const exo_stall *stall, exo_time at)
{
    struct seen *seen = context;
    (void)at;
    CHECK(stall->length <= 2 * PLANTED_ACTORS);
    memcpy(seen->ring, stall->cycle, stall->length * sizeof *stall->cycle);
    seen->length = stall->length;
    seen->stalls++;
}

/* Runs the graph `p`; fails and prints the graph if the outcome is wrong. */
static void
run_one(bool stalls, uint64_t seed)
{
    static uint64_t runs;
    char space[32], why[200] = "";
    struct seen seen = {0};
    exo_graph_spec *spec = NULL;
    exo_graph_result result = {0};
    exo_err err = {0};
    planted_write(&p, "played");
    snprintf(space, sizeof space, "stalls/%llu", (unsigned long long)runs++);
    CHECK(exo_graph_parse(&spec, "stalls.yaml", p.text, NULL, &err) == EXO_OK);
    const exo_graph_run_opts opts = {
        .runtime = runtime, .text = p.text, .space = space, .stalled = on_stall, .context = &seen};
    const char *const plugin = PROCESSES_PLUGIN("script");
    /* for the workers; this program has the class compiled in */
    exo_graph_spec with_plugin = *spec;
    with_plugin.plugins = &plugin;
    with_plugin.num_plugins = 1;
    exo_status st = exo_graph_run(&with_plugin, &opts, &result, &err);
    bool good = stalls ? st == EXO_FAILED && seen.stalls == 1 &&
                             planted_is_found(&p, seen.ring, seen.length, why, sizeof why)
                       : st == EXO_OK && seen.stalls == 0;
    if (!good) {
        fprintf(stderr, "EXO_CHAOS_SEED=%llu, %s: %s; %s\n%s", (unsigned long long)seed,
                stalls ? "planted" : "sound", err.text, why, p.text);
        all.failed = true;
    }
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
}

int
main(void)
{
    uint64_t rounds = processes_setting("EXO_CHAOS_ROUNDS", 10),
             first = processes_setting("EXO_CHAOS_SEED", (uint64_t)processes_now() % 1000000),
             done = 0;
    unsigned workers = 0;
    printf("EXO_CHAOS_SEED=%llu EXO_CHAOS_ROUNDS=%llu\n", (unsigned long long)first,
           (unsigned long long)rounds);
    fflush(stdout);
    CHECK(exo_plugin_init(NULL) == EXO_OK);
    processes_open(&all);
    CHECK(processes_start_head(&all));
    cluster = processes_join(&all, "stalls", &runtime);
    for (; done < rounds && !all.failed; done++) {
        while (workers < 2 + 3 * done / rounds) /* two, three and four, each for a third */
            CHECK(processes_start_worker(&all, workers++, true));
        planted_stall(&p, first + done, PLANTED_FAR);
        run_one(true, first + done);
        planted_sound(&p, first + done, PLANTED_FAR);
        run_one(false, first + done);
    }
    processes_leave(&cluster, &runtime);
    bool good = processes_close(&all);
    printf("%llu of %llu planted, as many sound: %s\n", (unsigned long long)done,
           (unsigned long long)rounds, good ? "good" : "failed");
    return good ? 0 : 1;
}
