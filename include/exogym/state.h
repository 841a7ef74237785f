/* State: the named tensors of a checkpoint, and the safetensors files that hold them.
 *
 * Each part of a program adds its tensors once, by name and pointer. The same list serves to write
 * a file and to read it back in place, so saving and loading always agree.
 *
 * File format: safetensors (an 8-byte little-endian header length, a JSON header, the data). A file
 * is written to a temporary file in the same folder, flushed, and renamed over the old one: a crash
 * or a full disk leaves the old file or none.
 */
#ifndef EXOGYM_STATE_H
#define EXOGYM_STATE_H

#include <exogym/device.h>
#include <exogym/tensor.h>

EXO_DECLS_BEGIN

typedef struct exo_state exo_state; /* A list of entries; one thread at a time. */

/* Makes an empty list, which the caller frees. NOMEM. */
EXO_API exo_status exo_state_new(exo_state **out, exo_err *err);
/* Frees the list, not the memory that it names, and sets *state to NULL; accepts NULL in it. */
EXO_API void exo_state_free(exo_state **state);

/* Adds an entry for the caller's memory, which must outlive the state. The name is copied. The
 * shape is (numel), or `dims` (num_dims). The state remembers an error, such as two equal names or
 * NULL for elements, and save and load report it. */
EXO_API void exo_state_add(exo_state *state, const char *name, exo_dtype dtype, void *data,
                           size_t numel);
EXO_API void exo_state_add_shaped(exo_state *state, const char *name, exo_dtype dtype, void *data,
                                  size_t num_dims, const size_t *dims);

/* Adds an array of any device, with the shape (count), or (dims) in exo_state_add_shaped_array. The
 * array is not copied and must outlive the state. */
EXO_API void exo_state_add_array(exo_state *state, const char *name, exo_array array);
EXO_API void exo_state_add_shaped_array(exo_state *state, const char *name, exo_array array,
                                        size_t num_dims, const size_t *dims);

/* Adds one integer; `value` must outlive the state. */
EXO_API void exo_state_add_u64(exo_state *state, const char *name, uint64_t *value);
/* Puts "prefix." before all names that are added from now on; NULL ends it. */
EXO_API void exo_state_prefix(exo_state *state, const char *prefix);
/* Adds a key and its value to the header's __metadata__. */
EXO_API void exo_state_metadata(exo_state *state, const char *key, const char *value);

/* Returns the remembered error of adding; OK: there is none. */
EXO_API exo_status exo_state_check(const exo_state *state, exo_err *err);

/* Writes the entries to `path`, atomically: nothing is left half-written. Errors: IO (names the
 * file and the reason, such as a full disk), the remembered error of adding, NOMEM. */
EXO_API exo_status exo_state_save(exo_state *state, const char *path, exo_err *err);
/* As exo_state_save, and gives the SHA-256 of the file's bytes, computed from memory while they are
 * written. `sha256` may be NULL. */
EXO_API exo_status exo_state_save_hashed(exo_state *state, const char *path, char sha256[65],
                                         exo_err *err);
/* As exo_state_save; the header's metadata gets `sha256`, the SHA-256 of the file with zeros in the
 * place of its digits, for exo_state_check_seal. */
EXO_API exo_status exo_state_save_sealed(exo_state *state, const char *path, exo_err *err);
/* Whether the file of exo_state_save_sealed has the bytes that were written. Reads all of it, a part
 * at a time. Errors: DAMAGED: it is truncated or altered, or has no seal; NOT_FOUND, IO, NOMEM. */
EXO_API exo_status exo_state_check_seal(const char *path, exo_err *err);
/* Reads the entries from `path` in place. The file must hold every entry with its type and shape,
 * and no other. INVAL otherwise: names the file and the entry, and no memory has changed. Other
 * errors: NOT_FOUND; NOMEM; IO, after which entries may have changed. */
EXO_API exo_status exo_state_load(exo_state *state, const char *path, exo_err *err);
/* The number of entries. */
EXO_API size_t exo_state_count(const exo_state *state);
/* The index-th entry in the order in which they were added. *name, unless `name` is NULL, belongs to the
 * list. */
EXO_API exo_array exo_state_entry(const exo_state *state, size_t index, const char **name);

/* --- Copies in memory -------------------------------------------------------------------------- */

/* The bytes of all entries together. */
EXO_API uint64_t exo_state_bytes(const exo_state *state);
/* Copies the entries' bytes to `out` (exo_state_bytes), in the order in which they were added.
 * Errors: the remembered error of adding, NOMEM, those of the device. */
EXO_API exo_status exo_state_store(const exo_state *state, void *out, exo_err *err);
/* Copies such bytes back into the entries of the same list, or of one with the same layout. Errors:
 * as exo_state_store. */
EXO_API exo_status exo_state_restore(const exo_state *state, const void *bytes, exo_err *err);
/* Writes the SHA-256 of the names, types and shapes of all entries. NOMEM. */
EXO_API exo_status exo_state_layout(const exo_state *state, char sha256[65], exo_err *err);

/* Reads the value of a metadata key of a file. The caller frees *out with exo_free. NOT_FOUND:
 * there is no such key. */
EXO_API exo_status exo_state_read_metadata(const char *path, const char *key, char **out,
                                           exo_err *err);

/* The SHA-256 of `size` bytes in hexadecimal: 64 digits and a NUL. */
EXO_API void exo_sha256(const void *data, size_t size, char out[65]);
/* The same for the content of a file. Errors: NOT_FOUND, IO, INVAL (not a regular file), NOMEM. */
EXO_API exo_status exo_sha256_file(const char *path, char out[65], exo_err *err);

EXO_DECLS_END

#endif
