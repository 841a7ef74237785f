/* The stock of a trainer: items that have come, in the order of their draws. An update takes the next
 * draws of the trainer, and no later ones, so an answer that takes long is waited for, and is never
 * older than the bound on staleness allows. Makers go on meanwhile, as far as their quota.
 *
 * Trainer t of N has the draws t, t + N, ...
 *
 * Owner: the trainer's thread. Read next: trainer.c. */
#ifndef EXO_STOCK_H
#define EXO_STOCK_H

#include "experience/experience.h"

typedef struct exo_stock {
    uint64_t rank, size; /* t and N */
    uint64_t next;       /* the next item is draw t + next N; the trainer's position */
    exo_item **items;    /* (room) item i is at i mod room; NULL: it has not come */
    size_t room, count;  /* room: 0, or a power of two */
} exo_stock;

void exo_stock_release(exo_stock *stock);
/* Puts an item in, which moves to the stock if the status is OK. EXISTS: it came before, or was taken;
 * INVAL: it belongs to another trainer; NOMEM. */
exo_status exo_stock_put(exo_stock *stock, exo_item *item, uint64_t draw, exo_err *err);
/* Whether the next `count` draws are all here. */
bool exo_stock_has(const exo_stock *stock, size_t count);
/* Takes the item of the next draw, or the next one that is here if some are missing; NULL: none. */
exo_item *exo_stock_take(exo_stock *stock);

#endif
