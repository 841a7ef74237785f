/* Actors of a transmission graph: the declaration of their classes, and the ports by which they
 * send and receive.
 *
 * A graph (docs/graph.md) is a YAML file of actors and edges. Each actor is an instance of a graph
 * class: it reads its config, and then runs until its work is done. It sends items through output
 * ports and receives items from input ports. The graph, not the class, decides who is at the other
 * end, by which route items go, and how they are buffered, encoded and delayed. This class sends
 * numbers to all connected actors, until none is left:
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
 *     static const exo_graph_class counter = {
 *         .name = "counter", .run = run, .ports = ports, .num_ports = 1};
 *     EXO_PLUGIN { return exo_graph_class_register(&counter, err); }
 *
 * The same class runs in one process, in workers, over emulated links, and on the virtual clock.
 * Therefore it reads the time from exo_graph_now only, waits in ports and collectives only, and
 * draws random numbers from streams keyed by exo_graph_seed.
 *
 * Threads: only the thread that runs `run`; any thread may drop references to items.
 */
#ifndef EXOGYM_GRAPH_H
#define EXOGYM_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/clock.h>
#include <exogym/comm.h>
#include <exogym/config.h>
#include <exogym/device.h>
#include <exogym/meter.h>
#include <exogym/status.h>
#include <exogym/tensor.h>

EXO_DECLS_BEGIN

/* An actor in its graph. */
typedef struct exo_graph_actor exo_graph_actor;
/* A port of an actor, for sending or for receiving. */
typedef struct exo_port exo_port;

/* --- Items ------------------------------------------------------------------------------------ */

/* The most arrays of an item. */
enum {
    EXO_MAX_PARTS = 16
};

/* One array of an item. fp32 arrays pass through the edge's codec; other types are sent
 * unchanged. */
typedef struct exo_item_part {
    exo_dtype dtype; /* type of the elements */
    size_t count;    /* elements */
    void *data;      /* (count), aligned to 64 bytes; owned by the item. NULL: it is on `device` */
    /* Where the array is; NULL: host memory. Of a sender: for which device it was made. Of a receiver:
     * that of exo_port_set_device, if the array is in its memory. */
    exo_device *device;
} exo_item_part;

/* The unit that travels over an edge: arrays, with the sender and the times. */
typedef struct exo_item {
    /* Set by the sender, before it sends. */
    /* Version of the data that the item holds or was made with; 0: unused. */
    uint64_t version;
    uint64_t key;                       /* for the route `hash`: equal keys go to the same target */
    size_t num_parts;                   /* 1 to EXO_MAX_PARTS */
    exo_item_part parts[EXO_MAX_PARTS]; /* (num_parts) */
    /* Set by the channel, for the receiver. */
    /* Number of the item in its channel, from 0; a gap shows dropped items. */
    uint64_t number;
    exo_time sent;     /* time of exo_port_send, on the run's clock */
    exo_time received; /* time of arrival, after decoding */
    uint32_t from;     /* index of the sender among the actors of its name */
    uint32_t life;     /* the sender's life (exo_graph_life) when it sent the item */
} exo_item;

/* Makes an item with arrays of the given types and counts; `data` of `parts` is ignored. Arrays in
 * host memory are zero, those on another device have any contents. The caller drops the item or sends
 * it. Errors: INVAL (no array, or more than EXO_MAX_PARTS), NOMEM (of a GPU, the text says who has
 * its memory), FULL (the object store has no room for the name of an array of a GPU), UNSUPPORTED
 * (arrays of this device cannot be in items), or the device's. */
EXO_API exo_status exo_item_new(exo_item **out, const exo_item_part *parts, size_t num_parts,
                                exo_err *err);
/* Counts one more reference and returns `item`. */
EXO_API exo_item *exo_item_hold(exo_item *item);
/* Drops a reference and sets *item to NULL; accepts NULL in it. Any thread. Who has asked a device for
 * work with an array of the item has waited for it, or calls exo_item_drop_after. */
EXO_API void exo_item_drop(exo_item **item);

/* --- Arrays on devices ------------------------------------------------------------------------
 *
 * An array of an item can be on a device, so that results go from one GPU's actor to the next one
 * without the host:
 *
 *     const exo_item_part part = {.dtype = EXO_F32, .count = n, .device = gpu};
 *     exo_item_new(&item, &part, 1, err);                                       the sender
 *     exo_vec_copy(exo_item_array(item, 0), activations);
 *     exo_port_send(port, &item, EXO_PORT_TIMEOUT, err);
 *
 *     exo_port_set_device(port, gpu);                                           the receiver
 *     exo_port_receive(port, EXO_PORT_TIMEOUT, &item, err);
 *     exo_item_import(&activations, item, 0, gpu, err);
 *     ...                                                     asks for work with `activations`
 *     exo_array_release(&activations);
 *     exo_item_drop_after(&item, gpu);
 *
 * The same code runs with the CPU as `gpu`. Nobody waits on the host: the sender's device may still
 * compute when the item is sent, and the receiver's begins when it is done. The way depends on
 * where the receiver is (docs/graph.md, "Arrays on devices"): in the same process it gets the memory
 * itself; in another process of the host it opens the memory, which costs a message of some bytes;
 * else the bytes are copied to the host, sent, and copied to the receiver's device. Values and
 * counted bytes are the same. On an edge with a codec the bytes go over the host, too. */

/* The elements of an array of the item, on part.device or in host memory: for the sender, which fills
 * it before it sends the item, on the thread of the device. */
EXO_API exo_array exo_item_array(const exo_item *item, size_t part);
/* Makes an array of the item available to a device, on its thread: the item's own memory if the
 * device reaches it, else a copy. The device's later work finds the values there. The caller only
 * reads *out, and releases it before it drops the item. Errors: UNSUPPORTED (another kind of
 * device), NOMEM, or the device's. */
EXO_API exo_status exo_item_import(exo_array *out, const exo_item *item, size_t part,
                                   exo_device *device, exo_err *err);
/* As exo_item_drop, but the memory stays until the device has done what it was asked so far. On the
 * device's thread. */
EXO_API void exo_item_drop_after(exo_item **item, exo_device *device);

/* --- Ports ------------------------------------------------------------------------------------ */

#define EXO_PORT_TIMEOUT INT64_C(-1) /* a timeout: that of the edge, its `deadline` */

/* The output or input port of a name; NULL if no edge of this graph uses it. */
EXO_API exo_port *exo_graph_output(exo_graph_actor *actor, const char *name);
EXO_API exo_port *exo_graph_input(exo_graph_actor *actor, const char *name);

/* This actor's member of the collective on an edge of route all_reduce that carries `name`; NULL if
 * there is none. The collectives of comm.h on it are counted on the edge and take the time of its
 * links. */
EXO_API exo_group *exo_graph_group(exo_graph_actor *actor, const char *name);
/* Names the device of the arrays of all of this actor's collectives, before their first call:
 * exo_group_set_device. Errors: those of it. */
EXO_API exo_status exo_graph_set_device(exo_graph_actor *actor, exo_device *device, exo_err *err);

/* Sends an item. The reference moves to the port, and *item is NULL afterwards, also after an
 * error. Nobody writes to a sent item. The port encodes and transmits it while the caller
 * continues. If there is no room, the edge's on_full decides; by default the call waits up to
 * `timeout`. A NULL port drops the item. Errors: TIMEOUT (names the edge and the actor that does
 * not take items), FULL (on_full: fail), CLOSED (no target is left: the usual end), CANCELLED (the
 * run ends, because an actor failed or for another reason). */
EXO_API exo_status exo_port_send(exo_port *port, exo_item **item, exo_time timeout, exo_err *err);
/* Sends an item to one target, whatever the edge's route; the turns of the route do not move. target:
 * below exo_port_targets. Otherwise as exo_port_send. Further errors: INVAL (there is no such target;
 * the edge has `every`, which would leave items out), CLOSED (this target takes no more items). */
EXO_API exo_status exo_port_send_to(exo_port *port, uint32_t target, exo_item **item,
                                    exo_time timeout, exo_err *err);
/* The number of targets that the routes of an output's edges can choose. NULL: 0. `graph apply` may
 * change it between two calls. */
EXO_API uint32_t exo_port_targets(const exo_port *port);
/* Writes the name of a target, such as "maker_1", and its index among the actors of its name. False:
 * there is no such target, or it takes no more items. */
EXO_API bool exo_port_target(const exo_port *port, uint32_t target, char *name, size_t size,
                             uint32_t *index);
/* The life (exo_graph_life) of a target, as far as this actor was told of it; 0: there is no such
 * target. */
EXO_API uint32_t exo_port_target_life(const exo_port *port, uint32_t target);
/* Whether a restart rule may give an actor at the other end of the port's edges another life. NULL:
 * false. */
EXO_API bool exo_port_may_restart(const exo_port *port);
/* Whether the actor's own restart rule may give it another life. */
EXO_API bool exo_graph_may_restart(const exo_graph_actor *actor);
/* Receives the next item of any sender, in the order of arrival; items of one sender arrive in the
 * order of sending. Waits up to `timeout`; 0 does not wait. The caller drops the item. Errors:
 * TIMEOUT, CLOSED (all senders have ended, and all of their items were received), CANCELLED (the
 * run ends); of arrays on devices also NOMEM, FULL and the device's. A wait of at least the edge's
 * deadline counts as a wait for an item that must come: a cycle of actors in such waits is a stall,
 * and ends the run. */
EXO_API exo_status exo_port_receive(exo_port *port, exo_time timeout, exo_item **out, exo_err *err);
/* Arrays of items that arrive here stay on a GPU if `device` reaches it; without a device, and on the
 * CPU, all arrive in host memory. Before the first receive; the device is closed after the last one.
 * A NULL port does nothing. */
EXO_API void exo_port_set_device(exo_port *port, exo_device *device);
/* The number of items that have arrived, are decoded, and are not yet received. */
EXO_API size_t exo_port_pending(const exo_port *port);
/* Ends an output: nothing more will be sent; sent items still arrive. The end of `run` finishes
 * every output. */
EXO_API void exo_port_finish(exo_port *port);

/* --- The actor's place ------------------------------------------------------------------------ */

EXO_API const char *exo_graph_name(const exo_graph_actor *actor); /* its name, such as "maker_1" */
EXO_API uint32_t exo_graph_index(const exo_graph_actor *actor);   /* its index, 1 for "maker_1" */
/* The number of actors of its name. */
EXO_API uint32_t exo_graph_count(const exo_graph_actor *actor);
/* The GPU on which the actor computes, for exo_device_open_place: the first one that its worker has given
 * it (exo_actor_gpus), else its index. */
EXO_API uint32_t exo_graph_device_place(const exo_graph_actor *actor);
EXO_API uint64_t exo_graph_seed(const exo_graph_actor *actor); /* the seed of the run */
/* Whether the run's clock is virtual. A class with threads of its own then waits for them before it
 * uses a port, so that a run is repeated to the bit. */
EXO_API bool exo_graph_is_virtual(const exo_graph_actor *actor);
/* The number of lives that the actor had before this one: its restart rule makes it anew after a
 * failure (docs/graph.md). */
EXO_API uint32_t exo_graph_life(const exo_graph_actor *actor);
/* Whether `run` may continue from files that the actor wrote in the folder before: it is not the
 * first life, or the run was resumed. */
EXO_API bool exo_graph_resumes(const exo_graph_actor *actor);
/* A number of the run, for files that the actor may find in the folder on its host, where another run of
 * that name may have left some: the upper 48 bits were drawn when the run began, and a resumed run has
 * them too; the lower 16 say how often it was resumed. 0: the run began in one process. */
EXO_API uint64_t exo_graph_run_number(const exo_graph_actor *actor);
/* The time since the start of the run, on the run's clock. */
EXO_API exo_time exo_graph_now(const exo_graph_actor *actor);
/* Whether the run is ending: `run` then returns CANCELLED, or OK. */
EXO_API bool exo_graph_cancelled(const exo_graph_actor *actor);
/* The folder for files, on the host of the actor's process; NULL: write none. */
EXO_API const char *exo_graph_folder(const exo_graph_actor *actor);

/* Declares that the work until the next call or wait belongs to the phase `name` (a literal). On
 * the virtual clock it takes the time that the graph declares under `compute`, or else the measured
 * time; both are divided by the host's speed. On the real clock a declared time is waited out. */
EXO_API void exo_graph_phase(exo_graph_actor *actor, const char *name);
/* The actor's scope of meters, which have units and help, in any number (meter.h). They appear
 * under the actor's name on the progress line, in meters.csv, TensorBoard, result.json,
 * progress.json and `exogym status`. The line has room for few: declare the most telling ones
 * first. Valid until `run` returns. */
EXO_API exo_meters *exo_graph_meters(exo_graph_actor *actor);

/* --- Classes ---------------------------------------------------------------------------------- */

/* The direction of a port. */
typedef enum exo_port_direction {
    EXO_PORT_OUTPUT,
    EXO_PORT_INPUT,
    EXO_PORT_COLLECTIVE, /* for exo_graph_group */
} exo_port_direction;

/* A port of a class. */
typedef struct exo_graph_port {
    const char *name; /* the name for `carries` of an edge */
    /* The type of its items, such as "rollout": equal at both ends of an edge. */
    const char *type;
    exo_port_direction direction; /* zeroed: OUTPUT */
    bool required;                /* a graph must have an edge here */
    /* Of an input. True: `run` waits here for an item before it sends further ones. A cycle of such
     * edges can deadlock and is refused, unless an edge in it begins with items (`initial`) or
     * drops items. False: `run` only takes items that have come. */
    bool blocking;
    bool initial; /* of an output: `run` sends the first item before it waits for anything */
    /* Of an output. True: an actor of a later life gets the item that was sent last, if the edge's
     * route is broadcast or there is no choice. */
    bool retained;
} exo_graph_port;

/* A class of graph actors: read-only, and valid as long as the process. */
typedef struct exo_graph_class {
    const char *name;            /* the name for `class` in a graph */
    const char *help;            /* one line, for `exogym list classes` */
    const exo_graph_port *ports; /* (num_ports) */
    size_t num_ports;
    const char *const *phases; /* names for exo_graph_phase, NULL-terminated; NULL: none */
    size_t state_size;         /* bytes of the state `self`, which begins zeroed */
    /* `run` writes checkpoints, and continues from them if exo_graph_resumes: a run of the graph can
     * be resumed. */
    bool resumes;
    /* Reads the options; the config lives as long as the actor. Called once for each actor, and
     * once without an actor to check a graph. May be NULL. */
    exo_status (*init)(void *self, exo_config *config, exo_err *err);
    /* The whole life of the actor. OK: it is done, and its outputs are finished. An error ends the
     * run, unless the actor's restart rule handles it. */
    exo_status (*run)(void *self, exo_graph_actor *actor, exo_err *err);
    /* Frees the memory that init and run allocated; called once, also after their failure. May be
     * NULL. */
    void (*release)(void *self);
    /* The order in which `run` uses its ports, so that a graph can be proven free of stalls
     * (docs/graph.md). Steps, separated by ';':
     *
     *     send PORT          sends an item; may wait for room if on_full is block
     *     receive PORT       waits for an item
     *     poll PORT          takes an item that has come, or none; never waits
     *     reduce PORT        calls the collective; several calls in a row count as one
     *     3 STEP, * STEP     repeats the step 3 times; without end, that is until a port is closed
     *     (STEP; STEP)       one step after the other
     *     (ACTION | ACTION)  the action that is possible first: run waits only if neither is
     *
     * Example: "send parameters; *(8 receive experience; reduce gradients; send parameters)". Steps
     * at ports without an edge are left out. `run` returns after the last step. NULL: not declared;
     * `exogym graph check` then warns if this matters. */
    const char *order;
    /* For an order that depends on the options: writes it for `self` after init. NULL: `order`
     * holds. */
    void (*write_order)(const void *self, char *out, size_t size);
    /* The shape of the items at the ports, if it depends on the options: writes a text for `self`
     * after init, such as "4 observations, 2 actions". The texts of both ends of an edge must be
     * equal. NULL, or an empty text: every shape fits. */
    void (*write_shape)(const void *self, char *out, size_t size);
    /* The device of the arrays of its collectives, if it depends on the options: writes its name for
     * `self` after init, such as "cuda". `engine: auto` of an edge follows it. NULL, or an empty text:
     * the host. */
    void (*write_device)(const void *self, char *out, size_t size);
} exo_graph_class;

/* Registers a class under its name, which must be new. The class must live as long as the process.
 * Any thread. Errors: EXISTS, INVAL, FULL. */
EXO_API exo_status exo_graph_class_register(const exo_graph_class *graph_class, exo_err *err);
EXO_API const exo_graph_class *exo_graph_class_find(const char *name); /* NULL: there is none */
/* The class of an index in the order of names; NULL after the last. */
EXO_API const exo_graph_class *exo_graph_class_at(size_t index);

EXO_DECLS_END

#endif
