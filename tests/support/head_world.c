/* A head and its surroundings: see head_world.h. */
#include "support/head_world.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include <criterion/criterion.h>

#include <exogym/memory.h>

#include "actor/hooks.h"

/* --- The worker ------------------------------------------------------------------------------- */

struct worker {
    head_world *w;
};

static exo_status
worker_start(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    struct worker *worker = self;
    (void)call;
    (void)err;
    memcpy(&worker->w, args->data, sizeof worker->w);
    return EXO_OK;
}

static exo_status
note_spawn(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
           exo_err *err)
{
    head_world *w = ((struct worker *)self)->w;
    (void)reply;
    (void)err;
    Exo__Cluster__Spawn *spec = EXO_UNPACK(Exo__Cluster__Spawn, exo__cluster__spawn, args);
    cr_assert(spec && w->num_spawns < WORLD_MOST);
    struct world_asked *a = &w->spawns[w->num_spawns];
    *a = (struct world_asked){.key = spec->key,
                              .incarnation = spec->incarnation,
                              .asker = spec->asker,
                              .gpus = spec->gpus,
                              .answer = exo_call_defer(call)};
    snprintf(a->name, sizeof a->name, "%s", spec->name);
    w->num_spawns++; /* behind the rest: the thread of the test reads it */
    EXO_RELEASE(spec);
    return EXO_OK;
}

static exo_status
note_kill(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
          exo_err *err)
{
    head_world *w = ((struct worker *)self)->w;
    (void)call;
    (void)reply;
    (void)err;
    cr_assert(args->size == sizeof w->kills[0] && w->num_kills < WORLD_MOST);
    memcpy(&w->kills[w->num_kills], args->data, sizeof w->kills[0]);
    w->num_kills++;
    return EXO_OK;
}

static exo_status
nothing(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
        exo_err *err)
{
    (void)call;
    (void)self;
    (void)args;
    (void)reply;
    (void)err;
    return EXO_OK;
}

/* Blocks the runtime's only thread, and thereby the head. */
static exo_status
hold(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    const struct worker *worker = self;
    (void)call;
    (void)args;
    (void)reply;
    (void)err;
    while (atomic_load(&worker->w->held))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    return EXO_OK;
}

static const exo_method methods[] = {{.name = "spawn", .run = note_spawn},
                                     {.name = "kill", .run = note_kill},
                                     {.name = "nothing", .run = nothing},
                                     {.name = "hold", .run = hold}};
static const exo_actor_class worker_class = {.name = "a worker",
                                             .state_size = sizeof(struct worker),
                                             .start = worker_start,
                                             .methods = methods,
                                             .num_methods = 4};

static exo_status
worker_of(void *context, uint64_t node, exo_ref *out, exo_err *err)
{
    const head_world *w = context;
    (void)node;
    (void)err;
    *out = w->worker;
    return EXO_OK;
}

static bool
is_heard(void *context, uint64_t node)
{
    const head_world *w = context;
    return (w->unheard >> node & 1) == 0;
}

static void
wake(void *context)
{
    (void)context;
}

/* --- Calls to the head ------------------------------------------------------------------------ */

exo_future *
world_begin(head_world *w, exo_ref actor, const char *method, const ProtobufCMessage *message,
            exo_time deadline)
{
    exo_future *future = NULL;
    exo_payload args = {0};
    exo_err err = {0};
    if (message)
        cr_assert_eq(exo_message_pack(&args, message), EXO_OK);
    cr_assert_eq(exo_call(w->runtime, actor, method, args, deadline, &future, &err), EXO_OK, "%s",
                 err.text);
    return future;
}

exo_future *
world_begin_bytes_as(head_world *w, uint64_t peer, const char *method, const void *data,
                     size_t size)
{
    exo_future *future = NULL;
    exo_payload args = {0};
    exo_err err = {0};
    exo_identity who = {.node = peer};
    if (w->driver_key) {
        who.role = EXO_ACCESS_DRIVER;
        snprintf(who.key, sizeof who.key, "%s", w->driver_key);
        snprintf(who.name, sizeof who.name, "%s", w->driver_key);
        snprintf(who.space, sizeof who.space, "default");
    }
    exo_identity *caller = exo_identity_new(&who);
    cr_assert(caller);
    cr_assert_eq(exo_payload_copy(&args, data, size), EXO_OK);
    cr_assert_eq(exo_future_new(&future, &w->manual.base, INT64_MAX, &err), EXO_OK);
    cr_assert_eq(exo_runtime_deliver(w->runtime, w->head, method, &args, caller, future, &err),
                 EXO_OK, "%s", err.text);
    exo_identity_drop(&caller);
    return future;
}

exo_future *
world_begin_as(head_world *w, uint64_t peer, const char *method, const ProtobufCMessage *message)
{
    exo_payload packed = {0};
    if (message)
        cr_assert_eq(exo_message_pack(&packed, message), EXO_OK);
    exo_future *future = world_begin_bytes_as(w, peer, method, packed.data, packed.size);
    exo_payload_release(&packed);
    return future;
}

void
world_hold(head_world *w)
{
    atomic_store(&w->held, true);
    exo_send(w->runtime, w->worker, "hold", (exo_payload){0}, INT64_MAX, NULL);
}

void
world_release(head_world *w)
{
    atomic_store(&w->held, false);
}

static void
settle(head_world *w)
{
    exo_future *future = world_begin(w, w->worker, "nothing", NULL, INT64_MAX);
    cr_assert_eq(exo_wait(future, INT64_MAX, NULL, NULL), EXO_OK);
    exo_future_drop(&future);
}

exo_status
world_ask(head_world *w, const char *method, const ProtobufCMessage *message, exo_err *err)
{
    exo_future *future = world_begin(w, w->head, method, message, INT64_MAX);
    exo_status st = exo_wait(future, INT64_MAX, NULL, err);
    exo_future_drop(&future);
    settle(w);
    return st;
}

exo_status
world_ask_as(head_world *w, uint64_t peer, const char *method, const ProtobufCMessage *message,
             exo_err *err)
{
    exo_future *future = world_begin_as(w, peer, method, message);
    exo_status st = exo_wait(future, INT64_MAX, NULL, err);
    exo_future_drop(&future);
    settle(w);
    return st;
}

void
world_tick(head_world *w, exo_time after)
{
    exo_clock_manual_advance(&w->manual, after);
    cr_assert_eq(world_ask(w, "tick", NULL, NULL), EXO_OK);
}

exo_time
world_until_asked(head_world *w)
{
    size_t before = w->num_spawns;
    exo_time began = exo_now(&w->manual.base);
    world_tick(w, 0);
    for (int i = 0; w->num_spawns == before && i < 100; i++) {
        exo_time at = atomic_load(&w->due), now = exo_now(&w->manual.base);
        cr_assert_lt(at, INT64_MAX, "nothing is due");
        world_tick(w, at > now ? at - now : 0);
    }
    cr_assert_eq(w->num_spawns, before + 1);
    return exo_now(&w->manual.base) - began;
}

const char *
world_why(head_world *w, const char *name)
{
    const exo_payload *reply = NULL;
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    m.space = exo_pb_text("default");
    m.name = exo_pb_text(name);
    exo_future *future = world_begin(w, w->head, "why", &m.base, INT64_MAX);
    exo_status st = exo_wait(future, INT64_MAX, &reply, NULL);
    snprintf(w->text, sizeof w->text, "%s", st == EXO_OK ? (const char *)reply->data : "");
    exo_future_drop(&future);
    return w->text;
}

bool
world_is(head_world *w, const char *name, const char *state, uint64_t life)
{
    char expected[64];
    const char *said = world_why(w, name);
    snprintf(expected, sizeof expected, "life %llu\n", (unsigned long long)life);
    return strstr(said, state) && strstr(said, expected);
}

Exo__Cluster__Listing *
world_list(head_world *w)
{
    const exo_payload *reply = NULL;
    exo_future *future = world_begin(w, w->head, "list", NULL, INT64_MAX);
    cr_assert_eq(exo_wait(future, INT64_MAX, &reply, NULL), EXO_OK);
    Exo__Cluster__Listing *listing =
        EXO_UNPACK(Exo__Cluster__Listing, exo__cluster__listing, reply);
    cr_assert(listing);
    exo_future_drop(&future);
    return listing;
}

/* --- Nodes ------------------------------------------------------------------------------------ */

void
world_register(head_world *w, uint64_t node, const char *kind, const char *name, const char *job)
{
    Exo__Cluster__Resource places = EXO__CLUSTER__RESOURCE__INIT, *list[] = {&places};
    Exo__Cluster__Register m = EXO__CLUSTER__REGISTER__INIT;
    exo_err err = {0};
    places.name = exo_pb_text("places");
    places.amount = 2;
    m.node = node;
    m.name = exo_pb_text(name);
    m.kind = exo_pb_text(kind);
    m.job = exo_pb_text(job);
    m.resources = list;
    m.n_resources = strcmp(kind, "worker") == 0;
    cr_assert_eq(world_ask(w, "register", &m.base, &err), EXO_OK, "%s", err.text);
}

void
world_lose(head_world *w, uint64_t node, const char *cause)
{
    Exo__Cluster__NodeInfo m = EXO__CLUSTER__NODE_INFO__INIT;
    m.node = node;
    m.cause = exo_pb_text(cause);
    m.state = exo_pb_text(w->unheard >> node & 1 ? "silent" : "");
    cr_assert_eq(world_ask(w, "gone", &m.base, NULL), EXO_OK);
}

void
world_register_worker(head_world *w)
{
    world_register(w, WORLD_NODE, "worker", "w1", "");
}

void
world_lose_worker(head_world *w, const char *cause)
{
    world_lose(w, WORLD_NODE, cause);
}

void
world_open(head_world *w, const char *state)
{
    world_open_with(w, state, NULL);
}

void
world_open_with(head_world *w, const char *state, const exo_quotas *quotas)
{
    exo_err err = {0};
    *w = (head_world){.due = INT64_MAX};
    exo_clock_manual_init(&w->manual, EXO_SECOND);
    const exo_head_env env = {.worker_of = worker_of,
                              .is_heard = is_heard,
                              .context = w,
                              .cluster = "test",
                              .state_path = state,
                              .quotas = quotas,
                              .wake = wake,
                              .due = &w->due};
    const exo_runtime_opts opts = {.clock = &w->manual.base, .threads = 1};
    cr_assert_eq(exo_runtime_open(&w->runtime, &opts, &err), EXO_OK);
    cr_assert_eq(exo_spawn(w->runtime, &worker_class,
                           &(exo_spawn_opts){.args = exo_payload_borrow(&w, sizeof w)}, &w->worker,
                           &err),
                 EXO_OK, "%s", err.text);
    cr_assert_eq(exo_spawn(w->runtime, &exo_head_class,
                           &(exo_spawn_opts){.args = exo_payload_borrow(&env, sizeof env)},
                           &w->head, &err),
                 EXO_OK, "%s", err.text);
    world_register_worker(w);
}

void
world_close(head_world *w)
{
    exo_err err = {0};
    for (size_t i = 0; i < w->num_spawns; i++)
        if (w->spawns[i].answer)
            exo_reply(&w->spawns[i].answer, EXO_CANCELLED, "the test is over", NULL);
    cr_expect_eq(exo_runtime_close(&w->runtime, INT64_MAX, &err), EXO_OK, "%s", err.text);
}

/* --- Actors ----------------------------------------------------------------------------------- */

void
world_describe(struct world_member *m, const char *name, uint32_t max, exo_group_rule group_rule)
{
    exo__cluster__spawn__init(&m->spec);
    exo__cluster__restart_rule__init(&m->rule);
    m->spec.name = exo_pb_text(name);
    m->spec.space = exo_pb_text("default");
    m->spec.class_name = exo_pb_text("class");
    m->spec.group = exo_pb_text(group_rule == EXO_ONE_FOR_ONE ? "" : "group");
    m->spec.group_rule = group_rule;
    m->spec.restart = &m->rule;
    m->rule.when = EXO_RESTART_ON_FAILURE;
    m->rule.max = max;
}

static void
answer(head_world *w, size_t i, exo_status status, const char *reason)
{
    exo_payload reply = {0};
    cr_assert(i < w->num_spawns && w->spawns[i].answer);
    w->spawns[i].id = 100 + ++w->last_id;
    if (status == EXO_OK)
        cr_assert_eq(exo_payload_copy(&reply, &w->spawns[i].id, sizeof w->spawns[i].id), EXO_OK);
    exo_reply(&w->spawns[i].answer, status, reason, &reply);
}

void
world_answer_soon(head_world *w, size_t i)
{
    answer(w, i, EXO_OK, NULL);
}

void
world_answer(head_world *w, size_t i, exo_status status, const char *reason)
{
    answer(w, i, status, reason);
    world_tick(w, 0); /* the head's work on the reply is already queued before the tick */
}

void
world_dies(head_world *w, size_t i, const char *cause)
{
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    m.key = w->spawns[i].key;
    m.incarnation = w->spawns[i].incarnation;
    m.node = WORLD_NODE;
    m.id = w->spawns[i].id;
    m.cause = exo_pb_text(cause);
    m.failure = true;
    cr_assert_eq(world_ask(w, "died", &m.base, NULL), EXO_OK);
}

exo_future *
world_begin_spawn(head_world *w, struct world_member *members, size_t count)
{
    Exo__Cluster__Spawn *together[WORLD_MOST];
    for (size_t i = 1; i < count; i++)
        together[i - 1] = &members[i].spec;
    members[0].spec.together = together;
    members[0].spec.n_together = count - 1;
    size_t first = w->num_spawns;
    exo_future *made = world_begin(w, w->head, "spawn", &members[0].spec.base, INT64_MAX);
    members[0].spec.together = NULL; /* the message is packed */
    members[0].spec.n_together = 0;
    for (size_t i = 0; i <= count && w->num_spawns < first + count; i++)
        world_tick(w, 0);
    cr_assert_eq(w->num_spawns, first + count);
    return made;
}

void
world_spawn(head_world *w, struct world_member *members, size_t count)
{
    exo_err err = {0};
    size_t first = w->num_spawns;
    exo_future *made = world_begin_spawn(w, members, count);
    for (size_t i = 0; i < count; i++)
        world_answer(w, first + i, EXO_OK, NULL);
    cr_assert_eq(exo_wait(made, INT64_MAX, NULL, &err), EXO_OK, "%s", err.text);
    exo_future_drop(&made);
}

void
world_spawn_one(head_world *w, const char *name, uint32_t max)
{
    struct world_member m;
    world_describe(&m, name, max, EXO_ONE_FOR_ONE);
    world_spawn(w, &m, 1);
}
