/* A schedule fuzzer: a library for LD_PRELOAD that delays threads at random where they interact
 * with other threads.
 *
 * EXO_SCHEDULE_SEED sets the seed. Without it nothing is delayed; with `random` the library draws a
 * seed and prints it. The delays come before and after calls of locks, condition variables,
 * futexes, ZeroMQ, descriptors, files and processes. In builds with the thread sanitizer they also
 * come before atomic operations, which are calls there. Each call goes on to the next library that
 * defines it, which is the sanitizer's if there is one.
 *
 * Each thread has one of the paces below, and draws another one every few hundred calls. A thread
 * that is slow for a while lets the other threads run far ahead, as single delays do not. The seed,
 * the program's arguments (except paths) and the thread's number determine a thread's draws. They
 * do not determine the run, which depends on the machine as well.
 *
 * EXO_SCHEDULE_PAUSE_MS is the longest pause (none), such as a loaded machine makes: it stops one
 * thread of a process while the others run on. A test that looks before another thread has finished
 * fails then. Pauses prefer the calls of a place in the code that has seldom been passed: those on
 * busy paths take no share from those that a test makes once.
 *
 * Each thread owns its state; the seed and the longest pause are set once, before main; threads
 * share the counts of places and the time of the next pause. Read next: tools/stress.sh,
 * docs/testing.md. */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    PACE_MIN = 64, /* calls until a thread draws another pace */
    PACE_SPAN = 960,
    ATOMIC_SHARE = 16, /* one atomic operation in so many is considered for a delay */
    LONG_NS = 500000,  /* a yield beside other work: each of it gets a turn */
    SKIPS = 64,        /* yields that are left out after a long one */
    PAUSES = 8, /* one in so many first passes of a place pauses; one in n times that of its nth */
    PLACES = 1 << 14, /* counts of passes; two places may share one */
    CALLERS = 4,      /* a place is a call and its callers, so many in all */
    NEAR = 2048       /* bytes above a frame that belong to the stack, even to a thread's first */
};

/* One call in `yield` yields the processor, and one in `sleep` sleeps for at most `max_ns`; 0: no
 * call does. */
static const struct pace {
    uint32_t share, yield, sleep, max_ns; /* `share` is in percent of the draws */
    bool once;                            /* sleeps once, and takes the first pace afterwards */
} paces[] = {
    {50, 64, 0, 0, false},
    {34, 8, 64, 100000, false},
    {14, 2, 8, 300000, false},
    {2, 0, 1, 20000000, true},
};

static uint64_t seed;          /* 0: nothing is delayed */
static uint64_t longest_pause; /* ns; 0: none */
static atomic_uint num_threads;
static atomic_uint passes[PLACES];
static _Atomic int64_t next_pause; /* not before this time, ns */

static _Thread_local struct {
    uint64_t random; /* 0: this thread has not drawn yet */
    const struct pace *pace;
    unsigned left;
    unsigned skips; /* yields that are left out */
} self;

/* splitmix64 */
static uint64_t
mix(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t
below(uint64_t n)
{
    self.random += UINT64_C(0x9e3779b97f4a7c15);
    return mix(self.random) % n;
}

/* The C library calls constructors with the arguments of main. */
__attribute__((constructor)) static void
start(int argc, char **argv)
{
    const char *text = getenv("EXO_SCHEDULE_SEED");
    if (!text || !*text)
        return;
    char drawn[32];
    if (strcmp(text, "random") == 0) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        snprintf(drawn, sizeof drawn, "%u",
                 (unsigned)mix((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec));
        setenv("EXO_SCHEDULE_SEED", drawn, 1);
        fprintf(stderr, "EXO_SCHEDULE_SEED=%s\n", drawn);
        text = drawn;
    }
    uint64_t value = mix(strtoull(text, NULL, 0));
    /* a path may differ between runs */
    for (int i = 0; i < argc; i++)
        for (const char *c = argv[i]; !strchr(argv[i], '/') && *c; c++)
            value = mix(value ^ (uint8_t)*c);
    seed = value ? value : 1;
    const char *pause = getenv("EXO_SCHEDULE_PAUSE_MS");
    longest_pause = pause ? strtoull(pause, NULL, 0) * 1000000 : 0;
}

/* The function that this library stands in front of. */
static void *
next(_Atomic(void *) *known, const char *name)
{
    void *found = atomic_load_explicit(known, memory_order_relaxed);
    if (!found) {
        found = dlsym(RTLD_NEXT, name);
        if (!found)
            abort();
        atomic_store_explicit(known, found, memory_order_relaxed);
    }
    return found;
}

#define NEXT(name)                                                                                 \
    static _Atomic(void *) known;                                                                  \
    __typeof__(&name) real = (__typeof__(&name))(uintptr_t)next(&known, #name)

/* A sleep by a system call: the sanitizers would see one of the C library. */
static void
sleep_ns(uint64_t ns)
{
    const struct timespec time = {.tv_sec = (time_t)(ns / 1000000000),
                                  .tv_nsec = (long)(ns % 1000000000)};
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"((long)SYS_nanosleep), "D"(&time), "S"((void *)NULL)
                     : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long result __asm__("x0") = (long)(uintptr_t)&time;
    register long left __asm__("x1") = 0;
    register long call __asm__("x8") = SYS_nanosleep;
    __asm__ volatile("svc #0" : "+r"(result) : "r"(left), "r"(call) : "memory");
#else
#error "schedule.c: how is a system call made on this processor?"
#endif
}

static int64_t
now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Yields the processor, unless that took long a short time ago: beside other work a program would get
 * no further. */
static void
yield(void)
{
    if (self.skips > 0) {
        self.skips--;
        return;
    }
    int before = errno;
    int64_t began = now_ns();
    sched_yield();
    if (now_ns() - began > LONG_NS)
        self.skips = SKIPS;
    errno = before;
}

static void
draw_pace(void)
{
    uint64_t at = below(100);
    const struct pace *pace = paces;
    while (at >= pace->share)
        at -= pace++->share;
    self.pace = pace;
    self.left = PACE_MIN + (unsigned)below(PACE_SPAN);
}

/* The place in the code that made this call, as a number; `frame` is the frame of the function that
 * stands in front of the one called. Code without frame pointers ends the walk, or leads it to other
 * words of the same stack: such a place has several numbers. */
static uint64_t
place_of(void *const *frame)
{
    uint64_t place = 0;
    for (int i = 0; i < CALLERS; i++) {
        uintptr_t here = (uintptr_t)frame, above = (uintptr_t)frame[0];
        place = mix(place ^ (uintptr_t)frame[1]);
        if (above <= here || above - here > NEAR || above % sizeof(void *) != 0)
            break;
        frame = frame[0];
    }
    return place;
}

/* Pauses the thread, perhaps, unless another thread of the process pauses. */
static void
pause_at(uint64_t place)
{
    unsigned passed = atomic_fetch_add_explicit(&passes[place % PLACES], 1, memory_order_relaxed);
    if (below(PAUSES * (UINT64_C(1) + passed)) != 0)
        return;
    uint64_t length = 1 + below(1 + (longest_pause >> below(4)));
    int64_t now = now_ns(), from = atomic_load(&next_pause);
    if (now >= from && atomic_compare_exchange_strong(&next_pause, &from, now + (int64_t)length))
        sleep_ns(length);
}

/* Delays the thread, perhaps, where it interacts with others. Only one call in `fewer` counts for
 * delays by pace. `frame` is that of the caller; `after` says on which side of the call this is. */
static void
meet(uint64_t fewer, void *const *frame, bool after)
{
    if (!seed)
        return;
    if (!self.random) {
        self.random = mix(seed + atomic_fetch_add(&num_threads, 1)) | 1;
        draw_pace();
    }
    if (longest_pause && atomic_load_explicit(&num_threads, memory_order_relaxed) > 1)
        pause_at(place_of(frame) + after);
    if (fewer > 1 && below(fewer))
        return;
    if (self.left-- == 0)
        draw_pace();
    const struct pace *pace = self.pace;
    if (pace->sleep && below(pace->sleep) == 0)
        sleep_ns(1 + below(pace->max_ns));
    else if (pace->yield && below(pace->yield) == 0)
        yield();
    if (pace->once)
        self.pace = paces;
}

#define FRAME __builtin_frame_address(0)

#define AROUND(type, name, parameters, ...)                                                        \
    EXPORT type name parameters                                                                    \
    {                                                                                              \
        NEXT(name);                                                                                \
        meet(1, FRAME, false);                                                                     \
        type result = real(__VA_ARGS__);                                                           \
        meet(1, FRAME, true);                                                                      \
        return result;                                                                             \
    }

/* --- Locks and threads ------------------------------------------------------------------------ */

AROUND(int, pthread_mutex_lock, (pthread_mutex_t * mutex), mutex)
AROUND(int, pthread_mutex_trylock, (pthread_mutex_t * mutex), mutex)
AROUND(int, pthread_mutex_unlock, (pthread_mutex_t * mutex), mutex)
AROUND(int, pthread_cond_wait, (pthread_cond_t * cond, pthread_mutex_t *mutex), cond, mutex)
AROUND(int, pthread_cond_timedwait,
       (pthread_cond_t * cond, pthread_mutex_t *mutex, const struct timespec *until), cond, mutex,
       until)
AROUND(int, pthread_cond_signal, (pthread_cond_t * cond), cond)
AROUND(int, pthread_cond_broadcast, (pthread_cond_t * cond), cond)
AROUND(int, pthread_join, (pthread_t thread, void **result_of_it), thread, result_of_it)
AROUND(int, pthread_create,
       (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument),
       thread, attributes, run, argument)

/* Delays futex calls only. */
EXPORT long
syscall(long number, ...)
{
    NEXT(syscall);
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_futex)
        meet(1, FRAME, false);
    long result = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number == SYS_futex)
        meet(1, FRAME, true);
    return result;
}

/* --- Messages --------------------------------------------------------------------------------- */

AROUND(int, zmq_msg_send, (zmq_msg_t * message, void *socket, int flags), message, socket, flags)
AROUND(int, zmq_msg_recv, (zmq_msg_t * message, void *socket, int flags), message, socket, flags)
AROUND(int, zmq_msg_close, (zmq_msg_t * message), message)
AROUND(int, zmq_send, (void *socket, const void *data, size_t size, int flags), socket, data, size,
       flags)
AROUND(int, zmq_recv, (void *socket, void *data, size_t size, int flags), socket, data, size, flags)
AROUND(int, zmq_poll, (zmq_pollitem_t * items, int count, long timeout), items, count, timeout)
AROUND(int, zmq_connect, (void *socket, const char *endpoint), socket, endpoint)
AROUND(int, zmq_bind, (void *socket, const char *endpoint), socket, endpoint)
AROUND(int, zmq_close, (void *socket), socket)
AROUND(int, zmq_ctx_term, (void *context), context)

AROUND(ssize_t, read, (int fd, void *data, size_t size), fd, data, size)
AROUND(ssize_t, write, (int fd, const void *data, size_t size), fd, data, size)
AROUND(ssize_t, send, (int fd, const void *data, size_t size, int flags), fd, data, size, flags)
AROUND(ssize_t, recv, (int fd, void *data, size_t size, int flags), fd, data, size, flags)
AROUND(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), fd, message, flags)
AROUND(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), fd, message, flags)
AROUND(int, poll, (struct pollfd * fds, nfds_t count, int timeout), fds, count, timeout)
AROUND(int, epoll_wait, (int fd, struct epoll_event *events, int size, int timeout), fd, events,
       size, timeout)

/* --- Files and processes ---------------------------------------------------------------------- */

AROUND(int, close, (int fd), fd)
AROUND(int, fclose, (FILE * file), file)
AROUND(int, fflush, (FILE * file), file)
AROUND(int, rename, (const char *from, const char *to), from, to)
AROUND(int, unlink, (const char *path), path)
AROUND(pid_t, waitpid, (pid_t pid, int *status, int options), pid, status, options)
AROUND(int, kill, (pid_t pid, int number), pid, number)

/* --- Atomic operations of builds with the thread sanitizer ------------------------------------ */

/* The delay comes only before the operation: a tail call leaves the sanitizer the caller that it
 * reports. */
#define BEFORE(type, name, parameters, ...)                                                        \
    EXPORT type name parameters;                                                                   \
    EXPORT type name parameters                                                                    \
    {                                                                                              \
        NEXT(name);                                                                                \
        meet(ATOMIC_SHARE, FRAME, false);                                                          \
        return real(__VA_ARGS__);                                                                  \
    }

#define ATOMICS(bits)                                                                              \
    BEFORE(uint##bits##_t, __tsan_atomic##bits##_load,                                             \
           (const volatile uint##bits##_t *at, int order), at, order)                              \
    EXPORT void __tsan_atomic##bits##_store(volatile uint##bits##_t *at, uint##bits##_t value,     \
                                            int order);                                            \
    EXPORT void __tsan_atomic##bits##_store(volatile uint##bits##_t *at, uint##bits##_t value,     \
                                            int order)                                             \
    {                                                                                              \
        NEXT(__tsan_atomic##bits##_store);                                                         \
        meet(ATOMIC_SHARE, FRAME, false);                                                          \
        real(at, value, order);                                                                    \
    }                                                                                              \
    CHANGE(bits, exchange)                                                                         \
    CHANGE(bits, fetch_add)                                                                        \
    CHANGE(bits, fetch_sub)                                                                        \
    CHANGE(bits, fetch_and)                                                                        \
    CHANGE(bits, fetch_or)                                                                         \
    CHANGE(bits, fetch_xor)                                                                        \
    COMPARE(bits, compare_exchange_strong)                                                         \
    COMPARE(bits, compare_exchange_weak)                                                           \
    BEFORE(uint##bits##_t, __tsan_atomic##bits##_compare_exchange_val,                             \
           (volatile uint##bits##_t * at, uint##bits##_t expected, uint##bits##_t value,           \
            int order, int failed),                                                                \
           at, expected, value, order, failed)

#define CHANGE(bits, what)                                                                         \
    BEFORE(uint##bits##_t, __tsan_atomic##bits##_##what,                                           \
           (volatile uint##bits##_t * at, uint##bits##_t value, int order), at, value, order)
#define COMPARE(bits, what)                                                                        \
    BEFORE(int, __tsan_atomic##bits##_##what,                                                      \
           (volatile uint##bits##_t * at, uint##bits##_t * expected, uint##bits##_t value,         \
            int order, int failed),                                                                \
           at, expected, value, order, failed)

ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)
