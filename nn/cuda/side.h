/* A stream beside that of a device, for work of others than the device's kernels, such as NCCL's; and
 * marks in it. For C: no type of CUDA stands here.
 *
 * Owner: the thread of the device. Read next: side.cu. */
#ifndef EXO_CUDA_SIDE_H
#define EXO_CUDA_SIDE_H

#include <exogym/device.h>

EXO_DECLS_BEGIN

typedef struct exo_cuda_side exo_cuda_side;
typedef struct exo_cuda_mark exo_cuda_mark;

/* Opens a side of a device `cuda`. After the device is closed, only what ends the side is asked of it.
 * Errors: UNSUPPORTED (another device), NOMEM, FAILED. */
exo_status exo_cuda_side_open(exo_cuda_side **out, exo_device *device, exo_err *err);
/* Does not wait for the side's work, whose memory stays with its owner until it is done. Sets *side to
 * NULL; accepts NULL in it. */
void exo_cuda_side_close(exo_cuda_side **side);
/* Makes the side's GPU that of the calling thread. */
exo_status exo_cuda_side_select(const exo_cuda_side *side, exo_err *err);
/* The ordinal of its GPU; -1 for NULL. */
int exo_cuda_side_ordinal(const exo_cuda_side *side);
/* The stream: a cudaStream_t. */
void *exo_cuda_side_stream(exo_cuda_side *side);
/* Until exo_cuda_allow_recordings nothing is recorded as a CUDA graph on the GPU of this ordinal, since CUDA
 * forbids to wait for a GPU meanwhile. Waits until what is recorded now has been, which takes no GPU. Any
 * thread; several may forbid it at a time. */
void exo_cuda_forbid_recordings(int gpu);
void exo_cuda_allow_recordings(int gpu);
/* What the side is asked from now on begins after what the device has been asked before. */
exo_status exo_cuda_side_follow(exo_cuda_side *side, exo_err *err);

/* The caller frees the mark before the side is closed. */
exo_status exo_cuda_mark_new(exo_cuda_mark **out, exo_cuda_side *side, exo_err *err);
void exo_cuda_mark_free(exo_cuda_mark *mark); /* accepts NULL */
/* Puts the mark behind what the side has been asked. */
exo_status exo_cuda_mark_put(exo_cuda_mark *mark, exo_cuda_side *side, exo_err *err);
/* Says without waiting whether the work before the mark is done. Errors: the GPU's. */
exo_status exo_cuda_mark_reached(exo_cuda_mark *mark, bool *reached, exo_err *err);

EXO_DECLS_END

#endif
