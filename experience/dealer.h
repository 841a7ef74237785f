/* Dealers: which maker makes which draw, if a trainer has `balance`. Draws are dealt as makers get on:
 * each holds as many as it says that it has room for, and gets the lowest ones that nobody has when its
 * items have come. So a maker with long answers gets fewer.
 *
 *           deal             offer           taken          arrived
 *   free ---------> new ----------> offered -------> taken ----------> done
 *     ^              |  the update is refused: offered again             (from each)
 *     +--------------+------------- lost: the maker began another life
 *
 * A draw is an index here: trainer t of N has the draws t, t + N, ... as 0, 1, ...
 *
 * When all draws of the run are dealt, makers are told so, and may end. From then on a lost draw is kept
 * for the next life of its maker, as the others may have gone.
 *
 * Owner: the trainer's thread. Read next: publisher.h, which sends what is dealt. */
#ifndef EXO_DEALER_H
#define EXO_DEALER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

typedef struct exo_dealer exo_dealer;

/* The dealer of trainer `rank` of `size`. The caller frees it. NOMEM. */
exo_status exo_dealer_new(exo_dealer **out, uint32_t rank, uint32_t size, exo_err *err);
void exo_dealer_free(exo_dealer **dealer);

/* All draws below it have come: the trainer's position at its start. */
void exo_dealer_begin(exo_dealer *dealer, uint64_t index);
/* A draw is here, and nobody is to make it. NOMEM. */
exo_status exo_dealer_arrived(exo_dealer *dealer, uint64_t draw, exo_err *err);

/* A maker takes part: draws are dealt once all such makers were heard. NOMEM. */
exo_status exo_dealer_meet(exo_dealer *dealer, uint32_t maker, exo_err *err);
/* A maker says how many draws it has room for, how many it makes at once, and how many the run has. */
void exo_dealer_hear(exo_dealer *dealer, uint32_t maker, uint64_t room, uint64_t portion,
                     uint64_t total);
/* A maker has taken what was offered to it; its draws are lost. */
void exo_dealer_taken(exo_dealer *dealer, uint32_t maker);
void exo_dealer_lost(exo_dealer *dealer, uint32_t maker);

/* Deals the draws below an index. NOMEM. */
exo_status exo_dealer_deal(exo_dealer *dealer, uint64_t limit, exo_err *err);
/* Whether a maker is to be told something. */
bool exo_dealer_has_news(const exo_dealer *dealer, uint32_t maker);
/* The draws that a maker was dealt and has not taken: at most exo_dealer_span pairs (maker, draw) are
 * appended to pairs (*count). They are offered from now on. */
size_t exo_dealer_span(const exo_dealer *dealer);
void exo_dealer_offer(exo_dealer *dealer, uint32_t maker, int64_t *pairs, size_t *count);
/* Whether all draws of the run are dealt. */
bool exo_dealer_has_ended(const exo_dealer *dealer);

#endif
