/* BLOOM (Scao et al., 2022) as in transformers: ALiBi, a norm after the embedding, and a fused
 * projection. Its rows are the queries, keys and values of head 0, then those of head 1, and so
 * on. No state. The interface is in family.h. */
#include "nn/pretrained/family.h"

static void
read_bloom(exo_hf_config *c, exo_decoder_spec *s)
{
    s->vocabulary = exo_hf_size(c, "vocab_size", 250880);
    s->width = exo_hf_size(c, exo_hf_get(c, "n_embed") ? "n_embed" : "hidden_size", 64);
    s->layers =
        exo_hf_size(c, exo_hf_get(c, "num_hidden_layers") ? "num_hidden_layers" : "n_layer", 2);
    s->heads =
        exo_hf_size(c, exo_hf_get(c, "num_attention_heads") ? "num_attention_heads" : "n_head", 8);
    exo_hf_get(c, "hidden_size"); /* a file may have the older and the newer name of each */
    exo_hf_get(c, "n_layer");
    exo_hf_get(c, "n_head");
    s->context = exo_hf_size(c, "seq_length", 2048); /* of its training; ALiBi has no limit */
    s->kv_heads = s->heads;
    s->head_width = s->width / s->heads;
    if (s->width % s->heads != 0)
        exo_hf_wrong(c, "hidden_size", "expected a multiple of n_head");
    s->inner = exo_hf_size(c, "n_inner", 4 * s->width);
    if (s->inner != 4 * s->width)
        exo_hf_refuse(c, "n_inner",
                      "transformers takes four times hidden_size, whatever this says");
    s->position = EXO_POSITION_ALIBI;
    s->norm = EXO_NORM_LAYER;
    s->norm_eps = exo_hf_float(c, "layer_norm_epsilon", 1e-5f);
    s->activation = EXO_GELU_TANH;
    s->attention_qkv_bias = s->attention_out_bias = s->mlp_bias = true;
    s->tied = exo_hf_bool(c, "tie_word_embeddings", true);
    s->embedding_norm = true;
    s->rope_theta = 10000.0f;
    exo_hf_must(c, "apply_residual_connection_post_layernorm", false);
    if (exo_hf_bool(c, "slow_but_exact", false) && exo_hf_size(c, "pretraining_tp", 1) > 1)
        exo_hf_refuse(c, "slow_but_exact",
                      "with pretraining_tp above 1 transformers leaves out the biases of dense and "
                      "dense_4h_to_h; a model that was not trained so has pretraining_tp 1");
}

static const char *
lacks(const exo_decoder_spec *s)
{
    if (s->position != EXO_POSITION_ALIBI)
        return "its positions are ALiBi";
    if (s->norm != EXO_NORM_LAYER || !s->embedding_norm)
        return "it has layer norms, also one after the embedding (embedding_norm)";
    if (s->gated || s->activation != EXO_GELU_TANH || s->inner != 4 * s->width)
        return "its MLP has gelu_tanh, four times the width inside, and is not gated";
    if (!s->attention_qkv_bias || !s->attention_out_bias || !s->mlp_bias)
        return "all its linear layers have biases";
    if (s->kv_heads != s->heads || s->heads * s->head_width != s->width)
        return "it has as many key-value heads as heads, which share out the width";
    return NULL;
}

static json_t *
write_bloom(const exo_decoder_spec *s)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:b, s:o, s:o}", "vocab_size",
                     (json_int_t)s->vocabulary, "hidden_size", (json_int_t)s->width, "n_layer",
                     (json_int_t)s->layers, "n_head", (json_int_t)s->heads, "seq_length",
                     (json_int_t)s->context, "layer_norm_epsilon", exo_hf_real(s->norm_eps),
                     "tie_word_embeddings", s->tied, "hidden_dropout", exo_hf_real(s->dropout),
                     "attention_dropout", exo_hf_real(s->dropout));
}

static void
add_fused(exo_tensor_places *p, const exo_decoder_spec *s, size_t index)
{
    for (int k = 0; k < 2; k++) {
        exo_tensor_place *place = exo_tensor_places_add(
            p,
            k ? "h.#.self_attention.query_key_value.bias"
              : "h.#.self_attention.query_key_value.weight",
            k ? "blocks.#.attention.qkv.bias" : "blocks.#.attention.qkv.weight", index,
            3 * s->width, k ? 0 : s->width);
        if (place) {
            place->kind = EXO_TENSOR_PLACE_INTERLEAVED;
            place->heads = s->heads;
        }
    }
}

static void
places(const exo_decoder_spec *s, exo_tensor_places *p)
{
    size_t width = s->width;
    exo_tensor_places_add(p, "word_embeddings.weight", "embedding.weight", 0, s->vocabulary, width);
    exo_tensor_places_norm(p, "word_embeddings_layernorm", "embedding_norm", 0, width, true);
    for (size_t i = 0; i < s->layers; i++) {
        exo_tensor_places_norm(p, "h.#.input_layernorm", "blocks.#.norm1", i, width, true);
        add_fused(p, s, i);
        exo_tensor_places_linear(p, "h.#.self_attention.dense", "blocks.#.attention.out", i, 0,
                                 width, width, true);
        exo_tensor_places_norm(p, "h.#.post_attention_layernorm", "blocks.#.norm2", i, width, true);
        exo_tensor_places_linear(p, "h.#.mlp.dense_h_to_4h", "blocks.#.mlp.up", i, 0, s->inner,
                                 width, true);
        exo_tensor_places_linear(p, "h.#.mlp.dense_4h_to_h", "blocks.#.mlp.down", i, 0, width,
                                 s->inner, true);
    }
    exo_tensor_places_norm(p, "ln_f", "norm", 0, width, true);
}

const exo_family exo_family_bloom = {
    .name = "bloom",
    .architecture = "BloomForCausalLM",
    .prefixes = {"transformer.", ""},
    /* dropout rates, for training only; division and rounding in Megatron's kernels */
    .harmless = {"hidden_dropout", "attention_dropout", "attention_softmax_in_fp32",
                 "bias_dropout_fusion", "masked_softmax_fusion", "offset_alibi", "skip_bias_add",
                 "skip_bias_add_qkv"},
    .read = read_bloom,
    .lacks = lacks,
    .write = write_bloom,
    .places = places,
};
