/* Memory of the host that comes and goes at a fixed address, as the methods of a device's class. No
 * state. Read next: base/pages.h. */
#include "base/pages.h"

#include "nn/device/device_impl.h"

exo_status
exo_host_pages_reserve(exo_device *device, size_t bytes, void **out, exo_err *err)
{
    (void)device;
    *out = exo_pages_reserve(bytes);
    return *out ? EXO_OK : exo_fail(err, EXO_NOMEM, "no addresses for %zu bytes", bytes);
}

exo_status
exo_host_pages_open(exo_device *device, void *pages, size_t bytes, exo_err *err)
{
    (void)device;
    return exo_pages_open(pages, bytes)
               ? EXO_OK
               : exo_fail(err, EXO_NOMEM, "no memory for pages of %zu bytes", bytes);
}

void
exo_host_pages_close(exo_device *device, void *pages, size_t bytes)
{
    (void)device;
    exo_pages_close(pages, bytes);
}

void
exo_host_pages_free(exo_device *device, void *pages, size_t bytes)
{
    (void)device;
    exo_pages_free(pages, bytes);
}
