/* The engine of a job: see fit_engine.h. No state. */
#include "actors/fit_engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    STEPS = 1024 /* of which it is asked whether nodes communicate in each */
};

exo_status
exo_fit_find_engine(const exo_engine_class **out, const char *name, bool equal_bits, exo_err *err)
{
    const exo_engine_class *engine = NULL;
    *out = NULL;
    if (!name || strcmp(name, "auto") == 0)
        return EXO_OK;
    exo_status st = exo_engine_find(&engine, name, err);
    if (st != EXO_OK)
        return st;
    if (equal_bits && !(engine->promises & EXO_ENGINE_ORDERED))
        return exo_fail(
            err, EXO_INVAL,
            "engine %s does not promise equal bits: choose one that does, or set equal_bits: false",
            name);
    if (!(engine->dtypes & 1u << EXO_F32))
        return exo_fail(err, EXO_UNSUPPORTED,
                        "engine %s does not reduce fp32: choose another engine", name);
    *out = engine;
    return EXO_OK;
}

exo_status
exo_fit_find_way(exo_way *out, const char *name, const exo_engine_class *engine, bool equal_bits,
                 exo_err *err)
{
    exo_status st = exo_way_parse(name, out, err);
    if (st != EXO_OK || *out == EXO_WAY_DIRECT)
        return st;
    const exo_collective_args args = {.operation = EXO_ALL_REDUCE, .way = *out};
    if (exo_fit_is_foreign(engine))
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
exo_fit_check_engine(const exo_engine_class *e, const exo_fit_engine_use *use, exo_err *err)
{
    const char *lacks = NULL;
    if (!e)
        return EXO_OK;
    if (use->far && !(e->promises & (EXO_ENGINE_PROCESSES | EXO_ENGINE_HOSTS)))
        return exo_fail(err, EXO_UNSUPPORTED,
                        "engine %s is for nodes in one process: choose another engine, or run the "
                        "job without workers",
                        e->name);
    if (!use->far && !e->open)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "engine %s is for nodes on workers: choose another engine, or run the job "
                        "with --workers, --head or --cluster",
                        e->name);
    if (use->emulated && exo_fit_is_foreign(e) && !(e->promises & EXO_ENGINE_LINKS))
        lacks = "emulated links and no virtual clock";
    else if (use->coded && !(e->promises & EXO_ENGINE_CODECS))
        lacks = "codecs";
    return lacks ? exo_fail(err, EXO_UNSUPPORTED, "engine %s has no %s: choose another engine",
                            e->name, lacks)
                 : EXO_OK;
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

bool
exo_fit_is_foreign(const exo_engine_class *engine)
{
    return engine && strcmp(engine->name, "local") != 0 && strcmp(engine->name, "net") != 0;
}

bool
exo_fit_engine_posts(const exo_engine_class *engine)
{
    return engine && engine->promises & EXO_ENGINE_POST;
}

/* The key contains the FNV-1a hash of the run's name (http://www.isthe.com/chongo/tech/comp/fnv/):
 * the length of a key is limited, that of a name is not. */
static void
write_key(char key[64], const char *run)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (const char *c = run; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
    snprintf(key, 64, "exogym-%016" PRIx64, hash);
}

exo_status
exo_fit_open_engine(exo_comm **out, const exo_engine_class *engine, const char *run, uint32_t size,
                    const exo_clock *clock, exo_err *err)
{
    char key[64];
    write_key(key, run);
    return exo_comm_open(out, engine, &(exo_engine_opts){.size = size, .clock = clock, .key = key},
                         err);
}

exo_status
exo_fit_open_engine_far(exo_comm **out, const exo_engine_class *engine, const char *run,
                        const exo_comm_far_opts *opts, exo_err *err)
{
    char key[64];
    write_key(key, run);
    return exo_comm_far_on(out, engine, key, opts, err);
}
