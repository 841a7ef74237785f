/* OPT (Zhang et al., 2022) as in transformers: learned positions that begin at row 2, layer norms
 * before each branch, ReLU, and separate linear layers for queries, keys and values. No state. The
 * interface is in family.h. */
#include "nn/pretrained/family.h"

enum {
    OFFSET = 2 /* the row of position 0 */
};

static const float eps = 1e-5f; /* the only epsilon of OPT's norms in transformers */

static void
read_opt(exo_hf_config *c, exo_decoder_spec *s)
{
    s->vocabulary = exo_hf_size(c, "vocab_size", 50272);
    s->context = exo_hf_size(c, "max_position_embeddings", 2048);
    s->width = exo_hf_size(c, "hidden_size", 768);
    s->layers = exo_hf_size(c, "num_hidden_layers", 12);
    s->heads = s->kv_heads = exo_hf_size(c, "num_attention_heads", 12);
    s->head_width = s->width / s->heads;
    if (s->width % s->heads != 0)
        exo_hf_wrong(c, "hidden_size", "expected a multiple of num_attention_heads");
    s->inner = exo_hf_size(c, "ffn_dim", 3072);
    s->position = EXO_POSITION_LEARNED;
    s->position_offset = OFFSET;
    s->norm = EXO_NORM_LAYER;
    s->norm_eps = eps;
    s->activation = exo_hf_activation(c, "activation_function", EXO_RELU);
    s->attention_qkv_bias = s->attention_out_bias = s->mlp_bias =
        exo_hf_bool(c, "enable_bias", true);
    s->tied = exo_hf_bool(c, "tie_word_embeddings", true);
    s->rope_theta = 10000.0f;
    if (!exo_hf_bool(c, "do_layer_norm_before", true))
        exo_hf_refuse(c, "do_layer_norm_before",
                      "the decoder has no norms after its branches, as opt-350m has");
    if (exo_hf_size(c, "word_embed_proj_dim", s->width) != s->width)
        exo_hf_refuse(c, "word_embed_proj_dim",
                      "the decoder has no embeddings narrower than hidden_size, as opt-350m has");
    exo_hf_must(c, "_remove_final_layer_norm", false);
    exo_hf_must(c, "layer_norm_elementwise_affine", true);
}

static const char *
lacks(const exo_decoder_spec *s)
{
    if (s->position != EXO_POSITION_LEARNED || s->position_offset != OFFSET)
        return "its positions are learned, with offset 2";
    if (s->norm != EXO_NORM_LAYER || s->norm_eps != eps || s->embedding_norm)
        return "it has layer norms with epsilon 1e-5, and none after the embedding";
    if (s->gated)
        return "its MLP is not gated";
    if (s->attention_qkv_bias != s->attention_out_bias || s->attention_qkv_bias != s->mlp_bias)
        return "all its linear layers have biases, or none has";
    if (s->kv_heads != s->heads || s->heads * s->head_width != s->width)
        return "it has as many key-value heads as heads, which share out the width";
    return NULL;
}

static json_t *
write_opt(const exo_decoder_spec *s)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:b, s:b, s:b, s:I, s:o, s:o}", "vocab_size",
        (json_int_t)s->vocabulary, "max_position_embeddings", (json_int_t)s->context, "hidden_size",
        (json_int_t)s->width, "num_hidden_layers", (json_int_t)s->layers, "num_attention_heads",
        (json_int_t)s->heads, "ffn_dim", (json_int_t)s->inner, "activation_function",
        exo_hf_activation_name(s->activation), "enable_bias", s->mlp_bias, "tie_word_embeddings",
        s->tied, "do_layer_norm_before", true, "word_embed_proj_dim", (json_int_t)s->width,
        "dropout", exo_hf_real(s->dropout), "attention_dropout", exo_hf_real(s->dropout));
}

static void
places(const exo_decoder_spec *s, exo_tensor_places *p)
{
    size_t width = s->width;
    bool bias = s->mlp_bias;
    exo_tensor_places_add(p, "embed_tokens.weight", "embedding.weight", 0, s->vocabulary, width);
    exo_tensor_places_add(p, "embed_positions.weight", "position.weight", 0, s->context + OFFSET,
                          width);
    for (size_t i = 0; i < s->layers; i++) {
        const char *qkv = "blocks.#.attention.qkv";
        exo_tensor_places_norm(p, "layers.#.self_attn_layer_norm", "blocks.#.norm1", i, width,
                               true);
        exo_tensor_places_linear(p, "layers.#.self_attn.q_proj", qkv, i, 0, width, width, bias);
        exo_tensor_places_linear(p, "layers.#.self_attn.k_proj", qkv, i, width, width, width, bias);
        exo_tensor_places_linear(p, "layers.#.self_attn.v_proj", qkv, i, 2 * width, width, width,
                                 bias);
        exo_tensor_places_linear(p, "layers.#.self_attn.out_proj", "blocks.#.attention.out", i, 0,
                                 width, width, bias);
        exo_tensor_places_norm(p, "layers.#.final_layer_norm", "blocks.#.norm2", i, width, true);
        exo_tensor_places_linear(p, "layers.#.fc1", "blocks.#.mlp.up", i, 0, s->inner, width, bias);
        exo_tensor_places_linear(p, "layers.#.fc2", "blocks.#.mlp.down", i, 0, width, s->inner,
                                 bias);
    }
    exo_tensor_places_norm(p, "final_layer_norm", "norm", 0, width, true);
}

const exo_family exo_family_opt = {
    .name = "opt",
    .architecture = "OPTForCausalLM",
    .prefixes = {"model.decoder.", "decoder.", ""},
    /* dropout rates, for training only; initial values; fields of the training code that nothing
     * reads */
    .harmless = {"dropout", "attention_dropout", "activation_dropout", "layerdrop", "init_std",
                 "output_projection"},
    .read = read_opt,
    .lacks = lacks,
    .write = write_opt,
    .places = places,
};
