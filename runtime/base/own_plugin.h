/* Plugins that exogym itself installs, where an installation has what they need: exogym-mpi.so,
 * exogym-box2d.so, exogym-cuda.so. No state. */
#ifndef EXO_BASE_OWN_PLUGIN_H
#define EXO_BASE_OWN_PLUGIN_H

#include <exogym/status.h>

/* Loads the plugin `file`, for good. It lies in the program's folder or the one above (a build), or in its
 * ../lib/exogym (an installation), or beside libexogym.so or in exogym/ there. If `symbol` is not NULL, *out is its
 * address in the plugin, NULL if it has none. Errors: NOT_FOUND (there is no such file; err is not
 * written), those of exo_plugin_load. */
exo_status exo_own_plugin_load(const char *file, const char *symbol, const void **out,
                               exo_err *err);

#endif
