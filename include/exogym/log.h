/* Logs: key=value lines with a level and a subsystem, on standard error unless a sink is set.
 *
 *     EXO_LOG(WARN, ACTOR, "name=%s quiet_ms=%llu", name, quiet);
 *
 * A function logs or returns an error, never both.
 */
#ifndef EXOGYM_LOG_H
#define EXOGYM_LOG_H

#include <exogym/export.h>

EXO_DECLS_BEGIN

/* How much a line matters: the smaller, the more. */
typedef enum exo_log_level {
    EXO_LOG_ERROR = 0,
    EXO_LOG_WARN = 1,
    EXO_LOG_INFO = 2,
    EXO_LOG_DEBUG = 3,
} exo_log_level;

/* Receives one finished line without its newline. Called from any thread, one call at a time. */
typedef void (*exo_log_sink)(void *context, exo_log_level level, const char *line);

/* The most verbose level that is written; WARN unless EXOGYM_LOG=error|warn|info|debug says
 * otherwise. Any thread. */
EXO_API void exo_log_set_level(exo_log_level level);
/* Sends lines to `sink`, or to standard error if NULL. Any thread. */
EXO_API void exo_log_set_sink(exo_log_sink sink, void *context);

/* One line, whatever is in it: control characters are escaped as exo_fail does. */
EXO_API void exo_log_write(exo_log_level level, const char *subsystem, const char *format, ...)
    EXO_PRINTF(3, 4);

/* EXO_LOG(WARN, ACTOR, "name=%s", name): level and subsystem by their bare names. */
#define EXO_LOG(level, subsystem, ...) exo_log_write(EXO_LOG_##level, #subsystem, __VA_ARGS__)

EXO_DECLS_END

#endif
