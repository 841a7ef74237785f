/* Collectives between processes of one host, through shared memory (runtime/comm/near.h):
 *   - all operations, types and odd counts, in regions and in other memory, among all and among
 *     some, give the bits of the engine `local`; by messages too, over tcp, with each way;
 *   - members that are killed or stopped at random moments: the others get an error that names
 *     them, and nobody writes to a buffer whose owner has returned from a failed call;
 *   - a member that writes garbage over its own control words and buffers makes calls fail or end
 *     with wrong numbers, but nobody crashes or waits beyond the deadline.
 *
 * EXO_COLLECTIVES_ROUNDS: number of faults of each kind (5, under sanitizers 3). EXO_CHAOS_SEED: their seed. The main
 * process forks all others and has no threads; they share `struct board`. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/exogym.h>

#include "comm/edge.h"
#include "comm/near_impl.h"
#include "comm/ways.h"
#include "support/check.h"
#include "support/comm_process.h"
#include "support/processes.h"
#include "support/sanitized.h"

enum {
    MOST = 5,
    TYPES = 6,
    COUNTS = 11,
    OPERATIONS = 10,
    LARGEST = 300001,
    PERIOD = 4099,
    FAULT_BYTES = 16 << 20
};

static const char *const ways[] = {"direct", "tree", "ring", "halving", "hierarchical"};
enum {
    TREE = 1,
    WAYS = sizeof ways / sizeof *ways
};
static const exo_dtype types[TYPES] = {EXO_F32, EXO_BF16, EXO_F16, EXO_I32, EXO_I8, EXO_I64};
static const size_t counts[COUNTS] = {0,     1,     3,     17,     1021,   4099,
                                      16384, 16387, 70001, 131072, LARGEST};

/* What the processes tell each other. */
struct board {
    _Atomic uint32_t calls[MOST];   /* calls that a member has begun */
    _Atomic uint32_t failed[MOST];  /* 1 plus the status of its failed call */
    _Atomic uint32_t resumed;       /* the stopped member has ended */
    _Atomic uint32_t done;          /* members that have all results */
    char texts[MOST][EXO_ERR_TEXT]; /* the reason of a failed call */
};

/* (MOST, MOST) the links that ways follow: only that between the ranks 1 and 2 is slow. So from four
 * members on rings do not have the order of ranks, and from three on there are islands. */
static exo_link_figure figures[MOST + 1][MOST * MOST];
static struct board *board;
static char folder[64];
static uint32_t channels;
static uint64_t seed;

/* --- Bits ------------------------------------------------------------------------------------- */

/* The memory of a member's buffers. */
enum memory {
    WHOLE,   /* an array */
    PART,    /* a part of an array, at an odd place */
    PRIVATE, /* other memory */
    MIXED,   /* an array of some members, other memory of the rest */
    MEMORIES
};

/* One member's run through the table. */
struct run {
    exo_group *group;
    uint32_t rank, size;
    enum memory memory;
    unsigned counts;      /* how many of `counts` */
    exo_comm *comm;       /* of threads */
    char *results;        /* where each result is kept, one after the other; or NULL */
    const char *expected; /* what each is compared with, or NULL */
    size_t length;        /* of all results until now */
};

/* The numbers repeat after PERIOD, a prime: where a piece of an array went can still be told. */
static void
fill(char *data, exo_dtype type, size_t count, uint32_t rank, unsigned salt)
{
    const size_t size = exo_dtype_size(type);
    for (size_t i = 0; i < count && i < PERIOD; i++) {
        uint64_t state = i * 64 + rank * 8 + salt;
        int64_t number = (int64_t)(processes_random(&state) % 4001) - 2000;
        float value = (float)number / 97;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        switch (size) {
        case 1:
            data[i] = (char)number;
            break;
        case 2: /* as fp16 any finite number will do */
            ((uint16_t *)(void *)data)[i] =
                type == EXO_BF16 ? (uint16_t)(bits >> 16) : (uint16_t)(bits >> 9 & 0x5FFF);
            break;
        case 4:
            ((uint32_t *)(void *)data)[i] = type == EXO_F32 ? bits : (uint32_t)number * 65537u;
            break;
        default:
            ((int64_t *)(void *)data)[i] = number * INT64_C(0x100000001);
        }
    }
    for (size_t i = PERIOD; i < count; i += PERIOD)
        memcpy(data + i * size, data, (count - i < PERIOD ? count - i : PERIOD) * size);
}

static void
keep(struct run *r, exo_array data, size_t first, size_t length)
{
    size_t size = exo_dtype_size(data.dtype);
    const char *result = (const char *)data.data + first * size;
    if (r->results)
        memcpy(r->results + r->length, result, length * size);
    if (r->expected)
        CHECK(memcmp(r->expected + r->length, result, length * size) == 0);
    r->length += length * size;
}

static void
call(struct run *r, exo_group *group, exo_array data, int operation)
{
    exo_err err = {0};
    exo_status st = EXO_OK;
    exo_request *requests[2] = {NULL};
    size_t first = 0, length = data.count;
    bool floats = data.dtype == EXO_F32 || data.dtype == EXO_BF16 || data.dtype == EXO_F16;
    switch (operation) {
    case 0:
        st = exo_all_reduce(group, data, EXO_SUM, &err);
        break;
    case 1:
        st = exo_all_reduce(group, data, floats ? EXO_MEAN : EXO_SUM, &err);
        break;
    case 2:
        st = exo_reduce_scatter(group, data, EXO_SUM, &err);
        exo_shard(data.count, exo_group_size(group), exo_group_rank(group), &first, &length);
        break;
    case 3:
        st = exo_all_gather(group, data, &err);
        break;
    case 4:
        st = exo_broadcast(group, data, exo_group_size(group) - 1, &err);
        break;
    case 5:
        st = exo_barrier(group, &err);
        break;
    case 7:
        length = data.count / exo_group_size(group) * exo_group_size(group);
        st = exo_all_to_all(group, exo_array_part(data, 0, length), &err);
        break;
    case 8: /* an odd one out swaps with nobody */
        if ((exo_group_rank(group) ^ 1) < exo_group_size(group))
            st = exo_swap(group, data, exo_group_rank(group) ^ 1, &err);
        break;
    case 9:
        st = exo_shift(group, data, 2, &err);
        break;
    case 6: /* two halves at the same time, the second one waited for first */
        for (int i = 0; st == EXO_OK && i < 2; i++)
            st = exo_comm_begin_all_reduce(
                &requests[i], group,
                exo_array_part(data, i ? data.count / 2 : 0,
                               i ? data.count - data.count / 2 : data.count / 2),
                EXO_SUM, &err);
        for (int i = 1; st == EXO_OK && i >= 0; i--)
            st = exo_request_wait(&requests[i], &err);
        break;
    }
    if (st != EXO_OK)
        fprintf(stderr, "operation %d of %zu %s: %s\n", operation, data.count,
                exo_dtype_name(data.dtype), err.text);
    CHECK(st == EXO_OK);
    keep(r, data, first, length);
}

static void
run_table(struct run *r)
{
    uint32_t island[MOST], num = 0;
    exo_group *some = NULL;
    exo_array array = {0};
    size_t most = LARGEST * sizeof(int64_t) + 64;
    bool private = r->memory == PRIVATE || (r->memory == MIXED && r->rank == 0);
    char *other = malloc(most);
    CHECK(other != NULL);
    CHECK(exo_array_init(&array, exo_device_cpu(), EXO_U8, most, NULL) == EXO_OK);
    for (uint32_t m = r->rank % 2; m < r->size; m += 2)
        island[num++] = m;
    CHECK(exo_group_among(&some, r->group, island, num, NULL) == EXO_OK);
    for (unsigned t = 0; t < TYPES; t++)
        for (unsigned c = 0; c < r->counts; c++)
            for (int o = 0; o < OPERATIONS; o++) {
                size_t at = r->memory == PART ? 3 * exo_dtype_size(types[t]) : 0;
                char *data = (private ? other : (char *)array.data) + at;
                exo_array part = exo_host_array(types[t], data, counts[c]);
                fill(data, types[t], counts[c], r->rank, (unsigned)o);
                call(r, o % 3 == 1 ? some : r->group, part, o);
            }
    exo_group_close(&some);
    exo_array_release(&array);
    free(other);
}

static size_t
most_results(void)
{
    size_t sum = 0;
    for (unsigned t = 0; t < TYPES; t++)
        for (unsigned c = 0; c < COUNTS; c++)
            sum += OPERATIONS * counts[c] * exo_dtype_size(types[t]);
    return sum;
}

static void *
thread_main(void *argument)
{
    struct run *r = argument;
    CHECK(exo_group_open(&r->group, r->comm, r->rank, NULL, NULL) == EXO_OK);
    run_table(r);
    CHECK(exo_barrier(r->group, NULL) == EXO_OK);
    exo_group_close(&r->group);
    return NULL;
}

/* The results of the member `rank` among threads; *length is their size. */
static char *
local_results(uint32_t rank, uint32_t size, unsigned num_counts, const char *way, size_t *length)
{
    pthread_t threads[MOST];
    struct run runs[MOST];
    exo_comm *comm = NULL;
    const exo_comm_edge edge = {
        .name = "members", .way = way, .any_bits = true, .figures = figures[size]};
    CHECK(exo_comm_local_on(&comm, size, exo_clock_real(), &edge, NULL) == EXO_OK);
    for (uint32_t r = 0; r < size; r++) {
        runs[r] = (struct run){
            .rank = r, .size = size, .memory = PRIVATE, .counts = num_counts, .comm = comm};
        if (r == rank)
            CHECK((runs[r].results = malloc(most_results())) != NULL);
        CHECK(pthread_create(&threads[r], NULL, thread_main, &runs[r]) == 0);
    }
    for (uint32_t r = 0; r < size; r++)
        pthread_join(threads[r], NULL);
    exo_comm_drop(&comm);
    *length = runs[rank].length;
    return runs[rank].results;
}

static bool
is_near(const exo_comm *comm)
{
    const exo_far *far = comm->state;
    return far->near && far->near->sets && far->near->sets->near;
}

static void
await_word(const _Atomic uint32_t *word, uint32_t value)
{
    for (int i = 0; atomic_load(word) < value; i++) {
        CHECK(i < 120 * 1000);
        usleep(1000);
    }
}

static void
bits_main(comm_process *p)
{
    size_t length = 0;
    /* the largest ones with two and three members only, with a way with three, to save time; none
     * under sanitizers */
    bool few = p->way ? p->size == 3 : p->size <= 3;
    unsigned num_counts = SANITIZED || !few ? COUNTS - 2 : COUNTS;
    char *expected = local_results(p->rank, p->size, num_counts, p->way, &length);
    for (enum memory memory = WHOLE; memory < MEMORIES; memory++) {
        if ((p->way || SANITIZED) && memory != p->size % MEMORIES)
            continue; /* each way, and a sanitizer, has each kind of memory with some number of members */
        struct run run = {.group = p->group,
                          .rank = p->rank,
                          .size = p->size,
                          .memory = memory,
                          .counts = num_counts,
                          .expected = expected};
        run_table(&run);
        CHECK(is_near(p->comm) == !p->tcp);
        CHECK(run.length == length);
    }
    free(expected);
    /* the end of a member ends the calls that others are still in */
    atomic_fetch_add(&board->done, 1);
    await_word(&board->done, p->size);
}

/* --- Processes -------------------------------------------------------------------------------- */

/* Forks members, each of which joins and runs `body`. */
static void
start(pid_t pids[MOST], uint32_t size, bool tcp, const char *way, void (*body)(comm_process *))
{
    uint32_t channel = channels++;
    memset(board, 0, sizeof *board);
    fflush(stdout);
    for (uint32_t r = 0; r < size; r++) {
        pids[r] = fork();
        CHECK(pids[r] >= 0);
        if (pids[r] != 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        comm_process p = {.folder = folder,
                          .size = size,
                          .rank = r,
                          .channel = channel,
                          .tcp = tcp,
                          .way = way,
                          .figures = figures[size]};
        comm_process_join(&p);
        exo_group_set_timeout(p.group, 120 * EXO_SECOND);
        body(&p);
        comm_process_leave(&p);
        fflush(NULL);
        _exit(EXIT_SUCCESS);
    }
}

static void
fill_figures(void)
{
    for (uint32_t size = 1; size <= MOST; size++)
        for (uint32_t a = 0; a < size; a++)
            for (uint32_t b = 0; b < size; b++)
                figures[size][a * size + b] = (exo_link_figure){
                    .rate = a + b == 3 && a * b == 2 ? 1e6 : 1e9, .latency = 1e-4};
}

static void
expect_end(pid_t pid, bool killed)
{
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    if (killed)
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    else
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void
bits(uint32_t size, bool tcp, const char *way)
{
    pid_t pids[MOST];
    start(pids, size, tcp, way, bits_main);
    for (uint32_t r = 0; r < size; r++)
        expect_end(pids[r], false);
    printf("bits of %u members%s, %s\n", size, tcp ? ", by messages" : "",
           way ? way : "all memory");
}

/* --- Faults ----------------------------------------------------------------------------------- */

/* Calls until a call fails. Then writes to its buffer and finds nothing else there when all others
 * have ended. */
static void
fault_main(comm_process *p, bool stops)
{
    exo_err err = {0};
    exo_array array;
    exo_status st = EXO_OK;
    CHECK(exo_array_init(&array, exo_device_cpu(), EXO_F32, FAULT_BYTES / 4, NULL) == EXO_OK);
    exo_array data = exo_array_part(array, 5, array.count - 9);
    /* until the boards are shared and the buffers mapped, nobody is in a hurry */
    CHECK(exo_all_reduce(p->group, data, EXO_SUM, NULL) == EXO_OK);
    if (stops)
        exo_group_set_timeout(p->group, EXO_SECOND / 2);
    while (st == EXO_OK) {
        atomic_fetch_add(&board->calls[p->rank], 1);
        st = exo_all_reduce(p->group, data, EXO_MEAN, &err);
    }
    exo_vec_fill(array, (float)p->rank + 0.5f);
    memcpy(board->texts[p->rank], err.text, sizeof err.text);
    atomic_store(&board->failed[p->rank], 1 + (uint32_t)st);
    await_word(&board->resumed, 1);
    for (size_t i = 0; i < array.count; i++)
        CHECK(((const float *)array.data)[i] == (float)p->rank + 0.5f);
    exo_array_release(&array);
}

static void
killed_main(comm_process *p)
{
    fault_main(p, false);
}

static void
stopped_main(comm_process *p)
{
    fault_main(p, true);
}

/* Waits until the member is in its second call, or its first one has failed: then the machine was so busy
 * that a deadline passed. */
static void
await_calls(uint32_t member)
{
    for (int i = 0; atomic_load(&board->calls[member]) < 2 && !atomic_load(&board->failed[member]);
         i++) {
        CHECK(i < 120 * 1000);
        usleep(1000);
    }
}

static void
kill_one(uint32_t size, bool tcp, const char *way)
{
    pid_t pids[MOST];
    uint32_t victim = (uint32_t)(processes_random(&seed) % size);
    char name[32];
    snprintf(name, sizeof name, "node_%u", victim);
    start(pids, size, tcp, way, killed_main);
    await_calls(victim);
    usleep((useconds_t)(processes_random(&seed) % 20000));
    CHECK(kill(pids[victim], SIGKILL) == 0);
    for (uint32_t r = 0; r < size; r++)
        if (r != victim) {
            await_word(&board->failed[r], 1);
            CHECK(atomic_load(&board->failed[r]) == 1 + EXO_PEER_LOST);
            if (!strstr(board->texts[r], name))
                fprintf(stderr, "%s was killed: %s\n", name, board->texts[r]);
            CHECK(strstr(board->texts[r], name) != NULL);
        }
    expect_end(pids[victim], true);
    atomic_store(&board->resumed, 1);
    for (uint32_t r = 0; r < size; r++)
        if (r != victim)
            expect_end(pids[r], false);
}

static void
stop_one(uint32_t size)
{
    pid_t pids[MOST];
    uint32_t victim = (uint32_t)(processes_random(&seed) % size);
    start(pids, size, false, NULL, stopped_main);
    await_calls(victim);
    usleep((useconds_t)(processes_random(&seed) % 20000));
    CHECK(kill(pids[victim], SIGSTOP) == 0);
    for (uint32_t r = 0; r < size; r++)
        if (r != victim) {
            await_word(&board->failed[r], 1);
            CHECK(atomic_load(&board->failed[r]) == 1 + EXO_TIMEOUT);
        }
    CHECK(kill(pids[victim], SIGCONT) == 0);
    await_word(&board->failed[victim], 1);
    CHECK(atomic_load(&board->failed[victim]) > 1);
    atomic_store(&board->resumed, 1);
    for (uint32_t r = 0; r < size; r++)
        expect_end(pids[r], false);
}

/* --- A hostile member ------------------------------------------------------------------------- */

static _Atomic bool over;

/* Writes random words over the member's own board, but not into its data, or over single words of
 * it. */
static void *
scribble(void *argument)
{
    exo_near *near = argument;
    uint64_t state = seed + (uint64_t)getpid();
    uint64_t *words = (uint64_t *)(void *)near->board;
    size_t num = (exo_near_board_bytes(near->size) - 2 * EXO_NEAR_PIECE) / sizeof *words;
    while (!atomic_load(&over)) {
        uint64_t number = processes_random(&state);
        words[processes_random(&state) % num] = number % 3 == 0   ? 0
                                                : number % 3 == 1 ? number >> 58
                                                                  : number;
        if (number % 64 == 0)
            usleep(50);
    }
    return NULL;
}

static void
hostile_main(comm_process *p)
{
    pthread_t thread;
    exo_status st = EXO_OK;
    exo_array array;
    CHECK(exo_array_init(&array, exo_device_cpu(), EXO_F32, 1 << 18, NULL) == EXO_OK);
    st = exo_all_reduce(p->group, array, EXO_SUM, NULL);
    exo_group_set_timeout(p->group, EXO_SECOND);
    exo_near *near = ((exo_far *)p->comm->state)->near;
    bool hostile = p->rank == 0 && st == EXO_OK;
    if (hostile)
        CHECK(pthread_create(&thread, NULL, scribble, near) == 0);
    for (int i = 0; st == EXO_OK && i < 3000; i++) {
        exo_array part = exo_array_part(array, 0, i % 3 == 0 ? 100 : array.count >> (i % 3));
        st = i % 2 ? exo_all_reduce(p->group, part, EXO_SUM, NULL)
                   : exo_all_gather(p->group, part, NULL);
    }
    atomic_store(&over, true);
    if (hostile)
        pthread_join(thread, NULL);
    exo_array_release(&array);
}

static void
meet_hostile(uint32_t size)
{
    pid_t pids[MOST];
    start(pids, size, false, NULL, hostile_main);
    for (uint32_t r = 0; r < size; r++)
        expect_end(pids[r], false);
}

int
main(void)
{
    uint64_t rounds = processes_setting("EXO_COLLECTIVES_ROUNDS", SANITIZED ? 3 : 5);
    char command[128];
    seed = processes_setting("EXO_CHAOS_SEED", (uint64_t)getpid());
    fill_figures();
    printf("EXO_CHAOS_SEED=%llu\n", (unsigned long long)seed);
    strcpy(folder, "/tmp/exogym-test-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    pid_t head = comm_process_head(folder);
    bits(2, false, NULL);
    bits(3, false, NULL);
    bits(4, false, NULL);
    for (size_t w = 0; w < WAYS; w++)
        for (uint32_t size = 2; size <= MOST; size++) {
            /* two or three sizes of each, under sanitizers one or two */
            if ((SANITIZED || size != 3) && size % WAYS != w && size != 2 + w % 4)
                continue;
            bits(size, true, ways[w]);
            if (w > TREE) /* the others sum in rank order, as above */
                bits(size, false, ways[w]);
        }
    for (uint64_t i = 0; i < rounds; i++)
        kill_one(2 + (uint32_t)(i % 3), false, NULL);
    for (uint64_t i = 0; i < rounds; i++)
        kill_one(4, true, ways[i % WAYS]);
    printf("%llu deaths, in shared memory and by messages\n", (unsigned long long)rounds);
    for (uint64_t i = 0; i < rounds; i++)
        stop_one(2 + (uint32_t)(i % 3));
    printf("%llu stops\n", (unsigned long long)rounds);
    for (uint64_t i = 0; i < rounds; i++)
        meet_hostile(2 + (uint32_t)(i % 3));
    printf("%llu hostile members\n", (unsigned long long)rounds);
    kill(head, SIGKILL);
    waitpid(head, NULL, 0);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
    puts("4 passed, 0 failed");
    return 0;
}
