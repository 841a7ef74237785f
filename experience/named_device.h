/* The device that a config names: `device: cuda`. The actor opens it when it begins, and it then
 * belongs to the actor's thread.
 *
 * Owner: the caller, one thread at a time. Read next: exogym/device.h. */
#ifndef EXO_NAMED_DEVICE_H
#define EXO_NAMED_DEVICE_H

#include <exogym/config.h>
#include <exogym/device.h>

enum {
    EXO_DEVICE_NAME = 32 /* bytes of a name, its NUL included */
};

typedef struct exo_named_device {
    char name[EXO_DEVICE_NAME];
    exo_device *device; /* NULL: it is not open */
} exo_named_device;

/* Reads the key `device`, whose default is the CPU. INVAL (with its place): there is no such kind. */
exo_status exo_named_device_read(exo_named_device *out, exo_config *config, exo_err *err);
/* Opens it; actors of a name without a number take the GPUs in turn by their `place`. Errors: those of
 * exo_device_open_place. */
exo_status exo_named_device_open(exo_named_device *named, uint32_t place, exo_err *err);
/* Closes it, after everything on it was released. */
void exo_named_device_close(exo_named_device *named);

#endif
