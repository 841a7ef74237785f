/* The life of NCCL's communicators: see group.h. */
#include "nccl/group.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <exogym/log.h>
#include <exogym/memory.h>

enum {
    CONFIG_MAGIC = (int)0xCAFEBEEF,
    CONFIG_VERSION = 21700
};

#define PATIENCE (5 * EXO_SECOND) /* with NCCL, when a communicator ends */
#define SLEEP_NS (50 * 1000)

exo_status
exo_nccl_status(const exo_nccl_group *g, exo_nccl_comm comm, int result, const char *what,
                exo_err *err)
{
    if (result == EXO_NCCL_SUCCESS || result == EXO_NCCL_IN_PROGRESS)
        return EXO_OK;
    const char *last = comm ? g->nccl->GetLastError(comm) : NULL;
    const bool more = last && *last;
    return exo_fail(err, result == EXO_NCCL_REMOTE_ERROR ? EXO_PEER_LOST : EXO_FAILED,
                    "%s: NCCL: %s%s%.200s%s", what, g->nccl->GetErrorString(result),
                    more ? " (" : "", more ? last : "", more ? ")" : "");
}

/* --- Making ----------------------------------------------------------------------------------- */

/* The FNV-1a hash of the ranks names a set (http://www.isthe.com/chongo/tech/comp/fnv/). */
static uint64_t
key_of(const uint32_t *ranks, uint32_t size)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (uint32_t p = 0; p < size; p++)
        hash = (hash ^ (ranks ? ranks[p] : p)) * UINT64_C(1099511628211);
    return hash;
}

static uint64_t
lineage_of(const exo_nccl_id *id)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < sizeof id->bytes; i++)
        hash = (hash ^ (unsigned char)id->bytes[i]) * UINT64_C(1099511628211);
    return hash ? hash : 1;
}

exo_nccl_set *
exo_nccl_set_of(exo_nccl_group *g, exo_nccl_member *m, const exo_collective_args *a)
{
    const uint64_t key = key_of(a->ranks, a->size);
    exo_nccl_set *s = m->sets;
    while (s && (s->key != key || s->size != a->size))
        s = s->next;
    if (s || !(s = exo_calloc(1, sizeof *s)))
        return s;
    if (a->ranks && a->size < g->size) {
        if (!(s->ranks = exo_calloc(a->size, sizeof *s->ranks))) {
            exo_free(s);
            return NULL;
        }
        memcpy(s->ranks, a->ranks, a->size * sizeof *s->ranks);
    }
    s->key = key;
    s->size = a->size;
    s->place = a->place;
    s->next = m->sets;
    m->sets = s;
    return s;
}

/* What the first of a set has decided. */
struct decision {
    bool made, shrinks;
    exo_nccl_id id;
};

/* Looks whether all members of a set have offered what its first member has; *all: all have offered
 * something. */
static bool
offers_agree(exo_nccl_group *g, const exo_nccl_set *s, uint64_t lineage, bool *all)
{
    bool equal = true;
    *all = true;
    for (uint32_t p = 1; p < s->size; p++) {
        const exo_nccl_note note = exo_nccl_note_of(g, s->key, exo_nccl_rank_at(s, p));
        *all = *all && note.has_offer;
        equal = equal && note.offer == lineage;
    }
    return equal;
}

/* Takes what this member can shrink to the set, if there is something. Returns whether this is the
 * first time. */
static bool
claim(exo_nccl_group *g, uint32_t rank, exo_nccl_set *s)
{
    const bool first = !s->claimed;
    s->claimed = true;
    if (first && g->post && g->nccl->CommShrink)
        s->parent = exo_nccl_take(g, rank, s);
    return first;
}

/* Of the first member: decides, and tells the others. */
static exo_status
decide(exo_nccl_group *g, uint32_t rank, exo_nccl_set *s, struct decision *d, exo_err *err)
{
    exo_nccl_message message = {.kind = EXO_NCCL_TELLS_ID, .set = s->key};
    bool all = true;
    claim(g, rank, s);
    const uint64_t lineage = s->parent ? s->parent->lineage : 0;
    d->shrinks = lineage != 0 && offers_agree(g, s, lineage, &all);
    if (!all)
        return EXO_OK;
    exo_status st = d->shrinks ? EXO_OK
                               : exo_nccl_status(g, NULL, g->nccl->GetUniqueId(&d->id),
                                                 "the id of a communicator", err);
    memcpy(message.body, &d->id, sizeof d->id);
    message.value = d->shrinks;
    d->made = st == EXO_OK;
    return st == EXO_OK ? exo_nccl_tell(g, rank, s, &message, err) : st;
}

/* Of the others: makes an offer, and looks what the first has decided. */
static exo_status
offer(exo_nccl_group *g, uint32_t rank, exo_nccl_set *s, struct decision *d, exo_err *err)
{
    const exo_nccl_note note = exo_nccl_note_of(g, s->key, exo_nccl_rank_at(s, 0));
    exo_nccl_message message = {.kind = EXO_NCCL_TELLS_OFFER, .set = s->key};
    *d = (struct decision){.made = note.has_id, .shrinks = note.shrinks, .id = note.id};
    if (!claim(g, rank, s) || !g->post)
        return EXO_OK;
    message.value = s->parent ? s->parent->lineage : 0;
    const uint32_t first = exo_nccl_rank_at(s, 0);
    return g->post->send(g->post->context, first, &message, sizeof message, err);
}

static int
shrink(exo_nccl_group *g, exo_nccl_set *s, exo_nccl_config *config)
{
    int *places = s->parent ? exo_calloc(s->parent->size, sizeof *places) : NULL;
    if (!places)
        return EXO_NCCL_REMOTE_ERROR;
    s->lineage = s->parent->lineage * UINT64_C(1099511628211) ^ s->key;
    int result = g->nccl->CommShrink(s->parent->comm, places,
                                     exo_nccl_excluded(s->parent, s, places), &s->comm, config, 0);
    exo_free(places);
    return result;
}

static exo_status
begin_making(exo_nccl_group *g, uint32_t rank, exo_nccl_set *s, exo_err *err)
{
    exo_nccl_config config = {.size = sizeof config,
                              .magic = (unsigned)CONFIG_MAGIC,
                              .version = CONFIG_VERSION,
                              .blocking = 0,
                              .cga_cluster_size = INT_MIN, /* NCCL's choice, as the others */
                              .min_ctas = INT_MIN,
                              .max_ctas = INT_MIN};
    struct decision d = {0};
    exo_status st = s->place == 0 ? decide(g, rank, s, &d, err) : offer(g, rank, s, &d, err);
    if (st == EXO_OK && d.made)
        st = exo_cuda_side_select(g->members[rank].side, err);
    if (st != EXO_OK || !d.made)
        return st;
    s->lineage = lineage_of(&d.id);
    const int result = d.shrinks ? shrink(g, s, &config)
                                 : g->nccl->CommInitRankConfig(&s->comm, (int)s->size, d.id,
                                                               (int)s->place, &config);
    s->phase = s->comm ? EXO_NCCL_MAKING : EXO_NCCL_NEW;
    return exo_nccl_status(g, NULL, result, "a new communicator", err);
}

exo_status
exo_nccl_set_poll(exo_nccl_group *g, exo_nccl_set *s, bool *busy, exo_err *err)
{
    int result = EXO_NCCL_SUCCESS;
    exo_status st =
        exo_nccl_status(g, s->comm, g->nccl->CommGetAsyncError(s->comm, &result), "its state", err);
    *busy = result == EXO_NCCL_IN_PROGRESS;
    return st == EXO_OK ? exo_nccl_status(g, s->comm, result, "a collective", err) : st;
}

exo_status
exo_nccl_set_make(exo_nccl_group *g, uint32_t rank, exo_nccl_set *s, bool *ready, exo_err *err)
{
    bool busy = false;
    exo_status st = s->phase == EXO_NCCL_NEW ? begin_making(g, rank, s, err) : EXO_OK;
    if (st == EXO_OK && s->phase == EXO_NCCL_MAKING) {
        st = exo_nccl_set_poll(g, s, &busy, err);
        if (st == EXO_OK && !busy) {
            s->phase = EXO_NCCL_READY;
            exo_nccl_bury(g->nccl, s->parent);
            s->parent = NULL;
        }
    }
    *ready = st == EXO_OK && s->phase == EXO_NCCL_READY;
    return st;
}

/* --- Ends ------------------------------------------------------------------------------------- */

/* Waits until NCCL has nothing to do for a communicator beside the stream. False: it takes too
 * long, or has failed. */
static bool
is_quiet(exo_nccl_group *g, exo_nccl_set *s)
{
    const exo_time deadline = exo_deadline(exo_clock_real(), PATIENCE);
    for (bool busy = true; busy; nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL)) {
        if (exo_nccl_set_poll(g, s, &busy, NULL) != EXO_OK)
            return false;
        if (busy && exo_now(exo_clock_real()) >= deadline)
            return false;
    }
    return true;
}

/* Waits until the side's stream is empty. */
static void
await_stream(exo_nccl_member *m)
{
    const exo_time deadline = exo_deadline(exo_clock_real(), PATIENCE);
    exo_cuda_mark *mark = NULL;
    bool reached = false;
    exo_status st = exo_cuda_mark_new(&mark, m->side, NULL);
    if (st == EXO_OK)
        st = exo_cuda_mark_put(mark, m->side, NULL);
    while (st == EXO_OK && !reached && exo_now(exo_clock_real()) < deadline) {
        st = exo_cuda_mark_reached(mark, &reached, NULL);
        if (!reached)
            nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    }
    exo_cuda_mark_free(mark);
    if (st == EXO_OK && !reached)
        EXO_LOG(ERROR, COMM, "engine=nccl the GPU has not stopped %lld s after an abort",
                (long long)(PATIENCE / EXO_SECOND));
}

/* Whether the next group of the run may shrink what is revoked now. */
static bool
is_worth_keeping(exo_nccl_group *g)
{
    return g->post && g->nccl->CommShrink && exo_nccl_broken(g, NULL) == EXO_PEER_LOST;
}

/* Ends one communicator. Which calls it takes to leave NCCL quiet: nccl.h. */
static void
end_comm(exo_nccl_group *g, uint32_t rank, exo_nccl_set *s, bool broken)
{
    int result = EXO_NCCL_REMOTE_ERROR;
    if (broken && g->nccl->CommRevoke && s->phase == EXO_NCCL_READY)
        result = g->nccl->CommRevoke(s->comm, 0);
    else if (!broken && s->phase == EXO_NCCL_READY)
        result = g->nccl->CommFinalize(s->comm);
    const bool asked = result == EXO_NCCL_SUCCESS || result == EXO_NCCL_IN_PROGRESS;
    if (!asked || !is_quiet(g, s))
        (void)g->nccl->CommAbort(s->comm);
    else if (!broken || !is_worth_keeping(g) || !exo_nccl_keep(g, rank, s))
        (void)g->nccl->CommDestroy(s->comm);
    s->comm = NULL;
}

void
exo_nccl_retire(exo_nccl_group *g, uint32_t rank, bool broken)
{
    exo_nccl_member *m = &g->members[rank];
    if (m->retired)
        return;
    m->retired = true;
    if (m->side)
        (void)exo_cuda_side_select(m->side, NULL);
    exo_nccl_forget(g, rank); /* what an earlier group has left */
    for (exo_nccl_set *s = m->sets; s; s = s->next) {
        if (s->comm)
            end_comm(g, rank, s, broken);
        exo_nccl_bury(g->nccl, s->parent);
        s->parent = NULL;
    }
    if (m->side && broken)
        await_stream(m);
}
