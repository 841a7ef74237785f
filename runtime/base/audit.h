/* The audit log: a record of each request in a cluster, with its sender and its outcome. One JSON
 * object a line; docs/security.md lists the keys.
 *
 * A thread that adds a record never waits for a disk: records enter a queue, and another thread
 * writes them. If the disk is full or hangs, or the file disappears, only records are lost. Lost
 * records are counted, and a record states their number as soon as one can be written.
 *
 * Rates are limited, so that no peer can fill the disk or hide an event behind a flood. Each key
 * may add 100 records of each kind of event at once, then one a second. All strangers together
 * count as one key. The processes of this host share a larger quota: 4,096 at once, then 16 a
 * second. Suppressed records are counted in records of their own.
 *
 * The file is a plain file with one name, readable by this user alone (0600), and locked: two
 * processes need two files. If another file, or none, has the name by then, the log opens or makes
 * that one. So renaming the file rotates the log.
 *
 * Threads: any. The log's lock stands alone: nothing else is locked under it. Read next:
 * audit_line.h, audit.c. */
#ifndef EXO_BASE_AUDIT_H
#define EXO_BASE_AUDIT_H

#include <exogym/clock.h>
#include <exogym/status.h>

#include "base/identity.h"

typedef struct exo_audit exo_audit;

typedef enum exo_audit_event {
    /* this process begins or ends */
    EXO_AUDIT_PROCESS,
    /* a connection has completed its handshake */
    EXO_AUDIT_ADMITTED,
    /* a connection was refused */
    EXO_AUDIT_REFUSED,
    /* a connection was ended because its key was removed or has changed its meaning */
    EXO_AUDIT_REVOKED,
    /* a connection was ended because its key has expired */
    EXO_AUDIT_EXPIRED,
    /* a key was added to the list of accepted keys, changed, or removed */
    EXO_AUDIT_KEY,
    /* a node registered, or left by itself */
    EXO_AUDIT_NODE,
    /* a job began or ended */
    EXO_AUDIT_JOB,
    /* a request to make an actor or a group of actors, or to claim a name */
    EXO_AUDIT_SPAWN,
    /* a request to end an actor */
    EXO_AUDIT_KILL,
    /* a request to end the cluster or a worker */
    EXO_AUDIT_STOP,
    /* a call that the caller may not make */
    EXO_AUDIT_DENIED,
    /* a request beyond a quota, or without room */
    EXO_AUDIT_QUOTA,
    EXO_AUDIT_EVENTS,
} exo_audit_event;

/* All texts may come from peers, unchecked, and may be NULL. */
typedef struct exo_audit_record {
    exo_audit_event event;
    /* the sender; NULL: this process, unless there is an address or a key */
    const exo_identity *who;
    /* of a sender without an identity */
    const char *name, *key, *address;
    const char *object, *method; /* the called object and its method */
    /* the subject: "NAMESPACE/NAME" of an actor, a job, a node, a key */
    const char *subject;
    const char *detail; /* the requested action */
    /* OK: allowed. DENIED: refused. Any other: allowed, but it failed */
    exo_status status;
    const char *reason; /* the reason of a status other than OK */
} exo_audit_record;

/* Opens the file, or makes it. clock (NULL: the machine's): the time for the limits of rates.
 * Errors: IO; INVAL: a link, no plain file, another user's file, one that others may read or write,
 * or one with other contents; EXISTS: another process has it; FAILED (no thread), NOMEM. */
exo_status exo_audit_open(exo_audit **out, const char *path, const exo_clock *clock, exo_err *err);
/* Adds a record. Never waits. NULL is allowed and costs nothing. */
void exo_audit_add(exo_audit *audit, const exo_audit_record *record);
/* Waits until all added records, and the counts of suppressed ones, are in the file. False: not
 * within 5 s. */
bool exo_audit_flush(exo_audit *audit);
/* Writes the remaining records, for at most 5 s, and closes the log. NULL is allowed. */
void exo_audit_close(exo_audit **audit);

#endif
