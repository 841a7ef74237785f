/* The audit log: who asked for what in a cluster, and whether it was allowed. One JSON object a
 * line; docs/security.md has the keys.
 *
 * Whoever adds a record never waits for a disk: records go into a queue, and a thread writes them.
 * A disk that is full or hangs, or a file that goes away, costs records and nothing else: what had
 * no room is counted, and a record says how many there were as soon as one can be written.
 *
 * Nobody fills the disk at will, or hides something behind a flood: of each kind of event of each
 * key there are 100 records at once and then one a second; strangers are one, and so are the
 * processes of this host. What is left out is counted in a record of its own.
 *
 * The file is of this user alone (0600), a plain file with one name, and locked: two processes need
 * two. It is opened again when another file, or none, has its name: to rotate it, rename it.
 *
 * Threads: any. Its lock stands alone: nothing else is locked under it. */
#ifndef EXO_BASE_AUDIT_H
#define EXO_BASE_AUDIT_H

#include <exogym/clock.h>
#include <exogym/status.h>

#include "base/identity.h"

typedef struct exo_audit exo_audit;

typedef enum exo_audit_event {
    /* this process begins, or ends */
    EXO_AUDIT_PROCESS,
    /* a connection whose handshake has ended well */
    EXO_AUDIT_ADMITTED,
    /* a connection that was not let in */
    EXO_AUDIT_REFUSED,
    /* one that was ended, as its key was taken away or means something else */
    EXO_AUDIT_REVOKED,
    /* one that was ended, as its key has expired */
    EXO_AUDIT_EXPIRED,
    /* a key was added to the list of those that are let in, changed, or taken away */
    EXO_AUDIT_KEY,
    /* a node registered, or left of its own accord */
    EXO_AUDIT_NODE,
    /* a job began, or ended */
    EXO_AUDIT_JOB,
    /* an actor, or a group of them, is to be made; a name is claimed */
    EXO_AUDIT_SPAWN,
    /* an actor is to end */
    EXO_AUDIT_KILL,
    /* the cluster, or a worker, is to end */
    EXO_AUDIT_STOP,
    /* a call that the caller may not make */
    EXO_AUDIT_DENIED,
    /* one that is beyond a quota, or for which there is no room */
    EXO_AUDIT_QUOTA,
    EXO_AUDIT_EVENTS,
} exo_audit_event;

/* All texts are anybody's, and may be NULL. */
typedef struct exo_audit_record {
    exo_audit_event event;
    const exo_identity *who;          /* NULL: this process, unless there is an address or a key  */
    const char *name, *key, *address; /* of somebody without an identity                          */
    const char *object, *method;      /* that was called                                          */
    /* that it was about: "NAMESPACE/NAME" of an actor, a job, a node, a key */
    const char *subject;
    const char *detail; /* what was asked for                                       */
    /* OK: it was allowed. DENIED: it was not. Else it was, and failed */
    exo_status status;
    const char *reason; /* of a status other than OK                                */
} exo_audit_record;

/* Opens the file, which is made if it is not there. `clock` (NULL: the machine's) is for the rate.
 * Errors: IO; INVAL: a link, no plain file, something else than an audit log, somebody else's, or
 * one that others may read or write; EXISTS: another process has it; FAILED (no thread), NOMEM. */
exo_status exo_audit_open(exo_audit **out, const char *path, const exo_clock *clock, exo_err *err);
/* Never waits. NULL is fine, and costs nothing. */
void exo_audit_add(exo_audit *audit, const exo_audit_record *record);
/* Waits until all that was added is in the file, and says what was left out until now; false: it
 * was not to be had within 5 s. */
bool exo_audit_flush(exo_audit *audit);
/* Writes what it can within 5 s; NULL is fine. */
void exo_audit_close(exo_audit **audit);

#endif
