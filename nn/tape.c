/* The tape: records operations, walks them backwards, and keeps memory and primitives from pass to pass. One thread at a time.
 * Next: tape_impl.h for the life of memory, ops/ for the operations. */
#include "tape_impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/sequence.h>

#include "params_impl.h"

enum {
    TENSORS_PER_SLAB = 64,
    MAX_METRICS = 8
};

struct block {
    void *memory;
    size_t bytes;
    bool used;
};

struct slab {
    exo_tensor tensors[TENSORS_PER_SLAB];
    struct slab *next;
};

struct cached {
    const exo_op_class *op_class;
    void *signature;
    size_t signature_size;
    void *state;
};

struct metric {
    const char *name;
    double mean;
    size_t count;
};

struct exo_tape {
    exo_pass pass;
    exo_params *params;
    exo_err error;
    bool walked; /* backward has run */

    struct block *blocks;
    size_t num_blocks, cap_blocks;

    struct slab *slabs; /* first */
    struct slab *slab;  /* in use */
    size_t slab_used;

    exo_op *ops;
    size_t num_ops, cap_ops;
    uint32_t next_ordinal; /* operations without checkpoints */
    struct cached *cache;  /* by ordinal */
    size_t cap_cache;

    exo_tensor **param_tensors; /* by index, of this pass */
    size_t num_param_tensors;

    struct metric metrics[MAX_METRICS];
    size_t num_metrics;

    uint64_t allocations;
    size_t bytes;
};

/* --- Life ------------------------------------------------------------------------------------------------------------ */

exo_status
exo_tape_new(exo_tape **out, exo_err *err)
{
    exo_tape *tape = exo_calloc(1, sizeof *tape);
    if (!tape)
        return exo_fail(err, EXO_NOMEM, "no memory for a tape");
    *out = tape;
    return EXO_OK;
}

static void
release_cached(struct cached *c)
{
    if (c->state && c->op_class->release)
        c->op_class->release(c->state);
    exo_free(c->state);
    exo_free(c->signature);
    *c = (struct cached){0};
}

void
exo_tape_free(exo_tape **tape)
{
    exo_tape *t = *tape;
    if (!t)
        return;
    for (size_t i = 0; i < t->cap_cache; i++)
        release_cached(&t->cache[i]);
    for (size_t i = 0; i < t->num_blocks; i++)
        exo_free(t->blocks[i].memory);
    for (struct slab *s = t->slabs, *next; s; s = next) {
        next = s->next;
        exo_free(s);
    }
    exo_free(t->blocks);
    exo_free(t->cache);
    exo_free(t->ops);
    exo_free(t->param_tensors);
    exo_free(t);
    *tape = NULL;
}

void
exo_tape_begin(exo_tape *tape, exo_params *params, const exo_pass *pass)
{
    tape->pass = *pass;
    tape->params = params;
    tape->error = (exo_err){0};
    tape->walked = false;
    for (size_t i = 0; i < tape->num_blocks; i++)
        tape->blocks[i].used = false;
    tape->slab = tape->slabs;
    tape->slab_used = 0;
    tape->num_ops = 0;
    tape->next_ordinal = 0;
    tape->num_metrics = 0;
    if (tape->num_param_tensors)
        memset(tape->param_tensors, 0, tape->num_param_tensors * sizeof(exo_tensor *));
}

const exo_pass *
exo_tape_pass(const exo_tape *tape)
{
    return &tape->pass;
}

exo_tensor *
exo_tape_fail(exo_tape *tape, exo_status status, const char *format, ...)
{
    if (tape->error.code != EXO_OK)
        return NULL;
    va_list args;
    va_start(args, format);
    tape->error.code = status;
    vsnprintf(tape->error.text, sizeof tape->error.text, format, args);
    va_end(args);
    return NULL;
}

exo_status
exo_tape_error(const exo_tape *tape, exo_err *err)
{
    if (tape->error.code != EXO_OK && err)
        *err = tape->error;
    return tape->error.code;
}

size_t
exo_tape_bytes(const exo_tape *tape)
{
    return tape->bytes;
}

uint64_t
exo_tape_allocations(const exo_tape *tape)
{
    return tape->allocations;
}

/* Grows an array to hold at least `need` elements; what is new is zeroed. */
static bool
grow(exo_tape *tape, void **array, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return true;
    size_t wanted = *cap ? *cap * 2 : 32;
    wanted = wanted < need ? need : wanted;
    void *larger = exo_realloc(*array, wanted, size);
    if (!larger) {
        exo_tape_fail(tape, EXO_NOMEM, "no memory for the tape");
        return false;
    }
    memset((char *)larger + *cap * size, 0, (wanted - *cap) * size);
    *array = larger;
    *cap = wanted;
    tape->allocations++;
    return true;
}

/* --- Memory ------------------------------------------------------------------------------------------------------------ */

void *
exo_tape_buffer(exo_tape *tape, size_t bytes)
{
    struct block *best = NULL;
    for (size_t i = 0; i < tape->num_blocks; i++) {
        struct block *b = &tape->blocks[i];
        /* Half a block wasted is the most: a large one stays for those who need it. */
        if (!b->used && b->bytes >= bytes && b->bytes / 2 <= bytes && (!best || b->bytes < best->bytes))
            best = b;
    }
    if (!best) {
        if (!grow(tape, (void **)&tape->blocks, &tape->cap_blocks, tape->num_blocks + 1, sizeof *tape->blocks))
            return NULL;
        void *memory = exo_alloc_aligned(bytes);
        if (!memory) {
            exo_tape_fail(tape, EXO_NOMEM, "no memory for a buffer of %zu bytes", bytes);
            return NULL;
        }
        best = &tape->blocks[tape->num_blocks++];
        *best = (struct block){.memory = memory, .bytes = bytes};
        tape->allocations++;
        tape->bytes += bytes;
    }
    best->used = true;
    return best->memory;
}

void
exo_tape_buffer_done(exo_tape *tape, void *buffer)
{
    for (size_t i = 0; buffer && i < tape->num_blocks; i++) {
        if (tape->blocks[i].memory == buffer) {
            tape->blocks[i].used = false;
            return;
        }
    }
}

static exo_tensor *
new_tensor(exo_tape *tape, exo_dtype dtype, exo_layout layout, size_t num_dims, const size_t *dims)
{
    if (!tape->slab || tape->slab_used == TENSORS_PER_SLAB) {
        struct slab *next = tape->slab ? tape->slab->next : tape->slabs;
        if (!next) {
            next = exo_calloc(1, sizeof *next);
            if (!next)
                return exo_tape_fail(tape, EXO_NOMEM, "no memory for a tensor");
            if (tape->slab)
                tape->slab->next = next;
            else
                tape->slabs = next;
            tape->allocations++;
        }
        tape->slab = next;
        tape->slab_used = 0;
    }
    if (num_dims > EXO_MAX_DIMS)
        return exo_tape_fail(tape, EXO_INVAL, "a tensor has at most %d dimensions, not %zu", EXO_MAX_DIMS, num_dims);
    exo_tensor *t = &tape->slab->tensors[tape->slab_used++];
    *t = (exo_tensor){.tape = tape, .dtype = dtype, .layout = layout, .num_dims = num_dims, .numel = 1};
    for (size_t d = 0; d < num_dims; d++) {
        t->dims[d] = dims[d];
        if (__builtin_mul_overflow(t->numel, dims[d], &t->numel) || t->numel > SIZE_MAX / 8)
            return exo_tape_fail(tape, EXO_INVAL, "a tensor's size overflows");
    }
    return t;
}

exo_tensor *
exo_tape_tensor(exo_tape *tape, exo_dtype dtype, exo_layout layout, size_t num_dims, const size_t *dims)
{
    exo_tensor *t = new_tensor(tape, dtype, layout, num_dims, dims);
    if (!t)
        return NULL;
    t->data = exo_tape_buffer(tape, t->numel * exo_dtype_size(dtype));
    t->owns_data = true;
    return t->data ? t : NULL;
}

exo_tensor *
exo_tape_view(exo_tape *tape, exo_tensor *of, exo_layout layout, size_t num_dims, const size_t *dims)
{
    exo_tensor *t = new_tensor(tape, of->dtype, layout, num_dims, dims);
    if (t)
        t->data = of->data;
    return t;
}

exo_tensor *
exo_tape_input(exo_tape *tape, exo_dtype dtype, size_t num_dims, const size_t *dims, const void *data)
{
    exo_tensor *t = new_tensor(tape, dtype, EXO_ROW_MAJOR, num_dims, dims);
    if (t)
        t->data = (void *)(uintptr_t)data; /* never written: an input has no operation that owns it */
    return t;
}

exo_tensor *
exo_tape_variable(exo_tape *tape, size_t num_dims, const size_t *dims, const float *data)
{
    exo_tensor *t = exo_tape_input(tape, EXO_F32, num_dims, dims, data);
    if (t) {
        t->needs_grad = tape->pass.grad;
        t->keeps_grad = true;
    }
    return t;
}

exo_tensor *
exo_tape_param(exo_tape *tape, exo_param param)
{
    exo_params *p = tape->params;
    size_t count = p ? exo_params_count(p) : 0;
    if (param.index >= count)
        return exo_tape_fail(tape, EXO_INVAL, "parameter %u is not one of the model's %zu", param.index, count);
    if (!grow(tape, (void **)&tape->param_tensors, &tape->num_param_tensors, count, sizeof(exo_tensor *)))
        return NULL;
    exo_tensor *t = tape->param_tensors[param.index];
    if (t)
        return t; /* used before in this pass: one tensor, one gradient */
    const exo_param_info *info = exo_params_info(p, param.index);
    t = new_tensor(tape, EXO_F32, EXO_ROW_MAJOR, info->num_dims, info->dims);
    if (!t)
        return NULL;
    t->is_param = true;
    t->data = (info->is_buffer ? exo_params_buffers(p) : exo_params_values(p)) + info->offset;
    t->grad = info->is_buffer ? NULL : exo_params_grads(p) + info->offset;
    t->needs_grad = tape->pass.grad && !info->is_buffer;
    tape->param_tensors[param.index] = t;
    return t;
}

/* --- Recording --------------------------------------------------------------------------------------------------------- */

exo_op *
exo_tape_op(exo_tape *tape, const exo_op_class *op_class, exo_tensor *const *in, size_t num_in)
{
    if (!grow(tape, (void **)&tape->ops, &tape->cap_ops, tape->num_ops + 1, sizeof *tape->ops))
        return NULL;
    exo_op *op = &tape->ops[tape->num_ops];
    *op = (exo_op){.op_class = op_class, .ordinal = tape->next_ordinal++};
    for (size_t i = 0; i < num_in; i++)
        op->in[i] = in[i];
    tape->num_ops++;
    return op;
}

exo_tensor *
exo_tape_finish(exo_tape *tape, exo_op *op, exo_tensor *out)
{
    if (!out || tape->error.code != EXO_OK)
        return NULL;
    for (size_t i = 0; i < EXO_MAX_INPUTS; i++)
        if (op->in[i] && op->in[i]->needs_grad)
            out->needs_grad = true;
    op->out = out;
    return out;
}

void *
exo_tape_state(exo_tape *tape, exo_op *op, const void *signature, size_t signature_size, size_t state_size, bool *fresh)
{
    if (!grow(tape, (void **)&tape->cache, &tape->cap_cache, op->ordinal + 1u, sizeof *tape->cache))
        return NULL;
    struct cached *c = &tape->cache[op->ordinal];
    *fresh = !(c->op_class == op->op_class && c->signature_size == signature_size && c->state &&
               memcmp(c->signature, signature, signature_size) == 0);
    if (*fresh) {
        release_cached(c);
        c->op_class = op->op_class;
        c->signature = exo_calloc(1, signature_size);
        c->signature_size = signature_size;
        c->state = exo_calloc(1, state_size);
        tape->allocations += 2;
        if (!c->signature || !c->state) {
            release_cached(c);
            exo_tape_fail(tape, EXO_NOMEM, "no memory for the plan of %s", op->op_class->name);
            return NULL;
        }
        memcpy(c->signature, signature, signature_size);
    }
    op->state = c->state;
    return c->state;
}

void
exo_tape_state_failed(exo_tape *tape, exo_op *op)
{
    release_cached(&tape->cache[op->ordinal]);
    op->state = NULL;
}

exo_tensor *
exo_tape_plan_failed(exo_tape *tape, exo_op *op, exo_dtype dtype, exo_status status, const exo_err *err)
{
    exo_tape_state_failed(tape, op);
    if (status == EXO_UNSUPPORTED && dtype == EXO_BF16)
        return exo_tape_fail(tape, status, "%s: autocast to bf16 needs a processor with AVX-512; run without it",
                             op->op_class->name);
    return exo_tape_fail(tape, status, "%s", err->text);
}

/* --- Checkpoints --------------------------------------------------------------------------------------------------------- */

/* The operations of a body take the places [first, first + count) of the pass. Forward runs it, forgets what it has computed and takes its
 * result over; backward, which comes to the checkpoint's own place first and then to theirs, runs it again into the same places: plans,
 * dropout and order are those of a pass without the checkpoint. */
struct checkpoint {
    exo_checkpoint_body body;
    void *context;
    size_t first, count;
    uint32_t first_ordinal;
};

static void op_done(exo_tape *tape, exo_op *op);

/* Gives back all that the operations hold but the data of `kept`. */
static void
forget_ops(exo_tape *tape, size_t first, size_t end, const exo_tensor *kept)
{
    for (size_t i = first; i < end; i++) {
        exo_op *op = &tape->ops[i];
        if (op->out && op->out->owns_data && op->out->data == kept->data)
            op->out->owns_data = false;
        else if (op->out && op->out->owns_data && op->out->numel == 1) /* op_done leaves it */
            exo_tape_buffer_done(tape, op->out->data);
        op_done(tape, op);
        op->out = NULL;
    }
}

static exo_status
checkpoint_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    const struct checkpoint c = *(const struct checkpoint *)op->saved[0];
    exo_tensor *out = op->out, *x = op->in[0];
    size_t all = tape->num_ops;
    uint32_t ordinals = tape->next_ordinal;
    tape->num_ops = c.first;
    tape->next_ordinal = c.first_ordinal;
    exo_tensor *again = c.body(c.context, tape, x);
    bool same = tape->num_ops == c.first + c.count;
    tape->num_ops = all;
    tape->next_ordinal = ordinals;
    if (!again)
        return exo_tape_error(tape, err);
    if (!same || again->numel != out->numel || again->dtype != out->dtype)
        return exo_fail(err, EXO_FAILED, "checkpoint: the body did something else the second time");
    bool add = false;
    exo_status st = EXO_OK;
    void *grad = exo_tape_grad(tape, again, &add, &st);
    if (grad)
        memcpy(grad, out->grad, out->numel * exo_dtype_size(out->dtype));
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class checkpoint_class = {.name = "checkpoint", .backward = checkpoint_backward};

exo_tensor *
exo_checkpoint(exo_tape *tape, exo_tensor *x, exo_checkpoint_body body, void *context)
{
    if (!x || tape->error.code != EXO_OK)
        return NULL;
    if (!tape->pass.grad)
        return body(context, tape, x);
    struct checkpoint c = {
        .body = body, .context = context, .first = tape->num_ops, .first_ordinal = tape->next_ordinal};
    exo_tensor *y = body(context, tape, x);
    c.count = tape->num_ops - c.first;
    if (!y || c.count == 0 || !y->needs_grad || y->is_param)
        return y;
    exo_op *op = exo_tape_op(tape, &checkpoint_class, &x, 1);
    if (!op)
        return NULL;
    tape->next_ordinal--; /* ordinals are those of a pass without checkpoints */
    op->saved[0] = exo_tape_buffer(tape, sizeof c);
    exo_tensor *out = op->saved[0] ? exo_tape_view(tape, y, y->layout, y->num_dims, y->dims) : NULL;
    if (!out)
        return NULL;
    memcpy(op->saved[0], &c, sizeof c);
    out->owns_data = y->data != x->data;
    out->needs_grad = true; /* of a parameter in the body, if not of x */
    forget_ops(tape, c.first, c.first + c.count, out);
    return exo_tape_finish(tape, op, out);
}

/* --- Backward ------------------------------------------------------------------------------------------------------------ */

void *
exo_tape_grad(exo_tape *tape, exo_tensor *in, bool *add, exo_status *st)
{
    if (!in || !in->needs_grad)
        return NULL;
    if (in->is_param || in->grad) {
        *add = true;
        return in->grad;
    }
    in->grad = exo_tape_buffer(tape, in->numel * exo_dtype_size(in->dtype));
    if (!in->grad)
        *st = EXO_NOMEM;
    *add = false;
    return in->grad;
}

bool
exo_tape_steal_grad(exo_op *op, exo_tensor *in)
{
    exo_tensor *out = op->out;
    if (!in->needs_grad || in->is_param || in->grad || out->keeps_grad || in->numel != out->numel ||
        in->dtype != out->dtype)
        return false;
    in->grad = out->grad;
    out->grad = NULL;
    return true;
}

static void
op_done(exo_tape *tape, exo_op *op)
{
    for (size_t i = 0; i < EXO_MAX_SAVED; i++) {
        exo_tape_buffer_done(tape, op->saved[i]);
        op->saved[i] = NULL;
    }
    if (!op->out)
        return;
    if (op->out->owns_data && op->out->numel > 1) { /* a loss may be read after backward */
        exo_tape_buffer_done(tape, op->out->data);
        op->out->owns_data = false;
    }
    if (op->out->grad && !op->out->keeps_grad) {
        exo_tape_buffer_done(tape, op->out->grad);
        op->out->grad = NULL;
    }
}

exo_status
exo_tape_backward(exo_tape *tape, exo_tensor *loss, float scale, exo_err *err)
{
    if (tape->error.code != EXO_OK)
        return exo_tape_error(tape, err);
    if (!loss || loss->numel != 1 || loss->dtype != EXO_F32)
        return exo_fail(err, EXO_INVAL, "backward starts at a loss of one fp32 element");
    if (tape->walked)
        return exo_fail(err, EXO_INVAL, "backward has run: once per pass");
    tape->walked = true;
    if (!loss->needs_grad)
        return EXO_OK; /* nothing that is learned led to it */

    bool add = false;
    exo_status st = EXO_OK;
    float *seed = exo_tape_grad(tape, loss, &add, &st);
    if (!seed)
        return exo_tape_error(tape, err);
    *seed = add ? *seed + scale : scale;

    for (size_t i = tape->num_ops; i > 0 && st == EXO_OK; i--) {
        exo_op *op = &tape->ops[i - 1];
        if (op->out && op->out->needs_grad && op->out->grad && op->op_class->backward)
            st = op->op_class->backward(tape, op, err);
        op_done(tape, op);
    }
    if (st == EXO_OK || tape->error.code == EXO_OK)
        return st;
    return exo_tape_error(tape, err);
}

/* --- Metrics -------------------------------------------------------------------------------------------------------------- */

void
exo_tape_metric(exo_tape *tape, const char *name, double mean, size_t count)
{
    if (tape->num_metrics < MAX_METRICS)
        tape->metrics[tape->num_metrics++] = (struct metric){.name = name, .mean = mean, .count = count};
}

size_t
exo_tape_num_metrics(const exo_tape *tape)
{
    return tape->num_metrics;
}

const char *
exo_tape_metric_at(const exo_tape *tape, size_t index, double *mean, size_t *count)
{
    if (index >= tape->num_metrics)
        return NULL;
    *mean = tape->metrics[index].mean;
    *count = tape->metrics[index].count;
    return tape->metrics[index].name;
}

exo_dtype
exo_compute_dtype(const exo_tape *tape)
{
    return tape->pass.autocast ? EXO_BF16 : EXO_F32;
}
