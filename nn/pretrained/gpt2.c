/* GPT-2 (Radford et al., 2019) as in transformers: learned positions, layer norms, one fused
 * projection, and transposed weights of linear layers. No state. The interface is in family.h. */
#include "nn/pretrained/family.h"

#include <stdio.h>

static void
read_gpt2(exo_hf_config *c, exo_decoder_spec *s)
{
    s->vocabulary = exo_hf_size(c, "vocab_size", 50257);
    s->context = exo_hf_size(c, "n_positions", 1024);
    s->width = exo_hf_size(c, "n_embd", 768);
    s->layers = exo_hf_size(c, "n_layer", 12);
    s->heads = s->kv_heads = exo_hf_size(c, "n_head", 12);
    s->head_width = s->width / s->heads;
    if (s->width % s->heads != 0)
        exo_hf_wrong(c, "n_embd", "expected a multiple of n_head");
    s->inner = exo_hf_size(c, "n_inner", 4 * s->width);
    s->position = EXO_POSITION_LEARNED;
    s->norm = EXO_NORM_LAYER;
    s->norm_eps = exo_hf_float(c, "layer_norm_epsilon", 1e-5f);
    s->activation = exo_hf_activation(c, "activation_function", EXO_GELU_TANH);
    s->attention_qkv_bias = s->attention_out_bias = s->mlp_bias = true;
    s->tied = exo_hf_bool(c, "tie_word_embeddings", true);
    s->rope_theta = 10000.0f;
    exo_hf_must(c, "scale_attn_weights", true);
    exo_hf_must(c, "scale_attn_by_inverse_layer_idx", false);
}

static const char *
lacks(const exo_decoder_spec *s)
{
    if (s->position != EXO_POSITION_LEARNED || s->position_offset != 0)
        return "its positions are learned, without an offset";
    if (s->norm != EXO_NORM_LAYER || s->embedding_norm)
        return "it has layer norms, and none after the embedding";
    if (s->gated)
        return "its MLP is not gated";
    if (!s->attention_qkv_bias || !s->attention_out_bias || !s->mlp_bias)
        return "all its linear layers have biases";
    if (s->kv_heads != s->heads || s->heads * s->head_width != s->width)
        return "it has as many key-value heads as heads, which share out the width";
    return NULL;
}

static json_t *
write_gpt2(const exo_decoder_spec *s)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:s, s:b, s:o, s:o, s:o}", "vocab_size",
                     (json_int_t)s->vocabulary, "n_positions", (json_int_t)s->context, "n_embd",
                     (json_int_t)s->width, "n_layer", (json_int_t)s->layers, "n_head",
                     (json_int_t)s->heads, "n_inner", (json_int_t)s->inner, "layer_norm_epsilon",
                     exo_hf_real(s->norm_eps), "activation_function",
                     exo_hf_activation_name(s->activation), "tie_word_embeddings", s->tied,
                     "resid_pdrop", exo_hf_real(s->dropout), "embd_pdrop", exo_hf_real(s->dropout),
                     "attn_pdrop", exo_hf_real(s->dropout));
}

/* Adds the tensors of a Conv1D: weight (in, out), bias (out). */
static void
add_conv1d(exo_tensor_places *places, const char *tensor, const char *param, size_t index,
           size_t in, size_t out)
{
    char there[EXO_TENSOR_PLACE_NAME], here[EXO_TENSOR_PLACE_NAME];
    snprintf(there, sizeof there, "%s.weight", tensor);
    snprintf(here, sizeof here, "%s.weight", param);
    exo_tensor_place *p = exo_tensor_places_add(places, there, here, index, in, out);
    if (p)
        p->kind = EXO_TENSOR_PLACE_TRANSPOSED;
    snprintf(there, sizeof there, "%s.bias", tensor);
    snprintf(here, sizeof here, "%s.bias", param);
    exo_tensor_places_add(places, there, here, index, out, 0);
}

static void
places(const exo_decoder_spec *s, exo_tensor_places *p)
{
    size_t width = s->width;
    exo_tensor_places_add(p, "wte.weight", "embedding.weight", 0, s->vocabulary, width);
    exo_tensor_places_add(p, "wpe.weight", "position.weight", 0, s->context, width);
    for (size_t i = 0; i < s->layers; i++) {
        exo_tensor_places_norm(p, "h.#.ln_1", "blocks.#.norm1", i, width, true);
        add_conv1d(p, "h.#.attn.c_attn", "blocks.#.attention.qkv", i, width, 3 * width);
        add_conv1d(p, "h.#.attn.c_proj", "blocks.#.attention.out", i, width, width);
        exo_tensor_places_norm(p, "h.#.ln_2", "blocks.#.norm2", i, width, true);
        add_conv1d(p, "h.#.mlp.c_fc", "blocks.#.mlp.up", i, width, s->inner);
        add_conv1d(p, "h.#.mlp.c_proj", "blocks.#.mlp.down", i, s->inner, width);
    }
    exo_tensor_places_norm(p, "ln_f", "norm", 0, width, true);
}

const exo_family exo_family_gpt2 = {
    .name = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .prefixes = {"transformer.", ""},
    /* dropout rates, for training only; heads for other tasks; the type of the attention scores,
     * which is always fp32 here */
    .harmless = {"attn_pdrop", "embd_pdrop", "resid_pdrop", "n_ctx", "reorder_and_upcast_attn",
                 "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
                 "summary_type", "summary_use_proj"},
    .buffers = {"h.#.attn.bias", "h.#.attn.masked_bias"}, /* the causal mask */
    .read = read_gpt2,
    .lacks = lacks,
    .write = write_gpt2,
    .places = places,
};
