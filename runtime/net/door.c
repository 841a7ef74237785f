/* Doors and bells; door.h has the contracts. No state, and nothing here waits. Of everything that
 * arrives, only the kernel's word is believed. */
#include "net/door.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* "exodoor1": the digit is the version of what is handed over */
#define MAGIC UINT64_C(0x31726f6f646f7865)

struct knock {
    uint64_t magic, token;
};

/* Room for the control data of a valid visit and for one descriptor more, so that too many are
 * noticed. */
union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE((EXO_DOOR_FILES + 1) * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
};

/* --- Doors ------------------------------------------------------------------------------------ */

bool
exo_door_path(const char *endpoint, char out[EXO_DOOR_PATH])
{
    static const char scheme[] = "ipc://";
    const char *path =
        strncmp(endpoint, scheme, sizeof scheme - 1) == 0 ? endpoint + sizeof scheme - 1 : "@";
    int length = snprintf(out, EXO_DOOR_PATH, "%s.door", path);
    if (path[0] != '@' && length > 0 && length < EXO_DOOR_PATH)
        return true;
    out[0] = 0;
    return false;
}

static struct sockaddr_un
address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    return address;
}

exo_status
exo_door_open(const char *path, int *out, exo_err *err)
{
    const int on = 1;
    struct sockaddr_un address = address_of(path);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0)
        unlink(path);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
        bind(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        exo_status st = exo_fail(err, EXO_IO, "%s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return st;
    }
    *out = fd;
    return EXO_OK;
}

exo_status
exo_door_knock(const char *path, uint64_t token, const int files[EXO_DOOR_FILES], exo_err *err)
{
    struct knock knock = {.magic = MAGIC, .token = token};
    struct sockaddr_un address = address_of(path);
    union control control = {0};
    struct iovec bytes = {.iov_base = &knock, .iov_len = sizeof knock};
    struct msghdr message = {.msg_name = &address,
                             .msg_namelen = sizeof address,
                             .msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE(EXO_DOOR_FILES * sizeof(int))};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(EXO_DOOR_FILES * sizeof(int));
    memcpy(CMSG_DATA(header), files, EXO_DOOR_FILES * sizeof(int));
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ssize_t sent = fd >= 0 ? sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) : -1;
    int number = errno;
    if (fd >= 0)
        close(fd);
    if (sent == (ssize_t)sizeof knock)
        return EXO_OK;
    return exo_fail(err,
                    number == EAGAIN || number == EINTR          ? EXO_FULL
                    : number == ECONNREFUSED || number == ENOENT ? EXO_PEER_LOST
                                                                 : EXO_IO,
                    "%s: %s", path, strerror(number));
}

/* Takes every descriptor of a message, also of one that is discarded: those beyond `cap` are
 * closed. Gives the number of all. */
static size_t
take_files(const struct cmsghdr *header, int *files, size_t count, size_t cap)
{
    size_t came = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < came; i++) {
        int fd;
        memcpy(&fd, CMSG_DATA((struct cmsghdr *)(uintptr_t)header) + i * sizeof fd, sizeof fd);
        if (count < cap)
            files[count] = fd;
        else
            close(fd);
        count++;
    }
    return count;
}

bool
exo_door_answer(int door, exo_door_visit *out)
{
    struct knock knock = {0};
    union control control;
    struct iovec bytes = {.iov_base = &knock, .iov_len = sizeof knock};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct ucred who = {.uid = (uid_t)-1};
    size_t count = 0;
    *out = (exo_door_visit){0};
    for (size_t i = 0; i < EXO_DOOR_FILES; i++)
        out->files[i] = -1;
    ssize_t got = recvmsg(door, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0)
        return errno == EINTR;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&message); h; h = CMSG_NXTHDR(&message, h)) {
        if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS)
            count = take_files(h, out->files, count, EXO_DOOR_FILES);
        else if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_CREDENTIALS)
            memcpy(&who, CMSG_DATA(h), sizeof who);
    }
    bool good = got == (ssize_t)sizeof knock &&
                (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 && knock.magic == MAGIC &&
                count == EXO_DOOR_FILES && who.uid == geteuid() && who.pid > 0;
    if (!good) {
        exo_door_visit_release(out);
        return true;
    }
    out->token = knock.token;
    out->pid = (uint32_t)who.pid;
    return true;
}

void
exo_door_visit_release(exo_door_visit *visit)
{
    for (size_t i = 0; i < EXO_DOOR_FILES; i++) {
        if (visit->files[i] >= 0)
            close(visit->files[i]);
        visit->files[i] = -1;
    }
}

/* --- Bells ------------------------------------------------------------------------------------ */

bool
exo_bell_new(int ends[2])
{
    const int on = 1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return false;
    /* without it, exo_bell_heard cannot tell which process rang */
    setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    return true;
}

void
exo_bell_ring(int bell)
{
    ssize_t sent = send(bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)sent; /* a bell whose buffer is full has been rung */
}

uint32_t
exo_bell_heard(int bell)
{
    const int off = 0;
    char byte;
    union control control;
    struct iovec bytes = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct ucred who = {.uid = (uid_t)-1};
    ssize_t got = recvmsg(bell, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    for (struct cmsghdr *h = got > 0 ? CMSG_FIRSTHDR(&message) : NULL; h;
         h = CMSG_NXTHDR(&message, h)) {
        if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS)
            take_files(h, NULL, 0, 0);
        else if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_CREDENTIALS)
            memcpy(&who, CMSG_DATA(h), sizeof who);
    }
    setsockopt(bell, SOL_SOCKET, SO_PASSCRED, &off, sizeof off);
    return got > 0 && who.uid == geteuid() ? (uint32_t)who.pid : 0;
}

bool
exo_bell_quiet(int bell)
{
    char rings[64];
    ssize_t got;
    do
        got = recv(bell, rings, sizeof rings, MSG_DONTWAIT);
    while (got == (ssize_t)sizeof rings);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}
