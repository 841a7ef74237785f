/* What is in a cluster, as JSON. */
#include <inttypes.h>

#include <jansson.h>

#include <exogym/memory.h>

#include "cluster_impl.h"

static json_t *
amounts(Exo__Cluster__Resource *const *list, size_t count)
{
    json_t *json = json_object();
    for (size_t i = 0; i < count; i++)
        json_object_set_new(json, list[i]->name, json_real(list[i]->amount));
    return json;
}

static json_t *
hex(uint64_t number)
{
    return json_sprintf("%016" PRIx64, number);
}

static json_t *
node_json(const Exo__Cluster__NodeInfo *n)
{
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:I, s:I}", "name", n->name, "kind", n->kind, "state", n->state, "address",
                  n->endpoint, "pid", (int)n->pid, "actors", (json_int_t)n->actors, "since", (json_int_t)n->since);
    json_object_set_new(json, "id", hex(n->node));
    json_object_set_new(json, "total", amounts(n->total, n->n_total));
    json_object_set_new(json, "free", amounts(n->free, n->n_free));
    if (n->cause[0])
        json_object_set_new(json, "cause", json_string(n->cause));
    return json;
}

static json_t *
actor_json(const Exo__Cluster__Actor *a)
{
    json_t *json = json_pack("{s:I, s:s, s:s, s:s, s:s, s:s, s:I, s:b, s:s, s:I}", "key", (json_int_t)a->key, "name",
                             a->name, "namespace", a->space, "class", a->class_name, "state", a->state, "node",
                             a->node_name, "life", (json_int_t)a->incarnation, "detached", (int)a->detached, "job",
                             a->job, "since", (json_int_t)a->since);
    if (a->cause[0])
        json_object_set_new(json, "cause", json_string(a->cause));
    return json;
}

static json_t *
listing_json(const Exo__Cluster__Listing *listing)
{
    json_t *nodes = json_array(), *actors = json_array(), *jobs = json_array();
    for (size_t i = 0; i < listing->n_nodes; i++)
        json_array_append_new(nodes, node_json(listing->nodes[i]));
    for (size_t i = 0; i < listing->n_actors; i++)
        json_array_append_new(actors, actor_json(listing->actors[i]));
    for (size_t i = 0; i < listing->n_jobs; i++) {
        const Exo__Cluster__Job *j = listing->jobs[i];
        json_array_append_new(jobs, json_pack("{s:s, s:s, s:s, s:I, s:I}", "name", j->name, "state", j->state, "cause",
                                              j->cause, "began", (json_int_t)j->began, "ended", (json_int_t)j->ended));
    }
    return json_pack("{s:s, s:s, s:I, s:o, s:o, s:o}", "cluster", listing->cluster, "version", listing->version,
                     "began", (json_int_t)listing->began, "nodes", nodes, "actors", actors, "jobs", jobs);
}

exo_status
exo_cluster_list(exo_cluster *cluster, exo_time deadline, char **out, exo_err *err)
{
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    *out = NULL;
    exo_status st = exo_cluster_call_head(cluster, "list", NULL, deadline, &future, &reply, err);
    if (st != EXO_OK)
        return st;
    Exo__Cluster__Listing *listing = EXO_UNPACK(Exo__Cluster__Listing, exo__cluster__listing, reply);
    json_t *json = listing ? listing_json(listing) : NULL;
    size_t size = json ? json_dumpb(json, NULL, 0, JSON_INDENT(2)) : 0;
    if (size > 0 && (*out = exo_calloc(1, size + 1)))
        json_dumpb(json, *out, size, JSON_INDENT(2));
    json_decref(json);
    EXO_RELEASE(listing);
    exo_future_drop(&future);
    return *out ? EXO_OK : exo_fail(err, EXO_FAILED, "the head's list cannot be read");
}
