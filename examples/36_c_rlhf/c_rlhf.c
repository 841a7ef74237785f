/* Learning from preferences from C, in three runs: a model learns to answer (sft), a reward model learns
 * from comparisons of its answers, and PPO raises the reward model's score. The flow is that of
 * examples/32_rlhf; texts, prompts and preferences are functions of this program.
 *
 * A text is a walk over the tokens 0 to 11: each one is 1 more or 1 less than the one before, either as
 * often. Of two walks the one with more steps up is preferred. The reward model never sees this rule.
 *
 *     c_rlhf [FOLDER]
 *
 * The trainers write their models to the folder (by default ./models), which is made if it is not
 * there. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <exogym/exogym.h>

enum {
    TOKENS = 12,
    ANSWER = 8,
    TEXTS = 600
};

#define GENERATE "batch: 12, generate: {max_new_tokens: 8}"

/* --- Texts, prompts and preferences ----------------------------------------------------------- */

/* Prompt i is the token i. */
static const int32_t all_tokens[TOKENS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

/* Text i begins at token i mod 12; a hash of i and the place decides about each step. */
static bool
load_text(void *context, size_t index, exo_text_sample *out)
{
    static int32_t answer[ANSWER]; /* it is copied before the next call */
    uint64_t state = (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    int32_t token = all_tokens[index % TOKENS];
    (void)context;
    for (size_t i = 0; i < ANSWER; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        token = (token + (state >> 63 ? 1 : TOKENS - 1)) % TOKENS;
        answer[i] = token;
    }
    *out = (exo_text_sample){.prompt = &all_tokens[index % TOKENS],
                             .prompt_length = 1,
                             .answer = answer,
                             .answer_length = ANSWER};
    return index < TEXTS;
}

static bool
load_prompt(void *context, size_t index, const int32_t **tokens, size_t *length)
{
    (void)context;
    *tokens = &all_tokens[index < TOKENS ? index : 0];
    *length = 1;
    return index < TOKENS;
}

/* The preference: how many steps of an answer go up. */
static exo_status
steps_up(void *context, const exo_answer *answer, double *score, exo_err *err)
{
    int32_t before = answer->prompt[answer->prompt_length - 1];
    (void)context;
    (void)err;
    *score = 0;
    for (size_t i = 0; i < answer->length; i++) {
        *score += answer->tokens[i] == (before + 1) % TOKENS;
        before = answer->tokens[i];
    }
    return EXO_OK;
}

static void
on_evaluated(void *context, const exo_experience_event *event)
{
    (void)context;
    printf("%s: %llu steps, %llu answers\n", event->actor, (unsigned long long)event->version,
           (unsigned long long)event->samples);
}

/* --- The stages ------------------------------------------------------------------------------- */

/* A stage: its folder, and what it returns. */
struct stage {
    const char *folder;
    double figure;
};

/* Runs what was described, reads a figure of an actor, and frees the run. */
static exo_status
finish(exo_detached **run, exo_status st, const char *actor, const char *meter, double *figure,
       exo_err *err)
{
    if (st == EXO_OK)
        st = exo_detached_wait(*run, err);
    if (st == EXO_OK)
        st = exo_detached_figure(*run, actor, meter, figure, err);
    exo_detached_free(run);
    return st;
}

/* Stage 1: supervised fine-tuning. The figure is the loss of the held-out texts, in nats a token. */
static exo_status
fine_tune(struct stage *s, exo_err *err)
{
    exo_detached *run = NULL;
    const exo_text_trainer_opts opts = {
        .model = "{name: gpt, layers: 2, heads: 2, width: 32, context: 16, vocabulary: 12}",
        .text_fn = load_text,
        .train_batch_size = 32,
        .options = "optimizer: {name: adamw, lr: 3e-3}",
        .callbacks = {.end = {[EXO_TRAINER_EVALUATE] = on_evaluated}}};
    exo_status st =
        exo_detached_new(&run, &(exo_detached_opts){.seed = 42, .folder = s->folder}, err);
    if (st == EXO_OK)
        st = exo_detached_sft_trainers(run, "sft", 1, &opts, err);
    if (st == EXO_OK)
        st = exo_detached_fit(run, "sft", 200, 100, 0, err);
    return finish(&run, st, "sft_0", "val_loss", &s->figure, err);
}

/* Stage 2: a maker answers with the model of stage 1, and a reward model learns from pairs of answers.
 * The figure is its accuracy on held-out pairs. */
static exo_status
learn_preferences(struct stage *s, exo_err *err)
{
    char policy[4096], reward[4096];
    exo_detached *run = NULL;
    snprintf(policy, sizeof policy, "{name: gpt, path: '%s/model_sft_0'}", s->folder);
    snprintf(reward, sizeof reward, "{name: gpt, path: '%s/model_sft_0', values: true}", s->folder);
    const exo_maker_opts maker = {
        .model = policy, .reward_fn = steps_up, .options = "answers: 4, " GENERATE};
    const exo_text_trainer_opts opts = {
        .model = reward,
        .train_batch_size = 32,
        .options = "optimizer: {name: adamw, lr: 3e-3}",
        .callbacks = {.end = {[EXO_TRAINER_EVALUATE] = on_evaluated}}};
    exo_status st =
        exo_detached_new(&run, &(exo_detached_opts){.seed = 142, .folder = s->folder}, err);
    if (st == EXO_OK)
        st = exo_detached_makers(run, "maker", 2, &maker, err);
    if (st == EXO_OK)
        st = exo_detached_reward_trainers(run, "reward", 1, &opts, err);
    if (st == EXO_OK)
        st = exo_detached_workingloop(run, "maker", load_prompt, NULL, 60, 0, err);
    if (st == EXO_OK)
        st = exo_detached_fit(run, "reward", 0, 0, 2, err);
    return finish(&run, st, "reward_0", "val_accuracy", &s->figure, err);
}

/* Stage 3: PPO, with the model of stage 1 as version 0. The figure is the mean score of the last
 * answers, in standard deviations of the scores of stage 2. */
static exo_status
raise_score(struct stage *s, exo_err *err)
{
    char policy[4096], critic[4096], reward[4096];
    exo_detached *run = NULL;
    snprintf(policy, sizeof policy, "{name: gpt, path: '%s/model_sft_0'}", s->folder);
    snprintf(critic, sizeof critic, "{name: gpt, path: '%s/model_reward_0', values: true}",
             s->folder);
    snprintf(reward, sizeof reward, "{name: model, path: '%s/model_reward_0', normalize: true}",
             s->folder);
    const exo_maker_opts maker = {
        .model = policy, .reward = reward, .options = "answers: 4, " GENERATE};
    const exo_ppo_trainer_opts trainer = {
        .model = policy,
        .critic = critic,
        .train_batch_size = 12,
        .options = "algorithm: {name: ppo, kl_coef: 0.05}, optimizer: {name: adamw, lr: 1e-3}"};
    exo_status st =
        exo_detached_new(&run, &(exo_detached_opts){.seed = 242, .folder = s->folder}, err);
    if (st == EXO_OK)
        st = exo_detached_makers(run, "maker", 1, &maker, err);
    if (st == EXO_OK)
        st = exo_detached_trainers(run, "trainer", 1, &trainer, err);
    if (st == EXO_OK)
        st = exo_detached_workingloop(run, "maker", load_prompt, NULL, 60, 0, err);
    if (st == EXO_OK)
        st = exo_detached_fit(run, "trainer", 60, 1, 2, err);
    return finish(&run, st, "trainer_0", "score", &s->figure, err);
}

/* Prints whether a figure is over a bound; with C_RLHF_VERBOSE also the figure. */
static void
tell(const char *what, double figure, double bound)
{
    printf("%s: %s %g", what, figure > bound ? "over" : "at most", bound);
    if (getenv("C_RLHF_VERBOSE"))
        printf(" (%.3f)", figure);
    printf("\n");
}

int
main(int argc, char **argv)
{
    exo_err err = {0};
    struct stage s = {.folder = argc > 1 ? argv[1] : "models"};
    mkdir(s.folder, 0777); /* if it cannot be made, the first trainer says so */
    exo_status st = fine_tune(&s, &err);
    if (st == EXO_OK) {
        tell("nats a token of held-out texts", s.figure, 0.8);
        st = learn_preferences(&s, &err);
    }
    if (st == EXO_OK) {
        tell("share of held-out comparisons that are right", s.figure, 0.85);
        st = raise_score(&s, &err);
    }
    if (st == EXO_OK)
        tell("score of the last answers, in deviations of the first", s.figure, 0.8);
    else
        fprintf(stderr, "c_rlhf: %s\n", err.text);
    return st == EXO_OK ? 0 : 1;
}
