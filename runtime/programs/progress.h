/* What a person sees of a running job: on a terminal one line that is drawn again and again,
 * elsewhere a plain line every two seconds and for each evaluation. On standard error, so that
 * standard output holds results only.
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
    bool drawn;       /* the terminal's last line is ours */
    exo_time last;    /* when something was written       */
    size_t run, runs; /* from 0                            */
    int label_width;
    const char *label; /* of the current run                */
    double train_loss; /* of its last step; NaN: none       */
    double val_loss;   /* of its last evaluation; NaN: none */
    bool perplexity;   /* of a language model: shown instead of the accuracy */
} exo_display;

void exo_display_init(exo_display *display, FILE *out, const exo_clock *clock, size_t runs,
                      int label_width);
/* A line that stays. */
void exo_display_note(exo_display *display, const char *format, ...) EXO_PRINTF(2, 3);
/* Columns that a line may take: of a terminal, else of one of 80. */
int exo_display_width(const exo_display *display);
/* A line that is drawn again and again on a terminal, and printed every two seconds elsewhere. */
void exo_display_line(exo_display *display, const char *line);
/* What follows is about run `run`; `what` is said of it ("starts"), NULL: nothing. */
void exo_display_begin(exo_display *display, size_t run, const char *label, const char *what);
void exo_display_step(exo_display *display, const exo_progress *progress);
void exo_display_end(exo_display *display, const exo_fit_result *result, bool from_before);
/* Takes the redrawn line away. */
void exo_display_clear(exo_display *display);

#endif
