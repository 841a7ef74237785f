/* The steps of a normalizer, a pre-tokenizer or a decoder. load_steps.c turns each part of
 * tokenizer.json into one step or several.
 *
 * Owner: the tokenizer. Read-only once loaded. Read next: steps.c (text to text), split.c (text to
 * pieces), decode.c (tokens to text). */
#ifndef EXO_TEXT_STEPS_H
#define EXO_TEXT_STEPS_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/status.h>

#include "nn/text/pattern.h"
#include "nn/text/pieces.h"

typedef enum exo_step_kind {
    /* Text to text: */
    EXO_STEP_PREPEND,      /* puts `content` before a text that is not empty */
    EXO_STEP_PREFIX,       /* the same, unless the text begins with `content` */
    EXO_STEP_PREFIX_FIRST, /* the same, only at the beginning of the given text */
    EXO_STEP_REPLACE,      /* replaces matches of `pattern` by `content` */
    EXO_STEP_UNICODE,      /* applies the normalization form `form` */
    EXO_STEP_LOWERCASE,    /* replaces each character by its lower case */
    EXO_STEP_BYTES,        /* replaces each byte by the character that stands for it (GPT-2) */
    /* Text to pieces: */
    EXO_STEP_SPLIT, /* splits at matches of `pattern` */
    /* Decoding, from pieces to pieces. EXO_STEP_REPLACE is a step of decoders, too. */
    EXO_STEP_UNBYTES,       /* joins the pieces, with characters as the bytes they stand for */
    EXO_STEP_BYTE_FALLBACK, /* replaces runs of "<0xE2>" by the text of these bytes */
    EXO_STEP_FUSE,          /* joins the pieces */
    EXO_STEP_STRIP,         /* removes `content` from the ends, up to `start` and `stop` times */
    EXO_STEP_METASPACE,     /* `content` to a space; with `prefix`, to nothing in the first piece */
} exo_step_kind;

/* What becomes of a match, by the names of Hugging Face's library. */
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
    bool invert; /* the text between the pattern's matches counts as the matches */
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
/* Adds a step. Takes ownership of its pattern and content, also on failure. NOMEM. */
exo_status exo_steps_add(exo_steps *steps, exo_step step, exo_err *err);

/* Applies steps from text to text, at least one, and writes the result to *out. It reuses the
 * memory of *out and *spare, which the caller frees. *first: the text begins with the first
 * character of the text given to the tokenizer; the steps may set it to false. FAILED: the result
 * would be longer than exo_pieces_most(size), or a regular expression takes too long. NOMEM. */
exo_status exo_steps_normalize(const exo_steps *steps, const char *text, size_t size, bool *first,
                               exo_text *out, exo_text *spare, exo_err *err);
/* Applies a pre-tokenizer's steps to each piece of text, and leaves pieces of tokens as they are.
 * *pieces is input and output; *spare is working memory. Errors: as above. */
exo_status exo_steps_split(const exo_steps *steps, exo_pieces *pieces, exo_pieces *spare,
                           exo_err *err);
/* Applies a decoder's steps to pieces that are spellings of tokens. *pieces and *spare, and
 * errors: as above. */
exo_status exo_steps_decode(const exo_steps *steps, exo_pieces *pieces, exo_pieces *spare,
                            exo_err *err);

/* Adds the bytes that the decoder reads from one token. They may end within a character that the
 * next token's bytes complete. */
void exo_steps_token_bytes(const exo_steps *steps, const char *token, size_t size, exo_text *out);

/* Applies one step from text to text, and appends the result to *out. If the step has a pattern,
 * `matcher` must be open for it. *first becomes false if the step removes the text's beginning. */
exo_status exo_step_transform(const exo_step *step, exo_matcher *matcher, const char *text,
                              size_t size, bool *first, exo_text *out, exo_err *err);
/* GPT-2's table: the character that stands for a byte. */
uint32_t exo_byte_character(unsigned char byte);
/* The byte for which a character stands, or -1. */
int exo_character_byte(uint32_t code);

#endif
