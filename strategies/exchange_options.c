/* The options of an exchange: one table of names for each kind of piece, their readers, and the
 * exchange as text. No state. Read next: compose.c. */
#include "strategies/exchange.h"

#include <string.h>

#include <inttypes.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "base/config_units.h"

/* An option, or its mapping if it is not given. */
static exo_config *
place_of(exo_config *config, const char *key)
{
    exo_config *option = exo_config_get(config, key);
    return option ? option : config;
}

/* Keeps the place of an option for a later check. */
static exo_status
keep_place(char **out, const exo_param_exchange *e, exo_config *config, const char *key,
           exo_err *err)
{
    char place[EXO_ERR_TEXT];
    if (config)
        exo_config_where(place_of(config, key), place, sizeof place);
    *out = exo_strdup(config ? place : e->name);
    return *out ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for the strategy '%s'", e->name);
}

/* --- What ------------------------------------------------------------------------------------- */

enum {
    SELECT_ALL, /* before the selectors */
    SELECT_FRAGMENTS,
    FIRST_SELECTOR
};

static const char *const selectors[] = {
    [SELECT_ALL] = "all",
    [SELECT_FRAGMENTS] = "fragments",
    [FIRST_SELECTOR + EXO_SELECT_RANDOM] = "random",
    [FIRST_SELECTOR + EXO_SELECT_SHUFFLED_SEQUENTIAL] = "shuffled_sequential",
    [FIRST_SELECTOR + EXO_SELECT_PARTITIONED] = "partitioned",
    NULL,
};

static exo_status
read_part(exo_param_exchange *out, exo_config *config, bool allow_zero, exo_err *err)
{
    exo_status st = exo_config_double(config, "p", 0.005, 0, 1, &out->p, err);
    if (st == EXO_OK && !allow_zero && !(out->p > 0))
        st = exo_config_fail(exo_config_get(config, "p"), err,
                             "p must be greater than 0 and at most 1");
    return st;
}

exo_status
exo_param_exchange_read_selector(exo_param_exchange *out, exo_config *config, const char *key,
                                 bool allow_zero, exo_err *err)
{
    size_t kind = EXO_SELECT_RANDOM;
    exo_status st = read_part(out, config, allow_zero, err);
    if (st == EXO_OK)
        st = exo_config_choice(config, key, kind, selectors + FIRST_SELECTOR, &kind, err);
    out->selector_kind = (exo_select_kind)kind;
    out->selects = true;
    return st;
}

exo_status
exo_param_exchange_read_fragments(exo_param_exchange *out, exo_config *config, const char *key,
                                  exo_err *err)
{
    exo_status st = exo_config_u64(config, key, 4, 1, 1 << 16, &out->fragments, err);
    if (st == EXO_OK && out->fragments > out->rounds.interval)
        st = exo_config_fail(config, err,
                             "%s must be at most %" PRIu64 ", the steps between the rounds of a "
                             "fragment, got %" PRIu64,
                             key, out->rounds.interval, out->fragments);
    return st == EXO_OK ? keep_place(&out->cut_at, out, config, key, err) : st;
}

/* select: all, {name: fragments, count: 4}, a selector's name, or {name: random, p: 0.005} */
static exo_status
read_select(exo_param_exchange *out, exo_config *config, exo_err *err)
{
    exo_config *options = NULL;
    size_t kind = SELECT_ALL;
    exo_status st = exo_config_stand_in(config, "select", &options, err);
    if (st == EXO_OK)
        st = exo_config_choice(options, "name", kind, selectors, &kind, err);
    if (st == EXO_OK && kind == SELECT_FRAGMENTS)
        st = exo_param_exchange_read_fragments(out, options, "count", err);
    if (st == EXO_OK && kind >= FIRST_SELECTOR) {
        out->selects = true;
        out->selector_kind = (exo_select_kind)(kind - FIRST_SELECTOR);
        st = read_part(out, options, false, err);
    }
    return st == EXO_OK ? exo_config_finish(options, err) : st;
}

exo_status
exo_param_exchange_read_delay(exo_param_exchange *out, exo_config *config, uint64_t fallback,
                              exo_err *err)
{
    enum {
        MAX_DELAY = 1 << 20
    };
    return exo_config_u64(config, "delay", fallback, 0, MAX_DELAY, &out->delay, err);
}

/* --- Partners --------------------------------------------------------------------------------- */

enum {
    PARTNERS_ALL,
    PARTNERS_ISLANDS,
    PARTNERS_PAIRS
};

static const char *const partners[] = {
    [PARTNERS_ALL] = "all", [PARTNERS_ISLANDS] = "islands", [PARTNERS_PAIRS] = "pairs", NULL};

exo_status
exo_param_exchange_read_island(exo_param_exchange *out, exo_config *config, const char *key,
                               exo_err *err)
{
    exo_status st = exo_config_u64(config, key, 0, 2, UINT32_MAX, &out->island_size, err);
    return st == EXO_OK && out->island_size > 0 ? keep_place(&out->place, out, config, key, err)
                                                : st;
}

/* partners: all, pairs, or {name: islands, island_size: 4} */
static exo_status
read_partners(exo_param_exchange *out, exo_config *config, exo_err *err)
{
    exo_config *options = NULL;
    size_t kind = PARTNERS_ALL;
    exo_status st = exo_config_stand_in(config, "partners", &options, err);
    if (st == EXO_OK)
        st = exo_config_choice(options, "name", kind, partners, &kind, err);
    if (st == EXO_OK && kind == PARTNERS_PAIRS)
        out->island_size = 2;
    if (st == EXO_OK && kind == PARTNERS_ISLANDS) {
        st = exo_param_exchange_read_island(out, options, "island_size", err);
        if (st == EXO_OK && out->island_size == 0)
            st = exo_config_fail(exo_config_get(config, "partners"), err,
                                 "partners: islands need an island_size, as in {name: islands, "
                                 "island_size: 4}");
    }
    return st == EXO_OK ? exo_config_finish(options, err) : st;
}

/* --- Apply ------------------------------------------------------------------------------------ */

static const char *const applies[] = {[EXO_APPLY_MEAN] = "mean",
                                      [EXO_APPLY_OUTER] = "outer",
                                      [EXO_APPLY_MIX] = "mix",
                                      [EXO_APPLY_EAGER] = "eager",
                                      NULL};

exo_optim_spec
exo_nesterov(void)
{
    exo_optim_spec nesterov = exo_optim_spec_init(EXO_SGD);
    nesterov.lr = 0.7f;
    nesterov.momentum = 0.9;
    nesterov.nesterov = true;
    return nesterov;
}

exo_status
exo_param_exchange_read_outer(exo_param_exchange *out, exo_config *config, const char *key,
                              const exo_optim_spec *fallback, exo_err *err)
{
    if (out->apply != EXO_APPLY_EAGER)
        out->apply = EXO_APPLY_OUTER;
    return exo_optim_spec_read(config, key, fallback, &out->outer_spec, err);
}

exo_status
exo_param_exchange_read_aggregate(exo_param_exchange *out, exo_config *config, exo_err *err)
{
    exo_status st = exo_aggregation_read(&out->aggregation, config, err);
    if (st == EXO_OK && out->aggregation.rule == EXO_AGGREGATE_NORM_CLIP &&
        (out->selects || out->fragments > 0 || out->delay > 0 || out->island_size > 0 ||
         out->apply == EXO_APPLY_MIX))
        st = exo_config_fail(exo_config_get(config, "aggregate"), err,
                             "aggregate: norm_clip needs nodes that are equal after each round: "
                             "leave out 'select', 'delay', islands or pairs, and 'mix'");
    return st;
}

exo_status
exo_param_exchange_read_momentum(exo_param_exchange *out, exo_config *config, const char *key,
                                 exo_err *err)
{
    const exo_optim_spec *spec = &out->outer_spec;
    exo_config *node = exo_config_get(config, key);
    if (!node)
        return EXO_OK;
    if (!exo_config_is_map(node))
        return exo_config_fail(node, err, "%s: expected a mapping, as in {name: linear}", key);
    if (!((spec->kind == EXO_SGD || spec->kind == EXO_RMSPROP) && spec->momentum > 0))
        return exo_config_fail(node, err, "%s needs an outer optimizer with momentum", key);
    return exo_schedule_read(&out->momentum, config, key, err);
}

/* apply: mean, {name: outer, optimizer: {...}, alpha: 0.5}, {name: mix, alpha: 0.5}, or {name: eager,
 * optimizer: {...}} */
static exo_status
read_apply(exo_param_exchange *out, exo_config *config, exo_err *err)
{
    const exo_optim_spec nesterov = exo_nesterov();
    exo_config *options = NULL;
    size_t kind = EXO_APPLY_MEAN;
    exo_status st = exo_config_stand_in(config, "apply", &options, err);
    if (st == EXO_OK)
        st = exo_config_choice(options, "name", kind, applies, &kind, err);
    out->apply = (exo_apply)kind;
    if (st == EXO_OK && (out->apply == EXO_APPLY_OUTER || out->apply == EXO_APPLY_EAGER))
        st = exo_param_exchange_read_outer(out, options, "optimizer", &nesterov, err);
    if (st == EXO_OK && (out->apply == EXO_APPLY_OUTER || out->apply == EXO_APPLY_EAGER))
        st = exo_param_exchange_read_momentum(out, options, "momentum", err);
    if (st == EXO_OK && (out->apply == EXO_APPLY_OUTER || out->apply == EXO_APPLY_MIX))
        st = exo_config_float(options, "alpha", out->apply == EXO_APPLY_MIX ? 0.5f : 0, 0, 1,
                              &out->alpha, err);
    return st == EXO_OK ? exo_config_finish(options, err) : st;
}

/* --- Codec ------------------------------------------------------------------------------------ */

/* A codec keeps no memory of its own here, because feedback is in the checkpoint; and all nodes
 * must know the size of an encoding. */
static exo_status
check_codec(exo_param_exchange *out, exo_config *config, exo_config *node, exo_err *err)
{
    size_t size = 0;
    if (exo_codec_is_lossless(out->codec) && exo_codec_size(out->codec, 1, &size))
        exo_codec_free(&out->codec); /* raw: parameters are sent */
    else if (!exo_codec_is_stateless(out->codec) || !exo_codec_size(out->codec, 1, &size))
        return exo_config_fail(node ? node : config, err,
                               "codec: an exchange needs one that remembers nothing and has a "
                               "fixed size; for topk say error_feedback: false, and 'feedback' "
                               "beside the codec");
    return EXO_OK;
}

exo_status
exo_param_exchange_read_codec(exo_param_exchange *out, exo_config *config, const char *fallback,
                              float feedback, exo_err *err)
{
    const char *name = fallback;
    exo_config *node = exo_config_get(config, "codec");
    exo_status st = EXO_OK;
    if (!exo_config_is_map(node) && !exo_config_is_list(node))
        st = exo_config_string(config, "codec", fallback, &name, err);
    const char *text = exo_config_scalar(node);
    const bool is_text = text && strpbrk(text, "[{"); /* as config.json has a codec */
    if (st == EXO_OK)
        st = node && !is_text ? exo_codec_new(&out->codec, node, err)
                              : exo_codec_parse(&out->codec, name, err);
    if (st != EXO_OK && st != EXO_NOMEM && node)
        return exo_config_add_place(node, err);
    if (st == EXO_OK)
        st = check_codec(out, config, node, err);
    if (st == EXO_OK)
        st = exo_config_float(config, "feedback", feedback, 0, 1, &out->feedback, err);
    return st;
}

/* --- A whole exchange ------------------------------------------------------------------------- */

exo_status
exo_param_exchange_check_pieces(const exo_param_exchange *e, exo_config *config, exo_err *err)
{
    const bool outer = e->apply == EXO_APPLY_OUTER, eager = e->apply == EXO_APPLY_EAGER;
    const bool plain = e->island_size == 0 && e->aggregation.rule == EXO_AGGREGATE_MEAN;
    if ((outer || eager) && e->selects)
        return exo_config_fail(config, err,
                               "apply: an outer optimizer needs all parameters: leave 'select' "
                               "out, or apply the mean");
    if (eager && (!plain || e->fragments > 0 || e->delay > 0 || e->codec))
        return exo_config_fail(config, err,
                               "apply: eager is for all parameters and all nodes: leave out "
                               "'select', 'partners', 'aggregate', 'delay' and 'codec'");
    if ((outer || eager) && e->delay >= e->rounds.interval)
        return exo_config_fail(place_of(config, "delay"), err,
                               "delay must be less than %" PRIu64 ", the steps between rounds, got "
                               "%" PRIu64 ": an outer step needs the one before",
                               e->rounds.interval, e->delay);
    if (e->codec && (!outer || !plain))
        return exo_config_fail(config, err,
                               "codec: pseudo-gradients are encoded, which needs 'apply: outer', "
                               "all nodes as partners, and their mean");
    if (e->feedback > 0 && !e->codec)
        return exo_config_fail(config, err, "feedback needs a codec that loses something");
    return EXO_OK;
}

exo_status
exo_param_exchange_read(exo_param_exchange *out, exo_config *config, exo_err *err)
{
    exo_status st = exo_config_u64(config, "every", 1, 1, UINT64_MAX, &out->rounds.interval, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "offset", 0, 0, UINT64_MAX, &out->rounds.offset, err);
    if (st == EXO_OK)
        st = exo_param_exchange_read_delay(out, config, 0, err);
    if (st == EXO_OK)
        st = read_select(out, config, err);
    if (st == EXO_OK)
        st = read_partners(out, config, err);
    if (st == EXO_OK)
        st = read_apply(out, config, err);
    if (st == EXO_OK)
        st = exo_param_exchange_read_aggregate(out, config, err);
    if (st == EXO_OK)
        st = exo_param_exchange_read_codec(out, config, "raw", 0, err);
    if (st == EXO_OK)
        st = exo_param_exchange_check_pieces(out, config, err);
    return st == EXO_OK ? exo_config_finish(config, err) : st;
}

void
exo_param_exchange_write(const exo_param_exchange *e, const char *outer, const char *momentum,
                         exo_text *out)
{
    char number[EXO_UNIT_TEXT];
    exo_text_add(out, "{what: parameters, every: %" PRIu64, e->rounds.interval);
    if (e->rounds.offset > 0)
        exo_text_add(out, ", offset: %" PRIu64, e->rounds.offset);
    if (e->delay > 0)
        exo_text_add(out, ", delay: %" PRIu64, e->delay);
    if (e->selects)
        exo_text_add(out, ", select: {name: %s, p: %s}",
                     selectors[FIRST_SELECTOR + e->selector_kind], exo_unit_number(e->p, number));
    if (e->fragments > 0)
        exo_text_add(out, ", select: {name: fragments, count: %" PRIu64 "}", e->fragments);
    if (e->island_size > 0 && e->place)
        exo_text_add(out, ", partners: {name: islands, island_size: %" PRIu64 "}", e->island_size);
    else
        exo_text_add(out, ", partners: %s",
                     partners[e->island_size ? PARTNERS_PAIRS : PARTNERS_ALL]);
    exo_aggregation_write(&e->aggregation, out);
    if (e->codec)
        exo_text_add(out, ", codec: %s", exo_codec_text(e->codec));
    if (e->feedback > 0)
        exo_text_add(out, ", feedback: %s", exo_unit_number((double)e->feedback, number));
    if (e->apply == EXO_APPLY_OUTER || e->apply == EXO_APPLY_EAGER) {
        exo_text_add(out, ", apply: {name: %s, optimizer: %s", applies[e->apply], outer);
        if (e->momentum)
            exo_text_add(out, ", momentum: %s", momentum);
        if (e->alpha > 0)
            exo_text_add(out, ", alpha: %s", exo_unit_number((double)e->alpha, number));
        exo_text_add(out, "}");
    } else if (e->apply == EXO_APPLY_MIX) {
        exo_text_add(out, ", apply: {name: mix, alpha: %s}",
                     exo_unit_number((double)e->alpha, number));
    } else {
        exo_text_add(out, ", apply: mean");
    }
    exo_text_add(out, "}");
}
