/* Logs: lines of key=value pairs with a level and a subsystem. They go to standard error unless a
 * sink is set.
 *
 *     EXO_LOG(WARN, ACTOR, "name=%s quiet_ms=%llu", name, quiet);
 *
 * A function logs or returns an error, never both.
 */
#ifndef EXOGYM_LOG_H
#define EXOGYM_LOG_H

#include <exogym/export.h>

EXO_DECLS_BEGIN

/* The level of a line, from the most important. */
typedef enum exo_log_level {
    EXO_LOG_ERROR = 0,
    EXO_LOG_WARN = 1,
    EXO_LOG_INFO = 2,
    EXO_LOG_DEBUG = 3,
} exo_log_level;

/* Receives one finished line without its newline. Any thread may call it, one call at a time. */
typedef void (*exo_log_sink)(void *context, exo_log_level level, const char *line);

/* Sets the most verbose level that is written. The default is WARN, or the value of EXOGYM_LOG
 * (error, warn, info or debug). Any thread. */
EXO_API void exo_log_set_level(exo_log_level level);
/* Sends all lines to `sink`; NULL: to standard error. Any thread. */
EXO_API void exo_log_set_sink(exo_log_sink sink, void *context);

/* Writes one line. Control characters are escaped as in exo_fail, so that any text stays one line.
 * Any thread. */
EXO_API void exo_log_write(exo_log_level level, const char *subsystem, const char *format, ...)
    EXO_PRINTF(3, 4);

/* Writes a line; level and subsystem are given without prefix and quotes: EXO_LOG(WARN, ACTOR,
 * "name=%s", name). */
#define EXO_LOG(level, subsystem, ...) exo_log_write(EXO_LOG_##level, #subsystem, __VA_ARGS__)

EXO_DECLS_END

#endif
