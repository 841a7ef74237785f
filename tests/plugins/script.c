/* A plugin with the graph class `played`, whose actors play the script in their config. It is
 * tests/support/script.h for workers. Ports: outputs and inputs p0 .. p15, collectives g0 and g1.
 * Config: {script: "2 send p0; *(receive p1; reduce g0); poll p2"}. Several scripts, separated by
 * '/', are for the actors of the name in turn. An item is one int32, with key 0. An actor is in the
 * phase `work` before each step. The class declares no order; the class `declared` is the same, and
 * declares its script as its order.
 *
 * Each actor owns its state. Read next: tests/support/script_ports.h. */
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/graph.h>
#include <exogym/plugin.h>

#include "support/script_ports.h"

struct played {
    const char *text;
};

struct player {
    exo_graph_actor *actor;
    const char *at;
    exo_err *err;
};

static exo_status
init(void *self, exo_config *config, exo_err *err)
{
    return exo_config_string(config, "script", "", &((struct played *)self)->text, err);
}

static bool
take_word(struct player *p, const char *word)
{
    p->at += strspn(p->at, " \n");
    if (strncmp(p->at, word, strlen(word)) != 0)
        return false;
    p->at += strlen(word);
    return true;
}

static exo_status
act(struct player *p, char action, const char *port)
{
    exo_item *item = NULL;
    float values[4] = {1};
    exo_status st = EXO_OK;
    exo_graph_phase(p->actor, "work");
    exo_graph_phase(p->actor, NULL);
    if (action == 'g')
        return exo_all_reduce(exo_graph_group(p->actor, port), exo_host_array(EXO_F32, values, 4),
                              EXO_SUM, p->err);
    if (action == 's') {
        st = exo_item_new(&item, &(exo_item_part){.dtype = EXO_I32, .count = 1}, 1, p->err);
        return st == EXO_OK ? exo_port_send(exo_graph_output(p->actor, port), &item,
                                            EXO_PORT_TIMEOUT, p->err)
                            : st;
    }
    exo_port *in = exo_graph_input(p->actor, port);
    if (action == 'r') {
        st = exo_port_receive(in, EXO_PORT_TIMEOUT, &item, p->err);
        exo_item_drop(&item);
        return st;
    }
    while (exo_port_receive(in, 0, &item, NULL) == EXO_OK)
        exo_item_drop(&item);
    return EXO_OK;
}

static exo_status play(struct player *p, bool dry);

/* Plays one step or one group; if `dry` is set, only skips it. */
static exo_status
play_once(struct player *p, bool dry)
{
    char port[8] = "";
    exo_status st = EXO_OK;
    if (take_word(p, "(")) {
        st = play(p, dry);
        return st == EXO_OK && !take_word(p, ")")
                   ? exo_fail(p->err, EXO_INVAL, "script: expected ')'")
                   : st;
    }
    char action = take_word(p, "send ")      ? 's'
                  : take_word(p, "receive ") ? 'r'
                  : take_word(p, "reduce ")  ? 'g'
                  : take_word(p, "poll ")    ? 'p'
                                             : 0;
    size_t length = strcspn(p->at, "; )/");
    if (!action || length >= sizeof port)
        return exo_fail(p->err, EXO_INVAL, "script: expected a step at '%.20s'", p->at);
    memcpy(port, p->at, length);
    p->at += length;
    return dry ? EXO_OK : act(p, action, port);
}

static exo_status
play(struct player *p, bool dry)
{
    exo_status st = EXO_OK;
    do {
        char *end = NULL;
        bool endless = take_word(p, "*");
        unsigned long count = endless ? 1 : strtoul(p->at, &end, 10);
        count = !endless && end == p->at ? 1 : count;
        const char *begin = endless || end == p->at ? p->at : end;
        for (unsigned long i = 0;
             st == EXO_OK && (i < count || i == 0) && !exo_graph_cancelled(p->actor);
             i += !endless || dry) {
            p->at = begin;
            st = play_once(p, dry || count == 0);
        }
    } while (st == EXO_OK && !exo_graph_cancelled(p->actor) && take_word(p, ";"));
    return st;
}

static exo_status
run(void *self, exo_graph_actor *actor, exo_err *err)
{
    const char *text = ((const struct played *)self)->text;
    for (uint32_t i = exo_graph_index(actor); i > 0 && strchr(text, '/'); i--)
        text = strchr(text, '/') + 1;
    struct player p = {.actor = actor, .at = text, .err = err};
    exo_status st = play(&p, false);
    return st == EXO_CLOSED ? EXO_OK : st;
}

static void
write_order(const void *self, char *out, size_t size)
{
    const char *text = ((const struct played *)self)->text;
    size_t length = strcspn(text, "/");
    length = length < size ? length : size - 1;
    memcpy(out, text, length);
    out[length] = 0;
}

#define PLAYER                                                                                     \
    .ports = script_ports, .num_ports = SCRIPT_NUM_PORTS, .phases = script_phases,                 \
    .state_size = sizeof(struct played), .init = init, .run = run

static const exo_graph_class played = {
    .name = "played", .help = "plays the script in its config", PLAYER};
static const exo_graph_class declared = {
    .name = "declared", .help = "the same, and declares it", .write_order = write_order, PLAYER};

EXO_PLUGIN
{
    exo_status st = exo_graph_class_register(&played, err);
    return st == EXO_OK ? exo_graph_class_register(&declared, err) : st;
}
