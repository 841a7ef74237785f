/* Kernels that are one statement for each of `count` elements, and the functions that start them.
 * No state. Read next: elements.cu. */
#ifndef EXO_CUDA_EACH_H
#define EXO_CUDA_EACH_H

#include "nn/cuda/grid.h"
#include "nn/cuda/kernels.h"
#include "nn/cuda/late.h"

/* Defines exo_cuda_NAME, which starts NAME_each(k, ...) for the `count` elements of its arguments. */
#define EXO_CUDA_EACH_START(NAME, ...)                                                             \
    exo_status exo_cuda_##NAME(exo_device *device, const exo_##NAME##_args *k, exo_err *err)       \
    {                                                                                              \
        if (k->count == 0)                                                                         \
            return EXO_OK;                                                                         \
        exo_cuda_launch_each(NAME##_each, exo_cuda_blocks(k->count, EXO_CUDA_BLOCK),               \
                             EXO_CUDA_BLOCK, exo_cuda_of(device)->stream, __VA_ARGS__);            \
        return exo_cuda_launched(#NAME, err);                                                      \
    }

/* Defines exo_cuda_NAME, whose arguments `k` have a `count`. */
#define EXO_CUDA_EACH_KERNEL(NAME, STATEMENT)                                                      \
    __global__ static void NAME##_each(exo_##NAME##_args k)                                        \
    {                                                                                              \
        for (EXO_CUDA_EACH(i, k.count))                                                            \
            STATEMENT;                                                                             \
    }                                                                                              \
    EXO_CUDA_EACH_START(NAME, *k)

/* The same for a rule of an optimizer, whose arguments have a field `now`, which may be late. */
#define EXO_CUDA_EACH_NOW(NAME, STATEMENT)                                                         \
    __global__ static void NAME##_each(exo_##NAME##_args k, const exo_##NAME##_now *late)          \
    {                                                                                              \
        if (late)                                                                                  \
            k.now = *late;                                                                         \
        for (EXO_CUDA_EACH(i, k.count))                                                            \
            STATEMENT;                                                                             \
    }                                                                                              \
    EXO_CUDA_EACH_START(NAME, *k, exo_cuda_late<exo_##NAME##_now>(device))

/* Defines exo_cuda_NAME by NAME_start<T>(stream, k, count), where T is the arguments' `dtype`. */
#define EXO_CUDA_EACH_TYPED_START(NAME, COUNT)                                                     \
    exo_status exo_cuda_##NAME(exo_device *device, const exo_##NAME##_args *args, exo_err *err)    \
    {                                                                                              \
        const exo_##NAME##_args &k = *args;                                                        \
        const size_t count = COUNT;                                                                \
        if (count == 0)                                                                            \
            return EXO_OK;                                                                         \
        EXO_CUDA_BY_TYPE(k.dtype, NAME##_start, exo_cuda_of(device)->stream, k, count);            \
        return exo_cuda_launched(#NAME, err);                                                      \
    }

/* Defines exo_cuda_NAME, whose arguments also have a `dtype`: T in the statement. COUNT is the
 * number of elements, in terms of the arguments `k`. */
#define EXO_CUDA_EACH_TYPED(NAME, COUNT, STATEMENT)                                                \
    template <typename T> __global__ static void NAME##_each(exo_##NAME##_args k, size_t count)    \
    {                                                                                              \
        for (EXO_CUDA_EACH(i, count))                                                              \
            STATEMENT;                                                                             \
    }                                                                                              \
    template <typename T>                                                                          \
    static void NAME##_start(cudaStream_t stream, const exo_##NAME##_args &k, size_t count)        \
    {                                                                                              \
        exo_cuda_launch_each((NAME##_each<T>), exo_cuda_blocks(count, EXO_CUDA_BLOCK),             \
                             EXO_CUDA_BLOCK, stream, k, count);                                    \
    }                                                                                              \
    EXO_CUDA_EACH_TYPED_START(NAME, COUNT)

#endif
