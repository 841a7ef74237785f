/* Carries the files beside a model's weights from one Hugging Face directory to another. No
 * state. */
#ifndef EXO_PROGRAMS_EXPORT_FILES_H
#define EXO_PROGRAMS_EXPORT_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/grow_text.h"

typedef struct exo_carried {
    /* a tokenizer was carried: tokenizer.json, vocab.json with merges.txt, or tokenizer.model */
    bool tokenizer;
    bool generation; /* a generation_config.json was carried */
    /* what was left out, separated by ", ": weights in other formats, hidden folders, files of
     * another tokenizer, files above 256 MiB, special files, unreadable files */
    exo_text left;
    exo_text removed; /* what exo_remove_stale removed, separated by ", " */
    uint32_t kept;    /* one bit for each tokenizer file that was written */
} exo_carried;

/* Optional parts. Files that belong to no part are always carried. */
typedef struct exo_carry {
    bool tokenizer;  /* the tokenizer's files, and chat templates */
    bool generation; /* generation_config.json, which refers to tokens by their numbers */
} exo_carry;

/* Copies the files and folders of `from` to the existing folder `to`, except config.json and the
 * weights, which the model writes anew, and except the parts that `what` leaves out. *out begins
 * zeroed; the caller releases it. Errors: NOT_FOUND (`from` does not exist), IO, NOMEM. */
exo_status exo_carry_files(const char *from, const char *to, exo_carry what, exo_carried *out,
                           exo_err *err);
/* Marks a tokenizer file that other code wrote into the folder, so that exo_remove_stale keeps
 * it. */
void exo_carried_keep(exo_carried *carried, const char *name);
/* Removes the files that an earlier tokenizer left in the folder `to`: readers would take them for
 * files of the new one. Errors: IO, NOMEM. */
exo_status exo_remove_stale(const char *to, exo_carried *carried, exo_err *err);
void exo_carried_release(exo_carried *carried);

#endif
