/* A rehearsal takes the time of the run, to the nanosecond, and sends its bytes; and it needs no memory
 * for the model. Read next: actors/fit_run.h. */
#include <criterion/criterion.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include <stdio.h>

#include <exogym/exogym.h>

#include "actors/fit_memory.h"
#include "actors/fit_run.h"
#include "support/points.h"
#include "support/token_rows.h"

enum {
    NODES = 4,
    STEPS = 4,
    BATCH = 8
};
#define COST (20 * EXO_MS)

struct network {
    uint32_t placed[NODES];
    exo_emulated_host hosts[NODES];
    exo_compute_spec step;
    exo_actor_spec actor;
    exo_edge_spec edge;
    exo_graph_spec graph;
};

/* Four hosts behind slow uplinks, the last of half the speed. */
static const exo_graph_spec *
connect(struct network *n)
{
    n->step = (exo_compute_spec){.phase = "step", .cost = COST};
    n->actor = (exo_actor_spec){
        .name = "node", .count = NODES, .hosts = n->placed, .compute = &n->step, .num_compute = 1};
    n->edge = (exo_edge_spec){.name = "node>node",
                              .carries = "gradients",
                              .route = EXO_ROUTE_ALL_REDUCE,
                              .codec_text = "raw",
                              .link = -1};
    for (uint32_t i = 0; i < NODES; i++) {
        n->placed[i] = i;
        n->hosts[i] =
            (exo_emulated_host){.spec = {.name = "h", .up = 1e6, .down = 4e6, .latency = EXO_MS},
                                .speed = i + 1 < NODES ? 1 : 0.5};
    }
    n->graph = (exo_graph_spec){.source = "test",
                                .name = "test",
                                .seed = 1,
                                .virtual_clock = true,
                                .emulated = true,
                                .actors = &n->actor,
                                .num_actors = 1,
                                .edges = &n->edge,
                                .num_edges = 1,
                                .hosts = n->hosts,
                                .num_hosts = NODES};
    return &n->graph;
}

static exo_fit_opts
options(size_t minibatch_size)
{
    exo_fit_opts opts = exo_fit_opts_init();
    opts.num_nodes = NODES;
    opts.batch_size = BATCH;
    opts.minibatch_size = minibatch_size;
    opts.max_steps = STEPS;
    opts.val_size = EXO_VAL_NONE;
    opts.save_dir = NULL;
    return opts;
}

static const struct row {
    const char *strategy, *options;
    size_t minibatch_size;
} rows[] = {
    {"ddp", "{max_norm: 1}", BATCH},
    {"ddp", "{bucket_size: 100 B}", BATCH},
    {"fsdp", "{sharding_strategy: full_shard}", BATCH},
    {"fsdp", "{sharding_strategy: full_shard, prefetch: true, max_norm: 1}", BATCH},
    {"fsdp", "{sharding_strategy: shard_grad_op, prefetch: true}", BATCH},
    {"fsdp", "{sharding_strategy: full_shard}", 2},
    {"fsdp", "{sharding_strategy: hybrid_shard, group_size: 2, prefetch: true}", BATCH},
    {"fsdp", "{sharding_strategy: hybrid_shard_zero2, group_size: 2}", 4},
    {"fsdp", "{group_size: 2, across: {name: diloco, H: 2}}", BATCH},
};

Test(rehearsal, takes_the_time_of_the_run, .timeout = 120)
{
    struct network network;
    const exo_graph_spec *graph = connect(&network);
    exo_model *model = points_mlp();
    exo_dataset *train = points_new(200, 1, SIZE_MAX);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        const exo_fit_opts opts = options(row->minibatch_size);
        exo_config_doc *doc = NULL;
        exo_fit_result real = {0}, rehearsed = {0};
        exo_err err = {0};
        cr_assert_eq(exo_config_parse(&doc, "options", row->options, NULL), EXO_OK);
        exo_config *root = exo_config_root(doc);
        cr_assert_eq(exo_fit_run(model, train, NULL, row->strategy, root, &opts, NULL, graph, NULL,
                                 &real, &err),
                     EXO_OK, "%s: %s", row->options, err.text);
        cr_assert_eq(exo_fit_rehearse(model, train, row->strategy, root, &opts, graph, COST,
                                      &rehearsed, &err),
                     EXO_OK, "%s: %s", row->options, err.text);
        cr_expect(rehearsed.is_virtual && rehearsed.train_seconds > STEPS * 0.02);
        cr_expect_eq(rehearsed.train_seconds, real.train_seconds, "%s %s: %.9f instead of %.9f",
                     row->strategy, row->options, rehearsed.train_seconds, real.train_seconds);
        cr_expect_eq(rehearsed.bytes_sent, real.bytes_sent, "%s", row->options);
        cr_expect_eq(rehearsed.traffic.messages, real.traffic.messages, "%s", row->options);
        exo_params_free(&real.params);
        exo_config_free(&doc);
    }
    exo_dataset_drop(&train);
    exo_model_drop(&model);
}

/* Stages of a gpt: the schedule's waits, and the sum of the tied embedding. */
Test(rehearsal, takes_the_time_of_stages, .timeout = 120)
{
    static const char *const texts[2] = {
        "{vocabulary: 40, context: 12, layers: 4, heads: 2, width: 16}",
        "{vocabulary: 40, context: 12, layers: 4, heads: 2, width: 16, tied: false}"};
    struct network network;
    const exo_graph_spec *graph = connect(&network);
    exo_dataset *train = token_rows_new(64, 12, 40);
    for (int i = 0; i < 4; i++) {
        exo_fit_opts opts = options(i % 2 ? 1 : 2);
        exo_config_doc *doc = NULL;
        exo_model *model = NULL;
        exo_fit_result real = {0}, rehearsed = {0};
        exo_err err = {0};
        opts.pipeline = i < 2 ? 2 : 4;
        cr_assert_eq(exo_config_parse(&doc, "model", texts[i % 2], NULL), EXO_OK);
        cr_assert_eq(exo_model_new_named(&model, "gpt", exo_config_root(doc), &err), EXO_OK, "%s",
                     err.text);
        cr_assert_eq(
            exo_fit_run(model, train, NULL, "ddp", NULL, &opts, NULL, graph, NULL, &real, &err),
            EXO_OK, "%s", err.text);
        cr_assert_eq(
            exo_fit_rehearse(model, train, "ddp", NULL, &opts, graph, COST, &rehearsed, &err),
            EXO_OK, "%s", err.text);
        cr_expect_eq(rehearsed.train_seconds, real.train_seconds, "%u stages: %.9f instead of %.9f",
                     opts.pipeline, rehearsed.train_seconds, real.train_seconds);
        cr_expect_eq(rehearsed.bytes_sent, real.bytes_sent);
        exo_params_free(&real.params);
        exo_config_free(&doc);
        exo_model_drop(&model);
    }
    exo_dataset_drop(&train);
}

/* Parts of a gpt, and of its stages: sums and gathers within passes, between units. */
Test(rehearsal, takes_the_time_of_parts, .timeout = 120)
{
    static const struct {
        uint32_t tensor, context, stages;
        bool sequence, checkpoint;
        const char *options;
    } forms[] = {
        {2, 1, 1, false, false, "{}"},
        {4, 1, 1, false, true, "{max_norm: 1}"},
        {2, 1, 1, true, false, "{bucket_size: 1 kB}"},
        {4, 1, 1, true, true, "{}"},
        {1, 2, 1, false, false, "{max_norm: 1}"},
        {1, 2, 1, false, true, "{}"},
        {2, 1, 2, true, false, "{}"},
        {2, 1, 2, false, true, "{}"},
        {1, 2, 2, false, false, "{}"},
        {2, 2, 1, true, true, "{max_norm: 1}"},
    };
    struct network network;
    const exo_graph_spec *graph = connect(&network);
    exo_dataset *train = token_rows_new(64, 12, 40);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        exo_fit_opts opts = options(i % 2 || forms[i].stages > 1 ? 2 : BATCH);
        exo_config_doc *doc = NULL, *how = NULL;
        exo_model *model = NULL;
        exo_fit_result real = {0}, rehearsed = {0};
        exo_err err = {0};
        char text[160];
        opts.tensor = forms[i].tensor;
        opts.context_parallel = forms[i].context;
        opts.pipeline = forms[i].stages;
        opts.sequence = forms[i].sequence;
        snprintf(text, sizeof text,
                 "{vocabulary: 41, context: 12, layers: 2, heads: 4, width: 16, checkpoint: %s}",
                 forms[i].checkpoint ? "true" : "false");
        cr_assert_eq(exo_config_parse(&doc, "model", text, NULL), EXO_OK);
        cr_assert_eq(exo_config_parse(&how, "options", forms[i].options, NULL), EXO_OK);
        cr_assert_eq(exo_model_new_named(&model, "gpt", exo_config_root(doc), &err), EXO_OK, "%s",
                     err.text);
        cr_assert_eq(exo_fit_run(model, train, NULL, "ddp", exo_config_root(how), &opts, NULL,
                                 graph, NULL, &real, &err),
                     EXO_OK, "%zu: %s", i, err.text);
        cr_assert_eq(exo_fit_rehearse(model, train, "ddp", exo_config_root(how), &opts, graph, COST,
                                      &rehearsed, &err),
                     EXO_OK, "%zu: %s", i, err.text);
        cr_expect_gt(real.train_seconds, STEPS * (double)COST * 1e-9);
        cr_expect_eq(rehearsed.train_seconds, real.train_seconds, "form %zu: %.9f instead of %.9f",
                     i, rehearsed.train_seconds, real.train_seconds);
        cr_expect_eq(rehearsed.bytes_sent, real.bytes_sent, "form %zu", i);
        exo_params_free(&real.params);
        exo_config_free(&doc);
        exo_config_free(&how);
        exo_model_drop(&model);
    }
    exo_dataset_drop(&train);
}

/* --- What fsdp costs over ddp ------------------------------------------------------------------- */

enum {
    WIDTH = 1024,
    LAYERS = 7, /* equal ones; those before and after are small */
    UNIT = WIDTH * WIDTH + WIDTH
};

/* Seconds of a step, of those after the second. */
static double
step_seconds(exo_model *model, exo_dataset *train, const exo_graph_spec *graph,
             const char *strategy, const char *text, double cost)
{
    double seconds[2] = {0};
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_config_parse(&doc, "options", text, NULL), EXO_OK);
    for (int i = 0; i < 2; i++) {
        exo_fit_opts opts = options(BATCH);
        exo_fit_result result = {0};
        opts.max_steps = i == 0 ? 2 : 4;
        cr_assert_eq(exo_fit_rehearse(model, train, strategy, exo_config_root(doc), &opts, graph,
                                      (exo_time)(cost * 1e9), &result, &err),
                     EXO_OK, "%s: %s", text, err.text);
        seconds[i] = result.train_seconds;
    }
    exo_config_free(&doc);
    return (seconds[1] - seconds[0]) / 2;
}

/* Four nodes at 10 Gbit/s. G is the time in which all units are gathered, and `one` that of a unit:
 *
 *     forward     the longer one of T / 3 and G, and the first gather
 *     backward    the longer one of 2 T / 3 and 2 G, the first gather and the last reduction
 *
 * docs/strategies.md has the same formula. */
Test(rehearsal, fsdp_costs_15_percent_over_ddp_where_messages_fit_beside_computation,
     .timeout = 120)
{
    static const struct {
        double cost; /* of a step: times G */
        bool fits;
    } each[] = {{10, true}, {5, true}, {3, true}, {2.5, true}, {1, false}};
    struct network n;
    connect(&n);
    for (uint32_t i = 0; i < NODES; i++)
        n.hosts[i] = (exo_emulated_host){
            .spec = {.name = "h", .up = 10e9, .down = 10e9, .latency = 20 * EXO_US}, .speed = 1};
    exo_config_doc *doc = NULL;
    exo_model *model = NULL;
    exo_dataset *train = points_new(200, 1, SIZE_MAX);
    exo_err err = {0};
    cr_assert_eq(exo_config_parse(&doc, "model",
                                  "{in: 8, out: 3, hidden: [1024, 1024, 1024, 1024, 1024, 1024, "
                                  "1024, 1024]}",
                                  NULL),
                 EXO_OK);
    cr_assert_eq(exo_model_new_named(&model, "mlp", exo_config_root(doc), &err), EXO_OK, "%s",
                 err.text);
    exo_config_free(&doc);
    const double one = 4.0 * UNIT * (NODES - 1) / NODES / 1.25e9, all = LAYERS * one;
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        const double cost = each[i].cost * all;
        const double ddp = step_seconds(model, train, &n.graph, "ddp", "{bucket_size: 4 MB}", cost),
                     fsdp = step_seconds(model, train, &n.graph, "fsdp",
                                         "{sharding_strategy: full_shard, prefetch: true}", cost);
        const double formula = fmax(cost / 3, all) + fmax(2 * cost / 3, 2 * all) + 3 * one;
        cr_expect(fsdp > 0.9 * formula && fsdp < 1.02 * formula, "T = %.1f G: %.6f instead of %.6f",
                  each[i].cost, fsdp, formula);
        cr_expect_eq(fsdp <= 1.15 * ddp, each[i].fits, "T = %.1f G: %.6f and %.6f of ddp",
                     each[i].cost, fsdp, ddp);
    }
    exo_dataset_drop(&train);
    exo_model_drop(&model);
}

Test(rehearsal, needs_the_virtual_clock)
{
    struct network network;
    const exo_fit_opts opts = options(BATCH);
    exo_model *model = points_mlp();
    exo_dataset *train = points_new(200, 1, SIZE_MAX);
    exo_fit_result result = {0};
    exo_err err = {0};
    connect(&network);
    network.graph.virtual_clock = false;
    cr_expect_eq(
        exo_fit_rehearse(model, train, "ddp", NULL, &opts, &network.graph, COST, &result, &err),
        EXO_INVAL);
    cr_expect_str_eq(err.text, "a rehearsal needs a graph on the virtual clock");
    exo_dataset_drop(&train);
    exo_model_drop(&model);
}

/* Planning again for other minibatches gives the same as planning anew. The process's allocations are
 * counted, which differ by some hundred kB from one plan to the next. */
Test(rehearsal, memory_of_other_minibatches)
{
    enum {
        MANY = 16384,
        SLACK = 1 << 20
    };
    exo_config_doc *doc = NULL;
    exo_model *model = points_mlp();
    exo_dataset *train = points_new(NODES * MANY, 1, SIZE_MAX);
    exo_fit_memory first = {0}, anew = {0}, again;
    exo_err err = {0};
    exo_fit_opts large = options(MANY), small = options(2);
    large.batch_size = small.batch_size = MANY;
    cr_assert_eq(exo_config_parse(&doc, "options", "{}", NULL), EXO_OK);
    exo_config *root = exo_config_root(doc);
    cr_assert_eq(exo_fit_memory_plan(model, train, NULL, "fsdp", root, &large, 1000, &first, &err),
                 EXO_OK, "%s", err.text);
    again = first;
    cr_assert_eq(
        exo_fit_memory_replan(model, train, NULL, "fsdp", root, &small, 1000, &again, &err), EXO_OK,
        "%s", err.text);
    cr_assert_eq(exo_fit_memory_plan(model, train, NULL, "fsdp", root, &small, 1000, &anew, &err),
                 EXO_OK, "%s", err.text);
    cr_expect_eq(again.optimizer, first.optimizer);
    cr_expect_eq(again.minibatch_size, 2);
    cr_expect_eq(again.parameters, anew.parameters);
    cr_expect_eq(again.gradients, anew.gradients);
    cr_expect_lt(llabs((long long)again.activations - (long long)anew.activations), SLACK,
                 "%" PRIu64 " instead of %" PRIu64, again.activations, anew.activations);
    cr_expect_gt(first.activations, anew.activations + 4 * SLACK, "%" PRIu64, first.activations);
    cr_expect_lt(exo_fit_memory_of_node(&again), exo_fit_memory_of_node(&first));
    exo_config_free(&doc);
    exo_dataset_drop(&train);
    exo_model_drop(&model);
}

/* The first node gathers whole units at the end, though it trains a part of a stage: beside its halves of an
 * embedding's values, gradients and average it has the whole embedding, a copy of it and a message. */
Test(rehearsal, memory_of_products_has_whole_units)
{
    enum {
        ROWS = 20000,
        COLUMNS = 64
    };
    const uint64_t embedding = (uint64_t)ROWS * COLUMNS * sizeof(float);
    char text[120];
    exo_config_doc *doc = NULL, *plain = NULL;
    exo_model *model = NULL;
    exo_dataset *train = token_rows_new(64, 12, ROWS);
    exo_fit_memory m = {0};
    exo_err err = {0};
    exo_fit_opts opts = options(1);
    opts.pipeline = opts.tensor = 2;
    snprintf(text, sizeof text,
             "{vocabulary: %d, context: 12, layers: 2, heads: 2, width: %d, tied: false}", ROWS,
             COLUMNS);
    cr_assert_eq(exo_config_parse(&doc, "model", text, NULL), EXO_OK);
    cr_assert_eq(exo_config_parse(&plain, "options", "{optimizer: {name: sgd, lr: 0.1}}", NULL),
                 EXO_OK);
    cr_assert_eq(exo_model_new_named(&model, "gpt", exo_config_root(doc), &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(exo_fit_memory_plan(model, train, NULL, "ddp", exo_config_root(plain), &opts, 1000,
                                     &m, &err),
                 EXO_OK, "%s", err.text);
    cr_expect_geq(m.node, 3 * embedding / 2 + 3 * embedding, "%" PRIu64 " of %" PRIu64, m.node,
                  embedding);
    exo_config_free(&doc);
    exo_config_free(&plain);
    exo_dataset_drop(&train);
    exo_model_drop(&model);
}
