/* A member of a collective among actors: its life, and its monitors of the other members. See
 * far.h; far_impl.h has the owners of its state. Read next: far_work.c (the operations),
 * far_messages.c (the messages). */
#include "comm/far.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "actor/future.h"
#include "base/waiting.h"
#include "comm/backend.h"
#include "comm/engines.h"
#include "comm/far_impl.h"
#include "comm/near.h"
#include "comm/reduce.h"
#include "comm/timing.h"

enum {
    MAX_SIZE = 4096
};

struct exo_far_watch {
    exo_far *far;
    uint32_t rank;
    exo_future *future; /* held; NULL: the monitor has ended */
};

/* --- Watching the members --------------------------------------------------------------------- */

static void
member_ended(void *context, uint64_t tag, exo_future *future)
{
    struct exo_far_watch *w = context;
    exo_far *f = w->far;
    exo_err reason = {0};
    char text[EXO_ERR_TEXT];
    (void)tag;
    exo_status st = exo_wait(future, INT64_MAX, NULL, &reason);
    if (st == EXO_PEER_LOST && f->carried)
        f->carried->fail(f->carried_group, w->rank, reason.text);
    pthread_mutex_lock(&f->lock);
    if (st == EXO_PEER_LOST) {
        snprintf(text, sizeof text, "%s_%u (rank %u) died: %.400s", f->noun, w->rank, w->rank,
                 reason.text);
        exo_far_break_locked(f, EXO_PEER_LOST, text);
    }
    f->left[w->rank] = true;
    exo_future *held = w->future;
    w->future = NULL;
    f->watching--;
    pthread_cond_broadcast(&f->changed);
    exo_near_wake(f->near);
    pthread_mutex_unlock(&f->lock);
    exo_future_drop(&held);
}

static const exo_future_hook watch_hook = {.done = member_ended};

static exo_status
watch(exo_far *f, uint32_t rank, exo_err *err)
{
    struct exo_far_watch *w = &f->watches[rank];
    exo_future *future = NULL;
    exo_status st = exo_monitor(f->opts.runtime, f->members[rank], &future, err);
    if (st != EXO_OK)
        return st;
    pthread_mutex_lock(&f->lock);
    *w = (struct exo_far_watch){.far = f, .rank = rank, .future = exo_future_hold(future)};
    f->watching++;
    pthread_mutex_unlock(&f->lock);
    exo_future_set_hook(future, &watch_hook, w, 0);
    exo_future_drop(&future);
    return EXO_OK;
}

/* Learns the processes of the members; messages from other processes are refused. */
static void
learn_nodes(exo_far *f)
{
    for (uint32_t r = 0; r < f->opts.size; r++) {
        exo_actor_id id = {0};
        if (!f->members[r].id)
            continue;
        if (exo_ref_export(f->opts.runtime, f->members[r], &id, NULL) != EXO_OK)
            continue; /* the actor is dead, and its monitor reports that */
        pthread_mutex_lock(&f->lock);
        f->nodes[r] = id.node ? id.node : UINT64_MAX; /* this process, which is in no cluster */
        pthread_mutex_unlock(&f->lock);
    }
}

exo_status
exo_comm_far_connect(exo_comm *comm, const exo_ref *members, exo_err *err)
{
    exo_far *f = exo_far_of(comm);
    exo_ref *copy = exo_calloc(f->opts.size, sizeof *copy);
    if (!copy)
        return exo_fail(err, EXO_NOMEM, "no memory for a communicator");
    memcpy(copy, members, f->opts.size * sizeof *copy);
    pthread_mutex_lock(&f->lock);
    f->members = copy;
    pthread_mutex_unlock(&f->lock);
    learn_nodes(f);
    exo_status st = EXO_OK;
    for (uint32_t r = 0; st == EXO_OK && r < f->opts.size; r++)
        if (r != f->opts.rank && f->members[r].id)
            st = watch(f, r, err);
    return st;
}

void
exo_comm_far_disconnect(exo_comm *comm)
{
    exo_far *f = exo_far_of(comm);
    exo_far_break(f, EXO_CLOSED, "the communicator was disconnected");
    for (uint32_t r = 0; r < f->opts.size; r++) {
        pthread_mutex_lock(&f->lock);
        exo_future *future = f->watches[r].future ? exo_future_hold(f->watches[r].future) : NULL;
        pthread_mutex_unlock(&f->lock);
        if (future)
            exo_cancel(future);
        exo_future_drop(&future);
    }
    pthread_mutex_lock(&f->lock);
    while (f->watching > 0) /* monitors that end at this moment: a few instructions */
        pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
}

/* --- Places ----------------------------------------------------------------------------------- */

static exo_status
far_join(void *state, uint32_t rank, const char *name, exo_err *err)
{
    exo_far *f = state;
    pthread_mutex_lock(&f->lock);
    bool mine = rank == f->opts.rank && !f->open;
    f->open = f->open || mine;
    snprintf(f->name, sizeof f->name, "%s", name ? name : "");
    pthread_mutex_unlock(&f->lock);
    return mine ? EXO_OK
                : exo_fail(err, EXO_EXISTS, "rank %u is not this member's, or taken", rank);
}

static void
far_leave(void *state, uint32_t rank)
{
    exo_far *f = state;
    (void)rank;
    pthread_mutex_lock(&f->lock);
    f->open = false;
    pthread_mutex_unlock(&f->lock);
}

static void
far_fail(void *state, uint32_t rank, const char *cause)
{
    exo_far_tell(state, rank, EXO_PEER_LOST, cause);
}

static void
free_messages(exo_far_message *first)
{
    for (exo_far_message *m = first, *next; m; m = next) {
        next = m->next;
        exo_far_message_free(m);
    }
}

static void
far_close(void *state)
{
    exo_far *f = state;
    exo_far_stop(f);
    exo_delivery_close(f->delivery);
    exo_near_free(f->near);
    exo_encoder_release(&f->encoder);
    free_messages(f->inbox);
    free_messages(f->for_server);
    exo_free(f->members);
    exo_free(f->nodes);
    exo_free(f->watches);
    exo_free(f->left);
    exo_free(f->calls);
    exo_free(f->counts);
    exo_free(f->hosts);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    exo_free(f);
}

static void
far_warm(void *state, uint32_t rank, size_t count)
{
    exo_far *f = state;
    exo_comm_edge edge = f->edge;
    edge.hosts = f->hosts;
    exo_comm_warm_links(&edge, f->opts.size, rank, count, exo_now(f->clock));
}

static void
far_look(void *state, uint32_t rank, exo_comm_look *look, uint32_t *missing, uint64_t *counts)
{
    exo_far *f = state;
    (void)rank;
    pthread_mutex_lock(&f->lock);
    *look = (exo_comm_look){.waits = f->awaited && (f->asked || !f->threaded) &&
                                     f->broken.code == EXO_OK && !f->left[f->awaited - 1],
                            .num_missing = f->awaited != 0,
                            .counts = true,
                            .passing = f->passing,
                            .inside = f->inside,
                            .operation = exo_collective_name(f->operation),
                            .number = f->made,
                            .since = f->since};
    memcpy(counts, f->counts, 2 * f->opts.size * sizeof *counts);
    exo_near_look(f->near, look, counts);
    if (f->awaited)
        missing[0] = f->awaited - 1;
    pthread_mutex_unlock(&f->lock);
}

const exo_engine_class exo_net_engine = {
    .name = "net",
    .help = "among processes and hosts, as messages between actors",
    .promises = EXO_ENGINE_ORDERED | EXO_ENGINE_PROGRESS | EXO_ENGINE_SOME | EXO_ENGINE_CODECS |
                EXO_ENGINE_PROCESSES | EXO_ENGINE_HOSTS | EXO_ENGINE_BLOCKS | EXO_ENGINE_SHIFT,
    .dtypes = EXO_REDUCE_DTYPES,
    .close = far_close,
    .join = far_join,
    .leave = far_leave,
    .fail = far_fail,
    .begin = exo_far_begin,
    .test = exo_far_test,
    .wait = exo_far_wait,
    .cancel = exo_far_cancel,
};

static const exo_comm_extras far_extras = {.warm = far_warm,
                                           .look = far_look,
                                           .edge = exo_far_edge,
                                           .attach = exo_far_attach,
                                           .carry = exo_far_carry,
                                           .fail_all = exo_far_fail_all};

exo_status
exo_comm_far(exo_comm **out, const exo_comm_far_opts *opts, exo_err *err)
{
    if (opts->size < 1 || opts->size > MAX_SIZE || opts->rank >= opts->size)
        return exo_fail(err, EXO_INVAL, "rank %u of a communicator of %u: it has 1 to %d members",
                        opts->rank, opts->size, MAX_SIZE);
    exo_comm *c = exo_calloc(1, sizeof *c);
    exo_far *f = exo_calloc(1, sizeof *f);
    if (!c || !f) {
        exo_free(c);
        exo_free(f);
        return exo_fail(err, EXO_NOMEM, "no memory for a communicator");
    }
    const exo_clock *clock = exo_runtime_clock(opts->runtime);
    *c = (exo_comm){.references = 1,
                    .size = opts->size,
                    .clock = clock,
                    .engine = &exo_net_engine,
                    .extras = &far_extras,
                    .state = f,
                    .home = opts->home};
    f->opts = *opts;
    f->opts.noun = NULL;
    snprintf(f->noun, sizeof f->noun, "%s", opts->noun ? opts->noun : "node");
    f->clock = clock;
    f->last = &f->first;
    pthread_mutex_init(&f->lock, NULL);
    exo_condition_init(&f->changed);
    f->watches = exo_calloc(opts->size, sizeof *f->watches);
    f->nodes = exo_calloc(opts->size, sizeof *f->nodes);
    f->left = exo_calloc(opts->size, sizeof *f->left);
    f->hosts = exo_calloc(opts->size, sizeof *f->hosts);
    f->calls = exo_calloc(opts->size, sizeof *f->calls);
    f->counts = exo_calloc(2 * (size_t)opts->size, sizeof *f->counts);
    f->delivery = exo_delivery_open(exo_far_lost, f);
    bool memory =
        f->nodes && f->watches && f->left && f->hosts && f->calls && f->counts && f->delivery;
    if (opts->edge) {
        f->edge = *opts->edge;
        f->opts.edge = NULL;
        if (f->hosts && f->edge.links)
            memcpy(f->hosts, f->edge.hosts, opts->size * sizeof *f->hosts);
        if (f->edge.codec)
            memory = (c->codec = exo_strdup(f->edge.codec)) && memory;
    }
    exo_status st =
        memory ? exo_comm_set_ways(c, opts->size, opts->edge, err)
               : exo_fail(err, EXO_NOMEM, "no memory for a communicator of %u", opts->size);
    if (st != EXO_OK)
        exo_comm_drop(&c);
    *out = c;
    return st;
}
