/* Draws a graph for graphviz: a box for the actors of each name, inside a box of their hosts if the
 * graph names hosts, and an arrow for each edge. No state. */
#include "graph/spec.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/config_units.h"
#include "base/grow_text.h"

static void
add_escaped(exo_text *text, const char *word)
{
    for (; *word; word++)
        exo_text_add(text, *word == '"' || *word == '\\' ? "\\%c" : "%c", *word);
}

/* The group of hosts that all actors of the name are on; -1: several groups. */
static int
group_of(const exo_graph_spec *spec, const exo_actor_spec *actor)
{
    for (size_t g = 0; spec->has_hosts && g < spec->num_host_groups; g++) {
        const exo_host_group *group = &spec->host_groups[g];
        uint32_t i = 0;
        while (i < actor->count && actor->hosts[i] >= group->first &&
               actor->hosts[i] - group->first < group->count)
            i++;
        if (i == actor->count)
            return (int)g;
    }
    return -1;
}

static void
add_actor(exo_text *t, const exo_actor_spec *actor)
{
    exo_text_add(t, "    \"%s\" [label=\"%s", actor->name, actor->name);
    if (actor->count > 1)
        exo_text_add(t, " x %" PRIu32, actor->count);
    exo_text_add(t, "\\n");
    add_escaped(t, actor->class->name);
    exo_text_add(t, "\"];\n");
}

/* Adds "20 Mbit/s up, 100 Mbit/s down"; nothing for hosts without limits. */
static void
add_rates(exo_text *t, const exo_host_spec *host)
{
    char up[EXO_UNIT_TEXT], down[EXO_UNIT_TEXT];
    if (isfinite(host->up) || isfinite(host->down))
        exo_text_add(t, "\\n%s up, %s down", exo_unit_rate(host->up, up),
                     exo_unit_rate(host->down, down));
}

static void
add_hosts(exo_text *t, const exo_graph_spec *spec)
{
    for (size_t g = 0; g < spec->num_host_groups; g++) {
        const exo_host_group *group = &spec->host_groups[g];
        exo_text_add(t, "  subgraph \"cluster_%zu\" {\n    label=\"%s", g, group->name);
        if (group->count > 1)
            exo_text_add(t, " x %" PRIu32, group->count);
        add_rates(t, &spec->hosts[group->first].spec);
        exo_text_add(t, "\";\n    style=rounded; color=gray;\n");
        for (size_t i = 0; i < spec->num_actors; i++)
            if (group_of(spec, &spec->actors[i]) == (int)g)
                add_actor(t, &spec->actors[i]);
        exo_text_add(t, "  }\n");
    }
}

/* Adds the edge's link, from its first sender to a target on another host if there is one. */
static void
add_link(exo_text *t, const exo_graph_spec *spec, const exo_edge_spec *edge)
{
    const exo_actor_spec *from = &spec->actors[edge->from], *to = &spec->actors[edge->to];
    uint32_t first = from->hosts[0], last = to->hosts[to->count - 1];
    char text[EXO_UNIT_TEXT];
    const exo_link_spec *link = edge->link >= 0 ? &spec->links[edge->link].spec
                                : first == last ? NULL
                                                : exo_graph_link_between(spec, first, last);
    if (!spec->emulated || !link)
        return;
    if (isfinite(link->bandwidth))
        exo_text_add(t, "\\n%s", exo_unit_rate(link->bandwidth, text));
    if (link->latency > 0)
        exo_text_add(t, "%s%s", isfinite(link->bandwidth) ? ", " : "\\n",
                     exo_unit_time(link->latency, text));
}

static void
add_edge(exo_text *t, const exo_graph_spec *spec, const exo_edge_spec *edge)
{
    exo_text_add(t, "  \"%s\" -> \"%s\" [label=\"", spec->actors[edge->from].name,
                 spec->actors[edge->to].name);
    add_escaped(t, edge->carries);
    exo_text_add(t, "\\n%s", exo_route_names[edge->route]);
    if (edge->every > 1)
        exo_text_add(t, ", every %" PRIu64, edge->every);
    if (edge->on_full != EXO_FULL_BLOCK)
        exo_text_add(t, ", %s", exo_on_full_names[edge->on_full]);
    if (strcmp(edge->codec_text, "raw") != 0) {
        exo_text_add(t, "\\n");
        add_escaped(t, edge->codec_text);
    }
    add_link(t, spec, edge);
    exo_text_add(t, edge->route == EXO_ROUTE_ALL_REDUCE ? "\", dir=both];\n" : "\"];\n");
}

exo_status
exo_graph_dot(const exo_graph_spec *spec, char **out, exo_err *err)
{
    exo_text t = {0};
    exo_text_add(&t,
                 "digraph \"%s\" {\n  rankdir=LR;\n  node [shape=box, style=rounded, "
                 "fontname=\"sans-serif\"];\n"
                 "  edge [fontname=\"sans-serif\", fontsize=10];\n",
                 spec->name);
    if (spec->has_hosts)
        add_hosts(&t, spec);
    for (size_t i = 0; i < spec->num_actors; i++)
        if (group_of(spec, &spec->actors[i]) < 0)
            add_actor(&t, &spec->actors[i]);
    for (size_t i = 0; i < spec->num_edges; i++)
        add_edge(&t, spec, &spec->edges[i]);
    exo_text_add(&t, "}\n");
    if (t.failed) {
        exo_free(t.data);
        return exo_fail(err, EXO_NOMEM, "%s: out of memory", spec->source);
    }
    *out = t.data;
    return EXO_OK;
}
