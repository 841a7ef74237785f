/* LoRA under every strategy: the base stays as it was drawn, A and B learn, and only they are sent.
 * Each test owns its run. Read next: docs/lora.md. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include <exogym/exogym.h>

#include "support/temp.h"
#include "support/texts.h"

enum {
    NODES = 2,
    STEPS = 4
};

static const struct {
    const char *name, *options;
} strategies[] = {
    {"ddp", "{optimizer: {name: adamw, lr: 0.01}}"},
    {"ddp", "{max_norm: 0.5, bucket_size: 1 kB, optimizer: {name: adamw, lr: 0.01}}"},
    {"fsdp", "{sharding_strategy: full_shard, optimizer: {name: adamw, lr: 0.01}}"},
    {"diloco", "{H: 2, optimizer: {name: adamw, lr: 0.01}}"},
    {"fedavg", "{H: 2}"},
    {"muloco", "{H: 2}"},
    {"sparta", "{p: 0.3}"},
    {"sparta_diloco", "{p: 0.3, H: 2}"},
    {"streaming_diloco", "{H: 2, fragments: 2, delay: 1}"},
    {"sparseloco", "{H: 2}"},
    {"eager_diloco", "{H: 2}"},
    {"noloco", "{H: 2}"},
    {"demo", "{k: 4, chunk: 16}"},
    {"onebit_adam", "{freeze_step: 2}"},
    {"powersgd", "{rank: 2}"},
    {"quantized", "{chunk: 16}"},
    {"async_diloco", "{H: 2}"},
    {"decoupled_diloco", "{H: 2, fragments: 2}"},
};

struct world {
    exo_model *model;
    exo_params *initial;
    exo_dataset *train, *val;
    exo_trainer *trainer;
    exo_fit_opts opts;
    exo_fit_result result;
};

static void
world_init(struct world *w, const char *folder)
{
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    char text[4000] = "";
    *w = (struct world){.opts = exo_fit_opts_init()};
    for (size_t i = 0; i + 1 < sizeof text; i++)
        text[i] = i % 40 == 39 ? '\n' : (char)('a' + i * i % 7);
    cr_assert_eq(exo_config_parse(&doc, "job.yaml",
                                  "{layers: 2, heads: 2, width: 16, vocabulary: 40, context: 8, "
                                  "lora: {rank: 2}}",
                                  &err),
                 EXO_OK);
    cr_assert_eq(exo_model_new_named(&w->model, "gpt", exo_config_root(doc), &err), EXO_OK, "%s",
                 err.text);
    exo_config_free(&doc);
    exo_window_opts windows = exo_window_opts_init();
    windows.block = 8;
    cr_assert_eq(exo_dataset_text(&w->train, &w->val, texts_write_text(folder, "text.txt", text),
                                  NULL, &windows, &err),
                 EXO_OK, "%s", err.text);
    cr_assert_eq(exo_trainer_new(&w->trainer, w->model, w->train, w->val, &err), EXO_OK);
    w->opts.num_nodes = NODES;
    w->opts.batch_size = 2;
    w->opts.max_steps = STEPS;
    w->opts.val_size = 4;
    w->opts.save_dir = NULL;
    cr_assert_eq(exo_model_params(w->model, w->opts.seed, &w->initial, &err), EXO_OK);
}

static void
world_free(struct world *w)
{
    exo_params_free(&w->result.params);
    exo_params_free(&w->initial);
    exo_trainer_free(&w->trainer);
    exo_dataset_drop(&w->train);
    exo_dataset_drop(&w->val);
    exo_model_drop(&w->model);
}

static void
fit(struct world *w, const char *strategy, const char *options)
{
    exo_err err = {0};
    exo_params_free(&w->result.params);
    cr_assert_eq(exo_trainer_fit_text(w->trainer, strategy, options, &w->opts, &w->result, &err),
                 EXO_OK, "%s: %s", strategy, err.text);
}

Test(lora_training, every_strategy_trains_a_and_b_alone)
{
    struct world w;
    char folder[64], sha256[65] = "";
    temp_folder(folder, sizeof folder);
    world_init(&w, folder);
    const uint64_t bytes = exo_model_numel(w.model) * sizeof(float);
    for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++) {
        const char *name = strategies[s].name;
        size_t moved = 0;
        fit(&w, name, strategies[s].options);
        for (size_t i = 0; i < exo_params_count(w.initial); i++) {
            const exo_param_info *info = exo_params_info(w.initial, i);
            bool same = memcmp(exo_params_at(w.initial, i), exo_params_at(w.result.params, i),
                               info->numel * sizeof(float)) == 0;
            cr_expect(same || !info->frozen, "%s changes %s", name, info->name);
            moved += !same;
        }
        cr_expect_geq(moved, 8, "%s: %zu of A and B have learned", name, moved);
        if (s == 0) {
            memcpy(sha256, w.result.sha256, sizeof sha256);
            cr_expect_eq(w.result.bytes_sent, bytes * STEPS, "ddp"); /* 2 (N-1)/N is 1 */
        }
        if (strcmp(name, "fsdp") == 0)
            cr_expect_str_eq(w.result.sha256, sha256, "fsdp is ddp");
        if (strcmp(name, "fedavg") == 0)
            cr_expect_eq(w.result.bytes_sent, bytes * STEPS / 2, "fedavg");
    }
    world_free(&w);
    temp_remove(folder);
}
