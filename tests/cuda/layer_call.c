/* Calls of kernels of layers: see layer_call.h. */
#include "cuda/layer_call.h"

#include <criterion/criterion.h>

#include <exogym/memory.h>
#include <exogym/rng.h>

#include "cuda/emulator.h"
#include "nn/cuda/open.h"
#include "support/numbers.h"

exo_device *
layer_call_gpu(void)
{
    exo_device *device;
    exo_err err = {0};
    cuda_emulator_seed(1);
    (void)cuda_emulator_watch_races(true);
    cr_assert_eq(exo_cuda_open(&device, 0, &err), EXO_OK, "%s", err.text);
    return device;
}

/* The next array, of numbers in (-1, 1). */
float *
layer_call_drawn(layer_call *c, size_t count)
{
    exo_rng rng;
    float *host = exo_calloc(count + 1, sizeof *host);
    exo_array *x = &c->x[c->used];
    cr_assert_not_null(host);
    exo_rng_init(&rng, 7, EXO_RNG_USER, (uint32_t)c->used, 0);
    for (size_t i = 0; i < count; i++)
        host[i] = 2 * exo_rng_uniform(&rng) - 1;
    cr_assert_eq(exo_array_init(x, c->device, EXO_F32, count, NULL), EXO_OK);
    exo_array_send(*x, host);
    exo_free(host);
    c->used++;
    return x->data;
}

void
layer_call_plan(layer_call *c, exo_shape_kind kind, const void *shape)
{
    exo_err err = {0};
    const exo_device_class *of = c->device->device_class;
    cr_assert_eq(exo_plan_new(&c->plan, c->device, kind, shape, &err), EXO_OK, "%s", err.text);
    for (int i = 0; i < 2; i++) {
        size_t bytes =
            of->scratch(c->device, kind, shape, i ? EXO_SCRATCH_BACKWARD : EXO_SCRATCH_FORWARD);
        cr_assert_eq(exo_array_init(&c->scratch[i], c->device, EXO_U8, bytes, &err), EXO_OK, "%s",
                     err.text);
    }
}

void
layer_call_end(layer_call *c)
{
    exo_err err = {0};
    cr_expect_eq(exo_device_synchronize(c->device, &err), EXO_OK, "%s", err.text);
    exo_plan_free(&c->plan);
    for (size_t i = 0; i < c->used; i++)
        exo_array_release(&c->x[i]);
    exo_array_release(&c->scratch[0]);
    exo_array_release(&c->scratch[1]);
}

/* Compares all arrays of two calls, then ends both. */
void
layer_call_expect_equal(layer_call *gpu, layer_call *ref, double tolerance, const char *what)
{
    exo_err err = {0};
    for (size_t i = 0; i < ref->used; i++) {
        size_t count = ref->x[i].count;
        float *got = exo_calloc(count + 1, sizeof *got),
              *want = exo_calloc(count + 1, sizeof *want);
        cr_assert(got && want);
        cr_assert_eq(exo_array_read(gpu->x[i], got, &err), EXO_OK, "%s: %s", what, err.text);
        cr_assert_eq(exo_array_read(ref->x[i], want, &err), EXO_OK, "%s: %s", what, err.text);
        cr_expect(numbers_distance(got, want, count) <= tolerance, "%s, array %zu: off by %g", what,
                  i, numbers_distance(got, want, count));
        exo_free(got);
        exo_free(want);
    }
    exo_device *device = gpu->device;
    layer_call_end(gpu);
    layer_call_end(ref);
    exo_cuda_close(device);
    cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0, "%s", what);
}

/* The first numbers of an array as bf16, in an array of their own. */
void *
layer_call_bf16(layer_call *c, const float *numbers, size_t count)
{
    exo_array from = {
        .device = c->device, .data = (void *)(uintptr_t)numbers, .count = count, .dtype = EXO_F32};
    exo_array *x = &c->x[c->used++];
    cr_assert_eq(exo_array_init(x, c->device, EXO_BF16, count, NULL), EXO_OK);
    exo_vec_cast(*x, from);
    return x->data;
}

/* bf16 results become fp32, for the comparison. */
void
layer_call_widen(layer_call *c)
{
    for (size_t i = 0; i < c->used; i++)
        if (c->x[i].dtype == EXO_BF16) {
            exo_array wide;
            cr_assert_eq(exo_array_init(&wide, c->device, EXO_F32, c->x[i].count, NULL), EXO_OK);
            exo_vec_cast(wide, c->x[i]);
            exo_array_release(&c->x[i]);
            c->x[i] = wide;
        }
}
