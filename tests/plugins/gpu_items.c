/* A plugin with graph classes whose items have arrays on a device, for tests of the command line, and
 * as the example of docs/graph.md. `array_source` sends arrays of the numbers i, i + 1, ...;
 * `array_relay` passes on twice what it gets; `array_sink` sums what comes, on its device.
 *
 * Each actor owns its device. Read next: include/exogym/graph.h, "Arrays on devices". */
#include <stdlib.h>
#include <string.h>

#include <exogym/graph.h>
#include <exogym/plugin.h>

struct holder {
    char device[32]; /* "cpu", or as for jobs */
    uint64_t items, count;
    bool elsewhere; /* its process behaves as if it was on another host */
    exo_device *opened;
};

static exo_status
init(void *self, exo_config *config, exo_err *err)
{
    struct holder *h = self;
    const char *name = NULL;
    exo_status st = exo_config_string(config, "device", "cpu", &name, err);
    if (st == EXO_OK)
        st = exo_device_check(name, err);
    if (st != EXO_OK)
        return st;
    strncpy(h->device, name, sizeof h->device - 1);
    st = exo_config_u64(config, "items", 10, 1, 1000000, &h->items, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "count", 100000, 1, 10000000, &h->count, err);
    return st == EXO_OK ? exo_config_bool(config, "elsewhere", false, &h->elsewhere, err) : st;
}

static exo_status
open_device(struct holder *h, exo_graph_actor *actor, exo_err *err)
{
    if (h->elsewhere)
        setenv("EXOGYM_HOST_ID", "elsewhere", 1);
    return exo_device_open_place(&h->opened, h->device, exo_graph_device_place(actor), err);
}

static void
release(void *self)
{
    exo_device_close(&((struct holder *)self)->opened);
}

static exo_status
source_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    struct holder *h = self;
    exo_port *out = exo_graph_output(actor, "arrays");
    float *values = malloc(h->count * sizeof *values);
    exo_status st = values ? open_device(h, actor, err) : EXO_NOMEM;
    for (uint64_t i = 0; st == EXO_OK && i < h->items; i++) {
        const exo_item_part part = {.dtype = EXO_F32, .count = h->count, .device = h->opened};
        exo_item *item = NULL;
        st = exo_item_new(&item, &part, 1, err);
        if (st != EXO_OK)
            break;
        for (uint64_t k = 0; k < h->count; k++)
            values[k] = (float)((i + k) % 1000);
        exo_array_send(exo_item_array(item, 0), values);
        st = exo_port_send(out, &item, EXO_PORT_TIMEOUT, err);
    }
    free(values);
    return st == EXO_CLOSED ? EXO_OK : st;
}

/* Makes a new item of twice the numbers, on the relay's device. */
static exo_status
pass_on(struct holder *h, exo_port *out, exo_item **item, exo_err *err)
{
    const exo_item_part part = {
        .dtype = EXO_F32, .count = (*item)->parts[0].count, .device = h->opened};
    exo_item *made = NULL;
    exo_array in;
    exo_status st = exo_item_import(&in, *item, 0, h->opened, err);
    if (st == EXO_OK)
        st = exo_item_new(&made, &part, 1, err);
    if (st == EXO_OK)
        exo_vec_add(exo_item_array(made, 0), in, in);
    exo_array_release(&in);
    exo_item_drop_after(item, h->opened);
    return st == EXO_OK ? exo_port_send(out, &made, EXO_PORT_TIMEOUT, err) : st;
}

static exo_status
relay_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    struct holder *h = self;
    exo_port *in = exo_graph_input(actor, "arrays"), *out = exo_graph_output(actor, "doubled");
    exo_item *item = NULL;
    exo_status st = open_device(h, actor, err);
    exo_port_set_device(in, h->opened);
    while (st == EXO_OK && (st = exo_port_receive(in, EXO_PORT_TIMEOUT, &item, err)) == EXO_OK)
        st = pass_on(h, out, &item, err);
    return st == EXO_CLOSED ? EXO_OK : st;
}

static exo_status
sink_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    static const exo_meter_class classes[] = {
        {.name = "count", .unit = "items", .help = "items that came"},
        {.name = "sum", .unit = "1", .help = "sum of their numbers", .kind = EXO_GAUGE}};
    struct holder *h = self;
    exo_port *in = exo_graph_input(actor, "doubled");
    exo_meter *meters[2];
    exo_item *item = NULL;
    double all = 0;
    exo_status st = exo_meter_declare_all(meters, exo_graph_meters(actor), classes, 2, err);
    if (st == EXO_OK)
        st = open_device(h, actor, err);
    exo_port_set_device(in, h->opened);
    while (st == EXO_OK && (st = exo_port_receive(in, EXO_PORT_TIMEOUT, &item, err)) == EXO_OK) {
        exo_array array;
        double sum = 0;
        st = exo_item_import(&array, item, 0, h->opened, err);
        if (st == EXO_OK)
            st = exo_vec_sum(array, &sum, err); /* waits for the device */
        exo_array_release(&array);
        exo_item_drop(&item);
        exo_meter_add(meters[0], 1);
        exo_meter_set(meters[1], all += sum);
    }
    return st == EXO_CLOSED ? EXO_OK : st;
}

static const exo_graph_port source_ports[] = {{.name = "arrays", .type = "arrays"}};
static const exo_graph_port relay_ports[] = {
    {.name = "arrays", .type = "arrays", .direction = EXO_PORT_INPUT, .blocking = true},
    {.name = "doubled", .type = "arrays"}};
static const exo_graph_port sink_ports[] = {
    {.name = "doubled", .type = "arrays", .direction = EXO_PORT_INPUT, .blocking = true}};
#define HOLDER .state_size = sizeof(struct holder), .init = init, .release = release
static const exo_graph_class source = {.name = "array_source",
                                       .help = "sends arrays of a device",
                                       .ports = source_ports,
                                       .num_ports = 1,
                                       .run = source_run,
                                       .order = "*send arrays",
                                       HOLDER};
static const exo_graph_class relay = {.name = "array_relay",
                                      .help = "passes on twice what it gets",
                                      .ports = relay_ports,
                                      .num_ports = 2,
                                      .run = relay_run,
                                      .order = "*(receive arrays; send doubled)",
                                      HOLDER};
static const exo_graph_class sink = {.name = "array_sink",
                                     .help = "sums arrays on a device",
                                     .ports = sink_ports,
                                     .num_ports = 1,
                                     .run = sink_run,
                                     .order = "*receive doubled",
                                     HOLDER};

EXO_PLUGIN
{
    exo_status st = exo_graph_class_register(&source, err);
    if (st == EXO_OK)
        st = exo_graph_class_register(&relay, err);
    return st == EXO_OK ? exo_graph_class_register(&sink, err) : st;
}
