/* Temporary folders of tests. */
#ifndef EXO_TEST_TEMP_H
#define EXO_TEST_TEMP_H

#include <stddef.h>

/* Makes a new folder with a short path that only this user can enter. */
void temp_folder(char *out, size_t size);
/* Removes the folder with its contents. */
void temp_remove(const char *folder);

#endif
