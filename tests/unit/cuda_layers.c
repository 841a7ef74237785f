/* Layers of nn/cuda on the CUDA runtime of the tests, in sizes that are several tiles, against the
 * reference: attention, heads, convolutions, decoders. Read next: unit/cuda_linear.c; unit/cuda.c, which
 * has every kernel in small sizes. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/loss.h>
#include <exogym/memory.h>

#include "cuda/emulator.h"
#include "cuda/layer_call.h"
#include "nn/cuda/open.h"
#include "nn/device/device_impl.h"
#include "nn/ref/ref_device.h"
#include "support/sanitized.h"

/* --- Attention -------------------------------------------------------------------------------- */

/* Drawn numbers as the call's attention has them: in bf16, or, on the reference, in fp32 rounded to
 * bf16. */
static void *
drawn_as(layer_call *c, size_t count, size_t dtype)
{
    float *numbers = layer_call_drawn(c, count);
    if (dtype == EXO_F32)
        return numbers;
    void *half = layer_call_bf16(c, numbers, count);
    if (c->device != exo_device_ref())
        return half;
    exo_vec_cast(c->x[c->used - 2], c->x[c->used - 1]);
    return numbers;
}

static void
attend(layer_call *c, const exo_attention_shape *shape, uint32_t dropped)
{
    const exo_attention_drop drop = {
        .dropped = dropped, .ordinal = 3, .node = 1, .seed = 7, .step = 5};
    exo_attention_shape s = *shape;
    size_t rows = s.sequences * s.tokens, all = (s.heads + 2 * s.kv_heads) * s.width;
    void *x = drawn_as(c, rows * all, s.dtype),
         *dy = drawn_as(c, rows * s.heads * s.width, s.dtype),
         *dx = drawn_as(c, rows * all, s.dtype),
         *y = drawn_as(c, rows * s.heads * s.width, s.dtype);
    exo_array lse;
    if (c->device == exo_device_ref())
        s.dtype = EXO_F32;
    layer_call_plan(c, EXO_SHAPE_ATTENTION, &s);
    cr_assert_eq(exo_array_init(&lse, c->device, EXO_F32, rows * s.heads, NULL), EXO_OK);
    LAYER_CALL(c, attention, .plan = c->plan, .drop = drop, .y = y, .lse = lse.data, .x = x,
               .scratch = c->scratch[0].data);
    LAYER_CALL(c, attention_backward, .plan = c->plan, .drop = drop, .dx = dx, .x = x, .y = y,
               .dy = dy, .lse = lse.data, .scratch = c->scratch[1].data, .add = s.alibi != 0);
    exo_array_release(&lse);
    if (shape->dtype == EXO_BF16) { /* the fp32 copies have done their work; results remain */
        for (size_t i = 0; i < c->used; i += 2)
            if (c->device == exo_device_ref())
                exo_vec_cast(c->x[i + 1], c->x[i]);
            else
                exo_vec_cast(c->x[i], c->x[i + 1]);
        layer_call_widen(c);
    }
}

struct attention_case {
    size_t tokens, heads, kv_heads, width, turned, alibi;
    uint32_t dropped;
};

static exo_attention_shape
attention_shape(const struct attention_case *k, exo_dtype dtype)
{
    exo_attention_shape s;
    memset(&s, 0, sizeof s);
    s.sequences = k->tokens > 100 ? 1 : 2;
    s.tokens = k->tokens;
    s.heads = k->heads;
    s.kv_heads = k->kv_heads;
    s.width = k->width;
    s.turned = k->turned;
    s.alibi = k->alibi;
    s.dropout = k->dropped > 0;
    s.dtype = (size_t)dtype;
    s.theta = 10000;
    s.scale = 0.2;
    return s;
}

static void
expect_attention(const struct attention_case *k, exo_dtype dtype, double tolerance)
{
    char what[64];
    const exo_attention_shape s = attention_shape(k, dtype);
    layer_call gpu = {.device = layer_call_gpu()}, ref = {.device = exo_device_ref()};
    snprintf(what, sizeof what, "%s, heads of %zu", exo_dtype_name(dtype), s.width);
    attend(&gpu, &s, k->dropped);
    attend(&ref, &s, k->dropped);
    layer_call_expect_equal(&gpu, &ref, tolerance, what);
}

Test(cuda_layers, attention_of_several_tiles)
{
    static const struct attention_case cases[] = {{70, 2, 1, 20, 8, 0, 0},
                                                  {67, 3, 3, 40, 0, 1, 9000},
                                                  {65, 2, 2, 72, 8, 0, 0},
                                                  {34, 4, 1, 130, 6, 1, 20000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_attention(&cases[i], EXO_F32, 2e-5);
}

/* The bits of a call do not depend on the order in which threads, blocks and copies come. */
Test(cuda_layers, attention_in_bf16_has_the_same_bits_every_time)
{
    static const struct attention_case k = {35, 2, 1, 24, 8, 0, 9000};
    const exo_attention_shape s = attention_shape(&k, EXO_BF16);
    exo_device *device = layer_call_gpu();
    layer_call first = {.device = device}, second = {.device = device};
    attend(&first, &s, k.dropped);
    cuda_emulator_seed(2);
    attend(&second, &s, k.dropped);
    for (size_t i = 0; i < first.used; i++) {
        const size_t count = first.x[i].count;
        float *a = exo_calloc(count, sizeof *a), *b = exo_calloc(count, sizeof *b);
        cr_assert(a && b);
        cr_assert_eq(exo_array_read(first.x[i], a, NULL), EXO_OK);
        cr_assert_eq(exo_array_read(second.x[i], b, NULL), EXO_OK);
        cr_expect_arr_eq(a, b, count * sizeof *a, "array %zu", i);
        exo_free(a);
        exo_free(b);
    }
    layer_call_end(&first);
    layer_call_end(&second);
    exo_cuda_close(device);
}

/* On the tensor cores: heads that eight elements do and do not divide, in their place and turned,
 * with gradients that are written at once and that are added up from parts. */
Test(cuda_layers, attention_in_bf16)
{
    static const struct attention_case cases[] = {
        {5, 2, 1, 20, 8, 0, 9000}, {150, 2, 2, 32, 0, 0, 0},    {140, 1, 1, 64, 0, 1, 9000},
        {67, 2, 1, 40, 8, 0, 0},   {70, 1, 1, 65, 0, 0, 0},     {97, 1, 1, 128, 128, 0, 20000},
        {5, 1, 1, 136, 0, 0, 0},   {35, 2, 1, 256, 6, 1, 20000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += one_of(6))
        expect_attention(&cases[i], EXO_BF16, 1e-2);
}

/* Numbers that bf16 has, as fp32. */
static float *
drawn_round(layer_call *c, size_t count)
{
    float *numbers = layer_call_drawn(c, count);
    (void)layer_call_bf16(c, numbers, count);
    exo_vec_cast(c->x[c->used - 2], c->x[c->used - 1]);
    return numbers;
}

/* A member's own keys and those of member `from`, forward, then backward. */
static void
attend_in_ring(layer_call *c, const exo_attention_shape *shape, size_t from)
{
    exo_attention_shape s = *shape;
    const size_t rows = s.sequences * s.tokens, keys = 2 * s.kv_heads * s.width;
    const float *x = drawn_round(c, rows * (s.heads * s.width + keys)),
                *others = drawn_round(c, rows * keys),
                *dy = drawn_round(c, rows * s.heads * s.width);
    float *dx = layer_call_drawn(c, rows * (s.heads * s.width + keys)),
          *y = layer_call_drawn(c, rows * s.heads * s.width),
          *dothers = layer_call_drawn(c, rows * keys), *lse = layer_call_drawn(c, rows * s.heads);
    exo_plan *own = NULL;
    layer_call_plan(c, EXO_SHAPE_ATTENTION, &s);
    own = c->plan;
    s.from = from;
    cr_assert_eq(exo_plan_new(&c->plan, c->device, EXO_SHAPE_ATTENTION, &s, NULL), EXO_OK);
    LAYER_CALL(c, attention, .plan = own, .y = y, .lse = lse, .x = x,
               .scratch = c->scratch[0].data);
    LAYER_CALL(c, attention, .plan = c->plan, .y = y, .lse = lse, .x = x, .others = others,
               .scratch = c->scratch[0].data);
    LAYER_CALL(c, attention_backward, .plan = own, .dx = dx, .x = x, .y = y, .dy = dy, .lse = lse,
               .scratch = c->scratch[1].data);
    LAYER_CALL(c, attention_backward, .plan = c->plan, .dx = dx, .x = x, .y = y, .dy = dy,
               .lse = lse, .scratch = c->scratch[1].data, .others = others, .dothers = dothers);
    cr_assert_eq(exo_device_synchronize(c->device, NULL), EXO_OK);
    exo_plan_free(&own);
    layer_call_widen(c);
}

/* Keys of a member before, of which half are seen, and of one after, which half of the queries see: chunks
 * end within tiles and at their ends. */
Test(cuda_layers, attention_of_a_ring_with_products_of_bf16)
{
    static const struct attention_case cases[] = {{130, 1, 1, 72, 0, 0, 0},
                                                  {22, 2, 1, 24, 8, 0, 0},
                                                  {18, 1, 1, 40, 0, 0, 0},
                                                  {18, 1, 1, 136, 0, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += one_of(4))
        for (size_t from = 0; from < 3; from += 2) {
            exo_attention_shape s = attention_shape(&cases[i], EXO_F32);
            layer_call gpu = {.device = layer_call_gpu()}, ref = {.device = exo_device_ref()};
            char what[64];
            snprintf(what, sizeof what, "heads of %zu, keys of member %zu", s.width, from);
            s.members = 3;
            s.rank = s.from = 1;
            s.bf16_products = 1;
            attend_in_ring(&gpu, &s, from);
            attend_in_ring(&ref, &s, from);
            layer_call_expect_equal(&gpu, &ref, 1e-2, what);
        }
}

/* --- Images ----------------------------------------------------------------------------------- */

/* Two images (7, 5) of eight channels, whose arrays kernels take four elements of at a time; pools leave
 * a row and a column out. */
static void
run_images(layer_call *c, exo_dtype asked, bool add)
{
    const exo_batch_norm_shape s = {.samples = 2, .channels = 8};
    const size_t count = 2 * 7 * 5 * 8;
    const exo_dtype dtype = c->device == exo_device_ref() ? EXO_F32 : asked;
    void *x = drawn_as(c, count, asked), *y = drawn_as(c, count, asked),
         *dx = drawn_as(c, count, asked);
    float *few = layer_call_drawn(c, 10 * 8), *kept = few + 6 * 8;
    exo_array winner, scratch;
    const size_t bytes =
        c->device->device_class->scratch(c->device, EXO_SHAPE_BATCH_NORM, &s, EXO_SCRATCH_FORWARD);
    cr_assert_eq(exo_array_init(&winner, c->device, EXO_U8, count, NULL), EXO_OK);
    cr_assert_eq(exo_array_init(&scratch, c->device, EXO_U8, bytes, NULL), EXO_OK);
    LAYER_CALL(c, channel_scale, .samples = 2, .rows = 35, .channels = 8, .dtype = dtype, .y = dx,
               .x = x, .factor = few, .add = add);
    LAYER_CALL(c, max_pool, .samples = 2, .height = 7, .width = 5, .channels = 8, .size = 2,
               .dtype = dtype, .y = y, .winner = winner.data, .x = x);
    LAYER_CALL(c, max_pool_backward, .samples = 2, .height = 7, .width = 5, .channels = 8,
               .size = 2, .dtype = dtype, .dx = dx, .winner = winner.data, .dy = y, .add = add);
    LAYER_CALL(c, batch_norm, .shape = s, .rows = 35, .dtype = dtype, .train = true, .relu = add,
               .eps = 1e-1f, .y = y, .kept = kept, .running_mean = few, .running_var = few + 8,
               .x = x, .weight = few + 2 * 8, .bias = few + 3 * 8, .scratch = scratch.data);
    LAYER_CALL(c, batch_norm_backward, .shape = s, .rows = 35, .dtype = dtype, .train = true,
               .relu = add, .add = add, .dx = dx, .dweight = few + 4 * 8, .dbias = few + 5 * 8,
               .kept = kept, .x = x, .dy = y, .scratch = scratch.data);
    for (size_t i = 0; i < 6 && asked == EXO_BF16; i += 2) /* the reference has results in fp32 */
        if (c->device == exo_device_ref())
            exo_vec_cast(c->x[i + 1], c->x[i]);
        else
            exo_vec_cast(c->x[i], c->x[i + 1]);
    layer_call_widen(c);
    exo_array_release(&winner);
    exo_array_release(&scratch);
}

Test(cuda_layers, images_by_fours)
{
    for (unsigned i = 0; i < 4; i++) {
        const exo_dtype dtype = i / 2 ? EXO_BF16 : EXO_F32;
        layer_call gpu = {.device = layer_call_gpu()}, ref = {.device = exo_device_ref()};
        run_images(&gpu, dtype, i % 2);
        run_images(&ref, dtype, i % 2);
        layer_call_expect_equal(&gpu, &ref, i / 2 ? 4e-2 : 1e-5, "images");
    }
}

/* --- Heads ------------------------------------------------------------------------------------ */

/* Targets -1, and in each block of the vocabulary. A wide head has its gradients at once. */
static void
run_head(layer_call *c, const exo_head_shape *s)
{
    const int32_t last = (int32_t)s->vocabulary - 1;
    int32_t targets[400] = {-1, 0, s->wide ? 1 : 8191, s->wide ? 2 : 8192, last};
    float *out = layer_call_drawn(c, 2 * s->rows),
          *numbers = layer_call_drawn(c, s->rows * s->width);
    float *weight = layer_call_drawn(c, s->vocabulary * s->width),
          *factor = layer_call_drawn(c, s->rows);
    float *dx = layer_call_drawn(c, s->rows * s->width),
          *dweight = layer_call_drawn(c, s->vocabulary * s->width);
    exo_array places;
    void *x = s->dtype == EXO_BF16 ? layer_call_bf16(c, numbers, s->rows * s->width) : numbers;
    exo_vec_scale(c->x[2], 6); /* a block's largest logit differs from the last one's */
    layer_call_plan(c, EXO_SHAPE_HEAD, s);
    for (size_t r = 5; r < s->rows; r++)
        targets[r] = (int32_t)(r * 7 % s->vocabulary);
    cr_assert_eq(exo_array_init(&places, c->device, EXO_I32, s->rows, NULL), EXO_OK);
    exo_array_send(places, targets);
    exo_head_args k = {.plan = c->plan,
                       .x = x,
                       .weight = weight,
                       .targets = s->entropy ? NULL : places.data,
                       .scale = 0.75f,
                       .log_sum = out,
                       .picked = s->entropy ? NULL : out + s->rows,
                       .entropy = s->entropy ? out + s->rows : NULL,
                       .scratch = c->scratch[0].data};
    exo_err err = {0};
    if (s->wide) {
        k.cast = layer_call_bf16(c, weight, s->vocabulary * s->width);
        k.factor = factor;
        k.dx = dx;
        k.dweight = dweight;
    }
    cr_assert_eq(c->device->device_class->kernels->head(c->device, &k, &err), EXO_OK, "%s",
                 err.text);
    k.factor = factor;
    k.dx = dx;
    k.dweight = dweight;
    k.scratch = c->scratch[1].data;
    if (!s->wide)
        cr_assert_eq(c->device->device_class->kernels->head_backward(c->device, &k, &err), EXO_OK,
                     "%s", err.text);
    layer_call_widen(c);
    exo_array_release(&places);
}

Test(cuda_layers, heads_of_several_blocks)
{
    for (size_t i = 0; i < 4; i++) {
        exo_head_shape s;
        layer_call gpu = {.device = layer_call_gpu()}, ref = {.device = exo_device_ref()};
        memset(&s, 0, sizeof s);
        s = (exo_head_shape){.rows = 5,
                             .width = 3,
                             .vocabulary = 8230,
                             .dtype = i == 2 ? EXO_BF16 : EXO_F32,
                             .gradients = 1,
                             .entropy = i == 1,
                             .invariant = i == 3};
        run_head(&gpu, &s);
        run_head(&ref, &s);
        layer_call_expect_equal(&gpu, &ref, i == 2 ? 2e-2 : 1e-4, "head");
    }
}

/* Rows of its logits do not follow each other, since their number is odd. 130 rows of fp32 are
 * three tiles, and 400 of bf16 (EXO_CUDA_WIDE_ELEMENTS). Of 8,230 words, a thread has several
 * groups. */
Test(cuda_layers, wide_heads)
{
    static const struct {
        size_t rows, vocabulary;
        exo_dtype dtype;
    } kinds[] = {
        {130, 203, EXO_F32}, {5, 203, EXO_BF16}, {400, 203, EXO_BF16}, {6, 8230, EXO_BF16}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const exo_head_shape s = {.rows = kinds[i].rows,
                                  .width = 3,
                                  .vocabulary = kinds[i].vocabulary,
                                  .dtype = (size_t)kinds[i].dtype,
                                  .gradients = 1,
                                  .wide = 1};
        layer_call gpu = {.device = layer_call_gpu()}, ref = {.device = exo_device_ref()};
        run_head(&gpu, &s);
        run_head(&ref, &s);
        layer_call_expect_equal(&gpu, &ref, 2e-2, "head");
    }
}

/* --- Logits in bf16 --------------------------------------------------------------------------- */

enum {
    BF16_ROWS = 5,
    BF16_WIDTH = 3,
    BF16_WORDS = 203
};

static const double HALF_STEP = 1.0 / 256, SLACK = 1e-5; /* of bf16, relative; of sums in fp32 */

/* What run_head has on a device, and what its results may be. */
struct bounded_head {
    float out[2 * BF16_ROWS], factor[BF16_ROWS], dx[BF16_ROWS * BF16_WIDTH],
        dweight[BF16_WORDS * BF16_WIDTH], x[BF16_ROWS * BF16_WIDTH],
        weight[BF16_WORDS * BF16_WIDTH];
    double want_dx[BF16_ROWS * BF16_WIDTH], off_dx[BF16_ROWS * BF16_WIDTH];
    double want_dweight[BF16_WORDS * BF16_WIDTH], off_dweight[BF16_WORDS * BF16_WIDTH];
};

/* The gradients add to what run_head draws. */
static void
begin_head(struct bounded_head *b)
{
    layer_call start = {.device = exo_device_ref()};
    for (size_t i = 0; i < 4; i++)
        layer_call_drawn(&start, 1);
    const float *dx = layer_call_drawn(&start, BF16_ROWS * BF16_WIDTH),
                *dweight = layer_call_drawn(&start, BF16_WORDS * BF16_WIDTH);
    for (size_t i = 0; i < BF16_ROWS * BF16_WIDTH; i++)
        b->want_dx[i] = (double)dx[i];
    for (size_t i = 0; i < BF16_WORDS * BF16_WIDTH; i++)
        b->want_dweight[i] = (double)dweight[i];
    layer_call_end(&start);
}

static void
read_head(layer_call *c, struct bounded_head *b)
{
    const struct {
        size_t at;
        float *to;
    } arrays[] = {{0, b->out},     {3, b->factor}, {4, b->dx},
                  {5, b->dweight}, {6, b->x},      {7, b->weight}};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        cr_assert_eq(exo_array_read(c->x[arrays[i].at], arrays[i].to, NULL), EXO_OK);
}

/* Adds row r to the gradients, from logits in double, with what roundings of logits and of their
 * gradients may change; checks its sums. */
static void
bound_row(struct bounded_head *b, size_t r, int32_t target)
{
    double z[BF16_WORDS], most = 0, sum = 0;
    for (size_t v = 0; v < BF16_WORDS; v++) {
        z[v] = 0;
        for (size_t i = 0; i < BF16_WIDTH; i++)
            z[v] += 0.75 * (double)b->x[r * BF16_WIDTH + i] * (double)b->weight[v * BF16_WIDTH + i];
        most = fmax(most, fabs(z[v]));
        sum += exp(z[v]);
    }
    const double off = HALF_STEP * most, log_sum = log(sum);
    cr_expect(fabs((double)b->out[r] - log_sum) <= off + SLACK, "row %zu: %g", r,
              (double)b->out[r]);
    if (target >= 0)
        cr_expect(fabs((double)b->out[BF16_ROWS + r] - z[target]) <=
                      HALF_STEP * fabs(z[target]) + SLACK,
                  "row %zu: picked %g", r, (double)b->out[BF16_ROWS + r]);
    for (size_t v = 0; v < BF16_WORDS; v++) {
        const double factor = (double)b->factor[r], p = exp(z[v] - log_sum);
        const double g = factor * (p - (target == (int32_t)v ? 1 : 0)),
                     apart = fabs(factor) * p * expm1(2 * off) + SLACK * fabs(factor);
        const double off_g = apart + HALF_STEP * (fabs(g) + apart);
        for (size_t i = 0; i < BF16_WIDTH; i++) {
            const size_t in = r * BF16_WIDTH + i, out = v * BF16_WIDTH + i;
            b->want_dx[in] += g * (double)b->weight[out];
            b->off_dx[in] += off_g * fabs((double)b->weight[out]);
            b->want_dweight[out] += g * (double)b->x[in];
            b->off_dweight[out] += off_g * fabs((double)b->x[in]);
        }
    }
}

static void
expect_within(const char *what, size_t count, const float *got, const double *want,
              const double *off)
{
    for (size_t i = 0; i < count; i++)
        cr_expect(fabs((double)got[i] - want[i]) <= off[i] + SLACK, "%s %zu: %g, expected %g +- %g",
                  what, i, (double)got[i], want[i], off[i]);
}

/* The loss is off by 2^-7 of the largest logit at most, and a gradient by as much as that changes a
 * probability, and one rounding. */
Test(cuda_layers, logits_in_bf16_have_a_bound)
{
    static const int32_t targets[BF16_ROWS] = {-1, 0, 1, 2, BF16_WORDS - 1};
    const exo_head_shape s = {.rows = BF16_ROWS,
                              .width = BF16_WIDTH,
                              .vocabulary = BF16_WORDS,
                              .dtype = EXO_BF16,
                              .gradients = 1,
                              .wide = 1};
    struct bounded_head b = {0};
    layer_call gpu = {.device = layer_call_gpu()};
    exo_device *device = gpu.device;
    begin_head(&b);
    run_head(&gpu, &s);
    read_head(&gpu, &b);
    for (size_t r = 0; r < BF16_ROWS; r++)
        bound_row(&b, r, targets[r]);
    expect_within("dx", BF16_ROWS * BF16_WIDTH, b.dx, b.want_dx, b.off_dx);
    expect_within("dweight", BF16_WORDS * BF16_WIDTH, b.dweight, b.want_dweight, b.off_dweight);
    layer_call_end(&gpu);
    exo_cuda_close(device);
}

/* Row 1 has no target, and logits that are infinite. dx, then dweight. */
static void
differentiate_with_infinities(exo_device *device, float out[6 * 4 + 3 * 4])
{
    static const int32_t targets[6] = {2, -1, 0, 1, 2, 0};
    float x[6 * 4], w[3 * 4] = {1, -1, 2, 1, -1, 1, 2, 2, 1, 1, -2, 1};
    exo_tape *tape = NULL;
    exo_err err = {0};
    for (int i = 0; i < 6 * 4; i++)
        x[i] = i / 4 == 1 ? 3e38f : (float)(i % 5) / 4;
    cr_assert_eq(exo_tape_new_on(&tape, device, &err), EXO_OK, "%s", err.text);
    exo_tape_begin(tape, NULL, &(exo_pass){.grad = true});
    exo_tensor *in = exo_tape_variable(tape, 2, (size_t[]){6, 4}, x),
               *weight = exo_tape_variable(tape, 2, (size_t[]){3, 4}, w),
               *at = exo_tape_input(tape, EXO_I32, 1, (size_t[]){6}, targets);
    exo_tensor *loss = exo_linear_cross_entropy(tape, in, weight, at);
    cr_assert_not_null(loss);
    cr_expect(isfinite(exo_tensor_item(loss)));
    cr_assert_eq(exo_tape_backward(tape, loss, 1, &err), EXO_OK, "%s", err.text);
    exo_tensor_grad(in, out);
    exo_tensor_grad(weight, out + 6 * 4);
    exo_tape_free(&tape);
}

Test(cuda_layers, a_row_without_a_target_gives_a_head_nothing)
{
    exo_device *gpu = layer_call_gpu(), *devices[] = {exo_device_ref(), exo_device_cpu(), gpu};
    for (size_t d = 0; d < 3; d++) {
        float got[6 * 4 + 3 * 4];
        differentiate_with_infinities(devices[d], got);
        for (size_t i = 0; i < sizeof got / sizeof *got; i++)
            cr_expect(isfinite(got[i]) && (i / 4 != 1 || got[i] == 0), "device %zu: %zu: %g", d, i,
                      (double)got[i]);
    }
    exo_cuda_close(gpu);
}

/* --- Convolutions ----------------------------------------------------------------------------- */

static void
convolve(layer_call *c, const exo_conv_shape *s)
{
    size_t image = s->batch * s->height * s->width * s->in_channels,
           out = s->batch * s->out_height * s->out_width * s->out_channels,
           weights = s->out_channels * s->in_channels * s->kernel_height * s->kernel_width;
    float *y = layer_call_drawn(c, out), *x = layer_call_drawn(c, image),
          *weight = layer_call_drawn(c, weights), *bias = layer_call_drawn(c, s->out_channels),
          *dx = layer_call_drawn(c, image), *dweight = layer_call_drawn(c, weights),
          *dbias = layer_call_drawn(c, s->out_channels), *dy = layer_call_drawn(c, out);
    layer_call_plan(c, EXO_SHAPE_CONV, s);
    exo_vec_scale(c->x[7], 0.01f); /* sums of many pixels stay small */
    LAYER_CALL(c, conv, .plan = c->plan, .y = y, .x = x, .weight = weight, .bias = bias);
    LAYER_CALL(c, conv_backward, .plan = c->plan, .dx = dx, .dweight = dweight, .dbias = dbias,
               .x = x, .dy = dy);
}

/* One without windows, and one whose windows are more than a chunk. */
Test(cuda_layers, convolutions_of_pixels_and_of_several_chunks)
{
    for (size_t i = 0; i < 2; i += one_of(2)) {
        exo_conv_shape s;
        size_t side = i ? 64 : 9, kernel = i ? 5 : 1;
        layer_call gpu = {.device = layer_call_gpu()}, ref = {.device = exo_device_ref()};
        memset(&s, 0, sizeof s);
        s = (exo_conv_shape){.batch = i ? 11 : 3,
                             .in_channels = i ? 8 : 5,
                             .height = side,
                             .width = side,
                             .out_channels = i ? 1 : 6,
                             .kernel_height = kernel,
                             .kernel_width = kernel,
                             .stride = 1,
                             .padding = i ? 2 : 0,
                             .out_height = side,
                             .out_width = side,
                             .dtype = EXO_F32,
                             .with_bias = 1,
                             .backward = 1,
                             .input_grad = 1};
        convolve(&gpu, &s);
        convolve(&ref, &s);
        layer_call_expect_equal(&gpu, &ref, 1e-4, i ? "several chunks" : "pixels");
    }
}

/* --- Generation ------------------------------------------------------------------------------- */

enum {
    TOKENS = 270, /* more than the keys of a chunk */
    WORDS = 40,
    PITCH = 64
};

static exo_decoder_shape
decoder_shape(exo_weight_format format)
{
    return (exo_decoder_shape){.spec = {.family = "qwen3",
                                        .vocabulary = WORDS,
                                        .context = TOKENS,
                                        .layers = 1,
                                        .heads = 2,
                                        .kv_heads = 1,
                                        .width = 16,
                                        .head_width = 6,
                                        .inner = 24,
                                        .position = EXO_POSITION_ROTARY,
                                        .norm = EXO_NORM_RMS,
                                        .norm_eps = 1e-5f,
                                        .activation = EXO_SILU,
                                        .gated = true,
                                        .rope_theta = 10000},
                               .format = format,
                               .context = TOKENS,
                               .rows = TOKENS};
}

/* The arrays of a decoder beside those of its call. */
struct decoder {
    exo_array weights, numbers[4];
    float *logits;
    void *caches; /* of drawn numbers, for two sequences */
};

static void
begin_decoder(layer_call *c, const exo_decoder_shape *shape, struct decoder *d)
{
    const exo_device_class *of = c->device->device_class;
    const size_t caches = of->scratch(c->device, EXO_SHAPE_DECODER, shape, EXO_SCRATCH_CACHE);
    exo_decoder_entry p;
    d->logits = layer_call_drawn(c, PITCH);
    float *const values = layer_call_drawn(c, 20000);
    d->caches = layer_call_drawn(c, 2 * caches / sizeof(float));
    layer_call_plan(c, EXO_SHAPE_DECODER, shape);
    cr_assert_eq(
        exo_array_init(&d->weights, c->device, EXO_U8,
                       of->scratch(c->device, EXO_SHAPE_DECODER, shape, EXO_SCRATCH_WEIGHTS), NULL),
        EXO_OK);
    for (size_t i = 0; i < 4; i++)
        cr_assert_eq(exo_array_init(&d->numbers[i], c->device, EXO_I32, TOKENS, NULL), EXO_OK);
    for (size_t i = 0; exo_decoder_entry_at(&shape->spec, i, &p); i++)
        LAYER_CALL(c, decoder_pack, .plan = c->plan, .parameter = i, .values = values + i,
                   .weights = d->weights.data);
}

static void
end_decoder(struct decoder *d)
{
    for (size_t i = 0; i < 4; i++)
        exo_array_release(&d->numbers[i]);
    exo_array_release(&d->weights);
}

/* Rows [first, first + count) of sequence 1, behind `before` rows of sequence 0; the logits of the
 * last one. */
static void
run_pass(layer_call *c, const struct decoder *d, size_t first, size_t count, size_t before)
{
    int32_t rows[3][TOKENS];
    const int32_t last = (int32_t)(before + count - 1);
    for (size_t r = 0; r < before + count; r++) {
        size_t position = r < before ? r : first + r - before;
        rows[0][r] = (int32_t)(position * 7 % WORDS);
        rows[1][r] = (int32_t)position;
        rows[2][r] = r >= before;
    }
    for (size_t i = 0; i < 3; i++)
        exo_array_send(exo_array_part(d->numbers[i], 0, before + count), rows[i]);
    exo_array_send(exo_array_part(d->numbers[3], 0, 1), &last);
    LAYER_CALL(c, decoder_pass, .plan = c->plan, .rows = before + count,
               .tokens = d->numbers[0].data, .positions = d->numbers[1].data,
               .sequences = d->numbers[2].data, .weights = d->weights.data, .caches = d->caches,
               .scratch = c->scratch[0].data);
    LAYER_CALL(c, decoder_logits, .plan = c->plan, .rows = 1, .which = d->numbers[3].data,
               .logits = d->logits, .weights = d->weights.data, .scratch = c->scratch[0].data);
}

/* The logits behind all tokens of a sequence: in one pass, or in several and in company. */
static void
generate(layer_call *c, exo_weight_format format, bool at_once)
{
    const exo_decoder_shape shape = decoder_shape(format);
    struct decoder d;
    begin_decoder(c, &shape, &d);
    exo_vec_fill(c->x[0], 0); /* behind the vocabulary, a row has no meaning */
    for (size_t first = 0, count; first < TOKENS; first += count) {
        count = at_once ? TOKENS : first < 200 ? 100 : first == 200 ? 60 : first == 260 ? 2 : 1;
        run_pass(c, &d, first, count, at_once ? 0 : first == 0 ? 9 : 0);
    }
    exo_vec_fill(exo_array_part(c->x[0], WORDS, PITCH - WORDS), 0);
    exo_array_release(&c->x[2]); /* the caches of devices differ */
    c->used = 2;
    end_decoder(&d);
}

Test(cuda_layers, a_sequence_has_the_same_bits_in_any_company)
{
    static const exo_weight_format formats[] = {EXO_WEIGHTS_F32, EXO_WEIGHTS_INT4};
    for (size_t i = 0; i < 2; i += one_of(2)) {
        float together[PITCH], apart[PITCH];
        exo_device *device = layer_call_gpu();
        layer_call once = {.device = device}, often = {.device = device},
                   ref = {.device = exo_device_ref()};
        const uint64_t before = cuda_emulator_graphs();
        generate(&often, formats[i], false);
        cr_expect_eq(cuda_emulator_graphs() - before, 7, "of 8 equal steps, all but the first");
        cr_assert_eq(exo_array_read(often.x[0], apart, NULL), EXO_OK);
        layer_call_end(&often);
        generate(&once, formats[i], true);
        cr_assert_eq(exo_array_read(once.x[0], together, NULL), EXO_OK);
        cr_expect_arr_eq(together, apart, sizeof apart, "format %zu", i);
        if (i > 0) { /* unit/cuda compares them with the reference */
            layer_call_end(&once);
            exo_cuda_close(device);
            continue;
        }
        generate(&ref, formats[i], true);
        layer_call_expect_equal(&once, &ref, 1e-5, "logits");
    }
}

enum {
    LONG = 530,  /* keys of more chunks than are in shared memory at a time */
    COMPANY = 64 /* rows, with which there is a block for each of the heads */
};

/* Blocks share the heads of a row by itself, here also in graphs. With other rows, each has one. */
Test(cuda_layers, blocks_that_share_a_head_have_the_bits_of_one)
{
    static const struct {
        uint32_t kv_heads, head_width; /* two slices and a rest; more than narrow tiles have */
        exo_position_kind position;
    } kinds[] = {{2, 38, EXO_POSITION_ROTARY}, {1, 140, EXO_POSITION_ALIBI}};
    static const size_t lengths[] = {1, 256, 257, LONG};
    for (size_t i = 0; i < 2; i += one_of(2)) {
        exo_decoder_shape shape = decoder_shape(EXO_WEIGHTS_F32);
        exo_device *device = layer_call_gpu();
        layer_call c = {.device = device};
        struct decoder d;
        shape.spec.heads = 4;
        shape.spec.kv_heads = kinds[i].kv_heads;
        shape.spec.head_width = kinds[i].head_width;
        shape.spec.position = kinds[i].position;
        shape.spec.context = shape.context = LONG;
        begin_decoder(&c, &shape, &d);
        for (size_t n = 2 * i; n < sizeof lengths / sizeof *lengths; n++) {
            float alone[PITCH], among[PITCH];
            run_pass(&c, &d, lengths[n] - 1, 1, 0);
            cr_assert_eq(exo_array_read(c.x[0], alone, NULL), EXO_OK);
            run_pass(&c, &d, lengths[n] - 1, 1, COMPANY);
            cr_assert_eq(exo_array_read(c.x[0], among, NULL), EXO_OK);
            cr_expect_arr_eq(alone, among, WORDS * sizeof *alone, "kind %zu, %zu keys", i,
                             lengths[n]);
        }
        end_decoder(&d);
        layer_call_end(&c);
        exo_cuda_close(device);
    }
}

/* Stands for the other members of a part. */
static void
meet(void *context, float *data, size_t count)
{
    (void)data;
    (void)count;
    ++*(size_t *)context;
}

/* Steps of one row, of which the second is recorded and those from then on are launched as a graph,
 * and then more kinds of passes than a plan has graphs. Rows are the tokens of one sequence. members: 0,
 * or those that share the decoder. */
static exo_status
take_steps(exo_device *device, uint32_t members, exo_err *err)
{
    static const size_t rows[] = {1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 1};
    size_t met = 0;
    const exo_decoder_peers peers = {.context = &met, .gather = meet, .add = meet};
    exo_decoder_shape shape = decoder_shape(EXO_WEIGHTS_F32);
    shape.members = members;
    shape.spec.kv_heads = members > 0 ? members : 1; /* a part has some */
    const exo_device_class *of = device->device_class;
    const exo_scratch_use uses[] = {EXO_SCRATCH_WEIGHTS, EXO_SCRATCH_CACHE, EXO_SCRATCH_FORWARD};
    exo_array memory[3] = {0}, numbers = {0};
    exo_plan *decoder = NULL;
    int32_t places[TOKENS];
    exo_status st = exo_plan_new(&decoder, device, EXO_SHAPE_DECODER, &shape, err);
    for (int32_t i = 0; i < TOKENS; i++)
        places[i] = i % WORDS;
    for (size_t i = 0; st == EXO_OK && i < 3; i++)
        st = exo_array_init(&memory[i], device, EXO_U8,
                            of->scratch(device, EXO_SHAPE_DECODER, &shape, uses[i]), err);
    if (st == EXO_OK)
        st = exo_array_init(&numbers, device, EXO_I32, 2 * TOKENS, err); /* at first 0 */
    if (st == EXO_OK)
        exo_array_send(exo_array_part(numbers, TOKENS, TOKENS), places);
    for (size_t i = 0; st == EXO_OK && i < sizeof rows / sizeof *rows; i++) {
        exo_decoder_pass_args k = {.plan = decoder,
                                   .rows = rows[i],
                                   .tokens = numbers.data,
                                   .positions = (int32_t *)numbers.data + TOKENS,
                                   .sequences = numbers.data,
                                   .weights = memory[0].data,
                                   .caches = memory[1].data,
                                   .scratch = memory[2].data,
                                   .peers = &peers};
        st = of->kernels->decoder_pass(device, &k, err);
        /* also after a failure, as nobody else knows of it */
        cr_expect_eq(met % (1 + 4 * shape.spec.layers), 0, "%zu", met);
        if (st == EXO_OK)
            st = exo_device_synchronize(device, err);
    }
    exo_plan_free(&decoder);
    for (size_t i = 0; i < 3; i++)
        exo_array_release(&memory[i]);
    exo_array_release(&numbers);
    return st;
}

static void
expect_clean_failures(uint32_t members)
{
    exo_err err = {0};
    exo_device *device = layer_call_gpu();
    const uint64_t first = cuda_emulator_calls();
    cr_expect_eq(take_steps(device, members, &err), EXO_OK, "%s", err.text);
    const uint64_t calls = cuda_emulator_calls() - first;
    exo_cuda_close(device);
    cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0);
    for (uint64_t n = 1; n < calls; n += 11 * one_of(4)) {
        device = layer_call_gpu();
        cuda_emulator_fail_call(n);
        const exo_status st = take_steps(device, members, &err);
        cuda_emulator_fail_call(0);
        cr_expect(st == EXO_OK || err.text[0]);
        exo_cuda_close(device);
        cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0, "call %zu", (size_t)n);
    }
    for (uint64_t n = 20; n < 60; n += 13) {
        device = layer_call_gpu();
        cuda_emulator_fail_at(n);
        cr_expect_eq(take_steps(device, members, &err), EXO_FAILED, "operation %zu", (size_t)n);
        cuda_emulator_fail_at(0);
        exo_cuda_close(device);
        cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0);
    }
}

Test(cuda_layers, failures_around_graphs_end_cleanly)
{
    expect_clean_failures(0);
}

/* Each pass of a part meets the others as often, with and without graphs. */
Test(cuda_layers, failures_around_graphs_of_parts_end_cleanly)
{
    expect_clean_failures(2);
}

Test(cuda_layers, heads_that_are_too_wide_are_refused)
{
    exo_decoder_shape shape = decoder_shape(EXO_WEIGHTS_F32);
    exo_device *device = layer_call_gpu();
    exo_plan *none = NULL;
    exo_err err = {0};
    shape.spec.head_width = 300;
    cr_expect_eq(exo_plan_new(&none, device, EXO_SHAPE_DECODER, &shape, &err), EXO_UNSUPPORTED);
    cr_expect(strstr(err.text, "300 wide"), "%s", err.text);
    exo_cuda_close(device);
}
