/* The engine `gpu`: collectives among threads of one process whose arrays are on one GPU.
 *
 * A call is a meeting. A member records an event on its stream when it begins, and the last one that
 * comes asks for the whole call on the group's own stream, behind all these events: one kernel reads
 * every member's array and writes every member's result. wait then lets the member's stream wait for
 * it, and the host goes on. Sums are in rank order, so the bits are those of every ordered engine.
 * Arrays in the host's memory are reduced there.
 *
 * State: a group, under its lock. Read next: exogym/engine.h. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <exogym/engine.h>
#include <exogym/memory.h>

#include "nn/cuda/device.h"
#include "nn/cuda/engine.h"
#include "nn/cuda/grid.h"
#include "nn/cuda/sections.h"

enum {
    MOST_MEMBERS = 64
};

typedef struct parts {
    void *data[MOST_MEMBERS]; /* by place */
} parts;

typedef struct meeting {
    struct meeting *next;
    uint32_t size, arrived, gone; /* members; those that have begun; those that have ended */
    uint32_t ranks[MOST_MEMBERS]; /* by place */
    exo_engine_request *requests[MOST_MEMBERS]; /* by place; NULL: not begun */
    cudaEvent_t ready[MOST_MEMBERS];            /* by place, of arrays on the GPU */
    cudaEvent_t done;
    bool asked; /* the call is on the group's stream, or done on the host */
} meeting;

typedef struct group {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const exo_clock *clock;
    uint32_t size;
    bool left[MOST_MEMBERS];
    bool joined[MOST_MEMBERS];
    bool has_stream;
    int ordinal; /* of the GPU, once there is a stream */
    cudaStream_t stream;
    meeting *meetings; /* oldest first */
    exo_err broken;    /* code OK: it is not */
} group;

/* --- Kernels ---------------------------------------------------------------------------------- */

template <typename T> struct sum_of {
    typedef T type;
};
template <> struct sum_of<exo_cuda_bf16> {
    typedef float type;
};
/* integers wrap */
template <> struct sum_of<int8_t> {
    typedef uint8_t type;
};
template <> struct sum_of<int32_t> {
    typedef uint32_t type;
};
template <> struct sum_of<int64_t> {
    typedef uint64_t type;
};

template <typename T>
__device__ static inline typename sum_of<T>::type
read_part(const parts &p, uint32_t place, size_t i)
{
    return static_cast<typename sum_of<T>::type>(static_cast<const T *>(p.data[place])[i]);
}

template <>
__device__ inline float
read_part<exo_cuda_bf16>(const parts &p, uint32_t place, size_t i)
{
    return exo_cuda_get(static_cast<const exo_cuda_bf16 *>(p.data[place]), i);
}

template <typename T>
__device__ static inline void
write_part(const parts &p, uint32_t place, size_t i, typename sum_of<T>::type sum)
{
    static_cast<T *>(p.data[place])[i] = static_cast<T>(sum);
}

template <>
__device__ inline void
write_part<exo_cuda_bf16>(const parts &p, uint32_t place, size_t i, float sum)
{
    exo_cuda_set(static_cast<exo_cuda_bf16 *>(p.data[place]), i, sum);
}

/* The place whose shard (exo_shard) has element i. */
__device__ static inline uint32_t
owner_of(size_t i, size_t count, uint32_t size)
{
    const size_t each = count / size, longer = count % size, split = (each + 1) * longer;
    return static_cast<uint32_t>(i < split ? i / (each + 1) : longer + (i - split) / each);
}

/* Each element: the sum in the order of places, divided for a mean, to every member, or to the
 * owner alone. */
template <typename T>
__global__ static void
reduce_each(parts p, uint32_t size, size_t count, bool mean, bool to_owner)
{
    for (EXO_CUDA_EACH(i, count)) {
        typename sum_of<T>::type sum = read_part<T>(p, 0, i);
        for (uint32_t q = 1; q < size; q++)
            sum = static_cast<typename sum_of<T>::type>(sum + read_part<T>(p, q, i));
        if (mean)
            sum = sum / static_cast<typename sum_of<T>::type>(size);
        if (to_owner)
            write_part<T>(p, owner_of(i, count, size), i, sum);
        for (uint32_t q = 0; q < size && !to_owner; q++)
            write_part<T>(p, q, i, sum);
    }
}

/* --- A call on the GPU ------------------------------------------------------------------------ */

template <typename T>
static exo_status
reduce(const group *g, const exo_collective_args *args, const parts &p, exo_err *err)
{
    exo_cuda_launch_each(reduce_each<T>, exo_cuda_blocks(args->count, EXO_CUDA_BLOCK),
                         EXO_CUDA_BLOCK, g->stream, p, args->size, args->count,
                         args->reduce == EXO_MEAN, args->operation == EXO_REDUCE_SCATTER);
    return exo_cuda_launched("a reduction", err);
}

static exo_status
reduce_by_type(const group *g, const exo_collective_args *args, const parts &p, exo_err *err)
{
    switch (args->dtype) {
    case EXO_F32:
        return reduce<float>(g, args, p, err);
    case EXO_BF16:
        return reduce<exo_cuda_bf16>(g, args, p, err);
    case EXO_I32:
        return reduce<int32_t>(g, args, p, err);
    case EXO_I8:
        return reduce<int8_t>(g, args, p, err);
    case EXO_I64:
        return reduce<int64_t>(g, args, p, err);
    default:
        return exo_fail(err, EXO_UNSUPPORTED, "engine gpu does not reduce %s",
                        exo_dtype_name(args->dtype));
    }
}

static cudaError_t
copy(const group *g, const parts &to, uint32_t t, const parts &from, uint32_t f, size_t first,
     size_t bytes)
{
    char *const target = static_cast<char *>(to.data[t]) + first;
    const char *const source = static_cast<const char *>(from.data[f]) + first;
    return bytes == 0 || target == source
               ? cudaSuccess
               : cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, g->stream);
}

/* Part `q` of every member's array comes from member q, or for a broadcast all of it from the
 * root. */
static cudaError_t
spread(const group *g, const exo_collective_args *args, const parts &p)
{
    const size_t size = exo_dtype_size(args->dtype);
    cudaError_t error = cudaSuccess;
    for (uint32_t q = 0; q < args->size; q++) {
        size_t first = 0, length = args->count;
        const bool all = args->operation == EXO_BROADCAST;
        if (all && q != args->root)
            continue;
        if (!all)
            exo_shard(args->count, args->size, q, &first, &length);
        for (uint32_t to = 0; to < args->size && error == cudaSuccess; to++)
            error = copy(g, p, to, p, q, first * size, length * size);
    }
    return error;
}

/* all_to_all, swap and shift change places, so they go through a copy of all arrays. */
static cudaError_t
exchange(const group *g, const exo_collective_args *args, const parts &p)
{
    const size_t size = exo_dtype_size(args->dtype), bytes = args->count * size;
    void *memory = NULL;
    parts kept = {};
    cudaError_t error = cudaMallocAsync(&memory, bytes * args->size + 1, g->stream);
    if (error != cudaSuccess)
        return error;
    for (uint32_t q = 0; q < args->size && error == cudaSuccess; q++) {
        kept.data[q] = static_cast<char *>(memory) + q * bytes;
        error = copy(g, kept, q, p, q, 0, bytes);
    }
    for (uint32_t to = 0; to < args->size && error == cudaSuccess; to++)
        for (uint32_t from = 0; from < args->size && error == cudaSuccess; from++) {
            const size_t block = bytes / args->size;
            char *const target = static_cast<char *>(p.data[to]);
            const char *const source = static_cast<const char *>(kept.data[from]);
            const bool all = args->operation == EXO_SWAP ||
                             (args->operation == EXO_SHIFT && from == exo_shift_source(args, to));
            if (all && from != to)
                error = cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, g->stream);
            else if (args->operation == EXO_ALL_TO_ALL && block > 0)
                error = cudaMemcpyAsync(target + from * block, source + to * block, block,
                                        cudaMemcpyDeviceToDevice, g->stream);
        }
    const cudaError_t freed = cudaFreeAsync(memory, g->stream);
    return error != cudaSuccess ? error : freed;
}

static exo_status
ask_gpu(const group *g, const meeting *m, exo_err *err)
{
    const exo_collective_args *args = &m->requests[0]->args;
    parts p = {};
    cudaError_t error = cudaSetDevice(g->ordinal);
    for (uint32_t q = 0; q < m->size && error == cudaSuccess; q++) {
        p.data[q] = m->requests[q]->args.data;
        error = cudaStreamWaitEvent(g->stream, m->ready[q], 0);
    }
    exo_status st = exo_cuda_status(error, "a collective", err);
    if (st != EXO_OK || args->count == 0 || args->operation == EXO_BARRIER)
        return st;
    switch (args->operation) {
    case EXO_ALL_REDUCE:
    case EXO_REDUCE_SCATTER:
        return reduce_by_type(g, args, p, err);
    case EXO_ALL_GATHER:
    case EXO_BROADCAST:
        return exo_cuda_status(spread(g, args, p), "a collective", err);
    default:
        return exo_cuda_status(exchange(g, args, p), "a collective", err);
    }
}

/* --- A call on the host ----------------------------------------------------------------------- */

static exo_status
do_on_host(const meeting *m, exo_err *err)
{
    const exo_collective_args *args = &m->requests[0]->args;
    const size_t bytes = args->count * exo_dtype_size(args->dtype);
    char *all = bytes > 0 ? static_cast<char *>(exo_calloc(m->size, bytes)) : NULL;
    if (bytes > 0 && !all)
        return exo_fail(err, EXO_NOMEM, "no memory for a collective of %zu elements", args->count);
    for (uint32_t q = 0; q < m->size && all; q++)
        memcpy(all + q * bytes, m->requests[q]->args.data, bytes);
    for (uint32_t place = 0; place < m->size && all; place++) {
        void *from[MOST_MEMBERS];
        const size_t block = args->operation == EXO_ALL_TO_ALL ? bytes / m->size : 0;
        for (uint32_t q = 0; q < m->size; q++) /* its block for this place, where q's block comes */
            from[q] = all + q * bytes + place * block - q * block;
        exo_collective_take(&m->requests[place]->args, 0, args->count, from);
    }
    exo_free(all);
    return EXO_OK;
}

/* --- Meetings --------------------------------------------------------------------------------- */

/* With the lock. The first reason counts. */
static void
break_group(group *g, exo_status code, const char *text)
{
    if (g->broken.code == EXO_OK) {
        exo_fail(&g->broken, code, "%s", text);
        g->broken.code = code;
    }
    pthread_cond_broadcast(&g->changed);
}

static exo_status
say_broken(const group *g, exo_err *err)
{
    return exo_fail(err, g->broken.code, "%s", g->broken.text);
}

static uint32_t
rank_at(const exo_collective_args *args, uint32_t place)
{
    return args->ranks ? args->ranks[place] : place;
}

static bool
is_among(const meeting *m, const exo_collective_args *args)
{
    bool same = m->size == args->size;
    for (uint32_t q = 0; q < args->size && same; q++)
        same = m->ranks[q] == rank_at(args, q);
    return same;
}

static void
free_meeting(group *g, meeting *m)
{
    meeting **at = &g->meetings;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    for (uint32_t q = 0; q < m->size; q++)
        if (m->ready[q])
            (void)cudaEventDestroy(m->ready[q]);
    if (m->done)
        (void)cudaEventDestroy(m->done);
    exo_free(m);
}

/* The oldest meeting of these members that this one has not come to; a new one if there is none.
 * NULL: no memory. */
static meeting *
find_meeting(group *g, const exo_collective_args *args)
{
    meeting **at = &g->meetings;
    while (*at && !(is_among(*at, args) && !(*at)->requests[args->place] && !(*at)->asked))
        at = &(*at)->next;
    if (*at)
        return *at;
    meeting *m = static_cast<meeting *>(exo_calloc(1, sizeof *m));
    if (!m)
        return NULL;
    m->size = args->size;
    for (uint32_t q = 0; q < args->size; q++)
        m->ranks[q] = rank_at(args, q);
    *at = m;
    return m;
}

/* Whether the members mean the same call. */
static exo_status
check_same(const meeting *m, const exo_collective_args *args, exo_err *err)
{
    for (uint32_t q = 0; q < m->size; q++) {
        const exo_collective_args *other = m->requests[q] ? &m->requests[q]->args : args;
        const bool same = other->operation == args->operation && other->count == args->count &&
                          other->dtype == args->dtype && other->reduce == args->reduce &&
                          other->root == args->root && !other->device == !args->device;
        if (!same)
            return exo_fail(err, EXO_INVAL,
                            "ranks %u and %u disagree: %s of %zu %s on %s, and %s of %zu %s on %s",
                            m->ranks[q], m->ranks[args->place],
                            exo_collective_name(other->operation), other->count,
                            exo_dtype_name(other->dtype), other->device ? "a GPU" : "the host",
                            exo_collective_name(args->operation), args->count,
                            exo_dtype_name(args->dtype), args->device ? "a GPU" : "the host");
    }
    return EXO_OK;
}

/* Makes the group's stream, on the GPU of the first array that comes. */
static exo_status
open_stream(group *g, const exo_cuda_device *cuda, exo_err *err)
{
    if (g->has_stream && g->ordinal != cuda->ordinal)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "engine gpu is for members on one GPU, and these are on %d and %d: choose "
                        "engine: auto",
                        g->ordinal, cuda->ordinal);
    if (g->has_stream)
        return EXO_OK;
    g->ordinal = cuda->ordinal;
    exo_status st = exo_cuda_status(cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking),
                                    "a stream", err);
    g->has_stream = st == EXO_OK;
    return st;
}

static bool
is_on_gpu(const exo_collective_args *args)
{
    return args->device && strcmp(exo_device_name(args->device), "cuda") == 0;
}

/* Records that the array of a request has been computed when the device's stream gets here. */
static exo_status
mark_ready(group *g, meeting *m, const exo_collective_args *args, exo_err *err)
{
    if (!is_on_gpu(args))
        return exo_fail(err, EXO_UNSUPPORTED, "engine gpu does not reach the device %s",
                        exo_device_name(args->device));
    const exo_cuda_device *cuda = exo_cuda_of(args->device);
    exo_status st = exo_cuda_status(exo_cuda_select(cuda), "a collective", err);
    if (st == EXO_OK)
        st = open_stream(g, cuda, err);
    cudaEvent_t *event = &m->ready[args->place];
    cudaError_t error = cudaSuccess;
    if (st == EXO_OK)
        error = cudaEventCreateWithFlags(event, cudaEventDisableTiming);
    if (st == EXO_OK && error == cudaSuccess)
        error = cudaEventRecord(*event, cuda->stream);
    return st == EXO_OK ? exo_cuda_status(error, "a collective", err) : st;
}

/* Asks for the call of a meeting to which all have come. */
static exo_status
ask(group *g, meeting *m, exo_err *err)
{
    if (!m->requests[0]->args.device)
        return do_on_host(m, err);
    exo_status st = ask_gpu(g, m, err);
    cudaError_t error = cudaSuccess;
    if (st == EXO_OK)
        error = cudaEventCreateWithFlags(&m->done, cudaEventDisableTiming);
    if (st == EXO_OK && error == cudaSuccess)
        error = cudaEventRecord(m->done, g->stream);
    return st == EXO_OK ? exo_cuda_status(error, "a collective", err) : st;
}

/* --- Requests --------------------------------------------------------------------------------- */

static exo_status
gpu_begin(void *context, uint32_t rank, exo_engine_request *request, exo_err *err)
{
    group *g = static_cast<group *>(context);
    const exo_collective_args *args = &request->args;
    (void)rank;
    const exo_status computed =
        is_on_gpu(args) ? exo_cuda_catch_up(exo_cuda_of(args->device), err) : EXO_OK;
    pthread_mutex_lock(&g->lock);
    exo_status st = g->broken.code == EXO_OK ? computed : say_broken(g, err);
    meeting *m = st == EXO_OK ? find_meeting(g, args) : NULL;
    if (st == EXO_OK && !m)
        st = exo_fail(err, EXO_NOMEM, "no memory for a collective");
    if (st == EXO_OK)
        st = check_same(m, args, err);
    if (st == EXO_OK && args->device)
        st = mark_ready(g, m, args, err);
    if (st == EXO_OK) {
        m->requests[args->place] = request;
        request->own = m;
        if (++m->arrived == m->size) {
            st = ask(g, m, err);
            m->asked = st == EXO_OK;
            if (st != EXO_OK && g->has_stream)
                (void)cudaStreamSynchronize(g->stream); /* no work on the arrays is left */
        }
    }
    if (st != EXO_OK && m && m->requests[args->place] == request) {
        m->requests[args->place] = NULL; /* after an error there is no request */
        m->arrived--;
    }
    if (st != EXO_OK && m && m->arrived == 0)
        free_meeting(g, m);
    if (st != EXO_OK)
        break_group(g, st, err ? err->text : "a collective failed");
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    return st;
}

/* With the lock. Ends the part of a request in its meeting. */
static void
end_request(group *g, exo_engine_request *request)
{
    meeting *m = static_cast<meeting *>(request->own);
    request->own = NULL;
    if (!m->asked) { /* nobody will do the call */
        m->requests[request->args.place] = NULL;
        m->arrived--;
    }
    if (m->asked ? ++m->gone == m->size : m->arrived == 0)
        free_meeting(g, m);
}

/* With the lock. Lets the member's stream wait for the call, or else the host: the array is the
 * member's again after this. */
static exo_status
take_result(const group *g, const exo_engine_request *request, exo_err *err)
{
    const meeting *m = static_cast<const meeting *>(request->own);
    if (!request->args.device)
        return EXO_OK;
    const exo_cuda_device *cuda = exo_cuda_of(request->args.device);
    cudaError_t error = exo_cuda_select(cuda);
    if (error == cudaSuccess)
        error = cudaStreamWaitEvent(cuda->stream, m->done, 0);
    if (error != cudaSuccess)
        (void)cudaStreamSynchronize(g->stream);
    return exo_cuda_status(error, "a collective", err);
}

/* With the lock: a member of the request's meeting that has left without coming to it, or the
 * number of all members. */
static uint32_t
find_left(const group *g, const exo_engine_request *request)
{
    const meeting *m = static_cast<const meeting *>(request->own);
    for (uint32_t q = 0; q < m->size; q++)
        if (!m->requests[q] && g->left[m->ranks[q]])
            return m->ranks[q];
    return g->size;
}

static void
say_late(group *g, const exo_engine_request *request)
{
    const meeting *m = static_cast<const meeting *>(request->own);
    char text[256];
    int used = snprintf(text, sizeof text, "deadline passed while waiting for others: missing");
    for (uint32_t q = 0; q < m->size; q++)
        if (!m->requests[q] && used < static_cast<int>(sizeof text) - 16)
            used +=
                snprintf(text + used, sizeof text - static_cast<size_t>(used), " %u", m->ranks[q]);
    break_group(g, EXO_TIMEOUT, text);
}

/* With the lock. Whether the request has ended, with its status. */
static bool
look(group *g, exo_engine_request *request, exo_status *st, exo_err *err)
{
    const meeting *m = static_cast<const meeting *>(request->own);
    *st = EXO_OK;
    if (m->asked) {
        *st = take_result(g, request, err);
        end_request(g, request);
        return true;
    }
    const uint32_t left = find_left(g, request);
    if (left < g->size) {
        char text[64];
        snprintf(text, sizeof text, "rank %u has left the group", left);
        break_group(g, EXO_PEER_LOST, text);
    } else if (g->broken.code == EXO_OK && exo_now(g->clock) >= request->deadline) {
        say_late(g, request);
    }
    if (g->broken.code == EXO_OK)
        return false;
    *st = say_broken(g, err);
    end_request(g, request);
    return true;
}

static exo_status
gpu_test(void *context, uint32_t rank, exo_engine_request *request, bool *done, exo_err *err)
{
    group *g = static_cast<group *>(context);
    exo_status st = EXO_OK;
    (void)rank;
    pthread_mutex_lock(&g->lock);
    *done = look(g, request, &st, err);
    pthread_mutex_unlock(&g->lock);
    return st;
}

static exo_status
gpu_wait(void *context, uint32_t rank, exo_engine_request *request, exo_err *err)
{
    group *g = static_cast<group *>(context);
    exo_status st = EXO_OK;
    (void)rank;
    pthread_mutex_lock(&g->lock);
    while (!look(g, request, &st, err)) {
        /* all changes wake it; the clock alone does not */
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 10 * 1000 * 1000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&g->changed, &g->lock, &until);
    }
    pthread_mutex_unlock(&g->lock);
    return st;
}

static void
gpu_cancel(void *context, uint32_t rank, exo_engine_request *request)
{
    group *g = static_cast<group *>(context);
    char text[64];
    pthread_mutex_lock(&g->lock);
    const meeting *m = static_cast<const meeting *>(request->own);
    snprintf(text, sizeof text, "a collective of rank %u was cancelled", rank);
    if (!m->asked)
        break_group(g, EXO_CANCELLED, text);
    else
        (void)take_result(g, request, NULL); /* the data is the caller's after the call */
    end_request(g, request);
    pthread_mutex_unlock(&g->lock);
}

/* --- Groups ----------------------------------------------------------------------------------- */

static exo_status
gpu_join(void *context, uint32_t rank, const char *name, exo_err *err)
{
    group *g = static_cast<group *>(context);
    (void)name;
    pthread_mutex_lock(&g->lock);
    const bool taken = g->joined[rank];
    g->joined[rank] = true;
    pthread_mutex_unlock(&g->lock);
    return taken ? exo_fail(err, EXO_EXISTS, "rank %u is taken, or has left", rank) : EXO_OK;
}

static void
gpu_leave(void *context, uint32_t rank)
{
    group *g = static_cast<group *>(context);
    pthread_mutex_lock(&g->lock);
    g->left[rank] = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void
gpu_fail(void *context, uint32_t rank, const char *cause)
{
    group *g = static_cast<group *>(context);
    char text[256];
    snprintf(text, sizeof text, "rank %u: %.200s", rank, cause);
    pthread_mutex_lock(&g->lock);
    break_group(g, EXO_PEER_LOST, text);
    pthread_mutex_unlock(&g->lock);
}

static exo_status
gpu_open(void **out, const exo_engine_opts *opts, exo_err *err)
{
    if (opts->size > MOST_MEMBERS)
        return exo_fail(err, EXO_INVAL,
                        "engine gpu has at most %d members, not %u: choose engine: local",
                        MOST_MEMBERS, opts->size);
    group *g = static_cast<group *>(exo_calloc(1, sizeof *g));
    if (!g)
        return exo_fail(err, EXO_NOMEM, "no memory for a group");
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    g->clock = opts->clock;
    g->size = opts->size;
    *out = g;
    return EXO_OK;
}

static void
gpu_close(void *context)
{
    group *g = static_cast<group *>(context);
    if (g->has_stream)
        (void)cudaSetDevice(g->ordinal);
    while (g->meetings)
        free_meeting(g, g->meetings);
    if (g->has_stream)
        (void)cudaStreamDestroy(g->stream);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    exo_free(g);
}

static exo_engine_class
make_class(void)
{
    exo_engine_class made = {};
    made.name = "gpu";
    made.help = "among members in one process whose arrays are on one GPU, which reduces them";
    made.promises = EXO_ENGINE_ORDERED | EXO_ENGINE_DEVICES | EXO_ENGINE_STREAM |
                    EXO_ENGINE_PROGRESS | EXO_ENGINE_SOME | EXO_ENGINE_BLOCKS | EXO_ENGINE_SHIFT;
    made.dtypes = 1u << EXO_F32 | 1u << EXO_BF16 | 1u << EXO_I32 | 1u << EXO_I8 | 1u << EXO_I64;
    made.open = gpu_open;
    made.close = gpu_close;
    made.join = gpu_join;
    made.leave = gpu_leave;
    made.fail = gpu_fail;
    made.begin = gpu_begin;
    made.test = gpu_test;
    made.wait = gpu_wait;
    made.cancel = gpu_cancel;
    return made;
}

extern "C" exo_status
exo_cuda_engine_register(exo_err *err)
{
    static const exo_engine_class gpu = make_class();
    return exo_engine_register(&gpu, err);
}
