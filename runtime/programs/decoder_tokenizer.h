/* Which tokenizer belongs to a decoder that a command is given. No state.
 *
 * One order for every command:
 *     1. the one that is named (--tokenizer);
 *     2. of a Hugging Face directory, its own;
 *     3. of a run, the one that it trained with: tokenizer.json in its folder, else its data's;
 *     4. else that of the Hugging Face directory that the run began with. */
#ifndef EXO_PROGRAMS_DECODER_TOKENIZER_H
#define EXO_PROGRAMS_DECODER_TOKENIZER_H

#include <exogym/tokenizer.h>

#include "programs/decoder_source.h"

typedef struct exo_decoder_tokenizer {
    exo_tokenizer
        *own; /* named, or the run's; NULL: the folder's, which has not been read, or none */
    const char *
        /* the Hugging Face directory that the model is, or began with; NULL: there is none */
        folder;
    bool
        /* the tokenizer is the one of `folder`, or the same: what is beside it there belongs to
         * it */
        of_folder;
    bool numbers; /* the numbers of tokens that `folder` names are this tokenizer's */
} exo_decoder_tokenizer;

/* `named`: a tokenizer.json, its folder, the word "bytes", or NULL. The caller drops `own`; the
 * strings are the source's. Errors: those of reading the tokenizer that is named, the run's, or its
 * data. */
exo_status exo_decoder_tokenizer_find(exo_decoder_tokenizer *out, const exo_decoder_source *source,
                                      const char *named, exo_err *err);

#endif
