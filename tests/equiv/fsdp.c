/* FSDP has the numbers of ddp, sends what its closed form says, keeps no more than its shards between
 * steps, and goes on where it was. The tests own their runs. Read next: strategies/fsdp.c. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/memory.h>

#include "base/memory_fault.h"
#include "support/numbers.h"
#include "support/points.h"
#include "support/run.h"
#include "support/sanitized.h"

enum {
    STEPS = 5,
    SAMPLES = 12
};

static void
prepare(struct run *r, uint32_t nodes)
{
    char text[128];
    snprintf(text, sizeof text, "{in: %d, out: %d, hidden: [16, 13]}", POINTS_DIM, POINTS_CLASSES);
    run_init(r, "mlp", text, points_new(200, 1, SIZE_MAX), points_new(64, 2, SIZE_MAX));
    r->opts.num_nodes = nodes;
    r->opts.batch_size = SAMPLES;
    r->opts.max_steps = STEPS;
    r->opts.val_interval = 2;
}

/* --- Numbers and bytes ------------------------------------------------------------------------ */

struct kind {
    const char *options;
    uint32_t group;   /* g; 0: all nodes */
    unsigned gathers; /* of a unit in a pass */
};

static const struct kind kinds[] = {
    {"sharding_strategy: full_shard", 0, 2},
    {"sharding_strategy: full_shard, prefetch: true", 0, 2},
    {"sharding_strategy: shard_grad_op", 0, 1},
    {"sharding_strategy: shard_grad_op, prefetch: true", 0, 1},
    {"sharding_strategy: no_shard", 1, 2},
    {"prefetch: false", 0, 2}, /* hybrid_shard of one group */
    {"group_size: 2", 2, 2},
    {"sharding_strategy: hybrid_shard, group_size: 2, prefetch: true", 2, 2},
    {"sharding_strategy: hybrid_shard_zero2, group_size: 2", 2, 1},
};

static const char *const apart[] = {
    "group_size: 2, across: {name: diloco, H: 2}",
    "group_size: 2, prefetch: true, across: {name: sparta, p: 0.3, delay: 1}",
};
enum {
    KINDS = sizeof kinds / sizeof *kinds,
    APART = sizeof apart / sizeof *apart
};

/* The bytes that a node sends in a run, the mean over the nodes. The unit with which forward ends is
 * gathered once less in each pass, and those with a matrix that muon steps once more in a step. */
static double
closed_form(const struct run *r, const struct kind *kind, unsigned passes,
            const exo_optim_spec *optimizer)
{
    const exo_unit_info *units = exo_model_units(r->model);
    size_t count = exo_model_num_units(r->model);
    double n = r->opts.num_nodes, g = kind->group ? kind->group : n, elements = 0;
    double gathers = kind->gathers == 1 ? 1 : 2.0 * passes;
    for (size_t u = 0; u < count; u++) {
        double twice = kind->gathers == 2 && u + 1 == count ? passes : 0;
        double more =
            exo_optim_matrices(optimizer, exo_model_infos(r->model), exo_model_num_infos(r->model),
                               units[u].first, units[u].count) > 0;
        elements += (double)units[u].count *
                    ((g - 1) / g * (gathers - twice + 1 + more) + 2 * (n / g - 1) / (n / g) / g);
    }
    return 4 * elements * STEPS;
}

/* The optimizer of a strategy's options; the caller releases it. */
static exo_optim_spec
optimizer_of(const char *options)
{
    const exo_optim_spec adamw = exo_optim_spec_init(EXO_ADAMW);
    exo_optim_spec spec;
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_config_parse(&doc, "options", options, &err), EXO_OK, "%s", err.text);
    exo_status st =
        exo_optim_spec_read_groups(exo_config_root(doc), "optimizer", &adamw, &spec, &err);
    cr_assert_eq(st, EXO_OK, "%s: %s", options, err.text);
    exo_config_free(&doc);
    return spec;
}

static void
compare(const struct kind *kind, uint32_t nodes, const char *more, size_t minibatch)
{
    struct run ddp, fsdp;
    char options[256];
    prepare(&ddp, nodes);
    prepare(&fsdp, nodes);
    ddp.opts.minibatch_size = fsdp.opts.minibatch_size = minibatch;
    snprintf(options, sizeof options, "{%s}", more);
    run_must_fit(&ddp, "ddp", options);
    snprintf(options, sizeof options, "{%s, %s}", kind->options, more);
    run_must_fit(&fsdp, "fsdp", options);
    bool one_group = kind->group < 2 || kind->group == nodes;
    if (one_group)
        cr_expect_str_eq(fsdp.result.sha256, ddp.result.sha256, "%u nodes: %s", nodes, options);
    size_t numel = exo_model_numel(ddp.model);
    cr_expect_lt(numbers_distance(exo_params_values(fsdp.result.params),
                                  exo_params_values(ddp.result.params), numel),
                 2e-6, "%u nodes: %s", nodes, options);
    cr_expect_float_eq(fsdp.result.global_loss, ddp.result.global_loss, 1e-6);
    if (!strstr(more, "max_norm")) {
        exo_optim_spec optimizer = optimizer_of(options);
        double expected = closed_form(&fsdp, kind, (unsigned)(SAMPLES / minibatch), &optimizer);
        exo_optim_spec_release(&optimizer);
        cr_expect_float_eq((double)fsdp.result.bytes_sent, expected, 0.5 + 1e-9 * expected,
                           "%u nodes: %s: %llu bytes, expected %.1f", nodes, options,
                           (unsigned long long)fsdp.result.bytes_sent, expected);
    }
    run_release(&ddp);
    run_release(&fsdp);
}

Test(fsdp, is_ddp_and_sends_what_the_closed_form_says)
{
    for (size_t k = 0; k < KINDS; k++)
        for (uint32_t nodes = 1; nodes <= 6; nodes += (uint32_t)one_of(3))
            if (kinds[k].group == 0 || nodes % kinds[k].group == 0)
                compare(&kinds[k], nodes, "optimizer: {name: adamw, lr: 0.01}", SAMPLES);
}

Test(fsdp, is_ddp_with_clipped_gradients_minibatches_and_parameter_groups)
{
    for (size_t k = 0; k < KINDS; k += one_of(2)) {
        compare(&kinds[k], 4, "max_norm: 0.05, optimizer: {name: sgd, lr: 0.1, momentum: 0.9}",
                SAMPLES);
        compare(&kinds[k], 4, "optimizer: {name: adamw, groups: [{match: '*.bias', lr: 0.1}]}", 4);
    }
}

/* Of three layers the middle one is hidden: its unit alone is gathered. With many nodes, several cut one
 * matrix, and some have nothing of a unit with one. */
Test(fsdp, muon_is_that_of_ddp_and_gathers_the_units_with_a_matrix)
{
    static const char *const rules[] = {
        "optimizer: {name: muon, lr: 0.02, adamw: {lr: 0.01, eps: 1e-2}}",
        "optimizer: {name: muon, matrices: all, groups: [{match: fc3.weight, matrices: none}]}",
        "max_norm: 0.05, optimizer: {name: muon, adjust_lr_fn: match_rms_adamw, matrices: all}",
    };
    for (size_t k = 0; k < KINDS; k += one_of(2)) {
        compare(&kinds[k], 4, rules[0], SAMPLES);
        compare(&kinds[k], 6, rules[k % 2 + 1], 4);
    }
    compare(&kinds[0], 16, rules[0], SAMPLES);
}

/* --- Groups that are apart -------------------------------------------------------------------- */

Test(fsdp, groups_of_one_node_under_a_strategy_are_that_strategy)
{
    static const char *const across[][2] = {
        {"diloco", "H: 2"},
        {"fedavg", "H: 2, aggregate: median"},
        {"sparta", "p: 0.3, delay: 1"},
        {"noloco", "H: 2"},
        {"eager_diloco", "H: 2"},
    };
    for (size_t i = 0; i < sizeof across / sizeof *across; i++) {
        struct run alone, parts;
        char options[256];
        prepare(&alone, 4);
        prepare(&parts, 4);
        snprintf(options, sizeof options, "{%s, optimizer: {name: adamw, lr: 0.01}}", across[i][1]);
        run_must_fit(&alone, across[i][0], options);
        snprintf(options, sizeof options,
                 "{group_size: 1, across: {name: %s, %s}, optimizer: {name: adamw, lr: 0.01}}",
                 across[i][0], across[i][1]);
        run_must_fit(&parts, "fsdp", options);
        cr_expect_str_eq(parts.result.sha256, alone.result.sha256, "%s", options);
        cr_expect_eq(parts.result.bytes_sent, alone.result.bytes_sent, "%s", options);
        run_release(&alone);
        run_release(&parts);
    }
}

/* diloco among R replicas sends 2 (R - 1) / R of a node's shards in each of two rounds. */
Test(fsdp, groups_under_diloco_send_what_the_closed_form_says)
{
    static const uint32_t counts[][2] = {{2, 2}, {4, 2}, {6, 2}, {6, 3}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct run r;
        const struct kind inside = {NULL, counts[i][1], 2};
        uint32_t nodes = counts[i][0], group = counts[i][1];
        char options[256];
        prepare(&r, nodes);
        snprintf(options, sizeof options, "{group_size: %u, across: {name: diloco, H: 2}}", group);
        run_must_fit(&r, "fsdp", options);
        double replicas = (double)nodes / group, psi = (double)exo_model_numel(r.model);
        double round = 4 * 2 * (replicas - 1) / replicas * psi / group;
        const exo_optim_spec adamw = exo_optim_spec_init(EXO_ADAMW);
        double expected = closed_form(&r, &inside, 1, &adamw) - STEPS * round + 2 * round;
        cr_expect_float_eq((double)r.result.bytes_sent, expected, 0.5 + 1e-9 * expected,
                           "%u nodes: %s: %llu bytes, expected %.1f", nodes, options,
                           (unsigned long long)r.result.bytes_sent, expected);
        run_release(&r);
    }
}

/* --- A run that stops ------------------------------------------------------------------------- */

Test(fsdp, a_resumed_run_has_the_bits_of_one_that_was_left_alone)
{
    for (size_t k = 0; k < KINDS + APART; k += one_of(2)) {
        struct run r;
        char options[256];
        prepare(&r, 4);
        snprintf(options, sizeof options, "{%s}", k < KINDS ? kinds[k].options : apart[k - KINDS]);
        r.opts.final_checkpoint = true;
        run_expect_resume(&r, "fsdp", options, 2, NULL);
        run_release(&r);
    }
}

/* --- Mistakes and failures -------------------------------------------------------------------- */

Test(fsdp, wrong_options_are_named)
{
    static const struct {
        const char *options, *reason;
    } cases[] = {
        {"sharding_strategy: full", "full_shard"},
        {"{sharding_strategy: full_shard, group_size: 2}", "group_size: full_shard has groups"},
        {"group_size: 3", "4 nodes cannot be cut into groups of 3"},
        {"group_size: 8", "4 nodes cannot be cut into groups of 8"},
        {"across: diloco", "across: needs a group_size"},
        {"{group_size: 2, across: dilocco}", "did you mean 'diloco'?"},
        {"{group_size: 2, across: {name: diloco, h: 3}}", "'h'"},
        {"{group_size: 2, across: ddp}", "'ddp' does not begin with a step of the node's own"},
        {"{group_size: 2, across: async_diloco}", "'async_diloco' do not meet"},
        {"{group_size: 2, across: {name: fsdp}}", "'fsdp' keeps shards"},
        {"{group_size: 2, across: {name: fedavg, island_size: 3}}", "island_size"},
    };
    struct run r;
    prepare(&r, 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_eq(run_fit(&r, "fsdp", cases[i].options), EXO_INVAL, "%s", cases[i].options);
        cr_expect_not_null(strstr(r.err.text, cases[i].reason), "%s: %s", cases[i].options,
                           r.err.text);
    }
    run_release(&r);
}

/* One of two nodes, which starts alone. */
static exo_status
start(exo_model *model, const char *options, uint64_t fail_at)
{
    exo_comm *comm = NULL;
    exo_group *group = NULL;
    exo_strategy *strategy = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_comm_local(&comm, 4, exo_clock_real(), &err), EXO_OK);
    cr_assert_eq(exo_group_open(&group, comm, 1, "node", &err), EXO_OK);
    cr_assert_eq(exo_strategy_parse(&strategy, "fsdp", options, &err), EXO_OK, "%s", err.text);
    exo_node node = {.rank = 1,
                     .num_nodes = 4,
                     .max_steps = 1,
                     .numel = exo_model_numel(model),
                     .params = {.device = exo_device_cpu(), .dtype = EXO_F32},
                     .infos = exo_model_infos(model),
                     .num_infos = exo_model_num_infos(model),
                     .units = exo_model_units(model),
                     .num_units = exo_model_num_units(model),
                     .group = group};
    exo_memory_fail_at(fail_at);
    exo_status st = exo_strategy_start(strategy, &node, &err);
    exo_memory_fail_at(0);
    cr_assert(st == EXO_OK || (st == EXO_NOMEM && err.text[0]), "%s", err.text);
    exo_strategy_leave(strategy);
    exo_strategy_free(&strategy);
    exo_group_close(&group);
    exo_comm_drop(&comm);
    return st;
}

Test(fsdp, every_failed_allocation_of_start_is_an_error_and_leaks_nothing)
{
    struct run r;
    prepare(&r, 2);
    for (size_t k = 0; k < KINDS; k++) {
        char options[256];
        uint64_t n = 1;
        snprintf(options, sizeof options, "{%s}", kinds[k].options);
        while (start(r.model, options, n) != EXO_OK)
            n++;
        cr_expect_gt(n, 8);
    }
    run_release(&r);
}
