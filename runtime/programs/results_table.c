/* The table of a job's results, and the statistics over seeds. No state. Read next: results.c. */
#include "programs/results.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include <exogym/decoder.h>

#include "programs/text.h"

enum {
    NUM_COLUMNS = 8,
    DIGITS = 4 /* of losses, accuracies and perplexities */
};

static const char *const column_names[NUM_COLUMNS] = {
    "strategy",        "local loss", "global loss", "local accuracy",
    "global accuracy", "sent/node",  "time",        "samples/s"};

struct row {
    char cells[NUM_COLUMNS][128];
};

/* --- Seeds ------------------------------------------------------------------------------------ */

/* Statistics of one figure over the seeds of a group. If one seed's figure is NaN, so is the
 * mean. */
struct spread {
    double mean, deviation, least, most;
};

static double
local_perplexity(const exo_fit_result *r)
{
    return exp(r->local_loss);
}

static double
global_perplexity(const exo_fit_result *r)
{
    return exp(r->global_loss);
}

#define FIGURE(member)                                                                             \
    static double get_##member(const exo_fit_result *r)                                            \
    {                                                                                              \
        return (double)r->member;                                                                  \
    }
FIGURE(local_loss)
FIGURE(global_loss)
FIGURE(local_accuracy)
FIGURE(global_accuracy)
FIGURE(bytes_sent)
FIGURE(seconds)
FIGURE(train_seconds)
FIGURE(samples_per_second)

typedef double figure_of(const exo_fit_result *r);

static struct spread
spread_of(const exo_fit_result *results, size_t count, figure_of *figure)
{
    struct spread s = {.least = INFINITY, .most = -INFINITY};
    for (size_t i = 0; i < count; i++) {
        double value = figure(&results[i]);
        s.mean += value / (double)count;
        s.least = fmin(s.least, value);
        s.most = fmax(s.most, value);
    }
    for (size_t i = 0; i < count; i++)
        s.deviation += pow(figure(&results[i]) - s.mean, 2);
    s.deviation = count > 1 ? sqrt(s.deviation / (double)(count - 1)) : 0;
    return s;
}

static json_t *
spread_json(struct spread s)
{
    const double values[] = {s.mean, s.deviation, s.least, s.most};
    static const char *const names[] = {"mean", "deviation", "least", "largest"};
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        json_object_set_new(object, names[i],
                            isfinite(values[i]) ? json_real(values[i]) : json_null());
    return object;
}

json_t *
exo_results_seeds_json(const exo_job *job, const exo_fit_result *results)
{
    static const struct {
        const char *name;
        figure_of *figure;
    } figures[] = {
        {"local_loss", get_local_loss},          {"global_loss", get_global_loss},
        {"local_accuracy", get_local_accuracy},  {"global_accuracy", get_global_accuracy},
        {"bytes_sent_per_node", get_bytes_sent}, {"seconds", get_seconds},
        {"train_seconds", get_train_seconds},    {"samples_per_second", get_samples_per_second}};
    json_t *all = json_array();
    for (size_t g = 0; g < job->num_runs; g += job->num_seeds) {
        json_t *seeds = json_array(), *group = json_object();
        for (size_t i = 0; i < job->num_seeds; i++)
            json_array_append_new(seeds, json_integer((json_int_t)job->runs[g + i].seed));
        json_object_set_new(group, "label", json_string(job->runs[g].group));
        json_object_set_new(group, "strategy", json_string(job->runs[g].strategy));
        json_object_set_new(group, "seeds", seeds);
        for (size_t f = 0; f < sizeof figures / sizeof *figures; f++)
            json_object_set_new(
                group, figures[f].name,
                spread_json(spread_of(&results[g], job->num_seeds, figures[f].figure)));
        json_array_append_new(all, group);
    }
    return all;
}

/* --- Cells ------------------------------------------------------------------------------------ */

static const char *
number_text(double value, char out[EXO_FIGURE])
{
    return exo_text_number(value, DIGITS, out);
}

/* Writes "mean (least-largest)", or the single value. */
static void
fill_cell(char *cell, size_t size, const exo_fit_result *results, size_t count, figure_of *figure,
          const char *(*text)(double value, char out[EXO_FIGURE]))
{
    char mean[EXO_FIGURE], least[EXO_FIGURE], most[EXO_FIGURE];
    struct spread s = spread_of(results, count, figure);
    text(s.mean, mean);
    if (count == 1 || !isfinite(s.mean)) {
        snprintf(cell, size, "%s", mean);
        return;
    }
    text(s.least, least);
    text(s.most, most);
    bool signs = strpbrk(least, "-e") || strpbrk(most, "-e");
    if (strcmp(least, most) == 0)
        snprintf(cell, size, "%s", mean);
    else
        snprintf(cell, size, "%s (%s%s%s)", mean, least, signs ? " to " : "-", most);
}

/* For language models, perplexities replace the accuracies. */
static void
fill_row(struct row *row, const char *label, const exo_fit_result *results, size_t count,
         bool perplexities)
{
    static const struct {
        figure_of *figure;
        const char *(*text)(double value, char out[EXO_FIGURE]);
    } columns[NUM_COLUMNS] = {
        [1] = {get_local_loss, number_text},          [2] = {get_global_loss, number_text},
        [3] = {get_local_accuracy, number_text},      [4] = {get_global_accuracy, number_text},
        [5] = {get_bytes_sent, exo_text_bytes},       [6] = {get_seconds, exo_text_seconds},
        [7] = {get_samples_per_second, exo_text_rate}};
    snprintf(row->cells[0], sizeof row->cells[0], "%s", label);
    for (int c = 1; c < NUM_COLUMNS; c++) {
        figure_of *figure = columns[c].figure;
        if (perplexities && (c == 3 || c == 4))
            figure = c == 3 ? local_perplexity : global_perplexity;
        /* times and rates are shown as means only */
        double mean = spread_of(results, count, figure).mean;
        char text[EXO_FIGURE];
        if (c >= 6)
            snprintf(row->cells[c], sizeof row->cells[c], "%s", columns[c].text(mean, text));
        else
            fill_cell(row->cells[c], sizeof row->cells[c], results, count, figure, columns[c].text);
    }
}

static void
print_row(FILE *out, const struct row *row, const size_t widths[NUM_COLUMNS])
{
    fprintf(out, "%-*s", (int)widths[0], row->cells[0]);
    for (size_t c = 1; c < NUM_COLUMNS; c++)
        fprintf(out, "  %*s", (int)widths[c], row->cells[c]);
    fputc('\n', out);
}

/* --- The table -------------------------------------------------------------------------------- */

static void
print_seeds(FILE *out, const exo_job *job)
{
    fputs("seeds", out);
    for (size_t i = 0; i < job->num_seeds; i++)
        fprintf(out, "%s %" PRIu64, i ? "," : "", job->seeds[i]);
    fputs(": mean (least-largest)\n", out);
}

void
exo_results_print_table(FILE *out, const exo_job *job, const exo_fit_result *results)
{
    const char *names[NUM_COLUMNS];
    size_t widths[NUM_COLUMNS], total = 0;
    struct row row;
    bool perplexities = exo_decoder_spec_of(job->model) != NULL;
    memcpy(names, column_names, sizeof names);
    if (perplexities) {
        names[3] = "local perplexity";
        names[4] = "global perplexity";
    }
    if (job->num_seeds > 1)
        print_seeds(out, job);
    for (size_t c = 0; c < NUM_COLUMNS; c++)
        widths[c] = strlen(names[c]);
    for (size_t i = 0; i < job->num_runs; i += job->num_seeds) {
        fill_row(&row, job->runs[i].group, &results[i], job->num_seeds, perplexities);
        for (size_t c = 0; c < NUM_COLUMNS; c++)
            if (strlen(row.cells[c]) > widths[c])
                widths[c] = strlen(row.cells[c]);
    }
    for (size_t c = 0; c < NUM_COLUMNS; c++) {
        snprintf(row.cells[c], sizeof row.cells[c], "%s", names[c]);
        total += widths[c] + (c ? 2 : 0);
    }
    print_row(out, &row, widths);
    for (size_t i = 0; i < total; i++)
        fputc('-', out);
    fputc('\n', out);
    for (size_t i = 0; i < job->num_runs; i += job->num_seeds) {
        fill_row(&row, job->runs[i].group, &results[i], job->num_seeds, perplexities);
        print_row(out, &row, widths);
    }
}
