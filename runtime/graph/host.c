/* The actor class of graph actors: see host.h. */
#include "graph/host.h"

#include <jansson.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/object.h>

#include "comm/edge.h"
#include "comm/far.h"
#include "report/traffic_json.h"

enum {
    RUN,
    MAIL,
    CHANGE,
    MAIL_CAPACITY = 1 << 20
};

/* A class's init reads the graph's document, which belongs to one thread at a time. */
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;

struct host {
    exo_place *place;
    void *self; /* the class's state */
    bool inited;
    exo_site *site; /* to be given back: of a worker */
    exo_ref actor;
    atomic_int
        stage; /* the run lane moves it on; a message may come from any process of the cluster, before its time or twice */
};

enum {
    MADE,
    CONNECTED,
    RUN_BEGUN,
    OVER /* it has run, or could not be connected */
};

/* The head of what a worker's actor is started with; three texts follow, each with its 0. */
struct far_start {
    uint32_t actor, index;
    uint32_t space, source, text; /* lengths, with the 0 */
};

/* --- Start and stop --------------------------------------------------------------------------------------------------------------- */

static void
host_stop(void *self)
{
    struct host *h = self;
    if (h->place) {
        exo_place_stop(h->place);
        for (size_t i = 0; i < h->place->spec->class->num_ports; i++)
            if (h->place->groups[i].comm && !h->place->actor.site->whole)
                exo_comm_far_disconnect(h->place->groups[i].comm);
        if (h->inited && h->place->spec->class->release)
            h->place->spec->class->release(h->self);
    }
    exo_free(h->self);
    exo_place_free(&h->place);
    exo_site_drop(&h->site);
}

static exo_status
make_instance(struct host *h, exo_err *err)
{
    const exo_graph_class *class = h->place->spec->class;
    h->self = exo_calloc(1, class->state_size ? class->state_size : 1);
    if (!h->self)
        return exo_fail(err, EXO_NOMEM, "no memory for an actor");
    h->inited = true;
    pthread_mutex_lock(&reading);
    exo_status st = class->init ? class->init(h->self, h->place->spec->config, err) : EXO_OK;
    pthread_mutex_unlock(&reading);
    return st;
}

/* The communicator of a collective: the site's, or one of our own, to which messages may come before it is connected. */
static exo_status
make_collective(struct host *h, exo_port_group *g, exo_err *err)
{
    exo_place *p = h->place;
    exo_site *site = p->actor.site;
    if (site->whole) {
        g->comm = exo_comm_hold(site->comms[g->id]);
        return EXO_OK;
    }
    const exo_comm_edge on = {.name = g->edge->name,
                              .links = site->links[g->id],
                              .hosts = p->spec->hosts,
                              .flow = g->id,
                              .origin = site->origin,
                              .codec = g->edge->codec_text};
    const exo_comm_far_opts opts = {.runtime = p->runtime,
                                    .size = p->spec->count,
                                    .rank = p->actor.index,
                                    .channel = g->id,
                                    .method = "collective",
                                    .edge = &on};
    return exo_comm_far(&g->comm, &opts, err);
}

static exo_status
begin(struct host *h, exo_call_context *call, exo_site *site, uint32_t actor, uint32_t index, exo_err *err)
{
    h->actor = exo_call_self(call);
    exo_status st = exo_place_new(&h->place, site, actor, index, exo_call_runtime(call), err);
    for (size_t i = 0; st == EXO_OK && i < h->place->spec->class->num_ports; i++)
        if (h->place->groups[i].edge)
            st = make_collective(h, &h->place->groups[i], err);
    if (st == EXO_OK)
        st = make_instance(h, err);
    if (st != EXO_OK)
        host_stop(h); /* an actor whose start failed is never stopped */
    return st;
}

static exo_status
local_start(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    const exo_host_start *start = args->data;
    struct host *h = self;
    if (args->size != sizeof *start)
        return exo_fail(err, EXO_INVAL, "a graph actor of this process is started with its place");
    exo_status st = begin(h, call, start->site, start->actor, start->index, err);
    if (st != EXO_OK)
        return st;
    start->site->places[start->site->first[start->actor] + start->index] = h->place;
    if (start->place)
        *start->place = h->place;
    return EXO_OK;
}

exo_status
exo_host_start_text(exo_payload *out, const char *space, const char *source, const char *text, uint32_t actor,
                    uint32_t index, exo_err *err)
{
    const struct far_start start = {.actor = actor,
                                    .index = index,
                                    .space = (uint32_t)strlen(space) + 1,
                                    .source = (uint32_t)strlen(source) + 1,
                                    .text = (uint32_t)strlen(text) + 1};
    size_t size = sizeof start + start.space + start.source + start.text;
    char *bytes = exo_calloc(1, size);
    if (!bytes)
        return exo_fail(err, EXO_NOMEM, "no memory for a graph");
    char *at = bytes + sizeof start;
    memcpy(bytes, &start, sizeof start);
    memcpy(at, space, start.space);
    memcpy(at + start.space, source, start.source);
    memcpy(at + start.space + start.source, text, start.text);
    *out = (exo_payload){.data = bytes, .size = size, .release = exo_free};
    return EXO_OK;
}

static exo_status
start_from_text(exo_call_context *call, struct host *h, const exo_payload *args, exo_err *err)
{
    struct far_start start;
    if (args->size < sizeof start)
        return exo_fail(err, EXO_INVAL, "a graph actor is started with a graph");
    memcpy(&start, args->data, sizeof start);
    const char *space = (const char *)args->data + sizeof start, *source = space + start.space,
               *text = source + start.source;
    if (!start.space || !start.source || !start.text ||
        args->size - sizeof start != (size_t)start.space + start.source + start.text || source[-1] || text[-1] ||
        text[start.text - 1])
        return exo_fail(err, EXO_INVAL, "a graph actor is started with a graph");
    exo_status st = exo_site_hold(&h->site, space, source, text, err);
    if (st != EXO_OK)
        return st;
    if (start.actor >= h->site->spec->num_actors || start.index >= h->site->spec->actors[start.actor].count) {
        exo_site_drop(&h->site);
        return exo_fail(err, EXO_INVAL, "the graph has no such actor");
    }
    return begin(h, call, h->site, start.actor, start.index, err);
}

static exo_status
far_start(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    exo_payload bytes = {0};
    exo_status st = exo_payload_stable(&bytes, args);
    st = st == EXO_OK ? start_from_text(call, self, &bytes, err) : exo_fail(err, st, "no memory for a graph");
    exo_payload_release(&bytes);
    return st;
}

/* A message without arguments, in its turn. */
static exo_status
check_call(struct host *h, const char *method, int stage, const exo_payload *args, exo_err *err)
{
    const char *name = h->place->actor.name;
    if (args->size != 0)
        return exo_fail(err, EXO_INVAL, "%s: %s takes no argument, and got %zu bytes", name, method, args->size);
    int now = h->stage;
    if (now != stage)
        return exo_fail(err, EXO_INVAL, "%s: %s comes %s", name, method,
                        now > stage     ? "a second time"
                        : stage == OVER ? "before its run is over"
                                        : "before it is connected");
    return EXO_OK;
}

/* --- connect ------------------------------------------------------------------------------------------------------------------------ */

/* Every actor at the other end of a channel of ours, and every member of our collectives. */
static exo_status
find_others(struct host *h, exo_ref *actors, exo_err *err)
{
    exo_place *p = h->place;
    const exo_site *site = p->actor.site;
    const exo_graph_spec *spec = site->graph;
    exo_status st = EXO_OK;
    for (size_t e = 0; e < spec->num_edges; e++) {
        const exo_edge_spec *edge = &spec->edges[e];
        for (int end = 0; end < 2; end++) {
            uint32_t mine = end ? edge->to : edge->from, other = end ? edge->from : edge->to;
            if (mine != p->spec_index)
                continue;
            for (uint32_t i = 0; st == EXO_OK && i < spec->actors[other].count; i++) {
                exo_ref *ref = &actors[site->first[other] + i];
                char name[128];
                snprintf(name, sizeof name, "%s_%u", spec->actors[other].name, i);
                if (other == p->spec_index && i == p->actor.index)
                    *ref = h->actor;
                else if (!ref->id)
                    st = exo_get_actor(p->runtime, site->space, name, ref, err);
            }
        }
    }
    return st;
}

static exo_status
join_collective(struct host *h, exo_port_group *g, const exo_ref *actors, exo_err *err)
{
    exo_place *p = h->place;
    const exo_site *site = p->actor.site;
    exo_status st = site->whole ? EXO_OK : exo_comm_far_connect(g->comm, actors + site->first[p->spec_index], err);
    if (st == EXO_OK)
        st = exo_group_open(&g->group, g->comm, p->actor.index, p->actor.name, err);
    if (st == EXO_OK)
        exo_group_set_timeout(g->group, g->edge->deadline);
    return st;
}

static exo_status
host_connect(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct host *h = self;
    exo_place *p = h->place;
    const exo_site *site = p->actor.site;
    (void)call;
    (void)reply;
    exo_ref *actors = NULL;
    exo_status st = check_call(h, "connect", MADE, args, err);
    if (st != EXO_OK)
        return st;
    if (!site->sim) {
        actors = exo_calloc(site->first[site->spec->num_actors] + 1, sizeof *actors);
        st = actors ? find_others(h, actors, err) : exo_fail(err, EXO_NOMEM, "no memory for a graph");
    }
    for (size_t i = 0; st == EXO_OK && i < p->spec->class->num_ports; i++)
        if (p->groups[i].edge)
            st = join_collective(h, &p->groups[i], actors, err);
    if (st == EXO_OK)
        st = exo_place_connect(p, actors, err);
    h->stage = st == EXO_OK ? CONNECTED : OVER;
    exo_free(actors);
    return st;
}

/* --- change -------------------------------------------------------------------------------------------------------------------------- */

/* The head of a change's message; the text follows with its 0, or nothing. */
struct change {
    uint64_t number;
    uint32_t step, text;
};

exo_status
exo_host_change_text(exo_payload *out, uint64_t number, exo_change_step step, const char *text, exo_err *err)
{
    const struct change change = {
        .number = number, .step = (uint32_t)step, .text = text ? (uint32_t)strlen(text) + 1 : 0};
    char *bytes = exo_calloc(1, sizeof change + change.text);
    if (!bytes)
        return exo_fail(err, EXO_NOMEM, "no memory for a change");
    memcpy(bytes, &change, sizeof change);
    if (text)
        memcpy(bytes + sizeof change, text, change.text);
    *out = (exo_payload){.data = bytes, .size = sizeof change + change.text, .release = exo_free};
    return EXO_OK;
}

static exo_status
change_by_text(struct host *h, const exo_payload *args, exo_err *err)
{
    exo_place *p = h->place;
    exo_site *site = p->actor.site;
    struct change change;
    if (args->size < sizeof change)
        return exo_fail(err, EXO_INVAL, "a change that is cut");
    memcpy(&change, args->data, sizeof change);
    const char *text = (const char *)args->data + sizeof change;
    if (change.text != args->size - sizeof change || (change.text && text[change.text - 1]))
        return exo_fail(err, EXO_INVAL, "a change that is cut");
    if (change.step != EXO_CHANGE_INPUTS && change.step != EXO_CHANGE_OUTPUTS)
        return exo_fail(err, EXO_INVAL, "a change has no step %u", change.step);
    if (h->stage < CONNECTED)
        return exo_fail(err, EXO_INVAL, "%s: a change comes before it is connected", p->actor.name);
    text = change.text ? text : NULL;
    exo_status st = site->whole ? EXO_OK : exo_site_change_to(site, change.number, site->spec->source, text, err);
    exo_ref *actors = exo_calloc(site->first[site->spec->num_actors] + 1, sizeof *actors);
    if (st == EXO_OK)
        st = actors ? find_others(h, actors, err) : exo_fail(err, EXO_NOMEM, "no memory for a change");
    if (st == EXO_OK)
        st = change.step == EXO_CHANGE_INPUTS ? exo_place_change_inputs(p, actors, err)
                                              : exo_place_change_outputs(p, actors, err);
    exo_free(actors);
    return st;
}

static exo_status
host_change(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    exo_payload bytes = {0};
    (void)call;
    (void)reply;
    exo_status st = exo_payload_stable(&bytes, args);
    st = st == EXO_OK ? change_by_text(self, &bytes, err) : exo_fail(err, st, "no memory for a change");
    exo_payload_release(&bytes);
    return st;
}

/* --- Reports ------------------------------------------------------------------------------------------------------------------------ */

static json_t *
number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *
traffic_json(const exo_edge_spec *edge, const exo_traffic *t)
{
    json_t *row = json_pack("{s:s}", "edge", edge->name);
    json_object_update_new(row, exo_traffic_json(t, EXO_TRAFFIC_NS));
    return row;
}

static json_t *
edges_json_locked(const exo_place *p)
{
    json_t *edges = json_array();
    for (size_t i = 0; i < p->spec->class->num_ports; i++) {
        for (uint32_t e = 0; e < p->ports[i].num_edges && !p->groups[i].edge; e++)
            json_array_append_new(edges, traffic_json(p->ports[i].edges[e]->edge, &p->ports[i].edges[e]->traffic));
        if (p->groups[i].group) {
            const exo_traffic traffic = exo_group_traffic(p->groups[i].group);
            json_array_append_new(edges, traffic_json(p->groups[i].edge, &traffic));
        }
    }
    return edges;
}

/* phases: only when nobody writes them any more. */
static exo_status
report(exo_place *p, bool phases, exo_payload *reply, exo_err *err)
{
    static const char *const kinds[] = {"compute", "send_blocked", "recv_blocked"};
    json_t *metrics = json_object(), *times = json_array();
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < p->num_metrics; i++)
        json_object_set_new(metrics, p->metrics[i].name, number(p->metrics[i].value));
    json_t *edges = edges_json_locked(p);
    pthread_mutex_unlock(&p->lock);
    for (size_t i = 0; phases && i < p->pace.track.num_totals; i++) {
        const exo_span_total *t = &p->pace.track.totals[i];
        json_array_append_new(times, json_pack("{s:s, s:s, s:I, s:I}", "name", t->name, "kind", kinds[t->kind],
                                               "time_ns", (json_int_t)t->time, "count", (json_int_t)t->count));
    }
    json_t *all =
        json_pack("{s:s, s:I, s:o, s:o, s:o}", "name", p->actor.name, "time_ns", (json_int_t)(phases ? p->ended_at : 0),
                  "metrics", metrics, "edges", edges, "phases", times);
    char *text = all ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    exo_status st = text ? exo_payload_copy(reply, text, strlen(text) + 1) : EXO_NOMEM;
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    release(text);
    return st == EXO_OK ? st : exo_fail(err, EXO_NOMEM, "no memory for a report");
}

static exo_status
host_look(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct host *h = self;
    exo_status st = check_call(h, "look", h->stage, args, err);
    (void)call;
    return st == EXO_OK ? report(h->place, false, reply, err) : st;
}

/* After run: also one that ended with an error, or was told to end. Nothing leaves any more, so the counts are the last ones. */
static exo_status
host_report(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct host *h = self;
    exo_status st = check_call(h, "report", OVER, args, err);
    (void)call;
    if (st != EXO_OK)
        return st;
    exo_place_stop(h->place);
    return report(h->place, true, reply, err);
}

static exo_status
host_waits(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    exo_time longer_than = 0;
    (void)call;
    if (args->size != sizeof longer_than)
        return exo_fail(err, EXO_INVAL, "how long does a wait last?");
    memcpy(&longer_than, args->data, sizeof longer_than);
    return exo_place_look(((struct host *)self)->place, longer_than, reply, err);
}

/* --- run ---------------------------------------------------------------------------------------------------------------------------- */

static exo_time
longest_deadline(const exo_place *p)
{
    exo_time longest = 0;
    for (size_t i = 0; i < p->spec->class->num_ports; i++)
        for (uint32_t e = 0; e < p->ports[i].num_edges; e++)
            if (p->ports[i].edges[e]->edge->deadline > longest)
                longest = p->ports[i].edges[e]->edge->deadline;
    return longest;
}

/* Who cannot go on says so to those who would wait for it in a collective. */
static void
fail_collectives(exo_place *p, const char *cause)
{
    for (size_t i = 0; i < p->spec->class->num_ports; i++)
        if (p->groups[i].comm)
            exo_comm_fail(p->groups[i].comm, p->actor.index, cause);
}

/* What ended the place is the end of its actor, whatever the class makes of it: it may have taken it for the end of the run. */
static exo_status
end_of_place(exo_place *p, exo_status st, exo_err *err)
{
    pthread_mutex_lock(&p->lock);
    if (p->failed.code != EXO_OK) {
        st = p->failed.code;
        *err = p->failed;
    }
    pthread_mutex_unlock(&p->lock);
    return st;
}

static exo_status
host_run(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct host *h = self;
    exo_place *p = h->place;
    exo_err reason = {0};
    (void)call;
    exo_status st = check_call(h, "run", CONNECTED, args, err);
    if (st != EXO_OK)
        return st;
    h->stage = RUN_BEGUN;
    p->pace.origin = p->actor.site->origin;
    exo_pace_enter(&p->pace);
    st = p->spec->class->run(h->self, &p->actor, &reason);
    exo_pace_phase(&p->pace, NULL, -1);
    if (st == EXO_OK)
        st = exo_place_finish(p, longest_deadline(p), &reason);
    if (st == EXO_OK || st == EXO_CANCELLED)
        st = end_of_place(p, st, &reason);
    p->ended_at = exo_pace_now(&p->pace);
    if (st != EXO_OK) { /* before the baton goes to those who wait for it, and time to their deadline */
        if (strncmp(reason.text, p->actor.name, strlen(p->actor.name)) != 0)
            exo_fail_in(&reason, st, "%s", p->actor.name);
        fail_collectives(p, reason.text);
    }
    h->stage = OVER;
    exo_pace_leave(&p->pace);
    return st == EXO_OK ? report(p, true, reply, err) : exo_fail(err, st, "%s", reason.text);
}

/* --- Mail --------------------------------------------------------------------------------------------------------------------------- */

void
exo_host_cancel(exo_place *place)
{
    exo_place_cancel(place);
    fail_collectives(place, "the run ends");
}

static exo_status
host_cancel(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct host *h = self;
    exo_status st = check_call(h, "cancel", h->stage, args, err);
    (void)call;
    (void)reply;
    if (st == EXO_OK)
        exo_host_cancel(h->place);
    return st;
}

static exo_status
host_channel(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    exo_payload message = {0};
    (void)args;
    (void)reply;
    (void)err;
    exo_call_take_args(call, &message);
    exo_place_deliver(((struct host *)self)->place, &message);
    return EXO_OK;
}

static exo_status
host_collective(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    exo_place *p = ((struct host *)self)->place;
    exo_payload message = {0};
    uint32_t channel = exo_comm_far_channel(args);
    (void)reply;
    for (size_t i = 0; i < p->spec->class->num_ports; i++) {
        if (!p->groups[i].comm || p->groups[i].id != channel || p->actor.site->whole)
            continue;
        exo_call_take_args(call, &message);
        return exo_comm_far_deliver(p->groups[i].comm, &message, err);
    }
    return exo_fail(err, EXO_INVAL, "a message that is for no collective of %s", p->actor.name);
}

static exo_status
host_abandon(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    struct host *h = self;
    char cause[EXO_ERR_TEXT];
    (void)call;
    (void)reply;
    (void)err;
    size_t length = args->size < sizeof cause ? args->size : sizeof cause - 1;
    snprintf(cause, sizeof cause, "%.*s", (int)length, length ? (const char *)args->data : "");
    fail_collectives(h->place, cause);
    return EXO_OK;
}

static const exo_lane_class lanes[] = {
    [RUN] = {.name = "run", .blocking = true},
    [MAIL] = {.name = "mail", .capacity = MAIL_CAPACITY},
    [CHANGE] = {.name = "change", .blocking = true},
};

static const exo_method methods[] = {
    {.name = "connect", .lane = RUN, .run = host_connect},
    {.name = "run", .lane = RUN, .run = host_run},
    {.name = "report", .lane = RUN, .run = host_report},
    {.name = "look", .lane = MAIL, .run = host_look},
    {.name = "waits", .lane = MAIL, .run = host_waits},
    {.name = "cancel", .lane = MAIL, .run = host_cancel},
    {.name = "channel", .lane = MAIL, .run = host_channel},
    {.name = "collective", .lane = MAIL, .run = host_collective},
    {.name = "change", .lane = CHANGE, .run = host_change},
    {.name = "abandon", .lane = MAIL, .run = host_abandon},
};

const exo_actor_class exo_graph_actor_class = {.name = "graph_actor",
                                               .state_size = sizeof(struct host),
                                               .start = local_start,
                                               .stop = host_stop,
                                               .lanes = lanes,
                                               .num_lanes = sizeof lanes / sizeof *lanes,
                                               .methods = methods,
                                               .num_methods = sizeof methods / sizeof *methods};

const exo_actor_class exo_graph_far_actor_class = {.name = "graph_actor",
                                                   .state_size = sizeof(struct host),
                                                   .start = far_start,
                                                   .stop = host_stop,
                                                   .lanes = lanes,
                                                   .num_lanes = sizeof lanes / sizeof *lanes,
                                                   .methods = methods,
                                                   .num_methods = sizeof methods / sizeof *methods};
