/* Products of rows with weights in panels: see decode.h. No state.
 *
 * A tile of rows passes over one panel, with its sums in registers. Each weight is read once for
 * all rows of the tile. Each sum is one chain of additions in the order of the inputs, so a row's
 * result does not depend on other rows. Quantized products add integers within a group, exactly,
 * and then the groups in their order. */
#include "nn/cpu/activations.h"
#include "nn/cpu/decode.h"
#include "nn/cpu/decode_vector.h"

enum {
    PANEL = EXO_DECODE_PANEL,
    PAIRS = EXO_DECODE_GROUP / 2,
    VECTORS = PANEL / LANES,
    LINE = 16,   /* floats of a cache line */
    AHEAD = 4096 /* the distance of prefetching, in bytes */
};

/* --- fp32 ------------------------------------------------------------------------------------- */

/* The sums of `vectors` vectors of a panel's outputs. */
ALWAYS_INLINE void
part_f32(size_t rows, size_t vectors, size_t inputs, const float *w, const float *x, size_t stride,
         float *out)
{
    vec sum[TILE_F32][VECTORS];
#pragma GCC unroll 12
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (size_t v = 0; v < vectors; v++)
            sum[r][v] = SPREAD(0.0f);
    for (size_t k = 0; k < inputs; k++) {
        vec weights[VECTORS];
        __builtin_prefetch((const char *)(w + k * PANEL) + AHEAD);
        if (vectors == VECTORS)
            __builtin_prefetch((const char *)(w + k * PANEL) + AHEAD + 64);
#pragma GCC unroll 8
        for (size_t v = 0; v < vectors; v++)
            weights[v] = LOAD(w + k * PANEL + v * LANES);
#pragma GCC unroll 12
        for (size_t r = 0; r < rows; r++) {
            vec value = SPREAD(x[r * stride + k]);
#pragma GCC unroll 8
            for (size_t v = 0; v < vectors; v++)
                sum[r][v] = FMA(weights[v], value, sum[r][v]);
        }
    }
#pragma GCC unroll 12
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (size_t v = 0; v < vectors; v++)
            STORE(out + r * PANEL + v * LANES, sum[r][v]);
}

/* More rows than TILE take the halves of the panel one after the other. */
ALWAYS_INLINE void
tile_f32(size_t rows, size_t inputs, const float *w, const float *x, size_t stride, float *out)
{
    size_t vectors = rows <= TILE ? VECTORS : VECTORS / 2;
    for (size_t v = 0; v < VECTORS; v += vectors)
        part_f32(rows, vectors, inputs, w + v * LANES, x, stride, out + v * LANES);
}

/* --- int8 and int4 ---------------------------------------------------------------------------- */

/* The input of a tile of a quantized product. */
struct quantized {
    size_t pairs, groups;
    const uint8_t *weights;       /* of the panel */
    const float *scales, *minima; /* (groups, 32) */
    const int16_t *q;             /* of the first row */
    size_t stride;
    const float *row_scales, *row_sums;
    size_t pitch;
};

#if defined(__AVX512BW__) || (defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__))
#define QUANTIZED_VECTORS 1
#endif

#if defined(__AVX512BW__)

typedef __m512i ivec;
#define SPREAD_PAIR(pair) _mm512_set1_epi32(pair)
#define NO_SUM            _mm512_setzero_si512()
#define TO_FLOAT(sum)     ((vec)_mm512_cvtepi32_ps(sum))

/* sum + the products of pairs of int16. In assembler, because gcc copies each sum before and after
 * the intrinsic. */
ALWAYS_INLINE ivec
add_pairs(ivec sum, ivec w, ivec x)
{
#if defined(__AVX512VNNI__)
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
    return sum;
#else
    return _mm512_add_epi32(sum, _mm512_madd_epi16(w, x));
#endif
}

/* Loads the weights of one pair of inputs, for all outputs of the panel, as int16. */
ALWAYS_INLINE void
load_pair(bool nibbles, const uint8_t *w, ivec out[VECTORS])
{
    if (nibbles) {
        ivec both = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)w));
        out[0] = _mm512_and_si512(both, _mm512_set1_epi16(15));
        out[1] = _mm512_srli_epi16(both, 4);
    } else {
        out[0] = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)w));
        out[1] = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)(w + PANEL)));
    }
}

#elif defined(QUANTIZED_VECTORS)

typedef __m256i ivec;
#define SPREAD_PAIR(pair) _mm256_set1_epi32(pair)
#define NO_SUM            _mm256_setzero_si256()
#define TO_FLOAT(sum)     ((vec)_mm256_cvtepi32_ps(sum))

ALWAYS_INLINE ivec
add_pairs(ivec sum, ivec w, ivec x)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(w, x));
}

ALWAYS_INLINE void
load_pair(bool nibbles, const uint8_t *w, ivec out[VECTORS])
{
    if (nibbles) {
        for (size_t v = 0; v < VECTORS / 2; v++) {
            ivec both = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)(w + v * PANEL / 2)));
            out[v] = _mm256_and_si256(both, _mm256_set1_epi16(15));
            out[v + VECTORS / 2] = _mm256_srli_epi16(both, 4);
        }
    } else {
        for (size_t v = 0; v < VECTORS; v++)
            out[v] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(w + v * PANEL / 2)));
    }
}

#endif

#if defined(QUANTIZED_VECTORS)

ALWAYS_INLINE void
add_group(size_t rows, bool nibbles, const uint8_t *w, size_t pairs, const int16_t *q,
          size_t stride, ivec sum[TILE][VECTORS])
{
    size_t width = nibbles ? PANEL : 2 * PANEL;
    for (size_t p = 0; p < pairs; p++) {
        ivec weights[VECTORS];
        load_pair(nibbles, w + p * width, weights);
        __builtin_prefetch(w + p * width + AHEAD);
#pragma GCC unroll 12
        for (size_t r = 0; r < rows; r++) {
            int32_t pair;
            memcpy(&pair, q + r * stride + 2 * p, sizeof pair);
            ivec value = SPREAD_PAIR(pair);
#pragma GCC unroll 4
            for (size_t v = 0; v < VECTORS; v++)
                sum[r][v] = add_pairs(sum[r][v], weights[v], value);
        }
    }
}

ALWAYS_INLINE void
tile_quantized(size_t rows, bool nibbles, const struct quantized *t, float *out)
{
    size_t width = nibbles ? PANEL : 2 * PANEL;
    for (size_t i = 0; i < rows * PANEL; i++)
        out[i] = 0;
    for (size_t g = 0; g < t->groups; g++) {
        size_t first = g * PAIRS, pairs = t->pairs - first < PAIRS ? t->pairs - first : PAIRS;
        ivec sum[TILE][VECTORS];
#pragma GCC unroll 12
        for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (size_t v = 0; v < VECTORS; v++)
                sum[r][v] = NO_SUM;
        add_group(rows, nibbles, t->weights + first * width, pairs, t->q + 2 * first, t->stride,
                  sum);
#pragma GCC unroll 12
        for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 4
            for (size_t v = 0; v < VECTORS; v++) {
                vec value = TO_FLOAT(sum[r][v]) * SPREAD(t->row_scales[r * t->pitch + g]);
                vec so_far = FMA(value, LOAD(t->scales + g * PANEL + v * LANES),
                                 LOAD(out + r * PANEL + v * LANES));
                if (nibbles)
                    so_far = FMA(SPREAD(t->row_sums[r * t->pitch + g]),
                                 LOAD(t->minima + g * PANEL + v * LANES), so_far);
                STORE(out + r * PANEL + v * LANES, so_far);
            }
        }
    }
}

#else

/* The same sums, in plain loops. */
ALWAYS_INLINE void
add_group(bool nibbles, const uint8_t *restrict w, size_t pairs, const int16_t *restrict q,
          int32_t *restrict sum)
{
    for (size_t p = 0; p < pairs; p++) {
        int32_t first = q[2 * p], second = q[2 * p + 1];
        if (nibbles) {
            const uint8_t *at = w + p * PANEL;
            for (size_t i = 0; i < PANEL / 2; i++) {
                sum[i] += first * (at[2 * i] & 15) + second * (at[2 * i + 1] & 15);
                sum[i + PANEL / 2] += first * (at[2 * i] >> 4) + second * (at[2 * i + 1] >> 4);
            }
        } else {
            const int8_t *at = (const int8_t *)w + p * PANEL * 2;
            for (size_t i = 0; i < PANEL; i++)
                sum[i] += first * at[2 * i] + second * at[2 * i + 1];
        }
    }
}

ALWAYS_INLINE void
tile_quantized(size_t rows, bool nibbles, const struct quantized *t, float *out)
{
    size_t width = nibbles ? PANEL : 2 * PANEL;
    for (size_t i = 0; i < rows * PANEL; i++)
        out[i] = 0;
    for (size_t r = 0; r < rows; r++) {
        for (size_t g = 0; g < t->groups; g++) {
            size_t first = g * PAIRS, pairs = t->pairs - first < PAIRS ? t->pairs - first : PAIRS;
            int32_t sum[PANEL] = {0};
            add_group(nibbles, t->weights + first * width, pairs, t->q + r * t->stride + 2 * first,
                      sum);
            for (size_t v = 0; v < VECTORS; v++) {
                float value[LANES];
                for (size_t i = 0; i < LANES; i++)
                    value[i] = (float)sum[v * LANES + i] * t->row_scales[r * t->pitch + g];
                float *at = out + r * PANEL + v * LANES;
                vec so_far = FMA(LOAD(value), LOAD(t->scales + g * PANEL + v * LANES), LOAD(at));
                if (nibbles)
                    so_far = FMA(SPREAD(t->row_sums[r * t->pitch + g]),
                                 LOAD(t->minima + g * PANEL + v * LANES), so_far);
                STORE(at, so_far);
            }
        }
    }
}

#endif

/* --- Tiles by their number of rows ------------------------------------------------------------ */

/* A function for each number of rows, so that the compiler unrolls its loops. */
#define TILES(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#define DEFINE_TILE(n)                                                                             \
    static void tile_f32_##n(size_t inputs, const float *w, const float *x, size_t stride,         \
                             float *out)                                                           \
    {                                                                                              \
        tile_f32((n) <= TILE_F32 ? (n) : TILE_F32, inputs, w, x, stride, out);                     \
    }                                                                                              \
    static void tile_int8_##n(const struct quantized *t, float *out)                               \
    {                                                                                              \
        tile_quantized((n) <= TILE ? (n) : TILE, false, t, out);                                   \
    }                                                                                              \
    static void tile_int4_##n(const struct quantized *t, float *out)                               \
    {                                                                                              \
        tile_quantized((n) <= TILE ? (n) : TILE, true, t, out);                                    \
    }
TILES(DEFINE_TILE)

static void (*const tiles_f32[])(size_t, const float *, const float *, size_t, float *) = {
#define NAME_F32(n) tile_f32_##n,
    TILES(NAME_F32)};
static void (*const tiles_int8[])(const struct quantized *, float *) = {
#define NAME_INT8(n) tile_int8_##n,
    TILES(NAME_INT8)};
static void (*const tiles_int4[])(const struct quantized *, float *) = {
#define NAME_INT4(n) tile_int4_##n,
    TILES(NAME_INT4)};

static void
run_tile(const exo_decode_matrix *m, const exo_decode_rows *x, size_t row, size_t rows,
         size_t panel, float *out)
{
    size_t pairs = (m->inputs + 1) / 2;
    if (m->format == EXO_DECODE_F32) {
        const float *w = (const float *)m->weights + panel * m->inputs * PANEL;
        tiles_f32[rows - 1](m->inputs, w, x->x + row * x->stride, x->stride, out);
        return;
    }
    bool nibbles = m->format == EXO_DECODE_INT4;
    const struct quantized t = {
        .pairs = pairs,
        .groups = m->groups,
        .weights = (const uint8_t *)m->weights + panel * pairs * PANEL * (nibbles ? 1 : 2),
        .scales = m->scales + panel * m->groups * PANEL,
        .minima = nibbles ? m->minima + panel * m->groups * PANEL : NULL,
        .q = x->q + row * x->stride,
        .stride = x->stride,
        .row_scales = x->scales + row * x->groups,
        .row_sums = x->sums + row * x->groups,
        .pitch = x->groups,
    };
    if (nibbles)
        tiles_int4[rows - 1](&t, out);
    else
        tiles_int8[rows - 1](&t, out);
}

/* --- The end of a product --------------------------------------------------------------------- */

static void
put_tile(const exo_decode_end *end, const float *restrict bias, size_t rows, float *restrict sums,
         float *restrict y, size_t stride)
{
    if (bias)
        for (size_t r = 0; r < rows; r++)
            for (size_t i = 0; i < PANEL; i++)
                sums[r * PANEL + i] += bias[i];
    if (end->activation != EXO_LINEAR)
        exo_activate(end->activation, EXO_F32, sums, sums, rows * PANEL);
    for (size_t r = 0; r < rows; r++, sums += PANEL, y += stride)
        if (end->put == EXO_DECODE_SET)
            memcpy(y, sums, PANEL * sizeof *y);
        else if (end->put == EXO_DECODE_ADD)
            for (size_t i = 0; i < PANEL; i++)
                y[i] += sums[i];
        else
            for (size_t i = 0; i < PANEL; i++)
                y[i] *= sums[i];
}

/* Fetches the lines of a tile's results while its sums are computed. */
static void
prefetch_tile(const float *y, size_t stride, size_t rows)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < PANEL; i += LINE)
            __builtin_prefetch(y + r * stride + i, 1);
}

void
exo_decode_product(const exo_decode_matrix *m, const exo_decode_rows *x, size_t rows, size_t panel,
                   const exo_decode_end *end, float *y, size_t stride)
{
    float sums[TILE_F32 * PANEL] __attribute__((aligned(64)));
    const float *bias = end->bias ? end->bias + panel * PANEL : NULL;
    size_t most = m->format == EXO_DECODE_F32 ? TILE_F32 : TILE, tiles = (rows + most - 1) / most;
    for (size_t tile = 0, row = 0; tile < tiles; tile++) {
        size_t count = (rows - row + tiles - tile - 1) / (tiles - tile); /* tiles of even size */
        prefetch_tile(y + row * stride + panel * PANEL, stride, count);
        run_tile(m, x, row, count, panel, sums);
        put_tile(end, bias, count, sums, y + row * stride + panel * PANEL, stride);
        row += count;
    }
}
