/* Output to lagging readers: see output.h. */
#include "programs/output.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

static exo_output_fd outputs[] = {
    {.descriptor = STDOUT_FILENO, .patience = EXO_OUTPUT_PATIENCE},
    {.descriptor = STDERR_FILENO, .patience = EXO_OUTPUT_PATIENCE},
};
static FILE *streams[sizeof outputs / sizeof *outputs]; /* that exo_output_open made */

/* Waits until the descriptor takes bytes. False: it takes none until `deadline`. */
static bool
await_reader(const exo_output_fd *output, exo_time deadline)
{
    struct pollfd writer = {.fd = output->descriptor, .events = POLLOUT};
    for (;;) {
        exo_time left = deadline - exo_now(exo_clock_real());
        if (output->gave_up || left <= 0)
            return false;
        int ready = poll(&writer, 1, (int)(left / EXO_MS) + 1);
        if (ready > 0 || (ready < 0 && errno != EINTR))
            return ready > 0;
    }
}

size_t
exo_output_write(exo_output_fd *output, const char *data, size_t size)
{
    size_t written = 0;
    exo_time deadline = exo_now(exo_clock_real()) + output->patience;
    while (written < size) {
        ssize_t n = write(output->descriptor, data + written, size - written);
        if (n > 0) {
            written += (size_t)n;
            output->gave_up = false;
            deadline = exo_now(exo_clock_real()) + output->patience;
        } else if (n < 0 && errno == EAGAIN) {
            if (!await_reader(output, deadline)) {
                output->gave_up = true;
                errno = EAGAIN;
                break;
            }
        } else if (n == 0 || errno != EINTR) {
            break;
        }
    }
    return written;
}

static ssize_t
write_stream(void *context, const char *data, size_t size)
{
    return (ssize_t)exo_output_write(context, data, size);
}

static FILE *
open_stream(exo_output_fd *output, int mode)
{
    FILE *stream = fopencookie(output, "w", (cookie_io_functions_t){.write = write_stream});
    if (stream && mode != _IOFBF)
        setvbuf(stream, NULL, mode, 0);
    return stream;
}

void
exo_output_open(void)
{
    streams[0] = open_stream(&outputs[0], isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF);
    streams[1] = open_stream(&outputs[1], _IONBF);
    stdout = streams[0] ? streams[0] : stdout;
    stderr = streams[1] ? streams[1] : stderr;
}

int
exo_output_descriptor(FILE *out)
{
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        if (out == streams[i])
            return outputs[i].descriptor;
    return fileno(out);
}
