/* The training step of the MNIST CNN: forward, backward, AdamW. Prints one line with images a
 * second.
 *
 *     bench_cnn_step [--dtype fp32|bf16] [--batch N] [--steps N] [--threads N]
 *                    [--device cpu|cuda]
 *
 * bench/peers/cnn_step.py prints such a line for PyTorch. bench/cnn_step.sh runs both in turn and
 * prints ratios.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/model.h>

#include "training.h"

enum {
    WARM_UP = 3
};

struct setting {
    const char *device;
    bool bf16;
    size_t batch;
    int steps;
};

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
        .data = {exo_alloc_aligned(size * 784 * sizeof(float)),
                 exo_alloc_aligned(size * sizeof(int32_t))},
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
    bench_training training = {0};
    exo_model *model = NULL;
    exo_batch batch;
    double seconds = 0;
    fill(&batch, s->batch);
    exo_status st = exo_model_new_named(&model, "mnist_cnn", NULL, err);
    if (st == EXO_OK)
        st = bench_training_init(&training, model, s->device,
                                 s->bf16 ? EXO_AUTOCAST_BF16 : EXO_AUTOCAST_NONE, 3e-4f, err);
    if (st == EXO_OK)
        st = bench_training_run(&training, &batch, WARM_UP, s->steps, &seconds, err);
    if (st == EXO_OK)
        printf("exogym dtype=%s batch=%zu threads=%u images_per_second=%.1f tape_MiB=%.0f\n",
               s->bf16 ? "bf16" : "fp32", s->batch, exo_num_threads(), (double)s->batch / seconds,
               (double)exo_tape_bytes(training.tape) / (1 << 20));
    bench_training_release(&training);
    exo_free(batch.data[0]);
    exo_free(batch.data[1]);
    return st;
}

int
main(int argc, char **argv)
{
    struct setting s = {.device = "cpu", .batch = 256, .steps = 5};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--device") == 0)
            s.device = argv[i + 1];
        else if (strcmp(argv[i], "--dtype") == 0)
            s.bf16 = strcmp(argv[i + 1], "bf16") == 0;
        else if (strcmp(argv[i], "--batch") == 0)
            s.batch = strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--steps") == 0)
            s.steps = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--threads") == 0)
            exo_set_num_threads((unsigned)atoi(argv[i + 1]));
    }
    if (s.batch < 1) {
        fprintf(stderr, "bench_cnn_step: batch at least 1\n");
        return 2;
    }
    exo_err err = {0};
    if (run(&s, &err) == EXO_OK)
        return EXIT_SUCCESS;
    fprintf(stderr, "bench_cnn_step: %s\n", err.text);
    return EXIT_FAILURE;
}
