/* What tests say to the cuDNN of the tests (cudnn.cc), which they load as a shared object. It has the
 * symbols of cuDNN 9 that exogym uses, and computes on the streams of tests/cuda by plain loops. Its
 * heuristic also advises engines that exogym must not take. A use that cuDNN forbids, or that
 * would give other bits in each run, ends the process.
 *
 * Owner: the process; the emulator's lock guards all of it. */
#ifndef EXO_TEST_CUDNN_H
#define EXO_TEST_CUDNN_H

#include <stddef.h>
#include <stdint.h>

typedef struct cudnn_test {
    /* The n-th call from now on that can fail returns this status; n counts from 1, 0: none does. */
    void (*fail_at)(uint64_t n, int status);
    /* The heuristic advises nothing that exogym can take. */
    void (*without_advice)(int without);
    /* A plan that is not supported fails otherwise: with CUDNN_STATUS_EXECUTION_FAILED. */
    void (*break_plans)(int broken);
    /* The number that cudnnGetVersion has. */
    void (*version)(size_t number);
    /* Handles and descriptors that are there, calls that can fail, and convolutions of each kind. */
    uint64_t (*things)(void);
    uint64_t (*calls)(void);
    uint64_t (*forwards)(void);
    uint64_t (*backwards)(void);
    /* The last convolution was computed as tf32. */
    int (*was_tf32)(void);
    uint64_t (*attentions)(void); /* passes of attention */
} cudnn_test;

#define CUDNN_TEST_SYMBOL "cudnn_test_calls" /* a cudnn_test */

#endif
