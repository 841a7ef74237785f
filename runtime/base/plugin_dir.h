/* Where plugins may come from, for whom not every path is allowed: drivers of a cluster
 * (docs/security.md). */
#ifndef EXO_BASE_PLUGIN_DIR_H
#define EXO_BASE_PLUGIN_DIR_H

#include <stdbool.h>

#include <exogym/status.h>

/* Of the process, before there are other threads: the folder; NULL: there is none. It must stay. */
void exo_plugin_set_dir(const char *folder);
/* From now on this thread loads plugins of that folder only, until it is told otherwise. */
void exo_plugin_restrict(bool restricted);
/* DENIED: this thread may not load that. */
exo_status exo_plugin_check_dir(const char *path, exo_err *err);

#endif
