/* What was logged: see logged.h. */
#include "support/logged.h"

#include <stdio.h>
#include <string.h>

#include <exogym/log.h>

static void
note_line(void *context, exo_log_level level, const char *line)
{
    (void)context;
    (void)level;
    pthread_mutex_lock(&logged.lock);
    int n = snprintf(logged.text + logged.length, sizeof logged.text - logged.length, "%s\n", line);
    if (n > 0 && logged.length + (size_t)n < sizeof logged.text)
        logged.length += (size_t)n;
    logged.lines++;
    pthread_mutex_unlock(&logged.lock);
}

void
logged_begin(void)
{
    exo_log_set_sink(note_line, NULL);
}

void
logged_end(void)
{
    exo_log_set_sink(NULL, NULL);
}

bool
logged_has(const char *text)
{
    pthread_mutex_lock(&logged.lock);
    bool has = strstr(logged.text, text) != NULL;
    pthread_mutex_unlock(&logged.lock);
    return has;
}

size_t
logged_lines(void)
{
    pthread_mutex_lock(&logged.lock);
    size_t lines = logged.lines;
    pthread_mutex_unlock(&logged.lock);
    return lines;
}

const char *
logged_text(void)
{
    return logged.text;
}
