/* Trainers of different speed that a strategy keeps together, and makers that hear one or several of
 * them: each draw is learned from once, no token is older than `staleness` versions of the trainer
 * that learns from it, and a maker whose draws are all of one trainer has the weights of that one,
 * whatever else it hears. Read next: maker_weights.h, survival.c. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "graph/run.h"
#include "support/temp.h"

enum {
    TRAINERS = 2,
    BATCH = 4,
    UPDATES = 8,
    DRAWS = TRAINERS * BATCH * UPDATES
};

struct form {
    uint32_t makers;
    const char *experience, *parameters; /* routes; experience NULL: a replay_buffer */
    unsigned staleness;
    const char *hosts; /* of the trainers */
    const char *maker; /* options */
};

static void
write_graph(char *out, size_t size, const struct form *f)
{
    int at = snprintf(
        out, size,
        "exogym: 1\nseed: 42\nclock: virtual\nhosts: {site: {}, slow: {speed: 0.2}}\nactors:\n"
        "  maker: {class: experience_maker, count: %u, host: site, compute: {make: 10 ms, step: 2 "
        "ms}, config: {model: &m {name: gpt, layers: 1, heads: 2, width: 8, context: 8, "
        "vocabulary: "
        "7}, prompts: {tokens: [[1], [2, 3], [4]]}, reward: {name: share, token: 5}, epochs: 0, "
        "batch: 3, answers: 2, generate: {max_new_tokens: 3}%s}}\n%s"
        "  trainer: {class: ppo_trainer, count: 2, host: [%s], compute: {learn: 50 ms}, config: "
        "{model: *m, algorithm: grpo, optimizer: {name: adamw, lr: 1e-2}, batch: %d, updates: %d, "
        "staleness: %u, strategy: {name: diloco, H: 4}}}\n"
        "links: {default: {bandwidth: 20 Mbit/s, latency: 40 ms}}\nedges:\n",
        f->makers, f->maker,
        f->experience ? "" : "  buffer: {class: replay_buffer, host: site, config: {batch: 4}}\n",
        f->hosts, BATCH, UPDATES, f->staleness);
    cr_assert(at > 0 && (size_t)at < size);
    if (f->experience)
        at += snprintf(out + at, size - (size_t)at,
                       "  - {from: maker, to: trainer, carries: experience, route: %s}\n",
                       f->experience);
    else
        at += snprintf(out + at, size - (size_t)at,
                       "  - {from: maker, to: buffer, carries: experience}\n"
                       "  - {from: buffer, to: trainer, carries: experience}\n");
    snprintf(out + at, size - (size_t)at,
             "  - {from: trainer, to: maker, carries: parameters, route: %s, buffer: {on_full: "
             "latest}}\n"
             "  - {from: trainer, to: trainer, carries: parameters, route: all_reduce}\n",
             f->parameters);
}

/* Checks a line of the ledger of a trainer, and returns the age of its oldest token. */
static uint64_t
check_line(const char *line, uint64_t trainer, bool seen[DRAWS])
{
    char versions[64];
    uint64_t item = strtoull(line, NULL, 10), learned = 0, age = 0;
    cr_assert(item < DRAWS && item % TRAINERS == trainer && !seen[item], "%s", line);
    seen[item] = true;
    cr_assert_eq(sscanf(line,
                        "%*[^,],%*[^,],%*[^,],%*[^,],%*[^,],%*[^,],%*[^,],%63[^,],%*[^,],"
                        "%*[^,],%*[^,],%*[^,],%lu",
                        versions, &learned),
                 2, "%s", line);
    for (const char *run = versions; run; run = strchr(run, ' ')) {
        uint64_t version = strtoull(run + (*run == ' '), NULL, 10);
        uint64_t own = learned - 1 > version ? learned - 1 - version : 0;
        age = own > age ? own : age;
        run += *run == ' ';
    }
    return age;
}

/* Checks the ledgers of all trainers; *sha256: the weights of the first one. */
static void
check(const char *folder, const struct form *f, char sha256[65])
{
    bool seen[DRAWS] = {0};
    uint64_t oldest = 0;
    size_t size = 0, count = 0;
    char path[512], *text = NULL, *rest = NULL;
    for (uint64_t t = 0; t < TRAINERS; t++) {
        snprintf(path, sizeof path, "%s/learned_trainer_%lu.csv", folder, t);
        cr_assert_eq(exo_file_read(path, 1 << 20, &text, &size, NULL), EXO_OK);
        strtok_r(text, "\n", &rest);
        for (const char *line; (line = strtok_r(NULL, "\n", &rest)); count++) {
            uint64_t age = check_line(line, t, seen);
            oldest = age > oldest ? age : oldest;
        }
        exo_free(text);
    }
    cr_expect_eq(count, DRAWS, "%zu of %d draws", count, DRAWS);
    cr_expect_leq(oldest, f->staleness, "staleness %lu", oldest);
    cr_expect(f->staleness == 0 || oldest > 0, "makers were never behind");
    snprintf(path, sizeof path, "%s/final_trainer_0.json", folder);
    cr_assert_eq(exo_file_read(path, 1 << 16, &text, &size, NULL), EXO_OK);
    cr_assert_eq(sscanf(strstr(text, "\"sha256\": \"") + 11, "%64[0-9a-f]", sha256), 1);
    exo_free(text);
}

static void
run(const struct form *f, char sha256[65])
{
    char text[4096], folder[256];
    exo_graph_spec *spec = NULL;
    exo_graph_result result = {0};
    exo_err err = {0};
    write_graph(text, sizeof text, f);
    temp_folder(folder, sizeof folder);
    cr_assert_eq(exo_graph_parse(&spec, "test.yaml", text, &(exo_graph_opts){.name = "test"}, &err),
                 EXO_OK, "%s", err.text);
    const exo_graph_run_opts opts = {.space = "test", .folder = folder};
    cr_assert_eq(exo_graph_run(spec, &opts, &result, &err), EXO_OK, "%s: %s", text, err.text);
    check(folder, f, sha256);
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
    temp_remove(folder);
}

#define ALL "listed, targets: [trainer_0, trainer_1]"

/* Two makers: the draws of each are of one trainer. */
Test(trainers_apart, each_maker_follows_the_trainer_of_its_draws)
{
    static const char *const hosts[] = {"site, slow", "slow, site", "site, site"};
    for (unsigned staleness = 0; staleness <= 2; staleness += 2)
        for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
            char plain[65], sha256[65];
            run(&(struct form){2, "modulo", "modulo", staleness, hosts[i], ""}, plain);
            run(&(struct form){2, ALL, "broadcast", staleness, hosts[i], ""}, sha256);
            cr_expect(staleness > 0 || strcmp(plain, sha256) == 0, "listed, %s", hosts[i]);
            run(&(struct form){2, NULL, "broadcast", staleness, hosts[i], ""}, sha256);
            cr_expect(staleness > 0 || strcmp(plain, sha256) == 0, "buffer, %s", hosts[i]);
        }
}

/* One or three makers: each makes draws of both trainers, with the newest version of either. */
Test(trainers_apart, a_maker_of_several_trainers_keeps_the_quota_of_each)
{
    static const uint32_t makers[] = {1, 3};
    static const char *const options[] = {"", ", swap: step"};
    static const char *const hosts[] = {"site, slow", "slow, site", "site, site"};
    for (unsigned staleness = 0; staleness <= 2; staleness += 2)
        for (size_t i = 0; i < 2; i++)
            for (size_t k = 0; k < 2; k++)
                for (size_t h = 0; h < sizeof hosts / sizeof *hosts; h++) {
                    const char *route = (i + k) % 2 ? ALL : NULL;
                    char once[65], again[65];
                    const struct form f = {makers[i], route,    "broadcast",
                                           staleness, hosts[h], options[k]};
                    run(&f, once);
                    if (h == 0) {
                        run(&f, again);
                        cr_expect_str_eq(once, again);
                    }
                }
}
