/* A safetensors file, mapped into memory and checked as a whole before anything is read of it.
 *
 * The format is in docs/models.md. Read-only after open; any thread. The file must not shrink while it is open.
 */
#ifndef EXO_PRETRAINED_SAFETENSORS_H
#define EXO_PRETRAINED_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

enum {
    EXO_SAFETENSORS_DIMS = 8,
    EXO_SHAPE_TEXT = 192,
};

typedef struct exo_safetensor {
    const char *name;
    const char *dtype; /* "F32", "BF16", ...: one of the format's */
    size_t num_dims;
    size_t dims[EXO_SAFETENSORS_DIMS];
    size_t numel, bytes;
    const void *data; /* little-endian, row-major; not aligned */
} exo_safetensor;

typedef struct exo_safetensors exo_safetensors;

/* NOT_FOUND, IO; DAMAGED names the file and the tensor: cut, no JSON, a name twice, shapes that do not give the bytes, tensors that overlap,
 * leave gaps or lie outside the file. */
exo_status exo_safetensors_open(exo_safetensors **out, const char *path, exo_err *err);
void exo_safetensors_close(exo_safetensors **file);

const char *exo_safetensors_path(const exo_safetensors *file);
size_t exo_safetensors_count(const exo_safetensors *file);
/* In the order of their data. */
const exo_safetensor *exo_safetensors_at(const exo_safetensors *file, size_t index);

/* "(2, 3)" for messages; `out` has room for EXO_SHAPE_TEXT characters. */
const char *exo_safetensors_shape(size_t num_dims, const size_t *dims, char *out);

#endif
