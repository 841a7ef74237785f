/* Grants: the rights of a key's holder, as lines of its .key file. auth.h has the contracts. No
 * state. Read next: allow_list.c. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "net/auth.h"

const char *
exo_access_name(exo_access role)
{
    switch (role) {
    case EXO_ACCESS_OBSERVER:
        return "observer";
    case EXO_ACCESS_DRIVER:
        return "driver";
    case EXO_ACCESS_WORKER:
        return "worker";
    case EXO_ACCESS_ADMIN:
        return "admin";
    case EXO_ACCESS_NONE:
        break;
    }
    return "none";
}

exo_access
exo_access_of_name(const char *name)
{
    static const exo_access all[] = {EXO_ACCESS_OBSERVER, EXO_ACCESS_DRIVER, EXO_ACCESS_WORKER,
                                     EXO_ACCESS_ADMIN};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(name, exo_access_name(all[i])) == 0)
            return all[i];
    return EXO_ACCESS_NONE;
}

bool
exo_grant_read_date(const char *text, int64_t *out)
{
    static const char *const forms[] = {"%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct tm at = {0};
        const char *end = strptime(text, forms[i], &at);
        time_t when = end && !*end ? timegm(&at) : 0;
        if (when > 0) {
            *out = (int64_t)when;
            return true;
        }
    }
    return false;
}

void
exo_grant_write_date(int64_t date, char out[EXO_GRANT_DATE])
{
    time_t when = (time_t)date;
    struct tm at = {0};
    out[0] = 0;
    if (gmtime_r(&when, &at))
        strftime(out, EXO_GRANT_DATE, "%Y-%m-%dT%H:%M:%SZ", &at);
}

exo_status
exo_grant_read_line(exo_grant *grant, const char *where, const char *word, const char *value,
                    exo_err *err)
{
    if (strcmp(word, "role") == 0) {
        if (grant->role)
            return exo_fail(err, EXO_INVAL, "%s: a second role", where);
        grant->role = exo_access_of_name(value);
        return grant->role
                   ? EXO_OK
                   : exo_fail(err, EXO_INVAL,
                              "%s: there is no such role: expected " EXO_ACCESS_NAMES, where);
    }
    if (strcmp(word, "expires") == 0) {
        if (grant->expires)
            return exo_fail(err, EXO_INVAL, "%s: a second date of expiry", where);
        return exo_grant_read_date(value, &grant->expires)
                   ? EXO_OK
                   : exo_fail(err, EXO_INVAL,
                              "%s: expected a date as 2030-01-31 or 2030-01-31T12:00:00Z (UTC)",
                              where);
    }
    if (strcmp(word, "namespace") == 0) {
        if (grant->space[0])
            return exo_fail(err, EXO_INVAL, "%s: a second namespace", where);
        if (!exo_key_name_is_valid(value) || strcmp(value, "exogym") == 0)
            return exo_fail(err, EXO_INVAL, "%s: that cannot be a key's namespace", where);
        snprintf(grant->space, sizeof grant->space, "%s", value);
        return EXO_OK;
    }
    return EXO_NOT_FOUND;
}

exo_status
exo_grant_check(exo_grant *grant, const char *path, exo_err *err)
{
    if (!grant->role)
        return exo_fail(err, EXO_INVAL,
                        "%s: says not what its holder may do: add a line `role ROLE`, where ROLE "
                        "is " EXO_ACCESS_NAMES,
                        path);
    if (grant->space[0] && grant->role != EXO_ACCESS_DRIVER)
        return exo_fail(err, EXO_INVAL, "%s: a namespace is for drivers, and its role is %s", path,
                        exo_access_name(grant->role));
    if (grant->role == EXO_ACCESS_DRIVER && !grant->space[0])
        snprintf(grant->space, sizeof grant->space, "default");
    return EXO_OK;
}
