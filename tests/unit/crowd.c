/* Threads that wait beside other work on their cores sleep instead of yielding: a yield then takes
 * a turn of each of the others. So do the threads of connections, and one that cancels a call while
 * its result is written.
 *
 * sched_yield() here takes as long as beside such work, and counts its calls. Read next:
 * runtime/base/crowd.h. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include <exogym/exogym.h>
#include <exogym/memory.h>

#include "actor/future.h"
#include "base/crowd.h"
#include "support/eventually.h"
#include "support/logged.h"
#include "support/net_end.h"

char net_end_ipc[128];
struct logged logged = LOGGED_NONE;
static atomic_uint yields;

int
sched_yield(void)
{
    atomic_fetch_add(&yields, 1);
    nanosleep(&(struct timespec){.tv_nsec = 600 * 1000}, NULL);
    return 0;
}

Test(crowd, each_long_yield_makes_more_waits_sleep)
{
    exo_crowd crowd = {0};
    for (unsigned sleeps = 1; sleeps <= 64; sleeps *= 2) {
        unsigned before = atomic_load(&yields);
        for (unsigned i = 0; i <= sleeps; i++)
            cr_expect_not(exo_crowd_yield(&crowd));
        cr_expect_eq(atomic_load(&yields) - before, 1, "%u sleeps", sleeps);
    }
}

enum {
    MEMBERS = 8,
    ROUNDS = 100
};

static exo_comm *comm;

static void *
reduce(void *rank)
{
    exo_group *group = NULL;
    float number = 1;
    cr_assert_eq(exo_group_open(&group, comm, (uint32_t)(uintptr_t)rank, NULL, NULL), EXO_OK);
    for (int i = 0; i < ROUNDS; i++)
        cr_assert_eq(exo_all_reduce(group, exo_host_array(EXO_F32, &number, 1), EXO_MEAN, NULL),
                     EXO_OK);
    exo_group_close(&group);
    return NULL;
}

Test(crowd, members_of_a_collective_sleep_beside_other_work)
{
    pthread_t threads[MEMBERS];
    cr_assert_eq(exo_comm_local(&comm, MEMBERS, exo_clock_real(), NULL), EXO_OK);
    for (uintptr_t r = 0; r < MEMBERS; r++)
        cr_assert_eq(pthread_create(&threads[r], NULL, reduce, (void *)r), 0);
    for (int r = 0; r < MEMBERS; r++)
        pthread_join(threads[r], NULL);
    exo_comm_drop(&comm);
    cr_expect_lt(atomic_load(&yields), MEMBERS * ROUNDS / 4, "%u yields", atomic_load(&yields));
}

/* --- Connections ------------------------------------------------------------------------------ */

enum {
    CALLS = 200
};

Test(crowd, a_connection_sleeps_beside_other_work, .init = net_end_setup, .fini = net_end_teardown)
{
    net_end server = {0}, client = {0};
    net_end_open(&server, net_end_ipc, NULL);
    net_end_open(&client, NULL, NULL);
    exo_peer *peer = net_end_connect(&client, &server);
    unsigned before = atomic_load(&yields);
    for (uint64_t i = 0; i < CALLS; i++) {
        exo_payload numbers = net_end_numbered(i);
        cr_assert_eq(net_end_call(&client, peer, "count", &numbers), EXO_OK);
        EVENTUALLY(server.calls == i + 1);
    }
    cr_expect_lt(atomic_load(&yields) - before, CALLS / 4, "%u yields",
                 atomic_load(&yields) - before);
    exo_peer_drop(&peer);
    net_end_close(&client);
    net_end_close(&server);
}

/* --- Cancelled calls -------------------------------------------------------------------------- */

enum {
    LONG = 32 << 20 /* bytes of a reason, whose copy takes milliseconds */
};

static char *reason;

static void *
fail_for_long_reason(void *future)
{
    exo_future_complete(future, EXO_FAILED, reason, NULL);
    return NULL;
}

Test(crowd, a_cancel_sleeps_while_another_thread_writes_the_result)
{
    reason = exo_calloc(1, LONG + 1);
    cr_assert(reason);
    memset(reason, 'x', LONG);
    unsigned before = atomic_load(&yields);
    for (int i = 0; i < 20; i++) {
        exo_future *future = NULL;
        pthread_t thread;
        cr_assert_eq(exo_future_new(&future, exo_clock_real(), INT64_MAX, NULL), EXO_OK);
        cr_assert(exo_future_begin(future));
        cr_assert_eq(pthread_create(&thread, NULL, fail_for_long_reason, future), 0);
        nanosleep(&(struct timespec){.tv_nsec = 500 * 1000 * i}, NULL);
        exo_cancel(future);
        cr_expect(exo_future_ready(future));
        pthread_join(thread, NULL);
        exo_future_drop(&future);
    }
    cr_expect_eq(atomic_load(&yields), before, "%u yields", atomic_load(&yields) - before);
    exo_free(reason);
}
