/* What `exogym generate` shows: texts of samples as their tokens come, cut at a stop text. Owner:
 * the command; one thread. */
#ifndef EXO_PROGRAMS_GENERATE_TEXT_H
#define EXO_PROGRAMS_GENERATE_TEXT_H

#include <exogym/generate.h>
#include <exogym/tokenizer.h>

#include "base/grow_text.h"
#include "programs/args.h"

/* One sample's text. */
typedef struct exo_sample_text {
    exo_token_stream *stream;
    exo_text text; /* whole characters, without the stop text and what follows it */
    size_t read;   /* tokens that went into it                                     */
    size_t shown;  /* bytes that were printed                                      */
    bool stopped;  /* a stop text was met                                          */
    bool done;     /* nothing will come any more                                   */
    exo_finish finish;
    int32_t
        *tokens; /* (count) the new ones, once it is done                                       */
    float *log_probs,
        /* (count) of each: of the distribution it was drawn from; under log softmax */
        *plain_log_probs;
    size_t count;
} exo_sample_text;

exo_status exo_sample_text_open(exo_sample_text *sample, exo_tokenizer *tokenizer, exo_err *err);
void exo_sample_text_release(exo_sample_text *sample);
/* Reads the sequence's tokens that are new. `last`: no more will come. */
exo_status exo_sample_text_read(exo_sample_text *sample, const exo_generated *sequence,
                                const exo_words *stops, bool last, exo_err *err);
/* Prints what can be shown: all but an end that may be the beginning of a stop text. */
void exo_sample_text_print(exo_sample_text *sample, const exo_words *stops);

/* Text on standard output, as it is; on a terminal with what that would obey escaped
 * (printable.h). */
void exo_sample_show(const char *text, size_t size);

#endif
