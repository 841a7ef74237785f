/* Inside of the net. Read net.h first; then net.c, and peer_impl.h for what lies behind a
 * connection.
 *
 * Who waits for events is the driver: the word `driver` says who that is, and whoever sets it from
 * -1 is it. Locks: `drive_lock` and `park_lock` stand alone; `lock` guards sockets, peers, what
 * gathers in them. All are held for moments, never while waiting for events or in a callback. */
#ifndef EXO_NET_IMPL_H
#define EXO_NET_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "net/peer_impl.h"

enum {
    EXO_NET_REFUSED = 256 /* routes that are remembered to have been refused: told no twice */
};

struct exo_net {
    exo_net_opts opts;
    exo_wire_identity self;
    char *name, *cluster, *advertised;
    char boot[EXO_BOOT_ID];
    char **bound; /* (num_endpoints) */
    void *context;
    exo_zap *zap;
    int epoll, kick, kicker; /* kick: a pipe, whose other end is `kicker` */
    exo_source kick_source;
    /* by descriptor; guarded by lock. An event names its descriptor: its owner may be gone by
     * then */
    exo_source **sources;
    size_t num_sources;
    atomic_bool kicked, waiting, closing; /* waiting: the driver is, or will be, in epoll_wait */
    atomic_bool started;                  /* nobody drives before */

    atomic_int driver;          /* exo_driver of who drives, or -1 */
    atomic_uint wanted;         /* threads that want to drive instead of home and guard */
    pthread_mutex_t drive_lock; /* for those that sleep until nobody drives */
    pthread_cond_t driver_left;
    atomic_uint turns;  /* grows: something happens */
    bool busy;          /* the last turn received something; the driver's, as the next one */
    bool waiting_first; /* rings and what is kept, before sockets */
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
    uint64_t attempts;                 /* that were watched: names the next one's monitor */
    uint64_t refused[EXO_NET_REFUSED]; /* hashes of routes, a ring */
    size_t next_refused;
    unsigned refusals; /* that may be said now */
    uint64_t unsaid;   /* refusals since the last that was said */
    uint64_t kept_out; /* by the intake, as the log was told last */
    unsigned ticks_unsaid;
    /* peers and strangers that went since memory was given back; the driver's, as the next two */
    unsigned untrimmed;
    exo_time trim_at;
    /* strangers, as the intake counts them: those that are counted in `untrimmed` */
    uint64_t ended;
    exo_wire_reader reader; /* the driver's */
};

/* --- net.c ------------------------------------------------------------------------------------ */

/* Enters a descriptor into the loop, or takes it out of it. False, with errno: it cannot be
 * watched; -1 is none. */
bool exo_net_watch_locked(exo_net *net, int fd, exo_source *source);
void exo_net_unwatch_locked(exo_net *net, int fd);

#endif
