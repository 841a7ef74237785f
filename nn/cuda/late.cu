/* Cells of fields that change from step to step, and bytes that kernels bring: see late.h. No state. */
#include "nn/cuda/late.h"

#include <string.h>

#include "nn/cuda/grid.h"

__global__ static void
write_cells(exo_cuda_cells k, exo_cuda_cell *all)
{
    for (EXO_CUDA_EACH(i, k.count))
        all[k.first + i] = k.cell[i];
}

exo_status
exo_cuda_write_cells(exo_cuda_device *cuda, exo_cuda_cell *all, const exo_cuda_cells *cells,
                     exo_err *err)
{
    exo_cuda_launch_each(write_cells, 1, EXO_CUDA_BLOCK, cuda->stream, *cells, all);
    return exo_cuda_launched("the values of a step", err);
}

struct few_bytes {
    void *to;
    size_t count;
    unsigned char bytes[EXO_CUDA_LATE_COPY];
};

__global__ static void
write_bytes(few_bytes k)
{
    for (EXO_CUDA_EACH(i, k.count))
        static_cast<unsigned char *>(k.to)[i] = k.bytes[i];
}

exo_status
exo_cuda_write_bytes(exo_cuda_device *cuda, void *to, const void *from, size_t bytes, exo_err *err)
{
    few_bytes k = {to, bytes, {}};
    memcpy(k.bytes, from, bytes);
    exo_cuda_launch_each(write_bytes, 1, EXO_CUDA_BLOCK, cuda->stream, k);
    return exo_cuda_launched("a copy", err);
}

__global__ static void
copy_bytes(exo_cuda_copy_args k, const exo_cuda_copy_ends *late)
{
    const exo_cuda_copy_ends ends = late ? *late : k.ends;
    for (EXO_CUDA_EACH(i, k.bytes))
        static_cast<unsigned char *>(ends.to)[i] = static_cast<const unsigned char *>(ends.from)[i];
}

exo_status
exo_cuda_copy_late(exo_cuda_device *cuda, const exo_cuda_copy_args *k, exo_err *err)
{
    exo_cuda_launch_each(copy_bytes, 1, EXO_CUDA_BLOCK, cuda->stream, *k,
                         exo_cuda_late<exo_cuda_copy_ends>(&cuda->device));
    return exo_cuda_launched("a copy", err);
}
