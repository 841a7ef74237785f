/* The weights of a maker: it receives weight updates and the quota, replies to the trainer, and
 * exchanges the weights in use when the maker says so.
 *
 * Owner: the maker's thread. Read next: uptake.h (the thread beside it), maker.c. */
#ifndef EXO_MAKER_WEIGHTS_H
#define EXO_MAKER_WEIGHTS_H

#include "experience/source.h"
#include "experience/uptake.h"

typedef struct exo_maker_weights exo_maker_weights;

typedef struct exo_maker_weights_figures {
    uint64_t swaps;
    /* Seconds: the longest exchange, the way of the last update, and the work of its uptake. */
    double pause, transfer, uptake;
} exo_maker_weights_figures;

/* Makes the weights of a source that has started. Without an edge that carries parameters there is
 * no quota. The caller frees it before the source. NOMEM. */
exo_status exo_maker_weights_new(exo_maker_weights **out, exo_experience_source *source,
                                 exo_graph_actor *actor, exo_err *err);
void exo_maker_weights_free(exo_maker_weights **weights);

/* Draws below it may be made with the version in use: the quota of a version counts from its
 * exchange on. */
uint64_t exo_maker_weights_quota(const exo_maker_weights *weights);
/* The version in use. */
uint64_t exo_maker_weights_version(const exo_maker_weights *weights);

/* Takes updates that have come: replies to those that were taken, and begins the next one. wait: until
 * a version is ready, or nothing is left to take; otherwise an update may still be decoded beside
 * the caller. Does not change the weights in use. */
exo_status exo_maker_weights_pump(exo_maker_weights *weights, exo_graph_actor *actor, bool wait,
                                  exo_err *err);
/* Waits for the next update, as long as the edge's deadline. CLOSED: no more will come; TIMEOUT. */
exo_status exo_maker_weights_wait(exo_maker_weights *weights, exo_graph_actor *actor, exo_err *err);
/* True: a version waits for exo_maker_weights_swap, which makes the generator use it. */
bool exo_maker_weights_is_ready(const exo_maker_weights *weights);
void exo_maker_weights_swap(exo_maker_weights *weights, exo_graph_actor *actor);
const exo_maker_weights_figures *exo_maker_weights_figures_of(const exo_maker_weights *weights);

#endif
