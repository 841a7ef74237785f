/* A forward pass over rows, on the device of the parameters. A row is one token of a sequence, at a
 * position in it.
 *
 * A pass is planned (exo_pass_begin, exo_pass_add), then run (exo_pass_run). The device writes the
 * rows' keys and values into the caches. The requested logits are copied to the host, and handed to
 * a function. Weights, caches and working memory are arrays of the device.
 *
 * Owner: the generator, which runs one pass at a time. Read next: forward.c, generator.c,
 * nn/device/decoder_args.h. */
#ifndef EXO_GENERATE_FORWARD_H
#define EXO_GENERATE_FORWARD_H

#include <exogym/comm.h>
#include <exogym/generate.h>

#include "nn/device/device_impl.h"

enum {
    EXO_LOGIT_ROWS = EXO_DECODER_LOGIT_ROWS /* rows whose logits are in memory at once */
};

/* The device's log-sums of a row: log sum e^logit, and log sum e^(scale logit). */
typedef struct exo_logits_sums {
    float plain, scaled;
} exo_logits_sums;

/* Working memory of an exo_logits_use: four arrays of as many elements as a row of logits. */
typedef struct exo_logits_scratch {
    float *weights, *values;
    uint32_t *places, *order;
    const exo_logits_sums *sums; /* of the row; NULL: the host computes them as the device does */
} exo_logits_scratch;

/* Called once for each row with requested logits, on any thread, several at a time. `tag` is the
 * row's tag of exo_pass_add. The function may overwrite logits (V), which are the host's. */
typedef void (*exo_logits_use)(void *context, size_t tag, float *logits,
                               const exo_logits_scratch *scratch);

/* Tokens that the device chooses (exo_choose_args). `rule` is called for each row with requested
 * logits before the pass, and `chosen` afterwards, both on the thread of exo_pass_run. seen: as many
 * bits as the vocabulary has tokens; NULL: the rule has no penalty. */
typedef struct exo_pass_choice {
    exo_choice_rule (*rule)(void *context, size_t tag, const uint64_t **seen);
    void (*chosen)(void *context, size_t tag, const exo_choice *choice);
} exo_pass_choice;

typedef struct exo_forward {
    exo_device *device;
    exo_decoder_shape shape;
    exo_group *group;        /* of a part; the caller's. NULL: a whole decoder */
    exo_decoder_peers peers; /* its collectives */
    exo_status peer_status;  /* the first error of a collective, */
    exo_err peer_err;        /* and its reason */
    exo_plan *plan;
    size_t sequences;                   /* the number of caches */
    size_t weight_bytes, cache_bytes;   /* of all weights; of one cache */
    exo_array weights, caches, scratch; /* bytes, in the device's layouts */
    /* (EXO_LOGIT_ROWS, pitch + 2): the logits of some rows, then (2, those rows) log-sums if the
     * device gives them */
    exo_array logits;
    exo_array tokens, positions, places; /* (rows): int32, of the plan's rows */
    exo_array which;                     /* (rows): int32, the rows with requested logits */

    /* The plan, on the host. */
    size_t rows, outputs;
    int32_t *token, *position, *place, *output; /* (shape.rows) each, as the arrays */
    size_t *tag;                                /* (shape.rows): of the rows with logits */
    float *scale;                               /* likewise */
    exo_logits_use use;
    const exo_pass_choice *choice; /* NULL: `use` gets the logits */
    void *use_context;

    /* A copy of `logits`, or the array itself if it is the host's. */
    float *read;
    float *copy;      /* owned; NULL: `read` is the array */
    exo_array scales; /* (rows), of a device that gives log-sums; else empty */
    size_t in_use;    /* the rows in `read` */
    size_t pitch;
    size_t first;                      /* the first of the rows in `read` */
    exo_logits_scratch scratch_of_use; /* (EXO_LOGIT_ROWS, pitch) each */

    /* Of a device that chooses; else empty. */
    exo_array rules, choices; /* (rows) exo_choice_rule; exo_choice */
    exo_array seen;           /* (rows, ceil(vocabulary / 64)) words, made for the first penalty */
    exo_array choice_scratch; /* EXO_SCRATCH_CHOICE */
    unsigned needs;           /* exo_choice_needs of all rules */
    exo_choice_rule *rule;    /* (rows) each, on the host */
    exo_choice *chosen;
} exo_forward;

/* Makes everything but the caches, on the device of `params`, and packs the parameters. `out` must
 * be zero but for `group`, whose member the shape's part is of. The caller releases it, also after an error, before the device is closed. Errors: INVAL
 * (they are not the spec's parameters), UNSUPPORTED, NOMEM, or the device's. */
exo_status exo_forward_init(exo_forward *out, const exo_decoder_shape *shape, exo_params *params,
                            exo_err *err);
/* Makes the caches of `sequences` sequences. NOMEM: they do not fit into the device's free
 * memory. */
exo_status exo_forward_make_caches(exo_forward *forward, size_t sequences, exo_err *err);
void exo_forward_release(exo_forward *forward);
/* Packs other parameters of the spec, which may be on any device. INVAL: they are not the spec's;
 * the weights are unchanged. NOMEM: likewise. After a device's error the weights are not usable. */
exo_status exo_forward_pack(exo_forward *forward, exo_params *params, exo_err *err);

/* Begins an empty plan. The run calls use(context, ...). */
void exo_pass_begin(exo_forward *forward, exo_logits_use use, void *context);
/* The same, of a pass whose tokens the device chooses (exo_forward_chooses). `choice` must outlive the
 * run. */
void exo_pass_begin_choice(exo_forward *forward, const exo_pass_choice *choice, void *context);
bool exo_forward_chooses(const exo_forward *forward);
/* Adds `count` tokens of the sequence that owns cache number `place`, at position, position + 1,
 * ... It requests the logits of the last `wanted` of them, with the tags tag, tag + 1, ... The
 * scale is that of the device's log-sums (exo_logits_sums). The caller guarantees room for the rows,
 * tokens of the vocabulary, a cache filled up to `position`, and that each sequence is added once. */
void exo_pass_add(exo_forward *forward, size_t place, const int32_t *tokens, size_t count,
                  size_t position, size_t wanted, size_t tag, float scale);
/* Runs the plan, and blocks until the device has done it and each requested row has been used. An
 * empty plan does nothing. Errors: the device's; some rows may have been used. */
exo_status exo_pass_run(exo_forward *forward, exo_err *err);

#endif
