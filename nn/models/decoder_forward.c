/* The pass of a decoder: token embeddings, blocks, the last norm, the head. Shapes: N sequences of
 * T tokens, R = N T rows, W width.
 *
 * The decoder is read-only; what a pass changes belongs to its tape. Read next:
 * exogym/sequence.h. */
#include <string.h>

#include "nn/models/decoder.h"
#include "nn/ops/embedding.h"
#include "nn/ops/head_norms.h"
#include "nn/parallel/members.h"
#include "nn/tape_impl.h"

/* One block in one pass. It lives as long as the pass, because a checkpoint runs the block again in
 * backward. */
struct step {
    const exo_decoder *decoder;
    const exo_decoder_block *block;
    size_t sequence; /* T */
};

static exo_tensor *
optional(exo_tape *t, exo_decoder_param p)
{
    return p.there ? exo_tape_param(t, p.param) : NULL;
}

/* A parameter of which a member of a context, which has some of the rows, has a share of the gradient. */
static exo_tensor *
layer_param(const exo_decoder *d, exo_tape *t, exo_tensor *param)
{
    return d->part.context ? exo_tape_all_reduce_backward(t, exo_tape_context_group(t), param)
                           : param;
}

/* The same, and every part has it whole. By sequence, a part has some of the rows, too. */
static exo_tensor *
shared(const exo_decoder *d, exo_tape *t, exo_tensor *param)
{
    param = layer_param(d, t, param);
    return d->part.sequence ? exo_tape_all_reduce_backward(t, exo_tape_group(t), param) : param;
}

static exo_tensor *
norm(const exo_decoder *d, exo_tape *t, const exo_decoder_norm *n, exo_tensor *x)
{
    exo_tensor *weight = shared(d, t, exo_tape_param(t, n->weight));
    if (d->spec.norm == EXO_NORM_RMS)
        return exo_rms_norm(t, x, weight, d->spec.norm_eps);
    return exo_layer_norm(t, x, weight, shared(d, t, optional(t, n->bias)), d->spec.norm_eps);
}

static bool
drops(const exo_decoder *d, const exo_tape *t)
{
    return d->spec.dropout > 0.0f && exo_tape_pass(t)->train;
}

/* activation(l(x)), or l(x) + residual. */
static exo_tensor *
linear(const exo_decoder *d, exo_tape *t, const exo_decoder_linear *l, exo_tensor *x,
       exo_activation activation, exo_tensor *residual)
{
    exo_tensor *weight = layer_param(d, t, exo_tape_param(t, l->weight));
    exo_tensor *bias = layer_param(d, t, optional(t, l->bias));
    exo_lora_opts lora = {.count = l->num_lora,
                          .scale = d->spec.lora_scale,
                          .activation = activation,
                          .residual = residual};
    for (size_t i = 0; i < l->num_lora; i++)
        lora.parts[i] = (exo_lora){.a = exo_tape_param(t, l->lora[i].a),
                                   .b = exo_tape_param(t, l->lora[i].b),
                                   .first = l->lora[i].first};
    if (l->num_lora > 0)
        return exo_lora_linear(t, x, weight, bias, &lora);
    return residual ? exo_linear_residual(t, x, weight, bias, residual)
                    : exo_linear_activation(t, x, weight, bias, activation);
}

/* Of its layers. */
static bool
is_part(const exo_decoder *d)
{
    return d->part.members > 0;
}

/* The members that have the other parts of the layers, or the other tokens. */
static exo_members
parts_of(const exo_decoder *d, const exo_tape *t)
{
    return (exo_members){
        .group = exo_tape_group(t), .rank = d->part.rank, .count = d->part.members};
}

static exo_members
context_of(const exo_decoder *d, const exo_tape *t)
{
    return (exo_members){
        .group = exo_tape_context_group(t), .rank = d->part.member, .count = d->part.context};
}

/* The input of layers that a part has some rows of. x is the result of a norm and has the type of their
 * products, in which it and its gradient move. */
static exo_tensor *
split(const exo_decoder *d, exo_tape *t, exo_tensor *x)
{
    const exo_members members = parts_of(d, t);
    return d->part.sequence ? exo_members_all_gather(t, &members, x)
           : is_part(d)     ? exo_tape_all_reduce_backward(t, exo_tape_group(t), x)
                            : x;
}

/* The sum of a part's results over the members, in their type; by sequence, its rows of it. */
static exo_tensor *
sum(const exo_decoder *d, exo_tape *t, exo_tensor *x)
{
    const exo_members members = parts_of(d, t);
    return d->part.sequence ? exo_members_reduce_scatter(t, &members, x)
                            : exo_tape_all_reduce(t, exo_tape_group(t), x);
}

/* x + linear(branch), of which a part has some columns. */
static exo_tensor *
sum_parts(const exo_decoder *d, exo_tape *t, const exo_decoder_linear *l, exo_tensor *branch,
          exo_tensor *x)
{
    branch =
        sum(d, t, exo_linear(t, branch, layer_param(d, t, exo_tape_param(t, l->weight)), NULL));
    if (l->bias.there)
        branch = exo_add_bias(t, branch, shared(d, t, optional(t, l->bias)));
    return exo_add(t, x, branch);
}

/* x + dropout(linear(branch)), the end of a branch. */
static exo_tensor *
end_branch(const exo_decoder *d, exo_tape *t, const exo_decoder_linear *l, exo_tensor *branch,
           exo_tensor *x)
{
    if (is_part(d))
        return sum_parts(d, t, l, branch, x);
    if (!x || !drops(d, t))
        return x ? linear(d, t, l, branch, EXO_LINEAR, x) : NULL;
    branch = linear(d, t, l, branch, EXO_LINEAR, NULL);
    return exo_add(t, x, exo_dropout(t, branch, d->spec.dropout));
}

/* The weight of a norm over heads, of which a part has some, and so a share of the gradient. */
static exo_tensor *
head_norm(const exo_decoder *d, exo_tape *t, exo_decoder_param weight)
{
    exo_tensor *param = layer_param(d, t, optional(t, weight));
    return is_part(d) ? exo_tape_all_reduce_backward(t, exo_tape_group(t), param) : param;
}

static exo_tensor *
attention(const exo_decoder *d, exo_tape *t, const exo_decoder_block *k, size_t sequence,
          exo_tensor *x)
{
    const exo_decoder_spec *s = &d->spec;
    const size_t members = is_part(d) ? d->part.members : 1;
    const exo_members context = context_of(d, t);
    exo_attention_opts opts = {
        .sequence = sequence,
        .heads = s->heads / members,
        .kv_heads = s->kv_heads / members,
        .alibi = s->position == EXO_POSITION_ALIBI,
        .rotary = s->position == EXO_POSITION_ROTARY ? &d->rotary : NULL,
        .dropout = s->dropout,
    };
    exo_tensor *branch = split(d, t, norm(d, t, &k->norm1, x));
    branch = linear(d, t, &k->qkv, branch, EXO_LINEAR, NULL);
    if (k->q_norm.there)
        branch = exo_head_norms(t, branch, opts.heads, opts.kv_heads, head_norm(d, t, k->q_norm),
                                head_norm(d, t, k->k_norm), s->norm_eps);
    branch = d->part.context ? exo_members_ring_attention(t, &context, branch, &opts)
                             : exo_attention(t, branch, &opts);
    return end_branch(d, t, &k->out, branch, x);
}

static exo_tensor *
mlp(const exo_decoder *d, exo_tape *t, const exo_decoder_block *k, exo_tensor *x)
{
    const exo_decoder_spec *s = &d->spec;
    exo_tensor *branch = split(d, t, norm(d, t, &k->norm2, x));
    branch = linear(d, t, &k->up, branch, s->gated ? EXO_LINEAR : s->activation, NULL);
    if (s->gated)
        branch = exo_gated(t, branch, s->activation);
    return end_branch(d, t, &k->down, branch, x);
}

static exo_tensor *
block(void *context, exo_tape *t, exo_tensor *x)
{
    const struct step *s = context;
    return mlp(s->decoder, t, s->block, attention(s->decoder, t, s->block, s->sequence, x));
}

/* Checks the shape, type and length of the tokens. Returns T; 0: recorded in the tape. */
static size_t
check_tokens(const exo_decoder *d, exo_tape *t, const exo_tensor *tokens)
{
    char shape[96];
    size_t dims[EXO_MAX_DIMS] = {0};
    if (!tokens)
        return 0;
    if (exo_tensor_dims(tokens, dims) != 2 || exo_tensor_dtype(tokens) != EXO_I32 || dims[1] == 0) {
        exo_tape_fail(t, EXO_INVAL, "gpt: tokens must be (N, T) of int32, not %s of %s",
                      exo_shape_text(tokens, shape), exo_dtype_name(exo_tensor_dtype(tokens)));
        return 0;
    }
    if (dims[1] > d->spec.context) {
        exo_tape_fail(t, EXO_INVAL, "gpt: sequences of %zu tokens, the context is %zu", dims[1],
                      d->spec.context);
        return 0;
    }
    if (d->part.context && dims[1] % (2 * (size_t)d->part.context) != 0) {
        exo_tape_fail(t, EXO_INVAL,
                      "gpt: context parallelism over %u nodes: twice as many must divide sequences "
                      "of %zu tokens",
                      d->part.context, dims[1]);
        return 0;
    }
    const size_t own = d->part.context ? dims[1] / d->part.context : dims[1];
    if (d->part.sequence && own % d->part.members != 0) {
        exo_tape_fail(t, EXO_INVAL,
                      "gpt: sequence parallelism over %u nodes: it must divide sequences of %zu "
                      "tokens",
                      d->part.members, own);
        return 0;
    }
    return dims[1];
}

/* The rows of the tokens; by sequence, this member's share of a sum. */
static exo_tensor *
embed_tokens(const exo_decoder *d, exo_tape *t, exo_tensor *tokens, exo_tensor *table)
{
    if (!is_part(d))
        return exo_embedding(t, tokens, table);
    return (d->part.sequence ? exo_members_embedding : exo_tape_embedding)(
        t, exo_tape_group(t), tokens, table, d->spec.vocabulary);
}

static exo_tensor *
add_positions(const exo_decoder *d, exo_tape *t, exo_tensor *x, size_t sequence)
{
    const exo_members members = parts_of(d, t);
    exo_tensor *table = layer_param(d, t, exo_tape_param(t, d->position));
    if (d->part.sequence)
        table = exo_members_once(t, &members, table);
    if (d->part.context && x) {
        exo_tensor *own = exo_decoder_own_positions(d, t, x->dims[0] / sequence, sequence);
        return exo_add(t, x, exo_embedding(t, own, table));
    }
    return exo_add_positions(t, x, table, sequence, d->spec.position_offset);
}

static exo_tensor *
embed(const exo_decoder *d, exo_tape *t, exo_tensor *tokens, exo_tensor *table, size_t sequence)
{
    const exo_members members = parts_of(d, t);
    exo_tensor *x = embed_tokens(d, t, tokens, table);
    if (d->spec.position == EXO_POSITION_LEARNED)
        x = add_positions(d, t, x, sequence);
    if (d->part.sequence)
        x = exo_members_reduce_scatter(t, &members, x);
    if (d->spec.embedding_norm)
        x = norm(d, t, &d->embedding_norm, x);
    return exo_dropout(t, x, d->spec.dropout);
}

/* The result of the stage before, the batch's field "hidden" (N, T, W) -> (R, W), a variable. */
static exo_tensor *
received(const exo_decoder *d, exo_tape *t, const exo_batch *batch, size_t rows)
{
    const size_t dims[2] = {rows, d->spec.width};
    for (size_t i = 0; i < batch->num_fields; i++)
        if (batch->fields[i].name && strcmp(batch->fields[i].name, "hidden") == 0)
            return exo_tape_variable(t, 2, dims, batch->data[i]);
    return exo_tape_fail(t, EXO_INVAL, "gpt: stage %u needs the field hidden", d->part.stage);
}

/* tokens (N, T), or what the stage before gives -> norm(x) (R, W), or x of a stage before the last.
 * table: the embedding; NULL: the stage has none. With context parallelism, T becomes T / C. */
static exo_tensor *
hidden_of(const exo_decoder *d, exo_tape *t, const exo_batch *batch, exo_tensor *table,
          exo_outputs *outputs)
{
    exo_tensor *tokens = exo_batch_field(t, batch, "tokens");
    size_t sequence = check_tokens(d, t, tokens), first, layers;
    exo_decoder_blocks(d, &first, &layers);
    struct step *steps = sequence ? exo_tape_host_buffer(t, layers * sizeof *steps) : NULL;
    if (!steps)
        return NULL;
    bool grad = exo_tape_pass(t)->grad;
    if (d->part.context) {
        tokens = exo_decoder_own_tokens(d, t, tokens);
        sequence /= d->part.context;
    }
    const size_t shares = d->part.sequence ? d->part.members : 1;
    exo_tensor *x = exo_decoder_has_first(d)
                        ? embed(d, t, tokens, table, sequence)
                        : received(d, t, batch, tokens ? tokens->numel / shares : 0); /* (R, W) */
    exo_outputs_give(outputs, "input", x);
    for (size_t i = 0; i < layers; i++) {
        steps[i] =
            (struct step){.decoder = d, .block = &d->blocks[first + i], .sequence = sequence};
        /* The decoder's last block needs no checkpoint: backward begins with it and would compute it
         * again at once. */
        bool forgets =
            !grad || (d->spec.checkpoint && (i + 1 < layers || !exo_decoder_has_last(d)));
        x = forgets ? exo_checkpoint(t, x, block, &steps[i]) : block(&steps[i], t, x);
    }
    if (!exo_decoder_has_last(d))
        return x;
    x = norm(d, t, &d->norm, x);
    return d->part.sequence ? split(d, t, x) : x;
}

void
exo_decoder_forward(const void *self, exo_tape *t, const exo_batch *batch, exo_outputs *outputs)
{
    const exo_decoder *d = self;
    const bool last = exo_decoder_has_last(d);
    if (!exo_decoder_check_groups(d, t))
        return;
    /* The one that the head shares, so that its gradient is summed once. */
    exo_tensor *table = exo_decoder_has_first(d) || (last && !d->head.there)
                            ? layer_param(d, t, exo_tape_param(t, d->embedding))
                            : NULL;
    exo_tensor *hidden = hidden_of(d, t, batch, table, outputs);
    exo_outputs_give(outputs, "hidden", hidden);
    exo_tensor *head =
        last && d->head.there ? layer_param(d, t, exo_tape_param(t, d->head.param)) : table;
    if (!is_part(d) && last)
        exo_outputs_give_product(outputs, "logits", hidden, head);
    else if (last)
        exo_outputs_give(outputs, "head", head);
    if (!exo_outputs_wants(outputs, "values"))
        return;
    if (d->part.sequence || d->part.context)
        exo_tape_fail(t, EXO_UNSUPPORTED,
                      "gpt: with sequence or context parallelism there are no values");
    else if (d->values)
        exo_outputs_give(outputs, "values",
                         exo_linear(t, hidden, exo_tape_param(t, d->value_weight),
                                    exo_tape_param(t, d->value_bias)));
    else
        exo_tape_fail(t, EXO_INVAL, "gpt: the model has no value head: set values: true");
}
