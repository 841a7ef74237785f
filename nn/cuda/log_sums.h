/* The log-sums of rows of logits, as generation needs them. Read next: log_sums.cu. */
#ifndef EXO_CUDA_LOG_SUMS_H
#define EXO_CUDA_LOG_SUMS_H

#include "nn/cuda/device.h"
#include "nn/cuda/log_sum.h"

typedef struct exo_cuda_log_sums_args {
    size_t rows, vocabulary, pitch;
    const float *logits;     /* (rows, pitch) */
    const float *scales;     /* (rows) */
    exo_cuda_row_sums *room; /* (rows, exo_cuda_log_sums_room) */
    float *log_sums;         /* (2, rows): of the logits, then of the scaled ones */
} exo_cuda_log_sums_args;

/* Sums of a row that are to be kept between launches. */
size_t exo_cuda_log_sums_room(size_t vocabulary);
/* Starts the kernels; a failure shows in exo_cuda_launched. */
void exo_cuda_log_sums(exo_cuda_device *cuda, const exo_cuda_log_sums_args *args);

#endif
