/* The contents of a cluster as JSON, and a job's report. Keeps nothing; runs on the caller's
 * thread. */
#include <inttypes.h>
#include <string.h>

#include <jansson.h>

#include <exogym/memory.h>

#include "actor/hooks.h"
#include "cluster/cluster_impl.h"
#include "cluster/quota.h"
#include "cluster/remote.h"

#define ANSWER (2 * EXO_SECOND) /* of a process that is asked for its objects */

/* A JSON string. JSON is UTF-8, but names and causes may have any bytes, and a text may be cut
 * within a character; bytes other than ASCII are then replaced. */
static json_t *
text_of(const char *text)
{
    json_t *json = json_string(text);
    char *plain = json ? NULL : exo_strdup(text);
    for (char *c = plain; c && *c; c++)
        if ((unsigned char)*c > 126)
            *c = '?';
    if (!json)
        json = json_string(plain ? plain : "?");
    exo_free(plain);
    return json;
}

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
    json_t *json = json_pack("{s:o, s:o, s:o, s:o, s:i, s:I, s:I}", "name", text_of(n->name),
                             "kind", text_of(n->kind), "state", text_of(n->state), "address",
                             text_of(n->endpoint), "pid", (int)n->pid, "actors",
                             (json_int_t)n->actors, "since", (json_int_t)n->since);
    json_object_set_new(json, "id", hex(n->node));
    json_object_set_new(json, "host", text_of(n->host));
    json_object_set_new(json, "total", amounts(n->total, n->n_total));
    json_object_set_new(json, "free", amounts(n->free, n->n_free));
    json_object_set_new(json, "version", text_of(n->version));
    if (n->cause[0])
        json_object_set_new(json, "cause", text_of(n->cause));
    return json;
}

static json_t *
actor_json(const Exo__Cluster__Actor *a)
{
    json_t *json = json_pack(
        "{s:I, s:o, s:o, s:o, s:o, s:o, s:I, s:b, s:o, s:I}", "key", (json_int_t)a->key, "name",
        text_of(a->name), "namespace", text_of(a->space), "class", text_of(a->class_name), "state",
        text_of(a->state), "node", text_of(a->node_name), "life", (json_int_t)a->incarnation,
        "detached", (int)a->detached, "job", text_of(a->job), "since", (json_int_t)a->since);
    if (a->cause[0])
        json_object_set_new(json, "cause", text_of(a->cause));
    if (a->gpus) {
        json_t *gpus = json_array();
        for (int g = 0; g < EXO_MAX_GPUS; g++)
            if (a->gpus >> g & 1)
                json_array_append_new(gpus, json_integer(g));
        json_object_set_new(json, "gpus", gpus);
    }
    return json;
}

static json_t *
holding_json(const Exo__Cluster__Holding *p)
{
    const struct {
        exo_quota quota;
        uint64_t held;
    } counts[] = {{EXO_QUOTA_NODES, p->nodes},
                  {EXO_QUOTA_JOBS, p->jobs},
                  {EXO_QUOTA_ACTORS, p->actors},
                  {EXO_QUOTA_NAMES, p->names},
                  {EXO_QUOTA_SPAWNS, p->spawns},
                  {EXO_QUOTA_FINDS, p->finds},
                  {EXO_QUOTA_LOGS, p->logs},
                  {EXO_QUOTA_WAITING, p->waiting},
                  {EXO_QUOTA_LENT, p->lent},
                  {EXO_QUOTA_WAITING_BYTES, p->waiting_bytes},
                  {EXO_QUOTA_LENT_BYTES, p->lent_bytes},
                  {EXO_QUOTA_REFERENCES, p->references},
                  {EXO_QUOTA_MONITORS, p->monitors}};
    json_t *json = json_object();
    json_object_set_new(json, "id", hex(p->node));
    json_object_set_new(json, "name", text_of(p->name));
    if (p->by[0])
        json_object_set_new(json, "by", text_of(p->by));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        json_object_set_new(json, exo_quota_name(counts[i].quota),
                            json_integer((json_int_t)counts[i].held));
    return json;
}

static json_t *
job_json(const Exo__Cluster__Job *j)
{
    json_t *job = json_pack("{s:o, s:o, s:o, s:I, s:I}", "name", text_of(j->name), "state",
                            text_of(j->state), "cause", text_of(j->cause), "began",
                            (json_int_t)j->began, "ended", (json_int_t)j->ended);
    json_t *report = j->report[0] ? json_loads(j->report, 0, NULL) : NULL;
    if (json_is_object(report)) /* the text is a driver's, and the head does not check it */
        json_object_set(job, "report", report);
    json_decref(report);
    return job;
}

/* The whole listing, from its first part. `actors` has the actors of all parts. */
static json_t *
listing_json(const Exo__Cluster__Listing *listing, json_t *actors)
{
    json_t *nodes = json_array(), *jobs = json_array(), *peers = json_array();
    for (size_t i = 0; i < listing->n_peers; i++)
        json_array_append_new(peers, holding_json(listing->peers[i]));
    for (size_t i = 0; i < listing->n_nodes; i++)
        json_array_append_new(nodes, node_json(listing->nodes[i]));
    for (size_t i = 0; i < listing->n_jobs; i++)
        json_array_append_new(jobs, job_json(listing->jobs[i]));
    return json_pack("{s:o, s:o, s:I, s:i, s:o, s:o, s:O, s:o, s:o}", "cluster",
                     text_of(listing->cluster), "version", text_of(listing->version), "began",
                     (json_int_t)listing->began, "pid", (int)listing->pid, "host",
                     text_of(listing->host), "nodes", nodes, "actors", actors, "jobs", jobs,
                     "peers", peers);
}

/* Asks for the part of the list after that actor; 0: the first part. The caller releases *out with
 * EXO_RELEASE. */
static exo_status
ask_list(exo_cluster *cluster, uint64_t after, exo_time deadline, Exo__Cluster__Listing **out,
         exo_err *err)
{
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    Exo__Cluster__Name args = EXO__CLUSTER__NAME__INIT;
    args.key = after;
    exo_status st =
        exo_cluster_call_head(cluster, "list", &args.base, true, deadline, &future, &reply, err);
    if (st != EXO_OK)
        return st;
    *out = EXO_UNPACK(Exo__Cluster__Listing, exo__cluster__listing, reply);
    exo_future_drop(&future);
    return *out ? EXO_OK : exo_fail(err, EXO_FAILED, "the head's list cannot be read");
}

exo_status
exo_cluster_report(exo_cluster *cluster, const char *json, exo_time deadline, exo_err *err)
{
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    if (cluster->role != EXO_ROLE_DRIVER)
        return exo_fail(err, EXO_INVAL, "only a driver has a job to report of");
    json_t *object = json_loads(json, 0, NULL);
    bool fine = json_is_object(object);
    json_decref(object);
    if (!fine)
        return exo_fail(err, EXO_INVAL, "a report is a JSON object");
    Exo__Cluster__Report args = EXO__CLUSTER__REPORT__INIT;
    args.job = cluster->job;
    args.node = exo_net_node(exo_remote_net(cluster->remote));
    args.json = exo_pb_text(json);
    exo_status st =
        exo_cluster_call_head(cluster, "report", &args.base, true, deadline, &future, &reply, err);
    exo_future_drop(&future);
    return st;
}

exo_status
exo_cluster_list(exo_cluster *cluster, exo_time deadline, char **out, exo_err *err)
{
    json_t *json = NULL, *actors = json_array();
    uint64_t after = 0;
    exo_status st = EXO_OK;
    *out = NULL;
    do {
        Exo__Cluster__Listing *part = NULL;
        st = ask_list(cluster, after, deadline, &part, err);
        for (size_t i = 0; part && i < part->n_actors; i++)
            json_array_append_new(actors, actor_json(part->actors[i]));
        if (part && !json)
            json = listing_json(part, actors);
        after = part ? part->more : 0;
        EXO_RELEASE(part);
    } while (st == EXO_OK && after);
    size_t size = st == EXO_OK && json ? json_dumpb(json, NULL, 0, JSON_INDENT(2)) : 0;
    if (size > 0 && (*out = exo_calloc(1, size + 1)))
        json_dumpb(json, *out, size, JSON_INDENT(2));
    json_decref(json);
    json_decref(actors);
    return *out || st != EXO_OK ? st : exo_fail(err, EXO_FAILED, "the head's list cannot be read");
}

/* --- Objects ---------------------------------------------------------------------------------- */

static void
add_objects(json_t *list, const char *node, const exo_payload *reply)
{
    exo_remote_object o;
    for (size_t at = 0; at + sizeof o <= reply->size; at += sizeof o) {
        memcpy(&o, (const char *)reply->data + at, sizeof o);
        json_t *json = json_pack("{s:o, s:I, s:i, s:i, s:b, s:b, s:b}", "node", text_of(node),
                                 "bytes", (json_int_t)o.size, "references", (int)o.references,
                                 "borrowers", (int)o.borrowers, "sealed", (int)o.sealed, "imported",
                                 (int)o.imported, "on_device", (int)o.elsewhere);
        json_object_set_new(json, "id", json_sprintf("%016" PRIx64 ".%u", o.nonce, o.slot));
        if (o.elsewhere && !o.imported)
            json_object_set_new(json, "gpu", json_integer(o.place));
        json_array_append_new(list, json);
    }
}

/* The question to one process. */
struct asked {
    const char *node;
    exo_future *future; /* NULL: it could not be asked */
    exo_err reason;
};

/* Asks a process for its objects. One that is stopped cannot be reached: it takes a share of the time, so
 * that it hides no other. */
static void
ask_node(exo_cluster *cluster, const Exo__Cluster__NodeInfo *node, size_t left, exo_time deadline,
         struct asked *out)
{
    void *context;
    const exo_remote_ops *remote = exo_runtime_remote(exo_cluster_runtime(cluster), &context);
    const exo_time now = exo_now(exo_clock_real());
    const exo_time share = now < deadline ? (deadline - now) / (exo_time)(left + 1) : 0;
    exo_payload none = {0};
    out->node = node->name;
    exo_status st =
        remote->call_node(context, node->node, EXO_REMOTE_OBJECTS, &none,
                          now + (share < ANSWER ? share : ANSWER), &out->future, &out->reason);
    if (st != EXO_OK)
        out->future = NULL;
}

static void
take_objects(json_t *list, struct asked *from, exo_time deadline)
{
    const exo_payload *reply = NULL;
    exo_status st =
        from->future ? exo_wait(from->future, deadline, &reply, &from->reason) : EXO_FAILED;
    if (st == EXO_OK)
        add_objects(list, from->node, reply);
    else if (st != EXO_PEER_LOST) /* it ends just now */
        json_array_append_new(list,
                              json_pack("{s:o, s:o, s:b}", "node", text_of(from->node), "error",
                                        text_of(from->reason.text), "denied", st == EXO_DENIED));
    exo_future_drop(&from->future);
}

exo_status
exo_cluster_list_objects(exo_cluster *cluster, exo_time deadline, char **out, exo_err *err)
{
    Exo__Cluster__Listing *listing = NULL;
    size_t count = 0;
    *out = NULL;
    exo_status st = ask_list(cluster, 0, deadline, &listing, err);
    if (st != EXO_OK)
        return st;
    struct asked *asked = exo_calloc(listing->n_nodes + 1, sizeof *asked);
    json_t *list = asked ? json_array() : NULL;
    for (size_t i = 0; list && i < listing->n_nodes; i++)
        if (strcmp(listing->nodes[i]->state, "alive") == 0)
            ask_node(cluster, listing->nodes[i], listing->n_nodes - i, deadline, &asked[count++]);
    for (size_t i = 0; i < count; i++)
        take_objects(list, &asked[i], deadline);
    exo_free(asked);
    size_t size = list ? json_dumpb(list, NULL, 0, JSON_INDENT(2)) : 0;
    if (size > 0 && (*out = exo_calloc(1, size + 1)))
        json_dumpb(list, *out, size, JSON_INDENT(2));
    json_decref(list);
    EXO_RELEASE(listing);
    return *out ? EXO_OK : exo_fail(err, EXO_FAILED, "the head's list cannot be read");
}
