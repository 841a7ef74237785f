/* The kinds of devices by name, and opening one. No other state. */
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

/* A device's name is its kind's. */
void
exo_device_close(exo_device **device)
{
    const exo_device_kind *kind =
        *device ? exo_registry_find(&exo_device_registry, exo_device_name(*device)) : NULL;
    if (kind && kind->close)
        kind->close(*device);
    *device = NULL;
}
