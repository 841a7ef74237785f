/* Who records passes on a GPU (graphs.h), and who keeps it from that (side.h). Nobody may wait for a GPU
 * on which something is recorded, on whatever thread: see "prohibited and unhandled operations" of
 * captures, https://docs.nvidia.com/cuda/cuda-c-programming-guide/. State: the counts, under a lock. */
#include "nn/cuda/graphs.h"

#include <pthread.h>

#include <exogym/log.h>

#include "nn/cuda/side.h"

static pthread_mutex_t recorders_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t none_records = PTHREAD_COND_INITIALIZER;
static struct {
    unsigned recordings, keepers;
} recorders[EXO_CUDA_COUNTED_GPUS]; /* guarded; later GPUs share them */

static size_t
place_of(int ordinal)
{
    return static_cast<size_t>(ordinal) % EXO_CUDA_COUNTED_GPUS;
}

bool
exo_cuda_may_record(const exo_cuda_device *cuda)
{
    return cuda->refused_graphs < EXO_CUDA_REFUSALS;
}

bool
exo_cuda_begin_recording(const exo_cuda_device *cuda)
{
    const size_t at = place_of(cuda->ordinal);
    pthread_mutex_lock(&recorders_lock);
    const bool may = recorders[at].keepers == 0;
    recorders[at].recordings += may;
    pthread_mutex_unlock(&recorders_lock);
    return may;
}

void
exo_cuda_end_recording(const exo_cuda_device *cuda)
{
    pthread_mutex_lock(&recorders_lock);
    if (--recorders[place_of(cuda->ordinal)].recordings == 0)
        pthread_cond_broadcast(&none_records);
    pthread_mutex_unlock(&recorders_lock);
}

void
exo_cuda_refused_graph(exo_cuda_device *cuda, const exo_err *reason)
{
    cuda->refused_graphs++;
    EXO_LOG(
        WARN, CUDA,
        "event=no_graph gpu=%d refused=%u most=%d reason=\"%s\" msg=\"its kernels were started one "
        "by one%s\"",
        cuda->ordinal, cuda->refused_graphs, EXO_CUDA_REFUSALS, reason->text,
        exo_cuda_may_record(cuda) ? "" : ", and this device records no more");
}

void
exo_cuda_forbid_recordings(int gpu)
{
    const size_t at = place_of(gpu);
    pthread_mutex_lock(&recorders_lock);
    recorders[at].keepers++;
    while (recorders[at].recordings > 0)
        pthread_cond_wait(&none_records, &recorders_lock);
    pthread_mutex_unlock(&recorders_lock);
}

void
exo_cuda_allow_recordings(int gpu)
{
    pthread_mutex_lock(&recorders_lock);
    recorders[place_of(gpu)].keepers--;
    pthread_mutex_unlock(&recorders_lock);
}
