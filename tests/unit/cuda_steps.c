/* Steps of training on the CUDA runtime of the tests: a steady step waits for nothing on the host,
 * and its losses and parameters have the bits of steps that are waited for. With EXOGYM_CUDA_GRAPHS it
 * is one graph, with the same bits. Read next: nn/pass_values.h, nn/cuda/sections.h. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
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
    BATCHES = 4,              /* that take turns */
    PASSES = 2,               /* of a step */
    STEPS = SANITIZED ? 3 : 4 /* new, recorded, launched; the emulated GPU is slow there */
};

typedef enum way {
    WAITS, /* the host waits after each piece of a step */
    PLAIN, /* each kernel is started by itself */
    GRAPHS /* steps are graphs */
} way;

typedef struct task {
    const char *model, *model_options;
    const char *options; /* of the strategy */
    exo_autocast autocast;
    bool odd_batches; /* every third pass has a smaller batch */
    bool rewinds;     /* the last step is numbered as the first */
    bool stumbles;    /* with graphs, a step before the second one ends in the midst */
} task;

#define GPT   "{layers: 1, heads: 1, width: 8, vocabulary: 11, context: 8}"
#define DRAWS "{layers: 1, heads: 1, width: 8, vocabulary: 11, context: 8, dropout: 0.2}"
#define ADAMW "{optimizer: {name: adamw, lr: 1e-2}}"
#define MLP   "{in: 8, hidden: [6, 5], out: 11}"

static const task GPT_TASK = {.model = "gpt", .model_options = GPT, .options = ADAMW};
static const task MLP_TASK = {.model = "mlp", .model_options = MLP, .options = ADAMW};

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
    cr_assert_eq(setenv("EXOGYM_CUDA_GRAPHS", how == GRAPHS ? "on" : "off", 1), 0);
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
                         .infos = exo_model_infos(w->model),
                         .num_infos = exo_model_num_infos(w->model),
                         .params = exo_params_values_array(w->params),
                         .grads = exo_params_grads_array(w->params)};
    cr_assert_eq(exo_strategy_start(w->strategy, &w->node, &err), EXO_OK, "%s", err.text);
}

/* Others may live. */
static void
world_release_some(world *w)
{
    exo_optim_free(&w->node.optim);
    exo_strategy_free(&w->strategy);
    exo_pass_values_release(&w->passes);
    exo_tape_free(&w->tape);
    exo_params_free(&w->params);
    exo_params_free(&w->drawn);
    exo_model_drop(&w->model);
    exo_cuda_close(w->device);
}

static void
world_release(world *w)
{
    world_release_some(w);
    cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0);
}

/* What a batch has: tokens and the next ones; for the MLP the tokens as numbers, and a class. */
typedef struct samples {
    int32_t tokens[SAMPLES * LENGTH], targets[SAMPLES * LENGTH];
    float numbers[SAMPLES * LENGTH];
} samples;

static exo_batch
batch_of(const task *t, size_t number, samples *s)
{
    for (size_t i = 0; i < SAMPLES * LENGTH; i++) {
        s->tokens[i] = (int32_t)((number % BATCHES * 5 + i * i) % 11);
        s->targets[i] = (int32_t)((number % BATCHES * 5 + (i + 1) * (i + 1)) % 11);
        s->numbers[i] = (float)s->tokens[i] / 11;
    }
    exo_batch batch = {
        .size = t->odd_batches && number % 3 == 2 ? SAMPLES - 1 : SAMPLES,
        .num_fields = 2,
        .fields = {{.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {LENGTH}},
                   {.name = "targets", .dtype = EXO_I32, .num_dims = 1, .dims = {LENGTH}}},
        .data = {s->tokens, s->targets}};
    if (strcmp(t->model, "mlp") == 0) {
        batch.fields[0].dtype = EXO_F32;
        batch.fields[1].num_dims = 0;
        batch.data[0] = s->numbers;
    }
    return batch;
}

/* A pass over a batch of its own; the batch's memory is used again for the next one. */
static exo_status
try_pass(world *w, size_t number, exo_err *err)
{
    samples s;
    const exo_batch batch = batch_of(w->task, number, &s);
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

/* The strategy's part of a step, or the same on a host that waits for the norm. */
static exo_status
try_update(world *w, bool waits, exo_err *err)
{
    exo_node *n = &w->node;
    exo_status st = EXO_OK;
    if (!waits)
        return exo_strategy_step(w->strategy, n, err);
    if (n->max_norm > 0)
        st = exo_clip_grad_norm(n->grads, n->max_norm, &n->grad_norm, err);
    if (st == EXO_OK)
        exo_optim_step(n->optim, n->params, n->grads,
                       n->inner.lr * exo_schedule_factor(n->schedule, n->step, n->max_steps));
    return st;
}

/* The passes of a step, and the update. */
static exo_status
try_pieces(world *w, bool waits, exo_err *err)
{
    exo_status st = EXO_OK;
    exo_params_zero_grads(w->params);
    for (size_t p = 0; p < PASSES && st == EXO_OK; p++) {
        st = try_pass(w, w->node.step * PASSES + p, err);
        if (st == EXO_OK && waits)
            st = exo_device_synchronize(w->device, err);
    }
    return st == EXO_OK ? try_update(w, waits, err) : st;
}

/* A step, as a replica takes it. */
static exo_status
try_step(world *w, bool waits, exo_err *err)
{
    exo_device_section_begin(w->device);
    exo_status st = try_pieces(w, waits, err);
    const exo_status ended = exo_device_section_end(w->device, st == EXO_OK ? err : NULL);
    st = st == EXO_OK ? ended : st;
    w->node.step += st == EXO_OK;
    return st;
}

/* Takes a step that ends in its second pass, whose batch lacks the targets. Its gradients are lost. */
static void
stumble(world *w)
{
    samples s;
    exo_err err = {0};
    const size_t before = w->passes.num;
    exo_batch batch = batch_of(w->task, 0, &s);
    batch.num_fields = 1;
    exo_device_section_begin(w->device);
    exo_params_zero_grads(w->params);
    cr_assert_eq(try_pass(w, 0, &err), EXO_OK, "%s", err.text);
    exo_tape_begin(w->tape, w->params, &(exo_pass){.train = true, .grad = true});
    cr_expect_null(exo_model_loss(w->model, w->tape, &batch));
    cr_expect_neq(exo_tape_error(w->tape, &err), EXO_OK);
    cr_assert_eq(exo_device_section_end(w->device, &err), EXO_OK, "%s", err.text);
    w->passes.num = before;
}

/* What all devices were asked for. */
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

static void
read_outcome(world *w, outcome *out)
{
    exo_err err = {0};
    cr_assert_eq(exo_pass_values_read(&w->passes, &err), EXO_OK, "%s", err.text);
    for (size_t i = 0; i < STEPS * PASSES; i++)
        out->losses[i] = w->passes.each[i].each[0].mean;
    cr_assert_eq(exo_params_sha256(w->params, out->hash, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_strategy_read_norm(w->strategy, &w->node, &err), EXO_OK, "%s", err.text);
    out->norm = w->node.grad_norm;
}

/* Takes the steps, and counts the waits of all but the first. */
static void
train(uint64_t seed, const task *t, way how, outcome *out)
{
    world w;
    exo_err err = {0};
    counts first = {0}, last = {0};
    world_init(&w, seed, t, how);
    for (size_t s = 0; s < STEPS; s++) {
        if (t->stumbles && how == GRAPHS && s == 1)
            stumble(&w);
        if (t->rewinds && s + 1 == STEPS)
            w.node.step = 0;
        last = count();
        first = s == 1 ? last : first;
        cr_assert_eq(try_step(&w, how == WAITS, &err), EXO_OK, "%s", err.text);
    }
    const counts now = count();
    const uint64_t each = how != WAITS ? 0 : w.node.max_norm > 0 ? PASSES + 1 : PASSES;
    cr_expect_eq(now.waits - first.waits, each * (STEPS - 1));
    out->last = (counts){now.calls - last.calls, now.waits - last.waits, now.graphs - last.graphs,
                         now.records - last.records, now.updates - last.updates};
    read_outcome(&w, out);
    world_release(&w);
}

static void
expect_same(const outcome *one, const outcome *other)
{
    cr_expect_arr_eq(one->losses, other->losses, sizeof one->losses);
    cr_expect_str_eq(one->hash, other->hash);
    cr_expect_eq(one->norm, other->norm);
}

/* Takes the steps in another way, in some orders of the streams, and expects the same bits. */
static outcome
compare(const task *t, const outcome *expected, way how, uint64_t orders)
{
    outcome other;
    for (uint64_t seed = 2; seed < 2 + orders; seed++) {
        train(seed, t, how, &other);
        expect_same(&other, expected);
    }
    return other;
}

/* Takes the steps waiting, and then not. */
static outcome
compare_waiting(const task *t, uint64_t orders)
{
    outcome expected;
    train(1, t, WAITS, &expected);
    const double *last = &expected.losses[STEPS * PASSES - 1];
    cr_expect(SANITIZED || last[0] < last[-BATCHES], "it learns");
    compare(t, &expected, PLAIN, orders);
    return expected;
}

Test(cuda_steps, a_steady_step_waits_for_nothing_and_has_the_same_bits)
{
    const outcome expected = compare_waiting(&GPT_TASK, SANITIZED ? 1 : 2);
    compare(&GPT_TASK, &expected, GRAPHS, 1);
    cr_expect_eq(expected.norm, 0.0f);
}

/* The norm stays on the device, too. The gradients are longer than the one, and shorter than the
 * other. */
Test(cuda_steps, a_step_that_clips_waits_for_nothing)
{
    task clips = GPT_TASK, leaves = GPT_TASK;
    clips.options = "{optimizer: {name: adamw, lr: 1e-2}, max_norm: 0.3}";
    leaves.options = "{optimizer: {name: adamw, lr: 1e-2}, max_norm: 1e3}";
    const outcome clipped = compare_waiting(&clips, 1), whole = compare_waiting(&leaves, 1);
    compare(&clips, &clipped, GRAPHS, 1);
    cr_expect_gt(clipped.norm, 0.3f);
    cr_expect(whole.norm > 0 && whole.norm < 1e3f);
    cr_expect_str_neq(clipped.hash, whole.hash);
}

/* --- Graphs ----------------------------------------------------------------------------------- */

enum {
    LAUNCHES = 2, /* of a steady step: the numbers of the step, and the graph */
    CALLS = 40    /* of CUDA in a steady step; most are for the copies of its batches */
};

/* A steady step is one graph that was recorded before: its passes, also if they draw, the norm of the
 * gradients, and the optimizer, at whatever rate. */
static void
compare_graphs(const task *t, const outcome *expected)
{
    const counts last = compare(t, expected, GRAPHS, 1).last;
    cr_expect_eq(last.graphs, 1);
    cr_expect_eq(expected->last.graphs, 0);
    if (!CUDA_EMULATOR_EQUAL_BYTES || SANITIZED)
        return;
    cr_expect_eq(last.records, 0);
    cr_expect_leq(last.calls, CALLS, "%zu calls instead of %zu", (size_t)last.calls,
                  (size_t)expected->last.calls);
}

static void
compare_plain_and_graphs(const task *t)
{
    outcome expected;
    train(1, t, PLAIN, &expected);
    compare_graphs(t, &expected);
}

Test(cuda_steps, a_steady_step_is_one_graph_with_the_same_bits)
{
    task clips = GPT_TASK;
    clips.options = "{optimizer: {name: adamw, lr: 1e-2}, max_norm: 0.3}";
    clips.model_options = "{layers: 1, heads: 1, width: 16, vocabulary: 11, context: 8}";
    clips.autocast = EXO_AUTOCAST_BF16;
    compare_plain_and_graphs(&clips);
}

Test(cuda_steps, a_step_that_draws_is_the_same_graph)
{
    task draws = GPT_TASK;
    draws.model_options = DRAWS;
    (void)cuda_emulator_watch_races(true);
    compare_plain_and_graphs(&draws);
    (void)cuda_emulator_watch_races(false);
    draws.autocast = EXO_AUTOCAST_BF16;
    compare_plain_and_graphs(&draws);
}

/* Rates, corrections and momenta are others in each step, also in one that has the rate of another. */
Test(cuda_steps, each_optimizer_is_in_the_graph_of_its_step)
{
    static const char *const optimizers[] = {
        "{name: sgd, lr: 0.1, momentum: 0.9, nesterov: true, dampening: 0}",
        "{name: rmsprop, lr: 1e-2, momentum: 0.5}",
        "{name: adagrad, lr: 0.1, lr_decay: 0.1}",
        "{name: muon, lr: 1e-2, groups: [{match: \"*bias\", lr: 1e-3}]}",
    };
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        char options[256];
        task t = MLP_TASK;
        t.rewinds = true;
        snprintf(options, sizeof options,
                 "{optimizer: %s, lr_scheduler: {name: cosine, warmup_steps: 2}, max_norm: 0.5}",
                 optimizers[i]);
        t.options = options;
        compare_plain_and_graphs(&t);
    }
}

Test(cuda_steps, a_step_after_one_that_failed_has_the_same_bits)
{
    task t = MLP_TASK;
    t.stumbles = true;
    compare_plain_and_graphs(&t);
}

static void *
run_steps(void *context)
{
    world *w = context;
    exo_err err = {0};
    for (size_t s = 0; s < STEPS; s++)
        cr_assert_eq(try_step(w, false, &err), EXO_OK, "%s", err.text);
    return NULL;
}

/* Each device has numbers of its own, of the step that its thread takes. */
Test(cuda_steps, nodes_of_several_threads_have_graphs_of_their_own)
{
    enum {
        THREADS = 2
    };
    task draws = GPT_TASK;
    world *w = calloc(THREADS, sizeof *w);
    pthread_t threads[THREADS];
    outcome expected, own;
    cr_assert(w);
    draws.model_options = DRAWS;
    train(1, &draws, PLAIN, &expected);
    for (size_t t = 0; t < THREADS; t++)
        world_init(&w[t], t, &draws, GRAPHS);
    for (size_t t = 0; t < THREADS; t++)
        cr_assert_eq(pthread_create(&threads[t], NULL, run_steps, &w[t]), 0);
    for (size_t t = 0; t < THREADS; t++)
        cr_assert_eq(pthread_join(threads[t], NULL), 0);
    for (size_t t = 0; t < THREADS; t++) {
        read_outcome(&w[t], &own);
        expect_same(&own, &expected);
    }
    for (size_t t = 0; t < THREADS; t++)
        world_release_some(&w[t]);
    cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0);
    free(w);
}

/* The n-th piece of work of a steady step fails. The run tells it when it reads the losses, or before. */
Test(cuda_steps, work_that_fails_in_a_graph_is_reported)
{
    task draws = GPT_TASK;
    draws.model_options = DRAWS;
    const size_t places = SANITIZED ? 1 : 3;
    uint64_t works = 0;
    for (size_t i = 0; i <= places; i++) { /* the first time nothing fails */
        world w;
        exo_err err = {0};
        world_init(&w, i, &draws, GRAPHS);
        exo_status st = EXO_OK;
        for (size_t s = 0; s + 1 < STEPS && st == EXO_OK; s++)
            st = try_step(&w, false, &err);
        cr_assert_eq(exo_device_synchronize(w.device, &err), EXO_OK, "%s", err.text);
        const uint64_t before = cuda_emulator_done();
        cuda_emulator_fail_at(i > 0 ? 1 + (i - 1) * works / places : 0);
        st = try_step(&w, false, &err);
        if (st == EXO_OK)
            st = exo_pass_values_read(&w.passes, &err);
        works = i == 0 ? cuda_emulator_done() - before : works;
        cr_expect_eq(st, i > 0 ? EXO_FAILED : EXO_OK, "%zu of %zu: %s", i, places, err.text);
        cr_expect(i == 0 || strstr(err.text, "cudaErrorLaunchFailure"), "%s", err.text);
        cuda_emulator_fail_at(0);
        world_release_some(&w);
    }
}

/* CUDA refuses a part of a graph, in a step that is recorded or launched again. Neither bits nor random
 * numbers nor counts of steps change. */
Test(cuda_steps, steps_whose_graphs_are_refused_have_the_same_bits)
{
    static const struct {
        cuda_graph_call call;
        uint64_t n, times;
    } refusals[] = {{CUDA_BEGIN_CAPTURE, 1, 1}, {CUDA_IN_CAPTURE, 40, 1},
                    {CUDA_END_CAPTURE, 1, 9},   {CUDA_INSTANTIATE, 1, 1},
                    {CUDA_LAUNCH_GRAPH, 1, 1},  {CUDA_LAUNCH_GRAPH, 2, 1}};
    task draws = GPT_TASK;
    outcome expected, own;
    draws.model_options = DRAWS;
    draws.options = "{optimizer: {name: adamw, lr: 1e-2}, max_norm: 0.3}";
    train(1, &draws, PLAIN, &expected);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i += SANITIZED ? 2 : 1) {
        world w;
        const uint64_t failed = cuda_emulator_failed_graphs();
        world_init(&w, i, &draws, GRAPHS);
        cuda_emulator_fail_graph(refusals[i].call, refusals[i].n, refusals[i].times);
        run_steps(&w);
        cuda_emulator_fail_graph(refusals[i].call, 0, 0);
        cr_expect_gt(cuda_emulator_failed_graphs(), failed, "%zu", i);
        read_outcome(&w, &own);
        expect_same(&own, &expected);
        world_release(&w);
    }
}

/* The kernels of a step, its libraries' too, are loaded before it is recorded. */
Test(cuda_steps, nothing_is_loaded_while_a_step_is_recorded)
{
    task odd = GPT_TASK;
    outcome expected;
    odd.model_options = "{layers: 1, heads: 1, width: 16, vocabulary: 11, context: 8}";
    odd.options = "{optimizer: {name: adamw, lr: 1e-2}, max_norm: 0.3}";
    cuda_emulator_load_lazily(true);
    for (int type = EXO_AUTOCAST_NONE; type <= EXO_AUTOCAST_FP8; type++) {
        odd.autocast = (exo_autocast)type;
        odd.odd_batches = type != EXO_AUTOCAST_FP8; /* whose rows are multiples of 16 */
        train(1, &odd, GRAPHS, &expected);
    }
    cr_expect_gt(cuda_emulator_graphs(), 0);
    cr_expect_eq(cuda_emulator_late_loads(), 0);
}

/* Plans are made anew when the batch changes, perhaps at an address of one before. */
Test(cuda_steps, batches_of_other_sizes_are_no_old_graphs)
{
    task odd = GPT_TASK;
    outcome expected;
    odd.odd_batches = true;
    odd.model_options =
        "{position: rotary, norm: rms, layers: 1, heads: 1, width: 8, vocabulary: 11, context: 8}";
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
    narrow.model_options = "{layers: 1, heads: 1, width: 16, vocabulary: 11, context: 8}";
    narrow.autocast = EXO_AUTOCAST_BF16;
    train(1, &narrow, PLAIN, &halves);
    cr_expect_eq(cuda_emulator_fp8_products(), 0);
    narrow.autocast = EXO_AUTOCAST_FP8;
    train(1, &narrow, WAITS, &eighths);
    cr_expect_eq(cuda_emulator_fp8_products(), 3 * 4 * STEPS * PASSES);
    compare_graphs(&narrow, &eighths);
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
