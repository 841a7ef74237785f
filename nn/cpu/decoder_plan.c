/* Plans of decoders: see decoder_plan.h. No state. Read next: decoder_pass.c. */
#include "nn/cpu/decoder_plan.h"

#include <exogym/memory.h>

#include "nn/cpu/decoder_positions.h"
#include "nn/cpu/plans.h"

enum {
    LINE = 64 /* the alignment of each array */
};

/* --- Working memory --------------------------------------------------------------------------- */

/* The arrays of a block of memory, one after the other. */
struct room {
    char *memory; /* NULL: they are only counted */
    size_t bytes; /* SIZE_MAX: they cannot be counted */
};

/* count * size bytes more. NULL without memory. */
static void *
take(struct room *r, size_t rows, size_t width, size_t size)
{
    size_t count = 0, bytes = 0, end = 0;
    if (r->bytes == SIZE_MAX || __builtin_mul_overflow(rows, width, &count) ||
        __builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - LINE ||
        __builtin_add_overflow(r->bytes, (bytes + LINE - 1) / LINE * LINE, &end)) {
        r->bytes = SIZE_MAX;
        return NULL;
    }
    char *at = r->memory ? r->memory + r->bytes : NULL;
    r->bytes = end;
    return at;
}

/* Lays out what a part has besides: its shares, and the largest exchange. */
static void
lay_out_part(exo_decoder_activations *a, const exo_decoder_shape *shape, struct room *r)
{
    const exo_decoder_spec *s = &shape->spec;
    size_t members = shape->members, rows = shape->rows, mixed = s->heads * s->head_width;
    size_t widest = s->width > s->inner ? s->width : s->inner;
    widest = widest > mixed ? widest : mixed;
    size_t tokens = (s->vocabulary + members - 1) / members; /* the most of a member */
    size_t logit_rows = rows < EXO_DECODER_LOGIT_ROWS ? rows : EXO_DECODER_LOGIT_ROWS;
    size_t logits = 0, passes = 0;
    bool bad = __builtin_mul_overflow(logit_rows, tokens * members, &logits) ||
               __builtin_mul_overflow(rows, widest, &passes);
    a->my_x = take(r, rows, exo_decode_stride(s->width / members), sizeof *a->my_x);
    a->my_mixed = take(r, rows, exo_decode_stride(mixed / members), sizeof *a->my_mixed);
    a->my_inner = take(r, rows, exo_decode_stride(s->inner / members), sizeof *a->my_inner);
    a->my_logits = take(r, logit_rows, exo_decode_stride(tokens), sizeof *a->my_logits);
    a->exchange = take(r, 1,
                       bad               ? SIZE_MAX
                       : passes > logits ? passes
                                         : logits,
                       sizeof *a->exchange);
}

size_t
exo_cpu_decoder_lay_out(exo_decoder_activations *a, const exo_decoder_shape *shape, void *scratch)
{
    const exo_decoder_spec *s = &shape->spec;
    size_t members = exo_cpu_decoder_members(shape);
    size_t rows = shape->rows, width = exo_decode_stride(s->width),
           inner = exo_decode_stride(s->inner), mixed = exo_decode_stride(s->heads * s->head_width),
           qkv = exo_decode_stride((s->heads + 2 * s->kv_heads) / members * s->head_width);
    size_t widest = width > inner ? width : inner;
    widest = widest > mixed ? widest : mixed;
    struct room r = {.memory = scratch};
    a->groups = (widest + EXO_DECODE_GROUP - 1) / EXO_DECODE_GROUP;
    a->x = take(&r, rows, width, sizeof *a->x);
    a->h = take(&r, rows, width, sizeof *a->h);
    a->qkv = take(&r, rows, qkv, sizeof *a->qkv);
    a->mixed = take(&r, rows, mixed, sizeof *a->mixed);
    a->inner = take(&r, rows, inner, sizeof *a->inner);
    a->q = take(&r, rows, widest, sizeof *a->q);
    a->scales = take(&r, rows, a->groups, sizeof *a->scales);
    a->sums = take(&r, rows, a->groups, sizeof *a->sums);
    a->my_x = a->my_logits = a->exchange = NULL;
    a->my_mixed = a->mixed;
    a->my_inner = a->inner;
    if (shape->members > 0)
        lay_out_part(a, shape, &r);
    return r.bytes;
}

size_t
exo_cpu_decoder_cache(const exo_decoder_shape *shape)
{
    const exo_decoder_spec *s = &shape->spec;
    size_t head = exo_decode_keys_size(shape->context, s->head_width) +
                  exo_decode_values_size(shape->context, s->head_width);
    size_t heads = 0, floats = 0, bytes = 0;
    size_t mine = s->kv_heads / exo_cpu_decoder_members(shape);
    return __builtin_mul_overflow(mine, s->layers, &heads) ||
                   __builtin_mul_overflow(head, heads, &floats) ||
                   __builtin_mul_overflow(floats, sizeof(float), &bytes)
               ? SIZE_MAX
               : floats;
}

size_t
exo_cpu_decoder_scratch(const exo_decoder_shape *shape, exo_scratch_use use)
{
    exo_decoder_activations counted = {0};
    exo_decoder_weights weights = {0};
    size_t bytes = 0;
    switch (use) {
    case EXO_SCRATCH_FORWARD:
        return exo_cpu_decoder_lay_out(&counted, shape, NULL);
    case EXO_SCRATCH_CACHE:
        return exo_cpu_decoder_cache(shape) * sizeof(float);
    case EXO_SCRATCH_WEIGHTS:
        bytes =
            exo_decoder_weights_init(&weights, shape, NULL) == EXO_OK ? weights.bytes : SIZE_MAX;
        exo_decoder_weights_release(&weights);
        return bytes;
    case EXO_SCRATCH_BACKWARD:
    case EXO_SCRATCH_ROWS:
    case EXO_SCRATCH_LOGITS:
    case EXO_SCRATCH_CHOICE:
        break;
    }
    return 0;
}

/* --- Plans ------------------------------------------------------------------------------------ */

static exo_status
make_tables(exo_cpu_decoder *d, exo_err *err)
{
    const exo_decoder_spec *s = &d->shape.spec;
    size_t context = d->shape.context;
    float factors[EXO_DECODE_MAX_HEAD / 2];
    d->tile = exo_calloc(d->shape.rows, sizeof *d->tile);
    bool good = d->tile != NULL;
    if (s->position == EXO_POSITION_ALIBI) {
        d->slopes = exo_calloc(s->heads, sizeof *d->slopes);
        good = good && d->slopes;
        if (d->slopes)
            exo_alibi_slopes(s->heads, d->slopes);
    } else if (s->position == EXO_POSITION_ROTARY) {
        /* no overflow: a cache has more floats */
        d->turns = exo_alloc_aligned(context * s->head_width * sizeof *d->turns);
        good = good && d->turns;
        if (d->turns)
            exo_rotary_table((double)s->rope_theta, s->head_width,
                             exo_rope_factors(s, factors) ? factors : NULL, context, d->turns);
    }
    return good ? EXO_OK
                : exo_fail(err, EXO_NOMEM, "no memory for a plan of %zu positions", context);
}

static exo_status
check_sizes(const exo_decoder_shape *shape, exo_err *err)
{
    exo_decoder_activations counted;
    if (shape->spec.head_width > EXO_DECODE_MAX_HEAD)
        return exo_fail(err, EXO_UNSUPPORTED, "generation: a head is %zu wide; the most is %d",
                        shape->spec.head_width, EXO_DECODE_MAX_HEAD);
    if (exo_cpu_decoder_cache(shape) == SIZE_MAX)
        return exo_fail(err, EXO_INVAL, "the cache of %zu tokens cannot be held", shape->context);
    if (exo_cpu_decoder_lay_out(&counted, shape, NULL) == SIZE_MAX)
        return exo_fail(err, EXO_INVAL, "the activations of %zu tokens cannot be held",
                        shape->rows);
    return EXO_OK;
}

exo_status
exo_cpu_decoder_plan(exo_plan **out, const exo_decoder_shape *shape, exo_err *err)
{
    exo_status st = check_sizes(shape, err);
    if (st != EXO_OK)
        return st;
    exo_cpu_decoder *d = exo_calloc(1, sizeof *d);
    if (!d)
        return exo_fail(err, EXO_NOMEM, "no memory for a plan");
    d->shape = *shape;
    d->mine = exo_decoder_part_spec(shape, &d->first_token);
    d->cache = exo_cpu_decoder_cache(shape);
    d->layer_cache = d->cache / shape->spec.layers;
    size_t loops = EXO_DECODER_EMBEDDING_LOOPS + shape->spec.layers * EXO_DECODER_BLOCK_LOOPS;
    st = exo_decoder_weights_init(&d->weights, shape, err);
    if (st == EXO_OK)
        st = exo_team_new(&d->team, loops, err);
    if (st == EXO_OK)
        st = exo_team_new(&d->head_team, EXO_DECODER_LOGIT_LOOPS, err);
    if (st == EXO_OK)
        st = make_tables(d, err);
    if (st == EXO_OK)
        *out = &d->plan;
    else
        exo_cpu_decoder_plan_free(&d->plan);
    return st;
}

void
exo_cpu_decoder_plan_free(exo_plan *plan)
{
    exo_cpu_decoder *d = exo_cpu_decoder_of(plan);
    exo_decoder_weights_release(&d->weights);
    exo_team_free(&d->team);
    exo_team_free(&d->head_team);
    void *all[] = {d->slopes, d->turns, d->tile};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        exo_free(all[i]);
    exo_free(d);
}
