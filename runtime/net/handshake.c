/* The handshake: the connecting process sends Hello, the listener answers Welcome or Refused; after
 * a Welcome both have a peer. Callers of `_locked` functions hold net->lock.
 *
 * A stranger's statements are believed as far as the kernel confirms them, and strangers are
 * answered at a limited rate. The net remembers which routes it refused (net->refused,
 * net->refusals), guarded by net->lock. Read next: receive.c, which passes Hello and Welcome to
 * this file; auth.h, for the connections that get as far as a Hello. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <utlist.h>

#include <exogym/log.h>

#include "net/intake.h"
#include "net/net_impl.h"
#include "net/zmq_again.h"

enum {
    REFUSALS = 32,      /* refusals that are answered and logged in a burst */
    REFUSALS_A_TICK = 4 /* the same, after a burst */
};

#define LOOK (20 * EXO_MS) /* how often is_there and the monitor are asked */

/* Takes over the identity that the peer claims, as far as the proof in `frame` allows. From now on
 * a process of this host is watched. */
static bool
identify_locked(exo_net *net, exo_peer *peer, const exo_wire_identity *who, const zmq_msg_t *frame,
                exo_err *err)
{
    peer->node = who->node;
    peer->pid = who->pid;
    peer->start = who->start;
    snprintf(peer->name, sizeof peer->name, "%s", who->name);
    snprintf(peer->endpoint, sizeof peer->endpoint, "%s", who->endpoint);
    exo_net_make_plain(peer->name);
    exo_net_make_plain(peer->endpoint);
    peer->near = strcmp(who->boot, net->boot) == 0;
    peer->by_ipc = peer->socket && peer->socket->ipc;
    peer->own_user = peer->near && exo_process_is_own(who->pid);
    if (!exo_proof_bind_locked(net, peer, frame, err))
        return false;
    if (!peer->near)
        return true;
    peer->process_fd = exo_process_watch(who->pid, who->start);
    if (peer->process_fd < 0) {
        /* It has ended already, or may not be watched: then silence decides, as with another
         * host. */
        peer->near = !exo_process_has_ended(who->pid, who->start);
        if (!peer->near)
            exo_fail(err, EXO_PEER_LOST, "its process %u has ended, or is not what it says",
                     peer->pid);
        return peer->near;
    }
    if (!exo_net_watch_locked(net, peer->process_fd, &peer->process)) {
        close(peer->process_fd);
        peer->process_fd = -1;
    }
    return true;
}

/* --- The listener ----------------------------------------------------------------------------- */

static uint64_t
hash_route(const exo_socket *socket, const zmq_msg_t *route)
{
    const uint8_t *id = zmq_msg_data((zmq_msg_t *)(uintptr_t)route);
    uint64_t h = UINT64_C(14695981039346656037) ^ (uintptr_t)socket;
    for (size_t i = 0; i < zmq_msg_size(route); i++)
        h = (h ^ id[i]) * UINT64_C(1099511628211);
    return h ? h : 1;
}

/* Remembers a route. True: it was remembered before. A refused peer may continue to send and need
 * not read, so each route is answered only once. */
static bool
was_refused_locked(exo_net *net, const exo_socket *socket, const zmq_msg_t *route)
{
    uint64_t hash = hash_route(socket, route);
    for (size_t i = 0; i < EXO_NET_REFUSED; i++)
        if (net->refused[i] == hash)
            return true;
    net->refused[net->next_refused++ % EXO_NET_REFUSED] = hash;
    return false;
}

/* ZeroMQ attaches the proven properties to the routing frame, too. */
static void
record_refusal(const exo_net *net, const exo_socket *socket, const zmq_msg_t *route,
               const char *why)
{
    exo_identity who;
    if (!net->opts.audit)
        return;
    exo_proof_describe(socket, route, &who);
    exo_audit_add(net->opts.audit, &(exo_audit_record){.event = EXO_AUDIT_REFUSED,
                                                       .who = &who,
                                                       .status = EXO_DENIED,
                                                       .reason = why});
}

void
exo_net_refuse_locked(exo_net *net, exo_socket *socket, const zmq_msg_t *route, const char *why)
{
    exo_wire_writer writer = {0};
    char reason[EXO_ERR_TEXT];
    if (was_refused_locked(net, socket, route))
        return;
    record_refusal(net, socket, route, why);
    if (net->refusals >= REFUSALS) {
        net->unsaid++;
        return;
    }
    net->refusals++;
    snprintf(reason, sizeof reason, "%s", why);
    exo_net_make_plain(reason);
    exo_envelope refused = {.kind = EXO_WIRE_REFUSED, .version = EXO_WIRE_VERSION, .text = reason};
    if (exo_wire_add(&writer, &refused, NULL) == EXO_OK) {
        exo_wire_finish(&writer, 0);
        size_t size = zmq_msg_size(route);
        const void *id = zmq_msg_data((zmq_msg_t *)(uintptr_t)route);
        if (exo_socket_send_bytes(socket->zmq, id, size, ZMQ_SNDMORE))
            exo_socket_send_bytes(socket->zmq, writer.data, writer.size, 0);
        exo_socket_look_locked(net, socket);
    }
    exo_wire_release(&writer);
    EXO_LOG(WARN, NET, "refused a peer: %s left_out=%" PRIu64, reason, net->unsaid);
    net->unsaid = 0;
}

void
exo_net_forgive_refusals_locked(exo_net *net)
{
    net->refusals = net->refusals > REFUSALS_A_TICK ? net->refusals - REFUSALS_A_TICK : 0;
}

/* Loses the earlier connections of the same node that have ended. Their messages answer nobody any
 * more, and a node that comes back again and again must not hold something for each time. */
static void
lose_earlier_locked(exo_net *net, const exo_peer *peer)
{
    exo_peer *p, *next;
    DL_FOREACH_SAFE (net->peers, p, next)
        if (p != peer && p->node == peer->node && p->route_size && exo_intake_has_ended(p->intake))
            exo_peer_lose_locked(net, p, "it has connected anew");
}

exo_peer *
exo_net_greet_locked(exo_net *net, exo_socket *socket, const zmq_msg_t *route,
                     const zmq_msg_t *frame, const exo_wire_identity *who, uint32_t number)
{
    char reason[EXO_ERR_TEXT];
    exo_err err = {0};
    size_t size = zmq_msg_size(route);
    if (number != 0) {
        snprintf(reason, sizeof reason, "the Hello is message %u of its connection, not 0", number);
        exo_net_refuse_locked(net, socket, route, reason);
        return NULL;
    }
    if (net->cluster[0] && who->cluster[0] && strcmp(net->cluster, who->cluster) != 0) {
        snprintf(reason, sizeof reason, "this is the cluster '%s', not '%s'", net->cluster,
                 who->cluster);
        exo_net_refuse_locked(net, socket, route, reason);
        return NULL;
    }
    if (size > EXO_NET_ROUTE) {
        snprintf(reason, sizeof reason, "a routing id of %zu bytes is longer than %d", size,
                 EXO_NET_ROUTE);
        exo_net_refuse_locked(net, socket, route, reason);
        return NULL;
    }
    exo_peer *peer = exo_peer_new_locked(net, socket);
    if (!peer) {
        exo_net_refuse_locked(net, socket, route, "no memory for another peer");
        return NULL;
    }
    memcpy(peer->route, zmq_msg_data((zmq_msg_t *)(uintptr_t)route), size);
    peer->route_size = size;
    peer->received = 1; /* the Hello */
    HASH_ADD(by_route, socket->peers, route, size, peer);
    if (!identify_locked(net, peer, who, frame, &err)) {
        exo_peer_lose_locked(net, peer, err.text);
        exo_net_refuse_locked(net, socket, route, err.text);
        return NULL;
    }
    lose_earlier_locked(net, peer);
    exo_envelope welcome = {.kind = EXO_WIRE_WELCOME, .who = net->self};
    exo_peer_hold(peer);
    /* before the peer is announced: if this fails, the handler never knew it */
    exo_peer_say_locked(net, peer, &welcome);
    if (atomic_load(&peer->state) != EXO_PEER_LOST_)
        exo_peer_offer_ring_locked(net, peer);
    bool lost = atomic_load(&peer->state) == EXO_PEER_LOST_;
    if (!lost) {
        atomic_store(&peer->state, EXO_PEER_OPEN);
        peer->announced = true;
        exo_audit_add(net->opts.audit, &(exo_audit_record){.event = EXO_AUDIT_ADMITTED,
                                                           .who = peer->identity,
                                                           .subject = peer->name,
                                                           .detail = peer->endpoint});
        return peer;
    }
    exo_peer_drop(&peer);
    return NULL;
}

/* --- The connecting process ------------------------------------------------------------------- */

exo_status
exo_net_begin_connect_locked(exo_net *net, const char *endpoint, const char *key, exo_peer **out,
                             exo_err *err)
{
    exo_socket *socket = NULL;
    exo_peer *peer = NULL;
    if (atomic_load(&net->closing))
        return exo_fail(err, EXO_CLOSED, "%s: this process connects to nobody any more", endpoint);
    bool tcp = strncmp(endpoint, "tcp://", strlen("tcp://")) == 0,
         keyed = exo_net_is_keyed(endpoint);
    if (keyed && (!key || !net->opts.keys))
        return exo_fail(err, EXO_INVAL,
                        "%s: it wants keys of processes of this host, too: its public key, and one "
                        "of this process's own",
                        endpoint);
    if (tcp && net->opts.keys && !key)
        return exo_fail(err, EXO_INVAL,
                        "%s: its key is not known, and this process, which has keys, talks to "
                        "nobody over tcp without",
                        endpoint);
    exo_status st = exo_net_add_socket_locked(net, ZMQ_DEALER, &socket, err);
    if (st == EXO_OK && key) {
        if (!net->opts.keys)
            st = exo_fail(err, EXO_INVAL,
                          "%s wants keys, which `exogym keygen` makes, and this process has none",
                          endpoint);
        else
            st = exo_curve_client(socket->zmq, net->opts.keys, key, err);
    }
    if (st == EXO_OK) {
        exo_socket_limit(socket, false);
        exo_socket_choose_family(socket, endpoint);
        socket->with_keys = key != NULL;
        socket->ipc = strncmp(endpoint, "ipc://", strlen("ipc://")) == 0;
        snprintf(socket->server_key, sizeof socket->server_key, "%s", key ? key : "");
    }
    if (st == EXO_OK && (tcp || keyed))
        st = exo_attempt_watch_locked(net, socket, err);
    if (st == EXO_OK && exo_zmq_connect(socket->zmq, endpoint) != 0)
        st = exo_fail(err, EXO_INVAL, "%s: %s", endpoint, zmq_strerror(zmq_errno()));
    if (st == EXO_OK && !(peer = exo_peer_new_locked(net, socket)))
        st = exo_fail(err, EXO_NOMEM, "no memory for a peer");
    if (st != EXO_OK) {
        if (socket)
            exo_net_remove_socket_locked(net, socket);
        return st;
    }
    socket->peer = peer;
    exo_door_path(endpoint, peer->door);
    *out = exo_peer_hold(peer);
    exo_envelope hello = {.kind = EXO_WIRE_HELLO, .who = net->self};
    exo_peer_say_locked(net, peer, &hello);
    return EXO_OK;
}

void
exo_net_welcomed_locked(exo_net *net, exo_peer *peer, const exo_wire_identity *who,
                        const zmq_msg_t *frame)
{
    exo_err err = {0};
    if (atomic_load(&peer->state) != EXO_PEER_GREETING || peer->route_size)
        return;
    if (identify_locked(net, peer, who, frame, &err)) {
        atomic_store(&peer->state, EXO_PEER_OPEN);
        peer->announced = true;
        pthread_cond_broadcast(&net->changed);
    } else {
        peer->refused = err.code == EXO_INVAL; /* no other attempt will do better */
        exo_peer_lose_locked(net, peer,
                             err.code == EXO_PEER_LOST ? "its process has ended" : err.text);
    }
}

void
exo_net_refused_locked(exo_peer *peer)
{
    if (atomic_load(&peer->state) == EXO_PEER_GREETING)
        peer->refused = true;
}

/* The error of an attempt that ended without a peer: it was given up, or the peer was lost, perhaps
 * after its Welcome. */
static exo_status
fail_connect_locked(exo_net *net, exo_peer *peer, const char *endpoint, const char *key, bool there,
                    exo_err *err)
{
    if (atomic_load(&peer->state) == EXO_PEER_LOST_) {
        exo_status st = peer->refused                ? EXO_UNSUPPORTED
                        : atomic_load(&net->closing) ? EXO_CLOSED
                                                     : EXO_PEER_LOST;
        return exo_fail(err, st, "%s: %s", endpoint, peer->cause);
    }
    const char *guess =
        exo_attempt_is_silent(peer->socket)
            ? ": a connection was made, by which nothing is said: it "
              "hangs, or is no process of exogym"
        : key ? ", or does not accept this node's key, or a firewall is between"
        : exo_attempt_is_unheard(peer->socket) && strncmp(endpoint, "tcp://", strlen("tcp://")) == 0
            ? ": nothing there takes or refuses a connection: the host is down, "
              "or a firewall is between"
            : "";
    char few[EXO_INTAKE_HINT];
    exo_intake_hint(endpoint, few);
    exo_peer_lose_locked(net, peer, "it does not answer");
    return there ? exo_fail(err, EXO_TIMEOUT, "%s does not answer%s%s", endpoint, guess, few)
                 : exo_fail(err, EXO_PEER_LOST, "%s: its process has ended", endpoint);
}

exo_status
exo_net_connect(exo_net *net, const char *endpoint, const char *key, exo_time deadline,
                exo_peer **out, exo_err *err)
{
    return exo_net_connect_while(net, endpoint, key, deadline, NULL, out, err);
}

exo_status
exo_net_connect_while(exo_net *net, const char *endpoint, const char *key, exo_time deadline,
                      bool (*is_there)(const char *endpoint), exo_peer **out, exo_err *err)
{
    bool there = true, tcp = strncmp(endpoint, "tcp://", strlen("tcp://")) == 0;
    exo_time look = is_there || tcp ? LOOK : EXO_SECOND;
    const char *refusal = NULL;
    exo_peer *peer = NULL;
    pthread_mutex_lock(&net->lock);
    exo_status st = exo_net_begin_connect_locked(net, endpoint, key, &peer, err);
    if (st != EXO_OK) {
        pthread_mutex_unlock(&net->lock);
        return st;
    }
    exo_net_kick(net);
    while (atomic_load(&peer->state) == EXO_PEER_GREETING && exo_now(exo_clock_real()) < deadline &&
           there && !refusal) {
        exo_time left = deadline - exo_now(exo_clock_real());
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        exo_time at =
            (exo_time)until.tv_sec * EXO_SECOND + until.tv_nsec + (left < look ? left : look);
        until = (struct timespec){.tv_sec = (time_t)(at / EXO_SECOND),
                                  .tv_nsec = (long)(at % EXO_SECOND)};
        pthread_cond_timedwait(&net->changed, &net->lock, &until);
        there = !is_there || atomic_load(&peer->state) != EXO_PEER_GREETING || is_there(endpoint);
        refusal = exo_attempt_hear_locked(peer->socket, key != NULL);
    }
    exo_attempt_end_locked(peer->socket);
    if (refusal && atomic_load(&peer->state) == EXO_PEER_GREETING) {
        exo_peer_lose_locked(net, peer, refusal);
        st = exo_fail(err, EXO_UNSUPPORTED, "%s: %s", endpoint, refusal);
    } else if (atomic_load(&peer->state) != EXO_PEER_OPEN) {
        st = fail_connect_locked(net, peer, endpoint, key, there, err);
    }
    pthread_mutex_unlock(&net->lock);
    if (st == EXO_OK)
        *out = peer;
    else
        exo_peer_drop(&peer);
    return st;
}
