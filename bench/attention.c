/* Causal attention alone, at the shapes of models that are trained on two cores: milliseconds and
 * GFLOP/s of forward and of backward, in fp32 and bf16. The count has the products on and below the
 * diagonal: 2 in forward, and 5 in backward, which computes the scores again. Median of 51 rounds
 * of a forward and a backward. bench/peers/attention.py measures the same of PyTorch.
 *
 *     bench_attention
 */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <exogym/exogym.h>

#include "base/bf16.h"
#include "base/parallel.h"
#include "limits.h"
#include "nn/cpu/attention_kernels.h"

enum {
    REPEATS = 51,
    WARM_UP = 5
};

struct run {
    exo_attention_plan plan;
    exo_attention_grads grads;
    void *x, *out, *dout;
    float *lse;
    char *scratch;
    size_t scratch_size, count;
    atomic_size_t next;
    void (*piece)(struct run *run, size_t index, void *scratch);
};

static void
forward_piece(struct run *r, size_t index, void *scratch)
{
    exo_attention_forward_piece(&r->plan, index, r->x, r->out, r->lse, scratch);
}

static void
backward_piece(struct run *r, size_t index, void *scratch)
{
    exo_attention_backward_piece(&r->plan, index, &r->grads, scratch);
}

static void
gather_piece(struct run *r, size_t index, void *scratch)
{
    (void)scratch;
    exo_attention_gather_piece(&r->plan, index, &r->grads);
}

static void
runner(void *context, size_t index)
{
    struct run *r = context;
    for (size_t i; (i = atomic_fetch_add(&r->next, 1)) < r->count;)
        r->piece(r, i, r->scratch + index * r->scratch_size);
}

static void
loop(struct run *r, size_t count, void (*piece)(struct run *run, size_t index, void *scratch))
{
    r->piece = piece;
    r->count = count;
    r->next = 0;
    exo_parallel_for(exo_num_threads(), runner, r);
}

static void
forward(struct run *r)
{
    loop(r, exo_attention_forward_pieces(&r->plan), forward_piece);
}

static void
backward(struct run *r)
{
    loop(r, exo_attention_backward_pieces(&r->plan), backward_piece);
    loop(r, exo_attention_gather_pieces(&r->plan), gather_piece);
}

/* `count` standard normal numbers of type `type`; NULL: no memory. */
static void *
numbers(exo_dtype type, size_t count, uint64_t seed)
{
    void *out = exo_alloc_aligned(count * exo_dtype_size(type));
    exo_rng rng;
    exo_rng_init(&rng, seed, EXO_RNG_USER, 0, 0);
    for (size_t i = 0; out && i < count; i++) {
        float value = exo_rng_normal(&rng);
        if (type == EXO_F32)
            ((float *)out)[i] = value;
        else
            ((uint16_t *)out)[i] = exo_to_bf16(value);
    }
    return out;
}

static void
measure(struct run *r, double *forward_ms, double *backward_ms)
{
    static double samples[2][REPEATS];
    for (int i = -WARM_UP; i < REPEATS; i++) {
        int64_t start = bench_now();
        forward(r);
        int64_t middle = bench_now();
        backward(r);
        int64_t end = bench_now();
        if (i >= 0) {
            samples[0][i] = (double)(middle - start) / 1e6;
            samples[1][i] = (double)(end - middle) / 1e6;
        }
    }
    *forward_ms = bench_median(samples[0], REPEATS);
    *backward_ms = bench_median(samples[1], REPEATS);
}

static bool
run_shape(const char *name, exo_attention_plan plan)
{
    size_t rows = plan.sequences * plan.tokens, in = (plan.heads + 2 * plan.kv_heads) * plan.width;
    size_t out = plan.heads * plan.width, partials = exo_attention_partials(&plan);
    size_t one = exo_attention_forward_scratch(&plan),
           other = exo_attention_backward_scratch(&plan);
    struct run r = {.plan = plan, .scratch_size = one > other ? one : other};
    double ms[2], flops = (double)(rows * (plan.tokens + 1) / 2 * plan.heads * plan.width) * 2;
    r.plan.scale = 1.0f / sqrtf((float)plan.width);
    r.x = numbers(plan.dtype, rows * in, 1);
    r.dout = numbers(plan.dtype, rows * out, 2);
    r.out = numbers(plan.dtype, rows * out, 3);
    r.lse = exo_alloc_aligned(rows * plan.heads * sizeof(float));
    r.scratch = exo_alloc_aligned(exo_num_threads() * r.scratch_size);
    r.grads = (exo_attention_grads){.x = r.x, .out = r.out, .dout = r.dout, .lse = r.lse};
    r.grads.dx = numbers(plan.dtype, rows * in, 4);
    r.grads.partials = partials ? exo_alloc_aligned(partials) : NULL;
    bool ok = r.x && r.dout && r.out && r.lse && r.scratch && r.grads.dx &&
              (!partials || r.grads.partials);
    if (ok) {
        measure(&r, &ms[0], &ms[1]);
        printf("%-28s %s  forward %7.3f ms %6.1f GFLOP/s  backward %7.3f ms %6.1f GFLOP/s  both "
               "%7.3f ms\n",
               name, exo_dtype_name(plan.dtype), ms[0], 2 * flops / ms[0] / 1e6, ms[1],
               5 * flops / ms[1] / 1e6, ms[0] + ms[1]);
    }
    void *all[] = {r.x, r.dout, r.out, r.lse, r.scratch, r.grads.dx, r.grads.partials};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        exo_free(all[i]);
    return ok;
}

int
main(void)
{
    static const struct {
        const char *name;
        exo_attention_plan plan;
    } shapes[] = {
        {"4 heads of 32, T 256, N 16",
         {.sequences = 16, .tokens = 256, .heads = 4, .kv_heads = 4, .width = 32}},
        {"4 heads of 32, T 1024, N 1",
         {.sequences = 1, .tokens = 1024, .heads = 4, .kv_heads = 4, .width = 32}},
        {"12 heads of 64, T 1024, N 1",
         {.sequences = 1, .tokens = 1024, .heads = 12, .kv_heads = 12, .width = 64}},
        {"the same with dropout",
         {.sequences = 1,
          .tokens = 1024,
          .heads = 12,
          .kv_heads = 12,
          .width = 64,
          .dropped = 6554}},
        {"12 of 64 on 4, T 1024, N 1",
         {.sequences = 1, .tokens = 1024, .heads = 12, .kv_heads = 4, .width = 64}},
    };
    printf("%u threads\n", exo_num_threads());
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int bf16 = 0; bf16 < 2; bf16++) {
            exo_attention_plan plan = shapes[i].plan;
            plan.dtype = bf16 ? EXO_BF16 : EXO_F32;
            if (!run_shape(shapes[i].name, plan)) {
                fprintf(stderr, "bench_attention: no memory\n");
                return 1;
            }
        }
    }
    return 0;
}
