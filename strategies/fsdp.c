/* FSDP, fully sharded data parallelism (Rajbhandari et al., 2020, arXiv:1910.02054; Zhao et al., 2023,
 * arXiv:2304.11277): the numbers of ddp, but a node keeps only its shard of the parameters, the
 * gradients and the optimizer's state. A unit (units.h) is gathered before a pass uses it.
 *
 * The nodes are cut into sharding groups of g consecutive ranks, of which each has all parameters.
 * Nodes of the same place in their groups are replicas, and have the same shard:
 *
 *     sharding_strategy    g            a unit after forward
 *     full_shard           N            closed, and gathered again in backward      (ZeRO-3)
 *     shard_grad_op        N            stays open until its gradients are reduced  (ZeRO-2)
 *     no_shard             1            closed                                      (ddp)
 *     hybrid_shard         group_size   as full_shard
 *     hybrid_shard_zero2   group_size   as shard_grad_op
 *
 * A step:
 *
 *     before a unit is read     all-gather its values in the sharding group
 *     a unit's gradients ready  reduce-scatter their mean in the sharding group, keep the shard
 *     step                      all-reduce the mean of the shards among replicas; clip; optimizer
 *
 * Muon steps whole matrices: of each unit that has one, the sharding group gathers the updates, and a node
 * computes the matrices of which its shard has some (exo_optim_new_sharded).
 *
 * With `across` the groups are apart: instead of the mean of gradients, a strategy such as diloco runs
 * among replicas, on their shards of the parameters.
 *
 * With `prefetch` the next unit is gathered, and the last one's gradients are reduced and averaged among
 * replicas, while the pass computes. The order of the units is that of the run's first step.
 *
 * With `cpu_offload`, and a device whose memory is not the host's, shards and optimizer are in the
 * host's memory, where collectives and the step take place:
 *
 *     before a unit is read     gather it on the host, open it on the device, copy it there
 *     a unit's gradients ready  copy them to the host, close them on the device, reduce there
 *
 * With `prefetch` the next unit's copy is asked for when a unit has been computed with and before it
 * is closed, which waits for the device.
 *
 * Of nodes that share copies of the model (parallel.h), those of the same place in their copies are the N
 * nodes here, and shard what they have of it.
 *
 * With one group the sums are those of ddp, to the bit. With several, the mean of the groups' means
 * rounds differently. The norm for max_norm is the root of a sum over shards, in the order of ranks.
 *
 * Traffic of a node in a step, in elements: (g - 1) / g Psi for each time that all units are gathered,
 * (g - 1) / g Psi for gradients, and 2 (N / g - 1) / (N / g) Psi / g among replicas. Units are gathered
 * twice under full_shard, except the one with which forward ends and tables that backward does not
 * read, and once under shard_grad_op. With muon, (g - 1) / g times the units that have a matrix more.
 *
 * Owner of the state: the node's compute lane. Read next: exogym/units.h, exogym/shards.h, ddp.c. */
#include "strategies/builtin.h"

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "strategies/part.h"

enum sharding {
    FULL_SHARD,
    SHARD_GRAD_OP,
    NO_SHARD,
    HYBRID_SHARD,
    HYBRID_SHARD_ZERO2,
};
static const char *const shardings[] = {"full_shard",   "shard_grad_op",      "no_shard",
                                        "hybrid_shard", "hybrid_shard_zero2", NULL};

/* A unit within a step. */
struct unit {
    size_t left;   /* elements whose gradients backward has not given yet */
    bool in_use;   /* the pass is in it */
    bool complete; /* all its gradients have come */
    exo_request *gather, *reduce;
    exo_request *mean; /* of its shard of the gradients among replicas */
    exo_array here,
        here_grads; /* with `offload`: of the whole unit on the host, while a request runs */
};

/* The group of the nodes with which this one shards, in a group of all nodes. */
struct circle {
    exo_group *all, *group; /* group: owned, unless it is `all`; NULL: not made, or one node */
};

struct fsdp {
    size_t sharding;
    uint64_t group_size; /* 0: all nodes */
    bool prefetch;
    bool cpu_offload;
    bool offload;             /* and the device is not the host */
    char place[EXO_ERR_TEXT]; /* of group_size in the config */
    exo_optim_spec inner;     /* the optimizer, for predictions of traffic; owned */
    exo_shards params, grads;
    exo_optim **optims; /* (num_units) for this node's shard of each unit */
    struct unit *units; /* (num_units) */
    size_t num_units;
    size_t reducing;          /* the unit whose reduction is under way; num_units: none */
    struct circle step, look; /* within steps; for evaluations and averages */
    exo_group *replicas;      /* NULL: one */
    exo_strategy_part across; /* among replicas */
    exo_meters *across_meters;
    size_t kept;     /* units, at set-up */
    uint32_t *order; /* (room) the units of a step in the order of their use; owned */
    size_t room;
    uint64_t uses;      /* of the run's first step, that are in `order` */
    uint64_t has_order; /* the first step is over */
    size_t at;          /* uses of this step so far */
    exo_meter *gathered;
};

enum {
    USES = 64 /* times the number of units: the uses of a step that can be gathered ahead */
};

static const exo_meter_class gathered = {
    .name = "gathered", .unit = "units", .help = "units gathered within steps"};

/* The nodes of a sharding group. */
static uint32_t
shard_size(const struct fsdp *f, uint32_t num_nodes)
{
    if (f->sharding == NO_SHARD)
        return 1;
    if (f->sharding == FULL_SHARD || f->sharding == SHARD_GRAD_OP || f->group_size == 0)
        return num_nodes;
    return (uint32_t)f->group_size;
}

/* Units stay open between forward and backward. */
static bool
stays_open(const struct fsdp *f)
{
    return f->sharding == SHARD_GRAD_OP || f->sharding == HYBRID_SHARD_ZERO2;
}

/* --- Options ---------------------------------------------------------------------------------- */

static exo_status
fsdp_init(void *self, exo_config *config, exo_err *err)
{
    struct fsdp *f = self;
    const exo_config *size = exo_config_get(config, "group_size");
    snprintf(f->place, sizeof f->place, "fsdp");
    if (size)
        exo_config_where(size, f->place, sizeof f->place);
    const exo_optim_spec fallback = exo_optim_spec_init(EXO_ADAMW);
    exo_status st = exo_optim_spec_read_groups(config, "optimizer", &fallback, &f->inner, err);
    if (st == EXO_OK)
        st = exo_config_choice(config, "sharding_strategy", HYBRID_SHARD, shardings, &f->sharding,
                               err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "group_size", 0, 0, UINT32_MAX, &f->group_size, err);
    if (st == EXO_OK)
        st = exo_config_bool(config, "prefetch", false, &f->prefetch, err);
    if (st == EXO_OK && exo_config_get(config, "cpu_offload"))
        st = exo_config_bool(config, "cpu_offload", false, &f->cpu_offload, err);
    if (st == EXO_OK)
        st = exo_part_read(&f->across, config, "across", NULL, err);
    if (st == EXO_OK && f->across.strategy)
        st = exo_part_check_alone(&f->across, config, "across", err);
    if (st == EXO_OK && f->across.strategy && f->group_size == 0)
        st = exo_config_fail(exo_config_get(config, "across"), err,
                             "across: needs a group_size, the nodes that shard a copy of the model "
                             "together");
    if (st == EXO_OK && f->group_size > 0 && f->sharding < HYBRID_SHARD)
        st = exo_config_fail(size, err,
                             "group_size: %s has groups of its own size; use hybrid_shard or "
                             "hybrid_shard_zero2",
                             shardings[f->sharding]);
    return st;
}

static exo_status
fsdp_check(const void *self, uint32_t num_nodes, exo_err *err)
{
    const struct fsdp *f = self;
    uint32_t size = shard_size(f, num_nodes);
    if (size <= num_nodes && num_nodes % size == 0)
        return f->across.strategy ? exo_part_check(&f->across, num_nodes / size, err) : EXO_OK;
    return exo_fail(
        err, EXO_INVAL,
        "%.300s: group_size: %u nodes cannot be cut into groups of %u; choose a divisor "
        "of the number of nodes",
        f->place, num_nodes, size);
}

/* --- Start ------------------------------------------------------------------------------------ */

/* The nodes that share this node's shards of the parameters among each other. */
static exo_status
open_circle(struct circle *c, exo_group *all, uint32_t size, exo_err *err)
{
    uint32_t first = exo_group_rank(all) / size * size, *ranks;
    if (c->all == all)
        return EXO_OK;
    c->all = all;
    if (size == exo_group_size(all))
        c->group = all;
    if (size == 1 || c->group)
        return EXO_OK;
    if (!(ranks = exo_calloc(size, sizeof *ranks)))
        return exo_fail(err, EXO_NOMEM, "fsdp: no memory for a group of %u nodes", size);
    for (uint32_t i = 0; i < size; i++)
        ranks[i] = first + i;
    exo_status st = exo_group_among(&c->group, all, ranks, size, err);
    exo_free(ranks);
    return st;
}

static void
close_circle(struct circle *c)
{
    if (c->group != c->all)
        exo_group_close(&c->group);
    *c = (struct circle){0};
}

static exo_status
open_replicas(struct fsdp *f, const exo_node *node, exo_err *err)
{
    uint32_t size = f->params.size, count = node->num_nodes / size, *ranks;
    if (count == 1 && !f->across.strategy)
        return EXO_OK;
    if (!(ranks = exo_calloc(count, sizeof *ranks)))
        return exo_fail(err, EXO_NOMEM, "fsdp: no memory for a group of %u nodes", count);
    for (uint32_t i = 0; i < count; i++)
        ranks[i] = i * size + node->rank % size;
    exo_status st = exo_group_among(&f->replicas, node->group, ranks, count, err);
    exo_free(ranks);
    return st;
}

static exo_status
gather_unit(void *context, exo_array unit, exo_err *err)
{
    const struct circle *c = context;
    return c->group ? exo_all_gather(c->group, unit, err) : EXO_OK;
}

/* Makes the optimizer of this node's shard of a unit. */
static exo_status
make_optimizer(struct fsdp *f, const exo_node *node, size_t u, exo_device *device, exo_err *err)
{
    const exo_unit_info *info = &node->units[u];
    const exo_optim_unit unit = {
        .first = info->first, .count = info->count, .gather = gather_unit, .context = &f->step};
    exo_optim_slices slices;
    const bool cut = exo_node_slices(node, &slices);
    return exo_optim_new_sharded(
        &f->optims[u], &node->inner, node->infos, node->num_infos, cut ? &slices : NULL, &unit,
        device, exo_shards_first(&f->params, u), exo_shards_of(&f->params, u).count, err);
}

static exo_status
make_shards(struct fsdp *f, exo_node *node, exo_err *err)
{
    uint32_t size = shard_size(f, node->num_nodes);
    f->offload = f->cpu_offload && !exo_device_is_host(node->params.device);
    exo_device *device = f->offload ? exo_device_cpu() : node->params.device;
    exo_status st = exo_shards_init(&f->params, node->units, node->num_units, size,
                                    node->rank % size, device, err);
    if (st == EXO_OK)
        st = exo_shards_init(&f->grads, node->units, node->num_units, size, node->rank % size,
                             device, err);
    for (size_t u = 0; st == EXO_OK && u < f->num_units; u++) {
        f->units[u].left = node->units[u].count;
        st = make_optimizer(f, node, u, device, err);
    }
    return st;
}

/* This node as a member of `across`: its shards are the parameters. */
static exo_node
show_shards(const struct fsdp *f, const exo_node *node)
{
    exo_node shown = *node;
    shown.rank = node->rank / f->params.size;
    shown.num_nodes = node->num_nodes / f->params.size;
    shown.numel = f->params.all.count;
    shown.params = f->params.all;
    shown.grads = f->grads.all;
    shown.model = NULL;
    shown.infos = NULL;
    shown.units = NULL;
    shown.part = NULL;
    shown.num_infos = shown.num_units = 0;
    shown.group = f->replicas;
    shown.inside = NULL;
    shown.meters = f->across_meters;
    shown.stepped = true;
    return shown;
}

static exo_status
start_across(struct fsdp *f, const exo_node *node, exo_err *err)
{
    exo_node shown = show_shards(f, node);
    return exo_part_start(&f->across, &shown, err);
}

static exo_status
fsdp_start(void *self, exo_node *node, exo_err *err)
{
    struct fsdp *f = self;
    f->num_units = f->reducing = node->num_units;
    f->optims = exo_calloc(f->num_units, sizeof(exo_optim *));
    f->units = exo_calloc(f->num_units, sizeof *f->units);
    f->room = USES * f->num_units;
    f->order = exo_calloc(f->room, sizeof *f->order);
    if (!f->optims || !f->units || !f->order)
        return exo_fail(err, EXO_NOMEM, "fsdp: no memory for %zu units", f->num_units);
    exo_status st = make_shards(f, node, err);
    if (st == EXO_OK && node->group) /* NULL: its state is converted */
        st = open_circle(&f->step, node->group, f->params.size, err);
    if (st == EXO_OK && node->group)
        st = open_replicas(f, node, err);
    if (st == EXO_OK)
        st = exo_meter_declare(&f->gathered, node->meters, &gathered, err);
    if (st == EXO_OK && f->across.strategy)
        st = exo_meters_scope(&f->across_meters, node->meters, "across", err);
    if (st == EXO_OK && f->across.strategy && !node->model) /* a plan of memory: no unit is kept */
        st = start_across(f, node, err);
    return st;
}

static exo_status
fsdp_keep(void *self, exo_node *node, size_t unit, exo_err *err)
{
    struct fsdp *f = self;
    exo_shards_keep(&f->params, unit, exo_unit_values(node->model, unit));
    return ++f->kept == f->num_units && f->across.strategy ? start_across(f, node, err) : EXO_OK;
}

/* --- Units within a pass ---------------------------------------------------------------------- */

/* The unit has no values yet, and is not on their way. */
static bool
is_absent(const struct fsdp *f, exo_node *node, size_t unit)
{
    return !exo_unit_values(node->model, unit).data && !f->units[unit].here.data;
}

/* Begins to gather an absent unit. */
static exo_status
begin_gather(struct fsdp *f, exo_node *node, size_t unit, const struct circle *c,
             exo_request **request, exo_err *err)
{
    exo_array whole;
    size_t first, length;
    exo_status st = f->offload ? exo_array_init(&f->units[unit].here, exo_device_cpu(), EXO_F32,
                                                node->units[unit].count, err)
                               : exo_unit_open(node->model, unit, &whole, err);
    if (st != EXO_OK)
        return st;
    if (f->offload)
        whole = f->units[unit].here;
    exo_shard(whole.count, f->params.size, f->params.rank, &first, &length);
    exo_vec_copy(exo_array_part(whole, first, length), exo_shards_of(&f->params, unit));
    if (c == &f->step)
        exo_meter_add(f->gathered, 1);
    return c->group ? exo_comm_begin_all_gather(request, c->group, whole, err) : EXO_OK;
}

/* Ends a gathering, and asks for the unit's copy to the device if it is on the host. */
static exo_status
end_gather(struct fsdp *f, exo_node *node, size_t unit, exo_request **request, exo_err *err)
{
    struct unit *u = &f->units[unit];
    exo_array there;
    exo_status st = exo_request_wait(request, err);
    if (!u->here.data)
        return st;
    if (st == EXO_OK)
        st = exo_unit_open(node->model, unit, &there, err);
    if (st == EXO_OK)
        exo_array_send(there, u->here.data);
    exo_array_release(&u->here);
    return st;
}

/* Notes that the step uses a unit. */
static void
note_use(struct fsdp *f, size_t unit)
{
    if (!f->has_order && f->uses < f->room)
        f->order[f->uses++] = (uint32_t)unit;
    f->at++;
}

/* The unit that the pass uses next; num_units: it is not known, or nothing is done ahead. */
static size_t
next_unit(const struct fsdp *f)
{
    return f->prefetch && f->has_order && f->at < f->uses ? f->order[f->at] : f->num_units;
}

/* Begins to gather the unit that the pass uses next, if it is absent. */
static exo_status
gather_ahead(struct fsdp *f, exo_node *node, exo_err *err)
{
    size_t next = next_unit(f);
    if (next == f->num_units || !is_absent(f, node, next))
        return EXO_OK;
    return begin_gather(f, node, next, &f->step, &f->units[next].gather, err);
}

/* Asks for the copy of the unit that the pass uses next, which was gathered ahead on the host. */
static exo_status
copy_ahead(struct fsdp *f, exo_node *node, exo_err *err)
{
    size_t next = next_unit(f);
    if (next == f->num_units || !f->units[next].here.data)
        return EXO_OK;
    return end_gather(f, node, next, &f->units[next].gather, err);
}

static exo_status
fsdp_before_use(void *self, exo_node *node, size_t unit, exo_group *group, exo_err *err)
{
    struct fsdp *f = self;
    struct unit *u = &f->units[unit];
    struct circle *c = group == node->group ? &f->step : &f->look;
    exo_request *own = NULL, **request = c == &f->step ? &u->gather : &own;
    exo_status st = open_circle(c, group, f->params.size, err);
    if (st == EXO_OK && is_absent(f, node, unit))
        st = begin_gather(f, node, unit, c, request, err);
    if (st == EXO_OK)
        st = end_gather(f, node, unit, request, err);
    if (st != EXO_OK || c == &f->look)
        return st;
    u->in_use = true;
    note_use(f, unit);
    return gather_ahead(f, node, err);
}

static exo_status
fsdp_after_use(void *self, exo_node *node, size_t unit, exo_group *group, exo_err *err)
{
    struct fsdp *f = self;
    struct unit *u = &f->units[unit];
    exo_status st = EXO_OK;
    if (group == node->group) {
        st = copy_ahead(f, node, err);
        u->in_use = false;
        if (stays_open(f) && !u->complete)
            return st;
    }
    exo_unit_close(node->model, unit);
    return st;
}

/* --- Gradients -------------------------------------------------------------------------------- */

static size_t
unit_of(const exo_node *node, size_t element)
{
    size_t unit = 0;
    while (element - node->units[unit].first >= node->units[unit].count)
        unit++;
    return unit;
}

/* The gradients of a unit that can be reduced: with `offload` they leave the device. */
static exo_status
take_grads(struct fsdp *f, exo_node *node, size_t unit, exo_array *grads, exo_err *err)
{
    struct unit *u = &f->units[unit];
    exo_status st = exo_unit_open_grads(node->model, unit, grads, err);
    if (!f->offload || st != EXO_OK)
        return st;
    st = exo_array_init(&u->here_grads, exo_device_cpu(), EXO_F32, grads->count, err);
    if (st == EXO_OK)
        st = exo_array_read(*grads, u->here_grads.data, err);
    exo_unit_close_grads(node->model, unit);
    *grads = u->here_grads;
    return st;
}

static bool
has_mean(const struct fsdp *f)
{
    return f->replicas && !f->across.strategy;
}

/* Begins to average a unit's shard of the gradients among replicas. */
static exo_status
begin_mean(struct fsdp *f, size_t unit, exo_err *err)
{
    exo_array shard = exo_shards_of(&f->grads, unit);
    if (!f->prefetch || !has_mean(f) || shard.count == 0)
        return EXO_OK;
    return exo_comm_begin_all_reduce(&f->units[unit].mean, f->replicas, shard, EXO_MEAN, err);
}

/* Ends the reduction that is under way, if there is one. */
static exo_status
end_reduction(struct fsdp *f, exo_node *node, exo_err *err)
{
    exo_array grads;
    size_t unit = f->reducing;
    if (unit == f->num_units)
        return EXO_OK;
    f->reducing = f->num_units;
    exo_status st = exo_request_wait(&f->units[unit].reduce, err);
    if (st == EXO_OK && f->offload)
        grads = f->units[unit].here_grads;
    else if (st == EXO_OK)
        st = exo_unit_open_grads(node->model, unit, &grads, err);
    if (st == EXO_OK)
        exo_shards_keep(&f->grads, unit, grads);
    exo_array_release(&f->units[unit].here_grads);
    exo_unit_close_grads(node->model, unit);
    return st == EXO_OK ? begin_mean(f, unit, err) : st;
}

static exo_status
begin_reduction(struct fsdp *f, exo_node *node, size_t unit, exo_err *err)
{
    exo_array grads;
    exo_status st = take_grads(f, node, unit, &grads, err);
    if (st == EXO_OK)
        st = end_reduction(f, node, err);
    if (st == EXO_OK && f->step.group)
        st = exo_comm_begin_reduce_scatter(&f->units[unit].reduce, f->step.group, grads, EXO_MEAN,
                                           err);
    if (st == EXO_OK)
        f->reducing = unit;
    return st;
}

static exo_status
fsdp_gradient_ready(void *self, exo_node *node, size_t first, size_t count, exo_err *err)
{
    struct fsdp *f = self;
    size_t unit = unit_of(node, first);
    struct unit *u = &f->units[unit];
    u->left -= count;
    if (u->left > 0)
        return EXO_OK;
    u->complete = true;
    if (!u->in_use && !u->gather)
        exo_unit_close(node->model, unit); /* backward does not come back to it */
    exo_status st = begin_reduction(f, node, unit, err);
    return st == EXO_OK && !f->prefetch ? end_reduction(f, node, err) : st;
}

/* --- A step ----------------------------------------------------------------------------------- */

/* Counts the elements of `range` that are in the shard of a unit. */
static void
count_shard(const struct fsdp *f, size_t unit, exo_band range, exo_array square)
{
    const exo_array shard = exo_shards_of(&f->grads, unit);
    const size_t begin = exo_shards_first(&f->grads, unit), end = begin + shard.count;
    const size_t from = range.first > begin ? range.first : begin;
    const size_t to = range.first + range.count < end ? range.first + range.count : end;
    if (from < to)
        exo_clip_count(square, exo_array_part(shard, from - begin, to - from), true);
}

/* exo_clip_grad_norm over the shards of a group, and over the parts of a copy, of which this node counts
 * some elements. */
static exo_status
clip(struct fsdp *f, exo_node *node, exo_err *err)
{
    const exo_node_part *part = node->part;
    exo_group *const copy = part ? part->copy : NULL;
    exo_array square;
    if (node->max_norm <= 0)
        return EXO_OK;
    exo_status st = exo_clip_begin(node, f->grads.all, f->step.group, copy, &square, err);
    if (st != EXO_OK)
        return st;
    if (!part)
        exo_clip_count(square, f->grads.all, true);
    for (size_t u = 0; part && u < f->num_units; u++)
        for (size_t i = 0; i < part->num_counted; i++)
            count_shard(f, u, part->counted[i], square);
    return exo_clip_end(node, f->grads.all, f->step.group, copy, err);
}

/* Ends what the step's passes have left. */
static exo_status
end_passes(struct fsdp *f, exo_node *node, exo_err *err)
{
    exo_status st = end_reduction(f, node, err);
    for (size_t i = 0; i < f->num_units; i++) {
        struct unit *u = &f->units[i];
        exo_status ended = exo_request_wait(&u->gather, st == EXO_OK ? err : NULL);
        st = st == EXO_OK ? ended : st;
        ended = exo_request_wait(&u->mean, st == EXO_OK ? err : NULL);
        st = st == EXO_OK ? ended : st;
        exo_array_release(&u->here);
        exo_array_release(&u->here_grads);
        exo_unit_close(node->model, i);
        *u = (struct unit){.left = node->units[i].count};
    }
    f->at = 0;
    f->has_order = true;
    return st;
}

static exo_status
step_across(struct fsdp *f, const exo_node *node, exo_err *err)
{
    exo_node shown = show_shards(f, node);
    return f->across.strategy->step(f->across.self, &shown, err);
}

static exo_status
fsdp_step(void *self, exo_node *node, exo_err *err)
{
    struct fsdp *f = self;
    float rate = exo_node_rate(node);
    exo_status st = end_passes(f, node, err);
    if (st == EXO_OK && has_mean(f) && !f->prefetch)
        st = exo_all_reduce(f->replicas, f->grads.all, EXO_MEAN, err);
    if (st == EXO_OK)
        st = clip(f, node, err);
    for (size_t u = 0; st == EXO_OK && u < f->num_units; u++) {
        exo_optim_step(f->optims[u], exo_shards_of(&f->params, u), exo_shards_of(&f->grads, u),
                       rate);
        st = exo_optim_result(f->optims[u], err);
    }
    return st == EXO_OK && f->across.strategy ? step_across(f, node, err) : st;
}

/* --- The rest --------------------------------------------------------------------------------- */

/* The elements that a node sends in a step to its replicas, the mean over the steps. */
static double
sent_to_replicas(const struct fsdp *f, double numel, uint32_t replicas)
{
    exo_strategy_edge across[EXO_STRATEGY_MAX_EDGES];
    double sent = 0;
    if (!f->across.strategy)
        return 2 * (replicas - 1.0) / replicas * numel;
    size_t count = exo_part_edges(&f->across, NULL, 0, (size_t)numel, replicas, across);
    for (size_t i = 0; i < count; i++) {
        double members = across[i].members ? across[i].members : replicas;
        sent += 2 * (members - 1) / members * across[i].elements / (double)across[i].every;
    }
    return sent;
}

static size_t
fsdp_edges(const void *self, const exo_param_info *infos, size_t num_infos, size_t numel,
           uint32_t num_nodes, exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES])
{
    const struct fsdp *f = self;
    const uint32_t size = shard_size(f, num_nodes);
    const double n = num_nodes, g = size, psi = (double)numel;
    const double passes = (stays_open(f) ? 1 : 2) + 1; /* gathers, and the gradients */
    const double matrices = (double)exo_optim_matrices(&f->inner, infos, num_infos, 0, numel);
    double sent =
        (g - 1) / g * (passes * psi + matrices) + sent_to_replicas(f, psi / g, num_nodes / size);
    out[0] = (exo_strategy_edge){.carries = "gradients",
                                 .route = "all_reduce",
                                 .elements = num_nodes > 1 ? sent * n / (2 * (n - 1)) : psi,
                                 .every = 1};
    return 1;
}

/* Whether a strategy exchanges all elements whenever it exchanges any: neither a draw nor fragments. */
static bool
takes_all(const exo_strategy_part *part)
{
    enum {
        NUMEL = 1 << 20,
        REPLICAS = 2
    };
    exo_strategy_edge edges[EXO_STRATEGY_MAX_EDGES];
    size_t count = exo_part_edges(part, NULL, 0, NUMEL, REPLICAS, edges);
    bool all = true;
    for (size_t i = 0; i < count; i++)
        all = all && edges[i].elements >= NUMEL;
    return all;
}

/* A strategy among replicas sees shards, so it must not look where an element is in them: nodes with other
 * parts of the model have some of the same elements at other places, and these must stay equal. */
static bool
fsdp_is_elementwise(const void *self)
{
    const exo_strategy_part *across = &((const struct fsdp *)self)->across;
    const exo_strategy_class *c = across->strategy;
    return !c || ((c->is_elementwise ? c->is_elementwise(across->self) : c->elementwise) &&
                  takes_all(across));
}

static uint32_t
fsdp_open_units(const void *self)
{
    const struct fsdp *f = self;
    return stays_open(f) ? 0 : f->prefetch ? 2 : 1;
}

static void
fsdp_state(void *self, exo_state *state)
{
    struct fsdp *f = self;
    exo_state_add_array(state, "fsdp.params", f->params.all);
    exo_state_add(state, "fsdp.order", EXO_I32, f->order, f->room);
    exo_state_add_u64(state, "fsdp.uses", &f->uses);
    exo_state_add_u64(state, "fsdp.has_order", &f->has_order);
    for (size_t u = 0; u < f->num_units; u++) {
        char name[64];
        snprintf(name, sizeof name, "fsdp.optim.%zu", u);
        exo_optim_state(f->optims[u], name, state);
    }
    if (f->across.strategy)
        exo_part_state(&f->across, state);
}

/* The replicas of a run with `across` differ, so there is no whole. */
static exo_status
fsdp_check_whole(const void *self, exo_err *err)
{
    const struct fsdp *f = self;
    return f->across.strategy
               ? exo_fail(err, EXO_UNSUPPORTED,
                          "fsdp: with across: %s the groups have states of their own, which "
                          "another number of nodes cannot continue",
                          f->across.strategy->name)
               : EXO_OK;
}

static exo_status
fsdp_to_whole(void *self, exo_node *node, exo_whole *whole, exo_err *err)
{
    struct fsdp *f = self;
    (void)node;
    exo_status st = EXO_OK;
    for (size_t u = 0; st == EXO_OK && u < f->num_units; u++)
        st = exo_whole_put(whole, exo_shards_first(&f->params, u), exo_shards_of(&f->params, u),
                           f->optims[u], err);
    return st;
}

/* The order of the units is learned again in the next step. */
static exo_status
fsdp_from_whole(void *self, exo_node *node, const exo_whole *whole, exo_err *err)
{
    struct fsdp *f = self;
    (void)node;
    exo_status st = EXO_OK;
    for (size_t u = 0; st == EXO_OK && u < f->num_units; u++)
        st = exo_whole_get(whole, exo_shards_first(&f->params, u), exo_shards_of(&f->params, u),
                           f->optims[u], err);
    return st;
}

static void
fsdp_leave(void *self)
{
    struct fsdp *f = self;
    for (size_t u = 0; f->units && u < f->num_units; u++) {
        exo_request_cancel(&f->units[u].gather);
        exo_request_cancel(&f->units[u].reduce);
        exo_request_cancel(&f->units[u].mean);
    }
    exo_part_leave(&f->across);
    exo_group_close(&f->replicas);
    close_circle(&f->step);
    close_circle(&f->look);
}

static void
fsdp_release(void *self)
{
    struct fsdp *f = self;
    exo_optim_spec_release(&f->inner);
    exo_part_release(&f->across);
    for (size_t u = 0; f->units && u < f->num_units; u++) {
        exo_array_release(&f->units[u].here);
        exo_array_release(&f->units[u].here_grads);
    }
    for (size_t u = 0; f->optims && u < f->num_units; u++)
        exo_optim_free(&f->optims[u]);
    exo_free(f->optims);
    exo_free(f->units);
    exo_free(f->order);
    exo_shards_release(&f->params);
    exo_shards_release(&f->grads);
}

const exo_strategy_class exo_fsdp_class = {
    .name = "fsdp",
    .help = "ddp whose nodes keep a shard of parameters, gradients and optimizer (ZeRO)",
    .state_size = sizeof(struct fsdp),
    .init = fsdp_init,
    .check = fsdp_check,
    .start = fsdp_start,
    .keep = fsdp_keep,
    .before_use = fsdp_before_use,
    .after_use = fsdp_after_use,
    .gradient_ready = fsdp_gradient_ready,
    .step = fsdp_step,
    .model_edges = fsdp_edges,
    .open_units = fsdp_open_units,
    .is_elementwise = fsdp_is_elementwise,
    .state = fsdp_state,
    .leave = fsdp_leave,
    .to_whole = fsdp_to_whole,
    .from_whole = fsdp_from_whole,
    .check_whole = fsdp_check_whole,
    .release = fsdp_release,
};
