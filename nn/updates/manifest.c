/* Manifests, and the plan of pieces: see wire.h. A manifest has
 *
 *   canaries 4 | tensors 4 | elements of a piece 8 | fingerprint 32
 *   base: life 8, version 8, digest 32 | state: the same
 *   each tensor: length of the name 2 | dimensions 1 | sent 1 | SHA-256 32 | dimensions 8 each | name
 *   each canary
 *   the handle of a shared array 40, if it has the values
 *
 * with all numbers little-endian. */
#include "nn/updates/wire.h"

#include <exogym/memory.h>

enum {
    FIXED = 4 + 4 + 8 + EXO_SHA + 2 * (16 + EXO_SHA),
    TENSOR = 2 + 1 + 1 + EXO_SHA,
    HANDLE = sizeof(exo_ipc_handle),
    MAX_NAME = UINT16_MAX,
};

/* The most elements of a model: far above any, so that sums cannot overflow. */
#define MAX_NUMEL (UINT64_C(1) << 44)

/* --- Writing ---------------------------------------------------------------------------------- */

static uint8_t *
put_state(uint8_t *at, const exo_state_id *id)
{
    exo_put_u64(at, id->life);
    exo_put_u64(at + 8, id->version);
    memcpy(at + 16, id->digest, EXO_SHA);
    return at + 16 + EXO_SHA;
}

static uint8_t *
put_tensor(uint8_t *at, const exo_update_tensor *t)
{
    at[0] = (uint8_t)(t->name_length & 255);
    at[1] = (uint8_t)(t->name_length >> 8);
    at[2] = (uint8_t)t->num_dims;
    at[3] = t->sent;
    memcpy(at + 4, t->sha256, EXO_SHA);
    at += TENSOR;
    for (size_t d = 0; d < t->num_dims; d++, at += 8)
        exo_put_u64(at, t->dims[d]);
    memcpy(at, t->name, t->name_length);
    return at + t->name_length;
}

exo_status
exo_update_manifest_write(exo_update_manifest *m, exo_err *err)
{
    m->size = FIXED + m->num_canaries * EXO_CANARY_BYTES + (m->handed ? HANDLE : 0);
    for (size_t i = 0; i < m->count; i++) {
        if (m->tensors[i].name_length > MAX_NAME)
            return exo_fail(err, EXO_UNSUPPORTED,
                            "a parameter's name has %zu bytes; the most is %d",
                            m->tensors[i].name_length, MAX_NAME);
        m->size += TENSOR + 8 * m->tensors[i].num_dims + m->tensors[i].name_length;
    }
    m->bytes = exo_calloc(EXO_CHUNK_HEADER + m->size, 1);
    if (!m->bytes)
        return exo_fail(err, EXO_NOMEM, "no memory for the manifest of an update");
    uint8_t *at = m->bytes + EXO_CHUNK_HEADER;
    exo_put_u32(at, (uint32_t)m->num_canaries);
    exo_put_u32(at + 4, (uint32_t)m->count);
    exo_put_u64(at + 8, m->piece);
    memcpy(at + 16, m->fingerprint, EXO_SHA);
    at = put_state(at + 16 + EXO_SHA, &m->base);
    at = put_state(at, &m->state);
    for (size_t i = 0; i < m->count; i++)
        at = put_tensor(at, &m->tensors[i]);
    for (size_t i = 0; i < m->num_canaries; i++, at += EXO_CANARY_BYTES)
        exo_canary_write(&m->canaries[i], at);
    if (m->handed)
        memcpy(at, &m->handle, HANDLE);
    return EXO_OK;
}

/* --- Reading ---------------------------------------------------------------------------------- */

static void
read_state(exo_byte_reader *r, exo_state_id *out)
{
    out->life = exo_reader_number(r, 8);
    out->version = exo_reader_number(r, 8);
    exo_reader_copy(r, out->digest, EXO_SHA);
}

/* Whether a base is one, or none: then all of its bytes are 0. */
static bool
is_base(const exo_state_id *base)
{
    static const uint8_t zeros[EXO_SHA];
    return base->version > 0 || (base->life == 0 && memcmp(base->digest, zeros, EXO_SHA) == 0);
}

/* *total: the elements of all tensors so far. */
static void
read_tensor(exo_byte_reader *r, exo_update_tensor *out, uint64_t *total)
{
    uint64_t numel = 1;
    out->name_length = (size_t)exo_reader_number(r, 2);
    out->num_dims = (size_t)exo_reader_number(r, 1);
    uint64_t sent = exo_reader_number(r, 1);
    out->sent = sent == 1;
    exo_reader_copy(r, out->sha256, EXO_SHA);
    if (sent > 1 || out->num_dims > EXO_MAX_DIMS)
        r->failed = true;
    for (size_t d = 0; d < out->num_dims && !r->failed; d++) {
        out->dims[d] = (size_t)exo_reader_number(r, 8);
        if (__builtin_mul_overflow(numel, out->dims[d], &numel) || numel > MAX_NUMEL)
            r->failed = true;
    }
    out->numel = (size_t)numel;
    if (__builtin_add_overflow(*total, numel, total) || *total > MAX_NUMEL)
        r->failed = true;
    out->name = (const char *)exo_reader_take(r, out->name_length);
    if (!out->name)
        out->name_length = 0;
}

static exo_status
damaged(const exo_update_manifest *m, exo_err *err)
{
    return exo_fail(err, EXO_DAMAGED,
                    "the manifest of an update (%zu bytes) is damaged, or is none of this format",
                    m->size);
}

static exo_status
read_fixed(exo_update_manifest *out, exo_byte_reader *r, exo_err *err)
{
    out->num_canaries = (size_t)exo_reader_number(r, 4);
    out->count = (size_t)exo_reader_number(r, 4);
    out->piece = exo_reader_number(r, 8);
    exo_reader_copy(r, out->fingerprint, EXO_SHA);
    read_state(r, &out->base);
    read_state(r, &out->state);
    bool good = !r->failed && out->num_canaries <= EXO_CANARY_MAX &&
                out->piece >= EXO_PIECE_LEAST && out->piece <= EXO_PIECE_MOST &&
                out->state.version > 0 && out->count <= r->left / TENSOR && is_base(&out->base);
    return good ? EXO_OK : damaged(out, err);
}

exo_status
exo_update_manifest_read(exo_update_manifest *out, const uint8_t *bytes, size_t size, exo_err *err)
{
    uint64_t total = 0;
    *out = (exo_update_manifest){.size = size};
    out->bytes = exo_calloc(1, size + 1);
    if (!out->bytes)
        return exo_fail(err, EXO_NOMEM, "no memory for the manifest of an update");
    memcpy(out->bytes, bytes, size);
    exo_byte_reader r = {.at = out->bytes, .left = size};
    exo_status st = read_fixed(out, &r, err);
    if (st != EXO_OK) {
        out->count = 0;
        return st;
    }
    out->tensors = exo_calloc(out->count + 1, sizeof *out->tensors);
    if (!out->tensors)
        return exo_fail(err, EXO_NOMEM, "no memory for the %zu tensors of an update", out->count);
    bool good = true;
    for (size_t i = 0; i < out->count && good; i++) {
        read_tensor(&r, &out->tensors[i], &total);
        good = !r.failed && (out->base.version > 0 || out->tensors[i].sent);
    }
    for (size_t i = 0; i < out->num_canaries && good; i++)
        good = exo_canary_read(&r, &out->canaries[i]);
    out->handed = good && r.left > 0 && out->base.version == 0;
    if (out->handed)
        exo_reader_copy(&r, (uint8_t *)&out->handle, HANDLE);
    good = good && !r.failed;
    return good && r.left == 0 ? EXO_OK : damaged(out, err);
}

void
exo_update_manifest_release(exo_update_manifest *m)
{
    exo_free(m->tensors);
    exo_free(m->bytes);
    *m = (exo_update_manifest){0};
}

/* --- Pieces ----------------------------------------------------------------------------------- */

static size_t
pieces_of(const exo_update_manifest *m, const exo_update_tensor *t)
{
    return t->sent && !m->handed ? (size_t)((t->numel + m->piece - 1) / m->piece) : 0;
}

/* A chunk takes pieces in order, as long as their elements fit. */
static void
fill_chunks(exo_piece_plan *plan, uint64_t most)
{
    uint64_t in_chunk = 0;
    for (size_t i = 0; i < plan->num_pieces; i++) {
        if (plan->num_chunks == 0 || in_chunk + plan->pieces[i].count > most) {
            plan->chunks[plan->num_chunks++] = i;
            in_chunk = 0;
        }
        in_chunk += plan->pieces[i].count;
    }
    plan->chunks[plan->num_chunks] = plan->num_pieces;
}

exo_status
exo_piece_plan_init(exo_piece_plan *out, const exo_update_manifest *m, exo_err *err)
{
    size_t pieces = 0;
    *out = (exo_piece_plan){0};
    for (size_t i = 0; i < m->count; i++)
        pieces += pieces_of(m, &m->tensors[i]);
    out->pieces = exo_calloc(pieces + 1, sizeof *out->pieces);
    out->chunks = exo_calloc(pieces + 2, sizeof *out->chunks);
    if (!out->pieces || !out->chunks || pieces >= UINT32_MAX)
        return exo_fail(err, EXO_NOMEM, "no memory for the %zu pieces of an update", pieces);
    for (size_t i = 0; i < m->count; i++) {
        size_t numel = m->tensors[i].numel;
        bool sent = pieces_of(m, &m->tensors[i]) > 0;
        for (uint64_t first = 0; sent && first < numel; first += m->piece) {
            uint64_t left = numel - first;
            out->pieces[out->num_pieces++] =
                (exo_piece_of){.tensor = (uint32_t)i,
                               .count = (uint32_t)(left < m->piece ? left : m->piece),
                               .first = first};
        }
    }
    fill_chunks(out, m->piece);
    return EXO_OK;
}

void
exo_piece_plan_release(exo_piece_plan *plan)
{
    exo_free(plan->pieces);
    exo_free(plan->chunks);
    *plan = (exo_piece_plan){0};
}
