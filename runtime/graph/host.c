/* The actor class of graph actors: see host.h. Only start and stop write struct host, except for
 * `stage`; the place has a lock of its own. */
#include "graph/host.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "actor/hooks.h"
#include "actor/local_args.h"
#include "base/boot.h"
#include "comm/edge.h"
#include "comm/far.h"
#include "graph/engine.h"
#include "graph/lives.h"
#include "graph/rebirth.h"
#include "report/json_text.h"
#include "report/meter_json.h"
#include "report/traffic_json.h"

enum {
    RUN,
    MAIL,
    CHANGE,
    MAIL_CAPACITY = 1 << 20
};

/* Held during a class's init, which reads the graph's document: a document belongs to one thread at
 * a time. */
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;

struct host {
    exo_place *place;
    void *self; /* the class's state */
    bool inited;
    exo_site *site; /* in a worker: held, and dropped at the end */
    /* in a worker: lives of all actors; owner: the run lane, then the change lane. NULL: all 0 */
    uint16_t *lives;
    bool *ended; /* whether their run has ended well; as long as `lives` */
    exo_ref actor;
    /* Written on the run lane. A method may come from any process of the cluster, too early or
     * twice; check_stage refuses it. */
    atomic_int stage;
    exo_births births; /* in a whole site: its lives so far */
};

enum {
    MADE,
    CONNECTED,
    RUN_BEGUN,
    OVER /* it has run, or connect has failed */
};

/* --- Start and stop --------------------------------------------------------------------------- */

static void
host_stop(void *self)
{
    struct host *h = self;
    if (h->place) {
        exo_place_stop(h->place);
        for (size_t i = 0; i < h->place->spec->class->num_ports; i++)
            if (exo_place_hears_collective(h->place, i))
                exo_comm_far_disconnect(h->place->groups[i].comm);
        if (h->inited && h->place->spec->class->release)
            h->place->spec->class->release(h->self);
    }
    exo_free(h->self);
    h->self = NULL;
    exo_place_free(&h->place);
    exo_site_drop(&h->site);
    exo_free(h->lives);
    exo_free(h->ended);
    h->lives = NULL;
    h->ended = NULL;
}

/* Nobody waits for the outcome of its run any more. */
static void
host_interrupt(void *self)
{
    exo_host_cancel(((struct host *)self)->place);
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

/* Gets the communicator of a collective from a whole site; in a worker makes one, which takes
 * messages before it is connected. */
static exo_status
make_collective(struct host *h, exo_port_group *g, uint32_t life, exo_err *err)
{
    exo_place *p = h->place;
    exo_site *site = p->actor.site;
    if (site->whole) {
        g->comm = exo_comm_hold(site->comms[g->id]);
        return EXO_OK;
    }
    const exo_engine_class *engine = NULL;
    exo_status st = exo_graph_engine(&engine, site, g->edge, err);
    if (st != EXO_OK)
        return st;
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
                                    .noun = p->spec->name,
                                    .edge = engine ? NULL : &on};
    return engine ? exo_graph_open_engine_far(&g->comm, site, g->edge, engine, &opts, life, err)
                  : exo_comm_far(&g->comm, &opts, err);
}

static exo_status
begin(struct host *h, exo_call_context *call, exo_site *site, uint32_t actor, uint32_t index,
      uint32_t life, exo_err *err)
{
    h->actor = exo_call_self(call);
    exo_status st = exo_place_new(&h->place, site, actor, index, exo_call_runtime(call), err);
    if (st == EXO_OK)
        h->place->self = h->actor;
    for (size_t i = 0; st == EXO_OK && i < h->place->spec->class->num_ports; i++)
        if (h->place->groups[i].edge)
            st = make_collective(h, &h->place->groups[i], life, err);
    if (st == EXO_OK)
        st = make_instance(h, err);
    if (st != EXO_OK)
        host_stop(h); /* the runtime does not call stop after a failed start */
    return st;
}

static exo_status
local_start(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    const exo_host_start *start = exo_local_args_get(args, sizeof *start);
    struct host *h = self;
    if (!start)
        return exo_fail(err, EXO_INVAL,
                        "start: a graph actor of this process is started with its place");
    exo_status st = begin(h, call, start->site, start->actor, start->index, 0, err);
    if (st != EXO_OK)
        return st;
    h->place->actor.resumes = start->site->resumes;
    h->place->actor.run = start->site->run;
    start->site->places[start->site->first[start->actor] + start->index] = h->place;
    if (start->place)
        *start->place = h->place;
    return EXO_OK;
}

exo_status
exo_host_start_text(exo_payload *out, const exo_far_start *start, exo_err *err)
{
    Exo__Train__GraphStart m = EXO__TRAIN__GRAPH_START__INIT;
    char boot[EXO_BOOT_ID];
    if (start->began > 0) {
        exo_boot_id(boot);
        m.boot = boot;
        m.has_began = m.has_age = true;
        m.began = (uint64_t)start->began;
        m.age = (uint64_t)(exo_now(exo_clock_real()) - start->began);
    }
    m.space = exo_args_text(start->space);
    m.source = exo_args_text(start->source);
    m.text = exo_args_text(start->text);
    m.folder = start->folder ? exo_args_text(start->folder) : NULL;
    m.actor = start->actor;
    m.index = start->index;
    m.lives = (uint32_t *)(uintptr_t)start->lives;
    m.n_lives = start->lives ? start->num_lives : 0;
    m.ended = (uint32_t *)(uintptr_t)start->ended;
    m.n_ended = start->lives ? start->num_ended : 0;
    m.changes = (char **)(uintptr_t)start->changes;
    m.n_changes = start->num_changes;
    m.files = start->files.texts;
    m.n_files = start->files.count;
    m.has_resumes = m.resumes = start->resumes;
    m.has_run = start->run > 0;
    m.run = start->run;
    return exo_protocol_pack(out, &m.base, err);
}

static exo_status
make_lives(struct host *h, size_t count, exo_err *err)
{
    if (!h->lives)
        h->lives = exo_calloc(count, sizeof *h->lives);
    if (!h->ended)
        h->ended = exo_calloc(count, sizeof *h->ended);
    h->place->lives = h->lives;
    h->place->ended = h->ended;
    return h->lives && h->ended ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a graph");
}

static exo_status
check_ended(const uint32_t *ended, size_t count, size_t actors, exo_err *err)
{
    for (size_t i = 0; i < count; i++)
        if (ended[i] >= actors)
            return exo_fail(err, EXO_INVAL, "ended: there is no actor %u", ended[i]);
    return EXO_OK;
}

/* Sets the lives of all actors that the place knows, before it is connected. */
static exo_status
take_lives(struct host *h, const Exo__Train__GraphStart *m, exo_err *err)
{
    const exo_site *site = h->site;
    uint32_t own = site->first[m->actor] + m->index;
    if (m->n_lives == 0)
        return EXO_OK;
    if (m->n_lives != site->first[site->spec->num_actors])
        return exo_fail(err, EXO_INVAL, "start: lives: %zu lives of %u actors", m->n_lives,
                        site->first[site->spec->num_actors]);
    exo_status st = make_lives(h, m->n_lives, err);
    if (st == EXO_OK)
        st = check_ended(m->ended, m->n_ended, m->n_lives, err);
    if (st != EXO_OK)
        return exo_fail_in(err, st, "start");
    for (size_t i = 0; i < m->n_ended; i++)
        h->ended[m->ended[i]] = true;
    for (size_t i = 0; i < m->n_lives; i++) {
        if (m->lives[i] > EXO_MAX_LIVES)
            return exo_fail(err, EXO_INVAL, "start: lives: %u lives are too many", m->lives[i]);
        h->lives[i] = (uint16_t)m->lives[i];
    }
    exo_place_begin_life(h->place, h->lives[own]);
    return EXO_OK;
}

/* The life that an actor of the graph begins; take_lives checks the list. */
static uint32_t
life_in(const exo_site *site, const Exo__Train__GraphStart *m)
{
    const size_t own = (size_t)site->first[m->actor] + m->index;
    return own < m->n_lives ? m->lives[own] : 0;
}

/* The origin of the run's clock, on the clock of this process. On another host than the runner's it
 * is late by the time that the message was on its way. */
static exo_time
origin_of(const Exo__Train__GraphStart *m)
{
    char boot[EXO_BOOT_ID];
    const exo_time now = exo_now(exo_clock_real());
    uint64_t age = m->has_age ? m->age : 0;
    exo_boot_id(boot);
    if (m->has_began && m->boot && strcmp(m->boot, boot) == 0)
        age = m->began < (uint64_t)now ? (uint64_t)now - m->began : 0;
    return age < (uint64_t)now ? now - (exo_time)age : 0;
}

static exo_status
start_from_text(exo_call_context *call, struct host *h, const Exo__Train__GraphStart *m,
                exo_err *err)
{
    const exo_graph_files files = {.texts = m->files, .count = m->n_files};
    exo_status st =
        exo_site_hold(&h->site, m->space, m->source, m->text, m->folder, &files, origin_of(m), err);
    if (st != EXO_OK)
        return exo_fail_in(err, st, "start: text");
    for (size_t i = 0; st == EXO_OK && i < m->n_changes; i++)
        if (h->site->changes <= i)
            st = exo_site_change_to(h->site, i + 1, m->source, m->changes[i], err);
    if (st != EXO_OK) {
        exo_site_drop(&h->site);
        return st;
    }
    const exo_graph_spec *spec = h->site->spec;
    if (m->actor < spec->num_actors && m->index < spec->actors[m->actor].count) {
        st = begin(h, call, h->site, m->actor, m->index, life_in(h->site, m), err);
        if (st != EXO_OK)
            return st;
        h->place->actor.resumes = m->has_resumes && m->resumes;
        h->place->actor.run = m->has_run ? m->run : 0;
        st = take_lives(h, m, err);
        if (st != EXO_OK)
            host_stop(h);
        return st;
    }
    if (m->actor < spec->num_actors)
        exo_fail(err, EXO_INVAL, "start: index: the graph has %u of '%s', and none of number %u",
                 spec->actors[m->actor].count, spec->actors[m->actor].name, m->index);
    else
        exo_fail(err, EXO_INVAL, "start: actor: the graph has no actor of number %u", m->actor);
    exo_site_drop(&h->site);
    return EXO_INVAL;
}

static exo_status
far_start(exo_call_context *call, void *self, const exo_payload *args, exo_err *err)
{
    ProtobufCMessage *m = NULL;
    exo_status st = exo_args_decode(&exo_graph_actor_protocol.start, args, &m, err);
    if (st == EXO_OK)
        st = start_from_text(call, self, (const Exo__Train__GraphStart *)m, err);
    exo_args_free(&m);
    return st;
}

/* Fails unless a method comes in its stage. */
static exo_status
check_stage(struct host *h, const char *method, int stage, exo_err *err)
{
    int now = h->stage;
    if (now != stage)
        return exo_fail(err, EXO_INVAL, "%s: %s comes %s", h->place->actor.name, method,
                        now > stage     ? "a second time"
                        : stage == OVER ? "before its run is over"
                                        : "before it is connected");
    return EXO_OK;
}

/* --- connect ---------------------------------------------------------------------------------- */

/* Finds an actor in its present life. One that has died, and may live again, is left unset: it is linked
 * when its next life begins. */
static exo_status
find_other(struct host *h, uint32_t spec_index, uint32_t index, exo_ref *ref, exo_err *err)
{
    const exo_site *site = h->place->actor.site;
    char name[EXO_LIFE_NAME];
    uint16_t life = h->lives ? h->lives[site->first[spec_index] + index] : 0;
    if (h->ended && h->ended[site->first[spec_index] + index])
        return EXO_OK;
    exo_life_name(site->spec->actors[spec_index].name, index, life, name);
    exo_status st = exo_get_actor(h->place->runtime, site->space, name, ref, err);
    bool may_have_died = h->lives || h->stage >= CONNECTED ||
                         site->spec->actors[spec_index].restart.when != EXO_RESTART_NEVER;
    return may_have_died && (st == EXO_NOT_FOUND || st == EXO_PEER_LOST) ? EXO_OK : st;
}

/* Finds the actors at the other ends of all channels, and the members of all collectives. */
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
                if (other == p->spec_index && i == p->actor.index)
                    *ref = h->actor;
                else if (!ref->id)
                    st = find_other(h, other, i, ref, err);
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
    exo_status st = exo_place_hears_collective(p, (size_t)(g - p->groups))
                        ? exo_comm_far_connect(g->comm, actors + site->first[p->spec_index], err)
                        : EXO_OK;
    if (st == EXO_OK)
        st = exo_group_open(&g->group, g->comm, p->actor.index, p->actor.name, err);
    if (st == EXO_OK)
        exo_group_set_timeout(g->group, g->edge->deadline);
    return st;
}

/* Tells the ends of the place's channels the lives of the others, which differ from 0 in a later
 * life. */
static void
set_peers(struct host *h)
{
    const exo_site *site = h->place->actor.site;
    for (uint32_t a = 0; a < site->spec->num_actors; a++)
        for (uint32_t i = 0; i < site->spec->actors[a].count; i++)
            exo_place_set_peer(h->place, a, i, h->lives[site->first[a] + i],
                               h->ended[site->first[a] + i]);
}

static exo_status
host_connect(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    struct host *h = self;
    exo_place *p = h->place;
    const exo_site *site = p->actor.site;
    (void)call;
    (void)args;
    (void)reply;
    exo_ref *actors = NULL;
    exo_status st = check_stage(h, "connect", MADE, err);
    if (st != EXO_OK)
        return st;
    if (!site->sim) {
        actors = exo_calloc(site->first[site->spec->num_actors] + 1, sizeof *actors);
        st = actors ? find_others(h, actors, err)
                    : exo_fail(err, EXO_NOMEM, "no memory for a graph");
    }
    for (size_t i = 0; st == EXO_OK && i < p->spec->class->num_ports; i++)
        if (p->groups[i].edge)
            st = join_collective(h, &p->groups[i], actors, err);
    if (st == EXO_OK && h->lives)
        set_peers(h);
    if (st == EXO_OK)
        st = exo_place_connect(p, actors, err);
    h->stage = st == EXO_OK ? CONNECTED : OVER;
    exo_free(actors);
    return st;
}

/* --- change ----------------------------------------------------------------------------------- */

_Static_assert((int)EXO_CHANGE_INPUTS == EXO__TRAIN__CHANGE_STEP__INPUTS &&
                   (int)EXO_CHANGE_OUTPUTS == EXO__TRAIN__CHANGE_STEP__OUTPUTS,
               "the same numbers");

exo_status
exo_host_change_text(exo_payload *out, uint64_t number, exo_change_step step, const char *text,
                     exo_err *err)
{
    Exo__Train__GraphChange m = EXO__TRAIN__GRAPH_CHANGE__INIT;
    m.number = number;
    m.step = (Exo__Train__ChangeStep)step;
    m.text = text ? exo_args_text(text) : NULL;
    return exo_protocol_pack(out, &m.base, err);
}

static exo_status
host_change(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    struct host *h = self;
    const Exo__Train__GraphChange *m = args;
    exo_place *p = h->place;
    exo_site *site = p->actor.site;
    (void)call;
    (void)reply;
    if (h->stage < CONNECTED)
        return exo_fail(err, EXO_INVAL, "%s: change comes before it is connected", p->actor.name);
    exo_status st = site->whole
                        ? EXO_OK
                        : exo_site_change_to(site, m->number, site->spec->source, m->text, err);
    exo_ref *actors = exo_calloc(site->first[site->spec->num_actors] + 1, sizeof *actors);
    if (st == EXO_OK)
        st = actors ? find_others(h, actors, err)
                    : exo_fail(err, EXO_NOMEM, "no memory for a change");
    pthread_mutex_lock(&site->lives_lock); /* no other life begins its channels meanwhile */
    if (st == EXO_OK)
        st = m->step == EXO__TRAIN__CHANGE_STEP__INPUTS ? exo_place_change_inputs(p, actors, err)
                                                        : exo_place_change_outputs(p, actors, err);
    pthread_mutex_unlock(&site->lives_lock);
    exo_free(actors);
    return st == EXO_OK ? st : exo_fail_in(err, st, "change");
}

/* --- Reports ---------------------------------------------------------------------------------- */

static json_t *
traffic_json(const exo_edge_spec *edge, const exo_traffic *t)
{
    return json_pack("{s:s, s:o}", "edge", edge->name, "traffic",
                     exo_traffic_json(t, EXO_TRAFFIC_NUMBERS));
}

static json_t *
edges_json_locked(const exo_place *p)
{
    json_t *edges = json_array();
    for (size_t i = 0; i < p->spec->class->num_ports; i++) {
        for (uint32_t e = 0; e < p->ports[i].num_edges && !p->groups[i].edge; e++)
            json_array_append_new(
                edges, traffic_json(p->ports[i].edges[e]->edge, &p->ports[i].edges[e]->traffic));
        if (p->groups[i].group || p->groups[i].has_left) {
            const exo_traffic traffic =
                p->groups[i].group ? exo_group_traffic(p->groups[i].group) : p->groups[i].left;
            json_array_append_new(edges, traffic_json(p->groups[i].edge, &traffic));
        }
    }
    return edges;
}

/* phases: only after run, when the actor's thread no longer writes them. */
static exo_status
report(exo_place *p, bool phases, exo_payload *reply, exo_err *err)
{
    static const char *const kinds[] = {"compute", "send_blocked", "recv_blocked"};
    json_t *times = json_array();
    pthread_mutex_lock(&p->lock);
    json_t *edges = edges_json_locked(p);
    pthread_mutex_unlock(&p->lock);
    for (size_t i = 0; phases && i < p->pace.track.num_totals; i++) {
        const exo_span_total *t = &p->pace.track.totals[i];
        json_array_append_new(times, json_pack("{s:s, s:s, s:I, s:I}", "name", t->name, "kind",
                                               kinds[t->kind], "time_ns", (json_int_t)t->time,
                                               "count", (json_int_t)t->count));
    }
    json_t *all = json_pack("{s:s, s:I, s:o, s:o, s:o}", "name", p->actor.name, "time_ns",
                            (json_int_t)(phases ? p->ended_at : 0), "edges", edges, "phases", times,
                            "meters", exo_meters_json(p->meters));
    char *text = exo_json_dump(all, JSON_COMPACT);
    json_decref(all);
    exo_status st = text ? exo_payload_copy(reply, text, strlen(text) + 1) : EXO_NOMEM;
    exo_free(text);
    return st == EXO_OK ? st : exo_fail(err, EXO_NOMEM, "no memory for a report");
}

static exo_status
host_look(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)args;
    return report(((struct host *)self)->place, false, reply, err);
}

/* The report after any end of run. Nothing more is sent, so the counts are final. */
static exo_status
host_report(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    struct host *h = self;
    exo_status st = check_stage(h, "report", OVER, err);
    (void)call;
    (void)args;
    if (st != EXO_OK)
        return st;
    exo_place_stop(h->place);
    return report(h->place, true, reply, err);
}

static exo_status
host_waits(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    return exo_place_look(((struct host *)self)->place,
                          ((const Exo__Train__GraphWaits *)args)->longer_than, reply, err);
}

/* --- run -------------------------------------------------------------------------------------- */

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

/* An error of the place is the outcome of the actor, whatever its class returned: the class may
 * have taken the error for the end of the run. Without an error the actor has ended for good. */
static exo_status
end_of_place(exo_place *p, exo_status st, exo_err *err)
{
    pthread_mutex_lock(&p->lock);
    if (p->failed.code != EXO_OK) {
        st = p->failed.code;
        *err = p->failed;
    }
    p->over = st == EXO_OK;
    pthread_mutex_unlock(&p->lock);
    return st;
}

/* One life: the class's run, to the departure of its last item. */
static exo_status
live(struct host *h, exo_err *reason)
{
    exo_place *p = h->place;
    exo_status st = p->spec->class->run(h->self, &p->actor, reason);
    exo_pace_phase(&p->pace, NULL, -1);
    if (st == EXO_OK)
        st = exo_place_finish(p, longest_deadline(p), reason);
    if (st == EXO_OK || st == EXO_CANCELLED || st == EXO_PEER_LOST)
        st = end_of_place(p, st, reason);
    if (st != EXO_OK && strncmp(reason->text, p->actor.name, strlen(p->actor.name)) != 0)
        exo_fail_in(reason, st, "%s", p->actor.name);
    return st;
}

/* Makes the class's state anew, for another life. */
static exo_status
renew_instance(struct host *h, exo_err *err)
{
    if (h->inited && h->place->spec->class->release)
        h->place->spec->class->release(h->self);
    h->inited = false;
    exo_free(h->self);
    h->self = NULL;
    return make_instance(h, err);
}

/* An actor that was stopped while it ran, and not by the run's end, says why. */
static void
explain_stop(const exo_call_context *call, const struct host *h, exo_status st, exo_err *reason)
{
    char cause[EXO_ERR_TEXT];
    if (st == EXO_CANCELLED &&
        exo_cause(exo_call_runtime(call), h->actor, cause, sizeof cause) == EXO_OK)
        exo_fail(reason, st, "%s: was stopped: %s", h->place->actor.name, cause);
}

static exo_status
host_run(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    struct host *h = self;
    exo_place *p = h->place;
    exo_err reason = {0};
    exo_time wait = 0;
    (void)args;
    exo_status st = check_stage(h, "run", CONNECTED, err);
    if (st != EXO_OK)
        return st;
    h->stage = RUN_BEGUN;
    p->pace.origin = p->actor.site->origin;
    exo_pace_enter(&p->pace, 0);
    h->births.began = exo_place_now(p);
    st = live(h, &reason);
    while (st != EXO_OK && p->actor.site->whole &&
           exo_rebirth_due(p, &h->births, st, &reason, &wait)) {
        exo_place_fail_collectives(p, reason.text);
        exo_place_leave_collectives(p);
        st = renew_instance(h, &reason);
        if (st == EXO_OK)
            st = exo_rebirth_begin(p, h->actor, wait, &reason);
        if (st != EXO_OK)
            break;
        h->births.began = exo_place_now(p);
        st = live(h, &reason);
    }
    p->ended_at = exo_pace_now(&p->pace);
    /* While this actor has the baton: without it, time would pass to the deadlines of the members
     * that wait. */
    if (st != EXO_OK)
        exo_place_fail_collectives(p, reason.text);
    exo_place_leave_collectives(p);
    h->stage = OVER;
    exo_pace_leave(&p->pace);
    explain_stop(call, h, st, &reason);
    return st == EXO_OK ? report(p, true, reply, err) : exo_fail(err, st, "%s", reason.text);
}

/* --- Mail ------------------------------------------------------------------------------------- */

void
exo_host_cancel(exo_place *place)
{
    exo_place_cancel(place);
    exo_place_fail_collectives(place, "the run ends");
}

static exo_status
host_cancel(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)args;
    (void)reply;
    (void)err;
    exo_host_cancel(((struct host *)self)->place);
    return EXO_OK;
}

static exo_status
host_channel(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    exo_payload message = {0};
    (void)args;
    (void)reply;
    exo_call_take_args(call, &message);
    exo_status st =
        exo_place_deliver(((struct host *)self)->place, &message, exo_call_node(call), err);
    return st == EXO_OK ? st : exo_fail_in(err, st, "channel");
}

static exo_status
host_collective(exo_call_context *call, void *self, const void *args, exo_payload *reply,
                exo_err *err)
{
    exo_place *p = ((struct host *)self)->place;
    exo_payload message = {0};
    uint32_t channel = exo_comm_far_channel(args);
    (void)reply;
    for (size_t i = 0; i < p->spec->class->num_ports; i++) {
        if (!exo_place_hears_collective(p, i) || p->groups[i].id != channel)
            continue;
        exo_call_take_args(call, &message);
        exo_status st = exo_comm_far_deliver(p->groups[i].comm, &message, exo_call_node(call), err);
        exo_payload_release(&message);
        return st == EXO_OK ? st : exo_fail_in(err, st, "collective");
    }
    return exo_fail(err, EXO_INVAL, "collective: a message that is for none of %s", p->actor.name);
}

static exo_status
host_end_life(exo_call_context *call, void *self, const void *args, exo_payload *reply,
              exo_err *err)
{
    (void)call;
    (void)reply;
    (void)err;
    exo_rebirth_end_life(((struct host *)self)->place,
                         ((const Exo__Train__GraphAbandon *)args)->cause);
    return EXO_OK;
}

/* The run of actor `number` had ended well when this life began: the channels with it end. */
static void
lose_ended(struct host *h, uint32_t number)
{
    const exo_site *site = h->place->actor.site;
    uint32_t a = 0;
    if (h->ended[number])
        return;
    h->ended[number] = true;
    while (number >= site->first[a + 1])
        a++;
    exo_place_lose(h->place, a, number - site->first[a]);
}

/* Begins the channels anew with each actor that has another life than this one knows. */
static exo_status
host_relink(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    struct host *h = self;
    const Exo__Train__GraphLives *m = args;
    const exo_site *site = h->place->actor.site;
    size_t count = site->first[site->spec->num_actors];
    exo_status st = EXO_OK;
    (void)call;
    (void)reply;
    if (h->stage < CONNECTED || site->whole)
        return exo_fail(err, EXO_INVAL, "%s: relink comes before it is connected",
                        h->place->actor.name);
    pthread_mutex_lock(&h->place->lock);
    bool over = h->place->over;
    pthread_mutex_unlock(&h->place->lock);
    if (over) /* new lives are told so, and expect nothing of this actor */
        return exo_fail(err, EXO_CLOSED, "%s: its run is over", h->place->actor.name);
    if (m->n_lives != count)
        return exo_fail(err, EXO_INVAL, "relink: lives: %zu lives of %zu actors", m->n_lives,
                        count);
    st = make_lives(h, count, err);
    if (st == EXO_OK)
        st = check_ended(m->ended, m->n_ended, count, err);
    if (st != EXO_OK)
        return exo_fail_in(err, st, "relink");
    for (uint32_t a = 0; st == EXO_OK && a < site->spec->num_actors; a++)
        for (uint32_t i = 0; st == EXO_OK && i < site->spec->actors[a].count; i++) {
            uint32_t life = m->lives[site->first[a] + i];
            exo_ref ref = {0};
            if (life > EXO_MAX_LIVES || life <= h->lives[site->first[a] + i] ||
                (a == h->place->spec_index && i == h->place->actor.index))
                continue;
            h->lives[site->first[a] + i] = (uint16_t)life;
            h->ended[site->first[a] + i] = false;
            st = find_other(h, a, i, &ref, err);
            if (st == EXO_OK)
                exo_place_relink(h->place, a, i, (uint16_t)life, ref);
        }
    for (size_t i = 0; st == EXO_OK && i < m->n_ended; i++)
        lose_ended(h, m->ended[i]);
    return st;
}

static exo_status
host_abandon(exo_call_context *call, void *self, const void *args, exo_payload *reply, exo_err *err)
{
    (void)call;
    (void)reply;
    (void)err;
    exo_place_fail_collectives(((struct host *)self)->place,
                               ((const Exo__Train__GraphAbandon *)args)->cause);
    return EXO_OK;
}

static const exo_lane_class lanes[] = {
    [RUN] = {.name = "run", .blocking = true},
    [MAIL] = {.name = "mail", .capacity = MAIL_CAPACITY},
    [CHANGE] = {.name = "change", .blocking = true},
};

static const exo_field_rule start_rules[] = {{.field = "space", .least = 1},
                                             {.field = "source", .least = 1},
                                             {.field = "lives", .most = EXO_MAX_LIVES}};
static const exo_field_rule change_rules[] = {{.field = "number", .least = 1}};
static const exo_field_rule waits_rules[] = {{.field = "longer_than", .least = 0}};
static const exo_field_rule lives_rules[] = {{.field = "lives", .most = EXO_MAX_LIVES}};
static const exo_field_rule cause_rules[] = {{.field = "cause", .most = EXO_ERR_TEXT}};

static const exo_args served[] = {
    {.method = "connect", .serve = host_connect},
    {.method = "run", .serve = host_run},
    {.method = "report", .serve = host_report},
    {.method = "look", .serve = host_look},
    {.method = "waits",
     .fields = &exo__train__graph_waits__descriptor,
     .rules = waits_rules,
     .num_rules = 1,
     .serve = host_waits},
    {.method = "cancel", .serve = host_cancel},
    {.method = "channel", .raw = true, .serve = host_channel},
    {.method = "collective", .raw = true, .serve = host_collective},
    {.method = "change",
     .fields = &exo__train__graph_change__descriptor,
     .rules = change_rules,
     .num_rules = 1,
     .serve = host_change},
    {.method = "abandon",
     .fields = &exo__train__graph_abandon__descriptor,
     .rules = cause_rules,
     .num_rules = 1,
     .serve = host_abandon},
    {.method = "end_life",
     .fields = &exo__train__graph_abandon__descriptor,
     .rules = cause_rules,
     .num_rules = 1,
     .serve = host_end_life},
    {.method = "relink",
     .fields = &exo__train__graph_lives__descriptor,
     .rules = lives_rules,
     .num_rules = 1,
     .serve = host_relink},
};

const exo_protocol exo_graph_actor_protocol = {
    .name = "graph_actor",
    .start = {.method = "start",
              .fields = &exo__train__graph_start__descriptor,
              .rules = start_rules,
              .num_rules = sizeof start_rules / sizeof *start_rules},
    .methods = served,
    .num_methods = sizeof served / sizeof *served,
};

static exo_status
serve(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *err)
{
    return exo_protocol_serve(&exo_graph_actor_protocol, call, self, args, reply, err);
}

/* In the order of `served`. */
static const exo_method methods[] = {
    {.name = "connect", .lane = RUN, .run = serve},
    {.name = "run", .lane = RUN, .run = serve},
    {.name = "report", .lane = RUN, .run = serve},
    {.name = "look", .lane = MAIL, .run = serve},
    {.name = "waits", .lane = MAIL, .run = serve},
    {.name = "cancel", .lane = MAIL, .run = serve},
    {.name = "channel", .lane = MAIL, .run = serve},
    {.name = "collective", .lane = MAIL, .run = serve},
    {.name = "change", .lane = CHANGE, .run = serve},
    {.name = "abandon", .lane = MAIL, .run = serve},
    {.name = "end_life", .lane = MAIL, .run = serve},
    {.name = "relink", .lane = CHANGE, .run = serve},
};
_Static_assert(sizeof methods / sizeof *methods == sizeof served / sizeof *served,
               "each takes what its line says");

const exo_actor_class exo_graph_actor_class = {.name = "graph_actor",
                                               .state_size = sizeof(struct host),
                                               .start = local_start,
                                               .stop = host_stop,
                                               .interrupt = host_interrupt,
                                               .lanes = lanes,
                                               .num_lanes = sizeof lanes / sizeof *lanes,
                                               .methods = methods,
                                               .num_methods = sizeof methods / sizeof *methods};

const exo_actor_class exo_graph_far_actor_class = {.name = "graph_actor",
                                                   .state_size = sizeof(struct host),
                                                   .start = far_start,
                                                   .stop = host_stop,
                                                   .interrupt = host_interrupt,
                                                   .lanes = lanes,
                                                   .num_lanes = sizeof lanes / sizeof *lanes,
                                                   .methods = methods,
                                                   .num_methods = sizeof methods / sizeof *methods};
