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

#define SLEEP_NS (50 * 1000)

static exo_time patience = 5 * EXO_SECOND; /* with NCCL, when a communicator ends */

void
exo_nccl_set_patience(exo_time time)
{
    patience = time;
}

exo_status
exo_nccl_status(const exo_nccl_group *g, exo_nccl_comm comm, int result, const char *what,
                exo_err *err)
{
    if (result == EXO_NCCL_SUCCESS || result == EXO_NCCL_IN_PROGRESS)
        return EXO_OK;
    const char *last = comm ? g->nccl->GetLastError(comm) : NULL;
    const bool more = last && *last;
    return exo_fail(err, result == EXO_NCCL_REMOTE_ERROR ? EXO_PEER_LOST : EXO_FAILED,
                    "%s: NCCL: %s%s%.200s%s%s", what, g->nccl->GetErrorString(result),
                    more ? " (" : "", more ? last : "", more ? ")" : "",
                    result == EXO_NCCL_INVALID_USAGE
                        ? "; NCCL takes one node a GPU: take fewer nodes or more GPUs, or choose "
                          "engine: auto"
                        : "");
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

static bool
has_ranks(const exo_nccl_set *s, const uint32_t *ranks, uint32_t size)
{
    bool same = s->size == size;
    for (uint32_t p = 0; same && p < size; p++)
        same = exo_nccl_rank_at(s, p) == (ranks ? ranks[p] : p);
    return same;
}

exo_status
exo_nccl_set_of(exo_nccl_set **out, exo_nccl_group *g, exo_nccl_member *m,
                const exo_collective_args *a, exo_err *err)
{
    const uint64_t key = key_of(a->ranks, a->size);
    exo_nccl_set *s = m->sets;
    while (s && s->key != key)
        s = s->next;
    *out = s;
    if (s && !has_ranks(s, a->ranks, a->size))
        return exo_fail(err, EXO_UNSUPPORTED,
                        "two sets of members have one key: open one of them "
                        "in a group of its own");
    if (s)
        return EXO_OK;
    const bool some = a->ranks && a->size < g->size;
    s = exo_calloc(1, sizeof *s);
    if (s && some && !(s->ranks = exo_calloc(a->size, sizeof *s->ranks))) {
        exo_free(s);
        s = NULL;
    }
    if (!s)
        return exo_fail(err, EXO_NOMEM, "no memory for a set of members");
    if (some)
        memcpy(s->ranks, a->ranks, a->size * sizeof *s->ranks);
    s->key = key;
    s->size = a->size;
    s->place = a->place;
    s->next = m->sets;
    pthread_mutex_lock(&g->lock);
    m->sets = s;
    pthread_mutex_unlock(&g->lock);
    *out = s;
    return EXO_OK;
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
    int result = EXO_NCCL_REMOTE_ERROR;
    int *places = s->parent ? exo_calloc(s->parent->size, sizeof *places) : NULL;
    const int count = places ? exo_nccl_excluded(s->parent, s, places) : 0;
    if (count > 0) {
        s->lineage = s->parent->lineage * UINT64_C(1099511628211) ^ s->key;
        result = g->nccl->CommShrink(s->parent->comm, places, count, &s->comm, config, 0);
    }
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
    if (!d.shrinks) {
        exo_nccl_bury(g->nccl, s->parent);
        s->parent = NULL;
    }
    s->lineage = lineage_of(&d.id);
    const int result = d.shrinks ? shrink(g, s, &config)
                                 : g->nccl->CommInitRankConfig(&s->comm, (int)s->size, d.id,
                                                               (int)s->place, &config);
    /* a shrink writes s->comm when it is done */
    st = exo_nccl_status(g, NULL, result, "a new communicator", err);
    s->phase = st == EXO_OK || (!d.shrinks && s->comm) ? EXO_NCCL_MAKING : EXO_NCCL_NEW;
    return st;
}

static exo_status
poll_comm(exo_nccl_group *g, exo_nccl_comm comm, bool *busy, exo_err *err)
{
    int result = EXO_NCCL_SUCCESS;
    exo_status st =
        exo_nccl_status(g, comm, g->nccl->CommGetAsyncError(comm, &result), "its state", err);
    *busy = result == EXO_NCCL_IN_PROGRESS;
    return st == EXO_OK ? exo_nccl_status(g, comm, result, "a collective", err) : st;
}

/* NCCL's thread writes it before it ends the state IN_PROGRESS of the parent. */
static exo_nccl_comm
comm_of(const exo_nccl_set *s)
{
    return __atomic_load_n(&s->comm, __ATOMIC_ACQUIRE);
}

exo_status
exo_nccl_set_poll(exo_nccl_group *g, exo_nccl_set *s, bool *busy, exo_err *err)
{
    exo_status st = EXO_OK;
    *busy = false;
    if (s->parent) /* the state of a shrink is its parent's, until there is a communicator */
        st = poll_comm(g, s->parent->comm, busy, err);
    if (st != EXO_OK || *busy)
        return st;
    const exo_nccl_comm comm = comm_of(s);
    return comm ? poll_comm(g, comm, busy, err)
                : exo_fail(err, EXO_FAILED, "a new communicator: NCCL has made none");
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

/* Waits until the side's stream is empty. False: it is not. */
static bool
await_stream(exo_nccl_member *m)
{
    const exo_time deadline = exo_deadline(exo_clock_real(), patience);
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
                (long long)(patience / EXO_SECOND));
    return st != EXO_OK || reached;
}

/* Whether the next group of the run may shrink what is revoked now. */
static bool
is_worth_keeping(exo_nccl_group *g)
{
    return g->post && g->post->goes_on && g->nccl->CommShrink &&
           exo_nccl_broken(g, NULL) == EXO_PEER_LOST;
}

/* Asks NCCL to end the communicator of a set. Which calls it takes to leave NCCL quiet: nccl.h. */
static void
ask_end(exo_nccl_group *g, exo_nccl_set *s, bool broken)
{
    int result = EXO_NCCL_REMOTE_ERROR;
    if (broken && g->nccl->CommRevoke && s->phase == EXO_NCCL_READY)
        result = g->nccl->CommRevoke(s->comm, 0);
    else if (!broken && s->phase == EXO_NCCL_READY)
        result = g->nccl->CommFinalize(s->comm);
    const bool asked = result == EXO_NCCL_SUCCESS || result == EXO_NCCL_IN_PROGRESS;
    const bool shrinks = s->phase == EXO_NCCL_MAKING && s->parent; /* it is better to let it end */
    s->end = asked || shrinks ? EXO_NCCL_IS_BUSY : EXO_NCCL_IS_STUCK;
}

/* Looks at all sets that NCCL is to end. Returns whether it is at work on one. */
static bool
poll_ends(exo_nccl_group *g, exo_nccl_set *sets)
{
    bool any = false;
    for (exo_nccl_set *s = sets; s; s = s->next) {
        bool busy = false;
        if (s->end != EXO_NCCL_IS_BUSY || (s->phase == EXO_NCCL_READY && !s->comm))
            continue;
        const exo_status st = s->parent ? poll_comm(g, s->parent->comm, &busy, NULL)
                                        : exo_nccl_set_poll(g, s, &busy, NULL);
        if (st != EXO_OK || !busy)
            s->end = st == EXO_OK ? EXO_NCCL_IS_QUIET : EXO_NCCL_IS_STUCK;
        any = any || s->end == EXO_NCCL_IS_BUSY;
    }
    return any;
}

static bool
others_have_left(exo_nccl_group *g, uint32_t own)
{
    uint32_t rank = 0;
    pthread_mutex_lock(&g->lock);
    while (rank < g->size && (rank == own || g->members[rank].left))
        rank++;
    pthread_mutex_unlock(&g->lock);
    return rank == g->size;
}

/* Waits until NCCL has ended what is broken. */
static void
await_broken(exo_nccl_set *sets, exo_nccl_group *g)
{
    const exo_time deadline = exo_deadline(exo_clock_real(), patience);
    while (poll_ends(g, sets) && exo_now(exo_clock_real()) < deadline)
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
}

void
exo_nccl_await_ends(exo_nccl_group *g, uint32_t rank)
{
    exo_time latest = INT64_MAX;
    while (exo_nccl_reap(g->nccl, g->key, latest)) {
        if (latest == INT64_MAX &&
            (exo_nccl_broken(g, NULL) != EXO_OK || others_have_left(g, rank)))
            latest = exo_deadline(exo_clock_real(), patience);
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    }
}

/* Leaves a communicator that NCCL is at work to end to those who wait for the last member. */
static void
leave_to_end(exo_nccl_group *g, uint32_t rank, exo_nccl_set *s)
{
    const exo_time timeout = g->members[rank].timeout;
    const exo_time deadline =
        exo_deadline(exo_clock_real(), timeout < patience ? patience : timeout);
    if (s->end == EXO_NCCL_IS_BUSY && !s->parent && exo_nccl_keep(g, rank, s, deadline))
        s->comm = NULL;
}

/* Gives back one communicator. An abort of the parent ends a shrink: s->comm is not written after. */
static void
end_comm(exo_nccl_group *g, uint32_t rank, exo_nccl_set *s, bool broken)
{
    if (s->parent && s->phase == EXO_NCCL_MAKING) {
        (void)g->nccl->CommAbort(s->parent->comm);
        exo_free(s->parent);
        s->parent = NULL;
        s->end = EXO_NCCL_IS_STUCK;
    }
    const exo_nccl_comm comm = comm_of(s);
    if (comm && s->end != EXO_NCCL_IS_QUIET)
        (void)g->nccl->CommAbort(comm);
    else if (comm && (!broken || !is_worth_keeping(g) || !exo_nccl_keep(g, rank, s, 0)))
        (void)g->nccl->CommDestroy(comm);
    s->comm = NULL;
    exo_nccl_bury(g->nccl, s->parent);
    s->parent = NULL;
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
    for (exo_nccl_set *s = m->sets; s; s = s->next)
        ask_end(g, s, broken);
    for (exo_nccl_set *s = m->sets; s && !broken; s = s->next)
        leave_to_end(g, rank, s);
    await_broken(m->sets, g); /* also what is not made yet, or finds no memory for its end */
    for (exo_nccl_set *s = m->sets; s; s = s->next)
        end_comm(g, rank, s, broken);
    if (m->side && broken)
        m->runs_on = !await_stream(m);
}
