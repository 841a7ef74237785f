/* An actor's place in a running graph: its ports, and the ends of the channels behind them.
 * docs/channels.md has the protocol.
 *
 * A channel joins one sender and one receiver of one edge. Its sending end, an outlet, holds the
 * items that wait to be transmitted (the outbox). Small ones are transmitted by whoever brings the
 * item or the credit; large ones, and those that pass an emulated link, by a thread of the outlet's
 * own, so that the actor computes on. Its receiving end, an inlet, decodes what comes on the mail
 * lane and puts it into the port's queue. A credit is room in the receiver's buffer: without one
 * nothing is transmitted, unless the edge drops.
 *
 * On the virtual clock there are no such threads: transmissions and arrivals are events of the
 * simulation (outlet.c), and messages go straight to the other end's place.
 *
 * While an actor waits in send, each of its inputs on a feedback edge (spec.h) keeps a credit out,
 * beyond the capacity of its buffer if it must be: so a wait for room always ends at somebody who
 * computes or receives, and actors that send to each other in a circle cannot all wait.
 *
 * One lock guards everything in a place that more than its own thread touches; it is held for a few
 * instructions and never while something is encoded, sent or called. Read next: port.c (the actor's
 * side), outlet.c, inlet.c, host.c (the actor class). */
#ifndef EXO_GRAPH_PLACE_H
#define EXO_GRAPH_PLACE_H

#include <pthread.h>

#include <exogym/actor.h>
#include <exogym/meter.h>
#include <exogym/traffic.h>

#include "graph/item.h"
#include "graph/site.h"
#include "graph/stall.h"

enum {
    EXO_OUTBOX = 1, /* items that wait at a sender, besides the one that is being transmitted */
    /* Items up to this size need no thread: to encode and to copy one takes less than to wake
     * another thread. */
    EXO_LIGHT_ITEM = 16 << 10,
    /* What one message puts on a wire beside itself: the call's envelope and ZeroMQ's framing, over
     * tcp without keys, on average: a credit and a large item differ by a few bytes.
     * tests/cluster/wire.sh compares it with what the kernel counts. */
    EXO_CHANNEL_ENVELOPE = 60
};

/* The sending end of a channel. Guarded by the place's lock, but for the codec: of whoever
 * transmits. */
typedef struct exo_outlet {
    exo_place *place;
    const exo_edge_spec *edge;
    exo_links *links;      /* what it passes over; NULL: nothing is emulated */
    uint32_t edge_id, to;  /* `to`: index of the receiver among its name's */
    exo_ref target;        /* where the place is not on the virtual clock */
    _Atomic uint64_t node; /* of the target's process; 0: not known yet */
    exo_codec *codec;
    exo_traffic *traffic; /* of the edge at this actor */
    struct exo_outgoing {
        exo_item *item; /* held */
        uint64_t number;
    } outbox[EXO_OUTBOX];
    uint32_t waiting; /* in the outbox */
    uint64_t number;  /* of the next item that is put or given up */
    uint64_t left;    /* of the item after the last one that left */
    uint32_t credits;
    /* (capacity) those on their way over an emulated link: when they are there */
    exo_time *credit_due;
    uint32_t credits_coming, capacity;
    bool finished;  /* END is to be sent after what waits */
    bool ending;    /* it is being sent */
    bool ended;     /* it was sent, or there is nobody to send it to */
    bool gone;      /* the receiver takes nothing any more */
    bool busy;      /* something is being transmitted */
    bool passing;   /* what is has been encoded, and is on an emulated link */
    bool connected; /* its target is known */
    bool has_thread;
    pthread_t thread;
    pthread_cond_t changed; /* wakes the thread */
} exo_outlet;

/* The receiving end. Guarded by the place's lock, but for the codec: of whoever delivers. */
typedef struct exo_inlet {
    exo_place *place;
    const exo_edge_spec *edge;
    exo_links *links; /* of its answers */
    uint32_t edge_id, from;
    exo_ref sender;
    _Atomic uint64_t node; /* of the sender's process; 0: not known yet */
    exo_codec *codec;
    exo_traffic *traffic; /* of the edge at this actor */
    uint64_t expected;    /* number of the next item */
    uint32_t buffered;    /* items in the port's queue */
    uint32_t out;         /* credits that were granted, and no item has come for them */
    bool ended;           /* END came */
    bool gone;            /* GONE was said */
} exo_inlet;

/* An item that has arrived. */
typedef struct exo_arrival {
    struct exo_arrival *next;
    exo_inlet *inlet;
    exo_item *item;
    exo_time ready; /* it may be received from then on; from the run's origin */
} exo_arrival;

/* One edge at one port. It stays where it is in memory for the life of the place. An edge that is
 * changed while the graph runs is another one; the old one is retired: nothing new goes over it,
 * and what is in it arrives. */
typedef struct exo_port_edge {
    const exo_edge_spec *edge;
    uint32_t id; /* of the edge in messages */
    /* generations of the port: an item that is put while the port is at g goes over the edges
     * of born <= g < retired */
    uint64_t born, retired;
    bool finished; /* retired, and its outlets were told to end */
    exo_outlet *outlets;
    exo_inlet *inlets;
    uint32_t count; /* of either */
    uint64_t sends; /* to this edge, those that `every` leaves out included */
    uint64_t turn;  /* round_robin, modulo; draws of gossip */
    exo_traffic traffic;
} exo_port_edge;

struct exo_port {
    exo_place *place;
    const exo_graph_port *class_port;
    exo_port_edge **edges;
    uint32_t num_edges, room;
    uint64_t generation;       /* counts changes */
    bool inside;               /* the actor is in exo_port_send */
    exo_arrival *first, *last; /* of an input: in the order of `ready` */
    bool finished;
};

/* A collective that the actor takes part in. */
typedef struct exo_port_group {
    const exo_edge_spec *edge;
    uint32_t id;
    exo_comm *comm; /* held */
    exo_group *group;
} exo_port_group;

/* What the actor waits for in a port; waits in collectives are the communicators' to tell. */
typedef struct exo_place_wait {
    exo_wait_kind kind;
    exo_port *port;           /* SEND, RECEIVE */
    const exo_outlet *outlet; /* SEND */
    bool ends_by_itself;      /* it gave a timeout of its own: it goes on without */
    exo_time since;           /* from the run's origin */
} exo_place_wait;

struct exo_graph_actor {
    char name[96];
    uint32_t index, count;
    exo_site *site;
};

struct exo_place {
    struct exo_graph_actor actor; /* first: what the class sees is the place */
    const exo_actor_spec *spec;
    uint32_t spec_index, host;
    exo_runtime *runtime; /* messages go through it; NULL on the virtual clock */
    /* one for each of the class's, in its order; without edges those that the graph does not use */
    exo_port *ports;
    exo_port_group *groups; /* likewise */
    exo_pace pace;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool waiting;        /* virtual clock: its lane waits for a signal */
    const void *awaited; /* real clock: what its thread waits for, see exo_place_wait_locked */
    bool sending;        /* the actor waits in send */
    exo_place_wait wait;
    uint64_t moves;     /* counts the beginnings and ends of waits, and what may end one */
    bool cancelled;     /* everything is to end */
    exo_err failed;     /* what ended the place: code OK: nothing */
    exo_meters *meters; /* the class's own */
    /* when its class's run was over, on the run's clock; of the actor's thread */
    exo_time ended_at;
};

exo_status exo_place_new(exo_place **out, exo_site *site, uint32_t spec_index, uint32_t index,
                         exo_runtime *runtime, exo_err *err);
/* After exo_place_stop. */
void exo_place_free(exo_place **place);
/* Says who the others are: references of all actors of the graph in the order of site->first;
 * starts the outlets' threads. */
exo_status exo_place_connect(exo_place *place, const exo_ref *actors, exo_err *err);
/* Takes over what the site's next graph says, in two steps, after each of which all places must be
 * done before the next: first every receiver makes the inlets of new edges, then every sender makes
 * their outlets and retires the edges that are not there any more. The actors go on meanwhile.
 * `refs` as above. On the virtual clock with the baton, and outside of lanes. */
exo_status exo_place_change_inputs(exo_place *place, const exo_ref *actors, exo_err *err);
exo_status exo_place_change_outputs(exo_place *place, const exo_ref *actors, exo_err *err);
/* Nothing more is sent or taken: outputs end after what they hold, senders are told. Waits until
 * all has left, at most `timeout`. In the actor's thread. */
exo_status exo_place_finish(exo_place *place, exo_time timeout, exo_err *err);
/* Ends every wait with CANCELLED. Any thread. */
void exo_place_cancel(exo_place *place);
/* Ends the outlets' threads. */
void exo_place_stop(exo_place *place);
/* Ends the place with an error that is not the class's: what is sent or received next gives it. */
void exo_place_fail(exo_place *place, const exo_err *reason);
/* Takes a message for one of its ends; *message is moved. On the mail lane, or with the baton at
 * time `now`. from: the process that sent it, 0: this one. INVAL: it is for none of them, or of
 * another process than the one at the other end, and changes nothing; or what the other end of a
 * channel said cannot be, and the place fails with it. */
exo_status exo_place_deliver(exo_place *place, exo_payload *message, uint64_t from, exo_err *err);

/* On the run's clock, from its origin. */
exo_time exo_place_now(const exo_place *place);
/* Sleeps until a signal, or `until`; under the lock, which is open meanwhile. In the actor's
 * thread. `what` it waits for is an outlet (room in its outbox), an input port (an item, or the
 * end), or the place (all that was sent has left). */
void exo_place_wait_locked(exo_place *place, const void *what, exo_time until);
/* Wakes the actor's thread if it waits for `what`; on the virtual clock whatever it waits for, at
 * `at`. Under the lock. */
void exo_place_signal_locked(exo_place *place, const void *what, exo_time at);

/* Around a wait at a port. Under the lock. */
void exo_place_wait_begin_locked(exo_place *place, exo_place_wait wait);
void exo_place_wait_end_locked(exo_place *place);
/* What the actor waits for, and the ends of its channels, for whoever looks for stalls: *out, which
 * the caller releases, is empty if it does not wait, or not since `longer_than`, and nothing of it
 * is on its way. Any thread, while the actor lives. */
/* look.c */
exo_status exo_place_look(exo_place *place, exo_time longer_than, exo_payload *out, exo_err *err);

/* Does the actor wait for nobody but such as are `stuck` (all actors of the graph), and so may be
 * stuck itself? What is on its way is left out of account; no memory is taken. scratch, counts:
 * room for one and for two numbers of each actor. *mark is changed by anything that happens to the
 * wait. Any thread, while all actors live in this process. look.c */
bool exo_place_may_be_stuck(exo_place *place, const bool *stuck, uint32_t *scratch,
                            uint64_t *counts, uint64_t *mark);

/* Tells the outlets of retired edges to end, unless the actor is about to send over them. Under the
 * lock, which may open meanwhile. */
void exo_port_end_retired_locked(exo_port *port);

/* --- outlet.c --------------------------------------------------------------------------------- */

/* The outlet's target is known: starts the thread of one that needs it for every item. */
exo_status exo_outlet_start(exo_outlet *outlet, exo_err *err);
/* There is something to transmit, or a credit came: transmits what may leave, or has the outlet's
 * thread do so. Under the lock, which may open meanwhile. */
void exo_outlet_pump_locked(exo_outlet *outlet);
/* The place is to end: wakes the thread. Under the lock. */
void exo_outlet_wake_locked(exo_outlet *outlet);
void exo_outlet_stop(exo_outlet *outlet);
/* Waits for an item's room. */
bool exo_edge_needs_credits(const exo_edge_spec *edge);
/* Counts a small message: under the lock under which it was decided to send it, so that whoever
 * reports afterwards has it. */
void exo_channel_count_locked(exo_traffic *traffic);
/* END, at the end of what was sent. */
void exo_outlet_tell_end(exo_outlet *outlet);

/* --- inlet.c ---------------------------------------------------------------------------------- */

/* CREDIT or GONE to its sender. Small messages pass the edge's links like any other. Not under the
 * lock. */
void exo_inlet_tell(exo_inlet *inlet, exo_channel_kind kind, uint64_t number);
/* Grants what an inlet owes its sender, or says GONE after everything was taken: after whatever
 * changed it. Under the lock, which is open meanwhile. */
void exo_inlet_settle_locked(exo_inlet *inlet);
/* The same for all inlets: when the actor begins to wait in send. */
void exo_place_settle_locked(exo_place *place);

#endif
