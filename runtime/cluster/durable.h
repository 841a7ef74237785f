/* The state that a head leaves to the next one: actors, with their specs, and jobs. It is an SQLite
 * file. Other programs can read it only while no head has it open.
 *
 * Owner: the head's lane. A change is written to the file when the function returns. It survives
 * the end of the process; the end of the machine may lose the latest changes. */
#ifndef EXO_CLUSTER_DURABLE_H
#define EXO_CLUSTER_DURABLE_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

typedef struct exo_durable exo_durable;

/* An actor or a job: texts for people, and packed messages. */
typedef struct exo_durable_row {
    const char *table; /* "actors" or "jobs" */
    uint64_t key;
    const char *name, *state, *detail;
    const void *info; /* a packed Actor or Job */
    size_t info_size;
    const void *spec; /* a packed Spawn, or NULL */
    size_t spec_size;
} exo_durable_row;

/* Opens or makes the file. IO: it cannot be opened or written, belongs to another program, or is
 * open in another head. NOMEM. */
exo_status exo_durable_open(exo_durable **out, const char *path, exo_err *err);
void exo_durable_close(exo_durable **durable);
/* Writes a row; it replaces the one with its key. IO. */
exo_status exo_durable_put(exo_durable *durable, const exo_durable_row *row, exo_err *err);
/* Removes the row with that key, if there is one. IO. */
exo_status exo_durable_remove(exo_durable *durable, const char *table, uint64_t key, exo_err *err);
/* Changes between a begin and its commit are written together, as one change. Pairs may be nested.
 * NULL is allowed. IO, of the outermost commit: not all of the changes were written. */
void exo_durable_begin(exo_durable *durable);
exo_status exo_durable_commit(exo_durable *durable, exo_err *err);
/* Instead of the outermost commit: undoes the changes. */
void exo_durable_cancel(exo_durable *durable);
/* Removes all rows, between a begin and its commit. IO. */
exo_status exo_durable_clear(exo_durable *durable, exo_err *err);
/* Calls `visit` with every row of a table, in the order of keys. The row is valid during the
 * call. */
exo_status exo_durable_each(exo_durable *durable, const char *table,
                            void (*visit)(void *context, const exo_durable_row *row), void *context,
                            exo_err *err);

#endif
