/* Nets against each other, and against strangers with a raw ZeroMQ socket who say what no net says. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <zmq.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "net_impl.h"
#include "process.h"
#include "temp.h"

/* --- Two ends ------------------------------------------------------------------------------------------------------------------ */

/* A net and what it heard. */
typedef struct end {
    exo_net *net;
    atomic_uint opened, lost, calls, replies, cancels;
    atomic_ullong next;       /* number of the call that is due */
    atomic_uint wrong;        /* calls out of order, or not whole */
    size_t reply_bytes;       /* of the reply to each call; 0: there is none */
    atomic_bool stopped;      /* nothing may come any more */
    _Atomic(exo_peer *) peer; /* the last that was opened; held */
    char cause[EXO_ERR_TEXT]; /* of the last loss; read after `lost` is seen */
} end;

static char folder[64], ipc[128];

static struct {
    pthread_mutex_t lock;
    char text[1 << 16];
    unsigned lines;
} logged = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
log_line(void *context, exo_log_level level, const char *line)
{
    (void)context;
    (void)level;
    pthread_mutex_lock(&logged.lock);
    size_t at = strlen(logged.text);
    snprintf(logged.text + at, sizeof logged.text - at, "%s\n", line);
    logged.lines++;
    pthread_mutex_unlock(&logged.lock);
}

static bool
was_logged(const char *text)
{
    pthread_mutex_lock(&logged.lock);
    bool found = strstr(logged.text, text) != NULL;
    pthread_mutex_unlock(&logged.lock);
    return found;
}

static void
setup(void)
{
    temp_folder(folder, sizeof folder);
    snprintf(ipc, sizeof ipc, "ipc://%s/s", folder);
    exo_log_set_sink(log_line, NULL);
}

static void
teardown(void)
{
    exo_log_set_sink(NULL, NULL);
    temp_remove(folder);
}

TestSuite(net, .init = setup, .fini = teardown);

static exo_time
in_ms(int64_t ms)
{
    return exo_deadline(exo_clock_real(), ms * EXO_MS);
}

#define EVENTUALLY(condition)                                                                                          \
    do {                                                                                                               \
        exo_time until = in_ms(60000);                                                                                 \
        while (!(condition) && exo_now(exo_clock_real()) < until)                                                      \
            usleep(200);                                                                                               \
        cr_assert(condition, "it did not come to be: %s", #condition);                                                 \
    } while (0)

/* Bytes of call `number` at `i`. */
static uint8_t
expected(uint64_t number, size_t i)
{
    return (uint8_t)(i < 8 ? number >> (8 * i) : number + i);
}

static size_t
size_of(uint64_t number)
{
    return number % 1000 == 999 ? 100000 : 8 + number % 100;
}

static void
received(void *context, exo_peer *peer, const exo_envelope *e, exo_payload *payload)
{
    end *self = context;
    self->wrong += atomic_load(&self->stopped);
    if (e->kind == EXO_WIRE_REPLY) {
        self->replies++;
    } else if (e->kind == EXO_WIRE_CANCEL) {
        self->cancels++;
    } else if (strcmp(e->method, "count") == 0) {
        uint64_t number = self->next++;
        bool right = payload->size == size_of(number);
        for (size_t i = 0; right && i < payload->size; i++)
            right = ((const uint8_t *)payload->data)[i] == expected(number, i);
        self->wrong += !right;
        self->calls++;
    } else {
        self->calls++;
    }
    exo_payload_release(payload);
    if (e->kind == EXO_WIRE_CALL && self->reply_bytes > 0) {
        exo_envelope reply = {.kind = EXO_WIRE_REPLY, .id = e->id};
        exo_payload value = {.data = exo_calloc(1, self->reply_bytes), .size = self->reply_bytes, .release = exo_free};
        exo_net_send(self->net, peer, &reply, &value, NULL);
    }
}

static void
settle(void *context, exo_driver driver)
{
    (void)context;
    (void)driver;
}

static void
opened(void *context, exo_peer *peer)
{
    end *self = context;
    exo_peer *before = atomic_exchange(&self->peer, exo_peer_hold(peer));
    exo_peer_drop(&before);
    self->opened++;
}

static void
lost(void *context, exo_peer *peer, const char *cause)
{
    end *self = context;
    self->wrong += atomic_load(&self->stopped) || exo_peer_is_open(peer);
    snprintf(self->cause, sizeof self->cause, "%s", cause);
    self->lost++;
}

static const exo_net_handler handler = {.received = received, .settle = settle, .opened = opened, .lost = lost};

/* endpoint: NULL: it listens nowhere. `more` may be NULL. */
static void
open_end(end *e, const char *endpoint, const exo_net_opts *more)
{
    exo_net_opts opts = more ? *more : (exo_net_opts){0};
    exo_err err = {0};
    opts.name = opts.name ? opts.name : "end";
    opts.endpoints = &endpoint;
    opts.num_endpoints = endpoint ? 1 : 0;
    opts.handler = &handler;
    opts.context = e;
    cr_assert_eq(exo_net_open(&e->net, &opts, &err), EXO_OK, "%s", err.text);
}

static void
close_end(end *e)
{
    exo_peer *peer = atomic_exchange(&e->peer, NULL);
    exo_net_stop(e->net);
    atomic_store(&e->stopped, true);
    exo_net_close(&e->net);
    exo_peer_drop(&peer);
    cr_expect_eq(e->wrong, 0);
}

static exo_peer *
connect_to(end *from, end *to)
{
    exo_peer *peer = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_net_connect(from->net, exo_net_endpoint(to->net, 0), NULL, in_ms(20000), &peer, &err), EXO_OK,
                 "%s", err.text);
    return peer;
}

static exo_payload
numbered(uint64_t number)
{
    exo_payload payload = {.size = size_of(number), .release = exo_free};
    uint8_t *data = exo_calloc(1, payload.size);
    for (size_t i = 0; i < payload.size; i++)
        data[i] = expected(number, i);
    payload.data = data;
    return payload;
}

static exo_status
call(end *from, exo_peer *peer, const char *method, exo_payload *payload)
{
    exo_envelope e = {.kind = EXO_WIRE_CALL, .id = 1, .method = method, .timeout = INT64_MAX};
    return exo_net_send(from->net, peer, &e, payload, NULL);
}

/* An honest peer comes, calls, is heard, and goes. */
static void
expect_honest_is_heard(end *server)
{
    static end client;
    exo_payload none = {0};
    unsigned calls = server->calls;
    open_end(&client, NULL, NULL);
    exo_peer *peer = connect_to(&client, server);
    cr_expect_eq(call(&client, peer, "add", &none), EXO_OK);
    EVENTUALLY(server->calls == calls + 1);
    exo_peer_drop(&peer);
    close_end(&client);
    memset(&client, 0, sizeof client);
}

static const char *const endpoints[] = {NULL, "tcp://127.0.0.1:0"};

static const char *
endpoint(int i)
{
    return i == 0 ? ipc : endpoints[i];
}

/* --- What is sent comes, once, in order --------------------------------------------------------------------------------------------- */

static void
send_numbered(end *from, exo_peer *peer, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        exo_payload payload = numbered(i);
        exo_status st = call(from, peer, "count", &payload);
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
        end server = {0}, client = {0};
        open_end(&server, endpoint(i), NULL);
        open_end(&client, NULL, NULL);
        exo_peer *peer = connect_to(&client, &server);
        cr_expect(exo_peer_is_near(peer));
        cr_expect_eq(exo_peer_node(peer), exo_net_node(server.net));
        send_numbered(&client, peer, 100000);
        EVENTUALLY(server.calls == 100000);
        cr_expect_eq(server.opened, 1);
        exo_peer_drop(&peer);
        close_end(&client);
        EVENTUALLY(server.lost == 1);
        cr_expect_eq(client.lost, 1);
        close_end(&server);
        cr_expect_eq(server.lost, 1);
    }
}

static void
ignore_signal(int number)
{
    (void)number;
}

/* A signal that interrupts ZeroMQ is no broken connection. */
Test(net, is_not_disturbed_by_signals)
{
    end server = {0}, client = {0};
    open_end(&server, ipc, NULL);
    open_end(&client, NULL, NULL);
    exo_peer *peer = connect_to(&client, &server);
    struct sigaction action = {.sa_handler = ignore_signal};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 50}, {0, 50}}, NULL);
    send_numbered(&client, peer, 20000);
    EVENTUALLY(server.calls == 20000);
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    exo_peer_drop(&peer);
    close_end(&client);
    close_end(&server);
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
        end server = {0}, client = {0};
        unsigned sent = 0;
        releases = 0;
        open_end(&server, endpoint(i), NULL);
        open_end(&client, NULL, NULL);
        exo_peer *peer = connect_to(&client, &server);
        for (; sent < 40; sent++) {
            exo_payload payload = large(sent % 2 ? 1000000 : 1000);
            cr_expect_eq(call(&client, peer, "add", &payload), EXO_OK);
            cr_expect_null(payload.data);
        }
        EVENTUALLY(server.calls == sent && releases == sent);
        memset(method, 'm', sizeof method - 1); /* refused ones, too */
        exo_payload payload = large(1000000);
        cr_expect_eq(call(&client, peer, method, &payload), EXO_INVAL);
        cr_expect_eq(releases, ++sent);
        exo_peer_lose(client.net, peer, "a test");
        payload = large(1000000);
        cr_expect_eq(call(&client, peer, "add", &payload), EXO_PEER_LOST);
        cr_expect_eq(releases, ++sent);
        EVENTUALLY(client.lost == 1 && server.lost == 1);
        cr_expect_str_eq(client.cause, "a test");
        cr_expect_str_eq(server.cause, "a test", "the other end hears why");
        exo_peer_drop(&peer);
        close_end(&client);
        close_end(&server);
        cr_expect_eq(releases, sent);
    }
}

/* --- Strangers ------------------------------------------------------------------------------------------------------------------------- */

/* A raw DEALER. */
typedef struct stranger {
    void *context, *socket;
} stranger;

static stranger
new_stranger(const end *server)
{
    stranger s = {.context = zmq_ctx_new()};
    const int none = 0, wait = 5000;
    s.socket = zmq_socket(s.context, ZMQ_DEALER);
    zmq_setsockopt(s.socket, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(s.socket, ZMQ_RCVTIMEO, &wait, sizeof wait);
    cr_assert_eq(zmq_connect(s.socket, exo_net_endpoint(server->net, 0)), 0);
    return s;
}

static void
close_stranger(stranger *s)
{
    zmq_close(s->socket);
    zmq_ctx_term(s->context);
}

#define HELLO                                                                                                          \
    {                                                                                                                  \
        .kind = EXO_WIRE_HELLO, .who = {                                                                               \
            .node = 99,                                                                                                \
            .pid = 1,                                                                                                  \
            .start = 1,                                                                                                \
            .name = "stranger",                                                                                        \
            .boot = "another kernel",                                                                                  \
            .endpoint = "",                                                                                            \
            .cluster = ""                                                                                              \
        }                                                                                                              \
    }

static const exo_envelope hello = HELLO;

/* Sends a message of `count` envelopes and `frames` more frames. */
static void
say_all(stranger *s, uint32_t number, const exo_envelope *envelopes, size_t count, size_t frames)
{
    exo_wire_writer w = {0};
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(exo_wire_add(&w, &envelopes[i], NULL), EXO_OK);
    exo_wire_finish(&w, number);
    cr_assert_geq(zmq_send(s->socket, w.data, w.size, frames ? ZMQ_SNDMORE : 0), 0);
    for (size_t i = 0; i < frames; i++)
        cr_assert_geq(zmq_send(s->socket, "frame", 5, i + 1 < frames ? ZMQ_SNDMORE : 0), 0);
    exo_wire_release(&w);
}

static void
say(stranger *s, uint32_t number, const exo_envelope *e)
{
    say_all(s, number, e, 1, 0);
}

/* Reads until an envelope of that kind comes; gives its reason. */
static void
expect_said(stranger *s, exo_wire_kind kind, char reason[EXO_WIRE_REASON])
{
    static uint8_t data[EXO_WIRE_FRAME0];
    exo_wire_reader r;
    exo_envelope e = {0};
    cr_assert_eq(exo_wire_reader_init(&r, NULL), EXO_OK);
    while (e.kind != kind) {
        int size = zmq_recv(s->socket, data, sizeof data, 0);
        cr_assert_geq(size, 0, "nothing of kind %d came", (int)kind);
        if (exo_wire_open(&r, data, (size_t)size, NULL) == EXO_OK)
            cr_assert_eq(exo_wire_next(&r, &e, NULL), EXO_OK);
    }
    snprintf(reason, EXO_WIRE_REASON, "%s", e.text ? e.text : "");
    exo_wire_reader_release(&r);
}

static void
expect_refused(end *server, stranger *s, const char *why)
{
    char reason[EXO_WIRE_REASON];
    expect_said(s, EXO_WIRE_REFUSED, reason);
    cr_expect_not_null(strstr(reason, why), "'%s' does not say '%s'", reason, why);
    EVENTUALLY(was_logged(why));
    close_stranger(s);
    cr_expect_eq(server->opened, 0);
}

Test(net, refuses_strangers_with_a_reason)
{
    for (int i = 0; i < 2; i++) {
        end server = {0};
        stranger s;
        exo_envelope e = hello;
        open_end(&server, endpoint(i), &(exo_net_opts){.cluster = "ours"});

        s = new_stranger(&server);
        zmq_send(s.socket, "garbage", 7, 0);
        expect_refused(&server, &s, "no message of exogym");

        s = new_stranger(&server);
        zmq_send(s.socket, "EXOG\2\0\1\0\0\0\0\0", 12, 0);
        expect_refused(&server, &s, "version 2");

        s = new_stranger(&server);
        e.who.cluster = "theirs\nlevel=error";
        say(&s, 0, &e);
        expect_refused(&server, &s, "not 'theirs?level=error'");

        s = new_stranger(&server);
        say(&s, 0, &(exo_envelope){.kind = EXO_WIRE_CALL, .method = "add"});
        expect_refused(&server, &s, "does not begin with a Hello");

        s = new_stranger(&server); /* says that it is a process of this host, which is not there */
        char boot[EXO_BOOT_ID];
        exo_boot_id(boot);
        e = hello;
        e.who.boot = boot;
        e.who.pid = (uint32_t)getpid();
        e.who.start = 1;
        say(&s, 0, &e);
        expect_refused(&server, &s, "not what it says");

        s = new_stranger(&server);
        cr_assert_eq(zmq_disconnect(s.socket, exo_net_endpoint(server.net, 0)), 0);
        zmq_setsockopt(s.socket, ZMQ_ROUTING_ID, "a long routing id", 17);
        cr_assert_eq(zmq_connect(s.socket, exo_net_endpoint(server.net, 0)), 0);
        say(&s, 0, &hello);
        expect_refused(&server, &s, "routing id of 17 bytes");

        expect_honest_is_heard(&server);
        close_end(&server);
    }
}

Test(net, connects_to_no_other_cluster)
{
    end server = {0}, client = {0};
    exo_peer *peer = NULL;
    exo_err err = {0};
    open_end(&server, ipc, &(exo_net_opts){.cluster = "ours"});
    open_end(&client, NULL, &(exo_net_opts){.cluster = "theirs"});
    cr_expect_eq(exo_net_connect(client.net, ipc, NULL, in_ms(20000), &peer, &err), EXO_UNSUPPORTED);
    cr_expect_not_null(strstr(err.text, "the cluster 'ours', not 'theirs'"), "%s", err.text);
    cr_expect_null(peer);
    exo_net_stop(client.net);
    cr_expect_eq(exo_net_connect(client.net, ipc, NULL, in_ms(20000), &peer, &err), EXO_CLOSED);
    close_end(&client);
    cr_expect_eq(client.lost, 0, "it never was a peer");
    close_end(&server);
    cr_expect_eq(server.opened + server.lost, 0);
}

/* One envelope or frame of a peer that has said Hello. */
static const struct {
    const char *what;
    exo_envelope envelope;
    uint32_t number;
    size_t frames;
    const char *cause; /* NULL: it is no reason to lose it */
} hostile[] = {
    {"too many frames", {.kind = EXO_WIRE_BEAT}, 1, 300, "too many frames"},
    {"frames that nobody names", {.kind = EXO_WIRE_BEAT}, 1, 2, "2 frames that no envelope names"},
    {"a frame missing",
     {.kind = EXO_WIRE_CALL, .method = "add", .payload = {.place = EXO_WIRE_FRAMED}},
     1,
     0,
     "not there"},
    {"a gap", {.kind = EXO_WIRE_BEAT}, 2, 0, "messages were lost"},
    {"a message again", {.kind = EXO_WIRE_BEAT}, 0, 0, "messages were lost"},
    {"a read that was not sent", {.kind = EXO_WIRE_BEAT, .read = 100000}, 1, 0, "more than was sent"},
    {"refused", {.kind = EXO_WIRE_REFUSED, .text = "no\nlevel=error"}, 1, 0, "no?level=error"},
    {"goodbye", {.kind = EXO_WIRE_GOODBYE, .text = ""}, 1, 0, "goodbye"},
    {"Hello twice", HELLO, 1, 0, NULL},
    {"Welcome", {.kind = EXO_WIRE_WELCOME, .who = {.node = 5}}, 1, 0, NULL},
    {"a reply to nothing", {.kind = EXO_WIRE_REPLY, .id = 77}, 1, 0, NULL},
    {"a cancel of nothing", {.kind = EXO_WIRE_CANCEL, .id = 77}, 1, 0, NULL},
};

Test(net, survives_what_a_hostile_peer_says)
{
    for (int i = 0; i < 2; i++) {
        end server = {0};
        unsigned losses = 0;
        open_end(&server, endpoint(i), NULL);
        for (size_t k = 0; k < sizeof hostile / sizeof hostile[0]; k++) {
            char reason[EXO_WIRE_REASON];
            stranger s = new_stranger(&server);
            say(&s, 0, &hello);
            expect_said(&s, EXO_WIRE_WELCOME, reason);
            say_all(&s, hostile[k].number, &hostile[k].envelope, 1, hostile[k].frames);
            if (!hostile[k].cause) { /* it is there still, and goes when it wants to */
                unsigned calls = server.calls;
                say(&s, 2, &(exo_envelope){.kind = EXO_WIRE_CALL, .method = "add"});
                EVENTUALLY(server.calls == calls + 1);
                say(&s, 3, &(exo_envelope){.kind = EXO_WIRE_GOODBYE, .text = hostile[k].what});
            }
            losses++;
            EVENTUALLY(server.lost == losses);
            const char *cause = hostile[k].cause ? hostile[k].cause : hostile[k].what;
            cr_expect_not_null(strstr(server.cause, cause), "%s: '%s'", hostile[k].what, server.cause);
            close_stranger(&s);
        }
        unsigned before = server.lost;
        expect_honest_is_heard(&server);
        EVENTUALLY(server.lost == before + 1);
        close_end(&server);
        cr_expect_eq(server.lost, before + 1, "each is lost once");
    }
}

Test(net, survives_frames_that_are_no_envelopes)
{
    static uint8_t frame[EXO_WIRE_FRAME0 + 1];
    end server = {0};
    open_end(&server, ipc, NULL);
    for (int k = 0; k < 4; k++) {
        char reason[EXO_WIRE_REASON];
        stranger s = new_stranger(&server);
        size_t size = k == 3 ? sizeof frame : 70000;
        say(&s, 0, &hello);
        expect_said(&s, EXO_WIRE_WELCOME, reason);
        memset(frame, k == 0 ? 0xff : k == 1 ? 0x0a : 0x0b, sizeof frame); /* a count that lies; nested; groups */
        memcpy(frame, "EXOG\1\0\1\0\1\0\0\0", EXO_WIRE_HEADER);
        frame[6] = k == 0 ? 0xff : 1;
        for (int b = 0; k > 0 && b < 4; b++)
            frame[EXO_WIRE_HEADER + b] = (uint8_t)((size - EXO_WIRE_HEADER - 4) >> (8 * b));
        zmq_send(s.socket, frame, size, 0);
        EVENTUALLY(server.lost == (unsigned)k + 1);
        zmq_send(s.socket, frame, size, 0); /* and goes on */
        close_stranger(&s);
    }
    expect_honest_is_heard(&server);
    close_end(&server);
}

/* Nobody fills our log, or our memory with answers. */
Test(net, refuses_a_flood_without_a_flood)
{
    end server = {0};
    open_end(&server, ipc, NULL);
    stranger s = new_stranger(&server);
    for (int i = 0; i < 20000; i++)
        cr_assert_geq(zmq_send(s.socket, "garbage", 7, 0), 0);
    expect_honest_is_heard(&server);
    cr_expect_leq(logged.lines, 2);
    close_stranger(&s);
    for (int i = 0; i < 100; i++) {
        s = new_stranger(&server);
        zmq_send(s.socket, "garbage", 7, 0);
        usleep(1000);
        close_stranger(&s);
    }
    expect_honest_is_heard(&server);
    cr_expect_leq(logged.lines, 60);
    close_end(&server);
}

/* What answers a Hello, and how. */
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

/* A process that connects to what is no net hears so at once. */
Test(net, connects_to_no_stranger)
{
    end client = {0};
    void *context = zmq_ctx_new(), *router = zmq_socket(context, ZMQ_ROUTER);
    exo_wire_writer early = {0};
    cr_assert_eq(exo_wire_add(&early, &(exo_envelope){.kind = EXO_WIRE_CALL, .method = "add"}, NULL), EXO_OK);
    exo_wire_finish(&early, 0);
    const struct {
        struct impostor impostor;
        const char *why;
    } cases[] = {{{router, "garbage", 7}, "no message of exogym"},
                 {{router, "EXOG\3\0\1\0\0\0\0\0", 12}, "version 3"},
                 {{router, early.data, early.size}, "does not begin with a Welcome"}};
    cr_assert_eq(zmq_bind(router, ipc), 0);
    open_end(&client, NULL, NULL);
    for (size_t k = 0; k < 3; k++) {
        struct impostor impostor = cases[k].impostor;
        pthread_t thread;
        exo_peer *peer = NULL;
        exo_err err = {0};
        cr_assert_eq(pthread_create(&thread, NULL, answer_hello, &impostor), 0);
        cr_expect_eq(exo_net_connect(client.net, ipc, NULL, in_ms(20000), &peer, &err), EXO_UNSUPPORTED);
        cr_expect_not_null(strstr(err.text, cases[k].why), "%s", err.text);
        pthread_join(thread, NULL);
    }
    exo_wire_release(&early);
    close_end(&client);
    cr_expect_eq(client.lost + client.calls, 0);
    zmq_close(router);
    zmq_ctx_term(context);
}

/* --- Processes that end, stop, or fall silent ----------------------------------------------------------------------------------------- */

/* A child with a net of its own that connects to `ipc` as soon as it is there, and answers calls. */
static pid_t
start_child(const char *boot)
{
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid > 0)
        return pid;
    static end client;
    client.reply_bytes = 8;
    exo_peer *peer = NULL;
    exo_net_opts opts = {.name = "child", .handler = &handler, .context = &client, .boot = boot};
    while (access(ipc + 6, F_OK) != 0)
        usleep(1000);
    if (exo_net_open(&client.net, &opts, NULL) != EXO_OK ||
        exo_net_connect(client.net, ipc, NULL, in_ms(20000), &peer, NULL) != EXO_OK)
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

Test(net, loses_a_killed_process_at_once_and_says_which)
{
    pid_t pid = start_child(NULL);
    char number[32];
    end server = {0};
    open_end(&server, ipc, NULL);
    EVENTUALLY(server.opened == 1);
    exo_time began = exo_now(exo_clock_real());
    kill(pid, SIGKILL);
    EVENTUALLY(server.lost == 1);
    exo_time took = exo_now(exo_clock_real()) - began;
    cr_expect_lt(took, 100 * EXO_MS, "it took %lld ms", (long long)(took / EXO_MS));
    snprintf(number, sizeof number, "%d", (int)pid);
    cr_expect_not_null(strstr(server.cause, number), "'%s' does not name process %s", server.cause, number);
    waitpid(pid, NULL, 0);
    close_end(&server);
    cr_expect_eq(server.lost, 1);
}

Test(net, does_not_lose_a_stopped_process)
{
    pid_t pid = start_child(NULL);
    end server = {0};
    exo_payload none = {0};
    open_end(&server, ipc, &(exo_net_opts){.peer_timeout = 100 * EXO_MS});
    EVENTUALLY(server.opened == 1);
    kill(pid, SIGSTOP);
    usleep(1500000);
    cr_expect_eq(server.lost, 0);
    cr_expect_eq(call(&server, server.peer, "add", &none), EXO_OK);
    kill(pid, SIGCONT);
    EVENTUALLY(server.replies == 1);
    reap(pid);
    EVENTUALLY(server.lost == 1);
    close_end(&server);
}

Test(net, loses_another_host_that_falls_silent)
{
    pid_t pid = start_child("another kernel");
    end server = {0};
    open_end(&server, ipc, &(exo_net_opts){.peer_timeout = 2500 * EXO_MS});
    EVENTUALLY(server.opened == 1);
    cr_expect(!exo_peer_is_near(server.peer));
    usleep(3500000); /* it beats */
    cr_expect_eq(server.lost, 0);
    kill(pid, SIGSTOP);
    EVENTUALLY(server.lost == 1);
    cr_expect_not_null(strstr(server.cause, "nothing was heard"), "%s", server.cause);
    reap(pid);
    close_end(&server);
    cr_expect_eq(server.lost, 1);
}

/* --- A peer that does not read ---------------------------------------------------------------------------------------------------------- */

enum {
    LIMIT = 4 << 20
};

Test(net, gives_full_when_the_peer_does_not_read)
{
    pid_t pid = start_child(NULL);
    end server = {0};
    exo_status st = EXO_OK;
    size_t sent = 0;
    open_end(&server, ipc, &(exo_net_opts){.unread_limit = LIMIT});
    EVENTUALLY(server.opened == 1);
    kill(pid, SIGSTOP);
    for (; st == EXO_OK && sent < 10 * LIMIT; sent += 50000) {
        exo_payload payload = large(50000);
        st = call(&server, server.peer, "add", &payload);
    }
    cr_expect_eq(st, EXO_FULL);
    cr_expect_gt(sent, LIMIT - 200000);
    cr_expect_lt(sent, LIMIT + 500000);
    cr_expect(exo_peer_is_full(server.peer));
    exo_envelope cancel = {.kind = EXO_WIRE_CANCEL, .id = 1};
    cr_expect_eq(exo_net_send(server.net, server.peer, &cancel, NULL, NULL), EXO_OK, "what must go goes");
    kill(pid, SIGCONT);
    EVENTUALLY(!exo_peer_is_full(server.peer));
    EVENTUALLY(server.replies == sent / 50000 - 1);
    exo_payload none = {0};
    cr_expect_eq(call(&server, server.peer, "add", &none), EXO_OK);
    EVENTUALLY(server.replies == sent / 50000);
    cr_expect_eq(server.lost, 0);
    reap(pid);
    close_end(&server);
}

/* It calls and calls, and reads no reply. */
Test(net, loses_a_peer_that_lets_replies_gather)
{
    end server = {.reply_bytes = 1 << 20};
    open_end(&server, ipc, &(exo_net_opts){.unread_limit = LIMIT});
    stranger s = new_stranger(&server);
    say(&s, 0, &hello);
    for (uint32_t i = 1; i < 40; i++)
        say(&s, i, &(exo_envelope){.kind = EXO_WIRE_CALL, .id = i, .method = "add"});
    EVENTUALLY(server.lost == 1);
    cr_expect_not_null(strstr(server.cause, "does not read"), "%s", server.cause);
    close_stranger(&s);
    server.reply_bytes = 0;
    expect_honest_is_heard(&server);
    close_end(&server);
}

/* --- Ends --------------------------------------------------------------------------------------------------------------------------------- */

struct sender {
    end *from;
    exo_peer *peer;
    pthread_t thread;
};

static void *
send_until_lost(void *argument)
{
    struct sender *s = argument;
    exo_status st = EXO_OK;
    while (st == EXO_OK || st == EXO_FULL) {
        exo_payload payload = large(100);
        st = call(s->from, s->peer, "add", &payload);
    }
    cr_expect_eq(st, EXO_PEER_LOST);
    return NULL;
}

static bool
never(void *argument)
{
    (void)argument;
    return false;
}

static void *
drive_until_closed(void *argument)
{
    end *e = argument;
    for (exo_time until = in_ms(20000); exo_now(exo_clock_real()) < until && !atomic_load(&e->stopped);)
        exo_net_drive(e->net, never, NULL, until);
    return NULL;
}

Test(net, stops_while_others_send_and_drive)
{
    for (int i = 0; i < 6; i++) {
        end server = {0}, client = {0};
        struct sender senders[4];
        pthread_t driver;
        open_end(&server, endpoint(i % 2), NULL);
        open_end(&client, NULL, NULL);
        exo_peer *peer = connect_to(&client, &server);
        for (int k = 0; k < 4; k++) {
            senders[k] = (struct sender){.from = &client, .peer = peer};
            cr_assert_eq(pthread_create(&senders[k].thread, NULL, send_until_lost, &senders[k]), 0);
        }
        end *stopped = i < 3 ? &client : &server;
        cr_assert_eq(pthread_create(&driver, NULL, drive_until_closed, stopped), 0);
        EVENTUALLY(server.calls > 1000);
        exo_net_stop(stopped->net);
        atomic_store(&stopped->stopped, true); /* whatever comes now is wrong */
        for (int k = 0; k < 4; k++)
            pthread_join(senders[k].thread, NULL);
        pthread_join(driver, NULL);
        EVENTUALLY(server.lost == 1 && client.lost == 1);
        exo_peer_drop(&peer);
        close_end(&client);
        close_end(&server);
        cr_expect_eq(server.lost + client.lost, 2);
    }
}

/* Two threads that wait while home drives: each until the other one has left the net. */
struct pair {
    end *end;
    atomic_uint left;
    atomic_bool held, goes_on; /* home is in a callback; it may leave it */
};

static void
hold_driver(void *context, exo_peer *peer, const exo_envelope *e, exo_payload *payload)
{
    struct pair *pair = context;
    (void)peer;
    (void)e;
    exo_payload_release(payload);
    atomic_store(&pair->held, true);
    while (!atomic_load(&pair->goes_on))
        usleep(100);
}

static bool
other_has_left(void *argument)
{
    return atomic_load(&((struct pair *)argument)->left) > 0;
}

static void *
wait_for_other(void *argument)
{
    struct pair *pair = argument;
    exo_net *net = pair->end->net;
    exo_net_drive(net, other_has_left, pair, in_ms(20000));
    atomic_fetch_add(&pair->left, 1);
    exo_net_kick(net);
    return NULL;
}

static void
ignore_opened(void *context, exo_peer *peer)
{
    (void)context;
    (void)peer;
}

static void
ignore_lost(void *context, exo_peer *peer, const char *cause)
{
    (void)context;
    (void)peer;
    (void)cause;
}

/* What the one waits for may need the other: it must not be kept until the one has had its reply. */
Test(net, of_two_that_want_to_drive_one_waits_by_other_means)
{
    static const exo_net_handler holding = {
        .received = hold_driver, .settle = settle, .opened = ignore_opened, .lost = ignore_lost};
    end server = {0}, client = {0};
    struct pair pair = {.end = &server};
    pthread_t waiters[2];
    exo_payload none = {0};
    const char *at = endpoint(0);
    exo_err err = {0};
    cr_assert_eq(
        exo_net_open(&server.net,
                     &(exo_net_opts){
                         .name = "server", .endpoints = &at, .num_endpoints = 1, .handler = &holding, .context = &pair},
                     &err),
        EXO_OK, "%s", err.text);
    open_end(&client, NULL, NULL);
    exo_peer *peer = connect_to(&client, &server);
    cr_assert_eq(call(&client, peer, "add", &none), EXO_OK);
    EVENTUALLY(pair.held);
    exo_time began = exo_now(exo_clock_real());
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&waiters[i], NULL, wait_for_other, &pair), 0);
    EVENTUALLY(server.net->wanted == 2);
    atomic_store(&pair.goes_on, true);
    for (int i = 0; i < 2; i++)
        pthread_join(waiters[i], NULL);
    cr_expect_lt(exo_now(exo_clock_real()) - began, 10 * EXO_SECOND);
    exo_peer_drop(&peer);
    close_end(&client);
    close_end(&server);
}

/* What a kick is for must not wait for the next beat, also not if it comes while the driver wakes from another. */
Test(net, no_kick_is_lost)
{
    end e = {0};
    open_end(&e, NULL, NULL);
    for (int i = 0; i < 100; i++) {
        EVENTUALLY(e.net->waiting);
        pthread_mutex_lock(&e.net->lock); /* the driver wakes, and gets no further */
        exo_net_kick(e.net);
        EVENTUALLY(!e.net->waiting);
        usleep(100);
        /* The rest of a kick that began before the driver woke. */
        if (!atomic_exchange(&e.net->kicked, true))
            cr_assert_eq(write(e.net->bell, "", 1), 1);
        pthread_mutex_unlock(&e.net->lock);
        EVENTUALLY(e.net->waiting);
        cr_assert(!e.net->kicked, "the next kick would not be heard");
    }
    close_end(&e);
}

struct completion {
    exo_net *net;
    bool done;
};

/* It is done by another thread as soon as this one has looked. */
static bool
done_after_look(void *argument)
{
    struct completion *c = argument;
    bool done = c->done;
    c->done = true;
    exo_net_kick(c->net);
    return done;
}

Test(net, a_kick_between_look_and_sleep_is_heard)
{
    end e = {0};
    open_end(&e, NULL, NULL);
    for (int i = 0; i < 20; i++) {
        struct completion c = {.net = e.net};
        exo_time deadline = in_ms(20000);
        pthread_mutex_lock(&e.net->lock);
        e.net->next_tick = deadline; /* nothing else wakes it */
        pthread_mutex_unlock(&e.net->lock);
        cr_assert(exo_net_drive(e.net, done_after_look, &c, deadline));
        cr_assert_lt(exo_now(exo_clock_real()), deadline, "it was heard of at the deadline only");
    }
    close_end(&e);
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

Test(net, keeps_no_descriptor)
{
    size_t before = open_descriptors();
    for (int i = 0; i < 20; i++) {
        end server = {0}, client = {0};
        exo_peer *none = NULL;
        open_end(&server, endpoint(i % 2), NULL);
        open_end(&client, NULL, NULL);
        exo_peer *first = connect_to(&client, &server), *second = connect_to(&client, &server);
        exo_peer_lose(client.net, first, "enough");
        EVENTUALLY(server.lost == 1);
        cr_expect_eq(exo_net_connect(client.net, "ipc:///nowhere/at/all", NULL, in_ms(1), &none, NULL), EXO_TIMEOUT);
        cr_expect_eq(exo_net_connect(client.net, "nonsense", NULL, in_ms(1), &none, NULL), EXO_INVAL);
        exo_peer_drop(&first);
        exo_peer_drop(&second);
        close_end(&client);
        close_end(&server);
    }
    cr_expect_eq(open_descriptors(), before);
}

/* --- Rings ---------------------------------------------------------------------------------------------------------------------- */

static bool
has_rings(end *e, const exo_peer *peer)
{
    pthread_mutex_lock(&e->net->lock);
    bool both = peer->in && peer->out;
    pthread_mutex_unlock(&e->net->lock);
    return both;
}

/* What a user sends over tcp goes over tcp. */
Test(net, shares_rings_where_it_was_reached_by_a_path)
{
    end server = {0}, client = {0}, outside = {0}, guest = {0};
    open_end(&server, ipc, NULL);
    open_end(&outside, "tcp://127.0.0.1:0", NULL);
    open_end(&client, NULL, NULL);
    exo_peer *near = connect_to(&client, &server), *by_tcp = connect_to(&client, &outside);
    EVENTUALLY(has_rings(&client, near) && has_rings(&server, server.peer));
    for (uint64_t i = 0; i < 3000; i++) {
        exo_payload one = numbered(i), two = numbered(i);
        cr_assert_eq(call(&client, near, "count", &one), EXO_OK);
        cr_assert_eq(call(&client, by_tcp, "count", &two), EXO_OK);
    }
    exo_net_flush(client.net);
    EVENTUALLY(server.calls == 3000 && outside.calls == 3000);
    cr_expect(!has_rings(&client, by_tcp) && !by_tcp->in && !by_tcp->out);

    /* Nor is there one with another host. */
    open_end(&guest, NULL, &(exo_net_opts){.boot = "another kernel"});
    exo_peer *far = connect_to(&guest, &server);
    exo_payload first = numbered(3000);
    cr_assert_eq(call(&guest, far, "count", &first), EXO_OK);
    EVENTUALLY(server.calls == 3001);
    cr_expect(!far->in && !far->out);
    exo_peer_drop(&near);
    exo_peer_drop(&by_tcp);
    exo_peer_drop(&far);
    close_end(&guest);
    close_end(&client);
    close_end(&outside);
    close_end(&server);
}

Test(net, loses_a_peer_whose_ring_makes_no_sense)
{
    static const uint64_t nonsense = UINT64_MAX;
    end server = {0}, client = {0}, other = {0};
    open_end(&server, ipc, NULL);
    open_end(&client, NULL, NULL);
    open_end(&other, NULL, NULL);
    exo_peer *peer = connect_to(&client, &server), *third = connect_to(&other, &server);
    EVENTUALLY(has_rings(&client, peer) && has_rings(&server, server.peer));
    /* As the server could. */
    cr_assert_eq(pwrite(exo_ring_fd(peer->in), &nonsense, sizeof nonsense, 64), sizeof nonsense);
    EVENTUALLY(client.lost == 1);
    cr_expect_str_eq(client.cause, "the memory that it shares with us makes no sense");
    exo_payload first = numbered(0);
    cr_assert_eq(call(&other, third, "count", &first), EXO_OK);
    EVENTUALLY(server.calls == 1);
    exo_peer_drop(&peer);
    exo_peer_drop(&third);
    close_end(&client);
    close_end(&other);
    close_end(&server);
}

static bool
sees_gap(end *e, exo_peer *peer)
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
    end server = {0}, client = {0};
    open_end(&server, ipc, NULL);
    open_end(&client, NULL, NULL);
    exo_peer *peer = connect_to(&client, &server);
    EVENTUALLY(has_rings(&client, peer) && has_rings(&server, server.peer));
    pthread_mutex_lock(&server.net->lock);
    server.peer->sent++;
    pthread_mutex_unlock(&server.net->lock);
    exo_payload numbers = numbered(0);
    cr_assert_eq(call(&server, server.peer, "count", &numbers), EXO_OK);
    EVENTUALLY(sees_gap(&client, peer));
    EVENTUALLY(client.lost == 1);
    cr_expect(strstr(client.cause, "did not come"), "%s", client.cause);
    cr_expect_eq(client.calls, 0);
    exo_peer_drop(&peer);
    close_end(&client);
    close_end(&server);
}

/* An offer that leads nowhere is no harm: all goes through the socket. */
Test(net, does_without_a_ring_that_it_cannot_open)
{
    end server = {0}, client = {0};
    open_end(&server, ipc, NULL);
    open_end(&client, NULL, NULL);
    exo_peer *peer = connect_to(&client, &server);
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
        exo_payload numbers = numbered(i);
        cr_assert_eq(call(&client, peer, "count", &numbers), EXO_OK);
    }
    EVENTUALLY(server.calls == 100);
    cr_expect_eq(client.lost + server.lost, 0);
    exo_peer_drop(&peer);
    close_end(&client);
    close_end(&server);
}

Test(net, refuses_a_name_that_it_could_not_say)
{
    char name[2 * EXO_WIRE_NAME] = "", address[2 * EXO_WIRE_NAME] = "ipc://";
    const char *const addresses[] = {address};
    exo_net *net = NULL;
    exo_err err = {0};
    memset(name, 'n', sizeof name - 1);
    memset(address + 6, 'e', sizeof address - 7);
    cr_expect_eq(exo_net_open(&net, &(exo_net_opts){.name = name, .handler = &handler}, &err), EXO_INVAL);
    cr_expect_eq(exo_net_open(&net, &(exo_net_opts){.name = "n", .cluster = name, .handler = &handler}, &err),
                 EXO_INVAL);
    cr_expect_eq(
        exo_net_open(
            &net, &(exo_net_opts){.name = "n", .endpoints = addresses, .num_endpoints = 1, .handler = &handler}, &err),
        EXO_INVAL);
    cr_expect_null(net);
}
