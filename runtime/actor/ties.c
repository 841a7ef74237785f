/* Ties: links, monitors and deferred calls, which an actor's death ends. See runtime_impl.h for
 * locks, and death.c for the death. Read next: runtime.c. */
#include <stdio.h>

#include <exogym/memory.h>

#include "actor/runtime_impl.h"
#include "base/printable.h"

void
exo_ties_free(struct exo_ties *ties)
{
    if (!ties)
        return;
    exo_free(ties->links);
    exo_free(ties->monitors.futures);
    exo_free(ties->deferred.futures);
    exo_free(ties);
}

static struct exo_ties *
make_ties_locked(exo_actor *a)
{
    if (!a->ties)
        a->ties = exo_calloc(1, sizeof *a->ties);
    return a->ties;
}

static bool
grow(void **array, size_t *cap, size_t size)
{
    size_t larger = *cap ? 2 * *cap : 4;
    void *memory = exo_realloc(*array, larger, size);
    if (!memory)
        return false;
    *array = memory;
    *cap = larger;
    return true;
}

/* --- Futures ---------------------------------------------------------------------------------- */

/* Futures that are over or dropped make room in a list. Each new future looks at the next few
 * futures of the list, in a circle, so no single call pays for many. Futures that are over are
 * dropped after the unlock, late ones after their completion, because a completion runs hooks, and
 * the last reference to a future releases its reply. */
enum {
    LOOKED_AT = 4 /* a circle is complete after a quarter of the list's length in new futures */
};

struct over {
    exo_time now; /* read before the lock is taken */
    /* a list of calls: whoever is to answer holds the future, so none counts as dropped */
    bool deferred;
    exo_future *futures[LOOKED_AT];
    size_t count;
};

static bool
is_over(const struct over *over, const exo_future *future)
{
    return exo_future_is_over(future, over->now) ||
           (!over->deferred && exo_future_is_forsaken(future, 0));
}

/* Moves those of the list's next futures that are over into `over`. A future whose only reference
 * is the list's cannot be held again meanwhile. */
static void
take_over_locked(struct exo_tied *list, struct over *over)
{
    for (size_t i = 0; i < LOOKED_AT && i < list->count; i++) {
        exo_future **slot = &list->futures[list->next++ % list->count];
        if (!*slot || !is_over(over, *slot))
            continue;
        over->futures[over->count++] = *slot;
        *slot = NULL;
        list->empty++;
    }
}

static void
drop_over(struct over *over)
{
    for (size_t i = 0; i < over->count; i++) {
        exo_future_ready(over->futures[i]); /* completes a late one */
        exo_future_drop(&over->futures[i]);
    }
}

/* Removes the empty places; the order of the futures stays. */
static void
close_up_locked(struct exo_tied *list)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++)
        if (list->futures[i])
            list->futures[kept++] = list->futures[i];
    list->count = kept;
    list->next = list->empty = 0;
}

/* Adds a future. A full list with few empty places grows, so each future is moved a few times in
 * all. */
static bool
keep_locked(struct exo_tied *list, exo_future *future, struct over *over)
{
    take_over_locked(list, over);
    if (list->count == list->cap && list->empty > 0 && list->empty >= list->cap / 4)
        close_up_locked(list);
    if (list->count == list->cap &&
        !grow((void **)&list->futures, &list->cap, sizeof(exo_future *)))
        return false;
    list->futures[list->count++] = exo_future_hold(future);
    return true;
}

/* Lets the actor's death complete `future`. Errors: PEER_LOST if the actor is dead, NOMEM. */
static exo_status
tie(exo_actor *a, bool deferred, exo_future *future)
{
    struct over over = {.now = exo_now(exo_runtime_clock(a->runtime)), .deferred = deferred};
    pthread_mutex_lock(&a->lock);
    bool dead = a->state == EXO_ACTOR_DEAD;
    struct exo_ties *ties = dead ? NULL : make_ties_locked(a);
    bool kept = ties && keep_locked(deferred ? &ties->deferred : &ties->monitors, future, &over);
    pthread_mutex_unlock(&a->lock);
    drop_over(&over);
    if (dead)
        return EXO_PEER_LOST;
    return kept ? EXO_OK : EXO_NOMEM;
}

bool
exo_actor_tie_deferred(exo_actor *actor, exo_future *future)
{
    return tie(actor, true, future) == EXO_OK;
}

exo_status
exo_runtime_monitor(exo_runtime *runtime, exo_ref actor, exo_future *future, exo_err *err)
{
    exo_actor *a;
    exo_status st = exo_actor_find(runtime, actor, &a, err);
    if (st != EXO_OK)
        return st;
    st = tie(a, false, future);
    if (st == EXO_PEER_LOST)
        st = exo_actor_fail_dead(runtime, actor, err);
    else if (st != EXO_OK)
        exo_fail(err, st, "no memory for a monitor");
    exo_actor_drop(a);
    return st;
}

exo_status
exo_monitor(exo_runtime *runtime, exo_ref actor, exo_future **out, exo_err *err)
{
    exo_future *future = NULL;
    void *context;
    const exo_remote_ops *remote = exo_runtime_elsewhere(runtime, actor, &context);
    exo_status st = exo_runtime_check_own(runtime, err);
    if (st == EXO_OK)
        st = exo_future_new(&future, exo_runtime_clock(runtime), INT64_MAX, err);
    if (st == EXO_OK)
        st = remote ? remote->monitor(context, actor, future, err)
                    : exo_runtime_monitor(runtime, actor, future, err);
    if (st != EXO_OK)
        exo_future_drop(&future);
    *out = future;
    return st;
}

/* --- Links ------------------------------------------------------------------------------------ */

/* Adds one direction of a link. Errors: PEER_LOST if the actor is dead, NOMEM. */
static exo_status
add_link(exo_actor *a, uint64_t to)
{
    exo_status st = EXO_OK;
    pthread_mutex_lock(&a->lock);
    if (a->state == EXO_ACTOR_DEAD)
        st = EXO_PEER_LOST;
    else if (!make_ties_locked(a) ||
             (a->ties->num_links == a->ties->cap_links &&
              !grow((void **)&a->ties->links, &a->ties->cap_links, sizeof *a->ties->links)))
        st = EXO_NOMEM;
    else
        a->ties->links[a->ties->num_links++] = to;
    pthread_mutex_unlock(&a->lock);
    return st;
}

static bool
has_failed(exo_actor *a)
{
    pthread_mutex_lock(&a->lock);
    bool failed = a->failed;
    pthread_mutex_unlock(&a->lock);
    return failed;
}

static exo_status
link_local(exo_runtime *runtime, exo_ref a, exo_ref b, exo_err *err)
{
    exo_actor *first = NULL, *second = NULL;
    exo_status st = exo_actor_find(runtime, a, &first, err);
    if (st == EXO_OK)
        st = exo_actor_find(runtime, b, &second, err);
    if (st == EXO_OK) {
        st = add_link(first, b.id);
        if (st == EXO_OK)
            st = add_link(second, a.id);
        /* the first one died between the two steps, without telling the second */
        if (st == EXO_PEER_LOST && has_failed(first))
            exo_actor_die(second, "linked to an actor that died meanwhile", true);
        if (st != EXO_OK)
            exo_fail(err, st,
                     st == EXO_NOMEM ? "no memory for a link" : "one of the actors died meanwhile");
    }
    exo_actor_drop(first);
    exo_actor_drop(second);
    return st;
}

/* One direction of a link between processes: if one actor dies of a failure, the other is
 * killed. */
struct far_link {
    exo_runtime *runtime;
    exo_ref other;
    exo_future *future; /* held: the monitor of the one actor */
};

static void
far_link_done(void *context, uint64_t tag, exo_future *future)
{
    struct far_link *link = context;
    exo_err err = {0};
    char cause[EXO_CAUSE];
    (void)tag;
    if (exo_wait(future, INT64_MAX, NULL, &err) == EXO_PEER_LOST) {
        exo_format_cut(cause, sizeof cause, "linked: %s", err.text);
        exo_kill(link->runtime, link->other, cause, NULL);
    }
    exo_future_drop(&link->future);
    exo_free(link);
}

static const exo_future_hook far_link_hook = {.done = far_link_done};

/* Kills `other` if `actor` dies of a failure. The monitor of a remote actor has its call's hook
 * already, so this hook takes the second place. The hook may run at once and free `link`, hence the
 * extra reference. */
static exo_status
watch_for_link(exo_runtime *runtime, exo_ref actor, exo_ref other, exo_err *err)
{
    struct far_link *link = exo_calloc(1, sizeof *link);
    if (!link)
        return exo_fail(err, EXO_NOMEM, "no memory for a link");
    link->runtime = runtime;
    link->other = other;
    exo_status st = exo_monitor(runtime, actor, &link->future, err);
    if (st != EXO_OK) {
        exo_free(link);
        return st;
    }
    exo_future *future = exo_future_hold(link->future);
    exo_future_set_hook(future, &far_link_hook, link, 0);
    exo_future_drop(&future);
    return EXO_OK;
}

exo_status
exo_link(exo_runtime *runtime, exo_ref a, exo_ref b, exo_err *err)
{
    exo_status st = exo_runtime_check_own(runtime, err);
    if (st != EXO_OK)
        return st;
    if (!((a.id | b.id) & EXO_REMOTE))
        return link_local(runtime, a, b, err);
    st = watch_for_link(runtime, a, b, err);
    return st == EXO_OK ? watch_for_link(runtime, b, a, err) : st;
}
