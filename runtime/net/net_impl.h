/* Inside of the net. Read net.h first.
 *
 * Who waits for events is the driver: the word `driver` says who that is, and whoever sets it from -1 is it. Locks: `drive_lock` and
 * `park_lock` stand alone; `lock` guards sockets, peers, what gathers in them. All are held for moments, never while waiting for events
 * or in a callback. */
#ifndef EXO_NET_IMPL_H
#define EXO_NET_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include <uthash.h>
#include <zmq.h>

#include "net.h"
#include "process.h"
#include "ring.h"

enum {
    EXO_NET_ROUTE = 8,    /* bytes of a routing id; ZeroMQ's own have 5                    */
    EXO_NET_REFUSED = 256 /* routes that are remembered to have been refused: told no twice */
};

typedef struct exo_socket exo_socket;

/* What an event of the loop belongs to. */
typedef struct exo_source {
    enum {
        EXO_SOURCE_KICK,
        EXO_SOURCE_SOCKET,
        EXO_SOURCE_PROCESS,
    } kind;
    void *owner;
} exo_source;

typedef enum exo_peer_state {
    EXO_PEER_GREETING, /* our Hello is on its way */
    EXO_PEER_OPEN,
    EXO_PEER_LOST_,
} exo_peer_state;

struct exo_peer {
    atomic_uint references;
    _Atomic(exo_peer_state) state; /* written under net->lock */
    bool near;
    bool ipc;       /* it was connected to by a path */
    bool announced; /* the handler knows it: it hears of its loss */
    uint64_t node, start;
    uint32_t pid;
    char name[EXO_WIRE_NAME], endpoint[EXO_WIRE_NAME];
    char cause[EXO_ERR_TEXT]; /* of its loss */
    _Atomic(void *) user;
    atomic_bool full; /* it has not read what it should; written under net->lock */

    /* Guarded by net->lock. */
    exo_socket *socket; /* NULL when lost */
    uint8_t route[EXO_NET_ROUTE];
    size_t route_size; /* 0: the socket is the peer's own */
    exo_source process;
    int process_fd;
    exo_ring *in, *out;                  /* of a process of this host; NULL: all goes through the socket */
    int bell;                            /* of `out`: wakes its reader; -1: there is none */
    exo_time gap_since;                  /* `in` has a message, and one before it is missing; 0: it is not so */
    uint32_t sent, received;             /* messages */
    uint64_t sent_bytes, read_bytes;     /* to it; by it, as it says. Both as Beat counts */
    uint64_t received_bytes, told_bytes; /* from it; of these it knows                    */
    exo_time heard, spoke;
    exo_wire_writer writer;
    zmq_msg_t *frames; /* large payloads of what the writer holds */
    size_t num_frames, cap_frames;
    bool dirty; /* in the list of those with something to send */
    exo_peer *next_dirty;
    exo_peer *next_lost;
    UT_hash_handle by_route; /* in its socket's table */
    exo_peer *prev, *next;   /* of all open ones */
};

struct exo_socket {
    exo_source source;
    void *zmq;
    exo_peer *peer;  /* of a DEALER; NULL: a ROUTER */
    exo_peer *peers; /* of a ROUTER, by route */
    bool ready;      /* has messages */
    exo_socket *prev, *next;
};

struct exo_net {
    exo_net_opts opts;
    exo_wire_identity self;
    char *name, *cluster, *advertised;
    char boot[EXO_BOOT_ID];
    char **bound; /* (num_endpoints) */
    void *context;
    exo_zap *zap;
    int epoll, kick, bell; /* kick: a pipe, whose other end is `bell`, also for peers */
    exo_source kick_source;
    exo_source *
        *sources; /* by descriptor; guarded by lock. An event names its descriptor: its owner may be gone by then */
    size_t num_sources;
    atomic_bool kicked, waiting, closing; /* waiting: the driver is, or will be, in epoll_wait */

    atomic_int driver;          /* exo_driver of who drives, or -1 */
    atomic_uint wanted;         /* threads that want to drive instead of home and guard */
    pthread_mutex_t drive_lock; /* for those that sleep until nobody drives */
    pthread_cond_t driver_left;
    atomic_uint turns; /* grows: something happens */
    bool busy;         /* the last turn received something; the driver's, as the next one */
    bool rings_first;
    pthread_t home, guard;
    bool has_home, has_guard;
    pthread_mutex_t park_lock;
    pthread_cond_t park, guard_wake;
    bool parked;              /* guarded by park_lock           */
    atomic_bool guard_sleeps; /* written under park_lock        */
    atomic_bool home_runs;    /* what has come                  */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* a peer's state */
    exo_socket *sockets;    /* guarded by lock, as all below */
    exo_peer *peers;        /* open and greeting */
    exo_peer *first_dirty;
    exo_peer *first_lost; /* announced ones, for the handler; held */
    exo_time next_tick;
    uint64_t refused[EXO_NET_REFUSED]; /* hashes of routes, a ring */
    size_t next_refused;
    unsigned refusals;      /* that may be said now */
    uint64_t unsaid;        /* refusals since the last that was said */
    exo_wire_reader reader; /* the driver's */
};

/* --- net.c ------------------------------------------------------------------------------------------------------------ */

/* Enters a descriptor into the loop, or takes it out of it. */
bool exo_net_watch_locked(exo_net *net, int fd, exo_source *source);
void exo_net_unwatch_locked(exo_net *net, int fd);

/* --- peer.c ----------------------------------------------------------------------------------------------------------- */

/* Opens a socket and enters it into the loop. */
exo_status exo_net_add_socket_locked(exo_net *net, int type, exo_socket **out, exo_err *err);
void exo_net_remove_socket_locked(exo_net *net, exo_socket *socket);
/* The first half of exo_net_connect: the Hello is on its way. *out is held. */
exo_status exo_net_begin_connect_locked(exo_net *net, const char *endpoint, const char *key, exo_peer **out,
                                        exo_err *err);
/* Receives one message of a socket that is ready, and hands over what is in it. Gives the number of its envelopes and one more; 0:
 * there was none. Without lock, by the driver. */
size_t exo_net_receive(exo_net *net);
/* Whether a message lies in a ring that is due. */
bool exo_net_has_rung_locked(exo_net *net);
/* Those that put a message into a ring wake us. Look whether there is one afterwards. */
void exo_net_sleep_locked(exo_net *net);
void exo_net_flush_locked(exo_net *net);
void exo_peer_lose_locked(exo_net *net, exo_peer *peer, const char *cause);
/* Beats, silences. */
void exo_net_tick_locked(exo_net *net, exo_time now);
/* Tells the handler of the lost. Without lock. */
void exo_net_report_lost(exo_net *net);

#endif
