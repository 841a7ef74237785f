/* Generation as its definition reads: one row after the other, sums in double. Weights are kept as
 * floats with the values that their format gives. No state but that of the arrays.
 *
 * The cache of a sequence is (layers, context, 2, G D): keys after rotary positions, and values.
 * The scratch is the residual stream (rows, W). */
#include "nn/ref/ref_decoder.h"

#include <math.h>
#include <string.h>

#include <exogym/memory.h>

#include "nn/ref/ref_kernels.h"
#include "nn/ref/ref_plans.h"
#include "nn/ref/ref_sequence.h"

enum {
    GROUP = 128, /* inputs that share a scale */
    SPACINGS = 12,
    MAX_WIDTH = 4096 /* the widest row */
};

/* --- Sizes ------------------------------------------------------------------------------------ */

static size_t
kept_width(const exo_decoder_spec *s) /* of a token's keys, or values, in a layer */
{
    return s->kv_heads * s->head_width;
}

static size_t
cache_floats(const exo_decoder_shape *shape)
{
    return shape->spec.layers * shape->context * 2 * kept_width(&shape->spec);
}

static size_t
numel(const exo_decoder_entry *p)
{
    return p->dims[0] * (p->num_dims > 1 ? p->dims[1] : 1);
}

/* The floats before a parameter in the weights, which keep all parameters in their order. */
static size_t
place(const exo_decoder_spec *s, size_t index)
{
    exo_decoder_entry p;
    size_t before = 0;
    for (size_t i = 0; i < index && exo_decoder_entry_at(s, i, &p); i++)
        before += numel(&p);
    return before;
}

size_t
exo_ref_decoder_scratch(const exo_decoder_shape *shape, exo_scratch_use use)
{
    switch (use) {
    case EXO_SCRATCH_FORWARD:
        return shape->rows * shape->spec.width * sizeof(float);
    case EXO_SCRATCH_WEIGHTS:
        return place(&shape->spec, SIZE_MAX) * sizeof(float);
    case EXO_SCRATCH_CACHE:
        return cache_floats(shape) * sizeof(float);
    case EXO_SCRATCH_BACKWARD:
    case EXO_SCRATCH_ROWS:
    case EXO_SCRATCH_LOGITS:
    case EXO_SCRATCH_CHOICE:
        break;
    }
    return 0;
}

/* The values of a parameter; NULL: the decoder has none. */
static const float *
find(const exo_decoder_spec *s, const float *weights, exo_decoder_role role, size_t block,
     bool bias)
{
    exo_decoder_entry p;
    size_t before = 0;
    for (size_t i = 0; exo_decoder_entry_at(s, i, &p); i++) {
        if (p.role == role && p.block == block && p.bias == bias)
            return weights + before;
        before += numel(&p);
    }
    return NULL;
}

/* --- Formats of weights ----------------------------------------------------------------------- */

static float
level(float x, float lowest, float inverse, float most)
{
    return fminf(fmaxf(rintf((x - lowest) * inverse), 0), most);
}

/* w = s q, s = max |w| / 127. */
static void
group_int8(const float *w, size_t count, float *out)
{
    float largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(w[i]));
    for (size_t i = 0; i < count; i++)
        out[i] = largest > 0 ? largest / 127 * rintf(w[i] * (127 / largest)) : 0;
}

/* The least-squares line through (q, w), where q are the levels of a spacing. Returns the squared
 * error. The order of the operations is part of the format. */
static float
fit_line(const float *w, size_t count, float from, float inverse, float *s, float *m)
{
    float q = 0, qq = 0, sum = 0, qw = 0, n = (float)count, error = 0;
    for (size_t i = 0; i < count; i++) {
        float x = level(w[i], from, inverse, 15);
        q += x;
        qq += x * x;
        sum += w[i];
        qw += x * w[i];
    }
    *s = n * qq - q * q > 0 ? (n * qw - q * sum) / (n * qq - q * q) : 0;
    *m = (sum - *s * q) / n;
    for (size_t i = 0; i < count; i++) {
        float d = *s * level(w[i], from, inverse, 15) + *m - w[i];
        error += d * d;
    }
    return error;
}

/* w = s q + m: the best of the spacings from the whole range down to 78 % of it. */
static void
group_int4(const float *w, size_t count, float *out)
{
    float lowest = w[0], highest = w[0], best = INFINITY, scale = 0, minimum = 0;
    for (size_t i = 0; i < count; i++) {
        lowest = fminf(lowest, w[i]);
        highest = fmaxf(highest, w[i]);
    }
    float range = highest - lowest, inverse = 15 / range;
    if (!(range > 0)) {
        for (size_t i = 0; i < count; i++)
            out[i] = w[0];
        return;
    }
    for (int i = 0; i < SPACINGS; i++) {
        float share = 1.0f - 0.02f * (float)i, s, m;
        float error = fit_line(w, count, lowest + range * (1 - share) / 2, inverse / share, &s, &m);
        if (error < best && s > 0) {
            best = error;
            scale = s;
            minimum = m;
        }
    }
    if (!(scale > 0)) {
        scale = range / 15;
        minimum = lowest;
    }
    for (size_t i = 0; i < count; i++)
        out[i] = scale * level(w[i], minimum, 1 / scale, 15) + minimum;
}

exo_status
exo_reference_decoder_pack(exo_device *device, const exo_decoder_pack_args *k, exo_err *err)
{
    const exo_decoder_shape *shape = &exo_ref_plan_of(k->plan)->decoder;
    float *out = (float *)k->weights + place(&shape->spec, k->parameter);
    exo_decoder_entry p;
    (void)device;
    (void)err;
    exo_decoder_entry_at(&shape->spec, k->parameter, &p);
    bool matrix = p.num_dims == 2 && p.role != EXO_DECODER_POSITION,
         end = p.role == EXO_DECODER_EMBEDDING || p.role == EXO_DECODER_HEAD;
    if (shape->format == EXO_WEIGHTS_F32 || !matrix) {
        memcpy(out, k->values, numel(&p) * sizeof *out);
        return EXO_OK;
    }
    for (size_t r = 0; r < p.dims[0]; r++)
        for (size_t i = 0; i < p.dims[1]; i += GROUP) {
            size_t at = r * p.dims[1] + i, count = p.dims[1] - i < GROUP ? p.dims[1] - i : GROUP;
            if (shape->format == EXO_WEIGHTS_INT8 || end)
                group_int8(k->values + at, count, out + at);
            else
                group_int4(k->values + at, count, out + at);
        }
    return EXO_OK;
}

/* --- A row ------------------------------------------------------------------------------------ */

/* The numbers of a row under way. */
struct row {
    const exo_decoder_shape *shape;
    const float *weights;
    float *cache; /* of its sequence */
    size_t position, block;
    float x[MAX_WIDTH], h[MAX_WIDTH], wide[4 * MAX_WIDTH], mixed[MAX_WIDTH];
};

static void
norm(const struct row *r, exo_decoder_role role, const float *x, float *y)
{
    const exo_decoder_spec *s = &r->shape->spec;
    exo_ref_row_norm_forward(1, s->width, s->norm == EXO_NORM_LAYER, s->norm_eps, x,
                             find(s, r->weights, role, r->block, false),
                             find(s, r->weights, role, r->block, true), y);
}

/* The inputs of a product with quantized weights: x = s q, s = max |x| / 32767 of each group. */
static void
round_inputs(const struct row *r, float *x, size_t count)
{
    for (size_t first = 0; r->shape->format != EXO_WEIGHTS_F32 && first < count; first += GROUP) {
        size_t end = count - first < GROUP ? count : first + GROUP;
        float largest = 0;
        for (size_t i = first; i < end; i++)
            largest = fmaxf(largest, fabsf(x[i]));
        for (size_t i = first; largest > 0 && i < end; i++)
            x[i] = largest / 32767 * rintf(x[i] * (32767 / largest));
    }
}

/* y (outputs) = x W^T + bias; x is rounded first. */
static void
linear(const struct row *r, exo_decoder_role role, float *x, size_t inputs, size_t outputs,
       float *y)
{
    const exo_decoder_spec *s = &r->shape->spec;
    const float *w = find(s, r->weights, role, r->block, false),
                *bias = find(s, r->weights, role, r->block, true);
    round_inputs(r, x, inputs);
    for (size_t o = 0; o < outputs; o++) {
        double sum = 0;
        for (size_t i = 0; i < inputs; i++)
            sum += (double)w[o * inputs + i] * (double)x[i];
        y[o] = (float)(sum + (bias ? (double)bias[o] : 0));
    }
}

/* The angle of elements i and i + D / 2 at a position (exo_rope_scaling). */
static double
angle(const exo_decoder_spec *s, size_t i, size_t position)
{
    const exo_rope_scaling *c = &s->rope_scaling;
    double f = pow((double)s->rope_theta, -2.0 * (double)i / (double)s->head_width);
    double turns = (double)c->original_context * f / (2 * 3.14159265358979323846),
           low = (double)c->low_freq_factor, high = (double)c->high_freq_factor;
    if (c->factor > 0 && (c->linear || turns < low)) {
        f /= (double)c->factor;
    } else if (c->factor > 0 && turns <= high) {
        double smooth = (turns - low) / (high - low);
        f = (1 - smooth) * f / (double)c->factor + smooth * f;
    }
    return (double)position * (double)(float)f;
}

static double
slope(const exo_decoder_spec *s, size_t head)
{
    size_t power = 1;
    if (s->position != EXO_POSITION_ALIBI)
        return 0;
    while (2 * power <= s->heads)
        power *= 2;
    return head < power ? pow(2, -8.0 * (double)(head + 1) / (double)power)
                        : pow(2, -4.0 * (double)(2 * (head - power) + 1) / (double)power);
}

static void
rotate(const exo_decoder_spec *s, float *head, size_t position)
{
    size_t half = s->head_width / 2;
    for (size_t i = 0; i < half; i++) {
        double c = cos(angle(s, i, position)), n = sin(angle(s, i, position));
        double a = (double)head[i], b = (double)head[i + half];
        head[i] = (float)(a * c - b * n);
        head[i + half] = (float)(b * c + a * n);
    }
}

/* The keys of a position in the row's layer; its values follow. */
static float *
keys_of(const struct row *r, size_t position)
{
    return r->cache + (r->block * r->shape->context + position) * 2 * kept_width(&r->shape->spec);
}

static void
attend(struct row *r, size_t head)
{
    const exo_decoder_spec *s = &r->shape->spec;
    size_t width = s->head_width, kept = kept_width(s),
           at = head / (s->heads / s->kv_heads) * width;
    double sum = 0, peak = -INFINITY, total[MAX_WIDTH] = {0};
    for (int round = 0; round < 2; round++) /* the largest score, then the weights */
        for (size_t j = 0; j <= r->position; j++) {
            const float *key = keys_of(r, j) + at;
            double score = 0;
            for (size_t i = 0; i < width; i++)
                score += (double)r->wide[head * width + i] * (double)key[i];
            score =
                score / sqrt((double)width) + slope(s, head) * ((double)j - (double)r->position);
            peak = round == 0 ? fmax(peak, score) : peak;
            double weight = round == 0 ? 0 : exp(score - peak);
            sum += weight;
            for (size_t i = 0; i < width; i++)
                total[i] += weight * (double)key[kept + i];
        }
    for (size_t i = 0; i < width; i++)
        r->mixed[head * width + i] = (float)(total[i] / sum);
}

/* The RMS norms of `count` heads, in place. */
static void
norm_heads(const struct row *r, exo_decoder_role role, size_t count, float *heads)
{
    const exo_decoder_spec *s = &r->shape->spec;
    const float *weight = find(s, r->weights, role, r->block, false);
    for (size_t h = 0; weight && h < count; h++, heads += s->head_width) {
        double square = 0;
        for (size_t i = 0; i < s->head_width; i++)
            square += (double)heads[i] * (double)heads[i] / (double)s->head_width;
        for (size_t i = 0; i < s->head_width; i++)
            heads[i] =
                (float)((double)heads[i] / sqrt(square + (double)s->norm_eps) * (double)weight[i]);
    }
}

static void
attention(struct row *r)
{
    const exo_decoder_spec *s = &r->shape->spec;
    size_t width = s->head_width, kept = kept_width(s);
    norm(r, EXO_DECODER_NORM1, r->x, r->h);
    linear(r, EXO_DECODER_QKV, r->h, s->width, (s->heads + 2 * s->kv_heads) * width, r->wide);
    norm_heads(r, EXO_DECODER_Q_NORM, s->heads, r->wide);
    norm_heads(r, EXO_DECODER_K_NORM, s->kv_heads, r->wide + s->heads * width);
    for (size_t h = 0; s->position == EXO_POSITION_ROTARY && h < s->heads + s->kv_heads; h++)
        rotate(s, r->wide + h * width, r->position);
    memcpy(keys_of(r, r->position), r->wide + s->heads * width, 2 * kept * sizeof(float));
    for (size_t h = 0; h < s->heads; h++)
        attend(r, h);
    linear(r, EXO_DECODER_OUT, r->mixed, s->heads * width, s->width, r->h);
    for (size_t i = 0; i < s->width; i++)
        r->x[i] += r->h[i];
}

static void
mlp(struct row *r)
{
    const exo_decoder_spec *s = &r->shape->spec;
    norm(r, EXO_DECODER_NORM2, r->x, r->h);
    linear(r, EXO_DECODER_UP, r->h, s->width, s->inner * (s->gated ? 2 : 1), r->wide);
    for (size_t i = 0; i < s->inner; i++)
        r->wide[i] = (float)(exo_ref_activation(s->activation, (double)r->wide[i]) *
                             (s->gated ? (double)r->wide[s->inner + i] : 1));
    linear(r, EXO_DECODER_DOWN, r->wide, s->inner, s->width, r->h);
    for (size_t i = 0; i < s->width; i++)
        r->x[i] += r->h[i];
}

/* --- Kernels ---------------------------------------------------------------------------------- */

static exo_status
row_new(struct row **out, const exo_decoder_shape *shape, const void *weights, exo_err *err)
{
    const exo_decoder_spec *s = &shape->spec;
    size_t all = (s->heads + 2 * s->kv_heads) * s->head_width, up = s->inner * (s->gated ? 2 : 1);
    if (s->width > MAX_WIDTH || all > 4 * MAX_WIDTH || up > 4 * MAX_WIDTH ||
        s->heads * s->head_width > MAX_WIDTH)
        return exo_fail(err, EXO_UNSUPPORTED, "the reference takes rows of at most %d numbers",
                        MAX_WIDTH);
    *out = exo_calloc(1, sizeof **out);
    if (!*out)
        return exo_fail(err, EXO_NOMEM, "no memory for a row");
    (*out)->shape = shape;
    (*out)->weights = weights;
    return EXO_OK;
}

exo_status
exo_reference_decoder_pass(exo_device *device, const exo_decoder_pass_args *k, exo_err *err)
{
    const exo_decoder_shape *shape = &exo_ref_plan_of(k->plan)->decoder;
    const exo_decoder_spec *s = &shape->spec;
    struct row *r = NULL;
    (void)device;
    exo_status st = row_new(&r, shape, k->weights, err);
    for (size_t row = 0; st == EXO_OK && row < k->rows; row++) {
        const float *embedding = find(s, r->weights, EXO_DECODER_EMBEDDING, 0, false),
                    *position = find(s, r->weights, EXO_DECODER_POSITION, 0, false);
        r->position = (size_t)k->positions[row];
        r->cache = (float *)k->caches + (size_t)k->sequences[row] * cache_floats(shape);
        r->block = 0;
        for (size_t i = 0; i < s->width; i++)
            r->x[i] = embedding[(size_t)k->tokens[row] * s->width + i] +
                      (position ? position[(r->position + s->position_offset) * s->width + i] : 0);
        memcpy(r->h, r->x, s->width * sizeof(float));
        if (s->embedding_norm)
            norm(r, EXO_DECODER_EMBEDDING_NORM, r->h, r->x);
        for (; r->block < s->layers; r->block++) {
            attention(r);
            mlp(r);
        }
        memcpy((float *)k->scratch + row * s->width, r->x, s->width * sizeof(float));
    }
    exo_free(r);
    return st;
}

exo_status
exo_reference_decoder_logits(exo_device *device, const exo_decoder_logits_args *k, exo_err *err)
{
    const exo_decoder_shape *shape = &exo_ref_plan_of(k->plan)->decoder;
    const exo_decoder_spec *s = &shape->spec;
    size_t pitch = (s->vocabulary + EXO_DECODER_PITCH - 1) / EXO_DECODER_PITCH * EXO_DECODER_PITCH;
    struct row *r = NULL;
    (void)device;
    exo_status st = row_new(&r, shape, k->weights, err);
    for (size_t row = 0; st == EXO_OK && row < k->rows; row++) {
        norm(r, EXO_DECODER_NORM, (const float *)k->scratch + (size_t)k->which[row] * s->width,
             r->h);
        linear(r, s->tied ? EXO_DECODER_EMBEDDING : EXO_DECODER_HEAD, r->h, s->width, s->vocabulary,
               k->logits + row * pitch);
    }
    exo_free(r);
    return st;
}
