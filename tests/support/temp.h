/* Folders of a test's own. */
#ifndef EXO_TEST_TEMP_H
#define EXO_TEST_TEMP_H

#include <stddef.h>

/* Makes a new folder that only this user can enter, with a short path. */
void temp_folder(char *out, size_t size);
/* Removes it with all that is in it. */
void temp_remove(const char *folder);

#endif
