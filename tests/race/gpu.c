/* Streams of the emulated GPU under the thread sanitizer, which is told what CUDA orders (cuda/order.h): it
 * finds each planted fault, and none in the device of nn/cuda, with its kernels and copies. The main
 * thread owns the device. Read next: tests/unit/cuda.c. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "cuda/emulator.h"
#include "nn/cuda/open.h"
#include "support/kernel_cases.h"

static void
expect(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "gpu: %s\n", what);
    exit(EXIT_FAILURE);
}

/* Whether a process that has the fault ends with the sanitizer's status. */
static bool
is_found(cuda_fault fault)
{
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        if (fault != CUDA_SOUND_STREAMS)
            (void)close(STDERR_FILENO);
        (void)cuda_emulator_plant(fault);
        exit(EXIT_SUCCESS);
    }
    expect(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status), "a process");
    return WEXITSTATUS(status) != EXIT_SUCCESS;
}

static void
find_faults(void)
{
    char text[64];
    expect(!is_found(CUDA_SOUND_STREAMS), "a fault in sound streams");
    for (cuda_fault f = CUDA_NO_EVENT; f <= CUDA_CHANGED_EARLY; f++) {
        snprintf(text, sizeof text, "fault %d was not found", (int)f);
        expect(is_found(f), text);
    }
}

/* Each kernel, with the copies to it and back. */
static void
run_kernels(size_t count)
{
    exo_err err = {0};
    for (size_t i = 0; kernel_case_at(i); i++) {
        const kernel_case *c = kernel_case_at(i);
        exo_array x[KERNEL_CASE_ARRAYS];
        exo_device *gpu = NULL;
        double sum = 0;
        cuda_emulator_seed(i);
        expect(exo_cuda_open(&gpu, 0, &err) == EXO_OK, err.text);
        expect(kernel_case_arrays(x, gpu, count, &err) == EXO_OK, err.text);
        expect(c->run(x, &sum, &err) == EXO_OK, err.text);
        float *const host = exo_calloc(count, sizeof *host);
        expect(host, "no memory");
        for (size_t a = 0; a < KERNEL_CASE_ARRAYS; a++)
            expect(exo_array_read(x[a], host, &err) == EXO_OK, err.text);
        exo_free(host);
        kernel_case_release(x);
        exo_cuda_close(gpu);
    }
}

/* The n-th call fails: the host does not fill memory again that a copy still takes. */
static void
fail_calls(void)
{
    enum {
        COUNT = 5,
        CALLS = 40
    };
    const float host[COUNT] = {0};
    for (uint64_t n = 1; n <= CALLS; n++) {
        exo_err err = {0};
        exo_array y;
        exo_device *gpu = NULL;
        cuda_emulator_seed(n);
        expect(exo_cuda_open(&gpu, 0, &err) == EXO_OK, err.text);
        expect(exo_array_init(&y, gpu, EXO_F32, COUNT, &err) == EXO_OK, err.text);
        cuda_emulator_fail_call(n);
        for (size_t i = 0; i < 12; i++) /* more than a device has slots */
            exo_array_send(y, host);
        cuda_emulator_fail_call(0);
        (void)exo_device_synchronize(gpu, &err); /* which has failed */
        exo_array_release(&y);
        exo_cuda_close(gpu);
    }
}

int
main(void)
{
#if defined(__SANITIZE_THREAD__)
    find_faults();
#else
    (void)find_faults;
#endif
    run_kernels(33);
    fail_calls();
    puts("gpu: ok");
    return EXIT_SUCCESS;
}
