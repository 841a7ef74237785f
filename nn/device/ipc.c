/* Arrays that several processes share: see exogym/ipc.h. No state: joint.c has it. */
#include <exogym/ipc.h>

#include <exogym/memory.h>

#include "nn/device/device_impl.h"
#include "nn/device/joint.h"

struct exo_ipc_array {
    exo_device *device;
    exo_joint *memory;
};

size_t
exo_ipc_array_count(void)
{
    return exo_joint_count();
}

static exo_status
unsupported(const exo_device *device, exo_err *err)
{
    return exo_fail(err, EXO_UNSUPPORTED,
                    "the device %s shares no memory with other processes; send the bytes",
                    exo_device_name(device));
}

/* Gives the caller the memory, or drops it. */
static exo_status
give(exo_ipc_array **out, exo_device *device, exo_joint **memory, exo_err *err)
{
    exo_ipc_array *s = exo_calloc(1, sizeof *s);
    if (!s) {
        exo_joint_drop(memory);
        exo_joint_sweep();
        return exo_fail(err, EXO_NOMEM, "no memory for a shared array");
    }
    *s = (exo_ipc_array){.device = device, .memory = *memory};
    *out = s;
    return EXO_OK;
}

exo_status
exo_ipc_array_new(exo_ipc_array **out, exo_device *device, exo_dtype dtype, size_t count,
                  exo_err *err)
{
    exo_ipc_handle name;
    exo_joint *memory = NULL;
    *out = NULL;
    if (!device->device_class->share_new)
        return unsupported(device, err);
    exo_status st = exo_joint_new(&memory, device, dtype, count, err);
    if (st != EXO_OK)
        return st;
    if (exo_joint_name(memory, &name))
        return give(out, device, &memory, err);
    exo_joint_drop(&memory);
    exo_joint_sweep();
    return exo_fail(err, EXO_UNSUPPORTED,
                    "the driver of the device %s gives other processes no access to its memory; "
                    "send the bytes",
                    exo_device_name(device));
}

exo_array
exo_ipc_array_of(const exo_ipc_array *shared)
{
    return exo_joint_array(shared->memory, shared->device);
}

exo_status
exo_ipc_array_seal(exo_ipc_array *shared, exo_ipc_handle *out, exo_err *err)
{
    if (exo_joint_is_foreign(shared->memory))
        return exo_fail(err, EXO_UNSUPPORTED,
                        "a shared array of another process is passed on by its maker");
    exo_status st = exo_device_synchronize(shared->device, err);
    if (st == EXO_OK && !exo_joint_name(shared->memory, out))
        return exo_fail(err, EXO_FAILED, "a shared array has no name");
    return st;
}

exo_status
exo_ipc_array_open(exo_ipc_array **out, exo_device *device, const exo_ipc_handle *handle,
                   exo_err *err)
{
    exo_object *name = NULL;
    exo_joint *memory = NULL;
    *out = NULL;
    if (!device->device_class->share_new)
        return unsupported(device, err);
    exo_status st = exo_joint_import(&name, handle, err);
    if (st == EXO_OK)
        st = exo_joint_open(&memory, device, &name, err);
    return st == EXO_OK ? give(out, device, &memory, err) : st;
}

void
exo_ipc_array_drop(exo_ipc_array **shared)
{
    exo_ipc_array *s = *shared;
    *shared = NULL;
    if (!s)
        return;
    exo_joint_drop(&s->memory);
    exo_free(s);
    exo_joint_sweep();
}
