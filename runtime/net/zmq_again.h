/* Calls of ZeroMQ that a signal can interrupt before they have done anything: a socket first takes the
 * commands that other threads have for it. Such a call is made again. No state; the threads are those of
 * the socket. */
#ifndef EXO_NET_ZMQ_AGAIN_H
#define EXO_NET_ZMQ_AGAIN_H

#include <errno.h>

#include <zmq.h>

static inline int
exo_zmq_bind(void *socket, const char *endpoint)
{
    int status;
    while ((status = zmq_bind(socket, endpoint)) != 0 && zmq_errno() == EINTR)
        continue;
    return status;
}

static inline int
exo_zmq_connect(void *socket, const char *endpoint)
{
    int status;
    while ((status = zmq_connect(socket, endpoint)) != 0 && zmq_errno() == EINTR)
        continue;
    return status;
}

static inline int
exo_zmq_monitor(void *socket, const char *endpoint, int events)
{
    int status;
    while ((status = zmq_socket_monitor(socket, endpoint, events)) != 0 && zmq_errno() == EINTR)
        continue;
    return status;
}

#endif
