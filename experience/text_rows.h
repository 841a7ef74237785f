/* Texts as the rows of a pass: N texts padded to one length T. Row n T + t is the place of token t of
 * text n, where the model says what comes next. Rows before a token of an answer have it as their
 * target; the others have target -1 and mask 0.
 *
 * Owner: the caller, one thread at a time. Read next: tuner.c. */
#ifndef EXO_TEXT_ROWS_H
#define EXO_TEXT_ROWS_H

#include <exogym/data.h>

#include "experience/texts.h"

typedef struct exo_text_rows {
    size_t texts, length; /* N, T */
    size_t count;         /* rows with a target */
    int32_t *tokens;      /* (N, T) padded with 0 */
    int32_t *targets;     /* (N T) */
    float *mask;          /* (N T) 1: the row has a target */
    float *last;          /* (N T) 1: the row of a text's last token */
    int32_t *offsets;     /* (N + 1) n T */
    size_t room, text_room;
} exo_text_rows;

void exo_text_rows_release(exo_text_rows *rows);
/* Lays out texts (count). T is a multiple of 16, or `context` if that is less; a text may have
 * context + 1 tokens, and then has no last row. NOMEM. */
exo_status exo_text_rows_fill(exo_text_rows *rows, const exo_prompted *const *texts, size_t count,
                              size_t context, exo_err *err);
/* The batch of a decoder: borrows the tokens. */
exo_batch exo_text_rows_batch(const exo_text_rows *rows);

#endif
