/* Orthonormal vectors by Householder reflections, in double and in one piece: the vectors are few.
 * No state. Read next: nn/device/compress_args.h; nn/ref/ref_compress.c, Gram-Schmidt. */
#include "nn/cpu/cpu_device.h"

#include <math.h>

enum {
    LANES = 8 /* chains of additions, added in their order */
};

static double
dot(const double *a, const double *b, size_t n)
{
    double lanes[LANES] = {0}, sum = 0;
    size_t at = 0;
    for (; at + LANES <= n; at += LANES)
        for (size_t l = 0; l < LANES; l++)
            lanes[l] += a[at + l] * b[at + l];
    for (size_t l = 0; at + l < n; l++)
        lanes[l] += a[at + l] * b[at + l];
    for (size_t l = 0; l < LANES; l++)
        sum += lanes[l];
    return sum;
}

/* x = x - 2 v (v^T x) / (v^T v), with `squares` v^T v; the identity for v = 0. */
static void
reflect(double *x, const double *v, size_t n, double squares)
{
    if (squares == 0)
        return;
    const double factor = 2 * dot(v, x, n) / squares;
    for (size_t i = 0; i < n; i++)
        x[i] -= factor * v[i];
}

/* Makes column k of the work space, from element k on, the vector of its reflection, and reflects
 * the later ones. Returns R's diagonal element. */
static double
eliminate(double *work, size_t vectors, size_t length, size_t k, double *squares)
{
    double *v = work + k * length + k;
    const size_t n = length - k;
    const double norm = sqrt(dot(v, v, n)), diagonal = v[0] > 0 ? -norm : norm;
    v[0] -= diagonal;
    squares[k] = dot(v, v, n);
    for (size_t j = k + 1; j < vectors; j++)
        reflect(work + j * length + k, v, n, squares[k]);
    return diagonal;
}

exo_status
exo_cpu_orthonormalize(exo_device *device, const exo_orthonormalize_args *k, exo_err *err)
{
    const size_t length = k->length;
    double *work = k->scratch, *column = work + k->vectors * length, *squares = column + length;
    (void)device;
    (void)err;
    for (size_t v = 0; v < k->vectors; v++)
        for (size_t i = 0; i < length; i++)
            work[v * length + i] = (double)k->x[v * k->vector_step + i * k->element_step];
    for (size_t v = 0; v < k->vectors; v++) {
        const double sign =
            eliminate(work, k->vectors, length, v, squares) < 0 ? -1 : 1; /* R's own is 1 */
        for (size_t i = 0; i < length; i++)
            column[i] = i == v ? sign : 0;
        for (size_t j = v + 1; j-- > 0;)
            reflect(column + j, work + j * length + j, length - j, squares[j]);
        for (size_t i = 0; i < length; i++)
            k->x[v * k->vector_step + i * k->element_step] = (float)column[i];
    }
    return EXO_OK;
}
