/* A plugin with the graph class `steps`, whose actors follow the steps in their config, for tests
 * that plant stalls in workers. Ports: outputs and inputs a, b, c, collective g. Config: {steps:
 * "sa sa rb g", times: 1}, which sends on a twice, receives on b, and reduces g. Several texts,
 * separated by '/', are for the actors of the name in turn. Items have the key 0. `device` is
 * where g is reduced; its numbers come from the host. The class declares no order. Each actor owns its
 * state. */
#include <stdio.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/graph.h>
#include <exogym/plugin.h>

struct steps {
    const char *text, *device;
    uint64_t times, size;
};

static exo_status
init(void *self, exo_config *config, exo_err *err)
{
    struct steps *s = self;
    exo_status st = exo_config_string(config, "steps", "", &s->text, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "times", 1, 1, 1000000, &s->times, err);
    if (st == EXO_OK)
        st = exo_config_string(config, "device", "", &s->device, err);
    return st == EXO_OK ? exo_config_u64(config, "size", 1, 1, 1 << 24, &s->size, err) : st;
}

static exo_status
do_step(const struct steps *s, exo_graph_actor *actor, const char *step, exo_err *err)
{
    const char port[] = {step[1], 0};
    float values[64] = {1};
    exo_item *item = NULL;
    exo_status st = EXO_OK;
    if (*step == 'g')
        return exo_all_reduce(exo_graph_group(actor, "g"), exo_host_array(EXO_F32, values, 64),
                              EXO_SUM, err);
    if (*step == 'r') {
        st = exo_port_receive(exo_graph_input(actor, port), EXO_PORT_TIMEOUT, &item, err);
        exo_item_drop(&item);
        return st;
    }
    st = exo_item_new(&item, &(exo_item_part){.dtype = EXO_F32, .count = s->size}, 1, err);
    return st == EXO_OK ? exo_port_send(exo_graph_output(actor, port), &item, EXO_PORT_TIMEOUT, err)
                        : st;
}

static exo_status
run_steps(const struct steps *s, exo_graph_actor *actor, exo_err *err)
{
    const char *text = s->text;
    exo_status st = EXO_OK;
    for (uint32_t i = exo_graph_index(actor); i > 0 && strchr(text, '/'); i--)
        text = strchr(text, '/') + 1;
    for (uint64_t t = 0; st == EXO_OK && t < s->times; t++)
        for (const char *at = text; st == EXO_OK && *at && *at != '/';
             at += strcspn(at, " /"), at += *at == ' ')
            st = do_step(s, actor, at, err);
    return st == EXO_CLOSED ? EXO_OK : st;
}

static exo_status
run(void *self, exo_graph_actor *actor, exo_err *err)
{
    const struct steps *s = self;
    exo_device *device = NULL;
    exo_status st = EXO_OK;
    if (*s->device)
        st = exo_device_open_place(&device, s->device, exo_graph_device_place(actor), err);
    if (st == EXO_OK && device)
        st = exo_graph_set_device(actor, device, err);
    if (st == EXO_OK)
        st = run_steps(s, actor, err);
    exo_device_close(&device);
    return st;
}

static void
write_device(const void *self, char *out, size_t size)
{
    snprintf(out, size, "%s", ((const struct steps *)self)->device);
}

#define BOTH(port)                                                                                 \
    {.name = port, .type = "t", .direction = EXO_PORT_OUTPUT},                                     \
    {                                                                                              \
        .name = port, .type = "t", .direction = EXO_PORT_INPUT                                     \
    }

static const exo_graph_port ports[] = {
    BOTH("a"), BOTH("b"), BOTH("c"), {.name = "g", .type = "g", .direction = EXO_PORT_COLLECTIVE}};
static const exo_graph_class steps = {.name = "steps",
                                      .help = "does what its config says",
                                      .ports = ports,
                                      .num_ports = sizeof ports / sizeof *ports,
                                      .state_size = sizeof(struct steps),
                                      .init = init,
                                      .run = run,
                                      .write_device = write_device};

EXO_PLUGIN
{
    return exo_graph_class_register(&steps, err);
}
