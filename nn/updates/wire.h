/* The bytes of an update: a manifest, then chunks of tensors. docs/updates.md has the format.
 *
 * Everything read comes from a peer: each number is checked before it is used. Owner of a manifest
 * and a plan: the update or the receiver. Read next: wire.c, manifest.c, pieces.c. */
#ifndef EXO_UPDATES_WIRE_H
#define EXO_UPDATES_WIRE_H

#include <exogym/ipc.h>
#include <exogym/updates.h>

#include "nn/updates/canary.h"

enum {
    EXO_CHUNK_FORMAT = 1,   /* version of the format */
    EXO_CHUNK_HEADER = 112, /* bytes */
    EXO_CHUNK_HASHED = 80,  /* bytes of the header under the chunk's SHA-256, which follows */
    EXO_CANARY_MAX = 3,     /* one for each format */
    /* bounds of the elements of a piece: with fewer, a plan would be large beside a model; with
     * more, a chunk */
    EXO_PIECE_LEAST = 1024,
    EXO_PIECE_MOST = 1 << 24
};

/* The header of a chunk. Chunk 0 is the manifest. */
typedef struct exo_chunk_header {
    uint32_t number, count;
    uint64_t sender, life, version;
    uint64_t bytes;          /* after the header */
    uint8_t update[EXO_SHA]; /* SHA-256 of the manifest: the identity of the update */
} exo_chunk_header;

/* Writes header and SHA-256 before the header->bytes bytes that follow `out` + EXO_CHUNK_HEADER.
 * NOMEM, FAILED: libcrypto. */
exo_status exo_chunk_seal(const exo_chunk_header *header, uint8_t *out, exo_err *err);
/* Reads and verifies a whole chunk. DAMAGED says what is wrong with its bytes. */
exo_status exo_chunk_open(const uint8_t *bytes, size_t size, exo_chunk_header *out, exo_err *err);

/* SHA-256 of two runs of bytes, one after the other. NOMEM, FAILED: libcrypto. */
exo_status exo_hash_two(const void *a, size_t a_size, const void *b, size_t b_size,
                        uint8_t out[EXO_SHA], exo_err *err);
/* 64 digits and a 0. */
void exo_hash_text(const uint8_t hash[EXO_SHA], char out[65]);

/* --- State ------------------------------------------------------------------------------------ */

/* The identity of a set of values: a version with the hashes of its tensors. */
typedef struct exo_state_id {
    uint64_t life, version; /* version 0: none */
    uint8_t digest[EXO_SHA];
} exo_state_id;

/* SHA-256 of names, dimensions and types of all tensors. NOMEM, FAILED: libcrypto. */
exo_status exo_update_fingerprint(const exo_param_info *infos, size_t count, uint8_t out[EXO_SHA],
                                  exo_err *err);
/* Writes id->digest, from the fingerprint, life, version, and the hashes (count) of all tensors. */
exo_status exo_state_digest(exo_state_id *id, const uint8_t fingerprint[EXO_SHA],
                            const uint8_t (*hashes)[EXO_SHA], size_t count, exo_err *err);

/* --- Manifest --------------------------------------------------------------------------------- */

typedef struct exo_update_tensor {
    const char *name; /* (name_length), in the manifest's bytes; without a 0 */
    size_t name_length;
    size_t num_dims, dims[EXO_MAX_DIMS], numel;
    bool sent;               /* false: as in the base */
    uint8_t sha256[EXO_SHA]; /* of the resulting values, as little-endian fp32 */
} exo_update_tensor;

typedef struct exo_update_manifest {
    exo_state_id base;            /* version 0: all tensors are sent, and none as changes */
    exo_state_id state;           /* the result */
    uint64_t piece;               /* the most elements of a piece, and of the pieces of a chunk */
    uint8_t fingerprint[EXO_SHA]; /* of the model */
    size_t count;                 /* tensors of the model */
    exo_update_tensor *tensors;   /* (count) */
    size_t num_canaries;
    exo_canary canaries[EXO_CANARY_MAX];
    /* The values are in a shared array, tensor after tensor, and no chunk has any. */
    bool handed;
    exo_ipc_handle handle;
    /* Owned: the encoded manifest (size); one that was written has room for a chunk's header before
     * it. */
    uint8_t *bytes;
    size_t size;
} exo_update_manifest;

/* Encodes the fields into manifest->bytes, behind room for a chunk's header. Reads names from the
 * tensors. NOMEM. */
exo_status exo_update_manifest_write(exo_update_manifest *manifest, exo_err *err);
/* Decodes a copy of `bytes`. The caller releases *out, also after an error. DAMAGED: these are no
 * manifest; NOMEM. Memory is bounded by a multiple of `size`. */
exo_status exo_update_manifest_read(exo_update_manifest *out, const uint8_t *bytes, size_t size,
                                    exo_err *err);
void exo_update_manifest_release(exo_update_manifest *manifest);

/* --- Pieces ----------------------------------------------------------------------------------- */

/* The elements [first, first + count) of a tensor. */
typedef struct exo_piece_of {
    uint32_t tensor, count;
    uint64_t first;
} exo_piece_of;

/* The pieces of an update in order, and their chunks. Follows from sizes alone: both sides derive
 * the same one. */
typedef struct exo_piece_plan {
    exo_piece_of *pieces; /* (num_pieces) */
    size_t num_pieces;
    size_t *chunks; /* (num_chunks + 1): the first piece of each chunk, and num_pieces */
    size_t num_chunks;
} exo_piece_plan;

/* Makes the plan of the tensors that are sent; of an update that is handed, without a piece. The caller
 * releases it, also after an error. NOMEM. */
exo_status exo_piece_plan_init(exo_piece_plan *out, const exo_update_manifest *manifest,
                               exo_err *err);
void exo_piece_plan_release(exo_piece_plan *plan);

#endif
