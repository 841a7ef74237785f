/* The rule of the edges between makers and trainers, which the check of a graph applies before a run.
 *
 * A maker waits for versions, and answers each one over the edge that carries its experience; a
 * trainer sends the next version to a maker that has answered. So each maker must hear a trainer that
 * it can answer. Trainers that are apart have quotas of their own, so a maker must hear each one whose
 * draws it makes. Without edges for weights makers are frozen, and wait for nobody. The rule says
 * nothing about makers that actors of other classes stand before or behind. match.h has the options.
 *
 * No state. Read next: maker_weights.h (what a maker does with versions), publisher.h. */
#include <string.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "experience/builtin.h"
#include "experience/match.h"
#include "graph/builtin.h"
#include "graph/spec.h"

enum {
    MAX_PAIRS = 1 << 24 /* larger graphs are not checked */
};

/* The makers of one name and the trainers that they hear. */
struct sides {
    const exo_graph_spec *spec;
    const exo_actor_spec *maker, *trainer;
    const exo_edge_spec *weights, *experience;
    bool *hears, *reaches; /* (makers, trainers) over these edges */
    bool passed_on;        /* experience goes through actors that pass it to every trainer */
    bool apart, deals;     /* of the trainers */
    uint32_t tensor;       /* makers that share a model */
};

static bool
is_of(const exo_graph_spec *spec, uint32_t actor, const exo_graph_class *class)
{
    return spec->actors[actor].class == class;
}

static bool
carries(const exo_edge_spec *edge, const char *what)
{
    return edge->route != EXO_ROUTE_ALL_REDUCE && strcmp(edge->carries, what) == 0;
}

/* --- Names ------------------------------------------------------------------------------------ */

/* Makers of two names make draws of the same numbers, of which a trainer takes the first ones. */
static exo_status
check_names(const exo_graph_spec *spec, exo_err *err)
{
    for (const exo_edge_spec *a = spec->edges; a < spec->edges + spec->num_edges; a++) {
        bool takes = is_of(spec, a->to, &exo_ppo_trainer_class) ||
                     is_of(spec, a->to, &exo_replay_buffer_class);
        for (const exo_edge_spec *b = spec->edges; takes && b < a; b++)
            if (b->to == a->to && b->from != a->from && carries(a, "experience") &&
                carries(b, "experience") && is_of(spec, a->from, &exo_experience_maker_class) &&
                is_of(spec, b->from, &exo_experience_maker_class))
                return exo_config_fail(
                    a->node, err,
                    "edge '%s': makers '%s' and '%s' would make the same draws, of which '%s' "
                    "takes one each: let all makers of a trainer be of one name, with a count",
                    a->name, spec->actors[b->from].name, spec->actors[a->from].name,
                    spec->actors[a->to].name);
    }
    return EXO_OK;
}

/* Whether the class of the sender chooses the target of each item. */
static bool
chooses(const exo_graph_spec *spec, const exo_edge_spec *edge)
{
    return (carries(edge, "experience") && (is_of(spec, edge->from, &exo_experience_maker_class) ||
                                            is_of(spec, edge->from, &exo_replay_buffer_class))) ||
           (carries(edge, "parameters") && is_of(spec, edge->from, &exo_ppo_trainer_class));
}

static exo_status
check_every(const exo_graph_spec *spec, exo_err *err)
{
    for (const exo_edge_spec *e = spec->edges; e < spec->edges + spec->num_edges; e++)
        if (e->every > 1 && chooses(spec, e))
            return exo_config_fail(exo_config_get(e->node, "every"), err,
                                   "edge '%s': 'every' does not fit this edge, because '%s' "
                                   "chooses who gets what: leave 'every' out",
                                   e->name, spec->actors[e->from].name);
    return EXO_OK;
}

/* Finds the edge that brings weights to makers. *known: other classes send none. */
static exo_status
find_weights(struct sides *s, uint32_t maker, bool *known, exo_err *err)
{
    const exo_graph_spec *spec = s->spec;
    for (const exo_edge_spec *e = spec->edges; e < spec->edges + spec->num_edges; e++) {
        if (e->to != maker || !carries(e, "parameters"))
            continue;
        if (!is_of(spec, e->from, &exo_ppo_trainer_class)) {
            *known = false;
            continue;
        }
        if (s->weights)
            return exo_config_fail(
                e->node, err,
                "edge '%s': '%s' would get the weights of '%s' and of '%s', which do not learn as "
                "one: let trainers that share makers be of one name, with a count",
                e->name, s->maker->name, spec->actors[s->weights->from].name,
                spec->actors[e->from].name);
        s->weights = e;
    }
    return EXO_OK;
}

/* Takes an edge by which experience reaches trainers, from makers or from their replay_buffer. */
static exo_status
take_experience(struct sides *s, const exo_edge_spec *e, exo_err *err)
{
    const char *to = s->spec->actors[e->to].name, *maker = s->maker->name;
    if (!is_of(s->spec, e->to, &exo_ppo_trainer_class) || e->to == s->weights->from) {
        s->experience = e;
        return EXO_OK;
    }
    return exo_config_fail(
        e->node, err,
        "edge '%s': '%s' would get experience of '%s', which follows the weights of '%s' (edge "
        "'%s'): let '%s' send the weights, {from: %s, to: %s, carries: parameters, route: "
        "broadcast, buffer: {on_full: latest}}, or take the experience",
        e->name, to, maker, s->trainer->name, s->weights->name, to, to, maker);
}

/* Finds the edges that lead experience to trainers. */
static exo_status
find_experience(struct sides *s, uint32_t maker, exo_err *err)
{
    exo_status st = EXO_OK;
    const exo_graph_spec *spec = s->spec;
    const exo_edge_spec *end = spec->edges + spec->num_edges;
    for (const exo_edge_spec *e = spec->edges; st == EXO_OK && e < end; e++) {
        if (e->from != maker || !carries(e, "experience"))
            continue;
        s->passed_on = s->passed_on || !is_of(spec, e->to, &exo_ppo_trainer_class);
        st = take_experience(s, e, err);
        for (const exo_edge_spec *f = spec->edges; st == EXO_OK && f < end; f++)
            if (is_of(spec, e->to, &exo_replay_buffer_class) && f->from == e->to &&
                carries(f, "experience"))
                st = take_experience(s, f, err);
    }
    return st;
}

/* --- Pairs ------------------------------------------------------------------------------------ */

/* Notes which pairs of a maker and a trainer an edge joins. back: it leads from trainers to makers. */
static exo_status
note_pairs(const struct sides *s, const exo_edge_spec *edge, bool back, bool *pairs, exo_err *err)
{
    uint32_t senders = back ? s->trainer->count : s->maker->count, trainers = s->trainer->count;
    uint32_t *targets = exo_calloc(back ? s->maker->count : trainers, sizeof *targets);
    if (!targets)
        return exo_fail(err, EXO_NOMEM, "no memory for the check of edge '%s'", edge->name);
    for (uint32_t i = 0; i < senders; i++) {
        uint32_t count = exo_edge_targets(s->spec, edge, i, targets);
        for (uint32_t k = 0; k < count; k++)
            pairs[back ? (size_t)targets[k] * trainers + i : (size_t)i * trainers + targets[k]] =
                true;
    }
    exo_free(targets);
    return EXO_OK;
}

/* A trainer that a maker hears; answers: and that it can answer. */
static bool
finds(const struct sides *s, uint32_t maker, bool answers, uint32_t *trainer)
{
    size_t trainers = s->trainer->count;
    for (uint32_t t = 0; t < trainers; t++)
        if (s->hears[maker * trainers + t] &&
            (!answers || s->passed_on || s->reaches[maker * trainers + t])) {
            *trainer = t;
            return true;
        }
    return false;
}

static uint32_t
divisor(uint32_t a, uint32_t b)
{
    while (b > 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* A maker hears each trainer whose draws it makes, if they are apart, and reaches it. */
static exo_status
check_draws(const struct sides *s, uint32_t maker, exo_err *err)
{
    uint32_t trainers = s->trainer->count, group = maker / s->tensor;
    uint32_t step = divisor(s->maker->count / s->tensor, trainers);
    const char *name = s->maker->name, *of = s->trainer->name;
    if (s->apart && s->tensor > 1 && step < trainers)
        return exo_config_fail(s->weights->node, err,
                               "edge '%s': makers that share a model follow one trainer, but with "
                               "a strategy %u groups of '%s' follow several of %u: let the number "
                               "of groups be a multiple of it",
                               s->weights->name, s->maker->count / s->tensor, name, trainers);
    for (uint32_t t = group % step; t < trainers; t += step) {
        if (s->apart && !s->hears[(size_t)maker * trainers + t])
            return exo_config_fail(s->weights->node, err,
                                   "edge '%s': %s_%u makes draws of %s_%u, which learns apart by "
                                   "its strategy, but would not get its weights, and wait for "
                                   "ever: let the edge have route: broadcast",
                                   s->weights->name, name, maker, of, t);
        if (!s->passed_on && maker % s->tensor == 0 && !s->reaches[(size_t)maker * trainers + t])
            return exo_config_fail(s->experience->node, err,
                                   "edge '%s': %s_%u makes draws of %s_%u, but would not reach it: "
                                   "let the edge have route: listed, with all of '%s' as targets, "
                                   "or put a replay_buffer between them",
                                   s->experience->name, name, maker, of, t, of);
    }
    return EXO_OK;
}

/* Draws are dealt to a maker by one trainer. */
static exo_status
check_deals(const struct sides *s, uint32_t maker, exo_err *err)
{
    uint32_t trainers = s->trainer->count, heard = 0;
    for (uint32_t t = 0; t < trainers; t++)
        heard += s->hears[(size_t)maker * trainers + t];
    return heard > 1
               ? exo_config_fail(s->weights->node, err,
                                 "edge '%s': %s_%u would get versions of %u trainers, but with "
                                 "balance one deals it its draws: let the edge have route: modulo",
                                 s->weights->name, s->maker->name, maker, heard)
               : EXO_OK;
}

static exo_status
check_maker(const struct sides *s, uint32_t maker, exo_err *err)
{
    uint32_t trainer = 0;
    const char *name = s->maker->name, *of = s->trainer->name;
    if (!finds(s, maker, false, &trainer))
        return exo_config_fail(s->weights->node, err,
                               "edge '%s': %s_%u would get no weights, and make nothing: let the "
                               "edge have route: broadcast",
                               s->weights->name, name, maker);
    if (!finds(s, maker, true, &trainer))
        return exo_config_fail(
            s->experience->node, err,
            "edge '%s': %s_%u would not reach %s_%u, whose weights it gets (edge '%s'), and not "
            "answer its versions: %s_%u would send no further one; let both edges join the same "
            "actors, for instance with the same route",
            s->experience->name, name, maker, of, trainer, s->weights->name, of, trainer);
    return s->deals ? check_deals(s, maker, err) : check_draws(s, maker, err);
}

/* --- Options ---------------------------------------------------------------------------------- */

static exo_status
read_options(struct sides *s, exo_err *err)
{
    exo_config *strategy = exo_config_get(s->trainer->config, "strategy"), *parallel = NULL;
    bool is_map = exo_config_is_map(strategy);
    const char *name = NULL;
    uint64_t tensor = 1;
    exo_status st = exo_config_bool(s->trainer->config, "balance", false, &s->deals, err);
    if (st == EXO_OK && strategy)
        st = exo_config_string(is_map ? strategy : s->trainer->config, is_map ? "name" : "strategy",
                               NULL, &name, err);
    if (st == EXO_OK)
        st = exo_config_map(s->maker->config, "parallel", &parallel, err);
    if (st == EXO_OK && parallel)
        st = exo_config_u64(parallel, "tensor", 1, 1, UINT32_MAX, &tensor, err);
    s->apart = name && strcmp(name, "ddp") != 0;
    s->tensor = tensor <= s->maker->count ? (uint32_t)tensor : 1; /* else the makers say so */
    return st;
}

/* Checks each maker of a name with the trainers that it hears. */
static exo_status
check_pairs(struct sides *s, exo_err *err)
{
    size_t pairs = (size_t)s->maker->count * s->trainer->count;
    if (pairs > MAX_PAIRS)
        return EXO_OK;
    s->hears = exo_calloc(pairs, sizeof *s->hears);
    s->reaches = exo_calloc(pairs, sizeof *s->reaches);
    exo_status st =
        s->hears && s->reaches
            ? read_options(s, err)
            : exo_fail(err, EXO_NOMEM, "no memory for the check of '%s'", s->weights->name);
    if (st == EXO_OK)
        st = note_pairs(s, s->weights, true, s->hears, err);
    if (st == EXO_OK && !s->passed_on)
        st = note_pairs(s, s->experience, false, s->reaches, err);
    for (uint32_t i = 0; st == EXO_OK && i < s->maker->count; i++)
        st = check_maker(s, i, err);
    exo_free(s->hears);
    exo_free(s->reaches);
    return st;
}

static exo_status
check(const exo_graph_spec *spec, exo_err *err)
{
    exo_status st = check_names(spec, err);
    if (st == EXO_OK)
        st = check_every(spec, err);
    for (uint32_t i = 0; st == EXO_OK && i < spec->num_actors; i++) {
        struct sides s = {.spec = spec, .maker = &spec->actors[i]};
        bool known = true;
        if (is_of(spec, i, &exo_ppo_trainer_class))
            st = exo_match_strategy(spec, i, err);
        if (!is_of(spec, i, &exo_experience_maker_class))
            continue;
        st = exo_match_group(spec, i, err);
        if (st == EXO_OK)
            st = find_weights(&s, i, &known, err);
        if (st != EXO_OK || !s.weights || !known)
            continue;
        s.trainer = &spec->actors[s.weights->from];
        st = exo_match_weights(s.maker, s.trainer, err);
        if (st == EXO_OK)
            st = find_experience(&s, i, err);
        if (st == EXO_OK && s.experience)
            st = check_pairs(&s, err);
    }
    return st;
}

const exo_graph_rule exo_experience_rule = {.name = "makers and trainers", .check = check};
