/* Peers and their sockets, internal. Read net_impl.h first.
 *
 * Each file has one job. In the order of a connection's life:
 *
 *   socket.c     ZeroMQ's sockets: made, added to the event loop, used without waiting
 *   attempt.c    what ZeroMQ reports of a connection that is being made
 *   handshake.c  Hello, Welcome, Refused: peers are accepted or refused
 *   proof.c      the proven part of a peer's identity
 *   peer.c       the table of peers; silence and loss
 *   send.c       batches for a peer, and how they are sent
 *   door.c       hands descriptors from process to process on one host
 *   peer_ring.c  the rings that peers of one host share; the order of messages
 *   receive.c    receives from sockets and rings, and hands messages over
 *
 * net->lock guards every field, unless its comment says otherwise. A caller of a function whose
 * name ends in `_locked` holds that lock. The net owns sockets and peers. Peers are counted, so
 * other code may hold one longer than the net does. */
#ifndef EXO_NET_PEER_IMPL_H
#define EXO_NET_PEER_IMPL_H

#include <stdatomic.h>

#include <uthash.h>
#include <zmq.h>

#include "base/identity.h"
#include "net/door.h"
#include "net/intake.h"
#include "net/net.h"
#include "net/net_limits.h"
#include "net/process.h"
#include "net/ring.h"

enum {
    EXO_NET_ROUTE = 8,          /* bytes of a routing id; ZeroMQ's own have 5 */
    EXO_NET_PROOF = 96,         /* longest proof, with its 0 */
    EXO_NET_MESSAGE_BYTES = 128 /* overhead that a message counts, beside its frames */
};

typedef struct exo_socket exo_socket;
typedef struct exo_parcel exo_parcel; /* a message that waits for the peer's window (send.c) */
typedef struct exo_kept exo_kept;     /* a received message that waits for its turn (receive.c) */

/* The target of an event of the loop. */
typedef struct exo_source {
    enum {
        EXO_SOURCE_KICK,
        EXO_SOURCE_SOCKET,
        EXO_SOURCE_PROCESS,
        EXO_SOURCE_BELL,
        EXO_SOURCE_DOOR,
    } kind;
    void *owner;
} exo_source;

typedef enum exo_peer_state {
    EXO_PEER_GREETING, /* our Hello is on its way */
    EXO_PEER_OPEN,
    EXO_PEER_LOST_,
} exo_peer_state;

struct exo_peer {
    atomic_uint references; /* one of the net's until the peer is lost, and those of others */
    _Atomic(exo_peer_state) state; /* any thread may read; written under net->lock */
    atomic_bool full;     /* has unread data beyond the limits; read and written as `state` is */
    _Atomic(void *) user; /* the handler's */
    char cause[EXO_ERR_TEXT]; /* of its loss; written before `state` says so, then constant */

    /* Its identity (handshake.c). Written before the peer is open, then constant and read without a
     * lock. */
    bool near;
    bool own_user; /* of a process that is near: it is this user's */
    bool by_ipc;   /* it greeted by an ipc socket */
    uint64_t node, start;
    uint32_t pid;
    char name[EXO_WIRE_NAME], endpoint[EXO_WIRE_NAME];
    exo_identity *identity;    /* the proven part (proof.c); held until the peer is freed */
    char proof[EXO_NET_PROOF]; /* what each of its frames must prove, if the peer connected to us */

    /* Its connection (handshake.c, peer.c). */
    exo_socket *socket; /* NULL when lost */
    uint8_t route[EXO_NET_ROUTE];
    size_t route_size; /* 0: the socket is the peer's own */
    exo_intake_ticket intake;
    uint64_t read;        /* bytes of the connection, up to the last tick (exo_intake_read) */
    unsigned ended_ticks; /* since the last message of a connection that has ended */
    exo_time heard_last;  /* `heard` at the last of these */
    bool announced;       /* the handler knows the peer, and will be told of its loss */
    bool mourned;         /* the handler was told; owner: the driver */
    bool refused;         /* it refused, or sent what no net sends: no other attempt can succeed */
    exo_source process;   /* the event of its process's end; for a process of this host */
    int process_fd;       /* the pidfd of the process that it claims to be; -1: not watched */
    exo_time heard, spoke;
    /* watches: it watches this process. told_watch: it was told that we watch it. */
    bool watches, told_watch;

    /* Sending (send.c). Frames that remain after a loss belong to the thread that takes the peer
     * from the list of lost peers. */
    exo_wire_writer writer;
    zmq_msg_t *frames; /* large payloads of the writer's envelopes */
    size_t num_frames, cap_frames;
    bool dirty; /* in the list of peers with something to send */
    exo_parcel *first_parcel, *last_parcel;
    uint64_t parcel_bytes; /* bytes in the parcels */
    uint64_t parcel_envelopes;
    /* Bytes of replies' payloads: in the parcels; in the writer and its frames. */
    uint64_t parcel_replies, gathered_replies;
    bool choked;      /* a reply was refused, and the peer has read nothing since */
    exo_time read_at; /* when it last read something, or had read all */
    uint32_t sent;    /* messages */
    /* sent to it; read by it, by its own word. Both are counted as in Beat. */
    uint64_t sent_bytes, read_bytes;

    /* Receiving (receive.c). */
    uint32_t received;                   /* messages */
    uint64_t received_bytes, told_bytes; /* received from it; the part of which it was told */
    uint8_t *landing;                    /* a payload that arrives in pieces; NULL: none */
    size_t landing_size, landed;
    /* Messages that came before their turn, or whose rest waits. */
    exo_kept *first_kept, *last_kept;
    uint64_t kept_bytes;

    /* Rings with a process of this host (peer_ring.c). NULL: the socket carries everything. */
    exo_ring *in, *out, *promised; /* promised: becomes `out` when the other process has it */
    int bell;                      /* each end wakes the other by it; -1: none */
    exo_source bell_source;
    uint64_t token;           /* the secret for the door; 0: none */
    char door[EXO_DOOR_PATH]; /* of a listener that we connected to by a path; "": none */
    /* since when `in` has a message whose predecessor is missing; 0: none is missing */
    exo_time gap_since;

    /* Lists and tables of the net. */
    exo_peer *next_dirty;
    exo_peer *next_lost;
    UT_hash_handle by_route; /* in its socket's table */
    exo_peer *prev, *next;   /* in the list of peers that are greeting or open */
};

/* The pointer `zmq` never changes. The ZeroMQ socket itself is used under net->lock only. */
struct exo_socket {
    exo_source source;
    void *zmq;
    exo_peer *peer; /* of a DEALER; NULL: a ROUTER */
    int door;       /* of a ROUTER with a path; -1: none */
    exo_source door_source;
    char door_path[EXO_DOOR_PATH];
    exo_peer *peers; /* of a ROUTER, by route */
    bool ready;      /* may have messages */
    /* How the other end proves its identity; set when the socket is bound or connected. */
    bool with_keys, ipc;
    char server_key[EXO_KEY_TEXT]; /* of a DEALER: the only key that the other end can have */
    void *monitor;                 /* of a connection that is being made (attempt.c), or NULL */
    exo_time connected;            /* by the monitor: the time of the latest connection; 0: none */
    bool decided;     /* the monitor has reported an outcome of that connection's handshake */
    bool turned_away; /* a connection was refused, or ended before it was there, by the monitor */
    unsigned broken_off; /* handshakes that the other end broke off, by the monitor */
    exo_socket *prev, *next;
};

/* --- socket.c --------------------------------------------------------------------------------- */

/* Opens a socket and adds it to the event loop. */
exo_status exo_net_add_socket_locked(exo_net *net, int type, exo_socket **out, exo_err *err);
void exo_net_remove_socket_locked(exo_net *net, exo_socket *socket);
/* Limits the size of frames and, of a listener, the time of a handshake. Call it after the keys
 * were set and before the socket binds or connects. */
void exo_socket_limit(exo_socket *socket, bool listens);
/* Lets a socket bind or connect to an IPv6 address, which stands in brackets. Names and all other
 * addresses are IPv4: with IPv6, ZeroMQ would look for nothing else under a name that has both.
 * Call it before the socket binds or connects. */
void exo_socket_choose_family(exo_socket *socket, const char *endpoint);
/* Checks for received messages after something was sent on the socket. */
void exo_socket_look_locked(exo_net *net, exo_socket *socket);
/* None of these waits. False: not possible now, or not any more. ZeroMQ owns a frame that was
 * sent. */
bool exo_socket_send_bytes(void *zmq, const void *data, size_t size, int flags);
bool exo_socket_send_frame(void *zmq, zmq_msg_t *frame, int flags);
bool exo_socket_receive_frame(void *zmq, zmq_msg_t *frame);

/* --- peer.c ----------------------------------------------------------------------------------- */

/* Makes a peer in the state GREETING and enters it into the net's table. The reference is the
 * net's; a caller that keeps the peer holds it. NULL: no memory. */
exo_peer *exo_peer_new_locked(exo_net *net, exo_socket *socket);
/* Ends a connection without telling the other end. The handler is told by exo_net_report_lost. A
 * caller that uses the peer afterwards must hold it. */
void exo_peer_lose_locked(exo_net *net, exo_peer *peer, const char *cause);
/* The same, after a Goodbye with the cause to a peer that was welcomed. */
void exo_peer_dismiss_locked(exo_net *net, exo_peer *peer, const char *cause);
/* Tells the handler of the lost peers; called without the lock. True: the handler has more to do
 * for some of them. */
bool exo_net_report_lost(exo_net *net);
/* Whether the end of its process is certain to be seen, so that its silence means nothing. */
bool exo_peer_is_watched(const exo_peer *peer);
/* If the tick at `now` is late by more than a beat, this process did not run, as under SIGSTOP or in
 * a virtual machine that was paused: that time is no silence of its peers, which may have stood
 * still as well, and whose messages have not been read yet. Call it before the tick. */
void exo_net_excuse_silence_locked(exo_net *net, exo_time now);
/* Sends beats; finds silent, stuck and revoked peers. */
void exo_net_tick_locked(exo_net *net, exo_time now);
/* What the intake kept out for earlier nets of this process is not counted for this one. Before any
 * thread of the net. */
void exo_net_count_from_now(exo_net *net);
/* Replaces control characters. A peer's text that is shown to people must not begin a line of its
 * own. */
void exo_net_make_plain(char *text);

/* --- attempt.c -------------------------------------------------------------------------------- */

/* Begins to watch a connection attempt; called before the socket connects. Ends with
 * exo_attempt_end_locked or with the socket. */
exo_status exo_attempt_watch_locked(exo_net *net, exo_socket *socket, exo_err *err);
/* The reason for which the attempt has failed, as far as ZeroMQ knows by now; NULL: it may succeed.
 * with_key: the caller gave the other end's key. */
const char *exo_attempt_hear_locked(exo_socket *socket, bool with_key);
void exo_attempt_end_locked(exo_socket *socket);
/* Whether a connection exists that has carried nothing yet, as of the latest
 * exo_attempt_hear_locked. */
bool exo_attempt_is_silent(const exo_socket *socket);
/* Whether nothing has taken or refused a connection, as of the same. */
bool exo_attempt_is_unheard(const exo_socket *socket);

/* --- proof.c ---------------------------------------------------------------------------------- */

/* The proven identity of the frame's sender, as text; "": none. */
const char *exo_proof_of_frame(const exo_socket *socket, const zmq_msg_t *frame);
/* What is known of the frame's sender, whether a peer or not; without a role. */
void exo_proof_describe(const exo_socket *socket, const zmq_msg_t *frame, exo_identity *out);
/* Gives a peer its identity after its Hello or Welcome. False: the proof contradicts its claims. */
bool exo_proof_bind_locked(exo_net *net, exo_peer *peer, const zmq_msg_t *frame, exo_err *err);
/* The reason for which an admitted peer is not admitted any more: its key was removed, has expired
 * (EXO_PROOF_EXPIRED), or has another meaning. NULL: none. */
#define EXO_PROOF_EXPIRED "its key has expired"
const char *exo_proof_judge(const exo_net *net, const exo_peer *peer);
/* Whether a frame that came by the peer's route is from the process that said Hello there. */
bool exo_proof_holds_locked(const exo_socket *socket, const exo_peer *peer, const zmq_msg_t *frame);

/* --- handshake.c ------------------------------------------------------------------------------ */

/* The first half of exo_net_connect: connects and sends the Hello. *out is held. */
exo_status exo_net_begin_connect_locked(exo_net *net, const char *endpoint, const char *key,
                                        exo_peer **out, exo_err *err);
/* Handles the Welcome of a peer that we greeted. A Welcome of any other peer is ignored. */
void exo_net_welcomed_locked(exo_net *net, exo_peer *peer, const exo_wire_identity *who,
                             const zmq_msg_t *frame);
/* The peer answered the Hello with something other than a Welcome. Ignored for a peer that has been
 * welcomed. */
void exo_net_refused_locked(exo_peer *peer);
/* Handles a Hello on a ROUTER and makes the route a peer, held for the caller. NULL: refused. */
exo_peer *exo_net_greet_locked(exo_net *net, exo_socket *socket, const zmq_msg_t *route,
                               const zmq_msg_t *frame, const exo_wire_identity *who,
                               uint32_t number);
/* Tells a route that is no peer why it is refused. */
void exo_net_refuse_locked(exo_net *net, exo_socket *socket, const zmq_msg_t *route,
                           const char *why);
/* Called with each tick: allows further refusals to be answered and logged. */
void exo_net_forgive_refusals_locked(exo_net *net);

/* --- send.c ----------------------------------------------------------------------------------- */

/* Sends the batches of all peers. A peer to which sending fails is lost. */
void exo_net_flush_locked(exo_net *net);
/* Sends an envelope between nets at once. The peer may be lost by it. */
void exo_peer_say_locked(exo_net *net, exo_peer *peer, exo_envelope *envelope);
/* Sends a Beat: this process is alive, and has read so many bytes. */
void exo_peer_say_beat_locked(exo_net *net, exo_peer *peer);
/* Sends waiting parcels, as far as the window allows. The peer may be lost by it. */
void exo_peer_pump_locked(exo_net *net, exo_peer *peer);
/* Whether the peer has much to read and has read nothing for `peer_timeout`. */
bool exo_peer_is_stuck_locked(exo_net *net, exo_peer *peer, exo_time now);
/* Called without the lock, for a lost peer. */
void exo_peer_drop_parcels(exo_peer *peer);
/* Decides again whether calls to the peer fail with FULL; called after a send to it and after it
 * has read. */
void exo_peer_judge_window_locked(exo_net *net, exo_peer *peer);

/* --- peer_ring.c ------------------------------------------------------------------------------ */

/* Offers rings to a process of this host that came by a path. Without rings its socket carries
 * everything. The peer may be lost by it. */
void exo_peer_offer_ring_locked(exo_net *net, exo_peer *peer);
/* Accepts the offer of a listener: makes the rings and knocks. */
void exo_peer_accept_ring_locked(exo_net *net, exo_peer *peer, const exo_envelope *offer);
/* Knocks again, if there is an offer and the door was full. */
void exo_peer_knock_locked(exo_net *net, exo_peer *peer);
/* Takes in the processes that knock. */
void exo_net_answer_door_locked(exo_net *net, exo_socket *socket);
/* The other process has rung the bell, or has closed it. */
void exo_peer_hear_bell_locked(exo_net *net, exo_peer *peer);
void exo_peer_close_rings_locked(exo_net *net, exo_peer *peer);
/* Whether the next message of the peer lies in its ring. A message there with another number waits
 * for its predecessors, which come by the socket. */
bool exo_peer_is_due_locked(exo_peer *peer);
/* Whether a message by the socket has been missing for so long that it will not come any more. */
bool exo_peer_has_gap_locked(exo_peer *peer, exo_time now);
/* Whether any message that is due lies in a ring, or was kept. */
bool exo_net_has_rung_locked(exo_net *net);
/* From now on, a writer into a ring wakes this process. Check the rings once more afterwards. */
void exo_net_sleep_locked(exo_net *net);

/* --- receive.c -------------------------------------------------------------------------------- */

/* Receives one message of a socket or ring and hands over its envelopes, or a part of them that
 * takes about a millisecond. Gives the number of envelopes plus 1; 0: there was no message. Called
 * without the lock, by the driver. */
size_t exo_net_receive(exo_net *net);
/* Called for a lost peer. */
void exo_peer_drop_kept_locked(exo_peer *peer);

#endif
