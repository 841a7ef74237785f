/* Compositions: the functions of a class whose step is the inner step and then a list of exchanges.
 * State: exo_composition, owned by the node's compute lane. Read next: exchange.c. */
#include "strategies/exchange.h"

#include <assert.h>
#include <stdio.h>

exo_param_exchange *
exo_composition_add(exo_composition *c, const char *name, bool scoped)
{
    assert(c->count < EXO_STRATEGY_MAX_EDGES);
    exo_param_exchange *e = &c->each[c->count++];
    snprintf(e->name, sizeof e->name, "%s", name);
    e->scoped = scoped;
    e->rounds.interval = 1;
    return e;
}

exo_status
exo_composition_check(const void *self, uint32_t num_nodes, exo_err *err)
{
    const exo_composition *c = self;
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < c->count; i++)
        st = exo_param_exchange_check(&c->each[i], num_nodes, err);
    return st;
}

exo_status
exo_composition_check_model(const void *self, const exo_model *model, exo_err *err)
{
    const exo_composition *c = self;
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < c->count; i++)
        st = exo_fragments_check(&c->each[i], exo_model_num_units(model), err);
    return st;
}

/* The first exchange draws with the run's seed, and the others each with another one, so that two
 * exchanges of one composition do not draw the same. */
exo_status
exo_composition_start(void *self, exo_node *node, exo_err *err)
{
    exo_composition *c = self;
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < c->count; i++)
        st = exo_param_exchange_start(&c->each[i], node,
                                      node->seed + i * UINT64_C(0x9E3779B97F4A7C15), err);
    return st;
}

exo_status
exo_composition_exchange(exo_composition *c, exo_node *node, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < c->count; i++)
        st = exo_param_exchange_run(&c->each[i], node, err);
    return st;
}

/* Whether rules and outer steps look at each element by itself. */
static bool
is_by_element(const exo_param_exchange *e)
{
    const exo_aggregate rule = e->aggregation.rule;
    const bool by_element = rule == EXO_AGGREGATE_MEAN || rule == EXO_AGGREGATE_TRIMMED_MEAN ||
                            rule == EXO_AGGREGATE_MEDIAN;
    return by_element && e->outer_spec.kind != EXO_MUON;
}

/* Selectors draw among the elements of the whole model, and fragments have its units, so that both are
 * the same whatever part of it a node has. The scale of an encoding is that of values in the part. */
bool
exo_composition_is_elementwise(const void *self)
{
    const exo_composition *c = self;
    for (size_t i = 0; i < c->count; i++)
        if (!is_by_element(&c->each[i]) || c->each[i].codec)
            return false;
    return true;
}

bool
exo_composition_is_by_parts(const void *self)
{
    const exo_composition *c = self;
    for (size_t i = 0; i < c->count; i++)
        if (!is_by_element(&c->each[i]))
            return false;
    return true;
}

/* Fragments have their values one after another, and a selector's values in flight are packed. */
bool
exo_composition_is_ordered(const void *self)
{
    const exo_composition *c = self;
    bool ordered = true;
    for (size_t i = 0; i < c->count; i++)
        ordered =
            ordered && c->each[i].fragments < 2 && !(c->each[i].selects && c->each[i].delay > 0);
    return ordered;
}

/* Rounds in the background outlive a step, and rules for wrong values have state of their own for
 * each node. */
bool
exo_composition_elastic(const void *self)
{
    const exo_composition *c = self;
    bool elastic = true;
    for (size_t i = 0; i < c->count; i++)
        elastic = elastic && !exo_param_exchange_flies(&c->each[i]) &&
                  c->each[i].aggregation.rule == EXO_AGGREGATE_MEAN;
    return elastic;
}

bool
exo_composition_meets(const void *self, uint64_t step)
{
    const exo_composition *c = self;
    bool meets = false;
    for (size_t i = 0; i < c->count; i++)
        meets = meets || exo_param_exchange_meets(&c->each[i], step);
    return meets;
}

exo_status
exo_composition_step(void *self, exo_node *node, exo_err *err)
{
    exo_status st = exo_node_inner_step(node, err);
    return st == EXO_OK ? exo_composition_exchange(self, node, err) : st;
}

void
exo_composition_state(void *self, exo_state *state)
{
    exo_composition *c = self;
    for (size_t i = 0; i < c->count; i++)
        exo_param_exchange_state(&c->each[i], state);
}

void
exo_composition_leave(void *self)
{
    exo_composition *c = self;
    for (size_t i = 0; i < c->count; i++)
        exo_param_exchange_leave(&c->each[i]);
}

void
exo_composition_release(void *self)
{
    exo_composition *c = self;
    for (size_t i = 0; i < c->count; i++)
        exo_param_exchange_release(&c->each[i]);
}

/* --- The edge --------------------------------------------------------------------------------- */

static uint64_t
common_divisor(uint64_t a, uint64_t b)
{
    while (b > 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The sum over islands of `members` nodes (0: all) of their nodes but one: an all-reduce within
 * them sends this many times the bytes of an all-reduce between two nodes. */
static double
meetings(uint32_t members, uint32_t num_nodes)
{
    uint32_t size = members ? members : num_nodes, rest = size ? num_nodes % size : 0;
    if (size == 0)
        return 0;
    return (double)(num_nodes / size) * (size - 1) + (rest ? rest - 1 : 0);
}

/* Adds the traffic of `more` to that of `sum`: an edge with a round whenever one of them may have
 * one, and the values that a round has on average. If different numbers of nodes meet, the values
 * are those of an all-reduce of all nodes with the same bytes. */
static void
add_edge(exo_strategy_edge *sum, exo_strategy_edge more, uint32_t num_nodes)
{
    uint64_t every = common_divisor(sum->every, more.every);
    if (sum->members != more.members) {
        const double all = meetings(0, num_nodes);
        sum->elements *= all > 0 ? meetings(sum->members, num_nodes) / all : 0;
        more.elements *= all > 0 ? meetings(more.members, num_nodes) / all : 0;
        sum->members = 0;
    }
    sum->elements = sum->elements * ((double)every / (double)sum->every) +
                    more.elements * ((double)every / (double)more.every);
    sum->every = every;
}

/* All exchanges carry parameters, so they share one edge. */
size_t
exo_composition_edges(const void *self, const exo_param_info *infos, size_t num_infos, size_t numel,
                      uint32_t num_nodes, exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES])
{
    const exo_composition *c = self;
    for (size_t i = 0; i < c->count; i++) {
        exo_strategy_edge edge =
            exo_param_exchange_edge(&c->each[i], infos, num_infos, numel, num_nodes);
        if (i == 0)
            out[0] = edge;
        else
            add_edge(&out[0], edge, num_nodes);
    }
    return c->count > 0;
}
