/* What the files of the emulated CUDA runtime share: its state, and what they call of each other. Tests call
 * emulator.h, kernels and their hosts cuda_runtime.h, other libraries outside.h. State: everything here,
 * under one lock, with which all functions here are called. Read next:
 *
 *     settings.cc   what tests say
 *     errors.cc     errors, and calls that must not be made
 *     work.cc       the queues of streams, and whose turn it is
 *     streams.cc    streams and events
 *     graphs.cc     graphs of work
 *     launches.cc   kernels that are queued
 *     fibers.cc     their grids, with the instructions of warps in mma.cc
 *     races.cc      whether threads of a grid race
 *     devices.cc    the GPUs
 *     memory.cc     their memory; that of several processes in share.cc, the driver's pages in pages.cc
 *     matmul.cc     cuBLASLt */
#ifndef EXO_TEST_CUDA_STATE_H
#define EXO_TEST_CUDA_STATE_H

#include <cuda.h>
#include <cuda_runtime.h>

#include "cuda/emulator.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

struct emulated_event {
    int gpu;
    std::shared_ptr<bool> done; /* of the last record; NULL: never recorded */
};

struct emulated_work {
    std::function<void()> run;
    std::shared_ptr<bool> waits_for;       /* NULL: nothing */
    bool counts;                           /* a kernel, a copy or a fill: it can fail */
    bool always;                           /* also on a GPU that has failed */
    bool outside;                          /* what it waits for is not of CUDA (outside.h) */
    char kind = 0;                         /* of a node: 'k' a kernel, 'c' a copy, 'f' a fill */
    std::shared_ptr<char> asked = nullptr; /* order.h: by the call */
};

struct emulated_graph {
    std::vector<emulated_work> work;
};

struct emulated_exec {
    std::vector<emulated_work> work;
};

struct emulated_stream {
    int gpu; /* that its thread had chosen when it was made */
    std::deque<emulated_work> queue;
    emulated_graph *recorded; /* NULL: work is queued */
    bool spoiled;             /* a call that cannot be recorded was made */
    bool destroyed;           /* it ends when its work is done */
    void *order;              /* order.h: its own, and its work until now */
    char finished;
};

struct memory_block {
    size_t bytes;
    int gpu;
};

/* The first page of memory that other processes open, and what a handle has. A process that has it
 * open holds a lock on the first byte. */
struct shared_memory {
    uint64_t magic, nonce, bytes; /* bytes behind this page */
    int owner, file;
};

struct opened_memory {
    shared_memory shared; /* `file` is this process's */
    int gpu;              /* that opened it */
    unsigned count;       /* how often */
};

/* The next `at` - 1 calls succeed, and then `times` fail. */
struct graph_failure {
    uint64_t at, times;
};

/* Who is told of device memory that comes and goes, and that copies and fills write. */
struct memory_watcher {
    void (*made)(const void *memory, size_t bytes);
    void (*freed)(const void *memory, size_t bytes);
    void (*written)(const void *memory, size_t bytes);
    void (*copied)(const void *to, const void *from, size_t bytes);
};

/* Hidden, since a program and a plugin may both have an emulator. */
#pragma GCC visibility push(hidden)
namespace emulated {
static const uint64_t TEBIBYTE = UINT64_C(1) << 40;

extern std::mutex lock;
extern std::condition_variable changed; /* something outside has happened */
extern std::set<emulated_stream *> streams;
extern std::set<emulated_event *> events;
extern std::set<emulated_graph *> graphs;
extern std::set<emulated_exec *> execs;
extern uint64_t launched_graphs, records, updates, refuse_update_at;
extern struct graph_failure graph_failures[CUDA_GRAPH_CALLS];
extern uint64_t failed_graphs;
extern std::set<std::pair<int, uint64_t>> loaded; /* kernels, by GPU and address or number */
extern bool loads_lazily;
extern uint64_t late_loads;
extern __thread emulated_stream *capturing; /* NULL: the thread records nothing */
extern std::map<const void *, size_t> pinned;
extern std::map<void *, memory_block> blocks;    /* of device memory */
extern bool shown;                               /* the host reaches it */
extern const memory_watcher *watcher;            /* NULL: nobody */
extern std::map<void *, shared_memory> lendable; /* memory that others may open */
extern std::map<void *, opened_memory> opened;   /* theirs */
extern std::map<CUdeviceptr, size_t> reserved;   /* bytes of addresses */
extern uint64_t used, all_memory, done, calls, allocations, fail_at, fail_call, no_memory_at;
extern uint64_t random_state;
extern std::map<std::pair<int, const void *>, size_t> allowed; /* shared bytes, by GPU and kernel */
extern int gpus;
extern int first_gpu; /* of the machine that this process sees */
extern int capability;
extern bool no_image; /* for the GPUs */
extern __thread cudaError_t last;
extern cudaError_t broken;   /* the GPU has failed */
extern __thread int current; /* the GPU of the thread */
extern __thread bool chosen; /* it has called cudaSetDevice */
extern void (*poll_outside)(void);
extern uint64_t to_host;    /* bytes of copies */
extern uint64_t host_waits; /* for streams */
extern uint64_t seen;       /* GPUs with streams, a bit each */

/* --- errors.cc ---------------------------------------------------------------------------------- */

/* Keeps an error for cudaGetLastError. */
cudaError_t say(cudaError_t error);
/* Ends a process whose thread has chosen no GPU. */
void expect_chosen(void);
/* The beginning of a function that can fail. */
cudaError_t begin(void);

/* --- work.cc ------------------------------------------------------------------------------------ */

/* Does the next piece of a stream that is drawn. False: no stream may go on. */
bool do_one(void);
/* Lets other threads go on, for whose calls a stream waits. */
void await_outside(void);
/* Does the work of a stream, and of others as the draw will have it. */
void do_all(emulated_stream *wanted);
/* Waits for all work of a GPU, as long as it takes. */
void await_gpu(int gpu);
/* Queues a piece of work. */
void put(emulated_stream *stream, emulated_work work);
/* Ends a stream whose work is done. */
void end_stream(emulated_stream *stream);
/* Queues a kernel, a copy or a fill, or records it. */
cudaError_t queue(cudaStream_t stream, char kind, std::function<void()> run);
/* The beginning of a function that cannot be recorded here. */
cudaError_t begin_apart(cudaStream_t stream);
/* What a thread records is lost by a call that it must not make meanwhile, on whatever stream. */
void spoil(void);
/* The beginning of such a function. */
cudaError_t begin_unsafe(void);

/* --- graphs.cc ---------------------------------------------------------------------------------- */

/* Whether this call is to fail (cuda_emulator_fail_graph). */
bool is_to_fail(cuda_graph_call call);

/* --- launches.cc -------------------------------------------------------------------------------- */

/* Loads a kernel, unless that is done. False: the thread records, and may not. */
bool load(uint64_t kernel);
/* Queues a grid, unless the runtime refuses it: cudaGetLastError has the reason then. `declared`: the most
 * shared bytes that the kernel may have beside those of the launch. */
void queue_launch(const void *kernel, dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                  std::function<void(size_t declared)> run);

/* --- memory.cc ---------------------------------------------------------------------------------- */

/* From now on the host must not reach device memory. */
void hide_memory(void);
/* Device memory from now on, with NaN in it; and the host's again. */
void add_block(void *memory, size_t bytes, int gpu);
void remove_block(void *memory);
/* The bytes from this address on to the end of the block, or of memory of another process, that has it;
 * 0: none has. */
size_t bytes_from(const void *memory);
/* The bytes of device memory that are left. */
uint64_t unused(void);

/* --- share.cc ----------------------------------------------------------------------------------- */

/* Of memory that another process made. */
CUresult find_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr at);
} // namespace emulated
#pragma GCC visibility pop

#endif
