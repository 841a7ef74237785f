/* Weights for inference: see packed_weights.h. A list has the destination of each parameter.
 * exo_decoder_weights_init builds the list and allocates; checks, filling and release walk over
 * it. Read next: nn/cpu/decode_pack.c. */
#include "nn/generate/packed_weights.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/model.h>

#include "base/parallel.h"

enum {
    NAME = 64
};

/* The destination of a parameter: one matrix or vector, or two. A gated MLP's parameter has two:
 * its first half is the gate, its second half is up. */
struct exo_weight_place {
    char name[NAME];
    size_t num_dims, dims[2];
    exo_decode_matrix *matrix[2];
    float *vector[2];
};

size_t
exo_decode_stride(size_t width)
{
    return (width + EXO_DECODE_PANEL - 1) / EXO_DECODE_PANEL * EXO_DECODE_PANEL;
}

static struct exo_weight_place *add_place(exo_decoder_weights *w, exo_err *err, const char *format,
                                          va_list args) __attribute__((format(printf, 3, 0)));

static struct exo_weight_place *
add_place(exo_decoder_weights *w, exo_err *err, const char *format, va_list args)
{
    if (w->num_places == w->cap_places) {
        size_t cap = w->cap_places ? 2 * w->cap_places : 64;
        struct exo_weight_place *larger = exo_realloc(w->places, cap, sizeof *larger);
        if (!larger) {
            exo_fail(err, EXO_NOMEM, "no memory for a list of %zu parameters", cap);
            return NULL;
        }
        w->places = larger;
        w->cap_places = cap;
    }
    struct exo_weight_place *p = &w->places[w->num_places++];
    *p = (struct exo_weight_place){0};
    vsnprintf(p->name, sizeof p->name, format, args);
    return p;
}

static float *
new_vector(exo_decoder_weights *w, size_t count)
{
    size_t bytes = exo_decode_stride(count) * sizeof(float);
    w->bytes += bytes;
    return exo_alloc_aligned(bytes);
}

/* Adds a vector parameter that consists of `parts` vectors of `count` elements. */
static exo_status add_vector(exo_decoder_weights *w, float **const *targets, size_t parts,
                             size_t count, exo_err *err, const char *format, ...) EXO_PRINTF(6, 7);

static exo_status
add_vector(exo_decoder_weights *w, float **const *targets, size_t parts, size_t count, exo_err *err,
           const char *format, ...)
{
    va_list args;
    va_start(args, format);
    struct exo_weight_place *p = add_place(w, err, format, args);
    va_end(args);
    if (!p)
        return EXO_NOMEM;
    p->num_dims = 1;
    p->dims[0] = parts * count;
    for (size_t i = 0; i < parts; i++) {
        *targets[i] = p->vector[i] = new_vector(w, count);
        if (!p->vector[i])
            return exo_fail(err, EXO_NOMEM, "%s: no memory for %zu numbers", p->name, count);
    }
    return EXO_OK;
}

/* Adds a matrix parameter that consists of `parts` matrices (outputs, inputs). */
static exo_status add_matrix(exo_decoder_weights *w, exo_linear_weights *const *targets,
                             size_t parts, size_t outputs, size_t inputs, exo_decode_format how,
                             exo_err *err, const char *format, ...) EXO_PRINTF(8, 9);

static exo_status
add_matrix(exo_decoder_weights *w, exo_linear_weights *const *targets, size_t parts, size_t outputs,
           size_t inputs, exo_decode_format how, exo_err *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    struct exo_weight_place *p = add_place(w, err, format, args);
    va_end(args);
    if (!p)
        return EXO_NOMEM;
    p->num_dims = 2;
    p->dims[0] = parts * outputs;
    p->dims[1] = inputs;
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < parts; i++) {
        p->matrix[i] = &targets[i]->matrix;
        st = exo_decode_matrix_init(p->matrix[i], how, outputs, inputs, p->name, err);
        w->bytes += p->matrix[i]->bytes;
    }
    return st;
}

static exo_status
add_norm(exo_decoder_weights *w, exo_norm_weights *norm, const char *name, exo_err *err)
{
    size_t width = w->spec.width;
    exo_status st = add_vector(w, (float **[]){&norm->weight}, 1, width, err, "%s.weight", name);
    if (st == EXO_OK && w->spec.norm == EXO_NORM_LAYER)
        st = add_vector(w, (float **[]){&norm->bias}, 1, width, err, "%s.bias", name);
    return st;
}

static exo_status
add_linear(exo_decoder_weights *w, exo_linear_weights *const *targets, size_t parts, size_t outputs,
           size_t inputs, bool bias, const char *name, exo_err *err)
{
    exo_status st = add_matrix(w, targets, parts, outputs, inputs, (exo_decode_format)w->format,
                               err, "%s.weight", name);
    float **biases[2] = {&targets[0]->bias, parts > 1 ? &targets[1]->bias : NULL};
    if (st == EXO_OK && bias)
        st = add_vector(w, biases, parts, outputs, err, "%s.bias", name);
    return st;
}

static exo_status
add_block(exo_decoder_weights *w, size_t index, exo_err *err)
{
    const exo_decoder_spec *s = &w->spec;
    exo_block_weights *b = &w->blocks[index];
    size_t queries = s->heads * s->head_width, all = (s->heads + 2 * s->kv_heads) * s->head_width;
    char name[NAME];
    snprintf(name, sizeof name, "blocks.%zu.norm1", index);
    exo_status st = add_norm(w, &b->norm1, name, err);
    snprintf(name, sizeof name, "blocks.%zu.attention.qkv", index);
    if (st == EXO_OK)
        st = add_linear(w, (exo_linear_weights *[]){&b->qkv}, 1, all, s->width,
                        s->attention_qkv_bias, name, err);
    snprintf(name, sizeof name, "blocks.%zu.attention.out", index);
    if (st == EXO_OK)
        st = add_linear(w, (exo_linear_weights *[]){&b->out}, 1, s->width, queries,
                        s->attention_out_bias, name, err);
    snprintf(name, sizeof name, "blocks.%zu.norm2", index);
    if (st == EXO_OK)
        st = add_norm(w, &b->norm2, name, err);
    snprintf(name, sizeof name, "blocks.%zu.mlp.up", index);
    exo_linear_weights *up[2] = {s->gated ? &b->gate : &b->up, s->gated ? &b->up : NULL};
    if (st == EXO_OK)
        st = add_linear(w, up, s->gated ? 2 : 1, s->inner, s->width, s->mlp_bias, name, err);
    snprintf(name, sizeof name, "blocks.%zu.mlp.down", index);
    if (st == EXO_OK)
        st = add_linear(w, (exo_linear_weights *[]){&b->down}, 1, s->width, s->inner, s->mlp_bias,
                        name, err);
    return st;
}

/* Learned positions: a vector in memory, because they stay fp32; a matrix in the check of
 * shapes. */
static exo_status
add_positions(exo_decoder_weights *w, exo_err *err)
{
    size_t rows = w->spec.context + w->spec.position_offset, count = 0;
    if (__builtin_mul_overflow(rows, w->spec.width, &count) || count > SIZE_MAX / 8)
        return exo_fail(err, EXO_INVAL, "position.weight: (%zu, %zu) cannot be held", rows,
                        w->spec.width);
    exo_status st = add_vector(w, (float **[]){&w->position}, 1, count, err, "position.weight");
    if (st == EXO_OK) {
        struct exo_weight_place *p = &w->places[w->num_places - 1];
        p->num_dims = 2;
        p->dims[0] = rows;
        p->dims[1] = w->spec.width;
    }
    return st;
}

exo_status
exo_decoder_weights_init(exo_decoder_weights *w, const exo_decoder_spec *spec,
                         exo_weight_format format, exo_err *err)
{
    w->spec = *spec;
    w->format = format;
    w->blocks = exo_calloc(spec->layers, sizeof *w->blocks);
    if (!w->blocks)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu layers", spec->layers);
    exo_decode_format ends = format == EXO_WEIGHTS_F32 ? EXO_DECODE_F32 : EXO_DECODE_INT8;
    exo_status st = add_matrix(w, (exo_linear_weights *[]){&w->embedding}, 1, spec->vocabulary,
                               spec->width, ends, err, "embedding.weight");
    if (st == EXO_OK && spec->position == EXO_POSITION_LEARNED)
        st = add_positions(w, err);
    if (st == EXO_OK && spec->embedding_norm)
        st = add_norm(w, &w->embedding_norm, "embedding_norm", err);
    for (size_t i = 0; st == EXO_OK && i < spec->layers; i++)
        st = add_block(w, i, err);
    if (st == EXO_OK)
        st = add_norm(w, &w->norm, "norm", err);
    if (st == EXO_OK && !spec->tied)
        st = add_matrix(w, (exo_linear_weights *[]){&w->head}, 1, spec->vocabulary, spec->width,
                        ends, err, "head.weight");
    return st;
}

void
exo_decoder_weights_release(exo_decoder_weights *w)
{
    for (size_t i = 0; i < w->num_places; i++)
        for (size_t k = 0; k < 2; k++) {
            if (w->places[i].matrix[k])
                exo_decode_matrix_release(w->places[i].matrix[k]);
            exo_free(w->places[i].vector[k]);
        }
    exo_free(w->places);
    exo_free(w->blocks);
    *w = (exo_decoder_weights){0};
}

const exo_decode_matrix *
exo_decoder_weights_head(const exo_decoder_weights *w)
{
    return w->spec.tied ? &w->embedding.matrix : &w->head.matrix;
}

/* --- Filling ---------------------------------------------------------------------------------- */

static exo_status
check(const exo_decoder_weights *w, const exo_params *params, exo_err *err)
{
    size_t count = exo_params_count(params);
    for (size_t i = 0; i < w->num_places; i++) {
        const struct exo_weight_place *p = &w->places[i];
        const exo_param_info *info = i < count ? exo_params_info(params, i) : NULL;
        if (!info || strcmp(info->name, p->name) != 0)
            return exo_fail(
                err, EXO_INVAL,
                "the decoder's parameter %zu is %s, but that of the given parameters is %s", i,
                p->name, info ? info->name : "nothing");
        size_t rows = info->dims[0], cols = info->num_dims > 1 ? info->dims[1] : 0;
        if (info->num_dims != p->num_dims || rows != p->dims[0] || cols != p->dims[1])
            return exo_fail(err, EXO_INVAL,
                            "%s: expected (%zu, %zu), got (%zu, %zu); 0: no such dimension",
                            p->name, p->dims[0], p->dims[1], rows, cols);
    }
    if (count > w->num_places)
        return exo_fail(err, EXO_INVAL, "%s is not a parameter of the decoder",
                        exo_params_info(params, w->num_places)->name);
    return EXO_OK;
}

struct packing {
    exo_decode_matrix *matrix;
    const float *values;
};

static void
pack(void *context, size_t panel)
{
    const struct packing *p = context;
    exo_decode_pack(p->matrix, p->values, panel);
}

/* A parameter where the host can read it: *copy is freed by the caller. NULL: no memory, or the
 * device's error. */
static const float *
values_of(exo_params *params, size_t index, float **copy, exo_err *err)
{
    const exo_param_info *info = exo_params_info(params, index);
    *copy = NULL;
    if (exo_device_is_host(exo_params_device(params)))
        return exo_params_at(params, index);
    exo_array flat =
        info->is_buffer ? exo_params_buffers_array(params) : exo_params_values_array(params);
    *copy = exo_calloc(info->numel, sizeof **copy);
    if (!*copy)
        exo_fail(err, EXO_NOMEM, "no memory for the weights of %s", info->name);
    else if (exo_array_read(exo_array_part(flat, info->offset, info->numel), *copy, err) == EXO_OK)
        return *copy;
    return NULL;
}

exo_status
exo_decoder_weights_fill(exo_decoder_weights *w, exo_params *params, exo_err *err)
{
    exo_status st = check(w, params, err);
    if (st != EXO_OK)
        return st;
    for (size_t i = 0; i < w->num_places; i++) {
        const struct exo_weight_place *p = &w->places[i];
        const exo_param_info *info = exo_params_info(params, i);
        exo_err reason = {0};
        float *copy = NULL;
        const float *values = values_of(params, i, &copy, &reason);
        size_t parts = p->matrix[1] || p->vector[1] ? 2 : 1, part = info->numel / parts;
        for (size_t k = 0; values && k < parts; k++) {
            struct packing packing = {p->matrix[k], values + k * part};
            if (p->matrix[k])
                exo_parallel_for(p->matrix[k]->panels, pack, &packing);
            else
                memcpy(p->vector[k], values + k * part, part * sizeof *values);
        }
        exo_free(copy);
        if (!values)
            return exo_fail(err, reason.code, "%s", reason.text);
    }
    return EXO_OK;
}
