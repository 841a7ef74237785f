/* The progress line of a graph: see graph_line.h. */
#include "programs/graph_line.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "programs/meter_rows.h"
#include "programs/show.h"
#include "programs/text.h"

enum {
    SHOWN = 24 /* characters of an actor's name, at most */
};

/* A row as an entry of the line. Rows of one actor name form a group. */
struct cell {
    const exo_meter_row *row;
    size_t group;  /* index of the group's first cell */
    size_t rank;   /* position in the group */
    size_t actors; /* in the group's first cell: number of actors */
    bool shown;
};

static void
add_sample(void *rows, const exo_meter_sample *s)
{
    if (s->meter_class->kind != EXO_HISTOGRAM)
        exo_meter_rows_add(rows, s);
}

static void
group_cells(struct cell *cells, const exo_meter_rows *rows)
{
    for (size_t i = 0; i < rows->num; i++) {
        const exo_meter_row *row = &rows->rows[i];
        cells[i] = (struct cell){.row = row, .group = i};
        for (size_t k = 0; k < i; k++)
            if (cells[k].row->name == row->name &&
                strncmp(cells[k].row->path, row->path, row->name) == 0) {
                cells[i].group = cells[k].group;
                cells[i].rank++;
            }
        struct cell *first = &cells[cells[i].group];
        first->actors = row->actors > first->actors ? row->actors : first->actors;
    }
}

/* Adds ", loss 0.31"; for the first cell of a group, the actors' name comes before it. */
static void
put_cell(exo_text *line, const struct cell *cell, const struct cell *first, bool begins)
{
    char least[EXO_FIGURE], most[EXO_FIGURE], name[64];
    const exo_meter_row *row = cell->row;
    if (begins && first->actors > 1)
        exo_text_add(line, "  %.*s x%zu:", (int)(row->name < SHOWN ? row->name : SHOWN), row->path,
                     first->actors);
    else if (begins && row->inner > 0)
        exo_text_add(line,
                     "  %.*s:", (int)(row->inner - 1 < SHOWN + 4 ? row->inner - 1 : SHOWN + 4),
                     row->path);
    exo_text_value(row->least, 4, least);
    exo_text_value(row->most, 4, most);
    exo_text_add(line, "%s %s %s", begins ? "" : ",",
                 exo_printable(name, sizeof name, row->path + row->inner, EXO_SHOWN_LINE), least);
    if (strcmp(least, most) != 0)
        exo_text_add(line, "..%s", most);
}

static void
put_cells(exo_text *line, const struct cell *cells, size_t count)
{
    for (size_t g = 0; g < count; g++) {
        bool begins = true;
        for (size_t i = g; cells[g].group == g && i < count; i++)
            if (cells[i].group == g && cells[i].shown) {
                put_cell(line, &cells[i], &cells[g], begins);
                begins = false;
            }
    }
}

static int
width_of(const struct cell *cells, size_t count)
{
    exo_text text = {0};
    put_cells(&text, cells, count);
    int width = text.failed ? 0 : (int)text.length;
    exo_free(text.data);
    return width;
}

/* Chooses the cells to show: as many as fit, lowest rank first. */
static void
choose_cells(struct cell *cells, size_t count, int room)
{
    for (size_t rank = 0, left = count; left > 0; rank++)
        for (size_t i = 0; i < count; i++) {
            if (cells[i].rank != rank)
                continue;
            cells[i].shown = true;
            if (width_of(cells, count) > room)
                cells[i].shown = false;
            left--;
        }
}

void
exo_graph_line(exo_text *line, const exo_graph_progress *p, int width)
{
    char time[EXO_FIGURE], bytes[EXO_FIGURE], sent[EXO_FIGURE + 8];
    exo_meter_rows rows = {0};
    exo_meters_walk(p->meters, add_sample, &rows, NULL);
    struct cell *cells = exo_calloc(rows.num + 1, sizeof *cells);
    size_t count = cells ? rows.num : 0;
    exo_traffic sum = exo_ledger_sum(p->ledger, NULL);
    exo_text_seconds((double)p->time * 1e-9, time);
    snprintf(sent, sizeof sent, "  %s sent", exo_text_bytes((double)sum.payload_bytes, bytes));
    if (cells) {
        group_cells(cells, &rows);
        choose_cells(cells, count, width - (int)strlen(time) - (int)strlen(sent));
    }
    exo_text_add(line, "%s", time);
    put_cells(line, cells, count);
    exo_text_add(line, "%s", sent);
    exo_free(cells);
    exo_meter_rows_release(&rows);
}
