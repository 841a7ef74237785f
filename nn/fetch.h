/* The inside of exo_data_fetch: downloads one file from one of several addresses. No state. Read
 * next: fetch.c. */
#ifndef EXO_FETCH_H
#define EXO_FETCH_H

#include <exogym/data.h>

typedef void (*exo_fetch_progress)(void *context, const char *file, uint64_t got, uint64_t total);

/* Downloads `file` into `folder`, unless it is there with the right SHA-256. A partial download
 * stays as <name>.part, and the next call resumes it. Blocks. Errors: INVAL (a long path, or a
 * wrong SHA-256), IO. */
exo_status exo_fetch_file(const struct exo_data_file *file, const char *folder,
                          exo_fetch_progress progress, void *context, exo_err *err);

#endif
