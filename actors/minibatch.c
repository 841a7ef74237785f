/* minibatch_size: auto. Activations grow linearly with the samples of a pass, so two small passes tell what one takes. */
#include <stdio.h>

#include <exogym/memory.h>

#include "fit_opts.h"

/* Of the free memory, what a run may take: the rest is for parameters, optimizers, data and other programs. */
static const double share_of_memory = 0.6;

/* Bytes that this process could still get: the machine's, or its control group's if that is less. 0: unknown. */
static uint64_t
free_memory(void)
{
    uint64_t bytes = 0;
    char line[256];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file)) {
        unsigned long long kib = 0;
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            bytes = (uint64_t)kib << 10;
    }
    if (file)
        fclose(file);

    unsigned long long limit = 0, used = 0;
    FILE *max = fopen("/sys/fs/cgroup/memory.max", "re");
    FILE *current = fopen("/sys/fs/cgroup/memory.current", "re");
    if (max && current && fscanf(max, "%llu", &limit) == 1 && fscanf(current, "%llu", &used) == 1 && limit > used &&
        limit - used < bytes)
        bytes = limit - used;
    if (max)
        fclose(max);
    if (current)
        fclose(current);
    return bytes;
}

/* The tape's memory after one training pass over `size` samples. */
static exo_status
measure_pass(exo_model *model, exo_params *params, exo_dataset *train, size_t size, bool autocast, size_t *bytes,
             exo_err *err)
{
    exo_tape *tape = NULL;
    exo_batch batch = {0};
    const exo_sample_key key = {0};
    uint32_t *indices = exo_calloc(size, sizeof *indices);
    exo_status st = indices ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory to measure a pass");
    for (size_t i = 0; indices && i < size; i++)
        indices[i] = (uint32_t)i;
    if (st == EXO_OK)
        st = exo_batch_init(&batch, train, size, err);
    if (st == EXO_OK)
        st = exo_batch_read(&batch, train, indices, size, &key, err);
    if (st == EXO_OK)
        st = exo_tape_new(&tape, err);
    if (st == EXO_OK) {
        const exo_pass pass = {.train = true, .grad = true, .autocast = autocast};
        exo_tape_begin(tape, params, &pass);
        exo_tensor *loss = exo_model_loss(model, tape, &batch);
        st = loss ? exo_tape_backward(tape, loss, 1.0f, err) : exo_tape_error(tape, err);
        *bytes = exo_tape_bytes(tape);
    }
    exo_tape_free(&tape);
    exo_batch_release(&batch);
    exo_free(indices);
    return st;
}

exo_status
exo_fit_auto_minibatch(exo_model *model, exo_dataset *train, size_t batch_size, bool autocast, unsigned copies,
                       size_t *out, exo_err *err)
{
    *out = batch_size;
    size_t large = batch_size < 64 ? batch_size : 64;
    size_t small = (large + 1) / 2;
    size_t at_small = 0, at_large = 0;
    exo_params *params = NULL;
    exo_status st = exo_model_params(model, 0, &params, err);
    if (st == EXO_OK)
        st = measure_pass(model, params, train, small, autocast, &at_small, err);
    if (st == EXO_OK)
        st = measure_pass(model, params, train, large, autocast, &at_large, err);
    exo_params_free(&params);
    if (st != EXO_OK)
        return st;

    double budget = share_of_memory * (double)free_memory() / copies;
    double slope = large > small && at_large > at_small ? (double)(at_large - at_small) / (double)(large - small)
                                                        : (double)at_large / (double)large;
    double fixed = (double)at_large - slope * (double)large;
    size_t fits = 1;
    for (size_t d = 1; d <= batch_size; d++)
        if (batch_size % d == 0 && (budget <= 0 || fixed + slope * (double)d <= budget))
            fits = d;
    *out = fits;
    return EXO_OK;
}
