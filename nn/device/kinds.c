/* Opens and closes devices by the name of their kind. State: the registry, which does not change
 * after the start. Read next: array.c. */
#include "nn/device/kinds.h"

#include <string.h>

#include "nn/device/joint.h"

exo_registry exo_device_registry = EXO_REGISTRY("device");

/* The kind of a name, and the number at its end. Errors: those of exo_device_check. */
static exo_status
find_kind(const char *name, const exo_device_kind **out, const char **which, exo_err *err)
{
    char kind[32];
    const char *colon = strchr(name, ':');
    const size_t length = colon ? (size_t)(colon - name) : strlen(name);
    *which = colon ? colon + 1 : NULL;
    if (length >= sizeof kind)
        return exo_registry_unknown(&exo_device_registry, name, err);
    memcpy(kind, name, length);
    kind[length] = '\0';
    *out = exo_registry_find(&exo_device_registry, kind);
    if (!*out)
        return exo_registry_unknown(&exo_device_registry, kind, err);
    if (colon && !(*out)->numbered)
        return exo_fail(err, EXO_NOT_FOUND, "device '%s': devices of the kind %s have no numbers",
                        name, kind);
    const size_t digits = colon ? strspn(colon + 1, "0123456789") : 1;
    if (digits < 1 || digits > 4 || (colon && colon[1 + digits]))
        return exo_fail(err, EXO_NOT_FOUND,
                        "device '%s': expected a number from 0 behind %s:", name, kind);
    return EXO_OK;
}

exo_status
exo_device_check(const char *name, exo_err *err)
{
    const exo_device_kind *kind = NULL;
    const char *which = NULL;
    return find_kind(name, &kind, &which, err);
}

exo_status
exo_device_open_place(exo_device **out, const char *name, uint32_t place, exo_err *err)
{
    const exo_device_kind *kind = NULL;
    const char *which = NULL;
    exo_status st = find_kind(name, &kind, &which, err);
    return st == EXO_OK ? kind->open(out, which, place, err) : st;
}

exo_status
exo_device_open(exo_device **out, const char *name, exo_err *err)
{
    return exo_device_open_place(out, name, 0, err);
}

/* A device is named after its kind. */
void
exo_device_close(exo_device **device)
{
    const exo_device_kind *kind =
        *device ? exo_registry_find(&exo_device_registry, exo_device_name(*device)) : NULL;
    if (kind && kind->close)
        kind->close(*device);
    *device = NULL;
    exo_joint_sweep(); /* its work with memory that others hold is done */
}
