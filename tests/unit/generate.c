/* Generation: logits against plain loops; a sequence is the same alone and in any batch, in any
 * pieces and with any number of threads; also ends of sequences, swapped weights, memory and
 * errors. Each test owns its generator. Read next: exogym/generate.h, support/small_decoders.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/generate.h>
#include <exogym/memory.h>

#include "base/memory_fault.h"
#include "support/decoders.h"
#include "support/small_decoders.h"

enum {
    TOKENS = 40,
    FORMATS = 3
};

static const exo_weight_format formats[FORMATS] = {EXO_WEIGHTS_F32, EXO_WEIGHTS_INT8,
                                                   EXO_WEIGHTS_INT4};

static exo_generator *
generator_new(const small_decoder *d, const exo_generator_opts *opts)
{
    exo_generator *g = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_generator_new(&g, &d->spec, d->params, opts, &err), EXO_OK, "%s", err.text);
    return g;
}

static void
submit(exo_generator *g, uint64_t id, const int32_t *prompt, size_t count,
       const exo_sampling *sampling)
{
    exo_err err = {0};
    cr_assert_eq(exo_generator_submit(g, id, prompt, count, sampling, &err), EXO_OK, "%s",
                 err.text);
}

/* --- Logits ----------------------------------------------------------------------------------- */

Test(generate, logits_are_the_plain_ones)
{
    for (int kind = 0; kind < SMALL_DECODERS; kind++) {
        const exo_decoder_spec spec = small_decoder_spec(kind);
        small_decoder d;
        small_decoder_new(&d, &spec, 1);
        int32_t tokens[TOKENS];
        small_decoder_tokens(&spec, 2, TOKENS, tokens);
        double *want = small_decoder_logits(&d, tokens, TOKENS), largest = 0;
        float *got = calloc(TOKENS * spec.vocabulary, sizeof *got);
        exo_generator *g = generator_new(&d, NULL);
        cr_assert_eq(exo_generator_logits(g, tokens, TOKENS, got, NULL), EXO_OK);
        for (size_t i = 0; i < TOKENS * spec.vocabulary; i++) {
            largest = fmax(largest, fabs(want[i]));
            cr_assert_float_eq((double)got[i], want[i], 1e-4,
                               "kind %d, token %zu, logit %zu: %g, not %g", kind,
                               i / spec.vocabulary, i % spec.vocabulary, (double)got[i], want[i]);
        }
        cr_expect_gt(largest, 2, "kind %d: logits are of a size that tells", kind);
        exo_generator_free(&g);
        small_decoder_free(&d);
        free(want);
        free(got);
    }
}

/* The logits equal the output "logits" of a training pass. */
Test(generate, logits_are_those_of_the_tape)
{
    for (int kind = 0; kind < SMALL_DECODERS; kind++) {
        const exo_decoder_spec spec = small_decoder_spec(kind);
        small_decoder d;
        small_decoder_new(&d, &spec, 26);
        int32_t tokens[TOKENS];
        small_decoder_tokens(&spec, 27, TOKENS, tokens);
        size_t count = TOKENS * spec.vocabulary;
        float *want = calloc(count, sizeof *want), *got = calloc(count, sizeof *got);
        exo_tape *tape = NULL;
        cr_assert_eq(exo_tape_new(&tape, NULL), EXO_OK);
        exo_tape_begin(tape, d.params, &(exo_pass){0});
        exo_tensor *logits = decoders_output(d.model, tape, "logits", tokens, 1, TOKENS);
        exo_err err = {0};
        cr_assert_eq(exo_tape_error(tape, &err), EXO_OK, "%s", err.text);
        exo_tensor_read(logits, want);
        exo_generator *g = generator_new(&d, NULL);
        cr_assert_eq(exo_generator_logits(g, tokens, TOKENS, got, NULL), EXO_OK);
        for (size_t i = 0; i < count; i++)
            cr_assert_float_eq((double)got[i], (double)want[i], 1e-4, "kind %d, logit %zu", kind,
                               i);
        exo_tape_free(&tape);
        exo_generator_free(&g);
        small_decoder_free(&d);
        free(want);
        free(got);
    }
}

/* The logits are the same to the bit however the text is cut into passes, in each format. So they
 * are the same with and without a cache. */
Test(generate, logits_do_not_depend_on_the_pieces)
{
    static const size_t pieces[] = {64, 1, 7, 13, 31};
    for (int kind = 0; kind < SMALL_DECODERS; kind++)
        for (int format = 0; format < FORMATS; format++) {
            const exo_decoder_spec spec = small_decoder_spec(kind);
            small_decoder d;
            small_decoder_new(&d, &spec, 3);
            int32_t tokens[TOKENS];
            small_decoder_tokens(&spec, 4, TOKENS, tokens);
            size_t bytes = TOKENS * spec.vocabulary * sizeof(float);
            float *want = malloc(bytes), *got = malloc(bytes);
            for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
                exo_generator *g =
                    generator_new(&d, &(exo_generator_opts){.weights = formats[format],
                                                            .step_tokens = pieces[i]});
                cr_assert_eq(exo_generator_logits(g, tokens, TOKENS, i == 0 ? want : got, NULL),
                             EXO_OK);
                if (i > 0)
                    cr_assert_arr_eq(got, want, bytes, "kind %d, format %d, pieces of %zu", kind,
                                     format, pieces[i]);
                exo_generator_free(&g);
            }
            small_decoder_free(&d);
            free(want);
            free(got);
        }
}

/* Quantized weights give similar logits: for these weights int8 is within 4 % of the logits' size,
 * int4 within 30 %. */
Test(generate, quantized_logits_are_near)
{
    for (int kind = 0; kind < SMALL_DECODERS; kind++) {
        const exo_decoder_spec spec = small_decoder_spec(kind);
        small_decoder d;
        small_decoder_new(&d, &spec, 5);
        int32_t tokens[TOKENS];
        small_decoder_tokens(&spec, 6, TOKENS, tokens);
        size_t count = TOKENS * spec.vocabulary;
        float *logits[FORMATS];
        double error[FORMATS] = {0}, size = 0;
        for (int format = 0; format < FORMATS; format++) {
            exo_generator *g = generator_new(&d, &(exo_generator_opts){.weights = formats[format]});
            logits[format] = calloc(count, sizeof **logits);
            cr_assert_eq(exo_generator_logits(g, tokens, TOKENS, logits[format], NULL), EXO_OK);
            exo_generator_free(&g);
        }
        for (size_t i = 0; i < count; i++)
            size += pow((double)logits[0][i], 2);
        for (int format = 1; format < FORMATS; format++) {
            for (size_t i = 0; i < count; i++)
                error[format] += pow((double)(logits[format][i] - logits[0][i]), 2);
            error[format] = sqrt(error[format] / size);
        }
        cr_expect(error[1] > 1e-4 && error[1] < 0.04, "kind %d, int8: %g", kind, error[1]);
        cr_expect(error[2] > error[1] && error[2] < 0.3, "kind %d, int4: %g", kind, error[2]);
        for (int format = 0; format < FORMATS; format++)
            free(logits[format]);
        small_decoder_free(&d);
    }
}

Test(generate, the_mean_likelihood_is_that_of_the_logits)
{
    enum {
        WINDOW = 12
    };
    const exo_decoder_spec spec = small_decoder_spec(0);
    small_decoder d;
    small_decoder_new(&d, &spec, 7);
    int32_t tokens[TOKENS];
    small_decoder_tokens(&spec, 8, TOKENS, tokens);
    double want = 0, got = 0;
    for (size_t first = 0; first + 1 < TOKENS; first += WINDOW) {
        size_t inputs = TOKENS - 1 - first < WINDOW ? TOKENS - 1 - first : WINDOW;
        double *logits = small_decoder_logits(&d, tokens + first, inputs);
        for (size_t t = 0; t < inputs; t++) {
            double sum = 0;
            for (size_t v = 0; v < spec.vocabulary; v++)
                sum += exp(logits[t * spec.vocabulary + v]);
            want += log(sum) - logits[t * spec.vocabulary + (size_t)tokens[first + t + 1]];
        }
        free(logits);
    }
    exo_generator *g = generator_new(&d, &(exo_generator_opts){.step_tokens = 5});
    cr_assert_eq(exo_generator_nll(g, tokens, TOKENS, WINDOW, &got, NULL), EXO_OK);
    cr_expect_float_eq(got, want / (TOKENS - 1), 1e-5);
    exo_generator_free(&g);
    small_decoder_free(&d);
}

/* --- Sequences -------------------------------------------------------------------------------- */

/* A copy of a finished sequence, zero behind its end and without bytes between its fields, so that
 * memcmp compares it. */
struct kept {
    uint64_t id;
    int32_t tokens[64];
    float log_probs[64], plain_log_probs[64];
    size_t prompt, length;
    uint64_t finish;
};

static struct kept
keep(const exo_generated *s)
{
    struct kept k = {
        .id = s->id, .prompt = s->prompt, .length = s->length, .finish = (uint64_t)s->finish};
    memcpy(k.tokens, s->tokens, s->length * sizeof *s->tokens);
    memcpy(k.log_probs, s->log_probs, (s->length - s->prompt) * sizeof(float));
    memcpy(k.plain_log_probs, s->plain_log_probs, (s->length - s->prompt) * sizeof(float));
    return k;
}

enum {
    MANY = 23
};

/* Sequence `id`: a prompt of 1 to 11 tokens and varied samplings, so that sequences end at
 * different times. */
static size_t
prompt_of(const exo_decoder_spec *spec, uint64_t id, int32_t *tokens, exo_sampling *sampling)
{
    static const int32_t stop[] = {3,  7,  17,  21,  40,  53,  61,  76,
                                   89, 94, 108, 117, 122, 139, 144, 158};
    size_t count = 1 + id * 7 % 11;
    small_decoder_tokens(spec, 100 + id, count, tokens);
    *sampling = (exo_sampling){
        .temperature = id % 5 == 0 ? 0 : 1.5f + 0.5f * (float)(id % 4),
        .top_k = id % 3 == 0 ? 0 : 5 + id,
        .top_p = id % 2 == 0 ? 0.9f : 1,
        .repetition_penalty = id % 4 == 0 ? 1.3f : 1,
        .max_new_tokens = id % 6 == 0 ? 0 : 3 + id,
        .stop_tokens = stop,
        .num_stop_tokens = id % 2 ? 16 : 0,
        .seed = 9,
    };
    return count;
}

/* Runs all MANY sequences through one generator, each as soon as there is room. */
static void
run_many(const small_decoder *d, const exo_generator_opts *opts, struct kept *out)
{
    exo_generator *g = generator_new(d, opts);
    uint64_t next = 0;
    size_t done = 0;
    exo_generated s;
    while (done < MANY) {
        for (; next < MANY && exo_generator_room(g) > 0; next++) {
            int32_t prompt[16];
            exo_sampling sampling;
            size_t count = prompt_of(&d->spec, next, prompt, &sampling);
            submit(g, next, prompt, count, &sampling);
        }
        cr_assert_eq(exo_generator_step(g, NULL), EXO_OK);
        for (; exo_generator_take(g, &s); done++)
            out[s.id] = keep(&s);
    }
    cr_expect_eq(exo_generator_active(g), 0);
    cr_expect_eq(exo_generator_room(g), exo_generator_options(g)->sequences);
    exo_generator_free(&g);
}

static void
expect_same(const struct kept *got, const struct kept *want, const char *what)
{
    for (size_t i = 0; i < MANY; i++)
        cr_expect_eq(memcmp(&got[i], &want[i], sizeof *got), 0, "%s: sequence %zu is another", what,
                     i);
}

Test(generate, a_sequence_is_the_same_alone_and_in_any_batch)
{
    for (int format = 0; format < FORMATS; format++) {
        const exo_decoder_spec spec = small_decoder_spec(format == 1 ? 4 : 0);
        small_decoder d;
        small_decoder_new(&d, &spec, 10);
        static struct kept alone[MANY], many[MANY];
        memset(alone, 0, sizeof alone);
        memset(many, 0, sizeof many);
        exo_generator_opts opts = {.weights = formats[format]};
        run_many(&d, &opts, alone);
        opts.sequences = 5;
        run_many(&d, &opts, many);
        expect_same(many, alone, "5 at once");
        opts.sequences = MANY;
        run_many(&d, &opts, many); /* more rows in a pass than a block of a product has */
        expect_same(many, alone, "all at once");
        opts.step_tokens = MANY;
        run_many(&d, &opts, many);
        expect_same(many, alone, "all at once, prompts in pieces");
        exo_set_num_threads(1);
        run_many(&d, &opts, many);
        expect_same(many, alone, "1 thread");
        exo_set_num_threads(5);
        run_many(&d, &opts, many);
        expect_same(many, alone, "5 threads");
        exo_set_num_threads(2);
        size_t lengths = 0, stops = 0, contexts = 0;
        for (size_t i = 0; i < MANY; i++) {
            lengths += alone[i].finish == EXO_FINISH_LENGTH;
            stops += alone[i].finish == EXO_FINISH_STOP;
            contexts += alone[i].finish == EXO_FINISH_CONTEXT;
        }
        cr_expect(lengths > 0 && stops > 0 && contexts > 0,
                  "they end for every reason: %zu, %zu, %zu", lengths, stops, contexts);
        small_decoder_free(&d);
    }
}

/* A sequence's tokens are chosen again from the logits of the whole text, which need no cache. */
Test(generate, greedy_tokens_are_those_of_the_whole_text)
{
    const exo_decoder_spec spec = small_decoder_spec(3);
    small_decoder d;
    small_decoder_new(&d, &spec, 11);
    exo_generator *g = generator_new(&d, NULL);
    int32_t prompt[5];
    small_decoder_tokens(&spec, 12, 5, prompt);
    submit(g, 1, prompt, 5, &(exo_sampling){.max_new_tokens = 20});
    while (exo_generator_active(g) > 0)
        cr_assert_eq(exo_generator_step(g, NULL), EXO_OK);
    exo_generated s;
    cr_assert(exo_generator_take(g, &s));
    cr_assert_eq(s.length, 25);
    float *logits = calloc(s.length * spec.vocabulary, sizeof *logits);
    cr_assert_eq(exo_generator_logits(g, s.tokens, s.length, logits, NULL), EXO_OK);
    for (size_t t = s.prompt; t < s.length; t++) {
        const float *row = logits + (t - 1) * spec.vocabulary;
        size_t best = 0;
        double sum = 0;
        for (size_t v = 0; v < spec.vocabulary; v++)
            best = row[v] > row[best] ? v : best;
        for (size_t v = 0; v < spec.vocabulary; v++)
            sum += exp((double)(row[v] - row[best]));
        cr_expect_eq((size_t)s.tokens[t], best, "token %zu", t);
        cr_expect_eq(s.log_probs[t - s.prompt], 0, "nothing else could be drawn");
        cr_expect_float_eq((double)s.plain_log_probs[t - s.prompt], -log(sum), 1e-5);
    }
    free(logits);
    exo_generator_free(&g);
    small_decoder_free(&d);
}

Test(generate, the_first_token_that_stops_is_the_last)
{
    const exo_decoder_spec spec = small_decoder_spec(0);
    small_decoder d;
    small_decoder_new(&d, &spec, 13);
    exo_generator *g = generator_new(&d, NULL);
    int32_t prompt[3], stop;
    small_decoder_tokens(&spec, 14, 3, prompt);
    exo_sampling sampling = {.temperature = 1, .seed = 4, .max_new_tokens = 10};
    exo_generated s;
    submit(g, 1, prompt, 3, &sampling);
    while (!exo_generator_take(g, &s))
        cr_assert_eq(exo_generator_step(g, NULL), EXO_OK);
    cr_assert_eq(s.finish, EXO_FINISH_LENGTH);
    cr_assert_eq(s.length, 13);
    int32_t before[13];
    memcpy(before, s.tokens, sizeof before);
    stop = s.tokens[8];
    sampling.stop_tokens = &stop;
    sampling.num_stop_tokens = 1;
    submit(g, 1, prompt, 3, &sampling);
    stop = 0; /* the generator has copied them */
    while (!exo_generator_take(g, &s))
        cr_assert_eq(exo_generator_step(g, NULL), EXO_OK);
    size_t first = 3;
    while (before[first] != before[8])
        first++;
    cr_expect_eq(s.finish, EXO_FINISH_STOP);
    cr_expect_eq(s.length, first + 1);
    cr_expect_arr_eq(s.tokens, before, s.length * sizeof *before);
    exo_generator_free(&g);
    small_decoder_free(&d);
}

Test(generate, the_context_is_an_end_and_prompts_fit_into_it)
{
    const exo_decoder_spec spec = small_decoder_spec(1);
    small_decoder d;
    small_decoder_new(&d, &spec, 15);
    exo_generator *g = generator_new(&d, &(exo_generator_opts){.context = 10, .sequences = 2});
    int32_t prompt[10];
    exo_err err = {0};
    exo_sampling greedy = {0};
    small_decoder_tokens(&spec, 16, 10, prompt);
    cr_expect_eq(exo_generator_submit(g, 1, prompt, 10, &greedy, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "10 tokens") && strstr(err.text, "context 10"), "%s", err.text);
    submit(g, 1, prompt, 9, &greedy);
    submit(g, 2, prompt, 7, &greedy);
    exo_generated s;
    while (exo_generator_active(g) > 0)
        cr_assert_eq(exo_generator_step(g, NULL), EXO_OK);
    for (int i = 0; i < 2; i++) {
        cr_assert(exo_generator_take(g, &s));
        cr_expect_eq(s.finish, EXO_FINISH_CONTEXT);
        cr_expect_eq(s.length, 10);
    }
    exo_generator_free(&g);
    small_decoder_free(&d);
}

Test(generate, weights_can_be_swapped_between_steps)
{
    const exo_decoder_spec spec = small_decoder_spec(0);
    small_decoder d, other;
    small_decoder_new(&d, &spec, 17);
    small_decoder_new(&other, &spec, 18);
    for (int format = 0; format < FORMATS; format++) {
        exo_generator *g = generator_new(&d, &(exo_generator_opts){.weights = formats[format]});
        exo_generator *h = generator_new(&other, &(exo_generator_opts){.weights = formats[format]});
        int32_t tokens[TOKENS];
        small_decoder_tokens(&spec, 19, TOKENS, tokens);
        size_t bytes = TOKENS * spec.vocabulary * sizeof(float);
        float *want = malloc(bytes), *got = malloc(bytes);
        cr_assert_eq(exo_generator_logits(g, tokens, TOKENS, got, NULL), EXO_OK);
        cr_assert_eq(exo_generator_logits(h, tokens, TOKENS, want, NULL), EXO_OK);
        cr_expect_arr_neq(got, want, bytes);
        cr_assert_eq(exo_generator_set_weights(g, other.params, NULL), EXO_OK);
        cr_assert_eq(exo_generator_logits(g, tokens, TOKENS, got, NULL), EXO_OK);
        cr_expect_arr_eq(got, want, bytes, "format %d: nothing of the old weights is left", format);
        free(want);
        free(got);
        exo_generator_free(&g);
        exo_generator_free(&h);
    }
    small_decoder_free(&d);
    small_decoder_free(&other);
}

Test(generate, a_sequence_goes_on_over_a_swap)
{
    const exo_decoder_spec spec = small_decoder_spec(0);
    small_decoder d;
    small_decoder_new(&d, &spec, 20);
    exo_generator *g = generator_new(&d, NULL);
    int32_t prompt[4];
    small_decoder_tokens(&spec, 21, 4, prompt);
    submit(g, 1, prompt, 4, &(exo_sampling){.max_new_tokens = 8});
    exo_generated s;
    for (int i = 0; i < 4; i++)
        cr_assert_eq(exo_generator_step(g, NULL), EXO_OK);
    small_decoder_refill(&d, 22);
    cr_assert_eq(exo_generator_set_weights(g, d.params, NULL), EXO_OK);
    while (!exo_generator_take(g, &s))
        cr_assert_eq(exo_generator_step(g, NULL), EXO_OK);
    cr_expect_eq(s.length, 12);
    cr_expect_eq(s.finish, EXO_FINISH_LENGTH);
    exo_generator_free(&g);
    small_decoder_free(&d);
}

Test(generate, broken_weights_end_a_sequence_and_no_other)
{
    const exo_decoder_spec spec = small_decoder_spec(0);
    for (int format = 0; format < FORMATS; format++) {
        small_decoder d;
        small_decoder_new(&d, &spec, 23);
        /* in token 5's embedding, which is also its row of the head */
        exo_params_values(d.params)[5 * spec.width + 1] = NAN;
        for (size_t i = 0; i < exo_params_count(d.params); i++) {
            const exo_param_info *p = exo_params_info(d.params, i);
            if (strcmp(p->name, "blocks.1.mlp.up.weight") == 0)
                exo_params_values(d.params)[p->offset + 3] = NAN;
        }
        exo_generator *g = generator_new(&d, &(exo_generator_opts){.weights = formats[format]});
        submit(g, 1, (int32_t[]){1, 2}, 2, &(exo_sampling){0});
        cr_assert_eq(exo_generator_step(g, NULL), EXO_OK);
        exo_generated s;
        cr_assert(exo_generator_take(g, &s), "format %d", format);
        cr_expect_eq(s.finish, EXO_FINISH_NOT_FINITE);
        cr_expect_eq(s.length, 2);
        double mean;
        exo_err err = {0};
        cr_expect_eq(exo_generator_nll(g, (int32_t[]){1, 2, 3}, 3, 0, &mean, &err), EXO_FAILED);
        exo_generator_free(&g);
        small_decoder_free(&d);
    }
}

Test(generate, memory_is_what_is_said)
{
    /* heads of width 18, 1 key-value head, 3 layers */
    const exo_decoder_spec spec = small_decoder_spec(5);
    small_decoder d;
    small_decoder_new(&d, &spec, 24);
    exo_generator *g = generator_new(&d, &(exo_generator_opts){.sequences = 7, .context = 33});
    cr_expect_eq(exo_generator_cache_bytes(g), 4u * 7 * 3 * 1 * (48 * 18 + 33 * 32));
    size_t fp32 = exo_generator_weight_bytes(g);
    cr_expect_geq(fp32, 4 * exo_params_numel(d.params));
    exo_generator_free(&g);
    g = generator_new(&d, &(exo_generator_opts){.weights = EXO_WEIGHTS_INT8});
    size_t int8 = exo_generator_weight_bytes(g);
    exo_generator_free(&g);
    g = generator_new(&d, &(exo_generator_opts){.weights = EXO_WEIGHTS_INT4});
    cr_expect_lt(int8, fp32);
    cr_expect_lt(exo_generator_weight_bytes(g), int8);
    exo_generator_free(&g);
    small_decoder_free(&d);
}

/* A cache of terabytes is refused before any memory is allocated. */
Test(generate, caches_that_do_not_fit_are_refused)
{
    exo_decoder_spec spec = small_decoder_spec(3);
    small_decoder d;
    exo_generator *g = NULL;
    exo_err err = {0};
    spec.context = 1 << 20;
    small_decoder_new(&d, &spec, 24);
    const exo_generator_opts opts = {.sequences = 65536};
    cr_expect_eq(exo_generator_new(&g, &spec, d.params, &opts, &err), EXO_NOMEM);
    cr_expect(strstr(err.text, "65536 sequences of up to 1048576 tokens take "), "%s", err.text);
    cr_expect(strstr(err.text, "a shorter context"), "%s", err.text);
    small_decoder_free(&d);
}

/* Each allocation of exo_generator_new fails in turn, and nothing leaks. After that, submitting and
 * steps allocate nothing. */
Test(generate, memory_that_is_missing_is_said)
{
    const exo_decoder_spec spec = small_decoder_spec(4);
    small_decoder d;
    small_decoder_new(&d, &spec, 28);
    const exo_generator_opts opts = {.weights = EXO_WEIGHTS_INT4, .sequences = 2};
    exo_generator *g = NULL;
    uint64_t failed = 0;
    for (;; failed++) {
        exo_err err = {0};
        exo_memory_fail_at(failed + 1);
        exo_status st = exo_generator_new(&g, &spec, d.params, &opts, &err);
        exo_memory_fail_at(0);
        if (st == EXO_OK)
            break;
        cr_assert_eq(st, EXO_NOMEM, "allocation %zu", (size_t)failed);
        cr_assert(strstr(err.text, "memory"), "%s", err.text);
        cr_assert_null(g);
    }
    cr_expect_gt(failed, 30);
    uint64_t before = exo_memory_allocations();
    submit(g, 1, (int32_t[]){1, 2, 3}, 3, &(exo_sampling){.temperature = 1, .top_p = 0.5f});
    while (exo_generator_active(g) > 0)
        cr_assert_eq(exo_generator_step(g, NULL), EXO_OK);
    cr_expect_eq(exo_memory_allocations(), before);
    exo_generator_free(&g);
    small_decoder_free(&d);
}

/* --- Errors ----------------------------------------------------------------------------------- */

#define FAILS(call, status, word)                                                                  \
    do {                                                                                           \
        err = (exo_err){0};                                                                        \
        cr_expect_eq(call, status, "%s", #call);                                                   \
        cr_expect(strstr(err.text, word), "%s: '%s' does not say %s", #call, err.text, word);      \
    } while (0)

Test(generate, mistakes_are_named)
{
    exo_decoder_spec spec = small_decoder_spec(0), wide = spec;
    small_decoder d, other;
    exo_err err;
    small_decoder_new(&d, &spec, 25);
    wide.inner = 65;
    small_decoder_new(&other, &wide, 25);
    exo_generator *g = NULL;
    FAILS(exo_generator_new(&g, &wide, d.params, NULL, &err), EXO_INVAL, "blocks.0.mlp.up.weight");
    FAILS(exo_generator_new(&g, &spec, d.params, &(exo_generator_opts){.context = 49}, &err),
          EXO_INVAL, "49");
    FAILS(exo_generator_new(&g, &spec, d.params, &(exo_generator_opts){.sequences = 70000}, &err),
          EXO_INVAL, "70000");
    FAILS(exo_generator_new(&g, &spec, d.params,
                            &(exo_generator_opts){.sequences = 9, .step_tokens = 8}, &err),
          EXO_INVAL, "8 tokens a step");
    const exo_generator_opts wider = {.step_tokens = 262145};
    FAILS(exo_generator_new(&g, &spec, d.params, &wider, &err), EXO_INVAL, "at most 262144");
    wide = spec;
    wide.head_width = 600;
    FAILS(exo_generator_new(&g, &wide, d.params, NULL, &err), EXO_UNSUPPORTED, "600");
    wide = spec;
    wide.kv_heads = 3;
    FAILS(exo_generator_new(&g, &wide, d.params, NULL, &err), EXO_INVAL, "3");
    cr_assert_null(g);

    g = generator_new(&d, &(exo_generator_opts){.sequences = 2});
    int32_t prompt[] = {1, 2, 160}, stop = -1;
    exo_sampling s = {.temperature = 1};
    FAILS(exo_generator_submit(g, 1, prompt, 0, &s, &err), EXO_INVAL, "empty");
    FAILS(exo_generator_submit(g, 1, prompt, 3, &s, &err), EXO_INVAL, "160");
    FAILS(exo_generator_submit(g, UINT64_C(1) << 56, prompt, 2, &s, &err), EXO_INVAL, "2^56");
    s.temperature = -1;
    FAILS(exo_generator_submit(g, 1, prompt, 2, &s, &err), EXO_INVAL, "temperature");
    s.temperature = 1e-45f; /* its reciprocal is infinite */
    FAILS(exo_generator_submit(g, 1, prompt, 2, &s, &err), EXO_INVAL, "temperature");
    s = (exo_sampling){.top_p = 1.5f};
    FAILS(exo_generator_submit(g, 1, prompt, 2, &s, &err), EXO_INVAL, "top_p");
    s = (exo_sampling){.repetition_penalty = NAN};
    FAILS(exo_generator_submit(g, 1, prompt, 2, &s, &err), EXO_INVAL, "repetition_penalty");
    s = (exo_sampling){.stop_tokens = &stop, .num_stop_tokens = 1};
    FAILS(exo_generator_submit(g, 1, prompt, 2, &s, &err), EXO_INVAL, "stop token -1");
    s = (exo_sampling){0};
    submit(g, 1, prompt, 2, &s);
    FAILS(exo_generator_submit(g, 1, prompt, 2, &s, &err), EXO_EXISTS, "1");
    submit(g, 2, prompt, 2, &s);
    FAILS(exo_generator_submit(g, 3, prompt, 2, &s, &err), EXO_FULL, "2 places");
    float logits[160];
    FAILS(exo_generator_logits(g, prompt, 1, logits, &err), EXO_FULL, "2 places");
    FAILS(exo_generator_cancel(g, 7, &err), EXO_NOT_FOUND, "7");
    cr_expect_eq(exo_generator_cancel(g, 1, &err), EXO_OK);
    cr_expect_eq(exo_generator_room(g), 1);
    FAILS(exo_generator_set_weights(g, other.params, &err), EXO_INVAL, "mlp.up");
    exo_weight_format format;
    FAILS(exo_weight_format_named("int2", &format, &err), EXO_INVAL, "int4");
    cr_expect_eq(exo_weight_format_named("int4", &format, &err), EXO_OK);
    cr_expect_eq(format, EXO_WEIGHTS_INT4);
    exo_generator_free(&g);
    small_decoder_free(&d);
    small_decoder_free(&other);
}

/* --- Turns ------------------------------------------------------------------------------------ */

/* A sequence that goes on after foreign tokens has the bits of a new one with all these tokens. */
Test(generate, a_sequence_goes_on_after_foreign_tokens)
{
    static const int32_t foreign[] = {5, 1, 7};
    const exo_sampling sampling = {.temperature = 1, .max_new_tokens = 6, .seed = 4};
    for (int f = 0; f < FORMATS; f++) {
        const exo_decoder_spec spec = small_decoder_spec(0);
        small_decoder d;
        small_decoder_new(&d, &spec, 3);
        exo_generator *g =
            generator_new(&d, &(exo_generator_opts){.weights = formats[f], .sequences = 2});
        exo_generated s, anew;
        int32_t all[TOKENS] = {1, 2, 3};
        submit(g, 9, all, 3, &sampling);
        while (exo_generator_active(g) > 0)
            cr_assert_eq(exo_generator_step(g, NULL), EXO_OK);
        cr_assert(exo_generator_at(g, 0, &s));
        memcpy(all, s.tokens, s.length * sizeof *all);
        memcpy(all + s.length, foreign, sizeof foreign);
        size_t known = s.length + 3;
        cr_assert_eq(exo_generator_extend(g, 9, foreign, 3, 6, NULL), EXO_OK);
        while (exo_generator_active(g) > 0)
            cr_assert_eq(exo_generator_step(g, NULL), EXO_OK);
        cr_assert(exo_generator_at(g, 0, &s));
        cr_expect_eq(s.prompt, known);
        cr_expect_eq(s.length, known + 6);
        exo_generator *h = generator_new(&d, &(exo_generator_opts){.weights = formats[f]});
        submit(h, 9, all, known, &sampling);
        while (exo_generator_active(h) > 0)
            cr_assert_eq(exo_generator_step(h, NULL), EXO_OK);
        cr_assert(exo_generator_take(h, &anew));
        cr_expect_eq(memcmp(s.tokens, anew.tokens, s.length * sizeof *all), 0);
        cr_expect_eq(memcmp(s.log_probs, anew.log_probs, 6 * sizeof(float)), 0);
        exo_generator_free(&g);
        exo_generator_free(&h);
        small_decoder_free(&d);
    }
}

Test(generate, what_cannot_go_on_is_refused)
{
    const exo_sampling sampling = {.temperature = 1, .max_new_tokens = 2, .seed = 4};
    const exo_decoder_spec spec = small_decoder_spec(0);
    exo_err err = {0};
    small_decoder d;
    small_decoder_new(&d, &spec, 3);
    exo_generator *g = generator_new(&d, &(exo_generator_opts){.context = 8});
    submit(g, 1, (const int32_t[]){1, 2}, 2, &sampling);
    cr_expect_eq(exo_generator_extend(g, 2, NULL, 0, 1, &err), EXO_NOT_FOUND);
    cr_expect_eq(exo_generator_extend(g, 1, NULL, 0, 1, &err), EXO_INVAL, "it has not finished");
    while (exo_generator_active(g) > 0)
        cr_assert_eq(exo_generator_step(g, NULL), EXO_OK);
    cr_expect_eq(exo_generator_extend(g, 1, (const int32_t[]){-1}, 1, 1, &err), EXO_INVAL);
    cr_expect_eq(exo_generator_extend(g, 1, (const int32_t[]){1, 1, 1, 1}, 4, 1, &err), EXO_INVAL);
    cr_expect_eq(exo_generator_extend(g, 1, (const int32_t[]){1, 1}, SIZE_MAX, 1, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "must leave room"), "%s", err.text);
    cr_expect_eq(exo_generator_extend(g, 1, (const int32_t[]){1, 1, 1}, 3, 0, &err), EXO_OK);
    cr_expect_eq(exo_generator_active(g), 1);
    exo_generator_free(&g);
    small_decoder_free(&d);
}
