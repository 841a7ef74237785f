/* Options of makers and trainers: see match.h. */
#include "experience/match.h"

#include <stddef.h>
#include <string.h>

#include <exogym/decoder.h>

#include "base/config_edit.h"
#include "experience/learner.h"
#include "experience/named_model.h"

/* The makers that share a generation; 1: each has the whole model. */
static exo_status
read_tensor(const exo_actor_spec *maker, uint64_t *tensor, exo_err *err)
{
    exo_config *parallel = NULL;
    exo_status st = exo_config_map(maker->config, "parallel", &parallel, err);
    *tensor = 1;
    return st == EXO_OK && parallel
               ? exo_config_u64(parallel, "tensor", 1, 1, UINT32_MAX, tensor, err)
               : st;
}

/* The edge of a collective among the actors of a name; NULL: there is none. */
static const exo_edge_spec *
find_collective(const exo_graph_spec *spec, uint32_t actor, const char *carries)
{
    for (const exo_edge_spec *e = spec->edges; e < spec->edges + spec->num_edges; e++)
        if (e->from == actor && e->route == EXO_ROUTE_ALL_REDUCE &&
            strcmp(e->carries, carries) == 0)
            return e;
    return NULL;
}

/* --- A group ---------------------------------------------------------------------------------- */

/* A member that dies ends its group. `actor` is the makers', or that of their trainers. */
static exo_status
check_lives(const exo_actor_spec *maker, const exo_actor_spec *actor, exo_err *err)
{
    return actor->restart.when == EXO_RESTART_NEVER
               ? EXO_OK
               : exo_config_fail(exo_config_get(actor->node, "restart"), err,
                                 "restart: makers that share a model (parallel of '%s') do not "
                                 "support restart rules: a maker that dies ends its group",
                                 maker->name);
}

exo_status
exo_match_group(const exo_graph_spec *spec, uint32_t maker, exo_err *err)
{
    const exo_actor_spec *m = &spec->actors[maker];
    const exo_edge_spec *edge = find_collective(spec, maker, "activations");
    uint64_t tensor;
    exo_status st = read_tensor(m, &tensor, err);
    if (st != EXO_OK || tensor == 1)
        return st;
    if (edge && strcmp(edge->codec_text, "raw") != 0)
        return exo_config_fail(edge->codec, err,
                               "edge '%s': makers that share a model would draw different tokens "
                               "if a codec rounds: leave the codec out",
                               edge->name);
    return check_lives(m, m, err);
}

/* --- Weights ---------------------------------------------------------------------------------- */

/* A function of a C program gives the model. */
static bool
is_given(const exo_actor_spec *actor)
{
    exo_config *model = exo_config_get(actor->config, "model");
    return exo_config_is_map(model) && exo_config_has(model, "given");
}

static bool
have_one_shape(const exo_param_info *a, const exo_param_info *b)
{
    return strcmp(a->name, b->name) == 0 && a->num_dims == b->num_dims &&
           memcmp(a->dims, b->dims, a->num_dims * sizeof *a->dims) == 0;
}

/* The option by which two decoders with the same tensors compute different numbers; NULL: there is
 * none. */
static const char *
differing_option(const exo_decoder_spec *a, const exo_decoder_spec *b)
{
#define OPTION(text, field)                                                                        \
    {                                                                                              \
        text, offsetof(exo_decoder_spec, field), sizeof a->field                                   \
    }
    static const struct {
        const char *name;
        size_t at, size;
    } options[] = {
        OPTION("heads", heads),           OPTION("kv_heads", kv_heads),
        OPTION("position", position),     OPTION("norm", norm),
        OPTION("norm_eps", norm_eps),     OPTION("activation", activation),
        OPTION("rope_theta", rope_theta), OPTION("alpha of lora", lora_scale),
    };
#undef OPTION
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (memcmp((const char *)a + options[i].at, (const char *)b + options[i].at,
                   options[i].size) != 0)
            return options[i].name;
    return NULL;
}

/* Compares the models of both sides, of which neither is NULL. */
static exo_status
compare(const exo_model *mine, const exo_model *theirs, const exo_actor_spec *maker,
        const exo_actor_spec *trainer, exo_err *err)
{
    exo_config *at = exo_config_get(trainer->config, "model");
    size_t count = exo_model_num_infos(theirs), others = exo_model_num_infos(mine), i = 0;
    const exo_param_info *a = exo_model_infos(theirs), *b = exo_model_infos(mine);
    const exo_decoder_spec *one = exo_decoder_spec_of(theirs), *two = exo_decoder_spec_of(mine);
    while (i < count && i < others && have_one_shape(&a[i], &b[i]))
        i++;
    if (i < count || i < others) {
        bool same_name = i < count && i < others && strcmp(a[i].name, b[i].name) == 0;
        return exo_config_fail(at, err,
                               "model: '%s' has another one, so it could not take the weights of "
                               "'%s': they differ in the %s '%s'; give both the same model",
                               maker->name, trainer->name, same_name ? "shape of" : "tensor",
                               i < count ? a[i].name : b[i].name);
    }
    const char *option = one && two ? differing_option(one, two) : NULL;
    return option ? exo_config_fail(at, err,
                                    "model: '%s' has another one, so it would compute otherwise "
                                    "with the weights of '%s': they differ in %s; give both the "
                                    "same model",
                                    maker->name, trainer->name, option)
                  : EXO_OK;
}

/* Makers that share a model: a member has no whole base of a change. */
static exo_status
check_group_trainer(const exo_actor_spec *maker, const exo_actor_spec *trainer, exo_err *err)
{
    exo_config *update = NULL;
    const char *form = "delta";
    uint64_t tensor;
    exo_status st = read_tensor(maker, &tensor, err);
    if (st == EXO_OK)
        st = exo_config_map(trainer->config, "update", &update, err);
    if (st == EXO_OK && update)
        st = exo_config_string(update, "form", "delta", &form, err);
    if (st == EXO_OK && tensor > 1)
        st = check_lives(maker, trainer, err);
    if (st != EXO_OK || tensor == 1 || !strstr(form, "delta"))
        return st;
    exo_config *at = update ? exo_config_get(update, "form") : NULL;
    return exo_config_fail(at ? at : trainer->config, err,
                           "update: makers with a part of the model (parallel of '%s') cannot "
                           "verify changes (form: %s), because they do not have the whole base: "
                           "set update: {form: whole}, bf16 or int8",
                           maker->name, form);
}

exo_status
exo_match_weights(const exo_actor_spec *maker, const exo_actor_spec *trainer, exo_err *err)
{
    exo_model *mine = NULL, *theirs = NULL;
    exo_status st = check_group_trainer(maker, trainer, err);
    if (st != EXO_OK || is_given(maker) || is_given(trainer))
        return st;
    st = exo_named_model_read(&mine, maker->config, "model", err);
    if (st == EXO_OK)
        st = exo_named_model_read(&theirs, trainer->config, "model", err);
    if (st == EXO_OK)
        st = compare(mine, theirs, maker, trainer, err);
    exo_model_drop(&mine);
    exo_model_drop(&theirs);
    return st;
}

/* --- A strategy ------------------------------------------------------------------------------- */

exo_status
exo_match_strategy(const exo_graph_spec *spec, uint32_t trainer, exo_err *err)
{
    const exo_actor_spec *t = &spec->actors[trainer];
    exo_config *at = exo_config_get(t->config, "strategy");
    exo_learner *learner = NULL;
    if (!at)
        return EXO_OK;
    exo_status st = exo_learner_read(&learner, t->config, err);
    const char *carries = NULL;
    for (size_t i = 0; st == EXO_OK && (carries = exo_learner_exchanges(learner, t->count, i)); i++)
        if (!find_collective(spec, trainer, carries))
            st = exo_config_fail(at, err,
                                 "strategy: it exchanges %s: {from: %s, to: %s, carries: %s, "
                                 "route: all_reduce} is missing among the edges",
                                 carries, t->name, t->name, carries);
    exo_learner_free(&learner);
    return st;
}
