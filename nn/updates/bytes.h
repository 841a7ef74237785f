/* Little-endian numbers in bytes, and a reader that never passes the end. No state. */
#ifndef EXO_UPDATES_BYTES_H
#define EXO_UPDATES_BYTES_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    EXO_SHA = 32 /* bytes of a SHA-256 */
};

static inline void
exo_put_u32(uint8_t *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof value);
}

static inline void
exo_put_u64(uint8_t *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof value);
}

static inline uint32_t
exo_get_u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return le32toh(value);
}

static inline uint64_t
exo_get_u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

/* A reader of `left` bytes. A read past the end fails, and so do all later ones; it gives zeros. */
typedef struct exo_byte_reader {
    const uint8_t *at;
    size_t left;
    bool failed;
} exo_byte_reader;

/* The next `size` bytes; NULL: there are fewer. */
static inline const uint8_t *
exo_reader_take(exo_byte_reader *reader, size_t size)
{
    if (reader->failed || size > reader->left) {
        reader->failed = true;
        return NULL;
    }
    const uint8_t *at = reader->at;
    reader->at += size;
    reader->left -= size;
    return at;
}

static inline uint64_t
exo_reader_number(exo_byte_reader *reader, size_t size)
{
    const uint8_t *at = exo_reader_take(reader, size);
    uint64_t value = 0;
    for (size_t i = 0; at && i < size; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static inline void
exo_reader_copy(exo_byte_reader *reader, void *out, size_t size)
{
    const uint8_t *at = exo_reader_take(reader, size);
    if (at)
        memcpy(out, at, size);
    else
        memset(out, 0, size);
}

#endif
