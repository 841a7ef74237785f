/* The GPUs that a head gives to actors: parts of one, or whole ones, never more than there is of each.
 * A second worker, with GPUs, is this test's. Read next: runtime/cluster/gpus.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/memory.h>
#include <exogym/rng.h>

#include "cluster/gpus.h"
#include "support/head_world.h"

enum {
    GPU_NODE = 2
};

static head_world w;

static void
setup(void)
{
    world_open(&w, NULL);
}

static void
teardown(void)
{
    world_close(&w);
}

TestSuite(head_gpus, .init = setup, .fini = teardown, .timeout = 60);

/* A resource of `gpus`. */
struct amount {
    Exo__Cluster__Resource resource, *list[2];
};

static void
set_amount(struct amount *a, double gpus)
{
    exo__cluster__resource__init(&a->resource);
    a->resource.name = exo_pb_text("gpus");
    a->resource.amount = gpus;
    a->list[0] = a->list[1] = &a->resource;
}

/* A worker registers with this many GPUs, and with an actor unless it is NULL. */
static exo_status
register_gpus(double gpus, Exo__Cluster__Actor *actor, exo_err *err)
{
    struct amount has;
    Exo__Cluster__Register m = EXO__CLUSTER__REGISTER__INIT;
    set_amount(&has, gpus);
    m.node = GPU_NODE;
    m.name = exo_pb_text("w2");
    m.kind = exo_pb_text("worker");
    m.resources = has.list;
    m.n_resources = 1;
    m.actors = &actor;
    m.n_actors = actor != NULL;
    return world_ask(&w, "register", &m.base, err);
}

static exo_future *
begin(const char *name, double gpus, uint64_t wanted)
{
    struct world_member m;
    struct amount takes;
    world_describe(&m, name, 1, EXO_ONE_FOR_ONE);
    set_amount(&takes, gpus);
    m.spec.resources = takes.list;
    m.spec.n_resources = 1;
    m.spec.gpus = wanted;
    return world_begin(&w, w.head, "spawn", &m.spec.base, INT64_MAX);
}

/* Returns when the worker has received what the head asked of it. */
static void
asked(void)
{
    cr_assert_eq(world_ask(&w, "list", NULL, NULL), EXO_OK);
}

/* The GPUs that the worker is told to give to a new actor, a bit each. */
static uint64_t
given(const char *name, double gpus)
{
    const size_t before = w.num_spawns;
    exo_future *made = begin(name, gpus, 0);
    asked();
    cr_assert_eq(w.num_spawns, before + 1, "'%s' has no place", name);
    world_answer(&w, before, EXO_OK, NULL);
    exo_future_drop(&made);
    return w.spawns[before].gpus;
}

/* The worker reports the end of the life that the i-th spawn began. */
static void
dies(size_t i)
{
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    m.key = w.spawns[i].key;
    m.incarnation = w.spawns[i].incarnation;
    m.node = GPU_NODE;
    m.id = w.spawns[i].id;
    m.cause = exo_pb_text("an accident");
    m.failure = true;
    cr_assert_eq(world_ask(&w, "died", &m.base, NULL), EXO_OK);
}

static void
expect_refused(double gpus, exo_status status, const char *reason)
{
    exo_err err = {0};
    exo_future *made = begin("refused", gpus, 0);
    cr_expect_eq(exo_wait(made, INT64_MAX, NULL, &err), status);
    cr_expect(strstr(err.text, reason), "%g: %s", gpus, err.text);
    exo_future_drop(&made);
}

Test(head_gpus, are_shared_by_parts_and_filled_one_after_the_other)
{
    cr_assert_eq(register_gpus(2, NULL, NULL), EXO_OK);
    cr_expect_eq(given("a", 0.5), 1);
    cr_expect_eq(given("b", 0.6), 2, "only 0.5 of the first is free");
    cr_expect_eq(given("c", 0.25), 2, "of the second less is free");
    cr_expect_eq(given("d", 0.5), 1);
    /* 0.15 is free, all of it of the second */
    expect_refused(0.2, EXO_FULL, "gpus 0.2 of one");
    cr_expect_eq(given("e", 0.15), 2);
}

Test(head_gpus, are_not_made_whole_from_parts)
{
    cr_assert_eq(register_gpus(3, NULL, NULL), EXO_OK);
    cr_expect_eq(given("a", 0.6), 1);
    cr_expect_eq(given("b", 0.6), 2);
    expect_refused(2, EXO_FULL, "gpus 2");
    cr_expect_eq(given("c", 1), 4);
    expect_refused(0.8, EXO_FULL, "gpus 0.8 of one"); /* 0.4 is free of each of two */
    expect_refused(1.5, EXO_INVAL, "a part of one GPU, or whole ones");
}

Test(head_gpus, come_back_and_are_given_anew)
{
    cr_assert_eq(register_gpus(4, NULL, NULL), EXO_OK);
    cr_expect_eq(given("two", 2), 3);
    const size_t first = w.num_spawns - 1;
    cr_expect_eq(given("one", 1), 4);
    dies(first);
    world_until_asked(&w);
    cr_assert_eq(w.num_spawns, first + 3, "%s", world_why(&w, "two"));
    cr_expect_eq(w.spawns[w.num_spawns - 1].gpus, 3, "the same two are free again");
    world_answer(&w, w.num_spawns - 1, EXO_OK, NULL);
    cr_expect_eq(given("last", 1), 8);
    expect_refused(0.1, EXO_FULL, "of one");
}

Test(head_gpus, are_chosen_by_the_head_alone)
{
    cr_assert_eq(register_gpus(2, NULL, NULL), EXO_OK);
    const size_t before = w.num_spawns;
    exo_future *made = begin("a", 1, 2); /* asks for the second one */
    asked();
    cr_assert_eq(w.num_spawns, before + 1);
    cr_expect_eq(w.spawns[before].gpus, 1);
    exo_future_drop(&made);
    exo_err err = {0};
    cr_expect_eq(register_gpus(65, NULL, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "at most 64 GPUs"), "%s", err.text);
}

/* A worker that a restarted head does not know says which GPUs its actors have. */
Test(head_gpus, stay_with_an_actor_whose_head_was_lost)
{
    Exo__Cluster__Spawn spec = EXO__CLUSTER__SPAWN__INIT;
    Exo__Cluster__Actor info = EXO__CLUSTER__ACTOR__INIT;
    struct amount takes;
    set_amount(&takes, 1);
    spec.name = exo_pb_text("old");
    spec.space = exo_pb_text("default");
    spec.class_name = exo_pb_text("class");
    spec.resources = takes.list;
    spec.n_resources = 1;
    spec.detached = true;
    spec.gpus = 2 | UINT64_C(1) << 40; /* and one that the worker does not have */
    info.key = 5;
    info.id = 77;
    info.incarnation = 1;
    info.spec = &spec;
    cr_assert_eq(register_gpus(3, &info, NULL), EXO_OK);
    cr_expect_eq(given("new", 2), 5);
    Exo__Cluster__Listing *listing = world_list(&w);
    uint64_t has = 0;
    for (size_t i = 0; i < listing->n_actors; i++)
        if (strcmp(listing->actors[i]->name, "old") == 0)
            has = listing->actors[i]->gpus;
    cr_expect_eq(has, 2);
    EXO_RELEASE(listing);
}

Test(head_gpus, are_named_once)
{
    struct world_member m;
    struct amount takes;
    exo_err err = {0};
    world_describe(&m, "a", 0, EXO_ONE_FOR_ONE);
    set_amount(&takes, 1);
    m.spec.resources = takes.list;
    m.spec.n_resources = 2;
    exo_future *made = world_begin(&w, w.head, "spawn", &m.spec.base, INT64_MAX);
    cr_expect_eq(exo_wait(made, INT64_MAX, NULL, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "'gpus' is named twice"), "%s", err.text);
    exo_future_drop(&made);
}

/* Drawn amounts, taken and given back, beside a count in sixteenths of each GPU. */
Test(head_gpus, are_never_given_twice)
{
    enum {
        GPUS = 5,
        HELD = 40
    };
    struct {
        uint64_t these;
        unsigned parts;
    } held[HELD] = {0};
    unsigned used[GPUS] = {0}, most = 0;
    exo_gpus gpus;
    exo_rng rng;
    exo_rng_init(&rng, 7, EXO_RNG_USER, 0, 0);
    cr_assert(exo_gpus_init(&gpus, GPUS));
    for (int i = 0; i < 20000; i++) {
        const size_t h = exo_rng_below(&rng, HELD);
        const unsigned parts = held[h].parts            ? held[h].parts
                               : exo_rng_below(&rng, 4) ? 1 + exo_rng_below(&rng, 16)
                                                        : 16 * (1 + exo_rng_below(&rng, 3));
        const unsigned each = parts < 16 ? parts : 16;
        const bool gives = held[h].parts > 0;
        if (!gives) {
            unsigned room = 0;
            for (int g = 0; g < GPUS; g++)
                room += used[g] + each <= 16;
            const bool fits = room * each >= parts;
            cr_assert_eq(exo_gpus_have(&gpus, parts / 16.0), fits, "round %d: %u", i, parts);
            if (!fits)
                continue;
            held[h].these = exo_gpus_take(&gpus, parts / 16.0);
            held[h].parts = parts;
        } else
            exo_gpus_give(&gpus, parts / 16.0, held[h].these);
        unsigned number = 0, whole = 0;
        for (int g = 0; g < GPUS; g++) {
            if (held[h].these >> g & 1) {
                used[g] = gives ? used[g] - each : used[g] + each;
                number++;
            }
            cr_assert(used[g] <= 16 && fabs(gpus.free[g] - (1 - used[g] / 16.0)) < 1e-6);
            whole += used[g] == 16;
        }
        most = whole > most ? whole : most;
        cr_assert_eq(number * each, parts);
        if (gives)
            held[h].parts = 0;
    }
    cr_expect_geq(most, 3, "GPUs were full now and then");
    exo_free(gpus.free);
}
