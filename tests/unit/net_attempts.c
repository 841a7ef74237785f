/* Connecting with a key to something other than exogym: the attempt fails at once where the other
 * side shows what it is, and otherwise at its deadline.
 *
 * Each test owns its end and a plain listener. Read next: runtime/net/attempt.c. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "support/eventually.h"
#include "support/logged.h"
#include "support/net_end.h"

char net_end_ipc[128];
struct logged logged = LOGGED_NONE;

TestSuite(net, .init = net_end_setup, .fini = net_end_teardown);

/* How long zmq_connect takes: another service may answer, and ZeroMQ give the connection up, before
 * anything is sent. */
static useconds_t connect_us;

int
zmq_connect(void *socket, const char *endpoint)
{
    int (*next)(void *, const char *);
    *(void **)&next = dlsym(RTLD_NEXT, "zmq_connect");
    int result = next(socket, endpoint);
    usleep(connect_us);
    return result;
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
