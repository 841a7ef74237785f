/* Steps that a text goes through: a normalizer's, a pre-tokenizer's or a decoder's. A part of tokenizer.json becomes one step or several
 * (load_steps.c). Read-only after they are made. */
#ifndef EXO_TEXT_STEPS_H
#define EXO_TEXT_STEPS_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/status.h>

#include "nn/text/pattern.h"
#include "nn/text/pieces.h"

typedef enum exo_step_kind {
    /* Text to text: */
    EXO_STEP_PREPEND,      /* `content` before a text that is not empty                     */
    EXO_STEP_PREFIX,       /* the same, unless it begins with it                            */
    EXO_STEP_PREFIX_FIRST, /* the same, at the beginning of what was given only             */
    EXO_STEP_REPLACE,      /* matches of `pattern` by `content`                             */
    EXO_STEP_UNICODE,      /* normalization form `form`                                     */
    EXO_STEP_LOWERCASE,
    EXO_STEP_BYTES, /* each byte as the character that stands for it (GPT-2)         */
    /* Text to pieces: */
    EXO_STEP_SPLIT, /* at matches of `pattern`                                       */
    /* Pieces of tokens to pieces, when decoding; EXO_STEP_REPLACE too: */
    EXO_STEP_UNBYTES,       /* characters as the bytes that they stand for; one piece        */
    EXO_STEP_BYTE_FALLBACK, /* runs of "<0xE2>" as the text of these bytes                   */
    EXO_STEP_FUSE,          /* one piece                                                     */
    EXO_STEP_STRIP,         /* up to `start` and `stop` times `content` off the ends         */
    EXO_STEP_METASPACE,     /* `content` to spaces; `prefix`: to nothing in the first piece  */
} exo_step_kind;

typedef enum exo_split_behavior {
    EXO_SPLIT_REMOVED,
    EXO_SPLIT_ISOLATED,
    EXO_SPLIT_MERGED_WITH_PREVIOUS,
    EXO_SPLIT_MERGED_WITH_NEXT,
    EXO_SPLIT_CONTIGUOUS,
} exo_split_behavior;

typedef enum exo_unicode_form {
    EXO_UNICODE_NFC,
    EXO_UNICODE_NFD,
    EXO_UNICODE_NFKC,
    EXO_UNICODE_NFKD,
} exo_unicode_form;

typedef struct exo_step {
    exo_step_kind kind;
    exo_pattern *pattern;
    char *content;
    exo_split_behavior behavior;
    bool invert; /* matches are what is between those of the pattern */
    bool prefix;
    exo_unicode_form form;
    size_t start, stop;
} exo_step;

/* Zero-initialize. */
typedef struct exo_steps {
    exo_step *items;
    size_t count, room;
} exo_steps;

void exo_steps_release(exo_steps *steps);
/* Takes what the step owns, also on failure. NOMEM. */
exo_status exo_steps_add(exo_steps *steps, exo_step step, exo_err *err);

/* Steps from text to text, one at least, on one text; what comes out is in *out. The memory of both is used again. *first: see pieces.h. FAILED:
 * it would be longer than exo_pieces_most of the text. */
exo_status exo_steps_normalize(const exo_steps *steps, const char *text, size_t size, bool *first,
                               exo_text *out, exo_text *spare, exo_err *err);
/* Steps from text to text or pieces, on every piece of text. *pieces is what goes in and what comes out. */
exo_status exo_steps_split(const exo_steps *steps, exo_pieces *pieces, exo_pieces *spare,
                           exo_err *err);
/* Steps from tokens to text, on pieces that are tokens' spellings. */
exo_status exo_steps_decode(const exo_steps *steps, exo_pieces *pieces, exo_pieces *spare,
                            exo_err *err);

/* Adds a token's bytes as the decoder takes them; UTF-8 together with those of other tokens, not by themselves. */
void exo_steps_token_bytes(const exo_steps *steps, const char *token, size_t size, exo_text *out);

/* One step from text to text. `matcher` is open for its pattern, if it has one. *first, if it was true, becomes false if the step takes the
 * text's beginning away. */
exo_status exo_step_transform(const exo_step *step, exo_matcher *matcher, const char *text,
                              size_t size, bool *first, exo_text *out, exo_err *err);
/* The character that stands for a byte, and the byte that a character stands for, or -1. */
uint32_t exo_byte_character(unsigned char byte);
int exo_character_byte(uint32_t code);

#endif
