/* The CPU as a device: its memory is the host's, and a kernel is complete when its call returns.
 * No state. Read next: cpu_device.h. */
#include "nn/cpu/cpu_device.h"

#include <string.h>

#include <exogym/memory.h>

#include "base/memory_limits.h"
#include "base/parallel.h"
#include "nn/cpu/cpu_kind.h"
#include "nn/cpu/plans.h"
#include "store/region.h"

static exo_status
cpu_alloc(exo_device *device, size_t bytes, void **out, exo_err *err)
{
    (void)device;
    *out = exo_region_alloc(bytes);
    if (!*out)
        *out = exo_alloc_aligned(bytes);
    return *out ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for an array of %zu bytes", bytes);
}

static void
cpu_free(exo_device *device, void *memory, size_t bytes)
{
    (void)device;
    if (bytes < EXO_REGION_LEAST || !exo_region_free(memory))
        exo_free(memory);
}

struct copy {
    char *to;
    const char *from;
    size_t bytes;
};

enum {
    COPY_PIECE = EXO_CPU_PIECE * sizeof(float)
};

static void
copy_piece(void *context, size_t piece)
{
    const struct copy *c = context;
    size_t first = piece * COPY_PIECE, left = c->bytes - first;
    memcpy(c->to + first, c->from + first, left < COPY_PIECE ? left : COPY_PIECE);
}

static exo_status
cpu_copy(exo_device *device, void *to, const void *from, size_t bytes, exo_copy_kind kind,
         exo_err *err)
{
    struct copy c = {.to = to, .from = from, .bytes = bytes};
    (void)device;
    (void)kind;
    (void)err;
    exo_parallel_for((bytes + COPY_PIECE - 1) / COPY_PIECE, copy_piece, &c);
    return EXO_OK;
}

static exo_status
cpu_synchronize(exo_device *device, exo_err *err)
{
    (void)device;
    (void)err;
    return EXO_OK;
}

static uint64_t
cpu_free_memory(const exo_device *device)
{
    (void)device;
    return exo_free_memory();
}

static const exo_kernels cpu_kernels = {
#define CPU_KERNEL(name) .name = exo_cpu_##name,
    EXO_KERNELS(CPU_KERNEL)
#undef CPU_KERNEL
};

static const exo_device_class cpu_class = {
    .name = "cpu",
    .is_host = true,
    .invariant = true,
    .parts = true,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .pages_reserve = exo_host_pages_reserve,
    .pages_open = exo_host_pages_open,
    .pages_close = exo_host_pages_close,
    .pages_free = exo_host_pages_free,
    .copy = cpu_copy,
    .synchronize = cpu_synchronize,
    .kernels = &cpu_kernels,
    .plan_new = exo_cpu_plan_new,
    .plan_free = exo_cpu_plan_free,
    .scratch = exo_cpu_scratch,
    .free_memory = cpu_free_memory,
};

exo_device *
exo_device_cpu(void)
{
    static exo_device cpu = {.device_class = &cpu_class}; /* never written */
    return &cpu;
}

static exo_status
open_cpu(exo_device **out, const char *which, uint32_t place, exo_err *err)
{
    (void)which;
    (void)place;
    (void)err;
    *out = exo_device_cpu();
    return EXO_OK;
}

const exo_device_kind exo_cpu_device_kind = {
    .name = "cpu", .help = "the processor of this host, and its memory", .open = open_cpu};

exo_array
exo_host_array(exo_dtype dtype, void *data, size_t count)
{
    return (exo_array){.device = exo_device_cpu(), .data = data, .count = count, .dtype = dtype};
}
