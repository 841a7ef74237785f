/* Waits for programs that this process has started: they end, or they are ended. */
#include <criterion/criterion.h>

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "programs/child.h"

/* A child that ends with that status, or never (-1). */
static pid_t
child_of(int status)
{
    const pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child > 0)
        return child;
    while (status < 0)
        pause();
    _exit(status);
}

Test(child, its_status_is_told)
{
    int status = 0;
    cr_assert_eq(exo_child_await(child_of(3), "it", 600 * EXO_SECOND, NULL, &status, NULL), EXO_OK);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 3);
}

/* Its status could be any. */
Test(child, an_end_without_a_status_is_no_success)
{
    int status = 0;
    exo_err err = {0};
    signal(SIGCHLD, SIG_IGN);
    cr_expect_eq(exo_child_await(child_of(3), "it", 600 * EXO_SECOND, NULL, &status, &err),
                 EXO_FAILED);
}

Test(child, one_that_does_not_end_is_killed, .timeout = 60)
{
    int status = 0;
    exo_err err = {0};
    const pid_t child = child_of(-1);
    cr_expect_eq(exo_child_await(child, "gnuplot", EXO_SECOND, NULL, &status, &err), EXO_TIMEOUT);
    cr_expect(strstr(err.text, "gnuplot had not ended after 1 s and was killed"), "%s", err.text);
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    cr_expect_eq(kill(child, 0), -1);
}

Test(child, one_is_killed_when_this_process_is_told_to_stop, .timeout = 60)
{
    int status = 0;
    exo_err err = {0};
    const _Atomic int stop = SIGTERM;
    const pid_t child = child_of(-1);
    cr_expect_eq(exo_child_await(child, "gnuplot", 600 * EXO_SECOND, &stop, &status, &err),
                 EXO_CANCELLED);
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    cr_expect_eq(kill(child, 0), -1);
}

Test(child, one_stands_still_once_it_was_stopped_for_a_second_without_a_break)
{
    exo_standstill s = {0};
    cr_expect(!exo_stands_still(&s, true, 5 * EXO_SECOND), "the first look");
    cr_expect(!exo_stands_still(&s, true, 5 * EXO_SECOND + EXO_STANDSTILL - 1));
    cr_expect(!exo_stands_still(&s, false, 5 * EXO_SECOND + EXO_STANDSTILL), "it goes on");
    cr_expect(!exo_stands_still(&s, true, 6 * EXO_SECOND + EXO_STANDSTILL));
    cr_expect(exo_stands_still(&s, true, 6 * EXO_SECOND + 2 * EXO_STANDSTILL));
}
