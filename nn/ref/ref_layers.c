/* Kernels of layers as their definitions read: one loop a dimension, sums in double, values as
 * floats whatever their type. Attention and heads: ref_heads.c. */
#include "nn/ref/ref_kernels.h"

#include <math.h>
#include <string.h>

#include <exogym/memory.h>

#include "nn/ref/ref_decoder.h"
#include "nn/ref/ref_plans.h"
#include "nn/ref/ref_sequence.h"
#include "nn/ref/ref_values.h"

#define KERNEL(NAME)                                                                               \
    exo_status exo_reference_##NAME(exo_device *device, const exo_##NAME##_args *k, exo_err *err)

/* --- Plans ------------------------------------------------------------------------------------ */

exo_status
exo_ref_plan_new(exo_plan **out, exo_device *device, exo_shape_kind kind, const void *shape,
                 exo_err *err)
{
    (void)device;
    if (kind == EXO_SHAPE_DECODER && ((const exo_decoder_shape *)shape)->members > 0)
        return exo_fail(err, EXO_UNSUPPORTED, "the device 'ref' has no parts of decoders");
    exo_ref_plan *p = exo_calloc(1, sizeof *p);
    if (!p)
        return exo_fail(err, EXO_NOMEM, "no memory for a plan");
    if (kind == EXO_SHAPE_LINEAR)
        p->linear = *(const exo_linear_shape *)shape;
    else if (kind == EXO_SHAPE_CONV)
        p->conv = *(const exo_conv_shape *)shape;
    else if (kind == EXO_SHAPE_ATTENTION)
        p->attention = *(const exo_attention_shape *)shape;
    else if (kind == EXO_SHAPE_HEAD)
        p->head = *(const exo_head_shape *)shape;
    else if (kind == EXO_SHAPE_DECODER)
        p->decoder = *(const exo_decoder_shape *)shape;
    else if (kind == EXO_SHAPE_NEWTON_SCHULZ)
        p->newton_schulz = *(const exo_newton_schulz_shape *)shape;
    *out = &p->plan;
    return EXO_OK;
}

void
exo_ref_plan_free(exo_plan *plan)
{
    exo_free(plan);
}

size_t
exo_ref_scratch(const exo_device *device, exo_shape_kind kind, const void *shape,
                exo_scratch_use use)
{
    (void)device;
    if (kind == EXO_SHAPE_DECODER)
        return exo_ref_decoder_scratch(shape, use);
    if (kind != EXO_SHAPE_NEWTON_SCHULZ)
        return 0;
    const exo_newton_schulz_shape *s = shape;
    const size_t side = s->rows < s->cols ? s->rows : s->cols;
    return (2 * side * side + s->rows * s->cols) * sizeof(float);
}

/* --- Embeddings ------------------------------------------------------------------------------- */

KERNEL(embedding)
{
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++)
        for (size_t i = 0; i < k->width; i++)
            k->y[r * k->width + i] =
                k->tokens[r] < 0 ? 0 : k->table[(size_t)k->tokens[r] * k->width + i];
    return EXO_OK;
}

KERNEL(embedding_backward)
{
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++) {
        if (k->tokens[r] < 0)
            continue;
        size_t row = (size_t)(k->slot ? k->slot[k->tokens[r]] : k->tokens[r]);
        for (size_t i = 0; i < k->width; i++)
            k->gradient[row * k->width + i] += k->dy[r * k->width + i];
    }
    return EXO_OK;
}

KERNEL(positions)
{
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++)
        for (size_t i = 0; i < k->width; i++)
            k->y[r * k->width + i] =
                k->x[r * k->width + i] + k->table[(k->first + r % k->sequence) * k->width + i];
    return EXO_OK;
}

KERNEL(positions_backward)
{
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++)
        for (size_t i = 0; i < k->width; i++)
            k->gradient[(k->first + r % k->sequence) * k->width + i] += k->dy[r * k->width + i];
    return EXO_OK;
}

/* --- Norms ------------------------------------------------------------------------------------ */

KERNEL(row_norm)
{
    size_t width = k->shape.width;
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->shape.rows; r++) {
        const float *x = k->x + r * width;
        double mean = 0, squares = 0;
        for (size_t i = 0; i < width; i++)
            mean += k->centered ? (double)x[i] / (double)width : 0;
        for (size_t i = 0; i < width; i++)
            squares += ((double)x[i] - mean) * ((double)x[i] - mean);
        double inverse = 1 / sqrt(squares / (double)width + (double)k->eps);
        for (size_t i = 0; i < width; i++)
            exo_ref_store(k->dtype, k->y, r * width + i,
                          (float)(((double)x[i] - mean) * inverse * (double)k->weight[i] +
                                  (k->bias ? (double)k->bias[i] : 0)),
                          false);
        if (k->centered)
            k->mean[r] = (float)mean;
        k->inverse[r] = (float)inverse;
    }
    return EXO_OK;
}

KERNEL(row_norm_backward)
{
    size_t width = k->shape.width;
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->shape.rows; r++) {
        double mean = k->centered ? (double)k->mean[r] : 0, inverse = (double)k->inverse[r],
               g_mean = 0, gx_mean = 0;
        for (size_t i = 0; i < width; i++) {
            double g = (double)exo_ref_load(k->dtype, k->dy, r * width + i) * (double)k->weight[i];
            double x = ((double)k->x[r * width + i] - mean) * inverse;
            g_mean += k->centered ? g / (double)width : 0;
            gx_mean += g * x / (double)width;
        }
        for (size_t i = 0; i < width; i++) {
            double dy = (double)exo_ref_load(k->dtype, k->dy, r * width + i);
            double x = ((double)k->x[r * width + i] - mean) * inverse;
            double dx = (dy * (double)k->weight[i] - g_mean - x * gx_mean) * inverse;
            exo_ref_store(EXO_F32, k->dx, r * width + i, (float)dx, k->add);
            if (k->rounded)
                exo_ref_store(EXO_BF16, k->rounded, r * width + i, k->dx[r * width + i], false);
            if (k->dweight)
                k->dweight[i] += (float)(dy * x);
            if (k->dbias)
                k->dbias[i] += (float)dy;
        }
    }
    return EXO_OK;
}

/* kept: mean, scale, shift and inverse of each channel: y = scale x + shift. */
KERNEL(batch_norm)
{
    size_t channels = k->shape.channels, rows = k->shape.samples * k->rows;
    (void)device;
    (void)err;
    for (size_t c = 0; c < channels; c++) {
        double mean = 0, squares = 0, count = (double)rows;
        for (size_t r = 0; r < rows; r++)
            mean += (double)exo_ref_load(k->dtype, k->x, r * channels + c) / count;
        for (size_t r = 0; r < rows; r++)
            squares += pow((double)exo_ref_load(k->dtype, k->x, r * channels + c) - mean, 2);
        if (k->train && k->move) {
            double unbiased = count > 1 ? squares / (count - 1) : squares / count;
            k->running_mean[c] = (1 - k->momentum) * k->running_mean[c] + k->momentum * (float)mean;
            k->running_var[c] =
                (1 - k->momentum) * k->running_var[c] + k->momentum * (float)unbiased;
        }
        double variance = k->train ? squares / count : (double)k->running_var[c];
        double center = k->train ? mean : (double)k->running_mean[c];
        double inverse = 1 / sqrt(variance + (double)k->eps),
               scale = (double)k->weight[c] * inverse;
        double shift = (double)k->bias[c] - center * scale;
        float *kept = k->kept + c;
        kept[0] = (float)center;
        kept[channels] = (float)scale;
        kept[2 * channels] = (float)shift;
        kept[3 * channels] = (float)inverse;
        for (size_t r = 0; r < rows; r++) {
            double y = (double)exo_ref_load(k->dtype, k->x, r * channels + c) * scale + shift;
            exo_ref_store(k->dtype, k->y, r * channels + c, (float)(k->relu && y < 0 ? 0 : y),
                          false);
        }
    }
    return EXO_OK;
}

KERNEL(batch_norm_backward)
{
    size_t channels = k->shape.channels, rows = k->shape.samples * k->rows;
    (void)device;
    (void)err;
    for (size_t c = 0; c < channels; c++) {
        const float *kept = k->kept + c;
        double mean = (double)kept[0], scale = (double)kept[channels],
               shift = (double)kept[2 * channels], inverse = (double)kept[3 * channels], sum = 0,
               product = 0;
        for (int pass = 0; pass < 2; pass++)
            for (size_t r = 0; r < rows; r++) {
                double x = (double)exo_ref_load(k->dtype, k->x, r * channels + c);
                double dy = (double)exo_ref_load(k->dtype, k->dy, r * channels + c);
                dy = k->relu && (float)scale * (float)x + (float)shift <= 0 ? 0 : dy;
                double normal = (x - mean) * inverse;
                if (pass == 0) {
                    sum += dy;
                    product += dy * normal;
                } else if (k->dx) {
                    double rest = k->train ? (sum + normal * product) / (double)rows : 0;
                    exo_ref_store(k->dtype, k->dx, r * channels + c, (float)(scale * (dy - rest)),
                                  k->add);
                }
            }
        if (k->dweight)
            k->dweight[c] = (k->add_weight ? k->dweight[c] : 0) + (float)product;
        if (k->dbias)
            k->dbias[c] = (k->add_bias ? k->dbias[c] : 0) + (float)sum;
    }
    return EXO_OK;
}

/* --- Linear layers ---------------------------------------------------------------------------- */

KERNEL(linear)
{
    const exo_linear_shape *s = &exo_ref_plan_of(k->plan)->linear;
    exo_dtype dtype = (exo_dtype)s->dtype;
    (void)device;
    (void)err;
    for (size_t r = 0; r < s->rows; r++)
        for (size_t o = 0; o < s->out; o++) {
            double sum = k->bias ? (double)k->bias[o] : 0;
            for (size_t i = 0; i < s->in; i++)
                sum += exo_ref_operand(dtype, EXO_E4M3, k->x_scale, k->x, r * s->in + i) *
                       exo_ref_operand(dtype, EXO_E4M3, k->weight_scale, k->weight, o * s->in + i);
            if (k->residual)
                sum += (double)k->residual[r * s->out + o];
            if (k->before)
                exo_ref_store(dtype, k->before, r * s->out + o, (float)sum, false);
            exo_ref_store((exo_dtype)s->out_dtype, k->y, r * s->out + o,
                          (float)exo_ref_activation(k->activation, sum), false);
        }
    return EXO_OK;
}

KERNEL(linear_grad_x)
{
    const exo_linear_shape *s = &exo_ref_plan_of(k->plan)->linear;
    exo_dtype dtype = (exo_dtype)s->dtype;
    (void)device;
    (void)err;
    for (size_t r = 0; r < s->rows; r++)
        for (size_t i = 0; i < s->in; i++) {
            double sum = 0;
            for (size_t o = 0; o < s->out; o++)
                sum += exo_ref_operand(dtype, EXO_E5M2, k->dy_scale, k->dy, r * s->out + o) *
                       exo_ref_operand(dtype, EXO_E4M3, k->weight_scale, k->weight,
                                       s->fp8 ? i * s->out + o : o * s->in + i);
            if (k->before)
                sum *= exo_ref_activation_slope(
                    k->activation, (double)exo_ref_load(dtype, k->before, r * s->in + i));
            exo_ref_store(dtype, k->dx, r * s->in + i, (float)sum, false);
        }
    return EXO_OK;
}

KERNEL(linear_grad_w)
{
    const exo_linear_shape *s = &exo_ref_plan_of(k->plan)->linear;
    exo_dtype dtype = (exo_dtype)s->dtype;
    (void)device;
    (void)err;
    for (size_t o = 0; o < s->out; o++)
        for (size_t i = 0; i < s->in; i++) {
            double sum = (double)k->dw[o * s->in + i];
            for (size_t r = 0; r < s->rows; r++)
                sum += exo_ref_operand(dtype, EXO_E5M2, k->dy_scale, k->dy,
                                       s->fp8 ? o * s->rows + r : r * s->out + o) *
                       exo_ref_operand(dtype, EXO_E4M3, k->x_scale, k->x,
                                       s->fp8 ? i * s->rows + r : r * s->in + i);
            k->dw[o * s->in + i] = (float)sum;
        }
    for (size_t o = 0; k->db && o < s->out; o++) {
        double sum = 0;
        for (size_t r = 0; r < s->rows; r++)
            sum += (double)exo_ref_load(dtype, k->dy, r * s->out + o);
        k->db[o] += (float)sum;
    }
    return EXO_OK;
}

KERNEL(lora_merge)
{
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++)
        for (size_t c = 0; c < k->columns; c++) {
            float sum = 0;
            for (size_t i = 0; i < k->rank; i++) {
                float product = k->b[r * k->rank + i] * k->a[i * k->columns + c];
                sum += product;
            }
            k->y[r * k->columns + c] = k->x[r * k->columns + c] + k->scale * sum;
        }
    return EXO_OK;
}

KERNEL(column_sums)
{
    (void)device;
    (void)err;
    for (size_t c = 0; c < k->columns; c++) {
        double sum = 0;
        for (size_t r = 0; r < k->rows; r++)
            sum += (double)exo_ref_load(k->dtype, k->x, r * k->columns + c);
        k->y[c] = (k->add ? k->y[c] : 0) + (float)sum;
    }
    return EXO_OK;
}

KERNEL(activation_backward)
{
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++) {
        double slope =
            exo_ref_activation_slope(k->activation, (double)exo_ref_load(k->dtype, k->x, i));
        exo_ref_store(k->dtype, k->dx, i, (float)((double)exo_ref_load(k->dtype, k->dy, i) * slope),
                      false);
    }
    return EXO_OK;
}

/* --- Convolutions ----------------------------------------------------------------------------- */

/* The pixel of x that place (r, c) of the kernel has at (h, w) of y; false: outside. */
static bool
pixel_of(const exo_conv_shape *s, size_t h, size_t r, size_t w, size_t c, size_t *pixel)
{
    size_t y = h * s->stride + r, x = w * s->stride + c;
    if (y < s->padding || x < s->padding || y - s->padding >= s->height ||
        x - s->padding >= s->width)
        return false;
    *pixel = (y - s->padding) * s->width + x - s->padding;
    return true;
}

/* Calls `visit` for each product of an output, an input and a weight. */
static void
each_product(const exo_conv_shape *s, const void *context,
             void (*visit)(const void *context, const exo_conv_shape *s, size_t y, size_t x,
                           size_t weight))
{
    for (size_t n = 0; n < s->batch; n++)
        for (size_t h = 0; h < s->out_height; h++)
            for (size_t w = 0; w < s->out_width; w++)
                for (size_t o = 0; o < s->out_channels; o++)
                    for (size_t i = 0; i < s->in_channels; i++)
                        for (size_t r = 0; r < s->kernel_height; r++)
                            for (size_t c = 0; c < s->kernel_width; c++) {
                                size_t pixel, y = ((n * s->out_height + h) * s->out_width + w) *
                                                      s->out_channels +
                                                  o;
                                if (pixel_of(s, h, r, w, c, &pixel))
                                    visit(context, s, y,
                                          (n * s->height * s->width + pixel) * s->in_channels + i,
                                          ((o * s->in_channels + i) * s->kernel_height + r) *
                                                  s->kernel_width +
                                              c);
                            }
}

static void
add_forward(const void *context, const exo_conv_shape *s, size_t y, size_t x, size_t weight)
{
    const exo_conv_args *k = context;
    exo_ref_store((exo_dtype)s->dtype, k->y, y,
                  exo_ref_load((exo_dtype)s->dtype, k->x, x) * k->weight[weight], true);
}

/* Of fp32, in float: the sums are short. */
KERNEL(conv)
{
    const exo_conv_shape *s = &exo_ref_plan_of(k->plan)->conv;
    size_t outputs = s->batch * s->out_height * s->out_width;
    (void)device;
    (void)err;
    for (size_t i = 0; i < outputs * s->out_channels; i++)
        exo_ref_store((exo_dtype)s->dtype, k->y, i, k->bias ? k->bias[i % s->out_channels] : 0,
                      false);
    each_product(s, k, add_forward);
    ((exo_ref_plan *)(void *)k->plan)->weight = k->weight;
    return EXO_OK;
}

struct conv_backward {
    const exo_conv_backward_args *k;
    const float *weight;
};

static void
add_backward(const void *context, const exo_conv_shape *s, size_t y, size_t x, size_t weight)
{
    const struct conv_backward *b = context;
    const exo_conv_backward_args *k = b->k;
    exo_dtype dtype = (exo_dtype)s->dtype;
    float dy = exo_ref_load(dtype, k->dy, y);
    if (k->dx)
        exo_ref_store(dtype, k->dx, x, dy * b->weight[weight], true);
    if (k->dweight)
        k->dweight[weight] += dy * exo_ref_load(dtype, k->x, x);
}

KERNEL(conv_backward)
{
    const exo_ref_plan *plan = exo_ref_plan_of(k->plan);
    const exo_conv_shape *s = &plan->conv;
    exo_dtype dtype = (exo_dtype)s->dtype;
    (void)device;
    (void)err;
    for (size_t i = 0; k->dx && i < s->batch * s->height * s->width * s->in_channels; i++)
        exo_ref_store(dtype, k->dx, i, 0, false);
    each_product(s, &(struct conv_backward){.k = k, .weight = plan->weight}, add_backward);
    for (size_t i = 0; k->dbias && i < s->batch * s->out_height * s->out_width * s->out_channels;
         i++)
        k->dbias[i % s->out_channels] += exo_ref_load(dtype, k->dy, i);
    return EXO_OK;
}
