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
 * In a group of one member all operations are the identity. Tensors of fp32 and bf16 move in their type,
 * and so do their gradients; bf16 is summed in fp32 and the sum rounded once. Other types are cast to
 * fp32. An error of a collective (TIMEOUT, PEER_LOST, ...) ends the pass with the operation's
 * name: in forward as the tape's error, in backward as its status. If a checkpoint runs a part of
 * the pass again, this part calls its collectives again. A rehearsal of memory
 * (exo_model_pass_memory) has no group, and calls none.
 *
 * The group belongs to the tape's thread and lives as long as the pass. From the begin of a pass to
 * the end of its backward the group is used for nothing else, unless all members do so at the same
 * places. Blocks: for the other members, up to the group's timeout; the thread's compute slot is
 * free meanwhile.
 */
#ifndef EXOGYM_PARALLEL_H
#define EXOGYM_PARALLEL_H

#include <exogym/comm.h>
#include <exogym/model.h>
#include <exogym/sequence.h>
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

/* Causal attention of sequences of C T tokens over the C members (Liu et al., 2023, arXiv:2310.01889). A
 * sequence is 2 C chunks of T / 2 tokens; member r has chunks r and 2 C - 1 - r, so that all members have
 * equal work. x (N T, (H + 2 G) D) and opts are those of exo_attention for this member's tokens;
 * opts->sequence is T, even. Positions are those in the whole sequence. Forward swaps the keys and values
 * (N T, 2 G D) with each other member; backward swaps them again, and their gradients. All these move in
 * x's type; attention and its result are fp32. INVAL: as exo_attention; ALiBi, dropout, an invariant pass. */
EXO_API exo_tensor *exo_tape_ring_attention(exo_tape *tape, exo_group *group, exo_tensor *x,
                                            const exo_attention_opts *opts);

/* --- A vocabulary over a group ------------------------------------------------------------------
 *
 * Member r has the rows exo_shard(vocabulary, N, r) of a table (V, W). All members have the same
 * tokens, targets and x.
 */

/* exo_embedding: the rows of the whole table that `tokens` name -> (R, W). weight (V_r, W): this
 * member's rows. Forward is one all-reduce of the result. Backward calls nothing. INVAL: a token is
 * not in [0, vocabulary), or the member has other rows. */
EXO_API exo_tensor *exo_tape_embedding(exo_tape *tape, exo_group *group, exo_tensor *tokens,
                                       exo_tensor *weight, size_t vocabulary);
/* exo_linear_cross_entropy with the head (V, W) -> one element, with the same bits on all members.
 * x (R, W), weight (V_r, W), targets (R) in [0, vocabulary), or negative. Forward is one all-gather
 * of 2 R numbers of each member: the logarithm of the sum over its part of the vocabulary, and the
 * target's logit. Backward calls nothing: x's gradient is this member's part of the sum, so x comes
 * from exo_tape_all_reduce_backward. INVAL: a target of vocabulary or more, or the member has other
 * rows. */
EXO_API exo_tensor *exo_tape_cross_entropy(exo_tape *tape, exo_group *group, exo_tensor *x,
                                           exo_tensor *weight, exo_tensor *targets,
                                           size_t vocabulary);

/* --- Parts of models ----------------------------------------------------------------------------
 *
 * A part is the model of one member of a group: its parameters are slices of the whole model's
 * parameters, or all of them. A pass over a part calls collectives on the tape's groups, whose sizes
 * and ranks are the part's.
 */

/* Sets the group of the tape's passes over parts of layers, and that of passes over some tokens of each
 * sequence; NULL: none. The caller keeps it until the passes are over. A rehearsal needs none. Only parts
 * of models use them. */
EXO_API void exo_tape_set_group(exo_tape *tape, exo_group *group);
EXO_API void exo_tape_set_context_group(exo_tape *tape, exo_group *group);
EXO_API exo_group *exo_tape_group(const exo_tape *tape);
EXO_API exo_group *exo_tape_context_group(const exo_tape *tape);

/* The most ranges of a slice. */
enum {
    EXO_MAX_BANDS = 3
};

/* Indices [first, first + count) of a dimension. */
typedef struct exo_band {
    size_t first, count;
} exo_band;

/* The slice of a parameter that a part has: some ranges of indices along one dimension. */
typedef struct exo_param_cut {
    size_t dim;   /* the dimension that is cut */
    size_t whole; /* the whole parameter's length in this dimension */
    size_t num_bands;
    /* (num_bands) ascending, without overlap. The slice has them one after another. */
    exo_band bands[EXO_MAX_BANDS];
} exo_param_cut;

/* For `build`: declares that a parameter, whose dims are those of the slice, is cut. Its initial
 * values are those of the slice in the whole parameter. Without bands it does nothing. INVAL: the
 * ranges do not fit the parameter. */
EXO_API void exo_build_cut(exo_builder *builder, exo_param param, const exo_param_cut *cut);
/* The cut of the index-th parameter; NULL: it is whole. Lives as long as the model. */
EXO_API const exo_param_cut *exo_model_cut(const exo_model *model, size_t index);

/* What one node has of a model that several share. Counts of 0: it is not divided so. */
typedef struct exo_share {
    uint32_t part, parts;     /* of each layer, as exo_model_part */
    bool sequence;            /* of parts, as exo_model_sequence_part */
    uint32_t member, members; /* of the tokens of each sequence, as exo_model_context_part */
    uint32_t stage, stages;   /* of the layers, as exo_model_stage */
} exo_share;

/* Makes the model of a share of a model of the class "gpt". In a stage, a member has its part of the
 * stage's layers, and of a context's tokens; the passes of the members of a stage hand on what each has.
 * The functions below make shares of one kind. The caller drops it. Errors: those of these functions;
 * INVAL, too, if all counts are 0. */
EXO_API exo_status exo_model_share(exo_model **out, const exo_model *whole, const exo_share *share,
                                   exo_err *err);
/* Makes part `rank` of `members` of a model of the class "gpt". Cut by rows: embedding, head,
 * attention.qkv by heads, mlp.up, and their biases; by columns: attention.out and mlp.down. The
 * rest is whole in every part. The part has the outputs "hidden" and "values", and the objective of
 * the whole model. The caller drops it. Errors: INVAL (members does not divide the heads, the
 * key-value heads or the inner width, or is more than the vocabulary), UNSUPPORTED (another class;
 * dropout, ALiBi, LoRA, a directory, frozen parameters), NOMEM. */
EXO_API exo_status exo_model_part(exo_model **out, const exo_model *whole, uint32_t rank,
                                  uint32_t members, exo_err *err);
/* exo_model_part with sequence parallelism (Korthikanti et al., 2022, arXiv:2205.05198): the same
 * parameters, and a pass in which norms, residuals and what follows a sum are computed of this
 * member's rows only, which are 1/members of all. An all-gather and a reduce-scatter take the place
 * of each all-reduce. "hidden" has all rows; its gradient is this member's share, and "values" are
 * UNSUPPORTED. members must divide the tokens of a sequence. Errors: those of exo_model_part. */
EXO_API exo_status exo_model_sequence_part(exo_model **out, const exo_model *whole, uint32_t rank,
                                           uint32_t members, exo_err *err);
/* Makes member `rank` of `members` of a context-parallel group of a model of the class "gpt": it has all
 * parameters, and computes of each sequence only this member's tokens (exo_tape_ring_attention). Batches
 * have whole sequences, the same for all members, whose length is a multiple of 2 members. Its outputs
 * have this member's rows; its objective is the loss of the whole model, and the gradients of parameters
 * are complete on every member. The caller drops it. Errors: INVAL (there is no such member), UNSUPPORTED
 * (those of exo_model_part). */
EXO_API exo_status exo_model_context_part(exo_model **out, const exo_model *whole, uint32_t rank,
                                          uint32_t members, exo_err *err);
/* Makes part `rank` of `members` of a model of the class "gpt" for generation by a group
 * (exo_generator_opts.group): every matrix and its bias is cut by rows, attention.out and mlp.down too,
 * so each sum is computed by one member as the whole model computes it. The part has no pass on a
 * tape. The caller drops it. Errors: those of exo_model_part, but ALiBi is supported, and members must
 * divide the width, too. */
EXO_API exo_status exo_model_output_part(exo_model **out, const exo_model *whole, uint32_t rank,
                                         uint32_t members, exo_err *err);
/* Copies between flat values of the whole model and those of a part or stage, in host memory:
 * exo_part_take reads the part's slices from `whole`, exo_part_put writes them there. Both have the
 * order of their model's flat parameters; gradients and the state of optimizers have it, too. */
EXO_API void exo_part_take(const exo_model *whole_model, const exo_model *part_model,
                           const float *whole, float *part);
EXO_API void exo_part_put(const exo_model *whole_model, const exo_model *part_model, float *whole,
                          const float *part);
/* exo_part_put for the values of one unit of the whole model. Does nothing if the part lacks it. */
EXO_API void exo_part_put_unit(const exo_model *whole_model, const exo_model *part_model,
                               size_t unit, float *whole, const float *part);
/* Finds elements in a part or stage: of the indices `whole` (count) of the whole model's flat parameters it
 * writes those that the part has to `out`, as indices of the part's, in their order, and returns their
 * number. Ascending indices are found fastest. */
EXO_API size_t exo_part_select(const exo_model *whole_model, const exo_model *part_model,
                               const uint32_t *whole, size_t count, uint32_t *out);
/* Finds a unit of the whole model in a part or stage, by its name. False: the stage lacks it. */
EXO_API bool exo_part_unit(const exo_model *whole_model, const exo_model *part_model, size_t unit,
                           size_t *index);

/* --- Stages of models ---------------------------------------------------------------------------
 *
 * A stage is some of a model's layers (pipeline parallelism; Huang et al., 2019, arXiv:1811.06965).
 * Its parameters have the names, sizes and initial values of the whole model's. A pass over a stage
 * takes what the stage before has computed, and its backward gives the gradient of that. The caller
 * moves these numbers between the stages; the parts of a stage have the collectives of parts.
 */

/* For `build`: the next parameter of the whole model is absent here. The parameters after it have the
 * initial values that they have in the whole model. */
EXO_API void exo_build_absent(exo_builder *builder);

/* For `build`: the model is a stage of a pipeline, whose pass hands on `width` numbers a token, of
 * 1/shares of the tokens of each sequence. Its class has the output "hidden" (R, width) and, if the
 * stage follows another one, "input", a variable (R, width) with the values of the batch's field
 * "hidden" (T, width). The last stage is the one whose class has an objective. */
EXO_API void exo_build_stage(exo_builder *builder, size_t width, size_t shares, bool follows);

/* Makes stage `stage` of `stages` of a model of the class "gpt": the blocks exo_shard(layers, stages,
 * stage). The first stage has the embedding and the positions, too, and the last one the last norm,
 * the head and the value head. A head that is tied to the embedding makes the last stage have a copy
 * of the embedding. The caller drops it. Errors: INVAL (stages is less than 2 or more than the
 * layers), UNSUPPORTED (another class; dropout, LoRA, a directory, frozen parameters), NOMEM. */
EXO_API exo_status exo_model_stage(exo_model **out, const exo_model *whole, uint32_t stage,
                                   uint32_t stages, exo_err *err);
/* Whether the model is a stage. */
EXO_API bool exo_model_is_stage(const exo_model *model);
/* Whether the first and the last stage have the embedding both, and this is one of them: its range of
 * the flat parameters. Its gradient is the sum of both stages' gradients. */
EXO_API bool exo_stage_tied(const exo_model *stage, size_t *first, size_t *count);
/* The number of elements that a stage hands on for this batch: samples x tokens x width / shares. */
EXO_API size_t exo_stage_numel(const exo_model *stage, const exo_batch *batch);

/* The tensors of a pass over a stage; they live as long as the pass. */
typedef struct exo_stage_pass {
    exo_tensor *input;  /* (R, W), a variable; NULL in the first stage */
    exo_tensor *output; /* (R, W), or the loss in the last stage */
} exo_stage_pass;

/* Computes a stage. `input` (exo_stage_numel) stays unchanged until the pass is over; not read in the
 * first stage. False: exo_tape_error has the cause. */
EXO_API bool exo_stage_forward(const exo_model *stage, exo_tape *tape, const exo_batch *batch,
                               const float *input, exo_stage_pass *out);
/* Runs backward of a stage: of the last one from scale x the loss, `grad` being NULL; of the others
 * from the gradient (exo_stage_numel) of their output. Afterwards exo_tensor_grad reads that of
 * pass->input. Errors: those of exo_tape_backward. */
EXO_API exo_status exo_stage_backward(exo_tape *tape, const exo_stage_pass *pass, float scale,
                                      const float *grad, exo_err *err);

EXO_DECLS_END

#endif
