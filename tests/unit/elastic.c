/* Nodes of an elastic run as its trainer treats them: a step in doubt, which is done or undone; a node
 * that takes over the state of another one; a server that goes on in the next epoch, or is lost; requests
 * that are refused. The nodes are actors of one
 * runtime that are made like those of workers. Read next: actors/replica_elastic.c. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include <exogym/exogym.h>

#include "actors/train_node.h"

static exo_runtime *runtime;
static exo_ref nodes[2];
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

TestSuite(elastic, .init = begin, .fini = end, .timeout = 120);

static exo_future *
ask(uint32_t rank, const char *method, const ProtobufCMessage *m)
{
    exo_payload args = {0};
    exo_future *future = NULL;
    cr_assert(!m || exo_protocol_pack(&args, m, NULL) == EXO_OK);
    cr_assert_eq(exo_call(runtime, nodes[rank], method, args, INT64_MAX, &future, &err), EXO_OK,
                 "%s: %s", method, err.text);
    return future;
}

static exo_status
answer(exo_future *future, const ProtobufCMessageDescriptor *of, ProtobufCMessage **out)
{
    const exo_payload *reply = NULL;
    const exo_args args = {.method = "reply", .fields = of};
    err = (exo_err){0};
    exo_status st = exo_wait(future, exo_deadline(exo_clock_real(), 60 * EXO_SECOND), &reply, &err);
    if (st == EXO_OK && of)
        st = exo_args_decode(&args, reply, out, &err);
    exo_future_drop(&future);
    return st;
}

static void
make(uint32_t rank, const char *strategy)
{
    char document[400], name[16];
    exo_spawn_opts opts = {.name = name, .namespace_name = "run"};
    Exo__Train__NodeStart m = EXO__TRAIN__NODE_START__INIT;
    snprintf(name, sizeof name, "node_%u", rank);
    /* Two minibatches: the inner step is taken in the strategy's step, which may be undone. */
    snprintf(document, sizeof document,
             "{run: run, rank: %u, nodes: 2, max_steps: 100, batch_size: 4, minibatch_size: 2, "
             "model: mlp, data: {name: synthetic, count: 64}, strategy: {%s}, elastic: true}",
             rank, strategy);
    m.document = document;
    cr_assert_eq(exo_protocol_pack(&opts.args, &m.base, NULL), EXO_OK);
    cr_assert_eq(exo_spawn_class(runtime, "train_node", &opts, INT64_MAX, &nodes[rank], &err),
                 EXO_OK, "%s", err.text);
}

static void
make_two(const char *strategy)
{
    make(0, strategy);
    make(1, strategy);
    exo_future *first = ask(0, "setup", NULL), *second = ask(1, "setup", NULL);
    cr_assert_eq(answer(first, NULL, NULL), EXO_OK, "%s", err.text);
    cr_assert_eq(answer(second, NULL, NULL), EXO_OK, "%s", err.text);
}

static exo_future *
train(uint32_t rank, uint64_t until)
{
    Exo__Train__Train m = EXO__TRAIN__TRAIN__INIT;
    m.until = until;
    return ask(rank, "train", &m.base);
}

static Exo__Train__NodeReport
report(uint32_t rank)
{
    ProtobufCMessage *reply = NULL;
    cr_assert_eq(answer(ask(rank, "report", NULL), &exo__train__node_report__descriptor, &reply),
                 EXO_OK, "%s", err.text);
    Exo__Train__NodeReport copy = *(Exo__Train__NodeReport *)reply;
    exo_args_free(&reply);
    return copy;
}

/* Sends the members (a bit each) into an epoch. */
static exo_status
regroup(uint32_t rank, uint64_t epoch, uint64_t furthest, unsigned members)
{
    uint32_t ranks[2];
    uint64_t of[2], ids[2];
    Exo__Train__NodeRegroup m = EXO__TRAIN__NODE_REGROUP__INIT;
    for (uint32_t r = 0; r < 2; r++) {
        exo_actor_id id = {0};
        if (!(members & 1U << r))
            continue;
        cr_assert_eq(exo_ref_export(runtime, nodes[r], &id, &err), EXO_OK, "%s", err.text);
        ranks[m.n_ranks] = r;
        of[m.n_ranks] = id.node;
        ids[m.n_ranks++] = id.id;
    }
    m.n_nodes = m.n_actors = m.n_ranks;
    m.epoch = epoch;
    m.furthest = furthest;
    m.ranks = ranks;
    m.nodes = of;
    m.actors = ids;
    return answer(ask(rank, "regroup", &m.base), NULL, NULL);
}

/* The SHA-256 of a node's state, from the bytes that it gives. */
static void
digest(uint32_t rank, char out[65])
{
    const exo_payload *reply = NULL;
    exo_future *future = ask(rank, "give", NULL);
    cr_assert_eq(exo_wait(future, INT64_MAX, &reply, &err), EXO_OK, "%s", err.text);
    snprintf(out, 65, "%.64s", (const char *)reply->data + 64);
    exo_future_drop(&future);
}

/* Node 1 does three steps, which are the only ones; node 0 waits for it in the fourth one, and it
 * dies. */
static void
leave_in_doubt(const char *strategy, char before[65])
{
    make_two(strategy);
    exo_future *first = train(0, 3), *second = train(1, 3);
    cr_assert_eq(answer(first, NULL, NULL), EXO_OK, "%s", err.text);
    cr_assert_eq(answer(second, NULL, NULL), EXO_OK, "%s", err.text);
    digest(0, before);
    first = train(0, 5);
    cr_assert_eq(exo_kill(runtime, nodes[1], "the test ends it", &err), EXO_OK);
    cr_expect_eq(answer(first, NULL, NULL), EXO_PEER_LOST);
    Exo__Train__NodeReport r = report(0);
    cr_expect_eq(r.step, 3);
    cr_expect_eq(r.met, 3);
    cr_expect(r.doubtful);
}

static void
check_undone(const char *strategy)
{
    char before[65], after[65];
    leave_in_doubt(strategy, before);
    cr_assert_eq(regroup(0, 1, 3, 1), EXO_OK, "%s", err.text);
    cr_expect_not(report(0).doubtful);
    digest(0, after);
    cr_expect_str_eq(before, after, "%s: the step has changed the state", strategy);
    ProtobufCMessage *reply = NULL;
    cr_assert_eq(answer(train(0, 5), &exo__train__trained__descriptor, &reply), EXO_OK, "%s",
                 err.text);
    cr_expect_eq(((Exo__Train__Trained *)reply)->n_loss, 2);
    exo_args_free(&reply);
    cr_expect_eq(report(0).step, 5);
}

Test(elastic, a_step_that_no_member_has_finished_is_undone_and_repeated)
{
    check_undone("name: ddp");
}

Test(elastic, the_inner_step_of_an_exchange_is_undone_too)
{
    check_undone("name: fedavg, H: 1");
}

Test(elastic, a_step_that_another_member_has_finished_is_done)
{
    char before[65];
    leave_in_doubt("name: fedavg, H: 1", before);
    cr_assert_eq(regroup(0, 1, 4, 1), EXO_OK, "%s", err.text);
    Exo__Train__NodeReport r = report(0);
    cr_expect_eq(r.step, 4);
    cr_expect_eq(r.met, 4);
    cr_expect_not(r.doubtful);
    ProtobufCMessage *reply = NULL;
    cr_assert_eq(answer(train(0, 5), &exo__train__trained__descriptor, &reply), EXO_OK, "%s",
                 err.text);
    cr_expect_eq(((Exo__Train__Trained *)reply)->n_loss, 2, "the step in doubt has its loss");
    exo_args_free(&reply);
}

static exo_status
join(uint32_t rank, uint32_t donor, uint64_t position, char sha256[65])
{
    exo_actor_id id = {0};
    ProtobufCMessage *reply = NULL;
    Exo__Train__NodeJoin m = EXO__TRAIN__NODE_JOIN__INIT;
    cr_assert_eq(exo_ref_export(runtime, nodes[donor], &id, &err), EXO_OK, "%s", err.text);
    m.node = id.node;
    m.actor = id.id;
    m.position = position;
    exo_status st =
        answer(ask(rank, "join", &m.base), &exo__train__node_joined__descriptor, &reply);
    if (st == EXO_OK)
        snprintf(sha256, 65, "%.64s", ((Exo__Train__NodeJoined *)reply)->sha256);
    exo_args_free(&reply);
    return st;
}

Test(elastic, a_new_node_has_the_state_of_its_donor_and_trains_with_it)
{
    static const char *const strategies[] = {"name: ddp", "name: diloco, H: 2",
                                             "name: noloco, H: 2"};
    for (size_t i = 0; i < 3; i++) {
        char before[65], state[65], joined[65], own[65];
        if (i > 0) {
            end();
            begin();
        }
        if (i == 0)
            leave_in_doubt(strategies[i], before);
        else
            make_two(strategies[i]);
        if (i > 0)
            cr_assert_eq(exo_kill(runtime, nodes[1], "the test ends it", &err), EXO_OK);
        cr_assert_eq(regroup(0, 1, 3, 1), EXO_OK, "%s", err.text);
        cr_assert_eq(answer(train(0, 7), NULL, NULL), EXO_OK, "%s", err.text);
        make(1, strategies[i]);
        cr_assert_eq(join(1, 0, 3, joined), EXO_OK, "%s", err.text);
        digest(0, state);
        digest(1, own);
        cr_expect_str_eq(joined, state);
        cr_expect_str_eq(own, state, "%s", strategies[i]);
        cr_expect_eq(report(1).step, 7);
        cr_assert_eq(regroup(0, 2, 7, 3), EXO_OK, "%s", err.text);
        cr_assert_eq(regroup(1, 2, 7, 3), EXO_OK, "%s", err.text);
        exo_future *first = train(0, 12), *second = train(1, 12);
        cr_assert_eq(answer(first, NULL, NULL), EXO_OK, "%s", err.text);
        cr_assert_eq(answer(second, NULL, NULL), EXO_OK, "%s", err.text);
        digest(0, state);
        digest(1, own);
        if (i == 0)
            cr_expect_str_eq(own, state);
    }
}

/* --- Nodes that are apart --------------------------------------------------------------------- */

/* The outer optimizer has momentum, which the server must keep. */
static const char *const with_server[] = {
    "name: async_diloco, H: 2, dynamic: false",
    /* After an even number of steps each fragment has a change under way. */
    "name: decoupled_diloco, H: 2, delay: 1, fragments: 1",
};

static void
train_alone(uint32_t rank, uint64_t until)
{
    cr_assert_eq(answer(train(rank, until), NULL, NULL), EXO_OK, "%s", err.text);
}

/* The SHA-256 of some of a node's parameters. The state of these strategies has measured times, too. */
static void
digest_params(uint32_t rank, char out[65])
{
    const exo_payload *reply = NULL;
    exo_future *future = ask(rank, "give", NULL);
    cr_assert_eq(exo_wait(future, INT64_MAX, &reply, &err), EXO_OK, "%s", err.text);
    cr_assert_gt(reply->size, 128 + 4096);
    exo_sha256((const char *)reply->data + 128, 4096, out);
    exo_future_drop(&future);
}

/* The answer is about all steps from the first one on. */
static exo_future *
train_since_0(uint32_t rank, uint64_t until)
{
    Exo__Train__Train m = EXO__TRAIN__TRAIN__INIT;
    m.until = until;
    m.has_since = true;
    return ask(rank, "train", &m.base);
}

Test(elastic, a_server_goes_on_in_the_next_epoch_and_merges_no_change_twice)
{
    for (size_t i = 0; i < sizeof with_server / sizeof *with_server; i++) {
        char whole[65], parts[65];
        make_two(with_server[i]);
        train_alone(0, 12);
        digest_params(0, whole);
        end();
        begin();
        make_two(with_server[i]);
        train_alone(0, 4);
        cr_assert_eq(regroup(0, 1, 4, 3), EXO_OK, "%s", err.text);
        cr_assert_eq(regroup(1, 1, 4, 3), EXO_OK, "%s", err.text);
        train_alone(0, 8);
        cr_assert_eq(exo_kill(runtime, nodes[1], "the test ends it", &err), EXO_OK);
        cr_assert_eq(regroup(0, 2, 8, 1), EXO_OK, "%s", err.text);
        cr_expect(report(0).serves);
        /* decoupled_diloco: the weight of an absent node does not count any more */
        if (i == 0) {
            train_alone(0, 12);
            digest_params(0, parts);
            cr_expect_str_eq(parts, whole, "%s", with_server[i]);
        }
        end();
        begin();
    }
}

Test(elastic, a_change_under_way_is_sent_again_and_counts_once)
{
    char whole[65], parts[65];
    make_two(with_server[1]);
    train_alone(0, 12);
    digest_params(0, whole);
    end();
    begin();
    make_two(with_server[1]);
    for (uint64_t epoch = 1; epoch <= 6; epoch++) {
        train_alone(0, 2 * epoch);
        cr_assert_eq(regroup(0, epoch, 2 * epoch, 3), EXO_OK, "%s", err.text);
        cr_assert_eq(regroup(1, epoch, 2 * epoch, 3), EXO_OK, "%s", err.text);
    }
    digest_params(0, parts);
    cr_expect_str_eq(parts, whole);
}

Test(elastic, a_lost_server_begins_anew_with_the_newest_parameters)
{
    for (size_t i = 0; i < sizeof with_server / sizeof *with_server; i++) {
        make_two(with_server[i]);
        train_alone(0, 5);
        train_alone(1, 5);
        cr_expect(report(0).serves);
        cr_expect_not(report(1).serves);
        const uint64_t version = report(1).version;
        cr_expect_eq(version, 4, "two changes of each node, not %llu", (unsigned long long)version);
        cr_assert_eq(exo_kill(runtime, nodes[0], "the test ends it", &err), EXO_OK);
        cr_assert_eq(regroup(1, 1, 5, 2), EXO_OK, "%s", err.text);
        cr_expect(report(1).serves);
        train_alone(1, 9);
        cr_expect_eq(report(1).version, version + 2, "%s", with_server[i]);
        end();
        begin();
    }
}

/* The step in which a node waits for a server that dies is undone, and its exchange is repeated with the
 * next server. */
Test(elastic, an_exchange_with_a_server_that_dies_is_repeated)
{
    make_two("name: decoupled_diloco, H: 4, delay: 3, quorum: 2, fragments: 1");
    train_alone(1, 6);
    exo_future *waits = train_since_0(1, 20); /* it waits for the other change of the first round */
    cr_expect_eq(exo_wait(waits, exo_deadline(exo_clock_real(), 200 * EXO_MS), NULL, NULL),
                 EXO_TIMEOUT);
    cr_assert_eq(exo_kill(runtime, nodes[0], "the test ends it", &err), EXO_OK);
    cr_expect_eq(answer(waits, NULL, NULL), EXO_PEER_LOST);
    Exo__Train__NodeReport r = report(1);
    cr_expect_eq(r.step, 6);
    cr_expect_not(r.doubtful);
    cr_assert_eq(regroup(1, 1, 6, 2), EXO_OK, "%s", err.text);
    ProtobufCMessage *reply = NULL;
    cr_assert_eq(answer(train_since_0(1, 16), &exo__train__trained__descriptor, &reply), EXO_OK,
                 "%s", err.text);
    cr_expect_eq(((Exo__Train__Trained *)reply)->n_loss, 16,
                 "the steps of earlier requests are in the answer, too");
    exo_args_free(&reply);
    cr_expect_eq(report(1).version, 3);
}

Test(elastic, a_node_that_comes_back_begins_with_the_outer_parameters_and_its_changes_count)
{
    for (size_t i = 0; i < sizeof with_server / sizeof *with_server; i++) {
        char joined[65];
        make_two(with_server[i]);
        train_alone(1,
                    30); /* far ahead: the numbers of its changes are higher than those after it */
        train_alone(0, 5);
        cr_assert_eq(exo_kill(runtime, nodes[1], "the test ends it", &err), EXO_OK);
        cr_assert_eq(regroup(0, 1, 5, 1), EXO_OK, "%s", err.text);
        make(1, with_server[i]);
        cr_assert_eq(join(1, 0, 30, joined), EXO_OK, "%s", err.text);
        cr_assert_eq(regroup(0, 2, 5, 3), EXO_OK, "%s", err.text);
        cr_assert_eq(regroup(1, 2, 5, 3), EXO_OK, "%s", err.text);
        cr_expect_not(report(1).serves);
        const uint64_t version = report(1).version;
        train_alone(1, 10);
        cr_expect_geq(report(1).version, version + 2, "%s", with_server[i]);
        end();
        begin();
    }
}

Test(elastic, requests_of_the_wrong_kind_are_refused_and_change_nothing)
{
    char before[65], after[65], unused[65];
    make_two("name: ddp");
    digest(0, before);
    cr_expect_eq(regroup(0, 0, 0, 3), EXO_INVAL);
    cr_expect(strstr(err.text, "epoch"), "%s", err.text);
    cr_expect_eq(regroup(0, 1, 0, 2), EXO_INVAL);
    cr_expect(strstr(err.text, "node_0 is not among them"), "%s", err.text);
    cr_assert_eq(exo_kill(runtime, nodes[1], "the test ends it", &err), EXO_OK);
    make(1, "name: diloco");
    cr_expect_eq(join(1, 0, 0, unused), EXO_INVAL);
    cr_expect(strstr(err.text, "other node's state"), "%s", err.text);
    digest(0, after);
    cr_expect_str_eq(before, after);
}
