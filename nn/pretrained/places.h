/* The place of each tensor of a Hugging Face directory in a decoder's parameters, and the layout
 * of its elements.
 *
 * Owner: the caller. Read next: family.h, which has a list of places for each family; places.c. */
#ifndef EXO_PRETRAINED_PLACES_H
#define EXO_PRETRAINED_PLACES_H

#include <exogym/decoder.h>

enum {
    EXO_TENSOR_PLACE_NAME = 96 /* bytes of a name, with its 0 */
};

typedef enum exo_tensor_place_kind {
    /* The same elements in the same order. */
    EXO_TENSOR_PLACE_PLAIN,
    /* GPT-2's Conv1D: (in, out) in the file, (out, in) in the parameter. */
    EXO_TENSOR_PLACE_TRANSPOSED,
    /* BLOOM's fused projection: the rows are (head, {query, key, value}, D) in the file, and
     * ({query, key, value}, head, D) in the parameter. */
    EXO_TENSOR_PLACE_INTERLEAVED,
} exo_tensor_place_kind;

typedef struct exo_tensor_place {
    char tensor[EXO_TENSOR_PLACE_NAME]; /* the tensor's name, without the family's prefix */
    bool bare;                          /* the tensor never has the prefix: the head */
    size_t num_dims, dims[2];           /* of the tensor */
    char param[EXO_TENSOR_PLACE_NAME];  /* the parameter's name */
    size_t first;                       /* the parameter's element with which the tensor begins */
    exo_tensor_place_kind kind;
    size_t heads; /* of INTERLEAVED */
} exo_tensor_place;

typedef struct exo_tensor_places {
    exo_tensor_place *items;
    size_t count, cap;
    exo_status status; /* NOMEM after a failed addition; later ones do nothing */
} exo_tensor_places;

void exo_tensor_places_release(exo_tensor_places *places);
/* Adds a plain tensor (rows, columns), or (rows) if columns is 0. In both names # stands for
 * `index`, a block's number. Returns the place, which the caller may change until the next
 * addition; NULL: no memory, which is recorded. */
exo_tensor_place *exo_tensor_places_add(exo_tensor_places *places, const char *tensor,
                                        const char *param, size_t index, size_t rows,
                                        size_t columns);
/* Adds the tensors of a linear layer: ".weight" (rows, columns) and, if `bias`, ".bias" (rows).
 * `first` is the parameter's row with which they begin. */
void exo_tensor_places_linear(exo_tensor_places *places, const char *tensor, const char *param,
                              size_t index, size_t first, size_t rows, size_t columns, bool bias);
/* Adds the tensors of a norm: ".weight" (width) and, if `bias`, ".bias" (width). */
void exo_tensor_places_norm(exo_tensor_places *places, const char *tensor, const char *param,
                            size_t index, size_t width, bool bias);

/* Copies elements from a tensor, `there`, to its part of the parameter, `here`; or back. */
void exo_tensor_place_read(const exo_tensor_place *place, const float *there, float *here);
void exo_tensor_place_write(const exo_tensor_place *place, const float *here, float *there);
size_t exo_tensor_place_numel(const exo_tensor_place *place);

#endif
