/* The speed of codecs on an array that resembles a gradient: bytes of the array per second, for
 * encode and decode, beside memcpy of the same array. Each round times memcpy and then every codec,
 * so that all see the machine in the same state. Ratios are within one round; all figures are
 * medians over the rounds. Codecs and memcpy use all threads of the process (EXOGYM_THREADS).
 *
 *     bench_codecs [ELEMENTS [ROUNDS]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

#include "base/parallel.h"
#include "limits.h"

static const char *const chains[] = {
    "raw",
    "fp16",
    "bf16",
    "fp8",
    "{name: fp8, format: e5m2}",
    "{name: fp8, block: 0}",
    "int8",
    "int4",
    "e3m0",
    "{name: topk, ratio: 0.01}",
    "{name: topk, ratio: 0.01, error_feedback: false}",
    "{name: topk, ratio: 0.01, block: 4096}",
    "{name: topk, ratio: 0.2}",
    "[{name: topk, ratio: 0.01}, bf16, zstd]",
    "{name: sparse, selector: shuffled_sequential, p: 0.01}",
    "lz4",
    "{name: zstd, level: 1}",
    "[bf16, {name: zstd, level: 1}]",
    "[int8, {name: zstd, level: 1}]",
};

enum {
    CHAINS = sizeof chains / sizeof *chains,
    PIECES = 64,
};

static size_t count;
static float *values, *copied;

static void
copy_piece(void *unused, size_t index)
{
    (void)unused;
    size_t first = count * index / PIECES, end = count * (index + 1) / PIECES;
    memcpy(copied + first, values + first, (end - first) * sizeof *values);
}

/* Gigabytes of the array per second since `start`. */
static double
rate(int64_t start)
{
    return (double)count * sizeof(float) / (double)(bench_now() - start);
}

struct figures {
    exo_codec *codec;
    size_t size;
    double encode[BENCH_MAX_REPEATS], decode[BENCH_MAX_REPEATS];
    double encode_ratio[BENCH_MAX_REPEATS], decode_ratio[BENCH_MAX_REPEATS];
};

int
main(int argc, char **argv)
{
    static struct figures all[CHAINS];
    static double copies[BENCH_MAX_REPEATS];
    count = argc > 1 ? strtoull(argv[1], NULL, 10) : 1868234; /* parameters of the examples' CNN */
    size_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : 15;
    exo_err err = {0};
    size_t room = 0;
    if (count == 0 || rounds == 0 || rounds > BENCH_MAX_REPEATS) {
        fprintf(stderr, "usage: bench_codecs [ELEMENTS [ROUNDS (1 to %d)]]\n", BENCH_MAX_REPEATS);
        return 2;
    }
    for (size_t c = 0; c < CHAINS; c++) {
        if (exo_codec_parse(&all[c].codec, chains[c], &err) != EXO_OK) {
            fprintf(stderr, "bench_codecs: %s\n", err.text);
            return 1;
        }
        size_t bound = exo_codec_bound(all[c].codec, count);
        room = bound > room ? bound : room;
    }
    uint8_t *bytes = exo_alloc_aligned(room);
    values = exo_alloc_aligned(count * sizeof *values);
    copied = exo_alloc_aligned(count * sizeof *copied);
    if (!bytes || !values || !copied)
        return 1;
    exo_rng rng;
    exo_rng_init(&rng, 1, EXO_RNG_USER, 0, 0);
    for (size_t i = 0; i < count; i++)
        values[i] = 1e-3f * exo_rng_normal(&rng);

    for (size_t r = 0; r <= rounds;
         r++) { /* the first round faults the memory in, and is not counted */
        size_t at = r > 0 ? r - 1 : 0;
        int64_t start = bench_now();
        exo_parallel_for(PIECES, copy_piece, NULL);
        copies[at] = rate(start);
        for (size_t c = 0; c < CHAINS; c++) {
            struct figures *f = &all[c];
            const exo_codec_place place = {.round = r, .seed = 1};
            start = bench_now();
            exo_status st =
                exo_codec_encode(f->codec, &place, values, count, bytes, &f->size, &err);
            f->encode[at] = rate(start);
            start = bench_now();
            if (st == EXO_OK)
                st = exo_codec_decode(f->codec, &place, bytes, f->size, copied, count, &err);
            f->decode[at] = rate(start);
            f->encode_ratio[at] = f->encode[at] / copies[at];
            f->decode_ratio[at] = f->decode[at] / copies[at];
            if (st != EXO_OK) {
                fprintf(stderr, "bench_codecs: %s\n", err.text);
                return 1;
            }
        }
    }
    printf("%zu elements, %u threads, medians of %zu rounds; GB/s of the array, and of memcpy's in "
           "the same round\n",
           count, exo_num_threads(), rounds);
    printf("%-56s %8s %15s %15s\n", "", "size", "encode", "decode");
    printf("%-56s %8s %8.2f\n", "memcpy", "1", bench_median(copies, rounds));
    for (size_t c = 0; c < CHAINS; c++) {
        struct figures *f = &all[c];
        printf("%-56s %8.4f %8.2f %6.2f %8.2f %6.2f\n", chains[c],
               (double)f->size / (double)(count * sizeof(float)), bench_median(f->encode, rounds),
               bench_median(f->encode_ratio, rounds), bench_median(f->decode, rounds),
               bench_median(f->decode_ratio, rounds));
        exo_codec_free(&f->codec);
    }
    exo_free(bytes);
    exo_free(values);
    exo_free(copied);
    return 0;
}
