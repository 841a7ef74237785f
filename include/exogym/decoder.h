/* Decoders: one configurable language model, of which GPT-2, OPT, BLOOM and LLaMA are settings.
 *
 * x = embedding[token] (+ position); every block: x += attention(norm1(x)), x += mlp(norm2(x));
 * logits = norm(x) head^T.
 *
 * Of a batch with the field "tokens", (N, T) int32, its outputs are "hidden", norm(x) (N T, W), and
 * "logits" (N T, V), a product.
 *
 * Parameters, in this order ("+b": and .bias, where the spec says so):
 *   embedding.weight (V, W)
 *   position.weight (context + position_offset, W)                          learned positions
 *   embedding_norm.weight, .bias (W)                                        embedding_norm
 *   blocks.I.norm1.weight (W) +b
 *   blocks.I.attention.qkv.weight ((H + 2 G) D, W) +b                       rows: queries of head 0, 1, ..., then keys, then values
 *   blocks.I.attention.out.weight (W, H D) +b
 *   blocks.I.norm2.weight (W) +b
 *   blocks.I.mlp.up.weight (inner, W) +b;  gated: (2 inner, W)              the gate's rows first
 *   blocks.I.mlp.down.weight (W, inner) +b
 *   norm.weight (W) +b
 *   head.weight (V, W)                                                      unless tied: then it is embedding.weight
 * Norms have biases if they are layer norms. Initial values (GPT-2): N(0, 0.02), attention.out and
 * mlp.down N(0, 0.02 / sqrt(2 layers)), biases 0, norms 1.
 */
#ifndef EXOGYM_DECODER_H
#define EXOGYM_DECODER_H

#include <exogym/model.h>
#include <exogym/sequence.h>

EXO_DECLS_BEGIN

/* How a decoder knows where a token stands: a learned row for each position, queries and keys
 * turned by it (Su et al., 2021), or a penalty for distance (Press et al., 2021). */
typedef enum exo_position_kind {
    EXO_POSITION_LEARNED,
    EXO_POSITION_ROTARY,
    EXO_POSITION_ALIBI,
} exo_position_kind;

/* How rows are normalized: exo_layer_norm, exo_rms_norm. */
typedef enum exo_norm_kind {
    EXO_NORM_LAYER,
    EXO_NORM_RMS,
} exo_norm_kind;

/* How LLaMA 3 stretches rotary frequencies (its "rope_scaling" of type llama3); factor 0: not.
 * `linear` divides all by the factor. */
typedef struct exo_rope_scaling {
    float factor, low_freq_factor, high_freq_factor; /* as in config.json */
    size_t original_context;                         /* that the model was trained on */
    bool linear;
} exo_rope_scaling;

/* Which decoder: sizes and choices. Plain data, copied freely; exo_decoder_check says whether it
 * can be. */
typedef struct exo_decoder_spec {
    /* "gpt2", "opt", "bloom", "llama": what a Hugging Face directory of it would say */
    char family[16];
    size_t vocabulary, context; /* V; the most tokens of a sequence */
    /* H, G, W and D above; kv_heads divides heads */
    size_t layers, heads, kv_heads, width, head_width;
    size_t inner;               /* width inside the MLP */
    exo_position_kind position; /* how it knows where a token stands */
    size_t position_offset;     /* of learned positions: token t has row t + offset; OPT's is 2 */
    exo_norm_kind norm;         /* of all its norms */
    float norm_eps;             /* added to the variance or mean square */
    exo_activation activation;  /* inside the MLP */
    bool gated;                 /* activation(gate) * up */
    bool attention_qkv_bias;    /* of attention.qkv */
    bool attention_out_bias;    /* of attention.out */
    bool mlp_bias;              /* of mlp.up and mlp.down */
    bool tied;                  /* the head is the embedding */
    bool embedding_norm;        /* BLOOM's */
    float rope_theta;           /* of ROTARY: the base of its frequencies */
    exo_rope_scaling rope_scaling; /* of ROTARY */
    /* of embeddings, attention's weights, and both branches' ends, in training */
    float dropout;
    /* keeps little of blocks, but of the last, and computes them again in backward */
    bool checkpoint;
} exo_decoder_spec;

/* GPT-2 of a size: "small" 4/4/128, "sbase" 8/8/512, "base" 12/12/768, "medium" 24/16/1024, "large"
 * 36/20/1280, "xl" 48/25/1600 (layers, heads, width). Sets all but vocabulary, which is 50304, and
 * context, 1024. NOT_FOUND lists the sizes. */
EXO_API exo_status exo_decoder_size(exo_decoder_spec *out, const char *size, exo_err *err);
/* INVAL says what does not fit together. */
EXO_API exo_status exo_decoder_check(const exo_decoder_spec *spec, exo_err *err);

/* A model of class "gpt" with this spec. Its batches have the fields "tokens" (T) and "targets"
 * (T), int32, T at most the context; targets that are negative do not count. */
EXO_API exo_status exo_decoder_new(exo_model **out, const exo_decoder_spec *spec, exo_err *err);
/* NULL: the model is no decoder. Lives as long as the model. */
EXO_API const exo_decoder_spec *exo_decoder_spec_of(const exo_model *model);

/* --- Hugging Face directories: config.json, model.safetensors (or shards with model.safetensors.index.json), tokenizer.json  */

/* Reads GPT-2, OPT, BLOOM or LLaMA. *params are the caller's, to be freed before the model. Every
 * tensor of the files must have its place and every parameter its tensor, of its shape: DAMAGED
 * names file and tensor. fp32, fp16 and bf16 files. */
EXO_API exo_status exo_decoder_load(const char *folder, exo_model **model, exo_params **params,
                                    exo_err *err);
/* Reads config.json only. */
EXO_API exo_status exo_decoder_load_spec(const char *folder, exo_decoder_spec *out, exo_err *err);
/* Reads the tensors into a copy of a model that has the folder's spec. */
EXO_API exo_status exo_decoder_load_params(const char *folder, const exo_model *model,
                                           exo_params *params, exo_err *err);
/* Writes config.json and model.safetensors (dtype EXO_F32 or EXO_BF16), in shards of at most
 * `shard_bytes` (0: one file), so that transformers opens the folder with the same logits. The
 * folder is made; files are replaced one by one, each at once. A tokenizer is saved by
 * exo_tokenizer_save. */
EXO_API exo_status exo_decoder_save(const char *folder, const exo_model *model, exo_params *params,
                                    exo_dtype dtype, size_t shard_bytes, exo_err *err);

EXO_DECLS_END

#endif
