/* The ledger of a run's trainers: the files learned_TRAINER.csv and versions_TRAINER.csv
 * (experience/learned.h), checked as a whole. No state. */
#ifndef EXO_PROGRAMS_EXPLAIN_LEDGER_H
#define EXO_PROGRAMS_EXPLAIN_LEDGER_H

#include <stdint.h>

#include <exogym/status.h>

typedef struct exo_ledger_of_items {
    uint64_t items, trainers;
    uint64_t versions; /* the last one; 0: nothing was learned */
    uint64_t missing;  /* items below the greatest one that no trainer has learned from */
} exo_ledger_of_items;

/* Reads the files in `folder`. Errors: FAILED: an item was learned from more than once, or the
 * versions of a trainer are not 0, 1, 2, ...; it is named. NOT_FOUND: there are no such files;
 * DAMAGED, IO, NOMEM. */
exo_status exo_ledger_of_items_check(exo_ledger_of_items *out, const char *folder, exo_err *err);

/* Fails with NOT_FOUND: the folder has no such files. */
exo_status exo_ledger_of_items_none(const char *folder, exo_err *err);

#endif
