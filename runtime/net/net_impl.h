/* The net's internal struct. Read net.h first; then net.c, and peer_impl.h for peers and sockets.
 *
 * The driver is the thread that waits for events. `driver` holds its kind; a thread becomes the
 * driver by changing `driver` from -1.
 *
 * Locks: `lock` guards sockets, peers and their gathered messages. `drive_lock` and `park_lock`
 * stand alone. All three are held for moments, never in a callback or while waiting for events. */
#ifndef EXO_NET_IMPL_H
#define EXO_NET_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/crowd.h"
#include "net/peer_impl.h"

enum {
    EXO_NET_REFUSED = 256 /* refused routes that are remembered, so that each is told once */
};

struct exo_net {
    exo_net_opts opts;
    exo_wire_identity self;
    char *name, *cluster, *advertised;
    char boot[EXO_BOOT_ID];
    char **bound; /* (num_endpoints) */
    void *context;
    exo_zap *zap;
    int epoll, kick, kicker; /* kick: a pipe; `kicker` is its writing end */
    exo_source kick_source;
    /* By descriptor; guarded by `lock`. An event carries the descriptor, not the owner: the owner
     * may be freed before the event is handled. */
    exo_source **sources;
    size_t num_sources;
    atomic_bool kicked, waiting, closing; /* waiting: the driver is, or will be, in epoll_wait */
    atomic_bool started;                  /* no thread drives before */

    atomic_int driver;          /* the exo_driver that drives, or -1 */
    atomic_uint wanted;         /* threads that want to take over from home or guard */
    pthread_mutex_t drive_lock; /* for sleeping until no thread drives */
    pthread_cond_t driver_left;
    atomic_uint turns; /* counts turns: a change shows progress */
    bool busy; /* the last turn received something; owner: the driver, as of the next two fields */
    bool waiting_first; /* read rings and kept messages before sockets */
    exo_crowd crowd;
    pthread_t home, guard;
    bool has_home, has_guard;
    pthread_mutex_t park_lock;
    pthread_cond_t park, guard_wake;
    bool parked;              /* guarded by park_lock */
    atomic_bool guard_sleeps; /* written under park_lock */
    atomic_bool home_runs;    /* home runs what has come */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* signals a change of a peer's state */
    exo_socket *sockets;    /* guarded by lock, as all below */
    exo_peer *peers;        /* those that are open or greeting */
    exo_peer *first_dirty;
    exo_peer *first_lost; /* lost peers of which the handler must be told; the list holds them */
    exo_time next_tick;
    uint64_t attempts; /* watched attempts so far; the number names the next one's monitor */
    uint64_t refused[EXO_NET_REFUSED]; /* hashes of routes; a ring buffer */
    size_t next_refused;
    unsigned refusals; /* refusals that were answered and logged lately; see handshake.c */
    uint64_t unsaid;   /* refusals since the last one that was answered and logged */
    /* connections that the intake has kept out, for their own sake and for want of descriptors, as
     * last logged */
    uint64_t kept_out, starved;
    unsigned ticks_unsaid;
    /* Peers and strangers that ended since memory was last trimmed. Owner: the driver, as of the
     * next two fields. */
    unsigned untrimmed;
    exo_time trim_at;
    /* strangers that the intake has ended, as far as `untrimmed` counts them */
    uint64_t ended;
    exo_wire_reader reader; /* owner: the driver */
    uint8_t *rung; /* (EXO_RING_MESSAGE) the message that was taken from a ring; the driver's */
    exo_time turn_began; /* the driver's turn; of the real clock */
};

/* --- net.c ------------------------------------------------------------------------------------ */

/* Adds a descriptor to the event loop, or removes it. False, with errno: the descriptor cannot be
 * watched. -1 stands for no descriptor. */
bool exo_net_watch_locked(exo_net *net, int fd, exo_source *source);
void exo_net_unwatch_locked(exo_net *net, int fd);

#endif
