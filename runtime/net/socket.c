/* ZeroMQ's sockets: made, added to the event loop, and used without waiting. Callers of `_locked`
 * functions, and of all that use a socket, hold net->lock.
 *
 * The net owns the sockets: a ROUTER for each endpoint on which it listens, with a table of peers
 * by route; a DEALER for each peer that it connected to, which ends with that peer. Read next:
 * handshake.c, send.c and receive.c, which use them. */
#include <errno.h>
#include <unistd.h>

#include <utlist.h>

#include <exogym/memory.h>

#include "net/net_impl.h"

enum {
    UNREAD_MESSAGES = 1000, /* messages that ZeroMQ keeps for the net; more wait at the sender */
    HANDSHAKE_MS = 5000,
    LINGER_MS = 100
};

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
    s->door_source = (exo_source){.kind = EXO_SOURCE_DOOR, .owner = s};
    s->door = -1;
    set_int(s->zmq, ZMQ_LINGER, LINGER_MS); /* time for a goodbye to leave */
    set_int(s->zmq, ZMQ_SNDHWM, 0);         /* unread_limit bounds it instead */
    set_int(s->zmq, ZMQ_RCVHWM, UNREAD_MESSAGES);
    set_int(s->zmq, ZMQ_BACKLOG, 1024);
    set_int(s->zmq, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS);
    set_int(s->zmq, ZMQ_TCP_KEEPALIVE, 1);
    if (type == ZMQ_ROUTER)
        set_int(s->zmq, ZMQ_ROUTER_MANDATORY, 1);
    if (zmq_getsockopt(s->zmq, ZMQ_FD, &fd, &size) != 0)
        fd = -1;
    if (!exo_net_watch_locked(net, fd, &s->source)) {
        exo_status st =
            exo_fail(err, EXO_FAILED, "the socket cannot be watched: %s", strerror(errno));
        zmq_close(s->zmq);
        exo_free(s);
        return st;
    }
    DL_APPEND(net->sockets, s);
    *out = s;
    return EXO_OK;
}

void
exo_socket_limit(exo_socket *socket, bool listens)
{
    const int64_t longest = EXO_LIMIT_FRAME;
    zmq_setsockopt(socket->zmq, ZMQ_MAXMSGSIZE, &longest, sizeof longest);
    if (listens)
        set_int(socket->zmq, ZMQ_HANDSHAKE_IVL, EXO_LIMIT_HANDSHAKE_MS);
}

void
exo_socket_choose_family(exo_socket *socket, const char *endpoint)
{
    set_int(socket->zmq, ZMQ_IPV6, strncmp(endpoint, "tcp://[", strlen("tcp://[")) == 0);
}

void
exo_net_remove_socket_locked(exo_net *net, exo_socket *socket)
{
    int fd = -1;
    size_t size = sizeof fd;
    zmq_getsockopt(socket->zmq, ZMQ_FD, &fd, &size);
    exo_net_unwatch_locked(net, fd);
    exo_attempt_end_locked(socket);
    if (net->zap)
        exo_zap_unwatch(net->zap, socket->zmq);
    zmq_close(socket->zmq);
    if (socket->door >= 0) {
        exo_net_unwatch_locked(net, socket->door);
        close(socket->door);
        unlink(socket->door_path);
    }
    DL_DELETE(net->sockets, socket);
    exo_free(socket);
}

/* Sending on a socket may consume the event of a received message: ZeroMQ's descriptor is
 * edge-triggered. */
void
exo_socket_look_locked(exo_net *net, exo_socket *socket)
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

/* In the three functions below, a signal may interrupt ZeroMQ before it has begun: then they try
 * again. */
bool
exo_socket_send_bytes(void *zmq, const void *data, size_t size, int flags)
{
    int sent;
    while ((sent = zmq_send(zmq, data, size, flags | ZMQ_DONTWAIT)) < 0 && zmq_errno() == EINTR)
        continue;
    return sent >= 0;
}

bool
exo_socket_send_frame(void *zmq, zmq_msg_t *frame, int flags)
{
    int sent;
    while ((sent = zmq_msg_send(frame, zmq, flags | ZMQ_DONTWAIT)) < 0 && zmq_errno() == EINTR)
        continue;
    return sent >= 0;
}

bool
exo_socket_receive_frame(void *zmq, zmq_msg_t *frame)
{
    int got;
    while ((got = zmq_msg_recv(frame, zmq, ZMQ_DONTWAIT)) < 0 && zmq_errno() == EINTR)
        continue;
    return got >= 0;
}
