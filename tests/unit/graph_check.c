/* The check of graphs: each mistake is refused, with its place and a remedy. The tests have no
 * shared state. Read next: runtime/graph/check.c. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "graph/builtin.h"
#include "graph/spec.h"
#include "support/graph_classes.h"

static exo_status
try_graph(const char *text, exo_err *err)
{
    exo_graph_spec *spec = NULL;
    graph_classes_register();
    exo_status st = exo_graph_parse(&spec, "g", text, NULL, err);
    exo_graph_spec_free(&spec);
    return st;
}

static void
expect_fine(const char *text)
{
    exo_err err = {0};
    cr_expect_eq(try_graph(text, &err), EXO_OK, "%s: %s", err.text, text);
}

static void
expect_refused(const char *text, const char *message)
{
    exo_err err = {0};
    cr_expect_eq(try_graph(text, &err), EXO_INVAL, "accepted: %s", text);
    cr_expect_str_eq(err.text, message);
}

#define A "actors: {a: {class: maker, count: 2}, b: {class: learner, count: 3}}\n"
#define E "edges: [{from: a, to: b, carries: experience}]\n"

/* Expects that an edge after E's is refused. The message begins at column `rest` of line 2. */
static void
expect_edge(const char *edge, const char *rest)
{
    char text[1024], message[1024];
    snprintf(text, sizeof text, A "edges: [{from: a, to: b, carries: experience}, {%s}]\n", edge);
    snprintf(message, sizeof message, "g:2:%s", rest);
    expect_refused(text, message);
}

Test(graph_check, the_top_level)
{
    expect_refused("actor: {}\n", "g:1:1: unknown key 'actor'; did you mean 'actors'?");
    expect_refused(
        "models: {}\n" A,
        "g:1:1: unknown key 'models'; known are: exogym, name, seed, clock, until, plugins, "
        "include, hosts, actors, edges, links, changes, variables, presets");
    expect_refused("[1]\n",
                   "g:1:1: a graph is a mapping: actors, edges, hosts, links (docs/graph.md)");
    expect_refused("name: x\n", "g:1:1: the key 'actors' is missing");
    expect_refused("actors: {}\n", "g:1:9: actors: there are none");
    expect_refused("clock: fast\n" A E, "g:1:8: clock: expected one of real, virtual, got 'fast'");
    expect_refused("until: 20\n" A E,
                   "g:1:8: until: '20' has no unit; expected a time such as 20 ms");
    expect_refused("exogym: 2\n" A E, "g:1:9: exogym must be at most 1, got 2");
    expect_refused("name: a b\n" A E,
                   "g:1:7: name 'a b': expected at most 100 letters, digits, '_', '.' and '-', "
                   "beginning with a letter, digit or '_'");
    expect_refused("seed: -1\n" A E, "g:1:7: seed must be at least 0, got -1");
    expect_refused("presets: {quick: 3}\n" A E, "g:1:18: quick: expected a mapping, got '3'");
}

Test(graph_check, actors)
{
    expect_refused("actors: {a: {clas: maker}}\n",
                   "g:1:14: unknown key 'clas'; did you mean 'class'?");
    expect_refused("actors: {a: {count: 2}}\n", "g:1:13: actor 'a': the key 'class' is missing");
    expect_refused("actors: {a: {class: makr}}\n",
                   "g:1:21: there is no graph class 'makr'; did you mean 'maker'?");
    expect_refused(
        "actors: {a: {class: unheard_of}}\n",
        "g:1:21: there is no graph class 'unheard_of'; known are: "
        "dpo_trainer, experience_maker, learner, maker, ping, policy_trainer, pong, ppo_trainer, "
        "replay_buffer, reward_trainer, rollout_maker, sft_trainer, stand_in, starter, talker, "
        "text, train_node");
    expect_refused("actors: {a: maker}\n", "g:1:13: a: expected a mapping, got 'maker'");
    expect_refused("actors: {a b: {class: maker}}\n",
                   "g:1:15: actor 'a b': expected at most 100 letters, digits, '_', "
                   "'.' and '-', beginning with a letter, digit or '_'");
    expect_refused("actors: {a: {class: maker, count: 0}}\n",
                   "g:1:35: count must be at least 1, got 0");
    expect_refused("actors: {a: {class: maker, count: 65537}}\n",
                   "g:1:35: count must be at most 65536, got 65537");
    expect_refused("actors: {a: {class: talker, count: 65536}, b: {class: talker}}\n",
                   "g:1:47: 65537 actors so far: a graph has at most 65536");
    expect_refused("actors: {a: {class: maker, resources: {cpus: -1}}}\n",
                   "g:1:46: cpus must be at least 0, got -1");
    expect_refused("actors: {a: {class: maker, resources: {memory: 2}}}\n",
                   "g:1:48: memory: '2' has no unit; expected a size such as 16 MiB");
    expect_refused("actors: {a: {class: maker, resources: {cpus: 1.5, gpus: 1.5}}}\n",
                   "g:1:57: there cannot be 1.5 of the resource 'gpus' for an actor: take at most "
                   "1, a part of one GPU, or whole ones");
    expect_refused("actors: {a: {class: maker, restart: {when: often}}}\n",
                   "g:1:44: when: expected one of never, on_failure, always, got 'often'");
    expect_refused("actors: {a: {class: maker, restart: {max: 3}}}\n",
                   "g:1:43: restart: max says nothing without when: on_failure or when: always");
    expect_refused("actors: {a: {class: maker, compute: {lern: 3 ms}}}\n",
                   "g:1:38: unknown key 'lern'; did you mean 'learn'?");
    expect_refused("actors: {a: {class: talker, compute: {step: 3 ms}}}\n",
                   "g:1:39: unknown key 'step'; there are none here");
}

Test(graph_check, options_of_classes)
{
    expect_refused("actors: {a: {class: maker, config: {lenght: 2}}}\n",
                   "g:1:37: unknown key 'lenght'; did you mean 'length'?");
    expect_refused("actors: {a: {class: maker, config: {length: 0}}}\n",
                   "g:1:45: length must be at least 1, got 0");
    expect_refused("actors: {a: {class: maker, config: {length: 13}}}\n", "g:1:36: 13 is unlucky");
    expect_refused("actors: {a: {class: talker, config: {x: 1}}}\n",
                   "g:1:38: unknown key 'x'; there are none here");
    expect_refused("actors: {a: {class: maker, config: 3}}\n",
                   "g:1:36: config: expected a mapping, got '3'");
    expect_refused(
        "actors: {a: {class: train_node, config: {model: mlp, data: synthetic, strategy: dpd}}}\n",
        "g:1:81: there is no strategy 'dpd'; did you mean 'ddp'?");
    expect_refused("actors: {a: {class: train_node, config: {model: mlp, data: synthetic}}}\n",
                   "g:1:41: the key 'strategy' is missing");
}

Test(graph_check, hosts)
{
    expect_refused("hosts: {h: {up: 20}}\n" A E,
                   "g:1:17: up: '20' has no unit; expected a rate such as 100 Mbit/s");
    expect_refused("hosts: {h: {uo: 20}}\n" A E, "g:1:13: unknown key 'uo'; did you mean 'up'?");
    expect_refused("hosts: {h: {count: 2}, g: {}}\n" A E,
                   "g:2:13: actor 'a': the key 'host' is missing: which of the hosts is it on?");
    expect_refused("hosts: {home: {count: 2}}\nactors: {a: {class: maker, host: hom}}\n",
                   "g:2:34: there is no host 'hom'; did you mean 'home'?");
    expect_refused("hosts: {home: {count: 2}}\nactors: {a: {class: maker, host: home_2}}\n",
                   "g:2:34: there is no host 'home_2'; did you mean 'home'?");
    expect_refused("hosts: {home: {}}\nactors: {a: {class: maker, host: []}}\n",
                   "g:2:34: host: the list is empty");
    expect_refused("hosts: {home: {}}\nactors: {a: {class: maker, host: [{}]}}\n",
                   "g:2:35: host: expected the name of hosts, or a list of names");
    expect_refused("actors: {a: {class: maker, host: home}}\n",
                   "g:1:34: host: this graph has no 'hosts'");
    expect_refused("hosts: {h: {count: 2}, h_1: {}}\n" A E,
                   "g:1:29: hosts: 'h_1' is also a host of 'h'");
    expect_refused("hosts: {h: {schedule: [{at: 1 s}]}}\n" A E,
                   "g:1:24: schedule: the key 'factor' is missing: of the rates; 0 is an outage");
    expect_refused("hosts: {h: {schedule: [{every: 1 s, factor: 0}]}}\n" A E,
                   "g:1:24: schedule: 'every' needs 'for': how long it lasts each time");
    expect_refused("hosts: {h: {schedule: [{every: 1 s, for: 2 s, factor: 0}]}}\n" A E,
                   "g:1:24: schedule: 'for' is longer than 'every'");
    expect_refused("hosts: {h: {resources: {cpus: 4}}}\nactors: {a: {class: maker, count: 3, "
                   "resources: {cpus: 2}}}\n"
                   "edges: []\n",
                   "g:2:13: actor 'a': the output 'experience' of class 'maker' needs an edge: "
                   "{from: a, to: ..., "
                   "carries: experience}");
    expect_refused("hosts: {h: {count: 2, resources: {cpus: 4}}}\nactors:\n"
                   "  t: {class: talker, count: 4, resources: {cpus: 2}}\n  u: {class: talker, "
                   "resources: {cpus: 0.5}}\n",
                   "g:4:33: host 'h_0' has 4 of 'cpus', and with 'u_0' its actors need 4.5: there "
                   "must be more hosts, or "
                   "fewer actors");
    expect_refused(
        "hosts: {h: {resources: {cpus: 4}}}\nactors: {t: {class: talker, resources: {gpus: 1}}}\n",
        "g:2:40: host 'h' has 0 of 'gpus', and with 't_0' its actors need 1: there must be more "
        "hosts, or fewer "
        "actors");
    expect_fine("hosts: {h: {count: 2, resources: {cpus: 4}}}\nactors: {t: {class: talker, count: "
                "4, resources: {cpus: 2}}}\n");
    expect_fine("hosts: {h: {}}\nactors: {t: {class: talker, count: 4, resources: {cpus: 2}}}\n");
}

Test(graph_check, links)
{
    expect_refused("links: {default: {bandwith: 1 Gbit/s}}\n" A E,
                   "g:1:19: unknown key 'bandwith'; did you mean 'bandwidth'?");
    expect_refused("links: {default: {bandwidth: 1 Gbps}}\n" A E,
                   "g:1:30: bandwidth: 'Gbps' is no unit of a rate; did you mean 'Gbit/s', in "
                   "bits, or 'GB/s', in bytes?");
    expect_refused("links: {default: {loss: 1.5}}\n" A E,
                   "g:1:25: loss must be at most 0.99, got 1.5");
    expect_refused("links: {default: {loss: 5 ms}}\n" A E,
                   "g:1:25: loss: expected a part such as 0.01 or 1 %, got '5 ms'");
    expect_refused("links: {default: {transport: udp}}\n" A E,
                   "g:1:30: transport: expected one of tcp, ideal, got 'udp'");
    expect_refused("links: {default: {from: a, to: b}}\n" A E,
                   "g:1:18: links: 'default' is for all other hosts; give this link another name");
    expect_refused("links: {x: {from: a}}\n" A E, "g:1:12: link 'x': the key 'to' is missing");
    expect_refused("links: {x: {from: a, to: c}}\n" A E,
                   "g:1:26: there is no host 'c'; there are: a, b");
    expect_refused("links: {x: {one_way: true}}\n" A E,
                   "g:1:12: link 'x': one_way says nothing without from and to");
    expect_refused("links: {x: {from: a, to: b}, y: {from: b, to: a}}\n" A E,
                   "g:1:33: link 'y': 'x' is between the same hosts already, in g:1:12");
    expect_fine(
        "links: {x: {from: a, to: b, one_way: true}, y: {from: b, to: a, one_way: true}}\n" A E);
}

Test(graph_check, edges)
{
    expect_edge("from: b, to: c, carries: parameters",
                "62: there is no actor 'c'; there are: a, b");
    expect_edge("to: a, carries: parameters", "48: edge: the key 'from' is missing");
    expect_edge("from: b, carries: parameters", "48: edge: the key 'to' is missing");
    expect_edge("from: b, to: a", "48: edge: the key 'carries' is missing");
    expect_edge("from: b, to: a, carries: paramters",
                "74: there is no port of class 'learner' (of actor 'b') called 'paramters'; did "
                "you mean 'parameters'?");
    expect_edge(
        "from: a, to: b, carries: parameters",
        "74: 'parameters' of class 'maker' is an input, but the edge needs an output of 'a' there");
    expect_edge("from: b, to: a, carries: gradients",
                "74: 'gradients' of class 'learner' is a collective: its edge has from and to the "
                "same, and the route "
                "all_reduce");
    expect_edge("from: b, to: a, carries: parameters, rout: one",
                "86: unknown key 'rout'; did you mean 'route'?");
    expect_edge("from: b, to: a, carries: parameters, route: random",
                "93: route: expected one of one, round_robin, broadcast, least_loaded, hash, "
                "modulo, all_reduce, gossip, listed, got "
                "'random'");
    expect_edge("from: b, to: a, carries: parameters, buffer: {capacity: 0}",
                "105: capacity must be at least 1, got 0");
    expect_edge(
        "from: b, to: a, carries: parameters, buffer: {on_full: wait}",
        "104: on_full: expected one of block, drop_oldest, drop_newest, latest, fail, got 'wait'");
    expect_edge("from: b, to: a, carries: parameters, every: 0",
                "93: every must be at least 1, got 0");
    expect_edge("from: b, to: a, carries: parameters, delay: 5",
                "93: delay: '5' has no unit; expected a time such as 20 ms");
    expect_edge("from: b, to: a, carries: parameters, link: wan",
                "92: there is no link 'wan'; there are none");
    expect_edge("from: b, to: a, carries: parameters, name: a b",
                "92: name 'a b': expected letters, digits, '_', '.', '-', '>' and ':'");
    expect_edge("from: a, to: b, carries: experience",
                "48: there is already an edge from 'a' to 'b' that carries 'experience', in g:2:9");
    expect_edge("from: b, to: a, carries: parameters, name: a>b:experience",
                "48: there is already an edge called 'a>b:experience', in g:2:9");
    expect_refused("actors: {t: {class: text}, b: {class: learner}}\nedges: [{from: t, to: b, "
                   "carries: experience}]\n",
                   "g:2:35: 'experience' is 'text' where 't' sends it and 'rollout' "
                   "where 'b' takes it");
    expect_refused(A "edges: [x]\n", "g:2:9: edges: expected a mapping with from, to and carries");
    expect_refused(A "edges: {}\n", "g:2:8: edges: expected a list, got a mapping");
    expect_refused(
        A "edges: []\n",
        "g:1:13: actor 'a': the output 'experience' of class 'maker' needs an edge: {from: a, to: "
        "..., carries: experience}");
    expect_refused("links: {x: {from: a, to: b}}\n" A
                   "edges: [{from: a, to: b, carries: experience, link: x}]\n",
                   "g:3:53: link 'x' is between hosts: what passes there takes it by itself");
}

Test(graph_check, routes)
{
    expect_edge("from: b, to: a, carries: parameters, route: one",
                "93: route one needs one target, or as many as there are senders: there are 3 of "
                "'b' and 2 of 'a'; "
                "round_robin and modulo fit any");
    expect_edge(
        "from: b, to: a, carries: parameters, route: all_reduce",
        "93: route all_reduce is among the actors of one name: from and to must be the same");
    expect_edge(
        "from: b, to: b, carries: gradients, route: gossip",
        "92: 'gradients' of class 'learner' is a collective: its route is all_reduce, not gossip");
    expect_edge("from: b, to: a, carries: parameters, idle_senders: true",
                "100: idle_senders is for the route modulo, not for round_robin");
    expect_edge("from: b, to: a, carries: parameters, targets: [a_0]",
                "95: edge 'b>a:parameters': targets is for the route listed, not for round_robin");
    expect_edge("from: b, to: a, carries: parameters, route: listed",
                "48: edge 'b>a:parameters': the route listed needs targets, such as {b_0: [a_0]}");
    expect_edge("from: b, to: a, carries: parameters, route: listed, targets: [a_0, a_2]",
                "116: edge 'b>a:parameters': targets: 'a_2' is none of 'a', which are a_0 to a_1");
    expect_edge("from: b, to: a, carries: parameters, route: listed, targets: {b_01: [a_0]}",
                "117: edge 'b>a:parameters': targets: 'b_01' is none of 'b', which are b_0 to b_2");
    expect_edge("from: b, to: a, carries: parameters, route: listed, targets: {b_0: [a_1, a_1]}",
                "122: edge 'b>a:parameters': targets: a_1 is there twice");
    expect_edge("from: b, to: a, carries: parameters, route: listed, targets: {b_0: a_1}",
                "116: edge 'b>a:parameters': targets: expected a list of names such as a_0");
    expect_edge("from: b, to: b, carries: gradients, every: 2",
                "92: edge 'b>b:gradients': every says nothing about an all_reduce, which all call "
                "together");
    expect_edge("from: b, to: b, carries: gradients, members: 4",
                "94: members must be at most 3, got 4");
    expect_edge("from: b, to: a, carries: parameters, members: 2",
                "95: edge 'b>a:parameters': members is of an all_reduce, where so many meet");
    expect_edge("from: b, to: b, carries: gradients, codec: zstd",
                "92: codec: an all_reduce needs one that remembers nothing and has a fixed size, "
                "not {name: zstd, level: 3}");
    expect_refused(
        "actors: {t: {class: talker}}\nedges: [{from: t, to: t, carries: state, route: gossip}]\n",
        "g:2:49: route gossip needs at least 2 of 't' to choose from; there is 1");
    expect_refused("actors: {t: {class: talker}}\nedges: [{from: t, to: t, carries: state, route: "
                   "broadcast}]\n",
                   "g:2:49: 't' is one actor, which cannot send to itself: give it a count");
    expect_refused("actors: {t: {class: talker, count: 4}}\nedges: [{from: t, to: t, carries: "
                   "state, route: hash}]\n",
                   "g:2:49: route hash would lead from an actor to itself; among actors of one "
                   "name use round_robin, "
                   "broadcast, least_loaded or gossip");
    expect_refused(
        "actors: {t: {class: talker, count: 4}}\nedges: [{from: t, to: t, carries: state, route: "
        "all_reduce}]\n",
        "g:2:49: route all_reduce needs a collective; 'state' of class 'talker' is an output");
}

Test(graph_check, buffers)
{
    expect_edge("from: b, to: a, carries: parameters, on_full: latest",
                "86: unknown key 'on_full'; did you mean 'buffer.on_full'?");
    expect_edge("from: b, to: a, carries: parameters, capacity: 3",
                "86: unknown key 'capacity'; did you mean 'buffer.capacity'?");
    expect_edge("from: b, to: a, carries: parameters, buffer: {on_full: latest, capacity: 3}",
                "122: on_full: latest keeps one item: capacity must be 1, got 3");
    expect_edge("from: b, to: a, carries: parameters, every: 2, buffer: {on_full: fail}",
                "104: on_full: fail is for who must not lose an item, but every: 2 leaves items "
                "out; use block or latest");
}

Test(graph_check, cycles_that_can_deadlock)
{
    expect_refused(
        "actors: {x: {class: ping}, y: {class: pong}}\n"
        "edges: [{from: x, to: y, carries: ping}, {from: y, to: x, carries: pong}]\n",
        "g:2:9: these can wait for each other for ever: x -> y -> x (edges 'x>y:ping', "
        "'y>x:pong'); let one of the "
        "edges drop (buffer: {on_full: latest}), or end at an actor that sends before it waits");
    expect_refused("actors: {t: {class: talker, count: 2}}\nedges: [{from: t, to: t, carries: "
                   "state, route: gossip}]\n",
                   "g:2:9: these can wait for each other for ever: t -> t (edges 't>t:state'); let "
                   "one of the edges drop "
                   "(buffer: {on_full: latest}), or end at an actor that sends before it waits");
    expect_refused(
        "actors: {o: {class: talker}, s: {class: talker}, t: {class: talker}, u: {class: talker}, "
        "v: {class: talker}}\n"
        "edges: [{from: o, to: s, carries: state}, {from: s, to: t, carries: state}, {from: t, to: "
        "u, carries: "
        "state},\n  {from: s, to: v, carries: state}, {from: u, to: s, carries: state}]\n",
        "g:2:43: these can wait for each other for ever: s -> t -> u -> s (edges 's>t:state', "
        "'t>u:state', "
        "'u>s:state'); let one of the edges drop (buffer: {on_full: latest}), or end at an actor "
        "that sends before "
        "it waits");
    /* In each of these graphs something breaks the cycle. */
    expect_fine("actors: {x: {class: ping}, y: {class: pong}}\n"
                "edges: [{from: x, to: y, carries: ping}, {from: y, to: x, carries: pong, buffer: "
                "{on_full: latest}}]\n");
    expect_fine("actors: {x: {class: starter}, y: {class: pong}}\n"
                "edges: [{from: x, to: y, carries: ping}, {from: y, to: x, carries: pong}]\n");
    expect_fine(
        A
        "edges: [{from: a, to: b, carries: experience}, {from: b, to: a, carries: parameters}]\n");
    expect_fine("actors: {s: {class: talker}, t: {class: talker}, u: {class: talker}}\n"
                "edges: [{from: s, to: t, carries: state}, {from: s, to: u, carries: state}, "
                "{from: t, to: u, carries: "
                "state}]\n");
}

/* --- Classes ---------------------------------------------------------------------------------- */

static exo_status
do_nothing(void *self, exo_graph_actor *actor, exo_err *err)
{
    (void)self;
    (void)actor;
    (void)err;
    return EXO_OK;
}

Test(graph_check, classes_are_known_by_their_names)
{
    static const exo_graph_port twice[] = {{.name = "p", .type = "t"}, {.name = "p", .type = "u"}},
                                no_type[] = {{.name = "p"}};
    static const exo_graph_class
        mine = {.name = "mine", .run = do_nothing},
        again = {.name = "mine", .run = do_nothing},
        built_in = {.name = "train_node", .run = do_nothing}, no_run = {.name = "x"},
        no_name = {.run = do_nothing},
        two = {.name = "two", .run = do_nothing, .ports = twice, .num_ports = 2},
        bare = {.name = "bare", .run = do_nothing, .ports = no_type, .num_ports = 1};
    const exo_graph_class *found = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_graph_class_register(&mine, &err), EXO_OK);
    cr_expect_eq(exo_graph_class_find("mine"), &mine);
    cr_expect_eq(exo_graph_class_register(&again, &err), EXO_EXISTS);
    cr_expect_str_eq(err.text, "there is already a graph class 'mine'");
    cr_expect_eq(exo_graph_class_register(&built_in, &err), EXO_EXISTS);
    cr_expect_eq(exo_graph_class_register(&no_run, &err), EXO_INVAL);
    cr_expect_eq(exo_graph_class_register(&no_name, &err), EXO_INVAL);
    cr_expect_eq(exo_graph_class_register(&two, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "graph class 'two': two ports 'p' of one direction");
    cr_expect_eq(exo_graph_class_register(&bare, &err), EXO_INVAL);
    cr_expect_null(exo_graph_class_find("two"));
    cr_expect_str_eq(exo_graph_class_at(0)->name, "dpo_trainer", "in the order of names");
    cr_expect_eq(exo_graph_class_at(2), &mine);
    cr_expect_null(exo_graph_class_at(11));
    cr_expect_eq(exo_graph_class_get(&found, "unheard_of", &err), EXO_NOT_FOUND);
    cr_expect_str_eq(
        err.text,
        "there is no graph class 'unheard_of'; known are: dpo_trainer, experience_maker, mine, "
        "policy_trainer, ppo_trainer, replay_buffer, reward_trainer, rollout_maker, sft_trainer, "
        "stand_in, train_node");
}
