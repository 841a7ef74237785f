/* Graphs written out, drawn and planned: what is expanded is the same graph, bytes and times are
 * those of the closed forms. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/codec.h>
#include <exogym/memory.h>

#include "base/memory_fault.h"
#include "graph/plan.h"
#include "support/graph_classes.h"

static exo_graph_spec *
parse(const char *text)
{
    exo_graph_spec *spec = NULL;
    exo_err err = {0};
    graph_classes_register();
    cr_assert_eq(exo_graph_parse(&spec, "g.yaml", text, NULL, &err), EXO_OK, "%s\n%s", err.text,
                 text);
    return spec;
}

static char *
expand(const exo_graph_spec *spec)
{
    char *text = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_graph_expand(spec, &text, &err), EXO_OK, "%s", err.text);
    return text;
}

/* --- Expanding -------------------------------------------------------------------------------- */

Test(graph_plan, every_default_is_written_out)
{
    exo_graph_spec *s = parse("actors: {a: {class: maker}, b: {class: learner}}\n"
                              "edges: [{from: a, to: b, carries: experience}]\n");
    char *text = expand(s);
    cr_expect_str_eq(text, "exogym: 1\n"
                           "name: g\n"
                           "seed: 42\n"
                           "clock: real\n"
                           "until: 0 s\n"
                           "plugins: []\n"
                           "actors:\n"
                           "  a:\n"
                           "    class: maker\n"
                           "    count: 1\n"
                           "    resources: {}\n"
                           "    restart: {when: never}\n"
                           "    compute: {}\n"
                           "    config: {}\n"
                           "  b:\n"
                           "    class: learner\n"
                           "    count: 1\n"
                           "    resources: {}\n"
                           "    restart: {when: never}\n"
                           "    compute: {}\n"
                           "    config: {}\n"
                           "edges:\n"
                           "  - from: a\n"
                           "    to: b\n"
                           "    carries: experience\n"
                           "    name: \"a>b:experience\"\n"
                           "    route: one\n"
                           "    codec: raw\n"
                           "    buffer: {capacity: 4, on_full: block}\n"
                           "    every: 1\n"
                           "    delay: 0 s\n"
                           "    deadline: 10 min\n"
                           "links: {}\n");
    exo_free(text);
    exo_graph_spec_free(&s);
}

static const char bare[] = "actors: {t: {class: talker}}\n";
static const char everything[] =
    "name: 'true'\nseed: 7\nclock: virtual\nuntil: 90 s\n"
    "hosts:\n"
    "  home: {count: 3, up: 20 Mbit/s, latency: 2 ms, queue: 9 ms, speed: 0.3, resources: {cpus: "
    "4, memory: 2 "
    "GiB, x.y: 0.25},\n"
    "         schedule: [{at: 10 s, for: 5 s, every: 1 h, factor: 0.1}, {factor: 2}]}\n"
    "  dc: {}\n"
    "actors:\n"
    "  'null': {class: maker, count: 4, host: home, resources: {cpus: 1.5, memory: 3 B},\n"
    "           restart: {when: always, max: 3, within: 60 s}, compute: {act: 1 us}, config: "
    "{name: '$${n} \"x\" "
    "$${'}}\n"
    "  '12': {class: learner, count: 2, host: [dc, home_1]}\n"
    "edges:\n"
    "  - {from: 'null', to: '12', carries: experience, route: modulo, idle_senders: true, link: "
    "slow,\n"
    "     codec: [bf16, zstd], buffer: {capacity: 2, on_full: fail}, name: x}\n"
    "  - {from: '12', to: 'null', carries: parameters, route: broadcast, every: 3, delay: 1500 ms, "
    "deadline: 5 s,\n"
    "     codec: {name: int8, block: 64}, item: 0.3 B, interval: 9, buffer: {on_full: latest}}\n"
    "  - {from: '12', to: '12', carries: gradients, codec: bf16, interval: 2, members: 1}\n"
    "links:\n"
    "  slow: {bandwidth: 1.25 Mbit/s, loss: 0.1 %}\n"
    "  wan: {from: home, to: dc, one_way: true, latency: 3 us, jitter: 7 ns, transport: ideal, "
    "schedule: [{factor: "
    "0}]}\n"
    "  default: {}\n";
static const char in_turn[] =
    "hosts: {only: {count: 2}}\nactors: {t: {class: talker, count: 3}}\n"
    "edges: [{from: t, to: t, carries: state, route: gossip, buffer: {on_full: drop_newest}}]\n";
static const char *const graphs[] = {bare, everything, in_turn};

Test(graph_plan, what_is_expanded_is_the_same_graph)
{
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        exo_graph_spec *first = parse(graphs[i]);
        char *once = expand(first);
        exo_graph_spec *second = parse(once);
        char *twice = expand(second);
        cr_expect_str_eq(once, twice);
        cr_assert_eq(first->num_actors, second->num_actors);
        cr_expect_eq(first->num_hosts, second->num_hosts);
        for (size_t a = 0; a < first->num_actors; a++)
            cr_expect_arr_eq(first->actors[a].hosts, second->actors[a].hosts,
                             first->actors[a].count * sizeof(uint32_t));
        for (size_t e = 0; e < first->num_edges; e++) {
            cr_expect_eq(first->edges[e].item, second->edges[e].item);
            cr_expect_eq(first->edges[e].members, second->edges[e].members);
            cr_expect_eq(first->edges[e].capacity, second->edges[e].capacity);
            cr_expect_eq(first->edges[e].delay, second->edges[e].delay);
            cr_expect_eq(first->edges[e].output, second->edges[e].output);
        }
        for (size_t h = 0; h < first->num_hosts; h++)
            cr_expect_eq(first->hosts[h].spec.queue, second->hosts[h].spec.queue);
        for (size_t l = 0; l < first->num_links; l++) {
            cr_expect_eq(first->links[l].spec.bandwidth, second->links[l].spec.bandwidth);
            cr_expect_eq(first->links[l].spec.loss, second->links[l].spec.loss);
        }
        exo_free(once);
        exo_free(twice);
        exo_graph_spec_free(&first);
        exo_graph_spec_free(&second);
    }
}

Test(graph_plan, variables_are_gone_and_their_signs_stay)
{
    exo_graph_spec *first = parse(everything);
    char *text = expand(first);
    const char *name = NULL;
    exo_graph_spec *second = parse(text);
    cr_expect_eq(exo_config_string(second->actors[0].config, "name", "", &name, NULL), EXO_OK);
    cr_expect_str_eq(name, "${n} \"x\" ${");
    exo_free(text);
    exo_graph_spec_free(&first);
    exo_graph_spec_free(&second);
}

/* --- Drawing ---------------------------------------------------------------------------------- */

Test(graph_plan, hosts_are_drawn_around_their_actors)
{
    exo_graph_spec *s = parse(
        "hosts: {h: {count: 2, up: 20 Mbit/s}, dc: {}}\n"
        "actors: {a: {class: maker, count: 2, host: h}, b: {class: learner, host: dc},\n"
        "  c: {class: talker, count: 3, host: [h, dc]}}\n"
        "edges: [{from: a, to: b, carries: experience, codec: bf16, buffer: {on_full: latest}}]\n"
        "links: {default: {bandwidth: 1 Gbit/s, latency: 20 ms}}\n");
    char *text = NULL;
    cr_assert_eq(exo_graph_dot(s, &text, NULL), EXO_OK);
    cr_expect_str_eq(
        text, "digraph \"g\" {\n"
              "  rankdir=LR;\n"
              "  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n"
              "  edge [fontname=\"sans-serif\", fontsize=10];\n"
              "  subgraph \"cluster_0\" {\n"
              "    label=\"h x 2\\n20 Mbit/s up, unlimited down\";\n"
              "    style=rounded; color=gray;\n"
              "    \"a\" [label=\"a x 2\\nmaker\"];\n"
              "  }\n"
              "  subgraph \"cluster_1\" {\n"
              "    label=\"dc\";\n"
              "    style=rounded; color=gray;\n"
              "    \"b\" [label=\"b\\nlearner\"];\n"
              "  }\n"
              "    \"c\" [label=\"c x 3\\ntalker\"];\n"
              "  \"a\" -> \"b\" [label=\"experience\\none, latest\\nbf16\\n1 Gbit/s, 20 ms\"];\n"
              "}\n");
    exo_free(text);
    exo_graph_spec_free(&s);
}

/* --- Planning --------------------------------------------------------------------------------- */

static exo_plan_edge
plan_first(const char *text)
{
    exo_plan_edge plan[4];
    exo_err err = {0};
    exo_graph_spec *s = parse(text);
    cr_assert_eq(exo_graph_plan(s, plan, &err), EXO_OK, "%s", err.text);
    exo_graph_spec_free(&s);
    plan[0].edge = NULL; /* it was the graph's */
    return plan[0];
}

#define NEAR(a, b)                                                                                 \
    cr_expect_float_eq(a, b, 1e-9 * fabs((double)(b)), "%.12g, not %.12g", a, (double)(b))

Test(graph_plan, an_item_that_nobody_declares_is_not_known)
{
    exo_plan_edge p = plan_first("actors: {a: {class: maker, count: 3}, b: {class: learner}}\n"
                                 "edges: [{from: a, to: b, carries: experience}]\n");
    cr_expect_eq(p.senders, 3);
    cr_expect_eq(p.targets, 1);
    cr_expect(isnan(p.item) && isnan(p.encoded) && isnan(p.per_step) && isnan(p.seconds));
}

Test(graph_plan, an_item_takes_the_time_of_its_link)
{
    exo_plan_edge p =
        plan_first("actors: {a: {class: maker, count: 3}, b: {class: learner}}\n"
                   "edges: [{from: a, to: b, carries: experience, item: 1 MB, codec: bf16, "
                   "interval: 2, every: 5}]\n"
                   "links: {default: {bandwidth: 8 Mbit/s, latency: 20 ms, transport: ideal}}\n");
    cr_expect_eq(p.encoded, 500004, "with its checksum");
    cr_expect_eq(p.sent, 500004);
    NEAR(p.per_step, 150001.2);
    NEAR(p.seconds, 0.520004);
    NEAR(p.seconds_per_step, 0.0520004);
    cr_expect(!p.at_most);
}

Test(graph_plan, tcp_has_headers_and_loss_costs)
{
    exo_plan_edge p = plan_first("actors: {a: {class: maker}, b: {class: learner}}\n"
                                 "edges: [{from: a, to: b, carries: experience, item: 1448000 B}]\n"
                                 "links: {default: {bandwidth: 8 Mbit/s, loss: 50 %}}\n");
    NEAR(p.seconds, 1514000 * 8 / 8e6 * 2);
}

Test(graph_plan, hosts_share_their_rates)
{
    /* Two makers on a host send to four each; 3 MB/s up. */
    exo_plan_edge p = plan_first(
        "hosts: {h: {up: 24 Mbit/s}, g: {count: 2}}\n"
        "actors: {b: {class: learner, count: 2, host: h}, a: {class: maker, count: 4, host: g}}\n"
        "edges: [{from: b, to: a, carries: parameters, route: broadcast, item: 3 MB}, "
        "{from: a, to: b, carries: experience}]\n"
        "links: {default: {transport: ideal}}\n");
    cr_expect_eq(p.targets, 4);
    cr_expect_eq(p.sent, 12e6);
    cr_expect_eq(p.per_step, 24e6);
    NEAR(p.seconds, 8);
    p = plan_first("hosts: {h: {}}\n"
                   "actors: {a: {class: maker}, b: {class: learner}}\n"
                   "edges: [{from: a, to: b, carries: experience, item: 3 MB}]\n"
                   "links: {default: {latency: 1 s}}\n");
    cr_expect_eq(p.seconds, 0, "a host reaches itself at once");
}

Test(graph_plan, a_link_of_its_own_counts)
{
    exo_plan_edge p = plan_first(
        "actors: {a: {class: maker}, b: {class: learner}}\n"
        "edges: [{from: a, to: b, carries: experience, item: 1 MB, link: slow, delay: 1 s}]\n"
        "links: {default: {latency: 9 s}, slow: {bandwidth: 1 MB/s, transport: ideal}}\n");
    NEAR(p.seconds, 2.0);
}

Test(graph_plan, an_all_reduce_is_an_exchange_of_shards)
{
    /* Ten elements among four: shards of 3, 3, 2, 2; each member sends 2 * 3 shards, 15 elements on
     * average. */
    exo_plan_edge p = plan_first(
        "actors: {b: {class: learner, count: 4}, a: {class: maker}}\n"
        "edges: [{from: b, to: b, carries: gradients, item: 40 B, interval: 4}, {from: a, to: b, "
        "carries: experience}]\n"
        "links: {default: {bandwidth: 96 bit/s, latency: 10 s, transport: ideal}}\n");
    cr_expect_eq(p.targets, 4);
    cr_expect_eq(p.encoded, 40);
    cr_expect_eq(p.sent, 60);
    cr_expect_eq(p.per_step, 60);
    NEAR(p.seconds, 22.0);
    NEAR(p.seconds_per_step, 5.5);
    p = plan_first("actors: {b: {class: learner, count: 4}, a: {class: maker}}\n"
                   "edges: [{from: b, to: b, carries: gradients, item: 4.4 B}, {from: a, to: b, "
                   "carries: experience}]\n");
    NEAR(p.sent, 6.6); /* an expected number */
    p = plan_first("actors: {b: {class: learner, count: 1}, a: {class: maker}}\n"
                   "edges: [{from: b, to: b, carries: gradients, item: 40 B}, {from: a, to: b, "
                   "carries: experience}]\n");
    cr_expect_eq(p.sent, 0);
    cr_expect_eq(p.seconds, 0);
}

Test(graph_plan, an_all_reduce_among_some_is_several_at_once)
{
    /* Ten elements; of five, two pairs send 2 * 5 elements each, and one sends nothing. A shard of
     * 5 elements takes 20 s. */
    exo_plan_edge p =
        plan_first("actors: {b: {class: learner, count: 5}, a: {class: maker}}\n"
                   "edges: [{from: b, to: b, carries: gradients, item: 40 B, members: 2}, {from: "
                   "a, to: b, carries: experience}]\n"
                   "links: {default: {bandwidth: 8 bit/s, latency: 10 s, transport: ideal}}\n");
    cr_expect_eq(p.targets, 2);
    cr_expect_eq(p.senders, 5);
    cr_expect_eq(p.encoded, 40);
    cr_expect_eq(p.per_step, 160);
    cr_expect_eq(p.sent, 32);
    NEAR(p.seconds, 60.0);
    /* Three and, left over, two, whose shards are larger. */
    p = plan_first("actors: {b: {class: learner, count: 5}, a: {class: maker}}\n"
                   "edges: [{from: b, to: b, carries: gradients, item: 40 B, members: 3}, {from: "
                   "a, to: b, carries: experience}]\n"
                   "links: {default: {bandwidth: 8 bit/s, latency: 10 s, transport: ideal}}\n");
    cr_expect_eq(p.per_step, 2 * 2 * 40 + 2 * 40);
    NEAR(p.seconds, 60.0);
}

Test(graph_plan, a_size_that_depends_on_values_is_a_bound)
{
    exo_codec *codec = NULL;
    exo_plan_edge p =
        plan_first("actors: {a: {class: maker}, b: {class: learner}}\n"
                   "edges: [{from: a, to: b, carries: experience, item: 4 MB, codec: zstd}]\n");
    cr_assert_eq(exo_codec_parse(&codec, "zstd", NULL), EXO_OK);
    cr_expect(p.at_most);
    cr_expect_eq(p.encoded, (double)exo_codec_bound(codec, 1000000));
    exo_codec_free(&codec);
}

Test(graph_plan, declared_phases_are_summed_and_slow_hosts_are_slower)
{
    exo_graph_spec *s = parse(
        "hosts: {h: {speed: 0.5}, g: {speed: 2}}\n"
        "actors: {a: {class: maker, count: 2, host: [h, g], compute: {act: 10 ms, learn: 20 ms}},\n"
        "  b: {class: learner, host: g}}\n"
        "edges: [{from: a, to: b, carries: experience}]\n");
    NEAR(exo_plan_compute(s, &s->actors[0]), 0.06);
    cr_expect(isnan(exo_plan_compute(s, &s->actors[1])), "none is declared");
    exo_graph_spec_free(&s);
}

/* --- Allocation ------------------------------------------------------------------------------- */

Test(graph_plan, every_failed_allocation_is_an_error)
{
    for (int what = 0; what < 3; what++) {
        exo_status st = EXO_NOMEM;
        exo_graph_spec *s = parse(everything);
        for (uint64_t n = 1; st != EXO_OK; n++) {
            char *text = NULL;
            exo_plan_edge plan[8];
            exo_err err = {0};
            exo_memory_fail_at(n);
            st = what == 0   ? exo_graph_expand(s, &text, &err)
                 : what == 1 ? exo_graph_dot(s, &text, &err)
                             : exo_graph_plan(s, plan, &err);
            exo_memory_fail_at(0);
            cr_assert(st == EXO_OK || (st == EXO_NOMEM && err.text[0] && !text));
            exo_free(text);
        }
        exo_graph_spec_free(&s);
    }
}
