/* Actors of a transmission graph: what a class declares, and what it sends and receives through.
 *
 * A graph (docs/graph.md) is a YAML file of actors and edges. An actor in it is an instance of a graph class: it reads its config, and
 * then runs until it has nothing left to do. What it gives to others it puts into its output ports, and what it gets comes from its
 * input ports; who is at the other end, by which route, how it is buffered, encoded and delayed is the graph's affair and not the
 * class's. A counter that sends a number to whoever is connected, until nobody is:
 *
 *     static exo_status run(void *self, exo_graph_actor *actor, exo_err *err) {
 *         exo_port *numbers = exo_graph_output(actor, "numbers");
 *         exo_status st = EXO_OK;
 *         for (int32_t i = 0; st == EXO_OK; i++) {
 *             exo_item *item = NULL;
 *             st = exo_item_new(&item, &(exo_item_part){.dtype = EXO_I32, .count = 1}, 1, err);
 *             if (st == EXO_OK) {
 *                 *(int32_t *)item->parts[0].data = i;
 *                 st = exo_port_send(numbers, &item, EXO_PORT_TIMEOUT, err);
 *             }
 *         }
 *         return st == EXO_CLOSED ? EXO_OK : st;
 *     }
 *     static const exo_graph_port ports[] = {{.name = "numbers", .type = "numbers"}};
 *     static const exo_graph_class counter = {.name = "counter", .run = run, .ports = ports, .num_ports = 1};
 *     EXO_PLUGIN { return exo_graph_class_register(&counter, err); }
 *
 * The same class runs in one process, in workers, over emulated links, and on the virtual clock. So it takes time from
 * exo_graph_now only, waits in ports and collectives only, and draws random numbers from streams that are keyed by
 * exo_graph_seed.
 *
 * Threads: everything here is for the thread that runs `run`, but for items, whose references may be dropped anywhere.
 */
#ifndef EXOGYM_GRAPH_H
#define EXOGYM_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/clock.h>
#include <exogym/comm.h>
#include <exogym/config.h>
#include <exogym/meter.h>
#include <exogym/status.h>
#include <exogym/tensor.h>

EXO_DECLS_BEGIN

typedef struct exo_graph_actor exo_graph_actor; /* an actor's place in the graph                */
typedef struct exo_port exo_port;               /* where what it sends or receives goes through */

/* --- Items ---------------------------------------------------------------------------------------------------------------- */

/* The most arrays of an item. */
enum {
    EXO_MAX_PARTS = 16
};

/* One array of an item. fp32 arrays go through the edge's codec; others are sent as they are. */
typedef struct exo_item_part {
    exo_dtype dtype; /* of the elements                              */
    size_t count;    /* elements                                          */
    void *data;      /* (count), aligned to 64 bytes; the item's own      */
} exo_item_part;

/* What travels over an edge: some arrays, and who sent them when. */
typedef struct exo_item {
    /* The sender's, before it sends. */
    uint64_t version;                   /* of what the item was made with or holds; 0 if versions mean nothing here */
    uint64_t key;                       /* for the route `hash`: equal keys go to the same target                   */
    size_t num_parts;                   /* 1 to EXO_MAX_PARTS                                               */
    exo_item_part parts[EXO_MAX_PARTS]; /* (num_parts) */
    /* The receiver's, set by the channel. */
    uint64_t number;   /* of this item in its channel, from 0: a gap is what was dropped on the way */
    exo_time sent;     /* when it was put into the port, on the run's clock                         */
    exo_time received; /* when it had arrived and was decoded                                       */
    uint32_t from;     /* index of the sender among the actors of its name                          */
} exo_item;

/* An item with zeroed arrays of the given types and counts (data in `parts` is not looked at). The caller drops it, or sends it.
 * INVAL: more than EXO_MAX_PARTS, or none. */
EXO_API exo_status exo_item_new(exo_item **out, const exo_item_part *parts, size_t num_parts, exo_err *err);
/* Counts one more reference and returns `item`. */
EXO_API exo_item *exo_item_hold(exo_item *item);
/* Gives a reference back and sets *item to NULL; accepts NULL in it. Any thread. */
EXO_API void exo_item_drop(exo_item **item);

/* --- Ports ---------------------------------------------------------------------------------------------------------------- */

#define EXO_PORT_TIMEOUT INT64_C(-1) /* the edge's `deadline` */

/* The port of that name; NULL if no edge of this graph is at it. */
EXO_API exo_port *exo_graph_output(exo_graph_actor *actor, const char *name);
EXO_API exo_port *exo_graph_input(exo_graph_actor *actor, const char *name);

/* This actor's place in the collective of an edge of route all_reduce that carries `name`; NULL if there is none. For the collectives
 * of comm.h, which are counted on the edge and take the time of its links. */
EXO_API exo_group *exo_graph_group(exo_graph_actor *actor, const char *name);

/* Sends an item. The reference moves to the port, and *item is NULL afterwards, also after an error. Nobody writes to a sent item. The port
 * encodes and transmits it while the caller continues. If there is no room, the edge's on_full decides: by default the call waits for at
 * most `timeout`. A port of NULL drops the item. Errors: TIMEOUT (names the edge and the actor that does not take items), FULL
 * (on_full: fail), CLOSED (no target is left: the usual end), CANCELLED (the run ends, because an actor failed or for another reason). */
EXO_API exo_status exo_port_send(exo_port *port, exo_item **item, exo_time timeout, exo_err *err);
/* The next item of any sender to this port, in the order of arrival; items of one sender arrive in the order in which it sent them.
 * Waits for at most `timeout`; 0: does not wait. The caller drops the item. Errors: TIMEOUT, CLOSED (all senders have ended, and all of their
 * items were received), CANCELLED (the run ends). A wait of the edge's deadline or longer is for an item that must come: a cycle of
 * actors in such waits is a stall, and ends the run. */
EXO_API exo_status exo_port_receive(exo_port *port, exo_time timeout, exo_item **out, exo_err *err);
/* Items that are here, decoded, and not yet received. */
EXO_API size_t exo_port_pending(const exo_port *port);
/* Says that nothing more will be sent; what was sent still arrives. The end of `run` does so for every output. */
EXO_API void exo_port_finish(exo_port *port);

/* --- The actor's place ------------------------------------------------------------------------------------------------------- */

EXO_API const char *exo_graph_name(const exo_graph_actor *actor);   /* "maker_1"                                    */
EXO_API uint32_t exo_graph_index(const exo_graph_actor *actor);     /* 1                                            */
EXO_API uint32_t exo_graph_count(const exo_graph_actor *actor);     /* how many of that name there are              */
EXO_API uint64_t exo_graph_seed(const exo_graph_actor *actor);      /* the run's                                    */
EXO_API exo_time exo_graph_now(const exo_graph_actor *actor);       /* on the run's clock, from its beginning       */
EXO_API bool exo_graph_cancelled(const exo_graph_actor *actor);     /* the run is to end: return CANCELLED, or OK   */
EXO_API const char *exo_graph_folder(const exo_graph_actor *actor); /* for files; NULL: write none                 */

/* What follows is work of the phase `name` (a literal), until the next call or a wait. On the virtual clock it costs what the graph
 * declares under `compute`, or else what it takes here; in both cases divided by the host's speed. On the real clock a declared cost is
 * waited out. */
EXO_API void exo_graph_phase(exo_graph_actor *actor, const char *name);
/* The actor's scope of meters, as many as it likes (meter.h): they are on the progress line, in meters.csv, TensorBoard, result.json,
 * progress.json and `exogym status`, under the actor's name. The line has room for few: declare the most telling ones first. They are good
 * until `run` returns. */
EXO_API exo_meters *exo_graph_meters(exo_graph_actor *actor);

/* --- Classes -------------------------------------------------------------------------------------------------------------- */

/* Which way items go through a port. */
typedef enum exo_port_direction {
    EXO_PORT_OUTPUT,
    EXO_PORT_INPUT,
    EXO_PORT_COLLECTIVE, /* exo_graph_group */
} exo_port_direction;

/* A port as its class declares it. */
typedef struct exo_graph_port {
    const char *name; /* what an edge names under `carries`                                                          */
    const char *type; /* what it is, "cartpole experience": both ends of an edge must have the same                  */
    exo_port_direction direction; /* OUTPUT where it is zeroed */
    bool required; /* a graph without an edge here is an error                                                    */
    /* Of an input: `run` waits here for something that it needs before it sends on; a cycle of such edges can deadlock and is refused,
     * unless an edge in it begins with items (`initial`) or drops. False for what is looked at when it comes. */
    bool blocking;
    bool initial; /* of an output: the first item is sent before anything is waited for */
} exo_graph_port;

/* A class of actors of graphs: read-only, and alive as long as the process. */
typedef struct exo_graph_class {
    const char *name;            /* what a graph names under `class`        */
    const char *help;            /* one line, for `exogym list classes` */
    const exo_graph_port *ports; /* (num_ports) */
    size_t num_ports;
    const char *const *phases; /* names for exo_graph_phase, NULL-terminated; NULL: none */
    size_t state_size;         /* bytes of the zeroed state, `self` */
    /* Reads options; the config lives as long as the actor. Called once an actor, and once on no actor to check a graph. May be NULL. */
    exo_status (*init)(void *self, exo_config *config, exo_err *err);
    /* The actor's whole life. Ends with OK when it is done; its outputs are finished then. An error ends the run, or is for the
     * actor's restart rule. */
    exo_status (*run)(void *self, exo_graph_actor *actor, exo_err *err);
    /* Frees what init and run allocated; once, also after their failure. May be NULL. */
    void (*release)(void *self);
    /* The order in which `run` uses its ports, so that a graph can be proven not to stall (docs/graph.md). Steps, separated by ';':
     *
     *     send PORT        sends an item; where on_full is block it may wait for room
     *     receive PORT     waits for an item
     *     poll PORT        takes what has come, or nothing; never waits
     *     reduce PORT      calls the collective; several calls in a row count as one
     *     3 STEP, * STEP   the step so often; without an end, that is until a port is closed
     *     (STEP; STEP)     one after the other
     *     (ACTION | ACTION)   that which can be done first: run waits for neither if the other can be done
     *
     * "send parameters; *(8 receive experience; reduce gradients; send parameters)". Steps at ports without an edge are left out. When the
     * last step is done, `run` returns. NULL: not declared; `exogym graph check` then warns where that matters. */
    const char *order;
    /* Where the options decide: writes the order, for `self` after init. NULL: it is `order`. */
    void (*write_order)(const void *self, char *out, size_t size);
} exo_graph_class;

/* Makes a class known by its name, which must be new; it must live as long as the process. Any thread. EXISTS, INVAL, FULL. */
EXO_API exo_status exo_graph_class_register(const exo_graph_class *graph_class, exo_err *err);
EXO_API const exo_graph_class *exo_graph_class_find(const char *name); /* NULL: there is none            */
EXO_API const exo_graph_class *exo_graph_class_at(size_t index);       /* in the order of names; NULL: end */

EXO_DECLS_END

#endif
