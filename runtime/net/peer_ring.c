/* The two rings that peers of one host share (docs/decisions/0009-rings-on-one-host.md): the offer,
 * the handover, and the order of reading. Callers of all functions hold net->lock.
 *
 *     listener                                     connecting process
 *     Ring {token}            ---- socket ---->    makes both rings and a bell
 *     opens them              <---- door -----     token, memory, one end of the bell
 *     may write               ----- bell ---->     may write
 *
 * A peer owns this process's ends: `in`, `out` and the bell. They are closed when it is lost.
 * `promised` is an `out` that the other process has not yet confirmed. Read next: ring.h (the
 * memory), door.h (the handover), then put_locked in send.c and take_from_ring_locked in
 * receive.c. */
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exogym/log.h>

#include "net/door.h"
#include "net/net_impl.h"

/* How long a message by the socket may come after its successor in the ring: it may be large, or
 * its sender stopped for a while. */
#define GAP (60 * EXO_SECOND)

enum {
    VISITS = 16 /* visits that are answered at a time; more wait */
};

/* --- The listener ----------------------------------------------------------------------------- */

/* Each pair costs memory and descriptors. */
static bool
may_offer_locked(const exo_net *net)
{
    size_t count = 0;
    for (const exo_peer *p = net->peers; p; p = p->next)
        count += p->in || p->token != 0;
    return count < EXO_LIMIT_RINGS;
}

void
exo_peer_offer_ring_locked(exo_net *net, exo_peer *peer)
{
    if (peer->socket->door < 0 || peer->process_fd < 0 || !may_offer_locked(net))
        return;
    if (getrandom(&peer->token, sizeof peer->token, 0) != (ssize_t)sizeof peer->token ||
        peer->token == 0) {
        peer->token = 0;
        return;
    }
    exo_peer_say_locked(net, peer, &(exo_envelope){.kind = EXO_WIRE_RING, .token = peer->token});
}

static bool
is_bell(int fd)
{
    int domain = 0, type = 0;
    socklen_t size = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

/* Watches the bell, which then belongs to the peer. */
static bool
hang_bell_locked(exo_net *net, exo_peer *peer, int bell)
{
    peer->bell_source = (exo_source){.kind = EXO_SOURCE_BELL, .owner = peer};
    if (!exo_net_watch_locked(net, bell, &peer->bell_source))
        return false;
    peer->bell = bell;
    return true;
}

static void
let_in_locked(exo_net *net, exo_peer *peer, exo_door_visit *visit)
{
    exo_err err = {0};
    exo_status st =
        is_bell(visit->files[1]) ? EXO_OK : exo_fail(&err, EXO_INVAL, "it handed over no bell");
    peer->token = 0; /* a token is valid once */
    if (st == EXO_OK)
        st = exo_ring_pair_open(&peer->in, &peer->out, visit->files[0], &err);
    if (st == EXO_OK && !hang_bell_locked(net, peer, visit->files[1])) {
        exo_ring_free(&peer->in);
        exo_ring_free(&peer->out);
        st = exo_fail(&err, EXO_FULL, "its bell cannot be watched");
    }
    if (st != EXO_OK) {
        EXO_LOG(DEBUG, NET, "peer=%s %s", peer->name, err.text);
        return;
    }
    visit->files[1] = -1;
    exo_bell_ring(peer->bell);
}

void
exo_net_answer_door_locked(exo_net *net, exo_socket *socket)
{
    exo_door_visit visit;
    for (int i = 0; i < VISITS && exo_door_answer(socket->door, &visit); i++) {
        exo_peer *peer = visit.files[0] >= 0 ? net->peers : NULL;
        while (peer && !(peer->token != 0 && peer->token == visit.token && peer->pid == visit.pid &&
                         peer->socket == socket && peer->route_size))
            peer = peer->next;
        if (peer)
            let_in_locked(net, peer, &visit);
        exo_door_visit_release(&visit);
    }
}

/* --- The connecting process ------------------------------------------------------------------- */

void
exo_peer_accept_ring_locked(exo_net *net, exo_peer *peer, const exo_envelope *offer)
{
    if (peer->route_size || !peer->door[0] || peer->process_fd < 0 || peer->in)
        return;
    peer->token = offer->token;
    exo_peer_knock_locked(net, peer);
}

void
exo_peer_knock_locked(exo_net *net, exo_peer *peer)
{
    int file = -1, ends[2] = {-1, -1};
    exo_err err = {0};
    if (peer->route_size || peer->token == 0 || peer->in)
        return;
    exo_status st = exo_ring_pair_new(&peer->in, &peer->promised, &file, &err);
    if (st == EXO_OK && (!exo_bell_new(ends) || !hang_bell_locked(net, peer, ends[0])))
        st = exo_fail(&err, EXO_IO, "no bell can be made");
    if (st == EXO_OK)
        st = exo_door_knock(peer->door, peer->token, (int[EXO_DOOR_FILES]){file, ends[1]}, &err);
    else if (ends[0] >= 0 && peer->bell < 0)
        close(ends[0]);
    if (file >= 0)
        close(file);
    if (ends[1] >= 0)
        close(ends[1]);
    if (st != EXO_OK) {
        EXO_LOG(DEBUG, NET, "peer=%s %s", peer->name, err.text);
        exo_peer_close_rings_locked(net, peer);
    }
    if (st != EXO_FULL) /* on FULL, the next tick tries again */
        peer->token = 0;
}

/* --- Both ends -------------------------------------------------------------------------------- */

void
exo_peer_hear_bell_locked(exo_net *net, exo_peer *peer)
{
    if (peer->promised && exo_bell_heard(peer->bell) == peer->pid) {
        peer->out = peer->promised;
        peer->promised = NULL;
    }
    bool closed = !exo_bell_quiet(peer->bell);
    if (closed && peer->promised)
        exo_peer_close_rings_locked(net, peer); /* the other process did not take them */
    /* the peer's end follows, and is noticed by other means */
    else if (closed)
        exo_net_unwatch_locked(net, peer->bell);
}

void
exo_peer_close_rings_locked(exo_net *net, exo_peer *peer)
{
    exo_ring_free(&peer->in);
    exo_ring_free(&peer->out);
    exo_ring_free(&peer->promised);
    if (peer->bell >= 0) {
        exo_net_unwatch_locked(net, peer->bell);
        close(peer->bell);
    }
    peer->bell = -1;
}

bool
exo_peer_is_due_locked(exo_peer *peer)
{
    uint8_t header[EXO_WIRE_HEADER];
    size_t size = peer->in ? exo_ring_next(peer->in) : 0;
    /* a message that receive.c will refuse */
    if (size < sizeof header)
        return size > 0 || (peer->in && exo_ring_is_broken(peer->in));
    exo_ring_peek(peer->in, header, sizeof header);
    return exo_wire_number(header) == peer->received;
}

bool
exo_net_has_rung_locked(exo_net *net)
{
    for (exo_peer *p = net->peers; p; p = p->next)
        if (p->first_kept || exo_peer_is_due_locked(p))
            return true;
    return false;
}

bool
exo_peer_has_gap_locked(exo_peer *peer, exo_time now)
{
    bool waits = peer->in && exo_ring_next(peer->in) > 0 && !exo_peer_is_due_locked(peer);
    if (!waits)
        peer->gap_since = 0;
    else if (peer->gap_since == 0)
        peer->gap_since = now;
    return waits && now - peer->gap_since > GAP;
}

void
exo_net_sleep_locked(exo_net *net)
{
    for (exo_peer *p = net->peers; p; p = p->next)
        if (p->in)
            exo_ring_sleep(p->in);
}
