/* The publisher of a trainer: it sends the weights of each version to the makers, as updates
 * (updates.h), and takes the makers' replies.
 *
 * Each target of the port has at most one update, or message with deals, that is unanswered. A version that is made
 * meanwhile waits for the reply; only the newest one waits. So no edge ever holds two updates for a
 * maker, and none that drops or replaces items can lose one. The base of a maker moves with its
 * acknowledgement only. After a refusal the next update is a whole one; after three refusals in a row
 * the run ends with the maker's reason.
 *
 * Versions of updates are one more than those of the learner, whose first one is 0.
 *
 * Owner: the trainer's thread. Read next: parameters.h, trainer.c. */
#ifndef EXO_PUBLISHER_H
#define EXO_PUBLISHER_H

#include "experience/dealer.h"
#include "experience/parameters.h"

typedef struct exo_publisher exo_publisher;

/* What a publisher has done. */
typedef struct exo_publisher_figures {
    uint64_t bytes;   /* of all updates that were sent */
    uint64_t wholes;  /* updates without a base */
    uint64_t updates; /* all updates */
    uint64_t refused; /* updates that a maker refused */
} exo_publisher_figures;

/* Reads a publisher from the key `update` of a config. The caller frees it. INVAL (with its place),
 * NOMEM. */
exo_status exo_publisher_read(exo_publisher **out, exo_config *config, exo_err *err);
void exo_publisher_free(exo_publisher **publisher);
/* Where a publisher is. */
typedef struct exo_publisher_place {
    uint32_t index, count; /* of the trainer among those of its name */
    uint32_t life;         /* of the trainers */
    exo_dealer *dealer;    /* whose deals it sends, too; borrowed. NULL: there is none */
    bool in_parts;         /* parameters change before the next version is made */
    bool apart;            /* exo_parameters.apart */
} exo_publisher_place;
/* Prepares updates of a model. NOMEM. */
exo_status exo_publisher_start(exo_publisher *publisher, exo_model *model,
                               const exo_publisher_place *place, exo_err *err);

/* The draws that makers may make with a version. */
typedef struct exo_draw_bounds {
    uint64_t learned; /* the trainers have learned from those below it */
    uint64_t quota;   /* those from here on are for later versions */
    /* (2 num_finished) exo_parameters.finished; borrowed */
    const uint64_t *finished;
    size_t num_finished;
    uint64_t update, under_way; /* those of exo_parameters, with `learns` */
    exo_time learns;
} exo_draw_bounds;
/* Sends `params`, which are version `version`, to all targets that do not have it and owe no reply,
 * and deals what makers have room for; a target in another life has nothing and owes nothing. port: NULL does nothing. Errors: those of
 * exo_update_sender_stage and exo_port_send_to; targets that are gone are left out. */
exo_status exo_publisher_send(exo_publisher *publisher, exo_port *port, exo_params *params,
                              uint64_t version, exo_draw_bounds bounds, exo_err *err);
/* Takes a reply. port: the one of exo_publisher_send. Then the caller calls exo_publisher_send again.
 * FAILED, INVAL: a maker cannot take the weights; names the maker, and the version, the chunk and the
 * tensor; or makers have other draws than each other, or a maker's life is one that it has not begun. */
exo_status exo_publisher_take(exo_publisher *publisher, const exo_port *port, const exo_item *item,
                              exo_err *err);
/* The draws of the run, of all makers; UINT64_MAX: no maker has replied, or there is no end. */
uint64_t exo_publisher_draws(const exo_publisher *publisher);
/* Whether all makers that have replied have said that they have sent all their draws. */
bool exo_publisher_has_all(const exo_publisher *publisher);
const exo_publisher_figures *exo_publisher_figures_of(const exo_publisher *publisher);

#endif
