/* Decoders read from Hugging Face directories, and written to them. nn/pretrained reads and writes
 * specs and tensors; this file adds the model and its parameters. No state. Read next:
 * nn/pretrained/pretrained.h. */
#include <string.h>

#include "nn/device/device_impl.h"
#include "nn/lora.h"
#include "nn/model_impl.h"
#include "nn/pretrained/pretrained.h"

exo_status
exo_decoder_load_params(const char *folder, const exo_model *model, exo_params *params,
                        exo_err *err)
{
    const exo_decoder_spec *spec = exo_decoder_spec_of(model);
    if (!spec)
        return exo_fail(err, EXO_INVAL, "%s: the model '%s' is not a decoder", folder,
                        exo_model_name(model));
    return exo_pretrained_read(folder, spec, params, err);
}

exo_status
exo_decoder_load(const char *folder, exo_model **model, exo_params **params, exo_err *err)
{
    exo_decoder_spec spec;
    exo_model *m = NULL;
    exo_params *p = NULL;
    exo_status st = exo_decoder_load_spec(folder, &spec, err);
    if (st == EXO_OK)
        st = exo_pretrained_check(folder, &spec, err);
    if (st == EXO_OK)
        st = exo_decoder_new(&m, &spec, err);
    if (st == EXO_OK)
        st = exo_model_params_blank(m, true, &p, err);
    if (st == EXO_OK)
        st = exo_decoder_load_params(folder, m, p, err);
    if (st == EXO_OK) {
        *model = m;
        *params = p;
        return EXO_OK;
    }
    exo_params_free(&p);
    exo_model_drop(&m);
    return st;
}

/* --- LoRA -------------------------------------------------------------------------------------- */

/* Copies the base's values. Both have the base's parameters first, in one order. */
static exo_status
copy_base(exo_params *out, exo_params *params, exo_err *err)
{
    for (size_t i = 0; i < exo_params_count(out); i++) {
        const exo_param_info *to = exo_params_info(out, i), *from = exo_params_info(params, i);
        if (!from || strcmp(from->name, to->name) != 0 || from->numel != to->numel)
            return exo_fail(err, EXO_INVAL, "the parameters are of another model: '%s' is missing",
                            to->name);
        memcpy(exo_params_at(out, i), exo_params_at(params, i), to->numel * sizeof(float));
    }
    return EXO_OK;
}

static size_t
find(const exo_params *params, const exo_decoder_spec *spec, const exo_decoder_layer *layer)
{
    exo_decoder_entry entry;
    size_t i = 0;
    while (exo_decoder_entry_at(spec, i, &entry) &&
           (entry.role != layer->role || entry.block != layer->block || entry.bias))
        i++;
    return i < exo_params_count(params) ? i : 0;
}

static void
add_pair(exo_params *out, exo_params *params, const exo_decoder_spec *spec,
         const exo_lora_pair *pair)
{
    const exo_decoder_layer *l = &pair->layer;
    float *rows = exo_params_at(out, find(out, spec, l)) + l->first * l->columns;
    exo_device_run(exo_params_device(out), lora_merge, .rows = l->rows, .columns = l->columns,
                   .rank = pair->rank, .scale = spec->lora_scale, .y = rows, .x = rows,
                   .a = exo_params_at(params, pair->a), .b = exo_params_at(params, pair->b));
}

exo_status
exo_decoder_merge(const exo_model *model, exo_params *params, exo_model **out_model,
                  exo_params **out_params, exo_err *err)
{
    const exo_decoder_spec *spec = exo_decoder_spec_of(model);
    exo_model *m = NULL;
    exo_params *p = NULL;
    exo_lora_pair pair;
    size_t from = 0;
    if (!spec || spec->lora_scale == 0.0f)
        return exo_fail(err, EXO_INVAL, "the model '%s' is no decoder with LoRA",
                        exo_model_name(model));
    exo_decoder_spec base = *spec;
    base.lora_scale = 0.0f;
    exo_status st = exo_lora_check_params(spec, params, exo_params_count(params), err);
    if (st == EXO_OK)
        st = exo_decoder_new(&m, &base, err);
    if (st == EXO_OK)
        st = exo_model_params_blank(m, false, &p, err);
    if (st == EXO_OK)
        st = copy_base(p, params, err);
    while (st == EXO_OK && exo_lora_pair_next(spec, params, &from, &pair))
        add_pair(p, params, spec, &pair);
    if (st == EXO_OK) {
        *out_model = m;
        *out_params = p;
        return EXO_OK;
    }
    exo_params_free(&p);
    exo_model_drop(&m);
    return st;
}

exo_status
exo_decoder_save_adapter(const char *folder, const exo_model *model, exo_params *params,
                         const char *base, exo_err *err)
{
    const exo_decoder_spec *spec = exo_decoder_spec_of(model);
    return spec && spec->lora_scale != 0.0f
               ? exo_adapter_write(folder, spec, params, base, err)
               : exo_fail(err, EXO_INVAL, "%s: the model '%s' is no decoder with LoRA", folder,
                          exo_model_name(model));
}

/* --- Saving ------------------------------------------------------------------------------------ */

static exo_status
save_merged(const char *folder, const exo_model *model, exo_params *params, exo_dtype dtype,
            size_t shard_bytes, const _Atomic int *stop, exo_err *err)
{
    exo_model *base = NULL;
    exo_params *merged = NULL;
    exo_status st = exo_decoder_merge(model, params, &base, &merged, err);
    if (st == EXO_OK)
        st = exo_decoder_save_until(folder, base, merged, dtype, shard_bytes, stop, err);
    exo_params_free(&merged);
    exo_model_drop(&base);
    return st;
}

exo_status
exo_decoder_save_until(const char *folder, const exo_model *model, exo_params *params,
                       exo_dtype dtype, size_t shard_bytes, const _Atomic int *stop, exo_err *err)
{
    const exo_decoder_spec *spec = exo_decoder_spec_of(model);
    if (!spec)
        return exo_fail(err, EXO_INVAL, "%s: the model '%s' is not a decoder", folder,
                        exo_model_name(model));
    exo_status st = spec->lora_scale != 0.0f
                        ? save_merged(folder, model, params, dtype, shard_bytes, stop, err)
                        : exo_pretrained_write(folder, spec, params, dtype, shard_bytes, stop, err);
    return st == EXO_OK ? exo_value_head_write(folder, params, err) : st;
}

exo_status
exo_decoder_save(const char *folder, const exo_model *model, exo_params *params, exo_dtype dtype,
                 size_t shard_bytes, exo_err *err)
{
    return exo_decoder_save_until(folder, model, params, dtype, shard_bytes, NULL, err);
}
