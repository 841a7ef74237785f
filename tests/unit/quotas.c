/* Quotas of one process at the head: each quota can be reached, is named in the refusal, and is
 * given back. Each test has a head of its own in the world `w`. Read next:
 * tests/support/head_world.h; runtime/cluster/quota.h; docs/security.md. */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include <sqlite3.h>

#include <exogym/memory.h>

#include "support/head_world.h"
#include "support/temp.h"

enum {
    PEER = 9,
    OTHER = 8
};

static const exo_quotas few = {.most = {[EXO_QUOTA_NODES] = 1,
                                        [EXO_QUOTA_JOBS] = 2,
                                        [EXO_QUOTA_ACTORS] = 6,
                                        [EXO_QUOTA_NAMES] = 4,
                                        [EXO_QUOTA_SPAWNS] = 3,
                                        [EXO_QUOTA_FINDS] = 2,
                                        [EXO_QUOTA_LOGS] = 2}};

static head_world w;
static exo_err err;

static void
setup(void)
{
    world_open_with(&w, NULL, &few);
}

static void
teardown(void)
{
    world_close(&w);
}

TestSuite(quotas, .init = setup, .fini = teardown, .timeout = 120);

static void
expect_refused(exo_status st, const char *quota)
{
    cr_expect_eq(st, EXO_FULL, "%s", err.text);
    cr_expect(strstr(err.text, quota), "%s", err.text);
}

static exo_status
register_as(uint64_t peer, uint64_t node, const char *kind, const char *job)
{
    Exo__Cluster__Register m = EXO__CLUSTER__REGISTER__INIT;
    m.node = node;
    m.kind = exo_pb_text(kind);
    m.job = exo_pb_text(job);
    return world_ask_as(&w, peer, "register", &m.base, &err);
}

static void
goes(uint64_t node)
{
    world_lose(&w, node, "a test");
}

static exo_future *
begin_spawn(uint64_t peer, const char *name, size_t others)
{
    static const Exo__Cluster__Spawn blank = EXO__CLUSTER__SPAWN__INIT;
    Exo__Cluster__Spawn spec = blank, more = blank, *together[16];
    for (size_t i = 0; i < others; i++)
        together[i] = &more;
    more.class_name = spec.class_name = exo_pb_text("class");
    more.space = spec.space = exo_pb_text("default");
    spec.name = exo_pb_text(name);
    spec.together = together;
    spec.n_together = others;
    return world_begin_as(&w, peer, "spawn", &spec.base);
}

static exo_status
end(exo_future *future)
{
    exo_status st = exo_wait(future, INT64_MAX, NULL, &err);
    exo_future_drop(&future);
    return st;
}

static Exo__Cluster__Holding
held_by(uint64_t peer)
{
    Exo__Cluster__Holding held = EXO__CLUSTER__HOLDING__INIT;
    Exo__Cluster__Listing *listing = world_list(&w);
    for (size_t i = 0; i < listing->n_peers; i++)
        if (listing->peers[i]->node == peer)
            held = *listing->peers[i];
    held.name = NULL;
    EXO_RELEASE(listing);
    return held;
}

/* --- Each quota ------------------------------------------------------------------------------- */

Test(quotas, of_spawns_are_given_back_when_the_actors_live)
{
    exo_future *three = begin_spawn(PEER, "", 2);
    world_tick(&w, 0);
    cr_expect_eq(held_by(PEER).spawns, 3);
    expect_refused(end(begin_spawn(PEER, "", 0)), "'spawns'");
    exo_future *others = begin_spawn(OTHER, "", 0);
    for (size_t i = 0; i < 4; i++)
        world_answer(&w, i, EXO_OK, NULL);
    cr_expect_eq(end(three), EXO_OK);
    cr_expect_eq(end(others), EXO_OK, "another process has quotas of its own");
    cr_expect_eq(held_by(PEER).spawns, 0);
    cr_expect_eq(held_by(PEER).actors, 3);
}

Test(quotas, of_spawns_are_given_back_when_they_fail)
{
    for (size_t i = 0; i < 10; i++) {
        exo_future *f = begin_spawn(PEER, "", 2);
        world_tick(&w, 0);
        world_answer(&w, 3 * i, EXO_FAILED, "a test");
        cr_expect_eq(end(f), EXO_FAILED, "%s", err.text);
    }
    cr_expect_eq(held_by(PEER).spawns, 0);
    cr_expect_eq(held_by(PEER).actors, 0);
}

Test(quotas, of_spawns_bound_what_is_asked_for_at_once)
{
    expect_refused(end(begin_spawn(PEER, "", 3)), "'spawns'");
    cr_expect_eq(w.num_spawns, 0);
}

/* A spawn tells the worker the asker, so that each asker gets turns there. The head chooses the
 * asker's number: no process can use that of another. */
Test(quotas, workers_are_told_whom_spawns_are_for)
{
    exo_future *futures[] = {begin_spawn(PEER, "", 0), begin_spawn(OTHER, "", 0),
                             begin_spawn(PEER, "", 0)};
    world_tick(&w, 0);
    cr_assert_eq(w.num_spawns, 3);
    cr_expect_eq(w.spawns[0].asker, w.spawns[2].asker);
    cr_expect_neq(w.spawns[0].asker, w.spawns[1].asker);
    for (size_t i = 0; i < 3; i++) {
        cr_expect_neq(w.spawns[i].asker, 0, "it would be the head itself");
        cr_expect_neq(w.spawns[i].asker, PEER);
        world_answer(&w, i, EXO_OK, NULL);
        cr_expect_eq(end(futures[i]), EXO_OK, "%s", err.text);
    }
}

/* A driver that returns as another process still has the actors that it left behind. */
Test(quotas, of_a_drivers_actors_are_those_of_its_key)
{
    w.driver_key = "red";
    for (size_t i = 0; i < 6; i++) {
        exo_future *f = begin_spawn(100 + i, "", 0);
        world_tick(&w, 0);
        world_answer(&w, i, EXO_OK, NULL);
        cr_expect_eq(end(f), EXO_OK, "%s", err.text);
        goes(100 + i);
    }
    expect_refused(end(begin_spawn(200, "", 0)), "'actors'");
    Exo__Cluster__Listing *listing = world_list(&w);
    cr_assert_eq(listing->n_peers, 1);
    cr_expect_str_eq(listing->peers[0]->name, "red");
    EXO_RELEASE(listing);
    w.driver_key = "blue";
    exo_future *f = begin_spawn(201, "", 0);
    world_tick(&w, 0);
    world_answer(&w, 6, EXO_OK, NULL);
    cr_expect_eq(end(f), EXO_OK, "another key has quotas of its own: %s", err.text);
}

Test(quotas, of_actors_are_given_back_when_they_die)
{
    for (size_t i = 0; i < 6; i++) {
        exo_future *f = begin_spawn(PEER, "", 0);
        world_tick(&w, 0);
        world_answer(&w, i, EXO_OK, NULL);
        cr_expect_eq(end(f), EXO_OK);
    }
    expect_refused(end(begin_spawn(PEER, "", 0)), "'actors'");
    world_dies(&w, 2, "a test");
    exo_future *f = begin_spawn(PEER, "", 0);
    world_tick(&w, 0);
    world_answer(&w, 6, EXO_OK, NULL);
    cr_expect_eq(end(f), EXO_OK, "%s", err.text);
}

static exo_status
claim(uint64_t peer, const char *name)
{
    static uint64_t id = 1;
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    m.space = exo_pb_text("default");
    m.name = exo_pb_text(name);
    m.node = peer;
    m.id = ++id;
    return world_ask_as(&w, peer, "claim", &m.base, &err);
}

Test(quotas, of_names_are_given_back_when_their_process_goes)
{
    const char *names[] = {"a", "b", "c", "d"};
    cr_assert_eq(register_as(PEER, PEER, "driver", "job"), EXO_OK, "%s", err.text);
    for (size_t i = 0; i < 4; i++)
        cr_expect_eq(claim(PEER, names[i]), EXO_OK, "%s", err.text);
    expect_refused(claim(PEER, "e"), "'names'");
    cr_expect_eq(held_by(PEER).names, 4);
    goes(PEER);
    cr_expect_eq(held_by(PEER).names, 0);
    cr_assert_eq(register_as(PEER, PEER, "driver", "job"), EXO_OK, "%s", err.text);
    cr_expect_eq(claim(PEER, "e"), EXO_OK, "%s", err.text);
}

Test(quotas, of_jobs_are_given_back_when_they_end)
{
    cr_expect_eq(register_as(PEER, PEER, "driver", "one"), EXO_OK, "%s", err.text);
    cr_expect_eq(register_as(PEER, PEER, "driver", "two"), EXO_OK, "%s", err.text);
    expect_refused(register_as(PEER, PEER, "driver", "three"), "'jobs'");
    cr_expect_eq(register_as(PEER, PEER, "driver", "two"), EXO_OK, "it has that one");
    cr_expect_eq(held_by(PEER).jobs, 2);
}

static exo_future *
begin_find(uint64_t peer, const char *name)
{
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    m.space = exo_pb_text("default");
    m.name = exo_pb_text(name);
    return world_begin_as(&w, peer, "find", &m.base);
}

Test(quotas, of_searches_are_given_back_when_their_process_goes)
{
    exo_future *made = begin_spawn(OTHER, "slow", 0);
    exo_future *first = begin_find(PEER, "slow"), *second = begin_find(PEER, "slow");
    expect_refused(end(begin_find(PEER, "slow")), "'finds'");
    exo_future *another = begin_find(OTHER, "slow");
    goes(PEER);
    cr_expect_eq(end(first), EXO_CANCELLED);
    cr_expect_eq(end(second), EXO_CANCELLED);
    cr_expect_eq(held_by(PEER).finds, 0);
    world_answer(&w, 0, EXO_OK, NULL);
    cr_expect_eq(end(made), EXO_OK);
    cr_expect_eq(end(another), EXO_OK);
}

static exo_future *
begin_logs(void)
{
    return world_begin_bytes_as(&w, PEER, "logs", &(uint64_t){UINT64_MAX}, sizeof(uint64_t));
}

Test(quotas, of_watched_logs_are_given_back_when_there_are_lines)
{
    exo_future *one = begin_logs(), *two = begin_logs();
    expect_refused(end(begin_logs()), "'logs'");
    Exo__Cluster__LogLines lines = EXO__CLUSTER__LOG_LINES__INIT;
    lines.text = exo_pb_text("a line\n");
    cr_expect_eq(world_ask(&w, "log", &lines.base, &err), EXO_OK);
    cr_expect_eq(end(one), EXO_OK);
    cr_expect_eq(end(two), EXO_OK);
    cr_expect_eq(held_by(PEER).logs, 0);
}

/* --- Speaking for others ---------------------------------------------------------------------- */

Test(quotas, cannot_be_evaded_by_speaking_for_others)
{
    Exo__Cluster__Name died = EXO__CLUSTER__NAME__INIT;
    Exo__Cluster__NodeInfo gone = EXO__CLUSTER__NODE_INFO__INIT;
    cr_expect_eq(register_as(PEER, PEER, "worker", ""), EXO_OK, "%s", err.text);
    cr_expect_eq(register_as(PEER, OTHER, "worker", ""), EXO_DENIED, "an invented node");
    gone.node = died.node = WORLD_NODE;
    cr_expect_eq(world_ask_as(&w, PEER, "gone", &gone.base, &err), EXO_DENIED);
    cr_expect_eq(world_ask_as(&w, PEER, "died", &died.base, &err), EXO_DENIED);
    const char *own[] = {"tick", "started", "go_on"};
    for (size_t i = 0; i < 3; i++)
        cr_expect_eq(world_ask_as(&w, PEER, own[i], NULL, &err), EXO_DENIED, "%s", own[i]);
    Exo__Cluster__Listing *listing = world_list(&w);
    cr_expect_eq(listing->n_nodes, 2);
    EXO_RELEASE(listing);
}

/* --- Messages --------------------------------------------------------------------------------- */

static exo_status
ask_bytes(const char *method, const uint8_t *data, size_t size)
{
    exo_future *future = NULL;
    cr_assert_eq(exo_call(w.runtime, w.head, method, exo_payload_borrow(data, size), INT64_MAX,
                          &future, &err),
                 EXO_OK);
    return end(future);
}

/* Empty actors take two bytes each, and hundreds of bytes when they are unpacked. */
Test(quotas, bound_what_a_message_becomes)
{
    enum {
        SIZE = 2 << 20
    };
    static const char head[] = "\x08\x4d\x3a\x06worker"; /* node 77 */
    uint8_t *data = exo_calloc(1, SIZE);
    for (size_t i = 0; i < SIZE; i += 2)
        data[i] = 0x42;
    memcpy(data, head, sizeof head - 1);
    cr_expect_eq(ask_bytes("register", data, SIZE), EXO_INVAL, "too many bytes");
    cr_expect_eq(ask_bytes("register", data, 1 << 20), EXO_INVAL, "too many messages within");
    cr_expect_eq(ask_bytes("register", data, 20000), EXO_INVAL, "too many actors for a part");
    cr_expect_eq(ask_bytes("register", data, 2 + 2 * EXO_PART_ACTORS), EXO_OK, "%s", err.text);
    for (size_t i = sizeof head - 1; i < SIZE; i += 2)
        data[i] = 0x78; /* a field that no register has */
    cr_expect_eq(ask_bytes("register", data, 1 << 20), EXO_INVAL, "too many fields");
    cr_expect_not_null(strstr(err.text, "65536 fields"), "%s", err.text);
    cr_expect_eq(ask_bytes("register", data, 100000), EXO_OK, "%s", err.text);
    exo_free(data);
}

/* --- Slices ----------------------------------------------------------------------------------- */

static Exo__Cluster__Listing *
listing_of(exo_future *future)
{
    const exo_payload *reply = NULL;
    cr_assert_eq(exo_wait(future, INT64_MAX, &reply, NULL), EXO_OK);
    Exo__Cluster__Listing *listing =
        EXO_UNPACK(Exo__Cluster__Listing, exo__cluster__listing, reply);
    cr_assert(listing);
    exo_future_drop(&future);
    return listing;
}

/* The head serves other calls while it starts a large group: a list shows actors for which no
 * worker has been asked yet. */
Test(quotas, let_others_be_served_amid_a_large_group)
{
    enum {
        COUNT = 900
    };
    Exo__Cluster__Spawn specs[COUNT], *together[COUNT];
    size_t begun = 0;
    for (size_t i = 0; i < COUNT; i++) {
        exo__cluster__spawn__init(&specs[i]);
        specs[i].class_name = exo_pb_text("class");
        specs[i].space = exo_pb_text("default");
        specs[i].group = exo_pb_text("group");
        together[i] = &specs[i];
    }
    specs[0].together = together + 1;
    specs[0].n_together = COUNT - 1;
    world_hold(&w);
    exo_future *made = world_begin(&w, w.head, "spawn", &specs[0].base, INT64_MAX),
               *listed = world_begin(&w, w.head, "list", NULL, INT64_MAX);
    world_release(&w);
    Exo__Cluster__Listing *listing = listing_of(listed);
    for (size_t i = 0; i < listing->n_actors; i++)
        begun += listing->actors[i]->incarnation > 0;
    cr_expect_eq(listing->n_actors, EXO_PAGE_ACTORS, "the first ones");
    cr_expect_lt(begun, EXO_PAGE_ACTORS, "all of them in one go");
    EXO_RELEASE(listing);
    for (int i = 0; i < COUNT && w.num_spawns < COUNT; i++)
        world_tick(&w, 0);
    cr_expect_eq(w.num_spawns, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        world_answer(&w, i, EXO_OK, NULL);
    cr_expect_eq(end(made), EXO_OK, "%s", err.text);
}

enum {
    MANY = EXO_PAGE_ACTORS - 10 /* fewer than one reply lists */
};

/* Makes the actors "a0", "a1", ... in the process of the worker. */
static void
spawn_many(const char *job)
{
    static struct world_member members[MANY];
    static char names[MANY][8];
    for (size_t i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "a%zu", i);
        world_describe(&members[i], names[i], 0, EXO_ONE_FOR_ONE);
        members[i].rule.when = EXO_RESTART_NEVER;
        members[i].spec.job = exo_pb_text(job);
    }
    world_spawn(&w, members, MANY);
}

static size_t
count_alive(exo_future *listed)
{
    size_t alive = 0;
    Exo__Cluster__Listing *listing = listing_of(listed);
    for (size_t i = 0; i < listing->n_actors; i++)
        alive += strcmp(listing->actors[i]->state, "alive") == 0;
    EXO_RELEASE(listing);
    return alive;
}

static size_t
count_alive_now(void)
{
    return count_alive(world_begin(&w, w.head, "list", NULL, INT64_MAX));
}

/* Counts the living actors in a list that was requested right behind the call. */
static size_t
count_alive_behind(const char *method, const ProtobufCMessage *message)
{
    world_hold(&w);
    exo_future *first = world_begin(&w, w.head, method, message, INT64_MAX),
               *listed = world_begin(&w, w.head, "list", NULL, INT64_MAX);
    world_release(&w);
    cr_expect_eq(end(first), EXO_OK, "%s", err.text);
    return count_alive(listed);
}

/* No caller finds an actor of a process that has ended, even before the head has processed the
 * actor's death. */
Test(quotas, let_others_be_served_amid_the_end_of_a_process)
{
    Exo__Cluster__Epitaph epitaph = EXO__CLUSTER__EPITAPH__INIT;
    Exo__Cluster__NodeInfo gone = EXO__CLUSTER__NODE_INFO__INIT;
    char name[8];
    spawn_many("");
    gone.node = WORLD_NODE;
    gone.cause = exo_pb_text("a test");
    size_t alive = count_alive_behind("gone", &gone.base);
    cr_expect_gt(alive, 0, "all of them in one go");
    cr_expect_lt(alive, MANY, "the first ones at once");
    for (size_t i = MANY; i-- > 0;) {
        snprintf(name, sizeof name, "a%zu", i);
        cr_expect(strstr(world_why(&w, name), "dead"), "%s", w.text);
        cr_expect(strstr(w.text, "its node 'w1' is lost: a test"), "%s", w.text);
    }
    cr_expect_eq(count_alive_now(), 0);
    epitaph.node = WORLD_NODE;
    epitaph.cause = exo_pb_text("was killed");
    cr_expect_eq(world_ask(&w, "epitaph", &epitaph.base, &err), EXO_OK, "%s", err.text);
    for (int i = 0; i < 10; i++)
        world_tick(&w, 0);
    for (size_t i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "a%zu", i);
        cr_expect(strstr(world_why(&w, name), "its node 'w1' was killed"), "%s", w.text);
    }
}

/* A process may return before the head has processed the deaths of its actors. It keeps the actors
 * that it reports; the others are dead. */
Test(quotas, let_a_process_come_back_amid_its_end)
{
    Exo__Cluster__NodeInfo gone = EXO__CLUSTER__NODE_INFO__INIT;
    Exo__Cluster__Register m = EXO__CLUSTER__REGISTER__INIT;
    spawn_many("");
    gone.node = m.node = WORLD_NODE;
    gone.cause = exo_pb_text("a test");
    m.name = exo_pb_text("w1");
    m.kind = exo_pb_text("worker");
    world_hold(&w);
    exo_future *ends = world_begin(&w, w.head, "gone", &gone.base, INT64_MAX),
               *comes = world_begin(&w, w.head, "register", &m.base, INT64_MAX);
    world_release(&w);
    cr_expect_eq(end(ends), EXO_OK);
    cr_expect_eq(end(comes), EXO_OK, "%s", err.text);
    for (int i = 0; i < 20; i++)
        world_tick(&w, 0);
    cr_expect_eq(count_alive_now(), 0, "it told of none");
}

Test(quotas, let_others_be_served_amid_the_end_of_a_job)
{
    Exo__Cluster__NodeInfo gone = EXO__CLUSTER__NODE_INFO__INIT;
    size_t before = w.num_kills;
    world_register(&w, PEER, "driver", "d", "job");
    spawn_many("job");
    gone.node = PEER;
    gone.cause = exo_pb_text("a test");
    cr_expect_gt(count_alive_behind("gone", &gone.base), 0, "all of them in one go");
    /* the name is free, and the actors of the former job still die */
    world_register(&w, OTHER, "driver", "e", "job");
    for (int i = 0; i < 20; i++)
        world_tick(&w, 0);
    cr_expect_eq(count_alive_now(), 0);
    cr_expect_eq(w.num_kills - before, MANY);
}

/* Of many simultaneous answers of workers, the head processes only a few before a call that arrives
 * then. */
Test(quotas, let_others_be_served_amid_what_workers_answer)
{
    static struct world_member members[MANY];
    static char names[MANY][8];
    for (size_t i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "a%zu", i);
        world_describe(&members[i], names[i], 0, EXO_ONE_FOR_ONE);
    }
    exo_future *made = world_begin_spawn(&w, members, MANY);
    world_hold(&w);
    for (size_t i = 0; i < MANY; i++)
        world_answer_soon(&w, i);
    exo_future *listed = world_begin(&w, w.head, "list", NULL, INT64_MAX);
    world_release(&w);
    cr_expect_lt(count_alive(listed), MANY / 10);
    cr_expect_eq(end(made), EXO_OK, "%s", err.text);
    cr_expect_eq(count_alive_now(), MANY);
}

/* --- Too many at once ------------------------------------------------------------------------- */

enum {
    FAR_TOO_MANY = 15000 /* more than the head unpacks of any kind */
};

static exo_future *
begin_together(size_t count, exo_group_rule rule)
{
    static Exo__Cluster__Spawn specs[FAR_TOO_MANY], *together[FAR_TOO_MANY];
    for (size_t i = 0; i < count; i++) {
        exo__cluster__spawn__init(&specs[i]);
        specs[i].class_name = exo_pb_text("class");
        specs[i].space = exo_pb_text("default");
        specs[i].group = exo_pb_text("group");
        specs[i].group_rule = rule;
        together[i] = &specs[i];
    }
    specs[0].together = together + 1;
    specs[0].n_together = count - 1;
    return world_begin_as(&w, PEER, "spawn", &specs[0].base);
}

Test(quotas, bound_what_is_made_and_restarted_together)
{
    world_close(&w);
    world_open(&w, NULL);
    cr_expect_eq(end(begin_together(EXO_TOGETHER + 1, EXO_ONE_FOR_ONE)), EXO_FULL);
    cr_expect(strstr(err.text, "together"), "%s", err.text);
    cr_expect_eq(end(begin_together(FAR_TOO_MANY, EXO_ONE_FOR_ONE)), EXO_FULL,
                 "they were unpacked: %s", err.text);
    cr_expect(strstr(err.text, "15000 actors are asked for together"), "%s", err.text);
    exo_future *made = begin_together(EXO_GROUP_MEMBERS / 2, EXO_ALL_FOR_ONE);
    cr_expect_eq(end(begin_together(EXO_GROUP_MEMBERS / 2 + 1, EXO_ALL_FOR_ONE)), EXO_FULL);
    cr_expect(strstr(err.text, "the group 'group'"), "%s", err.text);
    exo_cancel(made);
    exo_future_drop(&made);
}

/* --- Lists in parts --------------------------------------------------------------------------- */

Test(quotas, give_lists_in_parts)
{
    enum {
        ACTORS = 2500
    };
    uint64_t after = 0, last = 0;
    size_t seen = 0, parts = 0;
    world_close(&w);
    world_open(&w, NULL);
    world_register(&w, PEER, "driver", "d", "job");
    for (uint64_t i = 1; i <= ACTORS; i++) {
        Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
        char name[16];
        snprintf(name, sizeof name, "n%llu", (unsigned long long)i);
        m.space = exo_pb_text("default");
        m.name = name;
        m.node = PEER;
        m.id = i;
        cr_assert_eq(world_ask_as(&w, PEER, "claim", &m.base, &err), EXO_OK, "%s", err.text);
    }
    do {
        const exo_payload *reply = NULL;
        Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
        m.key = after;
        exo_future *future = world_begin(&w, w.head, "list", &m.base, INT64_MAX);
        cr_assert_eq(exo_wait(future, INT64_MAX, &reply, NULL), EXO_OK);
        Exo__Cluster__Listing *part =
            EXO_UNPACK(Exo__Cluster__Listing, exo__cluster__listing, reply);
        cr_assert(part);
        cr_expect_leq(part->n_actors, EXO_PAGE_ACTORS);
        cr_expect_eq(part->n_nodes > 0, after == 0);
        for (size_t i = 0; i < part->n_actors; i++) {
            cr_expect_gt(part->actors[i]->key, last, "each once");
            last = part->actors[i]->key;
        }
        seen += part->n_actors;
        parts++;
        after = part->more;
        EXO_RELEASE(part);
        exo_future_drop(&future);
    } while (after);
    cr_expect_eq(seen, ACTORS);
    cr_expect_eq(parts, (ACTORS + EXO_PAGE_ACTORS - 1) / EXO_PAGE_ACTORS);
}

/* The head gives the lines of a node's log that it keeps, and no others, however many arrive in one
 * message. */
Test(quotas, give_logs_in_parts)
{
    enum {
        LINES = 10000,
        KEPT = 4096
    };
    Exo__Cluster__LogLines m = EXO__CLUSTER__LOG_LINES__INIT;
    char *text = exo_calloc(1, LINES * 100 + 1), expected[32];
    uint64_t words[2] = {0, 1}, lines = 0, parts = 0;
    for (size_t i = 0; i < LINES; i++)
        snprintf(text + 100 * i, 101, "%06zu %092d\n", i, 0);
    m.text = text;
    cr_expect_eq(world_ask(&w, "log", &m.base, &err), EXO_OK, "%s", err.text);
    for (bool more = true; more; parts++) {
        const exo_payload *reply = NULL;
        exo_future *future = NULL;
        cr_assert_eq(exo_call(w.runtime, w.head, "logs", exo_payload_borrow(words, sizeof words),
                              INT64_MAX, &future, &err),
                     EXO_OK);
        cr_assert_eq(exo_wait(future, INT64_MAX, &reply, &err), EXO_OK);
        memcpy(words, reply->data, sizeof words[0]);
        const char *at = (const char *)reply->data + sizeof words[0],
                   *end_of = (const char *)reply->data + reply->size;
        cr_expect_leq(reply->size, (256 << 10) + 1024);
        for (; at < end_of; lines++) {
            snprintf(expected, sizeof expected, ": %06zu ", (size_t)(LINES - KEPT) + (size_t)lines);
            cr_assert_eq(strncmp(at, expected, strlen(expected)), 0, "%.20s instead of %s", at,
                         expected);
            at = (const char *)memchr(at, '\n', (size_t)(end_of - at)) + 1;
        }
        more = reply->size > sizeof words[0];
        exo_future_drop(&future);
    }
    cr_expect_eq(lines, KEPT);
    cr_expect_gt(parts, 2);
    exo_free(text);
}

/* --- Resources that others hold of a node ----------------------------------------------------- */

Test(quotas, show_what_others_hold_of_a_node)
{
    Exo__Cluster__Holding held = EXO__CLUSTER__HOLDING__INIT, *list[EXO_HOLDERS + 1];
    Exo__Cluster__Holdings m = EXO__CLUSTER__HOLDINGS__INIT;
    size_t found = 0;
    held.node = OTHER;
    held.name = exo_pb_text("other");
    held.lent = 7;
    held.lent_bytes = 7 << 20;
    for (size_t i = 0; i <= EXO_HOLDERS; i++)
        list[i] = &held;
    m.node = WORLD_NODE;
    m.peers = list;
    m.n_peers = EXO_HOLDERS + 1;
    cr_expect_eq(world_ask_as(&w, WORLD_NODE, "holds", &m.base, &err), EXO_INVAL);
    m.n_peers = 1;
    cr_expect_eq(world_ask_as(&w, PEER, "holds", &m.base, &err), EXO_DENIED, "of another node");
    cr_expect_eq(world_ask_as(&w, WORLD_NODE, "holds", &m.base, &err), EXO_OK, "%s", err.text);
    Exo__Cluster__Listing *listing = world_list(&w);
    for (size_t i = 0; i < listing->n_peers; i++)
        if (strcmp(listing->peers[i]->by, "w1") == 0) {
            found++;
            cr_expect_str_eq(listing->peers[i]->name, "other");
            cr_expect_eq(listing->peers[i]->lent, 7);
            cr_expect_eq(listing->peers[i]->lent_bytes, 7 << 20);
        }
    EXO_RELEASE(listing);
    cr_expect_eq(found, 1);
    m.n_peers = 0;
    cr_expect_eq(world_ask_as(&w, WORLD_NODE, "holds", &m.base, &err), EXO_OK, "%s", err.text);
    listing = world_list(&w);
    for (size_t i = 0; i < listing->n_peers; i++)
        cr_expect_eq(listing->peers[i]->by[0], 0);
    EXO_RELEASE(listing);
}

/* --- Forgotten actors ------------------------------------------------------------------------- */

Test(quotas, leave_no_rows_of_dead_actors_without_names)
{
    char folder[64], path[128];
    sqlite3 *db = NULL;
    sqlite3_stmt *count = NULL;
    temp_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/state.db", folder);
    world_close(&w);
    world_open_with(&w, path, NULL);
    for (size_t i = 0; i < 10; i++) {
        struct world_member m;
        world_describe(&m, "", 0, EXO_ONE_FOR_ONE);
        m.spec.detached = true;
        m.rule.when = EXO_RESTART_NEVER;
        world_spawn(&w, &m, 1);
        world_dies(&w, i, "a test");
    }
    world_close(&w);
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_prepare_v2(db, "SELECT count(*) FROM actors", -1, &count, NULL),
                 SQLITE_OK);
    cr_assert_eq(sqlite3_step(count), SQLITE_ROW);
    cr_expect_eq(sqlite3_column_int(count, 0), 0);
    sqlite3_finalize(count);
    sqlite3_close(db);
    world_open(&w, NULL);
    temp_remove(folder);
}
