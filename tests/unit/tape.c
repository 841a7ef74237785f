/* The tape and models: reuse of memory, bits that do not depend on threads, and failed allocations.
 * Each test owns its `struct rig`. Read next: include/exogym/tensor.h, model.h. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

#include "base/memory_fault.h"
#include "support/numbers.h"
#include "support/sanitized.h"

enum {
    BATCH = 40,
    SIDE = 28
};

struct rig {
    exo_model *model;
    exo_params *params;
    exo_tape *tape;
    exo_batch batch;
};

static void
rig_init(struct rig *r, const char *model, size_t size)
{
    *r = (struct rig){0};
    cr_assert_eq(exo_model_new_named(&r->model, model, NULL, NULL), EXO_OK);
    cr_assert_eq(exo_model_params(r->model, 7, &r->params, NULL), EXO_OK);
    cr_assert_eq(exo_tape_new(&r->tape, NULL), EXO_OK);
    r->batch = (exo_batch){
        .size = size,
        .num_fields = 2,
        .fields = {{.name = "image", .dtype = EXO_F32, .num_dims = 3, .dims = {1, SIDE, SIDE}},
                   {.name = "label", .dtype = EXO_I32}},
        .data = {numbers_new(size * SIDE * SIDE, 1), calloc(size, sizeof(int32_t))}};
    for (size_t i = 0; i < size; i++)
        ((int32_t *)r->batch.data[1])[i] = (int32_t)(i % 10);
}

static void
rig_release(struct rig *r)
{
    free(r->batch.data[0]);
    free(r->batch.data[1]);
    exo_tape_free(&r->tape);
    exo_params_free(&r->params);
    exo_model_drop(&r->model);
}

static exo_status
pass(struct rig *r, uint64_t step, bool train, bool bf16, float *loss, exo_err *err)
{
    const exo_pass p = {.train = train, .grad = train, .autocast = bf16, .seed = 1, .step = step};
    exo_tape_begin(r->tape, r->params, &p);
    exo_tensor *out = exo_model_loss(r->model, r->tape, &r->batch);
    if (!out)
        return exo_tape_error(r->tape, err);
    *loss = exo_tensor_item(out);
    return train ? exo_tape_backward(r->tape, out, 1.0f, err) : EXO_OK;
}

Test(tape, mnist_cnn_has_1868234_parameters)
{
    exo_model *model = NULL;
    cr_assert_eq(exo_model_new_named(&model, "mnist_cnn", NULL, NULL), EXO_OK);
    cr_expect_eq(exo_model_numel(model), 1868234);
    exo_model_drop(&model);
}

Test(tape, a_steady_step_allocates_nothing)
{
    for (int bf16 = 0; bf16 < 1 + numbers_bf16_runs(); bf16++) {
        struct rig r;
        float loss;
        rig_init(&r, "mnist_cnn", BATCH);
        for (uint64_t step = 0; step < 2; step++)
            cr_assert_eq(pass(&r, step, true, bf16, &loss, NULL), EXO_OK);
        uint64_t asked = exo_memory_allocations(), by_tape = exo_tape_allocations(r.tape);
        size_t bytes = exo_tape_bytes(r.tape);
        for (uint64_t step = 2; step < 5; step++)
            cr_assert_eq(pass(&r, step, true, bf16, &loss, NULL), EXO_OK);
        cr_expect_eq(exo_memory_allocations(), asked);
        cr_expect_eq(exo_tape_allocations(r.tape), by_tape);
        cr_expect_eq(exo_tape_bytes(r.tape), bytes);
        rig_release(&r);
    }
}

Test(tape, bits_do_not_depend_on_threads)
{
    for (int bf16 = 0; bf16 < 1 + numbers_bf16_runs(); bf16++) {
        struct rig r;
        rig_init(&r, "mnist_cnn", BATCH + 33); /* three pieces, the last one shorter */
        size_t numel = exo_params_numel(r.params);
        float *first = malloc(numel * sizeof *first), first_loss = 0, loss;
        for (unsigned threads = 1; threads <= 4; threads += (unsigned)one_of(3)) {
            exo_set_num_threads(threads);
            exo_params_zero_grads(r.params);
            cr_assert_eq(pass(&r, 0, true, bf16, &loss, NULL), EXO_OK);
            if (threads == 1) {
                memcpy(first, exo_params_grads(r.params), numel * sizeof *first);
                first_loss = loss;
            }
            cr_expect_eq(loss, first_loss);
            cr_expect_eq(memcmp(exo_params_grads(r.params), first, numel * sizeof *first), 0,
                         "%u threads", threads);
        }
        free(first);
        rig_release(&r);
    }
}

Test(tape, bf16_is_near_fp32)
{
    struct rig r;
    float exact, rounded;
    if (!numbers_bf16_runs())
        cr_skip("this processor has no bf16");
    rig_init(&r, "mnist_cnn", BATCH);
    cr_assert_eq(pass(&r, 0, false, false, &exact, NULL), EXO_OK);
    cr_assert_eq(pass(&r, 0, false, true, &rounded, NULL), EXO_OK);
    cr_expect_float_eq(rounded, exact, 0.02f * (1 + exact));
    rig_release(&r);
}

Test(tape, evaluation_changes_neither_parameters_nor_statistics)
{
    struct rig r;
    float loss, again;
    rig_init(&r, "mnist_cnn", 8);
    cr_assert_eq(pass(&r, 0, true, false, &loss, NULL), EXO_OK);
    size_t count = exo_params_buffer_numel(r.params);
    float *kept = malloc(count * sizeof *kept);
    memcpy(kept, exo_params_buffers(r.params), count * sizeof *kept);
    cr_assert_eq(pass(&r, 0, false, false, &loss, NULL), EXO_OK);
    cr_assert_eq(pass(&r, 5, false, false, &again, NULL), EXO_OK);
    cr_expect_eq(loss, again, "nothing is random outside training");
    cr_expect_eq(memcmp(kept, exo_params_buffers(r.params), count * sizeof *kept), 0);
    cr_assert_eq(pass(&r, 1, true, false, &loss, NULL), EXO_OK);
    cr_expect_neq(memcmp(kept, exo_params_buffers(r.params), count * sizeof *kept), 0,
                  "training updates statistics");
    free(kept);
    rig_release(&r);
}

Test(tape, gradients_add_up_over_passes)
{
    struct rig r;
    float loss;
    rig_init(&r, "mlp", BATCH);
    size_t numel = exo_params_numel(r.params);
    float *once = malloc(numel * sizeof *once);
    cr_assert_eq(pass(&r, 0, true, false, &loss, NULL), EXO_OK);
    memcpy(once, exo_params_grads(r.params), numel * sizeof *once);
    cr_assert_eq(pass(&r, 0, true, false, &loss, NULL), EXO_OK);
    for (size_t i = 0; i < numel; i++)
        cr_assert_float_eq(exo_params_grads(r.params)[i], 2 * once[i], 1e-6f);
    free(once);
    rig_release(&r);
}

Test(tape, batches_of_other_sizes_follow_each_other)
{
    struct rig r;
    float loss, alone;
    rig_init(&r, "mnist_cnn", BATCH);
    for (int round = 0; round < 2; round++) {
        r.batch.size = BATCH;
        cr_assert_eq(pass(&r, 0, false, false, &loss, NULL), EXO_OK);
        r.batch.size = 7;
        cr_assert_eq(pass(&r, 0, false, false, &loss, NULL), EXO_OK);
    }
    exo_tape_free(&r.tape);
    cr_assert_eq(exo_tape_new(&r.tape, NULL), EXO_OK);
    cr_assert_eq(pass(&r, 0, false, false, &alone, NULL), EXO_OK);
    cr_expect_eq(loss, alone);
    rig_release(&r);
}

/* Every allocation of a model, its parameters, a tape and a pass fails in turn: each gives an
 * error, and no crash or leak. */
Test(tape, without_memory_there_is_an_error)
{
    for (uint64_t n = 1; n < 5000; n += one_of(5)) {
        exo_model *model = NULL;
        exo_params *params = NULL;
        exo_tape *tape = NULL;
        float *pixels = numbers_new(3 * SIDE * SIDE, 1);
        int32_t labels[3] = {1, 2, 3};
        const exo_batch batch = {
            .size = 3,
            .num_fields = 2,
            .fields = {{.name = "image", .dtype = EXO_F32, .num_dims = 3, .dims = {1, SIDE, SIDE}},
                       {.name = "label", .dtype = EXO_I32}},
            .data = {pixels, labels}};
        exo_err err = {0};
        exo_memory_fail_at(n);
        exo_status st = exo_model_new_named(&model, "mnist_cnn", NULL, &err);
        if (st == EXO_OK)
            st = exo_model_params(model, 1, &params, &err);
        if (st == EXO_OK)
            st = exo_tape_new(&tape, &err);
        if (st == EXO_OK) {
            const exo_pass p = {.train = true, .grad = true};
            exo_tape_begin(tape, params, &p);
            exo_tensor *loss = exo_model_loss(model, tape, &batch);
            st = loss ? exo_tape_backward(tape, loss, 1, &err) : exo_tape_error(tape, &err);
        }
        exo_memory_fail_at(0);
        exo_tape_free(&tape);
        exo_params_free(&params);
        exo_model_drop(&model);
        free(pixels);
        if (st == EXO_OK)
            return; /* there is no n-th allocation */
        cr_assert_eq(st, EXO_NOMEM, "allocation %u: %s", (unsigned)n, err.text);
    }
    cr_assert_fail("the number of allocations does not end");
}

/* After a pass that ran out of memory the tape works: the next pass gives the bits of a new
 * tape. */
Test(tape, a_failed_pass_leaves_a_tape_that_works)
{
    struct rig r;
    float want = 0, got;
    rig_init(&r, "mnist_cnn", 3);
    size_t numel = exo_params_numel(r.params), buffers = exo_params_buffer_numel(r.params);
    float *grads = malloc(numel * sizeof *grads),
          *statistics = malloc(buffers * sizeof *statistics);
    memcpy(statistics, exo_params_buffers(r.params), buffers * sizeof *statistics);
    cr_assert_eq(pass(&r, 0, true, false, &want, NULL), EXO_OK);
    memcpy(grads, exo_params_grads(r.params), numel * sizeof *grads);

    exo_status st = EXO_NOMEM;
    for (uint64_t n = 1; st != EXO_OK; n += 7 * one_of(4)) {
        cr_assert_lt(n, 5000);
        exo_tape_free(&r.tape);
        cr_assert_eq(exo_tape_new(&r.tape, NULL), EXO_OK);
        exo_memory_fail_at(n);
        st = pass(&r, 0, true, false, &got, NULL);
        exo_memory_fail_at(0);
        memcpy(exo_params_buffers(r.params), statistics, buffers * sizeof *statistics);
        exo_params_zero_grads(r.params);
        cr_assert_eq(pass(&r, 0, true, false, &got, NULL), EXO_OK, "after allocation %u failed",
                     (unsigned)n);
        cr_expect_eq(got, want);
        cr_expect_eq(memcmp(grads, exo_params_grads(r.params), numel * sizeof *grads), 0);
    }
    free(grads);
    free(statistics);
    rig_release(&r);
}

/* One tape can alternate between training and evaluation. This is slower than two tapes, but gives
 * the same numbers, and memory does not grow. */
Test(tape, training_and_evaluation_may_take_turns)
{
    struct rig r;
    float train, eval, first = 0;
    rig_init(&r, "mnist_cnn", 8);
    size_t bytes = 0;
    for (uint64_t round = 0; round < 4; round++) {
        cr_assert_eq(pass(&r, round, false, false, &eval, NULL), EXO_OK);
        if (round == 0)
            first = eval;
        size_t count = exo_params_buffer_numel(r.params);
        float *kept = malloc(count * sizeof *kept);
        memcpy(kept, exo_params_buffers(r.params), count * sizeof *kept);
        cr_assert_eq(pass(&r, round, true, false, &train, NULL), EXO_OK);
        memcpy(exo_params_buffers(r.params), kept, count * sizeof *kept);
        free(kept);
        cr_expect_eq(eval, first);
        if (round == 1)
            bytes = exo_tape_bytes(r.tape);
    }
    cr_expect_eq(exo_tape_bytes(r.tape), bytes);
    rig_release(&r);
}
