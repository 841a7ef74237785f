/* What the machine and libzmq can do at best: the limits that benchmarks print beside their own figures, measured in the same
 * run. Also what every benchmark needs: the time, a recorder of samples, and medians over repeats.
 *
 * A figure of one repeat is a bench_stats; several repeats become one by bench_stats_median. To compare, alternate: one repeat of
 * ours, one of the limit, and again. bench/limits_main.c shows the whole of it.
 *
 * Nothing here spins, and every wait has a deadline.
 */
#ifndef BENCH_LIMITS_H
#define BENCH_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

/* The machine's monotonic clock, ns. Any thread. */
int64_t bench_now(void);

/* --- Samples ---------------------------------------------------------------------------------------------------------- */

/* One repeat of one measurement. */
typedef struct bench_stats {
    double p50, p99, p999; /* ns; nearest rank */
    double rate;           /* operations per second, over the whole repeat */
} bench_stats;

/* Durations in order of arrival. Owner: one thread at a time. */
typedef struct bench_recorder {
    int64_t *ns;
    size_t count, capacity;
} bench_recorder;

/* Room for `capacity` samples; nothing is allocated while recording. Errors: NOMEM. */
exo_status bench_recorder_init(bench_recorder *recorder, size_t capacity, exo_err *err);
/* Frees the samples; also right after a failed init, and twice. */
void bench_recorder_release(bench_recorder *recorder);
/* Adds a sample; one that finds no room is left out. */
void bench_record(bench_recorder *recorder, int64_t ns);
/* Percentiles of the samples, which it sorts, and `operations` per `elapsed` ns; then the recorder is empty again.
 * All zero without samples. */
bench_stats bench_recorder_take(bench_recorder *recorder, size_t operations, int64_t elapsed);

enum {
    BENCH_MAX_REPEATS = 64
};

/* The median of each field by itself; `count` is 1 to BENCH_MAX_REPEATS. With an even count, the mean of the two in the
 * middle. */
bench_stats bench_stats_median(const bench_stats *repeats, size_t count);
/* The same of plain numbers, which it sorts. */
double bench_median(double *values, size_t count);

/* --- The machine -------------------------------------------------------------------------------------------------------- */

/* Where the two threads of a futex round trip may run. */
typedef enum bench_placement {
    BENCH_ANYWHERE, /* wherever the kernel puts them */
    BENCH_ONE_CORE, /* both on one core */
    BENCH_TWO_CORES /* each on its own core */
} bench_placement;

/* `count` round trips between two threads of this process: SYS_futex wait and wake, nothing else, no spinning. What no
 * hand-over to a sleeping thread and back can beat. Starts a thread and joins it; the caller's placement is as before
 * afterwards. Errors: NOMEM, IO, TIMEOUT; UNSUPPORTED if there are too few cores. Blocks: for the measurement. */
exo_status bench_futex_round_trips(bench_placement placement, size_t count, bench_stats *out,
                                   exo_err *err);

/* memcpy of `bytes` from warm memory to warm memory, one thread: the stats are of one copy, rate is copies per second.
 * Small copies are timed in batches, so their percentiles are of batch means. Errors: NOMEM. */
exo_status bench_memcpy(size_t bytes, size_t rounds, bench_stats *out, exo_err *err);

/* Fused multiplications and additions in fp32 with all compute threads, in GFLOP/s, two operations each: the best of three. */
double bench_peak_fp32(void);

/* --- libzmq --------------------------------------------------------------------------------------------------------------- */

typedef enum bench_transport {
    BENCH_INPROC, /* between two threads */
    BENCH_IPC,    /* this and the others: between two processes */
    BENCH_TCP,    /* on the loopback interface */
    BENCH_TCP_CURVE,
    BENCH_TRANSPORTS
} bench_transport;

const char *bench_transport_name(bench_transport transport);

/* A DEALER here and a ROUTER elsewhere that echoes, bare libzmq: blocking zmq_send and zmq_recv, a context with one io
 * thread on either side (one in common for inproc). Not for several threads at a time. */
typedef struct bench_echo bench_echo;

/* Forks the process that echoes and waits until it is bound. It dies with the thread that calls this. Since it forks,
 * call it before there are threads; it starts none itself, so open every echo that you need first. inproc forks
 * nothing. Errors: NOMEM, IO, TIMEOUT; UNSUPPORTED: libzmq without CURVE. */
exo_status bench_echo_open(bench_echo **out, bench_transport transport, exo_err *err);
/* Ends the other side; blocks until it has ended. NULL is fine. */
void bench_echo_close(bench_echo **echo);

/* `count` messages of `bytes`, of which `window` are under way at any time: 1 is a plain round trip. The stats are of
 * the time from sending to receiving and of messages per second. A tenth as many are sent before, unmeasured. Errors:
 * INVAL: window or count is 0; NOMEM, IO, TIMEOUT. Blocks: for the measurement. */
exo_status bench_echo_run(bench_echo *echo, size_t bytes, size_t window, size_t count,
                          bench_stats *out, exo_err *err);

#endif
