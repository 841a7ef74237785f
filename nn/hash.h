/* SHA-256 of bytes that come in parts. Owner: one thread. */
#ifndef EXO_NN_HASH_H
#define EXO_NN_HASH_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/status.h>

typedef struct exo_hash {
    void *context; /* libcrypto's */
    bool failed;
} exo_hash;

/* NOMEM. */
exo_status exo_hash_init(exo_hash *hash, exo_err *err);
void exo_hash_add(exo_hash *hash, const void *data, size_t size);
/* 64 hexadecimal digits and a 0; false: libcrypto failed on the way. Releases it. */
bool exo_hash_end(exo_hash *hash, char out[65]);
void exo_hash_release(exo_hash *hash);

#endif
