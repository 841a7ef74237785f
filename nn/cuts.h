/* Slices of parameters. No state. Read next: cuts.c; exogym/parallel.h. */
#ifndef EXO_NN_CUTS_H
#define EXO_NN_CUTS_H

#include <exogym/parallel.h>

/* Whether the slice has this index of the dimension that is cut. */
bool exo_cut_has(const exo_param_cut *cut, size_t index);

#endif
