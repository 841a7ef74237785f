/* The uptake of a maker: it takes weight updates while the maker generates.
 *
 * A large update is decoded, verified and packed on a thread of the uptake, a small one, and one for
 * another device than the CPU, in exo_uptake_begin. The maker then exchanges the copies between two
 * steps (exo_uptake_swap).
 *
 *            exo_uptake_begin              done                  exo_uptake_swap
 *     FREE -------------------> BUSY -------------> (reply) READY --------------> FREE
 *       ^                         |
 *       +-------------------------+ refused: the reply has the reason
 *
 * Owner: the maker's thread. Between begin and end the uptake's thread uses the receiver; the
 * generator in use stays the maker's. Read next: parameters.h, maker.c. */
#ifndef EXO_UPTAKE_H
#define EXO_UPTAKE_H

#include "experience/parameters.h"

typedef struct exo_uptake exo_uptake;

/* Makes an uptake for a generator of the model, whose weights are `initial`. part: NULL, or what the
 * generator of a group has of the model; held. All members then take the same updates in the same
 * order, each in exo_uptake_begin. The caller frees the uptake, before the generator. NOMEM. */
exo_status exo_uptake_new(exo_uptake **out, exo_model *model, exo_params *initial,
                          exo_generator *generator, exo_model *part, exo_err *err);
/* Waits for an update that is being taken. */
void exo_uptake_free(exo_uptake **uptake);

/* True: exo_uptake_begin may be called. */
bool exo_uptake_is_free(const exo_uptake *uptake);
/* The version of the newest update that was verified, used or not; -1: none. */
int64_t exo_uptake_version(const exo_uptake *uptake);

/* Begins to take an item (exo_parameters_view), which moves to the uptake, also after an error. Items
 * that are no update, and what the update lacks, are errors of exo_uptake_end. NOMEM; in a group also
 * those of its collectives, and UNSUPPORTED (the update's form). */
exo_status exo_uptake_begin(exo_uptake *uptake, exo_item **item, exo_err *err);
/* Ends what was begun. wait: until it is done; otherwise false if it is not done yet. True: *reply is
 * for the trainer, and *spent is the time that it took, in seconds of this machine. */
bool exo_uptake_end(exo_uptake *uptake, bool wait, exo_update_reply *reply, double *spent);
/* The reply to the newest update that was verified, for another trainer that sends the same. */
const exo_update_reply *exo_uptake_accepted(const exo_uptake *uptake);

/* True: a verified version waits for the exchange. */
bool exo_uptake_is_ready(const exo_uptake *uptake);
/* Exchanges the copies: the generator has the new weights from now on. */
void exo_uptake_swap(exo_uptake *uptake);

#endif
