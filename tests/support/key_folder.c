/* Keys and a folder of key files: see key_folder.h. */
#include "support/key_folder.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <criterion/criterion.h>

#include "base/file.h"
#include "support/temp.h"

void
key_folder_setup(void)
{
    temp_folder(key_folder, sizeof key_folder);
}

void
key_folder_teardown(void)
{
    temp_remove(key_folder);
}

const char *
key_folder_path_in(char out[KEY_FOLDER_PATH], const char *name)
{
    snprintf(out, KEY_FOLDER_PATH, "%s/%s", key_folder, name);
    return out;
}

void
key_folder_put(const char *name, mode_t mode, const char *text)
{
    const char *path = key_folder_path(name);
    cr_assert_eq(exo_file_write_atomic(path, text, strlen(text), NULL), EXO_OK);
    cr_assert_eq(chmod(path, mode), 0);
}

void
key_folder_authorize(const char *name, const exo_keys *keys)
{
    char file[EXO_KEY_NAME + 8], text[128];
    snprintf(file, sizeof file, "%s.key", name);
    snprintf(text, sizeof text, "# a comment\n\npublic %s\nrole admin\n", keys->public_key);
    key_folder_put(file, 0644, text);
}

exo_keys
key_pair_new(void)
{
    exo_keys keys;
    exo_err err = {0};
    cr_assert_eq(exo_keys_generate(&keys, &err), EXO_OK, "%s", err.text);
    return keys;
}
