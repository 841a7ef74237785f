/* Messages of makers, trainers and replay buffers that an actor between them alters: each number of a
 * header, arrays that are cut, grow, change their type or are gone, bits, items that come twice, late or
 * again. A run then ends well, with each draw learned from once; or it ends with an error that names an
 * actor. Nothing crashes, and nobody waits for ever.
 *
 * EXO_ALTERED: the number of runs (60). EXO_ALTERED_SEED, EXO_ALTERED_FIRST: of the first run, to repeat
 * it. The plan is static, for one run at a time. Read next: survival.c, update_paths.c. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/rng.h>

#include "base/file.h"
#include "experience/experience.h"
#include "experience/parameters.h"
#include "graph/run.h"
#include "support/sanitized.h"
#include "support/temp.h"

enum {
    DRAWS = 24,
    VOCABULARY = 7,
    RUNS = SANITIZED ? 24 : 60,
    LATE = 3, /* messages that overtake one */
    TOTAL = 6 /* a word of a reply's header */
};

enum kind {
    EXPERIENCE,
    REPLY,
    UPDATE,
    KINDS
};
static const char *const kind_names[] = {"experience", "reply", "update"};

enum change {
    WORD, /* a number of the header; most often */
    WORD_TOO,
    WORD_AS_WELL,
    A_BIT,
    SHORTER,
    LONGER,
    TYPE,
    GONE,
    MORE,
    FIELD, /* of the item itself */
    TWICE,
    LATER,
    AGAIN, /* the first one of its kind follows it */
    CHANGES,
    NONE = CHANGES, /* of the draws of the run, says a reply */
    STALE,          /* the first token is of an older version */
    FOREIGN,        /* it is not of the vocabulary */
    NOT_A_NUMBER,   /* its log-probability is none */
    OTHER_DRAW,     /* it has the number of the next draw of its maker */
    KEPT            /* as it is */
};

static struct {
    enum kind kind;
    enum change change;
    uint64_t at, seen; /* which message; those of the kind so far */
    exo_rng rng;
    exo_item *first, *late;
    int until; /* messages that the late one waits for */
    char what[160];
} plan;

/* --- Who alters ------------------------------------------------------------------------------- */

static const int64_t values[] = {0,  1,         -1,        -2,         2,         7,  24,
                                 25, INT64_MAX, INT64_MIN, UINT32_MAX, INT32_MAX, 99, 1 << 24};

/* A copy of an item with other counts and types of arrays: `more` arrays beyond those it has. */
static exo_item *
copy_as(const exo_item *item, const exo_item_part *as, int more)
{
    exo_item_part parts[EXO_MAX_PARTS] = {{0}};
    exo_item *copy = NULL;
    size_t count = (size_t)((int)item->num_parts + more);
    for (size_t i = 0; i < count; i++)
        parts[i] = i < item->num_parts ? as[i] : (exo_item_part){.dtype = EXO_U8, .count = 1};
    cr_assert_eq(exo_item_new(&copy, parts, count, NULL), EXO_OK);
    for (size_t i = 0; i < count && i < item->num_parts; i++) {
        size_t bytes = copy->parts[i].count * exo_dtype_size(copy->parts[i].dtype);
        size_t had = item->parts[i].count * exo_dtype_size(item->parts[i].dtype);
        if (bytes > 0 && had > 0)
            memcpy(copy->parts[i].data, item->parts[i].data, bytes < had ? bytes : had);
    }
    copy->version = item->version;
    copy->key = item->key;
    return copy;
}

static void
change_word(exo_item *copy)
{
    const size_t count = sizeof values / sizeof *values;
    int64_t *header = copy->parts[0].data;
    size_t word = exo_rng_below(&plan.rng, (uint32_t)copy->parts[0].count);
    int64_t value = values[exo_rng_below(&plan.rng, (uint32_t)count)], before = header[word];
    header[word] =
        exo_rng_below(&plan.rng, 2) ? value : (int64_t)((uint64_t)before + (uint64_t)value);
    snprintf(plan.what, sizeof plan.what, "word %zu of %s %llu: %lld instead of %lld", word,
             kind_names[plan.kind], (unsigned long long)plan.at, (long long)header[word],
             (long long)before);
}

/* An altered copy of an item. */
static exo_item *
altered(const exo_item *item)
{
    exo_item_part as[EXO_MAX_PARTS];
    memcpy(as, item->parts, sizeof as);
    size_t part = exo_rng_below(&plan.rng, (uint32_t)item->num_parts);
    snprintf(plan.what, sizeof plan.what, "change %d of array %zu of %s %llu", plan.change, part,
             kind_names[plan.kind], (unsigned long long)plan.at);
    if (plan.change == SHORTER)
        as[part].count /= 2;
    if (plan.change == LONGER)
        as[part].count += 1 + exo_rng_below(&plan.rng, 9);
    if (plan.change == TYPE)
        as[part].dtype = as[part].dtype == EXO_I32 ? EXO_I64 : EXO_I32;
    exo_item *copy = copy_as(item, as, plan.change == GONE ? -1 : plan.change == MORE ? 1 : 0);
    const size_t bytes = copy->parts[part < copy->num_parts ? part : 0].count;
    if (plan.change <= WORD_AS_WELL)
        change_word(copy);
    if (plan.change == A_BIT && bytes > 0)
        ((uint8_t *)copy->parts[part].data)[exo_rng_below(&plan.rng, (uint32_t)bytes)] ^=
            (uint8_t)(1 << exo_rng_below(&plan.rng, 8));
    if (plan.change == FIELD) {
        copy->version = (uint64_t)values[exo_rng_below(&plan.rng, 8)];
        copy->key = (uint64_t)values[exo_rng_below(&plan.rng, 8)];
    }
    return copy;
}

/* A copy of a reply that says that the run has no draws. */
static exo_item *
with_none(const exo_item *item)
{
    exo_item *copy = copy_as(item, item->parts, 0);
    int64_t *header = copy->parts[0].data;
    cr_assert_eq(header[TOTAL], DRAWS);
    header[TOTAL] = 0;
    return copy;
}

/* A copy of an item with another first token, or one of a version that is too old for its draw. */
static exo_item *
with_other_token(const exo_item *item)
{
    exo_item *copy = copy_as(item, item->parts, 0);
    exo_experience e;
    cr_assert_eq(exo_experience_view(&e, copy, NULL), EXO_OK);
    cr_assert_gt(e.versions[0], 0);
    if (plan.change == STALE) {
        e.versions[0]--;
        e.cache_versions[0] = 0;
    }
    e.tokens[0] = plan.change == FOREIGN ? VOCABULARY : e.tokens[0];
    e.log_probs[0] = plan.change == NOT_A_NUMBER ? NAN : e.log_probs[0];
    e.id += plan.change == OTHER_DRAW ? 2 : 0;
    exo_experience_sign(&e, copy);
    return copy;
}

static exo_status
send(exo_port *port, const exo_item *item, exo_err *err)
{
    exo_item *copy = copy_as(item, item->parts, 0);
    return exo_port_send(port, &copy, EXO_PORT_TIMEOUT, err);
}

/* Sends the message that is altered. */
static exo_status
send_altered(exo_port *port, exo_item *item, exo_err *err)
{
    if (plan.change < TWICE || plan.change >= CHANGES) {
        exo_item *copy = plan.change == NONE    ? with_none(item)
                         : plan.change >= STALE ? with_other_token(item)
                                                : altered(item);
        return exo_port_send(port, &copy, EXO_PORT_TIMEOUT, err);
    }
    snprintf(plan.what, sizeof plan.what, "change %d of %s %llu", plan.change,
             kind_names[plan.kind], (unsigned long long)plan.at);
    if (plan.change == LATER) {
        plan.late = exo_item_hold(item);
        plan.until = LATE;
        return EXO_OK;
    }
    exo_status st = send(port, item, err);
    return st == EXO_OK ? send(port, plan.change == TWICE ? item : plan.first, err) : st;
}

static exo_status
pass_on(exo_port *port, exo_item *item, enum kind kind, exo_err *err)
{
    if (plan.late && --plan.until == 0) {
        exo_item *late = plan.late;
        plan.late = NULL;
        exo_status st = exo_port_send(port, &late, EXO_PORT_TIMEOUT, err);
        if (st != EXO_OK)
            return st;
    }
    if (kind != plan.kind || plan.change == KEPT)
        return send(port, item, err);
    if (plan.seen == 0)
        plan.first = exo_item_hold(item);
    return plan.seen++ == plan.at ? send_altered(port, item, err) : send(port, item, err);
}

/* Alters the messages of one port, all of the actors of index 0. */
static exo_status
alter(exo_graph_actor *actor, const char *name, exo_err *err)
{
    exo_port *port = exo_graph_output(actor, name);
    exo_status st = EXO_OK;
    while (st == EXO_OK) {
        exo_item *item = NULL;
        st = exo_port_receive(exo_graph_input(actor, name), EXO_PORT_TIMEOUT, &item, err);
        enum kind kind = name[0] == 'p'                                  ? UPDATE
                         : st == EXO_OK && exo_parameters_is_reply(item) ? REPLY
                                                                         : EXPERIENCE;
        if (st == EXO_OK)
            st = exo_graph_index(actor) == 0 ? pass_on(port, item, kind, err)
                                             : send(port, item, err);
        exo_item_drop(&item);
    }
    return st == EXO_CLOSED ? EXO_OK : st;
}

static exo_status
relay_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    (void)self;
    return alter(actor, "experience", err);
}

static exo_status
courier_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    (void)self;
    return alter(actor, "parameters", err);
}

static const exo_graph_port relay_ports[] = {
    {.name = "experience", .type = "experience", .direction = EXO_PORT_INPUT, .blocking = true},
    {.name = "experience", .type = "experience", .direction = EXO_PORT_OUTPUT},
};
static const exo_graph_port courier_ports[] = {
    {.name = "parameters", .type = "parameters", .direction = EXO_PORT_INPUT, .blocking = true},
    {.name = "parameters", .type = "parameters", .direction = EXO_PORT_OUTPUT, .initial = true},
};
static const exo_graph_class relay = {
    .name = "test_relay", .run = relay_run, .ports = relay_ports, .num_ports = 2};
static const exo_graph_class courier = {
    .name = "test_courier", .run = courier_run, .ports = courier_ports, .num_ports = 2};

/* --- Runs ------------------------------------------------------------------------------------- */

struct form {
    bool buffer, restarts;
    const char *maker, *trainer;
};
static const struct form forms[] = {
    {false, false, "swap: batch", "staleness: 0"},
    {true, false, "swap: batch", "staleness: 1"},
    {false, true, "swap: step", "staleness: 0"},
    {true, true, "swap: step", "staleness: 2, oversample: 1.5"},
    {true, true, "swap: batch", "staleness: 0, balance: true"},
    {false, false, "swap: step", "staleness: 1, balance: true"},
};

static void
write_graph(char *out, size_t size, const struct form *f)
{
    const char *rule = f->restarts ? "restart: {when: on_failure, max: 4}, " : "";
    snprintf(
        out, size,
        "exogym: 1\nseed: 5\nclock: virtual\nactors:\n"
        "  maker: {class: experience_maker, count: 2, %scompute: {make: 1 ms, step: 1 ms}, "
        "config: {model: &m {name: gpt, layers: 1, heads: 2, width: 8, context: 8, vocabulary: "
        "7}, prompts: {tokens: [[1], [2, 3], [4]]}, reward: {name: share, token: 5}, epochs: 8, "
        "batch: 2, answers: 2, generate: {max_new_tokens: 3}, %s}}\n"
        "  relay: {class: test_relay, count: 2}\n  courier: {class: test_courier, count: 2}\n%s"
        "  trainer: {class: ppo_trainer, %scompute: {learn: 1 ms}, config: {model: *m, "
        "algorithm: grpo, batch: 4, checkpoint: {every: 2}, %s}}\n"
        "edges:\n"
        "  - {from: maker, to: relay, carries: experience, route: one}\n"
        "  - {from: relay, to: %s, carries: experience}\n%s"
        "  - {from: trainer, to: courier, carries: parameters, route: broadcast, buffer: "
        "{on_full: latest}}\n"
        "  - {from: courier, to: maker, carries: parameters, route: one, buffer: {on_full: "
        "latest}}\n",
        rule, f->maker, f->buffer ? "  buffer: {class: replay_buffer, config: {batch: 2}}\n" : "",
        rule, f->trainer, f->buffer ? "buffer" : "trainer",
        f->buffer ? "  - {from: buffer, to: trainer, carries: experience}\n" : "");
}

/* Whether the ledger has each draw once. */
static bool
is_complete(const char *folder)
{
    char path[512], *text = NULL, *rest = NULL;
    size_t size = 0;
    bool seen[DRAWS] = {0}, good = true;
    snprintf(path, sizeof path, "%s/learned_trainer_0.csv", folder);
    cr_assert_eq(exo_file_read(path, 1 << 20, &text, &size, NULL), EXO_OK);
    strtok_r(text, "\n", &rest);
    for (const char *line; (line = strtok_r(NULL, "\n", &rest));) {
        uint64_t item = strtoull(line, NULL, 10);
        good = good && item < DRAWS && !seen[item];
        seen[item % DRAWS] = true;
    }
    for (size_t i = 0; i < DRAWS; i++)
        good = good && seen[i];
    exo_free(text);
    return good;
}

/* Whether an error says where it is. */
static bool
names_an_actor(const char *text)
{
    static const char *const names[] = {"maker_", "trainer_", "buffer_0", "relay_", "courier_"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(text, names[i]))
            return true;
    return false;
}

static bool
run(const struct form *f, exo_err *err)
{
    char text[4096], folder[256];
    exo_graph_spec *spec = NULL;
    exo_graph_result result = {0};
    bool complete = false;
    *err = (exo_err){0};
    write_graph(text, sizeof text, f);
    temp_folder(folder, sizeof folder);
    cr_assert_eq(exo_graph_parse(&spec, "test.yaml", text, &(exo_graph_opts){.name = "test"}, err),
                 EXO_OK, "%s", err->text);
    const exo_graph_run_opts opts = {.space = "test", .folder = folder};
    bool ended = exo_graph_run(spec, &opts, &result, err) == EXO_OK;
    if (ended)
        complete = is_complete(folder);
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
    temp_remove(folder);
    exo_item_drop(&plan.first);
    exo_item_drop(&plan.late);
    return ended ? complete : names_an_actor(err->text);
}

static uint64_t
number_of(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

Test(altered_items, are_refused_or_have_no_consequence, .timeout = 3000)
{
    const uint64_t seed = number_of("EXO_ALTERED_SEED", 1), runs = number_of("EXO_ALTERED", RUNS),
                   first = number_of("EXO_ALTERED_FIRST", 0);
    uint64_t well = 0;
    exo_graph_class_register(&relay, NULL);
    exo_graph_class_register(&courier, NULL);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        exo_err err;
        plan.kind = KINDS;
        cr_assert(run(&forms[i], &err) && err.code == EXO_OK, "form %zu: %s", i, err.text);
    }
    for (uint64_t i = first; i < first + runs; i++) {
        exo_err err;
        const struct form *f = &forms[i % (sizeof forms / sizeof *forms)];
        plan.seen = 0;
        snprintf(plan.what, sizeof plan.what, "nothing");
        exo_rng_init(&plan.rng, seed, EXO_RNG_USER, 0, i);
        plan.kind = (enum kind)exo_rng_below(&plan.rng, KINDS);
        plan.change = (enum change)exo_rng_below(&plan.rng, CHANGES);
        plan.at = exo_rng_below(&plan.rng, plan.kind == EXPERIENCE ? DRAWS / 2 : 5);
        bool good = run(f, &err);
        cr_expect(good, "seed %llu, run %llu: %s: %s", (unsigned long long)seed,
                  (unsigned long long)i, plan.what, err.code == EXO_OK ? "draws differ" : err.text);
        if (getenv("EXO_ALTERED_SHOW"))
            fprintf(stderr, "run %llu: %s: %s\n", (unsigned long long)i, plan.what, err.text);
        well += err.code == EXO_OK;
    }
    cr_expect(runs < RUNS || (well > runs / 8 && well < runs), "%llu of %llu runs ended well",
              (unsigned long long)well, (unsigned long long)runs);
}

/* The first reply says that the run has no draws. No trainer ends then: it fails,
 * and with a restart rule the next life learns from all. */
Test(altered_items, a_trainer_does_not_end_before_its_makers, .timeout = 300)
{
    exo_graph_class_register(&relay, NULL);
    exo_graph_class_register(&courier, NULL);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        exo_err err;
        plan.seen = plan.at = 0;
        plan.kind = REPLY;
        plan.change = NONE;
        cr_expect(run(&forms[i], &err), "form %zu: %s", i,
                  err.code == EXO_OK ? "draws are missing" : err.text);
        cr_expect(forms[i].restarts || strstr(err.text, "draws below"), "form %zu: %s", i,
                  err.text);
    }
}

/* What no maker draws is not learned from: the error names the trainer, the item and the number. */
Test(altered_items, items_that_no_maker_makes_are_refused, .timeout = 300)
{
    static const struct {
        enum change change;
        const char *expected;
    } cases[] = {
        {STALE, "with which makers may make the items below"},
        {FOREIGN, "token 0 of the answers of item 8 of maker 0 is 7, but the vocabulary is 7"},
        {NOT_A_NUMBER, "of maker 0: log_probs[0] is "},
        {OTHER_DRAW, "draw 10 came twice: item 10 of maker 0 has prompt "},
    };
    exo_graph_class_register(&relay, NULL);
    exo_graph_class_register(&courier, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_err err;
        plan.seen = 0;
        plan.at = 4; /* a draw of the second update or a later one */
        plan.kind = EXPERIENCE;
        plan.change = cases[i].change;
        cr_expect(run(&forms[0], &err) && strstr(err.text, cases[i].expected), "%s", err.text);
        cr_expect_not_null(strstr(err.text, "trainer_0: experience from sender 0"), "%s", err.text);
    }
}

/* Writes the figures of a trainer that compares the answers of a maker whose message 3 is altered. */
static void
compare_answers(enum change change, char *out, size_t size)
{
    char folder[256], path[512], *text = NULL;
    size_t length = 0;
    exo_graph_spec *spec = NULL;
    exo_graph_result result = {0};
    exo_err err = {0};
    plan.seen = 0;
    plan.at = 3;
    plan.kind = EXPERIENCE;
    plan.change = change;
    temp_folder(folder, sizeof folder);
    cr_assert_eq(
        exo_graph_parse(
            &spec, "test.yaml",
            "exogym: 1\nclock: virtual\nactors:\n"
            "  maker: {class: experience_maker, config: {model: &m {name: gpt, layers: 1, heads: "
            "2, width: 8, context: 8, vocabulary: 7}, prompts: {tokens: [[1], [2, 3], [4]]}, "
            "reward: {name: share, token: 5}, epochs: 8, answers: 8, generate: {max_new_tokens: "
            "3}}}\n  relay: {class: test_relay}\n"
            "  trainer: {class: dpo_trainer, config: {model: *m, batch: 4}}\n"
            "edges:\n  - {from: maker, to: relay, carries: experience}\n"
            "  - {from: relay, to: trainer, carries: experience}\n",
            &(exo_graph_opts){.name = "test"}, &err),
        EXO_OK, "%s", err.text);
    const exo_graph_run_opts opts = {.space = "test", .folder = folder};
    cr_assert_eq(exo_graph_run(spec, &opts, &result, &err), EXO_OK, "%s", err.text);
    snprintf(path, sizeof path, "%s/final_trainer_0.json", folder);
    cr_assert_eq(exo_file_read(path, 4096, &text, &length, NULL), EXO_OK);
    snprintf(out, size, "%s", text);
    exo_free(text);
    exo_item_drop(&plan.first);
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
    temp_remove(folder);
}

/* A trainer of comparisons learns from an item that comes twice, or again later, once. */
Test(altered_items, comparisons_that_come_twice_are_learned_from_once, .timeout = 300)
{
    char once[4096], twice[4096];
    exo_graph_class_register(&relay, NULL);
    compare_answers(KEPT, once, sizeof once);
    for (enum change change = TWICE; change <= AGAIN; change++) {
        compare_answers(change, twice, sizeof twice);
        cr_expect_str_eq(once, twice);
    }
}
