/* The merging of a word's symbols. A short word is searched for the least rank before each merge.
 * A long word has a heap of pairs, so that n symbols cost n log n. The state and its owner are in
 * bpe.h. */
#include <string.h>

#include <exogym/memory.h>

#include "nn/text/bpe.h"

enum {
    SHORT_MOST = 64 /* symbols of a short word */
};

#define NO_LINK UINT32_MAX

static uint64_t
merge_of(const exo_bpe *bpe, int32_t left, int32_t right)
{
    return exo_map64_get(&bpe->merges, (uint64_t)(uint32_t)left << 32 | (uint32_t)right);
}

/* --- Short words ------------------------------------------------------------------------------ */

/* A merge is rank << 32 | token, so the least value has the least rank. Only equal pairs have
 * equal ranks; of these the search takes the leftmost. */
static size_t
merge_short(const exo_bpe *bpe, int32_t *ids, size_t count)
{
    uint64_t merges[SHORT_MOST];
    for (size_t i = 0; i + 1 < count; i++)
        merges[i] = merge_of(bpe, ids[i], ids[i + 1]);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (merges[i] < merges[best])
                best = i;
        if (merges[best] == EXO_MAP64_NONE)
            break;
        ids[best] = (int32_t)(uint32_t)merges[best];
        memmove(ids + best + 1, ids + best + 2, (count - best - 2) * sizeof *ids);
        count--;
        if (best + 1 < count) {
            memmove(merges + best + 1, merges + best + 2, (count - best - 2) * sizeof *merges);
            merges[best] = merge_of(bpe, ids[best], ids[best + 1]);
        }
        if (best > 0)
            merges[best - 1] = merge_of(bpe, ids[best - 1], ids[best]);
    }
    return count;
}

/* --- Long words ------------------------------------------------------------------------------- */

static void
sift_down(uint64_t *heap, size_t count, size_t at)
{
    uint64_t moved = heap[at];
    for (;;) {
        size_t below = 2 * at + 1;
        if (below >= count)
            break;
        if (below + 1 < count && heap[below + 1] < heap[below])
            below++;
        if (heap[below] >= moved)
            break;
        heap[at] = heap[below];
        at = below;
    }
    heap[at] = moved;
}

static uint64_t
pop(exo_bpe_work *work)
{
    uint64_t least = work->heap[0];
    work->heap[0] = work->heap[--work->heap_count];
    if (work->heap_count)
        sift_down(work->heap, work->heap_count, 0);
    return least;
}

static bool
reserve_heap(exo_bpe_work *work)
{
    if (work->heap_count < work->heap_room)
        return true;
    size_t room = 2 * work->heap_room + 256;
    uint64_t *heap = exo_realloc(work->heap, room, sizeof *heap);
    if (!heap)
        return false;
    work->heap = heap;
    work->heap_room = room;
    return true;
}

static bool
push(exo_bpe_work *work, uint64_t key)
{
    if (!reserve_heap(work))
        return false;
    size_t at = work->heap_count++;
    while (at > 0 && work->heap[(at - 1) / 2] > key) {
        work->heap[at] = work->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    work->heap[at] = key;
    return true;
}

/* Pushes the pair that begins at a position, if a merge joins it. False: no memory. */
static bool
push_pair(const exo_bpe *bpe, exo_bpe_work *work, uint32_t at)
{
    uint64_t merge = merge_of(bpe, work->ids[at], work->ids[work->next[at]]);
    return merge == EXO_MAP64_NONE || push(work, (merge & ~(uint64_t)UINT32_MAX) | at);
}

static bool
begin_long(const exo_bpe *bpe, exo_bpe_work *work, size_t count)
{
    if (count > work->links_room) {
        uint32_t *prev = exo_realloc(work->prev, count, sizeof *prev);
        if (prev)
            work->prev = prev;
        uint32_t *next = exo_realloc(work->next, count, sizeof *next);
        if (next)
            work->next = next;
        if (!prev || !next)
            return false;
        work->links_room = count;
    }
    work->heap_count = 0;
    for (size_t i = 0; i < count; i++) {
        work->prev[i] = i > 0 ? (uint32_t)i - 1 : NO_LINK;
        work->next[i] = i + 1 < count ? (uint32_t)i + 1 : NO_LINK;
    }
    for (size_t i = 0; i + 1 < count; i++) {
        uint64_t merge = merge_of(bpe, work->ids[i], work->ids[i + 1]);
        if (merge == EXO_MAP64_NONE)
            continue;
        if (!reserve_heap(work))
            return false;
        work->heap[work->heap_count++] = (merge & ~(uint64_t)UINT32_MAX) | i;
    }
    for (size_t i = work->heap_count / 2; i-- > 0;)
        sift_down(work->heap, work->heap_count, i);
    return true;
}

/* Joins symbols in the order of the heap. A symbol that was joined to the one before it becomes
 * -1. Entries of the heap may be stale: each is checked against the symbols of now. */
static bool
merge_long(const exo_bpe *bpe, exo_bpe_work *work, size_t *count)
{
    int32_t *ids = work->ids;
    if (!begin_long(bpe, work, *count))
        return false;
    while (work->heap_count) {
        uint64_t key = pop(work);
        uint32_t at = (uint32_t)key, right = ids[at] >= 0 ? work->next[at] : NO_LINK;
        if (right == NO_LINK)
            continue;
        uint64_t merge = merge_of(bpe, ids[at], ids[right]);
        if (merge == EXO_MAP64_NONE || merge >> 32 != key >> 32)
            continue; /* stale: one of the two symbols has been joined since */
        ids[at] = (int32_t)(uint32_t)merge;
        ids[right] = -1;
        uint32_t after = work->next[right], before = work->prev[at];
        work->next[at] = after;
        if (after != NO_LINK)
            work->prev[after] = at;
        if ((before != NO_LINK && !push_pair(bpe, work, before)) ||
            (after != NO_LINK && !push_pair(bpe, work, at)))
            return false;
    }
    size_t left = 0;
    for (size_t i = 0; i < *count; i++)
        if (ids[i] >= 0)
            ids[left++] = ids[i];
    *count = left;
    return true;
}

bool
exo_bpe_merge_all(const exo_bpe *bpe, exo_bpe_work *work, size_t *count)
{
    if (*count > SHORT_MOST)
        return merge_long(bpe, work, count);
    *count = merge_short(bpe, work->ids, *count);
    return true;
}
