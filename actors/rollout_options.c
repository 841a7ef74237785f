/* The rule of options of policy trainers and their makers that depend on each other or on edges, which
 * the check of a graph applies before a run. A trainer finds the errors when it receives an item. No state. Read next:
 * policy_trainer.c. */
#include <string.h>

#include <exogym/environment.h>

#include "actors/builtin_classes.h"
#include "base/config_edit.h"
#include "graph/spec.h"
#include "graph/warn.h"

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

/* A maker without parameters waits for none. */
static void
warn_of_waits(const exo_graph_spec *spec, uint32_t maker, const exo_graph_warnings *out)
{
    static const char *const keys[] = {"wait_for_parameters", "synchronous"};
    const exo_actor_spec *m = &spec->actors[maker];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        bool set = false;
        if (exo_config_bool(m->config, keys[i], false, &set, NULL) == EXO_OK && set &&
            !exo_graph_edge_at(spec, maker, false, "parameters"))
            exo_graph_warn(out, exo_config_get(m->config, keys[i]),
                           "%s says nothing without an edge that carries parameters to '%s'",
                           keys[i], m->name);
    }
}

/* Trainers without an edge for gradients learn apart, which may be meant, unless they share makers. */
static void
warn_of_apart(const exo_graph_spec *spec, uint32_t trainer, const exo_graph_warnings *out)
{
    const exo_actor_spec *t = &spec->actors[trainer];
    const exo_edge_spec *edge = exo_graph_edge_at(spec, trainer, true, "parameters");
    if (t->count < 2 || !edge || exo_graph_edge_at(spec, trainer, true, "gradients"))
        return;
    size_t makers = spec->actors[edge->to].count, sum = 0;
    for (uint32_t i = 0; i < t->count; i++)
        sum += exo_edge_targets(spec, edge, i, NULL);
    if (sum > makers)
        exo_graph_warn(
            out, t->node,
            "the %u trainers '%s' learn apart, and '%s' plays with the newest version of "
            "any: to let them learn as one, add {from: %s, to: %s, carries: gradients, "
            "route: all_reduce}",
            t->count, t->name, spec->actors[edge->to].name, t->name, t->name);
}

/* A trainer alone receives items in place of those that it drops. Makers that wait for every n-th
 * version make none meanwhile, and the proof of the order of ports does not know ages. */
static exo_status
warn_of_drops(const exo_graph_spec *spec, const exo_edge_spec *parameters,
              const exo_graph_warnings *out, exo_err *err)
{
    const exo_actor_spec *m = &spec->actors[parameters->to], *t = &spec->actors[parameters->from];
    bool waits = false,
         joined = t->count > 1 && exo_graph_edge_at(spec, parameters->from, true, "gradients");
    uint64_t oldest = 0;
    exo_status st = exo_config_bool(m->config, "synchronous", false, &waits, err);
    if (st == EXO_OK)
        st = exo_config_u64(t->config, "max_staleness", 0, 0, UINT64_MAX, &oldest, err);
    if (st == EXO_OK && waits && !joined && oldest > 0 && parameters->every - 1 > oldest)
        exo_graph_warn(out, exo_config_get(t->config, "max_staleness"),
                       "this can stall: '%s' waits for one version in %llu, and '%s' drops what it "
                       "makes when it is older than %llu: set max_staleness to at least %llu",
                       m->name, (unsigned long long)parameters->every, t->name,
                       (unsigned long long)oldest, (unsigned long long)(parameters->every - 1));
    return st;
}

/* A trainer learns from the maker's environment, and is evaluated in its own: other options may be meant, as
 * for a test of what was learned. */
static exo_status
warn_of_environments(const exo_edge_spec *experience, const exo_graph_spec *spec,
                     const exo_graph_warnings *out, exo_err *err)
{
    const exo_actor_spec *m = &spec->actors[experience->from], *t = &spec->actors[experience->to];
    exo_config *theirs = exo_config_get(m->config, "environment"),
               *own = exo_config_get(t->config, "environment");
    exo_environment_spec *played = NULL, *learned = NULL;
    char where[256];
    exo_status st = exo_environment_spec_read(&played, m->config, "environment", "cartpole", err);
    if (st == EXO_OK)
        st = exo_environment_spec_read(&learned, t->config, "environment", "cartpole", err);
    if (st == EXO_OK && !exo_environment_spec_same(played, learned)) {
        exo_config_where(theirs ? theirs : m->node, where, sizeof where);
        exo_graph_warn(out, own ? own : t->node,
                       "'%s' is evaluated in '%s' with other options than those with which '%s' "
                       "plays it (%s)",
                       t->name, exo_environment_spec_name(learned), m->name, where);
    }
    exo_environment_spec_free(&played);
    exo_environment_spec_free(&learned);
    return st;
}

static exo_status
warn(const exo_graph_spec *spec, const exo_graph_warnings *out, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t i = 0; i < spec->num_actors; i++) {
        if (spec->actors[i].class == &exo_rollout_maker_class)
            warn_of_waits(spec, i, out);
        if (spec->actors[i].class == &exo_policy_trainer_class)
            warn_of_apart(spec, i, out);
    }
    const exo_edge_spec *end = spec->edges + spec->num_edges;
    for (const exo_edge_spec *e = spec->edges; st == EXO_OK && e < end; e++)
        if (spec->actors[e->from].class == &exo_policy_trainer_class &&
            spec->actors[e->to].class == &exo_rollout_maker_class &&
            strcmp(e->carries, "parameters") == 0)
            st = warn_of_drops(spec, e, out, err);
        else if (spec->actors[e->from].class == &exo_rollout_maker_class &&
                 spec->actors[e->to].class == &exo_policy_trainer_class &&
                 strcmp(e->carries, "experience") == 0)
            st = warn_of_environments(e, spec, out, err);
    return st;
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

const exo_graph_rule exo_rollout_options_rule = {
    .name = "options of policy trainers", .check = check, .warn = warn};
