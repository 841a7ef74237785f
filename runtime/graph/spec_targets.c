/* The targets of an edge: the key `targets` of the route `listed`, and whom each sender reaches by
 * each route. No state. Read next: check.c. */
#include "graph/spec_impl.h"

#include <string.h>

enum {
    MAX_LISTED = 1 << 20 /* targets of all senders of an edge together */
};

const char *const exo_route_names[] = {"one",    "round_robin", "broadcast", "least_loaded", "hash",
                                       "modulo", "all_reduce",  "gossip",    "listed",       NULL};

/* The index that a name such as "maker_1" has among the actors of its name; count: it is none of
 * them. */
static uint32_t
index_of(const exo_actor_spec *actor, const char *name)
{
    size_t length = strlen(actor->name);
    uint64_t index = 0;
    if (!name || strncmp(name, actor->name, length) != 0 || name[length] != '_')
        return actor->count;
    const char *digits = name + length + 1;
    if (!*digits || (digits[0] == '0' && digits[1]))
        return actor->count;
    for (; *digits >= '0' && *digits <= '9' && index < actor->count; digits++)
        index = 10 * index + (uint64_t)(*digits - '0');
    return *digits || index > actor->count ? actor->count : (uint32_t)index;
}

static exo_status
fail_actor(const exo_config *node, const exo_edge_spec *edge, const exo_actor_spec *actor,
           const char *name, exo_err *err)
{
    return exo_config_fail(
        node, err, "edge '%s': targets: '%.60s' is none of '%s', which are %s_0 to %s_%u",
        edge->name, name ? name : "", actor->name, actor->name, actor->name, actor->count - 1);
}

/* Marks the targets in a list of names. wanted: (count of `to`). */
static exo_status
mark_targets(const exo_actor_spec *to, const exo_edge_spec *edge, exo_config *list, bool *wanted,
             exo_err *err)
{
    if (!exo_config_is_list(list))
        return exo_config_fail(list, err,
                               "edge '%s': targets: expected a list of names such as %s_0",
                               edge->name, to->name);
    memset(wanted, 0, to->count * sizeof *wanted);
    for (size_t i = 0; i < exo_config_length(list); i++) {
        exo_config *item = exo_config_item(list, i);
        uint32_t index = index_of(to, exo_config_scalar(item));
        if (index >= to->count)
            return fail_actor(item, edge, to, exo_config_scalar(item), err);
        if (wanted[index])
            return exo_config_fail(item, err, "edge '%s': targets: %s is there twice", edge->name,
                                   exo_config_scalar(item));
        wanted[index] = true;
    }
    return EXO_OK;
}

/* Adds the marked targets as a sender's list, for which there is room. */
static void
add_targets(exo_edge_spec *edge, uint32_t sender, const bool *wanted, uint32_t receivers)
{
    uint32_t used = edge->begins[sender];
    for (uint32_t r = 0; r < receivers; r++)
        if (wanted[r])
            edge->listed[used++] = r;
    edge->begins[sender + 1] = used;
}

/* Finds the lists (count of `from`) of a mapping from senders to lists; NULL: a sender has none. */
static exo_status
find_lists(const exo_actor_spec *from, const exo_edge_spec *edge, exo_config *map,
           exo_config **lists, exo_err *err)
{
    exo_config *value = NULL;
    for (size_t i = 0; i < exo_config_length(map); i++) {
        const char *name = exo_config_key(map, i, &value);
        uint32_t index = index_of(from, name);
        if (index >= from->count)
            return fail_actor(value, edge, from, name, err);
        lists[index] = value;
    }
    return EXO_OK;
}

/* Reads the lists of all senders. lists (senders), wanted (receivers): zeroed. */
static exo_status
read_lists(const exo_graph_spec *spec, exo_edge_spec *edge, exo_config *node, exo_config **lists,
           bool *wanted, exo_err *err)
{
    const exo_actor_spec *from = &spec->actors[edge->from], *to = &spec->actors[edge->to];
    exo_status st = exo_config_is_map(node) ? find_lists(from, edge, node, lists, err) : EXO_OK;
    for (uint32_t s = 0; st == EXO_OK && s < from->count; s++) {
        exo_config *list = exo_config_is_map(node) ? lists[s] : node;
        if (list)
            st = mark_targets(to, edge, list, wanted, err);
        else
            memset(wanted, 0, to->count * sizeof *wanted);
        if (st == EXO_OK)
            add_targets(edge, s, wanted, to->count);
    }
    return st;
}

/* How many targets the lists of a node may have in all. */
static uint64_t
room_of(const exo_actor_spec *from, exo_config *node)
{
    exo_config *value = NULL;
    uint64_t room = 0;
    if (!exo_config_is_map(node))
        return (uint64_t)exo_config_length(node) * from->count;
    for (size_t i = 0; i < exo_config_length(node); i++) {
        exo_config_key(node, i, &value);
        room += exo_config_length(value);
    }
    return room;
}

exo_status
exo_graph_read_targets(const exo_graph_spec *spec, exo_edge_spec *edge, exo_err *err)
{
    const exo_actor_spec *from = &spec->actors[edge->from], *to = &spec->actors[edge->to];
    exo_config *node = exo_config_get(edge->node, "targets");
    if (edge->route != EXO_ROUTE_LISTED)
        return node ? exo_config_fail(node, err,
                                      "edge '%s': targets is for the route listed, not for %s",
                                      edge->name, exo_route_names[edge->route])
                    : EXO_OK;
    if (!node || (!exo_config_is_map(node) && !exo_config_is_list(node)))
        return exo_config_fail(node ? node : edge->node, err,
                               "edge '%s': the route listed needs targets, such as {%s_0: [%s_0]}",
                               edge->name, from->name, to->name);
    uint64_t room = room_of(from, node);
    if (room > MAX_LISTED)
        return exo_config_fail(node, err, "edge '%s': targets: more than %d in all", edge->name,
                               MAX_LISTED);
    edge->lists = from->count;
    edge->begins = exo_graph_alloc(spec, (size_t)from->count + 1, sizeof *edge->begins, err);
    edge->listed =
        edge->begins ? exo_graph_alloc(spec, (size_t)room + 1, sizeof *edge->listed, err) : NULL;
    exo_config **lists =
        edge->listed ? exo_graph_alloc(spec, from->count, sizeof *lists, err) : NULL;
    bool *wanted = lists ? exo_graph_alloc(spec, to->count, sizeof *wanted, err) : NULL;
    return wanted ? read_lists(spec, edge, node, lists, wanted, err) : EXO_NOMEM;
}

bool
exo_edge_same_targets(const exo_edge_spec *a, const exo_edge_spec *b)
{
    return a->lists == b->lists &&
           (a->lists == 0 ||
            (memcmp(a->begins, b->begins, (a->lists + 1) * sizeof *a->begins) == 0 &&
             memcmp(a->listed, b->listed, a->begins[a->lists] * sizeof *a->listed) == 0));
}

const exo_edge_spec *
exo_graph_edge_at(const exo_graph_spec *spec, uint32_t actor, bool from, const char *carries)
{
    for (const exo_edge_spec *e = spec->edges; e < spec->edges + spec->num_edges; e++)
        if ((from ? e->from : e->to) == actor && strcmp(e->carries, carries) == 0)
            return e;
    return NULL;
}

/* The first target of a sender that has no list, and the step to the next one. */
static uint32_t
first_target(const exo_edge_spec *edge, uint32_t senders, uint32_t receivers, uint32_t i,
             uint32_t *step)
{
    *step = 1;
    if (edge->route == EXO_ROUTE_ONE && receivers > 1) {
        *step = receivers;
        return i;
    }
    if (edge->route != EXO_ROUTE_MODULO)
        return 0;
    *step = senders <= receivers || edge->idle_senders ? senders : receivers;
    return *step == senders ? i : i % receivers;
}

uint32_t
exo_edge_targets(const exo_graph_spec *spec, const exo_edge_spec *edge, uint32_t i, uint32_t *out)
{
    uint32_t senders = spec->actors[edge->from].count, receivers = spec->actors[edge->to].count;
    uint32_t step = 1, used = 0, first = first_target(edge, senders, receivers, i, &step);
    if (edge->begins) {
        used = edge->begins[i + 1] - edge->begins[i];
        if (out && used > 0)
            memcpy(out, edge->listed + edge->begins[i], used * sizeof *out);
        return used;
    }
    for (uint64_t j = first; j < receivers; j += step) {
        if (edge->from == edge->to && j == i)
            continue;
        if (out)
            out[used] = (uint32_t)j;
        used++;
    }
    return used;
}
