/* The parts of the CPU's table of kernels, one a file. Private to nn/cpu. Next: cpu_device.c, which puts them together. */
#ifndef EXO_CPU_DEVICE_H
#define EXO_CPU_DEVICE_H

#include "nn/device/device_impl.h"

enum {
    EXO_CPU_PIECE = 1 << 15 /* elements of a sweep: five buffers of it fit the second-level cache */
};

/* Runs piece(args, i) for as many pieces as cover `count` elements. */
exo_status exo_cpu_sweep(size_t count, void (*piece)(void *args, size_t index), const void *args);

/* Elements [*first, *end) of piece `index`. */
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
