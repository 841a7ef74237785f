/* The cost of a small item between many actors.
 *
 *     bench_crowd [ACTORS [ITEMS]]
 *
 * ACTORS senders (default: 100) each broadcast ITEMS items of 32 bytes (3) to as many receivers, in
 * this process, without an emulated network. The first run is on the virtual clock, which runs one
 * actor at a time: its time is the cost of the work itself. The second run is on the real clock,
 * with a thread for each actor, and should not take much longer. The third run is on the virtual
 * clock, with 50 s of virtual time for each item, and shows the cost of the passing of virtual
 * time, with its looks for stalls. Prints the time of each run, and for each arrival of an item the
 * time, the time in the kernel, and the waits of threads. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <exogym/graph.h>

#include "graph/run.h"

static unsigned long actors = 100, items = 3;

static exo_status
sender_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    (void)self;
    exo_port *out = exo_graph_output(actor, "items");
    exo_status st = EXO_OK;
    for (unsigned long i = 0; st == EXO_OK && i < items; i++) {
        exo_item *item = NULL;
        exo_graph_phase(actor, "make");
        exo_graph_phase(actor, NULL);
        st = exo_item_new(&item, &(exo_item_part){.dtype = EXO_F32, .count = 8}, 1, err);
        if (st == EXO_OK)
            st = exo_port_send(out, &item, EXO_PORT_TIMEOUT, err);
    }
    return st;
}

static exo_status
receiver_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    (void)self;
    exo_item *item = NULL;
    exo_status st = EXO_OK;
    while ((st = exo_port_receive(exo_graph_input(actor, "items"), EXO_PORT_TIMEOUT, &item, err)) ==
           EXO_OK)
        exo_item_drop(&item);
    return st == EXO_CLOSED ? EXO_OK : st;
}

/* Takes part in no run: the graph of `measure` has no such actor. */
static exo_status
ticker_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    (void)self;
    (void)err;
    for (unsigned long i = 0; i < 100 * items; i++) {
        exo_graph_phase(actor, "tick");
        exo_graph_phase(actor, NULL);
        exo_port_pending(exo_graph_input(actor, "items"));
    }
    return EXO_OK;
}

static const exo_graph_port sender_ports[] = {
    {.name = "items", .type = "items", .direction = EXO_PORT_OUTPUT}};
static const exo_graph_port receiver_ports[] = {
    {.name = "items", .type = "items", .direction = EXO_PORT_INPUT, .blocking = true}};
static const char *const phases[] = {"make", NULL};
static const exo_graph_class sender = {
    .name = "sender", .ports = sender_ports, .num_ports = 1, .phases = phases, .run = sender_run};
static const exo_graph_class receiver = {
    .name = "receiver", .ports = receiver_ports, .num_ports = 1, .run = receiver_run};
static const char *const ticks[] = {"tick", NULL};
static const exo_graph_class ticker = {
    .name = "ticker", .ports = receiver_ports, .num_ports = 1, .phases = ticks, .run = ticker_run};

struct cost {
    double seconds, kernel;
    long waits;
};

static struct cost
usage(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (struct cost){.kernel = (double)u.ru_stime.tv_sec + (double)u.ru_stime.tv_usec * 1e-6,
                         .waits = u.ru_nvcsw};
}

static struct cost
measure(const char *clock, const char *cost_of_item)
{
    char text[512];
    exo_err err = {0};
    exo_graph_spec *spec = NULL;
    exo_graph_result result = {0};
    snprintf(text, sizeof text,
             "{name: crowd, clock: %s, actors: {sender: {class: sender, count: %lu, compute: "
             "{make: %s}}, receiver: "
             "{class: receiver, count: "
             "%lu}}, edges: [{from: sender, to: receiver, carries: items, route: broadcast}]}",
             clock, actors, cost_of_item, actors);
    const exo_graph_run_opts opts = {.space = "bench"};
    const struct cost before = usage();
    exo_status st = exo_graph_parse(&spec, "bench", text, NULL, &err);
    if (st == EXO_OK)
        st = exo_graph_run(spec, &opts, &result, &err);
    const struct cost after = usage();
    const struct cost cost = {.seconds = result.seconds,
                              .kernel = after.kernel - before.kernel,
                              .waits = after.waits - before.waits};
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
    if (st != EXO_OK) {
        fprintf(stderr, "bench_crowd: %s\n", err.text);
        exit(1);
    }
    return cost;
}

int
main(int argc, char **argv)
{
    static const char *const clocks[] = {"virtual", "real", "virtual"}, *const costs[] = {
                                                                            "0 s", "0 s", "50 s"};
    double seconds[3];
    exo_err err = {0};
    if (argc > 1)
        actors = strtoul(argv[1], NULL, 10);
    if (argc > 2)
        items = strtoul(argv[2], NULL, 10);
    if (actors < 1 || items < 1 || exo_graph_class_register(&sender, &err) != EXO_OK ||
        exo_graph_class_register(&receiver, &err) != EXO_OK ||
        exo_graph_class_register(&ticker, &err) != EXO_OK) {
        fprintf(stderr, "usage: bench_crowd [ACTORS [ITEMS]], from 1\n");
        return 2;
    }
    double arrivals = (double)actors * (double)actors * (double)items;
    printf("%lu senders, %lu receivers, %lu items of 32 B each: %.0f arrivals\n", actors, actors,
           items, arrivals);
    printf("%8s  %8s  %12s  %14s  %14s\n", "clock", "seconds", "an arrival", "in the kernel",
           "waits each");
    for (int i = 0; i < 3; i++) {
        const struct cost c = measure(clocks[i], costs[i]);
        seconds[i] = c.seconds;
        printf("%8s  %8.2f  %9.2f us  %11.2f us  %14.2f\n", clocks[i], c.seconds,
               c.seconds / arrivals * 1e6, c.kernel / arrivals * 1e6, (double)c.waits / arrivals);
    }
    printf(
        "the real clock takes %.2f of the time of the virtual one, %.0f s of virtual time %.2f\n",
        seconds[1] / seconds[0], 50.0 * (double)items, seconds[2] / seconds[0]);
    return 0;
}
