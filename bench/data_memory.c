/* The memory that training data takes, with one node and with four: prints the resident memory of
 * the loaded data set, and with the loaders of one and of four nodes that read from it. All nodes
 * share one data set, so the loaders of four nodes should add little.
 *
 *     bench_data_memory [fashion_mnist]
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <exogym/data.h>

enum {
    NODES = 4,
    BATCH = 256,
    BATCHES = 8
};

static double
resident_mib(void)
{
    long pages = 0, ignored = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file && fscanf(file, "%ld %ld", &ignored, &pages) != 2)
        pages = 0;
    if (file)
        fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

static exo_status
read_some(exo_dataset *train, exo_loader **loaders, uint32_t nodes, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t r = 0; st == EXO_OK && r < nodes; r++) {
        const exo_loader_opts opts = {
            .num_nodes = nodes, .rank = r, .shuffle = true, .batch_size = BATCH};
        st = exo_loader_open(&loaders[r], train, &opts, err);
    }
    for (int b = 0; st == EXO_OK && b < BATCHES; b++) {
        for (uint32_t r = 0; st == EXO_OK && r < nodes; r++) {
            const exo_batch *batch = NULL;
            st = exo_loader_next(loaders[r], 60 * EXO_SECOND, &batch, err);
        }
    }
    return st;
}

int
main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "fashion_mnist";
    exo_dataset *train = NULL, *val = NULL;
    exo_err err = {0};
    double before = resident_mib();
    exo_status st = exo_dataset_named(name, NULL, &train, &val, &err);
    double loaded = resident_mib();
    printf("%-28s %8.1f MiB\n", "data set in memory", loaded - before);
    for (uint32_t nodes = 1; st == EXO_OK && nodes <= NODES; nodes *= 4) {
        exo_loader *loaders[NODES] = {NULL};
        st = read_some(train, loaders, nodes, &err);
        printf("and the loaders of %u node%s   %8.1f MiB\n", nodes, nodes == 1 ? " " : "s",
               resident_mib() - before);
        for (uint32_t r = 0; r < nodes; r++)
            exo_loader_close(&loaders[r]);
    }
    if (st != EXO_OK)
        fprintf(stderr, "bench_data_memory: %s\n", err.text);
    exo_dataset_drop(&train);
    exo_dataset_drop(&val);
    return st == EXO_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
