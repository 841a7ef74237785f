/* Payloads: what messages carry. */
#ifndef EXOGYM_PAYLOAD_H
#define EXOGYM_PAYLOAD_H

#include <stddef.h>

#include <exogym/status.h>

EXO_DECLS_BEGIN

/* What a message carries: bytes that are moved, not copied, inside a process. */
typedef struct exo_payload {
    void *data;                   /* (size); may be NULL if size is 0 */
    size_t size;                  /* bytes */
    void (*release)(void *owner); /* frees it; NULL: nothing to free */
    void *owner;                  /* what release gets; NULL: data */
} exo_payload;

/* A payload that borrows: static or longer-lived memory. */
EXO_API exo_payload exo_payload_borrow(const void *data, size_t size);
/* One that owns a copy of data (size). NOMEM. */
EXO_API exo_status exo_payload_copy(exo_payload *out, const void *data, size_t size);
/* Calls its `release`, if it has one, and zeroes it. */
EXO_API void exo_payload_release(exo_payload *payload);

EXO_DECLS_END

#endif
