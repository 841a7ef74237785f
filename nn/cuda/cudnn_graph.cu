/* cuDNN's graphs: see cudnn_graph.h. */
#include "nn/cuda/cudnn_graph.h"

#include <exogym/log.h>

#include "nn/cuda/memory.h"

enum {
    MOST_NOTES = 32
};

exo_status
exo_cudnn_check(const exo_cuda_cudnn *c, int status, const char *what, exo_err *err)
{
    if (status == EXO_CUDNN_SUCCESS)
        return EXO_OK;
    const bool memory = status == EXO_CUDNN_NO_HOST_MEMORY || status == EXO_CUDNN_NO_DEVICE_MEMORY;
    return exo_fail(err, memory ? EXO_NOMEM : EXO_FAILED, "cuDNN: %s: %s", what,
                    c->call->GetErrorString(status));
}

/* --- Descriptors ------------------------------------------------------------------------------ */

exo_cudnn_thing
exo_cudnn_make(exo_cudnn_maker *m, int kind)
{
    exo_cudnn_thing thing = NULL;
    if (m->status != EXO_CUDNN_SUCCESS)
        return NULL;
    if (m->count == EXO_CUDNN_MOST_THINGS) {
        m->status = EXO_CUDNN_NO_HOST_MEMORY;
        return NULL;
    }
    m->status = m->call->BackendCreateDescriptor(kind, &thing);
    if (m->status == EXO_CUDNN_SUCCESS)
        m->things[m->count++] = thing;
    return thing;
}

void
exo_cudnn_set_many(exo_cudnn_maker *m, exo_cudnn_thing thing, int attribute, int type,
                   int64_t count, const void *values)
{
    if (m->status == EXO_CUDNN_SUCCESS)
        m->status = m->call->BackendSetAttribute(thing, attribute, type, count, values);
}

/* Reads an attribute that has one value. */
static void
get(exo_cudnn_maker *m, exo_cudnn_thing thing, int attribute, int type, void *out)
{
    int64_t count = 0;
    if (m->status == EXO_CUDNN_SUCCESS)
        m->status = m->call->BackendGetAttribute(thing, attribute, type, 1, &count, out);
}

exo_cudnn_thing
exo_cudnn_finish(exo_cudnn_maker *m, exo_cudnn_thing thing)
{
    if (m->status == EXO_CUDNN_SUCCESS)
        m->status = m->call->BackendFinalize(thing);
    return thing;
}

void
exo_cudnn_destroy_all(exo_cudnn_maker *m)
{
    while (m->count > 0)
        (void)m->call->BackendDestroyDescriptor(m->things[--m->count]);
}

/* Moves a descriptor to another maker, which destroys it. */
static void
move(exo_cudnn_maker *from, exo_cudnn_maker *to, exo_cudnn_thing thing)
{
    for (int i = 0; i < from->count && to->count < EXO_CUDNN_MOST_THINGS; i++)
        if (from->things[i] == thing) {
            from->things[i] = from->things[--from->count];
            to->things[to->count++] = thing;
            return;
        }
}

bool
exo_cudnn_is_unsupported(int status)
{
    return status / 1000 * 1000 == EXO_CUDNN_NOT_SUPPORTED;
}

exo_cudnn_thing
exo_cudnn_make_graph(exo_cudnn_maker *m, const exo_cuda_cudnn *c, int64_t count,
                     const exo_cudnn_thing *operations)
{
    const exo_cudnn_thing graph = exo_cudnn_make(m, EXO_CUDNN_GRAPH);
    if (c->handle)
        exo_cudnn_set(m, graph, EXO_CUDNN_GRAPH_HANDLE, EXO_CUDNN_OF_HANDLE, c->handle);
    exo_cudnn_set_many(m, graph, EXO_CUDNN_GRAPH_OPERATIONS, EXO_CUDNN_OF_THING, count, operations);
    return exo_cudnn_finish(m, graph);
}

/* --- Engines ---------------------------------------------------------------------------------- */

/* Asks a heuristic which engines compute the graph. Returns how many configurations it has written to
 * `out`; a heuristic that does not know the graph has none. */
static int64_t
ask_advice(exo_cudnn_maker *m, const exo_cuda_cudnn *c, exo_cudnn_thing graph, int mode,
           exo_cudnn_thing *out)
{
    int64_t count = 0;
    const exo_cudnn_thing heuristic = exo_cudnn_make(m, EXO_CUDNN_HEURISTIC);
    exo_cudnn_set(m, heuristic, EXO_CUDNN_HEURISTIC_GRAPH, EXO_CUDNN_OF_THING, graph);
    exo_cudnn_set(m, heuristic, EXO_CUDNN_HEURISTIC_MODE, EXO_CUDNN_OF_HEURISTIC_MODE, mode);
    if (c->machine)
        exo_cudnn_set(m, heuristic, EXO_CUDNN_HEURISTIC_MACHINE, EXO_CUDNN_OF_THING, c->machine);
    (void)exo_cudnn_finish(m, heuristic);
    if (m->status == EXO_CUDNN_SUCCESS)
        m->status = m->call->BackendGetAttribute(heuristic, EXO_CUDNN_HEURISTIC_RESULTS,
                                                 EXO_CUDNN_OF_THING, 0, &count, NULL);
    if (exo_cudnn_is_unsupported(m->status))
        m->status = EXO_CUDNN_SUCCESS;
    const int64_t most = EXO_CUDNN_MOST_ADVICE, room = count < most ? count : most;
    for (int64_t i = 0; i < room; i++)
        out[i] = exo_cudnn_make(m, EXO_CUDNN_CONFIG);
    if (m->status == EXO_CUDNN_SUCCESS && room > 0)
        m->status = m->call->BackendGetAttribute(heuristic, EXO_CUDNN_HEURISTIC_RESULTS,
                                                 EXO_CUDNN_OF_THING, room, &count, out);
    return m->status != EXO_CUDNN_SUCCESS ? 0 : count < room ? count : room;
}

/* Whether the engine of a configuration is taken: its bits are the same in each run, its sums are of
 * fp32, and operands are not rounded if `exact`. */
static bool
is_right(bool exact, exo_cudnn_maker *parts, exo_cudnn_thing config, int64_t *index)
{
    exo_cudnn_maker m = {parts->call, parts->status, 0, {}};
    int notes[MOST_NOTES];
    int64_t count = 0;
    exo_cudnn_thing engine = exo_cudnn_make(&m, EXO_CUDNN_ENGINE);
    get(&m, config, EXO_CUDNN_CONFIG_ENGINE, EXO_CUDNN_OF_THING, &engine);
    get(&m, engine, EXO_CUDNN_ENGINE_INDEX, EXO_CUDNN_OF_INT64, index);
    if (m.status == EXO_CUDNN_SUCCESS)
        m.status = m.call->BackendGetAttribute(engine, EXO_CUDNN_ENGINE_NOTES, EXO_CUDNN_OF_NOTE,
                                               MOST_NOTES, &count, notes);
    bool right = m.status == EXO_CUDNN_SUCCESS && count <= MOST_NOTES;
    for (int64_t i = 0; right && i < count; i++)
        right =
            notes[i] != EXO_CUDNN_NONDETERMINISTIC && notes[i] != EXO_CUDNN_REDUCES_SUMS &&
            !(exact && (notes[i] == EXO_CUDNN_TENSOR_CORE || notes[i] == EXO_CUDNN_DOWN_CONVERTS));
    exo_cudnn_destroy_all(&m);
    parts->status = m.status;
    return right;
}

/* Makes the plan of a configuration. False: cuDNN does not compute the shape so after all, or with too
 * large a workspace; or a call has failed. */
static bool
make_plan(const exo_cuda_cudnn *c, exo_cudnn_pass *p, exo_cudnn_thing config,
          int64_t most_workspace)
{
    exo_cudnn_maker m = {c->call, EXO_CUDNN_SUCCESS, 0, {}};
    int64_t bytes = 0;
    const exo_cudnn_thing plan = exo_cudnn_make(&m, EXO_CUDNN_PLAN);
    if (c->machine)
        exo_cudnn_set(&m, plan, EXO_CUDNN_PLAN_MACHINE, EXO_CUDNN_OF_THING, c->machine);
    else
        exo_cudnn_set(&m, plan, EXO_CUDNN_PLAN_HANDLE, EXO_CUDNN_OF_HANDLE, c->handle);
    exo_cudnn_set(&m, plan, EXO_CUDNN_PLAN_CONFIG, EXO_CUDNN_OF_THING, config);
    (void)exo_cudnn_finish(&m, plan);
    get(&m, plan, EXO_CUDNN_PLAN_WORKSPACE, EXO_CUDNN_OF_INT64, &bytes);
    const bool taken = m.status == EXO_CUDNN_SUCCESS && bytes >= 0 && bytes <= most_workspace;
    if (taken) {
        m.count = 0; /* it is the pass's */
        p->plan = plan;
        p->bytes = static_cast<size_t>(bytes);
    }
    exo_cudnn_destroy_all(&m);
    p->parts.status = exo_cudnn_is_unsupported(m.status) ? EXO_CUDNN_SUCCESS : m.status;
    return taken;
}

/* What the next engine may do although this one's plan has failed. Lack of memory is another day's luck, on
 * which the choice, and so the bits of a run, must not depend. */
static bool
may_go_on(int status)
{
    return status != EXO_CUDNN_SUCCESS && status != EXO_CUDNN_NO_HOST_MEMORY &&
           status != EXO_CUDNN_NO_DEVICE_MEMORY;
}

/* Takes the first advice of a heuristic whose engine is right and has a plan. A plan that fails is kept in
 * mind. */
static bool
take_advice(const exo_cuda_cudnn *c, exo_cudnn_pass *p, exo_cudnn_thing graph, int mode,
            exo_cudnn_choice *choice)
{
    bool found = false;
    exo_cudnn_maker advice = {c->call, p->parts.status, 0, {}};
    exo_cudnn_thing configs[EXO_CUDNN_MOST_ADVICE];
    const int64_t count = ask_advice(&advice, c, graph, mode, configs);
    choice->advice += count;
    p->parts.status = advice.status;
    for (int64_t i = 0; i < count && !found && p->parts.status == EXO_CUDNN_SUCCESS; i++) {
        if (!is_right(choice->exact, &p->parts, configs[i], &choice->engine))
            continue;
        found = make_plan(c, p, configs[i], choice->most_workspace);
        if (found)
            move(&advice, &p->parts, configs[i]);
        if (!may_go_on(p->parts.status))
            continue;
        if (choice->failure == EXO_CUDNN_SUCCESS) {
            choice->failure = p->parts.status;
            choice->failed = choice->engine;
        }
        p->parts.status = EXO_CUDNN_SUCCESS;
    }
    exo_cudnn_destroy_all(&advice);
    return found;
}

int
exo_cudnn_choose(const exo_cuda_cudnn *c, exo_cudnn_pass *p, exo_cudnn_thing graph,
                 exo_cudnn_choice *choice, bool *found)
{
    *found = take_advice(c, p, graph, EXO_CUDNN_HEURISTIC_A, choice) ||
             take_advice(c, p, graph, EXO_CUDNN_HEURISTIC_FALLBACK, choice);
    if (*found && choice->failure != EXO_CUDNN_SUCCESS)
        EXO_LOG(WARN, CUDA, "event=plan_failed engine=%lld reason=%s taken=%lld workspace=%zu",
                static_cast<long long>(choice->failed), c->call->GetErrorString(choice->failure),
                static_cast<long long>(choice->engine), p->bytes);
    if (!*found && p->parts.status == EXO_CUDNN_SUCCESS)
        p->parts.status = choice->failure;
    return p->parts.status;
}

void
exo_cudnn_destroy_pass(exo_cudnn_pass *p)
{
    if (p->plan)
        (void)p->parts.call->BackendDestroyDescriptor(p->plan);
    exo_cudnn_destroy_all(&p->parts);
}

/* --- Execution -------------------------------------------------------------------------------- */

exo_status
exo_cudnn_check_arrays(size_t count, const void *const *arrays, const char *what, exo_err *err)
{
    for (size_t i = 0; i < count; i++)
        if (reinterpret_cast<uintptr_t>(arrays[i]) % EXO_CUDNN_ALIGNMENT != 0)
            return exo_fail(
                err, EXO_FAILED,
                "cuDNN: %s: an array begins at no multiple of %d bytes: unset EXOGYM_CUDNN", what,
                EXO_CUDNN_ALIGNMENT);
    return EXO_OK;
}

exo_status
exo_cudnn_take(exo_cuda_device *cuda, size_t bytes, const char *what, void **out, exo_err *err)
{
    *out = NULL;
    if (bytes == 0)
        return EXO_OK;
    const exo_status st = exo_cuda_charge(cuda, EXO_CUDA_WORKSPACES, what, bytes, err);
    if (st != EXO_OK)
        return st;
    const cudaError_t error = cudaMallocAsync(out, bytes, cuda->stream);
    if (error == cudaSuccess)
        return EXO_OK;
    *out = NULL;
    exo_cuda_gave(cuda, EXO_CUDA_WORKSPACES, bytes);
    if (error != cudaErrorMemoryAllocation)
        return exo_cuda_status(error, what, err);
    return exo_cuda_say_full(cuda, what, bytes, err);
}

void
exo_cudnn_give(exo_cuda_device *cuda, void *memory, size_t bytes)
{
    if (!memory)
        return;
    exo_cuda_gave(cuda, EXO_CUDA_WORKSPACES, bytes);
    if (cudaFreeAsync(memory, cuda->stream) != cudaSuccess)
        (void)cudaGetLastError();
}

exo_status
exo_cudnn_execute(const exo_cuda_cudnn *c, const exo_cudnn_pass *p, int64_t count,
                  const int64_t *ids, const void *const *arrays, void *workspace, const char *what,
                  exo_err *err)
{
    exo_cudnn_maker m = {c->call, EXO_CUDNN_SUCCESS, 0, {}};
    const exo_cudnn_thing pack = exo_cudnn_make(&m, EXO_CUDNN_PACK);
    exo_cudnn_set_many(&m, pack, EXO_CUDNN_PACK_IDS, EXO_CUDNN_OF_INT64, count, ids);
    exo_cudnn_set_many(&m, pack, EXO_CUDNN_PACK_POINTERS, EXO_CUDNN_OF_POINTER, count, arrays);
    exo_cudnn_set(&m, pack, EXO_CUDNN_PACK_WORKSPACE, EXO_CUDNN_OF_POINTER, workspace);
    (void)exo_cudnn_finish(&m, pack);
    if (m.status == EXO_CUDNN_SUCCESS)
        m.status = c->call->BackendExecute(c->handle, p->plan, pack);
    exo_cudnn_destroy_all(&m);
    return exo_cudnn_check(c, m.status, what, err);
}
