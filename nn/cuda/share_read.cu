/* Copies of shared memory to the host, for threads that have no device: a stream of their own, so that
 * they go beside the work of devices, and two pieces of pinned memory. While one is taken out, the
 * next is on its way. State: exo_cuda_share_reader, whose owner is one thread at a time. */
#include "nn/cuda/share.h"

#include <string.h>

#include <exogym/memory.h>

#include "nn/cuda/quiet.h"

enum {
    PIECES = 2
};

static const size_t PIECE_BYTES = EXO_CUDA_SLOT_BYTES;

typedef struct exo_cuda_share_reader {
    int ordinal; /* of the GPU of its stream */
    cudaStream_t stream;
    struct {
        void *memory;        /* pinned */
        cudaEvent_t arrived; /* behind the last copy to it */
    } pieces[PIECES];
} exo_cuda_share_reader;

static cudaError_t
open_reader(exo_cuda_share_reader *r)
{
    cudaError_t error = cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking);
    for (size_t p = 0; p < PIECES && error == cudaSuccess; p++) {
        error = cudaMallocHost(&r->pieces[p].memory, PIECE_BYTES);
        if (error == cudaSuccess)
            error = cudaEventCreateWithFlags(&r->pieces[p].arrived, cudaEventDisableTiming);
    }
    return error;
}

void
exo_cuda_share_reader_free(void *reader)
{
    exo_cuda_share_reader *r = static_cast<exo_cuda_share_reader *>(reader);
    (void)cudaSetDevice(r->ordinal);
    if (r->stream) {
        (void)cudaStreamSynchronize(r->stream);
        (void)cudaStreamDestroy(r->stream);
    }
    for (auto &piece : r->pieces) {
        if (piece.arrived)
            (void)cudaEventDestroy(piece.arrived);
        if (piece.memory)
            exo_cuda_when_quiet(r->ordinal, exo_cuda_free_pinned, piece.memory);
    }
    (void)cudaGetLastError();
    exo_free(r);
}

/* The reader of a GPU, in place of one of another. */
static exo_status
reader_for(void **reader, int ordinal, exo_err *err)
{
    exo_cuda_share_reader *r = static_cast<exo_cuda_share_reader *>(*reader);
    if (r && r->ordinal != ordinal) {
        exo_cuda_share_reader_free(r);
        *reader = NULL;
    }
    cudaError_t error = cudaSetDevice(ordinal);
    if (error != cudaSuccess || *reader)
        return exo_cuda_status(error, "a copy to the host", err);
    r = static_cast<exo_cuda_share_reader *>(exo_calloc(1, sizeof *r));
    if (!r)
        return exo_fail(err, EXO_NOMEM, "no memory for copies to the host");
    r->ordinal = ordinal;
    error = open_reader(r);
    if (error == cudaSuccess)
        *reader = r;
    else
        exo_cuda_share_reader_free(r);
    return exo_cuda_status(error, "pinned memory for copies to the host", err);
}

static size_t
piece_at(size_t p, uint64_t bytes)
{
    const uint64_t left = bytes - p * PIECE_BYTES;
    return left < PIECE_BYTES ? left : PIECE_BYTES;
}

static cudaError_t
copy(exo_cuda_share_reader *r, const char *from, char *to, uint64_t bytes)
{
    const size_t pieces = (bytes + PIECE_BYTES - 1) / PIECE_BYTES;
    cudaError_t error = cudaSuccess;
    for (size_t p = 0; p <= pieces && error == cudaSuccess; p++) {
        if (p < pieces) {
            auto &next = r->pieces[p % PIECES];
            error = cudaMemcpyAsync(next.memory, from + p * PIECE_BYTES, piece_at(p, bytes),
                                    cudaMemcpyDeviceToHost, r->stream);
            if (error == cudaSuccess)
                error = cudaEventRecord(next.arrived, r->stream);
        }
        if (p == 0 || error != cudaSuccess)
            continue;
        auto &last = r->pieces[(p - 1) % PIECES];
        error = cudaEventSynchronize(last.arrived);
        if (error == cudaSuccess)
            memcpy(to + (p - 1) * PIECE_BYTES, last.memory, piece_at(p - 1, bytes));
    }
    return error;
}

exo_status
exo_cuda_share_read(void **reader, const exo_device_share *share, void *mark, void *to,
                    uint64_t bytes, exo_err *err)
{
    exo_status st = reader_for(reader, share->ordinal, err);
    if (st != EXO_OK)
        return st;
    exo_cuda_share_reader *r = static_cast<exo_cuda_share_reader *>(*reader);
    cudaError_t error = mark ? exo_cuda_share_after(r->stream, mark) : cudaSuccess;
    if (error == cudaSuccess)
        error = copy(r, static_cast<const char *>(share->memory), static_cast<char *>(to), bytes);
    return exo_cuda_status(error, "a copy to the host", err);
}
