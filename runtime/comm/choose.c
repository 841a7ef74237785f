/* The engine that somebody names: see choose.h. No state. */
#include "comm/choose.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "comm/backend.h"

exo_status
exo_comm_find_engine(const exo_engine_class **out, const char *name, bool equal_bits, exo_err *err)
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
exo_comm_check_edge(const exo_engine_class *e, const exo_comm_engine_use *use, exo_err *err)
{
    const char *lacks = NULL;
    if (!e)
        return EXO_OK;
    if (use->emulated && exo_comm_is_foreign(e) && !(e->promises & EXO_ENGINE_LINKS))
        lacks = "emulated links and no virtual clock";
    else if (use->coded && !(e->promises & EXO_ENGINE_CODECS))
        lacks = "codecs";
    return lacks ? exo_fail(err, EXO_UNSUPPORTED, "engine %s has no %s: choose another engine",
                            e->name, lacks)
                 : EXO_OK;
}

exo_status
exo_comm_check_engine(const exo_engine_class *e, const exo_comm_engine_use *use, exo_err *err)
{
    if (e && use->far && !(e->promises & (EXO_ENGINE_PROCESSES | EXO_ENGINE_HOSTS)))
        return exo_fail(err, EXO_UNSUPPORTED,
                        "engine %s is for members in one process: choose another engine, or run "
                        "without workers",
                        e->name);
    if (e && !use->far && !e->open)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "engine %s is for members on workers: choose another engine, or run with "
                        "--workers, --head or --cluster",
                        e->name);
    return exo_comm_check_edge(e, use, err);
}

const exo_engine_class *
exo_comm_engine_of(const exo_comm *comm)
{
    return comm->engine;
}

bool
exo_comm_is_foreign(const exo_engine_class *engine)
{
    return engine && strcmp(engine->name, "local") != 0 && strcmp(engine->name, "net") != 0;
}

bool
exo_comm_engine_posts(const exo_engine_class *engine)
{
    return engine && engine->promises & EXO_ENGINE_POST;
}

/* The key contains the FNV-1a hash of the name (http://www.isthe.com/chongo/tech/comp/fnv/): the
 * length of a key is limited. */
void
exo_comm_engine_key(char key[EXO_COMM_KEY], const char *name)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (const char *c = name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
    snprintf(key, EXO_COMM_KEY, "exogym-%016" PRIx64, hash);
}
