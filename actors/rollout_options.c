/* The rule of options of policy trainers that depend on their makers, which the check of a graph
 * applies before a run. A trainer finds the same when it receives an item. No state. Read next:
 * policy_trainer.c. */
#include <string.h>

#include "actors/builtin_classes.h"
#include "base/config_edit.h"
#include "graph/spec.h"

/* A batch has a sample for each minibatch. */
static exo_status
check_edge(const exo_actor_spec *maker, const exo_actor_spec *trainer, exo_err *err)
{
    uint64_t environments = 0, steps = 0, batch = 0, minibatches = 0;
    const exo_config *place = exo_config_get(trainer->config, "minibatches");
    exo_status st =
        exo_config_u64(maker->config, "environments", 4, 1, UINT32_MAX, &environments, err);
    if (st == EXO_OK)
        st = exo_config_u64(maker->config, "steps", 128, 1, UINT32_MAX, &steps, err);
    if (st == EXO_OK)
        st = exo_config_u64(trainer->config, "batch", 4, 1, UINT32_MAX, &batch, err);
    if (st == EXO_OK)
        st = exo_config_u64(trainer->config, "minibatches", 16, 1, UINT32_MAX, &minibatches, err);
    if (st != EXO_OK || (double)batch * (double)steps * (double)environments >= (double)minibatches)
        return st;
    return exo_config_fail(place ? place : trainer->node, err,
                           "minibatches: %llu is more than the %llu samples of a batch of '%s': "
                           "%llu items of '%s', each of %llu steps in %llu environments",
                           (unsigned long long)minibatches,
                           (unsigned long long)(batch * steps * environments), trainer->name,
                           (unsigned long long)batch, maker->name, (unsigned long long)steps,
                           (unsigned long long)environments);
}

static exo_status
check(const exo_graph_spec *spec, exo_err *err)
{
    exo_status st = EXO_OK;
    const exo_edge_spec *end = spec->edges + spec->num_edges;
    for (const exo_edge_spec *e = spec->edges; st == EXO_OK && e < end; e++) {
        const exo_actor_spec *from = &spec->actors[e->from], *to = &spec->actors[e->to];
        if (from->class == &exo_rollout_maker_class && to->class == &exo_policy_trainer_class &&
            strcmp(e->carries, "experience") == 0)
            st = check_edge(from, to, err);
    }
    return st;
}

const exo_graph_rule exo_rollout_options_rule = {.name = "options of policy trainers",
                                                 .check = check};
