/* The list of a decoder's parameters, for the kernels that read them: see decoder_args.h. It is
 * that of exogym/decoder.h. Also the factors of its rotary frequencies. No state. */
#include "nn/device/device_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A walk over the list, which ends at the parameter that is looked for. */
struct walk {
    size_t left; /* parameters before it */
    exo_decoder_entry *out;
};

/* One parameter. true: it is the one. */
static bool
visit(struct walk *w, exo_decoder_role role, size_t block, const char *name, bool bias,
      size_t num_dims, size_t rows, size_t columns)
{
    if (w->left-- > 0)
        return false;
    exo_decoder_entry *p = w->out;
    *p = (exo_decoder_entry){.role = role,
                             .block = block,
                             .bias = bias,
                             .num_dims = num_dims,
                             .dims = {rows, num_dims > 1 ? columns : 0}};
    bool in_block = role >= EXO_DECODER_NORM1 && role <= EXO_DECODER_DOWN;
    if (in_block)
        snprintf(p->name, sizeof p->name, "blocks.%zu.%s.%s", block, name,
                 bias ? "bias" : "weight");
    else
        snprintf(p->name, sizeof p->name, "%s.%s", name, bias ? "bias" : "weight");
    return true;
}

static bool
visit_norm(struct walk *w, const exo_decoder_spec *s, exo_decoder_role role, size_t block,
           const char *name)
{
    return visit(w, role, block, name, false, 1, s->width, 0) ||
           (s->norm == EXO_NORM_LAYER && visit(w, role, block, name, true, 1, s->width, 0));
}

static bool
visit_linear(struct walk *w, exo_decoder_role role, size_t block, const char *name, size_t rows,
             size_t columns, bool bias)
{
    return visit(w, role, block, name, false, 2, rows, columns) ||
           (bias && visit(w, role, block, name, true, 1, rows, 0));
}

bool
exo_decoder_has_head_norms(const exo_decoder_spec *s)
{
    return strcmp(s->family, "qwen3") == 0;
}

static bool
visit_head_norms(struct walk *w, const exo_decoder_spec *s, size_t block)
{
    return exo_decoder_has_head_norms(s) &&
           (visit(w, EXO_DECODER_Q_NORM, block, "attention.q_norm", false, 1, s->head_width, 0) ||
            visit(w, EXO_DECODER_K_NORM, block, "attention.k_norm", false, 1, s->head_width, 0));
}

static bool
visit_block(struct walk *w, const exo_decoder_spec *s, size_t block)
{
    size_t queries = s->heads * s->head_width, all = (s->heads + 2 * s->kv_heads) * s->head_width;
    return visit_norm(w, s, EXO_DECODER_NORM1, block, "norm1") ||
           visit_linear(w, EXO_DECODER_QKV, block, "attention.qkv", all, s->width,
                        s->attention_qkv_bias) ||
           visit_head_norms(w, s, block) ||
           visit_linear(w, EXO_DECODER_OUT, block, "attention.out", s->width, queries,
                        s->attention_out_bias) ||
           visit_norm(w, s, EXO_DECODER_NORM2, block, "norm2") ||
           visit_linear(w, EXO_DECODER_UP, block, "mlp.up", s->inner * (s->gated ? 2 : 1), s->width,
                        s->mlp_bias) ||
           visit_linear(w, EXO_DECODER_DOWN, block, "mlp.down", s->width, s->inner, s->mlp_bias);
}

/* The number of parameters of a block. */
static size_t
block_length(const exo_decoder_spec *s)
{
    size_t norms = s->norm == EXO_NORM_LAYER ? 4 : 2;
    return norms + (exo_decoder_has_head_norms(s) ? 2 : 0) + 4 + s->attention_qkv_bias +
           s->attention_out_bias + (s->mlp_bias ? 2 : 0);
}

bool
exo_decoder_entry_at(const exo_decoder_spec *s, size_t index, exo_decoder_entry *out)
{
    struct walk w = {.left = index, .out = out};
    if (visit(&w, EXO_DECODER_EMBEDDING, 0, "embedding", false, 2, s->vocabulary, s->width) ||
        (s->position == EXO_POSITION_LEARNED &&
         visit(&w, EXO_DECODER_POSITION, 0, "position", false, 2, s->context + s->position_offset,
               s->width)) ||
        (s->embedding_norm && visit_norm(&w, s, EXO_DECODER_EMBEDDING_NORM, 0, "embedding_norm")))
        return true;
    size_t length = block_length(s), block = w.left / length;
    if (block < s->layers) {
        w.left %= length;
        return visit_block(&w, s, block);
    }
    w.left -= s->layers * length;
    return visit_norm(&w, s, EXO_DECODER_NORM, 0, "norm") ||
           (!s->tied && visit(&w, EXO_DECODER_HEAD, 0, "head", false, 2, s->vocabulary, s->width));
}

void
exo_decoder_cut_entry(const exo_decoder_shape *shape, exo_decoder_entry *entry)
{
    size_t members = shape->members, rest;
    if (members == 0)
        return;
    switch (entry->role) {
    case EXO_DECODER_EMBEDDING:
    case EXO_DECODER_HEAD: /* as exo_shard divides them */
        rest = entry->dims[0] % members;
        entry->dims[0] = entry->dims[0] / members + (shape->rank < rest);
        break;
    case EXO_DECODER_QKV:
    case EXO_DECODER_OUT:
    case EXO_DECODER_UP:
    case EXO_DECODER_DOWN:
        entry->dims[0] /= members;
        break;
    default:
        break;
    }
}

bool
exo_decoder_part_entry_at(const exo_decoder_shape *shape, size_t index, exo_decoder_entry *out)
{
    if (!exo_decoder_entry_at(&shape->spec, index, out))
        return false;
    exo_decoder_cut_entry(shape, out);
    return true;
}

exo_decoder_spec
exo_decoder_part_spec(const exo_decoder_shape *shape, size_t *first_token)
{
    exo_decoder_spec mine = shape->spec;
    size_t members = shape->members > 0 ? shape->members : 1;
    size_t each = mine.vocabulary / members, rest = mine.vocabulary % members;
    *first_token = shape->rank * each + (shape->rank < rest ? shape->rank : rest); /* exo_shard */
    mine.vocabulary = each + (shape->rank < rest);
    mine.heads /= members;
    mine.kv_heads /= members;
    mine.inner /= members;
    return mine;
}

/* Whether the family has one projection for queries, keys and values, and not three. */
static bool
is_fused(const exo_decoder_spec *s)
{
    return strcmp(s->family, "gpt2") == 0 || strcmp(s->family, "bloom") == 0;
}

/* The layers of a block with all their names. */
static size_t
list_layers(const exo_decoder_spec *s, exo_decoder_layer out[7])
{
    bool apart = !is_fused(s);
    size_t queries = s->heads * s->head_width, keys = s->kv_heads * s->head_width;
    size_t width = s->width, count = 0;
    if (apart) {
        out[count++] = (exo_decoder_layer){
            .inside = "attention.q", .role = EXO_DECODER_QKV, .rows = queries, .columns = width};
        out[count++] = (exo_decoder_layer){.inside = "attention.k",
                                           .role = EXO_DECODER_QKV,
                                           .first = queries,
                                           .rows = keys,
                                           .columns = width};
        out[count++] = (exo_decoder_layer){.inside = "attention.v",
                                           .role = EXO_DECODER_QKV,
                                           .first = queries + keys,
                                           .rows = keys,
                                           .columns = width};
    } else {
        out[count++] = (exo_decoder_layer){.inside = "attention.qkv",
                                           .role = EXO_DECODER_QKV,
                                           .rows = queries + 2 * keys,
                                           .columns = width};
    }
    out[count++] = (exo_decoder_layer){
        .inside = "attention.out", .role = EXO_DECODER_OUT, .rows = width, .columns = queries};
    if (s->gated)
        out[count++] = (exo_decoder_layer){
            .inside = "mlp.gate", .role = EXO_DECODER_UP, .rows = s->inner, .columns = width};
    out[count++] = (exo_decoder_layer){.inside = "mlp.up",
                                       .role = EXO_DECODER_UP,
                                       .first = s->gated ? s->inner : 0,
                                       .rows = s->inner,
                                       .columns = width};
    out[count++] = (exo_decoder_layer){
        .inside = "mlp.down", .role = EXO_DECODER_DOWN, .rows = width, .columns = s->inner};
    return count;
}

bool
exo_decoder_layer_at(const exo_decoder_spec *spec, size_t index, exo_decoder_layer *out)
{
    exo_decoder_layer all[7];
    size_t count = list_layers(spec, all);
    if (index / count >= spec->layers)
        return false;
    *out = all[index % count];
    out->block = index / count;
    snprintf(out->name, sizeof out->name, "blocks.%zu.%s", out->block, out->inside);
    return true;
}

bool
exo_rope_factors(const exo_decoder_spec *s, float *out)
{
    const exo_rope_scaling *r = &s->rope_scaling;
    const double pi = 3.14159265358979323846, width = (double)s->head_width;
    for (size_t i = 0; r->factor > 0 && i < s->head_width / 2; i++) {
        double frequency = pow((double)s->rope_theta, -2.0 * (double)i / width),
               length = 2.0 * pi / frequency;
        double context = (double)r->original_context, low = (double)r->low_freq_factor;
        double high = (double)r->high_freq_factor, factor = (double)r->factor;
        double smooth = (context / length - low) / (high - low);
        if (r->linear || length > context / low)
            out[i] = (float)(1.0 / factor);
        else if (length < context / high)
            out[i] = 1.0f;
        else
            out[i] = (float)((1.0 - smooth) / factor + smooth);
    }
    return r->factor > 0;
}
