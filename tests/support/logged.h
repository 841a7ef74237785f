/* What was logged, for tests that look for it. One record a process; any thread may log. */
#ifndef EXO_TEST_LOGGED_H
#define EXO_TEST_LOGGED_H

#include <stdbool.h>
#include <stddef.h>

/* From now on lines of the log are kept instead of shown, until logged_end. */
void logged_begin(void);
void logged_end(void);
bool logged_has(const char *text);
size_t logged_lines(void);
/* All of it, for messages: another thread may be adding to it. */
const char *logged_text(void);

#endif
