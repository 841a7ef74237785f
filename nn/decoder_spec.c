/* Specs of decoders: the sizes of GPT-2, and checks. No state; any thread. Read next:
 * models/decoder.c. */
#include <exogym/decoder.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_VOCABULARY = INT32_MAX,
    MAX_CONTEXT = INT32_MAX,
    /* The limit of all widths. Products of two widths, times the layers, are far from overflow. */
    MAX_WIDTH = 1 << 22,
    MAX_LAYERS = 1 << 12,
};

static const struct size {
    const char *name;
    size_t layers, heads, width;
} sizes[] = {
    {"small", 4, 4, 128},     {"sbase", 8, 8, 512},    {"base", 12, 12, 768},
    {"medium", 24, 16, 1024}, {"large", 36, 20, 1280}, {"xl", 48, 25, 1600},
};

enum {
    NUM_SIZES = sizeof sizes / sizeof *sizes
};

exo_status
exo_decoder_size(exo_decoder_spec *out, const char *size, exo_err *err)
{
    const struct size *found = NULL;
    for (size_t i = 0; i < NUM_SIZES; i++)
        if (strcmp(sizes[i].name, size) == 0)
            found = &sizes[i];
    if (!found) {
        char known[128] = "";
        for (size_t i = 0, at = 0; i < NUM_SIZES; i++)
            at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "",
                                   sizes[i].name);
        return exo_fail(err, EXO_NOT_FOUND, "there is no GPT-2 of size '%.40s'; there are: %s",
                        size, known);
    }
    *out = (exo_decoder_spec){
        .family = "gpt2",
        .vocabulary = 50304,
        .context = 1024,
        .layers = found->layers,
        .heads = found->heads,
        .kv_heads = found->heads,
        .width = found->width,
        .head_width = found->width / found->heads,
        .inner = 4 * found->width,
        .position = EXO_POSITION_LEARNED,
        .norm = EXO_NORM_LAYER,
        .norm_eps = 1e-5f,
        .activation = EXO_GELU_TANH,
        .attention_qkv_bias = true,
        .attention_out_bias = true,
        .mlp_bias = true,
        .tied = true,
        .rope_theta = 10000.0f,
    };
    return EXO_OK;
}

static exo_status
check_range(const char *what, size_t value, size_t max, exo_err *err)
{
    if (value >= 1 && value <= max)
        return EXO_OK;
    return exo_fail(err, EXO_INVAL, "a decoder's %s must be from 1 to %zu, not %zu", what, max,
                    value);
}

static exo_status
check_sizes(const exo_decoder_spec *s, exo_err *err)
{
    const struct {
        const char *what;
        size_t value, max;
    } ranges[] = {
        {"vocabulary", s->vocabulary, MAX_VOCABULARY},
        {"context", s->context, MAX_CONTEXT},
        {"layers", s->layers, MAX_LAYERS},
        {"heads", s->heads, MAX_WIDTH},
        {"kv_heads", s->kv_heads, MAX_WIDTH},
        {"width", s->width, MAX_WIDTH},
        {"head_width", s->head_width, MAX_WIDTH},
        {"inner", s->inner, MAX_WIDTH},
    };
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < sizeof ranges / sizeof *ranges; i++)
        st = check_range(ranges[i].what, ranges[i].value, ranges[i].max, err);
    if (st != EXO_OK)
        return st;
    if (s->heads % s->kv_heads != 0)
        return exo_fail(err, EXO_INVAL, "a decoder's kv_heads must divide its heads: %zu and %zu",
                        s->kv_heads, s->heads);
    if (s->heads * s->head_width > MAX_WIDTH)
        return exo_fail(
            err, EXO_INVAL,
            "a decoder has %zu heads of %zu elements; expected at most %d elements in all",
            s->heads, s->head_width, MAX_WIDTH);
    if (s->position_offset > MAX_WIDTH ||
        (s->position_offset > 0 && s->position != EXO_POSITION_LEARNED))
        return exo_fail(
            err, EXO_INVAL,
            "a decoder's position_offset needs learned positions and is at most %d, not %zu",
            MAX_WIDTH, s->position_offset);
    return EXO_OK;
}

static exo_status
check_rope(const exo_decoder_spec *s, exo_err *err)
{
    const exo_rope_scaling *r = &s->rope_scaling;
    if (s->position != EXO_POSITION_ROTARY)
        return r->factor == 0.0f ? EXO_OK
                                 : exo_fail(err, EXO_INVAL, "rope_scaling needs rotary positions");
    if (s->head_width % 2 != 0)
        return exo_fail(err, EXO_INVAL, "rotary positions need an even head_width, not %zu",
                        s->head_width);
    if (!(s->rope_theta > 0.0f) || !isfinite(s->rope_theta))
        return exo_fail(err, EXO_INVAL, "rope_theta must be above 0, not %g",
                        (double)s->rope_theta);
    if (r->factor == 0.0f)
        return EXO_OK;
    if (!(r->factor >= 1.0f) || !isfinite(r->factor))
        return exo_fail(err, EXO_INVAL, "rope_scaling's factor must be at least 1, not %g",
                        (double)r->factor);
    if (!r->linear &&
        (!(r->low_freq_factor > 0.0f) || !(r->high_freq_factor > r->low_freq_factor) ||
         !isfinite(r->high_freq_factor) || r->original_context == 0))
        return exo_fail(err, EXO_INVAL,
                        "rope_scaling of LLaMA 3 needs 0 < low_freq_factor < high_freq_factor and "
                        "an original context: "
                        "not %g, %g and %zu",
                        (double)r->low_freq_factor, (double)r->high_freq_factor,
                        r->original_context);
    return EXO_OK;
}

exo_status
exo_decoder_check(const exo_decoder_spec *spec, exo_err *err)
{
    if (!memchr(spec->family, '\0', sizeof spec->family))
        return exo_fail(err, EXO_INVAL, "a decoder's family is longer than %zu letters",
                        sizeof spec->family - 1);
    if (spec->position > EXO_POSITION_ALIBI || spec->norm > EXO_NORM_RMS ||
        spec->activation > EXO_SILU)
        return exo_fail(err, EXO_INVAL,
                        "a decoder's position, norm or activation is unknown: %d, %d, %d",
                        (int)spec->position, (int)spec->norm, (int)spec->activation);
    exo_status st = check_sizes(spec, err);
    if (st != EXO_OK)
        return st;
    if (!(spec->norm_eps > 0.0f) || !isfinite(spec->norm_eps))
        return exo_fail(err, EXO_INVAL, "a decoder's norm_eps must be above 0, not %g",
                        (double)spec->norm_eps);
    if (!(spec->dropout >= 0.0f && spec->dropout < 1.0f))
        return exo_fail(err, EXO_INVAL, "a decoder's dropout must be in [0, 1), not %g",
                        (double)spec->dropout);
    return check_rope(spec, err);
}
