/* The parts of a training step outside the model, on the CNN's 1,868,234 parameters: the sweep of
 * each optimizer, the gradient norm of clipping, and SPARTA's selection. A sweep is compared with
 * memcpy of as many bytes as it moves, timed in the same run. Sweeps and memcpy use all threads of
 * the process. Best of 30.
 *
 *     bench_optim
 */
#include <stdio.h>
#include <string.h>

#include <exogym/exogym.h>

#include "base/parallel.h"

enum {
    NUMEL = 1868234,
    REPEATS = 30,
    PIECES = 64
};

static float *params, *grads, *spare[2];

static double
milliseconds(void (*run)(void *context), void *context)
{
    double best = 1e30;
    for (int i = 0; i < REPEATS; i++) {
        exo_time start = exo_now(exo_clock_real());
        run(context);
        double took = (double)(exo_now(exo_clock_real()) - start) / (double)EXO_MS;
        best = took < best ? took : best;
    }
    return best;
}

static void
copy_piece(void *context, size_t index)
{
    size_t first = NUMEL * index / PIECES, end = NUMEL * (index + 1) / PIECES;
    (void)context;
    memcpy(spare[1] + first, spare[0] + first, (end - first) * sizeof(float));
}

static void
copy(void *context)
{
    exo_parallel_for(PIECES, copy_piece, context);
}

static void
sweep(void *optim)
{
    exo_optim_step(optim, exo_host_array(EXO_F32, params, NUMEL),
                   exo_host_array(EXO_F32, grads, NUMEL), 1e-6f);
}

static void
clip(void *unused)
{
    float norm = 0;
    (void)unused;
    /* with this limit it computes the norm and scales nothing */
    exo_clip_grad_norm(exo_host_array(EXO_F32, grads, NUMEL), 1e30f, &norm, NULL);
}

struct selection {
    exo_selector *selector;
    uint64_t round;
};

static void
select_round(void *context)
{
    struct selection *s = context;
    const uint32_t *coordinates = NULL;
    exo_selector_round(s->selector, s->round++, &coordinates);
}

int
main(void)
{
    static const struct {
        const char *name;
        exo_optim_kind kind;
        double momentum;
        int streams; /* floats read and written for each parameter */
    } rules[] = {
        {"adamw", EXO_ADAMW, 0, 7},         {"sgd", EXO_SGD, 0, 3},
        {"sgd, momentum", EXO_SGD, 0.9, 5}, {"rmsprop", EXO_RMSPROP, 0, 5},
        {"adagrad", EXO_ADAGRAD, 0, 5},
    };
    float **const buffers[] = {&params, &grads, &spare[0], &spare[1]};
    exo_err err = {0};
    exo_rng rng;
    exo_rng_init(&rng, 1, EXO_RNG_USER, 0, 0);
    for (size_t b = 0; b < 4; b++) {
        *buffers[b] = exo_alloc_aligned(NUMEL * sizeof(float));
        if (!*buffers[b])
            return 1;
        for (size_t i = 0; i < NUMEL; i++)
            (*buffers[b])[i] = exo_rng_normal(&rng);
    }
    double bytes = 4.0 * NUMEL, copy_ms = milliseconds(copy, NULL);
    printf("%u threads, %d parameters\n", exo_num_threads(), NUMEL);
    printf("%-24s %7.3f ms  %6.1f GB/s\n", "memcpy", copy_ms, 2 * bytes / copy_ms / 1e6);

    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        exo_optim *optim = NULL;
        exo_optim_spec spec = exo_optim_spec_init(rules[r].kind);
        spec.momentum = rules[r].momentum;
        if (exo_optim_new(&optim, &spec, exo_device_cpu(), NUMEL, &err) != EXO_OK)
            return 1;
        double ms = milliseconds(sweep, optim);
        printf("%-24s %7.3f ms  %6.1f GB/s  %.2f of memcpy\n", rules[r].name, ms,
               rules[r].streams * bytes / ms / 1e6, rules[r].streams / ms / (2 / copy_ms));
        exo_optim_free(&optim);
    }
    double clip_ms = milliseconds(clip, NULL);
    printf("%-24s %7.3f ms  %6.1f GB/s\n", "gradient norm", clip_ms, bytes / clip_ms / 1e6);

    struct selection s = {0};
    if (exo_selector_new(&s.selector, EXO_SELECT_RANDOM, 0.005, NUMEL, 1, &err) != EXO_OK)
        return 1;
    printf("%-24s %7.3f ms\n", "select, p 0.005", milliseconds(select_round, &s));
    exo_selector_free(&s.selector);
    for (size_t b = 0; b < 4; b++)
        exo_free(*buffers[b]);
    return 0;
}
