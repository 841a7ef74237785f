/* Text that somebody else wrote (a tensor's name, an actor's output, a cause of death), made fit to
 * be shown. No state; any thread.
 *
 * All that reaches a terminal, a log or a table goes through here: exo_fail and exo_log_write do it
 * for every error and log line, what prints names and texts of others does it itself. What is shown
 * this way may be shown so again: nothing is escaped twice. */
#ifndef EXO_BASE_PRINTABLE_H
#define EXO_BASE_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/export.h>

#include "base/grow_text.h"

typedef enum exo_shown {
    EXO_SHOWN_LINE, /* one line: no newline, no tab          */
    EXO_SHOWN_TEXT, /* newlines and tabs stay as they are    */
} exo_shown;

/* Appends `size` bytes. Control characters become \n, \t, \r, \x1b or \u0085; so do characters that
 * reorder or break a line (U+2028, U+2029, U+202A to U+202E, U+2066 to U+2069); a byte that is no
 * UTF-8 becomes \xff. */
void exo_printable_add(exo_text *out, const char *text, size_t size, exo_shown shown);
/* The same of a string, into `room` bytes with a 0 at the end. What has no room is cut after a
 * whole character, and "..." stands in its place if there is room for that. Gives `out`. */
const char *exo_printable(char *out, size_t room, const char *text, exo_shown shown);
/* The same in place: `text` is a string in `room` bytes. `cut`: more of it had no room; its end may
 * be the beginning of a character, which goes, and is marked as above. */
void exo_printable_here(char *text, size_t room, bool cut);

/* Text as it is, into `room` bytes with a 0 at the end, cut and marked as above. exo_cut gives
 * `out`. */
const char *exo_cut(char *out, size_t room, const char *text);
void exo_format_cut(char *out, size_t room, const char *format, ...) EXO_PRINTF(3, 4);

#endif
