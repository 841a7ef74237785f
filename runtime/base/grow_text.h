/* A text that grows while it is written. One thread at a time. */
#ifndef EXO_BASE_GROW_TEXT_H
#define EXO_BASE_GROW_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/status.h>

/* A text that grows. Zero-initialize; exo_free the `data`. After a failed allocation it stays as it
 * is, and `failed`. */
typedef struct exo_text {
    char *data; /* NULL while empty, else ended by a 0 */
    size_t length, size;
    size_t most; /* bytes that it may have; what is longer fails, and is `over`. 0: any number */
    bool failed, over;
} exo_text;

void exo_text_add(exo_text *text, const char *format, ...) EXO_PRINTF(2, 3);
void exo_text_add_bytes(exo_text *text, const char *bytes, size_t length);

#endif
