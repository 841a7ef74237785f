/* A replica: a copy of a model that is trained together with the other copies of its group,
 * wherever they are. It has its parameters, optimizer and strategy, its membership in two
 * communicators, its position in the data, and its state in a checkpoint.
 *
 * A replica is always made from the document of its actor (fit.h). It takes the record that the
 * replicas of a run share in a process, or makes it (fit.h). If that record has no communicators,
 * the replica makes its own, among actors. An actor has one replica (train_node.h), or several of
 * different runs, whose collectives then use different channels.
 *
 * Owner: the computing lane of its actor. Any thread may call exo_replica_deliver, exo_replica_fail,
 * exo_replica_save_server and exo_replica_look while the replica lives.
 *
 * set_up, step, average and correlate are collectives: all members of the group call them in the
 * same order. If the strategy awaits units, so are evaluate, save and the calls for the average's
 * units.
 *
 * Read next: replica.c. */
#ifndef EXO_REPLICA_H
#define EXO_REPLICA_H

#include <pthread.h>

#include <exogym/actor.h>
#include <exogym/state.h>

#include "actors/fit.h"
#include "actors/node_look.h"
#include "actors/node_meters.h"
#include "comm/server.h"
#include "nn/pass_values.h"

/* The place of a replica. */
typedef struct exo_replica_place {
    exo_runtime *runtime;
    exo_ref self; /* its actor */
    /* The actor's method "deliver" takes messages of two channels: `channel` for the strategy's
     * communicator, and the next one for the other. */
    uint32_t channel;
    /* In a graph the replica has no communicators. It uses groups of the actor (group and inside,
     * also those of `node`), which its owner sets between open and set_up, and the actor's time and
     * meters. */
    exo_pace *pace; /* NULL: not in a graph */
    exo_time step_cost;
    exo_meters *meters;
} exo_replica_place;

/* A replica as a member of an elastic run among processes (replica_elastic.c). The members of a run
 * have an epoch, a number that grows with each change of the members, and communicators of their
 * own in each epoch. A step in which the strategy may communicate is a transaction: a copy of the
 * state is kept until all members have finished the step. */
typedef struct exo_membership {
    pthread_mutex_t lock; /* guards epoch, and comm and side of the replica */
    uint64_t epoch;
    _Atomic bool interrupted; /* the members change: no further step before that */
    exo_group *whole[2];      /* of all ranks; the replica's groups are among the members of them */
    exo_state *state;         /* the list of everything that another node needs to go on here */
    exo_state *undo;          /* the same and the gradients; NULL: no step is ever in doubt */
    void *copy;               /* of `undo`, before a step in which nodes communicate */
    bool was_stepped;         /* node.stepped at that time */
    bool doubtful;            /* the step may or may not be done on the other members */
    bool again;          /* the gradients of the step are there: only its exchange is repeated */
    float loss;          /* of the last batch */
    uint64_t met;        /* 1 + the last step in which the nodes communicated; 0: none */
    uint64_t position;   /* UINT64_MAX, or the first batch of this node's data, if not the step */
    exo_traffic traffic; /* over the strategy's edge in earlier epochs */
    exo_time waited;
    /* The server of the strategy's communicator is the run's. It stays with its process from one
     * epoch to the next; `estate` is its state between two. */
    bool home;
    exo_server_estate estate;
    bool fresh;       /* its state is another node's, and it was in no epoch since */
    uint64_t none[2]; /* stands for the counts that a list of state names */
} exo_membership;

typedef struct exo_pipeline exo_pipeline; /* replica_pipeline.c */

/* How far the passes of a step are. */
typedef struct exo_replica_progress {
    size_t minibatch; /* the one that is computed */
    bool backward;    /* its backward has begun */
    size_t left;      /* elements of the units that its forward, or its backward, has left */
    size_t ready;     /* elements whose gradients its backward has yielded */
} exo_replica_progress;

typedef struct exo_replica {
    exo_fit *fit;  /* held */
    uint32_t rank; /* in the run; node.rank is the place among the present nodes */
    exo_replica_place place;
    exo_config_doc *document; /* owns the strategy's options */
    exo_strategy *strategy;
    /* Held. comm: the strategy's, whose traffic is counted; side: for set-up, averages and
     * correlations. */
    exo_comm *comm, *side;
    exo_group *group, *side_group;
    exo_group *inside; /* in a graph, for a strategy with two edges; else NULL */
    exo_model *model;  /* the run's: its own part of it, or all */
    /* With parts, members or stages, among the members of group and of side_group: the nodes that share
     * its copy of the model, and the nodes with the same share of it. Else NULL. */
    exo_group *sharing[2], *copies[2];
    /* Of the nodes that share the copy, those that differ from this one in their part of the layers
     * (tensor), in their tokens (context), or in both, part and stage (split). NULL: there are none. */
    exo_group *tensor[2], *context[2], *split[2];
    /* With stages, two nodes of the copy that differ in the stage only: this stage and the one before or
     * after it; the first and the last one. NULL: this stage is not among them. */
    exo_group *before[2], *after[2], *ends[2];
    exo_node_part part;     /* the strategy's view of them, if the nodes in `split` are several */
    exo_band *counted;      /* part.counted */
    exo_pipeline *pipeline; /* what a stage has for its passes; NULL: the model has no stages */
    exo_device *device;     /* this replica's alone, unless it is the CPU */
    /* Tapes on the device; NULL for the CPU, whose tapes come from the run's pools. */
    exo_tape *train_tape, *eval_tape;
    exo_params *params;
    exo_params *average;       /* made on the first request; by units if params are */
    exo_shards average_shards; /* by units: this member's part of the average */
    bool averaged;             /* `average` is the mean of all copies */
    exo_loader *loader;        /* NULL: the replica is not set up */
    exo_batch eval_batch;
    exo_node_meters meters;   /* of its strategy and its model */
    exo_node node;            /* the strategy's view of the node; rank, step, lr */
    exo_pace *pace, own_pace; /* its time: the run's pace of this rank, or its own */
    exo_time step_cost;       /* declared cost of a step on a host of speed 1; -1: measured */
    exo_replica_progress progress;
    exo_pass_values passes; /* of the steps whose losses nobody has read */
    size_t unread;          /* these steps */
    uint64_t bytes_before;  /* bytes sent before the checkpoint from which the run resumed */
    bool within;            /* the inner step is taken within backward */
    bool by_units;          /* the strategy keeps units: params are a copy by units */
    exo_membership member;  /* of an elastic run among processes */
} exo_replica;

/* replica.c: the life of a replica. */

/* Makes a replica. INVAL, NOT_FOUND: the document is wrong, or it names something that this process
 * does not have; NOMEM. */
exo_status exo_replica_open(exo_replica **out, const exo_replica_place *place, const char *document,
                            exo_err *err);
/* Closes *replica, also a half-built one, and sets it to NULL; accepts NULL in it. */
void exo_replica_close(exo_replica **replica);
/* Connects to the other members, which must all be open, distributes the parameters of rank 0 (in a
 * graph every member draws them from the seed), starts the strategy, and loads the run's
 * checkpoint, if it has one: *elapsed is the duration of the run up to the checkpoint. Blocks for
 * the others. */
exo_status exo_replica_set_up(exo_replica *r, uint64_t *elapsed, exo_err *err);
/* The bytes that the strategy has sent, over all parts of a resumed run. */
uint64_t exo_replica_bytes_sent(const exo_replica *r);
/* The traffic over the strategy's edge since set-up, and the time that the strategy has waited. */
exo_traffic exo_replica_traffic(const exo_replica *r);
exo_time exo_replica_waited(const exo_replica *r);
/* Writes the state of the replica as that of `rank` into `folder`, the folder of a checkpoint, and
 * the SHA-256 of the file as text into sha256. INVAL, IO, NOMEM. */
exo_status exo_replica_save(exo_replica *r, uint32_t rank, const char *folder, uint64_t elapsed,
                            char sha256[65], exo_err *err);
/* Writes the state of the communicator's server (server.h) into `folder`, if there is one here that
 * lists a state. The server does nothing meanwhile. INVAL, IO, NOMEM. Any thread. */
exo_status exo_replica_save_server(exo_replica *r, const char *folder, exo_err *err);
/* Lists everything that outlives a restart. `elapsed` and `bytes` are entries of the list. */
void exo_replica_list_state(exo_replica *r, exo_state *state, uint64_t *elapsed, uint64_t *bytes);
/* Makes the replica's communicators of an epoch: the strategy's, whose server is with the rank `home`,
 * and the other one. */
exo_status exo_replica_open_comms(exo_replica *r, uint64_t epoch, uint32_t home, exo_comm **comm,
                                  exo_comm **side, exo_err *err);
/* Ends its part in its communicators. */
void exo_replica_leave_comms(exo_replica *r);
/* Opens the loader at a batch of the node's data. */
exo_status exo_replica_open_loader(exo_replica *r, uint64_t first, exo_err *err);

/* All nodes with the copy's own parameters, over the second communicator. */
static inline exo_group *
exo_replica_side(const exo_replica *r)
{
    return r->copies[1] ? r->copies[1] : r->side_group;
}

/* Takes a message of one of its collectives from the process `from` (0: this one). *payload is
 * moved, unless the message is refused. INVAL: the message belongs to no collective of this
 * replica, or does not come from the process of its sender. */
exo_status exo_replica_deliver(exo_replica *r, exo_payload *payload, uint64_t from, exo_err *err);
/* Ends the collectives with member `rank`, which cannot go on: for this replica, or for all if they
 * share the communicators. Errors of the members name `rank` and `cause`. */
void exo_replica_fail(exo_replica *r, uint32_t rank, const char *cause);
/* Looks at the replica's call and the members that are missing there. NOMEM. */
exo_status exo_replica_look(const exo_replica *r, const exo_node_ask *ask, exo_node_look *out,
                            exo_err *err);
/* Changes the links and the edge's codec to those of a graph, given as text. All members make this
 * call between two steps. INVAL, UNSUPPORTED, NOMEM. */
exo_status exo_replica_change(exo_replica *r, const char *graph, exo_err *err);

/* replica_elastic.c: a member of an elastic run. All but exo_replica_abandon: the computing lane. */

/* Whether the replica is a member of an elastic run, among processes or on the virtual clock. */
static inline bool
exo_replica_is_elastic(const exo_replica *r)
{
    return r->fit->elastic && !r->place.pace && (!r->fit->comm || r->fit->sim);
}
/* Makes the lists and the memory for transactions of a replica that is set up, if it is such a
 * member. NOMEM. */
exo_status exo_replica_elastic_open(exo_replica *r, exo_err *err);
/* Frees them, before the replica is closed. `r` may be NULL. */
void exo_replica_elastic_close(exo_replica *r);
/* Takes the strategy's part of a step. PEER_LOST: a member is lost, and the step may be in doubt. */
exo_status exo_replica_exchange(exo_replica *r, exo_err *err);
/* Ends the present epoch's collectives, unless `epoch` is over. Any thread. */
void exo_replica_abandon(exo_replica *r, uint64_t epoch, uint32_t rank, const char *cause);
/* The members of an epoch: `ranks` (count), ascending, whose actors are `actors`. */
typedef struct exo_epoch {
    uint64_t number;
    uint64_t furthest; /* the most steps of a member */
    const uint32_t *ranks;
    const exo_actor_id *actors;
    size_t count;
    uint32_t home; /* the rank that has the server of the strategy's communicator */
} exo_epoch;

enum {
    EXO_EPOCH_NOBODY = -1
};

/* Begins an epoch. A step in doubt is done if `furthest` is beyond it, and is undone otherwise. *done:
 * the step in doubt is done. INVAL: the members are wrong; PEER_LOST: one of them is lost; TIMEOUT: the rank
 * *unreached lives, for all that is known, but does not answer, else *unreached is EXO_EPOCH_NOBODY. */
exo_status exo_replica_regroup(exo_replica *r, const exo_epoch *epoch, bool *done,
                               int64_t *unreached, exo_err *err);
/* Gives the state, and before it its layout and its SHA-256, as bytes for exo_replica_join. */
exo_status exo_replica_give(exo_replica *r, exo_payload *out, exo_err *err);
/* Takes over the state of the node `from`, which exo_replica_give gives, and continues with batch
 * `position` of its own data. PEER_LOST: that node is lost; INVAL: the state is damaged, or of
 * another kind. After an error the replica can join again. */
exo_status exo_replica_join(exo_replica *r, const exo_actor_id *from, uint64_t position,
                            uint64_t bytes_sent, char sha256[65], exo_err *err);

/* replica_share.c: what a replica has of a copy that several nodes share. */

/* Opens the groups among the nodes that share the copy, and of the nodes with the same share. NOMEM. */
exo_status exo_replica_open_share(exo_replica *r, exo_err *err);
void exo_replica_close_share(exo_replica *r);
/* Finds the elements that count here, and sets r->node.part. NOMEM. */
exo_status exo_replica_count_share(exo_replica *r, exo_err *err);
/* Makes parameters equal that several nodes of the copy have, and the strategy's state of them if it has
 * the order of the parameters: they get the values of the first of these nodes. For strategies by parts (strategy.h), after a step in which nodes meet. */
exo_status exo_replica_agree(exo_replica *r, exo_err *err);

/* replica_average.c: the copies of all members together, unit by unit. */

/* Computes the mean of all copies and of their statistics. Every member gets it, or, by units, its
 * shard of it. */
exo_status exo_replica_average(exo_replica *r, exo_err *err);
/* Computes the mean of Pearson's correlation of the parameters over all pairs of copies. It
 * destroys the average. */
exo_status exo_replica_correlate(exo_replica *r, double *out, exo_err *err);
/* Hooks with which a pass gathers the units of the average, for a copy by units; all members make
 * the same pass. NULL: the average is complete on every member. `hooks` is written. */
const exo_unit_hooks *exo_replica_average_hooks(exo_replica *r, exo_unit_hooks *hooks);
/* Gathers a unit of the average; all members make this call. *values is valid until
 * exo_replica_average_close. */
exo_status exo_replica_average_open(exo_replica *r, size_t unit, exo_array *values, exo_err *err);
void exo_replica_average_close(exo_replica *r, size_t unit);
/* With parts: gathers a unit of the whole model's average; all members make this call. The caller
 * frees *values, the whole model's unit, with exo_free. */
exo_status exo_replica_average_whole(exo_replica *r, size_t unit, float **values, exo_err *err);

/* replica_pass.c: the computations of a replica. */

typedef struct exo_replica_figures {
    double loss, accuracy; /* accuracy: NaN if the model reports none */
} exo_replica_figures;

/* In a rehearsal (fit_run.h): the calling thread computes nothing from now on, or does so again. */
void exo_replica_rehearse(const exo_replica *r, bool on);

/* replica_rows.c: what passes of whole models and of stages share. */

/* Rows [first, first + size) of a batch, not copied. */
exo_batch exo_replica_rows(const exo_batch *batch, size_t first, size_t size);
/* Forward or backward of the present minibatch leaves a unit, so that a part of the declared cost has
 * passed. */
void exo_replica_leave_unit(exo_replica *r, size_t unit);
/* exo_grad_ready, with the replica as context: backward of the last minibatch has completed these
 * gradients. */
exo_status exo_replica_gradient_ready(void *context, size_t first, size_t count, exo_err *err);
/* Whether gradients of the step's last minibatch are announced to the strategy. */
bool exo_replica_announces(const exo_replica *r);

/* replica_pipeline.c: the passes of a stage (exo_model_stage), together with the other stages. */

/* Makes what a stage has for its passes. NOMEM. */
exo_status exo_pipeline_new(exo_pipeline **out, const exo_replica *r, exo_err *err);
/* Frees *pipeline and sets it to NULL; accepts NULL in it. */
void exo_pipeline_free(exo_pipeline **pipeline);
/* Adds the gradients of the step's batch, whose minibatches pass through the stages in the order 1F1B
 * (Narayanan et al., 2021, arXiv:2104.04473). Adds the losses of the minibatches to *loss in the last
 * stage. */
exo_status exo_replica_pipeline(exo_replica *r, const exo_batch *batch, double *loss, exo_err *err);
/* Computes a stage of an evaluation of `batch` over the second communicator. *out: NULL, or the loss in
 * the last stage. `tape` has begun the pass. */
exo_status exo_replica_pipeline_look(exo_replica *r, exo_tape *tape, const exo_batch *batch,
                                     exo_tensor **out, exo_err *err);

/* Takes a step on the next batch; *loss is the batch's, or NaN in a stage that has none. */
exo_status exo_replica_step(exo_replica *r, float *loss, exo_err *err);
/* The same without the loss, which exo_replica_losses reads later: on a GPU the host asks for the
 * next step while this one is computed. Not to be called when exo_replica_must_read. */
exo_status exo_replica_step_ahead(exo_replica *r, exo_err *err);
/* Whether the losses of all steps have to be read before the next one. */
bool exo_replica_must_read(const exo_replica *r);
/* Writes the losses of the `unread` steps, oldest first, and sets the gauges of the model's figures
 * and of the gradient's norm to those of the last one. After an error there are none. */
exo_status exo_replica_losses(exo_replica *r, float *losses, exo_err *err);
/* Evaluates its own parameters or the average in eval mode, over the run's evaluation samples,
 * which are always the same. A stage that has no loss gives NaN. `reported` is a scope that gets the model's other figures as
 * gauges. */
exo_status exo_replica_evaluate(exo_replica *r, bool average, exo_replica_figures *out,
                                exo_meters *reported, exo_err *err);

#endif
