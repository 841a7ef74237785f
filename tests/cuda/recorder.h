/* A thread that records passes on a GPU again and again, for tests of what must not happen meanwhile.
 * Owner: the test. */
#ifndef EXO_TEST_CUDA_RECORDER_H
#define EXO_TEST_CUDA_RECORDER_H

#include <pthread.h>
#include <stdbool.h>

#include <exogym/device.h>

typedef struct cuda_recorder {
    exo_device *gpu;
    exo_array x;
    pthread_t thread;
    _Atomic bool ends;
    exo_status status; /* of the thread, after its end */
} cuda_recorder;

/* Opens a device of its own on that GPU, whose steps are graphs from now on. */
void cuda_recorder_start(cuda_recorder *recorder, int gpu);
/* Whether enough passes were recorded. What must not happen meanwhile is to go on until then: a thread may
 * get little of a busy processor. */
bool cuda_recorder_has_enough(void);
/* Fails the test if something was not recorded, or not enough. */
void cuda_recorder_stop(cuda_recorder *recorder);

#endif
