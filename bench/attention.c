/* Attention alone, at the shapes of models that are trained on two cores: milliseconds and GFLOP/s of forward and of backward, in fp32 and
 * bf16. Counted are the products on and below the diagonal: 2 of them forward, 5 backward (the scores again). Median of 30.
 *
 *     bench_attention
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/sequence.h>

#include "limits.h"
#include "parallel.h"

enum {
    REPEATS = 30
};

struct shape {
    const char *name;
    size_t sequences, tokens, heads, kv_heads, width;
    bool rotary;
    float dropout;
};

static exo_status
measure(const struct shape *s, bool bf16, const float *x, double *forward, double *backward, exo_err *err)
{
    size_t rows = s->sequences * s->tokens, columns = (s->heads + 2 * s->kv_heads) * s->width;
    static double samples[2][REPEATS];
    const exo_rotary_opts rotary = {.theta = 10000.0f};
    const exo_attention_opts opts = {.sequence = s->tokens,
                                     .heads = s->heads,
                                     .kv_heads = s->kv_heads,
                                     .rotary = s->rotary ? &rotary : NULL,
                                     .dropout = s->dropout};
    exo_tape *tape = NULL;
    exo_status st = exo_tape_new(&tape, err);
    for (int i = -3; i < REPEATS && st == EXO_OK; i++) {
        exo_tape_begin(tape, NULL, &(exo_pass){.train = true, .grad = true, .autocast = bf16, .seed = 1});
        exo_tensor *v = exo_tape_variable(tape, 2, (size_t[]){rows, columns}, x);
        v = exo_dropout(tape, bf16 ? exo_scale(tape, v, 1.0f) : v, 0.0f);
        int64_t start = bench_now();
        exo_tensor *y = exo_attention(tape, v, &opts);
        int64_t middle = bench_now();
        exo_tensor *loss = exo_mean(tape, y);
        st = loss ? EXO_OK : exo_tape_error(tape, err);
        int64_t before = bench_now();
        if (st == EXO_OK)
            st = exo_tape_backward(tape, loss, 1.0f, err);
        int64_t end = bench_now();
        if (i >= 0) {
            samples[0][i] = (double)(middle - start) / 1e6;
            samples[1][i] = (double)(end - before) / 1e6;
        }
    }
    exo_tape_free(&tape);
    *forward = bench_median(samples[0], REPEATS);
    *backward = bench_median(samples[1], REPEATS);
    return st;
}
