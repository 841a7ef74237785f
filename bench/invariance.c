/* What the bits of generation cost beside the ordinary forward pass, which rounds by the shape of the
 * batch and is the fastest one that there is here. Prompts: a generator's first step over all prompts,
 * and an ordinary pass over the same tokens. Decoding: a generator's step, and an ordinary pass over
 * one token of each sequence, which has the same products but no cache of keys and values to attend to,
 * and draws nothing, so the ratio is an upper bound.
 *
 *     bench_invariance [--size small|base|...] [--vocabulary N] [--batch N] [--prompt N] [--new N]
 *                      [--rounds N] [--threads N]
 *
 * Both sides alternate. Prints seconds of the processor, and the median of their ratios. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <exogym/decoder.h>
#include <exogym/generate.h>
#include <exogym/memory.h>
#include <exogym/parallel.h>

#include "limits.h"

enum {
    MAX_ROUNDS = 100
};

struct setting {
    const char *size;
    size_t vocabulary, batch, prompt, new_tokens, rounds;
};

/* Both sides. */
struct sides {
    const struct setting *s;
    exo_model *model;
    exo_params *params;
    exo_tape *tape;
    exo_generator *g;
    int32_t *tokens; /* (batch, prompt) */
};

static double
cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
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
    double before = cpu_seconds();
    exo_tape_begin(b->tape, b->params, &pass);
    if (!exo_model_forward(b->model, b->tape, &batch, &outputs) ||
        !exo_outputs_get(&outputs, "logits"))
        return exo_tape_error(b->tape, err);
    *seconds = cpu_seconds() - before;
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
    double before = cpu_seconds();
    if (st == EXO_OK)
        st = exo_generator_step(b->g, err);
    *prompts = cpu_seconds() - before;
    before = cpu_seconds();
    while (st == EXO_OK && exo_generator_active(b->g) > 0)
        st = exo_generator_step(b->g, err);
    *step = (cpu_seconds() - before) / (double)(s->new_tokens - 1);
    while (exo_generator_take(b->g, &done))
        ;
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
    exo_rng_init(&rng, 1, EXO_RNG_USER, 0, 0);
    for (size_t i = 0; st == EXO_OK && i < s->batch * s->prompt; i++)
        b->tokens[i] = (int32_t)exo_rng_below(&rng, (uint32_t)s->vocabulary);
    return st;
}

static exo_status
run(const struct setting *s, exo_err *err)
{
    static double times[4][MAX_ROUNDS], ratios[2][MAX_ROUNDS];
    struct sides b = {.s = s};
    double ignored = 0;
    exo_status st = prepare(&b, err);
    for (size_t i = 0; st == EXO_OK && i <= s->rounds; i++) { /* the first one warms up */
        size_t k = i > 0 ? i - 1 : 0;
        st = ordinary(&b, s->prompt, &ignored, err);
        if (st == EXO_OK)
            st = ordinary(&b, s->prompt, &times[0][k], err);
        if (st == EXO_OK)
            st = generate(&b, i, &times[1][k], &times[3][k], err);
        for (size_t n = 0; st == EXO_OK && n < s->new_tokens; n++) {
            double seconds = 0;
            st = ordinary(&b, 1, &seconds, err);
            times[2][k] = n == 0 ? 0 : times[2][k] + seconds / (double)(s->new_tokens - 1);
        }
        ratios[0][k] = times[1][k] / times[0][k];
        ratios[1][k] = times[3][k] / times[2][k];
    }
    for (int i = 0; st == EXO_OK && i < 2; i++)
        printf("%s: ordinary %.3f ms, generation %.3f ms, ratio %.3f\n",
               i ? "a step" : "the prompts", 1e3 * bench_median(times[2 * i], s->rounds),
               1e3 * bench_median(times[2 * i + 1], s->rounds), bench_median(ratios[i], s->rounds));
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
        else if (strcmp(argv[i], "--rounds") == 0)
            s.rounds = number;
        else if (strcmp(argv[i], "--threads") == 0)
            exo_set_num_threads((unsigned)number);
    }
    if (s.vocabulary < 2 || s.batch < 1 || s.batch > 1024 || s.prompt < 1 || s.prompt > 1023 ||
        s.new_tokens < 2 || s.new_tokens > 1023 || s.rounds < 1 || s.rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: see the beginning of bench/invariance.c\n");
        return 2;
    }
    exo_err err = {0};
    if (run(&s, &err) == EXO_OK)
        return EXIT_SUCCESS;
    fprintf(stderr, "bench_invariance: %s\n", err.text);
    return EXIT_FAILURE;
}
