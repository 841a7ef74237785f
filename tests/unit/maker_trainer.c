/* The graph classes rollout_maker and policy_trainer, in graphs on the virtual clock with
 * declared costs: so every run is the same. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "actors/rollout.h"
#include "base/file.h"
#include "base/meter.h"
#include "graph/run.h"
#include "support/sanitized.h"
#include "support/temp.h"

/* --- Graphs ----------------------------------------------------------------------------------- */

struct graph {
    const char *maker, *trainer; /* configs, "{...}"; NULL: defaults */
    const char *maker_class;     /* NULL: rollout_maker */
    const char *play;            /* what a rollout costs; NULL: 8 ms */
    uint32_t makers, trainers;   /* 0: 1 */
    bool apart;                  /* trainers do not add up their gradients */
};

struct outcome {
    exo_status status;
    exo_err err;
    exo_graph_result result;
    char folder[256];
};

static void
run_graph(const struct graph *g, struct outcome *out)
{
    char text[2048];
    exo_graph_spec *spec = NULL;
    uint32_t trainers = g->trainers ? g->trainers : 1;
    snprintf(text, sizeof text,
             "exogym: 1\n"
             "seed: 7\n"
             "clock: virtual\n"
             "actors:\n"
             "  maker: {class: %s, count: %u, config: %s, compute: {play: %s}}\n"
             "  trainer: {class: policy_trainer, count: %u, config: %s, compute: {learn: 2 ms, "
             "apply: 20 us}}\n"
             "edges:\n"
             "  - {from: maker, to: trainer, carries: experience, route: round_robin, buffer: "
             "{capacity: 4}}\n"
             "  - {from: trainer, to: maker, carries: parameters, route: broadcast, buffer: "
             "{on_full: latest}}\n"
             "%s",
             g->maker_class ? g->maker_class : "rollout_maker", g->makers ? g->makers : 1,
             g->maker ? g->maker : "{}", g->play ? g->play : "8 ms", trainers,
             g->trainer ? g->trainer : "{}",
             trainers > 1 && !g->apart
                 ? "  - {from: trainer, to: trainer, carries: gradients, route: all_reduce}\n"
                 : "");
    *out = (struct outcome){0};
    temp_folder(out->folder, sizeof out->folder);
    out->status =
        exo_graph_parse(&spec, "test.yaml", text, &(exo_graph_opts){.name = "test"}, &out->err);
    if (out->status == EXO_OK)
        out->status =
            exo_graph_run(spec, &(exo_graph_run_opts){.space = "test", .folder = out->folder},
                          &out->result, &out->err);
    exo_graph_spec_free(&spec);
}

static void
outcome_release(struct outcome *out)
{
    exo_graph_result_release(&out->result);
    temp_remove(out->folder);
}

static double
figure(const struct outcome *out, const char *actor, const char *name)
{
    char path[128];
    exo_meter_sample s;
    snprintf(path, sizeof path, "%s.%s", actor, name);
    if (!exo_meters_get(out->result.meters, path, &s))
        return (double)NAN;
    return s.meter_class->kind == EXO_COUNTER ? (double)s.count : s.value;
}

/* The text of a key in the file of a trainer's result, at most 64 characters. */
static void
read_key(const struct outcome *out, const char *actor, const char *key, char value[65])
{
    char path[512], name[64], *text = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/final_%s.json", out->folder, actor);
    cr_assert_eq(exo_file_read(path, 4096, &text, &size, NULL), EXO_OK, "%s", path);
    snprintf(name, sizeof name, "\"%s\": ", key);
    const char *at = strstr(text, name);
    cr_assert_not_null(at, "%s: %s", key, text);
    at += strlen(name);
    at += *at == '"';
    snprintf(value, 65, "%.*s", (int)strcspn(at, "\",}"), at);
    exo_free(text);
}

/* The SHA-256 in the file of a trainer's result. */
static void
read_hash(const struct outcome *out, const char *actor, char hash[65])
{
    read_key(out, actor, "sha256", hash);
}

/* --- What must hold --------------------------------------------------------------------------- */

Test(maker_trainer, trainers_that_add_up_gradients_are_one_and_a_run_is_the_same_again,
     .timeout = 120)
{
    enum {
        UPDATES = SANITIZED ? 2 : 3
    };
    char first[65] = "", hash[65];
    for (int round = 0; round < 2; round++) {
        struct outcome out;
        run_graph(&(struct graph){.makers = 2,
                                  .trainers = 2,
                                  .trainer = SANITIZED ? "{updates: 2}" : "{updates: 3}"},
                  &out);
        cr_assert_eq(out.status, EXO_OK, "%s", out.err.text);
        for (int t = 0; t < 2; t++) {
            const char *name = t ? "trainer_1" : "trainer_0";
            read_hash(&out, name, hash);
            if (!*first)
                memcpy(first, hash, sizeof first);
            cr_expect_str_eq(hash, first);
            cr_expect_eq(figure(&out, name, "updates"), UPDATES);
            cr_expect_eq(figure(&out, name, "items"), 4 * UPDATES);
            cr_expect_gt(figure(&out, name, "return_mean"), 5);
        }
        cr_expect_geq(figure(&out, "maker_1", "version"), 1);
        outcome_release(&out);
    }
}

/* A maker plays for each version that comes, also if several trainers send it at the same time, and
 * each gets what it counts on: as many items as it has makers. */
Test(maker_trainer, synchronous_makers_play_for_each_trainer, .timeout = 120)
{
    struct outcome out;
    run_graph(&(struct graph){.trainers = 3,
                              .maker = "{synchronous: true, environments: 1, steps: 16}",
                              .trainer = "{batch: 1, minibatches: 2, updates: 3}"},
              &out);
    cr_assert_eq(out.status, EXO_OK, "%s", out.err.text);
    cr_expect_eq(figure(&out, "maker_0", "items"), 9);
    cr_expect_eq(figure(&out, "trainer_2", "staleness_mean"), 0);
    outcome_release(&out);
}

Test(maker_trainer, trainers_apart_learn_apart, .timeout = 120)
{
    char first[65], second[65];
    struct outcome out;
    run_graph(&(struct graph){.makers = 2, .trainers = 2, .apart = true, .trainer = "{updates: 2}"},
              &out);
    cr_assert_eq(out.status, EXO_OK, "%s", out.err.text);
    read_hash(&out, "trainer_0", first);
    read_hash(&out, "trainer_1", second);
    cr_expect_str_neq(first, second);
    outcome_release(&out);
}

Test(maker_trainer, ends_with_the_makers_items, .timeout = 120)
{
    struct outcome out;
    run_graph(
        &(struct graph){.maker =
                            "{total: 10, environments: 2, steps: 64, wait_for_parameters: true}"},
        &out);
    cr_assert_eq(out.status, EXO_OK, "%s", out.err.text);
    cr_expect_eq(figure(&out, "maker_0", "items"), 10);
    cr_expect_eq(figure(&out, "trainer_0", "updates"), 2, "two whole batches of four");
    outcome_release(&out);

    /* Where one of two that learn as one has no more, both end. */
    run_graph(&(struct graph){.makers = 1, .trainers = 2, .maker = "{total: 15, steps: 32}"}, &out);
    cr_assert_eq(out.status, EXO_OK, "%s", out.err.text);
    cr_expect_eq(figure(&out, "trainer_0", "updates"), 1);
    cr_expect_eq(figure(&out, "trainer_1", "updates"), 1);
    outcome_release(&out);
}

Test(maker_trainer, ends_at_the_target, .timeout = 120)
{
    struct outcome out;
    run_graph(&(struct graph){.trainers = 2, .makers = 2, .trainer = "{target_return: 20}"}, &out);
    cr_assert_eq(out.status, EXO_OK, "%s", out.err.text);
    cr_expect_geq(figure(&out, "trainer_0", "return_mean"), 20);
    cr_expect_lt(figure(&out, "trainer_0", "updates"), 20);
    cr_expect_eq(figure(&out, "trainer_0", "return_mean"),
                 figure(&out, "trainer_1", "return_mean"));
    outcome_release(&out);
}

Test(maker_trainer, too_stale_items_are_dropped_and_counted, .timeout = 120)
{
    /* A maker that is far faster than the trainer fills the buffer: without a bound, what is learnt
     * from is up to two versions old. */
    enum {
        UPDATES = SANITIZED ? 4 : 6
    };
    const char *bounded =
        SANITIZED ? "{updates: 4, max_staleness: 1}" : "{updates: 6, max_staleness: 1}";
    struct outcome out;
    run_graph(&(struct graph){.trainer = "{updates: 6}"}, &out);
    cr_assert_eq(out.status, EXO_OK, "%s", out.err.text);
    cr_expect_gt(figure(&out, "trainer_0", "staleness_mean"), 1);
    cr_expect_eq(figure(&out, "trainer_0", "dropped"), 0);
    outcome_release(&out);

    run_graph(&(struct graph){.trainer = bounded}, &out);
    cr_assert_eq(out.status, EXO_OK, "%s", out.err.text);
    cr_expect_leq(figure(&out, "trainer_0", "staleness_mean"), 1);
    cr_expect_gt(figure(&out, "trainer_0", "dropped"), 0);
    cr_expect_eq(figure(&out, "trainer_0", "items"), UPDATES * 4, "others took their places");
    outcome_release(&out);

    /* Of several that learn as one each receives equally many: nobody waits for items that cannot
     * come. */
    run_graph(&(struct graph){.makers = 3, .trainers = 2, .trainer = bounded}, &out);
    cr_assert_eq(out.status, EXO_OK, "%s", out.err.text);
    for (int t = 0; t < 2; t++) {
        const char *name = t ? "trainer_1" : "trainer_0";
        cr_expect_eq(figure(&out, name, "items") + figure(&out, name, "dropped"), UPDATES * 4);
        cr_expect_gt(figure(&out, name, "dropped"), 0);
    }
    outcome_release(&out);
}

Test(maker_trainer, a_slow_maker_plays_with_the_newest_parameters, .timeout = 120)
{
    struct outcome out;
    run_graph(&(struct graph){.play = "10 s", .trainer = "{updates: 4, batch: 1}"}, &out);
    cr_assert_eq(out.status, EXO_OK, "%s", out.err.text);
    /* It plays one while the trainer learns from the last: each but the first is one version
     * old. */
    cr_expect_eq(figure(&out, "trainer_0", "staleness_mean"), 0.75);
    cr_expect_eq(figure(&out, "maker_0", "version"), 2, "of the fourth item");
    outcome_release(&out);
}

/* --- Evaluations ------------------------------------------------------------------------------ */

#define TURNS  "{synchronous: true, environments: 2, steps: 64}"
#define LEARNS "batch: 1, updates: 5, minibatches: 4, evaluate: 5"

Test(maker_trainer, evaluations_find_the_best_policy_and_do_not_change_what_is_learned,
     .timeout = 120)
{
    char without[65], with[65], best[65], value[65], mean[65], config[512];
    struct outcome out;
    run_graph(&(struct graph){.maker = TURNS, .trainer = "{" LEARNS "}"}, &out);
    cr_assert_eq(out.status, EXO_OK, "%s", out.err.text);
    read_hash(&out, "trainer_0", without);
    outcome_release(&out);

    run_graph(&(struct graph){.maker = TURNS,
                              .trainer = "{" LEARNS ", evaluate_every: 2, reward_threshold: 5}"},
              &out);
    cr_assert_eq(out.status, EXO_OK, "%s", out.err.text);
    read_hash(&out, "trainer_0", with);
    cr_expect_str_eq(with, without);
    read_key(&out, "trainer_0", "threshold_update", value);
    cr_expect_str_eq(value, "2");
    read_key(&out, "trainer_0", "threshold_samples", value);
    cr_expect_str_eq(value, "256");
    cr_expect_eq(figure(&out, "trainer_0", "threshold_samples"), 256);
    read_key(&out, "trainer_0", "best_update", value);
    cr_expect(!strcmp(value, "2") || !strcmp(value, "4") || !strcmp(value, "5"), "%s", value);
    cr_expect_eq(figure(&out, "trainer_0", "best_update"), atof(value));
    cr_expect_geq(figure(&out, "trainer_0", "best_selection_mean"),
                  figure(&out, "trainer_0", "selection_mean"));
    read_key(&out, "trainer_0", "best_sha256", best);
    read_key(&out, "trainer_0", "best_evaluation_mean", mean);

    /* A trainer that begins with the file of the best policy, and makes no update, evaluates it. */
    struct outcome again;
    snprintf(config, sizeof config,
             "{updates: 0, evaluate: 5, policy: '%s/best_trainer_0.safetensors'}", out.folder);
    run_graph(&(struct graph){.maker = TURNS, .trainer = config}, &again);
    cr_assert_eq(again.status, EXO_OK, "%s", again.err.text);
    read_hash(&again, "trainer_0", value);
    cr_expect_str_eq(value, best);
    read_key(&again, "trainer_0", "evaluation_mean", value);
    cr_expect_str_eq(value, mean);
    outcome_release(&again);
    outcome_release(&out);
}

Test(maker_trainer, a_threshold_that_was_not_reached_is_null, .timeout = 120)
{
    char value[65];
    struct outcome out;
    run_graph(&(struct graph){.maker = TURNS,
                              .trainer = "{batch: 1, updates: 1, minibatches: 4, evaluate: 2, "
                                         "evaluate_every: 9, reward_threshold: 501}"},
              &out);
    cr_assert_eq(out.status, EXO_OK, "%s", out.err.text);
    read_key(&out, "trainer_0", "threshold_samples", value);
    cr_expect_str_eq(value, "null");
    cr_expect(isnan(figure(&out, "trainer_0", "threshold_samples")));
    read_key(&out, "trainer_0", "best_update", value);
    cr_expect_str_eq(value, "1", "the last policy is looked at in any case");
    outcome_release(&out);
}

/* --- Mistakes --------------------------------------------------------------------------------- */

/* Sends one rollout that is whole, then one whose values are too few. */
static exo_status
broken_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    (void)self;
    exo_port *port = exo_graph_output(actor, "experience");
    exo_status st = EXO_OK;
    for (int i = 0; st == EXO_OK && i < 2; i++) {
        exo_item_part parts[EXO_ROLLOUT_PARTS];
        exo_item *item = NULL;
        const exo_environment_shape shape = {.observation = 4, .actions = 2, .players = 1};
        size_t count = exo_rollout_parts(&shape, 8, 2, parts);
        parts[3].count -= (size_t)i;
        st = exo_item_new(&item, parts, count, err);
        if (st == EXO_OK)
            st = exo_port_send(port, &item, EXO_PORT_TIMEOUT, err);
    }
    return st == EXO_CLOSED ? EXO_OK : st;
}

Test(maker_trainer, an_item_that_does_not_fit_names_its_sender, .timeout = 120)
{
    static const exo_graph_port ports[] = {
        {.name = "experience", .type = "rollout"},
        {.name = "parameters", .type = "policy", .direction = EXO_PORT_INPUT},
    };
    static const char *const phases[] = {"play", NULL};
    static const exo_graph_class broken = {.name = "broken_maker",
                                           .ports = ports,
                                           .num_ports = 2,
                                           .phases = phases,
                                           .state_size = 1,
                                           .run = broken_run};
    struct outcome out;
    cr_assert_eq(exo_graph_class_register(&broken, NULL), EXO_OK);
    run_graph(&(struct graph){.maker_class = "broken_maker"}, &out);
    cr_expect_eq(out.status, EXO_INVAL);
    cr_expect(strstr(out.err.text,
                     "experience from sender 0, item 1: values: 15 of fp32, not 16 of fp32"),
              "%s", out.err.text);
    outcome_release(&out);
}

Test(maker_trainer, options_are_checked, .timeout = 120)
{
    static const struct {
        struct graph graph;
        const char *reason;
    } cases[] = {
        {{.maker = "{environments: 0}"}, "environments"},
        {{.maker = "{environments: 4096, steps: 1024}"}, "steps * environments is at most 1048576"},
        {{.maker = "{step: 4}"}, "step"},
        {{.trainer = "{gamma: 1.5}"}, "gamma"},
        {{.trainer = "{batch: 0}"}, "batch"},
        {{.trainer = "{target_return: many}"}, "target_return"},
        {{.trainer = "{evaluate_every: 5}"}, "evaluate_every needs evaluate"},
        {{.trainer = "{evaluate: 5, reward_threshold: 475}"},
         "reward_threshold needs evaluate_every"},
        {{.trainer = "{policy: nowhere.safetensors}"}, "trainer_0: nowhere.safetensors: "},
        {{.trainer = "{units: 40}"}, "units is a multiple of 16"},
        {{.maker = "{environment: cartpool}"}, "cartpole"},
        {{.maker = "{environment: {name: cartpole, length: 2}}"}, "length"},
        {{.maker = "{environment: acrobot}"},
         "the items of 'experience' are of acrobot: 6 observations, 3 actions, 1 player, 64 units "
         "where 'maker' sends them, and of cartpole: 4 observations, 2 actions, 1 player, 64 units "
         "where 'trainer' takes them"},
        {{.trainer = "{units: 32}"}, "64 units where 'maker' sends them"},
        {{.maker = "{environments: 2, steps: 8}", .trainer = "{batch: 2, minibatches: 33}"},
         "test.yaml:6:78: minibatches: 33 is more than the 32 samples of a batch of 'trainer': 2 "
         "items "
         "of 'maker', each of 8 steps in 2 environments"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct outcome out;
        run_graph(&cases[i].graph, &out);
        cr_expect(out.status == EXO_INVAL || out.status == EXO_NOT_FOUND, "case %zu", i);
        cr_expect(strstr(out.err.text, cases[i].reason), "case %zu: %s", i, out.err.text);
        outcome_release(&out);
    }
}
