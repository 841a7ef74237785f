/* Exact tasks in YAML: sequences of `length` tokens of a vocabulary, each with a reward that `seed`
 * draws, so that the best policy is known by enumeration (exogym/exact.h). Makers have the task as the
 * reward `exact`, a trainer as `exact`, by which it measures its policy (regret.h).
 *
 * Owner: the caller, one thread at a time. Read next: regret.h. */
#ifndef EXO_EXACT_TASK_H
#define EXO_EXACT_TASK_H

#include <exogym/config.h>
#include <exogym/exact.h>

typedef struct exo_exact_rewards {
    uint64_t vocabulary, length, seed;
    uint64_t prompt; /* the token that stands before every sequence */
    size_t count;    /* vocabulary^length */
    double *rewards; /* (count) in [0, 1) */
} exo_exact_rewards;

/* Reads vocabulary, length, seed and prompt of a mapping, and draws the rewards; exo_exact_rewards_release
 * frees what there is, also after an error. INVAL (with its place), NOMEM. */
exo_status exo_exact_rewards_read(exo_exact_rewards *task, exo_config *map, exo_err *err);
void exo_exact_rewards_release(exo_exact_rewards *task);
/* The reward of an answer (tokens, length) to a prompt. INVAL: they are not of the task. */
exo_status exo_exact_rewards_of(const exo_exact_rewards *task, const int32_t *prompt,
                                size_t prompt_length, const int32_t *tokens, size_t length,
                                double *out, exo_err *err);

#endif
