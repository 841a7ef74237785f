/* SHA-256 through libcrypto. */
#include <exogym/state.h>

#include <stdio.h>

#include <openssl/sha.h>

void
exo_sha256(const void *data, size_t size, char out[65])
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256(data, size, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}
