/* Keys, and a folder of key files, for tests with Criterion. One folder a process; its one thread owns it. */
#ifndef EXO_TEST_KEY_FOLDER_H
#define EXO_TEST_KEY_FOLDER_H

#include <sys/types.h>

#include "auth.h"

/* Its path, from key_folder_setup to key_folder_teardown. */
extern char key_folder[64];

void key_folder_setup(void);
void key_folder_teardown(void);
/* A path in it; valid until the fourth call from now. */
const char *key_folder_path(const char *name);
/* Writes a file into it. */
void key_folder_put(const char *name, mode_t mode, const char *text);
/* Puts NAME.key with the public key of `keys` into it. */
void key_folder_authorize(const char *name, const exo_keys *keys);

exo_keys key_pair_new(void);

#endif
