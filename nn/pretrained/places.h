/* Where each tensor of a Hugging Face directory is in a decoder's parameters, and how its elements lie there. Owner: the caller. */
#ifndef EXO_PRETRAINED_PLACES_H
#define EXO_PRETRAINED_PLACES_H

#include <exogym/decoder.h>

enum {
    EXO_TENSOR_PLACE_NAME = 96
};

typedef enum exo_tensor_place_kind {
    EXO_TENSOR_PLACE_PLAIN, /* the same elements in the same order                                                     */
    EXO_TENSOR_PLACE_TRANSPOSED, /* GPT-2's Conv1D: (in, out) there, (out, in) here                                         */
    EXO_TENSOR_PLACE_INTERLEAVED, /* BLOOM's fused projection: rows (head, {query, key, value}, D) there, ({...}, head, D) here */
} exo_tensor_place_kind;

typedef struct exo_tensor_place {
    char tensor[EXO_TENSOR_PLACE_NAME]; /* without the family's prefix */
    bool bare;                          /* never has the prefix: the head */
    size_t num_dims, dims[2];           /* of the tensor               */
    char param[EXO_TENSOR_PLACE_NAME];
    size_t first; /* the tensor's rows begin at this element of the parameter */
    exo_tensor_place_kind kind;
    size_t heads; /* of an interleaved one */
} exo_tensor_place;

typedef struct exo_tensor_places {
    exo_tensor_place *items;
    size_t count, cap;
    exo_status status; /* NOMEM sticks */
} exo_tensor_places;

void exo_tensor_places_release(exo_tensor_places *places);
/* Adds a tensor (rows, columns), or (rows) if columns is 0. In names, # stands for `index`, a block's number. Gives the
 * place for those that are not plain; NULL: no memory, recorded. */
exo_tensor_place *exo_tensor_places_add(exo_tensor_places *places, const char *tensor,
                                        const char *param, size_t index, size_t rows,
                                        size_t columns);
/* The same with the suffixes ".weight" and, if `bias`, ".bias" of a linear layer: (rows, columns) and (rows). `first` is the row of the
 * parameter where it begins. */
void exo_tensor_places_linear(exo_tensor_places *places, const char *tensor, const char *param,
                              size_t index, size_t first, size_t rows, size_t columns, bool bias);
/* ".weight" and, if `bias`, ".bias" of a norm. */
void exo_tensor_places_norm(exo_tensor_places *places, const char *tensor, const char *param,
                            size_t index, size_t width, bool bias);

/* Copies elements between a tensor and the parameter's part, `here`. */
void exo_tensor_place_read(const exo_tensor_place *place, const float *there, float *here);
void exo_tensor_place_write(const exo_tensor_place *place, const float *here, float *there);
size_t exo_tensor_place_numel(const exo_tensor_place *place);

#endif
