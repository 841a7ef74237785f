/* What equal bits of generation and training cost, beside ordinary passes, which round by the shape of the
 * batch and are the fastest ones that there are here. Prompts: a generator's first step over all prompts,
 * and an ordinary pass over the same tokens. Decoding: a generator's step, and an ordinary pass over
 * one token of each sequence, which has the same products but no cache of keys and values to attend to,
 * and draws nothing, so the ratio is an upper bound. Training: a step of PPO's loss over prompts and new
 * tokens, with `invariant` and without. An iteration of PPO: prompts, all new tokens, and the epochs.
 *
 *     bench_invariance [--size small|base|...] [--vocabulary N] [--batch N] [--prompt N] [--new N]
 *                      [--epochs N] [--rounds N] [--threads N] [--clock real|cpu]
 *
 * Both sides alternate. Prints times and the median of their ratios. `cpu` is the time of the processor,
 * which other processes disturb less; with several threads it counts those that wait, too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <exogym/decoder.h>
#include <exogym/generate.h>
#include <exogym/memory.h>
#include <exogym/parallel.h>

#include "limits.h"
#include "training.h"

enum {
    MAX_ROUNDS = 100
};

struct setting {
    const char *size;
    size_t vocabulary, batch, prompt, new_tokens, epochs, rounds;
};

/* Both sides. */
struct sides {
    const struct setting *s;
    exo_model *model;
    exo_params *params;
    exo_tape *tape;
    exo_generator *g;
    int32_t *tokens; /* (batch, prompt) */
    bench_training training;
    exo_batch samples; /* (batch, prompt + new_tokens) */
};

/* The parts of an iteration. */
enum {
    PROMPTS,
    STEP, /* one of new_tokens - 1 */
    TRAINING,
    ITERATION,
    PARTS
};

static clockid_t watch = CLOCK_MONOTONIC;

static double
seconds_now(void)
{
    struct timespec t;
    clock_gettime(watch, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* An ordinary pass over (batch, length) tokens. */
static exo_status
ordinary(struct sides *b, size_t length, double *seconds, exo_err *err)
{
    const exo_pass pass = {.seed = 1};
    exo_outputs outputs = exo_outputs_init((const char *const[]){"logits", NULL});
    exo_batch batch = {.size = b->s->batch, .num_fields = 1, .data = {b->tokens}};
    batch.fields[0] =
        (exo_field){.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {length}};
    double before = seconds_now();
    exo_tape_begin(b->tape, b->params, &pass);
    if (!exo_model_forward(b->model, b->tape, &batch, &outputs) ||
        !exo_outputs_get(&outputs, "logits"))
        return exo_tape_error(b->tape, err);
    *seconds = seconds_now() - before;
    return EXO_OK;
}

/* All prompts, then a mean step. */
static exo_status
generate(struct sides *b, uint64_t seed, double *prompts, double *step, exo_err *err)
{
    const struct setting *s = b->s;
    const exo_sampling sampling = {.temperature = 1, .max_new_tokens = s->new_tokens, .seed = seed};
    exo_generated done;
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < s->batch; i++)
        st = exo_generator_submit(b->g, i, b->tokens + i * s->prompt, s->prompt, &sampling, err);
    double before = seconds_now();
    if (st == EXO_OK)
        st = exo_generator_step(b->g, err);
    *prompts = seconds_now() - before;
    before = seconds_now();
    while (st == EXO_OK && exo_generator_active(b->g) > 0)
        st = exo_generator_step(b->g, err);
    *step = (seconds_now() - before) / (double)(s->new_tokens - 1);
    while (exo_generator_take(b->g, &done))
        ;
    return st;
}

/* A step of training, after one that is not timed: a step of the other kind makes new plans. */
static exo_status
train(struct sides *b, bool invariant, double *seconds, exo_err *err)
{
    double ignored = 0;
    b->training.invariant = invariant;
    exo_status st = bench_training_run(&b->training, &b->samples, 0, 1, &ignored, err);
    const double before = seconds_now();
    if (st == EXO_OK)
        st = bench_training_run(&b->training, &b->samples, 0, 1, &ignored, err);
    *seconds = seconds_now() - before;
    return st;
}

static exo_status
prepare_training(struct sides *b, const exo_decoder_spec *spec, exo_err *err)
{
    exo_model *model = NULL;
    exo_status st =
        bench_policy_batch(&b->samples, b->s->batch, spec->context, b->s->vocabulary, err);
    if (st == EXO_OK)
        st = exo_decoder_new(&model, spec, err);
    if (st == EXO_OK)
        st = bench_training_init(&b->training, model, "cpu", false, 1e-4f, err);
    b->training.loss_of = bench_policy_loss;
    return st;
}

static exo_status
prepare(struct sides *b, exo_err *err)
{
    const struct setting *s = b->s;
    exo_decoder_spec spec;
    const exo_generator_opts opts = {.sequences = s->batch,
                                     .context = s->prompt + s->new_tokens,
                                     .step_tokens = s->batch * s->prompt};
    exo_rng rng;
    exo_status st = exo_decoder_size(&spec, s->size, err);
    spec.vocabulary = s->vocabulary;
    spec.context = opts.context;
    b->tokens = exo_calloc(s->batch * s->prompt, sizeof *b->tokens);
    if (st == EXO_OK && !b->tokens)
        st = exo_fail(err, EXO_NOMEM, "no memory for tokens");
    if (st == EXO_OK)
        st = exo_decoder_new(&b->model, &spec, err);
    if (st == EXO_OK)
        st = exo_model_params(b->model, 1, &b->params, err);
    if (st == EXO_OK)
        st = exo_tape_new(&b->tape, err);
    if (st == EXO_OK)
        st = exo_generator_new(&b->g, &spec, b->params, &opts, err);
    if (st == EXO_OK)
        st = prepare_training(b, &spec, err);
    exo_rng_init(&rng, 1, EXO_RNG_USER, 0, 0);
    for (size_t i = 0; st == EXO_OK && i < s->batch * s->prompt; i++)
        b->tokens[i] = (int32_t)exo_rng_below(&rng, (uint32_t)s->vocabulary);
    return st;
}

/* One round: the seconds of each part, ordinary and with the bits of generation. */
static exo_status
play(struct sides *b, uint64_t seed, double plain[PARTS], double equal[PARTS], exo_err *err)
{
    const struct setting *s = b->s;
    const double steps = (double)(s->new_tokens - 1);
    double ignored = 0;
    exo_status st = ordinary(b, s->prompt, &ignored, err);
    if (st == EXO_OK)
        st = ordinary(b, s->prompt, &plain[PROMPTS], err);
    if (st == EXO_OK)
        st = generate(b, seed, &equal[PROMPTS], &equal[STEP], err);
    plain[STEP] = 0;
    for (size_t n = 0; st == EXO_OK && n < s->new_tokens; n++) {
        double seconds = 0;
        st = ordinary(b, 1, &seconds, err);
        plain[STEP] += n == 0 ? 0 : seconds / steps;
    }
    if (st == EXO_OK)
        st = train(b, false, &plain[TRAINING], err);
    if (st == EXO_OK)
        st = train(b, true, &equal[TRAINING], err);
    plain[ITERATION] = plain[PROMPTS] + steps * plain[STEP] + (double)s->epochs * plain[TRAINING];
    equal[ITERATION] = equal[PROMPTS] + steps * equal[STEP] + (double)s->epochs * equal[TRAINING];
    return st;
}

static exo_status
run(const struct setting *s, exo_err *err)
{
    static const char *const names[PARTS] = {"the prompts", "a step", "a step of training",
                                             "an iteration"};
    static double times[2][PARTS][MAX_ROUNDS], ratios[PARTS][MAX_ROUNDS];
    struct sides b = {.s = s};
    exo_status st = prepare(&b, err);
    for (size_t i = 0; st == EXO_OK && i <= s->rounds; i++) { /* the first one warms up */
        double plain[PARTS], equal[PARTS];
        st = play(&b, i, plain, equal, err);
        for (int p = 0; p < PARTS && i > 0; p++) {
            times[0][p][i - 1] = plain[p];
            times[1][p][i - 1] = equal[p];
            ratios[p][i - 1] = equal[p] / plain[p];
        }
    }
    for (int p = 0; st == EXO_OK && p < PARTS; p++)
        printf("%s: ordinary %.3f ms, equal bits %.3f ms, ratio %.3f\n", names[p],
               1e3 * bench_median(times[0][p], s->rounds),
               1e3 * bench_median(times[1][p], s->rounds), bench_median(ratios[p], s->rounds));
    bench_training_release(&b.training);
    bench_policy_batch_release(&b.samples);
    exo_generator_free(&b.g);
    exo_tape_free(&b.tape);
    exo_params_free(&b.params);
    exo_model_drop(&b.model);
    exo_free(b.tokens);
    return st;
}

int
main(int argc, char **argv)
{
    struct setting s = {.size = "small",
                        .vocabulary = 66,
                        .batch = 16,
                        .prompt = 64,
                        .new_tokens = 64,
                        .epochs = 4,
                        .rounds = 9};
    for (int i = 1; i + 1 < argc; i += 2) {
        size_t number = strtoul(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--size") == 0)
            s.size = argv[i + 1];
        else if (strcmp(argv[i], "--vocabulary") == 0)
            s.vocabulary = number;
        else if (strcmp(argv[i], "--batch") == 0)
            s.batch = number;
        else if (strcmp(argv[i], "--prompt") == 0)
            s.prompt = number;
        else if (strcmp(argv[i], "--new") == 0)
            s.new_tokens = number;
        else if (strcmp(argv[i], "--epochs") == 0)
            s.epochs = number;
        else if (strcmp(argv[i], "--clock") == 0)
            watch = strcmp(argv[i + 1], "cpu") == 0 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
        else if (strcmp(argv[i], "--rounds") == 0)
            s.rounds = number;
        else if (strcmp(argv[i], "--threads") == 0)
            exo_set_num_threads((unsigned)number);
    }
    if (s.vocabulary < 2 || s.batch < 1 || s.batch > 1024 || s.prompt < 1 || s.prompt > 1023 ||
        s.new_tokens < 2 || s.new_tokens > 1023 || s.epochs > 1000 || s.rounds < 1 ||
        s.rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: see the beginning of bench/invariance.c\n");
        return 2;
    }
    exo_err err = {0};
    if (run(&s, &err) == EXO_OK)
        return EXIT_SUCCESS;
    fprintf(stderr, "bench_invariance: %s\n", err.text);
    return EXIT_FAILURE;
}
