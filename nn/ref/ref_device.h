/* The reference as a device: memory of the host, and a table of plain kernels. Tests compare every
 * other device with it. No state. Read next: ref_kernels.h. */
#ifndef EXO_REF_DEVICE_H
#define EXO_REF_DEVICE_H

#include <exogym/device.h>

/* The device, which lives as long as the process. Any thread. For tests and measurements. */
exo_device *exo_device_ref(void);

#endif
