/* Lives of a graph's actors: the restart rule; what another life gets and what is lost, on both
 * clocks; and collectives that are formed again. Deaths of processes: tests/cluster/graph_lives.sh. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "graph/lives.h"
#include "graph/run.h"

/* --- The rule --------------------------------------------------------------------------------- */

Test(lives, a_rule_counts_failures_within_a_time)
{
    const exo_restart_rule never = {0},
                           rule = {.when = EXO_RESTART_ON_FAILURE, .max = 2, .within = EXO_SECOND};
    const exo_err lost = {.code = EXO_PEER_LOST};
    exo_births b = {0};
    exo_time wait = -1;
    cr_expect(!exo_births_next(&b, &never, &lost, 0, &wait));
    cr_expect(exo_births_next(&b, &rule, &lost, 1, &wait));
    cr_expect(exo_births_next(&b, &rule, &lost, 2, &wait));
    cr_expect(!exo_births_next(&b, &rule, &lost, 3, &wait));
    b = (exo_births){0};
    cr_expect(exo_births_next(&b, &rule, &lost, 1, &wait));
    cr_expect(exo_births_next(&b, &rule, &lost, 2, &wait));
    cr_expect(exo_births_next(&b, &rule, &lost, 3 + EXO_SECOND, &wait),
              "the first two are forgotten");
}

Test(lives, the_wait_doubles_while_lives_are_short)
{
    const exo_restart_rule rule = {.when = EXO_RESTART_ON_FAILURE};
    const exo_restart_rule slow = {.when = EXO_RESTART_ALWAYS, .backoff = EXO_SECOND};
    const exo_err lost = {.code = EXO_PEER_LOST};
    exo_births b = {0}, c = {0};
    exo_time wait = 0;
    const exo_time waits[] = {0, 10 * EXO_MS, 20 * EXO_MS, 40 * EXO_MS};
    for (size_t i = 0; i < 4; i++) {
        cr_expect(exo_births_next(&b, &rule, &lost, 0, &wait));
        cr_expect_eq(wait, waits[i], "failure %zu waits %lld", i, (long long)wait);
    }
    cr_expect(exo_births_next(&b, &rule, &lost, 20 * EXO_SECOND, &wait));
    cr_expect_eq(wait, 0, "after a long life the wait is the first one again");
    for (int i = 0; i < 40; i++)
        cr_expect(exo_births_next(&c, &slow, &lost, 0, &wait));
    cr_expect_eq(wait, 30 * EXO_SECOND);
}

Test(lives, a_fault_that_stays_ends_the_run)
{
    const exo_restart_rule rule = {.when = EXO_RESTART_ON_FAILURE};
    const exo_restart_rule most = {.when = EXO_RESTART_ON_FAILURE, .max = 100};
    const exo_err full = {.code = EXO_IO, .text = "checkpoint_20: No space left on device"};
    const exo_err later = {.code = EXO_IO, .text = "checkpoint_30: No space left on device"};
    const exo_err lost = {.code = EXO_PEER_LOST, .text = "killed by signal 9"};
    exo_births b = {0}, c = {0};
    exo_time wait = 0;
    for (int i = 1; i < EXO_SAME_FAILURES; i++)
        cr_expect(exo_births_next(&b, &rule, &full, 0, &wait), "failure %d", i);
    cr_expect(exo_births_next(&b, &rule, &later, 0, &wait), "there was progress");
    for (int i = 1; i < EXO_SAME_FAILURES; i++)
        cr_expect(exo_births_next(&b, &rule, &full, 0, &wait), "failure %d", i);
    cr_expect(exo_births_next(&b, &rule, &lost, 0, &wait), "a death is another matter");
    cr_expect(!exo_births_next(&b, &rule, &full, 0, &wait), "the tenth in a row");
    for (int i = 0; i < 100; i++)
        cr_expect(exo_births_next(&c, &rule, &lost, 0, &wait), "death %d", i);
    c = (exo_births){0};
    for (int i = 0; i < 2 * EXO_SAME_FAILURES; i++)
        cr_expect(exo_births_next(&c, &most, &full, 0, &wait), "max decides: %d", i);
}

Test(lives, a_limit_that_is_reached_is_named)
{
    const exo_restart_rule rule = {
        .when = EXO_RESTART_ON_FAILURE, .max = 1, .within = 90 * EXO_SECOND};
    exo_err lost = {.code = EXO_PEER_LOST, .text = "killed"}, endless = {.code = EXO_IO};
    exo_births b = {0};
    exo_time wait = 0;
    cr_expect(exo_births_next(&b, &rule, &lost, 1, &wait));
    exo_births_explain(&b, &rule, &lost);
    cr_expect_str_eq(lost.text, "killed", "it has another life");
    cr_expect(!exo_births_next(&b, &rule, &lost, 2, &wait));
    exo_births_explain(&b, &rule, &lost);
    cr_expect_str_eq(lost.text,
                     "killed; no restart is left ('restart.max' is 1, within 90 s): mend the "
                     "cause, or raise the limit");
    memset(endless.text, 'x', sizeof endless.text - 1);
    exo_births_explain(&b, &rule, &endless);
    cr_expect(strstr(endless.text, "raise the limit"), "%s", endless.text);
    exo_fail(&lost, EXO_PEER_LOST, "killed");
    exo_births_explain(&(exo_births){0}, &(exo_restart_rule){0}, &lost);
    cr_expect_str_eq(lost.text, "killed", "it has no rule");
}

Test(lives, only_failures_count)
{
    cr_expect(!exo_births_count(EXO_OK));
    cr_expect(!exo_births_count(EXO_CANCELLED));
    cr_expect(exo_births_count(EXO_FAILED));
    cr_expect(exo_births_count(EXO_PEER_LOST));
}

Test(lives, each_life_has_a_name)
{
    char name[EXO_LIFE_NAME];
    exo_life_name("maker", 3, 0, name);
    cr_expect_str_eq(name, "maker_3");
    exo_life_name("maker", 3, 12, name);
    cr_expect_str_eq(name, "maker_3.12");
}

/* --- Graphs of actors that fail --------------------------------------------------------------- */

enum {
    ITEMS = 12,
    MAX_SEEN = 1 << 15
};

static struct {
    pthread_mutex_t lock;
    size_t length;
    struct seen {
        uint32_t sink_life, life, from, value;
    } seen[MAX_SEEN];
    float sums[4][8]; /* by member and life */
    uint32_t births[4];
} world = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* config: deaths: lives that fail; at: before the item of that number; ends: this member of the name
 * returns at once; turns: see below */
struct mortal {
    uint64_t deaths, at, ends;
    bool turns; /* members fail in turn, each with its own name in the text */
};

/* A run whose actors are made as in workers, though in this process. */
static struct {
    exo_runtime *runtime;
    const char *victim; /* is killed in one of the next calls of mortal_init; NULL: nobody */
    int calls;          /* before that one, since the victim starts */
} apart;

static void
kill_victim(void)
{
    exo_ref ref = {0};
    if (!apart.victim ||
        exo_get_actor(apart.runtime, "lives", apart.victim, &ref, NULL) != EXO_OK ||
        apart.calls-- > 0)
        return;
    apart.victim = NULL;
    cr_expect_eq(exo_kill(apart.runtime, ref, "on purpose", NULL), EXO_OK);
}

static exo_status
mortal_init(void *self, exo_config *config, exo_err *err)
{
    struct mortal *m = self;
    kill_victim();
    exo_status st = exo_config_u64(config, "deaths", 0, 0, 100, &m->deaths, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "at", 0, 0, 100, &m->at, err);
    if (st == EXO_OK)
        st = exo_config_bool(config, "turns", false, &m->turns, err);
    return st == EXO_OK ? exo_config_u64(config, "ends", 99, 0, 99, &m->ends, err) : st;
}

static exo_status
die_here(const struct mortal *m, const exo_graph_actor *actor, uint64_t at, exo_err *err)
{
    return exo_graph_life(actor) < m->deaths && at == m->at
               ? exo_fail(err, EXO_FAILED, "on purpose, in life %u", exo_graph_life(actor))
               : EXO_OK;
}

static exo_status
send_number(exo_port *out, uint32_t i, exo_err *err)
{
    exo_item *item = NULL;
    exo_status st = exo_item_new(&item, &(exo_item_part){.dtype = EXO_I32, .count = 1}, 1, err);
    if (st != EXO_OK)
        return st;
    *(int32_t *)item->parts[0].data = (int32_t)i;
    item->version = i;
    return exo_port_send(out, &item, EXO_PORT_TIMEOUT, err);
}

static exo_status
source_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t i = 0; st == EXO_OK && i < ITEMS; i++) {
        st = die_here(self, actor, i, err);
        if (st == EXO_OK)
            st = send_number(exo_graph_output(actor, "numbers"), i, err);
    }
    return st == EXO_CLOSED ? EXO_OK : st;
}

/* A change of the graph, which is made once an asker wants it. */
static struct {
    exo_graph_spec *next;
    atomic_bool wanted, given, made;
    exo_status status;
    char reason[EXO_ERR_TEXT];
} change;

/* Sends numbers before, during and after a change: the last ones are from ITEMS on. */
static exo_status
asker_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    exo_port *out = exo_graph_output(actor, "numbers");
    exo_status st = EXO_OK;
    for (uint32_t i = 0; st == EXO_OK && i < ITEMS; i++) {
        st = die_here(self, actor, i, err);
        if (st == EXO_OK)
            st = send_number(out, i, err);
    }
    change.wanted = true;
    for (int i = 0; st == EXO_OK && !change.made && i < 20000; i++) {
        nanosleep(&(struct timespec){.tv_nsec = EXO_MS}, NULL);
        st = send_number(out, 0, err);
    }
    for (uint32_t i = 0; st == EXO_OK && i < ITEMS; i++) {
        st = die_here(self, actor, ITEMS + i, err);
        if (st == EXO_OK)
            st = send_number(out, ITEMS + i, err);
    }
    return st;
}

static bool
next_graph(void *context, const exo_graph_spec *now, const exo_graph_spec **graph,
           const char **text)
{
    (void)context;
    (void)now;
    *text = NULL;
    *graph = change.next;
    return change.wanted && !atomic_exchange(&change.given, true);
}

static void
graph_changed(void *context, exo_time at, exo_status status, const char *reason)
{
    (void)context;
    (void)at;
    change.status = status;
    snprintf(change.reason, sizeof change.reason, "%s", reason);
    change.made = true;
}

static exo_status
sink_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t i = 0; st == EXO_OK; i++) {
        exo_item *item = NULL;
        st = exo_port_receive(exo_graph_input(actor, "numbers"), EXO_PORT_TIMEOUT, &item, err);
        if (st != EXO_OK)
            break;
        pthread_mutex_lock(&world.lock);
        cr_assert_lt(world.length, MAX_SEEN);
        world.seen[world.length++] =
            (struct seen){.sink_life = exo_graph_life(actor),
                          .life = item->life,
                          .from = item->from,
                          .value = (uint32_t) * (int32_t *)item->parts[0].data};
        pthread_mutex_unlock(&world.lock);
        exo_item_drop(&item);
        st = die_here(self, actor, i, err);
    }
    return st == EXO_CLOSED ? EXO_OK : st;
}

/* Sends one number and waits for the answer. */
static exo_status
teller_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    exo_item *item = NULL;
    (void)self;
    exo_status st = send_number(exo_graph_output(actor, "numbers"), 7, err);
    if (st == EXO_OK)
        st = exo_port_receive(exo_graph_input(actor, "answer"), EXO_PORT_TIMEOUT, &item, err);
    exo_item_drop(&item);
    return st;
}

#define forgetter_run teller_run

static exo_status
hearer_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    exo_item *item = NULL;
    exo_status st =
        exo_port_receive(exo_graph_input(actor, "numbers"), EXO_PORT_TIMEOUT, &item, err);
    cr_expect(st != EXO_OK || *(int32_t *)item->parts[0].data == 7);
    exo_item_drop(&item);
    if (st == EXO_OK)
        st = die_here(self, actor, 0, err);
    if (st == EXO_OK)
        st = send_number(exo_graph_output(actor, "answer"), 1, err);
    return st == EXO_CLOSED ? EXO_OK : st; /* the teller may have ended before the call returns */
}

/* Reduces eight times; member 1 fails before the reduction `at`. */
static exo_status
member_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    const struct mortal *m = self;
    exo_status st = EXO_OK;
    uint32_t index = exo_graph_index(actor), life = exo_graph_life(actor);
    world.births[index] = life + 1;
    if (index == m->ends)
        return EXO_OK;
    if (m->turns && index == life % exo_graph_count(actor))
        return exo_fail(err, EXO_IO, "checkpoint_%s: no space", exo_graph_name(actor));
    for (uint32_t i = 0; st == EXO_OK && i < 8; i++) {
        float value = (float)(index + 1);
        st = index == 1 ? die_here(m, actor, i, err) : EXO_OK;
        if (st == EXO_OK)
            st = exo_all_reduce(exo_graph_group(actor, "sums"), exo_host_array(EXO_F32, &value, 1),
                                EXO_SUM, err);
        if (st == EXO_OK && life < 8)
            world.sums[index][life] += value;
    }
    return st;
}

static const exo_graph_port numbers_out[] = {
    {.name = "numbers", .type = "numbers", .direction = EXO_PORT_OUTPUT}};
static const exo_graph_port numbers_in[] = {
    {.name = "numbers", .type = "numbers", .direction = EXO_PORT_INPUT, .blocking = true}};
static const exo_graph_port of_teller[] = {
    {.name = "numbers",
     .type = "numbers",
     .direction = EXO_PORT_OUTPUT,
     .initial = true,
     .retained = true},
    {.name = "answer", .type = "answer", .direction = EXO_PORT_INPUT, .blocking = true}};
static const exo_graph_port of_forgetter[] = {
    {.name = "numbers", .type = "numbers", .direction = EXO_PORT_OUTPUT, .initial = true},
    {.name = "answer", .type = "answer", .direction = EXO_PORT_INPUT, .blocking = true}};
static const exo_graph_port of_hearer[] = {
    {.name = "numbers", .type = "numbers", .direction = EXO_PORT_INPUT, .blocking = true},
    {.name = "answer", .type = "answer", .direction = EXO_PORT_OUTPUT}};
static const exo_graph_port of_member[] = {
    {.name = "sums", .type = "sums", .direction = EXO_PORT_COLLECTIVE}};

#define CLASS(name_, ports_, count_)                                                               \
    {                                                                                              \
        .name = "mortal_" #name_, .ports = ports_, .num_ports = count_,                            \
        .state_size = sizeof(struct mortal), .init = mortal_init, .run = name_##_run               \
    }
static const exo_graph_class classes[] = {
    CLASS(source, numbers_out, 1),    CLASS(sink, numbers_in, 1),  CLASS(teller, of_teller, 2),
    CLASS(hearer, of_hearer, 2),      CLASS(member, of_member, 1), CLASS(asker, numbers_out, 1),
    CLASS(forgetter, of_forgetter, 2)};

/* Runs a graph; *time is the run's own. */
static exo_status
run_text(const char *clock, const char *actors, const char *edges, exo_time *time, exo_err *err)
{
    char text[2048];
    exo_graph_spec *spec = NULL;
    exo_graph_result result = {0};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        exo_graph_class_register(&classes[i], NULL);
    world.length = 0;
    memset(world.sums, 0, sizeof world.sums);
    snprintf(text, sizeof text, "exogym: 1\nclock: %s\nactors:\n%sedges:\n%s", clock, actors,
             edges);
    cr_assert_eq(
        exo_graph_parse(&spec, "lives.yaml", text, &(exo_graph_opts){.name = "lives"}, err), EXO_OK,
        "%s", err->text);
    const exo_graph_run_opts opts = {
        .space = "lives", .runtime = apart.runtime, .text = apart.runtime ? text : NULL};
    exo_status st = exo_graph_run(spec, &opts, &result, err);
    if (time)
        *time = result.time;
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
    return st;
}

static const char *const clocks[] = {"real", "virtual"};
static const char flow[] =
    "  - {from: source, to: sink, carries: numbers, buffer: {capacity: 2}}\n";

Test(lives, a_source_that_fails_begins_again, .timeout = 60)
{
    for (size_t c = 0; c < 2; c++) {
        exo_err err = {0};
        uint32_t last = 0, of_last = 0, next[3] = {0};
        exo_status st = run_text(clocks[c],
                                 "  source: {class: mortal_source, restart: {when: on_failure}, "
                                 "config: {deaths: 2, at: 5}}\n"
                                 "  sink: {class: mortal_sink}\n",
                                 flow, NULL, &err);
        cr_assert_eq(st, EXO_OK, "%s: %s", clocks[c], err.text);
        for (size_t i = 0; i < world.length; i++) {
            const struct seen *s = &world.seen[i];
            cr_assert_lt(s->life, 3);
            cr_expect_geq(s->life, last, "%s: lives come in their order", clocks[c]);
            cr_expect_eq(s->value, next[s->life], "%s: life %u: %u comes", clocks[c], s->life,
                         s->value);
            next[s->life] = s->value + 1;
            last = s->life;
            of_last += s->life == 2;
        }
        cr_expect_eq(of_last, ITEMS, "%s: %u items of the last life", clocks[c], of_last);
        cr_expect_leq(next[0], 5);
    }
}

Test(lives, each_item_is_received_at_most_once, .timeout = 60)
{
    for (size_t c = 0; c < 2; c++) {
        exo_err err = {0};
        int times[ITEMS] = {0};
        exo_status st = run_text(clocks[c],
                                 "  source: {class: mortal_source}\n"
                                 "  sink: {class: mortal_sink, restart: {when: on_failure}, "
                                 "config: {deaths: 3, at: 1}}\n",
                                 flow, NULL, &err);
        cr_assert_eq(st, EXO_OK, "%s: %s", clocks[c], err.text);
        for (size_t i = 0; i < world.length; i++)
            times[world.seen[i].value]++;
        for (uint32_t i = 0; i < ITEMS; i++)
            cr_expect_leq(times[i], 1, "%s: item %u came %d times", clocks[c], i, times[i]);
        cr_expect_geq(world.length, 6, "%s: two items in each of three lives", clocks[c]);
    }
}

Test(lives, a_new_life_gets_what_is_retained, .timeout = 60)
{
    for (size_t c = 0; c < 2; c++) {
        exo_err err = {0};
        exo_status st =
            run_text(clocks[c],
                     "  teller: {class: mortal_teller}\n"
                     "  hearer: {class: mortal_hearer, restart: {when: on_failure}, config: "
                     "{deaths: 2}}\n",
                     "  - {from: teller, to: hearer, carries: numbers, deadline: 20 s}\n"
                     "  - {from: hearer, to: teller, carries: answer, deadline: 20 s}\n",
                     NULL, &err);
        cr_expect_eq(st, EXO_OK, "%s: %s", clocks[c], err.text);
    }
}

/* The number is lost with the first life of the hearer. */
Test(lives, a_stall_after_a_death_is_found, .timeout = 60)
{
    for (size_t c = 0; c < 2; c++) {
        exo_err err = {0};
        exo_status st =
            run_text(clocks[c],
                     "  teller: {class: mortal_forgetter}\n"
                     "  hearer: {class: mortal_hearer, restart: {when: on_failure}, config: "
                     "{deaths: 1}}\n",
                     "  - {from: teller, to: hearer, carries: numbers, deadline: 20 s}\n"
                     "  - {from: hearer, to: teller, carries: answer, deadline: 20 s}\n",
                     NULL, &err);
        cr_expect_eq(st, EXO_FAILED, "%s: %s", clocks[c], err.text);
        cr_expect(strstr(err.text, "the graph stalls: teller_0 waits"), "%s: %s", clocks[c],
                  err.text);
    }
}

Test(lives, members_of_a_collective_live_and_die_together, .timeout = 60)
{
    for (size_t c = 0; c < 2; c++) {
        exo_err err = {0};
        exo_status st =
            run_text(clocks[c],
                     "  member: {class: mortal_member, count: 3, restart: {when: on_failure, max: "
                     "2}, config: {deaths: 2, at: 3}}\n",
                     "  - {from: member, to: member, carries: sums, deadline: 20 s}\n", NULL, &err);
        cr_assert_eq(st, EXO_OK, "%s: %s", clocks[c], err.text);
        for (size_t i = 0; i < 3; i++) {
            cr_expect_eq(world.births[i], 3, "%s: member %zu had %u lives", clocks[c], i,
                         world.births[i]);
            cr_expect_eq(world.sums[i][0], 3 * 6, "%s: %g", clocks[c], (double)world.sums[i][0]);
            cr_expect_eq(world.sums[i][2], 8 * 6, "%s: %g", clocks[c], (double)world.sums[i][2]);
        }
    }
}

Test(lives, failures_of_members_in_turn_count_together, .timeout = 60)
{
    for (size_t c = 0; c < 2; c++) {
        exo_err err = {0};
        exo_status st =
            run_text(clocks[c],
                     "  member: {class: mortal_member, count: 2, restart: {when: on_failure}, "
                     "config: {turns: true}}\n",
                     "  - {from: member, to: member, carries: sums, deadline: 20 s}\n", NULL, &err);
        cr_expect_eq(st, EXO_IO, "%s: %s", clocks[c], err.text);
        cr_expect_eq(world.births[0], EXO_SAME_FAILURES, "%s: %u lives", clocks[c],
                     world.births[0]);
        cr_expect_str_eq(err.text,
                         "member_1: checkpoint_member_1: no space; 10 lives in a row have ended "
                         "so: mend the cause, or allow more by 'restart.max'");
    }
}

Test(lives, an_actor_without_a_further_life_ends_the_run, .timeout = 60)
{
    for (size_t c = 0; c < 2; c++) {
        exo_err err = {0};
        exo_status st = run_text(clocks[c],
                                 "  source: {class: mortal_source, restart: {when: on_failure, "
                                 "max: 2}, config: {deaths: 9, at: 1}}\n"
                                 "  sink: {class: mortal_sink}\n",
                                 flow, NULL, &err);
        cr_expect_eq(st, EXO_FAILED);
        cr_expect_str_eq(
            err.text, "source_0: on purpose, in life 2; no restart is left ('restart.max' is 2): "
                      "mend the cause, or raise the limit");
    }
}

Test(lives, a_collective_without_a_member_is_not_formed_again, .timeout = 60)
{
    for (size_t c = 0; c < 2; c++) {
        exo_err err = {0};
        exo_status st =
            run_text(clocks[c],
                     "  member: {class: mortal_member, count: 2, restart: {when: on_failure}, "
                     "config: {deaths: 1, at: 0, ends: 0}}\n",
                     "  - {from: member, to: member, carries: sums, deadline: 5 s}\n", NULL, &err);
        /* on the real clock, member 1 may fail before member 0 has ended */
        cr_expect(st == EXO_CLOSED || st == EXO_PEER_LOST, "%s: %d %s", clocks[c], st, err.text);
    }
}

Test(lives, virtual_time_has_the_backoff_and_repeats, .timeout = 60)
{
    exo_time times[2];
    for (size_t i = 0; i < 2; i++) {
        exo_err err = {0};
        exo_status st = run_text("virtual",
                                 "  source: {class: mortal_source, restart: {when: on_failure, "
                                 "backoff: 3 s}, config: {deaths: 2, at: 4}}\n"
                                 "  sink: {class: mortal_sink, restart: {when: on_failure, "
                                 "backoff: 1 s}, config: {deaths: 1, at: 2}}\n",
                                 flow, &times[i], &err);
        cr_assert_eq(st, EXO_OK, "%s", err.text);
    }
    cr_expect_eq(times[0], times[1], "%lld and %lld", (long long)times[0], (long long)times[1]);
    cr_expect_geq(times[0], 9 * EXO_SECOND, "3 s and 6 s, but %lld", (long long)times[0]);
}

/* --- Changes of the graph --------------------------------------------------------------------- */

static const char of_change[] =
    "exogym: 1\nname: lives\nclock: %s\nactors:\n"
    "  source: {class: mortal_asker, restart: {when: on_failure}, config: {deaths: 1, at: %d}}\n"
    "  sink: {class: mortal_sink, restart: {when: on_failure}, config: {deaths: %d, at: 1}}\n"
    "edges:\n  - {from: source, to: sink, carries: numbers, buffer: {capacity: %d}}\n";

static exo_graph_spec *
graph_of(const char *clock, int at, int sinks_deaths, int capacity)
{
    char text[1024];
    exo_err err = {0};
    exo_graph_spec *spec = NULL;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        exo_graph_class_register(&classes[i], NULL);
    snprintf(text, sizeof text, of_change, clock, at, sinks_deaths, capacity);
    cr_assert_eq(exo_graph_parse(&spec, "lives.yaml", text, NULL, &err), EXO_OK, "%s", err.text);
    return spec;
}

/* The source dies at item `at`, before or after the change. */
static void
change_with_a_death(int at, int sinks_deaths)
{
    for (size_t c = 0; c < 2; c++) {
        exo_err err = {0};
        exo_graph_result result = {0};
        exo_graph_spec *spec = graph_of(clocks[c], at, sinks_deaths, 2);
        change.next = graph_of(clocks[c], at, sinks_deaths, 3);
        change.wanted = change.given = change.made = false;
        world.length = 0;
        const exo_graph_run_opts opts = {
            .space = "lives", .next = next_graph, .changed = graph_changed};
        cr_assert_eq(exo_graph_run(spec, &opts, &result, &err), EXO_OK, "%s clock: %s", clocks[c],
                     err.text);
        cr_expect(change.made && change.status == EXO_OK, "%s", change.reason);
        uint32_t after = 0;
        for (size_t i = 0; i < world.length; i++)
            after += world.seen[i].value >= ITEMS;
        cr_expect(at < ITEMS ? after == ITEMS : after >= ITEMS,
                  "%s clock: %u items came after the change", clocks[c], after);
        exo_graph_result_release(&result);
        exo_graph_spec_free(&spec);
        exo_graph_spec_free(&change.next);
    }
}

Test(lives, an_edge_that_is_added_later_knows_the_lives_of_its_ends, .timeout = 60)
{
    change_with_a_death(4, 2);
}

/* The sink waits for the end of the edge that the change took away, too, and the source's next life
 * does not have that edge. */
Test(lives, an_edge_that_was_taken_away_ends_with_the_life_that_knew_it, .timeout = 60)
{
    change_with_a_death(ITEMS + 2, 0);
}

/* --- Deaths before all are connected ---------------------------------------------------------- */

/* Runs a graph one of whose actors dies after so many calls of mortal_init: while it starts, or when
 * the next actor does. */
static exo_status
run_without(const char *victim, int calls, const char *actors, const char *edges, exo_err *err)
{
    cr_assert_eq(exo_runtime_open(&apart.runtime, NULL, err), EXO_OK);
    apart.victim = victim;
    apart.calls = calls;
    exo_status st = run_text("real", actors, edges, NULL, err);
    cr_expect_null(apart.victim, "nobody died");
    cr_expect_eq(
        exo_runtime_close(&apart.runtime, exo_deadline(exo_clock_real(), 60 * EXO_SECOND), NULL),
        EXO_OK);
    return st;
}

Test(lives, an_actor_that_dies_before_it_is_connected_has_another_life, .timeout = 120)
{
    exo_err err = {0};
    const char *edges = "  - {from: source, to: sink, carries: numbers}\n";
    for (int calls = 0; calls < 4; calls++) {
        cr_expect_eq(run_without("source_0", calls,
                                 "  source: {class: mortal_source, restart: {when: on_failure}}\n"
                                 "  sink: {class: mortal_sink}\n",
                                 edges, &err),
                     EXO_OK, "%s", err.text);
        cr_expect_eq(world.length, ITEMS);
        for (size_t i = 0; i < world.length; i++)
            cr_expect(world.seen[i].life == 1 && world.seen[i].sink_life == 0);
        cr_expect_eq(run_without("source_0", calls,
                                 "  source: {class: mortal_source}\n"
                                 "  sink: {class: mortal_sink, restart: {when: on_failure}}\n",
                                 edges, &err),
                     EXO_PEER_LOST);
        cr_expect(strncmp(err.text, "source_0: ", 10) == 0 && strstr(err.text, "on purpose"), "%s",
                  err.text);
    }
}

Test(lives, members_of_a_collective_begin_again_if_one_dies_before_it_is_connected, .timeout = 120)
{
    exo_err err = {0};
    for (int calls = 0; calls < 3; calls++) {
        cr_expect_eq(
            run_without("member_0", calls,
                        "  member: {class: mortal_member, count: 2, restart: {when: on_failure}}\n",
                        "  - {from: member, to: member, carries: sums}\n", &err),
            EXO_OK, "%s", err.text);
        for (int i = 0; i < 2; i++) {
            cr_expect_eq(world.births[i], 2);
            cr_expect_eq(world.sums[i][0], 0);
            cr_expect_eq(world.sums[i][1], 24, "%g", (double)world.sums[i][1]);
        }
    }
}
