/* Arguments of the kernels of generation: a decoder's weights in the device's own layout, a pass
 * over rows of tokens, and the logits of some of its rows.
 *
 * A row is one token of a sequence, at a position in it. Each sequence has a cache with the keys
 * and values of its rows. The layouts of weights, caches and scratch are the device's own; its
 * `scratch` gives their bytes. Only device_impl.h includes this file. No state. Read next:
 * decoder_params.c. */
#ifndef EXO_DECODER_ARGS_H
#define EXO_DECODER_ARGS_H

#include <exogym/generate.h>

typedef struct exo_plan exo_plan; /* device_impl.h */

enum {
    EXO_DECODER_PITCH = 32,      /* rows of logits begin at multiples of so many elements */
    EXO_DECODER_LOGIT_ROWS = 24, /* the most rows of one decoder_logits */
    EXO_DECODER_ROWS = 1 << 18   /* the most rows of a pass; a grid has 65,535 blocks of 8 */
};

/* exo_decoder_check accepts the spec. */
typedef struct exo_decoder_shape {
    exo_decoder_spec spec;
    exo_weight_format format;
    size_t context; /* most tokens of a sequence, at most the spec's */
    size_t rows;    /* most rows of a pass */
    /* The plan has part `rank` of `members`, which is cut by outputs (exo_model_output_part); members 0:
     * all. The spec is that of the whole. */
    uint32_t rank, members;
} exo_decoder_shape;

/* The other members of a group that shares a pass. Calls are on the thread that asked for the kernel,
 * in the same order on all members, and data is on the device, in the order of its work. A call that
 * fails does nothing; the context remembers it. */
typedef struct exo_decoder_peers {
    void *context;
    /* data (members, count): block `rank` is this member's; afterwards all blocks are there. */
    void (*gather)(void *context, float *data, size_t count);
    /* data (count): the sum over all members, in the order of ranks. */
    void (*add)(void *context, float *data, size_t count);
} exo_decoder_peers;

/* Writes one parameter to `weights` (EXO_SCRATCH_WEIGHTS), in the shape's format. The weights are
 * zero before the first parameter. */
typedef struct exo_decoder_pack_args {
    exo_plan *plan;
    size_t parameter;    /* its number: exo_decoder_entry_at */
    const float *values; /* as in exogym/decoder.h; of a part, those that it has */
    void *weights;
} exo_decoder_pack_args;

/* Computes the last layer's output of each row, and keeps it in the scratch for decoder_logits.
 * Adds the rows' keys and values to the caches. Rows of one sequence follow each other, and their
 * positions follow those in the cache. */
typedef struct exo_decoder_pass_args {
    exo_plan *plan;
    size_t rows;
    const int32_t *tokens, *positions, *sequences; /* (rows) */
    const void *weights;
    void *caches;                   /* (sequences), EXO_SCRATCH_CACHE each */
    void *scratch;                  /* EXO_SCRATCH_FORWARD */
    const exo_decoder_peers *peers; /* of a part; those of a whole decoder are not used */
} exo_decoder_pass_args;

/* Logits of `rows` rows of the last pass: norm(x[which[r]]) head^T. */
typedef struct exo_decoder_logits_args {
    exo_plan *plan;
    size_t rows;
    const int32_t *which; /* (rows) */
    float *logits; /* (rows, V rounded up to EXO_DECODER_PITCH); no meaning beyond V of a row */
    const void *weights;
    void *scratch;
    const exo_decoder_peers *peers; /* of a part, as above */
    /* Of devices with `log_sums`; log_sums may be NULL. log_sums (2, rows) = log sum e^logit of each
     * row, then log sum e^(scale logit) with its scale. */
    const float *scales; /* (rows) */
    float *log_sums;
} exo_decoder_logits_args;

/* --- The choice of tokens --------------------------------------------------------------------- */

/* What exo_sampling says for one token. */
typedef struct exo_choice_rule {
    double draw;         /* uniform in [0, 1) */
    float scale;         /* 1 / temperature; greedy: 1 */
    float penalty;       /* of tokens that were seen; 1: none */
    float top_p;         /* 0 or 1: all */
    uint32_t top_k;      /* 0: all */
    uint32_t vocabulary; /* the first tokens can be chosen; 0: all */
    uint32_t greedy;     /* 1: the first of the largest logits */
} exo_choice_rule;

/* A token and its log-probabilities, as in exo_generated. token -1: a logit is NaN or +infinite, or
 * all are -infinite, before or after penalty and temperature. */
typedef struct exo_choice {
    int32_t token;
    float log_prob, plain_log_prob;
} exo_choice;

/* What some rule of a call asks for: a token that is drawn, and what it is drawn from. */
#define EXO_CHOICE_DRAWS 1u
#define EXO_CHOICE_TOP_K 2u
#define EXO_CHOICE_TOP_P 4u

static inline unsigned
exo_choice_needs(const exo_choice_rule *rules, size_t count)
{
    unsigned needs = 0;
    for (size_t i = 0; i < count; i++)
        if (!rules[i].greedy)
            needs |= EXO_CHOICE_DRAWS | (rules[i].top_k > 0) * EXO_CHOICE_TOP_K |
                     (rules[i].top_p > 0 && rules[i].top_p < 1) * EXO_CHOICE_TOP_P;
    return needs;
}

typedef struct exo_choose_args {
    size_t rows, vocabulary, pitch;
    const float *logits;          /* (rows, pitch) */
    const float *log_sums;        /* of decoder_logits, with the scales of the rules */
    const exo_choice_rule *rules; /* (rows) */
    const uint64_t *seen; /* (rows, ceil(vocabulary / 64)): a bit a token; NULL: no penalty */
    unsigned needs;       /* exo_choice_needs of at least these rules */
    void *scratch;        /* EXO_SCRATCH_CHOICE, for EXO_DECODER_LOGIT_ROWS rows */
    exo_choice *choices;  /* (rows) */
} exo_choose_args;

/* --- Parameters ------------------------------------------------------------------------------- */

typedef enum exo_decoder_role {
    EXO_DECODER_EMBEDDING,
    EXO_DECODER_POSITION,
    EXO_DECODER_EMBEDDING_NORM,
    EXO_DECODER_NORM1,
    EXO_DECODER_QKV,
    EXO_DECODER_Q_NORM,
    EXO_DECODER_K_NORM,
    EXO_DECODER_OUT,
    EXO_DECODER_NORM2,
    EXO_DECODER_UP,
    EXO_DECODER_DOWN,
    EXO_DECODER_NORM,
    EXO_DECODER_HEAD,
} exo_decoder_role;

typedef struct exo_decoder_entry {
    char name[64]; /* "blocks.0.norm1.weight" */
    exo_decoder_role role;
    size_t block; /* for roles in a block */
    bool bias;    /* the bias of its role, else the weight */
    size_t num_dims, dims[2];
} exo_decoder_entry;

/* Whether each head of queries and keys has an RMS norm of its own, before rotary positions. */
bool exo_decoder_has_head_norms(const exo_decoder_spec *spec);
/* The parameter of that number in the order of exogym/decoder.h; false after the last. */
bool exo_decoder_entry_at(const exo_decoder_spec *spec, size_t index, exo_decoder_entry *out);
/* The same, with the dimensions that the shape's part has. */
bool exo_decoder_part_entry_at(const exo_decoder_shape *shape, size_t index,
                               exo_decoder_entry *out);
/* Leaves an entry of the whole decoder the rows that the shape's part has. */
void exo_decoder_cut_entry(const exo_decoder_shape *shape, exo_decoder_entry *entry);
/* The spec with the heads, the inner width and the vocabulary of the shape's part. *first_token: the
 * first of its vocabulary. */
exo_decoder_spec exo_decoder_part_spec(const exo_decoder_shape *shape, size_t *first_token);

/* --- LoRA ------------------------------------------------------------------------------------- */

/* A linear layer that a low-rank part can be added to, as transformers' family of the spec divides
 * them: rows of one weight. */
typedef struct exo_decoder_layer {
    char name[64];      /* "blocks.0.attention.q" */
    const char *inside; /* of the name: "attention.q" */
    exo_decoder_role role;
    size_t block;
    size_t first, rows, columns; /* of the weight with this role in this block */
} exo_decoder_layer;

/* The index-th layer, block after block; false after the last. */
bool exo_decoder_layer_at(const exo_decoder_spec *spec, size_t index, exo_decoder_layer *out);

/* --- Rotary positions ------------------------------------------------------------------------- */

/* factors (head_width / 2): those of LLaMA's scaled frequencies theta^(-2 i / head_width), as
 * transformers computes them (modeling_rope_utils.py). `linear` divides all frequencies by
 * `factor`. LLaMA 3 leaves those of short wavelengths, divides those of long ones, and interpolates
 * between. False: the spec has no scaling, and factors is not written. */
bool exo_rope_factors(const exo_decoder_spec *spec, float *factors);

#endif
