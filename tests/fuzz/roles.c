/* The effects of peers of one role (ROLE, which the build sets) on a head, a worker, actors and
 * objects. An input is a sequence of steps: a peer comes, leaves, or calls a method; a worker
 * answers; time passes. Arguments are built field by field from names, numbers and keys that mean
 * something here, and may then be corrupted.
 *
 * A call enters as an envelope that the net has read: remote_serve.c consults the table of roles
 * and the gate, and the actors run on their lanes. Only the net is missing: the test makes peers by
 * hand, with the identity that a handshake would have proven, and replaces exo_net_send to see the
 * replies. After each step the test checks that
 *
 *   - the role's peers have changed nothing that belongs to others: nodes, actors, jobs, and the
 *     requests to a worker;
 *   - no peer saw what its role may not see;
 *   - accounts are within the quotas, and when all peers have left, the accounts hold only what
 *     still lives;
 *   - memory is back at its former size after the sequence.
 *
 * The main thread makes one call at a time. The pool's thread runs actors; `lock` guards what both
 * use. Read next: runtime/cluster/access.c, tests/fuzz/cluster.c (the same methods, from bytes). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/log.h>
#include <exogym/memory.h>
#include <exogym/object.h>

#include "actor/runtime_impl.h"
#include "base/grow_text.h"
#include "cluster/access.h"
#include "cluster/head_impl.h"
#include "cluster/remote_impl.h"
#include "cluster/worker.h"
#include "net/net_impl.h"
#include "roles_args.h"

size_t __sanitizer_get_current_allocated_bytes(void);

enum {
    STEPS = 80,
    ATTACKERS = 3,
    BOSS = ATTACKERS, /* the honest peers: an admin, a worker, a driver */
    HOST,
    RED,
    PEERS,
    VICTIMS = 3,
    ASKED = 64,
    SLACK = 64 << 10 /* bytes that are kept for reuse, and causes of deaths */
};

static struct peer {
    uint64_t node;
    const char *name, *key, *space;
    exo_access role;
    exo_peer *peer; /* NULL: not connected */
} peers[PEERS] = {
    {101, "evil", "key of evil", "dark", ROLE, NULL},
    {102, "evil", "key of evil", "dark", ROLE, NULL},
    {103, "mole", "key of mole", "team", ROLE, NULL},
    {10, "boss", "key of boss", "", EXO_ACCESS_ADMIN, NULL},
    {20, "host", "key of host", "", EXO_ACCESS_WORKER, NULL},
    {30, "red", "key of red", "team", EXO_ACCESS_DRIVER, NULL},
};

#define require(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s, after %s of %s\n", __FILE__, __LINE__, #condition,         \
                    now.method, now.object);                                                       \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* The current call; there is one at a time. */
static struct {
    const char *object, *method;
    const struct peer *peer;
    uint64_t id;
    bool came;
    exo_status status;
} now = {.object = "nothing", .method = "nothing"};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `now` and `orders` */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* Spawns that the head asked of workers and that have no answer yet. */
static struct {
    exo_future *answers[ASKED];
    size_t count;
    uint64_t next_id;
    bool honest; /* set up by the test, not asked for by the role's peers */
} orders;

static exo_clock_manual manual;
static exo_runtime *runtime;
static exo_remote *remote;
static exo_ref head_ref, worker_ref, helper;
static struct head *head;
static exo_object *object;
static struct args_world world; /* `keys` has those of the honest peers' actors */
static uint64_t calls;

/* --- In place of the net ---------------------------------------------------------------------- */

exo_status __wrap_exo_net_send(exo_net *net, exo_peer *peer, exo_envelope *e, exo_payload *payload,
                               exo_err *err);

exo_status
__wrap_exo_net_send(exo_net *net, exo_peer *peer, exo_envelope *e, exo_payload *payload,
                    exo_err *err)
{
    (void)net;
    (void)err;
    const exo_identity *who = exo_peer_identity(peer);
    require(e->kind == EXO_WIRE_REPLY);
    require(e->status == EXO_OK || (e->text && e->text[0])); /* every failure has a reason */
    if (payload && payload->size && who->role == EXO_ACCESS_DRIVER && who->node > 100)
        require(!memmem(payload->data, payload->size, SECRET, strlen(SECRET)));
    if (who->role == EXO_ACCESS_DRIVER && who->node > 100 && e->text)
        require(!strstr(e->text, SECRET "-log") && !strstr(e->text, SECRET "-report"));
    pthread_mutex_lock(&lock);
    if (now.peer && now.peer->peer == peer && now.id == e->id) {
        now.came = true;
        now.status = e->status;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    exo_payload_release(payload);
    return EXO_OK;
}

/* Makes a call within the process. This thread runs the actor itself if it can: fewer thread
 * switches allow more inputs. */
static exo_status
call_here(exo_ref actor, const char *method, exo_payload args)
{
    exo_future *future = NULL;
    exo_lanes_collect();
    exo_status st = exo_call(runtime, actor, method, args, INT64_MAX, &future, NULL);
    exo_lanes_settle(runtime, true);
    st = st == EXO_OK ? exo_wait(future, INT64_MAX, NULL, NULL) : st;
    exo_future_drop(&future);
    return st;
}

/* On return the head has processed all earlier calls, and workers have received its requests. */
static void
settle(void)
{
    Exo__Cluster__NodeInfo m = EXO__CLUSTER__NODE_INFO__INIT;
    exo_payload args = {0};
    if (exo_message_pack(&args, &m.base) != EXO_OK)
        abort();
    require(call_here(head_ref, "node", args) == EXO_NOT_FOUND);
    require(call_here(helper, "kill", (exo_payload){0}) == EXO_OK);
}

static void
tell_head(const char *method, const ProtobufCMessage *message)
{
    exo_payload args = {0};
    if (message && exo_message_pack(&args, message) != EXO_OK)
        abort();
    call_here(head_ref, method, args);
}

static void
enter(struct peer *p)
{
    exo_identity who = {.node = p->node, .role = p->role};
    if (p->peer)
        return;
    snprintf(who.key, sizeof who.key, "%s", p->key);
    snprintf(who.name, sizeof who.name, "%s", p->name);
    snprintf(who.space, sizeof who.space, "%s", p->space);
    if (!(p->peer = exo_calloc(1, sizeof *p->peer)) ||
        !(p->peer->identity = exo_identity_new(&who)))
        abort();
    p->peer->references = 1;
    p->peer->node = p->node;
    p->peer->near = p == &peers[1];
    snprintf(p->peer->name, sizeof p->peer->name, "%s", p->name);
    atomic_store(&p->peer->state, EXO_PEER_OPEN);
    remote->net->opts.handler->opened(remote, p->peer);
}

/* Removes a peer as the net and the cluster do. */
static void
leave(struct peer *p)
{
    Exo__Cluster__NodeInfo gone = EXO__CLUSTER__NODE_INFO__INIT;
    if (!p->peer)
        return;
    atomic_store(&p->peer->state, EXO_PEER_LOST_);
    remote->net->opts.handler->lost(remote, p->peer, "it went");
    exo_peer_drop(&p->peer);
    gone.node = p->node;
    gone.cause = exo_pb_text("it went");
    tell_head("gone", &gone.base);
}

/* Makes a call and waits for its reply, unless the reply may come much later. *args is moved. */
static exo_status
call(struct peer *p, uint64_t actor, const char *name, const char *method, exo_wire_place place,
     exo_payload *args)
{
    struct timespec until;
    exo_envelope e = {.kind = EXO_WIRE_CALL,
                      .id = ++calls,
                      .actor = actor,
                      .text = name,
                      .method = method,
                      .timeout = INT64_MAX,
                      .payload = {.place = place, .data = args->data, .size = args->size}};
    exo_payload payload = place == EXO_WIRE_OBJECT ? (exo_payload){0} : *args;
    pthread_mutex_lock(&lock);
    now.object = actor ? "an actor" : name[0] ? name : "the process";
    now.method = method;
    now.peer = p;
    now.id = calls;
    now.came = false;
    pthread_mutex_unlock(&lock);
    remote->net->opts.handler->received(remote, p->peer, &e, &payload);
    remote->net->opts.handler->settle(remote, EXO_DRIVER_HOME);
    settle();
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    pthread_mutex_lock(&lock);
    bool waits = strcmp(name, "head") == 0 || strcmp(method, METHOD_MONITOR) == 0;
    while (!now.came && !waits)
        require(pthread_cond_timedwait(&changed, &lock, &until) == 0);
    exo_status st = now.came ? now.status : EXO_TIMEOUT;
    pthread_mutex_unlock(&lock);
    if (place == EXO_WIRE_OBJECT)
        exo_payload_release(args);
    *args = (exo_payload){0};
    return st;
}

/* --- Workers and actors ----------------------------------------------------------------------- */

static bool
is_honest(uint64_t key)
{
    for (size_t i = 0; i < world.num_keys; i++)
        if (world.keys[i] == key)
            return true;
    return false;
}

/* A worker is asked only for what a peer was allowed to make, and with the limits of that peer. */
static exo_status
note_spawn(exo_call_context *context, void *self, const exo_payload *args, exo_payload *reply,
           exo_err *err)
{
    (void)self;
    (void)reply;
    Exo__Cluster__Spawn *spec = EXO_UNPACK(Exo__Cluster__Spawn, exo__cluster__spawn, args);
    require(spec);
    require(strcmp(spec->space, EXO_SYSTEM_SPACE) != 0);
    if (!orders.honest && !is_honest(spec->key) && ROLE != EXO_ACCESS_ADMIN) {
        require(ROLE == EXO_ACCESS_DRIVER && spec->restricted);
        require(strcmp(spec->owner, "evil") == 0 || strcmp(spec->owner, "mole") == 0);
        require(strcmp(spec->space[0] ? spec->space : "default",
                       spec->owner[0] == 'e' ? "dark" : "team") == 0);
    }
    EXO_RELEASE(spec);
    pthread_mutex_lock(&lock);
    bool room = orders.count < ASKED;
    if (room)
        orders.answers[orders.count++] = exo_call_defer(context);
    pthread_mutex_unlock(&lock);
    return room ? EXO_OK : exo_fail(err, EXO_FULL, "the worker has enough to do");
}

static exo_status
ignore(exo_call_context *context, void *self, const exo_payload *args, exo_payload *reply,
       exo_err *err)
{
    (void)context;
    (void)self;
    (void)args;
    (void)reply;
    (void)err;
    return EXO_OK;
}

static const exo_method helper_methods[] = {{.name = "spawn", .run = note_spawn},
                                            {.name = "kill", .run = ignore},
                                            {.name = "end", .run = ignore}};
static const exo_lane_class wide[] = {{.name = "main", .capacity = 1u << 20}};
static const exo_actor_class helper_class = {
    .name = "helper", .lanes = wide, .num_lanes = 1, .methods = helper_methods, .num_methods = 3};

static void
answer_one(void)
{
    exo_payload reply = {0};
    const exo_status codes[] = {EXO_OK, EXO_OK, EXO_FAILED, EXO_EXISTS, EXO_TIMEOUT};
    exo_status st = codes[args_byte() % 5];
    if (orders.count == 0)
        return;
    uint64_t id = ++orders.next_id;
    size_t which = args_byte() % orders.count;
    exo_future *future = orders.answers[which];
    orders.answers[which] = orders.answers[--orders.count];
    if (st == EXO_OK && exo_payload_copy(&reply, &id, sizeof id) != EXO_OK)
        abort();
    exo_reply(&future, st, st == EXO_OK ? NULL : "it could not", &reply);
    settle();
    settle(); /* the head has processed `started` */
}

/* Actors of the called process. */
static struct victim {
    const char *space, *owner;
    exo_ref ref;
} victims[VICTIMS] = {{"team", "red", {0}}, {"other", "boss", {0}}, {"default", "", {0}}};

static exo_status
touch(exo_call_context *context, void *self, const exo_payload *args, exo_payload *reply,
      exo_err *err)
{
    (void)args;
    (void)reply;
    (void)err;
    const struct victim *v = *(struct victim *const *)self;
    const exo_identity *who = exo_call_identity(context);
    require(who && who->role != EXO_ACCESS_OBSERVER && who->role != EXO_ACCESS_NONE);
    require(who->role != EXO_ACCESS_DRIVER || (v && strcmp(who->space, v->space) == 0));
    return EXO_OK;
}

static exo_status
victim_start(exo_call_context *context, void *self, const exo_payload *args, exo_err *err)
{
    (void)context;
    (void)err;
    *(struct victim **)self = NULL; /* NULL: an admin made the actor, with any arguments */
    for (size_t i = 0; i < VICTIMS; i++)
        if (args->size == sizeof(char *) && args->data == (void *)&victims[i])
            *(struct victim **)self = &victims[i];
    return EXO_OK;
}

static const exo_method victim_methods[] = {{.name = "touch", .run = touch}};
static const exo_actor_class victim_class = {.name = "victim",
                                             .state_size = sizeof(struct victim *),
                                             .start = victim_start,
                                             .methods = victim_methods,
                                             .num_methods = 1};

static bool
made_from(void *context, exo_ref actor, char space[256], char owner[EXO_IDENTITY_NAME])
{
    (void)context;
    for (size_t i = 0; i < VICTIMS; i++) {
        if (victims[i].ref.id != actor.id || !victims[i].owner[0])
            continue;
        snprintf(space, 256, "%s", victims[i].space);
        snprintf(owner, EXO_IDENTITY_NAME, "%s", victims[i].owner);
        return true;
    }
    return false;
}

static const exo_remote_events events = {.made_from = made_from};

/* --- The environment of head and worker ------------------------------------------------------- */

static exo_status
worker_of(void *context, uint64_t node, exo_ref *out, exo_err *err)
{
    (void)context;
    (void)err;
    (void)node;
    *out = helper;
    return EXO_OK;
}

static void
nothing(void *context)
{
    (void)context;
}

static void
making(void *context, bool begins, const Exo__Cluster__Spawn *spec, exo_ref actor)
{
    (void)context;
    (void)spec;
    require(begins || ROLE == EXO_ACCESS_ADMIN);
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

static void
quiet(void *context, exo_log_level level, const char *line)
{
    (void)context;
    (void)level;
    (void)line;
}

static _Atomic exo_time due;

static void
spawn_system(const exo_actor_class *class, const void *env, size_t size, exo_ref *out)
{
    const exo_spawn_opts opts = {.name = class->name,
                                 .namespace_name = EXO_SYSTEM_SPACE,
                                 .args = exo_payload_borrow(env, size)};
    require(exo_spawn(runtime, class, &opts, out, NULL) == EXO_OK);
}

static void
open_once(void)
{
    exo_log_set_sink(quiet, NULL);
    exo_clock_manual_init(&manual, EXO_SECOND);
    const exo_net_opts net = {.name = "fuzz", .cluster = "fuzz"};
    require(exo_runtime_open(&runtime, &(exo_runtime_opts){.clock = &manual.base, .threads = 1},
                             NULL) == EXO_OK);
    require(exo_remote_open(&remote, runtime, &net, &events, NULL, NULL) == EXO_OK);
    require(exo_spawn(runtime, &helper_class, NULL, &helper, NULL) == EXO_OK);
    require(exo_actor_class_register(&victim_class, NULL) == EXO_OK);
    require(exo_object_put(&object, "an object", 9, NULL) == EXO_OK);
}

/* --- The honest peers ------------------------------------------------------------------------- */

static void
ask(struct peer *p, const char *method, const ProtobufCMessage *m)
{
    exo_payload args = {0};
    require(exo_message_pack(&args, m) == EXO_OK);
    exo_status st = call(p, 0, "head", method, EXO_WIRE_BYTES, &args);
    require(st == EXO_OK || (st == EXO_TIMEOUT && strcmp(method, "spawn") == 0));
}

static void
register_honest(struct peer *p, const char *kind, const char *job)
{
    Exo__Cluster__Register m = EXO__CLUSTER__REGISTER__INIT;
    m.node = p->node;
    m.name = exo_pb_text(p->name);
    m.kind = exo_pb_text(kind);
    m.job = exo_pb_text(job);
    m.endpoint = exo_pb_text("tcp://honest:1");
    enter(p);
    ask(p, "register", &m.base);
}

static void
spawn_honest(struct peer *p, const char *space, const char *name, const char *job)
{
    exo_payload reply = {0};
    Exo__Cluster__Spawn m = EXO__CLUSTER__SPAWN__INIT;
    Exo__Cluster__RestartRule rule = EXO__CLUSTER__RESTART_RULE__INIT;
    /* SECRET is of no driver's namespace */
    m.class_name = exo_pb_text(p == &peers[BOSS] ? SECRET : "victim");
    m.space = exo_pb_text(space);
    m.name = exo_pb_text(name);
    m.job = exo_pb_text(job);
    m.group = exo_pb_text("g");
    m.group_rule = EXO_ALL_FOR_ONE;
    rule.when = EXO_RESTART_ALWAYS;
    m.restart = &rule;
    world.keys[world.num_keys++] = head->next_key;
    ask(p, "spawn", &m.base);
    uint64_t id = ++orders.next_id;
    require(orders.count == 1 && exo_payload_copy(&reply, &id, sizeof id) == EXO_OK);
    exo_reply(&orders.answers[--orders.count], EXO_OK, NULL, &reply);
    settle();
    settle();
    require(exo_directory_by_name(&head->directory, space, name)->state == EXO_ENTRY_ALIVE);
}

/* Adds an actor and a job of an earlier head, whose node has not come back. */
static void
recall(void)
{
    Exo__Cluster__Spawn spec = EXO__CLUSTER__SPAWN__INIT;
    spec.class_name = exo_pb_text("victim");
    spec.space = exo_pb_text("team");
    spec.name = exo_pb_text("old");
    spec.owner = exo_pb_text("red");
    spec.job = exo_pb_text("old-job");
    exo_entry *a = exo_directory_add(&head->directory, 5, &spec);
    exo_job_entry *job = exo_directory_job(&head->directory, "old-job", 6);
    require(a && job);
    a->state = EXO_ENTRY_UNKNOWN;
    a->incarnation = 1;
    exo_entry_set_last(a, 21, "key of host");
    job->state = "running";
    world.keys[world.num_keys++] = 5;
    head->has_past = true;
}

static void
set_up(void)
{
    Exo__Cluster__Report report = EXO__CLUSTER__REPORT__INIT;
    Exo__Cluster__Register lost = EXO__CLUSTER__REGISTER__INIT;
    Exo__Cluster__LogLines lines = EXO__CLUSTER__LOG_LINES__INIT;
    world.num_keys = 0;
    orders.honest = true;
    /* keys do not begin at the date: an input names keys */
    head->next_key = head->first_key = 1000;
    recall();
    register_honest(&peers[BOSS], "driver", "boss-job");
    register_honest(&peers[HOST], "worker", "");
    register_honest(&peers[RED], "driver", "red-job");
    spawn_honest(&peers[BOSS], "other", "treasure", "boss-job");
    spawn_honest(&peers[RED], "team", "kept", "red-job");
    report.node = peers[RED].node;
    report.job = exo_pb_text("red-job");
    report.json = exo_pb_text("{\"" SECRET "-report\": 1}");
    ask(&peers[RED], "report", &report.base);
    lines.text = exo_pb_text(SECRET "-log");
    ask(&peers[HOST], "log", &lines.base);
    lost.node = 22; /* a worker that died and left lines of a log */
    lost.name = exo_pb_text("lost");
    lost.kind = exo_pb_text("worker");
    tell_head("register", &lost.base);
    Exo__Cluster__Epitaph epitaph = EXO__CLUSTER__EPITAPH__INIT;
    epitaph.node = 22;
    epitaph.cause = exo_pb_text("died");
    epitaph.running = exo_pb_text(SECRET "-log");
    epitaph.log = exo_pb_text(SECRET "-log");
    tell_head("epitaph", &epitaph.base);
    for (size_t i = 0; i < VICTIMS; i++) {
        const exo_spawn_opts opts = {.args = exo_payload_borrow(&victims[i], sizeof(char *))};
        require(exo_spawn(runtime, &victim_class, &opts, &victims[i].ref, NULL) == EXO_OK);
    }
    orders.honest = false;
}

/* --- Invariants ------------------------------------------------------------------------------- */

/* The text of everything that belongs to the honest peers and that no other peer may change. */
static char *
digest(bool in_grace)
{
    exo_text text = {0};
    char line[2048];
    for (const exo_cluster_node *n = head->directory.nodes; n; n = n->hh.next) {
        if (n->id > 100)
            continue;
        snprintf(line, sizeof line, "node %d %s %s %s %s %d %d %s\n", (int)n->id, n->name,
                 n->endpoint, n->key, n->job, n->alive, n->is_driver,
                 n->owner ? n->owner->name : "");
        exo_text_add_bytes(&text, line, strlen(line));
    }
    for (size_t i = 0; i < world.num_keys; i++) {
        const exo_entry *a = exo_directory_by_key(&head->directory, world.keys[i]);
        if (world.keys[i] == 5 && !in_grace)
            continue;
        snprintf(line, sizeof line, "actor %d", a ? (int)a->state : -1);
        exo_text_add_bytes(&text, line, strlen(line));
        if (!a)
            continue;
        snprintf(line, sizeof line, " %s %s %s %s %d %d %d %u %s %d\n", a->spec->space,
                 a->spec->name, a->spec->job, a->spec->owner, (int)a->id, (int)a->incarnation,
                 a->node ? (int)a->node->id : 0, a->spec->restart ? a->spec->restart->when : 0,
                 a->spec->group, a->spec->restricted);
        exo_text_add_bytes(&text, line, strlen(line));
    }
    for (const exo_job_entry *j = head->directory.jobs; j; j = j->hh.next) {
        bool theirs = strcmp(j->name, "red-job") == 0 || strcmp(j->name, "boss-job") == 0 ||
                      (strcmp(j->name, "old-job") == 0 && in_grace);
        if (!theirs)
            continue;
        snprintf(line, sizeof line, "job %s %s %d %s\n", j->name, j->state, (int)j->driver,
                 j->report ? j->report : "");
        exo_text_add_bytes(&text, line, strlen(line));
    }
    require(!text.failed);
    return text.data;
}

static void
check_entries(void)
{
    for (const exo_entry *a = head->directory.actors; a; a = a->by_key.next) {
        require(strcmp(a->spec->space, EXO_SYSTEM_SPACE) != 0);
        if (is_honest(a->key))
            continue;
        require(ROLE != EXO_ACCESS_OBSERVER);
        bool again = a->spec->restart && a->spec->restart->when != EXO_RESTART_NEVER;
        if (ROLE == EXO_ACCESS_DRIVER) {
            require(strcmp(a->spec->owner, "evil") == 0 || strcmp(a->spec->owner, "mole") == 0);
            require(strcmp(a->spec->space[0] ? a->spec->space : "default",
                           a->spec->owner[0] == 'e' ? "dark" : "team") == 0);
            require(a->spec->restricted || !again);
        }
        require(ROLE != EXO_ACCESS_WORKER || !again || a->state == EXO_ENTRY_DEAD);
    }
}

static void
check_accounts(bool all_left)
{
    for (const exo_account *a = head->directory.accounts.by_peer; a; a = a->hh.next) {
        for (int q = 0; q < EXO_QUOTA_HEAD; q++) {
            require(a->held[q] <= exo_quotas_default.most[q]);
            bool of_actors = q == EXO_QUOTA_ACTORS || q == EXO_QUOTA_NAMES || q == EXO_QUOTA_SPAWNS;
            require(!all_left || a->peer < 100 || of_actors || a->held[q] == 0);
        }
    }
}

static void
check(const char *before, bool in_grace)
{
    char *after = digest(in_grace);
    if (ROLE != EXO_ACCESS_ADMIN && strcmp(before, after) != 0) {
        fprintf(stderr, "--- before\n%s--- after\n%s", before, after);
        require(strcmp(before, after) == 0);
    }
    exo_free(after);
    for (uint64_t id = 10; id <= 30; id += 10) {
        const exo_cluster_node *n = exo_directory_node(&head->directory, id);
        require(n && n->alive && n->owner && n->owner->node == id);
    }
    for (const exo_cluster_node *n = head->directory.nodes; n && ROLE == EXO_ACCESS_OBSERVER;
         n = n->hh.next)
        require(n->id < 100);
    for (size_t i = 0; i < VICTIMS; i++)
        require(ROLE == EXO_ACCESS_WORKER || ROLE == EXO_ACCESS_ADMIN ||
                exo_runtime_lives(runtime, victims[i].ref));
    check_entries();
    check_accounts(false);
}

/* --- Steps ------------------------------------------------------------------------------------ */

static const struct args_world *
as_seen_by(const struct peer *p)
{
    world.self = p->node;
    world.next_key = head->next_key;
    world.worker = worker_ref.id;
    return &world;
}

static void
call_head_or_worker(struct peer *p)
{
    static const char *const methods[] = {
        "register", "gone",  "spawn", "started", "find", "claim", "died",  "epitaph", "list",
        "why",      "log",   "logs",  "tick",    "node", "end",   "go_on", "report",  "give_up",
        "kill",     "$kill", "stop",  "dump",    "ping", "holds", "none",  "$methods"};
    exo_payload args = {0};
    const char *name = args_byte() % 8 == 0 ? "worker" : "head";
    const char *method = args_text(methods, sizeof methods / sizeof *methods);
    if (strcmp(method, "end") == 0 && ROLE == EXO_ACCESS_ADMIN)
        return; /* the admin may, and the cluster would end */
    pthread_mutex_lock(&lock);
    now.peer = p;
    pthread_mutex_unlock(&lock);
    args_build(as_seen_by(p), method, &args);
    uint64_t actor = args_byte() % 16 == 0 ? (name[0] == 'h' ? head_ref.id : worker_ref.id) : 0;
    bool own = strcmp(method, "started") == 0 || strcmp(method, "tick") == 0 ||
               strcmp(method, "go_on") == 0;
    exo_status st = call(p, actor, name, method, EXO_WIRE_BYTES, &args);
    require(!own || st != EXO_OK);
    require(method[0] != '$' || st != EXO_OK);
}

static void
call_actor(struct peer *p)
{
    exo_payload args = {0};
    const char *method = ARGS_TEXT("touch", "ping", "dump", "stop", "$stop", "$drain", "$kill",
                                   "$monitor", "$methods", "none", "$none");
    uint8_t which = args_byte();
    uint64_t actor = which < 200   ? victims[which % VICTIMS].ref.id
                     : which < 220 ? EXO_REMOTE | which
                                   : which;
    args_build_plain(as_seen_by(p), method, &args);
    call(p, actor, "", method, EXO_WIRE_BYTES, &args);
}

static void
call_process(struct peer *p)
{
    exo_payload args = {0};
    exo_remote_fetch fetch = {.first = args_byte() % 16, .size = args_byte()};
    const char *method = ARGS_TEXT(EXO_REMOTE_FETCH, EXO_REMOTE_DEATHS, EXO_REMOTE_OBJECTS, "none");
    require(exo_object_export(object, &fetch.handle, NULL) == EXO_OK);
    uint8_t spoil = args_byte();
    if (spoil % 2) /* a bit of the handle is wrong; its size must be right too */
        ((uint8_t *)&fetch.handle)[spoil / 2 % sizeof fetch.handle] ^=
            (uint8_t)(1 << args_byte() % 8);
    bool whole = spoil < 224;
    require(exo_payload_copy(&args, &fetch, whole ? sizeof fetch : spoil % sizeof fetch) == EXO_OK);
    exo_status st = call(p, 0, "", method, EXO_WIRE_BYTES, &args);
    require(strcmp(method, EXO_REMOTE_FETCH) != 0 || st != EXO_OK ||
            (whole && spoil % 2 == 0 && ROLE != EXO_ACCESS_OBSERVER));
    require(strcmp(method, EXO_REMOTE_OBJECTS) != 0 || st != EXO_OK ||
            ROLE == EXO_ACCESS_OBSERVER || ROLE == EXO_ACCESS_ADMIN);
}

/* Makes a call whose arguments are said to lie in a shared object. */
static void
call_with_object(struct peer *p)
{
    exo_payload args = {0};
    exo_object_handle handle;
    require(exo_object_export(object, &handle, NULL) == EXO_OK);
    uint8_t spoil = args_byte();
    if (spoil % 2)
        ((uint8_t *)&handle)[spoil / 2 % sizeof handle] ^= (uint8_t)(1 << args_byte() % 8);
    require(exo_payload_copy(&args, &handle, spoil < 224 ? sizeof handle : spoil % sizeof handle) ==
            EXO_OK);
    call(p, 0, "head", ARGS_TEXT("find", "logs", "why"), EXO_WIRE_OBJECT, &args);
}

static void
pass_time(exo_time *grace)
{
    exo_clock_manual_advance(&manual, args_byte() * EXO_SECOND / 16);
    tell_head("tick", NULL);
    if (exo_now(&manual.base) >= *grace)
        *grace = 0;
}

/* One step of a peer. False: the input has ended. */
static bool
step(exo_time *grace)
{
    uint8_t what = args_byte();
    struct peer *p = &peers[what / 32 % ATTACKERS];
    pthread_mutex_lock(&lock);
    now.object = now.method = "nothing";
    pthread_mutex_unlock(&lock);
    if (what % 32 == 0) {
        leave(p);
    } else if (what % 32 == 1) {
        pass_time(grace);
    } else if (what % 32 < 5) {
        answer_one();
    } else {
        enter(p);
        if (what % 32 < 8)
            call_actor(p);
        else if (what % 32 < 10)
            call_process(p);
        else if (what % 32 < 11)
            call_with_object(p);
        else
            call_head_or_worker(p);
    }
    return args_left > 0;
}

static void
leave_all(void)
{
    for (size_t i = 0; i < ATTACKERS; i++)
        leave(&peers[i]);
    settle();
    check_accounts(true);
    for (size_t i = ATTACKERS; i < PEERS; i++)
        leave(&peers[i]);
    exo_stop(runtime, head_ref, false, NULL);
    exo_stop(runtime, worker_ref, false, NULL);
    for (size_t i = 0; i < VICTIMS; i++)
        exo_kill(runtime, victims[i].ref, "over", NULL);
    while (orders.count > 0)
        exo_reply(&orders.answers[--orders.count], EXO_FAILED, "over", NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const exo_head_env env = {
        .worker_of = worker_of, .cluster = "fuzz", .wake = nothing, .end = nothing, .due = &due};
    const exo_worker_env worker_env = {.making = making, .find = find_made, .end = nothing};
    if (!runtime)
        open_once();
    size_t bytes = __sanitizer_get_current_allocated_bytes();
    due = INT64_MAX;
    spawn_system(&exo_head_class, &env, sizeof env, &head_ref);
    spawn_system(&exo_worker_class, &worker_env, sizeof worker_env, &worker_ref);
    exo_actor *actor = exo_runtime_find(runtime, head_ref);
    require(actor);
    head = actor->self;
    args_input = data;
    args_left = size;
    set_up();
    exo_time grace = head->grace_ends;
    char *before = digest(true), *late = digest(false);
    for (int steps = 0; steps < STEPS && step(&grace); steps++)
        check(grace ? before : late, grace != 0);
    exo_free(before);
    exo_free(late);
    exo_actor_drop(actor);
    leave_all();
    /* The pool's thread may release memory a moment later. */
    for (int i = 0; i < 1000 && __sanitizer_get_current_allocated_bytes() > bytes + SLACK; i++)
        usleep(1000);
    require(__sanitizer_get_current_allocated_bytes() <= bytes + SLACK);
    return 0;
}
