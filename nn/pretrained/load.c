/* Reads Hugging Face directories: the spec from config.json, and each tensor into its place. No
 * state; any thread. Read next: family.h, weights.h. */
#include <string.h>

#include "base/parallel.h"
#include "nn/lora.h"
#include "nn/model_impl.h"
#include "nn/pretrained/family.h"
#include "nn/pretrained/paths.h"
#include "nn/pretrained/pretrained.h"
#include "nn/pretrained/weights.h"

#include <exogym/memory.h>

/* --- The spec --------------------------------------------------------------------------------- */

static exo_status
read_spec(exo_hf_config *c, exo_decoder_spec *out, exo_err *err)
{
    exo_err reason = {0};
    const char *type = json_string_value(exo_hf_get(c, "model_type"));
    const exo_family *family = type ? exo_family_find(type) : NULL;
    if (!family) {
        exo_hf_refuse(c, "model_type", "the supported families are " EXO_FAMILIES);
        *err = c->error;
        return c->error.code;
    }
    *out = (exo_decoder_spec){0};
    strcpy(out->family, family->name);
    family->read(c, out);
    exo_status st = exo_hf_config_finish(c, family->harmless, err);
    if (st == EXO_OK && exo_decoder_check(out, &reason) != EXO_OK)
        st = exo_fail(err, EXO_DAMAGED, "%s: %s", c->path, reason.text);
    return st;
}

exo_status
exo_decoder_load_spec(const char *folder, exo_decoder_spec *out, exo_err *err)
{
    exo_hf_config c;
    exo_err mine = {0};
    exo_decoder_spec spec;
    exo_status st = exo_pretrained_check_adapter(
        folder, EXO_UNSUPPORTED,
        "is of an adapter (LoRA), and not of a whole model. In a job: model: {name: gpt, path: "
        "BASE, lora: {path: FOLDER}}. Or merge it into its model with peft "
        "(AutoPeftModelForCausalLM.from_pretrained(FOLDER).merge_and_unload().save_pretrained("
        "OTHER))",
        &mine);
    if (st == EXO_OK) {
        st = exo_hf_config_open(&c, folder, &mine);
        if (st == EXO_OK)
            st = read_spec(&c, &spec, &mine);
        exo_hf_config_close(&c);
    }
    if (st == EXO_OK)
        *out = spec;
    else if (err)
        *err = mine;
    return st;
}

/* The first difference between the specs that shapes parameters or the computation; NULL: none. */
static const char *
difference(const exo_decoder_spec *a, const exo_decoder_spec *b)
{
    const struct {
        const char *name;
        bool same;
    } parts[] = {
        {"family", strcmp(a->family, b->family) == 0},
        {"vocabulary", a->vocabulary == b->vocabulary},
        {"context", a->context == b->context || a->position != EXO_POSITION_LEARNED},
        {"layers", a->layers == b->layers},
        {"heads",
         a->heads == b->heads && a->kv_heads == b->kv_heads && a->head_width == b->head_width},
        {"width", a->width == b->width && a->inner == b->inner},
        {"positions", a->position == b->position && a->position_offset == b->position_offset},
        {"norm", a->norm == b->norm && a->norm_eps == b->norm_eps &&
                     a->embedding_norm == b->embedding_norm},
        {"activation", a->activation == b->activation && a->gated == b->gated},
        {"biases", a->attention_qkv_bias == b->attention_qkv_bias &&
                       a->attention_out_bias == b->attention_out_bias &&
                       a->mlp_bias == b->mlp_bias},
        {"head", a->tied == b->tied},
        {"rotary frequencies",
         a->position != EXO_POSITION_ROTARY ||
             (a->rope_theta == b->rope_theta && a->rope_scaling.factor == b->rope_scaling.factor &&
              a->rope_scaling.linear == b->rope_scaling.linear &&
              a->rope_scaling.low_freq_factor == b->rope_scaling.low_freq_factor &&
              a->rope_scaling.high_freq_factor == b->rope_scaling.high_freq_factor &&
              a->rope_scaling.original_context == b->rope_scaling.original_context)},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!parts[i].same)
            return parts[i].name;
    return NULL;
}

/* --- Tensors ---------------------------------------------------------------------------------- */

/* The copy of one tensor into a parameter: an item of the parallel loop. */
struct move {
    const exo_tensor_place *place;
    const exo_safetensor *tensor;
    float *here; /* NULL: the unit of its parameter is absent */
    bool failed; /* there was no memory */
};

struct loading {
    const char *folder, *prefix;
    const exo_family *family;
    const exo_decoder_spec *spec;
    exo_tensor_places places;
    exo_weights weights;
    struct move *moves; /* (places.count), in the places' order */
};

static void
move_piece(void *context, size_t index)
{
    struct move *m = (struct move *)context + index;
    if (!m->here)
        return;
    if (m->place->kind == EXO_TENSOR_PLACE_PLAIN) {
        exo_tensor_floats(m->tensor, m->here);
        return;
    }
    float *there = exo_alloc_aligned(m->tensor->numel * sizeof *there);
    m->failed = !there;
    if (!there)
        return;
    exo_tensor_floats(m->tensor, there);
    exo_tensor_place_read(m->place, there, m->here);
    exo_free(there);
}

static void
full_name(const struct loading *l, const exo_tensor_place *p, char out[2 * EXO_TENSOR_PLACE_NAME])
{
    strcpy(out, p->bare ? "" : l->prefix);
    strcat(out, p->tensor);
}

/* Finds the prefix of the files' tensors, by the name of the first tensor, the embedding. */
static void
find_prefix(struct loading *l)
{
    char name[2 * EXO_TENSOR_PLACE_NAME];
    for (size_t i = 0; l->family->prefixes[i]; i++) {
        l->prefix = l->family->prefixes[i];
        full_name(l, &l->places.items[0], name);
        if (exo_weights_find(&l->weights, name))
            return;
    }
    l->prefix = l->family->prefixes[0];
}

static exo_status
check_tensor(const exo_tensor_place *p, const exo_weight *w, exo_err *err)
{
    const exo_safetensor *t = w->tensor;
    char found[EXO_SHAPE_TEXT], expected[EXO_SHAPE_TEXT];
    if (t->num_dims != p->num_dims || memcmp(t->dims, p->dims, p->num_dims * sizeof *p->dims) != 0)
        return exo_fail(err, EXO_DAMAGED,
                        "%s: tensor '%s' has the shape %s; expected %s by " EXO_CONFIG_FILE,
                        w->path, t->name, exo_safetensors_shape(t->num_dims, t->dims, found),
                        exo_safetensors_shape(p->num_dims, p->dims, expected));
    return exo_tensor_floats_check(t, w->path, err);
}

/* The index of the parameter with this name; exo_params_count: there is none. */
static size_t
find_param(const exo_params *params, const char *name)
{
    size_t index = 0, count = exo_params_count(params);
    while (index < count && strcmp(exo_params_info(params, index)->name, name) != 0)
        index++;
    return index;
}

static exo_status
fail_without(const struct loading *l, const char *name, const char *param, exo_err *err)
{
    char index[EXO_PRETRAINED_PATH];
    exo_status st = exo_pretrained_path(index, l->folder, EXO_WEIGHTS_INDEX, err);
    return st != EXO_OK
               ? st
               : exo_fail(err, EXO_DAMAGED,
                          "%s: has no tensor '%s', which holds '%s' according to " EXO_CONFIG_FILE
                          ": both files must be of one model",
                          l->weights.num_files == 1 ? exo_safetensors_path(l->weights.files[0])
                                                    : index,
                          name, param);
}

/* Finds the tensor of a place, and checks that it has the spec's shape. */
static exo_status
find_weight(struct loading *l, const exo_tensor_place *p, exo_weight **out, exo_err *err)
{
    char name[2 * EXO_TENSOR_PLACE_NAME];
    full_name(l, p, name);
    *out = exo_weights_find(&l->weights, name);
    if (!*out)
        return fail_without(l, name, p->param, err);
    return check_tensor(p, *out, err);
}

/* The elements of the parameters that a directory has: not those of a value head or of LoRA. */
static size_t
decoder_numel(const exo_params *params)
{
    size_t numel = 0;
    for (size_t i = 0; i < exo_params_count(params); i++) {
        const exo_param_info *info = exo_params_info(params, i);
        bool other = strncmp(info->name, "value.", 6) == 0 || strstr(info->name, EXO_LORA_A) ||
                     strstr(info->name, EXO_LORA_B);
        if (!other && (!info->is_buffer || info->frozen))
            numel += info->numel;
    }
    return numel;
}

/* Finds each place's tensor, and its part of the parameters. */
static exo_status
plan_moves(struct loading *l, exo_params *params, exo_err *err)
{
    size_t filled = 0;
    for (size_t i = 0; i < l->places.count; i++) {
        const exo_tensor_place *p = &l->places.items[i];
        exo_weight *w = NULL;
        exo_status st = find_weight(l, p, &w, err);
        if (st != EXO_OK)
            return st;
        size_t index = find_param(params, p->param);
        const exo_param_info *info = exo_params_info(params, index);
        if (!info || p->first + exo_tensor_place_numel(p) > info->numel)
            return exo_fail(err, EXO_DAMAGED,
                            "the model has no parameter '%s' that tensor '%s' of %s fits", p->param,
                            w->tensor->name, w->path);
        w->used = true;
        float *here = exo_params_at(params, index); /* NULL: its unit is absent */
        l->moves[i] =
            (struct move){.place = p, .tensor = w->tensor, .here = here ? here + p->first : NULL};
        filled += exo_tensor_place_numel(p);
    }
    size_t numel = decoder_numel(params);
    if (filled != numel)
        return exo_fail(err, EXO_DAMAGED, "%s: fills %zu of the model's %zu parameters", l->folder,
                        filled, numel);
    return EXO_OK;
}

/* A head in a file although it is tied to the embedding: some files have both. They must be
 * equal. */
static exo_status
check_tied_head(struct loading *l, exo_weight *head, exo_err *err)
{
    const exo_safetensor *embedding = l->moves[0].tensor, *t = head->tensor;
    if (strcmp(t->dtype, embedding->dtype) != 0 || t->bytes != embedding->bytes ||
        memcmp(t->data, embedding->data, t->bytes) != 0)
        return exo_fail(err, EXO_DAMAGED,
                        "%s: tensor '%s' differs from the embedding, though config.json says "
                        "tie_word_embeddings: set "
                        "that to false there",
                        head->path, t->name);
    head->used = true;
    return EXO_OK;
}

static exo_status
check_rest(struct loading *l, exo_err *err)
{
    for (size_t i = 0; i < l->weights.count; i++) {
        exo_weight *w = &l->weights.all[i];
        size_t prefix = strlen(l->prefix);
        const char *name = w->tensor->name;
        exo_status st = EXO_OK;
        if (!w->used && l->spec->tied && strcmp(name, "lm_head.weight") == 0)
            st = check_tied_head(l, w, err);
        if (st != EXO_OK)
            return st;
        if (w->used || (strncmp(name, l->prefix, prefix) == 0 &&
                        exo_family_is_buffer(l->family, name + prefix)))
            continue;
        return exo_fail(err, EXO_DAMAGED,
                        "%s: tensor '%s' has no place in a %s of %zu layers, which " EXO_CONFIG_FILE
                        " says: both files must be of one model",
                        w->path, name, l->family->name, l->spec->layers);
    }
    return EXO_OK;
}

static exo_status
move_all(struct loading *l, exo_err *err)
{
    exo_parallel_for(l->places.count, move_piece, l->moves);
    for (size_t i = 0; i < l->places.count; i++)
        if (l->moves[i].failed)
            return exo_fail(err, EXO_NOMEM, "%s: no memory for tensor '%s'", l->folder,
                            l->moves[i].tensor->name);
    return EXO_OK;
}

exo_status
exo_pretrained_read(const char *folder, const exo_decoder_spec *spec, exo_params *params,
                    exo_err *err)
{
    exo_decoder_spec there;
    exo_status st = exo_decoder_load_spec(folder, &there, err);
    if (st != EXO_OK)
        return st;
    const char *other = difference(&there, spec);
    if (other)
        return exo_fail(err, EXO_INVAL,
                        "%s/" EXO_CONFIG_FILE ": is of another model: the %s differs", folder,
                        other);
    struct loading l = {.folder = folder, .family = exo_family_find(there.family), .spec = spec};
    st = exo_weights_open(&l.weights, folder, err);
    if (st == EXO_OK)
        st = exo_family_places(l.family, spec, &l.places, err);
    if (st != EXO_OK)
        goto done;
    l.moves = exo_calloc(l.places.count, sizeof *l.moves);
    if (!l.moves) {
        st = exo_fail(err, EXO_NOMEM, "%s: no memory", folder);
        goto done;
    }
    find_prefix(&l);
    st = plan_moves(&l, params, err);
    if (st == EXO_OK)
        st = check_rest(&l, err);
    if (st == EXO_OK)
        st = move_all(&l, err);
    if (st == EXO_OK)
        st = exo_value_head_read(folder, params, err);
done:
    exo_free(l.moves);
    exo_tensor_places_release(&l.places);
    exo_weights_close(&l.weights);
    return st;
}

exo_status
exo_pretrained_check(const char *folder, const exo_decoder_spec *spec, exo_err *err)
{
    struct loading l = {.folder = folder, .family = exo_family_find(spec->family), .spec = spec};
    exo_weight *unused = NULL;
    exo_status st = exo_weights_open(&l.weights, folder, err);
    if (st == EXO_OK)
        st = exo_family_places(l.family, spec, &l.places, err);
    if (st == EXO_OK)
        find_prefix(&l);
    for (size_t i = 0; st == EXO_OK && i < l.places.count; i++)
        st = find_weight(&l, &l.places.items[i], &unused, err);
    exo_tensor_places_release(&l.places);
    exo_weights_close(&l.weights);
    return st;
}
