/* A text that grows while it is written. One thread at a time. */
#ifndef EXO_BASE_GROW_TEXT_H
#define EXO_BASE_GROW_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/status.h>

/* A growing text. Zero-initialize it; the owner frees `data` with exo_free. After a failed
 * allocation it stays unchanged, with `failed` set. */
typedef struct exo_text {
    char *data; /* NULL while empty, else with a NUL at the end */
    size_t length, size;
    /* the longest allowed length; a longer text fails and sets `over`. 0: no limit */
    size_t most;
    bool failed, over;
} exo_text;

/* Makes a text, which the caller frees with exo_free (make_text.c). NULL: NOMEM, in *err. */
char *exo_text_make(exo_err *err, const char *format, ...) EXO_PRINTF(2, 3);

/* Append to the text. Errors only set `failed`. */
void exo_text_add(exo_text *text, const char *format, ...) EXO_PRINTF(2, 3);
void exo_text_add_bytes(exo_text *text, const char *bytes, size_t length);

#endif
