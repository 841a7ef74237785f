/* Limits of the machine and of libzmq. limits.h has the contracts, limits_main.c uses them all.
 *
 * Threads: besides the caller's, one for inproc and one for futex, which this file starts and
 * joins. Processes: one child for each echo of another transport; the child shares nothing with its
 * parent, which kills it at the end. A socket belongs to the thread that made it; the router of
 * inproc belongs to the thread that echoes.
 */
#include "limits.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <zmq.h>

#include <exogym/memory.h>

enum {
    DEADLINE_MS = 10000, /* deadline of every wait of the measuring side */
    CHECK_MS = 1000,     /* period at which the echoing side checks that its parent lives */
    /* Bytes. Smaller copies are timed in batches, because reading the clock takes tens of ns. */
    COPY_BATCH = 256 << 10
};

int64_t
bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* --- Samples ---------------------------------------------------------------------------------- */

exo_status
bench_recorder_init(bench_recorder *recorder, size_t capacity, exo_err *err)
{
    *recorder = (bench_recorder){.ns = exo_calloc(capacity, sizeof *recorder->ns)};
    if (!recorder->ns)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu samples", capacity);
    recorder->capacity = capacity;
    return EXO_OK;
}

void
bench_recorder_release(bench_recorder *recorder)
{
    exo_free(recorder->ns);
    *recorder = (bench_recorder){0};
}

void
bench_record(bench_recorder *recorder, int64_t ns)
{
    if (recorder->count < recorder->capacity)
        recorder->ns[recorder->count++] = ns;
}

static int
compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The smallest sample that at least `thousandths` of all samples do not exceed (nearest rank). */
static double
percentile(const bench_recorder *sorted, size_t thousandths)
{
    size_t rank = (sorted->count * thousandths + 999) / 1000;
    return (double)sorted->ns[rank > 0 ? rank - 1 : 0];
}

bench_stats
bench_recorder_take(bench_recorder *recorder, size_t operations, int64_t elapsed)
{
    bench_stats stats = {0};
    if (recorder->count > 0) {
        qsort(recorder->ns, recorder->count, sizeof *recorder->ns, compare_times);
        stats.p50 = percentile(recorder, 500);
        stats.p99 = percentile(recorder, 990);
        stats.p999 = percentile(recorder, 999);
        stats.rate = elapsed > 0 ? (double)operations * 1e9 / (double)elapsed : 0;
    }
    recorder->count = 0;
    return stats;
}

static int
compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double
bench_median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare_numbers);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

bench_stats
bench_stats_median(const bench_stats *repeats, size_t count)
{
    bench_stats out;
    double values[BENCH_MAX_REPEATS];
    size_t n = count < BENCH_MAX_REPEATS ? count : BENCH_MAX_REPEATS;
#define MEDIAN_OF(field)                                                                           \
    for (size_t i = 0; i < n; i++)                                                                 \
        values[i] = repeats[i].field;                                                              \
    out.field = bench_median(values, n)
    MEDIAN_OF(p50);
    MEDIAN_OF(p99);
    MEDIAN_OF(p999);
    MEDIAN_OF(rate);
#undef MEDIAN_OF
    return out;
}

/* --- The machine ------------------------------------------------------------------------------ */

/* Two threads, 0 and 1, hand `turn` to each other: the thread whose number it holds may proceed. */
struct ping_pong {
    _Atomic uint32_t turn;
    size_t count;          /* round trips; constant */
    const cpu_set_t *core; /* the core of the thread that answers; NULL: any */
    bool answered;         /* owner: the thread that answers, until it is joined */
};

static bool
wait_for_turn(struct ping_pong *p, uint32_t self)
{
    const struct timespec deadline = {.tv_sec = DEADLINE_MS / 1000};
    while (atomic_load_explicit(&p->turn, memory_order_acquire) != self) {
        if (syscall(SYS_futex, &p->turn, FUTEX_WAIT_PRIVATE, 1 - self, &deadline, NULL, 0) < 0 &&
            errno == ETIMEDOUT)
            return false;
    }
    return true;
}

static void
pass_turn(struct ping_pong *p, uint32_t self)
{
    atomic_store_explicit(&p->turn, 1 - self, memory_order_release);
    syscall(SYS_futex, &p->turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *
answer_turns(void *argument)
{
    struct ping_pong *p = argument;
    if (p->core)
        pthread_setaffinity_np(pthread_self(), sizeof *p->core, p->core);
    for (size_t i = 0; i < p->count; i++) {
        if (!wait_for_turn(p, 1))
            return NULL;
        pass_turn(p, 1);
    }
    p->answered = true;
    return NULL;
}

/* Sets *out to the nth core of `all` alone; false: there are too few. */
static bool
nth_core(const cpu_set_t *all, size_t n, cpu_set_t *out)
{
    CPU_ZERO(out);
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, all) && n-- == 0) {
            CPU_SET(core, out);
            return true;
        }
    }
    return false;
}

exo_status
bench_futex_round_trips(bench_placement placement, size_t count, bench_stats *out, exo_err *err)
{
    size_t warm = count / 10;
    struct ping_pong p = {.count = warm + count};
    bench_recorder recorder;
    cpu_set_t all, here, there;
    pthread_t thread;
    exo_status st = bench_recorder_init(&recorder, count, err);
    if (st != EXO_OK)
        return st;

    sched_getaffinity(0, sizeof all, &all);
    if (placement != BENCH_ANYWHERE) {
        if (!nth_core(&all, 0, &here) ||
            !nth_core(&all, placement == BENCH_TWO_CORES ? 1 : 0, &there)) {
            bench_recorder_release(&recorder);
            return exo_fail(err, EXO_UNSUPPORTED, "two threads on two cores need two cores");
        }
        pthread_setaffinity_np(pthread_self(), sizeof here, &here);
        p.core = &there;
    }
    if (pthread_create(&thread, NULL, answer_turns, &p) != 0) {
        st = exo_fail(err, EXO_IO, "no thread could be started");
        goto done;
    }

    int64_t begin = bench_now(), before = begin;
    for (size_t i = 0; st == EXO_OK && i < warm + count; i++) {
        if (i == warm)
            begin = before;
        pass_turn(&p, 0);
        if (!wait_for_turn(&p, 0))
            st = exo_fail(err, EXO_TIMEOUT, "a futex was not woken for %d ms", DEADLINE_MS);
        int64_t after = bench_now();
        if (i >= warm)
            bench_record(&recorder, after - before);
        before = after;
    }
    pthread_join(thread, NULL); /* ends by its own deadline */
    if (st == EXO_OK && !p.answered)
        st = exo_fail(err, EXO_TIMEOUT, "a futex was not woken for %d ms", DEADLINE_MS);
    if (st == EXO_OK)
        *out = bench_recorder_take(&recorder, count, before - begin);
done:
    pthread_setaffinity_np(pthread_self(), sizeof all, &all);
    bench_recorder_release(&recorder);
    return st;
}

exo_status
bench_memcpy(size_t bytes, size_t rounds, bench_stats *out, exo_err *err)
{
    size_t batch = bytes > 0 && bytes < COPY_BATCH ? COPY_BATCH / bytes : 1;
    char *from = exo_alloc_aligned(bytes), *to = exo_alloc_aligned(bytes);
    bench_recorder recorder;
    exo_status st = bench_recorder_init(&recorder, rounds, err);
    if (st == EXO_OK && (!from || !to))
        st = exo_fail(err, EXO_NOMEM, "no memory for two times %zu bytes", bytes);
    if (st == EXO_OK) {
        memset(from, 1, bytes);
        memset(to, 2, bytes);
        int64_t total = 0;
        for (size_t i = 0; i <= rounds; i++) {
            int64_t before = bench_now();
            for (size_t j = 0; j < batch; j++) {
                memcpy(to, from, bytes);
                __asm__ volatile("" : : "r"(to), "r"(from) : "memory"); /* keeps each copy */
            }
            int64_t taken = bench_now() - before;
            if (i > 0) { /* the first one warms up */
                bench_record(&recorder, taken);
                total += taken;
            }
        }
        *out = bench_recorder_take(&recorder, rounds * batch, total);
        out->p50 /= (double)batch;
        out->p99 /= (double)batch;
        out->p999 /= (double)batch;
    }
    bench_recorder_release(&recorder);
    exo_free(from);
    exo_free(to);
    return st;
}

/* --- libzmq ----------------------------------------------------------------------------------- */

enum {
    ENDPOINT_TEXT = 256,
    KEY_TEXT = 41 /* Z85 of 32 bytes, and the NUL */
};

struct bench_echo {
    bench_transport transport;
    char endpoint[ENDPOINT_TEXT]; /* where the ROUTER is bound */
    char folder[ENDPOINT_TEXT];   /* folder of the ipc socket; "": none */
    char public_key[KEY_TEXT], secret_key[KEY_TEXT];
    pid_t child; /* 0: none */

    /* The fields below are set by the first measurement. */
    void *context, *dealer;
    pthread_t thread; /* inproc only */
    bool has_thread;
};

const char *
bench_transport_name(bench_transport transport)
{
    static const char *const names[] = {"inproc", "ipc", "tcp", "tcp+curve"};
    return transport < BENCH_TRANSPORTS ? names[transport] : "?";
}

/* A socket with the options of both sides: a deadline, and no high-water mark, which would make a
 * ROUTER drop messages. */
static void *
open_socket(void *context, int type, int timeout_ms)
{
    const int none = 0;
    void *socket = zmq_socket(context, type);
    if (socket) {
        zmq_setsockopt(socket, ZMQ_SNDHWM, &none, sizeof none);
        zmq_setsockopt(socket, ZMQ_RCVHWM, &none, sizeof none);
        zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
        zmq_setsockopt(socket, ZMQ_RCVTIMEO, &timeout_ms, sizeof timeout_ms);
        zmq_setsockopt(socket, ZMQ_SNDTIMEO, &timeout_ms, sizeof timeout_ms);
    }
    return socket;
}

/* Makes the ROUTER, binds it to `endpoint`, and writes the resolved endpoint there. NULL: errno has
 * the cause. */
static void *
bind_router(const bench_echo *echo, void *context, char endpoint[ENDPOINT_TEXT])
{
    size_t size = ENDPOINT_TEXT;
    void *router = open_socket(context, ZMQ_ROUTER, CHECK_MS);
    if (!router)
        return NULL;
    if (echo->transport == BENCH_TCP_CURVE) {
        const int yes = 1;
        zmq_setsockopt(router, ZMQ_CURVE_SERVER, &yes, sizeof yes);
        zmq_setsockopt(router, ZMQ_CURVE_SECRETKEY, echo->secret_key, KEY_TEXT - 1);
    }
    if (zmq_bind(router, endpoint) != 0 ||
        zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, endpoint, &size) != 0) {
        int error = errno;
        zmq_close(router);
        errno = error;
        return NULL;
    }
    return router;
}

/* Sends each message back to its sender, until the context ends or the process `parent` (0: none)
 * has died. */
static void
echo_messages(void *router, pid_t parent)
{
    zmq_msg_t part;
    zmq_msg_init(&part);
    while (parent == 0 || getppid() == parent) {
        if (zmq_msg_recv(&part, router, 0) < 0) {
            if (errno == EAGAIN || errno == EINTR)
                continue;
            break;
        }
        /* The sender's identity and the payload are both sent back unchanged. */
        if (zmq_msg_send(&part, router, zmq_msg_more(&part) ? ZMQ_SNDMORE : 0) < 0)
            break;
    }
    zmq_msg_close(&part);
}

/* The child. Writes its endpoint to `ready`, or closes `ready` without writing. */
static _Noreturn void
child_main(const bench_echo *echo, pid_t parent, int ready)
{
    char endpoint[ENDPOINT_TEXT];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_FAILURE); /* the parent died before prctl */
    memcpy(endpoint, echo->endpoint, sizeof endpoint);
    void *context = zmq_ctx_new();
    void *router = context ? bind_router(echo, context, endpoint) : NULL;
    if (!router || write(ready, endpoint, sizeof endpoint) != (ssize_t)sizeof endpoint)
        _exit(EXIT_FAILURE);
    close(ready);
    echo_messages(router, parent);
    _exit(EXIT_SUCCESS);
}

static exo_status
start_child(bench_echo *echo, exo_err *err)
{
    int ends[2];
    pid_t parent = getpid();
    if (pipe(ends) != 0)
        return exo_fail(err, EXO_IO, "pipe: %s", strerror(errno));
    fflush(NULL); /* else the child would write the buffered output again */
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        child_main(echo, parent, ends[1]);
    }
    close(ends[1]);
    exo_status st = EXO_OK;
    if (child < 0) {
        st = exo_fail(err, EXO_IO, "fork: %s", strerror(errno));
    } else {
        echo->child = child;
        struct pollfd ready = {.fd = ends[0], .events = POLLIN};
        if (poll(&ready, 1, DEADLINE_MS) <= 0)
            st = exo_fail(err, EXO_TIMEOUT, "the process that echoes did not start in %d ms",
                          DEADLINE_MS);
        else if (read(ends[0], echo->endpoint, sizeof echo->endpoint) !=
                 (ssize_t)sizeof echo->endpoint)
            st = exo_fail(err, EXO_IO, "the process that echoes could not bind to %s",
                          echo->endpoint);
    }
    close(ends[0]);
    return st;
}

/* Chooses the endpoint, and makes what it needs: a folder for ipc, keys for CURVE. */
static exo_status
prepare(bench_echo *echo, exo_err *err)
{
    switch (echo->transport) {
    case BENCH_INPROC:
        snprintf(echo->endpoint, sizeof echo->endpoint, "inproc://echo");
        return EXO_OK;
    case BENCH_IPC: {
        const char *temporary = getenv("TMPDIR");
        /* Half as long, so that the endpoint fits; a socket's path has at most 108 bytes anyway. */
        char folder[ENDPOINT_TEXT / 2];
        snprintf(folder, sizeof folder, "%s/bench.XXXXXX",
                 temporary && *temporary ? temporary : "/tmp");
        if (!mkdtemp(folder)) /* mode 0700 */
            return exo_fail(err, EXO_IO, "%s: %s", folder, strerror(errno));
        snprintf(echo->folder, sizeof echo->folder, "%s", folder);
        snprintf(echo->endpoint, sizeof echo->endpoint, "ipc://%s/echo", folder);
        return EXO_OK;
    }
    case BENCH_TCP_CURVE:
        if (!zmq_has("curve") || zmq_curve_keypair(echo->public_key, echo->secret_key) != 0)
            return exo_fail(err, EXO_UNSUPPORTED, "this libzmq has no CURVE");
        snprintf(echo->endpoint, sizeof echo->endpoint, "tcp://127.0.0.1:*");
        return EXO_OK;
    case BENCH_TCP:
        snprintf(echo->endpoint, sizeof echo->endpoint, "tcp://127.0.0.1:*");
        return EXO_OK;
    case BENCH_TRANSPORTS:
        break;
    }
    return exo_fail(err, EXO_INVAL, "no transport has the number %d", (int)echo->transport);
}

exo_status
bench_echo_open(bench_echo **out, bench_transport transport, exo_err *err)
{
    bench_echo *echo = exo_calloc(1, sizeof *echo);
    if (!echo)
        return exo_fail(err, EXO_NOMEM, "no memory for an echo");
    echo->transport = transport;
    exo_status st = prepare(echo, err);
    if (st == EXO_OK && transport != BENCH_INPROC)
        st = start_child(echo, err);
    if (st == EXO_OK) {
        *out = echo;
        echo = NULL; /* moved to the caller */
    }
    bench_echo_close(&echo);
    return st;
}

static void *
inproc_main(void *router)
{
    echo_messages(router, 0);
    zmq_close(router);
    return NULL;
}

/* Makes the context, the socket and, for inproc, the thread that echoes, unless they exist. */
static exo_status
connect_dealer(bench_echo *echo, exo_err *err)
{
    if (!echo->context && !(echo->context = zmq_ctx_new()))
        return exo_fail(err, EXO_NOMEM, "zmq_ctx_new: %s", zmq_strerror(errno));
    if (echo->transport == BENCH_INPROC && !echo->has_thread) {
        void *router = bind_router(echo, echo->context, echo->endpoint);
        if (!router)
            return exo_fail(err, EXO_IO, "%s: %s", echo->endpoint, zmq_strerror(errno));
        /* pthread_create is the memory barrier that a socket needs when it changes its thread. */
        if (pthread_create(&echo->thread, NULL, inproc_main, router) != 0) {
            zmq_close(router);
            return exo_fail(err, EXO_IO, "no thread could be started");
        }
        echo->has_thread = true;
    }
    if (echo->dealer)
        return EXO_OK;

    void *dealer = open_socket(echo->context, ZMQ_DEALER, DEADLINE_MS);
    if (!dealer)
        return exo_fail(err, EXO_IO, "zmq_socket: %s", zmq_strerror(errno));
    if (echo->transport == BENCH_TCP_CURVE) {
        char public_key[KEY_TEXT], secret_key[KEY_TEXT];
        zmq_curve_keypair(public_key, secret_key);
        zmq_setsockopt(dealer, ZMQ_CURVE_SERVERKEY, echo->public_key, KEY_TEXT - 1);
        zmq_setsockopt(dealer, ZMQ_CURVE_PUBLICKEY, public_key, KEY_TEXT - 1);
        zmq_setsockopt(dealer, ZMQ_CURVE_SECRETKEY, secret_key, KEY_TEXT - 1);
    }
    if (zmq_connect(dealer, echo->endpoint) != 0) {
        exo_status st = exo_fail(err, EXO_IO, "%s: %s", echo->endpoint, zmq_strerror(errno));
        zmq_close(dealer);
        return st;
    }
    echo->dealer = dealer;
    return EXO_OK;
}

void
bench_echo_close(bench_echo **pointer)
{
    bench_echo *echo = *pointer;
    if (!echo)
        return;
    *pointer = NULL;
    if (echo->dealer)
        zmq_close(echo->dealer);
    if (echo->context)
        zmq_ctx_shutdown(echo->context); /* ends the wait of the echoing thread */
    if (echo->has_thread)
        pthread_join(echo->thread, NULL);
    if (echo->context)
        zmq_ctx_term(echo->context);
    if (echo->child > 0) {
        kill(echo->child, SIGKILL);
        while (waitpid(echo->child, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (echo->folder[0]) {
        unlink(echo->endpoint + strlen("ipc://"));
        rmdir(echo->folder);
    }
    exo_free(echo);
}

/* Both return 0 or the errno of the failure. */
static int
send_one(void *dealer, const char *message, size_t bytes)
{
    while (zmq_send(dealer, message, bytes, 0) < 0) {
        if (errno != EINTR)
            return errno;
    }
    return 0;
}

static int
receive_one(void *dealer, char *message, size_t bytes)
{
    int got;
    while ((got = zmq_recv(dealer, message, bytes, 0)) < 0) {
        if (errno != EINTR)
            return errno;
    }
    return (size_t)got == bytes ? 0 : EPROTO;
}

exo_status
bench_echo_run(bench_echo *echo, size_t bytes, size_t window, size_t count, bench_stats *out,
               exo_err *err)
{
    bench_recorder recorder = {0};
    /* A ring of `window` entries, because answers come in the order of the messages. */
    int64_t *sent_at = exo_calloc(window, sizeof *sent_at);
    char *outgoing = exo_calloc(1, bytes + 1), *incoming = exo_calloc(1, bytes + 1);
    size_t warm = count / 10, total = warm + count, sent = 0;
    int64_t begin = 0, now = 0;
    int error = 0;
    exo_status st = EXO_OK;
    if (window == 0 || count == 0 || bytes > INT_MAX)
        st = exo_fail(err, EXO_INVAL, "%zu messages of %zu bytes, %zu under way", count, bytes,
                      window);
    else if (!sent_at || !outgoing || !incoming)
        st = exo_fail(err, EXO_NOMEM, "no memory for messages of %zu bytes", bytes);
    if (st == EXO_OK)
        st = bench_recorder_init(&recorder, count, err);
    if (st == EXO_OK)
        st = connect_dealer(echo, err);
    if (st != EXO_OK)
        goto done;

    for (size_t received = 0; !error && received < total; received++) {
        now = bench_now();
        if (received == warm)
            begin = now;
        for (; !error && sent < total && sent < received + window; sent++) {
            sent_at[sent % window] = now;
            error = send_one(echo->dealer, outgoing, bytes);
            if (window > 1)
                now = bench_now();
        }
        if (!error)
            error = receive_one(echo->dealer, incoming, bytes);
        now = bench_now();
        if (received >= warm)
            bench_record(&recorder, now - sent_at[received % window]);
    }
    if (error) {
        st = exo_fail(err, error == EAGAIN ? EXO_TIMEOUT : EXO_IO, "%s after %zu messages: %s",
                      echo->endpoint, sent, error == EAGAIN ? "no answer" : zmq_strerror(error));
    } else {
        *out = bench_recorder_take(&recorder, count, now - begin);
    }
done:
    bench_recorder_release(&recorder);
    exo_free(sent_at);
    exo_free(outgoing);
    exo_free(incoming);
    return st;
}
