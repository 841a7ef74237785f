/* Checkpoints of a run, on the trainer's side. A checkpoint has a part of each node, one of the server
 * of the strategy's communicator if it has one, and the figures of the run. It is complete, and gets
 * its name, when all parts are there:
 *
 *     exo_fit_save_begin    a hidden folder
 *     exo_fit_save_ask      a node writes its part
 *     exo_fit_save_take     the node has written it; its figures are noted
 *     exo_fit_save_end      the server's part, figures.json, the manifest, the name
 *
 * All nodes can write their parts at once (exo_fit_checkpoint), or each when it comes to that step
 * (fit_apart.c). The server's part is always written last: it has at least what the nodes' parts
 * have of it. Owner: the trainer's thread. Read next: fit_save.c, checkpoint.h. */
#ifndef EXO_FIT_SAVE_H
#define EXO_FIT_SAVE_H

#include "actors/fit_impl.h"

typedef struct exo_fit_save {
    struct exo_fit_save *next; /* the caller's */
    uint64_t step, elapsed;
    uint32_t left; /* ranks without a part */
    /* the hidden folder, as this process and as the nodes name it */
    char folder[EXO_CHECKPOINT_PATH], there[EXO_CHECKPOINT_PATH];
    char (*sums)[65]; /* (num_nodes) */
    json_t *figures;
} exo_fit_save;

/* Begins the checkpoint of a step. IO, NOMEM; nothing is left then. */
exo_status exo_fit_save_begin(struct run *run, uint64_t step, exo_fit_save **out, exo_err *err);
/* Asks the node `from` to write the part of `rank`: its own, or that of an absent node. */
exo_status exo_fit_save_ask(struct run *run, const exo_fit_save *save, uint32_t from, uint32_t rank,
                            exo_err *err);
/* Takes the answer. INVAL: it is none. */
exo_status exo_fit_save_take(struct run *run, exo_fit_save *save, uint32_t from, uint32_t rank,
                             exo_err *err);
/* Completes a checkpoint that has all parts, and frees *save. Blocks for the server's part. IO, NOMEM,
 * or the error of node 0. */
exo_status exo_fit_save_end(struct run *run, exo_fit_save **save, exo_err *err);
/* Removes the folder and frees *save; accepts NULL in it. */
void exo_fit_save_abort(struct run *run, exo_fit_save **save);

/* Writes the checkpoint of run->step; all nodes are idle. */
exo_status exo_fit_checkpoint(struct run *run, exo_err *err);

#endif
