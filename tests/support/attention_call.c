/* Attention in bf16: see attention_call.h. */
#include "support/attention_call.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include "base/bf16.h"
#include "support/numbers.h"

typedef struct arrays {
    exo_array x, y, dy, dx, lse, scratch[2];
} arrays;

static size_t
row_of(const exo_attention_shape *s)
{
    return (s->heads + 2 * s->kv_heads) * s->width;
}

/* An array of values in [-1, 1] that bf16 has, in bf16 or fp32. */
static exo_status
fill(exo_array *out, exo_device *device, exo_dtype dtype, size_t count, unsigned seed, exo_err *err)
{
    uint16_t halves[ATTENTION_MOST];
    float numbers[ATTENTION_MOST];
    cr_assert_leq(count, ATTENTION_MOST);
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        halves[i] = exo_to_bf16((float)(int)(seed >> 24) / 128.0f - 1.0f);
        numbers[i] = exo_from_bf16(halves[i]);
    }
    const exo_status st = exo_array_init(out, device, dtype, count, err);
    if (st == EXO_OK)
        exo_array_send(*out, dtype == EXO_BF16 ? (const void *)halves : numbers);
    return st;
}

static exo_status
make_arrays(arrays *a, exo_device *gpu, const exo_attention_shape *s, exo_err *err)
{
    const size_t rows = s->sequences * s->tokens, all = rows * row_of(s),
                 results = rows * s->heads * s->width;
    const exo_dtype dtype = (exo_dtype)s->dtype;
    exo_status st = fill(&a->x, gpu, dtype, all + 8, 1, err);
    st = st == EXO_OK ? fill(&a->dy, gpu, dtype, results, 2, err) : st;
    st = st == EXO_OK ? fill(&a->dx, gpu, dtype, all, 3, err) : st;
    st = st == EXO_OK ? exo_array_init(&a->y, gpu, dtype, results, err) : st;
    st = st == EXO_OK ? exo_array_init(&a->lse, gpu, EXO_F32, rows * s->heads, err) : st;
    for (int i = 0; st == EXO_OK && i < 2; i++)
        st = exo_array_init(
            &a->scratch[i], gpu, EXO_F32,
            gpu->device_class->scratch(gpu, EXO_SHAPE_ATTENTION, s,
                                       i ? EXO_SCRATCH_BACKWARD : EXO_SCRATCH_FORWARD) /
                    sizeof(float) +
                1,
            err);
    return st;
}

static void
release_arrays(arrays *a)
{
    exo_array *all[] = {&a->x, &a->y, &a->dy, &a->dx, &a->lse, &a->scratch[0], &a->scratch[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        exo_array_release(all[i]);
}

/* Computes on an open device; the first `plan` computes forward, the second one backward. */
static exo_status
attend(exo_device *gpu, exo_plan *const plan[2], const exo_attention_shape *s,
       const attention_call *c, attention_outcome *out, exo_err *err)
{
    const exo_kernels *kernels = gpu->device_class->kernels;
    arrays a = {0};
    exo_status st = make_arrays(&a, gpu, s, err);
    const uint16_t *x = (const uint16_t *)a.x.data + (c->shifted ? 4 : 0);
    const exo_attention_args forward = {.plan = plan[0],
                                        .y = a.y.data,
                                        .lse = c->without_lse ? NULL : a.lse.data,
                                        .x = x,
                                        .scratch = a.scratch[0].data};
    const exo_attention_backward_args backward = {.plan = plan[1],
                                                  .dx = a.dx.data,
                                                  .x = x,
                                                  .y = a.y.data,
                                                  .dy = a.dy.data,
                                                  .lse = a.lse.data,
                                                  .scratch = a.scratch[1].data,
                                                  .add = c->add};
    for (size_t i = 0; st == EXO_OK && i < (c->times ? 3 : 1); i++) {
        if (c->times)
            exo_device_section_begin(gpu);
        for (size_t t = 0; st == EXO_OK && t < (c->times ? c->times : 1); t++) {
            st = kernels->attention(gpu, &forward, err);
            if (st == EXO_OK && !c->without_lse)
                st = kernels->attention_backward(gpu, &backward, err);
        }
        if (c->times && st == EXO_OK)
            st = exo_device_section_end(gpu, err);
    }
    if (st == EXO_OK)
        st = numbers_read(a.y, out->y, err);
    if (st == EXO_OK)
        st = numbers_read(a.dx, out->dx, err);
    if (st == EXO_OK && !c->without_lse)
        st = exo_array_read(a.lse, out->lse, err);
    release_arrays(&a);
    return st;
}

exo_status
attention_outcome_of(exo_device *device, const exo_attention_shape *shape,
                     const attention_call *call, attention_outcome *out, exo_err *err)
{
    exo_plan *plans[2] = {NULL, NULL};
    exo_status st = EXO_OK;
    memset(out, 0, sizeof *out);
    for (int i = 0; st == EXO_OK && i < 2; i++)
        st = exo_plan_new(&plans[i], device, EXO_SHAPE_ATTENTION, shape, err);
    if (st == EXO_OK)
        st = attend(device, plans, shape, call, out, err);
    for (int i = 0; i < 2; i++)
        exo_plan_free(&plans[i]);
    return st;
}

exo_attention_shape
attention_shape_of(const size_t sizes[6])
{
    exo_attention_shape s;
    memset(&s, 0, sizeof s);
    s = (exo_attention_shape){.sequences = sizes[0],
                              .tokens = sizes[1],
                              .heads = sizes[2],
                              .kv_heads = sizes[3],
                              .width = sizes[4],
                              .turned = sizes[5],
                              .dtype = EXO_BF16,
                              .theta = 10000,
                              .scale = 0.35};
    return s;
}

static void
expect_close(const float *a, const float *b, size_t count, float tolerance, const char *what)
{
    for (size_t i = 0; i < count; i++)
        cr_assert(fabsf(a[i] - b[i]) <= tolerance * (1 + fabsf(a[i])), "%s, element %zu: %g and %g",
                  what, i, (double)a[i], (double)b[i]);
}

void
attention_expect_same(const exo_attention_shape *s, const attention_outcome *a,
                      const attention_outcome *b)
{
    const size_t rows = s->sequences * s->tokens;
    expect_close(a->y, b->y, rows * s->heads * s->width, 1.0f / 64, "y");
    expect_close(a->dx, b->dx, rows * row_of(s), 1.0f / 32, "dx");
    expect_close(a->lse, b->lse, rows * s->heads, 1e-3f, "lse");
}
