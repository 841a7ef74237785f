/* Writes the gnuplot script. It computes all positions in pixels, because gnuplot's own legend may
 * overflow its space and does not report its size:
 *
 *     title
 *     loss by step | loss by bytes | loss by time
 *     legend, one cell a curve, as many columns as its longest label leaves room for
 *
 * No state. Read next: plot.c, which runs the script. */
#include "programs/plot_script.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/printable.h"

enum {
    WIDTH = 1560,
    TOP = 54,       /* height of the title */
    PANEL = 404,    /* height of the axes */
    ACROSS = 412,   /* width of the axes */
    BELOW = 66,     /* height of tics and axis names */
    ROW = 24,       /* height of a row of the legend */
    SIDE = 30,      /* margins of the legend */
    SAMPLE = 44,    /* width of a legend's line sample, with the gap */
    LETTER = 9,     /* largest mean width of a long word's letters */
    MAX_LABEL = 90, /* a longer label is cut */
    MAX_TITLE = 140,
    LOCAL_CURVES = 8, /* with more curves, the losses of node 0 are left out */
    POINTS = 20,      /* markers on a curve, at most */
};

/* The part of a logarithmic axis below its smallest value, where losses of 0 are drawn. */
#define FOOT 0.08

/* --- Colours ---------------------------------------------------------------------------------- */

/* Okabe and Ito's palette without its yellow. The colours can be told apart with any colour vision;
 * the markers differ, too. */
static const char *const palette[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                      "#E69F00", "#56B4E9", "#000000"};
static const int shapes[] = {7, 5, 9, 13, 11, 15, 2};

enum {
    NUM_STYLES = sizeof palette / sizeof *palette
};

static unsigned
channel(double linear)
{
    double v = linear <= 0.0031308 ? 12.92 * linear : 1.055 * pow(linear, 1 / 2.4) - 0.055;
    return (unsigned)lround(255 * fmin(fmax(v, 0), 1));
}

/* For more curves than the palette has colours: hues around the circle of Oklab (Ottosson, 2020);
 * neighbours differ in lightness. */
const char *
exo_plot_colour(size_t index, size_t count, char out[EXO_PLOT_COLOUR])
{
    static const double lightness[] = {0.42, 0.72, 0.57};
    if (count <= NUM_STYLES)
        return palette[index];
    double light = lightness[index % 3], hue = 6.283185307179586 * (double)index / (double)count,
           chroma = 0.13;
    double a = chroma * cos(hue), b = chroma * sin(hue);
    double l = pow(light + 0.3963377774 * a + 0.2158037573 * b, 3),
           m = pow(light - 0.1055613458 * a - 0.0638541728 * b, 3),
           s = pow(light - 0.0894841775 * a - 1.2914855480 * b, 3);
    snprintf(out, EXO_PLOT_COLOUR, "#%02X%02X%02X",
             channel(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
             channel(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
             channel(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s));
    return out;
}

/* --- Strings ---------------------------------------------------------------------------------- */

/* Adds a string in gnuplot's double quotes. The text is untrusted: control characters are escaped
 * as in errors (printable.h), and every byte except letters, digits, spaces and a few marks is then
 * written as an octal number, so that no text can end the string. A longer text is cut. */
void
exo_plot_add_string(exo_text *s, const char *text, size_t most)
{
    static const char plain[] = " _-.,:/()=+";
    exo_text word = {0};
    exo_printable_add(&word, text, strlen(text), EXO_SHOWN_LINE);
    size_t shown = word.length <= most ? word.length : most - 3;
    while (shown < word.length && shown > 0 && ((unsigned char)word.data[shown] & 0xC0) == 0x80)
        shown--; /* do not cut within a UTF-8 character */
    exo_text_add(s, "\"");
    for (size_t i = 0; i < shown; i++) {
        char c = word.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (letter || strchr(plain, c))
            exo_text_add_bytes(s, &c, 1);
        else
            exo_text_add(s, "\\0%03o", (unsigned char)c); /* gnuplot reads 3 digits after a 0 */
    }
    exo_text_add(s, "%s\"", shown < word.length ? "..." : "");
    s->failed = s->failed || word.failed;
    exo_free(word.data);
}

/* --- Ranges and tics -------------------------------------------------------------------------- */

/* Smaller losses count as 0 and larger ones as infinite, so that computations with the others do
 * not overflow. */
static const double no_loss = 1e-200, endless = 1e200;

struct ranges {
    double least, most; /* of the finite losses that are drawn; least > most: there are none */
    double min_loss, max_loss; /* of the losses above 0 */
    bool has_zero, log_loss;
    double foot;                 /* where a loss of 0 is drawn on a logarithmic axis */
    double min_bytes, max_bytes; /* of values above 0; max_bytes 0: nothing was sent */
    double max_step, max_seconds;
};

static void
look_at_loss(struct ranges *r, double loss)
{
    if (!(fabs(loss) <= endless))
        return;
    r->least = fmin(r->least, loss);
    r->most = fmax(r->most, loss);
    r->has_zero = r->has_zero || (loss >= 0 && loss < no_loss);
    if (loss >= no_loss) {
        r->min_loss = fmin(r->min_loss, loss);
        r->max_loss = fmax(r->max_loss, loss);
    }
}

static bool
has_local_curves(const exo_plot_data *data)
{
    return data->count <= LOCAL_CURVES;
}

static struct ranges
find_ranges(const exo_plot_data *data)
{
    struct ranges r = {
        .least = INFINITY, .most = -INFINITY, .min_loss = INFINITY, .min_bytes = INFINITY};
    for (size_t i = 0; i < data->count; i++) {
        for (size_t k = 0; k < data->curves[i].count; k++) {
            const exo_plot_point *p = &data->curves[i].points[k];
            const double losses[] = {p->global, p->least, p->most, p->local};
            for (size_t l = 0; l < (has_local_curves(data) ? 4 : 3); l++)
                look_at_loss(&r, losses[l]);
            if (p->bytes > 0) {
                r.min_bytes = fmin(r.min_bytes, p->bytes);
                r.max_bytes = fmax(r.max_bytes, p->bytes);
            }
            r.max_step = fmax(r.max_step, p->step);
            r.max_seconds = fmax(r.max_seconds, p->seconds);
        }
    }
    r.log_loss = r.least >= 0 && r.max_loss > 4 * r.min_loss;
    r.foot = r.min_loss / pow(1.12 * r.max_loss / r.min_loss, FOOT);
    return r;
}

/* Formats a number: 0.002, 1e-05, 20. */
static void
number_label(double value, char out[EXO_FIGURE])
{
    snprintf(out, EXO_FIGURE, "%.6g", value);
}

/* Formats bytes: 200 B, 1 kB, 50 MB. */
static void
bytes_label(double value, char out[EXO_FIGURE])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;
    for (; value >= 999.5 && unit + 1 < sizeof units / sizeof *units; unit++)
        value /= 1000;
    snprintf(out, EXO_FIGURE, "%.3g %s", value, units[unit]);
}

/* Adds tics at `mantissas` of every `decades`-th decade within a range, unless `s` is NULL. Returns
 * the smallest distance between neighbours, as the logarithm of their ratio. */
static double
log_tics(exo_text *s, const double *mantissas, size_t num_mantissas, int decades, double min,
         double max, void (*label)(double value, char out[EXO_FIGURE]))
{
    double last = 0, gap = INFINITY;
    for (int e = (int)floor(log10(min)); e <= (int)ceil(log10(max)); e++) {
        for (size_t i = 0; i < num_mantissas && e % decades == 0; i++) {
            double value = mantissas[i] * pow(10, e);
            if (value < min * (1 - 1e-9) || value > max * (1 + 1e-9))
                continue;
            char text[EXO_FIGURE];
            label(value, text);
            if (s)
                exo_text_add(s, "%s'%s' %.17g", last > 0 ? ", " : "", text, value);
            gap = last > 0 ? fmin(gap, log10(value / last)) : gap;
            last = value;
        }
    }
    return gap;
}

/* Adds a logarithmic axis of the given number of pixels, with the finest tics that are at least
 * `apart` pixels from each other. 0 stands below them at `foot`, unless `foot` is negative. */
static void
add_log_axis(exo_text *s, char axis, double pixels, double apart, double min, double max,
             double foot, void (*label)(double value, char out[EXO_FIGURE]))
{
    static const double ladder[][16] = {
        {1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9},
        {1, 1.5, 2, 3, 4, 5, 7},
        {1, 2, 3, 5},
        {1, 2, 5},
        {1, 3},
        {1}};
    static const size_t lengths[] = {16, 7, 4, 3, 2, 1};
    const size_t coarsest = sizeof lengths / sizeof *lengths - 1;
    const double least = apart / pixels * log10(max / (foot > 0 ? foot : min));
    size_t rung = 0;
    int decades = 1;
    while (rung < coarsest &&
           log_tics(NULL, ladder[rung], lengths[rung], 1, min, max, label) < least)
        rung++;
    while (log_tics(NULL, ladder[rung], lengths[rung], decades, min, max, label) < least)
        decades++;
    exo_text_add(s, "set logscale %c\nset %crange [%.6g:%.6g]\nset %ctics (", axis, axis,
                 foot > 0 ? foot / pow(max / min, 0.015) : min, max, axis);
    if (foot > 0)
        exo_text_add(s, "'0' %.17g, ", foot);
    log_tics(s, ladder[rung], lengths[rung], decades, min, max, label);
    exo_text_add(s, ")\n");
}

static void
add_loss_axis(exo_text *s, const struct ranges *r)
{
    exo_text_add(s, "set format y '%%.10g'\nset ylabel 'validation loss' offset 1\n");
    if (r->log_loss)
        add_log_axis(s, 'y', PANEL, 25, r->has_zero ? r->min_loss : r->min_loss / 1.12,
                     r->max_loss * 1.12, r->has_zero ? r->foot : -1, number_label);
    else if (r->most > r->least) /* all panels share one range */
        exo_text_add(s, "set yrange [%.17g:%.17g]\n", r->least - 0.05 * (r->most - r->least),
                     r->most + 0.05 * (r->most - r->least));
}

/* --- Curves ----------------------------------------------------------------------------------- */

/* Where a loss is drawn: a loss of 0 stands at the foot of a logarithmic axis. */
static double
shown(const struct ranges *r, double loss)
{
    return r->log_loss && loss >= 0 && loss < no_loss ? r->foot : loss;
}

static void
add_data(exo_text *s, const exo_plot_data *data, const struct ranges *r)
{
    for (size_t i = 0; i < data->count; i++) {
        exo_text_add(s, "$run%zu << EOD\n", i);
        for (size_t k = 0; k < data->curves[i].count; k++) {
            const exo_plot_point *p = &data->curves[i].points[k];
            exo_text_add(s, "%.17g %.17g %.17g %.17g %.17g %.17g %.17g\n", p->step, p->seconds,
                         p->bytes, shown(r, p->local), shown(r, p->global), shown(r, p->least),
                         shown(r, p->most));
        }
        exo_text_add(s, "EOD\n");
    }
}

/* Adds a panel. For each curve it has the band, the loss of node 0 and the global loss. x:
 * gnuplot's expression of the abscissa, over the columns of add_data. */
static void
add_panel(exo_text *s, const exo_plot_data *data, int column, const char *x)
{
    static const double left[] = {88, 608, 1128};
    const char *between = "";
    char own[EXO_PLOT_COLOUR];
    exo_text_add(s, "set lmargin at screen %.5f\nset rmargin at screen %.5f\nplot ",
                 left[column] / WIDTH, (left[column] + ACROSS) / WIDTH);
    for (size_t i = 0; i < data->count; i++) {
        if (data->curves[i].seeds == 1)
            continue;
        exo_text_add(s,
                     "%s$run%zu using %s:6:7 with filledcurves fs transparent solid 0.18 noborder "
                     "lc rgb '%s'",
                     between, i, x, exo_plot_colour(i, data->count, own));
        between = ", ";
    }
    for (size_t i = 0; i < data->count && has_local_curves(data); i++) {
        exo_text_add(s, "%s$run%zu using %s:4 with lines lc rgb '%s' lw 1.6 dt (6,4)", between, i,
                     x, exo_plot_colour(i, data->count, own));
        between = ", ";
    }
    for (size_t i = 0; i < data->count; i++) {
        size_t every = 1 + data->curves[i].count / POINTS;
        exo_text_add(s,
                     "%s$run%zu using %s:5 with linespoints lc rgb '%s' lw %s pt %d ps 0.7 pi %zu",
                     between, i, x, exo_plot_colour(i, data->count, own),
                     has_local_curves(data) ? "2.2" : "1.6", shapes[i % NUM_STYLES], every);
        between = ", ";
    }
    exo_text_add(s, "\n");
}

/* --- The legend ------------------------------------------------------------------------------- */

struct legend {
    size_t columns, rows; /* of the curves; a row that explains the kinds of lines follows */
    double cell, height;  /* in pixels */
};

static size_t
letters(const exo_plot_curve *curve)
{
    char shown[512];
    size_t length = strlen(exo_printable(shown, sizeof shown, curve->label, EXO_SHOWN_LINE)) +
                    (curve->seeds > 1 ? strlen(" (999 seeds)") : 0);
    return length < MAX_LABEL ? length : MAX_LABEL;
}

static struct legend
plan_legend(const exo_plot_data *data)
{
    size_t longest = 8;
    for (size_t i = 0; i < data->count; i++)
        longest = letters(&data->curves[i]) > longest ? letters(&data->curves[i]) : longest;
    struct legend g = {.cell = SAMPLE + LETTER * (double)longest + 24};
    g.columns = (size_t)((WIDTH - 2 * SIDE) / g.cell);
    g.columns = g.columns < 1 ? 1 : g.columns > data->count ? data->count : g.columns;
    g.rows = (data->count + g.columns - 1) / g.columns;
    g.height = ROW * (double)(g.rows + 1) + 20;
    return g;
}

static void
add_text(exo_text *s, double x, double y, double height, const char *text, size_t seeds)
{
    char label[512];
    snprintf(label, sizeof label, seeds > 1 ? "%.400s (%zu seeds)" : "%.400s", text, seeds);
    exo_text_add(s, "set label ");
    exo_plot_add_string(s, label, MAX_LABEL);
    exo_text_add(s, " at screen %.5f,%.5f left textcolor rgb '#222222'\n", x / WIDTH, y / height);
}

static void
add_sample(exo_text *s, double x, double y, double height, const char *style)
{
    exo_text_add(s, "set arrow from screen %.5f,%.5f to screen %.5f,%.5f nohead %s\n", x / WIDTH,
                 y / height, (x + SAMPLE - 10) / WIDTH, y / height, style);
}

/* Adds the row that explains the kinds of lines. */
static void
add_kinds(exo_text *s, const exo_plot_data *data, double y, double height)
{
    double x = SIDE;
    add_sample(s, x, y, height, "lc rgb '#555555' lw 2.2");
    add_text(s, x + SAMPLE, y, height, "global (mean of nodes)", 1);
    x += 300;
    if (has_local_curves(data)) {
        add_sample(s, x, y, height, "lc rgb '#555555' lw 1.6 dt (6,4)");
        add_text(s, x + SAMPLE, y, height, "local (node 0)", 1);
        x += 240;
    }
    if (data->has_seeds) {
        exo_text_add(s,
                     "set object rectangle from screen %.5f,%.5f to screen %.5f,%.5f fc rgb "
                     "'#555555' fs transparent solid 0.25 noborder\n",
                     x / WIDTH, (y - 7) / height, (x + SAMPLE - 10) / WIDTH, (y + 7) / height);
        add_text(s, x + SAMPLE, y, height, "band: the seeds, least to largest", 1);
    }
}

static void
add_legend(exo_text *s, const exo_plot_data *data, const struct legend *g, double height)
{
    char own[EXO_PLOT_COLOUR], style[96];
    for (size_t i = 0; i < data->count; i++) {
        double x = SIDE + g->cell * (double)(i % g->columns),
               y = g->height - 10 - ROW * ((double)(i / g->columns) + 0.5);
        const char *colour = exo_plot_colour(i, data->count, own);
        snprintf(style, sizeof style, "lc rgb '%s' lw 2.2", colour);
        add_sample(s, x, y, height, style);
        exo_text_add(s, "set label '' at screen %.5f,%.5f point lc rgb '%s' pt %d ps 0.9\n",
                     (x + 0.5 * (SAMPLE - 10)) / WIDTH, y / height, colour, shapes[i % NUM_STYLES]);
        add_text(s, x + SAMPLE, y, height, data->curves[i].label, data->curves[i].seeds);
    }
    add_kinds(s, data, g->height - 10 - ROW * ((double)g->rows + 0.5), height);
}

/* --- The script ------------------------------------------------------------------------------- */

static void
add_step_panel(exo_text *s, const exo_plot_data *data, const struct ranges *r)
{
    double unit = r->max_step >= 1e7 ? 1e6 : r->max_step >= 2e4 ? 1e3 : 1;
    char x[64];
    snprintf(x, sizeof x, "($1 / %g)", unit);
    exo_text_add(s, "set format x '%%.10g'\nset xrange [0:*]\nset xlabel 'step%s'\n",
                 unit > 1e3 ? " (millions)"
                 : unit > 1 ? " (thousands)"
                            : "");
    add_panel(s, data, 0, x);
    exo_text_add(s, "unset ylabel\n");
}

static void
add_bytes_panel(exo_text *s, const exo_plot_data *data, const struct ranges *r)
{
    if (r->max_bytes > 0) {
        exo_text_add(s, "set xlabel 'sent per node'\n");
        add_log_axis(s, 'x', ACROSS, 68, r->min_bytes / 1.2, r->max_bytes * 1.2, -1, bytes_label);
    } else {
        exo_text_add(s,
                     "set xrange [-1:1]\nset xtics (0)\nset xlabel 'bytes sent per node: none'\n");
    }
    add_panel(s, data, 1, r->max_bytes > 0 ? "($3 > 0 ? $3 : NaN)" : "3");
    exo_text_add(s, "unset logscale x\nset xrange [0:*]\nset xtics autofreq\n");
}

static void
add_time_panel(exo_text *s, const exo_plot_data *data, const struct ranges *r)
{
    double unit = r->max_seconds > 36000 ? 3600 : r->max_seconds > 600 ? 60 : 1;
    char x[64];
    snprintf(x, sizeof x, "($2 / %g)", unit);
    exo_text_add(s, "set xlabel 'time (%s)'\n",
                 unit > 60  ? "hours"
                 : unit > 1 ? "minutes"
                            : "seconds");
    add_panel(s, data, 2, x);
}

void
exo_plot_script(exo_text *s, const exo_plot_data *data, const char *title, bool svg)
{
    struct ranges r = find_ranges(data);
    struct legend g = plan_legend(data);
    double height = TOP + PANEL + BELOW + g.height;
    exo_text_add(s,
                 "set encoding utf8\nset terminal %s noenhanced size %d,%.0f font 'Sans,%s' "
                 "background rgb 'white'\n",
                 svg ? "svg" : "pngcairo", WIDTH, height, svg ? "13" : "12");
    add_data(s, data, &r);
    exo_text_add(s, "set multiplot title ");
    exo_plot_add_string(s, title, MAX_TITLE);
    exo_text_add(
        s,
        " font ',15'\nset bmargin at screen %.5f\nset tmargin at screen %.5f\n"
        "set border 3 lc rgb '#555555'\nset tics nomirror out scale 0.6 textcolor rgb '#222222'\n"
        "set grid lt 1 lc rgb '#e4e4e4' lw 1\nunset key\n",
        (g.height + BELOW) / height, 1 - TOP / height);
    add_loss_axis(s, &r);
    add_step_panel(s, data, &r);
    add_bytes_panel(s, data, &r);
    add_legend(s, data, &g, height); /* labels are drawn with the last panel */
    add_time_panel(s, data, &r);
    exo_text_add(s, "unset multiplot\nunset output\n");
}
