/* Memory of a device that several threads and processes hold: what stands behind exogym/ipc.h and
 * behind the arrays of items (exogym/graph.h). It belongs to no device, so it lives on when the one
 * that made it is closed.
 *
 * Two orders of work meet here. `exo_joint_mark` says when the array is complete, and devices of the
 * process wait for that in their own order (`exo_joint_follow`), threads in theirs
 * (`exo_joint_wait`). `exo_joint_use` says when a reader is done; the memory is not freed before.
 *
 * Threads: any thread may call any function; who names a device is its thread. Read next: joint.c,
 * nn/cuda/share.cu. */
#ifndef EXO_DEVICE_JOINT_H
#define EXO_DEVICE_JOINT_H

#include <stdbool.h>

#include <exogym/ipc.h>
#include <exogym/object.h>

/* An array in such memory; counted references. */
typedef struct exo_joint exo_joint;

/* Makes an array, with any contents; the caller drops it. Errors: UNSUPPORTED (the device has no such
 * memory), NOMEM, FULL (as exo_object_new), or the device's. */
exo_status exo_joint_new(exo_joint **out, exo_device *device, exo_dtype dtype, size_t count,
                         exo_err *err);
exo_joint *exo_joint_hold(exo_joint *shared);
/* Drops a reference and sets *shared to NULL; accepts NULL in it. Frees nothing: exo_joint_sweep
 * does. */
void exo_joint_drop(exo_joint **shared);
/* Frees what nobody uses any more, which may wait for a GPU, but for no other process: what would stays until a
 * later call. Not under a lock. */
void exo_joint_sweep(void);
/* Arrays that this process holds, or others still read. */
size_t exo_joint_count(void);

/* The elements, as an array of `device`; not owned. */
exo_array exo_joint_array(const exo_joint *shared, exo_device *device);
/* Whether the device's kernels reach the memory. */
bool exo_joint_is_on(const exo_joint *shared, const exo_device *device);
/* Whether it is a device of the kind that has the memory. */
bool exo_joint_suits(const exo_joint *shared, const exo_device *device);
/* Whether this process has opened it, and another one made it. */
bool exo_joint_is_foreign(const exo_joint *shared);
/* The size of the array in bytes. */
size_t exo_joint_bytes(const exo_joint *shared);
/* Which unit of the machine has the memory, such as a GPU: another number means another one. */
uint64_t exo_joint_unit(const exo_joint *shared);

/* The array is complete when the device has done what it was asked so far. Before the array is given
 * to another thread. */
exo_status exo_joint_mark(exo_joint *shared, exo_device *device, exo_err *err);
/* What the device is asked from now on begins when the array is complete. */
exo_status exo_joint_follow(const exo_joint *shared, exo_device *device, exo_err *err);
/* Waits until the array is complete. Errors: the GPU's. */
exo_status exo_joint_wait(const exo_joint *shared, exo_err *err);
/* The memory is not freed before the device has done what it was asked so far. */
void exo_joint_use(exo_joint *shared, exo_device *device);

/* Copies to the host beside the work of the devices. Owner: one thread at a time. All zero: nothing
 * is open yet. */
typedef struct exo_joint_reader {
    const struct exo_device_class *device_class;
    void *inside;
} exo_joint_reader;
/* Waits until the array is complete, and copies it to `to`. Errors: NOMEM, the GPU's. */
exo_status exo_joint_read(exo_joint_reader *reader, const exo_joint *shared, void *to,
                          exo_err *err);
void exo_joint_reader_release(exo_joint_reader *reader);

/* The number of objects (store.h) that are arrays of such elements. */
#define EXO_JOINT_KIND(dtype) ((uint8_t)((uint32_t)(dtype) + 1))
/* The object that stands for the array, whose process reads it for those that cannot open it; not
 * owned. */
const exo_object *exo_joint_object(const exo_joint *shared);
/* Writes the name by which other processes open the array, valid while it is held here. False: they
 * cannot. */
bool exo_joint_name(const exo_joint *shared, exo_ipc_handle *out);
/* Takes the name of an array: while the object is held, its maker does not free the memory. The caller
 * drops it. Errors: NOT_FOUND, PEER_LOST, INVAL, UNSUPPORTED, FULL, NOMEM. */
exo_status exo_joint_import(exo_object **out, const exo_ipc_handle *handle, exo_err *err);
/* Opens the array of an imported name; *name is moved. Errors: as exo_ipc_array_open. */
exo_status exo_joint_open(exo_joint **out, exo_device *device, exo_object **name, exo_err *err);

#endif
