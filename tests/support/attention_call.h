/* Attention in bf16 on a device, with drawn numbers: for tests that compare two devices, or two ways
 * of one. With the shape's dtype EXO_F32 it is that of the same numbers in fp32. Read next:
 * attention_call.c, unit/cudnn_attention.c. */
#ifndef EXO_TEST_ATTENTION_CALL_H
#define EXO_TEST_ATTENTION_CALL_H

#include <stdbool.h>

#include "nn/device/device_impl.h"

enum {
    ATTENTION_MOST = 1 << 17 /* elements of an array */
};

/* What an attention gives, forward and backward. */
typedef struct attention_outcome {
    float y[ATTENTION_MOST], dx[ATTENTION_MOST], lse[ATTENTION_MOST];
} attention_outcome;

/* How it is called: whether gradients are added to, and forward is alone, without lse; or x begins at no
 * multiple of 16 bytes. With `times`, it is called so often in each of three sections (exo_device_section_begin). */
typedef struct attention_call {
    bool add, without_lse, shifted;
    size_t times; /* 0: once, and in no section */
} attention_call;

/* {N, T, H, G, D, turned} */
exo_attention_shape attention_shape_of(const size_t sizes[6]);
/* Plans and computes; two plans, as those of two layers. */
exo_status attention_outcome_of(exo_device *device, const exo_attention_shape *shape,
                                const attention_call *call, attention_outcome *out, exo_err *err);
/* Expects what bf16 tells apart to be equal. */
void attention_expect_same(const exo_attention_shape *shape, const attention_outcome *a,
                           const attention_outcome *b);

#endif
