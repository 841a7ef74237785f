/* The files that belong to a tokenizer.json and lie beside it. A tokenizer keeps their bytes, and
 * writes them when it is saved.
 *
 * Owner: the tokenizer. Read-only once loaded. Read next: ends.c, which uses two of them. */
#ifndef EXO_TEXT_BESIDE_H
#define EXO_TEXT_BESIDE_H

#include <stddef.h>

#include <exogym/status.h>

/* First the files that name the tokens at the ends of a text, in the order in which transformers
 * reads them; then the chat templates. */
enum {
    EXO_BESIDE_CONFIG,       /* tokenizer_config.json   */
    EXO_BESIDE_MAP,          /* special_tokens_map.json */
    EXO_BESIDE_TEMPLATE,     /* chat_template.jinja */
    EXO_BESIDE_OLD_TEMPLATE, /* chat_template.json */
    EXO_NUM_BESIDE
};

typedef struct exo_beside {
    char *text[EXO_NUM_BESIDE]; /* NULL: the file does not exist */
    size_t size[EXO_NUM_BESIDE];
} exo_beside;

/* The name of the index-th file. Static. */
const char *exo_beside_name(size_t index);
/* Reads the files in the folder of the file `path`. The caller releases them, also after an error.
 * IO, NOMEM, DAMAGED (a file larger than 16 MiB). */
exo_status exo_beside_read(exo_beside *beside, const char *path, exo_err *err);
/* Writes the files into a folder. Removes files of these names that `beside` does not have: they
 * belong to another tokenizer. IO, NOMEM. */
exo_status exo_beside_save(const exo_beside *beside, const char *folder, exo_err *err);
void exo_beside_release(exo_beside *beside);

#endif
