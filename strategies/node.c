/* The parts that strategies share: the inner step of a node, and the schedule of rounds. State: the
 * node's own (exo_node), owned by its compute lane. */
#include "strategies/builtin.h"

#include <math.h>

#include <exogym/memory.h>

bool
exo_always_ordered(const void *self)
{
    (void)self;
    return true;
}

bool
exo_always_steps_alone(const void *self, uint32_t num_nodes)
{
    (void)self;
    (void)num_nodes;
    return true;
}

exo_status
exo_rounds_read(exo_config *config, uint64_t fallback, exo_rounds *out, exo_err *err)
{
    exo_status st = exo_config_u64(config, "H", fallback, 1, UINT64_MAX, &out->interval, err);
    return st == EXO_OK ? exo_config_u64(config, "offset", 0, 0, UINT64_MAX, &out->offset, err)
                        : st;
}

exo_status
exo_rounds_meter(exo_meter **out, exo_meters *scope, exo_err *err)
{
    static const exo_meter_class rounds = {
        .name = "rounds",
        .unit = "rounds",
        .help = "rounds in which the node's parameters met those of others"};
    return exo_meter_declare(out, scope, &rounds, err);
}

bool
exo_rounds_due(const exo_rounds *rounds, uint64_t step)
{
    uint64_t done = step + 1;
    return done > rounds->offset && (done - rounds->offset) % rounds->interval == 0;
}

float
exo_node_rate(exo_node *node)
{
    node->lr = node->inner.lr * exo_schedule_factor(node->schedule, node->step, node->max_steps);
    return node->lr;
}

exo_grad_sink
exo_node_inner_sink(exo_node *node)
{
    node->stepped = true;
    return exo_optim_sink(node->optim, node->params, exo_node_rate(node));
}

exo_status
exo_add_up(exo_group *group, double *value, exo_err *err)
{
    uint32_t size = group ? exo_group_size(group) : 1;
    double sum = 0, *all = exo_calloc(size, sizeof *all);
    if (!all)
        return exo_fail(err, EXO_NOMEM, "no memory for the norms of %u nodes", size);
    all[group ? exo_group_rank(group) : 0] = *value;
    const exo_array bytes = {
        .device = exo_device_cpu(), .data = all, .count = size * sizeof *all, .dtype = EXO_U8};
    exo_status st = group ? exo_all_gather(group, bytes, err) : EXO_OK;
    for (uint32_t i = 0; i < size; i++)
        sum += all[i];
    exo_free(all);
    *value = sum;
    return st;
}

exo_status
exo_node_clip(exo_node *node, exo_err *err)
{
    const exo_node_part *part = node->part;
    exo_status st = EXO_OK;
    double sum = 0;
    if (node->max_norm <= 0)
        return EXO_OK;
    if (!part)
        return exo_clip_grad_norm(node->grads, node->max_norm, &node->grad_norm, err);
    for (size_t i = 0; st == EXO_OK && i < part->num_counted; i++) {
        const exo_band *range = &part->counted[i];
        double squares = 0;
        st = exo_vec_sum_squares(exo_array_part(node->grads, range->first, range->count), 0,
                                 &squares, err);
        sum += squares;
    }
    if (st == EXO_OK)
        st = exo_add_up(part->copy, &sum, err);
    if (st != EXO_OK)
        return st;
    node->grad_norm = (float)sqrt(sum);
    exo_clip_to_norm(node->grads, node->max_norm, node->grad_norm);
    return EXO_OK;
}

exo_status
exo_node_inner_step(exo_node *node, exo_err *err)
{
    if (node->stepped) {
        node->stepped = false;
        return EXO_OK;
    }
    exo_status st = exo_node_clip(node, err);
    if (st != EXO_OK)
        return st;
    exo_optim_step(node->optim, node->params, node->grads, exo_node_rate(node));
    return exo_optim_result(node->optim, err);
}
