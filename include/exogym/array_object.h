/* Arrays as objects (object.h): an actor puts an array that is on its device, sends the name, and
 * another one gets it on a device of its own choice.
 *
 *     exo_array_object_put(&weights, array, &err);                        the maker, on a GPU
 *     exo_array_object_name(runtime, weights, &id, &err);     -> 48 bytes in any message
 *
 *     exo_array_object_get(&theirs, gpu, runtime, &id, deadline, &err);   a reader, anywhere
 *     exo_vec_axpy(mine, 0.5F, exo_array_object_of(theirs));
 *     exo_array_object_drop(&theirs);
 *
 * The values are the same to the bit, whichever way they come:
 *
 *     the maker's array is     and the reader's device is             the reader has
 *     on a GPU                 that GPU, in the maker's process       the memory itself
 *                              that GPU, or one that reaches it, in   the memory itself, opened there
 *                              another process of the host
 *                              another GPU of the maker's process     a copy, made by its GPU
 *                              anything else                          a copy, over pinned memory of
 *                                                                     the maker's process
 *     on the CPU               the CPU of the same host               the memory itself
 *                              anything else                          a copy
 *
 * A reader that cannot open the memory, or on another host, gets the bytes; nobody has to ask
 * beforehand. exo_object_get takes the same name, and gives the bytes to a process that has no
 * devices. The maker stages them 4 MiB at a time, on a thread of its own beside the work of its
 * devices, and keeps no copy. The class is the same for devices and for the CPU.
 *
 * Life: names are valid until the maker drops the array or ends. The memory of a device lives until
 * the maker has dropped it and each reader has dropped it or has ended; the kernel keeps that
 * record. If the maker dies, exo_array_object_get fails with PEER_LOST; who has the array keeps it.
 *
 * Counts: an array on the CPU, and a copy of bytes, count towards the share of memory of their
 * process, as objects do. The memory of a device is limited by the device alone. `exogym list
 * objects` shows both, with their sizes and readers.
 *
 * Threads: an array object belongs to the thread of its device, like any array. Several threads or
 * devices of a process each get one of their own, by name, and the memory is the same. */
#ifndef EXOGYM_ARRAY_OBJECT_H
#define EXOGYM_ARRAY_OBJECT_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/device.h>
#include <exogym/object.h>

EXO_DECLS_BEGIN

/* An array of the object store, as one user on one device has it. */
typedef struct exo_array_object exo_array_object;

/* Makes an array on a device, with any contents, to be filled and sealed. The caller drops it.
 * Errors: UNSUPPORTED (the device has no memory that others can hold), NOMEM (the device is full),
 * FULL (as exo_object_new: the array itself on the CPU, a few KiB otherwise), or the device's. */
EXO_API exo_status exo_array_object_new(exo_array_object **out, exo_device *device, exo_dtype dtype,
                                        size_t count, exo_err *err);
/* Makes a sealed copy of an array, on its device, and waits for nothing. Errors: as
 * exo_array_object_new. */
EXO_API exo_status exo_array_object_put(exo_array_object **out, exo_array array, exo_err *err);
/* The elements, on the device of the caller; not owned. Its maker may write them until the seal; who
 * got them only reads. */
EXO_API exo_array exo_array_object_of(const exo_array_object *array);
/* Whether they are a copy, and not the maker's own memory. */
EXO_API bool exo_array_object_is_copy(const exo_array_object *array);
/* Seals an array: it has the values that the device was asked for so far, and nobody writes from now
 * on. Does not wait. To seal again does nothing. Errors: the device's. */
EXO_API exo_status exo_array_object_seal(exo_array_object *array, exo_err *err);
/* Gives the name. Waits until the device has filled the array, not for what it was asked after the
 * seal. The name of an array that was got is that by which it was got. Errors: INVAL (not sealed),
 * or the device's. */
EXO_API exo_status exo_array_object_name(exo_runtime *runtime, exo_array_object *array,
                                         exo_object_id *out, exo_err *err);
/* Gets the array of a name on `device`, whose type and count are those of its maker's; the caller drops
 * it before it closes the device. Blocks up to `deadline` if bytes have to come. A name is untrusted
 * input. Errors: NOT_FOUND (dropped, or never existed), PEER_LOST (its process has ended), INVAL (the
 * object is no array, or no such object is possible), FULL (no room for the bytes), NOMEM,
 * UNSUPPORTED (its process is in no cluster, so it cannot be asked for the bytes), TIMEOUT, or the
 * device's. */
EXO_API exo_status exo_array_object_get(exo_array_object **out, exo_device *device,
                                        exo_runtime *runtime, const exo_object_id *id,
                                        exo_time deadline, exo_err *err);
/* Drops an array and sets *array to NULL; accepts NULL in it. On the thread of the device. Waits for
 * nothing: the memory stays until the device has done what it was asked so far. */
EXO_API void exo_array_object_drop(exo_array_object **array);

EXO_DECLS_END

#endif
