/* Reads a file, a pipe or standard input that a user has named, once, from the beginning to the
 * end. Any thread. */
#ifndef EXO_BASE_INPUT_H
#define EXO_BASE_INPUT_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/clock.h>
#include <exogym/status.h>

/* The usual `patience` for a named pipe without a writer. */
#define EXO_INPUT_PATIENCE (5 * EXO_SECOND)

/* Reads at most `limit` bytes of `path` and appends a NUL. "-" is standard input; /dev/fd/N is a
 * descriptor that the process was started with. The caller frees *out with exo_free. Blocks as long
 * as a pipe has a writer, and for `patience` if it has none yet. Errors: IO with the path and the
 * reason, INVAL (larger), TIMEOUT (no writer), NOMEM. */
exo_status exo_input_read(const char *path, size_t limit, exo_time patience, char **out,
                          size_t *size, exo_err *err);

/* Whether `path`, or a name from exo_input_name, means standard input or another descriptor: such
 * an input lies in no folder and has no name of its own. */
bool exo_input_is_unnamed(const char *path);
/* The input's name in messages: "standard input" for "-", else the path itself. */
const char *exo_input_name(const char *path);

#endif
