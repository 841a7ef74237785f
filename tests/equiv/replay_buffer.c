/* The replay buffer: each item passes once, the bound holds, no order of arrival stalls it, and
 * makers and trainers have the same bits with it as without it. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/generate.h>
#include <exogym/memory.h>

#include "base/file.h"
#include "experience/experience.h"
#include "graph/run.h"
#include "support/temp.h"

enum {
    ITEMS = 40,
    MAX_TAKERS = 3
};

/* --- A maker and a trainer that only count ----------------------------------------------------- */

/* Sends the items i, i + M, ..., and each third one twice; a fast one is far ahead of the others. */
static exo_status
giver_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    exo_status st = EXO_OK;
    (void)self;
    for (uint64_t id = exo_graph_index(actor); st == EXO_OK && id < ITEMS;
         id += exo_graph_count(actor)) {
        exo_experience e;
        exo_item *item = NULL;
        exo_graph_phase(actor, exo_graph_index(actor) == 0 ? "fast" : "slow");
        st = exo_experience_new(&item, &e, 1, 1, 1, false, err);
        if (st != EXO_OK)
            break;
        e.id = id;
        e.lengths[0] = 1;
        e.finish[0] = EXO_FINISH_LENGTH;
        exo_experience_sign(&e, item);
        exo_item *again = id % 3 == 0 ? exo_item_hold(item) : NULL;
        st = exo_port_send(exo_graph_output(actor, "experience"), &item, EXO_PORT_TIMEOUT, err);
        if (st == EXO_OK && again)
            st =
                exo_port_send(exo_graph_output(actor, "experience"), &again, EXO_PORT_TIMEOUT, err);
        exo_item_drop(&again);
    }
    return st == EXO_CLOSED ? EXO_OK : st;
}

/* The takers of the present run. */
static struct {
    uint64_t ids[MAX_TAKERS][ITEMS];
    size_t counts[MAX_TAKERS];
    size_t most; /* that each takes; 0: all */
} taken;

/* Takes items in turn with the other takers: nobody takes item k before all have taken item k - 1. */
static exo_status
taker_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    uint32_t index = exo_graph_index(actor);
    exo_group *group = exo_graph_group(actor, "turns");
    exo_status st = EXO_OK;
    (void)self;
    while (st == EXO_OK && (taken.most == 0 || taken.counts[index] < taken.most)) {
        exo_item *item = NULL;
        exo_experience e;
        float more = 0;
        st = exo_port_receive(exo_graph_input(actor, "experience"), EXO_PORT_TIMEOUT, &item, err);
        if (st == EXO_OK) {
            more = 1;
            exo_graph_phase(actor, "take");
            st = exo_experience_view(&e, item, err);
            taken.ids[index][taken.counts[index]++] = e.id;
            exo_item_drop(&item);
        }
        st = st == EXO_CLOSED ? EXO_OK : st;
        if (st == EXO_OK && group)
            st = exo_all_reduce(group, exo_host_array(EXO_F32, &more, 1), EXO_SUM, err);
        if (more <= 0)
            break;
    }
    return st;
}

static const exo_graph_port giver_ports[] = {
    {.name = "experience", .type = "experience", .direction = EXO_PORT_OUTPUT}};
static const exo_graph_port taker_ports[] = {
    {.name = "experience", .type = "experience", .direction = EXO_PORT_INPUT, .blocking = true},
    {.name = "turns", .type = "turns", .direction = EXO_PORT_COLLECTIVE}};
static const char *const giver_phases[] = {"fast", "slow", NULL};
static const char *const taker_phases[] = {"take", NULL};
static const exo_graph_class giver = {.name = "test_giver",
                                      .ports = giver_ports,
                                      .num_ports = 1,
                                      .phases = giver_phases,
                                      .run = giver_run};
static const exo_graph_class taker = {.name = "test_taker",
                                      .ports = taker_ports,
                                      .num_ports = 2,
                                      .phases = taker_phases,
                                      .run = taker_run};

struct flow {
    uint32_t givers, takers;
    const char *buffer; /* config */
    const char *clock;
    size_t most; /* that each taker takes; 0: all */
};

static double
figure(const exo_graph_result *result, const char *path)
{
    exo_meter_sample s;
    cr_assert(exo_meters_get(result->meters, path, &s), "%s", path);
    return s.meter_class->kind == EXO_COUNTER ? (double)s.count : s.value;
}

/* Items that the givers sent. */
static uint64_t given;

static void
run_flow(const struct flow *f, double *repeated, double *passed)
{
    char text[2048];
    exo_graph_spec *spec = NULL;
    exo_graph_result result = {0};
    exo_err err = {0};
    memset(&taken, 0, sizeof taken);
    taken.most = f->most;
    snprintf(text, sizeof text,
             "exogym: 1\nclock: %s\nactors:\n"
             "  giver: {class: test_giver, count: %u, compute: {fast: 10 us, slow: 3 ms}}\n"
             "  buffer: {class: replay_buffer, config: %s}\n"
             "  taker: {class: test_taker, count: %u, compute: {take: 1 ms}}\n"
             "edges:\n"
             "  - {from: giver, to: buffer, carries: experience}\n"
             "  - {from: buffer, to: taker, carries: experience, buffer: {capacity: 1}}\n%s",
             f->clock, f->givers, f->buffer, f->takers,
             f->takers > 1 ? "  - {from: taker, to: taker, carries: turns, route: all_reduce}\n"
                           : "");
    cr_assert_eq(exo_graph_parse(&spec, "test.yaml", text, &(exo_graph_opts){.name = "test"}, &err),
                 EXO_OK, "%s", err.text);
    cr_assert_eq(exo_graph_run(spec, &(exo_graph_run_opts){.space = "test"}, &result, &err), EXO_OK,
                 "%s: %s", text, err.text);
    given = exo_ledger_sum(&result.ledger, "giver>buffer:experience").items;
    *repeated = figure(&result, "buffer_0.repeated");
    *passed = figure(&result, "buffer_0.passed");
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
}

static void
register_classes(void)
{
    exo_graph_class_register(&giver, NULL);
    exo_graph_class_register(&taker, NULL);
}

Test(replay_buffer, each_item_passes_once_to_its_trainer, .init = register_classes)
{
    static const struct flow flows[] = {
        {1, 1, "{batch: 4}", "virtual", 0},
        {1, 1, "{batch: 7, capacity: 1}", "real", 0},
        {2, 2, "{batch: 4, capacity: 1}", "virtual", 0},
        {2, 2, "{batch: 4, capacity: 1, linger: 2 ms}", "real", 0},
        {3, 2, "{batch: 16, capacity: 1, linger: 2 ms}", "virtual", 0},
        {1, 3, "{batch: 1, capacity: 2}", "virtual", 0},
        {2, 1, "{batch: 64}", "virtual", 0},
    };
    for (size_t i = 0; i < sizeof flows / sizeof *flows; i++) {
        const struct flow *f = &flows[i];
        int times[ITEMS] = {0};
        double repeated = 0, passed = 0;
        run_flow(f, &repeated, &passed);
        for (uint32_t t = 0; t < f->takers; t++)
            for (size_t k = 0; k < taken.counts[t]; k++) {
                cr_expect_eq(taken.ids[t][k] % f->takers, t, "flow %zu: item %llu", i,
                             (unsigned long long)taken.ids[t][k]);
                times[taken.ids[t][k]]++;
            }
        for (int id = 0; id < ITEMS; id++)
            cr_expect_eq(times[id], 1, "flow %zu: item %d came %d times", i, id, times[id]);
        cr_expect_eq(repeated, (ITEMS + 2) / 3, "flow %zu: %g", i, repeated);
        cr_expect_eq(passed, ITEMS, "flow %zu: %g", i, passed);
    }
}

/* Trainers that have enough end the run: the makers do not wait for room for ever. */
Test(replay_buffer, makers_end_when_trainers_have_ended, .init = register_classes)
{
    static const char *const clocks[] = {"virtual", "real"};
    for (size_t i = 0; i < 2; i++) {
        double repeated = 0, passed = 0;
        run_flow(&(struct flow){2, 2, "{batch: 2, capacity: 1}", clocks[i], 5}, &repeated, &passed);
        cr_expect_eq(taken.counts[0], 5);
        cr_expect_eq(taken.counts[1], 5);
    }
}

/* A fast maker waits for room, unless there is no limit. */
Test(replay_buffer, makers_wait_for_room, .init = register_classes)
{
    double repeated = 0, passed = 0;
    run_flow(&(struct flow){1, 1, "{batch: 2, capacity: 2}", "virtual", 5}, &repeated, &passed);
    cr_expect_lt(given, ITEMS, "%llu items came", (unsigned long long)given);
    run_flow(&(struct flow){1, 1, "{batch: 2}", "virtual", 5}, &repeated, &passed);
    cr_expect_gt(given, ITEMS, "%llu items came", (unsigned long long)given);
}

/* --- Makers and trainers ---------------------------------------------------------------------- */

#define MODEL "{name: gpt, layers: 1, heads: 2, width: 16, context: 16, vocabulary: 11}"

/* Runs makers and trainers of a language model; `sha256` gets the weights of trainer 0. */
static void
learn(uint32_t makers, uint32_t trainers, const char *clock, const char *buffer, char sha256[65])
{
    char text[4096], folder[256], path[512], *json = NULL;
    exo_graph_spec *spec = NULL;
    exo_graph_result result = {0};
    exo_err err = {0};
    snprintf(text, sizeof text,
             "exogym: 1\nseed: 3\nclock: %s\nactors:\n"
             "  maker: {class: experience_maker, count: %u, config: {model: " MODEL
             ", prompts: {tokens: [[1], [2, 3], [4]]}, reward: {name: share, token: 5}, answers: "
             "4, epochs: 0, generate: {max_new_tokens: 8}}}\n"
             "%s%s%s"
             "  trainer: {class: ppo_trainer, count: %u, config: {model: " MODEL
             ", algorithm: grpo, slices: 2, batch: %u, updates: 4}}\n"
             "edges:\n"
             "  - {from: maker, to: %s, carries: experience%s}\n%s"
             "  - {from: trainer, to: maker, carries: parameters, route: broadcast, buffer: "
             "{on_full: latest}}\n%s",
             clock, makers, buffer ? "  buffer: {class: replay_buffer, config: " : "",
             buffer ? buffer : "", buffer ? "}\n" : "", trainers, 8 / trainers,
             buffer ? "buffer" : "trainer", buffer ? "" : ", route: modulo",
             buffer ? "  - {from: buffer, to: trainer, carries: experience}\n" : "",
             trainers > 1
                 ? "  - {from: trainer, to: trainer, carries: gradients, route: all_reduce}\n"
                 : "");
    temp_folder(folder, sizeof folder);
    cr_assert_eq(exo_graph_parse(&spec, "test.yaml", text, &(exo_graph_opts){.name = "test"}, &err),
                 EXO_OK, "%s", err.text);
    cr_assert_eq(exo_graph_run(spec, &(exo_graph_run_opts){.space = "test", .folder = folder},
                               &result, &err),
                 EXO_OK, "%s", err.text);
    snprintf(path, sizeof path, "%s/final_trainer_0.json", folder);
    cr_assert_eq(exo_file_read(path, 1 << 16, &json, &(size_t){0}, NULL), EXO_OK);
    cr_assert_eq(sscanf(strstr(json, "\"sha256\": \"") + 11, "%64[0-9a-f]", sha256), 1);
    exo_free(json);
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
    temp_remove(folder);
}

Test(replay_buffer, bits_are_those_without_it)
{
    char plain[65], buffered[65];
    learn(1, 1, "virtual", NULL, plain);
    learn(1, 1, "virtual", "{batch: 4}", buffered);
    cr_expect_str_eq(plain, buffered);
    learn(2, 2, "real", "{batch: 3, capacity: 1, linger: 2 ms}", buffered);
    cr_expect_str_eq(plain, buffered);
    learn(3, 2, "virtual", "{batch: 8, capacity: 2}", buffered);
    cr_expect_str_eq(plain, buffered);
}
