/* The engines by name: those of the library, which builtins/ lists, those in plugins of the library's
 * own, which are loaded when somebody asks for one, and those that programs and plugins register.
 * State: the registry. */
#include "comm/engines.h"

#include <string.h>

#include <exogym/memory.h>

#include "base/grow_text.h"
#include "base/nearest.h"
#include "base/own_plugin.h"

exo_registry exo_engine_registry = EXO_REGISTRY("engine");

const exo_engine_class *
exo_engine_at(size_t index)
{
    return exo_registry_at(&exo_engine_registry, index);
}

static const struct {
    const char *name, *plugin, *needs;
} optional[] = {
    {"gpu", "exogym-cuda.so", "CUDA 13 (nvcc and cuBLASLt)"},
    {"mpi", "exogym-mpi.so", "MPI (Debian: libopenmpi-dev)"},
    {"nccl", "exogym-cuda.so", "CUDA 13 (nvcc and cuBLASLt)"},
};

exo_status
exo_engine_load_optional(const char *name, exo_err *err)
{
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++) {
        if (strcmp(optional[i].name, name) != 0)
            continue;
        exo_status st = exo_own_plugin_load(optional[i].plugin, NULL, NULL, err);
        return st == EXO_NOT_FOUND
                   ? exo_fail(
                         err, EXO_NOT_FOUND,
                         "engine %s needs %s: there is no %s, because exogym was built without "
                         "it, or its package is not installed",
                         name, optional[i].needs, optional[i].plugin)
                   : st;
    }
    return EXO_OK;
}

const char *
exo_engine_optional_at(size_t index)
{
    return index < sizeof optional / sizeof *optional ? optional[index].name : NULL;
}

/* Names all engines, and of those that cannot be loaded the reason. */
static exo_status
say_unknown(const char *name, exo_err *err)
{
    exo_nearest nearest = {.word = name};
    exo_text known = {0}, missing = {0};
    const exo_engine_class *e = NULL;
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++) {
        exo_err reason = {0};
        const exo_status st = exo_engine_load_optional(optional[i].name, &reason);
        exo_nearest_try(&nearest, optional[i].name);
        if (st == EXO_NOT_FOUND)
            exo_text_add(&missing, "; %s needs %s and %s, which are not here", optional[i].name,
                         optional[i].needs, optional[i].plugin);
        else if (st != EXO_OK)
            exo_text_add(&missing, "; %s cannot be loaded: %.120s", optional[i].name, reason.text);
    }
    for (size_t i = 0; (e = exo_engine_at(i)); i++) {
        exo_nearest_try(&nearest, e->name);
        exo_text_add(&known, "%s%s", i ? ", " : "", e->name);
    }
    const char *meant = exo_nearest_name(&nearest);
    const char *lacks = missing.data ? missing.data : "";
    exo_status st =
        meant ? exo_fail(err, EXO_NOT_FOUND, "there is no engine '%.60s'; did you mean '%s'?", name,
                         meant)
              : exo_fail(err, EXO_NOT_FOUND, "there is no engine '%.60s'; known are: auto, %s%s",
                         name, known.data ? known.data : "", lacks);
    exo_free(known.data);
    exo_free(missing.data);
    return st;
}

exo_status
exo_engine_find(const exo_engine_class **out, const char *name, exo_err *err)
{
    *out = exo_registry_find(&exo_engine_registry, name);
    if (*out)
        return EXO_OK;
    exo_status st = exo_engine_load_optional(name, err);
    if (st != EXO_OK)
        return st;
    *out = exo_registry_find(&exo_engine_registry, name);
    return *out ? EXO_OK : say_unknown(name, err);
}

exo_status
exo_engine_register(const exo_engine_class *e, exo_err *err)
{
    if (!e->name || !*e->name)
        return exo_fail(err, EXO_INVAL, "an engine needs a name");
    bool moves = e->advance || (e->begin && e->test && e->wait && e->cancel);
    if (!e->close || !e->fail || !moves)
        return exo_fail(err, EXO_INVAL,
                        "engine %s: a function is missing: only open may be, and for begin, test, "
                        "wait and cancel there may be advance",
                        e->name);
    if (e->promises & EXO_ENGINE_POST && !e->hear)
        return exo_fail(err, EXO_INVAL, "engine %s: it promises POST and has no hear", e->name);
    if (e->promises & EXO_ENGINE_SUSPEND && !e->suspend)
        return exo_fail(err, EXO_INVAL, "engine %s: it promises SUSPEND and has no suspend",
                        e->name);
    if (e->promises & EXO_ENGINE_STAGES && !e->stage)
        return exo_fail(err, EXO_INVAL, "engine %s: it promises STAGES and has no stage", e->name);
    return exo_registry_add(&exo_engine_registry, e, err);
}

const char *
exo_collective_name(exo_collective operation)
{
    static const char *const names[] = {
        [EXO_ALL_REDUCE] = "all_reduce",
        [EXO_REDUCE_SCATTER] = "reduce_scatter",
        [EXO_ALL_GATHER] = "all_gather",
        [EXO_BROADCAST] = "broadcast",
        [EXO_BARRIER] = "barrier",
        [EXO_ALL_TO_ALL] = "all_to_all",
        [EXO_SWAP] = "swap",
        [EXO_SHIFT] = "shift",
    };
    return names[operation];
}
