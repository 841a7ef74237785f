/* A thread that records passes: see recorder.h. */
#include "cuda/recorder.h"

#include <criterion/criterion.h>

#include <stdlib.h>

#include "cuda/emulator.h"
#include "nn/cuda/open.h"
#include "nn/device/device_impl.h"

static void *
record_passes(void *argument)
{
    cuda_recorder *r = argument;
    for (uint64_t n = 0; r->status == EXO_OK && !r->ends; n++) {
        exo_device_section_begin(r->gpu);
        for (int i = 0; i < 12; i++) /* other numbers each time, and one form */
            exo_vec_divide(r->x, 1 + (float)(n % 64) / 1024);
        r->status = exo_device_section_end(r->gpu, NULL);
        if (r->status == EXO_OK)
            r->status = exo_device_synchronize(r->gpu, NULL);
    }
    return NULL;
}

void
cuda_recorder_start(cuda_recorder *r, int gpu)
{
    r->ends = false;
    r->status = EXO_OK;
    setenv("EXOGYM_CUDA_GRAPHS", "on", 1);
    cr_assert_eq(exo_cuda_open(&r->gpu, gpu, NULL), EXO_OK);
    cr_assert_eq(exo_array_init(&r->x, r->gpu, EXO_F32, 64, NULL), EXO_OK);
    cr_assert_eq(pthread_create(&r->thread, NULL, record_passes, r), 0);
}

bool
cuda_recorder_has_enough(void)
{
    return cuda_emulator_records() > 20;
}

void
cuda_recorder_stop(cuda_recorder *r)
{
    r->ends = true;
    pthread_join(r->thread, NULL);
    cr_expect_eq(r->status, EXO_OK);
    cr_expect(cuda_recorder_has_enough());
    exo_array_release(&r->x);
    exo_cuda_close(r->gpu);
}
