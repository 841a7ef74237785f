/* Kernels and devices of nn/cuda on the CUDA runtime of the tests (tests/cuda): each kernel against
 * the reference over the list of cases, in drawn orders of streams and threads; copies; failures and
 * lack of memory on schedule. Read next: nn/cuda/device.h, cuda/emulator.h. */
#include <criterion/criterion.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/ipc.h>
#include <exogym/memory.h>

#include "cuda/emulator.h"
#include "nn/cuda/open.h"
#include "nn/device/device_impl.h"
#include "nn/ref/ref_device.h"
#include "support/kernel_check.h"

static exo_device *
open_gpu(void)
{
    exo_device *device;
    exo_err err = {0};
    cr_assert_eq(exo_cuda_open(&device, 0, &err), EXO_OK, "%s", err.text);
    return device;
}

static void
close_gpu(exo_device *device)
{
    exo_cuda_close(device);
    cr_expect_eq(cuda_emulator_memory(), 0, "%zu bytes are left", (size_t)cuda_emulator_memory());
    cr_expect_eq(cuda_emulator_things(), 0);
}

/* --- Kernels ---------------------------------------------------------------------------------- */

/* The most elements of a case's arrays. A decoder's parameters take more of them. */
static size_t
count_of(const kernel_case *c, size_t count)
{
    return strncmp(c->kernel, "decoder_", 8) == 0 && count > 5000 ? 32000 : count;
}

/* EXO_CUDA_CASES: only those cases whose names begin so. */
Test(cuda, every_kernel_computes_what_the_reference_says)
{
#if defined __SANITIZE_ADDRESS__
    static const size_t counts[] = {33, 1000};
#else
    static const size_t counts[] = {0, 1, 33, 1000, 5001};
#endif
    const char *only = getenv("EXO_CUDA_CASES");
    for (size_t i = 0; kernel_case_at(i); i++)
        for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
            const kernel_case *c = kernel_case_at(i);
            if (only && strncmp(c->name, only, strlen(only)) != 0)
                continue;
            cuda_emulator_seed(i * 100 + n);
            (void)cuda_emulator_watch_races(counts[n] == 1000);
            exo_device *gpu =
                open_gpu(); /* a device remembers a failure, so each case has its own */
            kernel_expect_same(c, exo_device_ref(), gpu, count_of(c, counts[n]), false);
            close_gpu(gpu);
        }
}

/* How a process ends that runs the fault: with 0, or by a signal. */
static int
end_of(cuda_fault fault)
{
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        (void)close(STDERR_FILENO);
        (void)cuda_emulator_plant(fault);
        _exit(0);
    }
    cr_assert(child > 0 && waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : status;
}

/* What a GPU leaves undefined ends the test, so that the kernels of the other tests have none of it. */
Test(cuda, faults_of_kernels_are_found)
{
    const int seen = cuda_emulator_watch_races(true) ? SIGABRT : 0;
    cr_expect_eq(end_of(CUDA_SOUND), 0);
    cr_expect_eq(end_of(CUDA_ENDED_LANE), SIGABRT);
    cr_expect_eq(end_of(CUDA_COPY_BEYOND), SIGABRT);
    cr_expect_eq(end_of(CUDA_FILL_BEYOND), SIGABRT);
    cr_expect_neq(cuda_emulator_plant(CUDA_MUCH_SHARED), 0);
#if defined(__SANITIZE_ADDRESS__) /* with the sanitizer of undefined behaviour beside it */
    cr_expect_neq(end_of(CUDA_NO_MULTIPLE), 0);
#endif
    if (seen == 0)
        return;
    for (cuda_fault f = CUDA_NO_BARRIER; f <= CUDA_COPY_LATE; f++)
        cr_expect_eq(end_of(f), SIGABRT, "fault %d", (int)f);
}

/* The gradients of its parameters have more columns than blocks that go on in steps would have at once. */
Test(cuda, a_norm_may_be_wider_than_a_grid)
{
    enum {
        ARRAYS = 5,
        WIDTH = (1 << 20) + 40
    };
    const exo_row_norm_shape shape = {.rows = 1, .width = WIDTH};
    exo_device *gpu = open_gpu();
    exo_array x[ARRAYS], scratch;
    double sum = 0;
    exo_err err = {0};
    for (size_t a = 0; a < ARRAYS; a++)
        cr_assert_eq(exo_array_init(&x[a], gpu, EXO_F32, WIDTH, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_array_init(&scratch, gpu, EXO_U8,
                                gpu->device_class->scratch(gpu, EXO_SHAPE_ROW_NORM, &shape,
                                                           EXO_SCRATCH_BACKWARD),
                                &err),
                 EXO_OK, "%s", err.text);
    exo_vec_fill(x[2], 1); /* dy */
    exo_device_run(gpu, row_norm_backward, .shape = shape, .centered = true, .dtype = EXO_F32,
                   .dx = x[0].data, .dbias = x[1].data, .dy = x[2].data, .x = x[3].data,
                   .weight = x[3].data, .mean = x[4].data, .inverse = x[4].data,
                   .scratch = scratch.data);
    cr_expect_eq(exo_vec_sum(x[1], &sum, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(sum, WIDTH, "the gradients of %zu biases are there", (size_t)sum);
    for (size_t a = 0; a < ARRAYS; a++)
        exo_array_release(&x[a]);
    exo_array_release(&scratch);
    close_gpu(gpu);
}

/* --- Arrays ----------------------------------------------------------------------------------- */

Test(cuda, an_array_is_zero_and_copies_are_taken_at_the_call)
{
    enum {
        MANY = 3 << 18 /* several pieces of pinned memory, and more than there are */
    };
    exo_device *gpu = open_gpu();
    exo_array x, empty;
    float *host = exo_calloc(MANY * 8, sizeof *host), *back = exo_calloc(MANY * 8, sizeof *back);
    cr_assert(host && back);
    cr_assert_eq(exo_array_init(&x, gpu, EXO_F32, MANY * 8, NULL), EXO_OK);
    cr_assert_eq(exo_array_init(&empty, gpu, EXO_F32, 0, NULL), EXO_OK);
    cr_assert_eq(exo_array_read(x, back, NULL), EXO_OK);
    cr_expect_arr_eq(back, host, MANY * 8 * sizeof *host, "zeros");
    for (size_t i = 0; i < MANY * 8; i++)
        host[i] = (float)(i % 1000);
    exo_array_send(x, host);
    memset(host, 0, MANY * 8 * sizeof *host); /* the device has its own copy */
    exo_vec_scale(x, 2);
    cr_assert_eq(exo_array_read(x, back, NULL), EXO_OK);
    for (size_t i = 0; i < MANY * 8; i++)
        cr_assert_eq(back[i], 2 * (float)(i % 1000), "element %zu", i);
    cr_expect_null(exo_array_host(x));
    exo_array_release(&x);
    exo_array_release(&empty);
    exo_free(host);
    exo_free(back);
    close_gpu(gpu);
}

/* What a step of generation sends is a few numbers, several times: each is one call, beyond all slots. */
Test(cuda, few_bytes_are_sent_by_one_call)
{
    enum {
        FEW = 256, /* floats, 1 KiB */
        SENDS = 20
    };
    exo_device *gpu = open_gpu();
    exo_array x;
    float numbers[FEW + 1], back[FEW + 1];
    cr_assert_eq(exo_array_init(&x, gpu, EXO_F32, FEW + 1, NULL), EXO_OK);
    const uint64_t calls = cuda_emulator_calls();
    for (int n = 0; n < SENDS; n++) {
        for (size_t i = 0; i <= FEW; i++)
            numbers[i] = (float)i + (float)n;
        exo_array_send(exo_array_part(x, 0, FEW), numbers);
        exo_array_send(exo_array_part(x, FEW, 1), &numbers[FEW]);
    }
    cr_expect_eq(cuda_emulator_calls() - calls, 2 * SENDS);
    memset(numbers, 0, sizeof numbers); /* the device has its own copy */
    cr_assert_eq(exo_array_read(x, back, NULL), EXO_OK);
    for (size_t i = 0; i <= FEW; i++)
        cr_expect_eq(back[i], (float)i + SENDS - 1, "element %zu", i);
    const uint64_t before = cuda_emulator_calls();
    exo_array_send(x, back); /* more go beside the stream */
    cr_expect_gt(cuda_emulator_calls() - before, 1);
    exo_array_release(&x);
    close_gpu(gpu);
}

/* Batches of `steps` steps are sent while earlier steps are under way: each is one piece of pinned
 * memory, and at times two. Every step adds its batch to `sum`. */
static void
add_batches(exo_device *gpu, float *host, size_t count, size_t steps)
{
    exo_array x, sum;
    cr_assert_eq(exo_array_init(&x, gpu, EXO_F32, count, NULL), EXO_OK);
    cr_assert_eq(exo_array_init(&sum, gpu, EXO_F32, count, NULL), EXO_OK);
    const uint64_t before = cuda_emulator_waits();
    for (size_t s = 1; s <= steps; s++) {
        const size_t part = s % 3 ? 100 : count;
        for (size_t i = 0; i < part; i++)
            host[i] = (float)(s * 8 + i % 5);
        exo_array_send(exo_array_part(x, 0, part), host);
        exo_vec_axpy(exo_array_part(sum, 0, part), 1, exo_array_part(x, 0, part));
    }
    cr_expect_eq(cuda_emulator_waits(), before, "a step waits for the device");
    cr_assert_eq(exo_array_read(sum, host, NULL), EXO_OK);
    for (size_t i = 0; i < count; i++) {
        float expected = 0;
        for (size_t s = 1; s <= steps; s++)
            if (i < 100 || s % 3 == 0)
                expected += (float)(s * 8 + i % 5);
        cr_assert_eq(host[i], expected, "element %zu", i);
    }
    exo_array_release(&x);
    exo_array_release(&sum);
}

/* In any order that the events between the two streams allow, each step has its own batch. */
Test(cuda, the_next_batch_is_copied_beside_the_steps)
{
    enum {
        COUNT = (1 << 18) + 1000, /* a piece, and a part of one */
        STEPS = 13
    };
    float *host = exo_calloc(COUNT, sizeof *host);
    cr_assert(host);
    for (uint64_t seed = 1; seed <= 6; seed++) {
        cuda_emulator_seed(seed);
        exo_device *gpu = open_gpu();
        add_batches(gpu, host, COUNT, STEPS);
        close_gpu(gpu);
    }
    exo_free(host);
}

Test(cuda, a_device_without_room_says_who_holds_it)
{
    exo_device *gpu = open_gpu(), *second = NULL;
    exo_err err = {0};
    const uint64_t own = cuda_emulator_memory();
    for (uint64_t room = 0; room < own; room += 1 << 19) {
        cuda_emulator_set_memory(own + room);
        cr_expect_eq(exo_cuda_open(&second, 0, &err), EXO_NOMEM);
        cr_expect_null(second);
        cr_expect(strstr(err.text, "no memory for a device of"), "%s", err.text);
        cr_expect(strstr(err.text, "the 1 others in this process 4"), "%s", err.text);
    }
    cuda_emulator_set_memory(0);
    close_gpu(gpu);
}

/* Opens GPU 0 with a bound; the status is expected. */
static exo_device *
open_bounded(const char *bound, exo_status expected, const char *text)
{
    exo_device *device = NULL;
    exo_err err = {0};
    setenv("EXOGYM_CUDA_MEMORY", bound, 1);
    cr_expect_eq(exo_cuda_open(&device, 0, &err), expected, "%s: %s", bound, err.text);
    cr_expect(strstr(err.text, text), "%s: %s", bound, err.text);
    return device;
}

Test(cuda, a_process_takes_no_more_than_its_bound)
{
    enum {
        COUNT = 1 << 18 /* 1 MiB */
    };
    char bound[32];
    exo_array x = {0}, y = {0};
    exo_ipc_array *shared = NULL;
    exo_device *second = NULL;
    exo_err err = {0};
    close_gpu(open_gpu());
    exo_device *gpu = open_bounded("1TiB", EXO_OK, "");
    const uint64_t own = cuda_emulator_memory();
    close_gpu(gpu);
    snprintf(bound, sizeof bound, "%llu B", (unsigned long long)own + 3 * (COUNT * sizeof(float)));
    gpu = open_bounded(bound, EXO_OK, "");
    cr_expect_eq(gpu->device_class->free_memory(gpu), 3 * COUNT * sizeof(float));
    cr_assert_eq(exo_array_init(&x, gpu, EXO_F32, 2 * COUNT, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_array_init(&y, gpu, EXO_F32, 2 * COUNT, &err), EXO_NOMEM);
    cr_expect(strstr(err.text,
                     "no memory for an array of 2097152 bytes on GPU 0: EXOGYM_CUDA_MEMORY lets"),
              "%s", err.text);
    cr_expect(strstr(err.text, "the arrays of this node hold 2097152, "), "%s", err.text);
    cr_expect_eq(exo_ipc_array_new(&shared, gpu, EXO_F32, 10, &err), EXO_NOMEM, "2 MiB");
    cr_expect(strstr(err.text, "arrays that others may hold 0"), "%s", err.text);
    cr_expect_eq(exo_cuda_open(&second, 0, &err), EXO_NOMEM);
    cr_expect(strstr(err.text, "no memory for a device of"), "%s", err.text);
    exo_array_release(&x);
    cr_assert_eq(exo_ipc_array_new(&shared, gpu, EXO_F32, 10, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_array_init(&y, gpu, EXO_F32, 2 * COUNT, &err), EXO_NOMEM);
    cr_expect(strstr(err.text, "arrays that others may hold 2097152"), "%s", err.text);
    exo_ipc_array_drop(&shared); /* is freed for the next one */
    cr_assert_eq(exo_array_init(&y, gpu, EXO_F32, 3 * COUNT, &err), EXO_OK, "%s", err.text);
    exo_array_release(&y);
    close_gpu(gpu);
}

Test(cuda, a_bound_is_a_part_or_a_size)
{
    static const char *const wrong[] = {"half", "0",    "1.5",     "-1",
                                        "nan",  "2 Gb", "20GiB x", "1e30 TiB"};
    cuda_emulator_set_memory(UINT64_C(1) << 30);
    exo_device *gpu = open_bounded("0.5", EXO_OK, "");
    cr_expect_leq(gpu->device_class->free_memory(gpu), UINT64_C(1) << 29);
    cr_expect_geq(gpu->device_class->free_memory(gpu), UINT64_C(1) << 28);
    close_gpu(gpu);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        open_bounded(wrong[i], EXO_INVAL,
                     "EXOGYM_CUDA_MEMORY: expected a part of the GPU's memory");
    open_bounded("1 kB", EXO_NOMEM, "EXOGYM_CUDA_MEMORY lets this process have 1000 bytes");
}

Test(cuda, a_lack_of_memory_names_both_sizes)
{
    exo_device *gpu = open_gpu();
    exo_array x, y;
    exo_err err = {0};
    cuda_emulator_set_memory(1 << 20);
    cr_expect_eq(exo_array_init(&x, gpu, EXO_F32, 1 << 20, &err), EXO_NOMEM);
    cr_expect(strstr(err.text, "4194304 bytes on GPU 0") && strstr(err.text, "of 1048576 bytes"),
              "%s", err.text);
    cuda_emulator_set_memory(0);
    cr_assert_eq(exo_array_init(&y, gpu, EXO_F32, 10, &err), EXO_OK, "%s", err.text);
    exo_array_release(&y);
    close_gpu(gpu);
}

Test(cuda, no_driver_and_no_such_gpu_are_clear_errors)
{
    exo_device *gpu;
    exo_err err = {0};
    cuda_emulator_set_gpus(-1);
    cr_expect_eq(exo_cuda_open(&gpu, 0, &err), EXO_UNSUPPORTED);
    cr_expect(strstr(err.text, "driver version") && strstr(err.text, "device: cpu"), "%s",
              err.text);
    cuda_emulator_set_gpus(0);
    cr_expect_eq(exo_cuda_open(&gpu, 0, &err), EXO_UNSUPPORTED);
    cuda_emulator_set_gpus(2);
    cr_expect_eq(exo_cuda_open(&gpu, 2, &err), EXO_UNSUPPORTED);
    cr_expect(strstr(err.text, "no GPU 2: this process sees 2"), "%s", err.text);
    cuda_emulator_set_gpus(1);
    cuda_emulator_set_capability(75);
    cr_expect_eq(exo_cuda_open(&gpu, 0, &err), EXO_FAILED);
    cr_expect_str_eq(err.text, "GPU 0 has compute capability 7.5, and exogym needs 8.0 (Ampere) or "
                               "later: set device: cpu");
    cuda_emulator_lack_image(true);
    cuda_emulator_set_capability(86);
    cr_expect_eq(exo_cuda_open(&gpu, 0, &err), EXO_FAILED);
    cr_expect(strstr(err.text, "8.6") && strstr(err.text, "-DEXO_CUDA_ARCHITECTURES=86"), "%s",
              err.text);
    cuda_emulator_lack_image(false);
    cuda_emulator_set_capability(90);
    cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0);
}

/* --- Several GPUs ----------------------------------------------------------------------------- */

/* The emulator refuses a kernel on a stream of another GPU than the thread's. */
Test(cuda, a_thread_that_drives_two_gpus_starts_each_kernel_on_its_own)
{
    enum {
        GPUS = 2,
        COUNT = 1000
    };
    const exo_attention_shape shape = {.sequences = 1,
                                       .tokens = 8,
                                       .heads = 1,
                                       .kv_heads = 1,
                                       .width = 4,
                                       .turned = 4,
                                       .theta = 1e4};
    exo_device *gpus[GPUS];
    exo_array x[GPUS];
    exo_plan *plans[GPUS];
    float ones[COUNT], back[COUNT];
    exo_err err = {0};
    for (size_t i = 0; i < COUNT; i++)
        ones[i] = 1;
    cuda_emulator_set_gpus(GPUS);
    for (int g = 0; g < GPUS; g++) {
        cr_assert_eq(exo_cuda_open(&gpus[g], g, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_array_import(&x[g], gpus[g], EXO_F32, ones, COUNT, &err), EXO_OK);
    }
    for (int g = 0; g < GPUS; g++) /* the other GPU was chosen last */
        cr_expect_eq(exo_plan_new(&plans[g], gpus[g], EXO_SHAPE_ATTENTION, &shape, &err), EXO_OK,
                     "%s", err.text);
    for (int n = 0; n < 3; n++)
        for (int g = 0; g < GPUS; g++)
            exo_vec_scale(x[g], (float)(g + 2));
    for (int g = 0; g < GPUS; g++) {
        double sum = 0;
        cr_expect_eq(exo_vec_sum(x[g], &sum, &err), EXO_OK, "GPU %d: %s", g, err.text);
        cr_expect_eq(sum, COUNT * (g == 0 ? 8.0 : 27.0));
    }
    for (int g = 0; g < GPUS; g++) {
        cr_expect_eq(exo_array_read(x[g], back, &err), EXO_OK, "GPU %d: %s", g, err.text);
        cr_expect_eq(back[COUNT - 1], g == 0 ? 8.0f : 27.0f);
        exo_plan_free(&plans[g]);
        exo_array_release(&x[g]);
    }
    exo_cuda_close(gpus[0]);
    close_gpu(gpus[1]);
    cuda_emulator_set_gpus(1);
}

Test(cuda, pages_come_and_go_at_their_address)
{
    exo_device *gpu = open_gpu();
    const exo_device_class *class = gpu->device_class;
    enum {
        COUNT = 3000
    };
    static float ones[COUNT], back[COUNT];
    exo_err err = {0};
    void *pages = NULL;
    for (size_t i = 0; i < COUNT; i++)
        ones[i] = 1;
    cr_assert_eq(class->pages_reserve(gpu, sizeof ones, &pages, &err), EXO_OK, "%s", err.text);
    const uint64_t before = cuda_emulator_memory();
    const exo_array x = {.device = gpu, .data = pages, .count = COUNT, .dtype = EXO_F32};
    for (int turn = 0; turn < 3; turn++) {
        cr_assert_eq(class->pages_open(gpu, pages, sizeof ones, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_array_read(x, back, NULL), EXO_OK);
        cr_expect_eq(back[COUNT - 1], 0, "new pages are zero");
        exo_array_send(x, ones);
        exo_vec_scale(x, 3);
        cr_assert_eq(exo_array_read(x, back, NULL), EXO_OK);
        cr_expect_eq(back[COUNT - 1], 3);
        exo_vec_scale(x, 3); /* asked for before the memory goes */
        class->pages_close(gpu, pages, sizeof ones);
        cr_expect_eq(cuda_emulator_memory(), before);
    }
    cuda_emulator_set_memory(cuda_emulator_memory());
    cr_expect_eq(class->pages_open(gpu, pages, sizeof ones, &err), EXO_NOMEM);
    cr_expect(strstr(err.text, "no memory for pages of caches of"), "%s", err.text);
    cr_expect(strstr(err.text, "pages of caches 0 and workspaces"), "%s", err.text);
    cr_expect(strstr(err.text, "12000 bytes on GPU 0"), "%s", err.text);
    cuda_emulator_set_memory(0);
    cr_assert_eq(class->pages_open(gpu, pages, sizeof ones, &err), EXO_OK);
    exo_array full = {0};
    cuda_emulator_set_memory(cuda_emulator_memory());
    cr_expect_eq(exo_array_init(&full, gpu, EXO_F32, COUNT, &err), EXO_NOMEM);
    cr_expect(!strstr(err.text, "pages of caches 0 "), "open pages are counted: %s", err.text);
    cuda_emulator_set_memory(0);
    class->pages_free(gpu, pages, sizeof ones); /* open ones, too */
    close_gpu(gpu);
}

/* Asks for work of all kinds. */
static exo_status
work(exo_device *gpu, exo_err *err)
{
    exo_array x = {0}, y = {0};
    float host[1000] = {1, 2, 3}, back[1000];
    double sum = 0;
    exo_status st = exo_array_import(&x, gpu, EXO_F32, host, 1000, err);
    if (st == EXO_OK)
        st = exo_array_init(&y, gpu, EXO_F32, 1000, err);
    if (st == EXO_OK) {
        exo_vec_axpy(y, 0.5f, x);
        exo_vec_mul(y, y, x);
        st = exo_vec_dot(x, y, &sum, err);
    }
    if (st == EXO_OK)
        st = exo_array_read(y, back, err);
    if (st == EXO_OK) {
        cr_expect_eq(sum, 0.5 * (1 + 8 + 27));
        cr_expect_eq(back[2], 4.5f);
    }
    exo_array_release(&y);
    exo_array_release(&x);
    return st;
}

/* Every operation and every call of the runtime fails once: the device reports it, and nothing is
 * left of it. */
Test(cuda, failures_on_schedule_end_cleanly)
{
    exo_device *gpu = open_gpu();
    exo_err err = {0};
    uint64_t failed = 0;
    cr_assert_eq(work(gpu, &err), EXO_OK, "%s", err.text);
    close_gpu(gpu);
    for (uint64_t n = 1; n < 100; n++) {
        cuda_emulator_seed(n);
        cuda_emulator_fail_call(n);
        exo_status st = exo_cuda_open(&gpu, 0, &err);
        if (st == EXO_OK) {
            st = work(gpu, &err);
            close_gpu(gpu);
        }
        cuda_emulator_fail_call(0);
        failed += st != EXO_OK;
        cr_expect(st == EXO_OK || err.text[0]);
        cr_expect_eq(cuda_emulator_memory() + cuda_emulator_things(), 0, "call %zu", (size_t)n);
    }
    cr_expect_gt(failed, 20);
    for (uint64_t n = 1; n < 20; n++) {
        cuda_emulator_seed(n);
        gpu = open_gpu();
        cuda_emulator_fail_at(n);
        exo_status st = work(gpu, &err);
        cr_expect_eq(st != EXO_OK, n <= 10, "operation %zu: %d", (size_t)n, st);
        if (st != EXO_OK)
            cr_expect(strstr(err.text, "cudaErrorLaunchFailure"), "%s", err.text);
        cuda_emulator_fail_at(0);
        close_gpu(gpu);
    }
}
