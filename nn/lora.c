/* LoRA parameters among a decoder's: see lora.h. */
#include "nn/lora.h"

#include <stdio.h>
#include <string.h>

#include <exogym/model.h>

/* The index of a layer's parameter; the number of parameters: it has none. They are looked for from
 * the end, where they are. */
static size_t
find(const exo_params *params, const char *layer, const char *ending)
{
    char name[EXO_LORA_NAME];
    size_t count = exo_params_count(params);
    snprintf(name, sizeof name, "%s%s", layer, ending);
    for (size_t i = count; i > 0; i--)
        if (strcmp(exo_params_info(params, i - 1)->name, name) == 0)
            return i - 1;
    return count;
}

bool
exo_lora_pair_next(const exo_decoder_spec *spec, const exo_params *params, size_t *from,
                   exo_lora_pair *out)
{
    size_t count = exo_params_count(params);
    while (spec->lora_scale != 0.0f && exo_decoder_layer_at(spec, *from, &out->layer)) {
        ++*from;
        out->a = find(params, out->layer.name, EXO_LORA_A);
        if (out->a == count)
            continue;
        out->b = find(params, out->layer.name, EXO_LORA_B);
        out->rank = exo_params_info(params, out->a)->dims[0];
        return true;
    }
    return false;
}

static bool
is_matrix(const exo_param_info *info, size_t rows, size_t columns)
{
    return info->num_dims == 2 && info->dims[0] == rows && info->dims[1] == columns;
}

static exo_status
check_pair(const exo_params *params, const exo_lora_pair *p, exo_err *err)
{
    if (p->b == exo_params_count(params))
        return exo_fail(err, EXO_INVAL, "%s has a parameter " EXO_LORA_A " without " EXO_LORA_B,
                        p->layer.name);
    const exo_param_info *a = exo_params_info(params, p->a), *b = exo_params_info(params, p->b);
    if (p->rank == 0 || !is_matrix(a, p->rank, p->layer.columns))
        return exo_fail(err, EXO_INVAL, "%s: expected (rank, %zu), got (%zu, %zu)", a->name,
                        p->layer.columns, a->dims[0], a->num_dims > 1 ? a->dims[1] : 0);
    if (!is_matrix(b, p->layer.rows, p->rank))
        return exo_fail(err, EXO_INVAL, "%s: expected (%zu, %zu), got (%zu, %zu)", b->name,
                        p->layer.rows, p->rank, b->dims[0], b->num_dims > 1 ? b->dims[1] : 0);
    return EXO_OK;
}

/* The parameter is a part of one of the spec's layers. */
static bool
is_known(const exo_decoder_spec *spec, const char *name)
{
    exo_decoder_layer layer;
    for (size_t i = 0; exo_decoder_layer_at(spec, i, &layer); i++) {
        size_t length = strlen(layer.name);
        if (strncmp(name, layer.name, length) == 0 &&
            (strcmp(name + length, EXO_LORA_A) == 0 || strcmp(name + length, EXO_LORA_B) == 0))
            return true;
    }
    return false;
}

exo_status
exo_lora_check_params(const exo_decoder_spec *spec, const exo_params *params, size_t first,
                      exo_err *err)
{
    size_t from = 0, found = 0, count = exo_params_count(params);
    exo_lora_pair pair;
    exo_status st = EXO_OK;
    while (st == EXO_OK && exo_lora_pair_next(spec, params, &from, &pair)) {
        st = check_pair(params, &pair, err);
        found += 2;
    }
    for (size_t i = first; st == EXO_OK && found != count - first && i < count; i++) {
        const char *name = exo_params_info(params, i)->name;
        if (!is_known(spec, name))
            return exo_fail(err, EXO_INVAL, "%s is not a parameter of the decoder", name);
        if (spec->lora_scale == 0.0f)
            return exo_fail(err, EXO_INVAL,
                            "%s is a LoRA parameter, but the decoder's spec has none: take the "
                            "spec of the model (exo_decoder_spec_of)",
                            name);
    }
    if (st == EXO_OK && spec->lora_scale != 0.0f && found == 0)
        st = exo_fail(err, EXO_INVAL,
                      "the decoder's spec has LoRA (lora_scale %g), but the parameters have no A "
                      "and B: they are of the base alone",
                      (double)spec->lora_scale);
    return st;
}
