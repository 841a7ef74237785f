/* How an operation asks for kernels of the pass's device. Errors are recorded in the tape. As the
 * tape, for one thread at a time. Read next: tape_device.c; device/device_impl.h. */
#ifndef EXO_TAPE_RUN_H
#define EXO_TAPE_RUN_H

#include "nn/device/device_impl.h"
#include "nn/tape_impl.h"

/* The device that the pass computes on. */
exo_device *exo_tape_device(const exo_tape *tape);
/* exo_tape_reason: where a call on the device writes the reason of a failure. exo_tape_note:
 * records a failed status with that reason, and returns the status. */
exo_err *exo_tape_reason(exo_tape *tape);
exo_status exo_tape_note(exo_tape *tape, exo_status status);
/* Asks the device for a kernel by its name in the table, with designated arguments. Returns its
 * status. Errors are recorded in the tape. */
#define exo_tape_run(tape, kernel, ...)                                                            \
    exo_tape_note((tape), exo_tape_device(tape)->device_class->kernels->kernel(                    \
                              exo_tape_device(tape), &(const exo_##kernel##_args){__VA_ARGS__},    \
                              exo_tape_reason(tape)))
/* Sets *out to a buffer for a kernel's scratch, or NULL if the kernel needs none. The caller gives
 * it back. False: recorded in the tape. */
bool exo_tape_scratch(exo_tape *tape, exo_shape_kind kind, const void *shape, exo_scratch_use use,
                      void **out);
/* Copies on the device, in the order of its work. Errors are recorded in the tape. */
exo_status exo_tape_copy(exo_tape *tape, void *to, const void *from, size_t bytes);
/* Copies from the host, and waits for the device. Errors are recorded in the tape. */
exo_status exo_tape_take(exo_tape *tape, void *to, const void *from, size_t bytes);
/* Copies to the host, and waits for the device. Errors are recorded in the tape. */
exo_status exo_tape_read(exo_tape *tape, void *to, const void *from, size_t bytes);

#endif
