/* Removes temporary folders. No state; any thread. */
#ifndef EXO_PROGRAMS_FOLDER_H
#define EXO_PROGRAMS_FOLDER_H

/* Removes the folder with its contents. Other processes may still add or remove files there:
 * retries for two seconds. */
void exo_folder_remove(const char *path);

#endif
