/* Activations, dropout and gates, element by element. No state. Read next: activations.h. */
#include "nn/cuda/activations.h"

#include <exogym/rng.h>

#include "nn/cuda/map.h"
#include "nn/cuda/philox.h"

__device__ static inline float
relu_of(float x)
{
    return x < 0 ? 0 : x; /* NaN stays */
}

EXO_CUDA_MAP_TYPED(relu, k.y, exo_cuda_from<T>(k.x), EXO_CUDA_NOTHING, false, relu_of(a))
EXO_CUDA_MAP_TYPED(relu_backward, k.dx, exo_cuda_from<T>(k.y), exo_cuda_from<T>(k.dy), k.add,
                   a > 0 ? b : 0)
EXO_CUDA_MAP(tanh, k.y, k.x, EXO_CUDA_NOTHING, false, tanhf(a))
EXO_CUDA_MAP(tanh_backward, k.dx, k.y, k.dy, k.add, (b * (1 - a * a)))
EXO_CUDA_MAP_TYPED(dropout, k.y, exo_cuda_from<T>(k.x), k.keep, k.add, b != 0 ? a * k.factor : 0)
EXO_CUDA_MAP(select, k.y, k.keep, EXO_CUDA_NOTHING, false, a != 0 ? k.value : 0)

/* --- Draws ------------------------------------------------------------------------------------ */

/* One block of four numbers. Its bytes are written at once where they lie in one word. */
__device__ static inline void
draw_block(const exo_dropout_draw_args &k, uint64_t block)
{
    const uint32_t most = EXO_CUDA_DROPOUT_BLOCKS;
    const uint64_t further = static_cast<uint64_t>(k.ordinal / 1024) << 40;
    const uint64_t step = k.step ^ block / most << 48 ^ further;
    const size_t first = block * 4;
    uint8_t *const keep = k.keep + first;
    uint32_t numbers[4], bits = 0;
    exo_cuda_draw(k.seed, EXO_RNG_DROPOUT, k.node, step,
                  k.ordinal % 1024 * most + static_cast<uint32_t>(block % most), numbers);
    for (unsigned j = 0; j < 4; j++)
        bits |= (numbers[j] >= k.threshold ? 1u : 0u) << 8 * j;
    if (first + 4 <= k.count && reinterpret_cast<uintptr_t>(keep) % 4 == 0)
        *reinterpret_cast<uint32_t *>(keep) = bits;
    else
        for (unsigned j = 0; j < 4 && first + j < k.count; j++)
            keep[j] = static_cast<uint8_t>(bits >> 8 * j);
}

__global__ static void
draw_blocks(exo_dropout_draw_args k, const uint64_t *late)
{
    if (late)
        k.step = *late;
    for (EXO_CUDA_EACH(block, (k.count + 3) / 4))
        draw_block(k, block);
}

exo_status
exo_cuda_dropout_draw(exo_device *device, const exo_dropout_draw_args *k, exo_err *err)
{
    if (k->count == 0)
        return EXO_OK;
    exo_cuda_launch_each(draw_blocks, exo_cuda_blocks((k->count + 3) / 4, EXO_CUDA_BLOCK),
                         EXO_CUDA_BLOCK, exo_cuda_of(device)->stream, *k,
                         exo_cuda_late<uint64_t>(device));
    return exo_cuda_launched("dropout_draw", err);
}

/* --- Gates ------------------------------------------------------------------------------------ */

/* N elements at a time, 1 or 4. */
template <typename T, int N>
__global__ static void
gate_each(exo_gate_args k)
{
    for (EXO_CUDA_EACH(group, k.rows * k.width / N)) {
        const size_t i = group * N, at = i / k.width * k.width + i; /* in rows of 2 width */
        const T *x = static_cast<const T *>(k.x);
        float gate[N], up[N], y[N];
        exo_cuda_read<N>(x, at, gate);
        exo_cuda_read<N>(x, at + k.width, up);
        for (int j = 0; j < N; j++)
            y[j] = exo_cuda_activation(k.activation, gate[j]) * up[j];
        exo_cuda_write<N>(static_cast<T *>(k.y), i, y);
    }
}

template <typename T, int N>
__global__ static void
gate_backward_each(exo_gate_backward_args k)
{
    for (EXO_CUDA_EACH(group, k.rows * k.width / N)) {
        const size_t i = group * N, at = i / k.width * k.width + i;
        const T *x = static_cast<const T *>(k.x);
        T *const dx = static_cast<T *>(k.dx);
        float gate[N], up[N], dy[N], d_gate[N] = {}, d_up[N] = {};
        exo_cuda_read<N>(x, at, gate);
        exo_cuda_read<N>(x, at + k.width, up);
        exo_cuda_read<N>(static_cast<const T *>(k.dy), i, dy);
        if (k.add) {
            exo_cuda_read<N>(dx, at, d_gate);
            exo_cuda_read<N>(dx, at + k.width, d_up);
        }
        for (int j = 0; j < N; j++) {
            d_gate[j] += dy[j] * up[j] * exo_cuda_activation_slope(k.activation, gate[j]);
            d_up[j] += dy[j] * exo_cuda_activation(k.activation, gate[j]);
        }
        exo_cuda_write<N>(dx, at, d_gate);
        exo_cuda_write<N>(dx, at + k.width, d_up);
    }
}

/* Whether four elements lie together in each of the arrays. */
template <typename T>
static bool
has_fours(size_t width, const void *a, const void *b, const void *c)
{
    return width % 4 == 0 && exo_cuda_has_fours(exo_cuda_from<T>(a)) &&
           exo_cuda_has_fours(exo_cuda_from<T>(b)) && exo_cuda_has_fours(exo_cuda_from<T>(c));
}

template <typename T>
static void
start_gate(cudaStream_t stream, const exo_gate_args *k)
{
    const size_t count = k->rows * k->width;
    if (has_fours<T>(k->width, k->x, k->y, NULL))
        exo_cuda_launch_each((gate_each<T, 4>), exo_cuda_blocks(count / 4, EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, stream, *k);
    else
        exo_cuda_launch_each((gate_each<T, 1>), exo_cuda_blocks(count, EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, stream, *k);
}

template <typename T>
static void
start_gate_backward(cudaStream_t stream, const exo_gate_backward_args *k)
{
    const size_t count = k->rows * k->width;
    if (has_fours<T>(k->width, k->x, k->dx, k->dy))
        exo_cuda_launch_each((gate_backward_each<T, 4>), exo_cuda_blocks(count / 4, EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, stream, *k);
    else
        exo_cuda_launch_each((gate_backward_each<T, 1>), exo_cuda_blocks(count, EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, stream, *k);
}

exo_status
exo_cuda_gate(exo_device *device, const exo_gate_args *k, exo_err *err)
{
    if (k->rows * k->width == 0)
        return EXO_OK;
    EXO_CUDA_BY_TYPE(k->dtype, start_gate, exo_cuda_of(device)->stream, k);
    return exo_cuda_launched("gate", err);
}

exo_status
exo_cuda_gate_backward(exo_device *device, const exo_gate_backward_args *k, exo_err *err)
{
    if (k->rows * k->width == 0)
        return EXO_OK;
    EXO_CUDA_BY_TYPE(k->dtype, start_gate_backward, exo_cuda_of(device)->stream, k);
    return exo_cuda_launched("gate_backward", err);
}
