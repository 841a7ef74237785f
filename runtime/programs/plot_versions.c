/* Pictures of policies that learn from rewards: see plot_versions.h. Read next: plot_script.c. */
#include "programs/plot_versions.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "programs/plot_script.h"

enum {
    WIDTH = 1080,
    HEIGHT = 480,
    MAX_LINE = 4096,
    MAX_TITLE = 140,
    MAX_LABEL = 60
};

/* The columns that are drawn. */
enum {
    VERSION,
    SCORE,
    KL,
    NUM_COLUMNS
};
static const char *const column_names[NUM_COLUMNS] = {"version", "score", "kl"};

static int
is_versions(const struct dirent *entry)
{
    const char *head = "versions_", *tail = ".csv";
    size_t length = strlen(entry->d_name);
    return length > strlen(head) + strlen(tail) &&
           strncmp(entry->d_name, head, strlen(head)) == 0 &&
           strcmp(entry->d_name + length - strlen(tail), tail) == 0;
}

/* Finds the first file of a run by its name, as a path that the caller frees. NULL: there is none. */
static char *
find_file(const char *folder)
{
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, is_versions, versionsort);
    char *path = count > 0 ? exo_text_make(NULL, "%s/%s", folder, entries[0]->d_name) : NULL;
    for (int i = 0; i < count; i++)
        (free)(entries[i]); /* scandir allocates with malloc */
    if (count >= 0)
        (free)(entries);
    return path;
}

bool
exo_plot_has_versions(const char *folder)
{
    char *path = find_file(folder);
    exo_free(path);
    return path != NULL;
}

/* --- One file --------------------------------------------------------------------------------- */

/* Finds the places of the columns in the header. */
static exo_status
read_header(char *line, const char *path, size_t places[NUM_COLUMNS], exo_err *err)
{
    char *rest = NULL;
    size_t place = 0, found = 0;
    for (char *word = strtok_r(line, ",\r\n", &rest); word;
         word = strtok_r(NULL, ",\r\n", &rest), place++)
        for (size_t c = 0; c < NUM_COLUMNS; c++)
            if (strcmp(word, column_names[c]) == 0) {
                places[c] = place;
                found++;
            }
    return found == NUM_COLUMNS
               ? EXO_OK
               : exo_fail(err, EXO_DAMAGED, "%s:1: expected the columns version, score and kl",
                          path);
}

/* Reads the columns of a line; *drawn false: it has no score, as that of version 0. */
static exo_status
read_line(const char *line, const char *path, unsigned number, const size_t places[NUM_COLUMNS],
          double values[NUM_COLUMNS], bool *drawn, exo_err *err)
{
    *drawn = true;
    for (size_t c = 0; c < NUM_COLUMNS; c++) {
        const char *at = line;
        for (size_t i = 0; at && i < places[c]; i++) {
            at = strchr(at, ',');
            at = at ? at + 1 : NULL;
        }
        char *end = NULL;
        values[c] = at ? strtod(at, &end) : 0;
        if (at && c != VERSION && (*at == ',' || *at == '\n')) {
            *drawn = false;
            return EXO_OK;
        }
        if (!at || end == at || (*end != ',' && *end != '\n'))
            return exo_fail(err, EXO_DAMAGED, "%s:%u: %s is no number", path, number,
                            column_names[c]);
    }
    return EXO_OK;
}

/* Adds the data of a run. */
static exo_status
add_lines(exo_text *s, const char *path, FILE *file, exo_err *err)
{
    char line[MAX_LINE];
    size_t places[NUM_COLUMNS] = {0}, points = 0;
    if (!fgets(line, sizeof line, file))
        return exo_fail(err, EXO_DAMAGED, "%s: is empty", path);
    exo_status st = read_header(line, path, places, err);
    for (unsigned number = 2; st == EXO_OK && fgets(line, sizeof line, file); number++) {
        double v[NUM_COLUMNS];
        bool drawn = false;
        if (!strchr(line, '\n'))
            break; /* a running trainer is writing this line */
        st = read_line(line, path, number, places, v, &drawn, err);
        if (st == EXO_OK && drawn)
            exo_text_add(s, "%.17g %.17g %.17g\n", v[VERSION], v[SCORE], v[KL]);
        points += st == EXO_OK && drawn;
    }
    if (st == EXO_OK && points == 0)
        return exo_fail(err, EXO_INVAL, "%s: there is no update in it yet", path);
    return st;
}

static exo_status
add_run(exo_text *s, const char *folder, size_t index, exo_err *err)
{
    char *path = find_file(folder);
    FILE *file = NULL;
    if (!path)
        return exo_fail(err, EXO_INVAL, "'%s' has no versions_TRAINER.csv of a ppo_trainer",
                        folder);
    exo_text_add(s, "$run%zu << EOD\n", index);
    exo_status st = exo_file_open_stream(path, &file, err);
    if (st == EXO_OK) {
        st = add_lines(s, path, file, err);
        fclose(file);
    }
    exo_text_add(s, "EOD\n");
    exo_free(path);
    return st;
}

/* --- The picture ------------------------------------------------------------------------------ */

static void
add_label(exo_text *s, const char *folder)
{
    char path[PATH_MAX];
    const char *whole = realpath(folder, path) ? path : folder, *slash = strrchr(whole, '/');
    exo_plot_add_string(s, slash ? slash + 1 : whole, MAX_LABEL);
}

static void
add_panel(exo_text *s, const char *const *folders, size_t count, const char *columns,
          const char *axis, bool key)
{
    char own[EXO_PLOT_COLOUR];
    exo_text_add(s, "set xlabel '%s'\n%s\nplot ", axis, key ? "set key bottom right" : "unset key");
    for (size_t i = 0; i < count; i++) {
        exo_text_add(s, "%s$run%zu using %s with linespoints lc rgb '%s' lw 1.8 pt 7 ps 0.5 title ",
                     i > 0 ? ", " : "", i, columns, exo_plot_colour(i, count, own));
        add_label(s, folders[i]);
    }
    exo_text_add(s, "\n");
}

exo_status
exo_plot_versions(exo_text *s, const char *const *folders, size_t count, const char *title,
                  bool svg, exo_err *err)
{
    exo_status st = EXO_OK;
    exo_text_add(
        s,
        "set encoding utf8\nset terminal %s noenhanced size %d,%d font 'Sans,%s' background "
        "rgb 'white'\n",
        svg ? "svg" : "pngcairo", WIDTH, HEIGHT, svg ? "13" : "12");
    for (size_t i = 0; st == EXO_OK && i < count; i++)
        st = add_run(s, folders[i], i, err);
    exo_text_add(s, "set multiplot layout 1,2 title ");
    exo_plot_add_string(s, title, MAX_TITLE);
    exo_text_add(
        s,
        " font ',15'\nset border 3 lc rgb '#555555'\nset tics nomirror out scale 0.6\nset grid lt "
        "1 lc rgb '#e4e4e4' lw 1\nset xrange [0:*]\nset ylabel 'mean score of the answers'\n");
    add_panel(s, folders, count, "3:2", "KL from version 0 (nats an answer)", count > 1);
    add_panel(s, folders, count, "1:2", "version", false);
    exo_text_add(s, "unset multiplot\nunset output\n");
    return st;
}
