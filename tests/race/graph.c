/* Graphs under the thread sanitizer: several sources and sinks on either clock, over every route
 * and on_full, with ends, errors, cancels, and receivers that leave early, while the progress
 * callback reads the ledger. Each run owns its graph. Read next: runtime/graph/run.h;
 * tests/support/stream.h. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <exogym/exogym.h>

#include "graph/run.h"
#include "support/check.h"
#include "support/stream.h"

enum {
    ITEMS = 40 /* of each source; see `form` */
};

static const char *const clocks[] = {"real", "virtual"};

/* {clock, more of the document, count of sources, large items, costs of a source, count of sinks,
 * config of a sink, costs of a sink, edge} */
static const char form[] =
    "exogym: 1\n"
    "name: race\n"
    "seed: 3\n"
    "clock: %s\n"
    "%s"
    "actors:\n"
    "  source: {class: stream_source, count: %d, config: {items: 40, size: 300, large: %d}%s}\n"
    "  sink: {class: stream_sink, count: %d, config: {%s}%s}\n"
    "edges:\n"
    "  - {from: source, to: sink, carries: items, deadline: 20 s, %s}\n"
    "  - {from: sink, to: sink, carries: sums, deadline: 20 s}\n";

struct what {
    const char *more, *edge, *sink, *source_costs, *sink_costs;
    exo_status expected;
    exo_time stop_after; /* 0: no stop */
    bool cut;            /* not all items come */
};

/* The items that all sinks took, by their meters. */
static void
add_items(void *context, const exo_meter_sample *s)
{
    uint64_t *items = context;
    if (strcmp(s->meter_class->name, "items") == 0)
        *items += (uint64_t)s->count;
}

struct stopper {
    exo_time after;
    _Atomic int stop;
};

static void *
stopper_main(void *argument)
{
    struct stopper *s = argument;
    const struct timespec time = {.tv_nsec = (long)s->after};
    nanosleep(&time, NULL);
    s->stop = 1;
    return NULL;
}

static void
look(void *context, const exo_graph_progress *progress)
{
    size_t *looks = context;
    exo_ledger_sum(progress->ledger, NULL);
    (*looks)++;
}

static void
run(const char *clock, const struct what *w, int sources, int sinks, int large)
{
    exo_err err = {0};
    exo_graph_result result = {0};
    struct stopper stopper = {.after = w->stop_after};
    pthread_t thread;
    size_t looks = 0;
    uint64_t items = 0;
    exo_graph_spec *spec = stream_graph(
        form, clock, w->more ? w->more : "", sources, large, w->source_costs ? w->source_costs : "",
        sinks, w->sink ? w->sink : "", w->sink_costs ? w->sink_costs : "", w->edge);
    const exo_graph_run_opts opts = {
        .space = "race", .interval = 1, .progress = look, .context = &looks, .stop = &stopper.stop};
    if (w->stop_after)
        CHECK(pthread_create(&thread, NULL, stopper_main, &stopper) == 0);
    exo_status st = exo_graph_run(spec, &opts, &result, &err);
    if (w->stop_after)
        CHECK(pthread_join(thread, NULL) == 0);
    if (st != w->expected)
        fprintf(stderr, "%s clock, %s, %s: %s\n", clock, w->edge, w->sink ? w->sink : "", err.text);
    CHECK(st == w->expected);
    if (st == EXO_OK)
        CHECK(exo_meters_walk(result.meters, add_items, &items, &err) == EXO_OK);
    uint64_t all = (uint64_t)(ITEMS * sources * (strstr(w->edge, "broadcast") ? sinks : 1));
    /* on the real clock a run's time may pass before the first item has come */
    bool may_be_none = strcmp(clock, "real") == 0 && w->more && strstr(w->more, "until");
    if (st == EXO_OK && (w->cut ? (items == 0 && !may_be_none) || items > all : items != all)) {
        fprintf(stderr, "%s clock, %s, %s: %llu items of %llu\n", clock, w->edge,
                w->sink ? w->sink : "", (unsigned long long)items, (unsigned long long)all);
        abort();
    }
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
}

enum {
    CHANGES = 6 /* more edges than a port begins with */
};

struct changes {
    exo_graph_spec *graphs[CHANGES];
    size_t given, made;
};

static bool
next_graph(void *context, const exo_graph_spec *now, const exo_graph_spec **graph,
           const char **text)
{
    struct changes *c = context;
    (void)now;
    (void)text;
    if (c->given == CHANGES)
        return false;
    *graph = c->graphs[c->given++];
    return true;
}

static void
graph_changed(void *context, exo_time at, exo_status status, const char *reason)
{
    struct changes *c = context;
    (void)at;
    (void)reason;
    c->made += status == EXO_OK;
}

/* The edge of items changes repeatedly while sources send and sinks receive. */
static void
change(void)
{
    struct changes changes = {0};
    exo_err err = {0};
    exo_graph_spec *graphs[CHANGES + 1];
    for (int i = 0; i <= CHANGES; i++) {
        char edge[80];
        snprintf(edge, sizeof edge, "route: round_robin, buffer: {capacity: %d}", i + 1);
        graphs[i] = stream_graph(form, "real", "", 2, 0, ", compute: {make: 2 ms}", 2, "rounds: 5",
                                 "", edge);
    }
    memcpy(changes.graphs, &graphs[1], sizeof changes.graphs);
    const exo_graph_run_opts opts = {
        .space = "race", .next = next_graph, .changed = graph_changed, .context = &changes};
    for (int i = 0; i < 20 && changes.made == 0; i++) { /* a run may end before a change is made */
        exo_graph_result result = {0};
        changes.given = 0;
        CHECK(exo_graph_run(graphs[0], &opts, &result, &err) == EXO_OK);
        exo_graph_result_release(&result);
    }
    CHECK(changes.made > 0);
    for (int i = 0; i <= CHANGES; i++)
        exo_graph_spec_free(&graphs[i]);
}

int
main(void)
{
    static const char links[] =
        "links: {default: {bandwidth: 400 Mbit/s, latency: 1 ms, transport: ideal}}\n";
    static const struct what all[] = {
        {.edge = "route: round_robin", .sink = "rounds: 5"},
        {.edge = "route: broadcast, codec: bf16, buffer: {capacity: 1}", .sink = "rounds: 5"},
        {.edge = "route: least_loaded", .more = links, .sink = "rounds: 5"},
        {.edge = "route: gossip, codec: [int8, zstd]", .more = links},
        {.edge = "route: round_robin, buffer: {capacity: 2, on_full: drop_oldest}",
         .sink_costs = ", compute: {use: 1 ms}",
         .cut = true},
        {.edge = "route: round_robin, buffer: {capacity: 2, on_full: drop_newest}",
         .sink_costs = ", compute: {use: 1 ms}",
         .cut = true},
        {.edge = "route: broadcast, buffer: {capacity: 1, on_full: latest}",
         .sink_costs = ", compute: {use: 1 ms}",
         .cut = true},
        /* the sinks leave, and are passed over */
        {.edge = "route: round_robin", .sink = "take: 5", .cut = true},
        {.edge = "route: broadcast", .sink = "take: 5", .more = links, .cut = true},
        {.edge = "route: round_robin", .sink = "fail_at: 7, rounds: 3", .expected = EXO_FAILED},
        {.edge = "route: broadcast, buffer: {capacity: 1}",
         .sink = "fail_at: 20",
         .more = links,
         .expected = EXO_FAILED},
        {.edge = "route: round_robin",
         .more = "until: 30 ms\n",
         .sink = "rounds: 2",
         .source_costs = ", compute: {make: 2 ms}",
         .cut = true},
        {.edge = "route: round_robin",
         .sink = "rounds: 100000",
         .stop_after = 60 * EXO_MS,
         .expected = EXO_CANCELLED}, /* while in the collectives */
        {.edge = "route: broadcast, buffer: {capacity: 1}",
         .sink = "pause: 20 ms",
         .stop_after = 60 * EXO_MS,
         .expected = EXO_CANCELLED}, /* while in send */
    };
    for (size_t c = 0; c < 2; c++)
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            run(clocks[c], &all[i], 3, 2, 0);
            /* larger than EXO_LIGHT_ITEM: the outlets' threads send these, between light items */
            run(clocks[c], &all[i], 2, 3, 6000);
        }
    change();
    return 0;
}
