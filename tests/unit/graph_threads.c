/* A process that may have no more threads: large items go without one. */
#include <criterion/criterion.h>

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include <exogym/graph.h>

#include "graph/run.h"

enum {
    ITEMS = 20,
    NUMBERS = 100000 /* of an item: far beyond what is sent without a thread */
};

static struct {
    atomic_int running; /* actors; from the second one on there are no more threads */
    atomic_int refused;
    atomic_int came;
} world;

int
pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
               void *argument)
{
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
    if (world.running < 2)
        return next(thread, attr, start, argument);
    world.refused++;
    return EAGAIN;
}

static exo_status
source_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    (void)self;
    exo_item *item = NULL;
    exo_status st = exo_port_receive(exo_graph_input(actor, "go"), EXO_PORT_TIMEOUT, &item, err);
    exo_item_drop(&item);
    world.running++;
    for (int i = 0; st == EXO_OK && i < ITEMS; i++) {
        st = exo_item_new(&item, &(exo_item_part){.dtype = EXO_F32, .count = NUMBERS}, 1, err);
        if (st == EXO_OK)
            st = exo_port_send(exo_graph_output(actor, "items"), &item, EXO_PORT_TIMEOUT, err);
    }
    return st;
}

static exo_status
sink_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    (void)self;
    exo_item *item = NULL;
    world.running++;
    exo_status st = exo_item_new(&item, &(exo_item_part){.dtype = EXO_F32, .count = 1}, 1, err);
    if (st == EXO_OK)
        st = exo_port_send(exo_graph_output(actor, "go"), &item, EXO_PORT_TIMEOUT, err);
    while (st == EXO_OK && (st = exo_port_receive(exo_graph_input(actor, "items"), EXO_PORT_TIMEOUT,
                                                  &item, err)) == EXO_OK) {
        world.came += item->parts[0].count == NUMBERS;
        exo_item_drop(&item);
    }
    return st == EXO_CLOSED ? EXO_OK : st;
}

#define PORTS(items_direction, go_direction)                                                       \
    {                                                                                              \
        {.name = "items", .type = "items", .direction = items_direction},                          \
        {                                                                                          \
            .name = "go", .type = "go", .direction = go_direction                                  \
        }                                                                                          \
    }

static const exo_graph_port source_ports[] = PORTS(EXO_PORT_OUTPUT, EXO_PORT_INPUT);
static const exo_graph_port sink_ports[] = PORTS(EXO_PORT_INPUT, EXO_PORT_OUTPUT);
static const exo_graph_class source = {
    .name = "source", .ports = source_ports, .num_ports = 2, .run = source_run};
static const exo_graph_class sink = {
    .name = "sink", .ports = sink_ports, .num_ports = 2, .run = sink_run};

Test(graph_threads, large_items_go_without_a_thread_where_there_can_be_none, .timeout = 60)
{
    exo_err err = {0};
    exo_graph_spec *spec = NULL;
    exo_graph_result result = {0};
    const exo_graph_run_opts opts = {.space = "threads"};
    cr_assert_eq(exo_graph_class_register(&source, &err), EXO_OK);
    cr_assert_eq(exo_graph_class_register(&sink, &err), EXO_OK);
    cr_assert_eq(exo_graph_parse(&spec, "threads",
                                 "actors: {source: {class: source}, sink: {class: sink}}\n"
                                 "edges: [{from: source, to: sink, carries: items}, {from: sink, "
                                 "to: source, carries: go}]\n",
                                 NULL, &err),
                 EXO_OK, "%s", err.text);
    exo_status st = exo_graph_run(spec, &opts, &result, &err);
    world.running = 0;
    cr_expect_eq(st, EXO_OK, "%s", err.text);
    cr_expect_eq(world.came, ITEMS);
    cr_expect_gt(world.refused, 0);
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
}
