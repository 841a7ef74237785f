/* Causal attention: checks of shapes and options, and the part of the pass's random numbers that
 * dropout draws from. State: the plan, in the operation's cache. Read next:
 * nn/cpu/attention_kernels.h. */
#include <exogym/sequence.h>

#include <math.h>
#include <string.h>

#include "nn/ops/attention.h"
#include "nn/tape_run.h"

enum {
    OUT_LSE,          /* index into op->saved */
    MAX_WIDTH = 1024, /* the largest head width D */
    /* Bits of a block number within an operation's part of the random numbers, as in
     * exo_dropout. */
    BLOCK_BITS = 22
};

_Static_assert(sizeof((exo_attention_shape){0}.factors) == MAX_WIDTH / 2 * sizeof(float),
               "a factor a pair of elements");

struct state {
    exo_plan *plan;
    exo_attention_shape shape;
    exo_attention_drop drop;
};

static void
release_state(void *state)
{
    exo_plan_free(&((struct state *)state)->plan);
}

/* --- The operation ---------------------------------------------------------------------------- */

static exo_status
attention_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    const struct state *s = op->state;
    exo_status st = EXO_OK;
    bool add = false;
    void *scratch = NULL, *dx = exo_tape_grad(tape, x, &add, &st);
    if (!dx)
        return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
    if (!exo_tape_scratch(tape, EXO_SHAPE_ATTENTION, &s->shape, EXO_SCRATCH_BACKWARD, &scratch))
        return exo_tape_error(tape, err);
    st = exo_tape_run(tape, attention_backward, .plan = s->plan, .drop = s->drop, .dx = dx,
                      .x = x->data, .y = op->out->data, .dy = op->out->grad,
                      .lse = op->saved[OUT_LSE], .scratch = scratch, .add = add);
    exo_tape_buffer_done(tape, scratch);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class attention_class = {.name = "attention",
                                             .backward = attention_backward,
                                             .release = release_state,
                                             .remembered = true};

/* Checks x and the options; records what is wrong. Writes *width, the width of a head, and *turned,
 * the elements of a head that rotary positions turn. */
static bool
check(exo_tape *tape, const exo_tensor *x, const exo_attention_opts *o, size_t *width,
      size_t *turned)
{
    char text[96];
    if (!exo_is_float(x) || x->num_dims != 2 || x->numel == 0) {
        exo_tape_fail(tape, EXO_INVAL,
                      "attention: x %s of %s: expected (R, (H + 2 G) D) of fp32 or bf16",
                      exo_shape_text(x, text), exo_dtype_name(x->dtype));
        return false;
    }
    size_t rows = x->dims[0], columns = x->dims[1], heads = o->heads, groups = o->kv_heads;
    bool fit =
        heads > 0 && groups > 0 && heads <= columns && groups <= columns && heads % groups == 0;
    if (!fit || columns % (heads + 2 * groups) != 0 || columns / (heads + 2 * groups) > MAX_WIDTH) {
        exo_tape_fail(tape, EXO_INVAL,
                      "attention: x %s with %zu query and %zu key-value heads: expected (R, (H + 2 "
                      "G) D), H a multiple of G, "
                      "D at most %d",
                      exo_shape_text(x, text), heads, groups, MAX_WIDTH);
        return false;
    }
    if (o->sequence == 0 || rows % o->sequence != 0 || o->sequence > INT32_MAX) {
        exo_tape_fail(tape, EXO_INVAL, "attention: x %s: its rows are not sequences of %zu tokens",
                      exo_shape_text(x, text), o->sequence);
        return false;
    }
    *width = columns / (heads + 2 * groups);
    *turned = !o->rotary ? 0 : o->rotary->width ? o->rotary->width : *width;
    if (*turned > *width || *turned % 2 != 0) {
        exo_tape_fail(tape, EXO_INVAL,
                      "attention: rotary positions turn %zu elements of heads of %zu: expected an "
                      "even number of them",
                      *turned, *width);
        return false;
    }
    if (o->rotary && !(o->rotary->theta > 0.0f && isfinite(o->rotary->theta))) {
        exo_tape_fail(tape, EXO_INVAL, "attention: rotary theta is %g: expected a number above 0",
                      (double)o->rotary->theta);
        return false;
    }
    if (!(o->scale >= 0.0f && isfinite(o->scale)) || !(o->dropout >= 0.0f && o->dropout < 1.0f)) {
        exo_tape_fail(
            tape, EXO_INVAL,
            "attention: scale %g, dropout %g: expected at least 0, and a probability in [0, 1)",
            (double)o->scale, (double)o->dropout);
        return false;
    }
    return true;
}

/* The part of the pass's random numbers that this operation draws from. A block of numbers serves 8
 * weights. False: the part has too few numbers, recorded. */
static bool
plan_dropout(exo_tape *tape, const exo_op *op, float dropout, const exo_attention_shape *shape,
             exo_attention_drop *drop)
{
    const exo_pass *pass = exo_tape_pass(tape);
    size_t blocks = shape->sequences * shape->heads; /* at most the elements of x */
    double dropped = round((double)dropout * 65536.0);
    *drop = (exo_attention_drop){0};
    if (!pass->train || dropped == 0.0)
        return true;
    if (__builtin_mul_overflow(blocks, shape->tokens, &blocks) ||
        __builtin_mul_overflow(blocks, (shape->tokens + 7) / 8, &blocks) ||
        blocks >> (BLOCK_BITS + 16)) {
        exo_tape_fail(tape, EXO_INVAL,
                      "attention: dropout of %zu sequences, %zu heads and %zu x %zu weights: at "
                      "most 2^41 weights",
                      shape->sequences, shape->heads, shape->tokens, shape->tokens);
        return false;
    }
    *drop = (exo_attention_drop){.dropped = (uint32_t)(dropped < 65535.0 ? dropped : 65535.0),
                                 .ordinal = op->ordinal & ((1u << (32 - BLOCK_BITS)) - 1),
                                 .node = pass->node,
                                 .seed = pass->seed,
                                 .step = pass->step ^ (uint64_t)(op->ordinal >> (32 - BLOCK_BITS))
                                                          << 40};
    return true;
}

/* The operation's state with its plan. A plan of an earlier pass is used again if its shape is the
 * same. NULL: recorded. */
static struct state *
find_state(exo_tape *tape, exo_op *op, const exo_attention_shape *shape)
{
    exo_err err = {0};
    bool fresh = false;
    struct state *s = exo_tape_state(tape, op, shape, sizeof *shape, sizeof *s, &fresh);
    if (!s || !fresh)
        return s;
    s->shape = *shape;
    exo_status st = exo_plan_new(&s->plan, exo_tape_device(tape), EXO_SHAPE_ATTENTION, shape, &err);
    if (st == EXO_OK)
        return s;
    exo_tape_plan_failed(tape, op, (exo_dtype)shape->dtype, st, &err);
    return NULL;
}

static void
shape_of(exo_attention_shape *shape, const exo_tensor *x, const exo_attention_opts *o, size_t width,
         size_t turned)
{
    memset(shape, 0, sizeof *shape); /* shapes are compared byte by byte */
    shape->sequences = x->dims[0] / o->sequence;
    shape->tokens = o->sequence;
    shape->heads = o->heads;
    shape->kv_heads = o->kv_heads;
    shape->width = width;
    shape->dtype = (size_t)x->dtype;
    shape->turned = turned;
    shape->alibi = o->alibi;
    shape->invariant = exo_tape_pass(x->tape)->invariant;
    shape->theta = turned ? (double)o->rotary->theta : 0;
    shape->scale = (double)(o->scale > 0.0f ? o->scale : (float)(1.0 / sqrt((double)width)));
    shape->scaled = turned && o->rotary->scaled;
    if (shape->scaled)
        memcpy(shape->factors, o->rotary->scaled, turned / 2 * sizeof *shape->factors);
}

bool
exo_attention_shape_of(exo_tape *tape, const exo_tensor *x, const exo_attention_opts *opts,
                       exo_attention_shape *shape)
{
    size_t width, turned;
    if (exo_tape_error(tape, NULL) != EXO_OK || !check(tape, x, opts, &width, &turned))
        return false;
    shape_of(shape, x, opts, width, turned);
    return true;
}

exo_tensor *
exo_attention(exo_tape *tape, exo_tensor *x, const exo_attention_opts *opts)
{
    exo_attention_shape shape;
    exo_attention_drop drop;
    if (!x || !exo_attention_shape_of(tape, x, opts, &shape))
        return NULL;
    x = exo_to_dtype(tape, x, exo_compute_dtype(tape));
    exo_op *op = x ? exo_tape_op(tape, &attention_class, &x, 1) : NULL;
    if (!op)
        return NULL;
    shape.dtype = (size_t)x->dtype;
    if (!plan_dropout(tape, op, opts->dropout, &shape, &drop))
        return NULL;
    shape.dropout = drop.dropped > 0;
    if (shape.dropout && shape.invariant)
        return exo_tape_fail(tape, EXO_INVAL,
                             "attention: an invariant pass computes what generation does, without "
                             "dropout; set it to 0, or `train` to false");
    struct state *s = find_state(tape, op, &shape);
    if (!s)
        return NULL;
    s->drop = drop;
    exo_tensor *out = exo_tape_tensor(tape, x->dtype, EXO_ROW_MAJOR, 2,
                                      (size_t[]){x->dims[0], shape.heads * shape.width});
    if (!out)
        return NULL;
    if (exo_tape_pass(tape)->grad && x->needs_grad) {
        op->saved[OUT_LSE] = exo_tape_buffer(tape, x->dims[0] * opts->heads * sizeof(float));
        if (!op->saved[OUT_LSE])
            return NULL;
    }
    if (exo_tape_recall(tape, op, out))
        return exo_tape_finish(tape, op, out);
    void *scratch = NULL;
    if (!exo_tape_scratch(tape, EXO_SHAPE_ATTENTION, &shape, EXO_SCRATCH_FORWARD, &scratch) ||
        exo_tape_run(tape, attention, .plan = s->plan, .drop = drop, .y = out->data,
                     .lse = op->saved[OUT_LSE], .x = x->data, .scratch = scratch) != EXO_OK)
        return NULL;
    exo_tape_buffer_done(tape, scratch);
    return exo_tape_finish(tape, op, out);
}
