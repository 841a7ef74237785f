/* Makers and trainers of a language model: any graph of them has the bits of a plain loop without a
 * graph, and the probabilities of the sampler are those of the trainer. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "experience/learner.h"
#include "experience/source.h"
#include "graph/run.h"
#include "support/parrot.h"
#include "support/sanitized.h"
#include "support/temp.h"

enum {
    UPDATES = 6,
    BATCH = 8,
    PROMPTS = 5,
    MAX_COLUMNS = 16
};

#define MODEL "{name: gpt, layers: 2, heads: 2, width: 24, context: 24, vocabulary: 11}"
#define CRITIC                                                                                     \
    "{name: gpt, layers: 1, heads: 2, width: 16, context: 24, vocabulary: 11, values: true}"
#define SHARED                                                                                     \
    "{name: gpt, layers: 2, heads: 2, width: 24, context: 24, vocabulary: 11, values: true}"
#define PROMPT_LIST "{tokens: [[1], [2, 3], [4, 5, 6], [7], [8, 9, 10, 1]]}"

/* What is learned. */
struct task {
    const char *model;
    const char *learner; /* further keys of the trainer */
    const char *source;  /* further keys of the maker */
};

static const struct task tasks[] = {
    {MODEL, "algorithm: {name: grpo, kl_coef: 0.05}, epochs: 2, minibatches: 2", "answers: 4"},
    {MODEL,
     "algorithm: {name: ppo, kl_coef: 0.02, kl_target: 1, dual_clip: 3}, critic: " CRITIC
     ", rows: 3",
     "answers: 2"},
    {MODEL, "algorithm: {name: dr_grpo, length: 16, kl_loss: 0.1, clip_high: 0.3, entropy: 0.01}",
     "answers: 4"},
    {SHARED, "algorithm: {name: ppo, correction: vtrace, whiten: false, target_kl: 0.5}, epochs: 3",
     "answers: 2"},
    {MODEL, "algorithm: {name: grpo, correction: decoupled, weight_max: 2}, epochs: 2",
     "answers: 4"},
    {SHARED, "algorithm: ppo, max_norm: 0.3", "answers: 1"},
    {MODEL, "algorithm: rloo", "answers: 3, generate: {max_new_tokens: 7, temperature: 0.7}"},
    {MODEL, "algorithm: reinforce++",
     "answers: 2, generate: {max_new_tokens: 9, top_k: 4, stop: [3]}"},
    {SHARED, "algorithm: {name: ppo, kl_coef: 0.05}",
     "answers: 1, generate: {max_new_tokens: 6, temperature: 0}"},
    {MODEL, "algorithm: {name: grpo, kl_coef: 0.05}, epochs: 2, minibatches: 2",
     "answers: 4, tool: parrot, generate: {max_new_tokens: 10, stop: [3]}"},
    {MODEL, "algorithm: {name: ppo, kl_coef: 0.02, entropy: 0.01}, rows: 3, critic: " CRITIC,
     "answers: 2, tool: {name: parrot, turns: 2, turn_tokens: 6}, generate: {max_new_tokens: 9}"},
};

static void
write_maker(char *out, size_t size, const struct task *t)
{
    snprintf(out, size,
             "{model: %s, prompts: " PROMPT_LIST
             ", reward: {name: share, token: 5}, batch: 3, epochs: 0, %s}",
             t->model, t->source);
}

static void
write_trainer(char *out, size_t size, const struct task *t, uint64_t batch)
{
    snprintf(out, size,
             "{model: %s, optimizer: {name: adamw, lr: 3e-3}, slices: 2, batch: %llu, updates: %d, "
             "%s}",
             t->model, (unsigned long long)batch, UPDATES, t->learner);
}

/* --- The plain loop --------------------------------------------------------------------------- */

static exo_config *
parse(exo_config_doc **doc, const char *text)
{
    exo_err err = {0};
    cr_assert_eq(exo_config_parse(doc, "test", text, &err), EXO_OK, "%s", err.text);
    return exo_config_root(*doc);
}

/* Makes one draw alone. */
static exo_item *
make_one(exo_experience_source *source, uint64_t draw)
{
    exo_item *item = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_experience_source_begin(source, draw, &err), EXO_OK, "%s", err.text);
    while (exo_experience_source_unfinished(source) > 0)
        cr_assert_eq(exo_experience_source_step(source, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_experience_source_take(source, 0, &item, &err), EXO_OK, "%s", err.text);
    cr_assert_not_null(item);
    return item;
}

/* Learns from draws in their order, with the weights of each version; `sha256` gets the result. */
static void
plain_loop(const struct task *t, uint64_t seed, char sha256[65])
{
    char text[2048];
    exo_err err = {0};
    exo_config_doc *maker = NULL, *trainer = NULL;
    exo_experience_source *source = NULL;
    exo_learner *learner = NULL;
    write_maker(text, sizeof text, t);
    cr_assert_eq(exo_experience_source_read(&source, parse(&maker, text), &err), EXO_OK, "%s",
                 err.text);
    write_trainer(text, sizeof text, t, BATCH);
    cr_assert_eq(exo_learner_read(&learner, parse(&trainer, text), &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_experience_source_start(source, seed, 0, NULL, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_learner_start(learner, seed, 0, 1, 0, &err), EXO_OK, "%s", err.text);
    for (uint64_t v = 0; v < UPDATES; v++) {
        exo_item *items[BATCH];
        exo_experience experience[BATCH];
        exo_learner_figures figures;
        for (uint64_t i = 0; i < BATCH; i++) { /* one at a time: batches do not matter */
            items[i] = make_one(source, v * BATCH + i);
            cr_assert_eq(exo_experience_view(&experience[i], items[i], &err), EXO_OK, "%s",
                         err.text);
        }
        cr_assert_eq(exo_learner_update(learner, NULL, experience, BATCH, &figures, &err), EXO_OK,
                     "%s", err.text);
        cr_expect_eq(figures.ratio_off, 0, "version %llu: %g", (unsigned long long)v,
                     figures.ratio_off);
        cr_assert_eq(exo_generator_set_weights(exo_experience_source_generator(source),
                                               exo_learner_params(learner), &err),
                     EXO_OK, "%s", err.text);
        cr_assert_eq(exo_experience_source_renew(source, v + 1, EXO_KV_KEEP, &err), EXO_OK);
        for (int i = 0; i < BATCH; i++)
            exo_item_drop(&items[i]);
    }
    cr_assert_eq(exo_learner_sha256(learner, sha256, &err), EXO_OK, "%s", err.text);
    exo_learner_free(&learner);
    exo_experience_source_free(&source);
    exo_config_free(&maker);
    exo_config_free(&trainer);
}

/* --- Graphs ----------------------------------------------------------------------------------- */

struct graph {
    uint32_t makers, trainers;
    const char *clock;
};

/* Runs a graph in `folder`. */
static void
run_graph(const struct task *t, const struct graph *g, uint64_t seed, const char *folder)
{
    char text[8192], maker[2048], trainer[2048];
    exo_graph_spec *spec = NULL;
    exo_err err = {0};
    exo_graph_result result = {0};
    write_maker(maker, sizeof maker, t);
    write_trainer(trainer, sizeof trainer, t, BATCH / g->trainers);
    snprintf(text, sizeof text,
             "exogym: 1\nseed: %llu\nclock: %s\nactors:\n"
             "  maker: {class: experience_maker, count: %u, config: %s}\n"
             "  trainer: {class: ppo_trainer, count: %u, config: %s}\n"
             "edges:\n"
             "  - {from: maker, to: trainer, carries: experience, route: %s}\n"
             "  - {from: trainer, to: maker, carries: parameters, route: broadcast, buffer: "
             "{on_full: latest}}\n%s",
             (unsigned long long)seed, g->clock, g->makers, maker, g->trainers, trainer,
             g->trainers > 1 ? "modulo" : "round_robin",
             g->trainers > 1
                 ? "  - {from: trainer, to: trainer, carries: gradients, route: all_reduce}\n"
                 : "");
    cr_assert_eq(exo_graph_parse(&spec, "test.yaml", text, &(exo_graph_opts){.name = "test"}, &err),
                 EXO_OK, "%s", err.text);
    cr_assert_eq(exo_graph_run(spec, &(exo_graph_run_opts){.space = "test", .folder = folder},
                               &result, &err),
                 EXO_OK, "%s", err.text);
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
}

/* Reads the column of a CSV file in `folder` to `out` (count), and expects so many lines. */
static void
read_column(const char *folder, const char *file, const char *column, size_t count, char (*out)[80])
{
    char path[512], *text = NULL, *rest = NULL;
    size_t size = 0, at = 0, lines = 0;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    cr_assert_eq(exo_file_read(path, 1 << 20, &text, &size, NULL), EXO_OK, "%s", path);
    char *line = strtok_r(text, "\n", &rest), *inner = NULL;
    for (char *c = strtok_r(line, ",", &inner); c && strcmp(c, column) != 0;
         c = strtok_r(NULL, ",", &inner))
        at++;
    while ((line = strtok_r(NULL, "\n", &rest))) {
        for (size_t i = 0; i < at; i++) {
            line = strchr(line, ',');
            cr_assert_not_null(line);
            line++;
        }
        cr_assert_lt(lines, count, "%s has more lines", path);
        snprintf(out[lines++], 80, "%.*s", (int)strcspn(line, ","), line);
    }
    cr_expect_eq(lines, count, "%s: %zu lines", path, lines);
    exo_free(text);
}

/* Checks that the trainers of a graph end with these weights, that their first ratios were 1, and
 * that they have learned from each draw once. */
static void
check_run(const struct graph *g, const char *folder, const char *sha256)
{
    static char values[UPDATES * BATCH][80];
    int times[UPDATES * BATCH] = {0};
    for (uint32_t i = 0; i < g->trainers; i++) {
        char file[64];
        snprintf(file, sizeof file, "versions_trainer_%u.csv", i);
        read_column(folder, file, "sha256", UPDATES + 1, values);
        cr_expect_str_eq(values[UPDATES], sha256, "%u makers, %u trainers", g->makers, g->trainers);
        read_column(folder, file, "ratio_off", UPDATES + 1, values);
        for (int v = 1; v <= UPDATES; v++)
            cr_expect_str_eq(values[v], "0");
        snprintf(file, sizeof file, "learned_trainer_%u.csv", i);
        read_column(folder, file, "item", UPDATES * BATCH / g->trainers, values);
        for (uint32_t k = 0; k < UPDATES * BATCH / g->trainers; k++) {
            int id = atoi(values[k]);
            cr_assert(id >= 0 && id < UPDATES * BATCH, "item %d", id);
            times[id]++;
        }
    }
    for (int i = 0; i < UPDATES * BATCH; i++)
        cr_expect_eq(times[i], 1, "item %d: %d times", i, times[i]);
}

Test(experience, graphs_have_the_bits_of_a_plain_loop, .timeout = 300)
{
    static const struct graph graphs[] = {
        {1, 1, "real"}, {2, 1, "real"}, {2, 2, "real"}, {3, 1, "virtual"}, {2, 2, "virtual"}};
    parrot_register();
    for (size_t t = 0; t < sizeof tasks / sizeof *tasks; t += one_of(2)) {
        char sha256[65];
        uint64_t seed = 7 + t;
        plain_loop(&tasks[t], seed, sha256);
        for (size_t g = t / 2 % one_of(2); g < sizeof graphs / sizeof *graphs; g += one_of(2)) {
            char folder[256];
            temp_folder(folder, sizeof folder);
            run_graph(&tasks[t], &graphs[g], seed, folder);
            check_run(&graphs[g], folder, sha256);
            temp_remove(folder);
        }
    }
}

Test(experience, a_top_k_of_the_vocabulary_takes_no_token_away)
{
    static const struct task few[] = {
        {MODEL, "algorithm: rloo", "answers: 3, generate: {max_new_tokens: 7, temperature: 0.7}"},
        {MODEL, "algorithm: rloo",
         "answers: 3, generate: {max_new_tokens: 7, temperature: 0.7, top_k: 1000}"}};
    char sha256[2][65];
    for (size_t i = 0; i < 2; i++)
        plain_loop(&few[i], 7, sha256[i]);
    cr_expect_str_eq(sha256[0], sha256[1]);
}

/* Makers are ahead by the staleness. Where one trainer ends before the other, the draws that would be
 * its next ones come to the other, which needs none of them either. */
Test(experience, draws_after_the_last_update_go_to_nobody)
{
    static const char *const orders[] = {"quick, slow", "slow, quick"};
    for (unsigned staleness = 1; staleness <= 2; staleness++)
        for (size_t i = 0; i < 2; i++) {
            char text[2048];
            exo_graph_spec *spec = NULL;
            exo_graph_result result = {0};
            exo_err err = {0};
            snprintf(
                text, sizeof text,
                "exogym: 1\nseed: 3\nclock: virtual\nhosts: {here: {}, quick: {}, slow: "
                "{speed: 0.1}}\nactors:\n"
                "  maker: {class: experience_maker, host: here, compute: {make: 1 ms}, config: "
                "{model: " MODEL ", prompts: " PROMPT_LIST ", answers: 2, epochs: 0, reward: "
                "{name: share, token: 3}, generate: {max_new_tokens: 4}}}\n"
                "  trainer: {class: ppo_trainer, count: 2, host: [%s], compute: {learn: 10 "
                "ms}, config: {model: " MODEL ", algorithm: grpo, batch: 4, updates: 4, "
                "staleness: %u}}\n"
                "edges:\n"
                "  - {from: maker, to: trainer, carries: experience, route: round_robin}\n"
                "  - {from: trainer, to: maker, carries: parameters, route: broadcast, buffer: "
                "{on_full: latest}}\n"
                "  - {from: trainer, to: trainer, carries: gradients, route: all_reduce}\n",
                orders[i], staleness);
            cr_assert_eq(
                exo_graph_parse(&spec, "test.yaml", text, &(exo_graph_opts){.name = "test"}, &err),
                EXO_OK, "%s", err.text);
            cr_expect_eq(exo_graph_run(spec, &(exo_graph_run_opts){.space = "test"}, &result, &err),
                         EXO_OK, "%s, staleness %u: %s", orders[i], staleness, err.text);
            exo_graph_result_release(&result);
            exo_graph_spec_free(&spec);
        }
}
