/* The observer of a maker or a trainer: it measures what the actor does with its time, and calls back
 * the functions of a C program (exogym/experience.h). Its figures are meters, so every run has them.
 *
 * FLOP are those of dense layers: 2 P for a token and pass of P parameters, with a cache of keys and
 * values, and three times as many for a forward and backward pass (Kaplan et al., 2020,
 * arXiv:2001.08361).
 *
 * Owner: the actor's thread. */
#ifndef EXO_OBSERVER_H
#define EXO_OBSERVER_H

#include <exogym/graph.h>

#include "experience/given.h"

enum {
    EXO_OBSERVER_METERS = 4
};

typedef enum exo_observer_kind {
    EXO_OBSERVES_MAKER,
    EXO_OBSERVES_PPO,
    EXO_OBSERVES_TEXTS /* a trainer of texts */
} exo_observer_kind;

typedef struct exo_observer {
    const exo_experience_callbacks *callbacks; /* NULL: none */
    exo_graph_actor *actor;
    exo_meter *meters[EXO_OBSERVER_METERS];
    exo_observer_kind kind;
    double flop_a_token; /* of making, or of learning */
    exo_time began;      /* the loop, or fit */
    exo_time at[EXO_EXPERIENCE_STAGES], spent[EXO_EXPERIENCE_STAGES];
    uint64_t counts[EXO_EXPERIENCE_STAGES];
    uint64_t version, samples, tokens; /* the caller counts them */
    exo_time
        learned; /* of a trainer, the caller counts it, too: on the virtual clock no time passes within a phase */
} exo_observer;

/* Reads the key `given` of an actor's config. INVAL. */
exo_status exo_observer_read(exo_observer *observer, exo_config *config, exo_err *err);
/* Begins the loop of a maker, or the fit of a trainer, which needs so many FLOP for a token. NOMEM. */
exo_status exo_observer_open(exo_observer *observer, exo_graph_actor *actor, exo_observer_kind kind,
                             double flop_a_token, exo_err *err);
/* Ends it. */
void exo_observer_close(exo_observer *observer);
/* A stage starts, or ends. */
void exo_observer_start(exo_observer *observer, exo_experience_stage stage);
void exo_observer_end(exo_observer *observer, exo_experience_stage stage);
/* The same with a number of the caller's. */
void exo_observer_tell(exo_observer *observer, exo_experience_stage stage, uint64_t number,
                       bool end);

#endif
