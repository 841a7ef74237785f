/* Death: how an actor ends, and which other actors and calls end with it. See runtime_impl.h for
 * locks and lifetimes. Read next: ties.c, the links and monitors.
 *
 *     exo_actor_die   takes the actor out of the table, tells its callers, monitors and links, and
 *                     then runs `interrupt`, if methods run, and `stop`
 *     exo_actor_rest  does the same for a drained actor, and runs `stop` for a dead one whose last
 *                     method has returned
 *
 * A death causes others: linked actors die with it, and a `stop` may end further actors. Neither
 * nests, however long such a chain is. Linked actors wait in a list until the death before theirs
 * has been told. Actors whose `stop` is due wait in a list of their thread until the outermost call
 * on it has done everything else. Both lists are linked through the actors, so a death needs no
 * memory for them. */
#include <stdio.h>

#include <exogym/memory.h>

#include "actor/runtime_impl.h"
#include "base/printable.h"

static bool
runs_methods_locked(const exo_actor *a)
{
    for (size_t i = 0; i < a->num_lanes; i++)
        if (a->lanes[i].running)
            return true;
    return false;
}

/* Whether neither `start` nor a method runs. */
static bool
runs_nothing_locked(const exo_actor *a)
{
    return a->started && !runs_methods_locked(a);
}

/* --- Stopping --------------------------------------------------------------------------------- */

/* The newest first: a linked actor is stopped before the actor that it died with. */
static _Thread_local struct {
    exo_actor *first; /* each held; settled when `busy` is 0 again */
    unsigned busy;    /* deaths and stops in progress on this thread */
} ending;

/* Runs `stop` for a dead actor without running methods, once. */
static void
settle(exo_actor *a)
{
    pthread_mutex_lock(&a->lock);
    bool mine = a->state == EXO_ACTOR_DEAD && !a->settled && runs_nothing_locked(a);
    void *self = a->self;
    if (mine) {
        a->settled = true;
        a->self = NULL;
    }
    pthread_mutex_unlock(&a->lock);
    if (!mine)
        return;
    if (self && a->actor_class->stop)
        a->actor_class->stop(self);
    exo_actor_drop(a); /* the reference of being alive */
}

/* Queues a dead actor without running methods for its `stop`. Two threads may try: the one that
 * ended the actor, and the one on which its last method returned. */
static void
settle_later(exo_actor *a)
{
    pthread_mutex_lock(&a->lock);
    bool waits =
        a->state != EXO_ACTOR_DEAD || a->settled || a->will_settle || !runs_nothing_locked(a);
    if (!waits)
        a->will_settle = true;
    pthread_mutex_unlock(&a->lock);
    if (waits)
        return;
    exo_actor_hold(a);
    a->next_ending = ending.first;
    ending.first = a;
}

/* Settles the queued actors of this thread. runtime: if not NULL, only its actors, even while this
 * thread is inside a death. */
static void
settle_waiting(const exo_runtime *runtime)
{
    exo_actor **at = &ending.first;
    ending.busy++;
    while (*at) {
        exo_actor *a = *at;
        if (runtime && a->runtime != runtime) {
            at = &a->next_ending;
            continue;
        }
        *at = a->next_ending;
        settle(a);
        exo_actor_drop(a);
        at = &ending.first; /* its `stop` may have put further actors in front */
    }
    ending.busy--;
}

void
exo_actors_settle(const exo_runtime *runtime)
{
    settle_waiting(runtime);
}

/* --- One death -------------------------------------------------------------------------------- */

/* The work that a death leaves for the time after the lock is released. */
struct last_will {
    exo_message *queued[EXO_MAX_LANES];
    exo_future **running; /* futures of the running calls, held */
    size_t num_running;
    struct exo_ties *ties;
};

/* Futures of running calls are completed at once, because their callers should not wait for a
 * method whose result is lost. */
static void
take_running_locked(exo_actor *a, struct last_will *will)
{
    size_t count = 0;
    for (size_t i = 0; i < a->num_lanes; i++)
        count += a->lanes[i].running;
    will->running = count ? exo_calloc(count, sizeof *will->running) : NULL;
    for (size_t i = 0; will->running && i < a->num_lanes; i++)
        for (exo_message *m = a->lanes[i].current; m; m = m->next)
            will->running[will->num_running++] = exo_future_hold(m->future);
}

static void
take_will_locked(exo_actor *a, struct last_will *will)
{
    for (size_t i = 0; i < a->num_lanes; i++) {
        exo_lane_close_locked(&a->lanes[i]);
        will->queued[i] = exo_lane_take_queue_locked(&a->lanes[i]);
    }
    take_running_locked(a, will);
    will->ties = a->ties;
    a->ties = NULL;
}

static void
tell(const struct exo_tied *list, exo_status status, const char *reason)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->futures[i])
            exo_future_complete(list->futures[i], status, reason, NULL);
        exo_future_drop(&list->futures[i]);
    }
}

/* Tells callers and monitors; the linked actors follow later. */
static void
execute_will(exo_actor *a, struct last_will *will, const char *cause, bool failure)
{
    static const struct exo_ties none;
    const struct exo_ties *ties = will->ties ? will->ties : &none;
    exo_status status = failure ? EXO_PEER_LOST : EXO_CANCELLED;
    char reason[EXO_CAUSE + 96];
    exo_format_cut(reason, sizeof reason, "the actor '%s' %s: %s", exo_actor_name(a),
                   failure ? "died" : "was stopped", cause);
    for (size_t i = 0; i < a->num_lanes; i++) {
        for (exo_message *m = will->queued[i], *next; m; m = next) {
            next = m->next;
            exo_future_complete(m->future, status, reason, NULL);
            exo_message_free(m);
        }
    }
    for (size_t i = 0; i < will->num_running; i++) {
        if (failure)
            exo_future_complete(will->running[i], EXO_PEER_LOST, reason, NULL);
        exo_future_drop(&will->running[i]);
    }
    /* Only now: a method that sees the flag and gives up must not answer before its caller has been
     * told of the death. */
    atomic_store(&a->stopping, true);
    tell(&ties->monitors, failure ? EXO_PEER_LOST : EXO_OK, failure ? reason : NULL);
    tell(&ties->deferred, status, reason);
    exo_free(will->running);
}

/* The ties of dead actors whose linked actors are still to die. */
struct mourners {
    struct exo_ties *first, **last;
};

/* Runs `interrupt` for a dead actor whose methods run. will_settle is set, so `stop` waits for this. */
static void
interrupt(exo_actor *a)
{
    a->actor_class->interrupt(a->self);
    pthread_mutex_lock(&a->lock);
    a->will_settle = false;
    pthread_mutex_unlock(&a->lock);
}

/* Ends one actor. False: another caller has done so. */
static bool
end_one(exo_actor *a, const char *cause, bool failure, struct mourners *mourners)
{
    struct last_will will = {0};
    char line[EXO_CAUSE];
    exo_cut(line, sizeof line, cause);
    /* First out of the table: whoever is told of the death finds the name free, and only one caller
     * gets past this line. */
    if (!exo_runtime_forget(a->runtime, a, line))
        return false;
    pthread_mutex_lock(&a->lock);
    a->state = EXO_ACTOR_DEAD;
    a->failed = failure;
    take_will_locked(a, &will);
    a->will_settle = a->actor_class->interrupt && runs_methods_locked(a);
    bool interrupts = a->will_settle;
    pthread_mutex_unlock(&a->lock);
    void *context;
    const exo_remote_ops *remote = exo_runtime_remote(a->runtime, &context);
    if (remote)
        remote->died(context, exo_actor_space(a), a->name, (exo_ref){.id = a->id}, line, failure);
    execute_will(a, &will, line, failure);
    if (interrupts)
        interrupt(a);
    struct exo_ties *ties = will.ties;
    if (ties && failure && ties->num_links > 0) {
        exo_format_cut(ties->cause, sizeof ties->cause, "linked to '%s', which died: %s",
                       exo_actor_name(a), line);
        ties->next = NULL;
        *mourners->last = ties;
        mourners->last = &ties->next;
    } else {
        exo_ties_free(ties);
    }
    settle_later(a);
    return true;
}

void
exo_actor_die(exo_actor *actor, const char *cause, bool failure)
{
    exo_runtime *runtime = actor->runtime;
    struct mourners mourners = {.last = &mourners.first};
    ending.busy++;
    bool died = end_one(actor, cause, failure, &mourners);
    while (mourners.first) {
        struct exo_ties *ties = mourners.first;
        for (size_t i = 0; i < ties->num_links; i++) {
            exo_actor *linked = exo_runtime_find(runtime, (exo_ref){.id = ties->links[i]});
            if (linked)
                end_one(linked, ties->cause, true, &mourners);
            exo_actor_drop(linked);
        }
        mourners.first = ties->next;
        mourners.last = mourners.first ? mourners.last : &mourners.first;
        exo_ties_free(ties);
    }
    ending.busy--;
    if (died && ending.busy == 0)
        settle_waiting(NULL);
}

void
exo_actor_rest(exo_actor *actor)
{
    pthread_mutex_lock(&actor->lock);
    bool drained = actor->state == EXO_ACTOR_DRAINING && runs_nothing_locked(actor);
    for (size_t i = 0; drained && i < actor->num_lanes; i++)
        drained = !actor->lanes[i].first;
    pthread_mutex_unlock(&actor->lock);
    if (drained)
        exo_actor_die(actor, "stopped", false);
    settle_later(actor);
    if (ending.busy == 0)
        settle_waiting(NULL);
}
