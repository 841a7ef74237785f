/* Opens and closes a GPU, for C. Errors and owners: device.h. */
#ifndef EXO_CUDA_OPEN_H
#define EXO_CUDA_OPEN_H

#include <exogym/device.h>

EXO_DECLS_BEGIN

/* Opens the GPU of that ordinal among those that the process sees. Errors: UNSUPPORTED (there is no
 * driver, or no such GPU), NOMEM, FAILED. */
exo_status exo_cuda_open(exo_device **out, int ordinal, exo_err *err);
/* The caller has released everything on the device before. */
void exo_cuda_close(exo_device *device);

EXO_DECLS_END

#endif
