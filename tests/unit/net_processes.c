/* Nets of two processes: the other process is killed, is stopped, falls silent, or does not read.
 *
 * Each test owns its end and its child, which ends with it. Read next: exo_net_tick_locked in
 * runtime/net/peer.c. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <zmq.h>

#include "net/net_impl.h"
#include "support/eventually.h"
#include "support/logged.h"
#include "support/net_end.h"
#include "support/stranger.h"

char net_end_ipc[128];
struct logged logged = LOGGED_NONE;

TestSuite(net, .init = net_end_setup, .fini = net_end_teardown);

/* Starts a child with a net of its own that connects to `net_end_ipc` as soon as that exists, and
 * answers calls. */
static pid_t
start_child(const char *boot)
{
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid > 0)
        return pid;
    static net_end client;
    client.reply_bytes = 8;
    exo_peer *peer = NULL;
    exo_net_opts opts = {
        .name = "child", .handler = &net_end_handler, .context = &client, .boot = boot};
    while (access(net_end_ipc + 6, F_OK) != 0)
        usleep(1000);
    if (exo_net_open(&client.net, &opts, NULL) != EXO_OK ||
        exo_net_connect(client.net, net_end_ipc, NULL, in_ms(60000), &peer, NULL) != EXO_OK)
        _exit(1);
    for (;;)
        pause();
}

static void
reap(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

Test(net, loses_a_killed_process_by_its_end_and_says_which)
{
    pid_t pid = start_child(NULL);
    char number[32];
    net_end server = {0};
    net_end_open(&server, net_end_ipc, NULL);
    EVENTUALLY(server.opened == 1);
    kill(pid, SIGKILL);
    EVENTUALLY(server.lost == 1); /* its silence would be noticed after ten minutes */
    snprintf(number, sizeof number, "%d", (int)pid);
    cr_expect_not_null(strstr(server.cause, number), "'%s' does not name process %s", server.cause,
                       number);
    waitpid(pid, NULL, 0);
    net_end_close(&server);
    cr_expect_eq(server.lost, 1);
}

/* Processes of one host that watch each other say little; no end of theirs is silence. */
Test(net, a_quiet_process_of_this_host_is_heard_and_lost_by_its_end)
{
    pid_t pid = start_child(NULL);
    net_end server = {0};
    net_end_open(&server, net_end_ipc, &(exo_net_opts){.peer_timeout = 10 * EXO_MS});
    EVENTUALLY(server.opened == 1);
    usleep(20000);
    cr_expect(exo_net_hears(server.net, server.peer));
    kill(pid, SIGKILL);
    EVENTUALLY(server.lost == 1);
    usleep(20000);
    cr_expect(exo_net_hears(server.net, server.peer), "its end was seen: %s", server.cause);
    waitpid(pid, NULL, 0);
    net_end_close(&server);
}

Test(net, a_silent_peer_of_another_host_is_not_heard)
{
    net_end server = {0}, client = {0};
    net_end_open(&server, "tcp://127.0.0.1:0", NULL);
    net_end_open(&client, NULL, NULL);
    exo_peer *peer = net_end_connect(&client, &server);
    EVENTUALLY(server.opened == 1);
    cr_expect(exo_net_hears(server.net, server.peer));
    net_end_close(&client);
    EVENTUALLY(server.lost == 1);
    pthread_mutex_lock(&server.net->lock);
    server.peer->heard -= 3600 * EXO_SECOND;
    pthread_mutex_unlock(&server.net->lock);
    cr_expect_not(exo_net_hears(server.net, server.peer));
    exo_peer_drop(&peer);
    net_end_close(&server);
}

Test(net, does_not_lose_a_stopped_process)
{
    pid_t pid = start_child(NULL);
    net_end server = {0};
    exo_payload none = {0};
    net_end_open(&server, net_end_ipc, &(exo_net_opts){.peer_timeout = 100 * EXO_MS});
    EVENTUALLY(server.opened == 1);
    kill(pid, SIGSTOP);
    usleep(1500000);
    cr_expect_eq(server.lost, 0);
    cr_expect_eq(net_end_call(&server, server.peer, "add", &none), EXO_OK);
    kill(pid, SIGCONT);
    EVENTUALLY(server.replies == 1);
    reap(pid);
    EVENTUALLY(server.lost == 1);
    net_end_close(&server);
}

/* Two processes that stood still together, as on a host that was paused. */
Test(net, does_not_lose_a_peer_because_it_stood_still_itself)
{
    net_end server = {0}, client = {0};
    net_end_open(&server, "tcp://127.0.0.1:0", NULL);
    net_end_open(&client, NULL, NULL);
    exo_peer *peer = net_end_connect(&client, &server);
    EVENTUALLY(server.opened == 1);
    pthread_mutex_lock(&server.net->lock);
    server.net->next_tick -= 3600 * EXO_SECOND;
    server.net->peers->heard -= 3600 * EXO_SECOND;
    pthread_mutex_unlock(&server.net->lock);
    exo_net_kick(server.net);
    usleep(600000); /* a tick */
    cr_expect_eq(server.lost, 0, "%s", server.cause);
    exo_peer_drop(&peer);
    net_end_close(&client);
    net_end_close(&server);
}

/* A process that is late at every tick counts what it ran: half a second a tick. */
Test(net, loses_a_silent_peer_though_it_is_always_late)
{
    net_end server = {0}, client = {0};
    int ticks = 0;
    net_end_open(&server, "tcp://127.0.0.1:0", &(exo_net_opts){.peer_timeout = 3 * EXO_SECOND});
    net_end_open(&client, NULL, NULL);
    exo_peer *peer = net_end_connect(&client, &server);
    EVENTUALLY(server.opened == 1);
    pthread_mutex_lock(&server.net->lock);
    server.net->next_tick = exo_now(exo_clock_real());
    for (; server.net->peers && ticks < 100; ticks++) {
        const exo_time now = server.net->next_tick + 10 * EXO_SECOND;
        exo_net_excuse_silence_locked(server.net, now);
        exo_net_tick_locked(server.net, now);
    }
    pthread_mutex_unlock(&server.net->lock);
    cr_expect_leq(ticks, 8);
    EVENTUALLY(server.lost == 1);
    cr_expect(strstr(server.cause, "nothing was heard from it for 3."), "%s", server.cause);
    exo_peer_drop(&peer);
    net_end_close(&client);
    net_end_close(&server);
}

/* Whether the connection of the only peer has ended, though the peer is not lost. */
static bool
has_ended(net_end *e)
{
    pthread_mutex_lock(&e->net->lock);
    bool ended = e->net->peers && exo_intake_has_ended(e->net->peers->intake);
    pthread_mutex_unlock(&e->net->lock);
    return ended;
}

/* A process that closes a full connection lives on, and its Goodbye is lost. */
Test(net, loses_a_living_process_whose_connection_has_ended)
{
    net_end server = {0};
    net_end_open(&server, net_end_ipc, NULL);
    stranger s = stranger_open(net_end_ipc, NULL, NULL);
    stranger_enter(&s, 99);
    EVENTUALLY(server.opened == 1);
    pthread_mutex_lock(&server.net->lock);
    server.net->peers->spoke = INT64_MAX; /* a beat would find the connection gone */
    pthread_mutex_unlock(&server.net->lock);
    stranger_close(&s);
    EVENTUALLY(has_ended(&server) || server.lost == 1);
    pthread_mutex_lock(&server.net->lock);
    for (int tick = 0; tick < 4 && server.net->peers; tick++)
        exo_net_tick_locked(server.net, exo_now(exo_clock_real()));
    server.net->next_tick = 0;
    pthread_mutex_unlock(&server.net->lock);
    EVENTUALLY(server.lost == 1);
    cr_expect_not_null(strstr(server.cause, "its connection has ended"), "%s", server.cause);
    net_end_close(&server);
}

Test(net, keeps_one_connection_of_a_node_that_comes_again)
{
    net_end server = {0};
    net_end_open(&server, net_end_ipc, NULL);
    for (unsigned i = 0; i < 4; i++) {
        stranger s = stranger_open(net_end_ipc, NULL, NULL);
        stranger_enter(&s, 99);
        EVENTUALLY(server.opened == i + 1);
        EVENTUALLY(server.lost == i);
        if (i > 0) /* the server may have looked in between */
            cr_expect(strstr(server.cause, "connected anew") ||
                          strstr(server.cause, "its connection has ended"),
                      "%s", server.cause);
        pthread_mutex_lock(&server.net->lock);
        server.net->peers->spoke = server.net->peers->heard = INT64_MAX / 2; /* as above */
        pthread_mutex_unlock(&server.net->lock);
        stranger_close(&s);
        EVENTUALLY(has_ended(&server));
    }
    net_end_close(&server);
}

static bool
watch_each_other(net_end *e)
{
    pthread_mutex_lock(&e->net->lock);
    bool both = e->net->peers->watches && e->net->peers->told_watch;
    pthread_mutex_unlock(&e->net->lock);
    return both;
}

/* The number of heartbeats that a tick sends, `silent` after the last message. */
static uint32_t
beats_after_locked(net_end *e, exo_time silent)
{
    exo_peer *peer = e->net->peers;
    uint32_t before = peer->sent;
    exo_net_tick_locked(e->net, peer->spoke + silent);
    return peer->sent - before;
}

Test(net, says_little_to_a_process_that_it_watches)
{
    net_end server = {0}, client = {0};
    net_end_open(&server, net_end_ipc, NULL);
    net_end_open(&client, NULL, NULL);
    exo_peer *peer = net_end_connect(&client, &server);
    EVENTUALLY(watch_each_other(&server) && watch_each_other(&client));
    pthread_mutex_lock(&server.net->lock);
    cr_expect_eq(beats_after_locked(&server, 2 * EXO_SECOND), 0);
    cr_expect_eq(beats_after_locked(&server, 4 * EXO_SECOND), 1);
    server.net->peers->watches = false; /* otherwise the peer would lose this process */
    cr_expect_eq(beats_after_locked(&server, EXO_SECOND), 1);
    server.net->next_tick = 0;
    pthread_mutex_unlock(&server.net->lock);
    exo_peer_drop(&peer);
    net_end_close(&client);
    net_end_close(&server);
}

/* The number of messages that came from the only peer. */
static uint32_t
count_messages(net_end *e)
{
    pthread_mutex_lock(&e->net->lock);
    uint32_t count = e->net->peers ? e->net->peers->received : 0;
    pthread_mutex_unlock(&e->net->lock);
    return count;
}

/* Makes the only peer silent since an hour ago. Messages of it that come later undo this. */
static void
age_silence(net_end *e)
{
    pthread_mutex_lock(&e->net->lock);
    if (e->net->peers)
        e->net->peers->heard = exo_now(exo_clock_real()) - 3600 * EXO_SECOND;
    pthread_mutex_unlock(&e->net->lock);
}

/* Over a slow link the parts of a large message take longer than the timeout, and beats wait behind them. */
Test(net, does_not_lose_a_peer_whose_message_is_still_coming)
{
    net_end server = {0}, client = {0};
    net_end_open(&server, "tcp://127.0.0.1:0", NULL);
    net_end_open(&client, NULL, NULL);
    exo_peer *peer = net_end_connect(&client, &server);
    EVENTUALLY(server.opened == 1);
    age_silence(&server);
    pthread_mutex_lock(&server.net->lock);
    server.net->peers->read = 0; /* bytes have come since the last tick */
    exo_net_tick_locked(server.net, exo_now(exo_clock_real()));
    cr_expect_not_null(server.net->peers);
    pthread_mutex_unlock(&server.net->lock);
    cr_expect_eq(server.lost, 0, "%s", server.cause);
    EVENTUALLY((age_silence(&server), server.lost == 1)); /* none has */
    exo_peer_drop(&peer);
    net_end_close(&client);
    net_end_close(&server);
}

Test(net, loses_another_host_that_falls_silent)
{
    pid_t pid = start_child("another kernel");
    net_end server = {0};
    net_end_open(&server, net_end_ipc, NULL);
    EVENTUALLY(server.opened == 1);
    cr_expect(!exo_peer_is_near(server.peer) && !exo_peer_may_share(server.peer));
    uint32_t before = count_messages(&server);
    EVENTUALLY(count_messages(&server) >= before + 3); /* heartbeats: nobody says anything else */
    cr_expect_eq(server.lost, 0);
    kill(pid, SIGSTOP);
    EVENTUALLY((age_silence(&server), server.lost == 1));
    cr_expect_not_null(strstr(server.cause, "nothing was heard"), "%s", server.cause);
    reap(pid);
    net_end_close(&server);
    cr_expect_eq(server.lost, 1);
}

/* --- A process that dies in the middle of a message ------------------------------------------- */

enum {
    FRAMES = 6
};

/* Starts a raw peer of `net_end_ipc` that says Hello, sends `frames` frames of a message without
 * its last frame, and dies. */
static pid_t
start_half_said(int frames)
{
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid > 0)
        return pid;
    while (access(net_end_ipc + 6, F_OK) != 0)
        usleep(1000);
    stranger s = stranger_open(net_end_ipc, NULL, NULL);
    stranger_enter(&s, (uint64_t)getpid());
    exo_wire_writer w = {0};
    const exo_envelope call = {.kind = EXO_WIRE_CALL,
                               .id = 1,
                               .text = "x",
                               .method = "add",
                               .payload = {.place = EXO_WIRE_FRAMED}};
    if (exo_wire_add(&w, &call, NULL) != EXO_OK)
        _exit(1);
    exo_wire_finish(&w, s.next);
    for (int i = 0; i < frames; i++)
        zmq_send(s.socket, w.data, w.size, ZMQ_SNDMORE);
    usleep(20000); /* gives the frames time to leave */
    kill(getpid(), SIGKILL);
    return 0;
}

Test(net, hears_nothing_of_a_message_that_was_not_finished)
{
    pid_t children[FRAMES]; /* forked before there are threads */
    for (int i = 0; i < FRAMES; i++)
        children[i] = start_half_said(i);
    net_end server = {0};
    net_end_open(&server, net_end_ipc, NULL);
    EVENTUALLY(server.opened == FRAMES && server.lost == FRAMES);
    cr_expect_eq(server.calls, 0);
    for (int i = 0; i < FRAMES; i++)
        waitpid(children[i], NULL, 0);
    net_end_close(&server);
}

/* --- A peer that does not read ---------------------------------------------------------------- */

enum {
    LIMIT = 4 << 20
};

Test(net, gives_full_when_the_peer_does_not_read)
{
    pid_t pid = start_child(NULL);
    net_end server = {0};
    exo_status st = EXO_OK;
    size_t sent = 0;
    net_end_open(&server, net_end_ipc, &(exo_net_opts){.unread_limit = LIMIT});
    EVENTUALLY(server.opened == 1);
    kill(pid, SIGSTOP);
    for (; st == EXO_OK && sent < 10 * LIMIT; sent += 50000) {
        exo_payload payload = net_end_zeros(50000);
        st = net_end_call(&server, server.peer, "add", &payload);
    }
    cr_expect_eq(st, EXO_FULL);
    cr_expect_gt(sent, LIMIT - 200000);
    cr_expect_lt(sent, LIMIT + 500000);
    cr_expect(exo_peer_is_full(server.peer));
    exo_envelope cancel = {.kind = EXO_WIRE_CANCEL, .id = 1};
    cr_expect_eq(exo_net_send(server.net, server.peer, &cancel, NULL, NULL), EXO_OK,
                 "what must go goes");
    kill(pid, SIGCONT);
    EVENTUALLY(!exo_peer_is_full(server.peer));
    EVENTUALLY(server.replies == sent / 50000 - 1);
    exo_payload none = {0};
    cr_expect_eq(net_end_call(&server, server.peer, "add", &none), EXO_OK);
    EVENTUALLY(server.replies == sent / 50000);
    cr_expect_eq(server.lost, 0);
    reap(pid);
    net_end_close(&server);
}
