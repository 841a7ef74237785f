/* Actors in one process: a call and its reply beside a bare futex round trip between two threads,
 * messages a second, actors started a second, and the memory of idle actors. Times and rates are
 * medians of the repeats (default: 5).
 *
 *     bench_actors [REPEATS]
 */
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <exogym/actor.h>
#include <exogym/memory.h>

enum {
    MAX_REPEATS = 101,
    TRIPS = 20000,
    MESSAGES = 1000000,
    WINDOW = 1000,
    MAX_CALLERS = 4,
    IDLE_ACTORS = 100000
};

static void
must(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "bench_actors: %s failed\n", what);
    exit(EXIT_FAILURE);
}

static exo_time
now(void)
{
    return exo_now(exo_clock_real());
}

/* --- Figures ---------------------------------------------------------------------------------- */

static int
compare_times(const void *a, const void *b)
{
    exo_time x = *(const exo_time *)a, y = *(const exo_time *)b;
    return x < y ? -1 : x > y;
}

static int
compare_rates(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Percentiles of the round trips of each repeat, in us. */
struct latency {
    double p50[MAX_REPEATS], p99[MAX_REPEATS], p999[MAX_REPEATS];
};

static void
latency_add(struct latency *l, int repeat, exo_time *trips)
{
    qsort(trips, TRIPS, sizeof trips[0], compare_times);
    l->p50[repeat] = (double)trips[TRIPS / 2] * 1e-3;
    l->p99[repeat] = (double)trips[TRIPS - TRIPS / 100] * 1e-3;
    l->p999[repeat] = (double)trips[TRIPS - TRIPS / 1000] * 1e-3;
}

static double
median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof values[0], compare_rates);
    return values[count / 2];
}

/* Prints the medians over the repeats; with a `limit` also the p50 as a multiple of it. Returns the
 * p50. */
static double
latency_print(struct latency *l, int repeats, const char *what, double limit)
{
    double p50 = median(l->p50, repeats);
    printf("%-34s %9.2f %9.2f %9.2f", what, p50, median(l->p99, repeats), median(l->p999, repeats));
    if (limit > 0)
        printf(" %9.2f", p50 / limit);
    printf("\n");
    return p50;
}

/* --- The limit: two threads that wake each other ---------------------------------------------- */

struct pair {
    atomic_uint ping, pong;
};

static void
post(atomic_uint *word, unsigned value)
{
    atomic_store(word, value);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void
await(atomic_uint *word, unsigned value)
{
    for (unsigned seen; (seen = atomic_load(word)) != value;)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void *
answer_main(void *argument)
{
    struct pair *p = argument;
    for (unsigned i = 1; i <= TRIPS; i++) {
        await(&p->ping, i);
        post(&p->pong, i);
    }
    return NULL;
}

static void
futex_trips(exo_time *trips)
{
    struct pair p = {0};
    pthread_t thread;
    must(pthread_create(&thread, NULL, answer_main, &p) == 0, "a thread");
    for (unsigned i = 1; i <= TRIPS; i++) {
        exo_time before = now();
        post(&p.ping, i);
        await(&p.pong, i);
        trips[i - 1] = now() - before;
    }
    pthread_join(thread, NULL);
}

/* --- The actor: its methods do nothing, so the figures are those of the runtime --------------- */

static exo_status
nothing(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
        exo_err *err)
{
    (void)call;
    (void)args;
    (void)reply;
    (void)err;
    ++*(uint64_t *)self;
    return EXO_OK;
}

static const exo_lane_class lanes[] = {{.name = "light", .capacity = 1 << 14},
                                       {.name = "own", .blocking = true, .capacity = 1 << 14}};
static const exo_method methods[] = {{.name = "light", .lane = 0, .run = nothing},
                                     {.name = "own", .lane = 1, .run = nothing}};
static const exo_actor_class idler = {.name = "idler",
                                      .state_size = sizeof(uint64_t),
                                      .lanes = lanes,
                                      .num_lanes = 2,
                                      .methods = methods,
                                      .num_methods = 2};
static const exo_actor_class light = {
    .name = "light", .state_size = sizeof(uint64_t), .methods = methods, .num_methods = 1};

static exo_ref
spawn(exo_runtime *runtime, const exo_actor_class *actor_class, const char *name)
{
    exo_ref ref;
    must(exo_spawn(runtime, actor_class, &(exo_spawn_opts){.name = name}, &ref, NULL) == EXO_OK,
         "a spawn");
    return ref;
}

static exo_runtime *
open_runtime(void)
{
    exo_runtime *runtime;
    must(exo_runtime_open(&runtime, NULL, NULL) == EXO_OK, "opening a runtime");
    return runtime;
}

static void
close_runtime(exo_runtime *runtime)
{
    must(exo_runtime_close(&runtime, INT64_MAX, NULL) == EXO_OK, "closing a runtime");
}

static void
call_trips(exo_time *trips, const char *method, bool with_deadline)
{
    exo_runtime *runtime = open_runtime();
    exo_ref ref = spawn(runtime, &idler, NULL);
    for (int i = 0; i < TRIPS; i++) {
        exo_future *f;
        exo_time before = now(), deadline = with_deadline ? before + 60 * EXO_SECOND : INT64_MAX;
        must(exo_call(runtime, ref, method, (exo_payload){0}, deadline, &f, NULL) == EXO_OK,
             "a call");
        must(exo_wait(f, deadline, NULL, NULL) == EXO_OK, "a wait");
        exo_future_drop(&f);
        trips[i] = now() - before;
    }
    close_runtime(runtime);
}

/* --- Messages a second ------------------------------------------------------------------------ */

struct caller {
    exo_runtime *runtime;
    exo_ref to;
    bool futures;
    size_t count;
};

/* Keeps WINDOW calls in flight, and waits for the oldest one. */
static void
call_in_a_window(const struct caller *c)
{
    exo_future *flying[WINDOW] = {NULL};
    for (size_t i = 0; i < c->count + WINDOW; i++) {
        exo_future **f = &flying[i % WINDOW];
        if (*f)
            must(exo_wait(*f, INT64_MAX, NULL, NULL) == EXO_OK, "a wait");
        exo_future_drop(f);
        if (i < c->count)
            must(exo_call(c->runtime, c->to, "light", (exo_payload){0}, INT64_MAX, f, NULL) ==
                     EXO_OK,
                 "a call");
    }
}

/* Sends as fast as the mailbox accepts. The reply to a last call says that all have been served. */
static void
send_all(const struct caller *c)
{
    exo_future *last;
    exo_status st;
    for (size_t i = 0; i < c->count; i++)
        while ((st = exo_send(c->runtime, c->to, "light", (exo_payload){0}, INT64_MAX, NULL)) !=
               EXO_OK) {
            must(st == EXO_FULL, "a send");
            sched_yield();
        }
    while ((st = exo_call(c->runtime, c->to, "light", (exo_payload){0}, INT64_MAX, &last, NULL)) ==
           EXO_FULL)
        sched_yield();
    must(st == EXO_OK && exo_wait(last, INT64_MAX, NULL, NULL) == EXO_OK, "the last call");
    exo_future_drop(&last);
}

static void *
caller_main(void *argument)
{
    const struct caller *c = argument;
    if (c->futures)
        call_in_a_window(c);
    else
        send_all(c);
    return NULL;
}

static double
message_rate(size_t callers, size_t actors, bool futures)
{
    exo_runtime *runtime = open_runtime();
    struct caller who[MAX_CALLERS];
    pthread_t threads[MAX_CALLERS];
    exo_ref refs[MAX_CALLERS];
    for (size_t i = 0; i < actors; i++)
        refs[i] = spawn(runtime, &idler, NULL);
    exo_time before = now();
    for (size_t i = 0; i < callers; i++) {
        who[i] = (struct caller){.runtime = runtime,
                                 .to = refs[i % actors],
                                 .futures = futures,
                                 .count = MESSAGES / callers};
        must(pthread_create(&threads[i], NULL, caller_main, &who[i]) == 0, "a thread");
    }
    for (size_t i = 0; i < callers; i++)
        pthread_join(threads[i], NULL);
    double seconds = (double)(now() - before) * 1e-9;
    close_runtime(runtime);
    return MESSAGES / seconds;
}

/* --- Actors a second, and their memory -------------------------------------------------------- */

static double
resident_mib(void)
{
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    must(statm && fscanf(statm, "%*d %ld", &pages) == 1, "/proc/self/statm");
    fclose(statm);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

/* Returns actors started per second. *mib is the growth of this process's resident memory. */
static double
spawn_rate(bool named, double *mib)
{
    char name[32] = "";
    exo_runtime *runtime = open_runtime();
    double resident = resident_mib();
    exo_time before = now();
    for (int i = 0; i < IDLE_ACTORS; i++) {
        if (named)
            snprintf(name, sizeof name, "actor-%d", i);
        spawn(runtime, &light, named ? name : NULL);
    }
    double seconds = (double)(now() - before) * 1e-9;
    *mib = resident_mib() - resident;
    close_runtime(runtime);
    return IDLE_ACTORS / seconds;
}

int
main(int argc, char **argv)
{
    static struct latency l;
    static exo_time trips[TRIPS];
    double values[MAX_REPEATS], mib, first_mib;
    int repeats = argc > 1 ? atoi(argv[1]) : 5;
    repeats = repeats < 1 ? 1 : repeats > MAX_REPEATS ? MAX_REPEATS : repeats;

    /* The memory is measured first, before the allocator has free memory of its own to reuse. */
    spawn_rate(false, &first_mib);

    printf("%-34s %9s %9s %9s %9s\n", "round trip, us", "p50", "p99", "p99.9", "of futex");
    for (int r = 0; r < repeats; r++) {
        futex_trips(trips);
        latency_add(&l, r, trips);
    }
    double limit = latency_print(&l, repeats, "bare futex, two threads", 0);
    static const struct {
        const char *what, *method;
        bool with_deadline;
    } rounds[] = {{"call and wait, light lane", "light", false},
                  {"the same with a deadline", "light", true},
                  {"call and wait, blocking lane", "own", false}};
    for (size_t k = 0; k < sizeof rounds / sizeof rounds[0]; k++) {
        for (int r = 0; r < repeats; r++) {
            call_trips(trips, rounds[k].method, rounds[k].with_deadline);
            latency_add(&l, r, trips);
        }
        latency_print(&l, repeats, rounds[k].what, limit);
    }

    printf("\n%-34s %9s\n", "messages", "M/s");
    static const struct {
        size_t callers, actors;
        bool futures;
    } loads[] = {{1, 1, true},  {2, 2, true},  {4, 4, true}, {4, 1, true},
                 {1, 1, false}, {2, 2, false}, {4, 1, false}};
    for (size_t k = 0; k < sizeof loads / sizeof loads[0]; k++) {
        char what[64];
        for (int r = 0; r < repeats; r++)
            values[r] = message_rate(loads[k].callers, loads[k].actors, loads[k].futures) * 1e-6;
        snprintf(what, sizeof what, "%zu caller%s, %zu actor%s, %s", loads[k].callers,
                 loads[k].callers > 1 ? "s" : "", loads[k].actors, loads[k].actors > 1 ? "s" : "",
                 loads[k].futures ? "futures" : "sends");
        printf("%-34s %9.2f\n", what, median(values, repeats));
    }

    printf("\n%-34s %9s\n", "actors started", "k/s");
    for (int named = 0; named < 2; named++) {
        for (int r = 0; r < repeats; r++)
            values[r] = spawn_rate(named, &mib) * 1e-3;
        printf("%-34s %9.0f\n", named ? "named" : "anonymous", median(values, repeats));
    }
    printf("\n%d actors without work: %.1f MiB\n", IDLE_ACTORS, first_mib);
    return EXIT_SUCCESS;
}
