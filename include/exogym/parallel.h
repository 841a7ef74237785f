/* Collectives as operations of the tape: models whose layers are spread over the members of a group
 * (tensor parallelism: Shoeybi et al., 2019, arXiv:1909.08053; sequence parallelism: Korthikanti et
 * al., 2022, arXiv:2205.05198).
 *
 * All members run passes that record the same collectives in the same order, of equal shapes;
 * backward calls its own in the opposite order. Each operation has the other one of its pair as its
 * backward:
 *
 *     forward                                    backward
 *     exo_tape_all_reduce_backward  identity     all-reduce      before layers that each member has a part of
 *     exo_tape_all_reduce           all-reduce   identity        after them
 *     exo_tape_all_gather           all-gather   reduce-scatter  rows of each member to the rows of all
 *     exo_tape_reduce_scatter       reduce-scatter  all-gather   sums of all rows to a member's rows
 *
 * So two linear layers are one of weights cut by outputs, then one of weights cut by inputs:
 *
 *     x = exo_tape_all_reduce_backward(t, group, x);
 *     h = exo_relu(t, exo_linear(t, x, w1, b1));                              w1 (H / N, D), b1 (H / N): this member's part
 *     y = exo_tape_all_reduce(t, group, exo_linear(t, h, w2, NULL));          w2 (O, H / N)
 *
 * The loss and the gradients of what every member has a whole copy of are then the same on all
 * members; sums are in rank order, as comm.h has it. A gradient is what the member's own loss
 * gives; all members' losses must be the same one.
 *
 * In a group of one they are the identity. Tensors are summed in fp32; others are cast. Errors of a
 * collective (TIMED_OUT, PEER_LOST, ...) end the pass with the operation's name: of forward in the
 * tape, of backward as its status. A part of the pass that a checkpoint runs again calls its
 * collectives again. A rehearsal (exo_model_pass_memory) calls none.
 *
 * The group belongs to the tape's thread, lives as long as the pass, and is used for nothing else
 * between a pass's begin and its backward's end, unless all members do so at the same places.
 * Blocks: for the other members, up to the group's timeout; the thread's compute slot is free then.
 */
#ifndef EXOGYM_PARALLEL_H
#define EXOGYM_PARALLEL_H

#include <exogym/comm.h>
#include <exogym/tensor.h>

EXO_DECLS_BEGIN

/* x -> the sum of all members' x, of x's shape. Backward: the gradient as it is. NULL in, NULL out,
 * as of all of these. */
EXO_API exo_tensor *exo_tape_all_reduce(exo_tape *tape, exo_group *group, exo_tensor *x);
/* x -> x. Backward: the sum of all members' gradients. A collective of backward runs wherever the
 * result needs a gradient. */
EXO_API exo_tensor *exo_tape_all_reduce_backward(exo_tape *tape, exo_group *group, exo_tensor *x);
/* x (R, ...) of each member -> (N R, ...), in rank order. Backward: of the sum of all members'
 * gradients this member's rows. */
EXO_API exo_tensor *exo_tape_all_gather(exo_tape *tape, exo_group *group, exo_tensor *x);
/* x (N R, ...) -> of the sum of all members' x this member's rows (R, ...). Backward: all members'
 * gradients, in rank order. INVAL: the rows are no multiple of N. */
EXO_API exo_tensor *exo_tape_reduce_scatter(exo_tape *tape, exo_group *group, exo_tensor *x);

EXO_DECLS_END

#endif
