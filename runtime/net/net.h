/* Connections between processes, over ZeroMQ (ipc and tcp, with CURVE where it is asked for).
 *
 * A process has one exo_net. It listens on any number of endpoints (ROUTER sockets) and connects to
 * others (DEALER sockets). Each connection begins with a handshake that says who is there and
 * refuses other versions and clusters; after it both ends are equal: an exo_peer, to which
 * envelopes are sent and from which they come, in order, each once. A connection that breaks is not
 * mended: both ends hear that the peer is lost, with the cause, and a new connection is another
 * peer. So nobody waits for a reply that went down with a connection.
 *
 * What is sent to a peer and not read by it takes memory. Each end tells the other how much it has
 * read; while more than `unread_limit` is not, calls give FULL. A reply gives FULL, too, if the
 * payloads of those that wait and its own are more than that; one alone may be larger. A peer of
 * another host that reads nothing for `peer_timeout` meanwhile is lost. The number of what waits to
 * be sent is bounded: calls give FULL, and a peer for which twice as many gather is lost.
 * net_limits.h has what else is bounded.
 *
 * A peer is lost when its process ends (one that came by ipc is watched by its pidfd and is never
 * lost by silence: it may be busy or stopped for a moment), when nothing came by tcp for
 * `peer_timeout`, when it says goodbye, or when messages are missing. A process of the same host
 * over tcp is watched, too, but that it is what it says is not proven: so silence counts as well.
 *
 * Who touches a socket: exactly one thread at a time, the one that holds the net's lock. Who waits
 * for incoming messages: one thread at a time, the driver. That is the net's home thread; but a
 * thread that waits for a reply drives for itself as long as it waits, which saves two thread
 * switches a call. docs/decisions/0007-who-drives-the-sockets.md has the reasons and figures.
 *
 * Threads: everything from any thread, unless it says otherwise. Callbacks run on the driver's
 * thread, under no lock.
 * */
#ifndef EXO_NET_H
#define EXO_NET_H

#include <exogym/actor.h>

#include "base/audit.h"
#include "net/auth.h"
#include "wire/wire.h"

typedef struct exo_net exo_net;
typedef struct exo_peer exo_peer; /* one connection's far end; counted references */

/* Who drives, and may thus run what has come. */
typedef enum exo_driver {
    EXO_DRIVER_HOME,   /* may run one short method itself: somebody takes over if it lasts */
    EXO_DRIVER_GUARD,  /* takes over: never runs a method                                   */
    EXO_DRIVER_WAITER, /* waits for a reply of its own: never runs a method                 */
} exo_driver;

typedef struct exo_net_handler {
    /* A call, reply or cancel. The envelope is borrowed; *payload is the handler's to keep (empty
     * where the envelope's payload is a shared object's handle). Must not block. */
    void (*received)(void *context, exo_peer *peer, const exo_envelope *envelope,
                     exo_payload *payload);
    /* All that came at once has been received; others may receive meanwhile. */
    void (*settle)(void *context, exo_driver driver);
    /* A peer that connected to us has said who it is. May be NULL. */
    void (*opened)(void *context, exo_peer *peer);
    /* Once for each peer that was opened or connected to. Nothing is received from it any more. */
    void (*lost)(void *context, exo_peer *peer, const char *cause);
    /* After that, turn by turn, as long as it gives true: ends some of what there was of a lost
     * peer, for a few milliseconds. May be NULL. */
    bool (*ending)(void *context, exo_peer *peer);
} exo_net_handler;

typedef struct exo_net_opts {
    const char *name;             /* of this process, for people */
    const char *cluster;          /* both ends must name the same; NULL or "": any */
    const char *const *endpoints; /* "ipc:///path", "tcp://127.0.0.1:0" (0: any free port) */
    size_t num_endpoints;
    const char *advertised;  /* what Hello tells others to connect to; NULL: the first endpoint */
    const exo_keys *keys;    /* this node's CURVE pair; NULL: tcp without CURVE */
    exo_allow_list *allowed; /* whom CURVE lets in; needed with keys to listen on tcp */
    /* the head's key, Z85, if this process connects to it: who has it may do anything; NULL:
     * none */
    const char *trusted;
    exo_time peer_timeout; /* silence of another host after which it is lost; 0: 5 s */
    size_t unread_limit;   /* bytes of what is sent, and of replies; 0: 256 MiB; at least 4 MiB */
    /* NULL: of this host. For tests: with another, processes of this host are far */
    const char *boot;
    bool held; /* bound, but nothing is read before exo_net_start */
    /* of who is let in and who is not; NULL: none. Lives until the net is closed */
    exo_audit *audit;
    const exo_net_handler *handler;
    void *context;
} exo_net_opts;

/* A socket of this host whose name ends so wants keys, as a tcp port does: who listens binds it
 * with CURVE, who connects needs its key. */
#define EXO_NET_KEYED ".curve"
bool exo_net_is_keyed(const char *endpoint);

/* Binds the endpoints and, unless `held`, starts. *out is set before the first callback; it is NULL
 * on failure, but callbacks may have used it by then. Errors: INVAL (a name or an endpoint), IO,
 * FAILED (no thread), NOMEM. */
exo_status exo_net_open(exo_net **out, const exo_net_opts *opts, exo_err *err);
/* Of a held net, once: reads and answers from now on, beginning with whatever came since it was
 * bound. The caller first makes ready all that its callbacks use. Until then exo_net_drive gives
 * false, and exo_net_connect waits for the start, too. After a failure the net can only be closed.
 * Errors: FAILED (no thread). */
exo_status exo_net_start(exo_net *net, exo_err *err);
/* Says goodbye to every peer, which is lost then, and ends its threads: afterwards sending fails,
 * and nothing is received. Not from a callback. */
void exo_net_stop(exo_net *net);
/* Stops it and frees it. Peers that are still held stay valid. */
void exo_net_close(exo_net **net);

/* Endpoint `i` as bound, with its port. */
const char *exo_net_endpoint(const exo_net *net, size_t i);
uint64_t exo_net_node(const exo_net *net);

/* Connects and shakes hands, until `deadline` (on the real clock). `key`: the Z85 public key of a
 * tcp server with CURVE, or NULL. The caller drops *out. Errors: TIMEOUT (nobody answers),
 * UNSUPPORTED (refused, with the reason; a wrong key of either end is told as soon as the handshake
 * has failed), PEER_LOST (it answered, and was lost at once: another attempt may do better), INVAL
 * (endpoint), CLOSED (the net was stopped), NOMEM.
 *
 * A listener that ends after it has read the Hello leaves nobody to answer it, also if another one
 * takes its place: so an attempt is given less time than there is, and made again. */
exo_status exo_net_connect(exo_net *net, const char *endpoint, const char *key, exo_time deadline,
                           exo_peer **out, exo_err *err);
/* The same, until `is_there(endpoint)` is false, too: PEER_LOST. It is asked now and then, under
 * the net's lock. */
exo_status exo_net_connect_while(exo_net *net, const char *endpoint, const char *key,
                                 exo_time deadline, bool (*is_there)(const char *endpoint),
                                 exo_peer **out, exo_err *err);

/* Sends an envelope; `payload` (may be NULL) is moved into it, also on failure. It goes out soon:
 * at once if the connection is quiet, else with what gathers meanwhile. Errors: PEER_LOST with the
 * cause, INVAL, NOMEM, FULL (a call or a reply to a peer that does not read). */
exo_status exo_net_send(exo_net *net, exo_peer *peer, exo_envelope *envelope, exo_payload *payload,
                        exo_err *err);
/* Sends out what has gathered. Before a thread waits. */
void exo_net_flush(exo_net *net);
/* Drives until done(argument), or `deadline` on the real clock. False, soon, if another thread
 * drives, or the net is not started: then wait by other means. */
bool exo_net_drive(exo_net *net, bool (*done)(void *argument), void *argument, exo_time deadline);
/* Makes the driver look up: something that it waits for is done. */
void exo_net_kick(exo_net *net);

exo_peer *exo_peer_hold(exo_peer *peer);
void exo_peer_drop(exo_peer **peer);
uint64_t exo_peer_node(const exo_peer *peer);
/* Who it is, as far as that is proven: the peer's, for as long as it is held. Of one that was
 * opened or connected to. */
const struct exo_identity *exo_peer_identity(const exo_peer *peer);
const char *exo_peer_name(const exo_peer *peer);
const char *exo_peer_endpoint(const exo_peer *peer); /* where it can be reached; "" if nowhere */
bool exo_peer_is_near(const exo_peer *peer);         /* on this host, as it says */
bool exo_peer_is_open(const exo_peer *peer);
/* More than the limit was sent and is not read, or a reply was refused: calls give FULL, and more
 * should not be done for it. */
bool exo_peer_is_full(const exo_peer *peer);
uint32_t exo_peer_pid(const exo_peer *peer);
/* A pointer of the handler's, NULL at first. Guarded by the handler. */
void *exo_peer_user(const exo_peer *peer);
void exo_peer_set_user(exo_peer *peer, void *user);
/* Ends the connection: the handler's lost follows. */
void exo_peer_lose(exo_net *net, exo_peer *peer, const char *cause);

#endif
