/* Actors and processes elsewhere, found by the head's description or by an identity: connecting,
 * references, identities. By name: cluster_names.c.
 *
 * Keeps only the list of attempts that are in progress; connections and references belong to
 * exo_remote. Blocks while it connects. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cluster/cluster_impl.h"
#include "net/intake.h"

/* --- Connecting ------------------------------------------------------------------------------- */

/* Whether a process of this user listens there: it would refuse another user's, which has to come by
 * tcp. */
static bool
is_there(const char *ipc_endpoint)
{
    const char *path = ipc_endpoint + strlen("ipc://");
    struct stat info;
    return stat(path, &info) == 0 && info.st_uid == geteuid() && exo_cluster_place_has_owner(path);
}

/* Tries the addresses of a process, those of this host first. addresses: separated by spaces.
 * PEER_LOST: the process has ended. */
static exo_status
connect_to(exo_cluster *c, const char *addresses, const char *key, exo_time deadline,
           exo_peer **out, exo_err *err)
{
    exo_status st =
        exo_fail(err, EXO_PEER_LOST, "nobody can be reached at '%.200s' from here", addresses);
    for (int pass = 0; pass < 2 && st != EXO_OK; pass++) {
        for (const char *at = addresses; *at && st != EXO_OK;) {
            size_t length = strcspn(at, " ");
            char address[256];
            snprintf(address, sizeof address, "%.*s", (int)length, at);
            bool ipc = strncmp(address, "ipc://", 6) == 0, keyed = exo_net_is_keyed(address);
            bool trusted = !ipc || keyed || !c->place.keys_for_local;
            if (length > 0 && length < sizeof address && ipc == (pass == 0) && trusted &&
                (!ipc || is_there(address))) {
                exo_time until =
                    exo_deadline(exo_clock_real(), ipc ? NEAR_TIMEOUT : CONNECT_TIMEOUT);
                until = until < deadline ? until : deadline;
                st = exo_net_connect_while(exo_remote_net(c->remote), address,
                                           (ipc && !keyed) || !key || !*key ? NULL : key, until,
                                           ipc ? is_there : NULL, out, err);
            }
            at += length + strspn(at + length, " ");
        }
    }
    return st;
}

struct attempt {
    uint64_t node;
    struct attempt *next;
};

static struct attempt **
attempt_at_locked(exo_cluster *c, uint64_t node)
{
    struct attempt **at = &c->attempts;
    while (*at && (*at)->node != node)
        at = &(*at)->next;
    return at;
}

/* One thread connects to a process while the others wait for its result. Otherwise hundreds of
 * actors that start together would make as many connections, most of which the other side's limits
 * for strangers would refuse. */
static exo_status
connect_once(exo_cluster *c, const Exo__Cluster__Actor *info, exo_time deadline, exo_peer **out,
             exo_err *err)
{
    struct attempt mine = {.node = info->node};
    char few[EXO_INTAKE_HINT];
    exo_time until = exo_deadline(exo_clock_real(), NEAR_TIMEOUT);
    until = until < deadline ? until : deadline;
    pthread_mutex_lock(&c->lock);
    while (*attempt_at_locked(c, info->node) && exo_cluster_now() < until)
        exo_cluster_wait_until_locked(c, until);
    bool first = !*attempt_at_locked(c, info->node);
    exo_intake_hint(info->endpoint, few);
    if (first) {
        mine.next = c->attempts;
        c->attempts = &mine;
    }
    pthread_mutex_unlock(&c->lock);
    *out = exo_remote_peer(c->remote, info->node);
    exo_status st = EXO_OK;
    if (!*out)
        st = first ? connect_to(c, info->endpoint, info->key_text, deadline, out, err)
                   : exo_fail(err, EXO_TIMEOUT, "%s does not answer%s", info->endpoint, few);
    if (first) {
        if (st == EXO_OK)
            exo_remote_know(c->remote, *out); /* before the waiting threads look for it */
        pthread_mutex_lock(&c->lock);
        *attempt_at_locked(c, info->node) = mine.next;
        pthread_cond_broadcast(&c->changed);
        pthread_mutex_unlock(&c->lock);
    }
    return st;
}

exo_status
exo_cluster_refer_to(exo_cluster *c, const Exo__Cluster__Actor *info, exo_time deadline,
                     exo_ref *out, exo_err *err)
{
    if (!info->id)
        return exo_fail(err, EXO_FAILED, "the head's reply names no life of '%s'", info->name);
    if (info->node == exo_net_node(exo_remote_net(c->remote))) {
        out->id = info->id;
        return EXO_OK;
    }
    exo_peer *peer = exo_remote_peer(c->remote, info->node);
    exo_status st = peer ? EXO_OK : connect_once(c, info, deadline, &peer, err);
    if (st == EXO_OK && exo_peer_node(peer) != info->node) {
        st = exo_fail(err, EXO_PEER_LOST, "the process of '%s' has ended, and another one is at %s",
                      info->node_name, info->endpoint);
        exo_peer_lose(exo_remote_net(c->remote), peer, "it is not who was expected");
    }
    if (st == EXO_OK)
        st = exo_remote_actor(c->remote, peer, info->id, out, err);
    if (st == EXO_OK)
        exo_retrier_learn(c->retrier, *out, info->space, info->name, info->idempotent.data,
                          info->idempotent.len);
    exo_peer_drop(&peer);
    return st;
}

/* Finds or makes the connection to a process. */
static exo_status
reach_node(exo_cluster *c, uint64_t node, exo_time deadline, exo_peer **out, exo_err *err)
{
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    exo_err reason = {0};
    if ((*out = exo_remote_peer(c->remote, node)))
        return EXO_OK;
    Exo__Cluster__NodeInfo args = EXO__CLUSTER__NODE_INFO__INIT;
    args.node = node;
    exo_status st =
        exo_cluster_call_head(c, "node", &args.base, true, deadline, &future, &reply, &reason);
    if (st != EXO_OK)
        return exo_fail(err, st == EXO_NOT_FOUND ? EXO_PEER_LOST : st, "%s", reason.text);
    Exo__Cluster__Actor *info = EXO_UNPACK(Exo__Cluster__Actor, exo__cluster__actor, reply);
    exo_ref unused;
    st = info ? exo_cluster_refer_to(c, info, deadline, &unused, err)
              : exo_fail(err, EXO_FAILED, "the head's reply cannot be read");
    EXO_RELEASE(info);
    exo_future_drop(&future);
    if (st == EXO_OK && !(*out = exo_remote_peer(c->remote, node)))
        st = exo_fail(err, EXO_PEER_LOST, "the process is lost");
    return st;
}

/* The process itself has no connection to itself. */
static exo_status
call_own_node(exo_cluster *c, const char *method, const exo_payload *args, exo_time deadline,
              exo_future **out, exo_err *err)
{
    exo_status st = exo_future_new(out, exo_runtime_clock(c->runtime), deadline, err);
    if (st == EXO_OK)
        st = exo_remote_answer_own(c->remote, method, args, *out, err);
    if (st != EXO_OK)
        exo_future_drop(out);
    return st;
}

exo_status
exo_cluster_call_node(void *context, uint64_t node, const char *method, exo_payload *args,
                      exo_time deadline, exo_future **out, exo_err *err)
{
    exo_cluster *c = context;
    exo_peer *peer = NULL;
    exo_ref system = {0};
    if (node == exo_net_node(exo_remote_net(c->remote))) {
        exo_status own = call_own_node(c, method, args, deadline, out, err);
        exo_payload_release(args);
        return own;
    }
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

/* --- Identities ------------------------------------------------------------------------------- */

exo_status
exo_cluster_export(void *context, exo_ref actor, exo_actor_id *out, exo_err *err)
{
    exo_cluster *c = context;
    *out = (exo_actor_id){.node = exo_net_node(exo_remote_net(c->remote)), .id = actor.id};
    if ((actor.id & EXO_REMOTE) && !exo_remote_locate(c->remote, actor, &out->node, &out->id))
        return exo_fail(err, EXO_PEER_LOST, "the actor is dead");
    return EXO_OK;
}

exo_status
exo_cluster_import(void *context, const exo_actor_id *id, exo_time deadline, exo_ref *out,
                   exo_err *err)
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
