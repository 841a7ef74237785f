/* Convolutions by cuDNN on the GPUs of tests/cuda, with the cuDNN of tests/cudnn: their values beside
 * those of nn/cuda/conv.cu, what is chosen, and ways to fail. Read next: nn/cuda/cudnn.h,
 * tests/cudnn/cudnn_test.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/bf16.h"
#include "cuda/emulator.h"
#include "cuda/recorder.h"
#include "cudnn/load.h"
#include "nn/cuda/cudnn_library.h"
#include "nn/cuda/open.h"
#include "nn/device/device_impl.h"
#include "nn/ref/ref_device.h"
#include "support/kernel_check.h"
#include "support/numbers.h"

static exo_device *
open_gpu(const char *asked)
{
    exo_device *device;
    exo_err err = {0};
    cr_assert_eq(setenv("EXOGYM_CUDNN", asked, 1), 0);
    cr_assert_eq(exo_cuda_open(&device, 0, &err), EXO_OK, "%s", err.text);
    return device;
}

static void
close_gpu(exo_device *device)
{
    exo_cuda_close(device);
    cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0);
}

/* --- One convolution -------------------------------------------------------------------------- */

enum {
    MOST = 4096 /* elements of an array */
};

/* What a convolution gives, forward and backward. */
typedef struct outcome {
    float y[MOST], dx[MOST], dw[MOST], db[MOST];
} outcome;

typedef struct arrays {
    exo_array x, dy, weight, bias, y, dx, dw, db;
} arrays;

static size_t
images(const exo_conv_shape *s)
{
    return s->batch * s->height * s->width * s->in_channels;
}

static size_t
results(const exo_conv_shape *s)
{
    return s->batch * s->out_height * s->out_width * s->out_channels;
}

static size_t
weights(const exo_conv_shape *s)
{
    return s->out_channels * s->in_channels * s->kernel_height * s->kernel_width;
}

/* An array of values in [-1, 1], which bf16 has. */
static exo_status
fill(exo_array *out, exo_device *gpu, exo_dtype dtype, size_t count, unsigned seed, exo_err *err)
{
    static float values[MOST];
    static uint16_t halves[MOST];
    cr_assert_leq(count, MOST);
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(int)(seed >> 24) / 128.0f - 1.0f;
        halves[i] = exo_to_bf16(values[i]);
    }
    return exo_array_import(out, gpu, dtype, dtype == EXO_BF16 ? (void *)halves : (void *)values,
                            count, err);
}

static exo_status
make_arrays(arrays *a, exo_device *gpu, const exo_conv_shape *s, exo_err *err)
{
    const exo_dtype dtype = (exo_dtype)s->dtype;
    exo_status st = fill(&a->x, gpu, dtype, images(s), 1, err);
    st = st == EXO_OK ? fill(&a->dy, gpu, dtype, results(s), 2, err) : st;
    st = st == EXO_OK ? fill(&a->weight, gpu, EXO_F32, weights(s), 3, err) : st;
    st = st == EXO_OK ? fill(&a->bias, gpu, EXO_F32, s->out_channels, 4, err) : st;
    st = st == EXO_OK ? fill(&a->dw, gpu, EXO_F32, weights(s), 5, err) : st;
    st = st == EXO_OK ? fill(&a->db, gpu, EXO_F32, s->out_channels, 6, err) : st;
    st = st == EXO_OK ? exo_array_init(&a->y, gpu, dtype, results(s), err) : st;
    return st == EXO_OK ? exo_array_init(&a->dx, gpu, dtype, images(s), err) : st;
}

static void
release_arrays(arrays *a)
{
    for (exo_array *x = &a->x; x <= &a->db; x++)
        exo_array_release(x);
}

/* Computes a convolution and its gradients, twice if `again`. */
static exo_status
convolve(exo_device *gpu, const exo_conv_shape *s, bool again, outcome *out, exo_err *err)
{
    const exo_kernels *kernels = gpu->device_class->kernels;
    exo_plan *plan = NULL;
    arrays a = {0};
    exo_status st = make_arrays(&a, gpu, s, err);
    if (st == EXO_OK)
        st = exo_plan_new(&plan, gpu, EXO_SHAPE_CONV, s, err);
    const exo_conv_args forward = {plan, a.y.data, a.x.data, a.weight.data, a.bias.data};
    const exo_conv_backward_args backward = {.plan = plan,
                                             .dx = s->input_grad ? a.dx.data : NULL,
                                             .dweight = a.dw.data,
                                             .dbias = a.db.data,
                                             .x = a.x.data,
                                             .dy = a.dy.data};
    for (int turn = 0; st == EXO_OK && turn <= again; turn++) {
        st = kernels->conv(gpu, &forward, err);
        if (st == EXO_OK && s->backward)
            st = kernels->conv_backward(gpu, &backward, err);
    }
    if (st == EXO_OK)
        st = numbers_read(a.y, out->y, err);
    if (st == EXO_OK)
        st = numbers_read(a.dx, out->dx, err);
    if (st == EXO_OK)
        st = numbers_read(a.dw, out->dw, err);
    if (st == EXO_OK)
        st = numbers_read(a.db, out->db, err);
    exo_plan_free(&plan);
    release_arrays(&a);
    return st;
}

static exo_conv_shape
shape_of(size_t batch, size_t in, size_t out, size_t kernel, size_t stride, size_t padding,
         exo_dtype dtype)
{
    exo_conv_shape s;
    memset(&s, 0, sizeof s);
    s = (exo_conv_shape){.batch = batch,
                         .in_channels = in,
                         .height = 6,
                         .width = 7,
                         .out_channels = out,
                         .kernel_height = kernel,
                         .kernel_width = kernel == 3 ? 2 : kernel,
                         .stride = stride,
                         .padding = padding,
                         .dtype = dtype,
                         .with_bias = 1,
                         .backward = 1,
                         .input_grad = 1};
    s.out_height = (s.height + 2 * padding - s.kernel_height) / stride + 1;
    s.out_width = (s.width + 2 * padding - s.kernel_width) / stride + 1;
    return s;
}

static void
expect_close(const float *a, const float *b, size_t count, float tolerance, const char *what)
{
    for (size_t i = 0; i < count; i++)
        cr_assert(fabsf(a[i] - b[i]) <= tolerance * (1 + fabsf(a[i])), "%s, element %zu: %g and %g",
                  what, i, (double)a[i], (double)b[i]);
}

static void
expect_same(const exo_conv_shape *s, const outcome *a, const outcome *b, float tolerance)
{
    expect_close(a->y, b->y, results(s), tolerance, "y");
    expect_close(a->dx, b->dx, images(s), tolerance, "dx");
    expect_close(a->dw, b->dw, weights(s), tolerance, "dw");
    expect_close(a->db, b->db, s->out_channels, tolerance, "db");
}

static outcome by_cudnn, by_own, once_more;

static void
run_on(const char *asked, const exo_conv_shape *s, bool again, outcome *out)
{
    exo_err err = {0};
    exo_device *gpu = open_gpu(asked);
    memset(out, 0, sizeof *out);
    cr_assert_eq(convolve(gpu, s, again, out, &err), EXO_OK, "%s", err.text);
    close_gpu(gpu);
}

/* --- Values ----------------------------------------------------------------------------------- */

/* Sums have other orders: fp32 differs in its last bits, and bf16 in its last one, of which the
 * gradient of the weights has one more rounding by cuDNN. */
Test(cudnn, convolutions_are_those_of_the_own_kernels)
{
    const cudnn_test *cudnn = load_cudnn();
    static const size_t shapes[][6] = {/* batch, in, out, kernel, stride, padding */
                                       {2, 3, 4, 3, 1, 1}, {1, 1, 1, 1, 1, 0}, {3, 2, 5, 3, 2, 0},
                                       {2, 4, 3, 5, 1, 2}, {5, 1, 2, 3, 3, 2}, {2, 2, 2, 1, 2, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int half = 0; half < 2; half++) {
            const size_t *n = shapes[i];
            const exo_dtype dtype = half ? EXO_BF16 : EXO_F32;
            exo_conv_shape s = shape_of(n[0], n[1], n[2], n[3], n[4], n[5], dtype);
            s.input_grad = i != 2;
            const uint64_t before = cudnn->forwards(), backwards = cudnn->backwards();
            cuda_emulator_seed(i);
            run_on("on", &s, true, &by_cudnn);
            cr_expect_eq(cudnn->forwards(), before + 2);
            cr_expect_eq(cudnn->backwards(), backwards + (i == 2 ? 2 : 4));
            cr_expect_not(cudnn->was_tf32());
            cuda_emulator_seed(i + 100);
            run_on("on", &s, true, &once_more);
            cr_expect_eq(memcmp(&by_cudnn, &once_more, sizeof by_cudnn), 0, "other bits");
            run_on("off", &s, true, &by_own);
            cr_expect_eq(cudnn->forwards(), before + 4);
            expect_same(&s, &by_own, &by_cudnn, half ? 1.0f / 64 : 1e-5f);
        }
    cr_expect_eq(cudnn->things(), 0);
}

Test(cudnn, the_cases_of_all_devices_hold)
{
    const cudnn_test *cudnn = load_cudnn();
    size_t cases = 0;
    for (size_t i = 0; kernel_case_at(i); i++) {
        const kernel_case *c = kernel_case_at(i);
        if (strncmp(c->kernel, "conv", 4) != 0)
            continue;
        exo_device *gpu = open_gpu("on");
        kernel_expect_same(c, exo_device_ref(), gpu, 1000, false);
        close_gpu(gpu);
        cases++;
    }
    cr_expect(cases >= 2 && cudnn->forwards() >= 2 && cudnn->backwards() >= 4);
}

Test(cudnn, only_tf32_computes_fp32_as_tf32)
{
    const cudnn_test *cudnn = load_cudnn();
    const exo_conv_shape s = shape_of(2, 3, 4, 3, 1, 1, EXO_F32);
    run_on("off", &s, false, &by_own);
    run_on("tf32", &s, false, &by_cudnn);
    cr_expect(cudnn->was_tf32());
    expect_same(&s, &by_own, &by_cudnn, 1e-2f);
    run_on("on", &s, false, &by_cudnn);
    cr_expect_not(cudnn->was_tf32());
}

/* --- Choices ---------------------------------------------------------------------------------- */

Test(cudnn, own_kernels_compute_unless_the_environment_says_otherwise)
{
    const cudnn_test *cudnn = load_cudnn();
    const exo_conv_shape s = shape_of(2, 3, 4, 3, 1, 1, EXO_F32);
    run_on("", &s, false, &by_own);
    cr_expect_eq(cudnn->calls(), 0);
    run_on("off", &s, false, &by_cudnn);
    cr_expect_eq(cudnn->calls(), 0);
    cudnn->without_advice(1); /* every algorithm has other bits in each run, or is tf32 */
    run_on("on", &s, false, &by_cudnn);
    cr_expect_gt(cudnn->calls(), 0);
    cr_expect_eq(cudnn->forwards(), 0);
    cr_expect_eq(memcmp(&by_own, &by_cudnn, sizeof by_own), 0);
    cr_expect_eq(cudnn->things(), 0);
}

static void
expect_refused(const char *asked, exo_status status, const char *text)
{
    exo_device *gpu = NULL;
    exo_err err = {0};
    cr_assert_eq(setenv("EXOGYM_CUDNN", asked, 1), 0);
    cr_expect_eq(exo_cuda_open(&gpu, 0, &err), status);
    cr_expect_null(gpu);
    cr_expect(strstr(err.text, text), "%s", err.text);
    cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0);
}

Test(cudnn, what_is_missing_is_named)
{
    expect_refused("yes", EXO_INVAL, "EXOGYM_CUDNN: expected off, on or tf32, got 'yes'");
    exo_cudnn_use("/nowhere/libcudnn.so.9");
    expect_refused("on", EXO_UNSUPPORTED, "install cuDNN 9 for CUDA 13");
    exo_cudnn_use(EXO_TEST_BINARY_DIR "/tests/nccl/libnccl_test.so");
    expect_refused("on", EXO_UNSUPPORTED, "has no cudnn");
    const cudnn_test *cudnn = load_cudnn();
    cudnn->version(8907);
    expect_refused("on", EXO_UNSUPPORTED, "this is number 8907: install cuDNN 9");
    cudnn->version(91900);
    close_gpu(open_gpu("on"));
}

/* --- Failures --------------------------------------------------------------------------------- */

/* Opens a device and computes there. Expects that nothing is left, whatever happens. */
static exo_status
try(const cudnn_test *cudnn, const exo_conv_shape *s, exo_err *err)
{
    exo_device *gpu = NULL;
    exo_status st = exo_cuda_open(&gpu, 0, err);
    if (st == EXO_OK) {
        st = convolve(gpu, s, false, &by_cudnn, err);
        exo_cuda_close(gpu);
    }
    cr_expect_eq(cudnn->things() + cuda_emulator_memory() + cuda_emulator_things(), 0);
    cr_expect(st == EXO_OK || err->text[0]);
    return st;
}

/* The bits are those of the engine that is taken anyway; a pass without any other is an error. */
Test(cudnn, a_plan_that_fails_leaves_the_pass_to_the_next_engine)
{
    const cudnn_test *cudnn = load_cudnn();
    const exo_conv_shape s = shape_of(1, 2, 2, 3, 1, 1, EXO_F32);
    exo_err err = {0};
    run_on("on", &s, false, &once_more);
    cudnn->break_plans(1);
    run_on("on", &s, false, &by_cudnn);
    cr_expect_eq(memcmp(&by_cudnn, &once_more, sizeof by_cudnn), 0);
    cudnn->without_advice(1);
    cr_expect_eq(try(cudnn, &s, &err), EXO_FAILED);
    cr_expect(strstr(err.text, "EXECUTION_FAILED"), "%s", err.text);
    cudnn->break_plans(0);
    cr_expect_eq(try(cudnn, &s, &err), EXO_OK, "own kernels compute it: %s", err.text);
}

Test(cudnn, each_call_that_fails_ends_cleanly)
{
    const cudnn_test *cudnn = load_cudnn();
    const exo_conv_shape s = shape_of(1, 2, 2, 3, 1, 1, EXO_F32);
    exo_err err = {0};
    setenv("EXOGYM_CUDNN", "on", 1);
    exo_conv_shape forward = s;
    size_t went_on = 0; /* with another engine */
    forward.backward = 0;
    cr_assert_eq(try(cudnn, &forward, &err), EXO_OK, "%s", err.text);
    const uint64_t of_forward = cudnn->calls();
    cr_assert_gt(of_forward, 20);
    cr_assert_eq(try(cudnn, &s, &err), EXO_OK, "%s", err.text);
    const uint64_t calls = cudnn->calls() - of_forward;
    /* The passes make the same calls, so some of those of backward are enough. */
    for (uint64_t n = 1; n <= calls; n += n < of_forward ? 1 : 7) {
        const bool memory = n % 2;
        cuda_emulator_seed(n);
        cudnn->fail_at(n, memory ? 4004 : 5000);
        const exo_status st = try(cudnn, &s, &err);
        went_on += st == EXO_OK;
        cr_expect(st == (memory ? EXO_NOMEM : EXO_FAILED) || (st == EXO_OK && !memory),
                  "call %zu: %s", (size_t)n, err.text);
        cr_expect(st == EXO_OK ||
                      (strstr(err.text, "cuDNN: ") &&
                       strstr(err.text, memory ? "ALLOCATION_FAILED" : "EXECUTION_FAILED")),
                  "%s", err.text);
    }
    cr_expect(went_on > 0 && went_on < 12, "%zu plans were not needed", went_on);
    cudnn->fail_at(0, 0);
    for (uint64_t n = 1; n <= 80; n++) { /* and calls of CUDA */
        cuda_emulator_fail_call(n);
        (void)try(cudnn, &s, &err);
        cuda_emulator_fail_call(0);
    }
    cr_expect_eq(try(cudnn, &s, &err), EXO_OK, "%s", err.text);
}

/* cuDNN waits for the GPU when a handle ends, which CUDA forbids while something is recorded there. */
Test(cudnn, nothing_is_recorded_while_a_handle_ends, .timeout = 60)
{
    cuda_recorder r;
    (void)load_cudnn();
    setenv("EXOGYM_CUDNN", "on", 1);
    cuda_recorder_start(&r, 0);
    for (int i = 0; i < 100 || !cuda_recorder_has_enough(); i++)
        exo_cuda_close(open_gpu("on"));
    cuda_recorder_stop(&r);
    cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0);
}

Test(cudnn, each_lack_of_memory_ends_cleanly)
{
    const cudnn_test *cudnn = load_cudnn();
    const exo_conv_shape s = shape_of(1, 2, 2, 3, 1, 1, EXO_F32);
    exo_err err = {0};
    size_t lacks = 0, of_workspace = 0;
    setenv("EXOGYM_CUDNN", "on", 1);
    for (uint64_t n = 1; n <= 30; n++) {
        cuda_emulator_no_memory_at(n);
        err = (exo_err){0};
        const exo_status st = try(cudnn, &s, &err);
        lacks += st == EXO_NOMEM;
        of_workspace +=
            strstr(err.text, "the workspace of a convolution of 84 bytes on GPU 0") != NULL;
        cr_expect(st == EXO_OK || st == EXO_NOMEM, "%s", err.text);
    }
    cuda_emulator_no_memory_at(0);
    cr_expect_eq(of_workspace, 3, "%zu passes", of_workspace);
    cr_expect_geq(lacks, 12, "%zu", lacks);
}

Test(cudnn, workspaces_count_for_the_bound_of_a_process)
{
    const cudnn_test *cudnn = load_cudnn();
    const exo_conv_shape s = shape_of(1, 2, 2, 3, 1, 1, EXO_F32);
    exo_err err = {0};
    bool refused = false, fits = false;
    exo_device *gpu = open_gpu("on");
    const uint64_t own = cuda_emulator_memory();
    close_gpu(gpu);
    for (uint64_t more = 0; more < 1 << 16 && !fits; more += 64) {
        char bound[32];
        snprintf(bound, sizeof bound, "%llu B", (unsigned long long)(own + more));
        setenv("EXOGYM_CUDA_MEMORY", bound, 1);
        err = (exo_err){0};
        const exo_status st = try(cudnn, &s, &err);
        cr_expect(st == EXO_OK || st == EXO_NOMEM, "%s", err.text);
        refused |= strstr(err.text, "no memory for the workspace of a convolution of 84 bytes on "
                                    "GPU 0: EXOGYM_CUDA_MEMORY lets") != NULL;
        fits = st == EXO_OK;
    }
    unsetenv("EXOGYM_CUDA_MEMORY");
    cr_expect(refused && fits);
}
