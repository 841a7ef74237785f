/* Connections between processes, over ZeroMQ: ipc and tcp, with CURVE where keys are given.
 *
 * A process has one exo_net. It listens on any number of endpoints (ROUTER sockets) and connects to
 * others (DEALER sockets). Each connection begins with a handshake, in which both processes
 * identify themselves; other versions and clusters are refused. After the handshake both ends are
 * equal. Each is an exo_peer, which sends and receives envelopes in order, each once. A broken
 * connection is not repaired: both ends report the peer as lost, with the cause, and a new
 * connection is another peer. So no call waits for a reply that was lost with a connection.
 *
 * Data that was sent to a peer and that the peer has not read takes memory. Each end tells the
 * other how much it has read. While more than `unread_limit` bytes are unread, calls fail with
 * FULL. A reply fails with FULL, too, if its payload and those of the waiting replies exceed the
 * limit; a single reply may be larger. A peer that is not watched by a pidfd and meanwhile reads
 * nothing for `peer_timeout` is lost. The number of waiting envelopes is bounded, too: at the bound
 * calls fail with FULL, and at twice the bound the peer is lost. net_limits.h has the other limits.
 *
 * A peer is lost when its process ends, when it says goodbye, when messages are missing, or when
 * nothing came by tcp for `peer_timeout`; time in which this process did not run does not count. A
 * peer that came by ipc is watched by its pidfd and is never lost by silence: it may be busy or
 * stopped for a moment. A process of the same host that came by tcp is watched, too, but its process
 * number is not proven, so silence counts as well.
 *
 * Sockets: one thread at a time uses them, the holder of the net's lock. Events: one thread at a
 * time waits for them, the driver. The driver is usually the net's home thread. A thread that waits
 * for a reply drives the sockets itself while it waits, which saves two thread switches a call.
 * docs/decisions/0007-who-drives-the-sockets.md has the reasons and figures.
 *
 * Threads: any thread may call any function, unless its comment says otherwise. Callbacks run on
 * the driver's thread, under no lock. */
#ifndef EXO_NET_H
#define EXO_NET_H

#include <exogym/actor.h>

#include "base/audit.h"
#include "net/auth.h"
#include "wire/wire.h"

typedef struct exo_net exo_net;
typedef struct exo_peer exo_peer; /* the far end of one connection; references are counted */

/* The driver of a turn; it decides whether that thread may run methods of messages that came. */
typedef enum exo_driver {
    EXO_DRIVER_HOME, /* may run one short method itself: the guard takes over if the method lasts */
    EXO_DRIVER_GUARD,  /* stands in for home; never runs a method */
    EXO_DRIVER_WAITER, /* waits for a reply of its own; never runs a method */
} exo_driver;

typedef struct exo_net_handler {
    /* A call, reply or cancel. The envelope is borrowed. *payload belongs to the handler; it is
     * empty where the envelope's payload is the handle of a shared object. Must not block. */
    void (*received)(void *context, exo_peer *peer, const exo_envelope *envelope,
                     exo_payload *payload);
    /* The driver has received the messages of a turn. Other threads may receive meanwhile. */
    void (*settle)(void *context, exo_driver driver);
    /* A peer that connected to this process has completed the handshake. May be NULL. */
    void (*opened)(void *context, exo_peer *peer);
    /* Called once for each peer that was opened or connected to. Nothing is received from it any
     * more. */
    void (*lost)(void *context, exo_peer *peer, const char *cause);
    /* Called after `lost`, once a turn while it gives true: releases a part of the handler's state
     * of a lost peer, for a few milliseconds a call. May be NULL. */
    bool (*ending)(void *context, exo_peer *peer);
} exo_net_handler;

typedef struct exo_net_opts {
    const char *name;             /* of this process, for people */
    const char *cluster;          /* both ends must name the same; NULL or "": any */
    const char *const *endpoints; /* "ipc:///path", "tcp://127.0.0.1:0" (0: any free port) */
    size_t num_endpoints;
    const char *advertised;  /* the address that Hello gives to others; NULL: the first endpoint */
    const exo_keys *keys;    /* this node's CURVE pair; NULL: tcp without CURVE */
    exo_allow_list *allowed; /* the keys that CURVE accepts; needed with `keys` to listen on tcp */
    /* The Z85 key of the head that this process connects to. Its holder may do anything. NULL:
     * none. */
    const char *trusted;
    exo_time peer_timeout; /* silence after which a peer of another host is lost; 0: 5 s */
    /* Bytes sent and not read, and bytes of waiting replies. 0: 256 MiB; at least 4 MiB. */
    size_t unread_limit;
    /* The identity of this host; NULL: the real one. For tests: processes with different identities
     * treat each other as processes of different hosts. */
    const char *boot;
    bool held; /* the endpoints are bound, but nothing is read before exo_net_start */
    /* Records who was admitted and who was refused; NULL: no record. Must live until the net is
     * closed. */
    exo_audit *audit;
    const exo_net_handler *handler;
    void *context;
} exo_net_opts;

/* The suffix of an ipc endpoint that requires keys, as tcp ports do: the listener binds it with
 * CURVE, and a connecting process needs the listener's key. */
#define EXO_NET_KEYED ".curve"
bool exo_net_is_keyed(const char *endpoint);

/* Binds the endpoints and, unless `held`, starts. *out is set before the first callback. On failure
 * *out is NULL afterwards, but callbacks may have used it before. Errors: INVAL (a name, an
 * endpoint, keys that are missing), EXISTS (the address is in use), IO, UNSUPPORTED (libzmq cannot
 * do what security needs), FAILED (no thread or socket), NOMEM. */
exo_status exo_net_open(exo_net **out, const exo_net_opts *opts, exo_err *err);
/* Starts a held net; called once. From then on it reads and answers, beginning with what has come
 * since it was bound. The caller first prepares everything that its callbacks use. Before the
 * start, exo_net_drive gives false and exo_net_connect waits. After a failure the net can only be
 * closed. Errors: FAILED (no thread). */
exo_status exo_net_start(exo_net *net, exo_err *err);
/* Says goodbye to every peer, which is then lost, and joins the net's threads. Afterwards sending
 * fails and nothing is received. why: the reason that peers hear; NULL: that it ended. Must not be called
 * from a callback. */
void exo_net_stop(exo_net *net, const char *why);
/* Stops the net and frees it. Peers that are still held stay valid. */
void exo_net_close(exo_net **net);

/* Endpoint `i` as it was bound, with its port. */
const char *exo_net_endpoint(const exo_net *net, size_t i);
uint64_t exo_net_node(const exo_net *net);

/* Connects and completes the handshake; blocks until `deadline` (on the real clock) at most. `key`:
 * the Z85 public key of a server with CURVE, or NULL. The caller drops *out. Errors: TIMEOUT
 * (no answer), UNSUPPORTED (refused, with the reason; a wrong key of either end is reported as soon
 * as ZeroMQ's handshake has failed), PEER_LOST (it answered, and was lost at once: another attempt
 * may succeed), INVAL (the endpoint, or a key that is missing), CLOSED (the net was stopped),
 * FAILED (no socket), NOMEM.
 *
 * If a listener ends after it has read the Hello, nobody answers that Hello, even if another
 * process takes its place. So a caller with much time makes several attempts with a part of it
 * each. */
exo_status exo_net_connect(exo_net *net, const char *endpoint, const char *key, exo_time deadline,
                           exo_peer **out, exo_err *err);
/* The same, but also ends with PEER_LOST once `is_there(endpoint)` is false. The function is called
 * now and then, under the net's lock. */
exo_status exo_net_connect_while(exo_net *net, const char *endpoint, const char *key,
                                 exo_time deadline, bool (*is_there)(const char *endpoint),
                                 exo_peer **out, exo_err *err);

/* Sends an envelope. `payload` (may be NULL) is moved into it, also on failure. On a quiet
 * connection the envelope leaves at once, else with others in a batch. Does not block. Errors:
 * PEER_LOST with the cause, INVAL, NOMEM, FULL (a call or a reply to a peer that does not read). */
exo_status exo_net_send(exo_net *net, exo_peer *peer, exo_envelope *envelope, exo_payload *payload,
                        exo_err *err);
/* Sends all batches. Call it before a thread waits. */
void exo_net_flush(exo_net *net);
/* Drives until done(argument) is true, or until `deadline` on the real clock. False, soon: another
 * waiting thread drives, or the net is not started; then the caller waits by other means. */
bool exo_net_drive(exo_net *net, bool (*done)(void *argument), void *argument, exo_time deadline);
/* Wakes the driver, so that it checks its condition again. */
void exo_net_kick(exo_net *net);

exo_peer *exo_peer_hold(exo_peer *peer);
void exo_peer_drop(exo_peer **peer);
uint64_t exo_peer_node(const exo_peer *peer);
/* Whether the peer was heard within half of `peer_timeout`, or has come by ipc: the end of a process of
 * this host is seen, however long it has said nothing. Also of a lost peer. Any thread. */
bool exo_net_hears(exo_net *net, exo_peer *peer);
/* What is proven of the peer's identity; valid while the peer is held. For peers that were opened
 * or connected to. */
const struct exo_identity *exo_peer_identity(const exo_peer *peer);
const char *exo_peer_name(const exo_peer *peer);
const char *exo_peer_endpoint(const exo_peer *peer); /* its address for others; "": none */
bool exo_peer_is_near(const exo_peer *peer);         /* on this host, by its own word */
bool exo_peer_may_share(const exo_peer *peer); /* so, and this user's: it can map our memory */
bool exo_peer_is_by_ipc(const exo_peer *peer); /* the same, and connected by ipc */
bool exo_peer_is_open(const exo_peer *peer);
/* More than the limit is unread, or a reply was refused: calls fail with FULL, and callers should
 * do no more work for the peer. */
bool exo_peer_is_full(const exo_peer *peer);
uint32_t exo_peer_pid(const exo_peer *peer);
/* A pointer of the handler's, NULL at first. The handler guards it. */
void *exo_peer_user(const exo_peer *peer);
void exo_peer_set_user(exo_peer *peer, void *user);
/* Ends the connection; the handler's `lost` follows. */
void exo_peer_lose(exo_net *net, exo_peer *peer, const char *cause);

#endif
