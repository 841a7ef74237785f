/* Kernels of attention and of losses over classes as their definitions read: sums in double.
 * Attention itself is in attention.c. */
#include "nn/ref/ref_kernels.h"

#include <math.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/rng.h>

#include "nn/ref/attention.h"
#include "nn/ref/ref_plans.h"
#include "nn/ref/ref_values.h"

#define KERNEL(NAME)                                                                               \
    exo_status exo_reference_##NAME(exo_device *device, const exo_##NAME##_args *k, exo_err *err)

/* --- Attention -------------------------------------------------------------------------------- */

/* Weight j of the row of a query is number j % 8, of 16 bits, of block row ceil(T / 8) + j / 8 of
 * the operation's part of the stream. */
static void
draw(const exo_attention_shape *s, const exo_attention_drop *d, uint8_t *keep)
{
    uint64_t row_blocks = (s->tokens + 7) / 8;
    for (uint64_t row = 0; row < s->sequences * s->heads * s->tokens; row++)
        for (uint64_t j = 0; j < s->tokens; j++) {
            uint64_t block = row * row_blocks + j / 8;
            uint32_t numbers[4];
            exo_rng rng;
            exo_rng_init(&rng, d->seed, EXO_RNG_DROPOUT, d->node,
                         d->step ^ (block / 4194304) << 48);
            exo_rng_block(&rng, d->ordinal * 4194304 + (uint32_t)(block % 4194304), numbers);
            uint32_t number = numbers[j % 8 / 2] >> (j % 2 * 16) & 0xFFFF;
            keep[row * s->tokens + j] = number >= d->dropped;
        }
}

static exo_status
open_attention(const exo_attention_shape *s, const exo_attention_drop *d, exo_ref_attention *out,
               uint8_t **keep, exo_err *err)
{
    *keep = d->dropped ? exo_calloc(s->sequences * s->heads * s->tokens, s->tokens) : NULL;
    if (d->dropped && !*keep)
        return exo_fail(err, EXO_NOMEM, "no memory for a mask");
    if (*keep)
        draw(s, d, *keep);
    *out = (exo_ref_attention){.sequences = s->sequences,
                               .tokens = s->tokens,
                               .heads = s->heads,
                               .kv_heads = s->kv_heads,
                               .width = s->width,
                               .scale = s->scale,
                               .alibi = s->alibi != 0,
                               .turned = s->turned,
                               .theta = s->theta,
                               .scaled = s->scaled ? s->factors : NULL,
                               .keep = *keep,
                               .kept = 1 - (double)d->dropped / 65536};
    return EXO_OK;
}

/* Of fp32 alone. lse is written by nobody: backward does without it. */
KERNEL(attention)
{
    const exo_attention_shape *s = &exo_ref_plan_of(k->plan)->attention;
    exo_ref_attention shape;
    uint8_t *keep;
    (void)device;
    if (s->dtype != EXO_F32)
        return exo_fail(err, EXO_UNSUPPORTED, "the reference's attention is of fp32");
    if (s->members > 0) {
        exo_ref_ring_attention(s, k->x, k->others, k->y, k->lse);
        return EXO_OK;
    }
    exo_status st = open_attention(s, &k->drop, &shape, &keep, err);
    if (st == EXO_OK)
        exo_ref_attention_forward(&shape, k->x, k->y);
    exo_free(keep);
    return st;
}

KERNEL(attention_backward)
{
    const exo_attention_shape *s = &exo_ref_plan_of(k->plan)->attention;
    size_t count = s->sequences * s->tokens * (s->heads + 2 * s->kv_heads) * s->width;
    exo_ref_attention shape;
    uint8_t *keep;
    (void)device;
    if (s->dtype != EXO_F32)
        return exo_fail(err, EXO_UNSUPPORTED, "the reference's attention is of fp32");
    float *dx = exo_calloc(count ? count : 1, sizeof *dx);
    if (!dx)
        return exo_fail(err, EXO_NOMEM, "no memory for a gradient");
    exo_status st = EXO_OK;
    keep = NULL;
    if (s->members > 0)
        exo_ref_ring_attention_backward(s, k, dx);
    else
        st = open_attention(s, &k->drop, &shape, &keep, err);
    if (st == EXO_OK && s->members == 0)
        exo_ref_attention_backward(&shape, k->x, k->dy, dx);
    for (size_t i = 0; st == EXO_OK && i < count; i++)
        exo_ref_store(EXO_F32, k->dx, i, dx[i], k->add || k->others);
    exo_free(keep);
    exo_free(dx);
    return st;
}

/* --- Whole logits ----------------------------------------------------------------------------- */

static double
log_sum_of(const float *x, size_t columns)
{
    double max = -INFINITY, sum = 0;
    for (size_t v = 0; v < columns; v++)
        max = fmax(max, (double)x[v]);
    for (size_t v = 0; v < columns; v++)
        sum += exp((double)x[v] - max);
    return max + log(sum);
}

KERNEL(cross_entropy)
{
    double loss = 0, share = k->counted ? 1 / (double)k->counted : 0;
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++) {
        const float *x = k->x + r * k->columns;
        bool counts = k->targets[r] >= 0;
        double log_sum = log_sum_of(x, k->columns);
        loss += counts ? (log_sum - (double)x[k->targets[r]]) * share : 0;
        for (size_t v = 0; v < k->columns; v++) {
            double p = exp((double)x[v] - log_sum), hot = v == (size_t)k->targets[r] ? 1 : 0;
            k->dx[r * k->columns + v] = (float)(counts ? (p - hot) * share : 0);
        }
    }
    k->y[0] = (float)loss;
    return EXO_OK;
}

KERNEL(hits)
{
    double hits = 0;
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++) {
        size_t best = 0;
        for (size_t v = 1; v < k->columns; v++)
            if (exo_ref_load(k->dtype, k->x, r * k->columns + v) >
                exo_ref_load(k->dtype, k->x, r * k->columns + best))
                best = v;
        hits += k->targets[r] >= 0 && (size_t)k->targets[r] == best ? 1 : 0;
    }
    *k->out = hits;
    return EXO_OK;
}

KERNEL(scale_by)
{
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++)
        exo_ref_store(EXO_F32, k->y, i, k->x[i] * k->factor[0], k->add);
    return EXO_OK;
}

KERNEL(row_factors)
{
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++)
        k->y[r] = k->targets[r] < 0 ? 0 : (k->dy ? k->dy[r * k->stride] : 1) * k->a / k->divisor;
    return EXO_OK;
}

KERNEL(picked_log_probs)
{
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++)
        k->y[r] = k->targets[r] < 0 ? 0 : k->y[r] - k->log_sum[r];
    return EXO_OK;
}

KERNEL(picked_loss)
{
    double sum = 0;
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++)
        sum += k->targets[r] < 0 ? 0 : (double)k->log_sum[r] - (double)k->picked[r];
    k->y[0] = k->counted ? (float)(sum / (double)k->counted) : 0;
    return EXO_OK;
}

/* --- The head of a vocabulary ----------------------------------------------------------------- */

/* scale logits of a row. */
static void
logits_of(const exo_head_args *k, const exo_head_shape *s, size_t row, double *z)
{
    exo_dtype dtype = (exo_dtype)s->dtype;
    for (size_t v = 0; v < s->vocabulary; v++) {
        z[v] = 0;
        for (size_t i = 0; i < s->width; i++) {
            float weight = k->weight[v * s->width + i];
            weight = dtype == EXO_BF16 ? exo_from_bf16(exo_to_bf16(weight)) : weight;
            z[v] += (double)exo_ref_load(dtype, k->x, row * s->width + i) * (double)weight *
                    (double)k->scale;
        }
    }
}

static void
forward_row(const exo_head_args *k, const exo_head_shape *s, size_t row, const double *z)
{
    double max = -INFINITY, sum = 0, entropy = 0;
    for (size_t v = 0; v < s->vocabulary; v++)
        max = fmax(max, z[v]);
    for (size_t v = 0; v < s->vocabulary; v++)
        sum += exp(z[v] - max);
    double log_sum = max + log(sum);
    for (size_t v = 0; v < s->vocabulary; v++)
        entropy -= exp(z[v] - log_sum) * (z[v] - log_sum);
    k->log_sum[row] = (float)log_sum;
    if (s->entropy)
        k->entropy[row] = (float)entropy;
    else if (k->targets[row] >= 0)
        k->picked[row] = (float)(z[k->targets[row]] - (s->invariant ? log_sum : 0));
    else if (s->invariant)
        k->picked[row] = 0;
}

static void
backward_row(const exo_head_args *k, const exo_head_shape *s, size_t row, const double *z)
{
    exo_dtype dtype = (exo_dtype)s->dtype;
    for (size_t v = 0; v < s->vocabulary; v++) {
        double log_p = z[v] - (double)k->log_sum[row], p = exp(log_p),
               factor = (double)k->factor[row];
        double d = s->entropy ? factor * p * (log_p + (double)k->entropy[row])
                              : factor * (p - ((size_t)k->targets[row] == v ? 1 : 0));
        for (size_t i = 0; i < s->width; i++) {
            if (k->dx)
                k->dx[row * s->width + i] += (float)(d * (double)k->weight[v * s->width + i]);
            if (k->dweight)
                k->dweight[v * s->width + i] +=
                    (float)(d * (double)exo_ref_load(dtype, k->x, row * s->width + i));
        }
    }
}

static exo_status
head(const exo_head_args *k, bool forward, bool backward, exo_err *err)
{
    const exo_head_shape *s = &exo_ref_plan_of(k->plan)->head;
    double *z = exo_calloc(s->vocabulary, sizeof *z);
    if (!z)
        return exo_fail(err, EXO_NOMEM, "no memory for logits");
    for (size_t row = 0; row < s->rows; row++) {
        logits_of(k, s, row, z);
        if (forward)
            forward_row(k, s, row, z);
        if (backward)
            backward_row(k, s, row, z);
    }
    exo_free(z);
    return EXO_OK;
}

KERNEL(head)
{
    (void)device;
    return head(k, true, exo_ref_plan_of(k->plan)->head.wide && k->factor, err);
}

KERNEL(head_backward)
{
    (void)device;
    return head(k, false, true, err);
}
