/* N nodes under a strategy, without model, data or actors: a thread each, over plain buffers and a
 * synthetic loss.
 *
 * The loss of sample k is sum_j a_kj log cosh(theta_j - b_kj), so its gradient is a_kj tanh(theta_j
 * - b_kj): every coordinate has a curvature and a minimum of its own in every sample, and no step
 * is ever zero. Samples are drawn from their number: step t of N nodes with batch B uses samples t
 * N B to (t + 1) N B, node r the r-th B of them, so that one node with batch N B sees exactly what
 * N nodes with batch B see. */
#ifndef EXO_TEST_NODES_H
#define EXO_TEST_NODES_H

#include <exogym/strategy.h>

enum {
    NODES_MAX = 8,
    NODES_SEED = 11 /* of the run */
};

typedef struct nodes_node {
    exo_node node;
    exo_strategy *strategy;
    exo_group *group;
    exo_device *device;
    float *params, *grads; /* on the host; where the device is elsewhere, copies of its own */
    exo_status status;     /* of the last nodes_try  */
    exo_err err;
} nodes_node;

typedef struct nodes {
    uint32_t count;
    size_t numel, batch;
    uint64_t max_steps;
    exo_comm *comm;
    void (*release)(exo_device **device); /* NULL: nothing is to be freed */
    nodes_node each[NODES_MAX];
} nodes;

/* `count` nodes with equal parameters under strategy `name` with `options` (YAML). Asserts that all
 * of it succeeds. */
void nodes_init(nodes *n, uint32_t count, size_t numel, size_t batch, uint64_t max_steps,
                const char *name, const char *options);
/* The same, each node with a device of its own that `device` makes; nodes_release frees it with
 * `release`. */
void nodes_init_on(nodes *n, uint32_t count, size_t numel, size_t batch, uint64_t max_steps,
                   const char *name, const char *options, exo_device *(*device)(void),
                   void (*release)(exo_device **device));
void nodes_release(nodes *n);
/* All nodes make `steps` steps, or fewer: a node that fails tells the others, and each node's
 * status says how it went. */
void nodes_try(nodes *n, uint64_t steps);
/* The same. Asserts that they succeed. */
void nodes_train(nodes *n, uint64_t steps);
/* Writes what a checkpoint holds of every node to "<folder>/<rank>", or reads it back. */
void nodes_save(nodes *n, const char *folder);
void nodes_load(nodes *n, const char *folder);
/* Sent by all nodes together, as the communicator counts. */
uint64_t nodes_bytes(const nodes *n);

/* The initial parameters, and the mean gradient over samples [first, first + count) at `params`, as
 * the nodes have them. */
void nodes_initial(size_t numel, float *params);
void nodes_gradient(size_t numel, const float *params, uint64_t first, size_t count, float *grads);

#endif
