/* Checks whether a running graph can change to another one. Everything but edges, rates and links
 * must be the same. An error names the difference and its place in the next graph's file. No state.
 * Read next: site.c and place.c, which make the change. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/c_locale.h"
#include "base/config_edit.h"
#include "graph/site.h"
#include "graph/spec_impl.h"

#define RULE "cannot change while it goes on"

enum {
    SHOWN = 60 /* characters shown of a value */
};

/* --- Values of the file ----------------------------------------------------------------------- */

/* The node of the key's value, or of the mapping if the file lacks the key: the position of an
 * error. */
static exo_config *
place_of(exo_config *map, const char *key)
{
    exo_config *value = exo_config_get(map, key);
    return value ? value : map;
}

static void
show(const exo_config *node, char out[SHOWN + 4])
{
    char *text = NULL;
    if (exo_config_text(node, &text, NULL) != EXO_OK)
        text = NULL;
    snprintf(out, SHOWN + 4, "%.*s%s", SHOWN, text ? text : "?",
             text && strlen(text) > SHOWN ? "..." : "");
    exo_free(text);
}

static exo_status
refuse(const exo_config *place, const char *path, const exo_config *now, const exo_config *next,
       exo_err *err)
{
    char had[SHOWN + 4] = "nothing", has[SHOWN + 4] = "nothing";
    if (now)
        show(now, had);
    if (next)
        show(next, has);
    return exo_config_fail(place, err, "%s: %s; the run has %s, which " RULE, path, has, had);
}

static bool
is_same_scalar(const char *a, const char *b)
{
    char *end_a = NULL, *end_b = NULL;
    if (strcmp(a, b) == 0)
        return true;
    double x = exo_c_strtod(a, &end_a), y = exo_c_strtod(b, &end_b);
    return end_a != a && end_b != b && !*end_a && !*end_b && x == y;
}

/* Refuses the first difference between two values. `place`: the position of `next`. */
static exo_status
compare(exo_config *now, exo_config *next, const exo_config *place, const char *path, exo_err *err)
{
    char inner[256];
    const char *key = NULL;
    exo_config *value = NULL;
    exo_status st = EXO_OK;
    bool maps = now && next && exo_config_is_map(now) && exo_config_is_map(next);
    bool lists = now && next && exo_config_is_list(now) && exo_config_is_list(next);
    if (!now && !next)
        return EXO_OK;
    if (!maps && !lists) {
        const char *a = now ? exo_config_scalar(now) : NULL,
                   *b = next ? exo_config_scalar(next) : NULL;
        return a && b && is_same_scalar(a, b) ? EXO_OK : refuse(place, path, now, next, err);
    }
    size_t length = exo_config_length(next);
    if (lists && length != exo_config_length(now))
        return refuse(next, path, now, next, err);
    for (size_t i = 0; st == EXO_OK && i < length; i++) {
        key = maps ? exo_config_key(next, i, &value) : NULL;
        if (maps)
            snprintf(inner, sizeof inner, "%s%s%s", path, *path ? "." : "", key);
        else
            snprintf(inner, sizeof inner, "%s.%zu", path, i);
        value = maps ? value : exo_config_item(next, i);
        exo_config *old = maps ? exo_config_get(now, key) : exo_config_item(now, i);
        st = compare(old, value, value, inner, err);
    }
    for (size_t i = 0; st == EXO_OK && maps && (key = exo_config_key(now, i, &value)); i++) {
        snprintf(inner, sizeof inner, "%s%s%s", path, *path ? "." : "", key);
        if (!exo_config_has(next, key))
            st = refuse(next, inner, value, NULL, err);
    }
    return st;
}

/* --- Parts of the graph ----------------------------------------------------------------------- */

/* Like exo_config_fail. A graph made by a program has no positions; its errors have its source
 * only. */
static exo_status refuse_in(const exo_graph_spec *next, const exo_config *place, exo_err *err,
                            const char *format, ...) EXO_PRINTF(4, 5);

static exo_status
refuse_in(const exo_graph_spec *next, const exo_config *place, exo_err *err, const char *format,
          ...)
{
    char text[EXO_ERR_TEXT];
    va_list args;
    va_start(args, format);
    exo_c_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return place ? exo_config_fail(place, err, "%s", text)
                 : exo_fail(err, EXO_INVAL, "%s: %s", next->source, text);
}

static exo_status
check_top(const exo_graph_spec *now, const exo_graph_spec *next, exo_err *err)
{
    static const char *const clocks[] = {"real", "virtual"};
    exo_config *root = next->root;
    if (strcmp(now->name, next->name) != 0)
        return refuse_in(next, place_of(root, "name"), err,
                         "name: '%.60s'; the run is called '%.60s', which " RULE
                         ": give --set name=%.60s",
                         next->name, now->name, now->name);
    if (now->seed != next->seed)
        return refuse_in(next, place_of(root, "seed"), err,
                         "seed: %" PRIu64 "; the run has %" PRIu64 ", which " RULE, next->seed,
                         now->seed);
    if (now->virtual_clock != next->virtual_clock)
        return refuse_in(next, place_of(root, "clock"), err,
                         "clock: %s; the run has the %s one, which " RULE,
                         clocks[next->virtual_clock], clocks[now->virtual_clock]);
    if (now->until != next->until)
        return refuse_in(next, place_of(root, "until"), err,
                         "until: %.3f s; the run has %.3f s, which " RULE,
                         (double)next->until * 1e-9, (double)now->until * 1e-9);
    bool same = now->num_plugins == next->num_plugins;
    for (size_t i = 0; same && i < now->num_plugins; i++)
        same = strcmp(now->plugins[i], next->plugins[i]) == 0;
    return same ? EXO_OK
                : refuse_in(next, place_of(root, "plugins"), err,
                            "plugins: the run has others, which " RULE);
}

static bool
same_resources(const exo_resource *a, size_t num_a, const exo_resource *b, size_t num_b)
{
    bool same = num_a == num_b;
    for (size_t i = 0; same && i < num_a; i++)
        same = strcmp(a[i].name, b[i].name) == 0 && a[i].amount == b[i].amount;
    return same;
}

static bool
same_compute(const exo_actor_spec *a, const exo_actor_spec *b)
{
    bool same = a->num_compute == b->num_compute;
    for (size_t i = 0; same && i < a->num_compute; i++)
        same = strcmp(a->compute[i].phase, b->compute[i].phase) == 0 &&
               a->compute[i].cost == b->compute[i].cost;
    return same;
}

/* The first key of an actor that differs, except for its config; NULL: none. */
static const char *
other_key(const exo_actor_spec *x, const exo_actor_spec *y)
{
    if (x->class != y->class)
        return "class";
    if (x->count != y->count)
        return "count";
    if (memcmp(x->hosts, y->hosts, x->count * sizeof *x->hosts) != 0)
        return "host";
    if (!same_resources(x->resources, x->num_resources, y->resources, y->num_resources))
        return "resources";
    if (x->restart.when != y->restart.when || x->restart.max != y->restart.max ||
        x->restart.within != y->restart.within || x->restart.backoff != y->restart.backoff)
        return "restart";
    return same_compute(x, y) ? NULL : "compute";
}

/* The nodes of a job are one actor, whose config is the top level of the job's file. */
static exo_status
check_actor(const exo_graph_spec *next, const exo_actor_spec *x, const exo_actor_spec *y, bool job,
            exo_err *err)
{
    char path[128];
    const char *key = other_key(x, y);
    if (key) {
        exo_config *value = exo_config_get(y->node, key);
        const char *name = job && strcmp(key, "count") == 0 ? "nodes" : key;
        snprintf(path, sizeof path, job ? "%s%s" : "actors.%s.%s", job ? "" : y->name, name);
        if (!y->node)
            return refuse_in(next, NULL, err, "%s: the run has another, which " RULE, path);
        return refuse(place_of(y->node, key), path, exo_config_get(x->node, key), value, err);
    }
    snprintf(path, sizeof path, job ? "%s" : "actors.%s.config", job ? "" : y->name);
    return compare(x->config, y->config, place_of(y->node, "config"), path, err);
}

static exo_status
check_actors(const exo_graph_spec *now, const exo_graph_spec *next, bool job, exo_err *err)
{
    exo_config *actors = place_of(next->root, "actors");
    for (size_t a = 0; a < next->num_actors; a++)
        if (a >= now->num_actors || strcmp(now->actors[a].name, next->actors[a].name) != 0)
            return refuse_in(next, next->actors[a].node, err,
                             "actors: '%s' is not where the run has %s; its actors cannot change "
                             "while it goes on",
                             next->actors[a].name,
                             a < now->num_actors ? now->actors[a].name : "no more");
    if (now->num_actors != next->num_actors)
        return refuse_in(next, actors, err, "actors: '%s' is missing; the run has it, which " RULE,
                         now->actors[next->num_actors].name);
    exo_status st = EXO_OK;
    for (size_t a = 0; st == EXO_OK && a < now->num_actors; a++)
        st = check_actor(next, &now->actors[a], &next->actors[a], job, err);
    return st;
}

/* Rates and latencies may change. The set of hosts, their speeds and their resources may not. */
static exo_status
check_hosts(const exo_graph_spec *now, const exo_graph_spec *next, exo_err *err)
{
    exo_config *hosts = place_of(next->root, "hosts");
    if (now->num_hosts != next->num_hosts)
        return refuse_in(next, hosts, err, "hosts: %zu; the run has %zu, which " RULE,
                         next->num_hosts, now->num_hosts);
    for (size_t g = 0; g < next->num_host_groups; g++) {
        const exo_host_group *group = &next->host_groups[g];
        const exo_config *place = group->node ? group->node : hosts;
        for (uint32_t h = group->first; h < group->first + group->count; h++) {
            const exo_emulated_host *x = &now->hosts[h], *y = &next->hosts[h];
            if (strcmp(x->spec.name, y->spec.name) != 0)
                return refuse_in(next, place, err,
                                 "hosts: '%s'; the run has '%s' in its place, which " RULE,
                                 y->spec.name, x->spec.name);
            if (x->speed != y->speed)
                return refuse_in(next, place, err,
                                 "hosts.%s.speed: %g; the run has %g, which " RULE, group->name,
                                 y->speed, x->speed);
            if (!same_resources(x->resources, x->num_resources, y->resources, y->num_resources))
                return refuse_in(next, place, err,
                                 "hosts.%s.resources: the run has others, which " RULE,
                                 group->name);
        }
    }
    if (!now->emulated && next->emulated)
        return refuse_in(next,
                         next->root && exo_config_has(next->root, "links")
                             ? place_of(next->root, "links")
                             : hosts,
                         err, "the graph runs without links: they cannot be added while it does");
    return EXO_OK;
}

/* --- Edges ------------------------------------------------------------------------------------ */

static bool
same_engine(const exo_edge_spec *a, const exo_edge_spec *b)
{
    return a->any_bits == b->any_bits &&
           strcmp(a->engine ? a->engine : "auto", b->engine ? b->engine : "auto") == 0;
}

static bool
same_but_codec(const exo_edge_spec *a, const exo_edge_spec *b)
{
    return a->from == b->from && a->to == b->to && strcmp(a->carries, b->carries) == 0 &&
           strcmp(a->name, b->name) == 0 && a->route == b->route &&
           a->idle_senders == b->idle_senders && a->capacity == b->capacity &&
           a->on_full == b->on_full && a->every == b->every && a->delay == b->delay &&
           a->deadline == b->deadline && exo_edge_same_targets(a, b) &&
           (a->link < 0) == (b->link < 0) && same_engine(a, b);
}

bool
exo_graph_is_same_edge(const exo_edge_spec *a, const exo_edge_spec *b)
{
    return same_but_codec(a, b) && strcmp(a->codec_text, b->codec_text) == 0;
}

static const exo_edge_spec *
find_collective(const exo_graph_spec *graph, const exo_edge_spec *wanted)
{
    for (size_t e = 0; e < graph->num_edges; e++)
        if (graph->edges[e].route == EXO_ROUTE_ALL_REDUCE && graph->edges[e].from == wanted->from &&
            strcmp(graph->edges[e].carries, wanted->carries) == 0)
            return &graph->edges[e];
    return NULL;
}

static exo_status
check_collectives(const exo_graph_spec *now, const exo_graph_spec *next, bool recode, exo_err *err)
{
    for (size_t e = 0; e < now->num_edges; e++) {
        const exo_edge_spec *edge = &now->edges[e];
        if (edge->route != EXO_ROUTE_ALL_REDUCE)
            continue;
        const exo_edge_spec *other = find_collective(next, edge);
        if (!other)
            return refuse_in(
                next, place_of(next->root, "edges"), err,
                "edge '%s' is missing: it is a collective, and cannot go while the graph runs",
                edge->name);
        if (!(recode ? same_but_codec(edge, other) : exo_graph_is_same_edge(edge, other)))
            return refuse_in(next, other->node, err,
                             "edge '%s' is a collective: while it runs only its %slinks can change",
                             edge->name, recode ? "codec and its " : "");
    }
    for (size_t e = 0; e < next->num_edges; e++)
        if (next->edges[e].route == EXO_ROUTE_ALL_REDUCE && !find_collective(now, &next->edges[e]))
            return refuse_in(next, next->edges[e].node, err,
                             "a collective cannot be added to a graph that runs");
    return EXO_OK;
}

static exo_status
check_change(const exo_graph_spec *now, const exo_graph_spec *next, bool job, exo_err *err)
{
    exo_status st = check_top(now, next, err);
    if (st == EXO_OK)
        st = check_actors(now, next, job, err);
    if (st == EXO_OK)
        st = check_hosts(now, next, err);
    if (st == EXO_OK && now->num_edges > 0 && next->num_edges == 0)
        st = refuse_in(next, place_of(next->root, "edges"), err,
                       "edges: there is none, so no actor would send or receive anything any more; "
                       "to end the run, stop it");
    return st == EXO_OK ? check_collectives(now, next, job, err) : st;
}

exo_status
exo_graph_check_change(const exo_graph_spec *now, const exo_graph_spec *next, exo_err *err)
{
    return check_change(now, next, false, err);
}

exo_status
exo_graph_check_job_change(const exo_graph_spec *now, const exo_graph_spec *next, exo_err *err)
{
    return check_change(now, next, true, err);
}
