/* Weights in panels: layout, packing and quantization. See decode.h. One thread packs a panel;
 * panels are independent. Read next: decode_product.c. */
#include "nn/cpu/decode.h"

#include <math.h>
#include <string.h>

#include "nn/cpu/attention_pack.h"

enum {
    PANEL = EXO_DECODE_PANEL,
    LINE = 64, /* the alignment of each array */
    GROUP = EXO_DECODE_GROUP,
    STRETCH = 16, /* inputs that are packed together, whole vectors */
    TRIES = 12    /* spacings that are tried for a group of int4 */
};

static size_t
pairs_of(size_t inputs)
{
    return (inputs + 1) / 2;
}

static size_t
panel_bytes(exo_decode_format format, size_t inputs)
{
    switch (format) {
    case EXO_DECODE_F32:
        return inputs * PANEL * sizeof(float);
    case EXO_DECODE_INT8:
        return pairs_of(inputs) * PANEL * 2;
    default:
        return pairs_of(inputs) * PANEL;
    }
}

static size_t
weights_size(const exo_decode_matrix *m)
{
    size_t bytes = m->panels * panel_bytes(m->format, m->inputs);
    return (bytes + LINE - 1) / LINE * LINE;
}

static size_t
scales_size(const exo_decode_matrix *m)
{
    return m->panels * m->groups * PANEL * sizeof(float);
}

exo_status
exo_decode_matrix_init(exo_decode_matrix *m, exo_decode_format format, size_t outputs,
                       size_t inputs, const char *name, exo_err *err)
{
    size_t most = SIZE_MAX / 4 / sizeof(float) / PANEL;
    if (outputs == 0 || inputs == 0 || outputs > most || inputs > most / (outputs / PANEL + 1))
        return exo_fail(err, EXO_INVAL, "%s: weights (%zu, %zu) cannot be held", name, outputs,
                        inputs);
    *m = (exo_decode_matrix){.format = format, .outputs = outputs, .inputs = inputs};
    m->panels = (outputs + PANEL - 1) / PANEL;
    m->groups = (inputs + GROUP - 1) / GROUP;
    size_t arrays = format == EXO_DECODE_F32 ? 0 : format == EXO_DECODE_INT8 ? 1 : 2;
    m->bytes = weights_size(m) + arrays * scales_size(m);
    return EXO_OK;
}

void
exo_decode_matrix_place(exo_decode_matrix *m, const void *memory)
{
    char *at = (char *)(uintptr_t)memory;
    m->weights = at;
    at += weights_size(m);
    m->scales = m->format == EXO_DECODE_F32 ? NULL : (float *)(void *)at;
    m->minima = m->format == EXO_DECODE_INT4 ? (float *)(void *)(at + scales_size(m)) : NULL;
}

/* --- One group of one output ------------------------------------------------------------------ */

/* s = max |w| / 127, q = w / s to the nearest (ties to even). A number that is not finite makes
 * the scale NaN. */
static float
quantize8(const float *w, size_t count, int8_t *q)
{
    float largest = 0, poison = 0;
    for (size_t i = 0; i < count; i++) {
        float size = fabsf(w[i]);
        largest = size > largest ? size : largest;
        poison += w[i] - w[i]; /* 0, or NaN */
    }
    float scale = largest / 127, inverse = largest > 0 ? 127 / largest : 0;
    /* NaN; or weights so small that the inverse overflows, which become 0. */
    if (poison != 0 || !(inverse <= 3.402823466e38f)) {
        memset(q, 0, count);
        return poison != 0 ? NAN : 0;
    }
    for (size_t i = 0; i < count; i++)
        q[i] = (int8_t)rintf(w[i] * inverse);
    return scale;
}

/* Rounds the weights to levels with a spacing, and fits s and m to the levels by least squares.
 * Returns the sum of squared errors. */
static float
try_spacing(const float *w, size_t count, float lowest, float inverse, float *s, float *m)
{
    float q[GROUP], sum_q = 0, sum_qq = 0, sum_w = 0, sum_qw = 0, n = (float)count;
    for (size_t i = 0; i < count; i++) {
        float level = rintf((w[i] - lowest) * inverse);
        q[i] = level < 0 ? 0 : level > 15 ? 15 : level;
    }
    for (size_t i = 0; i < count; i++) {
        sum_q += q[i];
        sum_qq += q[i] * q[i];
        sum_w += w[i];
        sum_qw += q[i] * w[i];
    }
    float spread = n * sum_qq - sum_q * sum_q;
    *s = spread > 0 ? (n * sum_qw - sum_q * sum_w) / spread : 0;
    *m = (sum_w - *s * sum_q) / n;
    float error = 0;
    for (size_t i = 0; i < count; i++) {
        float d = *s * q[i] + *m - w[i];
        error += d * d;
    }
    return error;
}

/* Takes the best of TRIES spacings, from (max - min) / 15 down to 78 % of it. The narrower ones
 * clip the ends of the range. */
static void
quantize4(const float *w, size_t count, uint8_t *q, float *scale, float *minimum)
{
    float lowest = w[0], highest = w[0], poison = 0, best = INFINITY;
    for (size_t i = 0; i < count; i++) {
        lowest = w[i] < lowest ? w[i] : lowest;
        highest = w[i] > highest ? w[i] : highest;
        poison += w[i] - w[i];
    }
    *scale = 0;
    *minimum = poison != 0 ? NAN : w[0];
    memset(q, 0, count);
    float range = highest - lowest, inverse = 15 / range;
    if (poison != 0 || !(range > 0) || !(inverse <= 3.402823466e38f))
        return;
    for (int i = 0; i < TRIES; i++) {
        float share = 1.0f - 0.02f * (float)i, s = 0, m = 0; /* of the range, around its middle */
        float from = lowest + range * (1 - share) / 2;
        float error = try_spacing(w, count, from, inverse / share, &s, &m);
        if (error < best && s > 0) {
            best = error;
            *scale = s;
            *minimum = m;
        }
    }
    if (!(*scale > 0)) {
        *scale = range / 15;
        *minimum = lowest;
    }
    float back = 1 / *scale;
    for (size_t i = 0; i < count; i++) {
        float level = rintf((w[i] - *minimum) * back);
        q[i] = (uint8_t)(level < 0 ? 0 : level > 15 ? 15 : level);
    }
}

/* --- Panels ----------------------------------------------------------------------------------- */

/* Packs 16 inputs at a time, so that the written lines stay in the cache until they are
 * complete. Whole tiles are transposed in vectors. */
static void
pack_f32(exo_decode_matrix *m, const float *w, size_t panel)
{
    float *out = (float *)m->weights + panel * m->inputs * PANEL;
    size_t first = panel * PANEL, outputs = m->outputs - first < PANEL ? m->outputs - first : PANEL;
    w += first * m->inputs;
    for (size_t from = 0; from < m->inputs; from += STRETCH) {
        size_t last = m->inputs - from < STRETCH ? m->inputs : from + STRETCH;
        if (outputs == PANEL && last - from == STRETCH) {
            exo_transpose_units(w + from, m->inputs, PANEL, STRETCH, out + from * PANEL, PANEL);
            continue;
        }
        for (size_t i = 0; i < outputs; i++)
            for (size_t k = from; k < last; k++)
                out[k * PANEL + i] = w[i * m->inputs + k];
    }
}

/* Packs group `g` of output `i` of a panel, as int8 or int4. */
static void
pack_group(exo_decode_matrix *m, const float *w, size_t panel, size_t i, size_t g)
{
    size_t first = g * GROUP, count = m->inputs - first < GROUP ? m->inputs - first : GROUP;
    size_t at = (panel * m->groups + g) * PANEL + i;
    uint8_t *out = (uint8_t *)m->weights + panel * panel_bytes(m->format, m->inputs);
    if (m->format == EXO_DECODE_INT8) {
        int8_t q[GROUP];
        m->scales[at] = quantize8(w + first, count, q);
        for (size_t k = 0; k < count; k++)
            out[(first + k) / 2 * PANEL * 2 + 2 * i + (first + k) % 2] = (uint8_t)q[k];
        return;
    }
    uint8_t q[GROUP];
    quantize4(w + first, count, q, &m->scales[at], &m->minima[at]);
    unsigned shift = i < PANEL / 2 ? 0 : 4;
    for (size_t k = 0; k < count; k++) {
        uint8_t *byte = out + (first + k) / 2 * PANEL + 2 * (i % (PANEL / 2)) + (first + k) % 2;
        *byte = (uint8_t)((*byte & ~(15u << shift)) | (unsigned)q[k] << shift);
    }
}

void
exo_decode_pack(exo_decode_matrix *m, const float *w, size_t panel)
{
    if (m->format == EXO_DECODE_F32) {
        pack_f32(m, w, panel);
        return;
    }
    for (size_t i = 0; i < PANEL && panel * PANEL + i < m->outputs; i++)
        for (size_t g = 0; g < m->groups; g++)
            pack_group(m, w + (panel * PANEL + i) * m->inputs, panel, i, g);
}

void
exo_decode_unpack(const exo_decode_matrix *m, size_t output, float *out)
{
    size_t panel = output / PANEL, i = output % PANEL;
    const uint8_t *at = (const uint8_t *)m->weights + panel * panel_bytes(m->format, m->inputs);
    for (size_t k = 0; k < m->inputs; k++) {
        size_t scale = (panel * m->groups + k / GROUP) * PANEL + i;
        if (m->format == EXO_DECODE_F32) {
            out[k] = ((const float *)(const void *)at)[k * PANEL + i];
        } else if (m->format == EXO_DECODE_INT8) {
            out[k] = m->scales[scale] * (float)(int8_t)at[k / 2 * PANEL * 2 + 2 * i + k % 2];
        } else {
            unsigned byte = at[k / 2 * PANEL + 2 * (i % (PANEL / 2)) + k % 2];
            out[k] = m->scales[scale] * (float)(i < PANEL / 2 ? byte & 15 : byte >> 4) +
                     m->minima[scale];
        }
    }
}
