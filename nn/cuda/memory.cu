/* Memory of GPUs: see memory.h. */
#include "nn/cuda/memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <exogym/ipc.h>
#include <exogym/memory.h>

#include "base/part_of_memory.h"

#include "nn/cuda/sections.h"

#define LIMIT "EXOGYM_CUDA_MEMORY"

/* --- The pool ---------------------------------------------------------------------------------- */

/* What the pool of the GPU keeps without using it. */
static uint64_t
idle_in_pool(int ordinal)
{
    cudaMemPool_t pool = NULL;
    uint64_t reserved = 0, used = 0;
    if (cudaDeviceGetDefaultMemPool(&pool, ordinal) != cudaSuccess ||
        cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved) !=
            cudaSuccess ||
        cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    return reserved > used ? reserved - used : 0;
}

void
exo_cuda_trim(const exo_cuda_device *cuda)
{
    cudaMemPool_t pool = NULL;
    if (cuda->stream)
        (void)cudaStreamSynchronize(cuda->stream);
    if (cudaDeviceGetDefaultMemPool(&pool, cuda->ordinal) == cudaSuccess)
        (void)cudaMemPoolTrimTo(pool, 0);
    (void)cudaGetLastError();
}

cudaError_t
exo_cuda_keep_memory(const exo_cuda_device *cuda)
{
    cudaMemPool_t pool = NULL;
    uint64_t all = cuda->limit;
    const cudaError_t error = cudaDeviceGetDefaultMemPool(&pool, cuda->ordinal);
    return error == cudaSuccess
               ? cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all)
               : error;
}

/* --- Who holds what --------------------------------------------------------------------------- */

/* What a device holds. The list has the devices of the process; the lock guards it. */
typedef struct holder {
    struct holder *next;
    const exo_cuda_device *cuda;
    uint64_t bytes[EXO_CUDA_USES];
} holder;

static pthread_mutex_t holders_lock = PTHREAD_MUTEX_INITIALIZER;
static holder *holders;
static uint64_t shared_bytes[EXO_CUDA_COUNTED_GPUS]; /* by ordinal: share.cu's, guarded as well */
static uint64_t shared_frees[EXO_CUDA_COUNTED_GPUS]; /* of such memory so far */

static holder **
find_holder_locked(const exo_cuda_device *cuda)
{
    holder **at = &holders;
    while (*at && (*at)->cuda != cuda)
        at = &(*at)->next;
    return at;
}

exo_status
exo_cuda_add_holder(const exo_cuda_device *cuda, exo_err *err)
{
    holder *h = static_cast<holder *>(exo_calloc(1, sizeof *h));
    if (!h)
        return exo_fail(err, EXO_NOMEM, "no memory for a device");
    h->cuda = cuda;
    pthread_mutex_lock(&holders_lock);
    h->next = holders;
    holders = h;
    pthread_mutex_unlock(&holders_lock);
    return EXO_OK;
}

void
exo_cuda_remove_holder(const exo_cuda_device *cuda)
{
    pthread_mutex_lock(&holders_lock);
    holder **at = find_holder_locked(cuda), *h = *at;
    if (h)
        *at = h->next;
    pthread_mutex_unlock(&holders_lock);
    exo_free(h);
}

void
exo_cuda_took(const exo_cuda_device *cuda, exo_cuda_use use, size_t bytes)
{
    pthread_mutex_lock(&holders_lock);
    holder *h = *find_holder_locked(cuda);
    if (h)
        h->bytes[use] += bytes;
    pthread_mutex_unlock(&holders_lock);
}

void
exo_cuda_gave(const exo_cuda_device *cuda, exo_cuda_use use, size_t bytes)
{
    pthread_mutex_lock(&holders_lock);
    holder *h = *find_holder_locked(cuda);
    if (h)
        h->bytes[use] -= bytes;
    pthread_mutex_unlock(&holders_lock);
}

void
exo_cuda_shared(int ordinal, int64_t bytes)
{
    pthread_mutex_lock(&holders_lock);
    if (ordinal >= 0 && ordinal < EXO_CUDA_COUNTED_GPUS) {
        shared_bytes[ordinal] += static_cast<uint64_t>(bytes);
        shared_frees[ordinal] += bytes < 0;
    }
    pthread_mutex_unlock(&holders_lock);
}

static uint64_t
frees_on(int ordinal)
{
    pthread_mutex_lock(&holders_lock);
    const uint64_t frees = ordinal < EXO_CUDA_COUNTED_GPUS ? shared_frees[ordinal] : 0;
    pthread_mutex_unlock(&holders_lock);
    return frees;
}

bool
exo_cuda_sweep(const exo_cuda_device *cuda)
{
    const uint64_t before = frees_on(cuda->ordinal); /* the bytes grow beside other threads */
    (void)exo_ipc_array_count();
    return exo_cuda_select(cuda) == cudaSuccess && frees_on(cuda->ordinal) != before;
}

static uint64_t
sum_of(const holder *h)
{
    uint64_t sum = 0;
    for (const uint64_t bytes : h->bytes)
        sum += bytes;
    return sum;
}

/* All memory of a GPU, also of one that this process could not open. */
static size_t
memory_of(int ordinal)
{
    cudaDeviceProp properties;
    const bool known = cudaGetDeviceProperties(&properties, ordinal) == cudaSuccess;
    (void)cudaGetLastError();
    return known ? properties.totalGlobalMem : 0;
}

/* Who holds what of a GPU in this process. */
struct account {
    holder own;
    unsigned long long others, shared; /* of other devices; of none */
    unsigned devices;                  /* the others */
};

static account
look_locked(const exo_cuda_device *cuda)
{
    account a = {};
    for (const holder *h = holders; h; h = h->next)
        if (h->cuda == cuda) {
            a.own = *h;
        } else if (h->cuda->ordinal == cuda->ordinal) {
            a.others += sum_of(h);
            a.devices++;
        }
    a.shared = cuda->ordinal < EXO_CUDA_COUNTED_GPUS ? shared_bytes[cuda->ordinal] : 0;
    return a;
}

static account
look(const exo_cuda_device *cuda)
{
    pthread_mutex_lock(&holders_lock);
    const account a = look_locked(cuda);
    pthread_mutex_unlock(&holders_lock);
    return a;
}

static unsigned long long
sum_of_account(const account *a)
{
    return sum_of(&a->own) + a->others + a->shared;
}

/* "the arrays of this node hold 4096, ..." */
static void
describe(const account *a, char *out, size_t size)
{
    const uint64_t *uses = a->own.bytes;
    snprintf(
        out, size,
        "the arrays of this node hold %llu, its plans %llu, pages of caches %llu and "
        "workspaces %llu, the %u others in this process %llu, arrays that others may hold %llu",
        static_cast<unsigned long long>(uses[EXO_CUDA_ARRAYS]),
        static_cast<unsigned long long>(uses[EXO_CUDA_PLANS]),
        static_cast<unsigned long long>(uses[EXO_CUDA_PAGES]),
        static_cast<unsigned long long>(uses[EXO_CUDA_WORKSPACES]), a->devices, a->others,
        a->shared);
}

exo_status
exo_cuda_say_full(const exo_cuda_device *cuda, const char *what, size_t bytes, exo_err *err)
{
    size_t left = 0, all = 0;
    char text[EXO_ERR_TEXT];
    (void)cudaGetLastError();
    if (cudaMemGetInfo(&left, &all) != cudaSuccess) /* not even the driver's own has room */
        all = memory_of(cuda->ordinal);
    const unsigned long long idle = idle_in_pool(cuda->ordinal);
    const account a = look(cuda);
    const unsigned long long taken = all - left, here = sum_of_account(&a) + idle;
    describe(&a, text, sizeof text);
    return exo_fail(err, EXO_NOMEM,
                    "no memory for %s of %zu bytes on GPU %d: %zu of %zu bytes are free; %s, "
                    "their pool keeps %llu, and libraries and other processes have %llu "
                    "(nvidia-smi names them)",
                    what, bytes, cuda->ordinal, left, all, text, idle,
                    taken > here ? taken - here : 0);
}

/* --- The bound of a process ------------------------------------------------------------------- */

exo_status
exo_cuda_read_limit(uint64_t memory, uint64_t *limit, exo_err *err)
{
    const char *asked = getenv(LIMIT);
    *limit = UINT64_MAX;
    if (!asked || !*asked || exo_part_of_memory(asked, memory, limit))
        return EXO_OK;
    return exo_fail(err, EXO_INVAL, LIMIT ": expected " EXO_PART_EXPECTED ", got '%.60s'", asked);
}

exo_status
exo_cuda_set_limit(exo_cuda_device *cuda, exo_err *err)
{
    return exo_cuda_read_limit(memory_of(cuda->ordinal), &cuda->limit, err);
}

/* Counts the bytes, unless they are too many. use: EXO_CUDA_USES: of no device. */
static bool
count(const exo_cuda_device *cuda, exo_cuda_use use, size_t bytes)
{
    pthread_mutex_lock(&holders_lock);
    const account a = look_locked(cuda);
    const uint64_t taken = sum_of_account(&a);
    const bool fits = taken <= cuda->limit && bytes <= cuda->limit - taken;
    holder *h = *find_holder_locked(cuda);
    if (fits && use == EXO_CUDA_USES && cuda->ordinal < EXO_CUDA_COUNTED_GPUS)
        shared_bytes[cuda->ordinal] += bytes;
    else if (fits && use != EXO_CUDA_USES && h)
        h->bytes[use] += bytes;
    pthread_mutex_unlock(&holders_lock);
    return fits;
}

exo_status
exo_cuda_charge(const exo_cuda_device *cuda, exo_cuda_use use, const char *what, size_t bytes,
                exo_err *err)
{
    char text[EXO_ERR_TEXT];
    if (count(cuda, use, bytes) || (exo_cuda_sweep(cuda) && count(cuda, use, bytes)))
        return EXO_OK;
    const account a = look(cuda);
    describe(&a, text, sizeof text);
    return exo_fail(err, EXO_NOMEM,
                    "no memory for %s of %zu bytes on GPU %d: " LIMIT
                    " lets this process have %llu bytes there, of which it has %llu; %s",
                    what, bytes, cuda->ordinal, static_cast<unsigned long long>(cuda->limit),
                    sum_of_account(&a), text);
}

exo_status
exo_cuda_charge_shared(const exo_cuda_device *cuda, const char *what, size_t bytes, exo_err *err)
{
    return exo_cuda_charge(cuda, EXO_CUDA_USES, what, bytes, err);
}

/* --- Arrays ----------------------------------------------------------------------------------- */

exo_status
exo_cuda_alloc(exo_device *device, size_t bytes, void **out, exo_err *err)
{
    exo_cuda_device *cuda = exo_cuda_of(device);
    void *memory = NULL;
    const size_t least = bytes ? bytes : 1; /* an array has an address, even an empty one */
    const exo_status st = exo_cuda_charge(cuda, EXO_CUDA_ARRAYS, "an array", bytes, err);
    if (st != EXO_OK)
        return st;
    cudaError_t error = exo_cuda_select(cuda);
    if (error == cudaSuccess)
        error = cudaMallocAsync(&memory, least, cuda->stream);
    if (error == cudaErrorMemoryAllocation && exo_cuda_sweep(cuda)) {
        (void)cudaGetLastError();
        error = cudaMallocAsync(&memory, least, cuda->stream);
    }
    if (error == cudaSuccess)
        error = cudaMemsetAsync(memory, 0, least, cuda->stream);
    if (error == cudaSuccess) {
        *out = memory;
        return EXO_OK;
    }
    if (memory)
        (void)cudaFreeAsync(memory, cuda->stream);
    exo_cuda_gave(cuda, EXO_CUDA_ARRAYS, bytes);
    return error == cudaErrorMemoryAllocation ? exo_cuda_say_full(cuda, "an array", bytes, err)
                                              : exo_cuda_status(error, "an allocation", err);
}

void
exo_cuda_free(exo_device *device, void *memory, size_t bytes)
{
    exo_cuda_device *cuda = exo_cuda_of(device);
    if (!memory)
        return;
    exo_cuda_gave(cuda, EXO_CUDA_ARRAYS, bytes);
    exo_cuda_catch_up_noted(cuda);
    (void)exo_cuda_select(cuda);
    /* a device that has failed frees nothing; its memory ends with the process */
    if (cudaFreeAsync(memory, cuda->stream) != cudaSuccess)
        (void)cudaGetLastError();
}

uint64_t
exo_cuda_free_memory(const exo_device *device)
{
    const exo_cuda_device *cuda = reinterpret_cast<const exo_cuda_device *>(device);
    size_t left = 0, all = 0;
    if (exo_cuda_select(cuda) != cudaSuccess || cudaMemGetInfo(&left, &all) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    const account a = look(cuda);
    const uint64_t taken = sum_of_account(&a), unused = left + idle_in_pool(cuda->ordinal);
    const uint64_t allowed = taken < cuda->limit ? cuda->limit - taken : 1; /* 0: unknown */
    return unused < allowed ? unused : allowed;
}
