/* A stream beside a device's: see side.h. State: exo_cuda_side. */
#include "nn/cuda/side.h"

#include <string.h>

#include <exogym/memory.h>

#include "nn/cuda/device.h"
#include "nn/cuda/sections.h"

struct exo_cuda_side {
    exo_cuda_device *cuda; /* of exo_cuda_side_follow only: it may be closed before the side */
    int ordinal;
    cudaStream_t stream;
    cudaEvent_t asked; /* of exo_cuda_side_follow; a wait means the last record before it */
};

/* A thread that has chosen no GPU, such as one that closes the members of a process, would open a context
 * on the first one by asking for an event: so a mark knows its GPU. */
struct exo_cuda_mark {
    cudaEvent_t event;
    int ordinal;
};

exo_status
exo_cuda_side_open(exo_cuda_side **out, exo_device *device, exo_err *err)
{
    *out = NULL;
    if (strcmp(exo_device_name(device), "cuda") != 0)
        return exo_fail(err, EXO_UNSUPPORTED, "the device %s is no GPU", exo_device_name(device));
    exo_cuda_side *side = static_cast<exo_cuda_side *>(exo_calloc(1, sizeof *side));
    if (!side)
        return exo_fail(err, EXO_NOMEM, "no memory for a stream");
    side->cuda = exo_cuda_of(device);
    side->ordinal = side->cuda->ordinal;
    cudaError_t error = cudaSetDevice(side->ordinal);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithFlags(&side->stream, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = cudaEventCreateWithFlags(&side->asked, cudaEventDisableTiming);
    if (error == cudaSuccess)
        *out = side;
    else
        exo_cuda_side_close(&side);
    return exo_cuda_status(error, "a stream", err);
}

void
exo_cuda_side_close(exo_cuda_side **side)
{
    exo_cuda_side *s = *side;
    *side = NULL;
    if (!s)
        return;
    (void)cudaSetDevice(s->ordinal);
    if (s->stream)
        (void)cudaStreamDestroy(s->stream);
    if (s->asked)
        (void)cudaEventDestroy(s->asked);
    (void)cudaGetLastError();
    exo_free(s);
}

exo_status
exo_cuda_side_select(const exo_cuda_side *side, exo_err *err)
{
    return exo_cuda_status(cudaSetDevice(side->ordinal), "its choice", err);
}

int
exo_cuda_side_ordinal(const exo_cuda_side *side)
{
    return side ? side->ordinal : -1;
}

void *
exo_cuda_side_stream(exo_cuda_side *side)
{
    return side->stream;
}

exo_status
exo_cuda_side_follow(exo_cuda_side *side, exo_err *err)
{
    const exo_status st = exo_cuda_catch_up(side->cuda, err);
    if (st != EXO_OK)
        return st;
    cudaError_t error = cudaSetDevice(side->ordinal);
    if (error == cudaSuccess)
        error = cudaEventRecord(side->asked, side->cuda->stream);
    if (error == cudaSuccess)
        error = cudaStreamWaitEvent(side->stream, side->asked, 0);
    return exo_cuda_status(error, "the order of two streams", err);
}

exo_status
exo_cuda_mark_new(exo_cuda_mark **out, exo_cuda_side *side, exo_err *err)
{
    *out = static_cast<exo_cuda_mark *>(exo_calloc(1, sizeof **out));
    if (!*out)
        return exo_fail(err, EXO_NOMEM, "no memory for an event");
    (*out)->ordinal = side->ordinal;
    cudaError_t error = cudaSetDevice(side->ordinal);
    if (error == cudaSuccess)
        error = cudaEventCreateWithFlags(&(*out)->event, cudaEventDisableTiming);
    if (error != cudaSuccess) {
        exo_free(*out);
        *out = NULL;
    }
    return exo_cuda_status(error, "an event", err);
}

void
exo_cuda_mark_free(exo_cuda_mark *mark)
{
    if (mark && cudaSetDevice(mark->ordinal) == cudaSuccess)
        (void)cudaEventDestroy(mark->event);
    exo_free(mark);
}

exo_status
exo_cuda_mark_put(exo_cuda_mark *mark, exo_cuda_side *side, exo_err *err)
{
    cudaError_t error = cudaSetDevice(side->ordinal);
    if (error == cudaSuccess)
        error = cudaEventRecord(mark->event, side->stream);
    return exo_cuda_status(error, "a mark", err);
}

exo_status
exo_cuda_mark_reached(exo_cuda_mark *mark, bool *reached, exo_err *err)
{
    cudaError_t error = cudaSetDevice(mark->ordinal);
    if (error == cudaSuccess)
        error = cudaEventQuery(mark->event);
    *reached = error == cudaSuccess;
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return EXO_OK;
    }
    return exo_cuda_status(error, "a collective", err);
}
