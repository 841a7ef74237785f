/* Keys, and a folder of key files, for tests with Criterion. One folder per process. Owner: the
 * test's thread. */
#ifndef EXO_TEST_KEY_FOLDER_H
#define EXO_TEST_KEY_FOLDER_H

#include <sys/types.h>

#include "net/auth.h"

enum {
    KEY_FOLDER_PATH = 256
};

/* A grant for exo_keys_save. */
#define KEY_ADMIN (&(exo_grant){.role = EXO_ACCESS_ADMIN})

/* The folder's path, from key_folder_setup to key_folder_teardown. The program defines it. */
extern char key_folder[64];

void key_folder_setup(void);
void key_folder_teardown(void);
/* A path in the folder. Valid until the end of the caller's block. */
#define key_folder_path(name) key_folder_path_in((char[KEY_FOLDER_PATH]){0}, name)
const char *key_folder_path_in(char out[KEY_FOLDER_PATH], const char *name);
/* Writes a file to the folder. */
void key_folder_put(const char *name, mode_t mode, const char *text);
/* Writes NAME.key with the public key of `keys` to the folder. */
void key_folder_authorize(const char *name, const exo_keys *keys);

exo_keys key_pair_new(void);

#endif
