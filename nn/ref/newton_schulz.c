/* The Newton-Schulz iteration of Muon as its definition reads: one loop a dimension, sums in
 * double. No state. Read next: nn/device/device_impl.h; nn/cpu/newton_schulz.c, the same in
 * pieces. */
#include "nn/ref/ref_kernels.h"

#include <math.h>
#include <string.h>

#include "nn/ref/ref_plans.h"

/* The matrix with its shorter side as rows: of a tall matrix, the transposed one. */
struct view {
    float *x;
    size_t side, length; /* rows, columns of the view; side <= length */
    size_t row, column;  /* distances of two elements of a column, and of a row */
};

static float *
at(const struct view *v, size_t i, size_t j)
{
    return &v->x[i * v->row + j * v->column];
}

static void
normalize(const struct view *v, float eps)
{
    double sum = 0;
    for (size_t i = 0; i < v->side * v->length; i++)
        sum += (double)v->x[i] * (double)v->x[i];
    float norm = (float)sqrt(sum);
    norm = norm < eps ? eps : norm; /* a NaN stays */
    for (size_t i = 0; i < v->side * v->length; i++)
        v->x[i] = v->x[i] / norm;
}

/* gram (side, side) = X X^T, product (side, side) = gram gram, next = a X + (b gram + c product)
 * X */
static void
iterate(const struct view *v, float a, float b, float c, float *gram, float *product, float *next)
{
    size_t side = v->side;
    for (size_t i = 0; i < side; i++)
        for (size_t j = 0; j < side; j++) {
            double sum = 0;
            for (size_t l = 0; l < v->length; l++)
                sum += (double)*at(v, i, l) * (double)*at(v, j, l);
            gram[i * side + j] = (float)sum;
        }
    for (size_t i = 0; i < side; i++)
        for (size_t j = 0; j < side; j++) {
            double sum = 0;
            for (size_t l = 0; l < side; l++)
                sum += (double)gram[i * side + l] * (double)gram[l * side + j];
            product[i * side + j] = b * gram[i * side + j] + c * (float)sum;
        }
    for (size_t i = 0; i < side; i++)
        for (size_t j = 0; j < v->length; j++) {
            double sum = (double)a * (double)*at(v, i, j);
            for (size_t l = 0; l < side; l++)
                sum += (double)product[i * side + l] * (double)*at(v, l, j);
            next[i * v->row + j * v->column] = (float)sum;
        }
}

exo_status
exo_reference_newton_schulz(exo_device *device, const exo_newton_schulz_args *k, exo_err *err)
{
    const exo_newton_schulz_shape *s = &exo_ref_plan_of(k->plan)->newton_schulz;
    const bool tall = s->rows > s->cols;
    const struct view v = {.x = k->x,
                           .side = tall ? s->cols : s->rows,
                           .length = tall ? s->rows : s->cols,
                           .row = tall ? 1 : s->cols,
                           .column = tall ? s->cols : 1};
    float *gram = k->scratch, *product = gram + v.side * v.side, *next = product + v.side * v.side;
    (void)device;
    (void)err;
    normalize(&v, k->eps);
    for (size_t step = 0; step < k->steps; step++) {
        iterate(&v, k->a, k->b, k->c, gram, product, next);
        memcpy(k->x, next, s->rows * s->cols * sizeof *next);
    }
    return EXO_OK;
}
