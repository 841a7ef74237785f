/* What the actors of one graph share in one process: the graph, its clock, its emulated network,
 * and, where all of its actors are here, the communicators of its collectives.
 *
 * The runner makes a site and gives it to its actors where they live in its own process (a whole
 * one). In a worker the first actor of a run makes it from the graph's text, and the others find it
 * by the run's namespace. Counted; read-only but for what has a lock. */
#ifndef EXO_GRAPH_SITE_H
#define EXO_GRAPH_SITE_H

#include "base/pace.h"
#include "graph/spec.h"

typedef struct exo_place exo_place; /* place.h */

typedef struct exo_site {
    const exo_graph_spec *spec; /* as the run began: its actors and hosts stay */
    const char *space;          /* namespace of the actors */
    const char *folder;         /* for their files; NULL: none */
    bool whole;                 /* every actor is in this process */
    struct shared_site *shared; /* in a worker: what it belongs to; NULL: whole */
    exo_sim *sim;               /* NULL: the real clock */
    const exo_clock *clock;
    exo_time origin;    /* of the run, on the clock */
    exo_links *network; /* of the hosts; NULL: nothing is emulated */
    exo_comm **comms;   /* (spec->num_edges) of collectives, where the site is whole */
    exo_place **places; /* (actors in all) on the virtual clock: messages go straight to them */
    uint32_t *first;    /* (num_actors + 1) of each name's, into places; last: how many there are */
    size_t span_limit;  /* spans that each actor keeps for a timeline; 0: none */
    /* What may change while the graph runs: by exo_site_change only, between messages to the places
     * about it. */
    const exo_graph_spec *graph; /* whose edges there are now: spec, or a later one */
    uint32_t *ids;               /* (graph->num_edges) of its edges in messages */
    uint32_t num_ids;            /* given so far; those of spec's edges are their indices */
    /* (num_ids) what an edge passes over: the hosts' network, or a link of its own; NULL:
     * nothing */
    exo_links **links;
    uint64_t changes; /* so far */
} exo_site;

/* A site of its own for the runner: of all actors. The spec and the texts are borrowed. */
exo_status exo_site_new(exo_site **out, const exo_graph_spec *spec, const char *space,
                        const char *folder, uint64_t tie_seed, exo_err *err);
/* The run's clock begins now: all actors are made, and none is connected. */
void exo_site_begin(exo_site *site);
void exo_site_free(exo_site **site);
/* The edges, hosts' rates and links are those of `next` from now on, which is borrowed; edges that
 * are the same keep their number. Nothing is done about channels: that is the places' part. `next`
 * was checked by exo_graph_check_change. */
exo_status exo_site_change(exo_site *site, const exo_graph_spec *next, exo_err *err);
/* In a worker: that of the namespace, made from the graph's text by the first who asks. Given back
 * with exo_site_drop. */
exo_status exo_site_hold(exo_site **out, const char *space, const char *source, const char *text,
                         exo_err *err);
void exo_site_drop(exo_site **site);
/* In a worker: change number `number` (from 1) by the text of the next graph, once, whoever comes
 * first. */
exo_status exo_site_change_to(exo_site *site, uint64_t number, const char *source, const char *text,
                              exo_err *err);

/* Can a running graph become `next`? Its name, seed, clock, actors, hosts and collectives must be
 * the same. INVAL names what is not, where it stands in next's file, and what the run has.
 * change.c. */
exo_status exo_graph_check_change(const exo_graph_spec *now, const exo_graph_spec *next,
                                  exo_err *err);
/* The same for a training job, whose nodes stop for it: the codecs of its collectives may change,
 * too. */
exo_status exo_graph_check_job_change(const exo_graph_spec *now, const exo_graph_spec *next,
                                      exo_err *err);
/* Are the edges the same in all that a run knows of? */
bool exo_graph_is_same_edge(const exo_edge_spec *a, const exo_edge_spec *b);
/* The hosts' rates and the links between them become those of `next`. */
exo_status exo_graph_change_links(exo_links *links, const exo_graph_spec *next, exo_err *err);

#endif
