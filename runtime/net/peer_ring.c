/* The two rings that peers of one host share (docs/decisions/0009-rings-on-one-host.md): offered, opened, and read in the order of
 * sending. Everything here wants net->lock.
 *
 * A peer owns both ends that are ours: `in`, which we made, and `out` with its bell, which we opened of the other process. They are
 * closed when it is lost. Read next: ring.h (the memory), then put_locked in send.c and take_from_ring_locked in receive.c. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/log.h>

#include "net_impl.h"

#define GAP                                                                                                            \
    (60 *                                                                                                              \
     EXO_SECOND) /* that a message by the socket may come after one in the ring: it may be large, or its sender stopped */

void
exo_peer_offer_ring_locked(exo_net *net, exo_peer *peer)
{
    exo_err err = {0};
    if (peer->in || peer->process_fd < 0)
        return;
    if (exo_ring_new(&peer->in, &err) != EXO_OK) {
        EXO_LOG(DEBUG, NET, "peer=%s %s", peer->name, err.text);
        return;
    }
    exo_envelope offer = {.kind = EXO_WIRE_RING,
                          .ring = {.memory = (uint32_t)exo_ring_fd(peer->in),
                                   .bell = (uint32_t)net->bell,
                                   .token = exo_ring_token(peer->in)}};
    exo_peer_say_locked(net, peer, &offer);
}

void
exo_peer_accept_ring_locked(exo_net *net, exo_peer *peer, const exo_envelope *offer)
{
    char path[64];
    struct stat info;
    exo_err err = {0};
    if (peer->out || peer->process_fd < 0)
        return;
    snprintf(path, sizeof path, "/proc/%u/fd/%u", peer->pid, offer->ring.bell);
    if (stat(path, &info) == 0 && S_ISFIFO(info.st_mode)) /* we read it, too: so it never breaks */
        peer->bell = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    exo_status st = peer->bell >= 0 ? EXO_OK : exo_fail(&err, EXO_PEER_LOST, "%s is no pipe to be opened", path);
    if (st == EXO_OK)
        st = exo_ring_open(&peer->out, peer->pid, (int)offer->ring.memory, offer->ring.token, &err);
    if (st != EXO_OK) {
        EXO_LOG(DEBUG, NET, "peer=%s %s", peer->name, err.text);
        if (peer->bell >= 0)
            close(peer->bell);
        peer->bell = -1;
    }
    exo_peer_offer_ring_locked(net, peer);
}

void
exo_peer_close_rings_locked(exo_peer *peer)
{
    exo_ring_free(&peer->in);
    exo_ring_free(&peer->out);
    if (peer->bell >= 0)
        close(peer->bell);
    peer->bell = -1;
}

bool
exo_peer_is_due_locked(exo_peer *peer)
{
    uint8_t header[EXO_WIRE_HEADER];
    size_t size = peer->in ? exo_ring_next(peer->in) : 0;
    if (size < sizeof header)
        return size > 0 || (peer->in && exo_ring_is_broken(peer->in)); /* to be refused */
    exo_ring_peek(peer->in, header, sizeof header);
    return exo_wire_number(header) == peer->received;
}

bool
exo_net_has_rung_locked(exo_net *net)
{
    for (exo_peer *p = net->peers; p; p = p->next)
        if (exo_peer_is_due_locked(p))
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
