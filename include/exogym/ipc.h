/* Arrays in the memory of a device that several processes of a host share.
 *
 *     exo_ipc_array_new(&weights, gpu, EXO_F32, n, &err);            one process
 *     exo_vec_copy(exo_ipc_array_of(weights), values);
 *     exo_ipc_array_seal(weights, &handle, &err);        -> 40 bytes in any message or item
 *
 *     exo_ipc_array_open(&theirs, gpu, &handle, &err);               another process
 *     exo_vec_copy(mine, exo_ipc_array_of(theirs));
 *     exo_device_synchronize(gpu, &err);
 *     exo_ipc_array_drop(&theirs);
 *
 * No byte goes through the host. A process that cannot open the handle gets an error, and its
 * partner sends the bytes instead (exo_array_read copies through pinned memory, in pieces). Which
 * processes can is the question that exo_ipc_place answers beforehand.
 *
 * The memory lives until its maker has dropped it and every process that opened it has dropped it or
 * has ended; the kernel keeps that record, as for objects (docs/objects.md). A handle is untrusted
 * input: whatever it is, the result is the array that it names or an error. The maker can write to
 * the memory at any time, so whoever checks the values copies them first.
 *
 * Threads: any thread; the arrays themselves belong to the threads of their devices. */
#ifndef EXOGYM_IPC_H
#define EXOGYM_IPC_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/device.h>

EXO_DECLS_BEGIN

/* An array of several processes, as one user on one device has it. */
typedef struct exo_ipc_array exo_ipc_array;

/* The name of a shared array: plain numbers that may stand in a message. */
typedef struct exo_ipc_handle {
    uint64_t words[5]; /* meaningful only to exo_ipc_array_open */
} exo_ipc_handle;

/* The part of the world in which handles of such a device can be opened: equal for processes of one
 * host and user that see each other. 0: the device shares no memory (the CPU, whose memory objects
 * share). A process of the same place may still be refused, for instance because it sees other
 * GPUs. */
EXO_API uint64_t exo_ipc_place(const exo_device *device);
/* Makes an array, with any contents. The caller drops it, before it closes the device. Errors:
 * UNSUPPORTED (the device shares no memory), NOMEM, FULL (as exo_object_new), or the device's. */
EXO_API exo_status exo_ipc_array_new(exo_ipc_array **out, exo_device *device, exo_dtype dtype,
                                     size_t count, exo_err *err);
/* The elements, on the device of exo_ipc_array_new or exo_ipc_array_open; not owned. */
EXO_API exo_array exo_ipc_array_of(const exo_ipc_array *shared);
/* Waits for the device, and gives the name; valid as long as the maker holds the array. Errors: the
 * device's; UNSUPPORTED (an array that was opened: its maker gives the name). */
EXO_API exo_status exo_ipc_array_seal(exo_ipc_array *shared, exo_ipc_handle *out, exo_err *err);
/* Opens the array of a name, on a device of the same kind; in the maker's process it is the memory
 * itself, which another GPU may copy (exo_vec_copy), but not read in kernels. The caller only reads
 * it, and drops it before it closes the device. Errors: NOT_FOUND (dropped, or never existed),
 * PEER_LOST (its maker has ended), INVAL (no such array is possible), UNSUPPORTED (another host, user
 * or kind of device, or a GPU that this one cannot read), FULL, NOMEM, or the device's. */
EXO_API exo_status exo_ipc_array_open(exo_ipc_array **out, exo_device *device,
                                      const exo_ipc_handle *handle, exo_err *err);
/* Drops the array and sets *shared to NULL; accepts NULL in it. The caller has waited for the
 * device's work with an array that was opened. */
EXO_API void exo_ipc_array_drop(exo_ipc_array **shared);
/* The number of arrays whose memory this process holds, made or opened: also of those that it has
 * dropped, but that others still read. */
EXO_API size_t exo_ipc_array_count(void);

EXO_DECLS_END

#endif
