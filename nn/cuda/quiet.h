/* Waits for a whole GPU. Some functions of CUDA and of its libraries wait for all work of a GPU, without a
 * deadline: cudaFree, cudaIpcCloseMemHandle, cudaFreeHost, and the ends of handles of cuBLASLt, cuDNN and
 * NCCL. A call of NCCL waits on the GPU for other members; if one has died, only a thread of this process ends
 * the call, at the latest at the deadline of its request. That thread may be the one that waits for the GPU. So
 * nobody waits for a GPU with such a call under way: what is to be freed is kept until the GPU is quiet.
 *
 *     exo_cuda_call_begin        no wait begins until exo_cuda_call_end
 *     exo_cuda_quiet_begin       no call begins until exo_cuda_quiet_end, which other work on the GPU
 *                                cannot hold up for long
 *
 * Both refuse instead of waiting for each other. Work of exogym's own kernels ends by itself, so a wait for
 * one stream is none of this file. For C: no type of CUDA stands here.
 *
 * Any thread. State: the counts of each GPU, under a lock. Read next: quiet.cu. */
#ifndef EXO_CUDA_QUIET_H
#define EXO_CUDA_QUIET_H

#include <stdbool.h>

#include <exogym/status.h>

EXO_DECLS_BEGIN

/* A call that waits for others begins on the GPU of this ordinal. False: somebody waits for the whole GPU,
 * which takes a moment: the caller tries again. */
bool exo_cuda_call_begin(int gpu);
/* It has ended on the GPU. If something was refused meanwhile, it is freed now: the caller holds no lock. */
void exo_cuda_call_end(int gpu);

/* Whether the whole GPU may be waited for. True: the caller calls exo_cuda_quiet_end. */
bool exo_cuda_quiet_begin(int gpu);
void exo_cuda_quiet_end(int gpu);
/* Calls `act` when the GPU is quiet, at once or at the end of a call, for the GPU of the thread. What waits at
 * the end of the process, or finds no memory to wait, is left to the driver. */
void exo_cuda_when_quiet(int gpu, void (*act)(void *what), void *what);

EXO_DECLS_END

#endif
