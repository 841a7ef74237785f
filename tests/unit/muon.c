/* Muon: the numbers of its rule, orthogonal updates, the parameters that AdamW takes, both rates,
 * shards, checkpoints, devices, options, and training. Each test owns its optimizers. Read next:
 * include/exogym/optim.h; tests/golden/muon.py, which made the expected numbers. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/exogym.h>
#include <exogym/memory.h>
#include <exogym/strategy.h>

#include "../golden/muon_golden.h"
#include "../golden/torch_muon_golden.h"
#include "base/memory_fault.h"
#include "nn/ref/ref_device.h"
#include "support/far_device.h"
#include "support/numbers.h"
#include "support/points.h"

static exo_status
read_spec(const char *text, exo_optim_spec *spec, exo_err *err)
{
    const exo_optim_spec adamw = exo_optim_spec_init(EXO_ADAMW);
    exo_config_doc *doc = NULL;
    exo_status st = exo_config_parse(&doc, "job.yaml", text, err);
    if (st == EXO_OK)
        st = exo_optim_spec_read_groups(exo_config_root(doc), "optimizer", &adamw, spec, err);
    exo_config_free(&doc);
    return st;
}

static exo_optim_spec
spec_of(const char *options)
{
    char text[512];
    exo_err err = {0};
    exo_optim_spec spec;
    snprintf(text, sizeof text, "optimizer: %s", options);
    cr_assert_eq(read_spec(text, &spec, &err), EXO_OK, "%s", err.text);
    return spec;
}

/* An optimizer of the elements [first, first + numel) of these parameters. */
static exo_optim *
optim_of(const char *options, const exo_param_info *infos, size_t num_infos, exo_device *device,
         size_t first, size_t numel)
{
    exo_err err = {0};
    exo_optim *optim = NULL;
    exo_optim_spec spec = spec_of(options);
    cr_assert_eq(exo_optim_new_grouped(&optim, &spec, infos, num_infos, device, first, numel, &err),
                 EXO_OK, "%s", err.text);
    exo_optim_spec_release(&spec);
    return optim;
}

static exo_param_info
matrix_info(size_t rows, size_t cols)
{
    return (exo_param_info){
        .name = "weight", .num_dims = 2, .dims = {rows, cols}, .numel = rows * cols};
}

static void
take_step(exo_optim *optim, float *params, const float *grads, size_t numel, float lr)
{
    exo_err err = {0};
    exo_optim_step(optim, numbers_array(params, numel), numbers_array(grads, numel), lr);
    cr_assert_eq(exo_optim_result(optim, &err), EXO_OK, "%s", err.text);
}

/* Steps one matrix from `params` with the same gradient `steps` times. */
static void
steps_of_matrix(const char *options, size_t rows, size_t cols, float *params, const float *grads,
                int steps)
{
    const exo_param_info info = matrix_info(rows, cols);
    exo_optim_spec spec = spec_of(options);
    exo_optim *optim = optim_of(options, &info, 1, exo_device_cpu(), 0, info.numel);
    for (int step = 0; step < steps; step++)
        take_step(optim, params, grads, info.numel, spec.lr);
    exo_optim_free(&optim);
}

/* --- The rule --------------------------------------------------------------------------------- */

/* The expected numbers are in double. The iteration multiplies rounding errors by its largest
 * slope, 3.4, in each of five steps. */
static void
expect_golden(const exo_device *device, size_t c, const float *got, const float *want, double lr)
{
    size_t n = muon_cases[c].rows * muon_cases[c].cols;
    for (size_t i = 0; i < n; i++)
        cr_expect(fabs((double)got[i] - (double)want[i]) <=
                      5e-5 * lr + 4e-7 * fabs((double)want[i]),
                  "%s on %s: element %zu is %.9g, expected %.9g", muon_cases[c].options,
                  exo_device_name(device), i, (double)got[i], (double)want[i]);
}

static void
expect_case(size_t c, exo_device *device)
{
    const exo_param_info info = matrix_info(muon_cases[c].rows, muon_cases[c].cols);
    exo_optim_spec spec = spec_of(muon_cases[c].options);
    exo_optim *optim = optim_of(muon_cases[c].options, &info, 1, device, 0, info.numel);
    float now[MUON_MOST];
    exo_array params, grads;
    cr_assert_eq(exo_array_init(&params, device, EXO_F32, info.numel, NULL), EXO_OK);
    cr_assert_eq(exo_array_init(&grads, device, EXO_F32, info.numel, NULL), EXO_OK);
    cr_assert_eq(exo_array_write(params, muon_start[0], NULL), EXO_OK);
    for (size_t step = 0; step < MUON_STEPS; step++) {
        cr_assert_eq(exo_array_write(grads, muon_grads[step], NULL), EXO_OK);
        exo_optim_step(optim, params, grads, spec.lr);
        cr_assert_eq(exo_array_read(params, now, NULL), EXO_OK);
        if (step == 0)
            expect_golden(device, c, now, muon_params[2 * c], (double)spec.lr);
    }
    expect_golden(device, c, now, muon_params[2 * c + 1], (double)spec.lr);
    exo_array_release(&params);
    exo_array_release(&grads);
    exo_optim_free(&optim);
}

/* The largest difference of the matrix after all steps from `want`, divided by lr and the number of
 * steps: an error of the orthogonal matrix, whose numbers are about 1 / sqrt(longer side). */
static double
distance_of_updates(size_t c, const float *want)
{
    const exo_param_info info = matrix_info(muon_cases[c].rows, muon_cases[c].cols);
    exo_optim_spec spec = spec_of(muon_cases[c].options);
    exo_optim *optim = optim_of(muon_cases[c].options, &info, 1, exo_device_cpu(), 0, info.numel);
    float params[MUON_MOST], grads[MUON_MOST];
    double largest = 0;
    memcpy(params, muon_start[0], sizeof params);
    for (size_t step = 0; step < MUON_STEPS; step++) {
        memcpy(grads, muon_grads[step], sizeof grads);
        exo_optim_step(optim, exo_host_array(EXO_F32, params, info.numel),
                       exo_host_array(EXO_F32, grads, info.numel), spec.lr);
    }
    for (size_t i = 0; i < info.numel; i++)
        largest = fmax(largest,
                       fabs((double)params[i] - (double)want[i]) / ((double)spec.lr * MUON_STEPS));
    exo_optim_free(&optim);
    return largest;
}

/* torch.optim.Muon with its iteration in fp32. The parameters, of up to 2, are rounded to fp32 in
 * each step: 1.2e-7 of lr 1e-3 is 1.2e-4. */
Test(muon, has_the_numbers_of_pytorchs_optimizer_in_fp32)
{
    for (size_t c = 0; c < MUON_CASES; c++)
        cr_expect_leq(distance_of_updates(c, torch_muon_fp32[c]), 1.2e-4, "%s: %g",
                      muon_cases[c].options, distance_of_updates(c, torch_muon_fp32[c]));
}

/* As it is, PyTorch rounds each product of the iteration to bf16, by up to 2^-8 = 0.004 of it. The
 * iteration multiplies that by up to 3.4, its slope at small singular values, and the rate by up to
 * 2.6 = sqrt(20 / 3). */
Test(muon, has_the_numbers_of_pytorchs_optimizer_up_to_bf16)
{
    for (size_t c = 0; c < MUON_CASES; c++)
        cr_expect_leq(distance_of_updates(c, torch_muon_bf16[c]), 0.05, "%s: %g",
                      muon_cases[c].options, distance_of_updates(c, torch_muon_bf16[c]));
}

Test(muon, gives_the_numbers_of_the_rule_on_each_device)
{
    for (size_t c = 0; c < MUON_CASES; c++) {
        exo_device *far = far_device_new();
        expect_case(c, exo_device_cpu());
        expect_case(c, exo_device_ref());
        expect_case(c, far);
        far_device_free(&far);
    }
}

/* y = H x for each column of x (size, cols), with the reflection H = I - 2 v v^T / v^T v, which is
 * orthogonal and its own inverse. */
static void
reflect(size_t size, size_t cols, uint64_t seed, double *x)
{
    float *v = numbers_new(size, seed);
    double square = 0;
    for (size_t i = 0; i < size; i++)
        square += (double)v[i] * (double)v[i];
    for (size_t c = 0; c < cols; c++) {
        double along = 0;
        for (size_t i = 0; i < size; i++)
            along += (double)v[i] * x[i * cols + c];
        for (size_t i = 0; i < size; i++)
            x[i * cols + c] -= 2 * along / square * (double)v[i];
    }
    free(v);
}

static void
transpose(size_t rows, size_t cols, const double *x, double *y)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            y[c * rows + r] = x[r * cols + c];
}

/* x = H1 x H2 for x (rows, cols). */
static void
rotate(size_t rows, size_t cols, double *x)
{
    double *other = exo_calloc(rows * cols, sizeof *other);
    reflect(rows, cols, 1, x);
    transpose(rows, cols, x, other);
    reflect(cols, rows, 2, other);
    transpose(cols, rows, other, x);
    exo_free(other);
}

/* A gradient H1 D H2 with known singular values D gives an update with the same singular vectors,
 * so H1 U H2 is diagonal and has the singular values of the update. */
static void
expect_orthogonal(size_t rows, size_t cols)
{
    size_t side = rows < cols ? rows : cols, n = rows * cols;
    double *x = exo_calloc(n, sizeof *x);
    float *grads = exo_calloc(n, sizeof *grads), *params = exo_calloc(n, sizeof *params);
    for (size_t i = 0; i < side; i++)
        x[i * cols + i] = 10.0 / (1.0 + (double)i);
    rotate(rows, cols, x);
    for (size_t i = 0; i < n; i++)
        grads[i] = (float)x[i];
    steps_of_matrix("{name: muon, lr: 1, weight_decay: 0}", rows, cols, params, grads, 1);
    double ratio = sqrt(fmax(1.0, (double)rows / (double)cols));
    for (size_t i = 0; i < n; i++)
        x[i] = -(double)params[i] / ratio;
    rotate(rows, cols, x);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) {
            double got = x[r * cols + c];
            if (r == c)
                cr_expect(got > 0.65 && got < 1.25, "%zu x %zu: singular value %zu is %g", rows,
                          cols, r, got);
            else
                cr_expect(fabs(got) < 1e-4, "%zu x %zu: (%zu, %zu) is %g", rows, cols, r, c, got);
        }
    exo_free(x);
    exo_free(grads);
    exo_free(params);
}

Test(muon, updates_have_singular_values_near_1)
{
    expect_orthogonal(16, 16);
    expect_orthogonal(20, 90);
    expect_orthogonal(90, 20);
    expect_orthogonal(1, 7);
    expect_orthogonal(7, 1);
}

/* The length of an update of all rows: |U| is about sqrt(min(rows, cols)). */
Test(muon, the_rate_follows_the_shape)
{
    static const size_t shapes[][2] = {{32, 8}, {8, 32}, {10, 10}};
    for (size_t s = 0; s < 3; s++) {
        size_t rows = shapes[s][0], cols = shapes[s][1], n = rows * cols;
        float *grads = numbers_new(n, 5), *plain = exo_calloc(n, sizeof *plain),
              *matched = exo_calloc(n, sizeof *matched);
        steps_of_matrix("{name: muon, lr: 1, weight_decay: 0, adjust_lr_fn: original}", rows, cols,
                        plain, grads, 1);
        steps_of_matrix("{name: muon, lr: 1, weight_decay: 0, adjust_lr_fn: match_rms_adamw}", rows,
                        cols, matched, grads, 1);
        double a = (double)rows, b = (double)cols,
               ratio = 0.2 * sqrt(fmax(a, b)) / sqrt(fmax(1.0, a / b));
        for (size_t i = 0; i < n; i++)
            cr_expect(fabs((double)matched[i] - ratio * (double)plain[i]) < 1e-5, "%zu x %zu", rows,
                      cols);
        free(grads);
        exo_free(plain);
        exo_free(matched);
    }
}

Test(muon, a_gradient_of_zeros_only_decays_the_matrix)
{
    float params[6] = {1, 2, 3, 4, 5, 6}, grads[6] = {0};
    steps_of_matrix("{name: muon, lr: 0.5, weight_decay: 0.5}", 2, 3, params, grads, 1);
    for (int i = 0; i < 6; i++)
        cr_expect_eq(params[i], 0.75f * (float)(i + 1));
}

Test(muon, any_number_of_threads_gives_the_same_bits)
{
    static const size_t shapes[][2] = {{300, 200}, {130, 700}};
    for (size_t s = 0; s < 2; s++) {
        size_t n = shapes[s][0] * shapes[s][1];
        float *grads = numbers_new(n, 2), *one = numbers_new(n, 1), *three = numbers_new(n, 1);
        exo_set_num_threads(1);
        steps_of_matrix("{name: muon, lr: 0.02}", shapes[s][0], shapes[s][1], one, grads, 2);
        exo_set_num_threads(3);
        steps_of_matrix("{name: muon, lr: 0.02}", shapes[s][0], shapes[s][1], three, grads, 2);
        cr_expect_arr_eq(one, three, n * sizeof *one, "%zu x %zu", shapes[s][0], shapes[s][1]);
        free(grads);
        free(one);
        free(three);
    }
}

/* --- Which rule for which parameter ----------------------------------------------------------- */

/* A small model: embedding, two hidden matrices, of which one is a convolution, vectors, a
 * statistic, a frozen matrix and the head. */
static const exo_param_info infos[] = {
    {.name = "embed",
     .num_dims = 2,
     .dims = {30, 10},
     .numel = 300,
     .offset = 0,
     .at_boundary = true},
    {.name = "a.weight", .num_dims = 2, .dims = {20, 10}, .numel = 200, .offset = 300},
    {.name = "a.bias", .num_dims = 1, .dims = {20}, .numel = 20, .offset = 500},
    {.name = "mean", .num_dims = 1, .dims = {20}, .numel = 20, .offset = 0, .is_buffer = true},
    {.name = "conv", .num_dims = 4, .dims = {6, 5, 3, 2}, .numel = 180, .offset = 520},
    {.name = "cold",
     .num_dims = 2,
     .dims = {4, 5},
     .numel = 20,
     .offset = 20,
     .is_buffer = true,
     .frozen = true},
    {.name = "b.weight", .num_dims = 2, .dims = {20, 10}, .numel = 200, .offset = 700},
    {.name = "head",
     .num_dims = 2,
     .dims = {30, 10},
     .numel = 300,
     .offset = 900,
     .at_boundary = true},
};
enum {
    NUM_INFOS = sizeof infos / sizeof *infos,
    NUMEL = 1200,
    STEPS = 3
};

/* What a parameter is expected to be after STEPS steps with one rule of its own. */
static void
step_alone(const exo_param_info *info, const char *rule, float lr, float *params,
           const float *grads)
{
    exo_param_info whole = *info;
    whole.offset = 0;
    whole.at_boundary = false;
    exo_optim *optim = optim_of(rule, &whole, 1, exo_device_cpu(), 0, info->numel);
    for (int step = 0; step < STEPS; step++)
        take_step(optim, params + info->offset, grads + info->offset, info->numel, lr);
    exo_optim_free(&optim);
}

static void
expect_rules(const char *options, float lr, const char *const rule[NUM_INFOS],
             const float rate[NUM_INFOS])
{
    float *grads = numbers_new(NUMEL, 2), *together = numbers_new(NUMEL, 1),
          *apart = numbers_new(NUMEL, 1);
    exo_optim *all = optim_of(options, infos, NUM_INFOS, exo_device_cpu(), 0, NUMEL);
    for (int step = 0; step < STEPS; step++)
        take_step(all, together, grads, NUMEL, lr);
    exo_optim_free(&all);
    for (size_t i = 0; i < NUM_INFOS; i++) {
        if (infos[i].is_buffer)
            continue;
        step_alone(&infos[i], rule[i], rate[i], apart, grads);
        cr_expect_arr_eq(together + infos[i].offset, apart + infos[i].offset,
                         infos[i].numel * sizeof *apart, "%s: %s", options, infos[i].name);
    }
    free(grads);
    free(together);
    free(apart);
}

#define LR        0.015625f /* a power of 2, as the other rates: their quotients are exact */
#define REST_RATE 0.0078125f

Test(muon, adamw_takes_vectors_embeddings_and_the_head)
{
    const char *muon = "{name: muon, weight_decay: 0.2}",
               *rest = "{name: adamw, betas: [0.8, 0.9]}";
    expect_rules("{name: muon, lr: 0.015625, weight_decay: 0.2, adamw: {lr: 0.0078125, betas: "
                 "[0.8, 0.9]}}",
                 LR, (const char *const[]){rest, muon, rest, NULL, muon, NULL, muon, rest},
                 (const float[]){REST_RATE, LR, REST_RATE, 0, LR, 0, LR, REST_RATE});
}

Test(muon, matrices_says_which_ones)
{
    const char *muon = "muon", *rest = "adamw";
    expect_rules("{name: muon, lr: 0.015625, matrices: all, adamw: {lr: 0.0078125}}", LR,
                 (const char *const[]){muon, muon, rest, NULL, muon, NULL, muon, muon},
                 (const float[]){LR, LR, REST_RATE, 0, LR, 0, LR, LR});
    expect_rules("{name: muon, lr: 0.015625, adamw: {lr: 0.0078125}, groups: [{match: conv, "
                 "matrices: none}, {match: head, matrices: all, lr: 0.03125, momentum: 0.5}, "
                 "{max_dims: 1, adamw: {weight_decay: 0}}]}",
                 LR,
                 (const char *const[]){rest, muon, "{name: adamw, weight_decay: 0}", NULL, rest,
                                       NULL, muon, "{name: muon, momentum: 0.5}"},
                 (const float[]){REST_RATE, LR, REST_RATE, 0, REST_RATE, 0, LR, 0.03125f});
}

Test(muon, a_schedule_holds_for_adamw_too)
{
    float *grads = numbers_new(NUMEL, 2), *half = numbers_new(NUMEL, 1),
          *given = numbers_new(NUMEL, 1);
    exo_optim *a = optim_of("{name: muon, lr: 0.5, adamw: {lr: 0.25}}", infos, NUM_INFOS,
                            exo_device_cpu(), 0, NUMEL);
    exo_optim *b = optim_of("{name: muon, lr: 0.25, adamw: {lr: 0.125}}", infos, NUM_INFOS,
                            exo_device_cpu(), 0, NUMEL);
    take_step(a, half, grads, NUMEL, 0.25f);
    take_step(b, given, grads, NUMEL, 0.25f);
    cr_expect_arr_eq(half, given, NUMEL * sizeof *half);
    exo_optim_free(&a);
    exo_optim_free(&b);
    free(grads);
    free(half);
    free(given);
}

Test(muon, a_gradient_that_is_not_a_number_stays_in_its_matrix)
{
    float *grads = numbers_new(NUMEL, 2), *params = numbers_new(NUMEL, 1);
    exo_optim *optim = optim_of("muon", infos, NUM_INFOS, exo_device_cpu(), 0, NUMEL);
    grads[301] = NAN;
    take_step(optim, params, grads, NUMEL, 0.01f);
    for (size_t i = 0; i < NUMEL; i++)
        cr_expect_eq(isnan(params[i]) != 0, i >= 300 && i < 500, "element %zu", i);
    exo_optim_free(&optim);
    free(grads);
    free(params);
}

/* --- Shards ----------------------------------------------------------------------------------- */

Test(muon, a_shard_of_whole_matrices_gives_the_bits_of_the_whole)
{
    static const size_t cuts[] = {0, 100, 300, 510, 520, 900, 1150, NUMEL};
    float *grads = numbers_new(NUMEL, 2), *whole = numbers_new(NUMEL, 1),
          *parts = numbers_new(NUMEL, 1);
    exo_optim *all = optim_of("muon", infos, NUM_INFOS, exo_device_cpu(), 0, NUMEL);
    for (int step = 0; step < STEPS; step++)
        take_step(all, whole, grads, NUMEL, 0.01f);
    for (size_t p = 0; p + 1 < sizeof cuts / sizeof *cuts; p++) {
        size_t first = cuts[p], count = cuts[p + 1] - first;
        exo_optim *part = optim_of("muon", infos, NUM_INFOS, exo_device_cpu(), first, count);
        for (int step = 0; step < STEPS; step++)
            take_step(part, parts + first, grads + first, count, 0.01f);
        exo_optim_free(&part);
    }
    cr_expect_arr_eq(whole, parts, NUMEL * sizeof *whole);
    exo_optim *empty = optim_of("muon", infos, NUM_INFOS, exo_device_cpu(), 400, 0);
    exo_optim_free(&empty);
    exo_optim_free(&all);
    free(grads);
    free(whole);
    free(parts);
}

Test(muon, a_shard_that_cuts_a_matrix_is_refused)
{
    static const size_t cut[][2] = {{0, 400}, {400, 800}, {350, 10}};
    const exo_optim_spec spec = exo_optim_spec_init(EXO_MUON);
    exo_optim *optim = NULL;
    exo_err err = {0};
    for (size_t i = 0; i < 3; i++) {
        cr_expect_eq(exo_optim_new_grouped(&optim, &spec, infos, NUM_INFOS, exo_device_cpu(),
                                           cut[i][0], cut[i][1], &err),
                     EXO_INVAL);
        cr_expect_not_null(strstr(err.text, "a.weight"), "%s", err.text);
    }
    cr_expect_eq(exo_optim_new(&optim, &spec, exo_device_cpu(), 10, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "shapes"), "%s", err.text);
    cr_expect_null(optim);
}

/* The gathering of a shard's unit, with one member. */
struct gathering {
    size_t calls;
    bool fails;
};

static exo_status
gather(void *context, exo_array unit, exo_err *err)
{
    struct gathering *g = context;
    g->calls++;
    cr_expect_eq(unit.count, NUMEL);
    return g->fails ? exo_fail(err, EXO_PEER_LOST, "member 1 is gone") : EXO_OK;
}

/* Elements [first, first + count) of the unit of all elements. */
static exo_optim *
shard_of(struct gathering *g, size_t first, size_t count)
{
    const exo_optim_spec spec = exo_optim_spec_init(EXO_MUON);
    const exo_optim_unit unit = {.count = NUMEL, .gather = gather, .context = g};
    exo_optim *optim = NULL;
    exo_err err = {0};
    exo_status st = exo_optim_new_sharded(&optim, &spec, infos, NUM_INFOS, NULL, &unit,
                                          exo_device_cpu(), first, count, &err);
    cr_assert_eq(st, EXO_OK, "%s", err.text);
    return optim;
}

Test(muon, a_shard_of_all_has_the_bits_of_the_whole_and_one_of_nothing_gathers)
{
    struct gathering g = {0};
    float *grads = numbers_new(NUMEL, 2), *whole = numbers_new(NUMEL, 1),
          *shard = numbers_new(NUMEL, 1);
    exo_optim *all = optim_of("muon", infos, NUM_INFOS, exo_device_cpu(), 0, NUMEL);
    exo_optim *one = shard_of(&g, 0, NUMEL), *none = shard_of(&g, 150, 0);
    for (int step = 0; step < STEPS; step++) {
        take_step(all, whole, grads, NUMEL, 0.01f);
        take_step(one, shard, grads, NUMEL, 0.01f);
        take_step(none, shard, grads, 0, 0.01f);
    }
    cr_expect_arr_eq(whole, shard, NUMEL * sizeof *whole);
    cr_expect_eq(g.calls, 2 * STEPS);
    exo_optim_free(&all);
    exo_optim_free(&one);
    exo_optim_free(&none);
    free(grads);
    free(whole);
    free(shard);
}

Test(muon, a_step_of_a_shard_tells_of_a_lost_member_and_of_lacks_of_memory)
{
    struct gathering g = {.fails = true};
    float *grads = numbers_new(NUMEL, 2), *params = numbers_new(NUMEL, 1);
    exo_err err = {0};
    exo_optim *optim = shard_of(&g, 100, 300);
    for (int step = 0; step < 2; step++) {
        exo_optim_step(optim, numbers_array(params, 300), numbers_array(grads, 300), 0.01f);
        cr_expect_eq(exo_optim_result(optim, &err), EXO_PEER_LOST);
        cr_expect_str_eq(err.text, "member 1 is gone");
    }
    cr_expect_eq(g.calls, 1, "the other members may be at another unit");
    exo_optim_free(&optim);
    exo_status st = EXO_NOMEM;
    uint64_t n = 0;
    g.fails = false;
    while (st != EXO_OK) {
        optim = shard_of(&g, 100, 300);
        exo_memory_fail_at(++n);
        exo_optim_step(optim, numbers_array(params, 300), numbers_array(grads, 300), 0.01f);
        exo_memory_fail_at(0);
        st = exo_optim_result(optim, &err);
        cr_assert(st == EXO_OK || (st == EXO_NOMEM && err.text[0]), "%s", err.text);
        exo_optim_free(&optim);
    }
    cr_expect_geq(n, 3); /* the unit, the update, scratch */
    free(grads);
    free(params);
}

/* --- Options ---------------------------------------------------------------------------------- */

Test(muon, options_default_to_pytorchs)
{
    exo_optim_spec spec = spec_of("muon");
    cr_expect_eq(spec.kind, EXO_MUON);
    cr_expect_eq(spec.lr, 1e-3f);
    cr_expect_eq(spec.weight_decay, 0.1);
    cr_expect_eq(spec.momentum, 0.95);
    cr_expect(spec.nesterov);
    cr_expect_eq(spec.ns_steps, 5);
    cr_expect_eq(spec.eps, 1e-7);
    cr_expect_eq(spec.adjust_lr, EXO_MUON_ORIGINAL);
    cr_expect_eq(spec.matrices, EXO_MUON_HIDDEN);
    cr_expect_eq(spec.adamw.lr, 1e-3f);
    cr_expect_eq(spec.adamw.weight_decay, 1e-2);
}

Test(muon, mistakes_are_named_with_their_place)
{
    static const struct {
        const char *text, *place, *reason;
    } cases[] = {
        {"optimizer: {name: muon, betas: [0.9, 0.9]}", "job.yaml:1:25", "betas"},
        {"optimizer: {name: muon, momentum: 1}", "job.yaml:1:12", "less than 1"},
        {"optimizer: {name: muon, eps: 0}", "job.yaml:1:12", "above 0"},
        {"optimizer: {name: muon, ns_steps: 0}", "job.yaml:1:35", "ns_steps"},
        {"optimizer: {name: muon, ns_steps: 100}", "job.yaml:1:35", "ns_steps"},
        {"optimizer: {name: muon, ns_coefficients: [1, 2]}", "job.yaml:1:42", "three numbers"},
        {"optimizer: {name: muon, ns_coefficients: [1, 2, x]}", "job.yaml:1:49", "a number"},
        {"optimizer: {name: muon, adjust_lr_fn: none}", "job.yaml:1:39", "match_rms_adamw"},
        {"optimizer: {name: muon, matrices: some}", "job.yaml:1:35", "hidden"},
        {"optimizer: {name: muon, adamw: 3}", "job.yaml:1:32", "mapping"},
        {"optimizer: {name: muon, adamw: {momentum: 0.9}}", "job.yaml:1:33", "momentum"},
        {"optimizer: {name: muon, adamw: {betas: [0.9, 1]}}", "job.yaml:1:46", "less than 1"},
        {"optimizer: {name: muon, lr: 0}", "job.yaml:1:12", "which is 0"},
        {"optimizer: {name: adamw, ns_steps: 5}", "job.yaml:1:26", "ns_steps"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_err err = {0};
        exo_optim_spec spec = {.lr = 123};
        cr_expect_eq(read_spec(cases[i].text, &spec, &err), EXO_INVAL, "%s", cases[i].text);
        cr_expect(strstr(err.text, cases[i].place) && strstr(err.text, cases[i].reason),
                  "'%s' gave '%s'", cases[i].text, err.text);
        cr_expect_eq(spec.lr, 123.0f, "*out stays as it was");
    }
}

Test(muon, an_outer_optimizer_refuses_it_with_its_place)
{
    static const char *const texts[] = {"{outer_optimizer: {name: muon}}",
                                        "{outer_optimizer: muon}"},
                             *const places[] = {"diloco:1:26", "diloco:1:19"};
    for (size_t i = 0; i < 2; i++) {
        exo_strategy *strategy = NULL;
        exo_err err = {0};
        cr_expect_eq(exo_strategy_parse(&strategy, "diloco", texts[i], &err), EXO_INVAL);
        cr_expect(strstr(err.text, places[i]) && strstr(err.text, "shapes"), "%s", err.text);
        cr_expect_null(strategy);
    }
}

Test(muon, a_model_without_hidden_matrices_is_an_error)
{
    exo_optim_spec hidden = exo_optim_spec_init(EXO_MUON), all = hidden;
    exo_err err = {0};
    all.matrices = EXO_MUON_ALL;
    cr_expect_eq(exo_optim_groups_check(&hidden, infos, NUM_INFOS, &err), EXO_OK);
    cr_expect_eq(exo_optim_groups_check(&hidden, infos, 1, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "matrices: all"), "%s", err.text);
    cr_expect_eq(exo_optim_groups_check(&all, infos, 1, &err), EXO_OK);
}

/* Backward hands over parts of a matrix. */
Test(muon, backward_does_not_take_its_steps)
{
    exo_strategy *plain = NULL, *muon = NULL, *muloco = NULL;
    cr_assert_eq(exo_strategy_parse(&plain, "diloco", "{}", NULL), EXO_OK);
    cr_assert_eq(exo_strategy_parse(&muon, "diloco", "{optimizer: muon}", NULL), EXO_OK);
    cr_assert_eq(exo_strategy_parse(&muloco, "muloco", "{}", NULL), EXO_OK);
    cr_expect(exo_strategy_steps_alone(plain, 2));
    cr_expect(!exo_strategy_steps_alone(muon, 2));
    cr_expect(!exo_strategy_steps_alone(muloco, 2));
    exo_strategy_free(&plain);
    exo_strategy_free(&muon);
    exo_strategy_free(&muloco);
}

Test(muon, models_name_their_boundaries)
{
    static const struct {
        const char *model, *options, *boundaries;
    } cases[] = {
        {"mlp", "{hidden: [8, 9]}", "fc3.weight "},
        {"mnist_cnn", "{}", "fc2.weight "},
        {"gpt", "{layers: 1, heads: 1, width: 4, vocabulary: 7, context: 8}",
         "embedding.weight position.weight "},
        {"gpt",
         "{layers: 1, heads: 1, width: 4, vocabulary: 7, context: 8, position: rotary, tied: "
         "false, "
         "head_width: 4}",
         "embedding.weight head.weight "},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        exo_config_doc *doc = NULL;
        exo_model *model = NULL;
        exo_err err = {0};
        char names[128] = "";
        cr_assert_eq(exo_config_parse(&doc, "job.yaml", cases[c].options, &err), EXO_OK);
        cr_assert_eq(exo_model_new_named(&model, cases[c].model, exo_config_root(doc), &err),
                     EXO_OK, "%s", err.text);
        for (size_t i = 0; i < exo_model_num_infos(model); i++)
            if (exo_model_infos(model)[i].at_boundary)
                strcat(strcat(names, exo_model_infos(model)[i].name), " ");
        cr_expect_str_eq(names, cases[c].boundaries);
        exo_model_drop(&model);
        exo_config_free(&doc);
    }
}

/* --- Checkpoints, memory and faults ----------------------------------------------------------- */

static exo_status
through_file(exo_optim *optim, const char *path,
             exo_status (*how)(exo_state *, const char *, exo_err *))
{
    exo_err err = {0};
    exo_state *state = NULL;
    cr_assert_eq(exo_state_new(&state, &err), EXO_OK);
    exo_optim_state(optim, "optim", state);
    exo_status st = how(state, path, &err);
    exo_state_free(&state);
    return st;
}

Test(muon, goes_on_from_a_checkpoint_with_the_same_bits)
{
    char path[] = "/tmp/exogym-muon-XXXXXX";
    int file = mkstemp(path);
    cr_assert_geq(file, 0);
    close(file);
    float *grads = numbers_new(NUMEL, 2), *whole = numbers_new(NUMEL, 1), resumed[NUMEL];
    exo_optim *a = optim_of("muon", infos, NUM_INFOS, exo_device_cpu(), 0, NUMEL),
              *b = optim_of("muon", infos, NUM_INFOS, exo_device_cpu(), 0, NUMEL);
    for (int step = 0; step < 2; step++)
        take_step(a, whole, grads, NUMEL, 0.01f);
    cr_assert_eq(through_file(a, path, exo_state_save), EXO_OK);
    memcpy(resumed, whole, sizeof resumed);
    cr_assert_eq(through_file(b, path, exo_state_load), EXO_OK);
    for (int step = 0; step < 2; step++) {
        take_step(a, whole, grads, NUMEL, 0.01f);
        take_step(b, resumed, grads, NUMEL, 0.01f);
    }
    cr_expect_arr_eq(whole, resumed, sizeof resumed);
    unlink(path);
    exo_optim_free(&a);
    exo_optim_free(&b);
    free(grads);
    free(whole);
}

/* One number for an element of a matrix, two for every other element. */
Test(muon, its_state_is_smaller_than_adamws)
{
    const exo_optim_spec muon = exo_optim_spec_init(EXO_MUON),
                         adamw = exo_optim_spec_init(EXO_ADAMW);
    const uint64_t matrices = 200 + 180 + 200,
                   temporary = 2 * 200 + 2 * 10 * 10; /* of the 20 x 10 ones */
    cr_expect_eq(exo_optim_bytes(&adamw, infos, NUM_INFOS), 2 * NUMEL * sizeof(float));
    cr_expect_eq(exo_optim_bytes(&muon, infos, NUM_INFOS),
                 (2 * NUMEL - matrices + temporary) * sizeof(float));
}

Test(muon, every_failed_allocation_is_an_error_and_leaks_nothing)
{
    const exo_optim_spec spec = exo_optim_spec_init(EXO_MUON);
    exo_status st = EXO_NOMEM;
    uint64_t failed = 0;
    for (uint64_t n = 1; st != EXO_OK; n++) {
        exo_optim *optim = NULL;
        exo_err err = {0};
        exo_memory_fail_at(n);
        st = exo_optim_new_grouped(&optim, &spec, infos, NUM_INFOS, exo_device_cpu(), 0, NUMEL,
                                   &err);
        exo_memory_fail_at(0);
        cr_assert(st == EXO_OK || (st == EXO_NOMEM && !optim && err.text[0]), "%s", err.text);
        failed += st != EXO_OK;
        exo_optim_free(&optim);
    }
    cr_expect_gt(failed, 10);
}

/* --- Training --------------------------------------------------------------------------------- */

/* Trains a small model; the loss is that of the points that it was trained on. */
static void
fit(const char *strategy, const char *options, exo_fit_result *result)
{
    exo_err err = {0};
    exo_model *model = points_mlp();
    exo_dataset *train = points_new(200, 1, SIZE_MAX), *val = points_new(200, 1, SIZE_MAX);
    exo_trainer *trainer = NULL;
    exo_fit_opts opts = exo_fit_opts_init();
    cr_assert_eq(exo_trainer_new(&trainer, model, train, val, &err), EXO_OK);
    opts.num_nodes = 2;
    opts.batch_size = 8;
    opts.max_steps = 100;
    opts.val_interval = 20;
    opts.save_dir = NULL;
    *result = (exo_fit_result){0};
    cr_assert_eq(exo_trainer_fit_text(trainer, strategy, options, &opts, result, &err), EXO_OK,
                 "%s", err.text);
    exo_params_free(&result->params);
    exo_trainer_free(&trainer);
    exo_dataset_drop(&train);
    exo_dataset_drop(&val);
    exo_model_drop(&model);
}

Test(muon, training_lowers_the_loss)
{
    exo_fit_result still, ddp, muloco;
    fit("ddp", "{optimizer: {name: sgd, lr: 0}}", &still);
    fit("ddp", "{optimizer: {name: muon, lr: 0.02, adamw: {lr: 0.01}}}", &ddp);
    fit("muloco", "{H: 10, optimizer: {name: muon, lr: 0.02, adamw: {lr: 0.01}}}", &muloco);
    cr_expect_lt(ddp.global_loss, 0.5 * still.global_loss, "%g of %g", (double)ddp.global_loss,
                 (double)still.global_loss);
    cr_expect_lt(muloco.global_loss, 0.5 * still.global_loss, "%g of %g",
                 (double)muloco.global_loss, (double)still.global_loss);
}
