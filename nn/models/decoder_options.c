/* A job's options of the model "gpt": a size of GPT-2 with changes, or a Hugging Face directory. No
 * state; any thread. Read next: decoder.c. */
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "nn/models/decoder.h"

enum {
    MAX_OPTION = 1 << 22 /* of widths; exo_decoder_check checks how they fit together */
};

static const char *const position_names[] = {"learned", "rotary", "alibi", NULL};
static const char *const norm_names[] = {"layer", "rms", NULL};
static const char *const activation_names[] = {"linear", "relu", "gelu", "gelu_tanh", "silu", NULL};
/* transformers' names of models with these positions. */
static const char *const families[] = {"gpt2", "llama", "bloom"};

static exo_status
read_count(exo_config *config, const char *key, uint64_t max, size_t *value, exo_err *err)
{
    uint64_t n = *value;
    exo_status st = exo_config_u64(config, key, n, 1, max, &n, err);
    *value = (size_t)n;
    return st;
}

/* Reads the sizes. kv_heads, head_width and inner follow from the others unless they are given. */
static exo_status
read_shape(exo_config *config, exo_decoder_spec *s, exo_err *err)
{
    exo_status st = read_count(config, "vocabulary", INT32_MAX, &s->vocabulary, err);
    if (st == EXO_OK)
        st = read_count(config, "context", INT32_MAX, &s->context, err);
    if (st == EXO_OK)
        st = read_count(config, "layers", MAX_OPTION, &s->layers, err);
    if (st == EXO_OK)
        st = read_count(config, "heads", MAX_OPTION, &s->heads, err);
    if (st == EXO_OK)
        st = read_count(config, "width", MAX_OPTION, &s->width, err);
    if (st != EXO_OK)
        return st;
    s->kv_heads = s->heads;
    s->inner = 4 * s->width;
    s->head_width = s->width / s->heads;
    if (!exo_config_has(config, "head_width") && s->width % s->heads != 0)
        return exo_config_fail(config, err,
                               "heads %zu do not divide the width %zu: give head_width, or others",
                               s->heads, s->width);
    st = read_count(config, "head_width", MAX_OPTION, &s->head_width, err);
    if (st == EXO_OK)
        st = read_count(config, "kv_heads", MAX_OPTION, &s->kv_heads, err);
    return st == EXO_OK ? read_count(config, "inner", MAX_OPTION, &s->inner, err) : st;
}

static exo_status
read_kinds(exo_config *config, exo_decoder_spec *s, exo_err *err)
{
    size_t position = s->position, norm = s->norm, activation = s->activation;
    bool bias = true, qk_norm = false;
    exo_status st = exo_config_choice(config, "position", position, position_names, &position, err);
    if (st == EXO_OK)
        st = exo_config_choice(config, "norm", norm, norm_names, &norm, err);
    if (st == EXO_OK)
        st =
            exo_config_choice(config, "activation", activation, activation_names, &activation, err);
    if (st == EXO_OK)
        st = exo_config_bool(config, "gated", false, &s->gated, err);
    if (st == EXO_OK)
        st = exo_config_bool(config, "bias", true, &bias, err);
    if (st == EXO_OK)
        st = exo_config_bool(config, "tied", true, &s->tied, err);
    if (st == EXO_OK)
        st = exo_config_bool(config, "embedding_norm", false, &s->embedding_norm, err);
    if (st == EXO_OK)
        st = exo_config_bool(config, "qk_norm", false, &qk_norm, err);
    if (st == EXO_OK)
        st = exo_config_float(config, "norm_eps", s->norm_eps, 1e-12, 1.0, &s->norm_eps, err);
    if (st == EXO_OK)
        st = exo_config_float(config, "rope_theta", s->rope_theta, 1.0, 1e12, &s->rope_theta, err);
    s->position = (exo_position_kind)position;
    s->norm = (exo_norm_kind)norm;
    s->activation = (exo_activation)activation;
    s->attention_qkv_bias = s->attention_out_bias = s->mlp_bias = bias;
    snprintf(s->family, sizeof s->family, "%s", qk_norm ? "qwen3" : families[position]);
    return st;
}

static exo_status
read_size(exo_config *config, exo_decoder_spec *s, exo_err *err)
{
    const char *size = NULL;
    exo_err reason = {0};
    exo_status st = exo_config_string(config, "size", "small", &size, err);
    if (st != EXO_OK)
        return st;
    st = exo_decoder_size(s, size, &reason);
    return st == EXO_OK ? EXO_OK : exo_config_fail(config, err, "size: %s", reason.text);
}

/* The directory defines the architecture, so a job may not give it too. */
static exo_status
read_folder(exo_decoder *d, exo_config *config, const char *path, exo_err *err)
{
    static const char *const given[] = {
        "size",       "context", "layers",   "heads",      "kv_heads",       "width",
        "head_width", "inner",   "position", "norm",       "activation",     "gated",
        "bias",       "tied",    "norm_eps", "rope_theta", "embedding_norm", "qk_norm"};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (exo_config_has(config, given[i]))
            return exo_config_fail(
                config, err, "'%s' cannot be set beside 'path': the folder's config.json sets it",
                given[i]);
    exo_status st = exo_decoder_load_spec(path, &d->spec, err);
    size_t vocabulary = 0; /* the vocabulary of the job's data; 0: not given */
    if (st == EXO_OK)
        st = read_count(config, "vocabulary", INT32_MAX, &vocabulary, err);
    if (st == EXO_OK && vocabulary > d->spec.vocabulary)
        st = exo_config_fail(
            config, err, "the vocabulary of '%s' is %zu, less than %zu: use data of its tokenizer",
            path, d->spec.vocabulary, vocabulary);
    if (st != EXO_OK)
        return st;
    d->folder = exo_strdup(path);
    return d->folder ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for the path '%s'", path);
}

exo_status
exo_decoder_read_options(exo_decoder *decoder, exo_config *config, exo_err *err)
{
    exo_decoder_spec *s = &decoder->spec;
    const char *path = NULL;
    exo_err reason = {0};
    exo_status st = exo_config_string(config, "path", NULL, &path, err);
    if (st == EXO_OK && path)
        st = read_folder(decoder, config, path, err);
    else if (st == EXO_OK) {
        st = read_size(config, s, err);
        if (st == EXO_OK)
            st = read_shape(config, s, err);
        if (st == EXO_OK)
            st = read_kinds(config, s, err);
    }
    if (st == EXO_OK)
        st = exo_config_float(config, "dropout", s->dropout, 0.0, 0.999999, &s->dropout, err);
    if (st == EXO_OK)
        st = exo_config_bool(config, "checkpoint", false, &s->checkpoint, err);
    if (st == EXO_OK)
        st = exo_config_bool(config, "values", false, &decoder->values, err);
    if (st == EXO_OK && exo_decoder_check(s, &reason) != EXO_OK)
        st = exo_config_fail(config, err, "%s", reason.text);
    return st == EXO_OK ? exo_decoder_read_lora(decoder, config, err) : st;
}
