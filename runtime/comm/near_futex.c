/* Futexes on words in memory that processes share. A word that is mapped for reading only will do:
 * the kernel finds it by its file. No state. */
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "comm/near_impl.h"

void
exo_near_sleep_on(const _Atomic uint32_t *word, uint32_t value, exo_time most)
{
    const struct timespec time = {.tv_sec = (time_t)(most / EXO_SECOND),
                                  .tv_nsec = (long)(most % EXO_SECOND)};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &time, NULL, 0);
}

void
exo_near_wake_word(const _Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void
exo_near_wake(exo_near *n)
{
    const _Atomic uint32_t *word = n ? atomic_load(&n->asleep) : NULL;
    if (word)
        exo_near_wake_word(word);
}
