/* Snapshots: see snapshot.h. */
#include "nn/updates/snapshot.h"

#include <math.h>
#include <stdatomic.h>

#include <exogym/device.h>
#include <exogym/memory.h>

#include "base/parallel.h"

bool
exo_is_int8(exo_update_form form, const exo_param_info *info)
{
    return form == EXO_UPDATE_INT8 && info->num_dims >= 2;
}

exo_status
exo_snapshot_new(exo_snapshot **out, exo_model *model, exo_err *err)
{
    exo_snapshot *s = exo_calloc(1, sizeof *s);
    if (!s)
        return exo_fail(err, EXO_NOMEM, "no memory for a copy of the parameters");
    s->references = 1;
    s->count = exo_model_num_infos(model);
    s->hashes = exo_calloc(s->count, sizeof *s->hashes);
    s->coded = exo_calloc(s->count, sizeof *s->coded);
    exo_status st = s->hashes && s->coded
                        ? exo_model_copy(model, &s->params, err)
                        : exo_fail(err, EXO_NOMEM, "no memory for a copy of the parameters");
    if (st == EXO_OK)
        *out = s;
    else
        exo_snapshot_drop(&s);
    return st;
}

exo_snapshot *
exo_snapshot_hold(exo_snapshot *snapshot)
{
    if (snapshot)
        snapshot->references++;
    return snapshot;
}

void
exo_snapshot_drop(exo_snapshot **snapshot)
{
    exo_snapshot *s = *snapshot;
    *snapshot = NULL;
    if (!s || --s->references > 0)
        return;
    exo_ipc_array_drop(&s->shared);
    exo_params_free(&s->params);
    for (size_t i = 0; s->coded && i < s->count; i++)
        exo_free(s->coded[i]);
    exo_free(s->coded);
    exo_free(s->hashes);
    exo_free(s);
}

/* --- Values ----------------------------------------------------------------------------------- */

static exo_status
check_finite(float *values, const exo_param_info *info, exo_err *err)
{
    double sum = 0;
    exo_status st = exo_vec_sum_squares(exo_host_array(EXO_F32, values, info->numel), 0, &sum, err);
    if (st == EXO_OK && !isfinite(sum))
        st = exo_fail(err, EXO_INVAL,
                      "parameter '%s' has a value that is not finite, which int8 cannot send: look "
                      "for the step of training that made it",
                      info->name);
    return st;
}

/* Encodes and decodes the values piece by piece; keeps the encodings in the form int8. */
static exo_status
round_values(exo_snapshot *s, size_t index, float *values, const exo_rounding *r, exo_err *err)
{
    const exo_param_info *info = exo_params_info(s->params, index);
    bool int8 = exo_is_int8(r->form, info);
    exo_codec *codec = int8 ? r->int8 : r->bf16;
    size_t each = exo_codec_bound(codec, r->piece), at = 0, size = 0;
    exo_status st = int8 ? check_finite(values, info, err) : EXO_OK;
    if (st != EXO_OK)
        return st;
    if (int8) {
        s->coded[index] = exo_calloc((info->numel + r->piece - 1) / r->piece, each);
        if (!s->coded[index])
            return exo_fail(err, EXO_NOMEM, "no memory for the encoding of '%s'", info->name);
    }
    for (size_t first = 0; st == EXO_OK && first < info->numel; first += r->piece, at += each) {
        size_t count = info->numel - first < r->piece ? info->numel - first : r->piece;
        uint8_t *coded = int8 ? s->coded[index] + at : r->room;
        st = exo_codec_encode(codec, NULL, values + first, count, coded, &size, err);
        if (st == EXO_OK)
            st = exo_codec_decode(codec, NULL, coded, size, values + first, count, err);
    }
    return st;
}

/* Tensor `index` of a flat copy. */
static exo_array
tensor_of(exo_params *params, size_t index)
{
    const exo_param_info *info = exo_params_info(params, index);
    exo_array flat =
        info->is_buffer ? exo_params_buffers_array(params) : exo_params_values_array(params);
    return exo_array_part(flat, info->offset, info->numel);
}

static bool
rounds(const exo_rounding *r, const exo_param_info *info)
{
    return r->form == EXO_UPDATE_BF16 || r->form == EXO_UPDATE_BF16_DELTA ||
           exo_is_int8(r->form, info);
}

exo_status
exo_snapshot_share(exo_snapshot *s, exo_params *params, const exo_rounding *r, exo_err *err)
{
    exo_device *device = exo_params_device(params);
    size_t numel = exo_params_numel(params) + exo_params_buffer_numel(params), at = 0;
    if (exo_ipc_array_new(&s->shared, device, EXO_F32, numel, NULL) != EXO_OK)
        return EXO_OK;
    for (size_t i = 0; i < s->count; i++) {
        const exo_param_info *info = exo_params_info(params, i);
        exo_array to = exo_array_part(exo_ipc_array_of(s->shared), at, info->numel);
        if (rounds(r, info))
            exo_array_send(to, exo_params_at(s->params, i));
        else
            exo_vec_copy(to, tensor_of(params, i));
        at += info->numel;
    }
    exo_status st = exo_ipc_array_seal(s->shared, &s->handle, err);
    if (st == EXO_OK)
        s->place = exo_ipc_place(device);
    else
        exo_ipc_array_drop(&s->shared);
    /* bytes will do if no more than the name is missing */
    return st == EXO_OK ? EXO_OK : exo_device_synchronize(device, err);
}

exo_status
exo_snapshot_copy(exo_snapshot *s, exo_params *params, size_t index, const exo_rounding *r,
                  exo_err *err)
{
    const exo_param_info *info = exo_params_info(params, index);
    float *values = exo_params_at(s->params, index);
    exo_status st = exo_array_read(tensor_of(params, index), values, err);
    return st == EXO_OK && rounds(r, info) ? round_values(s, index, values, r, err) : st;
}

/* --- Hashes ----------------------------------------------------------------------------------- */

struct hashing {
    exo_snapshot *snapshot;
    atomic_bool failed;
};

static void
hash_tensor(void *context, size_t index)
{
    struct hashing *h = context;
    exo_snapshot *s = h->snapshot;
    size_t bytes = exo_params_info(s->params, index)->numel * sizeof(float);
    if (exo_hash_two(exo_params_at(s->params, index), bytes, NULL, 0, s->hashes[index], NULL) !=
        EXO_OK)
        atomic_store(&h->failed, true);
}

exo_status
exo_snapshot_hash(exo_snapshot *snapshot, exo_err *err)
{
    struct hashing h = {.snapshot = snapshot};
    exo_parallel_for(snapshot->count, hash_tensor, &h);
    return atomic_load(&h.failed) ? exo_fail(err, EXO_FAILED, "libcrypto gives no SHA-256")
                                  : EXO_OK;
}
