/* Makers whose weights change inside a generation: the items tell which version drew each token and
 * computed its cache, no token is older than the bound allows, and with staleness 0 all bits are
 * those of batches. On the virtual clock with declared costs: how busy makers and trainers are, what
 * a second maker adds, and what partial rollouts and oversampling add where lengths have a long tail.
 * Times are exact.
 * Read next: experience/maker.c. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "base/meter.h"
#include "experience/source.h"
#include "graph/run.h"
#include "support/temp.h"

#define MODEL   "{name: gpt, layers: 1, heads: 2, width: 16, context: 72, vocabulary: 11}"
#define PROMPTS "{tokens: [[1], [2, 3], [4, 5, 6], [7], [8, 9, 10, 1]]}"

/* --- Graphs ----------------------------------------------------------------------------------- */

struct shape {
    const char *maker, *trainer;           /* further options */
    const char *maker_cost, *trainer_cost; /* `compute` */
    unsigned makers;
    const char
        *hosts; /* NULL, or `hosts` of the makers, as many as these, which are named h0, h1, ... */
};

/* What a run showed. */
struct shown {
    double seconds, maker_busy, trainer_busy, items;
    double gap; /* of the first maker */
    char sha256[65];
    char *learned; /* the file learned_trainer_0.csv */
};

static double
busy(const exo_graph_result *r, const char *name)
{
    double least = 1;
    for (size_t i = 0; i < r->num_parts; i++)
        if (strncmp(r->parts[i].actor, name, strlen(name)) == 0)
            least = fmin(least, (double)r->parts[i].compute / (double)r->time);
    return least;
}

static void
read_final(const char *folder, struct shown *out)
{
    char path[512], *text = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/final_trainer_0.json", folder);
    cr_assert_eq(exo_file_read(path, 1 << 20, &text, &size, NULL), EXO_OK);
    const char *sha = strstr(text, "\"sha256\": \"");
    cr_assert_not_null(sha);
    snprintf(out->sha256, sizeof out->sha256, "%.64s", sha + strlen("\"sha256\": \""));
    const char *items = strstr(text, "\"items\": ");
    out->items = items ? strtod(items + strlen("\"items\": "), NULL) : 0;
    exo_free(text);
    snprintf(path, sizeof path, "%s/learned_trainer_0.csv", folder);
    cr_assert_eq(exo_file_read(path, 1 << 22, &out->learned, &size, NULL), EXO_OK);
}

static struct shown
run(const struct shape *s)
{
    char text[4096], folder[256];
    const char *place = s->hosts ? "host: [h0, h1, h2, h3], " : "";
    const char *trainer_place = s->hosts ? "host: h0, " : "";
    exo_graph_spec *spec = NULL;
    exo_graph_result result = {0};
    struct shown out = {0};
    exo_err err = {0};
    temp_folder(folder, sizeof folder);
    snprintf(text, sizeof text,
             "exogym: 1\nseed: 5\nclock: virtual\n%sactors:\n"
             "  maker: {class: experience_maker, %scount: %u, compute: {%s}, config: {model: " MODEL
             ", prompts: " PROMPTS ", reward: {name: share, token: 5}, epochs: 0, %s}}\n"
             "  trainer: {class: ppo_trainer, %scompute: {%s}, config: {model: " MODEL
             ", algorithm: reinforce++, %s}}\n"
             "edges:\n"
             "  - {from: maker, to: trainer, carries: experience, buffer: {capacity: 64}}\n"
             "  - {from: trainer, to: maker, carries: parameters, route: broadcast, buffer: "
             "{on_full: latest}}\n",
             s->hosts ? s->hosts : "", place, s->makers, s->maker_cost, s->maker, trainer_place,
             s->trainer_cost, s->trainer);
    cr_assert_eq(exo_graph_parse(&spec, "test.yaml", text, &(exo_graph_opts){.name = "test"}, &err),
                 EXO_OK, "%s", err.text);
    cr_assert_eq(exo_graph_run(spec, &(exo_graph_run_opts){.space = "test", .folder = folder},
                               &result, &err),
                 EXO_OK, "%s", err.text);
    out.seconds = (double)result.time * 1e-9;
    out.maker_busy = busy(&result, "maker");
    out.trainer_busy = busy(&result, "trainer");
    exo_meter_sample gap;
    if (exo_meters_get(result.meters, "maker_0.gap", &gap))
        out.gap = gap.value;
    read_final(folder, &out);
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
    temp_remove(folder);
    return out;
}

/* --- Versions of tokens ----------------------------------------------------------------------- */

/* Runs of equal numbers, V:N V:N ... */
struct runs {
    long version[64], count[64];
    size_t length;
};

static struct runs
read_runs(const char *field)
{
    struct runs r = {0};
    char *end = (char *)(uintptr_t)field;
    while (*end && *end != ',' && r.length < 64) {
        r.version[r.length] = strtol(end, &end, 10);
        r.count[r.length++] = strtol(end + 1, &end, 10);
        end += *end == ' ';
    }
    return r;
}

static const char *
field(const char *line, int index)
{
    for (int i = 0; i < index; i++)
        line = strchr(line, ',') + 1;
    return line;
}

/* Checks the versions of an item with one answer; true: it has several. */
static bool
check_item(const char *line, const char *kv, long staleness)
{
    struct runs versions = read_runs(field(line, 7)), caches = read_runs(field(line, 8));
    long learned = strtol(field(line, 12), NULL, 10) - 1;
    cr_expect_geq(versions.version[0], learned - staleness, "%s: %s", kv, line);
    cr_expect_leq(versions.version[versions.length - 1], learned, "%s", line);
    for (size_t i = 1; i < versions.length; i++)
        cr_expect_gt(versions.version[i], versions.version[i - 1], "%s", line);
    if (strcmp(kv, "keep") == 0) { /* the version of the beginning */
        cr_expect_eq(caches.length, 1, "%s", line);
        cr_expect_eq(caches.version[0], versions.version[0], "%s", line);
    } else {
        cr_expect_eq(caches.length, versions.length, "%s", line);
        cr_expect_eq(memcmp(caches.version, versions.version, sizeof caches.version), 0, "%s",
                     line);
    }
    return versions.length > 1;
}

Test(rollouts, items_tell_the_version_of_each_token_and_of_its_cache, .timeout = 120)
{
    static const char *const kinds[] = {"recompute", "keep", "reset"};
    for (size_t k = 0; k < 3; k++) {
        char maker[256];
        snprintf(maker, sizeof maker,
                 "batch: 6, swap: step, kv: %s, generate: {max_new_tokens: 40, stop: [3]}",
                 kinds[k]);
        struct shown s = run(&(struct shape){
            .maker = maker,
            .trainer = "batch: 4, updates: 30, staleness: 3, optimizer: {name: adamw, lr: 1e-3}",
            .maker_cost = "step: 10 ms",
            .trainer_cost = "learn: 40 ms",
            .makers = 1});
        int mixed = 0, lines = 0;
        char *rest = NULL;
        for (char *line = strtok_r(strchr(s.learned, '\n') + 1, "\n", &rest); line;
             line = strtok_r(NULL, "\n", &rest), lines++)
            mixed += check_item(line, kinds[k], 3);
        cr_expect_eq(lines, 120);
        if (strcmp(kinds[k], "reset") == 0)
            cr_expect_eq(mixed, 0);
        else
            cr_expect_gt(mixed, 20, "%s: only %d items have several versions", kinds[k], mixed);
        exo_free(s.learned);
    }
}

/* 64 answers at once, of 11 tokens in the mean: a step takes at most 256 tokens, so their caches are
 * computed anew in several steps. Kept caches need one. Between batches no answer is under way. */
Test(rollouts, the_gap_of_an_exchange_has_the_caches_that_are_computed_anew, .timeout = 120)
{
    static const struct {
        const char *maker;
        double least, most;
    } cases[] = {
        {"swap: step, kv: recompute", 0.0199, 0.06},
        {"swap: step, kv: keep", 0.0099, 0.0101},
        {"swap: batch", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char maker[256];
        snprintf(maker, sizeof maker,
                 "batch: 16, answers: 4, %s, generate: {max_new_tokens: 60, stop: [3]}",
                 cases[i].maker);
        struct shown s = run(&(struct shape){.maker = maker,
                                             .trainer = "batch: 8, updates: 6, staleness: 3",
                                             .maker_cost = i < 2 ? "step: 10 ms" : "make: 400 ms",
                                             .trainer_cost = "learn: 40 ms",
                                             .makers = 1});
        cr_expect(s.gap >= cases[i].least && s.gap <= cases[i].most, "%s: %g s", cases[i].maker,
                  s.gap);
        exo_free(s.learned);
    }
}

Test(rollouts, without_staleness_all_ways_have_the_same_bits, .timeout = 120)
{
    static const char *const ways[] = {"swap: batch", "swap: step", "swap: step, kv: keep",
                                       "swap: step, kv: reset, weights: fp32"};
    char first[65] = "";
    for (size_t w = 0; w < 4; w++)
        for (unsigned makers = 1; makers <= 2; makers++) {
            char maker[256];
            snprintf(maker, sizeof maker, "batch: 3, %s, generate: {max_new_tokens: 20, stop: [3]}",
                     ways[w]);
            struct shown s = run(&(struct shape){
                .maker = maker,
                .trainer = "batch: 4, updates: 5, optimizer: {name: adamw, lr: 1e-2}",
                .maker_cost = "step: 1 ms, make: 10 ms",
                .trainer_cost = "learn: 1 ms",
                .makers = makers});
            if (!first[0])
                strcpy(first, s.sha256);
            cr_expect_str_eq(s.sha256, first, "%s, %u makers", ways[w], makers);
            exo_free(s.learned);
        }
}

/* --- Throughput ------------------------------------------------------------------------------- */

Test(rollouts, makers_and_trainers_of_one_speed_are_busy, .timeout = 120)
{
    struct shown s = run(&(struct shape){.maker = "batch: 8, generate: {max_new_tokens: 4}",
                                         .trainer = "batch: 8, updates: 60, staleness: 2",
                                         .maker_cost = "make: 100 ms",
                                         .trainer_cost = "learn: 100 ms",
                                         .makers = 1});
    cr_expect_geq(s.maker_busy, 0.95, "the maker: %.3f", s.maker_busy);
    cr_expect_geq(s.trainer_busy, 0.95, "the trainer: %.3f", s.trainer_busy);
    exo_free(s.learned);
    s = run(&(struct shape){.maker = "batch: 8, swap: step, generate: {max_new_tokens: 10}",
                            .trainer = "batch: 8, updates: 60, staleness: 2",
                            .maker_cost = "step: 10 ms",
                            .trainer_cost = "learn: 100 ms",
                            .makers = 1});
    cr_expect_geq(s.maker_busy, 0.95, "the maker, step by step: %.3f", s.maker_busy);
    cr_expect_geq(s.trainer_busy, 0.95, "the trainer, step by step: %.3f", s.trainer_busy);
    exo_free(s.learned);
}

/* Items a second until the last update. */
static double
rate_of(const struct shown *s)
{
    const char *last = s->learned + strlen(s->learned) - 1;
    while (last > s->learned && last[-1] != '\n')
        last--;
    return s->items / strtod(field(last, 11), NULL);
}

/* Items a second of `makers` makers with batches of `batch`, which take 100 ms, and a trainer with
 * batches of 8, which takes `learns` ms for each. */
static double
rate_with(unsigned makers, unsigned batch, unsigned staleness, unsigned learns)
{
    char maker[64], trainer[64], cost[32];
    snprintf(maker, sizeof maker, "batch: %u, generate: {max_new_tokens: 2}", batch);
    snprintf(trainer, sizeof trainer, "batch: 8, updates: 24, staleness: %u", staleness);
    snprintf(cost, sizeof cost, "learn: %u ms", learns);
    struct shown s = run(&(struct shape){.maker = maker,
                                         .trainer = trainer,
                                         .maker_cost = "make: 100 ms",
                                         .trainer_cost = cost,
                                         .makers = makers});
    double rate = rate_of(&s);
    exo_free(s.learned);
    return rate;
}

/* A draw that is begun is learned from by (staleness + 1) updates at the latest, so makers and trainer hold
 * at most K = (staleness + 1) x 8 draws together. All makers make F draws at once. The next F are allowed
 * when 2 F - K of these were learned from, so they begin every C + max(0, 2 F - K) / 8 x L (docs/ppo.md):
 * none of them begins a part of a batch while the trainer is about to allow the rest. */
Test(rollouts, makers_overlap_as_far_as_staleness_allows, .timeout = 120)
{
    static const struct {
        unsigned makers, batch, staleness, learns;
    } cases[] = {{2, 8, 1, 5}, {2, 8, 2, 5},  {3, 8, 5, 5},
                 {4, 8, 7, 5}, {2, 16, 7, 5}, {4, 8, 7, 20}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double learns = cases[i].learns, under_way = 8 * (cases[i].staleness + 1.0);
        double draws = fmin(cases[i].makers * cases[i].batch, under_way);
        double period = 100 + fmax(0, 2 * draws - under_way) / 8 * learns;
        double rate =
            rate_with(cases[i].makers, cases[i].batch, cases[i].staleness, cases[i].learns);
        /* at the end the trainer learns alone from what the makers have made at once */
        double most = 192e3 / (ceil(192 / draws) * period + draws / 8 * learns);
        cr_expect_geq(rate, 0.97 * most, "case %zu: %.1f items/s of %.1f", i, rate, most);
    }
}

Test(rollouts, a_second_maker_doubles_the_items, .timeout = 120)
{
    for (unsigned batch = 4; batch <= 8; batch += 4) {
        double one = rate_with(1, batch, 3, 5), two = rate_with(2, batch, 3, 5);
        cr_expect_geq(two, 1.9 * one, "batches of %u: %.2f and %.2f items/s", batch, one, two);
    }
}

/* Where larger batches make no more items, as the trainer takes long, makers do not wait for these. */
Test(rollouts, makers_do_not_wait_for_a_slow_trainer, .timeout = 120)
{
    double rate = rate_with(1, 16, 1, 100);
    cr_expect_geq(rate, 192 / 2.6, "%.1f items/s", rate); /* it always learns */
    rate = rate_with(3, 8, 2, 50);
    cr_expect_geq(rate, 192 / 1.9, "%.1f items/s", rate);
}

/* A stop token of 11 makes lengths geometric: 11 in the mean, 64 at most. */
static const struct shape long_tail = {
    .maker = "batch: 16, swap: step, generate: {max_new_tokens: 64, stop: [3]}",
    .trainer = "batch: 16, updates: 20, optimizer: {name: adamw, lr: 1e-6}",
    .maker_cost = "step: 10 ms",
    .trainer_cost = "learn: 20 ms",
    .makers = 1};

Test(rollouts, partial_rollouts_do_not_wait_for_the_longest_answer, .timeout = 120)
{
    static const char *const kinds[] = {"recompute", "keep"};
    struct shape s = long_tail;
    struct shown waits = run(&s);
    double synchronous = waits.items / waits.seconds;
    exo_free(waits.learned);
    for (size_t k = 0; k < 2; k++) {
        char maker[256];
        snprintf(maker, sizeof maker,
                 "batch: 16, swap: step, kv: %s, generate: {max_new_tokens: 64, stop: [3]}",
                 kinds[k]);
        s.maker = maker;
        s.trainer = "batch: 16, updates: 20, staleness: 4, optimizer: {name: adamw, lr: 1e-6}";
        struct shown partial = run(&s);
        double rate = partial.items / partial.seconds;
        cr_expect_geq(rate, 1.8 * synchronous, "%s: %.2f items/s, synchronous %.2f", kinds[k], rate,
                      synchronous);
        exo_free(partial.learned);
    }
}

/* --- Oversampling ----------------------------------------------------------------------------- */

/* What the ledger says of a run whose items have one answer each, with all bounds checked. */
struct ledger {
    size_t items, overtaken; /* draws that a later one was learned before */
    double age;              /* of an item's oldest token, the mean in versions */
};

static struct ledger
read_ledger(char *learned, const char *kv, long staleness)
{
    static bool seen[1000];
    struct ledger l = {0};
    long highest = -1;
    char *rest = NULL;
    memset(seen, 0, sizeof seen);
    for (char *line = strtok_r(strchr(learned, '\n') + 1, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest), l.items++) {
        long item = strtol(line, NULL, 10), learns = strtol(field(line, 12), NULL, 10) - 1;
        check_item(line, kv, staleness);
        cr_assert(item >= 0 && item < 1000);
        cr_expect_not(seen[item], "item %ld was learned from twice", item);
        seen[item] = true;
        l.overtaken += item < highest;
        highest = item > highest ? item : highest;
        l.age += (double)(learns - read_runs(field(line, 7)).version[0]);
    }
    cr_expect_eq(highest + 1, (long)l.items, "of %ld draws %zu were learned from", highest + 1,
                 l.items);
    l.age /= (double)l.items;
    return l;
}

Test(rollouts, oversampling_learns_from_the_first_draws_and_from_each_once, .timeout = 120)
{
    struct shape s = long_tail;
    struct shown waits = run(&s);
    s.trainer = "batch: 16, updates: 20, staleness: 2, optimizer: {name: adamw, lr: 1e-6}";
    struct shown partial = run(&s);
    s.trainer = "batch: 16, updates: 20, staleness: 2, oversample: 1.5, optimizer: {name: adamw, "
                "lr: 1e-6}";
    struct shown over = run(&s), again = run(&s);
    cr_expect_str_eq(over.sha256, again.sha256);
    cr_expect_str_eq(over.learned, again.learned);
    cr_expect_geq(over.items / over.seconds, 1.8 * waits.items / waits.seconds,
                  "%.2f items/s, synchronous %.2f", over.items / over.seconds,
                  waits.items / waits.seconds);
    struct ledger in_order = read_ledger(partial.learned, "recompute", 2),
                  first = read_ledger(over.learned, "recompute", 2);
    cr_expect_eq(in_order.overtaken, 0);
    cr_expect_eq(first.items, 320);
    cr_expect_gt(first.overtaken, 20, "only %zu draws were overtaken", first.overtaken);
    cr_expect_lt(2 * first.age, in_order.age, "%.2f versions, in order %.2f", first.age,
                 in_order.age);
    exo_free(waits.learned);
    exo_free(partial.learned);
    exo_free(over.learned);
    exo_free(again.learned);
}

Test(rollouts, oversampling_keeps_its_bounds_with_any_makers, .timeout = 120)
{
    static const struct {
        const char *kv, *trainer;
        unsigned makers;
        long staleness;
    } cases[] = {
        {"keep", "batch: 4, updates: 24, staleness: 1, oversample: 1.25", 2, 1},
        {"recompute", "batch: 2, update_steps: 2, updates: 20, staleness: 3, oversample: 3.9", 3,
         3},
        {"reset", "batch: 5, updates: 20, staleness: 2, oversample: 1", 2, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char maker[256];
        snprintf(maker, sizeof maker,
                 "batch: 3, swap: step, kv: %s, generate: {max_new_tokens: 40, stop: [3]}",
                 cases[i].kv);
        struct shown s = run(&(struct shape){.maker = maker,
                                             .trainer = cases[i].trainer,
                                             .maker_cost = "step: 10 ms",
                                             .trainer_cost = "learn: 5 ms",
                                             .makers = cases[i].makers});
        read_ledger(s.learned, cases[i].kv, cases[i].staleness);
        exo_free(s.learned);
    }
    /* as many draws as staleness allows leave no choice */
    struct shape s = long_tail;
    s.trainer = "batch: 16, updates: 8, staleness: 1";
    struct shown in_order = run(&s);
    s.trainer = "batch: 16, updates: 8, staleness: 1, oversample: 2";
    struct shown all = run(&s);
    cr_expect_str_eq(all.sha256, in_order.sha256);
    cr_expect_str_eq(all.learned, in_order.learned);
    exo_free(in_order.learned);
    exo_free(all.learned);
}

/* --- Balance ---------------------------------------------------------------------------------- */

/* Four makers of four places; `options`: of the trainer, which also has `balance`, or not. */
static struct shown
run_four(const char *hosts, const char *swap, const char *options, bool balance)
{
    char maker[256], trainer[256];
    snprintf(maker, sizeof maker, "batch: 4, swap: %s, generate: {max_new_tokens: 64, stop: [3]}",
             swap);
    snprintf(trainer, sizeof trainer, "optimizer: {name: adamw, lr: 1e-6}, balance: %s, %s",
             balance ? "true" : "false", options);
    return run(&(struct shape){.maker = maker,
                               .trainer = trainer,
                               .maker_cost = "step: 10 ms, make: 100 ms",
                               .trainer_cost = "learn: 20 ms",
                               .makers = 4,
                               .hosts = hosts});
}

Test(rollouts, without_staleness_draws_that_are_dealt_give_the_same_bits, .timeout = 120)
{
    for (int k = 0; k < 2; k++) {
        const char *swap = k ? "step" : "batch";
        struct shown beforehand = run_four(NULL, swap, "batch: 64, updates: 4", false),
                     dealt = run_four(NULL, swap, "batch: 64, updates: 4", true);
        cr_expect_str_eq(dealt.sha256, beforehand.sha256, "swap: %s", swap);
        cr_expect_geq(rate_of(&dealt), rate_of(&beforehand), "swap: %s: %.1f and %.1f items/s",
                      swap, rate_of(&dealt), rate_of(&beforehand));
        cr_expect_eq(read_ledger(dealt.learned, "recompute", 0).items, 256);
        exo_free(beforehand.learned);
        exo_free(dealt.learned);
    }
}

Test(rollouts, makers_that_get_on_get_more_draws, .timeout = 120)
{
    static const char slow[] = "hosts: {h0: {}, h1: {}, h2: {}, h3: {speed: 0.5}}\n";
    static const char options[] = "batch: 16, updates: 20, staleness: 4";
    struct shown beforehand = run_four(NULL, "step", options, false),
                 dealt = run_four(NULL, "step", options, true),
                 again = run_four(NULL, "step", options, true);
    cr_expect_str_eq(dealt.sha256, again.sha256);
    cr_expect_str_eq(dealt.learned, again.learned);
    cr_expect_gt(rate_of(&dealt), 1.03 * rate_of(&beforehand), "%.1f and %.1f items/s",
                 rate_of(&dealt), rate_of(&beforehand));
    exo_free(beforehand.learned);
    beforehand = run_four(slow, "step", options, false);
    exo_free(again.learned);
    again = run_four(slow, "step", options, true);
    cr_expect_gt(rate_of(&again), 1.2 * rate_of(&beforehand), "%.1f and %.1f items/s",
                 rate_of(&again), rate_of(&beforehand));
    cr_expect_eq(read_ledger(dealt.learned, "recompute", 4).items, 320);
    cr_expect_eq(read_ledger(again.learned, "recompute", 4).items, 320);
    exo_free(beforehand.learned);
    exo_free(dealt.learned);
    exo_free(again.learned);
}

/* --- Probabilities ---------------------------------------------------------------------------- */

/* Makes one draw, whose weights change after `before` tokens. */
static exo_item *
make_mixed(exo_experience_source *s, exo_params *second, int before, exo_kv kv)
{
    exo_item *item = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_experience_source_begin(s, 2, &err), EXO_OK, "%s", err.text);
    for (int i = 0; exo_experience_source_unfinished(s) > 0; i++) {
        if (i == before) {
            exo_generator *g = exo_experience_source_generator(s);
            cr_assert_eq(exo_generator_set_weights(g, second, &err), EXO_OK, "%s", err.text);
            cr_assert_eq(exo_experience_source_renew(s, 7, kv, &err), EXO_OK, "%s", err.text);
        }
        cr_assert_eq(exo_experience_source_step(s, &err), EXO_OK, "%s", err.text);
    }
    cr_assert_eq(exo_experience_source_take(s, 0, &item, &err), EXO_OK, "%s", err.text);
    cr_assert_not_null(item);
    return item;
}

/* The largest difference of the item's log-probabilities from `from` on to those of the second
 * weights, which compute the whole sequence anew. */
static double
difference(exo_experience_source *s, const exo_experience *e, size_t from)
{
    enum {
        VOCABULARY = 11
    };
    static float logits[64 * VOCABULARY];
    int32_t tokens[64];
    exo_err err = {0};
    double largest = 0;
    size_t count = e->prompt_length + e->tokens_length - 1;
    memcpy(tokens, e->prompt_tokens, e->prompt_length * sizeof *tokens);
    memcpy(tokens + e->prompt_length, e->tokens, e->tokens_length * sizeof *tokens);
    cr_assert_eq(
        exo_generator_logits(exo_experience_source_generator(s), tokens, count, logits, &err),
        EXO_OK, "%s", err.text);
    for (size_t i = from; i < e->tokens_length; i++) {
        const float *row = logits + (e->prompt_length + i - 1) * VOCABULARY;
        double sum = 0;
        for (int v = 0; v < VOCABULARY; v++)
            sum += exp((double)row[v]);
        largest = fmax(largest,
                       fabs((double)row[e->tokens[i]] - log(sum) - (double)e->plain_log_probs[i]));
    }
    return largest;
}

Test(rollouts, only_a_recomputed_cache_has_the_probabilities_of_the_new_weights)
{
    static const char text[] = "{model: " MODEL ", prompts: " PROMPTS
                               ", reward: {name: share, token: 5}, generate: {max_new_tokens: 24}}";
    for (int kv = EXO_KV_RECOMPUTE; kv <= EXO_KV_RESET; kv++) {
        exo_config_doc *doc = NULL;
        exo_experience_source *s = NULL;
        exo_params *second = NULL;
        exo_experience e;
        exo_err err = {0};
        cr_assert_eq(exo_config_parse(&doc, "test", text, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_experience_source_read(&s, exo_config_root(doc), &err), EXO_OK, "%s",
                     err.text);
        cr_assert_eq(exo_experience_source_start(s, 3, 0, NULL, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_model_values(exo_experience_source_model(s), 4, &second, &err), EXO_OK);
        for (size_t i = 0; i < exo_params_numel(second); i++)
            exo_params_values(second)[i] *= 4;
        exo_item *item = make_mixed(s, second, 10, (exo_kv)kv);
        cr_assert_eq(exo_experience_view(&e, item, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(e.tokens_length, 24);
        cr_expect_eq(e.versions[0], kv == EXO_KV_RESET ? 7 : 0);
        cr_expect_eq(e.versions[23], 7);
        cr_expect_eq(e.cache_versions[23], kv == EXO_KV_KEEP ? 0 : 7);
        cr_expect_eq(item->version, kv == EXO_KV_RESET ? 7 : 0);
        double off = difference(s, &e, kv == EXO_KV_RESET ? 0 : 10);
        if (kv == EXO_KV_KEEP)
            cr_expect_gt(off, 1e-3, "kept: %g", off);
        else
            cr_expect_lt(off, 1e-5, "%d: %g", kv, off);
        exo_item_drop(&item);
        exo_params_free(&second);
        exo_experience_source_free(&s);
        exo_config_free(&doc);
    }
}
