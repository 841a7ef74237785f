/* Running graphs: what is sent arrives once and in order over every route, on either clock; buffers
 * are bounded; time is what the links make of it; ends and errors reach everybody. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <exogym/memory.h>

#include "base/meter.h"
#include "graph/report.h"
#include "graph/run.h"
#include "graph/site.h"

/* --- A source that sends numbers, and a sink that writes down what comes ---------------------- */

enum {
    MAX_SEEN = 1 << 14,
    MAX_HOSTS = 32
};

static struct {
    uint32_t items;        /* that each source sends                          */
    size_t size;           /* of an item, elements                            */
    bool only_first;       /* `take` is for sink 0, the others take all              */
    uint32_t take;         /* items that a sink takes before it ends; 0: all  */
    bool slow;             /* a source really takes half a millisecond an item */
    exo_status sink_error; /* of a sink after its first item                  */
    char sink_reason[256]; /* the end of that error's text                    */
    bool sink_waits;       /* the sink fails only when the run is over        */
    exo_time lingers;      /* a source goes on for so long when the run is over */
    uint32_t changes;      /* a source sends on, slower, until so many are made */
    _Atomic uint32_t changes_made, sent[MAX_HOSTS];
    _Atomic uint32_t length; /* of the items that came; the first MAX_SEEN are written down */
    struct seen {
        uint32_t sink, from, value;
        uint64_t number, version;
        exo_time sent, received, at;
    } seen[MAX_SEEN];
    _Atomic exo_time source_ended, sink_ended;
    _Atomic int source_status;
} world;

/* A change is made while items flow, so a source that waited for one would wait for ever. */
static bool
source_goes_on(uint32_t sent)
{
    if (sent < world.items)
        return true;
    if (world.changes_made >= world.changes || sent >= world.items + 4000)
        return false;
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    return true;
}

static exo_status
source_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    (void)self;
    exo_port *out = exo_graph_output(actor, "numbers");
    exo_status st = EXO_OK;
    for (uint32_t i = 0; st == EXO_OK && source_goes_on(i); i++) {
        exo_item *item = NULL;
        const exo_item_part parts[] = {{.dtype = EXO_F32, .count = world.size},
                                       {.dtype = EXO_I32, .count = 1}};
        exo_graph_phase(actor, "make");
        if (world.slow)
            nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
        st = exo_item_new(&item, parts, 2, err);
        if (st != EXO_OK)
            break;
        ((float *)item->parts[0].data)[0] = (float)i;
        *(int32_t *)item->parts[1].data = (int32_t)i;
        item->version = 100 + i;
        item->key = i;
        exo_graph_phase(actor, NULL);
        st = exo_port_send(out, &item, EXO_PORT_TIMEOUT, err);
        cr_assert_null(item);
        world.sent[exo_graph_index(actor)] += st == EXO_OK;
    }
    exo_time over = exo_now(exo_clock_real()) + world.lingers;
    while (st == EXO_CANCELLED && exo_now(exo_clock_real()) < over)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    world.source_status = (int)st;
    world.source_ended = exo_graph_now(actor);
    return st == EXO_CLOSED ? EXO_OK : st;
}

static exo_status
sink_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    (void)self;
    exo_port *in = exo_graph_input(actor, "numbers");
    exo_status st = EXO_OK;
    const uint32_t take = world.only_first && exo_graph_index(actor) > 0 ? 0 : world.take;
    for (uint32_t i = 0; !take || i < take; i++) {
        exo_item *item = NULL;
        st = exo_port_receive(in, EXO_PORT_TIMEOUT, &item, err);
        if (st != EXO_OK)
            break;
        uint32_t at = world.length++;
        const struct seen seen = {.sink = exo_graph_index(actor),
                                  .from = item->from,
                                  .value = (uint32_t) * (int32_t *)item->parts[1].data,
                                  .number = item->number,
                                  .version = item->version,
                                  .sent = item->sent,
                                  .received = item->received,
                                  .at = exo_graph_now(actor)};
        cr_assert_float_eq(((float *)item->parts[0].data)[0], (float)seen.value, 0);
        if (at < MAX_SEEN)
            world.seen[at] = seen;
        exo_item_drop(&item);
        if (world.sink_error != EXO_OK && !world.sink_waits)
            return exo_fail(err, world.sink_error, "on purpose%s", world.sink_reason);
        exo_graph_phase(actor, "use");
        exo_graph_phase(actor, NULL);
    }
    world.sink_ended = exo_graph_now(actor);
    if (st == EXO_CANCELLED && world.sink_waits)
        return exo_fail(err, world.sink_error, "on purpose%s", world.sink_reason);
    return st == EXO_CLOSED ? EXO_OK : st;
}

static const exo_graph_port source_ports[] = {
    {.name = "numbers", .type = "numbers", .direction = EXO_PORT_OUTPUT}};
static const exo_graph_port sink_ports[] = {
    {.name = "numbers", .type = "numbers", .direction = EXO_PORT_INPUT, .blocking = true}};
static const exo_graph_class source = {
    .name = "source", .ports = source_ports, .num_ports = 1, .run = source_run};
static const exo_graph_class sink = {
    .name = "sink", .ports = sink_ports, .num_ports = 1, .run = sink_run};

/* --- Graphs, made by hand --------------------------------------------------------------------- */

struct graph {
    exo_graph_spec spec;
    exo_actor_spec actors[2];
    exo_edge_spec edges[1];
    uint32_t hosts[2][MAX_HOSTS];
    exo_emulated_host emulated[MAX_HOSTS];
    exo_named_link links[1];
    exo_compute_spec make, use;
    char names[MAX_HOSTS][16];
    exo_graph_result result;
    exo_err err;
};

static void
graph_init(struct graph *g, uint32_t sources, uint32_t sinks, exo_route route, bool virtual_clock)
{
    memset(&world, 0, sizeof world);
    world.items = 20;
    world.size = 10;
    *g = (struct graph){0};
    g->make = (exo_compute_spec){.phase = "make", .cost = -1};
    g->use = (exo_compute_spec){.phase = "use", .cost = -1};
    g->actors[0] = (exo_actor_spec){.name = "source",
                                    .class = &source,
                                    .count = sources,
                                    .hosts = g->hosts[0],
                                    .compute = &g->make,
                                    .num_compute = 1};
    g->actors[1] = (exo_actor_spec){.name = "sink",
                                    .class = &sink,
                                    .count = sinks,
                                    .hosts = g->hosts[1],
                                    .compute = &g->use,
                                    .num_compute = 1};
    g->edges[0] = (exo_edge_spec){.name = "source>sink:numbers",
                                  .from = 0,
                                  .to = 1,
                                  .carries = "numbers",
                                  .route = route,
                                  .codec_text = "raw",
                                  .capacity = 4,
                                  .every = 1,
                                  .deadline = 10 * EXO_SECOND,
                                  .link = -1};
    for (uint32_t h = 0; h < sources + sinks; h++) {
        snprintf(g->names[h], sizeof g->names[h], "host_%u", h);
        g->emulated[h] = (exo_emulated_host){
            .spec = {.name = g->names[h], .up = INFINITY, .down = INFINITY}, .speed = 1};
        if (h < sources)
            g->hosts[0][h] = h;
        else
            g->hosts[1][h - sources] = h;
    }
    g->links[0] = (exo_named_link){.name = "default", .is_default = true, .from = -1, .to = -1};
    g->links[0].spec = (exo_link_spec){.bandwidth = INFINITY, .transport = EXO_LINK_IDEAL};
    g->spec = (exo_graph_spec){.source = "test",
                               .name = "test",
                               .seed = 7,
                               .virtual_clock = virtual_clock,
                               .actors = g->actors,
                               .num_actors = 2,
                               .edges = g->edges,
                               .num_edges = 1,
                               .hosts = g->emulated,
                               .num_hosts = sources + sinks,
                               .links = g->links,
                               .num_links = 1};
}

static exo_status
graph_run(struct graph *g, uint64_t tie_seed)
{
    const exo_graph_run_opts opts = {.space = "test", .tie_seed = tie_seed};
    return exo_graph_run(&g->spec, &opts, &g->result, &g->err);
}

static const exo_traffic *
row_of(const struct graph *g, const char *actor)
{
    for (size_t i = 0; i < g->result.ledger.length; i++)
        if (strcmp(g->result.ledger.rows[i].actor, actor) == 0)
            return &g->result.ledger.rows[i].traffic;
    cr_assert_fail("%s has no row", actor);
    return NULL;
}

static uint32_t
all_sent(void)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < MAX_HOSTS; i++)
        sum += world.sent[i];
    return sum;
}

/* Everything once, each channel's in order. */
static void
check_all_came(const struct graph *g, uint32_t sources, uint32_t copies)
{
    uint32_t count[MAX_HOSTS] = {0};
    uint64_t next[MAX_HOSTS][MAX_HOSTS] = {{0}};
    uint32_t last[MAX_HOSTS][MAX_HOSTS];
    memset(last, 0xff, sizeof last);
    const uint32_t sent = all_sent();
    cr_assert_geq(sent, sources * world.items);
    cr_assert_eq(world.length, sent * copies, "%u of %u items came", world.length, sent * copies);
    cr_assert_leq(world.length, MAX_SEEN);
    for (uint32_t i = 0; i < world.length; i++) {
        const struct seen *s = &world.seen[i];
        count[s->from]++;
        cr_expect_eq(s->number, next[s->sink][s->from]++);
        cr_expect(last[s->sink][s->from] == UINT32_MAX || s->value > last[s->sink][s->from]);
        last[s->sink][s->from] = s->value;
        cr_expect_eq(s->version, 100 + s->value);
        cr_expect_leq(s->sent, s->received);
        cr_expect_leq(s->received, s->at);
    }
    for (uint32_t f = 0; f < sources; f++)
        cr_expect_eq(count[f], world.sent[f] * copies);
    (void)g;
}

static const bool clocks[] = {false, true};

Test(graph_run, every_item_arrives_once_and_in_order, .timeout = 60)
{
    static const exo_route routes[] = {EXO_ROUTE_ROUND_ROBIN,  EXO_ROUTE_BROADCAST,
                                       EXO_ROUTE_HASH,         EXO_ROUTE_MODULO,
                                       EXO_ROUTE_LEAST_LOADED, EXO_ROUTE_GOSSIP};
    for (size_t c = 0; c < 2; c++)
        for (size_t r = 0; r < sizeof routes / sizeof *routes; r++)
            for (uint32_t sources = 1; sources <= 3; sources++)
                for (uint32_t sinks = 1; sinks <= 3; sinks++) {
                    struct graph g;
                    graph_init(&g, sources, sinks, routes[r], clocks[c]);
                    cr_assert_eq(graph_run(&g, 0), EXO_OK, "%s", g.err.text);
                    check_all_came(&g, sources, routes[r] == EXO_ROUTE_BROADCAST ? sinks : 1);
                    exo_graph_result_release(&g.result);
                }
}

Test(graph_run, round_robin_goes_in_turn_and_modulo_by_the_rule, .timeout = 60)
{
    struct graph g;
    graph_init(&g, 2, 3, EXO_ROUTE_ROUND_ROBIN, true);
    cr_assert_eq(graph_run(&g, 0), EXO_OK, "%s", g.err.text);
    for (uint32_t i = 0; i < world.length; i++)
        cr_expect_eq(world.seen[i].sink, (world.seen[i].from + world.seen[i].value) % 3);
    exo_graph_result_release(&g.result);
    graph_init(&g, 2, 3, EXO_ROUTE_MODULO,
               true); /* s = 2 <= r = 3: sender i to {j : j mod 2 = i} */
    cr_assert_eq(graph_run(&g, 0), EXO_OK, "%s", g.err.text);
    for (uint32_t i = 0; i < world.length; i++)
        cr_expect_eq(world.seen[i].sink % 2, world.seen[i].from);
    exo_graph_result_release(&g.result);
}

/* 20 items of 1 MB on 100 Mbit/s, 80 ms each, and 10 ms of latency. */
static void
set_link(struct graph *g)
{
    world.size = 250000;
    g->spec.emulated = true;
    g->links[0].spec.bandwidth = 1e8;
    g->links[0].spec.latency = 10 * EXO_MS;
}

Test(graph_run, the_virtual_clock_says_how_long_a_link_takes, .timeout = 60)
{
    struct graph g;
    graph_init(&g, 1, 1, EXO_ROUTE_ONE, true);
    set_link(&g);
    /* A hundred times as slow, so that no machine is too slow to be faster than the virtual
     * clock. */
    g.links[0].spec.bandwidth = 1e6;
    g.links[0].spec.latency = 1 * EXO_SECOND;
    g.edges[0].deadline = 1000 * EXO_SECOND;
    g.make.cost = 3 * EXO_SECOND;
    g.use.cost = 2 * EXO_SECOND;
    cr_assert_eq(graph_run(&g, 0), EXO_OK, "%s", g.err.text);
    check_all_came(&g, 1, 1);
    /* No time really passes, or the run would outlast the test. The link is the narrowest: 3 s,
     * then 20 items of 8 s, then latency and the use of the last. */
    double expected = 3 + 20 * 8 + 1 + 2;
    cr_expect_float_eq((double)g.result.time * 1e-9, expected, 0.002 * expected,
                       "%g s, expected %g", (double)g.result.time * 1e-9, expected);
    exo_graph_result_release(&g.result);
}

/* By fields: the bytes between them are nobody's. */
static bool
same_seen(const struct seen *a, const struct seen *b)
{
    return a->sink == b->sink && a->from == b->from && a->value == b->value &&
           a->number == b->number && a->version == b->version && a->sent == b->sent &&
           a->received == b->received && a->at == b->at;
}

Test(graph_run, with_declared_costs_a_virtual_run_is_the_same_every_time, .timeout = 60)
{
    exo_time time = 0;
    uint32_t length = 0;
    struct seen first[MAX_SEEN];
    for (int round = 0; round < 4; round++) {
        struct graph g;
        graph_init(&g, 3, 2, EXO_ROUTE_LEAST_LOADED, true);
        set_link(&g);
        g.make.cost = 7 * EXO_MS;
        g.use.cost = 20 * EXO_MS;
        cr_assert_eq(graph_run(&g, 0), EXO_OK, "%s", g.err.text);
        if (round == 0) {
            time = g.result.time;
            length = world.length;
            memcpy(first, world.seen, length * sizeof *first);
        }
        cr_expect_eq(g.result.time, time);
        cr_assert_eq(world.length, length);
        for (uint32_t i = 0; i < length; i++)
            cr_expect(same_seen(&first[i], &world.seen[i]), "round %d, item %u", round, i);
        exo_graph_result_release(&g.result);
    }
}

Test(graph_run, a_link_takes_its_time_on_the_real_clock_and_overlaps_with_compute, .timeout = 60)
{
    struct graph g;
    graph_init(&g, 1, 1, EXO_ROUTE_ONE, false);
    set_link(&g);
    world.items = 10;
    g.make.cost = 40 * EXO_MS; /* half as long as the link takes */
    cr_assert_eq(graph_run(&g, 0), EXO_OK, "%s", g.err.text);
    check_all_came(&g, 1, 1);
    cr_expect_geq(g.result.time, 840 * EXO_MS); /* one is made, 10 are transmitted */
    /* Computing and sending overlap: items are made while the one ahead is on the link. */
    uint32_t overlapping = 0;
    for (uint32_t i = 1; i < world.length; i++) {
        cr_expect_geq(world.seen[i].received, (40 + 80 * (i + 1)) * EXO_MS);
        overlapping += world.seen[i].sent < world.seen[i - 1].received;
    }
    cr_expect_gt(overlapping, 0);
    exo_graph_result_release(&g.result);
}

Test(graph_run, a_full_buffer_holds_the_sender_up, .timeout = 60)
{
    for (size_t c = 0; c < 2; c++) {
        struct graph g;
        graph_init(&g, 1, 1, EXO_ROUTE_ONE, clocks[c]);
        g.use.cost = 10 * EXO_MS;
        cr_assert_eq(graph_run(&g, 0), EXO_OK, "%s", g.err.text);
        check_all_came(&g, 1, 1);
        /* 20 items, of which 4 are buffered, 1 in the outbox and 1 under way when the last one is
         * put. */
        cr_expect_geq(world.source_ended, 13 * 10 * EXO_MS);
        cr_expect_gt(row_of(&g, "source_0")->send_blocked, clocks[c] ? 100 * EXO_MS : 0);
        exo_graph_result_release(&g.result);
    }
}

Test(graph_run, edges_that_drop_never_hold_the_sender_up, .timeout = 60)
{
    static const exo_on_full rules[] = {EXO_FULL_DROP_OLDEST, EXO_FULL_DROP_NEWEST,
                                        EXO_FULL_LATEST};
    for (size_t c = 0; c < 2; c++)
        for (size_t r = 0; r < 3; r++) {
            struct graph g;
            graph_init(&g, 1, 1, EXO_ROUTE_ONE, clocks[c]);
            g.edges[0].on_full = rules[r];
            g.edges[0].capacity = rules[r] == EXO_FULL_LATEST ? 1 : 4;
            g.make.cost = 1 * EXO_MS;
            g.use.cost = clocks[c] ? 50 * EXO_SECOND : 50 * EXO_MS;
            g.edges[0].deadline = 1000 * EXO_SECOND;
            cr_assert_eq(graph_run(&g, 0), EXO_OK, "%s", g.err.text);
            exo_traffic sum = exo_ledger_sum(&g.result.ledger, NULL);
            cr_expect_eq(sum.items, 20);
            cr_expect_eq(sum.drops + world.length, 20, "%llu dropped, %u came",
                         (unsigned long long)sum.drops, world.length);
            cr_expect_eq(sum.send_blocked, 0);
            bool last_came = world.seen[world.length - 1].value == 19;
            if (rules[r] != EXO_FULL_DROP_NEWEST)
                cr_expect(last_came);
            if (clocks[c]) { /* on the real one the source may be the slower one of the two */
                cr_expect_gt(sum.drops, 5);
                cr_expect_lt(world.source_ended, 500 * EXO_MS);
                cr_expect(rules[r] != EXO_FULL_DROP_NEWEST || !last_came);
            }
            for (uint32_t i = 1; i < world.length; i++)
                cr_expect_gt(world.seen[i].number, world.seen[i - 1].number);
            exo_graph_result_release(&g.result);
        }
}

Test(graph_run, on_full_fail_says_who_is_full, .timeout = 60)
{
    struct graph g;
    graph_init(&g, 1, 1, EXO_ROUTE_ONE, true);
    g.edges[0].on_full = EXO_FULL_FAIL;
    g.make.cost = 1 * EXO_MS;
    g.use.cost = 50 * EXO_MS;
    cr_assert_eq(graph_run(&g, 0), EXO_FULL);
    cr_expect_str_eq(g.err.text,
                     "source_0: edge source>sink:numbers: the buffer of sink_0 is full");
    exo_graph_result_release(&g.result);
}

Test(graph_run, a_sender_hears_that_nobody_is_left, .timeout = 60)
{
    for (size_t c = 0; c < 2; c++) {
        struct graph g;
        graph_init(&g, 2, 2, EXO_ROUTE_ROUND_ROBIN, clocks[c]);
        world.items = 100000;
        world.take = 5;
        cr_assert_eq(graph_run(&g, 0), EXO_OK, "%s", g.err.text);
        cr_expect_eq(world.source_status, EXO_CLOSED);
        cr_expect_eq(world.length, 10);
        exo_graph_result_release(&g.result);
    }
}

Test(graph_run, a_sink_that_takes_nothing_is_named_at_the_deadline, .timeout = 60)
{
    struct graph g;
    graph_init(&g, 1, 1, EXO_ROUTE_ONE, true);
    g.use.cost = 1000 * EXO_SECOND;
    g.edges[0].deadline = 300 * EXO_SECOND;
    cr_assert_eq(graph_run(&g, 0), EXO_TIMEOUT);
    cr_expect_str_eq(g.err.text,
                     "source_0: edge source>sink:numbers: sink_0 takes nothing from source_0 in "
                     "time: its 'deadline' is 300 s");
    exo_graph_result_release(&g.result);
}

Test(graph_run, a_source_that_is_too_slow_is_named_with_the_deadline, .timeout = 60)
{
    struct graph g;
    graph_init(&g, 1, 1, EXO_ROUTE_ONE, true);
    g.make.cost = 1000 * EXO_SECOND;
    g.edges[0].deadline = 300 * EXO_SECOND;
    cr_assert_eq(graph_run(&g, 0), EXO_TIMEOUT);
    cr_expect_str_eq(g.err.text,
                     "sink_0: nothing came to 'numbers' in time: the deadline of edge "
                     "source>sink:numbers is 300 s; set its 'deadline' higher for slower actors "
                     "or links");
    exo_graph_result_release(&g.result);
}

Test(graph_run, an_actors_error_ends_the_run_and_names_it, .timeout = 60)
{
    for (size_t c = 0; c < 2; c++) {
        struct graph g;
        graph_init(&g, 2, 1, EXO_ROUTE_ONE, clocks[c]);
        world.items = 100000;
        world.sink_error = EXO_FAILED;
        cr_assert_eq(graph_run(&g, 0), EXO_FAILED);
        cr_expect_str_eq(g.err.text, "sink_0: on purpose");
        exo_graph_result_release(&g.result);
    }
}

Test(graph_run, every_sends_one_of_so_many, .timeout = 60)
{
    struct graph g;
    graph_init(&g, 1, 1, EXO_ROUTE_ONE, true);
    g.edges[0].every = 3;
    cr_assert_eq(graph_run(&g, 0), EXO_OK, "%s", g.err.text);
    cr_assert_eq(world.length, 7);
    for (uint32_t i = 0; i < world.length; i++)
        cr_expect_eq(world.seen[i].value, 3 * i);
    exo_graph_result_release(&g.result);
}

Test(graph_run, the_ledger_counts_every_byte, .timeout = 60)
{
    for (size_t c = 0; c < 2; c++) {
        struct graph g;
        graph_init(&g, 2, 3, EXO_ROUTE_BROADCAST, clocks[c]);
        cr_assert_eq(graph_run(&g, 0), EXO_OK, "%s", g.err.text);
        const exo_traffic *t = row_of(&g, "source_1");
        cr_expect_eq(t->items, 60);
        cr_expect_eq(t->payload_bytes, 60 * (10 * 4 + 4));
        cr_expect_eq(t->encoded_bytes, 60 * (10 * 4 + 4 + 8), "got %llu",
                     (unsigned long long)t->encoded_bytes);
        cr_expect_eq(t->messages, 60 + 3, "and three ends");
        exo_graph_result_release(&g.result);
    }
}

Test(graph_run, a_run_ends_when_its_time_is_over, .timeout = 60)
{
    for (size_t c = 0; c < 2; c++) {
        struct graph g;
        graph_init(&g, 1, 1, EXO_ROUTE_ONE, clocks[c]);
        world.items = 100000;
        g.make.cost = 10 * EXO_MS;
        g.edges[0].deadline = 1000 * EXO_SECOND;
        g.spec.until = 300 * EXO_MS;
        cr_assert_eq(graph_run(&g, 0), EXO_OK, "%s", g.err.text);
        if (clocks[c]) {
            cr_expect_geq(world.length, 20);
            cr_expect_lt(world.length, 45);
        }
        cr_expect_lt(world.length, world.items);
        /* What was done until then is not lost. */
        cr_expect_eq(g.result.end, EXO_GRAPH_UNTIL);
        cr_expect_eq(g.result.num_parts, 2);
        cr_expect_geq(g.result.time, 300 * EXO_MS);
        cr_expect_geq(row_of(&g, "source_0")->items, world.length);
        cr_expect_eq(row_of(&g, "sink_0")->items, 0);
        exo_graph_result_release(&g.result);
    }
}

Test(graph_run, what_was_done_before_an_error_is_reported, .timeout = 60)
{
    for (size_t c = 0; c < 2; c++) {
        struct graph g;
        graph_init(&g, 1, 1, EXO_ROUTE_ONE, clocks[c]);
        world.sink_error = EXO_FAILED;
        cr_assert_eq(graph_run(&g, 0), EXO_FAILED);
        cr_expect_eq(g.result.end, EXO_GRAPH_FAILED);
        cr_expect_geq(row_of(&g, "source_0")->items, 1);
        cr_expect_eq(g.result.num_parts, 2);
        exo_graph_result_release(&g.result);
    }
}

/* Whether a run is to be made again, with actors that end later: on a busy machine they may end
 * before the run has looked. */
static bool
again(struct graph *g, const char *expected, exo_time *lingers)
{
    if (strstr(g->err.text, expected) || *lingers > 5 * EXO_SECOND)
        return false;
    exo_graph_result_release(&g->result);
    *lingers *= 4;
    return true;
}

/* The sink fails for that reason, and the sources end later. */
static void
fail_before_sources(struct graph *g, uint32_t sources, const char *reason, const char *expected)
{
    const exo_graph_run_opts opts = {.space = "test", .grace = EXO_MS};
    exo_time lingers = 500 * EXO_MS;
    do {
        graph_init(g, sources, 1, EXO_ROUTE_ONE, false);
        world.items = 100000;
        world.lingers = lingers;
        world.sink_error = EXO_FAILED;
        snprintf(world.sink_reason, sizeof world.sink_reason, "%s", reason);
        cr_assert_eq(exo_graph_run(&g->spec, &opts, &g->result, &g->err), EXO_FAILED, "%s",
                     g->err.text);
    } while (again(g, expected, &lingers));
    cr_expect(strstr(g->err.text, expected), "%s", g->err.text);
}

Test(graph_run, an_error_is_named_though_others_do_not_end, .timeout = 120)
{
    static const char expected[] =
        "sink_0: on purpose; source_0 and 2 others have not ended since, for 0.001 s";
    struct graph g;
    fail_before_sources(&g, 3, "", expected);
    cr_expect_str_eq(g.err.text, expected);
    cr_expect_eq(g.result.end, EXO_GRAPH_FAILED);
    /* The sink failed on an item of one of them; the others may not have begun by then. */
    cr_expect_geq(row_of(&g, "source_0")->items + row_of(&g, "source_1")->items +
                      row_of(&g, "source_2")->items,
                  1);
    exo_graph_result_release(&g.result);
}

/* Nothing of the cause is lost to make room for the others, if there is room. */
Test(graph_run, a_long_error_stays_whole_though_others_do_not_end, .timeout = 120)
{
    struct graph g;
    char reason[sizeof world.sink_reason];
    memset(reason, '.', sizeof reason);
    memcpy(reason + sizeof reason - 2, "!", 2);
    fail_before_sources(&g, 1, reason, ".!; source_0 has not ended since, for 0.001 s");
    exo_graph_result_release(&g.result);
}

/* The stop is no reason to keep an actor's own error back. */
Test(graph_run, an_error_after_a_stop_is_named_though_others_do_not_end, .timeout = 240)
{
    const exo_status errors[] = {EXO_FAILED, EXO_CANCELLED, EXO_PEER_LOST /* of one that ended */};
    for (size_t i = 0; i < 3; i++) {
        static const char failed[] = "sink_0: on purpose; source_0 has not ended since";
        char late[64];
        struct graph g;
        const _Atomic int stop = 1;
        exo_time lingers = 1000 * EXO_MS;
        exo_status st;
        do {
            const exo_time grace = lingers / 5; /* the sink ends within it */
            const exo_graph_run_opts opts = {.space = "test", .grace = grace, .stop = &stop};
            graph_init(&g, 1, 1, EXO_ROUTE_ONE, false);
            world.items = 100000;
            world.lingers = lingers;
            world.sink_waits = true;
            world.sink_error = errors[i];
            snprintf(late, sizeof late, "source_0 has not ended within %.3g s",
                     (double)grace * 1e-9);
            st = exo_graph_run(&g.spec, &opts, &g.result, &g.err);
        } while (again(&g, i == 0 ? failed : late, &lingers));
        cr_expect_eq(st, i == 0 ? EXO_FAILED : EXO_TIMEOUT, "%s", g.err.text);
        cr_expect(strstr(g.err.text, i == 0 ? failed : late), "%s", g.err.text);
        exo_graph_result_release(&g.result);
    }
}

static void
give_report(void *context, uint32_t i, exo_graph_report *out)
{
    static const char good[] = "{\"meters\": {\"sent\": {\"kind\": \"counter\", \"unit\": \"1\", "
                               "\"help\": \"h\", \"value\": 1}}, "
                               "\"edges\": [{\"edge\": \"e\", \"traffic\": [0, 7]}]}",
                      bad[] = "{cut";
    static exo_payload replies[2];
    (void)context;
    replies[0] = exo_payload_borrow(good, sizeof good);
    replies[1] = exo_payload_borrow(bad, sizeof bad);
    snprintf(out->actor, sizeof out->actor, "a_%u", i);
    out->host = "h";
    out->reply = i == 3 ? NULL : &replies[i == 1];
}

Test(graph_run, a_report_that_cannot_be_read_hides_no_other)
{
    exo_graph_result result = {0};
    exo_err err = {0};
    cr_assert_eq(exo_graph_report_add_all(&result, 5, give_report, NULL, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "a_1: its report cannot be read");
    for (unsigned i = 0; i < 5; i++) {
        char path[16];
        exo_meter_sample sent = {0};
        snprintf(path, sizeof path, "a_%u.sent", i);
        cr_expect_eq(exo_meters_get(result.meters, path, &sent), i % 2 == 0, "%s", path);
        cr_expect_eq(sent.count, i % 2 == 0, "%s", path);
    }
    cr_expect_eq(result.ledger.length, 3);
    cr_expect_eq(exo_ledger_sum(&result.ledger, "e").items, 21);
    exo_graph_result_release(&result);
}

/* --- Changes while it runs -------------------------------------------------------------------- */

enum {
    CHANGES = 6
};

/* Graphs that the run goes over to, one after the other. */
static struct changes {
    struct graph graphs[CHANGES];
    size_t given;
    exo_status status;
    char reason[EXO_ERR_TEXT];
} changes;

static bool
next_graph(void *context, const exo_graph_spec *now, const exo_graph_spec **graph,
           const char **text)
{
    exo_err err = {0};
    (void)context;
    (void)text;
    if (changes.given == CHANGES)
        return false;
    *graph = &changes.graphs[changes.given++].spec;
    cr_expect_eq(exo_graph_check_change(now, *graph, &err), EXO_OK, "%s", err.text);
    return true;
}

static void
graph_changed(void *context, exo_time at, exo_status status, const char *reason)
{
    (void)context;
    (void)at;
    world.changes_made++;
    if (status != EXO_OK) {
        changes.status = status;
        snprintf(changes.reason, sizeof changes.reason, "%s", reason);
    }
}

/* graph_init without forgetting what the sources do. */
static void
graph_again(struct graph *g, uint32_t sources, uint32_t sinks, exo_route route, bool virtual_clock)
{
    uint32_t items = world.items;
    bool slow = world.slow;
    uint32_t expected = world.changes;
    graph_init(g, sources, sinks, route, virtual_clock);
    world.items = items;
    world.slow = slow;
    world.changes = expected;
}

Test(graph_run, a_graph_changes_while_it_runs_and_loses_nothing, .timeout = 120)
{
    static const exo_route routes[CHANGES] = {EXO_ROUTE_ROUND_ROBIN, EXO_ROUTE_LEAST_LOADED,
                                              EXO_ROUTE_HASH,        EXO_ROUTE_ROUND_ROBIN,
                                              EXO_ROUTE_MODULO,      EXO_ROUTE_ROUND_ROBIN};
    for (size_t c = 0; c < 2; c++) {
        struct graph g;
        memset(&changes, 0, sizeof changes);
        world.items = 1200;
        world.slow = true;
        world.changes = 4;
        graph_again(&g, 3, 2, EXO_ROUTE_ROUND_ROBIN, clocks[c]);
        for (size_t i = 0; i < CHANGES; i++) {
            struct graph *next = &changes.graphs[i];
            graph_again(next, 3, 2, routes[i], clocks[c]);
            next->edges[0].capacity = 1 + (uint32_t)i;
            next->edges[0].codec_text = i % 2 ? "zstd" : "raw";
            next->edges[0].every = 1;
        }
        const exo_graph_run_opts opts = {
            .space = "test", .next = next_graph, .changed = graph_changed};
        cr_assert_eq(exo_graph_run(&g.spec, &opts, &g.result, &g.err), EXO_OK, "%s", g.err.text);
        cr_expect_eq(changes.status, EXO_OK, "%s", changes.reason);
        cr_expect_geq(world.changes_made, 4, "%u changes were made", world.changes_made);
        /* Everything once; the order is each channel's, and a change makes another channel. */
        uint32_t count[3][MAX_SEEN] = {{0}}, sent = all_sent();
        cr_assert_eq(world.length, sent, "%u of %u items came", world.length, sent);
        cr_assert_leq(sent, MAX_SEEN);
        for (uint32_t i = 0; i < sent; i++)
            cr_assert_eq(count[world.seen[i].from][world.seen[i].value]++, 0,
                         "item %u of source %u came twice", world.seen[i].value,
                         world.seen[i].from);
        for (int f = 0; f < 3; f++)
            cr_assert_eq(count[f][world.items - 1], 1);
        exo_traffic sum = exo_ledger_sum(&g.result.ledger, NULL);
        cr_expect_eq(sum.items, sent);
        cr_expect_eq(sum.drops, 0);
        exo_graph_result_release(&g.result);
    }
}

/* What an outage holds that has no end by itself: an item on the link, an item that has left, and
 * credits. */
Test(graph_run, a_change_ends_an_outage_and_nothing_is_lost, .timeout = 60)
{
    static const exo_link_change outage = {.factor = 0};
    static const exo_host_group groups[] = {{.name = "host_0", .count = 1},
                                            {.name = "host_1", .first = 1, .count = 1}};
    static const char *const held[] = {"link", "receiver", "credits"};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        struct graph g;
        memset(&changes, 0, sizeof changes);
        graph_init(&g, 1, 2, EXO_ROUTE_BROADCAST, false);
        g.spec.emulated = true;
        g.spec.host_groups = (exo_host_group *)(uintptr_t)groups;
        g.spec.num_host_groups = sizeof groups / sizeof *groups;
        for (size_t c = 0; c < CHANGES; c++) {
            changes.graphs[c] = g;
            changes.graphs[c].spec.links = changes.graphs[c].links;
            changes.graphs[c].spec.hosts = changes.graphs[c].emulated;
        }
        exo_link_spec *link = &g.links[0].spec;
        exo_host_spec *host = &g.emulated[1].spec;
        if (i == 1) {
            host->changes = &outage;
            host->num_changes = 1;
        } else {
            link->changes = &outage;
            link->num_changes = 1;
        }
        if (i == 2) {
            g.links[0].is_default = false;
            g.links[0].from = 1;
            g.links[0].to = 0;
        }
        const exo_graph_run_opts opts = {
            .space = "test", .next = next_graph, .changed = graph_changed};
        cr_assert_eq(exo_graph_run(&g.spec, &opts, &g.result, &g.err), EXO_OK, "%s: %s", held[i],
                     g.err.text);
        cr_expect_eq(changes.status, EXO_OK, "%s: %s", held[i], changes.reason);
        check_all_came(&g, 1, 2);
        exo_graph_result_release(&g.result);
    }
}

/* The same on the virtual clock, where another source's work lets time pass: an item that the link
 * holds, an item that has left, and credits. */
Test(graph_run, a_change_ends_an_outage_on_the_virtual_clock, .timeout = 60)
{
    static const exo_link_change outage = {.factor = 0};
    static const exo_host_group groups[] = {{.name = "host_0", .count = 1},
                                            {.name = "host_1", .first = 1, .count = 1},
                                            {.name = "host_2", .first = 2, .count = 1}};
    for (int i = 0; i < 3; i++) {
        struct graph g;
        memset(&changes, 0, sizeof changes);
        graph_init(&g, 2, 1, EXO_ROUTE_BROADCAST, true);
        world.items = 600;
        world.slow = true;
        world.changes = 1;
        g.spec.emulated = true;
        g.spec.host_groups = (exo_host_group *)(uintptr_t)groups;
        g.spec.num_host_groups = sizeof groups / sizeof *groups;
        g.links[0].is_default = false;
        g.links[0].from = i < 2 ? 0 : 2;
        g.links[0].to = i < 2 ? 2 : 0;
        for (size_t c = 0; c < CHANGES; c++) {
            changes.graphs[c] = g;
            changes.graphs[c].spec.links = changes.graphs[c].links;
            changes.graphs[c].spec.hosts = changes.graphs[c].emulated;
        }
        if (i == 0) {
            g.emulated[0].spec.changes = &outage;
            g.emulated[0].spec.num_changes = 1;
        } else {
            g.links[0].spec.changes = &outage;
            g.links[0].spec.num_changes = 1;
        }
        const exo_graph_run_opts opts = {
            .space = "test", .next = next_graph, .changed = graph_changed};
        cr_assert_eq(exo_graph_run(&g.spec, &opts, &g.result, &g.err), EXO_OK, "%d: %s", i,
                     g.err.text);
        cr_expect_eq(changes.status, EXO_OK, "%d: %s", i, changes.reason);
        check_all_came(&g, 2, 1);
        exo_graph_result_release(&g.result);
    }
}

/* A channel that is opened to an actor that has ended says so to the first item. */
Test(graph_run, a_change_after_a_receiver_has_ended_holds_nobody_up, .timeout = 60)
{
    for (size_t c = 0; c < 2; c++) {
        struct graph g;
        memset(&changes, 0, sizeof changes);
        graph_init(&g, 1, 2, EXO_ROUTE_ROUND_ROBIN, clocks[c]);
        for (size_t i = 0; i < CHANGES; i++) {
            graph_init(&changes.graphs[i], 1, 2, EXO_ROUTE_ROUND_ROBIN, clocks[c]);
            changes.graphs[i].edges[0].capacity = 2 + (uint32_t)i;
        }
        world.items = 800;
        world.slow = true;
        world.changes = 3;
        world.take = 3;
        world.only_first = true;
        const exo_graph_run_opts opts = {
            .space = "test", .next = next_graph, .changed = graph_changed};
        cr_assert_eq(exo_graph_run(&g.spec, &opts, &g.result, &g.err), EXO_OK, "%s", g.err.text);
        cr_expect_geq(world.changes_made, 3);
        cr_expect_eq(changes.status, EXO_OK, "%s", changes.reason);
        cr_expect_gt(world.length, 700, "%u items came", world.length);
        exo_graph_result_release(&g.result);
    }
}

Test(graph_run, what_cannot_change_is_named)
{
    struct graph g, next;
    exo_err err = {0};
    graph_init(&g, 2, 2, EXO_ROUTE_ROUND_ROBIN, false);
    graph_init(&next, 2, 2, EXO_ROUTE_ROUND_ROBIN, true);
    cr_expect_eq(exo_graph_check_change(&g.spec, &next.spec, &err), EXO_INVAL);
    cr_expect_str_eq(
        err.text,
        "test: clock: virtual; the run has the real one, which cannot change while it goes on");
    graph_init(&next, 2, 2, EXO_ROUTE_ROUND_ROBIN, false);
    next.spec.num_actors = 1;
    cr_expect_eq(exo_graph_check_change(&g.spec, &next.spec, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "is missing; the run has it, which cannot change"));
}
