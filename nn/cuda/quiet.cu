/* Who may wait for a whole GPU: see quiet.h. State: the counts and what waits, under a lock, which nobody
 * holds while a GPU is waited for. */
#include "nn/cuda/quiet.h"

#include <pthread.h>

#include <exogym/ipc.h>
#include <exogym/memory.h>

#include "nn/cuda/device.h"
#include "nn/cuda/side.h"

/* What is done when the GPU is quiet. */
struct errand {
    struct errand *next;
    void (*act)(void *what);
    void *what;
};

static pthread_mutex_t quiet_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    unsigned calls, waits;
    bool refused; /* a wait, since the last call ended */
    errand *errands;
} gpus[EXO_CUDA_COUNTED_GPUS]; /* guarded; later GPUs share them */

static size_t
place_of(int gpu)
{
    return static_cast<size_t>(gpu) % EXO_CUDA_COUNTED_GPUS;
}

bool
exo_cuda_call_begin(int gpu)
{
    auto &g = gpus[place_of(gpu)];
    pthread_mutex_lock(&quiet_lock);
    const bool may = g.waits == 0;
    g.calls += may;
    pthread_mutex_unlock(&quiet_lock);
    return may;
}

bool
exo_cuda_quiet_begin(int gpu)
{
    auto &g = gpus[place_of(gpu)];
    pthread_mutex_lock(&quiet_lock);
    const bool may = g.calls == 0;
    g.waits += may;
    g.refused = g.refused || !may;
    pthread_mutex_unlock(&quiet_lock);
    return may;
}

void
exo_cuda_quiet_end(int gpu)
{
    pthread_mutex_lock(&quiet_lock);
    gpus[place_of(gpu)].waits--;
    pthread_mutex_unlock(&quiet_lock);
}

/* Does what waits, unless another call has begun. */
static void
run_errands(int gpu)
{
    auto &g = gpus[place_of(gpu)];
    errand *first = NULL;
    if (!exo_cuda_quiet_begin(gpu))
        return;
    pthread_mutex_lock(&quiet_lock);
    first = g.errands;
    g.errands = NULL;
    pthread_mutex_unlock(&quiet_lock);
    exo_cuda_forbid_recordings(gpu); /* nobody may wait for the GPU meanwhile */
    for (errand *next; first; first = next) {
        next = first->next;
        if (cudaSetDevice(gpu) == cudaSuccess)
            first->act(first->what);
        (void)cudaGetLastError();
        exo_free(first);
    }
    exo_cuda_allow_recordings(gpu);
    exo_cuda_quiet_end(gpu);
}

void
exo_cuda_call_end(int gpu)
{
    auto &g = gpus[place_of(gpu)];
    pthread_mutex_lock(&quiet_lock);
    const bool due = --g.calls == 0 && g.refused;
    if (due)
        g.refused = false;
    pthread_mutex_unlock(&quiet_lock);
    if (!due)
        return;
    run_errands(gpu);
    (void)exo_ipc_array_count(); /* frees the arrays that nobody holds, on whatever GPU */
    (void)cudaSetDevice(gpu);
}

void
exo_cuda_when_quiet(int gpu, void (*act)(void *what), void *what)
{
    auto &g = gpus[place_of(gpu)];
    errand *e = static_cast<errand *>(exo_calloc(1, sizeof *e));
    if (!e)
        return;
    *e = {NULL, act, what};
    pthread_mutex_lock(&quiet_lock);
    errand **last = &g.errands;
    while (*last)
        last = &(*last)->next;
    *last = e;
    pthread_mutex_unlock(&quiet_lock);
    run_errands(gpu);
}
