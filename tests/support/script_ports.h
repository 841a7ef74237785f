/* The ports and phases of classes that run a script: of tests/support/script.c in a program, and of
 * tests/plugins/script.c in workers. */
#ifndef SCRIPT_PORTS_H
#define SCRIPT_PORTS_H

#include <exogym/graph.h>

#define OUTPUT(n)                                                                                  \
    {                                                                                              \
        .name = "p" #n, .type = "t", .direction = EXO_PORT_OUTPUT                                  \
    }
#define INPUT(n)                                                                                   \
    {                                                                                              \
        .name = "p" #n, .type = "t", .direction = EXO_PORT_INPUT                                   \
    }
#define GROUP(n)                                                                                   \
    {                                                                                              \
        .name = "g" #n, .type = "g", .direction = EXO_PORT_COLLECTIVE                              \
    }

static const exo_graph_port script_ports[] = {
    OUTPUT(0),  OUTPUT(1),  OUTPUT(2), OUTPUT(3),  OUTPUT(4),  OUTPUT(5),  OUTPUT(6),
    OUTPUT(7),  OUTPUT(8),  OUTPUT(9), OUTPUT(10), OUTPUT(11), OUTPUT(12), OUTPUT(13),
    OUTPUT(14), OUTPUT(15), INPUT(0),  INPUT(1),   INPUT(2),   INPUT(3),   INPUT(4),
    INPUT(5),   INPUT(6),   INPUT(7),  INPUT(8),   INPUT(9),   INPUT(10),  INPUT(11),
    INPUT(12),  INPUT(13),  INPUT(14), INPUT(15),  GROUP(0),   GROUP(1),
};
static const char *const script_phases[] = {"work", NULL};

enum {
    SCRIPT_NUM_PORTS = sizeof script_ports / sizeof *script_ports
};

#undef OUTPUT
#undef INPUT
#undef GROUP

#endif
