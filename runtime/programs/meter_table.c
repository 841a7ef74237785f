/* Meters on the screen: see meter_table.h. Read next: meter_rows.c. */
#include "programs/meter_table.h"

#include <math.h>
#include <string.h>

#include "base/printable.h"
#include "programs/meter_rows.h"
#include "programs/text.h"
#include "report/meter_json.h"

enum {
    LINES = 64,    /* of a table, at most */
    MAX_WIDTH = 40 /* of the column of paths */
};

/* The ledger's table has the traffic. */
static bool
is_said_elsewhere(const char *path)
{
    return strncmp(path, "communication.", 14) == 0;
}

static void
add_meter(exo_meter_rows *rows, const char *path, const json_t *json)
{
    exo_meter_class c;
    exo_meter_sample s;
    double bounds[EXO_METER_BOUNDS];
    if (!is_said_elsewhere(path) && exo_meter_of_json(path, json, &c, bounds, &s))
        exo_meter_rows_add(rows, &s);
}

/* Writes "sink.received", or "sink_0.received" if the row has one actor only. */
static void
put_name(const exo_meter_row *row, char out[EXO_METER_ROW_PATH])
{
    if (row->actors > 1)
        snprintf(out, EXO_METER_ROW_PATH, "%.*s.%s", (int)row->name, row->path,
                 row->path + row->inner);
    else
        memcpy(out, row->path, EXO_METER_ROW_PATH);
}

static void
print_value(FILE *out, const exo_meter_row *row)
{
    char least[EXO_FIGURE], most[EXO_FIGURE],
        unit[4 * EXO_METER_UNIT] = "", actor[4 * EXO_METER_ROW_PATH], name[EXO_METER_ROW_PATH];
    if (strcmp(row->unit, "1") != 0)
        exo_printable(unit, sizeof unit, row->unit, EXO_SHOWN_LINE);
    const char *space = unit[0] ? " " : "";
    bool differ = row->least < row->most, histogram = row->kind == EXO_HISTOGRAM;
    if (histogram)
        fprintf(
            out, "%s observations, mean %s%s%s", exo_text_count(row->observations, least),
            exo_text_value(row->observations ? row->sum / (double)row->observations : (double)NAN,
                           6, most),
            space, unit);
    else if (differ)
        fprintf(out, "%s to %s%s%s", exo_text_value(row->least, 6, least),
                exo_text_value(row->most, 6, most), space, unit);
    else
        fprintf(out, "%s%s%s", exo_text_value(row->least, 6, least), space, unit);
    if (row->actors < 2)
        return;
    snprintf(name, sizeof name, "%.*s", (int)row->name, row->path);
    exo_printable(actor, sizeof actor, name, EXO_SHOWN_LINE);
    fprintf(out, ", %s %s%s",
            histogram ? "all"
            : differ  ? "by"
                      : "each",
            actor, histogram ? "s" : "");
}

static void
print_row(FILE *out, const exo_meter_row *row, int width)
{
    char path[EXO_METER_ROW_PATH], name[4 * EXO_METER_ROW_PATH], help[2 * EXO_METER_HELP];
    put_name(row, path);
    exo_printable(name, sizeof name, path, EXO_SHOWN_LINE);
    exo_printable(help, sizeof help, row->help, EXO_SHOWN_LINE);
    fprintf(out, "  %-*s  ", width, name);
    print_value(out, row);
    if (help[0]) /* a shortened report may lack help texts */
        fprintf(out, "  (%s)", help);
    fputc('\n', out);
}

void
exo_meter_table_print(FILE *out, const json_t *meters)
{
    const char *path;
    json_t *json;
    exo_meter_rows rows = {0};
    json_object_foreach ((json_t *)(uintptr_t)meters, path, json)
        add_meter(&rows, path, json);
    size_t shown = rows.num < LINES ? rows.num : LINES, more = rows.num - shown + rows.left_out;
    int width = 0;
    for (size_t i = 0; i < shown; i++) {
        char name[EXO_METER_ROW_PATH];
        put_name(&rows.rows[i], name);
        width = (int)strlen(name) > width ? (int)strlen(name) : width;
    }
    for (size_t i = 0; i < shown; i++)
        print_row(out, &rows.rows[i], width < MAX_WIDTH ? width : MAX_WIDTH);
    if (more)
        fprintf(out, "  and %zu meters more: they are in the JSON\n", more);
    exo_meter_rows_release(&rows);
}

/* --- The progress line ------------------------------------------------------------------------ */

struct line {
    char *out;
    size_t size, used;
};

static void
add_to_line(void *context, const exo_meter_sample *s)
{
    struct line *line = context;
    const char *inner = strncmp(s->path, "node_0.", 7) == 0 ? s->path + 7 : "";
    const exo_meter_class *c = s->meter_class;
    char figure[EXO_FIGURE], text[4 * EXO_METER_NAME];
    double value = c->kind == EXO_COUNTER ? (double)s->count : s->value;
    if (c->kind == EXO_HISTOGRAM || isnan(value) ||
        (strncmp(inner, "strategy.", 9) != 0 && strncmp(inner, "model.", 6) != 0))
        return;
    int length = snprintf(text, sizeof text, "%s%s %s", line->used ? ", " : "", inner,
                          exo_text_value(value, 4, figure));
    if (length < 0 || (size_t)length >= sizeof text || line->used + (size_t)length >= line->size)
        return;
    memcpy(line->out + line->used, text, (size_t)length + 1);
    line->used += (size_t)length;
}

void
exo_meter_line(const exo_meters *tree, char *out, size_t size)
{
    struct line line = {.out = out, .size = size};
    out[0] = '\0';
    exo_meters_walk(tree, add_to_line, &line, NULL);
}
