/* Turns of peers at a net: a peer that sends much is read in pieces, between the other peers, and
 * in its own order.
 *
 * The server's handler records the order of calls, and blocks in the first one until the test lets
 * it go. Messages that are sent meanwhile therefore all wait. Read next: runtime/net/receive.c. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "net/net_impl.h"
#include "support/eventually.h"
#include "support/logged.h"
#include "support/net_end.h"
#include "support/stranger.h"

char net_end_ipc[128];
struct logged logged = LOGGED_NONE;

TestSuite(net, .init = net_end_setup, .fini = net_end_teardown);

enum {
    MOST = 1000,
    BUSY_US = 200 /* time that a call "much" takes */
};

/* The order of calls: the first letters of their methods. */
struct record {
    char order[MOST + 1];
    atomic_uint count, gates;
    atomic_bool go;
};

static void
received(void *context, exo_peer *peer, const exo_envelope *e, exo_payload *payload)
{
    struct record *r = context;
    (void)peer;
    exo_payload_release(payload);
    if (strcmp(e->method, "gate") == 0) {
        r->gates++;
        while (!r->go)
            usleep(100);
    } else if (r->count < MOST) {
        r->order[r->count] = e->method[0];
        r->count++;
    }
    if (strcmp(e->method, "much") == 0)
        usleep(BUSY_US);
}

static void
settle(void *context, exo_driver driver)
{
    (void)context;
    (void)driver;
}

static void
lost(void *context, exo_peer *peer, const char *cause)
{
    (void)context;
    (void)peer;
    (void)cause;
}

static const exo_net_handler handler = {.received = received, .settle = settle, .lost = lost};

static exo_net *
open_server(struct record *r)
{
    exo_net *net = NULL;
    exo_err err = {0};
    const char *endpoint = net_end_ipc;
    const exo_net_opts opts = {.name = "server",
                               .endpoints = &endpoint,
                               .num_endpoints = 1,
                               .peer_timeout = 600 * EXO_SECOND,
                               .handler = &handler,
                               .context = r};
    cr_assert_eq(exo_net_open(&net, &opts, &err), EXO_OK, "%s", err.text);
    return net;
}

static exo_peer *
come(net_end *client, exo_net *server)
{
    exo_peer *peer = NULL;
    exo_err err = {0};
    net_end_open(client, NULL, NULL);
    cr_assert_eq(
        exo_net_connect(client->net, exo_net_endpoint(server, 0), NULL, in_ms(60000), &peer, &err),
        EXO_OK, "%s", err.text);
    return peer;
}

static bool
has_ring(net_end *client, const exo_peer *peer)
{
    pthread_mutex_lock(&client->net->lock);
    bool has = peer->out != NULL;
    pthread_mutex_unlock(&client->net->lock);
    return has;
}

/* Sends a call as a message of its own. */
static void
say(net_end *client, exo_peer *peer, const char *method, size_t bytes)
{
    exo_payload payload = bytes ? net_end_zeros(bytes) : (exo_payload){0};
    cr_assert_eq(net_end_call(client, peer, method, &payload), EXO_OK);
    exo_net_flush(client->net);
}

/* The index of the n-th call with that letter. */
static size_t
place_of(const struct record *r, char letter, unsigned n)
{
    size_t at = 0;
    for (; r->order[at]; at++)
        if (r->order[at] == letter && --n == 0)
            break;
    return at;
}

static bool
has_come_by_socket(exo_net *net)
{
    pthread_mutex_lock(&net->lock);
    exo_socket_look_locked(net, net->sockets);
    bool has = net->sockets->ready;
    pthread_mutex_unlock(&net->lock);
    return has;
}

/* A message by the socket is due after all of the ring, which takes the net several turns to
 * read. */
Test(net, a_ring_that_is_caught_up_with_lets_others_pass)
{
    static struct record r;
    net_end loud = {0}, quiet = {0};
    exo_net *server = open_server(&r);
    exo_peer *a = come(&loud, server), *b = come(&quiet, server);
    EVENTUALLY(has_ring(&loud, a) && has_ring(&quiet, b));
    say(&loud, a, "gate", 0);
    EVENTUALLY(r.gates == 1);
    for (int i = 0; i < 40; i++)
        say(&loud, a, "ring", 0);
    say(&loud, a, "socket", 200000);
    for (int i = 0; i < 5; i++)
        say(&loud, a, "after", 0);
    for (int i = 0; i < 3; i++)
        say(&quiet, b, "quiet", 0);
    EVENTUALLY(has_come_by_socket(server));
    r.go = true;
    EVENTUALLY(r.count == 40 + 1 + 5 + 3);
    cr_expect_lt(place_of(&r, 'q', 3), place_of(&r, 'r', 40), "%s", r.order);
    cr_expect_lt(place_of(&r, 'r', 40), place_of(&r, 's', 1), "%s", r.order);
    cr_expect_lt(place_of(&r, 's', 1), place_of(&r, 'a', 1), "%s", r.order);
    exo_peer_drop(&a);
    exo_peer_drop(&b);
    net_end_close(&loud);
    net_end_close(&quiet);
    exo_net_close(&server);
}

/* Other peers pass before a long message is over. The same peer's next message comes after it. */
Test(net, a_long_message_lets_others_pass)
{
    static struct record r;
    static exo_envelope calls[301];
    net_end quiet = {0};
    exo_net *server = open_server(&r);
    stranger loud = stranger_open(exo_net_endpoint(server, 0), NULL, NULL);
    stranger_enter(&loud, 99);
    exo_peer *b = come(&quiet, server);
    EVENTUALLY(has_ring(&quiet, b));
    for (size_t i = 0; i < 301; i++)
        calls[i] =
            (exo_envelope){.kind = EXO_WIRE_CALL, .id = i + 1, .method = i == 0 ? "gate" : "much"};
    uint32_t number = loud.next;
    stranger_say_all(&loud, number, calls, 301, 0);
    EVENTUALLY(r.gates == 1);
    stranger_say_all(&loud, number + 1,
                     &(exo_envelope){.kind = EXO_WIRE_CALL, .id = 400, .method = "next"}, 1, 0);
    say(&quiet, b, "quiet", 0);
    EVENTUALLY(has_come_by_socket(server));
    r.go = true;
    EVENTUALLY(r.count == 300 + 1 + 1);
    cr_expect_lt(place_of(&r, 'q', 1), place_of(&r, 'm', 300), "%s", r.order);
    cr_expect_lt(place_of(&r, 'm', 300), place_of(&r, 'n', 1), "%s", r.order);
    exo_peer_drop(&b);
    stranger_close(&loud);
    net_end_close(&quiet);
    exo_net_close(&server);
}

static bool
has_nobody(exo_net *net)
{
    pthread_mutex_lock(&net->lock);
    bool nobody = net->peers == NULL;
    pthread_mutex_unlock(&net->lock);
    return nobody;
}

/* Messages that wait for their turn use the process's memory, and are bounded. */
Test(net, loses_a_peer_that_has_too_much_wait)
{
    static struct record r;
    net_end loud = {0};
    exo_net *server = open_server(&r);
    exo_peer *a = come(&loud, server);
    EVENTUALLY(has_ring(&loud, a));
    say(&loud, a, "gate", 0);
    EVENTUALLY(r.gates == 1);
    for (int i = 0; i < 10; i++)
        say(&loud, a, "ring", 0);
    say(&loud, a, "socket", 200000);
    EVENTUALLY(has_come_by_socket(server));
    pthread_mutex_lock(&server->lock);
    server->peers->kept_bytes = EXO_LIMIT_INBOUND_BYTES; /* as if many messages waited before it */
    pthread_mutex_unlock(&server->lock);
    r.go = true;
    EVENTUALLY(has_nobody(server));
    exo_peer_drop(&a);
    net_end_close(&loud);
    exo_net_close(&server);
}
