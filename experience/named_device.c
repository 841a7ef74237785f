/* Devices that a config names: see named_device.h. */
#include "experience/named_device.h"

#include <stdio.h>

#include "base/config_edit.h"

exo_status
exo_named_device_read(exo_named_device *out, exo_config *config, exo_err *err)
{
    const char *name = NULL;
    exo_err reason = {0};
    exo_status st = exo_config_string(config, "device", "cpu", &name, err);
    if (st != EXO_OK)
        return st;
    if (exo_device_check(name, &reason) != EXO_OK)
        return exo_config_fail(exo_config_get(config, "device"), err, "%s", reason.text);
    if ((size_t)snprintf(out->name, sizeof out->name, "%s", name) >= sizeof out->name)
        return exo_config_fail(exo_config_get(config, "device"), err,
                               "device: the name has more than %d characters", EXO_DEVICE_NAME - 1);
    return EXO_OK;
}

exo_status
exo_named_device_open(exo_named_device *named, uint32_t place, exo_err *err)
{
    return exo_device_open_place(&named->device, named->name, place, err);
}

void
exo_named_device_close(exo_named_device *named)
{
    exo_device_close(&named->device);
}
