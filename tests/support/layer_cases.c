/* Cases of the kernels of layers: see kernel_cases.h. Numbers are those of the arrays as they lie
 * there; shapes follow from their length. */
#include "support/kernel_cases.h"

#include <string.h>

#include <exogym/memory.h>

#include "nn/device/device_impl.h"

#define CASE(NAME) static exo_status NAME(const exo_array *x, double *sum, exo_err *err)

/* Asks for a kernel; errors stick in the device, or are the result. */
#define ASK(kernel_name, ...)                                                                      \
    x->device->device_class->kernels->kernel_name(                                                 \
        x->device, &(const exo_##kernel_name##_args){__VA_ARGS__}, err)

enum {
    WIDTH = 8,
    OUT = 4,
    MAX_ROWS = 3000 /* of what the reference takes long for */
};

static size_t
rows_of(size_t count, size_t width)
{
    return count / width < MAX_ROWS ? count / width : MAX_ROWS;
}

/* Scratch for a kernel, or no array. */
static exo_status
take_scratch(exo_array *out, exo_device *device, exo_shape_kind kind, const void *shape,
             exo_scratch_use use, exo_err *err)
{
    size_t bytes = device->device_class->scratch(device, kind, shape, use);
    *out = (exo_array){0};
    return bytes ? exo_array_init(out, device, EXO_U8, bytes, err) : EXO_OK;
}

static exo_status
wait_for(exo_device *device, exo_status st, exo_err *err)
{
    return st == EXO_OK ? exo_device_synchronize(device, err) : st;
}

/* --- Embeddings: a table of x's own rows ------------------------------------------------------ */

/* Tokens of the rows of a table of `rows`: x[4]'s first ones, which are indices of elements, made
 * smaller on the host. */
static exo_status
tokens_below(const exo_array *x, size_t count, size_t below, exo_array *out, exo_err *err)
{
    int32_t *numbers = exo_calloc(count + 1, sizeof *numbers);
    if (!numbers)
        return exo_fail(err, EXO_NOMEM, "no memory for tokens");
    exo_status st = exo_array_read(exo_array_part(x[4], 0, count), numbers, err);
    for (size_t i = 0; i < count; i++)
        numbers[i] = numbers[i] % 5 == 4 ? -1 : numbers[i] % (int32_t)below;
    if (st == EXO_OK)
        st = exo_array_init(out, x->device, EXO_I32, count, err);
    if (st == EXO_OK)
        st = exo_array_write(*out, numbers, err);
    exo_free(numbers);
    return st;
}

/* None of them negative. */
static exo_status
tokens_of(const exo_array *x, size_t count, size_t below, exo_array *out, exo_err *err)
{
    exo_status st = tokens_below(x, count, below, out, err);
    int32_t *numbers = exo_calloc(count + 1, sizeof *numbers);
    if (!numbers)
        return exo_fail(err, EXO_NOMEM, "no memory for tokens");
    if (st == EXO_OK)
        st = exo_array_read(*out, numbers, err);
    for (size_t i = 0; i < count; i++)
        numbers[i] = numbers[i] < 0 ? 0 : numbers[i];
    if (st == EXO_OK)
        st = exo_array_write(*out, numbers, err);
    exo_free(numbers);
    return st;
}

CASE(embedding)
{
    size_t rows = x->count / WIDTH;
    const int32_t none = -1; /* a row without a token */
    exo_array tokens = {0};
    (void)sum;
    exo_status st = rows ? tokens_of(x, rows, rows, &tokens, err) : EXO_OK;
    if (st == EXO_OK && rows)
        st = exo_array_write(exo_array_part(tokens, rows / 2, 1), &none, err);
    if (st == EXO_OK && rows)
        st = ASK(embedding, .rows = rows, .width = WIDTH, .y = x[0].data, .table = x[1].data,
                 .tokens = tokens.data);
    if (st == EXO_OK && rows)
        st = ASK(embedding_backward, .rows = rows, .width = WIDTH, .gradient = x[2].data,
                 .dy = x[1].data, .tokens = tokens.data);
    st = wait_for(x->device, st, err);
    exo_array_release(&tokens);
    return st;
}

/* An empty sequence between two others, and rows of none before and after. The sums are the first
 * elements of x[0]. */
CASE(sequence_sum)
{
    enum {
        SEQUENCES = 3
    };
    const size_t count = x->count;
    const int32_t numbers[SEQUENCES + 1] = {(int32_t)(count / 7), (int32_t)(count / 2),
                                            (int32_t)(count / 2), (int32_t)(count - count / 9)};
    exo_array offsets = {0};
    (void)sum;
    if (count < SEQUENCES)
        return EXO_OK;
    exo_status st = exo_array_init(&offsets, x->device, EXO_I32, SEQUENCES + 1, err);
    if (st == EXO_OK)
        st = exo_array_write(offsets, numbers, err);
    if (st == EXO_OK)
        st = ASK(sequence_sum, .count = SEQUENCES, .y = x[0].data, .x = x[1].data,
                 .mask = x[2].data, .offsets = offsets.data);
    if (st == EXO_OK)
        st = ASK(sequence_sum_backward, .count = SEQUENCES, .rows = count, .dx = x[1].data,
                 .mask = x[2].data, .dy = x[0].data, .offsets = offsets.data);
    if (st == EXO_OK)
        st = ASK(sequence_sum_backward, .count = SEQUENCES, .rows = count, .dx = x[3].data,
                 .dy = x[0].data, .offsets = offsets.data, .add = true);
    st = wait_for(x->device, st, err);
    exo_array_release(&offsets);
    return st;
}

CASE(positions)
{
    size_t rows = x->count / WIDTH / 4 * 4;
    exo_status st = EXO_OK;
    (void)sum;
    if (rows >= 8) {
        st = ASK(positions, .rows = rows, .width = WIDTH, .sequence = 4, .first = 2, .y = x[0].data,
                 .x = x[1].data, .table = x[3].data);
        if (st == EXO_OK)
            st = ASK(positions_backward, .rows = rows, .width = WIDTH, .sequence = 4, .first = 2,
                     .gradient = x[2].data, .dy = x[1].data);
    }
    return wait_for(x->device, st, err);
}

/* --- Norms ------------------------------------------------------------------------------------ */

static exo_status
row_norm_of(const exo_array *x, bool centered, bool add, exo_err *err)
{
    const exo_row_norm_shape shape = {.rows = rows_of(x->count, 2 * WIDTH), .width = 2 * WIDTH};
    exo_array scratch = {0}, mean = {0}, inverse = {0}, sums = {0};
    float *weight = x[3].data, *bias = centered ? weight + 2 * WIDTH : NULL;
    if (shape.rows < 4)
        return EXO_OK;
    exo_status st = exo_array_init(&mean, x->device, EXO_F32, shape.rows, err);
    if (st == EXO_OK)
        st = exo_array_init(&inverse, x->device, EXO_F32, shape.rows, err);
    if (st == EXO_OK)
        st = exo_array_init(&sums, x->device, EXO_F32, (size_t)4 * WIDTH, err);
    if (st == EXO_OK)
        st = take_scratch(&scratch, x->device, EXO_SHAPE_ROW_NORM, &shape, EXO_SCRATCH_BACKWARD,
                          err);
    float *dweight = sums.data, *dbias = centered && dweight ? dweight + 2 * WIDTH : NULL;
    if (st == EXO_OK)
        st = ASK(row_norm, .shape = shape, .centered = centered, .eps = 1e-5f, .dtype = EXO_F32,
                 .y = x[0].data, .mean = mean.data, .inverse = inverse.data, .x = x[1].data,
                 .weight = weight, .bias = bias);
    if (st == EXO_OK)
        st = ASK(row_norm_backward, .shape = shape, .centered = centered, .add = add, .eps = 1e-5f,
                 .dtype = EXO_F32, .dx = x[2].data, .dweight = dweight, .dbias = dbias,
                 .x = x[1].data, .weight = weight, .mean = mean.data, .inverse = inverse.data,
                 .dy = x[0].data, .scratch = scratch.data);
    if (st == EXO_OK) /* sums of many rows stay small */
        st = ASK(scale, .count = (size_t)4 * WIDTH, .y = x[3].data, .a = 0.01f, .x = dweight);
    st = wait_for(x->device, st, err);
    exo_array_release(&scratch);
    exo_array_release(&mean);
    exo_array_release(&inverse);
    exo_array_release(&sums);
    return st;
}

CASE(layer_norm)
{
    (void)sum;
    return row_norm_of(x, true, false, err);
}

CASE(rms_norm)
{
    (void)sum;
    return row_norm_of(x, false, true, err);
}

/* Parameters and statistics are of x[3], which is not negative. */
static exo_status
batch_norm_of(const exo_array *x, bool train, bool relu, exo_err *err)
{
    const exo_batch_norm_shape shape = {.samples = rows_of(x->count, 2 * WIDTH), .channels = WIDTH};
    exo_array scratch = {0}, kept = {0};
    float *numbers = x[3].data;
    if (shape.samples < 3)
        return EXO_OK;
    exo_status st = exo_array_init(&kept, x->device, EXO_F32, (size_t)4 * WIDTH, err);
    if (st == EXO_OK)
        st = take_scratch(&scratch, x->device, EXO_SHAPE_BATCH_NORM, &shape, EXO_SCRATCH_FORWARD,
                          err);
    if (st == EXO_OK)
        st = ASK(batch_norm, .shape = shape, .rows = 2, .dtype = EXO_F32, .relu = relu,
                 .train = train, .move = train, .eps = 1e-5f, .momentum = 0.1f, .y = x[0].data,
                 .kept = kept.data, .running_mean = numbers, .running_var = numbers + WIDTH,
                 .x = x[1].data, .weight = numbers + 2 * WIDTH, .bias = numbers + 3 * WIDTH,
                 .scratch = scratch.data);
    if (st == EXO_OK)
        st = ASK(batch_norm_backward, .shape = shape, .rows = 2, .dtype = EXO_F32, .relu = relu,
                 .train = train, .add = train, .add_weight = true, .dx = x[2].data,
                 .dweight = numbers, .dbias = numbers + WIDTH, .kept = kept.data, .x = x[1].data,
                 .dy = x[0].data, .scratch = scratch.data);
    st = wait_for(x->device, st, err);
    exo_array_release(&scratch);
    exo_array_release(&kept);
    return st;
}

CASE(batch_norm_train)
{
    (void)sum;
    return batch_norm_of(x, true, false, err);
}

CASE(batch_norm_eval)
{
    (void)sum;
    return batch_norm_of(x, false, true, err);
}

/* --- fp8: matrices of 16 columns -------------------------------------------------------------- */

static exo_status
to_fp8_of(const exo_array *x, exo_fp8 format, exo_err *err)
{
    const size_t side = EXO_FP8_SIDE, rows = rows_of(x->count / side, side) * side;
    uint8_t *codes = x[0].data;
    float *scales = x[2].data;
    if (rows == 0)
        return EXO_OK;
    exo_status st =
        ASK(to_fp8, .rows = rows, .columns = side, .dtype = EXO_F32, .format = format,
            .x = x[1].data, .codes = codes, .transposed = codes + rows * side, .scale = scales);
    for (int turn = 0; st == EXO_OK && turn < 2; turn++) /* the scale alone, then codes with it */
        st = ASK(to_fp8, .rows = side, .columns = rows, .dtype = EXO_BF16, .format = format,
                 .scaled = turn > 0, .x = x[1].data,
                 .transposed = turn > 0 ? codes + 2 * rows * side : NULL, .scale = scales + 1);
    return wait_for(x->device, st, err);
}

CASE(to_e4m3)
{
    (void)sum;
    return to_fp8_of(x, EXO_E4M3, err);
}

CASE(to_e5m2)
{
    (void)sum;
    return to_fp8_of(x, EXO_E5M2, err);
}

/* --- Linear layers ---------------------------------------------------------------------------- */

static exo_status
linear_of(const exo_array *x, exo_activation activation, bool residual, bool invariant,
          exo_err *err)
{
    exo_array scratch = {0};
    exo_linear_shape shape;
    exo_plan *plan = NULL;
    memset(&shape, 0, sizeof shape);
    shape = (exo_linear_shape){.rows = rows_of(x->count, 2 * WIDTH),
                               .in = WIDTH,
                               .out = OUT,
                               .dtype = EXO_F32,
                               .out_dtype = EXO_F32,
                               .residual = residual,
                               .with_bias = 1,
                               .backward = 1,
                               .input_grad = 1,
                               .invariant = invariant};
    size_t outputs = shape.rows * OUT, inputs = shape.rows * WIDTH;
    const float *weight = x[3].data;
    float *y = x[0].data, *dx = x[2].data;
    if (shape.rows < 4)
        return EXO_OK;
    exo_status st = exo_plan_new(&plan, x->device, EXO_SHAPE_LINEAR, &shape, err);
    if (st == EXO_OK)
        st = take_scratch(&scratch, x->device, EXO_SHAPE_LINEAR, &shape, EXO_SCRATCH_FORWARD, err);
    if (st == EXO_OK)
        st = ASK(linear, .plan = plan, .activation = activation, .y = y,
                 .before = activation != EXO_LINEAR ? y + outputs : NULL, .x = x[1].data,
                 .weight = weight, .bias = weight + (size_t)WIDTH * OUT,
                 .residual = residual ? dx : NULL, .scratch = scratch.data);
    if (st == EXO_OK && activation != EXO_LINEAR)
        st = ASK(activation_backward, .count = outputs, .activation = activation, .dtype = EXO_F32,
                 .dx = y, .x = y + outputs, .dy = y);
    if (st == EXO_OK)
        st = ASK(linear_grad_x, .plan = plan, .activation = activation,
                 .before = activation != EXO_LINEAR ? dx + inputs : NULL, .dx = dx, .dy = y,
                 .weight = weight);
    if (st == EXO_OK)
        st = ASK(column_sums, .rows = shape.rows, .columns = OUT, .dtype = EXO_F32, .y = x[2].data,
                 .x = y, .add = residual);
    if (st == EXO_OK)
        st = ASK(scale, .count = outputs, .y = y, .a = 0.01f,
                 .x = y); /* sums of many rows stay small */
    if (st == EXO_OK)
        st = ASK(linear_grad_w, .plan = plan, .dw = x[3].data,
                 .db = residual ? NULL : (float *)x[1].data + inputs, .dy = y, .x = x[1].data);
    st = wait_for(x->device, st, err);
    exo_plan_free(&plan);
    exo_array_release(&scratch);
    return st;
}

CASE(linear)
{
    (void)sum;
    return linear_of(x, EXO_LINEAR, false, false, err);
}

CASE(linear_residual)
{
    (void)sum;
    return linear_of(x, EXO_LINEAR, true, false, err);
}

CASE(linear_gelu)
{
    (void)sum;
    return linear_of(x, EXO_GELU, false, false, err);
}

CASE(linear_invariant)
{
    (void)sum;
    return linear_of(x, EXO_SILU, false, true, err);
}

CASE(linear_invariant_residual)
{
    (void)sum;
    return linear_of(x, EXO_LINEAR, true, true, err);
}

/* A weight of WIDTH columns in x[0], A of rank 3 in x[1], and B in x[2]. */
static exo_status
lora_merge_of(const exo_array *x, bool in_place, exo_err *err)
{
    enum {
        RANK = 3
    };
    size_t rows = x->count / WIDTH;
    exo_status st = EXO_OK;
    if (rows >= RANK)
        st = ASK(lora_merge, .rows = rows, .columns = WIDTH, .rank = RANK, .scale = 0.37f,
                 .y = in_place ? x[0].data : x[3].data, .x = x[0].data, .a = x[1].data,
                 .b = x[2].data);
    return wait_for(x->device, st, err);
}

CASE(lora_merge)
{
    (void)sum;
    return lora_merge_of(x, false, err);
}

CASE(lora_merge_in_place)
{
    (void)sum;
    return lora_merge_of(x, true, err);
}

/* --- Convolutions: samples of 4 x 5 pixels, 3 channels to 4, kernels of 3 x 2 ----------------- */

static exo_status
conv_of(const exo_array *x, size_t stride, size_t padding, exo_err *err)
{
    exo_conv_shape shape;
    exo_plan *plan = NULL;
    memset(&shape, 0, sizeof shape);
    shape = (exo_conv_shape){.in_channels = 3,
                             .height = 4,
                             .width = 5,
                             .out_channels = 4,
                             .kernel_height = 3,
                             .kernel_width = 2,
                             .stride = stride,
                             .padding = padding,
                             .dtype = EXO_F32,
                             .with_bias = 1,
                             .backward = 1,
                             .input_grad = 1};
    shape.out_height = (4 + 2 * padding - 3) / stride + 1;
    shape.out_width = (5 + 2 * padding - 2) / stride + 1;
    size_t image = 4 * 5 * 3, out_image = shape.out_height * shape.out_width * 4,
           weights = (size_t)4 * 3 * 3 * 2;
    shape.batch = x->count / (image > out_image ? image : out_image);
    shape.batch = shape.batch < 70 ? shape.batch : 70;
    const float *weight = x[3].data;
    float *y = x[0].data, *dw = x[3].data;
    if (shape.batch < 2)
        return EXO_OK;
    exo_status st = exo_plan_new(&plan, x->device, EXO_SHAPE_CONV, &shape, err);
    if (st == EXO_OK)
        st = ASK(conv, .plan = plan, .y = y, .x = x[1].data, .weight = weight,
                 .bias = weight + weights);
    if (st == EXO_OK && x->count >= 1000) {
        exo_array gradient = {0};
        st = exo_array_init(&gradient, x->device, EXO_F32, weights + 4, err);
        if (st == EXO_OK)
            st = ASK(conv_backward, .plan = plan, .dx = x[2].data, .dweight = gradient.data,
                     .dbias = (float *)gradient.data + weights, .x = x[1].data, .dy = y);
        if (st == EXO_OK)
            st = ASK(scale, .count = weights + 4, .y = dw, .a = 0.01f, .x = gradient.data);
        st = wait_for(x->device, st, err);
        exo_array_release(&gradient);
    }
    st = wait_for(x->device, st, err);
    exo_plan_free(&plan);
    return st;
}

CASE(conv)
{
    (void)sum;
    return conv_of(x, 1, 1, err);
}

CASE(conv_stride)
{
    (void)sum;
    return conv_of(x, 2, 0, err);
}

/* --- Attention: sequences of 6 tokens, 2 query heads and 1 of keys and values, of 4 elements -- */

static exo_status
attention_of(const exo_array *x, bool rotary, bool alibi, uint32_t dropped, bool invariant,
             exo_err *err)
{
    enum {
        TOKENS = 6,
        HEADS = 2,
        KV = 1,
        ELEMENTS = 4,
        ROW = (HEADS + 2 * KV) * ELEMENTS
    };
    exo_attention_shape shape;
    exo_plan *plan = NULL;
    exo_array lse = {0}, scratch[2] = {{0}, {0}};
    memset(&shape, 0, sizeof shape);
    shape.sequences = rows_of(x->count, (size_t)ROW * TOKENS) / 4;
    shape.tokens = TOKENS;
    shape.heads = HEADS;
    shape.kv_heads = KV;
    shape.width = ELEMENTS;
    shape.dtype = EXO_F32;
    shape.turned = rotary ? ELEMENTS : 0;
    shape.alibi = alibi;
    shape.dropout = dropped > 0;
    shape.invariant = invariant;
    shape.theta = rotary ? 10000 : 0;
    shape.scale = 0.5;
    const exo_attention_drop drop = {
        .dropped = dropped, .ordinal = 3, .node = 1, .seed = 7, .step = 5};
    if (shape.sequences == 0)
        return EXO_OK;
    exo_status st = exo_plan_new(&plan, x->device, EXO_SHAPE_ATTENTION, &shape, err);
    if (st == EXO_OK)
        st = exo_array_init(&lse, x->device, EXO_F32, shape.sequences * TOKENS * HEADS, err);
    for (int i = 0; st == EXO_OK && i < 2; i++)
        st = take_scratch(&scratch[i], x->device, EXO_SHAPE_ATTENTION, &shape,
                          i ? EXO_SCRATCH_BACKWARD : EXO_SCRATCH_FORWARD, err);
    if (st == EXO_OK)
        st = ASK(attention, .plan = plan, .drop = drop, .y = x[0].data, .lse = lse.data,
                 .x = x[1].data, .scratch = scratch[0].data);
    if (st == EXO_OK)
        st = ASK(attention_backward, .plan = plan, .drop = drop, .dx = x[2].data, .x = x[1].data,
                 .y = x[0].data, .dy = x[3].data, .lse = lse.data, .scratch = scratch[1].data,
                 .add = alibi);
    st = wait_for(x->device, st, err);
    exo_plan_free(&plan);
    exo_array_release(&lse);
    exo_array_release(&scratch[0]);
    exo_array_release(&scratch[1]);
    return st;
}

CASE(attention)
{
    (void)sum;
    return attention_of(x, false, false, 0, false, err);
}

CASE(attention_rotary)
{
    (void)sum;
    return attention_of(x, true, false, 0, false, err);
}

CASE(attention_alibi)
{
    (void)sum;
    return attention_of(x, false, true, 0, false, err);
}

CASE(attention_dropout)
{
    (void)sum;
    return attention_of(x, true, false, 9000, false, err);
}

CASE(attention_invariant)
{
    (void)sum;
    return attention_of(x, true, true, 0, true, err);
}

/* --- Attention to keys of two members of three ------------------------------------------------ */

/* One of the two: the first runs forward and backward of the member's own keys. */
static exo_status
ring_step(const exo_array *x, const exo_attention_shape *shape, exo_err *err)
{
    const bool own = shape->from == shape->rank;
    const size_t upper = x->count / 2; /* lse and dothers lie there */
    float *lse = (float *)x[2].data + upper, *dothers = own ? NULL : (float *)x[0].data + upper;
    const float *others = own ? NULL : (const float *)x[1].data + upper;
    exo_plan *plan = NULL;
    exo_array scratch[2] = {{0}, {0}};
    exo_status st = exo_plan_new(&plan, x->device, EXO_SHAPE_ATTENTION, shape, err);
    for (int i = 0; st == EXO_OK && i < 2; i++)
        st = take_scratch(&scratch[i], x->device, EXO_SHAPE_ATTENTION, shape,
                          i ? EXO_SCRATCH_BACKWARD : EXO_SCRATCH_FORWARD, err);
    if (st == EXO_OK)
        st = ASK(attention, .plan = plan, .y = x[0].data, .lse = lse, .x = x[1].data,
                 .scratch = scratch[0].data, .others = others);
    if (st == EXO_OK)
        st = ASK(attention_backward, .plan = plan, .dx = x[2].data, .x = x[1].data, .y = x[0].data,
                 .dy = x[3].data, .lse = lse, .scratch = scratch[1].data, .others = others,
                 .dothers = dothers);
    st = wait_for(x->device, st, err);
    exo_plan_free(&plan);
    exo_array_release(&scratch[0]);
    exo_array_release(&scratch[1]);
    return st;
}

static exo_status
ring_of(const exo_array *x, size_t from, size_t tokens, exo_err *err)
{
    enum {
        ELEMENTS = 4,
        ROW = 4 * ELEMENTS
    };
    exo_attention_shape shape;
    memset(&shape, 0, sizeof shape);
    shape.sequences = rows_of(x->count, ROW * tokens) / 4;
    shape.tokens = tokens;
    shape.heads = 2;
    shape.kv_heads = 1;
    shape.width = shape.turned = ELEMENTS;
    shape.dtype = EXO_F32;
    shape.theta = 10000;
    shape.scale = 0.5;
    shape.members = 3;
    shape.rank = shape.from = 1;
    if (shape.sequences == 0)
        return EXO_OK;
    exo_status st = ring_step(x, &shape, err);
    shape.from = from;
    return st == EXO_OK ? ring_step(x, &shape, err) : st;
}

CASE(ring_before)
{
    (void)sum;
    return ring_of(x, 0, 6, err);
}

CASE(ring_after)
{
    (void)sum;
    return ring_of(x, 2, 6, err);
}

/* Of more tokens than a tile of a GPU has. */
CASE(ring_before_tiles)
{
    (void)sum;
    return ring_of(x, 0, 74, err);
}

CASE(ring_after_tiles)
{
    (void)sum;
    return ring_of(x, 2, 74, err);
}

/* --- Losses over classes ---------------------------------------------------------------------- */

CASE(cross_entropy)
{
    size_t rows = rows_of(x->count, WIDTH), counted = 0;
    exo_array targets = {0};
    (void)sum;
    if (rows < 2)
        return EXO_OK;
    exo_status st = tokens_below(x, rows, WIDTH, &targets, err);
    counted = rows - rows / 5;
    if (st == EXO_OK)
        st = ASK(cross_entropy, .rows = rows, .columns = WIDTH, .counted = counted, .y = x[2].data,
                 .dx = x[0].data, .x = x[1].data, .targets = targets.data);
    if (st == EXO_OK)
        st = ASK(scale_by, .count = rows * WIDTH, .y = x[3].data, .x = x[0].data,
                 .factor = x[2].data, .add = true);
    st = wait_for(x->device, st, err);
    exo_array_release(&targets);
    return st;
}

CASE(scale_by)
{
    exo_status st = EXO_OK;
    (void)sum;
    if (x->count > 0)
        st = ASK(scale_by, .count = x->count, .y = x[0].data, .x = x[1].data, .factor = x[3].data);
    return wait_for(x->device, st, err);
}

CASE(hits)
{
    size_t rows = x->count / WIDTH;
    exo_array targets = {0};
    exo_status st = rows ? tokens_below(x, rows, WIDTH, &targets, err) : EXO_OK;
    double *out = x->device->scalar ? x->device->scalar : sum;
    if (st == EXO_OK && rows)
        st = ASK(hits, .rows = rows, .columns = WIDTH, .dtype = EXO_F32, .out = out, .x = x[1].data,
                 .targets = targets.data);
    if (st == EXO_OK && rows && x->device->scalar)
        st = x->device->device_class->copy(x->device, sum, out, sizeof *sum, EXO_COPY_FROM_DEVICE,
                                           err);
    st = wait_for(x->device, st, err);
    exo_array_release(&targets);
    return st;
}

CASE(picked)
{
    size_t rows = rows_of(x->count, 1);
    exo_status st = EXO_OK;
    (void)sum;
    if (rows < 2)
        return EXO_OK;
    st = ASK(row_factors, .rows = rows, .stride = 1, .y = x[0].data, .a = -0.5f, .divisor = 3,
             .dy = x[1].data, .targets = x[4].data);
    if (st == EXO_OK)
        st = ASK(picked_log_probs, .rows = rows, .y = x[1].data, .log_sum = x[3].data,
                 .targets = x[4].data);
    if (st == EXO_OK)
        st = ASK(picked_loss, .rows = rows, .counted = rows, .y = x[2].data, .log_sum = x[3].data,
                 .picked = x[1].data, .targets = x[4].data);
    return wait_for(x->device, st, err);
}

/* --- The head of a vocabulary of 70 words ----------------------------------------------------- */

enum {
    VOCABULARY = 70
};

/* x[1]: rows of 8; x[3]: the words, and from half of it on factors. */
static exo_status
head_of(const exo_array *x, bool wide, bool entropy, bool invariant, exo_err *err)
{
    exo_head_shape shape;
    exo_plan *plan = NULL;
    exo_array scratch[2] = {{0}, {0}}, targets = {0}, gradient = {0};
    size_t rows = x->count / WIDTH / 2 < 200 ? x->count / WIDTH / 2 : 200;
    float *out = x[0].data;
    if (x->count < 2000)
        return EXO_OK;
    memset(&shape, 0, sizeof shape);
    shape = (exo_head_shape){.rows = rows,
                             .width = WIDTH,
                             .vocabulary = VOCABULARY,
                             .dtype = EXO_F32,
                             .gradients = 1,
                             .wide = wide,
                             .entropy = entropy,
                             .invariant = invariant};
    exo_status st = exo_plan_new(&plan, x->device, EXO_SHAPE_HEAD, &shape, err);
    if (st == EXO_OK)
        st = tokens_of(x, rows, VOCABULARY, &targets, err);
    if (st == EXO_OK)
        st = exo_array_init(&gradient, x->device, EXO_F32, (size_t)VOCABULARY * WIDTH, err);
    for (int i = 0; st == EXO_OK && i < 2; i++)
        st = take_scratch(&scratch[i], x->device, EXO_SHAPE_HEAD, &shape,
                          i ? EXO_SCRATCH_BACKWARD : EXO_SCRATCH_FORWARD, err);
    exo_head_args k = {.plan = plan,
                       .x = x[1].data,
                       .weight = x[3].data,
                       .targets = entropy ? NULL : targets.data,
                       .scale = 0.75f,
                       .log_sum = out,
                       .picked = entropy ? NULL : out + rows,
                       .entropy = entropy ? out + rows : NULL,
                       .factor = wide ? (float *)x[3].data + x->count / 2 : NULL,
                       .dx = wide ? x[2].data : NULL,
                       .dweight = wide ? gradient.data : NULL,
                       .scratch = scratch[0].data};
    if (st == EXO_OK)
        st = x->device->device_class->kernels->head(x->device, &k, err);
    k.factor = (float *)x[3].data + x->count / 2;
    k.dx = x[2].data;
    k.dweight = gradient.data;
    k.scratch = scratch[1].data;
    if (st == EXO_OK && !wide)
        st = x->device->device_class->kernels->head_backward(x->device, &k, err);
    if (st == EXO_OK)
        st = ASK(scale, .count = (size_t)VOCABULARY * WIDTH, .y = x[3].data, .a = 0.1f,
                 .x = gradient.data);
    st = wait_for(x->device, st, err);
    exo_plan_free(&plan);
    exo_array_release(&targets);
    exo_array_release(&gradient);
    exo_array_release(&scratch[0]);
    exo_array_release(&scratch[1]);
    return st;
}

CASE(head)
{
    (void)sum;
    return head_of(x, false, false, false, err);
}

CASE(head_wide)
{
    (void)sum;
    return head_of(x, true, false, false, err);
}

CASE(head_entropy)
{
    (void)sum;
    return head_of(x, false, true, false, err);
}

CASE(head_invariant)
{
    (void)sum;
    return head_of(x, false, false, true, err);
}

/* A case runs several kernels where one makes what the next one reads: it is listed once for
 * each. */
const kernel_case layer_cases[] = {
    {"embedding", "embedding, forward and backward", 0, 5, embedding},
    {"embedding_backward", "embedding, forward and backward", 0, 5, embedding},
    {"sequence_sum", "sequence_sum, forward and backward", 0, 5, sequence_sum},
    {"sequence_sum_backward", "sequence_sum, forward and backward", 0, 5, sequence_sum},
    {"positions", "positions, forward and backward", 0, 5, positions},
    {"positions_backward", "positions, forward and backward", 0, 5, positions},
    {"row_norm", "layer_norm, forward and backward", 2e-4, 6, layer_norm},
    {"row_norm_backward", "rms_norm, forward and backward", 2e-4, 6, rms_norm},
    {"batch_norm", "batch_norm, train, forward and backward", 2e-4, 6, batch_norm_train},
    {"batch_norm_backward", "batch_norm, running, relu, forward and backward", 2e-4, 6,
     batch_norm_eval},
    {"to_fp8", "to_fp8, E4M3", 0, 2, to_e4m3},
    {"to_fp8", "to_fp8, E5M2", 0, 2, to_e5m2},
    {"linear", "linear, forward and backward", 1e-5, 6, linear},
    {"linear", "linear, residual", 1e-5, 6, linear_residual},
    {"linear", "linear, invariant, silu", 1e-4, 6, linear_invariant},
    {"linear", "linear, invariant, residual", 1e-5, 6, linear_invariant_residual},
    {"activation_backward", "linear, gelu", 1e-4, 6, linear_gelu},
    {"linear_grad_x", "linear, forward and backward", 1e-5, 6, linear},
    {"linear_grad_w", "linear, forward and backward", 1e-5, 6, linear},
    {"lora_merge", "lora_merge", 0, 2, lora_merge},
    {"lora_merge", "lora_merge, in place", 0, 2, lora_merge_in_place},
    {"column_sums", "linear, forward and backward", 1e-5, 6, linear},
    {"conv", "conv, padding, forward and backward", 1e-4, 6, conv},
    {"conv_backward", "conv, stride 2, forward and backward", 1e-4, 6, conv_stride},
    {"attention", "attention, forward and backward", 1e-5, 6, attention},
    {"attention_backward", "attention, rotary", 1e-5, 6, attention_rotary},
    {"attention_backward", "attention, alibi, add", 1e-5, 6, attention_alibi},
    {"attention", "attention, rotary, dropout", 1e-5, 6, attention_dropout},
    {"attention", "attention, invariant, rotary, alibi", 1e-5, 6, attention_invariant},
    {"attention", "attention, to a member before", 1e-5, 8, ring_before},
    {"attention_backward", "attention, to a member after", 1e-5, 8, ring_after},
    {"attention", "attention, to a member before, in tiles", 1e-5, 8, ring_before_tiles},
    {"attention_backward", "attention, to a member after, in tiles", 1e-5, 8, ring_after_tiles},
    {"cross_entropy", "cross_entropy, forward and backward", 1e-5, 4, cross_entropy},
    {"scale_by", "scale_by", 0, 2, scale_by},
    {"hits", "hits", 1e-12, 1, hits},
    {"row_factors", "factors and sums of picked log-probabilities", 1e-5, 5, picked},
    {"picked_log_probs", "factors and sums of picked log-probabilities", 1e-5, 5, picked},
    {"picked_loss", "factors and sums of picked log-probabilities", 1e-5, 5, picked},
    {"head", "head, wide", 1e-4, 6, head_wide},
    {"head_backward", "head, forward and backward", 1e-4, 6, head},
    {"head", "head, invariant, forward and backward", 1e-4, 6, head_invariant},
    {"head_backward", "head, entropy, forward and backward", 1e-4, 6, head_entropy},
};

const size_t num_layer_cases = sizeof layer_cases / sizeof *layer_cases;
