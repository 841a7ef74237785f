/* Hugging Face directories for tests: those in golden/decoders, modified copies of them, and
 * hand-made weights. */
#ifndef EXO_TEST_DECODERS_H
#define EXO_TEST_DECODERS_H

#include <stddef.h>

#include <exogym/decoder.h>

/* The directories that tools/export_golden.py writes; NULL at the end. */
extern const char *const decoders_names[];

/* Writes .../tests/golden/decoders/NAME to `out`, which has room for 256 bytes. */
const char *decoders_path(const char *name, char *out);
/* Replaces the files in `folder` with a copy of the golden directory NAME, without
 * expected.safetensors. */
void decoders_copy(const char *name, const char *folder);
/* Replaces the first `from` in folder/file with `to`. `from` must occur. */
void decoders_edit(const char *folder, const char *file, const char *from, const char *to);
/* Writes folder/file with these bytes. */
void decoders_write(const char *folder, const char *file, const void *data, size_t size);
/* Reads a file and adds a 0. The caller frees the bytes with exo_free. */
char *decoders_read(const char *folder, const char *file, size_t *size);

/* Loads a directory. Aborts on an error. */
void decoders_load(const char *folder, exo_model **model, exo_params **params);

/* Computes an output for the tokens (sequences, length) on the tape. NULL: the tape has recorded an
 * error. */
exo_tensor *decoders_output(const exo_model *model, exo_tape *tape, const char *name,
                            const int32_t *tokens, size_t sequences, size_t length);

#endif
