/* Payloads: the bytes that a message carries. Inside a process they are moved, not copied. A
 * payload has one owner, who releases it or hands it over. */
#ifndef EXOGYM_PAYLOAD_H
#define EXOGYM_PAYLOAD_H

#include <stddef.h>

#include <exogym/status.h>

EXO_DECLS_BEGIN

/* The bytes of a message. */
typedef struct exo_payload {
    void *data;                   /* (size); may be NULL if size is 0 */
    size_t size;                  /* bytes */
    void (*release)(void *owner); /* frees the bytes; NULL: nothing to free */
    void *owner;                  /* the argument of release; NULL: data */
} exo_payload;

/* A payload of borrowed memory, which is static or outlives the payload. */
EXO_API exo_payload exo_payload_borrow(const void *data, size_t size);
/* Makes a payload that owns a copy of data (size). NOMEM. */
EXO_API exo_status exo_payload_copy(exo_payload *out, const void *data, size_t size);
/* Calls `release` if there is one, and zeroes the payload. */
EXO_API void exo_payload_release(exo_payload *payload);

EXO_DECLS_END

#endif
