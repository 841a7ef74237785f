/* Kernels of arrays and optimizers, written as their definitions: one loop, one statement for each
 * operation, sums in double in the order of the elements. No state. Read next: ref_ops.c. */
#include "nn/ref/ref_device.h"

#include <math.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/bf16.h"
#include "base/memory_limits.h"
#include "nn/ref/ref_kernels.h"
#include "nn/ref/ref_plans.h"

#define KERNEL(NAME, STATEMENT)                                                                    \
    exo_status exo_reference_##NAME(exo_device *device, const exo_##NAME##_args *k, exo_err *err)  \
    {                                                                                              \
        (void)device;                                                                              \
        (void)err;                                                                                 \
        for (size_t i = 0; i < k->count; i++)                                                      \
            STATEMENT;                                                                             \
        return EXO_OK;                                                                             \
    }

KERNEL(fill, k->y[i] = k->value)
KERNEL(scale, k->y[i] = k->a * k->x[i])
KERNEL(divide, k->y[i] = k->y[i] / k->a)
KERNEL(axpy, k->y[i] = k->y[i] + k->a * k->x[i])
KERNEL(sub, k->y[i] = k->a[i] - k->b[i])
KERNEL(mul, k->y[i] = k->add ? k->y[i] + k->a[i] * k->b[i] : k->a[i] * k->b[i])
KERNEL(lerp, k->y[i] = k->y[i] + k->t * (k->x[i] - k->y[i]))
KERNEL(sign, k->y[i] = k->x[i] > 0 ? 1.0f : k->x[i] < 0 ? -1.0f : 0.0f)
KERNEL(standardize, k->y[i] = (float)(((double)k->x[i] - k->mean) * k->factor))
KERNEL(gather, k->y[i] = k->x[k->index[i]])
KERNEL(scatter, k->y[k->index[i]] = k->x[i])

exo_status
exo_reference_add(exo_device *device, const exo_add_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++) {
        if (k->dtype == EXO_I32)
            ((uint32_t *)k->y)[i] = ((const uint32_t *)k->a)[i] + ((const uint32_t *)k->b)[i];
        else if (k->dtype == EXO_BF16)
            ((uint16_t *)k->y)[i] = exo_to_bf16(exo_from_bf16(((const uint16_t *)k->a)[i]) +
                                                exo_from_bf16(((const uint16_t *)k->b)[i]));
        else
            ((float *)k->y)[i] = ((const float *)k->a)[i] + ((const float *)k->b)[i];
    }
    return EXO_OK;
}

exo_status
exo_reference_cast(exo_device *device, const exo_cast_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++) {
        if (k->to == EXO_BF16)
            ((uint16_t *)k->y)[i] = exo_to_bf16(((const float *)k->x)[i]);
        else
            ((float *)k->y)[i] = exo_from_bf16(((const uint16_t *)k->x)[i]);
    }
    return EXO_OK;
}

/* Whether x stands before y in the order of the numbers, in which NaN is last and -0 before 0. */
static bool
is_before(float x, float y)
{
    if (isnan(x) || isnan(y))
        return !isnan(x) && isnan(y);
    return x < y || (x == y && signbit(x) && !signbit(y));
}

exo_status
exo_reference_trimmed_mean(exo_device *device, const exo_trimmed_mean_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++) {
        float sum = -0.0f;
        for (size_t row = 0; row < k->rows; row++) {
            const float own = k->x[row * k->pitch + i];
            size_t smaller = 0;
            for (size_t r = 0; r < k->rows; r++) {
                const float x = k->x[r * k->pitch + i];
                bool equal = !is_before(own, x) && !is_before(x, own);
                smaller += is_before(x, own) || (equal && r < row);
            }
            if (smaller >= k->trim && smaller < k->rows - k->trim)
                sum = sum + own;
        }
        k->y[i] = sum / (float)(k->rows - 2 * k->trim);
    }
    return EXO_OK;
}

/* A sum, which is added to BEFORE. */
#define SUM(NAME, TERM, BEFORE)                                                                    \
    exo_status exo_reference_##NAME(exo_device *device, const exo_##NAME##_args *k, exo_err *err)  \
    {                                                                                              \
        double sum = 0;                                                                            \
        (void)device;                                                                              \
        (void)err;                                                                                 \
        for (size_t i = 0; i < k->count; i++)                                                      \
            sum += TERM;                                                                           \
        *k->out = BEFORE + sum;                                                                    \
        return EXO_OK;                                                                             \
    }

SUM(sum, (double)k->x[i], 0)
SUM(sum_squares, ((double)k->x[i] - k->center) * ((double)k->x[i] - k->center),
    (k->add ? *k->out : 0))
SUM(dot, (double)k->a[i] * (double)k->b[i], 0)

exo_status
exo_reference_clip(exo_device *device, const exo_clip_args *k, exo_err *err)
{
    double sum = 0;
    (void)device;
    (void)err;
    for (size_t p = 0; p < k->parts; p++)
        sum += k->squares[p];
    if (k->sum)
        *k->sum = sum;
    if (!k->norm)
        return EXO_OK;
    k->norm[0] = (float)sqrt(sum);
    const float factor = k->max_norm / (k->norm[0] + 1e-6f);
    for (size_t i = 0; i < k->count; i++)
        k->y[i] = factor >= 1 ? k->y[i] : factor * k->y[i];
    return EXO_OK;
}

/* --- Optimizers ------------------------------------------------------------------------------- */

exo_status
exo_reference_adam(exo_device *device, const exo_adam_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++) {
        float g = k->grad[i] + k->l2 * k->param[i];
        k->exp_avg[i] = k->beta1 * k->exp_avg[i] + k->one_minus_beta1 * g;
        k->exp_avg_sq[i] = k->beta2 * k->exp_avg_sq[i] + k->one_minus_beta2 * g * g;
        float v = k->exp_avg_sq[i];
        if (k->max_exp_avg_sq) {
            if (!(k->max_exp_avg_sq[i] > v)) /* true also if v is NaN: the NaN is kept */
                k->max_exp_avg_sq[i] = v;
            v = k->max_exp_avg_sq[i];
        }
        float denominator = sqrtf(v) / k->now.sqrt_correction2 + k->eps;
        k->param[i] = k->param[i] * k->now.shrink - k->now.step_size * k->exp_avg[i] / denominator;
    }
    return EXO_OK;
}

exo_status
exo_reference_sgd(exo_device *device, const exo_sgd_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++) {
        float g = k->grad[i] + k->l2 * k->param[i];
        if (k->momentum_buffer) {
            float b = k->now.momentum * k->momentum_buffer[i] + k->now.one_minus_dampening * g;
            k->momentum_buffer[i] = b;
            g = k->nesterov ? g + k->now.momentum * b : b;
        }
        k->param[i] = k->param[i] - k->now.lr * g;
    }
    return EXO_OK;
}

exo_status
exo_reference_rmsprop(exo_device *device, const exo_rmsprop_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++) {
        float g = k->grad[i] + k->l2 * k->param[i];
        float v = k->alpha * k->square_avg[i] + k->one_minus_alpha * g * g;
        k->square_avg[i] = v;
        if (k->grad_avg) {
            float a = k->alpha * k->grad_avg[i] + k->one_minus_alpha * g;
            k->grad_avg[i] = a;
            v = v - a * a;
            /* A negative variance comes from rounding; PyTorch returns NaN for it. A NaN stays. */
            v = v < 0 ? 0 : v;
        }
        float denominator = sqrtf(v) + k->eps;
        if (k->momentum_buffer) {
            k->momentum_buffer[i] = k->now.momentum * k->momentum_buffer[i] + g / denominator;
            k->param[i] = k->param[i] - k->now.lr * k->momentum_buffer[i];
        } else {
            k->param[i] = k->param[i] - k->now.lr * g / denominator;
        }
    }
    return EXO_OK;
}

exo_status
exo_reference_adagrad(exo_device *device, const exo_adagrad_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++) {
        float g = k->grad[i] + k->l2 * k->param[i];
        k->sum[i] = k->sum[i] + g * g;
        k->param[i] = k->param[i] - k->now.lr * g / (sqrtf(k->sum[i]) + k->eps);
    }
    return EXO_OK;
}

/* --- The device ------------------------------------------------------------------------------- */

static exo_status
ref_alloc(exo_device *device, size_t bytes, void **out, exo_err *err)
{
    (void)device;
    *out = exo_alloc_aligned(bytes);
    return *out ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for an array of %zu bytes", bytes);
}

static void
ref_free(exo_device *device, void *memory, size_t bytes)
{
    (void)device;
    (void)bytes;
    exo_free(memory);
}

static exo_status
ref_copy(exo_device *device, void *to, const void *from, size_t bytes, exo_copy_kind kind,
         exo_err *err)
{
    (void)device;
    (void)kind;
    (void)err;
    memcpy(to, from, bytes);
    return EXO_OK;
}

static exo_status
ref_synchronize(exo_device *device, exo_err *err)
{
    (void)device;
    (void)err;
    return EXO_OK;
}

static uint64_t
ref_free_memory(const exo_device *device)
{
    (void)device;
    return exo_free_memory();
}

exo_device *
exo_device_ref(void)
{
    static const exo_kernels kernels = {
#define REF_KERNEL(name) .name = exo_reference_##name,
        EXO_KERNELS(REF_KERNEL)
#undef REF_KERNEL
    };
    static const exo_device_class ref_class = {
        .name = "ref",
        .is_host = true,
        .alloc = ref_alloc,
        .free = ref_free,
        .pages_reserve = exo_host_pages_reserve,
        .pages_open = exo_host_pages_open,
        .pages_close = exo_host_pages_close,
        .pages_free = exo_host_pages_free,
        .copy = ref_copy,
        .synchronize = ref_synchronize,
        .kernels = &kernels,
        .plan_new = exo_ref_plan_new,
        .plan_free = exo_ref_plan_free,
        .scratch = exo_ref_scratch,
        .free_memory = ref_free_memory,
    };
    static exo_device ref = {.device_class = &ref_class}; /* never written */
    return &ref;
}
