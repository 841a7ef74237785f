/* Zero mismatch: a pass with `invariant` gives each token the log-probability that the generator
 * gave it, to the bit, for any batch of either side, any padding, and any number of threads. Its
 * gradients are those of an ordinary pass. Each test owns its decoder. Read next:
 * docs/generation.md; nn/cpu/invariant.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/generate.h>
#include <exogym/loss.h>
#include <exogym/memory.h>
#include <exogym/sequence.h>

#include "nn/device/device_impl.h"
#include "nn/ref/ref_device.h"
#include "support/sanitized.h"
#include "support/small_decoders.h"

enum {
    SEQUENCES = 9,
    LONGEST = 576 /* more positions than one span of attention */
};

/* What the generator gave. */
struct sample {
    int32_t tokens[LONGEST];
    float log_probs[LONGEST], plain[LONGEST]; /* of token t */
    size_t prompt, length;
};

static const size_t prompts[SEQUENCES] = {1, 3, 17, 33, 2, 1, 5, 40, 8};
static const size_t lengths[SEQUENCES] = {2, 31, 33, 70, 64, 17, 48, 69, 9};

static void
decoder_new(small_decoder *d, int kind, size_t context)
{
    exo_decoder_spec spec = small_decoder_spec(kind);
    spec.context = context;
    small_decoder_new(d, &spec, (uint64_t)kind + 1);
}

/* Samples sequence `id`, of which prompts and lengths are in `out`, with the others. */
static void
sample(const small_decoder *d, const exo_generator_opts *opts, const exo_sampling *sampling,
       size_t count, struct sample *out)
{
    exo_generator *g = NULL;
    exo_err err = {0};
    exo_generated done;
    cr_assert_eq(exo_generator_new(&g, &d->spec, d->params, opts, &err), EXO_OK, "%s", err.text);
    for (size_t next = 0; next < count || exo_generator_active(g) > 0;) {
        for (; next < count && exo_generator_room(g) > 0; next++) {
            struct sample *s = &out[next];
            exo_sampling one = *sampling;
            one.max_new_tokens = s->length - s->prompt;
            small_decoder_tokens(&d->spec, 100 + next, s->prompt, s->tokens);
            cr_assert_eq(exo_generator_submit(g, next, s->tokens, s->prompt, &one, &err), EXO_OK,
                         "%s", err.text);
        }
        cr_assert_eq(exo_generator_step(g, &err), EXO_OK, "%s", err.text);
        while (exo_generator_take(g, &done)) {
            struct sample *s = &out[done.id];
            cr_assert_eq(done.length, s->length);
            memcpy(s->tokens, done.tokens, done.length * sizeof *s->tokens);
            for (size_t t = s->prompt; t < s->length; t++) {
                s->log_probs[t] = done.log_probs[t - s->prompt];
                s->plain[t] = done.plain_log_probs[t - s->prompt];
            }
        }
    }
    exo_generator_free(&g);
}

/* The inputs of `count` samples from `first` on, padded with token 1 to `width`, and their targets:
 * -1 where there is none. */
static void
batch_of(const struct sample *samples, size_t first, size_t count, size_t width, int32_t *tokens,
         int32_t *targets)
{
    for (size_t i = 0; i < count; i++)
        for (size_t t = 0; t < width; t++) {
            const struct sample *s = &samples[first + i];
            tokens[i * width + t] = t < s->length ? s->tokens[t] : 1;
            targets[i * width + t] = t + 1 < s->length ? s->tokens[t + 1] : -1;
        }
}

/* How a pass computes the log-probabilities. */
struct way {
    size_t sequences, padding; /* sequences of a batch; tokens of padding after the longest */
    unsigned threads;
    bool grad, train;
    bool whole; /* the logits are one tensor; else a product with the head */
};

/* log_probs (count, width) of a batch, on the tape. */
static void
forward(const small_decoder *d, exo_tape *tape, const struct way *w, bool invariant,
        float temperature, const int32_t *tokens, const int32_t *targets, size_t count,
        size_t width, float *log_probs)
{
    const exo_pass pass = {.grad = w->grad, .train = w->train, .invariant = invariant};
    exo_err err = {0};
    exo_tape_begin(tape, d->params, &pass);
    exo_batch batch = {.size = count, .num_fields = 1};
    batch.fields[0] =
        (exo_field){.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {width}};
    batch.data[0] = (void *)(uintptr_t)tokens;
    exo_outputs outputs = exo_outputs_init((const char *const[]){"logits", NULL});
    cr_assert(exo_model_forward(d->model, tape, &batch, &outputs));
    exo_logits logits = exo_outputs_logits(&outputs, "logits");
    if (w->whole)
        logits = (exo_logits){.x = exo_outputs_get(&outputs, "logits")};
    size_t rows = count * width;
    exo_tensor *y =
        exo_log_probs(tape, logits, exo_tape_input(tape, EXO_I32, 1, &rows, targets), temperature);
    cr_assert_eq(exo_tape_error(tape, &err), EXO_OK, "%s", err.text);
    exo_tensor_read(y, log_probs);
}

/* Compares every new token of the samples. Returns the number of differences. */
static size_t
differences(const small_decoder *d, const struct way *w, bool invariant, float temperature,
            const struct sample *samples, size_t count)
{
    exo_tape *tape = NULL;
    size_t found = 0;
    exo_set_num_threads(w->threads);
    cr_assert_eq(exo_tape_new(&tape, NULL), EXO_OK);
    for (size_t first = 0; first < count; first += w->sequences) {
        size_t here = count - first < w->sequences ? count - first : w->sequences, width = 0;
        for (size_t i = 0; i < here; i++)
            width = samples[first + i].length > width ? samples[first + i].length : width;
        width += w->padding;
        width = width < d->spec.context ? width : d->spec.context;
        int32_t *tokens = calloc(here * width, 4), *targets = calloc(here * width, 4);
        float *got = calloc(here * width, sizeof *got);
        batch_of(samples, first, here, width, tokens, targets);
        forward(d, tape, w, invariant, temperature, tokens, targets, here, width, got);
        for (size_t i = 0; i < here; i++) {
            const struct sample *s = &samples[first + i];
            const float *want = temperature == 1.0f ? s->plain : s->log_probs;
            for (size_t t = s->prompt; t < s->length; t++)
                found += memcmp(&got[i * width + t - 1], &want[t], sizeof(float)) != 0;
        }
        free(tokens);
        free(targets);
        free(got);
    }
    exo_tape_free(&tape);
    exo_set_num_threads(2);
    return found;
}

static const struct way ways[] = {
    {.sequences = 1, .threads = 1, .grad = true, .train = true},
    {.sequences = 1, .threads = 3, .padding = 5},
    {.sequences = 4, .threads = 2, .grad = true},
    {.sequences = 9, .threads = 1, .padding = 30},
    {.sequences = 3, .threads = 5, .padding = 1, .grad = true, .whole = true},
};

enum {
    WAYS = sizeof ways / sizeof ways[0]
};

Test(mismatch, a_pass_has_the_bits_of_generation)
{
    static const float temperatures[] = {1.0f, 0.7f, 1.9f};
    static struct sample samples[SEQUENCES];
    for (int kind = 0; kind < SMALL_DECODERS; kind++)
        for (size_t k = 0; k < 3; k++) {
            small_decoder d;
            decoder_new(&d, kind, 72);
            for (size_t i = 0; i < SEQUENCES; i++)
                samples[i] = (struct sample){.prompt = prompts[i], .length = lengths[i]};
            exo_set_num_threads(k == 1 ? 3 : 1);
            sample(&d, &(exo_generator_opts){.sequences = 1 + 3 * k, .step_tokens = 20 - 6 * k},
                   &(exo_sampling){.temperature = temperatures[k], .seed = 5}, SEQUENCES, samples);
            for (size_t w = k % one_of(3); w < WAYS; w += one_of(3))
                for (size_t plain = 0; plain < 2; plain++) {
                    float temperature = plain ? 1.0f : temperatures[k];
                    cr_expect_eq(differences(&d, &ways[w], true, temperature, samples, SEQUENCES),
                                 0, "kind %d, way %zu, temperature %g", kind, w,
                                 (double)temperature);
                }
            small_decoder_free(&d);
        }
}

/* The ordinary pass rounds differently, so the comparison can tell. */
Test(mismatch, an_ordinary_pass_has_other_bits)
{
    static struct sample samples[SEQUENCES];
    small_decoder d;
    decoder_new(&d, 0, 72);
    for (size_t i = 0; i < SEQUENCES; i++)
        samples[i] = (struct sample){.prompt = prompts[i], .length = lengths[i]};
    sample(&d, &(exo_generator_opts){.sequences = 4}, &(exo_sampling){.temperature = 1}, SEQUENCES,
           samples);
    cr_expect_gt(differences(&d, &ways[0], false, 1, samples, SEQUENCES), 0);
    small_decoder_free(&d);
}

/* Filters renormalize the distribution of the draw: the plain log-probabilities are the pass's. */
Test(mismatch, filtered_sampling_has_plain_log_probs)
{
    static struct sample samples[SEQUENCES];
    small_decoder d;
    decoder_new(&d, 5, 72);
    for (size_t i = 0; i < SEQUENCES; i++)
        samples[i] = (struct sample){.prompt = prompts[i], .length = lengths[i]};
    sample(&d, &(exo_generator_opts){.sequences = 4},
           &(exo_sampling){
               .temperature = 0.8f, .top_k = 20, .top_p = 0.9f, .repetition_penalty = 1.2f},
           SEQUENCES, samples);
    for (size_t w = 0; w < WAYS; w++)
        cr_expect_eq(differences(&d, &ways[w], true, 1, samples, SEQUENCES), 0, "way %zu", w);
    small_decoder_free(&d);
}

/* Beyond the first span of 512 positions, and weights wider than a group of panels. */
Test(mismatch, long_and_wide)
{
    static struct sample samples[3];
    static const struct way few[] = {{.sequences = 1, .threads = 2, .grad = true},
                                     {.sequences = 3, .threads = 1, .padding = 3}};
    for (int kind = 0; kind < SMALL_DECODERS; kind += 2) {
        exo_decoder_spec spec = small_decoder_spec(kind);
        small_decoder d;
        spec.context = LONGEST;
        spec.layers = 1;
        spec.inner = 300;
        spec.vocabulary = 1027;
        small_decoder_new(&d, &spec, 7);
        samples[0] = (struct sample){.prompt = 500, .length = 530};
        samples[1] = (struct sample){.prompt = 570, .length = LONGEST};
        samples[2] = (struct sample){.prompt = 250, .length = 259};
        sample(&d, &(exo_generator_opts){.sequences = 3}, &(exo_sampling){.temperature = 0.9f}, 3,
               samples);
        for (size_t w = 0; w < 2; w++)
            cr_expect_eq(differences(&d, &few[w], true, 0.9f, samples, 3), 0, "kind %d, way %zu",
                         kind, w);
        small_decoder_free(&d);
    }
}

/* --- Gradients -------------------------------------------------------------------------------- */

/* The gradients of PPO's loss in a pass. The ratios of an invariant pass are exactly 1. */
static void
gradients(const small_decoder *d, bool invariant, const struct sample *samples, float *out)
{
    enum {
        WIDTH = 72
    };
    static int32_t tokens[SEQUENCES * WIDTH], targets[SEQUENCES * WIDTH];
    static float old[SEQUENCES * WIDTH], advantages[SEQUENCES * WIDTH], mask[SEQUENCES * WIDTH];
    size_t rows = (size_t)SEQUENCES * WIDTH, count = exo_params_numel(d->params);
    batch_of(samples, 0, SEQUENCES, WIDTH, tokens, targets);
    for (size_t i = 0; i < rows; i++) {
        const struct sample *s = &samples[i / WIDTH];
        size_t t = i % WIDTH + 1;
        mask[i] = t >= s->prompt && t < s->length;
        old[i] = mask[i] != 0.0f ? s->log_probs[t] : 0;
        advantages[i] = (float)((i * 7) % 11) - 5;
    }
    exo_tape *tape = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_tape_new(&tape, NULL), EXO_OK);
    exo_tape_begin(tape, d->params,
                   &(exo_pass){.grad = true, .train = true, .invariant = invariant});
    exo_batch batch = {.size = SEQUENCES, .num_fields = 1};
    batch.fields[0] =
        (exo_field){.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {WIDTH}};
    batch.data[0] = tokens;
    exo_outputs outputs = exo_outputs_init((const char *const[]){"logits", NULL});
    cr_assert(exo_model_forward(d->model, tape, &batch, &outputs));
    exo_tensor *log_probs = exo_log_probs(tape, exo_outputs_logits(&outputs, "logits"),
                                          exo_tape_input(tape, EXO_I32, 1, &rows, targets), 0.8f);
    exo_tensor *loss =
        exo_policy_loss(tape, log_probs, exo_tape_input(tape, EXO_F32, 1, &rows, old),
                        exo_tape_input(tape, EXO_F32, 1, &rows, advantages),
                        exo_tape_input(tape, EXO_F32, 1, &rows, mask), 0.2f);
    cr_assert_eq(exo_tape_error(tape, &err), EXO_OK, "%s", err.text);
    if (invariant) {
        static float now[SEQUENCES * WIDTH];
        exo_tensor_read(log_probs, now);
        for (size_t i = 0; i < rows; i++)
            cr_assert(mask[i] == 0.0f || expf(now[i] - old[i]) == 1.0f);
    }
    memset(exo_params_grads(d->params), 0, count * sizeof(float));
    cr_assert_eq(exo_tape_backward(tape, loss, 1, &err), EXO_OK, "%s", err.text);
    memcpy(out, exo_params_grads(d->params), count * sizeof *out);
    exo_tape_free(&tape);
}

Test(mismatch, gradients_are_those_of_an_ordinary_pass)
{
    static struct sample samples[SEQUENCES];
    for (int kind = 0; kind < SMALL_DECODERS; kind++)
        for (int checkpoint = 0; checkpoint < 2; checkpoint++) {
            exo_decoder_spec spec = small_decoder_spec(kind);
            small_decoder d;
            spec.context = 72;
            spec.checkpoint = checkpoint;
            small_decoder_new(&d, &spec, 3);
            for (size_t i = 0; i < SEQUENCES; i++)
                samples[i] = (struct sample){.prompt = prompts[i], .length = lengths[i]};
            sample(&d, &(exo_generator_opts){.sequences = 4}, &(exo_sampling){.temperature = 0.8f},
                   SEQUENCES, samples);
            size_t count = exo_params_numel(d.params);
            float *want = calloc(count, sizeof *want), *got = calloc(count, sizeof *got);
            gradients(&d, false, samples, want);
            gradients(&d, true, samples, got);
            for (size_t p = 0; p < exo_params_count(d.params); p++) {
                const exo_param_info *info = exo_params_info(d.params, p);
                double error = 0, size = 0;
                for (size_t i = info->offset; i < info->offset + info->numel; i++) {
                    error += pow((double)got[i] - (double)want[i], 2);
                    size += pow((double)want[i], 2);
                }
                cr_expect(size > 0 && sqrt(error / size) < 1e-5, "kind %d, %s: %g of %g", kind,
                          info->name, sqrt(error), sqrt(size));
            }
            free(want);
            free(got);
            small_decoder_free(&d);
        }
}

/* --- Errors ----------------------------------------------------------------------------------- */

static void
expect_error(exo_tape *tape, exo_status status, const char *part)
{
    exo_err err = {0};
    cr_expect_eq(exo_tape_error(tape, &err), status);
    cr_expect(strstr(err.text, part), "%s", err.text);
}

Test(mismatch, errors)
{
    exo_tape *tape = NULL;
    exo_device *reference = exo_device_ref();
    const size_t dims[2] = {8, 24};
    static float x[8 * 24];
    cr_assert_eq(exo_tape_new_on(&tape, reference, NULL), EXO_OK);
    exo_tape_begin(tape, NULL, &(exo_pass){.invariant = true});
    expect_error(tape, EXO_UNSUPPORTED, "use the device cpu");
    exo_tape_free(&tape);

    cr_assert_eq(exo_tape_new(&tape, NULL), EXO_OK);
    exo_tape_begin(tape, NULL, &(exo_pass){.invariant = true, .autocast = true});
    expect_error(tape, EXO_INVAL, "without autocast");
    exo_tape_begin(tape, NULL, &(exo_pass){.invariant = true, .train = true});
    exo_attention(tape, exo_tape_variable(tape, 2, dims, x),
                  &(exo_attention_opts){.sequence = 4, .heads = 1, .kv_heads = 1, .dropout = 0.1f});
    expect_error(tape, EXO_INVAL, "dropout");
    exo_tape_free(&tape);
}
