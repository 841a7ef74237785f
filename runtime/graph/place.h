/* An actor's place in a running graph: its ports, and the ends of the channels behind them.
 * docs/channels.md has the protocol.
 *
 * A channel joins one sender and one receiver of one edge. Its sending end is an outlet, which
 * holds the items that wait for transmission (the outbox). The thread that brings an item or a
 * credit transmits small items. A thread of the outlet transmits large items, and all items on
 * emulated links, while the actor computes on. The receiving end is an inlet. It decodes messages
 * on the mail lane and puts the items into the port's queue. A credit stands for room in the
 * receiver's buffer. Without a credit nothing is transmitted, unless the edge drops items.
 *
 * On the virtual clock these threads do not exist. Transmissions and arrivals are events of the
 * simulation (outlet.c), and messages go directly to the place at the other end.
 *
 * While an actor waits in send, each of its inputs on a feedback edge (spec.h) keeps at least one
 * credit out, if necessary beyond the capacity of its buffer. So a chain of waits for room always
 * ends at an actor that computes or receives, and actors that send to each other in a cycle cannot
 * all wait.
 *
 * One lock guards all members of a place that several threads use. It is held for a few
 * instructions, and never during encoding, sending or calls. Read next: port.c (the actor's side),
 * outlet.c, inlet.c, host.c (the actor class). */
#ifndef EXO_GRAPH_PLACE_H
#define EXO_GRAPH_PLACE_H

#include <pthread.h>

#include <exogym/actor.h>
#include <exogym/meter.h>
#include <exogym/traffic.h>

#include "actor/delivery.h"
#include "graph/item.h"
#include "graph/site.h"
#include "graph/stall.h"

enum {
    EXO_OUTBOX = 1, /* items that wait at a sender, besides the one under transmission */
    /* Items up to this size need no thread: encoding and copying them takes less time than waking
     * another thread. */
    EXO_LIGHT_ITEM = 16 << 10,
    /* Bytes on the wire for one message in addition to its own bytes: the call's envelope and
     * ZeroMQ's framing, over tcp without keys. This is a mean; a credit and a large item differ by
     * a few bytes. tests/cluster/wire.sh compares it with the kernel's counts. */
    EXO_CHANNEL_ENVELOPE = 60
};

/* The sending end of a channel. Guarded by the place's lock, except for the codec and the reader, which
 * belong to the thread that transmits. */
/* The lives of the two actors of a channel, as one end knows them, and the other actor in its life
 * (unset on the virtual clock). */
typedef struct exo_channel_lives {
    uint16_t mine, other;
    exo_ref peer;
} exo_channel_lives;

typedef struct exo_outlet {
    exo_place *place;
    const exo_edge_spec *edge;
    exo_links *links;      /* the network of its messages; NULL: not emulated */
    uint32_t edge_id, to;  /* `to`: index of the receiver among the actors of its name */
    exo_ref target;        /* unset on the virtual clock */
    _Atomic uint64_t node; /* number of the target's process; 0: not known yet */
    exo_codec *codec;
    exo_traffic *traffic; /* of the edge, at this actor */
    struct exo_outgoing {
        exo_item *item; /* held */
        uint64_t number;
        exo_channel_lives lives; /* when it was taken from the outbox, as is its way */
        exo_item_way way;
    } outbox[EXO_OUTBOX];
    uint16_t peer_life; /* of the receiver */
    uint32_t waiting;   /* items in the outbox */
    uint64_t number;    /* number of the next item that is put in or dropped */
    uint64_t left;      /* number after the last item that left */
    uint32_t credits;
    /* (capacity) arrival times of credits that are on an emulated link */
    exo_time *credit_due;
    uint32_t credits_coming, capacity;
    bool finished;  /* END follows the items in the outbox */
    bool ending;    /* END is being sent */
    bool ended;     /* END was sent, or nobody is left to receive it */
    bool gone;      /* the receiver takes no more items */
    bool busy;      /* an item is under transmission */
    bool passing;   /* that item is encoded, and is on an emulated link */
    bool connected; /* the target is known */
    bool has_thread;
    pthread_t thread;
    pthread_cond_t changed; /* wakes the thread */
    /* Arrays on devices, way.c. */
    exo_joint_reader reader;
    enum {
        EXO_REACH_UNKNOWN,
        EXO_REACH_YES,
        EXO_REACH_NO,
    } reach; /* whether the receiver, in another process, opens arrays by their names */
    uint64_t reach_units; /* exo_item_units of the item of which it has said so */
    struct exo_lent {
        exo_item *item;     /* held until the receiver has taken the names in its message */
        exo_future *future; /* held: of the message */
    } * lent;               /* (num_lent) */
    uint32_t num_lent, lent_room;
} exo_outlet;

/* The receiving end. Guarded by the place's lock, except for the codec, which belongs to the thread
 * that delivers. */
typedef struct exo_inlet {
    exo_place *place;
    const exo_edge_spec *edge;
    exo_links *links; /* the network of its answers; NULL: not emulated */
    uint32_t edge_id, from;
    exo_ref sender;
    bool lost;             /* exo_place_lose: the sender had ended before this life began */
    uint16_t peer_life;    /* of the sender */
    _Atomic uint64_t node; /* number of the sender's process; 0: not known yet */
    exo_codec *codec;
    exo_traffic *traffic; /* of the edge, at this actor */
    uint64_t expected;    /* least number of the next item */
    uint32_t buffered;    /* items in the port's queue */
    uint32_t out;         /* credits that were granted and not yet used by an item */
    bool ended;           /* END has come */
    bool gone;            /* GONE was sent */
} exo_inlet;

/* An item that has arrived. */
typedef struct exo_arrival {
    struct exo_arrival *next;
    exo_inlet *inlet;
    exo_item *item;
    exo_time ready; /* the item may be received from this time on, from the run's origin */
} exo_arrival;

/* One edge at one port. Its address stays the same for the life of the place. A changed edge is a
 * new one. The old edge is retired: it takes no new items, and its items still arrive. */
typedef struct exo_port_edge {
    const exo_edge_spec *edge;
    uint32_t id; /* number of the edge in messages */
    /* Generations of the port: an item that is put in at generation g goes over the edges with born
     * <= g < retired. */
    uint64_t born, retired;
    bool finished; /* retired, and its outlets have been told to end */
    exo_outlet *outlets;
    exo_inlet *inlets;
    uint32_t count; /* entries of outlets or inlets */
    uint64_t sends; /* items sent to this edge, also those that `every` leaves out */
    /* number of choices so far: the turn of round_robin, modulo and listed, the draw of gossip */
    uint64_t turn;
    exo_traffic traffic;
} exo_port_edge;

struct exo_port {
    exo_place *place;
    const exo_graph_port *class_port;
    exo_port_edge **edges; /* a change adds some, under the place's lock */
    uint32_t num_edges, room;
    uint64_t generation;       /* number of changes so far */
    bool inside;               /* the actor is in exo_port_send */
    exo_arrival *first, *last; /* of an input: its arrivals in the order of `ready` */
    exo_item *newest;          /* of a `retained` output: the item sent last; held */
    bool finished;
    /* Of an input: where arrays arrive. Owner: the actor's thread. */
    exo_device *device;
    exo_joint_reader reader;
};

/* A collective with this actor as a member. */
typedef struct exo_port_group {
    const exo_edge_spec *edge;
    uint32_t id;
    exo_comm *comm; /* held; guarded by the place's lock, like `group` */
    exo_group *group;
    bool has_left; /* exo_place_leave_collectives; then this was the group's traffic */
    exo_traffic left;
    exo_comm *
        *former; /* (num_former) of earlier lives; held, since other threads may still use them */
    size_t num_former;
} exo_port_group;

/* The actor's wait at a port. Communicators report the waits in collectives. */
typedef struct exo_place_wait {
    exo_wait_kind kind;
    exo_port *port;           /* SEND, RECEIVE */
    const exo_outlet *outlet; /* SEND */
    /* the class gave a timeout shorter than the edge's: it continues without the item */
    bool ends_by_itself;
    exo_time since; /* from the run's origin */
} exo_place_wait;

struct exo_graph_actor {
    char name[96];
    uint32_t index, count;
    exo_site *site;
    bool resumes; /* files of an earlier life may be in the folder */
    uint64_t run; /* exo_graph_run_number */
};

/* A message on its way on the virtual clock. */
typedef struct exo_passage exo_passage;

struct exo_place {
    struct exo_graph_actor actor; /* must be first: the class's pointer is the place's */
    const exo_actor_spec *spec;
    uint32_t spec_index, host;
    exo_runtime *runtime;   /* sends the messages; NULL on the virtual clock */
    exo_ref self;           /* the actor whose place it is, from the start of its class on */
    exo_delivery *delivery; /* of large items; constant */
    /* in the order of the class's ports; a port that the graph does not use has no edges */
    exo_port *ports;
    exo_port_group *groups; /* likewise */
    exo_pace pace;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool waiting; /* virtual clock: its lane waits for a signal */
    /* real clock: the object that its thread waits for, see exo_place_wait_locked */
    const void *awaited;
    uint16_t life; /* of the actor: 0 is the first */
    /* in a worker, (all actors) the host's: their lives, and whether they have ended well. NULL: all 0.
     * Owner: the thread that changes the place */
    const uint16_t *lives;
    const bool *ended;
    bool returned;     /* the class's run has returned: all outputs are finished */
    bool over;         /* and everything has left: there is no further life */
    bool regroups;     /* the life ends because another member of its collectives has failed */
    bool sending;      /* the actor waits in send */
    uint64_t changes;  /* of the graph, since the place was made */
    exo_passage *held; /* virtual clock: messages that an outage without an end holds (passage.c) */
    exo_place_wait wait;
    uint64_t moves;     /* counts beginnings and ends of waits, and events that may end one */
    bool cancelled;     /* every wait is to end */
    exo_err failed;     /* the error that ended the place; code OK: none */
    exo_meters *meters; /* the class's own */
    /* end of the class's run, on the run's clock; owner: the actor's thread */
    exo_time ended_at;
};

/* Makes the place of actor `index` of spec->actors[spec_index], with its ports and the ends of its
 * channels. Errors: NOMEM, those of exo_codec_parse. */
exo_status exo_place_new(exo_place **out, exo_site *site, uint32_t spec_index, uint32_t index,
                         exo_runtime *runtime, exo_err *err);
/* Frees a place after exo_place_stop. */
void exo_place_free(exo_place **place);
/* Gives the place the references of all actors of the graph, in the order of site->first, and
 * starts the threads of outlets on emulated links. */
exo_status exo_place_connect(exo_place *place, const exo_ref *actors, exo_err *err);
/* Changes the place to the site's next graph, in two steps. All places must have done one step
 * before any does the next: first every receiver makes the inlets of new edges, then every sender
 * makes the outlets and retires the removed edges. The actors run meanwhile. `actors` as above. On
 * the virtual clock the caller has the baton, and is outside of lanes. */
exo_status exo_place_change_inputs(exo_place *place, const exo_ref *actors, exo_err *err);
exo_status exo_place_change_outputs(exo_place *place, const exo_ref *actors, exo_err *err);
/* Ends all outputs after their items, closes all inputs, and tells the senders. Waits for the
 * departure of all items, at most `timeout`. On the actor's thread. Errors: TIMEOUT. */
exo_status exo_place_finish(exo_place *place, exo_time timeout, exo_err *err);
/* Ends every wait with CANCELLED. Any thread. */
void exo_place_cancel(exo_place *place);
/* Cancels the place, ends the outlets' threads, and waits for the last light item, at most a
 * second. */
void exo_place_stop(exo_place *place);
/* The actor `index` of spec->actors[spec_index] has another life: begins all channels with it anew.
 * `ref`: its new reference; unset on the virtual clock. On an actor that has ended, the new ends say
 * their last word. Any thread but the mail lane; on the virtual clock with the baton. relink.c */
void exo_place_relink(exo_place *place, uint32_t spec_index, uint32_t index, uint16_t life,
                      exo_ref ref);
/* Sets the life of the actor at the other ends, before the place is connected. ended: its run has
 * ended well in that life, so that nothing comes or goes. relink.c */
void exo_place_set_peer(exo_place *place, uint32_t spec_index, uint32_t index, uint16_t life,
                        bool ended);
/* The run of an actor had ended well before this life began: the channels with it end. Any thread but
 * the mail lane. relink.c */
void exo_place_lose(exo_place *place, uint32_t spec_index, uint32_t index);
/* Begins another life of this place's own actor, whose run has returned: drops what its last life
 * had, and begins all channels anew. The peers' ends are relinked afterwards. On the actor's thread.
 * relink.c */
void exo_place_begin_life(exo_place *place, uint16_t life);
/* Ends the place with an error from outside of its class, which later sends and receives return. */
void exo_place_fail(exo_place *place, const exo_err *reason);
/* Delivers a message to one of the place's ends; *message is moved. On the mail lane, or with the
 * baton at time `now`. from: the process that sent it; 0: this one. INVAL without effect: the
 * message is for no end of the place, or does not come from the process at the other end. Other
 * errors, and INVAL for a message against the protocol, fail the place. */
exo_status exo_place_deliver(exo_place *place, exo_payload *message, uint64_t from, exo_err *err);

/* The time since the run's origin, on the run's clock. */
exo_time exo_place_now(const exo_place *place);
/* Sleeps until a signal, or until `until`, under the lock, which is open meanwhile. On the actor's
 * thread. what: an outlet (for room in its outbox), an input port (for an item or the end), or the
 * place (for the departure of all items). */
void exo_place_wait_locked(exo_place *place, const void *what, exo_time until);
/* Wakes the actor's thread if it waits for `what`; on the virtual clock it wakes any wait, at time
 * `at`. Under the lock. */
void exo_place_signal_locked(exo_place *place, const void *what, exo_time at);

/* The number of an actor's process; UINT64_MAX: this process, which is in no cluster; 0: not
 * known. */
uint64_t exo_place_node_of(const exo_place *place, exo_ref actor);
/* The communicator of the class's port `i`, valid as long as the place; NULL: none. Any thread. */
exo_comm *exo_place_comm(const exo_place *place, size_t i);
/* Ends the calls of all collectives of the place with PEER_LOST. Any thread. */
void exo_place_fail_collectives(exo_place *place, const char *cause);

/* Leaves the collectives whose engine is not the library's, at the end of a life: such an engine has
 * something on the class's device, and it may wait for the other members. On the actor's thread. */
void exo_place_leave_collectives(exo_place *place);
/* Whether messages for the collective of port `i` come as calls of "collective". */
bool exo_place_hears_collective(const exo_place *place, size_t i);

/* Marks the beginning and the end of a wait at a port. Under the lock. */
void exo_place_wait_begin_locked(exo_place *place, exo_place_wait wait);
void exo_place_wait_end_locked(exo_place *place);
/* Writes a record of the actor's wait and the ends of its channels, for the search for stalls. The
 * caller releases *out, which is empty if the actor has not waited for `longer_than` and no item of
 * it is on an emulated link. Any thread, while the actor lives. look.c */
exo_status exo_place_look(exo_place *place, exo_time longer_than, exo_payload *out, exo_err *err);

/* True: the actor waits only for actors that are `stuck` (all actors of the graph), and so may be
 * stuck itself. Ignores messages on their way; allocates nothing. scratch, counts: room for one
 * number and for two numbers per actor. *mark changes with every event of the wait. Any thread,
 * while all actors live in this process. look.c */
bool exo_place_may_be_stuck(exo_place *place, const bool *stuck, uint32_t *scratch,
                            uint64_t *counts, uint64_t *mark);

/* Tells the outlets of retired edges to end, unless the actor is in exo_port_send and may still use
 * them. Under the lock, which may open meanwhile. */
void exo_port_end_retired_locked(exo_port *port);

/* --- outlet.c --------------------------------------------------------------------------------- */

/* Marks the outlet's target as known; starts the thread of an outlet on an emulated link. */
exo_status exo_outlet_start(exo_outlet *outlet, exo_err *err);
/* Transmits the items that may leave, or wakes the outlet's thread to do so. Call it after every
 * new item or credit. Under the lock, which may open meanwhile. */
void exo_outlet_pump_locked(exo_outlet *outlet);
/* The way of a message on the virtual clock. */
typedef struct exo_passage_way {
    exo_place *from, *to;
    exo_outlet *outlet; /* which may send its next item then; NULL: a message without an item */
    exo_links *links;   /* NULL: nothing is emulated */
    uint32_t sender, receiver, flow;
    uint64_t bytes; /* on the wire */
} exo_passage_way;

/* On the virtual clock, with the baton. The message is moved. Errors: NOMEM. */
exo_status exo_passage_begin(const exo_passage_way *way, exo_payload *message, exo_err *err);
/* The links have changed: asks again for what an outage without an end held. */
void exo_passages_ask_again(exo_place *place);
void exo_passages_free(exo_place *place);
/* An event: the link has passed the outlet's item, and the next one may leave. */
void exo_outlet_departed(void *outlet, exo_time at);
/* The links have changed: asks again for what an outage without an end held. On the real clock. Under
 * the lock. */
void exo_outlet_relink_locked(exo_outlet *outlet);
/* Wakes the outlet's thread when the place is to end. Under the lock. */
void exo_outlet_wake_locked(exo_outlet *outlet);
/* Ends the outlet's thread, and waits for the last light item, at most a second. The place is
 * cancelled. */
void exo_outlet_stop(exo_outlet *outlet);
/* True: an item needs a credit to leave, as the edge does not drop items at the receiver. */
bool exo_edge_needs_credits(const exo_edge_spec *edge);
/* Counts a small message. Call it under the same lock as the decision to send, so that a later
 * report includes it. */
void exo_channel_count_locked(exo_traffic *traffic);
/* Sends END to that life of the receiver. */
void exo_outlet_tell_end(exo_outlet *outlet, exo_channel_lives lives);
/* Puts an item into the outbox, which has room, and transmits what may leave. Under the lock, which
 * may open meanwhile. port.c */
void exo_outlet_put_locked(exo_outlet *outlet, exo_item *item);

/* --- way.c ------------------------------------------------------------------------------------ */

/* The way of the arrays of an item that are on devices. Under the lock. */
exo_item_way exo_outlet_way_locked(const exo_outlet *outlet, const exo_item *item);
/* Takes the number of a REACH. Under the lock. */
void exo_outlet_hear_locked(exo_outlet *outlet, uint64_t number);
/* Keeps an item until the receiver has answered its message; takes both references. Not under the
 * lock. */
void exo_outlet_lend(exo_outlet *outlet, exo_item **item, exo_future **future);
/* Drops the items whose messages were answered, or all. Not under the lock. */
void exo_outlet_take_back(exo_outlet *outlet, bool all);
/* Brings a received item's arrays to where the port wants them, and tells the sender if it let the
 * receiver try a name. PEER_LOST: its sender has died with them. On the actor's thread. */
exo_status exo_port_land(exo_port *port, exo_inlet *inlet, exo_item *item, exo_err *err);

/* --- inlet.c ---------------------------------------------------------------------------------- */

/* Sends CREDIT or GONE to that life of the inlet's sender. These messages pass the edge's links
 * like others. Not under the lock. */
void exo_inlet_tell(exo_inlet *inlet, exo_channel_kind kind, uint64_t number,
                    exo_channel_lives lives);
/* The lives of the inlet's channel. Under the lock. */
exo_channel_lives exo_inlet_lives_locked(const exo_inlet *inlet);
/* Grants the credits that the inlet owes its sender, or sends GONE after the last item. Call it
 * after every change of the inlet. Under the lock, which is open meanwhile. */
void exo_inlet_settle_locked(exo_inlet *inlet);
/* Settles all inlets, when the actor begins to wait in send. */
void exo_place_settle_locked(exo_place *place);

#endif
