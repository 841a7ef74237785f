/* Operations of language models, on the tape of tensor.h.
 *
 * Shapes: N sequences, T tokens each, R = N T rows (token n T + t is row n T + t), W width, V
 * vocabulary, H query heads, G key-value heads (a divisor of H), D width of a head. Activations are
 * (R, W); tokens and targets are int32 of N T elements, (N, T) or (R).
 */
#ifndef EXOGYM_SEQUENCE_H
#define EXOGYM_SEQUENCE_H

#include <exogym/tensor.h>

EXO_DECLS_BEGIN

/* Functions of single elements; Phi is the normal distribution's. */
typedef enum exo_activation {
    EXO_LINEAR,    /* x */
    EXO_RELU,      /* max(x, 0) */
    EXO_GELU,      /* x Phi(x) (Hendrycks & Gimpel, 2016) */
    EXO_GELU_TANH, /* 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): GPT-2's and BLOOM's */
    EXO_SILU,      /* x / (1 + exp(-x)) */
} exo_activation;

/* Rows of `weight` (V, W) by `tokens` -> (R, W), fp32. A token out of [0, V) is an error of the
 * tape. */
EXO_API exo_tensor *exo_embedding(exo_tape *tape, exo_tensor *tokens, exo_tensor *weight);
/* x (R, W) plus row first + t of `weight` (P, W) for token t of each sequence of `sequence` = T
 * tokens. first + T at most P. */
EXO_API exo_tensor *exo_add_positions(exo_tape *tape, exo_tensor *x, exo_tensor *weight,
                                      size_t sequence, size_t first);

/* activation(x weight^T + bias). x (R, W), weight (O, W), bias (O) or NULL -> (R, O). */
EXO_API exo_tensor *exo_linear_activation(exo_tape *tape, exo_tensor *x, exo_tensor *weight,
                                          exo_tensor *bias, exo_activation activation);
/* residual + x weight^T + bias: the end of a branch. residual (R, O) -> (R, O) fp32. */
EXO_API exo_tensor *exo_linear_residual(exo_tape *tape, exo_tensor *x, exo_tensor *weight,
                                        exo_tensor *bias, exo_tensor *residual);
/* activation(gate) * up, x (R, 2 I): the gate's I columns first -> (R, I) (Shazeer, 2020: SwiGLU
 * with EXO_SILU). */
EXO_API exo_tensor *exo_gated(exo_tape *tape, exo_tensor *x, exo_activation activation);

/* (x - mean) / sqrt(variance + eps) * weight + bias over each row (Ba et al., 2016). weight, bias
 * (W); bias may be NULL. */
EXO_API exo_tensor *exo_layer_norm(exo_tape *tape, exo_tensor *x, exo_tensor *weight,
                                   exo_tensor *bias, float eps);
/* x / sqrt(mean(x^2) + eps) * weight (Zhang & Sennrich, 2019). */
EXO_API exo_tensor *exo_rms_norm(exo_tape *tape, exo_tensor *x, exo_tensor *weight, float eps);

/* Rotary positions (Su et al., 2021), LLaMA's halves: of the first `width` elements of a head, i
 * and i + width / 2 are turned by t * theta^(-2 i / width), which for `scaled` frequencies (width /
 * 2 factors, may be NULL) is multiplied by scaled[i]. */
typedef struct exo_rotary_opts {
    float theta;         /* 10000 in LLaMA */
    size_t width;        /* even, at most D; 0: D */
    const float *scaled; /* must live as long as the tape */
} exo_rotary_opts;

/* Sizes and kind of an attention. */
typedef struct exo_attention_opts {
    size_t sequence;        /* T */
    size_t heads, kv_heads; /* H, G */
    float scale;            /* of the scores, at least 0; 0: 1 / sqrt(D) */
    bool alibi; /* adds slope_h (j - i) to score (i, j) (Press et al., 2021; BLOOM's slopes) */
    /* turns queries and keys first; NULL: not. Must live as long as the tape */
    const exo_rotary_opts *rotary;
    float dropout; /* of the weights, in training, to the nearest of 2^-16; 0: none */
} exo_attention_opts;

/* Causal attention: token i sees tokens 0..i of its sequence. x (R, (H + 2 G) D): a row holds its
 * queries head by head, then its keys, then its values; query head h uses key-value head h / (H /
 * G) -> (R, H D). D is at most 1024. Never holds T x T of anything: a block of scores at a time,
 * with the running maximum and sum of each row (Milakov & Gimelshein, 2018; Dao et al., 2022);
 * backward computes them again. */
EXO_API exo_tensor *exo_attention(exo_tape *tape, exo_tensor *x, const exo_attention_opts *opts);

/* Mean of -log softmax(x weight^T)[target] over the rows whose target is not negative -> one
 * element, fp32. x (R, W), weight (V, W). Holds a piece of the logits at a time; where the weights
 * take up to 64 MiB, the gradients come with the forward pass, else backward computes the logits
 * again. No target at all: 0. */
EXO_API exo_tensor *exo_linear_cross_entropy(exo_tape *tape, exo_tensor *x, exo_tensor *weight,
                                             exo_tensor *targets);
/* log softmax(x weight^T / temperature)[target] of each row -> (R) fp32; 0 where the target is
 * negative. Holds a piece of the logits at a time. temperature 0 counts as 1. */
EXO_API exo_tensor *exo_linear_log_probs(exo_tape *tape, exo_tensor *x, exo_tensor *weight,
                                         exo_tensor *targets, float temperature);

/* Activation checkpointing (Chen et al., 2016): runs `body` on `x` without keeping what it
 * computes, but for the result of its last attention; backward runs it again. `body` must do the
 * same both times, and reach parameters by exo_tape_param. `context` must live until backward. The
 * result has gradients to the last bit as without. In a pass that does not record for backward,
 * `body` runs once, and only its result is kept. */
typedef exo_tensor *(*exo_checkpoint_body)(void *context, exo_tape *tape, exo_tensor *x);
EXO_API exo_tensor *exo_checkpoint(exo_tape *tape, exo_tensor *x, exo_checkpoint_body body,
                                   void *context);

EXO_DECLS_END

#endif
