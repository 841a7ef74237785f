/* Launches for tests in C: see call.h. No state beyond a call's. */
#include "ptx/call.h"

#include <stdio.h>

#include "ptx/run.h"

static thread_local ptx::range only;

static ptx::range
find(uintptr_t at)
{
    return at - only.first < only.end - only.first ? only : ptx::range();
}

bool
ptx_call_run(const ptx_call *call, char fault[PTX_FAULT_TEXT])
{
    const uintptr_t memory = reinterpret_cast<uintptr_t>(call->memory);
    unsigned char parameters[sizeof memory];
    memcpy(parameters, &memory, sizeof memory);
    only = {memory, memory + call->bytes};
    fault[0] = 0;
    try {
        const auto code = ptx::parse(call->text);
        const ptx::kernel *const k = &code->kernels.at(call->kernel);
        if (k->parameter_bytes != sizeof parameters)
            throw ptx::fault("the kernel has other parameters than an address");
        ptx::device_memory watched;
        memset(static_cast<char *>(call->memory) + call->bytes - call->fresh, 0xFF, call->fresh);
        watched.made(only.end - call->fresh, call->fresh);
        ptx::run_grid({k,
                       {call->blocks, 1, 1},
                       {call->threads, 1, 1},
                       call->shared,
                       parameters,
                       find,
                       call->seed,
                       call->seed != 0,
                       &watched});
        return true;
    } catch (const std::exception &e) {
        snprintf(fault, PTX_FAULT_TEXT, "%s", e.what());
        return false;
    }
}
