/* The kinds of devices by name. builtins/ fills the registry with those of the library, before
 * main. Read next: kinds.c. */
#ifndef EXO_DEVICE_KINDS_H
#define EXO_DEVICE_KINDS_H

#include <exogym/device.h>

#include "base/registry.h"

typedef struct exo_device_kind {
    const char *name, *help; /* help: a line for people, or NULL */
    bool numbered;           /* a name may end with the number of a device: "cuda:1" */
    /* which: the digits of that number. NULL: the place-th device, in turn. */
    exo_status (*open)(exo_device **out, const char *which, uint32_t place, exo_err *err);
    void (*close)(exo_device *device); /* NULL: the device lives as long as the process */
} exo_device_kind;

extern exo_registry exo_device_registry; /* of exo_device_kind */

#endif
