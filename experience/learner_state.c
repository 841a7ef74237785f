/* The state of a learner in a checkpoint: see learner.h. */
#include "experience/learner_impl.h"

/* A student's weights, and the optimizer's state: its own, or that of its strategy. */
static void
add_student(exo_student *s, exo_state *state, const char *name)
{
    exo_state_prefix(state, name);
    exo_state_add_array(state, "values", exo_params_values_array(s->params));
    if (s->strategy) {
        exo_strategy_state(s->strategy, &s->node, state);
        exo_state_add_u64(state, "step", &s->node.step);
    } else {
        exo_optim_state(s->optim, "optim", state);
    }
    exo_state_prefix(state, NULL);
}

void
exo_learner_state(exo_learner *l, exo_state *state)
{
    exo_state_add_u64(state, "version", &l->version);
    exo_state_add(state, "kl_coef", EXO_U8, &l->objective.control.coef,
                  sizeof l->objective.control.coef);
    add_student(&l->actor, state, "actor");
    if (l->critic.model)
        add_student(&l->critic, state, "critic");
}
