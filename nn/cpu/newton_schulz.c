/* The Newton-Schulz iteration of Muon: three matrix products a step, in pieces of rows. A piece of
 * the second product also computes its rows of the polynomial
 *
 *     P = a I + b A + c A A,  and then  X = P X
 *
 * so no further pass over X is needed. A tall matrix is not transposed: A = X^T X and X = X P.
 * Owner of a plan: its optimizer. Read next: nn/device/device_impl.h, matmul.h. */
#include "nn/cpu/cpu_device.h"

#include <math.h>

#include <exogym/memory.h>

#include "nn/cpu/matmul.h"
#include "nn/cpu/pieces.h"
#include "nn/cpu/plans.h"

struct plan {
    exo_plan plan;
    exo_newton_schulz_shape shape;
    size_t side; /* the shorter one */
    exo_matmul *gram, *square, *apply;
};

static struct plan *
plan_of(exo_plan *plan)
{
    return (struct plan *)(void *)plan;
}

void
exo_cpu_newton_schulz_plan_free(exo_plan *plan)
{
    struct plan *p = plan_of(plan);
    exo_matmul_free(&p->gram);
    exo_matmul_free(&p->square);
    exo_matmul_free(&p->apply);
    exo_free(p);
}

static exo_status
make_products(struct plan *p, exo_err *err)
{
    const size_t rows = p->shape.rows, cols = p->shape.cols, side = p->side;
    const bool tall = rows > cols;
    const exo_gemm_shape gram = {.rows = side,
                                 .cols = side,
                                 .inner = tall ? rows : cols,
                                 .transpose_a = tall,
                                 .transpose_b = !tall,
                                 .in_dtype = EXO_F32,
                                 .out_dtype = EXO_F32},
                         square = {.rows = side,
                                   .cols = side,
                                   .inner = side,
                                   .in_dtype = EXO_F32,
                                   .out_dtype = EXO_F32},
                         apply = {.rows = rows,
                                  .cols = cols,
                                  .inner = side,
                                  .in_dtype = EXO_F32,
                                  .out_dtype = EXO_F32};
    exo_status st = exo_matmul_new(&p->gram, &gram, err);
    if (st == EXO_OK)
        st = exo_matmul_new(&p->square, &square, err);
    return st == EXO_OK ? exo_matmul_new(&p->apply, &apply, err) : st;
}

exo_status
exo_cpu_newton_schulz_plan(exo_plan **out, const exo_newton_schulz_shape *shape, exo_err *err)
{
    struct plan *p = exo_calloc(1, sizeof *p);
    if (!p)
        return exo_fail(err, EXO_NOMEM, "newton_schulz: no memory");
    p->shape = *shape;
    p->side = shape->rows < shape->cols ? shape->rows : shape->cols;
    exo_status st = make_products(p, err);
    if (st == EXO_OK)
        *out = &p->plan;
    else
        exo_cpu_newton_schulz_plan_free(&p->plan);
    return st;
}

/* --- Scratch: the next X, A and P, each aligned ----------------------------------------------- */

static size_t
bytes_of_matrix(const exo_newton_schulz_shape *s)
{
    return exo_aligned_size(s->rows * s->cols * sizeof(float));
}

static size_t
bytes_of_square(const exo_newton_schulz_shape *s)
{
    size_t side = s->rows < s->cols ? s->rows : s->cols;
    return exo_aligned_size(side * side * sizeof(float));
}

size_t
exo_cpu_newton_schulz_scratch(const exo_newton_schulz_shape *shape)
{
    return bytes_of_matrix(shape) + 2 * bytes_of_square(shape);
}

/* --- Steps ------------------------------------------------------------------------------------ */

struct loop {
    exo_matmul *matmul;
    const float *left, *right;
    float *out;
    /* of the second product */
    bool polynomial;
    size_t side;
    float a, b, c;
    exo_failure failure;
};

/* Makes rows [first, first + count) of A A rows of the polynomial. */
static void
finish_polynomial(const struct loop *l, size_t first, size_t count)
{
    const size_t side = l->side;
    const float *restrict gram = l->left + first * side;
    float *restrict out = l->out + first * side;
    for (size_t i = 0; i < count * side; i++)
        out[i] = l->b * gram[i] + l->c * out[i];
    for (size_t r = 0; r < count; r++)
        out[r * side + first + r] += l->a;
}

static void
product_piece(void *context, size_t piece)
{
    struct loop *l = context;
    exo_err err = {0};
    exo_failure_note(&l->failure,
                     exo_matmul_run(l->matmul, piece, l->left, l->right, NULL, l->out, &err), &err);
    size_t first, count;
    exo_matmul_rows(l->matmul, piece, &first, &count);
    if (l->polynomial)
        finish_polynomial(l, first, count);
}

static exo_status
run_product(struct loop l, exo_err *err)
{
    exo_parallel_for(exo_matmul_pieces(l.matmul), product_piece, &l);
    return exo_failure_result(&l.failure, err);
}

static exo_status
normalize(exo_device *device, const exo_newton_schulz_args *k, size_t count, exo_err *err)
{
    double squares = 0;
    exo_status st = exo_cpu_sum_squares(
        device, &(exo_sum_squares_args){.count = count, .x = k->x, .out = &squares}, err);
    float norm = (float)sqrt(squares);
    norm = norm < k->eps ? k->eps : norm; /* a NaN stays */
    return st == EXO_OK ? exo_cpu_divide(
                              device, &(exo_divide_args){.count = count, .y = k->x, .a = norm}, err)
                        : st;
}

static exo_status
iterate(const struct plan *p, const exo_newton_schulz_args *k, const float *x, float *gram,
        float *polynomial, float *next, exo_err *err)
{
    const bool tall = p->shape.rows > p->shape.cols;
    exo_status st =
        run_product((struct loop){.matmul = p->gram, .left = x, .right = x, .out = gram}, err);
    if (st == EXO_OK)
        st = run_product((struct loop){.matmul = p->square,
                                       .left = gram,
                                       .right = gram,
                                       .out = polynomial,
                                       .polynomial = true,
                                       .side = p->side,
                                       .a = k->a,
                                       .b = k->b,
                                       .c = k->c},
                         err);
    if (st == EXO_OK)
        st = run_product((struct loop){.matmul = p->apply,
                                       .left = tall ? x : polynomial,
                                       .right = tall ? polynomial : x,
                                       .out = next},
                         err);
    return st;
}

exo_status
exo_cpu_newton_schulz(exo_device *device, const exo_newton_schulz_args *k, exo_err *err)
{
    const struct plan *p = plan_of(k->plan);
    const size_t count = p->shape.rows * p->shape.cols;
    char *scratch = k->scratch;
    float *now = k->x, *next = (float *)(void *)scratch,
          *gram = (float *)(void *)(scratch + bytes_of_matrix(&p->shape)),
          *polynomial = (float *)(void *)((char *)gram + bytes_of_square(&p->shape));
    exo_status st = normalize(device, k, count, err);
    for (size_t step = 0; st == EXO_OK && step < k->steps; step++) {
        float *before = now;
        st = iterate(p, k, now, gram, polynomial, next, err);
        now = next;
        next = before;
    }
    if (st == EXO_OK && now != k->x)
        st = exo_cpu_scale(device,
                           &(exo_scale_args){.count = count, .y = k->x, .a = 1.0f, .x = now}, err);
    return st;
}
