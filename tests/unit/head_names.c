/* Names at the head: who may claim one, which actor has it, and what is forgotten. */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/memory.h>

#include "support/head_world.h"
#include "support/temp.h"

static head_world w;
static char folder[64];

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

TestSuite(head_names, .init = setup, .fini = teardown, .timeout = 120);

static exo_status
claim(uint64_t node, const char *name, exo_err *err)
{
    static uint64_t id = 1;
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    m.space = exo_pb_text("default");
    m.name = exo_pb_text(name);
    m.node = node;
    m.id = ++id;
    return world_ask(&w, "claim", &m.base, err);
}

/* --- Claims ----------------------------------------------------------------------------------- */

Test(head_names, are_not_given_to_a_node_that_is_gone)
{
    exo_err err = {0};
    world_register(&w, 2, "driver", "d", "job");
    cr_expect_eq(claim(2, "mine", &err), EXO_OK, "%s", err.text);
    world_lose(&w, 2, "a test");
    cr_expect_eq(claim(2, "other", &err), EXO_CLOSED);
    cr_expect_eq(claim(3, "other", &err), EXO_CLOSED, "one that nobody knows");
    cr_expect_str_empty(world_why(&w, "other"));
    world_spawn_one(&w, "other", 0); /* it is free */
    world_register(&w, 2, "driver", "d", "job");
    cr_expect_eq(claim(2, "mine", &err), EXO_OK, "%s", err.text);
}

/* What is remembered of lost nodes is freed in time; nothing may lead there. */
Test(head_names, lead_to_no_node_that_was_forgotten)
{
    world_register(&w, 2, "driver", "d", "job");
    world_lose(&w, 2, "a test");
    claim(2, "other", NULL);
    for (uint64_t node = 10; node < 10 + 300; node++) {
        world_register(&w, node, "worker", "w", "");
        world_lose(&w, node, "a test");
    }
    Exo__Cluster__Listing *listing = world_list(&w);
    cr_expect_lt(listing->n_nodes, 300);
    for (size_t i = 0; i < listing->n_actors; i++)
        cr_expect_eq(listing->actors[i]->node, 0, "%s", listing->actors[i]->name);
    EXO_RELEASE(listing);
}

/* --- Namespaces ------------------------------------------------------------------------------- */

static exo_status
find_in(const char *space, const char *name)
{
    Exo__Cluster__Name m = EXO__CLUSTER__NAME__INIT;
    m.space = exo_pb_text(space);
    m.name = exo_pb_text(name);
    m.at_once = true;
    return world_ask(&w, "find", &m.base, NULL);
}

Test(head_names, with_slashes_are_not_mistaken_for_each_other)
{
    struct world_member m;
    world_describe(&m, "b/c", 0, EXO_ONE_FOR_ONE);
    m.spec.space = exo_pb_text("a");
    world_spawn(&w, &m, 1);
    cr_expect_eq(find_in("a", "b/c"), EXO_OK);
    cr_expect_eq(find_in("a/b", "c"), EXO_NOT_FOUND);
    cr_expect_eq(find_in("", "a/b/c"), EXO_NOT_FOUND);
    m.spec.space = exo_pb_text("a/b");
    m.spec.name = exo_pb_text("c");
    world_spawn(&w, &m, 1);
    cr_expect_eq(find_in("a/b", "c"), EXO_OK);
    world_dies(&w, 1, "a test");
}

Test(head_names, have_every_length_that_they_may)
{
    char longest[EXO_NAME];
    struct world_member m;
    exo_err err = {0};
    memset(longest, 'n', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    world_describe(&m, longest, 0, EXO_ONE_FOR_ONE);
    m.spec.space = longest;
    world_spawn(&w, &m, 1);
    cr_expect_eq(find_in(longest, longest), EXO_OK);
    cr_expect_eq(find_in(longest, longest + 1), EXO_NOT_FOUND);
    cr_expect_eq(world_ask(&w, "spawn", &m.spec.base, &err), EXO_EXISTS);
}

/* --- What is forgotten ------------------------------------------------------------------------ */

static bool
lists_job(const Exo__Cluster__Listing *listing, const char *name)
{
    for (size_t i = 0; i < listing->n_jobs; i++)
        if (strcmp(listing->jobs[i]->name, name) == 0)
            return true;
    return false;
}

static void
run_jobs(const char *prefix, unsigned count)
{
    char name[32];
    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s-%u", prefix, i);
        world_register(&w, 100 + i, "driver", name, name);
        world_lose(&w, 100 + i, "a test");
    }
}

Test(head_names, of_jobs_that_ended_long_ago_are_forgotten)
{
    char path[128];
    temp_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/state.db", folder);
    world_close(&w);
    world_open(&w, path);
    world_register(&w, 50, "driver", "d", "first");
    world_lose(&w, 50, "a test");
    world_register(&w, 51, "driver", "d", "runs");
    run_jobs("job", 2500);
    for (int life = 0; life < 2; life++) { /* the second head reads what the first one kept */
        Exo__Cluster__Listing *listing = world_list(&w);
        cr_expect_leq(listing->n_jobs, 2001, "%zu jobs", listing->n_jobs);
        cr_expect(lists_job(listing, "runs"), "one that runs is not forgotten");
        cr_expect(lists_job(listing, "job-2499"));
        cr_expect(!lists_job(listing, "first"));
        EXO_RELEASE(listing);
        world_close(&w);
        world_open(&w, path);
    }
    temp_remove(folder);
}

/* Its driver may come back to a head that was restarted: nobody else takes it meanwhile, and so
 * ends what runs for it. */
Test(head_names, of_jobs_wait_for_their_drivers_keys)
{
    char path[128];
    exo_err err = {0};
    temp_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/state.db", folder);
    world_close(&w);
    world_open(&w, path);
    Exo__Cluster__Register m = EXO__CLUSTER__REGISTER__INIT;
    m.kind = exo_pb_text("driver");
    m.job = exo_pb_text("job");
    w.driver_key = "red";
    m.node = 50;
    cr_expect_eq(world_ask_as(&w, 50, "register", &m.base, &err), EXO_OK, "%s", err.text);
    world_close(&w);
    world_open(&w, path);
    w.driver_key = "blue";
    m.node = 51;
    cr_expect_eq(world_ask_as(&w, 51, "register", &m.base, &err), EXO_EXISTS);
    cr_expect_not_null(strstr(err.text, "red"), "%s", err.text);
    w.driver_key = "red";
    m.node = 50;
    cr_expect_eq(world_ask_as(&w, 50, "register", &m.base, &err), EXO_OK, "%s", err.text);
    temp_remove(folder);
}

/* One that begins again is not among the oldest. */
Test(head_names, of_a_job_that_began_again_are_kept)
{
    world_register(&w, 50, "driver", "d", "again");
    world_lose(&w, 50, "a test");
    run_jobs("before", 1200);
    world_register(&w, 51, "driver", "d", "again");
    world_lose(&w, 51, "a test");
    run_jobs("after", 800);
    Exo__Cluster__Listing *listing = world_list(&w);
    cr_expect(!lists_job(listing, "before-0"));
    cr_expect(lists_job(listing, "again"));
    EXO_RELEASE(listing);
}

/* Those that died, of a node that claimed many. */
Test(head_names, of_the_dead_are_forgotten)
{
    char path[128], name[32];
    temp_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/state.db", folder);
    world_close(&w);
    world_open(&w, path);
    for (unsigned round = 0; round < 2; round++) {
        world_register(&w, 50 + round, "driver", "d", "job");
        for (unsigned i = 0; i < 12000; i++) {
            snprintf(name, sizeof name, "name-%u-%u", round, i);
            claim(50 + round, name, NULL);
        }
        world_lose(&w, 50 + round, "a test");
        for (unsigned i = 0; i < 500; i++) /* they die slice by slice */
            world_tick(&w, 0);
    }
    world_close(&w);
    world_open(&w, path);
    cr_expect_str_empty(world_why(&w, "name-0-0"));
    cr_expect_str_empty(world_why(&w, "name-1-1999"),
                        "more than 10,000 of the dead are remembered");
    cr_expect(world_is(&w, "name-1-2000", "dead", 1), "%s", world_why(&w, "name-1-2000"));
    cr_expect(world_is(&w, "name-1-11999", "dead", 1), "%s", world_why(&w, "name-1-11999"));
    temp_remove(folder);
}
