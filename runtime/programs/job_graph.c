/* Makes the graph that a training run is equivalent to: its nodes as actors, and an edge for each
 * exchange that its strategy declares. The job's hosts, links, compute and edges go into it. Owner:
 * the job. Read next: docs/graph.md, spec.h. */
#include "programs/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "base/config_units.h"
#include "base/nearest.h"

#define NODE "node"

/* The keys of an entry of a job's `edges`, besides `carries`. */
static const char *const edge_keys[] = {"name", "codec", "deadline", "link"};

/* --- Parts of the document -------------------------------------------------------------------- */

static exo_status
add_new_map(exo_config *into, const char *key, exo_config **out, exo_err *err)
{
    exo_status st = exo_config_new_map(into, out, err);
    return st == EXO_OK ? exo_config_adopt(into, key, *out, err) : st;
}

static exo_status
add_new_list(exo_config *into, const char *key, exo_config **out, exo_err *err)
{
    exo_status st = exo_config_new_list(into, out, err);
    return st == EXO_OK ? exo_config_adopt(into, key, *out, err) : st;
}

/* Adds a text. If the job itself says the same, its place in the file is kept. */
static exo_status
add_said(exo_config *into, const char *key, const exo_config *said, const char *text, exo_err *err)
{
    const char *own = said ? exo_config_scalar(said) : NULL;
    return own && strcmp(own, text) == 0 ? exo_config_graft(into, key, said, err)
                                         : exo_config_graft_text(into, key, text, err);
}

static exo_status
add_number(exo_config *into, const char *key, uint64_t number, exo_err *err)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, number);
    return exo_config_graft_text(into, key, text, err);
}

/* Adds the job's own value, if it has one. */
static exo_status
add_own(exo_config *into, const char *key, exo_config *from, exo_err *err)
{
    exo_config *value = exo_config_get(from, key);
    return value ? exo_config_graft(into, key, value, err) : EXO_OK;
}

static exo_status
add_top(exo_config *root, const exo_job *job, const exo_job_run *run, exo_err *err)
{
    static const char *const own[] = {"clock", "hosts", "links"};
    exo_config *plugins = NULL;
    exo_config *from = exo_config_root(job->doc);
    char seed[24];
    snprintf(seed, sizeof seed, "%" PRIu64, run->seed);
    exo_status st = add_said(root, "name", exo_config_get(from, "name"), job->name, err);
    if (st == EXO_OK)
        st = add_said(root, "seed", exo_config_get(from, "seed"), seed, err);
    if (st == EXO_OK)
        st = add_new_list(root, "plugins", &plugins, err);
    for (size_t i = 0; st == EXO_OK && i < job->num_plugins; i++)
        st = exo_config_graft_text(plugins, NULL, job->plugins[i], err);
    for (size_t i = 0; st == EXO_OK && i < sizeof own / sizeof *own; i++)
        st = add_own(root, own[i], exo_config_root(job->doc), err);
    return st;
}

/* Adds the list of hosts. The nodes fill the hosts in this order. */
static exo_status
add_placement(exo_config *node, exo_config *hosts, exo_err *err)
{
    exo_config *list = NULL;
    const char *name = NULL;
    exo_status st = EXO_OK;
    if (exo_config_length(hosts) == 0)
        return EXO_OK;
    st = add_new_list(node, "host", &list, err);
    for (size_t i = 0; st == EXO_OK && (name = exo_config_key(hosts, i, NULL)); i++)
        st = exo_config_graft_text(list, NULL, name, err);
    return st;
}

static exo_status
add_nodes(exo_config *root, const exo_job *job, const exo_job_run *run, exo_err *err)
{
    static const char *const own[] = {"model", "data", "train"};
    exo_config *actors = NULL, *node = NULL, *config = NULL, *from = exo_config_root(job->doc);
    char count[24];
    snprintf(count, sizeof count, "%u", job->opts.num_nodes);
    exo_status st = add_new_map(root, "actors", &actors, err);
    if (st == EXO_OK)
        st = add_new_map(actors, NODE, &node, err);
    if (st == EXO_OK)
        st = exo_config_graft_text(node, "class", "train_node", err);
    if (st == EXO_OK)
        st = add_said(node, "count", exo_config_get(from, "nodes"), count, err);
    if (st == EXO_OK)
        st = add_placement(node, exo_config_get(from, "hosts"), err);
    if (st == EXO_OK)
        st = add_own(node, "compute", from, err);
    if (st == EXO_OK)
        st = add_new_map(node, "config", &config, err);
    for (size_t i = 0; st == EXO_OK && i < sizeof own / sizeof *own; i++)
        st = add_own(config, own[i], from, err);
    return st == EXO_OK ? exo_config_graft(config, "strategy", run->options, err) : st;
}

/* --- Edges ------------------------------------------------------------------------------------ */

/* Finds the entry of the job's `edges` for `carries` and marks it as used; NULL: there is none. */
static exo_config *
find_entry(exo_config *list, const char *carries, bool *used)
{
    for (size_t i = 0; i < exo_config_length(list); i++) {
        exo_config *entry = exo_config_item(list, i);
        const char *own = exo_config_scalar(exo_config_get(entry, "carries"));
        if (own && strcmp(own, carries) == 0) {
            used[i] = true;
            return entry;
        }
    }
    return NULL;
}

static exo_status
add_edge(exo_config *edges, const exo_job *job, const exo_strategy_edge *edge, exo_config *entry,
         exo_err *err)
{
    char size[EXO_UNIT_TEXT], timeout[EXO_UNIT_TEXT];
    exo_config *map = NULL;
    exo_status st = add_new_map(edges, NULL, &map, err);
    if (st == EXO_OK)
        st = exo_config_graft_text(map, "from", NODE, err);
    if (st == EXO_OK)
        st = exo_config_graft_text(map, "to", NODE, err);
    if (st == EXO_OK)
        st = exo_config_graft_text(map, "carries", edge->carries, err);
    if (st == EXO_OK)
        st = exo_config_graft_text(map, "route", edge->route, err);
    if (st == EXO_OK && edge->elements > 0)
        st = exo_config_graft_text(map, "item", exo_unit_bytes(4 * edge->elements, size), err);
    if (st == EXO_OK)
        st = add_number(map, "interval", edge->every, err);
    if (st == EXO_OK && edge->members > 0)
        st = add_number(map, "members", edge->members, err);
    if (st == EXO_OK && edge->codec && !exo_config_has(entry, "codec")) {
        exo_config_doc *codec = NULL;
        st = exo_config_parse(&codec, edge->carries, edge->codec, err);
        if (st == EXO_OK)
            st = exo_config_graft(map, "codec", exo_config_root(codec), err);
        exo_config_free(&codec);
    }
    if (st == EXO_OK && !exo_config_has(entry, "deadline"))
        st = exo_config_graft_text(map, "deadline", exo_unit_time(job->opts.timeout, timeout), err);
    for (size_t i = 0; st == EXO_OK && i < sizeof edge_keys / sizeof *edge_keys; i++)
        st = add_own(map, edge_keys[i], entry, err);
    return st;
}

static exo_status
add_edges(exo_config *root, const exo_job *job, const exo_job_run *run, bool *used, exo_err *err)
{
    exo_strategy *strategy = NULL;
    exo_strategy_edge own[EXO_STRATEGY_MAX_EDGES];
    exo_config *edges = NULL, *list = exo_config_get(exo_config_root(job->doc), "edges");
    size_t count = 0;
    exo_status st = add_new_list(root, "edges", &edges, err);
    if (st == EXO_OK)
        st = exo_strategy_new(&strategy, run->strategy, run->options, err);
    if (st == EXO_OK && !exo_strategy_edges(strategy, exo_model_numel(job->model),
                                            job->opts.num_nodes, own, &count)) {
        /* the strategy declares no edges */
        own[0] = (exo_strategy_edge){.carries = "exchange", .route = "all_reduce", .every = 1};
        count = 1;
    }
    for (size_t i = 0; st == EXO_OK && i < count; i++)
        st = add_edge(edges, job, &own[i], find_entry(list, own[i].carries, used), err);
    exo_strategy_free(&strategy);
    return st;
}

/* Checks that the list consists of mappings with known keys. Only `carries` is required. */
static exo_status
check_entries(exo_config *root, exo_config **list, exo_err *err)
{
    exo_status st = exo_config_list(root, "edges", list, err);
    for (size_t i = 0; st == EXO_OK && i < exo_config_length(*list); i++) {
        exo_config *entry = exo_config_item(*list, i);
        const char *carries = NULL;
        if (!exo_config_is_map(entry))
            return exo_config_fail(entry, err, "edges: expected a mapping with carries");
        for (size_t k = sizeof edge_keys / sizeof *edge_keys; k-- > 0;)
            exo_config_get(entry, edge_keys[k]);
        st = exo_config_string(entry, "carries", NULL, &carries, err);
        if (st == EXO_OK)
            st = exo_config_finish(entry, err);
        if (st == EXO_OK && !carries)
            st = exo_config_fail(entry, err, "edges: the key 'carries' is missing");
        for (size_t k = 0; st == EXO_OK && k < i; k++)
            if (strcmp(exo_config_scalar(exo_config_get(exo_config_item(*list, k), "carries")),
                       carries) == 0)
                st = exo_config_fail(
                    entry, err, "edges: there is already an entry that carries '%.60s'", carries);
    }
    return st;
}

static exo_status
fail_unused(const exo_job *job, exo_config *entry, exo_err *err)
{
    exo_config *node = exo_config_get(entry, "carries");
    exo_nearest nearest = {.word = exo_config_scalar(node)};
    exo_text known = {0};
    for (size_t i = 0; i < job->num_runs; i++) {
        const exo_graph_spec *graph = job->runs[i].graph;
        for (size_t e = 0; e < graph->num_edges; e++) {
            exo_nearest_try(&nearest, graph->edges[e].carries);
            if (!known.data || !strstr(known.data, graph->edges[e].carries))
                exo_text_add(&known, "%s%s", known.length ? ", " : "", graph->edges[e].carries);
        }
    }
    exo_status st =
        exo_nearest_name(&nearest)
            ? exo_config_fail(node, err,
                              "edges: no strategy of this job sends '%.60s'; did you mean '%s'?",
                              nearest.word, nearest.name)
            : exo_config_fail(node, err,
                              "edges: no strategy of this job sends '%.60s'; they send: %s",
                              nearest.word, known.data ? known.data : "nothing");
    exo_free(known.data);
    return st;
}

/* --- The whole graph -------------------------------------------------------------------------- */

static exo_status
make_graph(const exo_job *job, exo_job_run *run, bool *used, exo_err *err)
{
    const exo_graph_opts opts = {.literal = true};
    exo_config_doc *doc = NULL;
    exo_status st = exo_config_parse(&doc, exo_config_source(exo_config_root(job->doc)), "{}", err);
    if (st == EXO_OK)
        st = add_top(exo_config_root(doc), job, run, err);
    if (st == EXO_OK)
        st = add_nodes(exo_config_root(doc), job, run, err);
    if (st == EXO_OK)
        st = add_edges(exo_config_root(doc), job, run, used, err);
    if (st == EXO_OK) {
        exo_config_keep_out_as(doc, job->doc);
        st = exo_graph_from(&run->graph, &doc, &opts, err);
    }
    exo_config_free(&doc);
    return st;
}

exo_status
exo_job_make_graphs(exo_job *job, exo_err *err)
{
    exo_config *list = NULL;
    exo_status st = check_entries(exo_config_root(job->doc), &list, err);
    if (st != EXO_OK)
        return st;
    bool *used = exo_calloc(exo_config_length(list) + 1, sizeof *used);
    if (!used)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    for (size_t i = 0; st == EXO_OK && i < job->num_runs; i++)
        st = make_graph(job, &job->runs[i], used, err);
    for (size_t i = 0; st == EXO_OK && i < exo_config_length(list); i++)
        if (!used[i])
            st = fail_unused(job, exo_config_item(list, i), err);
    exo_free(used);
    return st;
}
