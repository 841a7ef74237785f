/* Does communication hide behind computation?
 *
 *     bench_overlap [ITEMS]
 *
 * A producer computes for each item and sends it over an emulated link to a consumer, in this
 * process on the real clock. The computation takes half, once and twice the time of the
 * transmission. With buffered edges a step should take the larger of the two times; without overlap
 * it takes their sum. Prints the time of a step, its ratio to each of these, and the prediction of
 * the virtual clock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/graph.h>
#include <exogym/memory.h>

#include "graph/run.h"

enum {
    NUMEL = 250000 /* elements of an item: 1 MB */
};

static uint32_t items = 40;

static exo_status
producer_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    (void)self;
    exo_port *out = exo_graph_output(actor, "items");
    exo_status st = EXO_OK;
    for (uint32_t i = 0; st == EXO_OK && i < items; i++) {
        exo_item *item = NULL;
        exo_graph_phase(actor, "compute");
        st = exo_item_new(&item, &(exo_item_part){.dtype = EXO_F32, .count = NUMEL}, 1, err);
        exo_graph_phase(actor, NULL);
        if (st == EXO_OK)
            st = exo_port_send(out, &item, EXO_PORT_TIMEOUT, err);
    }
    return st;
}

static exo_status
consumer_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    (void)self;
    exo_item *item = NULL;
    exo_status st = EXO_OK;
    while ((st = exo_port_receive(exo_graph_input(actor, "items"), EXO_PORT_TIMEOUT, &item, err)) ==
           EXO_OK)
        exo_item_drop(&item);
    return st == EXO_CLOSED ? EXO_OK : st;
}

static const exo_graph_port producer_ports[] = {
    {.name = "items", .type = "items", .direction = EXO_PORT_OUTPUT}};
static const exo_graph_port consumer_ports[] = {
    {.name = "items", .type = "items", .direction = EXO_PORT_INPUT}};
static const char *const phases[] = {"compute", NULL};
static const exo_graph_class producer = {.name = "producer",
                                         .ports = producer_ports,
                                         .num_ports = 1,
                                         .phases = phases,
                                         .run = producer_run};
static const exo_graph_class consumer = {
    .name = "consumer", .ports = consumer_ports, .num_ports = 1, .run = consumer_run};

/* The time of a run in seconds, on its clock. */
static double
measure(double compute_ms, bool virtual_clock)
{
    static const char format[] = "{name: overlap, clock: %s, actors: {producer: {class: producer, "
                                 "compute: {compute: %.3f ms}}, "
                                 "consumer: {class: consumer}}, edges: [{from: producer, to: "
                                 "consumer, carries: items, buffer: {capacity: 4}}], "
                                 "links: {default: {bandwidth: 160 Mbit/s, transport: ideal}}}";
    char text[1024];
    exo_err err = {0};
    exo_graph_spec *spec = NULL;
    exo_graph_result result = {0};
    snprintf(text, sizeof text, format, virtual_clock ? "virtual" : "real", compute_ms);
    const exo_graph_run_opts opts = {.space = "bench"};
    exo_status st = exo_graph_parse(&spec, "bench", text, NULL, &err);
    if (st == EXO_OK)
        st = exo_graph_run(spec, &opts, &result, &err);
    double seconds = (double)result.time * 1e-9;
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
    if (st != EXO_OK) {
        fprintf(stderr, "bench_overlap: %s\n", err.text);
        exit(1);
    }
    return seconds;
}

int
main(int argc, char **argv)
{
    const double transmit_ms = (NUMEL * 4 + 200) * 8 / 160e3; /* with about 200 bytes of headers */
    exo_err err = {0};
    if (argc > 1)
        items = (uint32_t)strtoul(argv[1], NULL, 10);
    if (items < 2 || exo_graph_class_register(&producer, &err) != EXO_OK ||
        exo_graph_class_register(&consumer, &err) != EXO_OK) {
        fprintf(stderr, "usage: bench_overlap [ITEMS], from 2\n");
        return 2;
    }
    printf("%u items, %.1f ms each on the link\n", items, transmit_ms);
    printf("%10s  %12s  %12s  %14s  %14s\n", "compute", "a step", "virtual", "to the larger",
           "to the sum");
    for (double share = 0.5; share <= 2.0; share *= 2) {
        double compute_ms = transmit_ms * share, larger = share > 1 ? compute_ms : transmit_ms;
        /* Subtracts the shorter of the first computation and the last transmission: neither can
         * overlap. */
        double step =
            (measure(compute_ms, false) * 1e3 - (share > 1 ? transmit_ms : compute_ms)) / items;
        double predicted =
            (measure(compute_ms, true) * 1e3 - (share > 1 ? transmit_ms : compute_ms)) / items;
        printf("%7.1f ms  %9.2f ms  %9.2f ms  %14.3f  %14.3f\n", compute_ms, step, predicted,
               step / larger, step / (compute_ms + transmit_ms));
    }
    return 0;
}
