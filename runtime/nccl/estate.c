/* Communicators that their members have left.
 *
 * In elastic runs they are kept until the members of the next group of the same run make theirs from them
 * (docs/elastic.md). Those that a death has broken were revoked and are quiet: the living shrink them. Those
 * of members that newcomers join are whole, and are grown. What no group has taken in time is ended when
 * the next group opens or loses a member.
 *
 * Those that NCCL is to end wait here for the other members: one thread may close several members of a
 * process, one after the other, so only the last of them can wait.
 *
 * State: the lists, one for the process; a lock guards them. See group.h. */
#include "nccl/group.h"

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static exo_nccl_remains *estate;
static struct presence {
    struct presence *next;
    char key[EXO_NCCL_NAME];
    uint32_t members;
} * present;
static exo_time keeping = 600 * EXO_SECOND; /* a run that goes on does so by then */

void
exo_nccl_set_keeping(exo_time time)
{
    keeping = time;
}

/* Whether the rank is a member of the set. *place: its place among the ranks of `r`. */
static bool
has_rank(const exo_nccl_remains *r, uint32_t rank, uint32_t *place)
{
    for (*place = 0; *place < r->size; ++*place)
        if (r->ranks[*place] == rank)
            return true;
    return false;
}

static bool
contains(const exo_nccl_remains *r, const exo_nccl_set *set)
{
    uint32_t at, p = 0;
    while (p < set->size && has_rank(r, exo_nccl_rank_at(set, p), &at))
        p++;
    return p == set->size;
}

static bool
is_contained(const exo_nccl_remains *r, const exo_nccl_set *set)
{
    const exo_nccl_remains other = {.size = set->size, .ranks = set->ranks};
    uint32_t at, p = 0;
    while (p < r->size &&
           (set->ranks ? has_rank(&other, r->ranks[p], &at) : r->ranks[p] < set->size))
        p++;
    return p == r->size;
}

/* Whether NCCL can make the set's communicator from it. */
static bool
can_become(const exo_nccl_table *nccl, const exo_nccl_remains *r, const exo_nccl_set *set)
{
    if (r->fate == EXO_NCCL_ENDS)
        return false;
    return set->size < r->size ? nccl->CommShrink && contains(r, set)
                               : r->fate == EXO_NCCL_IS_WHOLE && is_contained(r, set);
}

/* How far its size is from that of the set. */
static uint32_t
distance(const exo_nccl_remains *r, const exo_nccl_set *set)
{
    return r->size < set->size ? set->size - r->size : r->size - set->size;
}

static exo_nccl_remains **
find_locked(const exo_nccl_group *g, uint32_t rank, const exo_nccl_set *set)
{
    const int gpu = exo_cuda_side_ordinal(g->members[rank].side);
    exo_nccl_remains **found = NULL;
    for (exo_nccl_remains **at = &estate; *at; at = &(*at)->next)
        if (strcmp((*at)->key, g->key) == 0 && (*at)->rank == rank && (*at)->gpu == gpu &&
            can_become(g->nccl, *at, set) && (!found || distance(*at, set) < distance(*found, set)))
            found = at;
    return found;
}

exo_nccl_remains *
exo_nccl_take(const exo_nccl_group *g, uint32_t rank, const exo_nccl_set *set)
{
    pthread_mutex_lock(&lock);
    exo_nccl_remains **found = find_locked(g, rank, set), *r = found ? *found : NULL;
    if (found)
        *found = r->next;
    pthread_mutex_unlock(&lock);
    return r;
}

static void
add(exo_nccl_remains *r)
{
    pthread_mutex_lock(&lock);
    r->next = estate;
    estate = r;
    pthread_mutex_unlock(&lock);
}

int
exo_nccl_excluded(const exo_nccl_remains *r, const exo_nccl_set *set, int *places)
{
    const exo_nccl_remains wanted = {.size = set->size, .ranks = set->ranks};
    int count = 0;
    for (uint32_t p = 0; p < r->size; p++) {
        uint32_t at;
        const bool stays =
            set->ranks ? has_rank(&wanted, r->ranks[p], &at) : r->ranks[p] < set->size;
        if (!stays)
            places[count++] = (int)p;
    }
    return count;
}

bool
exo_nccl_keep(const exo_nccl_group *g, uint32_t rank, const exo_nccl_set *set, exo_nccl_fate fate,
              exo_time deadline)
{
    exo_nccl_remains *r = exo_calloc(1, sizeof *r + set->size * sizeof(uint32_t));
    if (!r)
        return false;
    *r = (exo_nccl_remains){.rank = rank,
                            .gpu = exo_cuda_side_ordinal(g->members[rank].side),
                            .since = exo_now(exo_clock_real()),
                            .size = set->size,
                            .ranks = (uint32_t *)(r + 1),
                            .comm = set->comm,
                            .fate = fate,
                            .deadline = deadline,
                            .resumes = set->phase == EXO_NCCL_SUSPENDED,
                            .lineage = set->lineage};
    snprintf(r->key, sizeof r->key, "%s", g->key);
    for (uint32_t p = 0; p < set->size; p++)
        r->ranks[exo_nccl_rank_of(set, p)] = exo_nccl_rank_at(set, p);
    add(r);
    return true;
}

/* A communicator whose end is put off. */
struct burial {
    const exo_nccl_table *nccl;
    exo_nccl_comm comm;
    bool aborts;
};

static void
end_comm(void *burial)
{
    const struct burial *b = burial;
    (void)(b->aborts ? b->nccl->CommAbort(b->comm) : b->nccl->CommDestroy(b->comm));
    exo_free(burial);
}

void
exo_nccl_end_comm(const exo_nccl_table *nccl, exo_nccl_comm comm, int gpu, bool aborts)
{
    struct burial *b = exo_calloc(1, sizeof *b);
    if (!b)
        return; /* it ends with the process */
    *b = (struct burial){.nccl = nccl, .comm = comm, .aborts = aborts};
    exo_cuda_when_quiet(gpu, end_comm, b);
}

void
exo_nccl_bury(const exo_nccl_table *nccl, exo_nccl_remains *r)
{
    if (r) /* the other members of one that is whole do not call for its end */
        exo_nccl_end_comm(nccl, r->comm, r->gpu, r->fate == EXO_NCCL_IS_WHOLE);
    exo_free(r);
}

void
exo_nccl_finish(const exo_nccl_table *nccl, exo_nccl_remains *r, exo_time deadline)
{
    const int result = nccl->CommFinalize(r->comm);
    if (result != EXO_NCCL_SUCCESS && result != EXO_NCCL_IN_PROGRESS) {
        exo_nccl_bury(nccl, r);
        return;
    }
    r->fate = EXO_NCCL_ENDS;
    r->deadline = deadline;
    add(r);
}

/* key NULL: only what is old. */
static void
forget(const exo_nccl_table *nccl, const char *key, uint32_t rank)
{
    exo_nccl_remains *gone = NULL;
    const exo_time now = exo_now(exo_clock_real());
    pthread_mutex_lock(&lock);
    for (exo_nccl_remains **at = &estate; *at;) {
        exo_nccl_remains *r = *at;
        const bool own = key && r->rank == rank && strcmp(r->key, key) == 0;
        if (r->fate == EXO_NCCL_ENDS || (!own && now - r->since < keeping)) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        r->next = gone;
        gone = r;
    }
    pthread_mutex_unlock(&lock);
    for (exo_nccl_remains *next; gone; gone = next) {
        next = gone->next;
        exo_nccl_bury(nccl, gone);
    }
}

void
exo_nccl_forget(const exo_nccl_group *g, uint32_t rank)
{
    forget(g->nccl, g->key, rank);
}

void
exo_nccl_forget_old(const exo_nccl_table *nccl)
{
    forget(nccl, NULL, 0);
}

/* --- Ends ------------------------------------------------------------------------------------- */

static exo_time
end_of(const exo_nccl_remains *r, exo_time latest)
{
    return r->deadline < latest ? r->deadline : latest;
}

/* Whether the communicator was given back, or will be as soon as its GPU is quiet. */
static bool
end_one(const exo_nccl_table *nccl, exo_nccl_remains *r, exo_time latest)
{
    int result = EXO_NCCL_SUCCESS;
    const bool asked = nccl->CommGetAsyncError(r->comm, &result) == EXO_NCCL_SUCCESS;
    if (asked && result == EXO_NCCL_SUCCESS && r->resumes) {
        r->resumes = false;
        result = nccl->CommFinalize(r->comm);
        result = result == EXO_NCCL_SUCCESS ? EXO_NCCL_IN_PROGRESS : result;
    }
    if (asked && result == EXO_NCCL_IN_PROGRESS && exo_now(exo_clock_real()) < end_of(r, latest))
        return false;
    exo_nccl_end_comm(nccl, r->comm, r->gpu, !asked || result != EXO_NCCL_SUCCESS);
    return true;
}

static void
unlink_locked(const exo_nccl_remains *r)
{
    exo_nccl_remains **at = &estate;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
}

/* The lock is not held during NCCL's calls: freeing a communicator may take long, and other runs of the
 * process go on meanwhile. The record stays in the list until it is freed, so a waiting thread sees all. */
bool
exo_nccl_reap(const exo_nccl_table *nccl, const char *key, exo_time latest)
{
    bool left = false;
    pthread_mutex_lock(&lock);
    for (exo_nccl_remains *r = estate, *next; r; r = next) {
        next = r->next;
        if (r->fate != EXO_NCCL_ENDS || strcmp(r->key, key) != 0)
            continue;
        if (r->ending) { /* another thread frees it, for which nobody waits beyond its deadline */
            left = left || exo_now(exo_clock_real()) < end_of(r, latest);
            continue;
        }
        r->ending = true;
        pthread_mutex_unlock(&lock);
        const bool gone = end_one(nccl, r, latest);
        pthread_mutex_lock(&lock);
        r->ending = false;
        next = r->next; /* others may have changed the list, but have left this record */
        if (gone) {
            unlink_locked(r);
            exo_free(r);
        }
        left = left || !gone;
    }
    pthread_mutex_unlock(&lock);
    return left;
}

/* --- Members ---------------------------------------------------------------------------------- */

static struct presence **
find_presence_locked(const char *key)
{
    struct presence **at = &present;
    while (*at && strcmp((*at)->key, key) != 0)
        at = &(*at)->next;
    return at;
}

bool
exo_nccl_enter(const char *key)
{
    pthread_mutex_lock(&lock);
    struct presence **at = find_presence_locked(key);
    if (!*at && (*at = exo_calloc(1, sizeof **at)))
        snprintf((*at)->key, sizeof(*at)->key, "%s", key);
    const bool entered = *at;
    if (entered)
        (*at)->members++;
    pthread_mutex_unlock(&lock);
    return entered;
}

bool
exo_nccl_exit(const char *key)
{
    pthread_mutex_lock(&lock);
    struct presence **at = find_presence_locked(key), *p = *at;
    const bool last = p && --p->members == 0;
    if (last) {
        *at = p->next;
        exo_free(p);
    }
    pthread_mutex_unlock(&lock);
    return last;
}
