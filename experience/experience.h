/* Experience: an item with one prompt and the answers that a maker has generated for it. Items
 * hold tokens, never text. docs/ppo.md has the table of arrays.
 *
 * Log-probabilities are arrays of bytes, so no codec of an edge rounds them.
 *
 * Pure functions over the caller's memory, any thread. Read next: source.h, which makes items,
 * and learner.h, which learns from them. */
#ifndef EXO_EXPERIENCE_H
#define EXO_EXPERIENCE_H

#include <exogym/generate.h>
#include <exogym/graph.h>

enum {
    EXO_EXPERIENCE_PARTS = 12,
    EXO_EXPERIENCE_MAX_ANSWERS = 1 << 10,
    EXO_EXPERIENCE_MAX_TOKENS = 1 << 28 /* of a prompt, and of all answers together */
};

/* An item as arrays. A is the number of answers; L is the number of tokens of all answers, one
 * answer after the other. */
typedef struct exo_experience {
    uint64_t id;       /* the draw: number of the prompt in the run's sequence of prompts */
    uint64_t prompt;   /* number of the prompt in its file */
    uint64_t epoch;    /* over the prompts */
    uint64_t maker;    /* the maker's index */
    int64_t life;      /* of the trainers whose weights drew it (exo_graph_life); -1: nobody's */
    float temperature; /* of the draws; 0: the most probable tokens */
    bool filtered;     /* top-k, top-p or a penalty took tokens away before the draws */
    exo_time sent, received;                      /* of the item; set by the channel */
    size_t answers, prompt_length, tokens_length; /* A, P, L */
    int32_t *prompt_tokens;                       /* (P) */
    int32_t *lengths;                             /* (A) tokens of each answer, at least 1 */
    int32_t *tokens;                              /* (L) */
    /* (L) version of the weights that a token was drawn with, and the lowest version of the weights
     * that the cache of keys and values held at that time */
    int64_t *versions, *cache_versions;
    float *log_probs;       /* (L) under the distribution of the draw */
    float *plain_log_probs; /* (L) under the softmax of the logits */
    double *scores;         /* (A) of the reward, and of the turns */
    uint8_t *finish;        /* (A) exo_finish */
    /* Of dialogues with a tool (L), else NULL: 1 if the policy wrote a token, 0 if the tool did, and
     * the reward of a turn, at its last token. Tokens of the tool have versions of -1, and
     * probabilities and rewards of 0. */
    uint8_t *mask;
    float *rewards;
} exo_experience;

/* Whether a token's probability is that under the softmax of the logits, because other tokens were
 * taken away before the draw: by `filtered`, or by the temperature 0. */
static inline bool
exo_experience_is_plain(const exo_experience *e)
{
    return e->filtered || e->temperature == 0;
}

/* Makes an item with zeroed arrays and views it; `turns`: with mask and rewards. The caller drops the
 * item. NOMEM. */
exo_status exo_experience_new(exo_item **item, exo_experience *out, size_t answers,
                              size_t prompt_length, size_t tokens_length, bool turns, exo_err *err);
/* The tokens of [first, first + count) that the policy wrote. */
size_t exo_experience_actions(const exo_experience *experience, size_t first, size_t count);
/* Writes id, prompt, epoch, maker, life, temperature and filtered of the view to the item. */
void exo_experience_sign(const exo_experience *experience, exo_item *item);
/* Views an item without a copy; *out is valid as long as the item. INVAL names the array that does
 * not fit. */
exo_status exo_experience_view(exo_experience *out, const exo_item *item, exo_err *err);
/* Drops an item that is not kept. It came again if `st` is OK or EXISTS: *repeated counts it, the log has
 * it, and OK is returned. Else it is refused, and st is returned, with its sender and number in err. */
exo_status exo_experience_drop(exo_item **item, uint64_t id, exo_status st, uint64_t *repeated,
                               exo_err *err);

#endif
