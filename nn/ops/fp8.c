/* Operands of fp8 in buffers of the tape: see fp8.h. */
#include "nn/ops/fp8.h"

enum {
    SCALE_BYTES = 64 /* before the codes, whose address is to be aligned */
};

exo_fp8_matrix
exo_fp8_at(void *buffer, size_t numel, bool codes, bool transposed)
{
    uint8_t *first = (uint8_t *)buffer + SCALE_BYTES;
    return (exo_fp8_matrix){.buffer = buffer,
                            .scale = buffer,
                            .codes = codes ? first : NULL,
                            .transposed = transposed ? first + (codes ? numel : 0) : NULL};
}

bool
exo_fp8_take(exo_tape *tape, size_t numel, bool codes, bool transposed, exo_fp8_matrix *out)
{
    void *buffer = exo_tape_buffer(tape, SCALE_BYTES + numel * ((size_t)codes + transposed));
    *out = buffer ? exo_fp8_at(buffer, numel, codes, transposed) : (exo_fp8_matrix){0};
    return buffer != NULL;
}

bool
exo_fp8_fill(exo_tape *tape, exo_fp8_matrix *m, exo_fp8 format, size_t rows, size_t columns,
             exo_dtype dtype, const void *x, float *scale)
{
    m->scale = scale ? scale : m->scale;
    return exo_tape_run(tape, to_fp8, .rows = rows, .columns = columns, .dtype = dtype,
                        .format = format, .scaled = scale != NULL, .x = x, .codes = m->codes,
                        .transposed = m->transposed, .scale = m->scale) == EXO_OK;
}
