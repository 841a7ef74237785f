/* Stalls are found where they are, with the whole cycle of waits, and nowhere else: graphs are drawn by lot, with a cycle planted in half of
 * them. */
#include <criterion/criterion.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/rng.h>

#include "check.h"
#include "prove.h"
#include "run.h"
#include "script.h"

enum {
    MAX_RING = 6,
    MAX_ACTORS = 16,
    MAX_EDGES = 15,
};

/* A graph in the making: names, scripts and edges. */
struct plan {
    exo_rng rng;
    uint32_t actors;
    struct {
        char name[8], script[512];
        uint32_t count;
    } actor[MAX_ACTORS];
    uint32_t edges;
    struct {
        uint32_t from, to, capacity;
        const char *more;
    } edge[MAX_EDGES];
    uint32_t group; /* an actor with a collective, and 1; 0: none */
    exo_stall_wait ring[MAX_RING];
    uint32_t length;
    char text[8192];
};

static uint32_t
draw(struct plan *p, uint32_t below)
{
    return exo_rng_below(&p->rng, below);
}

static void say(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void
say(char *text, size_t size, const char *format, ...)
{
    va_list values;
    size_t used = strlen(text);
    va_start(values, format);
    CHECK(vsnprintf(text + used, size - used, format, values) < (int)(size - used));
    va_end(values);
}

#define DO(plan, who, ...)                                                                                             \
    do {                                                                                                               \
        char *script_ = (plan)->actor[who].script;                                                                     \
        say(script_, sizeof(plan)->actor[who].script, "%s", *script_ ? "; " : "");                                     \
        say(script_, sizeof(plan)->actor[who].script, __VA_ARGS__);                                                    \
    } while (0)

static uint32_t
add_actor(struct plan *p, uint32_t count)
{
    uint32_t a = p->actors++;
    snprintf(p->actor[a].name, sizeof p->actor[a].name, "a%u", a);
    p->actor[a].count = count;
    return a;
}

/* Edge number e carries port pe. */
static uint32_t
add_edge(struct plan *p, uint32_t from, uint32_t to, const char *more)
{
    p->edge[p->edges].from = from;
    p->edge[p->edges].to = to;
    p->edge[p->edges].capacity = 1 + draw(p, 4);
    p->edge[p->edges].more = more;
    return p->edges++;
}

static void
write_graph(struct plan *p, const char *class, bool virtual_clock)
{
    static const char *const links[] = {"", ", bandwidth: 100 Mbit/s", ", bandwidth: 300 kbit/s"};
    size_t size = sizeof p->text;
    say(p->text, size, "clock: %s\n", virtual_clock ? "virtual" : "real");
    if (draw(p, 2))
        say(p->text, size, "links: {default: {latency: %u ms%s}}\n", virtual_clock ? draw(p, 2000) : draw(p, 10),
            links[draw(p, virtual_clock ? 3 : 2)]);
    say(p->text, size, "actors:\n");
    for (uint32_t a = 0; a < p->actors; a++)
        say(p->text, size, "  %s: {class: %s, count: %u, compute: {work: %u ms}, config: {script: '%s'}}\n",
            p->actor[a].name, class, p->actor[a].count, virtual_clock ? 1 + draw(p, 300) : draw(p, 3),
            p->actor[a].script);
    say(p->text, size, "edges:\n");
    for (uint32_t e = 0; e < p->edges; e++)
        say(p->text, size, "  - {from: %s, to: %s, carries: p%u, buffer: {capacity: %u}%s}\n",
            p->actor[p->edge[e].from].name, p->actor[p->edge[e].to].name, e, p->edge[e].capacity, p->edge[e].more);
    if (p->group)
        say(p->text, size, "  - {from: %s, to: %s, carries: g0}\n", p->actor[p->group - 1].name,
            p->actor[p->group - 1].name);
}

/* --- Running ------------------------------------------------------------------------------------------------------------------- */

struct seen {
    exo_stall_wait ring[2 * MAX_ACTORS];
    size_t length;
    int stalls;
};

static void
on_stall(void *context, const exo_stall *stall, exo_time at)
{
    struct seen *seen = context;
    (void)at;
    cr_assert_leq(stall->length, 2 * MAX_ACTORS);
    memcpy(seen->ring, stall->cycle, stall->length * sizeof *stall->cycle);
    seen->length = stall->length;
    seen->stalls++;
}

/* Criterion's own messages are short. */
static void
tell_if(bool wrong, const struct plan *p, const exo_err *err)
{
    if (wrong)
        fprintf(stderr, "%s\n%s", err->text, p->text);
}

static exo_status
run_plan(struct plan *p, bool virtual_clock, uint64_t seed, struct seen *seen, exo_err *err)
{
    exo_graph_spec *spec = NULL;
    exo_graph_result result;
    const exo_graph_run_opts opts = {.space = "stall", .tie_seed = seed + 1, .stalled = on_stall, .context = seen};
    script_register();
    write_graph(p, "script", virtual_clock);
    *seen = (struct seen){0};
    exo_status st = exo_graph_parse(&spec, "stall.yaml", p->text, NULL, err);
    tell_if(st != EXO_OK, p, err);
    cr_assert_eq(st, EXO_OK);
    st = exo_graph_run(spec, &opts, &result, err);
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
    return st;
}

/* --- Planted ------------------------------------------------------------------------------------------------------------------ */

static void
name_edge(const struct plan *p, uint32_t e, char out[EXO_WAIT_EDGE])
{
    snprintf(out, EXO_WAIT_EDGE, "%s>%s:p%u", p->actor[p->edge[e].from].name, p->actor[p->edge[e].to].name, e);
}

/* A ring of actors, each of which comes to wait for the next: in sending more than there is room for, in receiving what never comes, or in a
 * collective. Before that items go along all its edges, and beside it others wait for its actors, or go on for ever. */
static void
plant(struct plan *p)
{
    uint32_t length = 2 + draw(p, MAX_RING - 2), collective = draw(p, 2) ? draw(p, length) : length;
    uint32_t edge[MAX_RING] = {0};
    exo_wait_kind kind[MAX_RING] = {0};
    uint32_t who[MAX_RING]; /* the plan's actor of each place: both sides of a collective are one name */
    bool all_send = true;
    for (uint32_t i = 0; i < length; i++)
        kind[i] = draw(p, 2) ? EXO_WAIT_SEND : EXO_WAIT_RECEIVE;
    if (collective < length && length > 2) {
        kind[collective] = EXO_WAIT_COLLECTIVE;
        kind[(collective + length - 1) % length] = EXO_WAIT_SEND; /* to one of the two only */
    } else {
        collective = length;
    }
    for (uint32_t i = 0; i < length; i++)
        all_send = all_send && kind[i] != EXO_WAIT_RECEIVE;
    if (all_send) /* a circle of edges: those have room by the rule of feedback edges */
        kind[collective < length ? (collective + 1) % length : 0] = EXO_WAIT_RECEIVE;

    for (uint32_t i = 0; i < length; i++)
        who[i] = UINT32_MAX;
    if (collective < length) { /* its members are number 0 and 1 of a name */
        who[collective] = who[(collective + 1) % length] = add_actor(p, 2);
        p->group = who[collective] + 1;
    }
    for (uint32_t i = 0; i < length; i++)
        if (who[i] == UINT32_MAX)
            who[i] = add_actor(p, 1);
    char scripts[MAX_RING][512] = {{0}}; /* of each place */
    for (uint32_t i = 0; i < length; i++) {
        uint32_t next = (i + 1) % length;
        if (kind[i] == EXO_WAIT_COLLECTIVE)
            continue;
        bool sends = kind[i] == EXO_WAIT_SEND;
        edge[i] = sends ? add_edge(p, who[i], who[next], "") : add_edge(p, who[next], who[i], "");
        if (p->actor[p->edge[edge[i]].to].count == 2)
            p->edge[edge[i]].more = ", route: hash"; /* key 0 is the member's that waits in the collective */
    }
    /* In one order for all, so that it goes on: then the waits. */
    uint32_t rounds = draw(p, 4);
    for (uint32_t e = 0; rounds && e < length; e++) {
        if (kind[e] == EXO_WAIT_COLLECTIVE || p->actor[p->edge[edge[e]].to].count == 2)
            continue;
        bool sends = kind[e] == EXO_WAIT_SEND;
        uint32_t next = (e + 1) % length;
        say(scripts[sends ? e : next], 512, "%u send p%u; ", rounds > p->edge[edge[e]].capacity ? 1 : rounds, edge[e]);
        say(scripts[sends ? next : e], 512, "%u receive p%u; ", rounds > p->edge[edge[e]].capacity ? 1 : rounds,
            edge[e]);
    }
    for (uint32_t i = 0; i < length; i++) {
        if (kind[i] == EXO_WAIT_COLLECTIVE)
            say(scripts[i], 512, "reduce g0; ");
        else if (kind[i] == EXO_WAIT_SEND)
            say(scripts[i], 512, "%u send p%u; ", p->edge[edge[i]].capacity + 2, edge[i]);
        else
            say(scripts[i], 512, "receive p%u; ", edge[i]);
    }
    /* What would end the other one's wait comes only afterwards. */
    for (uint32_t i = 0; i < length; i++) {
        uint32_t before = (i + length - 1) % length;
        if (kind[before] == EXO_WAIT_COLLECTIVE)
            say(scripts[i], 512, "reduce g0");
        else
            say(scripts[i], 512, "%u %s p%u", kind[before] == EXO_WAIT_SEND ? p->edge[edge[before]].capacity + 2 : 1,
                kind[before] == EXO_WAIT_SEND ? "receive" : "send", edge[before]);
    }
    for (uint32_t i = 0; i < length; i++) {
        uint32_t first = collective < length && (i == (collective + 1) % length) ? collective : i;
        if (collective < length && who[i] == p->group - 1 && i != first)
            continue;
        snprintf(p->actor[who[i]].script, sizeof p->actor[who[i]].script, "%s", scripts[i]);
        if (collective < length && i == collective)
            say(p->actor[who[i]].script, sizeof p->actor[who[i]].script, "/%s", scripts[(i + 1) % length]);
    }
    /* What is to be found: actors by their numbers in the graph. */
    for (uint32_t i = 0; i < length; i++) {
        exo_stall_wait *w = &p->ring[i];
        w->kind = kind[i];
        w->actor = who[i] + (collective < length && (who[i] > p->group - 1 || i == (collective + 1) % length));
        if (kind[i] == EXO_WAIT_COLLECTIVE)
            snprintf(w->edge, sizeof w->edge, "%s>%s:g0", p->actor[who[i]].name, p->actor[who[i]].name);
        else
            name_edge(p, edge[i], w->edge);
    }
    for (uint32_t i = 0; i < length; i++)
        p->ring[i].peer = p->ring[(i + 1) % length].actor;
    p->length = length;
    /* Who waits for one of the ring, and who has nothing to do with it. */
    for (uint32_t v = draw(p, 3); v > 0; v--) {
        uint32_t at = who[draw(p, length)], victim = add_actor(p, 1);
        if (p->actor[at].count > 1 || draw(p, 2)) {
            uint32_t e = add_edge(p, at, victim, "");
            DO(p, victim, "receive p%u", e);
        } else {
            uint32_t e = add_edge(p, victim, at, "");
            DO(p, victim, "*send p%u", e);
        }
    }
    if (draw(p, 2)) {
        uint32_t a = add_actor(p, 1), b = add_actor(p, 1), e = add_edge(p, a, b, "");
        DO(p, a, "*send p%u", e);
        DO(p, b, "*receive p%u", e);
    }
}

static void
expect_planted(uint64_t seed, bool virtual_clock)
{
    static struct plan p;
    struct seen seen;
    exo_err err = {0};
    p = (struct plan){0};
    exo_rng_init(&p.rng, seed, EXO_RNG_USER, 1, 0);
    plant(&p);
    exo_status st = run_plan(&p, virtual_clock, seed, &seen, &err);
    tell_if(st != EXO_FAILED || seen.length != p.length, &p, &err);
    cr_assert_eq(st, EXO_FAILED, "seed %llu", (unsigned long long)seed);
    cr_assert_eq(seen.stalls, 1);
    cr_assert_eq(seen.length, p.length, "seed %llu: a cycle of %zu, not %u", (unsigned long long)seed, seen.length,
                 p.length);
    size_t shift = 0;
    while (shift < p.length && p.ring[shift].actor != seen.ring[0].actor)
        shift++;
    for (size_t i = 0; i < p.length; i++) {
        const exo_stall_wait *planted = &p.ring[(shift + i) % p.length], *found = &seen.ring[i];
        bool same = planted->actor == found->actor && planted->peer == found->peer && planted->kind == found->kind &&
                    strcmp(planted->edge, found->edge) == 0;
        tell_if(!same, &p, &err);
        cr_expect(same, "seed %llu: wait %zu is not the planted one, %u -> %u on %s", (unsigned long long)seed, i,
                  planted->actor, planted->peer, planted->edge);
        cr_expect_geq(found->waited, 0);
    }
    cr_expect(strncmp(err.text, "the graph stalls: a", 19) == 0, "%s", err.text);
}

Test(graph_stall, planted_cycles_are_named, .timeout = 250)
{
    for (uint64_t seed = 0; seed < 200; seed++)
        expect_planted(seed, true);
}

Test(graph_stall, planted_cycles_are_named_on_the_real_clock, .timeout = 250)
{
    for (uint64_t seed = 1000; seed < 1012; seed++)
        expect_planted(seed, false);
}

Test(graph_stall, a_stall_is_named_though_its_actors_do_not_end, .timeout = 60)
{
    exo_graph_spec *spec = NULL;
    exo_graph_result result;
    struct seen seen = {0};
    exo_err err = {0};
    const exo_graph_run_opts opts = {.space = "stall", .stalled = on_stall, .context = &seen, .grace = EXO_MS};
    script_register();
    cr_assert_eq(
        exo_graph_parse(&spec, "stall.yaml",
                        "actors: {a: {class: script, config: {script: '9 send p0; send p1'}},\n"
                        "  b: {class: script, config: {script: 'receive p1; 9 receive p0', lingers: 500 ms}}}\n"
                        "edges: [{from: a, to: b, carries: p0}, {from: a, to: b, carries: p1}]\n",
                        NULL, &err),
        EXO_OK, "%s", err.text);
    cr_assert_eq(exo_graph_run(spec, &opts, &result, &err), EXO_FAILED, "%s", err.text);
    cr_expect_eq(seen.stalls, 1);
    cr_expect(strncmp(err.text, "the graph stalls: a_0 waits to send on 'a>b:p0' to b_0", 54) == 0, "%s", err.text);
    cr_expect_not_null(strstr(err.text, "; b_0 has not ended since, for 0.001 s"), "%s", err.text);
    exo_graph_result_release(&result);
    exo_graph_spec_free(&spec);
}

/* --- Sound -------------------------------------------------------------------------------------------------------------------- */

/* Actors that use their edges, cycles of them included, in one order for all: nobody waits for ever, however long it takes. */
static void
sow(struct plan *p, bool virtual_clock)
{
    uint32_t actors = 2 + draw(p, 5), edges = 1 + draw(p, 10);
    for (uint32_t a = 0; a < actors; a++)
        add_actor(p, 1);
    if (draw(p, 2)) {
        p->actor[0].count = 2 + draw(p, 3);
        p->group = 1;
    }
    for (uint32_t e = 0; e < edges; e++) {
        uint32_t from = draw(p, actors), to = draw(p, actors);
        if (from == to)
            to = (to + 1) % actors;
        if (p->actor[from].count > 1) { /* from several to one the items could come in an order that is not sound */
            uint32_t several = from;
            from = to;
            to = several;
        }
        if (p->actor[to].count > 1)
            add_edge(p, from, to, ", route: broadcast");
        else
            add_edge(p, from, to, draw(p, 4) ? "" : virtual_clock ? ", delay: 700 ms" : ", delay: 250 ms");
    }
    for (uint32_t a = 0; a < actors; a++)
        DO(p, a, "%u (", virtual_clock ? 6 : 2);
    for (uint32_t e = 0; e < edges; e++) {
        uint32_t from = p->edge[e].from, to = p->edge[e].to, items = 1 + draw(p, p->edge[e].capacity);
        char *send = p->actor[from].script, *receive = p->actor[to].script;
        say(send, sizeof p->actor[from].script, "%s%u send p%u", send[strlen(send) - 1] == '(' ? "" : "; ", items, e);
        say(receive, sizeof p->actor[to].script, "%s%u receive p%u", receive[strlen(receive) - 1] == '(' ? "" : "; ",
            items * p->actor[from].count, e);
        if (p->group && draw(p, 3) == 0)
            say(p->actor[0].script, sizeof p->actor[0].script, "%sreduce g0",
                p->actor[0].script[strlen(p->actor[0].script) - 1] == '(' ? "" : "; ");
    }
    for (uint32_t a = 0; a < actors; a++) {
        char *script = p->actor[a].script;
        if (script[strlen(script) - 1] == '(') /* it has no edge */
            script[0] = 0;
        else
            say(script, sizeof p->actor[a].script, ")");
    }
}

static void
expect_sound(uint64_t seed, bool virtual_clock)
{
    static struct plan p;
    struct seen seen;
    exo_err err = {0};
    p = (struct plan){0};
    exo_rng_init(&p.rng, seed, EXO_RNG_USER, 2, 0);
    sow(&p, virtual_clock);
    for (uint32_t a = 0; a < p.actors; a++)
        if (!p.actor[a].script[0])
            DO(&p, a, "poll p15");
    exo_status st = run_plan(&p, virtual_clock, seed, &seen, &err);
    tell_if(st != EXO_OK, &p, &err);
    cr_assert_eq(st, EXO_OK, "seed %llu", (unsigned long long)seed);
    cr_assert_eq(seen.stalls, 0);
}

Test(graph_stall, nothing_is_said_of_sound_graphs, .timeout = 250)
{
    for (uint64_t seed = 0; seed < 200; seed++)
        expect_sound(seed, true);
}

Test(graph_stall, nothing_is_said_of_sound_graphs_on_the_real_clock, .timeout = 250)
{
    for (uint64_t seed = 1000; seed < 1012; seed++)
        expect_sound(seed, false);
}

/* --- Long waits --------------------------------------------------------------------------------------------------------------- */

/* A record with one end. */
struct small_record {
    exo_wait_record record;
    exo_wait_end end;
};

static const char two_hosts[] = "hosts: {x: {up: 20 Mbit/s}, y: {}}\n"
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
    struct small_record b = {.record = {.kind = EXO_WAIT_RECEIVE, .waited = 7 * EXO_SECOND, .num_ends = 1}, .end = in};
    a.end.peer = 1;
    a.end.output = true;
    b.end.awaited = true;
    snprintf(b.record.edge_name, sizeof b.record.edge_name, "%s", edge);
    const exo_payload records[] = {exo_payload_borrow(&a, sizeof a), exo_payload_borrow(&b, sizeof b)};
    script_register();
    cr_assert_eq(exo_graph_parse(&spec, "two", two_hosts, NULL, NULL), EXO_OK);
    cr_assert_eq(exo_stall_slow(spec, records, 2, EXO_SECOND, &wait, 1), 1);
    exo_graph_spec_free(&spec);
    return wait;
}

Test(graph_stall, only_what_is_on_a_link_is_a_wait_for_a_link)
{
    exo_slow_wait w = wait_of_b("a>b:p0", (exo_wait_end){.busy = true, .passing = true}, (exo_wait_end){0});
    cr_expect(w.link);
    cr_expect_str_eq(w.on, "x -> y (20 Mbit/s)");
    w = wait_of_b("a>b:p0", (exo_wait_end){.number = 1}, (exo_wait_end){.number = 1, .passing = true});
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

/* --- The check ---------------------------------------------------------------------------------------------------------------- */

/* What the check says of the same graph whose actors declare what they do. */
static exo_verdict
check_plan(struct plan *p)
{
    exo_graph_spec *spec = NULL;
    exo_proof proof = {0};
    exo_err err = {0};
    script_register();
    write_graph(p, "scripted", true);
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
    static struct plan p;
    unsigned stalls = 0, planted = 0, sound = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        p = (struct plan){0};
        exo_rng_init(&p.rng, seed, EXO_RNG_USER, 1, 0);
        plant(&p);
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
        p = (struct plan){0};
        exo_rng_init(&p.rng, seed, EXO_RNG_USER, 2, 0);
        sow(&p, true);
        for (uint32_t a = 0; a < p.actors; a++)
            if (!p.actor[a].script[0])
                DO(&p, a, "poll p15");
        exo_verdict verdict = check_plan(&p);
        tell_if(verdict == EXO_STALLS || verdict == EXO_CAN_STALL, &p, &(exo_err){0});
        cr_expect(verdict == EXO_SOUND || verdict == EXO_NOT_PROVEN, "seed %llu is sound", (unsigned long long)seed);
        sound += verdict == EXO_SOUND;
    }
    cr_expect_gt(sound, 100, "%u of 200 are proven", sound);
}
