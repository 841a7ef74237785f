/* The device: its life, copies, and the end of its work. State: exo_cuda_device. Read next: memory.h,
 * table.cu. */
#include "nn/cuda/device.h"

#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

extern "C" {
#include "nn/device/cuda_plugin.h"
}

#include "nn/cuda/choose.h"
#include "nn/cuda/cudnn.h"
#include "nn/cuda/kernels.h"
#include "nn/cuda/matmul.h"
#include "nn/cuda/memory.h"
#include "nn/cuda/own_bytes.h"
#include "nn/cuda/pages.h"
#include "nn/cuda/partials.h"
#include "nn/cuda/quiet.h"
#include "nn/cuda/sections.h"
#include "nn/cuda/share.h"
#include "nn/cuda/side.h"

enum {
    LEAST_CAPABILITY = 80,                                    /* that mma.h compiles for */
    PARTIALS_BYTES = (EXO_CUDA_PARTIALS + 1) * sizeof(double) /* the last one is device.scalar */
};

exo_status
exo_cuda_status(cudaError_t error, const char *what, exo_err *err)
{
    if (error == cudaSuccess)
        return EXO_OK;
    (void)cudaGetLastError(); /* the next kernel of this thread does not report it again */
    return exo_fail(err, error == cudaErrorMemoryAllocation ? EXO_NOMEM : EXO_FAILED,
                    "%s on a GPU: %s (%s)", what, cudaGetErrorString(error),
                    cudaGetErrorName(error));
}

exo_status
exo_cuda_launched(const char *kernel, exo_err *err)
{
    return exo_cuda_status(cudaGetLastError(), kernel, err);
}

cudaError_t
exo_cuda_select(const exo_cuda_device *cuda)
{
    return cudaSetDevice(cuda->ordinal);
}

/* Copies what another GPU has, of which kernels here know nothing (exo_ipc_array_open). A copy that names
 * no GPUs is refused for memory of a pool (https://github.com/fwyzard/nvidia_bug_3446335). */
static exo_status
copy_between(exo_cuda_device *cuda, void *to, const void *from, int owner, size_t bytes,
             exo_err *err)
{
    const exo_status st = exo_cuda_catch_up(cuda, err);
    return st != EXO_OK ? st
                        : exo_cuda_status(cudaMemcpyPeerAsync(to, cuda->ordinal, from, owner, bytes,
                                                              cuda->stream),
                                          "a copy between GPUs", err);
}

/* Copies on the device, in the order of its work. */
static exo_status
copy_on_device(exo_cuda_device *cuda, void *to, const void *from, size_t bytes, bool *taken,
               exo_err *err)
{
    const exo_cuda_copy_args args = {{to, from}, bytes};
    const exo_status st =
        exo_cuda_put_off(cuda, EXO_CUDA_REQUEST_COPY, &args, sizeof args, taken, err);
    return st != EXO_OK || *taken
               ? st
               : exo_cuda_status(
                     cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda->stream),
                     "a copy", err);
}

/* Records that the stream is done with a slot. If that fails, it waits until it is: the next user of the
 * slot would wait for what was recorded before. */
static cudaError_t
leave_slot(cudaEvent_t event, cudaStream_t stream)
{
    const cudaError_t error = cudaEventRecord(event, stream);
    if (error != cudaSuccess)
        (void)cudaStreamSynchronize(stream);
    return error;
}

/* Sends a piece that lies in a slot: it lands beside the work of the stream. If the way from there is
 * put off, so are the events around it. */
static exo_status
land(exo_cuda_device *cuda, exo_cuda_slot *slot, char *to, size_t bytes, exo_err *err)
{
    cudaError_t error = cudaStreamWaitEvent(cuda->copies, slot->taken, 0);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(slot->landing, slot->memory, bytes, cudaMemcpyHostToDevice,
                                cuda->copies);
    if (error == cudaSuccess)
        error = leave_slot(slot->free, cuda->copies);
    slot->used = true;
    exo_status st = exo_cuda_status(error, "a copy", err);
    if (st != EXO_OK)
        return st;
    const bool waits = !exo_cuda_puts_off(cuda);
    if (waits)
        st = exo_cuda_status(cudaStreamWaitEvent(cuda->stream, slot->free, 0), "a copy", err);
    if (st == EXO_OK)
        st = copy_on_device(cuda, to, slot->landing, bytes, &slot->lands, err);
    if (st == EXO_OK && waits)
        st = exo_cuda_status(leave_slot(slot->taken, cuda->stream), "a copy", err);
    return st;
}

/* Sends few bytes, such as the tokens of a step of generation, by one launch in place of seven calls. */
static exo_status
send_few(exo_cuda_device *cuda, void *to, const void *from, size_t bytes, exo_err *err)
{
    const exo_status st = exo_cuda_catch_up(cuda, err);
    return st == EXO_OK ? exo_cuda_write_bytes(cuda, to, from, bytes, err) : st;
}

/* Copies from the host through pinned memory, piece by piece, so that the caller's memory is free at
 * the return. The host waits only if all slots are full: it is ahead of the device by as much. */
static exo_status
send(exo_cuda_device *cuda, char *to, const char *from, size_t bytes, exo_err *err)
{
    exo_status st = EXO_OK;
    while (bytes > 0 && st == EXO_OK) {
        exo_cuda_slot *slot = &cuda->slots[cuda->next_slot];
        const size_t room = EXO_CUDA_SLOT_BYTES, piece = bytes < room ? bytes : room;
        if (slot->lands)
            st = exo_cuda_catch_up(cuda, err);
        if (st == EXO_OK && slot->used)
            st = exo_cuda_status(cudaEventSynchronize(slot->free), "a copy", err);
        if (st != EXO_OK)
            break;
        memcpy(slot->memory, from, piece);
        st = land(cuda, slot, to, piece, err);
        cuda->next_slot = (cuda->next_slot + 1) % EXO_CUDA_SLOTS;
        to += piece;
        from += piece;
        bytes -= piece;
    }
    return st;
}

/* Takes a piece that has arrived in a slot out of it. */
static cudaError_t
take(exo_cuda_slot *slot, char *to, size_t bytes)
{
    const cudaError_t error = cudaEventSynchronize(slot->free);
    if (error == cudaSuccess)
        memcpy(to, slot->memory, bytes);
    return error;
}

/* Copies to the host through pinned memory: while a piece is taken out of its slot, the next ones are
 * on their way. The driver would do the same for memory that is not pinned, one piece at a time. */
static cudaError_t
receive(exo_cuda_device *cuda, char *to, const char *from, size_t bytes)
{
    const size_t room = EXO_CUDA_SLOT_BYTES, pieces = (bytes + room - 1) / room;
    const size_t ahead = EXO_CUDA_SLOTS - 1, slot_of_first = cuda->next_slot;
    cudaError_t error = cudaSuccess;
    for (size_t p = 0; p < pieces + ahead && error == cudaSuccess; p++) {
        if (p >= ahead) { /* the slot that is used next but `ahead` */
            const size_t at = p - ahead, left = bytes - at * room;
            error = take(&cuda->slots[(slot_of_first + at) % EXO_CUDA_SLOTS], to + at * room,
                         left < room ? left : room);
        }
        if (p >= pieces || error != cudaSuccess)
            continue;
        exo_cuda_slot *slot = &cuda->slots[(slot_of_first + p) % EXO_CUDA_SLOTS];
        const size_t left = bytes - p * room;
        /* in the order of the stream behind a copy from the host that may still use the slot */
        error = cudaMemcpyAsync(slot->memory, from + p * room, left < room ? left : room,
                                cudaMemcpyDeviceToHost, cuda->stream);
        if (error == cudaSuccess)
            error = leave_slot(slot->free, cuda->stream);
        slot->used = true;
    }
    return error;
}

static exo_status
cuda_copy(exo_device *device, void *to, const void *from, size_t bytes, exo_copy_kind kind,
          exo_err *err)
{
    exo_cuda_device *cuda = exo_cuda_of(device);
    bool put_off = false;
    int owner = 0;
    exo_status st = exo_cuda_status(exo_cuda_select(cuda), "a copy", err);
    if (st != EXO_OK || bytes == 0)
        return st;
    switch (kind) {
    case EXO_COPY_TO_DEVICE:
        if (bytes <= EXO_CUDA_LATE_COPY && !exo_cuda_puts_off(cuda))
            return send_few(cuda, to, from, bytes, err);
        return send(cuda, static_cast<char *>(to), static_cast<const char *>(from), bytes, err);
    case EXO_COPY_FROM_DEVICE:
        st = exo_cuda_catch_up(cuda, err);
        return st != EXO_OK ? st
                            : exo_cuda_status(receive(cuda, static_cast<char *>(to),
                                                      static_cast<const char *>(from), bytes),
                                              "a copy", err);
    case EXO_COPY_ON_DEVICE:
        owner = exo_cuda_share_owner(from, cuda->ordinal);
        return owner == cuda->ordinal ? copy_on_device(cuda, to, from, bytes, &put_off, err)
                                      : copy_between(cuda, to, from, owner, bytes, err);
    }
    return EXO_OK;
}

static exo_status
cuda_synchronize(exo_device *device, exo_err *err)
{
    exo_cuda_device *cuda = exo_cuda_of(device);
    const exo_status st = exo_cuda_catch_up(cuda, err);
    cudaError_t error = exo_cuda_select(cuda);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(cuda->stream);
    return st == EXO_OK ? exo_cuda_status(error, "work", err) : st;
}

static exo_status
cuda_check_fp8(const exo_device *device, exo_err *err)
{
    const exo_cuda_device *cuda = reinterpret_cast<const exo_cuda_device *>(device);
    if (cuda->capability >= EXO_CUDA_FP8_CAPABILITY)
        return EXO_OK;
    return exo_fail(
        err, EXO_UNSUPPORTED,
        "autocast to fp8 needs a GPU of compute capability %d.%d or later (Ada, Hopper, "
        "Blackwell), and GPU %d has %d.%d: use bf16",
        EXO_CUDA_FP8_CAPABILITY / 10, EXO_CUDA_FP8_CAPABILITY % 10, cuda->ordinal,
        cuda->capability / 10, cuda->capability % 10);
}

static exo_device_class
make_class(void)
{
    exo_device_class made = {};
    made.name = "cuda";
    made.invariant = true;
    made.check_fp8 = cuda_check_fp8;
    made.log_sums = true;
    made.parts = true;
    made.choose = exo_cuda_choose;
    made.alloc = exo_cuda_alloc;
    made.free = exo_cuda_free;
    made.pages_reserve = exo_cuda_pages_reserve;
    made.pages_open = exo_cuda_pages_open;
    made.pages_close = exo_cuda_pages_close;
    made.pages_free = exo_cuda_pages_free;
    made.copy = cuda_copy;
    made.synchronize = cuda_synchronize;
    made.section_begin = exo_cuda_section_begin;
    made.section_end = exo_cuda_section_end;
    made.kernels = &exo_cuda_kernels;
    made.plan_new = exo_cuda_plan_new;
    made.plan_free = exo_cuda_plan_free;
    made.scratch = exo_cuda_scratch;
    made.free_memory = exo_cuda_free_memory;
    made.share_new = exo_cuda_share_new;
    made.share_open = exo_cuda_share_open;
    made.share_free = exo_cuda_share_free;
    made.share_is_on = exo_cuda_share_is_on;
    made.share_mark = exo_cuda_share_mark;
    made.share_follow = exo_cuda_share_follow;
    made.share_wait = exo_cuda_share_wait;
    made.share_reached = exo_cuda_share_reached;
    made.share_unmark = exo_cuda_share_unmark;
    made.share_read = exo_cuda_share_read;
    made.share_reader_free = exo_cuda_share_reader_free;
    return made;
}

static const exo_device_class cuda_class = make_class();

/* --- Life ------------------------------------------------------------------------------------- */

/* A variable of the environment that is off or on. */
static exo_status
read_switch(const char *name, bool otherwise, bool *out, exo_err *err)
{
    const char *asked = getenv(name);
    const bool given = asked && *asked;
    *out = given ? strcmp(asked, "on") == 0 : otherwise;
    if (!given || *out || strcmp(asked, "off") == 0)
        return EXO_OK;
    return exo_fail(err, EXO_INVAL, "%s: expected off or on, got '%.60s'", name, asked);
}

static exo_status
read_capability(exo_cuda_device *cuda, exo_err *err)
{
    cudaDeviceProp properties = {};
    const exo_status st = exo_cuda_status(cudaGetDeviceProperties(&properties, cuda->ordinal),
                                          "the properties of the GPU", err);
    cuda->capability = properties.major * 10 + properties.minor;
    return st;
}

/* Says why there is no GPU of that ordinal. */
static exo_status
find_gpu(int ordinal, exo_err *err)
{
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
        (void)cudaGetLastError();
        return exo_fail(err, EXO_UNSUPPORTED,
                        "there is no GPU: %s; install NVIDIA's driver, or set device: cpu",
                        error == cudaSuccess
                            ? "the driver lists none, or CUDA_VISIBLE_DEVICES is empty"
                            : cudaGetErrorString(error));
    }
    if (ordinal < 0 || ordinal >= count)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "there is no GPU %d: this process sees %d, numbered from 0 "
                        "(CUDA_VISIBLE_DEVICES says which)",
                        ordinal, count);
    return EXO_OK;
}

/* The part of the slots that is the host's. */
static cudaError_t
pin_slots(exo_cuda_device *cuda)
{
    cudaError_t error = cudaSuccess;
    for (size_t s = 0; s < EXO_CUDA_SLOTS && error == cudaSuccess; s++)
        error = cudaMallocHost(&cuda->slots[s].memory, EXO_CUDA_SLOT_BYTES);
    return error;
}

static cudaError_t
open_slots(exo_cuda_device *cuda)
{
    cudaError_t error = cudaStreamCreateWithFlags(&cuda->copies, cudaStreamNonBlocking);
    for (size_t s = 0; s < EXO_CUDA_SLOTS && error == cudaSuccess; s++) {
        exo_cuda_slot *slot = &cuda->slots[s];
        error = cudaEventCreateWithFlags(&slot->free, cudaEventDisableTiming);
        if (error == cudaSuccess)
            error = cudaEventCreateWithFlags(&slot->taken, cudaEventDisableTiming);
        if (error == cudaSuccess)
            error = cudaMallocAsync(&slot->landing, EXO_CUDA_SLOT_BYTES, cuda->stream);
        if (error == cudaSuccess)
            exo_cuda_took(cuda, EXO_CUDA_WORKSPACES, EXO_CUDA_SLOT_BYTES);
        if (error == cudaSuccess) /* the memory is there from here on, also for `copies` */
            error = cudaEventRecord(slot->taken, cuda->stream);
    }
    return error;
}

/* Nothing is under way on the device's stream, which has waited for the copies that it needed. */
static void
close_slots(exo_cuda_device *cuda)
{
    if (cuda->copies) {
        (void)cudaStreamSynchronize(cuda->copies);
        (void)cudaStreamDestroy(cuda->copies);
    }
    for (exo_cuda_slot &slot : cuda->slots) {
        if (slot.landing)
            (void)cudaFreeAsync(slot.landing, cuda->stream);
        if (slot.taken)
            (void)cudaEventDestroy(slot.taken);
        if (slot.free)
            (void)cudaEventDestroy(slot.free);
        if (slot.memory)
            exo_cuda_when_quiet(cuda->ordinal, exo_cuda_free_pinned, slot.memory);
    }
}

void
exo_cuda_free_pinned(void *memory)
{
    (void)cudaFreeHost(memory);
}

static cudaError_t
open_memory(exo_cuda_device *cuda)
{
    void *memory = NULL;
    cudaError_t error = cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = exo_cuda_keep_memory(cuda);
    if (error == cudaSuccess)
        error = open_slots(cuda);
    if (error == cudaSuccess)
        error = cudaMallocAsync(&memory, PARTIALS_BYTES, cuda->stream);
    cuda->partials = static_cast<double *>(memory);
    if (cuda->partials)
        exo_cuda_took(cuda, EXO_CUDA_WORKSPACES, PARTIALS_BYTES);
    cuda->device.scalar = cuda->partials ? cuda->partials + EXO_CUDA_PARTIALS : NULL;
    return error;
}

/* Whether the kernels were compiled for the GPU: any of them stands for all. */
static exo_status
check_kernels(const exo_cuda_device *cuda, exo_err *err)
{
    cudaFuncAttributes attributes;
    const cudaError_t error = cudaFuncGetAttributes(&attributes, exo_cuda_add_partials<double>);
    const int number = cuda->capability;
    if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction)
        return exo_cuda_status(error, "the kernels", err);
    (void)cudaGetLastError();
    if (number < LEAST_CAPABILITY)
        return exo_fail(err, EXO_FAILED,
                        "GPU %d has compute capability %d.%d, and exogym needs 8.0 (Ampere) or "
                        "later: set device: cpu",
                        cuda->ordinal, number / 10, number % 10);
    return exo_fail(err, EXO_FAILED,
                    "GPU %d has compute capability %d.%d, for which exogym-cuda.so was not "
                    "compiled: build exogym with -DEXO_CUDA_ARCHITECTURES=%d",
                    cuda->ordinal, number / 10, number % 10, number);
}

/* Opens the GPU, and takes what a device has of it and of the host for itself. */
static exo_status
start(exo_cuda_device *cuda, exo_err *err)
{
    const size_t own = exo_cuda_own_bytes();
    const exo_status st = exo_cuda_charge(cuda, EXO_CUDA_WORKSPACES, "a device", own, err);
    if (st != EXO_OK)
        return st;
    exo_cuda_gave(cuda, EXO_CUDA_WORKSPACES, own); /* each part is counted when it is there */
    cudaError_t error = exo_cuda_select(cuda);     /* the driver's own memory, of each process */
    if (error == cudaSuccess) {
        error = pin_slots(cuda);
        if (error != cudaSuccess)
            return exo_cuda_status(error, "pinned memory of the host", err);
        error = open_memory(cuda);
    }
    return error == cudaErrorMemoryAllocation ? exo_cuda_say_full(cuda, "a device", own, err)
                                              : exo_cuda_status(error, "the start", err);
}

uint64_t
exo_cuda_own_bytes(void)
{
    return static_cast<uint64_t>(EXO_CUDA_SLOTS) * EXO_CUDA_SLOT_BYTES + PARTIALS_BYTES +
           exo_cuda_matmul_bytes() + exo_cuda_sections_bytes();
}

exo_status
exo_cuda_open(exo_device **out, int ordinal, exo_err *err)
{
    *out = NULL;
    exo_status st = find_gpu(ordinal, err);
    if (st != EXO_OK)
        return st;
    exo_cuda_device *cuda = static_cast<exo_cuda_device *>(exo_calloc(1, sizeof *cuda));
    if (!cuda)
        return exo_fail(err, EXO_NOMEM, "no memory for a device");
    cuda->device.device_class = &cuda_class;
    cuda->ordinal = ordinal;
    st = exo_cuda_add_holder(cuda, err);
    if (st == EXO_OK)
        st = read_switch("EXOGYM_CUDA_TF32", false, &cuda->tf32, err);
    if (st == EXO_OK)
        st = read_switch("EXOGYM_CUDA_EPILOGUES", true, &cuda->epilogues, err);
    if (st == EXO_OK)
        st = read_capability(cuda, err);
    if (st == EXO_OK)
        st = exo_cuda_set_limit(cuda, err);
    if (st == EXO_OK)
        st = start(cuda, err);
    if (st == EXO_OK)
        st = check_kernels(cuda, err);
    if (st == EXO_OK)
        st = exo_cuda_matmul_new(&cuda->matmul, cuda, err);
    if (st == EXO_OK)
        st = exo_cuda_cudnn_new(&cuda->cudnn, cuda, err);
    if (st == EXO_OK)
        st = exo_cuda_sections_new(&cuda->sections, cuda, err);
    if (st == EXO_OK)
        *out = &cuda->device;
    else
        exo_cuda_close(&cuda->device);
    return st;
}

void
exo_cuda_close(exo_device *device)
{
    exo_cuda_device *cuda = exo_cuda_of(device);
    (void)exo_cuda_select(cuda);
    if (cuda->stream)
        (void)cudaStreamSynchronize(cuda->stream);
    exo_cuda_sections_free(cuda->sections, cuda);
    exo_cuda_cudnn_free(cuda->cudnn);
    exo_cuda_matmul_free(cuda->matmul);
    close_slots(cuda);
    if (cuda->partials)
        (void)cudaFreeAsync(cuda->partials, cuda->stream);
    exo_cuda_trim(cuda);
    if (cuda->stream)
        (void)cudaStreamDestroy(cuda->stream);
    (void)cudaGetLastError();
    exo_cuda_remove_holder(cuda);
    exo_free(cuda);
}
