/* Layers of a few dozen units against plain formulas in double precision, and the tanh that they use.
 * Each test owns its arrays. Read next: nn/cpu/small_layer.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/cpu/small_layer.h"
#include "nn/cpu/vector_math.h"
#include "support/numbers.h"

enum {
    MOST = 5 * EXO_SMALL_STEP,
    MOST_INPUTS = 65
};

Test(small_layer, tanh_is_that_of_the_library_in_all_its_range)
{
    for (uint32_t i = 0; i < 0x7F800000u; i += 4999) {
        float x;
        memcpy(&x, &i, sizeof x);
        double expected = tanh((double)x), found = (double)exo_vtanh(x);
        cr_assert(fabs(found - expected) <= 2e-7 * expected, "tanh(%g) is %g, not %g", (double)x,
                  found, expected);
        cr_assert(exo_vtanh(-x) == -exo_vtanh(x));
    }
    cr_expect(exo_vtanh(INFINITY) == 1 && exo_vtanh(-INFINITY) == -1);
    cr_expect(isnan(exo_vtanh(NAN)));
    cr_expect(signbit(exo_vtanh(-0.0f)));
}

/* One row through a layer and back. */
struct layer {
    size_t inputs, units;
    float *x, *w, *bias, *d;
};

static void
is_near(double found, double expected, const char *what, size_t i)
{
    cr_assert(fabs(found - expected) < 1e-5 * (1 + fabs(expected)), "%s[%zu] is %g, not %g", what,
              i, found, expected);
}

static void
check_forward(const struct layer *l, float *y)
{
    exo_small_forward(y, l->bias, l->w, l->x, l->inputs, l->units);
    for (size_t k = 0; k < l->units; k++) {
        double sum = (double)l->bias[k];
        for (size_t i = 0; i < l->inputs; i++)
            sum += (double)l->x[i] * (double)l->w[i * l->units + k];
        is_near((double)y[k], tanh(sum), "y", k);
    }
}

static void
check_backward(const struct layer *l, const float *y)
{
    float d[MOST], d_bias[MOST], d_x[MOST_INPUTS], *d_w = numbers_new(l->inputs * l->units, 9);
    float *before = numbers_new(l->inputs * l->units, 9);
    for (size_t k = 0; k < l->units; k++) {
        d[k] = l->d[k];
        d_bias[k] = (float)k;
    }
    exo_small_backward(d, d_bias, d_w, y, l->x, l->inputs, l->units);
    exo_small_backward_input(d_x, l->w, d, l->inputs, l->units);
    for (size_t i = 0; i < l->inputs; i++) {
        double sum = 0;
        for (size_t k = 0; k < l->units; k++) {
            double inner = (double)l->d[k] * (1 - (double)y[k] * (double)y[k]);
            size_t at = i * l->units + k;
            is_near((double)d[k], inner, "d", k);
            is_near((double)d_bias[k], (double)k + inner, "d_bias", k);
            is_near((double)d_w[at], (double)before[at] + (double)l->x[i] * inner, "d_w", at);
            sum += (double)l->w[at] * inner;
        }
        is_near((double)d_x[i], sum, "d_x", i);
    }
    free(d_w);
    free(before);
}

Test(small_layer, forward_and_backward_are_the_formulas)
{
    for (size_t units = EXO_SMALL_STEP; units <= MOST; units += EXO_SMALL_STEP)
        for (size_t inputs = 1; inputs <= MOST_INPUTS; inputs += 8) {
            struct layer l = {.inputs = inputs,
                              .units = units,
                              .x = numbers_new(inputs, 1),
                              .w = numbers_new(inputs * units, 2),
                              .bias = numbers_new(units, 3),
                              .d = numbers_new(units, 4)};
            float y[MOST];
            check_forward(&l, y);
            check_backward(&l, y);
            free(l.x);
            free(l.w);
            free(l.bias);
            free(l.d);
        }
}

Test(small_layer, a_product_adds_its_partial_sums_in_pairs)
{
    float a[2 * EXO_SMALL_STEP], b[2 * EXO_SMALL_STEP], sums[EXO_SMALL_STEP];
    float *numbers = numbers_new(4 * EXO_SMALL_STEP, 5);
    memcpy(a, numbers, sizeof a);
    memcpy(b, numbers + 2 * EXO_SMALL_STEP, sizeof b);
    for (size_t k = 0; k < EXO_SMALL_STEP; k++)
        sums[k] = a[k] * b[k] + a[k + EXO_SMALL_STEP] * b[k + EXO_SMALL_STEP];
    for (size_t width = EXO_SMALL_STEP / 2; width > 0; width /= 2)
        for (size_t k = 0; k < width; k++)
            sums[k] += sums[k + width];
    cr_expect(exo_small_product(a, b, 2 * EXO_SMALL_STEP) == sums[0]);
    free(numbers);
}
