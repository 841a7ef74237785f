/* Collectives as operations of the tape, for models whose layers are spread over the members of a
 * group (tensor parallelism: Shoeybi et al., 2019, arXiv:1909.08053; sequence parallelism:
 * Korthikanti et al., 2022, arXiv:2205.05198).
 *
 * The passes of all members record the same collectives in the same order, with equal shapes;
 * backward calls its collectives in the opposite order. The operations form two pairs, in which the
 * backward of each one is the forward of the other:
 *
 *     forward                                       backward        use
 *     exo_tape_all_reduce_backward  identity        all-reduce      before split layers
 *     exo_tape_all_reduce           all-reduce      identity        after split layers
 *     exo_tape_all_gather           all-gather      reduce-scatter  a member's rows -> all rows
 *     exo_tape_reduce_scatter       reduce-scatter  all-gather      sums of rows -> a member's rows
 *
 * Two linear layers are split like this, the first by outputs and the second by inputs; w1 (H / N,
 * D), b1 (H / N) and w2 (O, H / N) are this member's parts:
 *
 *     x = exo_tape_all_reduce_backward(t, group, x);
 *     h = exo_relu(t, exo_linear(t, x, w1, b1));
 *     y = exo_tape_all_reduce(t, group, exo_linear(t, h, w2, NULL));
 *
 * The loss is then the same on all members, and so are the gradients of parameters that every
 * member holds as a whole. Sums are in rank order, as in comm.h. A gradient is that of the member's
 * own loss, so all members must compute the same loss.
 *
 * In a group of one member all operations are the identity. Tensors are summed in fp32; other types
 * are cast. An error of a collective (TIMEOUT, PEER_LOST, ...) ends the pass with the operation's
 * name: in forward as the tape's error, in backward as its status. If a checkpoint runs a part of
 * the pass again, this part calls its collectives again. A rehearsal (exo_model_pass_memory) calls
 * none.
 *
 * The group belongs to the tape's thread and lives as long as the pass. From the begin of a pass to
 * the end of its backward the group is used for nothing else, unless all members do so at the same
 * places. Blocks: for the other members, up to the group's timeout; the thread's compute slot is
 * free meanwhile.
 */
#ifndef EXOGYM_PARALLEL_H
#define EXOGYM_PARALLEL_H

#include <exogym/comm.h>
#include <exogym/tensor.h>

EXO_DECLS_BEGIN

/* x -> the sum of all members' x, with x's shape. Backward: the gradient unchanged. As all
 * operations here: a NULL operand gives NULL. */
EXO_API exo_tensor *exo_tape_all_reduce(exo_tape *tape, exo_group *group, exo_tensor *x);
/* x -> x. Backward: the sum of all members' gradients. Its collective runs if the result needs a
 * gradient. */
EXO_API exo_tensor *exo_tape_all_reduce_backward(exo_tape *tape, exo_group *group, exo_tensor *x);
/* x (R, ...) of each member -> (N R, ...), in rank order. Backward: this member's rows of the sum
 * of all members' gradients. */
EXO_API exo_tensor *exo_tape_all_gather(exo_tape *tape, exo_group *group, exo_tensor *x);
/* x (N R, ...) -> (R, ...): this member's rows of the sum of all members' x. Backward: all members'
 * gradients, in rank order. INVAL: the number of rows is not a multiple of N. */
EXO_API exo_tensor *exo_tape_reduce_scatter(exo_tape *tape, exo_group *group, exo_tensor *x);

EXO_DECLS_END

#endif
