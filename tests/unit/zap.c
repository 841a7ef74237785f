/* The ZAP handler seen by peers: its answers to honest and other peers with real sockets, and its
 * end.
 *
 * Each test owns the node of zap_node.h, or a context of its own. Read next: runtime/net/zap.c;
 * zap_requests.c beside this file. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <zmq.h>

#include "base/memory_fault.h"
#include "support/key_folder.h"
#include "support/logged.h"
#include "support/zap_node.h"

struct zap_node zap_node;
char key_folder[64];
struct logged logged = LOGGED_NONE;

enum {
    QUIET_MS = 300 /* the wait for a message that must not arrive */
};

static void
expect_logged(const char *text)
{
    exo_time end = exo_deadline(exo_clock_real(), ZAP_NODE_WAIT_MS * EXO_MS);
    while (!logged_has(text) && exo_now(exo_clock_real()) < end)
        usleep(1000);
    cr_expect(logged_has(text), "'%s' is not in the log:\n%s", text, logged_text());
}

static void
expect_refused(void *peer, const char *reason)
{
    cr_assert_eq(zmq_connect(peer, zap_node.endpoint), 0);
    cr_expect_not(zap_node_hears(peer, QUIET_MS, NULL), "a peer that must be refused is heard");
    expect_logged(reason);
    expect_logged("peer=127.0.0.1");
    zmq_close(peer);
    zap_node_expect_honest();
}

TestSuite(zap, .init = zap_node_open, .fini = zap_node_close);

Test(zap, lets_in_who_is_in_the_list)
{
    zap_node_expect_honest();
    cr_expect_eq(exo_zap_accepted(zap_node.zap), 1);
    cr_expect_eq(exo_zap_refused(zap_node.zap), 0, "%s", logged_text());
}

Test(zap, refuses_a_key_that_is_not_in_the_list)
{
    exo_keys stranger = key_pair_new();
    char start[32];
    expect_refused(zap_node_new_curve_peer(&stranger, zap_node.keys.public_key),
                   "key is not authorized");
    snprintf(start, sizeof start, "key=%.8s ", stranger.public_key);
    cr_expect(logged_has(start), "%s", logged_text());
    cr_expect_null(strstr(logged_text(), stranger.public_key), "the log holds the whole key");
}

/* The public key of an honest node alone does not admit a peer: libzmq's client must prove that it
 * has the secret key. */
Test(zap, refuses_a_stolen_public_key)
{
    exo_keys thief = key_pair_new();
    memcpy(thief.public_key, zap_node.honest.public_key, sizeof thief.public_key);
    void *peer = zap_node_new_curve_peer(&thief, zap_node.keys.public_key);
    expect_refused(peer, "event=refused");
    cr_expect_eq(exo_zap_accepted(zap_node.zap), 1, "only the honest peer");
}

/* Both sides see that their mechanisms differ, and either may end the connection first. */
Test(zap, refuses_a_peer_without_key)
{
    expect_refused(zap_node_new_peer(), "event=refused");
}

Test(zap, refuses_a_password)
{
    void *peer = zap_node_new_peer();
    cr_assert_eq(zmq_setsockopt(peer, ZMQ_PLAIN_USERNAME, "admin", 5), 0);
    cr_assert_eq(zmq_setsockopt(peer, ZMQ_PLAIN_PASSWORD, "admin", 5), 0);
    expect_refused(peer, "event=refused");
}

Test(zap, refuses_a_peer_that_expects_another_node)
{
    exo_keys other = key_pair_new();
    expect_refused(zap_node_new_curve_peer(&zap_node.honest, other.public_key),
                   "expects another key of this node");
}

static int
plain_connect(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((uint16_t)atoi(strrchr(zap_node.endpoint, ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    struct timeval wait = {.tv_sec = ZAP_NODE_WAIT_MS / 1000};
    cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait), 0);
    return fd;
}

/* Sends bytes on a plain connection, and reads until the node ends it. */
static void
send_raw(const void *bytes, size_t size, bool half_close)
{
    char buffer[256];
    int fd = plain_connect();
    cr_assert_eq(send(fd, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
    if (half_close)
        shutdown(fd, SHUT_WR);
    while (recv(fd, buffer, sizeof buffer, 0) > 0)
        ;
    close(fd);
}

Test(zap, survives_garbage)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: node\r\n\r\n";
    static const uint8_t greeting[64] = {0xff, 0, 0, 0,   0,   0,   0,   0,  1,
                                         0x7f, 3, 1, 'C', 'U', 'R', 'V', 'E'};
    uint8_t bytes[4096];
    zmq_pollitem_t item = {.socket = zap_node.server, .events = ZMQ_POLLIN};
    unsigned seed = 1;
    size_t sent = 1;
    send_raw(http, sizeof http - 1, true);
    for (int i = 0; i < 20; i++) {
        for (size_t b = 0; b < sizeof bytes; b++)
            bytes[b] = (uint8_t)((seed = seed * 1103515245u + 12345u) >> 16);
        send_raw(bytes, sizeof bytes, true);
        sent += 2;
        memcpy(bytes, greeting, sizeof greeting); /* the right greeting, then garbage */
        send_raw(bytes, sizeof bytes, true);
    }
    for (size_t cut = 0; cut <= sizeof greeting; cut += 7, sent++)
        send_raw(greeting, cut, true);
    expect_logged("does not speak the protocol");
    expect_logged("peer=127.0.0.1:");
    cr_expect_eq(zmq_poll(&item, 1, 0), 0, "garbage reaches the node");
    zap_node_expect_honest();
    exo_time end = exo_deadline(exo_clock_real(), ZAP_NODE_WAIT_MS * EXO_MS);
    while (exo_zap_refused(zap_node.zap) < sent && exo_now(exo_clock_real()) < end)
        usleep(1000);
    cr_expect_eq(exo_zap_refused(zap_node.zap), sent, "%zu of %zu\n%s",
                 (size_t)exo_zap_refused(zap_node.zap), sent, logged_text());
    /* The clock stands still: only the first ten lines are logged. */
    cr_expect_leq(logged_lines(), 10, "%s", logged_text());
    /* Garbage does not hide the refusal of a peer with a key. */
    exo_keys stranger = key_pair_new();
    expect_refused(zap_node_new_curve_peer(&stranger, zap_node.keys.public_key),
                   "key is not authorized");
}

/* Peers that connect and send nothing do not keep others out. */
Test(zap, is_not_held_up_by_silence)
{
    int silent[50];
    for (size_t i = 0; i < 50; i++)
        silent[i] = plain_connect();
    zap_node_expect_honest();
    for (size_t i = 0; i < 50; i++)
        close(silent[i]);
    expect_logged("gone during the handshake");
}

Test(zap, accepts_a_key_that_is_added_while_it_runs)
{
    exo_keys late = key_pair_new();
    char user[EXO_KEY_NAME] = "";
    void *peer = zap_node_new_curve_peer(&late, zap_node.keys.public_key);
    cr_assert_eq(zmq_connect(peer, zap_node.endpoint), 0);
    expect_logged("key is not authorized");
    zmq_close(peer); /* libzmq does not retry after status 400: a refused peer must connect again */
    key_folder_authorize("late", &late);
    peer = zap_node_new_curve_peer(&late, zap_node.keys.public_key);
    cr_assert_eq(zmq_connect(peer, zap_node.endpoint), 0);
    cr_expect(zap_node_hears(peer, ZAP_NODE_WAIT_MS, user), "a key that was added is not accepted");
    cr_expect_str_eq(user, "late");
    zmq_close(peer);
    /* After its removal the key is refused again. */
    cr_assert_eq(unlink(key_folder_path("late.key")), 0);
    expect_refused(zap_node_new_curve_peer(&late, zap_node.keys.public_key),
                   "key is not authorized");
    /* A bad file in the folder does not shut out keys that were accepted. */
    key_folder_put("wrong.key", 0644, "no key\n");
    zap_node_expect_honest();
    expect_logged("event=keys_not_read");
}

/* A node without a handler refuses everybody, whether the handler is closed or never was open. */
Test(zap, is_missed_by_nobody_who_gets_in)
{
    exo_err err = {0};
    exo_zap_unwatch(zap_node.zap, zap_node.server);
    exo_zap_close(&zap_node.zap);
    void *peer = zap_node_new_curve_peer(&zap_node.honest, zap_node.keys.public_key);
    cr_assert_eq(zmq_connect(peer, zap_node.endpoint), 0);
    cr_expect_not(zap_node_hears(peer, QUIET_MS, NULL), "without a handler, everybody is heard");
    /* A new handler accepts peers again. */
    cr_assert_eq(exo_zap_open(&zap_node.zap, zap_node.context,
                              &(exo_zap_opts){.allow = zap_node.allow}, &err),
                 EXO_OK, "%s", err.text);
    zmq_close(peer);
    zap_node_expect_honest();
}

Test(zap, is_one_a_context)
{
    exo_zap *second = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_zap_open(&second, zap_node.context, &(exo_zap_opts){0}, &err), EXO_EXISTS,
                 "%s", err.text);
    cr_expect_null(second);
    zap_node_expect_honest();
}

/* --- Ends ------------------------------------------------------------------------------------- */

static void *
terminate(void *context)
{
    zmq_ctx_term(context);
    return NULL;
}

/* A context that ends before the handler ends the handler, and neither waits for the other
 * forever. */
Test(zap_ends, with_its_context)
{
    void *context = zmq_ctx_new();
    exo_zap *zap = NULL;
    pthread_t thread;
    cr_assert_eq(exo_zap_open(&zap, context, &(exo_zap_opts){0}, NULL), EXO_OK);
    cr_assert_eq(pthread_create(&thread, NULL, terminate, context), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    exo_zap_close(&zap);
    exo_zap_close(&zap);
    exo_zap_close(NULL);
}

/* Neither sockets that were closed just before nor open sockets delay the end. */
Test(zap_ends, again_and_again)
{
    for (int i = 0; i < 50; i++) {
        void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_ROUTER);
        exo_zap *zap = NULL;
        exo_keys keys = key_pair_new();
        cr_assert_eq(exo_zap_open(&zap, context, &(exo_zap_opts){0}, NULL), EXO_OK);
        cr_assert_eq(exo_curve_server(socket, &keys, NULL), EXO_OK);
        cr_assert_eq(exo_zap_watch(zap, socket, NULL), EXO_OK);
        cr_assert_eq(zmq_bind(socket, "tcp://127.0.0.1:*"), 0);
        if (i % 2) {
            exo_zap_unwatch(zap, socket);
            exo_zap_close(&zap);
            zmq_close(socket);
        } else {
            zmq_close(socket);
            exo_zap_close(&zap);
        }
        zmq_ctx_term(context);
    }
}

/* ZeroMQ ends closed sockets in a thread of its own, later. */
Test(zap_ends, before_another_begins)
{
    void *context = zmq_ctx_new();
    for (int i = 0; i < 500; i++) {
        exo_zap *zap = NULL;
        exo_err err = {0};
        cr_assert_eq(exo_zap_open(&zap, context, &(exo_zap_opts){0}, &err), EXO_OK, "%d: %s", i,
                     err.text);
        exo_zap_close(&zap);
    }
    zmq_ctx_term(context);
}

Test(zap_ends, after_a_failed_start)
{
    void *context = zmq_ctx_new();
    exo_zap *zap = NULL;
    exo_null_domain domain = {"local", EXO_NULL_SAME_USER};
    exo_zap_opts opts = {.null_domains = &domain, .num_null_domains = 1};
    for (uint64_t n = 1; n <= 2; n++) {
        exo_memory_fail_at(n);
        cr_expect_eq(exo_zap_open(&zap, context, &opts, NULL), EXO_NOMEM);
        cr_expect_null(zap);
    }
    domain.name = "";
    cr_expect_eq(exo_zap_open(&zap, context, &opts, NULL), EXO_INVAL);
    domain.name = "a domain whose name is far too long for what a request may carry in it";
    cr_expect_eq(exo_zap_open(&zap, context, &opts, NULL), EXO_INVAL);
    domain.name = "local";
    cr_expect_eq(exo_zap_open(&zap, context, &opts, NULL), EXO_OK);
    exo_zap_close(&zap);
    zmq_ctx_term(context);
}
