/* What a learner optimizes: the options of `algorithm` in a config, in terms of exogym/learning.h.
 * Plain data. Read next: learner.h. */
#ifndef EXO_EXPERIENCE_OBJECTIVE_H
#define EXO_EXPERIENCE_OBJECTIVE_H

#include <exogym/config.h>
#include <exogym/learning.h>

typedef struct exo_objective_opts {
    bool values;          /* PPO: advantages by a critic's values */
    bool groups;          /* advantages of answers among those of their prompt, by `group` */
    exo_group_kind group; /* else, without values: REINFORCE++ */
    exo_reward_opts reward;
    exo_kl_control control; /* of reward.kl_coef; target 0: it is fixed */
    double gamma, lambda;
    bool whiten;
    exo_correction_opts correction;
    exo_vtrace_opts vtrace; /* its lambda and gamma are those above */
    exo_reduction reduction;
    double length; /* of EXO_REDUCE_CONSTANT */
    exo_token_loss_opts loss;
    double target_kl; /* epochs end when the policy is so far from that of the makers; 0: never */
} exo_objective_opts;

/* Reads `algorithm`: NAME or {name: NAME, ...}. INVAL with its place. */
exo_status exo_objective_read(exo_objective_opts *out, exo_config *config, exo_err *err);
/* True: log-probabilities under version 0 are needed. */
bool exo_objective_needs_reference(const exo_objective_opts *opts);
/* True: log-probabilities of the trainer before an update are needed. */
bool exo_objective_needs_proximal(const exo_objective_opts *opts);

#endif
