/* The manifest of a checkpoint: the SHA-256 of each of its files, and its own.
 *
 * manifest.sha256 is text, which `sha256sum --check manifest.sha256` reads too:
 *
 *     # exogym checkpoint 1: step 100
 *     <64 digits>  node_0.safetensors
 *     <64 digits>  run.json
 *     # <64 digits>                      of the lines above
 *
 * Nothing else may be in the folder. So a byte that changed anywhere, a file that is missing, cut, of another checkpoint or in another's
 * place is found, and named. No state. */
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

/* Writes it, atomically. IO, NOMEM. */
exo_status exo_manifest_write(const char *folder, uint64_t step, const exo_manifest_line *lines,
                              size_t count, exo_err *err);
/* Reads and hashes every file of the folder, several at once. INVAL: the message begins with the path of the file that is not as it was
 * written; IO, NOMEM. *step is the manifest's. */
exo_status exo_manifest_check(const char *folder, uint64_t *step, exo_err *err);

#endif
