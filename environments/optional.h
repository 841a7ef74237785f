/* Environments that are in plugins of the library's own, because they need a library that not every
 * system has. They are loaded when a graph, or `exogym list environments`, asks for them. */
#ifndef EXO_ENVIRONMENTS_OPTIONAL_H
#define EXO_ENVIRONMENTS_OPTIONAL_H

#include <stddef.h>

#include <exogym/status.h>

/* The name of such an environment by its index; NULL after the last. */
const char *exo_environment_optional_at(size_t index);
/* Loads the environment's plugin, from the folder of the program or of the library, or where an
 * installation has it. Any thread; to load it again does nothing. Errors: UNSUPPORTED (exogym was
 * built without the library, or the plugin's package is missing: names both), NOT_FOUND (there is no
 * optional environment of that name; err is not written), those of exo_plugin_load. */
exo_status exo_environment_optional_load(const char *name, exo_err *err);

#endif
