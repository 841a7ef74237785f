/* Islands: one strategy inside islands of nodes and another across all nodes, for links that are
 * fast inside a place and slow between places. An island is `island_size` consecutive ranks; the
 * remainder forms a smaller island. A step is
 *
 *     1. the step of `inside` (default: ddp) in the node's island, with the inner step
 *     2. the step of `across` (default: diloco) among all nodes, without an inner step
 *
 * With ddp inside, the nodes of an island stay equal to the bit, and act as one node with a larger
 * batch. `across` takes means over nodes, so an island counts by its size.
 *
 * `inside` communicates through node->inside if the host has such a group, else through
 * node->group. `across` communicates through node->group.
 *
 * Traffic of a node: that of `inside` among n nodes, plus that of `across` among N.
 */
#include "strategies/builtin.h"

#include <string.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "strategies/part.h"

struct islands {
    uint64_t size;
    exo_strategy_part inside, across;
    char *place;          /* the place of island_size in the config, for check; owned */
    uint32_t rank, count; /* the rank in this node's island; the nodes of the island */
    exo_group *island;    /* NULL until start */
    exo_meters *meters;   /* the scope of `inside` */
};

/* The members of the node that `inside` sees changed, as they are for `across`. */
struct seat {
    uint32_t rank, num_nodes;
    exo_group *group, *inside;
    exo_meters *meters;
};

/* --- Options ---------------------------------------------------------------------------------- */

/* Refuses parts that cannot share a step: `across` must begin with an inner step of its own, which
 * is left out, and the two edges must carry different things, by which they are told apart. */
static exo_status
check_parts(const struct islands *s, exo_config *config, exo_err *err)
{
    exo_strategy_edge inside[EXO_STRATEGY_MAX_EDGES], across[EXO_STRATEGY_MAX_EDGES];
    const exo_strategy_class *in = s->inside.strategy, *out = s->across.strategy;
    const char *key = exo_config_has(config, "across") ? "across" : "inside";
    const exo_config *node = exo_config_get(config, key);
    exo_status st = exo_part_check_alone(&s->across, config, key, err);
    if (st != EXO_OK)
        return st;
    size_t ins = exo_part_edges(&s->inside, NULL, 0, 1, 2, inside),
           outs = exo_part_edges(&s->across, NULL, 0, 1, 2, across);
    if (ins != 1 || outs != 1)
        return exo_config_fail(node, err,
                               "'%s' does not say what it sends, or sends more than one thing",
                               ins != 1 ? in->name : out->name);
    if (strcmp(inside[0].carries, across[0].carries) == 0)
        return exo_config_fail(node, err, "'%s' inside and '%s' across both send %s", in->name,
                               out->name, across[0].carries);
    return EXO_OK;
}

static exo_status
islands_init(void *self, exo_config *config, exo_err *err)
{
    struct islands *s = self;
    char place[EXO_ERR_TEXT] = "islands";
    const exo_config *size = exo_config_get(config, "island_size");
    exo_status st = exo_config_u64(config, "island_size", 2, 1, UINT32_MAX, &s->size, err);
    if (st == EXO_OK)
        st = exo_part_read(&s->inside, config, "inside", "ddp", err);
    if (st == EXO_OK)
        st = exo_part_read(&s->across, config, "across", "diloco", err);
    if (st == EXO_OK)
        st = check_parts(s, config, err);
    if (st != EXO_OK)
        return st;
    if (size)
        exo_config_where(size, place, sizeof place);
    s->place = exo_strdup(place);
    return s->place ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for the strategy 'islands'");
}

static exo_status
islands_check(const void *self, uint32_t num_nodes, exo_err *err)
{
    const struct islands *s = self;
    if (s->size > num_nodes)
        return exo_fail(err, EXO_INVAL,
                        "%.300s: island_size must be at most %u, the number of nodes, got %llu",
                        s->place, num_nodes, (unsigned long long)s->size);
    uint32_t rest = num_nodes % (uint32_t)s->size;
    exo_status st = exo_part_check(&s->inside, (uint32_t)s->size, err);
    if (st == EXO_OK && rest > 0)
        st = exo_part_check(&s->inside, rest, err);
    return st == EXO_OK ? exo_part_check(&s->across, num_nodes, err) : st;
}

static exo_status
islands_check_model(const void *self, const exo_model *model, exo_err *err)
{
    const struct islands *s = self;
    exo_status st = exo_part_check_model(&s->inside, model, err);
    return st == EXO_OK ? exo_part_check_model(&s->across, model, err) : st;
}

/* --- A node's island -------------------------------------------------------------------------- */

static struct seat
sit_inside(const struct islands *s, exo_node *node)
{
    const struct seat seat = {.rank = node->rank,
                              .num_nodes = node->num_nodes,
                              .group = node->group,
                              .inside = node->inside,
                              .meters = node->meters};
    node->rank = s->rank;
    node->num_nodes = s->count;
    node->group = s->island;
    node->inside = NULL;
    node->meters = s->meters;
    return seat;
}

static void
sit_back(exo_node *node, const struct seat *seat)
{
    node->rank = seat->rank;
    node->num_nodes = seat->num_nodes;
    node->group = seat->group;
    node->inside = seat->inside;
    node->meters = seat->meters;
}

static exo_status
open_island(struct islands *s, exo_node *node, exo_err *err)
{
    uint32_t size = (uint32_t)s->size, first = node->rank / size * size;
    s->count = node->num_nodes - first < size ? node->num_nodes - first : size;
    s->rank = node->rank - first;
    uint32_t *ranks = exo_calloc(s->count, sizeof *ranks);
    if (!ranks)
        return exo_fail(err, EXO_NOMEM, "no memory for an island of %u nodes", s->count);
    for (uint32_t i = 0; i < s->count; i++)
        ranks[i] = first + i;
    exo_status st = exo_group_among(&s->island, node->inside ? node->inside : node->group, ranks,
                                    s->count, err);
    exo_free(ranks);
    return st;
}

static exo_status
islands_start(void *self, exo_node *node, exo_err *err)
{
    struct islands *s = self;
    exo_status st = exo_meters_scope(&s->meters, node->meters, "inside", err);
    if (st == EXO_OK)
        st = open_island(s, node, err);
    if (st != EXO_OK)
        return st;
    const struct seat seat = sit_inside(s, node);
    st = exo_part_start(&s->inside, node, err);
    sit_back(node, &seat);
    return st == EXO_OK ? exo_part_start(&s->across, node, err) : st;
}

static exo_status
islands_step(void *self, exo_node *node, exo_err *err)
{
    struct islands *s = self;
    const struct seat seat = sit_inside(s, node);
    exo_status st = s->inside.strategy->step(s->inside.self, node, err);
    sit_back(node, &seat);
    if (st != EXO_OK)
        return st;
    node->stepped = true;
    return s->across.strategy->step(s->across.self, node, err);
}

static exo_status
islands_gradient_ready(void *self, exo_node *node, size_t first, size_t count, exo_err *err)
{
    struct islands *s = self;
    if (!s->inside.strategy->gradient_ready)
        return EXO_OK;
    const struct seat seat = sit_inside(s, node);
    exo_status st = s->inside.strategy->gradient_ready(s->inside.self, node, first, count, err);
    sit_back(node, &seat);
    return st;
}

/* --- State, end and edges --------------------------------------------------------------------- */

static void
islands_state(void *self, exo_state *state)
{
    const struct islands *s = self;
    exo_part_state(&s->inside, state);
    exo_part_state(&s->across, state);
}

static void
islands_leave(void *self)
{
    struct islands *s = self;
    exo_part_leave(&s->inside);
    exo_part_leave(&s->across);
    exo_group_close(&s->island);
}

static void
islands_release(void *self)
{
    struct islands *s = self;
    islands_leave(s);
    exo_part_release(&s->inside);
    exo_part_release(&s->across);
    exo_free(s->place);
}

static size_t
islands_edges(const void *self, const exo_param_info *infos, size_t num_infos, size_t numel,
              uint32_t num_nodes, exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES])
{
    const struct islands *s = self;
    exo_strategy_edge across[EXO_STRATEGY_MAX_EDGES];
    uint32_t size = s->size < num_nodes ? (uint32_t)s->size : num_nodes;
    exo_part_edges(&s->inside, infos, num_infos, numel, size, out);
    exo_part_edges(&s->across, infos, num_infos, numel, num_nodes, across);
    if (out[0].members == 0 && size < num_nodes)
        out[0].members = size;
    out[1] = across[0];
    return 2;
}

const exo_strategy_class exo_islands_class = {
    .name = "islands",
    .help = "one strategy inside islands of nodes, another across them; options island_size, "
            "inside, across",
    .state_size = sizeof(struct islands),
    .init = islands_init,
    .start = islands_start,
    .step = islands_step,
    .gradient_ready = islands_gradient_ready,
    .state = islands_state,
    .leave = islands_leave,
    .release = islands_release,
    .model_edges = islands_edges,
    .check = islands_check,
    .check_model = islands_check_model,
};
