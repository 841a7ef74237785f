/* Classes that execute scripts: see script.h. */
#include "support/script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <exogym/memory.h>

#include "graph/order.h"
#include "support/script_ports.h"

struct script {
    const char *text;
    exo_time pause, lingers;
};

static exo_status
script_init(void *self, exo_config *config, exo_err *err)
{
    struct script *s = self;
    exo_status st = exo_config_string(config, "script", "", &s->text, err);
    if (st == EXO_OK)
        st = exo_config_time(config, "pause", 0, 0, EXO_SECOND, &s->pause, err);
    return st == EXO_OK
               ? exo_config_time(config, "lingers", 0, 0, 60 * EXO_SECOND, &s->lingers, err)
               : st;
}

/* Copies the script of the actor number `index`. */
static void
part_of(const char *text, uint32_t index, char *out, size_t size)
{
    for (; index > 0 && strchr(text, '/'); index--)
        text = strchr(text, '/') + 1;
    snprintf(out, size, "%.*s", (int)strcspn(text, "/"), text);
}

static void
write_order(const void *self, char *out, size_t size)
{
    part_of(((const struct script *)self)->text, 0, out, size);
}

static exo_status
do_step(const struct script *s, exo_graph_actor *actor, const exo_order_step *step, exo_err *err)
{
    const struct timespec pause = {.tv_nsec = (long)s->pause};
    const char *port = script_ports[step->port].name;
    exo_item *item = NULL;
    float values[4] = {1};
    exo_status st = EXO_OK;
    exo_graph_phase(actor, "work");
    if (s->pause)
        nanosleep(&pause, NULL);
    exo_graph_phase(actor, NULL);
    switch (step->kind) {
    case EXO_ORDER_SEND:
        st = exo_item_new(&item, &(exo_item_part){.dtype = EXO_I32, .count = 1}, 1, err);
        return st == EXO_OK
                   ? exo_port_send(exo_graph_output(actor, port), &item, EXO_PORT_TIMEOUT, err)
                   : st;
    case EXO_ORDER_RECEIVE:
        st = exo_port_receive(exo_graph_input(actor, port), EXO_PORT_TIMEOUT, &item, err);
        exo_item_drop(&item);
        return st;
    case EXO_ORDER_POLL:
        while (exo_port_receive(exo_graph_input(actor, port), 0, &item, NULL) == EXO_OK)
            exo_item_drop(&item);
        return EXO_OK;
    case EXO_ORDER_REDUCE:
        return exo_all_reduce(exo_graph_group(actor, port), exo_host_array(EXO_F32, values, 4),
                              EXO_SUM, err);
    case EXO_ORDER_LOOP:
    case EXO_ORDER_END:
        break;
    }
    return EXO_OK;
}

static exo_status
script_run(void *self, exo_graph_actor *actor, exo_err *err)
{
    const struct script *s = self;
    static const exo_graph_class shape = {
        .name = "script", .ports = script_ports, .num_ports = SCRIPT_NUM_PORTS};
    uint64_t left[EXO_ORDER_DEPTH + 1] = {0};
    char text[1024];
    exo_order *order = exo_calloc(1, sizeof *order);
    part_of(s->text, exo_graph_index(actor), text, sizeof text);
    exo_status st = order ? exo_order_read(order, text, &shape, err) : EXO_NOMEM;
    for (uint32_t at = 0; st == EXO_OK && at < order->length && !exo_graph_cancelled(actor); at++) {
        const exo_order_step *step = &order->steps[at];
        if (step->kind == EXO_ORDER_LOOP && step->count == 0)
            at = step->other;
        else if (step->kind == EXO_ORDER_LOOP)
            left[step->level] = step->count;
        else if (step->kind == EXO_ORDER_END)
            at = left[step->level] != EXO_ORDER_ENDLESS && --left[step->level] == 0 ? at
                                                                                    : step->other;
        else
            st = do_step(s, actor, step, err);
    }
    exo_free(order);
    exo_time over = exo_now(exo_clock_real()) + s->lingers;
    while (st == EXO_CANCELLED && exo_now(exo_clock_real()) < over)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return st == EXO_CLOSED ? EXO_OK : st;
}

#define SCRIPT                                                                                     \
    .ports = script_ports, .num_ports = SCRIPT_NUM_PORTS, .phases = script_phases,                 \
    .state_size = sizeof(struct script), .init = script_init, .run = script_run

static const exo_graph_class open = {.name = "script", SCRIPT};
static const exo_graph_class declared = {.name = "scripted", SCRIPT, .write_order = write_order};

void
script_register(void)
{
    if (exo_graph_class_find(open.name))
        return;
    if (exo_graph_class_register(&open, NULL) != EXO_OK ||
        exo_graph_class_register(&declared, NULL) != EXO_OK)
        abort();
}
