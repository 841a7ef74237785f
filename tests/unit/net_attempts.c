/* Connecting with a key to something other than exogym: the attempt fails at once where the other
 * side shows what it is, and otherwise at its deadline.
 *
 * Each test owns its end and a plain listener. Read next: runtime/net/attempt.c. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <zmq.h>

#include "support/eventually.h"
#include "support/logged.h"
#include "support/net_end.h"

char net_end_ipc[128];
struct logged logged = LOGGED_NONE;

TestSuite(net, .init = net_end_setup, .fini = net_end_teardown);

/* Whether a signal interrupts every other look for a frame, and every other call that sets up a
 * connection. */
static atomic_bool interrupts;

static bool
is_interrupted(atomic_uint *calls)
{
    if (!atomic_load(&interrupts) || atomic_fetch_add(calls, 1) % 2 == 1)
        return false;
    errno = EINTR;
    return true;
}

/* How long zmq_connect takes: another service may answer, and ZeroMQ give the connection up, before
 * anything is sent. */
static useconds_t connect_us;

int
zmq_connect(void *socket, const char *endpoint)
{
    static atomic_uint calls;
    int (*next)(void *, const char *);
    *(void **)&next = dlsym(RTLD_NEXT, "zmq_connect");
    if (is_interrupted(&calls))
        return -1;
    int result = next(socket, endpoint);
    usleep(connect_us);
    return result;
}

int
zmq_socket_monitor(void *socket, const char *endpoint, int events)
{
    static atomic_uint calls;
    int (*next)(void *, const char *, int);
    *(void **)&next = dlsym(RTLD_NEXT, "zmq_socket_monitor");
    return endpoint && is_interrupted(&calls) ? -1 : next(socket, endpoint, events);
}

int
zmq_recv(void *socket, void *data, size_t size, int flags)
{
    static atomic_uint calls;
    int (*next)(void *, void *, size_t, int);
    *(void **)&next = dlsym(RTLD_NEXT, "zmq_recv");
    if ((flags & ZMQ_DONTWAIT) && is_interrupted(&calls))
        return -1;
    return next(socket, data, size, flags);
}

/* A listener that accepts connections on a port. */
struct service {
    int listener;
    /* sent after the first bytes; NULL: resets the connection; "": sends nothing */
    const char *answer;
    char endpoint[64];
    pthread_t thread;
};

static void *
serve(void *argument)
{
    struct service *s = argument;
    char data[512];
    int fd, silent[64];
    size_t count = 0;
    while ((fd = accept(s->listener, NULL, NULL)) >= 0) {
        if (!s->answer) {
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1},
                       sizeof(struct linger));
        } else if (*s->answer) {
            ssize_t got = recv(fd, data, sizeof data, 0);
            got = got > 0 ? send(fd, s->answer, strlen(s->answer), MSG_NOSIGNAL) : got;
            /* With unread bytes, close would reset the connection, which is no answer. */
            shutdown(fd, SHUT_WR);
            while (got > 0)
                got = recv(fd, data, sizeof data, 0);
        } else if (count < 64) {
            silent[count++] = fd;
            continue;
        }
        close(fd);
    }
    while (count > 0)
        close(silent[--count]);
    return NULL;
}

static void
open_service(struct service *s)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(s->listener, (struct sockaddr *)&at, sizeof at), 0);
    cr_assert_eq(listen(s->listener, 16), 0);
    cr_assert_eq(getsockname(s->listener, (struct sockaddr *)&at, &size), 0);
    snprintf(s->endpoint, sizeof s->endpoint, "tcp://127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
    cr_assert_eq(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void
close_service(struct service *s)
{
    shutdown(s->listener, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->listener);
}

/* Connects to a service with a key; the service has none. */
static exo_status
meet(const char *answer, exo_time deadline, exo_err *err)
{
    struct service service = {.answer = answer};
    net_end client = {0};
    exo_keys own, other;
    exo_peer *peer = NULL;
    cr_assert_eq(exo_keys_generate(&own, NULL), EXO_OK);
    cr_assert_eq(exo_keys_generate(&other, NULL), EXO_OK);
    open_service(&service);
    net_end_open(&client, NULL, &(exo_net_opts){.keys = &own});
    exo_status st =
        exo_net_connect(client.net, service.endpoint, other.public_key, deadline, &peer, err);
    net_end_close(&client);
    close_service(&service);
    cr_expect_null(peer);
    return st;
}

static void
expect_another_service(void)
{
    static const char *const answers[] = {"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
                                          "SSH-2.0-OpenSSH_9.2\r\n", "220 mail ESMTP\r\n", "\n"};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        exo_err err = {0};
        cr_expect_eq(meet(answers[i], in_ms(60000), &err), EXO_UNSUPPORTED, "%s", err.text);
        cr_expect_not_null(strstr(err.text, "is no process of exogym"), "%s", err.text);
    }
}

Test(net, another_service_is_found_at_once)
{
    expect_another_service();
}

Test(net, another_service_is_found_before_anything_is_sent)
{
    connect_us = 300000;
    expect_another_service();
}

/* The descriptor of a monitor tells of an event once. */
Test(net, another_service_is_found_although_signals_interrupt_that)
{
    atomic_store(&interrupts, true);
    expect_another_service();
}

Test(net, what_says_nothing_is_named_at_the_deadline)
{
    bool named = false;
    for (int ms = 300; !named && ms < 60000; ms *= 2) { /* connecting may take most of the time */
        exo_err err = {0};
        cr_assert_eq(meet("", in_ms(ms), &err), EXO_TIMEOUT, "%s", err.text);
        named = strstr(err.text, "nothing is said") != NULL;
    }
    cr_expect(named);
}

/* A crowded listener also resets connections, and may have room later. */
Test(net, a_reset_is_no_answer)
{
    exo_err err = {0};
    cr_expect_eq(meet(NULL, in_ms(1500), &err), EXO_TIMEOUT, "%s", err.text);
}

/* The host is there: nothing listens at the port. */
Test(net, what_refuses_a_connection_is_no_firewall)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int closed = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char endpoint[64];
    bool told = false;
    cr_assert_eq(bind(closed, (struct sockaddr *)&address, size), 0);
    cr_assert_eq(getsockname(closed, (struct sockaddr *)&address, &size), 0);
    snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%u", ntohs(address.sin_port));
    for (int ms = 300; !told && ms < 60000; ms *= 2) { /* to ask may take most of the time */
        net_end client = {0};
        exo_peer *peer = NULL;
        exo_err err = {0};
        net_end_open(&client, NULL, &(exo_net_opts){0});
        cr_expect_eq(exo_net_connect(client.net, endpoint, NULL, in_ms(ms), &peer, &err),
                     EXO_TIMEOUT);
        cr_expect(strstr(err.text, "does not answer"), "%s", err.text);
        told = !strstr(err.text, "firewall");
        net_end_close(&client);
    }
    cr_expect(told);
    close(closed);
}

/* A full queue of a listener drops what asks for a connection, as a firewall does. */
Test(net, what_lets_no_connection_through_may_be_a_firewall)
{
    enum {
        FILLERS = 4
    };
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int fillers[FILLERS], listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char endpoint[64];
    exo_keys own, other;
    net_end client = {0};
    exo_peer *peer = NULL;
    exo_err err = {0};
    cr_assert_eq(bind(listener, (struct sockaddr *)&address, size), 0);
    cr_assert_eq(listen(listener, 0), 0);
    cr_assert_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    for (int i = 0; i < FILLERS; i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        connect(fillers[i], (struct sockaddr *)&address, size);
    }
    snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%u", ntohs(address.sin_port));
    cr_assert_eq(exo_keys_generate(&own, NULL), EXO_OK);
    cr_assert_eq(exo_keys_generate(&other, NULL), EXO_OK);
    net_end_open(&client, NULL, &(exo_net_opts){.keys = &own});
    cr_expect_eq(exo_net_connect(client.net, endpoint, other.public_key, in_ms(500), &peer, &err),
                 EXO_TIMEOUT);
    cr_expect(strstr(err.text, "does not answer, or does not accept this node's key, or a firewall "
                               "is between"),
              "%s", err.text);
    net_end_close(&client);
    net_end_open(&client, NULL, &(exo_net_opts){0});
    cr_expect_eq(exo_net_connect(client.net, endpoint, NULL, in_ms(500), &peer, &err), EXO_TIMEOUT);
    cr_expect(strstr(err.text, "does not answer: nothing there takes or refuses a connection: the "
                               "host is down, or a firewall is between"),
              "%s", err.text);
    net_end_close(&client);
    for (int i = 0; i < FILLERS; i++)
        close(fillers[i]);
    close(listener);
}
