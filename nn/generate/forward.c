/* Forward passes: see forward.h. Each step of a block is one loop of the team (team.h), over rows,
 * over tiles of rows, or over panels of weights. Read next: nn/cpu/decode.h, the kernels. */
#include "nn/generate/forward.h"

#include <math.h>
#include <string.h>

#include <exogym/memory.h>

#include "nn/generate/positions.h"

enum {
    PANEL = EXO_DECODE_PANEL,
    BLOCK_LOOPS = 10, /* of each block, at most */
    EMBEDDING_LOOPS = 1,
    LOGIT_LOOPS = 3, /* of each EXO_LOGIT_ROWS rows of logits */
    SHARES = 64      /* a product's panels are divided into at most so many items */
};

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

/* --- Memory ----------------------------------------------------------------------------------- */

/* count * size zeroed bytes, aligned for kernels. NULL: no memory, or the product overflows. */
static void *
aligned(size_t count, size_t size)
{
    size_t bytes = 0;
    return __builtin_mul_overflow(count, size, &bytes) ? NULL : exo_alloc_aligned(bytes);
}

static bool
make_activations(exo_forward *f)
{
    const exo_decoder_spec *s = &f->weights->spec;
    size_t rows = f->max_rows, width = exo_decode_stride(s->width), inner = inner_stride(s);
    size_t widest = width > inner ? width : inner, mixed = mixed_stride(s),
           vocabulary = exo_decode_stride(s->vocabulary);
    widest = widest > mixed ? widest : mixed;
    f->groups = (widest + EXO_DECODE_GROUP - 1) / EXO_DECODE_GROUP;
    f->x = aligned(rows * width, sizeof *f->x);
    f->h = aligned(rows * width, sizeof *f->h);
    f->qkv = aligned(rows * qkv_stride(s), sizeof *f->qkv);
    f->mixed = aligned(rows * mixed, sizeof *f->mixed);
    f->inner = aligned(rows * inner, sizeof *f->inner);
    f->q = aligned(rows * widest, sizeof *f->q);
    f->scales = aligned(rows * f->groups, sizeof *f->scales);
    f->sums = aligned(rows * f->groups, sizeof *f->sums);
    f->logits = aligned(EXO_LOGIT_ROWS * vocabulary, sizeof *f->logits);
    f->scratch.weights = aligned(EXO_LOGIT_ROWS * vocabulary, sizeof(float));
    f->scratch.values = aligned(EXO_LOGIT_ROWS * vocabulary, sizeof(float));
    f->scratch.places = aligned(EXO_LOGIT_ROWS * vocabulary, sizeof(uint32_t));
    f->scratch.order = aligned(EXO_LOGIT_ROWS * vocabulary, sizeof(uint32_t));
    return f->x && f->h && f->qkv && f->mixed && f->inner && f->q && f->scales && f->sums &&
           f->logits && f->scratch.weights && f->scratch.values && f->scratch.places &&
           f->scratch.order;
}

static bool
make_plan(exo_forward *f)
{
    f->token = exo_calloc(f->max_rows, sizeof *f->token);
    f->position = exo_calloc(f->max_rows, sizeof *f->position);
    f->cache = exo_calloc(f->max_rows, sizeof *f->cache);
    f->tile = exo_calloc(f->max_rows, sizeof *f->tile);
    f->output = exo_calloc(f->max_rows, sizeof *f->output);
    f->tag = exo_calloc(f->max_rows, sizeof *f->tag);
    return f->token && f->position && f->cache && f->tile && f->output && f->tag;
}

static bool
make_tables(exo_forward *f)
{
    const exo_decoder_spec *s = &f->weights->spec;
    if (s->position == EXO_POSITION_ALIBI) {
        f->slopes = exo_calloc(s->heads, sizeof *f->slopes);
        if (f->slopes)
            exo_alibi_slopes(s->heads, f->slopes);
        return f->slopes != NULL;
    }
    if (s->position != EXO_POSITION_ROTARY)
        return true;
    f->cosine = aligned(f->context * (s->head_width / 2), sizeof *f->cosine);
    f->sine = aligned(f->context * (s->head_width / 2), sizeof *f->sine);
    if (f->cosine && f->sine)
        exo_rotary_tables(s, f->context, f->cosine, f->sine);
    return f->cosine && f->sine;
}

exo_status
exo_forward_init(exo_forward *f, const exo_decoder_weights *weights, size_t context,
                 size_t max_rows, exo_err *err)
{
    const exo_decoder_spec *s = &weights->spec;
    f->weights = weights;
    f->context = context;
    f->max_rows = max_rows;
    size_t head = exo_decode_keys_size(context, s->head_width) +
                  exo_decode_values_size(context, s->head_width);
    f->cache_size = head * s->kv_heads * s->layers;
    size_t stretches = (max_rows + EXO_LOGIT_ROWS - 1) / EXO_LOGIT_ROWS;
    exo_status st = exo_team_new(
        &f->team, EMBEDDING_LOOPS + s->layers * BLOCK_LOOPS + stretches * LOGIT_LOOPS, err);
    if (st == EXO_OK && (!make_activations(f) || !make_plan(f) || !make_tables(f)))
        st = exo_fail(err, EXO_NOMEM, "no memory for the activations of %zu tokens", max_rows);
    return st;
}

void
exo_forward_release(exo_forward *f)
{
    void *all[] = {f->slopes,
                   f->cosine,
                   f->sine,
                   f->token,
                   f->position,
                   f->cache,
                   f->tile,
                   f->output,
                   f->tag,
                   f->x,
                   f->h,
                   f->qkv,
                   f->mixed,
                   f->inner,
                   f->q,
                   f->scales,
                   f->sums,
                   f->logits,
                   f->scratch.weights,
                   f->scratch.values,
                   f->scratch.places,
                   f->scratch.order};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        exo_free(all[i]);
    exo_team_free(&f->team);
    *f = (exo_forward){0};
}

/* --- Plan ------------------------------------------------------------------------------------- */

void
exo_pass_begin(exo_forward *f, exo_logits_use use, void *context)
{
    f->rows = f->outputs = f->tiles = 0;
    f->use = use;
    f->use_context = context;
}

void
exo_pass_add(exo_forward *f, float *cache, const int32_t *tokens, size_t count, size_t position,
             size_t wanted, size_t tag)
{
    for (size_t i = 0; i < count; i++) {
        size_t row = f->rows++;
        f->token[row] = tokens[i];
        f->position[row] = position + i;
        f->cache[row] = cache;
        if (i % EXO_DECODE_QUERIES == 0)
            f->tile[f->tiles++] = (exo_row_tile){.first = row};
        f->tile[f->tiles - 1].count++;
        if (i + wanted >= count) {
            f->output[f->outputs] = row;
            f->tag[f->outputs++] = tag++;
        }
    }
}

/* --- Loops: what an item is ------------------------------------------------------------------- */

/* The context of an item. Each member of the team has its own, and all have the same values. */
struct at {
    exo_forward *f;
    const exo_block_weights *block;
    size_t layer;
    size_t first, outputs; /* the rows of logits under way: f->output[first] and those after it */
    /* The product under way. If `gate` is set, it is computed first, and `linear` multiplies y. */
    const exo_linear_weights *linear, *gate;
    exo_decode_rows in;
    size_t rows;
    exo_decode_end end;
    float *y;
    size_t stride;
};

static exo_decode_rows
rows_of(const exo_forward *f, const float *x, size_t stride)
{
    return (exo_decode_rows){.x = x,
                             .stride = stride,
                             .q = f->q,
                             .scales = f->scales,
                             .sums = f->sums,
                             .groups = f->groups};
}

static void
apply_norm(const exo_decoder_spec *s, const exo_norm_weights *norm, const float *x, float *y)
{
    if (s->norm == EXO_NORM_RMS && !norm->bias)
        exo_decode_rms_norm(x, s->width, norm->weight, s->norm_eps, y);
    else
        exo_decode_layer_norm(x, s->width, norm->weight, norm->bias, s->norm_eps, y);
}

static void
embed_row(void *context, size_t row)
{
    const struct at *at = context;
    exo_forward *f = at->f;
    const exo_decoder_weights *w = f->weights;
    const exo_decoder_spec *s = &w->spec;
    size_t stride = exo_decode_stride(s->width);
    float *x = f->x + row * stride, *h = f->h + row * stride;
    exo_decode_unpack(&w->embedding.matrix, (size_t)f->token[row], x);
    if (w->position) {
        const float *position = w->position + (f->position[row] + s->position_offset) * s->width;
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
    exo_forward *f = at->f;
    const exo_decoder_spec *s = &f->weights->spec;
    size_t stride = exo_decode_stride(s->width);
    apply_norm(s, norm, f->x + from * stride, f->h + row * stride);
    if (f->weights->format != EXO_WEIGHTS_F32) {
        exo_decode_rows rows = rows_of(f, f->h, stride);
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
last_norm_row(void *context, size_t index)
{
    const struct at *at = context;
    norm_row(at, &at->f->weights->norm, at->f->output[at->first + index], index);
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
                                         .activation = at->f->weights->spec.activation};
            exo_decode_product(&at->gate->matrix, &at->in, at->rows, panel, &gate, at->y,
                               at->stride);
        }
        exo_decode_product(m, &at->in, at->rows, panel, &at->end, at->y, at->stride);
    }
}

/* Writes a row's keys and values into the cache, after rotary positions have turned its queries
 * and keys. */
static void
remember_row(void *context, size_t row)
{
    const struct at *at = context;
    exo_forward *f = at->f;
    const exo_decoder_spec *s = &f->weights->spec;
    size_t width = s->head_width, position = f->position[row];
    size_t keys = exo_decode_keys_size(f->context, width),
           values = exo_decode_values_size(f->context, width);
    float *qkv = f->qkv + row * qkv_stride(s);
    if (f->cosine)
        for (size_t head = 0; head < s->heads + s->kv_heads; head++)
            exo_decode_rotate(qkv + head * width, width, f->cosine + position * (width / 2),
                              f->sine + position * (width / 2));
    float *cache = f->cache[row] + at->layer * s->kv_heads * (keys + values);
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
    exo_forward *f = at->f;
    const exo_decoder_spec *s = &f->weights->spec;
    const exo_row_tile *tile = &f->tile[index / s->kv_heads];
    size_t g = index % s->kv_heads, width = s->head_width, shared = s->heads / s->kv_heads;
    size_t keys = exo_decode_keys_size(f->context, width),
           values = exo_decode_values_size(f->context, width);
    const float *cache = f->cache[tile->first] + (at->layer * s->kv_heads + g) * (keys + values);
    exo_decode_attention a = {.keys = cache,
                              .values = cache + keys,
                              .head_width = width,
                              .scale = 1.0f / sqrtf((float)width)};
    for (size_t i = 0; i < tile->count * shared; i++) {
        size_t row = tile->first + i / shared, head = g * shared + i % shared;
        a.query[a.queries] = f->qkv + row * qkv_stride(s) + head * width;
        a.out[a.queries] = f->mixed + row * mixed_stride(s) + head * width;
        a.position[a.queries] = f->position[row];
        a.slope[a.queries++] = f->slopes ? f->slopes[head] : 0;
        if (a.queries == EXO_DECODE_QUERIES || i + 1 == tile->count * shared) {
            exo_decode_attend(&a);
            a.queries = 0;
        }
    }
}

static void
use_row(void *context, size_t index)
{
    const struct at *at = context;
    exo_forward *f = at->f;
    size_t stride = exo_decode_stride(f->weights->spec.vocabulary), skip = index * stride;
    const exo_logits_scratch scratch = {f->scratch.weights + skip, f->scratch.values + skip,
                                        f->scratch.places + skip, f->scratch.order + skip};
    f->use(f->use_context, f->tag[at->first + index], f->logits + skip, &scratch);
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
    at->in = rows_of(at->f, in, in_stride);
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
    exo_forward *f = at->f;
    const exo_decoder_spec *s = &f->weights->spec;
    const exo_block_weights *b = &f->weights->blocks[layer];
    size_t width = exo_decode_stride(s->width);
    at->block = b;
    at->layer = layer;
    at->rows = f->rows;
    exo_team_run(member, f->rows, norm1_row, at);
    product(member, at, &b->qkv, f->h, width, f->qkv, qkv_stride(s), EXO_LINEAR, EXO_DECODE_SET,
            false);
    exo_team_run(member, f->rows, remember_row, at);
    exo_team_run(member, f->tiles * s->kv_heads, attend_tile, at);
    product(member, at, &b->out, f->mixed, mixed_stride(s), f->x, width, EXO_LINEAR, EXO_DECODE_ADD,
            true);
    exo_team_run(member, f->rows, norm2_row, at);
    at->gate = s->gated ? &b->gate : NULL;
    product(member, at, &b->up, f->h, width, f->inner, inner_stride(s),
            s->gated ? EXO_LINEAR : s->activation, s->gated ? EXO_DECODE_MULTIPLY : EXO_DECODE_SET,
            false);
    at->gate = NULL;
    product(member, at, &b->down, f->inner, inner_stride(s), f->x, width, EXO_LINEAR,
            EXO_DECODE_ADD, true);
}

static void
run_member(void *context, exo_member *member)
{
    exo_forward *f = context;
    const exo_decoder_spec *s = &f->weights->spec;
    const exo_linear_weights head = {.matrix = *exo_decoder_weights_head(f->weights)};
    struct at at = {.f = f};
    exo_team_run(member, f->rows, embed_row, &at);
    for (size_t layer = 0; layer < s->layers; layer++)
        run_block(member, &at, layer);
    for (at.first = 0; at.first < f->outputs; at.first += EXO_LOGIT_ROWS) {
        at.outputs =
            f->outputs - at.first < EXO_LOGIT_ROWS ? f->outputs - at.first : EXO_LOGIT_ROWS;
        at.rows = at.outputs;
        exo_team_run(member, at.outputs, last_norm_row, &at);
        product(member, &at, &head, f->h, exo_decode_stride(s->width), f->logits,
                exo_decode_stride(s->vocabulary), EXO_LINEAR, EXO_DECODE_SET, false);
        exo_team_run(member, at.outputs, use_row, &at);
    }
}

void
exo_pass_run(exo_forward *f)
{
    if (f->rows > 0)
        exo_team_go(f->team, run_member, f);
}
