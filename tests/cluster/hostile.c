/* A process that was let in and keeps to no measure, beside an honest one: large messages, groups, spawns that it does not wait for, invented
 * nodes, objects that it never acknowledges, searches without end. Every honest call is answered rightly, and the memory of head and worker
 * stays within the quotas (docs/security.md).
 *
 * EXO_HOSTILE_SECONDS (2): of each kind. EXO_HOSTILE_KIND: only this one. How long honest calls took is printed, not judged. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "check.h"
#include "messages.h"
#include "net.h"
#include "processes.h"

enum {
    /* Of head and worker, more than before: what waits for a turn (65,536 calls) or to be read (262,144 replies) and is on its way on the
     * connection, and the heap around 100,000 actors. */
    MOST_MB = 256,
    LENT_MB = 256, /* and objects that it was lent */
    GROUP = 20000,
    MOST_CALLS = 1 << 20 /* honest ones that are timed */
};

#define PATIENCE (60 * EXO_SECOND)

static processes all;
static exo_net *net;
static exo_peer *head;
static atomic_bool stops;
static atomic_ulong answered, refused, thrown_out;
static uint64_t next_id;

/* --- The hostile one -------------------------------------------------------------------------------------------------------- */

/* It takes what comes, and says nothing of it. */
static void
received(void *context, exo_peer *peer, const exo_envelope *envelope, exo_payload *payload)
{
    (void)context;
    (void)peer;
    answered++;
    refused += envelope->kind == EXO_WIRE_REPLY && envelope->status != EXO_OK;
    exo_payload_release(payload);
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

/* A refusal by the connection itself is one, too. */
static void
say(const char *method, exo_payload *args)
{
    exo_envelope e = {.kind = EXO_WIRE_CALL, .id = ++next_id, .text = "head", .method = method, .timeout = INT64_MAX};
    if (exo_net_send(net, head, &e, args, NULL) != EXO_OK)
        usleep(1000);
}

static void
say_message(const char *method, const ProtobufCMessage *message)
{
    exo_payload args = {0};
    CHECK(exo_message_pack(&args, message) == EXO_OK);
    say(method, &args);
}

static void
large_register(void)
{
    enum {
        SIZE = 32 << 20
    };
    uint8_t *data = exo_calloc(1, SIZE);
    CHECK(data);
    for (size_t i = 0; i < SIZE; i += 2)
        data[i] = 0x42; /* an empty actor */
    exo_payload args = {.data = data, .size = SIZE, .release = exo_free};
    say("register", &args);
    usleep(50000);
}

static void
groups(void)
{
    static Exo__Cluster__Spawn specs[GROUP], *list[GROUP];
    for (size_t i = 0; i < GROUP; i++) {
        exo__cluster__spawn__init(&specs[i]);
        specs[i].class_name = exo_pb_text("c");
        specs[i].group = exo_pb_text("g");
        list[i] = &specs[i];
    }
    specs[0].together = list + 1;
    for (specs[0].n_together = GROUP - 1; specs[0].n_together > 100; specs[0].n_together /= 5)
        say_message("spawn", &specs[0].base);
    usleep(1000);
}

static void
spawns(void)
{
    Exo__Cluster__Spawn spec = EXO__CLUSTER__SPAWN__INIT;
    spec.class_name = exo_pb_text("none");
    spec.space = exo_pb_text("default");
    say_message("spawn", &spec.base);
}

static void
nodes(void)
{
    Exo__Cluster__Register m = EXO__CLUSTER__REGISTER__INIT;
    m.node = ++next_id;
    m.kind = exo_pb_text(next_id % 2 ? "worker" : "driver");
    m.job = exo_pb_text(next_id % 2 ? "" : "job");
    say_message("register", &m.base);
}

/* Lines for the head's log, 4 MB of them, and then all of them again and again: each reply is an object. */
static void
objects(void)
{
    static char text[200 * 900];
    Exo__Cluster__LogLines m = EXO__CLUSTER__LOG_LINES__INIT;
    static unsigned count;
    memset(text, 'x', sizeof text - 1);
    for (size_t i = 899; i < sizeof text; i += 900)
        text[i] = '\n';
    text[sizeof text - 1] = 0;
    m.text = text;
    if (count++ < 30)
        say_message("log", &m.base);
    else
        say("logs", &(exo_payload){0});
    usleep(500);
}

/* One actor that never starts would do; those of a name that is restarting wait, the others are refused at once. */
static void
searches(void)
{
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    m.space = exo_pb_text("default");
    m.name = exo_pb_text("nobody");
    const uint64_t after = UINT64_MAX;
    exo_payload args = {0};
    say_message("find", &m.base);
    CHECK(exo_payload_copy(&args, &after, sizeof after) == EXO_OK);
    say("logs", &args);
}

static const struct kind {
    const char *name;
    void (*go)(void);
} kinds[] = {{"register", large_register}, {"groups", groups},    {"spawns", spawns}, {"nodes", nodes},
             {"objects", objects},         {"searches", searches}};

static void
come(void)
{
    char endpoint[128];
    exo_err err = {0};
    snprintf(endpoint, sizeof endpoint, "ipc://%s/t/head", all.folder);
    exo_peer_drop(&head);
    if (exo_net_connect(net, endpoint, NULL, processes_now() + PATIENCE, &head, &err) == EXO_OK)
        return;
    fprintf(stderr, "the hostile one cannot come: %s\n", err.text);
    all.failed = true;
    stops = true;
}

/* Whenever it is thrown out, it comes back. */
static void *
be_hostile(void *kind)
{
    while (!stops) {
        if (exo_peer_is_open(head)) {
            ((const struct kind *)kind)->go();
        } else {
            thrown_out++;
            come();
        }
    }
    return NULL;
}

/* --- The honest one --------------------------------------------------------------------------------------------------------- */

static int
compare(const void *a, const void *b)
{
    exo_time x = *(const exo_time *)a, y = *(const exo_time *)b;
    return (x > y) - (x < y);
}

static void
call_honestly(exo_cluster *cluster, exo_time until, exo_time *took, size_t *count)
{
    exo_err err = {0};
    char *text = NULL;
    for (*count = 0; processes_now() < until && *count < MOST_CALLS && !all.failed; ++*count) {
        exo_time began = processes_now();
        exo_status st = exo_cluster_why(cluster, "default", "nobody", began + PATIENCE, &text, &err);
        took[*count] = processes_now() - began;
        if (st != EXO_NOT_FOUND) {
            fprintf(stderr, "an honest call: %s\n", st == EXO_OK ? text : err.text);
            all.failed = true;
        }
        if (st == EXO_OK)
            exo_free(text);
        usleep(200);
    }
}

static void
expect_bounded(const char *kind, const char *what, pid_t pid, unsigned long before)
{
#ifndef __SANITIZE_ADDRESS__
    unsigned long now = processes_memory(pid);
    printf("%-9s %s: %lu MB more\n", kind, what, now > before ? (now - before) / 1024 : 0);
    unsigned long most = MOST_MB + (strcmp(kind, "objects") == 0 ? LENT_MB : 0);
    if (now <= before + most * 1024ul)
        return;
    fprintf(stderr, "%s: the %s has %lu kB, and had %lu\n", kind, what, now, before);
    all.failed = true;
#else
    (void)kind, (void)what, (void)pid, (void)before;
#endif
}

static void
try(const struct kind *kind, exo_cluster *cluster, uint64_t seconds)
{
    static exo_time took[MOST_CALLS];
    size_t count = 0;
    uint64_t first = next_id;
    pthread_t thread;
    pid_t worker = processes_host_of(all.workers[0]);
    unsigned long before[] = {processes_memory(all.head), processes_memory(worker)};
    stops = false;
    answered = refused = thrown_out = 0;
    come();
    CHECK(head);
    CHECK(pthread_create(&thread, NULL, be_hostile, (void *)(uintptr_t)kind) == 0);
    call_honestly(cluster, processes_now() + (exo_time)seconds * EXO_SECOND, took, &count);
    stops = true;
    pthread_join(thread, NULL);
    qsort(took, count, sizeof *took, compare);
    if (count > 0)
        printf("%-9s %lu sent, %lu answered, %lu of them refused, %lu times thrown out; honest calls: %zu, p50 %.2f "
               "ms, p99 %.2f ms, longest %.1f ms\n",
               kind->name, next_id - first, answered, refused, thrown_out, count, (double)took[count / 2] / 1e6,
               (double)took[count * 99 / 100] / 1e6, (double)took[count - 1] / 1e6);
    expect_bounded(kind->name, "head", all.head, before[0]);
    expect_bounded(kind->name, "worker", worker, before[1]);
    fflush(stdout);
    if (head)
        exo_peer_lose(net, head, "it has done enough");
    exo_peer_drop(&head);
}

int
main(void)
{
    uint64_t seconds = processes_setting("EXO_HOSTILE_SECONDS", 2);
    const char *only = getenv("EXO_HOSTILE_KIND");
    exo_runtime *runtime = NULL;
    exo_err err = {0};
    processes_open(&all);
    CHECK(processes_start_head(&all) && processes_start_worker(&all, 0, true));
    exo_cluster *cluster = processes_join(&all, "honest", &runtime);
    CHECK(cluster);
    CHECK(exo_net_open(&net, &(exo_net_opts){.name = "hostile", .cluster = "t", .handler = &handler}, &err) == EXO_OK);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !all.failed; i++)
        if (!only || strcmp(only, kinds[i].name) == 0)
            try(&kinds[i], cluster, seconds);
    exo_net_close(&net);
    processes_leave(&cluster, &runtime);
    bool good = processes_close(&all);
    printf("%s\n", good ? "good" : "failed");
    return good ? 0 : 1;
}
