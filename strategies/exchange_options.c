/* The options of an exchange: one table of names for each kind of piece, their readers, and the
 * exchange as text. No state. Read next: compose.c. */
#include "strategies/exchange.h"

#include <inttypes.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "base/config_units.h"

/* --- What ------------------------------------------------------------------------------------- */

enum {
    SELECT_ALL, /* before the selectors */
    FIRST_SELECTOR
};

static const char *const selectors[] = {
    [SELECT_ALL] = "all",
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
        st = exo_config_fail(config, err, "p must be greater than 0 and at most 1");
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

/* select: all, a selector's name, or {name: random, p: 0.005} */
static exo_status
read_select(exo_param_exchange *out, exo_config *config, exo_err *err)
{
    exo_config *options = NULL;
    size_t kind = SELECT_ALL;
    exo_status st = exo_config_stand_in(config, "select", &options, err);
    if (st == EXO_OK)
        st = exo_config_choice(options, "name", kind, selectors, &kind, err);
    if (st == EXO_OK && kind != SELECT_ALL) {
        out->selects = true;
        out->selector_kind = (exo_select_kind)(kind - FIRST_SELECTOR);
        st = read_part(out, options, false, err);
    }
    return st == EXO_OK ? exo_config_finish(options, err) : st;
}

exo_status
exo_param_exchange_read_delay(exo_param_exchange *out, exo_config *config, exo_err *err)
{
    enum {
        MAX_DELAY = 1 << 20
    };
    return exo_config_u64(config, "delay", 0, 0, MAX_DELAY, &out->delay, err);
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
    char place[EXO_ERR_TEXT];
    exo_status st = exo_config_u64(config, key, 0, 2, UINT32_MAX, &out->island_size, err);
    if (st != EXO_OK || out->island_size == 0)
        return st;
    exo_config_where(exo_config_get(config, key), place, sizeof place);
    out->place = exo_strdup(place);
    return out->place ? EXO_OK
                      : exo_fail(err, EXO_NOMEM, "no memory for the strategy '%s'", out->name);
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

static const char *const applies[] = {
    [EXO_APPLY_MEAN] = "mean", [EXO_APPLY_OUTER] = "outer", [EXO_APPLY_MIX] = "mix", NULL};

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
    out->apply = EXO_APPLY_OUTER;
    return exo_optim_spec_read(config, key, fallback, &out->outer_spec, err);
}

exo_status
exo_param_exchange_read_aggregate(exo_param_exchange *out, exo_config *config, exo_err *err)
{
    exo_status st = exo_aggregation_read(&out->aggregation, config, err);
    if (st == EXO_OK && out->aggregation.rule == EXO_AGGREGATE_NORM_CLIP &&
        (out->selects || out->delay > 0 || out->island_size > 0 || out->apply == EXO_APPLY_MIX))
        st = exo_config_fail(exo_config_get(config, "aggregate"), err,
                             "aggregate: norm_clip needs nodes that are equal after each round: "
                             "leave out 'select', 'delay', islands or pairs, and 'mix'");
    return st;
}

/* apply: mean, {name: outer, optimizer: {...}}, or {name: mix, alpha: 0.5} */
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
    if (st == EXO_OK && out->apply == EXO_APPLY_OUTER && out->selects)
        st = exo_config_fail(config, err,
                             "apply: an outer optimizer needs all parameters: leave 'select' out, "
                             "or apply the mean");
    if (st == EXO_OK && out->apply == EXO_APPLY_OUTER)
        st = exo_param_exchange_read_outer(out, options, "optimizer", &nesterov, err);
    if (st == EXO_OK && out->apply == EXO_APPLY_MIX)
        st = exo_config_float(options, "alpha", 0.5f, 0, 1, &out->alpha, err);
    return st == EXO_OK ? exo_config_finish(options, err) : st;
}

/* --- A whole exchange ------------------------------------------------------------------------- */

exo_status
exo_param_exchange_read(exo_param_exchange *out, exo_config *config, exo_err *err)
{
    exo_status st = exo_config_u64(config, "every", 1, 1, UINT64_MAX, &out->rounds.interval, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "offset", 0, 0, UINT64_MAX, &out->rounds.offset, err);
    if (st == EXO_OK)
        st = exo_param_exchange_read_delay(out, config, err);
    if (st == EXO_OK)
        st = read_select(out, config, err);
    if (st == EXO_OK)
        st = read_partners(out, config, err);
    if (st == EXO_OK)
        st = read_apply(out, config, err);
    if (st == EXO_OK)
        st = exo_param_exchange_read_aggregate(out, config, err);
    return st == EXO_OK ? exo_config_finish(config, err) : st;
}

void
exo_param_exchange_write(const exo_param_exchange *e, const char *outer, exo_text *out)
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
    if (e->island_size > 0 && e->place)
        exo_text_add(out, ", partners: {name: islands, island_size: %" PRIu64 "}", e->island_size);
    else
        exo_text_add(out, ", partners: %s",
                     partners[e->island_size ? PARTNERS_PAIRS : PARTNERS_ALL]);
    exo_aggregation_write(&e->aggregation, out);
    if (e->apply == EXO_APPLY_OUTER)
        exo_text_add(out, ", apply: {name: outer, optimizer: %s}", outer);
    else if (e->apply == EXO_APPLY_MIX)
        exo_text_add(out, ", apply: {name: mix, alpha: %s}",
                     exo_unit_number((double)e->alpha, number));
    else
        exo_text_add(out, ", apply: mean");
    exo_text_add(out, "}");
}
