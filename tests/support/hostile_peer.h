/* A process that is admitted to a cluster and then overloads it. hostile_peer.c has the table of
 * the kinds of such processes. */
#ifndef EXO_TEST_HOSTILE_PEER_H
#define EXO_TEST_HOSTILE_PEER_H

#include <stddef.h>
#include <stdint.h>

/* A kind, and the memory, in MB above the normal use, that the quotas (docs/security.md) let it
 * take from head and worker. */
typedef struct hostile_kind {
    const char *name, *what;
    unsigned head_mb, worker_mb;
} hostile_kind;

/* Returns NULL after the last kind. */
const hostile_kind *hostile_kind_at(size_t index);

/* The addresses of the victims. */
typedef struct hostile_place {
    const char *head, *worker; /* endpoints */
    uint64_t actor; /* at the worker: a `victim` (tests/plugins/victim.c) for this process */
} hostile_place;

/* Behaves as that kind until standard input is closed; then prints a line of figures. Reconnects
 * whenever it is disconnected. Returns the process's exit status. */
int hostile_be(const char *kind, const hostile_place *place);

#endif
