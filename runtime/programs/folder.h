/* A folder that goes with what made it. No state; any thread. */
#ifndef EXO_PROGRAMS_FOLDER_H
#define EXO_PROGRAMS_FOLDER_H

/* Removes the folder with all that is in it, also while others still put files there or take them
 * away: tries for two seconds. */
void exo_folder_remove(const char *path);

#endif
