/* Actors in one process: calls, futures, deadlines, deaths, names, memory. The clock is manual, so
 * time passes only where a test advances it.
 *
 * Each test owns its runtime. Read next: actor_lanes.c, runtime/actor/runtime_impl.h. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <exogym/exogym.h>

#include "actor/future.h"
#include "base/memory_fault.h"
#include "support/actor_room.h"

/* --- Calls ------------------------------------------------------------------------------------ */

Test(actor, calls_are_served_in_order_and_answered)
{
    struct room r;
    room_init(&r);
    exo_ref ref = spawn(&r, "diary");
    exo_future *f[3] = {call(&r, ref, "write", "a"), call(&r, ref, "write", "b"),
                        call(&r, ref, "write", "c")};
    cr_assert_eq(exo_wait_all(f, 3, FAR, &r.err), EXO_OK);
    const char *want[] = {">a", ">ab", ">abc"};
    for (int i = 0; i < 3; i++) {
        const exo_payload *reply = NULL;
        cr_assert_eq(exo_wait(f[i], 0, &reply, NULL), EXO_OK);
        cr_expect_str_eq(reply->data, want[i]);
        exo_future_drop(&f[i]);
    }
    room_release(&r);
    cr_expect_eq(stops, 1);
}

Test(actor, a_methods_error_is_the_futures)
{
    struct room r;
    room_init(&r);
    exo_future *f = call(&r, spawn(&r, NULL), "refuse", NULL);
    cr_expect_eq(exo_wait(f, FAR, NULL, &r.err), EXO_FAILED);
    cr_expect_str_eq(r.err.text, "on principle");
    exo_future_drop(&f);
    room_release(&r);
}

Test(actor, what_cannot_be_called_is_an_error_at_once)
{
    struct room r;
    room_init(&r);
    exo_future *f = NULL;
    exo_ref ref = spawn(&r, NULL);
    cr_expect_eq(exo_call(r.runtime, ref, "sing", (exo_payload){0}, FAR, &f, &r.err),
                 EXO_NOT_FOUND);
    cr_expect(strstr(r.err.text, "sing"));
    f = (exo_future *)(uintptr_t)1; /* of a caller who did not initialize it */
    cr_expect_eq(exo_call(r.runtime, ref, "writ", (exo_payload){0}, FAR, &f, &r.err),
                 EXO_NOT_FOUND);
    cr_expect_null(f);
    cr_expect(strstr(r.err.text, "no method 'writ' (did you mean 'write'?); it has "), "%s",
              r.err.text);
    cr_expect_eq(
        exo_call(r.runtime, (exo_ref){.id = 12345}, "write", (exo_payload){0}, FAR, &f, &r.err),
        EXO_PEER_LOST);
    f = (exo_future *)(uintptr_t)1;
    cr_expect_eq(exo_monitor(r.runtime, (exo_ref){.id = 12345}, &f, &r.err), EXO_PEER_LOST);
    cr_expect_null(f);
    cr_expect_eq(exo_call(r.runtime, (exo_ref){0}, "write", (exo_payload){0}, FAR, &f, &r.err),
                 EXO_PEER_LOST);
    cr_expect(strstr(r.err.text, "the reference is none"), "%s", r.err.text);
    room_release(&r);
}

/* --- Deadlines -------------------------------------------------------------------------------- */

Test(actor, a_wait_ends_at_its_deadline_and_the_future_stays)
{
    struct room r;
    room_init(&r);
    exo_future *f = call(&r, spawn(&r, NULL), "wait", NULL);
    size_t index = 7;
    until_at_gate(1);
    exo_clock_manual_advance(&r.clock, 10);
    cr_expect_eq(exo_wait(f, 10, NULL, &r.err), EXO_TIMEOUT);
    cr_expect_eq(exo_wait_any(&f, 1, 10, &index, &r.err), EXO_TIMEOUT);
    cr_expect_eq(exo_wait_all(&f, 1, 10, &r.err), EXO_TIMEOUT);
    gate = true;
    cr_expect_eq(exo_wait(f, FAR, NULL, NULL), EXO_OK);
    exo_future_drop(&f);
    room_release(&r);
}

Test(actor, a_call_that_has_not_begun_at_its_deadline_is_dropped)
{
    struct room r;
    room_init(&r);
    exo_ref ref = spawn(&r, NULL);
    exo_future *busy = call(&r, ref, "wait", NULL), *late = NULL, *after = NULL;
    until_at_gate(1);
    cr_assert_eq(
        exo_call(r.runtime, ref, "write_at_desk", exo_payload_borrow("late", 5), 100, &late, NULL),
        EXO_OK);
    after = call(&r, ref, "write_at_desk", "x");
    cr_expect_not(exo_future_ready(late));
    exo_clock_manual_advance(&r.clock, 100);
    cr_expect(exo_future_ready(late), "without waiting for the lane");
    cr_expect_eq(exo_wait(late, FAR, NULL, &r.err), EXO_TIMEOUT);
    gate = true;
    const exo_payload *reply = NULL;
    cr_assert_eq(exo_wait(after, FAR, &reply, NULL), EXO_OK);
    cr_expect_str_eq(reply->data, ">x", "the late call was not served");
    exo_future_drop(&busy);
    exo_future_drop(&late);
    exo_future_drop(&after);
    room_release(&r);
}

/* --- Cancelling, stopping, dying -------------------------------------------------------------- */

Test(actor, cancel_drops_what_is_queued_and_flags_what_runs)
{
    struct room r;
    room_init(&r);
    exo_ref ref = spawn(&r, NULL);
    exo_future *runs = call(&r, ref, "wait", NULL), *queued = call(&r, ref, "write_at_desk", "q");
    until_at_gate(1);
    exo_cancel(queued);
    exo_cancel(runs);
    cr_expect_eq(exo_wait(queued, 0, NULL, NULL), EXO_CANCELLED);
    cr_expect_eq(exo_wait(runs, 0, NULL, NULL), EXO_CANCELLED);
    exo_future *after = call(&r, ref, "write_at_desk", "x");
    const exo_payload *reply = NULL;
    cr_assert_eq(exo_wait(after, FAR, &reply, NULL), EXO_OK);
    cr_expect_str_eq(reply->data, ">x");
    exo_cancel(after);
    exo_cancel(NULL);
    cr_expect_eq(exo_wait(after, 0, NULL, NULL), EXO_OK, "what is complete stays so");
    exo_future_drop(&runs);
    exo_future_drop(&queued);
    exo_future_drop(&after);
    room_release(&r);
}

Test(actor, stop_with_drain_serves_what_is_queued)
{
    struct room r;
    room_init(&r);
    exo_ref ref = spawn(&r, "drained");
    exo_future *busy = call(&r, ref, "wait", NULL), *queued = call(&r, ref, "write_at_desk", "q"),
               *died = NULL, *no;
    until_at_gate(1);
    cr_assert_eq(exo_monitor(r.runtime, ref, &died, NULL), EXO_OK);
    cr_assert_eq(exo_stop(r.runtime, ref, true, NULL), EXO_OK);
    cr_expect_eq(exo_call(r.runtime, ref, "write", (exo_payload){0}, FAR, &no, &r.err),
                 EXO_PEER_LOST);
    cr_expect_not(exo_future_ready(died));
    gate = true;
    cr_expect_eq(exo_wait(queued, FAR, NULL, NULL), EXO_OK);
    cr_expect_eq(exo_wait(died, FAR, NULL, NULL), EXO_OK, "a clean stop");
    exo_future_drop(&busy);
    exo_future_drop(&queued);
    exo_future_drop(&died);
    room_release(&r);
    cr_expect_eq(stops, 1);
}

Test(actor, stop_without_drain_cancels_what_is_queued)
{
    struct room r;
    room_init(&r);
    exo_ref ref = spawn(&r, NULL);
    exo_future *busy = call(&r, ref, "wait", NULL), *queued = call(&r, ref, "write_at_desk", "q");
    until_at_gate(1);
    cr_assert_eq(exo_stop(r.runtime, ref, false, NULL), EXO_OK);
    cr_expect_eq(exo_wait(queued, FAR, NULL, NULL), EXO_CANCELLED);
    cr_expect_eq(exo_wait(busy, FAR, NULL, NULL), EXO_CANCELLED, "it saw the flag");
    exo_future_drop(&busy);
    exo_future_drop(&queued);
    room_release(&r);
}

Test(actor, a_death_is_told_to_everyone_with_its_cause)
{
    struct room r;
    char cause[128];
    room_init(&r);
    exo_ref ref = spawn(&r, "victim");
    exo_future *busy = call(&r, ref, "wait", NULL), *queued = call(&r, ref, "write_at_desk", "q"),
               *died = NULL;
    until_at_gate(1);
    cr_expect_eq(exo_cause(r.runtime, ref, cause, sizeof cause), EXO_NOT_FOUND);
    cr_assert_eq(exo_monitor(r.runtime, ref, &died, NULL), EXO_OK);
    cr_assert_eq(exo_kill(r.runtime, ref, "poison", NULL), EXO_OK);
    exo_future *all[] = {busy, queued, died};
    for (int i = 0; i < 3; i++) {
        r.err = (exo_err){0};
        cr_expect_eq(exo_wait(all[i], FAR, NULL, &r.err), EXO_PEER_LOST);
        cr_expect(strstr(r.err.text, "victim") && strstr(r.err.text, "poison"), "%s", r.err.text);
        exo_future_drop(&all[i]);
    }
    cr_expect_eq(exo_cause(r.runtime, ref, cause, sizeof cause), EXO_OK);
    cr_expect_str_eq(cause, "poison");
    exo_ref gone;
    cr_expect_eq(exo_get_actor(r.runtime, NULL, "victim", &gone, &r.err), EXO_NOT_FOUND);
    cr_expect(strstr(r.err.text, "poison"), "%s", r.err.text);
    room_release(&r);
    cr_expect_eq(stops, 1);
}

struct obituary {
    exo_runtime *runtime;
    exo_ref ref;
    atomic_int found; /* the status that exo_cause returned, plus 1; 0: not called yet */
};

static void
look_for_cause(void *context, uint64_t tag, exo_future *future)
{
    struct obituary *o = context;
    char cause[128];
    (void)tag;
    (void)future;
    o->found = 1 + (int)exo_cause(o->runtime, o->ref, cause, sizeof cause);
}

Test(actor, a_method_can_end_its_actor)
{
    static const exo_future_hook hook = {.done = look_for_cause};
    struct room r;
    char cause[128];
    room_init(&r);
    exo_ref ref = spawn(&r, NULL);
    struct obituary obituary = {.runtime = r.runtime, .ref = ref};
    exo_future *f = call(&r, ref, "die", NULL), *died = NULL;
    exo_future_set_hook(f, &hook, &obituary, 0);
    if (exo_monitor(r.runtime, ref, &died, NULL) == EXO_OK)
        cr_expect_eq(exo_wait(died, FAR, NULL, NULL), EXO_PEER_LOST);
    cr_expect_eq(exo_wait(f, FAR, NULL, &r.err), EXO_PEER_LOST);
    cr_expect_eq(exo_cause(r.runtime, ref, cause, sizeof cause), EXO_OK,
                 "dead when its caller hears of it");
    cr_expect_str_eq(cause, "it was tired");
    while (!obituary.found)
        sched_yield();
    cr_expect_eq(obituary.found, 1 + EXO_OK, "and not a moment later");
    exo_future_drop(&f);
    exo_future_drop(&died);
    room_release(&r);
}

Test(actor, links_carry_failures_but_not_clean_stops)
{
    struct room r;
    char cause[160];
    room_init(&r);
    exo_ref a = spawn(&r, "a"), b = spawn(&r, "b"), c = spawn(&r, "c");
    cr_assert_eq(exo_link(r.runtime, a, b, NULL), EXO_OK);
    cr_assert_eq(exo_link(r.runtime, b, c, NULL), EXO_OK);
    cr_assert_eq(exo_stop(r.runtime, c, true, NULL), EXO_OK);
    cr_expect_eq(exo_cause(r.runtime, b, cause, sizeof cause), EXO_NOT_FOUND, "b lives");
    cr_assert_eq(exo_kill(r.runtime, a, "a fall", NULL), EXO_OK);
    cr_assert_eq(exo_cause(r.runtime, b, cause, sizeof cause), EXO_OK);
    cr_expect(strstr(cause, "'a'") && strstr(cause, "a fall"), "%s", cause);
    cr_expect_eq(exo_link(r.runtime, a, b, &r.err), EXO_PEER_LOST);
    room_release(&r);
}

/* --- Names ------------------------------------------------------------------------------------ */

Test(actor, names_are_unique_among_the_living_of_a_namespace)
{
    struct room r;
    room_init(&r);
    exo_ref first = spawn(&r, "n"), other = {0}, found = {0};
    cr_expect_eq(exo_spawn(r.runtime, &log_class, &(exo_spawn_opts){.name = "n"}, &other, &r.err),
                 EXO_EXISTS);
    cr_expect_eq(exo_spawn(r.runtime, &log_class,
                           &(exo_spawn_opts){.name = "n", .namespace_name = "m"}, &other, NULL),
                 EXO_OK);
    cr_expect_eq(exo_get_actor(r.runtime, "m", "n", &found, NULL), EXO_OK);
    cr_expect_eq(found.id, other.id);
    cr_expect_eq(exo_spawn(r.runtime, &log_class,
                           &(exo_spawn_opts){.name = "n", .namespace_name = ""}, &found, NULL),
                 EXO_INVAL, "no name is another one than the default");
    cr_expect_eq(exo_spawn(r.runtime, &log_class,
                           &(exo_spawn_opts){.name = "n", .get_if_exists = true}, &found, NULL),
                 EXO_OK);
    cr_expect_eq(found.id, first.id);
    cr_assert_eq(exo_stop(r.runtime, first, true, NULL), EXO_OK);
    exo_ref second = spawn(&r, "n");
    cr_expect_neq(second.id, first.id, "another life");
    exo_future *f;
    cr_expect_eq(exo_call(r.runtime, first, "write", (exo_payload){0}, FAR, &f, &r.err),
                 EXO_PEER_LOST);
    room_release(&r);
}

Test(actor, a_death_is_told_of_its_own_name)
{
    struct room r;
    exo_ref ref, found;
    room_init(&r);
    const exo_spawn_opts opts = {.name = "b/c", .namespace_name = "a"};
    cr_assert_eq(exo_spawn(r.runtime, &log_class, &opts, &ref, &r.err), EXO_OK, "%s", r.err.text);
    cr_assert_eq(exo_kill(r.runtime, ref, "an accident", NULL), EXO_OK);
    cr_expect_eq(exo_get_actor(r.runtime, "a", "b/c", &found, &r.err), EXO_NOT_FOUND);
    cr_expect(strstr(r.err.text, "the last one died: an accident"), "%s", r.err.text);
    cr_expect_eq(exo_get_actor(r.runtime, "a/b", "c", &found, &r.err), EXO_NOT_FOUND);
    cr_expect(!strstr(r.err.text, "died"), "%s", r.err.text);
    room_release(&r);
}

Test(actor, a_start_that_fails_leaves_nothing)
{
    struct room r;
    exo_ref ref = {.id = 9};
    room_init(&r);
    const exo_spawn_opts opts = {.name = "stillborn", .args = exo_payload_borrow("fail", 5)};
    cr_expect_eq(exo_spawn(r.runtime, &log_class, &opts, &ref, &r.err), EXO_INVAL);
    cr_expect_str_eq(r.err.text, "it does not like its arguments");
    cr_expect_eq(ref.id, 0);
    cr_expect_eq(exo_get_actor(r.runtime, NULL, "stillborn", &ref, &r.err), EXO_NOT_FOUND);
    spawn(&r, "stillborn");
    room_release(&r);
}

/* --- The control lane ------------------------------------------------------------------------- */

Test(actor, control_is_served_while_every_lane_is_busy)
{
    struct room r;
    char *text = NULL;
    room_init(&r);
    exo_ref ref = spawn(&r, "busy");
    exo_future *f[3] = {call(&r, ref, "wait", NULL), call(&r, ref, "write_at_desk", "x"),
                        call(&r, ref, "ping", NULL)};
    until_at_gate(1);
    cr_expect_eq(exo_wait(f[2], 0, NULL, NULL), EXO_OK);
    exo_clock_manual_advance(&r.clock, 5 * EXO_MS);
    cr_assert_eq(exo_dump(r.runtime, ref, &text, NULL), EXO_OK);
    cr_expect(strstr(text, "actor=busy class=log state=alive"), "%s", text);
    cr_expect(strstr(text, "lane=desk queued=1 running=1 method=wait for_ms=5"), "%s", text);
    exo_free(text);
    gate = true;
    cr_expect_eq(exo_wait_all(f, 3, FAR, NULL), EXO_OK);
    for (int i = 0; i < 3; i++)
        exo_future_drop(&f[i]);
    room_release(&r);
}

Test(actor, close_ends_running_work_and_is_bounded)
{
    struct room r;
    room_init(&r);
    exo_ref ref = spawn(&r, NULL);
    exo_future *f = call(&r, ref, "wait", NULL);
    until_at_gate(1);
    room_release(&r);
    cr_expect_eq(exo_wait(f, 0, NULL, NULL), EXO_CANCELLED);
    exo_future_drop(&f);
    cr_expect_eq(stops, 1);
}

/* --- Without memory --------------------------------------------------------------------------- */

Test(actor, without_memory_spawn_and_call_fail_and_nothing_leaks)
{
    struct room r;
    room_init(&r);
    for (uint64_t n = 1;; n++) {
        exo_ref ref = {0};
        exo_future *f = NULL;
        exo_payload args;
        cr_assert_eq(exo_payload_copy(&args, "x", 2), EXO_OK);
        exo_memory_fail_at(n);
        exo_status st =
            exo_spawn(r.runtime, &log_class, &(exo_spawn_opts){.name = "poor"}, &ref, &r.err);
        if (st == EXO_OK)
            st = exo_call(r.runtime, ref, "write", args, FAR, &f, &r.err);
        else
            exo_payload_release(&args);
        exo_memory_fail_at(0);
        if (st == EXO_OK && exo_wait(f, FAR, NULL, NULL) == EXO_OK) {
            exo_future_drop(&f);
            break; /* the calling thread made fewer than n allocations */
        }
        exo_future_drop(&f);
        cr_assert(st == EXO_OK || st == EXO_NOMEM, "allocation %u: %s", (unsigned)n, r.err.text);
        if (ref.id)
            exo_stop(r.runtime, ref, false, NULL);
        cr_assert_lt(n, 100);
    }
    room_release(&r);
}

static void *
make_future(void *out)
{
    return exo_future_new(out, exo_clock_real(), INT64_MAX, NULL) == EXO_OK ? out : NULL;
}

/* A thread that only makes futures has taken more of those that are kept than it needs. */
Test(actor, a_thread_that_ends_leaves_kept_futures_to_others)
{
    enum {
        MANY = 512,
        THREADS = 100
    };
    exo_future *many[MANY], *one;
    uint64_t before = 0;
    for (int i = 0; i < MANY; i++)
        cr_assert(make_future(&many[i]));
    for (int i = 0; i < MANY; i++)
        exo_future_drop(&many[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        void *made = NULL;
        cr_assert_eq(pthread_create(&thread, NULL, make_future, &one), 0);
        cr_assert(pthread_join(thread, &made) == 0 && made);
        exo_future_drop(&one);
        before = i == 0 ? exo_memory_allocations() : before;
    }
#if !defined(__SANITIZE_ADDRESS__) /* no futures are kept */
    cr_expect_eq(exo_memory_allocations(), before);
#endif
}

Test(actor, a_name_without_memory_leaves_the_other_names_whole)
{
    enum {
        NAMES = 1000 /* the table of names grows several times meanwhile */
    };
    struct room r;
    exo_ref refs[NAMES], found;
    char name[16];
    room_init(&r);
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "name-%d", i);
        exo_status st = EXO_NOMEM;
        for (uint64_t n = 1; st == EXO_NOMEM; n++) {
            exo_memory_fail_at(n);
            st =
                exo_spawn(r.runtime, &log_class, &(exo_spawn_opts){.name = name}, &refs[i], &r.err);
            exo_memory_fail_at(0);
        }
        cr_assert_eq(st, EXO_OK, "%s", r.err.text);
    }
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "name-%d", i);
        cr_assert_eq(exo_get_actor(r.runtime, NULL, name, &found, &r.err), EXO_OK, "%s",
                     r.err.text);
        cr_assert_eq(found.id, refs[i].id);
    }
    room_release(&r);
}
