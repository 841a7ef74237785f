/* int8 with a scale for each chunk of elements, in pieces of whole chunks. Chunks do not depend on
 * each other. No state. Read next: nn/device/compress_args.h. */
#include "nn/cpu/cpu_device.h"

#include <math.h>

#include "nn/cpu/pieces.h"

/* Chunks of a piece. */
static size_t
chunks_of_piece(size_t chunk)
{
    return chunk < EXO_CPU_PIECE ? EXO_CPU_PIECE / chunk : 1;
}

static size_t
pieces_of(size_t count, size_t chunk)
{
    return exo_pieces(exo_pieces(count, chunk), chunks_of_piece(chunk));
}

/* The first chunk of a piece, and in *end the chunk after its last. */
static size_t
chunks_at(size_t count, size_t chunk, size_t piece, size_t *end)
{
    const size_t first = piece * chunks_of_piece(chunk), all = exo_pieces(count, chunk);
    *end = all - first < chunks_of_piece(chunk) ? all : first + chunks_of_piece(chunk);
    return first;
}

static float
scale_of(const float *scales, size_t rows, size_t chunks, size_t chunk)
{
    float scale = 0;
    for (size_t r = 0; r < rows; r++)
        scale = scales[r * chunks + chunk] > scale ? scales[r * chunks + chunk] : scale;
    return scale;
}

static void
largest_piece(void *args, size_t piece)
{
    const exo_largest_args *k = args;
    size_t end;
    for (size_t c = chunks_at(k->count, k->chunk, piece, &end); c < end; c++) {
        const float *x = k->x + c * k->chunk;
        const size_t n = exo_piece_length(k->count, k->chunk, c);
        float largest = 0;
        for (size_t i = 0; i < n; i++) {
            float magnitude = x[i] == x[i] ? fabsf(x[i]) : INFINITY;
            largest = magnitude > largest ? magnitude : largest;
        }
        k->y[c] = largest;
    }
}

exo_status
exo_cpu_largest(exo_device *device, const exo_largest_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    exo_parallel_for(pieces_of(k->count, k->chunk), largest_piece, (void *)(uintptr_t)k);
    return EXO_OK;
}

static void
quantize_piece(void *args, size_t piece)
{
    const exo_quantize_args *k = args;
    const size_t chunks = exo_pieces(k->count, k->chunk);
    size_t end;
    for (size_t c = chunks_at(k->count, k->chunk, piece, &end); c < end; c++) {
        const float *x = k->x + c * k->chunk;
        const size_t n = exo_piece_length(k->count, k->chunk, c);
        const float scale = scale_of(k->scales, k->rows, chunks, c);
        int8_t *y = k->y + c * k->chunk;
        const bool any = scale > 0 && isfinite(scale);
        for (size_t i = 0; i < n; i++)
            y[i] = any ? (int8_t)rintf(x[i] / scale * 127.0f) : 0;
    }
}

exo_status
exo_cpu_quantize(exo_device *device, const exo_quantize_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    exo_parallel_for(pieces_of(k->count, k->chunk), quantize_piece, (void *)(uintptr_t)k);
    return EXO_OK;
}

static void
dequantize_piece(void *args, size_t piece)
{
    const exo_dequantize_args *k = args;
    const size_t chunks = exo_pieces(k->count, k->chunk);
    size_t end;
    for (size_t c = chunks_at(k->count, k->chunk, piece, &end); c < end; c++) {
        const size_t first = c * k->chunk, n = exo_piece_length(k->count, k->chunk, c);
        const float scale = scale_of(k->scales, k->rows, chunks, c);
        for (size_t i = first; i < first + n; i++) {
            int32_t sum = 0;
            for (size_t s = 0; s < k->senders; s++)
                sum += k->x[s * k->count + i];
            k->y[i] = (float)sum * scale / k->divisor;
        }
    }
}

exo_status
exo_cpu_dequantize(exo_device *device, const exo_dequantize_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    exo_parallel_for(pieces_of(k->count, k->chunk), dequantize_piece, (void *)(uintptr_t)k);
    return EXO_OK;
}
