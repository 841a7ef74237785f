/* Whether the threads of a grid race. Kernels are compiled for the host with the calls of the thread
 * sanitizer (-fsanitize=thread) where the build has no other sanitizer. Its library knows no grids, so
 * the functions are here. Each access of a thread is held against those before:
 *
 *     within a block: two threads, of which one writes, and no __syncthreads between them. Shuffles
 *         and instructions of a warp order nothing.
 *     in device memory: two blocks of a grid, of which one writes.
 *     in shared memory: a read of what no thread of the block has written; and, with the launch's
 *         bytes, more of what kernels declare than the launch may have.
 *     where a copy is to arrive: any access before the thread that began it has waited for it.
 *     an address that is no multiple of the size.
 *
 * Atomic accesses race with plain ones only. Each byte has a cell with its last accesses. A number
 * that grows with each barrier, block and grid tells which of them still count. State: the cells of
 * the process, which the emulator's lock guards. */
#include "cuda/races.h"

#include <cuda_runtime.h>

#include <memory>
#include <unordered_map>
#include <unordered_set>

#include <stdio.h>
#include <stdlib.h>

#include "cuda/emulator.h"

enum {
    PAGE = 4096,
    ATOMIC = 0xFFFF, /* as a writer */
    MANY = 0xFFFF,   /* as a reader: several threads */
    COPIED = 16,     /* bytes of a copy */
    OF_WARP = 0x8000 /* as a reader: the lanes of a warp together */
};

/* The last accesses of a byte: in which interval, and by which thread. `others` is the last read by a
 * block before that of `read`. */
struct cell {
    uint32_t wrote, read, others;
    uint16_t writer, reader;
};

struct page {
    cell cells[PAGE];
};

/* Addresses from `first` on. */
struct range {
    uintptr_t first;
    size_t bytes;
    bool has(uintptr_t address) const
    {
        return address - first < bytes;
    }
};

static struct {
    bool compiled, wanted, always; /* compiled: kernels call */
    const char *name;
    uint32_t now, block, grid; /* the interval, and the first ones of the block and of the grid */
    unsigned thread;
    size_t declared, most; /* bytes of __shared__ that the grid has written, and that it may have */
    range stacks, shared;
    range indices; /* threadIdx to gridDim, which only the emulator writes */
} watch;

/* This thread runs a grid that is watched. Others run the host's part of nn/cuda meanwhile. */
static thread_local bool watches __attribute__((tls_model("initial-exec")));
static std::unordered_map<uintptr_t, std::unique_ptr<page>> pages;
static std::unordered_set<uintptr_t> arriving; /* multiples of COPIED */
static uintptr_t last_number = UINTPTR_MAX;
static page *last_page;

bool
cuda_emulator_watch_races(bool wanted)
{
    watch.wanted = wanted;
    return watch.compiled;
}

void
cuda_emulator_always_watch(bool wanted)
{
    watch.always = wanted;
}

static page *
page_of(uintptr_t address)
{
    const uintptr_t number = address / PAGE;
    if (number != last_number) {
        std::unique_ptr<page> &found = pages[number];
        if (!found)
            found.reset(new page());
        last_number = number;
        last_page = found.get();
    }
    return last_page;
}

[[noreturn]] static void
fail(const char *what, uintptr_t address, unsigned other)
{
    fprintf(stderr, "cuda: %s: block %u: thread %u %s", watch.name, blockIdx.x, watch.thread, what);
    if (other != UINT32_MAX)
        fprintf(stderr, " %u", other);
    if (watch.shared.has(address))
        fprintf(stderr, ", byte %zu of the launch's shared memory\n",
                static_cast<size_t>(address - watch.shared.first));
    else
        fprintf(stderr, ", at %#zx\n", static_cast<size_t>(address));
    abort();
}

/* --- Cells ------------------------------------------------------------------------------------ */

extern "C" char __bss_start[], _end[]; /* of the program, with what kernels declare as __shared__ */

static bool
is_of_block(uintptr_t address)
{
    const range program = {reinterpret_cast<uintptr_t>(__bss_start),
                           static_cast<size_t>(_end - __bss_start)};
    return watch.shared.has(address) || program.has(address);
}

/* A byte that a kernel declares as __shared__, which the grid writes for the first time. */
static void
note_declared(uintptr_t address)
{
    if (++watch.declared > watch.most)
        fail("writes more declared shared bytes than the launch may have beside its own", address,
             UINT32_MAX);
}

/* Whether an access in that interval was by an earlier block of the grid that runs. */
static bool
of_other_block(uint32_t interval)
{
    return interval >= watch.grid && interval < watch.block;
}

static void
note_write(cell *c, uintptr_t address, bool of_block, unsigned thread)
{
    if (c->wrote == watch.now && c->writer != thread)
        fail("writes, with no barrier between, what was written by thread", address, c->writer);
    if (c->read == watch.now && c->reader != thread)
        fail("writes, with no barrier between, what was read by thread", address, c->reader);
    if (!of_block && of_other_block(c->wrote) && (thread != ATOMIC || c->writer != ATOMIC))
        fail("writes what another block has written", address, UINT32_MAX);
    if (!of_block && (of_other_block(c->read) || of_other_block(c->others)))
        fail("writes what another block has read", address, UINT32_MAX);
    if (of_block && c->wrote < watch.grid && !watch.shared.has(address))
        note_declared(address);
    c->wrote = watch.now;
    c->writer = static_cast<uint16_t>(thread);
}

static void
note_read(cell *c, uintptr_t address, bool of_block, unsigned thread)
{
    if (c->wrote == watch.now && c->writer != thread)
        fail("reads, with no barrier between, what was written by thread", address, c->writer);
    if (!of_block && of_other_block(c->wrote))
        fail("reads what another block has written", address, UINT32_MAX);
    if (c->wrote < watch.block && of_block)
        fail("reads what no thread of the block has written", address, UINT32_MAX);
    if (c->read == watch.now) {
        if (c->reader != thread)
            c->reader = MANY;
        return;
    }
    if (of_other_block(c->read))
        c->others = c->read;
    c->read = watch.now;
    c->reader = static_cast<uint16_t>(thread);
}

static void
expect_arrived(uintptr_t first, size_t bytes)
{
    for (uintptr_t at = first / COPIED * COPIED; at < first + bytes; at += COPIED)
        if (arriving.count(at) > 0)
            fail("reads or writes where a copy is to arrive", first, UINT32_MAX);
}

/* Not inlined: most grids are not watched, and a call that returns at once saves no registers. */
[[gnu::noinline]] static void
note_watched(const void *at, size_t bytes, bool writes, unsigned thread)
{
    const uintptr_t first = reinterpret_cast<uintptr_t>(at);
    if (watch.stacks.has(first) || watch.indices.has(first))
        return;
    const bool of_block = is_of_block(first);
    cell *c = NULL;
    if (!arriving.empty())
        expect_arrived(first, bytes);
    for (uintptr_t address = first; address < first + bytes; address++) {
        c = c && address % PAGE != 0 ? c + 1 : &page_of(address)->cells[address % PAGE];
        if (writes)
            note_write(c, address, of_block, thread);
        else
            note_read(c, address, of_block, thread);
    }
}

static inline void
note(const void *at, size_t bytes, bool writes, unsigned thread)
{
    if (watches)
        note_watched(at, bytes, writes, thread);
}

/* --- What the emulator says ------------------------------------------------------------------- */

void
cuda_emulated_watch_grid(const char *name, size_t most, const void *stacks, size_t stack_bytes)
{
    watch.declared = 0;
    watch.most = most;
    watches = watch.compiled &&
              (watch.wanted || watch.always); /* else only instructions would say what they do */
    watch.name = name;
    watch.stacks = {reinterpret_cast<uintptr_t>(stacks), stack_bytes};
    watch.indices = {reinterpret_cast<uintptr_t>(&emulated_index), sizeof emulated_index};
    watch.grid = watch.now + 1;
}

void
cuda_emulated_watch_end(void)
{
    watches = false;
}

void
cuda_emulated_watch_block(const void *shared, size_t bytes)
{
    watch.block = ++watch.now;
    watch.shared = {reinterpret_cast<uintptr_t>(shared), bytes};
}

void
cuda_emulated_watch_barrier(void)
{
    watch.now++;
}

void
cuda_emulated_watch_thread(unsigned thread)
{
    watch.thread = thread;
}

void
cuda_emulated_watch_copy(const void *to)
{
    note(to, COPIED, true, watch.thread);
    if (watches)
        arriving.insert(reinterpret_cast<uintptr_t>(to));
}

void
cuda_emulated_watch_arrival(const void *to)
{
    if (watches)
        arriving.erase(reinterpret_cast<uintptr_t>(to));
    note(to, COPIED, true, watch.thread);
}

void
cuda_emulated_note_write(const void *at, size_t bytes)
{
    note(at, bytes, true, watch.thread);
}

void
cuda_emulated_note_read(const void *at, size_t bytes)
{
    note(at, bytes, false, watch.thread);
}

void
cuda_emulated_note_warp_read(const void *at, size_t bytes)
{
    note(at, bytes, false, OF_WARP | watch.thread / 32);
}

void
emulated_note_atomic(const void *at, size_t bytes)
{
    note(at, bytes, true, ATOMIC);
}

/* --- What the compiler calls ------------------------------------------------------------------ */

#if !defined(EXO_TEST_THREAD_SANITIZER) /* whose own library has them */
/* An access as a kernel has written it. */
[[gnu::noinline]] static void
note_whole_watched(const void *at, size_t bytes, bool writes)
{
    if (reinterpret_cast<uintptr_t>(at) % bytes != 0)
        fail("reads or writes at no multiple of the size", reinterpret_cast<uintptr_t>(at),
             UINT32_MAX);
    note_watched(at, bytes, writes, watch.thread);
}

static inline void
note_whole(const void *at, size_t bytes, bool writes)
{
    if (watches)
        note_whole_watched(at, bytes, writes);
}

#define ACCESSES(BYTES)                                                                            \
    void __tsan_read##BYTES(void *at)                                                              \
    {                                                                                              \
        note_whole(at, BYTES, false);                                                              \
    }                                                                                              \
    void __tsan_write##BYTES(void *at)                                                             \
    {                                                                                              \
        note_whole(at, BYTES, true);                                                               \
    }                                                                                              \
    void __tsan_unaligned_read##BYTES(void *at)                                                    \
    {                                                                                              \
        note(at, BYTES, false, watch.thread);                                                      \
    }                                                                                              \
    void __tsan_unaligned_write##BYTES(void *at)                                                   \
    {                                                                                              \
        note(at, BYTES, true, watch.thread);                                                       \
    }

extern "C" {
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

void
__tsan_read_range(void *at, size_t bytes)
{
    note(at, bytes, false, watch.thread);
}

void
__tsan_write_range(void *at, size_t bytes)
{
    note(at, bytes, true, watch.thread);
}

void
__tsan_vptr_update(void **, void *)
{
}

void
__tsan_func_entry(void *)
{
}

void
__tsan_func_exit(void)
{
}

void
__tsan_init(void)
{
    watch.compiled = true;
}

/* Of a static variable of a function: whether it has been made. x86 reads a byte, ARM the word. */
uint8_t
__tsan_atomic8_load(const volatile uint8_t *at, int)
{
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

uint64_t
__tsan_atomic64_load(const volatile uint64_t *at, int)
{
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}
}
#endif
