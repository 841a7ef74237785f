/* Decoders: one configurable language model, of which GPT-2, OPT, BLOOM, LLaMA, Mistral,
 * Qwen2 and Qwen3 are settings.
 *
 * x = embedding[token] (+ position). Every block: x += attention(norm1(x)), x += mlp(norm2(x)).
 * logits = norm(x) head^T.
 *
 * From a batch with the field "tokens" (N, T) int32 the model computes the outputs "hidden",
 * norm(x) (N T, W), and "logits" (N T, V), as a product (loss.h).
 *
 * Parameters, in this order. "+b": followed by .bias, if the spec says so.
 *   embedding.weight (V, W)
 *   position.weight (context + position_offset, W)  learned positions only
 *   embedding_norm.weight, .bias (W)                embedding_norm only
 *   blocks.I.norm1.weight (W) +b
 *   blocks.I.attention.qkv.weight ((H + 2 G) D, W) +b
 *                                                   rows: queries by head, then keys, then values
 *   blocks.I.attention.q_norm.weight (D), .k_norm.weight (D)
 *                                                   of the family qwen3: RMS norms of each head of
 *                                                   queries and of keys, before rotary positions
 *   blocks.I.attention.out.weight (W, H D) +b
 *   blocks.I.norm2.weight (W) +b
 *   blocks.I.mlp.up.weight (inner, W) +b            gated: (2 inner, W), the gate's rows first
 *   blocks.I.mlp.down.weight (W, inner) +b
 *   norm.weight (W) +b
 *   head.weight (V, W)                              tied: none, embedding.weight takes its place
 *   value.weight (1, W), value.bias (1)             with a value head only
 *   blocks.I.LAYER.lora_a (rank, in), .lora_b (rows, rank)
 *                                                   with LoRA only, for each chosen layer: LAYER is
 *                                                   attention.qkv (of gpt2 and bloom; else
 *                                                   attention.q, .k and .v), attention.out, mlp.gate (gated only),
 *                                                   mlp.up or mlp.down
 * Layer norms have biases. Initial values (GPT-2): N(0, 0.02); attention.out and mlp.down N(0, 0.02
 * / sqrt(2 layers)); biases 0; norms 1; lora_a uniform in [-1/sqrt(in), 1/sqrt(in)); lora_b 0.
 *
 * A layer with LoRA (Hu et al., 2021, arXiv:2106.09685) has the weight W + lora_scale lora_b lora_a.
 * All parameters but those of LoRA and the value head are then frozen.
 */
#ifndef EXOGYM_DECODER_H
#define EXOGYM_DECODER_H

#include <exogym/model.h>
#include <exogym/sequence.h>

EXO_DECLS_BEGIN

/* The representation of positions: a learned row for each position, a rotation of queries and keys
 * (Su et al., 2021, arXiv:2104.09864), or a penalty on distance (Press et al., 2021,
 * arXiv:2108.12409). */
typedef enum exo_position_kind {
    EXO_POSITION_LEARNED,
    EXO_POSITION_ROTARY,
    EXO_POSITION_ALIBI,
} exo_position_kind;

/* The normalization of rows: exo_layer_norm or exo_rms_norm. */
typedef enum exo_norm_kind {
    EXO_NORM_LAYER,
    EXO_NORM_RMS,
} exo_norm_kind;

/* Scaling of rotary frequencies as in LLaMA 3 ("rope_scaling" of type llama3); factor 0: none.
 * `linear` divides all frequencies by the factor. */
typedef struct exo_rope_scaling {
    float factor, low_freq_factor, high_freq_factor; /* as in config.json */
    size_t original_context;                         /* context of the model's training */
    bool linear;
} exo_rope_scaling;

/* The sizes and choices of a decoder. Plain data, copied freely; exo_decoder_check validates it. */
typedef struct exo_decoder_spec {
    /* The family that its Hugging Face directory names: "gpt2", "opt", "bloom", "llama",
     * "mistral", "qwen2" or "qwen3". It says which layers LoRA can be added to and, if it is "qwen3",
     * that heads have norms. */
    char family[16];
    size_t vocabulary, context; /* V; the most tokens of a sequence */
    /* layers; H, G, W and D above; kv_heads divides heads */
    size_t layers, heads, kv_heads, width, head_width;
    size_t inner;                  /* inner width of the MLP */
    exo_position_kind position;    /* the representation of positions */
    size_t position_offset;        /* learned positions: token t has row t + offset; 2 for OPT */
    exo_norm_kind norm;            /* all norms */
    float norm_eps;                /* added to the variance or mean square */
    exo_activation activation;     /* of the MLP */
    bool gated;                    /* activation(gate) * up */
    bool attention_qkv_bias;       /* biases of attention.qkv */
    bool attention_out_bias;       /* biases of attention.out */
    bool mlp_bias;                 /* biases of mlp.up and mlp.down */
    bool tied;                     /* the head is the embedding */
    bool embedding_norm;           /* a norm after the embedding, as in BLOOM */
    float rope_theta;              /* ROTARY: base of the frequencies */
    exo_rope_scaling rope_scaling; /* ROTARY only */
    /* Dropout rate of embeddings, attention weights, and the ends of both branches, in training. */
    float dropout;
    /* Activation checkpointing of all blocks but the last (exo_checkpoint). */
    bool checkpoint;
    /* alpha / rank of the model's LoRA parameters; 0: it has none. A job's option `lora` sets it;
     * exo_decoder_new takes 0 only. */
    float lora_scale;
} exo_decoder_spec;

/* Sets the spec of GPT-2 in a size, given as layers/heads/width: "small" 4/4/128, "sbase" 8/8/512,
 * "base" 12/12/768, "medium" 24/16/1024, "large" 36/20/1280, "xl" 48/25/1600. Vocabulary is 50304
 * and context 1024. NOT_FOUND lists the sizes. */
EXO_API exo_status exo_decoder_size(exo_decoder_spec *out, const char *size, exo_err *err);
/* Checks a spec. INVAL: the text names the fields that do not fit together. */
EXO_API exo_status exo_decoder_check(const exo_decoder_spec *spec, exo_err *err);

/* Makes a model of class "gpt" with this spec. Its batches have the fields "tokens" (T) and
 * "targets" (T), int32, T at most the context. Negative targets do not count. */
EXO_API exo_status exo_decoder_new(exo_model **out, const exo_decoder_spec *spec, exo_err *err);
/* The spec of a model; NULL: the model is no decoder. Lives as long as the model. */
EXO_API const exo_decoder_spec *exo_decoder_spec_of(const exo_model *model);

/* --- Hugging Face directories -----------------------------------------------------------------
 *
 * They hold config.json, model.safetensors (or shards with model.safetensors.index.json), and
 * tokenizer.json. A value head, which transformers' causal models lack, is a file of its own beside
 * them: value_head.safetensors. */

/* Reads a model of one of the families above with fp32, fp16 or bf16 files. The caller frees *params
 * before the model. Every tensor of the files must have its place, and every parameter a tensor of
 * its shape; DAMAGED names file and tensor. */
EXO_API exo_status exo_decoder_load(const char *folder, exo_model **model, exo_params **params,
                                    exo_err *err);
/* Reads config.json only. */
EXO_API exo_status exo_decoder_load_spec(const char *folder, exo_decoder_spec *out, exo_err *err);
/* Reads the tensors into `params`, a copy of `model`, whose spec must be the folder's. */
EXO_API exo_status exo_decoder_load_params(const char *folder, const exo_model *model,
                                           exo_params *params, exo_err *err);
/* Writes config.json and model.safetensors (dtype EXO_F32 or EXO_BF16), in shards of at most
 * `shard_bytes` (0: one file). transformers opens the folder with the same logits. Makes the
 * folder; files are replaced one by one, each atomically. exo_tokenizer_save saves the tokenizer.
 * Of a model with LoRA it writes the merged weights (exo_decoder_merge). INVAL: the folder has an
 * adapter. */
EXO_API exo_status exo_decoder_save(const char *folder, const exo_model *model, exo_params *params,
                                    exo_dtype dtype, size_t shard_bytes, exo_err *err);

/* --- LoRA -------------------------------------------------------------------------------------- */

/* Makes the decoder without LoRA whose weights are W + lora_scale lora_b lora_a: the values that
 * passes and generators of `model` compute with, to the bit. `params` are in host memory and do not
 * change. A value head is left out. The caller frees *out_params, then drops *out_model. Errors:
 * INVAL (the model is no decoder with LoRA), NOMEM. */
EXO_API exo_status exo_decoder_merge(const exo_model *model, exo_params *params,
                                     exo_model **out_model, exo_params **out_params, exo_err *err);
/* Writes lora_a and lora_b in PEFT's format: adapter_config.json and adapter_model.safetensors.
 * `base`: the directory or name of the base model that peft loads; NULL: the caller of peft names
 * it. Makes the folder. A job reads it: model: {name: gpt, path: BASE, lora: {path: FOLDER}}.
 * Errors: INVAL (the model has no LoRA; the folder has a model), UNSUPPORTED (transformers cannot
 * express the model), IO, NOMEM. */
EXO_API exo_status exo_decoder_save_adapter(const char *folder, const exo_model *model,
                                            exo_params *params, const char *base, exo_err *err);

EXO_DECLS_END

#endif
