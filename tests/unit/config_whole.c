/* Whole copies of configurations: where a key is missing, the copy has the fallback that a reader
 * took. The fallback reads back to the bit, and means the same as the missing key. Values are
 * random, from a seed. Each test owns its documents. Read next: runtime/base/config_edit.h. */
#include <criterion/criterion.h>

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/rng.h>

#include "base/config_edit.h"
#include "base/memory_fault.h"

enum {
    ROUNDS = 3000
};

static exo_config_doc *
parse(const char *text)
{
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_config_parse(&doc, "job.yaml", text, &err), EXO_OK, "%s in %s", err.text,
                 text);
    return doc;
}

/* Makes the whole copy of the document's mapping `options`. */
static exo_config_doc *
whole_of(exo_config_doc *doc)
{
    exo_config_doc *whole = parse("{}");
    exo_err err = {0};
    cr_assert_eq(exo_config_graft_whole(exo_config_root(whole), "options",
                                        exo_config_get(exo_config_root(doc), "options"), &err),
                 EXO_OK, "%s", err.text);
    return whole;
}

static char *
json_of(exo_config_doc *doc)
{
    char *text = NULL;
    cr_assert_eq(exo_config_json(exo_config_root(doc), &text, NULL), EXO_OK);
    return text;
}

static bool
differ(exo_config_doc *before, exo_config_doc *now)
{
    exo_text path = {0};
    bool found = exo_config_differs(exo_config_root(before), exo_config_root(now), NULL, &path);
    exo_free(path.data);
    return found;
}

static uint64_t
hash_of(exo_config_doc *doc, const char *skipped)
{
    const char *const all[] = {skipped, NULL};
    uint64_t hash = 0;
    cr_assert_eq(exo_config_hash(exo_config_root(doc), all, &hash, NULL), EXO_OK);
    return hash;
}

/* --- A reader of all types -------------------------------------------------------------------- */

struct values {
    bool truth;
    uint64_t count, bytes;
    double number, rate, part;
    float real;
    exo_time time;
    size_t choice;
    const char *text;
};

static const char *const choices[] = {"random", "1", "true", "null", "1e5", NULL};

/* Reads `options` with these fallbacks. Expects no error. */
static void
read_all(exo_config_doc *doc, const struct values *fallback, struct values *out)
{
    exo_err err = {0};
    exo_config *map = exo_config_get(exo_config_root(doc), "options");
    memset(out, 0, sizeof *out);
    exo_status st = exo_config_bool(map, "truth", fallback->truth, &out->truth, &err);
    if (st == EXO_OK)
        st = exo_config_u64(map, "count", fallback->count, 0, UINT64_MAX, &out->count, &err);
    if (st == EXO_OK)
        st = exo_config_bytes(map, "bytes", fallback->bytes, 0, UINT64_MAX, &out->bytes, &err);
    if (st == EXO_OK)
        st = exo_config_double(map, "number", fallback->number, -DBL_MAX, DBL_MAX, &out->number,
                               &err);
    if (st == EXO_OK)
        st = exo_config_rate(map, "rate", fallback->rate, 0, (double)INFINITY, &out->rate, &err);
    if (st == EXO_OK)
        st = exo_config_fraction(map, "part", fallback->part, 0, 1, &out->part, &err);
    if (st == EXO_OK)
        st = exo_config_float(map, "real", fallback->real, -FLT_MAX, FLT_MAX, &out->real, &err);
    if (st == EXO_OK)
        st = exo_config_time(map, "time", fallback->time, 0, INT64_MAX, &out->time, &err);
    if (st == EXO_OK)
        st = exo_config_choice(map, "choice", fallback->choice, choices, &out->choice, &err);
    if (st == EXO_OK)
        st = exo_config_string(map, "text", fallback->text, &out->text, &err);
    if (st == EXO_OK)
        st = exo_config_finish(map, &err);
    cr_assert_eq(st, EXO_OK, "%s", err.text);
}

static uint64_t
any_bits(exo_rng *rng)
{
    uint64_t bits = ((uint64_t)exo_rng_u32(rng) << 32) | exo_rng_u32(rng);
    return bits >> exo_rng_below(rng, 64); /* also small numbers */
}

static double
any_double(exo_rng *rng)
{
    static const double odd[] = {
        0, 0.1, 1e-8, 3e-4, 1e15, 1e22, 123456789012345680.0, DBL_MIN, DBL_TRUE_MIN, DBL_MAX};
    double value;
    uint64_t bits;
    if (exo_rng_below(rng, 4) == 0)
        return odd[exo_rng_below(rng, sizeof odd / sizeof *odd)];
    do {
        bits = ((uint64_t)exo_rng_u32(rng) << 32) | exo_rng_u32(rng);
        memcpy(&value, &bits, sizeof value);
    } while (!isfinite(value));
    return value;
}

static float
any_float(exo_rng *rng)
{
    static const float odd[] = {0,       0.7f,         1e-3f,   0.1307f,
                                FLT_MIN, FLT_TRUE_MIN, FLT_MAX, 16777217.0f};
    float value;
    uint32_t bits;
    if (exo_rng_below(rng, 4) == 0)
        return odd[exo_rng_below(rng, sizeof odd / sizeof *odd)];
    do {
        bits = exo_rng_u32(rng);
        memcpy(&value, &bits, sizeof value);
    } while (!isfinite(value));
    return value;
}

static void
any_values(exo_rng *rng, struct values *v)
{
    static const char *const texts[] = {"",     "a b",          "5",       "1e999", "true",  "~",
                                        "null", "\"\\\n\t\x01", "é",       "-",     "20 ms", "00",
                                        "{x}",  "${HOME}",      "a: b #c", "0x1F"};
    memset(v, 0, sizeof *v);
    v->truth = exo_rng_below(rng, 2) == 1;
    v->count = any_bits(rng);
    v->bytes = any_bits(rng) & ((UINT64_C(1) << 62) - 1);
    v->number = any_double(rng);
    v->rate = exo_rng_below(rng, 8) == 0 ? (double)INFINITY : fabs(any_double(rng));
    v->part = (double)any_bits(rng) / 0x1p64;
    v->real = any_float(rng);
    v->time = (exo_time)(any_bits(rng) & ((UINT64_C(1) << 62) - 1));
    v->choice = exo_rng_below(rng, 5);
    v->text = texts[exo_rng_below(rng, sizeof texts / sizeof *texts)];
}

static void
expect_same(const struct values *a, const struct values *b, const char *json)
{
    cr_assert_eq(a->truth, b->truth, "%s", json);
    cr_assert_eq(a->count, b->count, "%s", json);
    cr_assert_eq(a->bytes, b->bytes, "%s", json);
    cr_assert(memcmp(&a->number, &b->number, sizeof a->number) == 0, "%a is %a in %s", a->number,
              b->number, json);
    cr_assert(memcmp(&a->rate, &b->rate, sizeof a->rate) == 0, "%a is %a in %s", a->rate, b->rate,
              json);
    cr_assert(memcmp(&a->part, &b->part, sizeof a->part) == 0, "%a is %a in %s", a->part, b->part,
              json);
    cr_assert(memcmp(&a->real, &b->real, sizeof a->real) == 0, "%a is %a in %s", (double)a->real,
              (double)b->real, json);
    cr_assert_eq(a->time, b->time, "%s", json);
    cr_assert_eq(a->choice, b->choice, "%s", json);
    cr_assert_str_eq(a->text, b->text, "%s", json);
}

/* The largest doubles overflow when a unit multiplies them, so no unit can give them back. Defaults
 * do not have such rates. */
static bool
is_rate(double rate)
{
    return isinf(rate) || rate < 1e300;
}

Test(config_whole, fallbacks_read_back_to_the_bit)
{
    exo_rng rng;
    exo_rng_init(&rng, 1, EXO_RNG_USER, 0, 0);
    for (int round = 0; round < ROUNDS; round++) {
        struct values fallback, taken, other, again;
        any_values(&rng, &fallback);
        any_values(&rng, &other);
        if (!is_rate(fallback.rate))
            continue;
        exo_config_doc *sparse = parse("options: {}");
        read_all(sparse, &fallback, &taken);
        exo_config_doc *whole = whole_of(sparse);
        char *json = json_of(whole);
        exo_config_doc *second = parse(json);
        read_all(second, &other, &again); /* no key is missing any more */
        expect_same(&fallback, &again, json);

        exo_config_doc *third = whole_of(second);
        char *last = json_of(third);
        cr_assert_str_eq(json, last);
        cr_expect_not(differ(sparse, whole), "missing and given are the same: %s", json);
        cr_expect_not(differ(second, whole) || differ(whole, third), "%s", json);
        exo_config_doc *given = parse(json); /* for the same reader */
        read_all(given, &fallback, &again);
        exo_config_doc *fourth = whole_of(given);
        cr_expect_eq(hash_of(fourth, NULL), hash_of(whole, NULL), "%s", json);
        exo_config_free(&given);
        exo_config_free(&fourth);
        exo_free(json);
        exo_free(last);
        exo_config_free(&sparse);
        exo_config_free(&whole);
        exo_config_free(&second);
        exo_config_free(&third);
    }
}

/* Given values stay as they were written; fallbacks are added beside them. */
Test(config_whole, numbers_that_are_given_read_back_to_the_bit)
{
    static const char *const formats[] = {"%.17g", "%.20e", "%+.17g", "%.25g", "%.17E"};
    exo_rng rng;
    exo_rng_init(&rng, 2, EXO_RNG_USER, 0, 0);
    for (int round = 0; round < ROUNDS; round++) {
        char text[256], number[128];
        struct values fallback, given, again;
        double value = any_double(&rng);
        uint64_t count = any_bits(&rng);
        any_values(&rng, &fallback);
        snprintf(number, sizeof number, formats[exo_rng_below(&rng, 5)], value);
        snprintf(text, sizeof text, "options: {number: %s, count: %s%" PRIu64 "}", number,
                 round % 2 ? "+" : "000", count);
        exo_config_doc *doc = parse(text);
        read_all(doc, &fallback, &given);
        cr_assert(memcmp(&given.number, &value, sizeof value) == 0);
        cr_assert_eq(given.count, count);
        exo_config_doc *whole = whole_of(doc);
        char *json = json_of(whole);
        exo_config_doc *second = parse(json);
        read_all(second, &fallback, &again);
        cr_assert(memcmp(&again.number, &value, sizeof value) == 0, "%a is %a: %s", value,
                  again.number, json);
        cr_assert_eq(again.count, count, "%s", json);
        cr_expect_not(differ(doc, whole), "%s and %s", text, json);
        cr_expect_not(differ(second, whole), "%s and %s", text, json);
        exo_free(json);
        exo_config_free(&doc);
        exo_config_free(&whole);
        exo_config_free(&second);
    }
}

/* --- Fallbacks that cannot be written --------------------------------------------------------- */

static void
expect_whole(exo_config_doc *doc, const char *expected)
{
    exo_config_doc *whole = whole_of(doc);
    char *text = NULL;
    cr_assert_eq(exo_config_text(exo_config_get(exo_config_root(whole), "options"), &text, NULL),
                 EXO_OK);
    cr_expect_str_eq(text, expected);
    exo_free(text);
    exo_config_free(&whole);
}

Test(config_whole, fallbacks_that_could_not_be_given_are_not_there)
{
    exo_config_doc *doc = parse("options: {given: 5}");
    exo_config *map = exo_config_get(exo_config_root(doc), "options");
    const char *text = NULL;
    uint64_t n;
    double x;
    exo_time t;
    exo_config_u64(map, "given", 0, 1, 9, &n, NULL);
    exo_config_u64(map, "island_size", 0, 2, 100, &n, NULL);
    exo_config_double(map, "unknown", (double)NAN, 0, 1, &x, NULL);
    exo_config_double(map, "endless", (double)INFINITY, 0, (double)INFINITY, &x, NULL);
    exo_config_rate(map, "rate", (double)INFINITY, 0, 1e9, &x, NULL);
    exo_config_time(map, "never", -1, 0, 100, &t, NULL);
    exo_config_string(map, "path", NULL, &text, NULL);
    exo_config_get(map, "anything");
    exo_config_u64(map, "last", 7, 0, 9, &n, NULL);
    expect_whole(doc, "{given: 5, last: 7}");
    exo_config_free(&doc);
}

/* A key that is read as text, then as a number: the last reader decides. */
Test(config_whole, the_last_reader_decides)
{
    exo_config_doc *doc = parse("options: {label: 5, stride: 3}");
    exo_config *map = exo_config_get(exo_config_root(doc), "options");
    const char *text = NULL;
    uint64_t n;
    exo_config_string(map, "label", NULL, &text, NULL);
    for (int i = 0; i < 2; i++) {
        const char *key = i ? "block" : "stride";
        exo_config_string(map, key, "1", &text, NULL);
        exo_config_u64(map, key, 1, 1, 9, &n, NULL);
    }
    expect_whole(doc, "{label: \"5\", stride: 3, block: 1}");
    exo_config_free(&doc);
}

/* --- Names and missing keys that stand for mappings ------------------------------------------- */

static void
read_rule(exo_config_doc *doc)
{
    static const char *const rules[] = {"sgd", "adam", NULL};
    exo_config *map = exo_config_get(exo_config_root(doc), "options"), *rule = NULL;
    exo_err err = {0};
    size_t kind;
    float lr;
    for (int i = 0; i < 3; i++) { /* as each node does */
        cr_assert_eq(exo_config_stand_in(map, "rule", &rule, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_config_choice(rule, "name", 0, rules, &kind, &err), EXO_OK, "%s",
                     err.text);
        cr_assert_eq(exo_config_float(rule, "lr", kind == 0 ? 0.7f : 1e-3f, 0, 1, &lr, &err),
                     EXO_OK);
        cr_assert_eq(exo_config_note_numbers(rule, "betas", (double[]){0.9, 0.999}, 2, &err),
                     EXO_OK);
    }
}

Test(config_whole, a_name_or_nothing_becomes_a_mapping)
{
    static const char *const jobs[][2] = {
        {"options: {}", "{rule: {name: \"sgd\", lr: 0.7, betas: [0.9, 0.999]}}"},
        {"options: {rule: adam}", "{rule: {name: \"adam\", lr: 0.001, betas: [0.9, 0.999]}}"},
        {"options: {rule: {lr: 5e-1}}", "{rule: {lr: 5e-1, name: \"sgd\", betas: [0.9, 0.999]}}"},
        {"options: {rule: {name: adam, betas: [0, 0]}}",
         "{rule: {name: \"adam\", betas: [0, 0], lr: 0.001}}"},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        exo_config_doc *doc = parse(jobs[i][0]);
        read_rule(doc);
        expect_whole(doc, jobs[i][1]);
        exo_config_free(&doc);
    }
    exo_config *rule = NULL;
    exo_err err = {0};
    exo_config_doc *doc = parse("options: {rule: ~, other: [a]}");
    exo_config *map = exo_config_get(exo_config_root(doc), "options");
    cr_expect_eq(exo_config_stand_in(map, "rule", &rule, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "job.yaml:1:17: rule: expected a name or a mapping, got nothing");
    cr_expect_eq(exo_config_stand_in(map, "other", &rule, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "job.yaml:1:27: other: expected a name or a mapping, got a list");
    exo_config_free(&doc);
}

/* --- Equal meaning ---------------------------------------------------------------------------- */

Test(config_whole, the_same_is_meant_however_it_is_written)
{
    static const char *const same[][2] = {
        {"{a: 1, b: 2}", "{b: 2, a: 1}"},
        {"{a: 1.0}", "{a: 1}"},
        {"{a: 1e-3}", "{a: 0.001}"},
        {"{a: 007}", "{a: 7}"},
        {"{a: 18446744073709551615}", "{a: +18446744073709551615}"},
        {"{a: 20 ms}", "{a: 0.02 s}"},
        {"{a: 100 Mbit/s}", "{a: 12.5 MB/s}"},
        {"{a: 1 KiB}", "{a: 1024 B}"},
        {"{a: 90 %}", "{a: 0.9}"},
        {"{a: 0}", "{a: 0 ms}"},
        {"{a: True}", "{a: true}"},
        {"{a: ~}", "{}"},
        {"{}", "{a: null}"},
        {"{a: '5'}", "{a: 5}"}, /* a reader that takes text reads both alike */
        {"{a: [1, {b: 2.0}]}", "{a: [1.0, {b: 2}]}"},
    };
    static const char *const others[][3] = {
        {"{a: 1}", "{a: 2}", "a"},
        {"{a: 18446744073709551615}", "{a: 18446744073709551614}", "a"},
        {"{a: 9007199254740993}", "{a: 9007199254740992}", "a"},
        {"{a: 0.1}", "{a: 0.10000000000000002}", "a"},
        {"{a: 20 ms}", "{a: 20 s}", "a"},
        {"{a: 20 ms}", "{a: 20 MB}", "a"},
        {"{a: '1.0'}", "{a: '1'}", "a"},
        {"{a: -1}", "{a: 1}", "a"},
        {"{a: true}", "{a: 1}", "a"},
        {"{a: {b: {c: 1, d: 2}}}", "{a: {b: {c: 1, d: 3}}}", "a.b.d"},
        {"{a: {b: 1}}", "{a: {}}", "a.b"},
        {"{a: {}}", "{a: {b: 1}}", "a.b"},
        {"{a: [1, 2]}", "{a: [1]}", "a"},
        {"{a: [1, 2]}", "{a: [2, 1]}", "a"},
        {"{a: [1]}", "{a: 1}", "a"},
    };
    size_t apart = 0; /* by their hashes, in which quotes and kinds of units do not count */
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        exo_config_doc *a = parse(same[i][0]), *b = parse(same[i][1]);
        cr_expect_not(differ(a, b), "%s and %s", same[i][0], same[i][1]);
        cr_expect_not(differ(b, a), "%s and %s", same[i][1], same[i][0]);
        cr_expect_eq(hash_of(a, NULL), hash_of(b, NULL), "%s and %s", same[i][1], same[i][0]);
        exo_config_free(&a);
        exo_config_free(&b);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        exo_config_doc *a = parse(others[i][0]), *b = parse(others[i][1]);
        exo_text path = {0};
        cr_expect(exo_config_differs(exo_config_root(a), exo_config_root(b), NULL, &path),
                  "%s and %s", others[i][0], others[i][1]);
        cr_expect_str_eq(path.data, others[i][2]);
        exo_free(path.data);
        const char *const skipped[] = {others[i][2], NULL};
        path = (exo_text){0};
        cr_expect_not(exo_config_differs(exo_config_root(a), exo_config_root(b), skipped, &path));
        exo_free(path.data);
        cr_expect_eq(hash_of(a, others[i][2]), hash_of(b, others[i][2]), "%s", others[i][0]);
        apart += hash_of(a, NULL) != hash_of(b, NULL);
        exo_config_free(&a);
        exo_config_free(&b);
    }
    cr_expect_geq(apart, 11);
}

/* A pattern is a whole path, in which a star is one key. */
Test(config_whole, a_skipped_path_may_have_any_key)
{
    static const struct {
        const char *skipped;
        bool differ;
    } cases[] = {
        {"a.*.c.d", false}, {"*.b.c.d", false}, {"a.*", false},      {"a.b.*.*", false},
        {"a.*.d", true},    {"*.c", true},      {"a.*.c.d.e", true}, {"*.*.*.*.*", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const skipped[] = {cases[i].skipped, NULL};
        exo_config_doc *a = parse("{a: {b: {c: {d: 1}}}}"), *b = parse("{a: {b: {c: {d: 2}}}}");
        exo_text path = {0};
        cr_expect_eq(exo_config_differs(exo_config_root(a), exo_config_root(b), skipped, &path),
                     cases[i].differ, "%s", cases[i].skipped);
        exo_free(path.data);
        exo_config_free(&a);
        exo_config_free(&b);
    }
}

/* An item of a list is a key, too; what differs elsewhere is told of the list as a whole. */
Test(config_whole, a_skipped_path_may_go_through_a_list)
{
    const char *const skipped[] = {"a.*.device", NULL};
    exo_config_doc *a = parse("{a: [{x: 1, device: cpu}, {x: 2}]}"),
                   *b = parse("{a: [{x: 1, device: cuda}, {x: 2}]}"),
                   *c = parse("{a: [{x: 1, device: cpu}, {x: 3}]}");
    exo_text path = {0};
    cr_expect(!exo_config_differs(exo_config_root(a), exo_config_root(b), skipped, &path));
    cr_expect(exo_config_differs(exo_config_root(a), exo_config_root(c), skipped, &path));
    cr_expect_str_eq(path.data, "a");
    exo_free(path.data);
    exo_config_free(&a);
    exo_config_free(&b);
    exo_config_free(&c);
}

/* A file that an older exogym wrote lacks keys that a newer whole copy has. */
Test(config_whole, a_fallback_may_have_been_missing)
{
    static const struct {
        const char *before, *now;
        bool differ;
    } cases[] = {
        {"options: {}", "options: {}", false},
        /* the named rule may have other constants than the default */
        {"options: {}", "options: {rule: sgd}", true},
        {"options: {rule: sgd}", "options: {rule: {name: sgd}}", false},
        {"options: {rule: sgd}", "options: {rule: {name: sgd, lr: 0.7}}", false},
        {"options: {rule: sgd}", "options: {rule: {name: sgd, lr: 0.6}}", true},
        {"options: {rule: {lr: 0.6}}", "options: {rule: {lr: 6e-1}}", false},
        {"options: {rule: {name: sgd}}", "options: {}", true},
        {"options: {rule: adam}", "options: {rule: adam}", false},
        {"options: {rule: adam}", "options: {}", true},
        {"options: {rule: {name: adam, lr: 0.1}}", "options: {rule: adam}", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_config_doc *before = parse(cases[i].before), *now = parse(cases[i].now);
        read_rule(now);
        exo_config_doc *whole = whole_of(now);
        cr_expect_eq(differ(before, whole), cases[i].differ, "%s and %s", cases[i].before,
                     cases[i].now);
        exo_config_free(&before);
        exo_config_free(&now);
        exo_config_free(&whole);
    }
}

/* Among whole copies, equal ones have equal hashes, however their values were given. */
Test(config_whole, the_same_whole_copies_have_the_same_hash)
{
    static const char *const texts[] = {
        "options: {}",
        "options: {rule: {}}",
        "options: {rule: sgd}",
        "options: {rule: {name: sgd, lr: 0.7}}",
        "options: {rule: {lr: 7e-1}}",
        "options: {rule: {name: 'sgd'}}",
        "options: {rule: {name: sgd, lr: 0.6}}",
        "options: {rule: {lr: 0.6}}",
        "options: {rule: adam}",
        "options: {rule: {name: adam, lr: 0.1}}",
    };
    enum {
        NUM = sizeof texts / sizeof *texts
    };
    exo_config_doc *given[NUM], *whole[NUM];
    size_t same = 0;
    for (size_t i = 0; i < NUM; i++) {
        given[i] = parse(texts[i]);
        read_rule(given[i]);
        whole[i] = whole_of(given[i]);
    }
    for (size_t i = 0; i < NUM; i++) {
        for (size_t j = 0; j < NUM; j++) {
            if (i == j || differ(whole[i], whole[j]))
                continue;
            same++;
            cr_expect_eq(hash_of(whole[i], NULL), hash_of(whole[j], NULL), "%s and %s", texts[i],
                         texts[j]);
        }
    }
    cr_expect_geq(same, 6);
    for (size_t i = 0; i < NUM; i++) {
        exo_config_free(&given[i]);
        exo_config_free(&whole[i]);
    }
}

Test(config_whole, every_failed_allocation_is_reported)
{
    struct values fallback, taken;
    exo_rng rng;
    exo_rng_init(&rng, 3, EXO_RNG_USER, 0, 0);
    any_values(&rng, &fallback);
    exo_config_doc *doc = parse("options: {rule: adam}");
    read_rule(doc);
    exo_config_remove(exo_config_get(exo_config_root(doc), "options"), "rule");
    read_all(doc, &fallback, &taken);
    for (uint64_t n = 1;; n++) {
        exo_config_doc *whole = NULL;
        exo_err err = {0};
        exo_memory_fail_at(n);
        exo_status st = exo_config_parse(&whole, "whole", "{}", &err);
        for (int i = 0; st == EXO_OK && i < 60; i++) /* more than one block of memory */
            st = exo_config_graft_whole(exo_config_root(whole), "options",
                                        exo_config_get(exo_config_root(doc), "options"), &err);
        exo_memory_fail_at(0);
        exo_config_free(&whole);
        if (st == EXO_OK) {
            cr_expect_gt(n, 3);
            break;
        }
        cr_assert_eq(st, EXO_NOMEM, "%s", err.text);
    }
    exo_config_free(&doc);
}
