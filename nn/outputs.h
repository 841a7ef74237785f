/* Outputs from the inside. */
#ifndef EXO_OUTPUTS_H
#define EXO_OUTPUTS_H

#include <exogym/model.h>

/* The output of that name; NULL: it was not asked for. */
exo_output *exo_outputs_find(exo_outputs *outputs, const char *name);
/* Whether a list that ends with NULL has the name. */
bool exo_names_have(const char *const *names, const char *name);

#endif
