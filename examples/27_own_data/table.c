/* Data of your own: a plugin, built outside exogym against the public headers alone. It reads a
 * CSV file whose first line names the columns. One column is the class, a number from 0; the
 * others are numbers, which are shifted and scaled to the mean 0 and the deviation 1. Each
 * `val_every`-th row is for validation.
 *
 * A data set is a class of functions over its memory (`table`); the plugin registers a name for
 * jobs, and how to make the data sets for training and validation from the options (`load`). */
#define _POSIX_C_SOURCE 200809L /* getline */
#include <exogym/exogym.h>

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct table {
    size_t rows, columns, room; /* columns: without the label */
    float *values;              /* (room, columns) */
    int32_t *labels;            /* (room) */
};

static void
table_free(void *self)
{
    struct table *t = self;
    exo_free(t->values);
    exo_free(t->labels);
    exo_free(t);
}

static size_t
table_length(const void *self)
{
    return ((const struct table *)self)->rows;
}

static size_t
table_fields(const void *self, exo_field *out)
{
    out[0] = (exo_field){.name = "values", .dtype = EXO_F32, .num_dims = 1};
    out[0].dims[0] = ((const struct table *)self)->columns;
    out[1] = (exo_field){.name = "label", .dtype = EXO_I32};
    return 2;
}

static exo_status
table_get(const void *self, size_t index, const exo_sample_key *key, void *const *out, exo_err *err)
{
    (void)key, (void)err; /* augmentation would draw from the key */
    const struct table *t = self;
    memcpy(out[0], t->values + index * t->columns, t->columns * sizeof *t->values);
    *(int32_t *)out[1] = t->labels[index];
    return EXO_OK;
}

static const exo_dataset_class table_class = {.name = "table",
                                              .length = table_length,
                                              .fields = table_fields,
                                              .get = table_get,
                                              .free = table_free};

/* --- Reading ---------------------------------------------------------------------------------- */

/* Cuts the next field off; NULL after the last one of the line. */
static char *
next_field(char **rest)
{
    char *field = *rest;
    if (!field)
        return NULL;
    size_t length = strcspn(field, ",\r\n");
    *rest = field[length] == ',' ? field + length + 1 : NULL;
    field[length] = 0;
    return field;
}

/* The number of columns of the header, and the place of `label` among them; NULL: the last. */
static exo_status
read_header(char *line, const char *label, size_t *columns, size_t *place, exo_err *err)
{
    bool found = !label;
    line += strncmp(line, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0; /* the mark of UTF-8 */
    *columns = 0;
    for (char *rest = line, *name; (name = next_field(&rest)); ++*columns) {
        if (label && strcmp(name, label) != 0)
            continue;
        *place = *columns;
        found = true;
    }
    if (!found || *columns < 2)
        return exo_fail(err, EXO_INVAL, "%s",
                        found ? "needs two columns or more" : "no such label");
    return EXO_OK;
}

/* Makes room for another row. */
static exo_status
grow(struct table *t, exo_err *err)
{
    if (t->rows < t->room)
        return EXO_OK;
    size_t room = t->room ? 2 * t->room : 1024;
    float *values = exo_calloc(room, t->columns * sizeof *values);
    int32_t *labels = exo_calloc(room, sizeof *labels);
    if (values && labels && t->rows > 0) {
        memcpy(values, t->values, t->rows * t->columns * sizeof *values);
        memcpy(labels, t->labels, t->rows * sizeof *labels);
    }
    exo_free(t->values);
    exo_free(t->labels);
    t->values = values;
    t->labels = labels;
    t->room = room;
    return values && labels ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for %zu rows", room);
}

static exo_status
read_row(struct table *t, char *line, size_t place, exo_err *err)
{
    float *out = t->values + t->rows * t->columns;
    char *rest = line;
    for (size_t c = 0; c <= t->columns; c++) {
        char *field = next_field(&rest), *end = field;
        double number = field ? strtod(field, &end) : 0;
        if (!field || end == field || *end)
            return exo_fail(err, EXO_INVAL, "column %zu is no number: '%s'", c + 1,
                            field ? field : "");
        if (!(fabs(number) <= (double)FLT_MAX))
            return exo_fail(err, EXO_INVAL, "column %zu: no float holds %.40s", c + 1, field);
        if (c != place)
            *out++ = (float)number;
        else if (number < 0 || number > INT32_MAX || number != floor(number))
            return exo_fail(err, EXO_INVAL, "column %zu: a label is a whole number from 0", c + 1);
        else
            t->labels[t->rows] = (int32_t)number;
    }
    if (rest)
        return exo_fail(err, EXO_INVAL, "more than %zu columns", t->columns + 1);
    t->rows++;
    return EXO_OK;
}

/* A file, while it is read. */
struct lines {
    FILE *file;
    char *text; /* the present line */
    size_t room, number;
};

/* Reads the next line that is not blank; *more is false at the end. */
static exo_status
next_line(struct lines *l, bool *more, exo_err *err)
{
    for (*more = true; *more;) {
        ssize_t size = getline(&l->text, &l->room, l->file);
        *more = size > 0;
        l->number++;
        if (*more && strlen(l->text) != (size_t)size)
            return exo_fail(err, EXO_INVAL, "a line with a byte 0 is no text");
        if (*more && l->text[strspn(l->text, " \t\r\n")])
            return EXO_OK;
    }
    return feof(l->file) ? EXO_OK : exo_fail(err, EXO_IO, "%s", strerror(errno));
}

/* Reads the rows of the file in turn into `parts`: each every-th one into the second. */
static exo_status
read_rows(struct table *parts[2], struct lines *lines, const char *label, uint64_t every,
          exo_err *err)
{
    size_t columns = 0, place = SIZE_MAX;
    bool more = false;
    exo_status st = next_line(lines, &more, err);
    if (st == EXO_OK && !more)
        st = exo_fail(err, EXO_INVAL, "no line with the names of the columns");
    if (st == EXO_OK)
        st = read_header(lines->text, label, &columns, &place, err);
    if (st == EXO_OK)
        st = next_line(lines, &more, err);
    place = place == SIZE_MAX ? columns - 1 : place;
    parts[0]->columns = parts[1]->columns = columns - 1;
    for (size_t row = 1; st == EXO_OK && more; row++) {
        struct table *t = parts[row % every == 0];
        st = grow(t, err);
        if (st == EXO_OK)
            st = read_row(t, lines->text, place, err);
        if (st == EXO_OK)
            st = next_line(lines, &more, err);
    }
    return st;
}

/* Shifts and scales the columns of both parts by the mean and the deviation of the first. */
static void
normalize(struct table *const parts[2])
{
    const struct table *t = parts[0];
    for (size_t c = 0; c < t->columns; c++) {
        double sum = 0, squares = 0;
        for (size_t r = 0; r < t->rows; r++)
            sum += (double)t->values[r * t->columns + c];
        double mean = t->rows > 0 ? sum / (double)t->rows : 0;
        for (size_t r = 0; r < t->rows; r++)
            squares += pow((double)t->values[r * t->columns + c] - mean, 2);
        double deviation = squares > 0 ? sqrt(squares / (double)t->rows) : 1;
        for (int p = 0; p < 2; p++)
            for (size_t r = 0; r < parts[p]->rows; r++) {
                float *value = &parts[p]->values[r * t->columns + c];
                *value = (float)(((double)*value - mean) / deviation);
            }
    }
}

/* --- By name ---------------------------------------------------------------------------------- */

/* `path` is relative to the current folder, as in the library's own data sets. */
static exo_status
read_file(struct table *parts[2], const char *path, const char *label, uint64_t every, exo_err *err)
{
    struct lines lines = {.file = fopen(path, "r")};
    if (!lines.file)
        return exo_fail(err, errno == ENOENT ? EXO_NOT_FOUND : EXO_IO, "%s: %s", path,
                        strerror(errno));
    exo_err reason = {0};
    exo_status st = read_rows(parts, &lines, label, every, &reason);
    fclose(lines.file);
    free(lines.text);
    return st == EXO_OK ? EXO_OK : exo_fail(err, st, "%s:%zu: %s", path, lines.number, reason.text);
}

static exo_status
load(exo_config *config, exo_dataset **train, exo_dataset **val, exo_err *err)
{
    const char *path = NULL, *label = NULL;
    uint64_t every = 0;
    struct table *parts[2] = {NULL, NULL};
    exo_status st = exo_config_string(config, "path", NULL, &path, err);
    if (st == EXO_OK)
        st = exo_config_string(config, "label", NULL, &label, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "val_every", 10, 2, UINT32_MAX, &every, err);
    if (st == EXO_OK && !path)
        st = exo_fail(err, EXO_INVAL, "table: needs the key 'path', a CSV file");
    for (int p = 0; p < 2 && st == EXO_OK; p++)
        if (!(parts[p] = exo_calloc(1, sizeof *parts[p])))
            st = exo_fail(err, EXO_NOMEM, "no memory for a table");
    if (st == EXO_OK)
        st = read_file(parts, path, label, every, err);
    if (st == EXO_OK) {
        normalize(parts);
        st = exo_dataset_new(train, &table_class, parts[0], err); /* owns it, also after an error */
        parts[0] = NULL;
    }
    if (st == EXO_OK && val) {
        st = exo_dataset_new(val, &table_class, parts[1], err);
        parts[1] = NULL;
    }
    for (int p = 0; p < 2; p++)
        if (parts[p])
            table_free(parts[p]);
    return st;
}

static const exo_named_data table = {
    .name = "table", .help = "rows of a CSV file; options path, label, val_every", .load = load};

EXO_PLUGIN
{
    return exo_dataset_register(&table, err);
}
