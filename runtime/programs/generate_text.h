/* The output of `exogym generate`: the samples' texts, shown while their tokens arrive and cut at a
 * stop text. Owner: the command; one thread. */
#ifndef EXO_PROGRAMS_GENERATE_TEXT_H
#define EXO_PROGRAMS_GENERATE_TEXT_H

#include <exogym/generate.h>
#include <exogym/tokenizer.h>

#include "base/grow_text.h"
#include "programs/args.h"

/* One sample's text. */
typedef struct exo_sample_text {
    exo_token_stream *stream;
    exo_text text; /* whole characters, without the stop text and the text after it */
    size_t read;   /* tokens that were read so far */
    bool begun;    /* what stands before the text was printed: the prompt */
    size_t shown;  /* bytes that were printed */
    bool stopped;  /* a stop text was found */
    bool done;     /* no more text will come */
    exo_finish finish;
    int32_t *tokens; /* (count) the new tokens, once `done` is set */
    /* (count) each: under the distribution that tokens were drawn from, and under the plain
     * softmax */
    float *log_probs, *plain_log_probs;
    size_t count;
} exo_sample_text;

/* `prompt`: the `count` tokens after which the text goes on. */
exo_status exo_sample_text_open(exo_sample_text *sample, exo_tokenizer *tokenizer,
                                const int32_t *prompt, size_t count, exo_err *err);
void exo_sample_text_release(exo_sample_text *sample);
/* Reads the new tokens of the sequence. `last`: no more will come. */
exo_status exo_sample_text_read(exo_sample_text *sample, const exo_generated *sequence,
                                const exo_words *stops, bool last, exo_err *err);
/* Prints the text so far, except an end that may be the beginning of a stop text. */
void exo_sample_text_print(exo_sample_text *sample, const exo_words *stops);

/* Prints text on standard output unchanged; on a terminal, control characters are escaped
 * (printable.h). */
void exo_sample_show(const char *text, size_t size);

#endif
