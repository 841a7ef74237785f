/* Weights for inference: see decoder_weights.h. A list has the place of each parameter.
 * exo_decoder_weights_init builds the list; binding and packing walk over it. Read next:
 * decode_pack.c. */
#include "nn/cpu/decoder_weights.h"

#include <string.h>

#include <exogym/memory.h>

#include "base/parallel.h"

/* The places of a parameter: one matrix or vector, or two. A gated MLP's parameter has two: its
 * first half is the gate, its second half is up. */
struct exo_weight_place {
    size_t parts;
    exo_decode_matrix *matrix[2]; /* NULL: a vector */
    float **vector[2];
    size_t count; /* elements of a part */
    size_t at[2]; /* the bytes before it in the memory */
};

/* --- The layout ------------------------------------------------------------------------------- */

static exo_norm_weights *
norm_of(exo_decoder_weights *w, const exo_decoder_entry *p)
{
    return p->role == EXO_DECODER_EMBEDDING_NORM ? &w->embedding_norm
           : p->role == EXO_DECODER_NORM1        ? &w->blocks[p->block].norm1
           : p->role == EXO_DECODER_NORM2        ? &w->blocks[p->block].norm2
           : p->role == EXO_DECODER_Q_NORM       ? &w->blocks[p->block].q_norm
           : p->role == EXO_DECODER_K_NORM       ? &w->blocks[p->block].k_norm
           : p->role == EXO_DECODER_NORM         ? &w->norm
                                                 : NULL;
}

/* The layer of a parameter, or the first of its two; NULL: it belongs to none. */
static exo_linear_weights *
linear_of(exo_decoder_weights *w, const exo_decoder_entry *p)
{
    exo_block_weights *b = &w->blocks[p->block];
    switch (p->role) {
    case EXO_DECODER_EMBEDDING:
        return &w->embedding;
    case EXO_DECODER_HEAD:
        return &w->head;
    case EXO_DECODER_QKV:
        return &b->qkv;
    case EXO_DECODER_OUT:
        return &b->out;
    case EXO_DECODER_UP:
        return w->spec.gated ? &b->gate : &b->up;
    case EXO_DECODER_DOWN:
        return &b->down;
    default:
        return NULL;
    }
}

/* Embedding and head are int8 in the format int4. */
static exo_decode_format
format_of(const exo_decoder_weights *w, const exo_decoder_entry *p)
{
    bool end = p->role == EXO_DECODER_EMBEDDING || p->role == EXO_DECODER_HEAD;
    return end && w->format == EXO_WEIGHTS_INT4 ? EXO_DECODE_INT8 : (exo_decode_format)w->format;
}

static exo_status
take(exo_decoder_weights *w, size_t *at, size_t bytes, const char *name, exo_err *err)
{
    *at = w->bytes;
    return __builtin_add_overflow(w->bytes, bytes, &w->bytes)
               ? exo_fail(err, EXO_INVAL, "%s: the decoder's weights cannot be held", name)
               : EXO_OK;
}

static exo_status
place_vector(exo_decoder_weights *w, struct exo_weight_place *place, const exo_decoder_entry *p,
             exo_err *err)
{
    exo_norm_weights *norm = norm_of(w, p);
    exo_linear_weights *linear = linear_of(w, p);
    size_t count = 0;
    bool bad = __builtin_mul_overflow(p->dims[0], p->num_dims > 1 ? p->dims[1] : 1, &count);
    if (bad || count > SIZE_MAX / 8)
        return exo_fail(err, EXO_INVAL, "%s: (%zu, %zu) cannot be held", p->name, p->dims[0],
                        p->dims[1]);
    place->count = count / place->parts;
    place->vector[0] = norm     ? p->bias ? &norm->bias : &norm->weight
                       : linear ? &linear->bias
                                : &w->position;
    if (place->parts == 2)
        place->vector[1] = &w->blocks[p->block].up.bias;
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < place->parts; i++)
        st = take(w, &place->at[i], exo_decode_stride(place->count) * sizeof(float), p->name, err);
    return st;
}

static exo_status
place_matrix(exo_decoder_weights *w, struct exo_weight_place *place, const exo_decoder_entry *p,
             exo_err *err)
{
    exo_status st = EXO_OK;
    size_t outputs = p->dims[0] / place->parts;
    place->count = outputs * p->dims[1];
    place->matrix[0] = &linear_of(w, p)->matrix;
    if (place->parts == 2)
        place->matrix[1] = &w->blocks[p->block].up.matrix;
    for (size_t i = 0; st == EXO_OK && i < place->parts; i++) {
        st = exo_decode_matrix_init(place->matrix[i], format_of(w, p), outputs, p->dims[1], p->name,
                                    err);
        if (st == EXO_OK)
            st = take(w, &place->at[i], place->matrix[i]->bytes, p->name, err);
    }
    return st;
}

exo_status
exo_decoder_weights_init(exo_decoder_weights *w, const exo_decoder_shape *shape, exo_err *err)
{
    const exo_decoder_spec *spec = &shape->spec;
    exo_decoder_entry p;
    exo_status st = EXO_OK;
    w->spec = *spec;
    w->format = shape->format;
    w->blocks = exo_calloc(spec->layers, sizeof *w->blocks);
    while (w->blocks && exo_decoder_part_entry_at(shape, w->num_places, &p))
        w->num_places++;
    w->places = exo_calloc(w->num_places, sizeof *w->places);
    if (!w->blocks || !w->places)
        return exo_fail(err, EXO_NOMEM, "no memory for a plan of %zu layers", spec->layers);
    for (size_t i = 0; st == EXO_OK && exo_decoder_part_entry_at(shape, i, &p); i++) {
        struct exo_weight_place *place = &w->places[i];
        place->parts = p.role == EXO_DECODER_UP && spec->gated ? 2 : 1;
        st = p.num_dims == 1 || p.role == EXO_DECODER_POSITION ? place_vector(w, place, &p, err)
                                                               : place_matrix(w, place, &p, err);
    }
    return st;
}

void
exo_decoder_weights_release(exo_decoder_weights *w)
{
    exo_free(w->places);
    exo_free(w->blocks);
    *w = (exo_decoder_weights){0};
}

void
exo_decoder_weights_bind(exo_decoder_weights *w, const void *memory)
{
    if (w->memory == memory)
        return;
    w->memory = memory;
    for (size_t i = 0; i < w->num_places; i++) {
        const struct exo_weight_place *p = &w->places[i];
        for (size_t k = 0; k < p->parts; k++) {
            const char *at = (const char *)memory + p->at[k];
            if (p->matrix[k])
                exo_decode_matrix_place(p->matrix[k], at);
            else
                *p->vector[k] = (float *)(uintptr_t)at;
        }
    }
}

const exo_decode_matrix *
exo_decoder_weights_head(const exo_decoder_weights *w)
{
    return w->spec.tied ? &w->embedding.matrix : &w->head.matrix;
}

/* --- Packing ---------------------------------------------------------------------------------- */

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

void
exo_decoder_weights_pack(exo_decoder_weights *w, size_t parameter, const float *values)
{
    const struct exo_weight_place *p = &w->places[parameter];
    for (size_t k = 0; k < p->parts; k++) {
        struct packing packing = {p->matrix[k], values + k * p->count};
        if (p->matrix[k])
            exo_parallel_for(p->matrix[k]->panels, pack, &packing);
        else
            memcpy(*p->vector[k], packing.values, p->count * sizeof *values);
    }
}
