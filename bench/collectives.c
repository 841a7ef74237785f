/* The time of an all-reduce in place, of fp32: among processes of this host, among threads of one
 * process, also with arrays on GPUs, over tcp on the loopback interface, and by a plain prototype that
 * reduces in place in memory which processes share. bench/collectives.py runs it beside Open MPI and gloo,
 * and bench/gpu.sh compares the engines `gpu` and `nccl` on one GPU.
 *
 *     bench_collectives processes|threads|tcp|prototype MEMBERS [--warm] [--way NAME]
 *     bench_collectives threads MEMBERS --device cuda [--engine gpu|nccl]
 *
 * prints for each size its bytes and the median time of a call in microseconds. Before each call
 * every member writes its buffer, as a backward pass does; with --warm it does not, so the buffers
 * stay in the caches of those who reduced them. --way: of processes and tcp; direct unless given.
 * --device: members take the GPUs that the process sees in turn; a call has ended when the GPU has
 * written its result. --engine: of threads; local unless given. */
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/comm.h>
#include <exogym/device.h>
#include <exogym/engine.h>
#include <exogym/tensor.h>

#include "support/comm_process.h"

enum {
    MAX_MEMBERS = 16,
    SIZES = 8,
    MOST_ROUNDS = 2000
};

static size_t sizes[SIZES] = {4 << 10, 16 << 10, 64 << 10, 256 << 10,
                              1 << 20, 4 << 20,  16 << 20, 128 << 20};
static bool warm;
static const char *way, *device = "cpu", *engine;

/* What a member of any kind calls. */
struct member {
    uint32_t rank, size;
    exo_group *group;           /* NULL: the prototype */
    struct prototype *together; /* the prototype's */
    exo_device *device;
    exo_array data;
    exo_comm *comm; /* of threads */
};

/* --- The prototype ---------------------------------------------------------------------------- */

/* Two counters on which members meet, by spinning for a moment and then by a futex. */
struct prototype {
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) _Atomic uint32_t round;
    _Atomic uint32_t sleepers;
};

static float *shared[MAX_MEMBERS]; /* the buffers of all members */

static void
meet(struct prototype *p, uint32_t size)
{
    uint32_t round = atomic_load(&p->round);
    if (atomic_fetch_add(&p->arrived, 1) + 1 == size) {
        atomic_store(&p->arrived, 0);
        atomic_store(&p->round, round + 1);
        if (atomic_load(&p->sleepers))
            syscall(SYS_futex, &p->round, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        return;
    }
    for (int i = 0; atomic_load(&p->round) == round; i++) {
        if (i < 300)
            continue;
        if (i < 320) {
            sched_yield();
            continue;
        }
        atomic_fetch_add(&p->sleepers, 1);
        syscall(SYS_futex, &p->round, FUTEX_WAIT, round, NULL, NULL, 0);
        atomic_fetch_sub(&p->sleepers, 1);
    }
}

/* The loops of two and of four members, as a compiler makes them. The arrays do not overlap. */
#ifdef __clang__
#define IN_PLACE _Pragma("clang loop vectorize(assume_safety)")
#else
#define IN_PLACE _Pragma("GCC ivdep")
#endif
static void
sum_part(uint32_t size, size_t first, size_t end)
{
    float *a = shared[0], *b = shared[1], *c = shared[2], *d = shared[3];
    IN_PLACE
    for (size_t i = first; size == 2 && i < end; i++)
        a[i] = b[i] = a[i] + b[i];
    IN_PLACE
    for (size_t i = first; size == 4 && i < end; i++)
        a[i] = b[i] = c[i] = d[i] = ((a[i] + b[i]) + c[i]) + d[i];
}

static void
reduce_by_prototype(const struct member *m)
{
    size_t count = m->data.count;
    meet(m->together, m->size);
    sum_part(m->size, count * m->rank / m->size, count * (m->rank + 1) / m->size);
    meet(m->together, m->size);
}

/* --- Rounds ----------------------------------------------------------------------------------- */

static void
fail(const char *what)
{
    fprintf(stderr, "bench_collectives: %s\n", what);
    exit(EXIT_FAILURE);
}

static void
wait_for_all(const struct member *m)
{
    if (!m->group)
        meet(m->together, m->size);
    else if (exo_barrier(m->group, NULL) != EXO_OK)
        fail("a barrier failed");
}

/* Waits until the device has done what it was asked. */
static void
finish(const struct member *m)
{
    exo_err err = {0};
    if (m->device && exo_device_synchronize(m->device, &err) != EXO_OK)
        fail(err.text);
}

static void
reduce(const struct member *m, exo_array data)
{
    exo_err err = {0};
    struct member part = *m;
    part.data = data;
    if (!m->group)
        reduce_by_prototype(&part);
    else if (exo_all_reduce(m->group, data, EXO_SUM, &err) != EXO_OK)
        fail(err.text);
    finish(m);
}

/* Checks three sums of the data. */
static void
check_sums(exo_array data, float expected)
{
    const size_t at[] = {0, data.count / 3, data.count - 1};
    exo_err err = {0};
    for (size_t i = 0; i < 3; i++) {
        float value = 0;
        if (exo_array_read(exo_array_part(data, at[i], 1), &value, &err) != EXO_OK)
            fail(err.text);
        if (value != expected)
            fail("a wrong sum");
    }
}

static int
compare_times(const void *a, const void *b)
{
    exo_time x = *(const exo_time *)a, y = *(const exo_time *)b;
    return x < y ? -1 : x > y;
}

static void
measure(const struct member *m, size_t bytes)
{
    static _Thread_local exo_time times[MOST_ROUNDS];
    int rounds = bytes <= 64 << 10 ? MOST_ROUNDS : bytes <= 4 << 20 ? 100 : 9;
    exo_array data = exo_array_part(m->data, 0, bytes / sizeof(float));
    float expected = (float)(m->size * (m->size + 1)) / 2;
    exo_vec_fill(data, (float)(m->rank + 1));
    for (int i = 0; i < rounds; i++) {
        if (!warm)
            exo_vec_fill(data, (float)(m->rank + 1));
        finish(m);
        wait_for_all(m);
        exo_time before = exo_now(exo_clock_real());
        reduce(m, data);
        times[i] = exo_now(exo_clock_real()) - before;
        if (!warm)
            check_sums(data, expected);
        if (warm && i % 16 == 15)
            exo_vec_fill(data, 1);
    }
    qsort(times, (size_t)rounds, sizeof times[0], compare_times);
    if (m->rank == 0)
        printf("%zu %.2f\n", bytes, (double)times[rounds / 2] * 1e-3);
    fflush(stdout);
}

static void
run_member(const struct member *m)
{
    for (int i = 0; i < SIZES; i++)
        measure(m, sizes[i]);
}

/* --- Kinds of members ------------------------------------------------------------------------- */

static exo_array
new_buffer(exo_device *where)
{
    exo_array out;
    if (exo_array_init(&out, where, EXO_F32, sizes[SIZES - 1] / sizeof(float), NULL) != EXO_OK)
        fail("no memory");
    return out;
}

static void *
thread_main(void *argument)
{
    struct member *m = argument;
    if (exo_group_open(&m->group, m->comm, m->rank, NULL, NULL) != EXO_OK)
        fail("no group");
    m->data = new_buffer(m->device);
    run_member(m);
    exo_array_release(&m->data);
    exo_group_close(&m->group);
    return NULL;
}

/* The devices are open already: the engines of a GPU come with them. */
static exo_comm *
new_comm(uint32_t size)
{
    exo_err err = {0};
    exo_comm *comm = NULL;
    const exo_engine_class *found = NULL;
    const exo_engine_opts opts = {.size = size, .clock = exo_clock_real(), .key = "bench"};
    exo_status st = engine ? exo_engine_find(&found, engine, &err) : EXO_OK;
    if (st == EXO_OK)
        st = found ? exo_comm_open(&comm, found, &opts, &err)
                   : exo_comm_local(&comm, size, opts.clock, &err);
    if (st != EXO_OK)
        fail(err.text);
    return comm;
}

static void
run_threads(uint32_t size)
{
    pthread_t threads[MAX_MEMBERS];
    struct member members[MAX_MEMBERS];
    exo_err err = {0};
    for (uint32_t r = 0; r < size; r++) {
        members[r] = (struct member){.rank = r, .size = size};
        if (exo_device_open_place(&members[r].device, device, r, &err) != EXO_OK)
            fail(err.text);
    }
    exo_comm *comm = new_comm(size);
    for (uint32_t r = 0; r < size; r++) {
        members[r].comm = comm;
        if (pthread_create(&threads[r], NULL, thread_main, &members[r]) != 0)
            fail("no thread");
    }
    for (uint32_t r = 0; r < size; r++)
        pthread_join(threads[r], NULL);
    exo_comm_drop(&comm);
    for (uint32_t r = 0; r < size; r++)
        exo_device_close(&members[r].device);
}

static void
run_prototype(uint32_t size, uint32_t rank, struct prototype *together)
{
    struct member m = {.rank = rank, .size = size, .together = together};
    m.data = exo_host_array(EXO_F32, shared[rank], sizes[SIZES - 1] / sizeof(float));
    run_member(&m);
}

static void
run_process(uint32_t size, uint32_t rank, const char *folder, struct prototype *together, bool tcp)
{
    comm_process p = {
        .folder = folder, .size = size, .rank = rank, .channel = 1, .tcp = tcp, .way = way};
    comm_process_join(&p);
    struct member m = {
        .rank = rank, .size = size, .group = p.group, .data = new_buffer(exo_device_cpu())};
    run_member(&m);
    meet(together, size); /* who ends ends the calls that others are still in */
    _exit(EXIT_SUCCESS);  /* the head ends with the first process */
}

static void *
shared_memory(size_t bytes)
{
    void *memory =
        mmap(NULL, bytes + (2 << 20), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fail("no memory");
    char *aligned = (char *)memory + ((2 << 20) - (uintptr_t)memory % (2 << 20));
    madvise(aligned, bytes, MADV_HUGEPAGE);
    memset(aligned, 0, bytes);
    return aligned;
}

/* Runs the members in processes, and waits for them. */
static int
run_processes(const char *kind, uint32_t size)
{
    char folder[] = "/tmp/exogym-bench-XXXXXX";
    struct prototype *together = shared_memory(4096);
    bool plain = strcmp(kind, "prototype") == 0;
    int status, worst = EXIT_SUCCESS;
    for (uint32_t r = 0; plain && r < size; r++)
        shared[r] = shared_memory(sizes[SIZES - 1]);
    pid_t head = !plain && mkdtemp(folder) ? comm_process_head(folder) : 0;
    for (uint32_t r = 0; r < size; r++) {
        if (fork() != 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (plain)
            run_prototype(size, r, together);
        else
            run_process(size, r, folder, together, strcmp(kind, "tcp") == 0);
        _exit(EXIT_SUCCESS);
    }
    for (uint32_t r = 0; r < size; r++)
        if (wait(&status) < 0 || status != 0)
            worst = EXIT_FAILURE;
    if (head > 0) {
        char command[64];
        kill(head, SIGKILL);
        snprintf(command, sizeof command, "rm -rf %s", folder);
        worst = system(command) == 0 ? worst : EXIT_FAILURE;
    }
    return worst;
}

int
main(int argc, char **argv)
{
    exo_set_num_threads(1); /* members are as many as threads may be */
    uint32_t size = argc > 2 ? (uint32_t)atoi(argv[2]) : 0;
    for (int i = 3; i < argc; i++) {
        warm = warm || strcmp(argv[i], "--warm") == 0;
        way = i > 3 && strcmp(argv[i - 1], "--way") == 0 ? argv[i] : way;
        device = i > 3 && strcmp(argv[i - 1], "--device") == 0 ? argv[i] : device;
        engine = i > 3 && strcmp(argv[i - 1], "--engine") == 0 ? argv[i] : engine;
    }
    if (size < 1 || size > MAX_MEMBERS) {
        fprintf(stderr,
                "bench_collectives processes|threads|tcp|prototype MEMBERS [--warm] [--way NAME]\n"
                "bench_collectives threads MEMBERS --device cuda [--engine gpu|nccl]\n");
        return EXIT_FAILURE;
    }
    if (strcmp(argv[1], "threads") != 0)
        return run_processes(argv[1], size);
    run_threads(size);
    return EXIT_SUCCESS;
}
