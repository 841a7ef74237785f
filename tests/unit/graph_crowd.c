/* Many actors on the real clock: the cost of many small items between them, counted in threads and
 * wake-ups, because tests do not measure time. The tests have no shared state. Read next:
 * runtime/graph/run.h, support/stream.h. */
#include <criterion/criterion.h>

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/memory_fault.h"
#include "graph/run.h"
#include "support/stream.h"

enum {
    SOURCES = 30,
    SINKS = 30,
    ITEMS = 10,
    ARRIVALS = SOURCES * SINKS * ITEMS
};

struct crowd {
    double items, digest;
    size_t threads; /* the most at one time */
    long switches;  /* voluntary context switches of all threads but the counter's */
};

static size_t
count_threads(void)
{
    size_t count = 0;
    DIR *tasks = opendir("/proc/self/task");
    cr_assert(tasks);
    for (const struct dirent *t; (t = readdir(tasks));)
        count += t->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static uint64_t
allocations_of(const char *make, const char *tick)
{
    exo_err err = {0};
    exo_graph_result result = {0};
    const exo_graph_run_opts opts = {.space = "crowd"};
    exo_graph_spec *spec = stream_graph(
        "clock: virtual\n"
        "actors:\n"
        "  source: {class: stream_source, count: %d, config: {items: %d, size: 8}, compute: {make: "
        "%s}}\n"
        "  sink: {class: stream_sink, count: %d}\n"
        "  clock: {class: stream_source, config: {items: 400, size: 8}, compute: {make: %s}}\n"
        "  hand: {class: stream_sink}\n"
        "edges:\n"
        "  - {from: source, to: sink, carries: items, route: broadcast, deadline: 60 s}\n"
        "  - {from: clock, to: hand, carries: items}\n",
        SOURCES, ITEMS, make, SINKS, tick);
    uint64_t before = exo_memory_allocations();
    cr_assert_eq(exo_graph_run(spec, &opts, &result, &err), EXO_OK, "%s", err.text);
    uint64_t allocations = exo_memory_allocations() - before;
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
    return allocations;
}

/* An actor's record needs memory. It is made only while actors wait for each other. */
Test(graph_crowd, looking_for_stalls_costs_little_however_long_the_run_is, .timeout = 300)
{
    uint64_t quick = allocations_of("1 us", "1 us"), slow = allocations_of("20 s", "500 ms");
    cr_expect_lt(slow, quick + quick / 20, "%llu allocations, and %llu in 200 s",
                 (unsigned long long)quick, (unsigned long long)slow);
}

/* Counts the threads repeatedly. */
struct counter {
    pthread_t thread;
    atomic_bool stop;
    size_t most;
    long switches; /* of this thread itself */
};

static long
switches_of(int who)
{
    struct rusage usage;
    cr_assert_eq(getrusage(who, &usage), 0);
    return usage.ru_nvcsw;
}

static void *
counter_main(void *argument)
{
    struct counter *counter = argument;
    while (!counter->stop) {
        size_t threads = count_threads();
        counter->most = threads > counter->most ? threads : counter->most;
        usleep(1000);
    }
    counter->switches = switches_of(RUSAGE_THREAD);
    return NULL;
}

static void
add_meter(void *context, const exo_meter_sample *s)
{
    struct crowd *crowd = context;
    if (strcmp(s->meter_class->name, "items") == 0)
        crowd->items += (double)s->count;
    else if (strcmp(s->meter_class->name, "digest") == 0)
        crowd->digest = fmod(crowd->digest + (double)s->count, 0x1p52);
}

static struct crowd
run(const char *clock)
{
    struct crowd crowd = {0};
    exo_err err = {0};
    exo_graph_result result = {0};
    exo_graph_spec *spec = stream_graph(
        "clock: %s\n"
        "actors:\n"
        "  source: {class: stream_source, count: %d, config: {items: %d, size: 8}}\n"
        "  sink: {class: stream_sink, count: %d}\n"
        "edges: [{from: source, to: sink, carries: items, route: broadcast, deadline: 60 s}]\n",
        clock, SOURCES, ITEMS, SINKS);
    const exo_graph_run_opts opts = {.space = "crowd"};
    struct counter counter = {0};
    cr_assert_eq(pthread_create(&counter.thread, NULL, counter_main, &counter), 0);
    long before = switches_of(RUSAGE_SELF);
    cr_assert_eq(exo_graph_run(spec, &opts, &result, &err), EXO_OK, "%s", err.text);
    crowd.switches = switches_of(RUSAGE_SELF) - before;
    counter.stop = true;
    cr_assert_eq(pthread_join(counter.thread, NULL), 0);
    crowd.threads = counter.most;
    crowd.switches -= counter.switches; /* one each millisecond, also on a machine that is slow */
    cr_assert_eq(exo_meters_walk(result.meters, add_meter, &crowd, &err), EXO_OK, "%s", err.text);
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
    return crowd;
}

Test(graph_crowd, small_items_need_no_thread_for_each_pair_and_wake_few, .timeout = 300)
{
    const struct crowd real = run("real"), virtual = run("virtual");
    cr_expect_eq(real.items, ARRIVALS);
    cr_expect_eq(virtual.items, ARRIVALS);
    cr_expect_eq(real.digest, virtual.digest, "the same items");
    cr_expect_lt(real.threads, 2 * (SOURCES + SINKS), "%zu threads for %d actors", real.threads,
                 SOURCES + SINKS);
    cr_expect_lt(real.switches, 6 * ARRIVALS, "%ld waits for %d arrivals", real.switches, ARRIVALS);
}
