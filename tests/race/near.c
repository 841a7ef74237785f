/* Collectives through shared memory under the thread sanitizer: members of the engine `net` on
 * threads of this process, whose boards and buffers are mapped as between processes; and by messages,
 * after the members have measured their links; with and without a death or a cancelled request in
 * the middle. Each thread owns its `struct member` or `struct waiter`. Read next:
 * runtime/comm/near.h. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <exogym/exogym.h>

#include "comm/far.h"
#include "comm/far_impl.h"
#include "comm/ways.h"
#include "store/region.h"
#include "support/check.h"
#include "support/far_members.h"

enum {
    MEMBERS = 3,
    COUNT = 40000,
    ROUNDS = 40,
    FAILURES = 50,
    SLEEPS = 40
};

struct member {
    exo_comm *comm;
    uint32_t rank;
    bool cancels, measures;
    exo_status last;
};

static exo_status
in_background(exo_group *group, exo_array data, bool cancel)
{
    exo_request *request = NULL;
    exo_status st = exo_comm_begin_all_reduce(&request, group, data, EXO_SUM, NULL);
    if (st == EXO_OK && cancel)
        exo_request_cancel(&request);
    return st == EXO_OK ? exo_request_wait(&request, NULL) : st;
}

static void *
member_main(void *argument)
{
    struct member *m = argument;
    exo_group *group = NULL, *some = NULL;
    exo_array array;
    const uint32_t ends[2] = {0, MEMBERS - 1};
    CHECK(exo_group_open(&group, m->comm, m->rank, NULL, NULL) == EXO_OK);
    exo_group_set_timeout(group, 120 * EXO_SECOND);
    if (m->rank == 0 || m->rank == MEMBERS - 1)
        CHECK(exo_group_among(&some, group, ends, 2, NULL) == EXO_OK);
    CHECK(exo_array_init(&array, exo_device_cpu(), EXO_F32, COUNT, NULL) == EXO_OK);
    if (m->measures) {
        exo_link_figure row[MEMBERS];
        exo_time deadline = exo_deadline(exo_clock_real(), 120 * EXO_SECOND);
        m->last = exo_comm_far_measure(m->comm, deadline, row, NULL);
    }
    for (int round = 0; round < ROUNDS && m->last == EXO_OK; round++) {
        exo_array data = exo_array_part(array, 0, round % 2 ? COUNT : 1000);
        exo_vec_fill(data, (float)(m->rank + 1));
        switch (round % 10) {
        case 0:
        case 1:
            m->last = exo_all_reduce(group, data, EXO_SUM, NULL);
            CHECK(m->last != EXO_OK || ((const float *)array.data)[999] == 1 + 2 + 3);
            break;
        case 2:
            m->last = exo_reduce_scatter(group, data, EXO_MEAN, NULL);
            break;
        case 3:
            m->last = exo_all_gather(group, data, NULL);
            break;
        case 4:
            m->last = exo_broadcast(group, data, 1, NULL);
            break;
        case 5:
            m->last = some ? exo_all_reduce(some, data, EXO_SUM, NULL) : EXO_OK;
            break;
        case 6:
            m->last = in_background(group, data, m->cancels && round > 20);
            break;
        case 7:
            m->last = exo_all_to_all(group, exo_array_part(data, 0, 999), NULL);
            break;
        case 8: /* the first and the last member */
            m->last = some ? exo_swap(group, data, MEMBERS - 1 - m->rank, NULL) : EXO_OK;
            CHECK(m->last != EXO_OK || !some ||
                  ((const float *)array.data)[0] == (float)(MEMBERS - m->rank));
            break;
        case 9:
            m->last = exo_shift(group, data, 1, NULL);
            CHECK(m->last != EXO_OK || ((const float *)array.data)[999] ==
                                           (float)((m->rank + MEMBERS - 1) % MEMBERS + 1));
            break;
        }
    }
    exo_array_release(&array);
    exo_group_close(&some);
    exo_group_close(&group);
    return NULL;
}

static void
run_members(bool dies, bool cancels, const char *way, exo_links *links)
{
    static const uint32_t hosts[MEMBERS] = {0, 1, 2};
    far_members far;
    pthread_t threads[MEMBERS];
    struct member members[MEMBERS];
    const exo_comm_edge edge = {.links = links,
                                .hosts = hosts,
                                .origin = exo_now(exo_clock_real()),
                                .way = way,
                                .any_bits = true};
    far_members_open(&far, MEMBERS, &edge);
    for (uint32_t r = 0; r < MEMBERS; r++)
        members[r] = (struct member){.comm = far.comms[r],
                                     .rank = r,
                                     .cancels = cancels && r == 1,
                                     .measures = links != NULL};
    for (uint32_t r = 0; r < MEMBERS; r++)
        CHECK(pthread_create(&threads[r], NULL, member_main, &members[r]) == 0);
    if (dies) {
        struct timespec moment = {.tv_nsec = 20000000};
        nanosleep(&moment, NULL);
        for (uint32_t r = 0; r < MEMBERS; r++)
            exo_comm_fail(members[r].comm, 1, "a test");
    }
    for (uint32_t r = 0; r < MEMBERS; r++) {
        CHECK(pthread_join(threads[r], NULL) == 0);
        CHECK(members[r].last == EXO_OK || (dies && members[r].last == EXO_PEER_LOST) ||
              (cancels && members[r].last == EXO_CANCELLED));
    }
    far_members_close(&far);
}

/* Links that take no time. Over links calls go by messages. */
static exo_links *
quick_links(void)
{
    static const exo_host_spec specs[MEMBERS] = {{.up = INFINITY, .down = INFINITY},
                                                 {.up = INFINITY, .down = INFINITY},
                                                 {.up = INFINITY, .down = INFINITY}};
    static const exo_link_spec link = {.bandwidth = INFINITY, .transport = EXO_LINK_IDEAL};
    exo_links *links = NULL;
    CHECK(exo_links_new(&links, specs, MEMBERS, &link, 1, NULL) == EXO_OK);
    return links;
}

/* --- How soon members hear of a failure ------------------------------------------------------- */

struct waiter {
    exo_comm *comm;
    pthread_barrier_t *called;
    uint32_t rank;
    exo_time timeout, end;
    exo_status last;
};

/* Rank 1 makes one call, and the others wait for it in a second one. */
static void *
wait_for_rank_1(void *argument)
{
    struct waiter *w = argument;
    exo_group *group = NULL;
    exo_array array;
    CHECK(exo_group_open(&group, w->comm, w->rank, NULL, NULL) == EXO_OK);
    CHECK(exo_array_init(&array, exo_device_cpu(), EXO_F32, 10, NULL) == EXO_OK);
    exo_vec_fill(array, 1);
    exo_group_set_timeout(group, 120 * EXO_SECOND);
    CHECK(exo_all_reduce(group, array, EXO_SUM, NULL) == EXO_OK);
    pthread_barrier_wait(w->called); /* a failure of the second call would end the first */
    if (w->rank != 1) {
        exo_group_set_timeout(group, w->timeout);
        w->last = exo_all_reduce(group, array, EXO_SUM, NULL);
    }
    w->end = exo_now(exo_clock_real());
    exo_array_release(&array);
    exo_group_close(&group);
    return NULL;
}

/* Rank 2 fails by its deadline at about the time at which rank 0 falls asleep. Prints the longest
 * time from that failure to the end of rank 0's call. */
static void
hear_of_failures(void)
{
    exo_time longest = 0;
    for (int round = 0; round < FAILURES; round++) {
        far_members far;
        pthread_t threads[MEMBERS];
        struct waiter waiters[MEMBERS];
        pthread_barrier_t called;
        pthread_barrier_init(&called, NULL, MEMBERS);
        far_members_open(&far, MEMBERS, NULL);
        for (uint32_t r = 0; r < MEMBERS; r++) {
            waiters[r] = (struct waiter){.comm = far.comms[r], .called = &called, .rank = r};
            waiters[r].timeout = r == 2 ? round * 20 * EXO_US : 120 * EXO_SECOND;
            CHECK(pthread_create(&threads[r], NULL, wait_for_rank_1, &waiters[r]) == 0);
        }
        for (uint32_t r = 0; r < MEMBERS; r++)
            CHECK(pthread_join(threads[r], NULL) == 0);
        CHECK(waiters[0].last == EXO_TIMEOUT && waiters[2].last == EXO_TIMEOUT);
        exo_time took = waiters[0].end - waiters[2].end;
        longest = took > longest ? took : longest;
        far_members_close(&far);
        pthread_barrier_destroy(&called);
    }
    printf("the longest of %d failures took %.1f ms to be heard of\n", FAILURES,
           (double)longest * 1e-6);
}

/* --- What is seen of a member that has been woken, and has not run yet -------------------------- */

struct sleeper {
    exo_group *group;
    exo_array data;
};

static void *
sleep_in_call(void *argument)
{
    struct sleeper *s = argument;
    CHECK(exo_all_reduce(s->group, s->data, EXO_SUM, NULL) == EXO_OK);
    return NULL;
}

/* Whether rank 0 sleeps for rank 1; then its lock is held, so that it cannot go on. */
static bool
holds_asleep(exo_far *f)
{
    pthread_mutex_lock(&f->lock);
    if (f->awaited == 2)
        return true;
    pthread_mutex_unlock(&f->lock);
    sched_yield();
    return false;
}

/* Rank 1 makes the call for which rank 0 sleeps. From then on rank 0 waits for nobody, also if its
 * thread gets no core to say so; else the two would seem to wait for each other in rank 1's next
 * call. Both have counted what each has said to the other. */
static void
look_at_the_woken(void)
{
    far_members far;
    pthread_t thread;
    struct sleeper members[2];
    far_members_open(&far, 2, NULL);
    for (uint32_t r = 0; r < 2; r++) {
        CHECK(exo_group_open(&members[r].group, far.comms[r], r, NULL, NULL) == EXO_OK);
        CHECK(exo_array_init(&members[r].data, exo_device_cpu(), EXO_F32, 10, NULL) == EXO_OK);
        exo_group_set_timeout(members[r].group, 120 * EXO_SECOND);
        exo_vec_fill(members[r].data, 0);
    }
    for (int round = 0; round < SLEEPS; round++) {
        exo_comm_look look = {0}, other = {0};
        uint32_t missing[2];
        uint64_t counts[4], others[4];
        CHECK(pthread_create(&thread, NULL, sleep_in_call, &members[0]) == 0);
        while (round > 0 && !holds_asleep(exo_far_of(far.comms[0])))
            ;
        sleep_in_call(&members[1]); /* the first one exchanges where the boards are */
        if (round > 0)
            pthread_mutex_unlock(&exo_far_of(far.comms[0])->lock);
        exo_comm_look_at(far.comms[0], 0, &look, missing, counts);
        CHECK(round == 0 || !look.waits);
        CHECK(pthread_join(thread, NULL) == 0);
        exo_comm_look_at(far.comms[0], 0, &look, missing, counts);
        exo_comm_look_at(far.comms[1], 1, &other, missing, others);
        CHECK(counts[1] == others[2] && counts[3] == others[0] && others[0] > (uint64_t)round);
    }
    for (uint32_t r = 0; r < 2; r++) {
        exo_array_release(&members[r].data);
        exo_group_close(&members[r].group);
    }
    far_members_close(&far);
}

int
main(void)
{
    exo_region_enable();
    look_at_the_woken();
    hear_of_failures();
    for (int w = 0; w < 6; w++) {
        static const char *const ways[] = {NULL, "ring", "halving"};
        exo_links *links = w % 2 ? quick_links() : NULL;
        run_members(false, false, ways[w / 2], links);
        for (int i = 0; i < (links ? 2 : 5); i++) {
            run_members(true, false, ways[w / 2], links);
            run_members(false, true, ways[w / 2], links);
        }
        exo_links_free(&links);
    }
    puts("1 passed, 0 failed");
    return 0;
}
