/* Threads of the library: see thread.h. No state. */
#include "base/thread.h"

#include <errno.h>
#include <fenv.h>
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST_TRIED = 8, /* threads of exo_thread_try */
    MOST_TRIED_DESCRIPTORS = 32,
    GONE_ROUNDS = 1000, /* looks, 1 ms apart, at whether a thread has gone */
    LIMITS = 256
};

/* --- Start ------------------------------------------------------------------------------------ */

/* Adds a limit to the text, if there is one. */
static void
add_limit(char *text, const struct rlimit *limit, uint64_t unit, const char *what)
{
    size_t length = strlen(text);
    if (limit->rlim_cur != RLIM_INFINITY)
        snprintf(text + length, LIMITS - length, "%" PRIu64 " %s, ",
                 (uint64_t)limit->rlim_cur / unit, what);
}

/* The kernel has one number for all limits, so the text names all of them. */
static exo_status
refused(int number, const char *purpose, exo_err *err)
{
    char limits[LIMITS] = "";
    struct rlimit limit;
    if (getrlimit(RLIMIT_NPROC, &limit) == 0)
        add_limit(limits, &limit, 1, "processes and threads of this user (ulimit -u)");
    if (getrlimit(RLIMIT_AS, &limit) == 0)
        add_limit(limits, &limit, 1 << 20, "MiB of addresses (ulimit -v)");
    if (getrlimit(RLIMIT_STACK, &limit) == 0)
        add_limit(limits, &limit, 1 << 10, "KiB of its stack (ulimit -s)");
    return exo_fail(err, EXO_FAILED,
                    "no thread can be started for %s: %s; limits: %spids.max of the control group",
                    purpose, strerror(number), limits);
}

/* Gives the attributes a stack that is large enough. */
static void
want_stack(pthread_attr_t *attr)
{
    size_t size = 0;
    if (pthread_attr_getstacksize(attr, &size) == 0 && size < EXO_THREAD_STACK)
        pthread_attr_setstacksize(attr, EXO_THREAD_STACK);
}

exo_status
exo_thread_start(pthread_t *out, void *(*run)(void *argument), void *argument, const char *purpose,
                 exo_err *err)
{
    pthread_attr_t attr;
    fenv_t before;
    int number = pthread_attr_init(&attr);
    if (number != 0)
        return refused(number, purpose, err);
    want_stack(&attr);
    /* a new thread has the environment of its creator */
    fegetenv(&before);
    fesetenv(FE_DFL_ENV);
    number = pthread_create(out, &attr, run, argument);
    fesetenv(&before);
    pthread_attr_destroy(&attr);
    return number == 0 ? EXO_OK : refused(number, purpose, err);
}

/* --- Trials ----------------------------------------------------------------------------------- */

/* Owner: exo_thread_try; its threads wait for `over` under the lock. */
struct trial {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool over;
};

/* One thread of a trial. */
struct tried {
    struct trial *trial;
    pthread_t thread;
    pid_t id; /* written by the thread; read after it was joined */
};

static void *
tried_main(void *argument)
{
    struct tried *t = argument;
    t->id = (pid_t)syscall(SYS_gettid);
    pthread_mutex_lock(&t->trial->lock);
    while (!t->trial->over)
        pthread_cond_wait(&t->trial->ended, &t->trial->lock);
    pthread_mutex_unlock(&t->trial->lock);
    return NULL;
}

/* A joined thread counts towards the limits until the kernel has forgotten it. */
static void
wait_until_gone(pid_t id)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    for (int i = 0; i < GONE_ROUNDS && syscall(SYS_tgkill, getpid(), id, 0) == 0; i++) {
        if (i < GONE_ROUNDS / 10)
            sched_yield();
        else
            nanosleep(&moment, NULL);
    }
}

static exo_status
try_threads(unsigned count, const char *purpose, exo_err *err)
{
    struct trial trial = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};
    struct tried tried[MOST_TRIED];
    exo_status st = EXO_OK;
    unsigned started = 0;
    while (started < count && started < MOST_TRIED) {
        tried[started].trial = &trial;
        st = exo_thread_start(&tried[started].thread, tried_main, &tried[started], purpose, err);
        if (st != EXO_OK)
            break;
        started++;
    }
    pthread_mutex_lock(&trial.lock);
    trial.over = true;
    pthread_cond_broadcast(&trial.ended);
    pthread_mutex_unlock(&trial.lock);
    for (unsigned i = 0; i < started; i++) {
        pthread_join(tried[i].thread, NULL);
        wait_until_gone(tried[i].id);
    }
    return st;
}

static exo_status
try_descriptors(unsigned count, const char *purpose, exo_err *err)
{
    int opened[MOST_TRIED_DESCRIPTORS];
    unsigned made = 0;
    int number = 0;
    while (made < count && made < MOST_TRIED_DESCRIPTORS) {
        if ((opened[made] = eventfd(0, EFD_CLOEXEC)) < 0) {
            number = errno;
            break;
        }
        made++;
    }
    for (unsigned i = 0; i < made; i++)
        close(opened[i]);
    if (number == 0)
        return EXO_OK;
    if (number != EMFILE && number != ENFILE)
        return exo_fail(err, EXO_FAILED, "%s needs descriptors for events: %s", purpose,
                        strerror(number));
    return exo_fail(err, EXO_FULL,
                    "%s needs %u descriptors, and %u are left: %s; raise the limit (ulimit -n)",
                    purpose, count, made, strerror(number));
}

exo_status
exo_thread_try(unsigned threads, unsigned descriptors, const char *purpose, exo_err *err)
{
    exo_status st = try_descriptors(descriptors, purpose, err);
    return st == EXO_OK ? try_threads(threads, purpose, err) : st;
}
