/* Causal attention: shapes, rotary and ALiBi tables, and the loops over pieces; the numbers are in nn/cpu/attention*.c. */
#include <exogym/sequence.h>

#include <math.h>
#include <string.h>

#include <exogym/memory.h>

#include "nn/cpu/attention_kernels.h"
#include "nn/ops/pieces.h"
#include "nn/tape_impl.h"

enum {
    OUT_LSE,        /* saved[0] */
    BLOCK_BITS = 22 /* of an operation's part of the numbers for dropout, as in exo_dropout */
};

/* What the tables are made of. The rotary factors follow. */
struct signature {
    size_t tokens, heads, turned, alibi, scaled;
    double theta;
};

struct state {
    float *turns;  /* (T, 2, turned / 2) */
    float *slopes; /* (H)                */
    exo_attention_plan plan;
};

static void
release_state(void *state)
{
    struct state *s = state;
    exo_free(s->turns);
    exo_free(s->slopes);
}

/* --- Tables ------------------------------------------------------------------------------------------------------------------ */

/* Frequencies and angles are rounded to fp32 as in the models' own code, which they were trained with. */
static void
fill_turns(float *turns, const struct signature *sig, const float *scaled)
{
    size_t half = sig->turned / 2;
    for (size_t i = 0; i < half; i++) {
        float frequency = (float)pow(sig->theta, -2.0 * (double)i / (double)sig->turned);
        if (scaled)
            frequency *= scaled[i];
        for (size_t t = 0; t < sig->tokens; t++) {
            float angle = (float)t * frequency;
            turns[t * sig->turned + i] = (float)cos((double)angle);
            turns[t * sig->turned + half + i] = (float)sin((double)angle);
        }
    }
}

/* 2^(-8 (h + 1) / n) for n heads, a power of two; of other numbers, those of the power of two below, then every other one of the next
 * power's (Press et al., 2021). */
static void
fill_slopes(float *slopes, size_t heads)
{
    size_t below = 1;
    while (below * 2 <= heads)
        below *= 2;
    for (size_t h = 0; h < heads; h++) {
        double power =
            h < below ? 8.0 * (double)(h + 1) / (double)below : 4.0 * (double)(2 * (h - below) + 1) / (double)below;
        slopes[h] = (float)exp2(-power);
    }
}

static bool
make_tables(struct state *s, const struct signature *sig, const float *scaled)
{
    if (sig->turned) {
        size_t count;
        if (__builtin_mul_overflow(sig->tokens, sig->turned, &count))
            return false;
        s->turns = exo_calloc(count, sizeof *s->turns);
        if (!s->turns)
            return false;
        fill_turns(s->turns, sig, scaled);
    }
    if (sig->alibi) {
        s->slopes = exo_calloc(sig->heads, sizeof *s->slopes);
        if (!s->slopes)
            return false;
        fill_slopes(s->slopes, sig->heads);
    }
    return true;
}

/* The state with the tables, made where those of earlier passes do not fit. NULL: recorded. */
static struct state *
find_state(exo_tape *tape, exo_op *op, size_t tokens, size_t turned, const exo_attention_opts *opts)
{
    const float *scaled = turned ? opts->rotary->scaled : NULL;
    size_t factors = scaled ? turned / 2 * sizeof *scaled : 0, size = sizeof(struct signature) + factors;
    char bytes[sizeof(struct signature) + EXO_ATTENTION_MAX_WIDTH / 2 * sizeof(float)];
    struct signature sig;
    memset(&sig, 0, sizeof sig); /* compared byte by byte */
    sig.tokens = turned ? tokens : 0;
    sig.heads = opts->alibi ? opts->heads : 0;
    sig.turned = turned;
    sig.alibi = opts->alibi;
    sig.scaled = scaled != NULL;
    sig.theta = turned ? (double)opts->rotary->theta : 0;
    memcpy(bytes, &sig, sizeof sig);
    if (scaled)
        memcpy(bytes + sizeof sig, scaled, factors);

    bool fresh = false;
    struct state *s = exo_tape_state(tape, op, bytes, size, sizeof *s, &fresh);
    if (s && fresh && !make_tables(s, &sig, scaled)) {
        exo_tape_state_failed(tape, op);
        exo_tape_fail(tape, EXO_NOMEM, "attention: no memory for the tables of %zu positions", tokens);
        return NULL;
    }
    return s;
}

/* --- Loops ------------------------------------------------------------------------------------------------------------------- */

struct loop {
    const exo_attention_plan *plan;
    size_t count, scratch_size; /* of a runner */
    char *scratch;
    void (*piece)(const struct loop *loop, size_t index, void *scratch);

    const void *x; /* forward */
    void *out;
    float *lse;
    const exo_attention_grads *grads; /* backward */
};

static void
run_piece(void *context, size_t runner, size_t index)
{
    const struct loop *l = context;
    l->piece(l, index, l->scratch ? l->scratch + runner * l->scratch_size : NULL);
}

/* False: no memory, recorded. */
static bool
run_loop(exo_tape *tape, struct loop *l)
{
    size_t runners = exo_runners(l->count), size = 0;
    if (l->scratch_size) {
        if (__builtin_mul_overflow(runners, l->scratch_size, &size)) {
            exo_tape_fail(tape, EXO_NOMEM, "attention: scratch of %zu threads overflows", runners);
            return false;
        }
        l->scratch = exo_tape_buffer(tape, size);
        if (!l->scratch)
            return false;
    }
    exo_run_for(l->count, run_piece, l);
    exo_tape_buffer_done(tape, l->scratch);
    return true;
}

static void
forward_piece(const struct loop *l, size_t index, void *scratch)
{
    exo_attention_forward_piece(l->plan, index, l->x, l->out, l->lse, scratch);
}

static void
backward_piece(const struct loop *l, size_t index, void *scratch)
{
    exo_attention_backward_piece(l->plan, index, l->grads, scratch);
}

static void
gather_piece(const struct loop *l, size_t index, void *scratch)
{
    (void)scratch;
    exo_attention_gather_piece(l->plan, index, l->grads);
}

/* --- The operation ------------------------------------------------------------------------------------------------------------- */

static exo_status
attention_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    struct state *s = op->state;
    exo_status st = EXO_OK;
    exo_attention_grads grads = {.x = x->data, .out = op->out->data, .dout = op->out->grad, .lse = op->saved[OUT_LSE]};
    grads.dx = exo_tape_grad(tape, x, &grads.add, &st);
    if (!grads.dx)
        return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
    size_t partials = exo_attention_partials(&s->plan);
    grads.partials = partials ? exo_tape_buffer(tape, partials) : NULL;
    struct loop l = {.plan = &s->plan,
                     .count = exo_attention_backward_pieces(&s->plan),
                     .scratch_size = exo_attention_backward_scratch(&s->plan),
                     .piece = backward_piece,
                     .grads = &grads};
    struct loop gather = {
        .plan = &s->plan, .count = exo_attention_gather_pieces(&s->plan), .piece = gather_piece, .grads = &grads};
    if ((partials && !grads.partials) || !run_loop(tape, &l) || (partials && !run_loop(tape, &gather)))
        return exo_tape_error(tape, err);
    exo_tape_buffer_done(tape, grads.partials);
    return EXO_OK;
}

static const exo_op_class attention_class = {
    .name = "attention", .backward = attention_backward, .release = release_state, .remembered = true};

/* Whether x and the options fit; if not, says why. *width and *turned are written: of a head, and of its turned part. */
static bool
check(exo_tape *tape, const exo_tensor *x, const exo_attention_opts *o, size_t *width, size_t *turned)
{
    char text[96];
    if (!exo_is_float(x) || x->num_dims != 2 || x->numel == 0) {
        exo_tape_fail(tape, EXO_INVAL, "attention: x %s of %s: expected (R, (H + 2 G) D) of fp32 or bf16",
                      exo_shape_text(x, text), exo_dtype_name(x->dtype));
        return false;
    }
    size_t rows = x->dims[0], columns = x->dims[1], heads = o->heads, groups = o->kv_heads;
    bool fit = heads > 0 && groups > 0 && heads <= columns && groups <= columns && heads % groups == 0;
    if (!fit || columns % (heads + 2 * groups) != 0 || columns / (heads + 2 * groups) > EXO_ATTENTION_MAX_WIDTH) {
        exo_tape_fail(
            tape, EXO_INVAL,
            "attention: x %s with %zu query and %zu key-value heads: expected (R, (H + 2 G) D), H a multiple of G, "
            "D at most %d",
            exo_shape_text(x, text), heads, groups, EXO_ATTENTION_MAX_WIDTH);
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
                      "attention: rotary positions turn %zu elements of heads of %zu: expected an even number of them",
                      *turned, *width);
        return false;
    }
    if (o->rotary && !(o->rotary->theta > 0.0f && isfinite(o->rotary->theta))) {
        exo_tape_fail(tape, EXO_INVAL, "attention: rotary theta is %g: expected a number above 0",
                      (double)o->rotary->theta);
        return false;
    }
    if (!(o->scale >= 0.0f && isfinite(o->scale)) || !(o->dropout >= 0.0f && o->dropout < 1.0f)) {
        exo_tape_fail(tape, EXO_INVAL,
                      "attention: scale %g, dropout %g: expected at least 0, and a probability in [0, 1)",
                      (double)o->scale, (double)o->dropout);
        return false;
    }
    return true;
}

/* The part of the pass's numbers that this operation draws from. False: too many weights for it, recorded. */
static bool
plan_dropout(exo_tape *tape, const exo_op *op, float dropout, exo_attention_plan *plan)
{
    const exo_pass *pass = exo_tape_pass(tape);
    size_t blocks = plan->sequences * plan->heads; /* at most the elements of x */
    double dropped = round((double)dropout * 65536.0);
    if (!pass->train || dropped == 0.0)
        return true;
    if (__builtin_mul_overflow(blocks, plan->tokens, &blocks) ||
        __builtin_mul_overflow(blocks, (plan->tokens + 7) / 8, &blocks) || blocks >> (BLOCK_BITS + 16)) {
        exo_tape_fail(tape, EXO_INVAL,
                      "attention: dropout of %zu sequences, %zu heads and %zu x %zu weights: at most 2^41 weights",
                      plan->sequences, plan->heads, plan->tokens, plan->tokens);
        return false;
    }
    plan->dropped = (uint32_t)(dropped < 65535.0 ? dropped : 65535.0);
    plan->ordinal = op->ordinal & ((1u << (32 - BLOCK_BITS)) - 1);
    exo_rng_init(&plan->rng, pass->seed, EXO_RNG_DROPOUT, pass->node,
                 pass->step ^ (uint64_t)(op->ordinal >> (32 - BLOCK_BITS)) << 40);
    return true;
}

exo_tensor *
exo_attention(exo_tape *tape, exo_tensor *x, const exo_attention_opts *opts)
{
    size_t width, turned;
    if (!x || exo_tape_error(tape, NULL) != EXO_OK || !check(tape, x, opts, &width, &turned))
        return NULL;
    x = exo_to_dtype(tape, x, exo_compute_dtype(tape));
    exo_op *op = x ? exo_tape_op(tape, &attention_class, &x, 1) : NULL;
    struct state *s = op ? find_state(tape, op, opts->sequence, turned, opts) : NULL;
    if (!s)
        return NULL;
    s->plan = (exo_attention_plan){.sequences = x->dims[0] / opts->sequence,
                                   .tokens = opts->sequence,
                                   .heads = opts->heads,
                                   .kv_heads = opts->kv_heads,
                                   .width = width,
                                   .dtype = x->dtype,
                                   .scale = opts->scale > 0.0f ? opts->scale : (float)(1.0 / sqrt((double)width)),
                                   .slopes = s->slopes,
                                   .turns = s->turns,
                                   .turned = turned};
    if (!plan_dropout(tape, op, opts->dropout, &s->plan))
        return NULL;
    exo_tensor *out = exo_tape_tensor(tape, x->dtype, EXO_ROW_MAJOR, 2, (size_t[]){x->dims[0], opts->heads * width});
    if (!out)
        return NULL;
    if (exo_tape_pass(tape)->grad && x->needs_grad) {
        op->saved[OUT_LSE] = exo_tape_buffer(tape, x->dims[0] * opts->heads * sizeof(float));
        if (!op->saved[OUT_LSE])
            return NULL;
    }
    if (exo_tape_recall(tape, op, out))
        return exo_tape_finish(tape, op, out);
    struct loop l = {.plan = &s->plan,
                     .count = exo_attention_forward_pieces(&s->plan),
                     .scratch_size = exo_attention_forward_scratch(&s->plan),
                     .piece = forward_piece,
                     .x = x->data,
                     .out = out->data,
                     .lse = op->saved[OUT_LSE]};
    return run_loop(tape, &l) ? exo_tape_finish(tape, op, out) : NULL;
}
