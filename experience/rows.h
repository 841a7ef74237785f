/* Rows: the answers of a pass through a model, padded to one length. Row n T + t is the place of
 * token t of answer n; there the model says what comes next. A row whose next token is one that the
 * policy wrote is an action; the others (prompt, replies of a tool, padding, the last place) have
 * target -1 and mask 0.
 *
 * Owner: the caller, one thread at a time. Read next: learner.c. */
#ifndef EXO_ROWS_H
#define EXO_ROWS_H

#include <exogym/data.h>

#include "experience/experience.h"

/* An answer of an item. */
typedef struct exo_pick {
    const exo_experience *from;
    size_t answer, first; /* first: where its tokens begin among those of the item */
} exo_pick;

/* Whether the policy wrote a token of the answer; otherwise it is of a tool's reply. */
bool exo_pick_is_action(const exo_pick *pick, size_t token);
/* The log-probabilities of its tokens that the maker gave: under the distribution of the draws, or
 * under the softmax of the logits if tokens were taken away before the draws. */
const float *exo_pick_behaviour(const exo_pick *pick);

typedef struct exo_rows {
    size_t answers, length; /* N, T */
    size_t actions;         /* rows that are actions */
    int32_t *tokens;        /* (N, T) padded with 0 */
    int32_t *targets;       /* (N T) -1: no action */
    float *mask;            /* (N T) 1: an action, 0: none */
    float *behaviour;       /* (N T) log-probabilities that the maker gave */
    size_t room;            /* N T that the arrays have room for */
} exo_rows;

void exo_rows_release(exo_rows *rows);
/* Lays out answers (count), of which all were drawn with one temperature. T is a multiple of 16, or
 * `context` if that is less. NOMEM; INVAL: an answer is longer than the context. */
exo_status exo_rows_fill(exo_rows *rows, const exo_pick *picks, size_t count, size_t context,
                         exo_err *err);
/* The row of an answer's first token, which is an action; those of its other tokens follow. */
size_t exo_rows_first(const exo_rows *rows, const exo_pick *picks, size_t answer);
/* The batch of a decoder: borrows the tokens. */
exo_batch exo_rows_batch(const exo_rows *rows);

#endif
