/* Graphs of passes: see graphs.h. State: exo_cuda_graphs, of a plan. */
#include "nn/cuda/graphs.h"

#include <assert.h>
#include <string.h>

#include <exogym/memory.h>

/* A graph may be under way on the stream. */
static void
forget(exo_cuda_graph *g, const exo_cuda_device *cuda)
{
    if (g->exec) {
        (void)cudaStreamSynchronize(cuda->stream);
        (void)cudaGraphExecDestroy(g->exec);
        (void)cudaGetLastError();
    }
    memset(g, 0, sizeof *g);
}

exo_status
exo_cuda_record(exo_cuda_device *cuda, exo_cuda_pass pass, const void *args, cudaGraph_t *out,
                exo_err *err)
{
    cudaGraph_t graph = NULL;
    *out = NULL;
    cudaError_t error = cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal);
    if (error != cudaSuccess)
        return exo_cuda_status(error, "the record of a pass", err);
    exo_status st = pass(&cuda->device, args, err);
    error = cudaStreamEndCapture(cuda->stream, &graph); /* also after a failure */
    if (st == EXO_OK && error == cudaSuccess) {
        *out = graph;
        return EXO_OK;
    }
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (st == EXO_OK)
        st = exo_cuda_status(error, "the record of a pass", err);
    (void)cudaGetLastError();
    return st;
}

/* Records the pass, and makes it a graph. */
static exo_status
record(exo_cuda_graph *g, exo_cuda_device *cuda, exo_cuda_pass pass, const void *args, exo_err *err)
{
    cudaGraph_t graph = NULL;
    exo_status st = exo_cuda_record(cuda, pass, args, &graph, err);
    if (st != EXO_OK)
        return st;
    st = exo_cuda_status(cudaGraphInstantiate(&g->exec, graph, 0), "the graph of a pass", err);
    (void)cudaGraphDestroy(graph);
    return st;
}

/* The entry of the key, or an empty one, in the place of the one that was not used for longest. */
static exo_cuda_graph *
find(exo_cuda_graphs *graphs, const exo_cuda_device *cuda, const unsigned char *key)
{
    exo_cuda_graph *oldest = &graphs->graph[0];
    for (exo_cuda_graph &g : graphs->graph) {
        if (g.used > 0 && memcmp(g.key, key, sizeof g.key) == 0)
            return &g;
        if (g.used < oldest->used)
            oldest = &g;
    }
    forget(oldest, cuda);
    memcpy(oldest->key, key, sizeof oldest->key);
    return oldest;
}

exo_status
exo_cuda_graphs_run(exo_cuda_graphs *graphs, exo_cuda_device *cuda, const void *key, size_t bytes,
                    exo_cuda_pass pass, const void *args, exo_err *err)
{
    unsigned char whole[EXO_CUDA_KEY_BYTES] = {0};
    assert(bytes <= sizeof whole);
    memcpy(whole, key, bytes);
    exo_status st = exo_cuda_status(exo_cuda_select(cuda), "a pass", err);
    if (st != EXO_OK)
        return st;
    exo_cuda_graph *g = find(graphs, cuda, whole);
    const bool came_before = g->used > 0;
    g->used = ++graphs->passes;
    if (!came_before)
        return pass(&cuda->device, args, err);
    if (!g->exec && !exo_cuda_begin_recording(cuda))
        return pass(&cuda->device, args, err);
    if (!g->exec) {
        st = record(g, cuda, pass, args, err);
        exo_cuda_end_recording(cuda);
    }
    return st == EXO_OK
               ? exo_cuda_status(cudaGraphLaunch(g->exec, cuda->stream), "the graph of a pass", err)
               : st;
}

void
exo_cuda_graphs_free(exo_cuda_graphs *graphs, exo_cuda_device *cuda)
{
    if (!graphs)
        return;
    (void)exo_cuda_select(cuda);
    for (exo_cuda_graph &g : graphs->graph)
        forget(&g, cuda);
    exo_free(graphs);
}
