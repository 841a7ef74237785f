/* The level of the log. Each test is a process, which has not read EXOGYM_LOG yet. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include <exogym/log.h>

static bool sets_level; /* while the variable is read */

char *
getenv(const char *name)
{
    char *(*next)(const char *);
    *(void **)&next = dlsym(RTLD_NEXT, "getenv");
    if (sets_level && strcmp(name, "EXOGYM_LOG") == 0) {
        sets_level = false;
        exo_log_set_level(EXO_LOG_DEBUG); /* as another thread may */
    }
    return next(name);
}

static void
count(void *context, exo_log_level level, const char *line)
{
    (void)level;
    (void)line;
    ++*(int *)context;
}

Test(log, a_level_that_is_set_while_the_variable_is_read_stays)
{
    int lines = 0;
    unsetenv("EXOGYM_LOG");
    exo_log_set_sink(count, &lines);
    sets_level = true;
    EXO_LOG(DEBUG, TEST, "the first line");
    cr_expect(!sets_level);
    EXO_LOG(DEBUG, TEST, "the second line");
    exo_log_set_sink(NULL, NULL);
    cr_expect_eq(lines, 2);
}
