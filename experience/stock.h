/* The stock of a trainer: items that have come, in the order of their draws. Trainer t of N has the
 * draws t, t + N, ..., and counts them 0, 1, ...
 *
 * Without slack an update takes the next draws of the trainer, and no later ones, so an answer that
 * takes long is waited for. With slack (oversampling) it takes the lowest draws that have come, and a
 * draw that has not come may be overtaken, but by no more than `slack` draws:
 *
 *     after the trainer has taken n draws, it has taken every draw below n - slack.
 *
 * So what may not be overtaken always fits into the next update. A trainer that lets E draws be begun
 * and not taken, and takes B in an update, has items of age at most (E + slack) / B - 1 versions.
 *
 * Owner: the trainer's thread. Read next: intake.h. */
#ifndef EXO_STOCK_H
#define EXO_STOCK_H

#include "experience/experience.h"

/* What a draw was when it came: the prompts of an epoch are drawn once each, so no two draws agree. */
typedef struct exo_stock_mark {
    uint64_t draw, prompt, epoch, maker;
    bool known;
} exo_stock_mark;

typedef struct exo_stock {
    uint64_t rank, size;   /* t and N */
    uint64_t slack;        /* draws that may overtake one; 0: in order */
    uint64_t next;         /* all below it were taken; the trainer's position */
    uint64_t ahead;        /* the number of draws beyond `next` that were taken */
    exo_item **items;      /* (room) item i is at i mod room; NULL: it has not come, or was taken */
    bool *taken;           /* (room) the same of draws that were taken */
    exo_stock_mark *marks; /* (room) of the last draw at that place that came */
    size_t room, count;    /* room: 0, or a power of two; count: items that are here */
} exo_stock;

void exo_stock_release(exo_stock *stock);
/* Puts an item in, which moves to the stock if the status is OK. EXISTS: it came before, or was taken;
 * INVAL: it belongs to another trainer; NOMEM. */
exo_status exo_stock_put(exo_stock *stock, exo_item *item, uint64_t draw, exo_err *err);
/* Remembers the prompt of an item that was put in. */
void exo_stock_note(exo_stock *stock, const exo_experience *experience);
/* Compares an item that came again with the first one, as far as that is remembered. INVAL: it has another
 * prompt, so one of the two has the number of another draw. Else EXISTS. */
exo_status exo_stock_compare(const exo_stock *stock, const exo_experience *experience,
                             exo_err *err);
/* Whether `count` draws can be taken: they are here, and so are those that may not be overtaken. */
bool exo_stock_has(const exo_stock *stock, size_t count);
/* Whether every draw of this trainer below `draws` is here or was taken. */
bool exo_stock_is_complete(const exo_stock *stock, uint64_t draws);
/* Takes the item of the lowest draw that is here; NULL: none. */
exo_item *exo_stock_take(exo_stock *stock);

/* All draws below it were taken, by every trainer that has taken as many. */
uint64_t exo_stock_low(const exo_stock *stock);
/* Writes which draws from exo_stock_low on were taken or are here, as at most `most` pairs of a draw d
 * and a count n: d, d + size, ..., n of them. Returns the number of pairs. Without slack there are
 * none. */
size_t exo_stock_finished(const exo_stock *stock, uint64_t *pairs, size_t most);
/* For a checkpoint: bit i says whether draw next + i was taken; the caller's bytes have a bit for each
 * such draw. */
void exo_stock_save(const exo_stock *stock, uint8_t *bits, size_t bytes);
/* The same back into an empty stock, whose `next` is set. NOMEM. */
exo_status exo_stock_load(exo_stock *stock, const uint8_t *bits, size_t bytes, exo_err *err);

#endif
