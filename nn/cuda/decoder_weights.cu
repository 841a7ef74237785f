/* The weights of a decoder: their places, and how they are packed. Owner of the places: the plan.
 * Read next: decoder.h. */
#include "nn/cuda/decoder.h"

#include <exogym/memory.h>

#include "nn/cuda/kernels.h"

enum {
    ROLES = EXO_DECODER_HEAD + 1,
    SPACINGS = 12 /* that INT4 tries */
};

/* --- Places ----------------------------------------------------------------------------------- */

static size_t
filled(size_t count)
{
    const size_t line = EXO_CUDA_LINE;
    return count > SIZE_MAX - line ? SIZE_MAX : (count + line - 1) / line * line;
}

/* Takes the room of a parameter. With room->memory NULL, the addresses are NULL. */
static exo_cuda_matrix
take_parameter(exo_cuda_room *room, const exo_decoder_shape *shape, const exo_decoder_entry *p)
{
    exo_cuda_matrix m = {};
    const bool end = p->role == EXO_DECODER_EMBEDDING || p->role == EXO_DECODER_HEAD;
    m.is_matrix = p->num_dims == 2 && p->role != EXO_DECODER_POSITION;
    m.format = !m.is_matrix                               ? EXO_WEIGHTS_F32
               : end && shape->format == EXO_WEIGHTS_INT4 ? EXO_WEIGHTS_INT8
                                                          : shape->format;
    m.outputs = p->num_dims == 2 ? p->dims[0] : 1;
    m.inputs = p->num_dims == 2 ? p->dims[1] : p->dims[0];
    m.pitch = m.is_matrix ? filled(m.outputs) : m.outputs;
    const size_t inputs = m.is_matrix ? filled(m.inputs) : m.inputs;
    const size_t words = m.format == EXO_WEIGHTS_F32    ? inputs
                         : m.format == EXO_WEIGHTS_INT8 ? inputs / EXO_CUDA_LEVELS8
                                                        : inputs / EXO_CUDA_LEVELS4;
    const size_t groups = (inputs + EXO_CUDA_GROUP - 1) / EXO_CUDA_GROUP;
    size_t bytes = 0;
    if (__builtin_mul_overflow(words, sizeof *m.words, &bytes))
        room->bytes = SIZE_MAX;
    m.words = static_cast<uint32_t *>(exo_cuda_take(room, m.pitch, bytes));
    if (m.format != EXO_WEIGHTS_F32)
        m.scales = static_cast<float *>(exo_cuda_take(room, m.pitch, groups * sizeof *m.scales));
    if (m.format == EXO_WEIGHTS_INT4)
        m.minimums =
            static_cast<float *>(exo_cuda_take(room, m.pitch, groups * sizeof *m.minimums));
    return m;
}

size_t
exo_cuda_decoder_weight_bytes(const exo_decoder_shape *shape)
{
    exo_cuda_room room = {NULL, 0};
    exo_decoder_entry p;
    for (size_t i = 0; exo_decoder_part_entry_at(shape, i, &p); i++)
        (void)take_parameter(&room, shape, &p);
    return room.bytes;
}

/* The bytes before each parameter, by block, role and bias; SIZE_MAX: there is none. */
static size_t *
place_of(const exo_cuda_plan *plan, exo_decoder_role role, size_t block, bool bias)
{
    size_t *places = static_cast<size_t *>(plan->host);
    return &places[(block * ROLES + role) * 2 + (bias ? 1 : 0)];
}

exo_status
exo_cuda_decoder_find_places(exo_cuda_plan *plan, exo_err *err)
{
    const exo_decoder_shape *shape = &plan->decoder;
    const size_t count = shape->spec.layers * ROLES * 2;
    exo_cuda_room room = {NULL, 0};
    exo_decoder_entry p;
    size_t *places = static_cast<size_t *>(exo_calloc(count, sizeof *places));
    plan->host = places;
    if (!places)
        return exo_fail(err, EXO_NOMEM, "no memory for a plan of %zu layers", shape->spec.layers);
    for (size_t i = 0; i < count; i++)
        places[i] = SIZE_MAX;
    for (size_t i = 0; exo_decoder_part_entry_at(shape, i, &p); i++) {
        *place_of(plan, p.role, p.block, p.bias) = room.bytes;
        (void)take_parameter(&room, shape, &p);
    }
    return EXO_OK;
}

/* The dimensions of a role, as in the list of the part's parameters. */
static exo_decoder_entry
entry_of(const exo_decoder_shape *shape, exo_decoder_role role, bool bias)
{
    const exo_decoder_spec *s = &shape->spec;
    const size_t queries = s->heads * s->head_width;
    exo_decoder_entry p = {};
    p.role = role;
    p.bias = bias;
    p.num_dims = bias ? 1 : 2;
    p.dims[1] = s->width;
    switch (role) {
    case EXO_DECODER_EMBEDDING:
    case EXO_DECODER_HEAD:
        p.dims[0] = s->vocabulary;
        break;
    case EXO_DECODER_POSITION:
        p.dims[0] = s->context + s->position_offset;
        break;
    case EXO_DECODER_QKV:
        p.dims[0] = (s->heads + 2 * s->kv_heads) * s->head_width;
        break;
    case EXO_DECODER_OUT:
        p.dims[0] = s->width;
        p.dims[1] = queries;
        break;
    case EXO_DECODER_UP:
        p.dims[0] = s->inner * (s->gated ? 2 : 1);
        break;
    case EXO_DECODER_DOWN:
        p.dims[0] = s->width;
        p.dims[1] = s->inner;
        break;
    case EXO_DECODER_Q_NORM:
    case EXO_DECODER_K_NORM:
        p.num_dims = 1;
        p.dims[0] = s->head_width;
        break;
    default:
        p.num_dims = 1;
        p.dims[0] = s->width;
        break;
    }
    exo_decoder_cut_entry(shape, &p);
    return p;
}

exo_cuda_matrix
exo_cuda_decoder_matrix(const exo_cuda_plan *plan, const void *weights, exo_decoder_role role,
                        size_t block, bool bias)
{
    const exo_decoder_entry p = entry_of(&plan->decoder, role, bias);
    const size_t place = *place_of(plan, role, block, bias);
    exo_cuda_room room = {static_cast<char *>(const_cast<void *>(weights)), place};
    return place == SIZE_MAX ? exo_cuda_matrix() : take_parameter(&room, &plan->decoder, &p);
}

/* --- Packing: the arithmetic is the format's definition (nn/ref/ref_decoder.c) ---------------- */

enum {
    TURNED = 32, /* outputs and inputs of a tile */
    TURNED_AT_ONCE = EXO_CUDA_BLOCK / TURNED,
    PACKED = 64 /* outputs whose groups a block packs */
};

/* Element (o, k) of fp32 values becomes word (k, o). A tile is turned in shared memory, so that warps read and
 * write neighbours. */
__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK)
    pack_words(exo_cuda_matrix m, const float *values, uint32_t *words)
{
    __shared__ uint32_t tile[TURNED][TURNED + 1]; /* rows begin in different banks */
    const size_t first_o = static_cast<size_t>(blockIdx.x) * TURNED,
                 first_k = static_cast<size_t>(blockIdx.y) * TURNED;
    const unsigned side = threadIdx.x % TURNED, own = threadIdx.x / TURNED;
    for (unsigned o = own; o < TURNED; o += TURNED_AT_ONCE)
        if (first_o + o < m.outputs && first_k + side < m.inputs)
            tile[o][side] = exo_cuda_bits(values[(first_o + o) * m.inputs + first_k + side]);
    __syncthreads();
    for (unsigned k = own; k < TURNED; k += TURNED_AT_ONCE)
        if (first_k + k < m.inputs && first_o + side < m.outputs)
            words[(first_k + k) * m.pitch + first_o + side] = tile[side][k];
}

__device__ static float
level(float x, float lowest, float inverse)
{
    return fminf(fmaxf(rintf((x - lowest) * inverse), 0.0f), 15.0f);
}

__device__ static void
pack_int8(const exo_cuda_matrix &m, const float *w, size_t count, size_t o, size_t group,
          uint32_t *words, float *scales)
{
    float largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(w[i]));
    scales[group * m.pitch + o] = largest > 0 ? largest / 127 : 0.0f;
    for (size_t i = 0; i < count; i += EXO_CUDA_LEVELS8) {
        uint32_t word = 0;
        for (size_t n = 0; largest > 0 && n < EXO_CUDA_LEVELS8 && i + n < count; n++) {
            const int q = static_cast<int>(rintf(w[i + n] * (127 / largest)));
            word |= (static_cast<uint32_t>(q) & 0xFFu) << n * 8;
        }
        words[(group * EXO_CUDA_GROUP + i) / EXO_CUDA_LEVELS8 * m.pitch + o] = word;
    }
}

/* The least-squares line through (q, w), where q are the levels of a spacing. Returns the squared
 * error. The order of the operations is part of the format. */
__device__ static float
fit_line(const float *w, size_t count, float from, float inverse, float *s, float *m)
{
    float q = 0, qq = 0, sum = 0, qw = 0, error = 0;
    const float n = static_cast<float>(count);
    for (size_t i = 0; i < count; i++) {
        const float x = level(w[i], from, inverse);
        q += x;
        qq += x * x;
        sum += w[i];
        qw += x * w[i];
    }
    *s = n * qq - q * q > 0 ? (n * qw - q * sum) / (n * qq - q * q) : 0.0f;
    *m = (sum - *s * q) / n;
    for (size_t i = 0; i < count; i++) {
        const float d = *s * level(w[i], from, inverse) + *m - w[i];
        error += d * d;
    }
    return error;
}

/* The scale and the minimum of a group whose numbers differ. */
__device__ static void
fit_int4(const float *w, size_t count, float lowest, float range, float *scale, float *minimum)
{
    float best = INFINITY;
    const float inverse = 15 / range;
    *scale = 0;
    *minimum = 0;
    for (int i = 0; i < SPACINGS; i++) {
        float s, m;
        const float share = 1.0f - 0.02f * static_cast<float>(i);
        const float error =
            fit_line(w, count, lowest + range * (1 - share) / 2, inverse / share, &s, &m);
        if (error < best && s > 0) {
            best = error;
            *scale = s;
            *minimum = m;
        }
    }
    if (!(*scale > 0)) {
        *scale = range / 15;
        *minimum = lowest;
    }
}

__device__ static void
pack_int4(const exo_cuda_matrix &m, const float *w, size_t count, size_t o, size_t group,
          uint32_t *words, float *scales, float *minimums)
{
    float lowest = w[0], highest = w[0], scale = 0, minimum = w[0];
    for (size_t i = 0; i < count; i++) {
        lowest = fminf(lowest, w[i]);
        highest = fmaxf(highest, w[i]);
    }
    const float range = highest - lowest;
    if (range > 0)
        fit_int4(w, count, lowest, range, &scale, &minimum);
    scales[group * m.pitch + o] = scale;
    minimums[group * m.pitch + o] = minimum;
    for (size_t i = 0; i < count; i += EXO_CUDA_LEVELS4) {
        uint32_t word = 0;
        for (size_t n = 0; range > 0 && n < EXO_CUDA_LEVELS4 && i + n < count; n++)
            word |= static_cast<uint32_t>(level(w[i + n], minimum, 1 / scale)) << n * 4;
        words[(group * EXO_CUDA_GROUP + i) / EXO_CUDA_LEVELS4 * m.pitch + o] = word;
    }
}

/* A thread packs a group of an output. The block reads the groups of its outputs side by side, and keeps them
 * in shared memory, where the passes over them are. */
__global__ static void
__launch_bounds__(PACKED) pack_groups(exo_cuda_matrix m, const float *values, uint32_t *words,
                                      float *scales, float *minimums)
{
    const unsigned pitch = EXO_CUDA_GROUP + 1; /* rows begin in different banks */
    __shared__ float tile[PACKED * (EXO_CUDA_GROUP + 1)];
    const size_t blocks = (m.outputs + PACKED - 1) / PACKED, group = blockIdx.x / blocks;
    const size_t first_o = blockIdx.x % blocks * PACKED, first = group * EXO_CUDA_GROUP;
    const size_t left = m.inputs - first, most = EXO_CUDA_GROUP, count = left < most ? left : most;
    for (unsigned o = 0; o < PACKED && first_o + o < m.outputs; o++)
        for (unsigned i = threadIdx.x; i < count; i += PACKED)
            tile[o * pitch + i] = values[(first_o + o) * m.inputs + first + i];
    __syncthreads();
    const size_t o = first_o + threadIdx.x;
    if (o >= m.outputs)
        return;
    const float *w = tile + threadIdx.x * pitch;
    if (m.format == EXO_WEIGHTS_INT8)
        pack_int8(m, w, count, o, group, words, scales);
    else
        pack_int4(m, w, count, o, group, words, scales, minimums);
}

exo_status
exo_cuda_decoder_pack(exo_device *device, const exo_decoder_pack_args *k, exo_err *err)
{
    const exo_cuda_plan *plan = exo_cuda_plan_of(k->plan);
    exo_cuda_device *cuda = exo_cuda_of(device);
    exo_decoder_entry p;
    if (!exo_decoder_entry_at(&plan->decoder.spec, k->parameter, &p))
        return exo_fail(err, EXO_INVAL, "the decoder has no parameter %zu", k->parameter);
    const exo_cuda_matrix m = exo_cuda_decoder_matrix(plan, k->weights, p.role, p.block, p.bias);
    uint32_t *words = const_cast<uint32_t *>(m.words);
    const size_t groups = (m.inputs + EXO_CUDA_GROUP - 1) / EXO_CUDA_GROUP;
    const size_t blocks = (m.outputs + PACKED - 1) / PACKED * groups;
    if (!m.is_matrix)
        return exo_cuda_status(cudaMemcpyAsync(words, k->values,
                                               m.inputs * m.outputs * sizeof(float),
                                               cudaMemcpyDeviceToDevice, cuda->stream),
                               "decoder_pack", err);
    if (m.format == EXO_WEIGHTS_F32)
        exo_cuda_launch(pack_words,
                        dim3(static_cast<unsigned>((m.outputs + TURNED - 1) / TURNED),
                             static_cast<unsigned>((m.inputs + TURNED - 1) / TURNED)),
                        EXO_CUDA_BLOCK, 0, cuda->stream, m, k->values, words);
    else
        exo_cuda_launch(pack_groups, static_cast<unsigned>(blocks), PACKED, 0, cuda->stream, m,
                        k->values, words, const_cast<float *>(m.scales),
                        const_cast<float *>(m.minimums));
    return exo_cuda_launched("decoder_pack", err);
}
