/* The inside of exo_data_fetch: one file from one of several addresses into a folder. */
#ifndef EXO_FETCH_H
#define EXO_FETCH_H

#include <exogym/data.h>

typedef void (*exo_fetch_progress)(void *context, const char *file, uint64_t got, uint64_t total);

/* Fetches `file` into `folder` unless it is there with the right checksum. What is cut stays as
 * <name>.part and is resumed. */
exo_status exo_fetch_file(const struct exo_data_file *file, const char *folder,
                          exo_fetch_progress progress, void *context, exo_err *err);

#endif
