/* Requests to stop a run: see stopping.h. */
#include "programs/stopping.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "programs/program.h"

_Atomic int exo_stop_reason;

static const char *stop_message; /* set before the handler is installed */

static void
on_signal(int number)
{
    int saved = errno, before = exo_stop_reason;
    if (before != 0 && number != SIGHUP) {
        if (before != SIGHUP && before != EXO_STOP_LOST)
            _exit(EXO_EXIT_SIGNAL + number);
        /* a hangup or a lost head was not a user's request: this is the first one, so the run may
         * still save */
        exo_stop_reason = number;
    } else if (before == 0) {
        exo_stop_reason = number;
        ssize_t ignored = write(STDERR_FILENO, stop_message, strlen(stop_message));
        (void)ignored;
    }
    errno = saved;
}

void
exo_stop_on_signals(const char *message)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, hangup;
    stop_message = message;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &action, NULL);
}

static void
on_pipe(int number)
{
    (void)number;
}

/* Installs an empty handler instead of SIG_IGN, because started programs would inherit SIG_IGN. */
void
exo_outlive_readers(void)
{
    struct sigaction action = {.sa_handler = on_pipe, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGPIPE, &action, NULL);
}

void
exo_forgive_readers(void)
{
    struct pollfd reader = {.fd = STDOUT_FILENO};
    exo_flush_output();
    /* POLLERR: a pipe without a reader */
    if (poll(&reader, 1, 0) != 1 || !(reader.revents & POLLERR))
        return;
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC); /* takes the buffered output */
    if (nowhere < 0)
        return;
    dup2(nowhere, STDOUT_FILENO);
    close(nowhere);
    exo_forget_output_error();
}
