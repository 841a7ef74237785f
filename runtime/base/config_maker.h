/* Makes parts of a document, one after the other, with one check at the end: after the first error
 * nothing is added. One thread at a time. Read next: config_edit.h. */
#ifndef EXO_BASE_CONFIG_MAKER_H
#define EXO_BASE_CONFIG_MAKER_H

#include "base/config_edit.h"

typedef struct exo_config_maker {
    exo_status status; /* the first error */
    exo_err *err;
} exo_config_maker;

/* Add a value to a mapping or, with key NULL, to a list. Text is unquoted; a string is quoted, even
 * if it looks like a number. A copy of NULL adds nothing. */
void exo_make_text(exo_config_maker *m, exo_config *into, const char *key, const char *text);
void exo_make_string(exo_config_maker *m, exo_config *into, const char *key, const char *text);
void exo_make_number(exo_config_maker *m, exo_config *into, const char *key, uint64_t number);
void exo_make_truth(exo_config_maker *m, exo_config *into, const char *key, bool truth);
/* A whole copy (config_edit.h). */
void exo_make_whole(exo_config_maker *m, exo_config *into, const char *key,
                    const exo_config *value);
void exo_make_copy(exo_config_maker *m, exo_config *into, const char *key, const exo_config *value);
/* Adds copies of those of `keys` that `from` has. */
void exo_make_copies(exo_config_maker *m, exo_config *into, exo_config *from,
                     const char *const *keys, size_t count);
/* Add an empty mapping, or list, and return it; NULL after an error. */
exo_config *exo_make_map(exo_config_maker *m, exo_config *into, const char *key);
exo_config *exo_make_list(exo_config_maker *m, exo_config *into, const char *key);

#endif
