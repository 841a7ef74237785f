/* Children: see child.h. No state. */
#include "programs/child.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#define NAP (2 * EXO_MS)

/* A killed process ends. */
static void
end(pid_t child, int *status)
{
    kill(child, SIGKILL);
    while (waitpid(child, status, 0) < 0 && errno == EINTR)
        ;
}

exo_status
exo_child_await(pid_t child, const char *name, exo_time patience, const _Atomic int *stop,
                int *status, exo_err *err)
{
    const exo_time deadline = exo_deadline(exo_clock_real(), patience);
    for (;;) {
        const pid_t ended = waitpid(child, status, WNOHANG);
        if (ended == child)
            return EXO_OK;
        if (ended < 0 && errno != EINTR)
            return exo_fail(err, EXO_FAILED, "%s: its end is not known", name);
        if (stop && *stop > 0) {
            end(child, status);
            return exo_fail(err, EXO_CANCELLED, "%s was stopped", name);
        }
        if (exo_now(exo_clock_real()) >= deadline)
            break;
        nanosleep(&(struct timespec){.tv_nsec = NAP}, NULL);
    }
    end(child, status);
    return exo_fail(err, EXO_TIMEOUT, "%s had not ended after %lld s and was killed", name,
                    (long long)(patience / EXO_SECOND));
}

bool
exo_stands_still(exo_standstill *s, bool stopped, exo_time now)
{
    if (!s->stopped || !stopped)
        *s = (exo_standstill){.stopped = stopped, .since = now};
    return stopped && now - s->since >= EXO_STANDSTILL;
}
