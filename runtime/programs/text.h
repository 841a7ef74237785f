/* Figures for people to read, and words for a shell. No state. */
#ifndef EXO_PROGRAMS_TEXT_H
#define EXO_PROGRAMS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <exogym/clock.h>
#include <exogym/status.h>

#include "base/figures.h"
#include "base/grow_text.h"

/* Whether a line of it can be drawn again: it is a terminal, and not a dumb one. */
bool exo_text_can_redraw(FILE *out);

/* "0.4 s", "41.2 s", "3:07", "1:02:03". */
const char *exo_text_seconds(double seconds, char out[EXO_FIGURE]);
/* "1,868,234". */
const char *exo_text_count(uint64_t count, char out[EXO_FIGURE]);
/* `value` with `digits` significant digits: "0.5485", "2.000e-05". Digits before the point are all
 * kept: "12346". "-" if it is NaN. */
const char *exo_text_number(double value, int digits, char out[EXO_FIGURE]);

/* A rate per second, with three significant digits: "0.250", "12.3", "7630". */
const char *exo_text_rate(double rate, char out[EXO_FIGURE]);

/* A whole number in full, "410"; any other value with `digits` significant digits. */
const char *exo_text_value(double value, int digits, char out[EXO_FIGURE]);

/* Reads "90", "90s", "500ms", "5m" or "2h" as a time. `what`: the option's name, for the error.
 * Errors: INVAL. */
exo_status exo_text_read_time(const char *text, const char *what, exo_time *out, exo_err *err);
/* Reads "NAME=AMOUNT". The amount is a number, optionally with the suffix KiB, MiB, GiB or TiB.
 * `name` has room for `size` bytes. Errors: INVAL. */
exo_status exo_text_read_resource(const char *text, char *name, size_t size, double *amount,
                                  exo_err *err);

/* Adds `word` so that a shell reads it back, quoted only if necessary. Control sequences for a
 * terminal are escaped by numbers, as in $'\033', which bash, zsh and POSIX shells since 2024
 * read. */
void exo_text_add_quoted(exo_text *text, const char *word);

/* Prints `before`, the path and `after`. The path is escaped as in errors, because a job's save_dir
 * is untrusted. */
void exo_print_path(FILE *out, const char *before, const char *path, const char *after);

#endif
