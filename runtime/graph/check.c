/* The checks of a whole graph, beyond those of single values. Each error has its place and a
 * remedy. No state. Read next: check_cycles.c, prove.h. */
#include "graph/spec_impl.h"

#include <inttypes.h>
#include <string.h>

#include <exogym/memory.h>

#include "graph/builtin.h"
#include "graph/engine.h"
#include "graph/order.h"
#include "graph/prove.h"

enum {
    ORDER_TEXT = 2048,
    SHAPE_TEXT = 256,
    DEVICE_TEXT = 64,
    EFFORT = 4000 /* states of the graph that the check tries at most */
};

/* --- Classes ---------------------------------------------------------------------------------- */

/* Reads the order of port use that the class declares for these options. */
static exo_status
read_order(const exo_graph_spec *spec, exo_actor_spec *actor, const void *self, exo_err *err)
{
    char text[ORDER_TEXT] = "";
    const exo_graph_class *class = actor->class;
    if (class->write_order)
        class->write_order(self, text, sizeof text);
    const char *order = class->write_order ? text : class->order;
    if (!order || !*order)
        return EXO_OK;
    exo_order *read = exo_graph_alloc(spec, 1, sizeof *read, err);
    exo_status st = read ? exo_order_read(read, order, class, err) : EXO_NOMEM;
    actor->order = st == EXO_OK ? read : NULL;
    return st;
}

/* Reads the shape of items that the class declares for these options. */
static exo_status
read_shape(const exo_graph_spec *spec, exo_actor_spec *actor, const void *self, exo_err *err)
{
    if (!actor->class->write_shape)
        return EXO_OK;
    char *text = exo_graph_alloc(spec, SHAPE_TEXT, 1, err);
    if (!text)
        return EXO_NOMEM;
    actor->class->write_shape(self, text, SHAPE_TEXT);
    actor->shape = *text ? text : NULL;
    return EXO_OK;
}

/* Reads the device of the arrays of its collectives, which the class declares for these options. */
static exo_status
read_device(const exo_graph_spec *spec, exo_actor_spec *actor, const void *self, exo_err *err)
{
    if (!actor->class->write_device)
        return EXO_OK;
    char *text = exo_graph_alloc(spec, DEVICE_TEXT, 1, err);
    if (!text)
        return EXO_NOMEM;
    actor->class->write_device(self, text, DEVICE_TEXT);
    actor->device = *text && strcmp(text, "cpu") != 0 ? text : NULL;
    return EXO_OK;
}

/* Calls the class's init without an actor, so that it checks its options. */
static exo_status
check_options(const exo_graph_spec *spec, exo_actor_spec *actor, exo_err *err)
{
    const exo_graph_class *class = actor->class;
    exo_err reason = {0};
    void *self = exo_calloc(1, class->state_size);
    if (!self)
        return exo_fail(err, EXO_NOMEM, "no memory for the class '%s'", class->name);
    exo_status st = class->init ? class->init(self, actor->config, &reason) : EXO_OK;
    if (st == EXO_OK)
        st = exo_config_finish(actor->config, &reason);
    if (st == EXO_OK)
        st = read_order(spec, actor, self, &reason);
    if (st == EXO_OK)
        st = read_shape(spec, actor, self, &reason);
    if (st == EXO_OK)
        st = read_device(spec, actor, self, &reason);
    if (class->release)
        class->release(self);
    exo_free(self);
    if (st == EXO_OK)
        return EXO_OK;
    reason.code = st;
    if (st != EXO_NOMEM)
        exo_config_add_place(actor->config, &reason);
    return exo_fail(err, st, "%s", reason.text[0] ? reason.text : exo_status_text(st));
}

static exo_status
check_required_ports(const exo_graph_spec *spec, uint32_t index, exo_err *err)
{
    static const char *const kinds[] = {"output", "input", "collective"};
    const exo_actor_spec *actor = &spec->actors[index];
    for (size_t p = 0; p < actor->class->num_ports; p++) {
        const exo_graph_port *port = &actor->class->ports[p];
        bool found = !port->required;
        for (size_t e = 0; e < spec->num_edges && !found; e++)
            found = (spec->edges[e].from == index && spec->edges[e].output == port) ||
                    (spec->edges[e].to == index && spec->edges[e].input == port);
        if (!found)
            return exo_config_fail(
                actor->node, err,
                "actor '%s': the %s '%s' of class '%s' needs an edge: {from: %s, to: %s, carries: "
                "%s}",
                actor->name, kinds[port->direction], port->name, actor->class->name,
                port->direction == EXO_PORT_INPUT ? "..." : actor->name,
                port->direction == EXO_PORT_OUTPUT ? "..." : actor->name, port->name);
    }
    return EXO_OK;
}

/* --- Edges ------------------------------------------------------------------------------------ */

static exo_status
check_duplicates(const exo_graph_spec *spec, const exo_edge_spec *edge, exo_err *err)
{
    char where[256];
    for (const exo_edge_spec *other = spec->edges; other < edge; other++) {
        bool same = other->from == edge->from && other->to == edge->to &&
                    strcmp(other->carries, edge->carries) == 0;
        if (!same && strcmp(other->name, edge->name) != 0)
            continue;
        exo_config_where(other->node, where, sizeof where);
        if (same)
            return exo_config_fail(
                edge->node, err,
                "there is already an edge from '%s' to '%s' that carries '%s', in %s",
                spec->actors[edge->from].name, spec->actors[edge->to].name, edge->carries, where);
        return exo_config_fail(edge->node, err, "there is already an edge called '%s', in %s",
                               edge->name, where);
    }
    return EXO_OK;
}

/* The node under `key`, or else the edge's: the position of an error. */
static exo_config *
part_of(const exo_edge_spec *edge, const char *key)
{
    exo_config *node = exo_config_get(edge->node, key);
    return node ? node : edge->node;
}

static exo_status
check_shapes(const exo_graph_spec *spec, const exo_edge_spec *edge, exo_err *err)
{
    const exo_actor_spec *from = &spec->actors[edge->from], *to = &spec->actors[edge->to];
    if (!from->shape || !to->shape || strcmp(from->shape, to->shape) == 0)
        return EXO_OK;
    return exo_config_fail(
        part_of(edge, "carries"), err,
        "the items of '%s' are of %s where '%s' sends them, and of %s where '%s' "
        "takes them",
        edge->carries, from->shape, from->name, to->shape, to->name);
}

static exo_status
check_route(const exo_graph_spec *spec, const exo_edge_spec *edge, exo_err *err)
{
    const exo_actor_spec *from = &spec->actors[edge->from], *to = &spec->actors[edge->to];
    const char *route = exo_route_names[edge->route];
    exo_config *at = part_of(edge, "route");
    bool collective = edge->output->direction == EXO_PORT_COLLECTIVE;
    if (edge->route == EXO_ROUTE_ALL_REDUCE && edge->from != edge->to)
        return exo_config_fail(
            at, err,
            "route all_reduce is among the actors of one name: from and to must be the same");
    if (edge->route == EXO_ROUTE_ALL_REDUCE && !collective)
        return exo_config_fail(
            at, err, "route all_reduce needs a collective; '%s' of class '%s' is an output",
            edge->carries, from->class->name);
    if (edge->route != EXO_ROUTE_ALL_REDUCE && collective)
        return exo_config_fail(
            at, err, "'%s' of class '%s' is a collective: its route is all_reduce, not %s",
            edge->carries, from->class->name, route);
    if (edge->idle_senders && edge->route != EXO_ROUTE_MODULO)
        return exo_config_fail(part_of(edge, "idle_senders"), err,
                               "idle_senders is for the route modulo, not for %s", route);
    if (edge->route == EXO_ROUTE_ALL_REDUCE)
        return EXO_OK;
    if (edge->route == EXO_ROUTE_GOSSIP && to->count < 2)
        return exo_config_fail(
            at, err, "route gossip needs at least 2 of '%s' to choose from; there is 1", to->name);
    if (edge->from != edge->to) {
        if (edge->route == EXO_ROUTE_ONE && to->count != 1 && to->count != from->count)
            return exo_config_fail(
                at, err,
                "route one needs one target, or as many as there are senders: there are %" PRIu32
                " of '%s' and %" PRIu32 " of '%s'; round_robin and modulo fit any",
                from->count, from->name, to->count, to->name);
        return EXO_OK;
    }
    if (edge->route == EXO_ROUTE_ONE || edge->route == EXO_ROUTE_HASH ||
        edge->route == EXO_ROUTE_MODULO || edge->route == EXO_ROUTE_LISTED)
        return exo_config_fail(at, err,
                               "route %s would lead from an actor to itself; among actors of one "
                               "name use round_robin, broadcast, least_loaded or gossip",
                               route);
    if (to->count < 2)
        return exo_config_fail(
            at, err, "'%s' is one actor, which cannot send to itself: give it a count", to->name);
    return EXO_OK;
}

static exo_status
check_buffer(const exo_edge_spec *edge, exo_err *err)
{
    exo_config *buffer = part_of(edge, "buffer");
    if (edge->on_full == EXO_FULL_LATEST && edge->capacity != 1)
        return exo_config_fail(exo_config_get(buffer, "capacity"), err,
                               "on_full: latest keeps one item: capacity must be 1, got %" PRIu32,
                               edge->capacity);
    if (edge->every > 1 && edge->on_full == EXO_FULL_FAIL)
        return exo_config_fail(buffer, err,
                               "on_full: fail is for who must not lose an item, but every: %" PRIu64
                               " leaves items out; use block or latest",
                               edge->every);
    return EXO_OK;
}

/* --- Resources -------------------------------------------------------------------------------- */

static const exo_resource *
find_resource(const exo_resource *resources, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(resources[i].name, name) == 0)
            return &resources[i];
    return NULL;
}

/* Compares the needs of all actors on a host for one resource with the host's amount. `first`: the
 * first actor that needs it. needs (num_hosts) is zero before and after. */
static exo_status
check_resource(const exo_graph_spec *spec, uint32_t first, const char *name, double *needs,
               exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t a = first; a < spec->num_actors; a++) {
        const exo_actor_spec *actor = &spec->actors[a];
        const exo_resource *asked = find_resource(actor->resources, actor->num_resources, name);
        for (uint32_t i = 0; asked && st == EXO_OK && i < actor->count; i++) {
            const exo_emulated_host *host = &spec->hosts[actor->hosts[i]];
            const exo_resource *own = find_resource(host->resources, host->num_resources, name);
            double *need = &needs[actor->hosts[i]], has = own ? own->amount : 0;
            *need += asked->amount;
            if (host->resources && *need > has)
                st = exo_config_fail(exo_config_get(actor->node, "resources"), err,
                                     "host '%s' has %.15g of '%s', and with '%s_%" PRIu32
                                     "' its actors need %.15g: there "
                                     "must be more hosts, or fewer actors",
                                     host->spec.name, has, name, actor->name, i, *need);
        }
    }
    for (uint32_t a = first; a < spec->num_actors; a++) {
        const exo_actor_spec *actor = &spec->actors[a];
        bool asked = find_resource(actor->resources, actor->num_resources, name);
        for (uint32_t i = 0; asked && i < actor->count; i++)
            needs[actor->hosts[i]] = 0;
    }
    return st;
}

/* True: an actor before `index` needs the resource, so it was checked. */
static bool
was_checked(const exo_graph_spec *spec, uint32_t index, const char *name)
{
    for (uint32_t a = 0; a < index; a++)
        if (find_resource(spec->actors[a].resources, spec->actors[a].num_resources, name))
            return true;
    return false;
}

static exo_status
check_resources(const exo_graph_spec *spec, exo_err *err)
{
    exo_status st = EXO_OK;
    if (!spec->has_hosts)
        return EXO_OK;
    double *needs = exo_calloc(spec->num_hosts, sizeof *needs);
    if (!needs)
        return exo_fail(err, EXO_NOMEM, "%s: out of memory", spec->source);
    for (uint32_t a = 0; st == EXO_OK && a < spec->num_actors; a++) {
        const exo_actor_spec *actor = &spec->actors[a];
        for (size_t r = 0; st == EXO_OK && r < actor->num_resources; r++)
            if (!was_checked(spec, a, actor->resources[r].name))
                st = check_resource(spec, a, actor->resources[r].name, needs, err);
    }
    exo_free(needs);
    return st;
}

static exo_status
check_rules(const exo_graph_spec *spec, exo_err *err)
{
    const exo_graph_rule *rule = NULL;
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && (rule = exo_registry_at(&exo_graph_rule_registry, i)); i++)
        st = rule->check(spec, err);
    return st;
}

/* Refuses a graph that stalls in every order of steps. For a graph that is not proven sound,
 * `exogym graph check` prints a warning. */
static exo_status
check_stalls(exo_graph_spec *spec, exo_err *err)
{
    exo_proof proof;
    exo_graph_mark_feedback(spec);
    exo_status st = exo_graph_prove(spec, EFFORT, &proof, err);
    if (st != EXO_OK || proof.verdict != EXO_STALLS)
        return st;
    return exo_config_fail(proof.at, err, "this graph stalls: %.440s", proof.text);
}

exo_status
exo_graph_check(exo_graph_spec *spec, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < spec->num_actors; i++)
        st = check_options(spec, &spec->actors[i], err);
    for (size_t i = 0; st == EXO_OK && i < spec->num_edges; i++) {
        st = check_duplicates(spec, &spec->edges[i], err);
        if (st == EXO_OK)
            st = check_route(spec, &spec->edges[i], err);
        if (st == EXO_OK)
            st = check_buffer(&spec->edges[i], err);
        if (st == EXO_OK)
            st = check_shapes(spec, &spec->edges[i], err);
        if (st == EXO_OK)
            st = exo_graph_check_engine(spec, &spec->edges[i], err);
    }
    for (uint32_t i = 0; st == EXO_OK && i < spec->num_actors; i++)
        st = check_required_ports(spec, i, err);
    if (st == EXO_OK)
        st = check_resources(spec, err);
    if (st == EXO_OK)
        st = check_rules(spec, err);
    if (st == EXO_OK)
        st = exo_graph_check_cycles(spec, err);
    return st == EXO_OK ? check_stalls(spec, err) : st;
}
