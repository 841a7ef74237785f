/* Reads what a person hands over: a file, a pipe, or standard input. It is read once, from its
 * beginning to its end. Any thread. */
#ifndef EXO_BASE_INPUT_H
#define EXO_BASE_INPUT_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/clock.h>
#include <exogym/status.h>

/* A named pipe that nobody has opened for writing by then is an error. */
#define EXO_INPUT_PATIENCE (5 * EXO_SECOND)

/* Reads `path` to its end: at most `limit` bytes, with a 0 after the last. "-" is standard input,
 * and /dev/fd/N what the process was started with under that number. The caller frees *out with
 * exo_free. Blocks as long as a pipe has a writer, and for `patience` where it has none yet.
 * Errors: IO with the path and the reason, INVAL (larger), TIMEOUT (no writer), NOMEM. */
exo_status exo_input_read(const char *path, size_t limit, exo_time patience, char **out,
                          size_t *size, exo_err *err);

/* Is it standard input or another descriptor, as a path or as exo_input_name calls it? It lies in
 * no folder, and gives nothing a name. */
bool exo_input_is_unnamed(const char *path);
/* What messages call it: "standard input" for "-", else the path itself. */
const char *exo_input_name(const char *path);

#endif
