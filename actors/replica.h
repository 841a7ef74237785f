/* A replica: a copy of a model that learns together with the copies of its group, wherever they are. It has its parameters, optimizer and
 * strategy, its place in two communicators, its position in the data, and the state that a checkpoint keeps of it.
 *
 * There is one way to make one: from the document of its actor (fit.h). What the replicas of a run share in a process it finds there,
 * or makes it (fit.h); communicators that are not there it makes itself, among actors. An actor has one replica (train_node.h), or several of
 * different runs, whose collectives have channels of their own.
 *
 * Owner: its actor's lane that computes, but for exo_replica_deliver, _fail and _look, which any thread may call while it lives. The other members
 * of its group do the same things in the same order, as they are collectives: set_up, step, average, correlate; and, if its strategy awaits
 * units, evaluate, save and the average's units. */
#ifndef EXO_REPLICA_H
#define EXO_REPLICA_H

#include <exogym/actor.h>

#include "actors/fit.h"
#include "actors/node_look.h"
#include "actors/node_meters.h"

/* Where a replica is. */
typedef struct exo_replica_place {
    exo_runtime *runtime;
    exo_ref self; /* its actor                                                                   */
    uint32_t
        channel; /* its collectives are `channel` and the next one of the actor's method "deliver" */
    /* In a graph: it has no communicators, but groups of the actor's that its owner gives it between open and set_up (group, inside, and
     * those of `node`). Its time is the actor's, and so are its meters. */
    exo_pace *pace; /* NULL: not in a graph     */
    exo_time step_cost;
    exo_meters *meters;
} exo_replica_place;

typedef struct exo_replica {
    exo_fit *fit; /* held */
    exo_replica_place place;
    exo_config_doc *document; /* the strategy's options lie in it */
    exo_strategy *strategy;
    exo_comm *comm,
        *side; /* held: the strategy's, which is counted; of set-up, averages and correlations */
    exo_group *group, *side_group;
    exo_group *inside;                /* in a graph, of a strategy with two edges; else NULL */
    exo_device *device;               /* this replica's alone, unless it is the CPU            */
    exo_tape *train_tape, *eval_tape; /* on it; NULL: of the CPU's the run's pools have some   */
    exo_params *params;
    exo_params *average;       /* made when first asked for; by units if params are */
    exo_shards average_shards; /* then: this member's part of it              */
    bool averaged;             /* `average` is the mean of all copies         */
    exo_loader *loader;        /* NULL: it is not set up                  */
    exo_batch eval_batch;
    exo_node_meters meters;   /* its strategy's and its model's */
    exo_node node;            /* what its strategy sees; rank, step, lr */
    exo_pace *pace, own_pace; /* how its time passes: the run's for this rank, or its own */
    exo_time step_cost; /* declared, of a step's computation on a host of speed 1; -1: measured */
    size_t ready;       /* elements whose gradients this step's backward has yielded */
    uint64_t bytes_before; /* sent before the checkpoint that this run went on from */
    bool within;           /* the inner step is taken within backward */
    bool by_units;         /* its strategy keeps units: params are a copy by units */
} exo_replica;

/* replica.c: its life. INVAL, NOT_FOUND: the document, or what it names is not here; NOMEM. */
exo_status exo_replica_open(exo_replica **out, const exo_replica_place *place, const char *document,
                            exo_err *err);
void exo_replica_close(exo_replica **replica);
/* Finds the others, which are all open by now, agrees on the numbers of rank 0 (in a graph all have those of the seed), starts the strategy, and goes on from the run's checkpoint, if it
 * has one: *elapsed is how long the run had taken by then. Blocks for the others. */
exo_status exo_replica_set_up(exo_replica *r, uint64_t *elapsed, exo_err *err);
/* Sent by its strategy, over all parts of a resumed run. */
uint64_t exo_replica_bytes_sent(const exo_replica *r);
/* Writes what outlives a restart, and its SHA-256 as text, into `folder`, the folder of a checkpoint. INVAL, IO, NOMEM. */
exo_status exo_replica_save(exo_replica *r, const char *folder, uint64_t elapsed, char sha256[65],
                            exo_err *err);
/* A flat copy on the host becomes one on the replica's device. NOMEM, or the device's errors. */
exo_status exo_replica_to_device(const exo_replica *r, exo_params **params, exo_err *err);

/* Takes a message of one of its collectives from another process (0: this one); *payload is moved, unless it is refused. INVAL: it is for none of
 * them, or not from the process of its member. */
exo_status exo_replica_deliver(exo_replica *r, exo_payload *payload, uint64_t from, exo_err *err);
/* Member `rank` cannot go on: its collectives end, here or for all. */
void exo_replica_fail(exo_replica *r, uint32_t rank, const char *cause);
/* In which call it is, and who is missing. NOMEM. */
exo_status exo_replica_look(const exo_replica *r, const exo_node_ask *ask, exo_node_look *out,
                            exo_err *err);
/* Goes over to the graph of that text: its links and its edge's codec. Between two steps, all members. INVAL, UNSUPPORTED, NOMEM. */
exo_status exo_replica_change(exo_replica *r, const char *graph, exo_err *err);

/* replica_average.c: the copies of all members together, unit by unit. */

/* The mean of all copies, with their statistics: on every member, or, by units, each member's shard of it. */
exo_status exo_replica_average(exo_replica *r, exo_err *err);
/* Mean over the pairs of copies of Pearson's correlation of their parameters. The average is lost. */
exo_status exo_replica_correlate(exo_replica *r, double *out, exo_err *err);
/* Units of the average as a pass reads them, where they are not all there; NULL: they are. All members. `hooks` is written. */
const exo_unit_hooks *exo_replica_average_hooks(exo_replica *r, exo_unit_hooks *hooks);
/* A unit of the average, whole, by all members: *values is there until exo_replica_average_close. */
exo_status exo_replica_average_open(exo_replica *r, size_t unit, exo_array *values, exo_err *err);
void exo_replica_average_close(exo_replica *r, size_t unit);

/* replica_pass.c: what it computes. */

typedef struct exo_replica_figures {
    double loss, accuracy; /* accuracy: NaN if the model reports none */
} exo_replica_figures;

/* One step on its next batch, and the batch's loss. */
exo_status exo_replica_step(exo_replica *r, float *loss, exo_err *err);
/* Of its own parameters or of the average, over the run's evaluation samples: the same ones every time, in eval mode. `reported`: a scope that
 * gets what else the model reports, as gauges. */
exo_status exo_replica_evaluate(exo_replica *r, bool average, exo_replica_figures *out,
                                exo_meters *reported, exo_err *err);

#endif
