/* SHA-256 of bytes that arrive in parts. A hash belongs to one thread. Read next: sha256.c. */
#ifndef EXO_NN_HASH_H
#define EXO_NN_HASH_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/status.h>

/* The SHA-256 of bytes at hand. */
void exo_sha256_bytes(const void *data, size_t size, unsigned char out[32]);

typedef struct exo_hash {
    void *context; /* libcrypto's EVP_MD_CTX */
    bool failed;
} exo_hash;

/* Begins a hash, which exo_hash_end or exo_hash_release releases. Errors: NOMEM. */
exo_status exo_hash_init(exo_hash *hash, exo_err *err);
void exo_hash_add(exo_hash *hash, const void *data, size_t size);
/* Writes 64 hexadecimal digits and a 0, and releases the hash. False: libcrypto failed. */
bool exo_hash_end(exo_hash *hash, char out[65]);
/* The same as 32 bytes. */
bool exo_hash_end_bytes(exo_hash *hash, unsigned char out[32]);
void exo_hash_release(exo_hash *hash);

/* As exo_sha256_file, but of a file above 64 MiB the hash of its size and of 64 pieces of 1 MiB that are
 * spread over it: to compare the files of hosts without a long wait. */
exo_status exo_sha256_sample(const char *path, char out[65], exo_err *err);

#endif
