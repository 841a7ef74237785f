/* The progress of a running job on standard error: on a terminal one line that is redrawn,
 * elsewhere a plain line every two seconds and for each evaluation. Standard output holds results
 * only.
 *
 * Owner: one thread. Time comes from the clock that is passed in. */
#ifndef EXO_PROGRAMS_PROGRESS_H
#define EXO_PROGRAMS_PROGRESS_H

#include <stdbool.h>
#include <stdio.h>

#include <exogym/clock.h>
#include <exogym/trainer.h>

typedef struct exo_display {
    FILE *out;
    const exo_clock *clock;
    bool terminal;
    bool drawn;       /* the terminal's last line is the progress line */
    exo_time last;    /* time of the last output */
    size_t run, runs; /* `run` counts from 0 */
    int label_width;
    const char *label; /* of the current run */
    double train_loss; /* of its last step; NaN: none */
    double val_loss;   /* of its last evaluation; NaN: none */
    bool perplexity;   /* a language model: the perplexity is shown instead of the accuracy */
} exo_display;

void exo_display_init(exo_display *display, FILE *out, const exo_clock *clock, size_t runs,
                      int label_width);
/* Prints a line that stays. */
void exo_display_note(exo_display *display, const char *format, ...) EXO_PRINTF(2, 3);
/* The columns that a line may take: those of the terminal, else 80. */
int exo_display_width(const exo_display *display);
/* Shows a progress line: redraws it on a terminal, prints it at most every two seconds
 * elsewhere. */
void exo_display_line(exo_display *display, const char *line);
/* Begins run `run`. `what` is printed with its label ("starts"); NULL: nothing is printed. */
void exo_display_begin(exo_display *display, size_t run, const char *label, const char *what);
void exo_display_step(exo_display *display, const exo_progress *progress);
void exo_display_end(exo_display *display, const exo_fit_result *result, bool from_before);
/* Removes the redrawn line. */
void exo_display_clear(exo_display *display);

#endif
