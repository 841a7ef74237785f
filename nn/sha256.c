/* SHA-256 by libcrypto. No state beyond an exo_hash, which belongs to one thread. Read next:
 * hash.h. */
#include <exogym/state.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <openssl/evp.h>
#include <openssl/sha.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "nn/hash.h"

enum {
    PIECE = 1 << 18, /* bytes of a file read at a time */
    SAMPLE = 1 << 20,
    SAMPLES = 64 /* of a large file */
};

static void
write_hexadecimal(const unsigned char digest[SHA256_DIGEST_LENGTH], char out[65])
{
    for (size_t i = 0; i < SHA256_DIGEST_LENGTH; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

void
exo_sha256_bytes(const void *data, size_t size, unsigned char out[SHA256_DIGEST_LENGTH])
{
    SHA256(data, size, out);
}

void
exo_sha256(const void *data, size_t size, char out[65])
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256(data, size, digest);
    write_hexadecimal(digest, out);
}

exo_status
exo_hash_init(exo_hash *hash, exo_err *err)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    *hash = (exo_hash){.context = context};
    if (!context || EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1) {
        exo_hash_release(hash);
        return exo_fail(err, EXO_NOMEM, "no memory for a SHA-256");
    }
    return EXO_OK;
}

void
exo_hash_add(exo_hash *hash, const void *data, size_t size)
{
    if (size > 0 && EVP_DigestUpdate(hash->context, data, size) != 1)
        hash->failed = true;
}

bool
exo_hash_end_bytes(exo_hash *hash, unsigned char out[SHA256_DIGEST_LENGTH])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    bool good = !hash->failed && EVP_DigestFinal_ex(hash->context, digest, &length) == 1 &&
                length == SHA256_DIGEST_LENGTH;
    if (good)
        memcpy(out, digest, SHA256_DIGEST_LENGTH);
    exo_hash_release(hash);
    return good;
}

bool
exo_hash_end(exo_hash *hash, char out[65])
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    bool good = exo_hash_end_bytes(hash, digest);
    if (good)
        write_hexadecimal(digest, out);
    return good;
}

void
exo_hash_release(exo_hash *hash)
{
    EVP_MD_CTX_free(hash->context);
    *hash = (exo_hash){0};
}

/* Adds up to `most` bytes from where the file is. */
static void
add_bytes(exo_hash *hash, FILE *file, char *piece, uint64_t most)
{
    while (most > 0) {
        const size_t got = fread(piece, 1, most < PIECE ? (size_t)most : PIECE, file);
        exo_hash_add(hash, piece, got);
        if (got == 0)
            return;
        most -= got;
    }
}

static void
add_samples(exo_hash *hash, FILE *file, char *piece, uint64_t size)
{
    exo_hash_add(hash, &size, sizeof size);
    for (uint64_t i = 0; i < SAMPLES; i++) /* the last one ends with the file */
        if (fseeko(file, (off_t)((size - SAMPLE) * i / (SAMPLES - 1)), SEEK_SET) == 0)
            add_bytes(hash, file, piece, SAMPLE);
}

static exo_status
hash_file(const char *path, bool sampled, char out[65], exo_err *err)
{
    exo_hash hash = {0};
    FILE *file = NULL;
    struct stat info = {0};
    char *piece = exo_calloc(PIECE, 1);
    exo_status st = piece ? exo_file_open_stream(path, &file, err)
                          : exo_fail(err, EXO_NOMEM, "%s: no memory", path);
    if (st == EXO_OK)
        st = exo_hash_init(&hash, err);
    if (st != EXO_OK)
        goto done;
    errno = 0;
    if (sampled && fstat(fileno(file), &info) == 0 && info.st_size > (off_t)SAMPLE * SAMPLES)
        add_samples(&hash, file, piece, (uint64_t)info.st_size);
    else
        add_bytes(&hash, file, piece, UINT64_MAX);
    if (ferror(file))
        st = exo_fail(err, EXO_IO, "%s: %s", path, strerror(errno ? errno : EIO));
    else if (!exo_hash_end(&hash, out))
        st = exo_fail(err, EXO_FAILED, "%s: libcrypto gives no SHA-256", path);
done:
    exo_hash_release(&hash);
    if (file)
        fclose(file);
    exo_free(piece);
    return st;
}

exo_status
exo_sha256_file(const char *path, char out[65], exo_err *err)
{
    return hash_file(path, false, out, err);
}

exo_status
exo_sha256_sample(const char *path, char out[65], exo_err *err)
{
    return hash_file(path, true, out, err);
}
