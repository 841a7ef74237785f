/* What a head remembers when it is gone: actors that it made, with what is needed to make them
 * again, and jobs. An SQLite file, which may be looked into while the head runs.
 *
 * Owner: the head's lane. Every change is on its way to the file when the function returns: it
 * survives the end of the process, and of the machine but for its last moments. */
#ifndef EXO_CLUSTER_DURABLE_H
#define EXO_CLUSTER_DURABLE_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

typedef struct exo_durable exo_durable;

/* An actor or a job: texts to look at, and the packed message. */
typedef struct exo_durable_row {
    const char *table; /* "actors" or "jobs"      */
    uint64_t key;
    const char *name, *state, *detail;
    const void *info; /* packed Actor or Job     */
    size_t info_size;
    const void *spec; /* packed Spawn, or NULL    */
    size_t spec_size;
} exo_durable_row;

/* Opens or makes the file. IO: it cannot be, is no such file, or another head uses it. */
exo_status exo_durable_open(exo_durable **out, const char *path, exo_err *err);
void exo_durable_close(exo_durable **durable);
exo_status exo_durable_put(exo_durable *durable, const exo_durable_row *row, exo_err *err);
exo_status exo_durable_remove(exo_durable *durable, const char *table, uint64_t key, exo_err *err);
/* What is put and removed in between goes to the file together, when all of it is there: one change
 * instead of many. Pairs may be nested. NULL is fine. A failure is told by the log of the next
 * change. */
void exo_durable_begin(exo_durable *durable);
void exo_durable_commit(exo_durable *durable);
/* Calls `visit` with every row of a table, in the order of the keys. The row is valid inside. */
exo_status exo_durable_each(exo_durable *durable, const char *table,
                            void (*visit)(void *context, const exo_durable_row *row), void *context,
                            exo_err *err);

#endif
