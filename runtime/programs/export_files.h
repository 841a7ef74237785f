/* What lies beside a model's weights in a Hugging Face directory, carried to another. No state. */
#ifndef EXO_PROGRAMS_EXPORT_FILES_H
#define EXO_PROGRAMS_EXPORT_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/grow_text.h"

typedef struct exo_carried {
    bool
        /* there was one: tokenizer.json, vocab.json with merges.txt, or tokenizer.model */
        tokenizer;
    bool generation; /* there was a generation_config.json */
    /* what was left out, ", " between: weights in other formats, hidden folders, what belongs to
     * another tokenizer, is larger than 256 MiB, no plain file, or cannot be read */
    exo_text left;
    exo_text
        removed; /* what exo_remove_stale took away, ", " between                                 */
    uint32_t
        kept; /* a bit for each file of a tokenizer that was written                           */
} exo_carried;

/* What is carried besides what belongs to nobody. */
typedef struct exo_carry {
    bool tokenizer;  /* what belongs to a tokenizer: its files, chat templates       */
    bool generation; /* generation_config.json, which has the numbers of its tokens  */
} exo_carry;

/* Copies files and folders of `from` to the folder `to`, which is there: all but config.json and
 * the weights, which the model writes anew, and what `what` leaves out. Errors: NOT_FOUND (there is
 * no `from`), IO, NOMEM. `*out` begins as zeros; the caller releases it. */
exo_status exo_carry_files(const char *from, const char *to, exo_carry what, exo_carried *out,
                           exo_err *err);
/* A file of a tokenizer that somebody else wrote into the folder stays. */
void exo_carried_keep(exo_carried *carried, const char *name);
/* Takes away what a tokenizer that was in the folder `to` before left there: beside this one's
 * files it would be taken for its own. IO, NOMEM. */
exo_status exo_remove_stale(const char *to, exo_carried *carried, exo_err *err);
void exo_carried_release(exo_carried *carried);

#endif
