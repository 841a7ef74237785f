/* Rows of meters: see meter_rows.h. No state. */
#include "programs/meter_rows.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

/* Splits a path: 4 and 8 for "sink_12.received"; 0 and 0 for "train.loss", which belongs to no
 * actor. */
static void
split(const char *path, size_t *name, size_t *inner)
{
    size_t end = strcspn(path, "."), digits = end;
    while (digits > 0 && isdigit((unsigned char)path[digits - 1]))
        digits--;
    bool is_actor = path[end] == '.' && digits < end && digits > 1 && path[digits - 1] == '_';
    *name = is_actor ? digits - 1 : 0;
    *inner = is_actor ? end + 1 : 0;
}

size_t
exo_meter_shared_path(const char *path, char out[EXO_METER_PATH])
{
    size_t name, inner;
    split(path, &name, &inner);
    snprintf(out, EXO_METER_PATH, "%.*s%s%s", (int)name, path, inner ? "." : "", path + inner);
    return inner ? inner - 1 : 0;
}

static bool
is_of(const exo_meter_row *row, const char *path, size_t name, size_t inner)
{
    return row->name == name && strncmp(row->path, path, name) == 0 &&
           strcmp(row->path + row->inner, path + inner) == 0;
}

static exo_meter_row *
find_or_add(exo_meter_rows *rows, const char *path, size_t name, size_t inner,
            const exo_meter_class *c)
{
    for (size_t i = 0; i < rows->num; i++)
        if (is_of(&rows->rows[i], path, name, inner))
            return &rows->rows[i];
    if (!rows->rows)
        rows->rows = exo_calloc(EXO_METER_ROWS, sizeof *rows->rows);
    if (!rows->rows || rows->num == EXO_METER_ROWS)
        return NULL;
    exo_meter_row *row = &rows->rows[rows->num++];
    *row = (exo_meter_row){
        .name = name, .inner = inner, .kind = c->kind, .least = INFINITY, .most = -INFINITY};
    snprintf(row->path, sizeof row->path, "%s", path);
    snprintf(row->unit, sizeof row->unit, "%s", c->unit);
    snprintf(row->help, sizeof row->help, "%s", c->help);
    return row;
}

void
exo_meter_rows_add(exo_meter_rows *rows, const exo_meter_sample *s)
{
    const exo_meter_class *c = s->meter_class;
    char path[EXO_METER_ROW_PATH];
    size_t name, inner;
    if (c->kind == EXO_GAUGE && isnan(s->value))
        return;
    snprintf(path, sizeof path, "%s", s->path);
    split(path, &name, &inner);
    exo_meter_row *row = find_or_add(rows, path, name, inner, c);
    if (!row || row->kind != c->kind) {
        rows->left_out++;
        return;
    }
    double value = c->kind == EXO_COUNTER ? (double)s->count : s->value;
    row->actors += inner > 0;
    row->observations += s->count;
    row->sum += value;
    row->least = value < row->least ? value : row->least;
    row->most = value > row->most ? value : row->most;
}

void
exo_meter_rows_release(exo_meter_rows *rows)
{
    exo_free(rows->rows);
    *rows = (exo_meter_rows){0};
}
