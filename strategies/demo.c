/* DeMo, decoupled momentum (Peng et al., 2024, arXiv:2411.19870): each node has a momentum of its
 * own, of which it sends the largest DCT coefficients, and takes a step by the sign of what all have
 * sent. For the chunks of each parameter:
 *
 *     theta = (1 - lr weight_decay) theta
 *     m     = beta m + lr g
 *     q     = the k largest of DCT(m)                each node's own
 *     m     = m - IDCT(q)
 *     q     = of each coefficient, the mean over the nodes that sent it
 *     theta = theta - lr sign(IDCT(q))
 *
 * The last line is a step of the inner optimizer, which is SGD, on sign(IDCT(q)). Parameters of more
 * than two dimensions are matrices of the first one by all others.
 *
 * Traffic of a node in a step: (N - 1) 6 K bytes, rounded up to a multiple of 4 for a message, with
 * K the sum over all chunks of k: a value has 4 bytes and its place in the chunk 2.
 *
 * Owner of the state: the node's compute lane. Read next: include/exogym/compress.h.
 */
#include "strategies/builtin.h"

#include <exogym/compress.h>
#include <exogym/memory.h>

#include "strategies/shapes.h"

enum {
    MOST_CHUNK = 64
};

struct tensor {
    size_t first, count; /* elements of the parameters */
    exo_dct dct;
    exo_sent own, all; /* this node's message, and those of all, without the array */
};

struct demo {
    uint64_t k, chunk;
    float beta, weight_decay;
    struct tensor *tensors; /* (count); owned */
    size_t count;
    exo_array momentum, coefficients; /* (numel) */
    exo_commons *commons;             /* messages (nodes, bytes), and what they say; owned */
};

static exo_status
demo_init(void *self, exo_config *config, exo_err *err)
{
    struct demo *s = self;
    exo_status st = exo_config_u64(config, "k", 32, 1, MOST_CHUNK * MOST_CHUNK, &s->k, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "chunk", 64, 1, MOST_CHUNK, &s->chunk, err);
    if (st == EXO_OK)
        st = exo_config_float(config, "beta", 0.999f, 0, 1, &s->beta, err);
    return st == EXO_OK ? exo_config_float(config, "weight_decay", 0, 0, 1e9, &s->weight_decay, err)
                        : st;
}

static exo_optim_spec
demo_optimizer(void)
{
    return exo_optim_spec_init(EXO_SGD);
}

/* --- Messages --------------------------------------------------------------------------------- */

/* The chunks of a parameter, and the coefficients of each that are sent. */
static size_t
cut(const struct demo *s, exo_shape shape, exo_dct *dct, size_t *k)
{
    *dct = exo_dct_cut(shape.rows, shape.cols, (size_t)s->chunk);
    const size_t size = dct->chunk_rows * dct->chunk_cols;
    *k = s->k < size ? (size_t)s->k : size;
    return shape.rows * shape.cols / size;
}

/* The values in a message. */
static size_t
count_values(const struct demo *s, const exo_param_info *infos, size_t num_infos, size_t numel)
{
    size_t values = 0;
    for (size_t i = 0; i < exo_shape_count(num_infos); i++) {
        exo_dct dct;
        size_t k;
        const size_t chunks = cut(s, exo_shape_at(infos, num_infos, numel, i), &dct, &k);
        values += chunks * k;
    }
    return values;
}

/* All values, all places, and padding. */
static size_t
message_bytes(size_t values)
{
    return (6 * values + 3) / 4 * 4;
}

static void
add_tensor(struct demo *s, exo_shape shape, size_t values, size_t *sent)
{
    struct tensor *t = &s->tensors[s->count++];
    size_t k;
    const size_t chunks = cut(s, shape, &t->dct, &k), bytes = message_bytes(values);
    t->first = shape.first;
    t->count = shape.rows * shape.cols;
    t->all = (exo_sent){.bytes = bytes,
                        .values = 4 * *sent,
                        .places = 4 * values + 2 * *sent,
                        .size = t->count / chunks,
                        .k = k};
    t->own = t->all;
    *sent += chunks * k;
}

static exo_status
demo_start(void *self, exo_node *node, exo_err *err)
{
    struct demo *s = self;
    exo_device *device = node->grads.device;
    const size_t count = exo_shape_count(node->num_infos),
                 values = count_values(s, node->infos, node->num_infos, node->numel);
    size_t sent = 0;
    s->tensors = exo_calloc(count, sizeof *s->tensors);
    if (!s->tensors)
        return exo_fail(err, EXO_NOMEM, "demo: no memory for %zu parameters", count);
    exo_status st = exo_array_init(&s->momentum, device, EXO_F32, node->numel, err);
    if (st == EXO_OK)
        st = exo_array_init(&s->coefficients, device, EXO_F32, node->numel, err);
    if (st == EXO_OK)
        st = exo_commons_new(&s->commons, node->group, device, EXO_U8,
                             node->num_nodes * message_bytes(values), node->numel, err);
    for (size_t i = 0; st == EXO_OK && i < count; i++) {
        const exo_shape shape = exo_shape_at(node->infos, node->num_infos, node->numel, i);
        if (shape.rows > 0)
            add_tensor(s, shape, values, &sent);
    }
    return st;
}

/* --- Steps ------------------------------------------------------------------------------------ */

/* Writes this node's message, and takes from its momentum what that says. Uses the gradients as
 * scratch memory. */
static void
compress(struct demo *s, const exo_node *node)
{
    const exo_array messages = exo_commons_parts(s->commons);
    for (size_t i = 0; i < s->count; i++) {
        struct tensor *t = &s->tensors[i];
        t->own.messages = exo_array_part(messages, node->rank * t->own.bytes, t->own.bytes);
        const exo_array momentum = exo_array_part(s->momentum, t->first, t->count),
                        coefficients = exo_array_part(s->coefficients, t->first, t->count),
                        sent = exo_array_part(node->grads, t->first, t->count);
        exo_vec_dct(coefficients, momentum, &t->dct);
        exo_vec_top_k(&t->own, coefficients);
        exo_vec_sent_mean(coefficients, &t->own);
        exo_vec_dct_inverse(sent, coefficients, &t->dct);
    }
    exo_vec_sub(s->momentum, s->momentum, node->grads);
}

/* The sign of what all nodes have sent. */
static exo_status
decompress(void *self, exo_array out, exo_err *err)
{
    struct demo *s = self;
    (void)err;
    for (size_t i = 0; i < s->count; i++) {
        struct tensor *t = &s->tensors[i];
        t->all.messages = exo_commons_parts(s->commons);
        const exo_array coefficients = exo_array_part(s->coefficients, t->first, t->count);
        exo_vec_sent_mean(coefficients, &t->all);
        exo_vec_dct_inverse(exo_array_part(out, t->first, t->count), coefficients, &t->dct);
    }
    exo_vec_sign(out, out);
    return EXO_OK;
}

/* Makes the gradients the sign of what all nodes send. */
static exo_status
exchange(struct demo *s, const exo_node *node, exo_err *err)
{
    exo_status st = exo_commons_take(s->commons, node->group, err);
    if (st != EXO_OK)
        return st;
    compress(s, node);
    st = exo_all_gather(node->group, exo_commons_parts(s->commons), err);
    if (st == EXO_OK)
        st = exo_commons_compute(s->commons, node->grads, decompress, s, err);
    exo_commons_leave(s->commons);
    return st;
}

static exo_status
demo_step(void *self, exo_node *node, exo_err *err)
{
    struct demo *s = self;
    const float lr = exo_node_rate(node);
    /* the node's own gradient; a sign has no norm worth clipping */
    exo_status st = exo_node_clip(node, err);
    if (st != EXO_OK)
        return st;
    if (s->weight_decay > 0)
        exo_vec_scale(node->params, 1 - lr * s->weight_decay);
    exo_vec_scale(s->momentum, s->beta);
    exo_vec_axpy(s->momentum, lr, node->grads);
    st = exchange(s, node, err);
    if (st != EXO_OK)
        return st;
    exo_optim_step(node->optim, node->params, node->grads, lr);
    return exo_optim_result(node->optim, err);
}

static void
demo_state(void *self, exo_state *state)
{
    exo_state_add_array(state, "demo.momentum", ((struct demo *)self)->momentum);
}

static void
demo_release(void *self)
{
    struct demo *s = self;
    exo_free(s->tensors);
    exo_array_release(&s->momentum);
    exo_array_release(&s->coefficients);
    exo_commons_free(&s->commons);
}

static size_t
demo_edges(const void *self, const exo_param_info *infos, size_t num_infos, size_t numel,
           uint32_t num_nodes, exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES])
{
    const size_t bytes = message_bytes(count_values(self, infos, num_infos, numel));
    out[0] = (exo_strategy_edge){.carries = "gradients",
                                 .route = "all_reduce",
                                 .elements = num_nodes * (double)bytes / 8,
                                 .every = 1};
    return 1;
}

const exo_strategy_class exo_demo_class = {
    .name = "demo",
    .help = "each node's own momentum, of which the largest DCT coefficients are exchanged",
    .state_size = sizeof(struct demo),
    .init = demo_init,
    .start = demo_start,
    .step = demo_step,
    .state = demo_state,
    .release = demo_release,
    .optimizer = demo_optimizer,
    .model_edges = demo_edges,
    .by_parts = true,
    .is_ordered = exo_always_ordered,
};
