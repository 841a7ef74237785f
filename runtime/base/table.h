/* Tables of an actor in the folder of a run: CSV that grows by lines. A table belongs to one life of
 * its actor. The next life begins a file of its own under the same name, with the lines that count; what
 * an earlier life still writes, whose process was stopped and is taken for dead, goes to a file without
 * a name. Before it writes other files such a life asks exo_table_check whether the name is still its
 * own.
 *
 * Owner: the caller, one thread at a time. */
#ifndef EXO_BASE_TABLE_H
#define EXO_BASE_TABLE_H

#include <stdint.h>
#include <stdio.h>

#include <exogym/status.h>

typedef struct exo_table {
    FILE *stream; /* NULL: there is no table */
    char *path;
} exo_table;

/* Opens a table, and takes its name over: with its first `length` bytes, or, if that is 0, with a line of
 * columns. The caller closes it. DAMAGED: the file is shorter; NOT_FOUND, IO, NOMEM, after which the
 * file is as it was. */
exo_status exo_table_open(exo_table *table, const char *path, const char *columns, uint64_t length,
                          exo_err *err);
/* Accepts one that is closed, or zeroed. */
void exo_table_close(exo_table *table);
/* Hands lines that were printed to the system. IO. */
exo_status exo_table_push(exo_table *table, exo_err *err);
/* Writes all lines to the disk. *length: of the file; 0 without a table. IO. */
exo_status exo_table_flush(exo_table *table, uint64_t *length, exo_err *err);
/* FAILED: another life has taken the name over. */
exo_status exo_table_check(const exo_table *table, exo_err *err);

#endif
