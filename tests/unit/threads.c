/* Threads of the library in a program that has limits, or a floating-point environment of its own:
 * a refused thread or descriptor is an error that names the limits, never the end of the process, and
 * results have the bits of any other program's.
 *
 * Each test is a process, so it sets what belongs to a whole process. Read next: runtime/base/thread.h,
 * runtime/base/float_mode.h. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <exogym/exogym.h>

#include "base/pages.h"
#include "base/parallel.h"
#include "base/thread.h"
#include "support/eventually.h"
#include "support/points.h"
#include "support/temp.h"

enum {
    FEW = 128, /* descriptors of a process */
    PIECES = 64
};

static exo_err err;

/* --- Limits ----------------------------------------------------------------------------------- */

/* From now on no thread can be started: no memory is large enough for its stack. */
static void
refuse_threads(void)
{
    pthread_attr_t attr;
    cr_assert_eq(pthread_attr_init(&attr), 0);
    cr_assert_eq(pthread_attr_setstacksize(&attr, (size_t)1 << 47), 0);
    cr_assert_eq(pthread_setattr_default_np(&attr), 0);
    pthread_attr_destroy(&attr);
}

static exo_time
soon(void)
{
    return exo_deadline(exo_clock_real(), 60 * EXO_SECOND);
}

/* Joins as a head, and leaves. */
static exo_status
be_head(exo_runtime *runtime, const char *folder)
{
    char state[128];
    exo_cluster *head = NULL;
    snprintf(state, sizeof state, "%s/state", folder);
    const exo_cluster_opts opts = {.role = EXO_ROLE_HEAD, .folder = folder, .state = state};
    exo_status st = exo_cluster_join(&head, runtime, &opts, soon(), &err);
    if (head)
        exo_cluster_leave(head);
    exo_runtime_close(&runtime, soon(), NULL);
    exo_cluster_free(&head);
    return st;
}

Test(threads, a_refused_thread_is_an_error_that_names_the_limits)
{
    exo_runtime *runtime = NULL;
    refuse_threads();
    cr_expect_eq(exo_runtime_open(&runtime, NULL, &err), EXO_FAILED);
    cr_expect_null(runtime);
    cr_expect(strstr(err.text, "no thread can be started for actors: "), "%s", err.text);
    cr_expect(strstr(err.text, "pids.max"), "%s", err.text);
}

/* ZeroMQ ends the process when it cannot start its threads. */
Test(threads, a_cluster_without_threads_is_an_error)
{
    char folder[64];
    exo_runtime *runtime = NULL;
    temp_folder(folder, sizeof folder);
    cr_assert_eq(exo_runtime_open(&runtime, NULL, &err), EXO_OK, "%s", err.text);
    refuse_threads();
    cr_expect_eq(be_head(runtime, folder), EXO_FAILED);
    cr_expect(strstr(err.text, "no thread can be started for ZeroMQ: "), "%s", err.text);
    temp_remove(folder);
}

/* ZeroMQ ends the process, too, when it cannot have its descriptors. */
Test(threads, a_cluster_lives_or_fails_with_any_number_of_descriptors, .timeout = 60)
{
    int taken[FEW], count = 0;
    unsigned failed = 0;
    char folder[64];
    temp_folder(folder, sizeof folder);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){FEW, FEW}), 0);
    while (count < FEW && (taken[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        count++;
    cr_assert_gt(count, 24);
    for (int left = 0; left < 24; left++) {
        exo_runtime *runtime = NULL;
        cr_assert_eq(exo_runtime_open(&runtime, NULL, &err), EXO_OK, "%s", err.text);
        failed += be_head(runtime, folder) != EXO_OK;
        close(taken[--count]);
    }
    cr_expect_geq(failed, 10); /* nothing works with fewer */
    while (count > 0)
        close(taken[--count]);
    temp_remove(folder);
}

/* --- Signals ---------------------------------------------------------------------------------- */

static atomic_bool interrupted_enough;

static void
ignore(int number)
{
    (void)number;
}

static void *
interrupt_main(void *thread)
{
    while (!atomic_load(&interrupted_enough)) {
        pthread_kill(*(pthread_t *)thread, SIGUSR1);
        usleep(20);
    }
    return NULL;
}

static unsigned
entries(const char *path)
{
    unsigned count = 0;
    DIR *dir = opendir(path);
    cr_assert_not_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* As ZeroMQ's, which a signal interrupts `term_interrupts` times. */
static int term_interrupts, terms;

int
zmq_ctx_term(void *context)
{
    int (*next)(void *);
    *(void **)&next = dlsym(RTLD_NEXT, "zmq_ctx_term");
    terms++;
    if (term_interrupts > 0) {
        term_interrupts--;
        errno = EINTR;
        return -1;
    }
    return next(context);
}

Test(threads, a_context_ends_although_signals_interrupt_that, .timeout = 60)
{
    char folder[64];
    exo_runtime *runtime = NULL;
    temp_folder(folder, sizeof folder);
    term_interrupts = 2;
    cr_assert_eq(exo_runtime_open(&runtime, NULL, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(be_head(runtime, folder), EXO_OK, "%s", err.text);
    cr_expect_eq(terms, 3);
    temp_remove(folder);
}

/* As ZeroMQ's, of which a signal interrupts every other call before it has begun. */
static bool interrupts;

static bool
is_interrupted(void)
{
    static atomic_uint calls;
    if (!interrupts || atomic_fetch_add(&calls, 1) % 2 == 1)
        return false;
    errno = EINTR;
    return true;
}

int
zmq_bind(void *socket, const char *endpoint)
{
    int (*next)(void *, const char *);
    *(void **)&next = dlsym(RTLD_NEXT, "zmq_bind");
    return is_interrupted() ? -1 : next(socket, endpoint);
}

int
zmq_connect(void *socket, const char *endpoint)
{
    int (*next)(void *, const char *);
    *(void **)&next = dlsym(RTLD_NEXT, "zmq_connect");
    return is_interrupted() ? -1 : next(socket, endpoint);
}

int
zmq_socket_monitor(void *socket, const char *endpoint, int events)
{
    int (*next)(void *, const char *, int);
    *(void **)&next = dlsym(RTLD_NEXT, "zmq_socket_monitor");
    return endpoint && is_interrupted() ? -1 : next(socket, endpoint, events);
}

Test(threads, a_head_joins_although_signals_interrupt_its_sockets, .timeout = 60)
{
    char folder[64];
    exo_runtime *runtime = NULL;
    temp_folder(folder, sizeof folder);
    cr_assert_eq(exo_runtime_open(&runtime, NULL, &err), EXO_OK, "%s", err.text);
    interrupts = true;
    cr_expect_eq(be_head(runtime, folder), EXO_OK, "%s", err.text);
    temp_remove(folder);
}

static unsigned refused; /* which of the sockets from now on cannot be made; 0: none */

void *
zmq_socket(void *context, int type)
{
    void *(*next)(void *, int);
    *(void **)&next = dlsym(RTLD_NEXT, "zmq_socket");
    if (refused == 0 || --refused > 0)
        return next(context, type);
    errno = EMFILE;
    return NULL;
}

Test(threads, a_head_whose_sockets_are_refused_is_an_error, .timeout = 60)
{
    char folder[64];
    unsigned which = 0;
    temp_folder(folder, sizeof folder);
    for (bool was_refused = true; was_refused; which++) {
        exo_runtime *runtime = NULL;
        cr_assert_eq(exo_runtime_open(&runtime, NULL, &err), EXO_OK, "%s", err.text);
        refused = which + 1;
        exo_status st = be_head(runtime, folder);
        was_refused = refused == 0;
        cr_expect_eq(st, was_refused ? EXO_FAILED : EXO_OK, "%u: %s", which, err.text);
        refused = 0;
    }
    cr_expect_gt(which, 3);
    temp_remove(folder);
}

Test(threads, a_member_that_signals_interrupt_leaves_nothing_behind, .timeout = 60)
{
    char folder[64];
    pthread_t self = pthread_self(), interrupter;
    exo_runtime *runtime = NULL;
    const struct sigaction action = {.sa_handler = ignore}; /* without SA_RESTART */
    sigaction(SIGUSR1, &action, NULL);
    temp_folder(folder, sizeof folder);
    cr_assert_eq(pthread_create(&interrupter, NULL, interrupt_main, &self), 0);
    const unsigned threads = entries("/proc/self/task"), descriptors = entries("/proc/self/fd");
    for (int i = 0; i < 10; i++) {
        cr_assert_eq(exo_runtime_open(&runtime, NULL, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(be_head(runtime, folder), EXO_OK, "%s", err.text);
    }
    atomic_store(&interrupted_enough, true);
    cr_expect_eq(entries("/proc/self/fd"), descriptors);
    EVENTUALLY(entries("/proc/self/task") <= threads); /* detached ones take a moment to end */
    cr_assert_eq(pthread_join(interrupter, NULL), 0);
    temp_remove(folder);
}

/* --- Trials and stacks ------------------------------------------------------------------------ */

Test(threads, a_trial_leaves_no_thread_and_no_descriptor)
{
    int before = dup(0);
    close(before);
    cr_expect_eq(exo_thread_try(2, 4, "a test", &err), EXO_OK, "%s", err.text);
    int after = dup(0);
    close(after);
    cr_expect_eq(before, after);
}

static void *
stack_main(void *out)
{
    pthread_attr_t attr;
    pthread_getattr_np(pthread_self(), &attr);
    pthread_attr_getstacksize(&attr, out);
    pthread_attr_destroy(&attr);
    return NULL;
}

Test(threads, a_thread_has_a_stack_in_a_program_of_small_ones)
{
    pthread_t thread;
    pthread_attr_t attr;
    size_t size = 0;
    cr_assert_eq(pthread_attr_init(&attr), 0);
    cr_assert_eq(pthread_attr_setstacksize(&attr, 64 << 10), 0);
    cr_assert_eq(pthread_setattr_default_np(&attr), 0);
    pthread_attr_destroy(&attr);
    cr_assert_eq(exo_thread_start(&thread, stack_main, &size, "a test", &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_expect_geq(size, EXO_THREAD_STACK);
}

/* --- Floating-point environments -------------------------------------------------------------- */

/* A sum as each piece of a loop rounds it. */
struct pieces {
    float sums[PIECES];
    atomic_uint begun;
};

/* Between 1 and the next number, nearer to 1. */
static float
rounded_sum(void)
{
    volatile float one = 1, little = 0x1p-26F;
    return one + little;
}

static void *
environment_main(void *out)
{
    ((int *)out)[0] = fegetround();
    ((int *)out)[1] = fegetexcept();
    return NULL;
}

/* A new thread would otherwise have its creator's. */
Test(threads, a_thread_starts_in_the_default_environment)
{
    pthread_t thread;
    int modes[2] = {-1, -1};
    cr_assert_eq(fesetround(FE_UPWARD), 0);
    feenableexcept(FE_DIVBYZERO);
    exo_status st = exo_thread_start(&thread, environment_main, modes, "a test", &err);
    cr_expect_eq(fegetround(), FE_UPWARD);
    cr_expect_eq(fegetexcept(), FE_DIVBYZERO);
    fesetenv(FE_DFL_ENV);
    cr_assert_eq(st, EXO_OK, "%s", err.text);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_expect_eq(modes[0], FE_TONEAREST);
    cr_expect_eq(modes[1], 0);
}

/* Waits until two threads are in the loop, so that a helper takes a piece. */
static void
look(void *context, size_t index)
{
    struct pieces *p = context;
    p->sums[index] = rounded_sum();
    if (atomic_fetch_add(&p->begun, 1) == 0)
        while (atomic_load(&p->begun) < 2)
            sched_yield();
}

static void
expect_sums(int rounding, bool up)
{
    struct pieces p = {.begun = 0};
    cr_assert_eq(fesetround(rounding), 0);
    exo_parallel_for(PIECES, look, &p);
    for (int i = 0; i < PIECES; i++)
        cr_expect_eq(p.sums[i] > 1, up, "piece %d", i);
    cr_expect_eq(rounded_sum() > 1, up);
}

Test(threads, pieces_of_a_loop_round_as_their_caller)
{
    exo_set_num_threads(2);
    expect_sums(FE_UPWARD, true); /* starts the helper */
    expect_sums(FE_TONEAREST, false);
    expect_sums(FE_UPWARD, true);
}

/* Trains for two steps in an environment. *hash: of the result. */
static void
fit(int rounding, int traps, char hash[65])
{
    exo_model *model = NULL;
    exo_trainer *trainer = NULL;
    exo_fit_result result;
    exo_dataset *train = points_new(64, 1, SIZE_MAX), *val = points_new(16, 2, SIZE_MAX);
    exo_fit_opts opts = exo_fit_opts_init();
    opts.num_nodes = 2;
    opts.max_steps = 2;
    opts.val_size = 8;
    opts.save_dir = NULL;
    model = points_mlp();
    cr_assert_eq(exo_trainer_new(&trainer, model, train, val, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(fesetround(rounding), 0);
    feenableexcept(traps);
    exo_status st = exo_trainer_fit_text(
        trainer, "diloco", "{H: 1, optimizer: {name: adamw, lr: 3e-4}}", &opts, &result, &err);
    cr_expect_eq(fegetround(), rounding);
    cr_expect_eq(fegetexcept(), traps);
    fesetenv(FE_DFL_ENV);
    cr_assert_eq(st, EXO_OK, "%s", err.text);
    memcpy(hash, result.sha256, 65);
    exo_params_free(&result.params);
    exo_trainer_free(&trainer);
    exo_model_drop(&model);
    exo_dataset_drop(&train);
    exo_dataset_drop(&val);
}

Test(threads, a_fit_has_the_same_bits_in_any_environment, .timeout = 120)
{
    char strange[65], plain[65];
    fit(FE_UPWARD, FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW, strange); /* starts the helpers */
    fit(FE_TONEAREST, 0, plain);
    cr_expect_str_eq(strange, plain);
}

/* --- Another allocator ------------------------------------------------------------------------ */

enum {
    TRIMMERS = 4,
    PROCESSES = 60
};

static pthread_barrier_t together;

static void *
trim(void *unused)
{
    pthread_barrier_wait(&together);
    exo_pages_trim();
    return unused;
}

/* The first threads of a process that give memory back do it at once. Under a sanitizer, glibc's own
 * allocator is first set up then. */
static void
trim_together(void)
{
    pthread_t threads[TRIMMERS];
    pthread_barrier_init(&together, NULL, TRIMMERS);
    for (int i = 0; i < TRIMMERS; i++)
        if (pthread_create(&threads[i], NULL, trim, NULL) != 0)
            _exit(2);
    for (int i = 0; i < TRIMMERS; i++)
        pthread_join(threads[i], NULL);
    _exit(0);
}

Test(threads, give_memory_back_at_once_whatever_allocator_serves_them)
{
    for (int k = 0; k < PROCESSES; k++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0)
            trim_together();
        cr_assert_gt(child, 0);
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
    }
}
