/* Deaths that cause other deaths: long chains by links and by `stop`, and the locks that are free
 * meanwhile. Also runtimes that close within `stop`, monitors, causes, and actor slots at their
 * last generation.
 *
 * The suite's `begin` and `end` own the runtime. Read next: runtime/actor/runtime_impl.h. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <exogym/exogym.h>

#include "actor/runtime_impl.h"
#include "support/eventually.h"

enum {
    /* nested calls for so many actors, one frame each, would exceed a stack of 8 MiB */
    MANY = 50000
};

static exo_runtime *runtime;
static exo_err err;

/* An actor of a chain. It knows the next actor and, if stops_next is set, stops it in its own
 * stop. */
struct link_of_chain {
    exo_ref next;
    bool stops_next;
};

static atomic_int stopped, last_stopped;

static exo_status
chain_start(exo_call_context *call, void *self, const exo_payload *args, exo_err *why)
{
    (void)call;
    (void)why;
    memcpy(self, args->data, sizeof(struct link_of_chain));
    return EXO_OK;
}

static void
chain_stop(void *self)
{
    const struct link_of_chain *l = self;
    stopped++;
    if (l->stops_next && l->next.id)
        exo_stop(runtime, l->next, false, NULL);
    else if (!l->next.id)
        last_stopped = stopped;
}

static exo_status
chain_run(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
          exo_err *why)
{
    (void)call;
    (void)self;
    (void)args;
    (void)reply;
    (void)why;
    return EXO_OK;
}

static exo_status
chain_later(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
            exo_err *why)
{
    (void)reply;
    (void)why;
    (void)self;
    exo_future **out = *(exo_future ***)args->data;
    *out = exo_call_defer(call);
    return EXO_OK;
}

static const exo_method methods[] = {{.name = "run", .run = chain_run},
                                     {.name = "later", .run = chain_later}};
static const exo_actor_class chain_class = {.name = "chain",
                                            .state_size = sizeof(struct link_of_chain),
                                            .start = chain_start,
                                            .stop = chain_stop,
                                            .methods = methods,
                                            .num_methods = 2};

static void
begin(void)
{
    cr_assert_eq(exo_runtime_open(&runtime, &(exo_runtime_opts){.threads = 2}, &err), EXO_OK);
}

static void
end(void)
{
    cr_expect_eq(exo_runtime_close(&runtime, in_ms(60000), &err), EXO_OK, "%s", err.text);
}

TestSuite(actor_death, .init = begin, .fini = end, .timeout = 120);

static exo_ref
spawn_before(exo_ref next, bool stops_next)
{
    const struct link_of_chain l = {.next = next, .stops_next = stops_next};
    const exo_spawn_opts opts = {.args = exo_payload_borrow(&l, sizeof l)};
    exo_ref ref = {0};
    cr_assert_eq(exo_spawn(runtime, &chain_class, &opts, &ref, &err), EXO_OK, "%s", err.text);
    return ref;
}

/* Makes a chain of MANY actors and returns the first. *last is the last one. */
static exo_ref
make_chain(bool linked, bool stops_next, exo_ref *last)
{
    exo_ref next = {0};
    *last = next;
    for (int i = 0; i < MANY; i++) {
        exo_ref ref = spawn_before(next, stops_next);
        if (linked && next.id)
            cr_assert_eq(exo_link(runtime, ref, next, &err), EXO_OK, "%s", err.text);
        last->id = last->id ? last->id : ref.id;
        next = ref;
    }
    return next;
}

Test(actor_death, a_long_chain_of_linked_actors_dies)
{
    char cause[256];
    exo_ref last, first = make_chain(true, false, &last);
    cr_assert_eq(exo_kill(runtime, first, "a fall", &err), EXO_OK);
    cr_expect_eq(stopped, MANY, "all are dead and stopped when exo_kill returns: %d", stopped);
    cr_assert_eq(exo_cause(runtime, last, cause, sizeof cause), EXO_OK);
    cr_expect(strstr(cause, "linked to 'chain', which died"), "%s", cause);
}

Test(actor_death, a_long_chain_of_links_breaks_in_the_middle_too)
{
    exo_ref last, first = make_chain(true, true, &last);
    (void)first;
    cr_assert_eq(exo_kill(runtime, last, "a fall", &err), EXO_OK);
    cr_expect_eq(stopped, MANY, "%d", stopped);
}

Test(actor_death, many_actors_that_are_linked_to_one_die_with_it)
{
    exo_ref hub = spawn_before((exo_ref){0}, false), other = {0};
    for (int i = 1; i < MANY; i++) {
        other = spawn_before(hub, false);
        cr_assert_eq(exo_link(runtime, hub, other, &err), EXO_OK);
    }
    cr_assert_eq(exo_kill(runtime, other, "a fall", &err), EXO_OK);
    cr_expect_eq(stopped, MANY, "%d", stopped);
}

Test(actor_death, a_long_chain_of_actors_stops_each_the_next)
{
    exo_ref last, first = make_chain(false, true, &last);
    cr_assert_eq(exo_stop(runtime, first, false, &err), EXO_OK);
    cr_expect_eq(stopped, MANY, "%d", stopped);
    cr_expect_eq(last_stopped, MANY, "in their order");
}

Test(actor_death, a_long_chain_drains_on_a_thread_of_the_pool)
{
    exo_future *f = NULL;
    exo_ref last, first = make_chain(false, true, &last);
    cr_assert_eq(exo_call(runtime, first, "run", (exo_payload){0}, in_ms(60000), &f, &err), EXO_OK);
    cr_assert_eq(exo_stop(runtime, first, true, &err), EXO_OK);
    cr_expect_eq(exo_wait(f, in_ms(60000), NULL, &err), EXO_OK, "%s", err.text);
    exo_future_drop(&f);
    EVENTUALLY(stopped == MANY);
}

/* --- Runtimes within stop --------------------------------------------------------------------- */

/* An actor with its own runtime. It kills that runtime's actor and closes the runtime in its
 * stop. */
struct owner {
    exo_runtime *own;
    exo_ref child;
};

static void
owner_stop(void *self)
{
    struct owner *o = self;
    exo_kill(o->own, o->child, "its owner ends", NULL);
    cr_expect_eq(exo_runtime_close(&o->own, in_ms(60000), &err), EXO_OK, "%s", err.text);
    cr_expect_eq(stopped, 1, "what lived there is stopped when its runtime has closed");
}

static exo_status
owner_start(exo_call_context *call, void *self, const exo_payload *args, exo_err *why)
{
    (void)call;
    (void)args;
    struct owner *o = self;
    const struct link_of_chain alone = {0};
    const exo_spawn_opts opts = {.args = exo_payload_borrow(&alone, sizeof alone)};
    exo_status st = exo_runtime_open(&o->own, NULL, why);
    return st == EXO_OK ? exo_spawn(o->own, &chain_class, &opts, &o->child, why) : st;
}

static const exo_actor_class owner_class = {
    .name = "owner", .state_size = sizeof(struct owner), .start = owner_start, .stop = owner_stop};

Test(actor_death, a_stop_can_close_another_runtime)
{
    exo_ref ref = {0};
    cr_assert_eq(exo_spawn(runtime, &owner_class, NULL, &ref, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_stop(runtime, ref, false, &err), EXO_OK);
    cr_expect_eq(stopped, 1);
}

/* --- Stops on other threads ------------------------------------------------------------------- */

enum {
    LOOKS = 50 /* the closing thread has looked at the clock so often, so it is waiting */
};

/* Real time. `looks` counts how often the closing thread reads it. */
static pthread_t closer;
static atomic_bool closes;
static atomic_int looks;

static exo_time
counted_now(const exo_clock *clock)
{
    (void)clock;
    looks += closes && pthread_equal(pthread_self(), closer);
    return exo_now(exo_clock_real());
}

static const exo_clock counted_clock = {.now = counted_now};
static exo_runtime *other;
static atomic_int in_child_stop, child_has_stopped;

static void
slow_stop(void *self)
{
    (void)self;
    in_child_stop = 1;
    EVENTUALLY(looks >= LOOKS);
    child_has_stopped = 1;
}

static const exo_actor_class slow_class = {.name = "slow", .stop = slow_stop};

/* Kills the child. The same thread runs the child's stop after this function has returned. */
static void
parent_stop(void *self)
{
    exo_kill(other, *(exo_ref *)self, "its parent ends", NULL);
}

static exo_status
parent_start(exo_call_context *call, void *self, const exo_payload *args, exo_err *why)
{
    (void)args;
    return exo_spawn(exo_call_runtime(call), &slow_class, NULL, self, why);
}

static const exo_actor_class parent_class = {
    .name = "parent", .state_size = sizeof(exo_ref), .start = parent_start, .stop = parent_stop};

static void *
kill_parent(void *parent)
{
    exo_kill(other, *(const exo_ref *)parent, "killed", NULL);
    return NULL;
}

Test(actor_death, close_waits_for_the_stops_of_other_threads)
{
    exo_ref parent = {0};
    pthread_t killer;
    cr_assert_eq(
        exo_runtime_open(&other, &(exo_runtime_opts){.clock = &counted_clock, .threads = 1}, &err),
        EXO_OK);
    cr_assert_eq(exo_spawn(other, &parent_class, NULL, &parent, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(pthread_create(&killer, NULL, kill_parent, &parent), 0);
    EVENTUALLY(in_child_stop);
    closer = pthread_self();
    closes = true;
    exo_runtime *closed = other;
    cr_expect_eq(exo_runtime_close(&closed, in_ms(60000), &err), EXO_OK, "%s", err.text);
    cr_expect(child_has_stopped, "the runtime was freed while a stop ran on another thread");
    looks = LOOKS;
    pthread_join(killer, NULL);
}

/* --- Interrupts ------------------------------------------------------------------------------- */

static atomic_bool waits, may_return, has_returned;

/* Waits for `interrupt` alone, whatever exo_call_cancelled says. */
static exo_status
waiter_run(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply,
           exo_err *why)
{
    (void)self;
    (void)args;
    (void)reply;
    waits = true;
    EVENTUALLY(may_return);
    cr_expect(exo_call_cancelled(call), "the flag comes before the interrupt");
    has_returned = true;
    return exo_fail(why, EXO_CANCELLED, "interrupted");
}

/* Goes on until the method has returned: `stop` waits for this, too. */
static void
waiter_interrupt(void *self)
{
    (void)self;
    cr_expect_eq(stopped, 0);
    may_return = true;
    EVENTUALLY(has_returned);
    nanosleep(&(struct timespec){.tv_nsec = 20 * EXO_MS}, NULL);
    cr_expect_eq(stopped, 0, "it was stopped while its interrupt ran");
}

static void
waiter_stop(void *self)
{
    (void)self;
    stopped++;
}

static const exo_lane_class waiter_lane = {.name = "main", .blocking = true};
static const exo_method waiter_method = {.name = "run", .run = waiter_run};
static const exo_actor_class waiter_class = {.name = "waiter",
                                             .stop = waiter_stop,
                                             .interrupt = waiter_interrupt,
                                             .lanes = &waiter_lane,
                                             .num_lanes = 1,
                                             .methods = &waiter_method,
                                             .num_methods = 1};

/* Makes an actor whose method waits. */
static exo_ref
spawn_waiter(exo_future **f)
{
    exo_ref ref = {0};
    cr_assert_eq(exo_spawn(runtime, &waiter_class, NULL, &ref, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_call(runtime, ref, "run", (exo_payload){0}, in_ms(60000), f, &err), EXO_OK);
    EVENTUALLY(waits);
    return ref;
}

Test(actor_death, a_death_interrupts_methods_that_wait)
{
    exo_future *f = NULL;
    exo_ref ref = spawn_waiter(&f);
    cr_assert_eq(exo_kill(runtime, ref, "a fall", &err), EXO_OK);
    cr_expect_eq(exo_wait(f, in_ms(60000), NULL, &err), EXO_PEER_LOST);
    exo_future_drop(&f);
    EVENTUALLY(stopped == 1);
}

Test(actor_death, the_end_of_a_runtime_interrupts_methods_that_wait)
{
    exo_future *f = NULL;
    spawn_waiter(&f);
    cr_expect_eq(exo_runtime_close(&runtime, in_ms(60000), &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_wait(f, in_ms(60000), NULL, &err), EXO_CANCELLED);
    exo_future_drop(&f);
    cr_expect_eq(stopped, 1);
}

Test(actor_death, an_actor_without_running_methods_is_not_interrupted)
{
    exo_ref ref = {0};
    cr_assert_eq(exo_spawn(runtime, &waiter_class, NULL, &ref, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_kill(runtime, ref, "a fall", &err), EXO_OK);
    cr_expect(!may_return);
    cr_expect_eq(stopped, 1);
}

/* --- Deaths while `start` runs ---------------------------------------------------------------- */

static atomic_bool starts, goes_on, has_started, start_fails;

static exo_status
slow_start(exo_call_context *call, void *self, const exo_payload *args, exo_err *why)
{
    (void)self;
    (void)args;
    starts = true;
    EVENTUALLY(goes_on);
    cr_expect(exo_call_cancelled(call));
    has_started = true;
    return start_fails ? exo_fail(why, EXO_FAILED, "on purpose") : EXO_OK;
}

static void
slow_starter_stop(void *self)
{
    (void)self;
    cr_expect(has_started, "it was stopped while it started");
    stopped++;
}

static const exo_actor_class slow_starter = {
    .name = "slow_starter", .start = slow_start, .stop = slow_starter_stop};

static void *
kill_starter(void *unused)
{
    exo_ref ref = {0};
    (void)unused;
    EVENTUALLY(starts);
    cr_expect_eq(exo_get_actor(runtime, NULL, "slow", &ref, NULL), EXO_OK);
    cr_expect_eq(exo_kill(runtime, ref, "a fall", NULL), EXO_OK);
    goes_on = true;
    return NULL;
}

Test(actor_death, stop_waits_for_start)
{
    for (int fails = 0; fails < 2; fails++) {
        pthread_t killer;
        exo_ref ref = {0};
        starts = goes_on = has_started = false;
        start_fails = fails;
        stopped = 0;
        cr_assert_eq(pthread_create(&killer, NULL, kill_starter, NULL), 0);
        cr_expect_eq(
            exo_spawn(runtime, &slow_starter, &(exo_spawn_opts){.name = "slow"}, &ref, &err),
            fails ? EXO_FAILED : EXO_OK);
        pthread_join(killer, NULL);
        cr_expect_eq(stopped, !fails, "%d", stopped);
    }
}

/* --- Monitors --------------------------------------------------------------------------------- */

Test(actor_death, monitors_that_are_dropped_do_not_pile_up)
{
    exo_ref ref = spawn_before((exo_ref){0}, false);
    exo_future *kept = NULL, *f = NULL;
    cr_assert_eq(exo_monitor(runtime, ref, &kept, &err), EXO_OK);
    for (int i = 0; i < MANY; i++) {
        cr_assert_eq(exo_monitor(runtime, ref, &f, &err), EXO_OK);
        exo_future_drop(&f);
    }
    exo_actor *a = exo_runtime_find(runtime, ref);
    cr_assert(a);
    pthread_mutex_lock(&a->lock);
    cr_expect_leq(a->ties->monitors.count, 100);
    pthread_mutex_unlock(&a->lock);
    exo_actor_drop(a);
    exo_kill(runtime, ref, "it is enough", NULL);
    cr_expect_eq(exo_wait(kept, in_ms(60000), NULL, &err), EXO_PEER_LOST);
    exo_future_drop(&kept);
}

/* --- Causes ----------------------------------------------------------------------------------- */

Test(actor_death, a_cause_that_is_cut_says_so)
{
    char cause[400], text[512];
    exo_ref ref = spawn_before((exo_ref){0}, false);
    memset(cause, 'c', sizeof cause);
    cause[sizeof cause - 1] = 0;
    exo_kill(runtime, ref, cause, NULL);
    cr_expect_eq(exo_cause(runtime, ref, text, sizeof text), EXO_OK);
    cr_expect_str_eq(text + strlen(text) - 4, "c...");
}

/* --- Callbacks and the lock ------------------------------------------------------------------- */

static exo_ref watched;
static atomic_int looked;

/* Dumps the watched actor, which needs the actor's lock. */
static void
look(void)
{
    char *text = NULL;
    /* runtime is NULL while it closes */
    if (runtime && exo_dump(runtime, watched, &text, NULL) == EXO_OK)
        looked++;
    exo_free(text);
}

static void
look_when_done(void *context, uint64_t tag, exo_future *future)
{
    (void)context;
    (void)tag;
    (void)future;
    look();
}

static void
look_when_released(void *owner)
{
    (void)owner;
    look();
}

Test(actor_death, a_late_monitor_makes_room_and_its_hook_runs_without_the_lock)
{
    static const exo_future_hook hook = {.done = look_when_done};
    watched = spawn_before((exo_ref){0}, false);
    for (int i = 0; i < 20; i++) { /* more than the lists hold at first */
        exo_future *f = NULL;
        exo_time late = i < 4 ? 1 : INT64_MAX;
        cr_assert_eq(exo_future_new(&f, exo_runtime_clock(runtime), late, &err), EXO_OK);
        exo_future_set_hook(f, &hook, NULL, 0);
        cr_assert_eq(exo_runtime_monitor(runtime, watched, f, &err), EXO_OK);
        exo_future_drop(&f);
    }
    cr_expect_eq(looked, 4, "%d", looked);
}

Test(actor_death, a_reply_that_nobody_wants_is_released_without_the_lock)
{
    static char text[] = "a reply";
    watched = spawn_before((exo_ref){0}, false);
    for (int i = 0; i < 20; i++) {
        exo_future *asked = NULL, *deferred = NULL, **where = &deferred;
        exo_payload args = {0},
                    reply = {.data = text, .size = sizeof text, .release = look_when_released};
        cr_assert_eq(exo_payload_copy(&args, &where, sizeof where), EXO_OK);
        cr_assert_eq(exo_call(runtime, watched, "later", args, in_ms(60000), &asked, &err), EXO_OK);
        cr_assert_eq(
            exo_call_wait(runtime, watched, "run", (exo_payload){0}, in_ms(60000), NULL, &err),
            EXO_OK);
        cr_assert(deferred, "the first call was served before the second");
        exo_reply(&deferred, EXO_OK, NULL, &reply);
        exo_future_drop(&asked); /* the last reference is in the actor's list */
    }
    cr_expect_geq(looked, 4, "%d", looked);
}

/* --- Generations ------------------------------------------------------------------------------ */

Test(actor_death, a_slot_is_left_before_its_generation_reads_as_remote)
{
    exo_ref ref = spawn_before((exo_ref){0}, false), older = ref;
    exo_actor *actor = exo_runtime_find(runtime, ref);
    cr_assert(actor);
    cr_assert_eq(exo_kill(runtime, ref, NULL, &err), EXO_OK);
    uint64_t references = (uint32_t)atomic_load(&actor->slot->life);
    /* the state after 2^31 - 2 lives */
    atomic_store(&actor->slot->life, ((EXO_REMOTE >> 32) - 2) << 32 | references);
    exo_actor_drop(actor);
    for (int i = 0; i < 8; i++) {
        exo_ref next = spawn_before((exo_ref){0}, false);
        cr_expect_eq(next.id & EXO_REMOTE, 0, "life %d", i);
        cr_expect_neq(next.id, older.id);
        cr_expect_eq(
            exo_call_wait(runtime, next, "run", (exo_payload){0}, in_ms(60000), NULL, &err), EXO_OK,
            "%s", err.text);
        cr_assert_eq(exo_kill(runtime, next, NULL, &err), EXO_OK);
    }
}
