/* Decoders read from Hugging Face directories, and written to them. nn/pretrained reads and writes
 * specs and tensors; this file adds the model and its parameters. No state. Read next:
 * nn/pretrained/pretrained.h. */
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

exo_status
exo_decoder_save(const char *folder, const exo_model *model, exo_params *params, exo_dtype dtype,
                 size_t shard_bytes, exo_err *err)
{
    const exo_decoder_spec *spec = exo_decoder_spec_of(model);
    if (!spec)
        return exo_fail(err, EXO_INVAL, "%s: the model '%s' is not a decoder", folder,
                        exo_model_name(model));
    return exo_pretrained_write(folder, spec, params, dtype, shard_bytes, err);
}
