/* Errors of the emulated runtime: which one a call has, their names and texts, and calls that must not
 * be made. No state of its own. Read next: state.h. */
#include "cuda/state.h"

#include <stdio.h>
#include <stdlib.h>

using namespace emulated;

cudaError_t
emulated::say(cudaError_t error)
{
    if (error != cudaSuccess)
        last = error;
    return error;
}

/* A thread that has chosen no GPU would open a context on the first one, which takes hundreds of MiB of
 * it, by almost any call. */
void
emulated::expect_chosen(void)
{
    if (!chosen) {
        fprintf(stderr, "cuda: a call of a thread that has chosen no GPU\n");
        abort();
    }
}

cudaError_t
emulated::begin(void)
{
    calls++;
    if (fail_call > 0 && --fail_call == 0)
        return say(cudaErrorInvalidValue);
    return say(broken);
}

cudaError_t
cudaGetLastError(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    const cudaError_t error = last != cudaSuccess ? last : broken;
    last = cudaSuccess;
    return error;
}

cudaError_t
cudaPeekAtLastError(void)
{
    const std::lock_guard<std::mutex> guard(lock);
    return last != cudaSuccess ? last : broken;
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorDeviceUninitialized, "cudaErrorDeviceUninitialized", "invalid device context"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorGraphExecUpdateFailure, "cudaErrorGraphExecUpdateFailure",
     "the graph update was not performed because it included changes which violated constraints "
     "specific to instantiated graph update"},
};

const char *
cudaGetErrorString(cudaError_t error)
{
    for (const auto &t : texts)
        if (t.error == error)
            return t.text;
    return "unknown error";
}

const char *
cudaGetErrorName(cudaError_t error)
{
    for (const auto &t : texts)
        if (t.error == error)
            return t.name;
    return "unknown";
}
