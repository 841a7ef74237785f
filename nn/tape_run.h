/* How an operation asks for kernels: of the device that the pass computes on, with errors in the
 * tape. */
#ifndef EXO_TAPE_RUN_H
#define EXO_TAPE_RUN_H

#include "nn/device/device_impl.h"
#include "nn/tape_impl.h"

/* The device that the pass computes on. */
exo_device *exo_tape_device(const exo_tape *tape);
/* Where a kernel writes why it cannot be asked for, and what becomes of that: recorded in the tape,
 * and given back. */
exo_err *exo_tape_reason(exo_tape *tape);
exo_status exo_tape_note(exo_tape *tape, exo_status status);
/* Asks the tape's device for a kernel by its name in the table, with designated arguments. Errors
 * are recorded in the tape. */
#define exo_tape_run(tape, kernel, ...)                                                            \
    exo_tape_note((tape), exo_tape_device(tape)->device_class->kernels->kernel(                    \
                              exo_tape_device(tape), &(const exo_##kernel##_args){__VA_ARGS__},    \
                              exo_tape_reason(tape)))
/* A buffer for a kernel's scratch in *out, NULL if it needs none; the caller gives it back. False:
 * recorded in the tape. */
bool exo_tape_scratch(exo_tape *tape, exo_shape_kind kind, const void *shape, exo_scratch_use use,
                      void **out);
/* Copies on the device. */
exo_status exo_tape_copy(exo_tape *tape, void *to, const void *from, size_t bytes);
/* Copies to the host, after all that was asked for. */
exo_status exo_tape_read(exo_tape *tape, void *to, const void *from, size_t bytes);

#endif
