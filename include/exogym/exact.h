/* Tasks whose optimum is known: sequences of L tokens of a vocabulary V, a reward of each sequence,
 * and a reference policy. All V^L sequences are enumerated, so the objective of a policy pi
 *
 *     J(pi) = E_pi[r] - beta KL(pi || pi_ref)
 *
 * is exact, and so are its maximum and the policy that has it (Rafailov et al., 2023,
 * arXiv:2305.18290, eq. 4):
 *
 *     J* = beta log E_ref[exp(r / beta)],  pi* = pi_ref exp(r / beta) / E_ref[exp(r / beta)]
 *
 * J* - J(pi) = beta KL(pi || pi*) is the regret by which tests and benchmarks judge a trainer.
 *
 * A sequence has the index sum of token[i] V^(L - 1 - i), so the first token is the most
 * significant digit. Pure functions; any thread.
 */
#ifndef EXOGYM_EXACT_H
#define EXOGYM_EXACT_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

EXO_DECLS_BEGIN

/* The caller owns the arrays, which are indexed by sequence. */
typedef struct exo_exact_task {
    size_t vocabulary, length; /* V at least 2, L at least 1; V^L at most EXO_EXACT_SEQUENCES */
    const double *rewards;     /* (V^L) */
    const double *reference;   /* (V^L) log pi_ref of each sequence; NULL: uniform */
    double beta;               /* above 0 */
} exo_exact_task;

/* The limit of a task. */
enum {
    EXO_EXACT_SEQUENCES = 1 << 20 /* the most sequences of a task */
};

/* INVAL: a vocabulary, length or beta out of range, a reward that is not finite, or a reference
 * whose probabilities do not sum to 1 within 1e-6. */
EXO_API exo_status exo_exact_check(const exo_exact_task *task, exo_err *err);

/* V^L. */
EXO_API size_t exo_exact_sequences(const exo_exact_task *task);
/* The number of beginnings of 0 to L - 1 tokens, the states in which a policy chooses. */
EXO_API size_t exo_exact_states(const exo_exact_task *task);
/* Writes the tokens (L) of the sequence with an index. */
EXO_API void exo_exact_tokens(const exo_exact_task *task, size_t index, int32_t *tokens);
/* The index of a sequence, from its tokens (L). */
EXO_API size_t exo_exact_index(const exo_exact_task *task, const int32_t *tokens);
/* The number of the state after the first `length` of the tokens, below exo_exact_states: states
 * are ordered by length, then by their digits. length is below L. */
EXO_API size_t exo_exact_state(const exo_exact_task *task, const int32_t *tokens, size_t length);

/* J(pi), with log_probs (V^L) = log pi of each sequence. E_pi[r] and KL(pi || pi_ref) are written
 * where not NULL. */
EXO_API double exo_exact_objective(const exo_exact_task *task, const double *log_probs,
                                   double *reward, double *kl);
/* J*. log_probs (V^L), log pi* of each sequence, is written if not NULL. */
EXO_API double exo_exact_optimum(const exo_exact_task *task, double *log_probs);

EXO_DECLS_END

#endif
