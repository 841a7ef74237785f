/* Passes that meet others (nn/cuda/graphs.h), for tests in C. */
#ifndef EXO_TEST_CUDA_PASSES_H
#define EXO_TEST_CUDA_PASSES_H

#include <stdbool.h>

#include <exogym/device.h>

typedef struct cuda_passes cuda_passes;

/* The caller closes it. NULL: no memory. */
cuda_passes *cuda_passes_open(exo_device *device);
/* A pass of three fills with a meeting behind each of the first two. fails: started one by one or anew, it
 * fails at its beginning. *met: adds the meetings. Errors: FAILED if `fails`, those of a pass. */
exo_status cuda_passes_run(cuda_passes *passes, bool fails, unsigned *met, exo_err *err);
void cuda_passes_close(cuda_passes *passes);

#endif
