/* Graph classes for tests of graphs: see graph_classes.h. */
#include "support/graph_classes.h"

#include <stdlib.h>

#include <exogym/graph.h>

static exo_status
run(void *self, exo_graph_actor *actor, exo_err *err)
{
    (void)self;
    (void)actor;
    (void)err;
    return EXO_OK;
}

static exo_status
read_maker(void *self, exo_config *config, exo_err *err)
{
    (void)self;
    uint64_t length = 0;
    const char *name = NULL;
    exo_status st = exo_config_u64(config, "length", 8, 1, 100, &length, err);
    if (st == EXO_OK)
        st = exo_config_string(config, "name", "", &name, err);
    if (st == EXO_OK && length == 13)
        st = exo_fail(err, EXO_INVAL, "13 is unlucky"); /* an error without a place */
    return st;
}

static const char *const maker_phases[] = {"act", "learn", NULL};
static const char *const learner_phases[] = {"learn", NULL};

#define OUTPUT     .direction = EXO_PORT_OUTPUT
#define INPUT      .direction = EXO_PORT_INPUT
#define COLLECTIVE .direction = EXO_PORT_COLLECTIVE

static const exo_graph_port maker_ports[] = {
    {.name = "experience", .type = "rollout", OUTPUT, .required = true},
    {.name = "parameters", .type = "parameters", INPUT},
};
static const exo_graph_port learner_ports[] = {
    {.name = "experience", .type = "rollout", INPUT, .required = true, .blocking = true},
    {.name = "parameters", .type = "parameters", OUTPUT},
    {.name = "gradients", .type = "gradients", COLLECTIVE},
};
static const exo_graph_port talker_ports[] = {
    {.name = "state", .type = "state", OUTPUT},
    {.name = "state", .type = "state", INPUT, .blocking = true},
};
static const exo_graph_port ping_ports[] = {
    {.name = "ping", .type = "t", OUTPUT},
    {.name = "pong", .type = "t", INPUT, .blocking = true},
};
static const exo_graph_port pong_ports[] = {
    {.name = "pong", .type = "t", OUTPUT},
    {.name = "ping", .type = "t", INPUT, .blocking = true},
};
static const exo_graph_port starter_ports[] = {
    {.name = "ping", .type = "t", OUTPUT, .initial = true},
    {.name = "pong", .type = "t", INPUT, .blocking = true},
};
static const exo_graph_port text_ports[] = {
    {.name = "experience", .type = "text", OUTPUT},
};

#define PORTS(list) .ports = (list), .num_ports = sizeof(list) / sizeof *(list)

static const exo_graph_class classes[] = {
    {.name = "maker",
     .help = "makes experience",
     .run = run,
     .init = read_maker,
     .phases = maker_phases,
     PORTS(maker_ports)},
    {.name = "learner",
     .help = "learns from it",
     .run = run,
     .phases = learner_phases,
     PORTS(learner_ports)},
    {.name = "talker", .help = "tells others", .run = run, PORTS(talker_ports)},
    {.name = "ping", .help = "waits, then sends", .run = run, PORTS(ping_ports)},
    {.name = "pong", .help = "waits, then sends", .run = run, PORTS(pong_ports)},
    {.name = "starter", .help = "sends, then waits", .run = run, PORTS(starter_ports)},
    {.name = "text", .help = "sends text", .run = run, PORTS(text_ports)},
};

void
graph_classes_register(void)
{
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (!exo_graph_class_find(classes[i].name) &&
            exo_graph_class_register(&classes[i], NULL) != EXO_OK)
            abort();
}
