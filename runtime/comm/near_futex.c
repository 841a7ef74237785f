/* Sleep and wake by futexes on bells, in memory that processes share. No state. */
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "comm/near_impl.h"

void
exo_near_sleep_on(const _Atomic uint32_t *bell, uint32_t value, exo_time most)
{
    const struct timespec time = {.tv_sec = (time_t)(most / EXO_SECOND),
                                  .tv_nsec = (long)(most % EXO_SECOND)};
    syscall(SYS_futex, bell, FUTEX_WAIT, value, &time, NULL, 0);
}

void
exo_near_ring(_Atomic uint32_t *bell)
{
    atomic_fetch_add(bell, 1);
    syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void
exo_near_wake(exo_near *n)
{
    if (n && n->board && atomic_load(&n->board->sleeping))
        exo_near_ring(n->bell);
}
