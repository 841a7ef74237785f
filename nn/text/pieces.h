/* A text in pieces, on the way from text to tokens or back. Owner: one call. */
#ifndef EXO_TEXT_PIECES_H
#define EXO_TEXT_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

#include "base/grow_text.h"

typedef struct exo_piece {
    size_t begin, length;
    int32_t token; /* found already; -1: text                        */
    bool first;    /* nothing of the text that was given is before it */
} exo_piece;

/* Zero-initialize. */
typedef struct exo_pieces {
    const char *text; /* what `begin` counts from: `own`, or somebody else's */
    exo_text own;
    exo_piece *items;
    size_t count, room;
    bool failed; /* no memory for a piece */
} exo_pieces;

void exo_pieces_release(exo_pieces *pieces);
/* The most that steps may make of `size` bytes. Steps come from a file, and a few that double a text have no end that any memory reaches; those
 * of real tokenizers stay far below. */
size_t exo_pieces_most(size_t size);
/* Bytes of all pieces. */
size_t exo_pieces_size(const exo_pieces *pieces);
/* No pieces, an empty text of its own. Memory is kept. */
void exo_pieces_clear(exo_pieces *pieces);
void exo_pieces_add(exo_pieces *pieces, size_t begin, size_t length, int32_t token, bool first);
/* After pieces of `from`'s text were added to `pieces`: they get the text, too. */
void exo_pieces_share(exo_pieces *pieces, exo_pieces *from);
/* After a text of its own was written. NOMEM if anything has failed; FAILED if that text is longer than it may be. */
exo_status exo_pieces_finish(exo_pieces *pieces, exo_err *err);

#endif
