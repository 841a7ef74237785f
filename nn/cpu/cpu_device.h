/* The CPU's kernels, and their division into pieces. Each file of nn/cpu has a part of the table.
 * Private to nn/cpu. No state. Read next: cpu_device.c, which has the table. */
#ifndef EXO_CPU_DEVICE_H
#define EXO_CPU_DEVICE_H

#include "nn/device/device_impl.h"

enum {
    EXO_CPU_PIECE = 1 << 15 /* elements; five such buffers fit into the second-level cache */
};

/* Runs piece(args, i) for all pieces of `count` elements, on the compute threads, and blocks until
 * they are done. */
exo_status exo_cpu_sweep(size_t count, void (*piece)(void *args, size_t index), const void *args);

/* Sets *first and *end to the elements [*first, *end) of piece `index`. */
static inline void
exo_cpu_piece(size_t count, size_t index, size_t *first, size_t *end)
{
    *first = index * EXO_CPU_PIECE;
    *end = count - *first < EXO_CPU_PIECE ? count : *first + EXO_CPU_PIECE;
}

#define EXO_CPU_KERNEL(name)                                                                       \
    exo_status exo_cpu_##name(exo_device *device, const exo_##name##_args *args, exo_err *err);
EXO_KERNELS(EXO_CPU_KERNEL)
#undef EXO_CPU_KERNEL

#endif
