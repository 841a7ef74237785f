/* Causal attention of whole batches: rotary and ALiBi tables, and the pieces of attention_kernels.h
 * with all threads. Owner of a plan: its operation. */
#include "nn/cpu/cpu_device.h"

#include <string.h>

#include <exogym/memory.h>

#include "nn/cpu/attention_kernels.h"
#include "nn/cpu/decoder_positions.h"
#include "nn/cpu/invariant.h"
#include "nn/cpu/pieces.h"
#include "nn/cpu/plans.h"

struct attention_plan {
    exo_plan plan;
    exo_attention_shape shape;
    exo_attention_plan base; /* but for dropout */
    float *turns;            /* (T, 2, turned / 2) */
    float *key_turns;        /* the same, of another member's keys */
    float *slopes;           /* (H)                */
};

/* --- Tables ----------------------------------------------------------------------------------- */

/* The rows of a member's positions in `all`, the table of all positions. */
static float *
turns_of(const exo_attention_shape *shape, size_t member, const float *all)
{
    float *turns = exo_calloc(shape->tokens, shape->turned * sizeof *turns);
    for (size_t t = 0; turns && t < shape->tokens; t++)
        memcpy(turns + t * shape->turned,
               all + exo_attention_position(shape, member, t) * shape->turned,
               shape->turned * sizeof *turns);
    return turns;
}

static bool
make_turns(struct attention_plan *p, const exo_attention_shape *shape)
{
    size_t count, positions;
    if (__builtin_mul_overflow(shape->tokens, shape->members ? shape->members : 1, &positions) ||
        __builtin_mul_overflow(positions, shape->turned, &count))
        return false;
    float *all = exo_calloc(count, sizeof *all);
    if (!all)
        return false;
    exo_rotary_table(shape->theta, shape->turned, shape->scaled ? shape->factors : NULL, positions,
                     all);
    if (shape->members == 0) {
        p->turns = all;
        return true;
    }
    p->turns = turns_of(shape, shape->rank, all);
    p->key_turns = turns_of(shape, shape->from, all);
    exo_free(all);
    return p->turns && p->key_turns;
}

static bool
make_tables(struct attention_plan *p, const exo_attention_shape *shape)
{
    if (shape->turned && !make_turns(p, shape))
        return false;
    if (shape->alibi) {
        p->slopes = exo_calloc(shape->heads, sizeof *p->slopes);
        if (!p->slopes)
            return false;
        exo_alibi_slopes(shape->heads, p->slopes);
    }
    return true;
}

static exo_attention_plan
base_of(const exo_attention_shape *shape)
{
    size_t first_query = 0, seen = 0;
    if (shape->from != shape->rank)
        exo_attention_seen(shape, &first_query, &seen);
    return (exo_attention_plan){.first_query = first_query,
                                .seen = seen,
                                .sequences = shape->sequences,
                                .tokens = shape->tokens,
                                .heads = shape->heads,
                                .kv_heads = shape->kv_heads,
                                .width = shape->width,
                                .dtype = (exo_dtype)shape->dtype,
                                .scale = (float)shape->scale,
                                .turned = shape->turned,
                                .dropped = (uint32_t)shape->dropout};
}

exo_status
exo_cpu_attention_plan(exo_plan **out, const exo_attention_shape *shape, exo_err *err)
{
    if (shape->invariant && shape->width > EXO_DECODE_MAX_HEAD)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "attention: a head is %zu wide; the most in an invariant pass is %d",
                        shape->width, EXO_DECODE_MAX_HEAD);
    struct attention_plan *p = exo_calloc(1, sizeof *p);
    if (!p || !make_tables(p, shape)) {
        if (p)
            exo_cpu_attention_plan_free(&p->plan);
        return exo_fail(err, EXO_NOMEM, "attention: no memory for the tables of %zu positions",
                        shape->tokens);
    }
    p->shape = *shape;
    p->base = base_of(shape);
    p->base.turns = p->turns;
    p->base.key_turns = p->key_turns;
    p->base.slopes = p->slopes;
    *out = &p->plan;
    return EXO_OK;
}

void
exo_cpu_attention_plan_free(exo_plan *plan)
{
    struct attention_plan *p = (struct attention_plan *)(void *)plan;
    exo_free(p->turns);
    exo_free(p->key_turns);
    exo_free(p->slopes);
    exo_free(p);
}

/* Scratch of all runners; SIZE_MAX: it overflows. */
static size_t
runners_scratch(size_t pieces, size_t each)
{
    size_t all;
    return __builtin_mul_overflow(exo_runners(pieces), each, &all) ? SIZE_MAX : all;
}

size_t
exo_cpu_attention_scratch(const exo_attention_shape *shape, exo_scratch_use use)
{
    const exo_attention_plan plan = base_of(shape);
    size_t all, partials = exo_attention_partials(&plan);
    if (use == EXO_SCRATCH_FORWARD && shape->invariant)
        return exo_attention_rows_scratch(shape);
    if (use == EXO_SCRATCH_FORWARD)
        return runners_scratch(exo_attention_forward_pieces(&plan),
                               exo_attention_forward_scratch(&plan));
    all = runners_scratch(exo_attention_backward_pieces(&plan),
                          exo_attention_backward_scratch(&plan));
    return __builtin_add_overflow(all, exo_aligned_size(partials), &all) ? SIZE_MAX : all;
}

/* --- Loops ------------------------------------------------------------------------------------ */

struct loop {
    exo_attention_plan plan;
    size_t scratch_size; /* of a runner */
    char *scratch;
    const exo_attention_args *forward;
    exo_attention_grads grads;
};

static exo_attention_plan
plan_of(exo_plan *plan, const exo_attention_drop *drop)
{
    exo_attention_plan p = ((struct attention_plan *)(void *)plan)->base;
    p.dropped = drop->dropped;
    p.ordinal = drop->ordinal;
    if (drop->dropped)
        exo_rng_init(&p.rng, drop->seed, EXO_RNG_DROPOUT, drop->node, drop->step);
    return p;
}

static void
forward_piece(void *context, size_t runner, size_t index)
{
    const struct loop *l = context;
    exo_attention_forward_piece(&l->plan, index, l->forward->x, l->forward->y, l->forward->lse,
                                l->scratch ? l->scratch + runner * l->scratch_size : NULL);
}

exo_status
exo_cpu_attention(exo_device *device, const exo_attention_args *k, exo_err *err)
{
    const struct attention_plan *p = (const struct attention_plan *)(const void *)k->plan;
    struct loop l = {.plan = plan_of(k->plan, &k->drop), .scratch = k->scratch, .forward = k};
    (void)device;
    (void)err;
    if (p->shape.invariant) {
        exo_attention_rows(&p->shape, p->turns, p->slopes, k);
        return EXO_OK;
    }
    l.plan.others = k->others;
    l.scratch_size = exo_attention_forward_scratch(&l.plan);
    exo_run_for(exo_attention_forward_pieces(&l.plan), forward_piece, &l);
    return EXO_OK;
}

static void
backward_piece(void *context, size_t runner, size_t index)
{
    const struct loop *l = context;
    exo_attention_backward_piece(&l->plan, index, &l->grads,
                                 l->scratch ? l->scratch + runner * l->scratch_size : NULL);
}

static void
gather_piece(void *context, size_t index)
{
    const struct loop *l = context;
    exo_attention_gather_piece(&l->plan, index, &l->grads);
}

/* The queries' partial gradients lie at the beginning of the scratch. */
exo_status
exo_cpu_attention_backward(exo_device *device, const exo_attention_backward_args *k, exo_err *err)
{
    struct loop l = {
        .plan = plan_of(k->plan, &k->drop),
        .grads = {
            .x = k->x, .out = k->y, .dout = k->dy, .lse = k->lse, .dx = k->dx, .add = k->add}};
    l.plan.others = k->others;
    l.grads.dothers = k->dothers;
    l.grads.add |= k->others != NULL;
    size_t partials = exo_attention_partials(&l.plan);
    (void)device;
    (void)err;
    l.grads.partials = partials ? k->scratch : NULL;
    l.scratch_size = exo_attention_backward_scratch(&l.plan);
    l.scratch = l.scratch_size ? (char *)k->scratch + exo_aligned_size(partials) : NULL;
    exo_run_for(exo_attention_backward_pieces(&l.plan), backward_piece, &l);
    if (partials)
        exo_parallel_for(exo_attention_gather_pieces(&l.plan), gather_piece, &l);
    return EXO_OK;
}
