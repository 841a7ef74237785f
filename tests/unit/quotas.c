/* What one process may hold of the head: each quota is reached, named in the refusal, and given back. */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include <sqlite3.h>

#include <exogym/memory.h>

#include "head_world.h"
#include "temp.h"

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

/* --- Each quota -------------------------------------------------------------------------------------------------------------- */

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

/* A driver that comes again as another process has what it left behind. */
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

/* --- Who speaks -------------------------------------------------------------------------------------------------------------- */

Test(quotas, cannot_be_evaded_by_speaking_for_others)
{
    Exo__Cluster__Name died = EXO__CLUSTER__NAME__INIT;
    Exo__Cluster__NodeInfo gone = EXO__CLUSTER__NODE_INFO__INIT;
    cr_expect_eq(register_as(PEER, PEER, "worker", ""), EXO_OK, "%s", err.text);
    cr_expect_eq(register_as(PEER, OTHER, "worker", ""), EXO_DENIED, "an invented node");
    gone.node = died.node = WORLD_NODE;
    cr_expect_eq(world_ask_as(&w, PEER, "gone", &gone.base, &err), EXO_DENIED);
    cr_expect_eq(world_ask_as(&w, PEER, "died", &died.base, &err), EXO_DENIED);
    const char *own[] = {"tick", "started", "begin"};
    for (size_t i = 0; i < 3; i++)
        cr_expect_eq(world_ask_as(&w, PEER, own[i], NULL, &err), EXO_DENIED, "%s", own[i]);
    Exo__Cluster__Listing *listing = world_list(&w);
    cr_expect_eq(listing->n_nodes, 2);
    EXO_RELEASE(listing);
}

/* --- Messages ---------------------------------------------------------------------------------------------------------------- */

static exo_status
ask_bytes(const char *method, const uint8_t *data, size_t size)
{
    exo_future *future = NULL;
    cr_assert_eq(exo_call(w.runtime, w.head, method, exo_payload_borrow(data, size), INT64_MAX, &future, &err), EXO_OK);
    return end(future);
}

/* Empty actors: two bytes each, and hundreds when they are unpacked. */
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
    cr_expect_eq(ask_bytes("register", data, 20000), EXO_OK, "%s", err.text);
    exo_free(data);
}

/* --- Slices ------------------------------------------------------------------------------------------------------------------ */

/* While lives of a large group are begun, others are served: the list shows some that nobody was asked for yet. */
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
    exo_future *made = world_begin(&w, w.head, "spawn", &specs[0].base, INT64_MAX);
    Exo__Cluster__Listing *listing = world_list(&w);
    for (size_t i = 0; i < listing->n_actors; i++)
        begun += listing->actors[i]->incarnation > 0;
    cr_expect_eq(listing->n_actors, COUNT);
    cr_expect_lt(begun, COUNT, "all of them in one go");
    EXO_RELEASE(listing);
    for (int i = 0; i < 10; i++)
        world_tick(&w, 0);
    cr_expect_eq(w.num_spawns, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        world_answer(&w, i, EXO_OK, NULL);
    cr_expect_eq(end(made), EXO_OK, "%s", err.text);
}

/* --- What is forgotten ------------------------------------------------------------------------------------------------------- */

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
    cr_assert_eq(sqlite3_prepare_v2(db, "SELECT count(*) FROM actors", -1, &count, NULL), SQLITE_OK);
    cr_assert_eq(sqlite3_step(count), SQLITE_ROW);
    cr_expect_eq(sqlite3_column_int(count, 0), 0);
    sqlite3_finalize(count);
    sqlite3_close(db);
    world_open(&w, NULL);
    temp_remove(folder);
}
