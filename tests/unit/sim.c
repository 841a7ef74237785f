/* Virtual time: lanes run in the order of their times, waits end at the right time, and equal runs
 * are equal. One lane runs at a time and owns `world`. Read next: runtime/base/sim.h, pace.h. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/tensor.h>

#include "base/pace.h"
#include "base/parallel.h"
#include "base/sim.h"
#include "support/eventually.h"

enum {
    LANES = 5,
    LOG = 4096
};

static struct {
    exo_sim *sim;
    char log[LOG];
    size_t length;
} world;

struct actor {
    exo_sim_lane *lane;
    uint32_t index;
    void (*act)(struct actor *a);
    struct actor *peers;
    bool flag;
};

static void
note(const struct actor *a)
{
    world.length += (size_t)snprintf(world.log + world.length, LOG - world.length, "%u@%lld ",
                                     a->index, (long long)exo_now(exo_sim_clock(world.sim)));
}

static void *
actor_main(void *argument)
{
    struct actor *a = argument;
    exo_sim_enter(a->lane, 0);
    a->act(a);
    exo_sim_leave(a->lane);
    return NULL;
}

/* Runs lanes in a new simulation, which stays in `world` too. The caller frees *out. */
static void
run_lanes_of(exo_sim **out, uint64_t tie_seed, uint32_t count, void (*act)(struct actor *a),
             double (*speed)(uint32_t index))
{
    struct actor actors[LANES] = {0};
    pthread_t threads[LANES];
    memset(&world, 0, sizeof world);
    cr_assert_eq(exo_sim_new(&world.sim, tie_seed, NULL), EXO_OK);
    for (uint32_t i = 0; i < count; i++)
        actors[i] = (struct actor){.lane = exo_sim_lane_new(world.sim, speed ? speed(i) : 1),
                                   .index = i,
                                   .act = act,
                                   .peers = actors};
    exo_sim_expect(world.sim, count);
    for (uint32_t i = count; i-- > 0;) /* the order in which lanes enter has no effect */
        pthread_create(&threads[i], NULL, actor_main, &actors[i]);
    for (uint32_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    *out = world.sim;
}

static void
run_lanes(uint64_t tie_seed, uint32_t count, void (*act)(struct actor *a),
          double (*speed)(uint32_t index))
{
    run_lanes_of(&world.sim, tie_seed, count, act, speed);
    exo_sim_free(&world.sim);
}

static void
spend_by_index(struct actor *a)
{
    for (int step = 0; step < 3; step++) {
        exo_sim_spend(a->lane, 10 * (a->index + 1));
        exo_sim_sync(a->lane);
        note(a);
    }
}

Test(sim, lanes_run_in_the_order_of_their_times, .timeout = 120)
{
    run_lanes(0, 3, spend_by_index, NULL);
    cr_assert_str_eq(world.log, "0@10 0@20 1@20 0@30 2@30 1@40 1@60 2@60 2@90 ");
}

static double
double_speed(uint32_t index)
{
    return index == 1 ? 2 : 1;
}

Test(sim, speed_divides_costs, .timeout = 120)
{
    run_lanes(0, 2, spend_by_index, double_speed);
    cr_assert_str_eq(world.log, "0@10 1@10 0@20 1@20 0@30 1@30 ");
}

static void
wait_for_first(struct actor *a)
{
    if (a->index == 0) {
        exo_sim_spend(a->lane, 100);
        exo_sim_sync(a->lane);
        for (uint32_t i = 1; i < 3; i++)
            exo_sim_wake(a->peers[i].lane, 100 + i * 50);
        note(a);
        return;
    }
    a->flag = exo_sim_wait(a->lane, a->index == 3 ? 120 : INT64_MAX);
    cr_expect_eq(a->flag, a->index != 3);
    note(a);
}

Test(sim, a_wait_ends_when_it_is_woken_or_at_its_deadline, .timeout = 120)
{
    run_lanes(0, 4, wait_for_first, NULL);
    cr_assert_str_eq(world.log, "0@100 3@120 1@150 2@200 ");
}

static void
wake_twice(struct actor *a)
{
    if (a->index == 0) {
        exo_sim_wake(a->peers[1].lane, 500);
        exo_sim_wake(a->peers[1].lane, 300);
        exo_sim_wake(a->peers[1].lane, 400);
        exo_sim_wake(a->peers[2].lane, 900); /* after its deadline, which comes first */
        return;
    }
    a->flag = exo_sim_wait(a->lane, a->index == 1 ? INT64_MAX : 800);
    cr_expect_eq(a->flag, a->index == 1);
    note(a);
}

/* Lane 0 runs after the other lanes at time 0, so that they already wait. */
static void
wake_twice_late(struct actor *a)
{
    if (a->index == 0) {
        exo_sim_spend(a->lane, 1);
        exo_sim_sync(a->lane);
    }
    wake_twice(a);
}

Test(sim, of_two_wakes_the_earlier_counts, .timeout = 120)
{
    run_lanes(0, 3, wake_twice_late, NULL);
    cr_assert_str_eq(world.log, "1@300 2@800 ");
}

static void
on_event(void *context, exo_time at)
{
    struct actor *a = context;
    world.length += (size_t)snprintf(world.log + world.length, LOG - world.length, "event@%lld ",
                                     (long long)at);
    exo_sim_wake(a->lane, at);
}

static void
wait_for_events(struct actor *a)
{
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(exo_sim_at(world.sim, exo_sim_time(a->lane) + 7, on_event, a, NULL), EXO_OK);
        cr_expect(exo_sim_wait(a->lane, INT64_MAX));
        note(a);
    }
}

Test(sim, events_are_called_at_their_time, .timeout = 120)
{
    run_lanes(0, 1, wait_for_events, NULL);
    cr_assert_str_eq(world.log, "event@7 0@7 event@14 0@14 ");
}

Test(sim, an_event_before_everything_wakes_who_sleeps_without_lanes_that_run, .timeout = 120)
{
    run_lanes(0, 3, wait_for_events, NULL);
    cr_assert_str_eq(
        world.log,
        "event@7 event@7 event@7 0@7 1@7 2@7 event@14 event@14 event@14 0@14 1@14 2@14 ");
}

static void
note_event(void *context, exo_time at)
{
    (void)context;
    world.length += (size_t)snprintf(world.log + world.length, LOG - world.length, "event@%lld ",
                                     (long long)at);
}

static void
leave_an_event(struct actor *a)
{
    exo_sim_hold(world.sim, true);
    exo_sim_spend(a->lane, 10 * (LANES - a->index));
    exo_sim_sync(a->lane);
    cr_expect_eq(exo_sim_at(world.sim, exo_sim_time(a->lane) + 30, note_event, NULL, NULL), EXO_OK);
}

/* Lane 0 is the last, at 50. The events at 40 and 50 are before its end; those at 60 to 80 wait
 * until a lane is in again, or until they need not. */
Test(sim, events_after_the_end_wait_and_count_as_no_time, .timeout = 120)
{
    exo_sim_lane *more;
    exo_sim *sim;
    run_lanes_of(&sim, 0, LANES, leave_an_event, NULL);
    cr_assert_str_eq(world.log, "event@40 event@50 ");
    cr_expect_eq(exo_sim_now(sim), 50);
    more = exo_sim_lane_new(sim, 1);
    exo_sim_enter(more, 65);
    cr_expect_str_eq(world.log, "event@40 event@50 event@60 ");
    exo_sim_leave(more);
    cr_expect_eq(exo_sim_now(sim), 65);
    cr_expect_str_eq(world.log, "event@40 event@50 event@60 ");
    exo_sim_hold(sim, false);
    cr_expect_str_eq(world.log, "event@40 event@50 event@60 event@70 event@80 ");
    cr_expect_eq(exo_sim_now(sim), 65);
    exo_sim_free(&sim);
}

static void
spend_the_same(struct actor *a)
{
    for (int step = 0; step < 4; step++) {
        exo_sim_spend(a->lane, 10);
        exo_sim_sync(a->lane);
        note(a);
    }
}

Test(sim, ties_go_by_lot_with_a_seed_and_the_lot_is_the_same_every_time, .timeout = 60)
{
    char first[LOG];
    size_t different = 0;
    run_lanes(0, 4, spend_the_same, NULL);
    memcpy(first, world.log, LOG);
    for (uint64_t seed = 1; seed <= 20; seed++) {
        char log[LOG];
        run_lanes(seed, 4, spend_the_same, NULL);
        memcpy(log, world.log, LOG);
        different += strcmp(first, log) != 0;
        run_lanes(seed, 4, spend_the_same, NULL);
        cr_expect_str_eq(world.log, log, "seed %llu", (unsigned long long)seed);
    }
    cr_assert_geq(different, 15);
}

static void
burn(exo_time time)
{
    exo_time until = exo_now(exo_clock_real()) + time;
    while (exo_now(exo_clock_real()) < until)
        ;
}

static void
measure(struct actor *a)
{
    burn(5 * EXO_MS); /* is not counted */
    cr_expect_eq(exo_sim_time(a->lane), 0);
    exo_sim_measure(a->lane, true);
    burn(10 * EXO_MS);
    exo_sim_measure(a->lane, false);
    exo_time took = exo_sim_time(a->lane);
    cr_expect_geq(took, a->index == 1 ? 5 * EXO_MS : 10 * EXO_MS);
    burn(5 * EXO_MS);
    cr_expect_eq(exo_sim_time(a->lane), took);
}

Test(sim, what_is_measured_costs_what_it_takes, .timeout = 120)
{
    run_lanes(0, 2, measure, double_speed);
}

/* --- The pace --------------------------------------------------------------------------------- */

static exo_time
total_of(const exo_pace *pace, const char *name)
{
    for (size_t i = 0; i < pace->track.num_totals; i++)
        if (strcmp(pace->track.totals[i].name, name) == 0)
            return pace->track.totals[i].time;
    return -1;
}

Test(pace, declared_phases_and_waits_on_the_virtual_clock, .timeout = 120)
{
    exo_sim *sim = NULL;
    exo_pace pace;
    cr_assert_eq(exo_sim_new(&sim, 0, NULL), EXO_OK);
    cr_assert_eq(exo_pace_init(&pace, sim, 0, 2, NULL), EXO_OK);
    pace.track.limit = 100;
    exo_pace_enter(&pace, 0);
    cr_assert_eq(exo_pace_current(), &pace);
    exo_pace_phase(&pace, "play", 100);
    exo_pace_phase(&pace, "learn", 60);
    exo_pace_wait_begin(&pace, "parameters", EXO_SPAN_RECV_BLOCKED);
    exo_sim_wait(pace.lane, 75);
    cr_expect_eq(exo_pace_wait_end(&pace), 25);
    exo_pace_phase(&pace, NULL, -1);
    cr_expect_eq(exo_pace_now(&pace), 105);
    exo_pace_leave(&pace);
    cr_expect_null(exo_pace_current());
    cr_expect_eq(total_of(&pace, "play"), 50);
    cr_expect_eq(total_of(&pace, "learn"), 30);
    cr_expect_eq(total_of(&pace, "parameters"), 25);
    cr_expect_eq(pace.track.length, 3);
    exo_pace_release(&pace);
    exo_sim_free(&sim);
}

Test(pace, a_declared_cost_is_waited_out_on_the_real_clock, .timeout = 120)
{
    exo_pace pace;
    exo_time before = exo_now(exo_clock_real());
    cr_assert_eq(exo_pace_init(&pace, NULL, before, 2, NULL), EXO_OK);
    exo_pace_enter(&pace, 0);
    exo_pace_phase(&pace, "play", 40 * EXO_MS);
    burn(5 * EXO_MS);
    exo_pace_phase(&pace, NULL, -1);
    cr_expect_geq(exo_now(exo_clock_real()) - before, 20 * EXO_MS);
    exo_pace_leave(&pace);
    exo_pace_release(&pace);
}

/* The least of several tries, because other programs may take the core at any moment. */
Test(pace, work_without_a_cost_belongs_to_the_next_declared_phase, .timeout = 120)
{
    exo_pace pace;
    exo_time least = EXO_SECOND;
    cr_assert_eq(exo_pace_init(&pace, NULL, exo_now(exo_clock_real()), 1, NULL), EXO_OK);
    exo_pace_enter(&pace, 0);
    for (int try = 0; try < 5; try++) {
        exo_pace_phase(&pace, "update", 0);
        burn(15 * EXO_MS);
        exo_pace_wait_begin(&pace, "gradients", EXO_SPAN_RECV_BLOCKED);
        exo_pace_wait_end(&pace);
        burn(15 * EXO_MS);
        exo_pace_phase(&pace, "step", 30 * EXO_MS);
        exo_time began = exo_now(exo_clock_real());
        exo_pace_phase(&pace, "step", 40 * EXO_MS); /* nothing is left for this one */
        exo_time between = exo_now(exo_clock_real());
        exo_pace_phase(&pace, NULL, -1);
        cr_expect_geq(exo_now(exo_clock_real()) - between, 40 * EXO_MS);
        least = between - began < least ? between - began : least;
    }
    cr_expect_lt(least, 10 * EXO_MS, "%lld ns", (long long)least);
    exo_pace_leave(&pace);
    exo_pace_release(&pace);
}

/* Has the only compute slot for 60 ms, from when the test waits for a declared cost. */
static void *
hold_slot(void *argument)
{
    atomic_store((atomic_bool *)argument, true);
    exo_compute_enter();
    burn(60 * EXO_MS);
    exo_compute_leave();
    return NULL;
}

/* A wait of 20 ms ends 40 ms late, at the end of its phase or at a part of it. */
Test(pace, the_late_end_of_a_wait_belongs_to_the_next_declared_phase, .timeout = 120)
{
    exo_pace pace;
    exo_set_num_threads(1);
    cr_assert_eq(exo_pace_init(&pace, NULL, exo_now(exo_clock_real()), 1, NULL), EXO_OK);
    exo_pace_enter(&pace, 0);
    exo_compute_enter();
    for (int parts = 0; parts < 2; parts++) {
        exo_time least = EXO_SECOND;
        for (int try = 0; try < 5 && least >= 30 * EXO_MS; try++) {
            pthread_t thread;
            atomic_bool told = false;
            cr_assert_eq(pthread_create(&thread, NULL, hold_slot, &told), 0);
            EVENTUALLY(atomic_load(&told));
            burn(5 * EXO_MS); /* until the thread waits for the slot */
            exo_pace_phase(&pace, "step", 20 * EXO_MS);
            if (parts)
                exo_pace_reach(&pace, 1);
            exo_pace_phase(&pace, "step", 50 * EXO_MS);
            exo_time began = exo_now(exo_clock_real());
            exo_pace_phase(&pace, NULL, -1);
            exo_time lasted = exo_now(exo_clock_real()) - began;
            least = lasted < least ? lasted : least;
            pthread_join(thread, NULL);
        }
        cr_expect_lt(least, 30 * EXO_MS, "parts %d: %lld ns", parts, (long long)least);
    }
    exo_compute_leave();
    exo_pace_leave(&pace);
    exo_pace_release(&pace);
}

Test(pace, a_track_keeps_totals_beyond_its_limit)
{
    exo_track track = {.limit = 2};
    for (exo_time i = 0; i < 5; i++)
        exo_track_add(&track, i % 2 ? "odd" : "even", EXO_SPAN_COMPUTE, 10 * i, 10 * i + 5);
    cr_expect_eq(track.length, 2);
    cr_expect_eq(track.lost, 3);
    cr_expect_eq(track.totals[0].time, 15);
    cr_expect_eq(track.totals[1].time, 10);
    exo_track_release(&track);
}
