/* Results of a sweep as JSON, CSV and text: see sweep_table.h. */
#include "programs/sweep_table.h"

#include <math.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/file.h"
#include "programs/results.h"
#include "programs/text.h"
#include "report/json_text.h"

enum {
    DIGITS = 4, /* of losses and accuracies on the screen */
    NUM_COLUMNS = 6,
    CELL = 96
};

/* The figures of a row, as exo_results_seeds_json names them. */
static const char *const figures[] = {"local_loss",      "global_loss",         "local_accuracy",
                                      "global_accuracy", "bytes_sent_per_node", "seconds",
                                      "train_seconds",   "samples_per_second"};

enum {
    NUM_FIGURES = sizeof figures / sizeof *figures
};

/* A statistic of a row's figure; NaN if there is none. */
static double
statistic(const json_t *row, const char *figure, const char *name)
{
    const json_t *value = json_object_get(json_object_get(row, figure), name);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

void
exo_sweep_add(json_t *rows, const exo_grid *grid, size_t cell, const exo_job *job,
              const exo_fit_result *results)
{
    size_t index;
    json_t *row, *groups = exo_results_seeds_json(job, results), *values = json_object();
    for (size_t a = 0; a < grid->num_axes; a++)
        json_object_set_new(values, grid->axes[a].key, json_string(exo_grid_value(grid, cell, a)));
    json_array_foreach (groups, index, row) {
        json_object_set(row, "values", values);
        json_array_append(rows, row);
    }
    json_decref(values);
    json_decref(groups);
}

/* --- CSV -------------------------------------------------------------------------------------- */

/* Adds a field, in quotes if it needs them (RFC 4180). */
static void
add_field(exo_text *text, const char *field)
{
    if (!field[strcspn(field, ",\"\n\r")]) {
        exo_text_add(text, "%s,", field);
        return;
    }
    exo_text_add(text, "\"");
    for (; *field; field++)
        exo_text_add(text, "%s%c", *field == '"' ? "\"" : "", *field);
    exo_text_add(text, "\",");
}

/* The name of a column of values, which differs from those of the other columns. */
static void
add_key(exo_text *text, const char *key)
{
    bool taken = strcmp(key, "strategy") == 0 || strcmp(key, "seeds") == 0;
    exo_text_add(text, "%s", taken ? "values." : "");
    add_field(text, key);
}

static void
make_csv(exo_text *text, const exo_grid *grid, const json_t *rows)
{
    size_t index;
    json_t *row;
    exo_text_add(text, "label,strategy,");
    for (size_t a = 0; a < grid->num_axes; a++)
        add_key(text, grid->axes[a].key);
    exo_text_add(text, "seeds");
    for (size_t f = 0; f < NUM_FIGURES; f++)
        exo_text_add(text, ",%s,%s_deviation", figures[f], figures[f]);
    exo_text_add(text, "\n");
    json_array_foreach (rows, index, row) {
        add_field(text, json_string_value(json_object_get(row, "label")));
        add_field(text, json_string_value(json_object_get(row, "strategy")));
        for (size_t a = 0; a < grid->num_axes; a++)
            add_field(text, json_string_value(json_object_get(json_object_get(row, "values"),
                                                              grid->axes[a].key)));
        exo_text_add(text, "%zu", json_array_size(json_object_get(row, "seeds")));
        for (size_t f = 0; f < NUM_FIGURES; f++)
            exo_text_add(text, ",%.9g,%.9g", statistic(row, figures[f], "mean"),
                         statistic(row, figures[f], "deviation"));
        exo_text_add(text, "\n");
    }
}

static exo_status
write_text(const char *folder, const char *file, const char *text, exo_err *err)
{
    char *path = exo_text_make(err, "%s/%s", folder, file);
    exo_status st = path ? exo_file_write_atomic(path, text, strlen(text), err) : EXO_NOMEM;
    exo_free(path);
    return st;
}

exo_status
exo_sweep_write(const char *folder, const exo_grid *grid, const json_t *all, exo_err *err)
{
    exo_text csv = {0};
    make_csv(&csv, grid, json_object_get(all, "rows"));
    char *json = exo_json_dump(all, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    exo_status st =
        csv.failed || !json ? exo_fail(err, EXO_NOMEM, "no memory for the table") : EXO_OK;
    if (st == EXO_OK)
        st = write_text(folder, "sweep.csv", csv.data, err);
    if (st == EXO_OK)
        st = write_text(folder, "sweep.json", json, err);
    exo_free(csv.data);
    exo_free(json);
    return st;
}

/* --- The table on the screen ------------------------------------------------------------------ */

struct row {
    char cells[NUM_COLUMNS][CELL];
};

/* Writes "mean +- deviation"; of one seed, its value. */
static void
fill_spread(char *cell, const json_t *row, const char *figure)
{
    char mean[EXO_FIGURE], deviation[EXO_FIGURE];
    exo_text_number(statistic(row, figure, "mean"), DIGITS, mean);
    exo_text_number(statistic(row, figure, "deviation"), 2, deviation);
    if (json_array_size(json_object_get(row, "seeds")) > 1)
        snprintf(cell, CELL, "%s +- %s", mean, deviation);
    else
        snprintf(cell, CELL, "%s", mean);
}

static void
fill_row(struct row *out, const json_t *row)
{
    char text[EXO_FIGURE];
    snprintf(out->cells[0], CELL, "%s", json_string_value(json_object_get(row, "label")));
    fill_spread(out->cells[1], row, "local_loss");
    fill_spread(out->cells[2], row, "global_loss");
    fill_spread(out->cells[3], row, "global_accuracy");
    snprintf(out->cells[4], CELL, "%s",
             exo_text_bytes(statistic(row, "bytes_sent_per_node", "mean"), text));
    snprintf(out->cells[5], CELL, "%s", exo_text_seconds(statistic(row, "seconds", "mean"), text));
}

static void
print_row(const struct row *row, const size_t widths[NUM_COLUMNS])
{
    printf("%-*s", (int)widths[0], row->cells[0]);
    for (size_t c = 1; c < NUM_COLUMNS; c++)
        printf("  %*s", (int)widths[c], row->cells[c]);
    putchar('\n');
}

void
exo_sweep_print(const json_t *rows)
{
    static const struct row names = {
        {"run", "local loss", "global loss", "global accuracy", "sent/node", "time"}};
    size_t widths[NUM_COLUMNS] = {0}, total = 0, index;
    struct row cells;
    json_t *row;
    for (size_t c = 0; c < NUM_COLUMNS; c++)
        widths[c] = strlen(names.cells[c]);
    json_array_foreach (rows, index, row) {
        fill_row(&cells, row);
        for (size_t c = 0; c < NUM_COLUMNS; c++)
            widths[c] = strlen(cells.cells[c]) > widths[c] ? strlen(cells.cells[c]) : widths[c];
    }
    if (json_array_size(json_object_get(json_array_get(rows, 0), "seeds")) > 1)
        printf("%zu seeds: mean +- standard deviation\n",
               json_array_size(json_object_get(json_array_get(rows, 0), "seeds")));
    print_row(&names, widths);
    for (size_t c = 0; c < NUM_COLUMNS; c++)
        total += widths[c] + (c ? 2 : 0);
    for (size_t i = 0; i < total; i++)
        putchar('-');
    putchar('\n');
    json_array_foreach (rows, index, row) {
        fill_row(&cells, row);
        print_row(&cells, widths);
    }
}
