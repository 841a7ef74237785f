/* Connection attempts, as ZeroMQ reports them: a key that is not accepted, or a server with another
 * key, is reported at once instead of waiting for an answer that cannot come. ZeroMQ reports
 * through a monitor, a PAIR socket inside this process.
 *
 * The monitor belongs to its socket, and both to the holder of net->lock. Read next: handshake.c,
 * which asks for the reports while it waits. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "net/net_impl.h"
#include "net/zmq_again.h"

enum {
    /* Handshakes that the other end must break off before that counts as a refusal: it may break
     * off one because it is dying. */
    BROKEN_OFF = 2
};

#define BREAKS_OFF_WITHIN (2 * EXO_SECOND) /* later, the handshake timed out instead */

exo_status
exo_attempt_watch_locked(exo_net *net, exo_socket *socket, exo_err *err)
{
    const int events = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_CONNECT_RETRIED | ZMQ_EVENT_DISCONNECTED |
                       ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                       ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
    char name[64];
    int zero = 0;
    /* ZeroMQ frees a name only some time after its monitor has ended, so no name is used twice. */
    snprintf(name, sizeof name, "inproc://exogym.attempt.%" PRIu64, net->attempts++);
    if (exo_zmq_monitor(socket->zmq, name, events) != 0)
        return exo_fail(err, EXO_FAILED, "cannot watch a socket: %s", zmq_strerror(zmq_errno()));
    socket->monitor = zmq_socket(net->context, ZMQ_PAIR);
    if (socket->monitor && zmq_setsockopt(socket->monitor, ZMQ_LINGER, &zero, sizeof zero) == 0 &&
        exo_zmq_connect(socket->monitor, name) == 0)
        return EXO_OK;
    exo_status st =
        exo_fail(err, EXO_FAILED, "cannot watch a socket: %s", zmq_strerror(zmq_errno()));
    exo_attempt_end_locked(socket);
    return st;
}

void
exo_attempt_end_locked(exo_socket *socket)
{
    if (!socket || !socket->monitor)
        return;
    /* before the close: ZeroMQ's end would wait for one that is gone */
    zmq_socket_monitor(socket->zmq, NULL, 0);
    zmq_close(socket->monitor);
    socket->monitor = NULL;
}

/* A signal does not hide a frame: its descriptor would not tell of it again. */
static int
receive(void *monitor, void *data, size_t size)
{
    int got;
    while ((got = zmq_recv(monitor, data, size, ZMQ_DONTWAIT)) < 0 && zmq_errno() == EINTR)
        continue;
    return got;
}

/* Reads the next event. False: there is none now. *event is 0 for a malformed one. */
static bool
next_event(void *monitor, uint16_t *event, uint32_t *value)
{
    uint8_t head[sizeof *event + sizeof *value];
    int size = receive(monitor, head, sizeof head), more = 0;
    size_t more_size = sizeof more;
    if (size < 0)
        return false;
    while (zmq_getsockopt(monitor, ZMQ_RCVMORE, &more, &more_size) == 0 && more)
        if (receive(monitor, NULL, 0) < 0) /* the address */
            return false;
    *event = 0;
    if (size == (int)sizeof head) {
        memcpy(event, head, sizeof *event); /* host order */
        memcpy(value, head + sizeof *event, sizeof *value);
    }
    return true;
}

/* Counts a connection that ended within its handshake with `error`. True: it has happened too often
 * to be chance. A listener without room for a connection resets it, so a reset does not count. */
static bool
breaks_off(exo_socket *socket, int error)
{
    bool early = error != ECONNRESET && socket->connected &&
                 exo_now(exo_clock_real()) - socket->connected < BREAKS_OFF_WITHIN;
    socket->connected = 0;
    if (early)
        socket->broken_off++;
    return socket->broken_off >= BROKEN_OFF;
}

bool
exo_attempt_is_silent(const exo_socket *socket)
{
    return socket && socket->connected && !socket->decided;
}

bool
exo_attempt_is_unheard(const exo_socket *socket)
{
    return socket && !socket->connected && !socket->turned_away;
}

const char *
exo_attempt_hear_locked(exo_socket *socket, bool with_key)
{
    uint16_t event;
    uint32_t value = 0;
    while (socket && socket->monitor && next_event(socket->monitor, &event, &value)) {
        switch (event) {
        case ZMQ_EVENT_CONNECTED:
            socket->connected = exo_now(exo_clock_real());
            socket->decided = false;
            break;
        case ZMQ_EVENT_CONNECT_RETRIED:
            socket->turned_away = true;
            break;
        case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
            socket->decided = true;
            break;
        case ZMQ_EVENT_DISCONNECTED:
            /* The other end does not speak ZeroMQ's protocol: ZeroMQ reports it only so, and does
             * not retry. */
            if (with_key && socket->connected && !socket->decided)
                return "what is there answers, but is no process of exogym: another service has "
                       "this port";
            break;
        case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
            return with_key ? "it does not accept this process's key: its NAME.key is not among "
                              "those that the other end lets in, or has expired by its clock"
                            : "it lets nobody in from here without a key";
        case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
            if (value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
                return with_key ? "it works without keys, and a key was given for it"
                                : "it wants keys: its public key, and one of this process's own";
            return with_key ? "it has another key than the one that was given for it, or is no "
                              "process of exogym"
                            : "it is no process of exogym";
        case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            /* A ZeroMQ that is of another mechanism than this one reads so before it has sent its
             * own: then a mismatch is no protocol error here. */
            socket->decided = true;
            if (breaks_off(socket, (int)value))
                return with_key
                           ? "it breaks the handshake off: it has another key than the one that "
                             "was given for it, works without keys, or is no process of exogym"
                           : "it breaks the handshake off: it wants keys, or is no process of "
                             "exogym";
            break;
        default:
            break;
        }
    }
    return NULL;
}
