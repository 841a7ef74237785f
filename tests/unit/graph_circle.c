/* Makers and trainers that send to each other over blocking edges: no interleaving deadlocks. The
 * virtual clock tries interleavings by other seeds, costs and ties. A run that deadlocks ends with
 * an error.
 *
 * The test's thread writes `setting` between runs. Read next: runtime/graph/run.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/rng.h>

#include "graph/run.h"

enum {
    UPDATES = 6,
    MAX_SIDE = 4
};

/* The parameters of one run. */
static struct setting {
    uint32_t makers, trainers, capacity, batch;
    exo_route route;
    bool together; /* trainers reduce their gradients together */
    bool waits;    /* makers wait for parameters before they begin */
    bool no_rule;  /* no edge is a feedback edge */
    uint64_t seed;
} setting;

/* Takes a random cost of 0 to 9 ms. */
static void
compute(exo_graph_actor *actor, exo_rng *rng)
{
    static const char *const phases[] = {"p0", "p1", "p2", "p3", "p4",
                                         "p5", "p6", "p7", "p8", "p9"};
    exo_graph_phase(actor, phases[exo_rng_below(rng, 10)]);
    exo_graph_phase(actor, NULL);
}

static exo_status
send_one(exo_port *port, exo_err *err)
{
    exo_item *item = NULL;
    exo_status st = exo_item_new(&item, &(exo_item_part){.dtype = EXO_I32, .count = 1}, 1, err);
    return st == EXO_OK ? exo_port_send(port, &item, EXO_PORT_TIMEOUT, err) : st;
}

static exo_status
maker_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    (void)self;
    exo_port *experience = exo_graph_output(actor, "experience"),
             *parameters = exo_graph_input(actor, "parameters");
    exo_rng rng;
    exo_rng_init(&rng, setting.seed, EXO_RNG_USER, exo_graph_index(actor), 0);
    exo_item *item = NULL;
    exo_status st =
        setting.waits ? exo_port_receive(parameters, EXO_PORT_TIMEOUT, &item, err) : EXO_OK;
    exo_item_drop(&item);
    while (st == EXO_OK) {
        while (exo_port_receive(parameters, 0, &item, NULL) == EXO_OK)
            exo_item_drop(&item);
        compute(actor, &rng);
        st = send_one(experience, err);
    }
    return st == EXO_CLOSED ? EXO_OK : st;
}

static exo_status
trainer_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    (void)self;
    exo_port *experience = exo_graph_input(actor, "experience"),
             *parameters = exo_graph_output(actor, "parameters");
    exo_group *group = exo_graph_group(actor, "gradients");
    exo_rng rng;
    float gradients[8] = {1};
    exo_rng_init(&rng, setting.seed, EXO_RNG_USER, 100 + exo_graph_index(actor), 0);
    exo_status st = send_one(parameters, err);
    for (int update = 0; st == EXO_OK && update < UPDATES; update++) {
        for (uint32_t i = 0; st == EXO_OK && i < setting.batch; i++) {
            exo_item *item = NULL;
            st = exo_port_receive(experience, EXO_PORT_TIMEOUT, &item, err);
            exo_item_drop(&item);
        }
        compute(actor, &rng);
        if (st == EXO_OK && group)
            st = exo_all_reduce(group, exo_host_array(EXO_F32, gradients, 8), EXO_MEAN, err);
        if (st == EXO_OK)
            st = send_one(parameters, err);
    }
    return st == EXO_CLOSED ? EXO_OK : st;
}

static const exo_graph_port maker_ports[] = {
    {.name = "experience", .type = "e", .direction = EXO_PORT_OUTPUT},
    {.name = "parameters", .type = "p", .direction = EXO_PORT_INPUT},
};
static const exo_graph_port trainer_ports[] = {
    {.name = "experience", .type = "e", .direction = EXO_PORT_INPUT, .blocking = true},
    {.name = "parameters", .type = "p", .direction = EXO_PORT_OUTPUT, .initial = true},
    {.name = "gradients", .type = "g", .direction = EXO_PORT_COLLECTIVE},
};
static const exo_graph_class maker = {
    .name = "maker", .ports = maker_ports, .num_ports = 2, .run = maker_run};
static const exo_graph_class trainer = {
    .name = "trainer", .ports = trainer_ports, .num_ports = 3, .run = trainer_run};

static exo_status
run_setting(void)
{
    static exo_compute_spec costs[10];
    static const char *const names[] = {"p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9"};
    static uint32_t maker_hosts[MAX_SIDE] = {0, 1, 2, 3}, trainer_hosts[MAX_SIDE] = {4, 5, 6, 7};
    exo_emulated_host hosts[2 * MAX_SIDE];
    for (int i = 0; i < 10; i++)
        costs[i] = (exo_compute_spec){.phase = names[i], .cost = i * EXO_MS};
    for (int i = 0; i < 2 * MAX_SIDE; i++)
        hosts[i] = (exo_emulated_host){.spec = {.name = "host", .up = INFINITY, .down = INFINITY},
                                       .speed = 1};
    exo_actor_spec actors[] = {
        {.name = "maker", .class = &maker, .count = setting.makers, .hosts = maker_hosts},
        {.name = "trainer", .class = &trainer, .count = setting.trainers, .hosts = trainer_hosts},
    };
    for (int i = 0; i < 2; i++) {
        actors[i].compute = costs;
        actors[i].num_compute = 10;
    }
    const exo_edge_spec common = {.codec_text = "raw",
                                  .capacity = setting.capacity,
                                  .every = 1,
                                  .deadline = 10 * EXO_SECOND,
                                  .link = -1};
    exo_edge_spec edges[3] = {common, common, common};
    edges[0].name = "experience", edges[0].carries = "experience", edges[0].to = 1,
    edges[0].route = setting.route;
    edges[1].name = "parameters", edges[1].carries = "parameters", edges[1].from = 1,
    edges[1].route = EXO_ROUTE_BROADCAST;
    edges[2].name = "gradients", edges[2].carries = "gradients", edges[2].from = edges[2].to = 1,
    edges[2].route = EXO_ROUTE_ALL_REDUCE;
    exo_graph_spec spec = {.source = "test",
                           .name = "test",
                           .seed = setting.seed,
                           .virtual_clock = true,
                           .actors = actors,
                           .num_actors = 2,
                           .edges = edges,
                           .num_edges = setting.together ? 3 : 2,
                           .hosts = hosts,
                           .num_hosts = 2 * MAX_SIDE};
    edges[0].output = &maker_ports[0], edges[0].input = &trainer_ports[0];
    edges[1].output = &trainer_ports[1], edges[1].input = &maker_ports[1];
    exo_graph_mark_feedback(&spec);
    cr_assert(edges[1].feedback && !edges[0].feedback, "parameters are, experience is not");
    edges[1].feedback = !setting.no_rule;
    const exo_graph_run_opts opts = {.space = "test", .tie_seed = setting.seed + 1};
    exo_graph_result result;
    exo_err err = {0};
    exo_status st = exo_graph_run(&spec, &opts, &result, &err);
    cr_expect(st == EXO_OK || (setting.no_rule && st == EXO_FAILED),
              "%u makers, %u trainers, capacity %u, batch %u, route %d, %s, seed %llu: %s",
              setting.makers, setting.trainers, setting.capacity, setting.batch, (int)setting.route,
              setting.together ? "together" : "alone", (unsigned long long)setting.seed, err.text);
    exo_graph_result_release(&result);
    return st;
}

/* Counts the runs, and those that stalled. */
static void
run_all(bool together, bool no_rule, uint64_t seeds, unsigned *runs, unsigned *stuck)
{
    static const exo_route routes[] = {EXO_ROUTE_ROUND_ROBIN, EXO_ROUTE_MODULO,
                                       EXO_ROUTE_LEAST_LOADED, EXO_ROUTE_BROADCAST};
    for (uint32_t makers = 1; makers <= MAX_SIDE; makers++)
        for (uint32_t trainers = 1; trainers <= MAX_SIDE; trainers++)
            for (uint64_t seed = 0; seed < seeds; seed++) {
                setting = (struct setting){.makers = makers,
                                           .trainers = trainers,
                                           .capacity = 1 + (uint32_t)(seed % 2),
                                           .batch = 1 + (uint32_t)(seed % 3),
                                           .route = routes[seed % 4],
                                           .together = together,
                                           .waits = seed % 5 == 0,
                                           .no_rule = no_rule,
                                           .seed = seed * 131 + makers * 17 + trainers};
                *stuck += run_setting() != EXO_OK;
                ++*runs;
            }
}

Test(graph_circle, trainers_of_their_own, .timeout = 250)
{
    unsigned runs = 0, stuck = 0;
    run_all(false, false, 24, &runs, &stuck);
    cr_expect_eq(stuck, 0);
    cr_expect_eq(runs, 4 * 4 * 24);
}

Test(graph_circle, trainers_that_learn_together, .timeout = 250)
{
    unsigned runs = 0, stuck = 0;
    run_all(true, false, 24, &runs, &stuck);
    cr_expect_eq(stuck, 0);
}

/* The search can find deadlocks: without feedback edges some of the same runs stall. */
Test(graph_circle, without_the_rule_some_wait_for_each_other, .timeout = 250)
{
    unsigned runs = 0, stuck = 0;
    run_all(false, true, 24, &runs, &stuck);
    cr_expect_gt(stuck, 5, "%u of %u", stuck, runs);
    cr_expect_lt(stuck, runs / 2);
}
