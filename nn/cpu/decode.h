/* Kernels of a decoder's inference: products of few rows with weights in panels, norms, attention
 * over a cache of keys and values, and sums over logits.
 *
 * The arithmetic of a row depends neither on the other rows nor on the caller's division into
 * pieces. Sums have one order: that of the inputs, of the positions, or of the vocabulary.
 *
 * Rows of activations are `stride` elements apart, a multiple of EXO_DECODE_PANEL. The elements
 * beyond a row's width are zero or ignored. No state: the caller owns all memory, and any thread
 * may call. Read next: decoder_pass.c, which calls the kernels. */
#ifndef EXO_CPU_DECODE_H
#define EXO_CPU_DECODE_H

#include <exogym/sequence.h>

enum {
    EXO_DECODE_PANEL = 32,     /* outputs of a panel */
    EXO_DECODE_GROUP = 128,    /* inputs that share a scale */
    EXO_DECODE_KEYS = 16,      /* positions of a block of keys */
    EXO_DECODE_MAX_HEAD = 512, /* the widest head */
    EXO_DECODE_QUERIES = 8     /* queries that share one sweep over keys and values, at most */
};

/* `width` rounded up to a multiple of EXO_DECODE_PANEL: the pitch of rows of activations. */
static inline size_t
exo_decode_stride(size_t width)
{
    return (width + EXO_DECODE_PANEL - 1) / EXO_DECODE_PANEL * EXO_DECODE_PANEL;
}

/* --- Weights ---------------------------------------------------------------------------------- */

typedef enum exo_decode_format {
    EXO_DECODE_F32,
    /* w = s q, q in -127..127; s = max |w| / 127 over an output's group of inputs. */
    EXO_DECODE_INT8,
    /* w = s q + m, q in 0..15; s and m of an output's group, by least squares (decode_pack.c). */
    EXO_DECODE_INT4,
} exo_decode_format;

/* Weights (outputs, inputs) as panels of 32 outputs. Products read a panel from end to end:
 *
 *   F32   (panels, inputs, 32)
 *   INT8  (panels, pairs of inputs, 32, 2)
 *   INT4  (panels, pairs of inputs, 16, 2), a byte each: its low half is of output i, its high half
 *         of output i + 16
 *
 * scales, minima: (panels, groups, 32). The last panel's missing outputs and the last pair's
 * missing input are zero. */
typedef struct exo_decode_matrix {
    exo_decode_format format;
    size_t outputs, inputs;
    size_t panels, groups;
    void *weights;
    float *scales, *minima; /* scales of INT8 and INT4, minima of INT4; else NULL */
    size_t bytes;           /* of all three arrays, a multiple of 64 */
} exo_decode_matrix;

/* Sets the shape of a matrix, without memory. `out` must be zero. `name`: for errors. INVAL: the
 * shape is empty or too large. */
exo_status exo_decode_matrix_init(exo_decode_matrix *out, exo_decode_format format, size_t outputs,
                                  size_t inputs, const char *name, exo_err *err);
/* Lays the matrix into `bytes` bytes of memory, aligned to 64. Its weights are what is there. */
void exo_decode_matrix_place(exo_decode_matrix *matrix, const void *memory);
/* Writes panel `panel` of w (outputs, inputs) in the matrix's format. Panels are independent. */
void exo_decode_pack(exo_decode_matrix *matrix, const float *w, size_t panel);
/* out (inputs): the weights of one output, with the values that products use. */
void exo_decode_unpack(const exo_decode_matrix *matrix, size_t output, float *out);

/* --- Products --------------------------------------------------------------------------------- */

/* The rows that a product reads. Products with quantized weights read int16: x = scale q in each
 * group of 128 inputs, scale = max |x| / 32767. `sums` has scale * the sum of q. A group with a
 * number that is not finite has the scale NaN. */
typedef struct exo_decode_rows {
    const float *x; /* (rows, stride) */
    size_t stride;
    int16_t *q;           /* (rows, stride) */
    float *scales, *sums; /* (rows, groups) */
    size_t groups;
} exo_decode_rows;

/* The rows from `row` on. */
static inline exo_decode_rows
exo_decode_rows_from(const exo_decode_rows *rows, size_t row)
{
    exo_decode_rows from = *rows;
    from.x += row * rows->stride;
    if (rows->q) {
        from.q += row * rows->stride;
        from.scales += row * rows->groups;
        from.sums += row * rows->groups;
    }
    return from;
}

/* Computes q, scales and sums of row `row`, which has `inputs` elements. */
void exo_decode_quantize_row(const exo_decode_rows *rows, size_t row, size_t inputs);

/* The use of v = activation(sum + bias): y = v, y += v, or y *= v. */
typedef enum exo_decode_put {
    EXO_DECODE_SET,
    EXO_DECODE_ADD,
    EXO_DECODE_MULTIPLY,
} exo_decode_put;

/* The end of a product: the operations on its sums. */
typedef struct exo_decode_end {
    const float *bias; /* (outputs rounded up to panels), or NULL */
    exo_activation activation;
    exo_decode_put put;
} exo_decode_end;

/* Computes the columns 32 panel .. 32 panel + 31 of x W^T for `rows` rows, and applies `end` to
 * them -> y (rows, stride). */
void exo_decode_product(const exo_decode_matrix *matrix, const exo_decode_rows *x, size_t rows,
                        size_t panel, const exo_decode_end *end, float *y, size_t stride);

/* --- Rows ------------------------------------------------------------------------------------- */

/* Rotary positions: rotates the elements i and i + width / 2 of a head by the angle whose cosine is
 * turns[i] and whose sine is turns[i + width / 2]. */
void exo_decode_rotate(float *head, size_t width, const float *turns);

/* --- Attention -------------------------------------------------------------------------------- */

/* The cache of one head, in floats: keys (context / 16 rounded up, D, 16), values (context, D
 * rounded up to 16). */
size_t exo_decode_keys_size(size_t context, size_t head_width);
size_t exo_decode_values_size(size_t context, size_t head_width);
/* Writes a key and a value (D) to the cache, at a position. */
void exo_decode_cache_put(float *keys, float *values, size_t head_width, size_t position,
                          const float *key, const float *value);

/* Up to EXO_DECODE_QUERIES queries with one head's cache. Query i sees the positions
 * 0..position[i]. */
typedef struct exo_decode_attention {
    const float *keys, *values;
    size_t head_width, queries;
    const float *query[EXO_DECODE_QUERIES]; /* (D) each */
    float *out[EXO_DECODE_QUERIES];         /* (D) each */
    size_t position[EXO_DECODE_QUERIES];
    float slope[EXO_DECODE_QUERIES]; /* of ALiBi, which adds slope (j - i) to a score; 0: none */
    float scale;                     /* of the scores */
    float *lse;                      /* (queries): as in exo_attention_args; NULL: not wanted */
} exo_decode_attention;
void exo_decode_attend(const exo_decode_attention *attention);

/* --- Logits ----------------------------------------------------------------------------------- */

/* The largest element of x; NaN if x has a NaN. *place, unless NULL: its first index. */
float exo_decode_max(const float *x, size_t count, size_t *place);
/* Computes p = exp(x - shift), and returns the sum of p, in blocks of EXO_DECODE_SUM_BLOCK. p may
 * be NULL, or x. */
enum {
    EXO_DECODE_SUM_BLOCK = 256
};
double exo_decode_exp_sum(const float *x, size_t count, float shift, float *p);
/* The sum of a block of at most EXO_DECODE_SUM_BLOCK elements. */
double exo_decode_block_sum(const float *p, size_t count);
/* Writes the indexes of the elements that are at least `floor` to places, ascending, at most
 * `room` of them. Returns the number of such elements. */
size_t exo_decode_at_least(const float *x, size_t count, float floor, uint32_t *places,
                           size_t room);

#endif
