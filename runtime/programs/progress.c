/* Prints the progress of a job: see progress.h. Read next: run_job.c, which calls these
 * functions. */
#include "programs/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/printable.h"
#include "programs/meter_table.h"
#include "programs/output.h"
#include "programs/text.h"

enum {
    MAX_LINE = 512,
    LINE_METERS = 96, /* of a line: for meters */
    MIN_BAR = 8,
    MAX_BAR = 30,
};

#define REDRAW_EVERY (100 * EXO_MS)
#define PRINT_EVERY  (2 * EXO_SECOND)

void
exo_display_init(exo_display *display, FILE *out, const exo_clock *clock, size_t runs,
                 int label_width)
{
    *display = (exo_display){.out = out,
                             .clock = clock,
                             .terminal = exo_text_can_redraw(out),
                             .runs = runs,
                             .label_width = label_width,
                             .train_loss = NAN,
                             .val_loss = NAN};
}

static int
terminal_width(const exo_display *d)
{
    struct winsize size = {0};
    if (ioctl(exo_output_descriptor(d->out), TIOCGWINSZ, &size) != 0 || size.ws_col < 20)
        return 80;
    return size.ws_col;
}

int
exo_display_width(const exo_display *d)
{
    return terminal_width(d) - 1;
}

void
exo_display_clear(exo_display *d)
{
    if (d->drawn)
        fputs("\r\x1b[K", d->out);
    d->drawn = false;
    fflush(d->out);
}

/* Draws a line. Labels and meters are named by jobs and plugins, so they are escaped. */
static void
draw(exo_display *d, const char *line)
{
    char shown[MAX_LINE];
    int width = terminal_width(d) - 1;
    fprintf(d->out, "\r%.*s\x1b[K", width,
            exo_printable(shown, sizeof shown, line, EXO_SHOWN_LINE));
    fflush(d->out);
    d->drawn = true;
    d->last = exo_now(d->clock);
}

static void
print(exo_display *d, const char *line)
{
    char shown[MAX_LINE];
    exo_display_clear(d);
    fprintf(d->out, "%s\n", exo_printable(shown, sizeof shown, line, EXO_SHOWN_LINE));
    fflush(d->out);
    d->last = exo_now(d->clock);
}

void
exo_display_note(exo_display *d, const char *format, ...)
{
    char line[MAX_LINE];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    print(d, line);
}

void
exo_display_line(exo_display *d, const char *line)
{
    exo_time now = exo_now(d->clock);
    if (d->terminal && now - d->last >= REDRAW_EVERY)
        draw(d, line);
    else if (!d->terminal && now - d->last >= PRINT_EVERY)
        print(d, line);
}

/* Writes "[1/3] ddp   ", or "ddp  " if there is only one run. Returns the length. */
static size_t
prefix(const exo_display *d, char line[MAX_LINE])
{
    int used = 0;
    if (d->runs > 1)
        used = snprintf(line, MAX_LINE, "[%zu/%zu] ", d->run + 1, d->runs);
    used += snprintf(line + used, MAX_LINE - (size_t)used, "%-*s  ", d->label_width, d->label);
    return (size_t)used < MAX_LINE ? (size_t)used : MAX_LINE - 1;
}

void
exo_display_begin(exo_display *d, size_t run, const char *label, const char *what)
{
    char line[MAX_LINE];
    d->run = run;
    d->label = label;
    d->train_loss = d->val_loss = NAN;
    if (!what)
        return;
    size_t used = prefix(d, line);
    snprintf(line + used, sizeof line - used, "%s", what);
    if (d->terminal)
        draw(d, line);
    else
        print(d, line);
}

/* Writes a bar of `width` columns: [=====>    ]. */
static void
add_bar(char *line, double done, int width)
{
    int filled = (int)(done * (width - 2) + 0.5);
    line[0] = '[';
    for (int i = 0; i < width - 2; i++)
        line[1 + i] = i < filled ? '=' : i == filled ? '>' : ' ';
    strcpy(line + width - 1, "]");
}

/* The rate is unknown before the first step. */
static const char *
rate_text(const exo_progress *p, char out[EXO_FIGURE])
{
    return exo_text_rate(p->samples_per_second > 0 ? p->samples_per_second : (double)NAN, out);
}

static void
draw_step(exo_display *d, const exo_progress *p)
{
    char line[MAX_LINE], figures[MAX_LINE], bytes[EXO_FIGURE], eta[EXO_FIGURE], loss[EXO_FIGURE],
        val[EXO_FIGURE], rate[EXO_FIGURE];
    size_t used = prefix(d, line);
    used += (size_t)snprintf(line + used, sizeof line - used, "%" PRIu64 "/%" PRIu64 " ", p->step,
                             p->max_steps);
    int size = snprintf(figures, sizeof figures, " ETA %s  loss %s", exo_text_seconds(p->eta, eta),
                        exo_text_number((double)p->train_loss, 4, loss));
    if (!isnan(d->val_loss))
        size += snprintf(figures + size, sizeof figures - (size_t)size, "  val %s",
                         exo_text_number(d->val_loss, 4, val));
    size += snprintf(figures + size, sizeof figures - (size_t)size, "  %s samples/s  %s/node",
                     rate_text(p, rate), exo_text_bytes((double)p->bytes_sent, bytes));
    int bar = terminal_width(d) - 1 - (int)used - size;
    char meters[MAX_LINE];
    int room = bar - MIN_BAR - 2; /* columns that remain beside the shortest bar */
    exo_meter_line(p->meters, meters, room > 0 ? (size_t)room + 1 : 1);
    if (meters[0])
        bar -= snprintf(figures + size, sizeof figures - (size_t)size, "  %s", meters);
    if (bar >= MIN_BAR && p->max_steps > 0) {
        bar = bar < MAX_BAR ? bar : MAX_BAR;
        add_bar(line + used, (double)p->step / (double)p->max_steps, bar);
        used += (size_t)bar;
    }
    snprintf(line + used, sizeof line - used, "%s", figures);
    draw(d, line);
}

/* Appends meters of node 0 to a line that is not cut at the terminal's width. */
static void
add_meters(char line[MAX_LINE], const exo_progress *p)
{
    char meters[LINE_METERS];
    size_t used = strlen(line);
    exo_meter_line(p->meters, meters, sizeof meters);
    if (meters[0])
        snprintf(line + used, MAX_LINE - used, "  %s", meters);
}

static void
print_step(exo_display *d, const exo_progress *p)
{
    char line[MAX_LINE], bytes[EXO_FIGURE], eta[EXO_FIGURE], loss[EXO_FIGURE], rate[EXO_FIGURE];
    size_t used = prefix(d, line);
    snprintf(line + used, sizeof line - used,
             "step %" PRIu64 "/%" PRIu64 "  loss %s  %s samples/s  %s/node  ETA %s", p->step,
             p->max_steps, exo_text_number((double)p->train_loss, 4, loss), rate_text(p, rate),
             exo_text_bytes((double)p->bytes_sent, bytes), exo_text_seconds(p->eta, eta));
    add_meters(line, p);
    print(d, line);
}

/* The quality of the global model: its accuracy or, for a language model, its perplexity. */
static const char *
quality(const exo_display *d, double accuracy, double loss, char out[2 * EXO_FIGURE])
{
    char figure[EXO_FIGURE];
    snprintf(out, 2 * EXO_FIGURE, "%s %s", d->perplexity ? "perplexity" : "accuracy",
             exo_text_number(d->perplexity ? exp(loss) : accuracy, 4, figure));
    return out;
}

static void
print_evaluation(exo_display *d, const exo_progress *p)
{
    char line[MAX_LINE], local[EXO_FIGURE], global[EXO_FIGURE], good[2 * EXO_FIGURE],
        bytes[EXO_FIGURE];
    size_t used = prefix(d, line);
    snprintf(line + used, sizeof line - used,
             "step %" PRIu64 "/%" PRIu64
             "  validation: local loss %s  global loss %s  global %s  %s/node",
             p->step, p->max_steps, exo_text_number(p->local_loss, 4, local),
             exo_text_number(p->global_loss, 4, global),
             quality(d, p->global_accuracy, p->global_loss, good),
             exo_text_bytes((double)p->bytes_sent, bytes));
    add_meters(line, p);
    print(d, line);
}

void
exo_display_step(exo_display *d, const exo_progress *p)
{
    exo_time since = exo_now(d->clock) - d->last;
    d->train_loss = (double)p->train_loss;
    if (p->evaluated)
        d->val_loss = p->global_loss;
    if (d->terminal) {
        if (p->evaluated || since >= REDRAW_EVERY)
            draw_step(d, p);
    } else if (p->evaluated) {
        print_evaluation(d, p);
    } else if (since >= PRINT_EVERY) {
        print_step(d, p);
    }
}

void
exo_display_end(exo_display *d, const exo_fit_result *r, bool from_before)
{
    char line[MAX_LINE], loss[EXO_FIGURE], good[2 * EXO_FIGURE], bytes[EXO_FIGURE],
        seconds[EXO_FIGURE];
    size_t used = prefix(d, line);
    used +=
        (size_t)snprintf(line + used, sizeof line - used,
                         "%s%" PRIu64 " step%s in %s: ", from_before ? "finished before: " : "",
                         r->steps, r->steps == 1 ? "" : "s", exo_text_seconds(r->seconds, seconds));
    if (!isnan(r->global_loss))
        used += (size_t)snprintf(line + used, sizeof line - used, "global loss %s, %s, ",
                                 exo_text_number(r->global_loss, 4, loss),
                                 quality(d, r->global_accuracy, r->global_loss, good));
    else if (!isnan(d->train_loss)) /* there was no evaluation */
        used += (size_t)snprintf(line + used, sizeof line - used, "training loss %s, ",
                                 exo_text_number(d->train_loss, 4, loss));
    snprintf(line + used, sizeof line - used, "%s sent per node",
             exo_text_bytes((double)r->bytes_sent, bytes));
    print(d, line);
}
