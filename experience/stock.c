/* Stocks: see stock.h. */
#include "experience/stock.h"

#include <string.h>

#include <exogym/memory.h>

enum {
    FIRST_ROOM = 64,
    MOST = 1 << 24 /* draws from the next one to the last one that is here */
};

void
exo_stock_release(exo_stock *s)
{
    for (size_t i = 0; i < s->room; i++)
        exo_item_drop(&s->items[i]);
    exo_free(s->items);
    s->items = NULL;
    s->room = s->count = 0;
}

/* Makes room for draws below next + needs. */
static exo_status
grow(exo_stock *s, uint64_t needs, exo_err *err)
{
    size_t room = s->room ? s->room : FIRST_ROOM;
    while (room < needs)
        room *= 2;
    if (room == s->room)
        return EXO_OK;
    exo_item **items = exo_calloc(room, sizeof *items);
    if (!items)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu items", room);
    for (uint64_t i = s->next; i < s->next + s->room; i++)
        items[i % room] = s->items[i % s->room];
    exo_free(s->items);
    s->items = items;
    s->room = room;
    return EXO_OK;
}

exo_status
exo_stock_put(exo_stock *s, exo_item *item, uint64_t draw, exo_err *err)
{
    uint64_t index = draw / s->size;
    if (draw % s->size != s->rank)
        return exo_fail(err, EXO_INVAL,
                        "item %llu belongs to trainer %llu of %llu: let items go to the trainers "
                        "in turn, for instance with route: modulo and as many makers",
                        (unsigned long long)draw, (unsigned long long)(draw % s->size),
                        (unsigned long long)s->size);
    if (index < s->next)
        return exo_fail(err, EXO_EXISTS, "item %llu was taken", (unsigned long long)draw);
    if (index - s->next >= MOST)
        return exo_fail(err, EXO_INVAL, "item %llu came, but %llu is the next one",
                        (unsigned long long)draw,
                        (unsigned long long)(s->next * s->size + s->rank));
    exo_status st = grow(s, index - s->next + 1, err);
    if (st != EXO_OK)
        return st;
    exo_item **place = &s->items[index % s->room];
    if (*place)
        return exo_fail(err, EXO_EXISTS, "item %llu is here", (unsigned long long)draw);
    *place = item;
    s->count++;
    return EXO_OK;
}

bool
exo_stock_has(const exo_stock *s, size_t count)
{
    if (s->count < count)
        return false;
    for (uint64_t i = s->next; i < s->next + count; i++)
        if (!s->items[i % s->room])
            return false;
    return true;
}

exo_item *
exo_stock_take(exo_stock *s)
{
    exo_item *item = NULL;
    while (s->count > 0 && !item) {
        exo_item **place = &s->items[s->next++ % s->room];
        item = *place;
        *place = NULL;
    }
    s->count -= item != NULL;
    return item;
}
