/* The states and the ends of NCCL's communicators: see group.h and make.c. */
#include "nccl/group.h"

#include <time.h>

#include <exogym/log.h>
#include <exogym/memory.h>

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
    const char *last = g->nccl->GetLastError(comm); /* of the process: NCCL has no use for `comm` */
    const bool more = last && *last;
    return exo_fail(err, result == EXO_NCCL_REMOTE_ERROR ? EXO_PEER_LOST : EXO_FAILED,
                    "%s: %s: %s%s%.200s%s%s", what, g->nccl->name, g->nccl->GetErrorString(result),
                    more ? " (" : "", more ? last : "", more ? ")" : "",
                    result == EXO_NCCL_INVALID_USAGE
                        ? "; NCCL takes one member a GPU, unless NCCL_MULTI_RANK_GPU_ENABLE allows "
                          "more: take fewer members or more GPUs, or choose engine: auto"
                        : "");
}

/* --- State ------------------------------------------------------------------------------------ */

static exo_status
poll_comm(exo_nccl_group *g, exo_nccl_comm comm, bool *busy, exo_err *err)
{
    int result = EXO_NCCL_SUCCESS;
    exo_status st =
        exo_nccl_status(g, comm, g->nccl->CommGetAsyncError(comm, &result), "its state", err);
    *busy = result == EXO_NCCL_IN_PROGRESS;
    return st == EXO_OK ? exo_nccl_status(g, comm, result, "a collective", err) : st;
}

/* A shrink is a state of its parent, until there is a communicator. Growing is one of the new
 * communicator. */
static bool
is_shrinking(const exo_nccl_set *s)
{
    return s->parent && s->phase == EXO_NCCL_MAKING && s->way == EXO_NCCL_SHRUNK;
}

/* NCCL's thread writes it before it ends the state IN_PROGRESS of the parent. */
exo_nccl_comm
exo_nccl_set_comm(const exo_nccl_set *s)
{
    return __atomic_load_n(&s->comm, __ATOMIC_ACQUIRE);
}

exo_status
exo_nccl_set_poll(exo_nccl_group *g, exo_nccl_set *s, bool *busy, exo_err *err)
{
    exo_status st = EXO_OK;
    *busy = false;
    if (is_shrinking(s))
        st = poll_comm(g, s->parent->comm, busy, err);
    if (st != EXO_OK || *busy)
        return st;
    const exo_nccl_comm comm = exo_nccl_set_comm(s);
    return comm ? poll_comm(g, comm, busy, err)
                : exo_fail(err, EXO_FAILED, "a new communicator: NCCL has made none");
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

/* Leaves what is whole to the next group of the run, whose members may grow it. */
static void
leave_whole(exo_nccl_group *g, uint32_t rank, exo_nccl_set *s)
{
    if (g->post && g->post->moves_on && exo_nccl_can_grow(g->nccl) && s->phase == EXO_NCCL_READY &&
        exo_nccl_keep(g, rank, s, EXO_NCCL_IS_WHOLE, 0))
        s->comm = NULL;
}

/* Asks NCCL to end the communicator of a set. Which calls it takes to leave NCCL quiet: nccl.h. */
static void
ask_end(exo_nccl_group *g, exo_nccl_set *s, bool broken)
{
    int result = EXO_NCCL_REMOTE_ERROR;
    const bool ready = s->phase == EXO_NCCL_READY && s->comm;
    const bool making = s->phase == EXO_NCCL_MAKING && s->parent; /* it is better to let it end */
    if (broken && ready && g->nccl->CommRevoke)
        result = g->nccl->CommRevoke(s->comm, 0);
    else if (broken && making && s->way == EXO_NCCL_GROWN && g->nccl->CommRevoke)
        result = g->nccl->CommRevoke(s->parent->comm, 0); /* over which the new one connects */
    else if (!broken && ready)
        result = g->nccl->CommFinalize(s->comm);
    else if (!broken && s->phase == EXO_NCCL_SUSPENDED && !(g->post && g->post->moves_on))
        result = g->nccl->CommResume(s->comm); /* and then finalizes it: estate.c. Nobody would, if
                                                * this process has members in the next group */
    const bool asked = result == EXO_NCCL_SUCCESS || result == EXO_NCCL_IN_PROGRESS;
    s->end = asked || making ? EXO_NCCL_IS_BUSY : EXO_NCCL_IS_STUCK;
}

/* Looks at all sets that NCCL is to end. Returns whether it is at work on one. */
static bool
poll_ends(exo_nccl_group *g, exo_nccl_set *sets)
{
    bool any = false;
    for (exo_nccl_set *s = sets; s; s = s->next) {
        bool busy = false;
        if (s->end != EXO_NCCL_IS_BUSY || (s->phase >= EXO_NCCL_READY && !s->comm))
            continue;
        const exo_status st = is_shrinking(s) ? poll_comm(g, s->parent->comm, &busy, NULL)
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
    if (s->end == EXO_NCCL_IS_BUSY && !s->parent &&
        exo_nccl_keep(g, rank, s, EXO_NCCL_ENDS, deadline))
        s->comm = NULL;
    else if (s->phase == EXO_NCCL_SUSPENDED)
        s->end = EXO_NCCL_IS_STUCK;
}

/* Aborts what is not quiet: all at once, since NCCL waits for their calls on the GPU. An abort of the parent ends a
 * shrink: s->comm is not written after. */
static void
abort_stuck(exo_nccl_group *g, exo_nccl_set *sets)
{
    exo_nccl_aborts *aborts = NULL;
    for (exo_nccl_set *s = sets; s; s = s->next) {
        if (s->parent && s->phase == EXO_NCCL_MAKING)
            s->end = EXO_NCCL_IS_STUCK;
        const exo_nccl_comm comm = is_shrinking(s) ? s->parent->comm : s->comm;
        if (s->end == EXO_NCCL_IS_QUIET || !comm)
            continue;
        s->lost = is_shrinking(s);
        exo_nccl_abort(&aborts, g->nccl, comm, s->lost ? s : NULL);
        if (s->lost)
            exo_free(s->parent);
        s->parent = s->lost ? NULL : s->parent;
        s->comm = s->lost ? s->comm : NULL;
    }
    const bool ended = exo_nccl_await_aborts(&aborts, exo_deadline(exo_clock_real(), patience));
    for (exo_nccl_set *s = sets; s; s = s->next)
        s->lost = s->lost && !ended;
}

/* Gives back one communicator, behind its abort. What grows was aborted before its parent, over which it
 * connects. */
static void
end_comm(exo_nccl_group *g, uint32_t rank, exo_nccl_set *s, bool broken)
{
    const int gpu = exo_cuda_side_ordinal(g->members[rank].side);
    const exo_nccl_comm comm = s->lost ? NULL : exo_nccl_set_comm(s);
    const bool quiet = s->end == EXO_NCCL_IS_QUIET;
    if (comm && (!quiet || !broken || !is_worth_keeping(g) ||
                 !exo_nccl_keep(g, rank, s, EXO_NCCL_IS_REVOKED, 0)))
        exo_nccl_end_comm(g->nccl, comm, gpu, !quiet);
    s->gpu = gpu;
    if (!s->lost)
        s->comm = NULL;
    exo_nccl_bury(g->nccl, s->parent);
    s->parent = NULL;
}

void
exo_nccl_set_drop(const exo_nccl_table *nccl, exo_nccl_set *s)
{
    if (!s || __atomic_sub_fetch(&s->holders, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    if (s->lost && s->comm) /* the shrink had made it before its abort */
        exo_nccl_end_comm(nccl, s->comm, s->gpu, true);
    exo_free(s->ranks);
    exo_free(s->order);
    exo_free(s);
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
    for (exo_nccl_set *s = m->sets; s && !broken; s = s->next)
        leave_whole(g, rank, s);
    for (exo_nccl_set *s = m->sets; s; s = s->next)
        ask_end(g, s, broken);
    for (exo_nccl_set *s = m->sets; s && !broken; s = s->next)
        leave_to_end(g, rank, s);
    await_broken(m->sets, g); /* also what is not made yet, or finds no memory for its end */
    abort_stuck(g, m->sets);
    if (m->side && broken)
        m->runs_on = !await_stream(m);
    if (!m->runs_on)
        exo_nccl_uncount(m);
    for (exo_nccl_set *s = m->sets; s; s = s->next)
        end_comm(g, rank, s, broken);
}
