/* The table of roles by methods, the only place that defines a role's rights: see access.h. */
#include "cluster/access.h"

#include <string.h>

#include "cluster/remote.h"

#define NO   EXO_RIGHT_NO
#define SELF EXO_RIGHT_SELF
#define OWN  EXO_RIGHT_OWN
#define YES  EXO_RIGHT_YES

static const exo_access_row rows[] = {
    /* object     method      observer driver worker admin */
    {"head", "register", NO, SELF, SELF, SELF}, /* each as itself */
    {"head", "gone", NO, SELF, SELF, SELF},
    {"head", "died", NO, SELF, SELF, SELF},
    {"head", "claim", NO, OWN, SELF, SELF}, /* in its namespace */
    {"head", "log", NO, NO, SELF, SELF},
    {"head", "report", NO, SELF, NO, SELF},
    {"head", "holds", NO, SELF, SELF, SELF},
    {"head", "epitaph", NO, NO, SELF, SELF}, /* as its watcher */
    /* in its namespace, for its job, with plugins of --plugin-dir */
    {"head", "spawn", NO, OWN, NO, YES},
    {"head", "find", YES, OWN, YES, YES}, /* in its namespace */
    {"head", "node", YES, YES, YES, YES},
    {"head", "list", YES, OWN, NO, YES},   /* the actors of its namespace */
    {"head", "why", YES, OWN, NO, YES},    /* in its namespace */
    {"head", "give_up", NO, OWN, NO, YES}, /* its own actors */
    {"head", "logs", YES, NO, NO, YES},
    {"head", "end", NO, NO, NO, YES},
    {"head", "started", NO, NO, NO, NO},
    {"head", "go_on", NO, NO, NO, NO},
    {"head", "tick", NO, NO, NO, NO},
    {"worker", "spawn", NO, NO, NO, YES}, /* the head's role is admin */
    {"worker", "kill", NO, NO, NO, YES},
    {"worker", "end", NO, NO, NO, YES},
    {"process", EXO_REMOTE_FETCH, NO, YES, YES, YES}, /* any holder of an object's handle */
    {"process", EXO_REMOTE_DEATHS, YES, YES, YES, YES},
    /* the reply contains handles, which do not help an observer: it may not fetch */
    {"process", EXO_REMOTE_OBJECTS, YES, NO, NO, YES},
    {"actor", "ping", YES, OWN, YES, YES}, /* in its namespace, like all methods of the class */
    {"actor", "dump", YES, OWN, YES, YES},
    {"actor", "$methods", YES, OWN, YES, YES},
    {"actor", "$monitor", NO, OWN, YES, YES},
    /* a driver: actors that it made. A worker: its actors may be linked to others */
    {"actor", "stop", NO, OWN, YES, YES},
    {"actor", "$stop", NO, OWN, YES, YES},
    {"actor", "$drain", NO, OWN, YES, YES},
    {"actor", "$kill", NO, OWN, YES, YES},
    {"actor", "*", NO, OWN, YES, YES},
};

const exo_access_row *
exo_access_row_at(size_t index)
{
    return index < sizeof rows / sizeof *rows ? &rows[index] : NULL;
}

exo_right
exo_access_right(const char *object, const char *method, exo_access role)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const exo_access_row *r = &rows[i];
        if (strcmp(r->object, object) != 0 || strcmp(r->method, method) != 0)
            continue;
        switch (role) {
        case EXO_ACCESS_OBSERVER:
            return r->observer;
        case EXO_ACCESS_DRIVER:
            return r->driver;
        case EXO_ACCESS_WORKER:
            return r->worker;
        case EXO_ACCESS_ADMIN:
            return r->admin;
        case EXO_ACCESS_NONE:
            return NO;
        }
    }
    return NO;
}

static const char *
role_name(exo_access role)
{
    return role == EXO_ACCESS_OBSERVER ? "observer"
           : role == EXO_ACCESS_DRIVER ? "driver"
           : role == EXO_ACCESS_WORKER ? "worker"
           : role == EXO_ACCESS_ADMIN  ? "admin"
                                       : "none";
}

exo_status
exo_access_check(const exo_identity *who, const char *object, const char *method, exo_right *right,
                 exo_err *err)
{
    char name[128];
    *right = exo_access_right(object, method, who->role);
    if (*right != NO)
        return EXO_OK;
    exo_identity_describe(who, name, sizeof name);
    return exo_fail(err, EXO_DENIED, "%s, whose role is %s, may not call `%.60s` of %s%s", name,
                    role_name(who->role), method, strcmp(object, "actor") == 0 ? "an " : "the ",
                    object);
}

/* exo_callers and exo_access use the same bits. */
static bool
narrows(unsigned callers, exo_access role)
{
    return callers != 0 && !(callers & (unsigned)role);
}

exo_status
exo_access_check_class(const exo_identity *who, const exo_actor_class *actor_class,
                       const char *method, exo_err *err)
{
    char name[128];
    _Static_assert((int)EXO_CALLERS_DRIVERS == (int)EXO_ACCESS_DRIVER &&
                       (int)EXO_CALLERS_WORKERS == (int)EXO_ACCESS_WORKER &&
                       (int)EXO_CALLERS_ADMINS == (int)EXO_ACCESS_ADMIN,
                   "roles are the same bits everywhere");
    if (who->role == EXO_ACCESS_ADMIN)
        return EXO_OK;
    bool refused = narrows(actor_class->callers, who->role);
    for (size_t i = 0; i < actor_class->num_methods && !refused; i++)
        if (strcmp(actor_class->methods[i].name, method) == 0)
            refused = narrows(actor_class->methods[i].callers, who->role);
    if (!refused)
        return EXO_OK;
    exo_identity_describe(who, name, sizeof name);
    return exo_fail(
        err, EXO_DENIED,
        "%s, whose role is %s, may not call `%.60s` of the class '%.60s': the class says who may",
        name, role_name(who->role), method, actor_class->name);
}
