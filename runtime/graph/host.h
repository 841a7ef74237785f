/* The runtime actor behind an actor of a graph. It has a place, an instance of the class, and three
 * lanes: "run" is blocking, and the class's whole life runs on it; "mail" is light and takes the
 * messages of other places; "change" makes new channels during the run.
 *
 * Methods; their arguments are messages of proto/train.proto (exo_graph_actor_protocol):
 *     connect     finds the actors at the other ends of its channels, and joins its collectives
 *     run         calls the class's run -> an exo_graph_report as JSON
 *     report      the same report, after a run that ended with an error or was told to end (run)
 *     look        the same report of the present, during the run (mail)
 *     waits       its wait, if longer than a given time -> an exo_wait_record (stall.h), else
 *                 nothing (mail)
 *     cancel      ends every wait (mail)
 *     channel     a message of a channel (mail)
 *     collective  a message of a collective (mail)
 *     change      a step of a change to another graph (change)
 *     abandon     an actor has failed; ends the collectives (mail)
 *     end_life    another member of its collectives has failed, and all members get another life:
 *                 every call of the class fails with PEER_LOST (mail)
 *     relink      the lives of all actors; begins the channels with each new life anew (change)
 *
 * Read next: place.h; docs/architecture.md has the states of a place. */
#ifndef EXO_GRAPH_HOST_H
#define EXO_GRAPH_HOST_H

#include "graph/place.h"
#include "protocol/protocol.h"

/* The arguments of the methods. */
extern const exo_protocol exo_graph_actor_protocol;
/* For actors of this process; started with an exo_host_start (exo_local_args). */
extern const exo_actor_class exo_graph_actor_class;
/* The class "graph_actor" of workers; started with the arguments that exo_host_start_text wrote. */
extern const exo_actor_class exo_graph_far_actor_class;

typedef struct exo_host_start {
    exo_site *site;
    uint32_t actor, index;
    exo_place **place; /* receives the place; may be NULL */
} exo_host_start;

/* A step of change `number` (from 1): first all inputs, then all outputs. text: the next graph, for
 * workers; NULL in a process with a whole site, which the caller has changed already. */
typedef enum exo_change_step {
    EXO_CHANGE_INPUTS,
    EXO_CHANGE_OUTPUTS,
} exo_change_step;
exo_status exo_host_change_text(exo_payload *out, uint64_t number, exo_change_step step,
                                const char *text, exo_err *err);

/* Ends every wait of the place, also in its collectives. Any thread, while the actor lives. */
void exo_host_cancel(exo_place *place);

/* The start of a worker's actor. */
typedef struct exo_far_start {
    const char *space, *source, *text; /* namespace of the run, name of the text, the graph */
    const char *folder;                /* for its files; NULL: none */
    uint32_t actor, index;             /* its indices in the graph */
    const uint32_t *lives;             /* (num_lives) of all actors; NULL: all are first ones */
    size_t num_lives;
    const uint32_t *ended; /* (num_ended) numbers of the actors whose run has ended well */
    size_t num_ended;
    char *const *changes; /* (num_changes) texts of the graphs that the run has changed to */
    size_t num_changes;
    exo_graph_files files; /* as they are here */
    bool resumes;          /* exo_graph_resumes */
    uint64_t run;          /* exo_graph_run_number */
    exo_time began; /* the origin of the run's clock, on the real clock; 0: when the actor starts */
} exo_far_start;

/* Writes the start arguments of a worker's actor. NOMEM. */
exo_status exo_host_start_text(exo_payload *out, const exo_far_start *start, exo_err *err);

enum {
    EXO_MAX_LIVES = UINT16_MAX
};

#endif
