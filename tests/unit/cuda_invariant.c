/* Zero mismatch on a GPU: a pass with `invariant` gives each token the log-probability that the
 * generator gave it on the same device, to the bit, here on the CUDA runtime of the tests. Products
 * of ordinary passes have an order of their own there (tests/cuda/matmul.cc), as cuBLASLt's have.
 * Each test owns its decoder. Read next: equiv/mismatch.c, which has the same for the CPU. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/generate.h>
#include <exogym/loss.h>
#include <exogym/memory.h>

#include "cuda/emulator.h"
#include "nn/cuda/open.h"
#include "nn/device/device_impl.h"
#include "support/sanitized.h"
#include "support/small_decoders.h"

enum {
    SEQUENCES = 3,
    LONGEST = 70 /* more positions than a tile of attention */
};

/* What the generator gave. */
struct sample {
    int32_t tokens[LONGEST];
    float log_probs[LONGEST], plain[LONGEST]; /* of token t */
    size_t prompt, length;
};

static const size_t prompts[SEQUENCES] = {62, 1, 17};
static const size_t lengths[SEQUENCES] = {LONGEST, 9, 20};

/* A decoder, and its parameters on a GPU. */
typedef struct gpu_decoder {
    small_decoder host;
    exo_device *device;
    exo_params *params;
} gpu_decoder;

static void
open_decoder(gpu_decoder *d, const exo_decoder_spec *spec)
{
    exo_err err = {0};
    cuda_emulator_seed(1);
    cr_assert_eq(exo_cuda_open(&d->device, 0, &err), EXO_OK, "%s", err.text);
    small_decoder_new(&d->host, spec, 3);
    cr_assert_eq(exo_params_to(&d->params, d->host.params, d->device, &err), EXO_OK, "%s",
                 err.text);
}

static void
close_decoder(gpu_decoder *d)
{
    exo_params_free(&d->params);
    small_decoder_free(&d->host);
    exo_cuda_close(d->device);
}

/* Samples the sequences, `together` of them at a time. */
static void
sample(const gpu_decoder *d, size_t together, size_t step_tokens, const exo_sampling *sampling,
       struct sample *out)
{
    exo_generator *g = NULL;
    exo_err err = {0};
    exo_generated done;
    const exo_generator_opts opts = {.sequences = together, .step_tokens = step_tokens};
    cr_assert_eq(exo_generator_new(&g, &d->host.spec, d->params, &opts, &err), EXO_OK, "%s",
                 err.text);
    for (size_t next = 0; next < SEQUENCES || exo_generator_active(g) > 0;) {
        for (; next < SEQUENCES && exo_generator_room(g) > 0; next++) {
            struct sample *s = &out[next];
            exo_sampling one = *sampling;
            *s = (struct sample){.prompt = prompts[next], .length = lengths[next]};
            one.max_new_tokens = s->length - s->prompt;
            small_decoder_tokens(&d->host.spec, 100 + next, s->prompt, s->tokens);
            cr_assert_eq(exo_generator_submit(g, next, s->tokens, s->prompt, &one, &err), EXO_OK,
                         "%s", err.text);
        }
        cr_assert_eq(exo_generator_step(g, &err), EXO_OK, "%s", err.text);
        while (exo_generator_take(g, &done)) {
            struct sample *s = &out[done.id];
            const size_t count = s->length - s->prompt;
            cr_assert_eq(done.length, s->length);
            memcpy(s->tokens, done.tokens, done.length * sizeof *s->tokens);
            memcpy(s->log_probs + s->prompt, done.log_probs, count * sizeof(float));
            memcpy(s->plain + s->prompt, done.plain_log_probs, count * sizeof(float));
        }
    }
    exo_generator_free(&g);
}

/* How a pass computes the log-probabilities. */
struct way {
    size_t first, count, padding; /* sequences of the batch; tokens after the longest */
    bool grad, whole;             /* whole: the logits are one tensor, else a product in the head */
    bool ordinary;
};

/* log_probs (count, width) of a batch of samples. */
static void
forward(const gpu_decoder *d, const struct way *w, float temperature, const struct sample *samples,
        size_t width, float *log_probs)
{
    int32_t *tokens = calloc(w->count * width, 4), *targets = calloc(w->count * width, 4);
    size_t rows = w->count * width;
    for (size_t i = 0; i < rows; i++) {
        const struct sample *s = &samples[w->first + i / width];
        const size_t t = i % width;
        tokens[i] = t < s->length ? s->tokens[t] : 1;
        targets[i] = t + 1 < s->length ? s->tokens[t + 1] : -1;
    }
    exo_tape *tape = NULL;
    exo_err err = {0};
    const exo_pass pass = {.grad = w->grad, .train = w->grad, .invariant = !w->ordinary};
    exo_batch batch = {.size = w->count, .num_fields = 1};
    batch.fields[0] =
        (exo_field){.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {width}};
    batch.data[0] = tokens;
    cr_assert_eq(exo_tape_new_on(&tape, d->device, NULL), EXO_OK);
    exo_tape_begin(tape, d->params, &pass);
    exo_outputs outputs = exo_outputs_init((const char *const[]){"logits", NULL});
    (void)exo_model_forward(d->host.model, tape, &batch, &outputs);
    cr_assert_eq(exo_tape_error(tape, &err), EXO_OK, "%s", err.text);
    exo_logits logits = exo_outputs_logits(&outputs, "logits");
    if (w->whole)
        logits = (exo_logits){.x = exo_outputs_get(&outputs, "logits")};
    exo_tensor *y =
        exo_log_probs(tape, logits, exo_tape_input(tape, EXO_I32, 1, &rows, targets), temperature);
    cr_assert_eq(exo_tape_error(tape, &err), EXO_OK, "%s", err.text);
    exo_tensor_read(y, log_probs);
    exo_tape_free(&tape);
    free(tokens);
    free(targets);
}

/* The new tokens of the batch whose log-probabilities differ from the generator's. */
static size_t
differences(const gpu_decoder *d, const struct way *w, float temperature,
            const struct sample *samples)
{
    size_t found = 0, width = 0;
    for (size_t i = 0; i < w->count; i++)
        width = samples[w->first + i].length > width ? samples[w->first + i].length : width;
    width += w->padding;
    float *got = calloc(w->count * width, sizeof *got);
    forward(d, w, temperature, samples, width, got);
    for (size_t i = 0; i < w->count; i++) {
        const struct sample *s = &samples[w->first + i];
        const float *want = temperature == 1.0f ? s->plain : s->log_probs;
        for (size_t t = s->prompt; t < s->length; t++)
            found += memcmp(&got[i * width + t - 1], &want[t], sizeof(float)) != 0;
    }
    free(got);
    return found;
}

static const struct way ways[] = {
    {.first = 0, .count = 3, .grad = true},
    {.first = 1, .count = 1, .padding = 5, .grad = true},
    {.first = 1, .count = 2, .padding = 1, .whole = true},
};

enum {
    WAYS = sizeof ways / sizeof ways[0]
};

/* Odd sizes, ALiBi, few heads of keys, and norms of heads. A matrix has inputs of several pieces. */
Test(cuda_invariant, a_pass_has_the_bits_of_generation)
{
    static const int kinds[] = {5, 2, 4, 6};
    static struct sample samples[SEQUENCES];
    for (size_t k = 0; k < 4; k += one_of(4)) {
        const float temperature = k == 1 ? 1.0f : 0.7f + (float)k;
        exo_decoder_spec spec = small_decoder_spec(kinds[k]);
        gpu_decoder d = {0};
        spec.context = k == 0 ? 76 : 300; /* from 257 on, blocks share the heads of few rows */
        spec.layers = 1;
        spec.inner = 151;
        open_decoder(&d, &spec);
        sample(&d, 1 + k % 3, k % 2 ? 9 : 40,
               &(exo_sampling){.temperature = temperature, .seed = 5}, samples);
        for (size_t w = 0; w < WAYS; w += one_of(2))
            for (size_t plain = 0; plain < 2; plain++)
                cr_expect_eq(differences(&d, &ways[w], plain ? 1 : temperature, samples), 0,
                             "kind %d, way %zu, plain %zu", kinds[k], w, plain);
        close_decoder(&d);
    }
}

/* Several blocks add up the logits of a row, which the head of a pass does one part after the other. */
Test(cuda_invariant, so_it_has_with_a_large_vocabulary)
{
    static struct sample samples[SEQUENCES];
    const float temperature = 1.3f;
    exo_decoder_spec spec = small_decoder_spec(0);
    gpu_decoder d = {0};
    spec.vocabulary = 16389; /* three parts */
    spec.context = 76;
    spec.layers = spec.heads = spec.kv_heads = 1;
    spec.width = 8;
    open_decoder(&d, &spec);
    sample(&d, 3, 40, &(exo_sampling){.temperature = temperature, .seed = 5}, samples);
    for (size_t plain = 0; plain < 2; plain++)
        cr_expect_eq(differences(&d, &ways[1], plain ? 1 : temperature, samples), 0, "plain %zu",
                     plain);
    close_decoder(&d);
}

/* The comparison can tell. */
Test(cuda_invariant, an_ordinary_pass_has_other_bits)
{
    static struct sample samples[SEQUENCES];
    exo_decoder_spec spec = small_decoder_spec(0);
    gpu_decoder d = {0};
    spec.context = 76;
    spec.layers = 1;
    open_decoder(&d, &spec);
    sample(&d, 3, 40, &(exo_sampling){.temperature = 1}, samples);
    cr_expect_gt(
        differences(&d, &(struct way){.first = 1, .count = 2, .ordinary = true}, 1, samples), 0);
    close_decoder(&d);
}

/* Filters renormalize the distribution of the draw: the plain log-probabilities are the pass's. */
Test(cuda_invariant, filtered_sampling_has_plain_log_probs)
{
    static struct sample samples[SEQUENCES];
    exo_decoder_spec spec = small_decoder_spec(3);
    gpu_decoder d = {0};
    spec.context = 76;
    spec.layers = 1;
    open_decoder(&d, &spec);
    sample(&d, 2, 30,
           &(exo_sampling){
               .temperature = 0.8f, .top_k = 20, .top_p = 0.9f, .repetition_penalty = 1.2f},
           samples);
    cr_expect_eq(differences(&d, &ways[2], 1, samples), 0);
    close_decoder(&d);
}

/* --- Products --------------------------------------------------------------------------------- */

enum {
    OUTPUTS = 104, /* more than a tile has */
    INPUTS = 148,  /* two pieces and a rest */
    ROWS = 131
};

/* `rows` rows of an invariant linear layer, from row `skip` of x on. */
static void
multiply(exo_device *device, const exo_array x[3], size_t skip, size_t rows, float *out)
{
    const exo_linear_shape shape = {.rows = rows,
                                    .in = INPUTS,
                                    .out = OUTPUTS,
                                    .dtype = EXO_F32,
                                    .out_dtype = EXO_F32,
                                    .invariant = 1};
    exo_plan *plan = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_plan_new(&plan, device, EXO_SHAPE_LINEAR, &shape, &err), EXO_OK, "%s",
                 err.text);
    exo_device_run(device, linear, .plan = plan, .y = x[2].data,
                   .x = (const float *)x[0].data + skip * INPUTS, .weight = x[1].data);
    cr_assert_eq(exo_array_read(exo_array_part(x[2], 0, rows * OUTPUTS), out, &err), EXO_OK, "%s",
                 err.text);
    exo_plan_free(&plan);
}

/* Wide tiles compute many rows, and narrow ones few: a row has the same bits, wherever it is. */
Test(cuda_invariant, a_row_of_a_product_has_the_same_bits_in_any_tile)
{
    static float numbers[ROWS * INPUTS], all[ROWS * OUTPUTS], few[9 * OUTPUTS];
    static const size_t counts[3] = {ROWS * INPUTS, OUTPUTS * INPUTS, ROWS * OUTPUTS};
    exo_device *device = NULL;
    exo_array x[3];
    cuda_emulator_seed(1);
    cr_assert_eq(exo_cuda_open(&device, 0, NULL), EXO_OK);
    for (size_t i = 0; i < 3; i++) {
        for (size_t e = 0; e < counts[i] && i < 2; e++)
            numbers[e] = (float)((e * 2654435761u + i) % 10007) / 5003 - 1;
        cr_assert_eq(exo_array_init(&x[i], device, EXO_F32, counts[i], NULL), EXO_OK);
        if (i < 2)
            exo_array_send(x[i], numbers);
    }
    multiply(device, x, 0, ROWS, all);
    for (size_t skip = 0; skip < ROWS; skip += 61) {
        const size_t rows = ROWS - skip < 9 ? ROWS - skip : 9;
        multiply(device, x, skip, rows, few);
        cr_expect_arr_eq(few, all + skip * OUTPUTS, rows * OUTPUTS * sizeof(float), "row %zu",
                         skip);
    }
    for (size_t i = 0; i < 3; i++)
        exo_array_release(&x[i]);
    exo_cuda_close(device);
}
