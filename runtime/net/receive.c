/* Receiving: one message of a socket or ring at a time is taken under net->lock; then the driver
 * hands its envelopes over without the lock. Callers of `_locked` functions hold net->lock.
 *
 * Peers have turns: one message each, or the part of a message for which a turn has time. A message
 * from the socket may come before its turn, while its predecessors lie in the ring; then it is kept
 * at its peer. The rest of a long message is kept there, too.
 *
 * A message and the reader in which it is open (net->reader) belong to the driver, of which there
 * is one. Nothing that a peer sends is believed: this file and wire.c check the sender of a
 * message, its number, its envelopes and its frames. A peer that sends something impossible is
 * lost. Read next: handshake.c, for a connection's first message; peer_ring.c, for the order of
 * messages. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <utlist.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "net/net_impl.h"

#define PIECE EXO_MS /* how much of a long message is handed over in one turn */
/* Heard by strangers, and by a process that this one has lost and that has not noticed. */
#define NO_HELLO                                                                                   \
    "the connection does not begin with a Hello, or its peer is lost here: connect anew"

enum {
    READ_BYTES = 1 << 20, /* received bytes after which the sender is told */
    LOOK_EVERY = 16       /* envelopes between two looks at the clock */
};

/* A message with its frames. */
struct inbox {
    zmq_msg_t route;     /* of a ROUTER's message */
    size_t count, taken; /* number of frames; number of frames that were given away */
    /* Bytes of a message that came through a ring: it lies in net->rung, and its one frame is
     * empty. */
    size_t rung;
    bool routed, overlong;
    bool told;  /* the intake was told that the message has left ZeroMQ */
    bool begun; /* A part was handed over. The rest begins at `at` and has `left` envelopes. */
    size_t at;
    uint32_t left;
    zmq_msg_t frames[EXO_WIRE_MAX_FRAMES];
};

/* A message that is kept until its turn. */
struct exo_kept {
    exo_kept *next;
    struct inbox in; /* has memory for `count` frames only */
};

static void
inbox_release(struct inbox *in)
{
    if (in->routed)
        zmq_msg_close(&in->route);
    for (size_t i = 0; i < in->count; i++)
        zmq_msg_close(&in->frames[i]);
}

/* Counted as in Beat. */
static uint64_t
inbox_bytes(const struct inbox *in)
{
    uint64_t bytes = EXO_NET_MESSAGE_BYTES + in->rung;
    for (size_t i = 0; i < in->count; i++)
        bytes += zmq_msg_size(&in->frames[i]);
    return bytes;
}

/* Tells the intake how much the message took on its way. A frame's header and seal together take
 * far less than 64 bytes, so the count is at least as large as what the intake has counted. */
static void
tell_intake(struct inbox *in, const exo_peer *peer)
{
    if (peer && !in->told)
        exo_intake_took(peer->intake, inbox_bytes(in) + 64 * in->count);
    in->told = true;
}

/* Receives every frame of one message. Frames beyond the limit are discarded. */
static bool
receive_frames_locked(exo_socket *socket, struct inbox *in)
{
    int more = 1;
    in->count = in->taken = in->rung = 0;
    in->routed = in->overlong = in->told = in->begun = false;
    if (!socket->peer) {
        zmq_msg_init(&in->route);
        in->routed = true;
        if (!exo_socket_receive_frame(socket->zmq, &in->route))
            return false;
        more = zmq_msg_more(&in->route);
    }
    while (more) {
        zmq_msg_t over, *frame = in->count < EXO_WIRE_MAX_FRAMES ? &in->frames[in->count] : &over;
        zmq_msg_init(frame);
        if (!exo_socket_receive_frame(socket->zmq, frame))
            return false; /* only before the first frame: ZeroMQ delivers whole messages */
        more = zmq_msg_more(frame);
        if (frame == &over) {
            zmq_msg_close(&over);
            in->overlong = true;
        } else {
            in->count++;
        }
    }
    return true;
}

static void
release_frame(void *owner)
{
    zmq_msg_t *frame = owner;
    zmq_msg_close(frame);
    exo_free(frame);
}

/* Makes a payload of a received frame, which stays in ZeroMQ's memory. */
static exo_status
take_frame(struct inbox *in, exo_payload *out, exo_err *err)
{
    if (in->taken + 1 >= in->count)
        return exo_fail(err, EXO_INVAL, "an envelope names a frame that is not there");
    zmq_msg_t *frame = &in->frames[++in->taken], *own = exo_calloc(1, sizeof *own);
    if (!own)
        return exo_fail(err, EXO_NOMEM, "no memory for a frame");
    zmq_msg_init(own);
    zmq_msg_move(own, frame);
    *out = (exo_payload){.data = zmq_msg_data(own),
                         .size = zmq_msg_size(own),
                         .release = release_frame,
                         .owner = own};
    return EXO_OK;
}

/* Whether the envelope is one between nets. */
static bool
is_own(const exo_envelope *e)
{
    return e->kind != EXO_WIRE_CALL && e->kind != EXO_WIRE_REPLY && e->kind != EXO_WIRE_CANCEL &&
           e->kind != EXO_WIRE_PIECE;
}

/* Handles an envelope between nets. */
static void
handle_own_locked(exo_net *net, exo_peer *peer, const exo_envelope *e, const zmq_msg_t *frame)
{
    switch (e->kind) {
    case EXO_WIRE_WELCOME:
        if (!peer->intake && !peer->route_size)
            peer->intake = exo_intake_admit(zmq_msg_get(frame, ZMQ_SRCFD), false);
        exo_net_welcomed_locked(net, peer, &e->who, frame);
        break;
    case EXO_WIRE_REFUSED:
        exo_net_refused_locked(peer);
        exo_peer_lose_locked(net, peer,
                             e->text[0] ? e->text : "it refused us, and did not say why");
        break;
    case EXO_WIRE_GOODBYE:
        exo_peer_lose_locked(net, peer, e->text[0] ? e->text : "it said goodbye");
        break;
    case EXO_WIRE_BEAT:
        peer->watches = e->watches;
        if (e->read > peer->sent_bytes) {
            exo_peer_dismiss_locked(net, peer, "it has read more than was sent to it");
        } else if (e->read > peer->read_bytes) {
            peer->read_bytes = e->read;
            peer->choked = false;
            peer->read_at = exo_now(exo_clock_real());
            exo_peer_judge_window_locked(net, peer);
            exo_peer_pump_locked(net, peer);
        }
        break;
    case EXO_WIRE_RING:
        if (atomic_load(&peer->state) == EXO_PEER_OPEN)
            exo_peer_accept_ring_locked(net, peer, e);
        break;
    case EXO_WIRE_HELLO:
        break;
    case EXO_WIRE_CALL:
    case EXO_WIRE_REPLY:
    case EXO_WIRE_CANCEL:
    case EXO_WIRE_PIECE:
        break;
    }
}

/* Copies a piece of a large payload into place. The first piece allocates the whole; the kernel
 * provides the memory as it fills. */
static exo_status
land_piece(exo_peer *peer, struct inbox *in, uint64_t size, exo_err *err)
{
    if (in->taken + 1 >= in->count)
        return exo_fail(err, EXO_INVAL, "a piece without its frame");
    zmq_msg_t *frame = &in->frames[++in->taken];
    size_t more = zmq_msg_size(frame);
    if (!peer->landing) {
        if (size <= EXO_LIMIT_PIECE || size > EXO_LIMIT_PAYLOAD)
            return exo_fail(err, EXO_INVAL, "a payload of %" PRIu64 " bytes in pieces", size);
        peer->landing = exo_calloc(1, size);
        if (!peer->landing)
            return exo_fail(err, EXO_NOMEM, "no memory for a payload of %" PRIu64 " bytes", size);
        peer->landing_size = size;
        peer->landed = 0;
    }
    if (size != peer->landing_size || more == 0 || more > peer->landing_size - peer->landed)
        return exo_fail(err, EXO_INVAL, "a piece of %zu bytes that has no place", more);
    memcpy(peer->landing + peer->landed, zmq_msg_data(frame), more);
    peer->landed += more;
    return EXO_OK;
}

/* Gives the payload that has come in pieces to the envelope that follows them. */
static exo_status
take_landed(exo_peer *peer, exo_payload *out, exo_err *err)
{
    if (!peer->landing || peer->landed < peer->landing_size)
        return exo_fail(err, EXO_INVAL, "an envelope names a payload that did not come");
    *out = (exo_payload){.data = peer->landing, .size = peer->landing_size, .release = exo_free};
    peer->landing = NULL;
    return EXO_OK;
}

/* Handles one envelope of a peer. CLOSED: the peer is lost, and the rest is ignored. Any other
 * error ends the connection. */
static exo_status
deliver(exo_net *net, exo_peer *peer, struct inbox *in, exo_envelope *e, exo_err *err)
{
    exo_payload payload = {0};
    exo_status st = EXO_OK;
    bool own = is_own(e);
    if (own) {
        pthread_mutex_lock(&net->lock);
        if (atomic_load(&peer->state) != EXO_PEER_LOST_)
            handle_own_locked(net, peer, e, &in->frames[0]);
        pthread_mutex_unlock(&net->lock);
    }
    exo_peer_state state = atomic_load(&peer->state);
    if (state == EXO_PEER_LOST_)
        return EXO_CLOSED;
    if (own)
        return EXO_OK;
    if (state == EXO_PEER_GREETING)
        return exo_fail(err, EXO_INVAL, "it does not begin with a Welcome");
    if (e->kind == EXO_WIRE_PIECE)
        return land_piece(peer, in, e->size, err);
    if (e->payload.place == EXO_WIRE_LANDED)
        st = take_landed(peer, &payload, err);
    else if (e->payload.place == EXO_WIRE_FRAMED)
        st = take_frame(in, &payload, err);
    else if (e->payload.place == EXO_WIRE_BYTES)
        st = exo_payload_copy(&payload, e->payload.data, e->payload.size);
    if (st == EXO_OK)
        net->opts.handler->received(net->opts.context, peer, e, &payload);
    else if (!err->text[0])
        exo_fail(err, st, "no memory for a payload");
    return st;
}

/* --- Messages that wait for their turn -------------------------------------------------------- */

/* Moves the message, which is net->rung if it came through a ring, into a new one. NULL: no
 * memory. */
static exo_kept *
new_kept(const exo_net *net, struct inbox *in)
{
    exo_kept *k = exo_calloc(1, offsetof(exo_kept, in.frames) + in->count * sizeof in->frames[0]);
    if (k && in->rung > 0 && zmq_msg_init_size(&in->frames[0], in->rung) != 0) {
        zmq_msg_init(&in->frames[0]);
        exo_free(k);
        k = NULL;
    }
    if (!k)
        return NULL;
    if (in->rung > 0)
        memcpy(zmq_msg_data(&in->frames[0]), net->rung, in->rung);
    in->rung = 0;
    memcpy(&k->in, in, offsetof(struct inbox, frames));
    k->in.routed = false; /* the peer is known */
    for (size_t i = 0; i < in->count; i++) {
        zmq_msg_init(&k->in.frames[i]);
        zmq_msg_move(&k->in.frames[i], &in->frames[i]);
        zmq_msg_close(&in->frames[i]);
    }
    in->count = 0;
    return k;
}

/* Keeps a message that came before its turn, behind those that are kept. The peer may be lost by
 * it. */
static void
keep_locked(exo_net *net, exo_peer *peer, struct inbox *in)
{
    uint64_t bytes = inbox_bytes(in);
    exo_kept *k = peer->kept_bytes + bytes <= EXO_LIMIT_INBOUND_BYTES ? new_kept(net, in) : NULL;
    if (!k) {
        exo_peer_lose_locked(net, peer, "it has sent more than can wait for its turn");
        return;
    }
    *(peer->last_kept ? &peer->last_kept->next : &peer->first_kept) = k;
    peer->last_kept = k;
    peer->kept_bytes += bytes;
}

/* Keeps the rest of a long message, before those that are kept. False: it must be handed over
 * now. */
static bool
keep_rest(exo_net *net, exo_peer *peer, struct inbox *in)
{
    pthread_mutex_lock(&net->lock);
    uint64_t bytes = inbox_bytes(in);
    exo_kept *k = atomic_load(&peer->state) == EXO_PEER_LOST_ ? NULL : new_kept(net, in);
    if (k) {
        k->in.begun = true;
        k->in.at = net->reader.at;
        k->in.left = net->reader.left;
        k->next = peer->first_kept;
        peer->first_kept = k;
        peer->last_kept = peer->last_kept ? peer->last_kept : k;
        peer->kept_bytes += bytes;
    }
    pthread_mutex_unlock(&net->lock);
    return k != NULL;
}

/* Takes the first kept message, which was checked when it came. */
static void
take_kept_locked(exo_peer *peer, struct inbox *in)
{
    exo_kept *k = peer->first_kept;
    peer->first_kept = k->next;
    peer->last_kept = k->next ? peer->last_kept : NULL;
    memcpy(in, &k->in, offsetof(struct inbox, frames) + k->in.count * sizeof in->frames[0]);
    peer->kept_bytes -= inbox_bytes(in);
    exo_free(k);
}

void
exo_peer_drop_kept_locked(exo_peer *peer)
{
    for (exo_kept *k; (k = peer->first_kept);) {
        peer->first_kept = k->next;
        inbox_release(&k->in);
        exo_free(k);
    }
    peer->last_kept = NULL;
    peer->kept_bytes = 0;
}

/* --- Handing over ----------------------------------------------------------------------------- */

static void
lose_for(exo_net *net, exo_peer *peer, exo_status st, const exo_err *err)
{
    char cause[EXO_ERR_TEXT];
    snprintf(cause, sizeof cause, "%s: %.300s",
             st == EXO_NOMEM ? "what it sent cannot be taken" : "it sent what cannot be read",
             err->text);
    exo_net_make_plain(cause);
    EXO_LOG(WARN, NET, "peer=%s %s", peer->name, cause);
    if (st != EXO_NOMEM) {
        pthread_mutex_lock(&net->lock);
        exo_net_refused_locked(peer);
        pthread_mutex_unlock(&net->lock);
    }
    exo_peer_lose(net, peer, cause);
}

/* Hands over the envelopes of a message; gives their number. */
static size_t
deliver_all(exo_net *net, exo_peer *peer, struct inbox *in)
{
    exo_envelope e;
    exo_err err = {0};
    exo_status st;
    size_t count = 0;
    exo_time began = INT64_MAX; /* not read yet: most messages are short */
    while ((st = exo_wire_next(&net->reader, &e, &err)) == EXO_OK) {
        count++;
        if ((st = deliver(net, peer, in, &e, &err)) != EXO_OK)
            break;
        if (count % LOOK_EVERY != 0 || net->reader.left == 0)
            continue;
        exo_time now = exo_now(exo_clock_real());
        began = began == INT64_MAX ? now : began;
        if (now - began >= PIECE && keep_rest(net, peer, in))
            return count;
    }
    if (st == EXO_NOT_FOUND && in->taken + 1 != in->count)
        st = exo_fail(&err, EXO_INVAL, "%zu frames that no envelope names",
                      in->count - in->taken - 1);
    if (st != EXO_NOT_FOUND && st != EXO_CLOSED)
        lose_for(net, peer, st, &err);
    return count;
}

/* Counts the message that is open in the reader. False: its number is not the one that is due, and
 * the peer is lost. */
static bool
count_message_locked(exo_net *net, exo_peer *peer, const struct inbox *in)
{
    if (net->reader.number != peer->received && atomic_load(&peer->state) != EXO_PEER_GREETING) {
        char cause[128];
        snprintf(cause, sizeof cause, "messages were lost: number %u came where %u was due",
                 net->reader.number, peer->received);
        exo_peer_dismiss_locked(net, peer, cause);
        return false;
    }
    peer->received++;
    peer->received_bytes += inbox_bytes(in);
    peer->heard = net->turn_began;
    return true;
}

/* The sender of a message. */
struct sender {
    exo_peer *peer; /* held; NULL: the message is ignored */
    bool first;     /* the message was a Hello */
    bool early;     /* its predecessors lie in the peer's ring; it is not counted yet */
};

/* A peer's connection has broken, and ZeroMQ has given its routing id to another process's
 * connection, because that process asked for the id. The peer is lost, and the new connection has
 * not said Hello. */
static struct sender
forget_route_locked(exo_net *net, exo_socket *socket, exo_peer *peer, const struct inbox *in)
{
    exo_peer_lose_locked(net, peer, "its connection has become another one's");
    exo_net_refuse_locked(net, socket, &in->route, NO_HELLO);
    return (struct sender){0};
}

/* Finds the sender of a message. The first message of a route on a ROUTER must be a Hello. */
static struct sender
find_sender_locked(exo_net *net, exo_socket *socket, struct inbox *in)
{
    exo_err err = {0};
    exo_envelope e = {0};
    exo_peer *peer = socket->peer;
    if (in->routed)
        HASH_FIND(by_route, socket->peers, zmq_msg_data(&in->route), zmq_msg_size(&in->route),
                  peer);
    tell_intake(in, peer);
    if (peer && in->count > 0 && !exo_proof_holds_locked(socket, peer, &in->frames[0]))
        return forget_route_locked(net, socket, peer, in);
    exo_status st =
        in->count == 0 || in->overlong
            ? exo_fail(&err, EXO_INVAL, "a message of %s frames", in->count ? "too many" : "no")
            : exo_wire_open(&net->reader, zmq_msg_data(&in->frames[0]),
                            zmq_msg_size(&in->frames[0]), &err);
    if (st == EXO_OK && (zmq_msg_size(&in->frames[0]) > EXO_LIMIT_FIRST_FRAME ||
                         net->reader.left > EXO_LIMIT_ENVELOPES))
        st = exo_fail(&err, EXO_INVAL,
                      "a message of %zu bytes and %u envelopes is longer than any may be",
                      zmq_msg_size(&in->frames[0]), net->reader.left);
    if (st != EXO_OK && peer) {
        exo_net_refused_locked(peer);
        exo_peer_dismiss_locked(net, peer, err.text);
        return (struct sender){0};
    }
    if (st != EXO_OK) {
        exo_net_refuse_locked(net, socket, &in->route, err.text);
        return (struct sender){0};
    }
    if (peer && (peer->first_kept ||
                 (net->reader.number != peer->received && exo_peer_is_due_locked(peer))))
        return (struct sender){.peer = exo_peer_hold(peer), .early = true};
    if (peer)
        return (struct sender){.peer = count_message_locked(net, peer, in) ? exo_peer_hold(peer)
                                                                           : NULL};
    st = exo_wire_next(&net->reader, &e, &err);
    if (st == EXO_OK && e.kind == EXO_WIRE_HELLO) {
        /* before the Welcome is sent: answers to it are a peer's */
        exo_intake_ticket ticket = exo_intake_admit(zmq_msg_get(&in->frames[0], ZMQ_SRCFD), true);
        peer = exo_net_greet_locked(net, socket, &in->route, &in->frames[0], &e.who,
                                    net->reader.number);
        if (peer) {
            peer->received_bytes = inbox_bytes(in);
            peer->intake = ticket;
        } else {
            exo_intake_dismiss(ticket);
        }
        return (struct sender){.peer = peer, .first = true};
    }
    /* A Goodbye or a Refused from an unknown route needs no answer. */
    if (st != EXO_OK || (e.kind != EXO_WIRE_GOODBYE && e.kind != EXO_WIRE_REFUSED))
        exo_net_refuse_locked(net, socket, &in->route,
                              st == EXO_OK || st == EXO_NOT_FOUND ? NO_HELLO : err.text);
    return (struct sender){0};
}

/* Receives a message of any socket that is ready. False: there is none. The socket goes to the end
 * of the list, so that none starves. */
static bool
receive_locked(exo_net *net, struct inbox *in, struct sender *sender)
{
    exo_socket *s, *next;
    DL_FOREACH_SAFE (net->sockets, s, next) {
        if (!s->ready)
            continue;
        if (receive_frames_locked(s, in)) {
            DL_DELETE(net->sockets, s);
            DL_APPEND(net->sockets, s);
            *sender = find_sender_locked(net, s, in);
            return true;
        }
        s->ready = false;
        inbox_release(in);
    }
    return false;
}

/* Takes the message that is due from the peer's ring. The peer can write that memory at any time,
 * so only a copy is used. */
static struct sender
take_from_ring_locked(exo_net *net, exo_peer *peer, struct inbox *in)
{
    exo_err err = {0};
    size_t size = exo_ring_next(peer->in);
    zmq_msg_init(&in->frames[0]);
    in->count = 1;
    in->taken = 0;
    in->rung = size;
    in->routed = in->overlong = in->told = in->begun = false;
    exo_status st =
        size == 0 ? exo_fail(&err, EXO_INVAL, "the memory that it shares with us makes no sense")
                  : EXO_OK;
    if (st == EXO_OK) {
        exo_ring_take(peer->in, net->rung);
        st = exo_wire_open(&net->reader, net->rung, size, &err);
    }
    if (st != EXO_OK) {
        exo_peer_lose_locked(net, peer, err.text);
        return (struct sender){0};
    }
    return (struct sender){.peer =
                               count_message_locked(net, peer, in) ? exo_peer_hold(peer) : NULL};
}

/* Takes the first kept message, or the rest of one that has begun. */
static struct sender
go_on_locked(exo_net *net, exo_peer *peer, struct inbox *in)
{
    take_kept_locked(peer, in);
    exo_wire_open(&net->reader, zmq_msg_data(&in->frames[0]), zmq_msg_size(&in->frames[0]), NULL);
    if (in->begun) {
        net->reader.at = in->at;
        net->reader.left = in->left;
        return (struct sender){.peer = exo_peer_hold(peer)};
    }
    return (struct sender){.peer =
                               count_message_locked(net, peer, in) ? exo_peer_hold(peer) : NULL};
}

/* Takes a message that is due in any ring, or was kept. The peer goes to the end of the list. */
static bool
receive_waiting_locked(exo_net *net, struct inbox *in, struct sender *sender)
{
    exo_peer *p, *next;
    DL_FOREACH_SAFE (net->peers, p, next) {
        bool begun = p->first_kept && p->first_kept->in.begun,
             rung = !begun && exo_peer_is_due_locked(p);
        if (!rung && !p->first_kept)
            continue;
        DL_DELETE(net->peers, p);
        DL_APPEND(net->peers, p);
        *sender = rung ? take_from_ring_locked(net, p, in) : go_on_locked(net, p, in);
        return true;
    }
    return false;
}

/* Tells the sender how much was read, for which it may be waiting. */
static void
acknowledge_locked(exo_net *net, exo_peer *peer)
{
    if (atomic_load(&peer->state) == EXO_PEER_OPEN &&
        peer->received_bytes - peer->told_bytes >= READ_BYTES)
        exo_peer_say_beat_locked(net, peer);
}

/* Hands over the envelopes of a message; gives their number. */
static size_t
hand_over(exo_net *net, struct sender *sender, struct inbox *in)
{
    size_t count = 0;
    if (sender->peer && !sender->early) {
        if (sender->first && net->opts.handler->opened)
            net->opts.handler->opened(net->opts.context, sender->peer);
        count = deliver_all(net, sender->peer, in);
    }
    exo_peer_drop(&sender->peer);
    inbox_release(in);
    return count;
}

size_t
exo_net_receive(exo_net *net)
{
    struct inbox in;
    struct sender sender = {0};
    net->waiting_first = !net->waiting_first; /* neither source starves */
    pthread_mutex_lock(&net->lock);
    bool got = (net->waiting_first && receive_waiting_locked(net, &in, &sender)) ||
               receive_locked(net, &in, &sender) ||
               (!net->waiting_first && receive_waiting_locked(net, &in, &sender));
    if (got && sender.early)
        keep_locked(net, sender.peer, &in);
    else if (got && sender.peer) /* before anything replies: its caller may call again at once */
        acknowledge_locked(net, sender.peer);
    pthread_mutex_unlock(&net->lock);
    return got ? 1 + hand_over(net, &sender, &in) : 0;
}
