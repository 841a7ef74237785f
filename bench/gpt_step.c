/* The training step of a GPT-2: forward, backward, AdamW. Prints one line of JSON with tokens a
 * second, the share of the machine's fp32 peak, and the peak memory.
 *
 *     bench_gpt_step [--size small|base|...] [--vocabulary N] [--block N] [--batch N]
 *                    [--dtype fp32|bf16|fp8] [--steps N] [--threads N] [--checkpoint 0|1]
 *                    [--loss cross_entropy|policy] [--invariant 0|1|both]
 *                    [--device cpu|cuda]
 *
 * --loss policy is PPO's loss of log-probabilities that differ a little from those of the policy
 * that acted. --invariant 1 computes the forward pass with the bits of generation; `both` runs such
 * steps and ordinary ones in turn, and prints their times and the median of their ratios.
 *
 * bench/peers/gpt_step.py prints a line with the same keys for PyTorch. bench/gpt_step.py runs both
 * in turn and prints ratios.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <exogym/decoder.h>

#include "limits.h"
#include "training.h"

enum {
    WARM_UP = 2,
    MAX_STEPS = 1000
};

struct setting {
    const char *size, *device;
    size_t vocabulary, block, batch;
    exo_autocast autocast;
    bool checkpoint, policy, invariant, both;
    int steps;
};

/* The multiplications and additions of a step (after Kaplan et al., 2020, arXiv:2001.08361). For
 * each token these are 6 for each parameter of a matrix product, and 6 T W for each layer's causal
 * attention, half of what attention without a mask takes. */
static double
operations(const exo_decoder_spec *d, const struct setting *s)
{
    double w = (double)d->width, t = (double)s->block,
           products = (double)d->layers * 12 * w * w + w * (double)d->vocabulary;
    return (6 * products + 6 * (double)d->layers * t * w) * t * (double)s->batch;
}

/* Ordinary and invariant steps in turn. A step of the other kind makes new plans, so each timed
 * step follows one of its own kind. */
static exo_status
compare(bench_training *t, const exo_batch *batch, int steps, exo_err *err)
{
    static double times[2][MAX_STEPS], ratios[MAX_STEPS];
    exo_status st = EXO_OK;
    for (int i = 0; st == EXO_OK && i < 2 * steps && i < 2 * MAX_STEPS; i++) {
        t->invariant = i % 2;
        st = bench_training_run(t, batch, 1, 1, &times[i % 2][i / 2], err);
        if (i % 2)
            ratios[i / 2] = times[1][i / 2] / times[0][i / 2];
    }
    size_t count = (size_t)steps;
    if (st == EXO_OK)
        printf("{\"step_ms\": %.2f, \"invariant_step_ms\": %.2f, \"ratio\": %.3f}\n",
               bench_median(times[0], count) * 1e3, bench_median(times[1], count) * 1e3,
               bench_median(ratios, count));
    return st;
}

static exo_status
run(const struct setting *s, exo_err *err)
{
    bench_training training = {0};
    exo_model *model = NULL;
    exo_decoder_spec spec;
    exo_batch batch = {0};
    double seconds = 0;
    exo_status st = bench_policy_batch(&batch, s->batch, s->block, s->vocabulary, err);
    if (st == EXO_OK)
        st = exo_decoder_size(&spec, s->size, err);
    spec.vocabulary = s->vocabulary;
    spec.context = s->block;
    spec.checkpoint = s->checkpoint;
    if (st == EXO_OK)
        st = exo_decoder_new(&model, &spec, err);
    if (st == EXO_OK)
        st = bench_training_init(&training, model, s->device, s->autocast, 1e-3f, err);
    training.invariant = s->invariant;
    training.loss_of = s->policy ? bench_policy_loss : NULL;
    if (st == EXO_OK && s->both)
        st = compare(&training, &batch, s->steps, err);
    else if (st == EXO_OK)
        st = bench_training_run(&training, &batch, WARM_UP, s->steps, &seconds, err);
    if (st == EXO_OK && !s->both) {
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        double rate = operations(&spec, s) / seconds * 1e-9, limit = bench_peak_fp32();
        printf("{\"tokens_per_second\": %.1f, \"step_ms\": %.2f, \"peak_mib\": %.1f, \"loss\": "
               "%.4f, \"gflops\": %.1f, "
               "\"fp32_peak_gflops\": %.1f, \"of_peak\": %.3f, \"tape_mib\": %.1f}\n",
               (double)(s->batch * s->block) / seconds, seconds * 1e3,
               (double)usage.ru_maxrss / 1024, (double)training.loss, rate, limit, rate / limit,
               (double)exo_tape_bytes(training.tape) / (1 << 20));
    }
    bench_training_release(&training);
    bench_policy_batch_release(&batch);
    return st;
}

int
main(int argc, char **argv)
{
    struct setting s = {
        .size = "small", .device = "cpu", .vocabulary = 66, .block = 256, .batch = 16, .steps = 5};
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--size") == 0)
            s.size = value;
        else if (strcmp(argv[i], "--device") == 0)
            s.device = value;
        else if (strcmp(argv[i], "--dtype") == 0)
            s.autocast = strcmp(value, "fp8") == 0    ? EXO_AUTOCAST_FP8
                         : strcmp(value, "bf16") == 0 ? EXO_AUTOCAST_BF16
                                                      : EXO_AUTOCAST_NONE;
        else if (strcmp(argv[i], "--checkpoint") == 0)
            s.checkpoint = strcmp(value, "1") == 0;
        else if (strcmp(argv[i], "--loss") == 0)
            s.policy = strcmp(value, "policy") == 0;
        else if (strcmp(argv[i], "--invariant") == 0)
            s.invariant = strcmp(value, "1") == 0, s.both = strcmp(value, "both") == 0;
        else if (strcmp(argv[i], "--vocabulary") == 0)
            s.vocabulary = strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--block") == 0)
            s.block = strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--batch") == 0)
            s.batch = strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--steps") == 0)
            s.steps = atoi(value);
        else if (strcmp(argv[i], "--threads") == 0)
            exo_set_num_threads((unsigned)atoi(value));
    }
    s.steps = s.steps < MAX_STEPS ? s.steps : MAX_STEPS;
    if (s.vocabulary < 2 || s.vocabulary > INT32_MAX || s.block < 1 || s.batch < 1) {
        fprintf(stderr, "bench_gpt_step: vocabulary at least 2, block and batch at least 1\n");
        return 2;
    }
    exo_err err = {0};
    if (run(&s, &err) == EXO_OK)
        return EXIT_SUCCESS;
    fprintf(stderr, "bench_gpt_step: %s\n", err.text);
    return EXIT_FAILURE;
}
