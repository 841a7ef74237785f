/* The ledger of a run: what each actor sent over each edge, and the sums. docs/graph.md explains
 * the columns.
 *
 * Owner: the caller, one thread at a time. */
#ifndef EXO_REPORT_LEDGER_H
#define EXO_REPORT_LEDGER_H

#include <stddef.h>
#include <stdio.h>

#include <exogym/status.h>

#include "base/traffic.h"

typedef struct exo_ledger_row {
    char *edge, *actor, *host;
    exo_traffic traffic;
} exo_ledger_row;

/* A zeroed ledger is empty. exo_ledger_release frees what it holds. */
typedef struct exo_ledger {
    exo_ledger_row *rows;
    size_t length, room;
} exo_ledger;

/* Adds `traffic` to the row of (edge, actor), or makes the row if there is none. Copies the texts.
 * Errors: NOMEM. */
exo_status exo_ledger_add(exo_ledger *ledger, const char *edge, const char *actor, const char *host,
                          const exo_traffic *traffic, exo_err *err);
void exo_ledger_release(exo_ledger *ledger);
/* Sums the rows of one edge, or of all edges if `edge` is NULL. */
exo_traffic exo_ledger_sum(const exo_ledger *ledger, const char *edge);
/* Calls `edge` once for each edge with its sum. The order is that of each edge's first row. */
void exo_ledger_each(const exo_ledger *ledger,
                     void (*edge)(void *context, const char *name, const exo_traffic *sum),
                     void *context);

/* Prints a table of the edges' sums, for people. An empty ledger prints nothing. */
void exo_ledger_print(FILE *out, const exo_ledger *ledger);
/* Writes the ledger as CSV. The columns are edge, actor, host, messages, items, payload_bytes,
 * encoded_bytes, wire_bytes, drops, send_blocked_s and recv_blocked_s. The file is replaced
 * atomically. Errors: NOMEM, IO. */
exo_status exo_ledger_write(const exo_ledger *ledger, const char *path, exo_err *err);

#endif
