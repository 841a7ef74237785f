/* Reads metrics.csv of runs and averages the seeds of each strategy: see plot_runs.h. Read next:
 * plot_script.c. */
#include "programs/plot_runs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "programs/text.h"

enum {
    MAX_LINE = 1024
};

#define METRICS_HEADER                                                                             \
    "step,seconds,bytes_sent,local_loss,global_loss,local_accuracy,global_accuracy"

static exo_status
fail_nomem(exo_err *err)
{
    return exo_fail(err, EXO_NOMEM, "out of memory");
}

static void
release_curve(exo_plot_curve *curve)
{
    exo_free(curve->folder);
    exo_free(curve->points);
}

void
exo_plot_release(exo_plot_data *data)
{
    for (size_t i = 0; i < data->count; i++)
        release_curve(&data->curves[i]);
    exo_free(data->curves);
    *data = (exo_plot_data){0};
}

/* --- Finding the runs ------------------------------------------------------------------------- */

static bool
has_metrics(const char *folder)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/metrics.csv", folder);
    return length > 0 && (size_t)length < sizeof path && access(path, F_OK) == 0;
}

static exo_status
add_run(exo_plot_data *data, const char *folder, exo_err *err)
{
    char path[PATH_MAX];
    if (!realpath(folder, path)) /* the real path has a name even for "." */
        return exo_fail(err, EXO_IO, "cannot read '%s': %s", folder, strerror(errno));
    if (data->count == data->capacity) {
        size_t capacity = data->capacity ? 2 * data->capacity : 16;
        exo_plot_curve *curves = exo_realloc(data->curves, capacity, sizeof *curves);
        if (!curves)
            return fail_nomem(err);
        data->curves = curves;
        data->capacity = capacity;
    }
    exo_plot_curve *curve = &data->curves[data->count];
    *curve = (exo_plot_curve){.folder = exo_strdup(path), .seeds = 1};
    if (!curve->folder)
        return fail_nomem(err);
    data->count++;
    return EXO_OK;
}

/* Adds the runs in a folder that is not a run itself, in the order of their names. Numbers in names
 * compare as numbers. */
static exo_status
add_inner_runs(exo_plot_data *data, const char *folder, exo_err *err)
{
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, NULL, versionsort);
    if (count < 0)
        return exo_fail(err, EXO_INVAL, "cannot read the folder '%s': %s", folder, strerror(errno));
    size_t before = data->count;
    exo_status st = EXO_OK;
    for (int i = 0; i < count; i++) {
        char inner[PATH_MAX];
        int length = snprintf(inner, sizeof inner, "%s/%s", folder, entries[i]->d_name);
        if (st == EXO_OK && entries[i]->d_name[0] != '.' && length > 0 &&
            (size_t)length < sizeof inner && has_metrics(inner))
            st = add_run(data, inner, err);
        (free)(entries[i]); /* scandir allocates with malloc */
    }
    (free)(entries);
    if (st == EXO_OK && data->count == before)
        st = exo_fail(err, EXO_INVAL,
                      "'%s' is no run: there is no metrics.csv in it or in its folders", folder);
    return st;
}

/* --- Reading the runs ------------------------------------------------------------------------- */

/* Adds a point. It replaces points of the same or later steps: they were written before the run was
 * resumed from an earlier checkpoint. */
static exo_status
add_point(exo_plot_curve *curve, const exo_plot_point *point, exo_err *err)
{
    while (curve->count > 0 && curve->points[curve->count - 1].step >= point->step)
        curve->count--;
    if (curve->count == curve->capacity) {
        size_t capacity = curve->capacity ? 2 * curve->capacity : 64;
        exo_plot_point *points = exo_realloc(curve->points, capacity, sizeof *points);
        if (!points)
            return fail_nomem(err);
        curve->points = points;
        curve->capacity = capacity;
    }
    curve->points[curve->count++] = *point;
    return EXO_OK;
}

static exo_status
read_lines(exo_plot_curve *curve, const char *path, FILE *file, exo_err *err)
{
    char line[MAX_LINE];
    if (!fgets(line, sizeof line, file))
        return exo_fail(err, EXO_DAMAGED, "%s: is empty", path);
    line[strcspn(line, "\r\n")] = '\0';
    if (strcmp(line, METRICS_HEADER) != 0)
        return exo_fail(err, EXO_DAMAGED, "%s:1: expected '" METRICS_HEADER "'", path);
    for (unsigned number = 2; fgets(line, sizeof line, file); number++) {
        if (!strchr(line, '\n'))
            break; /* a running job is writing this line */
        exo_plot_point point = {0};
        double *const fields[] = {&point.step, &point.seconds, &point.bytes, &point.local,
                                  &point.global};
        char *at = line;
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
            char *end = NULL;
            *fields[i] = strtod(at, &end);
            if (end == at || (*end != ',' && *end != '\n') || (i == 0 && !isfinite(point.step)))
                return exo_fail(err, EXO_DAMAGED, "%s:%u: field %zu is no number", path, number,
                                i + 1);
            at = end + (*end == ',');
        }
        point.least = point.most = point.global;
        exo_status st = add_point(curve, &point, err);
        if (st != EXO_OK)
            return st;
    }
    return EXO_OK;
}

static exo_status
read_run(exo_plot_curve *curve, exo_err *err)
{
    char *path = exo_text_make(err, "%s/metrics.csv", curve->folder);
    FILE *file = NULL;
    exo_status st = path ? exo_file_open_stream(path, &file, err) : EXO_NOMEM;
    if (st == EXO_OK) {
        st = read_lines(curve, path, file, err);
        fclose(file);
    }
    if (st == EXO_OK && curve->count == 0)
        st = exo_fail(err, EXO_INVAL, "%s: there is no evaluation in it yet", path);
    exo_free(path);
    return st;
}

/* --- Seeds ------------------------------------------------------------------------------------ */

/* The length of a folder's name without "-seedN". Without such a suffix: all of it. */
static size_t
length_without_seed(const char *folder)
{
    size_t length = strlen(folder), digits = length, suffix = strlen(EXO_SEED_SUFFIX);
    while (digits > 0 && isdigit((unsigned char)folder[digits - 1]))
        digits--;
    if (digits == length || digits <= suffix ||
        strncmp(folder + digits - suffix, EXO_SEED_SUFFIX, suffix) != 0 ||
        folder[digits - suffix - 1] == '/')
        return length;
    return digits - suffix;
}

/* Are both folders seeds of one strategy? */
static bool
are_seeds(const char *a, const char *b)
{
    size_t length = length_without_seed(a);
    return strcmp(a, b) != 0 && length == length_without_seed(b) && a[length] && b[length] &&
           strncmp(a, b, length) == 0;
}

/* Adds another seed's values. Only the steps that both have are kept. */
static void
add_seed(exo_plot_curve *curve, const exo_plot_curve *other)
{
    size_t kept = 0, k = 0;
    for (size_t i = 0; i < curve->count; i++) {
        exo_plot_point sum = curve->points[i];
        while (k < other->count && other->points[k].step < sum.step)
            k++;
        if (k == other->count || other->points[k].step > sum.step)
            continue;
        const exo_plot_point *p = &other->points[k];
        sum.seconds += p->seconds;
        sum.bytes += p->bytes;
        sum.local += p->local;
        sum.global += p->global;
        sum.least = fmin(sum.least, p->global);
        sum.most = fmax(sum.most, p->global);
        curve->points[kept++] = sum;
    }
    curve->count = kept;
    curve->seeds++;
}

/* Divides the sums over the seeds, which gives the means. */
static void
divide_points(exo_plot_curve *curve)
{
    double n = (double)curve->seeds;
    for (size_t i = 0; i < curve->count; i++) {
        exo_plot_point *p = &curve->points[i];
        p->seconds /= n;
        p->bytes /= n;
        p->local /= n;
        p->global /= n;
    }
}

static exo_status
join_seeds(exo_plot_data *data, exo_err *err)
{
    exo_status st = EXO_OK;
    size_t kept = 0;
    for (size_t i = 0; i < data->count; i++) {
        size_t first = 0;
        while (first < kept && !are_seeds(data->curves[first].folder, data->curves[i].folder))
            first++;
        if (first == kept) {
            data->curves[kept++] = data->curves[i];
            continue;
        }
        add_seed(&data->curves[first], &data->curves[i]);
        release_curve(&data->curves[i]);
    }
    data->count = kept;
    for (size_t i = 0; i < kept; i++) {
        exo_plot_curve *curve = &data->curves[i];
        if (curve->seeds == 1)
            continue;
        curve->folder[length_without_seed(curve->folder)] = '\0';
        if (st == EXO_OK && curve->count == 0)
            st = exo_fail(err, EXO_INVAL,
                          "%s" EXO_SEED_SUFFIX
                          "*: no step at which all %zu seeds were evaluated; plot fewer of them",
                          curve->folder, curve->seeds);
        divide_points(curve);
        data->has_seeds = true;
    }
    return st;
}

/* --- Labels ----------------------------------------------------------------------------------- */

/* Names each curve after the last part of its folder; if two are equal, after the last two
 * parts. */
static void
name_curves(exo_plot_data *data)
{
    bool same = false;
    for (size_t i = 0; i < data->count; i++) {
        const char *folder = data->curves[i].folder, *slash = strrchr(folder, '/');
        data->curves[i].label = slash ? slash + 1 : folder;
        for (size_t k = 0; k < i; k++)
            same |= strcmp(data->curves[i].label, data->curves[k].label) == 0;
    }
    for (size_t i = 0; same && i < data->count; i++) {
        const exo_plot_curve *curve = &data->curves[i];
        const char *start = curve->label > curve->folder ? curve->label - 1 : curve->label;
        while (start > curve->folder && start[-1] != '/')
            start--;
        data->curves[i].label = start;
    }
}

exo_status
exo_plot_read(exo_plot_data *data, const char *const *folders, size_t count, exo_err *err)
{
    exo_status st = EXO_OK;
    *data = (exo_plot_data){0};
    for (size_t i = 0; st == EXO_OK && i < count; i++)
        st = has_metrics(folders[i]) ? add_run(data, folders[i], err)
                                     : add_inner_runs(data, folders[i], err);
    for (size_t i = 0; st == EXO_OK && i < data->count; i++)
        st = read_run(&data->curves[i], err);
    if (st == EXO_OK)
        st = join_seeds(data, err);
    if (st == EXO_OK)
        name_curves(data);
    return st;
}
