/* 1-bit Adam (Tang et al., 2021, arXiv:2102.02888). Until freeze_step this is ddp with Adam:
 *
 *     m     = beta1 m + (1 - beta1) g                    g: mean over the nodes
 *     v     = beta2 v + (1 - beta2) g^2
 *     theta = (1 - lr weight_decay) theta - lr m / (sqrt(v) + eps)
 *
 * Then v stays as it is, each node adds its own gradient to m, and the nodes agree on m by one bit
 * an element; a single node has nothing to exchange. C(x) = sqrt(mean of x^2) sign(x), and each node is the server of a part of m:
 *
 *     m = m + error                 worker
 *     error = m - C(m)              each parameter has a scale
 *     s = mean over the nodes of C(m) + error            server, of its part of each parameter
 *     error = s - C(s)              each part of a parameter has a scale
 *     m = C(s)                      of all servers
 *
 * As in the paper and in DeepSpeed, the moments' bias is not corrected.
 *
 * Traffic of a node in a step: 2 Psi (N - 1) / N elements until freeze_step. Then 2 (N - 1) messages
 * of B = sum over the parameters of (n / 8 N + 4) bytes, with n their elements; each part has whole
 * bytes, and the sum of their lengths is a multiple of 4.
 *
 * Owner of the state: the node's compute lane. Read next: feedback.h, include/exogym/compress.h.
 */
#include "strategies/builtin.h"

#include <assert.h>

#include <exogym/compress.h>
#include <exogym/memory.h>

#include "base/config_edit.h"
#include "strategies/feedback.h"
#include "strategies/shapes.h"

/* Where a parameter is in a message. All messages, of workers and of servers, are laid out alike:
 * the signs of a part of each parameter, and then a scale for each parameter. */
struct tensor {
    size_t first, count;  /* elements of the parameters */
    exo_signs place;      /* without messages */
    size_t mine, of_mine; /* this server's part: elements of the servers' array */
};

struct onebit_adam {
    uint64_t freeze_step;
    struct tensor *tensors; /* (count); owned */
    size_t count, bytes;    /* parameters; of a message */
    exo_array momentum;     /* (numel) m, the optimizer's */
    exo_feedback worker;    /* (numel) */
    exo_array part;         /* this server's parts of all parameters */
    exo_array part_sent;    /* what the others get of them */
    exo_feedback server;
    exo_array to_servers, of_workers, of_servers; /* (nodes, bytes) messages, by rank */
    exo_array pair;                               /* (2, bytes) */
};

static exo_optim_spec
onebit_optimizer(void)
{
    exo_optim_spec spec = exo_optim_spec_init(EXO_ADAMW);
    spec.weight_decay = 0;
    return spec;
}

/* All parameters must have the same beta1, because all of m decays at once. */
static exo_status
check_optimizer(const exo_optim_spec *spec, exo_err *err)
{
    bool fits = spec->kind == EXO_ADAMW && !spec->amsgrad;
    for (size_t i = 0; fits && i < spec->num_groups; i++) {
        const exo_optim_spec *group = &spec->groups[i].spec;
        fits = !group->amsgrad && !(group->beta1 < spec->beta1 || group->beta1 > spec->beta1);
    }
    return fits ? EXO_OK
                : exo_fail(err, EXO_INVAL,
                           "optimizer: onebit_adam needs adamw without amsgrad, and one beta1 for "
                           "all parameters");
}

static exo_status
onebit_init(void *self, exo_config *config, exo_err *err)
{
    struct onebit_adam *s = self;
    const exo_optim_spec fallback = onebit_optimizer();
    exo_optim_spec spec = fallback;
    exo_status st = exo_config_u64(config, "freeze_step", 100, 1, UINT64_MAX, &s->freeze_step, err);
    if (st == EXO_OK)
        st = exo_optim_spec_read_groups(config, "optimizer", &fallback, &spec, err);
    if (st == EXO_OK && check_optimizer(&spec, err) != EXO_OK) {
        st = EXO_INVAL;
        if (exo_config_get(config, "optimizer"))
            exo_config_add_place(exo_config_get(config, "optimizer"), err);
    }
    exo_optim_spec_release(&spec);
    return st;
}

/* --- Messages --------------------------------------------------------------------------------- */

/* The elements of a parameter that one server has: whole bytes of signs. */
static size_t
chunk_of(size_t count, uint32_t num_nodes)
{
    return (count + 8 * (size_t)num_nodes - 1) / (8 * (size_t)num_nodes) * 8;
}

/* The bytes of a message; *scales: where its scales begin. */
static size_t
message_bytes(const exo_param_info *infos, size_t num_infos, size_t numel, uint32_t num_nodes,
              size_t *scales)
{
    size_t signs = 0, tensors = 0;
    for (size_t i = 0; i < exo_shape_count(num_infos); i++) {
        const exo_shape shape = exo_shape_at(infos, num_infos, numel, i);
        signs += chunk_of(shape.rows * shape.cols, num_nodes) / 8;
        tensors += shape.rows > 0;
    }
    *scales = (signs + 3) / 4 * 4;
    return *scales + 4 * tensors;
}

/* Lays out the messages. Returns the elements of which this node is the server. */
static size_t
lay_out(struct onebit_adam *s, const exo_node *node, size_t scales)
{
    size_t signs = 0, mine = 0;
    for (size_t i = 0; i < exo_shape_count(node->num_infos); i++) {
        const exo_shape shape = exo_shape_at(node->infos, node->num_infos, node->numel, i);
        const size_t count = shape.rows * shape.cols, chunk = chunk_of(count, node->num_nodes),
                     before = node->rank * chunk, left = count > before ? count - before : 0;
        if (count == 0)
            continue;
        struct tensor *t = &s->tensors[s->count];
        *t = (struct tensor){.first = shape.first,
                             .count = count,
                             .place = {.bytes = s->bytes,
                                       .signs = signs,
                                       .scale = scales + 4 * s->count++,
                                       .chunk = chunk},
                             .mine = mine,
                             .of_mine = left < chunk ? left : chunk};
        signs += chunk / 8;
        mine += t->of_mine;
    }
    return mine;
}

static exo_status
start_arrays(struct onebit_adam *s, const exo_node *node, size_t mine, exo_err *err)
{
    exo_device *device = node->grads.device;
    exo_array *const messages[] = {&s->to_servers, &s->of_workers, &s->of_servers};
    exo_status st = exo_feedback_init(&s->worker, device, node->numel, err);
    if (st == EXO_OK)
        st = exo_feedback_init(&s->server, device, mine, err);
    if (st == EXO_OK)
        st = exo_array_init(&s->part, device, EXO_F32, mine, err);
    if (st == EXO_OK)
        st = exo_array_init(&s->part_sent, device, EXO_F32, mine, err);
    for (size_t i = 0; st == EXO_OK && i < 3; i++)
        st = exo_array_init(messages[i], device, EXO_U8, node->num_nodes * s->bytes, err);
    return st == EXO_OK ? exo_array_init(&s->pair, device, EXO_U8, 2 * s->bytes, err) : st;
}

static exo_status
onebit_start(void *self, exo_node *node, exo_err *err)
{
    struct onebit_adam *s = self;
    exo_array squares;
    size_t scales, count = exo_shape_count(node->num_infos);
    exo_status st = check_optimizer(&node->inner, err); /* which may be that of islands */
    if (st != EXO_OK)
        return st;
    const bool adam = exo_optim_moments(node->optim, &s->momentum, &squares);
    assert(adam);
    (void)adam;
    s->tensors = exo_calloc(count, sizeof *s->tensors);
    if (!s->tensors)
        return exo_fail(err, EXO_NOMEM, "onebit_adam: no memory for %zu parameters", count);
    s->bytes = message_bytes(node->infos, node->num_infos, node->numel, node->num_nodes, &scales);
    return start_arrays(s, node, lay_out(s, node, scales), err);
}

static exo_array
message(const struct onebit_adam *s, exo_array messages, uint32_t rank)
{
    return exo_array_part(messages, rank * s->bytes, s->bytes);
}

static exo_signs
signs_of(const struct tensor *t, exo_array messages)
{
    exo_signs signs = t->place;
    signs.messages = messages;
    return signs;
}

/* --- Partners --------------------------------------------------------------------------------- */

/* The partner of a rank in a round, `rank` itself if it has none. In as many rounds as there are
 * nodes, less one if their number is even, each node meets each other once: all pairs of a round
 * have the sum of their ranks in common, modulo the rounds. */
static uint32_t
partner_of(uint32_t rank, uint32_t num_nodes, uint32_t round)
{
    const uint32_t rounds = num_nodes - (num_nodes % 2 == 0);
    if (rank == rounds) { /* the last of an even number meets those that meet nobody */
        for (uint32_t other = 0; other < rounds; other++)
            if (2 * other % rounds == round)
                return other;
    }
    const uint32_t other = (round + rounds - rank) % rounds;
    return other == rank && rounds < num_nodes ? rounds : other;
}

/* Gives a message to a node, and gets one from it. */
static exo_status
swap(const struct onebit_adam *s, const exo_node *node, uint32_t partner, exo_err *err)
{
    const bool first = node->rank < partner;
    const uint32_t ranks[] = {first ? node->rank : partner, first ? partner : node->rank};
    exo_group *group = NULL;
    exo_vec_copy(message(s, s->pair, !first), message(s, s->to_servers, partner));
    exo_status st = exo_group_among(&group, node->group, ranks, 2, err);
    if (st == EXO_OK)
        st = exo_all_gather(group, s->pair, err);
    exo_group_close(&group);
    if (st == EXO_OK)
        exo_vec_copy(message(s, s->of_workers, partner), message(s, s->pair, first));
    return st;
}

static exo_status
send_to_servers(const struct onebit_adam *s, const exo_node *node, exo_err *err)
{
    const uint32_t rounds = node->num_nodes - (node->num_nodes % 2 == 0);
    exo_status st = EXO_OK;
    exo_vec_copy(message(s, s->of_workers, node->rank), message(s, s->to_servers, node->rank));
    for (uint32_t round = 0; st == EXO_OK && round < rounds; round++) {
        const uint32_t partner = partner_of(node->rank, node->num_nodes, round);
        if (partner != node->rank)
            st = swap(s, node, partner, err);
    }
    return st;
}

/* --- Steps ------------------------------------------------------------------------------------ */

/* Adds the worker's error to m, and writes the messages to the servers. The gradients become what
 * these get. */
static void
compress_worker(struct onebit_adam *s, const exo_node *node)
{
    exo_feedback_add(&s->worker, s->momentum);
    for (size_t i = 0; i < s->count; i++) {
        const struct tensor *t = &s->tensors[i];
        const exo_signs signs = signs_of(t, s->to_servers);
        exo_vec_sign_pack(&signs, exo_array_part(s->momentum, t->first, t->count));
        exo_vec_sign_unpack(exo_array_part(node->grads, t->first, t->count), &signs);
    }
    exo_feedback_keep(&s->worker, node->grads);
}

/* Makes this server's message of what the workers have sent it. */
static void
compress_server(struct onebit_adam *s, const exo_node *node)
{
    const exo_array own = message(s, s->of_servers, node->rank);
    for (size_t i = 0; i < s->count; i++) {
        const struct tensor *t = &s->tensors[i];
        const exo_signs signs = signs_of(t, s->of_workers);
        exo_vec_sign_mean(exo_array_part(s->part, t->mine, t->of_mine), &signs);
    }
    exo_feedback_add(&s->server, s->part);
    for (size_t i = 0; i < s->count; i++) {
        const struct tensor *t = &s->tensors[i];
        const exo_signs signs = signs_of(t, own);
        exo_vec_sign_pack(&signs, exo_array_part(s->part, t->mine, t->of_mine));
        exo_vec_sign_unpack(exo_array_part(s->part_sent, t->mine, t->of_mine), &signs);
    }
    exo_feedback_keep(&s->server, s->part_sent);
}

/* m becomes what all servers have sent. */
static exo_status
exchange(struct onebit_adam *s, const exo_node *node, exo_err *err)
{
    compress_worker(s, node);
    exo_status st = send_to_servers(s, node, err);
    if (st != EXO_OK)
        return st;
    compress_server(s, node);
    st = exo_all_gather(node->group, s->of_servers, err);
    for (size_t i = 0; st == EXO_OK && i < s->count; i++) {
        const struct tensor *t = &s->tensors[i];
        const exo_signs signs = signs_of(t, s->of_servers);
        exo_vec_sign_unpack(exo_array_part(s->momentum, t->first, t->count), &signs);
    }
    return st;
}

static exo_status
onebit_step(void *self, exo_node *node, exo_err *err)
{
    struct onebit_adam *s = self;
    const bool frozen = node->step >= s->freeze_step;
    const float lr = exo_node_rate(node), beta1 = (float)node->inner.beta1;
    exo_status st = EXO_OK;
    if (!frozen)
        st = exo_all_reduce(node->group, node->grads, EXO_MEAN, err);
    if (st == EXO_OK)
        st = exo_node_clip(node, err);
    if (st == EXO_OK && frozen) {
        exo_vec_scale(s->momentum, beta1);
        exo_vec_axpy(s->momentum, (float)(1 - node->inner.beta1), node->grads);
        st = node->num_nodes > 1 ? exchange(s, node, err) : EXO_OK;
    }
    if (st != EXO_OK)
        return st;
    exo_optim_step_uncorrected(node->optim, node->params, node->grads, lr, frozen);
    return exo_optim_result(node->optim, err);
}

static void
onebit_state(void *self, exo_state *state)
{
    struct onebit_adam *s = self; /* m and v are the optimizer's */
    exo_state_add_array(state, "onebit_adam.worker_error", s->worker.error);
    exo_state_add_array(state, "onebit_adam.server_error", s->server.error);
}

static void
onebit_release(void *self)
{
    struct onebit_adam *s = self;
    exo_free(s->tensors);
    exo_feedback_release(&s->worker);
    exo_feedback_release(&s->server);
    exo_array_release(&s->part);
    exo_array_release(&s->part_sent);
    exo_array_release(&s->to_servers);
    exo_array_release(&s->of_workers);
    exo_array_release(&s->of_servers);
    exo_array_release(&s->pair);
}

/* Declares the steps from freeze_step on. */
static size_t
onebit_edges(const void *self, const exo_param_info *infos, size_t num_infos, size_t numel,
             uint32_t num_nodes, exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES])
{
    size_t scales;
    (void)self;
    const size_t bytes = message_bytes(infos, num_infos, numel, num_nodes, &scales);
    out[0] = (exo_strategy_edge){.carries = "gradients",
                                 .route = "all_reduce",
                                 .elements = num_nodes * 2 * (double)bytes / 8,
                                 .every = 1};
    return 1;
}

const exo_strategy_class exo_onebit_adam_class = {
    .name = "onebit_adam",
    .help = "Adam, whose momentum is exchanged by its signs after a warm-up",
    .state_size = sizeof(struct onebit_adam),
    .init = onebit_init,
    .start = onebit_start,
    .step = onebit_step,
    .state = onebit_state,
    .release = onebit_release,
    .optimizer = onebit_optimizer,
    .model_edges = onebit_edges,
    .by_parts = true,
};
