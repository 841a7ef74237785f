/* Who may call what: one table of roles by methods, access.c. It is asked for each call that comes
 * from another process, with the identity that the connection's handshake has proven (identity.h);
 * docs/security.md shows it. A method that it does not name is nobody's. */
#ifndef EXO_CLUSTER_ACCESS_H
#define EXO_CLUSTER_ACCESS_H

#include <exogym/actor.h>

#include "base/identity.h"

typedef enum exo_right {
    EXO_RIGHT_NO,
    /* of the node that the caller is: head_identity.c sees to it, whatever the role */
    EXO_RIGHT_SELF,
    EXO_RIGHT_OWN, /* of a driver: what is in its namespace, or its own; see the table               */
    EXO_RIGHT_YES,
} exo_right;

typedef struct exo_access_row {
    /* "head", "worker": the actors of the cluster; "process"; "actor": any other actor */
    const char *object;
    const char *
        method; /* "*": every method of the actor's class                                          */
    exo_right observer, driver, worker, admin;
} exo_access_row;

/* The row `index`; NULL: there are no more. */
const exo_access_row *exo_access_row_at(size_t index);
exo_right exo_access_right(const char *object, const char *method, exo_access role);
/* DENIED unless the role has any right to it. */
exo_status exo_access_check(const exo_identity *who, const char *object, const char *method,
                            exo_right *right, exo_err *err);
/* DENIED if the class, or its method, is not for the caller's role (exo_callers, actor.h). It asks
 * nothing else: the table comes first. */
exo_status exo_access_check_class(const exo_identity *who, const exo_actor_class *actor_class,
                                  const char *method, exo_err *err);

#endif
