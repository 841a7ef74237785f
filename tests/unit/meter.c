/* Meters: a tree of what is counted. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory_fault.h"
#include "base/meter.h"

static const exo_meter_class rounds = {
    .name = "rounds", .unit = "1", .help = "rounds that were made"};
static const exo_meter_class loss = {
    .name = "loss", .unit = "nats", .help = "the latest loss", .kind = EXO_GAUGE};
static const exo_meter_class waits = {.name = "waits",
                                      .unit = "s",
                                      .help = "how long calls took",
                                      .kind = EXO_HISTOGRAM,
                                      .bounds = (const double[]){0.1, 1, 10},
                                      .num_bounds = 3};

static exo_meters *
new_tree(void)
{
    exo_meters *tree = NULL;
    cr_assert_eq(exo_meters_new(&tree, NULL), EXO_OK);
    return tree;
}

/* A line for each meter: "path=value unit". */
static void
write_line(void *context, const exo_meter_sample *s)
{
    char *text = context;
    size_t used = strlen(text);
    if (s->meter_class->kind == EXO_COUNTER)
        sprintf(text + used, "%s=%llu %s\n", s->path, (unsigned long long)s->count,
                s->meter_class->unit);
    else
        sprintf(text + used, "%s=%g %s\n", s->path, s->value, s->meter_class->unit);
}

Test(meter, a_sink_sees_what_was_declared_in_order)
{
    exo_meters *tree = new_tree(), *node = NULL, *strategy = NULL;
    exo_meter *r = NULL, *l = NULL, *top = NULL;
    cr_assert_eq(exo_meters_scope(&node, tree, "node_0", NULL), EXO_OK);
    cr_assert_eq(exo_meters_scope(&strategy, node, "strategy", NULL), EXO_OK);
    cr_assert_eq(exo_meter_declare(&l, node, &loss, NULL), EXO_OK);
    cr_assert_eq(exo_meter_declare(&r, strategy, &rounds, NULL), EXO_OK);
    cr_assert_eq(exo_meter_declare(&top, tree, &rounds, NULL), EXO_OK);
    exo_meter_add(r, 2);
    exo_meter_add(r, 3);
    exo_meter_set(l, 0.5);
    exo_meter_count(top, 7);
    char text[256] = "";
    cr_assert_eq(exo_meters_walk(tree, write_line, text, NULL), EXO_OK);
    cr_expect_str_eq(text, "node_0.strategy.rounds=5 1\nnode_0.loss=0.5 nats\nrounds=7 1\n");
    text[0] = '\0';
    cr_assert_eq(exo_meters_walk(node, write_line, text, NULL), EXO_OK);
    cr_expect_str_eq(text, "strategy.rounds=5 1\nloss=0.5 nats\n",
                     "paths begin where the walk does");
    exo_meters_free(&tree);
    cr_expect_null(tree);
    exo_meters_free(&tree);
}

static void
keep_sample(void *context, const exo_meter_sample *s)
{
    *(exo_meter_sample *)context = *s;
}

Test(meter, a_gauge_is_no_number_until_it_is_set)
{
    exo_meters *tree = new_tree();
    exo_meter *l = NULL;
    exo_meter_sample s = {0};
    cr_assert_eq(exo_meter_declare(&l, tree, &loss, NULL), EXO_OK);
    exo_meters_walk(tree, keep_sample, &s, NULL);
    cr_expect(isnan(s.value));
    exo_meter_set(l, -1);
    exo_meters_walk(tree, keep_sample, &s, NULL);
    cr_expect_eq(s.value, -1);
    exo_meters_free(&tree);
}

Test(meter, a_histogram_counts_what_is_at_most_each_bound)
{
    exo_meters *tree = new_tree();
    exo_meter *w = NULL;
    exo_meter_sample s = {0};
    cr_assert_eq(exo_meter_declare(&w, tree, &waits, NULL), EXO_OK);
    const double seen[] = {0.1, 0.05, 0.5, 10, 11, (double)NAN};
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++)
        exo_meter_observe(w, seen[i]);
    exo_meters_walk(tree, keep_sample, &s, NULL);
    cr_expect_eq(s.count, 6);
    cr_expect_eq(s.buckets[0], 2);
    cr_expect_eq(s.buckets[1], 1);
    cr_expect_eq(s.buckets[2], 1);
    cr_expect_eq(s.buckets[3], 2);
    cr_expect_float_eq(s.value, 21.65, 1e-12);
    exo_meters_free(&tree);
}

Test(meter, the_same_again_is_the_same_and_another_is_refused)
{
    static const exo_meter_class other = {.name = "rounds", .unit = "1", .help = "something else"};
    exo_meters *tree = new_tree(), *scope = NULL, *again = NULL;
    exo_meter *a = NULL, *b = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_meter_declare(&a, tree, &rounds, &err), EXO_OK);
    cr_assert_eq(exo_meter_declare(&b, tree, &rounds, &err), EXO_OK);
    cr_expect_eq(a, b);
    cr_expect_eq(exo_meter_declare(&b, tree, &other, &err), EXO_EXISTS);
    cr_expect_eq(exo_meters_scope(&scope, tree, "rounds", &err), EXO_EXISTS);
    cr_assert_eq(exo_meters_scope(&scope, tree, "node_0", &err), EXO_OK);
    cr_assert_eq(exo_meters_scope(&again, tree, "node_0", &err), EXO_OK);
    cr_expect_eq(scope, again);
    exo_meters_free(&tree);
}

Test(meter, classes_and_names_are_checked)
{
    static const double falling[] = {2, 1};
    static const exo_meter_class nameless = {.unit = "1", .help = "x"},
                                 helpless = {.name = "x", .unit = "1"},
                                 dotted = {.name = "a.b", .unit = "1", .help = "x"},
                                 unbound = {.name = "x",
                                            .unit = "1",
                                            .help = "x",
                                            .kind = EXO_HISTOGRAM},
                                 down = {.name = "x",
                                         .unit = "1",
                                         .help = "x",
                                         .kind = EXO_HISTOGRAM,
                                         .bounds = falling,
                                         .num_bounds = 2};
    const exo_meter_class *const wrong[] = {&nameless, &helpless, &dotted, &unbound, &down};
    exo_meters *tree = new_tree(), *scope = NULL;
    exo_meter *m = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_expect_eq(exo_meter_declare(&m, tree, wrong[i], NULL), EXO_INVAL);
    cr_expect_eq(exo_meters_scope(&scope, tree, "", NULL), EXO_INVAL);
    cr_expect_eq(exo_meters_scope(&scope, tree, "a.b", NULL), EXO_INVAL);
    exo_meter_add(NULL, 1);
    exo_meter_count(NULL, 1);
    exo_meter_set(NULL, 1);
    exo_meter_observe(NULL, 1);
    exo_meters_free(&tree);
}

Test(meter, each_allocation_may_fail)
{
    for (uint64_t n = 1; n <= 4; n++) {
        exo_meters *tree = NULL, *scope = NULL;
        exo_meter *m = NULL;
        exo_memory_fail_at(n);
        exo_status st = exo_meters_new(&tree, NULL);
        if (st == EXO_OK)
            st = exo_meters_scope(&scope, tree, "node_0", NULL);
        if (st == EXO_OK)
            st = exo_meter_declare(&m, scope, &rounds, NULL);
        cr_expect_eq(st, EXO_NOMEM, "allocation %d", (int)n);
        exo_meters_free(&tree);
    }
    exo_memory_fail_at(0);
}

Test(meter, nobody_s_scope_has_no_meters_and_counts_nothing)
{
    exo_meters *scope = NULL;
    exo_meter *m = NULL;
    char text[64] = "";
    cr_expect_eq(exo_meters_scope(&scope, NULL, "node_0", NULL), EXO_OK);
    cr_expect_null(scope);
    cr_expect_eq(exo_meter_declare(&m, scope, &rounds, NULL), EXO_OK);
    cr_expect_null(m);
    cr_expect_eq(exo_meters_walk(scope, write_line, text, NULL), EXO_OK);
    cr_expect_str_eq(text, "");
    exo_meter_add(m, 1);
}

/* A tree is written from the samples of another, and again: the later values are there. */
static void
put_sample(void *context, const exo_meter_sample *s)
{
    exo_err err = {0};
    cr_expect_eq(exo_meters_put(context, s, &err), EXO_OK, "%s", err.text);
}

Test(meter, what_was_counted_elsewhere_is_put_into_a_tree)
{
    exo_meters *there = new_tree(), *here = new_tree(), *node = NULL;
    exo_meter *r = NULL, *l = NULL, *w = NULL;
    exo_meter_sample s = {0};
    cr_assert_eq(exo_meters_scope(&node, there, "node_0", NULL), EXO_OK);
    cr_assert_eq(exo_meter_declare(&r, node, &rounds, NULL), EXO_OK);
    cr_assert_eq(exo_meter_declare(&l, node, &loss, NULL), EXO_OK);
    cr_assert_eq(exo_meter_declare(&w, node, &waits, NULL), EXO_OK);
    for (int i = 1; i <= 2; i++) {
        exo_meter_add(r, 5);
        exo_meter_set(l, 1.0 / i);
        exo_meter_observe(w, 0.5);
        cr_assert_eq(exo_meters_walk(there, put_sample, here, NULL), EXO_OK);
    }
    exo_meters_free(&there); /* what it had is copied */
    cr_assert(exo_meters_get(here, "node_0.rounds", &s));
    cr_expect_eq(s.count, 10);
    cr_expect_str_eq(s.meter_class->help, rounds.help);
    cr_assert(exo_meters_get(here, "node_0.loss", &s));
    cr_expect_eq(s.value, 0.5);
    cr_assert(exo_meters_get(here, "node_0.waits", &s));
    cr_expect_eq(s.count, 2);
    cr_expect_eq(s.buckets[1], 2);
    cr_expect_eq(s.meter_class->bounds[2], 10);
    static const char *const none[] = {"",         "node_0",        "node_0.", "node_0.rounds.x",
                                       "node_0.x", "node_1.rounds", "rounds"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        cr_expect_not(exo_meters_get(here, none[i], &s), "%s", none[i]);
    exo_meters_free(&here);
}

Test(meter, what_does_not_fit_is_refused)
{
    static const exo_meter_class bytes = {.name = "rounds", .unit = "bytes", .help = "x"},
                                 comma = {.name = "x", .unit = "a,b", .help = "x"},
                                 lines = {.name = "x", .unit = "1", .help = "a\nb"},
                                 latin = {.name = "x", .unit = "1", .help = "\xe4"};
    exo_meters *tree = new_tree();
    exo_meter *m = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_meter_declare(&m, tree, &rounds, NULL), EXO_OK);
    cr_expect_eq(
        exo_meters_put(tree, &(exo_meter_sample){.path = "rounds", .meter_class = &bytes}, &err),
        EXO_EXISTS);
    cr_expect_eq(
        exo_meters_put(tree, &(exo_meter_sample){.path = "rounds.x", .meter_class = &bytes}, &err),
        EXO_EXISTS);
    cr_expect_eq(
        exo_meters_put(tree, &(exo_meter_sample){.path = "a..x", .meter_class = &bytes}, &err),
        EXO_INVAL);
    cr_expect_eq(exo_meters_put(tree, &(exo_meter_sample){.path = "", .meter_class = &bytes}, &err),
                 EXO_INVAL);
    cr_expect_eq(
        exo_meters_put(
            tree, &(exo_meter_sample){.path = "rounds", .meter_class = &rounds, .count = 3}, &err),
        EXO_OK, "%s", err.text);
    cr_expect_eq(exo_meter_declare(&m, tree, &comma, NULL), EXO_INVAL);
    cr_expect_eq(exo_meter_declare(&m, tree, &lines, NULL), EXO_INVAL);
    cr_expect_eq(exo_meter_declare(&m, tree, &latin, NULL), EXO_INVAL);
    exo_meters_free(&tree);
}

Test(meter, samples_add_up_over_a_resume)
{
    exo_meter_sample since = {
        .meter_class = &waits, .count = 2, .value = 1, .buckets = {1, 1, 0, 0}};
    exo_meter_sample before = {
        .meter_class = &waits, .count = 3, .value = 30, .buckets = {0, 1, 1, 1}};
    exo_meter_sample_add(&since, &before);
    cr_expect_eq(since.count, 5);
    cr_expect_eq(since.value, 31);
    cr_expect_eq(since.buckets[1], 2);
    cr_expect_eq(since.buckets[3], 1);
    exo_meter_sample unset = {.meter_class = &loss, .value = (double)NAN},
                     set = {.meter_class = &loss, .value = 4};
    exo_meter_sample_add(&unset, &set);
    cr_expect_eq(unset.value, 4);
    exo_meter_sample_add(&set, &(exo_meter_sample){.meter_class = &loss, .value = 7});
    cr_expect_eq(set.value, 4);
    exo_meter_sample_add(&set, &before); /* something else */
    cr_expect_eq(set.value, 4);
}
