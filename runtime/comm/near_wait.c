/* Steps of the calls through shared memory: how members say them, wait for them, and fail. See
 * near.h. A step is stored, and then the sleepers are looked at; a sleeper says so, and then looks
 * at the step. Both use sequentially consistent operations, so one of them sees the other. The same
 * goes for failures. */
#include <stdio.h>
#include <string.h>

#include <exogym/log.h>

#include "base/c_locale.h"
#include "base/crowd.h"
#include "comm/near_impl.h"

enum {
    SPINS = 100,   /* looks at a step before the core is yielded */
    YIELDS = 60,   /* before the member sleeps */
    SLICE_MS = 50, /* the longest sleep between two looks at everything else */
    MANUAL_MS = 2, /* the same, with a clock that is not the real one */
};

static exo_near_peer *
peer_at(const exo_near_call *c, uint32_t place)
{
    return &c->near->peers[exo_far_rank_at(c->args, place)];
}

/* --- Windows ---------------------------------------------------------------------------------- */

void
exo_near_publish(exo_near_call *c, uint32_t step)
{
    exo_near *n = c->near;
    uint32_t core = step == EXO_NEAR_HERE ? (uint32_t)exo_core() : 0;
    /* the others read this line at each step: it stays in their caches if nothing is written */
    if (step == EXO_NEAR_HERE &&
        core != atomic_load_explicit(&n->board->core, memory_order_relaxed))
        atomic_store_explicit(&n->board->core, core, memory_order_relaxed);
    for (uint32_t m = 0; m < c->args->size; m++) {
        uint32_t r = exo_far_rank_at(c->args, m), window = n->peers[r].windows;
        if (r == n->rank)
            continue;
        if (step == EXO_NEAR_HERE)
            atomic_store_explicit(&n->board->words[n->size + 2 * r + window % 2], c->turn,
                                  memory_order_relaxed);
        atomic_store(&n->board->words[r], 4 * window + step);
    }
    for (uint32_t m = 0; m < c->args->size; m++) {
        uint32_t r = exo_far_rank_at(c->args, m);
        if (r != n->rank && atomic_load(&n->peers[r].board->sleeping) == n->rank + 1)
            exo_near_ring(n->peers[r].bell);
    }
}

unsigned
exo_near_turn_of(const exo_near_call *c, uint32_t place)
{
    const exo_near *n = c->near;
    const exo_near_peer *p = peer_at(c, place);
    return place == c->args->place
               ? c->turn
               : atomic_load_explicit(&p->board->words[n->size + 2 * n->rank + p->windows % 2],
                                      memory_order_relaxed) &
                     1;
}

/* --- Waiting ---------------------------------------------------------------------------------- */

static bool
is_reached(const _Atomic uint32_t *word, uint32_t step)
{
    return (int32_t)(atomic_load_explicit(word, memory_order_acquire) - step) >= 0;
}

/* Breaks the communicator with the reason of a member that has failed. */
static bool
follow_locked(exo_far *f, const exo_near_board *board, uint32_t rank)
{
    char text[EXO_ERR_TEXT];
    uint32_t status = atomic_load(&board->failed);
    if (!status)
        return false;
    memcpy(text, board->reason, sizeof text);
    text[sizeof text - 1] = '\0';
    if (status > EXO_DENIED || !text[0]) {
        status = EXO_PEER_LOST;
        snprintf(text, sizeof text, "%s_%u (rank %u) failed without a valid reason", f->noun, rank,
                 rank);
    }
    exo_far_break_locked(f, (exo_status)status, text);
    return true;
}

/* Whether the wait for a member has to end; then the communicator is broken. */
static bool
is_over_locked(exo_near_call *c, uint32_t rank, const _Atomic uint32_t *word, uint32_t step)
{
    exo_far *f = c->near->far;
    char text[EXO_ERR_TEXT];
    for (uint32_t m = 0; m < c->args->size && f->broken.code == EXO_OK; m++) {
        uint32_t r = exo_far_rank_at(c->args, m);
        if (r != c->near->rank && !follow_locked(f, c->near->peers[r].board, r))
            exo_far_find_other_locked(f, c->args, r);
    }
    exo_time now = exo_now(f->clock);
    if (f->broken.code == EXO_OK && f->left[rank] && !is_reached(word, step)) {
        snprintf(text, sizeof text, "%s_%u (rank %u) has left", f->noun, rank, rank);
        exo_far_break_locked(f, EXO_PEER_LOST, text);
    } else if (f->broken.code == EXO_OK && now >= c->deadline) {
        exo_c_snprintf(text, sizeof text,
                       "%s: deadline passed after %.1f s while waiting for %s_%u (rank %u)",
                       exo_collective_name(c->args->operation), (double)(now - f->since) * 1e-9,
                       f->noun, rank, rank);
        exo_far_break_locked(f, EXO_TIMEOUT, text);
    }
    return f->broken.code != EXO_OK;
}

/* Sleeps until the step may have been reached, unless the wait has to end; says whether it has. */
static bool
sleep_once(exo_near_call *c, uint32_t rank, const _Atomic uint32_t *word, uint32_t step)
{
    exo_near *n = c->near;
    exo_far *f = n->far;
    exo_time most = f->clock == exo_clock_real() ? SLICE_MS * EXO_MS : MANUAL_MS * EXO_MS,
             left = c->deadline - exo_now(f->clock);
    uint32_t rung = atomic_load(n->bell); /* before all that the member looks at */
    atomic_store(&n->board->sleeping, rank + 1);
    pthread_mutex_lock(&f->lock);
    bool over = is_over_locked(c, rank, word, step);
    f->awaited = over ? 0 : rank + 1;
    n->awaited = over ? NULL : word;
    n->awaited_step = step;
    pthread_mutex_unlock(&f->lock);
    if (!over && (int32_t)(atomic_load(word) - step) < 0)
        exo_near_sleep_on(n->bell, rung, left < 0 ? 0 : left < most ? left : most);
    atomic_store(&n->board->sleeping, 0);
    pthread_mutex_lock(&f->lock);
    f->awaited = 0;
    n->awaited = NULL;
    pthread_mutex_unlock(&f->lock);
    return over;
}

void
exo_near_look(const exo_near *n, exo_comm_look *look, uint64_t *counts)
{
    if (!n || !n->board)
        return;
    look->waits = look->waits && !(n->awaited && is_reached(n->awaited, n->awaited_step));
    for (uint32_t r = 0; r < n->size; r++) {
        const exo_near_board *board = n->peers[r].board;
        counts[r] += atomic_load(&n->board->words[r]);
        counts[n->size + r] += board ? atomic_load(&board->words[n->rank]) : 0;
    }
}

/* Waits for a word of the member `rank`. */
static exo_status
await_word(exo_near_call *c, uint32_t rank, const _Atomic uint32_t *word, uint32_t step)
{
    exo_near *n = c->near;
    /* with more members than cores the one that is awaited may need this core */
    int spins = c->args->size <= c->near->cores ? SPINS : 0;
    for (int i = 0; i < spins + YIELDS; i++) {
        if (is_reached(word, step))
            return EXO_OK;
        if (i < spins) {
            exo_relax();
            continue;
        }
        if (spins > 0 && i == spins && rank < n->rank) /* one of two moves */
            exo_crowd_wait(&n->crowd, (int)atomic_load_explicit(&n->peers[rank].board->core,
                                                                memory_order_relaxed));
        if (!exo_crowd_yield(&n->crowd))
            break;
    }
    while (!is_reached(word, step))
        if (sleep_once(c, rank, word, step))
            return EXO_CLOSED; /* the reason is in f->broken */
    return EXO_OK;
}

exo_status
exo_near_await(exo_near_call *c, uint32_t place, uint32_t step)
{
    const exo_near_peer *p = peer_at(c, place);
    return await_word(c, exo_far_rank_at(c->args, place), &p->board->words[c->near->rank],
                      4 * p->windows + step);
}

exo_status
exo_near_await_all(exo_near_call *c, uint32_t step)
{
    exo_status st = EXO_OK;
    for (uint32_t i = 1; st == EXO_OK && i < c->args->size; i++)
        st = exo_near_await(c, (c->args->place + i) % c->args->size, step);
    return st;
}

exo_status
exo_near_open_window(exo_near_call *c)
{
    exo_near *n = c->near;
    exo_status st = EXO_OK;
    c->turn = n->turn;
    exo_near_use *use = &n->uses[c->turn];
    for (uint32_t i = 0; st == EXO_OK && i < use->count; i++)
        st = await_word(c, use->ranks[i], &n->peers[use->ranks[i]].board->words[n->rank],
                        use->steps[i]);
    if (st != EXO_OK)
        return st;
    use->count = 0;
    for (uint32_t m = 0; m < c->args->size; m++) {
        uint32_t r = exo_far_rank_at(c->args, m);
        if (r == n->rank)
            continue;
        use->ranks[use->count] = r;
        use->steps[use->count++] = 4 * n->peers[r].windows + EXO_NEAR_DONE;
    }
    n->turn = 1 - n->turn;
    return EXO_OK;
}

void
exo_near_close_window(exo_near_call *c)
{
    for (uint32_t m = 0; m < c->args->size; m++)
        peer_at(c, m)->windows++;
}

/* --- Failing ---------------------------------------------------------------------------------- */

exo_status
exo_near_check(exo_near_call *c)
{
    exo_far *f = c->near->far;
    bool failed = false;
    for (uint32_t m = 0; m < c->args->size; m++)
        if (m != c->args->place)
            failed = failed || atomic_load(&peer_at(c, m)->board->failed);
    if (!failed)
        return EXO_OK;
    pthread_mutex_lock(&f->lock);
    for (uint32_t m = 0; m < c->args->size; m++)
        if (m != c->args->place)
            follow_locked(f, peer_at(c, m)->board, exo_far_rank_at(c->args, m));
    pthread_mutex_unlock(&f->lock);
    return EXO_CLOSED;
}

/* Wakes the members that sleep in this call, for whichever member. */
static void
wake_sleepers(exo_near_call *c)
{
    for (uint32_t m = 0; m < c->args->size; m++)
        if (m != c->args->place && atomic_load(&peer_at(c, m)->board->sleeping))
            exo_near_ring(peer_at(c, m)->bell);
}

void
exo_near_fail(exo_near_call *c)
{
    exo_near *n = c->near;
    exo_far *f = n->far;
    pthread_mutex_lock(&f->lock);
    exo_err reason = f->broken;
    pthread_mutex_unlock(&f->lock);
    memcpy(n->board->reason, reason.text, sizeof reason.text);
    atomic_store(&n->board->failed, (uint32_t)reason.code);
    wake_sleepers(c);
    bool over = true; /* nobody writes to this member's buffer any more */
    for (uint32_t m = 0; m < c->args->size; m++)
        if (m != c->args->place)
            over = over && is_reached(&peer_at(c, m)->board->words[n->rank],
                                      4 * peer_at(c, m)->windows + EXO_NEAR_DONE);
    if (c->exposed && !over && !exo_region_disown(c->args->data, c->bytes))
        EXO_LOG(ERROR, COMM,
                "event=exposed bytes=%zu: no memory to replace the buffer of a failed collective; "
                "a member that was stopped may still write to it",
                c->bytes);
}
