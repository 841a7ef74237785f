/* Two connected runtimes: the state that one keeps of the other's actors, the quotas of calls, and
 * the turns of askers. Each test owns both runtimes. Read next: runtime/cluster/remote_impl.h;
 * remote.c. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "cluster/messages.h"
#include "cluster/quota.h"
#include "cluster/remote_impl.h"
#include "net/net_impl.h"
#include "support/eventually.h"
#include "support/temp.h"

enum {
    HERE, /* the caller */
    THERE /* the process with the actors */
};

static char folder[64], endpoints[2][128];
static exo_runtime *runtimes[2];
static exo_remote *remotes[2];
static exo_peer *peer; /* of THERE, at HERE */
static exo_err err;

static exo_status
echo(exo_call_context *call, void *self, const exo_payload *args, exo_payload *reply, exo_err *why)
{
    (void)call;
    (void)self;
    (void)why;
    return exo_payload_copy(reply, args->data, args->size);
}

static const exo_method methods[] = {{.name = "echo", .run = echo}};
static const exo_actor_class echo_class = {.name = "echo", .methods = methods, .num_methods = 1};

static void
quiet(void *unused, exo_log_level level, const char *line)
{
    (void)unused;
    (void)level;
    (void)line;
}

static void
setup(void)
{
    exo_log_set_sink(quiet, NULL);
    temp_folder(folder, sizeof folder);
    for (int i = 0; i < 2; i++) {
        snprintf(endpoints[i], sizeof endpoints[i], "ipc://%s/%d", folder, i);
        const char *list[] = {endpoints[i]};
        const exo_net_opts opts = {
            .name = i ? "there" : "here", .endpoints = list, .num_endpoints = 1};
        cr_assert_eq(exo_runtime_open(&runtimes[i], NULL, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_remote_open(&remotes[i], runtimes[i], &opts, NULL, NULL, &err), EXO_OK,
                     "%s", err.text);
        cr_assert_eq(exo_remote_start(remotes[i], &err), EXO_OK, "%s", err.text);
    }
    cr_assert_eq(exo_net_connect(exo_remote_net(remotes[HERE]), endpoints[THERE], NULL,
                                 in_ms(60000), &peer, &err),
                 EXO_OK, "%s", err.text);
}

static void
teardown(void)
{
    exo_peer_drop(&peer);
    for (int i = 0; i < 2; i++)
        exo_remote_close(remotes[i], NULL);
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(exo_runtime_close(&runtimes[i], in_ms(60000), &err), EXO_OK, "%s", err.text);
        exo_remote_free(&remotes[i]);
    }
    temp_remove(folder);
}

TestSuite(remote_pair, .init = setup, .fini = teardown, .timeout = 120);

/* Makes an actor THERE. Returns its reference THERE and gives the one HERE. */
static exo_ref
make(exo_ref *here)
{
    exo_ref ref = {0};
    cr_assert_eq(exo_spawn(runtimes[THERE], &echo_class, NULL, &ref, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_remote_actor(remotes[HERE], peer, ref.id, here, &err), EXO_OK, "%s", err.text);
    return ref;
}

static exo_future *
call_method(exo_ref actor, const char *method, exo_payload *args)
{
    exo_future *future = NULL;
    cr_assert_eq(exo_future_new(&future, exo_clock_real(), in_ms(60000), &err), EXO_OK);
    cr_assert_eq(exo_remote_call(remotes[HERE], actor, method, args, future, &err), EXO_OK, "%s",
                 err.text);
    return future;
}

static exo_future *
call(exo_ref actor, exo_payload *args)
{
    return call_method(actor, "echo", args);
}

static exo_status
call_and_wait(exo_ref actor)
{
    exo_payload none = {0};
    exo_future *future = call(actor, &none);
    exo_status st = exo_wait(future, in_ms(60000), NULL, &err);
    exo_future_drop(&future);
    return st;
}

static exo_future *
monitor(exo_ref actor)
{
    exo_future *future = NULL;
    cr_assert_eq(exo_future_new(&future, exo_clock_real(), INT64_MAX, &err), EXO_OK);
    cr_assert_eq(exo_remote_monitor(remotes[HERE], actor, future, &err), EXO_OK, "%s", err.text);
    return future;
}

Test(remote_pair, monitors_that_are_dropped_keep_no_call_from_its_place)
{
    exo_ref here = {0}, there = make(&here);
    exo_future *kept = monitor(here);
    for (size_t i = 0; i < WINDOW + 1; i++) {
        exo_future *dropped = monitor(here);
        exo_future_drop(&dropped);
    }
    cr_expect_eq(call_and_wait(here), EXO_OK, "%s", err.text);
    exo_kill(runtimes[THERE], there, "it is enough", NULL);
    cr_expect_eq(exo_wait(kept, in_ms(60000), NULL, &err), EXO_PEER_LOST);
    exo_future_drop(&kept);
}

/* With many references a process asks the other one which of the actors are dead; the answer
 * includes the cause. */
Test(remote_pair, a_reference_keeps_the_cause_of_its_death)
{
    char text[EXO_ERR_TEXT];
    exo_ref here[2], there[2], other;
    for (int i = 0; i < 2; i++)
        there[i] = make(&here[i]);
    exo_future *death = monitor(here[0]);
    exo_kill(runtimes[THERE], there[0], "it was watched", NULL);
    cr_expect_eq(exo_wait(death, in_ms(60000), NULL, NULL), EXO_PEER_LOST);
    exo_future_drop(&death);
    exo_kill(runtimes[THERE], there[1], "nobody saw it", NULL);
    cr_expect_eq(exo_remote_cause(remotes[HERE], here[0], text, sizeof text), EXO_OK);
    for (int i = 0; i < 1100; i++) /* the 1,024th reference makes it ask */
        make(&other);
    EVENTUALLY(exo_remote_cause(remotes[HERE], here[1], text, sizeof text) == EXO_OK);
    for (int i = 0; i < 100; i++) /* later references do not evict the causes */
        make(&other);
    EVENTUALLY(exo_remote_cause(remotes[HERE], here[1], text, sizeof text) == EXO_OK);
    cr_expect(strstr(text, "nobody saw it"), "%s", text);
    cr_expect_eq(exo_remote_cause(remotes[HERE], here[0], text, sizeof text), EXO_OK);
    cr_expect(strstr(text, "it was watched"), "%s", text);
}

/* --- Quotas ----------------------------------------------------------------------------------- */

static atomic_bool gate;
static atomic_int at_gate;

static exo_status
wait_at_gate(exo_call_context *context, void *self, const exo_payload *args, exo_payload *reply,
             exo_err *why)
{
    (void)context;
    (void)self;
    (void)args;
    (void)reply;
    (void)why;
    at_gate++;
    EVENTUALLY(gate);
    return EXO_OK;
}

static const exo_lane_class slow_lane[] = {{.name = "main", .blocking = true, .capacity = 65536}};
static const exo_method slow_methods[] = {{.name = "echo", .run = wait_at_gate}};
static const exo_actor_class slow_class = {
    .name = "slow", .lanes = slow_lane, .num_lanes = 1, .methods = slow_methods, .num_methods = 1};

/* Makes a system actor named `head` that is busy. */
static exo_ref
make_system(exo_ref *here)
{
    exo_ref ref = {0};
    const exo_spawn_opts opts = {.name = "head", .namespace_name = "exogym"};
    cr_assert_eq(exo_spawn(runtimes[THERE], &slow_class, &opts, &ref, &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(exo_remote_system(remotes[HERE], peer, "head", here, &err), EXO_OK, "%s",
                 err.text);
    return ref;
}

/* Of a process's many calls, only a few are in the head's mailbox before those of others. */
Test(remote_pair, few_calls_of_a_process_are_in_the_mailbox_of_the_head)
{
    enum {
        CALLS = 1000
    };
    exo_future *calls[CALLS];
    exo_remote_held held;
    char *text = NULL;
    exo_ref here = {0}, there = make_system(&here);
    for (int i = 0; i < CALLS; i++) {
        exo_payload none = {0};
        calls[i] = call(here, &none);
    }
    uint64_t node = exo_net_node(exo_remote_net(remotes[HERE]));
    EVENTUALLY((exo_remote_held_for(remotes[THERE], node, &held),
                held.waiting == CALLS - EXO_QUOTA_TURNS));
    EVENTUALLY(at_gate == 1);
    cr_assert_eq(exo_dump(runtimes[THERE], there, &text, &err), EXO_OK);
    cr_expect(strstr(text, "queued=3 running=1"), "%s", text);
    exo_free(text);
    gate = true;
    for (int i = 0; i < CALLS; i++) {
        cr_expect_eq(exo_wait(calls[i], in_ms(60000), NULL, &err), EXO_OK, "call %d: %s", i,
                     err.text);
        exo_future_drop(&calls[i]);
    }
    cr_expect_eq(at_gate, CALLS);
}

Test(remote_pair, calls_that_wait_are_bounded_and_end_with_their_process)
{
    exo_ref here = {0};
    exo_payload args = {0};
    exo_remote_held held;
    size_t refused = 0, count = 0;
    exo_future *calls[64];
    make_system(&here);
    for (; count < 64; count++) { /* 64 times half a MiB, which is more than may wait */
        cr_assert_eq(exo_payload_copy(&args, "", 1), EXO_OK);
        exo_payload_release(&args);
        args =
            (exo_payload){.data = exo_calloc(1, 512 << 10), .size = 512 << 10, .release = exo_free};
        calls[count] = call(here, &args);
    }
    for (size_t i = 1 + 32; i < count; i++) {
        refused += exo_wait(calls[i], in_ms(60000), NULL, &err) == EXO_FULL;
        cr_expect(strstr(err.text, "'waiting_bytes'"), "%s", err.text);
    }
    cr_expect_eq(refused, 64 - 1 - 32);
    uint64_t node = exo_net_node(exo_remote_net(remotes[HERE]));
    exo_remote_held_for(remotes[THERE], node, &held);
    cr_expect_eq(held.waiting, 32);
    exo_peer_lose(exo_remote_net(remotes[HERE]), peer, "a test");
    EVENTUALLY((exo_remote_held_for(remotes[THERE], node, &held), held.waiting == 0));
    gate = true;
    for (size_t i = 0; i < count; i++)
        exo_future_drop(&calls[i]);
    cr_expect_leq(at_gate, 1);
}

Test(remote_pair, a_system_actor_takes_no_large_arguments)
{
    exo_ref here = {0};
    const size_t size = EXO_MAX_CONTROL + 1;
    gate = true;
    make_system(&here);
    exo_payload args = {.data = exo_calloc(1, size), .size = size, .release = exo_free};
    exo_future *f = call(here, &args);
    cr_expect_eq(exo_wait(f, in_ms(60000), NULL, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "1048576 bytes"), "%s", err.text);
    exo_future_drop(&f);
    cr_expect_eq(at_gate, 0);
}

static bool
gets_an_object(exo_ref actor, uint32_t unacknowledged)
{
    const exo_payload *reply = NULL;
    exo_payload args = {.data = exo_calloc(1, 512 << 10), .size = 512 << 10, .release = exo_free};
    pthread_mutex_lock(&remotes[THERE]->lock);
    for (struct channel *c = remotes[THERE]->channels; c; c = c->next)
        c->num_lent = unacknowledged;
    pthread_mutex_unlock(&remotes[THERE]->lock);
    exo_future *f = call(actor, &args);
    cr_assert_eq(exo_wait(f, in_ms(60000), &reply, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(reply->size, 512 << 10);
    bool object = exo_object_of_payload(reply) != NULL;
    exo_future_drop(&f);
    return object;
}

/* It gets the reply as bytes, which the connection bounds. */
Test(remote_pair, a_process_that_acknowledges_nothing_is_lent_no_more)
{
    exo_ref here = {0};
    exo_remote_held held;
    uint64_t node = exo_net_node(exo_remote_net(remotes[HERE]));
    make(&here);
    cr_expect(gets_an_object(here, 0));
    EVENTUALLY(
        (exo_remote_held_for(remotes[THERE], node, &held), held.lent == 0 && held.lent_bytes == 0));
    cr_expect(!gets_an_object(here, (uint32_t)exo_quotas_default.most[EXO_QUOTA_LENT]));
    cr_expect(gets_an_object(here, 0));
    EVENTUALLY(
        (exo_remote_held_for(remotes[THERE], node, &held), held.lent == 0 && held.lent_bytes == 0));
}

static void
let_replies_wait(uint64_t bytes)
{
    exo_net *net = exo_remote_net(remotes[THERE]);
    pthread_mutex_lock(&net->lock);
    net->peers->parcel_replies = bytes;
    net->peers->choked = false;
    exo_peer_judge_window_locked(net, net->peers);
    pthread_mutex_unlock(&net->lock);
}

/* The caller learns that its call ran, and why there is no reply. */
Test(remote_pair, a_reply_that_cannot_wait_is_refused)
{
    exo_ref here = {0};
    make(&here);
    for (int i = 0; i < 3; i++) {
        exo_payload args = {.data = exo_calloc(1, 4096), .size = 4096, .release = exo_free};
        if (i > 0)
            let_replies_wait(i == 1 ? 256 << 20 : 0);
        exo_future *f = call(here, &args);
        cr_expect_eq(exo_wait(f, in_ms(60000), NULL, &err), i == 1 ? EXO_FULL : EXO_OK,
                     "call %d: %s", i, err.text);
        cr_expect(i != 1 || strstr(err.text, "ask for fewer"), "%s", err.text);
        exo_future_drop(&f);
    }
}

/* --- Askers behind the head ------------------------------------------------------------------- */

enum {
    FLOOD = 300, /* spawns of each of two askers */
    FEW = 3      /* spawns of each of two others */
};

/* the order in which spawns ran: a letter for each asker */
static char order[2 * FLOOD + 2 * FEW + 1];

static exo_status
spawn_at_gate(exo_call_context *context, void *self, const exo_payload *args, exo_payload *reply,
              exo_err *why)
{
    Exo__Cluster__Spawn *spec = EXO_UNPACK(Exo__Cluster__Spawn, exo__cluster__spawn, args);
    cr_assert(spec);
    order[at_gate] = (char)spec->asker;
    EXO_RELEASE(spec);
    return wait_at_gate(context, self, args, reply, why);
}

static const exo_lane_class worker_lanes[] = {
    {.name = "main"}, {.name = "spawn", .blocking = true, .capacity = 65536}};
static const exo_method worker_methods[] = {{.name = "spawn", .lane = 1, .run = spawn_at_gate},
                                            {.name = "kill", .run = echo}};
static const exo_actor_class fake_worker_class = {.name = "worker",
                                                  .lanes = worker_lanes,
                                                  .num_lanes = 2,
                                                  .methods = worker_methods,
                                                  .num_methods = 2};

static exo_ref
make_worker(void)
{
    exo_ref ref = {0}, here = {0};
    const exo_spawn_opts opts = {.name = "worker", .namespace_name = "exogym"};
    cr_assert_eq(exo_spawn(runtimes[THERE], &fake_worker_class, &opts, &ref, &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(exo_remote_system(remotes[HERE], peer, "worker", &here, &err), EXO_OK, "%s",
                 err.text);
    return here;
}

static exo_future *
begin_spawn(exo_ref worker, char asker, size_t bytes)
{
    Exo__Cluster__Spawn spec = EXO__CLUSTER__SPAWN__INIT;
    exo_payload args = {0};
    spec.asker = (uint64_t)asker;
    spec.args.len = bytes;
    spec.args.data = bytes ? exo_calloc(1, bytes) : NULL;
    cr_assert_eq(exo_message_pack(&args, &spec.base), EXO_OK);
    exo_free(spec.args.data);
    return call_method(worker, "spawn", &args);
}

static uint64_t
count_waiting(void)
{
    exo_remote_held held;
    exo_remote_held_for(remotes[THERE], exo_net_node(exo_remote_net(remotes[HERE])), &held);
    return held.waiting;
}

/* Spawns of other askers run between the many spawns of two askers, and a call of the head itself
 * runs at once. */
Test(remote_pair, whoever_the_head_asks_for_has_turns_at_a_worker)
{
    static exo_future *spawns[sizeof order - 1];
    const char askers[] = {'a', 'b', 'c', 'd'};
    exo_ref worker = make_worker();
    exo_payload none = {0};
    size_t count = 0;
    for (size_t i = 0; i < sizeof askers; i++)
        for (int k = 0; k < (i < 2 ? FLOOD : FEW); k++)
            spawns[count++] = begin_spawn(worker, askers[i], 0);
    EVENTUALLY(count_waiting() == count - EXO_QUOTA_ASKED_TURNS);
    exo_future *kill = call_method(worker, "kill", &none);
    cr_expect_eq(exo_wait(kill, in_ms(60000), NULL, &err), EXO_OK, "%s", err.text);
    exo_future_drop(&kill);
    gate = true;
    for (size_t i = 0; i < count; i++) {
        cr_expect_eq(exo_wait(spawns[i], in_ms(60000), NULL, &err), EXO_OK, "spawn %zu: %s", i,
                     err.text);
        exo_future_drop(&spawns[i]);
    }
    cr_expect_eq(at_gate, (int)count); /* the spawns, and so their letters, came before */
    cr_expect_eq(strlen(order), count);
    cr_expect_eq(strncmp(order, "aaaabbbb", 8), 0, "each has a few turns: %s", order);
    for (const char *asker = "cd"; *asker; asker++)
        cr_expect_lt(strrchr(order, *asker) - order, EXO_QUOTA_ASKED_TURNS + 4 * FEW, "%s", order);
    cr_expect_lt(labs(strrchr(order, 'a') - strrchr(order, 'b')), 2 * EXO_QUOTA_TURNS, "%s", order);
    EVENTUALLY(count_waiting() == 0);
}

static bool
is_done(exo_future *future)
{
    return exo_wait(future, in_ms(0), NULL, NULL) != EXO_TIMEOUT;
}

/* One asker's spawns take no room from those of another asker, and there is a bound for all askers
 * together. */
Test(remote_pair, whoever_the_head_asks_for_has_room_at_a_worker)
{
    enum {
        BYTES = 500 << 10,
        WAIT = 32 /* calls of an asker that may wait */
    };
    /* one has a turn; the last one is refused */
    static const size_t counts[] = {1 + WAIT + 1, 1 + WAIT + 1, 1 + 1 + 1};
    exo_future *spawns[3][1 + WAIT + 1];
    exo_ref worker = make_worker();
    for (size_t asker = 0; asker < 3; asker++)
        for (size_t i = 0; i < counts[asker]; i++)
            spawns[asker][i] = begin_spawn(worker, (char)('a' + asker), BYTES);
    for (size_t asker = 0; asker < 3; asker++) {
        size_t last = counts[asker] - 1;
        cr_expect_eq(exo_wait(spawns[asker][last], in_ms(60000), NULL, &err), EXO_FULL);
        cr_expect(strstr(err.text, asker < 2 ? "'waiting_bytes'" : "that others have asked for"),
                  "%s", err.text);
        for (size_t i = 0; i < last; i++)
            cr_expect(!is_done(spawns[asker][i]), "call %zu of %zu", i, asker);
    }
    exo_peer_lose(exo_remote_net(remotes[HERE]), peer, "a test");
    EVENTUALLY(count_waiting() == 0);
    gate = true;
    for (size_t asker = 0; asker < 3; asker++)
        for (size_t i = 0; i < counts[asker]; i++)
            exo_future_drop(&spawns[asker][i]);
}
