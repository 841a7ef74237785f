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
    exo_free(s->taken);
    exo_free(s->marks);
    s->items = NULL;
    s->taken = NULL;
    s->marks = NULL;
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
    bool *taken = exo_calloc(room, sizeof *taken);
    exo_stock_mark *marks = exo_calloc(room, sizeof *marks);
    if (!items || !taken || !marks) {
        exo_free(items);
        exo_free(taken);
        exo_free(marks);
        return exo_fail(err, EXO_NOMEM, "no memory for %zu items", room);
    }
    for (uint64_t i = s->next; i < s->next + s->room; i++) {
        items[i % room] = s->items[i % s->room];
        taken[i % room] = s->taken[i % s->room];
    }
    for (size_t i = 0; i < s->room; i++)
        if (s->marks[i].known)
            marks[s->marks[i].draw / s->size % room] = s->marks[i];
    exo_free(s->items);
    exo_free(s->taken);
    exo_free(s->marks);
    s->items = items;
    s->taken = taken;
    s->marks = marks;
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
    if (s->taken[index % s->room])
        return exo_fail(err, EXO_EXISTS, "item %llu was taken", (unsigned long long)draw);
    if (*place)
        return exo_fail(err, EXO_EXISTS, "item %llu is here", (unsigned long long)draw);
    *place = item;
    s->count++;
    return EXO_OK;
}

void
exo_stock_note(exo_stock *s, const exo_experience *e)
{
    s->marks[e->id / s->size % s->room] = (exo_stock_mark){
        .draw = e->id, .prompt = e->prompt, .epoch = e->epoch, .maker = e->maker, .known = true};
}

exo_status
exo_stock_compare(const exo_stock *s, const exo_experience *e, exo_err *err)
{
    const exo_stock_mark *m = s->room ? &s->marks[e->id / s->size % s->room] : NULL;
    if (!m || !m->known || m->draw != e->id || (m->prompt == e->prompt && m->epoch == e->epoch))
        return EXO_EXISTS;
    return exo_fail(err, EXO_INVAL,
                    "draw %llu came twice: item %llu of maker %llu has prompt %llu of epoch %llu, "
                    "and the one before, of maker %llu, prompt %llu of epoch %llu. One of the two "
                    "has the number of another draw: look at these makers",
                    (unsigned long long)e->id, (unsigned long long)e->id,
                    (unsigned long long)e->maker, (unsigned long long)e->prompt,
                    (unsigned long long)e->epoch, (unsigned long long)m->maker,
                    (unsigned long long)m->prompt, (unsigned long long)m->epoch);
}

/* Draws below it may not be overtaken by the next `count` draws that are taken. */
static uint64_t
due(const exo_stock *s, size_t count)
{
    uint64_t taken = s->next + s->ahead + count;
    return taken > s->slack ? taken - s->slack : 0;
}

bool
exo_stock_has(const exo_stock *s, size_t count)
{
    if (s->count < count)
        return false;
    for (uint64_t i = s->next, end = due(s, count); i < end; i++)
        if (i >= s->next + s->room || !(s->items[i % s->room] || s->taken[i % s->room]))
            return false;
    return true;
}

bool
exo_stock_is_complete(const exo_stock *s, uint64_t draws)
{
    uint64_t own = draws > s->rank ? (draws - s->rank - 1) / s->size + 1 : 0;
    return s->next + s->ahead + s->count >= own;
}

/* Notes that draw `index` was taken. Without slack those that are missing before it are passed over. */
static void
note_taken(exo_stock *s, uint64_t index)
{
    if (s->slack == 0) {
        s->next = index + 1;
        return;
    }
    s->taken[index % s->room] = true;
    for (s->ahead++; s->taken[s->next % s->room]; s->next++, s->ahead--)
        s->taken[s->next % s->room] = false;
}

exo_item *
exo_stock_take(exo_stock *s)
{
    uint64_t index = s->next;
    if (s->count == 0)
        return NULL;
    while (!s->items[index % s->room])
        index++;
    exo_item *item = s->items[index % s->room];
    s->items[index % s->room] = NULL;
    s->count--;
    note_taken(s, index);
    return item;
}

/* --- Draws that are finished ------------------------------------------------------------------ */

uint64_t
exo_stock_low(const exo_stock *s)
{
    uint64_t low = due(s, 0);
    return (low < s->next ? low : s->next) * s->size;
}

size_t
exo_stock_finished(const exo_stock *s, uint64_t *pairs, size_t most)
{
    size_t count = 0;
    bool goes_on = false;
    if (s->slack == 0)
        return 0;
    for (uint64_t i = exo_stock_low(s) / s->size; i < s->next + s->room; i++) {
        bool has = i < s->next || s->items[i % s->room] || s->taken[i % s->room];
        if (has && !goes_on && count == most)
            break;
        if (has && !goes_on) {
            pairs[2 * count] = i * s->size + s->rank;
            pairs[2 * count++ + 1] = 0;
        }
        if (has)
            pairs[2 * count - 1]++;
        goes_on = has;
    }
    return count;
}

void
exo_stock_save(const exo_stock *s, uint8_t *bits, size_t bytes)
{
    memset(bits, 0, bytes);
    for (size_t i = 0; i < s->room && i < 8 * bytes; i++)
        if (s->taken[(s->next + i) % s->room])
            bits[i / 8] |= (uint8_t)(1u << i % 8);
}

exo_status
exo_stock_load(exo_stock *s, const uint8_t *bits, size_t bytes, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < 8 * bytes; i++) {
        if (!(bits[i / 8] & 1u << i % 8))
            continue;
        st = grow(s, i + 1, err);
        if (st == EXO_OK) {
            s->taken[(s->next + i) % s->room] = true;
            s->ahead++;
        }
    }
    return st;
}
