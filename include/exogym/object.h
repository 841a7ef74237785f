/* Objects: buffers in shared memory, written once, sealed, and then read in place by every actor
 * that they are sent to.
 *
 *     exo_object_new(&object, size, &err);              room, reserved before it is used
 *     fill(exo_object_data(object));
 *     exo_object_seal(object);
 *     exo_call(runtime, actor, "look", exo_object_payload(object), ...);
 *
 * An object's payload moves like any other. Inside of a process, and to another process of the
 * host, what arrives is the same memory: nothing is copied (but objects of 4 KiB and less, whose
 * copy costs less), and the receiver may keep it (exo_object_of_payload) for as long as it likes,
 * also when the sender is gone. To another host the bytes are sent. Memory has no name: nothing is
 * left behind by a process that is killed. docs/objects.md has the mechanism.
 *
 * Threads: any, but none writes after sealing. The kernel lets no other process write, neither
 * before nor after.
 */
#ifndef EXOGYM_OBJECT_H
#define EXOGYM_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include <exogym/actor.h>

EXO_DECLS_BEGIN

typedef struct exo_object exo_object; /* counted references */

/* An object of `size` bytes to be filled and sealed; the caller drops it. Errors: FULL (this
 * process's share of memory, $EXOGYM_STORE or half of the machine's, is used up; the text has the
 * figures), NOMEM. */
EXO_API exo_status exo_object_new(exo_object **out, uint64_t size, exo_err *err);
/* A sealed copy of `data` (size). */
EXO_API exo_status exo_object_put(exo_object **out, const void *data, uint64_t size, exo_err *err);

/* The bytes. Writable until the object is sealed, by whoever created it. Never to be written if it
 * was imported: that is read-only memory, unless it is a small object, which is a copy. Never NULL;
 * valid as long as a reference is held. */
EXO_API void *exo_object_data(const exo_object *object);
/* How many bytes they are. */
EXO_API uint64_t exo_object_size(const exo_object *object);
/* True if it belongs to another process. */
EXO_API bool exo_object_is_imported(const exo_object *object);

/* From now on nobody writes. The caller makes sure that no thread of its process still does, which
 * is not checked; others never could. Twice is fine. */
EXO_API void exo_object_seal(exo_object *object);

/* Counts one more reference and returns `object`. */
EXO_API exo_object *exo_object_hold(exo_object *object);
/* Gives one back and sets *object to NULL; accepts NULL. With the owner's last reference the
 * handles of the object are stale; those who have imported it keep reading it. */
EXO_API void exo_object_drop(exo_object **object);

/* A payload that is the object: it holds one reference of its own. The object must be sealed: INVAL
 * is what a call with another one gives. */
EXO_API exo_payload exo_object_payload(exo_object *object);
/* The object that a payload is, borrowed from it (exo_object_hold keeps it); NULL: it is none. */
EXO_API exo_object *exo_object_of_payload(const exo_payload *payload);
/* The payload's bytes where no other process can write them: *out borrows them from the payload, or
 * owns a copy if it is another process's object, which that process can change while it is read.
 * For whoever checks bytes and then relies on it: what parses, follows lengths or indices. Numbers
 * that are only summed need none. The caller releases *out, before the payload. NOMEM. */
EXO_API exo_status exo_payload_stable(exo_payload *out, const exo_payload *payload);

/* --- By reference ----------------------------------------------------------------------------- */

/* Names an object that somebody holds, anywhere in the cluster. Plain numbers, to be put into a
 * message. */
typedef struct exo_object_id {
    uint64_t words[6]; /* for exo_object_get alone to understand */
} exo_object_id;

/* The name of a sealed object. It is good until the process that made the object drops it or dies:
 * keep a reference until those who are to get it have done so. Errors: INVAL (not sealed). */
EXO_API exo_status exo_object_name(exo_runtime *runtime, const exo_object *object,
                                   exo_object_id *out, exo_err *err);
/* The object of that name, to be dropped: on its host the very memory, from another host a copy,
 * fetched in pieces until `deadline`. Blocks. Errors: NOT_FOUND (dropped, or never was), PEER_LOST
 * (its process is gone), FULL (no room for the copy), TIMEOUT. */
EXO_API exo_status exo_object_get(exo_runtime *runtime, const exo_object_id *id, exo_time deadline,
                                  exo_object **out, exo_err *err);

EXO_DECLS_END

#endif
