/* PowerSGD (Vogels et al., 2019, arXiv:1905.13727): the nodes take the mean of their gradients, of
 * which each matrix M (rows, cols) has a low rank. With Q (rank, cols) from the step before, or
 * random in the first one:
 *
 *     M     = gradient + error
 *     Q     = orthonormal rows of Q
 *     P     = orthonormal columns of the mean of M Q^T over the nodes
 *     Q     = the mean of P^T M
 *     error = M - P Q                         each node's own
 *
 * and P Q is the gradient of the inner step. Q is the transposed one of the paper, which does not
 * orthonormalize it: in exact arithmetic P is the same, and its columns stay independent in fp32.
 * PyTorch's hook does it, too. Vectors, and matrices that two factors would not make smaller, are
 * averaged in full and have no error. A step has two all-reduces, one of all P and all parameters
 * in full, one of all Q.
 *
 * Traffic of a node in a step: 2 (N - 1) / N of rank (rows + cols) elements for each matrix, and of
 * the elements in full.
 *
 * Owner of the state: the node's compute lane. Read next: include/exogym/compress.h.
 */
#include "strategies/builtin.h"

#include <exogym/compress.h>
#include <exogym/memory.h>

#include "strategies/feedback.h"
#include "strategies/shapes.h"

struct matrix {
    size_t first, count;    /* elements of the gradients */
    exo_low_rank *low_rank; /* NULL: in full */
    exo_array left, right;  /* P, Q: parts of the packed arrays. In full, `left` is the gradient */
};

struct powersgd {
    uint64_t rank;
    double min_rate;
    struct matrix *matrices; /* (count); owned */
    size_t count;
    exo_array left, right; /* all of P and what is in full; all of Q */
    exo_feedback feedback;
};

static exo_status
powersgd_init(void *self, exo_config *config, exo_err *err)
{
    struct powersgd *s = self;
    exo_status st = exo_config_u64(config, "rank", 1, 1, UINT32_MAX, &s->rank, err);
    return st == EXO_OK
               ? exo_config_double(config, "min_compression_rate", 1, 0, 1e9, &s->min_rate, err)
               : st;
}

/* The rank of the factors of a parameter; 0: it is sent in full. */
static size_t
rank_of(const struct powersgd *s, exo_shape shape)
{
    size_t least = shape.rows < shape.cols ? shape.rows : shape.cols;
    size_t rank = s->rank < least ? (size_t)s->rank : least;
    double in_full = (double)shape.rows * (double)shape.cols;
    double factors = (double)rank * ((double)shape.rows + (double)shape.cols);
    return shape.rows > 1 && factors * s->min_rate < in_full ? rank : 0;
}

/* The elements that a node brings to the two all-reduces. */
static void
count_elements(const struct powersgd *s, const exo_param_info *infos, size_t num_infos,
               size_t numel, size_t *left, size_t *right)
{
    *left = *right = 0;
    for (size_t i = 0; i < exo_shape_count(num_infos); i++) {
        const exo_shape shape = exo_shape_at(infos, num_infos, numel, i);
        const size_t rank = rank_of(s, shape);
        *left += shape.rows * (rank ? rank : shape.cols);
        *right += rank * shape.cols;
    }
}

static exo_status
add_matrix(struct powersgd *s, const exo_node *node, exo_shape shape, size_t *left, size_t *right,
           exo_err *err)
{
    struct matrix *m = &s->matrices[s->count++];
    const size_t rank = rank_of(s, shape), width = rank ? rank : shape.cols;
    m->first = shape.first;
    m->count = shape.rows * shape.cols;
    m->left = exo_array_part(s->left, *left, shape.rows * width);
    m->right = exo_array_part(s->right, *right, rank * shape.cols);
    *left += m->left.count;
    *right += m->right.count;
    return rank ? exo_low_rank_new(&m->low_rank, node->grads.device, shape.rows, shape.cols, rank,
                                   err)
                : EXO_OK;
}

/* All nodes draw the same numbers. */
static exo_status
draw_factors(const struct powersgd *s, const exo_node *node, exo_err *err)
{
    exo_rng rng;
    exo_status st = EXO_OK;
    exo_rng_init(&rng, node->seed, EXO_RNG_FACTORS, 0, 0);
    for (size_t i = 0; st == EXO_OK && i < s->count; i++)
        if (s->matrices[i].low_rank)
            st = exo_low_rank_draw(s->matrices[i].low_rank, s->matrices[i].right, &rng, err);
    return st;
}

static exo_status
powersgd_start(void *self, exo_node *node, exo_err *err)
{
    struct powersgd *s = self;
    const size_t count = exo_shape_count(node->num_infos);
    size_t left, right;
    count_elements(s, node->infos, node->num_infos, node->numel, &left, &right);
    s->matrices = exo_calloc(count, sizeof *s->matrices);
    if (!s->matrices)
        return exo_fail(err, EXO_NOMEM, "powersgd: no memory for %zu matrices", count);
    exo_status st = exo_array_init(&s->left, node->grads.device, EXO_F32, left, err);
    if (st == EXO_OK)
        st = exo_array_init(&s->right, node->grads.device, EXO_F32, right, err);
    if (st == EXO_OK)
        st = exo_feedback_init(&s->feedback, node->grads.device, node->numel, err);
    left = right = 0;
    for (size_t i = 0; st == EXO_OK && i < count; i++) {
        const exo_shape shape = exo_shape_at(node->infos, node->num_infos, node->numel, i);
        if (shape.rows > 0)
            st = add_matrix(s, node, shape, &left, &right, err);
    }
    return st == EXO_OK ? draw_factors(s, node, err) : st;
}

static exo_array
gradient_of(const struct matrix *m, const exo_node *node)
{
    return exo_array_part(node->grads, m->first, m->count);
}

static exo_status
compute_left(const struct powersgd *s, const exo_node *node, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < s->count; i++) {
        const struct matrix *m = &s->matrices[i];
        if (m->low_rank) {
            exo_low_rank_orthonormalize_q(m->low_rank, m->right);
            st = exo_low_rank_left(m->low_rank, m->left, gradient_of(m, node), m->right, err);
        } else {
            exo_vec_copy(m->left, gradient_of(m, node));
        }
    }
    return st;
}

static exo_status
compute_right(const struct powersgd *s, const exo_node *node, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < s->count; i++) {
        const struct matrix *m = &s->matrices[i];
        if (m->low_rank) {
            exo_low_rank_orthonormalize_p(m->low_rank, m->left);
            st = exo_low_rank_right(m->low_rank, m->right, m->left, gradient_of(m, node), err);
        }
    }
    return st;
}

/* Makes the gradients what all nodes have of them, and keeps the error. */
static exo_status
apply(struct powersgd *s, const exo_node *node, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < s->count; i++) {
        const struct matrix *m = &s->matrices[i];
        if (m->low_rank)
            st = exo_low_rank_product(m->low_rank, gradient_of(m, node), m->left, m->right, err);
    }
    if (st != EXO_OK)
        return st;
    exo_feedback_keep(&s->feedback, node->grads);
    for (size_t i = 0; i < s->count; i++) {
        const struct matrix *m = &s->matrices[i];
        if (m->low_rank)
            continue;
        exo_vec_copy(gradient_of(m, node), m->left);
        exo_vec_fill(exo_array_part(s->feedback.error, m->first, m->count), 0);
    }
    return EXO_OK;
}

static exo_status
powersgd_step(void *self, exo_node *node, exo_err *err)
{
    struct powersgd *s = self;
    exo_feedback_add(&s->feedback, node->grads);
    exo_status st = compute_left(s, node, err);
    if (st == EXO_OK)
        st = exo_all_reduce(node->group, s->left, EXO_MEAN, err);
    if (st == EXO_OK)
        st = compute_right(s, node, err);
    if (st == EXO_OK && s->right.count > 0)
        st = exo_all_reduce(node->group, s->right, EXO_MEAN, err);
    if (st == EXO_OK)
        st = apply(s, node, err);
    return st == EXO_OK ? exo_node_inner_step(node, err) : st;
}

static void
powersgd_state(void *self, exo_state *state)
{
    struct powersgd *s = self;
    exo_state_add_array(state, "powersgd.error", s->feedback.error);
    exo_state_add_array(state, "powersgd.q", s->right);
}

static void
powersgd_release(void *self)
{
    struct powersgd *s = self;
    for (size_t i = 0; i < s->count; i++)
        exo_low_rank_free(&s->matrices[i].low_rank);
    exo_free(s->matrices);
    exo_array_release(&s->left);
    exo_array_release(&s->right);
    exo_feedback_release(&s->feedback);
}

static size_t
powersgd_edges(const void *self, const exo_param_info *infos, size_t num_infos, size_t numel,
               uint32_t num_nodes, exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES])
{
    size_t left, right;
    (void)num_nodes;
    count_elements(self, infos, num_infos, numel, &left, &right);
    out[0] = (exo_strategy_edge){.carries = "gradients",
                                 .route = "all_reduce",
                                 .elements = (double)left + (double)right,
                                 .every = 1};
    return 1;
}

const exo_strategy_class exo_powersgd_class = {
    .name = "powersgd",
    .help = "mean of the gradients, as matrices of a low rank with error feedback",
    .state_size = sizeof(struct powersgd),
    .init = powersgd_init,
    .start = powersgd_start,
    .step = powersgd_step,
    .state = powersgd_state,
    .release = powersgd_release,
    .model_edges = powersgd_edges,
    .by_parts = true,
};
