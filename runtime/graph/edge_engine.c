/* Engines of collectives: see edge_engine.h. */
#include "graph/edge_engine.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/engine.h>

#include "base/config_edit.h"

exo_status
exo_edge_read_engine(exo_edge_spec *edge, exo_err *err)
{
    const char *name = NULL;
    exo_err reason = {0};
    exo_config *at = exo_config_get(edge->node, "engine");
    exo_status st = exo_config_string(edge->node, "engine", "auto", &name, err);
    if (st != EXO_OK || !at)
        return st;
    if (edge->route != EXO_ROUTE_ALL_REDUCE)
        return exo_config_fail(
            at, err, "edge '%s': engine is of an all_reduce, whose data it moves", edge->name);
    if (strcmp(name, "auto") == 0)
        return EXO_OK;
    if (exo_engine_find(&edge->engine, name, &reason) != EXO_OK)
        return exo_config_fail(at, err, "engine: %s", reason.text);
    return edge->engine->open
               ? EXO_OK
               : exo_config_fail(
                     at, err, "engine %s is what a graph takes by itself: leave engine out", name);
}

exo_status
exo_edge_check_engine(const exo_graph_spec *spec, const exo_edge_spec *edge, exo_err *err)
{
    const exo_engine_class *e = edge->engine;
    const exo_actor_spec *actor = &spec->actors[edge->from];
    if (!e)
        return EXO_OK;
    const bool links = spec->emulated || spec->virtual_clock || edge->link >= 0;
    const char *lacks =
        !(e->promises & EXO_ENGINE_CODECS) && strcmp(edge->codec_text, "raw") != 0 ? "codecs"
        : !(e->promises & EXO_ENGINE_LINKS) && links ? "emulated links and no virtual clock"
        : actor->restart.when != EXO_RESTART_NEVER   ? "members that restart"
                                                     : NULL;
    return lacks ? exo_config_fail(exo_config_get(edge->node, "engine"), err,
                                   "engine %s has no %s: leave it out, or do without them", e->name,
                                   lacks)
                 : EXO_OK;
}

exo_status
exo_edge_open_engine(exo_comm **out, const exo_edge_spec *edge, uint32_t size,
                     const exo_clock *clock, exo_err *err)
{
    static _Atomic unsigned opened; /* distinguishes the engines of this process */
    char key[64];
    snprintf(key, sizeof key, "edge-%ld-%u", (long)getpid(), opened++);
    const exo_engine_opts opts = {.size = size, .clock = clock, .key = key};
    exo_status st = exo_comm_open(out, edge->engine, &opts, err);
    return st == EXO_OK ? st : exo_fail_in(err, st, "edge '%s'", edge->name);
}

/* FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv/), because the length of a key is limited. */
static uint64_t
hash_of(uint64_t hash, const char *text)
{
    for (const char *c = text; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
    return hash;
}

exo_status
exo_edge_open_engine_far(exo_comm **out, const exo_edge_spec *edge, const char *space,
                         const exo_comm_far_opts *opts, exo_err *err)
{
    const uint64_t hash = hash_of(hash_of(UINT64_C(14695981039346656037), space), edge->name);
    char key[64];
    if (!(edge->engine->promises & EXO_ENGINE_POST))
        return exo_fail(err, EXO_UNSUPPORTED,
                        "edge '%s': engine %s is for actors in one process: run the graph without "
                        "workers, or choose another engine",
                        edge->name, edge->engine->name);
    snprintf(key, sizeof key, "edge-%016" PRIx64, hash);
    exo_status st = exo_comm_far_on(out, edge->engine, key, opts, err);
    return st == EXO_OK ? st : exo_fail_in(err, st, "edge '%s'", edge->name);
}
