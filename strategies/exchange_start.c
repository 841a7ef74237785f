/* The start of an exchange: its meters, and memory for what depends on the model and the nodes. Read
 * next: exchange.c. */
#include "strategies/exchange.h"

#include <math.h>

#include <exogym/memory.h>

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

/* The parameters of the whole model, of which the node may have a part. */
static size_t
whole_numel(const exo_node *node)
{
    return node->part ? exo_model_numel(node->part->whole) : node->numel;
}

static exo_status
start_selector(exo_param_exchange *e, const exo_node *node, uint64_t seed, exo_err *err)
{
    const size_t numel = whole_numel(node);
    if (!e->selects)
        return EXO_OK;
    if (node->part && !(e->here = exo_calloc(most_selected(e, numel) + 1, sizeof *e->here)))
        return exo_fail(err, EXO_NOMEM, "%s: no memory to select among %zu coordinates", e->name,
                        numel);
    return exo_selector_new(&e->selector, e->selector_kind, e->p, numel, seed, err);
}

/* Values need memory of their own if they are packed, if they wait, if they are not the parameters,
 * or if the mean is mixed with the parameters. */
static exo_status
start_slots(exo_param_exchange *e, const exo_node *node, exo_err *err)
{
    bool mixes = e->apply == EXO_APPLY_MIX || e->alpha > 0;
    if (!e->selects && e->num_parts == 1 && !exo_param_exchange_flies(e) && e->delay == 0 && !mixes)
        return EXO_OK;
    e->capacity = e->selects ? most_selected(e, whole_numel(node)) : node->numel;
    e->capacity = e->capacity < node->numel ? e->capacity : node->numel;
    e->num_slots = e->delay / e->rounds.interval + 1;
    exo_status st =
        exo_array_init(&e->slots, node->params.device, EXO_F32, e->num_slots * e->capacity, err);
    if (st == EXO_OK && ((e->selects && mixes) || e->apply == EXO_APPLY_EAGER))
        st = exo_array_init(&e->own, node->params.device, EXO_F32, e->capacity, err);
    return st == EXO_OK ? EXO_OK
                        : exo_fail_in(err, st, "%s: %llu rounds of %zu values", e->name,
                                      (unsigned long long)e->num_slots, e->capacity);
}

/* Copies this node's part of a fragment to its outer parameters. */
static void
copy_to_outer(const exo_param_exchange *e, const exo_node *node, const exo_fragment *part)
{
    exo_array whole = node->params;
    if (e->num_slots > 0) {
        whole = exo_array_part(e->slots, part->at, part->count);
        exo_fragment_pack(part, whole, node->params);
    }
    exo_vec_copy(exo_array_part(e->outer, part->outer_at, part->length),
                 exo_array_part(whole, part->first, part->length));
}

static exo_status
start_outer(exo_param_exchange *e, const exo_node *node, exo_err *err)
{
    size_t length = 0;
    if (e->apply != EXO_APPLY_OUTER && e->apply != EXO_APPLY_EAGER)
        return EXO_OK;
    for (size_t p = 0; p < e->num_parts; p++)
        length += e->parts[p].length;
    exo_status st = exo_array_init(&e->outer, node->params.device, EXO_F32, length, err);
    if (st != EXO_OK)
        return exo_fail_in(err, st, "%s: the outer parameters", e->name);
    for (size_t p = 0; st == EXO_OK && p < e->num_parts; p++) {
        exo_fragment *part = &e->parts[p];
        copy_to_outer(e, node, part);
        st = exo_optim_new(&part->optim, &e->outer_spec, e->outer.device, part->length, err);
    }
    return st;
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
    e->whole = node->elastic; /* or the state of a shard would be lost with its node */
    exo_meters *scope = node->meters;
    exo_status st = e->scoped ? exo_meters_scope(&scope, node->meters, e->name, err) : EXO_OK;
    if (st == EXO_OK)
        st = start_meters(e, scope, err);
    if (st == EXO_OK)
        st = start_selector(e, node, seed, err);
    if (st == EXO_OK && e->island_size > 0) {
        e->ranks = exo_calloc(node->num_nodes, sizeof *e->ranks);
        if (!e->ranks)
            return exo_fail(err, EXO_NOMEM, "no memory for the islands of %u nodes",
                            node->num_nodes);
    }
    if (st == EXO_OK)
        st = exo_fragments_start(e, node, err);
    if (st == EXO_OK)
        st = start_slots(e, node, err);
    if (st == EXO_OK)
        st = start_outer(e, node, err);
    if (st == EXO_OK)
        st = exo_background_start(e, node, err);
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

void
exo_param_exchange_leave(exo_param_exchange *e)
{
    exo_background_leave(e);
}

void
exo_param_exchange_release(exo_param_exchange *e)
{
    exo_background_release(e);
    exo_fragments_release(e);
    exo_free(e->place);
    exo_free(e->cut_at);
    exo_free(e->ranks);
    exo_selector_free(&e->selector);
    exo_free(e->here);
    exo_array_release(&e->slots);
    exo_array_release(&e->own);
    exo_array_release(&e->outer);
    exo_array_release(&e->center);
    exo_aggregation_release(&e->aggregation);
    exo_schedule_free(&e->momentum);
}
