/* Calls between processes, beside raw libzmq in the same run:
 *
 *     bench_runtime [--transport ipc|tcp] [--rounds N] [--calls N]
 *
 * A child process is head and worker, this one the driver. Round trips of 64 B, and calls with 1000 under way; objects and starts of
 * actors. libzmq is a DEALER here and a ROUTER that echoes in another process. Rounds alternate; medians. */
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
    MAX_ROUNDS = 32,
    STARTS = 2000,
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

/* Takes an object, and lets it go. */
static exo_status
take(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)self;
    (void)reply;
    return exo_object_of_payload(args) ? EXO_OK : exo_fail(err, EXO_INVAL, "it came as a copy");
}

static const exo_lane_class lanes[] = {{.name = "main", .capacity = 65536}};
static const exo_method methods[] = {{.name = "echo", .run = echo}, {.name = "take", .run = take}};
static const exo_actor_class echo_class = {
    .name = "echo", .state_size = 8, .lanes = lanes, .num_lanes = 1, .methods = methods, .num_methods = 2};

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
join(exo_cluster_role role, const char *folder, const char *head, bool tcp, exo_runtime **runtime,
     exo_cluster **cluster)
{
    static const char *const any[] = {"tcp://127.0.0.1:0"};
    exo_err err = {0};
    const exo_cluster_opts opts = {.role = role,
                                   .cluster = "bench",
                                   .folder = folder,
                                   .head = head,
                                   .state = "none",
                                   .listen = any,
                                   .num_listen = tcp,
                                   .no_ipc = tcp && role != EXO_ROLE_HEAD};
    must(exo_runtime_open(runtime, NULL, &err), &err);
    must(exo_cluster_join(cluster, *runtime, &opts, soon(), &err), &err);
}

/* Head and worker, until the parent ends. */
static void
serve(const char *folder, bool tcp)
{
    exo_runtime *head_runtime, *runtime;
    exo_cluster *head, *worker;
    exo_err err = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    must(exo_actor_class_register(&echo_class, &err), &err);
    join(EXO_ROLE_HEAD, folder, NULL, false, &head_runtime, &head);
    join(EXO_ROLE_WORKER, folder, NULL, tcp, &runtime, &worker);
    for (;;)
        pause();
}

static exo_future *
begin(exo_runtime *runtime, exo_ref ref)
{
    static const char bytes[BYTES];
    exo_future *future = NULL;
    exo_err err = {0};
    must(exo_call(runtime, ref, "echo", exo_payload_borrow(bytes, BYTES), soon(), &future, &err), &err);
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

static bench_stats
pipelined(exo_runtime *runtime, exo_ref ref, size_t count)
{
    static exo_future *futures[WINDOW];
    int64_t began = bench_now();
    for (size_t i = 0; i < count + WINDOW; i++) {
        exo_future **f = &futures[i % WINDOW];
        if (*f)
            end(f);
        if (i < count)
            *f = begin(runtime, ref);
    }
    return (bench_stats){.rate = (double)count / ((double)(bench_now() - began) * 1e-9)};
}

/* Actors a second, made one after the other from here, on a worker elsewhere. */
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

/* From the call with an object of 64 MiB until its method has begun, and back. */
static bench_stats
objects(exo_runtime *runtime, exo_ref ref, size_t count)
{
    bench_recorder recorder;
    exo_object *object = NULL;
    exo_err err = {0};
    must(bench_recorder_init(&recorder, count, &err), &err);
    int64_t spent = 0;
    for (size_t i = 0; i < count; i++) {
        exo_future *future = NULL;
        must(exo_object_new(&object, OBJECT, &err), &err);
        memset(exo_object_data(object), (int)i, OBJECT);
        exo_object_seal(object);
        int64_t at = bench_now();
        must(exo_call(runtime, ref, "take", exo_object_payload(object), soon(), &future, &err), &err);
        end(&future);
        bench_record(&recorder, bench_now() - at);
        spent += bench_now() - at;
        exo_object_drop(&object);
    }
    bench_stats stats = bench_recorder_take(&recorder, count, spent);
    bench_recorder_release(&recorder);
    return stats;
}

static void
print_row(const char *what, bench_stats s)
{
    printf("%-28s %9.1f %9.1f %9.1f %12.0f\n", what, s.p50 / 1e3, s.p99 / 1e3, s.p999 / 1e3, s.rate);
}

int
main(int argc, char **argv)
{
    char folder[] = "/tmp/exo-bench-XXXXXX", head[64];
    bool tcp = false;
    size_t rounds = 5, calls = 20000;
    exo_err err = {0};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--transport") == 0)
            tcp = strcmp(argv[i + 1], "tcp") == 0;
        else if (strcmp(argv[i], "--rounds") == 0)
            rounds = strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--calls") == 0)
            calls = strtoul(argv[i + 1], NULL, 10);
    }
    rounds = rounds < 1 ? 1 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
    if (!mkdtemp(folder))
        return 1;
    bench_echo *raw = NULL;
    bench_transport transport = tcp ? BENCH_TCP : BENCH_IPC;
    must(bench_echo_open(&raw, transport, &err), &err);
    pid_t child = fork();
    if (child == 0)
        serve(folder, tcp);

    exo_runtime *runtime;
    exo_cluster *cluster;
    exo_ref ref;
    snprintf(head, sizeof head, "ipc://%s/bench/head", folder);
    join(EXO_ROLE_DRIVER, folder, head, false, &runtime, &cluster);
    exo_status st;
    do /* the worker may be later than we are */
        st = exo_spawn_class(runtime, "echo", NULL, soon(), &ref, &err);
    while (st == EXO_FULL);
    must(st, &err);

    bench_stats handed[MAX_ROUNDS];
    double started[MAX_ROUNDS];
    bench_stats ours[MAX_ROUNDS], theirs[MAX_ROUNDS], many[MAX_ROUNDS], raw_rate[MAX_ROUNDS];
    for (size_t i = 0; i < rounds; i++) {
        must(bench_echo_run(raw, BYTES, 1, calls / 10, &theirs[i], &err), &err);
        ours[i] = round_trips(runtime, ref, calls / 10);
        must(bench_echo_run(raw, BYTES, WINDOW, calls * 10, &raw_rate[i], &err), &err);
        many[i] = pipelined(runtime, ref, calls * 10);
        started[i] = starts(runtime, STARTS);
        handed[i] = objects(runtime, ref, 20);
    }
    bench_stats a = bench_stats_median(ours, rounds), b = bench_stats_median(theirs, rounds);
    bench_stats c = bench_stats_median(many, rounds), d = bench_stats_median(raw_rate, rounds);
    printf("%-28s %9s %9s %9s %12s\n", tcp ? "tcp, 64 B" : "ipc, 64 B", "p50 us", "p99", "p99.9", "per second");
    print_row("libzmq DEALER-ROUTER", b);
    print_row("call and reply", a);
    print_row("libzmq, 1000 under way", d);
    print_row("calls, 1000 under way", c);
    print_row("64 MiB object, call and reply", bench_stats_median(handed, rounds));
    printf("actors started across the cluster, one after the other: %.0f a second\n", bench_median(started, rounds));
    printf("round trip %.2f times libzmq's; pipelined %.2f of libzmq's\n", a.p50 / b.p50, c.rate / d.rate);

    exo_cluster_leave(cluster);
    exo_runtime_close(&runtime, soon(), &err);
    exo_cluster_free(&cluster);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    bench_echo_close(&raw);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0;
}
