/* What a maker asks of its reward, as far as its options say it: rewards that can score no such answer,
 * or give each the same score, are refused before a run. No state. Read next: source.c. */
#ifndef EXO_REWARD_TASK_H
#define EXO_REWARD_TASK_H

#include <exogym/reward.h>

#include "experience/prompts.h"

typedef struct exo_reward_task {
    const exo_prompts *prompts;
    size_t vocabulary;     /* of the model: answers have tokens below it */
    size_t max_new_tokens; /* the most that the policy writes */
    const int32_t *stop;   /* (num_stop) an answer ends with one of them, or with its length */
    size_t num_stop;
    bool has_tool; /* answers have replies of a tool */
} exo_reward_task;

/* Checks a reward and the parts of a sum. INVAL: an answer of the task cannot be scored, or a token
 * that the reward counts never occurs; NOMEM. */
exo_status exo_reward_check(const exo_reward *reward, const exo_reward_task *task, exo_err *err);

/* Those of the built-in classes; `self` has been read. */
exo_status exo_exact_reward_check(const void *self, const exo_reward_task *task, exo_err *err);
exo_status exo_calculation_reward_check(const void *self, const exo_reward_task *task,
                                        exo_err *err);
exo_status exo_expression_reward_check(const void *self, const exo_reward_task *task, exo_err *err);
exo_status exo_model_reward_check(const void *self, const exo_reward_task *task, exo_err *err);

#endif
