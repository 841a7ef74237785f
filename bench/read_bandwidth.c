/* The speed at which all threads together read memory. It limits generation, which reads all
 * weights once for each token.
 *
 *     bench_read_bandwidth [--MiB N] [--threads N]
 *
 * Reads an array of N MiB (default: 1,024) for at least half a second and 10 passes, and prints the
 * fastest pass. An array that fits into the last-level cache is read from there, as weights of that
 * size are. The file is compiled for this machine, with its widest loads. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/clock.h>
#include <exogym/memory.h>
#include <exogym/tensor.h>

#include "base/parallel.h"

enum {
    PIECE = 1 << 17, /* words that one thread reads at once: 1 MiB */
    LANES = 32,      /* partial sums: four registers of 512 bits */
    PASSES = 10      /* at least */
};

struct reading {
    uint64_t *words; /* (pieces, PIECE) */
    uint64_t *sums;  /* (pieces); printed, so that no read is optimized away */
};

static void
write_piece(void *context, size_t piece)
{
    struct reading *r = context;
    for (size_t i = 0; i < PIECE; i++)
        r->words[piece * PIECE + i] = piece + i;
}

static void
read_piece(void *context, size_t piece)
{
    struct reading *r = context;
    const uint64_t *words = r->words + piece * PIECE;
    uint64_t sum[LANES] = {0};
    for (size_t i = 0; i < PIECE; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            sum[l] += words[i + l];
    for (size_t l = 1; l < LANES; l++)
        sum[0] += sum[l];
    r->sums[piece] = sum[0];
}

int
main(int argc, char **argv)
{
    size_t mib = 1024;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--MiB") == 0)
            mib = strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--threads") == 0)
            exo_set_num_threads((unsigned)atoi(argv[i + 1]));
    }
    if (mib < 1 || mib > 1 << 16) {
        fprintf(stderr, "bench_read_bandwidth: MiB 1 to 65536\n");
        return 2;
    }
    struct reading r = {.words = exo_alloc_aligned(mib << 20),
                        .sums = exo_calloc(mib, sizeof *r.sums)};
    if (!r.words || !r.sums) {
        fprintf(stderr, "bench_read_bandwidth: no memory for %zu MiB\n", mib);
        return EXIT_FAILURE;
    }
    exo_parallel_for(mib, write_piece, &r);
    exo_time begin = exo_now(exo_clock_real()), best = INT64_MAX, now = begin;
    for (int pass = 0; pass < PASSES || now - begin < 500 * EXO_MS; pass++) {
        exo_time before = now;
        exo_parallel_for(mib, read_piece, &r);
        now = exo_now(exo_clock_real());
        best = now - before < best ? now - before : best;
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < mib; i++)
        sum += r.sums[i];
    printf("read MiB=%zu threads=%u GB_per_second=%.1f sum=%" PRIx64 "\n", mib, exo_num_threads(),
           (double)(mib << 20) / (double)best, sum);
    exo_free(r.words);
    exo_free(r.sums);
    return EXIT_SUCCESS;
}
