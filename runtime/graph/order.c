/* Parses the order in which a class uses its ports: see order.h. No state.
 *
 *     steps = step {";" step}
 *     step  = ["*" | number] (action | "(" steps ")" | "(" action {"|" action} ")")
 *     action = ("send" | "receive" | "reduce" | "poll") port */
#include "graph/order.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const char *at;
    const exo_graph_class *class;
    exo_order *out;
    uint32_t level;
    exo_err *err;
};

static exo_status
fail_here(const struct reader *r, const char *what)
{
    return exo_fail(r->err, EXO_INVAL, "graph class '%.60s': order: %s at '%.40s'", r->class->name,
                    what, *r->at ? r->at : "the end");
}

static void
skip_blanks(struct reader *r)
{
    while (*r->at == ' ' || *r->at == '\n')
        r->at++;
}

static bool
take_sign(struct reader *r, char sign)
{
    skip_blanks(r);
    if (*r->at != sign)
        return false;
    r->at++;
    return true;
}

static bool
take_word(struct reader *r, const char *word)
{
    size_t length = strlen(word);
    skip_blanks(r);
    if (strncmp(r->at, word, length) != 0 || r->at[length] != ' ')
        return false;
    r->at += length;
    return true;
}

static exo_status
add(struct reader *r, exo_order_step step)
{
    if (r->out->length == EXO_ORDER_STEPS)
        return fail_here(r, "more steps than there is room for");
    r->out->steps[r->out->length++] = step;
    return EXO_OK;
}

static exo_status
read_action(struct reader *r)
{
    static const struct {
        const char *word;
        exo_order_kind kind;
        exo_port_direction direction;
    } actions[] = {{"send", EXO_ORDER_SEND, EXO_PORT_OUTPUT},
                   {"receive", EXO_ORDER_RECEIVE, EXO_PORT_INPUT},
                   {"poll", EXO_ORDER_POLL, EXO_PORT_INPUT},
                   {"reduce", EXO_ORDER_REDUCE, EXO_PORT_COLLECTIVE}};
    for (size_t a = 0; a < sizeof actions / sizeof *actions; a++) {
        if (!take_word(r, actions[a].word))
            continue;
        skip_blanks(r);
        size_t length = strcspn(r->at, " \n;|()");
        for (size_t p = 0; p < r->class->num_ports; p++) {
            const exo_graph_port *port = &r->class->ports[p];
            if (port->direction == actions[a].direction && strlen(port->name) == length &&
                strncmp(port->name, r->at, length) == 0) {
                r->at += length;
                return add(r, (exo_order_step){.kind = actions[a].kind, .port = (uint32_t)p});
            }
        }
        return fail_here(r, "no such port for this");
    }
    return fail_here(r, "expected send, receive, poll or reduce and a port, or '('");
}

static exo_status read_steps(struct reader *r);

/* Reads a group in parentheses: steps, or alternative actions. */
static exo_status
read_group(struct reader *r)
{
    uint32_t first = r->out->length, choices = 1;
    exo_status st = read_steps(r);
    while (st == EXO_OK && take_sign(r, '|')) {
        if (r->out->length - first != choices++)
            return fail_here(r,
                             "what can be chosen are actions, and nothing else stands beside them");
        r->out->steps[r->out->length - 1].or_next = true;
        st = read_action(r);
    }
    return st == EXO_OK && !take_sign(r, ')') ? fail_here(r, "expected ')'") : st;
}

static exo_status
read_step(struct reader *r)
{
    uint64_t count = 1;
    bool loops = take_sign(r, '*');
    if (loops) {
        count = EXO_ORDER_ENDLESS;
    } else if (isdigit((unsigned char)*r->at)) {
        char *end = NULL;
        count = strtoull(r->at, &end, 10);
        r->at = end;
        loops = count != 1;
    }
    uint32_t begin = r->out->length;
    exo_status st = EXO_OK;
    if (loops) {
        if (r->level == EXO_ORDER_DEPTH)
            return fail_here(r, "too many loops in loops");
        st = add(r, (exo_order_step){.kind = EXO_ORDER_LOOP, .count = count, .level = r->level++});
    }
    if (st == EXO_OK)
        st = take_sign(r, '(') ? read_group(r) : read_action(r);
    if (st == EXO_OK && loops) {
        r->level--;
        r->out->steps[begin].other = r->out->length;
        st = add(r, (exo_order_step){.kind = EXO_ORDER_END, .other = begin, .level = r->level});
    }
    return st;
}

static exo_status
read_steps(struct reader *r)
{
    exo_status st = read_step(r);
    while (st == EXO_OK && take_sign(r, ';'))
        st = read_step(r);
    return st;
}

exo_status
exo_order_read(exo_order *out, const char *text, const exo_graph_class *graph_class, exo_err *err)
{
    struct reader r = {.at = text, .class = graph_class, .out = out, .err = err};
    *out = (exo_order){0};
    exo_status st = read_steps(&r);
    skip_blanks(&r);
    return st == EXO_OK && *r.at ? fail_here(&r, "expected ';'") : st;
}
