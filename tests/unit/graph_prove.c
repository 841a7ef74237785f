/* What the check of graphs proves of the order in which classes use their ports, and what it warns
 * of. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "graph/order.h"
#include "graph/prove.h"
#include "support/graph_classes.h"
#include "support/script.h"

static exo_verdict
verdict_of(const char *text, char said[800])
{
    exo_graph_spec *spec = NULL;
    exo_proof proof = {0};
    exo_err err = {0};
    script_register();
    graph_classes_register();
    exo_status st = exo_graph_parse(&spec, "g", text, NULL, &err);
    snprintf(said, 800, "%s", err.text);
    if (st == EXO_INVAL && strstr(err.text, "this graph stalls: "))
        return EXO_STALLS;
    if (st != EXO_OK)
        fprintf(stderr, "%s\n%s", err.text, text);
    cr_assert_eq(st, EXO_OK);
    cr_assert_eq(exo_graph_prove(spec, 0, &proof, &err), EXO_OK);
    exo_graph_spec_free(&spec);
    snprintf(said, 800, "%s", proof.text);
    return proof.verdict;
}

static void
expect(exo_verdict wanted, const char *text, const char *words)
{
    char said[800];
    exo_verdict verdict = verdict_of(text, said);
    if (verdict != wanted || !strstr(said, words))
        fprintf(stderr, "%d instead of %d, '%s' of\n%s\n", (int)verdict, (int)wanted, said, text);
    cr_expect_eq(verdict, wanted);
    cr_expect_not_null(strstr(said, words), "'%s' is not said", words);
}

#define XY(first, second, capacity)                                                                \
    "actors: {p: {class: scripted, config: {script: '" first                                       \
    "'}}, q: {class: scripted, config: {script: '" second                                          \
    "'}}}\nedges: [{from: p, to: q, carries: p0, buffer: {capacity: " capacity                     \
    "}}, {from: p, to: q, carries: p1}]\n"

#define CIRCLE(first, second)                                                                      \
    "actors: {p: {class: scripted, config: {script: '" first                                       \
    "'}}, q: {class: scripted, config: {script: '" second                                          \
    "'}}}\nedges: [{from: p, to: q, carries: p0}, {from: q, to: p, carries: p1}]\n"

Test(graph_prove, two_edges_in_another_order)
{
    expect(EXO_SOUND, XY("*(send p0; send p1)", "*(receive p1; receive p0)", "1"), "");
    expect(EXO_SOUND, XY("*(5 send p0; send p1)", "*(receive p1; 5 receive p0)", "4"), "");
    expect(EXO_STALLS, XY("*(6 send p0; send p1)", "*(receive p1; 6 receive p0)", "4"),
           "g:2:9: this graph stalls: p_0 waits to send on 'p>q:p0' to q_0, q_0 waits to receive "
           "on 'p>q:p1' from p_0");
    expect(EXO_STALLS, XY("1000 send p0; send p1", "receive p1; 1000 receive p0", "1"),
           "p_0 waits to send on");
    expect(EXO_SOUND, XY("1000 send p0; send p1", "*(receive p0 | receive p1)", "1"), "");
    expect(EXO_SOUND, XY("1000 send p0; send p1", "1000 receive p0; receive p1", "1"), "");
}

Test(graph_prove, an_order_that_is_not_declared)
{
    expect(EXO_NOT_PROVEN,
           "actors: {a: {class: maker, count: 2}, b: {class: learner, count: 3}}\n"
           "edges: [{from: a, to: b, carries: experience}, {from: b, to: b, carries: gradients}]\n",
           "does not declare the order in which it uses its ports (edges ");
    expect(
        EXO_SOUND,
        "actors: {a: {class: maker, count: 2}, b: {class: learner}}\n"
        "edges: [{from: a, to: b, carries: experience}, {from: b, to: a, carries: parameters}]\n",
        "");
}

/* What depends on the order of steps is neither proven nor certain. */
Test(graph_prove, orders_that_leave_a_choice)
{
    expect(EXO_CAN_STALL, XY("6 send p0; send p1", "poll p0; receive p1; *receive p0", "1"),
           "p_0 waits to send on 'p>q:p0' to q_0, q_0 waits to receive on 'p>q:p1' from p_0");
    expect(EXO_CAN_STALL, XY("3 send p0; send p1", "poll p0; receive p1; *receive p0", "1"),
           "p_0 waits to send on");
    expect(EXO_CAN_STALL,
           XY("send p0; send p1; 9 send p0; send p1",
              "(receive p0 | receive p1); receive p1; *receive p0", "1"),
           "p_0 waits to send on 'p>q:p0' to q_0");
    expect(EXO_NOT_PROVEN, CIRCLE("*(receive p1; send p0)", "*(receive p0 | send p1)"),
           "class 'scripted' of actor 'q' chooses between sending and something else, which is not "
           "tried (edges ");
    expect(EXO_NOT_PROVEN,
           CIRCLE("receive p1; *(send p0; receive p1)",
                  "(send p1 | receive p0); *(receive p0; send p1)"),
           "chooses between sending and something else");
    expect(
        EXO_CAN_STALL,
        "actors: {m: {class: scripted, config: {script: '*send p0'}},\n"
        "  t: {class: scripted, count: 2, config: {script: '*(poll p0; receive p0; reduce g0)'}}}\n"
        "edges: [{from: m, to: t, carries: p0, route: round_robin, buffer: {capacity: 1}},\n"
        "  {from: t, to: t, carries: g0}]\n",
        "waits to send on 'm>t:p0' to t_");
}

#define TEAM(route, members, capacity)                                                             \
    "actors: {m: {class: scripted, count: 2, config: {script: '*send p0'}},\n"                     \
    "  t: {class: scripted, count: " members                                                       \
    ", config: {script: '*(4 receive p0; reduce g0)'}}}\n"                                         \
    "edges: [{from: m, to: t, carries: p0, route: " route ", buffer: {capacity: " capacity "}},\n" \
    "  {from: t, to: t, carries: g0}]\n"

Test(graph_prove, routes_before_a_collective)
{
    expect(EXO_SOUND, TEAM("round_robin", "3", "4"), "");
    expect(EXO_SOUND, TEAM("broadcast", "3", "4"), "");
    expect(EXO_SOUND, TEAM("one", "2", "1"), "");
    expect(EXO_CAN_STALL, TEAM("hash", "2", "1"), "in 't>t:g0' for t_");
    expect(EXO_CAN_STALL, TEAM("gossip", "2", "1"), "waits to send on 'm>t:p0' to t_");
    expect(EXO_NOT_PROVEN, TEAM("hash", "1000", "4"),
           "edge 'm>t:p0' chooses its targets by route hash, whichever of them waits for items, "
           "and its 1002 actors are too many to try every order of steps (edges ");
    expect(EXO_SOUND, TEAM("hash", "1", "4"), "");
}

/* Whether c has ended when b sends to it depends on times: b ends then, or waits for a. */
Test(graph_prove, an_end_that_a_send_may_meet)
{
    expect(
        EXO_CAN_STALL,
        "actors: {a: {class: scripted, config: {script: '2 (receive p1; 3 send p2)'}},\n"
        "  b: {class: scripted, config: {script: '2 send p0; receive p2'}},\n"
        "  c: {class: scripted, count: 2, config: {script: '2 reduce g0'}}}\n"
        "edges: [{from: b, to: c, carries: p0, route: modulo, every: 2, buffer: {capacity: 2}},\n"
        "  {from: b, to: a, carries: p1, buffer: {capacity: 2}}, {from: a, to: b, carries: p2, "
        "buffer: {capacity: "
        "2}},\n"
        "  {from: c, to: c, carries: g0}]\n",
        "a_0 waits to receive on 'b>a:p1' from b_0");
}

/* The last items may go to a receiver that has just ended, of which m does not know yet. */
Test(graph_prove, items_to_a_receiver_that_has_ended_are_lost)
{
#define ENDS(times)                                                                                \
    "actors: {m: {class: scripted, config: {script: '*(receive p1; send p0)'}},\n"                 \
    "  t: {class: scripted, count: 2, config: {script: 'send p1; " times                           \
    " (receive p0; send p1)'}}}\n"                                                                 \
    "edges: [{from: m, to: t, carries: p0, route: hash}, {from: t, to: m, carries: p1, route: "    \
    "broadcast, buffer: {on_full: latest}}]\n"
    expect(EXO_CAN_STALL, ENDS("1"), "m_0 waits to receive on 't>m:p1' from t_");
    expect(EXO_CAN_STALL, ENDS("3"), "m_0 waits to receive on 't>m:p1' from t_");
    expect(EXO_SOUND, ENDS("*"), "");
#undef ENDS
    /* as many as the buffer holds: then the sender hears of the end, and ends */
    expect(EXO_SOUND,
           "actors: {p: {class: scripted, config: {script: '20 send p0; receive p2; send p1'}},\n"
           "  q: {class: scripted, config: {script: 'receive p0'}},\n"
           "  r: {class: scripted, config: {script: 'receive p1; send p2'}}}\n"
           "edges: [{from: p, to: q, carries: p0, buffer: {capacity: 1}},\n"
           "  {from: p, to: r, carries: p1}, {from: r, to: p, carries: p2}]\n",
           "");
}

/* What fills a buffer may still be on its way: a poll finds nothing, and the next wait is one for
 * ever. */
Test(graph_prove, a_poll_that_comes_too_early)
{
    expect(EXO_CAN_STALL, XY("*(send p0; send p1)", "*(poll p0; receive p1)", "1"),
           "p_0 waits to send on 'p>q:p0' to q_0, q_0 waits to receive on 'p>q:p1' from p_0");
}

/* What is done at ports without an edge takes no time and changes nothing, however often it is
 * done. */
Test(graph_prove, steps_at_ports_without_an_edge)
{
    expect(EXO_STALLS, XY("1000 send p5; 6 send p0; send p1", "*(receive p1; 6 receive p0)", "4"),
           "p_0 waits to send on 'p>q:p0' to q_0, q_0 waits to receive on 'p>q:p1' from p_0");
    expect(EXO_STALLS,
           XY("3 (7 (100 send p5; 0 send p0)); 6 send p0; send p1", "*(receive p1; 6 receive p0)",
              "4"),
           "p_0 waits to send on");
    expect(EXO_STALLS,
           XY("6 send p0; send p1", "(receive p1 | receive p5); 9 poll p7; *receive p0", "4"),
           "q_0 waits to receive on 'p>q:p1' from p_0");
    expect(EXO_SOUND,
           XY("*(9 send p5; send p0; send p1)", "*(9 poll p6; receive p1; receive p0)", "1"), "");
    /* Who goes on for ever without its ports is waited for, and no stall. */
    expect(EXO_SOUND, XY("4 send p0; *send p5; send p1", "receive p1; *receive p0", "4"), "");
    expect(EXO_SOUND, CIRCLE("receive p1; send p0; *poll p9", "2 (send p1; receive p0)"), "");
}

Test(graph_prove, the_reason_of_no_proof_is_the_true_one)
{
    expect(
        EXO_NOT_PROVEN,
        XY("5000000000 send p0; send p1", "5000000000 receive p0; poll p0; receive p1", "1000000"),
        "states of the graph were tried and none stalls, and there are more (edges ");
    expect(EXO_NOT_PROVEN,
           "actors: {p: {class: scripted, config: {script: '2 send p0; send p1'}},\n"
           "  q: {class: scripted, config: {script: 'receive p1; 2 receive p0'}}, r: {class: "
           "maker}, s: {class: "
           "learner}}\n"
           "edges: [{from: p, to: q, carries: p0, buffer: {capacity: 1}}, {from: p, to: q, "
           "carries: p1},\n"
           "  {from: r, to: s, carries: experience}]\n",
           "does not declare the order in which it uses its ports (edges ");
    expect(EXO_NOT_PROVEN, TEAM("gossip", "63", "4"), "its 65 actors are too many");
}

#define LOOP(maker, trainer, count)                                                                \
    "actors: {m: {class: scripted, count: " count ", config: {script: '" maker "'}},\n"            \
    "  t: {class: scripted, config: {script: '" trainer "'}}}\n"                                   \
    "edges: [{from: m, to: t, carries: p0, buffer: {capacity: 1}},\n"                              \
    "  {from: t, to: m, carries: p1, route: broadcast, buffer: {capacity: 1}}]\n"

Test(graph_prove, makers_and_trainers)
{
    expect(EXO_SOUND, LOOP("*(poll p1; send p0)", "send p1; *(4 receive p0; send p1)", "100"), "");
    expect(EXO_SOUND,
           LOOP("receive p1; *(poll p1; send p0)", "send p1; *(receive p0; send p1)", "1"), "");
    /* Each item needs parameters, and a batch more items than there are makers. */
    expect(EXO_SOUND, LOOP("*(receive p1; send p0)", "send p1; *(2 receive p0; send p1)", "2"), "");
    expect(EXO_STALLS, LOOP("*(receive p1; send p0)", "send p1; *(2 receive p0; send p1)", "1"),
           "m_0 waits to receive on 't>m:p1' from t_0, t_0 waits to receive on 'm>t:p0' from m_0");
}

static const exo_graph_port ports[] = {{.name = "a", .type = "t", .direction = EXO_PORT_OUTPUT},
                                       {.name = "b", .type = "t", .direction = EXO_PORT_INPUT}};
static const exo_graph_class shape = {.name = "shape", .ports = ports, .num_ports = 2};

static void
refused(const char *order, const char *words)
{
    exo_order *read = exo_calloc(1, sizeof *read);
    exo_err err = {0};
    cr_expect_eq(exo_order_read(read, order, &shape, &err), EXO_INVAL, "%s", order);
    cr_expect_not_null(strstr(err.text, words), "'%s' is not in '%s'", words, err.text);
    exo_free(read);
}

Test(graph_prove, orders_are_read_or_refused)
{
    exo_order *read = exo_calloc(1, sizeof *read);
    cr_assert_eq(exo_order_read(read, "send a; *(3 receive b ; (poll b | send a))", &shape, NULL),
                 EXO_OK);
    const exo_order_kind kinds[] = {EXO_ORDER_SEND,    EXO_ORDER_LOOP, EXO_ORDER_LOOP,
                                    EXO_ORDER_RECEIVE, EXO_ORDER_END,  EXO_ORDER_POLL,
                                    EXO_ORDER_SEND,    EXO_ORDER_END};
    cr_assert_eq(read->length, sizeof kinds / sizeof *kinds);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        cr_expect_eq(read->steps[i].kind, kinds[i], "step %zu", i);
    cr_expect_eq(read->steps[1].count, EXO_ORDER_ENDLESS);
    cr_expect_eq(read->steps[1].other, 7);
    cr_expect_eq(read->steps[2].count, 3);
    cr_expect(read->steps[5].or_next && !read->steps[6].or_next);
    exo_free(read);
    refused("", "expected send, receive, poll or reduce and a port, or '(' at 'the end'");
    refused("send b", "no such port for this at 'b'");
    refused("send a receive b", "expected ';' at 'receive b'");
    refused("(send a", "expected ')' at 'the end'");
    refused("(send a; poll b | send a)", "nothing else stands beside them");
    refused("*(*(*(*(*(*(*(*(*(send a)))))))))", "too many loops in loops");
}
