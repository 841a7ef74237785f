/* Strategies as classes: registry, options and defaults, errors, the inner step, the order of
 * calls, and failures. Each test owns its nodes. Read next: include/exogym/strategy.h;
 * tests/equiv/strategies.c tests the algorithms. */
#include <criterion/criterion.h>

#include <malloc.h>
#include <math.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/strategy.h>

#include "base/memory_fault.h"
#include "support/nodes.h"
#include "support/sanitized.h"

static exo_status
parse(const char *name, const char *options, exo_err *err)
{
    exo_strategy *strategy = NULL;
    exo_status st = exo_strategy_parse(&strategy, name, options, err);
    cr_expect_eq(strategy != NULL, st == EXO_OK);
    exo_strategy_free(&strategy);
    return st;
}

/* --- Names ------------------------------------------------------------------------------------ */

Test(strategy, the_built_in_ones_are_there_in_the_order_of_their_names)
{
    static const char *const names[] = {
        "async_diloco",  "compose",         "ddp",      "decoupled_diloco", "demo",       "diloco",
        "eager_diloco",  "fedavg",          "fsdp",     "islands",          "local_sgd",  "muloco",
        "noloco",        "onebit_adam",     "powersgd", "quantized",        "sparseloco", "sparta",
        "sparta_diloco", "streaming_diloco"};
    enum {
        COUNT = sizeof names / sizeof *names
    };
    for (size_t i = 0; i < COUNT; i++)
        cr_expect_str_eq(exo_strategy_class_at(i)->name, names[i]);
    cr_expect_null(exo_strategy_class_at(COUNT));
}

Test(strategy, of_an_unknown_name_the_nearest_is_said_or_all)
{
    exo_err err = {0};
    cr_expect_eq(parse("dilocoo", "{}", &err), EXO_NOT_FOUND);
    cr_expect_str_eq(err.text, "there is no strategy 'dilocoo'; did you mean 'diloco'?");
    cr_expect_eq(parse("gossip", "{}", &err), EXO_NOT_FOUND);
    cr_expect_str_eq(
        err.text,
        "there is no strategy 'gossip'; known are: async_diloco, compose, ddp, decoupled_diloco, "
        "demo, diloco, eager_diloco, fedavg, fsdp, islands, local_sgd, muloco, noloco, "
        "onebit_adam, "
        "powersgd, "
        "quantized, sparseloco, sparta, sparta_diloco, streaming_diloco");
}

static exo_status
no_step(void *self, exo_node *node, exo_err *err)
{
    (void)self;
    (void)node;
    (void)err;
    return EXO_OK;
}

static size_t
place_of(const char *name)
{
    size_t i = 0;
    while (exo_strategy_class_at(i) && strcmp(exo_strategy_class_at(i)->name, name) != 0)
        i++;
    return i;
}

Test(strategy, classes_are_registered_once)
{
    static const exo_strategy_class mine = {.name = "mine", .step = no_step},
                                    other = {.name = "other", .step = no_step},
                                    again = {.name = "mine", .step = no_step},
                                    ddp = {.name = "ddp", .step = no_step},
                                    nameless = {.step = no_step}, idle = {.name = "idle"};
    exo_err err = {0};
    cr_expect_eq(exo_strategy_register(&mine, &err), EXO_OK);
    cr_expect_eq(exo_strategy_register(&other, &err), EXO_OK);
    cr_expect_eq(exo_strategy_register(&again, &err), EXO_EXISTS);
    cr_expect_not_null(strstr(err.text, "'mine'"));
    cr_expect_eq(exo_strategy_register(&ddp, &err), EXO_EXISTS);
    cr_expect_eq(exo_strategy_register(&nameless, &err), EXO_INVAL);
    cr_expect_eq(exo_strategy_register(&idle, &err), EXO_INVAL);
    size_t at = place_of("mine");
    cr_expect_eq(exo_strategy_class_at(at), &mine);
    cr_expect_str_eq(exo_strategy_class_at(at - 1)->name, "local_sgd");
    cr_expect_str_eq(exo_strategy_class_at(at + 1)->name, "muloco");
    cr_expect_eq(exo_strategy_class_at(place_of("other")), &other);
    cr_expect_eq(parse("mine", "optimizer: sgd", &err), EXO_OK);
}

/* --- Options ---------------------------------------------------------------------------------- */

/* A list of exchanges has none: it is the strategy. */
Test(strategy, everything_but_a_list_of_exchanges_has_a_default)
{
    exo_err err = {0};
    exo_strategy *strategy = NULL;
    cr_expect_eq(exo_strategy_new(&strategy, "compose", NULL, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "the key 'exchanges' is missing, as in"), "%s", err.text);
    for (size_t i = 0; exo_strategy_class_at(i); i++) {
        if (strcmp(exo_strategy_class_at(i)->name, "compose") == 0)
            continue;
        cr_expect_eq(parse(exo_strategy_class_at(i)->name, "{}", &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_strategy_new(&strategy, exo_strategy_class_at(i)->name, NULL, &err),
                     EXO_OK, "%s", err.text);
        cr_expect_str_eq(exo_strategy_name(strategy), exo_strategy_class_at(i)->name);
        exo_strategy_free(&strategy);
    }
    nodes n;
    nodes_init(&n, 1, 10, 1, 1, "ddp", "{}");
    cr_expect_eq(n.each[0].node.inner.kind, EXO_ADAMW);
    cr_expect_eq(n.each[0].node.inner.lr, 1e-3f);
    cr_expect_eq(exo_schedule_factor(n.each[0].node.schedule, 0, 10), 1.0f);
    cr_expect_eq(n.each[0].node.max_norm, 0.0f);
    nodes_release(&n);
}

Test(strategy, the_name_may_stand_among_the_options)
{
    exo_err err = {0};
    cr_expect_eq(parse("diloco", "{name: diloco, H: 3}", &err), EXO_OK, "%s", err.text);
}

Test(strategy, mistakes_are_named_with_their_place)
{
    static const struct {
        const char *name, *options, *place, *reason;
    } cases[] = {
        {"ddp", "{H: 3}", "1:2", "'H'"},
        {"ddp", "{optimiser: sgd}", "1:2", "'optimizer'"},
        {"ddp", "{max_norm: -1}", "1:12", "max_norm"},
        {"ddp", "{lr_scheduler: cosinus}", "1:16", "did you mean 'cosine'?"},
        {"ddp", "{lr_scheduler: warm}", "1:16", "lambda_cosine, linear"},
        {"ddp", "{cosine_anneal: true}", "1:1", "lr_scheduler"},
        {"ddp", "{warmup_steps: 1.5, lr_scheduler: lambda_cosine}", "1:16", "an integer"},
        {"diloco", "{H: 0}", "1:5", "H must be at least 1"},
        {"diloco", "{outer_optimizer: {name: sgd, lr: fast}}", "1:35", "lr"},
        {"fedavg", "{H: 0}", "1:5", "H must be"},
        {"fedavg", "{island_size: 1}", "1:15", "island_size must be at least 2"},
        {"fedavg", "{island_size: all}", "1:15", "island_size"},
        {"sparta", "{p: 0}", "", "p must be"},
        {"sparta", "{p: 1.5}", "1:5", "p must be"},
        {"sparta", "{p: -0.5}", "1:5", "p must be"},
        {"sparta", "{interval: 0}", "1:12", "interval"},
        {"sparta", "{selector: all}", "1:12", "partitioned"},
        {"sparta_diloco", "{sparta_interval: 0}", "1:19", "sparta_interval"},
        {"sparta_diloco", "{interval: 2}", "1:2", "sparta_interval"},
        {"sparta_diloco", "{p: -1}", "1:5", "p must be"},
        {"local_sgd", "{island_size: 2}", "1:2", "'island_size'"},
        {"noloco", "{outer_optimizer: {momentum: -1}}", "1:30", "momentum"},
        {"compose", "{}", "1:1", "the key 'exchanges' is missing"},
        {"compose", "{exchanges: []}", "1:13", "expected 1 to 4 of them, got 0"},
        {"compose", "{exchanges: [{}, {}, {}, {}, {}]}", "1:13", "expected 1 to 4 of them, got 5"},
        {"compose", "{exchanges: {every: 3}}", "1:13", "exchanges"},
        {"compose", "{exchanges: [all]}", "1:14", "expected a mapping"},
        {"compose", "{exchanges: [{what: buffers}]}", "1:21", "gradients"},
        {"compose", "{exchanges: [{H: 3}]}", "1:15", "'H'"},
        {"compose", "{exchanges: [{every: 0}]}", "1:22", "every must be at least 1"},
        {"compose", "{exchanges: [{select: some}]}", "1:23", "shuffled_sequential"},
        {"compose", "{exchanges: [{select: {name: random, p: 0}}]}", "1:41", "p must be"},
        {"compose", "{exchanges: [{select: {p: 0.1}}]}", "1:24", "'p'"},
        {"compose", "{exchanges: [{partners: friends}]}", "1:25", "pairs"},
        {"compose", "{exchanges: [{partners: islands}]}", "1:25", "need an island_size"},
        {"compose", "{exchanges: [{partners: {name: islands, island_size: 1}}]}", "1:54", "2"},
        {"compose", "{exchanges: [{partners: {name: pairs, island_size: 2}}]}", "1:39",
         "'island_size'"},
        {"compose", "{exchanges: [{apply: sum}]}", "1:22", "outer"},
        {"compose", "{exchanges: [{apply: {name: mean, alpha: 1}}]}", "1:35", "'alpha'"},
        {"compose", "{exchanges: [{apply: {name: mix, alpha: 1.5}}]}", "1:41", "alpha must be"},
        {"compose", "{exchanges: [{apply: {name: outer, optimizer: sdg}}]}", "1:47", "sgd"},
        {"compose", "{exchanges: [{select: random, apply: outer}]}", "1:14", "all parameters"},
        {"diloco", "{aggregate: mode}", "1:13", "trimmed_mean"},
        {"diloco", "{aggregate: {name: median, trim: 1}}", "1:28", "'trim'"},
        {"fedavg", "{aggregate: {name: krum, m: -1}}", "1:29", "m must be at least 0"},
        {"fedavg", "{island_size: 2, aggregate: norm_clip}", "1:29", "equal after each round"},
        {"noloco", "{aggregate: median}", "1:2", "'aggregate'"},
        {"compose", "{exchanges: [{select: random, aggregate: norm_clip}]}", "1:42", "norm_clip"},
        {"compose", "{exchanges: [{apply: mix, aggregate: norm_clip}]}", "1:38", "norm_clip"},
        {"diloco", "{outer_momentum: linear}", "1:18", "expected a mapping"},
        {"diloco", "{outer_momentum: {name: lin}}", "1:18", "known are: constant"},
        {"diloco", "{outer_momentum: {name: linear, power: 2}}", "1:33", "'power'"},
        {"diloco", "{outer_optimizer: sgd, outer_momentum: {name: linear}}", "1:40",
         "with momentum"},
        {"streaming_diloco", "{H: 3}", "1:1", "fragments must be at most 3"},
        {"streaming_diloco", "{fragments: 0}", "1:13", "fragments must be at least 1"},
        {"streaming_diloco", "{alpha: 2}", "1:9", "alpha must be"},
        {"streaming_diloco", "{H: 6, delay: 6}", "1:15", "delay must be less than 6"},
        {"compose", "{exchanges: [{apply: outer, delay: 1}]}", "1:36", "delay must be less than 1"},
        {"onebit_adam", "{optimizer: sgd}", "1:13", "onebit_adam needs adamw"},
        {"streaming_diloco", "{codec: e3m1}", "1:9", "did you mean 'e3m0'?"},
        {"streaming_diloco", "{codec: {name: e3m0, blok: 3}}", "1:22", "'blok'"},
        {"streaming_diloco", "{codec: zstd}", "1:9", "remembers nothing and has a fixed size"},
        {"sparseloco", "{codec: [topk, bins]}", "1:9", "error_feedback: false"},
        {"sparseloco", "{codec: raw}", "1:1", "feedback needs a codec"},
        {"sparseloco", "{feedback: 1.5}", "1:12", "feedback must be"},
        {"eager_diloco", "{delay: 2}", "1:9", "delay must be at most 1"},
        {"compose", "{exchanges: [{codec: e3m0}]}", "1:14", "needs 'apply: outer'"},
        {"compose", "{exchanges: [{codec: e3m0, partners: pairs, apply: outer}]}", "1:14", "codec"},
        {"compose", "{exchanges: [{feedback: 0.5, apply: outer}]}", "1:14", "feedback needs"},
        {"compose", "{exchanges: [{every: 3, select: fragments}]}", "1:33",
         "count must be at most 3"},
        {"compose", "{exchanges: [{apply: eager, delay: 1}]}", "1:14", "leave out"},
        {"compose", "{exchanges: [{apply: eager, select: random}]}", "1:14", "all parameters"},
        {"compose", "{exchanges: [{}, {what: gradients}]}", "1:18", "put them first"},
        {"compose", "{exchanges: [{what: gradients}, {what: gradients}]}", "1:33", "once"},
        {"compose", "{exchanges: [{what: gradients, every: 2}]}", "1:39", "at every step"},
        {"compose", "{exchanges: [{what: gradients, buckets: 2}]}", "1:32", "'buckets'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_err err = {0};
        cr_expect_eq(parse(cases[i].name, cases[i].options, &err), EXO_INVAL, "%s",
                     cases[i].options);
        cr_expect(strstr(err.text, cases[i].place) && strstr(err.text, cases[i].reason),
                  "'%s' gave '%s'", cases[i].options, err.text);
    }
}

Test(strategy, an_island_larger_than_all_nodes_is_a_mistake_with_its_place)
{
    exo_err err = {0};
    exo_strategy *strategy = NULL;
    float params[4] = {0}, grads[4] = {0};
    exo_node node = {.num_nodes = 3,
                     .max_steps = 1,
                     .numel = 4,
                     .params = exo_host_array(EXO_F32, params, 4),
                     .grads = exo_host_array(EXO_F32, grads, 4)};
    cr_assert_eq(exo_strategy_parse(&strategy, "fedavg", "{H: 2, island_size: 4}", &err), EXO_OK,
                 "%s", err.text);
    cr_expect_eq(exo_strategy_check(strategy, 4, &err), EXO_OK);
    cr_expect_eq(exo_strategy_check(strategy, 3, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "fedavg:1:21: island_size must be at most 3") &&
                  strstr(err.text, "got 4"),
              "%s", err.text);
    cr_expect_eq(exo_strategy_start(strategy, &node, &err), EXO_INVAL,
                 "who did not check is told at the start");
    cr_expect_null(node.optim);
    exo_strategy_free(&strategy);
}

Test(strategy, a_rule_that_needs_more_nodes_is_a_mistake_with_its_place)
{
    static const struct {
        const char *name, *options, *text;
        uint32_t least; /* nodes */
    } cases[] = {
        {"local_sgd", "{aggregate: {name: trimmed_mean, trim: 2}}",
         "local_sgd:1:13: with trim 2 at each end nothing is left of the values of 4 nodes", 5},
        {"diloco", "{aggregate: krum}", "diloco:1:13: krum with f 1 needs at least 5 nodes", 5},
        {"diloco", "{aggregate: {name: krum, f: 0, m: 5}}", "m must be at most 4", 5},
        {"diloco", "{aggregate: {name: krum, f: 1, m: 5}}", "m must be at most 4", 6},
        {"fedavg", "{island_size: 4, aggregate: trimmed_mean}", "values of 2 nodes", 7},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_err err = {0};
        exo_strategy *strategy = NULL;
        cr_assert_eq(exo_strategy_parse(&strategy, cases[i].name, cases[i].options, &err), EXO_OK,
                     "%s", err.text);
        cr_expect_eq(exo_strategy_check(strategy, 1, &err) == EXO_OK,
                     strstr(cases[i].options, "island_size") == NULL,
                     "a single node has nothing to aggregate");
        cr_expect_eq(exo_strategy_check(strategy, cases[i].least, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(exo_strategy_check(strategy, cases[i].least - 1, &err), EXO_INVAL);
        cr_expect(strstr(err.text, cases[i].text), "%s", err.text);
        exo_strategy_free(&strategy);
    }
}

Test(strategy, options_that_are_no_yaml_are_an_error)
{
    exo_err err = {0};
    cr_expect_eq(parse("ddp", "{optimizer: ", &err), EXO_INVAL);
    cr_expect_eq(parse("ddp", "[1, 2]", &err), EXO_INVAL);
    cr_expect_neq(err.text[0], '\0');
}

/* --- The inner step --------------------------------------------------------------------------- */

Test(strategy, the_inner_step_follows_schedule_and_clip)
{
    nodes n;
    nodes_init(&n, 1, 2, 1, 100, "ddp",
               "{optimizer: {name: sgd, lr: 0.5}, lr_scheduler: lambda_cosine, warmup_steps: 10, "
               "max_norm: 1}");
    exo_node *node = &n.each[0].node;
    float *params = n.each[0].params, *grads = n.each[0].grads;
    params[0] = params[1] = 0;
    node->step = 4;
    grads[0] = 30;
    grads[1] = 40;
    cr_expect_eq(exo_node_inner_step(node, NULL), EXO_OK);
    cr_expect_float_eq(node->lr, 0.2f, 1e-7f);
    cr_expect_eq(node->grad_norm, 50.0f);
    cr_expect_float_eq(params[0], -0.2f * 0.6f, 1e-6f);
    cr_expect_float_eq(params[1], -0.2f * 0.8f, 1e-6f);
    nodes_release(&n);
}

/* --- The order of calls ----------------------------------------------------------------------- */

static char calls[64];

struct life {
    uint64_t marker;
};

static exo_status
life_init(void *self, exo_config *config, exo_err *err)
{
    strcat(calls, "init ");
    return exo_config_u64(config, "marker", 0, 0, 10, &((struct life *)self)->marker, err);
}

static exo_status
life_start(void *self, exo_node *node, exo_err *err)
{
    strcat(calls, "start ");
    cr_expect_not_null(node->optim, "the inner optimizer is there");
    if (((struct life *)self)->marker == 10)
        return exo_fail(err, EXO_FAILED, "a start that fails");
    return EXO_OK;
}

static exo_status
life_step(void *self, exo_node *node, exo_err *err)
{
    (void)self;
    (void)node;
    (void)err;
    strcat(calls, "step ");
    return EXO_OK;
}

static void
life_release(void *self)
{
    (void)self;
    strcat(calls, "release");
}

static const exo_strategy_class life_class = {.name = "life",
                                              .state_size = sizeof(struct life),
                                              .init = life_init,
                                              .start = life_start,
                                              .step = life_step,
                                              .release = life_release};

Test(strategy, a_class_is_called_in_order_and_released_once)
{
    nodes n;
    cr_assert_eq(exo_strategy_register(&life_class, NULL), EXO_OK);
    nodes_init(&n, 1, 4, 1, 2, "life", "marker: 7");
    nodes_train(&n, 2);
    nodes_release(&n);
    cr_expect_str_eq(calls, "init start step step release");
}

Test(strategy, a_class_is_released_after_failures_too)
{
    exo_err err = {0};
    exo_strategy *strategy = NULL;
    float params[4] = {0}, grads[4] = {0};
    exo_node node = {.num_nodes = 1,
                     .max_steps = 1,
                     .numel = 4,
                     .params = exo_host_array(EXO_F32, params, 4),
                     .grads = exo_host_array(EXO_F32, grads, 4)};
    cr_assert_eq(exo_strategy_register(&life_class, NULL), EXO_OK);
    cr_expect_eq(parse("life", "marker: 11", &err), EXO_INVAL);
    cr_expect_str_eq(calls, "init release");

    calls[0] = '\0';
    cr_assert_eq(exo_strategy_parse(&strategy, "life", "marker: 10", &err), EXO_OK);
    cr_expect_eq(exo_strategy_start(strategy, &node, &err), EXO_FAILED);
    cr_expect_str_eq(err.text, "a start that fails");
    cr_expect_null(node.optim, "nothing is left of a start that failed");
    exo_strategy_free(&strategy);
    cr_expect_str_eq(calls, "init start release");
}

/* --- What a class says of itself -------------------------------------------------------------- */

static struct {
    exo_strategy_edge edge;
    size_t count;
    void *data;
    const char *names[2];
} said;

static size_t
said_edges(const void *self, size_t numel, uint32_t num_nodes,
           exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES])
{
    (void)self;
    (void)numel;
    (void)num_nodes;
    out[0] = said.edge;
    return said.count;
}

static void
said_state(void *self, exo_state *state)
{
    (void)self;
    exo_state_add(state, said.names[0], EXO_F32, said.data, 2);
    exo_state_add(state, said.names[1], EXO_F32, said.data, 2);
}

static const exo_strategy_class said_class = {
    .name = "said", .step = life_step, .edges = said_edges, .state = said_state};

Test(strategy, a_wrong_exchange_is_named_by_the_strategy_and_the_member)
{
    const struct {
        exo_strategy_edge edge;
        size_t count;
        const char *error;
    } rows[] = {
        {{"parameters", "all_reduce", 3, 1, NULL, 0}, 1, NULL},
        {{NULL, NULL, 0, 0, NULL, 0}, 0, NULL},
        {{"parameters", "all_reduce", 3, 1, NULL, 0}, 9, "declares 9 exchanges of at most 4"},
        {{NULL, "all_reduce", 3, 1, NULL, 0}, 1, "with no `carries`"},
        {{"params", "all_reduce", 3, 1, NULL, 0}, 1, "with another `carries`"},
        {{"parameters", NULL, 3, 1, NULL, 0}, 1, "with no `route`"},
        {{"parameters", "all_reduce", -3, 1, NULL, 0}, 1, "with `elements`"},
        {{"parameters", "all_reduce", NAN, 1, NULL, 0}, 1, "with `elements`"},
        {{"parameters", "all_reduce", 3, 0, NULL, 0}, 1, "with `every` 0"},
        {{"parameters", "all_reduce", 3, 1, "[bf16, zstd]", 0}, 1, NULL},
        {{"parameters", "all_reduce", 3, 1, "int9", 0},
         1,
         "an exchange of parameters with a wrong codec: codec:"},
        {{"parameters", "all_reduce", 3, 1, "[bf16", 0},
         1,
         "an exchange of parameters with a wrong codec: codec:"},
    };
    exo_strategy *strategy = NULL;
    cr_assert_eq(exo_strategy_register(&said_class, NULL), EXO_OK);
    cr_assert_eq(exo_strategy_parse(&strategy, "said", "{}", NULL), EXO_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        exo_err err = {0};
        said.edge = rows[i].edge;
        said.count = rows[i].count;
        exo_status st = exo_strategy_check_edges(strategy, NULL, 0, 4, 2, &err);
        cr_expect_eq(st, rows[i].error ? EXO_INVAL : EXO_OK, "row %zu", i);
        if (rows[i].error)
            cr_expect(strstr(err.text, "the strategy 'said': edges ") &&
                          strstr(err.text, rows[i].error),
                      "row %zu: %s", i, err.text);
    }
    exo_strategy_free(&strategy);
}

Test(strategy, a_state_that_no_checkpoint_can_have_ends_the_start)
{
    float params[4] = {0}, grads[4] = {0}, own[2] = {0};
    const struct {
        void *data;
        const char *names[2];
        exo_status status;
        const char *error;
    } rows[] = {
        {own, {"a", "b"}, EXO_OK, ""},
        {own, {"a", "a"}, EXO_EXISTS, "the strategy 'said': the state has two entries 'a'"},
        {NULL,
         {"a", "b"},
         EXO_INVAL,
         "the strategy 'said': the entry 'a' of the state has no memory: NULL"},
    };
    cr_assert_eq(exo_strategy_register(&said_class, NULL), EXO_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        exo_err err = {0};
        exo_strategy *strategy = NULL;
        exo_node node = {.num_nodes = 1,
                         .max_steps = 1,
                         .numel = 4,
                         .params = exo_host_array(EXO_F32, params, 4),
                         .grads = exo_host_array(EXO_F32, grads, 4)};
        said.data = rows[i].data;
        memcpy(said.names, rows[i].names, sizeof said.names);
        cr_assert_eq(exo_strategy_parse(&strategy, "said", "{}", &err), EXO_OK);
        cr_expect_eq(exo_strategy_start(strategy, &node, &err), rows[i].status, "row %zu", i);
        cr_expect_str_eq(err.text, rows[i].error);
        cr_expect_eq(node.optim == NULL, rows[i].status != EXO_OK);
        exo_strategy_free(&strategy);
        exo_optim_free(&node.optim);
    }
}

/* --- Traffic ---------------------------------------------------------------------------------- */

/* Trains nodes of 101 parameters. The counted bytes must be the declared bytes, up to the tolerance. */
static void
expect_traffic_of(uint32_t num_nodes, const char *name, const char *options, uint64_t steps,
                  double tolerance)
{
    exo_strategy_edge edges[EXO_STRATEGY_MAX_EDGES];
    size_t count = 0;
    nodes n;
    nodes_init(&n, num_nodes, 101, 2, 5, name, options);
    cr_assert(exo_strategy_edges(n.each[0].strategy, n.each[0].node.infos, n.each[0].node.num_infos,
                                 101, num_nodes, edges, &count));
    nodes_train(&n, steps);
    double counted = (double)nodes_bytes(&n), declared = 0;
    for (size_t i = 0; i < count; i++) {
        cr_expect_str_eq(edges[i].route, "all_reduce");
        uint32_t meet = edges[i].members ? edges[i].members : num_nodes,
                 left_over = num_nodes % meet;
        /* the sum over islands of their members but one */
        double pairs = num_nodes / meet * (meet - 1) + (left_over ? left_over - 1 : 0);
        declared += 2 * pairs * 4 * edges[i].elements * (double)(steps / edges[i].every);
    }
    cr_expect_float_eq(counted, declared, tolerance * declared + 1e-9, "%s %s: %g, declared %g",
                       name, options, counted, declared);
    nodes_release(&n);
}

static void
expect_traffic(const char *name, const char *options, uint64_t steps, double tolerance)
{
    expect_traffic_of(3, name, options, steps, tolerance);
}

Test(strategy, what_is_declared_is_what_is_sent)
{
    expect_traffic("ddp", "{}", 7, 0);
    expect_traffic("diloco", "H: 3", 10, 0);
    expect_traffic("fedavg", "{H: 3}", 10, 0);
    expect_traffic("fedavg", "{H: 3, island_size: 2}", 10, 0);
    expect_traffic("fedavg", "{H: 3, island_size: 3}", 10, 0);
    expect_traffic("sparta", "{p: 1, interval: 2}", 10, 0);
    expect_traffic("sparta", "{p: 0.1, selector: partitioned}", 20, 1e-12);
    expect_traffic("sparta", "{p: 0.1, selector: shuffled_sequential}", 30, 1e-12);
    expect_traffic("sparta", "{p: 0.3}", 200, 0.05);
    expect_traffic("local_sgd", "{H: 3}", 10, 0);
    expect_traffic("noloco", "{H: 3}", 10, 0);
    expect_traffic("demo", "{k: 3, chunk: 9}", 10, 0);
    expect_traffic("powersgd", "rank: 2", 10, 0);
    expect_traffic("quantized", "{}", 10, 0);
    expect_traffic("quantized", "chunk: 7", 10, 0);
    expect_traffic("islands", "{island_size: 2, inside: powersgd, across: {name: diloco, H: 2}}",
                   10, 0);
    expect_traffic("local_sgd", "{H: 3, aggregate: median}", 10, 0);
    expect_traffic("fedavg", "{H: 3, island_size: 2, aggregate: median}", 10, 0);
    expect_traffic("diloco", "{H: 3, aggregate: trimmed_mean}", 10, 0);
    expect_traffic("diloco", "{H: 3, aggregate: {name: krum, f: 0}}", 10, 0);
    expect_traffic("diloco", "{H: 3, aggregate: norm_clip}", 10, 0);
    expect_traffic("sparta_diloco", "{p: 0.1, selector: partitioned, H: 4}", 20, 1e-12);
    expect_traffic("streaming_diloco", "{H: 4, delay: 0}", 20, 1e-12);
    expect_traffic("streaming_diloco", "{H: 5, fragments: 2, delay: 0, codec: int8}", 20, 1e-12);
    expect_traffic("streaming_diloco", "{H: 4, fragments: 2, delay: 0, codec: raw}", 20, 1e-12);
    expect_traffic(
        "compose",
        "exchanges: [{every: 4, select: {name: fragments, count: 4}, aggregate: median}]", 20,
        1e-12);
    expect_traffic("sparseloco", "{H: 4}", 20, 1e-12);
    expect_traffic("eager_diloco", "{H: 4, delay: 0}", 20, 1e-12);
    expect_traffic("sparta_diloco", "{p: 1, sparta_interval: 4, H: 6}", 24, 1e-12);
    expect_traffic("compose", "exchanges: [{what: gradients}, {every: 3}]", 12, 0);
    expect_traffic("compose", "exchanges: [{every: 4}, {every: 6, partners: pairs}]", 24, 1e-12);
}

/* Fragments of different sizes: units 0 and 2, and unit 1. E3M0 has half a byte a value, two bytes
 * for each block of 128, and a check of four bytes. */
Test(strategy, fragments_are_declared_by_the_units_of_the_model)
{
    static const exo_param_info infos[] = {{.numel = 300, .unit = 0},
                                           {.numel = 41, .offset = 300, .unit = 1},
                                           {.numel = 130, .offset = 341, .unit = 2},
                                           {.numel = 7, .is_buffer = true, .unit = EXO_NO_UNIT}};
    exo_strategy *strategy = NULL;
    exo_strategy_edge edges[EXO_STRATEGY_MAX_EDGES];
    size_t count = 0;
    cr_assert_eq(exo_strategy_parse(&strategy, "streaming_diloco", "{H: 6, fragments: 2}", NULL),
                 EXO_OK);
    cr_assert(exo_strategy_edges(strategy, infos, 4, 471, 3, edges, &count));
    cr_expect_eq(count, 1);
    cr_expect_eq(edges[0].every, 3);
    /* encodings as values of an all_reduce with the same traffic, on average over two rounds */
    cr_expect_eq(edges[0].elements, ((215 + 8 + 4) + (21 + 2 + 4)) / 2.0 * 3 / 8);
    exo_strategy_free(&strategy);
}

/* Each edge's elements are those of an all_reduce among N nodes, 2 (N - 1) / N of which a node sends. */
Test(strategy, fsdp_declares_the_matrices_that_muon_gathers)
{
    static const exo_param_info infos[] = {
        {.name = "in", .num_dims = 2, .dims = {20, 5}, .numel = 100, .at_boundary = true},
        {.name = "mid", .num_dims = 2, .dims = {10, 30}, .offset = 100, .numel = 300},
        {.name = "bias", .num_dims = 1, .dims = {70}, .offset = 400, .numel = 70}};
    static const struct {
        const char *options;
        double elements;
    } cases[] = {
        {"{sharding_strategy: shard_grad_op, optimizer: sgd}", 470},
        {"{sharding_strategy: shard_grad_op, optimizer: muon}", 470 + 300 / 2.0},
        {"{sharding_strategy: full_shard, optimizer: {name: muon, matrices: all}}",
         3 * 470 / 2.0 + 400 / 2.0},
        {"{sharding_strategy: full_shard, optimizer: {name: muon, groups: [{match: mid, matrices: "
         "none}]}}",
         3 * 470 / 2.0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_strategy *strategy = NULL;
        exo_strategy_edge edges[EXO_STRATEGY_MAX_EDGES];
        size_t count = 0;
        exo_err err = {0};
        cr_assert_eq(exo_strategy_parse(&strategy, "fsdp", cases[i].options, &err), EXO_OK, "%s",
                     err.text);
        cr_assert(exo_strategy_edges(strategy, infos, 3, 470, 4, edges, &count));
        cr_expect_eq(count, 1);
        cr_expect_float_eq(edges[0].elements, cases[i].elements, 1e-9, "%s: %g", cases[i].options,
                           edges[0].elements);
        exo_strategy_free(&strategy);
    }
}

/* With the remainder, which has another shard size and other numbers for its rule. */
Test(strategy, islands_of_different_sizes_declare_what_they_send)
{
    expect_traffic_of(5, "fedavg", "{H: 2, island_size: 3}", 10, 1e-12);
    expect_traffic_of(8, "fedavg", "{H: 2, island_size: 5, aggregate: median}", 10, 1e-12);
    expect_traffic_of(7, "fedavg", "{H: 2, island_size: 4, aggregate: {name: krum, f: 0}}", 10,
                      1e-12);
    expect_traffic_of(7, "compose",
                      "exchanges: [{every: 2, partners: pairs}, {every: 5, partners: {name: "
                      "islands, island_size: 5}}]",
                      20, 1e-12);
}

Test(strategy, exchanges_of_one_edge_share_their_greatest_interval)
{
    exo_strategy *strategy = NULL;
    exo_strategy_edge edges[EXO_STRATEGY_MAX_EDGES];
    size_t count = 0;
    cr_assert_eq(exo_strategy_parse(&strategy, "compose",
                                    "exchanges: [{every: 4}, {every: 6}, {every: 10}]", NULL),
                 EXO_OK);
    cr_assert(exo_strategy_edges(strategy, NULL, 0, 60, 3, edges, &count));
    cr_expect_eq(count, 1);
    cr_expect_eq(edges[0].every, 2);
    cr_expect_float_eq(edges[0].elements, 60 * (2 / 4.0 + 2 / 6.0 + 2 / 10.0), 1e-9);
    exo_strategy_free(&strategy);
}

Test(strategy, one_that_does_not_declare_says_so)
{
    exo_strategy *strategy = NULL;
    exo_strategy_edge edges[EXO_STRATEGY_MAX_EDGES];
    size_t count = 0;
    cr_assert_eq(exo_strategy_register(&life_class, NULL), EXO_OK);
    cr_assert_eq(exo_strategy_parse(&strategy, "life", "marker: 7", NULL), EXO_OK);
    cr_expect(!exo_strategy_edges(strategy, NULL, 0, 101, 3, edges, &count));
    exo_strategy_free(&strategy);
}

/* --- Memory ----------------------------------------------------------------------------------- */

/* The bytes that a node of so many holds once its strategy has started. */
static double
bytes_of_a_node(uint32_t num_nodes, const char *name, const char *options)
{
    nodes n;
    struct mallinfo2 before = mallinfo2();
    nodes_init(&n, num_nodes, 200000, 1, 8, name, options);
    struct mallinfo2 after = mallinfo2();
    nodes_release(&n);
    return ((double)(after.uordblks + after.hblkhd) - (double)(before.uordblks + before.hblkhd)) /
           num_nodes;
}

/* Nodes of one process have the messages of all in common, so that memory is linear in the nodes: with
 * the messages of all on each node, one of eight has up to twice as much as one of two. The sanitizers'
 * allocators count nothing. */
Test(strategy, more_nodes_of_a_process_take_no_more_memory_each)
{
    static const struct {
        const char *name, *options;
    } rows[] = {
        {"streaming_diloco", "{H: 2, fragments: 2, codec: bf16}"},
        {"sparseloco", "{H: 2, codec: fp16}"},
        {"demo", "{k: 64, chunk: 8}"},
        {"quantized", "chunk: 16"},
        {"quantized", "{chunk: 256, error_feedback: true}"},
    };
    for (size_t i = 0; !SANITIZED && i < sizeof rows / sizeof *rows; i++) {
        bytes_of_a_node(8, rows[i].name, rows[i].options); /* what is allocated once */
        double two = bytes_of_a_node(2, rows[i].name, rows[i].options),
               eight = bytes_of_a_node(8, rows[i].name, rows[i].options);
        cr_expect_leq(eight, 1.03 * two, "%s: %.0f bytes a node, among two %.0f", rows[i].name,
                      eight, two);
    }
}

/* --- Failures --------------------------------------------------------------------------------- */

static const struct {
    const char *name, *options;
} all[] = {
    {"ddp", "optimizer: {name: rmsprop, centered: true, momentum: 0.5}"},
    {"diloco", "H: 5"},
    {"fedavg", "H: 2"},
    {"fedavg", "{H: 1, island_size: 2}"},
    {"sparta", "p: 0.1"},
    {"sparta", "{p: 0.1, selector: partitioned, delay: 2}"},
    {"noloco", "H: 1"},
    {"demo", "{k: 3, chunk: 9}"},
    {"onebit_adam", "freeze_step: 1"},
    {"powersgd", "rank: 2"},
    {"quantized", "{chunk: 10, error_feedback: true}"},
    {"fedavg", "{H: 1, aggregate: norm_clip}"},
    {"diloco", "{H: 1, aggregate: median}"},
    {"sparta_diloco", "{p: 0.1, H: 2}"},
    {"streaming_diloco", "{H: 4, delay: 2}"},
    {"streaming_diloco", "{H: 2, fragments: 2, delay: 0, codec: raw}"},
    {"sparseloco", "{H: 1}"},
    {"eager_diloco", "{H: 1}"},
    {"compose", "exchanges: [{what: gradients, bucket_size: 8 B}, {every: 2, delay: 1, partners: "
                "{name: islands, island_size: 2}, apply: {name: mix}}, {select: {name: random, "
                "p: 0.1}, apply: mix}]"},
};

Test(strategy, every_failed_allocation_of_new_is_an_error_and_leaks_nothing)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        exo_status st = EXO_NOMEM;
        uint64_t n = 1;
        for (; st != EXO_OK; n++) {
            exo_err err = {0};
            exo_memory_fail_at(n);
            st = parse(all[i].name, all[i].options, &err);
            exo_memory_fail_at(0);
            cr_assert(st == EXO_OK || (st == EXO_NOMEM && err.text[0]), "%s: %s",
                      exo_status_text(st), err.text);
        }
        cr_expect_gt(n, 3);
    }
}

Test(strategy, every_failed_allocation_of_start_is_an_error_and_leaks_nothing)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        exo_status st = EXO_NOMEM;
        uint64_t n = 1;
        for (; st != EXO_OK; n++) {
            float params[100] = {0}, grads[100] = {0};
            exo_node node = {.num_nodes = 2,
                             .max_steps = 1,
                             .numel = 100,
                             .params = exo_host_array(EXO_F32, params, 100),
                             .grads = exo_host_array(EXO_F32, grads, 100)};
            exo_err err = {0};
            exo_strategy *strategy = NULL;
            cr_assert_eq(exo_strategy_parse(&strategy, all[i].name, all[i].options, &err), EXO_OK);
            exo_memory_fail_at(n);
            st = exo_strategy_start(strategy, &node, &err);
            exo_memory_fail_at(0);
            cr_assert(st == EXO_OK || (st == EXO_NOMEM && err.text[0] && !node.optim));
            exo_strategy_free(&strategy);
            exo_optim_free(&node.optim);
        }
        cr_expect_gt(n, 3);
    }
}

Test(strategy, a_lost_peer_ends_the_step_with_its_cause)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        exo_err err = {0};
        nodes n;
        nodes_init(&n, 2, 100, 1, 10, all[i].name, i == 1 ? "H: 1" : all[i].options);
        exo_comm_fail(n.comm, 1, "the power is out");
        exo_status st = EXO_OK;
        for (int step = 0; step < 4 && st == EXO_OK; step++, n.each[0].node.step++)
            st = exo_strategy_step(n.each[0].strategy, &n.each[0].node, &err);
        cr_expect_eq(st, EXO_PEER_LOST);
        cr_expect_not_null(strstr(err.text, "the power is out"), "%s", err.text);
        nodes_release(&n);
    }
}
