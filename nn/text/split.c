/* Pre-tokenization: the steps change or split each piece of text. Pieces of tokens stay as they
 * are. The pieces' owner is one call. See steps.h. */
#include "nn/text/steps.h"

#include <exogym/memory.h>

/* The split of one piece at its matches. */
struct splitter {
    const exo_step *step;
    exo_pieces *out;
    const exo_piece *piece; /* the piece to split */
    size_t begin, end;      /* the next piece of the result, not yet added */
    bool open;              /* `begin` and `end` are valid */
    bool previous;          /* the previous part was a match */
};

static void
flush(struct splitter *s)
{
    if (s->open && s->end > s->begin)
        exo_pieces_add(s->out, s->piece->begin + s->begin, s->end - s->begin, -1,
                       s->piece->first && s->begin == 0);
    s->open = false;
}

static void
begin_piece(struct splitter *s, size_t begin, size_t end)
{
    flush(s);
    s->begin = begin;
    s->end = end;
    s->open = true;
}

/* Adds the next part of the piece: a match, or the text between two matches. */
static void
part(struct splitter *s, size_t begin, size_t end, bool match)
{
    match = match != s->step->invert;
    bool joins = false;
    switch (s->step->behavior) {
    case EXO_SPLIT_REMOVED:
        if (match) {
            flush(s);
            return;
        }
        break;
    case EXO_SPLIT_ISOLATED:
        break;
    case EXO_SPLIT_MERGED_WITH_PREVIOUS: /* of successive matches, only the first joins */
        joins = match && !s->previous;
        break;
    case EXO_SPLIT_MERGED_WITH_NEXT: /* of successive matches, only the last joins */
        joins = !match && s->previous;
        break;
    case EXO_SPLIT_CONTIGUOUS:
        joins = match == s->previous;
        break;
    }
    s->previous = match;
    if (joins && s->open)
        s->end = end;
    else
        begin_piece(s, begin, end);
}

static exo_status
split_piece(const exo_step *step, exo_matcher *matcher, const exo_pieces *in,
            const exo_piece *piece, exo_pieces *out, exo_err *err)
{
    struct splitter s = {.step = step, .out = out, .piece = piece};
    size_t done = 0, begin = 0, end = 0;
    bool found;
    exo_matcher_begin(matcher, in->text + piece->begin, piece->length);
    for (;;) {
        exo_status st = exo_matcher_next(matcher, &found, &begin, &end, err);
        if (st != EXO_OK)
            return st;
        if (!found)
            break;
        if (done != begin)
            part(&s, done, begin, false);
        part(&s, begin, end, true);
        done = end;
    }
    if (done != piece->length)
        part(&s, done, piece->length, false);
    flush(&s);
    return EXO_OK;
}

static exo_status
one_step(const exo_step *step, exo_pieces *in, exo_pieces *out, exo_err *err)
{
    exo_matcher matcher = {0};
    exo_status st = step->pattern ? exo_matcher_open(&matcher, step->pattern, err) : EXO_OK;
    bool splits = step->kind == EXO_STEP_SPLIT;
    exo_pieces_clear(out);
    for (size_t i = 0; i < in->count && st == EXO_OK; i++) {
        const exo_piece *piece = &in->items[i];
        if (piece->token >= 0) {
            exo_pieces_add(out, 0, 0, piece->token, false);
        } else if (splits) {
            st = split_piece(step, &matcher, in, piece, out, err);
        } else {
            size_t begin = out->own.length;
            bool first = piece->first;
            st = exo_step_transform(step, &matcher, in->text + piece->begin, piece->length, &first,
                                    &out->own, err);
            if (out->own.length > begin)
                exo_pieces_add(out, begin, out->own.length - begin, -1, first);
        }
    }
    exo_matcher_close(&matcher);
    if (splits)
        exo_pieces_share(out, in);
    return st == EXO_OK ? exo_pieces_finish(out, err) : st;
}

exo_status
exo_steps_split(const exo_steps *steps, exo_pieces *pieces, exo_pieces *spare, exo_err *err)
{
    exo_status st = EXO_OK;
    pieces->own.most = spare->own.most = exo_pieces_most(exo_pieces_size(pieces));
    for (size_t i = 0; i < steps->count && st == EXO_OK; i++) {
        st = one_step(&steps->items[i], pieces, spare, err);
        exo_pieces given = *pieces;
        *pieces = *spare;
        *spare = given;
    }
    return st;
}
