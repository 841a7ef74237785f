/* The state of the emulated CUDA runtime: see state.h. */
#include "cuda/state.h"

#include "cuda/fibers.h"

namespace emulated {
std::mutex lock;
std::condition_variable changed;
std::set<emulated_stream *> streams;
std::set<emulated_event *> events;
std::set<emulated_graph *> graphs;
std::set<emulated_exec *> execs;
uint64_t launched_graphs, records, updates, refuse_update_at;
graph_failure graph_failures[CUDA_GRAPH_CALLS];
uint64_t failed_graphs;
std::set<std::pair<int, uint64_t>> loaded;
bool loads_lazily;
uint64_t late_loads;
__thread emulated_stream *capturing;
std::map<const void *, size_t> pinned;
std::map<void *, memory_block> blocks;
bool shown;
const memory_watcher *watcher;
std::map<void *, shared_memory> lendable;
std::map<void *, opened_memory> opened;
std::map<CUdeviceptr, size_t> reserved;
uint64_t used, all_memory = TEBIBYTE, done, calls, allocations, fail_at, fail_call, no_memory_at;
uint64_t random_state = 1;
std::map<std::pair<int, const void *>, size_t> allowed;
int gpus = 1;
int first_gpu;
int capability = 90;
bool no_image;
__thread cudaError_t last = cudaSuccess;
cudaError_t broken = cudaSuccess;
__thread int current;
__thread bool chosen;
void (*poll_outside)(void);
uint64_t to_host;
uint64_t host_waits;
uint64_t seen;
} // namespace emulated

uint64_t
cuda_emulated_random(void)
{
    emulated::random_state =
        emulated::random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return emulated::random_state >> 33;
}
