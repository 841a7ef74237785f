/* Nets against each other: messages arrive once and in order, and everything that was opened is
 * closed.
 *
 * Each test owns its ends. Read next: net_end.h; then net_strangers.c, net_processes.c,
 * net_rings.c, net_drive.c. */
#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <exogym/memory.h>

#include "net/net_limits.h"
#include "support/eventually.h"
#include "support/logged.h"
#include "support/net_end.h"

char net_end_ipc[128];
struct logged logged = LOGGED_NONE;

TestSuite(net, .init = net_end_setup, .fini = net_end_teardown);

/* --- Messages arrive once and in order -------------------------------------------------------- */

static void
send_numbered(net_end *from, exo_peer *peer, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        exo_payload payload = net_end_numbered(i);
        exo_status st = net_end_call(from, peer, "count", &payload);
        if (st == EXO_FULL) {
            i--;
            usleep(500);
        } else {
            cr_assert_eq(st, EXO_OK);
        }
    }
    exo_net_flush(from->net);
}

Test(net, brings_100000_messages_whole_and_in_order)
{
    for (int i = 0; i < 2; i++) {
        net_end server = {0}, client = {0};
        net_end_open(&server, net_end_endpoint(i), NULL);
        net_end_open(&client, NULL, NULL);
        exo_peer *peer = net_end_connect(&client, &server);
        cr_expect(exo_peer_is_near(peer) && exo_peer_may_share(peer));
        cr_expect_eq(exo_peer_node(peer), exo_net_node(server.net));
        send_numbered(&client, peer, 100000);
        EVENTUALLY(server.calls == 100000);
        cr_expect_eq(server.opened, 1);
        exo_peer_drop(&peer);
        net_end_close(&client);
        EVENTUALLY(server.lost == 1);
        cr_expect_eq(client.lost, 1);
        net_end_close(&server);
        cr_expect_eq(server.lost, 1);
    }
}

static void
ignore_signal(int number)
{
    (void)number;
}

/* A signal that interrupts ZeroMQ does not break a connection. */
Test(net, is_not_disturbed_by_signals)
{
    net_end server = {0}, client = {0};
    net_end_open(&server, net_end_ipc, NULL);
    net_end_open(&client, NULL, NULL);
    exo_peer *peer = net_end_connect(&client, &server);
    struct sigaction action = {.sa_handler = ignore_signal};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 50}, {0, 50}}, NULL);
    send_numbered(&client, peer, 20000);
    EVENTUALLY(server.calls == 20000);
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    exo_peer_drop(&peer);
    net_end_close(&client);
    net_end_close(&server);
}

static atomic_uint releases;

static void
count_release(void *owner)
{
    releases++;
    exo_free(owner);
}

static exo_payload
large(size_t size)
{
    void *data = exo_calloc(1, size);
    return (exo_payload){.data = data, .size = size, .release = count_release, .owner = data};
}

Test(net, releases_each_payload_once)
{
    char method[2 * EXO_WIRE_NAME] = "";
    for (int i = 0; i < 2; i++) {
        net_end server = {0}, client = {0};
        unsigned sent = 0;
        releases = 0;
        net_end_open(&server, net_end_endpoint(i), NULL);
        net_end_open(&client, NULL, NULL);
        exo_peer *peer = net_end_connect(&client, &server);
        for (; sent < 40; sent++) {
            exo_payload payload = large(sent % 2 ? 1000000 : 1000);
            cr_expect_eq(net_end_call(&client, peer, "add", &payload), EXO_OK);
            cr_expect_null(payload.data);
        }
        EVENTUALLY(server.calls == sent && releases == sent);
        memset(method, 'm', sizeof method - 1); /* the payload of a refused call is released too */
        exo_payload payload = large(1000000);
        cr_expect_eq(net_end_call(&client, peer, method, &payload), EXO_INVAL);
        cr_expect_eq(releases, ++sent);
        exo_peer_lose(client.net, peer, "a test");
        payload = large(1000000);
        cr_expect_eq(net_end_call(&client, peer, "add", &payload), EXO_PEER_LOST);
        cr_expect_eq(releases, ++sent);
        EVENTUALLY(client.lost == 1 && server.lost == 1);
        cr_expect_str_eq(client.cause, "a test");
        cr_expect_str_eq(server.cause, "a test", "the other end hears why");
        exo_peer_drop(&peer);
        net_end_close(&client);
        net_end_close(&server);
        cr_expect_eq(releases, sent);
    }
}

/* Messages that wait because the receiver is behind go out before later messages, even before large
 * ones. */
Test(net, keeps_the_order_of_what_waits)
{
    for (int i = 0; i < 2; i++) {
        net_end server = {0}, client = {0};
        net_end_open(&server, net_end_endpoint(i), NULL);
        net_end_open(&client, NULL, NULL);
        exo_peer *peer = net_end_connect(&client, &server);
        exo_payload large = net_end_zeros(4 * EXO_LIMIT_WINDOW);
        cr_assert_eq(net_end_call(&client, peer, "add", &large), EXO_OK);
        send_numbered(&client, peer, 3000);
        EVENTUALLY(server.calls == 3001);
        cr_expect_eq(server.lost, 0);
        exo_peer_drop(&peer);
        net_end_close(&client);
        net_end_close(&server);
    }
}

/* --- Opening and closing ---------------------------------------------------------------------- */

Test(net, refuses_a_name_that_it_could_not_say)
{
    char name[2 * EXO_WIRE_NAME] = "", address[2 * EXO_WIRE_NAME] = "ipc://";
    const char *const addresses[] = {address};
    exo_net *net = NULL;
    exo_err err = {0};
    memset(name, 'n', sizeof name - 1);
    memset(address + 6, 'e', sizeof address - 7);
    cr_expect_eq(
        exo_net_open(&net, &(exo_net_opts){.name = name, .handler = &net_end_handler}, &err),
        EXO_INVAL);
    cr_expect_eq(
        exo_net_open(
            &net, &(exo_net_opts){.name = "n", .cluster = name, .handler = &net_end_handler}, &err),
        EXO_INVAL);
    cr_expect_eq(exo_net_open(&net,
                              &(exo_net_opts){.name = "n",
                                              .endpoints = addresses,
                                              .num_endpoints = 1,
                                              .handler = &net_end_handler},
                              &err),
                 EXO_INVAL);
    cr_expect_null(net);
}

/* A name in place of an address is taken for that of an interface. */
Test(net, says_what_it_can_listen_on)
{
    static const char *const name[] = {"tcp://worker.example:0"};
    exo_net *net = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_net_open(&net,
                              &(exo_net_opts){.name = "n",
                                              .endpoints = name,
                                              .num_endpoints = 1,
                                              .handler = &net_end_handler},
                              &err),
                 EXO_INVAL);
    cr_expect(strstr(err.text, "cannot listen on tcp://worker.example:0: this host has no such "
                               "interface: give an address of its own, or 0.0.0.0"),
              "%s", err.text);
    cr_expect_null(net);
}

static bool
never(void *unused)
{
    (void)unused;
    return false;
}

Test(net, reads_nothing_before_it_is_started)
{
    for (int i = 0; i < 2; i++) {
        net_end server = {0}, client = {0}, unused = {0};
        exo_peer *peer = NULL;
        net_end_open(&server, net_end_endpoint(i), &(exo_net_opts){.held = true});
        net_end_open(&client, NULL, NULL);
        cr_expect_eq(exo_net_connect(client.net, exo_net_endpoint(server.net, 0), NULL,
                                     exo_deadline(exo_clock_real(), 50 * EXO_MS), &peer, NULL),
                     EXO_TIMEOUT, "it is bound, and does not answer");
        cr_expect_not(exo_net_drive(server.net, never, NULL,
                                    exo_deadline(exo_clock_real(), 20 * EXO_SECOND)));
        cr_expect_eq(server.opened, 0);
        cr_assert_eq(exo_net_start(server.net, NULL), EXO_OK);
        peer = net_end_connect(&client, &server);
        exo_peer_drop(&peer);
        net_end_close(&client);
        net_end_close(&server);
        net_end_open(&unused, net_end_endpoint(i), &(exo_net_opts){.held = true});
        net_end_close(&unused); /* closed without a start */
    }
}

static size_t
open_descriptors(void)
{
    size_t count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

/* A net with keys connects only to peers whose key it knows. */
Test(net, with_keys_talks_to_nobody_unknown)
{
    static net_end server, client;
    exo_keys keys;
    exo_peer *none = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_keys_generate(&keys, &err), EXO_OK, "%s", err.text);
    net_end_open(&server, net_end_endpoint(1), NULL);
    net_end_open(&client, NULL, &(exo_net_opts){.keys = &keys});
    cr_expect_eq(exo_net_connect(client.net, exo_net_endpoint(server.net, 0), NULL, in_ms(60000),
                                 &none, &err),
                 EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "its key is not known"), "%s", err.text);
    cr_expect_null(none);
    net_end_close(&client);
    net_end_close(&server);
    cr_expect_eq(server.opened, 0);
}

Test(net, keeps_no_descriptor)
{
    size_t before = open_descriptors();
    for (int i = 0; i < 20; i++) {
        net_end server = {0}, client = {0};
        exo_peer *none = NULL;
        net_end_open(&server, net_end_endpoint(i % 2), NULL);
        net_end_open(&client, NULL, NULL);
        exo_peer *first = net_end_connect(&client, &server),
                 *second = net_end_connect(&client, &server);
        exo_peer_lose(client.net, first, "enough");
        EVENTUALLY(server.lost == 1);
        cr_expect_eq(
            exo_net_connect(client.net, "ipc:///nowhere/at/all", NULL, in_ms(1), &none, NULL),
            EXO_TIMEOUT);
        cr_expect_eq(exo_net_connect(client.net, "nonsense", NULL, in_ms(1), &none, NULL),
                     EXO_INVAL);
        exo_peer_drop(&first);
        exo_peer_drop(&second);
        net_end_close(&client);
        net_end_close(&server);
    }
    EVENTUALLY(open_descriptors() == before);
}
