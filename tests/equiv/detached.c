/* Makers and trainers from C: the bits of the same graph in YAML, the order of callbacks, episodes,
 * figures, and what is refused. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <exogym/experience.h>
#include <exogym/memory.h>

#include "base/file.h"
#include "graph/run.h"
#include "support/temp.h"

enum {
    BATCH = 4,
    STEPS = 6,
    UPDATE_STEPS = 2,
    EPOCHS = 3,
    MINIBATCHES = 2,
    ANSWERS = 2,
    TOKENS = 8
};

#define MODEL     "{name: gpt, layers: 1, heads: 2, width: 16, context: 16, vocabulary: 11}"
#define GENERATED "answers: 2, batch: 4, generate: {max_new_tokens: 8}"
#define PROMPTS   "prompts: {tokens: [[1], [2], [3]], shuffle: false}"

/* --- Functions of the program ----------------------------------------------------------------- */

static exo_status
give_model(void *context, exo_experience_models *out, exo_err *err)
{
    exo_config_doc *doc = NULL;
    (void)context;
    exo_status st = exo_config_parse(&doc, "model", MODEL, err);
    exo_config *map = st == EXO_OK ? exo_config_root(doc) : NULL;
    const char *name = NULL;
    if (st == EXO_OK)
        st = exo_config_string(map, "name", NULL, &name, err);
    if (st == EXO_OK)
        st = exo_model_new_named(&out->actor, name, map, err);
    exo_config_free(&doc);
    return st;
}

static exo_status
share_of_5(void *context, const exo_answer *answer, double *score, exo_err *err)
{
    size_t hits = 0;
    (void)context;
    (void)err;
    for (size_t i = 0; i < answer->length; i++)
        hits += answer->tokens[i] == 5;
    *score = (double)hits / (double)answer->length;
    return EXO_OK;
}

static bool
load(void *context, size_t index, const int32_t **tokens, size_t *length)
{
    static const int32_t all[] = {1, 2, 3};
    (void)context;
    *tokens = &all[index % 3];
    *length = 1;
    return index < 3;
}

/* --- Runs ------------------------------------------------------------------------------------- */

/* What the callbacks of a run have seen. */
static struct {
    pthread_mutex_t lock;
    uint64_t starts[EXO_EXPERIENCE_STAGES], ends[EXO_EXPERIENCE_STAGES];
    pthread_cond_t stepped;      /* the trainer has started its first step */
    bool waits, waited;          /* the maker's second batch waits for that; in vain */
    uint64_t epochs[3 * EPOCHS]; /* numbers, in their order */
    uint64_t last_version;
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER, .stepped = PTHREAD_COND_INITIALIZER};

static void
await_first_step_locked(void)
{
    struct timespec end;
    int rc = 0;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 20;
    while (seen.starts[EXO_TRAINER_BATCH] == 0 && rc == 0)
        rc = pthread_cond_timedwait(&seen.stepped, &seen.lock, &end);
    seen.waited = rc != 0;
}

static void
on_start(void *context, const exo_experience_event *e)
{
    (void)context;
    pthread_mutex_lock(&seen.lock);
    cr_expect_eq(seen.starts[e->stage], seen.ends[e->stage], "stage %d", (int)e->stage);
    if (e->stage == EXO_TRAINER_EPOCH && seen.starts[e->stage] < 3 * EPOCHS)
        seen.epochs[seen.starts[e->stage]] = e->number;
    seen.starts[e->stage]++;
    pthread_cond_broadcast(&seen.stepped);
    if (seen.waits && e->stage == EXO_MAKER_BATCH && seen.starts[e->stage] == 2)
        await_first_step_locked();
    pthread_mutex_unlock(&seen.lock);
}

static void
on_end(void *context, const exo_experience_event *e)
{
    (void)context;
    pthread_mutex_lock(&seen.lock);
    if (e->stage == EXO_TRAINER_UPDATE)
        seen.last_version = e->version;
    seen.ends[e->stage]++;
    pthread_mutex_unlock(&seen.lock);
}

static exo_experience_callbacks
callbacks(void)
{
    exo_experience_callbacks all = {0};
    for (int i = 0; i < EXO_EXPERIENCE_STAGES; i++) {
        all.start[i] = on_start;
        all.end[i] = on_end;
    }
    return all;
}

/* A run of functions, or of texts. */
static exo_detached *
make_run(bool functions, bool virtual_clock, const char *folder, uint64_t update_steps,
         uint64_t train_epochs)
{
    exo_err err = {0};
    exo_detached *run = NULL;
    exo_maker_opts maker = {.model = MODEL,
                            .reward = "{name: share, token: 5}",
                            .options = GENERATED ", " PROMPTS,
                            .callbacks = callbacks()};
    exo_ppo_trainer_opts trainer = {.model = MODEL,
                                    .train_batch_size = BATCH,
                                    .options = "algorithm: grpo, minibatches: 2",
                                    .callbacks = callbacks()};
    if (functions) {
        maker.model = maker.reward = trainer.model = NULL;
        maker.model_fn = trainer.model_fn = give_model;
        maker.reward_fn = share_of_5;
        maker.options = GENERATED;
    }
    memset(seen.starts, 0, sizeof seen.starts);
    memset(seen.ends, 0, sizeof seen.ends);
    cr_assert_eq(
        exo_detached_new(
            &run, &(exo_detached_opts){.seed = 9, .virtual_clock = virtual_clock, .folder = folder},
            &err),
        EXO_OK, "%s", err.text);
    cr_assert_eq(exo_detached_makers(run, "maker", 1, &maker, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_detached_trainers(run, "trainer", 1, &trainer, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(
        exo_detached_workingloop(run, "maker", functions ? load : NULL, NULL, 1, STEPS, &err),
        EXO_OK, "%s", err.text);
    cr_assert_eq(exo_detached_fit(run, "trainer", STEPS, update_steps, train_epochs, &err), EXO_OK,
                 "%s", err.text);
    return run;
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

/* Functions run on the real clock, texts on the virtual one. */
static void
run_detached(bool functions, uint64_t update_steps, uint64_t train_epochs, char sha256[65])
{
    char folder[256];
    exo_err err = {0};
    temp_folder(folder, sizeof folder);
    exo_detached *run = make_run(functions, !functions, folder, update_steps, train_epochs);
    cr_assert_eq(exo_detached_wait(run, &err), EXO_OK, "%s", err.text);
    read_hash(folder, sha256);
    exo_detached_free(&run);
    temp_remove(folder);
}

/* The same run in YAML, without anything of this interface. */
static void
run_yaml(char sha256[65])
{
    char folder[256];
    exo_err err = {0};
    exo_graph_spec *spec = NULL;
    exo_graph_result result = {0};
    temp_folder(folder, sizeof folder);
    cr_assert_eq(
        exo_graph_parse(
            &spec, "test.yaml",
            "exogym: 1\nseed: 9\nactors:\n"
            "  maker: {class: experience_maker, config: {model: " MODEL
            ", reward: {name: share, token: 5}, epochs: 0, " GENERATED ", " PROMPTS "}}\n"
            "  trainer: {class: ppo_trainer, config: {model: " MODEL
            ", algorithm: grpo, minibatches: 2, batch: 4, updates: 6, epochs: 3}}\n"
            "edges:\n"
            "  - {from: maker, to: trainer, carries: experience}\n"
            "  - {from: trainer, to: maker, carries: parameters, buffer: {on_full: latest}}\n",
            &(exo_graph_opts){.name = "test"}, &err),
        EXO_OK, "%s", err.text);
    cr_assert_eq(exo_graph_run(spec, &(exo_graph_run_opts){.space = "test", .folder = folder},
                               &result, &err),
                 EXO_OK, "%s", err.text);
    read_hash(folder, sha256);
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
    temp_remove(folder);
}

Test(detached, functions_and_texts_have_the_bits_of_a_graph_in_yaml)
{
    char functions[65], texts[65], yaml[65], episodes[65];
    run_detached(true, 1, EPOCHS, functions);
    run_detached(false, 1, EPOCHS, texts);
    run_yaml(yaml);
    cr_expect_str_eq(functions, yaml);
    cr_expect_str_eq(texts, yaml);
    run_detached(false, UPDATE_STEPS, EPOCHS, episodes);
    cr_expect_str_neq(episodes, yaml);
}

/* Updates and batches that take minutes: who waits for a busy actor does not give up. */
Test(detached, an_update_may_take_minutes)
{
    exo_err err = {0};
    exo_graph_spec *spec = NULL;
    exo_graph_result result = {0};
    cr_assert_eq(
        exo_graph_parse(
            &spec, "test.yaml",
            "exogym: 1\nseed: 9\nclock: virtual\nactors:\n"
            "  maker: {class: experience_maker, count: 2, compute: {make: 3 min}, config: "
            "{model: " MODEL ", reward: {name: share, token: 5}, epochs: 0, " GENERATED ", " PROMPTS
            "}}\n"
            "  trainer: {class: ppo_trainer, count: 2, compute: {learn: 4 min}, config: "
            "{model: " MODEL ", algorithm: grpo, batch: 4, updates: 2}}\n"
            "edges:\n"
            "  - {from: maker, to: trainer, carries: experience, route: modulo}\n"
            "  - {from: trainer, to: maker, carries: parameters, route: modulo, buffer: {on_full: "
            "latest}}\n"
            "  - {from: trainer, to: trainer, carries: gradients, route: all_reduce}\n",
            &(exo_graph_opts){.name = "test"}, &err),
        EXO_OK, "%s", err.text);
    cr_expect_eq(exo_graph_run(spec, &(exo_graph_run_opts){.space = "test"}, &result, &err), EXO_OK,
                 "%s", err.text);
    cr_expect_geq(result.time, 14 * 60 * EXO_SECOND, "%lld ns", (long long)result.time);
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
}

/* --- Episodes --------------------------------------------------------------------------------- */

Test(detached, an_episode_learns_from_batches_as_they_come_and_again)
{
    static const uint64_t expected[EXO_EXPERIENCE_STAGES] = {
        [EXO_MAKER_LOOP] = 1,
        [EXO_MAKER_BATCH] = STEPS,
        [EXO_MAKER_MAKE] = STEPS,
        [EXO_MAKER_SEND] = STEPS * BATCH,
        [EXO_TRAINER_FIT] = 1,
        [EXO_TRAINER_EPISODE] = STEPS / UPDATE_STEPS,
        [EXO_TRAINER_EPOCH] = STEPS / UPDATE_STEPS * EPOCHS,
        [EXO_TRAINER_BATCH] = STEPS * EPOCHS * MINIBATCHES,
        [EXO_TRAINER_UPDATE] = STEPS / UPDATE_STEPS,
    };
    exo_err err = {0};
    exo_experience_models models = {0};
    seen.waits = true;
    exo_detached *run = make_run(true, false, NULL, UPDATE_STEPS, EPOCHS);
    cr_assert_eq(exo_detached_wait(run, &err), EXO_OK, "%s", err.text);
    for (int i = 0; i < EXO_EXPERIENCE_STAGES; i++) {
        cr_expect_eq(seen.starts[i], expected[i], "stage %d: %llu starts", i,
                     (unsigned long long)seen.starts[i]);
        cr_expect_eq(seen.ends[i], seen.starts[i], "stage %d", i);
    }
    for (int i = 0; i < STEPS / UPDATE_STEPS * EPOCHS; i++)
        cr_expect_eq(seen.epochs[i], (uint64_t)(i % EPOCHS), "epoch %d", i);
    cr_expect_eq(seen.last_version, STEPS / UPDATE_STEPS);
    cr_expect_not(seen.waited, "the trainer waits for the second batch");

    double tokens = STEPS * BATCH * ANSWERS * (1 + TOKENS), makes = 0, learns = 0, samples = 0;
    cr_assert_eq(give_model(NULL, &models, &err), EXO_OK);
    double parameters = (double)exo_model_numel(models.actor);
    exo_model_drop(&models.actor);
    cr_assert_eq(exo_detached_figure(run, "maker_0", "flop", &makes, &err), EXO_OK);
    cr_assert_eq(exo_detached_figure(run, "trainer_0", "flop", &learns, &err), EXO_OK);
    cr_assert_eq(exo_detached_figure(run, "trainer_0", "items", &samples, &err), EXO_OK);
    cr_expect_eq(makes, 2 * parameters * tokens, "%g", makes);
    cr_expect_eq(learns, 6 * parameters * tokens * EPOCHS, "%g", learns);
    cr_expect_eq(samples, STEPS * BATCH);
    cr_expect_eq(exo_detached_figure(run, "trainer_0", "nothing", &samples, &err), EXO_NOT_FOUND);
    for (int i = 0; i < 2; i++)
        cr_expect_eq(exo_detached_wait(run, &err), EXO_EXISTS);
    cr_expect_eq(exo_detached_fit(run, "trainer", 4, 2, 1, &err), EXO_EXISTS, "it has begun");
    exo_detached_free(&run);
}

/* Several makers and trainers with a replay buffer, by the rule of who sends to whom. */
Test(detached, any_numbers_of_makers_and_trainers)
{
    static const struct {
        uint32_t makers, trainers, buffer;
    } cases[] = {{2, 1, 0}, {1, 2, 0}, {2, 2, 1}, {3, 2, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_err err = {0};
        exo_detached *run = NULL;
        double items = 0;
        const exo_maker_opts maker = {
            .model_fn = give_model, .reward_fn = share_of_5, .options = GENERATED};
        const exo_ppo_trainer_opts trainer = {.model_fn = give_model,
                                              .train_batch_size = BATCH,
                                              .buffer_limit = cases[i].buffer,
                                              .options = "algorithm: grpo"};
        cr_assert_eq(exo_detached_new(&run, &(exo_detached_opts){.seed = 4}, &err), EXO_OK);
        cr_assert_eq(exo_detached_makers(run, "m", cases[i].makers, &maker, &err), EXO_OK);
        cr_assert_eq(exo_detached_trainers(run, "t", cases[i].trainers, &trainer, &err), EXO_OK);
        cr_assert_eq(exo_detached_workingloop(run, "m", load, NULL, 0, 10, &err), EXO_OK);
        cr_assert_eq(exo_detached_fit(run, "t", 4, 2, 1, &err), EXO_OK);
        cr_assert_eq(exo_detached_wait(run, &err), EXO_OK, "case %zu: %s", i, err.text);
        cr_assert_eq(exo_detached_figure(run, "t_0", "items", &items, &err), EXO_OK);
        cr_expect_eq(items, 4 * BATCH, "case %zu: %g items", i, items);
        exo_detached_free(&run);
    }
}

/* A run of makers m and trainers t with lists of targets, either of which may be NULL. */
static exo_status
run_with_targets(uint32_t makers, uint32_t trainers, uint32_t buffer, const char *of_makers,
                 const char *of_trainers, exo_detached **run, exo_err *err)
{
    const exo_maker_opts maker = {.model = MODEL,
                                  .reward_fn = share_of_5,
                                  .trainers = of_makers,
                                  .options = GENERATED ", " PROMPTS};
    const exo_ppo_trainer_opts trainer = {.model = MODEL,
                                          .train_batch_size = BATCH,
                                          .buffer_limit = buffer,
                                          .makers = of_trainers,
                                          .options = "algorithm: grpo"};
    cr_assert_eq(exo_detached_new(run, &(exo_detached_opts){.seed = 4}, err), EXO_OK);
    cr_assert_eq(exo_detached_makers(*run, "m", makers, &maker, err), EXO_OK);
    cr_assert_eq(exo_detached_trainers(*run, "t", trainers, &trainer, err), EXO_OK);
    cr_assert_eq(exo_detached_workingloop(*run, "m", NULL, NULL, 0, 12, err), EXO_OK);
    cr_assert_eq(exo_detached_fit(*run, "t", 4, 2, 1, err), EXO_OK);
    return exo_detached_wait(*run, err);
}

Test(detached, lists_of_targets_fit_any_numbers)
{
    static const struct {
        uint32_t makers, trainers, buffer;
        const char *of_makers, *of_trainers, *idle; /* sends no versions */
    } cases[] = {{3, 2, 0, "[t_0, t_1]", "{t_1: [m_0, m_1, m_2]}", "t_0"},
                 {2, 2, 0, "{m_0: [t_0], m_1: [t_1, t_0]}", "{t_0: [m_0, m_1]}", "t_1"},
                 {2, 2, 1, NULL, "{t_1: [m_1, m_0]}", "t_0"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_err err = {0};
        exo_detached *run = NULL;
        double items = 0, bytes = -1;
        cr_assert_eq(run_with_targets(cases[i].makers, cases[i].trainers, cases[i].buffer,
                                      cases[i].of_makers, cases[i].of_trainers, &run, &err),
                     EXO_OK, "case %zu: %s", i, err.text);
        for (int t = 0; t < 2; t++) {
            cr_assert_eq(exo_detached_figure(run, t ? "t_1" : "t_0", "items", &items, &err),
                         EXO_OK);
            cr_expect_eq(items, 4 * BATCH, "case %zu: %g items", i, items);
        }
        cr_assert_eq(exo_detached_figure(run, cases[i].idle, "update_bytes", &bytes, &err), EXO_OK);
        cr_expect_eq(bytes, 0, "case %zu: %g bytes", i, bytes);
        exo_detached_free(&run);
    }
}

/* --- What is refused -------------------------------------------------------------------------- */

Test(detached, lists_that_do_not_fit_are_refused)
{
    static const struct {
        uint32_t makers, trainers, buffer;
        const char *of_makers, *of_trainers, *expected;
    } cases[] = {
        {2, 2, 0, "{m_0: [t_1], m_1: [t_1]}", NULL, "m_0 would not reach t_0, whose weights"},
        {2, 2, 0, NULL, "{t_0: [m_1, m_0]}", "m_1 would not reach t_0, whose weights it gets"},
        {2, 2, 0, NULL, "{t_0: [m_0]}", "m_1 would get no weights"},
        {2, 2, 1, "[t_0, t_1]", NULL, "cannot have lists of trainers with a replay buffer"},
        {2, 2, 0, "[t_2]", NULL, "'t_2' is none of 't', which are t_0 to t_1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_err err = {0};
        exo_detached *run = NULL;
        cr_expect_eq(run_with_targets(cases[i].makers, cases[i].trainers, cases[i].buffer,
                                      cases[i].of_makers, cases[i].of_trainers, &run, &err),
                     EXO_INVAL);
        cr_expect_not_null(strstr(err.text, cases[i].expected), "case %zu: %s", i, err.text);
        exo_detached_free(&run);
    }
}

static exo_status
score_nothing(void *context, const exo_answer *answer, double *score, exo_err *err)
{
    (void)answer;
    (void)err;
    *(bool *)context = true;
    *score = 0;
    return EXO_OK;
}

static exo_status
give_no_model(void *context, exo_experience_models *out, exo_err *err)
{
    (void)context;
    (void)out;
    return exo_fail(err, EXO_IO, "no model");
}

static bool
load_nothing(void *context, size_t index, const int32_t **tokens, size_t *length)
{
    (void)context;
    *tokens = NULL;
    *length = 3;
    return index == 0;
}

Test(detached, a_refused_call_leaves_the_run_as_it_was)
{
    exo_err err = {0};
    bool called = false;
    char *before = NULL, *after = NULL;
    exo_detached *run = make_run(true, false, NULL, 1, 1);
    const exo_maker_opts second = {.model = MODEL, .reward_fn = score_nothing, .context = &called};
    const exo_ppo_trainer_opts trainer = {.model = MODEL, .train_batch_size = 7};
    cr_assert_eq(exo_detached_text(run, &before, &err), EXO_OK);
    cr_expect_eq(exo_detached_makers(run, "maker", 1, &second, &err), EXO_EXISTS);
    cr_expect_eq(exo_detached_trainers(run, "trainer", 1, &trainer, &err), EXO_EXISTS);
    cr_assert_eq(exo_detached_text(run, &after, &err), EXO_OK);
    cr_expect_str_eq(before, after);
    cr_expect_eq(exo_detached_wait(run, &err), EXO_OK, "%s", err.text);
    cr_expect_not(called);
    exo_free(before);
    exo_free(after);
    exo_detached_free(&run);

    const exo_maker_opts broken = {.model_fn = give_no_model, .reward = "share"};
    cr_assert_eq(exo_detached_new(&run, &(exo_detached_opts){0}, &err), EXO_OK);
    cr_expect_eq(exo_detached_makers(run, "maker", 1, &broken, &err), EXO_IO);
    cr_expect_eq(exo_detached_makers(run, "a: b", 1, &second, &err), EXO_INVAL);
    cr_expect_eq(exo_detached_makers(run, "maker", 1, &second, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_detached_trainers(run, "maker", 1, &trainer, &err), EXO_INVAL);
    cr_expect_eq(exo_detached_trainers(run, "trainer", 1, &trainer, &err), EXO_OK);
    cr_expect_eq(exo_detached_fit(run, NULL, 1, 1, 1, &err), EXO_NOT_FOUND);
    cr_expect_eq(exo_detached_workingloop(run, "maker", load_nothing, NULL, 1, 0, &err), EXO_OK);
    cr_expect_eq(exo_detached_wait(run, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "prompt 0 of the data loader is empty"), "%s", err.text);
    exo_detached_free(&run);
}

Test(detached, mistakes_are_named)
{
    exo_err err = {0};
    exo_detached *run = make_run(true, false, NULL, 1, 1);
    const exo_maker_opts nothing = {0}, maker = {.model = MODEL, .reward = "share"};
    cr_expect_eq(exo_detached_makers(run, "more", 1, &maker, &err), EXO_EXISTS);
    cr_expect_eq(exo_detached_fit(run, "nobody", 4, 2, 1, &err), EXO_NOT_FOUND);
    cr_expect_eq(exo_detached_fit(run, "trainer", 5, 2, 1, &err), EXO_INVAL);
    cr_expect_eq(exo_detached_fit(run, "trainer", 4, 0, 1, &err), EXO_INVAL);
    cr_expect_eq(exo_detached_fit(run, "trainer", 4, 2, 0, &err), EXO_INVAL);
    cr_expect_eq(exo_detached_workingloop(run, "maker", load, NULL, 0, 0, &err), EXO_INVAL);
    exo_detached_free(&run);
    cr_assert_eq(exo_detached_new(&run, &(exo_detached_opts){0}, &err), EXO_OK);
    cr_expect_eq(exo_detached_makers(run, "maker", 1, &nothing, &err), EXO_INVAL);
    cr_expect_eq(exo_detached_wait(run, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "makers and trainers"), "%s", err.text);
    exo_detached_free(&run);

    exo_graph_spec *spec = NULL;
    cr_expect_eq(exo_graph_parse(&spec, "g",
                                 "actors: {m: {class: experience_maker, config: {given: 7, model: "
                                 "{given: 7}, reward: share}}}\n",
                                 &(exo_graph_opts){.name = "g"}, &err),
                 EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "only a C program"), "%s", err.text);
    exo_graph_spec_free(&spec);
}
