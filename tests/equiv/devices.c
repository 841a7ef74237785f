/* Training on a device whose memory the host cannot reach gives the bits of the CPU: for every
 * strategy, and from a checkpoint of another device. A failure of the device ends the run cleanly.
 * Each test owns its nodes. Read next: tests/support/nodes.h, far_device.h. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/far_device.h"
#include "support/nodes.h"
#include "support/sanitized.h"
#include "support/temp.h"

enum {
    NUMEL = 1003,
    NODES = 3,
    STEPS = 8
};

static const struct {
    const char *name, *options;
} cases[] = {
    {"ddp", "{optimizer: {name: adamw, lr: 0.01}}"},
    {"ddp", "{optimizer: {name: rmsprop, lr: 0.01, momentum: 0.9, centered: true}, max_norm: 0.1}"},
    {"diloco", "{H: 3, optimizer: {name: adamw, lr: 0.01}}"},
    {"diloco", "{H: 2, outer_optimizer: {name: adam, amsgrad: true}, optimizer: sgd}"},
    {"fedavg", "{H: 2, optimizer: {name: adagrad, initial_accumulator_value: 0.1}}"},
    {"fedavg", "{H: 2, island_size: 2}"},
    {"sparta", "{p: 0.1}"},
    {"sparta", "{p: 0.05, delay: 3, interval: 2, selector: partitioned}"},
    {"sparta", "{p: 0.3, selector: shuffled_sequential}"},
    {"powersgd", "{rank: 2}"},
    {"quantized", "{chunk: 100}"},
    {"quantized", "{error_feedback: true}"},
    {"demo", "{k: 3, chunk: 9, beta: 0.9, weight_decay: 0.1}"},
    {"onebit_adam", "{freeze_step: 2, optimizer: {lr: 0.01}}"},
    {"local_sgd", "{H: 3}"},
    {"local_sgd", "{H: 3, aggregate: norm_clip}"},
    {"diloco", "{H: 3, aggregate: trimmed_mean}"},
    {"fedavg", "{H: 2, aggregate: {name: krum, f: 0, m: 2}}"},
    {"noloco", "{H: 2}"},
    {"sparta_diloco", "{p: 0.1, sparta_interval: 2, H: 3}"},
    {"streaming_diloco", "{H: 4, fragments: 2, delay: 1}"},
    {"streaming_diloco", "{H: 2, fragments: 1, delay: 1, codec: raw}"},
    {"sparseloco", "{H: 2}"},
    {"eager_diloco", "{H: 2}"},
    {"compose", "{exchanges: [{what: gradients}, {every: 2, delay: 1, apply: mix}, {select: "
                "{name: random, p: 0.2}, apply: mix}]}"},
};

static void
expect_same(const nodes *a, const nodes *b, const char *name, const char *options)
{
    for (uint32_t r = 0; r < NODES; r++)
        cr_expect_arr_eq(a->each[r].params, b->each[r].params, NUMEL * sizeof(float),
                         "%s %s: node %u", name, options, r);
}

Test(devices, every_strategy_has_the_same_bits_on_a_device_out_of_reach)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nodes near, far;
        nodes_init(&near, NODES, NUMEL, 2, STEPS, cases[i].name, cases[i].options);
        nodes_init_on(&far, NODES, NUMEL, 2, STEPS, cases[i].name, cases[i].options, far_device_new,
                      far_device_free);
        nodes_train(&near, STEPS);
        nodes_train(&far, STEPS);
        expect_same(&near, &far, cases[i].name, cases[i].options);
        nodes_release(&near);
        nodes_release(&far);
    }
}

Test(devices, a_checkpoint_of_one_device_goes_on_on_another)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[64];
        nodes near, far, resumed;
        temp_folder(folder, sizeof folder);
        nodes_init(&near, NODES, NUMEL, 2, STEPS, cases[i].name, cases[i].options);
        nodes_init_on(&far, NODES, NUMEL, 2, STEPS, cases[i].name, cases[i].options, far_device_new,
                      far_device_free);
        nodes_init_on(&resumed, NODES, NUMEL, 2, STEPS, cases[i].name, cases[i].options,
                      far_device_new, far_device_free);
        nodes_train(&near, STEPS);
        nodes_train(&far, 5);
        nodes_save(&far, folder);
        nodes_load(&resumed, folder);
        nodes_train(&resumed, STEPS - 5);
        expect_same(&near, &resumed, cases[i].name, cases[i].options);
        nodes_release(&near);
        nodes_release(&far);
        nodes_release(&resumed);
        temp_remove(folder);
    }
}

/* Each request fails in turn, in any step. The node of the failing device ends with its error, the
 * other nodes end well or with PEER_LOST, and no resource is left. */
Test(devices, each_scheduled_failure_ends_the_run_cleanly, .timeout = 280)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint64_t at = 1;; at += one_of(3)) {
            nodes n;
            nodes_init_on(&n, NODES, NUMEL, 1, 3, cases[i].name, cases[i].options, far_device_new,
                          far_device_free);
            uint64_t before = far_device_asked(n.each[1].device);
            far_device_fail_at(n.each[1].device, at);
            nodes_try(&n, 3);
            bool failed = n.each[1].status != EXO_OK;
            if (failed) {
                cr_expect_eq(n.each[1].status, EXO_FAILED, "%s: %s", cases[i].name,
                             n.each[1].err.text);
                cr_expect(strstr(n.each[1].err.text, "failed on schedule"), "%s",
                          n.each[1].err.text);
                for (uint32_t r = 0; r < NODES; r += 2)
                    cr_expect(n.each[r].status == EXO_OK || n.each[r].status == EXO_PEER_LOST,
                              "%s: %s", cases[i].name, n.each[r].err.text);
            }
            uint64_t asked = far_device_asked(n.each[1].device) - before;
            nodes_release(&n);
            if (!failed) {
                cr_expect_gt(asked, 6, "each step copies there and back and computes");
                break;
            }
        }
    }
}
