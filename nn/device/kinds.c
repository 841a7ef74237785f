/* Opens and closes devices by the name of their kind. State: the registry, which does not change
 * after the start. Read next: array.c. */
#include "nn/device/kinds.h"

exo_registry exo_device_registry = EXO_REGISTRY("device");

exo_status
exo_device_check(const char *name, exo_err *err)
{
    return exo_registry_find(&exo_device_registry, name)
               ? EXO_OK
               : exo_registry_unknown(&exo_device_registry, name, err);
}

exo_status
exo_device_open(exo_device **out, const char *name, exo_err *err)
{
    const exo_device_kind *kind = exo_registry_find(&exo_device_registry, name);
    return kind ? kind->open(out, err) : exo_registry_unknown(&exo_device_registry, name, err);
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
}
