/* A site: the state that the actors of one graph share in one process. It has the graph, its clock,
 * its emulated network, and, if all actors are in this process, the communicators of its
 * collectives.
 *
 * For actors in its own process the runner makes a whole site. In a worker, the first actor of a
 * run makes the site from the graph's text, and the other actors find it by the run's namespace;
 * holders are counted. A site is read-only, except for members with a lock and those that only
 * exo_site_change writes. Read next: site.c, place.h. */
#ifndef EXO_GRAPH_SITE_H
#define EXO_GRAPH_SITE_H

#include <pthread.h>

#include "base/pace.h"
#include "graph/files.h"
#include "graph/lives.h"
#include "graph/spec.h"

enum {
    EXO_MAX_CHANGES = 1000 /* of one run, on workers */
};

typedef struct exo_place exo_place; /* place.h */

/* A meeting of an actor's members, to form their collectives again (rebirth.c), and their failures, which
 * are counted together: one in each life. */
typedef struct exo_regroup {
    exo_births births;
    uint64_t counted;  /* the meeting before which the last counted failure was, from 1 */
    uint32_t arrived;  /* members that wait */
    uint64_t round;    /* number of meetings so far */
    exo_status failed; /* of the last one */
} exo_regroup;

typedef struct exo_site {
    const exo_graph_spec *spec; /* the graph at the start of the run; its actors and hosts stay */
    const char *space;          /* namespace of the actors */
    const char *folder;         /* for the actors' files; NULL: none */
    bool whole;                 /* every actor is in this process */
    bool resumes;               /* whole: the run continues an earlier one */
    uint64_t run;               /* whole: exo_graph_run_number */
    /* in a worker: the shared site that this one belongs to; NULL if whole */
    struct shared_site *shared;
    exo_sim *sim; /* the simulation of the virtual clock; NULL: the real clock */
    const exo_clock *clock;
    exo_time origin;    /* start of the run, on the clock */
    exo_links *network; /* the hosts' network; NULL: nothing is emulated */
    exo_comm **comms;   /* (spec->num_edges) the collectives' communicators, if whole */
    /* (num_actors) meetings of members; guarded, like comms and changes of links, by lives_lock, which
     * the change of a place holds too, and the beginning of a life */
    exo_regroup *regroups;
    pthread_mutex_t lives_lock;
    /* (all actors) of a whole site; on the virtual clock messages go to them directly */
    exo_place **places;
    /* (num_actors + 1) index of each name's first actor in places; last: number of all actors */
    uint32_t *first;
    size_t span_limit; /* spans that each actor records for a timeline; 0: none */
    /* The members below change during the run, by exo_site_change only, before any place makes the
     * change. */
    const exo_graph_spec *graph; /* the graph with the present edges: spec, or a later one */
    uint32_t *ids;               /* (graph->num_edges) numbers of its edges in messages */
    uint32_t num_ids;            /* numbers used so far; those of spec's edges are their indices */
    /* (num_ids) the network of each edge: the hosts', or the edge's own link; NULL: none */
    exo_links **links;
    uint64_t changes; /* number of changes so far */
} exo_site;

/* Makes a new communicator for a collective of a whole site, in place of the last one. The caller
 * holds lives_lock. NOMEM. */
exo_status exo_site_renew_comm(exo_site *site, uint32_t edge, exo_err *err);
/* Makes a whole site for the runner. The spec and the texts are borrowed. Errors: NOMEM, and those
 * of exo_links_new and exo_comm_local_on. */
exo_status exo_site_new(exo_site **out, const exo_graph_spec *spec, const char *space,
                        const char *folder, uint64_t tie_seed, exo_err *err);
/* Sets the origin of the run's clock to now. Call it when all actors are made and none is
 * connected. */
void exo_site_begin(exo_site *site);
void exo_site_free(exo_site **site);
/* Takes over the edges, hosts' rates and links of `next`, which is borrowed and has passed
 * exo_graph_check_change. Unchanged edges keep their numbers. Channels are left to the places
 * (exo_place_change_inputs, exo_place_change_outputs). Errors: NOMEM, INVAL of a link. */
exo_status exo_site_change(exo_site *site, const exo_graph_spec *next, exo_err *err);
/* In a worker: holds the site of the namespace. The first caller makes it from the graph's text,
 * and the folder for the actors' files (NULL: none), which may be on another host than the runner's.
 * If that is not possible, it logs a warning, and there are no files. files: those that the graph's
 * options name, as the runner has them; INVAL: others are here. origin: of the run's clock, on the
 * real clock. The caller drops the site with exo_site_drop. */
exo_status exo_site_hold(exo_site **out, const char *space, const char *source, const char *text,
                         const char *folder, const exo_graph_files *files, exo_time origin,
                         exo_err *err);
void exo_site_drop(exo_site **site);
/* In a worker: makes change `number` (from 1) with the text of the next graph. The first caller
 * makes the change; for the others it is done already. */
exo_status exo_site_change_to(exo_site *site, uint64_t number, const char *source, const char *text,
                              exo_err *err);

/* Checks that a running graph can change to `next`: name, seed, clock, actors, hosts and
 * collectives must be the same. INVAL names the difference, its place in next's file, and the
 * present value. change.c. */
exo_status exo_graph_check_change(const exo_graph_spec *now, const exo_graph_spec *next,
                                  exo_err *err);
/* The same check for a training job, whose nodes stop for the change: codecs of collectives may
 * change, too. */
exo_status exo_graph_check_job_change(const exo_graph_spec *now, const exo_graph_spec *next,
                                      exo_err *err);
/* True: the edges are the same in all that concerns a run. */
bool exo_graph_is_same_edge(const exo_edge_spec *a, const exo_edge_spec *b);
/* Sets the hosts' rates and the links between hosts to those of `next`. */
exo_status exo_graph_change_links(exo_links *links, const exo_graph_spec *next, exo_err *err);

#endif
