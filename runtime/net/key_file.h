/* Key files, for the files of this folder; auth.h has the functions for others. No state; any
 * thread. */
#ifndef EXO_NET_KEY_FILE_H
#define EXO_NET_KEY_FILE_H

#include "net/auth.h"

/* Whether the text is a key of 40 characters. */
bool exo_key_is_z85(const char *text);
/* Reads a .key file: a public key and its holder's rights. Errors, each with the path and, where
 * there is one, the line: NOT_FOUND, IO, INVAL (not a plain file, every user may change it, it has
 * a secret key, not of the form that exo_keys_save writes). */
exo_status exo_key_file_read(const char *path, uint8_t key[EXO_KEY_BYTES], exo_grant *grant,
                             exo_err *err);
/* Fails with the status and text of an errno. */
exo_status exo_key_file_fail(const char *path, int number, exo_err *err);

#endif
