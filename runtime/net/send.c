/* Sending: what is said to a peer gathers in its writer, and goes out as one message, through its ring or its socket. Everything
 * `_locked` wants net->lock.
 *
 * The writer, its frames and the counts of what was sent are the peer's, guarded by net->lock; peers with something to send are in the
 * net's list of dirty ones. A payload that is sent belongs to its frame, which one of ZeroMQ's threads releases. Read next: peer_ring.c,
 * then receive.c (the other end). */
#include <inttypes.h>
#include <string.h>

#include <utlist.h>

#include <exogym/memory.h>

#include "net_impl.h"

enum {
    FLUSH_BYTES = 32768, /* that gather before they are sent at once */
    QUIET_US = 20        /* after so long a silence nothing is gathered */
};

static uint64_t
unread(const exo_peer *peer)
{
    return peer->sent_bytes - peer->read_bytes;
}

void
exo_peer_judge_window_locked(exo_net *net, exo_peer *peer)
{
    atomic_store(&peer->full, unread(peer) >= net->opts.unread_limit);
}

/* Puts what has gathered into the peer's ring. */
static bool
put_locked(exo_peer *peer)
{
    if (!peer->out || peer->num_frames > 0 || !exo_ring_put(peer->out, peer->writer.data, peer->writer.size))
        return false;
    if (exo_ring_wakes(peer->out))
        exo_bell_ring(peer->bell);
    return true;
}

/* Sends what has gathered through the peer's socket. */
static bool
post_locked(exo_peer *peer)
{
    void *zmq = peer->socket->zmq;
    bool sent = !peer->route_size || exo_socket_send_bytes(zmq, peer->route, peer->route_size, ZMQ_SNDMORE);
    sent = sent && exo_socket_send_bytes(zmq, peer->writer.data, peer->writer.size, peer->num_frames ? ZMQ_SNDMORE : 0);
    for (size_t i = 0; sent && i < peer->num_frames; i++)
        sent = exo_socket_send_frame(zmq, &peer->frames[i], i + 1 < peer->num_frames ? ZMQ_SNDMORE : 0);
    peer->num_frames = sent ? 0 : peer->num_frames;
    return sent;
}

/* Sends what has gathered as one message. The numbers of messages keep the order of those that go different ways. */
static void
flush_peer_locked(exo_net *net, exo_peer *peer)
{
    if (peer->dirty)
        LL_DELETE2(net->first_dirty, peer, next_dirty);
    peer->dirty = false;
    if (peer->writer.count == 0)
        return;
    if (unread(peer) / 4 >= net->opts.unread_limit) {
        exo_peer_lose_locked(net, peer, "it does not read what is sent to it");
        return;
    }
    exo_wire_finish(&peer->writer, peer->sent++);
    peer->sent_bytes += peer->writer.size + EXO_NET_MESSAGE_BYTES;
    for (size_t i = 0; i < peer->num_frames; i++)
        peer->sent_bytes += zmq_msg_size(&peer->frames[i]);
    exo_socket *shared = peer->route_size ? peer->socket : NULL; /* there without the peer, too */
    bool put = !peer->by_socket && put_locked(peer), sent = put || post_locked(peer);
    peer->by_socket = false;
    exo_wire_clear(&peer->writer);
    peer->spoke = exo_now(exo_clock_real());
    if (!sent) {
        /* A ROUTER knows at once that the other end is gone. */
        exo_peer_lose_locked(net, peer, "the connection is closed");
        if (shared)
            exo_socket_look_locked(net, shared);
        return;
    }
    exo_peer_judge_window_locked(net, peer);
    if (!put)
        exo_socket_look_locked(net, peer->socket);
}

void
exo_net_flush_locked(exo_net *net)
{
    for (exo_peer *p; (p = net->first_dirty);)
        flush_peer_locked(net, p);
}

void
exo_net_flush(exo_net *net)
{
    pthread_mutex_lock(&net->lock);
    exo_net_flush_locked(net);
    pthread_mutex_unlock(&net->lock);
}

/* On one of ZeroMQ's threads, when the frame is out. */
static void
release_sent(void *data, void *hint)
{
    exo_payload *payload = hint;
    (void)data;
    exo_payload_release(payload);
    exo_free(payload);
}

/* Moves a large payload into a frame, without copying where it can be freed later. */
static exo_status
add_frame_locked(exo_peer *peer, exo_payload *payload, exo_err *err)
{
    if (peer->num_frames == peer->cap_frames) {
        size_t cap = peer->cap_frames ? 2 * peer->cap_frames : 4;
        zmq_msg_t *larger = exo_realloc(peer->frames, cap, sizeof *larger);
        if (!larger)
            return exo_fail(err, EXO_NOMEM, "no memory for a frame");
        peer->frames = larger;
        peer->cap_frames = cap;
    }
    zmq_msg_t *frame = &peer->frames[peer->num_frames];
    if (payload->release) {
        exo_payload *own = exo_calloc(1, sizeof *own);
        if (!own || zmq_msg_init_data(frame, payload->data, payload->size, release_sent, own) != 0) {
            exo_free(own);
            return exo_fail(err, EXO_NOMEM, "no memory for a frame");
        }
        *own = *payload;
        *payload = (exo_payload){0};
    } else {
        if (zmq_msg_init_size(frame, payload->size) != 0)
            return exo_fail(err, EXO_NOMEM, "no memory for a frame of %zu bytes", payload->size);
        memcpy(zmq_msg_data(frame), payload->data, payload->size);
    }
    peer->num_frames++;
    return EXO_OK;
}

static exo_status
add_locked(exo_peer *peer, exo_envelope *envelope, exo_payload *payload, exo_err *err)
{
    bool framed = false;
    if (payload && payload->size > 0) {
        framed = payload->size > EXO_WIRE_INLINE;
        envelope->payload =
            framed ? (exo_wire_payload){.place = EXO_WIRE_FRAMED}
                   : (exo_wire_payload){.place = EXO_WIRE_BYTES, .data = payload->data, .size = payload->size};
    }
    if (payload && payload->size > EXO_NET_MAX_MESSAGE)
        return exo_fail(err, EXO_INVAL, "a payload of %zu bytes is longer than %d: put it into an object",
                        payload->size, EXO_NET_MAX_MESSAGE);
    exo_wire_writer before = peer->writer;
    exo_status st = exo_wire_add(&peer->writer, envelope, err);
    if (st == EXO_OK && framed)
        st = add_frame_locked(peer, payload, err);
    if (st != EXO_OK) { /* the envelope whose frame is missing goes, too */
        peer->writer.size = before.size;
        peer->writer.count = before.count;
    }
    return st;
}

/* Sends at once on a quiet connection, else leaves it to gather: the driver, or whoever waits next, sends it. */
static void
send_soon_locked(exo_net *net, exo_peer *peer)
{
    bool full = peer->writer.size > FLUSH_BYTES || peer->num_frames > 0 || peer->writer.count > 1000;
    if (full || (!peer->dirty && exo_now(exo_clock_real()) - peer->spoke > QUIET_US * EXO_US)) {
        flush_peer_locked(net, peer);
    } else if (!peer->dirty) {
        peer->dirty = true;
        LL_PREPEND2(net->first_dirty, peer, next_dirty);
        exo_net_kick(net);
    }
}

exo_status
exo_net_send(exo_net *net, exo_peer *peer, exo_envelope *envelope, exo_payload *payload, exo_err *err)
{
    exo_status st;
    pthread_mutex_lock(&net->lock);
    if (atomic_load(&peer->state) != EXO_PEER_OPEN)
        st = exo_fail(err, EXO_PEER_LOST, "'%s' is lost: %s", peer->name, peer->cause);
    else if (envelope->kind == EXO_WIRE_CALL && atomic_load(&peer->full))
        st = exo_fail(err, EXO_FULL, "'%s' has not read %" PRIu64 " bytes that were sent to it", peer->name,
                      unread(peer));
    else
        st = add_locked(peer, envelope, payload, err);
    if (st == EXO_OK)
        send_soon_locked(net, peer);
    pthread_mutex_unlock(&net->lock);
    if (payload) {
        exo_payload_release(payload);
        *payload = (exo_payload){0};
    }
    return st;
}

void
exo_peer_say_locked(exo_net *net, exo_peer *peer, exo_envelope *envelope)
{
    if (exo_wire_add(&peer->writer, envelope, NULL) == EXO_OK)
        flush_peer_locked(net, peer);
    else
        exo_peer_lose_locked(net, peer, "there is no memory to speak to it");
}

void
exo_peer_say_beat_locked(exo_net *net, exo_peer *peer)
{
    exo_envelope beat = {.kind = EXO_WIRE_BEAT, .read = peer->received_bytes};
    peer->told_bytes = peer->received_bytes;
    peer->by_socket = true; /* which knows, at this end or at the other, when the connection is gone: a ring does not */
    exo_peer_say_locked(net, peer, &beat);
}
