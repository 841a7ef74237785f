/* A text in pieces, during encoding or decoding. Owner: one call. Read next: steps.h. */
#ifndef EXO_TEXT_PIECES_H
#define EXO_TEXT_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

#include "base/grow_text.h"

typedef struct exo_piece {
    size_t begin, length;
    int32_t token; /* an added token that was found; -1: the piece is text */
    bool first;    /* the piece is at the beginning of the given text */
} exo_piece;

/* Zero-initialize. */
typedef struct exo_pieces {
    const char *text; /* `begin` counts from here: the text of `own`, or a borrowed one */
    exo_text own;
    exo_piece *items;
    size_t count, room;
    bool failed; /* there was no memory for a piece */
} exo_pieces;

void exo_pieces_release(exo_pieces *pieces);
/* The most bytes that steps may make of `size` bytes. Steps come from a file, and a few steps that
 * each double the text would exhaust any memory. Real tokenizers stay far below this limit. */
size_t exo_pieces_most(size_t size);
/* The sum of the pieces' lengths, in bytes. */
size_t exo_pieces_size(const exo_pieces *pieces);
/* Removes all pieces and empties the text of `own`. Keeps the memory. */
void exo_pieces_clear(exo_pieces *pieces);
/* Adds a piece. Without memory it sets `failed`, which exo_pieces_finish reports. */
void exo_pieces_add(exo_pieces *pieces, size_t begin, size_t length, int32_t token, bool first);
/* Moves the text of `from` to `pieces`, whose pieces count from it. */
void exo_pieces_share(exo_pieces *pieces, exo_pieces *from);
/* Completes the pieces: without a borrowed text, they count from `own`. NOMEM: an addition has
 * failed. FAILED: the text of `own` is longer than its limit. */
exo_status exo_pieces_finish(exo_pieces *pieces, exo_err *err);

#endif
