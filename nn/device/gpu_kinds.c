/* The devices `cuda`, `auto` and `mps`, by name. What computes on a GPU is in the plugin
 * exogym-cuda.so, which is loaded when one of them is opened. No state. Read next: cuda_plugin.h. */
#include <stdlib.h>
#include <string.h>

#include "base/own_plugin.h"
#include "nn/device/cuda_plugin.h"
#include "nn/device/device_impl.h"
#include "nn/device/gpu_kinds.h"

exo_status
exo_cuda_load(const exo_cuda_calls **out, exo_err *err)
{
    const void *found = NULL;
    exo_err reason = {0};
    exo_status st = exo_own_plugin_load("exogym-cuda.so", EXO_CUDA_CALLS_SYMBOL, &found, &reason);
    *out = found;
    if (st == EXO_NOT_FOUND)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "this exogym was built without CUDA: there is no exogym-cuda.so; build it "
                        "again where there are nvcc and cuBLASLt of CUDA 13, or set device: cpu");
    if (st == EXO_INVAL) /* a library that it needs is missing */
        return exo_fail(err, EXO_UNSUPPORTED,
                        "%s: install CUDA 13 with cuBLASLt, name the folder of its libraries in "
                        "LD_LIBRARY_PATH, or set device: cpu",
                        reason.text);
    if (st == EXO_OK && (!*out || (*out)->bytes != EXO_CUDA_BYTES))
        return exo_fail(err, EXO_INVAL, "exogym-cuda.so is of another version: build it again");
    return st == EXO_OK ? st : exo_fail(err, st, "%s", reason.text);
}

/* which: the number behind "cuda:". NULL: nodes take the GPUs of a process in turn. */
static exo_status
open_cuda(exo_device **out, const char *which, uint32_t place, exo_err *err)
{
    const exo_cuda_calls *calls = NULL;
    exo_status st = exo_cuda_load(&calls, err);
    if (st != EXO_OK)
        return st;
    const int count = calls->count();
    return calls->open(out,
                       which       ? atoi(which)
                       : count > 0 ? (int)(place % (uint32_t)count)
                                   : 0,
                       err);
}

bool
exo_device_is_one_gpu(const char *name)
{
    const exo_cuda_calls *calls = NULL;
    if (strncmp(name, "cuda", 4) != 0 || (name[4] != ':' && name[4] != '\0'))
        return false;
    return name[4] == ':' || (exo_cuda_load(&calls, NULL) == EXO_OK && calls->count() == 1);
}

static void
close_cuda(exo_device *device)
{
    const exo_cuda_calls *calls = NULL;
    if (exo_cuda_load(&calls, NULL) == EXO_OK)
        calls->close(device);
}

static exo_status
open_auto(exo_device **out, const char *which, uint32_t place, exo_err *err)
{
    exo_status st = open_cuda(out, which, place, err);
    if (st != EXO_UNSUPPORTED)
        return st; /* a GPU that is there and does not work is an error */
    const exo_device_kind *cpu = exo_registry_find(&exo_device_registry, "cpu");
    return cpu->open(out, NULL, place, err);
}

static exo_status
open_mps(exo_device **out, const char *which, uint32_t place, exo_err *err)
{
    (void)out;
    (void)which;
    (void)place;
    return exo_fail(err, EXO_UNSUPPORTED,
                    "device mps: Apple's GPUs are not supported; there are cpu, cuda (NVIDIA) and "
                    "auto");
}

const exo_device_kind exo_cuda_device_kind = {
    .name = "cuda",
    .help = "an NVIDIA GPU: nodes take those that the process sees in turn, or cuda:0, cuda:1 ...",
    .numbered = true,
    .open = open_cuda,
    .close = close_cuda};
const exo_device_kind exo_auto_device_kind = {
    .name = "auto", .help = "cuda where there is a GPU, else cpu", .open = open_auto};
const exo_device_kind exo_mps_device_kind = {
    .name = "mps", .help = "not supported: Apple's GPUs", .open = open_mps};
