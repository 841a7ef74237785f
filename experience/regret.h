/* Regrets: how far the policy of a trainer is from the best one of an exact task (exact_task.h),
 *
 *     J* - J(pi),  J(pi) = E_pi[r] - beta KL(pi || p_0)
 *
 * by enumeration (exogym/exact.h). p_0 is the initial model, and beta the coefficient of the KL penalty.
 *
 * Owner: the trainer's thread. Read next: trainer.c. */
#ifndef EXO_REGRET_H
#define EXO_REGRET_H

#include "experience/learner.h"

typedef struct exo_regret exo_regret;

typedef struct exo_regret_figures {
    double regret;     /* J* - J */
    double optimum;    /* J* */
    double reward, kl; /* E[r], and KL(pi || p_0) in nats a sequence */
} exo_regret_figures;

/* Reads `exact` of a trainer's config, after its learner; NULL: the key is missing. The caller frees it.
 * INVAL (with its place): the model has another vocabulary, or there is no KL penalty; NOMEM. */
exo_status exo_regret_read(exo_regret **out, exo_config *config, const exo_learner *learner,
                           exo_err *err);
void exo_regret_free(exo_regret **regret);
/* Whether the regret of a version is to be measured: every `every` of them. False for NULL. */
bool exo_regret_is_due(const exo_regret *regret, uint64_t version);
/* Whether an item is of the task, drawn from the policy itself. INVAL: it is not. NULL accepts all. */
exo_status exo_regret_check(const exo_regret *regret, const exo_experience *item, exo_err *err);
/* Measures the learner's present policy, between two updates. NOMEM; those of the model. */
exo_status exo_regret_measure(exo_regret *regret, exo_learner *learner, exo_regret_figures *out,
                              exo_err *err);

#endif
