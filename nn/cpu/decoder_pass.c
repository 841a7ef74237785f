/* The kernels of a decoder: packing, passes and logits. Each step of a block is one loop of the
 * team (team.h), over rows, over tiles of rows, or over panels of weights. The state of a kernel
 * that runs is in its plan. Read next: decoder_plan.h; decode.h, which has the arithmetic. */
#include <math.h>
#include <string.h>

#include "nn/cpu/cpu_device.h"
#include "nn/cpu/decoder_plan.h"
#include "nn/cpu/row_norm.h"

enum {
    SHARES = 64 /* a product's panels are divided into at most so many items */
};

_Static_assert((int)EXO_DECODE_PANEL == (int)EXO_DECODER_PITCH, "logits are written in panels");

static size_t
inner_stride(const exo_decoder_spec *s)
{
    return exo_decode_stride(s->inner);
}

static size_t
mixed_stride(const exo_decoder_spec *s)
{
    return exo_decode_stride(s->heads * s->head_width);
}

static size_t
qkv_stride(const exo_decoder_spec *s)
{
    return exo_decode_stride((s->heads + 2 * s->kv_heads) * s->head_width);
}

/* --- Loops: what an item is ------------------------------------------------------------------- */

/* The context of an item. Each member of the team has its own, and all have the same values. */
struct at {
    const exo_cpu_decoder *d;
    const exo_block_weights *block;
    size_t layer;
    /* The product under way. If `gate` is set, it is computed first, and `linear` multiplies y. */
    const exo_linear_weights *linear, *gate;
    exo_decode_rows in;
    size_t rows;
    exo_decode_end end;
    float *y;
    size_t stride;
};

static exo_decode_rows
rows_of(const exo_cpu_decoder *d, const float *x, size_t stride)
{
    return (exo_decode_rows){.x = x,
                             .stride = stride,
                             .q = d->at.q,
                             .scales = d->at.scales,
                             .sums = d->at.sums,
                             .groups = d->at.groups};
}

static void
apply_norm(const exo_decoder_spec *s, const exo_norm_weights *norm, const float *x, float *y)
{
    const exo_row_norm n = {.width = s->width,
                            .centered = s->norm == EXO_NORM_LAYER,
                            .eps = s->norm_eps,
                            .weight = norm->weight,
                            .bias = norm->bias};
    float mean, inverse; /* for backward */
    exo_row_norm_forward(&n, 1, x, EXO_F32, y, &mean, &inverse);
}

static void
embed_row(void *context, size_t row)
{
    const struct at *at = context;
    const exo_cpu_decoder *d = at->d;
    const exo_decoder_weights *w = &d->weights;
    const exo_decoder_spec *s = &w->spec;
    size_t stride = exo_decode_stride(s->width);
    float *x = d->at.x + row * stride, *h = d->at.h + row * stride;
    exo_decode_unpack(&w->embedding.matrix, (size_t)d->pass->tokens[row], x);
    if (w->position) {
        const float *position =
            w->position + ((size_t)d->pass->positions[row] + s->position_offset) * s->width;
        for (size_t i = 0; i < s->width; i++)
            x[i] += position[i];
    }
    if (s->embedding_norm) {
        memcpy(h, x, s->width * sizeof *h);
        apply_norm(s, &w->embedding_norm, h, x);
    }
}

/* h[row] = norm(x[from]). Quantizes the row too if products read quantized rows. */
static void
norm_row(const struct at *at, const exo_norm_weights *norm, size_t from, size_t row)
{
    const exo_cpu_decoder *d = at->d;
    const exo_decoder_spec *s = &d->weights.spec;
    size_t stride = exo_decode_stride(s->width);
    apply_norm(s, norm, d->at.x + from * stride, d->at.h + row * stride);
    if (d->weights.format != EXO_WEIGHTS_F32) {
        exo_decode_rows rows = rows_of(d, d->at.h, stride);
        exo_decode_quantize_row(&rows, row, s->width);
    }
}

static void
norm1_row(void *context, size_t row)
{
    const struct at *at = context;
    norm_row(at, &at->block->norm1, row, row);
}

static void
norm2_row(void *context, size_t row)
{
    const struct at *at = context;
    norm_row(at, &at->block->norm2, row, row);
}

static void
last_norm_row(void *context, size_t row)
{
    const struct at *at = context;
    norm_row(at, &at->d->weights.norm, (size_t)at->d->wanted->which[row], row);
}

static void
quantize_row(void *context, size_t row)
{
    const struct at *at = context;
    exo_decode_quantize_row(&at->in, row, at->linear->matrix.inputs);
}

static size_t
share_of(size_t panels)
{
    return (panels + SHARES - 1) / SHARES;
}

static void
product_share(void *context, size_t index)
{
    const struct at *at = context;
    const exo_decode_matrix *m = &at->linear->matrix;
    size_t share = share_of(m->panels),
           last = (index + 1) * share < m->panels ? (index + 1) * share : m->panels;
    for (size_t panel = index * share; panel < last; panel++) {
        if (at->gate) {
            const exo_decode_end gate = {.bias = at->gate->bias,
                                         .activation = at->d->weights.spec.activation};
            exo_decode_product(&at->gate->matrix, &at->in, at->rows, panel, &gate, at->y,
                               at->stride);
        }
        exo_decode_product(m, &at->in, at->rows, panel, &at->end, at->y, at->stride);
    }
}

/* A row's cache in a layer: the keys and values of its heads. */
static float *
cache_of(const struct at *at, size_t row)
{
    const exo_cpu_decoder *d = at->d;
    size_t floats = exo_cpu_decoder_cache(&d->shape);
    return (float *)d->pass->caches + (size_t)d->pass->sequences[row] * floats +
           at->layer * (floats / d->weights.spec.layers);
}

/* Writes a row's keys and values into the cache, after rotary positions have turned its queries
 * and keys. */
static void
remember_row(void *context, size_t row)
{
    const struct at *at = context;
    const exo_cpu_decoder *d = at->d;
    const exo_decoder_spec *s = &d->weights.spec;
    size_t width = s->head_width, position = (size_t)d->pass->positions[row];
    size_t keys = exo_decode_keys_size(d->shape.context, width),
           values = exo_decode_values_size(d->shape.context, width);
    float *qkv = d->at.qkv + row * qkv_stride(s);
    if (d->turns)
        for (size_t head = 0; head < s->heads + s->kv_heads; head++)
            exo_decode_rotate(qkv + head * width, width, d->turns + position * width);
    float *cache = cache_of(at, row);
    for (size_t g = 0; g < s->kv_heads; g++, cache += keys + values) {
        const float *key = qkv + (s->heads + g) * width;
        exo_decode_cache_put(cache, cache + keys, width, position, key, key + s->kv_heads * width);
    }
}

/* Attention of a tile's rows, in all query heads that share one head of keys and values. */
static void
attend_tile(void *context, size_t index)
{
    const struct at *at = context;
    const exo_cpu_decoder *d = at->d;
    const exo_decoder_spec *s = &d->weights.spec;
    const exo_row_tile *tile = &d->tile[index / s->kv_heads];
    size_t g = index % s->kv_heads, width = s->head_width, shared = s->heads / s->kv_heads;
    size_t keys = exo_decode_keys_size(d->shape.context, width),
           values = exo_decode_values_size(d->shape.context, width);
    const float *cache = cache_of(at, tile->first) + g * (keys + values);
    exo_decode_attention a = {.keys = cache,
                              .values = cache + keys,
                              .head_width = width,
                              .scale = (float)(1.0 / sqrt((double)width))};
    for (size_t i = 0; i < tile->count * shared; i++) {
        size_t row = tile->first + i / shared, head = g * shared + i % shared;
        a.query[a.queries] = d->at.qkv + row * qkv_stride(s) + head * width;
        a.out[a.queries] = d->at.mixed + row * mixed_stride(s) + head * width;
        a.position[a.queries] = (size_t)d->pass->positions[row];
        a.slope[a.queries++] = d->slopes ? d->slopes[head] : 0;
        if (a.queries == EXO_DECODE_QUERIES || i + 1 == tile->count * shared) {
            exo_decode_attend(&a);
            a.queries = 0;
        }
    }
}

/* --- The pass --------------------------------------------------------------------------------- */

/* v = activation(in W^T + bias), divided among the team. `put` selects one of y = v, y += v and y
 * *= v. `quantize`: no norm has quantized `in`, so a quantized product does it here. */
static void
product(exo_member *member, struct at *at, const exo_linear_weights *linear, const float *in,
        size_t in_stride, float *y, size_t y_stride, exo_activation activation, exo_decode_put put,
        bool quantize)
{
    at->linear = linear;
    at->in = rows_of(at->d, in, in_stride);
    at->end = (exo_decode_end){.bias = linear->bias, .activation = activation, .put = put};
    at->y = y;
    at->stride = y_stride;
    if (quantize && linear->matrix.format != EXO_DECODE_F32)
        exo_team_run(member, at->rows, quantize_row, at);
    size_t share = share_of(linear->matrix.panels);
    exo_team_run(member, (linear->matrix.panels + share - 1) / share, product_share, at);
}

static void
run_block(exo_member *member, struct at *at, size_t layer)
{
    const exo_cpu_decoder *d = at->d;
    const exo_decoder_activations *a = &d->at;
    const exo_decoder_spec *s = &d->weights.spec;
    const exo_block_weights *b = &d->weights.blocks[layer];
    size_t width = exo_decode_stride(s->width);
    at->block = b;
    at->layer = layer;
    exo_team_run(member, at->rows, norm1_row, at);
    product(member, at, &b->qkv, a->h, width, a->qkv, qkv_stride(s), EXO_LINEAR, EXO_DECODE_SET,
            false);
    exo_team_run(member, at->rows, remember_row, at);
    exo_team_run(member, d->tiles * s->kv_heads, attend_tile, at);
    product(member, at, &b->out, a->mixed, mixed_stride(s), a->x, width, EXO_LINEAR, EXO_DECODE_ADD,
            true);
    exo_team_run(member, at->rows, norm2_row, at);
    at->gate = s->gated ? &b->gate : NULL;
    product(member, at, &b->up, a->h, width, a->inner, inner_stride(s),
            s->gated ? EXO_LINEAR : s->activation, s->gated ? EXO_DECODE_MULTIPLY : EXO_DECODE_SET,
            false);
    at->gate = NULL;
    product(member, at, &b->down, a->inner, inner_stride(s), a->x, width, EXO_LINEAR,
            EXO_DECODE_ADD, true);
}

static void
run_pass(void *context, exo_member *member)
{
    const exo_cpu_decoder *d = context;
    struct at at = {.d = d, .rows = d->pass->rows};
    exo_team_run(member, at.rows, embed_row, &at);
    for (size_t layer = 0; layer < d->weights.spec.layers; layer++)
        run_block(member, &at, layer);
}

static void
run_logits(void *context, exo_member *member)
{
    const exo_cpu_decoder *d = context;
    const exo_decoder_spec *s = &d->weights.spec;
    const exo_linear_weights head = {.matrix = *exo_decoder_weights_head(&d->weights)};
    struct at at = {.d = d, .rows = d->wanted->rows};
    exo_team_run(member, at.rows, last_norm_row, &at);
    product(member, &at, &head, d->at.h, exo_decode_stride(s->width), d->wanted->logits,
            exo_decode_stride(s->vocabulary), EXO_LINEAR, EXO_DECODE_SET, false);
}

/* --- The kernels ------------------------------------------------------------------------------ */

/* Divides the rows into tiles. */
static void
make_tiles(exo_cpu_decoder *d, const exo_decoder_pass_args *k)
{
    d->tiles = 0;
    for (size_t row = 0; row < k->rows; row++) {
        exo_row_tile *last = d->tiles > 0 ? &d->tile[d->tiles - 1] : NULL;
        if (!last || last->count == EXO_DECODE_QUERIES ||
            k->sequences[row] != k->sequences[last->first])
            d->tile[d->tiles++] = (exo_row_tile){.first = row, .count = 1};
        else
            last->count++;
    }
}

exo_status
exo_cpu_decoder_pack(exo_device *device, const exo_decoder_pack_args *k, exo_err *err)
{
    exo_cpu_decoder *d = exo_cpu_decoder_of(k->plan);
    (void)device;
    (void)err;
    exo_decoder_weights_bind(&d->weights, k->weights);
    exo_decoder_weights_pack(&d->weights, k->parameter, k->values);
    return EXO_OK;
}

exo_status
exo_cpu_decoder_pass(exo_device *device, const exo_decoder_pass_args *k, exo_err *err)
{
    exo_cpu_decoder *d = exo_cpu_decoder_of(k->plan);
    (void)device;
    (void)err;
    exo_decoder_weights_bind(&d->weights, k->weights);
    exo_cpu_decoder_lay_out(&d->at, &d->shape, k->scratch);
    make_tiles(d, k);
    d->pass = k;
    exo_team_go(d->team, run_pass, d);
    return EXO_OK;
}

exo_status
exo_cpu_decoder_logits(exo_device *device, const exo_decoder_logits_args *k, exo_err *err)
{
    exo_cpu_decoder *d = exo_cpu_decoder_of(k->plan);
    (void)device;
    (void)err;
    exo_decoder_weights_bind(&d->weights, k->weights);
    exo_cpu_decoder_lay_out(&d->at, &d->shape, k->scratch);
    d->wanted = k;
    exo_team_go(d->head_team, run_logits, d);
    return EXO_OK;
}
