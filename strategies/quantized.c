/* DDP in 8 bits: gradients are cut into chunks. The scale of a chunk is its largest magnitude on any
 * node, so that all nodes have the same scales. Each node rounds its gradients to integers in
 * -127..127 of the scale; their sum, in 32 bits, has no further error:
 *
 *     scale = max over nodes of max |g|                  of each chunk
 *     q     = round(g / scale * 127)                     int8
 *     g     = (sum over nodes of q) scale / (127 N)
 *
 * With `error_feedback` the rounding error of a step is added to the gradients of the next one.
 *
 * Traffic of a node in a step: (N - 1) (Psi + 4 C) bytes, with C chunks. ddp sends 8 Psi (N - 1) /
 * N: this is a quarter of it with two nodes, half with four, the same with eight.
 *
 * Owner of the state: the node's compute lane. Read next: include/exogym/compress.h.
 */
#include "strategies/builtin.h"

#include <exogym/compress.h>

#include "strategies/feedback.h"

struct quantized {
    uint64_t chunk; /* gradients that share a scale */
    bool feeds_back;
    exo_commons *scales; /* (nodes, chunks) the largest magnitudes on each node; owned */
    exo_commons *all; /* (nodes, numel) int8: the gradients of all nodes, and their mean; owned */
    exo_feedback feedback;
    exo_array own; /* (numel) what the others get of this node's gradients; with feedback */
};

static exo_status
quantized_init(void *self, exo_config *config, exo_err *err)
{
    struct quantized *s = self;
    exo_status st = exo_config_u64(config, "chunk", 256, 1, UINT32_MAX, &s->chunk, err);
    return st == EXO_OK ? exo_config_bool(config, "error_feedback", false, &s->feeds_back, err)
                        : st;
}

static size_t
chunks_of(const struct quantized *s, size_t numel)
{
    return numel / (size_t)s->chunk + (numel % s->chunk > 0);
}

static exo_status
quantized_start(void *self, exo_node *node, exo_err *err)
{
    struct quantized *s = self;
    exo_device *device = node->grads.device;
    const size_t chunks = chunks_of(s, node->numel);
    exo_status st =
        exo_commons_new(&s->scales, node->group, device, EXO_F32, node->num_nodes * chunks, 0, err);
    if (st == EXO_OK)
        st = exo_commons_new(&s->all, node->group, device, EXO_I8, node->num_nodes * node->numel,
                             node->numel, err);
    if (st == EXO_OK && s->feeds_back)
        st = exo_feedback_init(&s->feedback, device, node->numel, err);
    return st == EXO_OK && s->feeds_back
               ? exo_array_init(&s->own, device, EXO_F32, node->numel, err)
               : st;
}

/* What the mean of a step is made of. */
struct sent {
    const struct quantized *state;
    uint32_t nodes;
};

static exo_status
mean_of_all(void *context, exo_array out, exo_err *err)
{
    const struct sent *sent = context;
    const struct quantized *s = sent->state;
    (void)err;
    exo_vec_dequantize(out, exo_commons_parts(s->all), exo_commons_parts(s->scales),
                       (size_t)s->chunk, 127 * (float)sent->nodes);
    return EXO_OK;
}

/* Makes the gradients the mean of what all nodes send of theirs. */
static exo_status
exchange(struct quantized *s, const exo_node *node, exo_err *err)
{
    const size_t numel = node->numel, chunks = chunks_of(s, numel), chunk = (size_t)s->chunk;
    const exo_array all = exo_commons_parts(s->all), scales = exo_commons_parts(s->scales),
                    own = exo_array_part(all, node->rank * numel, numel);
    exo_vec_largest(exo_array_part(scales, node->rank * chunks, chunks), node->grads, chunk);
    exo_status st = exo_all_gather(node->group, scales, err);
    if (st != EXO_OK)
        return st;
    exo_vec_quantize(own, node->grads, scales, chunk);
    if (s->feeds_back) {
        exo_vec_dequantize(s->own, own, scales, chunk, 127);
        exo_feedback_keep(&s->feedback, s->own);
    }
    st = exo_all_gather(node->group, all, err);
    return st == EXO_OK ? exo_commons_compute(s->all, node->grads, mean_of_all,
                                              &(struct sent){s, node->num_nodes}, err)
                        : st;
}

static exo_status
quantized_step(void *self, exo_node *node, exo_err *err)
{
    struct quantized *s = self;
    if (s->feeds_back)
        exo_feedback_add(&s->feedback, node->grads);
    exo_status st = exo_commons_take(s->scales, node->group, err);
    if (st == EXO_OK)
        st = exo_commons_take(s->all, node->group, err);
    if (st == EXO_OK)
        st = exchange(s, node, err);
    exo_commons_leave(s->all);
    exo_commons_leave(s->scales);
    return st == EXO_OK ? exo_node_inner_step(node, err) : st;
}

static void
quantized_state(void *self, exo_state *state)
{
    struct quantized *s = self;
    if (s->feeds_back)
        exo_state_add_array(state, "quantized.error", s->feedback.error);
}

static void
quantized_release(void *self)
{
    struct quantized *s = self;
    exo_commons_free(&s->scales);
    exo_commons_free(&s->all);
    exo_array_release(&s->own);
    exo_feedback_release(&s->feedback);
}

static size_t
quantized_edges(const void *self, size_t numel, uint32_t num_nodes,
                exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES])
{
    const double bytes = (double)numel + 4 * (double)chunks_of(self, numel);
    out[0] = (exo_strategy_edge){.carries = "gradients",
                                 .route = "all_reduce",
                                 .elements = num_nodes * bytes / 8,
                                 .every = 1};
    return 1;
}

const exo_strategy_class exo_quantized_class = {
    .name = "quantized",
    .help = "mean of the gradients, in 8 bits with a scale for each chunk",
    .state_size = sizeof(struct quantized),
    .init = quantized_init,
    .start = quantized_start,
    .step = quantized_step,
    .state = quantized_state,
    .release = quantized_release,
    .edges = quantized_edges,
    .by_parts = true,
    .is_ordered = exo_always_ordered,
};
