/* Finds actors that live and have lost each other: see split.h. No state. */
#include "graph/split.h"

#include <string.h>

/* An end that its actor has lost; the channel is not over. */
static bool
is_lost(const exo_wait_end *end)
{
    return end->lost && !end->over && !end->gone;
}

/* Finds the next lost end of a record from *at on, and moves *at behind it; NULL: none. */
static const exo_wait_end *
next_lost(const exo_payload *record, uint32_t *at)
{
    const exo_wait_record *r = record->data;
    const exo_wait_end *ends = record->size ? (const exo_wait_end *)(const void *)(r + 1) : NULL;
    while (ends && *at < r->num_ends)
        if (is_lost(&ends[(*at)++]))
            return &ends[*at - 1];
    return NULL;
}

bool
exo_split_may_be(const exo_payload *records, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = 0;
        if (next_lost(&records[i], &at))
            return true;
    }
    return false;
}

static bool
had_lost(const exo_payload *record, uint32_t peer)
{
    const exo_wait_end *end = NULL;
    uint32_t at = 0;
    do
        end = next_lost(record, &at);
    while (end && end->peer != peer);
    return end != NULL;
}

exo_split
exo_split_find(const exo_payload *before, const exo_payload *after, const bool *answered,
               uint32_t count, uint32_t *scratch)
{
    exo_split split = {0};
    const exo_wait_end *end = NULL;
    memset(scratch, 0, count * sizeof *scratch);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t at = 0; (end = next_lost(&after[i], &at));)
            if (answered[end->peer] && had_lost(&before[i], end->peer)) {
                scratch[i]++;
                scratch[end->peer]++;
            }
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t at = 0; (end = next_lost(&after[i], &at));) {
            const uint32_t peer = end->peer, more = scratch[peer] > scratch[i] ? peer : i;
            if (answered[peer] && had_lost(&before[i], peer) &&
                (!split.found || scratch[more] > scratch[split.actor]))
                split = (exo_split){.found = true, .actor = more, .peer = more == i ? peer : i};
        }
    return split;
}

exo_split
exo_split_for_rules(exo_split split, bool actor_has_rule, bool peer_has_rule)
{
    if (actor_has_rule || !peer_has_rule)
        return split;
    return (exo_split){.found = split.found, .actor = split.peer, .peer = split.actor};
}
