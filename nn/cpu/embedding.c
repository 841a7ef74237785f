/* Embeddings: rows of a table by token, and by position. Gradients of a table are summed in the
 * order of the rows, a piece some columns, or some positions. No state. */
#include "nn/cpu/cpu_device.h"

#include <string.h>

#include "nn/cpu/pieces.h"

enum {
    ROWS = 64,    /* a piece of forward                               */
    COLUMNS = 64, /* a piece of backward: of all rows, so many columns */
    POSITIONS = 16
};

#define RUN(NAME, COUNT, PER_PIECE)                                                                \
    exo_status exo_cpu_##NAME(exo_device *device, const exo_##NAME##_args *args, exo_err *err)     \
    {                                                                                              \
        (void)device;                                                                              \
        (void)err;                                                                                 \
        exo_parallel_for(exo_pieces(args->COUNT, PER_PIECE), NAME##_piece,                         \
                         (void *)(uintptr_t)args);                                                 \
        return EXO_OK;                                                                             \
    }

static void
embedding_piece(void *context, size_t piece)
{
    const exo_embedding_args *k = context;
    size_t first = piece * ROWS, count = exo_piece_length(k->rows, ROWS, piece);
    for (size_t r = first; r < first + count; r++)
        if (k->tokens[r] >= 0)
            memcpy(k->y + r * k->width, k->table + (size_t)k->tokens[r] * k->width,
                   k->width * sizeof *k->y);
        else
            memset(k->y + r * k->width, 0, k->width * sizeof *k->y);
}
RUN(embedding, rows, ROWS)

static void
embedding_backward_piece(void *context, size_t piece)
{
    const exo_embedding_backward_args *k = context;
    size_t first = piece * COLUMNS, count = exo_piece_length(k->width, COLUMNS, piece);
    for (size_t r = 0; r < k->rows; r++) {
        if (k->tokens[r] < 0)
            continue;
        const float *restrict dy = k->dy + r * k->width + first;
        size_t token = (size_t)k->tokens[r], at = k->slot ? (size_t)k->slot[token] : token;
        float *restrict row = k->gradient + at * k->width + first;
        for (size_t i = 0; i < count; i++)
            row[i] += dy[i];
    }
}
RUN(embedding_backward, width, COLUMNS)

static void
positions_piece(void *context, size_t piece)
{
    const exo_positions_args *k = context;
    size_t first = piece * ROWS, count = exo_piece_length(k->rows, ROWS, piece);
    for (size_t r = first; r < first + count; r++) {
        const float *restrict x = k->x + r * k->width;
        const float *restrict row = k->table + (k->first + r % k->sequence) * k->width;
        float *restrict y = k->y + r * k->width;
        for (size_t i = 0; i < k->width; i++)
            y[i] = x[i] + row[i];
    }
}
RUN(positions, rows, ROWS)

static void
positions_backward_piece(void *context, size_t piece)
{
    const exo_positions_backward_args *k = context;
    size_t first = piece * POSITIONS, count = exo_piece_length(k->sequence, POSITIONS, piece);
    for (size_t r = 0; r < k->rows; r += k->sequence)
        for (size_t t = first; t < first + count; t++) {
            const float *restrict dy = k->dy + (r + t) * k->width;
            float *restrict row = k->gradient + (k->first + t) * k->width;
            for (size_t i = 0; i < k->width; i++)
                row[i] += dy[i];
        }
}
RUN(positions_backward, sequence, POSITIONS)
