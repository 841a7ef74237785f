/* Strict reading of config.json: see hf_config.h. */
#include "nn/pretrained/hf_config.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/c_locale.h"
#include "base/file.h"

enum {
    MAX_CONFIG = 1 << 20 /* bytes */
};

/* Keys that do not change the function from tokens to logits, from transformers' PretrainedConfig
 * and from published files. */
static const char *const harmless[] = {
    /* names and versions: of files, classes, tasks, tokenizers */
    "_name_or_path", "_num_labels", "architectures", "auto_map", "finetuning_task", "id2label",
    "label2id", "model_type", "name_or_path", "num_labels", "problem_type", "task_specific_params",
    "tokenizer_class", "transformers_version", "transformers.js_config",
    /* options of generation, and the tokens that begin, end and pad a text */
    "bad_words_ids", "begin_suppress_tokens", "bos_token_id", "decoder_start_token_id",
    "diversity_penalty", "do_sample", "early_stopping", "encoder_no_repeat_ngram_size",
    "eos_token_id", "exponential_decay_length_penalty", "forced_bos_token_id",
    "forced_eos_token_id", "length_penalty", "max_length", "max_new_tokens", "min_length",
    "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences", "pad_token_id",
    "prefix", "remove_invalid_values", "repetition_penalty", "sep_token_id", "suppress_tokens",
    "temperature", "top_k", "top_p", "typical_p", "unk_token_id",
    /* a call's results, its caches, its types and division of the computation, which change the
     * numbers by rounding at most; that a decoder is one */
    "is_decoder", "chunk_size_feed_forward", "dtype", "gradient_checkpointing", "output_attentions",
    "output_hidden_states", "output_past", "output_scores", "pretraining_tp", "return_dict",
    "return_dict_in_generate", "tf_legacy_loss", "torch_dtype", "torchscript", "use_bfloat16",
    "use_cache", "use_return_dict", "_attn_implementation", "_attn_implementation_autoset",
    "attn_implementation",
    /* initial values, which the weights replace */
    "initializer_range", NULL};

/* Keys that must be off (false, 0 or empty), because they change the computation. Files written by
 * older versions of transformers have some of them. */
static const char *const must_be_off[] = {"add_cross_attention", "is_encoder_decoder",
                                          "pruned_heads",        "quantization_config",
                                          "tie_encoder_decoder", "cross_attention_hidden_size"};

static const struct {
    const char *name;
    exo_activation activation;
} activations[] = {
    /* the first name of an activation is the written one */
    {"gelu_new", EXO_GELU_TANH},  {"gelu_pytorch_tanh", EXO_GELU_TANH},
    {"gelu_fast", EXO_GELU_TANH}, {"gelu_python_tanh", EXO_GELU_TANH},
    {"gelu", EXO_GELU},           {"gelu_python", EXO_GELU},
    {"relu", EXO_RELU},           {"silu", EXO_SILU},
    {"swish", EXO_SILU},          {"linear", EXO_LINEAR},
};

exo_status
exo_hf_config_open_file(exo_hf_config *config, const char *folder, const char *name, exo_err *err)
{
    char *text = NULL;
    size_t size = 0;
    json_error_t reason;
    *config = (exo_hf_config){0};
    exo_status st = exo_pretrained_path(config->path, folder, name, err);
    if (st == EXO_OK)
        st = exo_file_read(config->path, MAX_CONFIG, &text, &size, err);
    if (st == EXO_NOT_FOUND)
        return exo_fail(err, st, "%s: there is no such file; it lies beside the weights",
                        config->path);
    if (st != EXO_OK)
        return st;
    config->root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &reason);
    exo_free(text);
    if (!config->root)
        return exo_fail(err, EXO_DAMAGED, "%s:%d:%d: %s", config->path, reason.line, reason.column,
                        reason.text);
    if (!json_is_object(config->root))
        return exo_fail(err, EXO_DAMAGED,
                        "%s: is not a JSON object: expected a model's description", config->path);
    return EXO_OK;
}

exo_status
exo_hf_config_open(exo_hf_config *config, const char *folder, exo_err *err)
{
    exo_status st = exo_hf_config_open_file(config, folder, EXO_CONFIG_FILE, err);
    return st != EXO_NOT_FOUND
               ? st
               : exo_fail(err, st,
                          "%s: there is no such file; a Hugging Face directory has one beside its "
                          "weights",
                          config->path);
}

void
exo_hf_config_close(exo_hf_config *config)
{
    json_decref(config->root);
    config->root = NULL;
}

/* Records an error about a key, unless one is recorded. The text has the key's value as JSON, cut
 * to the room in a message. */
static void
fail(exo_hf_config *c, exo_status status, const char *key, const char *verb, const char *reason)
{
    const json_t *json = json_object_get(c->root, key);
    if (c->error.code != EXO_OK)
        return;
    char *value = json ? json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (json) /* a long value is cut, so that the reason is not */
        exo_fail(&c->error, status, "%s: \"%.80s\": %.100s%s %s: %s", c->path, key,
                 value ? value : "?", value && strlen(value) > 100 ? "..." : "", verb, reason);
    else
        exo_fail(&c->error, status, "%s: \"%s\" is missing: %s", c->path, key, reason);
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    release(value);
}

void
exo_hf_refuse_part(exo_hf_config *config, const char *key, const char *part, const char *value,
                   const char *reason)
{
    if (config->error.code != EXO_OK)
        return;
    exo_fail(&config->error, EXO_UNSUPPORTED, "%s: \"%s.%.80s\"%s%.80s%s is not supported: %s",
             config->path, key, part, value ? ": \"" : "", value ? value : "", value ? "\"" : "",
             reason);
}

void
exo_hf_refuse(exo_hf_config *config, const char *key, const char *reason)
{
    fail(config, EXO_UNSUPPORTED, key, "is not supported", reason);
}

void
exo_hf_wrong(exo_hf_config *config, const char *key, const char *expected)
{
    fail(config, EXO_DAMAGED, key, "is wrong", expected);
}

static bool
in_list(const char *const *list, const char *key)
{
    for (; *list; list++)
        if (strcmp(*list, key) == 0)
            return true;
    return false;
}

static bool
was_asked(const exo_hf_config *c, const char *key)
{
    for (size_t i = 0; i < c->num_asked; i++)
        if (strcmp(c->asked[i], key) == 0)
            return true;
    return false;
}

/* An option is off if it is false, 0, {} or []. */
static bool
is_off(const json_t *value)
{
    return json_is_false(value) || (json_is_integer(value) && json_integer_value(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

exo_status
exo_hf_config_finish(exo_hf_config *config, const char *const *more, exo_err *err)
{
    const char *key = NULL;
    json_t *value = NULL;
    for (size_t i = 0; i < sizeof must_be_off / sizeof *must_be_off; i++)
        exo_hf_must_be_off(config, must_be_off[i], "the decoder has no such part");
    json_object_foreach (config->root, key, value) {
        if (json_is_null(value) || was_asked(config, key) || in_list(harmless, key) ||
            in_list(more, key))
            continue;
        exo_hf_refuse(config, key,
                      "the key is unknown and may change what the model computes; if it does not, "
                      "remove it");
    }
    if (config->error.code != EXO_OK && err)
        *err = config->error;
    return config->error.code;
}

const json_t *
exo_hf_get(exo_hf_config *config, const char *key)
{
    if (!was_asked(config, key) && config->num_asked < EXO_HF_KEYS)
        config->asked[config->num_asked++] = key;
    const json_t *value = json_object_get(config->root, key);
    return json_is_null(value) ? NULL : value;
}

size_t
exo_hf_size(exo_hf_config *config, const char *key, size_t fallback)
{
    const json_t *value = exo_hf_get(config, key);
    if (!value && fallback > 0)
        return fallback;
    if (json_is_integer(value) && json_integer_value(value) >= 1 &&
        json_integer_value(value) <= INT32_MAX)
        return (size_t)json_integer_value(value);
    exo_hf_wrong(config, key, "expected an integer from 1");
    return 1;
}

float
exo_hf_float(exo_hf_config *config, const char *key, float fallback)
{
    const json_t *value = exo_hf_get(config, key);
    if (!value)
        return fallback;
    if (json_is_number(value) && fabs(json_number_value(value)) <= FLT_MAX)
        return (float)json_number_value(value);
    exo_hf_wrong(config, key, "expected a number, of at most 3.4e38");
    return fallback;
}

bool
exo_hf_bool(exo_hf_config *config, const char *key, bool fallback)
{
    const json_t *value = exo_hf_get(config, key);
    if (!value) /* null is false in Python's conditions, also where true is the default */
        return json_object_get(config->root, key) ? false : fallback;
    if (!json_is_boolean(value))
        exo_hf_wrong(config, key, "expected true or false");
    return json_is_true(value);
}

void
exo_hf_must(exo_hf_config *config, const char *key, bool value)
{
    if (exo_hf_bool(config, key, value) != value)
        exo_hf_refuse(config, key, value ? "only true is" : "only false is");
}

void
exo_hf_must_be_off(exo_hf_config *config, const char *key, const char *reason)
{
    const json_t *option = exo_hf_get(config, key);
    if (option && !is_off(option))
        exo_hf_refuse(config, key, reason);
}

exo_activation
exo_hf_activation(exo_hf_config *config, const char *key, exo_activation fallback)
{
    const json_t *value = exo_hf_get(config, key);
    const char *name = json_string_value(value);
    if (!value)
        return fallback;
    for (size_t i = 0; name && i < sizeof activations / sizeof *activations; i++)
        if (strcmp(activations[i].name, name) == 0)
            return activations[i].activation;
    exo_hf_refuse(config, key,
                  "expected gelu_new, gelu, relu, silu, linear, or another name of these");
    return fallback;
}

json_t *
exo_hf_real(float value)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        exo_c_snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if ((float)exo_c_strtod(text, NULL) == value)
            break;
    }
    return json_real(exo_c_strtod(text, NULL));
}

const char *
exo_hf_activation_name(exo_activation activation)
{
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (activations[i].activation == activation)
            return activations[i].name;
    return "linear";
}
