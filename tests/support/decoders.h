/* Hugging Face directories for tests: those in golden/decoders, copies of them that are changed,
 * and hand-made weights. */
#ifndef EXO_TEST_DECODERS_H
#define EXO_TEST_DECODERS_H

#include <stddef.h>

#include <exogym/decoder.h>

/* What tools/export_golden.py writes; ends with NULL. */
extern const char *const decoders_names[];

/* .../tests/golden/decoders/NAME; `out` has room for 256. */
const char *decoders_path(const char *name, char *out);
/* A copy of the golden directory NAME, without expected.safetensors, in `folder` in place of what
 * is there. */
void decoders_copy(const char *name, const char *folder);
/* Replaces the first `from` in folder/file, which must be there, by `to`. */
void decoders_edit(const char *folder, const char *file, const char *from, const char *to);
/* Writes folder/file with these bytes. */
void decoders_write(const char *folder, const char *file, const void *data, size_t size);
/* A file's bytes with a 0 after them; the caller frees them with exo_free. */
char *decoders_read(const char *folder, const char *file, size_t *size);

/* Loads a directory that must be right. */
void decoders_load(const char *folder, exo_model **model, exo_params **params);

/* An output of the tokens (sequences, length) on the tape, whole; NULL: recorded there. */
exo_tensor *decoders_output(const exo_model *model, exo_tape *tape, const char *name,
                            const int32_t *tokens, size_t sequences, size_t length);

#endif
