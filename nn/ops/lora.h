/* The low-rank part of a linear layer (exo_lora_linear): its weights, and the gradients of its
 * factors. linear.c calls it. State: the plans, in the operation's cache. Read next: lora.c. */
#ifndef EXO_OPS_LORA_H
#define EXO_OPS_LORA_H

#include <exogym/sequence.h>

#include "nn/tape_run.h"

enum {
    EXO_LORA_INPUTS = 4 /* index into op->in: the factors a and b of the first part, then ... */
};

/* The sizes of a part. All members are of one type, so that they can be compared byte by byte. */
typedef struct exo_lora_part {
    size_t first, rows; /* of the weight */
    size_t rank;
} exo_lora_part;

/* The three products of a part's backward. */
typedef struct exo_lora_plans {
    exo_plan *inner; /* x a^T */
    exo_plan *outer; /* dy b, and the gradient of b */
    exo_plan *first; /* the gradient of a, transposed */
} exo_lora_plans;

/* Checks the factors of a layer with weight (out, in), and writes the sizes of its parts. False:
 * recorded in the tape. */
bool exo_lora_check(exo_tape *tape, const exo_lora_opts *lora, const exo_tensor *weight,
                    exo_lora_part parts[EXO_LORA_PARTS]);

/* Makes the plans for `rows` rows of x. After an error the caller frees what there is. */
exo_status exo_lora_plans_new(exo_lora_plans plans[EXO_LORA_PARTS], exo_device *device,
                              const exo_lora_part parts[EXO_LORA_PARTS], size_t count, size_t rows,
                              size_t in, exo_err *err);
void exo_lora_plans_free(exo_lora_plans plans[EXO_LORA_PARTS]);

/* Writes weight + scale b a of all parts to `out`. Errors are recorded in the tape. */
exo_status exo_lora_merge(exo_tape *tape, const exo_op *op,
                          const exo_lora_part parts[EXO_LORA_PARTS], size_t count, float *out);
/* Adds to the gradients of the factors. dy (rows, out) is the gradient of the product, of the type
 * of x. */
exo_status exo_lora_backward(exo_tape *tape, exo_op *op, const exo_lora_part parts[EXO_LORA_PARTS],
                             const exo_lora_plans plans[EXO_LORA_PARTS], size_t count,
                             const void *dy, exo_err *err);

#endif
