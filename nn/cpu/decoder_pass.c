/* The kernels of a decoder: packing, passes and logits. Each step of a block is one loop of the
 * team (team.h), over rows, over tiles of rows, or over panels of weights. The state of a kernel
 * that runs is in its plan. Read next: decoder_plan.h; decode.h, which has the arithmetic. */
#include <math.h>
#include <string.h>

#include "nn/cpu/cpu_device.h"
#include "nn/cpu/decoder_plan.h"
#include "nn/cpu/pieces.h"
#include "nn/cpu/row_norm.h"

enum {
    SHARES = 64, /* a product is divided into about so many items */
    BLOCK = 96   /* rows of such an item, at most: whole tiles of a product */
};

_Static_assert((int)EXO_DECODE_PANEL == (int)EXO_DECODER_PITCH, "logits are written in panels");

/* The strides of activations, in the whole spec or that of a member. */
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
embed_row(const struct at *at, size_t row)
{
    const exo_cpu_decoder *d = at->d;
    const exo_decoder_weights *w = &d->weights;
    const exo_decoder_spec *s = &w->spec;
    size_t stride = exo_decode_stride(s->width);
    float *x = d->at.x + row * stride, *h = d->at.h + row * stride;
    if (d->shape.members == 0)
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
norm1_row(const struct at *at, size_t row)
{
    norm_row(at, &at->block->norm1, row, row);
}

static void
norm2_row(const struct at *at, size_t row)
{
    norm_row(at, &at->block->norm2, row, row);
}

static void
last_norm_row(const struct at *at, size_t row)
{
    norm_row(at, &at->d->weights.norm, (size_t)at->d->wanted->which[row], row);
}

static void
quantize_row(const struct at *at, size_t row)
{
    exo_decode_quantize_row(&at->in, row, at->linear->matrix.inputs);
}

/* The division of a product into items: blocks of rows, and shares of the panels. */
struct cut {
    size_t blocks, shares, panels; /* panels of a share */
};

static struct cut
cut_product(size_t rows, size_t panels)
{
    size_t blocks = exo_pieces(rows, BLOCK), most = SHARES / blocks;
    size_t share = most < 2 ? panels : exo_pieces(panels, most);
    return (struct cut){blocks, exo_pieces(panels, share), share};
}

static void
product_item(void *context, size_t index)
{
    const struct at *at = context;
    const exo_decode_matrix *m = &at->linear->matrix;
    struct cut cut = cut_product(at->rows, m->panels);
    size_t block = index / cut.shares, first = index % cut.shares * cut.panels;
    size_t rows = exo_piece_length(at->rows, BLOCK, block), row = block * BLOCK,
           last = first + cut.panels < m->panels ? first + cut.panels : m->panels;
    exo_decode_rows in = exo_decode_rows_from(&at->in, row);
    float *y = at->y + row * at->stride;
    for (size_t panel = first; panel < last; panel++) {
        if (at->gate) {
            const exo_decode_end gate = {.bias = at->gate->bias,
                                         .activation = at->d->weights.spec.activation};
            exo_decode_product(&at->gate->matrix, &in, rows, panel, &gate, y, at->stride);
        }
        exo_decode_product(m, &in, rows, panel, &at->end, y, at->stride);
    }
}

/* A row's cache in a layer: the keys and values of its heads. */
static float *
cache_of(const struct at *at, size_t row)
{
    const exo_cpu_decoder *d = at->d;
    return (float *)d->pass->caches + (size_t)d->pass->sequences[row] * d->cache +
           at->layer * d->layer_cache;
}

/* Normalizes `count` heads in place. Heads without norms stay. */
static void
norm_heads(const exo_decoder_spec *s, const exo_norm_weights *norm, size_t count, float *heads)
{
    const exo_row_norm n = {.width = s->head_width, .eps = s->norm_eps, .weight = norm->weight};
    float before[EXO_DECODE_MAX_HEAD], mean, inverse; /* the last two are for backward */
    for (size_t i = 0; norm->weight && i < count; i++) {
        float *head = heads + i * s->head_width;
        memcpy(before, head, s->head_width * sizeof *head);
        exo_row_norm_forward(&n, 1, before, EXO_F32, head, &mean, &inverse);
    }
}

/* Writes a row's keys and values of this member's heads into the cache, after norms of its queries and
 * keys, and after rotary positions have turned them. */
static void
remember_row(const struct at *at, size_t row)
{
    const exo_cpu_decoder *d = at->d;
    const exo_decoder_spec *s = &d->mine;
    size_t width = s->head_width, position = (size_t)d->pass->positions[row];
    size_t keys = exo_decode_keys_size(d->shape.context, width),
           values = exo_decode_values_size(d->shape.context, width);
    float *qkv = d->at.qkv + row * qkv_stride(s);
    norm_heads(s, &at->block->q_norm, s->heads, qkv);
    norm_heads(s, &at->block->k_norm, s->kv_heads, qkv + s->heads * width);
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
    const exo_decoder_spec *s = &d->mine;
    const exo_row_tile *tile = &d->tile[index / s->kv_heads];
    size_t g = index % s->kv_heads, width = s->head_width, shared = s->heads / s->kv_heads;
    size_t keys = exo_decode_keys_size(d->shape.context, width),
           values = exo_decode_values_size(d->shape.context, width);
    const float *cache = cache_of(at, tile->first) + g * (keys + values);
    exo_decode_attention a = {.keys = cache,
                              .values = cache + keys,
                              .head_width = width,
                              .scale = (float)(1.0 / sqrt((double)width))};
    /* slopes are those of the whole decoder's heads */
    const float *slopes = d->slopes ? d->slopes + d->shape.rank * s->heads : NULL;
    for (size_t i = 0; i < tile->count * shared; i++) {
        size_t row = tile->first + i / shared, head = g * shared + i % shared;
        a.query[a.queries] = d->at.qkv + row * qkv_stride(s) + head * width;
        a.out[a.queries] = d->at.my_mixed + row * mixed_stride(s) + head * width;
        a.position[a.queries] = (size_t)d->pass->positions[row];
        a.slope[a.queries++] = slopes ? slopes[head] : 0;
        if (a.queries == EXO_DECODE_QUERIES || i + 1 == tile->count * shared) {
            exo_decode_attend(&a);
            a.queries = 0;
        }
    }
}

/* --- The pass --------------------------------------------------------------------------------- */

/* A loop over rows. An item is one row of a few, and a group of many. */
struct row_loop {
    const struct at *at;
    void (*row)(const struct at *at, size_t row);
    size_t group;
};

static void
run_group(void *context, size_t index)
{
    const struct row_loop *l = context;
    size_t first = index * l->group, count = exo_piece_length(l->at->rows, l->group, index);
    for (size_t i = 0; i < count; i++)
        l->row(l->at, first + i);
}

static void
run_rows(exo_member *member, const struct at *at, void (*row)(const struct at *at, size_t row))
{
    struct row_loop l = {.at = at, .row = row, .group = exo_pieces(at->rows, SHARES)};
    if (at->rows > 0)
        exo_team_run(member, exo_pieces(at->rows, l.group), run_group, &l);
}

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
        run_rows(member, at, quantize_row);
    struct cut cut = cut_product(at->rows, linear->matrix.panels);
    exo_team_run(member, cut.blocks * cut.shares, product_item, at);
}

/* The first half of a block up to attention's output, of this member's heads. */
static void
run_attention(exo_member *member, struct at *at)
{
    const exo_cpu_decoder *d = at->d;
    const exo_decoder_activations *a = &d->at;
    run_rows(member, at, norm1_row);
    product(member, at, &at->block->qkv, a->h, exo_decode_stride(d->mine.width), a->qkv,
            qkv_stride(&d->mine), EXO_LINEAR, EXO_DECODE_SET, false);
    run_rows(member, at, remember_row);
    exo_team_run(member, d->tiles * d->mine.kv_heads, attend_tile, at);
}

/* x += attention's output out^T, of all columns or those of this member. */
static void
run_out(exo_member *member, struct at *at, float *x, size_t stride)
{
    const exo_cpu_decoder *d = at->d;
    product(member, at, &at->block->out, d->at.mixed, mixed_stride(&d->weights.spec), x, stride,
            EXO_LINEAR, EXO_DECODE_ADD, true);
}

/* The inside of the MLP, of this member's inner width. */
static void
run_up(exo_member *member, struct at *at)
{
    const exo_cpu_decoder *d = at->d;
    const exo_decoder_spec *s = &d->mine;
    const exo_block_weights *b = at->block;
    run_rows(member, at, norm2_row);
    at->gate = s->gated ? &b->gate : NULL;
    product(member, at, &b->up, d->at.h, exo_decode_stride(s->width), d->at.my_inner,
            inner_stride(s), s->gated ? EXO_LINEAR : s->activation,
            s->gated ? EXO_DECODE_MULTIPLY : EXO_DECODE_SET, false);
    at->gate = NULL;
}

/* x += inner down^T, of all columns or those of this member. */
static void
run_down(exo_member *member, struct at *at, float *x, size_t stride)
{
    const exo_cpu_decoder *d = at->d;
    product(member, at, &at->block->down, d->at.inner, inner_stride(&d->weights.spec), x, stride,
            EXO_LINEAR, EXO_DECODE_ADD, true);
}

static void
run_pass(void *context, exo_member *member)
{
    const exo_cpu_decoder *d = context;
    struct at at = {.d = d, .rows = d->pass->rows};
    size_t stride = exo_decode_stride(d->mine.width);
    run_rows(member, &at, embed_row);
    for (at.layer = 0; at.layer < d->weights.spec.layers; at.layer++) {
        at.block = &d->weights.blocks[at.layer];
        run_attention(member, &at);
        run_out(member, &at, d->at.x, stride);
        run_up(member, &at);
        run_down(member, &at, d->at.x, stride);
    }
}

/* Logits of this member's vocabulary to y. */
static void
run_head(exo_member *member, const exo_cpu_decoder *d, float *y)
{
    const exo_linear_weights head = {.matrix = *exo_decoder_weights_head(&d->weights)};
    struct at at = {.d = d, .rows = d->wanted->rows};
    run_rows(member, &at, last_norm_row);
    product(member, &at, &head, d->at.h, exo_decode_stride(d->mine.width), y,
            exo_decode_stride(d->mine.vocabulary), EXO_LINEAR, EXO_DECODE_SET, false);
}

static void
run_logits(void *context, exo_member *member)
{
    const exo_cpu_decoder *d = context;
    run_head(member, d, d->wanted->logits);
}

/* --- A part: the same steps, with the other members' results between them --------------------- */

/* A step of a part's pass, which the team runs at once. */
struct part_step {
    const exo_cpu_decoder *d;
    size_t layer;
    enum part_kind {
        PART_EMBED,
        PART_ATTEND,
        PART_OUT,
        PART_UP,
        PART_DOWN,
        PART_HEAD
    } kind;
};

static void
run_part_step(void *context, exo_member *member)
{
    const struct part_step *step = context;
    const exo_cpu_decoder *d = step->d;
    struct at at = {.d = d, .layer = step->layer};
    size_t stride = exo_decode_stride(d->mine.width / d->shape.members);
    at.rows = step->kind == PART_HEAD ? d->wanted->rows : d->pass->rows;
    at.block = &d->weights.blocks[step->layer];
    switch (step->kind) {
    case PART_EMBED:
        run_rows(member, &at, embed_row);
        break;
    case PART_ATTEND:
        run_attention(member, &at);
        break;
    case PART_OUT:
        run_out(member, &at, d->at.my_x, stride);
        break;
    case PART_UP:
        run_up(member, &at);
        break;
    case PART_DOWN:
        run_down(member, &at, d->at.my_x, stride);
        break;
    case PART_HEAD:
        run_head(member, d, d->at.my_logits);
        break;
    }
}

/* Copies rows of `columns` elements. */
static void
copy_rows(float *to, size_t to_stride, const float *from, size_t from_stride, size_t rows,
          size_t columns)
{
    for (size_t r = 0; r < rows; r++)
        memcpy(to + r * to_stride, from + r * from_stride, columns * sizeof *to);
}

/* all (rows, members x columns) from mine (rows, columns) of each member. */
static void
gather(const exo_cpu_decoder *d, const exo_decoder_peers *peers, size_t rows, const float *mine,
       size_t my_stride, size_t columns, float *all, size_t stride)
{
    float *exchange = d->at.exchange, *block = exchange + d->shape.rank * rows * columns;
    copy_rows(block, columns, mine, my_stride, rows, columns);
    peers->gather(peers->context, exchange, rows * columns);
    for (size_t m = 0; m < d->shape.members; m++)
        copy_rows(all + m * columns, stride, exchange + m * rows * columns, columns, rows, columns);
}

/* The rows of the embedding, from the members that have them. The others add -0, which changes no
 * bits. */
static void
embed_part(exo_cpu_decoder *d, const exo_decoder_pass_args *k)
{
    size_t width = d->mine.width, stride = exo_decode_stride(width);
    float *x = d->at.exchange, *row = d->at.x;
    for (size_t r = 0; r < k->rows; r++, x += width) {
        size_t token = (size_t)k->tokens[r] - d->first_token; /* wraps below the first */
        if (token < d->mine.vocabulary)
            exo_decode_unpack(&d->weights.embedding.matrix, token, row);
        for (size_t i = 0; i < width; i++)
            x[i] = token < d->mine.vocabulary ? row[i] : -0.0f;
    }
    k->peers->add(k->peers->context, d->at.exchange, k->rows * width);
    copy_rows(d->at.x, stride, d->at.exchange, width, k->rows, width);
    exo_team_go(d->team, run_part_step, &(struct part_step){.d = d, .kind = PART_EMBED});
}

/* Runs a step that adds to x: of this member's columns, then of all. */
static void
add_part(exo_cpu_decoder *d, struct part_step *step, enum part_kind kind)
{
    size_t width = d->mine.width, columns = width / d->shape.members, rows = d->pass->rows;
    size_t mine = exo_decode_stride(columns), stride = exo_decode_stride(width);
    copy_rows(d->at.my_x, mine, d->at.x + d->shape.rank * columns, stride, rows, columns);
    step->kind = kind;
    exo_team_go(d->team, run_part_step, step);
    gather(d, d->pass->peers, rows, d->at.my_x, mine, columns, d->at.x, stride);
}

static void
pass_part(exo_cpu_decoder *d)
{
    const exo_decoder_spec *s = &d->weights.spec, *mine = &d->mine;
    const exo_decoder_peers *peers = d->pass->peers;
    size_t rows = d->pass->rows;
    embed_part(d, d->pass);
    for (size_t layer = 0; layer < s->layers; layer++) {
        struct part_step step = {.d = d, .layer = layer, .kind = PART_ATTEND};
        exo_team_go(d->team, run_part_step, &step);
        gather(d, peers, rows, d->at.my_mixed, mixed_stride(mine), mine->heads * mine->head_width,
               d->at.mixed, mixed_stride(s));
        add_part(d, &step, PART_OUT);
        step.kind = PART_UP;
        exo_team_go(d->team, run_part_step, &step);
        gather(d, peers, rows, d->at.my_inner, inner_stride(mine), mine->inner, d->at.inner,
               inner_stride(s));
        add_part(d, &step, PART_DOWN);
    }
}

/* The vocabulary in equal blocks, which the last members do not fill. */
static void
logits_part(exo_cpu_decoder *d, const exo_decoder_logits_args *k)
{
    size_t members = d->shape.members, vocabulary = d->weights.spec.vocabulary;
    size_t most = (vocabulary + members - 1) / members, stride = exo_decode_stride(vocabulary);
    size_t mine = exo_decode_stride(d->mine.vocabulary), count = d->mine.vocabulary, first = 0;
    float *exchange = d->at.exchange, *block = exchange + d->shape.rank * k->rows * most;
    exo_team_go(d->head_team, run_part_step, &(struct part_step){.d = d, .kind = PART_HEAD});
    memset(block, 0, k->rows * most * sizeof *block);
    copy_rows(block, most, d->at.my_logits, mine, k->rows, count);
    k->peers->gather(k->peers->context, exchange, k->rows * most);
    for (size_t m = 0; m < members; m++, first += count) {
        count = vocabulary / members + (m < vocabulary % members); /* exo_shard */
        copy_rows(k->logits + first, stride, exchange + m * k->rows * most, most, k->rows, count);
    }
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
    if (d->shape.members > 0)
        pass_part(d);
    else
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
    if (d->shape.members > 0)
        logits_part(d, k);
    else
        exo_team_go(d->head_team, run_logits, d);
    return EXO_OK;
}
