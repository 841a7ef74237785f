/* Operations of language models, on the tape of tensor.h.
 *
 * Shapes: N sequences of T tokens, R = N T rows (row n T + t is token t of sequence n), W width, V
 * vocabulary, H query heads, G key-value heads (a divisor of H), D width of a head. Activations are
 * (R, W). Tokens and targets are int32, N T elements, as (N, T) or (R).
 */
#ifndef EXOGYM_SEQUENCE_H
#define EXOGYM_SEQUENCE_H

#include <exogym/tensor.h>

EXO_DECLS_BEGIN

/* Functions of single elements; Phi is the standard normal distribution function. */
typedef enum exo_activation {
    EXO_LINEAR,    /* x */
    EXO_RELU,      /* max(x, 0) */
    EXO_GELU,      /* x Phi(x) (Hendrycks & Gimpel, 2016) */
    EXO_GELU_TANH, /* 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): GPT-2's and BLOOM's */
    EXO_SILU,      /* x / (1 + exp(-x)) */
} exo_activation;

/* The rows of `weight` (V, W) that `tokens` name -> (R, W), fp32. A token outside [0, V) is an
 * error of the tape. */
EXO_API exo_tensor *exo_embedding(exo_tape *tape, exo_tensor *tokens, exo_tensor *weight);
/* Adds row first + t of `weight` (P, W) to the row of token t in each sequence. x (R, W);
 * `sequence` is T; first + T <= P. */
EXO_API exo_tensor *exo_add_positions(exo_tape *tape, exo_tensor *x, exo_tensor *weight,
                                      size_t sequence, size_t first);

/* activation(x weight^T + bias) -> (R, O). x (R, W), weight (O, W), bias (O) or NULL. */
EXO_API exo_tensor *exo_linear_activation(exo_tape *tape, exo_tensor *x, exo_tensor *weight,
                                          exo_tensor *bias, exo_activation activation);
/* residual + x weight^T + bias -> (R, O) fp32: the end of a residual branch. residual (R, O). */
EXO_API exo_tensor *exo_linear_residual(exo_tape *tape, exo_tensor *x, exo_tensor *weight,
                                        exo_tensor *bias, exo_tensor *residual);

/* The most low-rank parts of one linear layer: those of queries, keys and values in one matrix. */
enum {
    EXO_LORA_PARTS = 3
};

/* A low-rank part of rows [first, first + N) of a weight (O, W). */
typedef struct exo_lora {
    exo_tensor *a, *b; /* (rank, W) and (N, rank), fp32 */
    size_t first;      /* the first of its rows; parts do not overlap */
} exo_lora;

/* The parts of a layer, and what follows its product. */
typedef struct exo_lora_opts {
    exo_lora parts[EXO_LORA_PARTS]; /* (count) */
    size_t count;                   /* from 1 */
    float scale;                    /* alpha / rank */
    exo_activation activation;      /* of the sum; EXO_LINEAR with a residual */
    exo_tensor *residual;           /* (R, O), or NULL */
} exo_lora_opts;

/* activation(x (weight + scale b a)^T + bias), or that product + residual (Hu et al., 2021,
 * arXiv:2106.09685) -> (R, O). The sum of weights is computed first, as generation does, so the
 * result has the bits of the layer with the sum as its weight. Backward computes the gradients of a
 * and b from their own small products; it computes the gradient of `weight` only if that one is
 * learned. Errors of the tape: INVAL (shapes). */
EXO_API exo_tensor *exo_lora_linear(exo_tape *tape, exo_tensor *x, exo_tensor *weight,
                                    exo_tensor *bias, const exo_lora_opts *lora);

/* activation(gate) * up -> (R, I). x (R, 2 I) holds gate in its first I columns, then up (Shazeer,
 * 2020, arXiv:2002.05202: SwiGLU with EXO_SILU). */
EXO_API exo_tensor *exo_gated(exo_tape *tape, exo_tensor *x, exo_activation activation);

/* (x - mean) / sqrt(variance + eps) * weight + bias over each row (Ba et al., 2016,
 * arXiv:1607.06450). weight and bias (W); bias may be NULL. */
EXO_API exo_tensor *exo_layer_norm(exo_tape *tape, exo_tensor *x, exo_tensor *weight,
                                   exo_tensor *bias, float eps);
/* x / sqrt(mean(x^2) + eps) * weight over each row (Zhang & Sennrich, 2019, arXiv:1910.07467). */
EXO_API exo_tensor *exo_rms_norm(exo_tape *tape, exo_tensor *x, exo_tensor *weight, float eps);

/* Rotary positions (Su et al., 2021, arXiv:2104.09864), in LLaMA's layout by halves: in the first
 * `width` elements of a head, the pair i and i + width / 2 is rotated by t * theta^(-2 i / width).
 * With `scaled` (width / 2 factors, or NULL) this angle is multiplied by scaled[i]. */
typedef struct exo_rotary_opts {
    float theta;         /* 10000 in LLaMA */
    size_t width;        /* even, at most D; 0: D */
    const float *scaled; /* (width / 2); must live as long as the tape */
} exo_rotary_opts;

/* Sizes and options of an attention. */
typedef struct exo_attention_opts {
    size_t sequence;        /* T */
    size_t heads, kv_heads; /* H, G */
    float scale;            /* scale of the scores, at least 0; 0: 1 / sqrt(D) */
    bool alibi; /* adds slope_h (j - i) to score (i, j) (Press et al., 2021; BLOOM's slopes) */
    /* Rotates queries and keys first; NULL: no rotation. Must live as long as the tape. */
    const exo_rotary_opts *rotary;
    float dropout; /* rate on the weights in training, rounded to 2^-16; 0: none */
} exo_attention_opts;

/* Causal attention: token i attends to the tokens 0..i of its sequence. x (R, (H + 2 G) D) -> (R, H
 * D). A row of x holds the queries head by head, then the keys, then the values; query head h uses
 * key-value head h / (H / G). D is at most 1024. No T x T matrix is ever held: scores are computed
 * a block at a time, with the running maximum and sum of each row (Milakov & Gimelshein, 2018,
 * arXiv:1805.02867; Dao et al., 2022, arXiv:2205.14135), and backward computes them again. */
EXO_API exo_tensor *exo_attention(exo_tape *tape, exo_tensor *x, const exo_attention_opts *opts);

/* The mean of -log softmax(x weight^T)[target] over the rows whose target is not negative -> one
 * element, fp32; 0 if there is no such row. x (R, W), weight (V, W). Only a piece of the logits is
 * in memory at a time. If the weights take up to 64 MiB, on a GPU 256 MiB, the forward pass computes
 * the gradients, too; otherwise backward computes the logits again. With autocast such a pass has
 * logits in bf16 on a GPU (docs/gpu.md), else they are fp32. */
EXO_API exo_tensor *exo_linear_cross_entropy(exo_tape *tape, exo_tensor *x, exo_tensor *weight,
                                             exo_tensor *targets);
/* log softmax(x weight^T / temperature)[target] of each row -> (R) fp32; 0 where the target is
 * negative. Only a piece of the logits is in memory at a time. temperature 0 counts as 1. */
EXO_API exo_tensor *exo_linear_log_probs(exo_tape *tape, exo_tensor *x, exo_tensor *weight,
                                         exo_tensor *targets, float temperature);

/* Activation checkpointing (Chen et al., 2016, arXiv:1604.06174): runs `body` on `x` and keeps none
 * of its intermediate values, except the result of its last attention; backward runs `body` again.
 * `body` must do the same both times, and take its parameters by exo_tape_param. `context` must
 * live until backward. Result and gradients are the same to the bit as without checkpointing. In a
 * pass that does not record for backward, `body` runs once and only its result is kept. */
typedef exo_tensor *(*exo_checkpoint_body)(void *context, exo_tape *tape, exo_tensor *x);
EXO_API exo_tensor *exo_checkpoint(exo_tape *tape, exo_tensor *x, exo_checkpoint_body body,
                                   void *context);

EXO_DECLS_END

#endif
