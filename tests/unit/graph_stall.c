/* Stalls are found where they are, with the whole cycle of waits, and nowhere else: graphs are
 * drawn by lot, with a cycle planted in half of them. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "graph/prove.h"
#include "graph/run.h"
#include "support/planted.h"
#include "support/script.h"

/* --- Running ---------------------------------------------------------------------------------- */

struct seen {
    exo_stall_wait ring[2 * PLANTED_ACTORS];
    size_t length;
    int stalls;
};

static void
on_stall(void *context, const exo_stall *stall, exo_time at)
{
    struct seen *seen = context;
    (void)at;
    cr_assert_leq(stall->length, 2 * PLANTED_ACTORS);
    memcpy(seen->ring, stall->cycle, stall->length * sizeof *stall->cycle);
    seen->length = stall->length;
    seen->stalls++;
}

/* Criterion's own messages are short. */
static void
tell_if(bool wrong, const planted_graph *p, const exo_err *err)
{
    if (wrong)
        fprintf(stderr, "%s\n%s", err->text, p->text);
}

static exo_status
run_plan(planted_graph *p, uint64_t seed, struct seen *seen, exo_err *err)
{
    exo_graph_spec *spec = NULL;
    exo_graph_result result;
    const exo_graph_run_opts opts = {
        .space = "stall", .tie_seed = seed + 1, .stalled = on_stall, .context = seen};
    script_register();
    planted_write(p, "script");
    *seen = (struct seen){0};
    exo_status st = exo_graph_parse(&spec, "stall.yaml", p->text, NULL, err);
    tell_if(st != EXO_OK, p, err);
    cr_assert_eq(st, EXO_OK);
    st = exo_graph_run(spec, &opts, &result, err);
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
    return st;
}

/* --- Planted ---------------------------------------------------------------------------------- */

static void
expect_planted(uint64_t seed, planted_place place)
{
    static planted_graph p;
    struct seen seen;
    exo_err err = {0};
    char why[200] = "";
    planted_stall(&p, seed, place);
    exo_status st = run_plan(&p, seed, &seen, &err);
    bool found = st == EXO_FAILED && planted_is_found(&p, seen.ring, seen.length, why, sizeof why);
    tell_if(!found, &p, &err);
    cr_assert(found, "seed %llu: %s", (unsigned long long)seed, why);
    cr_assert_eq(seen.stalls, 1);
    cr_expect(strncmp(err.text, "the graph stalls: a", 19) == 0, "%s", err.text);
}

Test(graph_stall, planted_cycles_are_named, .timeout = 250)
{
    for (uint64_t seed = 0; seed < 200; seed++)
        expect_planted(seed, PLANTED_VIRTUAL);
}

Test(graph_stall, planted_cycles_are_named_on_the_real_clock, .timeout = 250)
{
    for (uint64_t seed = 1000; seed < 1012; seed++)
        expect_planted(seed, PLANTED_REAL);
}

static void
run_lingering(int ms, struct seen *seen, exo_err *err)
{
    char text[400];
    exo_graph_spec *spec = NULL;
    exo_graph_result result;
    const exo_graph_run_opts opts = {
        .space = "stall", .stalled = on_stall, .context = seen, .grace = EXO_MS};
    *seen = (struct seen){0};
    snprintf(text, sizeof text,
             "actors: {a: {class: script, config: {script: '9 send p0; send p1'}},\n"
             "  b: {class: script, config: {script: 'receive p1; 9 receive p0', lingers: %d ms}}}\n"
             "edges: [{from: a, to: b, carries: p0}, {from: a, to: b, carries: p1}]\n",
             ms);
    script_register();
    cr_assert_eq(exo_graph_parse(&spec, "stall.yaml", text, NULL, err), EXO_OK, "%s", err->text);
    cr_assert_eq(exo_graph_run(spec, &opts, &result, err), EXO_FAILED, "%s", err->text);
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
}

Test(graph_stall, a_stall_is_named_though_its_actors_do_not_end, .timeout = 120)
{
    struct seen seen;
    exo_err err = {0};
    const char *late = NULL;
    /* on a busy machine the actor may end before the run has looked */
    for (int ms = 500; !late && ms < 10000; ms *= 4) {
        run_lingering(ms, &seen, &err);
        late = strstr(err.text, "; b_0 has not ended since, for 0.001 s");
        if (!late) /* a_0 may be late, too */
            late = strstr(err.text, "; a_0 and 1 other have not ended since, for 0.001 s");
    }
    cr_expect_not_null(late, "%s", err.text);
    cr_expect_eq(seen.stalls, 1);
    cr_expect(strncmp(err.text, "the graph stalls: a_0 waits to send on 'a>b:p0' to b_0", 54) == 0,
              "%s", err.text);
}

/* --- Sound ------------------------------------------------------------------------------------ */

static void
expect_sound(uint64_t seed, planted_place place)
{
    static planted_graph p;
    struct seen seen;
    exo_err err = {0};
    planted_sound(&p, seed, place);
    exo_status st = run_plan(&p, seed, &seen, &err);
    tell_if(st != EXO_OK, &p, &err);
    cr_assert_eq(st, EXO_OK, "seed %llu", (unsigned long long)seed);
    cr_assert_eq(seen.stalls, 0);
}

Test(graph_stall, nothing_is_said_of_sound_graphs, .timeout = 250)
{
    for (uint64_t seed = 0; seed < 200; seed++)
        expect_sound(seed, PLANTED_VIRTUAL);
}

Test(graph_stall, nothing_is_said_of_sound_graphs_on_the_real_clock, .timeout = 250)
{
    for (uint64_t seed = 1000; seed < 1012; seed++)
        expect_sound(seed, PLANTED_REAL);
}

/* --- Long waits ------------------------------------------------------------------------------- */

/* A record with one end. */
struct small_record {
    exo_wait_record record;
    exo_wait_end end;
};

static const char two_hosts[] =
    "hosts: {x: {up: 20 Mbit/s}, y: {}}\n"
    "actors: {a: {class: script, host: x, config: {script: 'send p0'}},\n"
    "  b: {class: script, host: y, config: {script: 'receive p0'}}}\n"
    "edges: [{from: a, to: b, carries: p0}]\n";

/* What b waits for, on an edge of that name, if a's end and b's own are like this. */
static exo_slow_wait
wait_of_b(const char *edge, exo_wait_end out, exo_wait_end in)
{
    exo_graph_spec *spec = NULL;
    exo_slow_wait wait = {0};
    struct small_record a = {.record = {.num_ends = 1}, .end = out};
    struct small_record b = {
        .record = {.kind = EXO_WAIT_RECEIVE, .waited = 7 * EXO_SECOND, .num_ends = 1}, .end = in};
    a.end.peer = 1;
    a.end.output = true;
    b.end.awaited = true;
    snprintf(b.record.edge_name, sizeof b.record.edge_name, "%s", edge);
    const exo_payload records[] = {exo_payload_borrow(&a, sizeof a),
                                   exo_payload_borrow(&b, sizeof b)};
    script_register();
    cr_assert_eq(exo_graph_parse(&spec, "two", two_hosts, NULL, NULL), EXO_OK);
    cr_assert_eq(exo_stall_slow(spec, records, 2, EXO_SECOND, &wait, 1), 1);
    exo_graph_spec_free(&spec);
    return wait;
}

Test(graph_stall, only_what_is_on_a_link_is_a_wait_for_a_link)
{
    exo_slow_wait w =
        wait_of_b("a>b:p0", (exo_wait_end){.busy = true, .passing = true}, (exo_wait_end){0});
    cr_expect(w.link);
    cr_expect_str_eq(w.on, "x -> y (20 Mbit/s)");
    w = wait_of_b("a>b:p0", (exo_wait_end){.number = 1},
                  (exo_wait_end){.number = 1, .passing = true});
    cr_expect(w.link, "its latency");
    w = wait_of_b("a>b:p0", (exo_wait_end){.busy = true}, (exo_wait_end){0});
    cr_expect(!w.link, "it is being encoded");
    cr_expect_str_eq(w.on, "a_0");
    w = wait_of_b("a>b:p0", (exo_wait_end){.number = 9}, (exo_wait_end){0});
    cr_expect(!w.link, "it is between the processes");
    /* An edge that the graph has no more: nobody knows the rate that it had. */
    w = wait_of_b("a>b:p9", (exo_wait_end){.busy = true, .passing = true}, (exo_wait_end){0});
    cr_expect_str_eq(w.on, "x -> y");
}

/* --- The check -------------------------------------------------------------------------------- */

/* What the check says of the same graph whose actors declare what they do. */
static exo_verdict
check_plan(planted_graph *p)
{
    exo_graph_spec *spec = NULL;
    exo_proof proof = {0};
    exo_err err = {0};
    script_register();
    planted_write(p, "scripted");
    exo_status st = exo_graph_parse(&spec, "stall.yaml", p->text, NULL, &err);
    if (st == EXO_INVAL && strstr(err.text, "this graph stalls: "))
        return EXO_STALLS;
    tell_if(st != EXO_OK, p, &err);
    cr_assert_eq(st, EXO_OK);
    cr_assert_eq(exo_graph_prove(spec, 2000, &proof, &err), EXO_OK);
    exo_graph_spec_free(&spec);
    return proof.verdict;
}

Test(graph_stall, the_check_knows_what_the_run_would_find, .timeout = 250)
{
    static planted_graph p;
    unsigned stalls = 0, planted = 0, sound = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        planted_stall(&p, seed, PLANTED_VIRTUAL);
        if (p.group)
            continue; /* its two members have orders of their own */
        exo_verdict verdict = check_plan(&p);
        tell_if(verdict == EXO_SOUND, &p, &(exo_err){0});
        cr_expect_neq(verdict, EXO_SOUND, "seed %llu stalls", (unsigned long long)seed);
        planted++;
        stalls += verdict == EXO_STALLS || verdict == EXO_CAN_STALL;
    }
    cr_expect_gt(planted, 50);
    cr_expect_eq(stalls, planted);
    for (uint64_t seed = 0; seed < 200; seed++) {
        planted_sound(&p, seed, PLANTED_VIRTUAL);
        exo_verdict verdict = check_plan(&p);
        tell_if(verdict == EXO_STALLS || verdict == EXO_CAN_STALL, &p, &(exo_err){0});
        cr_expect(verdict == EXO_SOUND || verdict == EXO_NOT_PROVEN, "seed %llu is sound",
                  (unsigned long long)seed);
        sound += verdict == EXO_SOUND;
    }
    cr_expect_gt(sound, 100, "%u of 200 are proven", sound);
}
