/* Models: building, freezing, passes, and the registry of classes. A model is read-only after
 * exo_model_new, except for its reference count. Read next: params.c, the copies of its numbers. */
#include <exogym/model.h>

#include <fnmatch.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "nn/builtin_models.h"
#include "nn/model_impl.h"
#include "nn/model_private.h"
#include "nn/outputs.h"

/* --- Building --------------------------------------------------------------------------------- */

exo_init
exo_init_constant(float value)
{
    return (exo_init){.kind = EXO_INIT_CONSTANT, .a = value};
}

exo_init
exo_init_uniform(float bound)
{
    return (exo_init){.kind = EXO_INIT_UNIFORM, .a = bound};
}

exo_init
exo_init_normal(float deviation)
{
    return (exo_init){.kind = EXO_INIT_NORMAL, .a = deviation};
}

exo_init
exo_init_kaiming_uniform(size_t fan_in)
{
    return exo_init_uniform(fan_in ? 1.0f / sqrtf((float)fan_in) : 0.0f);
}

static exo_status
builder_grow(exo_builder *b)
{
    if (b->count < b->cap)
        return EXO_OK;
    size_t cap = b->cap ? b->cap * 2 : 16;
    exo_param_info *infos = exo_realloc(b->infos, cap, sizeof *infos);
    if (infos)
        b->infos = infos;
    exo_init *inits = infos ? exo_realloc(b->inits, cap, sizeof *inits) : NULL;
    if (inits)
        b->inits = inits;
    exo_param_cut *cuts = inits ? exo_realloc(b->cuts, cap, sizeof *cuts) : NULL;
    if (cuts)
        b->cuts = cuts;
    size_t *numbers = cuts ? exo_realloc(b->numbers, cap, sizeof *numbers) : NULL;
    if (!numbers)
        return exo_fail(&b->error, EXO_NOMEM, "no memory for the model's parameters");
    b->numbers = numbers;
    b->cap = cap;
    return EXO_OK;
}

void
exo_build_unit(exo_builder *builder, const char *name)
{
    exo_builder *b = builder;
    if (b->error.code != EXO_OK)
        return;
    for (size_t i = 0; i < b->num_units; i++) {
        if (strcmp(b->units[i].name, name) == 0) {
            exo_fail(&b->error, EXO_EXISTS, "the model has two units '%s'", name);
            return;
        }
    }
    exo_unit_info *units = exo_realloc(b->units, b->num_units + 1, sizeof *units);
    if (units)
        b->units = units;
    char *copy = units ? exo_strdup(name) : NULL;
    if (copy)
        b->units[b->num_units++] = (exo_unit_info){.name = copy};
    else
        exo_fail(&b->error, EXO_NOMEM, "no memory for the unit '%s'", name);
}

static exo_param
declare(exo_builder *b, const char *name, size_t num_dims, const size_t *dims, exo_init init,
        bool is_buffer)
{
    const exo_param none = {.index = UINT32_MAX};
    if (b->error.code != EXO_OK || builder_grow(b) != EXO_OK)
        return none;
    if (num_dims > EXO_MAX_DIMS) {
        exo_fail(&b->error, EXO_INVAL, "parameter '%s' has %zu dimensions, at most %d are possible",
                 name, num_dims, EXO_MAX_DIMS);
        return none;
    }
    for (size_t i = 0; i < b->count; i++) {
        if (strcmp(b->infos[i].name, name) == 0) {
            exo_fail(&b->error, EXO_EXISTS, "the model declares '%s' twice", name);
            return none;
        }
    }
    if (!is_buffer && b->num_units == 0)
        exo_build_unit(b, "model");
    if (b->error.code != EXO_OK)
        return none;
    exo_param_info info = {.num_dims = num_dims, .numel = 1, .is_buffer = is_buffer};
    info.unit = is_buffer ? EXO_NO_UNIT : (uint32_t)(b->num_units - 1);
    for (size_t d = 0; d < num_dims; d++) {
        info.dims[d] = dims[d];
        if (__builtin_mul_overflow(info.numel, dims[d], &info.numel) ||
            info.numel > SIZE_MAX / 16) {
            exo_fail(&b->error, EXO_INVAL, "parameter '%s' is too large", name);
            return none;
        }
    }
    info.name = exo_strdup(name);
    if (!info.name) {
        exo_fail(&b->error, EXO_NOMEM, "no memory for the name '%s'", name);
        return none;
    }
    size_t *total = is_buffer ? &b->buffer_numel : &b->numel;
    info.offset = *total;
    *total += info.numel;
    b->infos[b->count] = info;
    b->inits[b->count] = init;
    b->cuts[b->count] = (exo_param_cut){0};
    b->numbers[b->count] = b->count + b->absent;
    return (exo_param){.index = (uint32_t)b->count++};
}

exo_param
exo_build_param(exo_builder *builder, const char *name, size_t num_dims, const size_t *dims,
                exo_init init)
{
    return declare(builder, name, num_dims, dims, init, false);
}

exo_param
exo_build_buffer(exo_builder *builder, const char *name, size_t num_dims, const size_t *dims,
                 exo_init init)
{
    return declare(builder, name, num_dims, dims, init, true);
}

void
exo_build_absent(exo_builder *builder)
{
    builder->absent++;
}

void
exo_build_boundary(exo_builder *builder, exo_param param)
{
    if (builder->error.code == EXO_OK && param.index < builder->count)
        builder->infos[param.index].at_boundary = true;
}

static void
freeze_info(exo_param_info *info)
{
    info->frozen = info->is_buffer = true;
    info->unit = EXO_NO_UNIT;
}

void
exo_build_frozen(exo_builder *builder, exo_param param)
{
    if (builder->error.code != EXO_OK || param.index >= builder->count)
        return;
    exo_param_info *info = &builder->infos[param.index];
    if (!info->is_buffer)
        freeze_info(info);
}

exo_status
exo_build_status(const exo_builder *builder, exo_err *err)
{
    if (builder->error.code != EXO_OK && err)
        *err = builder->error;
    return builder->error.code;
}

/* --- Freezing --------------------------------------------------------------------------------- */

static exo_status
freeze_matching(exo_builder *b, const exo_config *at, const char *pattern, exo_err *err)
{
    size_t taken = 0;
    for (size_t i = 0; i < b->count; i++) {
        exo_param_info *info = &b->infos[i];
        if ((info->is_buffer && !info->frozen) || fnmatch(pattern, info->name, 0) != 0)
            continue;
        freeze_info(info);
        taken++;
    }
    if (taken > 0)
        return EXO_OK;
    return exo_config_fail(at, err,
                           "frozen: no parameter matches '%.60s'; the first one is called %s",
                           pattern, b->count ? b->infos[0].name : "nothing");
}

/* Computes all offsets anew after freezing. Parameters lie one after another without gaps; so do
 * buffers, and the frozen parameters after them. */
static void
lay_out(exo_builder *b)
{
    b->numel = b->buffer_numel = b->frozen_numel = 0;
    for (size_t i = 0; i < b->count; i++) {
        exo_param_info *info = &b->infos[i];
        size_t *total = info->frozen      ? &b->frozen_numel
                        : info->is_buffer ? &b->buffer_numel
                                          : &b->numel;
        info->offset = *total;
        *total += info->numel;
    }
    for (size_t i = 0; i < b->count; i++)
        if (b->infos[i].frozen)
            b->infos[i].offset += b->buffer_numel;
    b->buffer_numel += b->frozen_numel;
}

/* Sets the range of each unit, once offsets are known. Drops units without elements. */
static void
cut_units(exo_builder *b)
{
    size_t kept = 0, first = 0;
    for (size_t u = 0; u < b->num_units; u++) {
        exo_unit_info unit = {.name = b->units[u].name, .first = first};
        for (size_t i = 0; i < b->count; i++) {
            exo_param_info *info = &b->infos[i];
            if (info->unit != u || info->is_buffer)
                continue;
            info->unit = (uint32_t)kept;
            unit.count += info->numel;
        }
        first += unit.count;
        if (unit.count == 0)
            exo_free((void *)(uintptr_t)unit.name);
        else
            b->units[kept++] = unit;
    }
    b->num_units = kept;
}

/* Reads the option frozen: a pattern, or a list of patterns. */
static exo_status
freeze(exo_builder *b, exo_config *config, exo_err *err)
{
    exo_config *list = NULL;
    const char *pattern = NULL;
    exo_status st = exo_config_list(config, "frozen", &list, NULL);
    if (st == EXO_NOMEM)
        return exo_fail(err, st, "frozen: out of memory");
    if (st != EXO_OK || !list) {
        st = exo_config_string(config, "frozen", NULL, &pattern, err);
        if (st == EXO_OK && pattern)
            st = freeze_matching(b, config, pattern, err);
    }
    for (size_t i = 0; list && st == EXO_OK && i < exo_config_length(list); i++) {
        exo_config *item = exo_config_item(list, i);
        pattern = exo_config_scalar(item);
        st = pattern ? freeze_matching(b, item, pattern, err)
                     : exo_config_fail(item, err, "frozen: expected a pattern of parameter names");
    }
    if (st != EXO_OK)
        return st;
    size_t learned = b->numel;
    lay_out(b);
    return b->numel > 0 || learned == 0
               ? EXO_OK
               : exo_config_fail(config, err,
                                 "frozen: the patterns match all of the model's parameters");
}

static void
builder_release(exo_builder *b)
{
    for (size_t i = 0; i < b->count; i++)
        exo_free((void *)(uintptr_t)b->infos[i].name);
    for (size_t i = 0; i < b->num_units; i++)
        exo_free((void *)(uintptr_t)b->units[i].name);
    exo_free(b->units);
    exo_free(b->infos);
    exo_free(b->inits);
    exo_free(b->cuts);
    exo_free(b->numbers);
}

/* --- Models ----------------------------------------------------------------------------------- */

static exo_status
check_class(const exo_model_class *c, exo_err *err)
{
    if (!c->build || !c->forward || !c->outputs)
        return exo_fail(err, EXO_INVAL, "the model class '%s' lacks build, forward or outputs",
                        c->name);
    for (size_t i = 0; c->objective && c->objective->outputs[i]; i++)
        if (!exo_names_have(c->outputs, c->objective->outputs[i]))
            return exo_fail(
                err, EXO_INVAL,
                "the objective '%s' takes the output '%s', which the model class '%s' lacks",
                c->objective->name, c->objective->outputs[i], c->name);
    return EXO_OK;
}

/* Makes a model with zeroed state, which is not built yet. After a failure *out may hold a part of
 * it, which the caller drops. */
static exo_status
begin(exo_model **out, const exo_model_class *model_class, exo_err *err)
{
    exo_status st = check_class(model_class, err);
    if (st != EXO_OK)
        return st;
    exo_model *m = exo_calloc(1, sizeof *m);
    if (m) {
        m->references = 1;
        m->model_class = model_class;
        m->self = exo_calloc(1, model_class->state_size);
    }
    *out = m;
    return m && m->self
               ? EXO_OK
               : exo_fail(err, EXO_NOMEM, "no memory for the model '%s'", model_class->name);
}

static exo_status
build(exo_model *m, exo_config *config, exo_err *err)
{
    exo_status st = m->model_class->build(m->self, &m->built, config, err);
    /* Also reports the error of a build that did not ask exo_build_status. */
    return st == EXO_OK ? exo_build_status(&m->built, err) : st;
}

exo_status
exo_model_new(exo_model **out, const exo_model_class *model_class, exo_config *config, exo_err *err)
{
    exo_config_doc *empty = NULL;
    exo_model *m = NULL;
    exo_status st = begin(&m, model_class, err);
    if (st != EXO_OK)
        goto done;
    if (!config) {
        st = exo_config_parse(&empty, "defaults", "{}", err);
        if (st != EXO_OK)
            goto done;
        config = exo_config_root(empty);
    }
    st = build(m, config, err);
    if (st == EXO_OK)
        st = freeze(&m->built, config, err);
    if (st == EXO_OK)
        st = exo_config_finish(config, err);
    if (st != EXO_OK)
        goto done;
    cut_units(&m->built);
    *out = m;
    m = NULL;
done:
    exo_config_free(&empty);
    exo_model_drop(&m);
    return st;
}

exo_status
exo_model_new_from(exo_model **out, const exo_model_class *model_class, const void *state,
                   exo_err *err)
{
    exo_model *m = NULL;
    exo_status st = begin(&m, model_class, err);
    if (st == EXO_OK) {
        memcpy(m->self, state, model_class->state_size);
        st = build(m, NULL, err);
    }
    if (st == EXO_OK) {
        lay_out(&m->built);
        cut_units(&m->built);
        *out = m;
        m = NULL;
    }
    exo_model_drop(&m);
    return st;
}

const void *
exo_model_state_of(const exo_model *model, const exo_model_class *model_class)
{
    return model && model->model_class == model_class ? model->self : NULL;
}

exo_model *
exo_model_hold(exo_model *model)
{
    atomic_fetch_add(&model->references, 1);
    return model;
}

void
exo_model_drop(exo_model **model)
{
    exo_model *m = *model;
    *model = NULL;
    if (!m || atomic_fetch_sub(&m->references, 1) > 1)
        return;
    if (m->self && m->model_class->release)
        m->model_class->release(m->self);
    builder_release(&m->built);
    exo_free(m->self);
    exo_free(m);
}

const char *
exo_model_name(const exo_model *model)
{
    return model->model_class->name;
}

size_t
exo_model_numel(const exo_model *model)
{
    return model->built.numel;
}

size_t
exo_model_buffer_numel(const exo_model *model)
{
    return model->built.buffer_numel;
}

const exo_param_info *
exo_model_infos(const exo_model *model)
{
    return model->built.infos;
}

size_t
exo_model_num_infos(const exo_model *model)
{
    return model->built.count;
}

const exo_unit_info *
exo_model_units(const exo_model *model)
{
    return model->built.units;
}

size_t
exo_model_num_units(const exo_model *model)
{
    return model->built.num_units;
}

/* --- Passes ----------------------------------------------------------------------------------- */

/* Checks that the model has the outputs that are asked for. False: recorded. */
static bool
check_outputs(const exo_model *model, exo_tape *tape, const exo_outputs *outputs)
{
    const exo_model_class *c = model->model_class;
    if (outputs->count > EXO_MAX_OUTPUTS) {
        exo_tape_fail(tape, EXO_INVAL, "a pass asks for more than %d outputs of '%s'",
                      EXO_MAX_OUTPUTS, c->name);
        return false;
    }
    for (size_t i = 0; i < outputs->count; i++) {
        if (exo_names_have(c->outputs, outputs->items[i].name))
            continue;
        char all[256] = "";
        for (size_t k = 0, used = 0; c->outputs[k] && used < sizeof all; k++)
            used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", k ? ", " : "",
                                     c->outputs[k]);
        exo_tape_fail(tape, EXO_NOT_FOUND, "the model '%s' has no output '%s'; it has %s", c->name,
                      outputs->items[i].name, all);
        return false;
    }
    return true;
}

bool
exo_model_forward(const exo_model *model, exo_tape *tape, const exo_batch *batch,
                  exo_outputs *outputs)
{
    const exo_model_class *c = model->model_class;
    outputs->tape = tape;
    if (exo_tape_error(tape, NULL) != EXO_OK || !check_outputs(model, tape, outputs))
        return false;
    c->forward(model->self, tape, batch, outputs);
    for (size_t i = 0; i < outputs->count && exo_tape_error(tape, NULL) == EXO_OK; i++)
        if (!outputs->items[i].made.x)
            exo_tape_fail(tape, EXO_FAILED, "the model '%s' gave no output '%s' and no reason",
                          c->name, outputs->items[i].name);
    return exo_tape_error(tape, NULL) == EXO_OK;
}

const exo_objective *
exo_model_objective(const exo_model *model)
{
    return model->model_class->objective;
}

exo_tensor *
exo_model_loss(const exo_model *model, exo_tape *tape, const exo_batch *batch)
{
    const exo_objective *objective = model->model_class->objective;
    if (!objective)
        return exo_tape_fail(tape, EXO_UNSUPPORTED,
                             "the model '%s' has no objective: its trainer computes the loss",
                             model->model_class->name);
    exo_outputs outputs = exo_outputs_init(objective->outputs);
    return exo_model_forward(model, tape, batch, &outputs)
               ? objective->loss(model->self, tape, &outputs, batch)
               : NULL;
}

/* --- Registry --------------------------------------------------------------------------------- */

exo_registry exo_model_registry = EXO_REGISTRY("model");

const exo_model_class *
exo_model_class_at(size_t index)
{
    return exo_registry_at(&exo_model_registry, index);
}

exo_status
exo_model_register(const exo_model_class *model_class, exo_err *err)
{
    return exo_registry_add(&exo_model_registry, model_class, err);
}

exo_status
exo_model_new_named(exo_model **out, const char *name, exo_config *config, exo_err *err)
{
    const exo_model_class *c = exo_registry_find(&exo_model_registry, name);
    return c ? exo_model_new(out, c, config, err)
             : exo_registry_unknown(&exo_model_registry, name, err);
}
