/* Objects: buffers in shared memory. A buffer is written once, sealed, and then read in place by
 * every actor that it is sent to.
 *
 *     exo_object_new(&object, size, &err);              room, reserved before it is used
 *     fill(exo_object_data(object));
 *     exo_object_seal(object);
 *     exo_call(runtime, actor, "look", exo_object_payload(object), ...);
 *
 * The payload of an object moves like any other payload. Inside a process, and between processes of
 * a host, the receiver gets the same memory without a copy; only objects of 4 KiB and less are
 * copied to other processes, because this costs less. The receiver may keep the object
 * (exo_object_of_payload) as long as it likes, also after the sender has ended. Another host gets
 * the bytes. The shared memory has no name in the file system, so a killed process leaves nothing
 * behind. docs/objects.md explains the mechanism.
 *
 * Threads: any thread, for all functions; nobody writes after the seal. The kernel lets no other
 * process write, before or after the seal. A child of fork can read the objects that it inherits, and
 * drop them; the parent's are not affected.
 */
#ifndef EXOGYM_OBJECT_H
#define EXOGYM_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include <exogym/actor.h>

EXO_DECLS_BEGIN

typedef struct exo_object exo_object; /* counted references */

/* Makes an object of `size` bytes, to be filled and sealed. The caller drops it. Errors: FULL (this
 * process's share of memory is used up, which is $EXOGYM_STORE or half of the machine's memory; the
 * text has the figures), NOMEM, IO (the system refuses shared memory that readers cannot change, or
 * there is no /proc; the text says why). */
EXO_API exo_status exo_object_new(exo_object **out, uint64_t size, exo_err *err);
/* Makes a sealed copy of `data` (size). Errors: as exo_object_new. */
EXO_API exo_status exo_object_put(exo_object **out, const void *data, uint64_t size, exo_err *err);

/* The bytes of an object; never NULL, and valid as long as a reference is held. The process that
 * made the object may write until the seal. An imported object must not be written: it is read-only
 * memory, or, if small, a copy. */
EXO_API void *exo_object_data(const exo_object *object);
/* The number of bytes. */
EXO_API uint64_t exo_object_size(const exo_object *object);
/* Whether the object belongs to another process. */
EXO_API bool exo_object_is_imported(const exo_object *object);

/* Seals an object: nobody may write from now on. The caller makes sure that no thread of its
 * process still writes, which is not checked. To seal again does nothing. */
EXO_API void exo_object_seal(exo_object *object);

/* Counts one more reference and returns `object`. */
EXO_API exo_object *exo_object_hold(exo_object *object);
/* Drops a reference and sets *object to NULL; accepts NULL in it. When the owner drops its last
 * reference, the names of the object become invalid; processes that have imported the object keep
 * reading it. */
EXO_API void exo_object_drop(exo_object **object);

/* A payload that carries the object and holds a reference of its own. The object must be sealed: a
 * call with the payload of another one fails with INVAL. */
EXO_API exo_payload exo_object_payload(exo_object *object);
/* The object that a payload carries, borrowed from the payload (exo_object_hold keeps it); NULL: it
 * carries none. */
EXO_API exo_object *exo_object_of_payload(const exo_payload *payload);
/* Gives the payload's bytes in memory that no other process can change: *out borrows them from the
 * payload or, if they are another process's object, owns a copy. The maker of an object can change
 * it while others read it. So code that checks bytes and then relies on them (parsing, lengths,
 * indices) needs this; code that only sums numbers does not. The caller releases *out before the
 * payload. NOMEM. */
EXO_API exo_status exo_payload_stable(exo_payload *out, const exo_payload *payload);

/* --- By reference ----------------------------------------------------------------------------- */

/* The name of an object that a process of the cluster holds: plain numbers that may stand in a
 * message. */
typedef struct exo_object_id {
    uint64_t words[6]; /* meaningful only to exo_object_get */
} exo_object_id;

/* Gives the name of a sealed object. The name is valid until the process that made the object drops
 * it or ends: it should keep a reference until all receivers have called exo_object_get. Errors:
 * INVAL (not sealed). */
EXO_API exo_status exo_object_name(exo_runtime *runtime, const exo_object *object,
                                   exo_object_id *out, exo_err *err);
/* Gets the object of a name; the caller drops it. On the object's host it is the same memory. On
 * another host, or if its bytes are on a device (array_object.h), it is a copy, fetched in pieces until
 * `deadline`. Blocks. Errors: NOT_FOUND
 * (dropped, or never existed), PEER_LOST (its process has ended), FULL (no room for the copy),
 * TIMEOUT. */
EXO_API exo_status exo_object_get(exo_runtime *runtime, const exo_object_id *id, exo_time deadline,
                                  exo_object **out, exo_err *err);

EXO_DECLS_END

#endif
