/* The rule of options of makers and trainers that depend on other actors or on edges, which the check of a
 * graph applies before a run. Actors find the same when they begin, in graphs whose edges such a
 * rule does not see through. No state. Read next: edges.c (who hears whom). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/tokenizer.h>

#include "base/config_edit.h"
#include "experience/builtin.h"
#include "experience/match.h"
#include "experience/named_model.h"
#include "experience/objective.h"
#include "experience/prompts.h"
#include "graph/spec.h"
#include "graph/warn.h"

enum {
    MAX_TRAINERS = 256 /* of more, the routes of frozen makers are not checked */
};

static bool
is_of(const exo_graph_spec *spec, uint32_t actor, const exo_graph_class *class)
{
    return spec->actors[actor].class == class;
}

/* The place of an option, or that of the actor if the file leaves the option out. */
static const exo_config *
place_of(const exo_actor_spec *actor, const char *key)
{
    const exo_config *node = exo_config_get(actor->config, key);
    return node ? node : actor->node;
}

/* --- Several trainers ------------------------------------------------------------------------- */

static exo_status
check_gradients(const exo_graph_spec *spec, uint32_t index, const char *otherwise, exo_err *err)
{
    const exo_actor_spec *a = &spec->actors[index];
    if (a->count < 2 || exo_graph_edge_at(spec, index, true, "gradients"))
        return EXO_OK;
    return exo_config_fail(a->node, err,
                           "the %u trainers '%s' need an edge that carries gradients: {from: %s, "
                           "to: %s, carries: gradients, route: all_reduce}%s",
                           a->count, a->name, a->name, a->name, otherwise);
}

/* *apart: the trainers exchange by a strategy other than ddp. */
static exo_status
read_apart(const exo_actor_spec *trainer, bool *apart, exo_err *err)
{
    exo_config *strategy = exo_config_get(trainer->config, "strategy");
    bool is_map = exo_config_is_map(strategy);
    const char *name = NULL;
    exo_status st = EXO_OK;
    if (strategy)
        st = exo_config_string(is_map ? strategy : trainer->config, is_map ? "name" : "strategy",
                               NULL, &name, err);
    *apart = name && strcmp(name, "ddp") != 0;
    return st;
}

static exo_status
check_slices(const exo_actor_spec *trainer, exo_err *err)
{
    uint64_t slices = 0;
    exo_status st = exo_config_u64(trainer->config, "slices", 0, 0, UINT64_MAX, &slices, err);
    if (st == EXO_OK && slices % trainer->count != 0)
        return exo_config_fail(place_of(trainer, "slices"), err,
                               "slices: %llu is no multiple of the %u trainers '%s'",
                               (unsigned long long)slices, trainer->count, trainer->name);
    return st;
}

/* --- Answers ---------------------------------------------------------------------------------- */

/* Calls `each` for all makers whose experience reaches trainer `index`, also through a replay_buffer. */
static exo_status
for_makers(const exo_graph_spec *spec, uint32_t index,
           exo_status (*each)(const exo_graph_spec *, uint32_t maker, uint32_t index, exo_err *),
           exo_err *err)
{
    exo_status st = EXO_OK;
    const exo_edge_spec *end = spec->edges + spec->num_edges;
    for (const exo_edge_spec *e = spec->edges; st == EXO_OK && e < end; e++) {
        if (e->to != index || strcmp(e->carries, "experience") != 0)
            continue;
        if (is_of(spec, e->from, &exo_experience_maker_class))
            st = each(spec, e->from, index, err);
        for (const exo_edge_spec *f = spec->edges; st == EXO_OK && f < end; f++)
            if (is_of(spec, e->from, &exo_replay_buffer_class) && f->to == e->from &&
                is_of(spec, f->from, &exo_experience_maker_class))
                st = each(spec, f->from, index, err);
    }
    return st;
}

/* Refuses a maker with one answer to a prompt, whose experience reaches trainer `index`. */
static exo_status
check_maker(const exo_graph_spec *spec, uint32_t maker, uint32_t index, exo_err *err)
{
    const exo_actor_spec *m = &spec->actors[maker], *t = &spec->actors[index];
    uint64_t answers = 1;
    exo_status st = exo_config_u64(m->config, "answers", 1, 1, UINT64_MAX, &answers, err);
    if (st == EXO_OK && answers < 2)
        return exo_config_fail(
            place_of(m, "answers"), err,
            "'%s' makes one answer to a prompt, but '%s' compares the answers of a prompt: let "
            "makers have at least 2 answers",
            m->name, t->name);
    return st;
}

/* --- Draws before the first version ------------------------------------------------------------- */

/* The draws that makers may make with version 0. */
static exo_status
read_quota(const exo_actor_spec *trainer, double *quota, exo_err *err)
{
    uint64_t batch = 0, steps = 0, staleness = 0;
    double factor = 1;
    exo_status st = exo_config_u64(trainer->config, "batch", 8, 1, UINT64_MAX, &batch, err);
    if (st == EXO_OK)
        st = exo_config_u64(trainer->config, "update_steps", 1, 1, UINT64_MAX, &steps, err);
    if (st == EXO_OK)
        st = exo_config_u64(trainer->config, "staleness", 0, 0, UINT64_MAX, &staleness, err);
    if (st == EXO_OK)
        st = exo_config_double(trainer->config, "oversample", 1 + (double)staleness, 1, INFINITY,
                               &factor, err);
    *quota = ceil(factor * (double)batch * (double)steps - 1e-9) * trainer->count;
    return st;
}

/* The draws that the makers make in all. */
static exo_status
count_draws(const exo_actor_spec *maker, double *draws, exo_err *err)
{
    uint64_t epochs = 0, steps = 0, batch = 0;
    exo_prompts *prompts = NULL;
    exo_status st = exo_config_u64(maker->config, "epochs", 1, 0, UINT64_MAX, &epochs, err);
    if (st == EXO_OK)
        st = exo_config_u64(maker->config, "steps", 0, 0, UINT64_MAX, &steps, err);
    if (st == EXO_OK)
        st = exo_config_u64(maker->config, "batch", 8, 1, UINT64_MAX, &batch, err);
    if (st == EXO_OK && steps == 0 && epochs > 0)
        st = exo_prompts_read(&prompts, maker->config, err);
    *draws = steps > 0 ? (double)steps * (double)batch * maker->count
             : prompts ? (double)epochs * (double)exo_prompts_count(prompts)
                       : INFINITY;
    exo_prompts_free(&prompts);
    return st;
}

/* Draws that makers would begin with version 0, though it does not allow them. */
static exo_status
check_start(const exo_actor_spec *maker, const exo_actor_spec *trainer, exo_err *err)
{
    exo_config *start = exo_config_get(maker->config, "start");
    uint64_t draws = 0;
    double quota = 0, all = 0;
    bool balance = false;
    exo_status st = start ? exo_config_u64(start, "draws", 0, 0, UINT64_MAX, &draws, err) : EXO_OK;
    if (st != EXO_OK || draws == 0)
        return st;
    const exo_config *place = exo_config_get(start, "draws");
    st = exo_config_bool(trainer->config, "balance", false, &balance, err);
    if (st == EXO_OK && balance)
        return exo_config_fail(
            place, err, "start.draws and balance of '%s' exclude each other: set one of them",
            trainer->name);
    if (st == EXO_OK)
        st = read_quota(trainer, &quota, err);
    if (st == EXO_OK && (double)draws > quota)
        st = count_draws(maker, &all, err);
    if (st != EXO_OK || (double)draws <= quota || all <= quota)
        return st;
    return exo_config_fail(
        place, err,
        "start.draws: with version 0 of '%s' makers may make %.15g draws (batch, "
        "update_steps, staleness), got %llu: set at most that",
        trainer->name, quota, (unsigned long long)draws);
}

static exo_status
check_starts(const exo_graph_spec *spec, uint32_t index, exo_err *err)
{
    exo_status st = EXO_OK;
    const exo_edge_spec *end = spec->edges + spec->num_edges;
    for (const exo_edge_spec *e = spec->edges; st == EXO_OK && e < end; e++)
        if (e->from == index && strcmp(e->carries, "parameters") == 0 &&
            is_of(spec, e->to, &exo_experience_maker_class))
            st = check_start(&spec->actors[e->to], &spec->actors[index], err);
    return st;
}

/* --- Frozen makers ---------------------------------------------------------------------------- */

/* Whether draw `draw` of a maker, its item number k, goes to its trainer. A maker that gets weights knows
 * the trainers, and chooses; of another the route decides. targets (count): those of the maker. */
static bool
goes_astray(const exo_edge_spec *edge, uint32_t maker, uint64_t k, uint64_t draw,
            const uint32_t *targets, uint32_t count, uint32_t trainers)
{
    switch (edge->route) {
    case EXO_ROUTE_ONE:
    case EXO_ROUTE_MODULO:
    case EXO_ROUTE_LISTED:
        return targets[k % count] != draw % trainers;
    case EXO_ROUTE_ROUND_ROBIN:
        return targets[(maker + k) % count] != draw % trainers;
    case EXO_ROUTE_BROADCAST:
        return true;
    case EXO_ROUTE_LEAST_LOADED:
    case EXO_ROUTE_HASH:
    case EXO_ROUTE_GOSSIP:
    case EXO_ROUTE_ALL_REDUCE:
        break;
    }
    return false;
}

/* Checks the first items of each maker of an edge, of `draws` in all. */
static exo_status
check_items(const exo_graph_spec *spec, const exo_edge_spec *edge, double draws, exo_err *err)
{
    const exo_actor_spec *m = &spec->actors[edge->from], *t = &spec->actors[edge->to];
    uint32_t *targets = exo_calloc(t->count, sizeof *targets);
    exo_status st =
        targets ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for the check of '%s'", edge->name);
    for (uint32_t i = 0; st == EXO_OK && i < m->count; i++) {
        uint32_t count = exo_edge_targets(spec, edge, i, targets);
        for (uint64_t k = 0; st == EXO_OK && count > 0 && k < (uint64_t)count * t->count; k++) {
            const uint64_t draw = i + k * m->count;
            if ((double)draw < draws && goes_astray(edge, i, k, draw, targets, count, t->count))
                st = exo_config_fail(
                    edge->node, err,
                    "edge '%s': draw %llu of %s_%u, which gets no weights, is of %s_%llu, but its "
                    "route leads elsewhere: let it have route: modulo, and a multiple of %u "
                    "makers, "
                    "or put a replay_buffer between them",
                    edge->name, (unsigned long long)draw, m->name, i, t->name,
                    (unsigned long long)(draw % t->count), t->count);
        }
    }
    exo_free(targets);
    return st;
}

static exo_status
check_frozen(const exo_graph_spec *spec, uint32_t index, exo_err *err)
{
    exo_status st = EXO_OK;
    const exo_actor_spec *t = &spec->actors[index];
    for (const exo_edge_spec *e = spec->edges;
         st == EXO_OK && t->count > 1 && e < spec->edges + spec->num_edges; e++) {
        double draws = 0;
        if (e->to != index || strcmp(e->carries, "experience") != 0 ||
            !is_of(spec, e->from, &exo_experience_maker_class) ||
            exo_graph_edge_at(spec, e->from, false, "parameters") || t->count > MAX_TRAINERS)
            continue;
        st = count_draws(&spec->actors[e->from], &draws, err);
        if (st == EXO_OK)
            st = check_items(spec, e, draws, err);
    }
    return st;
}

/* --- Trainers --------------------------------------------------------------------------------- */

/* Whether the trainers send weights to makers; those that they exchange are a collective. */
static bool
sends_weights(const exo_graph_spec *spec, uint32_t index)
{
    for (const exo_edge_spec *e = spec->edges; e < spec->edges + spec->num_edges; e++)
        if (e->from == index && e->route != EXO_ROUTE_ALL_REDUCE &&
            strcmp(e->carries, "parameters") == 0)
            return true;
    return false;
}

/* Without an edge for weights nothing paces the makers. */
static exo_status
check_pace(const exo_graph_spec *spec, uint32_t index, exo_err *err)
{
    const exo_actor_spec *t = &spec->actors[index];
    bool balance = false;
    exo_status st = exo_config_bool(t->config, "balance", false, &balance, err);
    const char *key = balance ? "balance" : "oversample";
    if (st != EXO_OK || sends_weights(spec, index) || (!balance && !exo_config_has(t->config, key)))
        return st;
    return exo_config_fail(place_of(t, key), err,
                           "%s needs an edge that carries parameters: {from: %s, to: MAKER, "
                           "carries: parameters, ...}, by which '%s' paces its makers",
                           key, t->name, t->name);
}

static exo_status
check_ppo_trainer(const exo_graph_spec *spec, uint32_t index, exo_err *err)
{
    const exo_actor_spec *t = &spec->actors[index];
    exo_objective_opts objective;
    bool apart = false;
    exo_status st = exo_objective_read(&objective, t->config, err);
    if (st == EXO_OK)
        st = read_apart(t, &apart, err);
    if (st == EXO_OK && !apart)
        st = check_gradients(spec, index, "; or a `strategy`", err);
    if (st == EXO_OK)
        st = check_slices(t, err);
    if (st == EXO_OK)
        st = check_pace(spec, index, err);
    if (st == EXO_OK)
        st = check_starts(spec, index, err);
    if (st == EXO_OK)
        st = check_frozen(spec, index, err);
    if (st == EXO_OK)
        st = for_makers(spec, index, exo_match_answers, err);
    return st == EXO_OK && objective.groups ? for_makers(spec, index, check_maker, err) : st;
}

/* Comparisons come from a file, which several trainers may read, or from makers. */
static exo_status
check_comparisons(const exo_graph_spec *spec, uint32_t index, exo_err *err)
{
    const exo_actor_spec *t = &spec->actors[index];
    const exo_edge_spec *edge = exo_graph_edge_at(spec, index, false, "experience");
    bool has_data = exo_config_has(t->config, "data");
    if (is_of(spec, index, &exo_sft_trainer_class))
        return EXO_OK;
    if (!edge && !has_data)
        return exo_config_fail(t->node, err,
                               "%s has no comparisons: set data: {path: FILE}, or let an edge "
                               "carry experience to it",
                               t->name);
    if (edge && has_data)
        return exo_config_fail(
            edge->node, err,
            "edge '%s': '%s' has both `data` and an edge that carries experience: leave one out",
            edge->name, t->name);
    if (edge && t->count > 1)
        return exo_config_fail(t->node, err,
                               "one trainer learns from items, and '%s' has a count of %u: "
                               "several learn from a file, data: {path: FILE}",
                               t->name, t->count);
    exo_status st = for_makers(spec, index, check_maker, err);
    return st == EXO_OK ? for_makers(spec, index, exo_match_answers, err) : st;
}

static exo_status
check_text_trainer(const exo_graph_spec *spec, uint32_t index, exo_err *err)
{
    exo_status st = check_comparisons(spec, index, err);
    return st == EXO_OK ? check_gradients(spec, index, "", err) : st;
}

/* --- Makers that share a model ---------------------------------------------------------------- */

static exo_status
check_shared(const exo_graph_spec *spec, uint32_t index, exo_err *err)
{
    const exo_actor_spec *m = &spec->actors[index];
    exo_config *parallel = NULL;
    uint64_t tensor = 1;
    exo_status st = exo_config_map(m->config, "parallel", &parallel, err);
    if (st == EXO_OK && parallel)
        st = exo_config_u64(parallel, "tensor", 1, 1, UINT64_MAX, &tensor, err);
    if (st != EXO_OK || tensor == 1)
        return st;
    if (m->count % tensor != 0)
        return exo_config_fail(parallel, err,
                               "parallel: {tensor: %llu} does not divide the %u makers '%s': set "
                               "their count to a multiple",
                               (unsigned long long)tensor, m->count, m->name);
    return exo_graph_edge_at(spec, index, true, "activations")
               ? EXO_OK
               : exo_config_fail(parallel, err,
                                 "parallel: {tensor: %llu} needs an edge for the makers' "
                                 "activations: {from: %s, to: %s, carries: activations, route: "
                                 "all_reduce}",
                                 (unsigned long long)tensor, m->name, m->name);
}

/* --- Edges ------------------------------------------------------------------------------------ */

/* An actor that learns, or keeps what others learn from; a class of a plugin may only look. */
static bool
takes_experience(const exo_graph_spec *spec, uint32_t actor)
{
    return is_of(spec, actor, &exo_ppo_trainer_class) ||
           is_of(spec, actor, &exo_replay_buffer_class) ||
           is_of(spec, actor, &exo_reward_trainer_class) ||
           is_of(spec, actor, &exo_dpo_trainer_class);
}

/* An item of experience that an edge drops is lost: a ppo_trainer waits for its draw, and for the reply
 * that may be dropped as well; others learn from fewer answers than their makers made. */
static exo_status
check_edge(const exo_graph_spec *spec, const exo_edge_spec *edge, exo_err *err)
{
    const bool drops = edge->on_full == EXO_FULL_LATEST || edge->on_full == EXO_FULL_DROP_OLDEST ||
                       edge->on_full == EXO_FULL_DROP_NEWEST;
    if (!drops || strcmp(edge->carries, "experience") != 0 ||
        (!is_of(spec, edge->from, &exo_experience_maker_class) &&
         !is_of(spec, edge->from, &exo_replay_buffer_class)) ||
        !takes_experience(spec, edge->to))
        return EXO_OK;
    return exo_config_fail(
        exo_config_get(exo_config_get(edge->node, "buffer"), "on_full"), err,
        "edge '%s': on_full: what it drops of '%s' is never made again, and '%s' "
        "needs every draw: leave on_full out, so that the edge blocks",
        edge->name, spec->actors[edge->from].name, spec->actors[edge->to].name);
}

/* --- All -------------------------------------------------------------------------------------- */

static exo_status
check_actor(const exo_graph_spec *spec, uint32_t index, exo_err *err)
{
    const exo_actor_spec *a = &spec->actors[index];
    if (is_of(spec, index, &exo_ppo_trainer_class))
        return check_ppo_trainer(spec, index, err);
    if (is_of(spec, index, &exo_sft_trainer_class) ||
        is_of(spec, index, &exo_reward_trainer_class) || is_of(spec, index, &exo_dpo_trainer_class))
        return check_text_trainer(spec, index, err);
    if (is_of(spec, index, &exo_experience_maker_class))
        return check_shared(spec, index, err);
    if (is_of(spec, index, &exo_replay_buffer_class) && a->count > 1)
        return exo_config_fail(a->node, err,
                               "one replay_buffer serves all makers and trainers, and '%s' has a "
                               "count of %u",
                               a->name, a->count);
    return EXO_OK;
}

static exo_status
check(const exo_graph_spec *spec, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t i = 0; st == EXO_OK && i < spec->num_actors; i++)
        st = check_actor(spec, i, err);
    for (size_t i = 0; st == EXO_OK && i < spec->num_edges; i++)
        st = check_edge(spec, &spec->edges[i], err);
    return st;
}

/* A step of the optimizer needs an answer: without, it is left out. */
static exo_status
warn_of_minibatches(const exo_graph_spec *spec, uint32_t maker, uint32_t index,
                    const exo_graph_warnings *out, exo_err *err)
{
    const exo_actor_spec *m = &spec->actors[maker], *t = &spec->actors[index];
    uint64_t batch = 0, answers = 0, minibatches = 0;
    exo_status st = exo_config_u64(t->config, "batch", 8, 1, UINT32_MAX, &batch, err);
    if (st == EXO_OK)
        st = exo_config_u64(t->config, "minibatches", 1, 1, UINT32_MAX, &minibatches, err);
    if (st == EXO_OK)
        st = exo_config_u64(m->config, "answers", 1, 1, UINT32_MAX, &answers, err);
    if (st == EXO_OK && minibatches > batch * answers)
        exo_graph_warn(out, place_of(t, "minibatches"),
                       "minibatches: %llu are more than the %llu answers of a batch, %llu items of "
                       "'%s' with %llu each: the others are left out",
                       (unsigned long long)minibatches, (unsigned long long)(batch * answers),
                       (unsigned long long)batch, m->name, (unsigned long long)answers);
    return st;
}

/* Whether the directory has a tokenizer other than that of bytes. */
static exo_status
has_tokens(const char *folder, bool *out, exo_err *err)
{
    exo_tokenizer *own = NULL, *bytes = NULL;
    exo_status st = exo_tokenizer_bytes(&bytes, err);
    *out = st == EXO_OK && exo_tokenizer_load(&own, folder, NULL) == EXO_OK &&
           exo_tokenizer_vocabulary(own) != exo_tokenizer_vocabulary(bytes);
    exo_tokenizer_drop(&own);
    exo_tokenizer_drop(&bytes);
    return st;
}

/* Texts of `key` without a tokenizer are read as bytes, which a model of other tokens does not know. */
static exo_status
warn_of_bytes(const exo_actor_spec *a, const char *key, const exo_graph_warnings *out, exo_err *err)
{
    const exo_config *texts = exo_config_get(a->config, key);
    char *folder = NULL;
    bool tokens = false;
    if (!texts || exo_config_has(texts, "tokenizer") || exo_config_has(texts, "alphabet") ||
        !(exo_config_has(texts, "path") || exo_config_has(texts, "lines") ||
          exo_config_has(texts, "text")))
        return EXO_OK;
    exo_status st = EXO_OK;
    if (exo_named_model_folder(&folder, a->config, "model", NULL) == EXO_OK && folder)
        st = has_tokens(folder, &tokens, err); /* else it may be on the workers */
    if (tokens)
        exo_graph_warn(out, texts,
                       "%s: texts are read as bytes, although '%s' has a tokenizer: add tokenizer: "
                       "%s, or tokenizer: bytes",
                       key, folder, folder);
    (free)(folder);
    return st;
}

static exo_status
warn_of_tokenizer(const exo_actor_spec *a, const exo_graph_warnings *out, exo_err *err)
{
    if (a->class == &exo_experience_maker_class)
        return warn_of_bytes(a, "prompts", out, err);
    return a->class == &exo_sft_trainer_class || a->class == &exo_reward_trainer_class ||
                   a->class == &exo_dpo_trainer_class
               ? warn_of_bytes(a, "data", out, err)
               : EXO_OK;
}

static exo_status
warn(const exo_graph_spec *spec, const exo_graph_warnings *out, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t i = 0; st == EXO_OK && i < spec->num_actors; i++)
        st = warn_of_tokenizer(&spec->actors[i], out, err);
    for (const exo_edge_spec *e = spec->edges; st == EXO_OK && e < spec->edges + spec->num_edges;
         e++)
        if (is_of(spec, e->from, &exo_experience_maker_class) &&
            is_of(spec, e->to, &exo_ppo_trainer_class) && strcmp(e->carries, "experience") == 0)
            st = warn_of_minibatches(spec, e->from, e->to, out, err);
    return st;
}

const exo_graph_rule exo_experience_options_rule = {
    .name = "options of makers and trainers", .check = check, .warn = warn};
