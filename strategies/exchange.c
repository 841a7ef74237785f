/* A round of an exchange: take the values, meet the partners, apply the mean, put the values back.
 * The memory for it is allocated in exchange_start.c, and its options are read in
 * exchange_options.c. State: exo_param_exchange, owned by the node's compute lane. */
#include "strategies/exchange.h"

#include <math.h>
#include <stdio.h>

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
    if (node->part) {
        n = exo_part_select(node->part->whole, node->part->own, index, n, e->here);
        index = e->here;
    }
    if (n > e->capacity)
        return exo_fail(err, EXO_FAILED, "%s: round %llu selects %zu coordinates, room is for %zu",
                        e->name, (unsigned long long)round, n, e->capacity);
    return exo_array_import(out, node->params.device, EXO_I32, index, n, err);
}

/* The values of a fragment's round: in its slot, or the parameters themselves. */
static exo_array
values_of(const exo_param_exchange *e, const exo_node *node, size_t part, uint64_t round,
          exo_array index)
{
    size_t n = e->selects ? index.count : e->parts[part].count;
    return e->num_slots == 0
               ? node->params
               : exo_array_part(e->slots, (round % e->num_slots) * e->capacity + e->parts[part].at,
                                n);
}

static exo_pending *
pending_of(const exo_param_exchange *e, size_t part, uint64_t round)
{
    return &e->pending[(round % e->num_slots) * e->num_parts + part];
}

/* The outer parameters of this node's part of a fragment. */
static exo_array
outer_of(const exo_param_exchange *e, size_t part)
{
    return exo_array_part(e->outer, e->parts[part].outer_at, e->parts[part].length);
}

/* Copies this node's values of a round to its slot, if there is one, and begins to send them if it
 * can be waited for later. */
static exo_status
take(exo_param_exchange *e, const exo_node *node, size_t part, uint64_t round, exo_err *err)
{
    exo_array index = {0};
    if (e->num_slots == 0)
        return EXO_OK;
    exo_status st = select_round(e, node, round, &index, err);
    const exo_array values = values_of(e, node, part, round, index);
    if (st == EXO_OK && e->selects)
        exo_vec_gather(values, node->params, index);
    else if (st == EXO_OK)
        exo_fragment_pack(&e->parts[part], values, node->params);
    exo_array_release(&index);
    if (st != EXO_OK || !e->pending)
        return st;
    exo_pending *pending = pending_of(e, part, round);
    if (e->codec) {
        exo_vec_sub(values, outer_of(e, part), values);
        st = exo_background_feed_back(e, node, part, pending, values, err);
    }
    bool ends_later = e->delay > 0 && node->max_steps - node->step > e->delay;
    return st == EXO_OK && ends_later
               ? exo_background_begin(e, node, part, round, pending, values, err)
               : st;
}

/* Writes the new values of a round to the parameters. */
static void
put(const exo_param_exchange *e, exo_node *node, size_t part, exo_array index, exo_array values)
{
    if (!e->selects) {
        if (e->num_slots > 0)
            exo_fragment_unpack(&e->parts[part], values, e->alpha, node->params);
        return;
    }
    if (e->alpha > 0) {
        const exo_array own = exo_array_part(e->own, 0, index.count);
        exo_vec_gather(own, node->params, index);
        exo_vec_lerp(values, e->alpha, own);
    }
    exo_vec_scatter(node->params, index, values);
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

/* Takes the outer step of this node's part of a fragment. `values`: the mean of that part, or of
 * its pseudo-gradient, and then the new values. */
static void
step_outer(exo_param_exchange *e, const exo_node *node, size_t part, exo_array values)
{
    const exo_array outer = outer_of(e, part);
    if (!e->codec)
        exo_vec_sub(values, outer, values);
    exo_param_exchange_step_outer(e, node, part, outer, values);
    exo_vec_copy(values, outer);
}

static exo_status
apply_outer(exo_param_exchange *e, const exo_node *node, exo_group *group, size_t part,
            exo_array values, exo_err *err)
{
    bool shares = exo_param_exchange_shares(e);
    exo_status st = shares ? aggregate_shard(e, group, values, outer_of(e, part), err)
                           : aggregate_all(e, group, values, err);
    if (st != EXO_OK)
        return st;
    step_outer(e, node, part, exo_array_part(values, e->parts[part].first, e->parts[part].length));
    return shares ? exo_all_gather(group, values, err) : EXO_OK;
}

/* Meets the partners and applies what the round makes of their values. *met: there are partners. */
static exo_status
exchange_now(exo_param_exchange *e, const exo_node *node, size_t part, uint64_t round,
             exo_array values, bool *met, exo_err *err)
{
    exo_group *group = NULL;
    exo_status st = exo_param_exchange_meet(e, node, round, &group, err);
    *met = group != NULL;
    if (st == EXO_OK && group && values.count > 0)
        st = e->apply == EXO_APPLY_OUTER ? apply_outer(e, node, group, part, values, err)
                                         : aggregate_all(e, group, values, err);
    if (group != node->group)
        exo_group_close(&group);
    return st;
}

/* The same for a round whose messages have begun, or begin now. */
static exo_status
end_pending(exo_param_exchange *e, const exo_node *node, size_t part, uint64_t round,
            exo_array values, bool *met, exo_err *err)
{
    exo_pending *pending = pending_of(e, part, round);
    exo_status st = EXO_OK;
    if (!pending->request)
        st = exo_background_begin(e, node, part, round, pending, values, err);
    *met = pending->request != NULL;
    if (st == EXO_OK && *met)
        st = exo_background_end(e, node, part, pending, values, err);
    if (st == EXO_OK && *met && e->apply == EXO_APPLY_OUTER)
        step_outer(e, node, part, values);
    return st;
}

/* --- A round ---------------------------------------------------------------------------------- */

/* Ends the round whose values were taken after the step `begun`. A node without a partner keeps its
 * parameters, and an outer optimizer its state: the next round has the changes of both. */
static exo_status
end_round(exo_param_exchange *e, exo_node *node, size_t part, uint64_t begun, exo_err *err)
{
    const uint64_t round = begun / e->rounds.interval;
    exo_array index = {0};
    bool met = false;
    exo_status st = select_round(e, node, round, &index, err);
    const exo_array values = values_of(e, node, part, round, index);
    if (st == EXO_OK)
        st = e->pending ? end_pending(e, node, part, round, values, &met, err)
                        : exchange_now(e, node, part, round, values, &met, err);
    if (st == EXO_OK && met)
        put(e, node, part, index, values);
    if (st == EXO_OK && !exo_param_exchange_alone(e, node, round)) {
        exo_meter_add(e->rounds_done, 1);
        exo_meter_add(e->exchanged, met ? index.count : 0);
    }
    exo_array_release(&index);
    return st;
}

bool
exo_param_exchange_meets(const exo_param_exchange *e, uint64_t step)
{
    bool meets = false;
    const size_t parts = e->fragments > 0 ? (size_t)e->fragments : 1;
    for (size_t p = 0; p < parts; p++)
        meets = meets || (step >= e->delay && exo_fragment_due(e, p, step - e->delay));
    return meets;
}

exo_status
exo_param_exchange_run(exo_param_exchange *e, exo_node *node, exo_err *err)
{
    const uint64_t step = node->step;
    exo_status st = EXO_OK;
    if (e->apply == EXO_APPLY_EAGER)
        return exo_param_exchange_run_eager(e, node, err);
    for (size_t p = 0; st == EXO_OK && p < e->num_parts; p++)
        if (exo_fragment_due(e, p, step))
            st = take(e, node, p, step / e->rounds.interval, err);
    for (size_t p = 0; st == EXO_OK && p < e->num_parts; p++)
        if (step >= e->delay && exo_fragment_due(e, p, step - e->delay))
            st = end_round(e, node, p, step - e->delay, err);
    return st;
}

/* --- Checkpoints, edges, end ------------------------------------------------------------------ */

void
exo_param_exchange_state(exo_param_exchange *e, exo_state *state)
{
    char name[sizeof e->name + 32];
    const struct {
        const char *name;
        exo_array array;
        bool kept;
    } arrays[] = {
        {"in_flight", e->slots, e->delay > 0 || e->apply == EXO_APPLY_EAGER},
        {"residual", e->residual, e->residual.data != NULL},
        {"center", e->center, e->center.data != NULL},
        {"outer", e->outer, e->outer.device != NULL},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        snprintf(name, sizeof name, "%s.%s", e->name, arrays[i].name);
        if (arrays[i].kept)
            exo_state_add_array(state, name, arrays[i].array);
    }
    for (size_t p = 0; p < e->num_parts; p++) {
        snprintf(name, sizeof name, "%s.optim", e->name);
        if (e->num_parts > 1)
            snprintf(name, sizeof name, "%s.optim_%zu", e->name, p);
        if (e->parts[p].optim)
            exo_optim_state(e->parts[p].optim, name, state);
    }
}

/* The values of a fragment's round. Indices are never sent. The selectors other than `random` go
 * through equal parts in turn: Psi / parts coordinates in a round, exactly so over a whole cycle. */
static double
elements_of(const exo_param_exchange *e, double all)
{
    if (!e->selects)
        return all;
    if (e->selector_kind == EXO_SELECT_RANDOM)
        return e->p * all;
    return all / fmax(fmin(ceil(1.0 / e->p), all), 1);
}

/* The elements of a round of `all` parameters, of which islands of different sizes may have different
 * numbers: the mean, weighted by what an all-reduce in each of them sends. */
static double
elements_met(const exo_param_exchange *e, size_t all, uint32_t num_nodes)
{
    const double count = elements_of(e, (double)all);
    size_t bytes = 0;
    uint32_t size =
        e->island_size > 0 && e->island_size < num_nodes ? (uint32_t)e->island_size : num_nodes;
    uint32_t rest = num_nodes % size;
    /* N - 1 encodings from each of N nodes, where an all-reduce has 2 (N - 1) times 4 bytes */
    if (e->codec && exo_codec_size(e->codec, all, &bytes))
        return (double)bytes * num_nodes / 8;
    if (rest < 2)
        return exo_aggregation_elements(&e->aggregation, count, size);
    double of_size = (double)(num_nodes / size) * (size - 1), of_rest = rest - 1;
    return (of_size * exo_aggregation_elements(&e->aggregation, count, size) +
            of_rest * exo_aggregation_elements(&e->aggregation, count, rest)) /
           (of_size + of_rest);
}

/* The reduce-scatter and the all-gather of an outer step together are an all-reduce. Fragments have
 * a round each in H steps: if P divides H, one every H / P steps, of which the edge has the mean. */
exo_strategy_edge
exo_param_exchange_edge(const exo_param_exchange *e, const exo_param_info *infos, size_t num_infos,
                        size_t numel, uint32_t num_nodes)
{
    const uint64_t parts = e->fragments > 0 ? e->fragments : 1, interval = e->rounds.interval;
    const uint64_t every = interval % parts == 0 ? interval / parts : interval;
    double elements = 0;
    for (size_t p = 0; p < parts; p++)
        elements += elements_met(e, exo_fragment_count(e, p, infos, num_infos, numel), num_nodes);
    return (exo_strategy_edge){.carries = "parameters",
                               .route = "all_reduce",
                               .elements = elements * (double)every / (double)interval,
                               .every = every,
                               .members =
                                   e->island_size < num_nodes ? (uint32_t)e->island_size : 0};
}
