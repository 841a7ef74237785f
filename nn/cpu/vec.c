/* Arithmetic on whole arrays, in pieces: plain loops that compilers vectorize. Elements do not
 * depend on each other, so the pieces do not change the results. The pieces of a sum depend on the
 * array's length only, and are added in their order. No state. Read next: nn/ref/ref_device.c, the
 * same kernels without pieces. */
#include "nn/cpu/cpu_device.h"

#include <math.h>
#include <string.h>

#include "base/parallel.h"
#include "nn/cpu/kernels.h"
#include "nn/cpu/typed.h"

/* Defines a kernel NAME that runs STATEMENT for each element i, with its arguments in k. The
 * output may be one of the inputs. */
#define SWEEP(NAME, STATEMENT)                                                                     \
    static void NAME##_piece(void *args, size_t piece)                                             \
    {                                                                                              \
        const exo_##NAME##_args k = *(const exo_##NAME##_args *)args;                              \
        size_t first, end;                                                                         \
        exo_cpu_piece(k.count, piece, &first, &end);                                               \
        EXO_IN_PLACE                                                                               \
        for (size_t i = first; i < end; i++)                                                       \
            STATEMENT;                                                                             \
    }                                                                                              \
    exo_status exo_cpu_##NAME(exo_device *device, const exo_##NAME##_args *args, exo_err *err)     \
    {                                                                                              \
        (void)device;                                                                              \
        (void)err;                                                                                 \
        return exo_cpu_sweep(args->count, NAME##_piece, args);                                     \
    }

SWEEP(fill, k.y[i] = k.value)
SWEEP(scale, k.y[i] = k.x[i] * k.a)
SWEEP(divide, k.y[i] /= k.a)
SWEEP(axpy, k.y[i] += k.a * k.x[i])
SWEEP(sub, k.y[i] = k.a[i] - k.b[i])
SWEEP(lerp, k.y[i] += k.t * (k.x[i] - k.y[i]))
SWEEP(sign, k.y[i] = (float)((k.x[i] > 0.0f) - (k.x[i] < 0.0f)))
SWEEP(standardize, k.y[i] = (float)(((double)k.x[i] - k.mean) * k.factor))
SWEEP(gather, k.y[i] = k.x[k.index[i]])
SWEEP(scatter, k.y[k.index[i]] = k.x[i])

static void
mul_piece(void *args, size_t piece)
{
    const exo_mul_args k = *(const exo_mul_args *)args;
    size_t first, end;
    exo_cpu_piece(k.count, piece, &first, &end);
    if (k.add) {
        EXO_IN_PLACE
        for (size_t i = first; i < end; i++)
            k.y[i] = k.y[i] + k.a[i] * k.b[i];
    } else {
        EXO_IN_PLACE
        for (size_t i = first; i < end; i++)
            k.y[i] = k.a[i] * k.b[i];
    }
}

exo_status
exo_cpu_mul(exo_device *device, const exo_mul_args *args, exo_err *err)
{
    (void)device;
    (void)err;
    return exo_cpu_sweep(args->count, mul_piece, args);
}

static void
add_piece(void *args, size_t piece)
{
    const exo_add_args k = *(const exo_add_args *)args;
    size_t first, end;
    exo_cpu_piece(k.count, piece, &first, &end);
    if (k.dtype == EXO_I32) {
        const uint32_t *a = k.a, *b = k.b;
        uint32_t *y = k.y;
        EXO_IN_PLACE
        for (size_t i = first; i < end; i++)
            y[i] = a[i] + b[i];
    } else if (k.dtype == EXO_BF16 && k.y == k.a && k.y != k.b) {
        exo_accumulate(EXO_BF16, (const uint16_t *)k.b + first, (uint16_t *)k.y + first,
                       end - first);
    } else if (k.dtype == EXO_BF16) {
        EXO_IN_PLACE
        for (size_t i = first; i < end; i++)
            exo_store(EXO_BF16, k.y, i, exo_load(EXO_BF16, k.a, i) + exo_load(EXO_BF16, k.b, i));
    } else {
        const float *a = k.a, *b = k.b;
        float *y = k.y;
        EXO_IN_PLACE
        for (size_t i = first; i < end; i++)
            y[i] = a[i] + b[i];
    }
}

exo_status
exo_cpu_add(exo_device *device, const exo_add_args *args, exo_err *err)
{
    (void)device;
    (void)err;
    return exo_cpu_sweep(args->count, add_piece, args);
}

static void
cast_piece(void *args, size_t piece)
{
    const exo_cast_args *k = args;
    size_t first, end;
    exo_cpu_piece(k->count, piece, &first, &end);
    exo_cast(k->from, (const char *)k->x + first * exo_dtype_size(k->from), k->to,
             (char *)k->y + first * exo_dtype_size(k->to), end - first);
}

exo_status
exo_cpu_cast(exo_device *device, const exo_cast_args *args, exo_err *err)
{
    (void)device;
    (void)err;
    return exo_cpu_sweep(args->count, cast_piece, args);
}

/* --- Trimmed mean ----------------------------------------------------------------------------- */

/* Integers in the order of the numbers; NaN is the largest. */
static inline uint32_t
order_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (bits & 0x7FFFFFFFu) > 0x7F800000u ? UINT32_MAX : order;
}

enum {
    COLUMNS = 64 /* columns that are computed together, in vector registers and the first cache */
};

/* Counts in below (n) the rows whose value in a column comes before that of `row`. */
static void
count_below(const exo_trimmed_mean_args *k, size_t first, size_t n, size_t row, uint32_t *below)
{
    const float *own = k->x + row * k->pitch + first;
    memset(below, 0, n * sizeof *below);
    for (size_t r = 0; r < k->rows; r++) {
        const float *x = k->x + r * k->pitch + first;
        const uint32_t earlier = r < row;
        for (size_t i = 0; i < n; i++)
            below[i] += (order_of(x[i]) < order_of(own[i])) |
                        (earlier & (order_of(x[i]) == order_of(own[i])));
    }
}

static void
trimmed_mean_piece(void *args, size_t piece)
{
    const exo_trimmed_mean_args k = *(const exo_trimmed_mean_args *)args;
    size_t first, end;
    exo_cpu_piece(k.count, piece, &first, &end);
    for (size_t at = first; at < end; at += COLUMNS) {
        const size_t n = end - at < COLUMNS ? end - at : COLUMNS;
        uint32_t below[COLUMNS];
        float sum[COLUMNS];
        for (size_t i = 0; i < n; i++)
            sum[i] = -0.0f; /* -0 + x is x, also for -0 */
        for (size_t row = 0; row < k.rows; row++) {
            const float *x = k.x + row * k.pitch + at;
            count_below(&k, at, n, row, below);
            for (size_t i = 0; i < n; i++)
                sum[i] = below[i] - k.trim < k.rows - 2 * k.trim ? sum[i] + x[i] : sum[i];
        }
        for (size_t i = 0; i < n; i++)
            k.y[at + i] = sum[i] / (float)(k.rows - 2 * k.trim);
    }
}

exo_status
exo_cpu_trimmed_mean(exo_device *device, const exo_trimmed_mean_args *args, exo_err *err)
{
    (void)device;
    (void)err;
    return exo_cpu_sweep(args->count, trimmed_mean_piece, args);
}

/* --- Sums ----------------------------------------------------------------------------------------
 *
 * The array is divided, by its length only, into at most MAX_SUMS parts. In each part LANES chains
 * of additions fill the vector units. The chains are added in their order, and then the parts. */

enum {
    MAX_SUMS = 64,
    MIN_SUM = 1 << 14, /* elements of a part; fewer are not worth a thread */
    LANES = 32
};

struct sums {
    size_t count, part; /* elements of the array; of each part, except the last */
    const float *a, *b;
    double center;
    double (*sum)(const struct sums *s, size_t first, size_t n);
    double sums[MAX_SUMS];
};

/* Defines a function that sums TERM, an expression of element i, over [first, first + n). */
#define CHAINS(NAME, TERM)                                                                         \
    static double NAME(const struct sums *s, size_t first, size_t n)                               \
    {                                                                                              \
        const float *a = s->a + first, *b = s->b ? s->b + first : NULL;                            \
        const double center = s->center;                                                           \
        double lanes[LANES] = {0}, sum = 0;                                                        \
        size_t at = 0;                                                                             \
        (void)b;                                                                                   \
        (void)center;                                                                              \
        for (; at + LANES <= n; at += LANES)                                                       \
            for (size_t l = 0, i = at; l < LANES; l++, i++)                                        \
                lanes[l] += TERM;                                                                  \
        for (size_t l = 0, i = at; i < n; i++, l++)                                                \
            lanes[l] += TERM;                                                                      \
        for (size_t l = 0; l < LANES; l++)                                                         \
            sum += lanes[l];                                                                       \
        return sum;                                                                                \
    }

CHAINS(sum_part, (double)a[i])
CHAINS(squares_part, ((double)a[i] - center) * ((double)a[i] - center))
CHAINS(dot_part, (double)a[i] * (double)b[i])

static void
sum_piece(void *context, size_t index)
{
    struct sums *s = context;
    size_t first = index * s->part, left = s->count - first;
    s->sums[index] = s->sum(s, first, left < s->part ? left : s->part);
}

static void
run_sums(struct sums *s, double *out)
{
    s->part = (s->count + MAX_SUMS - 1) / MAX_SUMS;
    if (s->part < MIN_SUM)
        s->part = MIN_SUM;
    size_t parts = (s->count + s->part - 1) / s->part;
    exo_parallel_for(parts, sum_piece, s);
    *out = 0;
    for (size_t i = 0; i < parts; i++)
        *out += s->sums[i];
}

exo_status
exo_cpu_sum(exo_device *device, const exo_sum_args *args, exo_err *err)
{
    struct sums s = {.count = args->count, .a = args->x, .sum = sum_part};
    (void)device;
    (void)err;
    run_sums(&s, args->out);
    return EXO_OK;
}

exo_status
exo_cpu_sum_squares(exo_device *device, const exo_sum_squares_args *args, exo_err *err)
{
    struct sums s = {
        .count = args->count, .a = args->x, .center = args->center, .sum = squares_part};
    const double before = args->add ? *args->out : 0;
    (void)device;
    (void)err;
    run_sums(&s, args->out);
    *args->out += before;
    return EXO_OK;
}

exo_status
exo_cpu_dot(exo_device *device, const exo_dot_args *args, exo_err *err)
{
    struct sums s = {.count = args->count, .a = args->a, .b = args->b, .sum = dot_part};
    (void)device;
    (void)err;
    run_sums(&s, args->out);
    return EXO_OK;
}

exo_status
exo_cpu_clip(exo_device *device, const exo_clip_args *args, exo_err *err)
{
    double sum = 0;
    for (size_t p = 0; p < args->parts; p++)
        sum += args->squares[p];
    if (args->sum)
        *args->sum = sum;
    if (!args->norm)
        return EXO_OK;
    args->norm[0] = (float)sqrt(sum);
    const float factor = args->max_norm / (args->norm[0] + 1e-6f);
    return factor >= 1.0f /* false for NaN, which then spreads */
               ? EXO_OK
               : exo_cpu_scale(device,
                               &(exo_scale_args){
                                   .count = args->count, .y = args->y, .a = factor, .x = args->y},
                               err);
}
