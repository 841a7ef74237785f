/* Threads that wait for each other on one core: see crowd.h. */
#include "base/crowd.h"

#include <sched.h>

#include <exogym/clock.h>

enum {
    PATIENCE = 16,
    MOST_PATIENCE = 4096,
    LONG_US = 500,   /* a yield: the time of many sleeps with their wakes */
    MOST_SLEEPS = 64 /* waits after a long yield */
};

int
exo_core(void)
{
    return sched_getcpu();
}

static void
leave_core(int core)
{
    cpu_set_t all, others;
    if (core < 0 || core >= CPU_SETSIZE || sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    others = all;
    CPU_CLR((size_t)core, &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0)
        sched_setaffinity(0, sizeof all, &all);
}

void
exo_crowd_wait(exo_crowd *crowd, int other)
{
    int core = sched_getcpu();
    if (core != other || ++crowd->met < (crowd->patience ? crowd->patience : PATIENCE))
        return;
    unsigned patience = crowd->patience ? 2 * crowd->patience : 2 * PATIENCE;
    crowd->met = 0;
    crowd->patience = patience < MOST_PATIENCE ? patience : MOST_PATIENCE;
    leave_core(core);
}

bool
exo_crowd_yield(exo_crowd *crowd)
{
    if (crowd->sleeps > 0) {
        crowd->sleeps--;
        return false;
    }
    exo_time before = exo_now(exo_clock_real());
    sched_yield();
    if (exo_now(exo_clock_real()) - before < LONG_US * EXO_US) {
        crowd->most = 0;
        return true;
    }
    unsigned most = crowd->most ? 2 * crowd->most : 1;
    crowd->sleeps = crowd->most = most < MOST_SLEEPS ? most : MOST_SLEEPS;
    return false;
}
