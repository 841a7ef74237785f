/* Learners that a strategy keeps together: see exo_learner_join. Each learner learns from its own
 * items, as if it were alone, and its model and its critic are nodes of strategies (strategy.h),
 * which take the optimizer's steps and exchange what they exchange.
 *
 * The exchanges of all learners must match. So every update has the same number of steps. A step
 * without answers, or after `target_kl` has ended an update, is idle: it takes part in the exchange
 * only. Read next: learner.c. */
#include <math.h>
#include <string.h>

#include "base/config_edit.h"
#include "experience/learner_impl.h"

/* --- Options ---------------------------------------------------------------------------------- */

/* The optimizer is an option of the learner, for which a strategy has one, too. */
static exo_status
check_keys(exo_config *map, exo_err *err)
{
    static const char *const keys[] = {"optimizer", "max_norm"};
    for (size_t i = 0; map && i < sizeof keys / sizeof *keys; i++)
        if (exo_config_has(map, keys[i]))
            return exo_config_fail(exo_config_get(map, keys[i]), err,
                                   "%s: of a trainer this key stands beside `strategy`", keys[i]);
    return EXO_OK;
}

/* Refuses strategies whose nodes do not have all parameters, or do not step together. */
static exo_status
check_kind(const exo_strategy *s, exo_config *at, exo_err *err)
{
    if (exo_strategy_keeps_units(s) || exo_strategy_awaits_units(s) || exo_strategy_is_apart(s))
        return exo_config_fail(at, err,
                               "strategy '%s': trainers need whole parameters in every step, and "
                               "no server: use ddp, diloco, fedavg, local_sgd, sparta, noloco, ...",
                               exo_strategy_name(s));
    return EXO_OK;
}

static exo_status
make_strategy(exo_student *s, const char *name, exo_config *map, exo_config *at, exo_err *err)
{
    exo_status st = exo_strategy_new(&s->strategy, name, map, err);
    if (st == EXO_NOT_FOUND && err)
        err->code = EXO_INVAL; /* the name is wrong */
    if (st != EXO_OK)
        return st == EXO_NOMEM ? st : exo_config_add_place(at, err);
    st = check_kind(s->strategy, at, err);
    if (st == EXO_OK)
        exo_strategy_set_optimizer(s->strategy, &s->spec);
    return st == EXO_OK ? exo_strategy_check_model(s->strategy, s->model, err) : st;
}

exo_status
exo_learner_read_strategy(exo_learner *l, exo_config *config, exo_err *err)
{
    const char *name = NULL;
    exo_config *node = exo_config_get(config, "strategy"),
               *map = exo_config_is_map(node) ? node : NULL;
    if (!node)
        return EXO_OK;
    exo_status st =
        exo_config_string(map ? map : config, map ? "name" : "strategy", NULL, &name, err);
    if (st == EXO_OK && !name)
        st = exo_config_fail(node, err, "strategy: the key 'name' is missing");
    if (st == EXO_OK && strcmp(name, "ddp") == 0) /* what learners do without a strategy */
        return map ? exo_config_finish(map, err) : EXO_OK;
    if (st == EXO_OK)
        st = check_keys(map, err);
    if (st == EXO_OK)
        st = make_strategy(&l->actor, name, map, node, err);
    if (st == EXO_OK && l->critic.model)
        st = make_strategy(&l->critic, name, map, node, err);
    return st;
}

/* Writes what a strategy exchanges in each of its edges: of two, the first is for the traffic within
 * islands. */
static size_t
write_edges(const exo_strategy *strategy, const exo_param_info *infos, size_t num_infos,
            size_t numel, uint32_t num_nodes, exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES])
{
    size_t count = 1;
    out[0] = (exo_strategy_edge){.carries = "exchange"};
    exo_strategy_edges(strategy, infos, num_infos, numel, num_nodes, out, &count);
    return count;
}

static exo_status
check_edges(const exo_student *s, uint32_t size, exo_err *err)
{
    return exo_strategy_check_edges(s->strategy, exo_model_infos(s->model),
                                    exo_model_num_infos(s->model), exo_model_numel(s->model), size,
                                    err);
}

exo_status
exo_learner_check_exchanges(const exo_learner *l, uint32_t size, exo_err *err)
{
    exo_status st = exo_learner_is_apart(l) ? check_edges(&l->actor, size, err) : EXO_OK;
    return st == EXO_OK && l->critic.strategy ? check_edges(&l->critic, size, err) : st;
}

const char *
exo_learner_exchanges(const exo_learner *l, uint32_t size, size_t index)
{
    exo_strategy_edge edges[EXO_STRATEGY_MAX_EDGES];
    if (!exo_learner_is_apart(l))
        return NULL;
    size_t count = write_edges(l->actor.strategy, exo_model_infos(l->actor.model),
                               exo_model_num_infos(l->actor.model), exo_model_numel(l->actor.model),
                               size, edges);
    return index < count ? edges[index].carries : NULL;
}

/* --- Life ------------------------------------------------------------------------------------- */

bool
exo_learner_is_apart(const exo_learner *l)
{
    return l->actor.strategy != NULL;
}

static exo_status
find_group(const exo_learner_place *place, const char *carries, exo_group **out, exo_err *err)
{
    *out = place->group(place->context, carries);
    return *out ? EXO_OK
                : exo_fail(err, EXO_INVAL,
                           "the strategy exchanges %s: {from: trainer, to: trainer, carries: %s, "
                           "route: all_reduce} is missing among the edges",
                           carries, carries);
}

/* Gives a student the groups of the edges that its strategy uses. */
static exo_status
find_groups(exo_student *s, const exo_learner_place *place, exo_err *err)
{
    exo_strategy_edge edges[EXO_STRATEGY_MAX_EDGES];
    size_t count = write_edges(s->strategy, s->node.infos, s->node.num_infos, s->node.numel,
                               s->node.num_nodes, edges);
    if (count == 0 || count > 2)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "the strategy '%s' uses %zu edges, but trainers support one or two",
                        exo_strategy_name(s->strategy), count);
    exo_status st = find_group(place, edges[count - 1].carries, &s->node.group, err);
    return st == EXO_OK && count == 2 ? find_group(place, edges[0].carries, &s->node.inside, err)
                                      : st;
}

static exo_status
join(exo_learner *l, exo_student *s, const char *scope, const exo_learner_place *place,
     exo_err *err)
{
    s->node = (exo_node){
        .rank = l->rank,
        .num_nodes = l->size,
        .max_steps = place->updates * l->epochs * l->minibatches,
        .seed = l->seed,
        .numel = exo_params_numel(s->params),
        .params = exo_params_values_array(s->params),
        .grads = exo_student_gradient(s),
        .model = s->params,
        .infos = exo_params_info(s->params, 0),
        .num_infos = exo_params_count(s->params),
        .units = exo_params_units(s->params),
        .num_units = exo_params_num_units(s->params),
    };
    exo_status st = find_groups(s, place, err);
    if (st == EXO_OK)
        st = exo_meters_scope(&s->node.meters, place->meters, scope, err);
    if (st == EXO_OK)
        st = exo_strategy_start(s->strategy, &s->node, err);
    s->node.max_norm = l->max_norm > 0 ? (float)l->max_norm : INFINITY; /* so it has a norm */
    return st;
}

exo_status
exo_learner_join(exo_learner *l, const exo_learner_place *place, exo_err *err)
{
    if (!exo_learner_is_apart(l))
        return EXO_OK;
    exo_status st = join(l, &l->actor, "strategy", place, err);
    return st == EXO_OK && l->critic.model ? join(l, &l->critic, "critic_strategy", place, err)
                                           : st;
}

static void
leave(exo_student *s)
{
    if (s->strategy)
        exo_strategy_leave(s->strategy);
}

void
exo_learner_leave(exo_learner *l)
{
    leave(&l->actor);
    leave(&l->critic);
}

void
exo_student_release_strategy(exo_student *s)
{
    exo_optim_free(&s->node.optim);
    exo_strategy_free(&s->strategy);
}

/* --- Steps ------------------------------------------------------------------------------------ */

exo_status
exo_student_step_strategy(exo_student *s, double *norm, exo_err *err)
{
    exo_status st = exo_strategy_step(s->strategy, &s->node, err);
    s->node.step++;
    if (st == EXO_OK)
        st = exo_strategy_read_norm(s->strategy, &s->node, err);
    *norm = (double)s->node.grad_norm;
    return st;
}

/* A strategy that begins with the inner step and does not use gradients otherwise goes without that
 * step; any other gets the gradient 0. */
static exo_status
idle(exo_student *s, exo_err *err)
{
    double norm = 0;
    if (!s->strategy)
        return EXO_OK;
    if (exo_strategy_steps_alone(s->strategy, s->node.num_nodes))
        s->node.stepped = true;
    else
        exo_vec_fill(s->node.grads, 0);
    return exo_student_step_strategy(s, &norm, err);
}

exo_status
exo_learner_idle(exo_learner *l, uint64_t steps, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint64_t i = 0; st == EXO_OK && i < steps; i++) {
        st = idle(&l->actor, err);
        if (st == EXO_OK)
            st = idle(&l->critic, err);
    }
    return st;
}
