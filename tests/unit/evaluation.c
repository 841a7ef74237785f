/* The evaluation of a language model: its loss is the mean over the targets that count, independent
 * of the batches. The suite's `setup` and `teardown` own the folder. Read next:
 * actors/replica_pass.c. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>

#include <exogym/exogym.h>

#include "support/small_decoders.h"
#include "support/temp.h"
#include "support/texts.h"

enum {
    BLOCK = 7,
    DOCUMENTS = 40,
    SAMPLES = 50 /* at most */
};

static char folder[64];

static void
setup(void)
{
    temp_folder(folder, sizeof folder);
}

static void
teardown(void)
{
    temp_remove(folder);
}

TestSuite(evaluation, .init = setup, .fini = teardown);

/* Short documents, many of them with one character. A document's first character is no target. */
static exo_dataset *
open_documents(void)
{
    exo_window_opts opts = exo_window_opts_init();
    exo_dataset *train = NULL;
    exo_err err = {0};
    exo_rng rng;
    exo_rng_init(&rng, 3, EXO_RNG_USER, 0, 0);
    for (int d = 0; d < DOCUMENTS; d++) {
        char name[32], text[32];
        uint32_t length = d % 3 ? 1 : 1 + exo_rng_below(&rng, 30);
        for (uint32_t i = 0; i < length; i++)
            text[i] = (char)('a' + exo_rng_below(&rng, 26));
        text[length] = '\0';
        snprintf(name, sizeof name, "texts/%02d.txt", d);
        texts_write_text(folder, name, text);
    }
    opts.block = opts.stride = BLOCK;
    opts.end = 1;
    opts.documents = EXO_DOCUMENTS_SEPARATE;
    cr_assert_eq(exo_dataset_text(&train, NULL, texts_path(folder, "texts"), NULL, &opts, &err),
                 EXO_OK, "%s", err.text);
    cr_assert_leq(exo_dataset_length(train), SAMPLES);
    return train;
}

/* The loss of the samples [first, first + size) as one batch. *counted receives the number of
 * targets over which the model reports the mean. */
static double
loss_of(const exo_model *model, exo_params *params, const exo_dataset *data, size_t first,
        size_t size, size_t *counted)
{
    exo_batch batch = {0};
    exo_tape *tape = NULL;
    size_t indices[SAMPLES];
    for (size_t i = 0; i < size; i++)
        indices[i] = first + i;
    cr_assert_eq(exo_tape_new(&tape, NULL), EXO_OK);
    cr_assert_eq(exo_batch_init(&batch, data, size, NULL), EXO_OK);
    cr_assert_eq(exo_batch_read(&batch, data, indices, size, &(exo_sample_key){0}, NULL), EXO_OK);
    exo_tape_begin(tape, params, &(exo_pass){0});
    exo_tensor *out = exo_model_loss(model, tape, &batch);
    cr_assert_not_null(out);
    double loss = (double)exo_tensor_item(out), mean = 0;
    cr_assert_eq(exo_tape_num_metrics(tape), 1);
    cr_expect_str_eq(exo_tape_metric_at(tape, 0, &mean, counted)->name, "loss");
    cr_expect_eq(mean, loss);
    exo_batch_release(&batch);
    exo_tape_free(&tape);
    return loss;
}

/* The mean over all targets that count, from one pass for each sample. *by_samples receives a wrong
 * mean: the losses of batches of `size`, weighted by their samples. */
static double
expected_loss(const exo_model *model, exo_params *params, const exo_dataset *data, size_t size,
              double *by_samples)
{
    size_t length = exo_dataset_length(data), all = 0, least = SIZE_MAX, most = 0;
    double sum = 0;
    *by_samples = 0;
    for (size_t i = 0; i < length; i++) {
        int32_t tokens[TEXTS_MAX_BLOCK], targets[TEXTS_MAX_BLOCK];
        size_t said = 0, counted = 0;
        texts_sample(data, i, tokens, targets);
        for (int t = 0; t < BLOCK; t++)
            counted += targets[t] >= 0;
        double loss = loss_of(model, params, data, i, 1, &said);
        cr_assert_eq(said, counted);
        sum += loss * (double)counted;
        all += counted;
        least = counted < least ? counted : least;
        most = counted > most ? counted : most;
    }
    cr_assert(least <= 1 && most == BLOCK,
              "from %zu to %zu targets count: what is tested here would make no difference", least,
              most);
    for (size_t first = 0; first < length; first += size) {
        size_t count = length - first < size ? length - first : size, said = 0;
        *by_samples +=
            loss_of(model, params, data, first, count, &said) * (double)count / (double)length;
    }
    return sum / (double)all;
}

/* Batches of one sample, of several sizes with a smaller last batch, and of all samples. */
Test(evaluation, every_target_that_counts_counts_the_same_whatever_the_minibatch)
{
    exo_dataset *data = open_documents();
    const size_t sizes[] = {1, 2, 4, 8, 16, exo_dataset_length(data)};
    exo_decoder_spec spec = small_decoder_spec(0);
    exo_model *model = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_decoder_new(&model, &spec, &err), EXO_OK, "%s", err.text);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        exo_trainer *trainer = NULL;
        exo_fit_result result = {0};
        exo_fit_opts opts = exo_fit_opts_init();
        double by_samples = 0;
        opts.num_nodes = sizes[i] == exo_dataset_length(data) ? 1 : 2;
        opts.batch_size = sizes[i];
        opts.minibatch_size = sizes[i];
        opts.max_steps = 1;
        opts.val_size = 0;
        opts.save_dir = NULL;
        cr_assert_eq(exo_trainer_new(&trainer, model, data, data, &err), EXO_OK, "%s", err.text);
        exo_status st = exo_trainer_fit_text(trainer, "ddp", "{optimizer: {name: sgd, lr: 0}}",
                                             &opts, &result, &err);
        cr_assert_eq(st, EXO_OK, "%s", err.text);
        double wanted = expected_loss(model, result.params, data, sizes[i], &by_samples);
        cr_expect_float_eq(result.local_loss, wanted, 1e-6,
                           "in batches of %zu: %.9f instead of %.9f", sizes[i], result.local_loss,
                           wanted);
        cr_expect_float_eq(result.global_loss, wanted, 1e-6, "in batches of %zu", sizes[i]);
        if (sizes[i] < 16)
            cr_expect_gt(fabs(by_samples - wanted), 1e-5,
                         "in batches of %zu, weighted by samples, it would be another", sizes[i]);
        exo_params_free(&result.params);
        exo_trainer_free(&trainer);
    }
    exo_model_drop(&model);
    exo_dataset_drop(&data);
}
