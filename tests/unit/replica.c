/* Replicas: making one from a document in any process, sharing within a run, two in one actor, and
 * checkpoints. Each test has a runtime of its own. Read next: actors/replica.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/exogym.h>

#include "actors/replica.h"
#include "support/fit_here.h"
#include "support/temp.h"

#define NUMBERS                                                                                    \
    "nodes: 1, max_steps: 4, batch_size: 2, seed: 5, data: {name: synthetic, count: 64}, "         \
    "val_size: 2"

static exo_runtime *runtime;
static exo_err err;

static void
begin(void)
{
    cr_assert_eq(exo_runtime_open(&runtime, NULL, &err), EXO_OK);
}

static void
end(void)
{
    cr_expect_eq(exo_runtime_close(&runtime, exo_deadline(exo_clock_real(), 60 * EXO_SECOND), &err),
                 EXO_OK);
}

TestSuite(replica, .init = begin, .fini = end, .timeout = 60);

static exo_replica *
open_in(exo_runtime *where, uint32_t channel, const char *document)
{
    const exo_replica_place place = {.runtime = where, .channel = channel};
    exo_replica *r = NULL;
    err = (exo_err){0};
    cr_assert_eq(exo_replica_open(&r, &place, document, &err), EXO_OK, "%s: %s", document,
                 err.text);
    return r;
}

static float
step(exo_replica *r)
{
    float loss = NAN;
    err = (exo_err){0};
    cr_assert_eq(exo_replica_step(r, &loss, &err), EXO_OK, "%s", err.text);
    cr_assert(isfinite(loss));
    return loss;
}

static void
set_up(exo_replica *r)
{
    uint64_t elapsed = 0;
    err = (exo_err){0};
    cr_assert_eq(exo_replica_set_up(r, &elapsed, &err), EXO_OK, "%s", err.text);
}

/* --- Sharing ---------------------------------------------------------------------------------- */

Test(replica, those_of_a_run_share_in_one_runtime_only)
{
    static const char *const two[] = {
        "{run: a, rank: 0, nodes: 2, batch_size: 2, model: mlp, data: synthetic, strategy: ddp}",
        "{run: a, rank: 1, nodes: 2, batch_size: 2, model: mlp, data: synthetic, strategy: ddp}"};
    exo_runtime *other = NULL;
    cr_assert_eq(exo_runtime_open(&other, NULL, &err), EXO_OK);
    exo_replica *first = open_in(runtime, 1, two[0]), *second = open_in(runtime, 1, two[1]);
    exo_replica *elsewhere = open_in(other, 1, two[0]);
    cr_expect_eq(first->fit, second->fit);
    cr_expect_neq(first->params, second->params);
    cr_expect_neq(first->fit, elsewhere->fit, "a name of another runtime is another run's");
    exo_replica_close(&first);
    cr_expect_str_eq(exo_fit_name(second->fit), "a");
    exo_replica_close(&second);
    exo_replica_close(&elsewhere);
    cr_expect_eq(exo_runtime_close(&other, exo_deadline(exo_clock_real(), 60 * EXO_SECOND), &err),
                 EXO_OK);
}

Test(replica, what_the_trainer_has_made_is_found_and_not_made_anew)
{
    exo_fit *fit = fit_here(runtime, "here", 1, 4);
    exo_replica *r =
        open_in(runtime, 1, "{run: here, rank: 0, model: none, data: none, strategy: ddp}");
    cr_expect_eq(r->fit, fit);
    cr_expect_eq(r->comm, fit->comm);
    exo_fit_drop(&fit); /* the replica holds a reference */
    set_up(r);
    step(r);
    exo_replica_close(&r);
}

Test(replica, a_run_that_could_not_be_made_is_made_by_the_next)
{
    const exo_replica_place place = {.runtime = runtime, .channel = 1};
    exo_replica *r = NULL;
    cr_expect_neq(
        exo_replica_open(&r, &place, "{run: b, model: mlp, data: none, strategy: ddp}", &err),
        EXO_OK);
    cr_expect_not_null(strstr(err.text, "none"), "%s", err.text);
    cr_expect_eq(r, NULL);
    r = open_in(runtime, 1, "{run: b, batch_size: 2, model: mlp, data: synthetic, strategy: ddp}");
    cr_expect_not_null(r->fit->model);
    exo_replica_close(&r);
}

Test(replica, a_run_has_as_many_nodes_as_a_graph_has_actors)
{
    const char format[] =
        "{run: %s, rank: %u, nodes: %u, model: mlp, data: synthetic, strategy: ddp}";
    char document[200];
    exo_replica *last = NULL, *none = NULL;
    exo_pace pace;
    const exo_replica_place place = {.runtime = runtime, .pace = &pace}; /* a node of a graph */
    cr_assert_eq(exo_pace_init(&pace, NULL, 0, 1, &err), EXO_OK);
    snprintf(document, sizeof document, format, "most", 65535u, 65536u);
    cr_assert_eq(exo_replica_open(&last, &place, document, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(last->node.rank, 65535u);
    cr_expect_eq(last->node.num_nodes, 65536u);
    exo_replica_close(&last);
    snprintf(document, sizeof document, format, "too many", 0u, 65537u);
    cr_expect_eq(exo_replica_open(&none, &place, document, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "nodes must be at most 65536"), "%s", err.text);
    exo_pace_release(&pace);
}

/* --- Two in one actor, like an actor and a critic --------------------------------------------- */

Test(replica, two_runs_in_one_actor_learn_apart)
{
    static const char alone[] =
        "{run: alone, strategy: {name: ddp, optimizer: {name: sgd, lr: 0.1}}, model: mlp, " NUMBERS
        "}";
    static const char actor[] =
        "{run: actor, strategy: {name: ddp, optimizer: {name: sgd, lr: 0.1}}, model: mlp, " NUMBERS
        "}";
    static const char critic[] =
        "{run: critic, strategy: {name: diloco, H: 2}, model: mlp, " NUMBERS "}";
    float losses[4];
    exo_replica *one = open_in(runtime, 1, alone);
    set_up(one);
    for (int i = 0; i < 4; i++)
        losses[i] = step(one);
    exo_replica *a = open_in(runtime, 1, actor), *c = open_in(runtime, 3, critic);
    set_up(a);
    set_up(c);
    for (int i = 0; i < 4; i++) {
        cr_expect_eq(step(a), losses[i]);
        step(c);
    }
    cr_expect_arr_eq(exo_params_values(a->params), exo_params_values(one->params),
                     exo_params_numel(a->params) * sizeof(float));
    cr_expect_arr_neq(exo_params_values(a->params), exo_params_values(c->params),
                      exo_params_numel(a->params) * sizeof(float));
    exo_replica_close(&one);
    exo_replica_close(&a);
    exo_replica_close(&c);
}

Test(replica, messages_are_told_apart_by_channel)
{
    uint32_t words[16] = {7};
    exo_payload payload = exo_payload_borrow(words, sizeof words);
    exo_fit *fit = fit_here(runtime, "here", 1, 4);
    exo_replica *here = open_in(runtime, 3, "{run: here, strategy: ddp}");
    cr_expect_eq(exo_replica_deliver(here, &payload, 0, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "the message is not for a collective of this node");
    for (words[0] = 3; words[0] < 5; words[0]++) {
        cr_expect_eq(exo_replica_deliver(here, &payload, 0, &err), EXO_INVAL);
        cr_expect_str_eq(
            err.text, "the message is for a collective among processes, but all nodes are in this "
                      "process");
    }
    exo_replica_close(&here);
    exo_fit_drop(&fit);
}

/* --- Checkpoints ------------------------------------------------------------------------------ */

Test(replica, goes_on_from_its_file_in_either_process)
{
    char folder[64], document[600], sha256[2][65];
    temp_folder(folder, sizeof folder);
    snprintf(document, sizeof document, "{run: first, strategy: diloco, model: mlp, " NUMBERS "}");
    exo_replica *first = open_in(runtime, 1, document);
    set_up(first);
    step(first);
    cr_assert_eq(exo_replica_save(first, 0, folder, 77, sha256[0], &err), EXO_OK, "%s", err.text);
    float loss = step(first);
    snprintf(document, sizeof document,
             "{run: second, strategy: diloco, model: mlp, resume_from: %s, " NUMBERS "}", folder);
    exo_replica *second = open_in(runtime, 1, document);
    uint64_t elapsed = 0;
    cr_assert_eq(exo_replica_set_up(second, &elapsed, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(elapsed, 77);
    cr_expect_eq(second->node.step, 1);
    cr_assert_eq(exo_replica_save(second, 0, folder, 77, sha256[1], &err), EXO_OK, "%s", err.text);
    cr_expect_str_eq(sha256[0], sha256[1]);
    cr_expect_eq(step(second), loss);
    exo_replica_close(&first);
    exo_replica_close(&second);
    temp_remove(folder);
}
