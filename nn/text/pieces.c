/* Texts in pieces: see pieces.h. The list's room doubles when it is full. */
#include "nn/text/pieces.h"

#include <exogym/memory.h>

enum {
    GROWTH = 32, /* the limit is so many times the text's length, */
    LEAST = 1024 /* plus so many bytes */
};

size_t
exo_pieces_most(size_t size)
{
    return size < SIZE_MAX / GROWTH - LEAST ? GROWTH * size + LEAST : SIZE_MAX;
}

void
exo_pieces_release(exo_pieces *pieces)
{
    exo_free(pieces->own.data);
    exo_free(pieces->items);
    *pieces = (exo_pieces){0};
}

size_t
exo_pieces_size(const exo_pieces *pieces)
{
    size_t size = 0;
    for (size_t i = 0; i < pieces->count; i++)
        size += pieces->items[i].length;
    return size;
}

void
exo_pieces_clear(exo_pieces *pieces)
{
    pieces->text = NULL;
    pieces->own.length = 0;
    pieces->count = 0;
}

void
exo_pieces_add(exo_pieces *pieces, size_t begin, size_t length, int32_t token, bool first)
{
    if (pieces->count == pieces->room) {
        size_t room = pieces->room ? 2 * pieces->room : 64;
        exo_piece *items = pieces->failed ? NULL : exo_realloc(pieces->items, room, sizeof *items);
        if (!items) {
            pieces->failed = true;
            return;
        }
        pieces->items = items;
        pieces->room = room;
    }
    pieces->items[pieces->count++] =
        (exo_piece){.begin = begin, .length = length, .token = token, .first = first};
}

void
exo_pieces_share(exo_pieces *pieces, exo_pieces *from)
{
    exo_text own = pieces->own;
    pieces->own = from->own;
    pieces->text = from->text;
    from->own = own;
}

exo_status
exo_pieces_finish(exo_pieces *pieces, exo_err *err)
{
    if (!pieces->text)
        pieces->text = pieces->own.data ? pieces->own.data : "";
    if (pieces->own.over)
        return exo_fail(err, EXO_FAILED,
                        "the tokenizer makes more than %zu bytes of this text, which is refused",
                        pieces->own.most);
    if (pieces->failed || pieces->own.failed)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu pieces of a text", pieces->count + 1);
    return EXO_OK;
}
