/* A plugin with the strategy `faulty`: another strategy, in whose rounds the last node sends wrong
 * values. It changes its parameters between the inner step and the round. Options:
 *
 *     fault      noise: numbers from -100 to 100; negative: -20 times the parameters
 *     strategy   the other strategy, with H
 *
 * bench/byzantine.py compiles it. */
#include <exogym/plugin.h>
#include <exogym/rng.h>
#include <exogym/strategy.h>

struct faulty {
    exo_strategy *strategy;
    size_t fault;
    uint64_t interval;
};

enum {
    NOISE,
    NEGATIVE
};

static exo_status
init(void *self, exo_config *config, exo_err *err)
{
    static const char *const faults[] = {[NOISE] = "noise", [NEGATIVE] = "negative", NULL};
    struct faulty *f = self;
    const char *name = NULL;
    exo_config *map = NULL;
    exo_status st = exo_config_choice(config, "fault", NOISE, faults, &f->fault, err);
    if (st == EXO_OK)
        st = exo_config_map(config, "strategy", &map, err);
    if (st == EXO_OK)
        st = exo_config_string(map, "name", NULL, &name, err);
    if (st == EXO_OK)
        st = exo_config_u64(map, "H", 1, 1, UINT64_MAX, &f->interval, err);
    return st == EXO_OK ? exo_strategy_new(&f->strategy, name, map, err) : st;
}

static exo_status
start(void *self, exo_node *node, exo_err *err)
{
    exo_optim_free(&node->optim);
    return exo_strategy_start(((struct faulty *)self)->strategy, node, err);
}

static exo_status
step(void *self, exo_node *node, exo_err *err)
{
    const struct faulty *f = self;
    exo_status st = exo_node_inner_step(node, err);
    float *theta = exo_array_host(node->params);
    const bool sends = node->rank == node->num_nodes - 1 && (node->step + 1) % f->interval == 0;
    for (size_t j = 0; sends && j < node->numel; j++) {
        exo_rng rng;
        exo_rng_init(&rng, node->seed, EXO_RNG_USER, (uint32_t)node->step, j);
        theta[j] = f->fault == NOISE ? 200 * exo_rng_uniform(&rng) - 100 : -20 * theta[j];
    }
    node->stepped = true; /* it is not taken twice */
    return st == EXO_OK ? exo_strategy_step(f->strategy, node, err) : st;
}

static void
release(void *self)
{
    exo_strategy_free(&((struct faulty *)self)->strategy);
}

static const exo_strategy_class faulty = {.name = "faulty",
                                          .help = "another strategy, with one faulty node",
                                          .state_size = sizeof(struct faulty),
                                          .init = init,
                                          .start = start,
                                          .step = step,
                                          .release = release};

EXO_PLUGIN
{
    return exo_strategy_register(&faulty, err);
}
