/* Sites: see site.h. Those of workers are in a list under `lock`; the first user makes one, the last frees it. */
#include "site.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include <exogym/memory.h>

#include "edge.h"

/* A site of a worker. */
struct shared {
    exo_site *site;
    exo_graph_spec *spec; /* its own */
    char *space;
    unsigned users;         /* guarded by lock, as next              */
    pthread_mutex_t making; /* held while it is made: others wait    */
    struct shared *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shared *all; /* guarded by lock */

static uint32_t
count_actors(exo_site *site)
{
    uint32_t count = 0;
    for (size_t a = 0; a < site->spec->num_actors; a++) {
        site->first[a] = count;
        count += site->spec->actors[a].count;
    }
    site->first[site->spec->num_actors] = count;
    return count;
}

/* The link of one edge: its hosts have no limits of their own on it. */
static exo_status
make_own_link(const exo_graph_spec *spec, const exo_edge_spec *edge, exo_links **out, exo_err *err)
{
    exo_host_spec *hosts = exo_calloc(spec->num_hosts, sizeof *hosts);
    if (!hosts)
        return exo_fail(err, EXO_NOMEM, "no memory for a link");
    for (size_t h = 0; h < spec->num_hosts; h++)
        hosts[h] = (exo_host_spec){.name = spec->hosts[h].spec.name, .up = INFINITY, .down = INFINITY};
    exo_status st = exo_links_new(out, hosts, spec->num_hosts, &spec->links[edge->link].spec, spec->seed, err);
    exo_free(hosts);
    return st;
}

static exo_status
make_links(exo_site *site, exo_err *err)
{
    const exo_graph_spec *spec = site->spec;
    exo_status st = spec->emulated ? exo_graph_links(spec, &site->network, err) : EXO_OK;
    for (size_t e = 0; st == EXO_OK && e < spec->num_edges; e++) {
        site->links[e] = site->network;
        if (spec->edges[e].link >= 0)
            st = make_own_link(spec, &spec->edges[e], &site->links[e], err);
    }
    return st;
}

/* One communicator for each collective, where all of its members are here. */
static exo_status
make_comms(exo_site *site, exo_err *err)
{
    const exo_graph_spec *spec = site->spec;
    exo_status st = EXO_OK;
    for (size_t e = 0; st == EXO_OK && e < spec->num_edges; e++) {
        const exo_edge_spec *edge = &spec->edges[e];
        const exo_actor_spec *actor = &spec->actors[edge->from];
        if (edge->route != EXO_ROUTE_ALL_REDUCE)
            continue;
        const exo_comm_edge on = {.name = edge->name,
                                  .links = site->links[e],
                                  .hosts = actor->hosts,
                                  .flow = (uint32_t)e,
                                  .sim = site->sim,
                                  .origin = site->origin,
                                  .codec = edge->codec_text};
        st = exo_comm_local_on(&site->comms[e], actor->count, site->clock, &on, err);
    }
    return st;
}

static exo_status
new_site(exo_site **out, const exo_graph_spec *spec, const char *space, exo_err *err)
{
    exo_site *s = exo_calloc(1, sizeof *s);
    if (!s)
        return exo_fail(err, EXO_NOMEM, "no memory for a graph");
    s->spec = spec;
    s->space = space;
    s->clock = exo_clock_real();
    s->first = exo_calloc(spec->num_actors + 1, sizeof *s->first);
    s->links = exo_calloc(spec->num_edges + 1, sizeof *s->links);
    s->comms = exo_calloc(spec->num_edges + 1, sizeof(exo_comm *));
    if (s->first)
        s->places = exo_calloc(count_actors(s) + 1, sizeof(exo_place *));
    exo_status st =
        s->first && s->links && s->comms && s->places ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a graph");
    if (st == EXO_OK)
        st = make_links(s, err);
    if (st != EXO_OK) {
        exo_site_free(&s);
        return st;
    }
    *out = s;
    return EXO_OK;
}

exo_status
exo_site_new(exo_site **out, const exo_graph_spec *spec, const char *space, const char *folder, uint64_t tie_seed,
             exo_err *err)
{
    exo_site *s = NULL;
    exo_status st = new_site(&s, spec, space, err);
    if (st == EXO_OK && spec->virtual_clock)
        st = exo_sim_new(&s->sim, tie_seed, err);
    if (st == EXO_OK) {
        s->folder = folder;
        s->whole = true;
        if (s->sim)
            s->clock = exo_sim_clock(s->sim);
        s->origin = exo_now(s->clock);
        st = make_comms(s, err);
    }
    if (st != EXO_OK)
        exo_site_free(&s);
    *out = s;
    return st;
}

void
exo_site_free(exo_site **site)
{
    exo_site *s = *site;
    *site = NULL;
    if (!s)
        return;
    for (size_t e = 0; e < s->spec->num_edges; e++) {
        if (s->comms && s->comms[e])
            exo_comm_drop(&s->comms[e]);
        if (s->links && s->links[e] && s->links[e] != s->network)
            exo_links_free(&s->links[e]);
    }
    exo_links_free(&s->network);
    exo_sim_free(&s->sim);
    exo_free(s->comms);
    exo_free(s->links);
    exo_free(s->first);
    exo_free(s->places);
    exo_free(s);
}

/* --- In workers ------------------------------------------------------------------------------------------------------------ */

static void
free_shared(struct shared *s)
{
    exo_site_free(&s->site);
    exo_graph_spec_free(&s->spec);
    pthread_mutex_destroy(&s->making);
    exo_free(s->space);
    exo_free(s);
}

static void
drop_shared(struct shared *s)
{
    pthread_mutex_lock(&lock);
    bool last = --s->users == 0;
    if (last) {
        struct shared **at = &all;
        while (*at != s)
            at = &(*at)->next;
        *at = s->next;
    }
    pthread_mutex_unlock(&lock);
    if (last)
        free_shared(s);
}

static struct shared *
hold_shared(const char *space)
{
    pthread_mutex_lock(&lock);
    struct shared *s = all;
    while (s && strcmp(s->space, space) != 0)
        s = s->next;
    if (!s && (s = exo_calloc(1, sizeof *s))) {
        s->space = exo_strdup(space);
        if (s->space) {
            pthread_mutex_init(&s->making, NULL);
            s->next = all;
            all = s;
        } else {
            exo_free(s);
            s = NULL;
        }
    }
    if (s)
        s->users++;
    pthread_mutex_unlock(&lock);
    return s;
}

exo_status
exo_site_hold(exo_site **out, const char *space, const char *source, const char *text, exo_err *err)
{
    struct shared *s = hold_shared(space);
    exo_status st = EXO_OK;
    if (!s)
        return exo_fail(err, EXO_NOMEM, "no memory for a graph");
    pthread_mutex_lock(&s->making);
    if (!s->site) {
        st = s->spec ? EXO_OK : exo_graph_parse(&s->spec, source, text, NULL, err);
        if (st == EXO_OK)
            st = new_site(&s->site, s->spec, s->space, err);
        if (st == EXO_OK)
            s->site->origin = exo_now(s->site->clock);
    }
    pthread_mutex_unlock(&s->making);
    if (st == EXO_OK)
        *out = s->site;
    else
        drop_shared(s);
    return st;
}

void
exo_site_drop(exo_site **site)
{
    exo_site *wanted = *site;
    *site = NULL;
    if (!wanted || wanted->whole)
        return;
    pthread_mutex_lock(&lock);
    struct shared *s = all;
    while (s && s->site != wanted)
        s = s->next;
    pthread_mutex_unlock(&lock);
    if (s)
        drop_shared(s);
}
