/* Connections: handshake, sending, receiving, loss. Everything `_locked` wants net->lock. Read net_impl.h first. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utlist.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "net_impl.h"

enum {
    FLUSH_BYTES = 32768,    /* that gather before they are sent at once        */
    QUIET_US = 20,          /* after so long a silence nothing is gathered     */
    MAX_MESSAGE = 1 << 30,  /* of one frame                                    */
    UNREAD_MESSAGES = 1000, /* that ZeroMQ keeps for us; more wait at the sender */
    READ_BYTES = 1 << 20,   /* after which the sender hears that they were read */
    MESSAGE_BYTES = 128,    /* that a message counts besides those of its frames */
    REFUSALS = 32,          /* that are said and logged at once, and then      */
    REFUSALS_A_TICK = 4,
    HANDSHAKE_MS = 5000,
    LINGER_MS = 100
};

#define BEAT EXO_SECOND
#define GAP                                                                                                            \
    (60 *                                                                                                              \
     EXO_SECOND) /* that a message by the socket may come after one in the ring: it may be large, or its sender stopped */
#define LOOK (20 * EXO_MS) /* how often it is asked whether the other end is there */

static exo_time
now_real(void)
{
    return exo_now(exo_clock_real());
}

/* --- Peers ------------------------------------------------------------------------------------------------------------------ */

exo_peer *
exo_peer_hold(exo_peer *peer)
{
    atomic_fetch_add(&peer->references, 1);
    return peer;
}

void
exo_peer_drop(exo_peer **peer)
{
    exo_peer *p = *peer;
    *peer = NULL;
    if (!p || atomic_fetch_sub(&p->references, 1) > 1)
        return;
    exo_free(p);
}

uint64_t
exo_peer_node(const exo_peer *peer)
{
    return peer->node;
}

const char *
exo_peer_name(const exo_peer *peer)
{
    return peer->name;
}

const char *
exo_peer_endpoint(const exo_peer *peer)
{
    return peer->endpoint;
}

bool
exo_peer_is_near(const exo_peer *peer)
{
    return peer->near;
}

bool
exo_peer_is_full(const exo_peer *peer)
{
    return atomic_load(&peer->full);
}

bool
exo_peer_is_open(const exo_peer *peer)
{
    return atomic_load(&peer->state) == EXO_PEER_OPEN;
}

uint32_t
exo_peer_pid(const exo_peer *peer)
{
    return peer->pid;
}

void *
exo_peer_user(const exo_peer *peer)
{
    return atomic_load(&peer->user);
}

void
exo_peer_set_user(exo_peer *peer, void *user)
{
    atomic_store(&peer->user, user);
}

static exo_peer *
new_peer_locked(exo_net *net, exo_socket *socket)
{
    exo_peer *p = exo_calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->references = 1; /* the net's, until it is lost */
    p->socket = socket;
    p->process_fd = p->bell = -1;
    p->process = (exo_source){.kind = EXO_SOURCE_PROCESS, .owner = p};
    p->heard = p->spoke = now_real();
    DL_APPEND(net->peers, p);
    return p;
}

/* What a peer says is shown to people: it begins no line of its own. */
static void
make_plain(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 127)
            *text = '?';
}

/* Who the peer says it is. A process of this host is watched from now on. */
static bool
identify_locked(exo_net *net, exo_peer *peer, const exo_wire_identity *who)
{
    peer->node = who->node;
    peer->pid = who->pid;
    peer->start = who->start;
    snprintf(peer->name, sizeof peer->name, "%s", who->name);
    snprintf(peer->endpoint, sizeof peer->endpoint, "%s", who->endpoint);
    make_plain(peer->name);
    make_plain(peer->endpoint);
    peer->near = strcmp(who->boot, net->boot) == 0;
    if (!peer->near)
        return true;
    peer->process_fd = exo_process_watch(who->pid, who->start);
    if (peer->process_fd < 0) {
        /* Ended already, or not ours to watch: then silence decides, as with another host. */
        peer->near = exo_process_start(who->pid) == who->start;
        return peer->near;
    }
    if (!exo_net_watch_locked(net, peer->process_fd, &peer->process)) {
        close(peer->process_fd);
        peer->process_fd = -1;
    }
    return true;
}

/* Without lock: what a payload's owner does to release it is not ours. */
static void
drop_frames(exo_peer *peer)
{
    for (size_t i = 0; i < peer->num_frames; i++)
        zmq_msg_close(&peer->frames[i]);
    peer->num_frames = 0;
    exo_free(peer->frames);
    peer->frames = NULL;
}

static void
close_rings(exo_peer *peer)
{
    exo_ring_free(&peer->in);
    exo_ring_free(&peer->out);
    if (peer->bell >= 0)
        close(peer->bell);
    peer->bell = -1;
}

void
exo_peer_lose_locked(exo_net *net, exo_peer *peer, const char *cause)
{
    if (atomic_load(&peer->state) == EXO_PEER_LOST_)
        return;
    snprintf(peer->cause, sizeof peer->cause, "%s", cause);
    make_plain(peer->cause);
    atomic_store(&peer->state, EXO_PEER_LOST_);
    DL_DELETE(net->peers, peer);
    if (peer->dirty)
        LL_DELETE2(net->first_dirty, peer, next_dirty);
    peer->dirty = false;
    exo_wire_release(&peer->writer);
    if (peer->process_fd >= 0) {
        exo_net_unwatch_locked(net, peer->process_fd);
        close(peer->process_fd);
    }
    peer->process_fd = -1;
    close_rings(peer);
    if (peer->route_size)
        HASH_DELETE(by_route, peer->socket->peers, peer);
    else
        exo_net_remove_socket_locked(net, peer->socket);
    peer->socket = NULL;
    pthread_cond_broadcast(&net->changed);
    if (peer->announced) {
        LL_APPEND2(net->first_lost, peer, next_lost); /* with the net's reference */
        exo_net_kick(net);
    } else {
        exo_peer_drop(&peer); /* nothing was sent to it but a Hello: it has no frames */
    }
}

void
exo_net_report_lost(exo_net *net)
{
    for (;;) {
        pthread_mutex_lock(&net->lock);
        exo_peer *peer = net->first_lost;
        if (peer)
            LL_DELETE2(net->first_lost, peer, next_lost);
        pthread_mutex_unlock(&net->lock);
        if (!peer)
            return;
        drop_frames(peer);
        net->opts.handler->lost(net->opts.context, peer, peer->cause);
        exo_peer_drop(&peer);
    }
}

/* --- Sockets ---------------------------------------------------------------------------------------------------------------- */

static void
set_int(void *socket, int option, int value)
{
    zmq_setsockopt(socket, option, &value, sizeof value);
}

exo_status
exo_net_add_socket_locked(exo_net *net, int type, exo_socket **out, exo_err *err)
{
    int fd = -1;
    size_t size = sizeof fd;
    exo_socket *s = exo_calloc(1, sizeof *s);
    if (!s || !(s->zmq = zmq_socket(net->context, type))) {
        exo_free(s);
        return exo_fail(err, EXO_FAILED, "no socket can be made: %s", zmq_strerror(zmq_errno()));
    }
    s->source = (exo_source){.kind = EXO_SOURCE_SOCKET, .owner = s};
    set_int(s->zmq, ZMQ_LINGER, LINGER_MS); /* for a goodbye */
    set_int(s->zmq, ZMQ_SNDHWM, 0);         /* unread_limit is the bound */
    set_int(s->zmq, ZMQ_RCVHWM, UNREAD_MESSAGES);
    set_int(s->zmq, ZMQ_BACKLOG, 1024);
    set_int(s->zmq, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS);
    set_int(s->zmq, ZMQ_TCP_KEEPALIVE, 1);
    int64_t longest = MAX_MESSAGE;
    zmq_setsockopt(s->zmq, ZMQ_MAXMSGSIZE, &longest, sizeof longest);
    if (type == ZMQ_ROUTER)
        set_int(s->zmq, ZMQ_ROUTER_MANDATORY, 1);
    zmq_getsockopt(s->zmq, ZMQ_FD, &fd, &size);
    if (!exo_net_watch_locked(net, fd, &s->source)) {
        exo_status st = exo_fail(err, EXO_FAILED, "the socket cannot be watched: %s", strerror(errno));
        zmq_close(s->zmq);
        exo_free(s);
        return st;
    }
    DL_APPEND(net->sockets, s);
    *out = s;
    return EXO_OK;
}

void
exo_net_remove_socket_locked(exo_net *net, exo_socket *socket)
{
    int fd = -1;
    size_t size = sizeof fd;
    zmq_getsockopt(socket->zmq, ZMQ_FD, &fd, &size);
    exo_net_unwatch_locked(net, fd);
    if (net->zap)
        exo_zap_unwatch(net->zap, socket->zmq);
    zmq_close(socket->zmq);
    DL_DELETE(net->sockets, socket);
    exo_free(socket);
}

/* Sending on a socket may swallow the sign that something has come in: ZeroMQ's descriptor tells of changes, not of states. */
static void
look_for_input_locked(exo_net *net, exo_socket *socket)
{
    int events = 0;
    size_t size = sizeof events;
    if (socket->ready)
        return;
    while (zmq_getsockopt(socket->zmq, ZMQ_EVENTS, &events, &size) != 0 && zmq_errno() == EINTR)
        continue;
    if (events & ZMQ_POLLIN) {
        socket->ready = true;
        exo_net_kick(net);
    }
}

/* --- Sending ---------------------------------------------------------------------------------------------------------------- */

/* A signal may interrupt ZeroMQ before it has begun. */
static bool
send_bytes(void *zmq, const void *data, size_t size, int flags)
{
    int sent;
    while ((sent = zmq_send(zmq, data, size, flags | ZMQ_DONTWAIT)) < 0 && zmq_errno() == EINTR)
        continue;
    return sent >= 0;
}

static bool
send_frame(void *zmq, zmq_msg_t *frame, int flags)
{
    int sent;
    while ((sent = zmq_msg_send(frame, zmq, flags | ZMQ_DONTWAIT)) < 0 && zmq_errno() == EINTR)
        continue;
    return sent >= 0;
}

static bool
receive_frame(void *zmq, zmq_msg_t *frame)
{
    int got;
    while ((got = zmq_msg_recv(frame, zmq, ZMQ_DONTWAIT)) < 0 && zmq_errno() == EINTR)
        continue;
    return got >= 0;
}

static uint64_t
unread(const exo_peer *peer)
{
    return peer->sent_bytes - peer->read_bytes;
}

static void
judge_window_locked(exo_net *net, exo_peer *peer)
{
    atomic_store(&peer->full, unread(peer) >= net->opts.unread_limit);
}

/* Puts what has gathered into the peer's ring. */
static bool
put_locked(exo_peer *peer)
{
    if (!peer->out || peer->num_frames > 0 || !exo_ring_put(peer->out, peer->writer.data, peer->writer.size))
        return false;
    if (exo_ring_wakes(peer->out)) {
        ssize_t rung = write(peer->bell, "", 1);
        (void)rung; /* a pipe that is full has rung */
    }
    return true;
}

/* Sends what has gathered through the peer's socket. */
static bool
post_locked(exo_peer *peer)
{
    void *zmq = peer->socket->zmq;
    bool sent = !peer->route_size || send_bytes(zmq, peer->route, peer->route_size, ZMQ_SNDMORE);
    sent = sent && send_bytes(zmq, peer->writer.data, peer->writer.size, peer->num_frames ? ZMQ_SNDMORE : 0);
    for (size_t i = 0; sent && i < peer->num_frames; i++)
        sent = send_frame(zmq, &peer->frames[i], i + 1 < peer->num_frames ? ZMQ_SNDMORE : 0);
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
    peer->sent_bytes += peer->writer.size + MESSAGE_BYTES;
    for (size_t i = 0; i < peer->num_frames; i++)
        peer->sent_bytes += zmq_msg_size(&peer->frames[i]);
    exo_socket *shared = peer->route_size ? peer->socket : NULL; /* there without the peer, too */
    bool put = put_locked(peer), sent = put || post_locked(peer);
    exo_wire_clear(&peer->writer);
    peer->spoke = now_real();
    if (!sent) {
        /* A ROUTER knows at once that the other end is gone. */
        exo_peer_lose_locked(net, peer, "the connection is closed");
        if (shared)
            look_for_input_locked(net, shared);
        return;
    }
    judge_window_locked(net, peer);
    if (!put)
        look_for_input_locked(net, peer->socket);
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
    if (payload && payload->size > MAX_MESSAGE)
        return exo_fail(err, EXO_INVAL, "a payload of %zu bytes is longer than %d: put it into an object",
                        payload->size, MAX_MESSAGE);
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
    if (full || (!peer->dirty && now_real() - peer->spoke > QUIET_US * EXO_US)) {
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

static void
say_locked(exo_net *net, exo_peer *peer, exo_envelope *envelope)
{
    if (exo_wire_add(&peer->writer, envelope, NULL) == EXO_OK)
        flush_peer_locked(net, peer);
    else
        exo_peer_lose_locked(net, peer, "there is no memory to speak to it");
}

static void
say_beat_locked(exo_net *net, exo_peer *peer)
{
    exo_envelope beat = {.kind = EXO_WIRE_BEAT, .read = peer->received_bytes};
    peer->told_bytes = peer->received_bytes;
    say_locked(net, peer, &beat);
}

/* --- Rings -------------------------------------------------------------------------------------------------------------------- */

/* Makes a ring for what the peer says, and tells it. It is no loss if there is none. */
static void
offer_ring_locked(exo_net *net, exo_peer *peer)
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
    say_locked(net, peer, &offer);
}

/* Opens the ring that a process of this host offers, and offers one, too. */
static void
accept_ring_locked(exo_net *net, exo_peer *peer, const exo_envelope *offer)
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
    offer_ring_locked(net, peer);
}

/* Whether the next message of the peer lies in its ring. One with another number waits for those before it, which come by the socket. */
static bool
is_due(exo_peer *peer)
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
        if (is_due(p))
            return true;
    return false;
}

/* Whether a message by the socket is missing for so long that it will not come any more. */
static bool
has_gap(exo_peer *peer, exo_time now)
{
    bool waits = peer->in && exo_ring_next(peer->in) > 0 && !is_due(peer);
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

/* --- Handshake -------------------------------------------------------------------------------------------------------------- */

static uint64_t
hash_route(const exo_socket *socket, const zmq_msg_t *route)
{
    const uint8_t *id = zmq_msg_data((zmq_msg_t *)(uintptr_t)route);
    uint64_t h = UINT64_C(14695981039346656037) ^ (uintptr_t)socket;
    for (size_t i = 0; i < zmq_msg_size(route); i++)
        h = (h ^ id[i]) * UINT64_C(1099511628211);
    return h ? h : 1;
}

/* Whoever is refused may go on talking, and need not read: it is told once, and all of them not too often. */
static bool
may_refuse_locked(exo_net *net, const exo_socket *socket, const zmq_msg_t *route)
{
    uint64_t hash = hash_route(socket, route);
    for (size_t i = 0; i < EXO_NET_REFUSED; i++)
        if (net->refused[i] == hash)
            return false;
    net->refused[net->next_refused++ % EXO_NET_REFUSED] = hash;
    if (net->refusals >= REFUSALS) {
        net->unsaid++;
        return false;
    }
    net->refusals++;
    return true;
}

/* Tells a route that is no peer why it is not listened to. */
static void
refuse_locked(exo_net *net, exo_socket *socket, const zmq_msg_t *route, const char *why)
{
    exo_wire_writer writer = {0};
    char reason[EXO_ERR_TEXT];
    if (!may_refuse_locked(net, socket, route))
        return;
    snprintf(reason, sizeof reason, "%s", why);
    make_plain(reason);
    exo_envelope refused = {.kind = EXO_WIRE_REFUSED, .version = EXO_WIRE_VERSION, .text = reason};
    if (exo_wire_add(&writer, &refused, NULL) == EXO_OK) {
        exo_wire_finish(&writer, 0);
        size_t size = zmq_msg_size(route);
        const void *id = zmq_msg_data((zmq_msg_t *)(uintptr_t)route);
        if (send_bytes(socket->zmq, id, size, ZMQ_SNDMORE))
            send_bytes(socket->zmq, writer.data, writer.size, 0);
        look_for_input_locked(net, socket);
    }
    exo_wire_release(&writer);
    EXO_LOG(WARN, NET, "refused a peer: %s left_out=%" PRIu64, reason, net->unsaid);
    net->unsaid = 0;
}

/* A Hello on a ROUTER: from now on the route is a peer, which is held for the caller. */
static exo_peer *
greet_locked(exo_net *net, exo_socket *socket, const zmq_msg_t *route, const exo_wire_identity *who, uint32_t number)
{
    char reason[EXO_ERR_TEXT];
    size_t size = zmq_msg_size(route);
    if (net->cluster[0] && who->cluster[0] && strcmp(net->cluster, who->cluster) != 0) {
        snprintf(reason, sizeof reason, "this is the cluster '%s', not '%s'", net->cluster, who->cluster);
        refuse_locked(net, socket, route, reason);
        return NULL;
    }
    if (size > EXO_NET_ROUTE) {
        snprintf(reason, sizeof reason, "a routing id of %zu bytes is longer than %d", size, EXO_NET_ROUTE);
        refuse_locked(net, socket, route, reason);
        return NULL;
    }
    exo_peer *peer = new_peer_locked(net, socket);
    if (!peer) {
        refuse_locked(net, socket, route, "no memory for another peer");
        return NULL;
    }
    memcpy(peer->route, zmq_msg_data((zmq_msg_t *)(uintptr_t)route), size);
    peer->route_size = size;
    peer->received = number + 1;
    HASH_ADD(by_route, socket->peers, route, size, peer);
    if (!identify_locked(net, peer, who)) {
        snprintf(reason, sizeof reason, "its process %u has ended, or is not what it says", peer->pid);
        exo_peer_lose_locked(net, peer, reason);
        refuse_locked(net, socket, route, reason);
        return NULL;
    }
    exo_envelope welcome = {.kind = EXO_WIRE_WELCOME, .who = net->self};
    exo_peer_hold(peer);
    say_locked(net, peer, &welcome); /* before it is announced: if this fails, nobody has heard of it */
    bool lost = atomic_load(&peer->state) == EXO_PEER_LOST_;
    if (!lost) {
        atomic_store(&peer->state, EXO_PEER_OPEN);
        peer->announced = true;
        return peer;
    }
    exo_peer_drop(&peer);
    return NULL;
}

exo_status
exo_net_begin_connect_locked(exo_net *net, const char *endpoint, const char *key, exo_peer **out, exo_err *err)
{
    exo_socket *socket = NULL;
    exo_peer *peer = NULL;
    if (atomic_load(&net->closing))
        return exo_fail(err, EXO_CLOSED, "%s: this process connects to nobody any more", endpoint);
    exo_status st = exo_net_add_socket_locked(net, ZMQ_DEALER, &socket, err);
    if (st == EXO_OK && key) {
        if (!net->opts.keys)
            st = exo_fail(err, EXO_INVAL, "%s wants keys, which `exogym keygen` makes, and this process has none",
                          endpoint);
        else
            st = exo_curve_client(socket->zmq, net->opts.keys, key, err);
    }
    if (st == EXO_OK && zmq_connect(socket->zmq, endpoint) != 0)
        st = exo_fail(err, EXO_INVAL, "%s: %s", endpoint, zmq_strerror(zmq_errno()));
    if (st == EXO_OK && !(peer = new_peer_locked(net, socket)))
        st = exo_fail(err, EXO_NOMEM, "no memory for a peer");
    if (st != EXO_OK) {
        if (socket)
            exo_net_remove_socket_locked(net, socket);
        return st;
    }
    socket->peer = peer;
    peer->ipc = strncmp(endpoint, "ipc://", strlen("ipc://")) == 0;
    *out = exo_peer_hold(peer);
    exo_envelope hello = {.kind = EXO_WIRE_HELLO, .who = net->self};
    say_locked(net, peer, &hello);
    return EXO_OK;
}

exo_status
exo_net_connect(exo_net *net, const char *endpoint, const char *key, exo_time deadline, exo_peer **out, exo_err *err)
{
    return exo_net_connect_while(net, endpoint, key, deadline, NULL, out, err);
}

exo_status
exo_net_connect_while(exo_net *net, const char *endpoint, const char *key, exo_time deadline,
                      bool (*is_there)(const char *endpoint), exo_peer **out, exo_err *err)
{
    bool there = true;
    exo_time look = is_there ? LOOK : EXO_SECOND;
    exo_peer *peer = NULL;
    pthread_mutex_lock(&net->lock);
    exo_status st = exo_net_begin_connect_locked(net, endpoint, key, &peer, err);
    if (st != EXO_OK) {
        pthread_mutex_unlock(&net->lock);
        return st;
    }
    exo_net_kick(net);
    while (atomic_load(&peer->state) == EXO_PEER_GREETING && now_real() < deadline && there) {
        exo_time left = deadline - now_real();
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        exo_time at = (exo_time)until.tv_sec * EXO_SECOND + until.tv_nsec + (left < look ? left : look);
        until = (struct timespec){.tv_sec = (time_t)(at / EXO_SECOND), .tv_nsec = (long)(at % EXO_SECOND)};
        pthread_cond_timedwait(&net->changed, &net->lock, &until);
        there = !is_there || atomic_load(&peer->state) != EXO_PEER_GREETING || is_there(endpoint);
    }
    if (atomic_load(&peer->state) == EXO_PEER_GREETING) {
        exo_peer_lose_locked(net, peer, "it does not answer");
        st = there ? exo_fail(err, EXO_TIMEOUT, "%s does not answer%s", endpoint,
                              key ? ", or does not accept this node's key" : "")
                   : exo_fail(err, EXO_PEER_LOST, "%s: its process has ended", endpoint);
    } else if (atomic_load(&peer->state) == EXO_PEER_LOST_) {
        st = exo_fail(err, EXO_UNSUPPORTED, "%s: %s", endpoint, peer->cause);
    }
    pthread_mutex_unlock(&net->lock);
    if (st == EXO_OK)
        *out = peer;
    else
        exo_peer_drop(&peer);
    return st;
}

void
exo_peer_lose(exo_net *net, exo_peer *peer, const char *cause)
{
    pthread_mutex_lock(&net->lock);
    if (atomic_load(&peer->state) == EXO_PEER_OPEN) {
        exo_envelope goodbye = {.kind = EXO_WIRE_GOODBYE, .text = cause};
        say_locked(net, peer, &goodbye);
    }
    exo_peer_lose_locked(net, peer, cause);
    pthread_mutex_unlock(&net->lock);
}

/* --- Receiving -------------------------------------------------------------------------------------------------------------- */

/* The frames of one message. */
struct inbox {
    zmq_msg_t route; /* of a ROUTER's */
    zmq_msg_t frames[EXO_WIRE_MAX_FRAMES];
    size_t count, taken; /* frames; those given away */
    bool routed, overlong;
};

static void
inbox_release(struct inbox *in)
{
    if (in->routed)
        zmq_msg_close(&in->route);
    for (size_t i = 0; i < in->count; i++)
        zmq_msg_close(&in->frames[i]);
}

/* As Beat counts. */
static uint64_t
inbox_bytes(const struct inbox *in)
{
    uint64_t bytes = MESSAGE_BYTES;
    for (size_t i = 0; i < in->count; i++)
        bytes += zmq_msg_size(&in->frames[i]);
    return bytes;
}

/* Receives every frame of one message; what is beyond the limit is thrown away. */
static bool
receive_frames_locked(exo_socket *socket, struct inbox *in)
{
    int more = 1;
    in->count = in->taken = 0;
    in->routed = in->overlong = false;
    if (!socket->peer) {
        zmq_msg_init(&in->route);
        in->routed = true;
        if (!receive_frame(socket->zmq, &in->route))
            return false;
        more = zmq_msg_more(&in->route);
    }
    while (more) {
        zmq_msg_t over, *frame = in->count < EXO_WIRE_MAX_FRAMES ? &in->frames[in->count] : &over;
        zmq_msg_init(frame);
        if (!receive_frame(socket->zmq, frame))
            return false; /* only before the first frame: messages come whole */
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

/* A received frame as a payload: it keeps ZeroMQ's memory. */
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
    *out = (exo_payload){.data = zmq_msg_data(own), .size = zmq_msg_size(own), .release = release_frame, .owner = own};
    return EXO_OK;
}

/* Deals with what is between nets; true if it was that. */
static bool
handle_own_locked(exo_net *net, exo_peer *peer, const exo_envelope *e)
{
    switch (e->kind) {
    case EXO_WIRE_WELCOME:
        if (atomic_load(&peer->state) == EXO_PEER_GREETING && !peer->route_size) {
            if (identify_locked(net, peer, &e->who)) {
                atomic_store(&peer->state, EXO_PEER_OPEN);
                peer->announced = true;
                pthread_cond_broadcast(&net->changed);
                if (peer->ipc)
                    offer_ring_locked(net, peer);
            } else {
                exo_peer_lose_locked(net, peer, "its process has ended");
            }
        }
        return true;
    case EXO_WIRE_REFUSED:
        exo_peer_lose_locked(net, peer, e->text[0] ? e->text : "it refused us, and did not say why");
        return true;
    case EXO_WIRE_GOODBYE:
        exo_peer_lose_locked(net, peer, e->text[0] ? e->text : "it said goodbye");
        return true;
    case EXO_WIRE_BEAT:
        if (e->read > peer->sent_bytes) {
            exo_peer_lose_locked(net, peer, "it has read more than was sent to it");
        } else if (e->read > peer->read_bytes) {
            peer->read_bytes = e->read;
            judge_window_locked(net, peer);
        }
        return true;
    case EXO_WIRE_RING:
        if (atomic_load(&peer->state) == EXO_PEER_OPEN)
            accept_ring_locked(net, peer, e);
        return true;
    case EXO_WIRE_HELLO:
        return true;
    case EXO_WIRE_CALL:
    case EXO_WIRE_REPLY:
    case EXO_WIRE_CANCEL:
        break;
    }
    return false;
}

/* One envelope of a peer. CLOSED: the rest is of no interest, since the peer is lost. Another error ends the connection. */
static exo_status
deliver(exo_net *net, exo_peer *peer, struct inbox *in, exo_envelope *e, exo_err *err)
{
    exo_payload payload = {0};
    exo_status st = EXO_OK;
    pthread_mutex_lock(&net->lock);
    exo_peer_state before = atomic_load(&peer->state);
    bool own = before != EXO_PEER_LOST_ && handle_own_locked(net, peer, e);
    exo_peer_state state = atomic_load(&peer->state);
    pthread_mutex_unlock(&net->lock);
    if (state == EXO_PEER_LOST_)
        return EXO_CLOSED;
    if (own)
        return EXO_OK;
    if (state == EXO_PEER_GREETING)
        return exo_fail(err, EXO_INVAL, "it does not begin with a Welcome");
    if (e->payload.place == EXO_WIRE_FRAMED)
        st = take_frame(in, &payload, err);
    else if (e->payload.place == EXO_WIRE_BYTES)
        st = exo_payload_copy(&payload, e->payload.data, e->payload.size);
    if (st == EXO_OK)
        net->opts.handler->received(net->opts.context, peer, e, &payload);
    else if (!err->text[0])
        exo_fail(err, st, "no memory for a payload");
    return st;
}

/* Gives the number of envelopes. */
static size_t
deliver_all(exo_net *net, exo_peer *peer, struct inbox *in)
{
    exo_envelope e;
    exo_err err = {0};
    exo_status st;
    size_t count = 0;
    while ((st = exo_wire_next(&net->reader, &e, &err)) == EXO_OK) {
        count++;
        if ((st = deliver(net, peer, in, &e, &err)) != EXO_OK)
            break;
    }
    if (st == EXO_NOT_FOUND && in->taken + 1 != in->count)
        st = exo_fail(&err, EXO_INVAL, "%zu frames that no envelope names", in->count - in->taken - 1);
    if (st == EXO_NOT_FOUND || st == EXO_CLOSED)
        return count;
    char cause[EXO_ERR_TEXT];
    snprintf(cause, sizeof cause, "%s: %.300s",
             st == EXO_NOMEM ? "what it sent cannot be taken" : "it sent what cannot be read", err.text);
    make_plain(cause);
    EXO_LOG(WARN, NET, "peer=%s %s", peer->name, cause);
    exo_peer_lose(net, peer, cause);
    return count;
}

/* Counts a message of the peer, which is open in the reader, if it is the one that is due. */
static bool
count_message_locked(exo_net *net, exo_peer *peer, const struct inbox *in)
{
    if (net->reader.number != peer->received && atomic_load(&peer->state) != EXO_PEER_GREETING) {
        char cause[128];
        snprintf(cause, sizeof cause, "messages were lost: number %u came where %u was due", net->reader.number,
                 peer->received);
        exo_peer_lose_locked(net, peer, cause);
        return false;
    }
    peer->received++;
    peer->received_bytes += inbox_bytes(in);
    peer->heard = now_real();
    return true;
}

/* Where a message comes from. */
struct sender {
    exo_peer *peer; /* held; NULL: it is of no interest */
    bool first;     /* a Hello was read */
    bool early;     /* those before it lie in the peer's ring; it is not counted yet */
};

/* Finds whose message it is; a first message on a ROUTER must be a Hello. */
static struct sender
find_sender_locked(exo_net *net, exo_socket *socket, struct inbox *in)
{
    exo_err err = {0};
    exo_envelope e = {0};
    exo_peer *peer = socket->peer;
    if (in->routed)
        HASH_FIND(by_route, socket->peers, zmq_msg_data(&in->route), zmq_msg_size(&in->route), peer);
    exo_status st = in->count == 0 || in->overlong
                        ? exo_fail(&err, EXO_INVAL, "a message of %s frames", in->count ? "too many" : "no")
                        : exo_wire_open(&net->reader, zmq_msg_data(&in->frames[0]), zmq_msg_size(&in->frames[0]), &err);
    if (st != EXO_OK && peer) {
        exo_peer_lose_locked(net, peer, err.text);
        return (struct sender){0};
    }
    if (st != EXO_OK) {
        refuse_locked(net, socket, &in->route, err.text);
        return (struct sender){0};
    }
    if (peer && net->reader.number != peer->received && is_due(peer))
        return (struct sender){.peer = exo_peer_hold(peer), .early = true};
    if (peer)
        return (struct sender){.peer = count_message_locked(net, peer, in) ? exo_peer_hold(peer) : NULL};
    st = exo_wire_next(&net->reader, &e, &err);
    if (st == EXO_OK && e.kind == EXO_WIRE_HELLO) {
        peer = greet_locked(net, socket, &in->route, &e.who, net->reader.number);
        if (peer)
            peer->received_bytes = inbox_bytes(in);
        return (struct sender){.peer = peer, .first = true};
    }
    /* Who goes anyway, or is only told that it is not known, needs no answer. */
    if (st != EXO_OK || (e.kind != EXO_WIRE_GOODBYE && e.kind != EXO_WIRE_REFUSED))
        refuse_locked(net, socket, &in->route,
                      st == EXO_OK || st == EXO_NOT_FOUND ? "the connection does not begin with a Hello" : err.text);
    return (struct sender){0};
}

/* A message of any socket that is ready; false: there is none. The socket goes behind the others, so that none starves. */
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

/* The message that lies in the peer's ring, which is due. The memory is the peer's to write: what is believed is a copy. */
static struct sender
take_from_ring_locked(exo_net *net, exo_peer *peer, struct inbox *in)
{
    exo_err err = {0};
    size_t size = exo_ring_next(peer->in);
    *in = (struct inbox){0};
    exo_status st = size == 0 ? exo_fail(&err, EXO_INVAL, "the memory that it shares with us makes no sense") : EXO_OK;
    if (st == EXO_OK && zmq_msg_init_size(&in->frames[0], size) != 0)
        st = exo_fail(&err, EXO_NOMEM, "no memory for a message of %zu bytes", size);
    if (st == EXO_OK) {
        in->count = 1;
        exo_ring_take(peer->in, zmq_msg_data(&in->frames[0]));
        st = exo_wire_open(&net->reader, zmq_msg_data(&in->frames[0]), size, &err);
    }
    if (st != EXO_OK) {
        exo_peer_lose_locked(net, peer, err.text);
        return (struct sender){0};
    }
    return (struct sender){.peer = count_message_locked(net, peer, in) ? exo_peer_hold(peer) : NULL};
}

/* A message of any ring. The peer goes behind the others. */
static bool
receive_rung_locked(exo_net *net, struct inbox *in, struct sender *sender)
{
    exo_peer *p, *next;
    DL_FOREACH_SAFE (net->peers, p, next) {
        if (!is_due(p))
            continue;
        DL_DELETE(net->peers, p);
        DL_APPEND(net->peers, p);
        *sender = take_from_ring_locked(net, p, in);
        return true;
    }
    return false;
}

/* A sender that waits hears that there is room. */
static void
acknowledge(exo_net *net, exo_peer *peer)
{
    pthread_mutex_lock(&net->lock);
    if (atomic_load(&peer->state) == EXO_PEER_OPEN && peer->received_bytes - peer->told_bytes >= READ_BYTES)
        say_beat_locked(net, peer);
    pthread_mutex_unlock(&net->lock);
}

/* Hands over what is in a message. Gives the number of envelopes. */
static size_t
hand_over(exo_net *net, struct sender *sender, struct inbox *in)
{
    size_t count = 0;
    if (sender->peer) {
        if (sender->first && net->opts.handler->opened)
            net->opts.handler->opened(net->opts.context, sender->peer);
        acknowledge(net, sender->peer); /* before anything replies: who waits for a reply may then call again */
        count = deliver_all(net, sender->peer, in);
        exo_peer_drop(&sender->peer);
    }
    inbox_release(in);
    return count;
}

/* A message came by the socket, and the one that is due lies in the ring: hands that over, and looks at the first one again. */
static size_t
catch_up(exo_net *net, struct sender *sender, struct inbox *in)
{
    struct inbox before;
    struct sender due = {0};
    exo_peer *peer = sender->peer;
    size_t count = 0;
    *sender = (struct sender){0};
    pthread_mutex_lock(&net->lock);
    bool rung = atomic_load(&peer->state) != EXO_PEER_LOST_ && is_due(peer);
    if (rung)
        due = take_from_ring_locked(net, peer, &before);
    pthread_mutex_unlock(&net->lock);
    if (rung)
        count = hand_over(net, &due, &before);
    pthread_mutex_lock(&net->lock);
    if (atomic_load(&peer->state) != EXO_PEER_LOST_)
        *sender = find_sender_locked(net, peer->socket, in);
    pthread_mutex_unlock(&net->lock);
    exo_peer_drop(&peer);
    return count;
}

size_t
exo_net_receive(exo_net *net)
{
    struct inbox in;
    struct sender sender = {0};
    size_t count = 1;
    net->rings_first = !net->rings_first; /* neither way starves */
    pthread_mutex_lock(&net->lock);
    bool got = (net->rings_first && receive_rung_locked(net, &in, &sender)) || receive_locked(net, &in, &sender) ||
               (!net->rings_first && receive_rung_locked(net, &in, &sender));
    pthread_mutex_unlock(&net->lock);
    if (!got)
        return 0;
    while (sender.early)
        count += catch_up(net, &sender, &in);
    return count + hand_over(net, &sender, &in);
}

/* --- Time ------------------------------------------------------------------------------------------------------------------- */

void
exo_net_tick_locked(exo_net *net, exo_time now)
{
    exo_peer *p, *next;
    char cause[128];
    DL_FOREACH_SAFE (net->peers, p, next) {
        if (atomic_load(&p->state) != EXO_PEER_OPEN)
            continue;
        if (p->process_fd < 0 && now - p->heard > net->opts.peer_timeout) {
            snprintf(cause, sizeof cause, "nothing was heard from it for %.1f s",
                     (double)(now - p->heard) / (double)EXO_SECOND);
            exo_peer_lose_locked(net, p, cause);
        } else if (has_gap(p, now)) {
            snprintf(cause, sizeof cause, "message %u of it did not come", p->received);
            exo_peer_lose_locked(net, p, cause);
        } else if (now - p->spoke >= BEAT - BEAT / 10) {
            say_beat_locked(net, p);
        }
    }
    net->refusals = net->refusals > REFUSALS_A_TICK ? net->refusals - REFUSALS_A_TICK : 0;
    net->next_tick = now + BEAT / 2;
}
