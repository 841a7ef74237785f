/* Rings between peers of one host: who shares them, and what becomes of a peer whose ring or order makes no sense.
 *
 * Each test owns its ends; it reads and spoils what is inside of a peer under its net's lock. Read next: runtime/net/peer_ring.c; ring.c
 * beside this file has the memory itself. */
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "eventually.h"
#include "logged.h"
#include "net_end.h"
#include "net_impl.h"

char net_end_ipc[128];
struct logged logged = LOGGED_NONE;

TestSuite(net, .init = net_end_setup, .fini = net_end_teardown);

static bool
has_rings(net_end *e, const exo_peer *peer)
{
    pthread_mutex_lock(&e->net->lock);
    bool both = peer && peer->in && peer->out; /* whoever was connected to may not have heard of it yet */
    pthread_mutex_unlock(&e->net->lock);
    return both;
}

/* What a user sends over tcp goes over tcp. */
Test(net, shares_rings_where_it_was_reached_by_a_path)
{
    net_end server = {0}, client = {0}, outside = {0}, guest = {0};
    net_end_open(&server, net_end_ipc, NULL);
    net_end_open(&outside, "tcp://127.0.0.1:0", NULL);
    net_end_open(&client, NULL, NULL);
    exo_peer *near = net_end_connect(&client, &server), *by_tcp = net_end_connect(&client, &outside);
    EVENTUALLY(has_rings(&client, near) && has_rings(&server, server.peer));
    for (uint64_t i = 0; i < 3000; i++) {
        exo_payload one = net_end_numbered(i), two = net_end_numbered(i);
        cr_assert_eq(net_end_call(&client, near, "count", &one), EXO_OK);
        cr_assert_eq(net_end_call(&client, by_tcp, "count", &two), EXO_OK);
    }
    exo_net_flush(client.net);
    EVENTUALLY(server.calls == 3000 && outside.calls == 3000);
    cr_expect(!has_rings(&client, by_tcp) && !by_tcp->in && !by_tcp->out);

    /* Nor is there one with another host. */
    net_end_open(&guest, NULL, &(exo_net_opts){.boot = "another kernel"});
    exo_peer *far = net_end_connect(&guest, &server);
    exo_payload first = net_end_numbered(3000);
    cr_assert_eq(net_end_call(&guest, far, "count", &first), EXO_OK);
    EVENTUALLY(server.calls == 3001);
    cr_expect(!far->in && !far->out);
    exo_peer_drop(&near);
    exo_peer_drop(&by_tcp);
    exo_peer_drop(&far);
    net_end_close(&guest);
    net_end_close(&client);
    net_end_close(&outside);
    net_end_close(&server);
}

Test(net, loses_a_peer_whose_ring_makes_no_sense)
{
    static const uint64_t nonsense = UINT64_MAX;
    net_end server = {0}, client = {0}, other = {0};
    net_end_open(&server, net_end_ipc, NULL);
    net_end_open(&client, NULL, NULL);
    net_end_open(&other, NULL, NULL);
    exo_peer *peer = net_end_connect(&client, &server);
    EVENTUALLY(has_rings(&client, peer) && has_rings(&server, server.peer));
    exo_peer *third = net_end_connect(&other, &server);
    /* As the server could. */
    cr_assert_eq(pwrite(exo_ring_fd(peer->in), &nonsense, sizeof nonsense, 64), sizeof nonsense);
    EVENTUALLY(client.lost == 1);
    cr_expect_str_eq(client.cause, "the memory that it shares with us makes no sense");
    exo_payload first = net_end_numbered(0);
    cr_assert_eq(net_end_call(&other, third, "count", &first), EXO_OK);
    EVENTUALLY(server.calls == 1);
    exo_peer_drop(&peer);
    exo_peer_drop(&third);
    net_end_close(&client);
    net_end_close(&other);
    net_end_close(&server);
}

static bool
sees_gap(net_end *e, exo_peer *peer)
{
    pthread_mutex_lock(&e->net->lock);
    bool seen = peer->gap_since != 0;
    if (seen)
        peer->gap_since -= 3600 * EXO_SECOND; /* as if an hour had gone by */
    pthread_mutex_unlock(&e->net->lock);
    return seen;
}

/* What comes by the ring does not wait for ever for what should have come by the socket. */
Test(net, loses_a_peer_of_which_a_message_never_comes)
{
    net_end server = {0}, client = {0};
    net_end_open(&server, net_end_ipc, NULL);
    net_end_open(&client, NULL, NULL);
    exo_peer *peer = net_end_connect(&client, &server);
    EVENTUALLY(has_rings(&client, peer) && has_rings(&server, server.peer));
    pthread_mutex_lock(&server.net->lock);
    server.peer->sent++;
    pthread_mutex_unlock(&server.net->lock);
    exo_payload numbers = net_end_numbered(0);
    cr_assert_eq(net_end_call(&server, server.peer, "count", &numbers), EXO_OK);
    EVENTUALLY(sees_gap(&client, peer));
    EVENTUALLY(client.lost == 1);
    cr_expect(strstr(client.cause, "did not come"), "%s", client.cause);
    cr_expect_eq(client.calls, 0);
    exo_peer_drop(&peer);
    net_end_close(&client);
    net_end_close(&server);
}

/* An offer that leads nowhere is no harm: all goes through the socket. */
Test(net, does_without_a_ring_that_it_cannot_open)
{
    net_end server = {0}, client = {0};
    net_end_open(&server, net_end_ipc, NULL);
    net_end_open(&client, NULL, NULL);
    exo_peer *peer = net_end_connect(&client, &server);
    EVENTUALLY(has_rings(&server, server.peer));
    pthread_mutex_lock(&client.net->lock); /* as if it never had one */
    exo_ring_free(&peer->out);
    close(peer->bell);
    peer->bell = -1;
    pthread_mutex_unlock(&client.net->lock);
    for (uint32_t fd = 0; fd < 30; fd++) {
        exo_envelope offer = {.kind = EXO_WIRE_RING, .ring = {.memory = fd, .bell = 29 - fd, .token = fd}};
        cr_assert_eq(exo_net_send(server.net, server.peer, &offer, NULL, NULL), EXO_OK);
    }
    for (uint64_t i = 0; i < 100; i++) {
        exo_payload numbers = net_end_numbered(i);
        cr_assert_eq(net_end_call(&client, peer, "count", &numbers), EXO_OK);
    }
    EVENTUALLY(server.calls == 100);
    cr_expect_eq(client.lost + server.lost, 0);
    exo_peer_drop(&peer);
    net_end_close(&client);
    net_end_close(&server);
}
