/* Kernels whose element i is a function of element i of up to two arrays, and the functions that
 * start them. A thread takes four elements at a time, each array's by one access if its address
 * allows that. No state. Read next: elements.cu. */
#ifndef EXO_CUDA_MAP_H
#define EXO_CUDA_MAP_H

#include "nn/cuda/grid.h"
#include "nn/cuda/kernels.h"
#include "nn/cuda/late.h"

/* --- Four elements ---------------------------------------------------------------------------- */

template <typename T> struct alignas(4 * sizeof(T)) exo_cuda_four {
    T at[4];
};

/* A byte that says yes or no. */
__device__ static inline float
exo_cuda_get(const uint8_t *x, size_t i)
{
    return x[i];
}

template <typename T>
__device__ static inline void
exo_cuda_get_four(const T *x, size_t i, float out[4])
{
    const exo_cuda_four<T> four = *reinterpret_cast<const exo_cuda_four<T> *>(x + i);
    for (size_t j = 0; j < 4; j++)
        out[j] = exo_cuda_get(four.at, j);
}

template <typename T>
__device__ static inline void
exo_cuda_set_four(T *y, size_t i, const float value[4])
{
    exo_cuda_four<T> four;
    for (size_t j = 0; j < 4; j++)
        exo_cuda_set(four.at, j, value[j]);
    *reinterpret_cast<exo_cuda_four<T> *>(y + i) = four;
}

template <typename T>
static inline bool
exo_cuda_has_fours(const T *x)
{
    return reinterpret_cast<uintptr_t>(x) % sizeof(exo_cuda_four<T>) == 0;
}

/* An array that a function does not have. */
struct exo_cuda_nothing {};
#define EXO_CUDA_NOTHING (static_cast<const exo_cuda_nothing *>(NULL))

__device__ static inline float
exo_cuda_get(const exo_cuda_nothing *, size_t)
{
    return 0;
}

__device__ static inline void
exo_cuda_get_four(const exo_cuda_nothing *, size_t, float out[4])
{
    for (size_t j = 0; j < 4; j++)
        out[j] = 0;
}

/* N elements, 1 or 4. */
template <int N, typename T>
__device__ static inline void
exo_cuda_read(const T *x, size_t i, float out[N])
{
    if constexpr (N == 4)
        exo_cuda_get_four(x, i, out);
    else
        out[0] = exo_cuda_get(x, i);
}

template <int N, typename T>
__device__ static inline void
exo_cuda_write(T *y, size_t i, const float value[N])
{
    if constexpr (N == 4)
        exo_cuda_set_four(y, i, value);
    else
        exo_cuda_set(y, i, value[0]);
}

/* --- Late factors ----------------------------------------------------------------------------- */

/* A function F whose factor k.a may be late. */
template <typename F> struct exo_cuda_late_factor {
    F f;
    const float *late;
    __device__ float operator()(float a, float b) const
    {
        return f(a, b);
    }
};

/* Each thread begins with it. */
template <typename F>
__device__ static inline void
exo_cuda_find_factor(F *)
{
}

template <typename F>
__device__ static inline void
exo_cuda_find_factor(exo_cuda_late_factor<F> *f)
{
    if (f->late)
        f->f.k.a = *f->late;
}

/* --- The kernel ------------------------------------------------------------------------------- */

/* y (count) (+)= f(a, b). */
template <typename To, typename A, typename B> struct exo_cuda_operands {
    size_t count;
    bool fours, add;
    To *y;
    const A *a;
    const B *b;
};

template <typename To, typename A, typename B, typename F>
__global__ static void
exo_cuda_map_each(exo_cuda_operands<To, A, B> o, F f)
{
    exo_cuda_find_factor(&f);
    for (EXO_CUDA_EACH(group, (o.count + 3) / 4)) {
        const size_t first = group * 4;
        float a[4], b[4], y[4] = {0, 0, 0, 0};
        if (o.fours && first + 4 <= o.count) {
            exo_cuda_get_four(o.a, first, a);
            exo_cuda_get_four(o.b, first, b);
            if (o.add)
                exo_cuda_get_four(o.y, first, y);
            for (size_t j = 0; j < 4; j++)
                y[j] = o.add ? y[j] + f(a[j], b[j]) : f(a[j], b[j]);
            exo_cuda_set_four(o.y, first, y);
        } else {
            for (size_t i = first; i < first + 4 && i < o.count; i++)
                exo_cuda_store<To>(o.y, i, f(exo_cuda_get(o.a, i), exo_cuda_get(o.b, i)), o.add);
        }
    }
}

template <typename To, typename A, typename B, typename F>
static exo_status
exo_cuda_map(exo_device *device, const char *name, size_t count, bool add, To *y, const A *a,
             const B *b, F f, exo_err *err)
{
    const bool fours = exo_cuda_has_fours(y) && exo_cuda_has_fours(a) && exo_cuda_has_fours(b);
    const exo_cuda_operands<To, A, B> operands = {count, fours, add, y, a, b};
    if (count == 0)
        return EXO_OK;
    exo_cuda_launch_each((exo_cuda_map_each<To, A, B, F>),
                         exo_cuda_blocks((count + 3) / 4, EXO_CUDA_BLOCK), EXO_CUDA_BLOCK,
                         exo_cuda_of(device)->stream, operands, f);
    return exo_cuda_launched(name, err);
}

/* --- Definitions ------------------------------------------------------------------------------ */

/* Untyped addresses as those of T. */
template <typename T>
static inline T *
exo_cuda_to(void *y)
{
    return static_cast<T *>(y);
}

template <typename T>
static inline const T *
exo_cuda_from(const void *x)
{
    return static_cast<const T *>(x);
}

#define EXO_CUDA_MAP_VALUE(NAME, VALUE)                                                            \
    struct NAME##_value {                                                                          \
        exo_##NAME##_args k;                                                                       \
        __device__ float operator()(float a, float b) const                                        \
        {                                                                                          \
            (void)a;                                                                               \
            (void)b;                                                                               \
            return VALUE;                                                                          \
        }                                                                                          \
    };

#define EXO_CUDA_MAP_PARTS(NAME, Y, A, B, ADD, VALUE)                                              \
    EXO_CUDA_MAP_VALUE(NAME, VALUE)                                                                \
    template <typename T>                                                                          \
    static exo_status NAME##_map(exo_device *device, const exo_##NAME##_args &k, exo_err *err)     \
    {                                                                                              \
        return exo_cuda_map(device, #NAME, k.count, ADD, exo_cuda_to<T>(Y), A, B, NAME##_value{k}, \
                            err);                                                                  \
    }

/* Defines exo_cuda_NAME: Y (+)= VALUE, a term of elements a of A and b of B and of the arguments
 * `k`. Y is fp32. */
#define EXO_CUDA_MAP(NAME, Y, A, B, ADD, VALUE)                                                    \
    EXO_CUDA_MAP_PARTS(NAME, Y, A, B, ADD, VALUE)                                                  \
    exo_status exo_cuda_##NAME(exo_device *device, const exo_##NAME##_args *k, exo_err *err)       \
    {                                                                                              \
        return NAME##_map<float>(device, *k, err);                                                 \
    }

/* The same for y = VALUE with a factor k.a that may be late. */
#define EXO_CUDA_MAP_LATE(NAME, Y, A, B, VALUE)                                                    \
    EXO_CUDA_MAP_VALUE(NAME, VALUE)                                                                \
    exo_status exo_cuda_##NAME(exo_device *device, const exo_##NAME##_args *args, exo_err *err)    \
    {                                                                                              \
        const exo_##NAME##_args &k = *args;                                                        \
        const exo_cuda_late_factor<NAME##_value> f = {{k}, exo_cuda_late<float>(device)};          \
        return exo_cuda_map(device, #NAME, k.count, false, Y, A, B, f, err);                       \
    }

/* The same as EXO_CUDA_MAP for arguments with a `dtype`, which is Y's: T in A and B. */
#define EXO_CUDA_MAP_TYPED(NAME, Y, A, B, ADD, VALUE)                                              \
    EXO_CUDA_MAP_PARTS(NAME, Y, A, B, ADD, VALUE)                                                  \
    exo_status exo_cuda_##NAME(exo_device *device, const exo_##NAME##_args *k, exo_err *err)       \
    {                                                                                              \
        return EXO_CUDA_BY_TYPE(k->dtype, NAME##_map, device, *k, err);                            \
    }

#endif
