/* The engines of a graph's collectives: see engine.h. */
#include "graph/engine.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/device.h>

#include "base/config_edit.h"
#include "comm/engines.h"

/* --- Checks ----------------------------------------------------------------------------------- */

static bool
is_auto(const exo_edge_spec *edge)
{
    return !edge->engine || strcmp(edge->engine, "auto") == 0;
}

/* Whether the engine comes with a plugin of the library's own, which may be missing here. */
static bool
is_optional(const char *engine)
{
    const char *name = NULL;
    for (size_t i = 0; (name = exo_engine_optional_at(i)); i++)
        if (strcmp(name, engine) == 0)
            return true;
    return false;
}

static exo_comm_engine_use
use_of(const exo_graph_spec *spec, const exo_edge_spec *edge, bool far)
{
    return (exo_comm_engine_use){.far = far,
                                 .emulated =
                                     spec->emulated || spec->virtual_clock || edge->link >= 0,
                                 .coded = edge->codec_text && strcmp(edge->codec_text, "raw") != 0};
}

/* An engine that moves data from GPU to GPU needs one. engine: NULL if its plugin is missing here. */
static exo_status
check_device(const exo_graph_spec *spec, const exo_edge_spec *edge, const exo_engine_class *engine,
             exo_err *err)
{
    const exo_actor_spec *actor = &spec->actors[edge->from];
    bool stages = engine ? engine->promises & EXO_ENGINE_STAGES : strcmp(edge->engine, "nccl") == 0;
    return !stages || actor->device
               ? EXO_OK
               : exo_fail(err, EXO_UNSUPPORTED,
                          "engine %s moves data from GPU to GPU, and '%s' computes on the CPU: set "
                          "device: cuda in its config, or choose another engine",
                          edge->engine, actor->name);
}

/* Fails with the reason at the place of the engine's name. A graph that a program made has none. */
static exo_status
fail_at(const exo_graph_spec *spec, const exo_edge_spec *edge, exo_status st, const char *reason,
        exo_err *err)
{
    exo_config *node = edge->node ? exo_config_get(edge->node, "engine") : NULL;
    if (!node || st == EXO_NOMEM)
        return exo_fail(err, st, "%s: edge '%s': %s", spec->source ? spec->source : "graph",
                        edge->name, reason);
    exo_config_fail(node, err, "edge '%s': %s", edge->name, reason);
    if (err)
        err->code = st;
    return st;
}

exo_status
exo_graph_check_engine(const exo_graph_spec *spec, const exo_edge_spec *edge, exo_err *err)
{
    const exo_engine_class *engine = NULL;
    const exo_comm_engine_use use = use_of(spec, edge, false);
    exo_err reason = {0};
    if (is_auto(edge))
        return EXO_OK;
    exo_status st = exo_comm_find_engine(&engine, edge->engine, !edge->any_bits, &reason);
    if (st == EXO_NOT_FOUND && is_optional(edge->engine))
        st = EXO_OK;
    if (st == EXO_OK && engine)
        st = exo_comm_check_edge(engine, &use, &reason);
    if (st == EXO_OK)
        st = check_device(spec, edge, engine, &reason);
    if (st == EXO_OK)
        return EXO_OK;
    return fail_at(spec, edge, st == EXO_NOMEM ? st : EXO_INVAL, reason.text, err);
}

exo_status
exo_graph_check_engines(const exo_graph_spec *spec, bool far, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t e = 0; st == EXO_OK && e < spec->num_edges; e++) {
        const exo_edge_spec *edge = &spec->edges[e];
        const exo_engine_class *engine = NULL;
        const exo_comm_engine_use use = use_of(spec, edge, far);
        exo_err reason = {0};
        if (edge->route != EXO_ROUTE_ALL_REDUCE || is_auto(edge))
            continue;
        st = exo_comm_find_engine(&engine, edge->engine, !edge->any_bits, &reason);
        if (st == EXO_OK)
            st = exo_comm_check_engine(engine, &use, &reason);
        if (st == EXO_OK)
            st = check_device(spec, edge, engine, &reason);
        if (st != EXO_OK)
            fail_at(spec, edge, st, reason.text, err);
    }
    return st;
}

/* --- The choice ------------------------------------------------------------------------------- */

/* Whether the actors' arrays are on one GPU of this process, and the engine `gpu` can do what the
 * edge needs. */
static bool
is_for_gpu(const exo_site *site, const exo_edge_spec *edge)
{
    const exo_comm_engine_use use = use_of(site->spec, edge, false);
    const exo_actor_spec *actor = &site->spec->actors[edge->from];
    return site->whole && !use.emulated && !use.coded && actor->count > 1 &&
           actor->count <= EXO_COMM_GPU_MOST && actor->device &&
           exo_device_is_one_gpu(actor->device);
}

exo_status
exo_graph_engine(const exo_engine_class **out, const exo_site *site, const exo_edge_spec *edge,
                 exo_err *err)
{
    *out = NULL;
    exo_status st = EXO_OK;
    if (!is_auto(edge))
        st = exo_comm_find_engine(out, edge->engine, !edge->any_bits, err);
    else if (is_for_gpu(site, edge))
        st = exo_comm_find_engine(out, "gpu", true, err);
    if (st == EXO_OK && !exo_comm_is_foreign(*out))
        *out = NULL;
    return st == EXO_OK ? EXO_OK : exo_fail_in(err, st, "%s", edge->name);
}

/* --- Communicators ---------------------------------------------------------------------------- */

exo_status
exo_graph_open_engine(exo_comm **out, const exo_site *site, const exo_edge_spec *edge,
                      const exo_engine_class *engine, exo_err *err)
{
    static _Atomic unsigned opened; /* distinguishes the groups of this process */
    char name[64], key[EXO_COMM_KEY];
    snprintf(name, sizeof name, "graph-%ld-%u", (long)getpid(), opened++);
    exo_comm_engine_key(key, name);
    const exo_engine_opts opts = {
        .size = site->spec->actors[edge->from].count, .clock = site->clock, .key = key};
    exo_status st = exo_comm_open(out, engine, &opts, err);
    return st == EXO_OK ? EXO_OK : exo_fail_in(err, st, "%s", edge->name);
}

exo_status
exo_graph_open_engine_far(exo_comm **out, const exo_site *site, const exo_edge_spec *edge,
                          const exo_engine_class *engine, const exo_comm_far_opts *opts,
                          uint32_t life, exo_err *err)
{
    char name[1024], key[EXO_COMM_KEY];
    snprintf(name, sizeof name, "%s/%s/%u", site->space, edge->name, life);
    exo_comm_engine_key(key, name);
    const exo_engine_opts own = {.size = opts->size, .clock = site->clock, .key = key};
    exo_status st = exo_comm_engine_posts(engine) ? exo_comm_far_on(out, engine, key, opts, err)
                                                  : exo_comm_open(out, engine, &own, err);
    return st == EXO_OK ? EXO_OK : exo_fail_in(err, st, "%s", edge->name);
}
