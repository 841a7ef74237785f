/* Fields of arguments that change from step to step, such as a learning rate, or the step that
 * dropout draws for. Kernels of a graph read them from cells on the device, so that a list of
 * requests (sections.h) that differs from one before in nothing else is the same graph:
 *
 *     stream:  ... graph of the list before | write the cells | graph of this list | ...
 *
 * The cells are written by a kernel that has them among its own arguments. So the host keeps and
 * waits for nothing, and a graph that is under way has read its cells before they change. A request
 * that is started by itself has the field in its arguments, as everywhere else.
 *
 * No state. Read next: sections.cu. */
#ifndef EXO_CUDA_LATE_H
#define EXO_CUDA_LATE_H

#include "nn/cuda/device.h"

enum {
    EXO_CUDA_CELLS = 1024,    /* of a device; fields beyond them are like all others */
    EXO_CUDA_CELL_BYTES = 16, /* room for any of the fields */
    EXO_CUDA_LATE_COPY = 1024 /* bytes of a copy whose addresses may change, at most */
};

/* X(kernel, its field) */
#define EXO_CUDA_LATE_FIELDS(X)                                                                    \
    X(scale, a)                                                                                    \
    X(axpy, a)                                                                                     \
    X(adam, now)                                                                                   \
    X(sgd, now)                                                                                    \
    X(rmsprop, now)                                                                                \
    X(adagrad, now)                                                                                \
    X(dropout_draw, step)                                                                          \
    X(attention, drop.step)                                                                        \
    X(attention_backward, drop.step)

typedef struct alignas(16) exo_cuda_cell {
    unsigned char bytes[EXO_CUDA_CELL_BYTES];
} exo_cuda_cell;

enum {
    EXO_CUDA_CELLS_AT_ONCE = 240 /* the arguments of a kernel have 4 KiB at most */
};

typedef struct exo_cuda_cells {
    size_t first, count;
    exo_cuda_cell cell[EXO_CUDA_CELLS_AT_ONCE];
} exo_cuda_cells;

/* A copy on the device. */
typedef struct exo_cuda_copy_ends {
    void *to;
    const void *from;
} exo_cuda_copy_ends;

typedef struct exo_cuda_copy_args {
    exo_cuda_copy_ends ends; /* late, if there are few bytes */
    size_t bytes;
} exo_cuda_copy_args;

/* Where the kernels of the request that is recorded now find its field, which is a T. NULL: in their
 * arguments. */
template <typename T>
static inline const T *
exo_cuda_late(const exo_device *device)
{
    return static_cast<const T *>(reinterpret_cast<const exo_cuda_device *>(device)->late);
}

/* Writes cells [first, first + count) of the device's, on its stream. */
exo_status exo_cuda_write_cells(exo_cuda_device *cuda, exo_cuda_cell *all,
                                const exo_cuda_cells *cells, exo_err *err);
/* Writes up to EXO_CUDA_LATE_COPY bytes of the host by a kernel that has them among its arguments: they
 * are the caller's again at the return, and no copy beside the stream is waited for. */
exo_status exo_cuda_write_bytes(exo_cuda_device *cuda, void *to, const void *from, size_t bytes,
                                exo_err *err);
/* Copies few bytes by a kernel, which finds late addresses. */
exo_status exo_cuda_copy_late(exo_cuda_device *cuda, const exo_cuda_copy_args *k, exo_err *err);

#endif
