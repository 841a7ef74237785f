/* A net against strangers with a raw ZeroMQ socket that send invalid messages: each is refused or
 * lost with the reason, and an honest peer is still heard.
 *
 * Each test owns its ends and its strangers. Read next: runtime/net/handshake.c, receive.c;
 * tests/fuzz/handshake.c continues from here. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <zmq.h>

#include "net/net_impl.h"
#include "net/process.h"
#include "support/eventually.h"
#include "support/logged.h"
#include "support/net_end.h"
#include "support/stranger.h"

char net_end_ipc[128];
struct logged logged = LOGGED_NONE;

TestSuite(net, .init = net_end_setup, .fini = net_end_teardown);

/* An honest peer connects, makes a call that is heard, and leaves. */
static void
expect_honest_is_heard(net_end *server)
{
    static net_end client;
    exo_payload none = {0};
    unsigned calls = server->calls;
    net_end_open(&client, NULL, NULL);
    exo_peer *peer = net_end_connect(&client, server);
    cr_expect_eq(net_end_call(&client, peer, "add", &none), EXO_OK);
    EVENTUALLY(server->calls == calls + 1);
    exo_peer_drop(&peer);
    net_end_close(&client);
    memset(&client, 0, sizeof client);
}

static const exo_envelope hello = STRANGER_HELLO;

static stranger
new_stranger(const net_end *server)
{
    return stranger_open(exo_net_endpoint(server->net, 0), NULL, NULL);
}

static void
expect_refused(net_end *server, stranger *s, const char *why)
{
    char reason[EXO_WIRE_REASON];
    stranger_expect(s, EXO_WIRE_REFUSED, reason);
    cr_expect_not_null(strstr(reason, why), "'%s' does not say '%s'", reason, why);
    EVENTUALLY(logged_has(why));
    stranger_close(s);
    cr_expect_eq(server->opened, 0);
}

/* --- The handshake ---------------------------------------------------------------------------- */

Test(net, refuses_strangers_with_a_reason)
{
    for (int i = 0; i < 2; i++) {
        net_end server = {0};
        stranger s;
        exo_envelope e = hello;
        net_end_open(&server, net_end_endpoint(i), &(exo_net_opts){.cluster = "ours"});

        s = new_stranger(&server);
        zmq_send(s.socket, "garbage", 7, 0);
        expect_refused(&server, &s, "no message of exogym");

        s = new_stranger(&server);
        zmq_send(s.socket, "EXOG\1\0\1\0\0\0\0\0", 12, 0);
        expect_refused(&server, &s,
                       "the peer speaks version 1 of the protocol, and this exogym version 2: "
                       "update the other one");

        s = new_stranger(&server);
        zmq_send(s.socket, "EXOG\3\0\1\0\0\0\0\0", 12, 0);
        expect_refused(&server, &s,
                       "version 3 of the protocol, and this exogym version 2: update this one");

        s = new_stranger(&server);
        e.who.cluster = "theirs\nlevel=error";
        stranger_say_all(&s, 0, &e, 1, 0);
        expect_refused(&server, &s, "not 'theirs?level=error'");

        s = new_stranger(&server);
        stranger_say_all(&s, 0, &(exo_envelope){.kind = EXO_WIRE_CALL, .method = "add"}, 1, 0);
        expect_refused(&server, &s, "does not begin with a Hello");

        s = new_stranger(&server);
        stranger_say_all(&s, 7, &hello, 1, 0);
        expect_refused(&server, &s, "the Hello is message 7 of its connection, not 0");

        s = new_stranger(&server); /* claims to be a process of this host that does not exist */
        char boot[EXO_BOOT_ID];
        exo_boot_id(boot);
        e = hello;
        e.who.boot = boot;
        e.who.pid = (uint32_t)getpid();
        e.who.start = 1;
        stranger_say_all(&s, 0, &e, 1, 0);
        expect_refused(&server, &s, "not what it says");

        s = new_stranger(&server);
        stranger_call_itself(&s, "a long routing id", 17);
        stranger_say_all(&s, 0, &hello, 1, 0);
        expect_refused(&server, &s, "routing id of 17 bytes");

        expect_honest_is_heard(&server);
        net_end_close(&server);
    }
}

Test(net, connects_to_no_other_cluster)
{
    net_end server = {0}, client = {0};
    exo_peer *peer = NULL;
    exo_err err = {0};
    net_end_open(&server, net_end_ipc, &(exo_net_opts){.cluster = "ours"});
    net_end_open(&client, NULL, &(exo_net_opts){.cluster = "theirs"});
    cr_expect_eq(exo_net_connect(client.net, net_end_ipc, NULL, in_ms(60000), &peer, &err),
                 EXO_UNSUPPORTED);
    cr_expect_not_null(strstr(err.text, "the cluster 'ours', not 'theirs'"), "%s", err.text);
    cr_expect_null(peer);
    exo_net_stop(client.net, NULL);
    cr_expect_eq(exo_net_connect(client.net, net_end_ipc, NULL, in_ms(60000), &peer, &err),
                 EXO_CLOSED);
    net_end_close(&client);
    cr_expect_eq(client.lost, 0, "it never was a peer");
    net_end_close(&server);
    cr_expect_eq(server.opened + server.lost, 0);
}

/* The most lines that refusals may have logged since then: a burst, and a few at each tick. */
static size_t
most_lines(exo_time began)
{
    enum {
        BURST = 32,
        A_TICK = 4,
        TICKS_A_SECOND = 2,
        OTHERS = 20 /* of honest peers, and of crowds */
    };
    size_t ticks = 1 + (size_t)((exo_now(exo_clock_real()) - began) * TICKS_A_SECOND / EXO_SECOND);
    return BURST + A_TICK * ticks + OTHERS;
}

/* A stranger can fill neither the log nor the memory for answers. */
Test(net, refuses_a_flood_without_a_flood)
{
    net_end server = {0};
    exo_time began = exo_now(exo_clock_real());
    net_end_open(&server, net_end_ipc, NULL);
    stranger s = new_stranger(&server);
    for (int i = 0; i < 20000; i++)
        cr_assert_geq(zmq_send(s.socket, "garbage", 7, 0), 0);
    expect_honest_is_heard(&server);
    /* the net closes its connection, and ZeroMQ connects again */
    cr_expect_leq(logged_lines(), most_lines(began), "%s", logged_text());
    stranger_close(&s);
    for (int i = 0; i < 100; i++) {
        s = new_stranger(&server);
        zmq_send(s.socket, "garbage", 7, 0);
        usleep(1000);
        stranger_close(&s);
    }
    expect_honest_is_heard(&server);
    cr_expect_leq(logged_lines(), most_lines(began), "%s", logged_text());
    net_end_close(&server);
}

/* A socket that answers a Hello, and its answer. */
struct impostor {
    void *router;
    const void *answer;
    size_t size;
};

static void *
answer_hello(void *argument)
{
    const struct impostor *i = argument;
    uint8_t route[16], data[4096];
    int size = zmq_recv(i->router, route, sizeof route, 0);
    cr_assert_gt(size, 0);
    cr_assert_gt(zmq_recv(i->router, data, sizeof data, 0), 0);
    zmq_send(i->router, route, (size_t)size, ZMQ_SNDMORE);
    zmq_send(i->router, i->answer, i->size, 0);
    return NULL;
}

/* Connects to an impostor with that answer. */
static exo_status
connect_to_impostor(net_end *client, const struct impostor *given, exo_err *err)
{
    struct impostor impostor = *given;
    pthread_t thread;
    exo_peer *peer = NULL;
    cr_assert_eq(pthread_create(&thread, NULL, answer_hello, &impostor), 0);
    exo_status st = exo_net_connect(client->net, net_end_ipc, NULL, in_ms(60000), &peer, err);
    pthread_join(thread, NULL);
    exo_peer_drop(&peer);
    return st;
}

/* Connecting to a socket that is no net fails at once. */
Test(net, connects_to_no_stranger)
{
    net_end client = {0};
    void *context = zmq_ctx_new(), *router = zmq_socket(context, ZMQ_ROUTER);
    exo_wire_writer early = {0};
    cr_assert_eq(
        exo_wire_add(&early, &(exo_envelope){.kind = EXO_WIRE_CALL, .method = "add"}, NULL),
        EXO_OK);
    exo_wire_finish(&early, 0);
    const struct {
        struct impostor impostor;
        const char *why;
    } cases[] = {{{router, "garbage", 7}, "no message of exogym"},
                 {{router, "EXOG\3\0\1\0\0\0\0\0", 12},
                  "version 3 of the protocol, and this exogym version 2: update this one"},
                 {{router, "EXOG\1\0\1\0\0\0\0\0", 12},
                  "version 1 of the protocol, and this exogym version 2: update the other one"},
                 {{router, early.data, early.size}, "does not begin with a Welcome"}};
    cr_assert_eq(zmq_bind(router, net_end_ipc), 0);
    net_end_open(&client, NULL, NULL);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        exo_err err = {0};
        cr_expect_eq(connect_to_impostor(&client, &cases[k].impostor, &err), EXO_UNSUPPORTED);
        cr_expect_not_null(strstr(err.text, cases[k].why), "%s", err.text);
    }
    exo_wire_release(&early);
    net_end_close(&client);
    cr_expect_eq(client.lost + client.calls, 0);
    zmq_close(router);
    zmq_ctx_term(context);
}

/* A peer that leaves at once is lost and not refused: another attempt may succeed. */
Test(net, a_peer_that_goes_at_once_is_lost)
{
    net_end client = {0};
    void *context = zmq_ctx_new(), *router = zmq_socket(context, ZMQ_ROUTER);
    exo_wire_writer short_one = {0}, dead_one = {0};
    exo_envelope welcome = hello;
    exo_err err = {0};
    char boot[EXO_BOOT_ID];
    unsigned lost = 0;
    welcome.kind = EXO_WIRE_WELCOME;
    cr_assert_eq(exo_wire_add(&short_one, &welcome, NULL), EXO_OK);
    cr_assert_eq(exo_wire_add(&short_one,
                              &(exo_envelope){.kind = EXO_WIRE_GOODBYE, .text = "it ended"}, NULL),
                 EXO_OK);
    exo_wire_finish(&short_one, 0);
    exo_boot_id(boot);
    welcome.who.boot = boot; /* claims to be of this host, with a process that has ended */
    welcome.who.pid = (uint32_t)getpid();
    cr_assert_eq(exo_wire_add(&dead_one, &welcome, NULL), EXO_OK);
    exo_wire_finish(&dead_one, 0);
    cr_assert_eq(zmq_bind(router, net_end_ipc), 0);
    net_end_open(&client, NULL, NULL);
    cr_expect_eq(connect_to_impostor(
                     &client, &(struct impostor){router, dead_one.data, dead_one.size}, &err),
                 EXO_PEER_LOST);
    cr_expect_not_null(strstr(err.text, "its process has ended"), "%s", err.text);
    /* connect may find the peer lost, or return it before it is lost */
    for (int i = 0; i < 50; i++) {
        exo_status st = connect_to_impostor(
            &client, &(struct impostor){router, short_one.data, short_one.size}, &err);
        cr_assert(st == EXO_OK || st == EXO_PEER_LOST, "%d: %s", (int)st, err.text);
        lost += st == EXO_PEER_LOST;
    }
    cr_expect_gt(lost, 0, "each was found alive");
    EVENTUALLY(client.lost == 50);
    exo_wire_release(&short_one);
    exo_wire_release(&dead_one);
    net_end_close(&client);
    zmq_close(router);
    zmq_ctx_term(context);
}

/* --- Messages of peers ------------------------------------------------------------------------ */

/* One envelope or frame of a peer that has said Hello. */
static const struct {
    const char *what;
    exo_envelope envelope;
    uint32_t number;
    size_t frames;
    const char *cause; /* NULL: no reason to lose the peer */
} hostile[] = {
    {"too many frames", {.kind = EXO_WIRE_BEAT}, 1, 300, "too many frames"},
    {"frames that nobody names", {.kind = EXO_WIRE_BEAT}, 1, 2, "2 frames that no envelope names"},
    {"a frame missing",
     {.kind = EXO_WIRE_CALL, .method = "add", .payload = {.place = EXO_WIRE_FRAMED}},
     1,
     0,
     "not there"},
    {"a payload that did not come",
     {.kind = EXO_WIRE_CALL, .method = "add", .payload = {.place = EXO_WIRE_LANDED}},
     1,
     0,
     "did not come"},
    {"a piece without its frame",
     {.kind = EXO_WIRE_PIECE, .size = 1 << 20, .payload = {.place = EXO_WIRE_FRAMED}},
     1,
     0,
     "without its frame"},
    {"pieces of too much",
     {.kind = EXO_WIRE_PIECE, .size = UINT64_MAX, .payload = {.place = EXO_WIRE_FRAMED}},
     1,
     1,
     "a payload of 18446744073709551615 bytes in pieces"},
    {"pieces of too little",
     {.kind = EXO_WIRE_PIECE, .size = 5, .payload = {.place = EXO_WIRE_FRAMED}},
     1,
     1,
     "a payload of 5 bytes in pieces"},
    {"a gap", {.kind = EXO_WIRE_BEAT}, 2, 0, "messages were lost"},
    {"a message again", {.kind = EXO_WIRE_BEAT}, 0, 0, "messages were lost"},
    {"a read that was not sent",
     {.kind = EXO_WIRE_BEAT, .read = 100000},
     1,
     0,
     "more than was sent"},
    {"refused", {.kind = EXO_WIRE_REFUSED, .text = "no\nlevel=error"}, 1, 0, "no?level=error"},
    {"goodbye", {.kind = EXO_WIRE_GOODBYE, .text = ""}, 1, 0, "goodbye"},
    {"Hello twice", STRANGER_HELLO, 1, 0, NULL},
    {"Welcome", {.kind = EXO_WIRE_WELCOME, .who = {.node = 5}}, 1, 0, NULL},
    {"a reply to nothing", {.kind = EXO_WIRE_REPLY, .id = 77}, 1, 0, NULL},
    {"a cancel of nothing", {.kind = EXO_WIRE_CANCEL, .id = 77}, 1, 0, NULL},
};

/* A message whose frames have no end is cut off. */
Test(net, a_message_ends_some_time)
{
    static const uint8_t part[64 * 1024];
    for (int i = 0; i < 2; i++) {
        net_end server = {0};
        exo_wire_writer w = {0};
        char reason[EXO_WIRE_REASON];
        net_end_open(&server, net_end_endpoint(i), NULL);
        stranger s = new_stranger(&server);
        uint64_t before = exo_intake_tick(NULL).overfull;
        stranger_say_all(&s, 0, &hello, 1, 0);
        stranger_expect(&s, EXO_WIRE_WELCOME, reason);
        cr_assert_eq(exo_wire_add(&w, &(exo_envelope){.kind = EXO_WIRE_BEAT}, NULL), EXO_OK);
        exo_wire_finish(&w, 1);
        cr_assert_geq(zmq_send(s.socket, w.data, w.size, ZMQ_SNDMORE), 0);
        for (int k = 0; k < 2 * (EXO_LIMIT_INBOUND_BYTES >> 16); k++)
            cr_assert_geq(zmq_send(s.socket, part, sizeof part, ZMQ_SNDMORE), 0);
        cr_assert_geq(zmq_send(s.socket, part, sizeof part, 0), 0);
        EVENTUALLY(exo_intake_tick(NULL).overfull > before);
        EVENTUALLY(server.lost == 1);
        expect_honest_is_heard(&server);
        stranger_close(&s);
        exo_wire_release(&w);
        net_end_close(&server);
    }
}

/* A peer that sends heartbeats and reads nothing is lost in time. Until then calls give FULL, and
 * ZeroMQ holds at most a window for it. */
Test(net, a_peer_that_reads_nothing_is_lost)
{
    net_end server = {0};
    exo_envelope beat = {.kind = EXO_WIRE_BEAT};
    exo_status st = EXO_OK;
    char reason[EXO_WIRE_REASON];
    uint32_t number = 1;
    net_end_open(&server, "tcp://127.0.0.1:0", &(exo_net_opts){.unread_limit = 16 << 20});
    stranger s = new_stranger(&server);
    stranger_say_all(&s, 0, &hello, 1, 0);
    stranger_expect(&s, EXO_WIRE_WELCOME, reason);
    EVENTUALLY(server.opened == 1);
    for (int k = 0; k < 100 && st == EXO_OK; k++) {
        exo_payload large = net_end_zeros(k % 2 ? 3 << 20 : 300000);
        st = net_end_call(&server, server.peer, "add", &large);
    }
    cr_expect_eq(st, EXO_FULL);
    pthread_mutex_lock(&server.net->lock);
    cr_expect_leq(server.peer->sent_bytes - server.peer->read_bytes,
                  EXO_LIMIT_WINDOW + EXO_LIMIT_FRAME);
    cr_expect_gt(server.peer->parcel_bytes, 0);
    server.peer->read_at -= 3600 * EXO_SECOND; /* as if it had read nothing for an hour */
    server.net->next_tick = in_ms(200);        /* some heartbeats come first */
    pthread_mutex_unlock(&server.net->lock);
    exo_time until = in_ms(60000);
    while (server.lost == 0 && exo_now(exo_clock_real()) < until) {
        stranger_say_all(&s, number++, &beat, 1, 0);
        usleep(20000);
    }
    cr_expect_eq(server.lost, 1);
    cr_expect_not_null(strstr(server.cause, "read nothing"), "%s", server.cause);
    stranger_close(&s);
    net_end_close(&server);
}

/* The net's own messages pass between the pieces of a large payload. */
Test(net, a_large_payload_lets_others_pass)
{
    static uint8_t half[EXO_LIMIT_PIECE];
    net_end server = {0};
    exo_wire_writer w = {0};
    char reason[EXO_WIRE_REASON];
    net_end_open(&server, net_end_ipc, NULL);
    stranger s = new_stranger(&server);
    stranger_say_all(&s, 0, &hello, 1, 0);
    stranger_expect(&s, EXO_WIRE_WELCOME, reason);
    for (uint32_t k = 0; k < 2; k++) {
        cr_assert_eq(exo_wire_add(&w,
                                  &(exo_envelope){.kind = EXO_WIRE_PIECE,
                                                  .size = 2 * EXO_LIMIT_PIECE,
                                                  .payload = {.place = EXO_WIRE_FRAMED}},
                                  NULL),
                     EXO_OK);
        exo_wire_finish(&w, 1 + 2 * k);
        cr_assert_geq(zmq_send(s.socket, w.data, w.size, ZMQ_SNDMORE), 0);
        cr_assert_geq(zmq_send(s.socket, half, sizeof half, 0), 0);
        exo_wire_clear(&w);
        stranger_say_all(&s, 2 + 2 * k, &(exo_envelope){.kind = EXO_WIRE_BEAT}, 1, 0);
    }
    stranger_say_all(&s, 5,
                     &(exo_envelope){.kind = EXO_WIRE_CALL,
                                     .method = "add",
                                     .payload = {.place = EXO_WIRE_LANDED}},
                     1, 0);
    EVENTUALLY(server.calls == 1);
    cr_expect_eq(server.lost, 0);
    exo_wire_release(&w);
    stranger_close(&s);
    net_end_close(&server);
}

Test(net, survives_what_a_hostile_peer_says)
{
    for (int i = 0; i < 2; i++) {
        net_end server = {0};
        unsigned losses = 0;
        net_end_open(&server, net_end_endpoint(i), NULL);
        for (size_t k = 0; k < sizeof hostile / sizeof hostile[0]; k++) {
            char reason[EXO_WIRE_REASON];
            stranger s = new_stranger(&server);
            stranger_say_all(&s, 0, &hello, 1, 0);
            stranger_expect(&s, EXO_WIRE_WELCOME, reason);
            stranger_say_all(&s, hostile[k].number, &hostile[k].envelope, 1, hostile[k].frames);
            if (!hostile[k].cause) { /* the peer is still there, and leaves when it wants to */
                unsigned calls = server.calls;
                stranger_say_all(&s, 2, &(exo_envelope){.kind = EXO_WIRE_CALL, .method = "add"}, 1,
                                 0);
                EVENTUALLY(server.calls == calls + 1);
                stranger_say_all(&s, 3,
                                 &(exo_envelope){.kind = EXO_WIRE_GOODBYE, .text = hostile[k].what},
                                 1, 0);
            }
            losses++;
            EVENTUALLY(server.lost == losses);
            const char *cause = hostile[k].cause ? hostile[k].cause : hostile[k].what;
            cr_expect_not_null(strstr(server.cause, cause), "%s: '%s'", hostile[k].what,
                               server.cause);
            if (hostile[k].cause && hostile[k].envelope.kind != EXO_WIRE_GOODBYE &&
                hostile[k].envelope.kind != EXO_WIRE_REFUSED) { /* it is told why */
                cr_expect(stranger_hears(&s, EXO_WIRE_GOODBYE, reason), "%s", hostile[k].what);
                cr_expect_not_null(strstr(reason, cause), "%s: '%s'", hostile[k].what, reason);
            }
            stranger_close(&s);
        }
        unsigned before = server.lost;
        expect_honest_is_heard(&server);
        EVENTUALLY(server.lost == before + 1);
        net_end_close(&server);
        cr_expect_eq(server.lost, before + 1, "each is lost once");
    }
}

Test(net, survives_frames_that_are_no_envelopes)
{
    static uint8_t frame[EXO_WIRE_FRAME0 + 1];
    net_end server = {0};
    net_end_open(&server, net_end_ipc, NULL);
    for (int k = 0; k < 4; k++) {
        char reason[EXO_WIRE_REASON];
        stranger s = new_stranger(&server);
        size_t size = k == 3 ? sizeof frame : 70000;
        stranger_say_all(&s, 0, &hello, 1, 0);
        stranger_expect(&s, EXO_WIRE_WELCOME, reason);
        /* 0: a wrong count; 1: nested fields; 2, 3: groups */
        memset(frame, k == 0 ? 0xff : k == 1 ? 0x0a : 0x0b, sizeof frame);
        memcpy(frame, "EXOG\2\0\1\0\1\0\0\0", EXO_WIRE_HEADER);
        frame[6] = k == 0 ? 0xff : 1;
        for (int b = 0; k > 0 && b < 4; b++)
            frame[EXO_WIRE_HEADER + b] = (uint8_t)((size - EXO_WIRE_HEADER - 4) >> (8 * b));
        zmq_send(s.socket, frame, size, 0);
        EVENTUALLY(server.lost == (unsigned)k + 1);
        zmq_send(s.socket, frame, size, 0); /* after it was lost */
        stranger_close(&s);
    }
    expect_honest_is_heard(&server);
    net_end_close(&server);
}

enum {
    REPLIES = 16 << 20 /* bytes that may wait */
};

static void
call_times(stranger *s, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        stranger_say(s, &(exo_envelope){.kind = EXO_WIRE_CALL, .id = s->next, .method = "add"});
}

/* The bytes of replies that wait for the peer; *sent: all bytes that were sent to it. */
static uint64_t
bytes_that_wait(net_end *server, uint64_t *sent)
{
    pthread_mutex_lock(&server->net->lock);
    uint64_t bytes = server->peer->parcel_replies;
    *sent = server->peer->sent_bytes;
    pthread_mutex_unlock(&server->net->lock);
    return bytes;
}

/* Tells the server, until no reply waits, that everything was read. */
static void
read_all(net_end *server, stranger *s)
{
    uint64_t sent;
    exo_time until = in_ms(60000);
    while (bytes_that_wait(server, &sent) > 0 && exo_now(exo_clock_real()) < until) {
        stranger_say(s, &(exo_envelope){.kind = EXO_WIRE_BEAT, .read = sent});
        usleep(1000);
    }
    cr_expect_eq(bytes_that_wait(server, &sent), 0);
}

/* A peer makes calls and reads no reply. Replies beyond the limit are refused, and the peer is
 * heard again when it has read some. */
Test(net, refuses_replies_to_a_peer_that_lets_them_gather)
{
    uint64_t sent;
    net_end server = {.reply_bytes = 1 << 20};
    net_end_open(&server, net_end_ipc, &(exo_net_opts){.unread_limit = REPLIES});
    stranger s = new_stranger(&server);
    stranger_enter(&s, 99);
    call_times(&s, 60);
    EVENTUALLY(server.calls == 60);
    cr_expect_geq(server.refused, 60 - (REPLIES + EXO_LIMIT_WINDOW) / (1 << 20) - 1);
    cr_expect_gt(bytes_that_wait(&server, &sent), REPLIES / 2);
    cr_expect_leq(bytes_that_wait(&server, &sent), REPLIES);
    cr_expect(exo_peer_is_full(server.peer), "nothing more is done for it");
    unsigned refused = server.refused;
    server.reply_bytes = 100;
    call_times(&s, 1);
    EVENTUALLY(server.calls == 61);
    cr_expect_eq(server.refused, refused, "a refusal would be longer");
    read_all(&server, &s);
    EVENTUALLY(!exo_peer_is_full(server.peer));
    server.reply_bytes = 1 << 20;
    call_times(&s, 4);
    EVENTUALLY(server.calls == 65);
    cr_expect_eq(server.refused, refused);
    cr_expect_eq(server.lost, 0);
    stranger_close(&s);
    EVENTUALLY(server.lost == 1);
    server.reply_bytes = 0;
    expect_honest_is_heard(&server);
    net_end_close(&server);
}

/* A reply that is larger than the limit passes alone, also behind small replies; no reply passes
 * behind it. */
Test(net, lets_one_reply_be_larger_than_all_that_may_wait)
{
    uint64_t sent;
    net_end server = {.reply_bytes = 1000};
    net_end_open(&server, net_end_ipc, &(exo_net_opts){.unread_limit = REPLIES});
    stranger s = new_stranger(&server);
    stranger_enter(&s, 99);
    for (unsigned round = 0; round < 2; round++) {
        server.reply_bytes = 1000;
        call_times(&s, 10);
        EVENTUALLY(server.calls == round * 12 + 10);
        server.reply_bytes = 3 * REPLIES;
        call_times(&s, 2);
        EVENTUALLY(server.calls == round * 12 + 12);
        cr_expect_eq(server.refused, round + 1);
        cr_expect_geq(bytes_that_wait(&server, &sent), 3 * REPLIES,
                      "its memory is there until all of it was sent");
        cr_expect_lt(bytes_that_wait(&server, &sent), 3 * REPLIES + 100000);
        read_all(&server, &s);
    }
    cr_expect_eq(server.lost, 0);
    stranger_close(&s);
    net_end_close(&server);
}

/* Small messages take more memory than their bytes. They are gathered into larger ones, and their
 * number is bounded too. */
Test(net, bounds_the_number_of_calls_and_replies_that_wait)
{
    enum {
        CALLS = 500,
        MOST = 500000
    };
    static exo_envelope calls[CALLS];
    net_end server = {.reply_bytes = 1};
    exo_status st = EXO_OK;
    char reason[EXO_WIRE_REASON];
    net_end_open(&server, net_end_ipc, &(exo_net_opts){.peer_timeout = 600 * EXO_SECOND});
    stranger s = new_stranger(&server);
    stranger_say_all(&s, 0, &hello, 1, 0);
    stranger_expect(&s, EXO_WIRE_WELCOME, reason);
    EVENTUALLY(server.opened == 1);
    for (int i = 0; i < MOST && st == EXO_OK; i++) {
        exo_payload none = {0};
        st = net_end_call(&server, server.peer, "add", &none);
        exo_net_flush(server.net);
    }
    cr_expect_eq(st, EXO_FULL);
    pthread_mutex_lock(&server.net->lock);
    cr_expect_geq(server.peer->parcel_envelopes + server.peer->writer.count, EXO_LIMIT_WAITING);
    cr_expect_lt(server.peer->parcel_bytes, server.peer->parcel_envelopes * 64);
    pthread_mutex_unlock(&server.net->lock);
    for (size_t i = 0; i < CALLS; i++)
        calls[i] = (exo_envelope){.kind = EXO_WIRE_CALL, .id = i + 1, .method = "add"};
    for (uint32_t number = 1; number <= MOST / CALLS && server.lost == 0; number++)
        stranger_say_all(&s, number, calls, CALLS, 0);
    EVENTUALLY(server.lost == 1);
    cr_expect_not_null(strstr(server.cause, "does not read"), "%s", server.cause);
    stranger_close(&s);
    net_end_close(&server);
}

/* Over tcp, a claim to be a process of this host proves nothing: a silent peer is lost, although
 * the process that it named lives. */
Test(net, takes_nobody_over_tcp_for_alive)
{
    char boot[EXO_BOOT_ID];
    net_end server = {0};
    net_end_open(&server, "tcp://127.0.0.1:0", &(exo_net_opts){.peer_timeout = 500 * EXO_MS});
    stranger s = new_stranger(&server);
    exo_envelope claim = hello;
    exo_boot_id(boot);
    claim.who.boot = boot;
    claim.who.pid = (uint32_t)getpid();
    claim.who.start = exo_process_start((uint32_t)getpid());
    stranger_say(&s, &claim);
    EVENTUALLY(server.opened == 1);
    EVENTUALLY(server.lost == 1);
    cr_expect_not_null(strstr(server.cause, "nothing was heard"), "%s", server.cause);
    stranger_close(&s);
    net_end_close(&server);
}

/* --- One process over several ways ------------------------------------------------------------- */

/* Without keys, tcp proves nothing: who came over it may be the process that comes over ipc. */
Test(net, takes_a_process_over_tcp_and_over_ipc_for_one)
{
    for (int first = 0; first < 2; first++) {
        net_end ends[2] = {{0}, {0}};
        net_end_open(&ends[0], net_end_ipc, NULL);
        net_end_open(&ends[1], "tcp://127.0.0.1:0", NULL);
        exo_peer *one = net_end_connect(&ends[first], &ends[!first]);
        exo_peer *other = net_end_connect(&ends[!first], &ends[first]);
        EVENTUALLY(ends[0].opened > 0 && ends[1].opened > 0);
        cr_expect_eq(ends[0].lost + ends[1].lost, 0);
        exo_peer_drop(&one);
        exo_peer_drop(&other);
        net_end_close(&ends[0]);
        net_end_close(&ends[1]);
    }
}
