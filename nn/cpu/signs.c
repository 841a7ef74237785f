/* Signs of elements in bits, with a scale, in pieces of whole bytes. The scale's sum has the fixed
 * order of exo_cpu_sum_squares. No state. Read next: nn/device/compress_args.h. */
#include "nn/cpu/cpu_device.h"

#include <math.h>

#include "nn/cpu/pieces.h"

enum {
    PIECE = 1 << 12, /* bytes of signs */
    BITS = 8
};

static void
pack_piece(void *args, size_t piece)
{
    const exo_sign_pack_args *k = args;
    const size_t bytes = k->chunk / BITS, first = piece * PIECE,
                 n = exo_piece_length(k->chunks * bytes, PIECE, piece);
    for (size_t at = first; at < first + n; at++) {
        const size_t element = at * BITS;
        const size_t left = element < k->count ? k->count - element : 0;
        uint8_t byte = 0;
        for (size_t i = 0; i < BITS && i < left; i++)
            byte |= (uint8_t)(!(k->x[element + i] < 0) << i);
        k->bits[at / bytes * k->step + at % bytes] = byte;
    }
}

exo_status
exo_cpu_sign_pack(exo_device *device, const exo_sign_pack_args *k, exo_err *err)
{
    double squares = 0;
    exo_status st = exo_cpu_sum_squares(
        device, &(exo_sum_squares_args){.count = k->count, .x = k->x, .out = &squares}, err);
    for (size_t c = 0; c < k->chunks; c++)
        k->scale[c * (k->step / sizeof *k->scale)] =
            k->count ? (float)sqrt(squares / (double)k->count) : 0;
    if (k->chunk > 0)
        exo_parallel_for(exo_pieces(k->chunks * (k->chunk / BITS), PIECE), pack_piece,
                         (void *)(uintptr_t)k);
    return st;
}

static void
mean_piece(void *args, size_t piece)
{
    const exo_sign_mean_args *k = args;
    const size_t first = piece * PIECE * BITS;
    const size_t end = first + exo_piece_length(k->count, PIECE * BITS, piece);
    for (size_t i = first; i < end; i++) {
        const size_t chunk = i / k->chunk * k->chunk_step, byte = i % k->chunk / BITS;
        float sum = 0;
        for (size_t s = 0; s < k->senders; s++) {
            const size_t at = s * k->sender_step + chunk;
            const float scale = k->scale[at / sizeof scale];
            sum += k->bits[at + byte] >> i % BITS & 1 ? scale : -scale;
        }
        k->y[i] = sum / (float)k->senders;
    }
}

exo_status
exo_cpu_sign_mean(exo_device *device, const exo_sign_mean_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    exo_parallel_for(exo_pieces(k->count, PIECE * BITS), mean_piece, (void *)(uintptr_t)k);
    return EXO_OK;
}
