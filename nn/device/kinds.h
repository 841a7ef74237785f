/* The kinds of devices by name: builtins/ fills in those of the library. */
#ifndef EXO_DEVICE_KINDS_H
#define EXO_DEVICE_KINDS_H

#include <exogym/device.h>

#include "base/registry.h"

typedef struct exo_device_kind {
    const char *name;
    exo_status (*open)(exo_device **out, exo_err *err);
    void (*close)(exo_device *device); /* NULL: it lives as long as the process */
} exo_device_kind;

extern exo_registry exo_device_registry; /* of exo_device_kind */

#endif
