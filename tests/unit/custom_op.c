/* Operations that programs define: values, gradients, use of the tape's memory, and errors. Each
 * test owns a rig: a tape and two arrays. Read next: exogym/tensor.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include <exogym/exogym.h>

#include "base/memory_fault.h"
#include "support/numbers.h"

/* y = scale a b. The forward pass saves b for the backward pass. */
struct product_args {
    float scale;
};

static exo_status
product_forward(const exo_custom_call *call, exo_err *err)
{
    const struct product_args *args = call->args;
    if (args->scale == 0)
        return exo_fail(err, EXO_INVAL, "the scale is 0");
    exo_vec_copy(call->saved, call->inputs[1]);
    exo_vec_mul(call->output, call->inputs[0], call->inputs[1]);
    exo_vec_scale(call->output, args->scale);
    return EXO_OK;
}

static exo_status
product_backward(const exo_custom_call *call, exo_err *err)
{
    const struct product_args *args = call->args;
    const float *a = exo_array_host(call->inputs[0]), *b = exo_array_host(call->saved);
    const float *dy = exo_array_host(call->output_grad);
    float *da = exo_array_host(call->input_grads[0]), *db = exo_array_host(call->input_grads[1]);
    if (args->scale == 13)
        return exo_fail(err, EXO_FAILED, "the scale is 13");
    for (size_t i = 0; i < call->output.count; i++) {
        if (da)
            da[i] += args->scale * b[i] * dy[i];
        if (db)
            db[i] += args->scale * a[i] * dy[i];
    }
    return EXO_OK;
}

static const exo_custom_op product = {.name = "product",
                                      .args_size = sizeof(struct product_args),
                                      .forward = product_forward,
                                      .backward = product_backward};
static const exo_custom_op one_way = {
    .name = "one_way", .args_size = sizeof(struct product_args), .forward = product_forward};

enum {
    COUNT = 12
};
static const size_t shape[] = {3, 4};

static exo_tensor *
multiply(exo_tape *tape, const exo_custom_op *op, exo_tensor *a, exo_tensor *b, float scale)
{
    return exo_tape_custom(tape, op, (exo_tensor *[]){a, b}, 2, 2, shape, COUNT,
                           &(struct product_args){scale});
}

struct rig {
    exo_tape *tape;
    float *a, *b;
    exo_tensor *x, *y;
};

static void
begin(struct rig *r)
{
    exo_tape_begin(r->tape, NULL, &(exo_pass){.train = true, .grad = true});
    r->x = exo_tape_variable(r->tape, 2, shape, r->a);
    r->y = exo_tape_variable(r->tape, 2, shape, r->b);
}

static void
rig_init(struct rig *r)
{
    *r = (struct rig){.a = numbers_new(COUNT, 1), .b = numbers_new(COUNT, 2)};
    cr_assert_eq(exo_tape_new(&r->tape, NULL), EXO_OK);
    begin(r);
}

static void
rig_release(struct rig *r)
{
    exo_tape_free(&r->tape);
    free(r->a);
    free(r->b);
}

/* Two calls with different arguments, a call that gets one tensor twice, and operations of the
 * library between them. */
Test(custom_op, has_the_gradients_of_what_it_computes)
{
    struct rig r;
    exo_err err = {0};
    float dx[COUNT], dy[COUNT];
    rig_init(&r);
    exo_tensor *z = multiply(r.tape, &product, r.x, r.y, 2);      /* 2 x y */
    z = multiply(r.tape, &product, z, z, 0.5f);                   /* 2 x^2 y^2 */
    exo_tensor *loss = exo_mean(r.tape, exo_add(r.tape, z, r.x)); /* + x */
    cr_assert_not_null(loss);
    cr_assert_eq(exo_tape_backward(r.tape, loss, COUNT, &err), EXO_OK, "%s", err.text);
    exo_tensor_grad(r.x, dx);
    exo_tensor_grad(r.y, dy);
    for (size_t i = 0; i < COUNT; i++) {
        double x = (double)r.a[i], y = (double)r.b[i];
        cr_expect_float_eq((double)dx[i], 4 * x * y * y + 1, 1e-4 * (1 + fabs(4 * x * y * y)),
                           "[%zu]", i);
        cr_expect_float_eq((double)dy[i], 4 * x * x * y, 1e-4 * (1 + fabs(4 * x * x * y)), "[%zu]",
                           i);
    }
    rig_release(&r);
}

Test(custom_op, gradients_end_where_there_is_no_backward)
{
    struct rig r;
    float dx[COUNT], zeros[COUNT] = {0};
    rig_init(&r);
    exo_tensor *loss = exo_mean(r.tape, multiply(r.tape, &one_way, r.x, r.y, 2));
    cr_assert_eq(exo_tape_backward(r.tape, loss, 1, NULL), EXO_OK);
    exo_tensor_grad(r.x, dx);
    cr_expect_arr_eq(dx, zeros, sizeof zeros);
    rig_release(&r);
}

/* The tape stores images channels-last. A custom operation sees them row-major. */
Test(custom_op, sees_images_in_their_logical_order)
{
    static const size_t image[] = {1, 2, 2, 3};
    struct rig r;
    float *got = malloc(COUNT * sizeof *got);
    rig_init(&r);
    exo_tensor *x = exo_tape_input(r.tape, EXO_F32, 4, image, r.a);
    x = exo_dropout2d(r.tape, exo_relu(r.tape, x), 1e-9f); /* these make it channels-last */
    exo_tensor *y = exo_tape_custom(r.tape, &product, (exo_tensor *[]){x, x}, 2, 4, image, COUNT,
                                    &(struct product_args){1});
    cr_assert_not_null(y);
    exo_tensor_read(y, got);
    for (size_t i = 0; i < COUNT; i++) {
        float positive = r.a[i] > 0 ? r.a[i] : 0;
        cr_expect_float_eq((double)got[i], (double)(positive * positive), 1e-5, "[%zu]", i);
    }
    free(got);
    rig_release(&r);
}

Test(custom_op, a_steady_pass_allocates_nothing)
{
    struct rig r;
    uint64_t asked = 0;
    rig_init(&r);
    for (int step = 0; step < 4; step++) {
        begin(&r);
        exo_tensor *z = multiply(r.tape, &product, r.x, r.y, (float)(1 + step));
        cr_assert_eq(exo_tape_backward(r.tape, exo_mean(r.tape, z), 1, NULL), EXO_OK);
        if (step == 1)
            asked = exo_memory_allocations();
    }
    cr_expect_eq(exo_memory_allocations(), asked);
    rig_release(&r);
}

Test(custom_op, mistakes_are_the_tapes_errors)
{
    static const exo_custom_op nothing = {.name = "nothing"};
    struct rig r;
    exo_err err = {0};
    rig_init(&r);
    cr_expect_null(multiply(r.tape, &product, r.x, r.y, 0));
    cr_expect_eq(exo_tape_error(r.tape, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "product: the scale is 0");

    begin(&r);
    cr_expect_null(multiply(r.tape, &nothing, r.x, r.y, 1));
    cr_expect_eq(exo_tape_error(r.tape, &err), EXO_INVAL);

    begin(&r);
    exo_tensor *many[EXO_CUSTOM_INPUTS + 1] = {r.x, r.x, r.x, r.x, r.x};
    cr_expect_null(exo_tape_custom(r.tape, &product, many, EXO_CUSTOM_INPUTS + 1, 2, shape, 0,
                                   &(struct product_args){1}));
    cr_expect_eq(exo_tape_error(r.tape, &err), EXO_INVAL);

    begin(&r);
    cr_expect_null(multiply(r.tape, &product, r.x, NULL, 1), "what is given NULL gives NULL");

    begin(&r);
    exo_tensor *loss = exo_mean(r.tape, multiply(r.tape, &product, r.x, r.y, 13));
    cr_expect_eq(exo_tape_backward(r.tape, loss, 1, &err), EXO_FAILED);
    cr_expect_str_eq(err.text, "product: backward: the scale is 13");

    begin(&r); /* the tape can be used again */
    loss = exo_mean(r.tape, multiply(r.tape, &product, r.x, r.y, 1));
    cr_expect_eq(exo_tape_backward(r.tape, loss, 1, &err), EXO_OK);
    rig_release(&r);
}

Test(custom_op, without_memory_there_is_an_error)
{
    size_t failed = 0;
    for (uint64_t n = 1; n <= 40; n++) {
        struct rig r;
        rig_init(&r);
        exo_memory_fail_at(n);
        exo_tensor *loss = exo_mean(r.tape, multiply(r.tape, &product, r.x, r.y, 2));
        exo_status st =
            loss ? exo_tape_backward(r.tape, loss, 1, NULL) : exo_tape_error(r.tape, NULL);
        exo_memory_fail_at(0);
        cr_expect(st == EXO_OK || st == EXO_NOMEM, "allocation %llu: %d", (unsigned long long)n,
                  (int)st);
        failed += st != EXO_OK;
        rig_release(&r);
    }
    cr_expect_gt(failed, 5, "%zu", failed);
}
