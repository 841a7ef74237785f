/* A process's part in a cluster: joining, names and actors elsewhere, the connection to the head. Read next: remote.c (calls), head.c.
 *
 * A keeper thread does what takes time and comes of itself: it connects to a head that is away, wakes a head's timers, and passes lines
 * of the log on. `lock` guards what is marked; it is not held while anything is called or waited for. */
#include <exogym/cluster.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <uthash.h>
#include <utlist.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "cluster_impl.h"
#include "head.h"
#include "messages.h"
#include "place.h"
#include "process.h"
#include "remote.h"
#include "retry.h"
#include "watch.h"
#include "worker.h"

#define LOOKUP_TIMEOUT  (30 * EXO_SECOND) /* of exo_get_actor and of claims, which have no deadline of their own */
#define CONNECT_TIMEOUT (5 * EXO_SECOND)
#define RETRY           (50 * EXO_MS)
#define SWEEP           (2 * EXO_SECOND)
#define HEARSAY         (2 * EXO_SECOND) /* after which the head has heard of a death that we know of */

/* An actor of this process that the head knows. */
struct known {
    uint64_t id, key, incarnation;
    Exo__Cluster__Spawn *spec; /* owned */
    char *cause;               /* of one that died; may be NULL */
    bool failure;
    struct known *next; /* of those that died */
    UT_hash_handle hh;
};

struct exo_cluster {
    exo_cluster_role role;
    exo_runtime *runtime;
    exo_remote *remote;
    exo_retrier *retrier;
    exo_place place;
    char name[128], job[128];
    char address[EXO_PLACE_ADDRESSES];
    char boot[EXO_BOOT_ID];
    _Atomic exo_time due; /* of a head */
    pthread_t keeper;
    bool has_keeper;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    exo_ref head; /* guarded by lock, as all below; 0: it is away */
    exo_peer *head_peer;
    struct known *known;
    struct known *deaths; /* that the head is to be told of, the first one first */
    uint64_t num_told;    /* how often a head was told what lives here             */
    bool closing, woken, left, interrupted;
    exo_time head_lost; /* when; 0: it is there */
    exo_time sweep_at;  /* when a head looks for sockets of killed processes; 0: nobody was lost */
    int log_file;       /* what of it is passed on to the head; -1: nothing. The keeper's, as its path */
    char log_path[4096];
};

static exo_time
real_now(void)
{
    return exo_now(exo_clock_real());
}

static void
wait_until_locked(exo_cluster *c, exo_time until)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    exo_time left = until - real_now();
    left = left < 0 ? 0 : left > 10 * EXO_SECOND ? 10 * EXO_SECOND : left;
    exo_time when = (exo_time)at.tv_sec * EXO_SECOND + at.tv_nsec + left;
    at = (struct timespec){.tv_sec = (time_t)(when / EXO_SECOND), .tv_nsec = (long)(when % EXO_SECOND)};
    pthread_cond_timedwait(&c->changed, &c->lock, &at);
}

/* --- Calls to the head --------------------------------------------------------------------------------------------------------- */

/* The head, when it is there: waits for it. */
static exo_status
get_head(exo_cluster *c, exo_time deadline, exo_ref *out, exo_err *err)
{
    pthread_mutex_lock(&c->lock);
    while (!c->head.id && !c->closing && real_now() < deadline)
        wait_until_locked(c, deadline);
    *out = c->head;
    bool closing = c->closing;
    pthread_mutex_unlock(&c->lock);
    if (out->id)
        return EXO_OK;
    return closing ? exo_fail(err, EXO_CLOSED, "this process leaves the cluster")
                   : exo_fail(err, EXO_TIMEOUT, "the head at %s is away", c->place.head);
}

/* Calls the head and waits for its reply, which the caller releases with exo_future_drop(future). `again`: the call may be made twice, as
 * when the head was lost before it answered. */
static exo_status
call_head(exo_cluster *c, const char *method, const ProtobufCMessage *args, bool again, exo_time deadline,
          exo_future **future, const exo_payload **reply, exo_err *err)
{
    for (;;) {
        exo_ref head;
        exo_payload packed = {0};
        exo_status st = get_head(c, deadline, &head, err);
        if (st != EXO_OK)
            return st;
        if (args && (st = exo_message_pack(&packed, args)) != EXO_OK)
            return exo_fail(err, st, "no memory to call the head");
        st = exo_call(c->runtime, head, method, packed, deadline, future, err);
        bool sent = st == EXO_OK;
        if (sent)
            st = exo_wait(*future, deadline, reply, err);
        if (st == EXO_OK)
            return st;
        if (sent)
            exo_future_drop(future);
        if (st != EXO_PEER_LOST || (sent && !again) || real_now() >= deadline)
            return st;
        pthread_mutex_lock(&c->lock); /* the loss may not have come to us yet */
        if (c->head.id == head.id)
            wait_until_locked(c, real_now() + EXO_MS);
        pthread_mutex_unlock(&c->lock);
    }
}

/* False: it is away. */
static bool
tell_head(exo_cluster *c, const char *method, const ProtobufCMessage *message)
{
    exo_payload packed = {0};
    pthread_mutex_lock(&c->lock);
    exo_ref head = c->head;
    pthread_mutex_unlock(&c->lock);
    return head.id && exo_message_pack(&packed, message) == EXO_OK &&
           exo_send(c->runtime, head, method, packed, INT64_MAX, NULL) == EXO_OK;
}

/* --- Connections ------------------------------------------------------------------------------------------------------------------ */

static bool
is_there(const char *ipc_endpoint)
{
    return exo_place_has_owner(ipc_endpoint + strlen("ipc://"));
}

/* Tries the addresses of a process, those of this host first. `addresses` have spaces between. PEER_LOST: it is not there any more. */
static exo_status
connect_to(exo_cluster *c, const char *addresses, const char *key, exo_time deadline, exo_peer **out, exo_err *err)
{
    exo_status st = exo_fail(err, EXO_PEER_LOST, "nobody can be reached at '%.200s' from here", addresses);
    for (int pass = 0; pass < 2 && st != EXO_OK; pass++) {
        for (const char *at = addresses; *at && st != EXO_OK;) {
            size_t length = strcspn(at, " ");
            char address[256];
            snprintf(address, sizeof address, "%.*s", (int)length, at);
            bool ipc = strncmp(address, "ipc://", 6) == 0;
            if (length > 0 && length < sizeof address && ipc == (pass == 0) && (!ipc || is_there(address))) {
                exo_time until = exo_deadline(exo_clock_real(), CONNECT_TIMEOUT);
                until = until < deadline ? until : deadline;
                st = exo_net_connect_while(exo_remote_net(c->remote), address, ipc || !key || !*key ? NULL : key, until,
                                           ipc ? is_there : NULL, out, err);
            }
            at += length + strspn(at + length, " ");
        }
    }
    return st;
}

/* A reference to an actor as the head describes it. */
static exo_status
refer_to(exo_cluster *c, const Exo__Cluster__Actor *info, exo_time deadline, exo_ref *out, exo_err *err)
{
    if (info->node == exo_net_node(exo_remote_net(c->remote))) {
        out->id = info->id;
        return EXO_OK;
    }
    exo_peer *peer = exo_remote_peer(c->remote, info->node);
    exo_status st = peer ? EXO_OK : connect_to(c, info->endpoint, info->key_text, deadline, &peer, err);
    if (st == EXO_OK && exo_peer_node(peer) != info->node) {
        st = exo_fail(err, EXO_PEER_LOST, "the process of '%s' has ended, and another one is at %s", info->node_name,
                      info->endpoint);
        exo_peer_lose(exo_remote_net(c->remote), peer, "it is not who was expected");
    }
    if (st == EXO_OK)
        st = exo_remote_actor(c->remote, peer, info->id, out, err);
    if (st == EXO_OK)
        exo_retrier_learn(c->retrier, *out, info->space, info->name, info->idempotent.data, info->idempotent.len);
    exo_peer_drop(&peer);
    return st;
}

/* --- What the runtime asks for ------------------------------------------------------------------------------------------------------ */

/* Set when this thread is about to make an actor for the head, which has its name already. */
static _Thread_local bool made_for_head;

static void
free_known(struct known *k)
{
    if (!k)
        return;
    EXO_RELEASE(k->spec);
    exo_free(k->cause);
    exo_free(k);
}

/* Only if the head was told what lives here exactly `told` times: later it has heard that the actor does not. */
static bool
remember_if(exo_cluster *c, struct known *k, const uint64_t *told)
{
    pthread_mutex_lock(&c->lock);
    bool in_time = !told || c->num_told == *told;
    if (in_time)
        HASH_ADD(hh, c->known, id, sizeof k->id, k);
    pthread_mutex_unlock(&c->lock);
    if (!in_time)
        free_known(k);
    return in_time;
}

/* An actor of this process that the head knows, made from `spec`. */
static bool
remember(exo_cluster *c, uint64_t id, uint64_t key, uint64_t incarnation, const Exo__Cluster__Spawn *spec,
         const uint64_t *told)
{
    Exo__Cluster__Spawn kept = *spec;
    struct known *k = exo_calloc(1, sizeof *k);
    if (!spec->restart || spec->restart->when == EXO_RESTART_NEVER)
        kept.args = (ProtobufCBinaryData){0};
    kept.n_together = 0;
    if (!k || !(k->spec = exo_message_copy(&kept.base))) {
        exo_free(k);
        return true;
    }
    k->id = id;
    k->key = key;
    k->incarnation = incarnation;
    return remember_if(c, k, told);
}

/* Tells the head of the deaths that it has not been told of; if it is away, later. */
static void
tell_deaths(exo_cluster *c)
{
    for (;;) {
        pthread_mutex_lock(&c->lock);
        struct known *k = c->head.id ? c->deaths : NULL;
        if (k)
            LL_DELETE(c->deaths, k);
        pthread_mutex_unlock(&c->lock);
        if (!k)
            return;
        Exo__Cluster__Name args = EXO__CLUSTER__NAME__INIT;
        args.space = k->spec->space;
        args.name = k->spec->name;
        args.id = k->id;
        args.key = k->key;
        args.incarnation = k->incarnation;
        args.node = exo_net_node(exo_remote_net(c->remote));
        args.cause = exo_pb_text(k->cause);
        args.failure = k->failure;
        if (!tell_head(c, "died", &args.base)) {
            pthread_mutex_lock(&c->lock);
            LL_PREPEND(c->deaths, k);
            pthread_mutex_unlock(&c->lock);
            return;
        }
        free_known(k);
    }
}

static exo_status
ops_call(void *context, exo_ref actor, const char *method, exo_payload *args, exo_future *future, exo_err *err)
{
    exo_cluster *c = context;
    exo_status st;
    if (exo_retrier_call(c->retrier, actor, method, args, future, &st, err)) {
        exo_payload_release(args);
        return st;
    }
    return exo_remote_call(c->remote, actor, method, args, future, err);
}

/* How the head is asked for a name. */
struct search {
    const char *space, *name;
    exo_actor_id dead; /* a life that is known to be over: the head waits until it has heard of that, too */
    bool at_once;      /* it does not wait for one that is about to live */
};

/* *where is the life that the head gave, also if it cannot be reached (PEER_LOST). */
static exo_status
find_life(exo_cluster *c, const struct search *search, exo_time deadline, exo_actor_id *where, exo_ref *out,
          exo_err *err)
{
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    Exo__Cluster__Name args = EXO__CLUSTER__NAME__INIT;
    args.space = exo_pb_text(search->space);
    args.name = exo_pb_text(search->name);
    args.node = search->dead.node;
    args.id = search->dead.id;
    args.at_once = search->at_once;
    *where = (exo_actor_id){0};
    exo_status st = call_head(c, "find", &args.base, true, deadline, &future, &reply, err);
    if (st != EXO_OK)
        return st;
    Exo__Cluster__Actor *info = EXO_UNPACK(Exo__Cluster__Actor, exo__cluster__actor, reply);
    if (info)
        *where = (exo_actor_id){.node = info->node, .id = info->id};
    st = info ? refer_to(c, info, deadline, out, err) : exo_fail(err, EXO_FAILED, "the head's reply cannot be read");
    EXO_RELEASE(info);
    exo_future_drop(&future);
    return st;
}

/* We may have heard of a death before the head has: of the actor's, or, as its place cannot be reached, of its process's. */
static bool
is_over(exo_cluster *c, exo_status found, exo_ref actor, const exo_actor_id *where, exo_time deadline)
{
    if (found == EXO_PEER_LOST)
        return where->node != 0;
    return found == EXO_OK && exo_remote_is_suspect(c->remote, actor) &&
           exo_call_wait(c->runtime, actor, "ping", (exo_payload){0}, deadline, NULL, NULL) == EXO_PEER_LOST;
}

static exo_status
ops_find(void *context, const char *space, const char *name, exo_ref *out, exo_err *err)
{
    exo_cluster *c = context;
    exo_time deadline = exo_deadline(exo_clock_real(), LOOKUP_TIMEOUT);
    struct search search = {.space = space, .name = name};
    exo_actor_id where;
    exo_err reason = {0};
    exo_status st = find_life(c, &search, deadline, &where, out, err);
    exo_time patience = exo_deadline(exo_clock_real(), HEARSAY);
    while (is_over(c, st, *out, &where, deadline)) {
        bool reached = st == EXO_OK;
        search.dead = where;
        st = find_life(c, &search, reached ? deadline : patience, &where, out, &reason);
        if (!reached && st == EXO_TIMEOUT) /* the head reaches it, and we do not */
            return EXO_PEER_LOST;
        if (st != EXO_OK && err)
            *err = reason;
    }
    return st;
}

/* The head says that the name is taken: by one whose death it had not heard of yet? */
static bool
is_free_again(exo_cluster *c, const char *space, const char *name, exo_time deadline)
{
    struct search search = {.space = space, .name = name, .at_once = true};
    exo_actor_id where;
    exo_ref ref = {0};
    exo_time patience = exo_deadline(exo_clock_real(), HEARSAY);
    patience = patience < deadline ? patience : deadline;
    exo_status st = find_life(c, &search, patience, &where, &ref, NULL);
    if (is_over(c, st, ref, &where, patience)) {
        search.at_once = false;
        search.dead = where;
        st = find_life(c, &search, patience, &where, &ref, NULL);
    }
    return st == EXO_NOT_FOUND;
}

/* Claims the name and notes it. *noted is false if this process registered meanwhile, without the actor: then the head may have taken the
 * name back. */
static exo_status
claim_once(exo_cluster *c, const Exo__Cluster__Name *args, exo_time deadline, bool *noted, exo_err *err)
{
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    pthread_mutex_lock(&c->lock);
    const uint64_t told = c->num_told;
    pthread_mutex_unlock(&c->lock);
    exo_status st = call_head(c, "claim", &args->base, true, deadline, &future, &reply, err);
    if (st != EXO_OK)
        return st;
    *noted = true;
    Exo__Cluster__Actor *info = EXO_UNPACK(Exo__Cluster__Actor, exo__cluster__actor, reply);
    if (info) {
        Exo__Cluster__Spawn spec = EXO__CLUSTER__SPAWN__INIT;
        spec.space = args->space;
        spec.name = args->name;
        spec.class_name = info->class_name;
        spec.job = info->job;
        *noted = remember(c, args->id, info->key, info->incarnation, &spec, &told);
    }
    EXO_RELEASE(info);
    exo_future_drop(&future);
    return EXO_OK;
}

static exo_status
ops_claim(void *context, const char *space, const char *name, exo_ref actor, exo_err *err)
{
    exo_cluster *c = context;
    bool known = made_for_head, noted = false, asked = false;
    made_for_head = false; /* what its `start` makes is not */
    if (known || c->role == EXO_ROLE_GUEST)
        return EXO_OK;
    Exo__Cluster__Name args = EXO__CLUSTER__NAME__INIT;
    args.space = exo_pb_text(space);
    args.name = exo_pb_text(name);
    args.id = actor.id;
    args.node = exo_net_node(exo_remote_net(c->remote));
    exo_time deadline = exo_deadline(exo_clock_real(), LOOKUP_TIMEOUT);
    exo_status st = EXO_OK;
    while (st == EXO_OK && !noted) {
        st = claim_once(c, &args, deadline, &noted, err);
        if (st == EXO_EXISTS && !asked && (asked = true, is_free_again(c, space, name, deadline)))
            st = EXO_OK;
    }
    return st;
}

static void
ops_died(void *context, const char *space, const char *name, exo_ref actor, const char *cause, bool failure)
{
    exo_cluster *c = context;
    struct known *k = NULL;
    (void)space;
    (void)name;
    pthread_mutex_lock(&c->lock);
    HASH_FIND(hh, c->known, &actor.id, sizeof actor.id, k);
    bool closing = c->closing;
    if (k) {
        HASH_DEL(c->known, k);
        k->cause = cause ? exo_strdup(cause) : NULL;
        k->failure = failure;
        if (!closing)
            LL_APPEND(c->deaths, k);
    }
    pthread_mutex_unlock(&c->lock);
    if (closing)
        free_known(k);
    else if (k)
        tell_deaths(c);
}

static exo_status
ops_stop(void *context, exo_ref actor, bool drain, exo_err *err)
{
    exo_cluster *c = context;
    return exo_remote_stop(c->remote, actor, drain, err);
}

static exo_status
ops_kill(void *context, exo_ref actor, const char *cause, exo_err *err)
{
    exo_cluster *c = context;
    return exo_remote_kill(c->remote, actor, cause, err);
}

static exo_status
ops_monitor(void *context, exo_ref actor, exo_future *future, exo_err *err)
{
    exo_cluster *c = context;
    return exo_remote_monitor(c->remote, actor, future, err);
}

static exo_status
ops_cause(void *context, exo_ref actor, char *text, size_t size)
{
    exo_cluster *c = context;
    return exo_remote_cause(c->remote, actor, text, size);
}

static uint64_t
ops_node(void *context)
{
    exo_cluster *c = context;
    return exo_net_node(exo_remote_net(c->remote));
}

/* The connection to a process that may not have been talked to yet. */
static exo_status
reach_node(exo_cluster *c, uint64_t node, exo_time deadline, exo_peer **out, exo_err *err)
{
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    if ((*out = exo_remote_peer(c->remote, node)))
        return EXO_OK;
    Exo__Cluster__NodeInfo args = EXO__CLUSTER__NODE_INFO__INIT;
    args.node = node;
    exo_status st = call_head(c, "node", &args.base, true, deadline, &future, &reply, err);
    if (st != EXO_OK)
        return st;
    Exo__Cluster__Actor *info = EXO_UNPACK(Exo__Cluster__Actor, exo__cluster__actor, reply);
    exo_ref unused;
    st =
        info ? refer_to(c, info, deadline, &unused, err) : exo_fail(err, EXO_FAILED, "the head's reply cannot be read");
    EXO_RELEASE(info);
    exo_future_drop(&future);
    if (st == EXO_OK && !(*out = exo_remote_peer(c->remote, node)))
        st = exo_fail(err, EXO_PEER_LOST, "the process is lost");
    return st;
}

static exo_status
ops_call_node(void *context, uint64_t node, const char *method, exo_payload *args, exo_time deadline, exo_future **out,
              exo_err *err)
{
    exo_cluster *c = context;
    exo_peer *peer = NULL;
    exo_ref system = {0};
    exo_status st = reach_node(c, node, deadline, &peer, err);
    if (st == EXO_OK)
        st = exo_remote_system(c->remote, peer, "", &system, err);
    exo_peer_drop(&peer);
    if (st == EXO_OK)
        st = exo_call(c->runtime, system, method, *args, deadline, out, err);
    else
        exo_payload_release(args);
    *args = (exo_payload){0};
    return st;
}

/* The lists of a Spawn, which point to the options. */
struct spawn_lists {
    Exo__Cluster__Resource *resources, **resource_list;
    Exo__Cluster__LaneOpts *lanes, **lane_list;
    Exo__Cluster__RestartRule restart;
};

static exo_status
describe_spawn(exo_cluster *c, const char *class_name, const exo_spawn_opts *o, Exo__Cluster__Spawn *out,
               struct spawn_lists *lists, exo_err *err)
{
    exo__cluster__spawn__init(out);
    exo__cluster__restart_rule__init(&lists->restart);
    lists->resources = exo_calloc(o->num_resources + 1, sizeof *lists->resources);
    lists->resource_list = exo_calloc(o->num_resources + 1, sizeof *lists->resource_list);
    lists->lanes = exo_calloc(o->num_lanes + 1, sizeof *lists->lanes);
    lists->lane_list = exo_calloc(o->num_lanes + 1, sizeof *lists->lane_list);
    if (!lists->resources || !lists->resource_list || !lists->lanes || !lists->lane_list)
        return exo_fail(err, EXO_NOMEM, "no memory to make an actor");
    for (size_t i = 0; i < o->num_resources; i++) {
        exo__cluster__resource__init(&lists->resources[i]);
        lists->resources[i].name = exo_pb_text(o->resources[i].name);
        lists->resources[i].amount = o->resources[i].amount;
        lists->resource_list[i] = &lists->resources[i];
    }
    for (size_t i = 0; i < o->num_lanes; i++) {
        exo__cluster__lane_opts__init(&lists->lanes[i]);
        lists->lanes[i].lane = exo_pb_text(o->lanes[i].lane);
        lists->lanes[i].max_concurrency = o->lanes[i].max_concurrency;
        lists->lanes[i].max_pending_calls = o->lanes[i].max_pending_calls;
        lists->lane_list[i] = &lists->lanes[i];
    }
    out->class_name = exo_pb_text(class_name);
    out->name = exo_pb_text(o->name);
    out->space = exo_pb_text(o->namespace_name ? o->namespace_name : "default");
    out->get_if_exists = o->get_if_exists;
    out->detached = o->detached;
    out->job = c->job;
    out->args.data = o->args.data;
    out->args.len = o->args.size;
    out->resources = lists->resource_list;
    out->n_resources = o->num_resources;
    out->lanes = lists->lane_list;
    out->n_lanes = o->num_lanes;
    out->placement = (uint32_t)o->placement;
    out->node = exo_pb_text(o->node);
    out->group = exo_pb_text(o->group);
    out->group_rule = (uint32_t)o->group_rule;
    out->plugins = (char **)(uintptr_t)o->plugins;
    out->n_plugins = o->num_plugins;
    lists->restart.when = (uint32_t)o->restart.when;
    lists->restart.max = o->restart.max;
    lists->restart.within = o->restart.within;
    lists->restart.backoff = o->restart.backoff;
    out->restart = &lists->restart;
    if (o->placement == EXO_PLACE_STRICT && (!o->node || !*o->node))
        return exo_fail(err, EXO_INVAL, "strict placement names a node");
    return EXO_OK;
}

static void
release_args(const exo_spawn_item *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        exo_payload args = items[i].opts.args;
        exo_payload_release(&args);
    }
}

static exo_status
refer_to_all(exo_cluster *c, const exo_payload *reply, size_t count, exo_time deadline, exo_ref *out, exo_err *err)
{
    exo_status st = EXO_OK;
    Exo__Cluster__SpawnReply *made = EXO_UNPACK(Exo__Cluster__SpawnReply, exo__cluster__spawn_reply, reply);
    if (!made || made->n_actors != count)
        st = exo_fail(err, EXO_FAILED, "the head's reply cannot be read");
    for (size_t i = 0; st == EXO_OK && i < count; i++)
        st = refer_to(c, made->actors[i], deadline, &out[i], err);
    EXO_RELEASE(made);
    return st;
}

/* Has the head make actors, one or a group. */
static exo_status
spawn_all(exo_cluster *c, const Exo__Cluster__Spawn *spec, exo_time deadline, exo_ref *out, exo_err *err)
{
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    bool alone = spec->n_together == 0, shared = alone && spec->get_if_exists;
    exo_status st = call_head(c, "spawn", &spec->base, shared, deadline, &future, &reply, err);
    if (st == EXO_EXISTS && alone && is_free_again(c, spec->space, spec->name, deadline))
        st = call_head(c, "spawn", &spec->base, shared, deadline, &future, &reply, err);
    if (st != EXO_OK)
        return st;
    st = refer_to_all(c, reply, 1 + spec->n_together, deadline, out, err);
    exo_future_drop(&future);
    return st;
}

/* The one that there is may be dead: then another one is made, when the head has heard of that. */
static exo_status
spawn_shared(exo_cluster *c, const Exo__Cluster__Spawn *spec, exo_time deadline, exo_ref *out, exo_err *err)
{
    exo_status st = spawn_all(c, spec, deadline, out, err);
    bool dead = st == EXO_PEER_LOST;
    if (st == EXO_OK && exo_remote_is_suspect(c->remote, *out))
        dead = exo_call_wait(c->runtime, *out, "ping", (exo_payload){0}, deadline, NULL, NULL) == EXO_PEER_LOST;
    if (dead && is_free_again(c, spec->space, spec->name, deadline))
        st = spawn_all(c, spec, deadline, out, err);
    else if (dead)
        st = ops_find(c, spec->space, spec->name, out, err);
    return st;
}

static exo_status
ops_spawn(void *context, const exo_spawn_item *items, size_t count, exo_time deadline, exo_ref *out, exo_err *err)
{
    exo_cluster *c = context;
    Exo__Cluster__Spawn *specs = exo_calloc(count, sizeof *specs);
    Exo__Cluster__Spawn **together = exo_calloc(count, sizeof *together);
    struct spawn_lists *lists = exo_calloc(count, sizeof *lists);
    exo_status st = specs && together && lists ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory to make an actor");
    for (size_t i = 0; st == EXO_OK && i < count; i++) {
        st = describe_spawn(c, items[i].class_name, &items[i].opts, &specs[i], &lists[i], err);
        together[i] = &specs[i];
    }
    if (st == EXO_OK) {
        specs[0].together = together + 1;
        specs[0].n_together = count - 1;
        bool shared = count == 1 && specs[0].get_if_exists && specs[0].name[0];
        st = shared ? spawn_shared(c, &specs[0], deadline, out, err) : spawn_all(c, &specs[0], deadline, out, err);
    }
    for (size_t i = 0; lists && i < count; i++) {
        exo_free(lists[i].resources);
        exo_free(lists[i].resource_list);
        exo_free(lists[i].lanes);
        exo_free(lists[i].lane_list);
    }
    exo_free(lists);
    exo_free(together);
    exo_free(specs);
    release_args(items, count);
    return st;
}

static exo_status
ops_export(void *context, exo_ref actor, exo_actor_id *out, exo_err *err)
{
    exo_cluster *c = context;
    *out = (exo_actor_id){.node = exo_net_node(exo_remote_net(c->remote)), .id = actor.id};
    if ((actor.id & EXO_REMOTE) && !exo_remote_locate(c->remote, actor, &out->node, &out->id))
        return exo_fail(err, EXO_PEER_LOST, "the actor is dead");
    return EXO_OK;
}

static exo_status
ops_import(void *context, const exo_actor_id *id, exo_time deadline, exo_ref *out, exo_err *err)
{
    exo_cluster *c = context;
    exo_peer *peer = NULL;
    if (id->id & EXO_REMOTE)
        return exo_fail(err, EXO_INVAL, "the identity of no actor");
    if (id->node == exo_net_node(exo_remote_net(c->remote))) {
        out->id = id->id;
        return EXO_OK;
    }
    exo_status st = reach_node(c, id->node, deadline, &peer, err);
    if (st == EXO_OK)
        st = exo_remote_actor(c->remote, peer, id->id, out, err);
    exo_peer_drop(&peer);
    return st;
}

static const exo_remote_ops ops = {.call = ops_call,
                                   .find = ops_find,
                                   .claim = ops_claim,
                                   .spawn = ops_spawn,
                                   .export = ops_export,
                                   .import = ops_import,
                                   .died = ops_died,
                                   .stop = ops_stop,
                                   .kill = ops_kill,
                                   .monitor = ops_monitor,
                                   .cause = ops_cause,
                                   .node = ops_node,
                                   .call_node = ops_call_node};

/* --- What head and worker ask for ---------------------------------------------------------------------------------------------------- */

static exo_status
worker_of(void *context, uint64_t node, exo_ref *out, exo_err *err)
{
    exo_cluster *c = context;
    exo_peer *peer = exo_remote_peer(c->remote, node);
    if (!peer)
        return exo_fail(err, EXO_PEER_LOST, "its node is lost");
    exo_status st = exo_remote_system(c->remote, peer, "worker", out, err);
    exo_peer_drop(&peer);
    return st;
}

static void
wake_keeper(void *context)
{
    exo_cluster *c = context;
    pthread_mutex_lock(&c->lock);
    c->woken = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static void
end_process(void *context)
{
    exo_cluster_interrupt(context);
}

static void
making(void *context, bool begins, const Exo__Cluster__Spawn *spec, exo_ref actor)
{
    exo_cluster *c = context;
    char cause[256];
    made_for_head = begins;
    if (begins || !actor.id)
        return;
    remember(c, actor.id, spec->key, spec->incarnation, spec, NULL);
    if (exo_cause(c->runtime, actor, cause, sizeof cause) == EXO_OK)
        ops_died(c, NULL, NULL, actor, cause, true); /* before we knew it */
}

static exo_ref
find_made(void *context, uint64_t key, uint64_t incarnation)
{
    exo_cluster *c = context;
    exo_ref found = {0};
    pthread_mutex_lock(&c->lock);
    for (const struct known *k = c->known; k && !found.id; k = k->hh.next)
        if (k->key == key && k->incarnation == incarnation)
            found.id = k->id;
    pthread_mutex_unlock(&c->lock);
    return found;
}

/* --- Connections that come and go ------------------------------------------------------------------------------------------------------ */

static void
on_lost(void *context, exo_peer *peer, const char *cause)
{
    exo_cluster *c = context;
    pthread_mutex_lock(&c->lock);
    c->sweep_at = c->sweep_at ? c->sweep_at : real_now() + SWEEP;
    bool was_head = peer == c->head_peer;
    bool closing = c->closing;
    if (was_head) {
        c->head = (exo_ref){0};
        exo_peer_drop(&c->head_peer);
        c->head_lost = real_now();
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    if (was_head && !closing && c->role != EXO_ROLE_GUEST)
        EXO_LOG(WARN, CLUSTER, "head=%s lost: %s; waiting for it to come back", c->place.head, cause);
    exo_peer *other = c->role == EXO_ROLE_HEAD && !closing ? exo_remote_peer(c->remote, exo_peer_node(peer)) : NULL;
    bool gone = !other; /* else it is there again, over another connection */
    exo_peer_drop(&other);
    if (c->role == EXO_ROLE_HEAD && !closing && gone) {
        Exo__Cluster__NodeInfo info = EXO__CLUSTER__NODE_INFO__INIT;
        info.node = exo_peer_node(peer);
        info.cause = exo_pb_text(cause);
        tell_head(c, "gone", &info.base);
    }
}

static const exo_remote_events events = {.lost = on_lost};

static void
describe_known(const struct known *k, Exo__Cluster__Actor *out)
{
    exo__cluster__actor__init(out);
    out->key = k->key;
    out->id = k->id;
    out->incarnation = k->incarnation;
    out->name = k->spec->name;
    out->space = k->spec->space;
    out->class_name = k->spec->class_name;
    out->job = k->spec->job;
    out->detached = k->spec->detached;
    out->spec = k->spec;
}

/* What this process's actors are, for a head that may not know. */
static size_t
list_known_locked(exo_cluster *c, Exo__Cluster__Actor *infos, Exo__Cluster__Actor **list)
{
    size_t count = 0;
    for (const struct known *k = c->known; k; k = k->hh.next, count++)
        describe_known(k, &infos[count]);
    for (const struct known *k = c->deaths; k; k = k->next, count++) {
        describe_known(k, &infos[count]);
        infos[count].state = exo_pb_text("dead");
        infos[count].cause = exo_pb_text(k->cause);
        infos[count].failed = k->failure;
    }
    for (size_t i = 0; i < count; i++)
        list[i] = &infos[i];
    return count;
}

/* Ends what the head takes for dead: it may have made another one in its place. */
static void
end_fenced(exo_cluster *c, const uint64_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct known *k = NULL;
        pthread_mutex_lock(&c->lock);
        HASH_FIND(hh, c->known, &ids[i], sizeof ids[i], k);
        if (k)
            HASH_DEL(c->known, k); /* its death is no news */
        pthread_mutex_unlock(&c->lock);
        if (k)
            exo_kill(c->runtime, (exo_ref){.id = k->id}, "its node was lost for a time, and it was taken for dead",
                     NULL);
        free_known(k);
    }
}

static exo_status
register_at(exo_cluster *c, exo_ref head, exo_time deadline, exo_err *err)
{
    Exo__Cluster__Register m = EXO__CLUSTER__REGISTER__INIT;
    Exo__Cluster__Resource resources[EXO_PLACE_RESOURCES], *resource_list[EXO_PLACE_RESOURCES];
    exo_payload packed = {0};
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    m.node = exo_net_node(exo_remote_net(c->remote));
    m.name = c->name;
    m.endpoint = c->address;
    m.key_text = c->place.has_keys ? c->place.keys.public_key : exo_pb_text("");
    m.kind = exo_pb_text(c->role == EXO_ROLE_WORKER ? "worker" : "driver");
    m.pid = (uint32_t)getpid();
    m.host = c->boot;
    m.job = c->job;
    for (size_t i = 0; i < c->place.num_resources; i++) {
        exo__cluster__resource__init(&resources[i]);
        resources[i].name = exo_pb_text(c->place.resources[i].name);
        resources[i].amount = c->place.resources[i].amount;
        resource_list[i] = &resources[i];
    }
    m.resources = resource_list;
    m.n_resources = c->place.num_resources;
    pthread_mutex_lock(&c->lock); /* the texts of `known` are used */
    const struct known *death;
    size_t most = 0;
    LL_COUNT(c->deaths, death, most);
    most += HASH_COUNT(c->known);
    Exo__Cluster__Actor *infos = exo_calloc(most + 1, sizeof *infos);
    Exo__Cluster__Actor **list = exo_calloc(most + 1, sizeof *list);
    exo_status st = infos && list ? EXO_OK : EXO_NOMEM;
    if (st == EXO_OK) {
        c->num_told++;
        m.n_actors = list_known_locked(c, infos, list);
        m.actors = list;
        st = exo_message_pack(&packed, &m.base);
    }
    pthread_mutex_unlock(&c->lock);
    exo_free(infos);
    exo_free(list);
    if (st != EXO_OK)
        return exo_fail(err, st, "no memory to register");
    st = exo_call(c->runtime, head, "register", packed, deadline, &future, err);
    if (st == EXO_OK)
        st = exo_wait(future, deadline, &reply, err);
    Exo__Cluster__RegisterReply *answer =
        st == EXO_OK ? EXO_UNPACK(Exo__Cluster__RegisterReply, exo__cluster__register_reply, reply) : NULL;
    if (answer) {
        snprintf(c->name, sizeof c->name, "%s", answer->name);
        end_fenced(c, answer->ended, answer->n_ended);
    }
    EXO_RELEASE(answer);
    exo_future_drop(&future);
    return st;
}

/* Connects to the head and registers, once. */
static exo_status
meet_head(exo_cluster *c, exo_time deadline, exo_err *err)
{
    exo_peer *peer = NULL;
    exo_ref head = {0};
    const char *address = c->place.head;
    bool ipc = strncmp(address, "ipc://", 6) == 0;
    if (ipc && access(address + 6, F_OK) != 0)
        return exo_fail(err, EXO_TIMEOUT, "there is no head at %s", address);
    const char *key = c->place.head_key[0] && !ipc ? c->place.head_key : NULL;
    exo_status st = exo_net_connect(exo_remote_net(c->remote), address, key, deadline, &peer, err);
    if (st == EXO_OK)
        st = exo_remote_system(c->remote, peer, "head", &head, err);
    if (st == EXO_OK && c->role != EXO_ROLE_GUEST)
        st = register_at(c, head, deadline, err);
    if (st == EXO_OK) {
        pthread_mutex_lock(&c->lock);
        if (exo_peer_is_open(peer)) {
            exo_peer_drop(&c->head_peer);
            c->head_peer = exo_peer_hold(peer);
            c->head = head;
            c->head_lost = 0;
            pthread_cond_broadcast(&c->changed);
        } else {
            st = exo_fail(err, EXO_PEER_LOST, "the head at %s went at once", address);
        }
        pthread_mutex_unlock(&c->lock);
    } else if (peer) {
        exo_peer_lose(exo_remote_net(c->remote), peer, "registering failed");
    }
    if (st == EXO_OK)
        tell_deaths(c); /* those since it was told what lives */
    exo_peer_drop(&peer);
    return st;
}

/* --- The keeper ------------------------------------------------------------------------------------------------------------------------ */

/* Removes what a killed process left in the folder. */
static void
clean_up(exo_cluster *c)
{
    pthread_mutex_lock(&c->lock);
    bool due = c->sweep_at && real_now() >= c->sweep_at;
    c->sweep_at = due ? 0 : c->sweep_at;
    pthread_mutex_unlock(&c->lock);
    if (due)
        exo_place_sweep(&c->place);
}

/* Goes on to the file that has the log's name by now; false: it is the same one. */
static bool
follow_log(exo_cluster *c)
{
    struct stat ours, named;
    if (fstat(c->log_file, &ours) != 0 || stat(c->log_path, &named) != 0 || ours.st_ino == named.st_ino)
        return false;
    int file = open(c->log_path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    close(c->log_file);
    c->log_file = file;
    return true;
}

static void
pass_log_on(exo_cluster *c)
{
    char text[16384];
    pthread_mutex_lock(&c->lock);
    bool away = !c->head.id; /* its lines wait in the file */
    pthread_mutex_unlock(&c->lock);
    while (c->log_file >= 0 && !away) {
        ssize_t got = read(c->log_file, text, sizeof text - 1);
        text[got > 0 ? got : 0] = 0;
        char *end = strrchr(text, '\n');
        if (end) { /* what follows is not all there yet */
            lseek(c->log_file, end + 1 - text - got, SEEK_CUR);
            end[1] = 0;
        } else if (got < (ssize_t)sizeof text - 1) {
            if (got > 0)
                lseek(c->log_file, -got, SEEK_CUR);
            if (!follow_log(c))
                return;
            continue;
        }
        Exo__Cluster__LogLines lines = EXO__CLUSTER__LOG_LINES__INIT;
        lines.node_name = c->name;
        lines.text = text;
        tell_head(c, "log", &lines.base);
    }
}

static void
wake_head(exo_cluster *c)
{
    if (exo_now(exo_runtime_clock(c->runtime)) < atomic_load(&c->due))
        return;
    atomic_store(&c->due, INT64_MAX);
    pthread_mutex_lock(&c->lock);
    exo_ref head = c->head;
    pthread_mutex_unlock(&c->lock);
    exo_send(c->runtime, head, "tick", (exo_payload){0}, INT64_MAX, NULL);
}

static void *
keeper_main(void *argument)
{
    exo_cluster *c = argument;
    exo_err err = {0};
    /* Leaving waits for it. On this host, who does not answer at once is not there. */
    exo_time patience = strncmp(c->place.head, "ipc://", 6) == 0 ? EXO_SECOND : CONNECT_TIMEOUT;
    pthread_mutex_lock(&c->lock);
    while (!c->closing) {
        bool away = !c->head.id && c->role != EXO_ROLE_GUEST;
        pthread_mutex_unlock(&c->lock);
        if (away)
            meet_head(c, exo_deadline(exo_clock_real(), patience), &err);
        if (c->role == EXO_ROLE_HEAD) {
            wake_head(c);
            clean_up(c);
        }
        pass_log_on(c);
        exo_time due = atomic_load(&c->due), soon = real_now() + (away ? RETRY : 2 * RETRY);
        if (c->role == EXO_ROLE_HEAD || c->log_file < 0)
            soon = real_now() + (away ? RETRY : EXO_SECOND);
        pthread_mutex_lock(&c->lock);
        if (!c->closing && !c->woken)
            wait_until_locked(c, due < soon ? due : soon);
        c->woken = false;
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* --- Joining and leaving ------------------------------------------------------------------------------------------------------------------ */

static exo_status
open_net(exo_cluster *c, const exo_cluster_opts *opts, exo_err *err)
{
    const exo_net_opts net = {.name = c->name,
                              .cluster = c->place.any_cluster ? "" : c->place.cluster,
                              .endpoints = c->place.endpoints,
                              .num_endpoints = c->place.num_endpoints,
                              .keys = c->place.has_keys ? &c->place.keys : NULL,
                              .allowed = c->place.allowed,
                              .peer_timeout = opts->peer_timeout};
    exo_status st = exo_remote_open(&c->remote, c->runtime, &net, &events, c, err);
    if (st == EXO_OK)
        st = exo_retrier_new(&c->retrier, c->runtime, c->remote, ops_find, c, err);
    if (st != EXO_OK)
        return st;
    size_t at = 0;
    for (size_t i = 0; i < c->place.num_endpoints && at < sizeof c->address; i++) {
        const char *bound = exo_net_endpoint(exo_remote_net(c->remote), i);
        char address[EXO_PLACE_PATH + 256];
        exo_place_public(&c->place, opts, bound, address, sizeof address);
        at += (size_t)snprintf(c->address + at, sizeof c->address - at, "%s%s", at ? " " : "", address);
    }
    return at < sizeof c->address ? EXO_OK : exo_fail(err, EXO_INVAL, "the addresses are too long");
}

static exo_status
start_head(exo_cluster *c, const exo_cluster_opts *opts, exo_err *err)
{
    char state[4096];
    exo_status st = EXO_OK;
    if (opts->state && strlen(opts->state) < sizeof state)
        snprintf(state, sizeof state, "%s", opts->state);
    else
        st = exo_head_default_state(c->place.cluster, state, sizeof state, err);
    const exo_head_env env = {.worker_of = worker_of,
                              .context = c,
                              .cluster = c->place.cluster,
                              .state_path = strcmp(state, "none") == 0 ? NULL : state,
                              .wake = wake_keeper,
                              .end = end_process,
                              .due = &c->due};
    if (st == EXO_OK)
        st = exo_spawn(
            c->runtime, &exo_head_class,
            &(exo_spawn_opts){.name = "head", .namespace_name = "exogym", .args = exo_payload_borrow(&env, sizeof env)},
            &c->head, err);
    return st;
}

static exo_status
start_worker(exo_cluster *c, exo_err *err)
{
    exo_ref worker;
    const exo_worker_env env = {.making = making, .find = find_made, .end = end_process, .context = c};
    return exo_spawn(
        c->runtime, &exo_worker_class,
        &(exo_spawn_opts){.name = "worker", .namespace_name = "exogym", .args = exo_payload_borrow(&env, sizeof env)},
        &worker, err);
}

static void
name_process(exo_cluster *c, const exo_cluster_opts *opts)
{
    static const char *const roles[] = {"driver", "worker", "head", "guest"};
    char host[64] = "host";
    gethostname(host, sizeof host - 1);
    if (opts->name && *opts->name)
        snprintf(c->name, sizeof c->name, "%s", opts->name);
    else
        snprintf(c->name, sizeof c->name, "%s-%.40s-%d", roles[opts->role], host, (int)getpid());
    if (opts->role == EXO_ROLE_GUEST && opts->job)
        snprintf(c->job, sizeof c->job, "%s", opts->job);
    if (opts->role == EXO_ROLE_DRIVER) {
        if (opts->job && *opts->job)
            snprintf(c->job, sizeof c->job, "%s", opts->job);
        else
            snprintf(c->job, sizeof c->job, "job-%.40s-%d", host, (int)getpid());
    }
}

static exo_status
fail_no_head(const exo_cluster *c, const exo_err *reason, exo_err *err)
{
    const char *unresolved;
    if (!exo_place_resolves(c->place.head, &unresolved))
        return exo_fail(err, EXO_TIMEOUT,
                        "no head can be reached: the name of the host in '%.200s' cannot be resolved: %s",
                        c->place.head, unresolved);
    return exo_fail(err, EXO_TIMEOUT, "no head can be reached (%.200s): start one with `exogym-head`", reason->text);
}

/* Tries until the deadline: the head may be starting. */
static exo_status
find_head(exo_cluster *c, exo_time deadline, exo_err *err)
{
    exo_status st;
    exo_err reason = {0};
    while ((st = meet_head(c, deadline, &reason)) == EXO_TIMEOUT || st == EXO_PEER_LOST) {
        if (real_now() + RETRY / 10 >= deadline)
            return fail_no_head(c, &reason, err);
        pthread_mutex_lock(&c->lock);
        wait_until_locked(c, real_now() + RETRY / 10);
        pthread_mutex_unlock(&c->lock);
    }
    return st == EXO_OK ? st : exo_fail(err, st, "%s", reason.text);
}

/* Ends what this folder put into the runtime, which is the caller's to use on or to close. */
static void
stop_own(exo_cluster *c)
{
    static const char *const names[] = {"head", "worker"};
    exo_ref actor;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (exo_runtime_find_name(c->runtime, "exogym", names[i], &actor, NULL) == EXO_OK)
            exo_stop(c->runtime, actor, false, NULL);
}

exo_status
exo_cluster_join(exo_cluster **out, exo_runtime *runtime, const exo_cluster_opts *opts, exo_time deadline, exo_err *err)
{
    exo_cluster *c = exo_calloc(1, sizeof *c);
    if (!c)
        return exo_fail(err, EXO_NOMEM, "no memory to join a cluster");
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, &attr);
    pthread_condattr_destroy(&attr);
    c->role = opts->role;
    c->runtime = runtime;
    c->due = INT64_MAX;
    c->log_file = -1;
    exo_boot_id(c->boot);
    name_process(c, opts);
    exo_status st = exo_place_init(&c->place, opts, err);
    if (st == EXO_OK)
        st = open_net(c, opts, err);
    if (st == EXO_OK && opts->role == EXO_ROLE_HEAD)
        st = start_head(c, opts, err);
    if (st == EXO_OK && opts->role == EXO_ROLE_WORKER)
        st = start_worker(c, err);
    if (st == EXO_OK && opts->role == EXO_ROLE_WORKER && opts->log && strlen(opts->log) < sizeof c->log_path) {
        snprintf(c->log_path, sizeof c->log_path, "%s", opts->log);
        c->log_file = open(opts->log, O_RDONLY | O_CLOEXEC);
    }
    if (st == EXO_OK)
        exo_runtime_set_remote(runtime, &ops, c);
    if (st == EXO_OK && opts->role != EXO_ROLE_HEAD)
        st = find_head(c, deadline, err);
    if (st == EXO_OK) {
        c->has_keeper = pthread_create(&c->keeper, NULL, keeper_main, c) == 0;
        if (!c->has_keeper)
            st = exo_fail(err, EXO_FAILED, "no thread can be started for the cluster");
    }
    *out = c;
    if (st != EXO_OK) {
        exo_cluster_leave(c);
        *out = NULL;
        exo_runtime_set_remote(runtime, NULL, NULL);
        stop_own(c);
        exo_cluster_free(&c);
    }
    return st;
}

void
exo_cluster_leave(exo_cluster *c)
{
    if (!c || c->left)
        return;
    c->left = true;
    if (c->role == EXO_ROLE_DRIVER || c->role == EXO_ROLE_WORKER) {
        Exo__Cluster__NodeInfo info = EXO__CLUSTER__NODE_INFO__INIT;
        exo_future *future = NULL;
        const exo_payload *reply;
        info.node = c->remote ? exo_net_node(exo_remote_net(c->remote)) : 0;
        info.state = exo_pb_text("left");
        info.cause = exo_pb_text("it left");
        pthread_mutex_lock(&c->lock);
        bool there = c->head.id != 0;
        pthread_mutex_unlock(&c->lock);
        if (there && call_head(c, "gone", &info.base, false, exo_deadline(exo_clock_real(), EXO_SECOND), &future,
                               &reply, NULL) == EXO_OK)
            exo_future_drop(&future);
    }
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (c->has_keeper)
        pthread_join(c->keeper, NULL);
    c->has_keeper = false;
    exo_retrier_stop(c->retrier);
    exo_remote_close(c->remote);
}

void
exo_cluster_free(exo_cluster **cluster)
{
    exo_cluster *c = *cluster;
    struct known *k, *next;
    *cluster = NULL;
    if (!c)
        return;
    exo_cluster_leave(c);
    exo_peer_drop(&c->head_peer);
    exo_remote_free(&c->remote);
    exo_retrier_free(&c->retrier);
    exo_place_release(&c->place);
    HASH_ITER (hh, c->known, k, next) {
        HASH_DEL(c->known, k);
        free_known(k);
    }
    while ((k = c->deaths)) {
        LL_DELETE(c->deaths, k);
        free_known(k);
    }
    if (c->log_file >= 0)
        close(c->log_file);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    exo_free(c);
}

/* --- Looking --------------------------------------------------------------------------------------------------------------------------- */

exo_runtime *
exo_cluster_runtime(const exo_cluster *cluster)
{
    return cluster->runtime;
}

const char *
exo_cluster_node_name(const exo_cluster *cluster)
{
    return cluster->name;
}

const char *
exo_cluster_address(const exo_cluster *cluster)
{
    return cluster->address;
}

exo_status
exo_cluster_wait(exo_cluster *cluster, exo_time grace, exo_time deadline, exo_err *err)
{
    exo_status st = EXO_TIMEOUT;
    pthread_mutex_lock(&cluster->lock);
    for (;;) {
        exo_time now = real_now(), until = deadline;
        if (cluster->interrupted)
            st = EXO_CLOSED;
        else if (cluster->head_lost && now - cluster->head_lost >= grace)
            st = EXO_PEER_LOST;
        if (st != EXO_TIMEOUT || now >= deadline)
            break;
        if (cluster->head_lost && grace < deadline - cluster->head_lost)
            until = cluster->head_lost + grace;
        wait_until_locked(cluster, until);
    }
    pthread_mutex_unlock(&cluster->lock);
    return st == EXO_PEER_LOST ? exo_fail(err, st, "the head at %s did not come back", cluster->place.head)
           : st == EXO_CLOSED  ? exo_fail(err, st, "this process was told to end")
                               : exo_fail(err, st, "nothing happened");
}

void
exo_cluster_interrupt(exo_cluster *cluster)
{
    pthread_mutex_lock(&cluster->lock);
    cluster->interrupted = true;
    pthread_cond_broadcast(&cluster->changed);
    pthread_mutex_unlock(&cluster->lock);
}

uint64_t
exo_cluster_node_id(const exo_cluster *cluster)
{
    return exo_net_node(exo_remote_net(cluster->remote));
}

exo_status
exo_cluster_call_head(exo_cluster *cluster, const char *method, const ProtobufCMessage *args, exo_time deadline,
                      exo_future **future, const exo_payload **reply, exo_err *err)
{
    return call_head(cluster, method, args, true, deadline, future, reply, err);
}

exo_status
exo_cluster_head(exo_cluster *cluster, exo_time deadline, exo_ref *out, exo_err *err)
{
    return get_head(cluster, deadline, out, err);
}

exo_status
exo_cluster_give_up(exo_cluster *cluster, const char *namespace_name, const char *name, const char *cause,
                    exo_time deadline, bool *given_up, exo_err *err)
{
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    Exo__Cluster__Name args = EXO__CLUSTER__NAME__INIT;
    args.space = exo_pb_text(namespace_name ? namespace_name : "default");
    args.name = exo_pb_text(name);
    args.cause = exo_pb_text(cause);
    exo_status st = call_head(cluster, "give_up", &args.base, false, deadline, &future, &reply, err);
    if (st != EXO_OK)
        return st;
    Exo__Cluster__Actor *info = EXO_UNPACK(Exo__Cluster__Actor, exo__cluster__actor, reply);
    *given_up = info && strcmp(info->state, "alive") != 0;
    EXO_RELEASE(info);
    exo_future_drop(&future);
    return EXO_OK;
}

exo_status
exo_cluster_why(exo_cluster *cluster, const char *namespace_name, const char *name, exo_time deadline, char **text,
                exo_err *err)
{
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    Exo__Cluster__Name args = EXO__CLUSTER__NAME__INIT;
    args.space = exo_pb_text(namespace_name ? namespace_name : "default");
    args.name = exo_pb_text(name);
    exo_status st = call_head(cluster, "why", &args.base, true, deadline, &future, &reply, err);
    if (st != EXO_OK)
        return st;
    *text = reply->size > 0 ? exo_strdup(reply->data) : NULL;
    exo_future_drop(&future);
    return *text ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a cause");
}
