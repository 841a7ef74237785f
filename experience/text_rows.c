/* Texts as the rows of a pass: see text_rows.h. */
#include "experience/text_rows.h"

#include <string.h>

#include <exogym/memory.h>

enum {
    STEP = 16 /* lengths are multiples of it, so that few different shapes occur */
};

void
exo_text_rows_release(exo_text_rows *r)
{
    exo_free(r->tokens);
    exo_free(r->targets);
    exo_free(r->mask);
    exo_free(r->last);
    exo_free(r->offsets);
    *r = (exo_text_rows){0};
}

static exo_status
make_room(exo_text_rows *r, size_t texts, size_t rows, exo_err *err)
{
    if (rows <= r->room && texts <= r->text_room)
        return EXO_OK;
    exo_text_rows_release(r);
    r->tokens = exo_calloc(rows, sizeof *r->tokens);
    r->targets = exo_calloc(rows, sizeof *r->targets);
    r->mask = exo_calloc(rows, sizeof *r->mask);
    r->last = exo_calloc(rows, sizeof *r->last);
    r->offsets = exo_calloc(texts + 1, sizeof *r->offsets);
    if (!r->tokens || !r->targets || !r->mask || !r->last || !r->offsets) {
        exo_text_rows_release(r);
        return exo_fail(err, EXO_NOMEM, "no memory for %zu rows", rows);
    }
    r->room = rows;
    r->text_room = texts;
    return EXO_OK;
}

static void
fill_text(exo_text_rows *r, size_t n, const exo_prompted *text)
{
    size_t first = n * r->length, shown = text->length < r->length ? text->length : r->length;
    memcpy(r->tokens + first, text->tokens, shown * sizeof *r->tokens);
    for (size_t t = text->prompt - 1; t + 1 < text->length; t++) {
        r->targets[first + t] = text->tokens[t + 1];
        r->mask[first + t] = 1;
        r->count++;
    }
    if (text->length <= r->length)
        r->last[first + text->length - 1] = 1;
}

exo_status
exo_text_rows_fill(exo_text_rows *r, const exo_prompted *const *texts, size_t count, size_t context,
                   exo_err *err)
{
    size_t longest = 0;
    for (size_t i = 0; i < count; i++)
        longest = texts[i]->length > longest ? texts[i]->length : longest;
    size_t length = (longest + STEP - 1) / STEP * STEP;
    length = length < context ? length : context;
    exo_status st = make_room(r, count, count * length, err);
    if (st != EXO_OK)
        return st;
    r->texts = count;
    r->length = length;
    r->count = 0;
    memset(r->tokens, 0, count * length * sizeof *r->tokens);
    memset(r->targets, 0xff, count * length * sizeof *r->targets);
    memset(r->mask, 0, count * length * sizeof *r->mask);
    memset(r->last, 0, count * length * sizeof *r->last);
    for (size_t i = 0; i < count; i++)
        fill_text(r, i, texts[i]);
    for (size_t i = 0; i <= count; i++)
        r->offsets[i] = (int32_t)(i * length);
    return EXO_OK;
}

exo_batch
exo_text_rows_batch(const exo_text_rows *r)
{
    exo_batch batch = {.size = r->texts, .num_fields = 1};
    batch.fields[0] =
        (exo_field){.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {r->length}};
    batch.data[0] = r->tokens;
    return batch;
}
