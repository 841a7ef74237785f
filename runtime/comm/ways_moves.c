/* The moves of each way: see ways.h. No state.
 *
 * Sources: ring and recursive halving and doubling, Thakur, Rabenseifner and Gropp, "Optimization of
 * collective communication operations in MPICH", 2005; doubling for any number of members, Bruck et
 * al., "Efficient algorithms for all-to-all communications", 1997. */
#include "comm/ways.h"

struct list {
    const exo_collective_args *args;
    exo_comm_visit *visit;
    void *context;
    uint32_t step, number;
};

static uint32_t
rank_at(const exo_collective_args *args, uint32_t place)
{
    return args->ranks ? args->ranks[place] : place;
}

static bool
is_reduction(const exo_collective_args *args)
{
    return args->operation == EXO_ALL_REDUCE || args->operation == EXO_REDUCE_SCATTER;
}

static void
move(struct list *l, uint32_t from, uint32_t to, size_t first, size_t length, bool adds)
{
    const exo_comm_move m = {.step = l->step,
                             .number = l->number++,
                             .from = from,
                             .to = to,
                             .first = first,
                             .length = length,
                             .adds = adds};
    l->visit(l->context, &m);
}

static void
move_shard(struct list *l, uint32_t from, uint32_t to, uint32_t parts, uint32_t part, bool adds)
{
    size_t first, length;
    exo_shard(l->args->count, parts, part, &first, &length);
    move(l, from, to, first, length, adds);
}

/* --- Direct ----------------------------------------------------------------------------------- */

static void
direct(struct list *l)
{
    uint32_t size = l->args->size;
    bool reduces = is_reduction(l->args);
    for (uint32_t i = 0; reduces && i < size; i++)
        for (uint32_t k = 1; k < size; k++)
            move_shard(l, i, (i + k) % size, size, (i + k) % size, true);
    l->step += reduces;
    if (l->args->operation == EXO_BROADCAST) {
        for (uint32_t k = 1; k < size; k++)
            move(l, l->args->root, (l->args->root + k) % size, 0, l->args->count, false);
        l->step++;
        for (uint32_t k = 1; k < size; k++)
            move(l, (l->args->root + k) % size, l->args->root, 0, 0, false);
    } else if (l->args->operation != EXO_REDUCE_SCATTER) {
        for (uint32_t i = 0; i < size; i++)
            for (uint32_t k = 1; k < size; k++)
                move_shard(l, i, (i + k) % size, size, i, false);
    }
}

/* --- Tree ------------------------------------------------------------------------------------- */

/* The data of the members from `place` on, before `end`; of a reduction the member's whole data. */
static void
move_members(struct list *l, uint32_t from, uint32_t to, uint32_t place, uint32_t end)
{
    size_t first, last, length;
    if (place >= end)
        return;
    exo_shard(l->args->count, l->args->size, place, &first, &length);
    exo_shard(l->args->count, l->args->size, end - 1, &last, &length);
    if (is_reduction(l->args))
        move(l, from, to, place * l->args->count, (end - place) * l->args->count, false);
    else
        move(l, from, to, first, last + length - first, false);
}

/* Before a step of distance d each member has the data of d members, from its own on; it gets those
 * that follow from the member at that distance. */
static void
gather_by_doubling(struct list *l)
{
    uint32_t size = l->args->size;
    for (uint32_t d = 1; d < size; d *= 2, l->step++)
        for (uint32_t i = 0; i < size; i++) {
            uint32_t to = (i + size - d) % size, end = i + (d < size - d ? d : size - d);
            move_members(l, i, to, i, end < size ? end : size);
            move_members(l, i, to, 0, end < size ? 0 : end - size);
        }
}

static void
pass_down(struct list *l)
{
    uint32_t size = l->args->size, root = l->args->root, top = 1;
    while (2 * top < size)
        top *= 2;
    for (uint32_t d = top; d > 0; d /= 2, l->step++)
        for (uint32_t v = 0; v + d < size; v += 2 * d)
            move(l, (root + v) % size, (root + v + d) % size, 0, l->args->count, false);
    for (uint32_t d = 1; d <= top; d *= 2, l->step++) /* confirms, so that nobody runs ahead */
        for (uint32_t v = 0; v + d < size; v += 2 * d)
            move(l, (root + v + d) % size, (root + v) % size, 0, 0, false);
}

/* --- Ring ------------------------------------------------------------------------------------- */

/* The places of the call's members around the ring. */
static void
ring_of(const exo_collective_args *args, uint32_t around[EXO_WAYS_MEMBERS])
{
    const uint32_t *order = args->ways ? args->ways->order : NULL;
    uint32_t found = 0;
    for (uint32_t i = 0; found < args->size; i++) {
        uint32_t rank = order ? order[i] : i;
        for (uint32_t p = 0; p < args->size; p++)
            if (rank_at(args, p) == rank)
                around[found++] = p;
    }
}

/* A shard begins at the member after its owner and is complete when it comes to its owner; then it
 * goes around once more. */
static void
ring(struct list *l)
{
    uint32_t around[EXO_WAYS_MEMBERS], size = l->args->size;
    ring_of(l->args, around);
    for (uint32_t s = 0; is_reduction(l->args) && s + 1 < size; s++, l->step++)
        for (uint32_t i = 0; i < size; i++)
            move_shard(l, around[i], around[(i + 1) % size], size,
                       around[(i + 2 * size - s - 1) % size], true);
    for (uint32_t s = 0; l->args->operation != EXO_REDUCE_SCATTER && s + 1 < size; s++, l->step++)
        for (uint32_t i = 0; i < size; i++)
            move_shard(l, around[i], around[(i + 1) % size], size, around[(i + size - s) % size],
                       false);
}

/* --- Halving ---------------------------------------------------------------------------------- */

/* The elements of the shards [part, part + parts) of `all`. */
static void
move_shards(struct list *l, uint32_t from, uint32_t to, uint32_t all, uint32_t part, uint32_t parts,
            bool adds)
{
    size_t first, last, length;
    exo_shard(l->args->count, all, part, &first, &length);
    exo_shard(l->args->count, all, part + parts - 1, &last, &length);
    move(l, from, to, first, last + length - first, adds);
}

/* With 2^k + e members, of the first 2 e each odd one gives its data to the one before it, and gets
 * the result from it at the end. */
static void
halving(struct list *l)
{
    uint32_t size = l->args->size, core = 1, place[EXO_WAYS_MEMBERS];
    while (2 * core <= size)
        core *= 2;
    uint32_t more = size - core;
    for (uint32_t i = 0; i < core; i++)
        place[i] = i < more ? 2 * i : i + more;
    for (uint32_t i = 0; i < more; i++)
        move(l, 2 * i + 1, 2 * i, 0, l->args->count, true);
    l->step++;
    for (uint32_t d = core / 2; d > 0; d /= 2, l->step++)
        for (uint32_t i = 0; i < core; i++)
            move_shards(l, place[i], place[i ^ d], core, (i ^ d) / d * d, d, true);
    for (uint32_t d = 1; d < core; d *= 2, l->step++)
        for (uint32_t i = 0; i < core; i++)
            move_shards(l, place[i], place[i ^ d], core, i / d * d, d, false);
    for (uint32_t i = 0; i < more; i++)
        move(l, 2 * i, 2 * i + 1, 0, l->args->count, false);
}

/* --- Hierarchical ----------------------------------------------------------------------------- */

/* The first member of the island of the member at `place`. */
static uint32_t
leader_of(const exo_collective_args *args, uint32_t place)
{
    const uint32_t *islands = args->ways->islands;
    uint32_t first = 0;
    while (islands[rank_at(args, first)] != islands[rank_at(args, place)])
        first++;
    return first;
}

static void
hierarchical(struct list *l)
{
    const exo_collective_args *args = l->args;
    uint32_t leaders[EXO_WAYS_MEMBERS], num = 0;
    for (uint32_t p = 0; p < args->size; p++) {
        uint32_t leader = leader_of(args, p);
        if (leader == p)
            leaders[num++] = p;
        else
            move(l, p, leader, 0, args->count, true);
    }
    l->step++;
    for (uint32_t i = 0; i < num; i++)
        for (uint32_t k = 1; k < num; k++)
            move_shard(l, leaders[i], leaders[(i + k) % num], num, (i + k) % num, true);
    l->step++;
    for (uint32_t i = 0; i < num; i++)
        for (uint32_t k = 1; k < num; k++)
            move_shard(l, leaders[i], leaders[(i + k) % num], num, i, false);
    l->step++;
    for (uint32_t p = 0; p < args->size; p++)
        if (leader_of(args, p) != p)
            move(l, leader_of(args, p), p, 0, args->count, false);
}

void
exo_comm_moves(const exo_collective_args *args, exo_comm_visit *visit, void *context)
{
    struct list l = {.args = args, .visit = visit, .context = context};
    switch ((exo_way)args->way) {
    case EXO_WAY_TREE:
        if (args->operation == EXO_BROADCAST)
            pass_down(&l);
        else
            gather_by_doubling(&l);
        break;
    case EXO_WAY_RING:
        ring(&l);
        break;
    case EXO_WAY_HALVING:
        halving(&l);
        break;
    case EXO_WAY_HIERARCHICAL:
        hierarchical(&l);
        break;
    default:
        direct(&l);
    }
}

bool
exo_comm_ways_reorders(const exo_collective_args *args)
{
    return is_reduction(args) && args->way != EXO_WAY_DIRECT && args->way != EXO_WAY_TREE;
}
