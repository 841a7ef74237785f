/* DDP, distributed data parallelism: all nodes take the mean of their gradients, and then the same
 * step. Parameters that are equal at the start stay equal to the bit. EXO Gym calls it
 * SimpleReduce.
 *
 * With `bucket_size` the gradients are cut into buckets of whole parameters, from the last
 * parameter to the first, which is the order of backward. The all-reduce of a bucket begins when
 * its gradients are final (Li et al., 2020, arXiv:2006.15704). Buckets begin in the same order on
 * all nodes, even if gradients do not become final in that order. The sums are those of a single
 * all-reduce.
 *
 * Traffic of a node in a step: 2 Psi (N - 1) / N elements.
 */
#include "strategies/builtin.h"

#include <exogym/memory.h>

struct bucket {
    size_t first, count; /* elements of the gradients */
    size_t left;         /* those of them that are not final yet */
    exo_request *request;
};

struct ddp {
    uint64_t bucket_size;   /* bytes; 0: one all-reduce after backward */
    struct bucket *buckets; /* (num_buckets) in the order in which they begin; owned */
    size_t num_buckets;
    size_t begun; /* buckets that have begun in this step */
    exo_meter *early, *late;
};

static const exo_meter_class early_buckets = {
    .name = "early_buckets",
    .unit = "buckets",
    .help = "buckets of gradients whose mean was begun within backward"};
static const exo_meter_class late_buckets = {
    .name = "late_buckets",
    .unit = "buckets",
    .help = "buckets of gradients whose mean was begun after backward"};

static exo_status
ddp_init(void *self, exo_config *config, exo_err *err)
{
    struct ddp *d = self;
    return exo_config_bytes(config, "bucket_size", 0, 0, UINT64_MAX, &d->bucket_size, err);
}

/* Cuts the flat gradients into buckets, from the end to the beginning. Returns their number, and
 * writes them to `out` unless it is NULL. */
static size_t
cut_buckets(const struct ddp *d, const exo_node *node, struct bucket *out)
{
    size_t count = 0, end = node->numel;
    for (size_t i = node->num_infos; i > 0 && end > 0; i--) {
        const exo_param_info *info = &node->infos[i - 1];
        size_t size = end - info->offset;
        if (info->is_buffer || (size * sizeof(float) < d->bucket_size && info->offset > 0))
            continue;
        if (out)
            out[count] = (struct bucket){.first = info->offset, .count = size, .left = size};
        end = info->offset;
        count++;
    }
    return count;
}

static exo_status
ddp_start(void *self, exo_node *node, exo_err *err)
{
    struct ddp *d = self;
    if (d->bucket_size == 0 || node->num_nodes == 1)
        return EXO_OK;
    d->num_buckets = cut_buckets(d, node, NULL);
    d->buckets = exo_calloc(d->num_buckets + 1, sizeof *d->buckets);
    if (!d->buckets)
        return exo_fail(err, EXO_NOMEM, "ddp: no memory for %zu buckets", d->num_buckets);
    cut_buckets(d, node, d->buckets);
    exo_status st = exo_meter_declare(&d->early, node->meters, &early_buckets, err);
    return st == EXO_OK ? exo_meter_declare(&d->late, node->meters, &late_buckets, err) : st;
}

static exo_status
begin_next(struct ddp *d, exo_node *node, exo_err *err)
{
    struct bucket *b = &d->buckets[d->begun++];
    return exo_comm_begin_all_reduce(
        &b->request, node->group, exo_array_part(node->grads, b->first, b->count), EXO_MEAN, err);
}

static exo_status
ddp_gradient_ready(void *self, exo_node *node, size_t first, size_t count, exo_err *err)
{
    struct ddp *d = self;
    exo_status st = EXO_OK;
    for (size_t i = d->begun; i < d->num_buckets; i++)
        if (first >= d->buckets[i].first && first - d->buckets[i].first < d->buckets[i].count)
            d->buckets[i].left -= count;
    for (; st == EXO_OK && d->begun < d->num_buckets && d->buckets[d->begun].left == 0;
         exo_meter_add(d->early, 1))
        st = begin_next(d, node, err);
    return st;
}

/* Begins the remaining buckets, and waits for all. */
static exo_status
end_buckets(struct ddp *d, exo_node *node, exo_err *err)
{
    exo_status st = EXO_OK;
    for (; st == EXO_OK && d->begun < d->num_buckets; exo_meter_add(d->late, 1))
        st = begin_next(d, node, err);
    for (size_t i = 0; i < d->num_buckets; i++) {
        struct bucket *b = &d->buckets[i];
        exo_status ended = exo_request_wait(&b->request, st == EXO_OK ? err : NULL);
        st = st == EXO_OK ? ended : st;
        b->left = b->count;
    }
    d->begun = 0;
    return st;
}

static exo_status
ddp_step(void *self, exo_node *node, exo_err *err)
{
    struct ddp *d = self;
    exo_status st = EXO_OK;
    if (d->num_buckets > 0)
        st = end_buckets(d, node, err);
    else if (node->num_nodes > 1)
        st = exo_all_reduce(node->group, node->grads, EXO_MEAN, err);
    return st == EXO_OK ? exo_node_inner_step(node, err) : st;
}

/* An error may have left requests, whose gradients are about to go. */
static void
ddp_leave(void *self)
{
    struct ddp *d = self;
    for (size_t i = 0; d->buckets && i < d->num_buckets; i++)
        exo_request_cancel(&d->buckets[i].request);
}

static void
ddp_release(void *self)
{
    exo_free(((struct ddp *)self)->buckets);
}

static bool
ddp_steps_alone(const void *self, uint32_t num_nodes)
{
    (void)self;
    return num_nodes == 1;
}

static size_t
ddp_edges(const void *self, size_t numel, uint32_t num_nodes,
          exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES])
{
    (void)self;
    (void)num_nodes;
    out[0] = (exo_strategy_edge){
        .carries = "gradients", .route = "all_reduce", .elements = (double)numel, .every = 1};
    return 1;
}

static bool
ddp_elastic(const void *self)
{
    (void)self;
    return true;
}

static exo_status
ddp_to_whole(void *self, exo_node *node, exo_whole *whole, exo_err *err)
{
    (void)self;
    return exo_whole_put(whole, 0, node->params, node->optim, err);
}

static exo_status
ddp_from_whole(void *self, exo_node *node, const exo_whole *whole, exo_err *err)
{
    (void)self;
    return exo_whole_get(whole, 0, node->params, node->optim, err);
}

const exo_strategy_class exo_ddp_class = {
    .name = "ddp",
    .help = "all-reduce the gradients at every step",
    .state_size = sizeof(struct ddp),
    .init = ddp_init,
    .start = ddp_start,
    .step = ddp_step,
    .gradient_ready = ddp_gradient_ready,
    .leave = ddp_leave,
    .release = ddp_release,
    .steps_alone = ddp_steps_alone,
    .edges = ddp_edges,
    .elastic = ddp_elastic,
    .elementwise = true,
    .to_whole = ddp_to_whole,
    .from_whole = ddp_from_whole,
};
