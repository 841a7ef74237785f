/* Messages to built-in actors that any process of a cluster could send: with a wrong size, an
 * impossible value, too early or twice. The actor refuses each with a reason and continues to work.
 *
 * The suite's `begin` and `end` own the runtime. The same for every method and field:
 * tests/cluster/arguments.c. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/rng.h>

#include "actor/local_args.h"
#include "actors/checkpoint.h"
#include "actors/node_look.h"
#include "actors/train_node.h"
/* it stands before the others because the store has a header of that name, too */
#include "graph/host.h"
#include "support/eventually.h"
#include "support/fit_here.h"
#include "support/stream.h"
#include "support/temp.h"

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
    cr_expect_eq(exo_runtime_close(&runtime, in_ms(60000), &err), EXO_OK, "%s", err.text);
}

TestSuite(actor_messages, .init = begin, .fini = end, .timeout = 120);

/* Calls and waits. Without `reply` the reply is dropped. */
static exo_status
ask(exo_ref actor, const char *method, const void *data, size_t size, exo_payload *reply)
{
    exo_payload args = {0};
    err = (exo_err){0};
    cr_assert(size == 0 || exo_payload_copy(&args, data, size) == EXO_OK);
    exo_payload unwanted = {0};
    exo_status st =
        exo_call_wait(runtime, actor, method, args, in_ms(60000), reply ? reply : &unwanted, &err);
    exo_payload_release(&unwanted);
    return st;
}

static void
expect_refused(exo_ref actor, const char *method, const void *data, size_t size)
{
    exo_status st = ask(actor, method, data, size, NULL);
    cr_expect(st == EXO_INVAL && err.text[0], "%s with %zu bytes: %s, '%s'", method, size,
              exo_status_text(st), err.text);
}

/* Sends noise of each size from 0 to `most` and expects INVAL. The size `good` is left out, unless
 * noise_too says that noise of that size is wrong, too. */
static void
expect_noise_refused(exo_ref actor, const char *method, size_t most, size_t good, bool noise_too)
{
    unsigned char noise[256];
    exo_rng rng;
    exo_rng_init(&rng, 7, EXO_RNG_USER, 0, most);
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (unsigned char)(2 + exo_rng_below(&rng, 254));
    for (size_t size = 0; size <= most; size++)
        if (size != good || noise_too)
            expect_refused(actor, method, noise, size);
}

/* --- Nodes of a run --------------------------------------------------------------------------- */

static const char node_text[] = "{run: r, rank: 0, nodes: 1, max_steps: 4, batch_size: 8, model: "
                                "mlp, data: synthetic, strategy: ddp}";

static exo_status
spawn_node(const char *text, exo_ref *out)
{
    exo_spawn_opts opts = {0};
    Exo__Train__NodeStart m = EXO__TRAIN__NODE_START__INIT;
    m.document = exo_args_text(text);
    err = (exo_err){0};
    cr_assert_eq(exo_protocol_pack(&opts.args, &m.base, &err), EXO_OK);
    return exo_spawn(runtime, &exo_train_node_class, &opts, out, &err);
}

/* Calls with a message. */
static exo_status
ask_message(exo_ref actor, const char *method, const ProtobufCMessage *message, exo_payload *reply)
{
    exo_payload args = {0};
    cr_assert_eq(exo_protocol_pack(&args, message, &err), EXO_OK);
    exo_status st = ask(actor, method, args.data, args.size, reply);
    exo_payload_release(&args);
    return st;
}

static void
expect_message_refused(exo_ref actor, const char *method, const ProtobufCMessage *message,
                       const char *field)
{
    exo_status st = ask_message(actor, method, message, NULL);
    cr_expect(st == EXO_INVAL && strstr(err.text, method) && strstr(err.text, field),
              "%s: %s, '%s' without '%s'", method, exo_status_text(st), err.text, field);
}

static Exo__Train__Train
train_until(uint64_t until)
{
    Exo__Train__Train m = EXO__TRAIN__TRAIN__INIT;
    m.until = until;
    return m;
}

static Exo__Train__Evaluate
evaluate_of(Exo__Train__Copy copy)
{
    Exo__Train__Evaluate m = EXO__TRAIN__EVALUATE__INIT;
    m.copy = copy;
    return m;
}

static Exo__Train__Result
result_of(uint32_t part)
{
    Exo__Train__Result m = EXO__TRAIN__RESULT__INIT;
    m.part = part;
    return m;
}

static Exo__Train__Save
save_to(const char *folder)
{
    Exo__Train__Save m = EXO__TRAIN__SAVE__INIT;
    m.elapsed = 5;
    m.folder = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)folder, .len = strlen(folder)};
    return m;
}

Test(actor_messages, a_node_refuses_what_comes_before_setup)
{
    exo_ref node = {0};
    const Exo__Train__Train train = train_until(1);
    const Exo__Train__Evaluate own = evaluate_of(EXO__TRAIN__COPY__OWN),
                               average = evaluate_of(EXO__TRAIN__COPY__AVERAGE);
    const Exo__Train__Save save = save_to("/tmp");
    const Exo__Train__Result result = result_of(0);
    cr_assert_eq(spawn_node(node_text, &node), EXO_OK, "%s", err.text);
    expect_message_refused(node, "train", &train.base, "not set up");
    expect_message_refused(node, "evaluate", &own.base, "not set up");
    expect_message_refused(node, "save", &save.base, "not set up");
    expect_refused(node, "average", NULL, 0);
    expect_message_refused(node, "result", &result.base, "not set up");
    expect_refused(node, "correlate", NULL, 0);
    expect_noise_refused(node, "setup", 32, 0, false);
    cr_expect_eq(ask(node, "setup", NULL, 0, NULL), EXO_OK, "%s", err.text);
    expect_refused(node, "setup", NULL, 0);
    expect_message_refused(node, "result", &result.base, "no average");
    expect_message_refused(node, "evaluate", &average.base, "copy");
}

static void
send_noise(exo_ref node)
{
    static char endless[EXO_CHECKPOINT_PATH + 1];
    memset(endless, 'x', sizeof endless - 1);
    const Exo__Train__Save too_long = save_to(endless), nowhere = save_to("");
    const uint64_t beyond[] = {5, UINT64_MAX, UINT64_MAX / 8, UINT64_C(1) << 61};
    Exo__Train__NodeAbandon abandon = EXO__TRAIN__NODE_ABANDON__INIT;
    Exo__Train__NodeAsk ask_of = EXO__TRAIN__NODE_ASK__INIT;
    static const char *const with_message[] = {"train",  "evaluate", "result", "save",
                                               "change", "abandon",  "waits"};
    const Exo__Train__Result no_part = result_of(1000);
    for (size_t i = 0; i < sizeof with_message / sizeof *with_message; i++)
        expect_noise_refused(node, with_message[i], 64, 64, true);
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        const Exo__Train__Train train = train_until(beyond[i]);
        expect_message_refused(node, "train", &train.base, "until");
    }
    expect_message_refused(node, "result", &no_part.base, "part");
    expect_message_refused(node, "save", &too_long.base, "folder");
    expect_message_refused(node, "save", &nowhere.base, "folder");
    expect_noise_refused(node, "average", 16, 0, false);
    expect_noise_refused(node, "correlate", 16, 0, false);
    expect_noise_refused(node, "deliver", 200, 200, true);
    abandon.rank = ask_of.to = 1;
    abandon.cause = exo_args_text("it is over");
    expect_message_refused(node, "abandon", &abandon.base, "rank");
    expect_message_refused(node, "waits", &ask_of.base, "to");
}

static void
refuse_noise_and_train_on(const char *text)
{
    exo_ref node = {0};
    char folder[64];
    exo_payload reply = {0};
    const exo_args trained = {.method = "trained", .fields = &exo__train__trained__descriptor};
    ProtobufCMessage *message = NULL;
    temp_folder(folder, sizeof folder);
    const Exo__Train__Train train = train_until(4);
    const Exo__Train__Evaluate average = evaluate_of(EXO__TRAIN__COPY__AVERAGE);
    const Exo__Train__Save save = save_to(folder);
    cr_assert_eq(spawn_node(text, &node), EXO_OK, "%s", err.text);
    cr_assert_eq(ask(node, "setup", NULL, 0, NULL), EXO_OK, "%s", err.text);
    send_noise(node);
    cr_assert_eq(ask_message(node, "train", &train.base, &reply), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_args_decode(&trained, &reply, &message, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(((const Exo__Train__Trained *)message)->n_loss, 4);
    exo_args_free(&message);
    exo_payload_release(&reply);
    send_noise(node);
    cr_expect_eq(ask(node, "average", NULL, 0, NULL), EXO_OK, "%s", err.text);
    cr_expect_eq(ask_message(node, "evaluate", &average.base, NULL), EXO_OK, "%s", err.text);
    const Exo__Train__Result first = result_of(0), buffers = result_of(2);
    cr_expect_eq(ask_message(node, "result", &first.base, &reply), EXO_OK, "%s", err.text);
    cr_expect_gt(reply.size, 0);
    exo_payload_release(&reply);
    cr_expect_eq(ask_message(node, "result", &buffers.base, NULL), EXO_OK, "%s", err.text);
    cr_expect_eq(ask_message(node, "save", &save.base, NULL), EXO_OK, "%s", err.text);
    cr_expect_eq(ask(node, "correlate", NULL, 0, NULL), EXO_OK, "%s", err.text);
    /* "correlate" has released the average */
    expect_message_refused(node, "result", &first.base, "no average");
}

Test(actor_messages, a_node_refuses_noise_and_trains_on)
{
    refuse_noise_and_train_on(node_text);
}

Test(actor_messages, a_node_of_the_trainers_process_refuses_noise_and_trains_on)
{
    exo_fit *fit = fit_here(runtime, "here", 1, 4);
    refuse_noise_and_train_on("{run: here, rank: 0, strategy: ddp}");
    exo_fit_drop(&fit);
}

/* The call of a collective in which the node waits. */
static exo_node_look
look_at(exo_ref node, uint32_t nodes)
{
    Exo__Train__NodeAsk m = EXO__TRAIN__NODE_ASK__INIT;
    exo_payload reply = {0};
    exo_node_look look = {0};
    cr_assert_eq(ask_message(node, "waits", &m.base, &reply), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_node_look_read(&look, &reply, nodes, &err), EXO_OK, "%s", err.text);
    exo_payload_release(&reply);
    return look;
}

Test(actor_messages,
     a_node_of_the_trainers_process_says_for_whom_it_waits_and_is_told_that_it_is_over)
{
    exo_fit *fit = fit_here(runtime, "here", 2, 4);
    exo_ref nodes[2] = {{0}};
    exo_future *first = NULL;
    exo_node_look look = {0};
    Exo__Train__NodeAbandon over = EXO__TRAIN__NODE_ABANDON__INIT;
    over.rank = 1;
    over.cause = exo_args_text("the host burns");
    cr_assert_eq(spawn_node("{run: here, rank: 0, strategy: ddp}", &nodes[0]), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(spawn_node("{run: here, rank: 1, strategy: ddp}", &nodes[1]), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(exo_call(runtime, nodes[0], "setup", (exo_payload){0}, in_ms(60000), &first, &err),
                 EXO_OK);
    EVENTUALLY((look = look_at(nodes[0], 2)).waits);
    cr_expect_eq(look.of, EXO_NODE_IN_SIDE);
    cr_expect_eq(look.num_missing, 1);
    cr_expect_eq(look.missing[0], 1);
    cr_expect_eq(look_at(nodes[1], 2).of, EXO_NODE_COMPUTES);
    cr_expect_eq(ask_message(nodes[1], "abandon", &over.base, NULL), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_wait(first, in_ms(60000), NULL, &err), EXO_PEER_LOST);
    cr_expect_not_null(strstr(err.text, "the host burns"), "%s", err.text);
    exo_future_drop(&first);
    exo_fit_drop(&fit);
}

Test(actor_messages, a_node_is_started_with_what_can_be)
{
    static const char *const texts[] = {
        "[a, list]",
        "text",
        "{run: a, rank: 1, nodes: 1, model: mlp, data: synthetic, strategy: ddp}",
        "{run: b, rank: 0, nodes: 1, batch_size: 8, minibatch_size: 3, model: mlp, data: "
        "synthetic, strategy: ddp}",
        "{run: c, rank: 0, nodes: 1, plugins: [[a]], model: mlp, data: synthetic, strategy: ddp}",
        "{run: d, rank: 0, nodes: 4, model: mlp, data: synthetic, strategy: ddp, graph: '{actors: "
        "{a: {class: "
        "train_node, "
        "config: {model: mlp, data: synthetic, strategy: ddp}}}}'}",
    };
    exo_ref node = {0};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        exo_status st = spawn_node(texts[i], &node);
        cr_expect(st == EXO_INVAL && err.text[0], "%s: %s, '%s'", texts[i], exo_status_text(st),
                  err.text);
    }
    cr_expect_eq(spawn_node("", &node), EXO_INVAL);
}

/* --- Pointers come only from this process ----------------------------------------------------- */

/* Zeros of the right size, as a message from another process could contain them. */
static void
expect_start_refused(const exo_actor_class *class, size_t size)
{
    static const char bytes[sizeof(exo_host_start)];
    exo_ref ref = {0};
    exo_spawn_opts opts = {.args = exo_payload_borrow(bytes, size)};
    err = (exo_err){0};
    cr_expect_eq(exo_spawn(runtime, class, &opts, &ref, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "start"), "%s", err.text);
    cr_assert_eq(exo_payload_copy(&opts.args, bytes, size), EXO_OK);
    cr_expect_eq(exo_spawn(runtime, class, &opts, &ref, &err), EXO_INVAL);
}

Test(actor_messages, pointers_are_taken_from_this_process_only)
{
    exo_ref ref = {0};
    const exo_host_start start = {0};
    const exo_spawn_opts opts = {.args = exo_local_args(&start, sizeof start - 1)};
    expect_start_refused(&exo_graph_actor_class, sizeof(exo_host_start));
    cr_expect_eq(exo_spawn(runtime, &exo_graph_actor_class, &opts, &ref, &err), EXO_INVAL,
                 "of another size");
}

Test(actor_messages, classes_that_take_pointers_have_no_name)
{
    const exo_actor_class *class = NULL;
    for (size_t i = 0; (class = exo_actor_class_at(i)); i++)
        cr_expect(class != &exo_graph_actor_class, "%s", class->name);
    cr_expect_eq(exo_actor_class_find("train_node"), &exo_train_node_class);
    cr_expect_eq(exo_actor_class_find("graph_actor"), &exo_graph_far_actor_class);
    cr_expect_eq(exo_actor_class_register(&exo_graph_actor_class, &err), EXO_EXISTS);
}

/* --- Actors of a graph ------------------------------------------------------------------------ */

static const char graph_text[] = "actors:\n"
                                 "  source: {class: stream_source, config: {items: 5}}\n"
                                 "  sink: {class: stream_sink}\n"
                                 "edges: [{from: source, to: sink, carries: items}]\n";

static exo_ref
spawn_graph_actor(const char *name, uint32_t actor)
{
    exo_ref ref = {0};
    exo_spawn_opts opts = {.name = name, .namespace_name = "g"};
    cr_assert_eq(
        exo_host_start_text(
            &opts.args,
            &(exo_far_start){.space = "g", .source = "graph", .text = graph_text, .actor = actor},
            &err),
        EXO_OK);
    cr_assert_eq(exo_spawn(runtime, &exo_graph_far_actor_class, &opts, &ref, &err), EXO_OK, "%s",
                 err.text);
    return ref;
}

static void
send_change(exo_ref actor, uint64_t number, uint32_t step, const char *text)
{
    exo_payload args = {0};
    cr_assert_eq(exo_host_change_text(&args, number, (exo_change_step)step, text, &err), EXO_OK);
    expect_refused(actor, "change", args.data, args.size);
    exo_payload_release(&args);
}

Test(actor_messages, an_actor_of_a_graph_refuses_noise_and_runs_on)
{
    stream_register();
    exo_ref actors[] = {spawn_graph_actor("source_0", 0), spawn_graph_actor("sink_0", 1)};
    exo_future *runs[2] = {0};
    for (int i = 0; i < 2; i++) {
        expect_refused(actors[i], "run", NULL, 0);
        expect_refused(actors[i], "report", NULL, 0);
        send_change(actors[i], 1, EXO_CHANGE_INPUTS, graph_text); /* before it is connected */
        cr_assert_eq(ask(actors[i], "connect", NULL, 0, NULL), EXO_OK, "%s", err.text);
        expect_refused(actors[i], "connect", NULL, 0);
        expect_noise_refused(actors[i], "connect", 16, 0, false);
        expect_noise_refused(actors[i], "run", 16, 0, false);
        expect_noise_refused(actors[i], "look", 16, 0, false);
        expect_noise_refused(actors[i], "cancel", 16, 0, false);
        expect_noise_refused(actors[i], "report", 16, 16, true);
        expect_noise_refused(actors[i], "change", 64, 64, true);
        expect_noise_refused(actors[i], "waits", 64, 64, true);
        expect_noise_refused(actors[i], "abandon", 64, 64, true);
        expect_noise_refused(actors[i], "channel", 200, 200, true);
        expect_noise_refused(actors[i], "collective", 200, 200, true);
        send_change(actors[i], 1, EXO_CHANGE_INPUTS, NULL); /* without its text */
        send_change(actors[i], 1, 77, graph_text);
        send_change(actors[i], 3, EXO_CHANGE_INPUTS, graph_text); /* not the next number */
    }
    for (int i = 0; i < 2; i++)
        cr_assert_eq(
            exo_call(runtime, actors[i], "run", (exo_payload){0}, in_ms(60000), &runs[i], &err),
            EXO_OK);
    for (int i = 0; i < 2; i++) {
        const exo_payload *reply = NULL;
        cr_expect_eq(exo_wait(runs[i], in_ms(60000), &reply, &err), EXO_OK, "%s", err.text);
        cr_expect(i == 0 ||
                      (reply && strstr(reply->data, "\"help\":\"items that came\",\"value\":5}")),
                  "%s", reply ? (const char *)reply->data : "");
        exo_future_drop(&runs[i]);
        expect_refused(actors[i], "run", NULL, 0);
        cr_expect_eq(ask(actors[i], "report", NULL, 0, NULL), EXO_OK, "%s", err.text);
    }
}
