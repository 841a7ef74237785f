/* Makes text of other authors (a tensor's name, an actor's output, a cause of death) safe to show.
 * No state; any thread.
 *
 * All text on its way to a terminal, a log or a table passes through here. exo_fail and
 * exo_log_write escape every error and every log line; code that prints names and texts of others
 * escapes them itself. Escaped text may be escaped again without a change. */
#ifndef EXO_BASE_PRINTABLE_H
#define EXO_BASE_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/export.h>

#include "base/grow_text.h"

typedef enum exo_shown {
    EXO_SHOWN_LINE, /* one line, without newline and tab */
    EXO_SHOWN_TEXT, /* newlines and tabs stay unchanged */
} exo_shown;

/* Appends `size` bytes. Control characters become \n, \t, \r, \x1b or \u0085; so do characters that
 * reorder or break a line (U+2028 to U+202E, U+2066 to U+2069). A byte that is no UTF-8 becomes
 * \xff. */
void exo_printable_add(exo_text *out, const char *text, size_t size, exo_shown shown);
/* Writes an escaped string into `room` bytes, with a NUL at the end. A longer text is cut after a
 * whole character and ends with "...", if there is room for that. Returns `out`. */
const char *exo_printable(char *out, size_t room, const char *text, exo_shown shown);
/* Escapes a string in place, within `room` bytes. cut: the string was cut before; a broken
 * character at its end is removed, and the end is marked as above. Removes broken characters within,
 * too: a format such as "%.40s" has cut there. */
void exo_printable_here(char *text, size_t room, bool cut);

/* Write text without escapes into `room` bytes, with a NUL at the end, cut and marked as above.
 * exo_cut returns `out`. */
const char *exo_cut(char *out, size_t room, const char *text);
void exo_format_cut(char *out, size_t room, const char *format, ...) EXO_PRINTF(3, 4);

#endif
