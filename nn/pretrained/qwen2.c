/* Qwen2 and Qwen2.5 (Yang et al., 2024) as in transformers: a LLaMA whose projections to queries, keys
 * and values have biases. No state. The interface is in family.h. */
#include "nn/pretrained/llama.h"

static void
read_qwen2(exo_hf_config *c, exo_decoder_spec *s)
{
    static const exo_llama_sizes missing = {.vocabulary = 151936,
                                            .context = 32768,
                                            .width = 4096,
                                            .layers = 32,
                                            .heads = 32,
                                            .kv_heads = 32,
                                            .inner = 22016};
    exo_llama_read(c, &missing, s);
    s->attention_qkv_bias = true;
    exo_hf_must(c, "use_sliding_window", false);
    exo_hf_must(c, "use_mrope", false);
}

static const char *
lacks(const exo_decoder_spec *s)
{
    if (!s->attention_qkv_bias || s->attention_out_bias || s->mlp_bias)
        return "its projections to queries, keys and values have biases, and no other linear "
               "layer has";
    return exo_llama_lacks(s);
}

static json_t *
write_qwen2(const exo_decoder_spec *s)
{
    json_t *config = exo_llama_write(s);
    if (config && json_object_set_new(config, "use_sliding_window", json_false()) != 0) {
        json_decref(config);
        return NULL;
    }
    return config;
}

const exo_family exo_family_qwen2 = {
    .name = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .prefixes = {"model.", ""},
    /* the window's size and layers do not matter where none is used */
    .harmless = {"attention_dropout", "sliding_window", "max_window_layers", "max_sequence_length",
                 "unsloth_fixed", "unsloth_version"},
    .buffers = {"layers.#.self_attn.rotary_emb.inv_freq"}, /* follows from rope_theta */
    .read = read_qwen2,
    .lacks = lacks,
    .write = write_qwen2,
    .places = exo_llama_places,
};
