/* Log lines: formatted outside the lock, passed to the sink under it, so that lines never mix. Read
 * next: printable.h. */
#include <exogym/log.h>

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/printable.h"

enum {
    MAX_LINE = 1024
};

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static exo_log_sink log_sink; /* guarded by lock */
static void *log_context;     /* guarded by lock */
static _Atomic int threshold = -1;

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* In a child of fork, where the thread that may have held it is not. */
static void
renew_lock(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static void
watch_forks(void)
{
    pthread_atfork(NULL, NULL, renew_lock);
}

static int
current_threshold(void)
{
    int level = threshold;
    if (level >= 0)
        return level;
    level = EXO_LOG_WARN;
    const char *wanted = getenv("EXOGYM_LOG");
    for (int i = 0; wanted && i < 4; i++)
        if (strcmp(wanted, level_names[i]) == 0)
            level = i;
    int unset = -1; /* a level that another thread has set meanwhile stays */
    return atomic_compare_exchange_strong(&threshold, &unset, level) ? level : unset;
}

void
exo_log_set_level(exo_log_level level)
{
    threshold = (int)level;
}

void
exo_log_set_sink(exo_log_sink sink, void *context)
{
    pthread_mutex_lock(&lock);
    log_sink = sink;
    log_context = context;
    pthread_mutex_unlock(&lock);
}

void
exo_log_write(exo_log_level level, const char *subsystem, const char *format, ...)
{
    if ((int)level > current_threshold())
        return;
    char line[MAX_LINE];
    int start =
        snprintf(line, sizeof line, "level=%s subsystem=%s ", level_names[level], subsystem);
    va_list args;
    va_start(args, format);
    int length = exo_c_vsnprintf(line + start, sizeof line - (size_t)start, format, args);
    va_end(args);
    exo_printable_here(line, sizeof line, length >= (int)sizeof line - start);

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    if (log_sink)
        log_sink(log_context, level, line);
    else
        fprintf(stderr, "%s\n", line);
    pthread_mutex_unlock(&lock);
}
