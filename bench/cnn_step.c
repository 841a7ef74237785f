/* The training step of the MNIST CNN: forward, backward, AdamW. Prints images a second.
 *
 *     bench_cnn_step [--dtype fp32|bf16] [--batch N] [--steps N] [--threads N]
 *
 * bench/peers/cnn_step.py prints the same line for PyTorch; bench/cnn_step.sh runs both in turn and prints ratios.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/clock.h>
#include <exogym/memory.h>
#include <exogym/model.h>
#include <exogym/optim.h>

enum {
    WARM_UP = 3,
    MAX_STEPS = 1000
};

struct setting {
    bool bf16;
    size_t batch;
    int steps;
};

static int
compare_times(const void *a, const void *b)
{
    exo_time x = *(const exo_time *)a, y = *(const exo_time *)b;
    return x < y ? -1 : x > y;
}

static exo_status
step(exo_model *model, exo_tape *tape, exo_params *params, exo_optim *optim, const exo_batch *batch, uint64_t index,
     bool bf16, exo_err *err)
{
    const exo_pass pass = {.train = true, .grad = true, .autocast = bf16, .seed = 1, .step = index};
    exo_params_zero_grads(params);
    exo_tape_begin(tape, params, &pass);
    exo_tensor *loss = exo_model_loss(model, tape, batch);
    if (!loss)
        return exo_tape_error(tape, err);
    exo_status st = exo_tape_backward(tape, loss, 1.0f, err);
    if (st == EXO_OK)
        exo_optim_step(optim, exo_params_values(params), exo_params_grads(params), 3e-4f);
    return st;
}

static void
fill(exo_batch *batch, size_t size)
{
    exo_rng rng;
    exo_rng_init(&rng, 1, EXO_RNG_USER, 0, 0);
    *batch = (exo_batch){
        .size = size,
        .num_fields = 2,
        .fields = {{.name = "image", .dtype = EXO_F32, .num_dims = 3, .dims = {1, 28, 28}},
                   {.name = "label", .dtype = EXO_I32}},
        .data = {exo_alloc_aligned(size * 784 * sizeof(float)), exo_alloc_aligned(size * sizeof(int32_t))},
    };
    if (!batch->data[0] || !batch->data[1])
        exit(EXIT_FAILURE);
    for (size_t i = 0; i < size * 784; i++)
        ((float *)batch->data[0])[i] = exo_rng_normal(&rng);
    for (size_t i = 0; i < size; i++)
        ((int32_t *)batch->data[1])[i] = (int32_t)exo_rng_below(&rng, 10);
}

static exo_status
run(const struct setting *s, exo_err *err)
{
    exo_model *model = NULL;
    exo_params *params = NULL;
    exo_tape *tape = NULL;
    exo_optim *optim = NULL;
    exo_batch batch;
    static exo_time times[MAX_STEPS];
    exo_optim_spec spec = exo_optim_spec_init(EXO_ADAMW);
    fill(&batch, s->batch);

    exo_status st = exo_model_new_named(&model, "mnist_cnn", NULL, err);
    if (st == EXO_OK)
        st = exo_model_params(model, 1, &params, err);
    if (st == EXO_OK)
        st = exo_tape_new(&tape, err);
    if (st == EXO_OK)
        st = exo_optim_new(&optim, &spec, exo_params_numel(params), err);
    for (int i = 0; st == EXO_OK && i < WARM_UP + s->steps; i++) {
        exo_time before = exo_now(exo_clock_real());
        st = step(model, tape, params, optim, &batch, (uint64_t)i, s->bf16, err);
        if (i >= WARM_UP)
            times[i - WARM_UP] = exo_now(exo_clock_real()) - before;
    }
    if (st == EXO_OK) {
        qsort(times, (size_t)s->steps, sizeof times[0], compare_times);
        double seconds = (double)times[s->steps / 2] * 1e-9;
        printf("exogym dtype=%s batch=%zu threads=%u images_per_second=%.1f tape_MiB=%.0f\n", s->bf16 ? "bf16" : "fp32",
               s->batch, exo_num_threads(), (double)s->batch / seconds, (double)exo_tape_bytes(tape) / (1 << 20));
    }
    exo_optim_free(&optim);
    exo_tape_free(&tape);
    exo_params_free(&params);
    exo_model_drop(&model);
    exo_free(batch.data[0]);
    exo_free(batch.data[1]);
    return st;
}

int
main(int argc, char **argv)
{
    struct setting s = {.batch = 256, .steps = 5};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--dtype") == 0)
            s.bf16 = strcmp(argv[i + 1], "bf16") == 0;
        else if (strcmp(argv[i], "--batch") == 0)
            s.batch = strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--steps") == 0)
            s.steps = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--threads") == 0)
            exo_set_num_threads((unsigned)atoi(argv[i + 1]));
    }
    if (s.batch < 1 || s.steps < 1 || s.steps > MAX_STEPS) {
        fprintf(stderr, "bench_cnn_step: batch at least 1, steps 1 to %d\n", MAX_STEPS);
        return 2;
    }
    exo_err err = {0};
    if (run(&s, &err) == EXO_OK)
        return EXIT_SUCCESS;
    fprintf(stderr, "bench_cnn_step: %s\n", err.text);
    return EXIT_FAILURE;
}
