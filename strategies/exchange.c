/* A round of an exchange: take the values, meet the partners, apply the mean, put the values back.
 * The options are in exchange_options.c. State: exo_param_exchange, owned by the node's compute
 * lane. */
#include "strategies/exchange.h"

#include <math.h>
#include <stdio.h>

#include <exogym/memory.h>

/* --- Start ------------------------------------------------------------------------------------ */

static const exo_meter_class exchanged = {
    .name = "exchanged",
    .unit = "parameters",
    .help = "coordinates that were replaced by their mean over the nodes"};

static bool
measures_from_mean(const exo_param_exchange *e)
{
    return e->aggregation.rule == EXO_AGGREGATE_NORM_CLIP && e->apply == EXO_APPLY_MEAN;
}

static exo_status
start_meters(exo_param_exchange *e, exo_meters *scope, exo_err *err)
{
    exo_status st = exo_rounds_meter(&e->rounds_done, scope, err);
    return st == EXO_OK && e->selects ? exo_meter_declare(&e->exchanged, scope, &exchanged, err)
                                      : st;
}

/* The most coordinates of a round. Twenty standard deviations above the mean: a random round
 * exceeds it once in e^200 rounds (Bernstein's inequality). */
static size_t
most_selected(const exo_param_exchange *e, size_t numel)
{
    double mean = e->p * (double)numel;
    double room = ceil(mean + 20.0 * sqrt(mean * (1.0 - e->p)) + 100.0);
    return room < (double)numel ? (size_t)room : numel;
}

/* Values need memory of their own if they are packed, if they wait, or if the mean is mixed with
 * the parameters. */
static exo_status
start_slots(exo_param_exchange *e, const exo_node *node, exo_err *err)
{
    if (!e->selects && e->delay == 0 && e->apply != EXO_APPLY_MIX)
        return EXO_OK;
    e->capacity = e->selects ? most_selected(e, node->numel) : node->numel;
    e->num_slots = e->delay / e->rounds.interval + 1;
    exo_status st =
        exo_array_init(&e->slots, node->params.device, EXO_F32, e->num_slots * e->capacity, err);
    if (st == EXO_OK && e->selects && e->apply == EXO_APPLY_MIX)
        st = exo_array_init(&e->own, node->params.device, EXO_F32, e->capacity, err);
    return st == EXO_OK ? EXO_OK
                        : exo_fail_in(err, st, "%s: %llu rounds of %zu values", e->name,
                                      (unsigned long long)e->num_slots, e->capacity);
}

/* All nodes together share the outer step. An island cannot: its nodes have come from different
 * outer parameters, so each node takes its whole step. */
static exo_status
start_outer(exo_param_exchange *e, const exo_node *node, exo_err *err)
{
    if (e->apply != EXO_APPLY_OUTER)
        return EXO_OK;
    if (e->island_size == 0)
        exo_shard(node->numel, node->num_nodes, node->rank, &e->first, &e->length);
    else
        e->length = node->numel;
    exo_status st = exo_array_init(&e->outer, node->params.device, EXO_F32, e->length, err);
    if (st != EXO_OK)
        return exo_fail_in(err, st, "%s: the outer parameters", e->name);
    exo_vec_copy(e->outer, exo_array_part(node->params, e->first, e->length));
    return exo_optim_new(&e->outer_optim, &e->outer_spec, e->outer.device, e->length, err);
}

/* norm_clip measures changes of the mean from the last mean. */
static exo_status
start_aggregation(exo_param_exchange *e, const exo_node *node, exo_meters *scope, exo_err *err)
{
    size_t first, length, most = e->num_slots > 0 ? e->capacity : node->numel;
    exo_status st = exo_aggregation_start(&e->aggregation, node->params.device, most,
                                          node->num_nodes, scope, err);
    if (st != EXO_OK || !measures_from_mean(e))
        return st;
    exo_shard(node->numel, node->num_nodes, node->rank, &first, &length);
    st = exo_array_init(&e->center, node->params.device, EXO_F32, length, err);
    if (st == EXO_OK)
        exo_vec_copy(e->center, exo_array_part(node->params, first, length));
    return st;
}

exo_status
exo_param_exchange_start(exo_param_exchange *e, exo_node *node, uint64_t seed, exo_err *err)
{
    e->seed = seed;
    exo_meters *scope = node->meters;
    exo_status st = e->scoped ? exo_meters_scope(&scope, node->meters, e->name, err) : EXO_OK;
    if (st == EXO_OK)
        st = start_meters(e, scope, err);
    if (st == EXO_OK && e->selects)
        st = exo_selector_new(&e->selector, e->selector_kind, e->p, node->numel, seed, err);
    if (st == EXO_OK && e->island_size > 0) {
        e->ranks = exo_calloc(node->num_nodes, sizeof *e->ranks);
        if (!e->ranks)
            return exo_fail(err, EXO_NOMEM, "no memory for the islands of %u nodes",
                            node->num_nodes);
    }
    if (st == EXO_OK)
        st = start_slots(e, node, err);
    if (st == EXO_OK)
        st = start_outer(e, node, err);
    return st == EXO_OK ? start_aggregation(e, node, scope, err) : st;
}

exo_status
exo_param_exchange_check(const exo_param_exchange *e, uint32_t num_nodes, exo_err *err)
{
    if (!e->place || e->island_size <= num_nodes)
        return exo_aggregation_check(&e->aggregation, num_nodes, e->island_size, err);
    return exo_fail(err, EXO_INVAL,
                    "%.300s: island_size must be at most %u, the number of nodes, got %llu; leave "
                    "it out for all of them",
                    e->place, num_nodes, (unsigned long long)e->island_size);
}

/* --- What: the values of a round -------------------------------------------------------------- */

/* Gives the coordinates of a round on the node's device, an empty array if they are all
 * coordinates. The caller releases *out. */
static exo_status
select_round(exo_param_exchange *e, const exo_node *node, uint64_t round, exo_array *out,
             exo_err *err)
{
    const uint32_t *index = NULL;
    if (!e->selects)
        return EXO_OK;
    size_t n = exo_selector_round(e->selector, round, &index);
    if (n > e->capacity)
        return exo_fail(err, EXO_FAILED, "%s: round %llu selects %zu coordinates, room is for %zu",
                        e->name, (unsigned long long)round, n, e->capacity);
    return exo_array_import(out, node->params.device, EXO_I32, index, n, err);
}

/* The values of a round: its slot, or the parameters themselves. */
static exo_array
values_of(const exo_param_exchange *e, const exo_node *node, uint64_t round, exo_array index)
{
    size_t n = e->selects ? index.count : node->numel;
    return e->num_slots == 0 ? node->params
                             : exo_array_part(e->slots, (round % e->num_slots) * e->capacity, n);
}

/* Copies this node's values of a round to its slot, if there is one. */
static exo_status
take(exo_param_exchange *e, const exo_node *node, uint64_t round, exo_err *err)
{
    exo_array index = {0};
    if (e->num_slots == 0)
        return EXO_OK;
    exo_status st = select_round(e, node, round, &index, err);
    if (st == EXO_OK && e->selects)
        exo_vec_gather(values_of(e, node, round, index), node->params, index);
    else if (st == EXO_OK)
        exo_vec_copy(values_of(e, node, round, index), node->params);
    exo_array_release(&index);
    return st;
}

/* Writes the new values of a round to the parameters. */
static void
put(const exo_param_exchange *e, exo_node *node, exo_array index, exo_array values)
{
    if (e->apply == EXO_APPLY_MIX && e->alpha > 0) {
        const exo_array own = e->selects ? exo_array_part(e->own, 0, index.count) : node->params;
        if (e->selects)
            exo_vec_gather(own, node->params, index);
        exo_vec_lerp(values, e->alpha, own);
    }
    if (e->selects)
        exo_vec_scatter(node->params, index, values);
    else if (e->num_slots > 0)
        exo_vec_copy(node->params, values);
}

/* --- Partners --------------------------------------------------------------------------------- */

/* Gives the group of a round, which the caller closes if it is not node->group. NULL: the node has
 * no partner in this round, and nothing to do. */
static exo_status
meet(const exo_param_exchange *e, const exo_node *node, uint64_t round, exo_group **out,
     exo_err *err)
{
    *out = node->group;
    if (e->island_size == 0)
        return EXO_OK;
    *out = NULL;
    uint32_t count =
        exo_island(e->seed, round, node->num_nodes, (uint32_t)e->island_size, node->rank, e->ranks);
    /* a mean in place over one node changes nothing; it is a call like any other in the ledger */
    bool idle = e->apply == EXO_APPLY_OUTER || e->num_slots > 0;
    return count == 1 && idle ? EXO_OK : exo_group_among(out, node->group, e->ranks, count, err);
}

/* --- Apply: from the partners' values to the new ones, in place ------------------------------- */

/* Leaves the mean, or what the rule makes of the values, in this member's shard. */
static exo_status
aggregate_shard(exo_param_exchange *e, exo_group *group, exo_array values, exo_array reference,
                exo_err *err)
{
    return e->aggregation.rule == EXO_AGGREGATE_MEAN || exo_group_size(group) == 1
               ? exo_reduce_scatter(group, values, EXO_MEAN, err)
               : exo_aggregation_run(&e->aggregation, group, values, reference, err);
}

/* Leaves it in all of the values. */
static exo_status
aggregate_all(exo_param_exchange *e, exo_group *group, exo_array values, exo_err *err)
{
    size_t first, length;
    if (e->aggregation.rule == EXO_AGGREGATE_MEAN || exo_group_size(group) == 1)
        return exo_all_reduce(group, values, EXO_MEAN, err);
    exo_status st = exo_aggregation_run(&e->aggregation, group, values, e->center, err);
    exo_shard(values.count, exo_group_size(group), exo_group_rank(group), &first, &length);
    if (st == EXO_OK && e->center.data)
        exo_vec_copy(e->center, exo_array_part(values, first, length));
    return st == EXO_OK ? exo_all_gather(group, values, err) : st;
}

static exo_status
apply_outer(exo_param_exchange *e, exo_group *group, exo_array values, exo_err *err)
{
    bool shares = e->island_size == 0;
    exo_status st = shares ? aggregate_shard(e, group, values, e->outer, err)
                           : aggregate_all(e, group, values, err);
    if (st != EXO_OK)
        return st;
    /* the shard holds the mean, and then the pseudo-gradient */
    const exo_array shard = exo_array_part(values, e->first, e->length);
    exo_vec_sub(shard, e->outer, shard);
    exo_optim_step(e->outer_optim, e->outer, shard, e->outer_spec.lr);
    exo_vec_copy(shard, e->outer);
    return shares ? exo_all_gather(group, values, err) : EXO_OK;
}

static exo_status (*const applies[])(exo_param_exchange *, exo_group *, exo_array, exo_err *) = {
    [EXO_APPLY_MEAN] = aggregate_all,
    [EXO_APPLY_OUTER] = apply_outer,
    [EXO_APPLY_MIX] = aggregate_all, /* put mixes */
};

/* --- A round ---------------------------------------------------------------------------------- */

/* Ends the round whose values were taken after the step `begun`. A node without a partner keeps its
 * parameters, and an outer optimizer its state: the next round has the changes of both. */
static exo_status
end_round(exo_param_exchange *e, exo_node *node, uint64_t begun, exo_err *err)
{
    const uint64_t round = begun / e->rounds.interval;
    exo_array index = {0};
    exo_group *group = NULL;
    exo_status st = select_round(e, node, round, &index, err);
    if (st == EXO_OK)
        st = meet(e, node, round, &group, err);
    if (st == EXO_OK && group) {
        const exo_array values = values_of(e, node, round, index);
        if (values.count > 0)
            st = applies[e->apply](e, group, values, err);
        if (st == EXO_OK)
            put(e, node, index, values);
    }
    exo_meter_add(e->rounds_done, st == EXO_OK);
    exo_meter_add(e->exchanged, st == EXO_OK && group ? index.count : 0);
    if (group != node->group)
        exo_group_close(&group);
    exo_array_release(&index);
    return st;
}

exo_status
exo_param_exchange_run(exo_param_exchange *e, exo_node *node, exo_err *err)
{
    const uint64_t step = node->step;
    exo_status st = EXO_OK;
    if (exo_rounds_due(&e->rounds, step))
        st = take(e, node, step / e->rounds.interval, err);
    if (st == EXO_OK && step >= e->delay && exo_rounds_due(&e->rounds, step - e->delay))
        st = end_round(e, node, step - e->delay, err);
    return st;
}

/* --- Checkpoints, edges, end ------------------------------------------------------------------ */

void
exo_param_exchange_state(exo_param_exchange *e, exo_state *state)
{
    char name[sizeof e->name + 16];
    if (e->delay > 0) {
        snprintf(name, sizeof name, "%s.in_flight", e->name);
        exo_state_add_array(state, name, e->slots);
    }
    if (e->center.data) {
        snprintf(name, sizeof name, "%s.center", e->name);
        exo_state_add_array(state, name, e->center);
    }
    if (e->apply != EXO_APPLY_OUTER)
        return;
    snprintf(name, sizeof name, "%s.outer", e->name);
    exo_state_add_array(state, name, e->outer);
    snprintf(name, sizeof name, "%s.optim", e->name);
    exo_optim_state(e->outer_optim, name, state);
}

/* The values of a round. Indices are never sent. The selectors other than `random` go through equal
 * parts in turn: Psi / parts coordinates in a round, exactly so over a whole cycle. */
static double
elements_of(const exo_param_exchange *e, size_t numel)
{
    double all = (double)numel;
    if (!e->selects)
        return all;
    if (e->selector_kind == EXO_SELECT_RANDOM)
        return e->p * all;
    return all / fmax(fmin(ceil(1.0 / e->p), all), 1);
}

/* The elements of a round, of which islands of different sizes may have different numbers: the mean,
 * weighted by what an all-reduce in each of them sends. */
static double
elements_met(const exo_param_exchange *e, size_t numel, uint32_t num_nodes)
{
    const double count = elements_of(e, numel);
    uint32_t size =
        e->island_size > 0 && e->island_size < num_nodes ? (uint32_t)e->island_size : num_nodes;
    uint32_t rest = num_nodes % size;
    if (rest < 2)
        return exo_aggregation_elements(&e->aggregation, count, size);
    double of_size = (double)(num_nodes / size) * (size - 1), of_rest = rest - 1;
    return (of_size * exo_aggregation_elements(&e->aggregation, count, size) +
            of_rest * exo_aggregation_elements(&e->aggregation, count, rest)) /
           (of_size + of_rest);
}

/* The reduce-scatter and the all-gather of an outer step together are an all-reduce. */
exo_strategy_edge
exo_param_exchange_edge(const exo_param_exchange *e, size_t numel, uint32_t num_nodes)
{
    return (exo_strategy_edge){.carries = "parameters",
                               .route = "all_reduce",
                               .elements = elements_met(e, numel, num_nodes),
                               .every = e->rounds.interval,
                               .members =
                                   e->island_size < num_nodes ? (uint32_t)e->island_size : 0};
}

void
exo_param_exchange_release(exo_param_exchange *e)
{
    exo_free(e->place);
    exo_free(e->ranks);
    exo_selector_free(&e->selector);
    exo_array_release(&e->slots);
    exo_array_release(&e->own);
    exo_array_release(&e->outer);
    exo_array_release(&e->center);
    exo_aggregation_release(&e->aggregation);
    exo_optim_free(&e->outer_optim);
}
