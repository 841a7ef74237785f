/* Trainers of texts from C: the bits of the same graph in YAML, callbacks and figures, and what is
 * refused. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <exogym/experience.h>
#include <exogym/memory.h>

#include "base/file.h"
#include "graph/run.h"
#include "support/temp.h"

enum {
    SAMPLES = 20,
    BATCH = 4,
    EPOCHS = 3,
    STEPS = EPOCHS * 5, /* without held-out samples */
    PROMPT = 3,
    ANSWER = 6
};

#define MODEL "{name: gpt, layers: 1, heads: 2, width: 16, context: 16, vocabulary: 128}"
#define VALUES                                                                                     \
    "{name: gpt, layers: 1, heads: 2, width: 16, context: 16, vocabulary: 128, values: true}"
#define KEYS "validation: 0, optimizer: {name: adamw, lr: 1e-2}"
#define MAKER                                                                                      \
    "answers: 4, batch: 4, generate: {max_new_tokens: 8}, prompts: {tokens: [[1], [2], [3]]}"

/* --- Texts ------------------------------------------------------------------------------------ */

/* The texts of sample i: `q%02u`, and answers of six letters. */
static void
write_texts(size_t i, char prompt[8], char answer[16], char rejected[16])
{
    snprintf(prompt, 8, "q%02u", (unsigned)(i % 100));
    for (int k = 0; k < ANSWER; k++) {
        answer[k] = (char)('a' + (i + (size_t)k) % 5);
        rejected[k] = (char)('z' - (i * (size_t)k) % 7);
    }
    answer[ANSWER] = rejected[ANSWER] = '\0';
}

static bool
give_texts(void *context, size_t index, exo_text_sample *out)
{
    static _Thread_local int32_t tokens[3][16];
    char texts[3][16];
    (void)context;
    write_texts(index, texts[0], texts[1], texts[2]);
    for (int t = 0; t < 3; t++)
        for (size_t k = 0; texts[t][k]; k++)
            tokens[t][k] = texts[t][k];
    *out = (exo_text_sample){.prompt = tokens[0],
                             .answer = tokens[1],
                             .rejected = tokens[2],
                             .prompt_length = PROMPT,
                             .answer_length = ANSWER,
                             .rejected_length = ANSWER};
    return index < SAMPLES;
}

/* Writes the same to a file. */
static void
write_file(const char *folder, bool comparisons, char path[512])
{
    char text[SAMPLES * 128], texts[3][16];
    size_t size = 0;
    for (size_t i = 0; i < SAMPLES; i++) {
        write_texts(i, texts[0], texts[1], texts[2]);
        size +=
            (size_t)snprintf(text + size, sizeof text - size, "{\"prompt\": \"%s\", ", texts[0]);
        size += (size_t)(comparisons ? snprintf(text + size, sizeof text - size,
                                                "\"chosen\": \"%s\", \"rejected\": \"%s\"}\n",
                                                texts[1], texts[2])
                                     : snprintf(text + size, sizeof text - size,
                                                "\"answer\": \"%s\"}\n", texts[1]));
    }
    snprintf(path, 512, "%s/texts.jsonl", folder);
    cr_assert_eq(exo_file_write_atomic(path, text, size, NULL), EXO_OK);
}

static exo_status
give_model(void *context, exo_experience_models *out, exo_err *err)
{
    exo_config_doc *doc = NULL;
    const char *values = context;
    exo_status st = exo_config_parse(&doc, "model", values ? VALUES : MODEL, err);
    exo_config *map = st == EXO_OK ? exo_config_root(doc) : NULL;
    const char *name = NULL;
    if (st == EXO_OK)
        st = exo_config_string(map, "name", NULL, &name, err);
    if (st == EXO_OK)
        st = exo_model_new_named(values ? &out->reward_model : &out->actor, name, map, err);
    exo_config_free(&doc);
    return st;
}

/* --- Runs ------------------------------------------------------------------------------------- */

typedef exo_status (*add_fn)(exo_detached *, const char *, uint32_t, const exo_text_trainer_opts *,
                             exo_err *);

static const struct {
    const char *class, *model;
    add_fn add;
    bool comparisons, gives_reward;
} kinds[] = {
    {"sft_trainer", MODEL, exo_detached_sft_trainers, false, false},
    {"reward_trainer", VALUES, exo_detached_reward_trainers, true, true},
    {"dpo_trainer", MODEL, exo_detached_dpo_trainers, true, false},
};

static void
read_hash(const char *folder, char sha256[65])
{
    char path[512], *json = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/final_t_0.json", folder);
    cr_assert_eq(exo_file_read(path, 1 << 16, &json, &size, NULL), EXO_OK);
    cr_assert_eq(sscanf(strstr(json, "\"sha256\": \"") + 11, "%64[0-9a-f]", sha256), 1);
    exo_free(json);
}

/* A run of trainers t. */
static exo_detached *
make_run(size_t kind, uint32_t count, const exo_text_trainer_opts *opts, const char *folder)
{
    exo_err err = {0};
    exo_detached *run = NULL;
    cr_assert_eq(exo_detached_new(&run, &(exo_detached_opts){.seed = 9, .folder = folder}, &err),
                 EXO_OK);
    cr_assert_eq(kinds[kind].add(run, "t", count, opts, &err), EXO_OK, "%s", err.text);
    return run;
}

static void
wait_and_hash(exo_detached **run, const char *folder, char sha256[65])
{
    exo_err err = {0};
    cr_assert_eq(exo_detached_wait(*run, &err), EXO_OK, "%s", err.text);
    read_hash(folder, sha256);
    exo_detached_free(run);
}

/* The same in YAML, without anything of this interface. */
static void
run_yaml(const char *actors, const char *edges, char sha256[65])
{
    char folder[256], text[4096];
    exo_err err = {0};
    exo_graph_spec *spec = NULL;
    exo_graph_result result = {0};
    temp_folder(folder, sizeof folder);
    snprintf(text, sizeof text, "exogym: 1\nseed: 9\nactors:\n%s%s", actors, edges);
    cr_assert_eq(exo_graph_parse(&spec, "test.yaml", text, &(exo_graph_opts){.name = "test"}, &err),
                 EXO_OK, "%s", err.text);
    cr_assert_eq(exo_graph_run(spec, &(exo_graph_run_opts){.space = "test", .folder = folder},
                               &result, &err),
                 EXO_OK, "%s", err.text);
    read_hash(folder, sha256);
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
    temp_remove(folder);
}

/* One or two trainers of each kind: from functions, from texts, and in YAML. */
static void
compare_kind(size_t kind, uint32_t count)
{
    char folder[256], path[512], data[600], actors[2048], functions[65], texts[65], yaml[65];
    exo_err err = {0};
    temp_folder(folder, sizeof folder);
    write_file(folder, kinds[kind].comparisons, path);
    snprintf(data, sizeof data, "{path: '%s', end: false}", path);
    const exo_text_trainer_opts given = {.model_fn = give_model,
                                         .text_fn = give_texts,
                                         .train_batch_size = BATCH,
                                         .options = KEYS,
                                         .context = kinds[kind].gives_reward ? "values" : NULL};
    const exo_text_trainer_opts named = {
        .model = kinds[kind].model, .data = data, .train_batch_size = BATCH, .options = KEYS};
    exo_detached *run = make_run(kind, count, &given, folder);
    cr_assert_eq(exo_detached_fit(run, "t", 0, 4, EPOCHS, &err), EXO_OK, "%s", err.text);
    wait_and_hash(&run, folder, functions);
    run = make_run(kind, count, &named, folder);
    cr_assert_eq(exo_detached_fit(run, "t", STEPS / count, 0, 0, &err), EXO_OK, "%s", err.text);
    wait_and_hash(&run, folder, texts);
    snprintf(actors, sizeof actors,
             "  t: {class: %s, count: %u, config: {model: %s, data: %s, batch: %d, steps: %d, " KEYS
             "}}\n",
             kinds[kind].class, count, kinds[kind].model, data, BATCH, STEPS / (int)count);
    run_yaml(actors,
             count == 1 ? ""
                        : "edges:\n  - {from: t, to: t, carries: gradients, route: all_reduce}\n",
             yaml);
    cr_expect_str_eq(texts, yaml, "%s", kinds[kind].class);
    if (count == 1)
        cr_expect_str_eq(functions, yaml, "%s", kinds[kind].class);
    temp_remove(folder);
}

Test(detached_texts, functions_and_texts_have_the_bits_of_a_graph_in_yaml)
{
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        compare_kind(kind, 1);
    compare_kind(0, 2);
}

static exo_status
count_5(void *context, const exo_answer *answer, double *score, exo_err *err)
{
    (void)context;
    (void)err;
    *score = 0;
    for (size_t i = 0; i < answer->length; i++)
        *score += answer->tokens[i] == 5;
    return EXO_OK;
}

/* Two makers, whose answers a trainer compares. */
static void
compare_makers(size_t kind)
{
    char folder[256], functions[65], yaml[65], actors[2048];
    exo_err err = {0};
    const exo_text_trainer_opts opts = {
        .model = kinds[kind].model, .train_batch_size = BATCH, .options = KEYS};
    const exo_maker_opts maker = {.model = MODEL, .reward_fn = count_5, .options = MAKER};
    temp_folder(folder, sizeof folder);
    exo_detached *run = make_run(kind, 1, &opts, folder);
    cr_assert_eq(exo_detached_makers(run, "m", 2, &maker, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_detached_workingloop(run, "m", NULL, NULL, 20, 0, &err), EXO_OK);
    wait_and_hash(&run, folder, functions);
    snprintf(actors, sizeof actors,
             "  m: {class: experience_maker, count: 2, config: {model: " MODEL
             ", reward: {name: expression, formula: 'tokens(5)'}, epochs: 20, " MAKER
             "}}\n  t: {class: %s, config: {model: %s, batch: %d, epochs: 1, " KEYS "}}\n",
             kinds[kind].class, kinds[kind].model, BATCH);
    run_yaml(actors, "edges:\n  - {from: m, to: t, carries: experience, route: modulo}\n", yaml);
    cr_expect_str_eq(functions, yaml, "%s", kinds[kind].class);
    temp_remove(folder);
}

Test(detached_texts, trainers_compare_the_answers_of_makers)
{
    compare_makers(1);
    compare_makers(2);
}

/* --- Callbacks and figures -------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    uint64_t starts[EXO_EXPERIENCE_STAGES], ends[EXO_EXPERIENCE_STAGES];
    uint64_t numbers[EXO_EXPERIENCE_STAGES]; /* the last ones */
    uint64_t steps, answers;
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
on_start(void *context, const exo_experience_event *e)
{
    (void)context;
    pthread_mutex_lock(&seen.lock);
    cr_expect_eq(seen.starts[e->stage], seen.ends[e->stage], "stage %d", (int)e->stage);
    seen.starts[e->stage]++;
    pthread_mutex_unlock(&seen.lock);
}

static void
on_end(void *context, const exo_experience_event *e)
{
    (void)context;
    pthread_mutex_lock(&seen.lock);
    seen.ends[e->stage]++;
    seen.numbers[e->stage] = e->number;
    seen.steps = e->version;
    seen.answers = e->samples;
    pthread_mutex_unlock(&seen.lock);
}

Test(detached_texts, stages_are_told_and_figures_count_them)
{
    static const uint64_t expected[EXO_EXPERIENCE_STAGES] = {
        [EXO_TRAINER_FIT] = 1,
        [EXO_TRAINER_EPOCH] = EPOCHS,
        [EXO_TRAINER_BATCH] = STEPS,
        [EXO_TRAINER_EVALUATE] = STEPS / 4 + 1, /* every 4 steps, and after the last one */
    };
    exo_err err = {0};
    exo_experience_models models = {0};
    double flop = 0, rate = 0, learns = 0, evaluates = 0;
    exo_text_trainer_opts opts = {
        .model = MODEL, .text_fn = give_texts, .train_batch_size = BATCH, .options = KEYS};
    for (int i = 0; i < EXO_EXPERIENCE_STAGES; i++) {
        opts.callbacks.start[i] = on_start;
        opts.callbacks.end[i] = on_end;
    }
    cr_assert_eq(give_model(NULL, &models, &err), EXO_OK);
    double parameters = (double)exo_model_numel(models.actor);
    exo_model_drop(&models.actor);
    for (size_t kind = 0; kind < 3; kind += 2) {
        memset(seen.starts, 0, sizeof seen.starts);
        memset(seen.ends, 0, sizeof seen.ends);
        exo_detached *run = make_run(kind, 1, &opts, NULL);
        cr_assert_eq(exo_detached_fit(run, "t", 0, 4, EPOCHS, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_detached_wait(run, &err), EXO_OK, "%s", err.text);
        for (int i = 0; i < EXO_EXPERIENCE_STAGES; i++) {
            cr_expect_eq(seen.starts[i], expected[i], "stage %d: %llu starts", i,
                         (unsigned long long)seen.starts[i]);
            cr_expect_eq(seen.ends[i], seen.starts[i], "stage %d", i);
        }
        cr_expect_eq(seen.numbers[EXO_TRAINER_EPOCH], EPOCHS - 1);
        cr_expect_eq(seen.numbers[EXO_TRAINER_BATCH], STEPS - 1);
        cr_expect_eq(seen.steps, STEPS);
        double answers = kind == 0 ? SAMPLES : 2 * SAMPLES;
        cr_expect_eq((double)seen.answers, EPOCHS * answers);
        cr_assert_eq(exo_detached_figure(run, "t_0", "flop", &flop, &err), EXO_OK);
        cr_expect_eq(flop, (kind == 0 ? 6 : 8) * parameters * EPOCHS * answers * (PROMPT + ANSWER),
                     "%g", flop);
        cr_assert_eq(exo_detached_figure(run, "t_0", "samples_per_second", &rate, &err), EXO_OK);
        cr_assert_eq(exo_detached_figure(run, "t_0", "learn_share", &learns, &err), EXO_OK);
        cr_assert_eq(exo_detached_figure(run, "t_0", "evaluate_share", &evaluates, &err), EXO_OK);
        cr_expect(rate > 0 && learns > 0 && evaluates > 0 && learns + evaluates <= 1,
                  "%g samples/s, %g and %g of the time", rate, learns, evaluates);
        exo_detached_free(&run);
    }
}

/* --- What is refused -------------------------------------------------------------------------- */

static bool
give_nothing(void *context, size_t index, exo_text_sample *out)
{
    (void)context;
    (void)index;
    (void)out;
    return false;
}

static bool
give_half(void *context, size_t index, exo_text_sample *out)
{
    bool more = give_texts(context, index, out);
    out->rejected_length = 0;
    return more;
}

static bool
give_null(void *context, size_t index, exo_text_sample *out)
{
    bool more = give_texts(context, index, out);
    out->answer = NULL;
    return more;
}

static bool
give_large_tokens(void *context, size_t index, exo_text_sample *out)
{
    static const int32_t large[] = {1, 128};
    (void)context;
    *out =
        (exo_text_sample){.prompt = large, .prompt_length = 1, .answer = large, .answer_length = 2};
    return index < 2;
}

Test(detached_texts, mistakes_are_named)
{
    static const struct {
        size_t kind;
        exo_text_trainer_opts opts;
        uint32_t count, makers;
        const char *expected;
    } cases[] = {
        {0, {.text_fn = give_texts}, 1, 0, "trainers need a model or a model_fn"},
        {0, {.model = MODEL}, 1, 0, "trainers of fine-tuning need data"},
        {0, {.model = MODEL, .text_fn = give_texts, .data = "{path: x}"}, 1, 0, "not both"},
        {0, {.model = MODEL, .text_fn = give_nothing}, 1, 0, "text_fn has given no sample"},
        {0,
         {.model = MODEL, .text_fn = give_large_tokens},
         1,
         0,
         "sample 0 of text_fn: the token "
         "128 is beyond"},
        {1, {.model = VALUES, .text_fn = give_half}, 1, 0, "sample 0 of text_fn: it needs tokens"},
        {0, {.model = MODEL, .text_fn = give_null}, 1, 0, "sample 0 of text_fn: it needs tokens"},
        {1, {.model = VALUES}, 1, 0, "t has no comparisons"},
        {1, {.model = MODEL, .text_fn = give_texts}, 1, 0, "a reward model needs a value head"},
        {1, {.model = VALUES}, 2, 1, "makers send all items to one trainer"},
        {1, {.model = VALUES, .text_fn = give_texts}, 1, 1, "have no makers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_err err = {0};
        exo_detached *run = NULL;
        const exo_maker_opts maker = {.model = MODEL, .reward_fn = count_5, .options = MAKER};
        cr_assert_eq(exo_detached_new(&run, &(exo_detached_opts){.seed = 9}, &err), EXO_OK);
        exo_status st = kinds[cases[i].kind].add(run, "t", cases[i].count, &cases[i].opts, &err);
        if (st == EXO_OK && cases[i].makers > 0)
            st = exo_detached_makers(run, "m", cases[i].makers, &maker, &err);
        if (st == EXO_OK)
            st = exo_detached_wait(run, &err);
        cr_expect_eq(st, EXO_INVAL, "case %zu", i);
        cr_expect_not_null(strstr(err.text, cases[i].expected), "case %zu: %s", i, err.text);
        exo_detached_free(&run);
    }
    exo_err err = {0};
    const exo_text_trainer_opts opts = {.model = MODEL, .text_fn = give_texts};
    exo_detached *run = make_run(0, 1, &opts, NULL);
    cr_expect_eq(exo_detached_sft_trainers(run, "u", 1, &opts, &err), EXO_EXISTS);
    cr_expect_eq(exo_detached_fit(run, "u", 1, 1, 1, &err), EXO_NOT_FOUND);
    cr_expect_eq(exo_detached_fit(run, "t", 0, 1, 0, &err), EXO_INVAL);
    exo_detached_free(&run);
}
