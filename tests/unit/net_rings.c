/* Rings between peers of one host: which peers share them, and what happens to a peer whose ring or
 * order makes no sense.
 *
 * Each test owns its ends; it reads and corrupts the inside of a peer under its net's lock. Read
 * next: runtime/net/peer_ring.c; ring.c beside this file tests the memory itself. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "net/net_impl.h"
#include "support/eventually.h"
#include "support/logged.h"
#include "support/net_end.h"

char net_end_ipc[128];
struct logged logged = LOGGED_NONE;

TestSuite(net, .init = net_end_setup, .fini = net_end_teardown);

static bool
has_rings(net_end *e, const exo_peer *peer)
{
    pthread_mutex_lock(&e->net->lock);
    /* the listening end may not have noticed the peer yet */
    bool both = peer && peer->in && peer->out;
    pthread_mutex_unlock(&e->net->lock);
    return both;
}

static bool
has_no_ring(net_end *e, const exo_peer *peer)
{
    pthread_mutex_lock(&e->net->lock);
    bool neither = !peer->in && !peer->out;
    pthread_mutex_unlock(&e->net->lock);
    return neither;
}

static uint64_t
token_of(net_end *e, const exo_peer *peer)
{
    pthread_mutex_lock(&e->net->lock);
    uint64_t token = peer->token;
    pthread_mutex_unlock(&e->net->lock);
    return token;
}

/* Messages to a peer that was reached over tcp go over tcp. */
Test(net, shares_rings_where_it_was_reached_by_a_path)
{
    net_end server = {0}, client = {0}, outside = {0}, guest = {0};
    net_end_open(&server, net_end_ipc, NULL);
    net_end_open(&outside, "tcp://127.0.0.1:0", NULL);
    net_end_open(&client, NULL, NULL);
    exo_peer *near = net_end_connect(&client, &server),
             *by_tcp = net_end_connect(&client, &outside);
    EVENTUALLY(has_rings(&client, near) && has_rings(&server, server.peer));
    for (uint64_t i = 0; i < 3000; i++) {
        exo_payload one = net_end_numbered(i), two = net_end_numbered(i);
        cr_assert_eq(net_end_call(&client, near, "count", &one), EXO_OK);
        cr_assert_eq(net_end_call(&client, by_tcp, "count", &two), EXO_OK);
    }
    exo_net_flush(client.net);
    EVENTUALLY(server.calls == 3000 && outside.calls == 3000);
    cr_expect(has_no_ring(&client, by_tcp));

    /* Peers of different hosts share no ring. */
    net_end_open(&guest, NULL, &(exo_net_opts){.boot = "another kernel"});
    exo_peer *far = net_end_connect(&guest, &server);
    exo_payload first = net_end_numbered(3000);
    cr_assert_eq(net_end_call(&guest, far, "count", &first), EXO_OK);
    EVENTUALLY(server.calls == 3001);
    cr_expect(has_no_ring(&guest, far));
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
    /* The server could write this. */
    pthread_mutex_lock(&client.net->lock);
    memcpy(exo_ring_memory(peer->in), &nonsense, sizeof nonsense);
    pthread_mutex_unlock(&client.net->lock);
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
        peer->gap_since -= 3600 * EXO_SECOND; /* as if an hour had passed */
    pthread_mutex_unlock(&e->net->lock);
    return seen;
}

/* A message in the ring does not wait forever for an earlier message by the socket. */
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
    EVENTUALLY(sees_gap(&client, peer) || client.lost == 1);
    /* perhaps by a heartbeat through the socket, which shows that the message was lost */
    EVENTUALLY(client.lost == 1);
    cr_expect(strstr(client.cause, "did not come") || strstr(client.cause, "messages were lost"),
              "%s", client.cause);
    cr_expect_eq(client.calls, 0);
    exo_peer_drop(&peer);
    net_end_close(&client);
    net_end_close(&server);
}

/* Without a door, for example because its file was removed, all messages go through the socket. */
Test(net, does_without_rings_where_no_door_opens)
{
    net_end server = {0}, client = {0};
    net_end_open(&server, net_end_ipc, NULL);
    net_end_open(&client, NULL, NULL);
    char door[EXO_DOOR_PATH];
    cr_assert(exo_door_path(exo_net_endpoint(server.net, 0), door));
    cr_assert_eq(unlink(door), 0);
    exo_peer *peer = net_end_connect(&client, &server);
    for (uint64_t i = 0; i < 100; i++) {
        exo_payload numbers = net_end_numbered(i);
        cr_assert_eq(net_end_call(&client, peer, "count", &numbers), EXO_OK);
    }
    EVENTUALLY(server.calls == 100);
    cr_expect(!has_rings(&client, peer) && !has_rings(&server, server.peer));
    cr_expect_eq(client.lost + server.lost, 0);
    exo_peer_drop(&peer);
    net_end_close(&client);
    net_end_close(&server);
}

/* Offers without a request, and repeated offers, do no harm. */
Test(net, takes_one_offer_of_rings)
{
    net_end server = {0}, client = {0};
    net_end_open(&server, net_end_ipc, NULL);
    net_end_open(&client, NULL, NULL);
    exo_peer *peer = net_end_connect(&client, &server);
    EVENTUALLY(has_rings(&client, peer) && has_rings(&server, server.peer));
    exo_envelope offer = {.kind = EXO_WIRE_RING, .token = 1};
    for (int i = 0; i < 30; i++) {
        cr_assert_eq(exo_net_send(server.net, server.peer, &offer, NULL, NULL), EXO_OK);
        cr_assert_eq(exo_net_send(client.net, peer, &offer, NULL, NULL), EXO_OK);
    }
    for (uint64_t i = 0; i < 100; i++) {
        exo_payload numbers = net_end_numbered(i);
        cr_assert_eq(net_end_call(&client, peer, "count", &numbers), EXO_OK);
    }
    EVENTUALLY(server.calls == 100);
    cr_expect(has_rings(&client, peer) && client.lost + server.lost == 0);
    exo_peer_drop(&peer);
    net_end_close(&client);
    net_end_close(&server);
}

static unsigned
count_files(void)
{
    unsigned count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* The door checks the token, the process that knocks, and the descriptors that are handed over. It
 * leaves none of them open. */
Test(net, lets_nobody_in_who_was_not_told_the_token)
{
    net_end server = {0}, client = {0};
    net_end_open(&server, net_end_ipc, NULL);
    net_end_open(&client, NULL, NULL);
    char door[EXO_DOOR_PATH];
    cr_assert(exo_door_path(exo_net_endpoint(server.net, 0), door));
    exo_peer *peer = net_end_connect(&client, &server);
    EVENTUALLY(has_rings(&client, peer) && has_rings(&server, server.peer));
    pthread_mutex_lock(&server.net->lock); /* as if the peer had not knocked */
    exo_peer_close_rings_locked(server.net, server.peer);
    server.peer->token = 77;
    pthread_mutex_unlock(&server.net->lock);
    unsigned before = count_files();
    exo_ring *in = NULL, *out = NULL;
    int file = -1, ends[2];
    cr_assert(exo_bell_new(ends));
    cr_assert_eq(exo_ring_pair_new(&in, &out, &file, NULL), EXO_OK);
    const uint64_t tokens[] = {0, 1, 76, UINT64_MAX};
    for (int i = 0; i < 40; i++) {
        const int files[2] = {file, ends[1]};
        while (exo_door_knock(door, tokens[i % 4], files, NULL) == EXO_FULL)
            usleep(100);
    }
    pid_t child = fork();
    if (child == 0) { /* not the peer's process, though it has the token */
        const int files[2] = {file, ends[1]};
        while (exo_door_knock(door, 77, files, NULL) == EXO_FULL)
            usleep(100);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    const int swapped[2] = {ends[1], file};
    while (exo_door_knock(door, 78, swapped, NULL) == EXO_FULL)
        usleep(100);
    close(file);
    close(ends[0]);
    close(ends[1]);
    exo_ring_free(&in);
    exo_ring_free(&out);
    EVENTUALLY(count_files() <= before);
    cr_expect(!has_rings(&server, server.peer) && token_of(&server, server.peer) == 77);

    /* The right token with descriptors that are no rings: the token is used up. The door answers in
     * the order of the knocks, so all earlier ones were refused. */
    exo_status st = EXO_FULL;
    while ((st = exo_door_knock(door, 77, (int[2]){0, 1}, NULL)) == EXO_FULL)
        usleep(100);
    cr_assert_eq(st, EXO_OK);
    EVENTUALLY(token_of(&server, server.peer) == 0);
    EVENTUALLY(count_files() <= before);
    cr_expect(!has_rings(&server, server.peer));
    cr_expect_eq(server.lost, 0);
    exo_peer_drop(&peer);
    net_end_close(&client);
    net_end_close(&server);
}

/* --- Processes that may not be inspected ------------------------------------------------------ */

/* Becomes a process of the given user, not root, whose /proc/PID/fd no other process can open. */
static bool
become_private(uid_t user)
{
    return setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0 &&
           prctl(PR_SET_DUMPABLE, 0) == 0 && prctl(PR_GET_DUMPABLE) == 0;
}

enum {
    PRIVATE_CALLS = 1000
};

/* Tells the other process that the rings are there, and that all calls have come. */
static int
listen_in_private(uid_t user, const char *endpoint, int tell)
{
    net_end server = {0};
    exo_time until = in_ms(60000);
    if (!become_private(user))
        return 2;
    net_end_open(&server, endpoint, NULL);
    if (write(tell, "", 1) != 1)
        return 3;
    int told = 0;
    while (server.lost == 0 && exo_now(exo_clock_real()) < until) {
        if (told == 0 ? has_rings(&server, server.peer)
                      : told == 1 && server.calls == PRIVATE_CALLS)
            told += write(tell, "", 1) == 1;
        usleep(200);
    }
    bool right = told == 2 && server.calls == PRIVATE_CALLS && server.wrong == 0;
    net_end_close(&server);
    return right ? 0 : 4;
}

static int
call_in_private(uid_t user, const char *endpoint, const int ready[2])
{
    char byte;
    net_end client = {0};
    exo_peer *peer = NULL;
    exo_time until = in_ms(60000);
    close(ready[1]); /* the read then ends if the other process does */
    if (!become_private(user) || read(ready[0], &byte, 1) != 1)
        return 2;
    net_end_open(&client, NULL, NULL);
    if (exo_net_connect(client.net, endpoint, NULL, until, &peer, NULL) != EXO_OK)
        return 3;
    while (!has_rings(&client, peer) && exo_now(exo_clock_real()) < until)
        usleep(200);
    bool right = has_rings(&client, peer) && read(ready[0], &byte, 1) == 1;
    for (uint64_t i = 0; i < PRIVATE_CALLS && right; i++) {
        exo_payload numbers = net_end_numbered(i);
        right = net_end_call(&client, peer, "count", &numbers) == EXO_OK;
    }
    exo_net_flush(client.net);
    right =
        right && read(ready[0], &byte, 1) == 1; /* an end leaves no time for what is under way */
    exo_peer_drop(&peer);
    net_end_close(&client);
    return right ? 0 : 4;
}

Test(net, shares_rings_between_processes_that_may_not_be_looked_into, .timeout = 120)
{
    int ready[2], status = 0;
    char folder[] = "/tmp/rings-XXXXXX", endpoint[128], path[128];
    uid_t user = geteuid() ? geteuid() : 65534;
    cr_assert(pipe(ready) == 0 && mkdtemp(folder) && (geteuid() || chown(folder, user, user) == 0));
    snprintf(endpoint, sizeof endpoint, "ipc://%s/end", folder);
    pid_t pids[2];
    for (int i = 0; i < 2; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            _exit(i ? call_in_private(user, endpoint, ready)
                    : listen_in_private(user, endpoint, ready[1]));
    }
    close(ready[1]); /* each child has copies of both ends */
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(waitpid(pids[i], &status, 0), pids[i]);
        cr_expect_eq(status, 0, "process %d: %d", i, status);
    }
    close(ready[0]);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/end%s", folder, i ? ".door" : "");
        unlink(path);
    }
    cr_expect_eq(rmdir(folder), 0);
}
