/* Messages of strangers and peers to a net. An input is a sequence of messages: a byte that chooses
 * the speaker (0 and 1 connected to this net; this net connected to 2), a byte with the number of
 * frames, and each frame after two bytes with its length. Sockets are ZeroMQ's inproc sockets, and
 * this thread drives the net, so that nothing happens by itself.
 *
 * One thread drives; `rig` is its state, and peers last for one input. Read next:
 * runtime/net/net_impl.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <utlist.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "net/net_impl.h"

enum {
    SPEAKERS = 3,
    MESSAGES = 64,
    FRAMES = 300
};

static struct {
    exo_net *net;
    void *server; /* a ROUTER to which the net connects */
    size_t opened, lost, received;
    exo_peer *connected;
} rig;

#define require(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: opened %zu, lost %zu, %s\n", __FILE__, __LINE__,           \
                    #condition, rig.opened, rig.lost, zmq_strerror(zmq_errno()));                  \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* Answers calls, so that the net sends too. */
static void
received(void *context, exo_peer *peer, const exo_envelope *e, exo_payload *payload)
{
    (void)context;
    require(exo_peer_user(peer) != NULL || peer == rig.connected);
    require(e->kind == EXO_WIRE_CALL || e->kind == EXO_WIRE_REPLY || e->kind == EXO_WIRE_CANCEL);
    require(!e->method || strlen(e->method) < EXO_WIRE_NAME);
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < payload->size; i++)
        sum = (uint8_t)(sum + ((const uint8_t *)payload->data)[i]);
    rig.received++;
    if (e->kind == EXO_WIRE_CALL) {
        exo_envelope reply = {
            .kind = EXO_WIRE_REPLY, .id = e->id, .status = EXO_FAILED, .text = e->method};
        exo_net_send(rig.net, peer, &reply, payload, NULL);
    }
    exo_payload_release(payload);
}

static void
settle(void *context, exo_driver driver)
{
    (void)context;
    (void)driver;
}

static void
opened(void *context, exo_peer *peer)
{
    (void)context;
    rig.opened++;
    exo_peer_set_user(peer, &rig);
}

static void
lost(void *context, exo_peer *peer, const char *cause)
{
    (void)context;
    require(cause[0] != 0);
    if (peer == rig.connected)
        return;
    require(exo_peer_user(peer) == &rig);
    exo_peer_set_user(peer, NULL);
    rig.lost++;
}

static void
quiet(void *context, exo_log_level level, const char *line)
{
    (void)context;
    (void)level;
    require(!strchr(line, '\n'));
}

static void
open_rig(void)
{
    static const exo_net_handler handler = {
        .received = received, .settle = settle, .opened = opened, .lost = lost};
    static const char *const endpoints[] = {"inproc://fuzz"};
    const exo_net_opts opts = {.name = "fuzz",
                               .cluster = "fuzz",
                               .endpoints = endpoints,
                               .num_endpoints = 1,
                               .handler = &handler};
    exo_log_set_sink(quiet, NULL);
    require(exo_net_open(&rig.net, &opts, NULL) == EXO_OK);
    /* the home thread parks, and the guard finds that a driver is there */
    atomic_fetch_add(&rig.net->wanted, 1);
    exo_net_kick(rig.net);
    for (int nobody = -1;
         !atomic_compare_exchange_weak(&rig.net->driver, &nobody, EXO_DRIVER_WAITER); nobody = -1)
        usleep(100);
    rig.server = zmq_socket(rig.net->context, ZMQ_ROUTER);
    require(rig.server && zmq_bind(rig.server, "inproc://server") == 0);
}

static void
take_turns(void)
{
    pthread_mutex_lock(&rig.net->lock);
    for (exo_socket *s = rig.net->sockets; s; s = s->next)
        s->ready = true;
    pthread_mutex_unlock(&rig.net->lock);
    while (exo_net_receive(rig.net) > 0)
        continue;
    exo_net_flush(rig.net);
    exo_net_report_lost(rig.net);
}

/* Reads and discards all messages of the net. Gives the route of the last sender in `route` and its
 * size as the result. */
static size_t
read_server(uint8_t route[256])
{
    size_t size = 0;
    for (int first = 1;;) {
        uint8_t frame[256];
        int more = 0, got = zmq_recv(rig.server, frame, sizeof frame, ZMQ_DONTWAIT);
        size_t option = sizeof more;
        if (got < 0)
            return size;
        if (first) {
            size = (size_t)got < sizeof frame ? (size_t)got : sizeof frame;
            memcpy(route, frame, size);
        }
        zmq_getsockopt(rig.server, ZMQ_RCVMORE, &more, &option);
        first = !more;
    }
}

/* Sends the frames of one message; gives the number of bytes of `data` that were used. */
static size_t
say(void *socket, const uint8_t *data, size_t size, size_t frames)
{
    size_t at = 0;
    for (size_t i = 0; i < frames; i++) {
        size_t length = at + 2 <= size ? data[at] | (size_t)data[at + 1] << 8 : 0;
        at = at + 2 < size ? at + 2 : size;
        length = length < size - at ? length : size - at;
        zmq_send(socket, data + at, length, ZMQ_DONTWAIT | (i + 1 < frames ? ZMQ_SNDMORE : 0));
        at += length;
    }
    return at;
}

/* ZeroMQ has at most 1023 sockets at a time. Its own thread closes them, after an exchange with the
 * socket at the other end. When the limit is reached, this function gives it time to close some. */
static void
let_close(void)
{
    uint8_t route[256];
    take_turns();
    read_server(route);
    usleep(1000);
}

static void *
new_speaker(void)
{
    void *socket = NULL;
    for (int i = 0; i < 5000 && !(socket = zmq_socket(rig.net->context, ZMQ_DEALER)); i++)
        let_close();
    require(socket != NULL);
    return socket;
}

static exo_peer *
new_connection(void)
{
    exo_peer *peer = NULL;
    exo_err err = {0};
    for (int i = 0; i < 5000 && !peer; i++) {
        pthread_mutex_lock(&rig.net->lock);
        exo_status st = exo_net_begin_connect_locked(rig.net, "inproc://server", NULL, &peer, &err);
        pthread_mutex_unlock(&rig.net->lock);
        if (st != EXO_OK)
            let_close();
    }
    require(peer != NULL);
    return peer;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    void *speakers[2] = {NULL, NULL};
    uint8_t route[256];
    size_t route_size = 0;
    const int none = 0;
    if (!rig.net)
        open_rig();
    rig.opened = rig.lost = 0;
    memset(rig.net->refused, 0, sizeof rig.net->refused);
    rig.net->refusals = 0;
    for (size_t at = 0, messages = 0; at + 2 <= size && messages < MESSAGES; messages++) {
        size_t who = data[at] % SPEAKERS, frames = data[at + 1];
        at += 2;
        if (who < 2 && !speakers[who]) {
            speakers[who] = new_speaker();
            zmq_setsockopt(speakers[who], ZMQ_LINGER, &none, sizeof none);
            require(zmq_connect(speakers[who], "inproc://fuzz") == 0);
        }
        if (who == 2 && !rig.connected) {
            rig.connected = new_connection();
            route_size = read_server(route);
        }
        if (who == 2) {
            if (frames == 0 ||
                zmq_send(rig.server, route, route_size, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
                continue;
            at += say(rig.server, data + at, size - at, frames);
        } else {
            at += say(speakers[who], data + at, size - at, frames);
        }
        take_turns();
    }
    /* More than once: a message may still arrive, because ZeroMQ's own thread may not yet have
     * woken its socket. */
    for (int i = 0; i == 0 || (i < 5000 && rig.opened != rig.lost); i++) {
        pthread_mutex_lock(&rig.net->lock);
        while (rig.net->peers)
            exo_peer_lose_locked(rig.net, rig.net->peers, "the input ends");
        pthread_mutex_unlock(&rig.net->lock);
        take_turns();
    }
    require(rig.opened == rig.lost);
    for (size_t i = 0; i < 2; i++)
        if (speakers[i])
            zmq_close(speakers[i]);
    if (rig.connected)
        read_server(route);
    exo_peer_drop(&rig.connected);
    return 0;
}
