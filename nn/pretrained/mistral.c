/* Mistral (Jiang et al., 2023) as in transformers: a LLaMA without biases. Its first version attends to
 * a window of tokens, which is not supported where texts can be longer than the window. No state. The
 * interface is in family.h. */
#include "nn/pretrained/llama.h"

/* The window; 0: none. A missing key is not null. */
static size_t
window_of(exo_hf_config *c)
{
    static const size_t missing = 4096;
    const json_t *window = json_object_get(c->root, "sliding_window");
    return window && json_is_null(window) ? 0 : exo_hf_size(c, "sliding_window", missing);
}

static void
read_mistral(exo_hf_config *c, exo_decoder_spec *s)
{
    static const exo_llama_sizes missing = {.vocabulary = 32000,
                                            .context = 131072,
                                            .width = 4096,
                                            .layers = 32,
                                            .heads = 32,
                                            .kv_heads = 8,
                                            .inner = 14336};
    exo_llama_read(c, &missing, s);
    const size_t window = window_of(c);
    if (window > 0 && window < s->context)
        exo_hf_refuse(c, "sliding_window",
                      "attention goes back to the first token: expected null, or at least "
                      "max_position_embeddings");
}

static const char *
lacks(const exo_decoder_spec *s)
{
    if (s->attention_qkv_bias || s->attention_out_bias || s->mlp_bias)
        return "its linear layers have no biases";
    return exo_llama_lacks(s);
}

static json_t *
write_mistral(const exo_decoder_spec *s)
{
    json_t *config = exo_llama_write(s);
    if (config && json_object_set_new(config, "sliding_window", json_null()) != 0) {
        json_decref(config);
        return NULL;
    }
    return config;
}

const exo_family exo_family_mistral = {
    .name = "mistral",
    .architecture = "MistralForCausalLM",
    .prefixes = {"model.", ""},
    .harmless = {"attention_dropout", "max_sequence_length", "unsloth_fixed", "unsloth_version"},
    .buffers = {"layers.#.self_attn.rotary_emb.inv_freq"}, /* follows from rope_theta */
    .read = read_mistral,
    .lacks = lacks,
    .write = write_mistral,
    .places = exo_llama_places,
};
