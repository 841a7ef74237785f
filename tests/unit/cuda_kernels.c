/* Kernels of nn/cuda where a GPU's way differs from the host's: several tiles of a block, rows that
 * do not fit into shared memory, bf16, four elements by one access, and numbers of any kind. Each
 * case is compared with the reference, on the CUDA runtime of the tests. Read next:
 * tests/unit/cuda.c. */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include <exogym/compress.h>

#include "cuda/emulator.h"
#include "nn/cuda/open.h"
#include "nn/device/device_impl.h"
#include "nn/ref/ref_device.h"
#include "support/kernel_check.h"

#define CASE(NAME) static exo_status NAME(const exo_array *x, double *sum, exo_err *err)

/* Asks for a kernel; a failure sticks in the device until `finish`. */
#define RUN(kernel_name, ...) exo_device_run(x->device, kernel_name, __VA_ARGS__)

static exo_status
finish(const exo_array *x, exo_err *err)
{
    return exo_device_synchronize(x->device, err);
}

static void
expect_the_reference(const char *name, size_t count, double tolerance,
                     exo_status (*run)(const exo_array *x, double *sum, exo_err *err))
{
    const kernel_case c = {.kernel = name, .name = name, .tolerance = tolerance, .run = run};
    exo_device *gpu;
    exo_err err = {0};
    (void)cuda_emulator_watch_races(true);
    cr_assert_eq(exo_cuda_open(&gpu, 0, &err), EXO_OK, "%s", err.text);
    kernel_expect_same(&c, exo_device_ref(), gpu, count, false);
    exo_cuda_close(gpu);
    cr_expect_eq(cuda_emulator_memory(), 0);
}

/* The first numbers of x[a] as bf16, in the memory of x[b]. */
static void *
as_bf16(const exo_array *x, size_t a, size_t b)
{
    exo_array half = exo_array_part(x[b], 0, x->count / 2);
    half.dtype = EXO_BF16;
    exo_vec_cast(half, exo_array_part(x[a], 0, half.count));
    return half.data;
}

/* Makes x[4] tokens from -1 to `below` - 1, which come from the bytes of a permutation. */
static void
make_tokens(const exo_array *x, int32_t below)
{
    static int32_t tokens[10000];
    const exo_array part = exo_array_part(x[4], 0, x->count);
    cr_assert(x->count <= sizeof tokens / sizeof *tokens);
    cr_assert_eq(exo_array_read(part, tokens, NULL), EXO_OK);
    for (size_t i = 0; i < x->count; i++)
        tokens[i] = tokens[i] % (below + 1) - 1;
    cr_assert_eq(exo_array_write(part, tokens, NULL), EXO_OK);
}

/* Makes x[a] zero: infinities and NaN have no distance. */
static void
forget(const exo_array *x, size_t a)
{
    RUN(fill, .count = x->count, .y = x[a].data);
}

/* --- Elements --------------------------------------------------------------------------------- */

/* Parts that begin at any element, so that four elements do not always lie together. */
CASE(unaligned)
{
    (void)sum;
    for (size_t first = 0; first < 4; first++) {
        const size_t n = 37;
        exo_vec_axpy(exo_array_part(x[0], first, n), 0.5f, exo_array_part(x[1], first, n));
        exo_vec_add(exo_array_part(x[2], 60, n), exo_array_part(x[1], 60, n),
                    exo_array_part(x[0], 60 + first, n));
    }
    return finish(x, err);
}

CASE(gates_bf16)
{
    const size_t rows = x->count / 2 / 16;
    void *in = as_bf16(x, 0, 1), *dy = as_bf16(x, 2, 3);
    (void)sum;
    RUN(gate, .rows = rows, .width = 8, .activation = EXO_RELU, .dtype = EXO_BF16, .y = x[2].data,
        .x = in);
    RUN(gate_backward, .rows = rows, .width = 8, .activation = EXO_RELU, .dtype = EXO_BF16,
        .dx = x[0].data, .x = in, .dy = dy);
    RUN(gate_backward, .rows = rows, .width = 8, .activation = EXO_LINEAR, .dtype = EXO_BF16,
        .dx = x[0].data, .x = in, .dy = dy, .add = true);
    return finish(x, err);
}

CASE(images_bf16)
{
    const size_t width = x->count / 2 / 30;
    void *in = as_bf16(x, 0, 1), *out = as_bf16(x, 1, 2);
    (void)sum;
    RUN(channel_scale, .samples = 2, .rows = 5 * width, .channels = 3, .dtype = EXO_BF16, .y = out,
        .x = in, .factor = x[3].data, .add = true);
    RUN(transpose, .samples = 2, .rows = 15, .columns = width, .dtype = EXO_BF16, .y = x[0].data,
        .x = out);
    RUN(max_pool, .samples = 2, .height = 5, .width = width, .channels = 3, .size = 2,
        .dtype = EXO_BF16, .y = x[3].data, .winner = x[4].data, .x = in);
    RUN(max_pool_backward, .samples = 2, .height = 5, .width = width, .channels = 3, .size = 2,
        .dtype = EXO_BF16, .dx = in, .winner = x[4].data, .dy = x[3].data);
    return finish(x, err);
}

Test(cuda_kernels, elements_of_any_type_and_place)
{
    expect_the_reference("unaligned", 103, 0, unaligned);
    expect_the_reference("gates of bf16", 1024, 0, gates_bf16);
    expect_the_reference("images of bf16", 5000, 0, images_bf16);
}

/* --- Losses ----------------------------------------------------------------------------------- */

/* Rows of many columns, of which some logits are -infinity: 0 log 0 counts as 0. */
CASE(large_vocabulary)
{
    const size_t rows = 3, columns = x->count / rows;
    (void)sum;
    make_tokens(x, (int32_t)columns);
    exo_vec_fill(exo_array_part(x[1], 7, 2), -INFINITY);
    exo_vec_fill(exo_array_part(x[1], columns, 1), -INFINITY); /* the first of a row */
    exo_vec_scale(x[1], 9);
    RUN(log_probs, .rows = rows, .columns = columns, .y = x[3].data, .log_sum = x[2].data,
        .x = x[1].data, .targets = x[4].data, .scale = 1.25f);
    RUN(log_probs_backward, .rows = rows, .columns = columns, .dx = x[0].data, .x = x[1].data,
        .log_sum = x[2].data, .dy = x[3].data, .targets = x[4].data, .scale = 1.25f);
    RUN(entropy, .rows = rows, .columns = columns, .y = (float *)x[3].data + 8,
        .log_sum = (float *)x[2].data + 8, .x = x[1].data, .scale = 0.75f);
    RUN(cross_entropy, .rows = rows, .columns = columns, .counted = rows, .y = x[2].data,
        .dx = x[0].data, .x = x[1].data, .targets = x[4].data);
    forget(x, 1);
    forget(x, 4);
    return finish(x, err);
}

/* Equal numbers and NaN: the first largest number is the place, and a NaN only in the first
 * column. */
CASE(hits_of_ties)
{
    static const float odd[3][4] = {{1, 3, 3, 2}, {NAN, 3, 2, 1}, {0, NAN, -INFINITY, 0}};
    static const int32_t targets[12] = {1, 0, 0, 2, 1, 1, 0, 0, 3, -1, 9, 1};
    double *out = x->device->scalar ? x->device->scalar : sum;
    for (size_t r = 0; r < 12; r++)
        exo_array_send(exo_array_part(x[1], r * 4, 4), odd[r % 3]);
    exo_array_send(exo_array_part(x[4], 0, 12), targets);
    RUN(hits, .rows = 12, .columns = 4, .dtype = EXO_F32, .out = out, .x = x[1].data,
        .targets = x[4].data);
    if (x->device->scalar)
        (void)x->device->device_class->copy(x->device, sum, out, sizeof *sum, EXO_COPY_FROM_DEVICE,
                                            err);
    forget(x, 1);
    forget(x, 4);
    return finish(x, err);
}

/* Sums of many tiles, without a mask and with nothing to divide by. */
CASE(sums_in_order)
{
    const int32_t offsets[3] = {3, 2500, 2501};
    (void)sum;
    exo_array_send(exo_array_part(x[4], 0, 3), offsets);
    RUN(sequence_sum, .count = 2, .y = x[0].data, .x = x[1].data, .offsets = x[4].data);
    RUN(masked_mean, .count = x->count, .y = x[2].data, .factor = (float *)x[2].data + 1,
        .x = x[1].data, .mask = x[3].data, .sum = true);
    exo_vec_fill(x[3], 0); /* a mask of zeros */
    RUN(masked_mean, .count = x->count, .y = (float *)x[2].data + 2,
        .factor = (float *)x[2].data + 3, .x = x[1].data, .mask = x[3].data);
    return finish(x, err);
}

Test(cuda_kernels, losses_of_large_rows_and_odd_numbers)
{
    expect_the_reference("a large vocabulary", 9000, 2e-5, large_vocabulary);
    expect_the_reference("hits of ties", 100, 1e-12, hits_of_ties);
    expect_the_reference("sums in order", 3000, 0, sums_in_order);
}

/* --- Rows ------------------------------------------------------------------------------------- */

/* Few words in many rows: a word's rows lie in several tiles, and are added in their order. */
CASE(few_words)
{
    const size_t rows = x->count / 3;
    (void)sum;
    make_tokens(x, 5);
    RUN(embedding_backward, .rows = rows, .width = 3, .gradient = x[0].data, .dy = x[1].data,
        .tokens = x[4].data);
    return finish(x, err);
}

/* Rows that are wider than the shared memory of backward's sums; dy in bf16. */
CASE(wide_rows)
{
    const exo_row_norm_shape shape = {.rows = 1, .width = x->count / 2};
    const size_t bytes = x->device->device_class->scratch(x->device, EXO_SHAPE_ROW_NORM, &shape,
                                                          EXO_SCRATCH_BACKWARD);
    exo_array scratch = {0};
    float *moments = x[4].data;
    exo_status st = exo_array_init(&scratch, x->device, EXO_U8, bytes, err);
    (void)sum;
    void *dy = as_bf16(x, 0, 2);
    if (st != EXO_OK)
        return st;
    RUN(row_norm, .shape = shape, .centered = true, .eps = 1e-5f, .dtype = EXO_F32, .y = x[0].data,
        .mean = moments, .inverse = moments + 2, .x = x[1].data, .weight = x[3].data);
    RUN(row_norm_backward, .shape = shape, .centered = true, .eps = 1e-5f, .dtype = EXO_BF16,
        .dx = (float *)x[0].data + shape.width, .dweight = (float *)x[3].data + shape.width,
        .x = x[1].data, .weight = x[3].data, .mean = moments, .inverse = moments + 2, .dy = dy,
        .scratch = scratch.data);
    RUN(row_norm, .shape = shape, .eps = 1e-5f, .dtype = EXO_BF16, .y = x[2].data,
        .inverse = moments + 3, .x = x[1].data, .weight = x[3].data, .bias = x[3].data);
    exo_vec_cast(exo_array_part(x[1], 0, shape.width), (exo_array){.device = x->device,
                                                                   .data = x[2].data,
                                                                   .count = shape.width,
                                                                   .dtype = EXO_BF16});
    st = finish(x, err);
    exo_array_release(&scratch);
    return st;
}

Test(cuda_kernels, rows_that_are_many_or_wide)
{
    expect_the_reference("few words", 9000, 0, few_words);
    expect_the_reference("wide rows", 9000, 2e-4, wide_rows);
}

/* --- fp8 -------------------------------------------------------------------------------------- */

enum {
    FP8_NUMBERS = 2304 /* 48 x 48, of which some are drawn */
};

typedef struct fp8_case {
    exo_fp8 format;
    int behind, bias; /* bits of mantissa; of the exponent */
    unsigned most;    /* the code of the largest number */
    uint8_t infinite; /* the code of an infinity */
    float largest, least;
} fp8_case;

static const fp8_case fp8_cases[] = {
    {EXO_E4M3, 3, 7, 0x7E, 0x7F, 448.0f, 1.0f / 512},
    {EXO_E5M2, 2, 15, 0x7B, 0x7C, 57344.0f, 1.0f / 65536},
};

/* The number of a code of no sign: mantissa times a power of two. */
static float
fp8_number(const fp8_case *k, unsigned code)
{
    const int exponent = (int)(code >> k->behind), hidden = exponent > 0 ? 1 << k->behind : 0;
    const int mantissa = (int)code % (1 << k->behind) + hidden;
    return ldexpf((float)mantissa, (exponent > 0 ? exponent : 1) - k->bias - k->behind);
}

static void
add_number(float *x, uint8_t *codes, size_t *count, float number, uint8_t code)
{
    x[*count] = number;
    codes[(*count)++] = code;
    x[*count] = -number;
    codes[(*count)++] = code | 0x80;
}

/* All numbers of a format, those halfway to the next one, which go to the even code, and the numbers
 * beside these. Returns how many. */
static size_t
fp8_numbers(const fp8_case *k, float x[FP8_NUMBERS], uint8_t codes[FP8_NUMBERS])
{
    size_t n = 0;
    for (unsigned code = 0; code < k->most; code++) {
        const float here = fp8_number(k, code), next = fp8_number(k, code + 1);
        const float half = (here + next) / 2;
        const uint8_t c = (uint8_t)code;
        add_number(x, codes, &n, here, c);
        add_number(x, codes, &n, nextafterf(half, 0), c);
        add_number(x, codes, &n, half, code % 2 ? c + 1 : c);
        add_number(x, codes, &n, nextafterf(half, INFINITY), c + 1);
    }
    add_number(x, codes, &n, k->largest, (uint8_t)k->most);
    add_number(x, codes, &n, 1e30f, (uint8_t)k->most);
    add_number(x, codes, &n, INFINITY, k->infinite);
    add_number(x, codes, &n, k->least / 2, 0); /* a tie with zero, which is even */
    add_number(x, codes, &n, 1e-45f, 0);
    x[n] = NAN;
    codes[n++] = 0x7F;
    return n;
}

/* Writes numbers as fp8 with a given scale, or, if it is 0, with their own, which is returned. */
static float
to_fp8(exo_device *device, exo_fp8 format, const float *x, size_t count, float scale,
       uint8_t *codes, uint8_t *transposed)
{
    const size_t side = 48;
    exo_array a[4];
    exo_err err = {0};
    cr_assert(count == side * side);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(exo_array_init(&a[i], device, i == 0 || i == 3 ? EXO_F32 : EXO_U8,
                                    i == 3 ? 1 : count, &err),
                     EXO_OK);
    exo_array_send(a[0], x);
    exo_array_send(a[3], &scale);
    exo_device_run(device, to_fp8, .rows = side, .columns = side, .dtype = EXO_F32,
                   .format = format, .scaled = scale > 0, .x = a[0].data, .codes = a[1].data,
                   .transposed = a[2].data, .scale = a[3].data);
    cr_assert_eq(exo_array_read(a[1], codes, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_array_read(a[2], transposed, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_array_read(a[3], &scale, &err), EXO_OK, "%s", err.text);
    for (int i = 0; i < 4; i++)
        exo_array_release(&a[i]);
    return scale;
}

static void
expect_codes(exo_device *device, const fp8_case *k)
{
    static float x[FP8_NUMBERS];
    static uint8_t want[FP8_NUMBERS], got[FP8_NUMBERS], turned[FP8_NUMBERS];
    const char *name = exo_device_name(device);
    memset(x, 0, sizeof x);
    memset(want, 0, sizeof want);
    const size_t count = fp8_numbers(k, x, want);
    cr_assert(count < FP8_NUMBERS && fp8_number(k, k->most) == k->largest &&
              fp8_number(k, 1) == k->least);
    (void)to_fp8(device, k->format, x, FP8_NUMBERS, 1, got, turned);
    for (size_t i = 0; i < FP8_NUMBERS; i++) {
        cr_expect_eq(got[i], want[i], "%s: %g is %02x, not %02x", name, (double)x[i], got[i],
                     want[i]);
        cr_expect_eq(turned[i % 48 * 48 + i / 48], got[i]);
    }
    for (size_t i = 0; i < count; i++) /* a power of two changes no rounding */
        x[i] = ldexpf(x[i], 9);
    (void)to_fp8(device, k->format, x, FP8_NUMBERS, 512, turned, got);
    cr_expect_arr_eq(turned, want, count - 7, "%s", name); /* but those that it makes overflow */
}

static void
expect_scales(exo_device *device, const fp8_case *k)
{
    static float x[FP8_NUMBERS];
    static uint8_t codes[FP8_NUMBERS], turned[FP8_NUMBERS];
    const float cases[][2] = {
        {0, 1},
        {k->largest, 1},
        {nextafterf(k->largest, INFINITY), 2},
        {k->largest / 2, 0.5f},
        {nextafterf(k->largest / 2, INFINITY), 1},
        {1e-45f, 0x1p-60f},
        {k->largest * 0x1p-60f, 0x1p-60f},
        {k->largest * 0x1p-70f, 0x1p-60f},
        {0x1p127f, 0x1p127f / (k->format == EXO_E4M3 ? 0x1p8f : 0x1p15f)},
        {INFINITY, 1},
        {NAN, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const float most = cases[i][0];
        for (size_t e = 0; e < FP8_NUMBERS; e++)
            x[e] = isfinite(most) ? most / 8 : 3;
        x[(i * 977 + 41) % FP8_NUMBERS] = -most;
        const float scale = to_fp8(device, k->format, x, FP8_NUMBERS, 0, codes, turned);
        cr_expect_eq(scale, cases[i][1], "%s: the scale of %g is %g, not %g",
                     exo_device_name(device), (double)most, (double)scale, (double)cases[i][1]);
    }
}

/* Against tables from the formats' definitions, on each device. */
Test(cuda_kernels, fp8_rounds_to_the_nearest_code)
{
    exo_device *gpu;
    exo_err err = {0};
    cr_assert_eq(exo_cuda_open(&gpu, 0, &err), EXO_OK, "%s", err.text);
    exo_device *const devices[] = {gpu, exo_device_ref(), exo_device_cpu()};
    for (size_t d = 0; d < 3; d++)
        for (size_t f = 0; f < 2; f++) {
            expect_codes(devices[d], &fp8_cases[f]);
            expect_scales(devices[d], &fp8_cases[f]);
        }
    exo_cuda_close(gpu);
    cr_expect_eq(cuda_emulator_memory(), 0);
}

/* --- Compression ------------------------------------------------------------------------------ */

CASE(largest_of_a_large_chunk)
{
    const size_t size = 4096, k = 300;
    (void)sum;
    exo_vec_fill(exo_array_part(x[1], 17, 2), NAN);
    exo_vec_fill(exo_array_part(x[1], 4000, 2), INFINITY);
    exo_vec_fill(exo_array_part(x[1], 100, 900), 1.5f); /* more equal ones than there is room */
    RUN(top_k, .chunks = 2, .size = size, .k = k, .values = x[0].data, .index = x[4].data,
        .x = x[1].data);
    forget(x, 1);
    return finish(x, err);
}

/* Places that come twice, that fall, and that are outside the chunk. */
CASE(mean_of_odd_places)
{
    static const uint16_t places[2][8] = {{0, 3, 3, 9, 2, 3, 50, 1}, {1, 2, 3, 4, 5, 6, 7, 8}};
    (void)sum;
    for (size_t s = 0; s < 2; s++)
        exo_array_send((exo_array){.device = x->device,
                                   .data = (char *)x[1].data + 32 + s * 48,
                                   .count = 16,
                                   .dtype = EXO_U8},
                       places[s]);
    RUN(sent_mean, .chunks = 1, .size = 10, .k = 8, .senders = 2, .step = 48, .y = x[0].data,
        .values = x[1].data, .index = (const uint16_t *)x[1].data + 16);
    return finish(x, err);
}

/* A vector of any kind of chunk, and a matrix of two kinds of sides. */
CASE(dct_of_all_sides)
{
    static const exo_dct shapes[] = {{.rows = 32, .cols = 64, .chunk_rows = 32, .chunk_cols = 32},
                                     {.rows = 64, .cols = 63, .chunk_rows = 64, .chunk_cols = 63},
                                     {.rows = 64, .cols = 3, .chunk_rows = 32, .chunk_cols = 3}};
    (void)sum;
    for (size_t i = 0; i < 3; i++) {
        const size_t count = shapes[i].rows * shapes[i].cols;
        exo_vec_dct(exo_array_part(x[i % 2 ? 0 : 2], 0, count), exo_array_part(x[1], 0, count),
                    &shapes[i]);
    }
    return finish(x, err);
}

Test(cuda_kernels, chunks_of_any_size_and_messages_of_any_kind)
{
    expect_the_reference("the largest of a large chunk", 8192, 0, largest_of_a_large_chunk);
    expect_the_reference("the mean of odd places", 100, 0, mean_of_odd_places);
    expect_the_reference("the DCT of all sides", 4096, 2e-6, dct_of_all_sides);
}

/* Vectors that depend on each other become orthonormal, too. */
Test(cuda_kernels, dependent_vectors_become_orthonormal)
{
    enum {
        LENGTH = 70,
        VECTORS = 4
    };
    exo_device *gpu;
    exo_array x, scratch;
    float host[VECTORS][LENGTH];
    cr_assert_eq(exo_cuda_open(&gpu, 0, NULL), EXO_OK);
    for (int kind = 0; kind < 3; kind++) {
        for (size_t v = 0; v < VECTORS; v++)
            for (size_t i = 0; i < LENGTH; i++)
                host[v][i] = kind == 0 ? 0 : kind == 1 ? (float)i - 9 : (float)(v % 2 * i);
        cr_assert_eq(exo_array_import(&x, gpu, EXO_F32, host, VECTORS * LENGTH, NULL), EXO_OK);
        cr_assert_eq(exo_array_init(&scratch, gpu, EXO_U8,
                                    ((VECTORS + 1) * LENGTH + VECTORS) * sizeof(double), NULL),
                     EXO_OK);
        exo_device_run(gpu, orthonormalize, .vectors = VECTORS, .length = LENGTH,
                       .vector_step = LENGTH, .element_step = 1, .x = x.data,
                       .scratch = scratch.data);
        cr_assert_eq(exo_array_read(x, host, NULL), EXO_OK);
        for (size_t a = 0; a < VECTORS; a++)
            for (size_t b = 0; b < VECTORS; b++) {
                double product = 0;
                for (size_t i = 0; i < LENGTH; i++)
                    product += (double)host[a][i] * (double)host[b][i];
                cr_expect_float_eq(product, a == b ? 1 : 0, 1e-6, "%d: %zu, %zu", kind, a, b);
            }
        exo_array_release(&x);
        exo_array_release(&scratch);
    }
    exo_cuda_close(gpu);
}
