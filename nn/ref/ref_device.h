/* The reference as a device: memory of the host, and a table of plain loops, which every other device is held against. */
#ifndef EXO_REF_DEVICE_H
#define EXO_REF_DEVICE_H

#include <exogym/device.h>

/* Lives as long as the process. For tests and measurements. */
exo_device *exo_device_ref(void);

#endif
