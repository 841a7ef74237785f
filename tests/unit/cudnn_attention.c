/* Attention by cuDNN on the GPUs of tests/cuda, with the cuDNN of tests/cudnn: values beside those of
 * exogym's own kernels, which passes are whose, and ways to fail. Read next:
 * nn/cuda/cudnn_attention.h, tests/cudnn/graphs.cc. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "cuda/emulator.h"
#include "cudnn/load.h"
#include "nn/cuda/open.h"
#include "nn/device/device_impl.h"
#include "support/attention_call.h"

/* A call, and whether cuDNN is asked for it. */
typedef struct way {
    attention_call call;
    const char *asked; /* EXOGYM_CUDNN */
} way;

/* Opens a GPU, computes, and closes it. */
static exo_status
try(const exo_attention_shape *s, const way *w, attention_outcome *out, exo_err *err)
{
    exo_device *gpu = NULL;
    cr_assert_eq(setenv("EXOGYM_CUDNN", w->asked, 1), 0);
    exo_status st = exo_cuda_open(&gpu, 0, err);
    if (st != EXO_OK)
        return st;
    st = attention_outcome_of(gpu, s, &w->call, out, err);
    exo_cuda_close(gpu);
    cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0);
    return st;
}

static void
run(const exo_attention_shape *s, const way *w, attention_outcome *out)
{
    exo_err err = {0};
    cr_assert_eq(try(s, w, out, &err), EXO_OK, "%s", err.text);
}

static attention_outcome by_cudnn, by_own, once_more;

static const way by_library = {.asked = "on"}, own = {.asked = "off"};

/* --- Values ----------------------------------------------------------------------------------- */

/* Weights, dS and the parts of shared keys are rounded to bf16 in both, but not in the same order. */
Test(cudnn_attention, values_are_those_of_the_own_kernels)
{
    const cudnn_test *cudnn = load_cudnn();
    static const size_t shapes[][6] = {/* N, T, H, G, D, turned */
                                       {2, 6, 2, 2, 8, 0},   {1, 37, 2, 1, 16, 0},
                                       {2, 2, 1, 1, 32, 0},  {1, 19, 4, 2, 8, 8},
                                       {3, 5, 3, 1, 24, 16}, {1, 20, 2, 2, 64, 64}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const exo_attention_shape s = attention_shape_of(shapes[i]);
        const uint64_t before = cudnn->attentions();
        cuda_emulator_seed(i);
        run(&s, &by_library, &by_cudnn);
        cr_expect_eq(cudnn->attentions(), before + 2);
        cuda_emulator_seed(i + 100);
        run(&s, &by_library, &once_more);
        cr_expect_eq(memcmp(&by_cudnn, &once_more, sizeof by_cudnn), 0, "other bits");
        run(&s, &own, &by_own);
        cr_expect_eq(cudnn->attentions(), before + 4);
        attention_expect_same(&s, &by_own, &by_cudnn);
    }
    cr_expect_eq(cudnn->things(), 0);
}

/* Own kernels compute what cuDNN does not, from the same lse. */
Test(cudnn_attention, either_goes_on_from_the_other)
{
    const cudnn_test *cudnn = load_cudnn();
    static const size_t sizes[6] = {2, 9, 4, 2, 16, 16};
    const exo_attention_shape s = attention_shape_of(sizes);
    const way adds = {{.add = true}, "on"}, own_adds = {{.add = true}, "off"};
    run(&s, &adds, &by_cudnn);
    cr_expect_eq(cudnn->attentions(), 1); /* forward: cuDNN does not add */
    run(&s, &own_adds, &by_own);
    attention_expect_same(&s, &by_own, &by_cudnn);
    const way blind = {{.without_lse = true}, "on"};
    run(&s, &blind, &once_more);
    cr_expect_eq(cudnn->attentions(), 2);
    cr_expect_eq(memcmp(once_more.y, by_cudnn.y, sizeof by_cudnn.y), 0);
}

/* Workspaces come from the pool, so no graph may record a pass. */
Test(cudnn_attention, no_graph_records_it)
{
    const cudnn_test *cudnn = load_cudnn();
    static const size_t sizes[6] = {1, 5, 2, 1, 8, 8};
    const exo_attention_shape s = attention_shape_of(sizes);
    const way often = {{.times = 8}, "on"};
    run(&s, &by_library, &once_more);
    cr_assert_eq(setenv("EXOGYM_CUDA_GRAPHS", "on", 1), 0);
    run(&s, &often, &by_cudnn);
    cr_expect_eq(cudnn->attentions(), 2 + 3 * 16);
    cr_expect_eq(memcmp(&by_cudnn, &once_more, sizeof by_cudnn), 0);
}

/* --- Choices ---------------------------------------------------------------------------------- */

Test(cudnn_attention, own_kernels_compute_the_rest)
{
    const cudnn_test *cudnn = load_cudnn();
    static const size_t sizes[6] = {2, 9, 4, 2, 16, 0}, odd[6] = {2, 9, 2, 2, 12, 0},
                        single[6] = {4, 1, 2, 2, 8, 0}, wide[6] = {1, 3, 1, 1, 136, 0};
    const size_t *others[] = {odd, single, wide};
    for (size_t i = 0; i < 3; i++) {
        const exo_attention_shape other = attention_shape_of(others[i]);
        run(&other, &own, &by_own);
        run(&other, &by_library, &by_cudnn);
        cr_expect_eq(memcmp(&by_own, &by_cudnn, sizeof by_own), 0, "shape %zu", i);
    }
    exo_attention_shape s = attention_shape_of(sizes);
    s.alibi = 1;
    run(&s, &by_library, &by_cudnn);
    s.alibi = 0;
    s.dropout = 1;
    run(&s, &by_library, &by_cudnn);
    s.dropout = 0;
    const way shifted = {{.shifted = true}, "on"}, own_shifted = {{.shifted = true}, "off"};
    run(&s, &shifted, &by_cudnn);
    run(&s, &own_shifted, &by_own);
    cr_expect_eq(memcmp(&by_own, &by_cudnn, sizeof by_own), 0);
    run(&s, &own, &by_own);
    cudnn->version(91500);
    run(&s, &by_library, &by_cudnn);
    cr_expect_eq(memcmp(&by_own, &by_cudnn, sizeof by_own), 0);
    cudnn->version(91900);
    cudnn->without_advice(1);
    run(&s, &by_library, &by_cudnn);
    cr_expect_eq(memcmp(&by_own, &by_cudnn, sizeof by_own), 0);
    cr_expect_eq(cudnn->attentions() + cudnn->things(), 0);
}

/* On Blackwell of data centers no note of cuDNN's engines tells whether gradients have one order. */
Test(cudnn_attention, gradients_have_one_order_on_each_gpu)
{
    const cudnn_test *cudnn = load_cudnn();
    static const size_t sizes[6] = {2, 9, 4, 2, 16, 16};
    static const struct {
        int capability;
        uint64_t passes;
    } gpus[] = {{80, 2}, {90, 2}, {100, 1}, {103, 1}, {110, 1}, {120, 2}};
    const exo_attention_shape s = attention_shape_of(sizes);
    run(&s, &own, &by_own);
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        const uint64_t before = cudnn->attentions();
        cuda_emulator_set_capability(gpus[i].capability);
        run(&s, &by_library, &by_cudnn);
        cr_expect_eq(cudnn->attentions(), before + gpus[i].passes, "%d", gpus[i].capability);
        attention_expect_same(&s, &by_own, &by_cudnn);
    }
}

/* Layers of a shape share the plans, and a shape that nobody has any more leaves nothing. */
Test(cudnn_attention, layers_share_plans)
{
    const cudnn_test *cudnn = load_cudnn();
    static const size_t sizes[6] = {2, 9, 4, 2, 16, 0}, more[6] = {2, 10, 4, 2, 16, 0};
    exo_device *gpu = NULL;
    exo_plan *plans[4] = {NULL};
    exo_err err = {0};
    cr_assert_eq(setenv("EXOGYM_CUDNN", "on", 1), 0);
    cr_assert_eq(exo_cuda_open(&gpu, 0, &err), EXO_OK, "%s", err.text);
    const uint64_t handles = cudnn->things();
    uint64_t calls[4];
    for (int i = 0; i < 4; i++) {
        const exo_attention_shape s = attention_shape_of(i < 3 ? sizes : more);
        cr_assert_eq(exo_plan_new(&plans[i], gpu, EXO_SHAPE_ATTENTION, &s, &err), EXO_OK);
        calls[i] = cudnn->calls();
    }
    cr_expect(calls[1] == calls[0] && calls[2] == calls[0] && calls[3] > calls[2]);
    for (int i = 0; i < 4; i++)
        exo_plan_free(&plans[i]);
    cr_expect_eq(cudnn->things(), handles);
    exo_cuda_close(gpu);
}

/* --- Failures --------------------------------------------------------------------------------- */

Test(cudnn_attention, each_call_that_fails_ends_cleanly)
{
    const cudnn_test *cudnn = load_cudnn();
    static const size_t sizes[6] = {1, 2, 1, 1, 8, 0};
    const exo_attention_shape s = attention_shape_of(sizes);
    exo_err err = {0};
    run(&s, &by_library, &by_cudnn);
    const uint64_t calls = cudnn->calls();
    for (uint64_t n = 1; n <= calls; n += n < 20 || n + 20 > calls ? 1 : 37) {
        const bool memory = n % 2;
        cuda_emulator_seed(n);
        cudnn->fail_at(n, memory ? 4004 : 5000);
        cr_expect_eq(try(&s, &by_library, &by_cudnn, &err), memory ? EXO_NOMEM : EXO_FAILED,
                     "call %zu", (size_t)n);
        cr_expect(strstr(err.text, "cuDNN: "), "%s", err.text);
        cr_expect_eq(cudnn->things(), 0);
    }
    cudnn->fail_at(0, 0);
    for (uint64_t n = 1; n <= 60; n++) { /* and calls of CUDA */
        cuda_emulator_fail_call(n);
        (void)try(&s, &by_library, &by_cudnn, &err);
        cuda_emulator_fail_call(0);
        cr_expect_eq(cudnn->things(), 0);
    }
    size_t of_workspace = 0;
    for (uint64_t n = 1; n <= 30; n++) {
        cuda_emulator_no_memory_at(n);
        err = (exo_err){0};
        const exo_status st = try(&s, &by_library, &by_cudnn, &err);
        of_workspace += strstr(err.text, "the workspace of attention of") != NULL;
        cr_expect(st == EXO_OK || st == EXO_NOMEM, "%s", err.text);
    }
    cuda_emulator_no_memory_at(0);
    cr_expect_eq(of_workspace, 2, "%zu passes", of_workspace);
    run(&s, &by_library, &once_more);
}
