/* N nodes under a strategy, without model, data or actors: one thread each, on plain buffers and a
 * synthetic loss.
 *
 * The loss of sample k is sum_j a_kj log cosh(theta_j - b_kj), so its gradient is a_kj tanh(theta_j
 * - b_kj): each coordinate has its own curvature and minimum in each sample, and no step is zero. A
 * sample is drawn from its number: step t of N nodes with batch B uses the samples t N B to (t + 1)
 * N B, node r the r-th B of them. So one node with batch N B sees exactly the samples of N nodes
 * with batch B. */
#ifndef EXO_TEST_NODES_H
#define EXO_TEST_NODES_H

#include <exogym/strategy.h>

enum {
    NODES_MAX = 8,
    NODES_SEED = 11, /* of the run */
    NODES_INFOS = 6,
    NODES_UNITS = 5 /* units of the model: equal parts of the parameters, from 5 of these on */
};

typedef struct nodes_node {
    exo_node node;
    exo_strategy *strategy;
    exo_group *group;
    exo_device *device;
    exo_unit_info units[NODES_UNITS];
    float *params, *grads; /* on the host; with another device, copies of its arrays */
    exo_status status;     /* of the last nodes_try */
    exo_err err;
} nodes_node;

typedef struct nodes {
    uint32_t count;
    size_t numel, batch;
    uint64_t max_steps;
    exo_comm *comm;
    void (*release)(exo_device **device); /* frees a node's device; NULL: not needed */
    /* As many as fit, for strategies that treat parameters by their shapes: a matrix (12, 8), a
     * vector (7), a matrix (5, 14), a convolution (6, 3, 3, 2), a vector of the rest */
    exo_param_info infos[NODES_INFOS];
    nodes_node each[NODES_MAX];
} nodes;

/* Makes `count` nodes with equal parameters under strategy `name` with `options` (YAML). Aborts on
 * an error. */
void nodes_init(nodes *n, uint32_t count, size_t numel, size_t batch, uint64_t max_steps,
                const char *name, const char *options);
/* The same, each node with its own device, which `device` makes and nodes_release frees with
 * `release`. */
void nodes_init_on(nodes *n, uint32_t count, size_t numel, size_t batch, uint64_t max_steps,
                   const char *name, const char *options, exo_device *(*device)(void),
                   void (*release)(exo_device **device));
void nodes_release(nodes *n);
/* All nodes make `steps` steps, or fewer: a node that fails notifies the others, and each node has
 * its result in `status`. */
void nodes_try(nodes *n, uint64_t steps);
/* The same. Aborts unless all succeed. */
void nodes_train(nodes *n, uint64_t steps);
/* Save each node's checkpoint to "<folder>/<rank>" and then the server's, if there is one, to
 * "<folder>/server"; one of them alone; load all. */
void nodes_save(nodes *n, const char *folder);
void nodes_save_one(nodes *n, uint32_t rank, const char *folder);
void nodes_save_server(nodes *n, const char *folder);
void nodes_load(nodes *n, const char *folder);
/* The bytes that all nodes have sent, as the communicator counts them. */
uint64_t nodes_bytes(const nodes *n);

/* The initial parameters, and the mean gradient at `params` over samples [first, first + count), as
 * the nodes compute them. */
void nodes_initial(size_t numel, float *params);
void nodes_gradient(size_t numel, const float *params, uint64_t first, size_t count, float *grads);

#endif
