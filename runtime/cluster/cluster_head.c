/* The connection to the head: meeting it, calling it, losing it. head.c has the other side.
 *
 * Owns `head`, `head_peer` and `head_lost`, under the cluster's lock. They are set once the process
 * has registered (cluster_known.c), by the joining thread or by the keeper. When the connection is
 * lost, the thread that drives the net clears them. */
#include <stdio.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "cluster/cluster_impl.h"
#include "cluster/quota.h"

enum {
    /* A worker gets more about an actor than the driver sent to the head, and must be able to tell
     * a new head all of it. */
    MARGIN = 64 << 10
};

/* wait before the keeper looks for the files of a lost process */
#define SWEEP (2 * EXO_SECOND)

/* --- Calls to the head ------------------------------------------------------------------------ */

exo_status
exo_cluster_head(exo_cluster *c, exo_time deadline, exo_ref *out, exo_err *err)
{
    exo_status own = exo_cluster_check_own(c, err);
    if (own != EXO_OK)
        return own;
    pthread_mutex_lock(&c->lock);
    while (!c->head.id && !c->closing && !c->forsaken[0] && exo_cluster_now() < deadline)
        exo_cluster_wait_until_locked(c, deadline);
    *out = c->head;
    bool closing = c->closing, forsaken = c->forsaken[0] != 0;
    pthread_mutex_unlock(&c->lock);
    if (out->id)
        return EXO_OK;
    if (forsaken)
        return exo_fail(err, EXO_PEER_LOST, "%s", c->forsaken);
    return closing ? exo_fail(err, EXO_CLOSED, "this process leaves the cluster")
                   : exo_fail(err, EXO_TIMEOUT, "the head at %s is away", c->place.head);
}

exo_status
exo_cluster_call_head(exo_cluster *c, const char *method, const ProtobufCMessage *args, bool again,
                      exo_time deadline, exo_future **future, const exo_payload **reply,
                      exo_err *err)
{
    for (;;) {
        exo_ref head;
        exo_payload packed = {0};
        exo_status st = exo_cluster_head(c, deadline, &head, err);
        if (st != EXO_OK)
            return st;
        if (args && (st = exo_message_pack(&packed, args)) != EXO_OK)
            return exo_fail(err, st, "no memory to call the head");
        if (packed.size > EXO_MAX_CONTROL - MARGIN) {
            st = exo_fail(
                err, EXO_INVAL,
                "the head takes %d bytes at most, and '%s' needs %zu: give large data as an object",
                EXO_MAX_CONTROL - MARGIN, method, packed.size);
            exo_payload_release(&packed);
            return st;
        }
        st = exo_call(c->runtime, head, method, packed, deadline, future, err);
        bool sent = st == EXO_OK;
        if (sent)
            st = exo_wait(*future, deadline, reply, err);
        if (st == EXO_OK)
            return st;
        if (sent)
            exo_future_drop(future);
        if (st != EXO_PEER_LOST || (sent && !again) || exo_cluster_now() >= deadline)
            return st;
        /* the loss may not have reached this thread yet */
        pthread_mutex_lock(&c->lock);
        if (c->head.id == head.id)
            exo_cluster_wait_until_locked(c, exo_cluster_now() + EXO_MS);
        pthread_mutex_unlock(&c->lock);
    }
}

bool
exo_cluster_tell_head(exo_cluster *c, const char *method, const ProtobufCMessage *message)
{
    exo_payload packed = {0};
    pthread_mutex_lock(&c->lock);
    exo_ref head = c->head;
    pthread_mutex_unlock(&c->lock);
    return head.id && exo_message_pack(&packed, message) == EXO_OK &&
           exo_send(c->runtime, head, method, packed, INT64_MAX, NULL) == EXO_OK;
}

/* --- The connection --------------------------------------------------------------------------- */

static bool
is_near(const char *address)
{
    return strncmp(address, "ipc://", strlen("ipc://")) == 0;
}

static bool
is_there(const char *address)
{
    return exo_cluster_place_has_owner(address + strlen("ipc://"));
}

bool
exo_cluster_is_head_there(const exo_cluster *c)
{
    const char *address = exo_cluster_place_head(&c->place);
    return !is_near(address) || is_there(address);
}

exo_time
exo_cluster_patience(const exo_cluster *c, unsigned failed)
{
    exo_time patience = is_near(c->place.head) ? EXO_SECOND : CONNECT_TIMEOUT;
    for (unsigned i = 0; i < failed && patience < MOST_PATIENCE; i++)
        patience *= 2;
    return patience < MOST_PATIENCE ? patience : MOST_PATIENCE;
}

exo_status
exo_cluster_meet_head(exo_cluster *c, exo_time patience, exo_time deadline, exo_err *err)
{
    exo_peer *peer = NULL;
    exo_ref head = {0};
    const char *address = exo_cluster_place_head(&c->place);
    bool near = is_near(address), keyed = exo_net_is_keyed(address);
    if (near && !is_there(address))
        return exo_fail(err, EXO_TIMEOUT, "there is no head at %s", address);
    if (keyed && !c->place.keys_for_local)
        return exo_fail(err, EXO_INVAL,
                        "the head at %s wants keys of processes of this host, too: start again, "
                        "with --keys-for-local",
                        address);
    const char *key = c->place.head_key[0] && (!near || keyed) ? c->place.head_key : NULL;
    exo_time until = exo_cluster_now() + patience;
    exo_status st = exo_net_connect_while(exo_remote_net(c->remote), address, key,
                                          until < deadline ? until : deadline,
                                          near ? is_there : NULL, &peer, err);
    if (st == EXO_OK)
        st = exo_remote_system(c->remote, peer, "head", &head, err);
    if (st == EXO_OK && c->role != EXO_ROLE_GUEST)
        st = exo_cluster_register(c, head, deadline, err);
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
        exo_cluster_tell_deaths(c); /* deaths since the actors were listed for the registration */
    exo_peer_drop(&peer);
    return st;
}

static void
on_lost(void *context, exo_peer *peer, const char *cause)
{
    exo_cluster *c = context;
    pthread_mutex_lock(&c->lock);
    c->sweep_at = c->sweep_at ? c->sweep_at : exo_cluster_now() + SWEEP;
    bool was_head = peer == c->head_peer;
    bool closing = c->closing;
    if (was_head) {
        c->head = (exo_ref){0};
        exo_peer_drop(&c->head_peer);
        c->head_lost = exo_cluster_now();
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    if (was_head && !closing && c->role != EXO_ROLE_GUEST)
        EXO_LOG(WARN, CLUSTER, "head=%s lost: %s; waiting for it to come back", c->place.head,
                cause);
    exo_peer *other = c->role == EXO_ROLE_HEAD && !closing
                          ? exo_remote_peer(c->remote, exo_peer_node(peer))
                          : NULL;
    /* otherwise the process is connected again, over another connection */
    bool gone = !other;
    exo_peer_drop(&other);
    if (c->role == EXO_ROLE_HEAD && !closing && gone) {
        Exo__Cluster__NodeInfo info = EXO__CLUSTER__NODE_INFO__INIT;
        info.node = exo_peer_node(peer);
        info.cause = exo_pb_text(cause);
        if (!exo_net_hears(exo_remote_net(c->remote), peer))
            info.state = exo_pb_text("silent");
        exo_cluster_tell_head(c, "gone", &info.base);
    }
}

const exo_remote_events exo_cluster_events = {.lost = on_lost, .made_from = exo_cluster_made_from};

void
exo_cluster_forsake_head(exo_cluster *c, const char *cause)
{
    if (exo_cluster_check_own(c, NULL) != EXO_OK)
        return;
    pthread_mutex_lock(&c->lock);
    if (!c->forsaken[0])
        snprintf(c->forsaken, sizeof c->forsaken, "%s",
                 cause && *cause ? cause : "the head has ended");
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* --- Requests of users ------------------------------------------------------------------------ */

exo_status
exo_cluster_give_up(exo_cluster *cluster, const char *namespace_name, const char *name,
                    const char *cause, exo_time deadline, bool *given_up, exo_err *err)
{
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    Exo__Cluster__Name args = EXO__CLUSTER__NAME__INIT;
    args.space = exo_pb_text(namespace_name ? namespace_name : "default");
    args.name = exo_pb_text(name);
    args.cause = exo_pb_text(cause);
    exo_status st = exo_cluster_call_head(cluster, "give_up", &args.base, false, deadline, &future,
                                          &reply, err);
    if (st != EXO_OK)
        return st;
    Exo__Cluster__Actor *info = EXO_UNPACK(Exo__Cluster__Actor, exo__cluster__actor, reply);
    *given_up = info && strcmp(info->state, "alive") != 0;
    EXO_RELEASE(info);
    exo_future_drop(&future);
    return EXO_OK;
}

exo_status
exo_cluster_end_actor(exo_cluster *cluster, const char *namespace_name, const char *name,
                      const char *cause, bool is_lost, exo_time deadline, exo_future **out,
                      exo_err *err)
{
    exo_ref head;
    exo_payload packed = {0};
    Exo__Cluster__Name args = EXO__CLUSTER__NAME__INIT;
    args.space = exo_pb_text(namespace_name ? namespace_name : "default");
    args.name = exo_pb_text(name);
    args.cause = exo_pb_text(cause);
    args.failure = is_lost;
    args.alive = true;
    exo_status st = exo_cluster_head(cluster, exo_cluster_now(), &head, err);
    if (st == EXO_OK && (st = exo_message_pack(&packed, &args.base)) != EXO_OK)
        exo_fail(err, st, "no memory to call the head");
    return st == EXO_OK ? exo_call(cluster->runtime, head, "give_up", packed, deadline, out, err)
                        : st;
}

exo_status
exo_cluster_why(exo_cluster *cluster, const char *namespace_name, const char *name,
                exo_time deadline, char **text, exo_err *err)
{
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    Exo__Cluster__Name args = EXO__CLUSTER__NAME__INIT;
    args.space = exo_pb_text(namespace_name ? namespace_name : "default");
    args.name = exo_pb_text(name);
    exo_status st =
        exo_cluster_call_head(cluster, "why", &args.base, true, deadline, &future, &reply, err);
    if (st != EXO_OK)
        return st;
    /* terminated here, because the reply may lack its 0 */
    *text = exo_calloc(1, reply->size + 1);
    if (*text && reply->size > 0)
        memcpy(*text, reply->data, reply->size);
    exo_future_drop(&future);
    return *text ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a cause");
}
