/* Models, strategies, evaluation, checkpoints and generation on a device whose memory the host
 * cannot reach. Results have the bits of the CPU, and a failure of the device ends a run cleanly.
 * The device is chosen by its name, as in a job.
 *
 * Each test owns its runs; `far` is set between runs and read by the nodes' threads. Read next:
 * tests/support/far_device.h. */
#include <criterion/criterion.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/generate.h>

#include "nn/device/kinds.h"
#include "support/far_device.h"
#include "support/numbers.h"
#include "support/points.h"
#include "support/sanitized.h"
#include "support/small_decoders.h"
#include "support/temp.h"

/* --- The device by its name ------------------------------------------------------------------- */

/* The failure of one device among those that are opened. Set between runs. */
static struct {
    /* the number of the device from 1, 0: none; its failing request; its failing allocation */
    uint64_t which, fail_at, no_memory_at;
    atomic_uint_fast64_t opened, closed, asked;
} far;

static exo_status
open_far(exo_device **out, const char *which, uint32_t place, exo_err *err)
{
    (void)which;
    (void)place;
    (void)err;
    *out = far_device_new();
    if (atomic_fetch_add(&far.opened, 1) + 1 == far.which) {
        far_device_fail_at(*out, far.fail_at);
        far_device_no_memory_at(*out, far.no_memory_at);
    }
    return EXO_OK;
}

static void
close_far(exo_device *device)
{
    atomic_fetch_add(&far.asked, far_device_asked(device));
    atomic_fetch_add(&far.closed, 1);
    far_device_free(&device);
}

static const exo_device_kind far_kind = {.name = "far", .open = open_far, .close = close_far};

static void
plan_failure(uint64_t which, uint64_t fail_at, uint64_t no_memory_at)
{
    far.which = which;
    far.fail_at = fail_at;
    far.no_memory_at = no_memory_at;
    atomic_store(&far.opened, 0);
    atomic_store(&far.closed, 0);
    atomic_store(&far.asked, 0);
}

static void
set_up(void)
{
    exo_err err = {0};
    cr_assert_eq(exo_registry_add(&exo_device_registry, &far_kind, &err), EXO_OK, "%s", err.text);
    plan_failure(0, 0, 0);
}

TestSuite(device_runs, .init = set_up);

Test(device_runs, a_device_that_is_not_there_is_named_with_those_that_are)
{
    exo_device *device = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_device_open(&device, "abacus", &err), EXO_NOT_FOUND);
    cr_expect(strstr(err.text, "abacus") && strstr(err.text, "cpu") && strstr(err.text, "far"),
              "%s", err.text);
    cr_expect_eq(exo_device_open(&device, "cpu", &err), EXO_OK);
    cr_expect_eq(device, exo_device_cpu());
    exo_device_close(&device);
    cr_expect_null(device);
}

/* --- Data ------------------------------------------------------------------------------------- */

enum {
    T = 12,
    V = 70
};

static size_t
token_length(const void *self)
{
    (void)self;
    return 64;
}

static size_t
token_fields(const void *self, exo_field *out)
{
    (void)self;
    out[0] = (exo_field){.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {T}};
    out[1] = (exo_field){.name = "targets", .dtype = EXO_I32, .num_dims = 1, .dims = {T}};
    return 2;
}

/* Some targets are -1, which is no token. */
static exo_status
token_get(const void *self, size_t index, const exo_sample_key *key, void *const *out, exo_err *err)
{
    (void)self;
    (void)key;
    (void)err;
    for (size_t t = 0; t < T; t++) {
        ((int32_t *)out[0])[t] = (int32_t)((index * 7 + t * t) % V);
        ((int32_t *)out[1])[t] = t % 5 == 4 ? -1 : (int32_t)((index * 7 + (t + 1) * (t + 1)) % V);
    }
    return EXO_OK;
}

static void
token_free(void *self)
{
    (void)self;
}

static exo_dataset *
tokens(void)
{
    static const exo_dataset_class squares = {.name = "squares",
                                              .length = token_length,
                                              .fields = token_fields,
                                              .get = token_get,
                                              .free = token_free};
    static int nothing;
    exo_dataset *data = NULL;
    cr_assert_eq(exo_dataset_new(&data, &squares, &nothing, NULL), EXO_OK);
    return data;
}

static exo_dataset *
images(void)
{
    exo_dataset *train = NULL, *val = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_dataset_named("synthetic", NULL, &train, &val, &err), EXO_OK, "%s", err.text);
    exo_dataset_drop(&val);
    return train;
}

static exo_dataset *
points(void)
{
    return points_new(64, 1, SIZE_MAX);
}

/* --- Models ----------------------------------------------------------------------------------- */

#define SMALL "vocabulary: 70, context: 16, layers: 2, heads: 4, width: 16"

static const struct {
    const char *name, *options;
    exo_dataset *(*data)(void);
} models[] = {
    {"mlp", "{in: 8, hidden: [16], out: 3}", points},
    {"mnist_cnn", "{}", images},
    {"gpt", "{" SMALL "}", tokens},
    {"gpt", "{" SMALL ", dropout: 0.1}", tokens},
    {"gpt", "{" SMALL ", dropout: 0.1, checkpoint: true}", tokens},
    {"gpt",
     "{" SMALL ", position: rotary, norm: rms, activation: silu, gated: true, bias: false, "
     "kv_heads: 2, tied: false}",
     tokens},
    {"gpt", "{" SMALL ", position: alibi, embedding_norm: true, activation: relu}", tokens},
    {"gpt", "{" SMALL ", frozen: 'blocks.0.*'}", tokens},
    {"gpt",
     "{" SMALL ", position: rotary, norm: rms, gated: true, bias: false, kv_heads: 2, "
     "head_width: 6, qk_norm: true}",
     tokens},
};

enum {
    NUM_MODELS = sizeof models / sizeof *models
};

static exo_model *
make_model(size_t i)
{
    exo_model *model = NULL;
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    if (strcmp(models[i].name, "mlp") == 0)
        return points_mlp();
    cr_assert_eq(exo_config_parse(&doc, "options", models[i].options, &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(exo_model_new_named(&model, models[i].name, exo_config_root(doc), &err), EXO_OK,
                 "%s: %s", models[i].options, err.text);
    exo_config_free(&doc);
    return model;
}

/* What a few steps of SGD leave: the losses and metrics, then all parameters and statistics. */
struct outcome {
    double numbers[16];
    size_t count;
    float *params;
    size_t numel;
    exo_status status;
    exo_err err;
    uint64_t asked;
};

struct learning {
    exo_model *model;
    exo_dataset *data;
    bool autocast;
};

static exo_status
learn_step(const struct learning *l, exo_tape *tape, exo_params *params, const exo_batch *batch,
           uint64_t step, struct outcome *out)
{
    const exo_pass pass = {
        .train = true, .grad = true, .autocast = l->autocast, .seed = 5, .node = 1, .step = step};
    exo_params_zero_grads(params);
    exo_tape_begin(tape, params, &pass);
    exo_tensor *loss = exo_model_loss(l->model, tape, batch);
    if (!loss)
        return exo_tape_error(tape, &out->err);
    out->numbers[out->count++] = (double)exo_tensor_item(loss);
    for (size_t i = 0; i < exo_tape_num_metrics(tape) && out->count < 15; i++) {
        size_t count;
        exo_tape_metric_at(tape, i, &out->numbers[out->count++], &count);
    }
    exo_status st = exo_tape_backward(tape, loss, 1.0f, &out->err);
    if (st == EXO_OK)
        exo_vec_axpy(exo_params_values_array(params), -0.05f, exo_params_grads_array(params));
    return st;
}

static exo_status
read_back(const exo_params *params, struct outcome *out)
{
    const exo_array values = exo_params_values_array(params),
                    buffers = exo_params_buffers_array(params);
    out->numel = values.count + buffers.count;
    out->params = calloc(out->numel + 1, sizeof *out->params);
    cr_assert_not_null(out->params);
    exo_status st = exo_array_read(values, out->params, &out->err);
    return st == EXO_OK ? exo_array_read(buffers, out->params + values.count, &out->err) : st;
}

static exo_status
learn_on(const struct learning *l, exo_device *device, struct outcome *out)
{
    exo_params *initial = NULL, *params = NULL;
    exo_tape *tape = NULL;
    exo_batch batch = {0};
    const size_t indices[4] = {3, 1, 7, 2};
    const exo_sample_key key = {.seed = 1};
    cr_assert_eq(exo_model_params(l->model, 9, &initial, &out->err), EXO_OK, "%s", out->err.text);
    cr_assert_eq(exo_batch_init(&batch, l->data, 4, &out->err), EXO_OK, "%s", out->err.text);
    cr_assert_eq(exo_batch_read(&batch, l->data, indices, 4, &key, &out->err), EXO_OK, "%s",
                 out->err.text);
    exo_status st = exo_params_to(&params, initial, device, &out->err);
    if (st == EXO_OK)
        st = exo_tape_new_on(&tape, device, &out->err);
    for (uint64_t step = 0; st == EXO_OK && step < 3; step++)
        st = learn_step(l, tape, params, &batch, step, out);
    if (st == EXO_OK)
        st = read_back(params, out);
    exo_tape_free(&tape);
    exo_params_free(&params);
    exo_params_free(&initial);
    exo_batch_release(&batch);
    return st;
}

static struct outcome
learn(const struct learning *l, const char *name)
{
    struct outcome out = {0};
    exo_device *device = NULL;
    cr_assert_eq(exo_device_open(&device, name, &out.err), EXO_OK, "%s", out.err.text);
    out.status = learn_on(l, device, &out);
    if (device != exo_device_cpu())
        out.asked = far_device_asked(device);
    exo_device_close(&device);
    return out;
}

static struct learning
learning_of(size_t model, bool autocast)
{
    return (struct learning){
        .model = make_model(model), .data = models[model].data(), .autocast = autocast};
}

static void
learning_release(struct learning *l)
{
    exo_dataset_drop(&l->data);
    exo_model_drop(&l->model);
}

Test(device_runs, every_model_has_the_bits_of_the_cpu, .timeout = 250)
{
    for (size_t i = 0; i < NUM_MODELS; i++)
        for (int bf16 = 0; bf16 <= numbers_bf16_runs(); bf16++) {
            struct learning l = learning_of(i, bf16);
            struct outcome near = learn(&l, "cpu"), there = learn(&l, "far");
            cr_assert_eq(near.status, EXO_OK, "%s: %s", models[i].options, near.err.text);
            cr_assert_eq(there.status, EXO_OK, "%s: %s", models[i].options, there.err.text);
            cr_expect_eq(near.count, there.count);
            cr_expect_arr_eq(near.numbers, there.numbers, sizeof near.numbers, "%s %s: figures",
                             models[i].name, models[i].options);
            cr_assert_eq(near.numel, there.numel);
            cr_expect_arr_eq(near.params, there.params, near.numel * sizeof *near.params,
                             "%s %s, bf16 %d", models[i].name, models[i].options, bf16);
            free(near.params);
            free(there.params);
            learning_release(&l);
        }
}

/* Runs the pass again and again, each time with one failing request or allocation, `stride` after
 * the last. */
static void
fail_in_turn(size_t model, bool memory)
{
    struct learning l = learning_of(model, false);
    struct outcome whole = learn(&l, "far");
    cr_assert_eq(whole.status, EXO_OK);
    free(whole.params);
    uint64_t stride = memory ? 3 * one_of(4) : whole.asked / (40 / one_of(5)) + 1;
    for (uint64_t at = 1;; at += stride) {
        plan_failure(1, memory ? 0 : at, memory ? at : 0);
        struct outcome out = learn(&l, "far");
        free(out.params);
        if (out.status == EXO_OK) {
            cr_expect_gt(at, memory ? stride : whole.asked - stride,
                         "%s: a failure at %zu of %zu was lost", models[model].options, (size_t)at,
                         (size_t)whole.asked);
            break;
        }
        cr_expect_eq(out.status, memory ? EXO_NOMEM : EXO_FAILED, "%s", out.err.text);
        cr_expect(strstr(out.err.text, "on schedule"), "%s at %zu: '%s'", models[model].options,
                  (size_t)at, out.err.text);
    }
    plan_failure(0, 0, 0);
    learning_release(&l);
}

Test(device_runs, scheduled_failures_of_a_pass_end_it_cleanly, .timeout = 250)
{
    for (size_t i = 0; i < NUM_MODELS; i++)
        fail_in_turn(i, false);
}

Test(device_runs, scheduled_lacks_of_memory_end_a_pass_cleanly, .timeout = 250)
{
    for (size_t i = 0; i < NUM_MODELS; i++)
        if (i != 1) /* images need too many allocations */
            fail_in_turn(i, true);
}

/* --- Whole runs: strategies, evaluation, averages, correlation, checkpoints ------------------- */

static const struct {
    const char *name, *options;
} strategies[] = {
    {"ddp", "{optimizer: {name: adamw, lr: 0.01}, max_norm: 0.5}"},
    {"ddp", "{optimizer: {name: sgd, lr: 0.1, momentum: 0.9, nesterov: true}}"},
    {"diloco", "{H: 2, optimizer: {name: adamw, lr: 0.01}}"},
    {"muloco", "{H: 2, optimizer: {name: muon, lr: 0.02, matrices: all}}"},
    {"fedavg", "{H: 2, optimizer: {name: rmsprop, lr: 0.01, centered: true}}"},
    {"fedavg", "{H: 2, island_size: 2, optimizer: {name: adagrad, lr: 0.05}}"},
    {"sparta", "{p: 0.2, optimizer: {name: adam, lr: 0.01, amsgrad: true}}"},
    {"sparta", "{p: 0.2, selector: partitioned, delay: 1, interval: 2}"},
    {"sparta", "{p: 0.2, selector: shuffled_sequential}"},
    {"powersgd", "{rank: 2, optimizer: {name: adamw, lr: 0.01}}"},
    {"quantized", "{optimizer: {name: adamw, lr: 0.01}}"},
    {"demo", "{k: 3, chunk: 8, optimizer: {lr: 0.01}}"},
    {"onebit_adam", "{freeze_step: 2, optimizer: {lr: 0.01}}"},
    {"local_sgd", "{H: 2, optimizer: {name: adamw, lr: 0.01}}"},
    {"noloco", "{H: 2, optimizer: {name: adamw, lr: 0.01}}"},
    {"sparta_diloco", "{p: 0.2, H: 2, optimizer: {name: adamw, lr: 0.01}}"},
    {"streaming_diloco", "{H: 4, fragments: 2, optimizer: {name: adamw, lr: 0.01}}"},
    {"local_sgd", "{H: 2, aggregate: median, optimizer: {name: adamw, lr: 0.01}}"},
    {"compose", "{exchanges: [{every: 2, partners: pairs, apply: mix}, {every: 3}]}"},
    {"fsdp", "{optimizer: {name: adamw, lr: 0.01}, max_norm: 0.5}"},
    {"fsdp",
     "{prefetch: true, cpu_offload: true, optimizer: {name: adamw, lr: 0.01}, max_norm: 0.5}"},
};

enum {
    NUM_STRATEGIES = sizeof strategies / sizeof *strategies
};

struct run {
    exo_model *model;
    exo_dataset *data;
    exo_trainer *trainer;
    exo_fit_opts opts;
    exo_fit_result result;
    exo_err err;
};

static void
run_init(struct run *r, size_t model, const char *device)
{
    *r = (struct run){
        .model = make_model(model), .data = models[model].data(), .opts = exo_fit_opts_init()};
    cr_assert_eq(exo_trainer_new(&r->trainer, r->model, r->data, r->data, &r->err), EXO_OK, "%s",
                 r->err.text);
    r->opts.num_nodes = 3;
    r->opts.batch_size = 4;
    r->opts.minibatch_size = 2;
    r->opts.max_steps = 5;
    r->opts.val_size = 6;
    r->opts.val_interval = 2;
    r->opts.correlation_interval = 2;
    r->opts.save_dir = NULL;
    r->opts.device = device;
}

static exo_status
fit(struct run *r, size_t strategy)
{
    exo_params_free(&r->result.params);
    r->err = (exo_err){0};
    return exo_trainer_fit_text(r->trainer, strategies[strategy].name, strategies[strategy].options,
                                &r->opts, &r->result, &r->err);
}

static void
run_release(struct run *r)
{
    exo_params_free(&r->result.params);
    exo_trainer_free(&r->trainer);
    exo_dataset_drop(&r->data);
    exo_model_drop(&r->model);
}

static void
expect_same(size_t model, size_t strategy)
{
    struct run near, there;
    run_init(&near, model, "cpu");
    run_init(&there, model, "far");
    plan_failure(0, 0, 0);
    cr_assert_eq(fit(&near, strategy), EXO_OK, "%s: %s", strategies[strategy].name, near.err.text);
    cr_assert_eq(fit(&there, strategy), EXO_OK, "%s: %s", strategies[strategy].name,
                 there.err.text);
    cr_expect_eq(atomic_load(&far.opened), 3, "each node opens one");
    cr_expect_eq(atomic_load(&far.closed), 3);
    cr_expect_str_eq(near.result.sha256, there.result.sha256, "%s %s: %s %s", models[model].name,
                     models[model].options, strategies[strategy].name,
                     strategies[strategy].options);
    cr_expect_eq(near.result.local_loss, there.result.local_loss, "%s: %.17g and %.17g",
                 strategies[strategy].name, near.result.local_loss, there.result.local_loss);
    cr_expect_eq(near.result.global_loss, there.result.global_loss);
    cr_expect(memcmp(&near.result.global_accuracy, &there.result.global_accuracy, sizeof(double)) ==
              0);
    run_release(&near);
    run_release(&there);
}

Test(device_runs, every_strategy_trains_and_evaluates_to_the_bits_of_the_cpu, .timeout = 250)
{
    for (size_t s = 0; s < NUM_STRATEGIES; s += one_of(2))
        expect_same(0, s);
}

Test(device_runs, every_model_trains_and_evaluates_to_the_bits_of_the_cpu, .timeout = 250)
{
    for (size_t i = 1; i < NUM_MODELS; i += one_of(2))
        expect_same(i, i % NUM_STRATEGIES);
}

/* A copy by units on a device has the values of the units that were open, and addresses for all. */
Test(device_runs, a_copy_by_units_goes_to_a_device_with_its_open_units)
{
    exo_model *model = make_model(0);
    exo_params *here = NULL, *there = NULL;
    exo_device *device = NULL;
    exo_array values, grads;
    exo_err err = {0};
    float first = 0, second = 1;
    cr_assert_eq(exo_model_by_units(model, 1, &here, &err), EXO_OK, "%s", err.text);
    cr_assert_geq(exo_params_num_units(here), 2);
    cr_assert_eq(exo_unit_open(here, 0, &values, &err), EXO_OK);
    ((float *)values.data)[0] = 3;
    cr_assert_eq(exo_device_open(&device, "far", &err), EXO_OK, "%s", err.text);
    const uint64_t empty = far_device_used(device);
    cr_assert_eq(exo_params_to(&there, here, device, &err), EXO_OK, "%s", err.text);
    cr_expect_null(exo_unit_values(there, 1).data, "it was absent");
    cr_assert_eq(exo_unit_open(there, 1, &values, &err), EXO_OK);
    cr_expect_eq(exo_array_read(exo_array_part(exo_unit_values(there, 0), 0, 1), &first, &err),
                 EXO_OK);
    cr_expect_eq(exo_array_read(exo_array_part(values, 0, 1), &second, &err), EXO_OK);
    cr_expect_eq(first, 3);
    cr_expect_eq(second, 0);
    cr_assert_eq(exo_unit_open_grads(there, 1, &grads, &err), EXO_OK);
    exo_vec_fill(values, 5);
    exo_unit_close(there, 1); /* after the work that was asked for */
    cr_assert_eq(exo_unit_open(there, 1, &values, &err), EXO_OK);
    cr_expect_eq(exo_array_read(exo_array_part(values, 0, 1), &second, &err), EXO_OK);
    cr_expect_eq(second, 0, "closed units leave nothing");
    exo_params_free(&there);
    cr_expect_eq(far_device_used(device), empty);
    exo_params_free(&here);
    exo_device_close(&device);
    exo_model_drop(&model);
}

Test(device_runs, a_checkpoint_of_one_device_goes_on_on_the_other, .timeout = 250)
{
    static const char *const devices[2] = {"cpu", "far"};
    for (size_t s = 0; s < NUM_STRATEGIES; s += 2 * one_of(3))
        for (int first = 0; first < 2; first++) {
            char folder[64];
            struct run whole, r;
            temp_folder(folder, sizeof folder);
            run_init(&whole, 0, "cpu");
            cr_assert_eq(fit(&whole, s), EXO_OK, "%s", whole.err.text);
            run_init(&r, 0, devices[first]);
            r.opts.save_dir = folder;
            r.opts.run_name = "run";
            r.opts.max_steps = 3;
            r.opts.final_checkpoint = true;
            cr_assert_eq(fit(&r, s), EXO_OK, "%s", r.err.text);
            r.opts.max_steps = 5;
            r.opts.resume = true;
            r.opts.device = devices[!first];
            cr_assert_eq(fit(&r, s), EXO_OK, "%s", r.err.text);
            cr_expect_str_eq(r.result.sha256, whole.result.sha256, "%s from %s", strategies[s].name,
                             devices[first]);
            run_release(&whole);
            run_release(&r);
            temp_remove(folder);
        }
}

/* The device of one node fails, at each of about `runs` of its requests, or at an allocation. The
 * run ends with the device's error. */
static void
fail_run_in_turn(size_t strategy, uint64_t runs, bool memory)
{
    struct run r;
    run_init(&r, 0, "far");
    r.opts.max_steps = 3;
    plan_failure(0, 0, 0);
    cr_assert_eq(fit(&r, strategy), EXO_OK, "%s", r.err.text);
    uint64_t asked = atomic_load(&far.asked) / 3, failed = 0,
             stride = memory ? 5 * one_of(4) : asked / runs + 1;
    exo_status st = EXO_FAILED;
    for (uint64_t at = 1; st != EXO_OK && at < 4 * asked; at += stride) {
        plan_failure(2, memory ? 0 : at, memory ? at : 0);
        st = fit(&r, strategy);
        failed += st != EXO_OK;
        cr_expect_eq(atomic_load(&far.opened), atomic_load(&far.closed));
        cr_expect(st == EXO_OK || strstr(r.err.text, "on schedule"), "%s at %zu: '%s'",
                  strategies[strategy].name, (size_t)at, r.err.text);
    }
    cr_expect_eq(st, EXO_OK, "%s: the last failure is not reached", strategies[strategy].name);
    cr_expect_geq(failed, memory ? 1 : runs / 2, "%s: %zu failures", strategies[strategy].name,
                  (size_t)failed);
    plan_failure(0, 0, 0);
    run_release(&r);
}

Test(device_runs, scheduled_failures_of_a_run_end_it_with_the_reason, .timeout = 280)
{
    for (size_t s = 0; s < NUM_STRATEGIES; s++)
        fail_run_in_turn(s, 12 / one_of(4), false);
}

Test(device_runs, scheduled_lacks_of_memory_end_a_run_with_the_reason, .timeout = 280)
{
    for (size_t s = 0; s < NUM_STRATEGIES; s += 3)
        fail_run_in_turn(s, 0, true);
}

/* --- Generation ------------------------------------------------------------------------------- */

enum {
    ANSWERS = 3,
    LONGEST = 20,
    TEXT = 11
};

/* What a generator computes: sequences, the likelihood of a text, and its logits. */
struct answers {
    int32_t tokens[ANSWERS][LONGEST];
    float log_probs[ANSWERS][LONGEST];
    size_t lengths[ANSWERS];
    double nll;
    float logits[TEXT * 160];
    exo_status status;
    exo_err err;
    uint64_t asked; /* by the generator; 0: of the CPU */
};

/* Two sequences at a time, and 3 tokens a step: some steps take a part of a prompt and no more. */
static exo_status
answer(exo_generator *g, const exo_decoder_spec *spec, struct answers *out)
{
    const exo_sampling sampling = {.temperature = 1, .max_new_tokens = 9, .seed = 3};
    int32_t prompt[TEXT];
    exo_status st = EXO_OK;
    exo_generated s;
    small_decoder_tokens(spec, 2, TEXT, prompt);
    for (uint64_t next = 0, done = 0; st == EXO_OK && done < ANSWERS;) {
        for (; st == EXO_OK && next < ANSWERS && exo_generator_room(g) > 0; next++)
            st = exo_generator_submit(g, next, prompt, TEXT - 4 * next, &sampling, &out->err);
        if (st == EXO_OK)
            st = exo_generator_step(g, &out->err);
        for (; st == EXO_OK && exo_generator_take(g, &s); done++) {
            out->lengths[s.id] = s.length;
            memcpy(out->tokens[s.id], s.tokens, s.length * sizeof *s.tokens);
            memcpy(out->log_probs[s.id], s.log_probs, (s.length - s.prompt) * sizeof(float));
        }
    }
    if (st == EXO_OK)
        st = exo_generator_nll(g, prompt, TEXT, 7, &out->nll, &out->err);
    return st == EXO_OK ? exo_generator_logits(g, prompt, TEXT, out->logits, &out->err) : st;
}

/* Opens a device, copies the parameters to it and generates with them. The scheduled failure counts
 * from the copies' end. */
static struct answers
generate(const small_decoder *d, exo_weight_format format, const char *name, uint64_t fail_at,
         uint64_t no_memory_at)
{
    struct answers out = {0};
    exo_device *device = NULL;
    exo_params *there = NULL;
    exo_generator *g = NULL;
    const exo_generator_opts opts = {.weights = format, .sequences = 2, .step_tokens = 3};
    cr_assert_eq(exo_device_open(&device, name, &out.err), EXO_OK, "%s", out.err.text);
    cr_assert_eq(exo_params_to(&there, d->params, device, &out.err), EXO_OK, "%s", out.err.text);
    bool is_far = device != exo_device_cpu();
    uint64_t before = is_far ? far_device_asked(device) : 0;
    if (is_far) {
        far_device_fail_at(device, fail_at);
        far_device_no_memory_at(device, no_memory_at);
    }
    out.status = exo_generator_new(&g, &d->spec, there, &opts, &out.err);
    if (out.status == EXO_OK)
        out.status = answer(g, &d->spec, &out);
    out.asked = is_far ? far_device_asked(device) - before : 0;
    exo_generator_free(&g);
    exo_params_free(&there);
    exo_device_close(&device);
    return out;
}

Test(device_runs, generation_has_the_bits_of_the_cpu, .timeout = 250)
{
    for (int kind = 0; kind < SMALL_DECODERS; kind++)
        for (int format = EXO_WEIGHTS_F32; format <= EXO_WEIGHTS_INT4; format++) {
            exo_decoder_spec spec = small_decoder_spec(kind);
            small_decoder d;
            small_decoder_new(&d, &spec, 1);
            struct answers near = generate(&d, (exo_weight_format)format, "cpu", 0, 0),
                           there = generate(&d, (exo_weight_format)format, "far", 0, 0);
            cr_assert_eq(near.status, EXO_OK, "%s", near.err.text);
            cr_assert_eq(there.status, EXO_OK, "%s", there.err.text);
            cr_expect_gt(there.asked, exo_params_count(d.params) + 3 * ANSWERS);
            near.asked = there.asked;
            cr_expect(memcmp(&near, &there, sizeof near) == 0, "decoder %d, format %d", kind,
                      format);
            cr_expect_eq(near.lengths[0], LONGEST);
            small_decoder_free(&d);
        }
}

/* Every request fails in turn: packing, passes, logits and copies. */
Test(device_runs, scheduled_failures_of_generation_end_it_cleanly, .timeout = 250)
{
    exo_decoder_spec spec = small_decoder_spec(4);
    small_decoder d;
    small_decoder_new(&d, &spec, 1);
    struct answers whole = generate(&d, EXO_WEIGHTS_INT8, "far", 0, 0);
    cr_assert_eq(whole.status, EXO_OK, "%s", whole.err.text);
    for (uint64_t at = 1; at <= whole.asked; at++) {
        struct answers out = generate(&d, EXO_WEIGHTS_INT8, "far", at, 0);
        cr_expect_eq(out.status, EXO_FAILED, "a failure at %zu of %zu was lost", (size_t)at,
                     (size_t)whole.asked);
        cr_expect(strstr(out.err.text, "on schedule"), "at %zu: '%s'", (size_t)at, out.err.text);
    }
    small_decoder_free(&d);
}

Test(device_runs, scheduled_lacks_of_memory_end_generation_cleanly, .timeout = 250)
{
    exo_decoder_spec spec = small_decoder_spec(0);
    small_decoder d;
    uint64_t at = 1;
    small_decoder_new(&d, &spec, 1);
    for (;; at++) {
        struct answers out = generate(&d, EXO_WEIGHTS_F32, "far", 0, at);
        if (out.status == EXO_OK)
            break;
        cr_expect_eq(out.status, EXO_NOMEM);
        cr_expect(strstr(out.err.text, "generation: ") && strstr(out.err.text, "on schedule"), "%s",
                  out.err.text);
    }
    cr_expect_gt(at, 5, "weights, caches, a pass, logits and rows are on the device");
    small_decoder_free(&d);
}
