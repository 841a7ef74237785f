/* Strategies that exchange compressed gradients: identities, plain implementations of their rules,
 * numbers of other implementations, and the bytes that they send. Each test owns its nodes. Read
 * next: tests/support/nodes.h; tests/golden; docs/strategies.md. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden/demo_golden.h"
#include "golden/onebit_adam_golden.h"
#include "golden/powersgd_golden.h"
#include "support/nodes.h"

enum {
    NUMEL = 291, /* the shapes of nodes.h, and 10 more */
    NODES = 4,
    BATCH = 3,
    STEPS = 50
};

/* Node r's parameters and gradient in a plain implementation. */
static double theta[NODES_MAX][NUMEL];
static double gradient[NODES_MAX][NUMEL];

static void
plain_start(void)
{
    float start[NUMEL];
    nodes_initial(NUMEL, start);
    for (uint32_t r = 0; r < NODES_MAX; r++)
        for (size_t j = 0; j < NUMEL; j++)
            theta[r][j] = (double)start[j];
}

/* The gradients of step t. Parameters are rounded to fp32 for them, as the nodes' are. */
static void
plain_gradients(uint32_t count, uint64_t t)
{
    float params[NUMEL], grads[NUMEL];
    for (uint32_t r = 0; r < count; r++) {
        for (size_t j = 0; j < NUMEL; j++)
            params[j] = (float)theta[r][j];
        nodes_gradient(NUMEL, params, (t * count + r) * BATCH, BATCH, grads);
        for (size_t j = 0; j < NUMEL; j++)
            gradient[r][j] = (double)grads[j];
    }
}

/* The largest difference of a parameter of any node from `want`. */
static double
distance(const nodes *n, const double *want)
{
    double largest = 0;
    for (uint32_t r = 0; r < n->count; r++)
        for (size_t j = 0; j < n->numel; j++) {
            double d = fabs((double)n->each[r].params[j] - want[j]);
            largest = d > largest || isnan(d) ? d : largest;
        }
    return largest;
}

static double
distance_to_floats(const nodes *n, const float *want)
{
    double wanted[NUMEL];
    for (size_t j = 0; j < NUMEL; j++)
        wanted[j] = (double)want[j];
    return distance(n, wanted);
}

static void
expect_equal_nodes(const nodes *n, const char *what)
{
    for (uint32_t r = 1; r < n->count; r++)
        cr_expect_arr_eq(n->each[0].params, n->each[r].params, n->numel * sizeof(float),
                         "%s: node %u", what, r);
}

/* The shapes of nodes.h that are matrices. */
static const struct {
    size_t first, rows, cols;
} matrices[] = {{0, 12, 8}, {103, 5, 14}, {173, 6, 18}};

enum {
    MATRICES = sizeof matrices / sizeof *matrices,
    IN_FULL = NUMEL - 12 * 8 - 5 * 14 - 6 * 18
};

/* --- PowerSGD --------------------------------------------------------------------------------- */

Test(gradients, powersgd_of_full_rank_is_ddp)
{
    static const char *const inner[] = {"optimizer: {name: sgd, lr: 0.1, momentum: 0.9}",
                                        "optimizer: {name: sgd, lr: 0.2}, max_norm: 2"};
    for (size_t i = 0; i < 2; i++) {
        char options[128], plain[128];
        double wanted[NUMEL];
        nodes powersgd, ddp;
        snprintf(options, sizeof options, "{rank: 100, min_compression_rate: 0, %s}", inner[i]);
        snprintf(plain, sizeof plain, "{%s}", inner[i]);
        nodes_init(&powersgd, NODES, NUMEL, BATCH, STEPS, "powersgd", options);
        nodes_init(&ddp, NODES, NUMEL, BATCH, STEPS, "ddp", plain);
        nodes_train(&powersgd, STEPS);
        nodes_train(&ddp, STEPS);
        for (size_t j = 0; j < NUMEL; j++)
            wanted[j] = (double)ddp.each[0].params[j];
        cr_expect_leq(distance(&powersgd, wanted), 1e-6, "%s: %g", inner[i],
                      distance(&powersgd, wanted));
        expect_equal_nodes(&powersgd, inner[i]);
        nodes_release(&powersgd);
        nodes_release(&ddp);
    }
}

/* Reads node r's checkpoint: the parameters, and two arrays of the strategy. */
static void
read_checkpoint(nodes *n, uint32_t r, const char *const *names, float *const *arrays,
                const size_t *counts)
{
    static float params[NUMEL];
    char folder[] = "/tmp/exogym-gradients-XXXXXX", path[64], command[64];
    uint64_t step, optim_step;
    exo_state *state = NULL;
    exo_err err = {0};
    cr_assert_not_null(mkdtemp(folder));
    nodes_save(n, folder);
    snprintf(path, sizeof path, "%s/%u", folder, r);
    cr_assert_eq(exo_state_new(&state, &err), EXO_OK);
    exo_state_add(state, "params", EXO_F32, params, NUMEL);
    exo_state_add_u64(state, "step", &step);
    exo_state_add_u64(state, "optim.step", &optim_step);
    for (size_t i = 0; names[i]; i++)
        exo_state_add(state, names[i], EXO_F32, arrays[i], counts[i]);
    cr_assert_eq(exo_state_load(state, path, &err), EXO_OK, "%s", err.text);
    for (size_t j = 0; j < NUMEL; j++)
        theta[r][j] = (double)params[j];
    exo_state_free(&state);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
}

/* The paper's algorithm for one matrix, in double, with Gram-Schmidt. */
struct plain_factors {
    size_t rank;
    double q[18][8]; /* (cols, rank) */
    double error[NODES_MAX][12 * 18];
};

static void
gram_schmidt(double (*x)[8], size_t length, size_t rank)
{
    for (size_t k = 0; k < rank; k++) {
        double squares = 0;
        for (size_t j = 0; j < k; j++) {
            double product = 0;
            for (size_t i = 0; i < length; i++)
                product += x[i][k] * x[i][j];
            for (size_t i = 0; i < length; i++)
                x[i][k] -= product * x[i][j];
        }
        for (size_t i = 0; i < length; i++)
            squares += x[i][k] * x[i][k];
        for (size_t i = 0; i < length; i++)
            x[i][k] /= sqrt(squares);
    }
}

/* Replaces the gradients of all nodes in `m` by what they have of their mean. */
static void
plain_powersgd(struct plain_factors *f, uint32_t count, size_t first, size_t rows, size_t cols)
{
    double p[12][8] = {{0}}, q[18][8] = {{0}};
    gram_schmidt(f->q, cols, f->rank);
    for (uint32_t r = 0; r < count; r++)
        for (size_t i = 0; i < rows * cols; i++) {
            double m = f->error[r][i] = gradient[r][first + i] + f->error[r][i];
            for (size_t k = 0; k < f->rank; k++)
                p[i / cols][k] += m * f->q[i % cols][k] / count;
        }
    gram_schmidt(p, rows, f->rank);
    for (uint32_t r = 0; r < count; r++)
        for (size_t i = 0; i < rows * cols; i++)
            for (size_t k = 0; k < f->rank; k++)
                q[i % cols][k] += f->error[r][i] * p[i / cols][k] / count;
    memcpy(f->q, q, sizeof q);
    for (size_t i = 0; i < rows * cols; i++) {
        double mean = 0;
        for (size_t k = 0; k < f->rank; k++)
            mean += p[i / cols][k] * q[i % cols][k];
        for (uint32_t r = 0; r < count; r++) {
            f->error[r][i] -= mean;
            gradient[r][first + i] = mean;
        }
    }
}

static void
mean_in_full(uint32_t count, size_t first, size_t end)
{
    for (size_t j = first; j < end; j++) {
        double mean = 0;
        for (uint32_t r = 0; r < count; r++)
            mean += gradient[r][j] / count;
        for (uint32_t r = 0; r < count; r++)
            gradient[r][j] = mean;
    }
}

static void
draw_plain_factors(struct plain_factors *f, size_t rank)
{
    exo_rng rng;
    exo_rng_init(&rng, NODES_SEED, EXO_RNG_FACTORS, 0, 0);
    memset(f, 0, MATRICES * sizeof *f);
    for (size_t m = 0; m < MATRICES; m++) {
        f[m].rank = rank;
        for (size_t k = 0; k < rank; k++)
            for (size_t j = 0; j < matrices[m].cols; j++)
                f[m].q[j][k] = (double)exo_rng_normal(&rng);
    }
}

/* Continues from the nodes' own numbers. */
static void
take_factors(nodes *n, struct plain_factors *factors)
{
    static const char *const names[] = {"powersgd.error", "powersgd.q", NULL};
    const size_t rank = factors[0].rank, counts[] = {NUMEL, rank * (8 + 14 + 18)};
    for (uint32_t r = 0; r < n->count; r++) {
        float error[NUMEL], q[8 * (8 + 14 + 18)];
        read_checkpoint(n, r, names, (float *const[]){error, q}, counts);
        const float *at = q;
        for (size_t m = 0; m < MATRICES; m++) {
            for (size_t i = 0; i < matrices[m].rows * matrices[m].cols; i++)
                factors[m].error[r][i] = (double)error[matrices[m].first + i];
            for (size_t i = 0; i < rank * matrices[m].cols; i++)
                factors[m].q[i % matrices[m].cols][i / matrices[m].cols] = (double)*at++;
        }
        for (size_t j = 96; j < NUMEL; j++) /* in full */
            cr_expect((j >= 103 && j < 281) || error[j] == 0.0f);
    }
}

/* A power iteration with error feedback doubles a difference in two or three steps, so the plain
 * implementation takes over the nodes' numbers every five steps. */
Test(gradients, powersgd_is_the_papers_algorithm)
{
    static struct plain_factors factors[MATRICES];
    for (size_t rank = 1; rank <= 3; rank++)
        for (uint32_t count = 1; count <= NODES; count += 3) {
            nodes n;
            char options[80];
            snprintf(options, sizeof options, "{rank: %zu, optimizer: {name: sgd, lr: 0.1}}", rank);
            nodes_init(&n, count, NUMEL, BATCH, STEPS, "powersgd", options);
            draw_plain_factors(factors, rank);
            plain_start();
            for (uint64_t t = 0; t < STEPS; t++) {
                plain_gradients(count, t);
                for (size_t m = 0; m < MATRICES; m++)
                    plain_powersgd(&factors[m], count, matrices[m].first, matrices[m].rows,
                                   matrices[m].cols);
                mean_in_full(count, 96, 103);
                mean_in_full(count, 281, NUMEL);
                for (uint32_t r = 0; r < count; r++)
                    for (size_t j = 0; j < NUMEL; j++)
                        theta[r][j] -= 0.1 * gradient[r][j];
                if (t % 5 < 4)
                    continue;
                nodes_train(&n, 5);
                cr_expect_leq(distance(&n, theta[0]), 1e-5, "rank %zu of %u nodes, step %d: %g",
                              rank, count, (int)t, distance(&n, theta[0]));
                take_factors(&n, factors);
            }
            expect_equal_nodes(&n, options);
            nodes_release(&n);
        }
}

/* PyTorch sums and orthogonalizes in fp32. */
Test(gradients, powersgd_has_the_numbers_of_pytorchs_hook)
{
    static const float *const golden[] = {powersgd_rank_1, powersgd_rank_2, powersgd_rank_3};
    for (size_t i = 0; i < 3; i++) {
        nodes n;
        char options[80];
        snprintf(options, sizeof options, "{rank: %zu, optimizer: {name: sgd, lr: 0.1}}", i + 1);
        nodes_init(&n, NODES, NUMEL, BATCH, POWERSGD_STEPS, "powersgd", options);
        nodes_train(&n, POWERSGD_STEPS);
        cr_expect_leq(distance_to_floats(&n, golden[i]), 2e-5, "%s: %g", options,
                      distance_to_floats(&n, golden[i]));
        nodes_release(&n);
    }
}

/* 2 (N - 1) times the factors and what is in full, in all; with rank 100, the matrices are in
 * full. */
Test(gradients, powersgd_sends_its_factors)
{
    static const struct {
        const char *options;
        size_t elements;
    } cases[] = {
        {"rank: 1", IN_FULL + 12 + 8 + 5 + 14 + 6 + 18},
        {"rank: 3", IN_FULL + 3 * (12 + 8 + 5 + 14 + 6 + 18)},
        {"{rank: 3, min_compression_rate: 1.5}", IN_FULL + 5 * 14 + 6 * 18 + 3 * (12 + 8)},
        {"rank: 100", NUMEL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint32_t count = 1; count <= NODES; count++) {
            nodes n;
            nodes_init(&n, count, NUMEL, BATCH, 5, "powersgd", cases[i].options);
            nodes_train(&n, 5);
            cr_expect_eq(nodes_bytes(&n), 5 * 2 * (count - 1) * cases[i].elements * sizeof(float),
                         "%s of %u nodes: %d", cases[i].options, count, (int)nodes_bytes(&n));
            nodes_release(&n);
        }
}

/* --- int8 ------------------------------------------------------------------------------------- */

/* One step of the rule in fp32, with the gradients of `grads`; error (count, NUMEL) or NULL. */
static void
plain_quantized(uint32_t count, float (*grads)[NUMEL], float (*error)[NUMEL], size_t chunk)
{
    for (size_t first = 0; first < NUMEL; first += chunk) {
        const size_t end = first + chunk < NUMEL ? first + chunk : NUMEL;
        float scale = 0;
        int32_t sum[NUMEL] = {0};
        for (uint32_t r = 0; r < count; r++)
            for (size_t j = first; j < end; j++) {
                grads[r][j] += error ? error[r][j] : 0.0f;
                scale = fmaxf(scale, fabsf(grads[r][j]));
            }
        for (uint32_t r = 0; r < count; r++)
            for (size_t j = first; j < end; j++) {
                long q = lrintf(grads[r][j] / scale * 127);
                cr_assert(q >= -127 && q <= 127);
                sum[j] += (int32_t)q;
                if (error)
                    error[r][j] = grads[r][j] - (float)q * scale / 127;
            }
        for (uint32_t r = 0; r < count; r++)
            for (size_t j = first; j < end; j++)
                grads[r][j] = (float)sum[j] * scale / (127 * (float)count);
    }
}

static void
expect_quantized(uint32_t count, bool feedback, size_t chunk)
{
    static float params[NODES][NUMEL], grads[NODES][NUMEL], error[NODES][NUMEL];
    char options[120];
    nodes n;
    snprintf(options, sizeof options,
             "{chunk: %zu, error_feedback: %s, optimizer: {name: sgd, lr: 0.1}}", chunk,
             feedback ? "true" : "false");
    nodes_init(&n, count, NUMEL, BATCH, STEPS, "quantized", options);
    memset(error, 0, sizeof error);
    for (uint32_t r = 0; r < count; r++)
        nodes_initial(NUMEL, params[r]);
    for (uint64_t t = 0; t < STEPS; t++) {
        for (uint32_t r = 0; r < count; r++)
            nodes_gradient(NUMEL, params[r], (t * count + r) * BATCH, BATCH, grads[r]);
        plain_quantized(count, grads, feedback ? error : NULL, chunk);
        for (uint32_t r = 0; r < count; r++)
            for (size_t j = 0; j < NUMEL; j++)
                params[r][j] -= 0.1f * grads[r][j];
    }
    nodes_train(&n, STEPS);
    for (uint32_t r = 0; r < count; r++)
        cr_expect_arr_eq(n.each[r].params, params[r], sizeof params[r], "%s: node %u of %u",
                         options, r, count);
    nodes_release(&n);
}

/* The same operations in the same order, so the bits are the same. */
Test(gradients, quantized_is_its_rule)
{
    for (uint32_t count = 1; count <= NODES; count++) {
        expect_quantized(count, false, 256);
        expect_quantized(count, false, 7);
        expect_quantized(count, true, 1000);
        expect_quantized(count, true, 10);
    }
}

/* With chunks of one element on one node, each gradient is its scale. */
Test(gradients, quantized_in_chunks_of_one_is_exact_on_one_node)
{
    nodes quantized, ddp;
    nodes_init(&quantized, 1, NUMEL, BATCH, 10, "quantized",
               "{chunk: 1, optimizer: {name: sgd, lr: 0.1}}");
    nodes_init(&ddp, 1, NUMEL, BATCH, 10, "ddp", "optimizer: {name: sgd, lr: 0.1}");
    nodes_train(&quantized, 10);
    nodes_train(&ddp, 10);
    cr_expect_leq(distance_to_floats(&quantized, ddp.each[0].params), 1e-6);
    nodes_release(&quantized);
    nodes_release(&ddp);
}

/* (N - 1) (Psi + 4 C) bytes from each node. */
Test(gradients, quantized_sends_a_byte_for_an_element_and_a_scale_for_a_chunk)
{
    static const size_t chunks[] = {1, 100, 256, 291, 1000}, scales[] = {291, 3, 2, 1, 1};
    for (size_t i = 0; i < 5; i++)
        for (uint32_t count = 1; count <= NODES; count++) {
            char options[32];
            nodes n;
            snprintf(options, sizeof options, "chunk: %zu", chunks[i]);
            nodes_init(&n, count, NUMEL, 1, 3, "quantized", options);
            nodes_train(&n, 3);
            for (uint32_t r = 0; r < count; r++)
                cr_expect_eq(exo_group_stats(n.each[r].group).bytes_sent,
                             3 * (count - 1) * (NUMEL + 4 * scales[i]), "%s", options);
            nodes_release(&n);
        }
}

/* --- DeMo ------------------------------------------------------------------------------------- */

/* The shapes of nodes.h, vectors as matrices of one row. */
static const struct {
    size_t first, rows, cols;
} tensors[] = {{0, 12, 8}, {96, 1, 7}, {103, 5, 14}, {173, 6, 18}, {281, 1, 10}};

struct plain_demo {
    size_t k, chunk;
    double beta, decay, lr;
    double momentum[NODES][NUMEL];
};

static size_t
divisor(size_t length, size_t most)
{
    size_t largest = 1;
    for (size_t d = 1; d <= most && d <= length; d++)
        largest = length % d == 0 ? d : largest;
    return largest;
}

/* The orthonormal DCT-II of x (n elements, `step` apart), or its inverse, in place. */
static void
plain_dct(double *x, size_t n, size_t step, bool inverse)
{
    double y[64] = {0};
    for (size_t f = 0; f < n; f++)
        for (size_t i = 0; i < n; i++) {
            double c = sqrt((f ? 2.0 : 1.0) / (double)n) *
                       cos(acos(-1.0) * ((double)i + 0.5) * (double)f / (double)n);
            if (inverse)
                y[i] += c * x[f * step];
            else
                y[f] += c * x[i * step];
        }
    for (size_t i = 0; i < n; i++)
        x[i * step] = y[i];
}

static void
plain_dct_2d(double *x, size_t rows, size_t cols, bool inverse)
{
    for (size_t i = 0; i < rows; i++)
        plain_dct(x + i * cols, cols, 1, inverse);
    for (size_t j = 0; j < cols; j++)
        plain_dct(x + j, rows, cols, inverse);
}

/* Keeps the k largest coefficients, and counts them in `senders`. */
static void
keep_largest(double *c, size_t n, size_t k, size_t *senders)
{
    bool kept[NUMEL] = {false};
    for (size_t taken = 0; taken < k && taken < n; taken++) {
        size_t best = n;
        for (size_t i = 0; i < n; i++)
            if (!kept[i] && (best == n || fabs(c[i]) > fabs(c[best])))
                best = i;
        kept[best] = true;
        senders[best]++;
    }
    for (size_t i = 0; i < n; i++)
        c[i] = kept[i] ? c[i] : 0;
}

/* Exchanges one chunk: its elements are at `at` (n). Writes the sign to the gradients. */
static void
plain_chunk(struct plain_demo *d, uint32_t count, const size_t *at, size_t rows, size_t cols)
{
    const size_t n = rows * cols;
    double sum[NUMEL] = {0}, c[NUMEL];
    size_t senders[NUMEL] = {0};
    for (uint32_t r = 0; r < count; r++) {
        for (size_t i = 0; i < n; i++) {
            d->momentum[r][at[i]] = d->beta * d->momentum[r][at[i]] + d->lr * gradient[r][at[i]];
            c[i] = d->momentum[r][at[i]];
        }
        plain_dct_2d(c, rows, cols, false);
        keep_largest(c, n, d->k, senders);
        for (size_t i = 0; i < n; i++)
            sum[i] += c[i];
        plain_dct_2d(c, rows, cols, true);
        for (size_t i = 0; i < n; i++)
            d->momentum[r][at[i]] -= c[i];
    }
    for (size_t i = 0; i < n; i++)
        sum[i] /= senders[i] ? (double)senders[i] : 1;
    plain_dct_2d(sum, rows, cols, true);
    for (uint32_t r = 0; r < count; r++)
        for (size_t i = 0; i < n; i++)
            gradient[r][at[i]] = (sum[i] > 1e-12) - (sum[i] < -1e-12); /* a cosine of 0 */
}

static void
plain_demo_step(struct plain_demo *d, uint32_t count)
{
    for (size_t t = 0; t < sizeof tensors / sizeof *tensors; t++) {
        const size_t rows = divisor(tensors[t].rows, d->chunk),
                     cols = divisor(tensors[t].cols, d->chunk);
        for (size_t y = 0; y < tensors[t].rows; y += rows)
            for (size_t x = 0; x < tensors[t].cols; x += cols) {
                size_t at[NUMEL];
                for (size_t i = 0; i < rows * cols; i++)
                    at[i] = tensors[t].first + (y + i / cols) * tensors[t].cols + x + i % cols;
                plain_chunk(d, count, at, rows, cols);
            }
    }
    for (uint32_t r = 0; r < count; r++)
        for (size_t j = 0; j < NUMEL; j++)
            theta[r][j] = (1 - d->lr * d->decay) * theta[r][j] - d->lr * gradient[r][j];
}

/* Of tests/golden/demo.py. */
static const struct {
    size_t k, chunk;
    double beta, decay, lr;
    const float *golden;
} demo_cases[] = {{5, 9, 0.95, 0.1, 0.01, demo_case_0},
                  {32, 64, 0.999, 0, 0.02, demo_case_1},
                  {2, 6, 0.9, 0, 0.01, demo_case_2}};

static void
demo_options(size_t i, char *out, size_t size)
{
    snprintf(out, size, "{k: %zu, chunk: %zu, beta: %g, weight_decay: %g, optimizer: {lr: %g}}",
             demo_cases[i].k, demo_cases[i].chunk, demo_cases[i].beta, demo_cases[i].decay,
             demo_cases[i].lr);
}

/* Were one coefficient chosen otherwise, or one sign other, a parameter would differ by 2 lr. */
Test(gradients, demo_is_its_rule)
{
    static struct plain_demo d;
    for (size_t i = 0; i < 3; i++)
        for (uint32_t count = 1; count <= NODES; count++) {
            char options[128];
            nodes n;
            demo_options(i, options, sizeof options);
            memset(&d, 0, sizeof d);
            d.k = demo_cases[i].k;
            d.chunk = demo_cases[i].chunk;
            d.beta = demo_cases[i].beta;
            d.decay = demo_cases[i].decay;
            d.lr = demo_cases[i].lr;
            nodes_init(&n, count, NUMEL, BATCH, STEPS, "demo", options);
            plain_start();
            for (uint64_t t = 0; t < STEPS; t++) {
                plain_gradients(count, t);
                plain_demo_step(&d, count);
            }
            nodes_train(&n, STEPS);
            cr_expect_leq(distance(&n, theta[0]), 1e-5, "%s of %u nodes: %g", options, count,
                          distance(&n, theta[0]));
            expect_equal_nodes(&n, options);
            nodes_release(&n);
        }
}

Test(gradients, demo_has_the_numbers_of_its_published_formula)
{
    for (size_t i = 0; i < 3; i++) {
        char options[128];
        nodes n;
        demo_options(i, options, sizeof options);
        nodes_init(&n, NODES, NUMEL, BATCH, DEMO_STEPS, "demo", options);
        nodes_train(&n, DEMO_STEPS);
        cr_expect_leq(distance_to_floats(&n, demo_cases[i].golden), 1e-5, "%s: %g", options,
                      distance_to_floats(&n, demo_cases[i].golden));
        nodes_release(&n);
    }
}

/* With all coefficients the momentum is sent whole, and nothing is left of it: the step is the sign
 * of the mean gradient. */
Test(gradients, demo_with_all_coefficients_is_the_sign_of_the_mean_gradient)
{
    nodes n;
    nodes_init(&n, NODES, NUMEL, BATCH, STEPS, "demo", "{k: 4096, optimizer: {lr: 0.01}}");
    plain_start();
    for (uint64_t t = 0; t < STEPS; t++) {
        plain_gradients(NODES, t);
        mean_in_full(NODES, 0, NUMEL);
        for (uint32_t r = 0; r < NODES; r++)
            for (size_t j = 0; j < NUMEL; j++)
                theta[r][j] -= 0.01 * ((gradient[r][j] > 0) - (gradient[r][j] < 0));
    }
    nodes_train(&n, STEPS);
    cr_expect_leq(distance(&n, theta[0]), 1e-5, "%g", distance(&n, theta[0]));
    nodes_release(&n);
}

/* The sum over all chunks of k, with 6 bytes for each, from each node to each other. */
Test(gradients, demo_sends_values_and_places)
{
    static const struct {
        const char *options;
        size_t values;
    } cases[] = {
        {"{}", 32 + 7 + 32 + 32 + 10},
        {"{k: 5, chunk: 9}", 2 * 5 + 5 + 2 * 5 + 2 * 5 + 2 * 5}, /* 6x8, 7, 5x7, 6x9, 5 */
        {"{k: 3, chunk: 1}", NUMEL},
    };
    for (size_t i = 0; i < 3; i++)
        for (uint32_t count = 1; count <= NODES; count++) {
            nodes n;
            nodes_init(&n, count, NUMEL, 1, 4, "demo", cases[i].options);
            nodes_train(&n, 4);
            for (uint32_t r = 0; r < count; r++)
                cr_expect_eq(exo_group_stats(n.each[r].group).bytes_sent,
                             4 * (count - 1) * ((6 * cases[i].values + 3) / 4 * 4), "%s of %u",
                             cases[i].options, count);
            nodes_release(&n);
        }
}

/* --- 1-bit Adam ------------------------------------------------------------------------------- */

enum {
    FREEZE = 10
};

struct plain_onebit {
    double m[NODES][NUMEL], v[NUMEL], worker[NODES][NUMEL], server[NUMEL];
};

/* x (n) = C(x + error), with what is left as the error. */
static void
plain_compress(double *x, double *error, size_t n)
{
    double squares = 0;
    for (size_t i = 0; i < n; i++) {
        x[i] += error[i];
        squares += x[i] * x[i];
    }
    for (size_t i = 0; i < n; i++) {
        double c = sqrt(squares / (double)n) * (x[i] < 0 ? -1 : 1);
        error[i] = x[i] - c;
        x[i] = c;
    }
}

/* The parameter [first, first + n): node r's m in row r becomes what all agree on. */
static void
plain_agree(struct plain_onebit *p, uint32_t count, size_t first, size_t n)
{
    const size_t part = (n + 8 * count - 1) / (8 * count) * 8;
    double mean[NUMEL] = {0};
    for (uint32_t r = 0; r < count; r++) {
        plain_compress(p->m[r] + first, p->worker[r] + first, n);
        for (size_t i = 0; i < n; i++)
            mean[i] += p->m[r][first + i] / count;
    }
    for (size_t at = 0; at < n; at += part)
        plain_compress(mean + at, p->server + first + at, n - at < part ? n - at : part);
    for (uint32_t r = 0; r < count; r++)
        memcpy(p->m[r] + first, mean, n * sizeof *mean);
}

static void
plain_onebit_step(struct plain_onebit *p, uint32_t count, uint64_t t, double decay)
{
    if (t < FREEZE)
        mean_in_full(count, 0, NUMEL);
    for (uint32_t r = 0; r < count; r++)
        for (size_t j = 0; j < NUMEL; j++)
            p->m[r][j] = 0.9 * p->m[r][j] + 0.1 * gradient[r][j];
    for (size_t j = 0; t < FREEZE && j < NUMEL; j++)
        p->v[j] = 0.999 * p->v[j] + 0.001 * gradient[0][j] * gradient[0][j];
    for (size_t i = 0; t >= FREEZE && count > 1 && i < sizeof tensors / sizeof *tensors; i++)
        plain_agree(p, count, tensors[i].first, tensors[i].rows * tensors[i].cols);
    for (uint32_t r = 0; r < count; r++)
        for (size_t j = 0; j < NUMEL; j++)
            theta[r][j] -= 0.01 * (p->m[r][j] / (sqrt(p->v[j]) + 1e-8) + decay * theta[r][j]);
}

/* Were one sign other, a parameter would differ by far more than the tolerance. In these runs no
 * number is so near 0 that rounding to fp32 decides its sign. */
Test(gradients, onebit_adam_is_its_rule)
{
    static struct plain_onebit plain;
    for (uint32_t count = 1; count <= NODES; count++)
        for (int decay = 0; decay < 2; decay++) {
            char options[120];
            nodes n;
            snprintf(options, sizeof options,
                     "{freeze_step: %d, optimizer: {lr: 0.01, weight_decay: %g}}", FREEZE,
                     0.05 * decay);
            nodes_init(&n, count, NUMEL, BATCH, STEPS, "onebit_adam", options);
            memset(&plain, 0, sizeof plain);
            plain_start();
            for (uint64_t t = 0; t < STEPS; t++) {
                plain_gradients(count, t);
                plain_onebit_step(&plain, count, t, 0.05 * decay);
            }
            nodes_train(&n, STEPS);
            cr_expect_leq(distance(&n, theta[0]), 2e-5, "%s of %u nodes: %g", options, count,
                          distance(&n, theta[0]));
            expect_equal_nodes(&n, options);
            nodes_release(&n);
        }
}

Test(gradients, onebit_adam_has_the_numbers_of_deepspeed)
{
    static const float *const golden[] = {onebit_adam_case_0, onebit_adam_case_1};
    for (int i = 0; i < 2; i++) {
        char options[120];
        double wanted[NUMEL];
        nodes n;
        snprintf(options, sizeof options,
                 "{freeze_step: %d, optimizer: {lr: 0.01, weight_decay: %g}}", FREEZE, 0.1 * i);
        nodes_init(&n, NODES, ONEBIT_ADAM_NUMEL, BATCH, ONEBIT_ADAM_STEPS, "onebit_adam", options);
        nodes_train(&n, ONEBIT_ADAM_STEPS);
        for (size_t j = 0; j < ONEBIT_ADAM_NUMEL; j++)
            wanted[j] = (double)golden[i][j];
        cr_expect_leq(distance(&n, wanted), 2e-5, "%s: %g", options, distance(&n, wanted));
        nodes_release(&n);
    }
}

/* Before freeze_step all gradients, as ddp; then two messages to and from each other node: the bits
 * of a part of each parameter in whole bytes, padded to 4, and a scale for each parameter. */
Test(gradients, onebit_adam_sends_a_bit_for_an_element)
{
    for (uint32_t count = 1; count <= 6; count++) {
        uint64_t before[NODES_MAX], bits = 0;
        nodes n;
        nodes_init(&n, count, NUMEL, 1, 8, "onebit_adam", "freeze_step: 3");
        nodes_train(&n, 3);
        cr_expect_eq(nodes_bytes(&n), 3 * 2 * (count - 1) * NUMEL * sizeof(float));
        for (uint32_t r = 0; r < count; r++)
            before[r] = exo_group_stats(n.each[r].group).bytes_sent;
        nodes_train(&n, 5);
        for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
            bits += (tensors[i].rows * tensors[i].cols + 8 * count - 1) / (8 * count);
        for (uint32_t r = 0; r < count; r++)
            cr_expect_eq(exo_group_stats(n.each[r].group).bytes_sent - before[r],
                         5 * 2 * (count - 1) * ((bits + 3) / 4 * 4 + 4 * 5), "node %u of %u", r,
                         count);
        nodes_release(&n);
    }
}

Test(gradients, onebit_adam_declares_its_messages)
{
    exo_strategy_edge edges[EXO_STRATEGY_MAX_EDGES];
    size_t count = 0;
    nodes n;
    nodes_init(&n, 3, NUMEL, 1, 4, "onebit_adam", "freeze_step: 1");
    cr_assert(exo_strategy_edges(n.each[0].strategy, n.each[0].node.infos, n.each[0].node.num_infos,
                                 NUMEL, 3, edges, &count));
    cr_assert_eq(count, 1);
    nodes_train(&n, 1);
    const uint64_t before = nodes_bytes(&n);
    nodes_train(&n, 3);
    cr_expect_eq((double)(nodes_bytes(&n) - before), 3 * 2 * 2 * 4 * edges[0].elements);
    nodes_release(&n);
}

Test(gradients, onebit_adam_refuses_other_optimizers)
{
    static const char *const options[] = {
        "optimizer: sgd", "optimizer: adam", "optimizer: {name: adamw, amsgrad: true}",
        "optimizer: {groups: [{max_dims: 1, betas: [0.8, 0.9]}]}"};
    exo_strategy *strategy = NULL;
    exo_err err = {0};
    for (size_t i = 0; i < 4; i++) {
        cr_expect_eq(exo_strategy_parse(&strategy, "onebit_adam", options[i], &err), EXO_INVAL);
        cr_expect(strstr(err.text, "onebit_adam:1:12: optimizer: onebit_adam needs adamw"), "%s",
                  err.text);
    }

    cr_expect_eq(exo_strategy_parse(&strategy, "onebit_adam",
                                    "optimizer: {groups: [{max_dims: 1, weight_decay: 0.1}]}",
                                    &err),
                 EXO_OK, "%s", err.text);
    exo_strategy_free(&strategy);

    /* inside islands, the optimizer is theirs */
    float params[8] = {0}, grads[8] = {0};
    exo_node node = {.num_nodes = 2,
                     .max_steps = 1,
                     .numel = 8,
                     .params = exo_host_array(EXO_F32, params, 8),
                     .grads = exo_host_array(EXO_F32, grads, 8)};
    exo_comm *comm = NULL;
    cr_assert_eq(exo_comm_local(&comm, 2, exo_clock_real(), NULL), EXO_OK);
    cr_assert_eq(exo_group_open(&node.group, comm, 0, "node_0", NULL), EXO_OK);
    cr_assert_eq(exo_strategy_parse(&strategy, "islands",
                                    "{island_size: 2, inside: onebit_adam, optimizer: sgd}", &err),
                 EXO_OK, "%s", err.text);
    cr_expect_eq(exo_strategy_start(strategy, &node, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "onebit_adam needs adamw"), "%s", err.text);
    cr_expect_null(node.optim);
    exo_strategy_leave(strategy);
    exo_strategy_free(&strategy);
    exo_group_close(&node.group);
    exo_comm_drop(&comm);
}
