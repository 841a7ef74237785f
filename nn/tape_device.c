/* A tape's copies on its device, and their errors. State: the tape's last reason; as the tape, it
 * belongs to one thread at a time. Read next: tape_run.h. */
#include "nn/tape_private.h"

exo_device *
exo_tape_device(const exo_tape *tape)
{
    return tape->device;
}

exo_err *
exo_tape_reason(exo_tape *tape)
{
    return &tape->reason;
}

exo_status
exo_tape_note(exo_tape *tape, exo_status status)
{
    if (status != EXO_OK)
        exo_tape_fail(tape, status, "%s", tape->reason.text);
    return status;
}

exo_status
exo_tape_copy(exo_tape *tape, void *to, const void *from, size_t bytes)
{
    exo_device *device = exo_tape_device(tape);
    return exo_tape_note(tape, device->device_class->copy(device, to, from, bytes,
                                                          EXO_COPY_ON_DEVICE, &tape->reason));
}

exo_status
exo_tape_take(exo_tape *tape, void *to, const void *from, size_t bytes)
{
    exo_device *device = exo_tape_device(tape);
    exo_status st =
        exo_tape_note(tape, device->device_class->copy(device, to, from, bytes, EXO_COPY_TO_DEVICE,
                                                       &tape->reason));
    return st == EXO_OK ? exo_tape_note(tape, exo_device_synchronize(device, &tape->reason)) : st;
}

exo_status
exo_tape_read(exo_tape *tape, void *to, const void *from, size_t bytes)
{
    exo_device *device = exo_tape_device(tape);
    exo_status st =
        exo_tape_note(tape, device->device_class->copy(device, to, from, bytes,
                                                       EXO_COPY_FROM_DEVICE, &tape->reason));
    return st == EXO_OK ? exo_tape_note(tape, exo_device_synchronize(device, &tape->reason)) : st;
}
