/* Small decoders: see small_decoders.h. Shares no code with the decoders under test. */
#include "support/small_decoders.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/model.h>

static void
make_llama(exo_decoder_spec *s)
{
    strcpy(s->family, "llama");
    s->position = EXO_POSITION_ROTARY;
    s->norm = EXO_NORM_RMS;
    s->norm_eps = 1e-6f;
    s->activation = EXO_SILU;
    s->gated = true;
    s->attention_qkv_bias = s->attention_out_bias = s->mlp_bias = s->tied = false;
}

static void
make_odd(exo_decoder_spec *s)
{
    s->position = EXO_POSITION_ROTARY;
    s->activation = EXO_GELU;
    s->vocabulary = 131;
    s->layers = 3;
    s->heads = 3;
    s->kv_heads = 1;
    s->head_width = 18;
    s->width = 29;
    s->inner = 151;
    s->attention_qkv_bias = false;
    s->tied = false;
    s->rope_scaling = (exo_rope_scaling){.factor = 2, .linear = true};
}

static void
make_qwen3(exo_decoder_spec *s)
{
    make_llama(s);
    strcpy(s->family, "qwen3");
    s->kv_heads = 2;
    s->width = 24;
    s->head_width = 20;
    s->tied = true;
    s->rope_theta = 1000000.0f;
}

exo_decoder_spec
small_decoder_spec(int kind)
{
    exo_decoder_spec s = {.family = "gpt2",
                          .vocabulary = 160,
                          .context = 48,
                          .layers = 2,
                          .heads = 4,
                          .kv_heads = 4,
                          .width = 32,
                          .head_width = 8,
                          .inner = 64,
                          .position = EXO_POSITION_LEARNED,
                          .norm = EXO_NORM_LAYER,
                          .norm_eps = 1e-5f,
                          .activation = EXO_GELU_TANH,
                          .attention_qkv_bias = true,
                          .attention_out_bias = true,
                          .mlp_bias = true,
                          .tied = true,
                          .rope_theta = 10000.0f};
    if (kind == 1) {
        strcpy(s.family, "opt");
        s.activation = EXO_RELU;
        s.position_offset = 2;
    } else if (kind == 2) {
        strcpy(s.family, "bloom");
        s.position = EXO_POSITION_ALIBI;
        s.embedding_norm = true;
        s.heads = s.kv_heads = 6;
        s.width = 48;
    } else if (kind == 3 || kind == 4) {
        make_llama(&s);
    } else if (kind == 5) {
        make_odd(&s);
    } else if (kind == 6) {
        make_qwen3(&s);
    }
    if (kind == 4) {
        s.heads = 8;
        s.kv_heads = 2;
        s.rope_scaling = (exo_rope_scaling){
            .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_context = 16};
    }
    return s;
}

void
small_decoder_refill(small_decoder *d, uint64_t seed)
{
    float *values = exo_params_values(d->params);
    for (size_t i = 0; i < exo_params_count(d->params); i++) {
        const exo_param_info *p = exo_params_info(d->params, i);
        bool norm = strstr(p->name, "norm") && strstr(p->name, ".weight");
        float deviation = p->num_dims > 1 ? 1.2f / sqrtf((float)p->dims[1]) : 0.2f;
        if (strncmp(p->name, "embedding.", 10) == 0 || strncmp(p->name, "position.", 9) == 0)
            deviation = 0.7f;
        exo_rng rng;
        exo_rng_init(&rng, seed, EXO_RNG_USER, (uint32_t)i, 0);
        for (size_t k = 0; k < p->numel; k++)
            values[p->offset + k] = (norm ? 1.0f : 0.0f) + deviation * exo_rng_normal(&rng);
    }
}

void
small_decoder_new(small_decoder *d, const exo_decoder_spec *spec, uint64_t seed)
{
    exo_err err = {0};
    *d = (small_decoder){.spec = *spec};
    cr_assert_eq(exo_decoder_new(&d->model, spec, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_params(d->model, seed, &d->params, &err), EXO_OK, "%s", err.text);
    small_decoder_refill(d, seed);
}

void
small_decoder_free(small_decoder *d)
{
    exo_params_free(&d->params);
    exo_model_drop(&d->model);
}

void
small_decoder_tokens(const exo_decoder_spec *spec, uint64_t seed, size_t count, int32_t *tokens)
{
    exo_rng rng;
    exo_rng_init(&rng, seed, EXO_RNG_USER, 1000, 0);
    for (size_t i = 0; i < count; i++)
        tokens[i] = (int32_t)exo_rng_below(&rng, (uint32_t)spec->vocabulary);
}

/* --- The reference decoder -------------------------------------------------------------------- */

/* The values of a parameter; NULL: there is none of that name. */
static const float *
param(small_decoder *d, const char *prefix, const char *name)
{
    char wanted[96];
    snprintf(wanted, sizeof wanted, "%s%s", prefix, name);
    for (size_t i = 0; i < exo_params_count(d->params); i++) {
        const exo_param_info *p = exo_params_info(d->params, i);
        if (strcmp(p->name, wanted) == 0)
            return exo_params_values(d->params) + p->offset;
    }
    return NULL;
}

static double
activate(exo_activation a, double x)
{
    switch (a) {
    case EXO_RELU:
        return x > 0 ? x : 0;
    case EXO_GELU:
        return 0.5 * x * (1 + erf(x / sqrt(2.0)));
    case EXO_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case EXO_SILU:
        return x / (1 + exp(-x));
    default:
        return x;
    }
}

static void
norm(small_decoder *d, const char *prefix, const char *name, const double *x, double *y)
{
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    const float *weight = param(d, prefix, full);
    snprintf(full, sizeof full, "%s.bias", name);
    const float *bias = param(d, prefix, full);
    size_t width = d->spec.width;
    double mean = 0, square = 0;
    for (size_t i = 0; i < width && d->spec.norm == EXO_NORM_LAYER; i++)
        mean += x[i] / (double)width;
    for (size_t i = 0; i < width; i++)
        square += (x[i] - mean) * (x[i] - mean) / (double)width;
    for (size_t i = 0; i < width; i++)
        y[i] = (x[i] - mean) / sqrt(square + (double)d->spec.norm_eps) * (double)weight[i] +
               (bias ? (double)bias[i] : 0);
}

static void
linear(small_decoder *d, const char *prefix, const char *name, const double *x, size_t in,
       size_t out, double *y)
{
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    const float *weight = param(d, prefix, full);
    snprintf(full, sizeof full, "%s.bias", name);
    const float *bias = param(d, prefix, full);
    for (size_t o = 0; o < out; o++) {
        y[o] = bias ? (double)bias[o] : 0;
        for (size_t i = 0; i < in; i++)
            y[o] += (double)weight[o * in + i] * x[i];
    }
}

/* The RMS norms of `count` heads, in place, if the decoder has them. */
static void
norm_heads(small_decoder *d, const char *prefix, const char *name, size_t count, double *x)
{
    const float *weight = param(d, prefix, name);
    size_t width = d->spec.head_width;
    for (size_t h = 0; weight && h < count; h++, x += width) {
        double square = 0;
        for (size_t i = 0; i < width; i++)
            square += x[i] * x[i];
        for (size_t i = 0; i < width; i++)
            x[i] = x[i] / sqrt(square / (double)width + (double)d->spec.norm_eps);
        for (size_t i = 0; i < width; i++)
            x[i] *= (double)weight[i];
    }
}

/* Rotates by the angles that transformers uses. LLaMA 3's are scaled by wavelength. */
static void
rotate(const exo_decoder_spec *s, double *head, size_t position)
{
    for (size_t i = 0; i < s->head_width / 2; i++) {
        double frequency = 1 / pow((double)s->rope_theta, 2 * (double)i / (double)s->head_width);
        const exo_rope_scaling *r = &s->rope_scaling;
        double length = 2 * M_PI / frequency, factor = (double)r->factor,
               original = (double)r->original_context;
        double low = (double)r->low_freq_factor, high = (double)r->high_freq_factor;
        if (r->factor > 0 && r->linear) {
            frequency /= factor;
        } else if (r->factor > 0 && length > original / low) {
            frequency /= factor;
        } else if (r->factor > 0 && length > original / high) {
            double smooth = (original / length - low) / (high - low);
            frequency = (1 - smooth) * frequency / factor + smooth * frequency;
        }
        double c = cos((double)position * frequency), n = sin((double)position * frequency);
        double a = head[i], b = head[i + s->head_width / 2];
        head[i] = a * c - b * n;
        head[i + s->head_width / 2] = b * c + a * n;
    }
}

/* BLOOM's slopes: those of the largest power of two of heads, then every second one of twice as
 * many. */
static double
slope(size_t heads, size_t h)
{
    size_t power = (size_t)pow(2, floor(log2((double)heads)));
    double base = pow(2, -pow(2, -(log2((double)power) - 3)));
    if (h < power)
        return pow(base, (double)(h + 1));
    base = pow(2, -pow(2, -(log2(2 * (double)power) - 3)));
    return pow(base, (double)(2 * (h - power) + 1));
}

/* qkv (count, all) -> out (count, H D) */
static void
attend(const exo_decoder_spec *s, size_t count, const double *qkv, double *out)
{
    size_t D = s->head_width, all = (s->heads + 2 * s->kv_heads) * D;
    double *weights = calloc(count, sizeof *weights);
    for (size_t h = 0; h < s->heads; h++)
        for (size_t i = 0; i < count; i++) {
            size_t g = h / (s->heads / s->kv_heads);
            double sum = 0;
            for (size_t j = 0; j <= i; j++) {
                double score = 0;
                for (size_t e = 0; e < D; e++)
                    score += qkv[i * all + h * D + e] * qkv[j * all + (s->heads + g) * D + e];
                score /= sqrt((double)D);
                if (s->position == EXO_POSITION_ALIBI)
                    score += slope(s->heads, h) * ((double)j - (double)i);
                sum += weights[j] = exp(score);
            }
            for (size_t e = 0; e < D; e++) {
                double *to = &out[(i * s->heads + h) * D + e];
                *to = 0;
                for (size_t j = 0; j <= i; j++)
                    *to += weights[j] / sum * qkv[j * all + (s->heads + s->kv_heads + g) * D + e];
            }
        }
    free(weights);
}

/* Applies block `index` to x (count, W). */
static void
block(small_decoder *d, size_t index, size_t count, double *x)
{
    const exo_decoder_spec *s = &d->spec;
    size_t W = s->width, D = s->head_width, all = (s->heads + 2 * s->kv_heads) * D,
           up = s->inner * (s->gated ? 2 : 1);
    double *h = calloc(W, sizeof *h), *qkv = calloc(count * all, sizeof *qkv),
           *inner = calloc(up, sizeof *inner);
    double *mixed = calloc(count * s->heads * D, sizeof *mixed);
    char prefix[32];
    snprintf(prefix, sizeof prefix, "blocks.%zu.", index);
    for (size_t t = 0; t < count; t++) {
        norm(d, prefix, "norm1", x + t * W, h);
        linear(d, prefix, "attention.qkv", h, W, all, qkv + t * all);
        norm_heads(d, prefix, "attention.q_norm.weight", s->heads, qkv + t * all);
        norm_heads(d, prefix, "attention.k_norm.weight", s->kv_heads, qkv + t * all + s->heads * D);
        for (size_t k = 0; s->position == EXO_POSITION_ROTARY && k < s->heads + s->kv_heads; k++)
            rotate(s, qkv + t * all + k * D, t);
    }
    attend(s, count, qkv, mixed);
    for (size_t t = 0; t < count; t++) {
        linear(d, prefix, "attention.out", mixed + t * s->heads * D, s->heads * D, W, h);
        for (size_t i = 0; i < W; i++)
            x[t * W + i] += h[i];
        norm(d, prefix, "norm2", x + t * W, h);
        linear(d, prefix, "mlp.up", h, W, up, inner);
        for (size_t i = 0; i < s->inner; i++)
            inner[i] = activate(s->activation, inner[i]) * (s->gated ? inner[s->inner + i] : 1);
        linear(d, prefix, "mlp.down", inner, s->inner, W, h);
        for (size_t i = 0; i < W; i++)
            x[t * W + i] += h[i];
    }
    free(h);
    free(qkv);
    free(inner);
    free(mixed);
}

double *
small_decoder_logits(small_decoder *d, const int32_t *tokens, size_t count)
{
    const exo_decoder_spec *s = &d->spec;
    size_t W = s->width;
    double *x = calloc(count * W, sizeof *x), *h = calloc(W, sizeof *h);
    double *logits = calloc(count * s->vocabulary, sizeof *logits);
    const float *embedding = param(d, "", "embedding.weight"),
                *position = param(d, "", "position.weight");
    for (size_t t = 0; t < count; t++) {
        for (size_t i = 0; i < W; i++)
            x[t * W + i] = (double)embedding[(size_t)tokens[t] * W + i] +
                           (position ? (double)position[(t + s->position_offset) * W + i] : 0);
        memcpy(h, x + t * W, W * sizeof *h);
        if (s->embedding_norm)
            norm(d, "", "embedding_norm", h, x + t * W);
    }
    for (size_t i = 0; i < s->layers; i++)
        block(d, i, count, x);
    for (size_t t = 0; t < count; t++) {
        norm(d, "", "norm", x + t * W, h);
        linear(d, "", s->tied ? "embedding" : "head", h, W, s->vocabulary,
               logits + t * s->vocabulary);
    }
    free(x);
    free(h);
    return logits;
}
