/* Two makers and two trainers of a language model from C, without a YAML file. Models, prompts and
 * the reward are functions of this program; callbacks tell what the actors do.
 *
 * The answers shall count up: the reward is the share of tokens that are one more than the token
 * before. */
#include <stdio.h>
#include <stdlib.h>

#include <exogym/exogym.h>

enum {
    VOCABULARY = 12,
    EXPERIENCE_STEPS = 120, /* batches of each maker */
    UPDATE_STEPS = 2,       /* batches of an episode */
    TRAIN_EPOCHS = 2,
    BATCH = 8 /* prompts */
};

/* --- What the actors use ---------------------------------------------------------------------- */

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

/* The actor and the critic; makers use the actor only. */
static exo_status
model_fn(void *context, exo_experience_models *out, exo_err *err)
{
    (void)context;
    exo_status st = make_model(
        &out->actor, "{layers: 2, heads: 2, width: 32, context: 24, vocabulary: 12}", err);
    if (st == EXO_OK)
        st = make_model(
            &out->critic,
            "{layers: 1, heads: 2, width: 32, context: 24, vocabulary: 12, values: true}", err);
    return st;
}

static exo_status
count_up(void *context, const exo_answer *answer, double *score, exo_err *err)
{
    int32_t before = answer->prompt[answer->prompt_length - 1];
    size_t right = 0;
    (void)context;
    (void)err;
    for (size_t i = 0; i < answer->length; i++) {
        right += answer->tokens[i] == (before + 1) % VOCABULARY;
        before = answer->tokens[i];
    }
    *score = (double)right / (double)answer->length;
    return EXO_OK;
}

/* A data loader: prompt i is the token i. */
static bool
load_prompt(void *context, size_t index, const int32_t **tokens, size_t *length)
{
    static const int32_t all[VOCABULARY] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    (void)context;
    *tokens = &all[index < VOCABULARY ? index : 0];
    *length = 1;
    return index < VOCABULARY;
}

/* --- Callbacks -------------------------------------------------------------------------------- */

static void
on_episode_end(void *context, const exo_experience_event *event)
{
    (void)context;
    if (event->number % 20 == 19)
        printf("%s: version %llu, %llu answers\n", event->actor, (unsigned long long)event->version,
               (unsigned long long)event->samples);
}

/* --- A run ------------------------------------------------------------------------------------ */

static exo_status
describe(exo_detached *run, exo_err *err)
{
    const exo_maker_opts maker = {.model_fn = model_fn,
                                  .reward_fn = count_up,
                                  .options = "answers: 4, batch: 8, generate: {max_new_tokens: 8}"};
    const exo_ppo_trainer_opts trainer = {
        .model_fn = model_fn,
        .train_batch_size = BATCH,
        .buffer_limit = 4,
        .options = "algorithm: {name: ppo, kl_coef: 0.002}, optimizer: {name: adamw, "
                   "lr: 3e-3}",
        .callbacks = {.end = {[EXO_TRAINER_EPISODE] = on_episode_end}}};
    exo_status st = exo_detached_makers(run, "maker", 2, &maker, err);
    if (st == EXO_OK)
        st = exo_detached_trainers(run, "trainer", 2, &trainer, err);
    if (st == EXO_OK)
        st = exo_detached_workingloop(run, "maker", load_prompt, NULL, 1, EXPERIENCE_STEPS, err);
    if (st == EXO_OK)
        st = exo_detached_fit(run, "trainer", EXPERIENCE_STEPS, UPDATE_STEPS, TRAIN_EPOCHS, err);
    return st;
}

int
main(void)
{
    exo_err err = {0};
    exo_detached *run = NULL;
    double score = 0, share = 0;
    exo_status st = exo_detached_new(&run, &(exo_detached_opts){.seed = 42}, &err);
    if (st == EXO_OK)
        st = describe(run, &err);
    if (st == EXO_OK)
        st = exo_detached_wait(run, &err);
    if (st == EXO_OK)
        st = exo_detached_figure(run, "trainer_0", "score", &score, &err);
    if (st == EXO_OK)
        st = exo_detached_figure(run, "trainer_0", "learn_share", &share, &err);
    if (st == EXO_OK)
        printf("score of the last answers: %s 0.8\n", score > 0.8 ? "over" : "at most");
    else
        fprintf(stderr, "c_makers: %s\n", err.text);
    if (getenv("C_MAKERS_VERBOSE"))
        printf("score %.3f; the trainer learns %.0f %% of the time\n", score, 100 * share);
    exo_detached_free(&run);
    return st == EXO_OK ? 0 : 1;
}
