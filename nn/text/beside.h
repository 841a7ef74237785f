/* The files beside a tokenizer.json that belong to it: kept as they were read, so that whoever saves the tokenizer saves them too. */
#ifndef EXO_TEXT_BESIDE_H
#define EXO_TEXT_BESIDE_H

#include <stddef.h>

#include <exogym/status.h>

/* In the order in which transformers asks them what begins and ends a text; then the chat templates. */
enum {
    EXO_BESIDE_CONFIG, /* tokenizer_config.json   */
    EXO_BESIDE_MAP,    /* special_tokens_map.json */
    EXO_BESIDE_TEMPLATE,
    EXO_BESIDE_OLD_TEMPLATE,
    EXO_NUM_BESIDE
};

typedef struct exo_beside {
    char *text[EXO_NUM_BESIDE]; /* NULL: there is no such file */
    size_t size[EXO_NUM_BESIDE];
} exo_beside;

/* The name of the index-th of them. */
const char *exo_beside_name(size_t index);
/* Reads what there is beside the file `path`. IO, NOMEM, DAMAGED (more than 16 MiB). */
exo_status exo_beside_read(exo_beside *beside, const char *path, exo_err *err);
/* Writes them into a folder; those of another tokenizer that were there go. IO, NOMEM. */
exo_status exo_beside_save(const exo_beside *beside, const char *folder, exo_err *err);
void exo_beside_release(exo_beside *beside);

#endif
