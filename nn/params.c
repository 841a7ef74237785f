/* Copies of a model's numbers (exo_params). A copy belongs to its user. It is flat, on a device
 * (params_device.c), a phantom without memory of its own (phantom.h), or by units (units.c). Read
 * next: params_impl.h. */
#include <stdio.h>

#include <exogym/memory.h>

#include "base/memory_limits.h"
#include "nn/cuts.h"
#include "nn/device/device_impl.h"
#include "nn/hash.h"
#include "nn/model_private.h"
#include "nn/params_impl.h"
#include "nn/phantom.h"

enum {
    HASH_PIECE = 1 << 18 /* numbers copied from a device at a time */
};

static float
draw(exo_rng *rng, exo_init init)
{
    switch (init.kind) {
    case EXO_INIT_UNIFORM:
        return init.a * (2.0f * exo_rng_uniform(rng) - 1.0f);
    case EXO_INIT_NORMAL:
        return init.a * exo_rng_normal(rng);
    case EXO_INIT_CONSTANT:
        break;
    }
    return init.a;
}

/* Draws a whole parameter. Of one that is cut it keeps the slice, which is in the same order. */
static void
draw_initial(float *out, const exo_param_info *info, const exo_param_cut *cut, exo_init init,
             uint64_t seed, uint64_t index)
{
    const bool is_cut = cut->num_bands > 0;
    const size_t slice = is_cut ? info->dims[cut->dim] : 1, whole = is_cut ? cut->whole : 1;
    size_t inner = 1;
    exo_rng rng;
    exo_rng_init(&rng, seed, EXO_RNG_INIT, 0, index);
    for (size_t d = cut->dim + 1; is_cut && d < info->num_dims; d++)
        inner *= info->dims[d];
    for (size_t i = 0, kept = 0; i < info->numel / slice * whole; i++) {
        float value = draw(&rng, init);
        if (!is_cut || exo_cut_has(cut, i / inner % whole))
            out[kept++] = value;
    }
}

static exo_params
of_builder(const struct exo_builder *b)
{
    return (exo_params){.infos = b->infos,
                        .count = b->count,
                        .numel = b->numel,
                        .buffer_numel = b->buffer_numel,
                        .frozen_numel = b->frozen_numel,
                        .units = b->units,
                        .num_units = b->num_units};
}

exo_status
exo_model_params_blank(const exo_model *model, bool learns, exo_params **out, exo_err *err)
{
    const struct exo_builder *b = &model->built;
    char what[64];
    snprintf(what, sizeof what, "the model's %zu parameters", b->numel);
    exo_status st =
        exo_memory_expect((uint64_t)b->numel * sizeof(float) * (learns ? 2 : 1), what, err);
    if (st != EXO_OK)
        return st;
    exo_params *p = exo_calloc(1, sizeof *p);
    if (p) {
        *p = of_builder(b);
        p->values = exo_alloc_aligned(b->numel * sizeof(float));
        p->grads = learns ? exo_alloc_aligned(b->numel * sizeof(float)) : NULL;
        p->buffers = exo_alloc_aligned(b->buffer_numel * sizeof(float));
    }
    if (!p || !p->values || (learns && !p->grads) || !p->buffers) {
        exo_params_free(&p);
        return exo_fail(err, EXO_NOMEM, "no memory for %zu parameters", b->numel);
    }
    *out = p;
    return EXO_OK;
}

exo_status
exo_model_params_phantom(const exo_model *model, exo_params **out, exo_err *err)
{
    const struct exo_builder *b = &model->built;
    exo_params *p = exo_calloc(1, sizeof *p);
    if (p) {
        *p = of_builder(b);
        p->phantom = true;
        p->values = exo_phantom_new(b->numel * sizeof(float));
        p->grads = exo_phantom_new(b->numel * sizeof(float));
        p->buffers = exo_phantom_new(b->buffer_numel * sizeof(float));
    }
    if (!p || !p->values || !p->grads || !p->buffers) {
        exo_params_free(&p);
        return exo_fail(err, EXO_NOMEM, "no addresses for %zu parameters", b->numel);
    }
    *out = p;
    return EXO_OK;
}

exo_status
exo_model_copy(exo_model *model, exo_params **out, exo_err *err)
{
    return exo_model_params_blank(model, false, out, err);
}

/* Draws the parameters of a unit. EXO_NO_UNIT: buffers and frozen parameters. */
static void
draw_unit(const exo_model *model, exo_params *p, uint32_t unit, uint64_t seed)
{
    const struct exo_builder *b = &model->built;
    for (size_t i = 0; i < b->count; i++)
        if (b->infos[i].unit == unit)
            draw_initial(exo_params_at(p, i), &b->infos[i], &b->cuts[i], b->inits[i], seed,
                         b->numbers[i]);
}

static exo_status
fill(exo_model *model, exo_params *params, exo_err *err)
{
    const exo_model_class *c = model->model_class;
    return c->fill ? c->fill(model->self, params, err) : EXO_OK;
}

static exo_status
initial_params(exo_model *model, uint64_t seed, bool learns, exo_params **out, exo_err *err)
{
    exo_params *p = NULL;
    exo_status st = exo_model_params_blank(model, learns, &p, err);
    if (st != EXO_OK)
        return st;
    for (uint32_t u = 0; u < p->num_units; u++)
        draw_unit(model, p, u, seed);
    draw_unit(model, p, EXO_NO_UNIT, seed);
    st = fill(model, p, err);
    if (st != EXO_OK) {
        exo_params_free(&p);
        return st;
    }
    *out = p;
    return EXO_OK;
}

exo_status
exo_model_by_units(exo_model *model, uint64_t seed, exo_params **out, exo_err *err)
{
    exo_params *p = exo_calloc(1, sizeof *p);
    if (p) {
        *p = of_builder(&model->built);
        p->buffers = exo_alloc_aligned(p->buffer_numel * sizeof(float));
    }
    exo_status st =
        p && p->buffers ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for the model's buffers");
    if (st == EXO_OK)
        st = exo_params_reserve(p, err);
    if (st == EXO_OK) {
        draw_unit(model, p, EXO_NO_UNIT, seed);
        st = fill(model, p, err);
    }
    if (st == EXO_OK)
        *out = p;
    else
        exo_params_free(&p);
    return st;
}

/* Draws a unit of a copy on another device, and copies it there. */
static exo_status
draw_far(exo_model *model, exo_params *params, size_t unit, uint64_t seed, exo_err *err)
{
    exo_params *here = NULL;
    exo_array values;
    exo_status st = exo_model_by_units(model, seed, &here, err);
    if (st == EXO_OK)
        st = exo_unit_open(here, unit, &values, err);
    if (st == EXO_OK)
        st = exo_unit_draw(model, here, unit, seed, err);
    if (st == EXO_OK)
        st = exo_array_write(exo_unit_values(params, unit), values.data, err);
    exo_params_free(&here);
    return st;
}

exo_status
exo_unit_draw(exo_model *model, exo_params *params, size_t unit, uint64_t seed, exo_err *err)
{
    if (params->device)
        return draw_far(model, params, unit, seed, err);
    draw_unit(model, params, (uint32_t)unit, seed);
    return params->pages ? fill(model, params, err) : EXO_OK;
}

exo_status
exo_model_params(exo_model *model, uint64_t seed, exo_params **out, exo_err *err)
{
    return initial_params(model, seed, true, out, err);
}

exo_status
exo_model_values(exo_model *model, uint64_t seed, exo_params **out, exo_err *err)
{
    return initial_params(model, seed, false, out, err);
}

static void
release_far(exo_params *params)
{
    exo_device *device = params->device;
    size_t bytes = params->numel * sizeof(float);
    exo_params_unreserve(params);
    device->device_class->free(device, params->values, bytes);
    device->device_class->free(device, params->grads, bytes);
    device->device_class->free(device, params->buffers, params->buffer_numel * sizeof(float));
}

void
exo_params_free(exo_params **params)
{
    exo_params *p = *params;
    if (!p)
        return;
    if (p->device) {
        release_far(p);
    } else if (p->phantom) {
        exo_phantom_free(p->values, p->numel * sizeof(float));
        exo_phantom_free(p->grads, p->numel * sizeof(float));
        exo_phantom_free(p->buffers, p->buffer_numel * sizeof(float));
    } else {
        exo_params_unreserve(p);
        exo_free(p->values);
        exo_free(p->grads);
        exo_free(p->buffers);
    }
    exo_free(p);
    *params = NULL;
}

size_t
exo_params_count(const exo_params *params)
{
    return params->count;
}

const exo_param_info *
exo_params_info(const exo_params *params, size_t index)
{
    return index < params->count ? &params->infos[index] : NULL;
}

size_t
exo_params_numel(const exo_params *params)
{
    return params->numel;
}

size_t
exo_params_buffer_numel(const exo_params *params)
{
    return params->buffer_numel;
}

size_t
exo_params_frozen_numel(const exo_params *params)
{
    return params->frozen_numel;
}

float *
exo_params_at(exo_params *params, size_t index)
{
    const exo_param_info *info = &params->infos[index];
    bool absent = params->pages && !info->is_buffer && !params->pages[info->unit].open;
    return absent ? NULL : exo_params_address(params, index);
}

float *
exo_params_values(exo_params *params)
{
    return params->values;
}

float *
exo_params_grads(exo_params *params)
{
    return params->grads;
}

float *
exo_params_buffers(exo_params *params)
{
    return params->buffers;
}

exo_device *
exo_params_device(const exo_params *params)
{
    return params->device ? params->device : exo_device_cpu();
}

static exo_array
array_of(const exo_params *params, float *data, size_t count)
{
    return (exo_array){.device = exo_params_device(params),
                       .data = data,
                       .count = data ? count : 0,
                       .dtype = EXO_F32};
}

exo_array
exo_params_values_array(const exo_params *params)
{
    return array_of(params, params->values, params->numel);
}

exo_array
exo_params_grads_array(const exo_params *params)
{
    return array_of(params, params->grads, params->numel);
}

exo_array
exo_params_buffers_array(const exo_params *params)
{
    return array_of(params, params->buffers, params->buffer_numel);
}

void
exo_params_zero_grads(exo_params *params)
{
    for (size_t u = 0; params->pages && u < params->num_units; u++)
        exo_unit_close_grads(params, u);
    if (!params->pages)
        exo_vec_fill(exo_params_grads_array(params), 0.0f);
}

/* Adds fp32 numbers to a hash; those of a device are copied to the host, piece by piece. */
static exo_status
hash_array(exo_hash *hash, exo_array array, exo_err *err)
{
    const float *here = exo_array_host(array);
    if (here)
        exo_hash_add(hash, here, array.count * sizeof *here);
    if (here || array.count == 0)
        return EXO_OK;
    float *piece = exo_calloc(HASH_PIECE, sizeof *piece);
    exo_status st = piece ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory to copy parameters");
    for (size_t at = 0; st == EXO_OK && at < array.count; at += HASH_PIECE) {
        size_t count = array.count - at < HASH_PIECE ? array.count - at : HASH_PIECE;
        st = exo_array_read(exo_array_part(array, at, count), piece, err);
        if (st == EXO_OK)
            exo_hash_add(hash, piece, count * sizeof *piece);
    }
    exo_free(piece);
    return st;
}

exo_status
exo_params_sha256(exo_params *params, char out[65], exo_err *err)
{
    if (params->pages)
        return exo_fail(err, EXO_UNSUPPORTED, "a copy by units has no SHA-256: take a flat copy");
    exo_hash hash = {0};
    exo_status st = exo_hash_init(&hash, err);
    if (st == EXO_OK)
        st = hash_array(&hash, exo_params_values_array(params), err);
    if (st == EXO_OK)
        st = hash_array(&hash, exo_params_buffers_array(params), err);
    if (st == EXO_OK && !exo_hash_end(&hash, out))
        st = exo_fail(err, EXO_FAILED, "libcrypto gives no SHA-256");
    exo_hash_release(&hash);
    return st;
}
