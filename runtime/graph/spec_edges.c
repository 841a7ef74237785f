/* Reads the edges of a graph, each with its defaults. No state. Read next: spec_targets.c, check.c. */
#include "graph/spec_impl.h"

#include <stdio.h>
#include <string.h>

#include <exogym/codec.h>

#include "base/config_edit.h"
#include "base/config_units.h"

const char *const exo_on_full_names[] = {"block",  "drop_oldest", "drop_newest",
                                         "latest", "fail",        NULL};

static const char *
actor_name(const void *spec, size_t index)
{
    const exo_graph_spec *s = spec;
    return index < s->num_actors ? s->actors[index].name : NULL;
}

static const char *
link_name(const void *spec, size_t index)
{
    const exo_graph_spec *s = spec;
    return index < s->num_links ? s->links[index].name : NULL;
}

static const char *
port_name(const void *graph_class, size_t index)
{
    const exo_graph_class *c = graph_class;
    return index < c->num_ports ? c->ports[index].name : NULL;
}

/* --- Ends ------------------------------------------------------------------------------------- */

static exo_status
read_end(const exo_graph_spec *spec, exo_config *node, const char *key, uint32_t *out, exo_err *err)
{
    const char *name = NULL;
    exo_status st = exo_config_string(node, key, NULL, &name, err);
    if (st != EXO_OK)
        return st;
    if (!name)
        return exo_config_fail(node, err, "edge: the key '%s' is missing", key);
    int found = exo_graph_find_actor(spec, name);
    if (found < 0)
        return exo_graph_fail_name(exo_config_get(node, key), "actor", name, actor_name, spec, err);
    *out = (uint32_t)found;
    return EXO_OK;
}

static const exo_graph_port *
find_port(const exo_graph_class *class, const char *name, exo_port_direction direction)
{
    for (size_t i = 0; i < class->num_ports; i++)
        if (class->ports[i].direction == direction && strcmp(class->ports[i].name, name) == 0)
            return &class->ports[i];
    return NULL;
}

/* Fails because the class has no such port; the text names the port's actual kind, or the nearest
 * name. */
static exo_status
fail_port(const exo_actor_spec *actor, const exo_edge_spec *edge, exo_port_direction wanted,
          exo_err *err)
{
    static const char *const kinds[] = {"an output", "an input", "a collective"};
    exo_config *at = exo_config_get(edge->node, "carries");
    for (int d = EXO_PORT_OUTPUT; d <= EXO_PORT_COLLECTIVE; d++) {
        if (!find_port(actor->class, edge->carries, (exo_port_direction)d))
            continue;
        if (d == EXO_PORT_COLLECTIVE)
            return exo_config_fail(at, err,
                                   "'%s' of class '%s' is a collective: its edge has from and to "
                                   "the same, and the route all_reduce",
                                   edge->carries, actor->class->name);
        return exo_config_fail(
            at, err, "'%s' of class '%s' is %s, but the edge needs %s of '%s' there", edge->carries,
            actor->class->name, kinds[d], kinds[wanted], actor->name);
    }
    char what[128];
    snprintf(what, sizeof what, "port of class '%.40s' (of actor '%.40s') called",
             actor->class->name, actor->name);
    return exo_graph_fail_name(at, what, edge->carries, port_name, actor->class, err);
}

static exo_status
find_ports(const exo_graph_spec *spec, exo_edge_spec *edge, exo_err *err)
{
    const exo_actor_spec *from = &spec->actors[edge->from], *to = &spec->actors[edge->to];
    const exo_graph_port *collective = find_port(from->class, edge->carries, EXO_PORT_COLLECTIVE);
    edge->output = find_port(from->class, edge->carries, EXO_PORT_OUTPUT);
    edge->input = find_port(to->class, edge->carries, EXO_PORT_INPUT);
    if (edge->from == edge->to && collective && (!edge->output || !edge->input))
        edge->output = edge->input = collective;
    if (!edge->output)
        return fail_port(from, edge, EXO_PORT_OUTPUT, err);
    if (!edge->input)
        return fail_port(to, edge, EXO_PORT_INPUT, err);
    if (strcmp(edge->output->type, edge->input->type) != 0)
        return exo_config_fail(exo_config_get(edge->node, "carries"), err,
                               "'%s' is '%s' where '%s' sends it and '%s' where '%s' takes it",
                               edge->carries, edge->output->type, from->name, edge->input->type,
                               to->name);
    return EXO_OK;
}

static bool
is_collective(const exo_edge_spec *edge)
{
    return edge->output->direction == EXO_PORT_COLLECTIVE;
}

/* --- Other keys ------------------------------------------------------------------------------- */

static exo_status
read_route(const exo_graph_spec *spec, exo_edge_spec *edge, exo_err *err)
{
    size_t route = is_collective(edge)                 ? EXO_ROUTE_ALL_REDUCE
                   : spec->actors[edge->to].count == 1 ? EXO_ROUTE_ONE
                                                       : EXO_ROUTE_ROUND_ROBIN;
    exo_status st = exo_config_choice(edge->node, "route", route, exo_route_names, &route, err);
    edge->route = (exo_route)route;
    if (st == EXO_OK)
        st = exo_config_bool(edge->node, "idle_senders", false, &edge->idle_senders, err);
    return st == EXO_OK ? exo_graph_read_targets(spec, edge, err) : st;
}

static exo_status
read_buffer(exo_edge_spec *edge, exo_err *err)
{
    exo_config *buffer = NULL;
    size_t on_full = EXO_FULL_BLOCK;
    uint64_t capacity = 0;
    exo_status st = exo_config_map(edge->node, "buffer", &buffer, err);
    if (st == EXO_OK)
        st = exo_config_choice(buffer, "on_full", on_full, exo_on_full_names, &on_full, err);
    edge->on_full = (exo_on_full)on_full;
    uint64_t fallback = edge->on_full == EXO_FULL_LATEST ? 1 : EXO_GRAPH_DEFAULT_CAPACITY;
    if (st == EXO_OK)
        st = exo_config_u64(buffer, "capacity", fallback, 1, UINT32_MAX, &capacity, err);
    if (st == EXO_OK)
        st = exo_config_finish(buffer, err);
    edge->capacity = (uint32_t)capacity;
    return st;
}

static exo_status
read_codec(const exo_graph_spec *spec, exo_edge_spec *edge, exo_err *err)
{
    exo_codec *codec = NULL;
    edge->codec = exo_config_get(edge->node, "codec");
    exo_status st = exo_codec_new(&codec, edge->codec, err);
    if (st != EXO_OK)
        return edge->codec && st != EXO_NOMEM && err ? exo_config_add_place(edge->codec, err) : st;
    const char *text = exo_codec_text(codec);
    size_t size = 0;
    edge->codec_text = exo_config_copy_text(spec->doc, text, strlen(text));
    if (!edge->codec_text)
        st = exo_fail(err, EXO_NOMEM, "%s: out of memory", spec->source);
    else if (edge->route == EXO_ROUTE_ALL_REDUCE &&
             (!exo_codec_is_stateless(codec) || !exo_codec_size(codec, 1, &size)))
        st = exo_config_fail(
            edge->codec, err,
            "codec: an all_reduce needs one that remembers nothing and has a fixed size, not %.80s",
            edge->codec_text);
    exo_codec_free(&codec);
    return st;
}

static exo_status
read_link(const exo_graph_spec *spec, exo_edge_spec *edge, exo_err *err)
{
    const char *name = NULL;
    exo_status st = exo_config_string(edge->node, "link", NULL, &name, err);
    edge->link = -1;
    if (st != EXO_OK || !name)
        return st;
    for (size_t i = 0; i < spec->num_links; i++)
        if (strcmp(spec->links[i].name, name) == 0)
            edge->link = (int)i;
    exo_config *at = exo_config_get(edge->node, "link");
    if (edge->link < 0)
        return exo_graph_fail_name(at, "link", name, link_name, spec, err);
    if (spec->links[edge->link].from >= 0)
        return exo_config_fail(
            at, err, "link '%s' is between hosts: what passes there takes it by itself", name);
    return EXO_OK;
}

/* Reads the name, or makes it, such as "maker>trainer:experience". Allowed are letters, digits and
 * _.->: */
static exo_status
read_name(const exo_graph_spec *spec, exo_edge_spec *edge, exo_err *err)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.->:";
    exo_status st = exo_config_string(edge->node, "name", NULL, &edge->name, err);
    if (st != EXO_OK)
        return st;
    if (edge->name &&
        (!*edge->name || strlen(edge->name) > 400 || edge->name[strspn(edge->name, allowed)]))
        return exo_config_fail(exo_config_get(edge->node, "name"), err,
                               "name '%.60s': expected letters, digits, '_', '.', '-', '>' and ':'",
                               edge->name);
    if (edge->name)
        return EXO_OK;
    const char *from = spec->actors[edge->from].name, *to = spec->actors[edge->to].name;
    size_t size = strlen(from) + strlen(to) + strlen(edge->carries) + sizeof ">:";
    char *name = exo_graph_alloc(spec, size, 1, err);
    if (!name)
        return EXO_NOMEM;
    snprintf(name, size, "%s>%s:%s", from, to, edge->carries);
    edge->name = name;
    return EXO_OK;
}

/* Refuses keys without a meaning for a collective, whose members call it together without a
 * buffer. */
static exo_status
check_collective(const exo_edge_spec *edge, exo_err *err)
{
    static const char *const keys[] = {"buffer", "every", "delay", "idle_senders"};
    for (size_t i = 0; edge->route == EXO_ROUTE_ALL_REDUCE && i < sizeof keys / sizeof *keys; i++)
        if (exo_config_has(edge->node, keys[i]))
            return exo_config_fail(
                exo_config_get(edge->node, keys[i]), err,
                "edge '%s': %s says nothing about an all_reduce, which all call together",
                edge->name, keys[i]);
    return EXO_OK;
}

/* Reads the number of actors in each group of an all_reduce. */
static exo_status
read_members(const exo_graph_spec *spec, exo_edge_spec *edge, exo_err *err)
{
    uint64_t count = spec->actors[edge->from].count, members = 0;
    if (edge->route != EXO_ROUTE_ALL_REDUCE && exo_config_has(edge->node, "members"))
        return exo_config_fail(exo_config_get(edge->node, "members"), err,
                               "edge '%s': members is of an all_reduce, where so many meet",
                               edge->name);
    exo_status st = exo_config_u64(edge->node, "members", count, 1, count, &members, err);
    edge->members = (uint32_t)members;
    return st;
}

static exo_status
read_engine(exo_edge_spec *edge, exo_err *err)
{
    static const char *const keys[] = {"engine", "equal_bits"};
    bool equal_bits = true;
    for (size_t i = 0; edge->route != EXO_ROUTE_ALL_REDUCE && i < sizeof keys / sizeof *keys; i++)
        if (exo_config_has(edge->node, keys[i]))
            return exo_config_fail(exo_config_get(edge->node, keys[i]), err,
                                   "edge '%s': %s is of an all_reduce, whose sums it is about",
                                   edge->name, keys[i]);
    exo_status st = exo_config_string(edge->node, "engine", "auto", &edge->engine, err);
    if (st == EXO_OK)
        st = exo_config_bool(edge->node, "equal_bits", true, &equal_bits, err);
    edge->any_bits = !equal_bits;
    return st;
}

static exo_status
read_edge(const exo_graph_spec *spec, exo_edge_spec *edge, exo_err *err)
{
    static const char *const keys[] = {"from",    "to",     "carries",   "route",        "buffer",
                                       "codec",   "every",  "delay",     "deadline",     "link",
                                       "name",    "item",   "interval",  "idle_senders", "members",
                                       "targets", "engine", "equal_bits"};
    exo_config *node = edge->node;
    if (!exo_config_is_map(node))
        return exo_config_fail(node, err, "edges: expected a mapping with from, to and carries");
    static const char *const buffer[] = {"capacity", "on_full", NULL};
    for (size_t i = sizeof keys / sizeof *keys; i-- > 0;)
        exo_config_get(node, keys[i]);
    exo_status st = exo_config_check_misplaced(node, buffer, "buffer.", err);
    if (st == EXO_OK)
        st = exo_config_finish(node, err);
    if (st == EXO_OK)
        st = read_end(spec, node, "from", &edge->from, err);
    if (st == EXO_OK)
        st = read_end(spec, node, "to", &edge->to, err);
    if (st == EXO_OK)
        st = exo_config_string(node, "carries", NULL, &edge->carries, err);
    if (st == EXO_OK && !edge->carries)
        st = exo_config_fail(node, err, "edge: the key 'carries' is missing");
    if (st == EXO_OK)
        st = find_ports(spec, edge, err);
    if (st == EXO_OK)
        st = read_name(spec, edge, err);
    if (st == EXO_OK)
        st = read_route(spec, edge, err);
    if (st == EXO_OK)
        st = check_collective(edge, err);
    if (st == EXO_OK)
        st = read_buffer(edge, err);
    if (st == EXO_OK)
        st = read_codec(spec, edge, err);
    if (st == EXO_OK)
        st = exo_config_u64(node, "every", 1, 1, UINT64_MAX, &edge->every, err);
    if (st == EXO_OK)
        st = exo_config_time(node, "delay", 0, 0, INT64_MAX / 4, &edge->delay, err);
    if (st == EXO_OK)
        st = exo_config_time(node, "deadline", EXO_GRAPH_DEFAULT_DEADLINE, 1, INT64_MAX,
                             &edge->deadline, err);
    if (st == EXO_OK)
        st = read_link(spec, edge, err);
    if (st == EXO_OK)
        st = exo_config_bytes_expected(node, "item", 0, &edge->item, err);
    if (st == EXO_OK)
        st = exo_config_u64(node, "interval", 1, 1, UINT64_MAX, &edge->interval, err);
    if (st == EXO_OK)
        st = read_members(spec, edge, err);
    return st == EXO_OK ? read_engine(edge, err) : st;
}

exo_status
exo_graph_read_edges(exo_graph_spec *spec, exo_err *err)
{
    exo_config *list = NULL;
    exo_status st = exo_config_list(spec->root, "edges", &list, err);
    size_t length = exo_config_length(list);
    if (st != EXO_OK || length == 0)
        return st;
    if (length > EXO_GRAPH_MAX_EDGES)
        return exo_config_fail(list, err, "edges: more than %d", EXO_GRAPH_MAX_EDGES);
    spec->edges = exo_graph_alloc(spec, length, sizeof *spec->edges, err);
    if (!spec->edges)
        return EXO_NOMEM;
    for (size_t i = 0; st == EXO_OK && i < length; i++) {
        spec->edges[i].node = exo_config_item(list, i);
        st = read_edge(spec, &spec->edges[i], err);
        spec->num_edges = i + 1;
    }
    return st;
}
