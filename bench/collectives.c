/* All-reduce in place among the threads of one process: the time of a call, and its rate beside
 * memcpy's in the same run. The rate counts the bytes that a call must at least move: it reads and
 * writes every buffer once.
 *
 *     bench_collectives
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/comm.h>
#include <exogym/memory.h>

enum {
    MAX_MEMBERS = 4,
    ROUNDS = 9
};

struct member {
    exo_comm *comm;
    uint32_t rank;
    size_t count;
    float *data;
    exo_time times[ROUNDS];
    exo_status status;
};

static void *
member_main(void *argument)
{
    struct member *m = argument;
    exo_group *group = NULL;
    m->status = exo_group_open(&group, m->comm, m->rank, NULL, NULL);
    for (int i = 0; m->status == EXO_OK && i < ROUNDS; i++) {
        m->status = exo_barrier(group, NULL);
        exo_time before = exo_now(exo_clock_real());
        if (m->status == EXO_OK)
            m->status =
                exo_all_reduce(group, exo_host_array(EXO_F32, m->data, m->count), EXO_MEAN, NULL);
        m->times[i] = exo_now(exo_clock_real()) - before;
    }
    exo_group_close(&group);
    return NULL;
}

static int
compare_times(const void *a, const void *b)
{
    exo_time x = *(const exo_time *)a, y = *(const exo_time *)b;
    return x < y ? -1 : x > y;
}

/* The median time of a call, in seconds; negative: a call failed. */
static double
measure(uint32_t size, size_t count)
{
    struct member members[MAX_MEMBERS] = {0};
    pthread_t threads[MAX_MEMBERS];
    exo_comm *comm = NULL;
    bool good = exo_comm_local(&comm, size, exo_clock_real(), NULL) == EXO_OK;
    for (uint32_t r = 0; good && r < size; r++) {
        members[r] = (struct member){.comm = comm, .rank = r, .count = count};
        members[r].data = exo_alloc_aligned(count * sizeof(float));
        good = members[r].data && pthread_create(&threads[r], NULL, member_main, &members[r]) == 0;
        if (!good)
            exit(EXIT_FAILURE); /* the members that run would wait for this one */
    }
    for (uint32_t r = 0; good && r < size; r++)
        pthread_join(threads[r], NULL);
    for (uint32_t r = 0; r < size; r++) {
        good = good && members[r].status == EXO_OK;
        exo_free(members[r].data);
    }
    exo_comm_drop(&comm);
    qsort(members[0].times, ROUNDS, sizeof members[0].times[0], compare_times);
    return good ? (double)members[0].times[ROUNDS / 2] * 1e-9 : -1;
}

/* Bytes per second that memcpy reads and writes on one thread. */
static double
memory_rate(void)
{
    size_t bytes = (size_t)128 << 20;
    char *a = exo_alloc_aligned(bytes), *b = exo_alloc_aligned(bytes);
    exo_time times[ROUNDS];
    if (!a || !b)
        exit(EXIT_FAILURE);
    for (int i = 0; i < ROUNDS; i++) {
        exo_time before = exo_now(exo_clock_real());
        memcpy(a, b, bytes);
        times[i] = exo_now(exo_clock_real()) - before;
    }
    exo_free(a);
    exo_free(b);
    qsort(times, ROUNDS, sizeof times[0], compare_times);
    return 2.0 * (double)bytes / ((double)times[ROUNDS / 2] * 1e-9);
}

int
main(void)
{
    static const size_t sizes[] = {4 << 10, 1 << 20, 16 << 20, 128 << 20};
    double rate = memory_rate();
    printf("memcpy, one thread: %.1f GB/s read and written\n\n", rate * 1e-9);
    printf("members      bytes     all_reduce   of memcpy's rate\n");
    for (uint32_t size = 2; size <= MAX_MEMBERS; size *= 2) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            double seconds = measure(size, sizes[i] / sizeof(float));
            if (seconds < 0)
                return EXIT_FAILURE;
            printf("%7u %10zu %11.1f us %17.2f\n", size, sizes[i], seconds * 1e6,
                   2.0 * (double)sizes[i] * size / seconds / rate);
        }
    }
    return EXIT_SUCCESS;
}
