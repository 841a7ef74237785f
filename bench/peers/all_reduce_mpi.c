/* MPI_Allreduce in place of fp32, as bench_collectives measures exogym: prints for each size its
 * bytes and the median time of a call in microseconds. Before each call every member writes its
 * buffer, unless --warm is given.
 *
 *     mpicc -O3 -march=native all_reduce_mpi.c -o all_reduce_mpi && mpirun -n 2 ./all_reduce_mpi */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

static const size_t sizes[] = {4 << 10, 16 << 10, 64 << 10, 256 << 10,
                               1 << 20, 4 << 20,  16 << 20, 128 << 20};

static int
compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void
fill(float *data, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        data[i] = value;
}

int
main(int argc, char **argv)
{
    static double times[2000];
    int warm = argc > 1 && strcmp(argv[1], "--warm") == 0, rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    float *data = aligned_alloc(2 << 20, 128 << 20);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        size_t count = sizes[s] / sizeof *data;
        int rounds = sizes[s] <= 64 << 10 ? 2000 : sizes[s] <= 4 << 20 ? 100 : 9;
        fill(data, count, 1);
        for (int i = 0; i < rounds; i++) {
            if (!warm)
                fill(data, count, (float)(rank + 1));
            MPI_Barrier(MPI_COMM_WORLD);
            double before = MPI_Wtime();
            MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            times[i] = MPI_Wtime() - before;
            if (warm && i % 16 == 15)
                fill(data, count, 1);
        }
        qsort(times, (size_t)rounds, sizeof times[0], compare);
        if (rank == 0)
            printf("%zu %.2f\n", sizes[s], times[rounds / 2] * 1e6);
        fflush(stdout);
    }
    free(data);
    MPI_Finalize();
    return 0;
}
