/* The choice of a way, the order of a ring and the islands: see ways.h. State: exo_comm_ways, which
 * does not change after its first call.
 *
 * The estimate of a call's time: the moves of a step begin together, and the next step when all have
 * arrived. A move takes the latency of its link, and its bytes at the least of the rates of the
 * link, the sender's uplink and the receiver's downlink; a member's moves of one step share these
 * two. Unless the links are emulated, each message also takes its sender's and its receiver's
 * processor for a while. */
#include "comm/ways.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include <exogym/memory.h>

#include "comm/timing.h"

/* A local network that declares nothing: 10 Gbit/s, 20 us, and what a message takes of a
 * processor, measured over tcp on the loopback interface. */
#define LOCAL_RATE    1e10
#define LOCAL_LATENCY 20e-6
#define MESSAGE_COST  15e-6
/* the largest gathering of a tree's reduction, in bytes: of all members on one */
#define MOST_GATHERED ((size_t)16 << 20)
/* Members are in one island if their link is this much better than the worst one, on a scale of
 * factors from the best (0) to the worst (1); there are islands if the factor is 4 or more. */
#define ISLAND_MIDDLE 0.5
#define ISLAND_FACTOR 4.0
/* Measured figures differ each time. Members stay in the order of their ranks around a ring, unless
 * another order is this much better; there are islands if the factor is that large. */
#define MEASURED_GAIN   1.5
#define MEASURED_FACTOR 10.0
/* of the message by which links are compared */
#define TYPICAL_BITS 8e6

static const char *const names[] = {
    [EXO_WAY_DIRECT] = "direct",
    [EXO_WAY_TREE] = "tree",
    [EXO_WAY_RING] = "ring",
    [EXO_WAY_HALVING] = "halving",
    [EXO_WAY_HIERARCHICAL] = "hierarchical",
    [EXO_WAY_AUTO] = "auto",
};

exo_status
exo_way_parse(const char *name, exo_way *out, exo_err *err)
{
    *out = EXO_WAY_DIRECT;
    for (int w = EXO_WAY_DIRECT; name && w <= EXO_WAY_AUTO; w++)
        if (strcmp(names[w], name) == 0) {
            *out = (exo_way)w;
            return EXO_OK;
        }
    return name ? exo_fail(err, EXO_INVAL,
                           "collectives go direct, tree, ring, halving, hierarchical or auto, "
                           "not '%s'",
                           name)
                : EXO_OK;
}

const char *
exo_way_name(exo_way way)
{
    return names[way];
}

/* --- Links ------------------------------------------------------------------------------------ */

static exo_link_speed
speed_of(const exo_comm_ways *w, uint32_t from, uint32_t to)
{
    return w->speeds ? w->speeds[from * w->size + to]
                     : (exo_link_speed){LOCAL_RATE, LOCAL_RATE, LOCAL_RATE, LOCAL_LATENCY};
}

/* The time of a message of TYPICAL_BITS in the slower direction, in s. */
static double
distance(const exo_comm_ways *w, uint32_t a, uint32_t b)
{
    double longest = 0;
    for (int back = 0; back < 2; back++) {
        const exo_link_speed s = back ? speed_of(w, b, a) : speed_of(w, a, b);
        double rate = fmin(s.between, fmin(s.up, s.down));
        longest = fmax(longest, s.latency + TYPICAL_BITS / rate);
    }
    return longest;
}

/* The worst link and the sum of all along a ring, as one figure to be small: the steps of a ring
 * take as long as its worst link. */
static double
length_of(const exo_comm_ways *w, const uint32_t *order)
{
    double worst = 0, sum = 0;
    for (uint32_t i = 0; i < w->size; i++) {
        double d = distance(w, order[i], order[(i + 1) % w->size]);
        worst = fmax(worst, d);
        sum += d;
    }
    return worst + 1e-3 * sum / w->size;
}

static void
reverse(uint32_t *order, uint32_t first, uint32_t last)
{
    for (; first < last; first++, last--) {
        uint32_t kept = order[first];
        order[first] = order[last];
        order[last] = kept;
    }
}

/* Orders the ring: the nearest neighbour at each place, then reversals of stretches as long as one
 * makes the ring shorter (2-opt). Equal links keep the order of ranks. */
static void
order_ring(exo_comm_ways *w)
{
    uint32_t *order = w->order;
    for (uint32_t i = 0; i < w->size; i++)
        order[i] = i;
    if (!w->speeds || w->size > EXO_WAYS_MEMBERS)
        return;
    for (uint32_t i = 1; i + 1 < w->size; i++) {
        uint32_t best = i;
        for (uint32_t k = i + 1; k < w->size; k++)
            if (distance(w, order[i - 1], order[k]) < distance(w, order[i - 1], order[best]))
                best = k;
        uint32_t next = order[best];
        memmove(order + i + 1, order + i, (best - i) * sizeof *order);
        order[i] = next;
    }
    double length = length_of(w, order);
    for (bool better = true; better;) {
        better = false;
        for (uint32_t i = 1; i < w->size; i++)
            for (uint32_t k = i + 1; k < w->size; k++) {
                reverse(order, i, k);
                double now = length_of(w, order);
                better = better || now < length;
                if (now < length)
                    length = now;
                else
                    reverse(order, i, k);
            }
    }
}

static void
keep_ranks(exo_comm_ways *w)
{
    double length = length_of(w, w->order);
    uint32_t ranks[EXO_WAYS_MEMBERS];
    for (uint32_t i = 0; i < w->size; i++)
        ranks[i] = i;
    if (length_of(w, ranks) < MEASURED_GAIN * length)
        memcpy(w->order, ranks, w->size * sizeof *ranks);
}

/* Joins the two islands whose members are the nearest to each other, each to each, as long as they
 * are within the limit. */
static void
join_islands(exo_comm_ways *w, double limit)
{
    double farthest[EXO_WAYS_MEMBERS][EXO_WAYS_MEMBERS]; /* between members of two islands */
    for (uint32_t a = 0; a < w->size; a++) {
        w->islands[a] = a;
        for (uint32_t b = 0; b < w->size; b++)
            farthest[a][b] = distance(w, a, b);
    }
    for (;;) {
        uint32_t from = 0, to = 0;
        for (uint32_t a = 0; a < w->size; a++)
            for (uint32_t b = 0; b < a && w->islands[a] == a; b++)
                if (w->islands[b] == b && (from == to || farthest[a][b] < farthest[from][to])) {
                    from = a;
                    to = b;
                }
        if (from == to || farthest[from][to] > limit)
            return;
        for (uint32_t c = 0; c < w->size; c++) {
            w->islands[c] = w->islands[c] == from ? to : w->islands[c];
            farthest[to][c] = farthest[c][to] = fmax(farthest[to][c], farthest[from][c]);
        }
    }
}

/* Islands: members with fast links to all others of the island. If the best and the worst link do
 * not differ by the factor, all members are in one. */
static void
find_islands(exo_comm_ways *w, double factor)
{
    double best = DBL_MAX, worst = 0;
    if (!w->speeds || w->size > EXO_WAYS_MEMBERS)
        return; /* all 0 */
    for (uint32_t a = 0; a < w->size; a++)
        for (uint32_t b = 0; b < a; b++) {
            best = fmin(best, distance(w, a, b));
            worst = fmax(worst, distance(w, a, b));
        }
    best = fmax(best, worst * 1e-6); /* members on one host */
    if (worst >= factor * best)
        join_islands(w, best * pow(worst / best, ISLAND_MIDDLE));
}

exo_status
exo_comm_ways_new(exo_comm_ways **out, exo_way way, bool equal_bits, uint32_t size,
                  exo_links *links, const uint32_t *hosts, exo_err *err)
{
    exo_comm_ways *w = exo_calloc(1, sizeof *w);
    *out = w;
    if (w) {
        *w = (exo_comm_ways){.way = way, .equal_bits = equal_bits, .size = size};
        w->cost = links ? 0 : MESSAGE_COST;
        w->order = exo_calloc(size, sizeof *w->order);
        w->islands = exo_calloc(size, sizeof *w->islands);
        if (links && size <= EXO_WAYS_MEMBERS)
            w->speeds = exo_calloc((size_t)size * size, sizeof *w->speeds);
    }
    if (!w || !w->order || !w->islands || (links && size <= EXO_WAYS_MEMBERS && !w->speeds)) {
        exo_comm_ways_free(out);
        return exo_fail(err, EXO_NOMEM, "no memory for a communicator of %u", size);
    }
    for (uint32_t a = 0; w->speeds && a < size; a++)
        for (uint32_t b = 0; b < size; b++)
            w->speeds[a * size + b] = exo_links_speed(links, hosts[a], hosts[b]);
    order_ring(w);
    find_islands(w, ISLAND_FACTOR);
    return EXO_OK;
}

exo_status
exo_comm_ways_measured(exo_comm_ways *w, const exo_link_figure *figures, exo_err *err)
{
    const uint32_t size = w->size;
    if (size > EXO_WAYS_MEMBERS)
        return exo_fail(err, EXO_UNSUPPORTED, "measured links are for at most %d members, not %u",
                        EXO_WAYS_MEMBERS, size);
    double up[EXO_WAYS_MEMBERS] = {0}, down[EXO_WAYS_MEMBERS] = {0};
    if (!w->speeds && !(w->speeds = exo_calloc((size_t)size * size, sizeof *w->speeds)))
        return exo_fail(err, EXO_NOMEM, "no memory for a communicator of %u", size);
    for (uint32_t a = 0; a < size; a++)
        for (uint32_t b = 0; b < size; b++)
            if (a != b) {
                up[a] = fmax(up[a], figures[a * size + b].rate);
                down[b] = fmax(down[b], figures[a * size + b].rate);
            }
    for (uint32_t a = 0; a < size; a++)
        for (uint32_t b = 0; b < size; b++) {
            const exo_link_figure *f = &figures[a * size + b];
            w->speeds[a * size + b] = a == b
                                          ? (exo_link_speed){INFINITY, INFINITY, INFINITY, 0}
                                          : (exo_link_speed){up[a], f->rate, down[b], f->latency};
        }
    memset(w->islands, 0, size * sizeof *w->islands);
    order_ring(w);
    keep_ranks(w);
    find_islands(w, MEASURED_FACTOR);
    return EXO_OK;
}

void
exo_comm_ways_free(exo_comm_ways **ways)
{
    exo_comm_ways *w = *ways;
    *ways = NULL;
    if (!w)
        return;
    exo_free(w->speeds);
    exo_free(w->order);
    exo_free(w->islands);
    exo_free(w);
}

/* --- The estimate ----------------------------------------------------------------------------- */

struct estimate {
    const exo_comm_ways *ways;
    const exo_collective_args *args;
    uint32_t step;
    double total, longest;                               /* of the steps before; of this one */
    double up[EXO_WAYS_MEMBERS], down[EXO_WAYS_MEMBERS]; /* of this step, in s */
};

static void
add_move(void *context, const exo_comm_move *m)
{
    struct estimate *e = context;
    const exo_collective_args *args = e->args;
    if (m->step != e->step) {
        e->total += e->longest;
        e->longest = 0;
        memset(e->up, 0, sizeof e->up);
        memset(e->down, 0, sizeof e->down);
        e->step = m->step;
    }
    const exo_link_speed s = speed_of(e->ways, args->ranks ? args->ranks[m->from] : m->from,
                                      args->ranks ? args->ranks[m->to] : m->to);
    double bits = 8.0 * (double)(m->length * exo_dtype_size(args->dtype) + EXO_COMM_HEADER +
                                 EXO_COMM_ENVELOPE);
    e->up[m->from] += bits / s.up + e->ways->cost;
    e->down[m->to] += bits / s.down + e->ways->cost;
    double passes = fmax(bits / s.between, fmax(e->up[m->from], e->down[m->to]));
    e->longest = fmax(e->longest, s.latency + passes);
}

double
exo_comm_ways_estimate(const exo_comm_ways *w, const exo_collective_args *args, exo_way way)
{
    struct estimate e = {.ways = w};
    exo_collective_args as = *args;
    as.way = way;
    as.ways = w;
    e.args = &as;
    exo_comm_moves(&as, add_move, &e);
    return e.total + e.longest;
}

/* --- The choice ------------------------------------------------------------------------------- */

/* Whether the members of a call are in several islands, one of which has several members. */
static bool
has_islands(const exo_comm_ways *w, const exo_collective_args *args)
{
    uint32_t leaders = 0;
    for (uint32_t p = 0; p < args->size; p++) {
        uint32_t first = 0;
        while (w->islands[args->ranks ? args->ranks[first] : first] !=
               w->islands[args->ranks ? args->ranks[p] : p])
            first++;
        leaders += first == p;
    }
    return leaders > 1 && leaders < args->size;
}

/* Whether a way has the operation. Codecs and half types go directly: each hop would round again. */
static bool
is_possible(const exo_comm_ways *w, const exo_collective_args *args, exo_way way)
{
    exo_collective o = args->operation;
    bool reduces = o == EXO_ALL_REDUCE || o == EXO_REDUCE_SCATTER;
    bool half = args->dtype == EXO_BF16 || args->dtype == EXO_F16;
    if (args->size < 2 || args->size > EXO_WAYS_MEMBERS || args->codec || o == EXO_ALL_TO_ALL ||
        o == EXO_SWAP || o == EXO_SHIFT)
        return way == EXO_WAY_DIRECT;
    switch (way) {
    case EXO_WAY_TREE:
        return !reduces || args->count <= MOST_GATHERED / exo_dtype_size(args->dtype) / args->size;
    case EXO_WAY_RING:
        return o == EXO_ALL_GATHER || (reduces && !half);
    case EXO_WAY_HALVING:
        return o == EXO_ALL_REDUCE && !half;
    case EXO_WAY_HIERARCHICAL:
        return o == EXO_ALL_REDUCE && !half && has_islands(w, args);
    default:
        return true;
    }
}

exo_way
exo_comm_ways_choose(const exo_comm_ways *w, const exo_collective_args *args)
{
    if (!w)
        return EXO_WAY_DIRECT;
    if (w->way != EXO_WAY_AUTO)
        return is_possible(w, args, w->way) ? w->way : EXO_WAY_DIRECT;
    exo_way best = EXO_WAY_DIRECT;
    double least = 0;
    for (int way = EXO_WAY_DIRECT; way < EXO_WAY_AUTO; way++) {
        exo_collective_args as = *args;
        as.way = (uint32_t)way;
        if (!is_possible(w, args, (exo_way)way) ||
            (w->equal_bits && exo_comm_ways_reorders(&as) && args->dtype == EXO_F32))
            continue;
        double time = exo_comm_ways_estimate(w, args, (exo_way)way);
        if (way == EXO_WAY_DIRECT || time < 0.999 * least) {
            best = (exo_way)way;
            least = time;
        }
    }
    return best;
}
