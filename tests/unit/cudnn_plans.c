/* The plans of nn/cuda/cudnn.cu by NVIDIA's own cuDNN, where it is installed, for a GPU that need not be
 * there: from 9.8 on cuDNN plans for the properties of a GPU. Whether it takes the descriptors, and
 * which engines it advises. Nothing computes. Read next: nn/cuda/cudnn.h, unit/cudnn.c. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include <exogym/log.h>

#include "cuda/emulator.h"
#include "nn/cuda/cudnn_library.h"
#include "nn/cuda/open.h"
#include "nn/device/device_impl.h"
#include "support/logged.h"

struct logged logged = LOGGED_NONE;

/* An H100, as cuDNN writes it; driverVer is the version of CUDA. */
static const char h100[] =
    "{\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], "
    "\"regsPerBlock\": 65536, \"multiProcessorCount\": 132, \"warpSize\": 32, "
    "\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": 232448, "
    "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, \"maxCtasPerSM\": 32, "
    "\"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"pciDeviceId\": 0, "
    "\"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"totalGlobalMem\": 85045870592, "
    "\"smClockRateKHz\": 1980000, \"memClockRateKHz\": 2619000, \"memoryBusWidth\": 5120, "
    "\"l2CacheSize\": 52428800, \"cudaDeviceId\": 0, \"deviceVer\": 900, \"driverVer\": 13000, "
    "\"deviceName\": \"NVIDIA H100 80GB HBM3\"}";

/* A B200, the same way. */
static const char b200[] =
    "{\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], "
    "\"regsPerBlock\": 65536, \"multiProcessorCount\": 148, \"warpSize\": 32, "
    "\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": 232448, "
    "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, \"maxCtasPerSM\": 32, "
    "\"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"pciDeviceId\": 0, "
    "\"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"totalGlobalMem\": 191505498112, "
    "\"smClockRateKHz\": 1965000, \"memClockRateKHz\": 3996000, \"memoryBusWidth\": 8192, "
    "\"l2CacheSize\": 132644864, \"cudaDeviceId\": 0, \"deviceVer\": 1000, \"driverVer\": 13000, "
    "\"deviceName\": \"NVIDIA B200\"}";

/* The GPUs that plans are for. */
static const struct machine {
    const char *json;
    int capability;
} machines[] = {{h100, 90}, {b200, 100}};

/* Opens the emulated GPU, whose plans are for that machine. */
static exo_device *
open_gpu(const struct machine *machine, const char *asked)
{
    const exo_cudnn_table *cudnn = NULL;
    exo_device *gpu = NULL;
    exo_err err = {0};
    if (exo_cudnn_load(&cudnn, NULL, &err) != EXO_OK)
        cr_skip_test("%s", err.text);
    if (cudnn->GetVersion() < 90800)
        cr_skip_test("this cuDNN plans for a GPU that is there only");
    exo_cudnn_plan_for(machine->json);
    cuda_emulator_set_capability(machine->capability);
    cr_assert_eq(setenv("EXOGYM_CUDNN", asked, 1), 0);
    if (exo_cuda_open(&gpu, 0, &err) != EXO_OK)
        cr_skip_test("cuDNN %zu: %s", cudnn->GetVersion(), err.text);
    return gpu;
}

/* Plans a convolution, and writes what was chosen for the pass. */
static void
plan(exo_device *gpu, const size_t sizes[9], exo_dtype dtype)
{
    exo_conv_shape s;
    exo_plan *out = NULL;
    exo_err err = {0};
    memset(&s, 0, sizeof s);
    s = (exo_conv_shape){.batch = sizes[0],
                         .in_channels = sizes[1],
                         .height = sizes[2],
                         .width = sizes[3],
                         .out_channels = sizes[4],
                         .kernel_height = sizes[5],
                         .kernel_width = sizes[6],
                         .stride = sizes[7],
                         .padding = sizes[8],
                         .dtype = dtype,
                         .backward = 1,
                         .input_grad = 1};
    s.out_height = (s.height + 2 * s.padding - s.kernel_height) / s.stride + 1;
    s.out_width = (s.width + 2 * s.padding - s.kernel_width) / s.stride + 1;
    logged.length = logged.lines = 0;
    logged.text[0] = '\0';
    cr_assert_eq(exo_plan_new(&out, gpu, EXO_SHAPE_CONV, &s, &err), EXO_OK, "%s", err.text);
    exo_plan_free(&out);
}

/* cuDNN has an engine for each pass of shapes of models and of odd ones, whose bits are the same in each
 * run, and which takes no more workspace than is allowed. */
Test(cudnn_plans, each_pass_has_an_engine)
{
    static const size_t shapes[][9] = {
        /* batch, in, height, width, out, kernel, stride, padding */
        {256, 1, 28, 28, 64, 3, 3, 1, 1},   {256, 64, 28, 28, 64, 3, 3, 1, 1},
        {256, 64, 14, 14, 128, 3, 3, 1, 1}, {256, 128, 14, 14, 128, 3, 3, 1, 1},
        {1, 1, 28, 28, 64, 3, 3, 1, 1},     {70, 3, 4, 5, 4, 3, 2, 2, 0},
        {33, 5, 13, 11, 7, 5, 4, 3, 2},     {64, 64, 14, 14, 128, 1, 1, 2, 0},
        {8, 8, 6, 6, 8, 2, 2, 1, 3},        {8, 16, 9, 9, 16, 2, 2, 3, 0}};
    exo_log_set_level(EXO_LOG_DEBUG);
    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++) {
        exo_device *gpu = open_gpu(&machines[m], "on");
        logged_begin();
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (int half = 0; half < 2; half++) {
                plan(gpu, shapes[i], half ? EXO_BF16 : EXO_F32);
                cr_expect(logged_has("pass=forward engine=") && logged_has("pass=data engine=") &&
                              logged_has("pass=filter engine="),
                          "machine %zu, shape %zu, %s: %s", m, i, half ? "bf16" : "fp32",
                          logged_text());
            }
        logged_end();
        exo_cuda_close(gpu);
    }
}

/* fp32 alone takes another engine than fp32 that may be rounded to tf32. */
Test(cudnn_plans, tf32_takes_other_engines)
{
    static const size_t sizes[9] = {256, 64, 28, 28, 64, 3, 3, 1, 1};
    static char exact[sizeof logged.text];
    exo_device *gpu = open_gpu(&machines[0], "on");
    exo_log_set_level(EXO_LOG_DEBUG);
    logged_begin();
    plan(gpu, sizes, EXO_F32);
    strcpy(exact, logged_text());
    plan(gpu, sizes, EXO_F32);
    cr_expect_str_eq(strstr(exact, "event="), strstr(logged_text(), "event="), "another choice");
    exo_cuda_close(gpu);
    gpu = open_gpu(&machines[0], "tf32");
    plan(gpu, sizes, EXO_F32);
    logged_end();
    cr_expect_str_neq(strstr(exact, "event="), strstr(logged_text(), "event="));
    exo_cuda_close(gpu);
}

/* Plans an attention, and writes what was chosen for its passes. */
static void
plan_attention(exo_device *gpu, const size_t sizes[6])
{
    static exo_attention_shape s;
    exo_plan *out = NULL;
    exo_err err = {0};
    memset(&s, 0, sizeof s);
    s = (exo_attention_shape){.sequences = sizes[0],
                              .tokens = sizes[1],
                              .heads = sizes[2],
                              .kv_heads = sizes[3],
                              .width = sizes[4],
                              .turned = sizes[5],
                              .dtype = EXO_BF16,
                              .theta = 10000,
                              .scale = 0.125};
    logged.length = logged.lines = 0;
    logged.text[0] = '\0';
    cr_assert_eq(exo_plan_new(&out, gpu, EXO_SHAPE_ATTENTION, &s, &err), EXO_OK, "%s", err.text);
    exo_plan_free(&out);
}

/* cuDNN takes the graphs of attention; for a B200 it is asked for forward alone. Which engine it advises
 * depends on a driver, which it asks to load their kernels first. */
Test(cudnn_plans, attention_is_a_graph)
{
    static const size_t shapes[][6] = {/* N, T, H, G, D, turned */
                                       {16, 1024, 12, 12, 64, 0},  {4, 2048, 16, 16, 128, 0},
                                       {2, 4096, 32, 8, 128, 128}, {3, 77, 2, 1, 64, 0},
                                       {2, 64, 4, 2, 32, 32},      {1, 2, 4, 4, 8, 0}};
    exo_log_set_level(EXO_LOG_DEBUG);
    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++) {
        exo_device *gpu = open_gpu(&machines[m], "on");
        logged_begin();
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            plan_attention(gpu, shapes[i]);
            cr_expect(logged_has("event=attention pass=forward graph=taken engine="),
                      "machine %zu, shape %zu: %s", m, i, logged_text());
            cr_expect(logged_has("event=attention pass=backward graph=taken engine=") == (m == 0),
                      "machine %zu, shape %zu: %s", m, i, logged_text());
        }
        logged_end();
        exo_cuda_close(gpu);
    }
}
