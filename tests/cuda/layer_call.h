/* Calls of kernels of layers on one device, to compare an emulated GPU with the reference. Failures end
 * the test. A call belongs to one thread. Read next: layer_call.c. */
#ifndef EXO_TEST_LAYER_CALL_H
#define EXO_TEST_LAYER_CALL_H

#include <criterion/criterion.h>

#include "nn/device/device_impl.h"

enum {
    LAYER_CALL_MOST = 10 /* arrays of a call */
};

/* A call on one device: its arrays, whose first numbers are drawn. All but the device begins as 0. */
typedef struct layer_call {
    exo_device *device;
    exo_plan *plan;
    exo_array x[LAYER_CALL_MOST], scratch[2];
    size_t used;
} layer_call;

/* An emulated GPU that watches for races. The caller closes it. */
exo_device *layer_call_gpu(void);

/* The next array, of numbers in (-1, 1): the same on each device. */
float *layer_call_drawn(layer_call *c, size_t count);
/* The first numbers of an array as bf16, in an array of their own. */
void *layer_call_bf16(layer_call *c, const float *numbers, size_t count);
/* Makes the plan, and the scratch of forward and backward. */
void layer_call_plan(layer_call *c, exo_shape_kind kind, const void *shape);
/* bf16 results become fp32, for the comparison. */
void layer_call_widen(layer_call *c);

/* Waits for the device, and frees what the call has. */
void layer_call_end(layer_call *c);
/* Compares all arrays of two calls, ends both, and closes the first one's GPU. what: for messages. */
void layer_call_expect_equal(layer_call *gpu, layer_call *ref, double tolerance, const char *what);

/* Runs a kernel of the call's device with the arguments given by their names. */
#define LAYER_CALL(call, kernel, ...)                                                              \
    do {                                                                                           \
        exo_err err_ = {0};                                                                        \
        cr_assert_eq((call)->device->device_class->kernels->kernel(                                \
                         (call)->device, &(const exo_##kernel##_args){__VA_ARGS__}, &err_),        \
                     EXO_OK, "%s", err_.text);                                                     \
    } while (0)

#endif
