/* Steps of training on the CUDA runtime of the tests: a steady step waits for nothing on the host,
 * and its losses and parameters have the bits of steps that are waited for. With EXOGYM_CUDA_GRAPHS its
 * passes are graphs, with the same bits. Read next: nn/pass_values.h, nn/cuda/sections.h. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/optim.h>
#include <exogym/strategy.h>

#include "cuda/emulator.h"
#include "nn/cuda/open.h"
#include "nn/pass_values.h"
#include "support/sanitized.h"

enum {
    SAMPLES = 2,
    LENGTH = 8,
    PASSES = 2,               /* of a step */
    STEPS = SANITIZED ? 3 : 6 /* the emulated GPU is slow there */
};

typedef enum way {
    WAITS,   /* the host waits after each piece of a step */
    PLAIN,   /* each kernel is started by itself */
    GRAPHS,  /* passes are graphs */
    REFUSED, /* the same, and a change of a graph is refused */
} way;

typedef struct task {
    const char *model, *model_options;
    const char *options; /* of the strategy */
    exo_autocast autocast;
    bool odd_batches; /* every third pass has a smaller batch */
    bool draws;       /* kernels have other arguments in each pass */
} task;

#define GPT   "{layers: 1, heads: 2, width: 8, vocabulary: 11, context: 8}"
#define DRAWS "{layers: 1, heads: 2, width: 8, vocabulary: 11, context: 8, dropout: 0.2}"
#define ADAMW "{optimizer: {name: adamw, lr: 1e-2}}"

static const task GPT_TASK = {.model = "gpt", .model_options = GPT, .options = ADAMW},
                  DRAWING = {
                      .model = "gpt", .model_options = DRAWS, .options = ADAMW, .draws = true};

typedef struct world {
    const task *task;
    exo_device *device;
    exo_model *model;
    exo_params *drawn, *params; /* on the host, and on the device */
    exo_tape *tape;
    exo_strategy *strategy;
    exo_node node;
    exo_pass_values passes;
} world;

static void
world_init(world *w, uint64_t seed, const task *t, way how)
{
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    *w = (world){.task = t};
    cuda_emulator_seed(seed);
    cr_assert_eq(setenv("EXOGYM_CUDA_GRAPHS", how >= GRAPHS ? "on" : "off", 1), 0);
    cr_assert_eq(exo_cuda_open(&w->device, 0, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_config_parse(&doc, "model", t->model_options, &err), EXO_OK);
    cr_assert_eq(exo_model_new_named(&w->model, t->model, exo_config_root(doc), &err), EXO_OK, "%s",
                 err.text);
    exo_config_free(&doc);
    cr_assert_eq(exo_model_params(w->model, 3, &w->drawn, &err), EXO_OK);
    cr_assert_eq(exo_params_to(&w->params, w->drawn, w->device, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_tape_new_on(&w->tape, w->device, &err), EXO_OK);
    cr_assert_eq(exo_pass_values_init(&w->passes, w->device, STEPS * PASSES, &err), EXO_OK);
    cr_assert_eq(exo_strategy_parse(&w->strategy, "ddp", t->options, &err), EXO_OK, "%s", err.text);
    w->node = (exo_node){.num_nodes = 1,
                         .max_steps = STEPS,
                         .numel = exo_params_numel(w->params),
                         .params = exo_params_values_array(w->params),
                         .grads = exo_params_grads_array(w->params)};
    cr_assert_eq(exo_strategy_start(w->strategy, &w->node, &err), EXO_OK, "%s", err.text);
}

static void
world_release(world *w)
{
    exo_optim_free(&w->node.optim);
    exo_strategy_free(&w->strategy);
    exo_pass_values_release(&w->passes);
    exo_tape_free(&w->tape);
    exo_params_free(&w->params);
    exo_params_free(&w->drawn);
    exo_model_drop(&w->model);
    exo_cuda_close(w->device);
    cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0);
}

/* A pass over a batch of its own; the batch's memory is used again for the next one. */
static exo_status
try_pass(world *w, size_t number, exo_err *err)
{
    int32_t tokens[SAMPLES * LENGTH], targets[SAMPLES * LENGTH];
    for (size_t i = 0; i < SAMPLES * LENGTH; i++) {
        tokens[i] = (int32_t)((number * 5 + i * i) % 11);
        targets[i] = (int32_t)((number * 5 + (i + 1) * (i + 1)) % 11);
    }
    const exo_batch batch = {
        .size = w->task->odd_batches && number % 3 == 2 ? SAMPLES - 1 : SAMPLES,
        .num_fields = 2,
        .fields = {{.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {LENGTH}},
                   {.name = "targets", .dtype = EXO_I32, .num_dims = 1, .dims = {LENGTH}}},
        .data = {tokens, targets}};
    exo_tape_begin(
        w->tape, w->params,
        &(exo_pass){.train = true, .grad = true, .autocast = w->task->autocast, .step = number});
    exo_tensor *loss = exo_model_loss(w->model, w->tape, &batch);
    exo_status st =
        loss ? exo_pass_values_keep(&w->passes, w->tape, loss, err) : exo_tape_error(w->tape, err);
    if (st == EXO_OK)
        st = exo_tape_backward(w->tape, loss, 1.0f / PASSES, err);
    return st == EXO_OK ? exo_pass_values_store(&w->passes, err) : st;
}

/* A step of the strategy, or the same on a host that waits for the norm. Returns how often it may wait. */
static uint64_t
step(world *w, bool waits)
{
    exo_node *n = &w->node;
    exo_err err = {0};
    if (!waits) {
        cr_assert_eq(exo_strategy_step(w->strategy, n, &err), EXO_OK, "%s", err.text);
    } else {
        if (n->max_norm > 0)
            cr_assert_eq(exo_clip_grad_norm(n->grads, n->max_norm, &n->grad_norm, &err), EXO_OK,
                         "%s", err.text);
        exo_optim_step(n->optim, n->params, n->grads, n->inner.lr);
    }
    n->step++;
    return waits && n->max_norm > 0 ? PASSES + 1 : waits ? PASSES : 0;
}

/* What a device was asked for. */
typedef struct counts {
    uint64_t calls, waits, graphs, records, updates;
} counts;

static counts
count(void)
{
    return (counts){cuda_emulator_calls(), cuda_emulator_waits(), cuda_emulator_graphs(),
                    cuda_emulator_records(), cuda_emulator_updates()};
}

typedef struct outcome {
    double losses[STEPS * PASSES];
    char hash[65]; /* of the parameters */
    float norm;    /* of the last step; 0: it does not clip */
    counts last;   /* of the last step */
} outcome;

/* Takes the steps, and counts the waits of all but the first. */
static void
train(uint64_t seed, const task *t, way how, outcome *out)
{
    world w;
    exo_err err = {0};
    uint64_t before = 0, expected = 0;
    counts last = {0};
    world_init(&w, seed, t, how);
    for (size_t s = 0; s < STEPS; s++) {
        before = s == 1 ? cuda_emulator_waits() : before;
        if (s + 1 == STEPS)
            last = count();
        exo_params_zero_grads(w.params);
        for (size_t p = 0; p < PASSES; p++) {
            cr_assert_eq(try_pass(&w, s * PASSES + p, &err), EXO_OK, "%s", err.text);
            if (how == WAITS)
                cr_assert_eq(exo_device_synchronize(w.device, &err), EXO_OK, "%s", err.text);
        }
        if (how == REFUSED && s == 1)
            cuda_emulator_refuse_update_at(1);
        expected = step(&w, how == WAITS) * s;
    }
    const counts now = count();
    out->last = (counts){now.calls - last.calls, now.waits - last.waits, now.graphs - last.graphs,
                         now.records - last.records, now.updates - last.updates};
    /* a graph that cannot be changed may be under way when it is replaced */
    cr_expect_eq(now.waits - before, expected + (how == REFUSED));
    cr_assert_eq(exo_pass_values_read(&w.passes, &err), EXO_OK, "%s", err.text);
    for (size_t i = 0; i < STEPS * PASSES; i++)
        out->losses[i] = w.passes.each[i].each[0].mean;
    cr_assert_eq(exo_params_sha256(w.params, out->hash, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_strategy_read_norm(w.strategy, &w.node, &err), EXO_OK, "%s", err.text);
    out->norm = w.node.grad_norm;
    world_release(&w);
}

/* Takes the steps in another way, in some orders of the streams, and expects the same bits. */
static outcome
compare(const task *t, const outcome *expected, way how, uint64_t orders)
{
    outcome other;
    for (uint64_t seed = 2; seed < 2 + orders; seed++) {
        train(seed, t, how, &other);
        cr_expect_arr_eq(other.losses, expected->losses, sizeof other.losses, "seed %zu",
                         (size_t)seed);
        cr_expect_str_eq(other.hash, expected->hash);
        cr_expect_eq(other.norm, expected->norm);
    }
    return other;
}

/* Takes the steps waiting, and then not. */
static outcome
compare_waiting(const task *t, uint64_t orders)
{
    outcome expected;
    train(1, t, WAITS, &expected);
    cr_expect(SANITIZED || expected.losses[0] > expected.losses[STEPS * PASSES - 1], "it learns");
    compare(t, &expected, PLAIN, orders);
    compare(t, &expected, GRAPHS, 1);
    return expected;
}

Test(cuda_steps, a_steady_step_waits_for_nothing_and_has_the_same_bits)
{
    cr_expect_eq(compare_waiting(&GPT_TASK, SANITIZED ? 1 : 2).norm, 0.0f);
}

/* The norm stays on the device, too. The gradients are longer than the one, and shorter than the
 * other. */
Test(cuda_steps, a_step_that_clips_waits_for_nothing)
{
    task clips = GPT_TASK, leaves = GPT_TASK;
    clips.options = "{optimizer: {name: adamw, lr: 1e-2}, max_norm: 0.3}";
    leaves.options = "{optimizer: {name: adamw, lr: 1e-2}, max_norm: 1e3}";
    const outcome clipped = compare_waiting(&clips, 1), whole = compare_waiting(&leaves, 1);
    cr_expect_gt(clipped.norm, 0.3f);
    cr_expect(whole.norm > 0 && whole.norm < 1e3f);
    cr_expect_str_neq(clipped.hash, whole.hash);
}

/* --- Graphs ----------------------------------------------------------------------------------- */

/* In a steady step each pass is one graph. It was recorded before, if all arguments are those of a
 * pass before; else it is recorded again, and changes a graph. */
static void
compare_graphs(const task *t, const outcome *expected, way how)
{
    const counts last = compare(t, expected, how, 1).last;
    cr_expect_eq(last.graphs, PASSES);
    cr_expect_eq(expected->last.graphs, 0);
    if (!CUDA_EMULATOR_EQUAL_BYTES)
        return;
    cr_expect_eq(last.records, t->draws ? PASSES : 0);
    cr_expect_eq(last.updates, last.records);
    cr_expect(t->draws || last.calls * 3 < expected->last.calls, "%zu calls instead of %zu",
              (size_t)last.calls, (size_t)expected->last.calls);
}

Test(cuda_steps, a_pass_is_one_graph_with_the_same_bits)
{
    task clips = GPT_TASK;
    outcome expected;
    clips.options = "{optimizer: {name: adamw, lr: 1e-2}, max_norm: 0.3}";
    clips.model_options = "{layers: 1, heads: 2, width: 16, vocabulary: 11, context: 8}";
    clips.autocast = EXO_AUTOCAST_BF16;
    train(1, &clips, PLAIN, &expected);
    compare_graphs(&clips, &expected, GRAPHS);
}

Test(cuda_steps, a_pass_that_draws_changes_a_graph)
{
    outcome expected;
    train(1, &DRAWING, PLAIN, &expected);
    compare_graphs(&DRAWING, &expected, SANITIZED ? GRAPHS : REFUSED);
}

/* Plans are made anew when the batch changes, perhaps at an address of one before. */
Test(cuda_steps, batches_of_other_sizes_are_no_old_graphs)
{
    task odd = GPT_TASK;
    outcome expected;
    odd.odd_batches = true;
    odd.model_options =
        "{position: rotary, norm: rms, layers: 1, heads: 2, width: 8, vocabulary: 11, context: 8}";
    train(1, &odd, PLAIN, &expected);
    compare(&odd, &expected, GRAPHS, 1);
}

/* --- fp8 -------------------------------------------------------------------------------------- */

/* The layers of a block have operands of fp8: each has a product forward and two backward. The rest is
 * bf16, whose losses are near. */
Test(cuda_steps, passes_of_fp8_learn_as_those_of_bf16)
{
    task narrow = GPT_TASK;
    outcome halves, eighths;
    narrow.model_options = "{layers: 1, heads: 2, width: 16, vocabulary: 11, context: 8}";
    narrow.autocast = EXO_AUTOCAST_BF16;
    train(1, &narrow, PLAIN, &halves);
    cr_expect_eq(cuda_emulator_fp8_products(), 0);
    narrow.autocast = EXO_AUTOCAST_FP8;
    train(1, &narrow, WAITS, &eighths);
    cr_expect_eq(cuda_emulator_fp8_products(), 3 * 4 * STEPS * PASSES);
    compare(&narrow, &eighths, PLAIN, 1);
    compare_graphs(&narrow, &eighths, GRAPHS);
    cr_expect_str_neq(eighths.hash, halves.hash);
    for (size_t i = 0; i < STEPS * PASSES; i++)
        cr_expect_float_eq(eighths.losses[i], halves.losses[i], 0.03, "pass %zu: %g and %g", i,
                           eighths.losses[i], halves.losses[i]);
}

Test(cuda_steps, a_pass_without_a_layer_for_fp8_is_refused)
{
    task odd = GPT_TASK;
    world w;
    exo_err err = {0};
    odd.autocast = EXO_AUTOCAST_FP8; /* of width 8 */
    world_init(&w, 1, &odd, PLAIN);
    cr_expect_eq(try_pass(&w, 0, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "multiples of 16"), "%s", err.text);
    world_release(&w);
}
