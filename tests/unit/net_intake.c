/* The intake alone, on plain connections: it reports the origin of each, and that a connection was
 * reset.
 *
 * Each test owns its listener. Read next: runtime/net/intake.h; net_descriptors.c, which tests the
 * intake through a net. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "net/intake.h"
#include "net/net_limits.h"

struct doorstep {
    int listener;
    struct sockaddr_in at;
};

static void
open_doorstep(struct doorstep *d)
{
    socklen_t size = sizeof d->at;
    d->at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    d->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(d->listener, (struct sockaddr *)&d->at, sizeof d->at), 0);
    exo_intake_begin(d);
    cr_assert_eq(listen(d->listener, 16), 0);
    exo_intake_end();
    cr_assert_eq(getsockname(d->listener, (struct sockaddr *)&d->at, &size), 0);
}

/* Waits until one of the events has come, or a minute. The kernel may deliver them late, even
 * within one process. */
static void
await_event(int fd, short events)
{
    struct pollfd waits = {.fd = fd, .events = events};
    cr_assert_eq(poll(&waits, 1, 60000), 1);
}

/* The listener does not block. */
static int
accept_next(const struct doorstep *d)
{
    await_event(d->listener, POLLIN);
    return accept4(d->listener, NULL, NULL, SOCK_CLOEXEC);
}

/* Connects and accepts a connection, and closes both ends. Returns the connection's port; *accepted
 * is the descriptor that accept4 gave. */
static in_port_t
come_and_go(const struct doorstep *d, int *accepted)
{
    struct sockaddr_in own;
    socklen_t size = sizeof own;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(fd, (const struct sockaddr *)&d->at, sizeof d->at), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&own, &size), 0);
    *accepted = accept_next(d);
    cr_assert_geq(*accepted, 0);
    /* frees the port at once */
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    close(fd);
    close(*accepted);
    return own.sin_port;
}

static bool
has_come_from(const struct doorstep *d, uint64_t *number, int fd, in_port_t port)
{
    struct sockaddr_storage from;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&from;
    return exo_intake_origin(d->listener, number, fd, &from) && from.ss_family == AF_INET &&
           v4->sin_addr.s_addr == htonl(INADDR_LOOPBACK) && v4->sin_port == port;
}

/* All of the connections had the same descriptor, and none is left when its origin is asked for. */
Test(intake, knows_where_those_came_from_who_have_gone)
{
    enum {
        COUNT = 20
    };
    struct doorstep d;
    in_port_t ports[COUNT];
    int fds[COUNT];
    uint64_t number = 0;
    open_doorstep(&d);
    for (int i = 0; i < COUNT; i++)
        ports[i] = come_and_go(&d, &fds[i]);
    for (int i = 0; i < COUNT; i++) {
        if (i % 5 != 4)
            cr_expect(has_come_from(&d, &number, fds[i], ports[i]), "number %d", i);
        else
            number++; /* reported, and not asked for */
    }
    cr_expect_eq(number, COUNT);
    struct sockaddr_storage from;
    cr_expect_not(exo_intake_origin(d.listener, &number, fds[0], &from), "there was no other");
    close(d.listener);
    number = 0;
    cr_expect_not(exo_intake_origin(d.listener, &number, fds[0], &from), "nobody listens");
}

/* It gives no connection the origin of another. */
Test(intake, forgets_the_oldest_origins_only)
{
    enum {
        COUNT = EXO_LIMIT_ORIGINS + 30
    };
    static in_port_t ports[COUNT];
    static int fds[COUNT];
    struct doorstep d;
    struct sockaddr_storage from;
    uint64_t number = 0;
    open_doorstep(&d);
    for (int i = 0; i < COUNT; i++)
        ports[i] = come_and_go(&d, &fds[i]);
    for (int i = 0; i < 30; i++)
        cr_expect_not(exo_intake_origin(d.listener, &number, fds[i], &from), "number %d", i);
    for (int i = 30; i < COUNT; i++)
        cr_expect(has_come_from(&d, &number, fds[i], ports[i]), "number %d", i);
    close(d.listener);
}

/* ZeroMQ ignores an error of send; the error of recv decides. */
Test(intake, a_reset_that_send_heard_of_is_one_for_recv)
{
    struct doorstep d;
    char byte = 'x';
    open_doorstep(&d);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&d.at, sizeof d.at), 0);
    int other = accept_next(&d);
    cr_assert_geq(other, 0);
    setsockopt(other, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    close(other);
    await_event(fd, POLLHUP);
    cr_assert_eq(send(fd, &byte, 1, MSG_NOSIGNAL), -1);
    cr_assert_eq(errno, ECONNRESET);
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(recv(fd, &byte, 1, 0), -1);
        cr_expect_eq(errno, ECONNRESET);
    }
    close(fd);
    /* The next connection with that descriptor ends in an orderly way. */
    int next = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(next, fd);
    cr_assert_eq(connect(next, (struct sockaddr *)&d.at, sizeof d.at), 0);
    close(accept_next(&d));
    cr_expect_eq(recv(next, &byte, 1, 0), 0);
    close(next);
    close(d.listener);
}

/* What ZeroMQ's thread does with a connection of which the net is about to close the socket. */
static void
expect_left(int fd, int other)
{
    char bytes[4] = "ab";
    int unread = -1;
    cr_assert_eq(send(other, bytes, 2, MSG_NOSIGNAL), 2);
    await_event(fd, POLLIN);
    cr_expect_eq(recv(fd, bytes, sizeof bytes, 0), -1);
    cr_expect_eq(errno, EAGAIN);
    cr_assert_eq(ioctl(fd, FIONREAD, &unread), 0);
    cr_expect_eq(unread, 0, "the kernel keeps what came, and will answer the close with a reset");
    cr_expect_eq(send(fd, bytes, 2, MSG_NOSIGNAL), 2);
    await_event(other, POLLIN);
    cr_expect_eq(recv(other, bytes, sizeof bytes, 0), 2, "what is owed does not leave");
    setsockopt(other, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    close(other);
    await_event(fd, POLLHUP);
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(recv(fd, bytes, sizeof bytes, 0), -1);
        cr_expect_eq(errno, EAGAIN, "it tells of the end: %s", strerror(errno));
    }
}

/* ZeroMQ would end the process: net_leave.c. */
Test(intake, tells_nothing_of_the_end_of_a_connection_that_is_left)
{
    struct doorstep d;
    open_doorstep(&d);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    connect(fd, (struct sockaddr *)&d.at, sizeof d.at);
    int other = accept_next(&d);
    exo_intake_leave(exo_intake_admit(fd, false));
    expect_left(fd, other);
    close(fd);
    close(d.listener);
}

/* Those of another net, and later ones with the same descriptor, are as before. */
Test(intake, leaves_all_strangers_of_a_net)
{
    struct doorstep d, e;
    char byte;
    int fds[2], others[2];
    struct doorstep *const at[] = {&d, &e};
    for (int i = 0; i < 2; i++) {
        open_doorstep(at[i]);
        others[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        cr_assert_eq(connect(others[i], (struct sockaddr *)&at[i]->at, sizeof at[i]->at), 0);
        fds[i] = accept_next(at[i]);
        cr_assert_geq(fds[i], 0);
    }
    exo_intake_leave_strangers(&d);
    expect_left(fds[0], others[0]);
    close(others[1]);
    cr_expect_eq(recv(fds[1], &byte, 1, 0), 0, "the other net's");
    close(fds[0]);
    int next = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (next != fds[0]) {
        cr_assert_eq(dup2(next, fds[0]), fds[0]);
        close(next);
    }
    next = fds[0];
    cr_assert_eq(connect(next, (struct sockaddr *)&d.at, sizeof d.at), 0);
    close(accept_next(&d));
    cr_expect_eq(recv(next, &byte, 1, 0), 0, "a later connection");
    close(next);
    close(fds[1]);
    close(d.listener);
    close(e.listener);
}
