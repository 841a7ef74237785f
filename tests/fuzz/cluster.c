/* What a process of the cluster may ask of head and worker: a sequence of calls, each a byte that chooses the method, two bytes with
 * the length of its arguments, and those. The methods are called one after another by this thread, on a head without state on disk;
 * workers are far away and never answer, but the sequence may speak for them. */
#include <stdlib.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "directory.h"
#include "head.h"
#include "runtime_impl.h"
#include "worker.h"

enum {
    MAX_CALLS = 200,
    ADVANCE = 15 /* a call that lets time pass */
};

static exo_clock_manual manual;
static exo_runtime *runtime;

static exo_status
ignore(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)self;
    (void)args;
    (void)reply;
    (void)err;
    return EXO_OK;
}

static const exo_lane_class lanes[] = {{.name = "main", .capacity = 1u << 20}};
static const exo_method methods[] = {
    {.name = "spawn", .run = ignore}, {.name = "kill", .run = ignore}, {.name = "started", .run = ignore}};
static const exo_actor_class dummy_class = {
    .name = "dummy", .lanes = lanes, .num_lanes = 1, .methods = methods, .num_methods = 3};

/* An actor to stand for head and workers. */
static exo_ref
dummy(void)
{
    static exo_ref ref;
    exo_actor *actor = ref.id ? exo_runtime_find(runtime, ref) : NULL;
    if (actor)
        exo_actor_drop(actor);
    else if (exo_spawn(runtime, &dummy_class, NULL, &ref, NULL) != EXO_OK)
        abort();
    return ref;
}

static exo_status
worker_of(void *context, uint64_t node, exo_ref *out, exo_err *err)
{
    (void)context;
    if (node % 4 == 3)
        return exo_fail(err, EXO_PEER_LOST, "its node is lost");
    *out = dummy();
    return EXO_OK;
}

static void
quiet(void *context, exo_log_level level, const char *line)
{
    (void)context;
    (void)level;
    (void)line;
}

static void
wake(void *context)
{
    (void)context;
}

static void
making(void *context, bool begins, uint64_t key, exo_ref actor)
{
    (void)context;
    (void)key;
    if (!begins && actor.id)
        exo_kill(runtime, actor, "over", NULL);
}

/* Calls a method as a lane does. */
static void
call(exo_actor *actor, const exo_actor_class *class, void *self, size_t method, const uint8_t *data, size_t size)
{
    exo_future *future = NULL;
    exo_payload args = {0}, reply = {0};
    exo_err err = {0};
    if (exo_future_new(&future, &manual.base, INT64_MAX, NULL) != EXO_OK ||
        exo_payload_copy(&args, data, size) != EXO_OK)
        abort();
    exo_call_context context = {.runtime = runtime, .actor = actor, .message = exo_future_message(future)};
    context.message->future = future;
    exo_status st = class->methods[method].run(&context, self, &args, &reply, &err);
    if (st != EXO_OK && !err.text[0])
        abort(); /* a failure says why */
    exo_payload_release(&reply);
    exo_payload_release(&args);
    exo_future_drop(&future);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _Atomic exo_time due = INT64_MAX;
    const exo_head_env env = {.worker_of = worker_of, .cluster = "fuzz", .wake = wake, .due = &due};
    const exo_worker_env worker_env = {.making = making};
    exo_err err = {0};
    if (!runtime) {
        exo_log_set_sink(quiet, NULL);
        exo_clock_manual_init(&manual, EXO_SECOND);
        const exo_runtime_opts opts = {.clock = &manual.base, .threads = 1};
        if (exo_runtime_open(&runtime, &opts, &err) != EXO_OK || exo_actor_class_register(&dummy_class, &err) != EXO_OK)
            abort();
    }
    exo_actor *actor = exo_runtime_find(runtime, dummy());
    void *head = exo_calloc(1, exo_head_class.state_size), *worker = exo_calloc(1, exo_worker_class.state_size);
    exo_call_context context = {.runtime = runtime, .actor = actor};
    const exo_payload args = exo_payload_borrow(&env, sizeof env),
                      worker_args = exo_payload_borrow(&worker_env, sizeof worker_env);
    if (!actor || !head || !worker || exo_head_class.start(&context, head, &args, &err) != EXO_OK ||
        exo_worker_class.start(&context, worker, &worker_args, &err) != EXO_OK)
        abort();
    for (size_t at = 0, calls = 0; at + 3 <= size && calls < MAX_CALLS; calls++) {
        size_t which = data[at], length = data[at + 1] | (size_t)data[at + 2] << 8;
        at += 3;
        length = length < size - at ? length : size - at;
        if (which % 16 == ADVANCE)
            exo_clock_manual_advance(&manual, (exo_time)length * EXO_SECOND / 64);
        else if (which % 16 < exo_head_class.num_methods)
            call(actor, &exo_head_class, head, which % 16, data + at, length);
        else
            call(actor, &exo_worker_class, worker, which % 16 % exo_worker_class.num_methods, data + at, length);
        at += which % 16 == ADVANCE ? 0 : length;
    }
    exo_head_class.stop(head);
    exo_actor_drop(actor);
    exo_free(head);
    exo_free(worker);
    return 0;
}
