/* The tape's memory: a pool of buffers, and the tensors of a pass. Both belong to the tape. Read
 * next: tape_impl.h for the life of a buffer. */
#include "nn/tape_private.h"

#include <stdint.h>
#include <string.h>

#include <exogym/memory.h>

#include "nn/phantom.h"

enum {
    PHANTOM_FROM = 256 << 10 /* bytes */
};

/* Only large buffers of a rehearsal are phantoms; smaller ones are real, because they may hold
 * pointers. A request for less than PHANTOM_FROM / 2 bytes never gets an idle phantom, because
 * smallest_that_fits() wastes at most half a block. */
static bool
is_phantom(const exo_tape *tape, size_t bytes)
{
    return tape->rehearses && bytes >= PHANTOM_FROM;
}

static exo_status
new_block(exo_tape *tape, size_t bytes, bool on_host, void **out)
{
    exo_device *device = on_host ? exo_device_cpu() : tape->device;
    if (!is_phantom(tape, bytes))
        return device->device_class->alloc(device, bytes, out, &tape->reason);
    *out = exo_phantom_new(bytes);
    return *out ? EXO_OK
                : exo_fail(&tape->reason, EXO_NOMEM, "no addresses for a buffer of %zu bytes",
                           bytes);
}

static void
free_block(const exo_tape *tape, const struct block *b)
{
    exo_device *device = b->on_host ? exo_device_cpu() : tape->device;
    if (is_phantom(tape, b->bytes))
        exo_phantom_free(b->memory, b->bytes);
    else
        device->device_class->free(device, b->memory, b->bytes);
}

void
exo_tape_free_blocks(exo_tape *tape)
{
    for (size_t i = 0; i < tape->num_blocks; i++)
        free_block(tape, &tape->blocks[i]);
    exo_free(tape->blocks);
}

bool
exo_tape_grow(exo_tape *tape, void **array, size_t *cap, size_t need, size_t size)
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

static struct block *
smallest_that_fits(exo_tape *tape, size_t bytes, bool on_host)
{
    struct block *best = NULL;
    for (size_t i = 0; i < tape->num_blocks; i++) {
        struct block *b = &tape->blocks[i];
        /* At most half a block is wasted, so that large blocks stay free for large requests. */
        if (!b->used && b->on_host == on_host && b->bytes >= bytes && b->bytes / 2 <= bytes &&
            (!best || b->bytes < best->bytes))
            best = b;
    }
    return best;
}

static struct block *
add_block(exo_tape *tape, size_t bytes, bool on_host)
{
    if (!exo_tape_grow(tape, (void **)&tape->blocks, &tape->cap_blocks, tape->num_blocks + 1,
                       sizeof *tape->blocks))
        return NULL;
    void *memory = NULL;
    if (exo_tape_note(tape, new_block(tape, bytes, on_host, &memory)) != EXO_OK)
        return NULL;
    struct block *b = &tape->blocks[tape->num_blocks++];
    *b = (struct block){.memory = memory, .bytes = bytes, .on_host = on_host};
    tape->allocations++;
    tape->bytes += exo_aligned_size(bytes);
    tape->padding += exo_aligned_size(bytes) - bytes;
    tape->real_bytes += is_phantom(tape, bytes) ? 0 : exo_aligned_size(bytes);
    return b;
}

/* First choice is the block that the request at the same place of the last pass got. So a pass like
 * the last one finds all its buffers. */
static void *
buffer(exo_tape *tape, size_t bytes, bool on_host)
{
    size_t place = tape->num_requests++;
    if (!exo_tape_grow(tape, (void **)&tape->requests, &tape->cap_requests, place + 1,
                       sizeof *tape->requests))
        return NULL;
    struct request *r = &tape->requests[place];
    struct block *b =
        r->bytes == bytes && r->block < tape->num_blocks ? &tape->blocks[r->block] : NULL;
    if (!b || b->used || b->bytes < bytes || b->on_host != on_host)
        b = smallest_that_fits(tape, bytes, on_host);
    if (!b)
        b = add_block(tape, bytes, on_host);
    if (!b)
        return NULL;
    *r = (struct request){.bytes = bytes, .block = (size_t)(b - tape->blocks)};
    b->used = true;
    return b->memory;
}

void *
exo_tape_buffer(exo_tape *tape, size_t bytes)
{
    return buffer(tape, bytes, false);
}

void *
exo_tape_host_buffer(exo_tape *tape, size_t bytes)
{
    return buffer(tape, bytes, !exo_device_is_host(tape->device));
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
        return exo_tape_fail(tape, EXO_INVAL, "a tensor has at most %d dimensions, not %zu",
                             EXO_MAX_DIMS, num_dims);
    exo_tensor *t = &tape->slab->tensors[tape->slab_used++];
    *t = (exo_tensor){.tape = tape,
                      .dtype = dtype,
                      .layout = layout,
                      .num_dims = num_dims,
                      .numel = 1,
                      .unit = EXO_NO_UNIT};
    for (size_t d = 0; d < num_dims; d++) {
        t->dims[d] = dims[d];
        if (__builtin_mul_overflow(t->numel, dims[d], &t->numel) || t->numel > SIZE_MAX / 8)
            return exo_tape_fail(tape, EXO_INVAL, "a tensor's size overflows");
    }
    return t;
}

exo_tensor *
exo_tape_tensor(exo_tape *tape, exo_dtype dtype, exo_layout layout, size_t num_dims,
                const size_t *dims)
{
    exo_tensor *t = new_tensor(tape, dtype, layout, num_dims, dims);
    if (!t)
        return NULL;
    t->data = exo_tape_buffer(tape, t->numel * exo_dtype_size(dtype));
    t->owns_data = true;
    return t->data ? t : NULL;
}

exo_tensor *
exo_tape_view(exo_tape *tape, exo_tensor *of, exo_layout layout, size_t num_dims,
              const size_t *dims)
{
    exo_tensor *t = new_tensor(tape, of->dtype, layout, num_dims, dims);
    if (t) {
        t->data = of->data;
        t->host = of->host;
        t->unit = of->unit;
    }
    return t;
}

exo_tensor *
exo_tape_input(exo_tape *tape, exo_dtype dtype, size_t num_dims, const size_t *dims,
               const void *data)
{
    exo_tensor *t = new_tensor(tape, dtype, EXO_ROW_MAJOR, num_dims, dims);
    if (!t)
        return NULL;
    t->host = data;
    t->data = (void *)(uintptr_t)data; /* inputs are never written */
    if (exo_device_is_host(tape->device))
        return t;
    size_t bytes = t->numel * exo_dtype_size(dtype);
    exo_device *device = tape->device;
    t->data = exo_tape_buffer(tape, bytes);
    if (!t->data || exo_tape_note(tape, device->device_class->copy(device, t->data, data, bytes,
                                                                   EXO_COPY_TO_DEVICE,
                                                                   &tape->reason)) != EXO_OK)
        return NULL;
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
        return exo_tape_fail(tape, EXO_INVAL, "parameter %u is not one of the model's %zu",
                             param.index, count);
    if (!exo_tape_grow(tape, (void **)&tape->param_tensors, &tape->num_param_tensors, count,
                       sizeof(exo_tensor *)))
        return NULL;
    exo_tensor *t = tape->param_tensors[param.index];
    if (t)
        return t; /* used before in this pass: one tensor, one gradient */
    const exo_param_info *info = exo_params_info(p, param.index);
    t = new_tensor(tape, EXO_F32, EXO_ROW_MAJOR, info->num_dims, info->dims);
    if (!t)
        return NULL;
    float *grad = tape->pass.sink ? NULL : exo_params_grad_address(p, param.index);
    t->is_param = true;
    t->data = exo_params_address(p, param.index);
    t->unit = info->unit;
    t->offset = info->offset;
    t->needs_grad = tape->pass.grad && !info->is_buffer;
    if (t->needs_grad && !grad && !tape->pass.sink)
        return exo_tape_fail(
            tape, EXO_INVAL,
            "this copy of the model has no gradients: a pass over it needs a sink");
    t->grad = t->needs_grad ? grad : NULL;
    tape->param_tensors[param.index] = t;
    return t;
}
