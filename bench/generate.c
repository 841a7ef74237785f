/* Generation with a GPT-2 of random weights. All prompts have the same length, and all sequences as
 * many new tokens. Prints one line with tokens a second.
 *
 *     bench_generate [--size base] [--weights fp32|int8|int4] [--batch N] [--prompt N] [--new N]
 *                    [--rounds N] [--threads N] [--device cpu|cuda]
 *
 * bench/peers/generate.py prints such a line for transformers, generate_llama.py for llama.cpp.
 * bench/generate.sh runs exogym and a peer in turn and prints ratios. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/clock.h>
#include <exogym/generate.h>
#include <exogym/memory.h>
#include <exogym/model.h>

enum {
    MAX_ROUNDS = 100
};

struct setting {
    const char *size, *weights, *device;
    size_t batch, prompt, new_tokens, rounds;
};

static int
compare_times(const void *a, const void *b)
{
    exo_time x = *(const exo_time *)a, y = *(const exo_time *)b;
    return x < y ? -1 : x > y;
}

/* Generates all sequences. *prefill is the time until each sequence has its first new token. */
static exo_status
generate(exo_generator *g, const struct setting *s, size_t round, const int32_t *prompts,
         exo_time *prefill, exo_err *err)
{
    const exo_sampling sampling = {
        .temperature = 1, .top_k = 50, .max_new_tokens = s->new_tokens, .seed = round};
    exo_status st = EXO_OK;
    exo_generated done;
    exo_time before = exo_now(exo_clock_real());
    for (size_t i = 0; st == EXO_OK && i < s->batch; i++)
        st = exo_generator_submit(g, i, prompts + i * s->prompt, s->prompt, &sampling, err);
    *prefill = 0;
    while (st == EXO_OK && exo_generator_active(g) > 0) {
        st = exo_generator_step(g, err);
        bool all = true;
        for (size_t i = 0; exo_generator_at(g, i, &done); i++)
            all = all && done.length > done.prompt;
        if (all && *prefill == 0)
            *prefill = exo_now(exo_clock_real()) - before;
    }
    while (exo_generator_take(g, &done))
        ;
    return st;
}

static void
report(const exo_generator *g, const struct setting *s, exo_time *total, exo_time *prefill)
{
    qsort(total, s->rounds, sizeof *total, compare_times);
    qsort(prefill, s->rounds, sizeof *prefill, compare_times);
    double seconds = (double)total[s->rounds / 2] * 1e-9,
           first = (double)prefill[s->rounds / 2] * 1e-9;
    double tokens = (double)(s->batch * s->new_tokens), steps = (double)(s->new_tokens - 1);
    printf("exogym size=%s weights=%s batch=%zu threads=%u tokens_per_second=%.1f prefill_ms=%.1f "
           "step_ms=%.2f "
           "weights_MiB=%.0f cache_MiB=%.0f weights_GB_per_second=%.1f\n",
           s->size, s->weights, s->batch, exo_num_threads(), tokens / seconds, first * 1e3,
           (seconds - first) / steps * 1e3, (double)exo_generator_weight_bytes(g) / (1 << 20),
           (double)exo_generator_cache_bytes(g) / (1 << 20),
           (double)exo_generator_weight_bytes(g) * steps / (seconds - first) * 1e-9);
}

static exo_status
run(const struct setting *s, exo_err *err)
{
    exo_model *model = NULL;
    exo_params *params = NULL, *there = NULL;
    exo_device *device = NULL;
    exo_generator *g = NULL;
    exo_decoder_spec spec;
    exo_generator_opts opts = {.sequences = s->batch, .context = s->prompt + s->new_tokens};
    static exo_time total[MAX_ROUNDS], prefill[MAX_ROUNDS];
    int32_t *prompts = exo_calloc(s->batch * s->prompt, sizeof *prompts);
    exo_status st =
        prompts ? exo_decoder_size(&spec, s->size, err) : exo_fail(err, EXO_NOMEM, "no memory");
    if (st == EXO_OK)
        st = exo_weight_format_named(s->weights, &opts.weights, err);
    if (st == EXO_OK)
        st = exo_decoder_new(&model, &spec, err);
    if (st == EXO_OK)
        st = exo_model_params(model, 1, &params, err);
    if (st == EXO_OK)
        st = exo_device_open(&device, s->device, err);
    if (st == EXO_OK)
        st = exo_params_to(&there, params, device, err);
    if (st == EXO_OK)
        st = exo_generator_new(&g, &spec, there, &opts, err);
    exo_rng rng;
    exo_rng_init(&rng, 1, EXO_RNG_USER, 0, 0);
    for (size_t i = 0; st == EXO_OK && i < s->batch * s->prompt; i++)
        prompts[i] = (int32_t)exo_rng_below(&rng, (uint32_t)spec.vocabulary);
    exo_time ignored = 0;
    if (st == EXO_OK)
        st = generate(g, s, 0, prompts, &ignored, err);
    for (size_t i = 0; st == EXO_OK && i < s->rounds; i++) {
        exo_time before = exo_now(exo_clock_real());
        st = generate(g, s, i + 1, prompts, &prefill[i], err);
        total[i] = exo_now(exo_clock_real()) - before;
    }
    if (st == EXO_OK)
        report(g, s, total, prefill);
    exo_generator_free(&g);
    exo_params_free(&there);
    exo_device_close(&device);
    exo_params_free(&params);
    exo_model_drop(&model);
    exo_free(prompts);
    return st;
}

int
main(int argc, char **argv)
{
    struct setting s = {.size = "base",
                        .device = "cpu",
                        .weights = "fp32",
                        .batch = 1,
                        .prompt = 32,
                        .new_tokens = 128,
                        .rounds = 5};
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--size") == 0)
            s.size = value;
        else if (strcmp(argv[i], "--device") == 0)
            s.device = value;
        else if (strcmp(argv[i], "--weights") == 0)
            s.weights = value;
        else if (strcmp(argv[i], "--batch") == 0)
            s.batch = strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--prompt") == 0)
            s.prompt = strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--new") == 0)
            s.new_tokens = strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--rounds") == 0)
            s.rounds = strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--threads") == 0)
            exo_set_num_threads((unsigned)atoi(value));
    }
    if (s.batch < 1 || s.batch > 4096 || s.prompt < 1 || s.prompt > 1023 || s.new_tokens < 2 ||
        s.new_tokens > 1023 || s.rounds < 1 || s.rounds > MAX_ROUNDS) {
        fprintf(
            stderr,
            "bench_generate: batch 1 to 4096, prompt 1 to 1023, new 2 to 1023, rounds 1 to %d\n",
            MAX_ROUNDS);
        return 2;
    }
    exo_err err = {0};
    if (run(&s, &err) == EXO_OK)
        return EXIT_SUCCESS;
    fprintf(stderr, "bench_generate: %s\n", err.text);
    return EXIT_FAILURE;
}
