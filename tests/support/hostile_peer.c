/* Processes that overload a cluster: see hostile_peer.h. The table of kinds is at the end.
 *
 * One thread behaves as the kind requires; the net's own threads receive messages. Those of a
 * `deaf` process block in the first callback. */
#include "support/hostile_peer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <zmq.h>

#include <exogym/actor.h>
#include <exogym/memory.h>

#include "cluster/messages.h"
#include "net/net.h"
#include "net/process.h"
#include "support/check.h"

#define PATIENCE (60 * EXO_SECOND)

enum {
    GROUP = 20000,
    LARGE = 32 << 20,
    CARRIED = 1 << 20,
    MULTIPART = 64 << 10,
    LINES = 200 * 900
};

typedef struct hostile {
    hostile_place place;
    exo_net *net;
    exo_peer *head, *worker; /* held; NULL: not needed, or not connected yet */
    atomic_bool stops, deaf;
    atomic_ulong answered, refused;
    unsigned long sent, thrown_out;
    uint64_t next; /* number of the next call, and of the next invented object */
    void *memory;  /* of the kind; freed with exo_free */
} hostile;

struct way {
    hostile_kind kind;
    void (*go)(hostile *h); /* one turn of the behaviour; called repeatedly */
    bool to_worker, raw;
};

/* --- Connections ------------------------------------------------------------------------------ */

/* Sends nothing in return: no reply is acknowledged. */
static void
received(void *context, exo_peer *peer, const exo_envelope *envelope, exo_payload *payload)
{
    hostile *h = context;
    (void)peer;
    h->answered++;
    h->refused += envelope->kind == EXO_WIRE_REPLY && envelope->status != EXO_OK;
    exo_payload_release(payload);
    while (h->deaf && !h->stops)
        usleep(1000);
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

static void
come(hostile *h, const char *endpoint, exo_peer **peer)
{
    exo_err err = {0};
    exo_peer_drop(peer);
    h->deaf = false;
    if (exo_net_connect(h->net, endpoint, NULL, exo_now(exo_clock_real()) + PATIENCE, peer, &err) ==
        EXO_OK)
        return;
    fprintf(stderr, "the hostile one cannot come: %s\n", err.text);
    h->stops = true;
}

/* --- Behaviours ------------------------------------------------------------------------------- */

/* actor: 0: the system actor `name`. Waits a moment if the connection refuses the call. */
static void
call(hostile *h, exo_peer *peer, uint64_t actor, const char *name, const char *method,
     exo_payload *args)
{
    exo_envelope e = {.kind = EXO_WIRE_CALL,
                      .id = ++h->next,
                      .actor = actor,
                      .text = name,
                      .method = method,
                      .timeout = INT64_MAX};
    h->sent++;
    if (exo_net_send(h->net, peer, &e, args, NULL) != EXO_OK)
        usleep(1000);
}

static void
say(hostile *h, const char *method, const ProtobufCMessage *message)
{
    exo_payload args = {0};
    CHECK(exo_message_pack(&args, message) == EXO_OK);
    call(h, h->head, 0, "head", method, &args);
}

/* Sends a Hello like any other, and then endless parts of one message. */
static void
multipart(hostile *h)
{
    uint8_t part[MULTIPART] = {0};
    char boot[EXO_BOOT_ID];
    const int none = 0, wait = 1000;
    exo_wire_writer w = {0};
    exo_boot_id(boot);
    const exo_envelope hello = {.kind = EXO_WIRE_HELLO,
                                .who = {.node = 0x1000000 + ++h->next,
                                        .pid = (uint32_t)getpid(),
                                        .start = exo_process_start((uint32_t)getpid()),
                                        .name = "hostile",
                                        .boot = boot,
                                        .endpoint = "",
                                        .cluster = "t"}};
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_DEALER);
    zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &wait, sizeof wait);
    zmq_setsockopt(socket, ZMQ_SNDTIMEO, &wait, sizeof wait);
    CHECK(zmq_connect(socket, h->place.head) == 0);
    CHECK(exo_wire_add(&w, &hello, NULL) == EXO_OK);
    exo_wire_finish(&w, 0);
    int got = zmq_send(socket, w.data, w.size, 0) > 0 ? zmq_recv(socket, part, sizeof part, 0) : -1;
    h->answered += got > 0;
    /* ZeroMQ accepts parts of a message for a lost connection until it notices the loss. */
    for (size_t sent = 0; got > 0 && !h->stops && sent < 4 * (size_t)LARGE;
         sent += sizeof part, h->sent++)
        if (zmq_send(socket, part, sizeof part, ZMQ_SNDMORE) < 0)
            break;
    usleep(20000);
    h->thrown_out++;
    exo_wire_release(&w);
    zmq_close(socket);
    zmq_ctx_term(context);
}

static void
large_register(hostile *h)
{
    uint8_t *data = exo_calloc(1, LARGE);
    CHECK(data);
    for (size_t i = 0; i < LARGE; i += 2)
        data[i] = 0x42; /* an empty actor */
    exo_payload args = {.data = data, .size = LARGE, .release = exo_free};
    call(h, h->head, 0, "head", "register", &args);
    usleep(50000);
}

static void
groups(hostile *h)
{
    struct {
        Exo__Cluster__Spawn specs[GROUP], *list[GROUP];
    } *all = h->memory ? h->memory : (h->memory = exo_calloc(1, sizeof *all));
    CHECK(all);
    Exo__Cluster__Spawn *specs = all->specs, **list = all->list;
    for (size_t i = 0; i < GROUP; i++) {
        exo__cluster__spawn__init(&specs[i]);
        specs[i].class_name = exo_pb_text("c");
        specs[i].space = exo_pb_text("default");
        specs[i].group = exo_pb_text("g");
        list[i] = &specs[i];
    }
    specs[0].together = list + 1;
    for (size_t count = GROUP - 1; count > 100 && !h->stops; count -= count / 3) {
        specs[0].n_together = count;
        say(h, "spawn", &specs[0].base);
    }
    usleep(1000);
}

/* Fields of two bytes that no message of the protocol has, as many as arguments may have bytes. */
static void
unknown_fields(hostile *h)
{
    static const char *const methods[] = {"find", "log", "spawn", "holds"};
    uint8_t *data = exo_calloc(1, CARRIED);
    CHECK(data);
    for (size_t i = 0; i < CARRIED; i += 2)
        data[i] = 0x78; /* number 15 */
    exo_payload args = {.data = data, .size = CARRIED, .release = exo_free};
    call(h, h->head, 0, "head", methods[h->next % 4], &args);
}

/* Requests replies of the largest size, and does not read them. */
static void
read_nothing(hostile *h)
{
    Exo__Cluster__LogLines m = EXO__CLUSTER__LOG_LINES__INIT;
    char *text = h->memory ? h->memory : (h->memory = exo_calloc(1, LINES));
    CHECK(text);
    memset(text, 'x', LINES - 1);
    for (size_t i = 899; i < LINES; i += 900)
        text[i] = '\n';
    text[LINES - 1] = 0;
    m.text = text;
    h->deaf = true;
    if (h->next % 100 == 0)
        say(h, "log", &m.base);
    call(h, h->head, 0, "head", "logs", &(exo_payload){0});
    exo_net_flush(h->net);
    usleep(200);
}

/* Receives objects and never acknowledges them, so that the worker holds them. */
static void
acknowledge_nothing(hostile *h)
{
    uint64_t *words = exo_calloc(1, CARRIED);
    CHECK(words);
    for (size_t i = 0; i < CARRIED / sizeof *words; i++)
        words[i] = i;
    exo_payload args = {.data = words, .size = CARRIED, .release = exo_free};
    call(h, h->worker, h->place.actor, "", "carry", &args);
    usleep(1000);
}

static void
spawns(hostile *h)
{
    Exo__Cluster__Spawn spec = EXO__CLUSTER__SPAWN__INIT;
    spec.class_name = exo_pb_text("none");
    spec.space = exo_pb_text("default");
    say(h, "spawn", &spec.base);
}

static void
nodes(hostile *h)
{
    Exo__Cluster__Register m = EXO__CLUSTER__REGISTER__INIT;
    m.node = h->next + 1000;
    m.kind = exo_pb_text(h->next % 2 ? "worker" : "driver");
    m.job = exo_pb_text(h->next % 2 ? "" : "job");
    say(h, "register", &m.base);
}

static void
become_driver(hostile *h)
{
    Exo__Cluster__Register m = EXO__CLUSTER__REGISTER__INIT;
    m.node = exo_net_node(h->net);
    m.kind = exo_pb_text("driver");
    m.job = exo_pb_text("hostile");
    say(h, "register", &m.base);
}

static void
claim(hostile *h, uint64_t id)
{
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    char name[32];
    snprintf(name, sizeof name, "row-%llu", (unsigned long long)id);
    m.space = exo_pb_text("default");
    m.name = name;
    m.class_name = exo_pb_text("row");
    m.node = exo_net_node(h->net);
    m.id = id;
    say(h, "claim", &m.base);
}

/* Claims names of actors that die at once. */
static void
rows(hostile *h)
{
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    uint64_t id = h->next + 1;
    if (h->next % 5000 == 0)
        become_driver(h);
    claim(h, id);
    m.node = exo_net_node(h->net);
    m.id = id;
    m.cause = exo_pb_text("a test");
    m.failure = true;
    say(h, "died", &m.base);
}

/* A process with many actors disconnects and comes back, again and again. */
static void
deaths(hostile *h)
{
    become_driver(h);
    for (uint64_t id = 1; id <= 5000 && !h->stops; id++)
        claim(h, id);
    for (unsigned i = 0; i < 400 && !h->stops && h->answered % 5001 != 0; i++)
        usleep(1000);
    h->answered = 0;
    exo_peer_lose(h->net, h->head, "it goes");
}

/* Searches for an actor and waits for the log. Only searches for the name of a restarting actor
 * wait; others are refused at once. */
static void
searches(hostile *h)
{
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    m.space = exo_pb_text("default");
    m.name = exo_pb_text("nobody");
    const uint64_t after = UINT64_MAX;
    exo_payload args = {0};
    say(h, "find", &m.base);
    CHECK(exo_payload_copy(&args, &after, sizeof after) == EXO_OK);
    call(h, h->head, 0, "head", "logs", &args);
}

/* Sends a million empty lines, and requests the list of the whole cluster. */
static void
lines(hostile *h)
{
    Exo__Cluster__LogLines m = EXO__CLUSTER__LOG_LINES__INIT;
    if (!h->memory)
        CHECK((h->memory = exo_calloc(1, 1000001)));
    memset(h->memory, '\n', 1000000);
    m.text = h->memory;
    say(h, "log", &m.base);
    call(h, h->head, 0, "head", "list", &(exo_payload){0});
    usleep(200);
}

/* Sends references to invented actors of its own, and asks which of the worker's actors are
 * dead. */
static void
references(hostile *h)
{
    exo_actor_id ids[1024];
    uint64_t dead[2048];
    exo_payload args = {0};
    for (size_t i = 0; i < 1024; i++)
        ids[i] = (exo_actor_id){.node = exo_net_node(h->net), .id = ++h->next};
    CHECK(exo_payload_copy(&args, ids, sizeof ids) == EXO_OK);
    call(h, h->worker, h->place.actor, "", "refer", &args);
    for (size_t i = 0; i < 2048; i++)
        dead[i] = h->next + i;
    CHECK(exo_payload_copy(&args, dead, sizeof dead) == EXO_OK);
    call(h, h->worker, 0, "", "$deaths", &args);
    usleep(1000);
}

/* Sets monitors and cancels a third of them. Disconnects from time to time. */
static void
monitors(hostile *h)
{
    call(h, h->worker, h->place.actor, "", "$monitor", &(exo_payload){0});
    if (h->next % 3 == 0) {
        exo_envelope e = {.kind = EXO_WIRE_CANCEL, .id = h->next - 1};
        exo_net_send(h->net, h->worker, &e, NULL, NULL);
    }
    if (h->next % 60000 == 0)
        exo_peer_lose(h->net, h->worker, "it goes");
}

/* --- The kinds -------------------------------------------------------------------------------- */

enum {
    /* calls that wait for a turn (65,536), messages in transit on the connection (32 MiB), the
     * heap */
    TURNS = 128,
    ACTORS = 192, /* in addition, 100,000 actors, or names and their rows (SQLite's cache) */
    UNREAD = 288, /* messages that a peer has not read */
    LENT = 288,   /* objects that were lent to the peer */
    REPLIES = 288 /* replies that wait, none of them larger */
};

static const struct way ways[] = {
    {{"multipart", "a message of parts without an end", TURNS, 16}, .go = multipart, .raw = true},
    {{"register", "a register of 32 MB", TURNS, 16}, .go = large_register},
    {{"groups", "20,000 and fewer groups in one message", ACTORS, TURNS}, .go = groups},
    {{"fields", "messages of fields that nobody knows", TURNS, 16}, .go = unknown_fields},
    {{"deaf", "it reads no reply", UNREAD + TURNS, 16}, .go = read_nothing},
    {{"objects", "it acknowledges no object", 16, LENT + REPLIES + TURNS},
     .go = acknowledge_nothing,
     .to_worker = true},
    {{"spawns", "spawns that it does not wait for", TURNS + ACTORS, TURNS}, .go = spawns},
    {{"nodes", "nodes that it invents", TURNS, 16}, .go = nodes},
    {{"rows", "actors with names that die at once", ACTORS, 16}, .go = rows},
    {{"deaths", "a process with 5,000 names that goes again and again", ACTORS, 16}, .go = deaths},
    {{"searches", "searches and watched logs", TURNS, 16}, .go = searches},
    {{"lines", "a million lines, and lists", TURNS, 16}, .go = lines},
    {{"references", "references to actors that it invents", 16, TURNS + 64},
     .go = references,
     .to_worker = true},
    {{"monitors", "monitors", 16, TURNS + 64}, .go = monitors, .to_worker = true},
};

const hostile_kind *
hostile_kind_at(size_t index)
{
    return index < sizeof ways / sizeof *ways ? &ways[index].kind : NULL;
}

static void *
await_end(void *argument)
{
    hostile *h = argument;
    char c;
    while (read(STDIN_FILENO, &c, 1) > 0)
        continue;
    h->stops = true;
    return NULL;
}

static void
go_on(hostile *h, const struct way *way)
{
    exo_peer **peer = way->to_worker ? &h->worker : &h->head;
    if (way->raw || (*peer && exo_peer_is_open(*peer))) {
        way->go(h);
        return;
    }
    h->thrown_out += *peer != NULL;
    come(h, way->to_worker ? h->place.worker : h->place.head, peer);
}

int
hostile_be(const char *kind, const hostile_place *place)
{
    hostile h = {.place = *place};
    const struct way *way = NULL;
    exo_err err = {0};
    pthread_t ends;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (strcmp(ways[i].kind.name, kind) == 0)
            way = &ways[i];
    CHECK(way);
    const exo_net_opts opts = {
        .name = "hostile", .cluster = "t", .handler = &handler, .context = &h};
    CHECK(exo_net_open(&h.net, &opts, &err) == EXO_OK);
    CHECK(pthread_create(&ends, NULL, await_end, &h) == 0);
    while (!h.stops)
        go_on(&h, way);
    printf("%lu sent, %lu answered, %lu of them refused, %lu times thrown out\n", h.sent,
           h.answered, h.refused, h.thrown_out);
    fflush(stdout);
    pthread_join(ends, NULL);
    exo_peer_drop(&h.head);
    exo_peer_drop(&h.worker);
    exo_net_close(&h.net);
    exo_free(h.memory);
    return 0;
}
