/* Meters on the screen: see meter_table.h. */
#include "programs/meter_table.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/printable.h"
#include "programs/text.h"
#include "report/meter_json.h"

/* Of all nodes that have it; the texts are the report's. */
struct row {
    const char *path; /* without the node */
    exo_meter_class meter_class;
    double sum, least, most;
    uint64_t observations;
    size_t nodes; /* 0: it is the run's */
};

struct meter_table {
    struct row rows[EXO_METER_ROWS];
    size_t num, more;
    int width;
};

/* "node_12.strategy.rounds": what comes after the node; NULL: it is no node's. */
static const char *
after_node(const char *path)
{
    if (strncmp(path, "node_", 5) != 0 || !isdigit((unsigned char)path[5]))
        return NULL;
    path += 5;
    while (isdigit((unsigned char)*path))
        path++;
    return *path == '.' ? path + 1 : NULL;
}

static bool
is_said_elsewhere(const char *path)
{
    return strcmp(path, "step") == 0 || strcmp(path, "train.loss") == 0 || strncmp(path, "communication.", 14) == 0;
}

static struct row *
row_of(struct meter_table *t, const char *path, bool of_node, const exo_meter_class *c)
{
    for (size_t i = 0; i < t->num; i++)
        if ((t->rows[i].nodes > 0) == of_node && strcmp(t->rows[i].path, path) == 0)
            return &t->rows[i];
    if (t->num == EXO_METER_ROWS) {
        t->more++;
        return NULL;
    }
    struct row *row = &t->rows[t->num++];
    *row = (struct row){.path = path, .meter_class = *c, .least = INFINITY, .most = -INFINITY};
    if ((int)strlen(path) > t->width)
        t->width = (int)strlen(path);
    return row;
}

static void
add_meter(struct meter_table *t, const char *path, const json_t *json)
{
    exo_meter_class c;
    exo_meter_sample s;
    double bounds[EXO_METER_BOUNDS];
    const char *inner = after_node(path);
    const char *name = inner ? inner : path;
    if (is_said_elsewhere(name) || !exo_meter_of_json(path, json, &c, bounds, &s))
        return;
    if (c.kind == EXO_GAUGE && isnan(s.value))
        return;
    struct row *row = row_of(t, name, inner != NULL, &c);
    if (!row || row->meter_class.kind != c.kind)
        return;
    double value = c.kind == EXO_COUNTER ? (double)s.count : s.value;
    row->nodes += inner != NULL;
    row->observations += s.count;
    row->sum += value;
    row->least = value < row->least ? value : row->least;
    row->most = value > row->most ? value : row->most;
}

static void
print_value(FILE *out, const struct row *row)
{
    char least[EXO_FIGURE], most[EXO_FIGURE];
    const exo_meter_class *c = &row->meter_class;
    char unit[4 * EXO_METER_UNIT] = "";
    if (strcmp(c->unit, "1") != 0)
        exo_printable(unit, sizeof unit, c->unit, EXO_SHOWN_LINE);
    const char *space = unit[0] ? " " : "";
    if (c->kind == EXO_HISTOGRAM)
        fprintf(out, "%s observations, mean %s%s%s", exo_text_count(row->observations, least),
                exo_text_value(row->observations ? row->sum / (double)row->observations : (double)NAN, 6, most), space,
                unit);
    else if (row->least < row->most)
        fprintf(out, "%s to %s%s%s", exo_text_value(row->least, 6, least), exo_text_value(row->most, 6, most), space,
                unit);
    else
        fprintf(out, "%s%s%s", exo_text_value(row->least, 6, least), space, unit);
    if (row->nodes > 1)
        fprintf(out, "%s",
                c->kind == EXO_HISTOGRAM ? ", all nodes"
                : row->least < row->most ? ", by node"
                                         : ", each node");
}

void
exo_meter_table_print(FILE *out, const json_t *meters)
{
    const char *path;
    json_t *json;
    struct meter_table *t = exo_calloc(1, sizeof *t);
    if (!t)
        return;
    json_object_foreach((json_t *)(uintptr_t)meters, path, json) add_meter(t, path, json);
    for (size_t i = 0; i < t->num; i++) {
        char name[256], help[2 * EXO_METER_HELP];
        exo_printable(name, sizeof name, t->rows[i].path, EXO_SHOWN_LINE);
        exo_printable(help, sizeof help, t->rows[i].meter_class.help, EXO_SHOWN_LINE);
        fprintf(out, "  %-*s  ", t->width < 40 ? t->width : 40, name);
        print_value(out, &t->rows[i]);
        fprintf(out, "  (%s)\n", help);
    }
    if (t->more)
        fprintf(out, "  and %zu meters more: status --json has them all\n", t->more);
    exo_free(t);
}

/* --- A line --------------------------------------------------------------------------------------------------------------------- */

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
    int length =
        snprintf(text, sizeof text, "%s%s %s", line->used ? ", " : "", inner, exo_text_value(value, 4, figure));
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
