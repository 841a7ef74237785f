/* Calls between processes, beside plain libzmq in the same run:
 *
 *     bench_runtime [--transport ipc|tcp] [--rounds N] [--calls N] [--values]
 *
 * This process is the driver. Its child processes are workers, and the first one is also the head.
 * Measured are round trips of 64 bytes; calls with 1,000 in flight; two actors that call two other
 * actors in turn, each in its own process; starts of actors; and objects of 64 MiB. libzmq is a
 * DEALER in this process and a ROUTER that echoes in another one. Each round measures everything
 * once; the figures are medians over the rounds. --values prints NAME=VALUE lines, with the names
 * of peers/ray_calls.py. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/cluster.h>
#include <exogym/memory.h>
#include <exogym/object.h>

#include "limits.h"

enum {
    BYTES = 64,
    WINDOW = 1000,
    STARTS = 2000,
    WORKERS = 4,
    PAIRS = 2, /* pairs of a caller and an actor */
    OBJECT = 64 << 20
};

static exo_status
echo(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)self;
    (void)err;
    return exo_payload_copy(reply, args->data, args->size);
}

/* Receives an object. Replies with the time at which it had it. */
static exo_status
take(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)self;
    int64_t now = bench_now();
    if (!exo_object_of_payload(args))
        return exo_fail(err, EXO_INVAL, "it came as a copy");
    return exo_payload_copy(reply, &now, sizeof now);
}

static exo_status call_many(exo_call_context *call, void *self, const exo_payload *args,
                            exo_payload *reply, exo_err *err);

static const exo_lane_class lanes[] = {{.name = "main", .capacity = 65536}};
static const exo_lane_class caller_lanes[] = {{.name = "main", .capacity = 16, .blocking = true}};
static const exo_method methods[] = {{.name = "echo", .run = echo}, {.name = "take", .run = take}};
static const exo_method caller_methods[] = {{.name = "call", .run = call_many}};
static const exo_actor_class echo_class = {.name = "echo",
                                           .state_size = 8,
                                           .lanes = lanes,
                                           .num_lanes = 1,
                                           .methods = methods,
                                           .num_methods = 2};
static const exo_actor_class caller_class = {.name = "caller",
                                             .state_size = 8,
                                             .lanes = caller_lanes,
                                             .num_lanes = 1,
                                             .methods = caller_methods,
                                             .num_methods = 1};

static exo_time
soon(void)
{
    return exo_deadline(exo_clock_real(), 60 * EXO_SECOND);
}

static void
must(exo_status st, const exo_err *err)
{
    if (st == EXO_OK)
        return;
    fprintf(stderr, "bench_runtime: %s\n", err->text);
    exit(1);
}

static void
join(exo_cluster_role role, const char *name, const char *folder, const char *head, bool tcp,
     exo_runtime **runtime, exo_cluster **cluster)
{
    static const char *const any[] = {"tcp://127.0.0.1:0"};
    exo_err err = {0};
    const exo_cluster_opts opts = {.role = role,
                                   .name = name,
                                   .cluster = "bench",
                                   .folder = folder,
                                   .head = head,
                                   .state = "none",
                                   .listen = any,
                                   .num_listen = tcp,
                                   .insecure = tcp,
                                   .no_ipc = tcp && role != EXO_ROLE_HEAD};
    must(exo_runtime_open(runtime, NULL, &err), &err);
    must(exo_cluster_join(cluster, *runtime, &opts, soon(), &err), &err);
}

/* Forks a worker, number 0 with the head in the same process. It lives until the parent ends. */
static pid_t
start_worker(unsigned number, const char *folder, const char *address, bool tcp)
{
    exo_runtime *head_runtime, *runtime;
    exo_cluster *head, *worker;
    exo_err err = {0};
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    must(exo_actor_class_register(&echo_class, &err), &err);
    must(exo_actor_class_register(&caller_class, &err), &err);
    if (number == 0)
        join(EXO_ROLE_HEAD, "head", folder, NULL, false, &head_runtime, &head);
    char name[16];
    snprintf(name, sizeof name, "w%u", number);
    join(EXO_ROLE_WORKER, name, folder, number == 0 ? NULL : address, tcp, &runtime, &worker);
    for (;;)
        pause();
}

/* Spawns an actor on a worker, and tries again until that worker has registered. */
static exo_ref
spawn_on(exo_runtime *runtime, const char *class_name, const char *name, unsigned worker)
{
    exo_ref ref;
    exo_err err = {0};
    exo_status st;
    char node[16];
    snprintf(node, sizeof node, "w%u", worker);
    do
        st = exo_spawn_class(
            runtime, class_name,
            &(exo_spawn_opts){.name = name, .placement = EXO_PLACE_STRICT, .node = node}, soon(),
            &ref, &err);
    while (st == EXO_FULL || st == EXO_NOT_FOUND);
    must(st, &err);
    return ref;
}

static exo_future *
begin(exo_runtime *runtime, exo_ref ref)
{
    static const char bytes[BYTES];
    exo_future *future = NULL;
    exo_err err = {0};
    must(exo_call(runtime, ref, "echo", exo_payload_borrow(bytes, BYTES), soon(), &future, &err),
         &err);
    return future;
}

static void
end(exo_future **future)
{
    exo_err err = {0};
    must(exo_wait(*future, soon(), NULL, &err), &err);
    exo_future_drop(future);
}

static bench_stats
round_trips(exo_runtime *runtime, exo_ref ref, size_t count)
{
    bench_recorder recorder;
    exo_err err = {0};
    must(bench_recorder_init(&recorder, count, &err), &err);
    int64_t began = bench_now();
    for (size_t i = 0; i < count; i++) {
        int64_t at = bench_now();
        exo_future *future = begin(runtime, ref);
        end(&future);
        bench_record(&recorder, bench_now() - at);
    }
    bench_stats stats = bench_recorder_take(&recorder, count, bench_now() - began);
    bench_recorder_release(&recorder);
    return stats;
}

/* Calls the actors in turn, with WINDOW calls in flight. */
static void
call_in_turn(exo_runtime *runtime, const exo_ref *refs, size_t num_refs, size_t count)
{
    exo_future **futures = exo_calloc(WINDOW, sizeof *futures);
    for (size_t i = 0; i < count + WINDOW; i++) {
        exo_future **f = &futures[i % WINDOW];
        if (*f)
            end(f);
        if (i < count)
            *f = begin(runtime, refs[i % num_refs]);
    }
    exo_free(futures);
}

static double
pipelined(exo_runtime *runtime, exo_ref ref, size_t count)
{
    int64_t began = bench_now();
    call_in_turn(runtime, &ref, 1, count);
    return (double)count / ((double)(bench_now() - began) * 1e-9);
}

/* The method of a caller in all_to_all. args: the number of calls, a size_t. */
static exo_status
call_many(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
          exo_err *err)
{
    exo_runtime *runtime = exo_call_runtime(call);
    exo_ref refs[PAIRS];
    size_t count = 0;
    (void)self;
    (void)reply;
    if (args->size != sizeof count)
        return exo_fail(err, EXO_INVAL, "expected a count");
    memcpy(&count, args->data, sizeof count);
    for (unsigned i = 0; i < PAIRS; i++) {
        char name[16];
        snprintf(name, sizeof name, "echo%u", i);
        must(exo_get_actor(runtime, NULL, name, &refs[i], err), err);
    }
    call_in_turn(runtime, refs, PAIRS, count);
    return EXO_OK;
}

static double
all_to_all(exo_runtime *runtime, const exo_ref callers[PAIRS], size_t count)
{
    exo_future *futures[PAIRS];
    exo_err err = {0};
    int64_t began = bench_now();
    for (unsigned i = 0; i < PAIRS; i++)
        must(exo_call(runtime, callers[i], "call", exo_payload_borrow(&count, sizeof count), soon(),
                      &futures[i], &err),
             &err);
    for (unsigned i = 0; i < PAIRS; i++)
        end(&futures[i]);
    return PAIRS * (double)count / ((double)(bench_now() - began) * 1e-9);
}

/* Actors per second that this process spawns on the workers, one after another. */
static double
starts(exo_runtime *runtime, size_t count)
{
    exo_err err = {0};
    exo_ref *refs = exo_calloc(count, sizeof *refs);
    int64_t began = bench_now();
    for (size_t i = 0; i < count; i++)
        must(exo_spawn_class(runtime, "echo", NULL, soon(), &refs[i], &err), &err);
    double rate = (double)count / ((double)(bench_now() - began) * 1e-9);
    for (size_t i = 0; i < count; i++)
        exo_stop(runtime, refs[i], false, &err);
    exo_free(refs);
    return rate;
}

/* Calls with an object of 64 MiB. *handed has the times until the method has the object, *replied
 * those until the reply has arrived. */
static void
objects(exo_runtime *runtime, exo_ref ref, size_t count, bench_stats *handed, bench_stats *replied)
{
    bench_recorder there, back;
    exo_object *object = NULL;
    exo_err err = {0};
    must(bench_recorder_init(&there, count, &err), &err);
    must(bench_recorder_init(&back, count, &err), &err);
    for (size_t i = 0; i < count; i++) {
        exo_payload reply = {0};
        int64_t had;
        must(exo_object_new(&object, OBJECT, &err), &err);
        memset(exo_object_data(object), (int)i, OBJECT);
        exo_object_seal(object);
        int64_t at = bench_now();
        must(exo_call_wait(runtime, ref, "take", exo_object_payload(object), soon(), &reply, &err),
             &err);
        bench_record(&back, bench_now() - at);
        memcpy(&had, reply.data, sizeof had);
        bench_record(&there, had - at);
        exo_payload_release(&reply);
        exo_object_drop(&object);
    }
    *handed = bench_recorder_take(&there, 0, 1);
    *replied = bench_recorder_take(&back, 0, 1);
    bench_recorder_release(&there);
    bench_recorder_release(&back);
}

/* --- Measuring -------------------------------------------------------------------------------- */

struct options {
    bool tcp, values;
    size_t rounds, calls;
};

/* Each figure has a value for each round. */
struct figures {
    bench_stats raw[BENCH_MAX_REPEATS], ours[BENCH_MAX_REPEATS], raw_many[BENCH_MAX_REPEATS];
    bench_stats handed[BENCH_MAX_REPEATS], replied[BENCH_MAX_REPEATS];
    double many[BENCH_MAX_REPEATS], all[BENCH_MAX_REPEATS], starts[BENCH_MAX_REPEATS];
};

static void
measure(const struct options *o, exo_runtime *runtime, bench_echo *raw, struct figures *f)
{
    exo_err err = {0};
    exo_ref callers[PAIRS], ref = {0};
    for (unsigned i = 0; i < PAIRS; i++) {
        char name[16];
        snprintf(name, sizeof name, "echo%u", i);
        exo_ref echo_ref = spawn_on(runtime, "echo", name, i);
        ref = i == 0 ? echo_ref : ref;
        callers[i] = spawn_on(runtime, "caller", NULL, PAIRS + i);
    }
    for (size_t i = 0; i < o->rounds; i++) {
        must(bench_echo_run(raw, BYTES, 1, o->calls, &f->raw[i], &err), &err);
        f->ours[i] = round_trips(runtime, ref, o->calls);
        must(bench_echo_run(raw, BYTES, WINDOW, o->calls * 100, &f->raw_many[i], &err), &err);
        f->many[i] = pipelined(runtime, ref, o->calls * 100);
        f->all[i] = all_to_all(runtime, callers, o->calls * 50);
        f->starts[i] = starts(runtime, STARTS);
        objects(runtime, ref, 20, &f->handed[i], &f->replied[i]);
    }
}

static void
print_row(const char *what, bench_stats s)
{
    printf("%-34s %9.1f %9.1f %9.1f", what, s.p50 / 1e3, s.p99 / 1e3, s.p999 / 1e3);
    if (s.rate > 0)
        printf(" %12.0f", s.rate);
    printf("\n");
}

static void
print_rate(const char *what, double rate)
{
    printf("%-34s %9s %9s %9s %12.0f\n", what, "", "", "", rate);
}

static void
print(const struct options *o, struct figures *f)
{
    bench_stats raw = bench_stats_median(f->raw, o->rounds),
                ours = bench_stats_median(f->ours, o->rounds),
                raw_many = bench_stats_median(f->raw_many, o->rounds),
                handed = bench_stats_median(f->handed, o->rounds),
                replied = bench_stats_median(f->replied, o->rounds);
    double many = bench_median(f->many, o->rounds), all = bench_median(f->all, o->rounds),
           starts_rate = bench_median(f->starts, o->rounds);
    if (o->values) {
        printf(
            "libzmq_sync_64_bytes_p50_us=%.1f\nsync_calls_per_s=%.0f\nsync_64_bytes_p50_us=%.1f\n"
            "sync_64_bytes_p99_us=%.1f\nsync_64_bytes_p999_us=%.1f\n",
            raw.p50 / 1e3, ours.rate, ours.p50 / 1e3, ours.p99 / 1e3, ours.p999 / 1e3);
        printf("libzmq_async_per_s=%.0f\nasync_calls_per_s=%.0f\nn_n_2x2_calls_per_s=%.0f\n",
               raw_many.rate, many, all);
        printf("actors_started_per_s=%.0f\nhand_over_64_mib_us=%.1f\n", starts_rate,
               handed.p50 / 1e3);
        return;
    }
    printf("%-34s %9s %9s %9s %12s\n", o->tcp ? "tcp, 64 B" : "ipc, 64 B", "p50 us", "p99", "p99.9",
           "per second");
    print_row("libzmq DEALER-ROUTER", raw);
    print_row("call and reply", ours);
    print_row("libzmq, 1000 under way", raw_many);
    print_rate("calls, 1000 under way", many);
    print_rate("2 callers, 2 actors, 1000 each", all);
    print_rate("actors started, one after another", starts_rate);
    print_row("64 MiB object, until it is there", handed);
    print_row("64 MiB object, call and reply", replied);
    printf("round trip %.2f times libzmq's; pipelined %.2f of libzmq's\n", ours.p50 / raw.p50,
           many / raw_many.rate);
}

/* --- The program ------------------------------------------------------------------------------ */

static bool
read_options(int argc, char **argv, struct options *o)
{
    *o = (struct options){.rounds = 5, .calls = 2000};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--values") == 0) {
            o->values = true;
            continue;
        }
        if (strcmp(argv[i], "--transport") == 0 &&
            (strcmp(value, "tcp") == 0 || strcmp(value, "ipc") == 0))
            o->tcp = strcmp(value, "tcp") == 0;
        else if (strcmp(argv[i], "--rounds") == 0)
            o->rounds = strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--calls") == 0)
            o->calls = strtoul(value, NULL, 10);
        else
            return false;
        i++;
    }
    return o->rounds > 0 && o->rounds <= BENCH_MAX_REPEATS && o->calls > 0;
}

int
main(int argc, char **argv)
{
    static struct figures figures;
    char folder[] = "/tmp/exo-bench-XXXXXX", head[64];
    struct options o;
    exo_err err = {0};
    if (!read_options(argc, argv, &o)) {
        fprintf(
            stderr,
            "usage: bench_runtime [--transport ipc|tcp] [--rounds 1..%d] [--calls N] [--values]\n",
            (int)BENCH_MAX_REPEATS);
        return 2;
    }
    if (!mkdtemp(folder))
        return 1;
    bench_echo *raw = NULL;
    must(bench_echo_open(&raw, o.tcp ? BENCH_TCP : BENCH_IPC, &err), &err);
    snprintf(head, sizeof head, "ipc://%s/bench/head", folder);
    pid_t children[WORKERS];
    for (unsigned i = 0; i < WORKERS; i++)
        children[i] = start_worker(i, folder, head, o.tcp);

    exo_runtime *runtime;
    exo_cluster *cluster;
    join(EXO_ROLE_DRIVER, "driver", folder, head, false, &runtime, &cluster);
    measure(&o, runtime, raw, &figures);
    print(&o, &figures);

    exo_cluster_leave(cluster);
    exo_runtime_close(&runtime, soon(), &err);
    exo_cluster_free(&cluster);
    for (unsigned i = WORKERS; i-- > 0;) { /* the head ends last */
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
    }
    bench_echo_close(&raw);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0;
}
