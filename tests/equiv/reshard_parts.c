/* Checkpoints of nodes that share copies of a model in one way go on with nodes that share them in another:
 * tensor parts, stages, context parallelism, whole nodes and shards. What is converted there and back has
 * the same bytes; a run that goes on has the numbers of one that was always so. The tests own their runs.
 * Read next: actors/reshard.h. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/memory.h>
#include <exogym/parallel.h>

#include "actors/checkpoint.h"
#include "actors/manifest.h"
#include "actors/reshard.h"
#include "base/file.h"
#include "support/numbers.h"
#include "support/temp.h"
#include "support/token_rows.h"

enum {
    HALF = 3, /* steps up to the checkpoint: not at the end of a round */
    STEPS = 6,
    SAMPLES = 4,
    LENGTH = 12,
    VOCABULARY = 51
};

/* How the nodes of a run share its model. Two copies each, unless there are more nodes. */
struct form {
    const char *name;
    uint32_t nodes, tensor, pipeline, context;
};

static const struct form whole = {"whole", 2, 1, 1, 1}, parts = {"parts", 4, 2, 1, 1},
                         stages = {"stages", 4, 1, 2, 1}, tokens = {"tokens", 4, 1, 1, 2},
                         quarters = {"quarters", 8, 4, 1, 1}, both = {"both", 8, 2, 2, 1},
                         all = {"all", 16, 2, 2, 2};

struct world {
    char folder[64];
    exo_model *model;
    exo_dataset *train;
    exo_trainer *trainer;
    exo_fit_result result;
    exo_err err;
};

static void
world_init(struct world *w, bool tied)
{
    char text[200];
    exo_config_doc *doc = NULL;
    *w = (struct world){.train = token_rows_new(200, LENGTH, VOCABULARY)};
    temp_folder(w->folder, sizeof w->folder);
    snprintf(text, sizeof text,
             "{layers: 2, width: 16, heads: 4, inner: 24, vocabulary: %d, context: 16, tied: %s}",
             VOCABULARY, tied ? "true" : "false");
    cr_assert_eq(exo_config_parse(&doc, "model", text, NULL), EXO_OK);
    cr_assert_eq(exo_model_new_named(&w->model, "gpt", exo_config_root(doc), &w->err), EXO_OK, "%s",
                 w->err.text);
    exo_config_free(&doc);
    cr_assert_eq(exo_trainer_new(&w->trainer, w->model, w->train, NULL, &w->err), EXO_OK, "%s",
                 w->err.text);
}

static void
world_release(struct world *w)
{
    exo_params_free(&w->result.params);
    exo_trainer_free(&w->trainer);
    exo_dataset_drop(&w->train);
    exo_model_drop(&w->model);
    temp_remove(w->folder);
}

/* Trains the run of this name up to a step, from its checkpoint if it has one. */
static void
fit(struct world *w, const char *run, const struct form *form, const char *strategy,
    const char *options, uint64_t steps)
{
    exo_fit_opts opts = exo_fit_opts_init();
    char folder[128], newest[EXO_CHECKPOINT_PATH];
    snprintf(folder, sizeof folder, "%s/%s", w->folder, run);
    exo_params_free(&w->result.params);
    opts.num_nodes = form->nodes;
    opts.tensor = form->tensor;
    opts.pipeline = form->pipeline;
    opts.context_parallel = form->context;
    opts.batch_size = SAMPLES;
    opts.minibatch_size = SAMPLES / 2;
    opts.max_steps = steps;
    opts.save_dir = w->folder;
    opts.run_name = run;
    opts.resume = exo_checkpoint_newest(folder, newest);
    opts.val_size = EXO_VAL_NONE;
    exo_status st = exo_trainer_fit_text(w->trainer, strategy, options, &opts, &w->result, &w->err);
    cr_assert_eq(st, EXO_OK, "%s: %s %s: %s", run, strategy, options, w->err.text);
}

static exo_status
try_convert(struct world *w, const char *from, const char *to, const struct form *form,
            const char *strategy, const char *options)
{
    char run[128], target[128], newest[EXO_CHECKPOINT_PATH];
    exo_config_doc *doc = NULL;
    exo_resharded done;
    snprintf(run, sizeof run, "%s/%s", w->folder, from);
    snprintf(target, sizeof target, "%s/%s", w->folder, to);
    cr_assert(exo_checkpoint_newest(run, newest), "%s", from);
    cr_assert_eq(exo_config_parse(&doc, "options", options, NULL), EXO_OK);
    const exo_reshard_form new = {.num_nodes = form->nodes,
                                  .tensor = form->tensor,
                                  .pipeline = form->pipeline,
                                  .context = form->context,
                                  .strategy = strategy,
                                  .options = exo_config_root(doc)};
    w->err = (exo_err){0};
    exo_status st = exo_reshard(w->model, newest, target, &new, &done, &w->err);
    exo_config_free(&doc);
    return st;
}

static void
convert(struct world *w, const char *from, const char *to, const struct form *form,
        const char *strategy, const char *options)
{
    exo_status st = try_convert(w, from, to, form, strategy, options);
    cr_assert_eq(st, EXO_OK, "%s to %s: %s %s: %s", from, to, strategy, options, w->err.text);
}

static void
hash_of(const struct world *w, const char *run, uint32_t node, char sha256[65])
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s/checkpoints/step_%08d/node_%u.safetensors", w->folder, run,
             HALF, node);
    cr_assert_eq(exo_sha256_file(path, sha256, NULL), EXO_OK, "%s", path);
}

/* --- Numbers ---------------------------------------------------------------------------------- */

/* A run that changes its form after HALF steps, and one that always had the second form. */
static void
go_on(struct world *w, const struct form *from, const struct form *to, const char *strategy,
      const char *options)
{
    char run[64], next[64], alone[64];
    const size_t numel = exo_model_numel(w->model);
    float *wanted = exo_calloc(numel, sizeof *wanted);
    snprintf(run, sizeof run, "%s_%s", from->name, strategy);
    snprintf(next, sizeof next, "%s_%s_%s", from->name, to->name, strategy);
    snprintf(alone, sizeof alone, "alone_%s_%s", to->name, strategy);
    fit(w, alone, to, strategy, options, STEPS);
    memcpy(wanted, exo_params_values(w->result.params), numel * sizeof *wanted);
    fit(w, run, from, strategy, options, HALF);
    convert(w, run, next, to, strategy, options);
    fit(w, next, to, strategy, options, STEPS);
    const double off = numbers_distance(exo_params_values(w->result.params), wanted, numel);
    cr_expect_lt(off, 1e-5, "%s to %s, %s: off by %g", from->name, to->name, strategy, off);
    exo_free(wanted);
}

#define SGD "optimizer: {name: sgd, lr: 0.1, momentum: 0.9}"

Test(reshard_parts, a_run_goes_on_with_nodes_that_share_the_model_in_another_way)
{
    static const struct form *const ways[][2] = {{&whole, &stages}, {&stages, &parts},
                                                 {&parts, &tokens}, {&tokens, &stages},
                                                 {&stages, &whole}, {&tokens, &whole}};
    struct world w;
    world_init(&w, true);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        go_on(&w, ways[i][0], ways[i][1], i % 2 ? "fsdp" : "ddp", "{" SGD "}");
    world_release(&w);
}

Test(reshard_parts, copies_that_differ_go_on_as_they_are)
{
    static const struct {
        const char *strategy, *options;
    } cases[] = {
        {"diloco", "{H: 2, offset: 1, " SGD "}"},
        {"eager_diloco", "{H: 2, " SGD "}"},
        {"local_sgd", "{H: 4, " SGD "}"},
    };
    struct world w;
    world_init(&w, true);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        go_on(&w, &whole, &parts, cases[i].strategy, cases[i].options);
        go_on(&w, &parts, &stages, cases[i].strategy, cases[i].options);
        go_on(&w, &stages, &tokens, cases[i].strategy, cases[i].options);
    }
    go_on(&w, &tokens, &both, cases[0].strategy, cases[0].options);
    go_on(&w, &both, &parts, cases[0].strategy, cases[0].options);
    go_on(&w, &whole, &tokens, "sparta", "{p: 0.3, delay: 1, " SGD "}");
    world_release(&w);
}

/* --- Bits ------------------------------------------------------------------------------------- */

/* Through every form and back. */
static void
go_around(struct world *w, const char *strategy, const char *options)
{
    static const struct form *const forms[] = {&parts,  &stages, &tokens, &quarters, &all,
                                               &stages, &both,   &tokens, &whole};
    char from[64], to[64], expected[65], got[65];
    snprintf(from, sizeof from, "begun_%s", strategy);
    fit(w, from, &whole, strategy, options, HALF);
    /* once, so that the mean of the nodes' bytes is in both */
    snprintf(to, sizeof to, "first_%s", strategy);
    convert(w, from, to, &tokens, strategy, options);
    snprintf(from, sizeof from, "second_%s", strategy);
    convert(w, to, from, &whole, strategy, options);
    for (uint32_t r = 0; r < 2; r++) {
        char last[64];
        snprintf(last, sizeof last, "%s", from);
        for (size_t i = 0; r == 0 && i < sizeof forms / sizeof *forms; i++) {
            snprintf(to, sizeof to, "round_%zu_%s", i, strategy);
            convert(w, last, to, forms[i], strategy, options);
            snprintf(last, sizeof last, "%s", to);
        }
        hash_of(w, from, r, expected);
        hash_of(w, to, r, got);
        cr_expect_str_eq(got, expected, "%s: node_%u", strategy, r);
    }
}

Test(reshard_parts, there_and_back_has_the_same_bytes)
{
    struct world w;
    world_init(&w, true);
    go_around(&w, "ddp", "{optimizer: {name: adam, amsgrad: true}}");
    go_around(&w, "fsdp",
              "{sharding_strategy: full_shard, optimizer: {name: adam, amsgrad: true}}");
    go_around(&w, "diloco", "{H: 2}");
    go_around(&w, "demo", "{k: 4, chunk: 8}");
    go_around(&w, "quantized", "{error_feedback: true}");
    go_around(&w, "eager_diloco", "{H: 2, optimizer: {name: adamw, lr: 0.01}}");
    world_release(&w);
}

/* An untied model has the same bits in stages and as a whole. */
Test(reshard_parts, stages_go_on_with_the_bits_of_whole_nodes_and_of_shards)
{
    const struct form three = {"three", 3, 1, 1, 1};
    struct world w;
    char expected[65];
    world_init(&w, false);
    fit(&w, "whole", &whole, "ddp", "{}", STEPS);
    memcpy(expected, w.result.sha256, sizeof expected);
    fit(&w, "stages", &stages, "ddp", "{}", HALF);
    convert(&w, "stages", "shards", &three, "fsdp", "{sharding_strategy: full_shard}");
    convert(&w, "shards", "tokens", &tokens, "ddp", "{}");
    convert(&w, "tokens", "again", &stages, "ddp", "{}");
    fit(&w, "again", &stages, "ddp", "{}", STEPS);
    cr_expect_str_eq(w.result.sha256, expected);
    convert(&w, "shards", "back", &whole, "ddp", "{}");
    fit(&w, "back", &whole, "ddp", "{}", STEPS);
    cr_expect_str_eq(w.result.sha256, expected);
    world_release(&w);
}

/* --- What is refused -------------------------------------------------------------------------- */

static void
refused(struct world *w, const char *from, const struct form *form, const char *strategy,
        const char *options, const char *reason)
{
    char folder[128], newest[EXO_CHECKPOINT_PATH];
    exo_status st = try_convert(w, from, "none", form, strategy, options);
    cr_expect_neq(st, EXO_OK, "%s to %s %s", from, strategy, options);
    cr_expect_not_null(strstr(w->err.text, reason), "'%s' instead of '%s'", w->err.text, reason);
    snprintf(folder, sizeof folder, "%s/none", w->folder);
    cr_expect(!exo_checkpoint_newest(folder, newest), "%s", reason);
}

Test(reshard_parts, what_cannot_be_converted_is_named)
{
    const struct form three = {"three", 3, 1, 2, 1}, eight = {"eight", 4, 2, 2, 2},
                      one = {"one", 2, 1, 2, 1};
    struct world w;
    world_init(&w, true);
    fit(&w, "stages", &stages, "diloco", "{H: 2}", HALF);
    refused(&w, "stages", &three, "diloco", "{H: 2}", "pipeline 2 does not divide the 3 nodes");
    refused(&w, "stages", &eight, "diloco", "{H: 2}",
            "tensor x pipeline x context 8 does not divide the 4 nodes");
    refused(&w, "stages", &one, "diloco", "{H: 2}",
            "the nodes of the strategy 'diloco' have states");
    refused(&w, "stages", &whole, "diloco", "{H: 3}", "have states of their own");
    fit(&w, "random", &tokens, "sparta", "{p: 0.3, delay: 1}", HALF);
    refused(&w, "random", &parts, "sparta", "{p: 0.3, delay: 1}", "sparta");
    world_release(&w);
}

/* --- Nodes that contradict each other --------------------------------------------------------- */

/* Reads a node's file, of which the entry `name` is at data + *at. The caller frees it. */
static char *
read_node(const struct world *w, const char *run, int step, uint32_t node, const char *name,
          char path[256], size_t *size, size_t *at)
{
    char key[96], *data = NULL;
    uint64_t header = 0;
    snprintf(path, 256, "%s/%s/checkpoints/step_%08d/node_%u.safetensors", w->folder, run, step,
             node);
    cr_assert_eq(exo_file_read(path, 1 << 24, &data, size, NULL), EXO_OK, "%s", path);
    memcpy(&header, data, sizeof header);
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *entry = strstr(data + sizeof header, key);
    cr_assert_not_null(entry, "%s has no %s", path, name);
    entry = strstr(entry, "\"data_offsets\":[");
    cr_assert_eq(sscanf(entry, "\"data_offsets\":[%zu", at), 1);
    *at += sizeof header + header;
    return data;
}

/* Writes the manifest of a checkpoint's files as they are. */
static void
renew_manifest(const struct world *w, const char *run, uint32_t nodes)
{
    exo_manifest_line lines[9] = {{.name = "run.json"}, {.name = "figures.json"}};
    char folder[128], path[256];
    snprintf(folder, sizeof folder, "%s/%s/checkpoints/step_%08d", w->folder, run, HALF);
    for (uint32_t r = 0; r < nodes; r++)
        snprintf(lines[r + 2].name, sizeof lines->name, "node_%u.safetensors", r);
    for (uint32_t i = 0; i < nodes + 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, lines[i].name);
        cr_assert_eq(exo_sha256_file(path, lines[i].sha256, NULL), EXO_OK, "%s", path);
    }
    cr_assert_eq(exo_manifest_write(folder, HALF, lines, nodes + 2, NULL), EXO_OK);
}

Test(reshard_parts, a_node_that_contradicts_the_others_is_named)
{
    const struct form four = {"four", 4, 2, 1, 2}, one = {"one", 1, 1, 1, 1};
    static const struct {
        uint32_t node;
        const char *name;
    } forged[] = {{1, "model.norm.weight"}, {2, "model.embedding.weight"}};
    static const char *const strategies[] = {"ddp", "local_sgd"};
    struct world w;
    world_init(&w, true);
    for (size_t s = 0; s < 2; s++) {
        fit(&w, strategies[s], &four, strategies[s], "{}", HALF);
        for (size_t i = 0; i < 2; i++) {
            char path[256], reason[64];
            size_t size, at;
            char *data = read_node(&w, strategies[s], HALF, forged[i].node, forged[i].name, path,
                                   &size, &at);
            for (int again = 0; again < 2; again++) {
                data[at] = (char)(data[at] ^ 1);
                cr_assert_eq(exo_file_write_atomic(path, data, size, NULL), EXO_OK);
                renew_manifest(&w, strategies[s], four.nodes);
                snprintf(reason, sizeof reason, "node_%u.safetensors: ", forged[i].node);
                if (!again)
                    refused(&w, strategies[s], &one, strategies[s], "{}", reason);
                if (!again)
                    cr_expect_not_null(strstr(w.err.text, forged[i].name), "%s", w.err.text);
            }
            exo_free(data);
        }
        convert(&w, strategies[s], "right", &one, strategies[s], "{}");
    }
    world_release(&w);
}

/* What both parts have of the outer parameters is equal, and the whole has that of the first. */
Test(reshard_parts, outer_parameters_of_parts_are_those_of_the_first)
{
    struct world w;
    exo_model *shared[2] = {NULL};
    char path[256], *files[2];
    size_t size, at[2];
    world_init(&w, true);
    fit(&w, "parts", &parts, "sparseloco", "{H: 2, " SGD "}", STEPS);
    convert(&w, "parts", "whole", &whole, "sparseloco", "{H: 2, " SGD "}");
    fit(&w, "whole", &whole, "sparseloco", "{H: 2, " SGD "}", STEPS + 2);
    for (uint32_t r = 0; r < 2; r++) {
        const exo_share share = {.part = r, .parts = 2};
        files[r] = read_node(&w, "parts", STEPS, r, "sparseloco.outer", path, &size, &at[r]);
        cr_assert_eq(exo_model_share(&shared[r], w.model, &share, NULL), EXO_OK);
    }
    for (size_t i = 0; i < exo_model_num_infos(shared[0]); i++) {
        const exo_param_info *a = &exo_model_infos(shared[0])[i],
                             *b = &exo_model_infos(shared[1])[i];
        if (!exo_model_cut(shared[1], i))
            cr_expect_arr_eq(files[0] + at[0] + a->offset * sizeof(float),
                             files[1] + at[1] + b->offset * sizeof(float), a->numel * sizeof(float),
                             "%s differs", a->name);
    }
    for (int r = 0; r < 2; r++) {
        exo_free(files[r]);
        exo_model_drop(&shared[r]);
    }
    world_release(&w);
}

Test(reshard_parts, products_beyond_32_bits_are_refused)
{
    struct world w;
    char path[256], run[128], newest[EXO_CHECKPOINT_PATH];
    static const char settings[] =
        "{\"strategy\": \"ddp\", \"options\": \"{}\", \"model\": \"gpt\", "
        "\"parameters\": %zu, \"num_nodes\": 65536, \"tensor\": 65536, \"pipeline\": 65536}";
    char text[256];
    world_init(&w, true);
    fit(&w, "whole", &whole, "ddp", "{}", HALF);
    snprintf(run, sizeof run, "%s/whole", w.folder);
    cr_assert(exo_checkpoint_newest(run, newest));
    snprintf(path, sizeof path, "%.200s/run.json", newest);
    snprintf(text, sizeof text, settings, exo_model_numel(w.model));
    cr_assert_eq(exo_file_write_atomic(path, text, strlen(text), NULL), EXO_OK);
    renew_manifest(&w, "whole", whole.nodes);
    refused(&w, "whole", &whole, "ddp", "{}",
            "tensor x pipeline x context 4294967296 does not divide the 65536 nodes");
    world_release(&w);
}
