/* FSDP on a device whose memory the host cannot reach, with its shards there and with cpu_offload: the
 * bits of the CPU, the device's memory as the formula says, the order of copies and computation, and
 * failures of the device.
 *
 * Each test owns its runs; `far` is set between runs and read by the nodes' threads. Read next:
 * strategies/fsdp.c, tests/support/far_device.h. */
#include <criterion/criterion.h>

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <exogym/exogym.h>

#include "nn/device/kinds.h"
#include "support/far_device.h"
#include "support/points.h"
#include "support/sanitized.h"

enum {
    STEPS = 4,
    HIDDEN = 24, /* as wide as no batch of inputs is */
    /* The units are the three layers. */
    FIRST = POINTS_DIM * HIDDEN + HIDDEN,
    SECOND = HIDDEN * HIDDEN + HIDDEN,
    LAST = HIDDEN * POINTS_CLASSES + POINTS_CLASSES,
    ALL = FIRST + SECOND + LAST
};

/* --- The device ------------------------------------------------------------------------------- */

/* Set between runs: the number of the device that fails, from 1; 0: none. */
static struct {
    uint64_t which, fail_at, no_memory_at;
    atomic_uint_fast64_t opened, closed, asked, most_used;
    /* Copies of whole units from the host: asked for while computation was pending, and without. */
    atomic_uint_fast64_t ahead, late;
} far;

static void
see_copy(void *context, size_t bytes, size_t pending_kernels)
{
    (void)context;
    if (bytes == FIRST * sizeof(float) || bytes == SECOND * sizeof(float) ||
        bytes == LAST * sizeof(float))
        atomic_fetch_add(pending_kernels > 0 ? &far.ahead : &far.late, 1);
}

static exo_status
open_far(exo_device **out, const char *which, uint32_t place, exo_err *err)
{
    (void)which;
    (void)place;
    (void)err;
    *out = far_device_new();
    far_device_watch(*out, see_copy, NULL);
    if (atomic_fetch_add(&far.opened, 1) + 1 == far.which) {
        far_device_fail_at(*out, far.fail_at);
        far_device_no_memory_at(*out, far.no_memory_at);
    }
    return EXO_OK;
}

static void
close_far(exo_device *device)
{
    uint64_t used = far_device_most_used(device), most = atomic_load(&far.most_used);
    while (used > most && !atomic_compare_exchange_weak(&far.most_used, &most, used))
        continue;
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
    atomic_store(&far.most_used, 0);
    atomic_store(&far.ahead, 0);
    atomic_store(&far.late, 0);
}

static void
set_up(void)
{
    exo_err err = {0};
    cr_assert_eq(exo_registry_add(&exo_device_registry, &far_kind, &err), EXO_OK, "%s", err.text);
}

TestSuite(offload, .init = set_up);

/* --- Runs ------------------------------------------------------------------------------------- */

struct run {
    exo_status status;
    exo_fit_result result;
    exo_err err;
};

/* Trains four nodes; the caller frees result.params. */
static struct run
train(const char *device, const char *options, size_t minibatch, bool evaluates, uint64_t steps)
{
    char text[128];
    struct run r = {0};
    exo_model *model = NULL;
    exo_config_doc *doc = NULL;
    exo_trainer *trainer = NULL;
    exo_dataset *data = points_new(64, 1, SIZE_MAX);
    exo_fit_opts opts = exo_fit_opts_init();
    snprintf(text, sizeof text, "{in: %d, out: %d, hidden: [%d, %d]}", POINTS_DIM, POINTS_CLASSES,
             HIDDEN, HIDDEN);
    cr_assert_eq(exo_config_parse(&doc, "model", text, &r.err), EXO_OK, "%s", r.err.text);
    cr_assert_eq(exo_model_new_named(&model, "mlp", exo_config_root(doc), &r.err), EXO_OK, "%s",
                 r.err.text);
    exo_config_free(&doc);
    cr_assert_eq(exo_trainer_new(&trainer, model, data, data, &r.err), EXO_OK, "%s", r.err.text);
    opts.num_nodes = 4;
    opts.batch_size = 4;
    opts.minibatch_size = minibatch;
    opts.max_steps = steps;
    opts.val_size = evaluates ? 6 : EXO_VAL_NONE;
    opts.val_interval = 2;
    opts.save_dir = NULL;
    opts.device = device;
    r.status = exo_trainer_fit_text(trainer, "fsdp", options, &opts, &r.result, &r.err);
    exo_trainer_free(&trainer);
    exo_model_drop(&model);
    exo_dataset_drop(&data);
    return r;
}

static void
expect_same(const char *rest, size_t minibatch)
{
    char there[256], here[256];
    snprintf(there, sizeof there, "{%s}", rest);
    snprintf(here, sizeof here, "{cpu_offload: true, %s}", rest);
    plan_failure(0, 0, 0);
    struct run runs[] = {
        train("cpu", there, minibatch, true, STEPS), train("cpu", here, minibatch, true, STEPS),
        train("far", there, minibatch, true, STEPS), train("far", here, minibatch, true, STEPS)};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        cr_assert_eq(runs[i].status, EXO_OK, "%s: run %zu: %s", rest, i, runs[i].err.text);
        cr_expect_str_eq(runs[i].result.sha256, runs[0].result.sha256, "%s: run %zu", rest, i);
        cr_expect_eq(runs[i].result.local_loss, runs[0].result.local_loss);
        cr_expect_eq(runs[i].result.global_loss, runs[0].result.global_loss);
        exo_params_free(&runs[i].result.params);
    }
    cr_expect_eq(atomic_load(&far.opened), 8);
    cr_expect_eq(atomic_load(&far.closed), 8);
}

/* --- Tests ------------------------------------------------------------------------------------ */

Test(offload, has_the_bits_of_shards_on_the_device_and_of_the_cpu, .timeout = 250)
{
    static const char *const adamw = "optimizer: {name: adamw, lr: 0.01}";
    static const char *const each[] = {
        "sharding_strategy: full_shard",
        "sharding_strategy: full_shard, prefetch: true, max_norm: 0.3",
        "sharding_strategy: shard_grad_op, prefetch: true",
        "sharding_strategy: no_shard, prefetch: true",
        "group_size: 2, prefetch: true",
        "sharding_strategy: hybrid_shard_zero2, group_size: 2",
        "group_size: 2, prefetch: true, across: {name: diloco, H: 2}",
        "prefetch: true, optimizer: {name: muon, lr: 0.02, matrices: all}",
    };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        char options[200];
        snprintf(options, sizeof options, "%s, %s", each[i],
                 strstr(each[i], "optimizer") ? "max_norm: 0" : adamw);
        expect_same(options, i % 2 ? 2 : 4);
    }
}

/* The most memory of a node's device. */
static uint64_t
most_used(const char *options, size_t *ahead, size_t *late)
{
    plan_failure(0, 0, 0);
    struct run r = train("far", options, 4, false, STEPS);
    cr_assert_eq(r.status, EXO_OK, "%s: %s", options, r.err.text);
    exo_params_free(&r.result.params);
    if (ahead) {
        *ahead = atomic_load(&far.ahead);
        *late = atomic_load(&far.late);
    }
    return atomic_load(&far.most_used);
}

/* Parameters, gradients and two moments of a shard leave the device: 4 Psi / g numbers. */
Test(offload, the_device_has_as_much_less_as_shards_and_optimizer_take)
{
    static const struct {
        const char *rest;
        size_t nodes;
    } each[] = {{"sharding_strategy: full_shard", 4},
                {"group_size: 2", 2},
                {"sharding_strategy: no_shard", 1}};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        char there[128], here[128];
        size_t shard = 0;
        snprintf(there, sizeof there, "{%s, optimizer: {name: adamw, lr: 0.01}}", each[i].rest);
        snprintf(here, sizeof here, "{%s, cpu_offload: true, optimizer: {name: adamw, lr: 0.01}}",
                 each[i].rest);
        for (size_t u = 0; u < 3; u++) { /* the largest shards, those of rank 0 */
            size_t first, length, counts[3] = {FIRST, SECOND, LAST};
            exo_shard(counts[u], (uint32_t)each[i].nodes, 0, &first, &length);
            shard += length;
        }
        cr_expect_eq(most_used(there, NULL, NULL) - most_used(here, NULL, NULL),
                     4 * shard * sizeof(float), "%s", each[i].rest);
    }
}

/* A step uses the layers forward, then backward, where the last one is still there: five copies. */
Test(offload, the_next_unit_is_copied_before_computation_with_the_present_one_ends)
{
    size_t ahead, late;
    most_used("{sharding_strategy: full_shard, cpu_offload: true}", &ahead, &late);
    cr_expect_eq(ahead, 0, "%zu", ahead);
    cr_expect_geq(late, 4 * STEPS * 5);
    most_used("{sharding_strategy: full_shard, cpu_offload: true, prefetch: true}", &ahead, &late);
    cr_expect_eq(ahead, 4 * (STEPS - 1) * 4, "%zu: all but a step's first, from the second step on",
                 ahead);
    most_used("{sharding_strategy: shard_grad_op, cpu_offload: true, prefetch: true}", &ahead,
              &late);
    cr_expect_eq(ahead, 4 * STEPS * 2, "%zu: open units stay, and nothing waits between them",
                 ahead);
}

/* Every request, or every allocation, of one node's device fails in turn. */
static void
fail_in_turn(bool memory)
{
    static const char *const options =
        "{sharding_strategy: full_shard, cpu_offload: true, prefetch: true, max_norm: 0.3}";
    const uint64_t steps = 2, stride = one_of(7);
    uint64_t failed = 0, asked;
    plan_failure(0, 0, 0);
    struct run r = train("far", options, 4, false, steps);
    cr_assert_eq(r.status, EXO_OK, "%s", r.err.text);
    exo_params_free(&r.result.params);
    asked = atomic_load(&far.asked) / 4;
    for (uint64_t at = 1; at < 3 * asked; at += stride) {
        plan_failure(2, memory ? 0 : at, memory ? at : 0);
        r = train("far", options, 4, false, steps);
        exo_params_free(&r.result.params);
        cr_expect_eq(atomic_load(&far.opened), atomic_load(&far.closed));
        if (r.status == EXO_OK)
            break;
        failed++;
        cr_expect(strstr(r.err.text, "on schedule"), "at %zu: '%s'", (size_t)at, r.err.text);
    }
    cr_expect_eq(r.status, EXO_OK, "the last failure is not reached");
    cr_expect_geq(failed * stride, memory ? 20 : asked / 2, "%zu failures", (size_t)failed);
}

Test(offload, a_failure_of_each_request_ends_the_run_with_the_reason, .timeout = 250)
{
    fail_in_turn(false);
}

Test(offload, a_lack_of_memory_at_each_allocation_ends_the_run_with_the_reason, .timeout = 250)
{
    fail_in_turn(true);
}
