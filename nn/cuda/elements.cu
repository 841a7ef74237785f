/* Kernels of elements: device.h's functions of arrays. Each result is defined to the bit. No state.
 * Read next: sums.cu. */
#include "nn/cuda/each.h"
#include "nn/cuda/map.h"

#define NOTHING EXO_CUDA_NOTHING
EXO_CUDA_MAP(fill, k.y, NOTHING, NOTHING, false, k.value)
EXO_CUDA_MAP_LATE(scale, k.y, k.x, NOTHING, (k.a * a))
EXO_CUDA_MAP(divide, k.y, k.y, NOTHING, false, a / k.a)
EXO_CUDA_MAP_LATE(axpy, k.y, k.y, k.x, a + k.a * b)
EXO_CUDA_MAP(sub, k.y, k.a, k.b, false, a - b)
EXO_CUDA_MAP(mul, k.y, k.a, k.b, k.add, (a * b))
EXO_CUDA_MAP(lerp, k.y, k.y, k.x, false, a + k.t * (b - a))
EXO_CUDA_MAP(sign, k.y, k.x, NOTHING, false, a > 0 ? 1.0f : a < 0 ? -1.0f : 0.0f)
EXO_CUDA_MAP(standardize, k.y, k.x, NOTHING, false,
             static_cast<float>((static_cast<double>(a) - k.mean) * k.factor))
EXO_CUDA_EACH_KERNEL(gather, k.y[i] = k.x[k.index[i]])
EXO_CUDA_EACH_KERNEL(scatter, k.y[k.index[i]] = k.x[i])

/* --- Types ------------------------------------------------------------------------------------ */

struct sum_of {
    __device__ float operator()(float a, float b) const
    {
        return a + b;
    }
};

/* Wraps around. */
__global__ static void
add_i32_each(exo_add_args k)
{
    for (EXO_CUDA_EACH(i, k.count))
        static_cast<uint32_t *>(k.y)[i] =
            static_cast<const uint32_t *>(k.a)[i] + static_cast<const uint32_t *>(k.b)[i];
}

template <typename T>
static exo_status
add_floats(exo_device *device, const exo_add_args *k, exo_err *err)
{
    return exo_cuda_map(device, "add", k->count, false, exo_cuda_to<T>(k->y),
                        exo_cuda_from<T>(k->a), exo_cuda_from<T>(k->b), sum_of{}, err);
}

exo_status
exo_cuda_add(exo_device *device, const exo_add_args *k, exo_err *err)
{
    if (k->dtype != EXO_I32)
        return EXO_CUDA_BY_TYPE(k->dtype, add_floats, device, k, err);
    if (k->count == 0)
        return EXO_OK;
    exo_cuda_launch_each(add_i32_each, exo_cuda_blocks(k->count, EXO_CUDA_BLOCK), EXO_CUDA_BLOCK,
                         exo_cuda_of(device)->stream, *k);
    return exo_cuda_launched("add", err);
}

struct same {
    __device__ float operator()(float a, float) const
    {
        return a;
    }
};

template <typename To, typename From>
static exo_status
cast_as(exo_device *device, const exo_cast_args *k, exo_err *err)
{
    return exo_cuda_map(device, "cast", k->count, false, exo_cuda_to<To>(k->y),
                        exo_cuda_from<From>(k->x), NOTHING, same{}, err);
}

exo_status
exo_cuda_cast(exo_device *device, const exo_cast_args *k, exo_err *err)
{
    return k->to == EXO_BF16 ? cast_as<exo_cuda_bf16, float>(device, k, err)
                             : cast_as<float, exo_cuda_bf16>(device, k, err);
}

/* --- Trimmed means ---------------------------------------------------------------------------- */

/* The order of numbers as that of integers: -0 before 0, and NaN, whatever its bits, last. */
__device__ static inline uint32_t
place_of(float x)
{
    const uint32_t bits = exo_cuda_bits(x);
    return x != x ? 0xFFFFFFFFu : bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* How many rows of element i stand before `row`; of equal ones the first rows. */
__device__ static inline size_t
rows_before(const exo_trimmed_mean_args &k, size_t row, size_t i)
{
    const uint32_t own = place_of(k.x[row * k.pitch + i]);
    size_t before = 0;
    for (size_t r = 0; r < k.rows; r++) {
        const uint32_t other = place_of(k.x[r * k.pitch + i]);
        before += other < own || (other == own && r < row);
    }
    return before;
}

__device__ static inline float
trimmed_mean_at(const exo_trimmed_mean_args &k, size_t i)
{
    float sum = -0.0f;
    for (size_t row = 0; row < k.rows; row++) {
        const size_t before = k.trim > 0 ? rows_before(k, row, i) : 0;
        if (before >= k.trim && before < k.rows - k.trim)
            sum = sum + k.x[row * k.pitch + i];
    }
    return sum / static_cast<float>(k.rows - 2 * k.trim);
}

EXO_CUDA_EACH_KERNEL(trimmed_mean, k.y[i] = trimmed_mean_at(k, i))
