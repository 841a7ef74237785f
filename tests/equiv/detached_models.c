/* Models that functions of a C program give: the reward model, also with a tool, and the initial
 * model; and makers that start at once. Each is compared with what a folder or the default gives. */
#include <criterion/criterion.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/experience.h>
#include <exogym/memory.h>

#include "base/file.h"
#include "support/temp.h"

enum {
    BATCH = 4,
    STEPS = 4
};

#define MODEL  "{layers: 1, heads: 2, width: 16, context: 32, vocabulary: 16}"
#define WIDE   "{layers: 1, heads: 2, width: 32, context: 32, vocabulary: 16}"
#define REWARD "{layers: 1, heads: 2, width: 16, context: 32, vocabulary: 16, values: true}"
#define TOOL                                                                                       \
    "tool: {name: calculator, turns: 2, turn_tokens: 3, reply_tokens: 4}, prompts: {alphabet: "    \
    "'*+-.0123456789=?', lines: ['1+1?', '1+2?', '2+1?']}, "
#define TOKENS "prompts: {tokens: [[1], [2], [3]], shuffle: false}, "

static exo_status
make_model(exo_model **out, const char *options, exo_err *err)
{
    exo_config_doc *doc = NULL;
    exo_status st = exo_config_parse(&doc, "model", options, err);
    if (st == EXO_OK)
        st = exo_model_new_named(out, "gpt", exo_config_root(doc), err);
    exo_config_free(&doc);
    return st;
}

/* What the functions of a run give. */
struct setting {
    const char *reward_model, *initial_model; /* of the makers' function; NULL: none */
    const char *options;                      /* of the makers */
    const char *reward;                       /* in YAML; NULL: none */
    bool scores;                              /* the reward is a function */
    bool starts_at_once;
    const char *network;
    exo_reward *same;          /* of the function: a reward model from a folder */
    size_t replies;            /* tokens of a tool that it saw */
    exo_time made;             /* the end of the makers' first batch */
    uint32_t makers, trainers; /* 0 counts as 1 */
    double kl;                 /* of the result */
    char sha256[65];
};

static exo_status
give_models(void *context, exo_experience_models *out, exo_err *err)
{
    const struct setting *s = context;
    exo_status st = make_model(&out->actor, MODEL, err);
    if (st == EXO_OK && s->reward_model)
        st = make_model(&out->reward_model, s->reward_model, err);
    if (st == EXO_OK && s->initial_model)
        st = make_model(&out->initial_model, s->initial_model, err);
    return st;
}

/* The score of the reward model, which is that of the last token after all others, the tool's, too. */
static exo_status
score_all(void *context, const exo_answer *a, double *score, exo_err *err)
{
    struct setting *s = context;
    int32_t tokens[64];
    double again = 0;
    size_t length = a->prompt_length + a->length;
    cr_assert_leq(length, sizeof tokens / sizeof *tokens);
    memcpy(tokens, a->prompt, a->prompt_length * sizeof *tokens);
    memcpy(tokens + a->prompt_length, a->tokens, a->length * sizeof *tokens);
    for (size_t i = 0; i < a->length; i++)
        s->replies += a->mask && !a->mask[i];
    const exo_answer flat = {
        .prompt = tokens, .prompt_length = length - 1, .tokens = tokens + length - 1, .length = 1};
    exo_status st = exo_reward_score(s->same, a, score, err);
    if (st == EXO_OK)
        st = exo_reward_score(s->same, &flat, &again, err);
    cr_expect_eq(*score, again, "%g, %g", *score, again);
    return st;
}

static void
on_made(void *context, const exo_experience_event *event)
{
    struct setting *s = context;
    if (event->number == 0 && strcmp(event->actor, "maker_0") == 0)
        s->made = event->time;
}

static void
read_hash(const char *folder, char sha256[65])
{
    char path[512], *json = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/final_trainer_0.json", folder);
    cr_assert_eq(exo_file_read(path, 1 << 16, &json, &size, NULL), EXO_OK);
    cr_assert_eq(sscanf(strstr(json, "\"sha256\": \"") + 11, "%64[0-9a-f]", sha256), 1);
    exo_free(json);
}

static exo_detached *
make_run(struct setting *s, const char *folder)
{
    exo_err err = {0};
    exo_detached *run = NULL;
    const exo_maker_opts maker = {.model_fn = give_models,
                                  .reward = s->reward,
                                  .reward_fn = s->scores ? score_all : NULL,
                                  .starts_at_once = s->starts_at_once,
                                  .options = s->options,
                                  .callbacks = {.end = {[EXO_MAKER_MAKE] = on_made}, .context = s},
                                  .context = s};
    const exo_ppo_trainer_opts trainer = {
        .model = "{name: gpt, layers: 1, heads: 2, width: 16, context: 32, vocabulary: 16}",
        .train_batch_size = BATCH,
        .options = "algorithm: {name: grpo, kl_coef: 0.1}, optimizer: {name: adamw, lr: 1e-2}"};
    const exo_detached_opts opts = {
        .seed = 9, .folder = folder, .network = s->network, .virtual_clock = s->network != NULL};
    cr_assert_eq(exo_detached_new(&run, &opts, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_detached_makers(run, "maker", s->makers ? s->makers : 1, &maker, &err), EXO_OK,
                 "%s", err.text);
    cr_assert_eq(
        exo_detached_trainers(run, "trainer", s->trainers ? s->trainers : 1, &trainer, &err),
        EXO_OK, "%s", err.text);
    cr_assert_eq(exo_detached_workingloop(run, "maker", NULL, NULL, 1, 2 * STEPS, &err), EXO_OK);
    cr_assert_eq(exo_detached_fit(run, "trainer", STEPS, 1, 1, &err), EXO_OK);
    return run;
}

static void
run_it(struct setting *s)
{
    char folder[256];
    exo_err err = {0};
    temp_folder(folder, sizeof folder);
    exo_detached *run = make_run(s, folder);
    cr_assert_eq(exo_detached_wait(run, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_detached_figure(run, "trainer_0", "kl", &s->kl, &err), EXO_OK);
    read_hash(folder, s->sha256);
    exo_detached_free(&run);
    temp_remove(folder);
}

/* --- The reward model ------------------------------------------------------------------------- */

/* Writes the reward model of the functions to a folder, and reads it as a reward. */
static void
save_reward_model(const char *folder, exo_reward **reward)
{
    exo_err err = {0};
    exo_model *model = NULL;
    exo_params *params = NULL;
    exo_config_doc *doc = NULL;
    char text[512];
    cr_assert_eq(make_model(&model, REWARD, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_values(model, 0, &params, &err), EXO_OK);
    cr_assert_eq(exo_decoder_save(folder, model, params, EXO_F32, 0, &err), EXO_OK, "%s", err.text);
    exo_params_free(&params);
    exo_model_drop(&model);
    snprintf(text, sizeof text, "{reward: {name: model, path: '%s'}}", folder);
    cr_assert_eq(exo_config_parse(&doc, "reward", text, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_reward_read(reward, exo_config_root(doc), "reward", &err), EXO_OK, "%s",
                 err.text);
    exo_config_free(&doc);
}

static void
compare_rewards(const char *options, bool tool)
{
    char folder[256], path[300], reward[400];
    temp_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/reward", folder);
    snprintf(reward, sizeof reward, "{name: model, path: '%s'}", path);
    struct setting given = {.reward_model = REWARD, .options = options};
    struct setting read = {.reward = reward, .options = options};
    struct setting function = {.scores = true, .options = options};
    save_reward_model(path, &function.same);
    run_it(&given);
    run_it(&read);
    run_it(&function);
    cr_expect_str_eq(given.sha256, read.sha256);
    cr_expect_str_eq(function.sha256, read.sha256);
    cr_expect_eq(function.replies > 0, tool, "%zu tokens of a tool", function.replies);
    exo_reward_free(&function.same);
    temp_remove(folder);
}

Test(detached_models, a_reward_model_of_a_function_scores_as_one_of_a_folder)
{
    compare_rewards(TOKENS "answers: 2, batch: 4, generate: {max_new_tokens: 8}", false);
}

Test(detached_models, a_reward_model_scores_dialogues_with_a_tool_as_a_whole)
{
    compare_rewards(TOOL "answers: 2, batch: 4, generate: {max_new_tokens: 9}", true);
}

/* --- The initial model ------------------------------------------------------------------------ */

Test(detached_models, the_penalty_keeps_the_policy_to_the_initial_model)
{
    const char *options = TOKENS "answers: 2, batch: 4, generate: {max_new_tokens: 8}";
    struct setting none = {.reward = "{name: share, token: 5}", .options = options};
    struct setting same = none, other = none;
    same.initial_model = MODEL;
    other.initial_model = WIDE;
    run_it(&none);
    run_it(&same);
    run_it(&other);
    cr_expect_str_eq(same.sha256, none.sha256);
    cr_expect_str_neq(other.sha256, none.sha256);
    cr_expect_neq(other.kl, none.kl);
}

/* --- The start -------------------------------------------------------------------------------- */

/* Version 0 takes 1 s to the makers, and answers take as long to the trainers. */
Test(detached_models, makers_that_start_at_once_have_the_same_bits_sooner)
{
    static const uint32_t counts[][2] = {{1, 1}, {1, 2}, {2, 2}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct setting waits = {.reward = "{name: share, token: 5}",
                                .options =
                                    TOKENS "answers: 2, batch: 4, generate: {max_new_tokens: 4}",
                                .network = "links: {default: {latency: 1 s, transport: ideal}}",
                                .makers = counts[i][0],
                                .trainers = counts[i][1]};
        struct setting at_once = waits;
        at_once.starts_at_once = true;
        run_it(&waits);
        run_it(&at_once);
        cr_expect_str_eq(at_once.sha256, waits.sha256, "case %zu", i);
        cr_expect_geq(waits.made, EXO_SECOND, "case %zu", i);
        cr_expect_lt(at_once.made, EXO_SECOND, "case %zu", i);
    }
}

/* --- What is refused -------------------------------------------------------------------------- */

Test(detached_models, models_that_do_not_fit_are_refused)
{
    static const struct {
        const char *reward_model, *initial_model, *expected;
    } cases[] = {
        {MODEL, NULL, "the reward model must be a language model with values: true"},
        {REWARD, "{layers: 1, heads: 2, width: 16, context: 32, vocabulary: 17}",
         "initial: it must be a language model with the vocabulary of `model`, 16"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_err err = {0};
        struct setting s = {.reward_model = cases[i].reward_model,
                            .initial_model = cases[i].initial_model,
                            .options = TOKENS "answers: 2"};
        exo_detached *run = make_run(&s, NULL);
        cr_expect_eq(exo_detached_wait(run, &err), EXO_INVAL);
        cr_expect_not_null(strstr(err.text, cases[i].expected), "case %zu: %s", i, err.text);
        exo_detached_free(&run);
    }
    exo_err err = {0};
    exo_detached *run = NULL;
    struct setting nothing = {0};
    const exo_maker_opts maker = {.model_fn = give_models, .context = &nothing};
    cr_assert_eq(exo_detached_new(&run, &(exo_detached_opts){0}, &err), EXO_OK);
    cr_expect_eq(exo_detached_makers(run, "maker", 1, &maker, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "a reward model of model_fn"), "%s", err.text);
    exo_detached_free(&run);
}
