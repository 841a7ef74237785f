/* The record that the nodes of a run share: see fit.h. This file has three parts: the nodes in a
 * job's graph, the life of the record, and how it is made from a document. */
#include "actors/fit.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/parallel.h>

#include "actors/autocast.h"
#include "actors/fit_check.h"
#include "actors/fit_engine.h"
#include "actors/fit_links.h"
#include "actors/fit_opts.h"
#include "base/config_edit.h"
#include "base/plugin_build.h"
#include "graph/site.h"

/* --- The nodes in a job's graph --------------------------------------------------------------- */

uint32_t
exo_fit_host(const exo_graph_spec *graph, uint32_t rank)
{
    return graph->actors[0].hosts[rank];
}

double
exo_fit_speed(const exo_graph_spec *graph, uint32_t rank)
{
    return graph ? graph->hosts[exo_fit_host(graph, rank)].speed : 1;
}

exo_time
exo_fit_step_cost(const exo_graph_spec *graph)
{
    const exo_actor_spec *nodes = graph ? &graph->actors[0] : NULL;
    for (size_t i = 0; nodes && i < nodes->num_compute; i++)
        if (strcmp(nodes->compute[i].phase, "step") == 0)
            return nodes->compute[i].cost;
    return -1;
}

const exo_edge_spec *
exo_fit_edge(const exo_graph_spec *graph)
{
    return graph && graph->num_edges ? &graph->edges[0] : NULL;
}

/* For plans, the edge's codec also states a selection that the strategy makes itself, such as
 * SPARTA's. A collective cannot use that as its codec. */
const char *
exo_fit_edge_codec(const exo_graph_spec *graph)
{
    const exo_edge_spec *edge = exo_fit_edge(graph);
    exo_codec *codec = NULL;
    size_t size = 0;
    bool own = !edge || exo_codec_parse(&codec, edge->codec_text, NULL) != EXO_OK ||
               !exo_codec_is_stateless(codec) || !exo_codec_size(codec, 1, &size);
    exo_codec_free(&codec);
    return own ? NULL : edge->codec_text;
}

/* --- The record ------------------------------------------------------------------------------- */

static void
release_fit(exo_shared *shared)
{
    exo_fit *fit = (exo_fit *)shared;
    exo_comm_drop(&fit->comm);
    exo_comm_drop(&fit->side);
    for (uint32_t r = 0; fit->paces && r < fit->num_nodes; r++)
        exo_pace_release(&fit->paces[r]);
    for (uint32_t r = 0; fit->train && r < fit->num_nodes; r++)
        exo_dataset_drop(&fit->train[r]);
    exo_dataset_drop(&fit->val);
    exo_model_drop(&fit->model);
    for (uint32_t r = 0; fit->parts && r < exo_fit_sharing(fit); r++)
        exo_model_drop(&fit->parts[r]);
    exo_free(fit->parts);
    exo_tape_pool_release(&fit->train_tapes);
    exo_tape_pool_release(&fit->eval_tapes);
    exo_links_free(&fit->links);
    if (fit->sim)
        exo_sim_hold(fit->sim, false); /* events that are left drop what they hold */
    exo_sim_free(&fit->sim);
    exo_graph_spec_free(&fit->own_graph);
    exo_free(fit->figures);
    exo_free(fit->paces);
    exo_free(fit->outages);
    exo_free(fit->train);
    exo_free(fit->val_order);
}

static exo_shared_list fits = EXO_SHARED_LIST(exo_fit, release_fit);

exo_status
exo_fit_new(exo_fit **out, uint32_t num_nodes, exo_err *err)
{
    exo_fit *fit = (exo_fit *)exo_shared_new(&fits);
    if (!fit)
        return exo_fail(err, EXO_NOMEM, "no memory for a run");
    fit->num_nodes = num_nodes;
    fit->tensor = fit->stages = fit->context = 1;
    snprintf(fit->device, sizeof fit->device, "cpu"); /* the default */
    *out = fit;
    return EXO_OK;
}

/* A number of nodes for exo_share, which has 0 for one. */
static uint32_t
several(uint32_t count)
{
    return count > 1 ? count : 0;
}

exo_share
exo_fit_share_of(const exo_fit *fit, uint32_t rank)
{
    const exo_fit_place place = exo_fit_place_of(fit, rank);
    return (exo_share){.part = place.part,
                       .parts = several(fit->tensor),
                       .sequence = fit->sequence,
                       .member = place.member,
                       .members = several(fit->context),
                       .stage = place.stage,
                       .stages = several(fit->stages)};
}

exo_status
exo_fit_make_parts(exo_fit *fit, uint32_t tensor, uint32_t stages, exo_err *err)
{
    exo_status st = EXO_OK;
    fit->tensor = tensor > 1 ? tensor : 1;
    fit->stages = stages > 1 ? stages : 1;
    fit->context = fit->context > 1 ? fit->context : 1;
    const uint32_t sharing = exo_fit_sharing(fit);
    if (sharing == 1)
        return EXO_OK;
    fit->parts = exo_calloc(sharing, sizeof *fit->parts);
    if (!fit->parts)
        return exo_fail(err, EXO_NOMEM, "no memory for the parts of %u nodes", sharing);
    for (uint32_t r = 0; st == EXO_OK && r < sharing; r++) {
        const exo_share share = exo_fit_share_of(fit, r);
        st = exo_model_share(&fit->parts[r], fit->model, &share, err);
    }
    return st;
}

exo_model *
exo_fit_model_of(const exo_fit *fit, uint32_t rank)
{
    return fit->parts ? fit->parts[rank % exo_fit_sharing(fit)] : fit->model;
}

exo_fit_place
exo_fit_place_of(const exo_fit *fit, uint32_t rank)
{
    const uint32_t at = rank % exo_fit_sharing(fit);
    return (exo_fit_place){.part = at % fit->tensor,
                           .member = at / fit->tensor % fit->context,
                           .stage = at / fit->tensor / fit->context};
}

uint32_t
exo_fit_sharing(const exo_fit *fit)
{
    return fit->tensor * fit->stages * fit->context;
}

uint32_t
exo_fit_copies(const exo_fit *fit)
{
    return fit->num_nodes / exo_fit_sharing(fit);
}

bool
exo_fit_has_loss(const exo_fit *fit, uint32_t rank)
{
    return exo_fit_place_of(fit, rank).stage == fit->stages - 1;
}

uint32_t
exo_fit_first_with_loss(const exo_fit *fit)
{
    return (fit->stages - 1) * fit->context * fit->tensor;
}

/* The key contains the runtime, so runs of two runtimes differ even if their names are equal. */
static char *
key_of(exo_runtime *runtime, const char *run)
{
    return exo_text_make(NULL, "%p %s", (void *)runtime, run);
}

exo_status
exo_fit_put(exo_fit *fit, exo_runtime *runtime, const char *run, exo_err *err)
{
    char *key = key_of(runtime, run);
    fit->made = true;
    bool put = key && exo_shared_put(&fits, &fit->shared, key);
    exo_free(key);
    return put ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a run");
}

/* Holds the record of that name; a new one is zero except for its name. */
static exo_status
hold(exo_fit **out, exo_runtime *runtime, const char *run, exo_err *err)
{
    char *key = key_of(runtime, run);
    *out = key ? (exo_fit *)exo_shared_hold(&fits, key) : NULL;
    exo_free(key);
    return *out ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a run");
}

void
exo_fit_drop(exo_fit **fit)
{
    if (*fit)
        exo_shared_drop(&fits, &(*fit)->shared);
    *fit = NULL;
}

/* Empties a record that could not be made. */
static void
clear(exo_fit *fit)
{
    release_fit(&fit->shared);
    memset((char *)fit + sizeof fit->shared, 0, sizeof *fit - sizeof fit->shared);
}

const char *
exo_fit_name(const exo_fit *fit)
{
    return strchr(fit->shared.name, ' ') + 1;
}

exo_status
exo_fit_plan_evaluation(exo_fit *fit, size_t most, exo_err *err)
{
    if (!fit->val)
        return EXO_OK;
    size_t length = exo_dataset_length(fit->val);
    if (length == 0)
        return exo_fail(err, EXO_INVAL,
                        "the validation set is empty; without a set, or with val_size "
                        "EXO_VAL_NONE, nothing is evaluated");
    fit->val_count = most && most < length ? most : length;
    return exo_eval_order(length, fit->val_count, fit->seed, &fit->val_order, err);
}

bool
exo_fit_comm_edge(const exo_fit *fit, exo_comm_edge *out)
{
    const exo_edge_spec *edge = exo_fit_edge(fit->graph);
    *out = (exo_comm_edge){0};
    if (edge)
        *out = (exo_comm_edge){.name = edge->carries,
                               .links = fit->links,
                               .hosts = fit->graph->actors[0].hosts,
                               .sim = fit->sim,
                               .origin = fit->origin,
                               .codec = exo_fit_edge_codec(fit->graph)};
    out->way = exo_way_name(fit->way);
    out->any_bits = fit->any_bits;
    out->figures = fit->figures;
    return edge || fit->way != EXO_WAY_DIRECT;
}

exo_status
exo_fit_change(exo_fit *fit, exo_comm *comm, const exo_graph_spec *next, exo_err *err)
{
    pthread_mutex_lock(&fit->shared.making);
    exo_status st = fit->links ? exo_graph_change_links(fit->links, next, err) : EXO_OK;
    if (st == EXO_OK && exo_fit_edge(next))
        st = exo_comm_recode(comm, exo_fit_edge_codec(next), err);
    pthread_mutex_unlock(&fit->shared.making);
    return st;
}

/* --- Documents -------------------------------------------------------------------------------- */

exo_status
exo_fit_read_named(exo_config *document, const char *key, const char *what, const char **name,
                   exo_config **options, exo_err *err)
{
    exo_config *map = exo_config_get(document, key);
    *options = exo_config_is_map(map) ? map : NULL;
    exo_status st = *options ? exo_config_string(map, "name", NULL, name, err)
                             : exo_config_string(document, key, NULL, name, err);
    return st == EXO_OK && !*name
               ? exo_config_fail(document, err,
                                 "the key '%s' is missing: a node needs the name of %s", key, what)
               : st;
}

static exo_status
load_plugins(exo_fit *fit, exo_config *document, exo_err *err)
{
    exo_config *list = NULL, *builds = NULL;
    (void)fit;
    exo_status st = exo_config_list(document, "plugins", &list, err);
    if (st == EXO_OK)
        st = exo_config_list(document, "plugin_builds", &builds, err);
    for (size_t i = 0; st == EXO_OK && i < exo_config_length(list); i++) {
        const char *path = exo_config_scalar(exo_config_item(list, i));
        exo_config *item = i < exo_config_length(builds) ? exo_config_item(builds, i) : NULL;
        st = path ? exo_plugin_load_build(path, item ? exo_config_scalar(item) : NULL, err)
                  : exo_config_fail(exo_config_item(list, i), err,
                                    "plugins: expected the path of a plugin");
    }
    return st;
}

static exo_status
read_device(exo_fit *fit, exo_config *document, exo_err *err)
{
    const char *name = NULL;
    exo_status st = exo_config_string(document, "device", "cpu", &name, err);
    if (st == EXO_OK)
        st = exo_device_check(name, err);
    if (st == EXO_OK)
        snprintf(fit->device, sizeof fit->device, "%s", name);
    return st;
}

static exo_status
read_numbers(exo_fit *fit, exo_config *document, exo_err *err)
{
    uint64_t nodes = 0, batch = 0, minibatch = 0, timeout = 0;
    exo_status st = exo_config_u64(document, "nodes", 1, 1, EXO_FIT_MAX_NODES, &nodes, err);
    if (st == EXO_OK)
        st = exo_config_u64(document, "max_steps", 1, 1, INT64_MAX, &fit->max_steps, err);
    if (st == EXO_OK)
        st = exo_config_u64(document, "batch_size", 1, 1, UINT32_MAX, &batch, err);
    if (st == EXO_OK)
        st = exo_config_u64(document, "minibatch_size", batch, 1, batch, &minibatch, err);
    if (st == EXO_OK)
        st = exo_config_u64(document, "seed", 0, 0, INT64_MAX, &fit->seed, err);
    if (st == EXO_OK)
        st = exo_config_u64(document, "timeout_ms", 600000, EXO_FIT_MIN_TIMEOUT / EXO_MS,
                            EXO_FIT_MAX_TIMEOUT / EXO_MS, &timeout, err);
    if (st == EXO_OK)
        st = exo_config_bool(document, "shuffle", true, &fit->shuffle, err);
    if (st == EXO_OK)
        st = exo_fit_read_autocast(document, &fit->autocast, err);
    if (st == EXO_OK)
        st = exo_config_bool(document, "elastic", false, &fit->elastic, err);
    if (st == EXO_OK)
        st = exo_config_bool(document, "verify", false, &fit->verify, err);
    if (st == EXO_OK)
        st = read_device(fit, document, err);
    if (st == EXO_OK && batch % minibatch != 0)
        st = exo_config_fail(document, err,
                             "batch_size %llu is not a multiple of minibatch_size %llu",
                             (unsigned long long)batch, (unsigned long long)minibatch);
    fit->num_nodes = (uint32_t)nodes;
    fit->batch_size = batch;
    fit->minibatch_size = minibatch;
    fit->timeout = (exo_time)timeout * EXO_MS;
    return st;
}

static exo_status
read_checkpoint(exo_fit *fit, exo_config *document, exo_err *err)
{
    const char *path = NULL;
    exo_status st = exo_config_string(document, "resume_from", NULL, &path, err);
    if (st == EXO_OK && path && strlen(path) >= sizeof fit->resume_from)
        st = exo_fail(err, EXO_INVAL, "resume_from: the path is longer than %zu bytes",
                      sizeof fit->resume_from - 1);
    if (st == EXO_OK && path)
        snprintf(fit->resume_from, sizeof fit->resume_from, "%s", path);
    return st;
}

static exo_status
make_model(exo_fit *fit, exo_config *document, exo_err *err)
{
    const char *name = NULL;
    exo_config *options = NULL;
    uint64_t tensor = 1, stages = 1, context = 1;
    exo_status st = exo_fit_read_named(document, "model", "a model", &name, &options, err);
    if (st == EXO_OK)
        st = exo_model_new_named(&fit->model, name, options, err);
    if (st == EXO_OK)
        st = exo_config_u64(document, "tensor", 1, 1, fit->num_nodes, &tensor, err);
    if (st == EXO_OK)
        st = exo_config_u64(document, "pipeline", 1, 1, fit->num_nodes, &stages, err);
    if (st == EXO_OK)
        st = exo_config_u64(document, "context", 1, 1, fit->num_nodes, &context, err);
    if (st == EXO_OK)
        st = exo_config_bool(document, "sequence", false, &fit->sequence, err);
    fit->context = (uint32_t)context;
    const uint64_t sharing = tensor * stages * context;
    if (st == EXO_OK && fit->num_nodes % sharing != 0)
        st = exo_config_fail(document, err,
                             "tensor %llu, pipeline %llu and context %llu do not cut %u nodes",
                             (unsigned long long)tensor, (unsigned long long)stages,
                             (unsigned long long)context, fit->num_nodes);
    return st == EXO_OK ? exo_fit_make_parts(fit, (uint32_t)tensor, (uint32_t)stages, err) : st;
}

static exo_status
make_data(exo_fit *fit, exo_config *document, exo_err *err)
{
    const char *name = NULL;
    exo_config *options = NULL;
    exo_dataset *train = NULL;
    bool split = false, validate = true;
    exo_status st = exo_fit_read_named(document, "data", "data", &name, &options, err);
    if (st == EXO_OK && options)
        st = exo_config_bool(options, "split_by_node", false, &split, err);
    if (st == EXO_OK)
        st = exo_config_bool(document, "validate", true, &validate, err);
    if (st == EXO_OK)
        st = exo_dataset_named(name, options, &train, validate ? &fit->val : NULL, err);
    fit->shared_data = !split;
    if (st == EXO_OK && !(fit->train = exo_calloc(fit->num_nodes, sizeof *fit->train)))
        st = exo_fail(err, EXO_NOMEM, "no memory for the data of %u nodes", fit->num_nodes);
    for (uint32_t r = 0; st == EXO_OK && r < fit->num_nodes; r++)
        if (split)
            st = exo_dataset_split(&fit->train[r], train, r / exo_fit_sharing(fit),
                                   exo_fit_copies(fit), err);
        else
            fit->train[r] = exo_dataset_hold(train);
    exo_dataset_drop(&train);
    return st;
}

/* Reads the job's graph, if the document has one, and makes the emulated links over which the nodes
 * of this process send. */
static exo_status
make_network(exo_fit *fit, exo_config *document, exo_err *err)
{
    const char *text = NULL;
    uint64_t elapsed = 0;
    exo_status st = exo_config_string(document, "graph", NULL, &text, err);
    if (st == EXO_OK && text)
        st = exo_config_u64(document, "elapsed_ns", 0, 0, INT64_MAX, &elapsed, err);
    if (st != EXO_OK || !text)
        return st;
    fit->origin = exo_now(exo_clock_real()) - (exo_time)elapsed;
    st = exo_graph_parse(&fit->own_graph, "graph", text, NULL, err);
    fit->graph = fit->own_graph;
    if (st == EXO_OK &&
        (fit->graph->num_actors != 1 || fit->graph->actors[0].count != fit->num_nodes))
        st = exo_fail(err, EXO_INVAL,
                      "graph: expected one actor with count %u, for the nodes of the job",
                      fit->num_nodes);
    return st == EXO_OK && fit->graph->emulated ? exo_graph_links(fit->graph, &fit->links, err)
                                                : st;
}

static exo_status
choose_engine(exo_fit *fit, exo_config *document, exo_err *err)
{
    const char *engine = NULL, *way = NULL;
    exo_status st = exo_config_string(document, "engine", NULL, &engine, err);
    if (st == EXO_OK)
        st = exo_config_string(document, "collectives", NULL, &way, err);
    if (st == EXO_OK)
        st = exo_config_bool(document, "any_bits", false, &fit->any_bits, err);
    if (st == EXO_OK)
        st = exo_config_bool(document, "engine_suspends", false, &fit->engine_suspends, err);
    /* equal_bits is false here: the trainer has checked the engine's promises. */
    if (st == EXO_OK)
        st = exo_comm_find_engine(&fit->engine, engine, false, err);
    return st == EXO_OK ? exo_fit_find_way(&fit->way, way, fit->engine, false, err) : st;
}

static exo_status
choose_links(exo_fit *fit, exo_config *document, exo_err *err)
{
    const char *links = NULL;
    exo_status st = exo_config_bool(document, "measure_links", false, &fit->measures, err);
    if (st == EXO_OK)
        st = exo_config_string(document, "links", NULL, &links, err);
    if (st == EXO_OK && fit->measures)
        st = exo_fit_check_links("measured", fit->way, fit->num_nodes, false, err);
    if (st == EXO_OK && links &&
        (st = exo_fit_parse_links(&fit->figures, links, fit->num_nodes, err)) != EXO_OK)
        exo_fail_in(err, st, "links");
    return st;
}

static exo_status
plan_evaluation(exo_fit *fit, exo_config *document, exo_err *err)
{
    uint64_t most = 0;
    exo_status st = exo_config_u64(document, "val_size", 0, 0, UINT32_MAX, &most, err);
    return st == EXO_OK ? exo_fit_plan_evaluation(fit, most, err) : st;
}

static exo_status
check_host(exo_fit *fit, exo_config *document, exo_err *err)
{
    return exo_fit_check_host(fit, document, err);
}

static exo_status
make_fit(exo_fit *fit, exo_config *document, exo_err *err)
{
    static exo_status (*const parts[])(exo_fit *, exo_config *, exo_err *) = {
        load_plugins, read_numbers,  read_checkpoint, make_model,      make_data,
        make_network, choose_engine, choose_links,    plan_evaluation, check_host};
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < sizeof parts / sizeof *parts; i++)
        st = parts[i](fit, document, err);
    return st;
}

exo_status
exo_fit_open(exo_fit **out, exo_runtime *runtime, exo_config *document, exo_err *err)
{
    const char *run = NULL;
    exo_status st = exo_config_string(document, "run", NULL, &run, err);
    if (st == EXO_OK && !run)
        st = exo_config_fail(document, err,
                             "the key 'run' is missing: a node needs the name of its run");
    if (st == EXO_OK)
        st = hold(out, runtime, run, err);
    if (st != EXO_OK)
        return st;
    exo_fit *fit = *out;
    pthread_mutex_lock(&fit->shared.making);
    if (!fit->made)
        st = make_fit(fit, document, err);
    if (st != EXO_OK)
        clear(fit);
    fit->made = st == EXO_OK;
    pthread_mutex_unlock(&fit->shared.making);
    if (st != EXO_OK)
        exo_fit_drop(out);
    return st;
}
