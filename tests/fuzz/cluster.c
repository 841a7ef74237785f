/* Calls of a member of the cluster to head and worker. An input is a sequence of calls: a byte that
 * chooses the method, two bytes with the length of the arguments, and the arguments. This thread
 * calls one method after the other, on a head without state on disk. Workers are far away and never
 * answer, but the sequence may send their answers.
 *
 * One thread owns head and worker; each input makes and frees them. Read next:
 * runtime/cluster/head_impl.h; tests/fuzz/corpus.py. */
#include <stdlib.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "actor/runtime_impl.h"
#include "cluster/head_impl.h"
#include "cluster/worker.h"

enum {
    MAX_CALLS = 200
};

/* The method that a byte chooses. The corpus uses the same numbers: add new methods at the end, and
 * to corpus.py. */
static const struct {
    const exo_actor_class *class; /* NULL: time passes */
    const char *method;
} asked[] = {
    {&exo_head_class, "register"}, {&exo_head_class, "gone"},
    {&exo_head_class, "spawn"},    {&exo_head_class, "started"},
    {&exo_head_class, "find"},     {&exo_head_class, "claim"},
    {&exo_head_class, "died"},     {&exo_head_class, "epitaph"},
    {&exo_head_class, "list"},     {&exo_head_class, "why"},
    {&exo_head_class, "log"},      {&exo_head_class, "logs"},
    {&exo_head_class, "tick"},     {&exo_worker_class, "kill"},
    {&exo_worker_class, "spawn"},  {NULL, "wait"},
    {&exo_head_class, "node"},     {&exo_head_class, "end"},
    {&exo_worker_class, "end"},    {&exo_head_class, "give_up"},
    {&exo_head_class, "report"},   {&exo_head_class, "go_on"},
    {&exo_head_class, "holds"},
};

enum {
    ASKED = sizeof asked / sizeof asked[0]
};

static exo_clock_manual manual;
static exo_runtime *runtime;

static exo_status
ignore(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
       exo_err *err)
{
    (void)call;
    (void)self;
    (void)args;
    (void)reply;
    (void)err;
    return EXO_OK;
}

static const exo_lane_class lanes[] = {{.name = "main", .capacity = 1u << 20}};
static const exo_method methods[] = {{.name = "spawn", .run = ignore},
                                     {.name = "kill", .run = ignore},
                                     {.name = "started", .run = ignore}};
static const exo_actor_class dummy_class = {
    .name = "dummy", .lanes = lanes, .num_lanes = 1, .methods = methods, .num_methods = 3};

/* An actor that stands for head and workers. */
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
nothing(void *context)
{
    (void)context;
}

/* The index of a method; class->num_methods if the class has no such method. */
static size_t
method_of(const exo_actor_class *class, const char *name)
{
    size_t i = 0;
    while (i < class->num_methods && strcmp(class->methods[i].name, name) != 0)
        i++;
    return i;
}

/* The table must have every method of the class. */
static void
check_table(const exo_actor_class *class)
{
    size_t found = 0;
    for (size_t i = 0; i < ASKED; i++)
        found += asked[i].class == class && method_of(class, asked[i].method) < class->num_methods;
    if (found != class->num_methods)
        abort();
}

static void
making(void *context, bool begins, const Exo__Cluster__Spawn *spec, exo_ref actor)
{
    (void)context;
    (void)spec;
    if (!begins && actor.id)
        exo_kill(runtime, actor, "over", NULL);
}

static exo_ref
find_made(void *context, uint64_t key, uint64_t incarnation)
{
    (void)context;
    (void)key;
    (void)incarnation;
    return (exo_ref){0};
}

/* Calls a method as a lane does. */
static void
call(exo_actor *actor, const exo_actor_class *class, void *self, size_t method, const uint8_t *data,
     size_t size)
{
    exo_future *future = NULL;
    exo_payload args = {0}, reply = {0};
    exo_err err = {0};
    if (exo_future_new(&future, &manual.base, INT64_MAX, NULL) != EXO_OK ||
        exo_payload_copy(&args, data, size) != EXO_OK)
        abort();
    exo_call_context context = {
        .runtime = runtime, .actor = actor, .message = exo_future_message(future)};
    context.message->future = future;
    context.message->method = &class->methods[method];
    exo_status st = class->methods[method].run(&context, self, &args, &reply, &err);
    if (st != EXO_OK && !err.text[0])
        abort(); /* every failure has a reason */
    exo_payload_release(&reply);
    exo_payload_release(&args);
    exo_future_drop(&future);
}

static void
require(bool holds)
{
    if (!holds)
        abort();
}

static void
check_batch(exo_directory *d, const exo_spawn_batch *b)
{
    size_t alive = 0;
    for (size_t i = 0; i < b->count; i++) {
        const exo_entry *a = exo_directory_by_key(d, b->keys[i]);
        require(a && a->batch == b && a->state != EXO_ENTRY_DEAD);
        alive += a->state == EXO_ENTRY_ALIVE;
    }
    /* otherwise the batch would have been answered */
    require(alive == b->alive && alive < b->count);
}

/* The invariants of the head's tables between two calls, whatever the calls were. */
static void
check_tables(struct head *h)
{
    exo_directory *d = &h->directory;
    for (const exo_entry *a = d->actors; a; a = a->by_key.next) {
        require(!a->node ||
                ((a->node->alive || h->works) && exo_directory_node(d, a->node->id) == a->node));
        require(a->state != EXO_ENTRY_ALIVE || (a->node && a->id && a->indexed));
        require(a->state != EXO_ENTRY_DEAD ||
                (!a->node && !a->spawn_wishes && !a->find_wishes && !a->batch));
        require((a->state == EXO_ENTRY_DEAD) == a->buried &&
                (a->state != EXO_ENTRY_DEAD || (!a->group && !a->crew)));
        require(a->state != EXO_ENTRY_RESTARTING || a->restless);
        require(!a->spec->name[0] || exo_directory_by_name(d, a->spec->space, a->spec->name) == a);
        if (a->batch)
            check_batch(d, a->batch);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _Atomic exo_time due = INT64_MAX;
    const exo_head_env env = {
        .worker_of = worker_of, .cluster = "fuzz", .wake = nothing, .end = nothing, .due = &due};
    const exo_worker_env worker_env = {.making = making, .find = find_made, .end = nothing};
    exo_err err = {0};
    if (!runtime) {
        exo_log_set_sink(quiet, NULL);
        check_table(&exo_head_class);
        check_table(&exo_worker_class);
        exo_clock_manual_init(&manual, EXO_SECOND);
        const exo_runtime_opts opts = {.clock = &manual.base, .threads = 1};
        if (exo_runtime_open(&runtime, &opts, &err) != EXO_OK ||
            exo_actor_class_register(&dummy_class, &err) != EXO_OK)
            abort();
    }
    exo_actor *actor = exo_runtime_find(runtime, dummy());
    void *head = exo_calloc(1, exo_head_class.state_size),
         *worker = exo_calloc(1, exo_worker_class.state_size);
    exo_call_context context = {.runtime = runtime, .actor = actor};
    const exo_payload args = exo_payload_borrow(&env, sizeof env),
                      worker_args = exo_payload_borrow(&worker_env, sizeof worker_env);
    if (!actor || !head || !worker || exo_head_class.start(&context, head, &args, &err) != EXO_OK ||
        exo_worker_class.start(&context, worker, &worker_args, &err) != EXO_OK)
        abort();
    struct head *h = head;
    /* Keys do not begin at the date: an input names the actors to which the worker's answers
     * belong. */
    h->next_key = h->first_key = 1;
    for (size_t at = 0, calls = 0; at + 3 <= size && calls < MAX_CALLS; calls++) {
        size_t which = data[at] % ASKED, length = data[at + 1] | (size_t)data[at + 2] << 8;
        at += 3;
        length = length < size - at ? length : size - at;
        const exo_actor_class *class = asked[which].class;
        if (!class) {
            exo_clock_manual_advance(&manual, (exo_time)length * EXO_SECOND / 64);
            continue;
        }
        call(actor, class, class == &exo_head_class ? head : worker,
             method_of(class, asked[which].method), data + at, length);
        at += length;
        check_tables(h);
    }
    exo_head_class.stop(head);
    exo_actor_drop(actor);
    exo_free(head);
    exo_free(worker);
    return 0;
}
