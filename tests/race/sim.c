/* Virtual time under the thread sanitizer: lanes that spend, wait and wake each other, events,
 * collectives that overlap computation, and an outside thread that reads the clock and wakes lanes.
 * Each test owns its `struct scene`. Read next: runtime/base/sim.h, pace.h. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include <exogym/exogym.h>

#include "base/pace.h"
#include "base/sim.h"
#include "comm/edge.h"
#include "support/check.h"

enum {
    LANES = 4,
    ROUNDS = 300
};

struct scene;

struct member {
    struct scene *scene;
    uint32_t rank;
    exo_sim_lane *lane;
    exo_pace pace;
    uint64_t shared_seen;
};

struct scene {
    exo_sim *sim;
    exo_comm *comm;
    struct member members[LANES];
    uint64_t shared; /* owner: the lane that runs */
    _Atomic bool over;
};

static void
on_event(void *context, exo_time at)
{
    struct scene *s = context;
    (void)at;
    s->shared++;
}

/* --- Lanes that wait for each other ----------------------------------------------------------- */

static void *
lane_main(void *argument)
{
    struct member *m = argument;
    struct scene *s = m->scene;
    exo_sim_enter(m->lane, 0);
    for (int round = 0; round < ROUNDS; round++) {
        exo_sim_spend(m->lane, 10 + (exo_time)m->rank * 3);
        exo_sim_sync(m->lane);
        s->shared++;
        exo_sim_wake(s->members[(m->rank + 1) % LANES].lane, exo_sim_time(m->lane) + 5);
        CHECK(exo_sim_at(s->sim, exo_sim_time(m->lane) + 7, on_event, s, NULL) == EXO_OK);
        if (round % 3 == 0)
            exo_sim_wait(m->lane, exo_sim_time(m->lane) + 50);
        m->shared_seen = s->shared;
    }
    exo_sim_leave(m->lane);
    return NULL;
}

/* Wakes lanes and reads the clock from outside, at any moment. */
static void *
outside_main(void *argument)
{
    struct scene *s = argument;
    exo_time last = 0;
    while (!s->over) {
        for (int r = 0; r < LANES; r++)
            exo_sim_wake(s->members[r].lane, 0);
        exo_time now = exo_now(exo_sim_clock(s->sim));
        CHECK(now >= last);
        last = now;
    }
    return NULL;
}

static void
run_lanes(uint64_t tie_seed, bool outside)
{
    struct scene s = {0};
    pthread_t threads[LANES], other;
    CHECK(exo_sim_new(&s.sim, tie_seed, NULL) == EXO_OK);
    for (uint32_t r = 0; r < LANES; r++)
        s.members[r] = (struct member){.scene = &s, .rank = r, .lane = exo_sim_lane_new(s.sim, 1)};
    exo_sim_expect(s.sim, LANES + 1); /* one more than will enter */
    for (uint32_t r = 0; r < LANES; r++)
        CHECK(pthread_create(&threads[r], NULL, lane_main, &s.members[r]) == 0);
    if (outside)
        CHECK(pthread_create(&other, NULL, outside_main, &s) == 0);
    exo_sim_expect_no_more(s.sim);
    for (uint32_t r = 0; r < LANES; r++)
        CHECK(pthread_join(threads[r], NULL) == 0);
    s.over = true;
    if (outside)
        CHECK(pthread_join(other, NULL) == 0);
    CHECK(s.shared == 2 * (uint64_t)LANES * ROUNDS);
    exo_sim_free(&s.sim);
}

/* --- Collectives, also asynchronous ones ------------------------------------------------------ */

static void *
member_main(void *argument)
{
    struct member *m = argument;
    struct scene *s = m->scene;
    exo_group *group = NULL;
    exo_request *requests[3];
    float data[64];
    exo_pace_enter(&m->pace, 0);
    CHECK(exo_group_open(&group, s->comm, m->rank, "m", NULL) == EXO_OK);
    for (int round = 0; round < 20; round++) {
        exo_pace_phase(&m->pace, "work", (exo_time)(1 + m->rank) * EXO_MS);
        exo_pace_phase(&m->pace, NULL, -1);
        data[0] = (float)m->rank;
        CHECK(exo_all_reduce(group, exo_host_array(EXO_F32, data, 64), EXO_SUM, NULL) == EXO_OK);
        CHECK(data[0] == LANES * (LANES - 1) / 2);
    }
    for (int round = 0; round < 10; round++) {
        for (int layer = 0; layer < 3; layer++) {
            exo_pace_phase(&m->pace, "layer", EXO_MS);
            exo_pace_phase(&m->pace, NULL, -1);
            CHECK(exo_comm_begin_rehearsal(&requests[layer], group, 1000, EXO_F32, NULL) == EXO_OK);
        }
        for (int layer = 2; layer >= 0; layer--)
            CHECK(exo_request_wait(&requests[layer], NULL) == EXO_OK);
    }
    exo_time end = exo_pace_now(&m->pace);
    CHECK(end >= (20 * (exo_time)(m->rank + 1) + 30) * EXO_MS && end < EXO_SECOND);
    exo_group_close(&group);
    exo_pace_leave(&m->pace);
    return NULL;
}

static void
run_members(void)
{
    struct scene s = {0};
    pthread_t threads[LANES];
    CHECK(exo_sim_new(&s.sim, 0, NULL) == EXO_OK);
    const exo_comm_edge edge = {.name = "sums", .sim = s.sim, .codec = "bf16"};
    CHECK(exo_comm_local_on(&s.comm, LANES, exo_sim_clock(s.sim), &edge, NULL) == EXO_OK);
    for (uint32_t r = 0; r < LANES; r++) {
        s.members[r] = (struct member){.scene = &s, .rank = r};
        CHECK(exo_pace_init(&s.members[r].pace, s.sim, 0, 1, NULL) == EXO_OK);
    }
    exo_sim_expect(s.sim, LANES);
    for (uint32_t r = 0; r < LANES; r++)
        CHECK(pthread_create(&threads[r], NULL, member_main, &s.members[r]) == 0);
    for (uint32_t r = 0; r < LANES; r++) {
        CHECK(pthread_join(threads[r], NULL) == 0);
        exo_pace_release(&s.members[r].pace);
    }
    exo_comm_drop(&s.comm);
    exo_sim_free(&s.sim);
}

int
main(void)
{
    for (uint64_t seed = 0; seed < 3; seed++) {
        run_lanes(seed, false);
        run_lanes(seed, true);
        run_members();
    }
    return 0;
}
