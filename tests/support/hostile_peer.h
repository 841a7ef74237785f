/* A process that was let into a cluster and keeps to no measure. There is a table of the kinds of
 * such processes: see hostile_peer.c. */
#ifndef EXO_TEST_HOSTILE_PEER_H
#define EXO_TEST_HOSTILE_PEER_H

#include <stddef.h>
#include <stdint.h>

/* A kind, and what others may have to give for it by the quotas (docs/security.md): MB of memory
 * more than before. */
typedef struct hostile_kind {
    const char *name, *what;
    unsigned head_mb, worker_mb;
} hostile_kind;

/* NULL: there is none of that index. */
const hostile_kind *hostile_kind_at(size_t index);

/* Where its victims are. */
typedef struct hostile_place {
    const char *head, *worker; /* endpoints */
    uint64_t actor;            /* at the worker: a `victim` (tests/plugins/victim.c) of its own */
} hostile_place;

/* Is of that kind until the process that started this one lets go of its standard input. Then it
 * prints a line of figures. Whenever it is thrown out, it comes back. Gives the process's
 * status. */
int hostile_be(const char *kind, const hostile_place *place);

#endif
