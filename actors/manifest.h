/* The manifest of a checkpoint: the SHA-256 of each of its files, and of the manifest itself.
 *
 * manifest.sha256 is text, and `sha256sum --check manifest.sha256` reads it too:
 *
 *     # exogym checkpoint 1: step 100
 *     <64 digits>  node_0.safetensors
 *     <64 digits>  run.json
 *     # <64 digits>                      of the lines above
 *
 * The folder may have no other file. So the check finds and names a file with a changed byte, a
 * missing or truncated file, and a file of another checkpoint or under another file's name.
 *
 * No state. Read next: checkpoint.h. */
#ifndef EXO_MANIFEST_H
#define EXO_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

#define EXO_MANIFEST "manifest.sha256"

enum {
    EXO_MANIFEST_NAME = 64
};

typedef struct exo_manifest_line {
    char name[EXO_MANIFEST_NAME]; /* of a file in the folder */
    char sha256[65];
} exo_manifest_line;

/* Writes the manifest atomically. IO, NOMEM. */
exo_status exo_manifest_write(const char *folder, uint64_t step, const exo_manifest_line *lines,
                              size_t count, exo_err *err);
/* Reads and hashes every file of the folder, several at once. *step gets the manifest's step.
 * INVAL: the message begins with the path of the file that is not as it was written; IO, NOMEM. */
exo_status exo_manifest_check(const char *folder, uint64_t *step, exo_err *err);

#endif
