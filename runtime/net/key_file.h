/* Key files as the files of this folder use them; auth.h has what others do with them. No state;
 * any thread. */
#ifndef EXO_NET_KEY_FILE_H
#define EXO_NET_KEY_FILE_H

#include "net/auth.h"

/* A key of 40 characters. */
bool exo_key_is_z85(const char *text);
/* Reads a .key file: a public key, and what its holder may do. Errors, with path and line where
 * there is one: NOT_FOUND, IO, INVAL (not a plain file, everybody may change it, a secret key in
 * it, not of the form that exo_keys_save writes). */
exo_status exo_key_file_read(const char *path, uint8_t key[EXO_KEY_BYTES], exo_grant *grant,
                             exo_err *err);
/* The status and text of an errno. */
exo_status exo_key_file_fail(const char *path, int number, exo_err *err);

#endif
