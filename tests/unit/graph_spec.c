/* Graphs in YAML: what is read, with every default; files that include others, presets, overrides,
 * variables. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/memory_fault.h"
#include "graph/spec.h"
#include "support/graph_classes.h"
#include "support/temp.h"

static exo_graph_spec *
parse_with(const char *text, const exo_graph_opts *opts)
{
    exo_graph_spec *spec = NULL;
    exo_err err = {0};
    graph_classes_register();
    cr_assert_eq(exo_graph_parse(&spec, "graph.yaml", text, opts, &err), EXO_OK, "%s", err.text);
    return spec;
}

static exo_graph_spec *
parse(const char *text)
{
    return parse_with(text, NULL);
}

static void
expect_refused(const char *text, const exo_graph_opts *opts, const char *message)
{
    exo_graph_spec *spec = NULL;
    exo_err err = {0};
    graph_classes_register();
    cr_expect_eq(exo_graph_parse(&spec, "graph.yaml", text, opts, &err), EXO_INVAL, "accepted: %s",
                 text);
    cr_expect_str_eq(err.text, message);
    cr_expect_null(spec);
}

static char folder[64]; /* of a test, which is a process */

static void
go_to_folder(void)
{
    temp_folder(folder, sizeof folder);
    cr_assert_eq(chdir(folder), 0);
}

static void
leave_folder(void)
{
    cr_assert_eq(chdir("/"), 0);
    temp_remove(folder);
}

static void
write_file(const char *name, const char *text)
{
    FILE *file = fopen(name, "we");
    cr_assert_not_null(file);
    cr_assert_geq(fputs(text, file), 0);
    cr_assert_eq(fclose(file), 0);
}

static const char whole[] =
    "exogym: 1\n"
    "name: both\n"
    "seed: 7\n"
    "clock: virtual\n"
    "until: 90 s\n"
    "hosts:\n"
    "  home: {count: 3, up: 20 Mbit/s, down: 100 Mbit/s, latency: 2 ms, queue: 9 ms, speed: 0.5,\n"
    "         resources: {cpus: 4, memory: 2 GiB}, schedule: [{at: 10 s, for: 5 s, factor: 0}]}\n"
    "  dc: {up: 1 Gbit/s, down: 1 Gbit/s}\n"
    "actors:\n"
    "  maker:\n"
    "    class: maker\n"
    "    count: 4\n"
    "    host: home\n"
    "    resources: {cpus: 2, memory: 64 MiB}\n"
    "    restart: {when: on_failure, max: 3, within: 60 s, backoff: 100 ms}\n"
    "    compute: {learn: 20 ms}\n"
    "    config: {length: 9}\n"
    "  trainer: {class: learner, count: 2, host: [dc]}\n"
    "edges:\n"
    "  - {from: maker, to: trainer, carries: experience, route: round_robin,\n"
    "     buffer: {capacity: 16, on_full: drop_oldest}, deadline: 5 s}\n"
    "  - {from: trainer, to: maker, carries: parameters, route: broadcast, every: 2, codec: bf16,\n"
    "     delay: 1 s, link: slow, name: weights, item: 1 MiB, interval: 3}\n"
    "  - {from: trainer, to: trainer, carries: gradients}\n"
    "links:\n"
    "  slow: {bandwidth: 1 Mbit/s}\n"
    "  wan: {from: home, to: dc, bandwidth: 50 Mbit/s, latency: 20 ms, jitter: 1 ms, loss: 1 %,\n"
    "        transport: ideal, one_way: true}\n"
    "  default: {bandwidth: 1 Gbit/s}\n";

Test(graph_spec, everything_is_read)
{
    exo_graph_spec *s = parse(whole);
    cr_expect_str_eq(s->name, "both");
    cr_expect_eq(s->seed, 7);
    cr_expect(s->virtual_clock);
    cr_expect_eq(s->until, 90 * EXO_SECOND);
    cr_expect(s->emulated && s->has_hosts);

    cr_assert_eq(s->num_hosts, 4);
    cr_expect_str_eq(s->hosts[0].spec.name, "home_0");
    cr_expect_str_eq(s->hosts[3].spec.name, "dc", "a host without a count is called as its group");
    cr_expect_eq(s->hosts[2].spec.up, 20e6);
    cr_expect_eq(s->hosts[2].spec.down, 100e6);
    cr_expect_eq(s->hosts[2].spec.latency, 2 * EXO_MS);
    cr_expect_eq(s->hosts[2].spec.queue, 9 * EXO_MS);
    cr_expect_eq(s->hosts[2].speed, 0.5);
    cr_assert_eq(s->hosts[2].spec.num_changes, 1);
    cr_expect_eq(s->hosts[2].spec.changes[0].at, 10 * EXO_SECOND);
    cr_expect_eq(s->hosts[2].spec.changes[0].length, 5 * EXO_SECOND);
    cr_expect_eq(s->hosts[2].spec.changes[0].factor, 0);
    cr_expect_eq(s->hosts[2].num_resources, 2);
    cr_expect_eq(s->hosts[2].resources[1].amount, 2147483648.0);
    cr_expect_null(s->hosts[3].resources);

    cr_assert_eq(s->num_actors, 2);
    const exo_actor_spec *maker = &s->actors[0];
    cr_expect_str_eq(maker->name, "maker");
    cr_expect_str_eq(maker->class->name, "maker");
    cr_expect_eq(maker->count, 4);
    const uint32_t in_turn[] = {0, 1, 2, 0};
    cr_expect_arr_eq(maker->hosts, in_turn, sizeof in_turn);
    cr_expect_eq(maker->restart.when, EXO_RESTART_ON_FAILURE);
    cr_expect_eq(maker->restart.max, 3);
    cr_expect_eq(maker->restart.within, 60 * EXO_SECOND);
    cr_expect_eq(maker->restart.backoff, 100 * EXO_MS);
    cr_assert_eq(maker->num_compute, 2, "one for each phase");
    cr_expect_eq(maker->compute[0].cost, -1);
    cr_expect_eq(maker->compute[1].cost, 20 * EXO_MS);
    cr_expect_eq(s->actors[1].hosts[1], 3);
    cr_expect(exo_config_is_map(s->actors[1].config), "never NULL");

    cr_assert_eq(s->num_edges, 3);
    const exo_edge_spec *experience = &s->edges[0], *weights = &s->edges[1],
                        *gradients = &s->edges[2];
    cr_expect_str_eq(experience->name, "maker>trainer:experience");
    cr_expect_eq(experience->route, EXO_ROUTE_ROUND_ROBIN);
    cr_expect_eq(experience->capacity, 16);
    cr_expect_eq(experience->on_full, EXO_FULL_DROP_OLDEST);
    cr_expect_eq(experience->deadline, 5 * EXO_SECOND);
    cr_expect_eq(experience->link, -1);
    cr_expect_str_eq(experience->codec_text, "raw");
    cr_expect_eq(experience->output, &maker->class->ports[0]);
    cr_expect_str_eq(weights->name, "weights");
    cr_expect_eq(weights->every, 2);
    cr_expect_eq(weights->delay, EXO_SECOND);
    cr_expect_eq(weights->deadline, 600 * EXO_SECOND);
    cr_expect_str_eq(weights->codec_text, "bf16");
    cr_expect_eq(weights->capacity, 4);
    cr_expect_eq(weights->item, 1048576);
    cr_expect_eq(weights->interval, 3);
    cr_expect_str_eq(s->links[weights->link].name, "slow");
    cr_expect_eq(gradients->route, EXO_ROUTE_ALL_REDUCE, "a collective's own route");
    cr_expect_eq(gradients->output, gradients->input);

    cr_assert_eq(s->num_links, 3);
    cr_expect(s->links[0].is_default, "wherever it stands");
    cr_expect_eq(s->links[0].spec.bandwidth, 1e9);
    const exo_named_link *wan = &s->links[2];
    cr_expect_str_eq(wan->name, "wan");
    cr_expect_eq(wan->from, 0);
    cr_expect_eq(wan->to, 1);
    cr_expect(!wan->both_ways);
    cr_expect_eq(wan->spec.latency, 20 * EXO_MS);
    cr_expect_eq(wan->spec.jitter, EXO_MS);
    cr_expect_eq(wan->spec.loss, 0.01);
    cr_expect_eq(wan->spec.transport, EXO_LINK_IDEAL);
    cr_expect_eq(exo_graph_link_between(s, 2, 3), &wan->spec);
    cr_expect_eq(exo_graph_link_between(s, 3, 2), &s->links[0].spec, "one way");
    cr_expect_eq(exo_graph_link_between(s, 0, 1), &s->links[0].spec);
    exo_graph_spec_free(&s);
    cr_expect_null(s);
    exo_graph_spec_free(&s);
}

Test(graph_spec, little_is_needed)
{
    exo_graph_spec *s = parse("actors: {a: {class: maker, count: 2}, b: {class: learner}}\n"
                              "edges: [{from: a, to: b, carries: experience}]\n");
    cr_expect_str_eq(s->name, "graph");
    cr_expect_eq(s->seed, 42);
    cr_expect(!s->virtual_clock && !s->emulated && !s->has_hosts);
    cr_expect_eq(s->until, 0);
    cr_assert_eq(s->num_hosts, 3, "one an actor");
    cr_expect_str_eq(s->hosts[1].spec.name, "a_1");
    cr_expect(isinf(s->hosts[1].spec.up) && s->hosts[1].speed == 1);
    cr_expect_eq(s->actors[1].hosts[0], 2);
    cr_expect_eq(s->edges[0].route, EXO_ROUTE_ONE, "there is one target");
    cr_expect_eq(s->actors[0].restart.when, EXO_RESTART_NEVER);
    exo_graph_spec_free(&s);
}

Test(graph_spec, hosts_of_their_own_can_be_linked_too)
{
    exo_graph_spec *s = parse("actors: {a: {class: maker, count: 2}, b: {class: learner}}\n"
                              "edges: [{from: a, to: b, carries: experience}]\n"
                              "links: {up: {from: a, to: b, latency: 5 ms}}\n");
    cr_expect(s->emulated);
    cr_expect_eq(exo_graph_link_between(s, 1, 2)->latency, 5 * EXO_MS);
    cr_expect_eq(exo_graph_link_between(s, 2, 0)->latency, 5 * EXO_MS, "both ways");
    cr_expect_eq(exo_graph_link_between(s, 0, 1)->latency, 0);
    exo_graph_spec_free(&s);
}

Test(graph_spec, one_group_of_hosts_is_everybodys)
{
    exo_graph_spec *s =
        parse("hosts: {h: {count: 2}}\n"
              "actors: {a: {class: maker, count: 3}, b: {class: learner, host: h_1}}\n"
              "edges: [{from: a, to: b, carries: experience}]\n");
    const uint32_t hosts[] = {0, 1, 0};
    cr_expect_arr_eq(s->actors[0].hosts, hosts, sizeof hosts);
    cr_expect_eq(s->actors[1].hosts[0], 1);
    exo_graph_spec_free(&s);
}

Test(graph_spec, presets_and_overrides_change_it)
{
    static const char text[] = "actors: {a: {class: maker}, b: {class: learner}}\n"
                               "edges: [{from: a, to: b, carries: experience}]\n"
                               "presets: {many: {actors.a.count: 8, seed: 3}}\n";
    const char *const sets[] = {"seed=5", "edges.0.buffer={capacity: 2}"};
    exo_graph_spec *s = parse_with(
        text, &(exo_graph_opts){.preset = "many", .sets = sets, .num_sets = 2, .name = "x"});
    cr_expect_eq(s->actors[0].count, 8);
    cr_expect_eq(s->seed, 5);
    cr_expect_eq(s->edges[0].capacity, 2);
    cr_expect_str_eq(s->name, "x");
    exo_graph_spec_free(&s);
    expect_refused(text, &(exo_graph_opts){.preset = "few"},
                   "--preset few: the graph has no such preset; it has: many");
    const char *const wrong[] = {"actors.a.count=0"};
    expect_refused(text, &(exo_graph_opts){.sets = wrong, .num_sets = 1},
                   "--set actors.a.count: count must be at least 1, got 0");
}

Test(graph_spec, variables_stand_for_their_values)
{
    static const char text[] =
        "variables: {n: 2, who: maker, deep: 'm${tail}', tail: aker, rate: 20, price: '$${n}'}\n"
        "actors:\n"
        "  a: {class: '${who}', count: '${n}', config: {name: '${price} ${n}'}}\n"
        "  b: {class: learner}\n"
        "  c:\n"
        "    class: ${deep}\n"
        "    count: ${n}${n}\n"
        "edges:\n"
        "  - {from: a, to: b, carries: experience}\n"
        "  - {from: c, to: b, carries: experience}\n"
        "links: {default: {latency: '${rate} ms'}}\n";
    exo_graph_spec *s = parse(text);
    const char *name = NULL;
    cr_expect_eq(s->actors[0].count, 2);
    cr_expect_eq(s->actors[2].count, 22);
    cr_expect_eq(s->links[0].spec.latency, 20 * EXO_MS);
    cr_expect_eq(exo_config_string(s->actors[0].config, "name", "", &name, NULL), EXO_OK);
    cr_expect_str_eq(name, "${n} 2");
    exo_graph_spec_free(&s);
    const char *const sets[] = {"variables.n=3"};
    s = parse_with(text, &(exo_graph_opts){.sets = sets, .num_sets = 1});
    cr_expect_eq(s->actors[2].count, 33);
    exo_graph_spec_free(&s);
}

Test(graph_spec, mistakes_with_variables_are_named)
{
    expect_refused("variables: {count: 2}\nactors:\n  a:\n    class: maker\n    count: ${cuont}\n",
                   NULL, "graph.yaml:5:12: there is no variable 'cuont'; did you mean 'count'?");
    expect_refused("variables: {a: 2, b: 3}\nname: ${x}\n", NULL,
                   "graph.yaml:2:7: there is no variable 'x'; there are: a, b");
    expect_refused("name: ${x}\n", NULL,
                   "graph.yaml:1:7: there is no variable 'x'; there are none");
    expect_refused("variables: {a: '${b}', b: '${a}'}\n", NULL,
                   "graph.yaml:1:27: the variable 'a' is made of itself");
    expect_refused("variables: {a: [1]}\n", NULL,
                   "graph.yaml:1:16: a: expected one value, got a list");
    expect_refused("variables: {'a b': 1}\n", NULL,
                   "graph.yaml:1:13: variable 'a b': expected a name of letters, digits and '_'");
    expect_refused("name: a${b\n", NULL,
                   "graph.yaml:1:7: '${b': expected ${NAME}, or $${ for the signs themselves");
    expect_refused(
        "variables: {a: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx,\n"
        "  b: '${a}${a}${a}${a}${a}${a}${a}${a}', c: '${b}${b}${b}${b}${b}${b}${b}${b}'}\n",
        NULL, "graph.yaml:2:45: longer than 4096 bytes with its variables");
}

/* variables: {v0: ${v1}, v1: ${v2}, ...}, `count` of them. */
static void
write_chain(char *text, size_t size, int count)
{
    size_t used = (size_t)snprintf(text, size, "variables:\n");
    for (int i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, size - used,
                                 i + 1 < count ? "  v%d: ${v%d}\n" : "  v%d: 3\n", i, i + 1);
    snprintf(text + used, size - used,
             "actors: {a: {class: maker, count: '${v0}'}, b: {class: learner}}\n"
             "edges: [{from: a, to: b, carries: experience}]\n");
}

Test(graph_spec, a_chain_of_variables_has_an_end)
{
    char text[4096];
    write_chain(text, sizeof text, 64);
    exo_graph_spec *s = parse(text);
    cr_expect_eq(s->actors[0].count, 3);
    exo_graph_spec_free(&s);
    write_chain(text, sizeof text,
                100); /* of 40,000, each on the stack above the one before, none came back */
    expect_refused(text, NULL,
                   "graph.yaml:65:8: the variable 'v64' is more than 64 variables deep");
}

Test(graph_spec, files_include_others)
{
    go_to_folder();
    cr_assert_eq(mkdir("parts", 0700), 0);
    write_file("parts/actors.yaml",
               "exogym: 1\ninclude: [more.yaml]\nactors: {a: {class: maker, count: '${n}'}}\n"
               "variables: {n: 2}\n");
    write_file("parts/more.yaml",
               "actors: {b: {class: learner}}\nedges: [{from: a, to: b, carries: experience}]\n");
    write_file("main.yaml",
               "include: [parts/actors.yaml, parts/more.yaml, parts/empty.yaml]\n"
               "actors: {c: {class: maker}}\nedges:\n  - {from: c, to: b, carries: experience}\n");
    write_file("parts/empty.yaml", "");
    exo_graph_spec *s = NULL;
    exo_err err = {0};
    const char *const sets[] = {"variables.n=5"};
    graph_classes_register();
    cr_assert_eq(
        exo_graph_load(&s, "main.yaml", &(exo_graph_opts){.sets = sets, .num_sets = 1}, &err),
        EXO_OK, "%s", err.text);
    cr_assert_eq(s->num_actors, 3);
    cr_expect_str_eq(s->actors[0].name, "b", "in the order of the files, this one last");
    cr_expect_str_eq(s->actors[2].name, "c");
    cr_expect_eq(s->actors[1].count, 5);
    cr_expect_eq(s->num_edges, 2);
    cr_expect_str_eq(s->name, "main");
    exo_graph_spec_free(&s);
    leave_folder();
}

static void
expect_load_refused(const char *path, exo_status status, const char *message)
{
    exo_graph_spec *s = NULL;
    exo_err err = {0};
    graph_classes_register();
    cr_expect_eq(exo_graph_load(&s, path, NULL, &err), status);
    cr_expect_str_eq(err.text, message);
    cr_expect_null(s);
}

Test(graph_spec, mistakes_in_included_files_name_their_file)
{
    go_to_folder();
    write_file("ring.yaml", "include: [ring2.yaml]\n");
    write_file("ring2.yaml", "include: [./ring.yaml]\n");
    expect_load_refused(
        "ring.yaml", EXO_INVAL,
        "ring2.yaml:1:11: include: './ring.yaml' includes itself, or a file that does");
    write_file("a.yaml", "actors:\n  a: {class: maker}\n");
    write_file("twice.yaml", "include: [a.yaml]\nactors:\n  a: {class: learner}\n");
    expect_load_refused("twice.yaml", EXO_INVAL,
                        "twice.yaml:3:3: duplicate actor 'a', first in a.yaml:2:3");
    write_file("main.yaml", "include: [b.yaml]\n");
    expect_load_refused("main.yaml", EXO_INVAL,
                        "main.yaml:1:11: cannot read 'b.yaml': there is no such file");
    write_file("b.yaml", "seed: 3\n");
    expect_load_refused("main.yaml", EXO_INVAL,
                        "b.yaml:1:1: unknown key 'seed'; known are: links, edges, actors, hosts, "
                        "plugins, variables, include, "
                        "exogym");
    write_file("b.yaml", "actors: []\n");
    expect_load_refused("main.yaml", EXO_INVAL,
                        "b.yaml:1:9: actors: expected a mapping, got a list");
    write_file("b.yaml", "actors: {a: {class: maker, count: 0}}\n");
    expect_load_refused("main.yaml", EXO_INVAL, "b.yaml:1:35: count must be at least 1, got 0");
    write_file("b.yaml", "actors: {a: {class: maker\n");
    expect_load_refused("main.yaml", EXO_INVAL, "b.yaml:2:1: missing comma in flow mapping");
    write_file("b.yaml", "plugins: [nothing.so]\nactors: {a: {class: maker}}\n");
    expect_load_refused("main.yaml", EXO_NOT_FOUND,
                        "b.yaml:1:11: plugin 'nothing.so': No such file or directory");
    write_file("main.yaml", "include: [3.yaml, {a: 1}]\n");
    write_file("3.yaml", "- 1\n");
    expect_load_refused(
        "main.yaml", EXO_INVAL,
        "3.yaml:1:1: an included file is a mapping: actors, edges, hosts, links, variables");
    write_file("3.yaml", "{}\n");
    expect_load_refused("main.yaml", EXO_INVAL,
                        "main.yaml:1:19: include: expected the path of a file");
    expect_load_refused("none.yaml", EXO_IO, "cannot read 'none.yaml': No such file or directory");
    leave_folder();
}

Test(graph_spec, a_closed_graph_reads_no_files)
{
    const exo_graph_opts closed = {.closed = true};
    expect_refused("include: [/etc/passwd]\nactors: {}\n", &closed,
                   "graph.yaml:1:10: include: this graph may read no other file");
    expect_refused("plugins: [/lib/x.so]\n", &closed,
                   "graph.yaml:1:10: plugins: this graph may read no other file");
    const char *const sets[] = {"include=[x.yaml]"};
    expect_refused("actors: {}\n", &(exo_graph_opts){.closed = true, .sets = sets, .num_sets = 1},
                   "--set include: include: this graph may read no other file");
    expect_refused("actors: {}\n", &(exo_graph_opts){.sets = sets, .num_sets = 1},
                   "--set include: include: files are included before presets and --set apply");
}

Test(graph_spec, is_told_from_a_job)
{
    static const struct {
        const char *text;
        bool graph;
    } cases[] = {{"actors: {}", true},
                 {"include: [a.yaml]", true},
                 {"edges: []", true},
                 {"model: mlp\nedges: []", false},
                 {"strategy: ddp\nedges: []", false},
                 {"{}", false},
                 {"[1]", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_config_doc *doc = NULL;
        cr_assert_eq(exo_config_parse(&doc, "x", cases[i].text, NULL), EXO_OK);
        cr_expect_eq(exo_graph_is(exo_config_root(doc)), cases[i].graph, "%s", cases[i].text);
        exo_config_free(&doc);
    }
}

/* --- Targets ---------------------------------------------------------------------------------- */

/* "0>1,2 1>3": whom each sender reaches. */
static void
expect_targets(unsigned senders, unsigned receivers, const char *route, const char *expected)
{
    char text[512], got[512] = "";
    uint32_t out[16];
    snprintf(text, sizeof text,
             "actors: {a: {class: maker, count: %u}, b: {class: learner, count: %u}}\n"
             "edges: [{from: a, to: b, carries: experience, %s}]\n",
             senders, receivers, route);
    exo_graph_spec *s = parse(text);
    for (uint32_t i = 0; i < senders; i++) {
        uint32_t n = exo_edge_targets(s, &s->edges[0], i, out);
        cr_expect_eq(n, exo_edge_targets(s, &s->edges[0], i, NULL));
        sprintf(got + strlen(got), "%s%u>", i ? " " : "", i);
        for (uint32_t k = 0; k < n; k++)
            sprintf(got + strlen(got), "%s%u", k ? "," : "", out[k]);
    }
    cr_expect_str_eq(got, expected, "%s", route);
    exo_graph_spec_free(&s);
}

Test(graph_spec, routes_have_their_targets)
{
    expect_targets(3, 3, "route: one", "0>0 1>1 2>2");
    expect_targets(3, 1, "route: one", "0>0 1>0 2>0");
    expect_targets(2, 3, "route: round_robin", "0>0,1,2 1>0,1,2");
    expect_targets(2, 3, "route: broadcast", "0>0,1,2 1>0,1,2");
    expect_targets(2, 5, "route: modulo", "0>0,2,4 1>1,3");
    expect_targets(2, 2, "route: modulo", "0>0 1>1");
    expect_targets(5, 2, "route: modulo", "0>0 1>1 2>0 3>1 4>0");
    expect_targets(5, 2, "route: modulo, idle_senders: true", "0>0 1>1 2> 3> 4>");
    expect_targets(2, 5, "route: modulo, idle_senders: true", "0>0,2,4 1>1,3");

    expect_targets(2, 3, "route: listed, targets: [b_2, b_0]", "0>0,2 1>0,2");
    expect_targets(3, 3, "route: listed, targets: {a_2: [b_0, b_1], a_0: [b_2], a_1: []}",
                   "0>2 1> 2>0,1");
    expect_targets(2, 12, "route: listed, targets: {a_1: [b_11, b_1]}", "0> 1>1,11");

    uint32_t out[4];
    exo_graph_spec *s = parse(
        "actors: {a: {class: talker, count: 3}}\n"
        "edges: [{from: a, to: a, carries: state, route: gossip, buffer: {on_full: latest}}]\n");
    cr_assert_eq(exo_edge_targets(s, &s->edges[0], 1, out), 2, "never itself");
    cr_expect(out[0] == 0 && out[1] == 2);
    cr_expect_eq(s->edges[0].capacity, 1);
    exo_graph_spec_free(&s);
}

/* --- Allocation ------------------------------------------------------------------------------- */

Test(graph_spec, every_failed_allocation_is_an_error)
{
    exo_status st = EXO_NOMEM;
    uint64_t n = 1;
    graph_classes_register();
    go_to_folder();
    write_file("main.yaml", "include: [part.yaml]\nvariables: {n: 4}\nseed: ${n}\n");
    write_file("part.yaml",
               whole + strlen("exogym: 1\nname: both\nseed: 7\nclock: virtual\nuntil: 90 s\n"));
    for (; st != EXO_OK; n++) {
        exo_graph_spec *s = NULL;
        exo_err err = {0};
        exo_memory_fail_at(n);
        st = exo_graph_load(&s, "main.yaml", NULL, &err);
        exo_memory_fail_at(0);
        cr_assert(st == EXO_OK ? s != NULL : st == EXO_NOMEM && !s && err.text[0],
                  "at allocation %d: %s", (int)n, err.text);
        exo_graph_spec_free(&s);
    }
    cr_expect_gt(n, 10);
    leave_folder();
}
