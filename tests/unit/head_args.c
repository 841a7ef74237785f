/* The arguments that actors start with: the head and its file have them until the actor is dead for
 * good, once each. The suite's `setup` and `teardown` own the folder and the world. */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "cluster/durable.h"
#include "support/head_world.h"
#include "support/temp.h"

enum {
    ARGS = 100000
};

static head_world w;
static char folder[64], path[128];
static uint8_t bytes[ARGS];

static void
setup(void)
{
    temp_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/head.db", folder);
    world_open(&w, path);
}

static void
teardown(void)
{
    temp_remove(folder);
}

TestSuite(head_args, .init = setup, .fini = teardown, .timeout = 60);

static void
with_args(struct world_member *m, const char *name, uint32_t max)
{
    world_describe(m, name, max, EXO_ONE_FOR_ONE);
    m->spec.args = (ProtobufCBinaryData){.data = bytes, .len = ARGS};
}

struct found {
    const char *name;
    size_t size;
};

static void
visit(void *context, const exo_durable_row *row)
{
    struct found *f = context;
    if (strcmp(row->name, f->name) == 0)
        f->size = row->spec_size;
}

/* Bytes of the actor's spec in the file. The world is closed. */
static size_t
kept(const char *name)
{
    struct found f = {.name = name};
    exo_durable *file = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_durable_open(&file, path, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_durable_each(file, "actors", visit, &f, &err), EXO_OK, "%s", err.text);
    exo_durable_close(&file);
    cr_assert_gt(f.size, 0, "the file has no '%s'", name);
    return f.size;
}

Test(head_args, are_kept_for_the_next_life_alone)
{
    struct world_member m;
    with_args(&m, "again", 1);
    world_spawn(&w, &m, 1);
    world_dies(&w, 0, "a test");
    world_until_asked(&w);
    world_answer(&w, 1, EXO_OK, NULL);
    world_close(&w);
    cr_expect_gt(kept("again"), ARGS);
    world_open(&w, path);
    world_close(&w);
    cr_expect_gt(kept("again"), ARGS);
}

Test(head_args, of_the_dead_are_forgotten)
{
    struct world_member m;
    with_args(&m, "once", 0);
    m.rule.when = EXO_RESTART_NEVER;
    world_spawn(&w, &m, 1);
    world_dies(&w, 0, "a test");
    cr_expect(world_is(&w, "once", "dead", 1), "%s", w.text);
    world_close(&w);
    cr_expect_lt(kept("once"), 500);
}

/* Plugins and lanes are of no use either. */
Test(head_args, of_the_dead_are_forgotten_with_all_that_a_start_needs)
{
    char plugin[1000], lane[1000], *plugins[] = {plugin};
    Exo__Cluster__LaneOpts one = EXO__CLUSTER__LANE_OPTS__INIT, *lanes[] = {&one};
    struct world_member m;
    with_args(&m, "once", 0);
    m.rule.when = EXO_RESTART_NEVER;
    memset(plugin, 'p', sizeof plugin);
    memset(lane, 'l', sizeof lane);
    plugin[sizeof plugin - 1] = lane[sizeof lane - 1] = 0;
    one.lane = lane;
    m.spec.plugins = plugins;
    m.spec.lanes = lanes;
    m.spec.n_plugins = m.spec.n_lanes = 1;
    world_spawn(&w, &m, 1);
    world_dies(&w, 0, "a test");
    world_close(&w);
    cr_expect_lt(kept("once"), 500);
}

/* An older head has left a dead actor with its arguments in the file. */
Test(head_args, of_the_dead_of_an_older_head_are_forgotten)
{
    struct world_member m;
    Exo__Cluster__Actor info = EXO__CLUSTER__ACTOR__INIT;
    exo_payload spec = {0}, packed = {0};
    exo_durable *file = NULL;
    world_close(&w);
    with_args(&m, "old", 0);
    info.state = exo_pb_text("dead");
    info.cause = exo_pb_text("a test");
    cr_assert_eq(exo_message_pack(&spec, &m.spec.base), EXO_OK);
    cr_assert_eq(exo_message_pack(&packed, &info.base), EXO_OK);
    cr_assert_eq(exo_durable_open(&file, path, NULL), EXO_OK);
    const exo_durable_row row = {.table = "actors",
                                 .key = 1,
                                 .name = "old",
                                 .state = "dead",
                                 .detail = "a test",
                                 .info = packed.data,
                                 .info_size = packed.size,
                                 .spec = spec.data,
                                 .spec_size = spec.size};
    cr_assert_eq(exo_durable_put(file, &row, NULL), EXO_OK);
    exo_durable_close(&file);
    exo_payload_release(&spec);
    exo_payload_release(&packed);
    cr_assert_gt(kept("old"), ARGS);
    world_open(&w, path);
    cr_expect(world_is(&w, "old", "dead", 0), "%s", w.text);
    world_close(&w);
    cr_expect_lt(kept("old"), 500);
}

Test(head_args, of_several_that_are_made_together_are_kept_once)
{
    struct world_member m[3];
    with_args(&m[0], "a", 0);
    with_args(&m[1], "b", 0);
    with_args(&m[2], "c", 0);
    world_spawn(&w, m, 3);
    world_close(&w);
    cr_expect_lt(kept("a"), ARGS + 500);
    cr_expect_lt(kept("c"), ARGS + 500);
}
