/* Operations: fast kernels against the reference kernels over one table of shapes, in fp32 and
 * bf16. Each test owns its tape. Read next: nn/ref/ref.h; gradcheck.c compares gradients to
 * finite differences. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

#include "nn/ref/ref.h"
#include "support/numbers.h"
#include "support/passes.h"

/* --- Convolution ------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    size_t n, c, h, w, o, r, s, stride, padding;
    bool bias;
} convs[] = {
    {"first layer", 4, 1, 28, 28, 64, 3, 3, 1, 1, true},
    {"hidden layer", 3, 64, 14, 14, 64, 3, 3, 1, 1, true},
    {"more samples than a piece", 33, 8, 6, 6, 16, 3, 3, 1, 1, true},
    {"three pieces and a rest", 97, 2, 4, 4, 3, 3, 3, 1, 1, true},
    {"one sample", 1, 3, 9, 7, 5, 3, 3, 1, 1, false},
    {"no padding", 2, 3, 8, 8, 4, 3, 3, 1, 0, true},
    {"stride 2", 2, 5, 9, 9, 6, 3, 3, 2, 1, true},
    {"stride that leaves a rest", 2, 4, 10, 8, 8, 3, 3, 3, 0, true},
    {"one pixel kernel", 2, 16, 5, 5, 32, 1, 1, 1, 0, false},
    {"oblong kernel", 2, 3, 8, 6, 4, 5, 1, 1, 2, true},
    {"whole image", 2, 3, 4, 4, 7, 4, 4, 1, 0, true},
};

static void
check_conv(size_t i, bool bf16)
{
    exo_ref_conv s = {.batch = convs[i].n,
                      .in_channels = convs[i].c,
                      .height = convs[i].h,
                      .width = convs[i].w,
                      .out_channels = convs[i].o,
                      .kernel_height = convs[i].r,
                      .kernel_width = convs[i].s,
                      .stride = convs[i].stride,
                      .padding = convs[i].padding};
    exo_ref_conv_plan(&s);
    size_t nx = s.batch * s.in_channels * s.height * s.width;
    size_t nw = s.out_channels * s.in_channels * s.kernel_height * s.kernel_width;
    size_t ny = s.batch * s.out_channels * s.out_height * s.out_width;
    float *x = numbers_new(nx, 1), *w = numbers_new(nw, 2), *b = numbers_new(s.out_channels, 3),
          *r = numbers_new(ny, 4);
    float scale = 1.0f / sqrtf((float)(s.in_channels * s.kernel_height * s.kernel_width));
    for (size_t k = 0; k < nw; k++)
        w[k] *= scale;
    float scale_y = 1.0f / sqrtf((float)(s.batch * s.out_height * s.out_width));
    for (size_t k = 0; k < ny; k++)
        r[k] *= scale_y;
    float *want[4] = {malloc(ny * 4), malloc(nx * 4), malloc(nw * 4), malloc(s.out_channels * 4)};
    float *got[4] = {malloc(ny * 4), malloc(nx * 4), malloc(nw * 4), malloc(s.out_channels * 4)};
    exo_ref_conv_forward(&s, x, w, convs[i].bias ? b : NULL, want[0]);
    exo_ref_conv_backward(&s, x, w, r, want[1], want[2], want[3]);

    exo_tape *tape = passes_tape();
    passes_begin(tape, true, bf16);
    exo_tensor *tx =
        exo_tape_variable(tape, 4, (size_t[]){s.batch, s.in_channels, s.height, s.width}, x);
    exo_tensor *tw = exo_tape_variable(
        tape, 4, (size_t[]){s.out_channels, s.in_channels, s.kernel_height, s.kernel_width}, w);
    exo_tensor *tb = convs[i].bias ? exo_tape_variable(tape, 1, &s.out_channels, b) : NULL;
    exo_tensor *y =
        exo_conv2d(tape, tx, tw, tb,
                   &(exo_conv2d_opts){.stride = convs[i].stride, .padding = convs[i].padding});
    passes_backward(tape, y, r, got[0]);
    exo_tensor_grad(tx, got[1]);
    exo_tensor_grad(tw, got[2]);
    PASSES_CLOSE(bf16, got[0], want[0], ny, convs[i].name);
    PASSES_CLOSE(bf16, got[1], want[1], nx, convs[i].name);
    PASSES_CLOSE(bf16, got[2], want[2], nw, convs[i].name);
    if (tb) {
        exo_tensor_grad(tb, got[3]);
        PASSES_CLOSE(bf16, got[3], want[3], s.out_channels, convs[i].name);
    }
    exo_tape_free(&tape);
    for (int k = 0; k < 4; k++) {
        free(want[k]);
        free(got[k]);
    }
    free(x);
    free(w);
    free(b);
    free(r);
}

Test(ops, conv2d_is_the_plain_one)
{
    for (size_t i = 0; i < sizeof convs / sizeof convs[0]; i++) {
        check_conv(i, false);
        if (numbers_bf16_runs())
            check_conv(i, true);
    }
}

/* --- Batch normalization ---------------------------------------------------------------------- */

static const struct {
    size_t n, c, h, w;
} norms[] = {{4, 64, 7, 7}, {33, 3, 5, 4}, {2, 130, 3, 3}, {70, 10, 0, 0}, {2, 1, 1, 2}};

static void
check_norm(size_t i, bool train, bool relu)
{
    size_t n = norms[i].n, c = norms[i].c, area = norms[i].h ? norms[i].h * norms[i].w : 1,
           nx = n * c * area;
    float *x = numbers_new(nx, 5), *gamma = numbers_new(c, 6), *beta = numbers_new(c, 7),
          *r = numbers_new(nx, 8);
    float *mean = numbers_new(c, 9), *var = numbers_new(c, 10);
    for (size_t k = 0; k < nx; k++)
        x[k] = 3 * x[k] + 100; /* the mean is large compared to the deviation */
    for (size_t k = 0; k < c; k++) {
        mean[k] += 100;
        var[k] = 9 + fabsf(var[k]);
    }
    float *want_mean = malloc(c * 4), *want_var = malloc(c * 4), *y = malloc(nx * 4),
          *dy = malloc(nx * 4);
    memcpy(want_mean, mean, c * 4);
    memcpy(want_var, var, c * 4);
    exo_ref_batch_norm_forward(n, c, area, x, gamma, beta, want_mean, want_var, 1e-5f, 0.1f, train,
                               y);
    float *want_y = malloc(nx * 4), *dx = malloc(nx * 4), *dgamma = malloc(c * 4),
          *dbeta = malloc(c * 4);
    memcpy(want_y, y, nx * 4);
    memcpy(dy, r, nx * 4);
    if (relu) {
        exo_ref_relu_forward(nx, y, want_y);
        exo_ref_relu_backward(nx, y, r, dy);
    }
    exo_ref_batch_norm_backward(n, c, area, x, gamma, mean, var, dy, 1e-5f, train, dx, dgamma,
                                dbeta);

    exo_tape *tape = passes_tape();
    passes_begin(tape, train, false);
    const size_t dims[4] = {n, c, norms[i].h, norms[i].w};
    exo_tensor *tx = exo_tape_variable(tape, norms[i].h ? 4 : 2, dims, x);
    exo_tensor *tg = exo_tape_variable(tape, 1, &c, gamma),
               *tb = exo_tape_variable(tape, 1, &c, beta);
    exo_tensor *out = exo_batch_norm(tape, tx, tg, tb, exo_tape_input(tape, EXO_F32, 1, &c, mean),
                                     exo_tape_input(tape, EXO_F32, 1, &c, var),
                                     &(exo_batch_norm_opts){.relu = relu});
    float *got = malloc(nx * 4);
    passes_backward(tape, out, r, got);
    PASSES_CLOSE(0, got, want_y, nx, "batch_norm y");
    exo_tensor_grad(tx, got);
    PASSES_CLOSE(0, got, dx, nx, "batch_norm dx");
    exo_tensor_grad(tg, got);
    PASSES_CLOSE(0, got, dgamma, c, "batch_norm dgamma");
    exo_tensor_grad(tb, got);
    PASSES_CLOSE(0, got, dbeta, c, "batch_norm dbeta");
    PASSES_CLOSE(0, mean, want_mean, c, "running mean");
    PASSES_CLOSE(0, var, want_var, c, "running variance");
    exo_tape_free(&tape);
    float *all[] = {x, gamma, beta,   r,  mean,   var,   want_mean, want_var,
                    y, dy,    want_y, dx, dgamma, dbeta, got};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        free(all[k]);
}

Test(ops, batch_norm_is_the_plain_one)
{
    for (size_t i = 0; i < sizeof norms / sizeof norms[0]; i++)
        for (int mode = 0; mode < 4; mode++)
            check_norm(i, mode & 1, mode & 2);
}

Test(ops, relu_is_the_plain_one)
{
    static const size_t counts[] = {1, 3, 64, 70001};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        size_t n = counts[i];
        float *x = numbers_new(n, 20), *r = numbers_new(n, 21), *y = malloc(n * 4),
              *dx = malloc(n * 4);
        float *got = malloc(n * 4);
        x[0] = 0; /* the gradient at the corner is 0 */
        exo_ref_relu_forward(n, x, y);
        exo_ref_relu_backward(n, x, r, dx);
        exo_tape *tape = passes_tape();
        passes_begin(tape, true, false);
        exo_tensor *tx = exo_tape_variable(tape, 1, &n, x);
        passes_backward(tape, exo_relu(tape, tx), r, got);
        cr_expect_arr_eq(got, y, n * 4);
        exo_tensor_grad(tx, got);
        PASSES_CLOSE(0, got, dx, n, "relu");
        exo_tape_free(&tape);
        float *all[] = {x, r, y, dx, got};
        for (size_t k = 0; k < 5; k++)
            free(all[k]);
    }
}

/* --- Through the layers in bf16 --------------------------------------------------------------- */

/* Gives x in bf16, by a convolution whose weights are the identity. The layers after it run in
 * bf16, and are compared to reference kernels over the same rounded numbers. The weights are powers
 * of two, so that only the layers themselves round. */
static exo_tensor *
to_bf16(exo_tape *tape, exo_tensor *x, size_t channels, float *eye)
{
    for (size_t c = 0; c < channels; c++)
        eye[c * channels + c] = 1;
    exo_tensor *w = exo_tape_input(tape, EXO_F32, 4, (size_t[]){channels, channels, 1, 1}, eye);
    return exo_conv2d(tape, x, w, NULL, NULL);
}

Test(ops, layers_keep_bf16_and_stay_near_the_plain_ones)
{
    enum {
        N = 35,
        C = 6,
        H = 5,
        W = 4,
        COUNT = N * C * H * W,
        POOLED = N * C * (H / 2) * (W / 2)
    };
    if (!numbers_bf16_runs())
        cr_skip("this processor has no bf16");
    float *x = numbers_new(COUNT, 30), *r = numbers_new(COUNT, 31), *gamma = numbers_new(C, 32),
          *beta = numbers_new(C, 33);
    float eye[C * C] = {0}, mean[C] = {0}, var[C] = {0}, want_mean[C] = {0}, want_var[C] = {0};
    float *rounded = malloc(sizeof *x * COUNT), *y = malloc(sizeof *x * COUNT),
          *dy = malloc(sizeof *x * COUNT);
    float *want = malloc(sizeof *x * COUNT), *dx = malloc(sizeof *x * COUNT),
          *got = malloc(sizeof *x * COUNT);
    float dgamma[C], dbeta[C];
    const size_t c = C;
    const size_t dims[4] = {N, C, H, W};

    exo_tape *tape = passes_tape();
    passes_begin(tape, true, true);
    exo_tensor *tx = exo_tape_variable(tape, 4, dims, x);
    exo_tensor *tg = exo_tape_variable(tape, 1, &c, gamma),
               *tb = exo_tape_variable(tape, 1, &c, beta);
    exo_tensor *in = to_bf16(tape, tx, C, eye);
    cr_assert_not_null(in);
    exo_tensor_read(in, rounded);
    exo_tensor *out = exo_batch_norm(tape, in, tg, tb, exo_tape_input(tape, EXO_F32, 1, &c, mean),
                                     exo_tape_input(tape, EXO_F32, 1, &c, var), NULL);
    cr_assert_eq(exo_tensor_dtype(out), EXO_BF16, "activations stay bf16");
    out = exo_relu(tape, out);
    cr_assert_eq(exo_tensor_dtype(out), EXO_BF16);
    passes_backward(tape, out, r, got);

    exo_ref_batch_norm_forward(N, C, H * W, rounded, gamma, beta, want_mean, want_var, 1e-5f, 0.1f,
                               true, y);
    exo_ref_relu_forward(COUNT, y, want);
    exo_ref_relu_backward(COUNT, y, r, dy);
    exo_ref_batch_norm_backward(N, C, H * W, rounded, gamma, mean, var, dy, 1e-5f, true, dx, dgamma,
                                dbeta);
    PASSES_CLOSE(1, got, want, COUNT, "batch_norm and relu");
    exo_tensor_grad(tx, got);
    PASSES_CLOSE(1, got, dx, COUNT, "batch_norm and relu, dx");
    PASSES_CLOSE(0, mean, want_mean, C, "statistics are fp32");
    PASSES_CLOSE(0, var, want_var, C, "statistics are fp32");

    passes_begin(tape, true, true);
    in = to_bf16(tape, tx = exo_tape_variable(tape, 4, dims, x), C, eye);
    exo_tensor *pooled = exo_max_pool2d(tape, in, 2);
    cr_assert_eq(exo_tensor_dtype(pooled), EXO_BF16);
    passes_backward(tape, pooled, r, got);
    exo_ref_max_pool_forward(N * C, H, W, 2, rounded, want);
    exo_ref_max_pool_backward(N * C, H, W, 2, rounded, r, dx);
    cr_expect_eq(numbers_distance(got, want, POOLED), 0, "a maximum does not round");
    exo_tensor_grad(tx, got);
    PASSES_CLOSE(1, got, dx, COUNT, "max_pool2d dx");

    exo_tape_free(&tape);
    float *all[] = {x, r, gamma, beta, rounded, y, dy, want, dx, got};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        free(all[k]);
}

/* --- Pooling, linear, loss -------------------------------------------------------------------- */

Test(ops, max_pool2d_is_the_plain_one)
{
    static const size_t shapes[][5] = {
        {2, 64, 8, 8, 2}, {3, 5, 7, 9, 2}, {1, 70, 9, 9, 3}, {2, 1, 4, 4, 4}, {2, 3, 5, 5, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        size_t n = shapes[i][0], c = shapes[i][1], h = shapes[i][2], w = shapes[i][3],
               size = shapes[i][4];
        size_t nx = n * c * h * w, ny = n * c * (h / size) * (w / size);
        float *x = numbers_new(nx, 11), *r = numbers_new(ny, 12);
        for (size_t k = 0; k < nx; k++)
            x[k] = roundf(x[k]); /* many equal maxima, of which the first one must win */
        float *y = malloc(ny * 4), *dx = malloc(nx * 4), *got = malloc(nx * 4);
        exo_ref_max_pool_forward(n * c, h, w, size, x, y);
        exo_ref_max_pool_backward(n * c, h, w, size, x, r, dx);
        exo_tape *tape = passes_tape();
        passes_begin(tape, true, false);
        exo_tensor *tx = exo_tape_variable(tape, 4, (size_t[]){n, c, h, w}, x);
        passes_backward(tape, exo_max_pool2d(tape, tx, size), r, got);
        cr_expect_eq(numbers_distance(got, y, ny), 0);
        exo_tensor_grad(tx, got);
        PASSES_CLOSE(0, got, dx, nx, "max_pool2d");
        exo_tape_free(&tape);
        float *all[] = {x, r, y, dx, got};
        for (size_t k = 0; k < 5; k++)
            free(all[k]);
    }
}

Test(ops, max_pool2d_keeps_a_nan)
{
    float x[4] = {1, NAN, 3, 2}, y;
    exo_tape *tape = passes_tape();
    passes_begin(tape, true, false);
    exo_tensor *out =
        exo_max_pool2d(tape, exo_tape_variable(tape, 4, (size_t[]){1, 1, 2, 2}, x), 2);
    exo_tensor_read(out, &y);
    cr_expect(isnan(y));
    exo_tape_free(&tape);
}

Test(ops, linear_is_the_plain_one)
{
    static const size_t shapes[][3] = {
        {4, 6, 5}, {1, 1, 1}, {65, 130, 70}, {3, 784, 10}, {128, 9, 64}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int bf16 = 0; bf16 < 1 + numbers_bf16_runs(); bf16++) {
            size_t n = shapes[i][0], d = shapes[i][1], o = shapes[i][2];
            float *x = numbers_new(n * d, 13), *w = numbers_new(o * d, 14), *b = numbers_new(o, 15),
                  *r = numbers_new(n * o, 16);
            for (size_t k = 0; k < o * d; k++)
                w[k] /= sqrtf((float)d);
            for (size_t k = 0; k < n * o; k++)
                r[k] /= sqrtf((float)n);
            float *y = malloc(n * o * 4), *dx = malloc(n * d * 4), *dw = malloc(o * d * 4),
                  *db = malloc(o * 4);
            size_t most = n * d + o * d + n * o;
            float *got = malloc(most * 4);
            exo_ref_linear_forward(n, d, o, x, w, b, y);
            exo_ref_linear_backward(n, d, o, x, w, r, dx, dw, db);
            exo_tape *tape = passes_tape();
            passes_begin(tape, true, bf16);
            exo_tensor *tx = exo_tape_variable(tape, 2, (size_t[]){n, d}, x);
            exo_tensor *tw = exo_tape_variable(tape, 2, (size_t[]){o, d}, w);
            exo_tensor *tb = exo_tape_variable(tape, 1, &o, b);
            passes_backward(tape, exo_linear(tape, tx, tw, tb), r, got);
            PASSES_CLOSE(bf16, got, y, n * o, "linear y");
            exo_tensor_grad(tx, got);
            PASSES_CLOSE(bf16, got, dx, n * d, "linear dx");
            exo_tensor_grad(tw, got);
            PASSES_CLOSE(bf16, got, dw, o * d, "linear dw");
            exo_tensor_grad(tb, got);
            PASSES_CLOSE(bf16, got, db, o, "linear db");
            exo_tape_free(&tape);
            float *all[] = {x, w, b, r, y, dx, dw, db, got};
            for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
                free(all[k]);
        }
    }
}

Test(ops, softmax_cross_entropy_is_the_plain_one)
{
    enum {
        N = 37,
        K = 11
    };
    float *x = numbers_new(N * K, 17), want[N * K], got[N * K];
    int32_t labels[N];
    size_t rows = N;
    for (int i = 0; i < N; i++)
        labels[i] = i % K;
    x[0] = 1e4f; /* exp overflows unless the maximum is subtracted */
    double loss = exo_ref_cross_entropy(N, K, x, labels, want);
    exo_tape *tape = passes_tape();
    passes_begin(tape, true, false);
    exo_tensor *tx = exo_tape_variable(tape, 2, (size_t[]){N, K}, x);
    exo_tensor *out =
        exo_softmax_cross_entropy(tape, tx, exo_tape_input(tape, EXO_I32, 1, &rows, labels));
    cr_assert_not_null(out);
    cr_expect_float_eq((double)exo_tensor_item(out), loss, 1e-5 * (1 + loss));
    cr_assert_eq(exo_tape_backward(tape, out, 1, NULL), EXO_OK);
    exo_tensor_grad(tx, got);
    cr_expect_lt(numbers_distance(got, want, N * K), 1e-6);
    exo_tape_free(&tape);
    free(x);
}

/* --- Dropout ---------------------------------------------------------------------------------- */

Test(ops, dropout_drops_the_asked_share_and_scales_the_rest)
{
    enum {
        COUNT = 100000
    };
    float *x = malloc(COUNT * 4), *y = malloc(COUNT * 4), *dx = malloc(COUNT * 4),
          *want = malloc(COUNT * 4);
    uint8_t *keep = malloc(COUNT);
    for (int i = 0; i < COUNT; i++)
        x[i] = 1;
    exo_tape *tape = passes_tape();
    passes_begin(tape, true, false);
    exo_tensor *tx = exo_tape_variable(tape, 2, (size_t[]){10, COUNT / 10}, x);
    passes_backward(tape, exo_dropout(tape, tx, 0.3f), x, y);
    exo_tensor_grad(tx, dx);
    size_t kept = 0;
    for (int i = 0; i < COUNT; i++)
        kept += keep[i] = y[i] != 0;
    cr_expect_float_eq((double)kept / COUNT, 0.7, 0.01);
    exo_ref_dropout(COUNT, 1, 0.3f, keep, x, want);
    cr_expect_lt(numbers_distance(y, want, COUNT), 1e-6);
    cr_expect_eq(numbers_distance(dx, y, COUNT), 0, "the gradient passes where the value did");

    passes_begin(tape, false, false);
    tx = exo_tape_variable(tape, 2, (size_t[]){10, COUNT / 10}, x);
    cr_expect_eq(exo_dropout(tape, tx, 0.3f), tx, "outside training it is the identity");
    exo_tape_free(&tape);
    free(x);
    free(y);
    free(dx);
    free(want);
    free(keep);
}

Test(ops, dropout2d_drops_whole_channels)
{
    enum {
        N = 50,
        C = 40,
        AREA = 9,
        COUNT = N * C * AREA
    };
    static float x[COUNT], y[COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = 1;
    exo_tape *tape = passes_tape();
    passes_begin(tape, true, false);
    exo_tensor *tx = exo_tape_variable(tape, 4, (size_t[]){N, C, 3, 3}, x);
    passes_backward(tape, exo_dropout2d(tape, tx, 0.25f), x, y);
    size_t kept = 0;
    for (int e = 0; e < N * C; e++) {
        kept += y[e * AREA] != 0;
        for (int i = 1; i < AREA; i++)
            cr_assert_eq(y[e * AREA + i], y[e * AREA]);
    }
    cr_expect_float_eq((double)kept / (N * C), 0.75, 0.04);
    exo_tape_free(&tape);
}

Test(ops, dropout_depends_on_the_pass_and_the_layer)
{
    enum {
        COUNT = 256
    };
    float x[COUNT], first[COUNT], again[COUNT], layer[COUNT], step[COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = 1;
    exo_tape *tape = passes_tape();
    exo_pass pass = {.train = true, .seed = 1, .node = 2, .step = 3};
    for (int round = 0; round < 3; round++) {
        pass.step = round == 2 ? 4 : 3;
        exo_tape_begin(tape, NULL, &pass);
        exo_tensor *tx = exo_tape_input(tape, EXO_F32, 2, (size_t[]){1, COUNT}, x);
        exo_tensor_read(exo_dropout(tape, tx, 0.5f), round == 0   ? first
                                                     : round == 1 ? again
                                                                  : step);
        exo_tensor_read(exo_dropout(tape, tx, 0.5f), layer);
    }
    cr_expect_arr_eq(first, again, sizeof first);
    cr_expect_arr_neq(first, step, sizeof first);
    cr_expect_arr_neq(step, layer, sizeof first);
    exo_tape_free(&tape);
}

/* A layer's place in the pass selects its mask. Places from 2^10 on must not repeat the masks of
 * the first places. */
Test(ops, dropout_does_not_repeat_in_deep_models)
{
    enum {
        COUNT = 256,
        PLACES = 1024
    };
    float x[COUNT], first[COUNT], far[COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = 1;
    exo_tape *tape = passes_tape();
    exo_tape_begin(tape, NULL, &(exo_pass){.train = true, .seed = 1});
    exo_tensor *tx = exo_tape_input(tape, EXO_F32, 2, (size_t[]){1, COUNT}, x);
    exo_tensor_read(exo_dropout(tape, tx, 0.5f), first); /* place 0 */
    for (int place = 1; place < PLACES; place++)
        exo_scale(tape, exo_tape_input(tape, EXO_F32, 1, (size_t[]){1}, x), 2);
    exo_tensor_read(exo_dropout(tape, tx, 0.5f), far); /* place 1024 */
    cr_expect_arr_neq(first, far, sizeof first);
    exo_tape_free(&tape);
}

/* --- Mistakes --------------------------------------------------------------------------------- */

Test(ops, wrong_shapes_are_errors_that_name_them)
{
    static const float x[64] = {0};
    exo_tape *tape = passes_tape();
    exo_err err;
    int32_t label[2] = {0, 7};
    const size_t two = 2;
#define FAILS(expression, word)                                                                    \
    do {                                                                                           \
        passes_begin(tape, true, false);                                                           \
        err = (exo_err){0};                                                                        \
        cr_expect_null(expression);                                                                \
        cr_expect_eq(exo_tape_error(tape, &err), EXO_INVAL, "%s", #expression);                    \
        cr_expect(strstr(err.text, word), "%s: '%s' does not say %s", #expression, err.text,       \
                  word);                                                                           \
        cr_expect_null(exo_relu(tape, NULL), "NULL in, NULL out");                                 \
    } while (0)
#define IN(...)                                                                                    \
    exo_tape_input(tape, EXO_F32, sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t),                \
                   (size_t[]){__VA_ARGS__}, x)
    FAILS(exo_conv2d(tape, IN(1, 2, 4, 4), IN(3, 1, 3, 3), NULL, NULL), "(1, 2, 4, 4)");
    FAILS(exo_conv2d(tape, IN(1, 1, 2, 2), IN(1, 1, 3, 3), NULL, NULL), "smaller");
    FAILS(exo_conv2d(tape, IN(1, 1, 4, 4), IN(2, 1, 3, 3), IN(3), NULL), "bias");
    FAILS(exo_linear(tape, IN(2, 3), IN(4, 5), NULL), "linear");
    FAILS(exo_batch_norm(tape, IN(2, 3), IN(4), IN(4), IN(4), IN(4), NULL), "(3)");
    FAILS(exo_max_pool2d(tape, IN(1, 1, 2, 2), 3), "max_pool2d");
    FAILS(exo_add(tape, IN(2, 3), IN(3, 2)), "(3, 2)");
    FAILS(exo_dropout(tape, IN(2, 2), 1.0f), "probability");
    FAILS(exo_softmax_cross_entropy(tape, IN(2, 3), exo_tape_input(tape, EXO_I32, 1, &two, label)),
          "target 7");
    FAILS(exo_softmax_cross_entropy(tape, IN(3, 3), exo_tape_input(tape, EXO_I32, 1, &two, label)),
          "(3, 3)");
    exo_tape_free(&tape);
}
