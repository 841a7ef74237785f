/* Collectives and compute slots under the thread sanitizer: threads that run through all
 * operations, with and without a death in the middle, and loops over shared helper threads. Each
 * thread owns its `struct member`. Read next: include/exogym/comm.h; runtime/base/parallel.h. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <exogym/exogym.h>

#include "base/parallel.h"
#include "comm/edge.h"
#include "support/check.h"

enum {
    MEMBERS = 4,
    COUNT = 20000,
    ROUNDS = 60
};

struct member {
    exo_comm *comm;
    uint32_t rank;
    exo_status last;
};

/* Buffers are on each thread's own heap and are freed after each operation, so that the sanitizer
 * sees a late access. */
static void *
member_main(void *argument)
{
    struct member *m = argument;
    exo_group *group = NULL;
    char name[16];
    snprintf(name, sizeof name, "node_%u", m->rank);
    CHECK(exo_group_open(&group, m->comm, m->rank, name, NULL) == EXO_OK);
    exo_group_set_timeout(group, 60 * EXO_SECOND);
    uint32_t ranks[MEMBERS / 2] = {m->rank % 2, m->rank % 2 + 2};
    exo_group *some = NULL;
    CHECK(exo_group_among(&some, group, ranks, MEMBERS / 2, NULL) == EXO_OK);
    exo_compute_enter();
    for (int round = 0; round < ROUNDS && m->last == EXO_OK; round++) {
        size_t count = round % 9 == 4 ? 3 : COUNT;
        float *x = malloc(count * sizeof *x);
        for (size_t i = 0; i < count; i++)
            x[i] = (float)(m->rank + i % 7);
        switch (round % 9) {
        case 0:
            m->last = exo_all_reduce(group, exo_host_array(EXO_F32, x, count), EXO_SUM, NULL);
            CHECK(m->last != EXO_OK || x[8] == 0 + 1 + 2 + 3 + 4.0f);
            break;
        case 1:
            m->last = exo_reduce_scatter(group, exo_host_array(EXO_F32, x, count), EXO_MEAN, NULL);
            break;
        case 2:
            m->last = exo_all_gather(group, exo_host_array(EXO_F32, x, count), NULL);
            CHECK(m->last != EXO_OK || x[COUNT - 1] == 3 + (COUNT - 1) % 7);
            break;
        case 3:
            m->last = exo_broadcast(group, exo_host_array(EXO_F32, x, count),
                                    (uint32_t)round % MEMBERS, NULL);
            CHECK(m->last != EXO_OK || x[0] == (float)((uint32_t)round % MEMBERS));
            break;
        case 4:
            m->last = exo_barrier(group, NULL);
            break;
        case 5: /* two groups at a time, one of which reduces more often */
            for (uint32_t i = 0; i <= m->rank % 2 && m->last == EXO_OK; i++)
                m->last = exo_all_reduce(some, exo_host_array(EXO_F32, x, count), EXO_MEAN, NULL);
            CHECK(m->last != EXO_OK || x[0] == (float)(m->rank % 2) + 1);
            break;
        case 6:
            m->last = exo_all_to_all(group, exo_host_array(EXO_F32, x, count), NULL);
            CHECK(m->last != EXO_OK || x[COUNT - 1] == 3 + ((m->rank + 1) * COUNT / 4 - 1) % 7);
            break;
        case 7:
            m->last = exo_swap(group, exo_host_array(EXO_F32, x, count), m->rank ^ 1, NULL);
            CHECK(m->last != EXO_OK || x[0] == (float)(m->rank ^ 1));
            break;
        case 8:
            m->last = exo_shift(group, exo_host_array(EXO_F32, x, count), 1, NULL);
            CHECK(m->last != EXO_OK || x[0] == (float)((m->rank + MEMBERS - 1) % MEMBERS));
            break;
        }
        free(x);
    }
    exo_compute_leave();
    exo_group_close(&some);
    exo_group_close(&group);
    return NULL;
}

static void
run_members(bool with_death, const char *way)
{
    exo_comm *comm = NULL;
    pthread_t threads[MEMBERS];
    struct member members[MEMBERS];
    const exo_comm_edge edge = {.way = way, .any_bits = true};
    CHECK(exo_comm_local_on(&comm, MEMBERS, exo_clock_real(), &edge, NULL) == EXO_OK);
    for (uint32_t r = 0; r < MEMBERS; r++) {
        members[r] = (struct member){.comm = comm, .rank = r};
        CHECK(pthread_create(&threads[r], NULL, member_main, &members[r]) == 0);
    }
    if (with_death) {
        struct timespec moment = {.tv_nsec = 2000000};
        nanosleep(&moment, NULL);
        exo_comm_fail(comm, 1, "a test");
    }
    for (uint32_t r = 0; r < MEMBERS; r++) {
        CHECK(pthread_join(threads[r], NULL) == 0);
        /* PEER_LOST may also come from a member that has finished its rounds and left. */
        CHECK(members[r].last == EXO_OK || (with_death && members[r].last == EXO_PEER_LOST));
    }
    exo_comm_drop(&comm);
}

/* --- Loops over the compute threads ----------------------------------------------------------- */

struct sums {
    double part[64];
};

static void
sum_piece(void *context, size_t piece)
{
    struct sums *s = context;
    for (int i = 0; i < 1000; i++)
        s->part[piece] += (double)(piece + (size_t)i);
}

static void *
loop_main(void *unused)
{
    (void)unused;
    for (int round = 0; round < 200; round++) {
        /* on this stack, so that the sanitizer sees a helper that stays too long */
        struct sums s = {0};
        exo_compute_enter();
        exo_parallel_for(64, sum_piece, &s);
        exo_compute_pause();
        exo_compute_resume();
        exo_compute_leave();
        for (size_t p = 0; p < 64; p++)
            CHECK(s.part[p] == 1000.0 * (double)p + 499500.0);
    }
    return NULL;
}

static void
loops(unsigned slots)
{
    pthread_t threads[MEMBERS];
    exo_set_num_threads(slots);
    for (int i = 0; i < MEMBERS; i++)
        CHECK(pthread_create(&threads[i], NULL, loop_main, NULL) == 0);
    for (int i = 0; i < MEMBERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

int
main(void)
{
    for (unsigned slots = 1; slots <= 4; slots++) {
        loops(slots);
        const char *way = slots % 2 ? "ring" : "tree";
        run_members(false, way);
        for (int i = 0; i < 5; i++)
            run_members(true, way);
    }
    puts("2 passed, 0 failed");
    return 0;
}
