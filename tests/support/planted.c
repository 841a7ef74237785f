/* Random graphs for tests of stalls: see planted.h. Read next: script.h. */
#include "support/planted.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "support/check.h"

static uint32_t
draw(planted_graph *p, uint32_t below)
{
    return exo_rng_below(&p->rng, below);
}

static void say(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void
say(char *text, size_t size, const char *format, ...)
{
    va_list values;
    size_t used = strlen(text);
    va_start(values, format);
    CHECK(vsnprintf(text + used, size - used, format, values) < (int)(size - used));
    va_end(values);
}

#define DO(plan, who, ...)                                                                         \
    do {                                                                                           \
        char *script_ = (plan)->actor[who].script;                                                 \
        say(script_, sizeof(plan)->actor[who].script, "%s", *script_ ? "; " : "");                 \
        say(script_, sizeof(plan)->actor[who].script, __VA_ARGS__);                                \
    } while (0)

static uint32_t
add_actor(planted_graph *p, uint32_t count)
{
    uint32_t a = p->actors++;
    snprintf(p->actor[a].name, sizeof p->actor[a].name, "a%u", a);
    p->actor[a].count = count;
    return a;
}

/* Adds an edge. Edge number e carries port pe. */
static uint32_t
add_edge(planted_graph *p, uint32_t from, uint32_t to, const char *more)
{
    p->edge[p->edges].from = from;
    p->edge[p->edges].to = to;
    p->edge[p->edges].capacity = 1 + draw(p, 4);
    p->edge[p->edges].more = more;
    return p->edges++;
}

void
planted_write(planted_graph *p, const char *class)
{
    static const char *const links[] = {"", ", bandwidth: 100 Mbit/s", ", bandwidth: 300 kbit/s"};
    size_t size = sizeof p->text;
    bool virtual_clock = p->place == PLANTED_VIRTUAL;
    p->text[0] = 0;
    say(p->text, size, "clock: %s\n", virtual_clock ? "virtual" : "real");
    if (draw(p, 2))
        say(p->text, size, "links: {default: {latency: %u ms%s}}\n",
            virtual_clock ? draw(p, 2000) : draw(p, 10), links[draw(p, virtual_clock ? 3 : 2)]);
    say(p->text, size, "actors:\n");
    for (uint32_t a = 0; a < p->actors; a++) {
        bool slow = p->place == PLANTED_FAR && draw(p, 8) == 0;
        say(p->text, size,
            "  %s: {class: %s, count: %u, compute: {work: %u ms}, config: {script: '%s'}}\n",
            p->actor[a].name, class, p->actor[a].count,
            slow            ? 300
            : virtual_clock ? 1 + draw(p, 300)
                            : draw(p, 3),
            p->actor[a].script);
    }
    say(p->text, size, "edges:\n");
    for (uint32_t e = 0; e < p->edges; e++)
        say(p->text, size, "  - {from: %s, to: %s, carries: p%u, buffer: {capacity: %u}%s}\n",
            p->actor[p->edge[e].from].name, p->actor[p->edge[e].to].name, e, p->edge[e].capacity,
            p->edge[e].more);
    if (p->group)
        say(p->text, size, "  - {from: %s, to: %s, carries: g0}\n", p->actor[p->group - 1].name,
            p->actor[p->group - 1].name);
}

static void
name_edge(const planted_graph *p, uint32_t e, char out[EXO_WAIT_EDGE])
{
    snprintf(out, EXO_WAIT_EDGE, "%s>%s:p%u", p->actor[p->edge[e].from].name,
             p->actor[p->edge[e].to].name, e);
}

void
planted_stall(planted_graph *p, uint64_t seed, planted_place place)
{
    *p = (planted_graph){.place = place};
    exo_rng_init(&p->rng, seed, EXO_RNG_USER, 1, 0);
    uint32_t length = 2 + draw(p, PLANTED_RING - 2),
             collective = draw(p, 2) ? draw(p, length) : length;
    uint32_t edge[PLANTED_RING] = {0};
    exo_wait_kind kind[PLANTED_RING] = {0};
    /* the actor at each position of the ring; both members of a collective have one name */
    uint32_t who[PLANTED_RING];
    bool all_send = true;
    for (uint32_t i = 0; i < length; i++)
        kind[i] = draw(p, 2) ? EXO_WAIT_SEND : EXO_WAIT_RECEIVE;
    if (collective < length && length > 2) {
        kind[collective] = EXO_WAIT_COLLECTIVE;
        /* to only one of the two members */
        kind[(collective + length - 1) % length] = EXO_WAIT_SEND;
    } else {
        collective = length;
    }
    for (uint32_t i = 0; i < length; i++)
        all_send = all_send && kind[i] != EXO_WAIT_RECEIVE;
    /* a cycle of edges has room by the rule of feedback edges, so one wait must be a receive */
    if (all_send)
        kind[collective < length ? (collective + 1) % length : 0] = EXO_WAIT_RECEIVE;

    for (uint32_t i = 0; i < length; i++)
        who[i] = UINT32_MAX;
    if (collective < length) { /* the members are numbers 0 and 1 of one name */
        who[collective] = who[(collective + 1) % length] = add_actor(p, 2);
        p->group = who[collective] + 1;
    }
    for (uint32_t i = 0; i < length; i++)
        if (who[i] == UINT32_MAX)
            who[i] = add_actor(p, 1);
    char scripts[PLANTED_RING][512] = {{0}}; /* of each position */
    for (uint32_t i = 0; i < length; i++) {
        uint32_t next = (i + 1) % length;
        if (kind[i] == EXO_WAIT_COLLECTIVE)
            continue;
        bool sends = kind[i] == EXO_WAIT_SEND;
        edge[i] = sends ? add_edge(p, who[i], who[next], "") : add_edge(p, who[next], who[i], "");
        /* key 0 routes to the member that waits in the collective */
        if (p->actor[p->edge[edge[i]].to].count == 2)
            p->edge[edge[i]].more = ", route: hash";
    }
    /* First, items may pass along the edges, in an order that cannot stall. Then come the waits. */
    uint32_t rounds = draw(p, 4);
    for (uint32_t e = 0; rounds && e < length; e++) {
        if (kind[e] == EXO_WAIT_COLLECTIVE || p->actor[p->edge[edge[e]].to].count == 2)
            continue;
        bool sends = kind[e] == EXO_WAIT_SEND;
        uint32_t next = (e + 1) % length;
        say(scripts[sends ? e : next], 512, "%u send p%u; ",
            rounds > p->edge[edge[e]].capacity ? 1 : rounds, edge[e]);
        say(scripts[sends ? next : e], 512, "%u receive p%u; ",
            rounds > p->edge[edge[e]].capacity ? 1 : rounds, edge[e]);
    }
    for (uint32_t i = 0; i < length; i++) {
        if (kind[i] == EXO_WAIT_COLLECTIVE)
            say(scripts[i], 512, "reduce g0; ");
        else if (kind[i] == EXO_WAIT_SEND)
            say(scripts[i], 512, "%u send p%u; ", p->edge[edge[i]].capacity + 2, edge[i]);
        else
            say(scripts[i], 512, "receive p%u; ", edge[i]);
    }
    /* The step that would end the previous actor's wait comes only after the actor's own wait. */
    for (uint32_t i = 0; i < length; i++) {
        uint32_t before = (i + length - 1) % length;
        if (kind[before] == EXO_WAIT_COLLECTIVE)
            say(scripts[i], 512, "reduce g0");
        else
            say(scripts[i], 512, "%u %s p%u",
                kind[before] == EXO_WAIT_SEND ? p->edge[edge[before]].capacity + 2 : 1,
                kind[before] == EXO_WAIT_SEND ? "receive" : "send", edge[before]);
    }
    for (uint32_t i = 0; i < length; i++) {
        uint32_t first = collective < length && (i == (collective + 1) % length) ? collective : i;
        if (collective < length && who[i] == p->group - 1 && i != first)
            continue;
        snprintf(p->actor[who[i]].script, sizeof p->actor[who[i]].script, "%s", scripts[i]);
        if (collective < length && i == collective)
            say(p->actor[who[i]].script, sizeof p->actor[who[i]].script, "/%s",
                scripts[(i + 1) % length]);
    }
    /* The expected cycle, with the actors' numbers in the graph. */
    for (uint32_t i = 0; i < length; i++) {
        exo_stall_wait *w = &p->ring[i];
        w->kind = kind[i];
        w->actor = who[i] + (collective < length &&
                             (who[i] > p->group - 1 || i == (collective + 1) % length));
        if (kind[i] == EXO_WAIT_COLLECTIVE)
            snprintf(w->edge, sizeof w->edge, "%s>%s:g0", p->actor[who[i]].name,
                     p->actor[who[i]].name);
        else
            name_edge(p, edge[i], w->edge);
    }
    for (uint32_t i = 0; i < length; i++)
        p->ring[i].peer = p->ring[(i + 1) % length].actor;
    p->length = length;
    /* Bystanders: actors that wait for one of the ring, and actors without a connection to it. */
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

void
planted_sound(planted_graph *p, uint64_t seed, planted_place place)
{
    bool virtual_clock = place == PLANTED_VIRTUAL;
    *p = (planted_graph){.place = place};
    exo_rng_init(&p->rng, seed, EXO_RNG_USER, 2, 0);
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
        /* with several senders, the items might arrive in an order that stalls */
        if (p->actor[from].count > 1) {
            uint32_t several = from;
            from = to;
            to = several;
        }
        if (p->actor[to].count > 1)
            add_edge(p, from, to, ", route: broadcast");
        else
            add_edge(p, from, to,
                     draw(p, 4)      ? ""
                     : virtual_clock ? ", delay: 700 ms"
                                     : ", delay: 250 ms");
    }
    for (uint32_t a = 0; a < actors; a++)
        DO(p, a, "%u (", virtual_clock ? 6 : 2);
    for (uint32_t e = 0; e < edges; e++) {
        uint32_t from = p->edge[e].from, to = p->edge[e].to,
                 items = 1 + draw(p, p->edge[e].capacity);
        char *send = p->actor[from].script, *receive = p->actor[to].script;
        say(send, sizeof p->actor[from].script, "%s%u send p%u",
            send[strlen(send) - 1] == '(' ? "" : "; ", items, e);
        say(receive, sizeof p->actor[to].script, "%s%u receive p%u",
            receive[strlen(receive) - 1] == '(' ? "" : "; ", items * p->actor[from].count, e);
        if (p->group && draw(p, 3) == 0)
            say(p->actor[0].script, sizeof p->actor[0].script, "%sreduce g0",
                p->actor[0].script[strlen(p->actor[0].script) - 1] == '(' ? "" : "; ");
    }
    for (uint32_t a = 0; a < actors; a++) {
        char *script = p->actor[a].script;
        if (script[strlen(script) - 1] == '(') /* the actor has no edge */
            snprintf(script, sizeof p->actor[a].script, "poll p15");
        else
            say(script, sizeof p->actor[a].script, ")");
    }
}

bool
planted_is_found(const planted_graph *p, const exo_stall_wait *found, size_t length, char *why,
                 size_t size)
{
    size_t shift = 0;
    if (length != p->length) {
        snprintf(why, size, "a cycle of %zu, not %u", length, p->length);
        return false;
    }
    while (shift < p->length && p->ring[shift].actor != found[0].actor)
        shift++;
    for (size_t i = 0; i < p->length; i++) {
        const exo_stall_wait *wanted = &p->ring[(shift + i) % p->length];
        if (wanted->actor == found[i].actor && wanted->peer == found[i].peer &&
            wanted->kind == found[i].kind && strcmp(wanted->edge, found[i].edge) == 0 &&
            found[i].waited >= 0)
            continue;
        snprintf(why, size, "wait %zu is not the planted one, %u -> %u on %s", i, wanted->actor,
                 wanted->peer, wanted->edge);
        return false;
    }
    return true;
}
