/* The engine of a job: see fit_engine.h. No state. */
#include "actors/fit_engine.h"

enum {
    STEPS = 1024 /* of which it is asked whether nodes communicate in each */
};

exo_status
exo_fit_find_way(exo_way *out, const char *name, const exo_engine_class *engine, bool equal_bits,
                 exo_err *err)
{
    exo_status st = exo_way_parse(name, out, err);
    if (st != EXO_OK || *out == EXO_WAY_DIRECT)
        return st;
    const exo_collective_args args = {.operation = EXO_ALL_REDUCE, .way = *out};
    if (exo_comm_is_foreign(engine))
        return exo_fail(err, EXO_INVAL, "engine %s has its own messages: leave collectives out",
                        engine->name);
    if (equal_bits && *out != EXO_WAY_AUTO && exo_comm_ways_reorders(&args))
        return exo_fail(err, EXO_INVAL,
                        "%s sums in another order than the others: choose direct, tree or auto, or "
                        "set equal_bits: false",
                        name);
    return EXO_OK;
}

exo_status
exo_fit_check_suspends(const exo_engine_class *e, const exo_fit_opts *opts, exo_err *err)
{
    if (opts->engine_suspends && opts->elastic.min_nodes > 0)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "nodes of an elastic run change their group at any time, and none can be "
                        "suspended then: leave engine_suspends or train.elastic out");
    return !opts->engine_suspends || (e && e->promises & EXO_ENGINE_SUSPEND)
               ? EXO_OK
               : exo_fail(err, EXO_UNSUPPORTED,
                          "engine %s holds no memory of a GPU that it could give back: choose "
                          "nccl, or leave engine_suspends out",
                          e ? e->name : "auto");
}

/* Whether nodes communicate in each of the first steps. */
static bool
meets_always(const exo_strategy *strategy)
{
    uint64_t step = 0;
    while (step < STEPS && exo_strategy_meets(strategy, step))
        step++;
    return step == STEPS;
}

exo_status
exo_fit_check_rests(const exo_strategy *strategy, const char *name, exo_err *err)
{
    const bool apart = exo_strategy_is_apart(strategy);
    if (exo_strategy_is_elastic(strategy) && !apart)
        return EXO_OK;
    return exo_fail(err, EXO_UNSUPPORTED,
                    "engine_suspends: the strategy '%s' %s: leave engine_suspends out, or choose "
                    "another strategy",
                    name,
                    apart                    ? "lets each node exchange in its own time"
                    : meets_always(strategy) ? "exchanges in every step"
                                             : "has rounds on their way between its exchanges");
}

exo_status
exo_fit_open_engine(exo_comm **out, const exo_engine_class *engine, const char *run, uint32_t size,
                    const exo_clock *clock, exo_err *err)
{
    char key[EXO_COMM_KEY];
    exo_comm_engine_key(key, run);
    return exo_comm_open(out, engine, &(exo_engine_opts){.size = size, .clock = clock, .key = key},
                         err);
}

exo_status
exo_fit_open_engine_far(exo_comm **out, const exo_engine_class *engine, const char *run,
                        const exo_comm_far_opts *opts, exo_err *err)
{
    char key[EXO_COMM_KEY];
    exo_comm_engine_key(key, run);
    return exo_comm_far_on(out, engine, key, opts, err);
}
