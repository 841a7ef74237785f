/* The table of kernels of a GPU. A kernel of EXO_KERNELS that this folder lacks does not link. No
 * state that changes. */
#include "nn/cuda/kernels.h"

/* Each entry makes the device's GPU that of the thread, then asks for the kernel. */
#define ENTRY(name)                                                                                \
    static exo_status run_##name(exo_device *device, const exo_##name##_args *k, exo_err *err)     \
    {                                                                                              \
        exo_status st = exo_cuda_status(exo_cuda_select(exo_cuda_of(device)), #name, err);         \
        return st == EXO_OK ? exo_cuda_##name(device, k, err) : st;                                \
    }
EXO_KERNELS(ENTRY)
#undef ENTRY

const exo_kernels exo_cuda_kernels = {
#define FIELD(name) run_##name,
    EXO_KERNELS(FIELD)
#undef FIELD
};
