/* Nodes elsewhere: see node_host.h. What the nodes of a run share in a process is found by the run's namespace (shared.h). */
#include "actors/node_host.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/plugin.h>

#include "actors/fit_engine.h"
#include "actors/fit_network.h"
#include "base/config_edit.h"
#include "base/shared.h"
#include "comm/far.h"
#include "graph/site.h"

enum {
    STRATEGY_CHANNEL = 1, /* of collectives */
    SIDE_CHANNEL = 2
};

/* What the nodes of a run share in this process. */
struct shared {
    exo_shared shared; /* first: by the run's namespace; the second node waits until the first has made it */
    bool made;
    exo_fit fit;
    exo_dataset *train; /* all of it: with split_by_node each node takes its part */
    size_t *val_order;
    char *resume_from;
    exo_graph_spec *graph; /* NULL: nothing is emulated */
    exo_links *links;      /* likewise                  */
    exo_time origin;       /* of the run, on the real clock, as far as this process knows */
};

struct exo_node_host {
    struct shared *shared;
    exo_runtime *runtime;
    exo_ref self;
    uint32_t rank;
    exo_config_doc *doc; /* the strategy's options lie in it */
    exo_dataset *train;  /* what this node sees */
    exo_strategy *strategy;
    exo_comm *comm, *side;
    bool foreign; /* comm is on an engine that is not the library's */
};

static void
release_shared(exo_shared *shared)
{
    struct shared *s = (struct shared *)shared;
    exo_dataset_drop(&s->train);
    exo_dataset_drop(&s->fit.val);
    exo_model_drop(&s->fit.model);
    exo_tape_pool_release(&s->fit.train_tapes);
    exo_tape_pool_release(&s->fit.eval_tapes);
    exo_links_free(&s->links);
    exo_graph_spec_free(&s->graph);
    exo_free(s->val_order);
    exo_free(s->resume_from);
}

static exo_shared_list runs = EXO_SHARED_LIST(struct shared, release_shared);

/* "name" or {name: ...}: the options are the mapping, or NULL. */
static exo_status
read_named(exo_config *root, const char *key, const char **name, exo_config **options, exo_err *err)
{
    *options = exo_config_get(root, key);
    if (exo_config_is_map(*options))
        return exo_config_string(*options, "name", NULL, name, err);
    *options = NULL;
    return exo_config_string(root, key, NULL, name, err);
}

static exo_status
load_plugins(exo_config *root, exo_err *err)
{
    exo_config *list = NULL;
    exo_status st = exo_config_list(root, "plugins", &list, err);
    for (size_t i = 0; st == EXO_OK && i < exo_config_length(list); i++) {
        const char *path = exo_config_scalar(exo_config_item(list, i));
        st = path ? exo_plugin_load(path, err)
                  : exo_config_fail(exo_config_item(list, i), err, "plugins: expected the path of a plugin");
    }
    return st;
}

static exo_status
read_numbers(exo_config *root, struct shared *s, exo_err *err)
{
    exo_fit *fit = &s->fit;
    uint64_t nodes = 0, batch = 0, minibatch = 0, timeout = 0;
    const char *resume = NULL;
    exo_status st = exo_config_u64(root, "nodes", 1, 1, UINT16_MAX, &nodes, err);
    if (st == EXO_OK)
        st = exo_config_u64(root, "max_steps", 1, 1, INT64_MAX, &fit->max_steps, err);
    if (st == EXO_OK)
        st = exo_config_u64(root, "batch_size", 1, 1, UINT32_MAX, &batch, err);
    if (st == EXO_OK)
        st = exo_config_u64(root, "minibatch_size", batch, 1, batch, &minibatch, err);
    if (st == EXO_OK)
        st = exo_config_u64(root, "seed", 0, 0, INT64_MAX, &fit->seed, err);
    if (st == EXO_OK)
        st = exo_config_u64(root, "timeout_ms", 600000, 1, INT32_MAX, &timeout, err);
    if (st == EXO_OK)
        st = exo_config_bool(root, "shuffle", true, &fit->shuffle, err);
    if (st == EXO_OK)
        st = exo_config_bool(root, "autocast", false, &fit->autocast, err);
    if (st == EXO_OK)
        st = exo_config_string(root, "resume_from", NULL, &resume, err);
    if (st != EXO_OK)
        return st;
    if (batch % minibatch != 0)
        return exo_config_fail(root, err, "batch_size %llu is no multiple of minibatch_size %llu",
                               (unsigned long long)batch, (unsigned long long)minibatch);
    fit->num_nodes = (uint32_t)nodes;
    fit->batch_size = batch;
    fit->minibatch_size = minibatch;
    fit->timeout = (exo_time)timeout * EXO_MS;
    if (resume && !(s->resume_from = exo_strdup(resume)))
        return exo_fail(err, EXO_NOMEM, "no memory for a path");
    fit->resume_from = s->resume_from;
    return EXO_OK;
}

/* As the trainer of one process plans it, from the same seed. */
static exo_status
plan_evaluation(exo_config *root, struct shared *s, exo_err *err)
{
    size_t length = s->fit.val ? exo_dataset_length(s->fit.val) : 0;
    uint64_t val_size = 0;
    exo_status st = exo_config_u64(root, "val_size", 0, 0, UINT32_MAX, &val_size, err);
    if (st != EXO_OK || length == 0)
        return st;
    size_t count = val_size && val_size < length ? val_size : length;
    st = exo_eval_order(length, count, s->fit.seed, &s->val_order, err);
    s->fit.val_order = s->val_order;
    s->fit.val_count = count;
    return st;
}

/* The job's graph, if it came along: what this process's nodes send over links that are not there. */
static exo_status
make_network(struct shared *s, exo_config *root, exo_err *err)
{
    const char *text = NULL;
    exo_status st = exo_config_string(root, "graph", NULL, &text, err);
    if (st != EXO_OK || !text)
        return st;
    uint64_t elapsed = 0;
    st = exo_config_u64(root, "elapsed_ns", 0, 0, INT64_MAX, &elapsed, err);
    if (st != EXO_OK)
        return st;
    s->origin = exo_now(exo_clock_real()) - (exo_time)elapsed;
    st = exo_graph_parse(&s->graph, "graph", text, NULL, err);
    if (st == EXO_OK && (s->graph->num_actors != 1 || s->graph->actors[0].count != s->fit.num_nodes))
        st = exo_fail(err, EXO_INVAL, "graph: the graph of a job of %u nodes has one actor of that count",
                      s->fit.num_nodes);
    return st == EXO_OK && s->graph->emulated ? exo_graph_links(s->graph, &s->links, err) : st;
}

static exo_status
make_data(struct shared *s, exo_config *root, exo_err *err)
{
    const char *name = NULL;
    exo_config *options = NULL;
    bool split = false, validate = true;
    exo_status st = read_named(root, "data", &name, &options, err);
    if (st == EXO_OK && !name)
        st = exo_fail(err, EXO_INVAL, "a node is started with the name of data");
    if (st == EXO_OK && options)
        st = exo_config_bool(options, "split_by_node", false, &split, err);
    if (st == EXO_OK)
        st = exo_config_bool(root, "validate", true, &validate, err);
    if (st == EXO_OK)
        st = exo_dataset_named(name, options, &s->train, validate ? &s->fit.val : NULL, err);
    s->fit.shared_data = !split;
    return st;
}

static exo_status
make_shared(struct shared *s, exo_config *root, exo_err *err)
{
    const char *model = NULL;
    exo_config *model_options = NULL;
    exo_status st = load_plugins(root, err);
    if (st == EXO_OK)
        st = read_numbers(root, s, err);
    if (st == EXO_OK)
        st = read_named(root, "model", &model, &model_options, err);
    if (st == EXO_OK && !model)
        st = exo_fail(err, EXO_INVAL, "a node is started with the name of a model");
    if (st == EXO_OK)
        st = exo_model_new_named(&s->fit.model, model, model_options, err);
    if (st == EXO_OK)
        st = make_data(s, root, err);
    if (st == EXO_OK)
        st = make_network(s, root, err);
    return st == EXO_OK ? plan_evaluation(root, s, err) : st;
}

/* The run's, made by the first node that comes; one whose making failed is made anew by the next. */
static exo_status
get_shared(exo_config *root, struct shared **out, exo_err *err)
{
    const char *run = NULL;
    exo_status st = exo_config_string(root, "run", NULL, &run, err);
    if (st != EXO_OK || !run)
        return st != EXO_OK ? st : exo_fail(err, EXO_INVAL, "a node is started with the namespace of its run");
    struct shared *s = (struct shared *)exo_shared_hold(&runs, run);
    if (!s)
        return exo_fail(err, EXO_NOMEM, "no memory for a run");
    pthread_mutex_lock(&s->shared.making);
    if (!s->made)
        st = make_shared(s, root, err);
    s->made = s->made || st == EXO_OK;
    pthread_mutex_unlock(&s->shared.making);
    if (st == EXO_OK)
        *out = s;
    else
        exo_shared_drop(&runs, &s->shared);
    return st;
}

/* --- One node -------------------------------------------------------------------------------------------------------------------- */

static exo_status
make_strategy(exo_node_host *h, exo_config *root, exo_err *err)
{
    const char *name = NULL;
    exo_config *options = NULL;
    exo_status st = read_named(root, "strategy", &name, &options, err);
    if (st == EXO_OK && !name)
        st = exo_fail(err, EXO_INVAL, "a node is started with the name of a strategy");
    return st == EXO_OK ? exo_strategy_new(&h->strategy, name, options, err) : st;
}

static exo_status
take_data(exo_node_host *h, exo_err *err)
{
    const exo_fit *fit = &h->shared->fit;
    if (!fit->shared_data)
        return exo_dataset_split(&h->train, h->shared->train, h->rank, fit->num_nodes, err);
    h->train = exo_dataset_hold(h->shared->train);
    return EXO_OK;
}

static exo_status
make_comms(exo_node_host *h, exo_config *root, exo_err *err)
{
    const char *name = NULL;
    const exo_engine_class *engine = NULL;
    exo_status st = exo_config_string(root, "engine", NULL, &name, err);
    if (st == EXO_OK)
        st = exo_fit_find_engine(&engine, name, false, err); /* the trainer has looked at its promises */
    if (st != EXO_OK)
        return st;
    h->foreign = exo_fit_is_foreign(engine);
    const exo_graph_spec *graph = h->shared->graph;
    const exo_edge_spec *edge = graph && graph->num_edges ? &graph->edges[0] : NULL;
    const exo_comm_edge on = {.name = edge ? edge->carries : NULL,
                              .links = h->shared->links,
                              .hosts = graph ? graph->actors[0].hosts : NULL,
                              .origin = h->shared->origin,
                              .codec = edge ? exo_fit_edge_codec(edge) : NULL};
    exo_comm_far_opts opts = {.runtime = h->runtime,
                              .size = h->shared->fit.num_nodes,
                              .rank = h->rank,
                              .channel = STRATEGY_CHANNEL,
                              .method = "deliver",
                              .edge = edge ? &on : NULL};
    st = h->foreign ? exo_fit_open_engine(&h->comm, engine, h->shared->shared.name, opts.size,
                                          exo_runtime_clock(h->runtime), err)
                    : exo_comm_far(&h->comm, &opts, err);
    opts.channel = SIDE_CHANNEL;
    opts.edge = NULL; /* evaluation is not the strategy's */
    return st == EXO_OK ? exo_comm_far(&h->side, &opts, err) : st;
}

static double
graph_speed(const exo_graph_spec *graph, uint32_t rank)
{
    return graph ? graph->hosts[graph->actors[0].hosts[rank]].speed : 1;
}

exo_status
exo_node_host_open(exo_node_host **out, exo_call_context *call, const char *document, exo_node_spec *spec, exo_err *err)
{
    exo_config *root = NULL;
    uint64_t rank = 0;
    exo_node_host *h = exo_calloc(1, sizeof *h);
    if (!h)
        return exo_fail(err, EXO_NOMEM, "no memory for a node");
    h->runtime = exo_call_runtime(call);
    h->self = exo_call_self(call);
    exo_status st = exo_config_parse(&h->doc, "start: document", document, err);
    if (st == EXO_OK) {
        root = exo_config_root(h->doc);
        st = exo_config_u64(root, "rank", 0, 0, UINT16_MAX, &rank, err);
    }
    h->rank = (uint32_t)rank;
    if (st == EXO_OK)
        st = get_shared(root, &h->shared, err);
    if (st == EXO_OK && h->rank >= h->shared->fit.num_nodes)
        st = exo_fail(err, EXO_INVAL, "rank %u is none of a run of %u nodes", h->rank, h->shared->fit.num_nodes);
    if (st == EXO_OK)
        st = take_data(h, err);
    if (st == EXO_OK)
        st = make_strategy(h, root, err);
    if (st == EXO_OK)
        st = make_comms(h, root, err);
    if (st != EXO_OK) {
        exo_node_host_close(&h);
        return st;
    }
    *spec = (exo_node_spec){.fit = &h->shared->fit,
                            .rank = h->rank,
                            .train = h->train,
                            .strategy = h->strategy,
                            .comm = h->comm,
                            .side = h->side,
                            .step_cost = exo_fit_step_cost(h->shared->graph),
                            .speed = graph_speed(h->shared->graph, h->rank)};
    *out = h;
    return EXO_OK;
}

void
exo_node_host_close(exo_node_host **host)
{
    exo_node_host *h = *host;
    *host = NULL;
    if (!h)
        return;
    if (h->comm && !h->foreign)
        exo_comm_far_disconnect(h->comm);
    if (h->side)
        exo_comm_far_disconnect(h->side);
    exo_comm_drop(&h->comm);
    exo_comm_drop(&h->side);
    exo_dataset_drop(&h->train);
    exo_strategy_free(&h->strategy);
    exo_config_free(&h->doc);
    if (h->shared)
        exo_shared_drop(&runs, &h->shared->shared);
    exo_free(h);
}

exo_status
exo_node_host_meet(exo_node_host *host, exo_err *err)
{
    uint32_t count = host->shared->fit.num_nodes;
    exo_ref *nodes = exo_calloc(count, sizeof *nodes);
    exo_status st = nodes ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for %u nodes", count);
    for (uint32_t r = 0; st == EXO_OK && r < count; r++) {
        char name[32];
        snprintf(name, sizeof name, "node_%u", r);
        if (r == host->rank)
            nodes[r] = host->self;
        else
            st = exo_get_actor(host->runtime, host->shared->shared.name, name, &nodes[r], err);
    }
    if (st == EXO_OK && !host->foreign)
        st = exo_comm_far_connect(host->comm, nodes, err);
    if (st == EXO_OK)
        st = exo_comm_far_connect(host->side, nodes, err);
    exo_free(nodes);
    return st;
}

/* Every node of the run does this; of those in one process each sets the same links. */
exo_status
exo_node_host_change(exo_node_host *host, const char *graph, exo_err *err)
{
    exo_graph_spec *next = NULL;
    if (!host->shared->graph)
        return exo_fail(err, EXO_INVAL, "change: graph: the run has none to change");
    exo_status st = exo_graph_parse(&next, "change: graph", graph, NULL, err);
    if (st == EXO_OK)
        st = exo_graph_check_job_change(host->shared->graph, next, err);
    if (st == EXO_OK && host->shared->links)
        st = exo_graph_change_links(host->shared->links, next, err);
    if (st == EXO_OK && next->num_edges > 0)
        st = exo_comm_recode(host->comm, exo_fit_edge_codec(&next->edges[0]), err);
    exo_graph_spec_free(&next);
    return st;
}

exo_status
exo_node_host_deliver(exo_node_host *host, exo_payload *payload, uint64_t from, exo_err *err)
{
    switch (exo_comm_far_channel(payload)) {
    case STRATEGY_CHANNEL:
        if (host->foreign)
            return exo_fail(err, EXO_INVAL, "a message for a collective of another engine");
        return exo_comm_far_deliver(host->comm, payload, from, err);
    case SIDE_CHANNEL:
        return exo_comm_far_deliver(host->side, payload, from, err);
    default:
        return exo_fail(err, EXO_INVAL, "a message that is for no collective of this node");
    }
}
