/* Chunks, hashes of states, and replies: see wire.h. */
#include "nn/updates/wire.h"

#include <stdio.h>

#include "nn/hash.h"

enum {
    AT_FORMAT = 4,
    AT_NUMBER = 8,
    AT_COUNT = 12,
    AT_SENDER = 16,
    AT_LIFE = 24,
    AT_VERSION = 32,
    AT_BYTES = 40,
    AT_UPDATE = 48,
};

static const char chunk_magic[4] = {'E', 'X', 'O', 'W'}, reply_magic[4] = {'E', 'X', 'O', 'R'};

/* --- Hashes ----------------------------------------------------------------------------------- */

exo_status
exo_hash_two(const void *a, size_t a_size, const void *b, size_t b_size, uint8_t out[EXO_SHA],
             exo_err *err)
{
    exo_hash hash = {0};
    exo_status st = exo_hash_init(&hash, err);
    if (st != EXO_OK)
        return st;
    exo_hash_add(&hash, a, a_size);
    exo_hash_add(&hash, b, b_size);
    return exo_hash_end_bytes(&hash, out) ? EXO_OK
                                          : exo_fail(err, EXO_FAILED, "libcrypto gives no SHA-256");
}

void
exo_hash_text(const uint8_t hash[EXO_SHA], char out[65])
{
    for (size_t i = 0; i < EXO_SHA; i++)
        snprintf(out + 2 * i, 3, "%02x", hash[i]);
}

static void
add_number(exo_hash *hash, uint64_t number)
{
    uint8_t bytes[8];
    exo_put_u64(bytes, number);
    exo_hash_add(hash, bytes, sizeof bytes);
}

exo_status
exo_update_fingerprint(const exo_param_info *infos, size_t count, uint8_t out[EXO_SHA],
                       exo_err *err)
{
    exo_hash hash = {0};
    exo_status st = exo_hash_init(&hash, err);
    if (st != EXO_OK)
        return st;
    add_number(&hash, count);
    for (size_t i = 0; i < count; i++) {
        exo_hash_add(&hash, infos[i].name, strlen(infos[i].name) + 1);
        add_number(&hash, EXO_F32);
        add_number(&hash, infos[i].num_dims);
        for (size_t d = 0; d < infos[i].num_dims; d++)
            add_number(&hash, infos[i].dims[d]);
    }
    return exo_hash_end_bytes(&hash, out) ? EXO_OK
                                          : exo_fail(err, EXO_FAILED, "libcrypto gives no SHA-256");
}

exo_status
exo_state_digest(exo_state_id *id, const uint8_t fingerprint[EXO_SHA],
                 const uint8_t (*hashes)[EXO_SHA], size_t count, exo_err *err)
{
    uint8_t head[EXO_SHA + 16];
    memcpy(head, fingerprint, EXO_SHA);
    exo_put_u64(head + EXO_SHA, id->life);
    exo_put_u64(head + EXO_SHA + 8, id->version);
    return exo_hash_two(head, sizeof head, hashes, count * EXO_SHA, id->digest, err);
}

/* --- Chunks ----------------------------------------------------------------------------------- */

exo_status
exo_chunk_seal(const exo_chunk_header *h, uint8_t *out, exo_err *err)
{
    memset(out, 0, EXO_CHUNK_HEADER);
    memcpy(out, chunk_magic, sizeof chunk_magic);
    exo_put_u32(out + AT_FORMAT, EXO_CHUNK_FORMAT);
    exo_put_u32(out + AT_NUMBER, h->number);
    exo_put_u32(out + AT_COUNT, h->count);
    exo_put_u64(out + AT_SENDER, h->sender);
    exo_put_u64(out + AT_LIFE, h->life);
    exo_put_u64(out + AT_VERSION, h->version);
    exo_put_u64(out + AT_BYTES, h->bytes);
    memcpy(out + AT_UPDATE, h->update, EXO_SHA);
    return exo_hash_two(out, EXO_CHUNK_HASHED, out + EXO_CHUNK_HEADER, h->bytes,
                        out + EXO_CHUNK_HASHED, err);
}

static exo_status
check_beginning(const uint8_t *bytes, size_t size, exo_err *err)
{
    if (size < EXO_CHUNK_HEADER)
        return exo_fail(err, EXO_DAMAGED, "a chunk of %zu bytes: the header alone has %d", size,
                        EXO_CHUNK_HEADER);
    if (memcmp(bytes, chunk_magic, sizeof chunk_magic) != 0)
        return exo_fail(err, EXO_DAMAGED,
                        "%zu bytes that are no chunk of weights: they do not "
                        "begin with EXOW",
                        size);
    if (exo_get_u32(bytes + AT_FORMAT) != EXO_CHUNK_FORMAT)
        return exo_fail(err, EXO_DAMAGED,
                        "a chunk in version %u of the format; this program reads version %d: run "
                        "one version of exogym on both sides",
                        exo_get_u32(bytes + AT_FORMAT), EXO_CHUNK_FORMAT);
    return EXO_OK;
}

static void
read_header(const uint8_t *bytes, exo_chunk_header *out)
{
    *out = (exo_chunk_header){.number = exo_get_u32(bytes + AT_NUMBER),
                              .count = exo_get_u32(bytes + AT_COUNT),
                              .sender = exo_get_u64(bytes + AT_SENDER),
                              .life = exo_get_u64(bytes + AT_LIFE),
                              .version = exo_get_u64(bytes + AT_VERSION),
                              .bytes = exo_get_u64(bytes + AT_BYTES)};
    memcpy(out->update, bytes + AT_UPDATE, EXO_SHA);
}

exo_status
exo_chunk_open(const uint8_t *bytes, size_t size, exo_chunk_header *out, exo_err *err)
{
    uint8_t found[EXO_SHA];
    exo_status st = check_beginning(bytes, size, err);
    if (st != EXO_OK)
        return st;
    read_header(bytes, out);
    if (out->bytes != size - EXO_CHUNK_HEADER)
        return exo_fail(err, EXO_DAMAGED,
                        "chunk %u of version %llu has %zu bytes after its header; it says %llu",
                        out->number, (unsigned long long)out->version, size - EXO_CHUNK_HEADER,
                        (unsigned long long)out->bytes);
    st = exo_hash_two(bytes, EXO_CHUNK_HASHED, bytes + EXO_CHUNK_HEADER, out->bytes, found, err);
    if (st == EXO_OK && memcmp(found, bytes + EXO_CHUNK_HASHED, EXO_SHA) != 0)
        st = exo_fail(err, EXO_DAMAGED,
                      "chunk %u of version %llu was altered on its way: its SHA-256 differs",
                      out->number, (unsigned long long)out->version);
    if (st == EXO_OK && (out->version == 0 || out->number >= out->count))
        st = exo_fail(err, EXO_DAMAGED, "chunk %u of %u of version %llu cannot exist", out->number,
                      out->count, (unsigned long long)out->version);
    return st;
}

bool
exo_update_chunk_read(const void *bytes, size_t size, exo_update_chunk *out)
{
    exo_chunk_header h;
    if (check_beginning(bytes, size, NULL) != EXO_OK)
        return false;
    read_header(bytes, &h);
    *out = (exo_update_chunk){.sender = h.sender,
                              .life = h.life,
                              .version = h.version,
                              .number = h.number,
                              .count = h.count};
    return true;
}

/* --- Replies ---------------------------------------------------------------------------------- */

enum {
    REPLY_ANSWER = 4,
    REPLY_CODE = 8,
    REPLY_SENDER = 16,
    REPLY_LIFE = 24,
    REPLY_VERSION = 32,
    REPLY_HAVE = 40,
    REPLY_STATE = 48,
    REPLY_TEXT = 48 + 64,
    REPLY_PLACE = REPLY_TEXT + EXO_UPDATE_REASON,
    REPLY_HASH = EXO_UPDATE_REPLY_BYTES - EXO_SHA,
};

_Static_assert((int)REPLY_PLACE + 8 <= (int)REPLY_HASH, "a reply has room");

void
exo_update_reply_write(const exo_update_reply *reply, uint8_t out[EXO_UPDATE_REPLY_BYTES])
{
    memset(out, 0, EXO_UPDATE_REPLY_BYTES);
    memcpy(out, reply_magic, sizeof reply_magic);
    exo_put_u32(out + REPLY_ANSWER, (uint32_t)reply->answer);
    exo_put_u32(out + REPLY_CODE, (uint32_t)reply->code);
    exo_put_u64(out + REPLY_SENDER, reply->sender);
    exo_put_u64(out + REPLY_LIFE, reply->life);
    exo_put_u64(out + REPLY_VERSION, reply->version);
    exo_put_u64(out + REPLY_HAVE, reply->have);
    exo_put_u64(out + REPLY_PLACE, reply->place);
    memcpy(out + REPLY_STATE, reply->state, strnlen(reply->state, 64));
    memcpy(out + REPLY_TEXT, reply->text, strnlen(reply->text, EXO_UPDATE_REASON - 1));
    if (exo_hash_two(out, REPLY_HASH, NULL, 0, out + REPLY_HASH, NULL) != EXO_OK)
        memset(out + REPLY_HASH, 0, EXO_SHA); /* the other side refuses it */
}

exo_status
exo_update_reply_read(const void *bytes, size_t size, exo_update_reply *out, exo_err *err)
{
    const uint8_t *in = bytes;
    uint8_t found[EXO_SHA];
    if (size != EXO_UPDATE_REPLY_BYTES || memcmp(in, reply_magic, sizeof reply_magic) != 0)
        return exo_fail(err, EXO_DAMAGED, "%zu bytes that are no reply to an update of weights",
                        size);
    exo_status st = exo_hash_two(in, REPLY_HASH, NULL, 0, found, err);
    if (st != EXO_OK)
        return st;
    uint32_t answer = exo_get_u32(in + REPLY_ANSWER);
    if (memcmp(found, in + REPLY_HASH, EXO_SHA) != 0 || answer > EXO_UPDATE_NEED_WHOLE)
        return exo_fail(err, EXO_DAMAGED,
                        "a reply to an update of weights was altered on its way: its SHA-256 "
                        "differs");
    *out = (exo_update_reply){.answer = (exo_update_answer)answer,
                              .code = (exo_status)exo_get_u32(in + REPLY_CODE),
                              .sender = exo_get_u64(in + REPLY_SENDER),
                              .life = exo_get_u64(in + REPLY_LIFE),
                              .version = exo_get_u64(in + REPLY_VERSION),
                              .have = exo_get_u64(in + REPLY_HAVE),
                              .place = exo_get_u64(in + REPLY_PLACE)};
    memcpy(out->state, in + REPLY_STATE, 64);
    memcpy(out->text, in + REPLY_TEXT, EXO_UPDATE_REASON - 1);
    return EXO_OK;
}
