/* Warnings about hosts, links and engines of a graph: see warn.h. No state. */
#include "graph/warn.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/config_edit.h"
#include "base/nearest.h"
#include "graph/builtin.h"

void
exo_graph_warn(const exo_graph_warnings *out, const exo_config *at, const char *format, ...)
{
    char where[256], text[EXO_ERR_TEXT], line[sizeof where + sizeof text + 2];
    va_list args;
    va_start(args, format);
    exo_c_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    exo_config_where(at, where, sizeof where);
    snprintf(line, sizeof line, "%s: %s", where, text);
    out->say(out->context, line);
}

/* --- Hosts and links -------------------------------------------------------------------------- */

/* Whether a schedule multiplies no rate: without rates only an outage has an effect. */
static bool
is_idle(const exo_link_change *changes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (changes[i].factor <= 0)
            return false;
    return count > 0;
}

static void
warn_of_hosts(const exo_graph_spec *spec, const exo_graph_warnings *out)
{
    for (size_t g = 0; g < spec->num_host_groups; g++) {
        const exo_host_group *group = &spec->host_groups[g];
        const exo_host_spec *host = &spec->hosts[group->first].spec;
        if (!isfinite(host->up) && host->queue > 0)
            exo_graph_warn(out, exo_config_get(group->node, "queue"),
                           "host '%s': queue says nothing without `up`, the rate that fills it",
                           group->name);
        if (!isfinite(host->up) && !isfinite(host->down) &&
            is_idle(host->changes, host->num_changes))
            exo_graph_warn(out, exo_config_get(group->node, "schedule"),
                           "host '%s': schedule says nothing without rates, `up` or `down`, that "
                           "it multiplies",
                           group->name);
    }
}

/* Whether some of the actors are on hosts of the group. */
static bool
is_on(const exo_graph_spec *spec, uint32_t actor, int group)
{
    const exo_host_group *g = &spec->host_groups[group];
    for (uint32_t i = 0; i < spec->actors[actor].count; i++)
        if (spec->actors[actor].hosts[i] - g->first < g->count)
            return true;
    return false;
}

/* Whether messages may pass over the link; credits go against the direction of their edge. */
static bool
is_used(const exo_graph_spec *spec, size_t link)
{
    const exo_named_link *l = &spec->links[link];
    for (const exo_edge_spec *e = spec->edges; e < spec->edges + spec->num_edges; e++)
        if (l->from < 0
                ? e->link == (int)link
                : e->link < 0 && ((is_on(spec, e->from, l->from) && is_on(spec, e->to, l->to)) ||
                                  (is_on(spec, e->from, l->to) && is_on(spec, e->to, l->from))))
            return true;
    return false;
}

/* Whether the link's name may be a misspelt `default`, which the graph lacks. */
static bool
is_like_default(const exo_graph_spec *spec, const exo_named_link *link)
{
    exo_nearest nearest = {.word = link->name};
    exo_nearest_try(&nearest, "default");
    return !spec->links[0].is_default && exo_nearest_name(&nearest);
}

static void
warn_of_links(const exo_graph_spec *spec, const exo_graph_warnings *out)
{
    for (size_t i = 0; i < spec->num_links; i++) {
        const exo_named_link *link = &spec->links[i];
        if (!isfinite(link->spec.bandwidth) && is_idle(link->spec.changes, link->spec.num_changes))
            exo_graph_warn(
                out, exo_config_get(link->node, "schedule"),
                "link '%s': schedule says nothing without a bandwidth that it multiplies",
                link->name);
        if (link->is_default || is_used(spec, i))
            continue;
        if (link->from < 0)
            exo_graph_warn(out, link->node,
                           "link '%s' is of no edge: name it in an edge (link: %s), or give it "
                           "`from` and `to`%s",
                           link->name, link->name,
                           is_like_default(spec, link) ? "; or is 'default' meant?" : "");
        else
            exo_graph_warn(out, link->node,
                           "link '%s' is unused: no edge leads from one of its ends to the other",
                           link->name);
    }
}

/* --- Engines ---------------------------------------------------------------------------------- */

static void
warn_of_engines(const exo_graph_spec *spec, const exo_graph_warnings *out)
{
    for (const exo_edge_spec *e = spec->edges; e < spec->edges + spec->num_edges; e++)
        if (e->engine && strcmp(e->engine, "gpu") == 0 && !spec->actors[e->from].device)
            exo_graph_warn(
                out, exo_config_get(e->node, "engine"),
                "edge '%s': engine gpu reduces on the host, because '%s' computes on the "
                "CPU: set device: cuda in its config",
                e->name, spec->actors[e->from].name);
}

exo_status
exo_graph_warn_all(const exo_graph_spec *spec, const exo_graph_warnings *out, exo_err *err)
{
    const exo_graph_rule *rule = NULL;
    exo_status st = EXO_OK;
    warn_of_hosts(spec, out);
    warn_of_links(spec, out);
    warn_of_engines(spec, out);
    for (size_t i = 0; st == EXO_OK && (rule = exo_registry_at(&exo_graph_rule_registry, i)); i++)
        st = rule->warn ? rule->warn(spec, out, err) : EXO_OK;
    return st;
}
