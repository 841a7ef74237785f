/* compose: a strategy whose exchanges are listed in the job. A step is
 *
 *     1. the mean of the gradients over all nodes, if the list has that (ddp.c)
 *     2. the inner step
 *     3. what is due of the other exchanges, in the order of the list
 *
 * Gradients and parameters are two edges. Gradients go through node->inside if the host has such a
 * group, else through node->group.
 *
 * Traffic of a node: the sum of its exchanges.
 *
 * Owner of the state: the node's compute lane. Read next: exchange_options.c (options), exchange.c
 * (a round), composition.c.
 */
#include "strategies/exchange.h"

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/config_edit.h"

struct compose {
    exo_composition parameters;
    void *gradients; /* the state of ddp; NULL: gradients are not exchanged; owned */
};

/* --- Options ---------------------------------------------------------------------------------- */

/* ddp has one rule: all gradients, of all nodes, at every step. */
static exo_status
read_gradients(struct compose *c, exo_config *item, size_t index, exo_err *err)
{
    static const char *const keys[] = {"every",    "offset", "delay", "select",
                                       "partners", "apply",  NULL};
    if (index > 0)
        return exo_config_fail(item, err,
                               "exchanges: gradients are exchanged before the inner step, and "
                               "once: put them first in the list");
    for (size_t i = 0; keys[i]; i++)
        if (exo_config_has(item, keys[i]))
            return exo_config_fail(exo_config_get(item, keys[i]), err,
                                   "%s is for parameters: all nodes take the mean of all "
                                   "gradients at every step",
                                   keys[i]);
    c->gradients = exo_calloc(1, exo_ddp_class.state_size);
    if (!c->gradients)
        return exo_fail(err, EXO_NOMEM, "no memory for the strategy 'compose'");
    exo_status st = exo_ddp_class.init(c->gradients, item, err);
    return st == EXO_OK ? exo_config_finish(item, err) : st;
}

static exo_status
read_item(struct compose *c, exo_config *item, size_t index, exo_err *err)
{
    enum {
        PARAMETERS,
        GRADIENTS
    };
    static const char *const what[] = {
        [PARAMETERS] = "parameters", [GRADIENTS] = "gradients", NULL};
    size_t kind = PARAMETERS;
    char name[24];
    if (!exo_config_is_map(item))
        return exo_config_fail(item, err,
                               "exchanges: expected a mapping, as in {what: parameters, "
                               "every: 10}");
    exo_status st = exo_config_choice(item, "what", kind, what, &kind, err);
    if (st == EXO_OK && kind == GRADIENTS)
        return read_gradients(c, item, index, err);
    snprintf(name, sizeof name, "exchange_%u", (unsigned)index);
    return st == EXO_OK
               ? exo_param_exchange_read(exo_composition_add(&c->parameters, name, true), item, err)
               : st;
}

static exo_status
compose_init(void *self, exo_config *config, exo_err *err)
{
    static const char *const example = "as in exchanges: [{what: parameters, every: 10}]";
    exo_config *list = NULL;
    exo_status st = exo_config_list(config, "exchanges", &list, err);
    size_t length = exo_config_length(list);
    if (st == EXO_OK && !config)
        return exo_fail(err, EXO_INVAL, "compose: the key 'exchanges' is missing, %s", example);
    if (st == EXO_OK && !list)
        return exo_config_fail(config, err, "compose: the key 'exchanges' is missing, %s", example);
    if (st == EXO_OK && (length == 0 || length > EXO_STRATEGY_MAX_EDGES))
        return exo_config_fail(list, err, "exchanges: expected 1 to %d of them, got %zu",
                               EXO_STRATEGY_MAX_EDGES, length);
    for (size_t i = 0; st == EXO_OK && i < length; i++)
        st = read_item(self, exo_config_item(list, i), i, err);
    return st;
}

static exo_status
compose_check(const void *self, uint32_t num_nodes, exo_err *err)
{
    return exo_composition_check(&((const struct compose *)self)->parameters, num_nodes, err);
}

static exo_status
compose_check_model(const void *self, const exo_model *model, exo_err *err)
{
    return exo_composition_check_model(&((const struct compose *)self)->parameters, model, err);
}

/* --- Gradients -------------------------------------------------------------------------------- */

/* Gives node->group its edge for gradients, and returns the group that it had. */
static exo_group *
sit_at_gradients(exo_node *node)
{
    exo_group *group = node->group;
    node->group = node->inside ? node->inside : group;
    return group;
}

static exo_status
compose_start(void *self, exo_node *node, exo_err *err)
{
    struct compose *c = self;
    exo_status st = c->gradients ? exo_ddp_class.start(c->gradients, node, err) : EXO_OK;
    return st == EXO_OK ? exo_composition_start(&c->parameters, node, err) : st;
}

static exo_status
compose_gradient_ready(void *self, exo_node *node, size_t first, size_t count, exo_err *err)
{
    const struct compose *c = self;
    if (!c->gradients)
        return EXO_OK;
    exo_group *group = sit_at_gradients(node);
    exo_status st = exo_ddp_class.gradient_ready(c->gradients, node, first, count, err);
    node->group = group;
    return st;
}

static exo_status
compose_step(void *self, exo_node *node, exo_err *err)
{
    struct compose *c = self;
    if (!c->gradients)
        return exo_composition_step(&c->parameters, node, err);
    exo_group *group = sit_at_gradients(node);
    exo_status st = exo_ddp_class.step(c->gradients, node, err);
    node->group = group;
    return st == EXO_OK ? exo_composition_exchange(&c->parameters, node, err) : st;
}

static bool
compose_is_elementwise(const void *self)
{
    return exo_composition_is_elementwise(&((const struct compose *)self)->parameters);
}

static bool
compose_is_by_parts(const void *self)
{
    return exo_composition_is_by_parts(&((const struct compose *)self)->parameters);
}

static bool
compose_is_ordered(const void *self)
{
    return exo_composition_is_ordered(&((const struct compose *)self)->parameters);
}

static bool
compose_elastic(const void *self)
{
    return exo_composition_elastic(&((const struct compose *)self)->parameters);
}

static bool
compose_meets(const void *self, uint64_t step)
{
    const struct compose *c = self;
    return c->gradients || exo_composition_meets(&c->parameters, step);
}

static bool
compose_steps_alone(const void *self, uint32_t num_nodes)
{
    const struct compose *c = self;
    return !c->gradients || exo_ddp_class.steps_alone(c->gradients, num_nodes);
}

/* --- State, edges, end ------------------------------------------------------------------------ */

static void
compose_state(void *self, exo_state *state)
{
    exo_composition_state(&((struct compose *)self)->parameters, state);
}

static size_t
compose_edges(const void *self, const exo_param_info *infos, size_t num_infos, size_t numel,
              uint32_t num_nodes, exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES])
{
    const struct compose *c = self;
    size_t count = c->gradients ? exo_ddp_class.edges(c->gradients, numel, num_nodes, out) : 0;
    return count +
           exo_composition_edges(&c->parameters, infos, num_infos, numel, num_nodes, out + count);
}

static void
compose_leave(void *self)
{
    exo_composition_leave(&((struct compose *)self)->parameters);
}

static void
compose_release(void *self)
{
    struct compose *c = self;
    if (c->gradients)
        exo_ddp_class.release(c->gradients);
    exo_free(c->gradients);
    exo_composition_release(&c->parameters);
}

const exo_strategy_class exo_compose_class = {
    .name = "compose",
    .help = "a list of exchanges: when, what, with whom, and what becomes of the mean; option "
            "exchanges",
    .state_size = sizeof(struct compose),
    .init = compose_init,
    .start = compose_start,
    .step = compose_step,
    .gradient_ready = compose_gradient_ready,
    .steps_alone = compose_steps_alone,
    .state = compose_state,
    .leave = compose_leave,
    .release = compose_release,
    .model_edges = compose_edges,
    .check = compose_check,
    .elastic = compose_elastic,
    .is_elementwise = compose_is_elementwise,
    .is_by_parts = compose_is_by_parts,
    .is_ordered = compose_is_ordered,
    .meets = compose_meets,
    .check_model = compose_check_model,
};
