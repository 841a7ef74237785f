/* The grid of a sweep: axes, each a key of the job with its values, and their product, the cells.
 * Owner: the command; one thread. Read next: sweep.c. */
#ifndef EXO_PROGRAMS_SWEEP_GRID_H
#define EXO_PROGRAMS_SWEEP_GRID_H

#include <stddef.h>

#include <exogym/status.h>

#include "programs/args.h"

enum {
    EXO_SWEEP_CELLS = 1000 /* the largest number of cells */
};

/* One `--grid KEY=VALUE,VALUE,...`. */
typedef struct exo_axis {
    char *key;     /* a path in the job: strategy.H */
    char **values; /* (count), in YAML */
    size_t count;
} exo_axis;

typedef struct exo_grid {
    exo_axis *axes;
    size_t num_axes, num_cells;
} exo_grid;

/* Reads the axes. Commas within brackets, braces and quotes belong to a value. The caller releases
 * the grid, also after an error. Errors: INVAL (a malformed or empty axis, a key or value that is
 * there twice, too many cells, two cells with one name), NOMEM. */
exo_status exo_grid_read(exo_grid *grid, const exo_words *words, exo_err *err);
void exo_grid_release(exo_grid *grid);

/* The value of an axis in a cell, of 0 .. num_cells - 1. The last axis changes fastest. */
const char *exo_grid_value(const exo_grid *grid, size_t cell, size_t axis);
/* The part of a cell's labels that names its values: "-H_10-lr_0.001", with the last part of each
 * key, and '_' for characters that a label cannot have. The caller frees it. NULL: NOMEM. */
char *exo_grid_suffix(const exo_grid *grid, size_t cell, exo_err *err);

#endif
