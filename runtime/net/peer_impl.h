/* Inside of connections: peers and the sockets that they come by. Read net_impl.h first.
 *
 * One job a file, in the order of a connection's life:
 *
 *   socket.c     ZeroMQ's sockets: made, entered into the loop, used without waiting
 *   handshake.c  Hello, Welcome, Refused: who is there, and who is no peer
 *   proof.c      what of that is proven
 *   peer.c       the table of peers: made, found silent, lost
 *   send.c       what gathers for a peer, and how it goes out
 *   door.c       descriptors that processes of one host hand each other
 *   peer_ring.c  the rings that peers of one host share, and which message is due
 *   receive.c    what comes, by socket or ring, and to whom it is handed over
 *
 * Every field is guarded by net->lock unless it says otherwise, and functions whose names end in
 * `_locked` want that lock. The net owns sockets and peers; a peer is counted, so that others may
 * hold it longer than that. */
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
    EXO_NET_ROUTE = 8,          /* bytes of a routing id; ZeroMQ's own have 5       */
    EXO_NET_PROOF = 96,         /* longest proof, with its 0                        */
    EXO_NET_MESSAGE_BYTES = 128 /* that a message counts besides those of its frames */
};

typedef struct exo_socket exo_socket;
typedef struct exo_parcel exo_parcel; /* a message that waits for the peer to read (send.c) */
typedef struct exo_kept exo_kept; /* a message of the peer that waits for its turn (receive.c) */

/* What an event of the loop belongs to. */
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
    atomic_uint references;        /* the net's until it is lost, and those of others */
    _Atomic(exo_peer_state) state; /* read by anybody, written under net->lock */
    atomic_bool full;         /* it has not read what it should; read and written as `state` is */
    _Atomic(void *) user;     /* the handler's */
    char cause[EXO_ERR_TEXT]; /* of its loss: written before its state says so, then constant */

    /* Who it is (handshake.c): written before it is open, then constant, and read without lock. */
    bool near;
    uint64_t node, start;
    uint32_t pid;
    char name[EXO_WIRE_NAME], endpoint[EXO_WIRE_NAME];
    exo_identity *identity;    /* what of it is proven (proof.c); held until the peer is freed */
    char proof[EXO_NET_PROOF]; /* that each of its frames has, of who came to us               */

    /* Its connection (handshake.c, peer.c). */
    exo_socket *socket; /* NULL when lost */
    uint8_t route[EXO_NET_ROUTE];
    size_t route_size; /* 0: the socket is the peer's own */
    exo_intake_ticket intake;
    bool announced;     /* the handler knows it: it hears of its loss */
    bool mourned;       /* it has; the driver's */
    bool refused;       /* instead of a Welcome it said no, or what no net says */
    exo_source process; /* its event; of a process of this host */
    int process_fd;     /* of the process that it says it is; -1: it is not watched */
    exo_time heard, spoke;
    bool watches, told_watch; /* it watches this process; it was told the same of us */

    /* What is sent (send.c). Frames that a loss leaves behind belong to who takes the peer from the
     * list of the lost. */
    exo_wire_writer writer;
    zmq_msg_t *frames; /* large payloads of what the writer holds */
    size_t num_frames, cap_frames;
    bool dirty; /* in the list of those with something to send */
    exo_parcel *first_parcel, *last_parcel;
    uint64_t parcel_bytes; /* of these, as the next */
    uint64_t parcel_envelopes;
    /* bytes of replies' payloads in parcels; in the writer and its frames */
    uint64_t parcel_replies, gathered_replies;
    bool choked;                     /* a reply was refused, and it has read nothing since */
    exo_time read_at;                /* when it had last read something, or all */
    uint32_t sent;                   /* messages */
    uint64_t sent_bytes, read_bytes; /* to it; by it, as it says. Both as Beat counts */

    /* What has come (receive.c). */
    uint32_t received;                   /* messages */
    uint64_t received_bytes, told_bytes; /* from it; of these it knows */
    uint8_t *landing;                    /* a payload that comes in pieces; NULL: none */
    size_t landing_size, landed;
    exo_kept *first_kept, *last_kept; /* messages whose turn has not come, or is not over */
    uint64_t kept_bytes;

    /* Rings with a process of this host (peer_ring.c). NULL: all goes through the socket. */
    exo_ring *in, *out, *promised; /* promised: becomes `out` when the other side has it */
    int bell;                      /* both wake the other by it; -1: there is none       */
    exo_source bell_source;
    uint64_t token;           /* what is to be said at the door; 0: nothing is  */
    char door[EXO_DOOR_PATH]; /* of whom we connected to by a path; "": there is none */
    exo_time gap_since; /* `in` has a message, and one before it is missing; 0: it is not so */

    /* Lists and tables of the net. */
    exo_peer *next_dirty;
    exo_peer *next_lost;
    UT_hash_handle by_route; /* in its socket's table */
    exo_peer *prev, *next;   /* of all that are greeting or open */
};

/* The pointer `zmq` never changes; what it points to is used under net->lock only. */
struct exo_socket {
    exo_source source;
    void *zmq;
    exo_peer *peer; /* of a DEALER; NULL: a ROUTER */
    int door;       /* of a ROUTER with a path; -1: none */
    exo_source door_source;
    char door_path[EXO_DOOR_PATH];
    exo_peer *peers; /* of a ROUTER, by route */
    bool ready;      /* has messages */
    bool with_keys,
        /* how who is at the other end proves who it is; set when it is bound or connected, as the
         * next */
        ipc;
    char server_key[EXO_KEY_TEXT]; /* of a DEALER: the only key that the other end can have */
    void *monitor;                 /* of a connection that is being made (attempt.c), or NULL */
    exo_time connected;            /* by the monitor: when there was a connection last */
    bool decided;        /* by the monitor: of that connection's handshake there was a word */
    unsigned broken_off; /* by the monitor: handshakes that the other end has broken off */
    exo_socket *prev, *next;
};

/* --- socket.c --------------------------------------------------------------------------------- */

/* Opens a socket and enters it into the loop. */
exo_status exo_net_add_socket_locked(exo_net *net, int type, exo_socket **out, exo_err *err);
void exo_net_remove_socket_locked(exo_net *net, exo_socket *socket);
/* How long a handshake with who connects may take, and a frame be. After its keys were set, before
 * it binds or connects. */
void exo_socket_limit(exo_socket *socket, bool listens);
/* Looks whether something has come in, after something was sent on the socket. */
void exo_socket_look_locked(exo_net *net, exo_socket *socket);
/* Without waiting; false: it cannot be done now, or not any more. A frame that was sent is
 * ZeroMQ's. */
bool exo_socket_send_bytes(void *zmq, const void *data, size_t size, int flags);
bool exo_socket_send_frame(void *zmq, zmq_msg_t *frame, int flags);
bool exo_socket_receive_frame(void *zmq, zmq_msg_t *frame);

/* --- peer.c ----------------------------------------------------------------------------------- */

/* A peer in the net's table, greeting. It is the net's; who wants to keep it holds it. NULL: no
 * memory. */
exo_peer *exo_peer_new_locked(exo_net *net, exo_socket *socket);
/* Ends a connection, without a word to the other end; the handler hears of it by
 * exo_net_report_lost. The peer must be held to be looked at afterwards. */
void exo_peer_lose_locked(exo_net *net, exo_peer *peer, const char *cause);
/* Tells the handler of the lost. Without lock. */
/* True: the handler is not through with all of them. */
bool exo_net_report_lost(exo_net *net);
/* Whether the end of its process is seen for certain, so that its silence means nothing. */
bool exo_peer_is_watched(const exo_peer *peer);
/* Beats, silences. */
void exo_net_tick_locked(exo_net *net, exo_time now);
/* What a peer says is shown to people: it begins no line of its own. */
void exo_net_make_plain(char *text);

/* --- attempt.c -------------------------------------------------------------------------------- */

/* From before it connects on, until exo_attempt_end_locked or the socket's end. */
exo_status exo_attempt_watch_locked(exo_net *net, exo_socket *socket, exo_err *err);
/* Why no connection will come of it, as far as ZeroMQ knows by now; NULL: it may. `with_key`: it
 * was given the other end's key. */
const char *exo_attempt_hear_locked(exo_socket *socket, bool with_key);
void exo_attempt_end_locked(exo_socket *socket);
/* There is a connection, and no word has come by it. As of the latest exo_attempt_hear_locked. */
bool exo_attempt_is_silent(const exo_socket *socket);

/* --- proof.c ---------------------------------------------------------------------------------- */

/* What is proven of who sent the frame; "": nothing. */
const char *exo_proof_of_frame(const exo_socket *socket, const zmq_msg_t *frame);
/* What is known of who sent the frame, be it a peer or not; without a role. */
void exo_proof_describe(const exo_socket *socket, const zmq_msg_t *frame, exo_identity *out);
/* Gives a peer that has said who it is its identity. False: it is not who it says. */
bool exo_proof_bind_locked(exo_net *net, exo_peer *peer, const zmq_msg_t *frame, exo_err *err);
/* Why a peer that was let in is not any more: its key was taken away, has expired (that text
 * itself), or means something else; NULL: it is. */
#define EXO_PROOF_EXPIRED "its key has expired"
const char *exo_proof_judge(const exo_net *net, const exo_peer *peer);
/* Whether a frame that came by the peer's route is of the one that said Hello there. */
bool exo_proof_holds_locked(const exo_socket *socket, const exo_peer *peer, const zmq_msg_t *frame);

/* --- handshake.c ------------------------------------------------------------------------------ */

/* The first half of exo_net_connect: the Hello is on its way. *out is held. */
exo_status exo_net_begin_connect_locked(exo_net *net, const char *endpoint, const char *key,
                                        exo_peer **out, exo_err *err);
/* The Welcome of a peer that we greeted; of any other it means nothing. */
void exo_net_welcomed_locked(exo_net *net, exo_peer *peer, const exo_wire_identity *who,
                             const zmq_msg_t *frame);
/* What it said was no Welcome. Of a peer that has been welcomed it means nothing. */
void exo_net_refused_locked(exo_peer *peer);
/* A Hello on a ROUTER: from now on the route is a peer, which is held for the caller. NULL: it was
 * refused. */
exo_peer *exo_net_greet_locked(exo_net *net, exo_socket *socket, const zmq_msg_t *route,
                               const zmq_msg_t *frame, const exo_wire_identity *who,
                               uint32_t number);
/* Tells a route that is no peer why it is not listened to. */
void exo_net_refuse_locked(exo_net *net, exo_socket *socket, const zmq_msg_t *route,
                           const char *why);
/* As time goes by, more may be refused aloud. */
void exo_net_forgive_refusals_locked(exo_net *net);

/* --- send.c ----------------------------------------------------------------------------------- */

/* Sends what has gathered for all peers. One to which it cannot be sent is lost. */
void exo_net_flush_locked(exo_net *net);
/* Says something between nets, at once. The peer may be lost by it. */
void exo_peer_say_locked(exo_net *net, exo_peer *peer, exo_envelope *envelope);
/* Says that we are here, and how much was read. */
void exo_peer_say_beat_locked(exo_net *net, exo_peer *peer);
/* Sends what waits for the peer to read, as far as it has. The peer may be lost by it. */
void exo_peer_pump_locked(exo_net *net, exo_peer *peer);
/* Whether it has much to read, and reads nothing. */
bool exo_peer_is_stuck_locked(exo_net *net, exo_peer *peer, exo_time now);
/* Without lock, of a lost one. */
void exo_peer_drop_parcels(exo_peer *peer);
/* Whether calls to it give FULL, after it was sent something or has read something. */
void exo_peer_judge_window_locked(exo_net *net, exo_peer *peer);

/* --- peer_ring.c ------------------------------------------------------------------------------ */

/* Tells a process of this host that came by a path what to say at the door. It is no loss if it
 * never knocks. The peer may be lost by it. */
void exo_peer_offer_ring_locked(exo_net *net, exo_peer *peer);
/* Takes the offer of whom we connected to: makes rings, and knocks. */
void exo_peer_accept_ring_locked(exo_net *net, exo_peer *peer, const exo_envelope *offer);
/* Knocks, if there is an offer and others were in the way until now. */
void exo_peer_knock_locked(exo_net *net, exo_peer *peer);
/* Lets in who knocks. */
void exo_net_answer_door_locked(exo_net *net, exo_socket *socket);
/* The other side has rung, or has gone. */
void exo_peer_hear_bell_locked(exo_net *net, exo_peer *peer);
void exo_peer_close_rings_locked(exo_net *net, exo_peer *peer);
/* Whether the next message of the peer lies in its ring. One with another number waits for those
 * before it, which come by the socket. */
bool exo_peer_is_due_locked(exo_peer *peer);
/* Whether a message by the socket is missing for so long that it will not come any more. */
bool exo_peer_has_gap_locked(exo_peer *peer, exo_time now);
/* Whether a message that is due lies in a ring, or was kept. */
bool exo_net_has_rung_locked(exo_net *net);
/* Those that put a message into a ring wake us. Look whether there is one afterwards. */
void exo_net_sleep_locked(exo_net *net);

/* --- receive.c -------------------------------------------------------------------------------- */

/* Receives one message of a socket or ring that is ready, and hands over what is in it, or a part
 * that takes about a millisecond. Gives the number of envelopes and one more; 0: there was none.
 * Without lock, by the driver. */
size_t exo_net_receive(exo_net *net);
/* Of a lost peer. */
void exo_peer_drop_kept_locked(exo_peer *peer);

#endif
