/* Pictures of policies that learn from rewards, read from versions_TRAINER.csv of runs (docs/ppo.md):
 * the score by KL from version 0, and by version. No state. */
#ifndef EXO_PROGRAMS_PLOT_VERSIONS_H
#define EXO_PROGRAMS_PLOT_VERSIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "programs/text.h"

/* True: the folder has a versions_TRAINER.csv. */
bool exo_plot_has_versions(const char *folder);
/* Adds gnuplot's script of a picture of the runs, one curve each: of several trainers of a run, the
 * first. INVAL: a folder without such a file, or without an update in it; DAMAGED: a malformed line
 * (names it); IO, NOMEM. */
exo_status exo_plot_versions(exo_text *script, const char *const *folders, size_t count,
                             const char *title, bool svg, exo_err *err);

#endif
