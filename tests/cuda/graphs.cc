/* Graphs: what a stream records, changes of it, and launches. No state of its own. Read next: work.cc. */
#include "cuda/state.h"

using namespace emulated;

bool
emulated::is_to_fail(cuda_graph_call call)
{
    graph_failure &f = graph_failures[call];
    if (f.at == 0 || f.times == 0 || (f.at > 1 && f.at-- > 1))
        return false;
    f.times--;
    failed_graphs++;
    return true;
}

cudaError_t
cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error =
        is_to_fail(CUDA_BEGIN_CAPTURE) ? say(cudaErrorIllegalState) : begin_apart(stream);
    (void)mode;
    if (error == cudaSuccess) {
        records++;
        capturing = stream;
        stream->recorded = new emulated_graph;
        stream->spoiled = false;
        graphs.insert(stream->recorded);
    }
    return error;
}

cudaError_t
cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    capturing = NULL;
    const cudaError_t error = stream->spoiled || is_to_fail(CUDA_END_CAPTURE)
                                  ? say(cudaErrorStreamCaptureInvalidated)
                                  : begin();
    *out = error == cudaSuccess ? stream->recorded : NULL;
    if (error != cudaSuccess) {
        graphs.erase(stream->recorded);
        delete stream->recorded;
    }
    stream->recorded = NULL;
    return error;
}

cudaError_t
cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error =
        is_to_fail(CUDA_INSTANTIATE) ? say(cudaErrorMemoryAllocation) : begin();
    if (error == cudaSuccess) {
        *out = new emulated_exec{graph->work};
        execs.insert(*out);
    }
    return error;
}

/* Refuses a graph of other kinds of nodes, or of more. What was launched before stays as it was. */
cudaError_t
cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error = is_to_fail(CUDA_UPDATE) ? say(cudaErrorInvalidValue) : begin();
    if (error != cudaSuccess)
        return error;
    bool fits = exec->work.size() == graph->work.size() &&
                !(refuse_update_at > 0 && --refuse_update_at == 0);
    for (size_t i = 0; fits && i < exec->work.size(); i++)
        fits = exec->work[i].kind == graph->work[i].kind;
    info->result = fits ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged;
    if (!fits)
        return say(cudaErrorGraphExecUpdateFailure);
    exec->work = graph->work;
    updates++;
    return cudaSuccess;
}

cudaError_t
cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    const cudaError_t error =
        is_to_fail(CUDA_LAUNCH_GRAPH) ? say(cudaErrorMemoryAllocation) : begin_apart(stream);
    if (error == cudaSuccess) {
        launched_graphs++;
        for (const emulated_work &work : exec->work)
            put(stream, work);
    }
    return error;
}

cudaError_t
cudaGraphDestroy(cudaGraph_t graph)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    graphs.erase(graph);
    delete graph;
    return cudaSuccess;
}

cudaError_t
cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    const std::lock_guard<std::mutex> guard(lock);
    expect_chosen();
    execs.erase(exec);
    delete exec;
    return cudaSuccess;
}
