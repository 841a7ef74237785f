/* The emulated network of a graph: each pair of hosts has its link. A plan's closed forms equal the
 * model's times, if the links have no schedules, slow start or TCP. Each test owns its graph and
 * links. Read next: runtime/graph/plan.h. */
#include <criterion/criterion.h>

#include <math.h>

#include <exogym/memory.h>

#include "base/memory_fault.h"
#include "graph/plan.h"
#include "graph/site.h"
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

static exo_links *
make(const exo_graph_spec *spec)
{
    exo_links *links = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_graph_links(spec, &links, &err), EXO_OK, "%s", err.text);
    return links;
}

static exo_time
arrival(exo_links *links, uint32_t from, uint32_t to, uint64_t bytes)
{
    exo_transit transit;
    exo_links_send(links, from, to, 0, bytes, 0, &transit);
    return transit.arrives;
}

static const char network[] =
    "hosts: {home: {count: 2}, dc: {count: 2}, far: {}}\n"
    "actors: {t: {class: talker, host: home}}\n"
    "links:\n"
    "  default: {latency: 1 ms, transport: ideal}\n"
    "  wan: {from: home, to: dc, latency: 20 ms, transport: ideal}\n"
    "  up: {from: home, to: far, latency: 300 ms, transport: ideal, one_way: true}\n"
    "  lan: {from: home, to: home, latency: 100 us, transport: ideal}\n"
    "  unused: {latency: 9 s}\n";

Test(graph_links, each_pair_of_hosts_has_its_link)
{
    exo_graph_spec *s = parse(network);
    exo_links *links = make(s);
    cr_expect_eq(exo_links_num_hosts(links), 5);
    cr_expect_eq(arrival(links, 0, 3, 1), 20 * EXO_MS);
    cr_expect_eq(arrival(links, 2, 1, 1), 20 * EXO_MS, "both ways");
    cr_expect_eq(arrival(links, 1, 4, 1), 300 * EXO_MS);
    cr_expect_eq(arrival(links, 4, 1, 1), EXO_MS, "one way");
    cr_expect_eq(arrival(links, 0, 1, 1), 100 * EXO_US, "within a group");
    cr_expect_eq(arrival(links, 2, 3, 1), EXO_MS);
    cr_expect_eq(arrival(links, 2, 2, 1), 0, "to itself");
    for (uint32_t from = 0; from < 5; from++)
        for (uint32_t to = 0; to < 5; to++)
            if (from != to)
                cr_expect_eq(exo_graph_link_between(s, from, to)->latency,
                             arrival(links, from, to, 1), "%u %u", from, to);
    exo_links_free(&links);
    exo_graph_spec_free(&s);
}

Test(graph_links, a_graph_that_says_nothing_takes_no_time)
{
    exo_graph_spec *s = parse("actors: {t: {class: talker, count: 2}}\n");
    exo_links *links = make(s);
    cr_expect_eq(arrival(links, 0, 1, 1000000), 0);
    exo_links_free(&links);
    exo_graph_spec_free(&s);
}

/* The model rounds times to nanoseconds, once for each hop. */
static void
expect_near(double seconds, exo_time time)
{
    cr_expect_float_eq(seconds, (double)time * 1e-9, 1e-6 + 1e-6 * seconds,
                       "planned %.9g s, the model says %.9g s", seconds, (double)time * 1e-9);
}

Test(graph_links, a_planned_message_takes_the_models_time)
{
    exo_graph_spec *s =
        parse("hosts: {h: {up: 8 Mbit/s, latency: 3 ms}, g: {down: 16 Mbit/s, latency: 4 ms}}\n"
              "actors: {a: {class: maker, host: h}, b: {class: learner, host: g}}\n"
              "edges: [{from: a, to: b, carries: experience, item: 1 MB}]\n"
              "links: {default: {bandwidth: 100 Mbit/s, latency: 20 ms, transport: ideal}}\n");
    exo_links *links = make(s);
    exo_plan_edge plan[1];
    cr_assert_eq(exo_graph_plan(s, plan, NULL), EXO_OK);
    expect_near(plan[0].seconds, arrival(links, 0, 1, (uint64_t)plan[0].encoded));
    exo_links_free(&links);
    exo_graph_spec_free(&s);
}

Test(graph_links, a_planned_all_reduce_takes_the_models_time)
{
    enum {
        N = 8,
        BYTES = 4000000
    };
    exo_graph_spec *s =
        parse("hosts: {h: {count: 8, up: 20 Mbit/s, down: 40 Mbit/s, latency: 1 ms}}\n"
              "actors: {b: {class: learner, count: 8}, a: {class: maker, host: h_0}}\n"
              "edges: [{from: b, to: b, carries: gradients, item: 4 MB}, {from: a, to: b, carries: "
              "experience}]\n"
              "links: {default: {latency: 20 ms, transport: ideal}}\n");
    exo_links *links = make(s);
    exo_plan_edge plan[2];
    uint64_t bytes[N];
    exo_time begins[N] = {0}, middle[N], ends[N], last = 0;
    for (int i = 0; i < N; i++)
        bytes[i] = BYTES / N;
    cr_assert_eq(exo_graph_plan(s, plan, NULL), EXO_OK);
    cr_assert_eq(exo_links_exchange(links, EXO_EXCHANGE_SCATTER, N, s->actors[0].hosts, 0, bytes,
                                    begins, middle, NULL, NULL),
                 EXO_OK);
    cr_assert_eq(exo_links_exchange(links, EXO_EXCHANGE_GATHER, N, s->actors[0].hosts, 0, bytes,
                                    middle, ends, NULL, NULL),
                 EXO_OK);
    for (int i = 0; i < N; i++)
        last = ends[i] > last ? ends[i] : last;
    expect_near(plan[0].seconds, last);
    exo_links_free(&links);
    exo_graph_spec_free(&s);
}

static const char others[] = "hosts: {home: {count: 2}, dc: {count: 2}, far: {}}\n"
                             "actors: {t: {class: talker, host: home}}\n"
                             "links:\n"
                             "  default: {latency: 7 ms, transport: ideal}\n"
                             "  wan: {from: home, to: far, latency: 2 ms, transport: ideal}\n"
                             "  lan: {from: dc, to: dc, latency: 3 ms, transport: ideal}\n";

Test(graph_links, changed_links_are_those_of_the_next_graph)
{
    exo_graph_spec *specs[] = {parse(network), parse(others)};
    exo_links *links = make(specs[0]);
    for (int change = 1; change < 4; change++) {
        const exo_graph_spec *next = specs[change % 2];
        exo_links *fresh = make(next);
        cr_assert_eq(exo_graph_set_links(links, next, NULL), EXO_OK);
        for (uint32_t a = 0; a < next->num_hosts; a++)
            for (uint32_t b = 0; b < next->num_hosts; b++)
                cr_expect_eq(exo_links_speed(links, a, b).latency,
                             exo_links_speed(fresh, a, b).latency, "change %d: %u to %u", change, a,
                             b);
        exo_links_free(&fresh);
    }
    exo_links_free(&links);
    exo_graph_spec_free(&specs[0]);
    exo_graph_spec_free(&specs[1]);
}

/* Many members are computed in sums, whose connections stay warm. */
Test(graph_links, a_change_of_nothing_changes_no_exchange)
{
    enum {
        N = 40
    };
    exo_graph_spec *s =
        parse("hosts: {h: {count: 40, up: 10 Gbit/s, down: 10 Gbit/s}}\n"
              "actors: {b: {class: learner, count: 40}, a: {class: maker, host: h_0}}\n"
              "edges: [{from: a, to: b, carries: experience}]\n"
              "links: {default: {latency: 20 ms}}\n");
    exo_links *links[] = {make(s), make(s)};
    uint64_t bytes[N];
    exo_time ends[2][N];
    for (int i = 0; i < N; i++)
        bytes[i] = 100000;
    for (int k = 0; k < 2; k++) {
        exo_time begins[N] = {0};
        for (int round = 0; round < 3; round++) {
            if (k == 1 && round == 2)
                cr_assert_eq(exo_graph_change_links(links[k], s, NULL), EXO_OK);
            cr_assert_eq(exo_links_exchange(links[k], EXO_EXCHANGE_SCATTER, N, s->actors[0].hosts,
                                            0, bytes, begins, ends[k], NULL, NULL),
                         EXO_OK);
            memcpy(begins, ends[k], sizeof begins);
        }
    }
    cr_expect_arr_eq(ends[0], ends[1], sizeof ends[0]);
    exo_links_free(&links[0]);
    exo_links_free(&links[1]);
    exo_graph_spec_free(&s);
}

Test(graph_links, every_failed_allocation_is_an_error)
{
    exo_graph_spec *s = parse(network);
    exo_status st = EXO_NOMEM;
    for (uint64_t n = 1; st != EXO_OK; n++) {
        exo_links *links = NULL;
        exo_err err = {0};
        exo_memory_fail_at(n);
        st = exo_graph_links(s, &links, &err);
        exo_memory_fail_at(0);
        cr_assert(st == EXO_OK ? links != NULL : st == EXO_NOMEM && err.text[0] && !links);
        exo_links_free(&links);
    }
    exo_graph_spec_free(&s);
}
