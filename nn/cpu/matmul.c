/* Matrix products in pieces of rows: see matmul.h. */
#include "nn/cpu/matmul.h"

#include <exogym/memory.h>

#include "nn/cpu/pieces.h"

enum {
    PIECES = 8,
    ROUND = 32, /* rows */
    LEAST_ROWS = 64,
    MOST_ROWS = 288
};

struct exo_matmul {
    exo_gemm_shape shape;
    size_t rows; /* of a full piece */
    size_t pieces;
    exo_gemm *full, *last; /* of full pieces; of a shorter last piece, or NULL */
};

/* The rows of a full piece: equal shares, a multiple of 8 of them if the least size allows it. */
static size_t
rows_of_piece(size_t rows)
{
    const size_t pieces = PIECES * exo_pieces(rows, PIECES * MOST_ROWS),
                 piece = exo_pieces(exo_pieces(rows, pieces), ROUND) * ROUND;
    return piece < LEAST_ROWS ? LEAST_ROWS : piece;
}

exo_status
exo_matmul_new(exo_matmul **out, const exo_gemm_shape *shape, exo_err *err)
{
    exo_matmul *m = exo_calloc(1, sizeof *m);
    if (!m)
        return exo_fail(err, EXO_NOMEM, "matrix product: no memory");
    m->rows = rows_of_piece(shape->rows);
    size_t full = shape->rows / m->rows, last = shape->rows % m->rows;
    m->shape = *shape;
    m->shape.a_stride = shape->a_stride      ? shape->a_stride
                        : shape->transpose_a ? shape->rows
                                             : shape->inner;
    m->shape.c_stride = shape->c_stride ? shape->c_stride : shape->cols;
    m->pieces = full + (last > 0);
    exo_gemm_shape piece = m->shape;
    exo_status st = EXO_OK;
    if (full > 0) {
        piece.rows = m->rows;
        st = exo_gemm_new(&m->full, &piece, full, err);
    }
    if (st == EXO_OK && last > 0) {
        piece.rows = last;
        st = exo_gemm_new(&m->last, &piece, 1, err);
    }
    if (st != EXO_OK) {
        exo_matmul_free(&m);
        return st;
    }
    *out = m;
    return EXO_OK;
}

void
exo_matmul_free(exo_matmul **matmul)
{
    exo_matmul *m = *matmul;
    if (!m)
        return;
    exo_gemm_free(&m->full);
    exo_gemm_free(&m->last);
    exo_free(m);
    *matmul = NULL;
}

size_t
exo_matmul_pieces(const exo_matmul *matmul)
{
    return matmul->pieces;
}

void
exo_matmul_rows(const exo_matmul *matmul, size_t piece, size_t *first, size_t *count)
{
    *first = piece * matmul->rows;
    *count = exo_piece_length(matmul->shape.rows, matmul->rows, piece);
}

exo_status
exo_matmul_run(exo_matmul *m, size_t piece, const void *a, const void *b, const float *bias,
               void *c, exo_err *err)
{
    const exo_gemm_shape *s = &m->shape;
    bool last = m->last && piece + 1 == m->pieces;
    size_t first = piece * m->rows;
    size_t a_skip =
        first * (s->transpose_a ? 1 : s->a_stride) * exo_dtype_size((exo_dtype)s->in_dtype);
    size_t c_skip = first * s->c_stride * exo_dtype_size((exo_dtype)s->out_dtype);
    return exo_gemm_run(last ? m->last : m->full, last ? 0 : piece, (const char *)a + a_skip, b,
                        bias, (char *)c + c_skip, err);
}
