/* The inside of outputs. No state. Read next: outputs.c. */
#ifndef EXO_OUTPUTS_H
#define EXO_OUTPUTS_H

#include <exogym/model.h>

/* The output with this name. NULL: nobody asked for it. */
exo_output *exo_outputs_find(exo_outputs *outputs, const char *name);
/* Whether a list, which ends with NULL, contains the name. */
bool exo_names_have(const char *const *names, const char *name);

#endif
