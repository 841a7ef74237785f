/* Costs of edges in closed form. No state.
 *
 * A message of b bytes takes b 8 / rate and the latencies. The rates are that of the link between
 * each pair of hosts, and those of the hosts, which share them among their messages; the slowest
 * pair counts. The transport `tcp` adds 66 bytes of headers to each 1,448. Loss multiplies the rate
 * by 1 - loss. Schedules and slow start are left out; the link model (link.h) has them, and runs on
 * the virtual clock use it.
 *
 * An all_reduce among N members is a direct exchange in two halves: each member sends every other
 * member the part of that one's shard, and then its own shard to all. With `members` below N,
 * several groups exchange at once, and the remainder forms a smaller group; the slowest group
 * determines the time. */
#include "graph/plan.h"

#include <math.h>
#include <string.h>

#include <exogym/codec.h>
#include <exogym/memory.h>

#define SEGMENT 1448.0
#define HEADERS 66.0

static const double UNKNOWN = (double)NAN;

/* --- Sizes ------------------------------------------------------------------------------------ */

/* Bytes of `elements` encoded fp32 values. The number may be an expectation, so not an integer. */
static double
encoded_size(const exo_codec *codec, double elements, bool *at_most)
{
    size_t size = 0, count = (size_t)llround(elements);
    if (strcmp(exo_codec_text(codec), "raw") == 0)
        return 4 * elements;
    if (exo_codec_size(codec, count, &size))
        return (double)size;
    *at_most = true;
    return (double)exo_codec_bound(codec, count);
}

/* Bytes of all shards of `elements`, each encoded by itself; *largest: bytes of the largest
 * shard. */
static double
shards_size(const exo_codec *codec, double elements, uint32_t n, double *largest, bool *at_most)
{
    /* `more` shards have one element more */
    double whole = floor(elements / n), more = elements - whole * n;
    if (elements != floor(elements)) {
        *largest = encoded_size(codec, elements / n, at_most);
        return *largest * n;
    }
    double small = encoded_size(codec, whole, at_most);
    double large = more > 0 ? encoded_size(codec, whole + 1, at_most) : small;
    *largest = large;
    return more * large + (n - more) * small;
}

/* --- Times ------------------------------------------------------------------------------------ */

/* The groups of hosts that an actor name is on, and the most of its actors on one host. */
struct sites {
    bool *on; /* (num_host_groups) */
    uint32_t shared;
};

static exo_status
find_sites(const exo_graph_spec *spec, const exo_actor_spec *actor, struct sites *sites,
           exo_err *err)
{
    uint32_t *used = exo_calloc(spec->num_hosts, sizeof *used);
    sites->on = exo_calloc(spec->num_host_groups, sizeof *sites->on);
    sites->shared = 1;
    if (!used || !sites->on) {
        exo_free(used);
        return exo_fail(err, EXO_NOMEM, "%s: out of memory", spec->source);
    }
    for (uint32_t i = 0; i < actor->count; i++) {
        uint32_t host = actor->hosts[i];
        if (++used[host] > sites->shared)
            sites->shared = used[host];
        size_t g = 0;
        while (host - spec->host_groups[g].first >= spec->host_groups[g].count)
            g++;
        sites->on[g] = true;
    }
    exo_free(used);
    return EXO_OK;
}

/* Seconds of one message of `bytes` on a pair of hosts, while the sender's host sends `up` such
 * messages and the receiver's host receives `down`. */
static double
message_time(const exo_host_spec *from, const exo_host_spec *to, const exo_link_spec *link,
             double bytes, double up, double down)
{
    double wire = link->transport == EXO_LINK_TCP ? bytes + ceil(bytes / SEGMENT) * HEADERS : bytes;
    double bits = 8 * wire / (1 - link->loss);
    double sent = exo_link_sustained(from->up, from->queue);
    double slowest = fmax(bits / link->bandwidth, fmax(up * bits / sent, down * bits / to->down));
    return slowest + (double)(from->latency + link->latency + link->jitter / 2 + to->latency) /
                         (double)EXO_SECOND;
}

/* Seconds on the slowest pair of hosts. copies: simultaneous messages of one sender; load: of one
 * receiver. */
static double
slowest_pair(const exo_graph_spec *spec, const exo_edge_spec *edge, const struct sites *from,
             const struct sites *to, double bytes, double copies, double load)
{
    double worst = 0;
    for (size_t a = 0; a < spec->num_host_groups; a++) {
        for (size_t b = 0; b < spec->num_host_groups; b++) {
            const exo_host_group *ga = &spec->host_groups[a], *gb = &spec->host_groups[b];
            /* messages within one host take no time */
            if (!from->on[a] || !to->on[b] || (a == b && ga->count == 1))
                continue;
            uint32_t first = ga->first, last = gb->first + gb->count - 1;
            const exo_link_spec *link = edge->link >= 0 ? &spec->links[edge->link].spec
                                                        : exo_graph_link_between(spec, first, last);
            double time = message_time(&spec->hosts[first].spec, &spec->hosts[last].spec, link,
                                       bytes, copies * from->shared, load * to->shared);
            worst = fmax(worst, time);
        }
    }
    return worst;
}

/* --- Edges ------------------------------------------------------------------------------------ */

/* Plans `count` simultaneous all_reduces among n members each; returns the bytes that all members
 * send. */
static double
plan_islands(const exo_graph_spec *spec, const exo_codec *codec, const struct sites *sites,
             uint32_t count, uint32_t n, exo_plan_edge *p)
{
    double largest = 0, all = n ? shards_size(codec, p->item / 4, n, &largest, &p->at_most) : 0;
    if (n < 2 || count == 0)
        return 0;
    p->encoded = fmax(p->encoded, all);
    p->seconds =
        fmax(p->seconds, 2 * slowest_pair(spec, p->edge, sites, sites, largest, n - 1, n - 1));
    return count * 2.0 * (n - 1) * all;
}

static void
plan_collective(const exo_graph_spec *spec, const exo_codec *codec, const struct sites *sites,
                exo_plan_edge *p)
{
    const exo_edge_spec *edge = p->edge;
    uint32_t n = spec->actors[edge->from].count, most = edge->members;
    double largest = 0;
    p->encoded = shards_size(codec, p->item / 4, most, &largest, &p->at_most);
    p->seconds = 0;
    double sent = plan_islands(spec, codec, sites, n / most, most, p);
    sent += plan_islands(spec, codec, sites, 1, n % most, p);
    p->sent = sent / n;
}

static void
plan_items(const exo_graph_spec *spec, const exo_codec *codec, const struct sites *from,
           const struct sites *to, exo_plan_edge *p)
{
    const exo_edge_spec *edge = p->edge;
    p->encoded = encoded_size(codec, p->item / 4, &p->at_most);
    p->sent = p->targets * p->encoded;
    double load = fmax(1, (double)p->senders * p->targets / spec->actors[edge->to].count);
    p->seconds = slowest_pair(spec, edge, from, to, p->encoded, p->targets, load) +
                 (double)edge->delay / (double)EXO_SECOND;
}

/* Counts senders and targets, which need no size. */
static void
count_ends(const exo_graph_spec *spec, exo_plan_edge *p)
{
    const exo_edge_spec *edge = p->edge;
    p->senders = spec->actors[edge->from].count;
    p->targets = edge->route == EXO_ROUTE_BROADCAST ? exo_edge_targets(spec, edge, 0, NULL) : 1;
    if (edge->route == EXO_ROUTE_ALL_REDUCE)
        p->targets = edge->members;
    if (edge->route == EXO_ROUTE_MODULO && edge->idle_senders &&
        p->senders > spec->actors[edge->to].count)
        p->senders = spec->actors[edge->to].count;
    for (uint32_t i = 0; edge->route == EXO_ROUTE_LISTED && i < spec->actors[edge->from].count; i++)
        p->senders -= exo_edge_targets(spec, edge, i, NULL) == 0;
}

static exo_status
plan_edge(const exo_graph_spec *spec, const exo_edge_spec *edge, exo_plan_edge *p, exo_err *err)
{
    exo_codec *codec = NULL;
    struct sites from = {0}, to = {0};
    *p = (exo_plan_edge){.edge = edge,
                         .item = UNKNOWN,
                         .encoded = UNKNOWN,
                         .sent = UNKNOWN,
                         .per_step = UNKNOWN,
                         .seconds = UNKNOWN,
                         .seconds_per_step = UNKNOWN};
    count_ends(spec, p);
    if (!(edge->item > 0))
        return EXO_OK;
    p->item = edge->item;
    exo_status st = exo_codec_parse(&codec, edge->codec_text, err);
    if (st == EXO_OK)
        st = find_sites(spec, &spec->actors[edge->from], &from, err);
    if (st == EXO_OK)
        st = find_sites(spec, &spec->actors[edge->to], &to, err);
    if (st == EXO_OK && edge->route == EXO_ROUTE_ALL_REDUCE)
        plan_collective(spec, codec, &from, p);
    else if (st == EXO_OK)
        plan_items(spec, codec, &from, &to, p);
    double steps = (double)edge->interval * (double)edge->every;
    p->per_step = p->senders * p->sent / steps;
    p->seconds_per_step = p->seconds / steps;
    exo_free(from.on);
    exo_free(to.on);
    exo_codec_free(&codec);
    return st;
}

exo_status
exo_graph_plan(const exo_graph_spec *spec, exo_plan_edge *plan, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < spec->num_edges; i++)
        st = plan_edge(spec, &spec->edges[i], &plan[i], err);
    return st;
}

double
exo_plan_compute(const exo_graph_spec *spec, const exo_actor_spec *actor)
{
    double cost = 0, speed = (double)INFINITY;
    bool declared = false;
    for (size_t i = 0; i < actor->num_compute; i++) {
        if (actor->compute[i].cost < 0)
            continue;
        cost += (double)actor->compute[i].cost / (double)EXO_SECOND;
        declared = true;
    }
    for (uint32_t i = 0; i < actor->count; i++)
        speed = fmin(speed, spec->hosts[actor->hosts[i]].speed);
    return declared ? cost / speed : UNKNOWN;
}
