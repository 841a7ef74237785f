/* The parameters of a model as matrices, for strategies that treat each one by its shape. No state.
 * Read next: powersgd.c. */
#ifndef EXO_STRATEGIES_SHAPES_H
#define EXO_STRATEGIES_SHAPES_H

#include <exogym/model.h>

/* One parameter: the elements [first, first + rows * cols) of the flat parameters, row-major. A
 * vector has one row. A parameter of more dimensions, such as the weight of a convolution, is a
 * matrix of its first dimension by all others. */
typedef struct exo_shape {
    size_t first, rows, cols;
} exo_shape;

/* The number of calls of exo_shape_at that list all parameters. */
size_t exo_shape_count(size_t num_infos);
/* The index-th one. rows is 0 for a buffer or a frozen parameter, which is to be left out. Without
 * infos all parameters are one vector. */
exo_shape exo_shape_at(const exo_param_info *infos, size_t num_infos, size_t numel, size_t index);

#endif
