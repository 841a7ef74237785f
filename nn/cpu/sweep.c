/* Elementwise kernels in pieces: see cpu_device.h. No state. */
#include "base/parallel.h"
#include "nn/cpu/cpu_device.h"

exo_status
exo_cpu_sweep(size_t count, void (*piece)(void *args, size_t index), const void *args)
{
    exo_parallel_for((count + EXO_CPU_PIECE - 1) / EXO_CPU_PIECE, piece, (void *)(uintptr_t)args);
    return EXO_OK;
}
