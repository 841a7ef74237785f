/* Exact tasks in YAML: see exact_task.h. The reward `exact`. */
#include "experience/exact_task.h"

#include <exogym/memory.h>
#include <exogym/rng.h>

#include "base/config_edit.h"
#include "experience/builtin.h"
#include "experience/reward_task.h"

enum {
    MAX_VOCABULARY = 1024,
    MAX_LENGTH = 20
};

static exo_status
draw_rewards(exo_exact_rewards *t, exo_err *err)
{
    exo_rng rng;
    t->rewards = exo_calloc(t->count, sizeof *t->rewards);
    if (!t->rewards)
        return exo_fail(err, EXO_NOMEM, "no memory for the rewards of %zu sequences", t->count);
    exo_rng_init(&rng, t->seed, EXO_RNG_USER, 0, 0);
    for (size_t i = 0; i < t->count; i++)
        t->rewards[i] = (double)exo_rng_uniform(&rng);
    return EXO_OK;
}

exo_status
exo_exact_rewards_read(exo_exact_rewards *t, exo_config *map, exo_err *err)
{
    exo_status st = exo_config_u64(map, "vocabulary", 3, 2, MAX_VOCABULARY, &t->vocabulary, err);
    if (st == EXO_OK)
        st = exo_config_u64(map, "length", 4, 1, MAX_LENGTH, &t->length, err);
    if (st == EXO_OK)
        st = exo_config_u64(map, "seed", 0, 0, UINT64_MAX, &t->seed, err);
    if (st == EXO_OK)
        st = exo_config_u64(map, "prompt", 0, 0, t->vocabulary - 1, &t->prompt, err);
    if (st != EXO_OK)
        return st;
    t->count = 1;
    for (uint64_t i = 0; i < t->length; i++) {
        t->count *= (size_t)t->vocabulary;
        if (t->count > EXO_EXACT_SEQUENCES)
            return exo_config_fail(map, err,
                                   "exact: vocabulary %llu and length %llu give more than %d "
                                   "sequences, which are all enumerated",
                                   (unsigned long long)t->vocabulary, (unsigned long long)t->length,
                                   EXO_EXACT_SEQUENCES);
    }
    return draw_rewards(t, err);
}

void
exo_exact_rewards_release(exo_exact_rewards *t)
{
    exo_free(t->rewards);
    t->rewards = NULL;
}

static exo_status
check_prompt(const exo_exact_rewards *t, const int32_t *prompt, size_t length, exo_err *err)
{
    if (length == 1 && (uint64_t)prompt[0] == t->prompt)
        return EXO_OK;
    return exo_fail(err, EXO_INVAL,
                    "exact: a prompt is not the token %llu alone: set prompts: {tokens: [[%llu]]}",
                    (unsigned long long)t->prompt, (unsigned long long)t->prompt);
}

exo_status
exo_exact_rewards_of(const exo_exact_rewards *t, const int32_t *prompt, size_t prompt_length,
                     const int32_t *tokens, size_t length, double *out, exo_err *err)
{
    const exo_exact_task task = {.vocabulary = (size_t)t->vocabulary, .length = (size_t)t->length};
    exo_status st = check_prompt(t, prompt, prompt_length, err);
    if (st != EXO_OK)
        return st;
    if (length != t->length)
        return exo_fail(err, EXO_INVAL,
                        "exact: an answer has %zu tokens, a sequence of the task %llu: set "
                        "generate: {max_new_tokens: %llu} and no stop token",
                        length, (unsigned long long)t->length, (unsigned long long)t->length);
    for (size_t i = 0; i < length; i++)
        if (tokens[i] < 0 || (uint64_t)tokens[i] >= t->vocabulary)
            return exo_fail(err, EXO_INVAL,
                            "exact: an answer has the token %d: set model.vocabulary: %llu",
                            tokens[i], (unsigned long long)t->vocabulary);
    *out = t->rewards[exo_exact_index(&task, tokens)];
    return EXO_OK;
}

/* --- The class "exact" ------------------------------------------------------------------------ */

static exo_status
exact_init(void *self, exo_config *config, exo_err *err)
{
    return exo_exact_rewards_read(self, config, err);
}

static void
exact_release(void *self)
{
    exo_exact_rewards_release(self);
}

static exo_status
exact_score(void *self, const exo_answer *a, double *out, exo_err *err)
{
    return exo_exact_rewards_of(self, a->prompt, a->prompt_length, a->tokens, a->length, out, err);
}

/* An answer has as many tokens as a sequence of the task if nothing ends it before, or lets it go on. */
exo_status
exo_exact_reward_check(const void *self, const exo_reward_task *task, exo_err *err)
{
    const exo_exact_rewards *t = self;
    bool stops = false;
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < exo_prompts_count(task->prompts); i++) {
        const exo_prompt prompt = exo_prompts_at(task->prompts, i);
        st = check_prompt(t, prompt.tokens, prompt.length, err);
    }
    for (size_t i = 0; i < task->num_stop; i++)
        stops = stops || (uint64_t)task->stop[i] < t->vocabulary;
    if (st != EXO_OK)
        return st;
    if (task->vocabulary > t->vocabulary)
        return exo_fail(err, EXO_INVAL,
                        "exact: the model's vocabulary is %zu, the task's %llu: "
                        "set model.vocabulary",
                        task->vocabulary, (unsigned long long)t->vocabulary);
    if (task->max_new_tokens != t->length || (stops && t->length > 1) || task->has_tool)
        return exo_fail(err, EXO_INVAL,
                        "exact: a sequence of the task has %llu tokens: set generate: "
                        "{max_new_tokens: %llu}, and neither stop tokens nor a tool",
                        (unsigned long long)t->length, (unsigned long long)t->length);
    return EXO_OK;
}

const exo_reward_class exo_exact_reward = {
    .name = "exact",
    .help = "a reward of each sequence that `seed` draws; the trainer's key `exact` tells how far "
            "the policy is from the best one",
    .state_size = sizeof(exo_exact_rewards),
    .init = exact_init,
    .score = exact_score,
    .release = exact_release,
};
