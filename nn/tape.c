/* The tape: records operations, runs them backwards, and keeps buffers and plans from pass to pass.
 * A tape belongs to one thread at a time. Read next: tape_impl.h for the life of buffers; ops/ for
 * the operations. */
#include "nn/tape_private.h"

#include <stdint.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/parallel.h>

/* --- Life ------------------------------------------------------------------------------------- */

exo_status
exo_tape_new_on(exo_tape **out, exo_device *device, exo_err *err)
{
    exo_tape *tape = exo_calloc(1, sizeof *tape);
    if (!tape)
        return exo_fail(err, EXO_NOMEM, "no memory for a tape");
    tape->device = device;
    *out = tape;
    return EXO_OK;
}

exo_status
exo_tape_new(exo_tape **out, exo_err *err)
{
    return exo_tape_new_on(out, exo_device_cpu(), err);
}

exo_status
exo_tape_new_rehearsal(exo_tape **out, exo_err *err)
{
    exo_status st = exo_tape_new(out, err);
    if (st == EXO_OK)
        (*out)->rehearses = true;
    return st;
}

bool
exo_tape_rehearses(const exo_tape *tape)
{
    return tape->rehearses;
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

/* Ends the section of a pass. The first failure counts. */
static exo_status
end_section(exo_tape *tape, exo_status st, exo_err *err)
{
    const bool begun = tape->begun;
    tape->begun = false;
    const exo_status ended =
        begun ? exo_device_section_end(tape->device, st == EXO_OK ? err : NULL) : EXO_OK;
    return st == EXO_OK ? ended : st;
}

/* The same of a pass that got nowhere. Nobody is told then, so the device remembers a failure. */
static void
leave_section(exo_tape *tape)
{
    exo_err reason = {0};
    exo_device_note(tape->device, end_section(tape, EXO_OK, &reason), &reason);
}

void
exo_tape_free(exo_tape **tape)
{
    exo_tape *t = *tape;
    if (!t)
        return;
    leave_section(t);
    for (size_t i = 0; i < t->cap_cache; i++)
        release_cached(&t->cache[i]);
    exo_tape_free_blocks(t);
    for (struct slab *s = t->slabs, *next; s; s = next) {
        next = s->next;
        exo_free(s);
    }
    exo_free(t->cache);
    exo_free(t->ops);
    exo_free(t->requests);
    exo_free(t->param_tensors);
    exo_free(t);
    *tape = NULL;
}

/* Whether the device has products of fp8. A rehearsal is for another device. */
static void
check_fp8(exo_tape *tape)
{
    const exo_device_class *of = tape->device->device_class;
    if (tape->pass.autocast != EXO_AUTOCAST_FP8 || tape->rehearses)
        return;
    if (of->check_fp8)
        exo_tape_note(tape, of->check_fp8(tape->device, &tape->reason));
    else
        exo_tape_fail(
            tape, EXO_UNSUPPORTED,
            "autocast to fp8 needs a GPU (device: cuda), and the pass is on the device %s: "
            "use bf16",
            exo_device_name(tape->device));
}

/* A pass with gradients is a section, up to the end of backward. One that got nowhere is over when
 * the next one begins. */
static void
begin_section(exo_tape *tape, bool grad)
{
    if (grad && !tape->begun)
        exo_device_section_begin(tape->device);
    if (!grad)
        leave_section(tape);
    tape->begun = grad;
}

void
exo_tape_begin(exo_tape *tape, exo_params *params, const exo_pass *pass)
{
    begin_section(tape, pass->grad);
    tape->pass = *pass;
    tape->params = params;
    tape->error = (exo_err){0};
    tape->walked = false;
    tape->again = false;
    tape->recalls = NULL;
    for (size_t i = 0; i < tape->num_blocks; i++)
        tape->blocks[i].used = false;
    tape->num_requests = 0;
    tape->slab = tape->slabs;
    tape->slab_used = 0;
    tape->num_ops = 0;
    tape->num_fp8 = 0;
    tape->next_ordinal = 0;
    tape->num_metrics = 0;
    tape->num_units = 0;
    if (tape->num_param_tensors)
        memset(tape->param_tensors, 0, tape->num_param_tensors * sizeof(exo_tensor *));
    if (params && exo_params_device(params) != tape->device)
        exo_tape_fail(tape, EXO_INVAL, "the parameters are on the device %s, and the pass on %s",
                      exo_device_name(exo_params_device(params)), exo_device_name(tape->device));
    if (pass->sink && !exo_device_is_host(tape->device))
        exo_tape_fail(tape, EXO_UNSUPPORTED, "a sink takes gradients in host memory only");
    if (pass->invariant && pass->autocast)
        exo_tape_fail(tape, EXO_INVAL, "an invariant pass computes in fp32, without autocast");
    if (pass->invariant && !tape->device->device_class->invariant)
        exo_tape_fail(
            tape, EXO_UNSUPPORTED,
            "an invariant pass: the device %s has no kernels for it; use the device cpu or cuda",
            exo_device_name(tape->device));
    check_fp8(tape);
}

void
exo_tape_set_group(exo_tape *tape, exo_group *group)
{
    tape->group = group;
}

exo_group *
exo_tape_group(const exo_tape *tape)
{
    return tape->group;
}

void
exo_tape_set_context_group(exo_tape *tape, exo_group *group)
{
    tape->context_group = group;
}

exo_group *
exo_tape_context_group(const exo_tape *tape)
{
    return tape->context_group;
}

const exo_pass *
exo_tape_pass(const exo_tape *tape)
{
    return &tape->pass;
}

size_t
exo_tape_bytes(const exo_tape *tape)
{
    return tape->bytes;
}

size_t
exo_tape_real_bytes(const exo_tape *tape)
{
    return tape->real_bytes;
}

size_t
exo_tape_padding(const exo_tape *tape)
{
    return tape->padding;
}

uint64_t
exo_tape_allocations(const exo_tape *tape)
{
    return tape->allocations;
}

/* --- Recording -------------------------------------------------------------------------------- */

bool
exo_tape_again(const exo_tape *tape)
{
    return tape->again;
}

bool
exo_tape_result_idle(const exo_tape *tape)
{
    return tape->again && tape->num_ops == tape->most_ops;
}

exo_op *
exo_tape_op(exo_tape *tape, const exo_op_class *op_class, exo_tensor *const *in, size_t num_in)
{
    if (tape->again && tape->num_ops >= tape->most_ops) {
        exo_tape_fail(tape, EXO_FAILED, "checkpoint: the body does more the second time: %s",
                      op_class->name);
        return NULL;
    }
    if (!exo_tape_use(tape, in, num_in))
        return NULL;
    if (!exo_tape_grow(tape, (void **)&tape->ops, &tape->cap_ops, tape->num_ops + 1,
                       sizeof *tape->ops))
        return NULL;
    exo_op *op = &tape->ops[tape->num_ops];
    *op = (exo_op){.op_class = op_class, .ordinal = tape->next_ordinal++};
    for (size_t i = 0; i < num_in; i++) {
        op->in[i] = in[i];
        if (in[i] && !(in[i]->is_param && tape->again))
            in[i]->uses++;
    }
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
exo_tape_state(exo_tape *tape, exo_op *op, const void *signature, size_t signature_size,
               size_t state_size, bool *fresh)
{
    if (!exo_tape_grow(tape, (void **)&tape->cache, &tape->cap_cache, op->ordinal + 1u,
                       sizeof *tape->cache))
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
exo_tape_plan_failed(exo_tape *tape, exo_op *op, exo_dtype dtype, exo_status status,
                     const exo_err *err)
{
    exo_tape_state_failed(tape, op);
    if (status == EXO_UNSUPPORTED && dtype == EXO_BF16)
        return exo_tape_fail(tape, status,
                             "%s: autocast to bf16 needs a processor with AVX-512; run without it",
                             op->op_class->name);
    return exo_tape_fail(tape, status, "%s", err->text);
}

/* --- The device ------------------------------------------------------------------------------- */

bool
exo_tape_scratch(exo_tape *tape, exo_shape_kind kind, const void *shape, exo_scratch_use use,
                 void **out)
{
    const exo_device *device = exo_tape_device(tape);
    size_t bytes = device->device_class->scratch(device, kind, shape, use);
    *out = bytes ? exo_tape_buffer(tape, bytes) : NULL;
    return !bytes || *out;
}

/* --- Backward --------------------------------------------------------------------------------- */

void *
exo_tape_grad(exo_tape *tape, exo_tensor *in, bool *add, exo_status *st)
{
    if (!in || !in->needs_grad)
        return NULL;
    exo_tape_buffer_done(tape, in->rounded_grad);
    in->rounded_grad = NULL;
    *add = in->is_param || in->grad;
    if (in->is_param && tape->params->pages && in->unit != EXO_NO_UNIT) {
        exo_array unused;
        *st = exo_unit_open_grads(tape->params, in->unit, &unused, &tape->reason);
        if (exo_tape_note(tape, *st) != EXO_OK)
            return NULL;
    }
    if (!in->grad) {
        in->grad = exo_tape_buffer(tape, in->numel * exo_dtype_size(in->dtype));
        if (!in->grad)
            *st = EXO_NOMEM;
        else if (in->is_param)
            *st = exo_tape_run(tape, fill, .count = in->numel, .y = in->grad);
    }
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

void
exo_tape_op_done(exo_tape *tape, exo_op *op)
{
    for (size_t i = 0; i < EXO_MAX_SAVED; i++) {
        exo_tape_buffer_done(tape, op->saved[i]);
        op->saved[i] = NULL;
    }
    if (!op->out)
        return;
    exo_tape_buffer_done(tape, op->out->rounded_grad);
    op->out->rounded_grad = NULL;
    if (op->out->owns_data && op->out->numel > 1) { /* a loss may be read after backward */
        exo_tape_buffer_done(tape, op->out->data);
        op->out->owns_data = false;
    }
    if (op->out->grad && !op->out->keeps_grad) {
        exo_tape_buffer_done(tape, op->out->grad);
        op->out->grad = NULL;
    }
}

/* Runs all operations backwards. The gradient at which backward starts is there. */
static exo_status
walk(exo_tape *tape, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = tape->num_ops; i > 0 && st == EXO_OK; i--) {
        exo_op *op = &tape->ops[i - 1];
        if (op->out && op->out->needs_grad && op->out->grad && op->op_class->backward) {
            st = exo_tape_use_again(tape, op, err);
            if (st == EXO_OK)
                st = op->op_class->backward(tape, op, err);
        }
        exo_tape_op_done(tape, op);
        if (st == EXO_OK)
            st = exo_tape_sink_inputs(tape, op, err);
    }
    if (st == EXO_OK)
        st = exo_tape_leave_units(tape, err);
    if (st == EXO_OK)
        st = exo_tape_sink_rest(tape, err);
    if (st == EXO_OK || tape->error.code == EXO_OK)
        return st;
    return exo_tape_error(tape, err);
}

static exo_status
backward(exo_tape *tape, exo_tensor *loss, float scale, exo_err *err)
{
    if (tape->error.code != EXO_OK)
        return exo_tape_error(tape, err);
    if (!loss || loss->numel != 1 || loss->dtype != EXO_F32)
        return exo_fail(err, EXO_INVAL, "backward starts at a loss of one fp32 element");
    if (tape->walked)
        return exo_fail(err, EXO_INVAL, "backward runs once per pass, and has run");
    if (tape->pass.autocast == EXO_AUTOCAST_FP8 && tape->num_fp8 == 0 && !tape->rehearses)
        return exo_fail(
            err, EXO_INVAL,
            "autocast to fp8: no linear layer of the pass has rows, inputs and outputs that "
            "are all multiples of %d: use bf16, or other sizes",
            EXO_FP8_SIDE);
    tape->walked = true;
    if (!loss->needs_grad) { /* no parameter that learns led to the loss */
        exo_status left = exo_tape_leave_units(tape, err);
        return left == EXO_OK ? exo_tape_sink_rest(tape, err) : left;
    }

    bool add = false;
    exo_status st = EXO_OK;
    float *seed = exo_tape_grad(tape, loss, &add, &st);
    if (!seed)
        return exo_tape_error(tape, err);
    if (add) { /* the loss is a parameter itself */
        float *own = exo_tape_buffer(tape, sizeof *own);
        if (!own || exo_tape_run(tape, fill, .count = 1, .y = own, .value = scale) != EXO_OK ||
            exo_tape_run(tape, add, .count = 1, .dtype = EXO_F32, .y = seed, .a = seed, .b = own) !=
                EXO_OK)
            return exo_tape_error(tape, err);
    } else if (exo_tape_run(tape, fill, .count = 1, .y = seed, .value = scale) != EXO_OK) {
        return exo_tape_error(tape, err);
    }
    return walk(tape, err);
}

exo_status
exo_tape_backward(exo_tape *tape, exo_tensor *loss, float scale, exo_err *err)
{
    return end_section(tape, backward(tape, loss, scale, err), err);
}

static exo_status
backward_from(exo_tape *tape, exo_tensor *x, const float *grad, exo_err *err)
{
    bool add = false;
    exo_status st = EXO_OK;
    if (tape->error.code != EXO_OK)
        return exo_tape_error(tape, err);
    if (!x || x->dtype != EXO_F32 || x->layout != EXO_ROW_MAJOR || x->is_param)
        return exo_fail(err, EXO_INVAL, "backward starts at an fp32 result of the pass");
    if (tape->walked)
        return exo_fail(err, EXO_INVAL, "backward runs once per pass, and has run");
    tape->walked = true;
    if (!x->needs_grad) {
        exo_status left = exo_tape_leave_units(tape, err);
        return left == EXO_OK ? exo_tape_sink_rest(tape, err) : left;
    }
    float *seed = exo_tape_grad(tape, x, &add, &st);
    if (!seed || (!exo_tape_rehearses(tape) &&
                  exo_tape_take(tape, seed, grad, x->numel * sizeof *grad) != EXO_OK))
        return exo_tape_error(tape, err);
    return walk(tape, err);
}

exo_status
exo_tape_backward_from(exo_tape *tape, exo_tensor *x, const float *grad, exo_err *err)
{
    return end_section(tape, backward_from(tape, x, grad, err), err);
}

exo_dtype
exo_compute_dtype(const exo_tape *tape)
{
    return tape->pass.autocast == EXO_AUTOCAST_NONE ? EXO_F32 : EXO_BF16;
}

bool
exo_tape_fp8(exo_tape *tape, size_t rows, size_t in, size_t out)
{
    const bool fits = tape->pass.autocast == EXO_AUTOCAST_FP8 && rows % EXO_FP8_SIDE == 0 &&
                      in % EXO_FP8_SIDE == 0 && out % EXO_FP8_SIDE == 0;
    tape->num_fp8 += fits;
    return fits;
}
