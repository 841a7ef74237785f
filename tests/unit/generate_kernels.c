/* The kernels of generation, one at a time: the formulas and bounds of quantization, products,
 * attention over a cache, log-sums. The tests have no shared state. Read next:
 * nn/cpu/decode.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/memory.h>

#include "nn/cpu/decode.h"
#include "nn/cpu/softmax.h"
#include "support/numbers.h"

enum {
    FORMATS = 3
};

static const exo_decode_format formats[FORMATS] = {EXO_DECODE_F32, EXO_DECODE_INT8,
                                                   EXO_DECODE_INT4};

static void
pack(exo_decode_matrix *m, exo_decode_format format, size_t outputs, size_t inputs, const float *w)
{
    exo_err err = {0};
    *m = (exo_decode_matrix){0};
    cr_assert_eq(exo_decode_matrix_init(m, format, outputs, inputs, "w", &err), EXO_OK, "%s",
                 err.text);
    void *memory = exo_alloc_aligned(m->bytes);
    cr_assert_not_null(memory);
    exo_decode_matrix_place(m, memory);
    for (size_t p = 0; p < m->panels; p++)
        exo_decode_pack(m, w, p);
}

/* --- Weights ---------------------------------------------------------------------------------- */

Test(generate_kernels, weights_come_back_as_their_format_says)
{
    static const size_t shapes[][2] = {{1, 1}, {33, 128}, {70, 129}, {64, 256}, {5, 300}};
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
        size_t outputs = shapes[k][0], inputs = shapes[k][1];
        float *w = numbers_new(outputs * inputs, k), *back = malloc(inputs * sizeof *back);
        for (int f = 0; f < FORMATS; f++) {
            exo_decode_matrix m;
            pack(&m, formats[f], outputs, inputs, w);
            for (size_t o = 0; o < outputs; o++) {
                exo_decode_unpack(&m, o, back);
                for (size_t first = 0; first < inputs; first += 128) {
                    size_t count = inputs - first < 128 ? inputs - first : 128;
                    const float *x = w + o * inputs + first;
                    float largest = 0, low = x[0], high = x[0];
                    for (size_t i = 0; i < count; i++) {
                        largest = fmaxf(largest, fabsf(x[i]));
                        low = fminf(low, x[i]);
                        high = fmaxf(high, x[i]);
                    }
                    /* fp32: exact. int8: half a step. int4: at most one step of any spacing that is
                     * tried, with clipped ends. */
                    float bound = f == 0   ? 0
                                  : f == 1 ? largest / 127 * 0.5001f
                                           : (high - low) * (0.11f + 1 / 15.0f);
                    for (size_t i = 0; i < count; i++)
                        cr_assert(fabsf(back[first + i] - x[i]) <= bound,
                                  "format %d, (%zu, %zu): %g became %g", f, o, first + i,
                                  (double)x[i], (double)back[first + i]);
                }
            }
            exo_free(m.weights);
        }
        free(w);
        free(back);
    }
}

/* int8 is s q with s = max |w| / 127, to the bit. */
Test(generate_kernels, int8_is_its_formula)
{
    enum {
        INPUTS = 200
    };
    float *w = numbers_new(INPUTS, 3), back[INPUTS];
    exo_decode_matrix m;
    pack(&m, EXO_DECODE_INT8, 1, INPUTS, w);
    exo_decode_unpack(&m, 0, back);
    for (size_t first = 0; first < INPUTS; first += 128) {
        size_t last = first + 128 < INPUTS ? first + 128 : INPUTS;
        float largest = 0;
        for (size_t i = first; i < last; i++)
            largest = fmaxf(largest, fabsf(w[i]));
        for (size_t i = first; i < last; i++)
            cr_assert_eq(back[i], largest / 127 * rintf(w[i] * (127 / largest)));
    }
    exo_free(m.weights);
    free(w);
}

/* int4 tries several spacings. The first is sixteen equal steps from the least to the largest
 * weight, so the squared error is below that of equal steps. */
Test(generate_kernels, int4_is_better_than_equal_steps)
{
    enum {
        OUTPUTS = 50,
        INPUTS = 128
    };
    float *w = numbers_new(OUTPUTS * INPUTS, 4), back[INPUTS];
    double error = 0, plain = 0;
    exo_decode_matrix m;
    pack(&m, EXO_DECODE_INT4, OUTPUTS, INPUTS, w);
    for (size_t o = 0; o < OUTPUTS; o++) {
        const float *x = w + o * INPUTS;
        float low = x[0], high = x[0];
        for (size_t i = 0; i < INPUTS; i++) {
            low = fminf(low, x[i]);
            high = fmaxf(high, x[i]);
        }
        exo_decode_unpack(&m, o, back);
        for (size_t i = 0; i < INPUTS; i++) {
            float step = (high - low) / 15, level = rintf((x[i] - low) / step);
            error += pow((double)(back[i] - x[i]), 2);
            plain += pow((double)(low + step * level - x[i]), 2);
        }
    }
    cr_expect_lt(error, 0.95 * plain, "%g against %g", error, plain);
    exo_free(m.weights);
    free(w);
}

Test(generate_kernels, equal_tiny_and_broken_weights)
{
    float w[4][4] = {{0.3f, 0.3f, 0.3f, 0.3f},
                     {0, 0, 0, 0},
                     {1e-44f, -1e-44f, 0, 0},
                     {1, NAN, 2, 3}},
          back[4];
    for (int f = 1; f < FORMATS; f++) {
        exo_decode_matrix m;
        pack(&m, formats[f], 4, 4, &w[0][0]);
        for (size_t o = 0; o < 3; o++) {
            exo_decode_unpack(&m, o, back);
            for (size_t i = 0; i < 4; i++)
                cr_expect_float_eq((double)back[i], (double)w[o][i], 1e-7,
                                   "format %d, output %zu: %g", f, o, (double)back[i]);
        }
        exo_decode_unpack(&m, 3, back);
        cr_expect(isnan(back[0]), "format %d: what is broken shows", f);
        exo_free(m.weights);
    }
}

/* --- Products --------------------------------------------------------------------------------- */

struct product {
    exo_decode_matrix m;
    exo_decode_rows rows;
    float *x, *bias;
    size_t stride, out_stride;
};

static void
product_new(struct product *p, exo_decode_format format, size_t outputs, size_t inputs, size_t rows)
{
    float *w = numbers_new(outputs * inputs, outputs), *x = numbers_new(rows * inputs, inputs);
    float *bias = numbers_new(outputs, 5);
    pack(&p->m, format, outputs, inputs, w);
    p->stride = (inputs + 31) / 32 * 32;
    p->out_stride = (outputs + 31) / 32 * 32;
    p->x = exo_alloc_aligned(rows * p->stride * sizeof *p->x);
    p->bias = exo_alloc_aligned(p->out_stride * sizeof *p->bias);
    memcpy(p->bias, bias, outputs * sizeof *bias);
    for (size_t r = 0; r < rows; r++)
        memcpy(p->x + r * p->stride, x + r * inputs, inputs * sizeof *x);
    size_t groups = (inputs + 127) / 128;
    p->rows = (exo_decode_rows){.x = p->x,
                                .stride = p->stride,
                                .q = exo_alloc_aligned(rows * p->stride * sizeof(int16_t)),
                                .scales = exo_alloc_aligned(rows * groups * sizeof(float)),
                                .sums = exo_alloc_aligned(rows * groups * sizeof(float)),
                                .groups = groups};
    for (size_t r = 0; r < rows; r++)
        exo_decode_quantize_row(&p->rows, r, inputs);
    free(w);
    free(x);
    free(bias);
}

static void
product_free(struct product *p)
{
    exo_free(p->m.weights);
    void *all[] = {p->x, p->bias, p->rows.q, p->rows.scales, p->rows.sums};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        exo_free(all[i]);
}

static void
run(const struct product *p, size_t rows, const exo_decode_end *end, float *y)
{
    for (size_t panel = 0; panel < p->m.panels; panel++)
        exo_decode_product(&p->m, &p->rows, rows, panel, end, y, p->out_stride);
}

Test(generate_kernels, products_are_the_plain_ones)
{
    static const size_t shapes[][3] = {
        {1, 1, 1}, {32, 128, 1}, {70, 129, 13}, {96, 300, 30}, {33, 37, 5}};
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++)
        for (int f = 0; f < FORMATS; f++) {
            size_t outputs = shapes[k][0], inputs = shapes[k][1], rows = shapes[k][2];
            struct product p;
            product_new(&p, formats[f], outputs, inputs, rows);
            float *y = exo_alloc_aligned(rows * p.out_stride * sizeof *y),
                  *w = malloc(inputs * sizeof *w);
            run(&p, rows, &(exo_decode_end){.bias = p.bias}, y);
            for (size_t o = 0; o < outputs; o++) {
                exo_decode_unpack(&p.m, o, w);
                for (size_t r = 0; r < rows; r++) {
                    double want = (double)p.bias[o], size = fabs(want);
                    for (size_t i = 0; i < inputs; i++) {
                        double term = (double)w[i] * (double)p.x[r * p.stride + i];
                        want += term;
                        size += fabs(term);
                    }
                    double got = (double)y[r * p.out_stride + o];
                    /* int16 rows: each value is off by up to a 32767th of the group's largest. */
                    cr_assert(fabs(got - want) <= size * (f == 0 ? 2e-6 : 2e-4) + 1e-6,
                              "format %d, (%zu, %zu): %g, not %g", f, r, o, got, want);
                }
            }
            exo_free(y);
            free(w);
            product_free(&p);
        }
}

/* Row 0 is the same to the bit alone and as the first of any number of rows. */
Test(generate_kernels, a_row_does_not_depend_on_the_others)
{
    enum {
        ROWS = 40
    };
    for (int f = 0; f < FORMATS; f++) {
        struct product p;
        product_new(&p, formats[f], 64, 300, ROWS);
        size_t bytes = ROWS * p.out_stride * sizeof(float);
        float *want = exo_alloc_aligned(bytes), *y = exo_alloc_aligned(bytes);
        const exo_decode_end end = {.bias = p.bias, .activation = EXO_SILU};
        run(&p, ROWS, &end, want);
        for (size_t rows = 1; rows < ROWS; rows++) {
            run(&p, rows, &end, y);
            cr_assert_arr_eq(y, want, rows * p.out_stride * sizeof *y, "format %d, %zu rows", f,
                             rows);
        }
        exo_free(want);
        exo_free(y);
        product_free(&p);
    }
}

Test(generate_kernels, sums_are_set_added_and_multiplied)
{
    struct product p;
    product_new(&p, EXO_DECODE_F32, 40, 20, 3);
    size_t count = 3 * p.out_stride;
    float *sum = exo_alloc_aligned(count * 4), *y = exo_alloc_aligned(count * 4);
    run(&p, 3, &(exo_decode_end){0}, sum);
    for (int put = EXO_DECODE_ADD; put <= EXO_DECODE_MULTIPLY; put++) {
        for (size_t i = 0; i < count; i++)
            y[i] = (float)i;
        run(&p, 3, &(exo_decode_end){.put = (exo_decode_put)put}, y);
        for (size_t i = 0; i < count; i++)
            cr_assert_eq(y[i], put == EXO_DECODE_ADD ? (float)i + sum[i] : (float)i * sum[i]);
    }
    exo_free(sum);
    exo_free(y);
    product_free(&p);
}

Test(generate_kernels, a_row_with_what_is_no_number_gives_none)
{
    for (int f = 0; f < FORMATS; f++) {
        struct product p;
        product_new(&p, formats[f], 32, 40, 2);
        p.x[3] = INFINITY;
        p.x[4] = NAN;
        exo_decode_quantize_row(&p.rows, 0, 40);
        float *y = exo_alloc_aligned(2 * 32 * 4);
        run(&p, 2, &(exo_decode_end){0}, y);
        cr_expect(isnan(y[0]) && isfinite(y[32]), "format %d: %g, %g", f, (double)y[0],
                  (double)y[32]);
        exo_free(y);
        product_free(&p);
    }
}

/* --- Attention -------------------------------------------------------------------------------- */

static void
plain_attention(const float *q, const float *keys, const float *values, size_t width,
                size_t position, double scale, double slope, double *out)
{
    double sum = 0, *w = malloc((position + 1) * sizeof *w), largest = -INFINITY;
    for (size_t j = 0; j <= position; j++) {
        w[j] = slope * ((double)j - (double)position);
        for (size_t d = 0; d < width; d++)
            w[j] += scale * (double)q[d] * (double)keys[j * width + d];
        largest = fmax(largest, w[j]);
    }
    for (size_t j = 0; j <= position; j++)
        sum += w[j] = exp(w[j] - largest);
    for (size_t d = 0; d < width; d++) {
        out[d] = 0;
        for (size_t j = 0; j <= position; j++)
            out[d] += w[j] / sum * (double)values[j * width + d];
    }
    free(w);
}

/* Over more positions than one stretch, with queries alone and together: the result is the plain
 * one, and the bits are equal. */
Test(generate_kernels, attention_is_the_plain_one)
{
    enum {
        CONTEXT = 1300
    };
    static const size_t widths[] = {1, 8, 18, 64, 80, 200};
    static const size_t at[] = {0, 1, 15, 16, 100, 511, 512, 513, 1024, 1299};
    for (size_t k = 0; k < sizeof widths / sizeof widths[0]; k++) {
        size_t width = widths[k];
        float *q = numbers_new(10 * width, 1), *key = numbers_new(CONTEXT * width, 2);
        float *value = numbers_new(CONTEXT * width, 3), scale = 1 / sqrtf((float)width);
        float *keys = exo_alloc_aligned(exo_decode_keys_size(CONTEXT, width) * 4);
        float *values = exo_alloc_aligned(exo_decode_values_size(CONTEXT, width) * 4);
        for (size_t j = 0; j < CONTEXT; j++)
            exo_decode_cache_put(keys, values, width, j, key + j * width, value + j * width);
        for (int alibi = 0; alibi < 2; alibi++) {
            float alone[10][200], together[10][200];
            double want[200];
            exo_decode_attention a = {
                .keys = keys, .values = values, .head_width = width, .queries = 1, .scale = scale};
            for (size_t i = 0; i < 10; i++) {
                a.query[0] = q + i * width;
                a.out[0] = alone[i];
                a.position[0] = at[i];
                a.slope[0] = alibi ? 0.02f * (float)(i + 1) : 0;
                exo_decode_attend(&a);
                plain_attention(q + i * width, key, value, width, at[i], (double)scale,
                                (double)a.slope[0], want);
                for (size_t d = 0; d < width; d++)
                    cr_assert_float_eq((double)alone[i][d], want[d], 2e-5,
                                       "width %zu, position %zu, %zu", width, at[i], d);
            }
            for (size_t queries = 2; queries <= EXO_DECODE_QUERIES; queries++)
                for (size_t first = 0; first + queries <= 10; first++) {
                    a.queries = queries;
                    for (size_t i = 0; i < a.queries; i++) {
                        a.query[i] = q + (first + i) * width;
                        a.out[i] = together[first + i];
                        a.position[i] = at[first + i];
                        a.slope[i] = alibi ? 0.02f * (float)(first + i + 1) : 0;
                    }
                    exo_decode_attend(&a);
                    for (size_t i = first; i < first + a.queries; i++)
                        cr_assert_arr_eq(together[i], alone[i], width * sizeof(float),
                                         "width %zu, position %zu, %zu queries", width, at[i],
                                         a.queries);
                }
        }
        float *all[] = {q, key, value};
        for (size_t i = 0; i < 3; i++)
            free(all[i]);
        exo_free(keys);
        exo_free(values);
    }
}

/* --- Log-sums --------------------------------------------------------------------------------- */

/* In parts of 256 columns, some of which have no terms. */
Test(generate_kernels, log_sums_are_the_plain_ones)
{
    static const size_t counts[] = {1, 255, 256, 257, 1000};
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++)
        for (int hole = 0; hole < 2; hole++) {
            size_t count = counts[k];
            float *x = numbers_new(count, 1);
            double largest = -INFINITY, sum = 0;
            for (size_t i = 0; i < count; i++)
                x[i] = hole && i < 256 && i + 1 < count ? -INFINITY : 30 * x[i];
            for (size_t i = 0; i < count; i++)
                largest = fmax(largest, 0.7 * (double)x[i]);
            for (size_t i = 0; i < count; i++)
                sum += exp(0.7 * (double)x[i] - largest);
            double want = largest + log(sum), got = exo_softmax_log_sum(x, count, 0.7f);
            cr_expect_float_eq(got, want, 1e-5, "%zu, %d: %g, not %g", count, hole, got, want);
            free(x);
        }
}
