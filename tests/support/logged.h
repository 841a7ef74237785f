/* A record of the log, for tests that search it. One per process, which the program defines. Any
 * thread may log. */
#ifndef EXO_TEST_LOGGED_H
#define EXO_TEST_LOGGED_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

extern struct logged {
    pthread_mutex_t lock; /* guards the other members */
    char text[65536];
    size_t length, lines;
} logged;

#define LOGGED_NONE                                                                                \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER                                                          \
    }

/* From now on, lines of the log are recorded instead of printed, until logged_end. */
void logged_begin(void);
void logged_end(void);
bool logged_has(const char *text);
size_t logged_lines(void);
/* The whole record, for messages. Not locked: another thread may be adding to it. */
const char *logged_text(void);

#endif
