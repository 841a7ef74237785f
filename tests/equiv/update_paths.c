/* Weight updates on their way through a graph: an actor between trainer and maker loses, alters,
 * repeats, reorders and mixes chunks. Each fault is refused and followed by a whole update, and the
 * run ends with the weights of a run without faults; or it ends with the maker's reason. The class
 * has its plan in static variables, for one run at a time. Read next: experience/publisher.c. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/rng.h>

#include "base/file.h"
#include "base/meter.h"
#include "experience/parameters.h"
#include "graph/run.h"
#include "support/temp.h"

enum {
    UPDATES = 500,
    MOST_CHUNKS = 64
};

/* --- The actor between ------------------------------------------------------------------------ */

enum {
    A_BIT,
    LOST,
    REPEATED,
    REORDERED,
    CUT,
    GROWN, /* bytes after the last chunk */
    MIXED, /* a chunk of an earlier update */
    OLDER, /* all chunks of an earlier update, with the new header */
    KINDS
};

static struct {
    int in_a_row;         /* of so many items + 1, all but the last have a fault */
    uint32_t only;        /* the index of the actor that makes faults */
    bool header;          /* the fault is one of the item's header */
    uint64_t swallow;     /* the number of the item that is swallowed */
    uint64_t seen;        /* by actor 0 */
    uint64_t made[KINDS]; /* faults */
} plan;

struct body {
    uint8_t *bytes;
    size_t size;
};

static size_t
chunks_of(const struct body *b, size_t *at)
{
    size_t count = 0;
    exo_parameters p = {.bytes = b->bytes, .size = b->size};
    const uint8_t *chunk = NULL;
    size_t size = 0;
    bool damaged = false;
    at[0] = 0;
    for (size_t next = 0; exo_parameters_chunk(&p, &next, &chunk, &size, &damaged);)
        at[++count] = next;
    return count;
}

/* Writes the chunks of `b` in the order of `order` (count); number count + i stands for chunk i of
 * `old`. */
static struct body
arrange(const struct body *b, const struct body *old, const size_t *order, size_t count)
{
    size_t at[MOST_CHUNKS + 1], old_at[MOST_CHUNKS + 1], chunks = chunks_of(b, at);
    struct body out = {.bytes = malloc(b->size * 2 + old->size)};
    chunks_of(old, old_at);
    for (size_t i = 0; i < count; i++) {
        bool mine = order[i] < chunks;
        const size_t *from = mine ? at + order[i] : old_at + (order[i] - chunks);
        memcpy(out.bytes + out.size, (mine ? b : old)->bytes + from[0], from[1] - from[0]);
        out.size += from[1] - from[0];
    }
    return out;
}

static struct body
spoil(const struct body *b, const struct body *old, int kind, exo_rng *rng)
{
    size_t at[MOST_CHUNKS + 1], order[MOST_CHUNKS + 1], count = chunks_of(b, at), length = count;
    size_t pick = exo_rng_below(rng, (uint32_t)count - 1), old_count = chunks_of(old, at);
    chunks_of(b, at);
    for (size_t i = 0; i <= count; i++)
        order[i] = i;
    if (kind == LOST) {
        length--;
        for (size_t i = pick; i < length; i++)
            order[i] = i + 1;
    } else if (kind == REPEATED) {
        length++;
        for (size_t i = pick + 1; i < length; i++)
            order[i] = i - 1;
    } else if (kind == REORDERED) {
        order[pick] = pick + 1;
        order[pick + 1] = pick;
    } else if (kind == MIXED) {
        order[pick] = count + (pick < old_count ? pick : old_count - 1);
    }
    struct body out = arrange(b, old, order, length);
    if (kind == A_BIT)
        out.bytes[at[pick] + 8 + exo_rng_below(rng, (uint32_t)(at[pick + 1] - at[pick] - 8))] ^=
            (uint8_t)(1 << exo_rng_below(rng, 8));
    if (kind == CUT)
        out.size -= 1 + exo_rng_below(rng, (uint32_t)out.size / 2);
    for (size_t more = kind == GROWN ? 1 + exo_rng_below(rng, 12) : 0; more > 0; more--)
        out.bytes[out.size++] = 0x5a;
    if (kind == OLDER) {
        memcpy(out.bytes, old->bytes, old->size);
        out.size = old->size;
    }
    return out;
}

static exo_status
forward(exo_port *port, const exo_item *item, const struct body *b, bool spoil_header, exo_err *err)
{
    exo_item *copy = NULL;
    const exo_item_part parts[] = {{.dtype = EXO_I64, .count = item->parts[0].count},
                                   {.dtype = EXO_U8, .count = b->size}};
    exo_status st = exo_item_new(&copy, parts, 2, err);
    if (st != EXO_OK)
        return st;
    memcpy(copy->parts[0].data, item->parts[0].data, item->parts[0].count * sizeof(int64_t));
    memcpy(copy->parts[1].data, b->bytes, b->size);
    if (spoil_header)
        ((int64_t *)copy->parts[0].data)[0] ^= 1;
    copy->version = item->version;
    return exo_port_send(port, &copy, EXO_PORT_TIMEOUT, err);
}

static exo_status
between_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    exo_rng rng;
    exo_item *item = NULL;
    struct body old = {0}, last = {0}; /* of an earlier version; of the last item */
    uint64_t last_version = 0;
    exo_status st = EXO_OK;
    (void)self;
    exo_rng_init(&rng, 3, EXO_RNG_USER, 0, 0);
    for (uint64_t n = 0; st == EXO_OK; n++) {
        st = exo_port_receive(exo_graph_input(actor, "parameters"), EXO_PORT_TIMEOUT, &item, err);
        if (st != EXO_OK)
            break;
        struct body b = {.bytes = item->parts[1].data, .size = item->parts[1].count};
        int turn = (int)(n % (uint64_t)(plan.in_a_row + 1));
        if (item->version != last_version) {
            free(old.bytes);
            old = last;
            last = (struct body){0};
        }
        bool fault =
            item->version > 0 && exo_graph_index(actor) == plan.only && turn != plan.in_a_row;
        int kind = (int)exo_rng_below(&rng, KINDS);
        bool spoils = fault && !plan.header;
        struct body sent = spoils ? spoil(&b, &old, kind, &rng) : b;
        plan.made[kind] += fault;
        plan.seen++;
        if (n + 1 != plan.swallow)
            st = forward(exo_graph_output(actor, "parameters"), item, &sent, fault && plan.header,
                         err);
        if (spoils)
            free(sent.bytes);
        free(last.bytes);
        last = (struct body){.bytes = malloc(b.size), .size = b.size};
        memcpy(last.bytes, b.bytes, b.size);
        last_version = item->version;
        exo_item_drop(&item);
    }
    free(last.bytes);
    free(old.bytes);
    return st == EXO_CLOSED ? EXO_OK : st;
}

static const exo_graph_port between_ports[] = {
    {.name = "parameters", .type = "parameters", .direction = EXO_PORT_INPUT, .blocking = true},
    {.name = "parameters", .type = "parameters", .direction = EXO_PORT_OUTPUT},
};
static const exo_graph_class between = {
    .name = "between", .run = between_run, .ports = between_ports, .num_ports = 2};

/* --- Graphs ----------------------------------------------------------------------------------- */

struct end {
    exo_status status;
    exo_err err;
    char sha256[65];
    uint64_t wholes; /* updates without a base */
};

static void
find_wholes(void *context, const exo_meter_sample *sample)
{
    if (strcmp(sample->path, "trainer_0.update_wholes") == 0)
        *(uint64_t *)context = sample->count;
}

static void
read_sha(const char *folder, char out[65])
{
    char path[512], *text = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/final_trainer_0.json", folder);
    cr_assert_eq(exo_file_read(path, 1 << 20, &text, &size, NULL), EXO_OK);
    const char *sha = strstr(text, "\"sha256\": \"");
    cr_assert_not_null(sha);
    snprintf(out, 65, "%.64s", sha + strlen("\"sha256\": \""));
    exo_free(text);
}

/* tensor: makers that share each generation. */
static struct end
run_shared(unsigned makers, unsigned tensor, int updates, const char *update)
{
    char text[4096], folder[256];
    exo_graph_spec *spec = NULL;
    exo_graph_result result = {0};
    struct end end = {0};
    temp_folder(folder, sizeof folder);
    exo_graph_class_register(&between, NULL); /* once: a further one is EXISTS */
    snprintf(
        text, sizeof text,
        "exogym: 1\nseed: 5\nclock: virtual\nactors:\n"
        "  maker: {class: experience_maker, count: %u, compute: {make: 1 ms}, config: {model: "
        "&m {name: gpt, layers: 1, heads: 2, width: 16, context: 12, vocabulary: 11}, "
        "prompts: {tokens: [[1], [2, 3]]}, reward: {name: share, token: 5}, epochs: 0, "
        "generate: {max_new_tokens: 2}, parallel: {tensor: %u}}}\n"
        "  between: {class: between, count: %u}\n"
        "  trainer: {class: ppo_trainer, compute: {learn: 1 ms}, config: {model: *m, algorithm: "
        "reinforce++, batch: 2, updates: %d, update: {chunk: 4 KiB, %s}}}\n"
        "edges:\n"
        "  - {from: maker, to: trainer, carries: experience}\n"
        "  - {from: trainer, to: between, carries: parameters, route: broadcast}\n"
        "  - {from: between, to: maker, carries: parameters, route: one, buffer: {on_full: "
        "latest}}\n%s",
        makers, tensor, makers, updates, update,
        tensor > 1 ? "  - {from: maker, to: maker, carries: activations, route: all_reduce}\n"
                   : "");
    cr_assert_eq(
        exo_graph_parse(&spec, "test.yaml", text, &(exo_graph_opts){.name = "test"}, &end.err),
        EXO_OK, "%s", end.err.text);
    end.status = exo_graph_run(spec, &(exo_graph_run_opts){.space = "test", .folder = folder},
                               &result, &end.err);
    if (end.status == EXO_OK)
        read_sha(folder, end.sha256);
    exo_meters_walk(result.meters, find_wholes, &end.wholes, NULL);
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
    temp_remove(folder);
    return end;
}

static struct end
run(unsigned makers, int updates, const char *update)
{
    return run_shared(makers, 1, updates, update);
}

static uint64_t
faults(void)
{
    uint64_t sum = 0;
    for (int k = 0; k < KINDS; k++)
        sum += plan.made[k];
    return sum;
}

Test(update_paths, a_thousand_faults_are_detected_and_change_nothing, .timeout = 200)
{
    memset(&plan, 0, sizeof plan);
    struct end clean = run(1, UPDATES, "canary: false");
    cr_assert_eq(clean.status, EXO_OK, "%s", clean.err.text);
    cr_expect_eq(clean.wholes, 1);
    cr_expect_eq(faults(), 0);
    plan.in_a_row = 2;
    struct end spoilt = run(1, UPDATES, "canary: false");
    cr_assert_eq(spoilt.status, EXO_OK, "%s", spoilt.err.text);
    cr_expect_geq(faults(), 990, "%llu faults", (unsigned long long)faults());
    for (int k = 0; k < KINDS; k++)
        cr_expect_gt(plan.made[k], 100, "kind %d: %llu faults", k,
                     (unsigned long long)plan.made[k]);
    /* each fault was answered, and a whole update followed */
    cr_expect_leq(spoilt.wholes, faults() + 1);
    cr_expect_geq(spoilt.wholes + 2, faults() + 1);
    cr_expect_str_eq(spoilt.sha256, clean.sha256);
}

/* Also of makers that share each generation, one of which gets the faults. */
Test(update_paths, a_damaged_header_is_asked_for_again, .timeout = 60)
{
    for (unsigned tensor = 1; tensor <= 2; tensor++) {
        memset(&plan, 0, sizeof plan);
        struct end clean = run_shared(2, tensor, 30, "form: whole");
        cr_assert_eq(clean.status, EXO_OK, "%s", clean.err.text);
        plan.header = true;
        plan.in_a_row = 1;
        plan.only = 1;
        struct end spoilt = run_shared(2, tensor, 30, "form: whole");
        cr_assert_eq(spoilt.status, EXO_OK, "%u: %s", tensor, spoilt.err.text);
        cr_expect_geq(faults(), 10, "%llu faults", (unsigned long long)faults());
        cr_expect_gt(spoilt.wholes, clean.wholes);
        cr_expect_str_eq(spoilt.sha256, clean.sha256);
    }
}

Test(update_paths, an_update_that_one_maker_refuses_ends_the_run_with_its_reason, .timeout = 60)
{
    memset(&plan, 0, sizeof plan);
    plan.in_a_row = 1 << 20;
    plan.only = 1;
    struct end end = run(2, 50, "form: whole");
    cr_expect_neq(end.status, EXO_OK);
    cr_expect_not_null(strstr(end.err.text, "trainer_0: maker_1 cannot take version 1 "), "%s",
                       end.err.text);
}

Test(update_paths, an_update_that_never_comes_ends_the_run_as_stalled, .timeout = 60)
{
    memset(&plan, 0, sizeof plan);
    plan.swallow = 5;
    struct end end = run(1, 50, "form: delta");
    cr_expect_neq(end.status, EXO_OK);
    cr_expect_not_null(strstr(end.err.text, "maker_0"), "%s", end.err.text);
    cr_expect_not_null(strstr(end.err.text, "trainer_0"), "%s", end.err.text);
}

Test(update_paths, lossy_forms_reach_the_makers, .timeout = 60)
{
    static const char *const forms[] = {"whole", "bf16", "int8", "delta", "bf16_delta"};
    char first[65] = "";
    for (size_t i = 0; i < 5; i++) {
        char update[64];
        memset(&plan, 0, sizeof plan);
        snprintf(update, sizeof update, "form: %s", forms[i]);
        struct end end = run(1, 10, update);
        cr_assert_eq(end.status, EXO_OK, "%s: %s", forms[i], end.err.text);
        if (i == 0)
            strcpy(first, end.sha256);
        cr_expect_eq(strcmp(end.sha256, first) == 0, i == 0 || i == 3, "%s", forms[i]);
        cr_expect_eq(end.wholes, i < 3 ? 11u : 1u, "%s: %llu", forms[i],
                     (unsigned long long)end.wholes);
    }
}
