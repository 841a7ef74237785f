/* Makers, trainers and replay buffers whose lives end at random moments, on the virtual clock: the run
 * goes on, each draw is learned from once, and with staleness 0 the weights have the bits of a run
 * without deaths. A run that is resumed ends with them, too. Deaths of processes:
 * tests/cluster/ppo_survives.sh.
 *
 * An actor between two others, which has no rule, damages items that it passes on: who receives one
 * fails. A reward fails, or a tool inside a dialogue: its maker does. The plan is static, for one run
 * at a time. */
#include <criterion/criterion.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/memory.h>
#include <exogym/reward.h>
#include <exogym/rng.h>
#include <exogym/tool.h>

#include "base/file.h"
#include "experience/experience.h"
#include "experience/parameters.h"
#include "graph/run.h"
#include "support/parrot.h"
#include "support/sanitized.h"
#include "support/temp.h"

enum {
    MAX_SITES = 3, /* of actors between */
    DRAWS = 120
};

static struct {
    exo_rng rng[MAX_SITES], of_rewards;
    uint32_t one_in;         /* an item of so many, a turn of twice, an answer of 8 times as many */
    _Atomic uint64_t deaths; /* that were planted */
    uint64_t most;           /* deaths of each kind */
    uint64_t dialogues;      /* that deaths have cut, of all runs */
    uint64_t stop_at;        /* the answer that ends the run; 0: none */
    bool sleeps;             /* an update takes longer than makers wait for a version */
    uint64_t first;          /* no item before this draw is damaged */
    _Atomic uint64_t ends;   /* so many messages that all draws were sent are damaged, too */
    int64_t beyond;          /* is added to the number of the first item that passes; 0: nothing */
    _Atomic uint64_t answers;
} plan;

/* --- Who makes others fail -------------------------------------------------------------------- */

static exo_status
score(void *self, const exo_answer *answer, double *out, exo_err *err)
{
    (void)self;
    uint64_t number = ++plan.answers;
    *out = 0;
    for (size_t i = 0; i < answer->length; i++)
        *out += answer->tokens[i] == 5;
    if (plan.stop_at > 0 && number >= plan.stop_at)
        return exo_fail(err, EXO_FAILED, "the end");
    if (plan.one_in > 0 && plan.deaths < plan.most &&
        exo_rng_below(&plan.of_rewards, 8 * plan.one_in) == 0) {
        plan.deaths++;
        return exo_fail(err, EXO_FAILED, "on purpose");
    }
    return EXO_OK;
}

static const exo_reward_class fives = {
    .name = "fives", .help = "fives, or a failure", .score = score};

/* Whether an item is to be damaged. */
static bool
is_doomed(const exo_item *item, exo_rng *rng)
{
    exo_experience e;
    if (exo_parameters_is_reply(item)) {
        bool last = plan.ends > 0 && exo_parameters_reply_is_last(item);
        plan.ends -= last;
        return last;
    }
    return plan.one_in > 0 && plan.deaths < plan.most &&
           exo_experience_view(&e, item, NULL) == EXO_OK && e.id >= plan.first &&
           exo_rng_below(rng, plan.one_in) == 0;
}

/* A copy of an item with another number. */
static exo_item *
renumbered(const exo_item *item, int64_t more)
{
    exo_item *copy = NULL;
    exo_experience e;
    cr_assert_eq(exo_item_new(&copy, item->parts, item->num_parts, NULL), EXO_OK);
    for (size_t i = 0; i < item->num_parts; i++)
        memcpy(copy->parts[i].data, item->parts[i].data,
               item->parts[i].count * exo_dtype_size(item->parts[i].dtype));
    cr_assert_eq(exo_experience_view(&e, copy, NULL), EXO_OK);
    e.id += (uint64_t)more;
    exo_experience_sign(&e, copy);
    return copy;
}

/* A copy of an item that nobody accepts: it lacks an array. */
static exo_item *
damaged(const exo_item *item)
{
    exo_item *copy = NULL;
    cr_assert_eq(exo_item_new(&copy, item->parts, item->num_parts - 1, NULL), EXO_OK);
    return copy;
}

static exo_status
between_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    exo_item *item = NULL;
    exo_status st = EXO_OK;
    exo_rng *rng = &plan.rng[exo_graph_index(actor) % MAX_SITES];
    (void)self;
    while (st == EXO_OK) {
        st = exo_port_receive(exo_graph_input(actor, "experience"), EXO_PORT_TIMEOUT, &item, err);
        if (st != EXO_OK)
            break;
        if (is_doomed(item, rng)) {
            exo_item *bad = damaged(item);
            exo_item_drop(&item);
            item = bad;
            plan.deaths++;
        }
        if (plan.beyond != 0 && !exo_parameters_is_reply(item)) {
            exo_item *other = renumbered(item, plan.beyond);
            exo_item_drop(&item);
            item = other;
            plan.beyond = 0;
        }
        st = exo_port_send(exo_graph_output(actor, "experience"), &item, EXO_PORT_TIMEOUT, err);
    }
    return st == EXO_CLOSED ? EXO_OK : st;
}

static const exo_graph_port between_ports[] = {
    {.name = "experience", .type = "experience", .direction = EXO_PORT_INPUT, .blocking = true},
    {.name = "experience", .type = "experience", .direction = EXO_PORT_OUTPUT},
};
static const exo_graph_class between = {
    .name = "between", .run = between_run, .ports = between_ports, .num_ports = 2};

/* The tool `fragile` is the parrot, which fails inside dialogues. */
static exo_status
reply(void *self, void *state, const exo_tool_turn *turn, exo_tool_reply *out, exo_err *err)
{
    if (plan.one_in > 0 && plan.deaths < plan.most && turn->number > 0 &&
        exo_rng_below(&plan.of_rewards, 2 * plan.one_in) == 0) {
        plan.deaths++;
        plan.dialogues++;
        return exo_fail(err, EXO_FAILED, "on purpose");
    }
    return parrot()->reply(self, state, turn, out, err);
}

static exo_tool_class fragile;

/* --- Graphs ----------------------------------------------------------------------------------- */

struct shape {
    unsigned makers, trainers;
    bool buffer;
    const char *maker, *trainer; /* further options */
    const char *edges;           /* further edges */
    bool apart;                  /* each maker follows a trainer of its own */
    bool behind;                 /* the actors between are behind the buffer */
};

struct end {
    exo_status status;
    exo_err err;
    char sha256[65];
    uint64_t items,
        missing;       /* learned from, by the ledger; draws below the last one that were not */
    uint64_t repeated; /* items that trainer 0 got again, by its result */
    bool twice;        /* a draw was learned from twice */
};

static void
write_graph(char *out, size_t size, const struct shape *s, const char *rule)
{
    const char *route = s->trainers > 1 && !s->buffer ? ", route: modulo" : "";
    /* some answers overtake others if their lengths differ */
    const char *stop = strstr(s->trainer, "oversample") ? ", stop: [1, 2, 3]" : "";
    int n =
        snprintf(out, size,
                 "exogym: 1\nseed: 5\nclock: virtual\nactors:\n"
                 "  maker: {class: experience_maker, count: %u, %s, compute: {make: "
                 "1 ms, step: 1 ms}, config: {model: &m {name: gpt, layers: 1, heads: 2, width: "
                 "16, context: "
                 "18, vocabulary: 11}, prompts: {tokens: [[1], [2, 3], [4, 7, 9]]}, reward: fives, "
                 "epochs: 40, "
                 "batch: 3, answers: 2, generate: {max_new_tokens: 4%s}, %s}}\n"
                 "  between: {class: between, count: %u}\n"
                 "  trainer: {class: ppo_trainer, count: %u, %s, compute: {learn: %s}, config: "
                 "{model: *m, algorithm: {name: grpo, kl_coef: 0.02, kl_target: 1}, slices: 2, "
                 "batch: %u, checkpoint: {every: 3}, optimizer: {name: adamw, lr: 3e-3}, %s}}\n",
                 s->makers, rule, stop, s->maker,
                 s->behind   ? s->trainers
                 : s->buffer ? 1
                             : s->makers,
                 s->trainers, rule, plan.sleeps ? "2 min" : "1 ms", 8 / s->trainers, s->trainer);
    if (s->buffer)
        n += snprintf(out + n, size - (size_t)n,
                      "  buffer: {class: replay_buffer, %s, config: {batch: 4, capacity: 2}}\n",
                      rule);
    n += snprintf(out + n, size - (size_t)n,
                  "edges:\n"
                  "  - {from: maker, to: %s, carries: experience%s}\n"
                  "  - {from: trainer, to: maker, carries: parameters, route: %s, buffer: "
                  "{on_full: latest}%s}\n",
                  s->behind ? "buffer" : "between", s->buffer ? "" : ", route: one",
                  s->apart ? "modulo" : "broadcast", plan.sleeps ? ", deadline: 1 min" : "");
    if (s->behind)
        n += snprintf(out + n, size - (size_t)n,
                      "  - {from: buffer, to: between, carries: experience}\n"
                      "  - {from: between, to: trainer, carries: experience, route: one}\n");
    else if (s->buffer)
        n += snprintf(out + n, size - (size_t)n,
                      "  - {from: between, to: buffer, carries: experience}\n"
                      "  - {from: buffer, to: trainer, carries: experience}\n");
    else
        n += snprintf(out + n, size - (size_t)n,
                      "  - {from: between, to: trainer, carries: experience%s}\n", route);
    snprintf(out + n, size - (size_t)n, "%s", s->edges ? s->edges : "");
}

static void
read_final(const char *folder, struct end *end)
{
    char path[512], *text = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/final_trainer_0.json", folder);
    cr_assert_eq(exo_file_read(path, 1 << 20, &text, &size, NULL), EXO_OK);
    const char *sha = strstr(text, "\"sha256\": \""), *again = strstr(text, "\"repeated\": ");
    cr_assert(sha && again);
    snprintf(end->sha256, sizeof end->sha256, "%.64s", sha + strlen("\"sha256\": \""));
    end->repeated = strtoull(again + strlen("\"repeated\": "), NULL, 10);
    exo_free(text);
}

/* Reads which items trainer `index` has learned from. */
static void
read_ledger(const char *folder, unsigned index, struct end *end, bool *seen, size_t most)
{
    char path[512], *text = NULL, *rest = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/learned_trainer_%u.csv", folder, index);
    cr_assert_eq(exo_file_read(path, 1 << 24, &text, &size, NULL), EXO_OK);
    strtok_r(text, "\n", &rest);
    for (const char *line; (line = strtok_r(NULL, "\n", &rest)); end->items++) {
        uint64_t item = strtoull(line, NULL, 10);
        cr_assert_lt(item, most);
        end->twice = end->twice || seen[item];
        seen[item] = true;
    }
    exo_free(text);
}

static void
read_ledgers(const char *folder, unsigned trainers, struct end *end)
{
    bool seen[DRAWS] = {0};
    for (unsigned t = 0; t < trainers; t++)
        read_ledger(folder, t, end, seen, DRAWS);
    for (size_t i = 0; i < DRAWS; i++)
        end->missing += !seen[i];
}

/* Runs a graph in a folder. rule: of makers, trainers and buffers; one_in, stop_at: of the plan. */
static struct end
run_under(const char *folder, const struct shape *s, uint64_t seed, uint32_t one_in,
          const char *rule, uint64_t stop_at, bool resume)
{
    char text[4096];
    exo_graph_spec *spec = NULL;
    exo_graph_result result = {0};
    struct end end = {0};
    exo_graph_class_register(&between, NULL); /* once: a further one is EXISTS */
    exo_reward_class_register(&fives, NULL);
    fragile = *parrot();
    fragile.name = "fragile";
    fragile.reply = reply;
    exo_tool_class_register(&fragile, NULL);
    plan.one_in = one_in;
    plan.deaths = plan.answers = 0;
    plan.most = 12;
    plan.stop_at = stop_at;
    for (size_t i = 0; i < MAX_SITES; i++)
        exo_rng_init(&plan.rng[i], seed, EXO_RNG_USER, 0, i);
    exo_rng_init(&plan.of_rewards, seed, EXO_RNG_USER, 1, 0);
    write_graph(text, sizeof text, s, rule);
    cr_assert_eq(
        exo_graph_parse(&spec, "test.yaml", text, &(exo_graph_opts){.name = "test"}, &end.err),
        EXO_OK, "%s", end.err.text);
    const exo_graph_run_opts opts = {.space = "test", .folder = folder, .resume = resume};
    end.status = exo_graph_run(spec, &opts, &result, &end.err);
    if (end.status == EXO_OK) {
        read_final(folder, &end);
        read_ledgers(folder, s->trainers, &end);
    }
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
    return end;
}

/* The same; mortal: there is no rule. */
static struct end
run_in(const char *folder, const struct shape *s, uint64_t seed, uint32_t one_in, bool mortal,
       uint64_t stop_at, bool resume)
{
    return run_under(folder, s, seed, one_in,
                     mortal ? "restart: {when: never}" : "restart: {when: on_failure}", stop_at,
                     resume);
}

static struct end
run(const struct shape *s, uint64_t seed, uint32_t one_in)
{
    char folder[256];
    temp_folder(folder, sizeof folder);
    struct end end = run_in(folder, s, seed, one_in, false, 0, false);
    temp_remove(folder);
    return end;
}

static void
expect_each_once(const struct end *end, size_t shape, uint64_t seed)
{
    cr_expect(end->items == DRAWS && end->missing == 0 && !end->twice,
              "shape %zu, seed %llu: %llu items, %llu missing%s", shape, (unsigned long long)seed,
              (unsigned long long)end->items, (unsigned long long)end->missing,
              end->twice ? ", one twice" : "");
}

#define PARAMETERS "  - {from: trainer, to: trainer, carries: parameters, route: all_reduce}\n"
#define GRADIENTS  "  - {from: trainer, to: trainer, carries: gradients, route: all_reduce}\n"
#define DIALOGUES  "tool: {name: fragile, turn_tokens: 1}"

static const struct shape shapes[] = {
    {1, 1, false, "swap: batch", "staleness: 0", NULL, false, false},
    {2, 1, false, "swap: step", "staleness: 0, update_steps: 2, epochs: 2", NULL, false, false},
    {2, 2, false, "swap: batch", "update: {form: bf16_delta}", GRADIENTS, false, false},
    {3, 1, true, "swap: step, " DIALOGUES, "staleness: 0", NULL, false, false},
    {2, 2, true, "swap: batch", "update: {form: int8}", GRADIENTS, false, false},
    {2, 2, false, "swap: batch", "updates: 15, strategy: {name: diloco, H: 6}", PARAMETERS, true,
     false},
    {2, 1, false, "swap: batch, " DIALOGUES, "staleness: 0", NULL, false, false},
    {3, 1, false, "swap: step", "balance: true", NULL, false, false},
    {2, 2, true, "swap: batch", "updates: 15, strategy: {name: diloco, H: 6}", PARAMETERS, false,
     false},
};

Test(survival, deaths_change_no_bit_and_each_draw_is_learned_from_once, .timeout = 400)
{
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k += one_of(2)) {
        struct end calm = run(&shapes[k], 0, 0);
        cr_assert_eq(calm.status, EXO_OK, "shape %zu: %s", k, calm.err.text);
        cr_expect(calm.items == DRAWS && !calm.twice);
        for (uint64_t seed = SANITIZED ? 2 : 1; seed <= 2; seed++) {
            struct end end = run(&shapes[k], seed, 11);
            cr_assert_eq(end.status, EXO_OK, "shape %zu, seed %llu: %s", k,
                         (unsigned long long)seed, end.err.text);
            cr_expect_geq(plan.deaths, 2);
            expect_each_once(&end, k, seed);
            cr_expect_str_eq(end.sha256, calm.sha256, "shape %zu, seed %llu", k,
                             (unsigned long long)seed);
        }
    }
    cr_expect_geq(plan.dialogues, SANITIZED ? 1 : 4, "%llu", (unsigned long long)plan.dialogues);
}

/* The receivers of the last items fail, and those of the word that makers have sent all: trainers and
 * buffers, when nothing is left to be made. */
Test(survival, deaths_at_the_very_end_lose_no_draw, .timeout = 400)
{
    static const struct shape late[] = {
        {2, 1, false, "swap: batch", "staleness: 0", NULL, false, false},
        {3, 1, true, "swap: step", "staleness: 0", NULL, false, false},
        {3, 1, true, "swap: batch", "staleness: 0", NULL, false, true},
        {2, 2, true, "swap: step", "staleness: 0", GRADIENTS, false, true},
        {2, 2, false, "swap: batch", "updates: 15, strategy: {name: diloco, H: 6}", PARAMETERS,
         true, false},
        {3, 1, false, "swap: step", "balance: true", NULL, false, false},
        {3, 1, true, "swap: batch", "balance: true", NULL, false, true},
        {3, 2, true, "swap: step", "balance: true, staleness: 0", GRADIENTS, true, true},
        {3, 1, true, "swap: step", "staleness: 4", NULL, false, true},
        {3, 2, true, "swap: step", "staleness: 2, oversample: 1.75", GRADIENTS, false, true},
        {3, 2, true, "swap: step", "updates: 15, strategy: {name: diloco, H: 6}", PARAMETERS, false,
         false},
    };
    for (size_t k = 0; k < sizeof late / sizeof *late; k += one_of(2)) {
        bool exact = k < 8;
        struct end calm = {0};
        if (exact)
            calm = run(&late[k], 0, 0);
        cr_assert_eq(calm.status, EXO_OK, "shape %zu: %s", k, calm.err.text);
        plan.first = DRAWS - 12;
        for (uint64_t seed = SANITIZED ? 2 : 1; seed <= 2; seed++) {
            plan.ends = 3;
            struct end end = run(&late[k], seed, 4);
            cr_assert_eq(end.status, EXO_OK, "shape %zu, seed %llu: %s", k,
                         (unsigned long long)seed, end.err.text);
            cr_expect_eq(plan.ends, 0, "shape %zu: %llu", k, (unsigned long long)plan.ends);
            cr_expect_geq(plan.deaths, 4);
            expect_each_once(&end, k, seed);
            if (exact)
                cr_expect_str_eq(end.sha256, calm.sha256, "shape %zu, seed %llu", k,
                                 (unsigned long long)seed);
        }
        plan.first = 0;
    }
}

/* Makers that have sent all do not wait for ever: neither for a trainer that is dead, nor for one that
 * does nothing. */
Test(survival, makers_end_without_their_trainers, .timeout = 100)
{
    const struct shape dies = {3, 1, true, "swap: batch", "staleness: 0", NULL, false, true};
    const struct shape sleeps = {2, 1, false, "swap: batch", "staleness: 20", NULL, false, false};
    char folder[256];
    temp_folder(folder, sizeof folder);
    plan.ends = 100;
    struct end end =
        run_under(folder, &dies, 1, 0, "restart: {when: on_failure, max: 2}", 0, false);
    plan.ends = 0;
    cr_expect_neq(end.status, EXO_OK);
    cr_expect(strstr(end.err.text, "trainer_0") && strstr(end.err.text, "experience"), "%s",
              end.err.text);
    temp_remove(folder);

    temp_folder(folder, sizeof folder);
    plan.sleeps = true;
    end = run_under(folder, &sleeps, 1, 0, "restart: {when: on_failure, max: 1}", 0, false);
    plan.sleeps = false;
    cr_expect_neq(end.status, EXO_OK);
    cr_expect(strstr(end.err.text, "maker_") &&
                  strstr(end.err.text, "all draws were sent, but the trainers have neither ended"),
              "%s", end.err.text);
    temp_remove(folder);
}

/* With staleness the bits are others, as items that are made again have newer weights. */
Test(survival, items_that_wait_in_a_trainer_are_not_lost, .timeout = 200)
{
    const struct shape stale[] = {
        {3, 1, false, "swap: step, kv: keep, " DIALOGUES, "staleness: 4", NULL, false, false},
        {3, 1, true, "swap: batch", "staleness: 6", NULL, false, false},
        {2, 1, false, "swap: step", "staleness: 3, oversample: 1.5", NULL, false, false},
        {3, 2, true, "swap: step", "staleness: 2, oversample: 1.75", GRADIENTS, false, false},
        {3, 1, false, "swap: step", "staleness: 3, balance: true", NULL, false, false},
        {3, 1, true, "swap: batch", "staleness: 2, oversample: 1.5, balance: true", NULL, false,
         false}};
    for (size_t k = 0; k < sizeof stale / sizeof *stale; k++)
        for (uint64_t seed = 1; seed <= 3; seed += one_of(3)) {
            struct end end = run(&stale[k], seed, 11);
            cr_assert_eq(end.status, EXO_OK, "shape %zu, seed %llu: %s", k,
                         (unsigned long long)seed, end.err.text);
            expect_each_once(&end, k, seed);
        }
}

Test(survival, a_run_that_fails_anywhere_resumes_to_the_same_bits, .timeout = 200)
{
    exo_rng rng;
    exo_rng_init(&rng, 8, EXO_RNG_USER, 0, 0);
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k += one_of(4)) {
        char folder[256];
        struct end calm = run(&shapes[k], 0, 0), end = {.status = EXO_FAILED};
        temp_folder(folder, sizeof folder);
        for (int runs = 0; end.status != EXO_OK; runs++) {
            uint64_t at = runs < 3 ? 1 + exo_rng_below(&rng, 150) : 0;
            end = run_in(folder, &shapes[k], 1, 0, true, at, runs > 0);
            cr_assert(end.status == EXO_OK || strstr(end.err.text, "the end"), "shape %zu: %s", k,
                      end.err.text);
        }
        expect_each_once(&end, k, 0);
        cr_expect_str_eq(end.sha256, calm.sha256, "shape %zu", k);
        temp_remove(folder);
    }
}

/* Copies the files of a folder. */
static void
copy_files(const char *from, const char *to)
{
    struct dirent **entries = NULL;
    int count = scandir(from, &entries, NULL, alphasort);
    cr_assert_geq(count, 0);
    for (int i = 0; i < count; i++) {
        char source[600], target[600], *text = NULL;
        size_t size = 0;
        snprintf(source, sizeof source, "%s/%.255s", from, entries[i]->d_name);
        snprintf(target, sizeof target, "%s/%.255s", to, entries[i]->d_name);
        if (exo_file_read(source, 1 << 24, &text, &size, NULL) == EXO_OK) /* else a folder */
            cr_assert_eq(exo_file_write_atomic(target, text, size, NULL), EXO_OK);
        exo_free(text);
        free(entries[i]);
    }
    free(entries);
}

/* Draws beyond the position that the trainer has learned from are in its checkpoint, and are not made
 * again; a run that is resumed twice ends with the same bits. */
Test(survival, an_oversampling_run_resumes_with_the_draws_that_are_not_learned_from, .timeout = 100)
{
    const struct shape s = {2,    1,     false, "swap: step", "staleness: 3, oversample: 1.5",
                            NULL, false, false};
    for (uint64_t at = 100; at <= 160; at += 30) {
        struct end ends[2];
        char folders[2][256];
        for (size_t i = 0; i < 2; i++)
            temp_folder(folders[i], sizeof folders[i]);
        struct end cut = run_in(folders[0], &s, 1, 0, true, at, false);
        cr_assert(strstr(cut.err.text, "the end"), "%s", cut.err.text);
        copy_files(folders[0], folders[1]);
        for (size_t i = 0; i < 2; i++) {
            ends[i] = run_in(folders[i], &s, 1, 0, true, 0, true);
            cr_assert_eq(ends[i].status, EXO_OK, "%s", ends[i].err.text);
            expect_each_once(&ends[i], i, at);
            cr_expect_eq(ends[i].repeated, 0, "%llu items came again",
                         (unsigned long long)ends[i].repeated);
            temp_remove(folders[i]);
        }
        cr_expect_str_eq(ends[0].sha256, ends[1].sha256);
    }
}

Test(survival, an_item_beyond_the_quota_is_refused, .timeout = 100)
{
    const struct {
        size_t shape;
        int64_t beyond;
        const char *says;
    } cases[] = {
        {0, 8, "item 8 is beyond the quota: makers may make the items below 8"},
        {0, INT64_MAX, "is beyond the quota"},
        {0, -1, "header: item is -1, which is out of its range"},
        {3, 8, "is beyond the quota"},
        {3, INT64_MAX, "but the others are from"}, /* the first item of the buffer may be any */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[256];
        temp_folder(folder, sizeof folder);
        plan.beyond = cases[i].beyond;
        struct end end = run_in(folder, &shapes[cases[i].shape], 1, 0, true, 0, false);
        cr_expect(strstr(end.err.text, cases[i].says), "case %zu: %s", i, end.err.text);
        temp_remove(folder);
    }
}

/* --- Damaged files ---------------------------------------------------------------------------- */

/* Lists the checkpoints of trainer 0, the newest one last. Returns their number. */
static size_t
list_checkpoints(const char *folder, char paths[4][512])
{
    size_t count = 0;
    struct dirent **entries = NULL;
    int found = scandir(folder, &entries, NULL, alphasort);
    cr_assert_geq(found, 0);
    for (int i = 0; i < found; i++) {
        if (strncmp(entries[i]->d_name, "checkpoint_trainer_0_", 21) == 0) {
            cr_assert_lt(count, 4u);
            snprintf(paths[count++], 512, "%s/%.200s", folder, entries[i]->d_name);
        }
        free(entries[i]);
    }
    free(entries);
    return count;
}

static off_t
size_of(const char *path)
{
    struct stat info;
    cr_assert_eq(stat(path, &info), 0);
    return info.st_size;
}

static void
flip_byte(const char *path, off_t at)
{
    FILE *file = fopen(path, "r+b");
    cr_assert_not_null(file);
    cr_assert_eq(fseeko(file, at, SEEK_SET), 0);
    int byte = fgetc(file);
    cr_assert_eq(fseeko(file, at, SEEK_SET), 0);
    cr_assert_neq(fputc(byte ^ 1, file), EOF);
    cr_assert_eq(fclose(file), 0);
}

/* Begins a run that fails at answer 150, after some checkpoints. */
static size_t
begin_run(const char *folder, const struct shape *s, char paths[4][512])
{
    struct end end = run_in(folder, s, 1, 0, true, 150, false);
    cr_assert(strstr(end.err.text, "the end"), "%s", end.err.text);
    size_t count = list_checkpoints(folder, paths);
    cr_assert_geq(count, 2u);
    return count;
}

Test(survival, a_damaged_checkpoint_is_passed_over, .timeout = 100)
{
    const struct shape *some[] = {&shapes[0], &shapes[2]};
    for (size_t k = 0; k < 2; k++) {
        struct end calm = run(some[k], 0, 0);
        for (int how = 0; how < 3; how++) {
            char folder[256], paths[4][512];
            temp_folder(folder, sizeof folder);
            const char *newest = paths[begin_run(folder, some[k], paths) - 1];
            off_t size = size_of(newest);
            if (how == 0)
                flip_byte(newest, size - 5);
            else if (how == 1)
                flip_byte(newest, 200); /* in the header */
            else
                cr_assert_eq(truncate(newest, size / 2), 0);
            struct end end = run_in(folder, some[k], 1, 0, true, 0, true);
            cr_assert_eq(end.status, EXO_OK, "shape %zu, %d: %s", k, how, end.err.text);
            expect_each_once(&end, k, 0);
            cr_expect_str_eq(end.sha256, calm.sha256, "shape %zu, %d", k, how);
            temp_remove(folder);
        }
    }
}

Test(survival, an_error_about_files_names_one_and_removes_none, .timeout = 100)
{
    const struct shape learns_twice = {1, 1, false, "swap: batch", "epochs: 2", NULL, false, false};
    char folder[256], other[256], paths[4][512], strange[4][512], path[600], aside[600];
    struct end calm = run(&shapes[0], 0, 0);
    temp_folder(folder, sizeof folder);
    temp_folder(other, sizeof other);
    const size_t count = begin_run(folder, &shapes[0], paths);
    begin_run(other, &learns_twice, strange);

    for (size_t i = 0; i < count; i++)
        flip_byte(paths[i], size_of(paths[i]) - 1);
    struct end end = run_in(folder, &shapes[0], 1, 0, true, 0, true);
    cr_expect(strstr(end.err.text, paths[count - 1]) && strstr(end.err.text, "is damaged"), "%s",
              end.err.text);
    for (size_t i = 0; i < count; i++)
        flip_byte(paths[i], size_of(paths[i]) - 1);

    snprintf(path, sizeof path, "%s/learned_trainer_0.csv", folder);
    snprintf(aside, sizeof aside, "%s/aside", folder);
    cr_assert_eq(rename(path, aside), 0);
    end = run_in(folder, &shapes[0], 1, 0, true, 0, true);
    cr_expect(strstr(end.err.text, path), "%s", end.err.text);
    cr_assert_eq(rename(aside, path), 0);

    /* the newest checkpoint of a run with the same seed and model */
    cr_assert_eq(rename(paths[count - 1], aside), 0);
    cr_assert_eq(link(strange[count - 1], paths[count - 1]), 0);
    end = run_in(folder, &shapes[0], 1, 0, true, 0, true);
    cr_expect(strstr(end.err.text, "versions_trainer_0.csv"), "%s", end.err.text);
    cr_assert_eq(rename(aside, paths[count - 1]), 0);

    cr_expect_eq(list_checkpoints(folder, paths), count);
    end = run_in(folder, &shapes[0], 1, 0, true, 0, true);
    cr_assert_eq(end.status, EXO_OK, "%s", end.err.text);
    cr_expect_str_eq(end.sha256, calm.sha256);
    temp_remove(folder);
    temp_remove(other);
}
