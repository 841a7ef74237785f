/* The inside of the class "gpt": a spec, and what is built from it. decoder_spec.c has the rules of
 * specs, decoder_options.c a job's options, decoder.c the parameters, decoder_lora.c those of LoRA,
 * decoder_forward.c the pass. It is read-only once built, for any thread. */
#ifndef EXO_MODELS_DECODER_H
#define EXO_MODELS_DECODER_H

#include <exogym/decoder.h>
#include <exogym/parallel.h>

/* A parameter that some specs do not have. */
typedef struct exo_decoder_param {
    exo_param param;
    bool there;
} exo_decoder_param;

typedef struct exo_decoder_norm {
    exo_param weight;
    exo_decoder_param bias;
} exo_decoder_norm;

/* LoRA parameters of rows from `first` on of a weight. */
typedef struct exo_decoder_lora_part {
    exo_param a, b;
    size_t first;
} exo_decoder_lora_part;

typedef struct exo_decoder_linear {
    exo_param weight;
    exo_decoder_param bias;
    exo_decoder_lora_part lora[EXO_LORA_PARTS]; /* (num_lora) */
    size_t num_lora;
} exo_decoder_linear;

typedef struct exo_decoder_block {
    exo_decoder_norm norm1, norm2;
    exo_decoder_linear qkv, out, up, down;
    exo_decoder_param q_norm, k_norm; /* weights of the norms over heads */
} exo_decoder_block;

/* The option `lora`. */
typedef struct exo_decoder_lora {
    size_t rank; /* 0: the model has none */
    float alpha;
    char *folder; /* of the adapter with the initial values. NULL: they are drawn */
    bool *chosen; /* (layers of exo_decoder_layer_at) */
} exo_decoder_lora;

/* The share of the decoder that a node has (exo_share): a part of each layer, some tokens, some of the
 * layers. The spec stays that of the whole. */
typedef struct exo_decoder_part {
    uint32_t rank, members;   /* members 0: all of each layer */
    bool by_outputs;          /* each layer is cut by its outputs, for generation */
    bool sequence;            /* between cut layers, a member has some rows of what all had */
    uint32_t member, context; /* context 0: all tokens; else it has 1/context of each sequence */
    uint32_t stage, stages;   /* stages 0: all layers */
} exo_decoder_part;

/* The class's state. In exo_decoder_new, only `spec` is set before build; in exo_model_share also
 * `part` and `values`. */
typedef struct exo_decoder {
    exo_decoder_spec spec;
    exo_decoder_part part;
    /* The Hugging Face directory of the initial values. NULL: they are drawn. */
    char *folder;
    exo_param embedding, position;
    exo_decoder_norm embedding_norm, norm;
    exo_decoder_param head;
    bool values; /* it has a value head: a row of weights and a bias */
    exo_decoder_lora lora;
    exo_param value_weight, value_bias;
    exo_decoder_block *blocks; /* (layers) */
    exo_rotary_opts rotary;
    float *scaled; /* (head_width / 2): factors of the rotary frequencies, or NULL */
} exo_decoder;

/* The class of parts, with the same functions, without the output "logits", and with "head" in its place,
 * this member's rows of it; and that of parts that are cut by outputs, which have no pass. */
extern const exo_model_class exo_gpt_part, exo_gpt_output_part;
/* The classes of stages: of those before the last one, whose outputs are "input" (R, W), a variable
 * (not of the first stage), and "hidden" (R, W); and of the last one, which has the objective, too.
 * After the first stage, a batch has a field "hidden" (T, W). */
extern const exo_model_class exo_gpt_stage, exo_gpt_last_stage;
/* The class of decoders with context parallelism, which has the objective. Its outputs have the rows of
 * this member's tokens. */
extern const exo_model_class exo_gpt_context;
/* With context parallelism: this member's part of tokens or targets (N, T) -> (N, T / C), and the
 * positions (N, own) of `own` tokens of each of N sequences, as rows of the table. NULL: recorded. */
exo_tensor *exo_decoder_own_tokens(const exo_decoder *decoder, exo_tape *tape,
                                   const exo_tensor *tokens);
exo_tensor *exo_decoder_own_positions(const exo_decoder *decoder, exo_tape *tape, size_t samples,
                                      size_t own);
/* The class's `build` and `release`. `config` is NULL where the state starts with a spec. */
exo_status exo_decoder_build(void *self, exo_builder *builder, exo_config *config, exo_err *err);
void exo_decoder_release(void *self);

/* How a layer is cut: `num` pieces that follow each other along dimension `dim`, of each of which
 * every member has an equal part. num 0: the layer is whole in every part. */
typedef struct exo_decoder_cut {
    size_t dim, num;
    size_t pieces[EXO_MAX_BANDS];
} exo_decoder_cut;
/* The cut of a parameter in this part; without bands in a whole decoder. */
exo_param_cut exo_decoder_part_cut(const exo_decoder_part *part, const exo_decoder_cut *cut);
/* Whether the decoder has the embedding, or the last norm and the head; the blocks that it has. */
bool exo_decoder_has_first(const exo_decoder *decoder);
bool exo_decoder_has_last(const exo_decoder *decoder);
void exo_decoder_blocks(const exo_decoder *decoder, size_t *first, size_t *count);
/* Checks the groups of a pass over a share. False: one is missing or another one, recorded. */
bool exo_decoder_check_groups(const exo_decoder *decoder, exo_tape *tape);

/* Reads a job's options into the spec and, for the option `path`, the folder. */
exo_status exo_decoder_read_options(exo_decoder *decoder, exo_config *config, exo_err *err);

/* Reads the option `lora`, if there is one, for the spec. */
exo_status exo_decoder_read_lora(exo_decoder *decoder, exo_config *config, exo_err *err);
/* Freezes all parameters that are declared except the value head's, and declares those of LoRA,
 * which have a unit for each block. Does nothing without LoRA. */
void exo_decoder_declare_lora(exo_decoder *decoder, exo_builder *builder);
void exo_decoder_lora_release(exo_decoder_lora *lora);

/* The class's `forward`, for batches with a field "tokens" (N, T); R is N T. Gives hidden (R, W),
 * logits (R, V) as the product of hidden and the head, and with a value head values (R). */
void exo_decoder_forward(const void *self, exo_tape *tape, const exo_batch *batch,
                         exo_outputs *outputs);

#endif
