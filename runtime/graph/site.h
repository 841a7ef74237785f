/* What the actors of one graph share in one process: the graph, its clock, its emulated network, and, where all of its actors are here,
 * the communicators of its collectives.
 *
 * The runner makes a site and gives it to its actors where they live in its own process (a whole one). In a worker the first actor of a
 * run makes it from the graph's text, and the others find it by the run's namespace. Counted; read-only but for what has a lock. */
#ifndef EXO_GRAPH_SITE_H
#define EXO_GRAPH_SITE_H

#include "pace.h"
#include "spec.h"

typedef struct exo_place exo_place; /* place.h */

typedef struct exo_site {
    const exo_graph_spec *spec;
    const char *space;  /* namespace of the actors */
    const char *folder; /* for their files; NULL: none */
    bool whole;         /* every actor is in this process */
    exo_sim *sim;       /* NULL: the real clock */
    const exo_clock *clock;
    exo_time origin; /* of the run, on the clock */
    exo_links **
        links; /* (num_edges) what an edge passes over: the hosts' network, or a link of its own; NULL: nothing is emulated */
    exo_links *network; /* of the hosts; NULL: likewise */
    exo_comm **comms;   /* (num_edges) of collectives, where the site is whole */
    exo_place **places; /* (num_actors in all) on the virtual clock: messages go straight to them */
    uint32_t *first;    /* (num_actors + 1) of each name's, into places; last: how many there are */
    size_t span_limit;  /* spans that each actor keeps for a timeline; 0: none */
} exo_site;

/* A site of its own for the runner: of all actors. The spec and the texts are borrowed. */
exo_status exo_site_new(exo_site **out, const exo_graph_spec *spec, const char *space, const char *folder,
                        uint64_t tie_seed, exo_err *err);
void exo_site_free(exo_site **site);
/* In a worker: that of the namespace, made from the graph's text by the first who asks. Given back with exo_site_drop. */
exo_status exo_site_hold(exo_site **out, const char *space, const char *source, const char *text, exo_err *err);
void exo_site_drop(exo_site **site);

#endif
