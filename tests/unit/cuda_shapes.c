/* Kernels of nn/cuda with drawn shapes, beside the reference: one element, primes, and one below and above
 * what a tile, a warp or a block has. What a kernel gets lies between margins, at any element; all of it is
 * compared, so that a kernel writes its results and nothing else. EXO_CUDA_SHAPES=10000 draws so many
 * shapes, from EXO_CUDA_SHAPES_SEED on. Read next: tests/unit/cuda_kernels.c. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/bf16.h"
#include "cuda/emulator.h"
#include "nn/cuda/open.h"
#include "nn/device/device_impl.h"
#include "nn/ref/ref_device.h"

enum {
    MOST_ARRAYS = 16,
    MARGIN = 16, /* elements before and behind */
    MOST = 20000 /* elements of an array */
};

/* A call on one device: its arrays, in the order in which it asks for them. */
typedef struct call {
    exo_device *device;
    uint64_t state; /* of the draws, the same on both devices */
    exo_array arrays[MOST_ARRAYS];
    exo_dtype types[MOST_ARRAYS];
    size_t num_arrays;
    bool rounds;    /* to bf16 in the midst of sums */
    char text[128]; /* the shape, for a failure */
} call;

#define ASK(kernel_name, ...)                                                                      \
    cr_assert_eq(c->device->device_class->kernels->kernel_name(                                    \
                     c->device, &(const exo_##kernel_name##_args){__VA_ARGS__}, NULL),             \
                 EXO_OK)
#define SAY(...) snprintf(c->text, sizeof c->text, __VA_ARGS__)

static uint32_t
draw(call *c)
{
    c->state = c->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(c->state >> 33);
}

static bool
either(call *c)
{
    return draw(c) % 2 == 1;
}

/* A length from 1 to `most`: one near what kernels have at a time, or any. */
static size_t
length(call *c, size_t most)
{
    static const size_t near[] = {1,    2,    3,    4,    5,    7,    8,   15,   16,   17,
                                  31,   32,   33,   61,   63,   64,   65,  127,  128,  129,
                                  255,  256,  257,  509,  511,  512,  513, 1023, 1024, 1025,
                                  2047, 2049, 4095, 4096, 4097, 8191, 8193};
    const size_t some = near[draw(c) % (sizeof near / sizeof *near)];
    return some <= most && draw(c) % 4 > 0 ? some : 1 + draw(c) % most;
}

/* Sometimes nothing. */
static size_t
or_none(call *c, size_t count)
{
    return draw(c) % 16 > 0 ? count : 0;
}

/* --- Arrays ----------------------------------------------------------------------------------- */

static size_t
size_of(exo_dtype type)
{
    return exo_dtype_size(type);
}

/* An array of `count` elements of a type, whose bytes the caller has filled, at a drawn element. */
static void *
put(call *c, exo_dtype type, size_t count, const void *from, bool aligned)
{
    const size_t at = MARGIN + (aligned ? 0 : draw(c) % 4), all = count + at + MARGIN;
    char *bytes = exo_calloc(all, size_of(type));
    exo_array *x = &c->arrays[c->num_arrays];
    cr_assert(bytes && c->num_arrays < MOST_ARRAYS && count <= MOST);
    memset(bytes, 0x41, all * size_of(type));
    memcpy(bytes + at * size_of(type), from, count * size_of(type));
    cr_assert_eq(exo_array_init(x, c->device, type, all, NULL), EXO_OK);
    exo_array_send(*x, bytes);
    exo_free(bytes);
    c->types[c->num_arrays++] = type;
    return (char *)x->data + at * size_of(type);
}

static float
number(call *c)
{
    return (float)(int)(draw(c) % 2001 - 1000) / 512.0f;
}

static float *
numbers(call *c, size_t count)
{
    static float x[MOST];
    for (size_t i = 0; i < count; i++)
        x[i] = number(c);
    return put(c, EXO_F32, count, x, false);
}

static float *
positive(call *c, size_t count)
{
    static float x[MOST];
    for (size_t i = 0; i < count; i++)
        x[i] = fabsf(number(c)) + 0.5f;
    return put(c, EXO_F32, count, x, false);
}

/* Of fp32 or bf16. */
static void *
typed(call *c, exo_dtype type, size_t count)
{
    static uint16_t x[MOST];
    if (type == EXO_F32)
        return numbers(c, count);
    for (size_t i = 0; i < count; i++)
        x[i] = exo_to_bf16(number(c));
    return put(c, EXO_BF16, count, x, false);
}

static void *
any(call *c, size_t count)
{
    return numbers(c, count);
}

/* Numbers that bf16 has, in bf16 on the GPU and in fp32 for the reference. */
static void *
halves(call *c, size_t count)
{
    static uint16_t x[MOST];
    static float wide[MOST];
    for (size_t i = 0; i < count; i++)
        wide[i] = exo_from_bf16(x[i] = exo_to_bf16(number(c)));
    return c->device->device_class->is_host ? put(c, EXO_F32, count, wide, false)
                                            : put(c, EXO_BF16, count, x, false);
}

/* Integers from -negative to below. */
static int32_t *
tokens(call *c, size_t count, size_t below, bool negative)
{
    static int32_t x[MOST];
    for (size_t i = 0; i < count; i++)
        x[i] = negative && draw(c) % 6 == 0 ? -1 : (int32_t)(draw(c) % below);
    return put(c, EXO_I32, count, x, false);
}

static uint8_t *
bytes_of(call *c, size_t count, bool aligned)
{
    static uint8_t x[MOST];
    memset(x, 0, count);
    return put(c, EXO_U8, count, x, aligned);
}

static exo_dtype
type_of(call *c)
{
    return either(c) ? EXO_BF16 : EXO_F32;
}

/* Scratch is not compared. */
static exo_array
scratch_of(const call *c, exo_shape_kind kind, const void *shape, exo_scratch_use use)
{
    exo_array x = {0};
    const size_t bytes = c->device->device_class->scratch(c->device, kind, shape, use);
    if (bytes)
        cr_assert_eq(exo_array_init(&x, c->device, EXO_U8, bytes, NULL), EXO_OK);
    return x;
}

/* --- Elements --------------------------------------------------------------------------------- */

static void
elements(call *c)
{
    const size_t n = or_none(c, length(c, 5000));
    float *x = numbers(c, n), *y = numbers(c, n), *z = numbers(c, n);
    uint8_t *keep = bytes_of(c, n, false);
    SAY("%zu", n);
    ASK(axpy, .count = n, .y = y, .a = 0.25f, .x = x);
    ASK(mul, .count = n, .y = z, .a = x, .b = y, .add = either(c));
    ASK(lerp, .count = n, .y = y, .t = 0.375f, .x = z);
    ASK(dropout_draw, .count = n, .keep = keep, .seed = 3, .step = 7, .node = 1,
        .ordinal = draw(c) % 3000, .threshold = 1u << 31);
    ASK(dropout, .count = n, .dtype = EXO_F32, .y = x, .x = y, .keep = keep, .factor = 2,
        .add = either(c));
    ASK(select, .count = n, .y = z, .keep = keep, .value = 0.5f);
    ASK(sign, .count = n, .y = y, .x = y);
}

static void
casts(call *c)
{
    const size_t n = or_none(c, length(c, 5000));
    void *half = typed(c, EXO_BF16, n), *other = typed(c, EXO_BF16, n);
    float *x = numbers(c, n);
    SAY("%zu", n);
    ASK(add, .count = n, .dtype = EXO_BF16, .y = half, .a = half, .b = other);
    ASK(cast, .count = n, .to = EXO_F32, .from = EXO_BF16, .y = x, .x = half);
    ASK(relu, .count = n, .dtype = EXO_BF16, .y = half, .x = other);
    ASK(relu_backward, .count = n, .dtype = EXO_BF16, .dx = other, .y = half, .dy = half,
        .add = either(c));
    ASK(cast, .count = n, .to = EXO_BF16, .from = EXO_F32, .y = half, .x = x);
}

static void
optimizers(call *c)
{
    const size_t n = or_none(c, length(c, 3000));
    float *param = numbers(c, n), *grad = numbers(c, n), *first = numbers(c, n),
          *second = positive(c, n), *third = positive(c, n);
    SAY("%zu", n);
    ASK(adam, .count = n, .param = param, .grad = grad, .exp_avg = first, .exp_avg_sq = second,
        .max_exp_avg_sq = either(c) ? third : NULL, .beta1 = 0.9f, .one_minus_beta1 = 0.1f,
        .beta2 = 0.99f, .one_minus_beta2 = 0.01f, .eps = 1e-8f,
        .now = {.shrink = 0.99f, .sqrt_correction2 = 0.5f, .step_size = 1e-2f});
    ASK(sgd, .count = n, .param = param, .grad = grad, .momentum_buffer = either(c) ? first : NULL,
        .nesterov = true, .now = {0.9f, 1, 0.01f});
    ASK(adagrad, .count = n, .param = param, .grad = grad, .sum = second, .eps = 1e-3f,
        .now = {0.01f});
    ASK(rmsprop, .count = n, .param = param, .grad = grad, .square_avg = second,
        .grad_avg = either(c) ? third : NULL, .momentum_buffer = either(c) ? first : NULL,
        .l2 = 0.01f, .alpha = 0.99f, .one_minus_alpha = 0.01f, .eps = 1e-2f, .now = {0.9f, 0.01f});
}

static void
sums(call *c)
{
    static const double zeros[4];
    const size_t n = length(c, 15000), columns = length(c, 300), rows = length(c, MOST / columns);
    const exo_dtype type = type_of(c);
    float *x = numbers(c, n), *mask = numbers(c, n), *y = numbers(c, 4), *all = numbers(c, columns);
    void *matrix = typed(c, type, rows * columns);
    double *out = put(c, EXO_I64, 3, zeros, true);
    SAY("%zu, (%zu, %zu)", n, rows, columns);
    ASK(sum, .count = n, .x = x, .out = out);
    ASK(sum_squares, .count = n, .x = x, .center = 0.125, .out = out + 1);
    ASK(dot, .count = n, .a = x, .b = mask, .out = out + 2);
    ASK(mean, .count = n, .y = y, .x = x);
    ASK(masked_mean, .count = n, .y = y + 1, .factor = y + 2, .x = x, .mask = mask,
        .sum = either(c));
    ASK(column_sums, .rows = rows, .columns = columns, .dtype = type, .y = all, .x = matrix,
        .add = either(c));
}

static void
trimmed(call *c)
{
    const size_t n = length(c, 300), rows = 2 + draw(c) % 9, pitch = n + draw(c) % 5;
    float *y = numbers(c, n), *x = numbers(c, rows * pitch);
    SAY("%zu of %zu, %zu", n, rows, pitch);
    ASK(trimmed_mean, .count = n, .rows = rows, .pitch = pitch, .trim = draw(c) % ((rows + 1) / 2),
        .y = y, .x = x);
}

/* --- Images ----------------------------------------------------------------------------------- */

static void
images(call *c)
{
    const size_t samples = 1 + draw(c) % 3, h = length(c, 40), w = length(c, 40),
                 channels = length(c, 2000 / (h * w) + 1), size = 1 + draw(c) % 4;
    const size_t count = samples * h * w * channels,
                 few = samples * (h / size) * (w / size) * channels;
    const exo_dtype type = type_of(c);
    void *x = typed(c, type, count), *y = typed(c, type, count);
    uint8_t *winner = bytes_of(c, count, false);
    float *factor = numbers(c, samples * channels);
    SAY("(%zu, %zu, %zu, %zu), windows of %zu", samples, h, w, channels, size);
    ASK(channel_scale, .samples = samples, .rows = h * w, .channels = channels, .dtype = type,
        .y = x, .x = x, .factor = factor, .add = either(c));
    ASK(transpose, .samples = samples, .rows = h * w, .columns = channels, .dtype = type, .y = y,
        .x = x, .add = either(c));
    if (few == 0)
        return;
    ASK(max_pool, .samples = samples, .height = h, .width = w, .channels = channels, .size = size,
        .dtype = type, .y = y, .winner = winner, .x = x);
    ASK(max_pool_backward, .samples = samples, .height = h, .width = w, .channels = channels,
        .size = size, .dtype = type, .dx = x, .winner = winner, .dy = y, .add = either(c));
}

static void
convolution(call *c)
{
    exo_conv_shape s;
    exo_plan *plan = NULL;
    memset(&s, 0, sizeof s);
    s.kernel_height = 1 + draw(c) % 4;
    s.kernel_width = 1 + draw(c) % 4;
    s.stride = 1 + draw(c) % 3;
    s.padding = draw(c) % 3;
    s.height = s.kernel_height + draw(c) % 8;
    s.width = s.kernel_width + draw(c) % 8;
    s.in_channels = length(c, 12);
    s.out_channels = length(c, 40);
    s.batch = 1 + draw(c) % 4;
    s.out_height = (s.height + 2 * s.padding - s.kernel_height) / s.stride + 1;
    s.out_width = (s.width + 2 * s.padding - s.kernel_width) / s.stride + 1;
    c->rounds = either(c);
    s.dtype = c->rounds && !c->device->device_class->is_host ? EXO_BF16 : EXO_F32;
    s.with_bias = s.backward = s.input_grad = 1;
    void *(*const of)(call *, size_t) = c->rounds ? halves : any;
    const size_t in = s.batch * s.height * s.width * s.in_channels,
                 out = s.batch * s.out_height * s.out_width * s.out_channels,
                 weights = s.out_channels * s.in_channels * s.kernel_height * s.kernel_width;
    void *x = of(c, in), *dx = of(c, in), *y = of(c, out), *dy = of(c, out);
    float *weight = numbers(c, weights), *dweight = numbers(c, weights),
          *bias = numbers(c, s.out_channels), *dbias = numbers(c, s.out_channels);
    SAY("(%zu, %zu, %zu, %zu), kernel (%zu, %zu, %zu), stride %zu, padding %zu", s.batch, s.height,
        s.width, s.in_channels, s.out_channels, s.kernel_height, s.kernel_width, s.stride,
        s.padding);
    cr_assert_eq(exo_plan_new(&plan, c->device, EXO_SHAPE_CONV, &s, NULL), EXO_OK);
    ASK(conv, .plan = plan, .y = y, .x = x, .weight = weight, .bias = bias);
    ASK(conv_backward, .plan = plan, .dx = dx, .dweight = dweight, .dbias = dbias, .x = x,
        .dy = dy);
    cr_assert_eq(exo_device_synchronize(c->device, NULL), EXO_OK);
    exo_plan_free(&plan);
}

/* --- Rows ------------------------------------------------------------------------------------- */

static void
losses(call *c)
{
    const size_t columns = length(c, 9000),
                 rows = 1 + draw(c) % (MOST / columns < 20 ? MOST / columns : 20);
    int32_t *targets = tokens(c, rows, columns, true);
    float *x = numbers(c, rows * columns), *dx = numbers(c, rows * columns), *y = numbers(c, rows),
          *log_sum = numbers(c, rows), *dy = numbers(c, rows), *loss = numbers(c, 1);
    SAY("(%zu, %zu)", rows, columns);
    ASK(log_probs, .rows = rows, .columns = columns, .y = y, .log_sum = log_sum, .x = x,
        .targets = targets, .scale = 1.25f);
    ASK(log_probs_backward, .rows = rows, .columns = columns, .dx = dx, .x = x, .log_sum = log_sum,
        .dy = dy, .targets = targets, .scale = 1.25f, .add = either(c));
    ASK(entropy, .rows = rows, .columns = columns, .y = y, .log_sum = log_sum, .x = x,
        .scale = 0.75f);
    ASK(entropy_backward, .rows = rows, .columns = columns, .dx = dx, .x = x, .log_sum = log_sum,
        .y = y, .dy = dy, .scale = 0.75f, .add = either(c));
    ASK(cross_entropy, .rows = rows, .columns = columns, .counted = rows, .y = loss, .dx = x,
        .x = x, .targets = targets);
}

static void
tables(call *c)
{
    const size_t width = length(c, 700), rows = 1 + draw(c) % (MOST / 2 / width),
                 below = 1 + draw(c) % rows;
    const size_t sequence = 1 + draw(c) % rows, first = draw(c) % 3;
    int32_t *at = tokens(c, rows, below, true);
    float *y = numbers(c, rows * width), *table = numbers(c, (rows + 3) * width),
          *gradient = numbers(c, (rows + 3) * width), *out = numbers(c, rows * width);
    SAY("(%zu, %zu), %zu tokens, sequences of %zu", rows, width, below, sequence);
    ASK(embedding, .rows = rows, .width = width, .y = y, .table = table, .tokens = at);
    ASK(embedding_backward, .rows = rows, .width = width, .gradient = gradient, .dy = y,
        .tokens = at);
    ASK(positions, .rows = rows, .width = width, .sequence = sequence, .first = first, .y = out,
        .x = y, .table = table);
    ASK(positions_backward, .rows = rows, .width = width, .sequence = sequence, .first = first,
        .gradient = gradient, .dy = y);
    ASK(copy_columns, .rows = rows, .count = 1 + draw(c) % width, .y_pitch = width,
        .x_pitch = width, .y = out, .x = y, .add = either(c));
}

static void
row_norms(call *c)
{
    const size_t width = length(c, 5000), most = MOST / width < 40 ? MOST / width : 40;
    const exo_row_norm_shape s = {.rows = 1 + draw(c) % most, .width = width};
    const exo_dtype type = type_of(c);
    const bool centered = either(c), wanted = either(c);
    exo_array scratch = scratch_of(c, EXO_SHAPE_ROW_NORM, &s, EXO_SCRATCH_BACKWARD);
    float *x = numbers(c, s.rows * width), *dx = numbers(c, s.rows * width),
          *weight = numbers(c, width), *bias = numbers(c, width), *mean = numbers(c, s.rows),
          *inverse = numbers(c, s.rows), *dweight = numbers(c, width), *dbias = numbers(c, width);
    void *y = typed(c, type, s.rows * width), *dy = typed(c, type, s.rows * width),
         *rounded = typed(c, EXO_BF16, s.rows * width);
    SAY("(%zu, %zu)", s.rows, width);
    ASK(row_norm, .shape = s, .centered = centered, .eps = 1e-1f, .dtype = type, .y = y,
        .mean = mean, .inverse = inverse, .x = x, .weight = weight, .bias = centered ? bias : NULL);
    ASK(row_norm_backward, .shape = s, .centered = centered, .add = either(c), .eps = 1e-1f,
        .dtype = type, .dx = dx, .rounded = rounded, .dweight = wanted ? dweight : NULL,
        .dbias = wanted && centered ? dbias : NULL, .x = x, .weight = weight, .mean = mean,
        .inverse = inverse, .dy = dy, .scratch = scratch.data);
    exo_array_release(&scratch);
}

static void
batch_norms(call *c)
{
    const exo_batch_norm_shape s = {.samples = length(c, 40), .channels = length(c, 70)};
    const size_t rows = 1 + draw(c) % 6, count = s.samples * rows * s.channels;
    const exo_dtype type = type_of(c);
    const bool train = either(c);
    exo_array scratch = scratch_of(c, EXO_SHAPE_BATCH_NORM, &s, EXO_SCRATCH_FORWARD);
    void *x = typed(c, type, count), *y = typed(c, type, count), *dy = typed(c, type, count);
    float *kept = numbers(c, 4 * s.channels), *mean = numbers(c, s.channels),
          *var = positive(c, s.channels), *weight = numbers(c, s.channels),
          *bias = numbers(c, s.channels), *dweight = numbers(c, s.channels);
    SAY("(%zu, %zu, %zu)", s.samples, rows, s.channels);
    ASK(batch_norm, .shape = s, .rows = rows, .dtype = type, .train = train, .move = either(c),
        .eps = 1e-1f, .momentum = 0.125f, .y = y, .kept = kept, .running_mean = mean,
        .running_var = var, .x = x, .weight = weight, .bias = bias, .scratch = scratch.data);
    ASK(batch_norm_backward, .shape = s, .rows = rows, .dtype = type, .train = train,
        .add_weight = either(c), .dx = dy, .dweight = dweight, .kept = kept, .x = x, .dy = dy,
        .scratch = scratch.data);
    exo_array_release(&scratch);
}

/* --- Sequences and gates ---------------------------------------------------------------------- */

static void
sequences(call *c)
{
    static int32_t offsets[40];
    const size_t rows = length(c, 5000), count = 1 + draw(c) % 30;
    for (size_t i = 0; i <= count; i++)
        offsets[i] = (int32_t)(i > 0 ? (size_t)offsets[i - 1] : draw(c) % 4 % rows);
    for (size_t i = 1; i <= count; i++) {
        const size_t left = rows - (size_t)offsets[i - 1];
        offsets[i] = offsets[i - 1] + (int32_t)(draw(c) % (left / 2 + 1));
    }
    float *y = numbers(c, count), *x = numbers(c, rows), *mask = numbers(c, rows),
          *dx = numbers(c, rows);
    const int32_t *at = put(c, EXO_I32, count + 1, offsets, false);
    SAY("%zu of %zu rows", count, rows);
    ASK(sequence_sum, .count = count, .y = y, .x = x, .mask = either(c) ? mask : NULL,
        .offsets = at);
    ASK(sequence_sum_backward, .count = count, .rows = rows, .dx = dx,
        .mask = either(c) ? mask : NULL, .dy = y, .offsets = at, .add = either(c));
}

static void
gates(call *c)
{
    const size_t width = length(c, 600), rows = or_none(c, 1 + draw(c) % (5000 / width));
    const exo_dtype type = type_of(c);
    const exo_activation kind = either(c) ? EXO_SILU : EXO_GELU;
    void *x = typed(c, type, 2 * rows * width), *dx = typed(c, type, 2 * rows * width),
         *y = typed(c, type, rows * width), *dy = typed(c, type, rows * width);
    SAY("(%zu, %zu)", rows, width);
    ASK(gate, .rows = rows, .width = width, .activation = kind, .dtype = type, .y = y, .x = x);
    ASK(gate_backward, .rows = rows, .width = width, .activation = kind, .dtype = type, .dx = dx,
        .x = x, .dy = dy, .add = either(c));
    ASK(activation_backward, .count = rows * width, .activation = kind, .dtype = type, .dx = dy,
        .x = y, .dy = dy);
}

/* --- Compression ------------------------------------------------------------------------------ */

static void
chunks(call *c)
{
    const size_t size = length(c, 4096),
                 n = 1 + draw(c) % (MOST / 2 / size < 9 ? MOST / 2 / size : 9);
    const size_t k = 1 + draw(c) % size, h = 1 + draw(c) % 64, w = 1 + draw(c) % 64;
    const size_t down = 1 + draw(c) % (MOST / (h * w) < 3 ? MOST / (h * w) : 3);
    static uint16_t places[MOST];
    float *x = numbers(c, n * size), *values = numbers(c, n * k), *y = numbers(c, n * size),
          *matrix = numbers(c, down * h * w), *coefficients = numbers(c, down * h * w);
    memset(places, 0, sizeof places);
    uint16_t *index = put(c, EXO_BF16, n * k, places, true);
    SAY("%zu of %zu, k %zu; %zu of (%zu, %zu)", n, size, k, down, h, w);
    ASK(top_k, .chunks = n, .size = size, .k = k, .values = values, .index = index, .x = x);
    ASK(sent_mean, .chunks = n, .size = size, .k = k, .senders = 1, .step = 0, .y = y,
        .values = values, .index = index);
    ASK(dct, .rows = down * h, .cols = w, .chunk_rows = h, .chunk_cols = w, .inverse = either(c),
        .y = coefficients, .x = matrix);
}

static void
quantizers(call *c)
{
    const size_t n = length(c, 9000), chunk = length(c, 5000), parts = (n + chunk - 1) / chunk;
    float *x = numbers(c, n), *scales = numbers(c, parts), *y = numbers(c, n);
    uint8_t *codes = bytes_of(c, n, false);
    SAY("%zu by %zu", n, chunk);
    ASK(largest, .count = n, .chunk = chunk, .y = scales, .x = x);
    ASK(quantize, .count = n, .chunk = chunk, .rows = 1, .y = (int8_t *)codes, .x = x,
        .scales = scales);
    ASK(dequantize, .count = n, .chunk = chunk, .rows = 1, .senders = 1, .y = y,
        .x = (const int8_t *)codes, .scales = scales, .divisor = 3);
}

static void
signs(call *c)
{
    const size_t n = or_none(c, length(c, 9000)), chunk = 8 * length(c, 300),
                 all = (n + chunk - 1) / chunk, step = chunk / 8 + 4;
    const size_t senders = all * step * 3 <= MOST ? 1 + draw(c) % 3 : 1;
    float *y = numbers(c, n);
    uint8_t *bits = bytes_of(c, senders * all * step, true);
    SAY("%zu by %zu, of %zu senders", n, chunk, senders);
    if (chunk % 32 > 0) /* scales lie behind the bits */
        return;
    for (size_t s = 0; s < senders; s++) {
        uint8_t *own = bits + s * all * step;
        ASK(sign_pack, .count = n, .chunk = chunk, .chunks = all, .step = step, .bits = own,
            .scale = (float *)(void *)(own + chunk / 8), .x = numbers(c, n));
    }
    ASK(sign_mean, .count = n, .chunk = chunk, .senders = senders, .sender_step = all * step,
        .chunk_step = step, .y = y, .bits = bits,
        .scale = (const float *)(const void *)(bits + chunk / 8));
}

static void
orthonormal(call *c)
{
    const size_t count = 1 + draw(c) % 6, size = count + length(c, 300);
    float *x = numbers(c, count * size);
    exo_array scratch = {0};
    SAY("%zu of %zu", count, size);
    cr_assert_eq(exo_array_init(&scratch, c->device, EXO_I64, (count + 1) * size + count, NULL),
                 EXO_OK);
    ASK(orthonormalize, .vectors = count, .length = size, .vector_step = size, .element_step = 1,
        .x = x, .scratch = scratch.data);
    cr_assert_eq(exo_device_synchronize(c->device, NULL), EXO_OK);
    exo_array_release(&scratch);
}

static void
fp8(call *c)
{
    const size_t rows = 16 * (1 + draw(c) % 9), columns = 16 * (1 + draw(c) % 9),
                 n = rows * columns;
    const exo_dtype type = type_of(c);
    if (n > MOST)
        return;
    const void *x = typed(c, type, n);
    uint8_t *codes = bytes_of(c, n, true), *turned = bytes_of(c, n, true);
    float *scale = positive(c, 1);
    SAY("(%zu, %zu)", rows, columns);
    ASK(to_fp8, .rows = rows, .columns = columns, .dtype = type,
        .format = either(c) ? EXO_E4M3 : EXO_E5M2, .x = x, .codes = either(c) ? codes : NULL,
        .transposed = turned, .scale = scale);
}

/* --- Products --------------------------------------------------------------------------------- */

static void
layer(call *c)
{
    exo_linear_shape s;
    exo_plan *plan = NULL;
    memset(&s, 0, sizeof s);
    s.rows = length(c, 140);
    s.in = length(c, MOST / s.rows < 140 ? MOST / s.rows : 140);
    s.out = length(c, 140);
    s.dtype = s.out_dtype = (size_t)type_of(c);
    s.with_bias = 1;
    s.invariant = s.dtype == EXO_F32 && either(c);
    c->rounds = s.dtype == EXO_BF16;
    s.backward = s.input_grad = 1;
    const exo_dtype type = (exo_dtype)s.dtype;
    void *x = typed(c, type, s.rows * s.in), *weight = typed(c, type, s.out * s.in),
         *y = typed(c, type, s.rows * s.out), *dy = typed(c, type, s.rows * s.out),
         *dx = typed(c, type, s.rows * s.in);
    float *bias = numbers(c, s.out), *dw = numbers(c, s.out * s.in), *db = numbers(c, s.out);
    exo_array scratch = scratch_of(c, EXO_SHAPE_LINEAR, &s, EXO_SCRATCH_FORWARD);
    SAY("(%zu, %zu, %zu)", s.rows, s.in, s.out);
    cr_assert_eq(exo_plan_new(&plan, c->device, EXO_SHAPE_LINEAR, &s, NULL), EXO_OK);
    ASK(linear, .plan = plan, .activation = EXO_LINEAR, .y = y, .x = x, .weight = weight,
        .bias = bias, .scratch = scratch.data);
    ASK(linear_grad_x, .plan = plan, .dx = dx, .dy = dy, .weight = weight);
    ASK(linear_grad_w, .plan = plan, .dw = dw, .db = db, .dy = dy, .x = x);
    cr_assert_eq(exo_device_synchronize(c->device, NULL), EXO_OK);
    exo_plan_free(&plan);
    exo_array_release(&scratch);
}

static void
attention(call *c)
{
    exo_attention_shape s;
    exo_plan *plan = NULL;
    memset(&s, 0, sizeof s);
    s.kv_heads = 1 + draw(c) % 2;
    s.heads = s.kv_heads * (1 + draw(c) % 2);
    s.sequences = 1 + draw(c) % 2;
    s.width = length(c, 200);
    const size_t row = (s.heads + 2 * s.kv_heads) * s.width, most = MOST / s.sequences / row;
    s.tokens = length(c, most < 140 ? most : 140);
    c->rounds = either(c);
    s.dtype = c->rounds && !c->device->device_class->is_host ? EXO_BF16 : EXO_F32;
    s.turned = either(c) ? s.width / 2 * 2 : 0;
    s.alibi = either(c);
    s.dropout = either(c);
    s.theta = s.turned ? 10000 : 0;
    s.scale = 0.25;
    const size_t rows = s.sequences * s.tokens;
    const exo_attention_drop drop = {
        .dropped = s.dropout ? 9000 : 0, .ordinal = 3, .node = 1, .seed = 7, .step = 5};
    void *(*const of)(call *, size_t) = c->rounds ? halves : any;
    void *x = of(c, rows * row), *dx = of(c, rows * row), *y = of(c, rows * s.heads * s.width),
         *dy = of(c, rows * s.heads * s.width);
    exo_array lse = {0},
              scratch[2] = {scratch_of(c, EXO_SHAPE_ATTENTION, &s, EXO_SCRATCH_FORWARD),
                            scratch_of(c, EXO_SHAPE_ATTENTION, &s, EXO_SCRATCH_BACKWARD)};
    SAY("(%zu, %zu), %zu and %zu heads of %zu, turned %zu, alibi %zu, dropout %zu", s.sequences,
        s.tokens, s.heads, s.kv_heads, s.width, s.turned, s.alibi, s.dropout);
    cr_assert_eq(exo_array_init(&lse, c->device, EXO_F32, rows * s.heads, NULL), EXO_OK);
    cr_assert_eq(exo_plan_new(&plan, c->device, EXO_SHAPE_ATTENTION, &s, NULL), EXO_OK);
    ASK(attention, .plan = plan, .drop = drop, .y = y, .lse = lse.data, .x = x,
        .scratch = scratch[0].data);
    ASK(attention_backward, .plan = plan, .drop = drop, .dx = dx, .x = x, .y = y, .dy = dy,
        .lse = lse.data, .scratch = scratch[1].data, .add = either(c));
    cr_assert_eq(exo_device_synchronize(c->device, NULL), EXO_OK);
    exo_plan_free(&plan);
    exo_array_release(&lse);
    exo_array_release(&scratch[0]);
    exo_array_release(&scratch[1]);
}

static void
head(call *c)
{
    exo_head_shape s;
    exo_plan *plan = NULL;
    memset(&s, 0, sizeof s);
    s.vocabulary = length(c, 9000);
    s.width = 1 + draw(c) % (MOST / s.vocabulary < 20 ? MOST / s.vocabulary : 20);
    s.rows = length(c, 130);
    s.dtype = (size_t)type_of(c);
    s.gradients = 1;
    s.wide = s.dtype == EXO_F32 && either(c);
    c->rounds = s.dtype == EXO_BF16;
    s.entropy = either(c);
    void *x = typed(c, (exo_dtype)s.dtype, s.rows * s.width);
    float *weight = numbers(c, s.vocabulary * s.width), *dx = numbers(c, s.rows * s.width),
          *dweight = numbers(c, s.vocabulary * s.width), *factor = numbers(c, s.rows),
          *log_sum = numbers(c, s.rows), *picked = numbers(c, s.rows),
          *entropy = numbers(c, s.rows);
    int32_t *targets = tokens(c, s.rows, s.vocabulary, false);
    exo_array scratch = scratch_of(c, EXO_SHAPE_HEAD, &s, EXO_SCRATCH_FORWARD);
    SAY("(%zu, %zu, %zu), wide %zu, entropy %zu", s.rows, s.width, s.vocabulary, s.wide, s.entropy);
    cr_assert_eq(exo_plan_new(&plan, c->device, EXO_SHAPE_HEAD, &s, NULL), EXO_OK);
    exo_head_args k = {.plan = plan,
                       .x = x,
                       .weight = weight,
                       .targets = s.entropy ? NULL : targets,
                       .scale = 1,
                       .log_sum = log_sum,
                       .picked = picked,
                       .entropy = entropy,
                       .factor = factor,
                       .dx = dx,
                       .dweight = dweight,
                       .scratch = scratch.data};
    cr_assert_eq(c->device->device_class->kernels->head(c->device, &k, NULL), EXO_OK);
    if (!s.wide)
        cr_assert_eq(c->device->device_class->kernels->head_backward(c->device, &k, NULL), EXO_OK);
    cr_assert_eq(exo_device_synchronize(c->device, NULL), EXO_OK);
    exo_plan_free(&plan);
    exo_array_release(&scratch);
}

/* --- The comparison --------------------------------------------------------------------------- */

static double
number_at(const char *bytes, exo_dtype type, size_t i)
{
    uint16_t half;
    float x;
    double y;
    int32_t n;
    switch (type) {
    case EXO_BF16:
        memcpy(&half, bytes + i * sizeof half, sizeof half);
        return (double)exo_from_bf16(half);
    case EXO_I64: /* a double */
        memcpy(&y, bytes + i * sizeof y, sizeof y);
        return y;
    case EXO_I32:
        memcpy(&n, bytes + i * sizeof n, sizeof n);
        return n;
    case EXO_U8:
        return (double)(unsigned char)bytes[i];
    default:
        memcpy(&x, bytes + i * sizeof x, sizeof x);
        return (double)x;
    }
}

static void
expect_same(const char *name, const call *a, const call *b, double tolerance)
{
    static char one[MOST * 8 + 512], other[MOST * 8 + 512];
    for (size_t k = 0; k < a->num_arrays; k++) {
        const exo_dtype type = a->types[k], theirs = b->types[k];
        const bool exact = type == EXO_U8 || type == EXO_I32;
        const double most = exact ? 0 : a->rounds ? 0.3 : type == EXO_BF16 ? 3e-2 : tolerance;
        cr_assert_eq(exo_array_read(a->arrays[k], one, NULL), EXO_OK);
        cr_assert_eq(exo_array_read(b->arrays[k], other, NULL), EXO_OK);
        double apart = 0, all = 0;
        for (size_t i = 0; i < a->arrays[k].count; i++) {
            const double x = number_at(one, type, i), y = number_at(other, theirs, i);
            cr_assert(x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= most * (1 + fabs(x)),
                      "%s, seed %llu, %s: array %zu, element %zu: %.9g, not %.9g", name,
                      (unsigned long long)b->state, a->text, k, i, y, x);
            if (i < MARGIN + 3 || i + MARGIN >= a->arrays[k].count)
                continue;
            apart += (x - y) * (x - y);
            all += x * x;
        }
        cr_assert(exact || !a->rounds || apart <= 4e-4 * all + 1e-6,
                  "%s, seed %llu, %s: array %zu: %g of %g", name, (unsigned long long)b->state,
                  a->text, k, sqrt(apart), sqrt(all));
    }
}

static const struct {
    const char *name;
    double tolerance;
    void (*run)(call *c);
} calls[] = {{"elements", 0, elements},
             {"casts", 0, casts},
             {"optimizers", 1e-6, optimizers},
             {"sums", 1e-5, sums},
             {"trimmed means", 0, trimmed},
             {"images", 1e-6, images},
             {"convolution", 1e-4, convolution},
             {"losses", 1e-4, losses},
             {"tables", 0, tables},
             {"row norms", 5e-4, row_norms},
             {"batch norms", 1e-3, batch_norms},
             {"sequences", 1e-5, sequences},
             {"gates", 1e-5, gates},
             {"chunks", 1e-4, chunks},
             {"quantizers", 0, quantizers},
             {"signs", 1e-6, signs},
             {"orthonormal", 1e-4, orthonormal},
             {"fp8", 0, fp8},
             {"layer", 1e-4, layer},
             {"attention", 2e-4, attention},
             {"head", 1e-3, head}};

static void
compare(size_t which, uint64_t seed)
{
    static call on[2];
    exo_device *gpu = NULL;
    cr_assert_eq(exo_cuda_open(&gpu, 0, NULL), EXO_OK);
    for (int d = 0; d < 2; d++) {
        memset(&on[d], 0, sizeof on[d]);
        on[d].device = d ? gpu : exo_device_ref();
        on[d].state = seed * 0x9E3779B97F4A7C15u;
        calls[which].run(&on[d]);
        cr_assert_eq(exo_device_synchronize(on[d].device, NULL), EXO_OK, "%s, %s",
                     calls[which].name, on[d].text);
        on[d].state = seed;
    }
    expect_same(calls[which].name, &on[0], &on[1], calls[which].tolerance);
    for (int d = 0; d < 2; d++)
        for (size_t k = 0; k < on[d].num_arrays; k++)
            exo_array_release(&on[d].arrays[k]);
    exo_cuda_close(gpu);
}

static uint64_t
asked(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

Test(cuda_shapes, kernels_compute_drawn_shapes_as_the_reference, .timeout = 3600)
{
    const uint64_t count = asked("EXO_CUDA_SHAPES", sizeof calls / sizeof *calls * 3),
                   first = asked("EXO_CUDA_SHAPES_SEED", 1);
    const char *only = getenv("EXO_CUDA_SHAPES_OF");
    for (uint64_t i = 0; i < count; i++) {
        const size_t which = (size_t)(i % (sizeof calls / sizeof *calls));
        if (only && strcmp(only, calls[which].name) != 0)
            continue;
        (void)cuda_emulator_watch_races(i % 64 == 0);
        cuda_emulator_seed(first + i);
        compare(which, first + i);
    }
}
