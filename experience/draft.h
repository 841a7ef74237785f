/* Drafts: answers under way. A draft has the tokens of an answer while a source generates it, and
 * with a tool (exogym/tool.h) it is a dialogue: turns of the policy, and replies of the tool.
 *
 *            prompt | turn 0 | reply | turn 1 | reply | ...
 *     mask             1 1 1    0 0     1 1 1    0 0
 *
 * Turns, and the whole, end as follows:
 *
 *   a stop token of the tool, or turn_tokens      the tool replies
 *   another stop token, or max_new_tokens         the answer ends
 *   the tool ends it, or the last turn's reply    the answer ends
 *
 * max_new_tokens counts the policy's tokens of all turns together.
 *
 * Owner: the caller, one thread at a time. Read next: source.c. */
#ifndef EXO_DRAFT_H
#define EXO_DRAFT_H

#include <exogym/generate.h>
#include <exogym/tool.h>

/* What the drafts of a source have in common. */
typedef struct exo_draft_rules {
    exo_tool *tool;        /* NULL: an answer is one turn */
    size_t longest_prompt; /* tokens */
    size_t max_new_tokens;
    size_t vocabulary; /* of the model */
    uint64_t seed;
    const exo_tokenizer *tokenizer; /* NULL: token numbers */
} exo_draft_rules;

/* The most tokens of an answer, replies included. */
size_t exo_draft_most(const exo_draft_rules *rules);

/* Arrays of an answer's tokens have exo_draft_most entries. A reply's tokens have mask 0, versions
 * of -1, and probabilities of 0. */
typedef struct exo_draft {
    int32_t *tokens;            /* (longest prompt + most) of prompt and answer */
    float *log_probs, *plain;   /* (most) */
    int64_t *versions, *caches; /* (most) */
    uint8_t *mask;              /* (most) 1: the policy wrote it */
    float *rewards;             /* (most) of turns, at the last token of each; else 0 */
    void *state;                /* of the tool */
    size_t prompt, length;      /* tokens: of the prompt, of all */
    size_t known;               /* tokens that the generator's present sequence has as its prompt */
    size_t drawn;               /* the policy's tokens */
    size_t turn; /* number of the present turn, which begins at token `first` of the answer */
    size_t first;
    double earned; /* rewards of the turns */
    int64_t cache; /* the oldest version in its cache */
    exo_finish finish;
    bool waits; /* weights have changed since its last token */
    bool scored;
    double score; /* if it is scored: of the reward and the turns */
} exo_draft;

/* Makes room for the longest answer. NOMEM; then, too, exo_draft_release frees what there is. */
exo_status exo_draft_init(exo_draft *draft, const exo_draft_rules *rules, exo_err *err);
/* Frees the arrays; accepts a zeroed draft. */
void exo_draft_release(exo_draft *draft);

/* Begins with a prompt, of at most the longest length. */
void exo_draft_begin(exo_draft *draft, const exo_draft_rules *rules, const int32_t *prompt,
                     size_t count);
/* Begins again after the prompt. */
void exo_draft_rewind(exo_draft *draft, const exo_draft_rules *rules);
/* The most tokens that the policy may add to the present turn, at least 1 while it has not ended. */
size_t exo_draft_left(const exo_draft *draft, const exo_draft_rules *rules);
/* Takes over the tokens that a sequence of the generator has drawn since. */
void exo_draft_add(exo_draft *draft, const exo_generated *sequence, uint64_t version);
/* The generator has ended the turn. Either draft->finish says how the answer ends; or it goes on
 * with a turn after *reply tokens, the last ones of the draft, which may be none. `id` names the
 * sequence for chance. Errors: those of exo_tool_answer; INVAL (the reply has a token outside the
 * vocabulary). */
exo_status exo_draft_end_turn(exo_draft *draft, const exo_draft_rules *rules, uint64_t id,
                              exo_finish finish, size_t *reply, exo_err *err);

#endif
