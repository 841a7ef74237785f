/* LoRA: the weight W + s B A, and gradients of A and B. With y = x (W + s B A)^T,
 *
 *     dB = s dy^T (x A^T)        dA = s (dy B)^T x
 *
 * so the gradient of the weight itself, a product as large as the layer's own, is never computed.
 * Products are in fp32, also under autocast. See lora.h. */
#include "nn/ops/lora.h"

static const exo_tensor *
factor_a(const exo_op *op, size_t part)
{
    return op->in[EXO_LORA_INPUTS + 2 * part];
}

static const exo_tensor *
factor_b(const exo_op *op, size_t part)
{
    return op->in[EXO_LORA_INPUTS + 2 * part + 1];
}

bool
exo_lora_check(exo_tape *tape, const exo_lora_opts *lora, const exo_tensor *weight,
               exo_lora_part parts[EXO_LORA_PARTS])
{
    char a[96], b[96], w[96];
    if (lora->count > EXO_LORA_PARTS) {
        exo_tape_fail(tape, EXO_INVAL, "lora: %zu parts; the most is %d", lora->count,
                      EXO_LORA_PARTS);
        return false;
    }
    for (size_t i = 0; i < lora->count; i++) {
        const exo_lora *l = &lora->parts[i];
        if (!l->a || !l->b)
            return false;
        if (l->a->num_dims != 2 || l->b->num_dims != 2 || l->a->dims[1] != weight->dims[1] ||
            l->a->dims[0] != l->b->dims[1] || l->a->numel == 0 || l->b->numel == 0 ||
            l->first > weight->dims[0] || l->b->dims[0] > weight->dims[0] - l->first ||
            l->a->dtype != EXO_F32 || l->b->dtype != EXO_F32) {
            exo_tape_fail(tape, EXO_INVAL,
                          "lora: a %s and b %s from row %zu of weight %s: expected fp32, a (rank, "
                          "D) and b (rows, rank)",
                          exo_shape_text(l->a, a), exo_shape_text(l->b, b), l->first,
                          exo_shape_text(weight, w));
            return false;
        }
        parts[i] = (exo_lora_part){.first = l->first, .rows = l->b->dims[0], .rank = l->a->dims[0]};
    }
    return true;
}

/* --- Plans ------------------------------------------------------------------------------------ */

static exo_status
plan(exo_plan **out, exo_device *device, size_t rows, size_t in, size_t width, bool backward,
     exo_err *err)
{
    const exo_linear_shape shape = {.rows = rows,
                                    .in = in,
                                    .out = width,
                                    .dtype = EXO_F32,
                                    .out_dtype = EXO_F32,
                                    .backward = backward,
                                    .input_grad = backward};
    return exo_plan_new(out, device, EXO_SHAPE_LINEAR, &shape, err);
}

exo_status
exo_lora_plans_new(exo_lora_plans plans[EXO_LORA_PARTS], exo_device *device,
                   const exo_lora_part parts[EXO_LORA_PARTS], size_t count, size_t rows, size_t in,
                   exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < count; i++) {
        const exo_lora_part *p = &parts[i];
        st = plan(&plans[i].inner, device, rows, in, p->rank, false, err);
        if (st == EXO_OK)
            st = plan(&plans[i].outer, device, rows, p->rank, p->rows, true, err);
        if (st == EXO_OK)
            st = plan(&plans[i].first, device, rows, p->rank, in, true, err);
    }
    return st;
}

void
exo_lora_plans_free(exo_lora_plans plans[EXO_LORA_PARTS])
{
    for (size_t i = 0; i < EXO_LORA_PARTS; i++) {
        exo_plan_free(&plans[i].inner);
        exo_plan_free(&plans[i].outer);
        exo_plan_free(&plans[i].first);
    }
}

/* --- The weight ------------------------------------------------------------------------------- */

exo_status
exo_lora_merge(exo_tape *tape, const exo_op *op, const exo_lora_part parts[EXO_LORA_PARTS],
               size_t count, float *out)
{
    const exo_tensor *weight = op->in[1];
    size_t in = weight->dims[1];
    exo_status st = exo_tape_copy(tape, out, weight->data, weight->numel * sizeof *out);
    for (size_t i = 0; st == EXO_OK && i < count; i++) {
        float *rows = out + parts[i].first * in;
        st = exo_tape_run(tape, lora_merge, .rows = parts[i].rows, .columns = in,
                          .rank = parts[i].rank, .scale = op->factor, .y = rows, .x = rows,
                          .a = factor_a(op, i)->data, .b = factor_b(op, i)->data);
    }
    return st;
}

/* --- Backward --------------------------------------------------------------------------------- */

/* What a part's backward reads and keeps. */
struct back {
    exo_tape *tape;
    const exo_lora_part *part;
    const exo_lora_plans *plans;
    size_t rows, in;
    float scale;
    const float *x, *dy; /* (rows, in), (rows, part->rows) */
};

/* A factor's gradient, zeroed if it is new. NULL with *st OK: none is needed. */
static float *
gradient_of(exo_tape *tape, const exo_tensor *factor, exo_status *st)
{
    bool add = false;
    exo_tensor *t = (exo_tensor *)(uintptr_t)factor;
    float *gradient = exo_tape_grad(tape, t, &add, st);
    if (gradient && !add)
        *st = exo_tape_run(tape, fill, .count = t->numel, .y = gradient);
    return gradient;
}

/* db += scale dy^T (x a^T). */
static exo_status
backward_to_b(const struct back *k, const exo_tensor *a, const exo_tensor *b)
{
    exo_status st = EXO_OK;
    size_t inner = k->rows * k->part->rank;
    float *db = gradient_of(k->tape, b, &st);
    if (!db)
        return st;
    float *h = exo_tape_buffer(k->tape, inner * sizeof *h);
    if (!h || st != EXO_OK)
        return EXO_NOMEM;
    st = exo_tape_run(k->tape, linear, .plan = k->plans->inner, .y = h, .x = k->x,
                      .weight = a->data);
    if (st == EXO_OK)
        st = exo_tape_run(k->tape, scale, .count = inner, .y = h, .a = k->scale, .x = h);
    if (st == EXO_OK)
        st = exo_tape_run(k->tape, linear_grad_w, .plan = k->plans->outer, .dw = db, .dy = k->dy,
                          .x = h);
    exo_tape_buffer_done(k->tape, h);
    return st;
}

/* da += scale (dy b)^T x, computed transposed, so that its pieces are rows of x^T. */
static exo_status
backward_to_a(const struct back *k, const exo_tensor *a, const exo_tensor *b)
{
    exo_status st = EXO_OK;
    size_t inner = k->rows * k->part->rank;
    float *da = gradient_of(k->tape, a, &st);
    if (!da)
        return st;
    float *d = exo_tape_buffer(k->tape, inner * sizeof *d);
    float *turned = d ? exo_tape_buffer(k->tape, a->numel * sizeof *turned) : NULL;
    if (!turned || st != EXO_OK)
        return EXO_NOMEM;
    st = exo_tape_run(k->tape, linear_grad_x, .plan = k->plans->outer, .dx = d, .dy = k->dy,
                      .weight = b->data);
    if (st == EXO_OK)
        st = exo_tape_run(k->tape, scale, .count = inner, .y = d, .a = k->scale, .x = d);
    if (st == EXO_OK)
        st = exo_tape_run(k->tape, fill, .count = a->numel, .y = turned);
    if (st == EXO_OK)
        st = exo_tape_run(k->tape, linear_grad_w, .plan = k->plans->first, .dw = turned, .dy = k->x,
                          .x = d);
    if (st == EXO_OK)
        st = exo_tape_run(k->tape, transpose, .samples = 1, .rows = k->in, .columns = k->part->rank,
                          .dtype = EXO_F32, .y = da, .x = turned, .add = true);
    exo_tape_buffer_done(k->tape, turned);
    exo_tape_buffer_done(k->tape, d);
    return st;
}

/* `values` as fp32: themselves, or in a new buffer, *own. NULL: recorded in the tape. */
static const float *
as_floats(exo_tape *tape, const void *values, size_t count, exo_dtype dtype, float **own)
{
    *own = NULL;
    if (dtype == EXO_F32)
        return values;
    *own = exo_tape_buffer(tape, count * sizeof **own);
    bool good = *own && exo_tape_run(tape, cast, .count = count, .to = EXO_F32, .from = dtype,
                                     .y = *own, .x = values) == EXO_OK;
    return good ? *own : NULL;
}

/* The columns of dy that are the part's. */
static exo_status
backward_of_part(struct back *k, const exo_op *op, size_t part, const float *dy)
{
    const exo_lora_part *p = k->part;
    size_t out = op->in[1]->dims[0];
    float *own = NULL;
    exo_status st = EXO_OK;
    k->dy = dy;
    if (p->rows < out) {
        k->dy = own = exo_tape_buffer(k->tape, k->rows * p->rows * sizeof *own);
        st = own ? exo_tape_run(k->tape, copy_columns, .rows = k->rows, .count = p->rows,
                                .y_pitch = p->rows, .x_pitch = out, .y = own, .x = dy + p->first)
                 : EXO_NOMEM;
    }
    if (st == EXO_OK)
        st = backward_to_b(k, factor_a(op, part), factor_b(op, part));
    if (st == EXO_OK)
        st = backward_to_a(k, factor_a(op, part), factor_b(op, part));
    exo_tape_buffer_done(k->tape, own);
    return st;
}

exo_status
exo_lora_backward(exo_tape *tape, exo_op *op, const exo_lora_part parts[EXO_LORA_PARTS],
                  const exo_lora_plans plans[EXO_LORA_PARTS], size_t count, const void *dy,
                  exo_err *err)
{
    const exo_tensor *x = op->in[0], *y = op->out;
    float *own_x = NULL, *own_dy = NULL;
    exo_status st = EXO_OK;
    const float *in = as_floats(tape, x->data, x->numel, x->dtype, &own_x);
    const float *out = in ? as_floats(tape, dy, y->numel, x->dtype, &own_dy) : NULL;
    for (size_t i = 0; out && st == EXO_OK && i < count; i++) {
        struct back k = {.tape = tape,
                         .part = &parts[i],
                         .plans = &plans[i],
                         .rows = x->dims[0],
                         .in = x->dims[1],
                         .scale = op->factor,
                         .x = in};
        st = backward_of_part(&k, op, i, out);
    }
    exo_tape_buffer_done(tape, own_dy);
    exo_tape_buffer_done(tape, own_x);
    return out && st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}
