/* Sites: see site.h. In a worker, shared sites are in a table by namespace. */
#include "graph/site.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "base/file.h"
#include "base/shared.h"
#include "comm/edge.h"
#include "graph/engine.h"

/* A site of a worker, in the table under the run's namespace. `shared.making` guards its making and
 * its changes. */
struct shared_site {
    exo_shared shared; /* must be first */
    exo_site *site;
    exo_graph_spec *spec;                   /* owned */
    exo_graph_spec *later[EXO_MAX_CHANGES]; /* the graphs of its changes, owned */
    size_t num_later;
    char *folder; /* for the actors' files; NULL: none */
};

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

/* Makes the network of one edge's own link, in which hosts have no rate limits. */
static exo_status
make_own_link(const exo_graph_spec *spec, const exo_edge_spec *edge, exo_links **out, exo_err *err)
{
    exo_host_spec *hosts = exo_calloc(spec->num_hosts, sizeof *hosts);
    if (!hosts)
        return exo_fail(err, EXO_NOMEM, "no memory for a link");
    for (size_t h = 0; h < spec->num_hosts; h++)
        hosts[h] =
            (exo_host_spec){.name = spec->hosts[h].spec.name, .up = INFINITY, .down = INFINITY};
    exo_status st =
        exo_links_new(out, hosts, spec->num_hosts, &spec->links[edge->link].spec, spec->seed, err);
    exo_free(hosts);
    return st;
}

/* Gives an edge the next number, and its network. */
static exo_status
number_edge(exo_site *site, const exo_graph_spec *graph, const exo_edge_spec *edge, uint32_t *id,
            exo_err *err)
{
    exo_links **links = exo_realloc(site->links, site->num_ids + 1, sizeof *links);
    if (!links)
        return exo_fail(err, EXO_NOMEM, "no memory for an edge");
    site->links = links;
    *id = site->num_ids;
    links[*id] = site->network;
    exo_status st = edge->link >= 0 ? make_own_link(graph, edge, &links[*id], err) : EXO_OK;
    site->num_ids += st == EXO_OK;
    return st;
}

static exo_status
make_links(exo_site *site, exo_err *err)
{
    const exo_graph_spec *spec = site->spec;
    exo_status st = spec->emulated ? exo_graph_links(spec, &site->network, err) : EXO_OK;
    for (size_t e = 0; st == EXO_OK && e < spec->num_edges; e++)
        st = number_edge(site, spec, &spec->edges[e], &site->ids[e], err);
    return st;
}

/* Makes the communicator of a collective of a whole site. */
static exo_status
make_comm(exo_site *site, uint32_t e, exo_comm **out, exo_err *err)
{
    const exo_edge_spec *edge = &site->spec->edges[e];
    const exo_actor_spec *actor = &site->spec->actors[edge->from];
    const exo_engine_class *engine = NULL;
    exo_status st = exo_graph_engine(&engine, site, edge, err);
    if (st != EXO_OK || engine)
        return st == EXO_OK ? exo_graph_open_engine(out, site, edge, engine, err) : st;
    const exo_comm_edge on = {.name = edge->name,
                              .links = site->links[e],
                              .hosts = actor->hosts,
                              .flow = e,
                              .sim = site->sim,
                              .origin = site->origin,
                              .codec = edge->codec_text};
    return exo_comm_local_on(out, actor->count, site->clock, &on, err);
}

static exo_status
make_comms(exo_site *site, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t e = 0; st == EXO_OK && e < site->spec->num_edges; e++)
        if (site->spec->edges[e].route == EXO_ROUTE_ALL_REDUCE)
            st = make_comm(site, e, &site->comms[e], err);
    return st;
}

exo_status
exo_site_renew_comm(exo_site *site, uint32_t edge, exo_err *err)
{
    exo_comm *comm = NULL;
    exo_status st = make_comm(site, edge, &comm, err);
    if (st != EXO_OK)
        return st;
    if (!site->sim)
        exo_comm_local_begin(comm, site->origin);
    exo_comm_drop(&site->comms[edge]);
    site->comms[edge] = comm;
    return EXO_OK;
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
    s->graph = spec;
    s->ids = exo_calloc(spec->num_edges + 1, sizeof *s->ids);
    s->comms = exo_calloc(spec->num_edges + 1, sizeof(exo_comm *));
    s->regroups = exo_calloc(spec->num_actors + 1, sizeof *s->regroups);
    pthread_mutex_init(&s->lives_lock, NULL);
    if (s->first)
        s->places = exo_calloc(count_actors(s) + 1, sizeof(exo_place *));
    exo_status st = s->first && s->ids && s->comms && s->regroups && s->places
                        ? EXO_OK
                        : exo_fail(err, EXO_NOMEM, "no memory for a graph");
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
exo_site_new(exo_site **out, const exo_graph_spec *spec, const char *space, const char *folder,
             uint64_t tie_seed, exo_err *err)
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
exo_site_begin(exo_site *site)
{
    if (site->sim)
        return;
    site->origin = exo_now(site->clock);
    for (size_t e = 0; e < site->spec->num_edges; e++)
        if (site->comms[e])
            exo_comm_local_begin(site->comms[e], site->origin);
}

void
exo_site_free(exo_site **site)
{
    exo_site *s = *site;
    *site = NULL;
    if (!s)
        return;
    for (size_t e = 0; s->comms && e < s->spec->num_edges; e++)
        exo_comm_drop(&s->comms[e]);
    for (uint32_t i = 0; i < s->num_ids; i++)
        if (s->links[i] != s->network)
            exo_links_free(&s->links[i]);
    exo_links_free(&s->network);
    exo_sim_free(&s->sim);
    exo_free(s->comms);
    exo_free(s->regroups);
    pthread_mutex_destroy(&s->lives_lock);
    exo_free(s->links);
    exo_free(s->ids);
    exo_free(s->first);
    exo_free(s->places);
    exo_free(s);
}

/* --- Changes ---------------------------------------------------------------------------------- */

/* The number of an edge that the present graph has; UINT32_MAX: it is new. */
static uint32_t
find_id(const exo_site *site, const exo_edge_spec *edge)
{
    for (size_t e = 0; e < site->graph->num_edges; e++)
        if (exo_graph_is_same_edge(&site->graph->edges[e], edge))
            return site->ids[e];
    return UINT32_MAX;
}

exo_status
exo_graph_change_links(exo_links *links, const exo_graph_spec *next, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t h = 0; st == EXO_OK && h < next->num_hosts; h++)
        st = exo_links_set_host(links, h, &next->hosts[h].spec, err);
    return st == EXO_OK ? exo_graph_set_links(links, next, err) : st;
}

static exo_status
change(exo_site *site, const exo_graph_spec *next, exo_err *err)
{
    uint32_t *ids = exo_calloc(next->num_edges + 1, sizeof *ids);
    exo_status st = ids ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for the edges");
    if (st == EXO_OK && site->network)
        st = exo_graph_change_links(site->network, next, err);
    for (size_t e = 0; st == EXO_OK && e < next->num_edges; e++) {
        const exo_edge_spec *edge = &next->edges[e];
        ids[e] = find_id(site, edge);
        if (ids[e] == UINT32_MAX)
            st = number_edge(site, next, edge, &ids[e], err);
        else if (edge->link >= 0)
            st = exo_links_set_fallback(site->links[ids[e]], &next->links[edge->link].spec, err);
    }
    if (st != EXO_OK) {
        exo_free(ids);
        return st;
    }
    exo_free(site->ids);
    site->ids = ids;
    site->graph = next;
    site->changes++;
    return EXO_OK;
}

exo_status
exo_site_change(exo_site *site, const exo_graph_spec *next, exo_err *err)
{
    pthread_mutex_lock(&site->lives_lock);
    exo_status st = change(site, next, err);
    pthread_mutex_unlock(&site->lives_lock);
    return st;
}

/* --- In workers ------------------------------------------------------------------------------- */

static void
release_shared(exo_shared *shared)
{
    struct shared_site *s = (struct shared_site *)shared;
    exo_site_free(&s->site);
    exo_free(s->folder);
    exo_graph_spec_free(&s->spec);
    for (size_t i = 0; i < s->num_later; i++)
        exo_graph_spec_free(&s->later[i]);
}

/* Makes the folder for the actors' files. */
static void
take_folder(struct shared_site *s, const char *folder)
{
    exo_err err = {0};
    if (!folder)
        return;
    exo_status st = exo_folder_make(folder, &err);
    s->folder = st == EXO_OK ? exo_strdup(folder) : NULL;
    s->site->folder = s->folder;
    if (!s->folder)
        EXO_LOG(WARN, GRAPH, "space=%s actors of this process write no files: %s", s->shared.name,
                st == EXO_OK ? "no memory" : err.text);
}

static exo_shared_list sites = EXO_SHARED_LIST(struct shared_site, release_shared);

exo_status
exo_site_hold(exo_site **out, const char *space, const char *source, const char *text,
              const char *folder, const exo_graph_files *files, exo_time origin, exo_err *err)
{
    struct shared_site *s = (struct shared_site *)exo_shared_hold(&sites, space);
    exo_status st = EXO_OK;
    if (!s)
        return exo_fail(err, EXO_NOMEM, "no memory for a graph");
    pthread_mutex_lock(&s->shared.making);
    if (!s->site) {
        st = s->spec ? EXO_OK : exo_graph_parse(&s->spec, source, text, NULL, err);
        if (st == EXO_OK)
            st = exo_graph_files_compare(files, s->spec->doc, err);
        if (st == EXO_OK)
            st = new_site(&s->site, s->spec, s->shared.name, err);
        if (st == EXO_OK) {
            s->site->origin = origin;
            s->site->shared = s;
            take_folder(s, folder);
        }
    }
    if (st == EXO_OK)
        *out = s->site;
    pthread_mutex_unlock(&s->shared.making);
    if (st != EXO_OK)
        exo_shared_drop(&sites, &s->shared);
    return st;
}

exo_status
exo_site_change_to(exo_site *site, uint64_t number, const char *source, const char *text,
                   exo_err *err)
{
    struct shared_site *s = site->shared;
    exo_status st = EXO_OK;
    pthread_mutex_lock(&s->shared.making);
    if (site->changes + 1 == number && !text) {
        st = exo_fail(err, EXO_INVAL, "change %llu of a graph comes without its text",
                      (unsigned long long)number);
    } else if (site->changes + 1 == number && s->num_later < EXO_MAX_CHANGES) {
        exo_graph_spec *next = NULL;
        st = exo_graph_parse(&next, source, text, NULL, err);
        if (st == EXO_OK)
            st = exo_graph_check_change(site->graph, next, err);
        if (st == EXO_OK)
            st = exo_site_change(site, next, err);
        if (st == EXO_OK)
            s->later[s->num_later++] = next;
        else
            exo_graph_spec_free(&next);
    } else if (site->changes != number) {
        st = exo_fail(err, EXO_INVAL, "change %llu of a graph comes after %llu",
                      (unsigned long long)number, (unsigned long long)site->changes);
    }
    pthread_mutex_unlock(&s->shared.making);
    return st;
}

void
exo_site_drop(exo_site **site)
{
    exo_site *s = *site;
    *site = NULL;
    if (s && s->shared)
        exo_shared_drop(&sites, &s->shared->shared);
}
