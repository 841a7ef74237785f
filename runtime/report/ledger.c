/* The ledger: see ledger.h. No state of its own. */
#include "report/ledger.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/c_locale.h"
#include "base/figures.h"
#include "base/file.h"

static exo_ledger_row *
find_row(const exo_ledger *ledger, const char *edge, const char *actor)
{
    for (size_t i = 0; i < ledger->length; i++)
        if (strcmp(ledger->rows[i].edge, edge) == 0 && strcmp(ledger->rows[i].actor, actor) == 0)
            return &ledger->rows[i];
    return NULL;
}

static void
release_row(exo_ledger_row *row)
{
    exo_free(row->edge);
    exo_free(row->actor);
    exo_free(row->host);
}

exo_status
exo_ledger_add(exo_ledger *ledger, const char *edge, const char *actor, const char *host,
               const exo_traffic *traffic, exo_err *err)
{
    exo_ledger_row *row = find_row(ledger, edge, actor);
    if (row) {
        exo_traffic_add(&row->traffic, traffic);
        return EXO_OK;
    }
    if (ledger->length == ledger->room) {
        size_t room = ledger->room ? ledger->room * 2 : 16;
        exo_ledger_row *rows = exo_realloc(ledger->rows, room, sizeof *rows);
        if (!rows)
            return exo_fail(err, EXO_NOMEM, "no memory for the ledger");
        ledger->rows = rows;
        ledger->room = room;
    }
    row = &ledger->rows[ledger->length];
    *row = (exo_ledger_row){.edge = exo_strdup(edge),
                            .actor = exo_strdup(actor),
                            .host = exo_strdup(host),
                            .traffic = *traffic};
    if (!row->edge || !row->actor || !row->host) {
        release_row(row);
        return exo_fail(err, EXO_NOMEM, "no memory for the ledger");
    }
    ledger->length++;
    return EXO_OK;
}

void
exo_ledger_release(exo_ledger *ledger)
{
    for (size_t i = 0; i < ledger->length; i++)
        release_row(&ledger->rows[i]);
    exo_free(ledger->rows);
    *ledger = (exo_ledger){0};
}

exo_traffic
exo_ledger_sum(const exo_ledger *ledger, const char *edge)
{
    exo_traffic sum = {0};
    for (size_t i = 0; i < ledger->length; i++)
        if (!edge || strcmp(ledger->rows[i].edge, edge) == 0)
            exo_traffic_add(&sum, &ledger->rows[i].traffic);
    return sum;
}

void
exo_ledger_each(const exo_ledger *ledger,
                void (*edge)(void *context, const char *name, const exo_traffic *sum),
                void *context)
{
    for (size_t i = 0; i < ledger->length; i++) {
        bool first = true; /* the search runs backwards: rows of one edge lie side by side */
        for (size_t k = i; first && k-- > 0;)
            first = strcmp(ledger->rows[k].edge, ledger->rows[i].edge) != 0;
        if (!first)
            continue;
        exo_traffic sum = exo_ledger_sum(ledger, ledger->rows[i].edge);
        edge(context, ledger->rows[i].edge, &sum);
    }
}

/* --- The table -------------------------------------------------------------------------------- */

struct table {
    FILE *out;
    int width;
};

static void
measure(void *context, const char *name, const exo_traffic *sum)
{
    struct table *t = context;
    (void)sum;
    t->width = (int)strlen(name) > t->width ? (int)strlen(name) : t->width;
}

static void
print_edge(void *context, const char *name, const exo_traffic *sum)
{
    const struct table *t = context;
    char payload[EXO_FIGURE], encoded[EXO_FIGURE], wire[EXO_FIGURE];
    exo_c_fprintf(t->out,
                  "%-*s  %10" PRIu64 "  %10" PRIu64 "  %10s  %10s  %10s  %7" PRIu64
                  "  %9.2f  %9.2f\n",
                  t->width, name, sum->messages, sum->items,
                  exo_text_bytes((double)sum->payload_bytes, payload),
                  exo_text_bytes((double)sum->encoded_bytes, encoded),
                  exo_text_bytes((double)sum->wire_bytes, wire), sum->drops,
                  (double)sum->send_blocked * 1e-9, (double)sum->recv_blocked * 1e-9);
}

void
exo_ledger_print(FILE *out, const exo_ledger *ledger)
{
    struct table t = {.out = out, .width = 4};
    if (ledger->length == 0)
        return;
    exo_ledger_each(ledger, measure, &t);
    fprintf(out, "%-*s  %10s  %10s  %10s  %10s  %10s  %7s  %9s  %9s\n", t.width, "edge", "messages",
            "items", "payload", "encoded", "wire", "drops", "send wait", "recv wait");
    exo_ledger_each(ledger, print_edge, &t);
}

/* --- CSV -------------------------------------------------------------------------------------- */

exo_status
exo_ledger_write(const exo_ledger *ledger, const char *path, exo_err *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return exo_fail(err, EXO_NOMEM, "no memory for the ledger");
    fprintf(out, "edge,actor,host");
    for (size_t c = 0; c < EXO_TRAFFIC_COLUMNS; c++)
        fprintf(out, ",%s%s", exo_traffic_columns[c].name, exo_traffic_is_time(c) ? "_s" : "");
    fputc('\n', out);
    for (size_t i = 0; i < ledger->length; i++) {
        const exo_ledger_row *row = &ledger->rows[i];
        fprintf(out, "%s,%s,%s", row->edge, row->actor, row->host);
        for (size_t c = 0; c < EXO_TRAFFIC_COLUMNS; c++) {
            uint64_t value = exo_traffic_get(&row->traffic, c);
            if (exo_traffic_is_time(c))
                exo_c_fprintf(out, ",%.6f", (double)(int64_t)value * 1e-9);
            else
                fprintf(out, ",%" PRIu64, value);
        }
        fputc('\n', out);
    }
    exo_status st = fclose(out) == 0 ? exo_file_write_atomic(path, text, size, err)
                                     : exo_fail(err, EXO_NOMEM, "no memory for the ledger");
    (free)(text); /* open_memstream allocates with malloc */
    return st;
}
