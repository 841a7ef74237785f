/* The entry of exogym-cuda.so. No state. Read next: nn/device/cuda_plugin.h, device.cu. */
#include <cublasLt.h>
#include <stdio.h>
#include <string.h>

#include <exogym/plugin.h>

#include "nccl/register.h"
#include "nn/cuda/cudnn_library.h"
#include "nn/cuda/device.h"
#include "nn/cuda/engine.h"
#include "nn/cuda/memory.h"
#include "nn/cuda/own_bytes.h"

extern "C" {
#include "nccl/library.h"
#include "nn/device/cuda_plugin.h"
extern EXO_API const exo_cuda_calls exo_cuda_plugin;
}

static void
look_at_gpu(int ordinal, exo_cuda_gpu *gpu)
{
    cudaDeviceProp properties;
    size_t left = 0, all = 0;
    if (cudaGetDeviceProperties(&properties, ordinal) != cudaSuccess)
        return;
    snprintf(gpu->name, sizeof gpu->name, "%s", properties.name);
    gpu->major = properties.major;
    gpu->minor = properties.minor;
    gpu->memory = properties.totalGlobalMem;
    (void)exo_cuda_read_limit(gpu->memory, &gpu->limit, NULL); /* the device's opening reports it */
    (void)cudaDeviceGetPCIBusId(gpu->pci, sizeof gpu->pci, ordinal);
    if (cudaSetDevice(ordinal) == cudaSuccess && cudaMemGetInfo(&left, &all) == cudaSuccess)
        gpu->free = left;
}

static void
look_for_nccl(exo_cuda_machine *out)
{
    const exo_nccl_table *nccl = NULL;
    exo_err err = {};
    size_t at = 0;
    if (exo_nccl_load(&nccl, &err) != EXO_OK) {
        snprintf(out->nccl_problem, sizeof out->nccl_problem, "%.500s", err.text);
        return;
    }
    (void)nccl->GetVersion(&out->nccl);
#define LOOK(result, name, parameters)                                                             \
    if (!nccl->name && at < sizeof out->nccl_lacks)                                                \
        at += static_cast<size_t>(snprintf(out->nccl_lacks + at, sizeof out->nccl_lacks - at,      \
                                           "%s" #name, at ? ", " : ""));
    EXO_NCCL_NEWER_FUNCTIONS(LOOK)
#undef LOOK
}

static void
look_for_cudnn(exo_cuda_machine *out)
{
    const exo_cudnn_table *cudnn = NULL;
    bool there = false;
    exo_err err = {};
    if (exo_cudnn_load(&cudnn, &there, &err) == EXO_OK)
        out->cudnn = cudnn->GetVersion();
    else if (there)
        snprintf(out->cudnn_problem, sizeof out->cudnn_problem, "%.500s", err.text);
}

static void
look(exo_cuda_machine *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->architectures, sizeof out->architectures, "%s", EXO_CUDA_ARCHITECTURES);
    out->cublaslt = cublasLtGetVersion();
    look_for_cudnn(out);
    (void)cudaDriverGetVersion(&out->driver);
    (void)cudaRuntimeGetVersion(&out->runtime);
    const cudaError_t error = cudaGetDeviceCount(&out->num_gpus);
    if (error != cudaSuccess) {
        out->num_gpus = 0;
        snprintf(out->problem, sizeof out->problem, "%s", cudaGetErrorString(error));
    }
    if (out->num_gpus > EXO_CUDA_MOST_GPUS)
        out->num_gpus = EXO_CUDA_MOST_GPUS;
    out->own = exo_cuda_own_bytes();
    for (int g = 0; g < out->num_gpus; g++)
        look_at_gpu(g, &out->gpus[g]);
    (void)cudaGetLastError();
    look_for_nccl(out);
}

static int
count_gpus(void)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    return count;
}

const exo_cuda_calls exo_cuda_plugin = {EXO_CUDA_BYTES, count_gpus, exo_cuda_open, exo_cuda_close,
                                        look};

EXO_PLUGIN
{
    exo_status st = exo_cuda_engine_register(err);
    return st == EXO_OK ? exo_nccl_register(err) : st; /* gpu_kinds.c calls the rest */
}
