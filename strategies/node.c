/* The parts that strategies share: the inner step of a node, and the schedule of rounds. State: the
 * node's own (exo_node), owned by its compute lane. */
#include "strategies/builtin.h"

#include <assert.h>

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

/* --- Clipping --------------------------------------------------------------------------------- */

/* Makes room on a device for the sums of squares of `size` nodes, and for the norm. */
static exo_status
make_room(exo_clipping *c, exo_device *device, size_t size, exo_err *err)
{
    if (c->norm.device == device && c->squares.count == size * sizeof(double))
        return EXO_OK;
    exo_clipping_release(c);
    exo_status st = exo_array_init(&c->squares, device, EXO_U8, size * sizeof(double), err);
    return st == EXO_OK ? exo_array_init(&c->norm, device, EXO_F32, 1, err) : st;
}

void
exo_clipping_release(exo_clipping *clipping)
{
    exo_array_release(&clipping->squares);
    exo_array_release(&clipping->norm);
}

static uint32_t
size_of(const exo_group *group)
{
    return group ? exo_group_size(group) : 1;
}

static uint32_t
rank_in(const exo_group *group)
{
    return group ? exo_group_rank(group) : 0;
}

/* The sums of the members of a group, behind those of `before` nodes. */
static exo_array
sums_of(const exo_clipping *c, const exo_group *group, uint32_t before)
{
    return exo_array_part(c->squares, before * sizeof(double), size_of(group) * sizeof(double));
}

/* That of this node among them. */
static exo_array
own_sum(exo_array sums, const exo_group *group)
{
    return exo_array_part(sums, rank_in(group) * sizeof(double), sizeof(double));
}

exo_status
exo_clip_begin(exo_node *node, exo_array grads, const exo_group *group, const exo_group *copy,
               exo_array *square, exo_err *err)
{
    exo_clipping *c = node->clipping;
    assert(c && "exo_strategy_start comes first");
    const size_t size = (size_t)size_of(group) + (copy ? size_of(copy) : 0);
    exo_status st = make_room(c, grads.device, size, err);
    if (st != EXO_OK)
        return st;
    *square = own_sum(sums_of(c, group, 0), group);
    exo_clip_count(*square, exo_array_part(grads, 0, 0), false);
    return EXO_OK;
}

exo_status
exo_clip_end(exo_node *node, exo_array grads, exo_group *group, exo_group *copy, exo_err *err)
{
    exo_clipping *c = node->clipping;
    exo_array sums = sums_of(c, group, 0);
    exo_status st = group ? exo_all_gather(group, sums, err) : EXO_OK;
    if (st == EXO_OK && copy) {
        const exo_array parts = sums_of(c, copy, size_of(group));
        exo_clip_add_up(own_sum(parts, copy), sums);
        sums = parts;
        st = exo_all_gather(copy, sums, err);
    }
    if (st != EXO_OK)
        return st;
    exo_clip_scale(grads, node->max_norm, sums, c->norm);
    const float *norm = exo_array_host(c->norm);
    c->unread = !norm;
    if (norm)
        node->grad_norm = *norm;
    return EXO_OK;
}

exo_status
exo_node_clip(exo_node *node, exo_err *err)
{
    const exo_node_part *part = node->part;
    exo_group *const copy = part ? part->copy : NULL;
    exo_array square;
    if (node->max_norm <= 0)
        return EXO_OK;
    exo_status st = exo_clip_begin(node, node->grads, NULL, copy, &square, err);
    if (st != EXO_OK)
        return st;
    if (!part)
        exo_clip_count(square, node->grads, true);
    for (size_t i = 0; part && i < part->num_counted; i++)
        exo_clip_count(square,
                       exo_array_part(node->grads, part->counted[i].first, part->counted[i].count),
                       true);
    return exo_clip_end(node, node->grads, NULL, copy, err);
}

/* --- The inner step --------------------------------------------------------------------------- */

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
