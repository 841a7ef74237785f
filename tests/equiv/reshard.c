/* Conversions of checkpoints lose no bit, and a run that continues from one has the numbers of any other
 * run on that number of nodes from the same checkpoint. The tests own their runs. Read next:
 * actors/reshard.h. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <exogym/exogym.h>
#include <exogym/memory.h>

#include "actors/checkpoint.h"
#include "actors/manifest.h"
#include "actors/reshard.h"
#include "base/file.h"
#include "support/points.h"
#include "support/temp.h"

enum {
    HALF = 3, /* steps up to the checkpoint */
    STEPS = 6
};

struct world {
    char folder[64];
    exo_model *model;
    exo_dataset *train, *val;
    exo_trainer *trainer;
    exo_fit_result result;
    exo_err err;
};

static void
world_init(struct world *w, const char *frozen)
{
    char text[160];
    exo_config_doc *doc = NULL;
    *w = (struct world){.train = points_new(200, 1, SIZE_MAX), .val = points_new(64, 2, SIZE_MAX)};
    temp_folder(w->folder, sizeof w->folder);
    snprintf(text, sizeof text, "{in: %d, out: %d, hidden: [16, 13]%s}", POINTS_DIM, POINTS_CLASSES,
             frozen);
    cr_assert_eq(exo_config_parse(&doc, "model", text, NULL), EXO_OK);
    cr_assert_eq(exo_model_new_named(&w->model, "mlp", exo_config_root(doc), &w->err), EXO_OK, "%s",
                 w->err.text);
    exo_config_free(&doc);
    cr_assert_eq(exo_trainer_new(&w->trainer, w->model, w->train, w->val, &w->err), EXO_OK, "%s",
                 w->err.text);
}

static void
world_release(struct world *w)
{
    exo_params_free(&w->result.params);
    exo_trainer_free(&w->trainer);
    exo_dataset_drop(&w->train);
    exo_dataset_drop(&w->val);
    exo_model_drop(&w->model);
    temp_remove(w->folder);
}

/* Trains the run of this name up to a step, from its checkpoint if it has one. */
static void
fit(struct world *w, const char *run, uint32_t nodes, const char *strategy, const char *options,
    uint64_t steps)
{
    exo_fit_opts opts = exo_fit_opts_init();
    char folder[128], newest[EXO_CHECKPOINT_PATH];
    snprintf(folder, sizeof folder, "%s/%s", w->folder, run);
    exo_params_free(&w->result.params);
    opts.num_nodes = nodes;
    opts.batch_size = 8;
    opts.max_steps = steps;
    opts.save_dir = w->folder;
    opts.run_name = run;
    opts.resume = exo_checkpoint_newest(folder, newest);
    opts.val_size = EXO_VAL_NONE;
    exo_status st = exo_trainer_fit_text(w->trainer, strategy, options, &opts, &w->result, &w->err);
    cr_assert_eq(st, EXO_OK, "%s: %s %s: %s", run, strategy, options, w->err.text);
}

static exo_status
try_convert(struct world *w, const char *from, const char *to, uint32_t nodes, const char *strategy,
            const char *options)
{
    char run[128], target[128], newest[EXO_CHECKPOINT_PATH];
    exo_config_doc *doc = NULL;
    exo_resharded done;
    snprintf(run, sizeof run, "%s/%s", w->folder, from);
    snprintf(target, sizeof target, "%s/%s", w->folder, to);
    cr_assert(exo_checkpoint_newest(run, newest), "%s", from);
    cr_assert_eq(exo_config_parse(&doc, "options", options, NULL), EXO_OK);
    const exo_reshard_form form = {
        .num_nodes = nodes, .tensor = 1, .strategy = strategy, .options = exo_config_root(doc)};
    w->err = (exo_err){0};
    exo_status st = exo_reshard(w->model, newest, target, &form, &done, &w->err);
    if (st == EXO_OK) {
        cr_expect_eq(done.step, HALF);
        cr_expect_eq(done.to, nodes);
    }
    exo_config_free(&doc);
    return st;
}

static void
convert(struct world *w, const char *from, const char *to, uint32_t nodes, const char *strategy,
        const char *options)
{
    exo_status st = try_convert(w, from, to, nodes, strategy, options);
    cr_assert_eq(st, EXO_OK, "%s to %s: %u nodes of %s %s: %s", from, to, nodes, strategy, options,
                 w->err.text);
}

static void
path_of(const struct world *w, const char *run, const char *file, char *out, size_t size)
{
    snprintf(out, size, "%s/%s/checkpoints/step_%08d/%s", w->folder, run, HALF, file);
}

static void
hash_of(const struct world *w, const char *run, const char *file, char sha256[65])
{
    char path[256];
    exo_err err = {0};
    path_of(w, run, file, path, sizeof path);
    cr_assert_eq(exo_sha256_file(path, sha256, &err), EXO_OK, "%s", err.text);
}

/* --- Bits ------------------------------------------------------------------------------------- */

static const struct {
    const char *optimizer, *sharding, *frozen;
    uint32_t few; /* nodes of the second sharded checkpoint */
} cases[] = {
    {"optimizer: {name: adam, amsgrad: true}, max_norm: 0.5", "sharding_strategy: shard_grad_op",
     "", 3},
    {"optimizer: {name: rmsprop, centered: true, momentum: 0.5}", "group_size: 2", "", 6},
    {"optimizer: {name: adamw, groups: [{match: '*.bias', lr: 0.1, amsgrad: true}]}",
     "sharding_strategy: full_shard, prefetch: true", "", 3},
    {"optimizer: muon", "sharding_strategy: no_shard", "", 3},
    {"optimizer: {name: muon, matrices: all}", "sharding_strategy: full_shard", "", 5},
    {"optimizer: {name: sgd, lr: 0.1, momentum: 0.9}, warmup_steps: 4", "prefetch: true",
     ", frozen: 'fc1.*'", 7},
};

/* full of 1 -> 4 shards -> 3 shards -> full of 1, and then runs on 3 nodes: sharded, and full. */
static void
go_around(struct world *w, const char *full, const char *sharded, uint32_t few)
{
    char expected[65], got[65];
    fit(w, "begun", 4, "fsdp", sharded, HALF);
    convert(w, "begun", "one", 1, "ddp", full);
    convert(w, "one", "four", 4, "fsdp", sharded);
    convert(w, "four", "few", few, "fsdp", sharded);
    convert(w, "few", "again", 1, "ddp", full);
    hash_of(w, "one", "node_0.safetensors", expected);
    hash_of(w, "again", "node_0.safetensors", got);
    cr_expect_str_eq(got, expected, "%s", sharded);
    convert(w, "begun", "full", few, "ddp", full);
    fit(w, "full", few, "ddp", full, STEPS);
    memcpy(expected, w->result.sha256, sizeof expected);
    fit(w, "few", few, "fsdp", sharded, STEPS);
    if (!strstr(sharded, "group_size: 2")) /* a mean of means rounds elsewhere */
        cr_expect_str_eq(w->result.sha256, expected, "%s", sharded);
}

Test(reshard, there_and_back_has_the_same_bytes_and_fewer_nodes_go_on_like_full_ones)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world w;
        char full[256], sharded[256];
        world_init(&w, cases[i].frozen);
        snprintf(full, sizeof full, "{%s}", cases[i].optimizer);
        snprintf(sharded, sizeof sharded, "{%s, %s}", cases[i].sharding, cases[i].optimizer);
        go_around(&w, full, sharded, cases[i].few);
        world_release(&w);
    }
}

/* A conversion to the same number of nodes changes nothing for the rest of the run. */
Test(reshard, the_same_number_of_nodes_goes_on_with_the_bits_of_an_uninterrupted_run)
{
    struct world w;
    char expected[65];
    world_init(&w, "");
    fit(&w, "whole", 4, "fsdp", "{prefetch: true}", STEPS);
    memcpy(expected, w.result.sha256, sizeof expected);
    fit(&w, "half", 4, "fsdp", "{prefetch: true}", HALF);
    convert(&w, "half", "copy", 4, "fsdp", "{prefetch: true}");
    convert(&w, "copy", "two", 2, "fsdp", "{sharding_strategy: full_shard}");
    convert(&w, "two", "four", 4, "fsdp", "{prefetch: true}");
    fit(&w, "four", 4, "fsdp", "{prefetch: true}", STEPS);
    cr_expect_str_eq(w.result.sha256, expected);
    world_release(&w);
}

/* --- What is refused -------------------------------------------------------------------------- */

/* Whether a run has anything that looks like a checkpoint. */
static bool
has_checkpoint(const struct world *w, const char *run)
{
    char folder[128], newest[EXO_CHECKPOINT_PATH];
    snprintf(folder, sizeof folder, "%s/%s", w->folder, run);
    return exo_checkpoint_newest(folder, newest);
}

static void
refused(struct world *w, const char *from, uint32_t nodes, const char *strategy,
        const char *options, const char *reason)
{
    exo_status st = try_convert(w, from, "none", nodes, strategy, options);
    cr_expect_neq(st, EXO_OK, "%s to %u of %s %s", from, nodes, strategy, options);
    cr_expect_not_null(strstr(w->err.text, reason), "'%s' instead of '%s'", w->err.text, reason);
    cr_expect(!has_checkpoint(w, "none"), "%s", reason);
}

Test(reshard, what_cannot_be_converted_is_named)
{
    struct world w;
    world_init(&w, "");
    fit(&w, "diloco", 4, "diloco", "{H: 2}", HALF);
    refused(&w, "diloco", 2, "diloco", "{H: 2}", "the nodes of the strategy 'diloco' have states");
    fit(&w, "across", 4, "fsdp", "{group_size: 2, across: {name: diloco, H: 2}}", HALF);
    refused(&w, "across", 2, "fsdp", "{group_size: 2}", "with across: diloco the groups have");
    fit(&w, "full", 4, "ddp", "{}", HALF);
    refused(&w, "full", 2, "fedavg", "{H: 2}", "the nodes of the strategy 'fedavg' have states");
    refused(&w, "full", 3, "fsdp", "{group_size: 2}", "3 nodes cannot be cut into groups of 2");
    refused(&w, "full", 2, "ddp", "{optimizer: sgd}", "the optimizer has other moments");
    refused(&w, "full", 2, "ddp", "{optimizer: adagrad}",
            "other moments than the one of the checkpoint: sum instead of exp_avg");
    refused(&w, "full", 2, "ddp", "{optimiser: sgd}", "did you mean 'optimizer'?");
    exo_model *other = points_mlp(), *own = w.model;
    w.model = other;
    refused(&w, "full", 2, "ddp", "{}", "the checkpoint is of the model 'mlp' with");
    w.model = own;
    exo_model_drop(&other);
    world_release(&w);
}

/* Writes the manifest anew, so that it admits the files as they are. */
static void
admit(const struct world *w, const char *run, uint32_t nodes)
{
    char folder[256];
    exo_manifest_line lines[8] = {{{0}, {0}}};
    size_t count = 0;
    path_of(w, run, "", folder, sizeof folder);
    for (; count < nodes; count++)
        snprintf(lines[count].name, sizeof lines[count].name, "node_%zu.safetensors", count);
    snprintf(lines[count++].name, sizeof lines[0].name, "run.json");
    snprintf(lines[count++].name, sizeof lines[0].name, "figures.json");
    for (size_t i = 0; i < count; i++)
        hash_of(w, run, lines[i].name, lines[i].sha256);
    cr_assert_eq(exo_manifest_write(folder, HALF, lines, count, NULL), EXO_OK);
}

/* Copies a file of one run's checkpoint to another's. */
static void
copy_file(const struct world *w, const char *from, const char *to, const char *file)
{
    char path[256], *data = NULL;
    size_t size = 0;
    path_of(w, from, file, path, sizeof path);
    cr_assert_eq(exo_file_read(path, 1 << 20, &data, &size, NULL), EXO_OK);
    path_of(w, to, file, path, sizeof path);
    cr_assert_eq(exo_file_write_atomic(path, data, size, NULL), EXO_OK);
    exo_free(data);
}

/* Files that are whole, but not of nodes that were equal. */
Test(reshard, nodes_that_differ_are_found)
{
    struct world w;
    world_init(&w, "");
    fit(&w, "full", 2, "ddp", "{}", HALF);
    fit(&w, "other", 2, "ddp", "{optimizer: {name: adamw, lr: 0.1}}", HALF);
    copy_file(&w, "other", "full", "node_1.safetensors");
    admit(&w, "full", 2);
    refused(&w, "full", 3, "ddp", "{}",
            "another state than the other nodes, which other nodes cannot continue: 'model.");
    world_release(&w);
}

static void
damage(const char *path, const char *data, size_t size, const char *file, struct world *w)
{
    cr_assert_eq(exo_file_write_atomic(path, data, size, NULL), EXO_OK);
    refused(w, "four", 3, "fsdp", "{}", file);
    cr_expect_not_null(strstr(w->err.text, "damaged"), "%s", w->err.text);
}

/* Each file of a checkpoint, cut at several lengths and with one bit changed at several places. */
Test(reshard, a_damaged_shard_is_named_and_nothing_is_written)
{
    static const char *const files[] = {"node_0.safetensors", "node_2.safetensors",
                                        "node_3.safetensors", "run.json", "manifest.sha256"};
    struct world w;
    world_init(&w, "");
    fit(&w, "four", 4, "fsdp", "{}", HALF);
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        char path[256], *data = NULL;
        size_t size = 0;
        path_of(&w, "four", files[f], path, sizeof path);
        cr_assert_eq(exo_file_read(path, 1 << 20, &data, &size, NULL), EXO_OK);
        const size_t lengths[] = {0, 7, 9, size / 2, size - 1};
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            damage(path, data, lengths[i], files[f], &w);
        const size_t places[] = {9, size / 2, size - 2};
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            data[places[i]] ^= 0x10;
            damage(path, data, size, files[f], &w);
            data[places[i]] ^= 0x10;
        }
        cr_assert_eq(exo_file_write_atomic(path, data, size, NULL), EXO_OK);
        exo_free(data);
    }
    convert(&w, "four", "three", 3, "fsdp", "{}");
    world_release(&w);
}
