/* Checks of a worker's host before the first step: its files under the paths of the run must be those
 * of the trainer's host. The trainer describes its own files in the document of a node (fit.h); the
 * worker compares them when it makes the record of the run, also for nodes that are made later. No
 * state. Read next: fit.h. */
#ifndef EXO_FIT_CHECK_H
#define EXO_FIT_CHECK_H

#include <jansson.h>

#include "actors/fit.h"

typedef struct exo_fit_digests {
    char train[65], val[65]; /* 64 hexadecimal digits; val: "" without validation */
} exo_fit_digests;

/* Writes what a check of the training data and of the validation data compares: the SHA-256 of the
 * fields' sizes, the lengths, and some samples of each data set: the first, the last, and up to 62 at
 * equal distances between them. An edit between those is not seen. Errors: those of the data set,
 * NOMEM. */
exo_status exo_fit_digest_data(const exo_fit *fit, exo_fit_digests *out, exo_err *err);
/* Writes the name of the run into the lock file of its folder, which the caller has locked, so that a
 * host can tell the folder from another one. IO. */
exo_status exo_fit_mark_folder(const char *folder, int lock, const char *run, exo_err *err);

/* Adds the trainer's data to a document. folder: the run's, if nodes write into it; NULL: they do not.
 * NOMEM, IO. */
exo_status exo_fit_describe_host(const exo_fit *fit, const exo_fit_digests *digests,
                                 const char *folder, json_t *document, exo_err *err);
/* Compares the data of the record with the document's, and checks that the folder is the trainer's and
 * can be written to. INVAL: the data are other ones; IO: the folder. */
exo_status exo_fit_check_host(const exo_fit *fit, exo_config *document, exo_err *err);

#endif
