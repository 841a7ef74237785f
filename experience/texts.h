/* Texts to learn from: answers to prompts, or comparisons of two answers to one prompt. They are
 * read from a file, or added one by one. A text is its tokens, first those of the prompt.
 *
 * Owner: the caller, one thread at a time. Read next: text_rows.h, tuner.h. */
#ifndef EXO_TEXTS_H
#define EXO_TEXTS_H

#include <exogym/config.h>
#include <exogym/tokenizer.h>

/* A prompt and an answer. At least one token of each. */
typedef struct exo_prompted {
    int32_t *tokens; /* (length) */
    size_t prompt, length;
} exo_prompted;

typedef struct exo_texts exo_texts;

typedef enum exo_texts_kind {
    EXO_TEXTS_ANSWERS,     /* a sample is one text */
    EXO_TEXTS_COMPARISONS, /* a sample is two texts: the chosen one, then the rejected one */
} exo_texts_kind;

/* What a model takes. */
typedef struct exo_texts_limits {
    size_t vocabulary;
    size_t length; /* the most tokens of a text */
} exo_texts_limits;

/* Makes an empty list. The caller frees it. NOMEM. */
exo_status exo_texts_new(exo_texts **out, exo_texts_kind kind, exo_err *err);
/* Reads the list that the keys of `map` describe: `path`, a file of JSON lines with `prompt` and
 * `answer`, or `prompt`, `chosen` and `rejected`; or, of answers only, `text`, a file that is cut into
 * pieces of `block` tokens, whose prompts are their first token. Further keys: tokenizer, end,
 * truncate (docs/rlhf.md). Or `given`, the function of a C program. The caller frees it. INVAL (with the place in the config, or file and
 * line), IO, NOMEM; those of the tokenizer. */
exo_status exo_texts_read(exo_texts **out, exo_config *map, exo_texts_kind kind,
                          const exo_texts_limits *limits, exo_err *err);
void exo_texts_free(exo_texts **texts);

/* Adds the next text: `prompt` tokens, then `answer` ones, which are copied. NOMEM. */
exo_status exo_texts_add(exo_texts *texts, const int32_t *prompt_tokens, size_t prompt,
                         const int32_t *answer_tokens, size_t answer, exo_err *err);

/* The number of samples. */
size_t exo_texts_count(const exo_texts *texts);
/* The texts of a sample: one, or two. They live until the list is changed. */
const exo_prompted *exo_texts_at(const exo_texts *texts, size_t sample);
size_t exo_texts_each(const exo_texts *texts); /* 1 or 2 */
/* NULL: the texts were added as tokens. */
exo_tokenizer *exo_texts_tokenizer(const exo_texts *texts);

#endif
