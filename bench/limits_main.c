/* Prints a table of the limits of the machine and of libzmq. Each round measures everything once;
 * the figures are medians over the rounds. Read limits.h first.
 *
 *     bench_limits [ROUNDS]
 */
#include <stdio.h>
#include <stdlib.h>

#include "limits.h"

enum {
    ROUND_TRIPS = 5000,
    PIPELINED = 100000,
    WINDOW = 1000,
    BYTES = 64
};

static const struct {
    bench_placement placement;
    const char *name;
} futexes[] = {{BENCH_ANYWHERE, "futex, placed by the kernel"},
               {BENCH_ONE_CORE, "futex, one core"},
               {BENCH_TWO_CORES, "futex, two cores"}};

static const struct {
    size_t bytes, rounds;
} copies[] = {{64, 200}, {4 << 10, 200}, {64 << 10, 200}, {1 << 20, 200}, {64 << 20, 9}};

enum {
    FUTEXES = sizeof futexes / sizeof futexes[0],
    COPIES = sizeof copies / sizeof copies[0]
};

/* All measurements of all rounds. */
struct table {
    bench_stats futex[FUTEXES][BENCH_MAX_REPEATS];
    bool has_futex[FUTEXES];
    bench_stats round_trip[BENCH_TRANSPORTS][BENCH_MAX_REPEATS],
        pipelined[BENCH_TRANSPORTS][BENCH_MAX_REPEATS];
    bench_stats copy[COPIES][BENCH_MAX_REPEATS];
};

static exo_status
measure_round(struct table *t, bench_echo **echoes, size_t round, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < FUTEXES; i++) {
        st = bench_futex_round_trips(futexes[i].placement, ROUND_TRIPS, &t->futex[i][round], err);
        t->has_futex[i] = st == EXO_OK;
        if (st == EXO_UNSUPPORTED)
            st = EXO_OK;
    }
    for (int i = 0; st == EXO_OK && i < BENCH_TRANSPORTS; i++) {
        if (echoes[i])
            st = bench_echo_run(echoes[i], BYTES, 1, ROUND_TRIPS, &t->round_trip[i][round], err);
    }
    for (int i = 0; st == EXO_OK && i < BENCH_TRANSPORTS; i++) {
        if (echoes[i])
            st = bench_echo_run(echoes[i], BYTES, WINDOW, PIPELINED, &t->pipelined[i][round], err);
    }
    for (size_t i = 0; st == EXO_OK && i < COPIES; i++)
        st = bench_memcpy(copies[i].bytes, copies[i].rounds, &t->copy[i][round], err);
    return st;
}

static void
print_latency(const char *name, const bench_stats *repeats, size_t rounds)
{
    bench_stats m = bench_stats_median(repeats, rounds);
    printf("%-34s %9.2f %9.2f %9.2f %12.0f\n", name, m.p50 * 1e-3, m.p99 * 1e-3, m.p999 * 1e-3,
           m.rate);
}

static void
print_table(const struct table *t, bench_echo *const *echoes, size_t rounds)
{
    char name[64];
    printf("%-34s %9s %9s %9s %12s\n", "", "p50 us", "p99 us", "p99.9 us", "per second");
    for (size_t i = 0; i < FUTEXES; i++) {
        if (t->has_futex[i])
            print_latency(futexes[i].name, t->futex[i], rounds);
    }
    for (int i = 0; i < BENCH_TRANSPORTS; i++) {
        snprintf(name, sizeof name, "libzmq %s", bench_transport_name((bench_transport)i));
        if (echoes[i])
            print_latency(name, t->round_trip[i], rounds);
    }
    for (int i = 0; i < BENCH_TRANSPORTS; i++) {
        snprintf(name, sizeof name, "libzmq %s, %d under way",
                 bench_transport_name((bench_transport)i), WINDOW);
        if (echoes[i])
            print_latency(name, t->pipelined[i], rounds);
    }
    printf("\n%-34s %9s %9s %9s %12s\n", "memcpy, bytes", "p50 ns", "p99 ns", "p99.9 ns",
           "GB/s copied");
    for (size_t i = 0; i < COPIES; i++) {
        bench_stats m = bench_stats_median(t->copy[i], rounds);
        printf("%-34zu %9.1f %9.1f %9.1f %12.1f\n", copies[i].bytes, m.p50, m.p99, m.p999,
               (double)copies[i].bytes / m.p50);
    }
    printf("\nround trips between two threads (futex, inproc) or processes, %d bytes; medians of "
           "%zu rounds\n",
           BYTES, rounds);
}

int
main(int argc, char **argv)
{
    static struct table table;
    bench_echo *echoes[BENCH_TRANSPORTS] = {NULL};
    long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 5;
    double load = 0;
    exo_err err = {0};
    exo_status st = EXO_OK;
    if (getloadavg(&load, 1) == 1 && load > 0.5)
        fprintf(stderr, "bench_limits: something else may be running here (load average %.2f)\n",
                load);
    if (rounds < 1 || rounds > BENCH_MAX_REPEATS) {
        fprintf(stderr, "bench_limits: rounds are 1 to %d\n", BENCH_MAX_REPEATS);
        return EXIT_FAILURE;
    }

    for (int i = 0; st == EXO_OK && i < BENCH_TRANSPORTS; i++) {
        st = bench_echo_open(&echoes[i], (bench_transport)i, &err);
        if (st == EXO_UNSUPPORTED)
            st = EXO_OK; /* a libzmq without CURVE: a row less */
    }
    for (size_t i = 0; st == EXO_OK && i < (size_t)rounds; i++)
        st = measure_round(&table, echoes, i, &err);
    if (st == EXO_OK)
        print_table(&table, echoes, (size_t)rounds);
    else
        fprintf(stderr, "bench_limits: %s\n", err.text);
    for (int i = 0; i < BENCH_TRANSPORTS; i++)
        bench_echo_close(&echoes[i]);
    return st == EXO_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
