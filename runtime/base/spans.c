/* Tracks of spans: see spans.h. No state of its own. */
#include "base/spans.h"

#include <string.h>

#include <exogym/memory.h>

static void
add_total(exo_track *track, const char *name, exo_span_kind kind, exo_time time)
{
    size_t i = 0;
    while (i < track->num_totals &&
           (track->totals[i].kind != kind || strcmp(track->totals[i].name, name) != 0))
        i++;
    if (i == EXO_SPAN_NAMES)
        i--;
    exo_span_total *total = &track->totals[i];
    if (i == track->num_totals) {
        *total = (exo_span_total){.name = name, .kind = kind};
        track->num_totals++;
    }
    total->time += time;
    total->count++;
}

void
exo_track_add(exo_track *track, const char *name, exo_span_kind kind, exo_time begin, exo_time end)
{
    if (end <= begin)
        return;
    add_total(track, name, kind, end - begin);
    exo_span *last = track->length ? &track->spans[track->length - 1] : NULL;
    if (last && last->end == begin && last->kind == kind && strcmp(last->name, name) == 0) {
        last->end = end;
        return;
    }
    if (track->length == track->room && track->length < track->limit) {
        size_t room = track->room ? track->room * 2 : 64;
        exo_span *spans = exo_realloc(track->spans, room, sizeof *spans);
        if (spans) {
            track->spans = spans;
            track->room = room;
        }
    }
    if (track->length < track->room && track->length < track->limit)
        track->spans[track->length++] =
            (exo_span){.name = name, .kind = kind, .begin = begin, .end = end};
    else
        track->lost++;
}

void
exo_track_release(exo_track *track)
{
    exo_free(track->spans);
    *track = (exo_track){0};
}
