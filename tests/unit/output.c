/* Output to readers that lag: it waits for them, and gives up one that takes nothing. Each test owns
 * its pipe. */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "programs/output.h"

enum {
    BYTES = 1 << 20 /* more than a pipe holds */
};

static char bytes[BYTES];

static exo_output_fd
nonblocking_pipe(int *reader, exo_time patience)
{
    int ends[2];
    cr_assert_eq(pipe2(ends, O_NONBLOCK), 0);
    *reader = ends[0];
    fcntl(ends[0], F_SETFL, 0);
    return (exo_output_fd){.descriptor = ends[1], .patience = patience};
}

static void *
read_all(void *argument)
{
    char part[4096];
    size_t sum = 0;
    for (ssize_t n; (n = read(*(int *)argument, part, sizeof part)) > 0;)
        sum += (size_t)n;
    return (void *)sum;
}

Test(output, waits_for_its_reader, .timeout = 60)
{
    int reader;
    pthread_t thread;
    void *sum = NULL;
    exo_output_fd out = nonblocking_pipe(&reader, 30 * EXO_SECOND);
    cr_assert_eq(pthread_create(&thread, NULL, read_all, &reader), 0);
    cr_expect_eq(exo_output_write(&out, bytes, BYTES), BYTES);
    close(out.descriptor);
    pthread_join(thread, &sum);
    cr_expect_eq((size_t)sum, BYTES);
    close(reader);
}

Test(output, gives_up_a_reader_that_takes_nothing, .timeout = 60)
{
    int reader;
    signal(SIGPIPE, SIG_IGN);
    exo_output_fd out = nonblocking_pipe(&reader, 20 * EXO_MS);
    size_t written = exo_output_write(&out, bytes, BYTES);
    cr_expect_eq(errno, EAGAIN);
    cr_expect(written > 0 && written < BYTES);
    cr_expect(out.gave_up);
    out.patience = 3600 * EXO_SECOND; /* the next one does not wait */
    cr_expect_eq(exo_output_write(&out, bytes, 1), 0);
    cr_expect_eq(read(reader, (char[4096]){0}, 4096), 4096);
    cr_expect_eq(exo_output_write(&out, bytes, 1), 1, "it reads again");
    cr_expect_not(out.gave_up);
    close(reader);
    cr_expect_eq(exo_output_write(&out, bytes, 1), 0);
    cr_expect_eq(errno, EPIPE);
    close(out.descriptor);
}
