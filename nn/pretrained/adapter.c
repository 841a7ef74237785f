/* Adapters in PEFT's format: adapter_config.json, and A and B of each layer in
 * adapter_model.safetensors. The names of the layers' modules follow from the family's tensors. One
 * call owns all state. Read next: family.h, nn/lora.h. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>
#include <exogym/state.h>

#include "base/dir.h"
#include "base/file.h"
#include "nn/lora.h"
#include "nn/pretrained/adapter_config.h"
#include "nn/pretrained/family.h"
#include "nn/pretrained/pretrained.h"
#include "nn/pretrained/safetensors.h"

enum {
    MAX_NAME = 2 * EXO_TENSOR_PLACE_NAME + 64
};

#define ROOT "base_model.model."

/* An adapter that is read or written. */
struct adapter {
    const char *folder;
    const exo_decoder_spec *spec;
    const exo_family *family;
    exo_tensor_places places;
    exo_safetensors *file; /* when it is read */
    bool *used;            /* (tensors of the file) */
};

static exo_status
fail_nomem(const struct adapter *a, exo_err *err)
{
    return exo_fail(err, EXO_NOMEM, "%s: no memory for an adapter", a->folder);
}

static exo_status
begin(struct adapter *a, const char *folder, const exo_decoder_spec *spec, exo_err *err)
{
    *a = (struct adapter){.folder = folder, .spec = spec};
    exo_status st = exo_family_check(&a->family, spec, err);
    return st == EXO_OK ? exo_family_places(a->family, spec, &a->places, err) : st;
}

static void
end(struct adapter *a)
{
    exo_tensor_places_release(&a->places);
    exo_safetensors_close(&a->file);
    exo_free(a->used);
}

/* --- Names ------------------------------------------------------------------------------------ */

/* The place of the layer's weight in the family's files: it has the rows of that module. NULL: none,
 * which does not occur for layers of a spec that the family can express. */
static const exo_tensor_place *
place_of(const struct adapter *a, const exo_decoder_layer *layer)
{
    exo_decoder_entry entry;
    for (size_t i = 0; exo_decoder_entry_at(a->spec, i, &entry); i++) {
        if (entry.role != layer->role || entry.block != layer->block || entry.bias)
            continue;
        for (size_t k = 0; k < a->places.count; k++) {
            const exo_tensor_place *p = &a->places.items[k];
            if (strcmp(p->param, entry.name) == 0 && p->first == layer->first * layer->columns)
                return p;
        }
    }
    return NULL;
}

/* Writes "PREFIXh.0.attn.c_attn", the module of a place, and `ending`. */
static void
module_name(char out[MAX_NAME], const char *root, const char *prefix, const exo_tensor_place *p,
            const char *ending)
{
    size_t length = strlen(p->tensor) - strlen(".weight");
    snprintf(out, MAX_NAME, "%s%s%.*s%s", root, prefix, (int)length, p->tensor, ending);
}

/* A tensor (rows, columns) of the layer, of which `place` has the module. B's rows are ordered as
 * the weight's. */
static exo_tensor_place
factor_place(const exo_tensor_place *place, size_t rows, size_t columns, bool is_b)
{
    bool ordered = is_b && place->kind == EXO_TENSOR_PLACE_INTERLEAVED;
    return (exo_tensor_place){.num_dims = 2,
                              .dims = {rows, columns},
                              .kind = ordered ? place->kind : EXO_TENSOR_PLACE_PLAIN,
                              .heads = place->heads};
}

/* --- Reading ---------------------------------------------------------------------------------- */

static exo_status
open_file(struct adapter *a, exo_err *err)
{
    char path[EXO_PRETRAINED_PATH];
    exo_status st = exo_pretrained_path(path, a->folder, EXO_ADAPTER_WEIGHTS, err);
    if (st == EXO_OK)
        st = exo_safetensors_open(&a->file, path, err);
    if (st == EXO_NOT_FOUND)
        return exo_fail(err, st,
                        "%s: there is no such file: save the adapter with peft's save_pretrained, "
                        "which writes it",
                        path);
    if (st != EXO_OK)
        return st;
    a->used = exo_calloc(exo_safetensors_count(a->file) + 1, sizeof *a->used);
    return a->used ? EXO_OK : fail_nomem(a, err);
}

/* Finds a factor of a layer, and marks it as used; NULL: there is none. */
static const exo_safetensor *
find(struct adapter *a, const exo_tensor_place *place, const char *ending)
{
    for (size_t k = 0; a->family->prefixes[k]; k++) {
        char name[MAX_NAME];
        module_name(name, ROOT, a->family->prefixes[k], place, ending);
        for (size_t i = 0; i < exo_safetensors_count(a->file); i++) {
            const exo_safetensor *t = exo_safetensors_at(a->file, i);
            if (strcmp(t->name, name) != 0)
                continue;
            a->used[i] = true;
            return t;
        }
    }
    return NULL;
}

static exo_status
check_factor(const struct adapter *a, const exo_safetensor *t, size_t rows, size_t columns,
             exo_err *err)
{
    char found[EXO_SHAPE_TEXT];
    if (t->num_dims != 2 || t->dims[0] != rows || t->dims[1] != columns)
        return exo_fail(err, EXO_DAMAGED,
                        "%s: tensor '%s' has the shape %s; expected (%zu, %zu): the adapter is of "
                        "another base model",
                        exo_safetensors_path(a->file), t->name,
                        exo_safetensors_shape(t->num_dims, t->dims, found), rows, columns);
    return exo_tensor_floats_check(t, exo_safetensors_path(a->file), err);
}

/* Finds both factors of a layer. *there: it has them. */
static exo_status
find_layer(struct adapter *a, const exo_decoder_layer *layer, size_t rank,
           const exo_safetensor *out[2], bool *there, exo_err *err)
{
    const exo_tensor_place *place = place_of(a, layer);
    out[0] = place ? find(a, place, ".lora_A.weight") : NULL;
    out[1] = place ? find(a, place, ".lora_B.weight") : NULL;
    *there = out[0] && out[1];
    if (!out[0] != !out[1])
        return exo_fail(err, EXO_DAMAGED, "%s: has '%s' without its other factor",
                        exo_safetensors_path(a->file), out[0] ? out[0]->name : out[1]->name);
    if (!*there)
        return EXO_OK;
    exo_status st = check_factor(a, out[0], rank, layer->columns, err);
    return st == EXO_OK ? check_factor(a, out[1], layer->rows, rank, err) : st;
}

static exo_status
check_rest(const struct adapter *a, exo_err *err)
{
    for (size_t i = 0; i < exo_safetensors_count(a->file); i++)
        if (!a->used[i])
            return exo_fail(err, EXO_UNSUPPORTED,
                            "%s: tensor '%s' is no LoRA factor of a linear layer in a block of "
                            "this %s of %zu layers",
                            exo_safetensors_path(a->file), exo_safetensors_at(a->file, i)->name,
                            a->family->name, a->spec->layers);
    return EXO_OK;
}

static exo_status
choose_layers(struct adapter *a, exo_adapter *out, exo_err *err)
{
    exo_decoder_layer layer;
    const exo_safetensor *factors[2];
    size_t taken = 0;
    exo_status st = EXO_OK;
    while (exo_decoder_layer_at(a->spec, out->layers, &layer))
        out->layers++;
    out->chosen = exo_calloc(out->layers + 1, sizeof *out->chosen);
    if (!out->chosen)
        return fail_nomem(a, err);
    for (size_t i = 0; st == EXO_OK && exo_decoder_layer_at(a->spec, i, &layer); i++) {
        st = find_layer(a, &layer, out->rank, factors, &out->chosen[i], err);
        taken += out->chosen[i];
    }
    if (st == EXO_OK)
        st = check_rest(a, err);
    if (st == EXO_OK && taken == 0)
        st = exo_fail(err, EXO_DAMAGED, "%s: has no tensors", exo_safetensors_path(a->file));
    return st;
}

exo_status
exo_adapter_open(const char *folder, const exo_decoder_spec *spec, exo_adapter *out, exo_err *err)
{
    struct adapter a;
    *out = (exo_adapter){0};
    exo_status st = begin(&a, folder, spec, err);
    if (st == EXO_OK)
        st = exo_adapter_config_read(folder, out, err);
    if (st == EXO_OK)
        st = open_file(&a, err);
    if (st == EXO_OK)
        st = choose_layers(&a, out, err);
    if (st != EXO_OK) {
        exo_free(out->chosen);
        out->chosen = NULL;
    }
    end(&a);
    return st;
}

/* Copies a factor into its parameter, unless the parameter's unit is absent. */
static exo_status
read_factor(const struct adapter *a, const exo_tensor_place *place, const exo_safetensor *t,
            float *here, exo_err *err)
{
    float *there = here ? exo_alloc_aligned(t->numel * sizeof *there) : NULL;
    if (here && !there)
        return fail_nomem(a, err);
    if (here) {
        exo_tensor_floats(t, there);
        exo_tensor_place_read(place, there, here);
    }
    exo_free(there);
    return EXO_OK;
}

exo_status
exo_adapter_read(const char *folder, const exo_decoder_spec *spec, exo_params *params, exo_err *err)
{
    struct adapter a;
    exo_lora_pair pair;
    size_t from = 0;
    bool there = false;
    const exo_safetensor *factors[2];
    exo_status st = begin(&a, folder, spec, err);
    if (st == EXO_OK)
        st = open_file(&a, err);
    while (st == EXO_OK && exo_lora_pair_next(spec, params, &from, &pair)) {
        const exo_decoder_layer *l = &pair.layer;
        st = find_layer(&a, l, pair.rank, factors, &there, err);
        if (st == EXO_OK && !there)
            st = exo_fail(err, EXO_DAMAGED, "%s: has no A and B of %s any more",
                          exo_safetensors_path(a.file), l->name);
        if (st != EXO_OK)
            break;
        const exo_tensor_place *p = place_of(&a, l);
        const exo_tensor_place of_a = factor_place(p, pair.rank, l->columns, false),
                               of_b = factor_place(p, l->rows, pair.rank, true);
        st = read_factor(&a, &of_a, factors[0], exo_params_at(params, pair.a), err);
        if (st == EXO_OK)
            st = read_factor(&a, &of_b, factors[1], exo_params_at(params, pair.b), err);
    }
    end(&a);
    return st;
}

/* --- Writing ---------------------------------------------------------------------------------- */

/* What is written: a list of tensors, and the memory of those whose rows have another order. */
struct writing {
    exo_state *state;
    void **copies; /* (2 of each layer) */
    size_t num_copies;
};

static exo_status
add_factor(struct adapter *a, struct writing *w, const exo_tensor_place *module,
           const exo_tensor_place *factor, float *values, const char *ending, exo_err *err)
{
    char name[MAX_NAME];
    float *copy = exo_alloc_aligned(exo_tensor_place_numel(factor) * sizeof *copy);
    if (!copy)
        return fail_nomem(a, err);
    w->copies[w->num_copies++] = copy;
    exo_tensor_place_write(factor, values, copy);
    module_name(name, ROOT, a->family->prefixes[0], module, ending);
    exo_state_add_shaped(w->state, name, EXO_F32, copy, 2, factor->dims);
    return EXO_OK;
}

static exo_status
add_all(struct adapter *a, struct writing *w, exo_params *params, json_t *targets, exo_err *err)
{
    exo_lora_pair pair;
    size_t from = 0;
    exo_status st = EXO_OK;
    while (st == EXO_OK && exo_lora_pair_next(a->spec, params, &from, &pair)) {
        char module[MAX_NAME];
        const exo_decoder_layer *l = &pair.layer;
        const exo_tensor_place *p = place_of(a, l);
        const exo_tensor_place of_a = factor_place(p, pair.rank, l->columns, false),
                               of_b = factor_place(p, l->rows, pair.rank, true);
        st = add_factor(a, w, p, &of_a, exo_params_at(params, pair.a), ".lora_A.weight", err);
        if (st == EXO_OK)
            st = add_factor(a, w, p, &of_b, exo_params_at(params, pair.b), ".lora_B.weight", err);
        module_name(module, "", a->family->prefixes[0], p, "");
        if (st == EXO_OK && json_array_append_new(targets, json_string(module)) != 0)
            st = fail_nomem(a, err);
    }
    return st;
}

static exo_status
write_weights(struct adapter *a, exo_params *params, json_t *targets, exo_err *err)
{
    char path[EXO_PRETRAINED_PATH];
    struct writing w = {0};
    exo_status st = exo_pretrained_path(path, a->folder, EXO_ADAPTER_WEIGHTS, err);
    if (st == EXO_OK)
        st = exo_state_new(&w.state, err);
    w.copies = exo_calloc(exo_params_count(params) + 1, sizeof *w.copies);
    if (st == EXO_OK && !w.copies)
        st = fail_nomem(a, err);
    if (st == EXO_OK) {
        exo_state_metadata(w.state, "format", "pt");
        st = add_all(a, &w, params, targets, err);
    }
    if (st == EXO_OK)
        st = exo_state_save(w.state, path, err);
    for (size_t i = 0; i < w.num_copies; i++)
        exo_free(w.copies[i]);
    exo_free(w.copies);
    exo_state_free(&w.state);
    return st;
}

/* A folder with both a model and an adapter would be read as either. */
static exo_status
check_folder(const char *folder, exo_err *err)
{
    char path[EXO_PRETRAINED_PATH];
    exo_status st = exo_pretrained_path(path, folder, EXO_CONFIG_FILE, err);
    if (st == EXO_OK && access(path, F_OK) == 0)
        st = exo_fail(err, EXO_INVAL,
                      "%s: the folder has a model, and an adapter needs its own: give another one",
                      path);
    return st;
}

exo_status
exo_adapter_write(const char *folder, const exo_decoder_spec *spec, exo_params *params,
                  const char *base, exo_err *err)
{
    struct adapter a;
    exo_lora_pair pair;
    size_t from = 0;
    exo_status st = begin(&a, folder, spec, err);
    json_t *targets = json_array();
    if (st == EXO_OK && !targets)
        st = fail_nomem(&a, err);
    if (st == EXO_OK)
        st = exo_lora_check_params(spec, params, exo_params_count(params), err);
    if (st == EXO_OK && !exo_lora_pair_next(spec, params, &from, &pair))
        st = exo_fail(err, EXO_INVAL, "%s: the model has no LoRA, so it has no adapter", folder);
    if (st == EXO_OK)
        st = exo_dir_guard(folder, err); /* a folder from elsewhere may have links in it */
    if (st == EXO_OK)
        st = exo_folder_make(folder, err);
    if (st == EXO_OK)
        st = check_folder(folder, err);
    if (st == EXO_OK)
        st = write_weights(&a, params, targets, err);
    if (st == EXO_OK)
        st = exo_adapter_config_write(folder, spec, pair.rank, targets, base, err);
    json_decref(targets);
    end(&a);
    return st;
}
