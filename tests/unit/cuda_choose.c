/* The choice of tokens by nn/cuda on the CUDA runtime of the tests, beside that of the host: the same
 * tokens for the same draws, and equal log-probabilities up to the order of sums. Read next:
 * nn/cuda/choose.cu, unit/generate_sampling.c, which holds the host against the definitions. */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include <exogym/rng.h>

#include "cuda/emulator.h"
#include "nn/cuda/open.h"
#include "nn/generate/sampling.h"
#include "support/sanitized.h"
#include "support/small_decoders.h"

enum {
    PART = 4096, /* logits of a block */
    MOST = 8300, /* of several blocks */
    ROWS = 5,
    WORDS = (MOST + 63) / 64,
    TOGETHER = 30 /* sequences: more than there are rows of logits in memory */
};

static float weights[MOST], values[MOST];
static uint32_t places[MOST], order[MOST];
static float logits[ROWS * MOST];
static uint64_t seen[ROWS * WORDS];

/* A GPU with the arrays of a call. */
struct gpu {
    exo_device *device;
    exo_array logits, sums, rules, seen, scratch, choices;
};

static void
gpu_open(struct gpu *g)
{
    exo_err err = {0};
    *g = (struct gpu){0};
    cuda_emulator_seed(3);
    cr_assert_eq(exo_cuda_open(&g->device, 0, &err), EXO_OK, "%s", err.text);
    const exo_decoder_shape shape = {.spec = {.vocabulary = MOST}};
    const size_t bytes =
        g->device->device_class->scratch(g->device, EXO_SHAPE_DECODER, &shape, EXO_SCRATCH_CHOICE);
    const struct {
        exo_array *array;
        exo_dtype dtype;
        size_t count;
    } all[] = {{&g->logits, EXO_F32, ROWS * MOST},
               {&g->sums, EXO_F32, 2 * ROWS},
               {&g->rules, EXO_U8, ROWS * sizeof(exo_choice_rule)},
               {&g->seen, EXO_U8, sizeof seen},
               {&g->scratch, EXO_U8, bytes},
               {&g->choices, EXO_U8, ROWS * sizeof(exo_choice)}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        cr_assert_eq(exo_array_init(all[i].array, g->device, all[i].dtype, all[i].count, NULL),
                     EXO_OK);
}

static void
gpu_close(struct gpu *g)
{
    exo_array *all[] = {&g->logits, &g->sums, &g->rules, &g->seen, &g->scratch, &g->choices};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        exo_array_release(all[i]);
    exo_device_close(&g->device);
}

static float
log_sum(const float *row, size_t count, float scale)
{
    double most = -INFINITY, sum = 0;
    for (size_t i = 0; i < count; i++)
        most = fmax(most, (double)(scale * row[i]));
    for (size_t i = 0; i < count; i++)
        sum += exp((double)(scale * row[i]) - most);
    return (float)(most + log(sum));
}

/* Chooses on the GPU, a token for each row of `count` logits. */
static void
choose_there(struct gpu *g, const exo_sampling *s, size_t count, const double *draws,
             exo_choice *out)
{
    float sums[2 * ROWS];
    exo_choice_rule rules[ROWS];
    exo_err err = {0};
    for (size_t r = 0; r < ROWS; r++) {
        rules[r] = exo_sampling_rule(s, draws[r]);
        sums[r] = log_sum(logits + r * MOST, count, 1);
        sums[ROWS + r] = log_sum(logits + r * MOST, count, rules[r].scale);
    }
    size_t bytes = (count + 63) / 64 * 8;
    for (size_t r = 0; r < ROWS; r++)
        exo_array_send(exo_array_part(g->seen, r * bytes, bytes), seen + r * WORDS);
    exo_array_send(g->logits, logits);
    exo_array_send(g->sums, sums);
    exo_array_send(g->rules, rules);
    const exo_choose_args args = {.rows = ROWS,
                                  .vocabulary = count,
                                  .pitch = MOST,
                                  .logits = g->logits.data,
                                  .log_sums = g->sums.data,
                                  .rules = g->rules.data,
                                  .seen = s->repetition_penalty > 0 ? g->seen.data : NULL,
                                  .needs = exo_choice_needs(rules, ROWS),
                                  .scratch = g->scratch.data,
                                  .choices = g->choices.data};
    cr_assert_eq(g->device->device_class->choose(g->device, &args, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_array_read(g->choices, out, &err), EXO_OK, "%s", err.text);
}

static void
draw_rows(size_t count, uint64_t seed, float size, float step)
{
    exo_rng rng;
    exo_rng_init(&rng, seed, EXO_RNG_USER, 0, count);
    memset(seen, 0, sizeof seen);
    for (size_t r = 0; r < ROWS; r++)
        for (size_t i = 0; i < count; i++) {
            float x = size * exo_rng_normal(&rng);
            logits[r * MOST + i] = step > 0 ? step * roundf(x / step) : x;
            seen[r * WORDS + i / 64] |= (uint64_t)(exo_rng_below(&rng, 4) == 0) << i % 64;
        }
}

/* Chooses on both, with draws that belong to `turn`. */
static void
compare(struct gpu *g, const exo_sampling *s, size_t count, uint32_t turn)
{
    const exo_logits_scratch scratch = {
        .weights = weights, .values = values, .places = places, .order = order};
    exo_choice there[ROWS];
    double draws[ROWS];
    for (size_t r = 0; r < ROWS; r++)
        draws[r] = turn == 0 ? 0 : turn == 1 ? 1 - 0x1p-53 : exo_sampling_draw(turn, count, r);
    choose_there(g, s, count, draws, there);
    for (size_t r = 0; r < ROWS; r++) {
        exo_choice here = {.token = -1};
        (void)exo_sampling_choose(s, logits + r * MOST, count, seen + r * WORDS, draws[r], &scratch,
                                  &here);
        cr_expect_eq(there[r].token, here.token,
                     "of %zu, draw %g, row %zu: %d, not %d (t %g, k %zu, p %g)", count, draws[r], r,
                     there[r].token, here.token, (double)s->temperature, s->top_k,
                     (double)s->top_p);
        cr_expect_float_eq(there[r].log_prob, here.log_prob, 2e-5f, "%g, not %g",
                           (double)there[r].log_prob, (double)here.log_prob);
        cr_expect_float_eq(there[r].plain_log_prob, here.plain_log_prob, 2e-5f);
    }
}

static const exo_sampling settings[] = {
    {.temperature = 0},
    {.temperature = 0, .repetition_penalty = 3},
    {.temperature = 1},
    {.temperature = 0.7f},
    {.temperature = 1.5f, .repetition_penalty = 1.7f},
    {.temperature = 1, .top_k = 1},
    {.temperature = 2, .top_k = 20},
    {.temperature = 1, .top_p = 0.9f},
    {.temperature = 3, .top_p = 0.999f},
    {.temperature = 1, .top_p = 0.01f},
    {.temperature = 1, .vocabulary = 29},
    {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .repetition_penalty = 1.2f},
};

Test(cuda_choose, a_gpu_chooses_as_the_host_does)
{
    static const size_t counts[] = {1, 33, 257, 4097, MOST};
    struct gpu g;
    gpu_open(&g);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t k = 0; k < sizeof settings / sizeof *settings; k += one_of(3)) {
            draw_rows(counts[c], 1 + k, 3, 0);
            for (uint32_t turn = counts[c] > PART ? 2 : 0; turn < 3; turn++)
                compare(&g, &settings[k], counts[c], turn);
        }
    draw_rows(MOST, 9, 3, 0);
    for (uint32_t turn = 0; turn < 2; turn++)
        compare(&g, &settings[8], MOST, turn);
    gpu_close(&g);
}

/* Equal logits: top-k keeps all that equal the k-th, top-p those with the smaller numbers. */
Test(cuda_choose, a_gpu_breaks_ties_as_the_host_does)
{
    struct gpu g;
    gpu_open(&g);
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k += one_of(3)) {
        (void)cuda_emulator_watch_races(k % 4 == 0);
        draw_rows(200, 40 + k, 2, 1);
        for (uint32_t turn = 0; turn < 6; turn++)
            compare(&g, &settings[k], 200, turn);
        draw_rows(MOST, k, 2, 1);
        compare(&g, &settings[k], MOST, 2);
        draw_rows(70, k, 0, 0); /* all are equal */
        for (uint32_t turn = 0; turn < 3; turn++)
            compare(&g, &settings[k], 70, turn);
    }
    for (size_t k = 6; k < 9; k++) {
        draw_rows(MOST, k, 0, 0);
        compare(&g, &settings[k], MOST, 2);
    }
    gpu_close(&g);
}

/* -infinity is a token that cannot be drawn; what cannot be chosen from is told by token -1. */
Test(cuda_choose, a_gpu_refuses_what_the_host_refuses)
{
    struct gpu g;
    gpu_open(&g);
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
        draw_rows(300, 70 + k, 2, 0);
        for (size_t i = 0; i < 300; i++)
            logits[i] = i == 17 ? 3 : -INFINITY;
        logits[MOST + 299] = NAN;
        logits[2 * MOST + 31] = INFINITY;
        for (size_t i = 0; i < 300; i++)
            logits[3 * MOST + i] = -INFINITY;
        logits[4 * MOST + 2] =
            3e38f; /* a penalty above 1 leaves it, a temperature below 1 does not */
        compare(&g, &settings[k], 300, 2);
    }
    gpu_close(&g);
}

/* The host waits once in a step, however many sequences there are. */
Test(cuda_choose, a_step_waits_once)
{
    const exo_decoder_spec spec = small_decoder_spec(0);
    const exo_generator_opts opts = {.sequences = TOGETHER};
    exo_device *device = NULL;
    exo_generator *g = NULL;
    exo_params *params = NULL;
    exo_err err = {0};
    small_decoder decoder;
    cuda_emulator_seed(5);
    cr_assert_eq(exo_cuda_open(&device, 0, &err), EXO_OK, "%s", err.text);
    small_decoder_new(&decoder, &spec, 3);
    cr_assert_eq(exo_params_to(&params, decoder.params, device, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_generator_new(&g, &spec, params, &opts, &err), EXO_OK, "%s", err.text);
    for (uint64_t i = 0; i < TOGETHER; i++) {
        const exo_sampling s = {.temperature = 1, .repetition_penalty = i % 2 ? 1.2f : 0};
        cr_assert_eq(exo_generator_submit(g, i, &(int32_t){(int32_t)i}, 1, &s, &err), EXO_OK, "%s",
                     err.text);
    }
    for (int step = 0; step < 4; step++) {
        const uint64_t before = cuda_emulator_waits();
        cr_assert_eq(exo_generator_step(g, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(cuda_emulator_waits() - before, 1, "%lu waits in step %d",
                     cuda_emulator_waits() - before, step);
    }
    exo_generator_free(&g);
    exo_params_free(&params);
    small_decoder_free(&decoder);
    exo_device_close(&device);
}
