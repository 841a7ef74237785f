/* Files, pipes and standard input, read once: see input.h. No state. */
#include "base/input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/memory.h>

enum {
    FIRST_ROOM = 1 << 14
};

static const char standard_input[] = "standard input";

const char *
exo_input_name(const char *path)
{
    return strcmp(path, "-") == 0 ? standard_input : path;
}

/* The descriptor that the path names, or -1. Opening such a path again would wait for another
 * writer. */
static int
own_descriptor(const char *path)
{
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (strcmp(path, "-") == 0 || strcmp(path, "/dev/stdin") == 0)
        return STDIN_FILENO;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        size_t length = strlen(folders[i]);
        char *end = NULL;
        if (strncmp(path, folders[i], length) != 0 || path[length] < '0' || path[length] > '9')
            continue;
        unsigned long number = strtoul(path + length, &end, 10);
        if (*end == '\0' && number <= INT16_MAX)
            return (int)number;
    }
    return -1;
}

bool
exo_input_is_unnamed(const char *path)
{
    return own_descriptor(path) >= 0 || strcmp(path, standard_input) == 0;
}

static exo_status
fail_read(const char *path, int number, exo_err *err)
{
    return exo_fail(err, EXO_IO, "cannot read '%s': %s", exo_input_name(path), strerror(number));
}

/* Waits until there are bytes or the end. *waiting: no process is known to have opened the named
 * pipe for writing. */
static exo_status
await_bytes(int fd, const char *path, bool *waiting, exo_time deadline, exo_err *err)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    const exo_clock *clock = exo_clock_real();
    for (;;) {
        exo_time left = deadline - exo_now(clock);
        int found = poll(&ready, 1,
                         !*waiting  ? -1
                         : left > 0 ? (int)((left + EXO_MS - 1) / EXO_MS)
                                    : 0);
        if (found > 0) {
            *waiting = false;
            return EXO_OK;
        }
        if (found < 0 && errno != EINTR)
            return fail_read(path, errno, err);
        if (found == 0)
            return exo_fail(err, EXO_TIMEOUT, "%s: is a pipe that nobody writes into",
                            exo_input_name(path));
    }
}

static exo_status
read_all(int fd, const char *path, bool named_pipe, size_t limit, exo_time patience, char **out,
         size_t *size, exo_err *err)
{
    bool waiting = named_pipe;
    exo_time deadline = exo_deadline(exo_clock_real(), patience);
    size_t room = FIRST_ROOM < limit + 1 ? FIRST_ROOM : limit + 1, used = 0;
    char *bytes = exo_calloc(room + 1, 1);
    exo_status st =
        bytes ? EXO_OK : exo_fail(err, EXO_NOMEM, "%s: out of memory", exo_input_name(path));
    while (st == EXO_OK) {
        if (waiting && (st = await_bytes(fd, path, &waiting, deadline, err)) != EXO_OK)
            break;
        ssize_t got = read(fd, bytes + used, room - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN) { /* the writer has not written yet */
            bool no = false;
            st = await_bytes(fd, path, &no, 0, err);
            continue;
        }
        if (got < 0)
            st = fail_read(path, errno, err);
        if (got <= 0)
            break;
        used += (size_t)got;
        if (used > limit)
            st = exo_fail(err, EXO_INVAL, "%s: larger than %zu bytes", exo_input_name(path), limit);
        if (st != EXO_OK || used < room)
            continue;
        /* room for one byte beyond the limit shows whether there are more */
        room = 2 * room < limit + 1 ? 2 * room : limit + 1;
        char *larger = exo_realloc(bytes, room + 1, 1);
        if (larger)
            bytes = larger;
        else
            st = exo_fail(err, EXO_NOMEM, "%s: out of memory", exo_input_name(path));
    }
    if (st != EXO_OK) {
        exo_free(bytes);
        return st;
    }
    bytes[used] = '\0';
    *out = bytes;
    *size = used;
    return EXO_OK;
}

exo_status
exo_input_read(const char *path, size_t limit, exo_time patience, char **out, size_t *size,
               exo_err *err)
{
    struct stat info;
    int own = own_descriptor(path);
    int fd = own >= 0 ? own : open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) {
        exo_status st = fail_read(path, errno, err);
        if (fd >= 0 && fd != own)
            close(fd);
        return st;
    }
    exo_status st = S_ISDIR(info.st_mode) ? fail_read(path, EISDIR, err)
                                          : read_all(fd, path, own < 0 && S_ISFIFO(info.st_mode),
                                                     limit, patience, out, size, err);
    if (fd != own)
        close(fd);
    return st;
}
