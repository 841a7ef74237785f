/* Activations and their derivatives, in fp32: functions of a thread. No state. */
#ifndef EXO_CUDA_ACTIVATIONS_H
#define EXO_CUDA_ACTIVATIONS_H

#include <exogym/sequence.h>

#include "nn/cuda/grid.h"

/* of GELU by tanh: sqrt(2 / pi), and the factor of the cube */
#define EXO_CUDA_ROOT_2_PI 0.797884560802865356f
#define EXO_CUDA_GELU_CUBE 0.044715f
#define EXO_CUDA_ROOT_HALF 0.707106781186547524f

__device__ static inline float
exo_cuda_activation(exo_activation activation, float x)
{
    switch (activation) {
    case EXO_LINEAR:
        return x;
    case EXO_RELU:
        return x < 0 ? 0 : x;
    case EXO_GELU:
        return 0.5f * x * erfcf(-x * EXO_CUDA_ROOT_HALF);
    case EXO_GELU_TANH:
        return 0.5f * x * (1 + tanhf(EXO_CUDA_ROOT_2_PI * (x + EXO_CUDA_GELU_CUBE * x * x * x)));
    case EXO_SILU:
        return x / (1 + expf(-x));
    }
    return 0;
}

__device__ static inline float
exo_cuda_activation_slope(exo_activation activation, float x)
{
    float t, s;
    switch (activation) {
    case EXO_LINEAR:
        return 1;
    case EXO_RELU:
        return x > 0 ? 1 : 0;
    case EXO_GELU:
        return 0.5f * erfcf(-x * EXO_CUDA_ROOT_HALF) +
               0.5f * EXO_CUDA_ROOT_2_PI * x * expf(-0.5f * x * x);
    case EXO_GELU_TANH:
        t = tanhf(EXO_CUDA_ROOT_2_PI * (x + EXO_CUDA_GELU_CUBE * x * x * x));
        return 0.5f * (1 + t) +
               0.5f * x * (1 - t * t) * EXO_CUDA_ROOT_2_PI * (1 + 3 * EXO_CUDA_GELU_CUBE * x * x);
    case EXO_SILU:
        s = 1 / (1 + expf(-x));
        return s * (1 + x * (1 - s));
    }
    return 0;
}

#endif
