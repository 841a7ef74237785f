/* What is checked of a plugin's path before its code runs: that there is a file, and, for callers that may
 * not load from every path, that it is in a folder: drivers of a cluster (docs/security.md). */
#ifndef EXO_BASE_PLUGIN_DIR_H
#define EXO_BASE_PLUGIN_DIR_H

#include <stdbool.h>

#include <exogym/status.h>

/* Sets the process's folder (NULL: none), before there are other threads. The text must stay
 * valid. */
void exo_plugin_set_dir(const char *folder);
/* Restricts the calling thread to plugins of that folder, or lifts the restriction. */
void exo_plugin_restrict(bool restricted);
/* NOT_FOUND, or INVAL if `path` is no file; runs nothing. */
exo_status exo_plugin_check_file(const char *path, exo_err *err);
/* DENIED if this thread may not load `path`. */
exo_status exo_plugin_check_dir(const char *path, exo_err *err);

#endif
