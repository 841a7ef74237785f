/* Makes the graph that a training run is equivalent to: its nodes as actors, and an edge for each
 * exchange that its strategy declares. The job's hosts, links, compute and edges go into it. Owner:
 * the job. Read next: docs/graph.md, spec.h. */
#include "programs/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/config_maker.h"
#include "base/config_units.h"
#include "base/nearest.h"

#define NODE "node"

/* The keys of an entry of a job's `edges`, besides `carries`. */
static const char *const edge_keys[] = {"name", "codec", "deadline", "link"};

/* --- Parts of the document -------------------------------------------------------------------- */

/* Adds a text. If the job itself says the same, its place in the file is kept. */
static void
add_said(exo_config_maker *m, exo_config *into, const char *key, const exo_config *said,
         const char *text)
{
    const char *own = said ? exo_config_scalar(said) : NULL;
    if (own && strcmp(own, text) == 0)
        exo_make_copy(m, into, key, said);
    else
        exo_make_text(m, into, key, text);
}

static void
add_top(exo_config_maker *m, exo_config *root, const exo_job *job, const exo_job_run *run)
{
    static const char *const own[] = {"clock", "hosts", "links"};
    exo_config *from = exo_config_root(job->doc);
    char seed[24];
    snprintf(seed, sizeof seed, "%" PRIu64, run->seed);
    add_said(m, root, "name", exo_config_get(from, "name"), job->name);
    add_said(m, root, "seed", exo_config_get(from, "seed"), seed);
    exo_config *plugins = exo_make_list(m, root, "plugins");
    for (size_t i = 0; i < job->num_plugins; i++)
        exo_make_text(m, plugins, NULL, job->plugins[i]);
    exo_make_copies(m, root, from, own, sizeof own / sizeof *own);
}

static void
add_nodes(exo_config_maker *m, exo_config *root, const exo_job *job, const exo_job_run *run)
{
    static const char *const own[] = {"model", "data", "train", "device"};
    exo_config *from = exo_config_root(job->doc), *hosts = exo_config_get(from, "hosts");
    const char *name = NULL;
    char count[24];
    snprintf(count, sizeof count, "%u", job->opts.num_nodes);
    exo_config *node = exo_make_map(m, exo_make_map(m, root, "actors"), NODE);
    exo_make_text(m, node, "class", "train_node");
    add_said(m, node, "count", exo_config_get(from, "nodes"), count);
    /* the nodes fill the hosts in this order */
    exo_config *list = exo_config_length(hosts) > 0 ? exo_make_list(m, node, "host") : NULL;
    for (size_t i = 0; list && (name = exo_config_key(hosts, i, NULL)); i++)
        exo_make_text(m, list, NULL, name);
    exo_make_copy(m, node, "resources", exo_config_get(from, "resources"));
    exo_make_copy(m, node, "compute", exo_config_get(from, "compute"));
    exo_config *config = exo_make_map(m, node, "config");
    exo_make_copies(m, config, from, own, sizeof own / sizeof *own);
    exo_make_copy(m, config, "strategy", run->options);
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

static void
add_edge(exo_config_maker *m, exo_config *edges, const exo_job *job, const exo_strategy_edge *edge,
         exo_config *entry)
{
    char size[EXO_UNIT_TEXT], timeout[EXO_UNIT_TEXT];
    exo_config *map = exo_make_map(m, edges, NULL);
    exo_make_text(m, map, "from", NODE);
    exo_make_text(m, map, "to", NODE);
    exo_make_text(m, map, "carries", edge->carries);
    exo_make_text(m, map, "route", edge->route);
    if (edge->elements > 0)
        exo_make_text(m, map, "item", exo_unit_bytes(4 * edge->elements, size));
    exo_make_number(m, map, "interval", edge->every);
    if (edge->members > 0)
        exo_make_number(m, map, "members", edge->members);
    if (m->status == EXO_OK && edge->codec && !exo_config_has(entry, "codec")) {
        exo_config_doc *codec = NULL;
        m->status = exo_config_parse(&codec, edge->carries, edge->codec, m->err);
        if (m->status == EXO_OK)
            exo_make_copy(m, map, "codec", exo_config_root(codec));
        exo_config_free(&codec);
    }
    if (!exo_config_has(entry, "deadline"))
        exo_make_text(m, map, "deadline", exo_unit_time(job->opts.timeout, timeout));
    exo_make_copies(m, map, entry, edge_keys, sizeof edge_keys / sizeof *edge_keys);
}

static void
add_edges(exo_config_maker *m, exo_config *root, const exo_job *job, const exo_job_run *run,
          bool *used)
{
    exo_strategy *strategy = NULL;
    exo_strategy_edge own[EXO_STRATEGY_MAX_EDGES];
    exo_config *edges = exo_make_list(m, root, "edges"),
               *list = exo_config_get(exo_config_root(job->doc), "edges");
    size_t count = 0;
    if (m->status == EXO_OK)
        m->status = exo_strategy_new(&strategy, run->strategy, run->options, m->err);
    if (m->status == EXO_OK)
        m->status = exo_strategy_check_edges(
            strategy, exo_model_infos(job->model), exo_model_num_infos(job->model),
            exo_model_numel(job->model), job->opts.num_nodes, m->err);
    if (m->status == EXO_OK &&
        !exo_strategy_edges(strategy, exo_model_infos(job->model), exo_model_num_infos(job->model),
                            exo_model_numel(job->model), job->opts.num_nodes, own, &count)) {
        /* the strategy declares no edges */
        own[0] = (exo_strategy_edge){.carries = "exchange", .route = "all_reduce", .every = 1};
        count = 1;
    }
    for (size_t i = 0; i < count; i++)
        add_edge(m, edges, job, &own[i], find_entry(list, own[i].carries, used));
    exo_strategy_free(&strategy);
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
    exo_config_maker m = {.err = err};
    m.status = exo_config_parse(&doc, exo_config_source(exo_config_root(job->doc)), "{}", err);
    if (m.status != EXO_OK)
        return m.status;
    exo_config *root = exo_config_root(doc);
    add_top(&m, root, job, run);
    add_nodes(&m, root, job, run);
    add_edges(&m, root, job, run, used);
    if (m.status == EXO_OK) {
        exo_config_keep_out_as(doc, job->doc);
        m.status = exo_graph_from(&run->graph, &doc, &opts, err);
    }
    exo_config_free(&doc);
    return m.status;
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

exo_status
exo_job_check_edges(const exo_job *job, exo_err *err)
{
    for (size_t i = 0; i < job->num_runs; i++) {
        const exo_job_run *run = &job->runs[i];
        if (run->graph && run->graph->num_edges > 1)
            return exo_config_fail(
                run->options, err,
                "the strategy '%s' sends over %zu edges, and the nodes of a job have one: "
                "run the graph that 'exogym graph expand' makes from the job",
                run->strategy, run->graph->num_edges);
    }
    return EXO_OK;
}
