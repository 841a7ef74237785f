/* Plans and scratch of a GPU, by the kind of the shape. Owner of a plan: its operation. Read next:
 * plans.h. */
#include "nn/cuda/plans.h"

#include <exogym/memory.h>

#include "nn/cuda/decoder.h"
#include "nn/cuda/graphs.h"
#include "nn/cuda/grid.h"
#include "nn/cuda/kernels.h"
#include "nn/cuda/memory.h"
#include "nn/cuda/row_norm.h"
#include "nn/cuda/sections.h"

/* --- Memory ----------------------------------------------------------------------------------- */

void *
exo_cuda_take(exo_cuda_room *room, size_t count, size_t size)
{
    const size_t line = 256;
    size_t bytes = 0, end = 0;
    if (room->bytes == SIZE_MAX || __builtin_mul_overflow(count, size, &bytes) ||
        bytes > SIZE_MAX / 2 ||
        __builtin_add_overflow(room->bytes, (bytes + line - 1) / line * line, &end)) {
        room->bytes = SIZE_MAX;
        return NULL;
    }
    char *at = room->memory ? room->memory + room->bytes : NULL;
    room->bytes = end;
    return at;
}

static exo_status
make_memory(exo_cuda_plan *p, size_t bytes, exo_err *err)
{
    if (bytes == SIZE_MAX)
        return exo_cuda_say_full(p->cuda, "a plan", bytes, err);
    const exo_status st = exo_cuda_charge(p->cuda, EXO_CUDA_PLANS, "a plan", bytes, err);
    if (st != EXO_OK)
        return st;
    cudaError_t error = exo_cuda_select(p->cuda);
    if (error == cudaSuccess && bytes > 0)
        error = cudaMallocAsync(&p->memory, bytes, p->cuda->stream);
    if (error == cudaSuccess) {
        p->bytes = bytes;
        return EXO_OK;
    }
    exo_cuda_gave(p->cuda, EXO_CUDA_PLANS, bytes);
    return error == cudaErrorMemoryAllocation ? exo_cuda_say_full(p->cuda, "a plan", bytes, err)
                                              : exo_cuda_status(error, "a plan", err);
}

/* --- Rotary positions ------------------------------------------------------------------------- */

struct turns {
    size_t positions, turned;
    double theta;
    bool scaled;
    float factors[512], *out; /* out (positions, 2, turned / 2) */
};

/* Frequencies and angles are rounded to fp32, as transformers computes them. */
__global__ static void
fill_turns(turns k)
{
    const size_t half = k.turned / 2;
    for (EXO_CUDA_EACH(i, k.positions * half)) {
        const size_t t = i / half, d = i % half;
        const double share = -2.0 * static_cast<double>(d) / static_cast<double>(k.turned);
        float frequency = static_cast<float>(pow(k.theta, share));
        if (k.scaled)
            frequency *= k.factors[d];
        const float angle = static_cast<float>(t) * frequency;
        k.out[t * k.turned + d] = static_cast<float>(cos(static_cast<double>(angle)));
        k.out[t * k.turned + half + d] = static_cast<float>(sin(static_cast<double>(angle)));
    }
}

size_t
exo_cuda_turns_bytes(size_t positions, size_t turned)
{
    exo_cuda_room room = {NULL, 0};
    size_t count = 0;
    if (__builtin_mul_overflow(positions, turned, &count))
        return SIZE_MAX;
    (void)exo_cuda_take(&room, count, sizeof(float));
    return room.bytes;
}

exo_status
exo_cuda_fill_turns(exo_cuda_plan *plan, size_t positions, size_t turned, double theta,
                    const float *factors, exo_err *err)
{
    turns k = {};
    k.positions = positions;
    k.turned = turned;
    k.theta = theta;
    k.scaled = factors != NULL;
    k.out = static_cast<float *>(plan->memory);
    for (size_t i = 0; factors && i < turned / 2; i++)
        k.factors[i] = factors[i];
    if (positions * (turned / 2) > 0)
        exo_cuda_launch_each(fill_turns, exo_cuda_blocks(positions * (turned / 2), EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, plan->cuda->stream, k);
    return exo_cuda_launched("rotary positions", err);
}

/* --- Plans ------------------------------------------------------------------------------------ */

static exo_status
open_conv(exo_cuda_plan *p, exo_err *err)
{
    const exo_status st = exo_cuda_cudnn_conv_new(&p->cudnn, p->cuda, &p->conv, err);
    return st == EXO_OK ? make_memory(p, exo_cuda_conv_bytes(&p->conv, p->cudnn != NULL), err) : st;
}

static exo_status
open_attention(exo_cuda_plan *p, exo_err *err)
{
    const exo_attention_shape *s = &p->attention;
    const size_t positions = s->tokens * (s->members > 0 ? s->members : 1);
    if (s->width > EXO_CUDA_MAX_HEAD)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "attention: a head is %zu wide; the most on a GPU is %d", s->width,
                        EXO_CUDA_MAX_HEAD);
    exo_status st = exo_cuda_cudnn_attention_hold(&p->attention_by_cudnn, p->cuda, s, err);
    if (st != EXO_OK || s->turned == 0)
        return st;
    st = make_memory(p, exo_cuda_turns_bytes(positions, s->turned), err);
    return st == EXO_OK ? exo_cuda_fill_turns(p, positions, s->turned, s->theta,
                                              s->scaled ? s->factors : NULL, err)
                        : st;
}

static exo_status
open_decoder(exo_cuda_plan *p, exo_err *err)
{
    const exo_decoder_shape *s = &p->decoder;
    const exo_decoder_spec *spec = &s->spec;
    float factors[EXO_CUDA_MAX_HEAD / 2];
    if (spec->head_width > EXO_CUDA_MAX_HEAD)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "generation: a head is %zu wide; the most on a GPU is %d", spec->head_width,
                        EXO_CUDA_MAX_HEAD);
    const exo_scratch_use uses[] = {EXO_SCRATCH_CACHE, EXO_SCRATCH_FORWARD, EXO_SCRATCH_WEIGHTS,
                                    EXO_SCRATCH_CHOICE};
    for (exo_scratch_use use : uses)
        if (exo_cuda_decoder_scratch(s, use) == SIZE_MAX)
            return exo_fail(err, EXO_INVAL, "a decoder with %zu tokens of context cannot be held",
                            s->context);
    p->graphs = static_cast<exo_cuda_graphs *>(exo_calloc(1, sizeof *p->graphs));
    exo_status st = p->graphs ? exo_cuda_decoder_find_places(p, err)
                              : exo_fail(err, EXO_NOMEM, "no memory for graphs");
    if (st != EXO_OK || spec->position != EXO_POSITION_ROTARY)
        return st;
    st = make_memory(p, exo_cuda_turns_bytes(s->context, spec->head_width), err);
    if (st != EXO_OK)
        return st;
    const bool scaled = exo_rope_factors(spec, factors);
    return exo_cuda_fill_turns(p, s->context, spec->head_width,
                               static_cast<double>(spec->rope_theta), scaled ? factors : NULL, err);
}

/* Copies the shape, and makes what its kind keeps on the device. */
static exo_status
open_plan(exo_cuda_plan *p, exo_shape_kind kind, const void *shape, exo_err *err)
{
    switch (kind) {
    case EXO_SHAPE_LINEAR:
        p->linear = *static_cast<const exo_linear_shape *>(shape);
        return EXO_OK;
    case EXO_SHAPE_CONV:
        p->conv = *static_cast<const exo_conv_shape *>(shape);
        return open_conv(p, err);
    case EXO_SHAPE_ATTENTION:
        p->attention = *static_cast<const exo_attention_shape *>(shape);
        return open_attention(p, err);
    case EXO_SHAPE_HEAD:
        p->head = *static_cast<const exo_head_shape *>(shape);
        return EXO_OK;
    case EXO_SHAPE_DECODER:
        p->decoder = *static_cast<const exo_decoder_shape *>(shape);
        return open_decoder(p, err);
    case EXO_SHAPE_NEWTON_SCHULZ:
        p->newton_schulz = *static_cast<const exo_newton_schulz_shape *>(shape);
        return EXO_OK;
    case EXO_SHAPE_ROW_NORM:
    case EXO_SHAPE_BATCH_NORM:
        break;
    }
    return exo_fail(err, EXO_UNSUPPORTED, "norms have no plans");
}

exo_status
exo_cuda_plan_new(exo_plan **out, exo_device *device, exo_shape_kind kind, const void *shape,
                  exo_err *err)
{
    exo_cuda_plan *p = static_cast<exo_cuda_plan *>(exo_calloc(1, sizeof *p));
    if (!p)
        return exo_fail(err, EXO_NOMEM, "no memory for a plan");
    p->cuda = exo_cuda_of(device);
    const exo_status st = open_plan(p, kind, shape, err);
    if (st == EXO_OK)
        *out = &p->plan;
    else
        exo_cuda_plan_free(&p->plan);
    return st;
}

void
exo_cuda_plan_free(exo_plan *plan)
{
    exo_cuda_plan *p = exo_cuda_plan_of(plan);
    exo_cuda_catch_up_noted(p->cuda);
    exo_cuda_sections_forget(p->cuda); /* another plan may get its address */
    exo_cuda_graphs_free(p->graphs, p->cuda);
    exo_cuda_gave(p->cuda, EXO_CUDA_PLANS, p->bytes);
    if (p->memory) {
        (void)exo_cuda_select(p->cuda);
        if (cudaFreeAsync(p->memory, p->cuda->stream) != cudaSuccess)
            (void)cudaGetLastError();
    }
    exo_cuda_cudnn_conv_free(p->cudnn);
    exo_cuda_cudnn_attention_drop(p->attention_by_cudnn);
    exo_free(p->host);
    exo_free(p);
}

size_t
exo_cuda_scratch(const exo_device *device, exo_shape_kind kind, const void *shape,
                 exo_scratch_use use)
{
    (void)device;
    switch (kind) {
    case EXO_SHAPE_ROW_NORM:
        return exo_cuda_row_norm_scratch(static_cast<const exo_row_norm_shape *>(shape));
    case EXO_SHAPE_BATCH_NORM:
        return exo_cuda_batch_norm_scratch(static_cast<const exo_batch_norm_shape *>(shape));
    case EXO_SHAPE_ATTENTION:
        return exo_cuda_attention_scratch(static_cast<const exo_attention_shape *>(shape), use);
    case EXO_SHAPE_HEAD:
        return exo_cuda_head_scratch(static_cast<const exo_head_shape *>(shape), use);
    case EXO_SHAPE_DECODER:
        return exo_cuda_decoder_scratch(static_cast<const exo_decoder_shape *>(shape), use);
    case EXO_SHAPE_NEWTON_SCHULZ:
        return exo_cuda_newton_schulz_scratch(static_cast<const exo_newton_schulz_shape *>(shape));
    case EXO_SHAPE_LINEAR:
    case EXO_SHAPE_CONV:
        break;
    }
    return 0;
}
