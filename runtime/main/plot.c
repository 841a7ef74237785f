/* Reads metrics.csv of runs, writes a gnuplot script, runs gnuplot on it. No shell is involved: the script is gnuplot's
 * standard input, and names in it are quoted. Also the command `exogym plot`. No state. */
#include "plot.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "commands.h"
#include "text.h"

enum {
    MAX_RUNS = 64,
    MAX_LINE = 1024,
    KEY_COLUMNS = 6,
};

#define METRICS_HEADER "step,seconds,bytes_sent,local_loss,global_loss,local_accuracy,global_accuracy"

extern char **environ;

/* One evaluation: a line of metrics.csv without its accuracies. */
struct point {
    double step, seconds, bytes, local, global;
};

struct plotted_run {
    char *folder;
    const char *label; /* the last part of `folder`, or its last two */
    struct point *points;
    size_t count, capacity;
};

struct picture {
    struct plotted_run runs[MAX_RUNS];
    size_t count;
    double min_loss, max_loss, max_bytes, max_seconds; /* over all points */
};

static void
release(struct picture *p)
{
    for (size_t i = 0; i < p->count; i++) {
        exo_free(p->runs[i].folder);
        exo_free(p->runs[i].points);
    }
}

/* --- Which runs --------------------------------------------------------------------------------------------------------------- */

static bool
has_metrics(const char *folder)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/metrics.csv", folder);
    return length > 0 && (size_t)length < sizeof path && access(path, F_OK) == 0;
}

static exo_status
add_run(struct picture *p, const char *folder, exo_err *err)
{
    char path[PATH_MAX];
    if (p->count == MAX_RUNS)
        return exo_fail(err, EXO_INVAL, "more than %d runs in one picture", MAX_RUNS);
    if (!realpath(folder, path)) /* "." has a name, too */
        return exo_fail(err, EXO_IO, "cannot read '%s': %s", folder, strerror(errno));
    struct plotted_run *run = &p->runs[p->count];
    *run = (struct plotted_run){.folder = exo_strdup(path)};
    if (!run->folder)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    const char *slash = strrchr(run->folder, '/');
    run->label = slash ? slash + 1 : run->folder;
    p->count++;
    return EXO_OK;
}

/* A folder that is no run itself: those of its folders that are, by name. */
static exo_status
add_inner_runs(struct picture *p, const char *folder, exo_err *err)
{
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, NULL, alphasort);
    if (count < 0)
        return exo_fail(err, EXO_INVAL, "cannot read the folder '%s': %s", folder, strerror(errno));
    size_t before = p->count;
    exo_status st = EXO_OK;
    for (int i = 0; i < count; i++) {
        char inner[PATH_MAX];
        int length = snprintf(inner, sizeof inner, "%s/%s", folder, entries[i]->d_name);
        if (st == EXO_OK && entries[i]->d_name[0] != '.' && length > 0 && (size_t)length < sizeof inner &&
            has_metrics(inner))
            st = add_run(p, inner, err);
        exo_free(entries[i]);
    }
    exo_free(entries);
    if (st == EXO_OK && p->count == before)
        st = exo_fail(err, EXO_INVAL, "'%s' is no run: there is no metrics.csv in it or in its folders", folder);
    return st;
}

/* Runs of the same name get the name of the folder before it, too. */
static void
make_labels_differ(struct picture *p)
{
    bool same = false;
    for (size_t i = 0; i < p->count; i++)
        for (size_t k = 0; k < i; k++)
            same |= strcmp(p->runs[i].label, p->runs[k].label) == 0;
    for (size_t i = 0; same && i < p->count; i++) {
        const char *start = p->runs[i].label > p->runs[i].folder ? p->runs[i].label - 1 : p->runs[i].label;
        while (start > p->runs[i].folder && start[-1] != '/')
            start--;
        p->runs[i].label = start;
    }
}

/* --- Their figures -------------------------------------------------------------------------------------------------------------- */

static exo_status
add_point(struct plotted_run *run, const struct point *point, exo_err *err)
{
    if (run->count == run->capacity) {
        size_t capacity = run->capacity ? 2 * run->capacity : 64;
        struct point *points = exo_realloc(run->points, capacity, sizeof *points);
        if (!points)
            return exo_fail(err, EXO_NOMEM, "out of memory");
        run->points = points;
        run->capacity = capacity;
    }
    run->points[run->count++] = *point;
    return EXO_OK;
}

static exo_status
read_lines(struct plotted_run *run, const char *path, FILE *file, exo_err *err)
{
    char line[MAX_LINE];
    if (!fgets(line, sizeof line, file))
        return exo_fail(err, EXO_INVAL, "%s: is empty", path);
    line[strcspn(line, "\r\n")] = '\0';
    if (strcmp(line, METRICS_HEADER) != 0)
        return exo_fail(err, EXO_INVAL, "%s:1: expected '" METRICS_HEADER "'", path);
    for (unsigned number = 2; fgets(line, sizeof line, file); number++) {
        if (!strchr(line, '\n'))
            break; /* a run that is still going writes this line now */
        struct point point;
        double *const fields[] = {&point.step, &point.seconds, &point.bytes, &point.local, &point.global};
        char *at = line;
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
            char *end = NULL;
            *fields[i] = strtod(at, &end);
            if (end == at || (*end != ',' && *end != '\n'))
                return exo_fail(err, EXO_INVAL, "%s:%u: field %zu is no number", path, number, i + 1);
            at = end + (*end == ',');
        }
        exo_status st = add_point(run, &point, err);
        if (st != EXO_OK)
            return st;
    }
    return EXO_OK;
}

static exo_status
read_run(struct plotted_run *run, exo_err *err)
{
    exo_text path = {0};
    exo_text_add(&path, "%s/metrics.csv", run->folder);
    if (path.failed)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    exo_status st = EXO_OK;
    FILE *file = fopen(path.data, "re");
    if (!file) {
        st = exo_fail(err, EXO_IO, "cannot read '%s': %s", path.data, strerror(errno));
    } else {
        st = read_lines(run, path.data, file, err);
        fclose(file);
    }
    if (st == EXO_OK && run->count == 0)
        st = exo_fail(err, EXO_INVAL, "%s: there is no evaluation in it yet", path.data);
    exo_free(path.data);
    return st;
}

static void
find_ranges(struct picture *p)
{
    p->min_loss = INFINITY;
    for (size_t i = 0; i < p->count; i++) {
        for (size_t k = 0; k < p->runs[i].count; k++) {
            const struct point *point = &p->runs[i].points[k];
            p->min_loss = fmin(p->min_loss, fmin(point->local, point->global));
            if (isfinite(point->local))
                p->max_loss = fmax(p->max_loss, point->local);
            if (isfinite(point->global))
                p->max_loss = fmax(p->max_loss, point->global);
            p->max_bytes = fmax(p->max_bytes, point->bytes);
            p->max_seconds = fmax(p->max_seconds, point->seconds);
        }
    }
}

/* --- The script -------------------------------------------------------------------------------------------------------------------- */

/* Okabe and Ito's palette without its yellow: told apart with any colour vision; point shapes differ, too. */
static const char *const colours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"};
static const int shapes[] = {7, 5, 9, 13, 11, 15, 2};

enum {
    NUM_STYLES = sizeof colours / sizeof *colours
};

/* In gnuplot's single quotes only the quote itself is special. */
static void
add_string(exo_text *s, const char *text)
{
    exo_text_add(s, "'");
    for (; *text; text++)
        exo_text_add(s, *text == '\'' ? "''" : "%c", *text);
    exo_text_add(s, "'");
}

static void
add_data(exo_text *s, const struct picture *p)
{
    for (size_t i = 0; i < p->count; i++) {
        exo_text_add(s, "$run%zu << EOD\n", i);
        for (size_t k = 0; k < p->runs[i].count; k++) {
            const struct point *point = &p->runs[i].points[k];
            exo_text_add(s, "%.17g %.17g %.17g %.17g %.17g\n", point->step, point->seconds, point->bytes, point->local,
                         point->global);
        }
        exo_text_add(s, "EOD\n");
    }
}

/* A panel: for each run its global and its local curve over `x`, an expression over the columns of add_data. */
static void
add_panel(exo_text *s, const struct picture *p, int column, const char *x)
{
    static const double left[] = {0.052, 0.376, 0.700}, width = 0.282;
    exo_text_add(s, "set lmargin at screen %.3f\nset rmargin at screen %.3f\nplot ", left[column],
                 left[column] + width);
    for (size_t i = 0; i < p->count; i++) {
        const char *colour = colours[i % NUM_STYLES];
        size_t every = 1 + p->runs[i].count / 20; /* at most some 20 points on a curve */
        exo_text_add(s, "%s$run%zu using %s:4 with lines lc rgb '%s' lw 1.8 dt (6,4)", i ? ", " : "", i, x, colour);
        exo_text_add(s, ", $run%zu using %s:5 with linespoints lc rgb '%s' lw 2.2 pt %d ps 0.7 pi %zu", i, x, colour,
                     shapes[i % NUM_STYLES], every);
    }
    exo_text_add(s, "\n");
}

/* The legend of all panels: a panel of its own, without axes, over the full width. */
static void
add_legend(exo_text *s, const struct picture *p, double top)
{
    exo_text_add(
        s,
        "set lmargin at screen 0\nset rmargin at screen 1\nset bmargin at screen 0\nset tmargin at screen %.4f\n"
        "unset logscale\nunset border\nunset tics\nunset grid\nunset xlabel\nunset ylabel\n"
        "set key center center horizontal reverse Left maxcols %d samplen 2.5 width 2\n"
        "plot [0:1][0:1] NaN notitle",
        top, KEY_COLUMNS);
    for (size_t i = 0; i < p->count; i++) {
        exo_text_add(s, ", keyentry with linespoints lc rgb '%s' lw 2.2 pt %d ps 0.9 title ", colours[i % NUM_STYLES],
                     shapes[i % NUM_STYLES]);
        add_string(s, p->runs[i].label);
    }
    exo_text_add(s, ", keyentry with lines lc rgb '#555555' lw 2.2 title 'global (mean of nodes)'"
                    ", keyentry with lines lc rgb '#555555' lw 1.8 dt (6,4) title 'local (node 0)'\n");
}

static void
add_loss_axis(exo_text *s, const struct picture *p)
{
    if (p->min_loss > 0 && p->max_loss > 4 * p->min_loss)
        exo_text_add(
            s,
            "set logscale y\n"
            "set ytics (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, "
            "20, 50, 100)\n"
            "set yrange [%.6g:%.6g]\n",
            p->min_loss / 1.12, p->max_loss * 1.12);
    exo_text_add(s, "set ylabel 'validation loss' offset 1\n");
}

static void
write_script(exo_text *s, const struct picture *p, const char *title, const char *out, bool svg)
{
    size_t rows = (p->count + 2 + KEY_COLUMNS - 1) / KEY_COLUMNS;
    double legend = 20 + 24 * (double)rows, height = 520 + legend;
    bool minutes = p->max_seconds > 600;

    exo_text_add(s, "set terminal %s noenhanced size 1560,%.0f font 'Sans,%s' background rgb 'white'\nset output ",
                 svg ? "svg" : "pngcairo", height, svg ? "13" : "12");
    add_string(s, out);
    exo_text_add(s, "\n");
    add_data(s, p);
    exo_text_add(s, "set multiplot title ");
    add_string(s, title);
    exo_text_add(s,
                 " font ',15'\nset bmargin at screen %.4f\nset tmargin at screen %.4f\n"
                 "set border 3 lc rgb '#555555'\nset tics nomirror out scale 0.6 textcolor rgb '#222222'\n"
                 "set grid lt 1 lc rgb '#e4e4e4' lw 1\nunset key\n",
                 (legend + 62) / height, 1 - 54 / height);
    add_loss_axis(s, p);

    exo_text_add(s, "set xlabel 'step'\n");
    add_panel(s, p, 0, "1");

    exo_text_add(s, "unset ylabel\n");
    if (p->max_bytes > 0)
        exo_text_add(s, "set logscale x\nset format x '%%.0s %%cB'\nset xlabel 'sent per node'\n");
    else
        exo_text_add(s, "set xrange [-1:1]\nset xtics (0)\nset xlabel 'bytes sent per node: none'\n");
    add_panel(s, p, 1, p->max_bytes > 0 ? "($3 > 0 ? $3 : NaN)" : "3");

    exo_text_add(s, "unset logscale x\nset format x\nset xrange [*:*]\nset xtics autofreq\nset xlabel 'time (%s)'\n",
                 minutes ? "minutes" : "seconds");
    add_panel(s, p, 2, minutes ? "($2 / 60)" : "2");

    add_legend(s, p, legend / height);
    exo_text_add(s, "unset multiplot\nunset output\n");
}

/* --- gnuplot ----------------------------------------------------------------------------------------------------------------------- */

/* gnuplot's first complaint, without the script's line that it shows before. */
static exo_status
fail_gnuplot(int complaints, int status, exo_err *err)
{
    char text[MAX_LINE] = "";
    ssize_t got = pread(complaints, text, sizeof text - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    char *reason = text + strspn(text, " \n\t^");
    char *line = strstr(reason, "line ");
    if (line)
        reason = line;
    reason[strcspn(reason, "\n")] = '\0';
    if (*reason)
        return exo_fail(err, EXO_FAILED, "gnuplot: %s", reason);
    return exo_fail(err, EXO_FAILED, "gnuplot ended with status %d", WIFEXITED(status) ? WEXITSTATUS(status) : 128);
}

static exo_status
run_gnuplot(const exo_text *script, exo_err *err)
{
    char *const argv[] = {"gnuplot", "-", NULL};
    posix_spawn_file_actions_t actions;
    pid_t child = 0;
    int status = 0;
    exo_status st = EXO_OK;
    int input = memfd_create("script", MFD_CLOEXEC), complaints = memfd_create("complaints", MFD_CLOEXEC);
    posix_spawn_file_actions_init(&actions);
    if (input < 0 || complaints < 0 || write(input, script->data, script->length) != (ssize_t)script->length ||
        lseek(input, 0, SEEK_SET) != 0) {
        st = exo_fail(err, EXO_IO, "cannot hold gnuplot's script: %s", strerror(errno));
        goto done;
    }
    posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, complaints, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, complaints, STDERR_FILENO);
    int failure = posix_spawnp(&child, argv[0], &actions, NULL, argv, environ);
    if (failure == ENOENT) {
        st = exo_fail(err, EXO_NOT_FOUND, "gnuplot is not installed (Debian: apt install gnuplot-nox)");
        goto done;
    }
    if (failure) {
        st = exo_fail(err, EXO_FAILED, "cannot start gnuplot: %s", strerror(failure));
        goto done;
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        st = fail_gnuplot(complaints, status, err);
done:
    posix_spawn_file_actions_destroy(&actions);
    if (input >= 0)
        close(input);
    if (complaints >= 0)
        close(complaints);
    return st;
}

static exo_status
draw(const struct picture *p, const char *title, const char *out, bool svg, exo_err *err)
{
    exo_text script = {0}, temporary = {0};
    struct stat info;
    exo_status st = EXO_OK;
    exo_text_add(&temporary, "%s.%ld.tmp", out, (long)getpid());
    if (!temporary.failed)
        write_script(&script, p, title, temporary.data, svg);
    if (script.failed || temporary.failed) {
        st = exo_fail(err, EXO_NOMEM, "out of memory");
        goto done;
    }
    /* gnuplot says little about a file that it cannot write, so that is tried first. */
    FILE *file = fopen(temporary.data, "we");
    if (!file) {
        st = exo_fail(err, EXO_IO, "cannot write '%s': %s", out, strerror(errno));
        goto done;
    }
    fclose(file);
    st = run_gnuplot(&script, err);
    if (st == EXO_OK && (stat(temporary.data, &info) != 0 || info.st_size == 0))
        st = exo_fail(err, EXO_IO, "gnuplot could not write '%s'", out);
    if (st == EXO_OK && rename(temporary.data, out) != 0)
        st = exo_fail(err, EXO_IO, "cannot write '%s': %s", out, strerror(errno));
    if (st != EXO_OK)
        unlink(temporary.data);
done:
    exo_free(script.data);
    exo_free(temporary.data);
    return st;
}

exo_status
exo_plot(const char *const *folders, size_t count, const char *title, const char *out, exo_err *err)
{
    struct picture *p = exo_calloc(1, sizeof *p);
    if (!p)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    const char *dot = strrchr(out, '.');
    bool svg = dot && strcmp(dot, ".svg") == 0;
    exo_status st = EXO_OK;
    if (!svg && (!dot || strcmp(dot, ".png") != 0))
        st = exo_fail(err, EXO_INVAL, "'%s': a picture's name ends with .png or .svg", out);
    for (size_t i = 0; st == EXO_OK && i < count; i++)
        st = has_metrics(folders[i]) ? add_run(p, folders[i], err) : add_inner_runs(p, folders[i], err);
    make_labels_differ(p);
    for (size_t i = 0; st == EXO_OK && i < p->count; i++)
        st = read_run(&p->runs[i], err);
    if (st == EXO_OK) {
        find_ranges(p);
        st = draw(p, title ? title : "", out, svg, err);
    }
    release(p);
    exo_free(p);
    return st;
}

/* --- The command ---------------------------------------------------------------------------------------------------------------------- */

struct plot_args {
    exo_words folders;
    const char *out, *title;
};

static int
plot_command(const exo_command_line *line)
{
    exo_err err = {0};
    const struct plot_args *args = line->args;
    const char *title = args->title, *first = args->folders.items[0];
    if (!title && args->folders.length == 1) {
        const char *slash = strrchr(first, '/');
        title = slash && slash[1] ? slash + 1 : first;
    }
    if (exo_plot(args->folders.items, args->folders.length, title, args->out, &err) != EXO_OK)
        return exo_report(&err);
    printf("%s\n", args->out);
    return EXO_EXIT_OK;
}

static const exo_arg table[] = {
    {.value = "RUN",
     .help = "A run's folder (runs/compare/ddp), or one that holds several (runs/compare).",
     .word = EXO_WORD_FOLDER,
     .required = true,
     EXO_INTO(struct plot_args, folders)},
    {.name = "--output",
     .brief = "-o",
     .value = "FILE",
     .help = "The picture; its ending, .png or .svg, says the format.",
     .word = EXO_WORD_FILE,
     .required = true,
     EXO_INTO(struct plot_args, out)},
    {.name = "--title",
     .value = "TEXT",
     .help = "Stands above it; else the folder's name if there is one.",
     EXO_INTO(struct plot_args, title)},
    {0},
};

static const exo_note examples[] = {
    {"exogym plot runs/compare -o compare.png", "All runs of a job."},
    {"exogym plot runs/a/diloco runs/b/diloco -o both.svg --title \"two learning rates\"", "Runs of two jobs."},
    {0},
};

static const exo_note files[] = {{"RUN/metrics.csv", "What is drawn."}, {0}};

const exo_command exo_command_plot = {
    .name = "plot",
    .summary = "Draws validation loss by step, by bytes sent and by time",
    .description =
        "One colour a run: the global model (the average of all nodes) solid, the local one (node 0) dashed. "
        "Works on a run that is still going.\n\n"
        "Needs gnuplot (Debian: apt install gnuplot-nox). The picture appears only when it is whole.",
    .args = table,
    .examples = examples,
    .files = files,
    .args_size = sizeof(struct plot_args),
    .run = plot_command,
};
