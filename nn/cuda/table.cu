/* The table of kernels of a GPU. A kernel of EXO_KERNELS that this folder lacks does not link. No
 * state that changes. */
#include "nn/cuda/kernels.h"
#include "nn/cuda/sections.h"

/* Makes bytes that are of no field zero, so that equal arguments are equal bytes. Where the compiler
 * cannot, passes are recorded more often. */
template <typename Args>
static void
clear_padding(Args *args)
{
#ifdef __has_builtin
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(args);
#endif
#endif
    (void)args;
}

/* Puts the kernel off, or makes the device's GPU that of the thread and asks for it. */
template <typename Args>
static exo_status
ask(exo_device *device, exo_cuda_request request, const Args *k,
    exo_status (*kernel)(exo_device *device, const Args *k, exo_err *err), const char *name,
    exo_err *err)
{
    exo_cuda_device *cuda = exo_cuda_of(device);
    if (cuda->sections) {
        Args args = *k;
        bool taken = false;
        clear_padding(&args);
        const exo_status st = exo_cuda_put_off(cuda, request, &args, sizeof args, &taken, err);
        if (st != EXO_OK || taken)
            return st;
    }
    const exo_status st = exo_cuda_status(exo_cuda_select(cuda), name, err);
    return st == EXO_OK ? kernel(device, k, err) : st;
}

#define ENTRY(name)                                                                                \
    static exo_status run_##name(exo_device *device, const exo_##name##_args *k, exo_err *err)     \
    {                                                                                              \
        return ask(device, EXO_CUDA_REQUEST_##name, k, exo_cuda_##name, #name, err);               \
    }
EXO_KERNELS(ENTRY)
#undef ENTRY

const exo_kernels exo_cuda_kernels = {
#define FIELD(name) run_##name,
    EXO_KERNELS(FIELD)
#undef FIELD
};
