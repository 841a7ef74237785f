/* The engine `nccl`: requests and members. See group.h for what it is made of.
 *
 *     begin           the stream of the side follows the device's, so that the data is ready
 *     WAITS           for the communicator of its members, and for the requests before it
 *     STARTED         NCCL has the call, which it connects and launches by itself
 *     RUNS            its end is marked; the GPU moves the data
 *     DONE            the mark is reached, and the data belongs to the caller again
 *
 * A barrier needs no GPU: it is in MEETS until every member has told that it has come.
 *
 * wait looks at the mark until it is reached, and does not return before: a call that is broken leaves
 * its data undefined, and nothing may be computed from that. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <exogym/memory.h>

#include "nccl/group.h"
#include "nccl/register.h"

enum {
    YIELDS_US = 200, /* a wait yields between its looks for so long before it sleeps there */
    SLEEP_NS = 20 * 1000
};

/* --- Requests --------------------------------------------------------------------------------- */

static exo_nccl_call *
new_call(exo_nccl_member *m)
{
    exo_nccl_call *c = m->unused;
    if (!c)
        return exo_calloc(1, sizeof *c);
    m->unused = c->next;
    c->next = NULL;
    return c;
}

/* Counts a call on the member's GPU. False: not yet, as somebody waits for all of the GPU. */
static bool
count(const exo_nccl_member *m, exo_nccl_call *c)
{
    c->counted = exo_cuda_call_begin(exo_cuda_side_ordinal(m->side));
    return c->counted;
}

static void
uncount(const exo_nccl_member *m, exo_nccl_call *c)
{
    if (!c->counted)
        return;
    c->counted = false;
    exo_cuda_call_end(exo_cuda_side_ordinal(m->side));
}

void
exo_nccl_uncount(const exo_nccl_member *m)
{
    for (const exo_engine_request *r = m->first; r; r = r->next)
        if (r->own)
            uncount(m, r->own);
}

static void
give_back(exo_nccl_member *m, exo_engine_request *r)
{
    exo_nccl_call *c = r->own;
    r->own = NULL;
    if (!c)
        return;
    if (!m->runs_on) /* else the GPU is never quiet again */
        uncount(m, c);
    if (!m->runs_on) {
        exo_array_release(&c->copy);
        exo_array_release(&c->stage);
    }
    c->copy = c->stage = (exo_array){0}; /* else the GPU may still write there */
    c->set = NULL;
    c->next = m->unused;
    m->unused = c;
}

static void
take_out(exo_nccl_member *m, exo_engine_request *r)
{
    exo_engine_request **at = &m->first;
    while (*at && *at != r)
        at = &(*at)->next;
    if (*at)
        *at = r->next;
    give_back(m, r);
}

static exo_array
data_of(const exo_engine_request *r)
{
    const exo_collective_args *a = &r->args;
    return (exo_array){.device = a->device, .data = a->data, .count = a->count, .dtype = a->dtype};
}

/* Breaks the group by an error of this member. */
static exo_status
give_up(exo_nccl_group *g, uint32_t rank, exo_status st, const exo_err *reason)
{
    char name[EXO_NCCL_NAME + 32], text[EXO_ERR_TEXT];
    exo_nccl_describe(g, rank, name, sizeof name);
    snprintf(text, sizeof text, "%s: %.360s", name, reason->text);
    exo_nccl_break(g, st, text);
    return st;
}

/* --- What is done without waiting --------------------------------------------------------------- */

/* Whether all other members have begun the barrier with this number, from 1. */
static bool
all_have_come(exo_nccl_group *g, const exo_nccl_set *s, uint64_t number)
{
    uint32_t p = 0;
    while (p < s->size && (p == s->place ||
                           exo_nccl_note_of(g, s->key, exo_nccl_rank_at(s, p)).barriers >= number))
        p++;
    return p == s->size;
}

static exo_status
start(exo_nccl_group *g, uint32_t rank, exo_engine_request *r, exo_err *err)
{
    exo_nccl_call *c = r->own;
    bool ready = false;
    exo_status st = exo_nccl_set_make(g, rank, c->set, &ready, err);
    if (st == EXO_OK && ready && count(&g->members[rank], c)) {
        st = exo_nccl_move(g, &g->members[rank], r, err);
        r->state = EXO_NCCL_STARTED;
    }
    return st;
}

static exo_status
look(exo_nccl_group *g, uint32_t rank, exo_engine_request *r, exo_err *err)
{
    exo_nccl_call *c = r->own;
    bool busy = false, reached = false;
    exo_status st = exo_nccl_set_poll(g, c->set, &busy, err);
    if (st == EXO_OK && !busy && r->state == EXO_NCCL_STARTED) {
        st = exo_cuda_mark_put(c->end, g->members[rank].side, err);
        r->state = EXO_NCCL_RUNS;
    }
    if (st == EXO_OK && r->state == EXO_NCCL_RUNS)
        st = exo_cuda_mark_reached(c->end, &reached, err);
    if (st == EXO_OK && reached)
        uncount(&g->members[rank], c);
    if (st == EXO_OK && reached && c->stage.data)
        st = exo_array_read(c->stage, r->args.data, err);
    if (st == EXO_OK && reached)
        r->state = EXO_NCCL_DONE;
    return st;
}

/* Takes a request as far as it goes. turn: those before it are on the stream. */
static exo_status
step(exo_nccl_group *g, uint32_t rank, exo_engine_request *r, bool turn, exo_err *err)
{
    const exo_nccl_call *c = r->own;
    exo_status st = EXO_OK;
    if (r->state == EXO_NCCL_MEETS && all_have_come(g, c->set, r->number))
        r->state = EXO_NCCL_DONE;
    if (r->state == EXO_NCCL_WAITS && turn)
        st = start(g, rank, r, err);
    if (st == EXO_OK && (r->state == EXO_NCCL_STARTED || r->state == EXO_NCCL_RUNS))
        st = look(g, rank, r, err);
    return st;
}

/* Takes all requests of a member as far as they go; an error breaks the group. */
static void
go_on(exo_nccl_group *g, uint32_t rank)
{
    exo_nccl_member *m = &g->members[rank];
    exo_err reason = {0};
    exo_status st = EXO_OK;
    bool turn = exo_nccl_broken(g, NULL) == EXO_OK; /* what NCCL has is still looked at */
    if (m->has_ending)
        m->has_ending = exo_nccl_reap(g->nccl, g->key, INT64_MAX);
    for (exo_engine_request *r = m->first; r && st == EXO_OK && !m->retired; r = r->next) {
        st = step(g, rank, r, turn, &reason);
        turn = turn && r->state >= EXO_NCCL_RUNS;
    }
    if (st != EXO_OK)
        give_up(g, rank, st, &reason);
}

/* --- Ends of requests ------------------------------------------------------------------------- */

/* A member of the request's set that has left before this call; UINT32_MAX: none. */
static uint32_t
find_gone(exo_nccl_group *g, const exo_nccl_set *s, uint64_t number)
{
    for (uint32_t p = 0; p < s->size; p++) {
        const uint32_t rank = exo_nccl_rank_at(s, p);
        pthread_mutex_lock(&g->lock);
        const bool left = p != s->place && g->members[rank].left;
        pthread_mutex_unlock(&g->lock);
        if (left && exo_nccl_note_of(g, s->key, rank).calls <= number)
            return rank;
    }
    return UINT32_MAX;
}

/* Whether the request waits for what a member of its set has to say: that it has come to the barrier, or
 * what it takes to make the communicator. */
static bool
is_missing(exo_nccl_group *g, const exo_nccl_set *s, const exo_engine_request *r, uint32_t place)
{
    if (place == s->place)
        return false;
    return r->state == EXO_NCCL_MEETS
               ? exo_nccl_note_of(g, s->key, exo_nccl_rank_at(s, place)).barriers < r->number
               : exo_nccl_set_misses(g, s, place);
}

/* The members that have not come; NCCL does not say for whom its calls wait. One that decides how a
 * communicator is made may itself wait for others, and then it alone knows them. */
static void
name_missing(exo_nccl_group *g, const exo_engine_request *r, char *out, size_t size)
{
    const exo_nccl_set *s = ((const exo_nccl_call *)r->own)->set;
    size_t at = 0;
    const bool says = r->state == EXO_NCCL_MEETS || s->phase == EXO_NCCL_NEW;
    const bool decides = r->state != EXO_NCCL_MEETS && s->place != 0;
    snprintf(out, size, "other members: %s",
             s->phase == EXO_NCCL_NEW      ? "a call before it has not begun"
             : s->phase == EXO_NCCL_MAKING ? "NCCL has not connected all of them"
                                           : "NCCL does not say which");
    for (uint32_t p = 0; says && p < s->size && at < size; p++) {
        char name[EXO_NCCL_NAME + 32];
        if (!is_missing(g, s, r, p))
            continue;
        exo_nccl_describe(g, exo_nccl_rank_at(s, p), name, sizeof name);
        int length = snprintf(out + at, size - at, "%s%s%s", at ? ", " : "", name,
                              decides ? " to say how NCCL connects them" : "");
        at += length > 0 ? (size_t)length : 0;
    }
}

/* Breaks the group if the request waits for a member that has left, or is too late. */
static void
check_end(exo_nccl_group *g, uint32_t rank, const exo_engine_request *r)
{
    const exo_nccl_set *s = ((const exo_nccl_call *)r->own)->set;
    char name[256], text[EXO_ERR_TEXT];
    const uint32_t gone = find_gone(g, s, (uint64_t)r->since);
    if (gone != UINT32_MAX) {
        exo_nccl_describe(g, gone, name, sizeof name);
        snprintf(text, sizeof text, "%s has left", name);
        exo_nccl_break(g, EXO_PEER_LOST, text);
    } else if (exo_now(g->clock) >= r->deadline) {
        char own[EXO_NCCL_NAME + 32];
        exo_nccl_describe(g, rank, own, sizeof own);
        name_missing(g, r, name, sizeof name);
        snprintf(text, sizeof text, "%s: deadline passed while %s waited for %s",
                 exo_collective_name(r->args.operation), own, name);
        exo_nccl_break(g, EXO_TIMEOUT, text);
    }
}

static exo_status
test(void *group, uint32_t rank, exo_engine_request *r, bool *done, exo_err *err)
{
    exo_nccl_group *g = group;
    exo_nccl_member *m = &g->members[rank];
    go_on(g, rank);
    *done = r->state == EXO_NCCL_DONE;
    if (!*done)
        check_end(g, rank, r);
    exo_status st = *done ? EXO_OK : exo_nccl_broken(g, err);
    if (st != EXO_OK)
        exo_nccl_retire(g, rank, true);
    if (*done || st != EXO_OK)
        take_out(m, r);
    return st;
}

static exo_status
wait(void *group, uint32_t rank, exo_engine_request *r, exo_err *err)
{
    exo_time until = exo_now(exo_clock_real()) + YIELDS_US * EXO_US;
    for (;;) {
        bool done = false;
        exo_status st = test(group, rank, r, &done, err);
        if (st != EXO_OK || done)
            return st;
        if (exo_now(exo_clock_real()) < until) /* beside other work one yield may take long */
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    }
}

static void
cancel(void *group, uint32_t rank, exo_engine_request *r)
{
    exo_nccl_group *g = group;
    char name[EXO_NCCL_NAME + 32], text[EXO_ERR_TEXT];
    go_on(g, rank);
    if (r->state != EXO_NCCL_DONE) {
        exo_nccl_describe(g, rank, name, sizeof name);
        snprintf(text, sizeof text, "%s cancelled its %s", name,
                 exo_collective_name(r->args.operation));
        exo_nccl_break(g, EXO_CANCELLED, text);
        exo_nccl_retire(g, rank, true);
    }
    take_out(&g->members[rank], r);
}

/* --- Begin ------------------------------------------------------------------------------------ */

/* Finds the member's GPU, by the first array that is on one, or by exo_group_set_device. */
static exo_status
find_gpu(exo_nccl_member *m, exo_device *device, exo_err *err)
{
    if (device && m->device && device != m->device)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "engine nccl: the arrays of a member are on one GPU, by one exo_device");
    if (!m->device && !device)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "engine nccl: the first array of a member is on a GPU, not in the host's "
                        "memory: set device: cuda, or choose another engine");
    if (m->side)
        return EXO_OK;
    exo_status st = exo_cuda_side_open(&m->side, device, err);
    if (st == EXO_OK)
        m->device = device;
    return st;
}

static exo_status
stage(void *group, uint32_t rank, exo_device *device, exo_err *err)
{
    return find_gpu(&((exo_nccl_group *)group)->members[rank], device, err);
}

/* Brings the data where NCCL can have it, in the order of the device's work. */
static exo_status
bring_data(exo_nccl_member *m, exo_engine_request *r, exo_err *err)
{
    const exo_collective_args *a = &r->args;
    exo_nccl_call *c = r->own;
    const bool replaces =
        a->operation == EXO_ALL_TO_ALL || a->operation == EXO_SWAP || a->operation == EXO_SHIFT;
    exo_status st = find_gpu(m, a->device, err);
    if (st == EXO_OK && !c->end)
        st = exo_cuda_mark_new(&c->end, m->side, err);
    if (st == EXO_OK && !a->device) {
        st = exo_array_init(&c->stage, m->device, a->dtype, a->count, err);
        if (st == EXO_OK)
            st = exo_array_write(c->stage, a->data, err);
    }
    if (st == EXO_OK && replaces)
        st = exo_array_init(&c->copy, m->device, a->dtype, a->count, err);
    if (st == EXO_OK && replaces)
        exo_vec_copy(c->copy, c->stage.data ? c->stage : data_of(r));
    return st == EXO_OK ? exo_cuda_side_follow(m->side, err) : st;
}

static exo_status
begin_barrier(exo_nccl_group *g, uint32_t rank, exo_engine_request *r, exo_err *err)
{
    exo_nccl_set *s = ((exo_nccl_call *)r->own)->set;
    const exo_nccl_message message = {
        .kind = EXO_NCCL_TELLS_BARRIER, .set = s->key, .value = ++s->barriers};
    r->state = EXO_NCCL_MEETS;
    r->number = s->barriers;
    return exo_nccl_tell(g, rank, s, &message, err);
}

/* Begins a request whose record is there. */
static exo_status
begin_call(exo_nccl_group *g, uint32_t rank, exo_engine_request *r, exo_err *err)
{
    exo_nccl_member *m = &g->members[rank];
    exo_nccl_set *s = ((exo_nccl_call *)r->own)->set;
    exo_status st = exo_nccl_agree(g, rank, s, &r->args, err);
    r->since = (exo_time)s->calls++; /* its number among the calls of the set */
    if (st == EXO_OK && r->args.operation == EXO_BARRIER)
        return begin_barrier(g, rank, r, err);
    const bool stays = r->args.operation == EXO_SHIFT && r->args.root == 0;
    if (st == EXO_OK && (r->args.count == 0 || r->args.size == 1 || stays)) {
        r->state = EXO_NCCL_DONE;
        return EXO_OK;
    }
    return st == EXO_OK ? bring_data(m, r, err) : st;
}

static exo_status
begin(void *group, uint32_t rank, exo_engine_request *r, exo_err *err)
{
    exo_nccl_group *g = group;
    exo_nccl_member *m = &g->members[rank];
    exo_engine_request **last = &m->first;
    exo_err reason = {0};
    exo_status st = exo_nccl_broken(g, err);
    if (st != EXO_OK) {
        go_on(g, rank); /* what is complete is so */
        exo_nccl_retire(g, rank, true);
        return st;
    }
    const exo_time now = exo_now(g->clock);
    if (r->deadline > now && r->deadline - now > m->timeout)
        m->timeout = r->deadline - now;
    exo_nccl_call *call = new_call(m);
    r->own = call;
    r->state = EXO_NCCL_WAITS;
    r->next = NULL;
    st = call ? exo_nccl_set_of(&call->set, g, m, &r->args, &reason)
              : exo_fail(&reason, EXO_NOMEM, "no memory for a request");
    if (st == EXO_OK)
        st = begin_call(g, rank, r, &reason);
    if (st != EXO_OK) {
        give_up(g, rank, st, &reason);
        go_on(g, rank);
        exo_nccl_retire(g, rank, true);
        give_back(m, r);
        return exo_nccl_broken(g, err);
    }
    while (*last)
        last = &(*last)->next;
    *last = r;
    go_on(g, rank);
    return EXO_OK;
}

/* --- Memory ----------------------------------------------------------------------------------- */

/* Waits until all members of the set have come, so that none waits in NCCL for one that is dead. */
static exo_status
meet(exo_nccl_group *g, uint32_t rank, const exo_collective_args *among, exo_time deadline,
     exo_err *err)
{
    exo_engine_request r = {.args = *among, .deadline = deadline};
    r.args.operation = EXO_BARRIER;
    exo_status st = begin(g, rank, &r, err);
    return st == EXO_OK ? wait(g, rank, &r, err) : st;
}

/* Has NCCL give the memory back, and waits for that. NCCL waits for the GPU meanwhile. */
static exo_status
give_memory_back(exo_nccl_group *g, uint32_t rank, exo_nccl_set *s, exo_time deadline, exo_err *err)
{
    const int gpu = exo_cuda_side_ordinal(g->members[rank].side);
    bool busy = true;
    exo_cuda_forbid_recordings(gpu);
    exo_status st = exo_nccl_set_suspend(g, rank, s, err);
    while (st == EXO_OK && busy && exo_nccl_broken(g, NULL) == EXO_OK) {
        st = exo_nccl_set_poll(g, s, &busy, err);
        if (st == EXO_OK && busy && exo_now(g->clock) >= deadline)
            st = exo_fail(err, EXO_TIMEOUT, "suspend: NCCL has not ended it in time");
        if (st == EXO_OK && busy)
            nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    }
    exo_cuda_allow_recordings(gpu);
    return st;
}

/* The same. An error breaks the group, unless NCCL refuses. */
static exo_status
suspend_set(exo_nccl_group *g, uint32_t rank, exo_nccl_set *s, exo_time deadline, exo_err *err)
{
    exo_err reason = {0};
    exo_status st = give_memory_back(g, rank, s, deadline, &reason);
    if (st == EXO_UNSUPPORTED)
        return exo_fail(err, st, "%s", reason.text);
    if (st != EXO_OK)
        give_up(g, rank, st, &reason);
    st = exo_nccl_broken(g, err);
    if (st != EXO_OK)
        exo_nccl_retire(g, rank, true);
    return st;
}

static exo_status
say_unsuspended(const exo_nccl_table *nccl, exo_err *err)
{
    int version = 0;
    (void)nccl->GetVersion(&version);
    return exo_fail(
        err, EXO_UNSUPPORTED,
        "engine nccl: NCCL %d.%d.%d does not suspend communicators, or waits for others "
        "without a deadline then: install 2.30.3 or later",
        version / 10000, version / 100 % 100, version % 100);
}

static exo_status
can_suspend(exo_err *err)
{
    const exo_nccl_table *nccl = NULL;
    exo_status st = exo_nccl_load(&nccl, err);
    return st == EXO_OK && !exo_nccl_can_suspend(nccl) ? say_unsuspended(nccl, err) : st;
}

static exo_status
suspend(void *group, uint32_t rank, const exo_collective_args *among, exo_time deadline,
        exo_err *err)
{
    exo_nccl_group *g = group;
    exo_nccl_member *m = &g->members[rank];
    exo_nccl_set *s = NULL;
    if (!exo_nccl_can_suspend(g->nccl))
        return say_unsuspended(g->nccl, err);
    if (m->first)
        return exo_fail(err, EXO_INVAL, "suspend: a request is under way: wait for it before");
    exo_status st = meet(g, rank, among, deadline, err);
    if (st == EXO_OK)
        st = exo_nccl_set_of(&s, g, m, among, err);
    return st == EXO_OK && s->phase == EXO_NCCL_READY /* else it has no memory */
               ? suspend_set(g, rank, s, deadline, err)
               : st;
}

/* --- Members ---------------------------------------------------------------------------------- */

static exo_status
join(void *group, uint32_t rank, const char *name, exo_err *err)
{
    exo_nccl_group *g = group;
    exo_nccl_member *m = &g->members[rank];
    pthread_mutex_lock(&g->lock);
    const bool taken = m->here || m->left || (g->post && rank != g->post->rank);
    const bool memory = taken || exo_nccl_enter(g->key);
    if (!taken && memory) {
        m->here = true;
        snprintf(m->name, sizeof m->name, "%s", name ? name : "");
    }
    pthread_mutex_unlock(&g->lock);
    if (!memory)
        return exo_fail(err, EXO_NOMEM, "no memory for a member");
    return taken ? exo_fail(err, EXO_EXISTS, "rank %u is not this member's, or taken", rank)
                 : EXO_OK;
}

static void
free_member(exo_nccl_group *g, exo_nccl_member *m)
{
    pthread_mutex_lock(&g->lock);
    exo_nccl_set *sets = m->sets;
    m->sets = NULL;
    pthread_mutex_unlock(&g->lock);
    for (exo_nccl_call *c = m->unused, *next; c; c = next) {
        next = c->next;
        exo_cuda_mark_free(c->end);
        exo_free(c);
    }
    for (exo_nccl_set *s = sets, *next; s; s = next) {
        next = s->next;
        exo_nccl_set_drop(g->nccl, s);
    }
    exo_cuda_side_close(&m->side);
    m->unused = NULL;
    m->device = NULL;
}

static void
leave(void *group, uint32_t rank)
{
    exo_nccl_group *g = group;
    exo_nccl_member *m = &g->members[rank];
    for (const exo_nccl_set *s = m->sets; s; s = s->next) {
        const exo_nccl_message calls = {
            .kind = EXO_NCCL_TELLS_CALLS, .set = s->key, .value = s->calls};
        exo_nccl_tell(g, rank, s, &calls, NULL); /* those that are gone need no news */
    }
    const exo_nccl_message end = {.kind = EXO_NCCL_TELLS_END};
    exo_nccl_tell(g, rank, NULL, &end, NULL);
    exo_nccl_retire(g, rank, exo_nccl_broken(g, NULL) != EXO_OK);
    if (exo_nccl_exit(g->key))
        exo_nccl_await_ends(g, rank);
    free_member(g, m);
    pthread_mutex_lock(&g->lock);
    m->here = false;
    m->left = true;
    pthread_mutex_unlock(&g->lock);
}

static void
fail(void *group, uint32_t rank, const char *cause)
{
    char name[EXO_NCCL_NAME + 32], text[EXO_ERR_TEXT];
    exo_nccl_describe(group, rank, name, sizeof name);
    snprintf(text, sizeof text, "%s died: %.400s", name, cause);
    exo_nccl_break(group, EXO_PEER_LOST, text);
}

/* --- Groups ----------------------------------------------------------------------------------- */

static exo_status
open_group(void **group, const exo_engine_opts *opts, exo_err *err)
{
    const exo_nccl_table *nccl = NULL;
    exo_nccl_group *g = NULL;
    exo_status st = exo_nccl_load(&nccl, err);
    *group = NULL;
    if (st != EXO_OK)
        return st;
    g = exo_calloc(1, sizeof *g + opts->size * sizeof g->members[0]);
    if (!g)
        return exo_fail(err, EXO_NOMEM, "no memory for a group of %u", opts->size);
    g->nccl = nccl;
    g->size = opts->size;
    g->clock = opts->clock;
    g->post = opts->post;
    snprintf(g->key, sizeof g->key, "%s", opts->key ? opts->key : "");
    exo_nccl_forget_old(nccl);
    pthread_mutex_init(&g->lock, NULL);
    *group = g;
    return EXO_OK;
}

static void
close_group(void *group)
{
    exo_nccl_group *g = group;
    for (exo_nccl_note *n = g->notes, *next; n; n = next) {
        next = n->next;
        exo_free((void *)n->plan);
        exo_free(n);
    }
    for (exo_nccl_digests *d = g->digests, *next; d; d = next) {
        next = d->next;
        exo_free(d);
    }
    pthread_mutex_destroy(&g->lock);
    exo_free(g);
}

exo_status
exo_nccl_register(exo_err *err)
{
    static const exo_engine_class nccl = {
        .name = "nccl",
        .help = "NCCL, among members that have a GPU each, in processes and on hosts",
        .dtypes = EXO_ENGINE_ALL_DTYPES,
        .promises = EXO_ENGINE_DEVICES | EXO_ENGINE_SOME | EXO_ENGINE_PROCESSES | EXO_ENGINE_HOSTS |
                    EXO_ENGINE_BLOCKS | EXO_ENGINE_SHIFT | EXO_ENGINE_POST | EXO_ENGINE_SUSPEND |
                    EXO_ENGINE_STAGES,
        .open = open_group,
        .close = close_group,
        .join = join,
        .leave = leave,
        .fail = fail,
        .begin = begin,
        .test = test,
        .wait = wait,
        .cancel = cancel,
        .hear = exo_nccl_hear,
        .suspend = suspend,
        .can_suspend = can_suspend,
        .stage = stage};
    return exo_engine_register(&nccl, err);
}
