/* LLaMA (Touvron et al., 2023; Grattafiori et al., 2024) as in transformers, and what the families that
 * follow it share with it: RMS norms, rotary positions that turn the halves of a head, gated MLPs, and
 * optionally fewer key-value heads than heads. No state. The interfaces are in family.h and llama.h. */
#include "nn/pretrained/llama.h"

#include <stdint.h>
#include <string.h>

/* The first unknown key of `rope`, or NULL. */
static const char *
other_key(const json_t *rope)
{
    static const char *const known[] = {"rope_type",        "type",
                                        "factor",           "low_freq_factor",
                                        "high_freq_factor", "original_max_position_embeddings",
                                        "rope_theta",       "partial_rotary_factor"};
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)rope, key, value) {
        size_t i = 0;
        while (i < sizeof known / sizeof *known && strcmp(known[i], key) != 0)
            i++;
        if (i == sizeof known / sizeof *known)
            return key;
    }
    return NULL;
}

/* Reads `rope`, the value of `key`, of type "default", "linear" or "llama3". */
static void
read_scaling(exo_hf_config *c, const char *key, const json_t *rope, exo_rope_scaling *out)
{
    const json_t *type = json_object_get(rope, "rope_type"), *older = json_object_get(rope, "type");
    const json_t *named = type ? type : older;
    const char *name = json_string_value(named);
    bool other = named && !name && !json_is_null(named);
    if (!json_is_object(rope) || other || (!name && json_object_get(rope, "factor"))) {
        exo_hf_wrong(c, key, "expected a mapping with rope_type");
        return;
    }
    if (name && strcmp(name, "default") != 0 && strcmp(name, "linear") != 0 &&
        strcmp(name, "llama3") != 0) {
        exo_hf_refuse_part(c, key, type ? "rope_type" : "type", name,
                           "expected default, linear or llama3");
        return; /* an unknown type has its own keys: no error about them */
    }
    if (other_key(rope))
        exo_hf_refuse_part(c, key, other_key(rope), NULL, "the key is unknown");
    const json_t *partial = json_object_get(rope, "partial_rotary_factor");
    if (partial && json_number_value(partial) != 1.0)
        exo_hf_refuse(c, key, "only whole heads are rotated: expected partial_rotary_factor 1");
    if (!name || strcmp(name, "default") == 0)
        return;
    out->linear = strcmp(name, "linear") == 0;
    out->factor = (float)json_number_value(json_object_get(rope, "factor"));
    if (!(out->factor >= 1.0f))
        exo_hf_wrong(c, key, "expected a factor from 1");
    if (out->linear)
        return;
    json_int_t original =
        json_integer_value(json_object_get(rope, "original_max_position_embeddings"));
    out->low_freq_factor = (float)json_number_value(json_object_get(rope, "low_freq_factor"));
    out->high_freq_factor = (float)json_number_value(json_object_get(rope, "high_freq_factor"));
    out->original_context = original > 0 ? (size_t)original : 0;
    if (original <= 0)
        exo_hf_wrong(c, key, "expected original_max_position_embeddings");
}

/* The base of the frequencies is within `rope`, the value of `key`, or beside it. */
static void
read_theta(exo_hf_config *c, const char *key, const json_t *rope, exo_decoder_spec *s)
{
    const json_t *beside = exo_hf_get(c, "rope_theta"),
                 *within = json_object_get(rope, "rope_theta");
    s->rope_theta = exo_hf_float(c, "rope_theta", 10000.0f);
    if (!within || json_is_null(within))
        return;
    float theta = (float)json_number_value(within);
    if (!json_is_number(within))
        exo_hf_wrong(c, key, "expected a number rope_theta");
    else if (beside && theta != s->rope_theta)
        exo_hf_refuse(c, key, "the rope_theta beside it is another");
    s->rope_theta = theta;
}

/* Older files have rope_theta and rope_scaling; newer ones have both in rope_parameters. */
static void
read_rope(exo_hf_config *c, exo_decoder_spec *s)
{
    const json_t *scaling = exo_hf_get(c, "rope_scaling"),
                 *newer = exo_hf_get(c, "rope_parameters"), *rope = newer ? newer : scaling;
    const char *key = newer ? "rope_parameters" : "rope_scaling";
    if (scaling && newer && !json_equal(scaling, newer))
        exo_hf_refuse(c, "rope_scaling", "rope_parameters says something different");
    read_theta(c, key, rope, s);
    if (rope)
        read_scaling(c, key, rope, &s->rope_scaling);
}

/* Newer files say for each layer what it attends to. */
static void
check_layer_types(exo_hf_config *c)
{
    const json_t *types = exo_hf_get(c, "layer_types");
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (!type || strcmp(type, "full_attention") != 0) {
            exo_hf_refuse(c, "layer_types", "expected full_attention for each layer");
            return;
        }
    }
    if (types && !json_is_array(types))
        exo_hf_wrong(c, "layer_types", "expected a list");
}

/* The key-value heads of a file that does not say how many there are. A null is not a missing key: it
 * means all heads. */
static size_t
kv_heads_without(const exo_hf_config *c, const exo_llama_sizes *missing, size_t heads)
{
    return missing->kv_heads == 0 || json_object_get(c->root, "num_key_value_heads")
               ? heads
               : missing->kv_heads;
}

/* The width of a head in a file that does not say it. */
static size_t
head_width_without(const exo_llama_sizes *missing, const exo_decoder_spec *s)
{
    const size_t share = s->width / s->heads;
    return missing->head_width > 0 ? missing->head_width : share > 0 ? share : 1;
}

void
exo_llama_read(exo_hf_config *c, const exo_llama_sizes *missing, exo_decoder_spec *s)
{
    s->vocabulary = exo_hf_size(c, "vocab_size", missing->vocabulary);
    s->context = exo_hf_size(c, "max_position_embeddings", missing->context);
    s->width = exo_hf_size(c, "hidden_size", missing->width);
    s->layers = exo_hf_size(c, "num_hidden_layers", missing->layers);
    s->heads = exo_hf_size(c, "num_attention_heads", missing->heads);
    s->kv_heads = exo_hf_size(c, "num_key_value_heads", kv_heads_without(c, missing, s->heads));
    s->head_width = exo_hf_size(c, "head_dim", head_width_without(missing, s));
    s->inner = exo_hf_size(c, "intermediate_size", missing->inner);
    s->position = EXO_POSITION_ROTARY;
    s->norm = EXO_NORM_RMS;
    s->norm_eps = exo_hf_float(c, "rms_norm_eps", 1e-6f);
    s->activation = exo_hf_activation(c, "hidden_act", EXO_SILU);
    s->gated = true;
    s->tied = exo_hf_bool(c, "tie_word_embeddings", false);
    read_rope(c, s);
    exo_hf_must(c, "rope_interleaved", false);
    if (exo_hf_float(c, "partial_rotary_factor", 1.0f) != 1.0f)
        exo_hf_refuse(c, "partial_rotary_factor", "only whole heads are rotated: expected 1");
    check_layer_types(c);
}

static void
read_llama(exo_hf_config *c, exo_decoder_spec *s)
{
    static const exo_llama_sizes missing = {.vocabulary = 32000,
                                            .context = 2048,
                                            .width = 4096,
                                            .layers = 32,
                                            .heads = 32,
                                            .inner = 11008};
    exo_llama_read(c, &missing, s);
    s->attention_qkv_bias = s->attention_out_bias = exo_hf_bool(c, "attention_bias", false);
    s->mlp_bias = exo_hf_bool(c, "mlp_bias", false);
}

const char *
exo_llama_lacks(const exo_decoder_spec *s)
{
    if (s->position != EXO_POSITION_ROTARY)
        return "its positions are rotary";
    if (s->norm != EXO_NORM_RMS || s->embedding_norm)
        return "it has RMS norms, and none after the embedding";
    if (!s->gated)
        return "its MLP is gated";
    return NULL;
}

static const char *
lacks(const exo_decoder_spec *s)
{
    if (s->attention_qkv_bias != s->attention_out_bias)
        return "all linear layers of its attention have biases, or none has";
    return exo_llama_lacks(s);
}

static json_t *
write_scaling(const exo_rope_scaling *r)
{
    if (r->factor == 0.0f)
        return json_null();
    if (r->linear)
        return json_pack("{s:s, s:o}", "rope_type", "linear", "factor", exo_hf_real(r->factor));
    return json_pack("{s:s, s:o, s:o, s:o, s:I}", "rope_type", "llama3", "factor",
                     exo_hf_real(r->factor), "low_freq_factor", exo_hf_real(r->low_freq_factor),
                     "high_freq_factor", exo_hf_real(r->high_freq_factor),
                     "original_max_position_embeddings", (json_int_t)r->original_context);
}

json_t *
exo_llama_write(const exo_decoder_spec *s)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:s, s:b, s:o, s:o, s:o}", "vocab_size",
        (json_int_t)s->vocabulary, "max_position_embeddings", (json_int_t)s->context, "hidden_size",
        (json_int_t)s->width, "num_hidden_layers", (json_int_t)s->layers, "num_attention_heads",
        (json_int_t)s->heads, "num_key_value_heads", (json_int_t)s->kv_heads, "head_dim",
        (json_int_t)s->head_width, "intermediate_size", (json_int_t)s->inner, "rms_norm_eps",
        exo_hf_real(s->norm_eps), "hidden_act", exo_hf_activation_name(s->activation),
        "tie_word_embeddings", s->tied, "rope_theta", exo_hf_real(s->rope_theta), "rope_scaling",
        write_scaling(&s->rope_scaling), "attention_dropout", exo_hf_real(s->dropout));
}

static json_t *
write_llama(const exo_decoder_spec *s)
{
    json_t *config = exo_llama_write(s);
    if (config &&
        (json_object_set_new(config, "attention_bias", json_boolean(s->attention_qkv_bias)) != 0 ||
         json_object_set_new(config, "mlp_bias", json_boolean(s->mlp_bias)) != 0)) {
        json_decref(config);
        return NULL;
    }
    return config;
}

void
exo_llama_places(const exo_decoder_spec *s, exo_tensor_places *p)
{
    size_t width = s->width, heads = s->heads * s->head_width, keys = s->kv_heads * s->head_width;
    bool bias = s->attention_qkv_bias, mlp_bias = s->mlp_bias;
    exo_tensor_places_add(p, "embed_tokens.weight", "embedding.weight", 0, s->vocabulary, width);
    for (size_t i = 0; i < s->layers; i++) {
        const char *qkv = "blocks.#.attention.qkv", *up = "blocks.#.mlp.up";
        exo_tensor_places_norm(p, "layers.#.input_layernorm", "blocks.#.norm1", i, width, false);
        exo_tensor_places_linear(p, "layers.#.self_attn.q_proj", qkv, i, 0, heads, width, bias);
        exo_tensor_places_linear(p, "layers.#.self_attn.k_proj", qkv, i, heads, keys, width, bias);
        exo_tensor_places_linear(p, "layers.#.self_attn.v_proj", qkv, i, heads + keys, keys, width,
                                 bias);
        exo_tensor_places_linear(p, "layers.#.self_attn.o_proj", "blocks.#.attention.out", i, 0,
                                 width, heads, s->attention_out_bias);
        exo_tensor_places_norm(p, "layers.#.post_attention_layernorm", "blocks.#.norm2", i, width,
                               false);
        exo_tensor_places_linear(p, "layers.#.mlp.gate_proj", up, i, 0, s->inner, width, mlp_bias);
        exo_tensor_places_linear(p, "layers.#.mlp.up_proj", up, i, s->inner, s->inner, width,
                                 mlp_bias);
        exo_tensor_places_linear(p, "layers.#.mlp.down_proj", "blocks.#.mlp.down", i, 0, width,
                                 s->inner, mlp_bias);
    }
    exo_tensor_places_norm(p, "norm", "norm", 0, width, false);
}

const exo_family exo_family_llama = {
    .name = "llama",
    .architecture = "LlamaForCausalLM",
    .prefixes = {"model.", ""},
    /* dropout rates, for training only; names and versions */
    .harmless = {"attention_dropout", "is_llama_config", "max_sequence_length", "unsloth_fixed",
                 "unsloth_version"},
    .buffers = {"layers.#.self_attn.rotary_emb.inv_freq"}, /* follows from rope_theta */
    .read = read_llama,
    .lacks = lacks,
    .write = write_llama,
    .places = exo_llama_places,
};
