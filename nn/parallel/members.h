/* Collectives of the tape that also go in a rehearsal, which has no group. No state. Read next:
 * exogym/parallel.h, parallel.c. */
#ifndef EXO_PARALLEL_MEMBERS_H
#define EXO_PARALLEL_MEMBERS_H

#include <exogym/parallel.h>
#include <exogym/sequence.h>

/* The members of a pass. `group` is NULL in a rehearsal only. */
typedef struct exo_members {
    exo_group *group;
    uint32_t rank, count;
} exo_members;

/* exo_tape_all_gather. */
exo_tensor *exo_members_all_gather(exo_tape *tape, const exo_members *members, exo_tensor *x);
/* exo_tape_reduce_scatter, which sums in x's own memory and gives it back: nothing else reads the
 * values of x, in backward neither. */
exo_tensor *exo_members_reduce_scatter(exo_tape *tape, const exo_members *members, exo_tensor *x);
/* x on member 0, zeros on the others: what a sum over the members has once. Backward: the gradient
 * unchanged, which all members have. */
exo_tensor *exo_members_once(exo_tape *tape, const exo_members *members, exo_tensor *x);
/* exo_tape_ring_attention. */
exo_tensor *exo_members_ring_attention(exo_tape *tape, const exo_members *members, exo_tensor *x,
                                       const exo_attention_opts *opts);
/* exo_tape_embedding before its sum: zeros where a token is another member's. */
exo_tensor *exo_members_embedding(exo_tape *tape, exo_group *group, exo_tensor *tokens,
                                  exo_tensor *weight, size_t vocabulary);

#endif
