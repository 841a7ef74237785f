/* The list of places, and copies between tensors and parameters: see places.h. No state; any
 * thread. */
#include "nn/pretrained/places.h"

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

enum {
    BLOCK = 32 /* rows and columns that are transposed together, small enough for the cache */
};

void
exo_tensor_places_release(exo_tensor_places *places)
{
    exo_free(places->items);
    *places = (exo_tensor_places){0};
}

/* Writes `pattern` to `out`, with the number instead of #. */
static void
expand(char out[EXO_TENSOR_PLACE_NAME], const char *pattern, size_t index)
{
    const char *mark = strchr(pattern, '#');
    if (mark)
        snprintf(out, EXO_TENSOR_PLACE_NAME, "%.*s%zu%s", (int)(mark - pattern), pattern, index,
                 mark + 1);
    else
        snprintf(out, EXO_TENSOR_PLACE_NAME, "%s", pattern);
}

exo_tensor_place *
exo_tensor_places_add(exo_tensor_places *places, const char *tensor, const char *param,
                      size_t index, size_t rows, size_t columns)
{
    if (places->status != EXO_OK)
        return NULL;
    if (places->count == places->cap) {
        size_t cap = places->cap ? 2 * places->cap : 64;
        exo_tensor_place *items = exo_realloc(places->items, cap, sizeof *items);
        if (!items) {
            places->status = EXO_NOMEM;
            return NULL;
        }
        places->items = items;
        places->cap = cap;
    }
    exo_tensor_place *p = &places->items[places->count++];
    *p = (exo_tensor_place){.num_dims = columns ? 2 : 1, .dims = {rows, columns}};
    expand(p->tensor, tensor, index);
    expand(p->param, param, index);
    return p;
}

void
exo_tensor_places_linear(exo_tensor_places *places, const char *tensor, const char *param,
                         size_t index, size_t first, size_t rows, size_t columns, bool bias)
{
    char there[EXO_TENSOR_PLACE_NAME], here[EXO_TENSOR_PLACE_NAME];
    snprintf(there, sizeof there, "%s.weight", tensor);
    snprintf(here, sizeof here, "%s.weight", param);
    exo_tensor_place *p = exo_tensor_places_add(places, there, here, index, rows, columns);
    if (p)
        p->first = first * columns;
    snprintf(there, sizeof there, "%s.bias", tensor);
    snprintf(here, sizeof here, "%s.bias", param);
    p = bias ? exo_tensor_places_add(places, there, here, index, rows, 0) : NULL;
    if (p)
        p->first = first;
}

void
exo_tensor_places_norm(exo_tensor_places *places, const char *tensor, const char *param,
                       size_t index, size_t width, bool bias)
{
    char there[EXO_TENSOR_PLACE_NAME], here[EXO_TENSOR_PLACE_NAME];
    snprintf(there, sizeof there, "%s.weight", tensor);
    snprintf(here, sizeof here, "%s.weight", param);
    exo_tensor_places_add(places, there, here, index, width, 0);
    snprintf(there, sizeof there, "%s.bias", tensor);
    snprintf(here, sizeof here, "%s.bias", param);
    if (bias)
        exo_tensor_places_add(places, there, here, index, width, 0);
}

size_t
exo_tensor_place_numel(const exo_tensor_place *place)
{
    return place->dims[0] * (place->num_dims == 2 ? place->dims[1] : 1);
}

/* Transposes in (rows, columns) to out (columns, rows). */
static void
transpose(const float *restrict in, float *restrict out, size_t rows, size_t columns)
{
    for (size_t r = 0; r < rows; r += BLOCK) {
        for (size_t c = 0; c < columns; c += BLOCK) {
            size_t last_r = rows - r < BLOCK ? rows : r + BLOCK,
                   last_c = columns - c < BLOCK ? columns : c + BLOCK;
            for (size_t i = r; i < last_r; i++)
                for (size_t j = c; j < last_c; j++)
                    out[j * rows + i] = in[i * columns + j];
        }
    }
}

/* Reorders rows of `columns` elements from (A, B, D) to (B, A, D). */
static void
swap_rows(const float *restrict in, float *restrict out, size_t a, size_t b, size_t d,
          size_t columns)
{
    size_t run = d * columns;
    for (size_t i = 0; i < a; i++)
        for (size_t j = 0; j < b; j++)
            memcpy(out + (j * a + i) * run, in + (i * b + j) * run, run * sizeof *out);
}

static size_t
columns_of(const exo_tensor_place *p)
{
    return p->num_dims == 2 ? p->dims[1] : 1;
}

void
exo_tensor_place_read(const exo_tensor_place *p, const float *there, float *here)
{
    if (p->kind == EXO_TENSOR_PLACE_TRANSPOSED)
        transpose(there, here, p->dims[0], p->dims[1]);
    else if (p->kind == EXO_TENSOR_PLACE_INTERLEAVED)
        swap_rows(there, here, p->heads, 3, p->dims[0] / (3 * p->heads), columns_of(p));
    else
        memcpy(here, there, exo_tensor_place_numel(p) * sizeof *here);
}

void
exo_tensor_place_write(const exo_tensor_place *p, const float *here, float *there)
{
    if (p->kind == EXO_TENSOR_PLACE_TRANSPOSED)
        transpose(here, there, p->dims[1], p->dims[0]);
    else if (p->kind == EXO_TENSOR_PLACE_INTERLEAVED)
        swap_rows(here, there, 3, p->heads, p->dims[0] / (3 * p->heads), columns_of(p));
    else
        memcpy(there, here, exo_tensor_place_numel(p) * sizeof *there);
}
