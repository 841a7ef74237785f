/* Kernels of a decoder's inference: products of few rows with weights in panels, norms, attention over a cache of keys and values, and
 * sums over logits.
 *
 * Every row's arithmetic is the same whatever other rows there are, in whatever pieces the caller works: one order of sums, that of the
 * inputs, of the positions or of the vocabulary. Read next: nn/generate/forward.c, which calls them.
 *
 * Rows of activations lie `stride` elements apart, a multiple of EXO_DECODE_PANEL; what is behind a row's width is zero or ignored. */
#ifndef EXO_CPU_DECODE_H
#define EXO_CPU_DECODE_H

#include <exogym/sequence.h>

enum {
    EXO_DECODE_PANEL = 32,     /* outputs that lie together                          */
    EXO_DECODE_GROUP = 128,    /* inputs that share a scale                          */
    EXO_DECODE_KEYS = 16,      /* positions whose keys lie together                  */
    EXO_DECODE_MAX_HEAD = 512, /* the widest head                                    */
    EXO_DECODE_QUERIES = 8     /* queries that share one sweep over keys and values  */
};

/* --- Weights ------------------------------------------------------------------------------------------------------------------ */

typedef enum exo_decode_format {
    EXO_DECODE_F32,
    EXO_DECODE_INT8, /* w = s q, q in -127..127; s = max |w| / 127 of an output's group of inputs          */
    EXO_DECODE_INT4, /* w = s q + m, q in 0..15; s and m of an output's group, by least squares (decode_pack.c) */
} exo_decode_format;

/* Weights (outputs, inputs) as panels of 32 outputs, each a stretch of memory that is read from end to end:
 *   F32   (panels, inputs, 32)
 *   INT8  (panels, pairs of inputs, 32, 2)
 *   INT4  (panels, pairs of inputs, 16, 2): the low half of a byte is of output i, the high half of output i + 16
 * scales, minima: (panels, groups, 32). The last panel's missing outputs and the last pair's missing input are zero. */
typedef struct exo_decode_matrix {
    exo_decode_format format;
    size_t outputs, inputs;
    size_t panels, groups;
    void *weights;
    float *scales, *minima; /* minima: of INT4 */
    size_t bytes;           /* of all three */
} exo_decode_matrix;

/* Allocates. `out` is zero before. */
exo_status exo_decode_matrix_init(exo_decode_matrix *out, exo_decode_format format, size_t outputs,
                                  size_t inputs, const char *name, exo_err *err);
void exo_decode_matrix_release(exo_decode_matrix *matrix);
/* Brings panel `panel` of w (outputs, inputs) into the matrix's format. */
void exo_decode_pack(exo_decode_matrix *matrix, const float *w, size_t panel);
/* The weights of one output as they are used -> out (inputs). */
void exo_decode_unpack(const exo_decode_matrix *matrix, size_t output, float *out);

/* --- Products ----------------------------------------------------------------------------------------------------------------- */

/* Rows that a product reads. Products with quantized weights read int16: x = scale q within each group of 128 inputs,
 * scale = max |x| / 32767; sums holds scale * sum of q. A group with a number that is not finite has the scale NaN. */
typedef struct exo_decode_rows {
    const float *x; /* (rows, stride) */
    size_t stride;
    int16_t *q;           /* (rows, stride)            */
    float *scales, *sums; /* (rows, groups)            */
    size_t groups;        /* the pitch of both         */
} exo_decode_rows;

/* Fills in q, scales and sums of row `row`, `inputs` wide. */
void exo_decode_quantize_row(const exo_decode_rows *rows, size_t row, size_t inputs);

/* What becomes of v = sum + bias: y = activation(v), y += v, or y *= v. */
typedef enum exo_decode_put {
    EXO_DECODE_SET,
    EXO_DECODE_ADD,
    EXO_DECODE_MULTIPLY,
} exo_decode_put;

typedef struct exo_decode_end {
    const float *bias; /* (outputs rounded up to panels), or NULL */
    exo_activation activation;
    exo_decode_put put;
} exo_decode_end;

/* Columns 32 panel .. 32 panel + 31 of x W^T for `rows` rows -> y (rows, stride). */
void exo_decode_product(const exo_decode_matrix *matrix, const exo_decode_rows *x, size_t rows,
                        size_t panel, const exo_decode_end *end, float *y, size_t stride);

/* --- Rows ----------------------------------------------------------------------------------------------------------------------- */

void exo_decode_layer_norm(const float *x, size_t width, const float *weight, const float *bias,
                           float eps, float *y);
void exo_decode_rms_norm(const float *x, size_t width, const float *weight, float eps, float *y);
/* x = activation(x). */
void exo_decode_activate(exo_activation activation, float *x, size_t count);
/* Turns elements i and i + width / 2 of a head by the angle whose cosine and sine are at i. */
void exo_decode_rotate(float *head, size_t width, const float *cosine, const float *sine);

/* --- Attention -------------------------------------------------------------------------------------------------------------------- */

/* The cache of one head of keys and values: keys (context / 16, D, 16), values (context, D rounded up to 16). */
size_t exo_decode_keys_size(size_t context, size_t head_width);
size_t exo_decode_values_size(size_t context, size_t head_width);
/* Puts a key and a value (D) at a position. */
void exo_decode_cache_put(float *keys, float *values, size_t head_width, size_t position,
                          const float *key, const float *value);

/* Up to EXO_DECODE_QUERIES queries over one head's cache: query i sees positions 0..position[i]. */
typedef struct exo_decode_attention {
    const float *keys, *values;
    size_t head_width, queries;
    const float
        *query[EXO_DECODE_QUERIES]; /* (D)                                                   */
    float *out[EXO_DECODE_QUERIES]; /* (D)                                                   */
    size_t position[EXO_DECODE_QUERIES];
    float slope
        [EXO_DECODE_QUERIES]; /* ALiBi: score (i, j) gets slope (j - i); 0: none              */
    float scale;
} exo_decode_attention;
void exo_decode_attend(const exo_decode_attention *attention);

/* --- Logits ------------------------------------------------------------------------------------------------------------------------ */

/* The largest of x and its first place; NaN anywhere makes it NaN. */
float exo_decode_max(const float *x, size_t count, size_t *place);
/* p = exp(x - shift) -> sum of p, block by block of EXO_DECODE_SUM_BLOCK. p may be NULL. */
enum {
    EXO_DECODE_SUM_BLOCK = 256
};
double exo_decode_exp_sum(const float *x, size_t count, float shift, float *p);
/* The sum of a block. count at most EXO_DECODE_SUM_BLOCK. */
double exo_decode_block_sum(const float *p, size_t count);
/* Elements of x that are at least `floor` -> places (ascending), at most `room`; gives how many there are. */
size_t exo_decode_at_least(const float *x, size_t count, float floor, uint32_t *places,
                           size_t room);

#endif
