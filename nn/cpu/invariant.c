/* Linear layers and attention with the kernels of generation: see invariant.h. The division into
 * pieces does not change results. No state. Read next: decode_product.c, decode_attention.c. */
#include "nn/cpu/invariant.h"

#include <string.h>

#include "nn/cpu/activations.h"
#include "nn/cpu/attention_pack.h"
#include "nn/cpu/pieces.h"

enum {
    PANEL = EXO_DECODE_PANEL,
    ROWS = 96,   /* of a piece of a linear layer: whole tiles of a product */
    PANELS = 8,  /* of such a piece, at most */
    STRIP = 12,  /* rows that are multiplied and written at a time: whole tiles, too */
    LINE = 16,   /* floats of a cache line */
    TOKENS = 256 /* queries of a piece of attention */
};

/* --- Linear layers ---------------------------------------------------------------------------- */

exo_decode_matrix
exo_rows_matrix(size_t outputs, size_t inputs, void *memory)
{
    return (exo_decode_matrix){.format = EXO_DECODE_F32,
                               .outputs = outputs,
                               .inputs = inputs,
                               .panels = exo_pieces(outputs, PANEL),
                               .weights = memory};
}

size_t
exo_rows_matrix_bytes(size_t outputs, size_t inputs)
{
    size_t count, bytes;
    return __builtin_mul_overflow(exo_decode_stride(outputs), inputs, &count) ||
                   __builtin_mul_overflow(count, sizeof(float), &bytes)
               ? SIZE_MAX
               : bytes;
}

void
exo_rows_pack(exo_decode_matrix *m, const float *w, size_t panel)
{
    if ((panel + 1) * PANEL > m->outputs)
        memset((float *)m->weights + panel * PANEL * m->inputs, 0,
               PANEL * m->inputs * sizeof(float));
    exo_decode_pack(m, w, panel);
}

/* The bias, padded to panels, lies behind the weights. */
static size_t
bias_bytes(const exo_linear_shape *s)
{
    return s->with_bias ? exo_decode_stride(s->out) * sizeof(float) : 0;
}

size_t
exo_linear_rows_scratch(const exo_linear_shape *s)
{
    size_t all, weights = exo_rows_matrix_bytes(s->out, s->in);
    return __builtin_add_overflow(weights, bias_bytes(s), &all) ? SIZE_MAX : all;
}

struct linear {
    const exo_linear_shape *shape;
    const exo_linear_args *k;
    exo_decode_matrix matrix;
    float *bias; /* (panels, 32), or NULL */
};

/* Packs a panel of the weights, and its part of the bias. */
static void
pack_piece(void *context, size_t panel)
{
    struct linear *l = context;
    size_t first = panel * PANEL, count = exo_piece_length(l->shape->out, PANEL, panel);
    exo_rows_pack(&l->matrix, l->k->weight, panel);
    if (!l->bias)
        return;
    memset(l->bias + first, 0, PANEL * sizeof *l->bias);
    memcpy(l->bias + first, l->k->bias + first, count * sizeof *l->bias);
}

/* Writes `count` elements of a row, which begin at element `at` of the arrays: `sums`, or their
 * activation, with the residual. */
static inline void
put(const exo_linear_args *k, const float *restrict sums, size_t at, size_t count)
{
    float *restrict y = (float *)k->y + at;
    const float *restrict residual = k->residual ? k->residual + at : NULL;
    if (residual)
        for (size_t i = 0; i < count; i++)
            y[i] = residual[i] + sums[i];
    else
        memcpy(y, sums, count * sizeof *sums);
}

/* Writes `count` elements of each row. Inlined, because copies of a constant length are faster. */
INLINE void
put_rows(const exo_linear_args *k, const exo_linear_shape *s, float *sums, size_t rows, size_t at,
         size_t count)
{
    if (k->before)
        for (size_t r = 0; r < rows; r++)
            memcpy((float *)k->before + at + r * s->out, sums + r * PANEL, count * sizeof *sums);
    if (k->activation != EXO_LINEAR)
        exo_activate(k->activation, EXO_F32, sums, sums, rows * PANEL);
    for (size_t r = 0; r < rows; r++)
        put(k, sums + r * PANEL, at + r * s->out, count);
}

/* Fetches the lines that a strip is written to or added to while its sums are computed: they lie so
 * far apart that the processor does not foresee them. */
static void
prefetch_strip(const exo_linear_args *k, const exo_linear_shape *s, size_t rows, size_t at)
{
    for (size_t r = 0; r < rows; r++, at += s->out)
        for (size_t i = 0; i < PANEL; i += LINE) {
            __builtin_prefetch((float *)k->y + at + i, 1);
            if (k->before)
                __builtin_prefetch((float *)k->before + at + i, 1);
            if (k->residual)
                __builtin_prefetch((const float *)k->residual + at + i);
        }
}

/* Computes a panel's columns of `rows` rows from `row` on, in strips of even size. */
static void
product_panel(const struct linear *l, size_t row, size_t rows, size_t panel)
{
    const exo_linear_shape *s = l->shape;
    size_t first = panel * PANEL, count = exo_piece_length(s->out, PANEL, panel);
    const exo_decode_matrix one =
        exo_rows_matrix(PANEL, s->in, (float *)l->matrix.weights + first * s->in);
    const exo_decode_end end = {.bias = l->bias ? l->bias + first : NULL};
    float sums[STRIP * PANEL] __attribute__((aligned(64)));
    for (size_t strips = exo_pieces(rows, STRIP); strips > 0; strips--) {
        size_t strip = exo_pieces(rows, strips), at = row * s->out + first;
        const exo_decode_rows x = {.x = (const float *)l->k->x + row * s->in, .stride = s->in};
        prefetch_strip(l->k, s, strip, at);
        exo_decode_product(&one, &x, strip, 0, &end, sums, PANEL);
        if (count == PANEL)
            put_rows(l->k, s, sums, strip, at, PANEL);
        else
            put_rows(l->k, s, sums, strip, at, count);
        row += strip;
        rows -= strip;
    }
}

/* The panels of a piece: at most PANELS, and in all pieces as many as possible. */
static size_t
panels_of_piece(size_t panels)
{
    return exo_pieces(panels, exo_pieces(panels, PANELS));
}

static void
product_piece(void *context, size_t index)
{
    const struct linear *l = context;
    size_t panels = l->matrix.panels, share = panels_of_piece(panels),
           groups = exo_pieces(panels, share), first = index % groups * share,
           piece = index / groups;
    for (size_t i = 0; i < exo_piece_length(panels, share, index % groups); i++)
        product_panel(l, piece * ROWS, exo_piece_length(l->shape->rows, ROWS, piece), first + i);
}

void
exo_linear_rows(const exo_linear_shape *s, const exo_linear_args *k)
{
    struct linear l = {.shape = s, .k = k, .matrix = exo_rows_matrix(s->out, s->in, k->scratch)};
    if (s->with_bias)
        l.bias = (float *)k->scratch + l.matrix.panels * PANEL * s->in;
    exo_parallel_for(l.matrix.panels, pack_piece, &l);
    size_t groups = exo_pieces(l.matrix.panels, panels_of_piece(l.matrix.panels));
    exo_parallel_for(exo_pieces(s->rows, ROWS) * groups, product_piece, &l);
}

/* --- Attention -------------------------------------------------------------------------------- */

struct attention {
    const exo_attention_args *k;
    exo_attention_plan plan; /* for the rows of x */
};

/* A piece's memory: one head's keys and values up to the piece's last query, and its queries. */
struct head {
    float *keys;    /* blocks of (D, 16); the last one has room for (padded, 16) */
    float *values;  /* (tokens, padded) */
    float *queries; /* (TOKENS, padded); also for rows of keys while they are packed */
};

static size_t
padded_width(size_t width)
{
    return (width + 15) / 16 * 16;
}

/* Lays out `head` in the scratch of a runner, and returns its bytes. */
static size_t
lay_out(struct head *h, const exo_attention_shape *s, float *scratch)
{
    size_t padded = padded_width(s->width), blocks = exo_pieces(s->tokens, EXO_DECODE_KEYS),
           keys = blocks * EXO_DECODE_KEYS * padded, values = keys;
    h->keys = scratch;
    h->values = scratch ? scratch + keys : NULL;
    h->queries = scratch ? scratch + keys + values : NULL;
    return (keys + values + TOKENS * padded) * sizeof *scratch;
}

static size_t
pieces_of(const exo_attention_shape *s)
{
    return s->sequences * s->kv_heads * exo_pieces(s->tokens, TOKENS);
}

size_t
exo_attention_rows_scratch(const exo_attention_shape *s)
{
    struct head h;
    size_t all;
    return __builtin_mul_overflow(exo_runners(pieces_of(s)), lay_out(&h, s, NULL), &all) ? SIZE_MAX
                                                                                         : all;
}

/* Packs the keys and values of the tokens before `end`. */
static void
remember(struct head *h, const exo_attention_plan *p, const void *x, size_t sequence, size_t group,
         size_t end)
{
    size_t padded = padded_width(p->width);
    const exo_head_rows keys = exo_input_rows(p, EXO_KEYS, x, sequence, group),
                        values = exo_input_rows(p, EXO_VALUES, x, sequence, group);
    for (size_t first = 0; first < end; first += EXO_DECODE_KEYS) {
        exo_pack_rows(&keys, first, EXO_DECODE_KEYS, padded, false, h->queries);
        exo_transpose_units(h->queries, padded, EXO_DECODE_KEYS, padded, h->keys + first * p->width,
                            EXO_DECODE_KEYS);
    }
    exo_pack_rows(&values, 0, end, padded, false, h->values);
}

/* Computes the queries [first, first + count) of a query head, all of which h->queries has. */
static void
attend(const struct attention *l, const struct head *h, size_t sequence, size_t head, size_t first,
       size_t count)
{
    const exo_attention_plan *p = &l->plan;
    size_t padded = padded_width(p->width), columns = p->heads * p->width;
    float *lse = l->k->lse ? l->k->lse + (sequence * p->heads + head) * p->tokens + first : NULL;
    exo_decode_attention a = {
        .keys = h->keys, .values = h->values, .head_width = p->width, .scale = p->scale};
    for (size_t i = 0; i < count; i += a.queries) {
        a.queries = count - i < EXO_DECODE_QUERIES ? count - i : EXO_DECODE_QUERIES;
        a.lse = lse ? lse + i : NULL;
        for (size_t q = 0; q < a.queries; q++) {
            size_t token = first + i + q;
            a.query[q] = h->queries + (i + q) * padded;
            a.out[q] =
                (float *)l->k->y + (sequence * p->tokens + token) * columns + head * p->width;
            a.position[q] = token;
            a.slope[q] = p->slopes ? p->slopes[head] : 0;
        }
        exo_decode_attend(&a);
    }
}

struct attention_loop {
    struct attention attention;
    const exo_attention_shape *shape;
};

/* The queries of TOKENS tokens in the heads that share keys and values. The last ones see the most
 * keys, so their pieces come first. */
static void
attention_piece(void *context, size_t runner, size_t index)
{
    const struct attention_loop *l = context;
    const exo_attention_shape *s = l->shape;
    const exo_attention_plan *p = &l->attention.plan;
    const exo_attention_args *k = l->attention.k;
    struct head h;
    size_t bytes = lay_out(&h, s, NULL), heads = s->sequences * s->kv_heads,
           part = exo_pieces(s->tokens, TOKENS) - 1 - index / heads,
           sequence = index % heads / s->kv_heads, group = index % s->kv_heads;
    size_t first = part * TOKENS, count = exo_piece_length(s->tokens, TOKENS, part),
           shared = s->heads / s->kv_heads;
    lay_out(&h, s, (float *)k->scratch + runner * (bytes / sizeof(float)));
    remember(&h, p, k->x, sequence, group, first + count);
    for (size_t head = group * shared; head < (group + 1) * shared; head++) {
        const exo_head_rows queries = exo_input_rows(p, EXO_QUERIES, k->x, sequence, head);
        exo_pack_rows(&queries, first, count, padded_width(s->width), false, h.queries);
        attend(&l->attention, &h, sequence, head, first, count);
    }
}

void
exo_attention_rows(const exo_attention_shape *s, const float *turns, const float *slopes,
                   const exo_attention_args *k)
{
    struct attention_loop l = {.shape = s,
                               .attention = {.k = k,
                                             .plan = {.sequences = s->sequences,
                                                      .tokens = s->tokens,
                                                      .heads = s->heads,
                                                      .kv_heads = s->kv_heads,
                                                      .width = s->width,
                                                      .dtype = EXO_F32,
                                                      .scale = (float)s->scale,
                                                      .slopes = slopes,
                                                      .turns = turns,
                                                      .turned = s->turned}}};
    exo_run_for(pieces_of(s), attention_piece, &l);
}
