/* Where memory of a device can be opened: see exogym/ipc.h. No state. */
#include <exogym/ipc.h>

#include <unistd.h>

#include "base/boot.h"
#include "nn/device/device_impl.h"

/* 64-bit FNV-1a. */
static uint64_t
add_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return hash;
}

uint64_t
exo_ipc_place(const exo_device *device)
{
    char boot[EXO_BOOT_ID];
    if (!device->device_class->share_new)
        return 0;
    exo_boot_id(boot);
    uint64_t hash = add_text(UINT64_C(0xcbf29ce484222325) ^ getuid(), boot);
    hash = add_text(hash, device->device_class->name);
    return hash ? hash : 1;
}
