/* A safetensors file, mapped into memory. Opening checks the whole header before any tensor is
 * read.
 *
 * docs/models.md has the format. Owner: the caller of open; read-only after open, for any thread.
 * The file must not shrink while it is open. Read next: safetensors.c, weights.h. */
#ifndef EXO_PRETRAINED_SAFETENSORS_H
#define EXO_PRETRAINED_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

enum {
    EXO_SAFETENSORS_DIMS = 8, /* dimensions of a tensor, at most */
    EXO_SHAPE_TEXT = 192,     /* bytes of a shape as text */
};

typedef struct exo_safetensor {
    const char *name;
    const char *dtype; /* a type of the format: "F32", "BF16", ... */
    size_t num_dims;
    size_t dims[EXO_SAFETENSORS_DIMS];
    size_t numel, bytes;
    const void *data; /* little-endian, row-major, not aligned; valid until close */
} exo_safetensor;

typedef struct exo_safetensors exo_safetensors;

/* NOT_FOUND, IO, NOMEM. DAMAGED names the file and the tensor: the file is cut; the header is no
 * JSON or has a name twice; a tensor's bytes do not match its shape; tensors overlap, leave a gap,
 * or lie outside the file. */
exo_status exo_safetensors_open(exo_safetensors **out, const char *path, exo_err *err);
void exo_safetensors_close(exo_safetensors **file);

const char *exo_safetensors_path(const exo_safetensors *file);
size_t exo_safetensors_count(const exo_safetensors *file);
/* The index-th tensor, in the order of their data; NULL after the last. */
const exo_safetensor *exo_safetensors_at(const exo_safetensors *file, size_t index);

/* Checks that the tensor's type is F32, F16 or BF16. UNSUPPORTED names `path`, its file. */
exo_status exo_tensor_floats_check(const exo_safetensor *tensor, const char *path, exo_err *err);
/* Converts the elements of such a tensor to `out` (numel). */
void exo_tensor_floats(const exo_safetensor *tensor, float *out);

/* Writes a shape such as "(2, 3)" to `out`, which has EXO_SHAPE_TEXT bytes, and returns it. */
const char *exo_safetensors_shape(size_t num_dims, const size_t *dims, char *out);

#endif
