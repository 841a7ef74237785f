/* TrainNode: the actor that trains one copy of a model, together with the other nodes of its run.
 *
 * A node has one blocking lane, "compute", on which all of its methods run one after the other; the trainer (trainer.c)
 * tells all nodes what to do in the same order, so that their collectives meet. Between two calls a node is idle and its
 * state is whole: there the trainer evaluates, saves and stops.
 *
 * Methods, whose arguments and replies are messages of proto/train.proto (exo_train_node_protocol):
 *     setup     make the copy, agree on node 0's numbers, start the strategy, go on from a checkpoint if there is one
 *     train     steps until a given one
 *     average   the mean of all copies into a second one, on every node
 *     evaluate  loss and accuracy of the own copy or of the average
 *     result    the average's numbers: parameters, then buffers, fp32
 *     correlate mean Pearson correlation between the copies; `average` anew before the next `result`
 *     save      one file of a checkpoint, and its SHA-256
 *
 * A message that is wrong, or comes before its time, gets INVAL, and changes nothing.
 */
#ifndef EXO_TRAIN_NODE_H
#define EXO_TRAIN_NODE_H

#include <exogym/actor.h>
#include <exogym/trainer.h>

#include "actors/checkpoint.h"
#include "actors/tape_pool.h"
#include "base/pace.h"
#include "protocol/protocol.h"

/* What all nodes of a run share. Owner: the trainer, which outlives the nodes; read-only to them but for the pools and the
 * communicators, which are safe from any thread. */
typedef struct exo_fit {
    exo_model *model;
    exo_dataset *val;
    uint64_t max_steps;
    size_t batch_size, minibatch_size;
    bool shuffle, autocast;
    bool shared_data; /* one data set shared out, rather than one a node  */
    uint64_t seed;
    uint32_t num_nodes;
    exo_time timeout;
    const size_t *val_order; /* (val_count) which samples are evaluated       */
    size_t val_count;
    exo_tape_pool train_tapes, eval_tapes;
    const char *resume_from; /* folder of a checkpoint, or NULL                */
} exo_fit;

/* What `start` gets (exo_local_args): one node's place. The pointers stay the trainer's, which outlives the node. */
typedef struct exo_node_spec {
    exo_fit *fit;
    uint32_t rank;
    exo_dataset *train;     /* held by the trainer        */
    exo_strategy *strategy; /* owned by the trainer       */
    exo_comm *comm;         /* the strategy's: counted; held by the trainer                    */
    exo_comm *side;         /* set-up, averages, correlations: not counted; held by the trainer */
    exo_pace *pace;         /* owned by the trainer; NULL: the node makes one on the real clock */
    exo_time step_cost;     /* declared, of a step's computation on a host of speed 1; -1: measured */
    double speed;           /* of its host, for a pace of its own; 0 counts as 1 */
} exo_node_spec;

/* What the methods take. */
extern const exo_protocol exo_train_node_protocol;

/* Started with an exo_node_spec: a node of this process's own. */
extern const exo_actor_class exo_train_node_class;
/* The class "train_node" of workers, started with the document that exo_node_host_open reads. It has a light lane besides, "mail", with the
 * methods
 *     change    goes over to another graph (on the compute lane)
 *     deliver   a message of a collective, from another node
 *     abandon   the run is over for a reason; ends its collectives
 *     waits     which call of a collective it is in, and who is missing there (node_look.h) */
extern const exo_actor_class exo_far_node_class;

#endif
