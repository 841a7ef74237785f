/* Finds the tokenizer of a decoder that a command is given. No state.
 *
 * The order is the same in every command:
 *     1. the tokenizer that is named (--tokenizer);
 *     2. for a Hugging Face directory, its own;
 *     3. for a run, the tokenizer of its training: tokenizer.json in its folder, else its data's;
 *     4. else the tokenizer of the Hugging Face directory that the run began with. */
#ifndef EXO_PROGRAMS_DECODER_TOKENIZER_H
#define EXO_PROGRAMS_DECODER_TOKENIZER_H

#include <exogym/tokenizer.h>

#include "programs/decoder_source.h"

typedef struct exo_decoder_tokenizer {
    /* the named tokenizer, or the run's; NULL: it is in `folder` and has not been read, or there is
     * none */
    exo_tokenizer *own;
    /* the Hugging Face directory that the model is, or began with; NULL: none */
    const char *folder;
    /* the tokenizer is that of `folder`, or identical: the files beside it there belong to it */
    bool of_folder;
    bool numbers; /* token numbers in the files of `folder` are this tokenizer's */
} exo_decoder_tokenizer;

/* `named`: a tokenizer.json, its folder, the word "bytes", or NULL. The caller drops `own`. The
 * strings belong to the source. Errors: those of reading the named tokenizer, the run's, or its
 * data. */
exo_status exo_decoder_tokenizer_find(exo_decoder_tokenizer *out, const exo_decoder_source *source,
                                      const char *named, exo_err *err);

#endif
