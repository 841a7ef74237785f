/* A device whose memory the host cannot reach: see far_device.h. */
#include "support/far_device.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "nn/device/device_impl.h"
#include "support/check.h"

enum {
    MAX_ARGS = 256,
    MAX_PENDING = 64,
    MAX_BLOCKS = 4096
};

typedef enum work_kind {
    COPY,
#define WORK_KIND(name) WORK_##name,
    EXO_KERNELS(WORK_KIND)
#undef WORK_KIND
} work_kind;

struct copy {
    void *to;
    const void *from;
    size_t bytes;
    void *kept; /* a copy of the host's bytes; NULL: copy from `from` */
};

struct work {
    work_kind kind;
    _Alignas(16) char args[MAX_ARGS];
};

struct block {
    void *memory;
    size_t bytes;
};

struct far_device {
    exo_device device;
    struct work pending[MAX_PENDING];
    size_t num_pending;
    struct block blocks[MAX_BLOCKS]; /* by address */
    size_t num_blocks;
    uint64_t asked, done, fail_at, no_memory_at;
    uint64_t used, most_used;
    uint64_t memory; /* bytes of all memory; 0: not known */
    far_device_watcher *tell;
    void *context;
    exo_err failed;
};

static struct far_device *
far_of(exo_device *device)
{
    return (struct far_device *)(void *)device;
}

/* With the address sanitizer memory is poisoned, which takes no call of the kernel: runs protect
 * millions of times. */
#if defined(__SANITIZE_ADDRESS__)
enum {
    MAPPED_WITH = PROT_READ | PROT_WRITE
};

static void
open_block(const struct block *block, bool open)
{
    if (open)
        ASAN_UNPOISON_MEMORY_REGION(block->memory, block->bytes);
    else
        ASAN_POISON_MEMORY_REGION(block->memory, block->bytes);
}

static bool
join(struct block *run, const struct block *block)
{
    (void)run;
    (void)block;
    return false;
}
#else
enum {
    MAPPED_WITH = PROT_NONE
};

static void
open_block(const struct block *block, bool open)
{
    CHECK(mprotect(block->memory, block->bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
}

/* Adds a block to a run of blocks if its pages are the next, as those of most are: all of a run take
 * one call of the kernel. */
static bool
join(struct block *run, const struct block *block)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE),
                 bytes = (run->bytes + page - 1) / page * page;
    if ((char *)run->memory + bytes != (char *)block->memory)
        return false;
    run->bytes = bytes + block->bytes;
    return true;
}
#endif

static void
open_memory(struct far_device *far, bool open)
{
    struct block run = {0};
    for (size_t b = 0; b < far->num_blocks; b++) {
        if (run.memory && join(&run, &far->blocks[b]))
            continue;
        if (run.memory)
            open_block(&run, open);
        run = far->blocks[b];
    }
    if (run.memory)
        open_block(&run, open);
}

static exo_status
do_work(struct work *work, exo_err *err)
{
    exo_device *cpu = exo_device_cpu();
    const exo_kernels *kernels = cpu->device_class->kernels;
    switch (work->kind) {
    case COPY: {
        const struct copy *c = (const struct copy *)(void *)work->args;
        memcpy(c->to, c->kept ? c->kept : c->from, c->bytes);
        return EXO_OK;
    }
#define DO_KERNEL(name)                                                                            \
    case WORK_##name:                                                                              \
        return kernels->name(cpu, (const exo_##name##_args *)(void *)work->args, err);
        EXO_KERNELS(DO_KERNEL)
#undef DO_KERNEL
    }
    return EXO_OK;
}

static void
do_pending(struct far_device *far)
{
    open_memory(far, true);
    for (size_t i = 0; i < far->num_pending; i++) {
        struct work *work = &far->pending[i];
        exo_err err = {0};
        if (far->failed.code == EXO_OK && far->fail_at > 0 && --far->fail_at == 0)
            exo_fail(&far->failed, EXO_FAILED, "the device failed on schedule");
        if (far->failed.code == EXO_OK && do_work(work, &err) != EXO_OK)
            far->failed = err;
        if (work->kind == COPY)
            free(((struct copy *)(void *)work->args)->kept);
        far->done++;
    }
    far->num_pending = 0;
    open_memory(far, false);
}

static void
ask(exo_device *device, work_kind kind, const void *args, size_t size)
{
    struct far_device *far = far_of(device);
    CHECK(size <= MAX_ARGS);
    if (far->num_pending == MAX_PENDING)
        do_pending(far);
    far->pending[far->num_pending].kind = kind;
    memcpy(far->pending[far->num_pending++].args, args, size);
    far->asked++;
}

#define ASK_KERNEL(name)                                                                           \
    static exo_status ask_##name(exo_device *device, const exo_##name##_args *args, exo_err *err)  \
    {                                                                                              \
        (void)err;                                                                                 \
        ask(device, WORK_##name, args, sizeof *args);                                              \
        return EXO_OK;                                                                             \
    }
EXO_KERNELS(ASK_KERNEL)
#undef ASK_KERNEL

/* 1 stands for none, because 0 says that it is unknown. */
static uint64_t
far_free_memory(const exo_device *device)
{
    const struct far_device *far = (const struct far_device *)(const void *)device;
    return far->memory == 0 ? 0 : far->memory > far->used ? far->memory - far->used : 1;
}

/* Whether the device has memory for a block of `length` bytes. */
static exo_status
expect_room(struct far_device *far, size_t length, exo_err *err)
{
    if (far->no_memory_at > 0 && --far->no_memory_at == 0)
        return exo_fail(err, EXO_NOMEM, "no memory on the device, on schedule");
    if (far->num_blocks == MAX_BLOCKS)
        return exo_fail(err, EXO_NOMEM, "the device has %d blocks", MAX_BLOCKS);
    if (far->memory > 0 && length > far_free_memory(&far->device))
        return exo_fail(err, EXO_NOMEM, "the memory of the device is full");
    return EXO_OK;
}

static void
add_block(struct far_device *far, void *memory, size_t length)
{
    struct block *block = far->blocks + far->num_blocks++;
    for (; block > far->blocks && (char *)block[-1].memory > (char *)memory; block--)
        *block = block[-1];
    *block = (struct block){.memory = memory, .bytes = length};
    open_block(block, false);
    far->used += length;
    if (far->used > far->most_used)
        far->most_used = far->used;
}

/* The block of an address; NULL: none. */
static struct block *
block_of(struct far_device *far, const void *memory)
{
    for (size_t b = 0; b < far->num_blocks; b++)
        if (far->blocks[b].memory == memory)
            return &far->blocks[b];
    return NULL;
}

static void
drop_block(struct far_device *far, struct block *block)
{
    far->used -= block->bytes;
    far->num_blocks--;
    for (; block < far->blocks + far->num_blocks; block++)
        *block = block[1];
}

static void *
map(size_t length)
{
    void *memory = mmap(NULL, length, MAPPED_WITH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static exo_status
far_alloc(exo_device *device, size_t bytes, void **out, exo_err *err)
{
    struct far_device *far = far_of(device);
    const size_t length = bytes ? bytes : 1;
    exo_status st = expect_room(far, length, err);
    if (st != EXO_OK)
        return st;
    *out = map(length);
    if (!*out)
        return exo_fail(err, EXO_NOMEM, "no memory on the device");
    add_block(far, *out, length);
    return EXO_OK;
}

static void
far_free(exo_device *device, void *memory, size_t bytes)
{
    struct far_device *far = far_of(device);
    (void)bytes;
    struct block *block = block_of(far, memory);
    do_pending(far);
    CHECK(block || !memory);
    if (!block)
        return;
    open_block(block, true); /* poison would stay */
    munmap(memory, block->bytes);
    drop_block(far, block);
}

/* Addresses are reserved with the protection of all memory; a block stands for open pages. */
static exo_status
far_pages_reserve(exo_device *device, size_t bytes, void **out, exo_err *err)
{
    struct block closed = {.bytes = bytes ? bytes : 1};
    (void)device;
    *out = closed.memory = map(closed.bytes);
    if (!*out)
        return exo_fail(err, EXO_NOMEM, "no addresses on the device");
    open_block(&closed, false);
    return EXO_OK;
}

static exo_status
far_pages_open(exo_device *device, void *pages, size_t bytes, exo_err *err)
{
    struct far_device *far = far_of(device);
    CHECK(!block_of(far, pages));
    exo_status st = expect_room(far, bytes ? bytes : 1, err);
    if (st == EXO_OK)
        add_block(far, pages, bytes ? bytes : 1);
    return st;
}

static void
far_pages_close(exo_device *device, void *pages, size_t bytes)
{
    struct far_device *far = far_of(device);
    struct block *block = block_of(far, pages);
    CHECK(block && block->bytes == (bytes ? bytes : 1));
    do_pending(far);
    CHECK(madvise(pages, block->bytes, MADV_DONTNEED) == 0); /* the next memory is zero */
    drop_block(far, block);
}

static void
far_pages_free(exo_device *device, void *pages, size_t bytes)
{
    struct block closed = {.memory = pages, .bytes = bytes ? bytes : 1};
    if (!pages)
        return;
    if (block_of(far_of(device), pages))
        far_pages_close(device, pages, bytes);
    open_block(&closed, true); /* poison would stay */
    munmap(pages, closed.bytes);
}

static size_t
pending_kernels(const struct far_device *far)
{
    size_t count = 0;
    for (size_t i = 0; i < far->num_pending; i++)
        count += far->pending[i].kind != COPY;
    return count;
}

static exo_status
far_copy(exo_device *device, void *to, const void *from, size_t bytes, exo_copy_kind kind,
         exo_err *err)
{
    struct copy c = {.to = to, .from = from, .bytes = bytes};
    if (kind == EXO_COPY_TO_DEVICE && far_of(device)->tell)
        far_of(device)->tell(far_of(device)->context, bytes, pending_kernels(far_of(device)));
    if (kind == EXO_COPY_TO_DEVICE) {
        c.kept = malloc(bytes ? bytes : 1);
        if (!c.kept)
            return exo_fail(err, EXO_NOMEM, "no memory to copy to the device");
        memcpy(c.kept, from, bytes);
    }
    ask(device, COPY, &c, sizeof c);
    return EXO_OK;
}

static exo_status
far_synchronize(exo_device *device, exo_err *err)
{
    struct far_device *far = far_of(device);
    do_pending(far);
    if (far->failed.code != EXO_OK && err)
        *err = far->failed;
    return far->failed.code;
}

/* Plans are the CPU's; what was asked for with one is done before it goes. */
static exo_status
far_plan_new(exo_plan **out, exo_device *device, exo_shape_kind kind, const void *shape,
             exo_err *err)
{
    exo_device *cpu = exo_device_cpu();
    (void)device;
    return cpu->device_class->plan_new(out, cpu, kind, shape, err);
}

static void
far_plan_free(exo_plan *plan)
{
    do_pending(far_of(plan->device));
    exo_device_cpu()->device_class->plan_free(plan);
}

static size_t
far_scratch(const exo_device *device, exo_shape_kind kind, const void *shape, exo_scratch_use use)
{
    exo_device *cpu = exo_device_cpu();
    (void)device;
    return use == EXO_SCRATCH_ROWS ? 0 : cpu->device_class->scratch(cpu, kind, shape, use);
}

static const exo_kernels far_kernels = {
#define FAR_KERNEL(name) .name = ask_##name,
    EXO_KERNELS(FAR_KERNEL)
#undef FAR_KERNEL
};

static const exo_device_class far_class = {
    .name = "far",
    .alloc = far_alloc,
    .free = far_free,
    .pages_reserve = far_pages_reserve,
    .pages_open = far_pages_open,
    .pages_close = far_pages_close,
    .pages_free = far_pages_free,
    .copy = far_copy,
    .synchronize = far_synchronize,
    .kernels = &far_kernels,
    .plan_new = far_plan_new,
    .plan_free = far_plan_free,
    .scratch = far_scratch,
    .free_memory = far_free_memory,
};

exo_device *
far_device_new(void)
{
    void *scalar = NULL;
    struct far_device *far = calloc(1, sizeof *far);
    CHECK(far);
    far->device.device_class = &far_class;
    CHECK(far_alloc(&far->device, sizeof(double), &scalar, NULL) == EXO_OK);
    far->device.scalar = scalar;
    return &far->device;
}

void
far_device_free(exo_device **device)
{
    if (!*device)
        return;
    far_free(*device, (*device)->scalar, sizeof(double));
    CHECK(far_of(*device)->num_blocks == 0); /* fails if an array was not released */
    free(*device);
    *device = NULL;
}

void
far_device_fail_at(exo_device *device, uint64_t n)
{
    far_of(device)->fail_at = n;
}

void
far_device_no_memory_at(exo_device *device, uint64_t n)
{
    far_of(device)->no_memory_at = n;
}

void
far_device_set_memory(exo_device *device, uint64_t bytes)
{
    far_of(device)->memory = bytes;
}

uint64_t
far_device_used(const exo_device *device)
{
    return ((const struct far_device *)(const void *)device)->used;
}

uint64_t
far_device_most_used(const exo_device *device)
{
    return ((const struct far_device *)(const void *)device)->most_used;
}

void
far_device_watch(exo_device *device, far_device_watcher *tell, void *context)
{
    far_of(device)->tell = tell;
    far_of(device)->context = context;
}

uint64_t
far_device_asked(const exo_device *device)
{
    return ((const struct far_device *)(const void *)device)->asked;
}

uint64_t
far_device_done(const exo_device *device)
{
    return ((const struct far_device *)(const void *)device)->done;
}
