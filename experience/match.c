/* Options of makers and trainers: see match.h. */
#include "experience/match.h"

#include <stddef.h>
#include <string.h>

#include <exogym/decoder.h>

#include "base/config_edit.h"
#include "experience/builtin.h"
#include "experience/learner.h"
#include "experience/named_model.h"
#include "experience/prompts.h"

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
        OPTION("heads", heads),
        OPTION("kv_heads", kv_heads),
        OPTION("position", position),
        OPTION("the offset of positions", position_offset),
        OPTION("norm", norm),
        OPTION("norm_eps", norm_eps),
        OPTION("activation", activation),
        OPTION("rope_theta", rope_theta),
        OPTION("rope_scaling", rope_scaling.factor),
        OPTION("rope_scaling", rope_scaling.linear),
        OPTION("rope_scaling", rope_scaling.low_freq_factor),
        OPTION("rope_scaling", rope_scaling.high_freq_factor),
        OPTION("rope_scaling", rope_scaling.original_context),
        OPTION("alpha of lora", lora_scale),
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

/* --- Answers ---------------------------------------------------------------------------------- */

/* What a maker sends, as far as its options say it. */
struct answers {
    size_t prompt_tokens; /* one more than the largest token of its prompts */
    size_t tokens;        /* the same of its answers; 0: not known */
    size_t prompt;        /* tokens of its longest prompt */
    size_t answer;        /* tokens that an answer has at least */
};

/* Whether the actor begins with weights that were trained before, or that a function gives. */
static bool
has_learned(const exo_actor_spec *actor)
{
    exo_config *model = exo_config_get(actor->config, "model");
    return is_given(actor) || (exo_config_is_map(model) && exo_config_has(model, "path"));
}

/* Whether the maker draws from all tokens of its vocabulary, because its weights are from the seed, or
 * of a trainer whose weights were. */
static exo_status
draws_all_tokens(const exo_graph_spec *spec, uint32_t maker, bool *all, exo_err *err)
{
    const exo_actor_spec *m = &spec->actors[maker];
    exo_config *generate = exo_config_get(m->config, "generate");
    double temperature = 1;
    exo_status st = generate
                        ? exo_config_double(generate, "temperature", 1, 0, 1e6, &temperature, err)
                        : EXO_OK;
    *all = temperature > 0 && !has_learned(m) && !exo_config_has(generate, "top_k") &&
           !exo_config_has(generate, "top_p");
    for (const exo_edge_spec *e = spec->edges; e < spec->edges + spec->num_edges; e++)
        *all = *all && (e->to != maker || strcmp(e->carries, "parameters") != 0 ||
                        (exo_config_has(spec->actors[e->from].config, "model") &&
                         !has_learned(&spec->actors[e->from])));
    return st;
}

/* Without tokens that end it, an answer is as long as allowed. */
static exo_status
read_length(const exo_actor_spec *maker, const exo_prompts *prompts, size_t *out, exo_err *err)
{
    const exo_tokenizer *tokenizer = exo_prompts_tokenizer(prompts);
    exo_config *generate = exo_config_get(maker->config, "generate");
    uint64_t most = 16;
    bool ends = exo_config_has(generate, "stop")
                    ? exo_config_length(exo_config_get(generate, "stop")) > 0
                    : tokenizer && exo_tokenizer_end(tokenizer) >= 0;
    exo_status st = generate
                        ? exo_config_u64(generate, "max_new_tokens", 16, 1, UINT32_MAX, &most, err)
                        : EXO_OK;
    *out = ends || exo_config_has(maker->config, "tool") ? 1 : (size_t)most;
    return st;
}

static exo_status
read_answers(struct answers *out, const exo_graph_spec *spec, uint32_t maker, exo_err *err)
{
    const exo_actor_spec *m = &spec->actors[maker];
    exo_prompts *prompts = NULL;
    exo_model *model = NULL;
    bool all = false;
    exo_status st = exo_prompts_read(&prompts, m->config, err);
    if (st == EXO_OK)
        st = draws_all_tokens(spec, maker, &all, err);
    if (st == EXO_OK)
        st = exo_named_model_read(&model, m->config, "model", err);
    if (st == EXO_OK)
        st = read_length(m, prompts, &out->answer, err);
    if (st == EXO_OK) {
        out->prompt_tokens = exo_prompts_vocabulary(prompts);
        out->prompt = exo_prompts_longest(prompts);
        out->tokens = all ? exo_decoder_spec_of(model)->vocabulary : 0;
    }
    exo_model_drop(&model);
    exo_prompts_free(&prompts);
    return st;
}

exo_status
exo_match_answers(const exo_graph_spec *spec, uint32_t maker, uint32_t trainer, exo_err *err)
{
    const exo_actor_spec *m = &spec->actors[maker], *t = &spec->actors[trainer];
    struct answers a = {0};
    exo_model *model = NULL;
    if (is_given(m) || is_given(t))
        return EXO_OK;
    exo_status st = read_answers(&a, spec, maker, err);
    if (st == EXO_OK)
        st = exo_named_model_read(&model, t->config, "model", err);
    if (st != EXO_OK)
        return st;
    const exo_decoder_spec *takes = exo_decoder_spec_of(model);
    const size_t tokens = a.tokens > a.prompt_tokens ? a.tokens : a.prompt_tokens;
    /* only a reward model looks at what follows the last token */
    const size_t least = a.prompt + a.answer - (t->class != &exo_reward_trainer_class);
    exo_config *at = exo_config_get(t->config, "model");
    if (tokens > takes->vocabulary)
        st = exo_config_fail(at, err,
                             "model: its vocabulary is %zu, but the %s of '%s', of which '%s' "
                             "learns, have tokens up to %zu: set model.vocabulary",
                             takes->vocabulary, tokens > a.prompt_tokens ? "answers" : "prompts",
                             m->name, t->name, tokens - 1);
    else if (least > takes->context)
        st = exo_config_fail(at, err,
                             "model: its context is %zu, but the longest prompt of '%s', of which "
                             "'%s' learns, needs %zu with its answer: set model.context",
                             takes->context, m->name, t->name, least);
    exo_model_drop(&model);
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
    if (st == EXO_OK && exo_learner_check_exchanges(learner, t->count, err) != EXO_OK)
        st = exo_config_add_place(at, err);
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
