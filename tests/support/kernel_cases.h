/* One list of the devices' computations: kernel, types, and calls on arrays of any length.
 * tests/unit/device.c compares each device with the reference on it, and bench/kernels.c times it.
 * A kernel of EXO_KERNELS without a case fails the test. */
#ifndef EXO_TEST_KERNEL_CASES_H
#define EXO_TEST_KERNEL_CASES_H

#include <exogym/device.h>

enum {
    KERNEL_CASE_ARRAYS = 5
};

typedef struct kernel_case {
    const char *kernel; /* its name in EXO_KERNELS */
    const char *name;   /* of the case: kernel, type, variant */
    /* 0: all arrays agree to the bit; else the largest |a - b| / (1 + |b|) of fp32 arrays, or of a
     * sum */
    double tolerance;
    size_t streams; /* arrays that the kernel reads and writes, for its throughput in bytes */
    /* Calls the kernel on x (KERNEL_CASE_ARRAYS), each of `count` elements: x[0] to x[2] fp32 of
     * both signs, x[3] fp32 not negative, x[4] int32, a permutation of the indices. A sum is
     * written to *sum. */
    exo_status (*run)(const exo_array *x, double *sum, exo_err *err);
} kernel_case;

extern const kernel_case kernel_cases[];
extern const size_t num_kernel_cases;
/* The cases of the tape's operations (op_cases.c). None computes a sum. */
extern const kernel_case op_cases[];
extern const size_t num_op_cases;
/* And of its layers (layer_cases.c). */
extern const kernel_case layer_cases[];
extern const size_t num_layer_cases;
/* And of generation (decoder_cases.c). */
extern const kernel_case decoder_cases[];
extern const size_t num_decoder_cases;
/* The index-th case of all four lists; NULL after the last. */
const kernel_case *kernel_case_at(size_t index);

/* Makes the arrays of a case on a device. Their numbers are the same on each device. The caller
 * releases them. */
exo_status kernel_case_arrays(exo_array x[KERNEL_CASE_ARRAYS], exo_device *device, size_t count,
                              exo_err *err);
void kernel_case_release(exo_array x[KERNEL_CASE_ARRAYS]);

#endif
