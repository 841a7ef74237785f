/* Passes that meet others: see passes.h. Owner: the test's thread. */
#include <exogym/memory.h>

#include "nn/cuda/graphs.h"
#include "nn/cuda/memory.h"

extern "C" {
#include "cuda/passes.h"
}

enum {
    MEETINGS = 2
};

struct cuda_passes {
    exo_cuda_graphs graphs; /* first: exo_cuda_graphs_free frees it all */
    exo_cuda_device *cuda;
    void *memory;
    unsigned *met;
    bool fails;
};

static void
count(void *context, float *, size_t)
{
    ++*static_cast<cuda_passes *>(context)->met;
}

static exo_status
pass(exo_device *, const void *args, exo_err *err)
{
    auto *p = static_cast<cuda_passes *>(const_cast<void *>(args));
    const exo_cuda_meeting meeting = {.meet = count, .context = p, .data = NULL, .count = 0};
    if (p->fails)
        return exo_fail(err, EXO_FAILED, "asked to fail");
    for (int i = 0; i <= MEETINGS; i++) {
        const exo_status st =
            exo_cuda_status(cudaMemsetAsync(p->memory, i, 4, p->cuda->stream), "a fill", err);
        if (st != EXO_OK)
            return st;
        if (i < MEETINGS)
            exo_cuda_graphs_meet(&p->graphs, p->cuda, &meeting);
    }
    return EXO_OK;
}

extern "C" cuda_passes *
cuda_passes_open(exo_device *device)
{
    auto *p = static_cast<cuda_passes *>(exo_calloc(1, sizeof(cuda_passes)));
    if (!p)
        return NULL;
    p->cuda = reinterpret_cast<exo_cuda_device *>(device);
    if (exo_cuda_select(p->cuda) == cudaSuccess &&
        cudaMallocAsync(&p->memory, 4, p->cuda->stream) == cudaSuccess)
        return p;
    exo_free(p);
    return NULL;
}

extern "C" exo_status
cuda_passes_run(cuda_passes *p, bool fails, unsigned *met, exo_err *err)
{
    p->fails = fails;
    p->met = met;
    return exo_cuda_graphs_run(&p->graphs, p->cuda, "pass", 4, pass, p, err);
}

extern "C" void
cuda_passes_close(cuda_passes *p)
{
    (void)cudaFreeAsync(p->memory, p->cuda->stream);
    exo_cuda_device *cuda = p->cuda;
    (void)cudaStreamSynchronize(cuda->stream);
    exo_cuda_graphs_free(&p->graphs, cuda); /* graphs are first: the memory is theirs */
}
