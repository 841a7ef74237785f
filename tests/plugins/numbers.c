/* A plugin with graph classes for tests of the command line. `source` sends a given number of
 * items of `floats` numbers, with a pause before each one; with `gate` it sends the last one when there is a file of that
 * name. `sink` counts them and adds up their last numbers; with `wide` it also declares eight meters
 * with long texts, and with `gate` it receives the first one when there is a file of that name.
 *
 * Each actor owns its state. Read next: include/exogym/graph.h. */
#include <time.h>

#include <exogym/graph.h>
#include <exogym/plugin.h>

#include "gate.h"

struct source {
    uint64_t items, pause_us, floats;
    const char *gate;
};

static exo_status
source_init(void *self, exo_config *config, exo_err *err)
{
    struct source *s = self;
    exo_status st = exo_config_u64(config, "items", 100, 1, 1000000, &s->items, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "pause_us", 0, 0, 1000000, &s->pause_us, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "floats", 256, 256, 1 << 20, &s->floats, err);
    return st == EXO_OK ? exo_config_string(config, "gate", NULL, &s->gate, err) : st;
}

static exo_status
source_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    const struct source *s = self;
    exo_port *out = exo_graph_output(actor, "numbers");
    exo_status st = EXO_OK;
    for (uint64_t i = 0; st == EXO_OK && i < s->items && !exo_graph_cancelled(actor); i++) {
        exo_item *item = NULL;
        const struct timespec pause = {.tv_sec = (time_t)(s->pause_us / 1000000),
                                       .tv_nsec = (long)(s->pause_us % 1000000 * 1000)};
        nanosleep(&pause, NULL);
        if (i + 1 == s->items)
            gate_wait(s->gate, actor);
        exo_graph_phase(actor, "make");
        st = exo_item_new(&item, &(exo_item_part){.dtype = EXO_F32, .count = s->floats}, 1, err);
        exo_graph_phase(actor, NULL);
        if (st != EXO_OK)
            break;
        for (size_t k = 0; k < s->floats; k++)
            ((float *)item->parts[0].data)[k] = (float)i;
        st = exo_port_send(out, &item, EXO_PORT_TIMEOUT, err);
    }
    return st == EXO_CLOSED ? EXO_OK : st;
}

#define LONG "a text of many words that says next to nothing, but it does so at length; "
#define WIDE(number)                                                                               \
    {                                                                                              \
        .name = "wide_" #number, .unit = "1", .help = LONG LONG LONG                               \
    }

static const exo_meter_class wide[] = {WIDE(0), WIDE(1), WIDE(2), WIDE(3),
                                       WIDE(4), WIDE(5), WIDE(6), WIDE(7)};

struct sink {
    bool wide;
    const char *gate;
};

static exo_status
sink_init(void *self, exo_config *config, exo_err *err)
{
    struct sink *s = self;
    exo_status st = exo_config_bool(config, "wide", false, &s->wide, err);
    return st == EXO_OK ? exo_config_string(config, "gate", NULL, &s->gate, err) : st;
}

static exo_status
sink_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    const struct sink *s = self;
    exo_port *in = exo_graph_input(actor, "numbers");
    static const exo_meter_class classes[] = {
        {.name = "count", .unit = "items", .help = "items of numbers"},
        {.name = "sum", .unit = "1", .help = "sum of their last numbers", .kind = EXO_GAUGE}};
    double sum = 0;
    exo_item *item = NULL;
    exo_meter *meters[2], *unused[sizeof wide / sizeof *wide];
    exo_status st = exo_meter_declare_all(meters, exo_graph_meters(actor), classes, 2, err);
    if (st == EXO_OK && s->wide)
        st = exo_meter_declare_all(unused, exo_graph_meters(actor), wide,
                                   sizeof wide / sizeof *wide, err);
    if (st != EXO_OK)
        return st;
    gate_wait(s->gate, actor);
    while ((st = exo_port_receive(in, EXO_PORT_TIMEOUT, &item, err)) == EXO_OK) {
        sum += (double)((const float *)item->parts[0].data)[255];
        exo_meter_add(meters[0], 1);
        exo_meter_set(meters[1], sum);
        exo_item_drop(&item);
    }
    return st == EXO_CLOSED ? EXO_OK : st;
}

static const exo_graph_port source_ports[] = {
    {.name = "numbers", .type = "numbers", .direction = EXO_PORT_OUTPUT}};
static const exo_graph_port sink_ports[] = {
    {.name = "numbers", .type = "numbers", .direction = EXO_PORT_INPUT, .blocking = true}};
static const char *const phases[] = {"make", NULL};
static const exo_graph_class source = {.name = "source",
                                       .help = "sends numbers",
                                       .ports = source_ports,
                                       .num_ports = 1,
                                       .phases = phases,
                                       .state_size = sizeof(struct source),
                                       .init = source_init,
                                       .run = source_run,
                                       .order = "*send numbers"};
static const exo_graph_class sink = {.name = "sink",
                                     .help = "counts numbers",
                                     .ports = sink_ports,
                                     .num_ports = 1,
                                     .state_size = sizeof(struct sink),
                                     .init = sink_init,
                                     .run = sink_run,
                                     .order = "*receive numbers"};

EXO_PLUGIN
{
    exo_status st = exo_graph_class_register(&source, err);
    return st == EXO_OK ? exo_graph_class_register(&sink, err) : st;
}
