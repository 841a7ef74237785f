/* Conversion of checkpoints to another number of nodes, to nodes that share copies of the model in another
 * way (tensor parts, pipeline stages, context parallelism), and between full and sharded ones.
 *
 *     node_0 ... node_3 --put--> whole: parameters, moments, steps --get--> node_0 ... node_2
 *
 * The state of the training is made whole from the files of all nodes, and cut for the new nodes: both
 * by the strategies themselves (to_whole, from_whole). Then what a strategy takes from the whole is
 * laid over each node of the old checkpoint, which must keep the bytes of its file. So nodes of other
 * values than the others are found and refused. What several parts of a model have is that of the first,
 * as in a run, and the others must have the same (reshard_impl.h, struct join). What a class leaves out of from_whole is not looked
 * at: a class that has to_whole vouches for all of its state.
 *
 * Under a strategy whose copies of the model differ there is no such whole. If the copies stay as many,
 * under the same strategy, each of them is cut anew by itself (reshard_copies.c).
 *
 * What follows from the step needs no conversion: position in the data, random streams, schedules. The
 * samples of an epoch are divided anew, so the rest of the epoch may repeat some and leave some out.
 * Statistics such as batch-norm's are each node's own: node r gets those of node r modulo the old
 * number. The time and the mean of the bytes sent stay; traffic, meters and timeline begin anew.
 *
 * No state. The host needs memory for the whole model with its moments, a number for each
 * parameter, a node, and two copies of its state. Read next:
 * reshard.c, reshard_copies.c, exogym/whole.h. */
#ifndef EXO_RESHARD_H
#define EXO_RESHARD_H

#include <exogym/config.h>
#include <exogym/model.h>
#include <exogym/status.h>

/* The nodes of a checkpoint. */
typedef struct exo_reshard_form {
    uint32_t num_nodes;
    /* Nodes that share a copy of the model by parts of layers, by stages, and by tokens; 0 and 1: none.
     * Their product divides num_nodes. */
    uint32_t tensor, pipeline, context;
    /* Not read from a checkpoint: the minibatch of the new run, 0: that of the checkpoint; and whether
     * collectives may sum in any order, by which nodes with the same parameter get other last bits. */
    size_t minibatch_size;
    bool any_bits;
    const char *strategy;
    exo_config *options; /* the strategy's, a mapping */
} exo_reshard_form;

enum {
    EXO_RESHARDED_TEXT = 176
};

typedef struct exo_resharded {
    uint64_t step;
    uint32_t from, to;               /* numbers of nodes */
    char change[EXO_RESHARDED_TEXT]; /* "4 nodes (tensor 2) instead of 4 (pipeline 4)" */
} exo_resharded;

/* Writes the checkpoint `from` of a run of this model, in the form `to`, as a checkpoint of the run
 * `run_folder`, which the caller has locked. There is never an incomplete one: a checkpoint of the
 * same step there is replaced when the new one is on the disk. Errors: INVAL (a file of `from` is
 * damaged and is named, or it is of another model; `to` is impossible), UNSUPPORTED (names what
 * cannot be converted), IO, NOMEM. */
exo_status exo_reshard(exo_model *model, const char *from, const char *run_folder,
                       const exo_reshard_form *to, exo_resharded *out, exo_err *err);

/* Checks by the settings alone whether exo_reshard can convert the checkpoint `from`; the states of its
 * nodes may still prevent it. Errors: those of exo_reshard. */
exo_status exo_reshard_check(exo_model *model, const char *from, const exo_reshard_form *to,
                             exo_err *err);

/* Whether the checkpoint `from` has another form than `to`. INVAL: it has no settings; IO, NOMEM. */
exo_status exo_reshard_differs(const char *from, const exo_reshard_form *to, bool *differs,
                               exo_err *err);

#endif
