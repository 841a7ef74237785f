/* The actor that a graph's actor is to the runtime: it has a place, an instance of the class, and
 * three lanes. "run" is a blocking one, on which the class's whole life runs; "mail" is light and
 * takes what other places send; "change" makes new channels while it runs.
 *
 * Methods, whose arguments are messages of proto/train.proto (exo_graph_actor_protocol):
 *     connect   finds the actors at the other ends of its channels, and joins its collectives
 *     run       the class's run -> an exo_graph_report as JSON
 *     report    the same report after a run that ended with an error or was told to end (run)
 *     look      the same report of now, while it runs (mail)
 *     waits     what it waits for longer than a time -> an exo_wait_record (stall.h), or nothing (mail)
 *     cancel    ends every wait (mail)
 *     channel   a message of a channel (mail)
 *     collective  a message of a collective (mail)
 *     change    a step of a change to another graph (its own lane)
 *     abandon   an actor has failed; ends the collectives (mail)
 */
#ifndef EXO_GRAPH_HOST_H
#define EXO_GRAPH_HOST_H

#include "graph/place.h"
#include "protocol/protocol.h"

/* What the methods take. */
extern const exo_protocol exo_graph_actor_protocol;
/* Started with an exo_host_start (exo_local_args): an actor of this process's own. */
extern const exo_actor_class exo_graph_actor_class;
/* The class "graph_actor" of workers, started with what exo_host_start_text wrote. */
extern const exo_actor_class exo_graph_far_actor_class;

typedef struct exo_host_start {
    exo_site *site;
    uint32_t actor, index;
    exo_place **place; /* where the place is to be known; may be NULL */
} exo_host_start;

/* A step of change `number` (from 1): first all inputs, then all outputs. text: the next graph's,
 * for workers; NULL where the site is whole and was changed already. */
typedef enum exo_change_step {
    EXO_CHANGE_INPUTS,
    EXO_CHANGE_OUTPUTS,
} exo_change_step;
exo_status exo_host_change_text(exo_payload *out, uint64_t number, exo_change_step step,
                                const char *text, exo_err *err);

/* Ends every wait of the place and its collectives. Any thread, while the actor lives. */
void exo_host_cancel(exo_place *place);

/* What a worker's actor is started with: the graph's text and where in it the actor stands. */
exo_status exo_host_start_text(exo_payload *out, const char *space, const char *source,
                               const char *text, uint32_t actor, uint32_t index, exo_err *err);

#endif
