/* Devices: each kernel against the reference, over one list of cases; arrays and their copies to
 * and from the host; and a device whose memory the host cannot reach. Each test owns its arrays.
 * Read next: nn/device/device_impl.h, support/kernel_cases.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/memory.h>
#include <exogym/model.h>
#include <exogym/optim.h>
#include <exogym/tensor.h>

#include "base/memory_fault.h"
#include "nn/device/device_impl.h"
#include "nn/ref/ref_device.h"
#include "support/far_device.h"
#include "support/kernel_cases.h"
#include "support/kernel_check.h"
#include "support/sanitized.h"

static const size_t counts[] = {0, 1, 2, 31, 32, 33, 1000, (1 << 15) - 1, (1 << 15) + 1};

/* --- Kernels ---------------------------------------------------------------------------------- */

Test(device, every_kernel_has_a_case){
#define HAS_CASE(name)                                                                             \
    {                                                                                              \
        size_t found = 0;                                                                          \
        for (size_t i = 0; kernel_case_at(i); i++)                                                 \
            found += strcmp(kernel_case_at(i)->kernel, #name) == 0;                                \
        cr_expect_gt(found, 0, "no case of the kernel " #name);                                    \
    }
    EXO_KERNELS(HAS_CASE)
#undef HAS_CASE
}

Test(device, the_cpu_computes_what_the_reference_says)
{
    for (size_t i = 0; kernel_case_at(i); i++)
        for (size_t n = 0; n < sizeof counts / sizeof *counts; n += one_of(2))
            kernel_expect_same(kernel_case_at(i), exo_device_ref(), exo_device_cpu(), counts[n],
                               false);
}

/* A GPU keeps no bits of a NaN (PTX ISA, "Floating Point Instructions"). */
Test(device, nothing_but_nans_may_differ_between_kinds_of_devices)
{
    static const uint32_t bits[][3] = {/* of two outcomes; whether they count as equal */
                                       {0x7FC00000, 0x7FFFFFFF, 1}, {0xFFC00001, 0x7FFFFFFF, 1},
                                       {0x7F800000, 0x7FFFFFFF, 0}, {0x80000000, 0x00000000, 0},
                                       {0x3F800001, 0x3F800000, 0}, {0x3F800000, 0x3F800000, 1}};
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        char one[4 * sizeof **bits] = {0}, other[4 * sizeof **bits] = {0};
        memcpy(one + sizeof **bits, &bits[i][0], sizeof **bits);
        memcpy(other + sizeof **bits, &bits[i][1], sizeof **bits);
        cr_expect_eq(kernel_same_bits(one, other, sizeof one), bits[i][2] != 0, "%zu", i);
    }
    cr_expect_not(kernel_same_bits("aaaab", "aaaac", 5), "the last bytes");
}

Test(device, any_number_of_threads_gives_the_same_bits)
{
    const size_t count = 100003 / one_of(4);
    for (size_t i = 0; kernel_case_at(i); i++) {
        double sum[2];
        exo_set_num_threads(1);
        char *one = kernel_outcome(kernel_case_at(i), exo_device_cpu(), count, &sum[0]);
        exo_set_num_threads(3);
        char *three = kernel_outcome(kernel_case_at(i), exo_device_cpu(), count, &sum[1]);
        cr_expect(memcmp(one, three, KERNEL_CASE_ARRAYS * count * sizeof(float)) == 0 &&
                      sum[0] == sum[1],
                  "%s", kernel_case_at(i)->name);
        exo_free(one);
        exo_free(three);
    }
}

Test(device, one_out_of_reach_computes_the_same_bits)
{
    exo_device *far = far_device_new();
    for (size_t i = 0; kernel_case_at(i); i++)
        for (size_t n = 0; n < sizeof counts / sizeof *counts; n += one_of(2))
            kernel_expect_same(kernel_case_at(i), exo_device_cpu(), far, counts[n], true);
    far_device_free(&far);
}

/* Corner cases of the definitions: infinities, NaN, ties and overflow. */
Test(device, corners)
{
    float x[6] = {NAN, INFINITY, -INFINITY, -0.0f, 0.0f, -3.0f}, y[6];
    static const float signs[6] = {0, 1, -1, 0, 0, -1};
    exo_vec_sign(exo_host_array(EXO_F32, y, 6), exo_host_array(EXO_F32, x, 6));
    cr_expect_arr_eq(y, signs, sizeof y);

    /* halfway between two bf16 numbers: the even one is chosen */
    float tie[2] = {1.00390625f, 1.01171875f};
    uint16_t half[2];
    exo_vec_cast(exo_host_array(EXO_BF16, half, 2), exo_host_array(EXO_F32, tie, 2));
    cr_expect_eq(half[0], 0x3F80);
    cr_expect_eq(half[1], 0x3F82);

    int32_t most[1] = {INT32_MAX};
    const exo_array wraps = exo_host_array(EXO_I32, most, 1);
    exo_vec_add(wraps, wraps, wraps);
    cr_expect_eq(most[0], -2);
}

/* --- Arrays ----------------------------------------------------------------------------------- */

Test(device, an_array_is_zero_has_parts_and_is_the_hosts_where_it_can_be)
{
    exo_array array, import;
    float host[3] = {1, 2, 3}, back[10];
    cr_assert_eq(exo_array_init(&array, exo_device_cpu(), EXO_F32, 10, NULL), EXO_OK);
    cr_expect_eq((uintptr_t)array.data % 64, 0);
    cr_assert_eq(exo_array_write(exo_array_part(array, 4, 3), host, NULL), EXO_OK);
    cr_assert_eq(exo_array_read(array, back, NULL), EXO_OK);
    static const float want[10] = {0, 0, 0, 0, 1, 2, 3, 0, 0, 0};
    cr_expect_arr_eq(back, want, sizeof back);
    cr_expect_eq(exo_array_host(array), array.data);

    cr_assert_eq(exo_array_import(&import, exo_device_cpu(), EXO_F32, host, 3, NULL), EXO_OK);
    cr_expect_eq(import.data, host, "not copied");
    exo_array_release(&import);
    exo_array_release(&array);
    cr_expect_null(array.data);
    exo_array_release(&array);
}

Test(device, an_array_that_does_not_fit_is_an_error)
{
    exo_array array;
    exo_err err = {0};
    cr_expect_eq(exo_array_init(&array, exo_device_cpu(), EXO_F32, SIZE_MAX / 2, &err), EXO_NOMEM);
    cr_expect(err.text[0] && !array.data);
    exo_memory_fail_at(1);
    cr_expect_eq(exo_array_init(&array, exo_device_cpu(), EXO_F32, 1000, &err), EXO_NOMEM);
    exo_memory_fail_at(0);
    exo_array_release(&array);
}

/* --- A device that the host cannot reach ------------------------------------------------------ */

Test(device, what_is_asked_is_done_later_and_in_order)
{
    exo_device *far = far_device_new();
    exo_array x;
    float host[4] = {1, 2, 3, 4}, back[4] = {0};
    cr_assert_eq(exo_array_import(&x, far, EXO_F32, host, 4, NULL), EXO_OK);
    host[0] = 100; /* the device has its own copy */
    exo_vec_scale(x, 2);
    exo_vec_add(x, x, x);
    cr_expect_eq(far_device_asked(far), 3);
    cr_expect_eq(far_device_done(far), 0);
    cr_expect_null(exo_array_host(x));
    cr_assert_eq(exo_array_read(x, back, NULL), EXO_OK);
    cr_expect_eq(far_device_done(far), 4);
    static const float want[4] = {4, 8, 12, 16};
    cr_expect_arr_eq(back, want, sizeof back);
    exo_array_release(&x);
    far_device_free(&far);
}

/* A child process writes. A signal ends it, or a sanitizer that reports the write. */
Test(device, the_host_does_not_get_at_its_memory)
{
    exo_device *far = far_device_new();
    exo_array x;
    int how = 0;
    cr_assert_eq(exo_array_init(&x, far, EXO_F32, 4, NULL), EXO_OK);
    pid_t child = fork();
    if (child == 0) {
        close(STDERR_FILENO);
        signal(SIGSEGV, SIG_DFL);
        *(volatile float *)x.data = 1;
        _exit(0);
    }
    cr_assert_gt(child, 0);
    cr_assert_eq(waitpid(child, &how, 0), child);
    cr_expect(WIFSIGNALED(how) ? WTERMSIG(how) == SIGSEGV : WEXITSTATUS(how) != 0,
              "it wrote there");
    exo_array_release(&x);
    far_device_free(&far);
}

Test(device, the_first_failure_sticks)
{
    exo_device *far = far_device_new();
    exo_array x;
    exo_err err = {0};
    double sum = 0;
    cr_assert_eq(exo_array_init(&x, far, EXO_F32, 4, NULL), EXO_OK);
    far_device_fail_at(far, 2);
    exo_vec_fill(x, 1);
    cr_expect_eq(exo_device_synchronize(far, &err), EXO_OK);
    exo_vec_fill(x, 2);
    exo_vec_fill(x, 3);
    cr_expect_eq(exo_vec_sum(x, &sum, &err), EXO_FAILED);
    cr_expect_str_eq(err.text, "the device failed on schedule");
    cr_expect_eq(exo_array_read(x, (float[4]){0}, &err), EXO_FAILED);
    exo_array_release(&x);
    far_device_free(&far);
}

Test(device, clipping_and_optimizers_run_there)
{
    enum {
        N = 5000
    };
    static const exo_optim_kind kinds[] = {EXO_ADAM, EXO_ADAMW, EXO_SGD, EXO_RMSPROP, EXO_ADAGRAD};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        float result[2][N], norms[2];
        exo_device *far = far_device_new();
        exo_device *const devices[2] = {exo_device_cpu(), far};
        for (size_t d = 0; d < 2; d++) {
            exo_array x[KERNEL_CASE_ARRAYS];
            exo_optim *optim = NULL;
            exo_optim_spec spec = exo_optim_spec_init(kinds[k]);
            spec.initial_accumulator = kinds[k] == EXO_ADAGRAD ? 0.5 : 0;
            cr_assert_eq(kernel_case_arrays(x, devices[d], N, NULL), EXO_OK);
            cr_assert_eq(exo_optim_new(&optim, &spec, devices[d], N, NULL), EXO_OK);
            for (int step = 0; step < 3; step++) {
                cr_assert_eq(exo_clip_grad_norm(x[1], 0.5f, &norms[d], NULL), EXO_OK);
                exo_optim_step(optim, x[0], x[1], 0.01f);
            }
            cr_assert_eq(exo_array_read(x[0], result[d], NULL), EXO_OK);
            exo_optim_free(&optim);
            kernel_case_release(x);
        }
        cr_expect_arr_eq(result[0], result[1], sizeof result[0], "rule %zu", k);
        cr_expect_eq(norms[0], norms[1]);
        far_device_free(&far);
    }
}

Test(device, an_optimizer_that_does_not_fit_gives_the_device_s_reason)
{
    exo_device *far = far_device_new();
    exo_optim *optim = NULL;
    exo_optim_spec spec = exo_optim_spec_init(EXO_ADAM);
    exo_err err = {0};
    far_device_no_memory_at(far, 2);
    cr_expect_eq(exo_optim_new(&optim, &spec, far, 10, &err), EXO_NOMEM);
    cr_expect_str_eq(err.text, "the optimizer's state of 10 parameters: no memory on the device, "
                               "on schedule");
    cr_expect_null(optim);
    far_device_free(&far);
}

/* The model has buffers, and more numbers than are copied from a device at a time. */
Test(device, a_copy_there_has_the_hash_of_the_host_s)
{
    exo_model *model = NULL;
    exo_params *here = NULL, *there = NULL;
    exo_device *far = far_device_new();
    exo_err err = {0};
    char expected[65], hash[65];
    cr_assert_eq(exo_model_new_named(&model, "mnist_cnn", NULL, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_params(model, 7, &here, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_params_to(&there, here, far, &err), EXO_OK, "%s", err.text);
    cr_assert_gt(exo_params_buffer_numel(here), 0);
    cr_assert_eq(exo_params_sha256(here, expected, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_params_sha256(there, hash, &err), EXO_OK, "%s", err.text);
    cr_expect_str_eq(hash, expected);

    for (uint64_t n = 1; n <= 2; n++) { /* memory for a piece of values, and of buffers */
        exo_memory_fail_at(n);
        cr_expect_eq(exo_params_sha256(there, hash, &err), EXO_NOMEM, "allocation %d", (int)n);
        exo_memory_fail_at(0);
    }
    far_device_fail_at(far, 2);
    cr_expect_eq(exo_params_sha256(there, hash, &err), EXO_FAILED);
    cr_expect_str_eq(err.text, "the device failed on schedule");
    exo_params_free(&here);
    exo_params_free(&there);
    exo_model_drop(&model);
    far_device_free(&far);
}

Test(device, parameters_move_unless_the_host_reaches_the_device)
{
    exo_model *model = NULL;
    exo_params *params = NULL, *here = NULL;
    exo_device *far = far_device_new();
    exo_err err = {0};
    char expected[65], hash[65];
    cr_assert_eq(exo_model_new_named(&model, "mlp", NULL, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_params(model, 7, &params, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_params_sha256(params, expected, &err), EXO_OK, "%s", err.text);
    here = params;
    cr_expect_eq(exo_params_move(&params, exo_device_cpu(), &err), EXO_OK, "%s", err.text);
    cr_expect_eq(params, here);
    far_device_no_memory_at(far, 2);
    cr_expect_eq(exo_params_move(&params, far, &err), EXO_NOMEM);
    cr_expect_eq(params, here, "it stays if it cannot move");
    far_device_no_memory_at(far, 0);
    cr_assert_eq(exo_params_move(&params, far, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_params_device(params), far);
    cr_assert_eq(exo_params_sha256(params, hash, &err), EXO_OK, "%s", err.text);
    cr_expect_str_eq(hash, expected);
    exo_params_free(&params);
    exo_model_drop(&model);
    far_device_free(&far);
}

/* The assertion names the mistake: otherwise this is a crash at address 0. */
Test(device, work_on_an_array_without_memory_is_the_callers_mistake, .signal = SIGABRT)
{
    exo_vec_scale(exo_host_array(EXO_F32, NULL, 5), 2);
}
