/* Qwen3 (Yang et al., 2025) as in transformers, without its mixtures of experts: a LLaMA with an RMS norm
 * over each head of queries and keys, before rotary positions. No state. The interface is in family.h. */
#include "nn/pretrained/llama.h"

static void
read_qwen3(exo_hf_config *c, exo_decoder_spec *s)
{
    static const exo_llama_sizes missing = {.vocabulary = 151936,
                                            .context = 32768,
                                            .width = 4096,
                                            .layers = 32,
                                            .heads = 32,
                                            .kv_heads = 32,
                                            .head_width = 128,
                                            .inner = 22016};
    const json_t *head = json_object_get(c->root, "head_dim");
    exo_llama_read(c, &missing, s);
    if (json_is_null(head)) /* not hidden_size / num_attention_heads, as for LLaMA */
        exo_hf_wrong(c, "head_dim", "expected an integer from 1");
    s->attention_qkv_bias = s->attention_out_bias = exo_hf_bool(c, "attention_bias", false);
    exo_hf_must(c, "use_sliding_window", false);
}

static const char *
lacks(const exo_decoder_spec *s)
{
    if (s->attention_qkv_bias != s->attention_out_bias)
        return "all linear layers of its attention have biases, or none has";
    if (s->mlp_bias)
        return "the linear layers of its MLP have no biases";
    return exo_llama_lacks(s);
}

static json_t *
write_qwen3(const exo_decoder_spec *s)
{
    json_t *config = exo_llama_write(s);
    if (config &&
        (json_object_set_new(config, "attention_bias", json_boolean(s->attention_qkv_bias)) != 0 ||
         json_object_set_new(config, "use_sliding_window", json_false()) != 0)) {
        json_decref(config);
        return NULL;
    }
    return config;
}

static void
qwen3_places(const exo_decoder_spec *s, exo_tensor_places *p)
{
    exo_llama_places(s, p);
    for (size_t i = 0; i < s->layers; i++) {
        exo_tensor_places_norm(p, "layers.#.self_attn.q_norm", "blocks.#.attention.q_norm", i,
                               s->head_width, false);
        exo_tensor_places_norm(p, "layers.#.self_attn.k_norm", "blocks.#.attention.k_norm", i,
                               s->head_width, false);
    }
}

const exo_family exo_family_qwen3 = {
    .name = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .prefixes = {"model.", ""},
    /* the window's size and layers do not matter where none is used */
    .harmless = {"attention_dropout", "sliding_window", "max_window_layers", "max_sequence_length",
                 "unsloth_fixed", "unsloth_version"},
    .buffers = {"layers.#.self_attn.rotary_emb.inv_freq"}, /* follows from rope_theta */
    .read = read_qwen3,
    .lacks = lacks,
    .write = write_qwen3,
    .places = qwen3_places,
};
