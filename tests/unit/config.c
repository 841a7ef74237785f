/* Strict configuration: the values that are read, and errors that name the mistake's place. Each
 * test owns its documents. Read next: exogym/config.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/config.h>
#include <exogym/memory.h>
#include <exogym/rng.h>

#include "base/config_edit.h"
#include "base/memory_fault.h"

/* Parses `text` as the file job.yaml. A refusal fails the test. */
static exo_config_doc *
parse(const char *text)
{
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_config_parse(&doc, "job.yaml", text, &err), EXO_OK, "%s", err.text);
    return doc;
}

/* Expects that `text` is refused with this message. */
static void
expect_refused(const char *text, const char *message)
{
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_config_parse(&doc, "job.yaml", text, &err), EXO_INVAL, "accepted: %s", text);
    cr_expect_str_eq(err.text, message);
    cr_expect_null(doc);
}

/* A reader of the key k. The comments state the accepted ranges. */
enum reader {
    BOOL,
    U64,    /* 1 to 100 */
    DOUBLE, /* 0 to 1 */
    STRING,
    CHOICE,
    MAP,
    LIST
};

static void
expect_error(const char *text, enum reader reader, const char *message)
{
    static const char *const choices[] = {"random", "partitioned", NULL};
    exo_config_doc *doc = parse(text);
    exo_config *root = exo_config_root(doc), *node = NULL;
    exo_err err = {0};
    exo_status st = EXO_OK;
    bool flag = true;
    uint64_t integer = 77;
    double number = 77;
    const char *string = "77";
    size_t choice = 77;
    switch (reader) {
    case BOOL:
        st = exo_config_bool(root, "k", false, &flag, &err);
        break;
    case U64:
        st = exo_config_u64(root, "k", 5, 1, 100, &integer, &err);
        break;
    case DOUBLE:
        st = exo_config_double(root, "k", 0.5, 0, 1, &number, &err);
        break;
    case STRING:
        st = exo_config_string(root, "k", NULL, &string, &err);
        break;
    case CHOICE:
        st = exo_config_choice(root, "k", 0, choices, &choice, &err);
        break;
    case MAP:
        st = exo_config_map(root, "k", &node, &err);
        break;
    case LIST:
        st = exo_config_list(root, "k", &node, &err);
        break;
    }
    cr_expect_eq(st, EXO_INVAL, "accepted: %s", text);
    cr_expect_str_eq(err.text, message);
    /* a refused value leaves the result unchanged */
    cr_expect(flag && integer == 77 && number == 77 && choice == 77 && !node);
    cr_expect_str_eq(string, "77");
    exo_config_free(&doc);
}

Test(config, typed_values_are_read)
{
    exo_config_doc *doc = parse("flag: true\nsteps: 150\nlr: 3e-4\nname: mlp\nkind: b\n"
                                "map: {x: 1}\nlist: [a, 'b', {c: 1}]\n");
    exo_config *root = exo_config_root(doc), *map = NULL, *list = NULL;
    bool flag = false;
    uint64_t steps = 0;
    double lr = 0;
    const char *name = NULL;
    size_t kind = 9;
    cr_expect_eq(exo_config_bool(root, "flag", false, &flag, NULL), EXO_OK);
    cr_expect_eq(exo_config_u64(root, "steps", 0, 0, UINT64_MAX, &steps, NULL), EXO_OK);
    cr_expect_eq(exo_config_double(root, "lr", 0, 0, 1, &lr, NULL), EXO_OK);
    cr_expect_eq(exo_config_string(root, "name", NULL, &name, NULL), EXO_OK);
    cr_expect_eq(
        exo_config_choice(root, "kind", 0, (const char *const[]){"a", "b", NULL}, &kind, NULL),
        EXO_OK);
    cr_expect_eq(exo_config_map(root, "map", &map, NULL), EXO_OK);
    cr_expect_eq(exo_config_list(root, "list", &list, NULL), EXO_OK);
    cr_expect(flag);
    cr_expect_eq(steps, 150);
    cr_expect_eq(lr, 3e-4);
    cr_expect_str_eq(name, "mlp");
    cr_expect_eq(kind, 1);
    cr_expect(exo_config_is_map(map));
    cr_expect(exo_config_is_list(list));
    cr_expect_eq(exo_config_length(list), 3);
    cr_expect_str_eq(exo_config_scalar(exo_config_item(list, 1)), "b");
    cr_expect_null(exo_config_scalar(exo_config_item(list, 2)));
    cr_expect_str_eq(exo_config_plain(exo_config_item(list, 0)), "a");
    cr_expect_null(exo_config_plain(exo_config_item(list, 1)), "a string in quotes");
    cr_expect_null(exo_config_plain(exo_config_item(list, 2)));
    cr_expect_null(exo_config_item(list, 3));
    cr_expect_eq(exo_config_finish(root, NULL), EXO_OK);
    exo_config_free(&doc);
    cr_expect_null(doc);
}

Test(config, missing_keys_take_the_fallback)
{
    exo_config_doc *doc = parse("");
    /* an empty document, and no mapping */
    exo_config *nodes[] = {exo_config_root(doc), NULL};
    for (int i = 0; i < 2; i++) {
        uint64_t steps = 0;
        double p = 0;
        exo_config *map = nodes[0];
        cr_expect_eq(exo_config_u64(nodes[i], "steps", 7, 1, 10, &steps, NULL), EXO_OK);
        cr_expect_eq(exo_config_double(nodes[i], "p", 0.25, 0, 1, &p, NULL), EXO_OK);
        cr_expect_eq(exo_config_map(nodes[i], "map", &map, NULL), EXO_OK);
        cr_expect_eq(steps, 7);
        cr_expect_eq(p, 0.25);
        cr_expect_null(map);
        cr_expect_not(exo_config_has(nodes[i], "steps"));
        cr_expect_eq(exo_config_finish(nodes[i], NULL), EXO_OK);
    }
    exo_config_free(&doc);
}

Test(config, wrong_types_are_named_with_their_place)
{
    expect_error("k: abc", U64, "job.yaml:1:4: k: expected an integer, got 'abc'");
    expect_error("\n\n  k:   1.0", U64, "job.yaml:3:8: k: expected an integer, got '1.0'");
    expect_error("k: 1e3", U64, "job.yaml:1:4: k: expected an integer, got '1e3'");
    expect_error("k: 12x", U64, "job.yaml:1:4: k: expected an integer, got '12x'");
    expect_error("k: \"12\"", U64, "job.yaml:1:4: k: expected an integer, got the string \"12\"");
    expect_error("k: [1]", U64, "job.yaml:1:4: k: expected an integer, got a list");
    expect_error("k:", U64, "job.yaml:1:1: k: expected an integer, got nothing");
    expect_error("k: ~", STRING, "job.yaml:1:4: k: expected a string, got nothing");
    expect_error("k: yes", BOOL, "job.yaml:1:4: k: expected true or false, got 'yes'");
    expect_error("k: 'true'", BOOL,
                 "job.yaml:1:4: k: expected true or false, got the string \"true\"");
    expect_error("k: {a: 1}", DOUBLE, "job.yaml:1:4: k: expected a number, got a mapping");
    expect_error("k: 0.5.1", DOUBLE, "job.yaml:1:4: k: expected a number, got '0.5.1'");
    expect_error("k: 1e", DOUBLE, "job.yaml:1:4: k: expected a number, got '1e'");
    expect_error("k: .nan", DOUBLE, "job.yaml:1:4: k: expected a number, got '.nan'");
    expect_error("k: nan", DOUBLE, "job.yaml:1:4: k: expected a number, got 'nan'");
    expect_error("k: .inf", DOUBLE, "job.yaml:1:4: k: expected a number, got '.inf'");
    expect_error("k: 0x10", U64, "job.yaml:1:4: k: expected an integer, got '0x10'");
    expect_error("k: fast", CHOICE,
                 "job.yaml:1:4: k: expected one of random, partitioned, got 'fast'");
    expect_error("k: adamw", MAP, "job.yaml:1:4: k: expected a mapping, got 'adamw'");
    expect_error("k: {}", LIST, "job.yaml:1:4: k: expected a list, got a mapping");
    expect_error("[k]", U64, "job.yaml:1:1: expected a mapping, got a list");
}

Test(config, ranges_are_named_with_their_place)
{
    expect_error("k: 0", U64, "job.yaml:1:4: k must be at least 1, got 0");
    expect_error("k: -3", U64, "job.yaml:1:4: k must be at least 1, got -3");
    expect_error("k: 101", U64, "job.yaml:1:4: k must be at most 100, got 101");
    expect_error("k: 18446744073709551617", U64,
                 "job.yaml:1:4: k must be at most 100, got 18446744073709551617");
    expect_error("k: -18446744073709551617", U64,
                 "job.yaml:1:4: k must be at least 1, got -18446744073709551617");
    expect_error("k: 1.5", DOUBLE, "job.yaml:1:4: k must be at most 1, got 1.5");
    expect_error("k: -1e-9", DOUBLE, "job.yaml:1:4: k must be at least 0, got -1e-9");
    expect_error("k: 1e999", DOUBLE, "job.yaml:1:4: k: 1e999 is too large for a number");
    expect_error("k: 1e-400", DOUBLE,
                 "job.yaml:1:4: k: 1e-400 is too small for a number, and would be 0");
    expect_error("k: -.001E-400", DOUBLE,
                 "job.yaml:1:4: k: -.001E-400 is too small for a number, and would be 0");
}

Test(config, numbers_of_every_form)
{
    static const struct {
        const char *text;
        double value;
    } rows[] = {{"k: 1", 1},      {"k: 1e-4", 1e-4}, {"k: 3E-4", 3e-4},  {"k: +.5", 0.5},
                {"k: 1.", 1},     {"k: -0.0", 0},    {"k: 007", 7},      {"k: 0.1e1", 1},
                {"k: 5e+0", 5.0}, {"k: 0e-9", 0},    {"k: 0.0E-999", 0}, {"k: 5e-324", 5e-324}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        exo_config_doc *doc = parse(rows[i].text);
        exo_err err = {0};
        double value = 99;
        cr_expect_eq(exo_config_double(exo_config_root(doc), "k", 0, -10, 10, &value, &err), EXO_OK,
                     "%s", err.text);
        cr_expect_eq(value, rows[i].value, "%s gave %g", rows[i].text, value);
        exo_config_free(&doc);
    }
    exo_config_doc *doc = parse("k: 18446744073709551615");
    uint64_t all = 0;
    cr_expect_eq(exo_config_u64(exo_config_root(doc), "k", 0, 0, UINT64_MAX, &all, NULL), EXO_OK);
    cr_expect_eq(all, UINT64_MAX);
    exo_config_free(&doc);
}

/* Expects an unknown key in a mapping whose reader knows max_steps, batch_size and H. */
static void
expect_unknown(const char *text, const char *message)
{
    exo_config_doc *doc = parse(text);
    exo_config *root = exo_config_root(doc);
    uint64_t ignored = 0;
    exo_err err = {0};
    exo_config_u64(root, "max_steps", 1, 0, 100, &ignored, NULL);
    exo_config_u64(root, "batch_size", 1, 0, 100, &ignored, NULL);
    exo_config_u64(root, "H", 1, 0, 100, &ignored, NULL);
    cr_expect_eq(exo_config_finish(root, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, message);
    exo_config_free(&doc);
}

Test(config, unknown_keys_are_refused_with_a_hint)
{
    expect_unknown("H: 1\nmax_step: 3",
                   "job.yaml:2:1: unknown key 'max_step'; did you mean 'max_steps'?");
    expect_unknown("{bacth_size: 3}",
                   "job.yaml:1:2: unknown key 'bacth_size'; did you mean 'batch_size'?");
    expect_unknown("q: 3", "job.yaml:1:1: unknown key 'q'; known are: H, batch_size, max_steps");
    exo_config_doc *doc = parse("a: 1");
    exo_err err = {0};
    cr_expect_eq(exo_config_finish(exo_config_root(doc), &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "job.yaml:1:1: unknown key 'a'; there are none here");
    exo_config_free(&doc);
}

Test(config, walking_a_mapping_knows_its_keys)
{
    exo_config_doc *doc = parse("b: 1\na: 2");
    exo_config *root = exo_config_root(doc), *value = NULL;
    cr_expect_str_eq(exo_config_key(root, 0, &value), "b");
    cr_expect_str_eq(exo_config_scalar(value), "1");
    cr_expect_str_eq(exo_config_key(root, 1, NULL), "a");
    cr_expect_null(exo_config_key(root, 2, &value));
    cr_expect_eq(exo_config_finish(root, NULL), EXO_OK);
    exo_config_free(&doc);
}

Test(config, what_is_not_a_configuration_is_refused)
{
    expect_refused("a: 1\na: 2", "job.yaml:2:1: duplicate key 'a', first in line 1");
    expect_refused("a: @x", "job.yaml:1:4: plain scalar cannot start with '@'");
    expect_refused("a: 'x", "job.yaml:1:5: single-quoted scalar without closing quote");
    expect_refused("a: *x", "job.yaml:1:4: *x: there is no such anchor before it");
    expect_refused("a: &a [*a]", "job.yaml:1:8: *a: there is no such anchor before it");
    expect_refused("a: !!int 3", "job.yaml:1:10: tags (!) are not supported");
    expect_refused("? [a]\n: 1", "job.yaml:1:3: a key must be a plain word");
    expect_refused("--- a\n--- b", "job.yaml:2:1: a second document begins here; one is expected");
    expect_refused("a: \"\\0\"", "job.yaml:1:4: an escape in this string is no character");
    expect_refused("a: b\nc: \xff", "job.yaml:2:4: byte 0xff is not UTF-8 text");
    expect_refused("a: {<<: 3}", "job.yaml:1:9: <<: expected a mapping or a list of mappings");
}

Test(config, aliases_and_merge_keys)
{
    exo_config_doc *doc = parse("base: &b {H: 4, lr: 3e-4}\none: *b\ntwo:\n  <<: *b\n  H: 8\n"
                                "three: {<<: [{H: 1}, {H: 2, p: 3}]}");
    char *text = NULL;
    cr_assert_eq(exo_config_text(exo_config_root(doc), &text, NULL), EXO_OK);
    cr_expect_str_eq(text, "{base: {H: 4, lr: 3e-4}, one: {H: 4, lr: 3e-4}, two: {H: 8, lr: 3e-4}, "
                           "three: {H: 1, p: 3}}");
    exo_free(text);
    exo_config_free(&doc);
}

/* A value that an alias stands for has two places: where it is written, and where it is used. */
Test(config, an_error_behind_an_alias_names_both_places)
{
    exo_config_doc *doc = parse("base: &b {H: x, p: [y]}\none: *b\ntwo:\n  <<: *b\n");
    exo_config *root = exo_config_root(doc), *one = exo_config_get(root, "one");
    exo_config *two = exo_config_get(root, "two"), *base = exo_config_get(root, "base");
    char where[64];
    exo_err err = {0};
    exo_config_fail(exo_config_get(base, "H"), &err, "no");
    cr_expect_str_eq(err.text, "job.yaml:1:14: no");
    exo_config_fail(exo_config_get(one, "H"), &err, "no");
    cr_expect_str_eq(err.text, "job.yaml:1:14: no (used by the alias in line 2, column 6)");
    exo_config_fail(exo_config_item(exo_config_get(two, "p"), 0), &err, "no");
    cr_expect_str_eq(err.text, "job.yaml:1:21: no (used by the alias in line 4, column 7)");
    exo_config_where(one, where, sizeof where);
    cr_expect_str_eq(where, "job.yaml:1:10");
    exo_config_free(&doc);
}

Test(config, a_document_cannot_grow_without_bound)
{
    /* "Billion laughs": each level has nine times the values of the one before. */
    char text[2048] = "a0: &a0 x\n";
    for (int i = 1; i < 12; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used,
                 "a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i, i - 1,
                 i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
    }
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_config_parse(&doc, "job.yaml", text, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "more than 50000 values in one document"), "%s", err.text);

    char deep[400] = "a: ";
    memset(deep + 3, '[', 300);
    cr_expect_eq(exo_config_parse(&doc, "job.yaml", deep, &err), EXO_INVAL);

    /* Aliases may not nest deeper than text. */
    char nested[600] =
        "a: &a [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n"
        "b: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[*a]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n";
    cr_expect_eq(exo_config_parse(&doc, "job.yaml", nested, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "nested deeper than 64 levels"), "%s", err.text);
}

Test(config, overrides_replace_and_make_values)
{
    exo_config_doc *doc = parse(
        "train: {max_steps: 150}\ndata: fashion_mnist\ncompare: [ddp, {name: diloco, H: 20}]\n");
    static const char *const assignments[] = {"train.max_steps=10", "data=mnist",
                                              "compare.1.H=5",      "new.deep.key=[1, x]",
                                              "compare.2=sparta",   "name=a=b"};
    for (size_t i = 0; i < sizeof assignments / sizeof *assignments; i++) {
        exo_err err = {0};
        cr_expect_eq(exo_config_set(doc, assignments[i], &err), EXO_OK, "%s", err.text);
    }
    char *text = NULL;
    cr_assert_eq(exo_config_text(exo_config_root(doc), &text, NULL), EXO_OK);
    cr_expect_str_eq(
        text, "{train: {max_steps: 10}, data: mnist, compare: [ddp, {name: diloco, H: 5}, sparta], "
              "new: {deep: {key: [1, x]}}, name: \"a=b\"}");
    exo_free(text);
    exo_config_free(&doc);
}

Test(config, messages_about_an_override_name_it)
{
    static const struct {
        const char *assignment, *message;
    } rows[] = {
        {"max_steps", "--set max_steps: expected KEY=VALUE"},
        {"=3", "--set =3: expected KEY=VALUE"},
        {"a..b=3", "--set a..b: '.b' is no path of keys like train.max_steps"},
        {"k=[1", "--set k: flow sequence without a closing bracket"},
        {"k.x=1", "--set k.x: 'x' cannot be set inside the value '1'"},
        {"list.x=1", "--set list.x: 'x' is no index of a list"},
        {"list.3=1", "--set list.3: index 3 is past the end of a list of 2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        exo_config_doc *doc = parse("k: 1\nlist: [1, 2]");
        exo_err err = {0};
        cr_expect_eq(exo_config_set(doc, rows[i].assignment, &err), EXO_INVAL, "accepted: %s",
                     rows[i].assignment);
        cr_expect_str_eq(err.text, rows[i].message);
        exo_config_free(&doc);
    }
    exo_config_doc *doc = parse("k: 1");
    exo_err err = {0};
    uint64_t k = 0;
    cr_assert_eq(exo_config_set(doc, "k=0", &err), EXO_OK);
    cr_assert_eq(exo_config_set(doc, "kk=0", &err), EXO_OK);
    cr_expect_eq(exo_config_u64(exo_config_root(doc), "k", 1, 1, 9, &k, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "--set k: k must be at least 1, got 0");
    cr_expect_eq(exo_config_finish(exo_config_root(doc), &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "--set kk: unknown key 'kk'; did you mean 'k'?");
    exo_config_free(&doc);
}

Test(config, a_value_put_elsewhere_keeps_its_place)
{
    exo_config_doc *doc = parse("presets:\n  quick: {train.H: 0}\ntrain: {H: 5}");
    exo_config *root = exo_config_root(doc), *presets = NULL, *quick = NULL, *value = NULL,
               *train = NULL;
    uint64_t interval = 0;
    exo_err err = {0};
    exo_config_map(root, "presets", &presets, NULL);
    exo_config_map(presets, "quick", &quick, NULL);
    const char *path = exo_config_key(quick, 0, &value);
    cr_assert_eq(exo_config_put(value, path, &err), EXO_OK, "%s", err.text);
    exo_config_map(root, "train", &train, NULL);
    cr_expect_eq(exo_config_u64(train, "H", 1, 1, 9, &interval, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "job.yaml:2:20: H must be at least 1, got 0");
    exo_config_free(&doc);
}

Test(config, an_overlay_replaces_whole_entries)
{
    exo_config_doc *doc = parse("base: {name: x, optimizer: {name: adamw, lr: 1}, max_norm: 1}\n"
                                "top: {name: diloco, optimizer: {lr: 2}, H: 3}\nword: ddp");
    exo_config *root = exo_config_root(doc), *base = NULL, *top = NULL, *word = NULL,
               *merged = NULL;
    char *text = NULL;
    exo_config_key(root, 0, &base);
    exo_config_key(root, 1, &top);
    exo_config_key(root, 2, &word);
    cr_assert_eq(exo_config_overlay(base, top, &merged, NULL), EXO_OK);
    cr_assert_eq(exo_config_text(merged, &text, NULL), EXO_OK);
    cr_expect_str_eq(text, "{max_norm: 1, name: diloco, optimizer: {lr: 2}, H: 3}");
    exo_free(text);
    cr_assert_eq(exo_config_overlay(base, word, &merged, NULL), EXO_OK);
    cr_assert_eq(exo_config_text(merged, &text, NULL), EXO_OK);
    cr_expect_str_eq(text, "{optimizer: {name: adamw, lr: 1}, max_norm: 1, name: ddp}");
    exo_free(text);
    cr_assert_eq(exo_config_overlay(NULL, word, &merged, NULL), EXO_OK);
    cr_assert_eq(exo_config_text(merged, &text, NULL), EXO_OK);
    cr_expect_str_eq(text, "{name: ddp}");
    exo_free(text);
    exo_config_free(&doc);
}

Test(config, json_is_json)
{
    exo_config_doc *doc =
        parse("a: .5\nb: 1.\nc: +3\nd: 007\ne: -2e-3\nf: ~\ng: True\nh: 'true'\ni: x y\n"
              "j: \"q\\\"\\\\\\n\\t\\x01\"\nk: [1, {}]\nl: {}\nm: -.5\n");
    char *json = NULL;
    cr_assert_eq(exo_config_json(exo_config_root(doc), &json, NULL), EXO_OK);
    cr_expect_str_eq(json, "{\n  \"a\": 0.5,\n  \"b\": 1.0,\n  \"c\": 3,\n  \"d\": 7,\n  \"e\": "
                           "-2e-3,\n  \"f\": null,\n"
                           "  \"g\": true,\n  \"h\": \"true\",\n  \"i\": \"x y\",\n  \"j\": "
                           "\"q\\\"\\\\\\n\\t\\u0001\",\n"
                           "  \"k\": [\n    1,\n    {}\n  ],\n  \"l\": {},\n  \"m\": -0.5\n}");
    exo_free(json);
    exo_config_free(&doc);
}

Test(config, text_reads_back_as_itself)
{
    static const char *const texts[] = {
        "{a: 1, b: [x, \"1\", \"true\", null, true], c: {d: \"x y\", e: \"- f\"}}",
        "{\"a b\": \"#\", \"1\": 2, c: ./d/e.so}",
        "[]",
        "\"a: b\"",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        exo_config_doc *doc = parse(texts[i]);
        char *text = NULL;
        cr_assert_eq(exo_config_text(exo_config_root(doc), &text, NULL), EXO_OK);
        cr_expect_str_eq(text, texts[i]);
        exo_free(text);
        exo_config_free(&doc);
    }
}

Test(config, three_points_do_not_end_the_text)
{
    exo_config_doc *doc = parse(" ...");
    char *text = NULL;
    cr_assert_eq(exo_config_text(exo_config_root(doc), &text, NULL), EXO_OK);
    cr_expect_str_eq(text, "\"...\"");
    exo_free(text);
    exo_config_free(&doc);
}

Test(config, files_that_cannot_be_read)
{
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_config_load(&doc, "/nonexistent/job.yaml", &err), EXO_IO);
    cr_expect_str_eq(err.text, "cannot read '/nonexistent/job.yaml': No such file or directory");
    cr_expect_eq(exo_config_load(&doc, "/", &err), EXO_IO);
    cr_expect_str_eq(err.text, "cannot read '/': Is a directory");
    cr_expect_null(doc);
}

Test(config, a_file_is_read_like_a_text)
{
    char path[] = "/tmp/exogym_config_XXXXXX";
    int file = mkstemp(path);
    cr_assert_geq(file, 0);
    cr_assert_eq(write(file, "H: 3\nK: x\n", 10), 10);
    close(file);
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    uint64_t interval = 0;
    char message[128];
    cr_assert_eq(exo_config_load(&doc, path, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_config_u64(exo_config_root(doc), "H", 1, 1, 9, &interval, NULL), EXO_OK);
    cr_expect_eq(interval, 3);
    cr_expect_eq(exo_config_u64(exo_config_root(doc), "K", 1, 1, 9, &interval, &err), EXO_INVAL);
    snprintf(message, sizeof message, "%s:2:4: K: expected an integer, got 'x'", path);
    cr_expect_str_eq(err.text, message);
    exo_config_free(&doc);
    unlink(path);
}

/* A text with all syntax that the parser supports. */
static const char everything[] =
    "# job\nexogym: 1\nbase: &b {H: 4, lr: 3e-4, \"s\\u00e4\": 'a, ''b'}\nstrategy:\n  <<: *b\n"
    "  H: 0\n  list:\n    - a\n    - [b, {c: ~}]\n    - |\n      one\n      two\n"
    "    - >-\n      folded\n      text\nempty:\nlast: *b\n";

/* Reads a whole document in each way. Only crashes and broken invariants fail the test. */
static void
exercise(const char *text)
{
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    if (exo_config_parse(&doc, "fuzz", text, &err) != EXO_OK) {
        cr_assert(err.text[0] && !strchr(err.text, '\n'), "a message of one line is due, for: %s",
                  text);
        cr_assert_null(doc);
        return;
    }
    char *out = NULL;
    cr_assert_eq(exo_config_json(exo_config_root(doc), &out, NULL), EXO_OK);
    exo_free(out);
    cr_assert_eq(exo_config_text(exo_config_root(doc), &out, NULL), EXO_OK);
    exo_config_doc *again = NULL;
    cr_assert_eq(exo_config_parse(&again, "again", out, &err), EXO_OK, "%s\n%s", err.text, out);
    exo_config_free(&again);
    exo_free(out);
    exo_config_set(doc, "strategy.list.0=3", NULL);
    exo_config_finish(exo_config_root(doc), NULL);
    exo_config_free(&doc);
}

Test(config, cut_at_every_byte_nothing_breaks)
{
    char text[sizeof everything];
    for (size_t length = 0; length <= strlen(everything); length++) {
        memcpy(text, everything, length);
        text[length] = '\0';
        exercise(text);
    }
}

Test(config, mutated_nothing_breaks)
{
    static const char odd[] = "{}[]:,&*#?|-<>=!%@'\"\\ \n\t\r~0a\x01\x80\xff";
    char text[sizeof everything];
    exo_rng rng;
    exo_rng_init(&rng, 1, EXO_RNG_USER, 0, 0);
    for (int round = 0; round < 4000; round++) {
        memcpy(text, everything, sizeof everything);
        for (uint32_t edits = 1 + exo_rng_below(&rng, 4); edits > 0; edits--)
            text[exo_rng_below(&rng, (uint32_t)strlen(everything))] =
                odd[exo_rng_below(&rng, sizeof odd - 1)];
        exercise(text);
    }
}

Test(config, every_failed_allocation_is_reported)
{
    for (uint64_t n = 1;; n++) {
        exo_config_doc *doc = NULL;
        exo_err err = {0};
        exo_memory_fail_at(n);
        exo_status st = exo_config_parse(&doc, "job.yaml", everything, &err);
        char *json = NULL;
        if (st == EXO_OK)
            st = exo_config_json(exo_config_root(doc), &json, &err);
        exo_memory_fail_at(0);
        exo_free(json);
        exo_config_free(&doc);
        if (st == EXO_OK) {
            cr_expect_gt(n, 3, "the text needs memory");
            break;
        }
        cr_assert_eq(st, EXO_NOMEM);
        cr_assert_str_eq(err.text, "job.yaml: out of memory");
    }
}
