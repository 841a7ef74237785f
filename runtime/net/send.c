/* Sending: envelopes for a peer gather in its writer and leave as one message, through its ring or
 * its socket. Callers of `_locked` functions hold net->lock.
 *
 * The writer, its frames and the counts of sent data are the peer's, guarded by net->lock. Peers
 * with something to send are in the net's list of dirty peers. Data for which the peer has no
 * window waits in a list of parcels, so that ZeroMQ holds at most one window of data for it; only
 * envelopes between nets pass the parcels. The payload of a sent frame belongs to the frame, and
 * one of ZeroMQ's threads releases it. Read next: peer_ring.c, then receive.c (the other end). */
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include <utlist.h>

#include <exogym/memory.h>

#include "net/net_impl.h"

enum {
    FLUSH_BYTES = 32768, /* gathered bytes that are sent at once */
    FLUSH_ENVELOPES = 1000,
    QUIET_US = 20 /* after a longer silence, an envelope is sent at once */
};

/* A large payload. It is sent in pieces that point into it. */
struct large {
    /* one of the parcel's until its last piece is sent, and one of each piece */
    atomic_size_t references;
    exo_payload payload;
};

/* A message that waits because the peer has not read earlier data. Its large payload is sent before
 * it. */
struct exo_parcel {
    exo_wire_writer writer;
    zmq_msg_t *frames;
    size_t num_frames;
    struct large *large; /* NULL: there is none, or all of it was sent */
    size_t at;           /* bytes of it that were sent */
    /* Bytes of replies' payloads in the parcel. A large payload counts in full until the parcel is
     * sent. */
    uint64_t replies;
    exo_parcel *next;
};

/* Bytes that were sent or wait here, and were not read. */
static uint64_t
unread(const exo_peer *peer)
{
    return peer->sent_bytes - peer->read_bytes + peer->parcel_bytes;
}

static bool
has_window(const exo_peer *peer)
{
    return peer->sent_bytes - peer->read_bytes < EXO_LIMIT_WINDOW;
}

/* Whether earlier data waits, or there is no window, so that new data must wait, too. */
static bool
must_wait(const exo_peer *peer)
{
    return peer->first_parcel || !has_window(peer);
}

/* Bytes and envelopes each have a bound, because a small envelope takes more memory than its
 * bytes. */
static bool
has_more_than(const exo_peer *peer, uint64_t bytes, uint64_t envelopes)
{
    return unread(peer) >= bytes || peer->parcel_envelopes + peer->writer.count >= envelopes;
}

static bool
is_full(const exo_net *net, const exo_peer *peer)
{
    return peer->choked || has_more_than(peer, net->opts.unread_limit, EXO_LIMIT_WAITING);
}

/* Whether the payload of one more reply would exceed the limit together with those that wait. The
 * limit applies only once more than a window of replies waits, so a single reply may be larger. A
 * payload that is no longer than the text of a refusal is always allowed. */
static bool
has_too_many_replies(const exo_net *net, const exo_peer *peer, size_t size)
{
    uint64_t waiting = peer->parcel_replies + (must_wait(peer) ? peer->gathered_replies : 0);
    return size > EXO_ERR_TEXT && waiting > EXO_LIMIT_WINDOW &&
           waiting + size > net->opts.unread_limit;
}

void
exo_peer_judge_window_locked(exo_net *net, exo_peer *peer)
{
    atomic_store(&peer->full, is_full(net, peer));
}

bool
exo_peer_is_stuck_locked(exo_net *net, exo_peer *peer, exo_time now)
{
    return peer->process_fd < 0 && is_full(net, peer) &&
           now - peer->read_at > net->opts.peer_timeout;
}

/* Puts a message into the peer's ring. False: there is no ring, or no room in it. */
static bool
put_locked(exo_peer *peer, const exo_wire_writer *message)
{
    if (!peer->out || !exo_ring_put(peer->out, message->data, message->size))
        return false;
    if (exo_ring_wakes(peer->out))
        exo_bell_ring(peer->bell);
    return true;
}

/* Sends a message through the peer's socket. False: it cannot be sent. */
static bool
post_locked(exo_peer *peer, const exo_wire_writer *message, zmq_msg_t *frames, size_t *num_frames)
{
    void *zmq = peer->socket->zmq;
    size_t count = *num_frames;
    bool sent =
        !peer->route_size || exo_socket_send_bytes(zmq, peer->route, peer->route_size, ZMQ_SNDMORE);
    sent =
        sent && exo_socket_send_bytes(zmq, message->data, message->size, count ? ZMQ_SNDMORE : 0);
    for (size_t i = 0; sent && i < count; i++)
        sent = exo_socket_send_frame(zmq, &frames[i], i + 1 < count ? ZMQ_SNDMORE : 0);
    *num_frames = sent ? 0 : count;
    return sent;
}

/* Loses a peer to which nothing can be sent. A ROUTER knows at once that the other end has gone. A
 * DEALER has no connection left if another service answered before the Hello was sent. */
static void
lose_unsent_locked(exo_net *net, exo_peer *peer)
{
    const char *refusal = NULL;
    if (atomic_load(&peer->state) == EXO_PEER_GREETING && !peer->route_size)
        refusal = exo_attempt_hear_locked(peer->socket, peer->socket->with_keys);
    peer->refused = peer->refused || refusal;
    exo_peer_lose_locked(net, peer, refusal ? refusal : "the connection is closed");
}

/* Sends a message and empties it. Messages that take different ways are ordered by their numbers.
 * False: the peer is lost, and the frames remain. */
static bool
transmit_locked(exo_net *net, exo_peer *peer, exo_wire_writer *message, zmq_msg_t *frames,
                size_t *num_frames, bool by_socket)
{
    exo_socket *shared = peer->route_size ? peer->socket : NULL; /* this socket outlives the peer */
    peer->spoke = exo_now(exo_clock_real());
    if (peer->sent_bytes == peer->read_bytes)
        peer->read_at = peer->spoke;
    exo_wire_finish(message, peer->sent++);
    peer->sent_bytes += message->size + EXO_NET_MESSAGE_BYTES;
    for (size_t i = 0; i < *num_frames; i++)
        peer->sent_bytes += zmq_msg_size(&frames[i]);
    bool put = !by_socket && *num_frames == 0 && put_locked(peer, message);
    bool sent = put || post_locked(peer, message, frames, num_frames);
    exo_wire_clear(message);
    if (!sent)
        lose_unsent_locked(net, peer);
    if (!put && (sent || shared))
        exo_socket_look_locked(net, shared ? shared : peer->socket);
    return sent;
}

/* --- Parcels ---------------------------------------------------------------------------------- */

/* Drops one reference. Where it may be the last, the caller does not hold the lock: the release
 * function of a payload belongs to other code. */
static void
release_piece(void *data, void *hint)
{
    struct large *large = hint;
    (void)data;
    if (atomic_fetch_sub(&large->references, 1) > 1)
        return;
    exo_payload_release(&large->payload);
    exo_free(large);
}

static uint64_t
bytes_of(const exo_parcel *parcel)
{
    uint64_t bytes = parcel->writer.size + EXO_NET_MESSAGE_BYTES;
    for (size_t i = 0; i < parcel->num_frames; i++)
        bytes += zmq_msg_size(&parcel->frames[i]);
    return bytes;
}

static void
append_locked(exo_net *net, exo_peer *peer, exo_parcel *parcel)
{
    if (peer->last_parcel)
        peer->last_parcel->next = parcel;
    else
        peer->first_parcel = parcel;
    peer->last_parcel = parcel;
    peer->parcel_bytes += bytes_of(parcel) + (parcel->large ? parcel->large->payload.size : 0);
    peer->parcel_envelopes += parcel->writer.count;
    peer->parcel_replies += parcel->replies;
    exo_peer_judge_window_locked(net, peer);
}

void
exo_peer_drop_parcels(exo_peer *peer)
{
    for (exo_parcel *p = peer->first_parcel, *next; p; p = next) {
        next = p->next;
        for (size_t i = 0; i < p->num_frames; i++)
            zmq_msg_close(&p->frames[i]);
        if (p->large)
            release_piece(NULL, p->large);
        exo_wire_release(&p->writer);
        exo_free(p->frames);
        exo_free(p);
    }
    peer->first_parcel = peer->last_parcel = NULL;
    peer->parcel_bytes = peer->parcel_envelopes = peer->parcel_replies = 0;
}

/* Sends the next piece of a parcel's large payload. False: the peer is lost. */
static bool
send_piece_locked(exo_net *net, exo_peer *peer, exo_parcel *parcel)
{
    struct large *large = parcel->large;
    exo_wire_writer message = {0};
    zmq_msg_t frame;
    size_t left = large->payload.size - parcel->at,
           size = left < EXO_LIMIT_PIECE ? left : EXO_LIMIT_PIECE, one = 1;
    uint8_t *from = (uint8_t *)large->payload.data + parcel->at;
    exo_envelope piece = {
        .kind = EXO_WIRE_PIECE, .size = large->payload.size, .payload = {.place = EXO_WIRE_FRAMED}};
    if (exo_wire_add(&message, &piece, NULL) != EXO_OK ||
        zmq_msg_init_data(&frame, from, size, release_piece, large) != 0) {
        exo_wire_release(&message);
        exo_peer_lose_locked(net, peer, "there is no memory to speak to it");
        return false;
    }
    if (size < left)
        atomic_fetch_add(&large->references, 1);
    else
        parcel->large = NULL; /* the last piece takes over the parcel's reference */
    parcel->at += size;
    peer->parcel_bytes -= size;
    bool sent = transmit_locked(net, peer, &message, &frame, &one, true);
    exo_wire_release(&message);
    if (sent)
        return true;
    atomic_fetch_add(&large->references, 1);
    zmq_msg_close(&frame); /* drops its reference, which is not the last */
    if (parcel->large)
        atomic_fetch_sub(&large->references, 1); /* not the last: the parcel has one */
    parcel->large = large;
    return false;
}

/* --- Sending ---------------------------------------------------------------------------------- */

/* False: the peer has too many unread envelopes, and is lost. Bytes need no such check: calls and
 * replies are refused before. */
static bool
check_unread_locked(exo_net *net, exo_peer *peer)
{
    if (peer->parcel_envelopes + peer->writer.count < EXO_LIMIT_WAITING_REPLIES)
        return true;
    exo_peer_lose_locked(net, peer, "it does not read what is sent to it");
    return false;
}

/* Whether the gathered envelopes are enough for a message. */
static bool
is_message(const exo_peer *peer)
{
    return peer->writer.size > FLUSH_BYTES || peer->num_frames > 0 ||
           peer->writer.count > FLUSH_ENVELOPES;
}

/* Makes a parcel of the gathered envelopes, in as much memory as they need. */
static void
set_aside_locked(exo_net *net, exo_peer *peer)
{
    exo_parcel *parcel = exo_calloc(1, sizeof *parcel);
    if (!parcel) {
        exo_peer_lose_locked(net, peer, "there is no memory to speak to it");
        return;
    }
    *parcel = (exo_parcel){.writer = peer->writer,
                           .frames = peer->frames,
                           .num_frames = peer->num_frames,
                           .replies = peer->gathered_replies};
    uint8_t *smaller = exo_realloc(parcel->writer.data, parcel->writer.size, 1);
    if (smaller) {
        parcel->writer.data = smaller;
        parcel->writer.cap = parcel->writer.size;
    }
    peer->writer = (exo_wire_writer){0};
    peer->frames = NULL;
    peer->num_frames = peer->cap_frames = 0;
    peer->gathered_replies = 0;
    append_locked(net, peer, parcel);
}

/* Sends the gathered envelopes as one message. If they must wait, they gather on until there are
 * enough for a parcel. */
static void
flush_peer_locked(exo_net *net, exo_peer *peer)
{
    if (peer->dirty)
        LL_DELETE2(net->first_dirty, peer, next_dirty);
    peer->dirty = false;
    if (peer->writer.count == 0 || !check_unread_locked(net, peer))
        return;
    if (must_wait(peer)) {
        if (is_message(peer))
            set_aside_locked(net, peer);
    } else if (transmit_locked(net, peer, &peer->writer, peer->frames, &peer->num_frames, false)) {
        peer->gathered_replies = 0;
        exo_peer_judge_window_locked(net, peer);
    }
}

void
exo_peer_pump_locked(exo_net *net, exo_peer *peer)
{
    for (exo_parcel *p; (p = peer->first_parcel) && has_window(peer);) {
        if (p->large) {
            if (!send_piece_locked(net, peer, p))
                return;
            continue;
        }
        uint64_t bytes = bytes_of(p), envelopes = p->writer.count;
        if (!transmit_locked(net, peer, &p->writer, p->frames, &p->num_frames, false))
            return;
        peer->parcel_bytes -= bytes;
        peer->parcel_envelopes -= envelopes;
        peer->parcel_replies -= p->replies;
        peer->first_parcel = p->next;
        if (!p->next)
            peer->last_parcel = NULL;
        exo_wire_release(&p->writer);
        exo_free(p->frames);
        exo_free(p);
    }
    flush_peer_locked(net, peer); /* the messages that gathered behind the parcels */
    exo_peer_judge_window_locked(net, peer);
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

/* Sends a payload in pieces, and then its envelope. */
static exo_status
send_large_locked(exo_net *net, exo_peer *peer, exo_envelope *envelope, exo_payload *payload,
                  exo_err *err)
{
    flush_peer_locked(net, peer); /* what was sent before goes first */
    if (peer->writer.count > 0)
        set_aside_locked(net, peer);
    if (atomic_load(&peer->state) != EXO_PEER_OPEN || !check_unread_locked(net, peer))
        return exo_fail(err, EXO_PEER_LOST, "'%s' is lost: %s", peer->name, peer->cause);
    exo_status st = EXO_NOMEM;
    exo_parcel *parcel = exo_calloc(1, sizeof *parcel);
    struct large *large = exo_calloc(1, sizeof *large);
    envelope->payload = (exo_wire_payload){.place = EXO_WIRE_LANDED};
    if (parcel && large)
        st = exo_wire_add(&parcel->writer, envelope, err);
    if (st == EXO_OK && !payload->release)
        st = exo_payload_copy(&large->payload, payload->data, payload->size);
    if (st != EXO_OK) {
        if (parcel)
            exo_wire_release(&parcel->writer);
        exo_free(parcel);
        exo_free(large);
        return st == EXO_NOMEM ? exo_fail(err, st, "no memory to send %zu bytes", payload->size)
                               : st;
    }
    if (payload->release) {
        large->payload = *payload;
        *payload = (exo_payload){0};
    }
    large->references = 1;
    parcel->large = large;
    parcel->replies = envelope->kind == EXO_WIRE_REPLY ? large->payload.size : 0;
    append_locked(net, peer, parcel);
    exo_peer_pump_locked(net, peer);
    return EXO_OK;
}

/* Runs on one of ZeroMQ's threads, when the frame was sent. */
static void
release_sent(void *data, void *hint)
{
    exo_payload *payload = hint;
    (void)data;
    exo_payload_release(payload);
    exo_free(payload);
}

/* Moves a large payload into a frame. It is copied only if it has no release function. */
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
        if (!own ||
            zmq_msg_init_data(frame, payload->data, payload->size, release_sent, own) != 0) {
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
        envelope->payload = framed ? (exo_wire_payload){.place = EXO_WIRE_FRAMED}
                                   : (exo_wire_payload){.place = EXO_WIRE_BYTES,
                                                        .data = payload->data,
                                                        .size = payload->size};
    }
    exo_wire_writer before = peer->writer;
    size_t size = payload ? payload->size : 0;
    exo_status st = exo_wire_add(&peer->writer, envelope, err);
    if (st == EXO_OK && framed)
        st = add_frame_locked(peer, payload, err);
    if (st != EXO_OK) { /* remove the envelope whose frame is missing */
        peer->writer.size = before.size;
        peer->writer.count = before.count;
    } else if (envelope->kind == EXO_WIRE_REPLY) {
        peer->gathered_replies += size;
    }
    return st;
}

/* Sends at once on a quiet connection; otherwise lets the envelopes gather, and the driver or the
 * next waiting thread sends them. */
static void
send_soon_locked(exo_net *net, exo_peer *peer)
{
    if (is_message(peer) ||
        (!peer->dirty && exo_now(exo_clock_real()) - peer->spoke > QUIET_US * EXO_US)) {
        flush_peer_locked(net, peer);
    } else if (!peer->dirty) {
        peer->dirty = true;
        LL_PREPEND2(net->first_dirty, peer, next_dirty);
        exo_net_kick(net);
    }
}

/* Refuses a reply that is too large: its caller gets one without the payload. Until the peer has
 * read something, it counts as full. */
static exo_status
refuse_reply_locked(exo_net *net, exo_peer *peer, size_t size, exo_err *err)
{
    peer->choked = true;
    exo_peer_judge_window_locked(net, peer);
    return exo_fail(err, EXO_FULL,
                    "the caller has not read %" PRIu64
                    " bytes of replies, of %zu at most, and one of %zu bytes would come "
                    "behind them: ask for fewer at a time (docs/security.md)",
                    peer->parcel_replies + peer->gathered_replies, net->opts.unread_limit, size);
}

exo_status
exo_net_send(exo_net *net, exo_peer *peer, exo_envelope *envelope, exo_payload *payload,
             exo_err *err)
{
    exo_status st;
    pthread_mutex_lock(&net->lock);
    if (atomic_load(&peer->state) != EXO_PEER_OPEN)
        st = exo_fail(err, EXO_PEER_LOST, "'%s' is lost: %s", peer->name, peer->cause);
    else if (envelope->kind == EXO_WIRE_CALL && atomic_load(&peer->full))
        st = exo_fail(err, EXO_FULL,
                      "'%s' has not read %" PRIu64 " bytes that were sent to it, and %" PRIu64
                      " calls and replies wait to be sent",
                      peer->name, unread(peer), peer->parcel_envelopes);
    else if (payload && payload->size > EXO_LIMIT_PAYLOAD)
        st = exo_fail(err, EXO_INVAL,
                      "a payload of %zu bytes is longer than %d: put it into an object",
                      payload->size, EXO_LIMIT_PAYLOAD);
    else if (envelope->kind == EXO_WIRE_REPLY && payload &&
             has_too_many_replies(net, peer, payload->size))
        st = refuse_reply_locked(net, peer, payload->size, err);
    else if (payload && payload->size > EXO_LIMIT_PIECE)
        st = send_large_locked(net, peer, envelope, payload, err);
    else if ((st = add_locked(peer, envelope, payload, err)) == EXO_OK)
        send_soon_locked(net, peer);
    pthread_mutex_unlock(&net->lock);
    if (payload) {
        exo_payload_release(payload);
        *payload = (exo_payload){0};
    }
    return st;
}

/* Sends an envelope before all that waits; it must not depend on that. */
static void
say_now_locked(exo_net *net, exo_peer *peer, const exo_envelope *envelope)
{
    exo_wire_writer message = {0};
    size_t none = 0;
    if (exo_wire_add(&message, envelope, NULL) == EXO_OK)
        transmit_locked(net, peer, &message, NULL, &none, true);
    else
        exo_peer_lose_locked(net, peer, "there is no memory to speak to it");
    exo_wire_release(&message);
}

void
exo_peer_say_locked(exo_net *net, exo_peer *peer, exo_envelope *envelope)
{
    if (must_wait(peer))
        say_now_locked(net, peer, envelope);
    else if (exo_wire_add(&peer->writer, envelope, NULL) == EXO_OK)
        flush_peer_locked(net, peer);
    else
        exo_peer_lose_locked(net, peer, "there is no memory to speak to it");
}

void
exo_peer_say_beat_locked(exo_net *net, exo_peer *peer)
{
    exo_envelope beat = {
        .kind = EXO_WIRE_BEAT, .read = peer->received_bytes, .watches = exo_peer_is_watched(peer)};
    flush_peer_locked(net, peer);
    if (atomic_load(&peer->state) == EXO_PEER_LOST_)
        return;
    peer->told_bytes = peer->received_bytes;
    peer->told_watch = beat.watches;
    /* By the socket, which tells this end or the other when the connection is gone. A ring does
     * not. */
    say_now_locked(net, peer, &beat);
}
