/* Keys, and a folder of key files, for tests with Criterion. One folder a process; its one thread
 * owns it. */
#ifndef EXO_TEST_KEY_FOLDER_H
#define EXO_TEST_KEY_FOLDER_H

#include <sys/types.h>

#include "net/auth.h"

enum {
    KEY_FOLDER_PATH = 256
};

/* What a key's holder may do, for exo_keys_save. */
#define KEY_ADMIN (&(exo_grant){.role = EXO_ACCESS_ADMIN})

/* Its path, from key_folder_setup to key_folder_teardown. The program defines it. */
extern char key_folder[64];

void key_folder_setup(void);
void key_folder_teardown(void);
/* A path in it; valid until the end of the caller's block. */
#define key_folder_path(name) key_folder_path_in((char[KEY_FOLDER_PATH]){0}, name)
const char *key_folder_path_in(char out[KEY_FOLDER_PATH], const char *name);
/* Writes a file into it. */
void key_folder_put(const char *name, mode_t mode, const char *text);
/* Puts NAME.key with the public key of `keys` into it. */
void key_folder_authorize(const char *name, const exo_keys *keys);

exo_keys key_pair_new(void);

#endif
