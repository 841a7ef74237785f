/* Limits of the machine and of libzmq. Benchmarks measure them in the same run, and print them
 * beside their own figures. Also the tools of every benchmark: the time, a recorder of samples, and
 * medians over repeats.
 *
 * One repeat of a measurement gives a bench_stats, and bench_stats_median combines several repeats.
 * To compare two things, alternate their repeats. bench/limits_main.c is a complete example.
 *
 * No function spins, and every wait has a deadline.
 */
#ifndef BENCH_LIMITS_H
#define BENCH_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

/* The machine's monotonic clock, in ns. Any thread. */
int64_t bench_now(void);

/* --- Samples ---------------------------------------------------------------------------------- */

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
/* Frees the samples. It may follow a failed init, and may be called twice. */
void bench_recorder_release(bench_recorder *recorder);
/* Adds a sample; drops it if there is no room. */
void bench_record(bench_recorder *recorder, int64_t ns);
/* Returns percentiles of the samples, and the rate of `operations` in `elapsed` ns; all zero
 * without samples. Empties the recorder. */
bench_stats bench_recorder_take(bench_recorder *recorder, size_t operations, int64_t elapsed);

enum {
    BENCH_MAX_REPEATS = 64
};

/* The median of each field by itself; of an even count, the mean of the two in the middle. `count`
 * is 1 to BENCH_MAX_REPEATS. */
bench_stats bench_stats_median(const bench_stats *repeats, size_t count);
/* The median of `values`, which it sorts. `count` is at least 1. */
double bench_median(double *values, size_t count);

/* --- The machine ------------------------------------------------------------------------------ */

/* Where the two threads of a futex round trip may run. */
typedef enum bench_placement {
    BENCH_ANYWHERE, /* wherever the kernel puts them */
    BENCH_ONE_CORE, /* both on one core */
    BENCH_TWO_CORES /* each on its own core */
} bench_placement;

/* Measures `count` round trips between two threads of this process, by SYS_futex wait and wake
 * alone, without spinning: a lower bound of any hand-over to a sleeping thread and back. Starts a
 * thread and joins it. Restores the placement of the calling thread. Errors: NOMEM, IO, TIMEOUT;
 * UNSUPPORTED: too few cores. Blocks for the measurement. */
exo_status bench_futex_round_trips(bench_placement placement, size_t count, bench_stats *out,
                                   exo_err *err);

/* Measures memcpy of `bytes` from warm to warm memory on one thread. The figures are of one copy;
 * the rate is copies per second. Small copies are timed in batches, so their percentiles are those
 * of batch means. Errors: NOMEM. */
exo_status bench_memcpy(size_t bytes, size_t rounds, bench_stats *out, exo_err *err);

/* The rate of fused multiply-adds in fp32 on all compute threads, in GFLOP/s, with two operations
 * for each: the best of three measurements. */
double bench_peak_fp32(void);

/* --- libzmq ----------------------------------------------------------------------------------- */

typedef enum bench_transport {
    BENCH_INPROC, /* between two threads */
    BENCH_IPC,    /* between two processes, as those below */
    BENCH_TCP,    /* on the loopback interface */
    BENCH_TCP_CURVE,
    BENCH_TRANSPORTS
} bench_transport;

const char *bench_transport_name(bench_transport transport);

/* A DEALER in this process and a ROUTER on the other side that echoes, in plain libzmq: blocking
 * zmq_send and zmq_recv, and a context with one io thread on each side (for inproc one context).
 * One thread at a time may use it. */
typedef struct bench_echo bench_echo;

/* Forks the process that echoes, except for inproc, and waits until its socket is bound. That
 * process dies with the calling thread. A process with threads must not fork, so the caller opens
 * all its echoes before it starts a thread; this function starts none. Errors: NOMEM, IO, TIMEOUT;
 * UNSUPPORTED: libzmq has no CURVE. */
exo_status bench_echo_open(bench_echo **out, bench_transport transport, exo_err *err);
/* Ends the other side, and blocks until it has ended. Accepts NULL in *echo. */
void bench_echo_close(bench_echo **echo);

/* Sends `count` messages of `bytes` and receives their echoes, with up to `window` messages in
 * flight; a window of 1 gives plain round trips. Percentiles are of the time from sending to
 * receiving, the rate is messages per second. A tenth as many messages are sent before, unmeasured.
 * Errors: INVAL (window or count is 0, bytes above INT_MAX), NOMEM, IO, TIMEOUT. Blocks for the
 * measurement. */
exo_status bench_echo_run(bench_echo *echo, size_t bytes, size_t window, size_t count,
                          bench_stats *out, exo_err *err);

#endif
