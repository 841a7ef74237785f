/* Grids on the host: see fibers.h. State: the fibers of the block that runs, one block at a time. */
#include "cuda/fibers.h"
#include "cuda/order.h"
#include "cuda/races.h"

#include <numeric>
#include <vector>

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

emulated_place emulated_index;

enum {
    STACK = 256 * 1024,
    MOST_THREADS = 1024,
    MOST_SHARED = 128 * 1024,
    WARP = 32,
    LANE_BYTES = 16,
    MEET_BYTES = 32
};

typedef enum fiber_state {
    READY,
    AT_BLOCK, /* waits for the block */
    AT_WARP,  /* waits for the warp */
    ENDED,
} fiber_state;

struct fiber {
    fiber_state state;
    dim3 index;
    bool started;     /* it has begun its first thread */
    unsigned meets;   /* calls of cuda_emulated_meet */
    void *jump[5];    /* where it goes on */
    void *fake_stack; /* of the address sanitizer */
};

static struct {
    const char *name;
    const std::function<void()> *thread;
    bool each;
    fiber *running;
    void *back[5]; /* the scheduler */
    void *fake_stack;
    const void *bottom; /* the scheduler's stack */
    size_t stack_bytes;
} block_now;

static fiber fibers[MOST_THREADS];
static char *stacks;
static unsigned char lanes[MOST_THREADS][LANE_BYTES];
static bool flags[MOST_THREADS];
static unsigned char met[2][MOST_THREADS * MEET_BYTES];
static std::vector<unsigned char> shared_bytes;

static void
leave_to(void **fake_stack, const void *bottom, size_t bytes)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(fake_stack, bottom, bytes);
#else
    (void)fake_stack;
    (void)bottom;
    (void)bytes;
#endif
}

static void
arrived_from(void *fake_stack, const void **bottom, size_t *bytes)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_stack, bottom, bytes);
#else
    (void)fake_stack;
    (void)bottom;
    (void)bytes;
#endif
}

/* Of functions that change the fiber. Other fibers run meanwhile, which the compiler does not see: it
 * must assume for a caller that memory and registers change, as for an unknown function. */
#if defined(__clang__)
#define CHANGES_FIBER __attribute__((noinline, optnone))
#else
#define CHANGES_FIBER __attribute__((noipa))
#endif

/* Does not return; but a compiler that knew would have the address sanitizer forget the red zones of
 * the stack before each call, which takes longer than all else here. __builtin_longjmp must not be in
 * the function of its __builtin_setjmp. */
CHANGES_FIBER __attribute__((no_sanitize_address)) static void
jump(void **to)
{
    __builtin_longjmp(to, 1);
}

/* Gives the processor back to the scheduler until it resumes this fiber. */
CHANGES_FIBER static void
pause_fiber(fiber *f)
{
    leave_to(&f->fake_stack, block_now.bottom, block_now.stack_bytes);
    if (__builtin_setjmp(f->jump) == 0)
        jump(block_now.back);
    arrived_from(f->fake_stack, &block_now.bottom, &block_now.stack_bytes);
}

/* A fiber runs one thread after the other, a block's each, because to make a context takes calls of
 * the system. */
[[noreturn]] static void
run_fiber(void)
{
    arrived_from(NULL, &block_now.bottom, &block_now.stack_bytes);
    for (;;) {
        (*block_now.thread)();
        block_now.running->state = ENDED;
        pause_fiber(block_now.running);
    }
}

/* Begins to run on its own stack. */
[[noreturn]] CHANGES_FIBER static void
start_fiber(char *stack)
{
    static ucontext_t context; /* not on this stack, which is left as it is: red zones would stay */
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = STACK;
    context.uc_link = NULL;
    makecontext(&context, run_fiber, 0);
    setcontext(&context);
    abort();
}

CHANGES_FIBER static void
resume(fiber *f)
{
    char *const stack = stacks + static_cast<size_t>(f - fibers) * STACK;
    block_now.running = f;
    threadIdx = f->index;
    cuda_emulated_watch_thread(static_cast<unsigned>(f - fibers));
    leave_to(&block_now.fake_stack, stack, STACK);
    if (__builtin_setjmp(block_now.back) == 0) {
        if (f->started)
            jump(f->jump);
        f->started = true;
        start_fiber(stack);
    }
    arrived_from(block_now.fake_stack, NULL, NULL);
}

static void
prepare(fiber *f, unsigned t)
{
    f->state = READY;
    f->meets = 0;
    f->index = dim3(t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y);
}

/* Lets threads [first, first + count) go on if all that have not ended wait in `state`. */
static bool
release(unsigned first, unsigned count, fiber_state state)
{
    unsigned waiting = 0;
    for (unsigned t = first; t < first + count; t++)
        if (fibers[t].state == state)
            waiting++;
        else if (fibers[t].state != ENDED)
            return false;
    for (unsigned t = first; t < first + count; t++)
        if (fibers[t].state == state)
            fibers[t].state = READY;
    return waiting > 0;
}

/* The numbers below `count`, in one of many orders. */
struct drawn_order {
    uint64_t count, first, step;

    explicit drawn_order(uint64_t below)
        : count(below), first(cuda_emulated_random() % below),
          step(1 + cuda_emulated_random() % below)
    {
        while (std::gcd(step, count) != 1)
            step++;
    }
    uint64_t at(uint64_t i) const
    {
        return (first + i * step) % count;
    }
};

/* Runs every fiber that can. */
static void
run_ready(unsigned threads)
{
    const drawn_order order(threads);
    for (unsigned i = 0; i < threads; i++) {
        fiber *const f = &fibers[order.at(i)];
        if (f->state == READY)
            resume(f);
    }
}

static void
expect_no_copies(unsigned threads)
{
    for (unsigned t = 0; t < threads; t++)
        if (cuda_emulated_end_copies(t)) {
            fprintf(stderr, "cuda: %s: thread %u waits for none of its last copies\n",
                    block_now.name, t);
            abort();
        }
}

static void
run_block(unsigned threads)
{
    const unsigned lanes_most = WARP;
    for (unsigned t = 0; t < threads; t++)
        prepare(&fibers[t], t);
    for (;;) {
        bool released = false;
        unsigned ended = 0;
        run_ready(threads);
        for (unsigned t = 0; t < threads; t += WARP)
            released |= release(t, threads - t < lanes_most ? threads - t : lanes_most, AT_WARP);
        if (release(0, threads, AT_BLOCK)) {
            cuda_emulated_watch_barrier();
            released = true;
        }
        for (unsigned t = 0; t < threads; t++)
            ended += fibers[t].state == ENDED;
        if (ended == threads) {
            expect_no_copies(threads);
            return;
        }
        if (!released) {
            fprintf(stderr, "cuda: %s: a barrier that some threads of block %u do not reach\n",
                    block_now.name, blockIdx.x);
            abort();
        }
    }
}

static void
run_each(void)
{
    unsigned number = 0;
    for (threadIdx.z = 0; threadIdx.z < blockDim.z; threadIdx.z++)
        for (threadIdx.y = 0; threadIdx.y < blockDim.y; threadIdx.y++)
            for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++) {
                cuda_emulated_watch_thread(number++);
                (*block_now.thread)();
            }
}

/* The stacks of the grid's threads: this one's, below this function, if they run as a loop. */
static void
watch_grid(const char *name, size_t declared, bool each)
{
    const size_t own = 1 << 20;
    if (each)
        cuda_emulated_watch_grid(name, declared,
                                 static_cast<char *>(__builtin_frame_address(0)) - own, own);
    else
        cuda_emulated_watch_grid(name, declared, stacks, static_cast<size_t>(MOST_THREADS) * STACK);
}

/* What a thread of the host has as thread_local, kernels' shared arrays among it. */
static int
own_locals(struct dl_phdr_info *module, size_t, void *)
{
    for (unsigned i = 0; i < module->dlpi_phnum; i++)
        if (module->dlpi_phdr[i].p_type == PT_TLS && module->dlpi_tls_data)
            cuda_order_own(static_cast<const char *>(module->dlpi_tls_data),
                           module->dlpi_phdr[i].p_memsz);
    return 0;
}

/* What grids of all streams use, which are none of another's affair: order.h. */
static void
own_memory(void)
{
    static thread_local bool has_locals;
    if (!stacks) {
        const size_t bytes = static_cast<size_t>(MOST_THREADS) * STACK;
        stacks = static_cast<char *>(mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        cuda_order_own(stacks, bytes);
        cuda_order_own(lanes, sizeof lanes);
        cuda_order_own(met, sizeof met);
    }
    if (CUDA_ORDER_IS_TOLD && shared_bytes.capacity() == 0) {
        shared_bytes.reserve(MOST_SHARED);
        cuda_order_own(shared_bytes.data(), MOST_SHARED);
    }
    if (CUDA_ORDER_IS_TOLD && !has_locals)
        (void)dl_iterate_phdr(own_locals, NULL);
    has_locals = true;
}

void
cuda_emulated_grid(const char *name, dim3 grid, dim3 block, emulated_shared_bytes shared, bool each,
                   const std::function<void()> &thread)
{
    own_memory();
    block_now.name = name;
    block_now.thread = &thread;
    block_now.each = each;
    gridDim = grid;
    blockDim = block;
    watch_grid(name, shared.declared, each);
    const drawn_order order(static_cast<uint64_t>(grid.x) * grid.y * grid.z);
    for (uint64_t i = 0; i < order.count; i++) {
        const uint64_t b = order.at(i), row = b / grid.x;
        blockIdx = dim3(static_cast<unsigned>(b % grid.x), static_cast<unsigned>(row % grid.y),
                        static_cast<unsigned>(row / grid.y));
        shared_bytes.assign(shared.launch, 0xFF);
        cuda_emulated_watch_block(shared_bytes.data(), shared.launch);
        if (each && !CUDA_ORDER_IS_TOLD) /* the sanitizer sees the stack of this thread */
            run_each();
        else
            run_block(block.x * block.y * block.z);
    }
    cuda_emulated_watch_end();
}

/* --- What threads call ------------------------------------------------------------------------ */

static void
wait_as(fiber_state state)
{
    if (block_now.each) {
        fprintf(stderr, "cuda: %s: its threads meet, so it needs exo_cuda_launch\n",
                block_now.name);
        abort();
    }
    block_now.running->state = state;
    pause_fiber(block_now.running);
}

/* All lanes of the warp are to take part, as the masks of nn/cuda say. */
static void
wait_for_lanes(void)
{
    const size_t first = static_cast<size_t>(block_now.running - fibers) / WARP * WARP;
    const size_t threads = static_cast<size_t>(blockDim.x) * blockDim.y * blockDim.z;
    for (size_t t = first; t < first + WARP && !block_now.each; t++)
        if (t >= threads || fibers[t].state == ENDED) {
            fprintf(stderr, "cuda: %s: a warp's instruction without thread %zu of block %u\n",
                    block_now.name, t, blockIdx.x);
            abort();
        }
    wait_as(AT_WARP);
}

void
__syncthreads(void)
{
    wait_as(AT_BLOCK);
}

void
__syncwarp(unsigned mask)
{
    (void)mask;
    wait_for_lanes();
}

void *
emulated_shared(void)
{
    return shared_bytes.data();
}

static unsigned
own_number(void)
{
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

void
emulated_exchange(void *value, size_t bytes, unsigned from)
{
    const unsigned self = own_number();
    memcpy(lanes[self], value, bytes);
    wait_for_lanes();
    memcpy(value, lanes[self / WARP * WARP + from], bytes);
    wait_as(AT_WARP); /* nobody writes the next value before all have read this one */
}

unsigned
__ballot_sync(unsigned mask, int flag)
{
    const unsigned self = own_number(), first = self / WARP * WARP;
    const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    unsigned bits = 0;
    (void)mask;
    flags[self] = flag != 0;
    wait_for_lanes();
    for (unsigned lane = 0; lane < WARP && first + lane < threads; lane++)
        if (flags[first + lane] && fibers[first + lane].state != ENDED)
            bits |= 1u << lane;
    wait_as(AT_WARP);
    return bits;
}

const void *
cuda_emulated_meet(const void *own, size_t bytes)
{
    /* A lane writes its next value elsewhere, and the one after that only when all lanes have come
     * to the next meeting: so none waits for the others to have read. */
    const unsigned self = own_number(), parity = block_now.running->meets++ % 2;
    unsigned char *const warp = met[parity] + static_cast<size_t>(self / WARP) * WARP * MEET_BYTES;
    memcpy(warp + self % WARP * bytes, own, bytes);
    wait_for_lanes();
    return warp;
}
