/* Metrics of your own: a plugin, built outside exogym against the public headers alone. It is DDP
 * that measures the gradient noise scale (McCandlish et al., 2018, arXiv:1812.06162, appendix A.1).
 * Let g1 be the squared norm of one node's gradient, gN that of the mean over N nodes, G2 that of
 * the true gradient, and S the noise, in units of a node's batch:
 *
 *     G2 = (N gN - g1) / (N - 1)        S = (g1 - gN) N / (N - 1)        scale = S / G2
 *
 * S and G2 are smoothed over steps, each by itself. While a step has far fewer than `scale`
 * batches, twice as many nodes need about half as many steps. With far more batches the gain is
 * small. */
#include <exogym/exogym.h>

#include <math.h>

static const exo_meter_class noise_scale = {
    .name = "noise_scale",
    .unit = "batches",
    .help = "batches in a step beyond which more of them help less",
    .kind = EXO_GAUGE};
static const exo_meter_class gradient_norm = {.name = "gradient_norm",
                                              .unit = "1",
                                              .help =
                                                  "norms of this node's gradients, before the mean",
                                              .kind = EXO_HISTOGRAM,
                                              .bounds = (const double[]){0.01, 0.1, 1, 10, 100},
                                              .num_bounds = 5};
static const exo_meter_class agreements = {
    .name = "agreements",
    .unit = "steps",
    .help = "steps whose mean kept more than half of this node's squared norm"};

struct ddp_noise {
    exo_meter *scale, *norms, *agreements;
    float means[2]; /* the smoothed G2 and S */
    double smoothing;
};

static exo_status
init(void *self, exo_config *config, exo_err *err)
{
    struct ddp_noise *n = self;
    return exo_config_double(config, "smoothing", 0.95, 0, 0.9999, &n->smoothing, err);
}

static exo_status
start(void *self, exo_node *node, exo_err *err)
{
    struct ddp_noise *n = self;
    exo_status st = exo_meter_declare(&n->scale, node->meters, &noise_scale, err);
    if (st == EXO_OK)
        st = exo_meter_declare(&n->norms, node->meters, &gradient_norm, err);
    return st == EXO_OK ? exo_meter_declare(&n->agreements, node->meters, &agreements, err) : st;
}

static exo_status
step(void *self, exo_node *node, exo_err *err)
{
    struct ddp_noise *n = self;
    double N = (double)node->num_nodes, own = 0, mean = 0;
    exo_status st = exo_vec_sum_squares(node->grads, 0, &own, err);
    if (st == EXO_OK)
        st = exo_all_reduce(node->group, node->grads, EXO_MEAN, err);
    if (st == EXO_OK)
        st = exo_vec_sum_squares(node->grads, 0, &mean, err);
    if (st != EXO_OK)
        return st;

    exo_meter_observe(n->norms, sqrt(own));
    exo_meter_add(n->agreements, mean > own / 2);
    if (node->num_nodes > 1) {
        n->means[0] +=
            (float)((1 - n->smoothing) * ((N * mean - own) / (N - 1) - (double)n->means[0]));
        n->means[1] +=
            (float)((1 - n->smoothing) * ((own - mean) * N / (N - 1) - (double)n->means[1]));
        exo_meter_set(n->scale, n->means[0] > 0 ? (double)(n->means[1] / n->means[0]) : NAN);
    }
    return exo_node_inner_step(node, err);
}

static void
state(void *self, exo_state *state)
{
    exo_state_add(state, "ddp_noise.means", EXO_F32, ((struct ddp_noise *)self)->means, 2);
}

static const exo_strategy_class ddp_noise = {.name = "ddp_noise",
                                             .help = "ddp that measures the noise of its gradients",
                                             .state_size = sizeof(struct ddp_noise),
                                             .init = init,
                                             .start = start,
                                             .step = step,
                                             .state = state};

EXO_PLUGIN
{
    return exo_strategy_register(&ddp_noise, err);
}
