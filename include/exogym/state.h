/* State: named tensors that make up a checkpoint, and the safetensors files that hold them.
 *
 * Whoever has something to keep adds it once, by name and pointer; the same list is then written or read back in place, so
 * that saving and loading cannot come apart.
 *
 * File format: safetensors (an 8-byte little-endian header length, a JSON header, the data). Written to a temporary file in
 * the same folder, flushed, renamed over the old one: a crash or a full disk leaves the old file or none.
 */
#ifndef EXOGYM_STATE_H
#define EXOGYM_STATE_H

#include <exogym/device.h>
#include <exogym/tensor.h>

EXO_DECLS_BEGIN

typedef struct exo_state exo_state; /* a list of entries; one thread at a time */

/* An empty list, which the caller frees. NOMEM. */
EXO_API exo_status exo_state_new(exo_state **out, exo_err *err);
/* Frees the list, not the memory that it names, and sets *state to NULL; accepts NULL in it. */
EXO_API void exo_state_free(exo_state **state);

/* Adds an entry over the caller's memory, which must outlive the state. The name is copied; equal names are an error that
 * sticks and that save and load report. Shape (numel), or `dims`. */
EXO_API void exo_state_add(exo_state *state, const char *name, exo_dtype dtype, void *data, size_t numel);
EXO_API void exo_state_add_shaped(exo_state *state, const char *name, exo_dtype dtype, void *data, size_t num_dims,
                                  const size_t *dims);

/* An array of any device, of shape (count), or `dims`: its elements stay where they are, and must outlive the state. */
EXO_API void exo_state_add_array(exo_state *state, const char *name, exo_array array);
EXO_API void exo_state_add_shaped_array(exo_state *state, const char *name, exo_array array, size_t num_dims,
                                        const size_t *dims);

/* One integer. */
EXO_API void exo_state_add_u64(exo_state *state, const char *name, uint64_t *value);
/* Names added from here on get "prefix." before them; NULL ends it. */
EXO_API void exo_state_prefix(exo_state *state, const char *prefix);
/* A line of the header's __metadata__. */
EXO_API void exo_state_metadata(exo_state *state, const char *key, const char *value);

/* Writes the entries to `path`, atomically. Errors: IO names the file and the reason (a full disk too), nothing is left
 * half-written. */
EXO_API exo_status exo_state_save(exo_state *state, const char *path, exo_err *err);
/* The same, and the SHA-256 of the file's bytes, taken from memory as they are written; `sha256` may be NULL. */
EXO_API exo_status exo_state_save_hashed(exo_state *state, const char *path, char sha256[65], exo_err *err);
/* Reads the entries from `path` in place. Every entry must be there with its type and shape, and nothing else may be:
 * otherwise INVAL names the file and the entry, and no memory has been changed. */
EXO_API exo_status exo_state_load(exo_state *state, const char *path, exo_err *err);
/* The value of a metadata key in a file; the caller frees *out. NOT_FOUND if there is none. */
EXO_API exo_status exo_state_read_metadata(const char *path, const char *key, char **out, exo_err *err);

/* SHA-256 in hexadecimal (64 digits and a 0) of `size` bytes. */
EXO_API void exo_sha256(const void *data, size_t size, char out[65]);
/* Likewise of a file's. NOT_FOUND, IO, INVAL (no regular file), NOMEM. */
EXO_API exo_status exo_sha256_file(const char *path, char out[65], exo_err *err);

EXO_DECLS_END

#endif
