/* Steps of training on the CUDA runtime of the tests: a steady step waits for nothing on the host,
 * and its losses and parameters have the bits of steps that are waited for. Read next:
 * nn/pass_values.h, nn/cuda/device.h. */
#include <criterion/criterion.h>

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

typedef struct world {
    exo_device *device;
    exo_model *model;
    exo_params *drawn, *params; /* on the host, and on the device */
    exo_tape *tape;
    exo_strategy *strategy;
    exo_node node;
    exo_pass_values passes;
} world;

static void
world_init(world *w, uint64_t seed, const char *options)
{
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    *w = (world){0};
    cuda_emulator_seed(seed);
    cr_assert_eq(exo_cuda_open(&w->device, 0, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_config_parse(&doc, "model",
                                  "{layers: 1, heads: 2, width: 8, vocabulary: 11, context: 8}",
                                  &err),
                 EXO_OK);
    cr_assert_eq(exo_model_new_named(&w->model, "gpt", exo_config_root(doc), &err), EXO_OK, "%s",
                 err.text);
    exo_config_free(&doc);
    cr_assert_eq(exo_model_params(w->model, 3, &w->drawn, &err), EXO_OK);
    cr_assert_eq(exo_params_to(&w->params, w->drawn, w->device, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_tape_new_on(&w->tape, w->device, &err), EXO_OK);
    cr_assert_eq(exo_pass_values_init(&w->passes, w->device, STEPS * PASSES, &err), EXO_OK);
    cr_assert_eq(exo_strategy_parse(&w->strategy, "ddp", options, &err), EXO_OK, "%s", err.text);
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
static void
run_pass(world *w, size_t number)
{
    int32_t tokens[SAMPLES * LENGTH], targets[SAMPLES * LENGTH];
    exo_err err = {0};
    for (size_t i = 0; i < SAMPLES * LENGTH; i++) {
        tokens[i] = (int32_t)((number * 5 + i * i) % 11);
        targets[i] = (int32_t)((number * 5 + (i + 1) * (i + 1)) % 11);
    }
    const exo_batch batch = {
        .size = SAMPLES,
        .num_fields = 2,
        .fields = {{.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {LENGTH}},
                   {.name = "targets", .dtype = EXO_I32, .num_dims = 1, .dims = {LENGTH}}},
        .data = {tokens, targets}};
    exo_tape_begin(w->tape, w->params, &(exo_pass){.train = true, .grad = true, .step = number});
    exo_tensor *loss = exo_model_loss(w->model, w->tape, &batch);
    cr_assert_not_null(loss, "%s", (exo_tape_error(w->tape, &err), err.text));
    cr_assert_eq(exo_pass_values_keep(&w->passes, w->tape, loss, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_tape_backward(w->tape, loss, 1.0f / PASSES, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_pass_values_store(&w->passes, &err), EXO_OK, "%s", err.text);
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

typedef struct outcome {
    double losses[STEPS * PASSES];
    char hash[65]; /* of the parameters */
    float norm;    /* of the last step; 0: it does not clip */
} outcome;

/* Takes the steps, and counts the waits of all but the first. `waits`: the host waits after each
 * piece of them. */
static void
train(uint64_t seed, const char *options, bool waits, outcome *out)
{
    world w;
    exo_err err = {0};
    uint64_t before = 0, expected = 0;
    world_init(&w, seed, options);
    for (size_t s = 0; s < STEPS; s++) {
        before = s == 1 ? cuda_emulator_waits() : before;
        exo_params_zero_grads(w.params);
        for (size_t p = 0; p < PASSES; p++) {
            run_pass(&w, s * PASSES + p);
            if (waits)
                cr_assert_eq(exo_device_synchronize(w.device, &err), EXO_OK, "%s", err.text);
        }
        expected = step(&w, waits) * s;
    }
    cr_expect_eq(cuda_emulator_waits() - before, expected);
    cr_assert_eq(exo_pass_values_read(&w.passes, &err), EXO_OK, "%s", err.text);
    for (size_t i = 0; i < STEPS * PASSES; i++)
        out->losses[i] = w.passes.each[i].each[0].mean;
    cr_assert_eq(exo_params_sha256(w.params, out->hash, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_strategy_read_norm(w.strategy, &w.node, &err), EXO_OK, "%s", err.text);
    out->norm = w.node.grad_norm;
    world_release(&w);
}

/* Trains with the options, waiting and then in some orders of the streams not. */
static outcome
compare(const char *options, uint64_t orders)
{
    outcome expected, other;
    train(1, options, true, &expected);
    cr_expect(SANITIZED || expected.losses[0] > expected.losses[STEPS * PASSES - 1], "it learns");
    for (uint64_t seed = 2; seed < 2 + orders; seed++) {
        train(seed, options, false, &other);
        cr_expect_arr_eq(other.losses, expected.losses, sizeof other.losses, "seed %zu",
                         (size_t)seed);
        cr_expect_str_eq(other.hash, expected.hash);
        cr_expect_eq(other.norm, expected.norm);
    }
    return expected;
}

Test(cuda_steps, a_steady_step_waits_for_nothing_and_has_the_same_bits)
{
    cr_expect_eq(compare("{optimizer: {name: adamw, lr: 1e-2}}", SANITIZED ? 1 : 3).norm, 0.0f);
}

/* The norm stays on the device, too. The gradients are longer than the one, and shorter than the
 * other. */
Test(cuda_steps, a_step_that_clips_waits_for_nothing)
{
    const outcome clipped = compare("{optimizer: {name: adamw, lr: 1e-2}, max_norm: 0.3}",
                                    SANITIZED ? 1 : 2),
                  whole = compare("{optimizer: {name: adamw, lr: 1e-2}, max_norm: 1e3}", 1);
    cr_expect_gt(clipped.norm, 0.3f);
    cr_expect(whole.norm > 0 && whole.norm < 1e3f);
    cr_expect_str_neq(clipped.hash, whole.hash);
}
