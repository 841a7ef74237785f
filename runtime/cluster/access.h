/* Permissions: one table of roles by methods, in access.c. It is consulted for each call from
 * another process, with the identity that the connection's handshake has proven (identity.h).
 * docs/security.md shows it. A method that is not in the table is forbidden to all. */
#ifndef EXO_CLUSTER_ACCESS_H
#define EXO_CLUSTER_ACCESS_H

#include <exogym/actor.h>

#include "base/identity.h"

typedef enum exo_right {
    EXO_RIGHT_NO,
    /* only about the caller's own node; head_identity.c checks this for every role */
    EXO_RIGHT_SELF,
    /* of a driver: only in its namespace, or only its own actors; the table says which */
    EXO_RIGHT_OWN,
    EXO_RIGHT_YES,
} exo_right;

typedef struct exo_access_row {
    /* "head" or "worker": an actor of the cluster; "process"; "actor": any other actor */
    const char *object;
    /* "*": every method of the actor's class */
    const char *method;
    exo_right observer, driver, worker, admin;
} exo_access_row;

/* Row `index` of the table; NULL: there are no more. */
const exo_access_row *exo_access_row_at(size_t index);
/* The role's right to a method; NO: it has none, or the method is not in the table. */
exo_right exo_access_right(const char *object, const char *method, exo_access role);
/* DENIED: the role has no right to the method. *right becomes the role's right. */
exo_status exo_access_check(const exo_identity *who, const char *object, const char *method,
                            exo_right *right, exo_err *err);
/* DENIED: the class, or its method, excludes the caller's role (exo_callers, actor.h). The table is
 * not consulted here; the caller does that first. */
exo_status exo_access_check_class(const exo_identity *who, const exo_actor_class *actor_class,
                                  const char *method, exo_err *err);

#endif
